//! Moving nodes out of extents that are being emptied, from the end of the file on.

use super::{Compaction, PATIENCE};
use crate::node::NodeRef;
use crate::page::{self, PageKind};
use crate::pass;
use crate::pool::Access;
use crate::shared::CATALOG;
use crate::space::{EXTENT_PAGES, Extent};
use crate::tree::{BTree, Relocated, TreeRoot};
use crate::{Error, Result};
use gannet_base::{PageId, TreeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// Where the pages of trees go, and what is left to those who know more of it.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// By tree: the extent from which on a place is looked for.
    pub(super) places: BTreeMap<TreeId, u64>,
    /// Trees with pages of long values in what is being emptied.
    values: BTreeSet<TreeId>,
    /// There is no place left for the long values of the tree that is being gone through.
    pub(super) is_full: bool,
    /// Somebody goes through the whole file: what was begun is to be tried again.
    pub(super) is_held_up: bool,
    /// He does for so long that the round ends: others may use what was emptied meanwhile.
    pub(super) is_given_up: bool,
    /// Steps since the snapshot was taken with which long values are moved, and how many of their pages had been moved then.
    pub(super) steps: u32,
    pub(super) moved_before: u64,
}

/// What a page that is to be moved holds.
enum Content {
    Node {
        level: u8,
        lower: Vec<u8>,
    },
    Value,
    /// Nothing yet, or nothing that is moved.
    Other,
}

impl Compaction {
    /// Moves everything that can be moved; false where somebody went through the whole file for long.
    pub(super) fn move_all(&self) -> Result<bool> {
        let core = &self.shared.core;
        let mut course = Course::default();
        let mut below = u64::MAX;
        while let Some(extent) = core.space.last_emptying(below) {
            below = extent;
            self.check()?;
            let first = PageId(extent * EXTENT_PAGES);
            let Some(what) = pass::extent_of(core, first)? else { continue };
            // What cannot be read stays where it is.
            self.empty_extent(first, what, &mut course).or_else(|error| self.pass_over(error))?;
            if course.is_given_up {
                return Ok(false);
            }
        }
        for tree in std::mem::take(&mut course.values) {
            course.is_full = false;
            self.move_values(tree, &mut course)?;
            if course.is_given_up {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn empty_extent(&self, first: PageId, what: Extent, course: &mut Course) -> Result<()> {
        let used = (0..EXTENT_PAGES).filter(|index| what.used & 1 << index != 0);
        let pages: Vec<PageId> = used.map(|index| PageId(first.0 + index)).collect();
        let mut fetched = 0;
        for (index, &id) in pages.iter().enumerate() {
            self.step()?;
            if index >= fetched {
                fetched = pages.len().min(index + self.ahead());
                self.fetch(&pages[index..fetched]);
            }
            let moved = loop {
                let moved = {
                    let _garbage = self.hold_garbage();
                    self.with_tree(what.owner, |root| self.move_page(root, id, course))?
                };
                // Waited for while garbage may go.
                if !self.was_held_up(course)? {
                    break moved;
                }
                if course.is_given_up {
                    return Ok(());
                }
            };
            match moved {
                Some(Relocated::Moved) => {
                    self.counters.moved.fetch_add(1, Ordering::Relaxed);
                    self.job.advance(1);
                }
                Some(Relocated::Gone | Relocated::InUse) => {}
                // Others may find room in extents of their own tree, and leave some for the next round.
                Some(Relocated::NoRoom) | None => return Ok(()),
            }
        }
        Ok(())
    }

    fn move_page(&self, root: &TreeRoot, id: PageId, course: &mut Course) -> Result<Relocated> {
        let core = &self.shared.core;
        let tree = BTree::new(core, root);
        let (level, lower) = match self.look(root.id, id)? {
            Content::Node { level, lower } => (level, lower),
            Content::Value => {
                course.values.insert(root.id);
                return Ok(Relocated::Gone);
            }
            Content::Other => return Ok(Relocated::Gone),
        };
        let from = course.places.entry(root.id).or_default();
        if id != root.root() {
            let mut new = None;
            let from_ring = (id, Access::Ring(&self.ring));
            let moved = tree.relocate(from_ring, level, &lower, &mut |space| {
                new = space.place(root.id, from)?;
                Ok(new)
            })?;
            if let (Relocated::Moved, Some(new)) = (moved, new) {
                self.bring_home_soon(new);
            }
            return Ok(moved);
        }
        if root.name.is_empty() || !self.is_named(root) {
            return Ok(Relocated::InUse);
        }
        let Some(_moving) = self.shared.layout.try_move() else {
            course.is_held_up = true;
            return Ok(Relocated::Gone);
        };
        let catalog = BTree::new(core, &self.shared.catalog);
        tree.relocate_root(&catalog, self.shared.registry.horizon(), &mut |space| space.place(root.id, from))
    }

    /// Whether somebody went through the whole file; he has ended when this returns, or the round is given up.
    pub(super) fn was_held_up(&self, course: &mut Course) -> Result<bool> {
        if !std::mem::take(&mut course.is_held_up) {
            return Ok(false);
        }
        course.is_given_up = self.moving_within(PATIENCE)?.is_none();
        Ok(true)
    }

    /// Whether the catalog says where the tree's root is.
    fn is_named(&self, root: &TreeRoot) -> bool {
        root.id.0 >= crate::shared::FIRST_USER_TREE && root.id != CATALOG
    }

    fn look(&self, tree: TreeId, id: PageId) -> Result<Content> {
        let core = &self.shared.core;
        let page = match core.pool.shared(&core.volume, id, Access::Ring(&self.ring)) {
            Ok(page) => page,
            // It was given out, and nobody has written it yet.
            Err(Error::NeverWritten(_)) => return Ok(Content::Other),
            Err(error) => return Err(error),
        };
        if page::tree(&page) != tree {
            return Ok(Content::Other);
        }
        Ok(match page::kind(&page) {
            Some(PageKind::Node) => {
                let node = NodeRef::new(&page);
                Content::Node { level: node.level(), lower: node.lower_fence().to_vec() }
            }
            Some(PageKind::Overflow | PageKind::OverflowIndex) => Content::Value,
            _ => Content::Other,
        })
    }
}
