//! Moving pages of long values. Which entry a page belongs to stands nowhere on it, so a tree's leaves are gone through, and the lists of
//! the long values that they refer to.
//!
//! # Invariants
//! 1. Only what a settled entry refers to is moved: no undo record refers to it, and as long as our snapshot lives nobody frees it.
//! 2. A page of the value is moved together with the place in its list; a page of the list together with what refers to it, the entry or the
//!    page of the list before. Nobody else changes either.
//! 3. The old pages keep their bytes as long as somebody may look there: see the head of [`super`].

use super::Compaction;
use super::moves::Course;
use crate::entry::{self, Entry, decode_reference};
use crate::mtr::{Mtr, Part};
use crate::node::NodeRef;
use crate::overflow::{self, LIST_AT, MAX_VALUE, NEXT_AT};
use crate::page::{HEADER_LEN, PageKind};
use crate::pool::Access;
use crate::shared::{STATUS, UNDO_DIRECTORY};
use crate::tree::{BTree, Relocated, TreeRoot};
use crate::{Error, Result};
use gannet_base::{PageId, TreeId};
use std::sync::atomic::Ordering;

/// Steps under one snapshot, about: without one, garbage may go.
const STEPS_AT_ONCE: u32 = 64;

/// A place that was found for a page, in a mini-transaction, and what goes there.
type Placed = (PageId, Part, Vec<u8>);

impl Compaction {
    /// Moves the long values of a tree.
    pub(super) fn move_values(&self, id: TreeId, course: &mut Course) -> Result<()> {
        if matches!(id, STATUS | UNDO_DIRECTORY) {
            return Ok(());
        }
        let mut from = Some(Vec::new());
        while let Some(at) = from.take().filter(|_| !course.is_full && !course.is_given_up) {
            self.step()?;
            (course.steps, course.moved_before) = (0, self.value_pages_moved());
            let next = {
                let _garbage = self.hold_garbage();
                self.with_tree(id, |root| self.move_values_of_leaf(root, &at, course))
            };
            // Waited for while garbage may go.
            self.was_held_up(course)?;
            from = match next {
                Ok(next) => next.flatten(),
                Err(error) => return self.pass_over(error),
            };
        }
        Ok(())
    }

    /// Moves those of the leaf that covers `at`, from there on. Gives where to go on: with the next leaf, or with the value that was not moved to its
    /// end, of which what was moved is passed over then.
    fn move_values_of_leaf(
        &self,
        root: &TreeRoot,
        at: &[u8],
        course: &mut Course,
    ) -> Result<Option<Vec<u8>>> {
        let core = &self.shared.core;
        let tree = BTree::new(core, root);
        let horizon = self.shared.registry.horizon();
        let (values, next) = {
            let mut leaf = tree.leaf_shared(at, Access::Ring(&self.ring))?;
            if entry::can_settle(NodeRef::new(&leaf), horizon) {
                drop(leaf);
                tree.settle_leaf(at, horizon)?;
                leaf = tree.leaf_shared(at, Access::Ring(&self.ring))?;
            }
            let node = NodeRef::new(&leaf);
            let value = |slot: usize| {
                let entry = Entry::decode(node.payload(slot))?;
                let mut key = Vec::new();
                node.copy_key(slot, &mut key);
                (entry.writer.is_none() && entry.is_overflow()).then(|| (key, decode_reference(entry.value)))
            };
            let first = node.search(at).unwrap_or_else(|slot| slot);
            let values: Vec<_> = (first..node.count()).filter_map(value).collect();
            (values, node.upper_fence().map(<[u8]>::to_vec))
        };
        for (key, reference) in values {
            self.move_value(&tree, &key, reference, course)?;
            if course.is_full {
                break;
            }
            if course.is_held_up || self.is_long(course) {
                return Ok(Some(key));
            }
        }
        Ok(next)
    }

    /// Whether garbage was held back for long enough, and something was moved since: then garbage may go before the next step.
    fn is_long(&self, course: &Course) -> bool {
        course.steps >= STEPS_AT_ONCE && self.value_pages_moved() > course.moved_before
    }

    fn value_pages_moved(&self) -> u64 {
        self.counters.value_pages.load(Ordering::Relaxed)
    }

    /// [`Compaction::step`] with a snapshot in hand.
    fn next_step(&self, course: &mut Course) -> Result<()> {
        course.steps += 1;
        self.step()
    }

    /// Moves what lies in extents that are being emptied of the value of `key`, which has so many bytes and a list that begins on page `first`.
    fn move_value(
        &self,
        tree: &BTree<'_>,
        key: &[u8],
        (len, first): (u64, PageId),
        course: &mut Course,
    ) -> Result<()> {
        let core = &self.shared.core;
        let mut before = None;
        let mut index = first;
        // A list that leads back to itself has no end.
        let mut left = overflow::pages_for(core.page_size, len.min(MAX_VALUE));
        while !index.is_none() && !course.is_full && !course.is_held_up && !self.is_long(course) {
            self.check()?;
            left = left.checked_sub(1).ok_or_else(|| {
                Error::damaged_page(
                    first,
                    format_args!("the list of a long value of {len} bytes does not end"),
                )
            })?;
            if core.space.is_emptying(index) {
                match self.move_index(tree, key, before, index, course)? {
                    Some(moved) => index = moved,
                    None => return Ok(()),
                }
            }
            let next = self.move_listed(tree, index, course)?;
            before = Some(index);
            index = next;
        }
        Ok(())
    }

    /// Moves a page of a list; gives its new place, or nothing where the value cannot be moved.
    fn move_index<'c>(
        &'c self,
        tree: &BTree<'c>,
        key: &[u8],
        before: Option<PageId>,
        index: PageId,
        course: &mut Course,
    ) -> Result<Option<PageId>> {
        self.next_step(course)?;
        self.fetch(&[index]);
        // Not with the row's leaf latched, or the page of the list before.
        self.shared.core.pool.await_prefetch(&self.shared.core.volume, index);
        let Some(_moving) = self.shared.layout.try_move() else {
            course.is_held_up = true;
            return Ok(None);
        };
        let (id, from) = (tree.tree.id, course.places.entry(tree.tree.id).or_default());
        let mut new = PageId::NONE;
        let outcome = match before {
            None => {
                let format = |mtr: &mut Mtr<'c>, part, content: &[u8]| {
                    mtr.format(part, PageKind::OverflowIndex, id, content);
                };
                let prepare = |mtr: &mut Mtr<'c>| {
                    let placed = self.place(mtr, id, index, from)?;
                    new = placed.as_ref().map_or(PageId::NONE, |placed| placed.0);
                    Ok(placed)
                };
                tree.repoint_long_value(key, index, prepare, format)?
            }
            Some(before) => {
                let mut mtr = Mtr::new(&self.shared.core);
                let link = mtr.latch(before)?;
                match self.place(&mut mtr, id, index, from)? {
                    None => Relocated::NoRoom,
                    Some((page, part, content)) => {
                        mtr.format(part, PageKind::OverflowIndex, id, &content);
                        mtr.patch(link, NEXT_AT, &page.0.to_le_bytes());
                        mtr.commit()?;
                        new = page;
                        Relocated::Moved
                    }
                }
            }
        };
        course.is_full |= outcome == Relocated::NoRoom;
        if outcome != Relocated::Moved {
            return Ok(None);
        }
        self.count_value_pages(1);
        Ok(Some(new))
    }

    /// Moves the pages that a page of the list names; gives the list's next page.
    fn move_listed(&self, tree: &BTree<'_>, index: PageId, course: &mut Course) -> Result<PageId> {
        let core = &self.shared.core;
        let (next, pages) = overflow::read_index(core, index)?;
        let listed = pages.into_iter().enumerate().filter(|&(_, page)| core.space.is_emptying(page));
        let listed: Vec<(usize, PageId)> = listed.collect();
        for batch in listed.chunks(overflow::pages_at_once(core)) {
            if self.is_long(course) {
                break;
            }
            self.next_step(course)?;
            let ahead: Vec<PageId> = batch.iter().map(|&(_, page)| page).collect();
            self.fetch(&ahead);
            // Not with the list latched.
            ahead.iter().for_each(|&page| core.pool.await_prefetch(&core.volume, page));
            let from = course.places.entry(tree.tree.id).or_default();
            let Some(_moving) = self.shared.layout.try_move() else {
                course.is_held_up = true;
                break;
            };
            let mut mtr = Mtr::new(core);
            let list = mtr.latch(index)?;
            let mut placed: Vec<(usize, Placed)> = Vec::with_capacity(batch.len());
            for &(at, page) in batch {
                match self.place(&mut mtr, tree.tree.id, page, from)? {
                    Some(found) => placed.push((at, found)),
                    None => {
                        course.is_full = true;
                        break;
                    }
                }
            }
            let count = placed.len() as u64;
            for (at, (page, part, content)) in placed {
                mtr.format(part, PageKind::Overflow, tree.tree.id, &content);
                mtr.patch(list, LIST_AT + at * 8, &page.0.to_le_bytes());
            }
            mtr.commit()?;
            self.count_value_pages(count);
            if course.is_full {
                break;
            }
        }
        Ok(next)
    }

    /// Finds a place for a page and frees the page; gives what is to be put there: all but the zeros at its end.
    fn place<'c>(
        &'c self,
        mtr: &mut Mtr<'c>,
        tree: TreeId,
        old: PageId,
        from: &mut u64,
    ) -> Result<Option<Placed>> {
        let core = &self.shared.core;
        let content = {
            let page = core.pool.shared(&core.volume, old, Access::Ring(&self.ring))?;
            let end = page.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            page[HEADER_LEN..end.max(HEADER_LEN)].to_vec()
        };
        let Some(new) = mtr.allocations().place(tree, from)? else { return Ok(None) };
        let part = mtr.add(core.pool.create(&core.volume, new)?);
        mtr.free(tree, old)?;
        Ok(Some((new, part, content)))
    }

    fn count_value_pages(&self, pages: u64) {
        self.counters.moved.fetch_add(pages, Ordering::Relaxed);
        self.counters.value_pages.fetch_add(pages, Ordering::Relaxed);
        self.job.advance(pages);
    }
}
