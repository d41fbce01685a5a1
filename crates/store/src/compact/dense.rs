//! Making trees denser, where some neighbours fit into one page less: from the left to the right, first the nodes above the leaves, so that leaves have their neighbours under the
//! same parent, then the leaves, then what is above them once more.

use super::{Compaction, plan};
use crate::entry::Entry;
use crate::jobs::Unit;
use crate::node::NodeRef;
use crate::page::{self, PageKind};
use crate::pool::Access;
use crate::shared::{STATUS, UNDO_DIRECTORY};
use crate::tree::{BTree, Dense, Density, TreeRoot};
use crate::{Error, Result};
use gannet_base::{PageId, TreeId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Shares of a node that are filled, in percent, of leaves and of nodes above: as a bulk load does.
const LEAF_FILL: usize = 96;
const INNER_FILL: usize = 90;
/// How many nodes are written at most for one that becomes free: nodes that are fuller than that, on average, stay as they are.
const WRITTEN_FOR_ONE: usize = 6;
/// Nodes that are asked for ahead.
const AHEAD: usize = 64;

/// What somebody who goes along a level finds.
enum Found {
    /// A node that may be filled from its right neighbour; it begins at this key.
    Sparse(Vec<u8>),
    /// Nothing up to this key, or to the end.
    Dense(Option<Vec<u8>>),
}

impl Compaction {
    pub(super) fn make_trees_dense(self: &Arc<Self>) -> Result<()> {
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

    fn make_tree_dense(self: &Arc<Self>, id: TreeId) -> Result<()> {
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
    fn make_level_dense(self: &Arc<Self>, id: TreeId, level: u8) -> Result<bool> {
        let limit = self.shared.core.page_size * if level == 0 { LEAF_FILL } else { INNER_FILL } / 100;
        let mut from = Some(Vec::new());
        while let Some(at) = from {
            self.check()?;
            // For a step only: garbage is to be swept in between.
            let _garbage = self.hold_garbage();
            let scout = {
                let (this, at) = (Arc::clone(self), at.clone());
                move || this.with_tree(id, |root| this.find_sparse(root, level, limit, &at))
            };
            let Some((passed, found)) = self.job.errand(scout)? else { return Ok(false) };
            self.job.advance(passed);
            from = match found {
                Found::Sparse(at) => {
                    self.step()?;
                    match self.with_tree(id, |root| self.make_some_dense(root, level, limit, at))? {
                        Some(next) => next,
                        None => return Ok(false),
                    }
                }
                Found::Dense(next) => next,
            };
        }
        Ok(true)
    }

    /// Looks for a node of `level` that is to be made denser, from the one that covers `at` on, and asks for those behind it. Gives how many it has passed,
    /// and what it found.
    fn find_sparse(&self, root: &TreeRoot, level: u8, limit: usize, at: &[u8]) -> Result<(u64, Found)> {
        let core = &self.shared.core;
        let children = BTree::new(core, root).children_from(at, level + 1)?;
        self.fetch_some(&children.pages);
        let mut from = at.to_vec();
        let mut passed = 0;
        for (index, &id) in children.pages.iter().take(AHEAD).enumerate() {
            let upper = match self.look_at(root, level, id, &from)? {
                // Somebody else has changed something: what, the step sees.
                None => break,
                Some((used, upper)) => {
                    if self.is_worth_it(root, level, limit, used, &children.pages[index + 1..]) {
                        return Ok((passed, Found::Sparse(from)));
                    }
                    upper
                }
            };
            passed += 1;
            match upper {
                Some(upper) => from = upper,
                None => return Ok((passed, Found::Dense(None))),
            }
        }
        if passed > 0 {
            return Ok((passed, Found::Dense(Some(from))));
        }
        Ok((0, if children.pages.is_empty() { Found::Dense(None) } else { Found::Sparse(from) }))
    }

    /// Bytes used of a node of `level`, and where it ends; `None` where it is not there, or does not cover `from`.
    fn look_at(
        &self,
        root: &TreeRoot,
        level: u8,
        id: PageId,
        from: &[u8],
    ) -> Result<Option<(usize, Option<Vec<u8>>)>> {
        let core = &self.shared.core;
        let page = core.pool.shared(&core.volume, id, Access::Ring(&self.ring))?;
        if page::kind(&page) != Some(PageKind::Node) || page::tree(&page) != root.id {
            return Ok(None);
        }
        let node = NodeRef::new(&page);
        let is_it = node.level() == level && node.covers(from);
        Ok(is_it.then(|| (node.used_bytes(), node.upper_fence().map(<[u8]>::to_vec))))
    }

    /// Whether a node that uses so much, with some of those on its right, fits into one page less. Each of them is written for it: so they are not to be
    /// many. Where it is so, its right neighbour has been waited for.
    fn is_worth_it(&self, root: &TreeRoot, level: u8, limit: usize, used: usize, right: &[PageId]) -> bool {
        let core = &self.shared.core;
        let mut sum = used;
        for (saved, &id) in right.iter().take(WRITTEN_FOR_ONE - 1).enumerate() {
            // What is wrong with one of them is told where it is gone to.
            let Ok(page) = core.pool.shared(&core.volume, id, Access::Ring(&self.ring)) else { return false };
            if page::kind(&page) != Some(PageKind::Node) || page::tree(&page) != root.id {
                return false;
            }
            let node = NodeRef::new(&page);
            if node.level() != level {
                return false;
            }
            sum += node.used_bytes();
            if sum <= (saved + 1) * limit {
                return true;
            }
        }
        false
    }

    /// Asks for some of these pages, as soon as half of what was asked for before has come by.
    fn fetch_some(&self, pages: &[PageId]) {
        let near = &pages[..pages.len().min(AHEAD)];
        let mut fetched = self.fetched.lock();
        let missing: Vec<_> = near.iter().copied().filter(|page| !fetched.contains(page)).collect();
        let is_needed = near.iter().take(2).any(|page| !fetched.contains(page));
        if missing.len() >= AHEAD / 2 || is_needed {
            fetched.clear();
            fetched.extend(near);
            drop(fetched);
            self.fetch(&missing);
        }
    }

    /// Makes the node that covers `at` denser by one step. Gives where to go on, if there is more.
    fn make_some_dense(
        &self,
        root: &TreeRoot,
        level: u8,
        limit: usize,
        at: Vec<u8>,
    ) -> Result<Option<Vec<u8>>> {
        let has_versions = level == 0 && !matches!(root.id, STATUS | UNDO_DIRECTORY);
        let density = Density {
            limit,
            horizon: has_versions.then(|| self.shared.registry.horizon()),
            may: &|node| !self.may_be_reverted(node),
        };
        let tree = BTree::new(&self.shared.core, root);
        let mut step = tree.make_dense(&at, level, density)?;
        // The left one, then the right one; then what is to be done with them.
        for _ in 0..2 {
            if let Dense::Settled = step {
                step = tree.make_dense(&at, level, density)?;
            }
        }
        Ok(self.came_to(at, step))
    }

    /// Where to go on behind a step at `at`, if there is more.
    fn came_to(&self, at: Vec<u8>, step: Dense) -> Option<Vec<u8>> {
        match step {
            Dense::Merged => {
                self.counters.merged.fetch_add(1, Ordering::Relaxed);
                self.job.advance(1);
                Some(at)
            }
            Dense::Settled => Some(at),
            Dense::Filled(next) | Dense::Passed(next) | Dense::Busy(next) => {
                self.job.advance(1);
                Some(next)
            }
            Dense::End => None,
        }
    }

    /// Whether a rollback may make an entry of the leaf longer again: it was promised room as the leaf is (`reserve_for_rollback`).
    fn may_be_reverted(&self, leaf: NodeRef<'_>) -> bool {
        let writer = |slot| Entry::decode(leaf.payload(slot)).map(|entry| entry.writer);
        (0..leaf.count())
            .filter_map(writer)
            .any(|writer| !writer.is_none() && self.shared.registry.find(writer).is_some())
    }
}
