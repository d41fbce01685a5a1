//! Making trees denser: from the left to the right, first the nodes above the leaves, so that leaves have their neighbours under the
//! same parent, then the leaves, then what is above them once more.

use super::{Compaction, plan};
use crate::entry::Entry;
use crate::jobs::Unit;
use crate::node::NodeRef;
use crate::shared::{STATUS, UNDO_DIRECTORY};
use crate::tree::{BTree, Dense, Density, TreeRoot};
use crate::{Error, Result};
use gannet_base::TreeId;
use std::sync::atomic::Ordering;

/// Shares of a node that are filled, in percent, of leaves and of nodes above: as a bulk load does.
const LEAF_FILL: usize = 96;
const INNER_FILL: usize = 90;
/// Nodes that are asked for ahead.
const AHEAD: usize = 64;

impl Compaction {
    pub(super) fn make_trees_dense(&self) -> Result<()> {
        let shared = &self.shared;
        self.job.phase("makes trees denser", Unit::Pages, plan::used_pages(shared, &|| self.check())?);
        for id in plan::movable(shared) {
            match self.make_tree_dense(id) {
                // What cannot be read is found by a check; everything else is compacted all the same.
                Err(error @ (Error::Damaged(_) | Error::NeverWritten(_))) => {
                    self.check()?;
                    self.job.note(error);
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn make_tree_dense(&self, id: TreeId) -> Result<()> {
        let top = {
            let _garbage = self.hold_garbage();
            self.with_tree(id, |root| BTree::new(&self.shared.core, root).root_level())?
        };
        let Some(top) = top else { return Ok(()) };
        for level in (1..top).chain(0..top) {
            if !self.make_level_dense(id, level)? {
                return Ok(());
            }
        }
        let _garbage = self.hold_garbage();
        self.with_tree(id, |root| BTree::new(&self.shared.core, root).shrink(&[])).map(drop)
    }

    /// False when the tree is gone.
    fn make_level_dense(&self, id: TreeId, level: u8) -> Result<bool> {
        let mut from = Some(Vec::new());
        while let Some(at) = from {
            self.check()?;
            // Some steps at a time: garbage is to be swept in between.
            let _garbage = self.hold_garbage();
            let next = self.with_tree(id, |root| self.make_some_dense(root, level, at))?;
            let Some(next) = next else { return Ok(false) };
            from = next;
        }
        Ok(true)
    }

    /// Gives where to go on, if there is more.
    fn make_some_dense(&self, root: &TreeRoot, level: u8, mut at: Vec<u8>) -> Result<Option<Vec<u8>>> {
        let core = &self.shared.core;
        let tree = BTree::new(core, root);
        let has_versions = level == 0 && !matches!(root.id, STATUS | UNDO_DIRECTORY);
        let mut ahead = tree.children_from(&at, level + 1)?.pages;
        ahead.truncate(AHEAD);
        self.fetch(&ahead);
        for _ in 0..ahead.len().max(1) {
            self.step()?;
            let density = Density {
                limit: core.page_size * if level == 0 { LEAF_FILL } else { INNER_FILL } / 100,
                horizon: has_versions.then(|| self.shared.registry.horizon()),
                may: &|node| !self.may_be_reverted(node),
            };
            match tree.make_dense(&at, level, density)? {
                Dense::Merged => {
                    self.counters.merged.fetch_add(1, Ordering::Relaxed);
                    self.job.advance(1);
                }
                Dense::Settled => {}
                Dense::Filled(next) | Dense::Passed(next) | Dense::Busy(next) => {
                    at = next;
                    self.job.advance(1);
                }
                Dense::End => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Whether a rollback may make an entry of the leaf longer again: it was promised room as the leaf is (`reserve_for_rollback`).
    fn may_be_reverted(&self, leaf: NodeRef<'_>) -> bool {
        let writer = |slot| Entry::decode(leaf.payload(slot)).map(|entry| entry.writer);
        (0..leaf.count())
            .filter_map(writer)
            .any(|writer| !writer.is_none() && self.shared.registry.find(writer).is_some())
    }
}
