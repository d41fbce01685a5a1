//! Mini-transactions: a few pages changed as one.
//!
//! # What it guarantees
//! 1. The changes of one mini-transaction are one log record: after a crash all of them are there or none.
//! 2. Pages stay latched from before their first change until the record is in the log buffer, and all get the
//!    record's LSN. So a page's changes stand in the log in the order in which they were made.
//! 3. Everything that can fail (reading pages, finding space) happens before the first change. Once a page was
//!    changed only [`Mtr::commit`] is left; where the log refuses, the database is poisoned before any latch opens,
//!    and no changed page can reach the device any more.
//! 4. Latches are taken in the order tree pages (downwards), undo page, space lock, space maps: no cycles.
//!
//! The term is InnoDB's; the idea, nested top actions without undo, is from Mohan et al., ARIES (1992).

use crate::change::{self, FORMAT, NODE, PATCH, SETTLE, UNDO};
use crate::core::Core;
use crate::log::GroupBuilder;
use crate::node::{NodeOp, NodeRef, Place};
use crate::page::{self, PageKind};
use crate::pool::ExclusivePage;
use crate::space::Allocations;
use crate::{Error, Result};
use gannet_base::{Lsn, PageId, TreeId, TxnId};
use smallvec::SmallVec;
use std::cell::Cell;

/// A page that takes part, by its number within the mini-transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part(usize);

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Mtr<'c> {
    core: &'c Core,
    pages: SmallVec<[ExclusivePage<'c>; 4]>,
    group: GroupBuilder,
    allocations: Option<Allocations<'c>>,
    /// For each part, whether it was changed.
    changed: SmallVec<[bool; 16]>,
    any_change: bool,
}

impl<'c> Mtr<'c> {
    pub(crate) fn new(core: &'c Core) -> Self {
        Mtr {
            core,
            pages: SmallVec::new(),
            group: take_builder(),
            allocations: None,
            changed: SmallVec::new(),
            any_change: false,
        }
    }

    /// Lets a latched page take part.
    pub(crate) fn add(&mut self, page: ExclusivePage<'c>) -> Part {
        debug_assert!(self.pages.iter().all(|p| p.id() != page.id()));
        self.pages.push(page);
        self.changed.push(false);
        Part(self.pages.len() - 1)
    }

    /// Latches a page and lets it take part.
    pub(crate) fn latch(&mut self, id: PageId) -> Result<Part> {
        let page = self.core.pool.exclusive(&self.core.volume, id)?;
        Ok(self.add(page))
    }

    /// Allocates a page for `tree`, close to the first of `near` that has room about it, and lets it take part; it must be
    /// formatted before the end. Before the first change only.
    pub(crate) fn allocate(&mut self, tree: TreeId, near: &[PageId]) -> Result<(PageId, Part)> {
        assert!(!self.any_change, "space is found before anything changes");
        let core = self.core;
        let id = self.allocations().allocate(tree, near)?;
        let page = core.pool.create(&core.volume, id)?;
        Ok((id, self.add(page)))
    }

    /// Frees a page of `tree` at the end of the mini-transaction. Before the first change only.
    pub(crate) fn free(&mut self, tree: TreeId, id: PageId) -> Result<()> {
        assert!(!self.any_change, "space maps are latched before anything changes");
        self.allocations().free(tree, id)
    }

    /// The space lock, taken on first use.
    pub(crate) fn allocations(&mut self) -> &mut Allocations<'c> {
        let core = self.core;
        self.allocations.get_or_insert_with(|| core.space.lock(core))
    }

    pub(crate) fn page(&self, part: Part) -> &[u8] {
        &self.pages[part.0]
    }

    pub(crate) fn id(&self, part: Part) -> PageId {
        self.pages[part.0].id()
    }

    /// Notes on whose behalf this happens, for the log's table of open transactions.
    pub(crate) fn group(&mut self) -> &mut GroupBuilder {
        &mut self.group
    }

    /// Changes a node.
    pub(crate) fn node(&mut self, part: Part, op: &NodeOp<'_>) {
        let init = matches!(op, NodeOp::Image { .. });
        self.change(part, NODE, init, |out| op.encode(out));
    }

    /// Puts an entry into a node that has room for it, at the place where a search has found its key, or not.
    pub(crate) fn put_entry(&mut self, part: Part, place: Place, key: &[u8], payload: &[u8]) {
        let node = NodeRef::new(&self.pages[part.0]);
        debug_assert_eq!(place, node.search(key), "the page has changed since the search");
        match place {
            Ok(slot) => self.node(part, &NodeOp::Replace { slot, payload }),
            Err(slot) => {
                let stored = node.suffix_to_store(slot, key).len();
                self.node(part, &NodeOp::Insert { slot, suffix: &key[key.len() - stored..], payload });
            }
        }
    }

    /// Removes an entry from a node, if it is there.
    pub(crate) fn remove_entry(&mut self, part: Part, key: &[u8]) {
        if let Ok(slot) = NodeRef::new(&self.pages[part.0]).search(key) {
            self.node(part, &NodeOp::Remove { slot });
        }
    }

    /// Overwrites bytes in place.
    pub(crate) fn patch(&mut self, part: Part, offset: usize, bytes: &[u8]) {
        self.change(part, PATCH, false, |out| change::encode_at(out, offset, bytes));
    }

    /// Appends an undo record, which `encode` writes, at `offset`.
    pub(crate) fn undo(&mut self, part: Part, offset: usize, encode: impl FnOnce(&mut Vec<u8>)) {
        self.change(part, UNDO, false, |out| {
            change::encode_at(out, offset, &[]);
            encode(out);
        });
    }

    /// Settles a leaf's entries, see [`crate::entry::settle`].
    pub(crate) fn settle(&mut self, part: Part, horizon: TxnId) {
        self.change(part, SETTLE, false, |out| out.extend_from_slice(&horizon.0.to_le_bytes()));
    }

    /// Gives a page its first contents.
    pub(crate) fn format(&mut self, part: Part, kind: PageKind, tree: TreeId, content: &[u8]) {
        self.change(part, FORMAT, true, |out| change::encode_format(out, kind, tree, content));
    }

    /// Gives a page contents that the log does not get, only that the page is to be filled: see `tree::bulk`.
    pub(crate) fn fill(&mut self, part: Part, tree: TreeId, contents: &[u8]) {
        self.format(part, PageKind::Unfilled, tree, &[]);
        self.pages[part.0].publish(contents);
    }

    fn change(&mut self, part: Part, kind: u8, init: bool, encode: impl FnOnce(&mut Vec<u8>)) {
        let page = &mut self.pages[part.0];
        self.changed[part.0] = true;
        self.any_change = true;
        page.mark_dirty(self.core.log.end(), init);
        let bytes = self.group.change(page.id(), page::lsn(page), kind, init, encode);
        // Going forward and redo are the same function on the same bytes; only a bug makes it fail here.
        if let Err(message) = apply_published(kind, init, bytes, page) {
            let id = page.id();
            self.core.poison.set(format!("a change of {id} could not be applied: {message}"));
            panic!("a change of {id} could not be applied: {message}");
        }
    }

    /// Writes the record, gives the pages its LSN and opens their latches.
    pub(crate) fn commit(mut self) -> Result<Lsn> {
        if let Some(mut allocations) = self.allocations.take() {
            for (page, edits) in allocations.finish() {
                let part = self.add(page);
                for (offset, bytes) in edits {
                    self.patch(part, offset, &bytes);
                }
            }
            self.append()
            // The space lock opens here, behind the append: space maps change in log order.
        } else {
            self.append()
        }
    }

    fn append(&mut self) -> Result<Lsn> {
        if self.group.is_empty() {
            return Ok(self.core.log.end());
        }
        // Behind a change that could not be logged, nothing may be: redo would apply it to a page that lacks that
        // change. The pages are latched, so whoever failed on one of them has thrown the switch by now.
        self.core.poison.check()?;
        match self.core.log.append(&self.group) {
            Ok(lsn) => {
                for (page, _) in self.pages.iter_mut().zip(&self.changed).filter(|(_, changed)| **changed) {
                    page::set_lsn(page, lsn);
                }
                self.any_change = false;
                Ok(lsn)
            }
            Err(error) => {
                self.core.poison.set_by(&error);
                Err(error)
            }
        }
    }
}

/// Applies a change. Where optimistic readers may be at work, in an inner node or in what was one before, on a copy that is then published.
fn apply_published(
    kind: u8,
    init: bool,
    bytes: &[u8],
    page: &mut ExclusivePage<'_>,
) -> std::result::Result<(), String> {
    let is_inner = |page: &[u8]| page::kind(page) == Some(PageKind::Node) && NodeRef::new(page).is_inner();
    if !init && (kind != NODE || !is_inner(page)) {
        return change::apply(kind, bytes, page);
    }
    let mut copy = page.to_vec();
    change::apply(kind, bytes, &mut copy)?;
    page.publish(&copy);
    Ok(())
}

impl Drop for Mtr<'_> {
    fn drop(&mut self) {
        if self.any_change {
            // Changed pages without a log record must never be written: invariant 3.
            self.core.poison.set("a change was not logged".to_owned());
        }
        give_builder(std::mem::take(&mut self.group));
    }
}

/// Bytes of a group's memory that a thread keeps for its next one.
const KEPT_GROUP: usize = 4096;

thread_local! {
    static BUILDER: Cell<Option<GroupBuilder>> = const { Cell::new(None) };
}

fn take_builder() -> GroupBuilder {
    BUILDER.try_with(Cell::take).ok().flatten().unwrap_or_default()
}

fn give_builder(mut builder: GroupBuilder) {
    builder.clear();
    if builder.memory() <= KEPT_GROUP {
        // A thread that ends needs no next one.
        let _ = BUILDER.try_with(|kept| kept.set(Some(builder)));
    }
}

impl Mtr<'_> {
    /// The error of a page whose contents contradict what refers to it.
    pub(crate) fn damaged(&self, part: Part, what: &str) -> Error {
        Error::damaged_page(self.id(part), what)
    }
}
