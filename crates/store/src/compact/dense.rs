//! Making trees denser, where some neighbours fit into one page less: from the left to the right, first the nodes above the leaves, so
//! that leaves have their neighbours under the same parent, then the leaves, then what is above them once more.

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
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Shares of a node that are filled, in percent, of leaves and of nodes above: as a bulk load does.
const LEAF_FILL: usize = 96;
const INNER_FILL: usize = 90;
/// How many nodes are written at most for one that becomes free: nodes that are fuller than that, on average, stay as they are.
const WRITTEN_FOR_ONE: usize = 6;
/// Nodes that are looked at for one permit, at most.
const LOOKED_AT: usize = 8;

/// What somebody who goes along a level finds.
enum Found {
    /// A node that may be filled from its right neighbour; it begins at this key.
    Sparse(Vec<u8>),
    /// Nothing up to this key, or to the end.
    Dense(Option<Vec<u8>>),
}

/// A node, as it was for a moment.
struct Looked {
    /// See [`Density::used`].
    used: usize,
    entries: usize,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Looked {
    fn covers(&self, key: &[u8]) -> bool {
        *self.lower <= *key && self.upper.as_deref().is_none_or(|upper| key < upper)
    }
}

impl Compaction {
    pub(super) fn make_trees_dense(&self) -> Result<()> {
        let shared = &self.shared;
        self.job.phase("makes trees denser", Unit::Pages, plan::used_pages(shared, &|| self.breathe())?);
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
        let has_versions = level == 0 && !matches!(id, STATUS | UNDO_DIRECTORY);
        let mut fetched = BTreeSet::new();
        let mut from = Some(Vec::new());
        while let Some(at) = from {
            self.step()?;
            // For a piece of work only: garbage is to be swept in between.
            let _garbage = self.hold_garbage();
            let density = Density {
                limit: self.shared.core.page_size * if level == 0 { LEAF_FILL } else { INNER_FILL } / 100,
                horizon: has_versions.then(|| self.shared.registry.horizon()),
                may: &|node| !self.may_be_reverted(node),
            };
            let next = self.with_tree(id, |root| {
                match self.find_sparse(root, level, density, &mut fetched, &at)? {
                    Found::Sparse(at) => self.make_some_dense(root, level, density, at),
                    Found::Dense(next) => Ok(next),
                }
            })?;
            let Some(next) = next else { return Ok(false) };
            from = next;
        }
        Ok(true)
    }

    /// Looks whether one of some nodes of `level`, from the one that covers `at` on, is to be made denser, and asks for those behind them.
    fn find_sparse(
        &self,
        root: &TreeRoot,
        level: u8,
        density: Density<'_>,
        fetched: &mut BTreeSet<PageId>,
        at: &[u8],
    ) -> Result<Found> {
        let children = BTree::new(&self.shared.core, root).children_from(at, level + 1)?.pages;
        self.fetch_some(&children, fetched);
        let mut from = at.to_vec();
        for (index, &id) in children.iter().take(LOOKED_AT).enumerate() {
            // Somebody else has changed something where it is otherwise: what, the step sees.
            let looked = self.look_at(root, level, density, id)?.filter(|looked| looked.covers(&from));
            let Some(looked) = looked else { return Ok(Found::Sparse(from)) };
            if self.is_worth_it(root, level, density, &looked, &children[index + 1..])? {
                return Ok(Found::Sparse(from));
            }
            self.job.advance(1);
            match looked.upper {
                Some(upper) => from = upper,
                None => return Ok(Found::Dense(None)),
            }
        }
        Ok(Found::Dense((!children.is_empty()).then_some(from)))
    }

    /// A node of `level`; `None` where there is no such one any more, or not yet.
    fn look_at(
        &self,
        root: &TreeRoot,
        level: u8,
        density: Density<'_>,
        id: PageId,
    ) -> Result<Option<Looked>> {
        let core = &self.shared.core;
        let page = match core.pool.shared(&core.volume, id, Access::Ring(&self.ring)) {
            Ok(page) => page,
            // Its parent is not latched. If it is still the parent, the step tells.
            Err(Error::Damaged(_) | Error::NeverWritten(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        if page::kind(&page) != Some(PageKind::Node) || page::tree(&page) != root.id {
            return Ok(None);
        }
        let node = NodeRef::new(&page);
        Ok((node.level() == level).then(|| Looked {
            used: density.used(node),
            entries: node.count(),
            lower: node.lower_fence().to_vec(),
            upper: node.upper_fence().map(<[u8]>::to_vec),
        }))
    }

    /// Whether a node, with some of those on its right, fits into one page less. Each of them is written for it: so they are
    /// not to be many. Entries are not divided: of each page that is filled half of one is lost, on average. Where it is so, its right
    /// neighbour has been waited for.
    fn is_worth_it(
        &self,
        root: &TreeRoot,
        level: u8,
        density: Density<'_>,
        first: &Looked,
        right: &[PageId],
    ) -> Result<bool> {
        if density.is_full(first.used) {
            return Ok(false);
        }
        let (mut used, mut entries) = (first.used, first.entries);
        for (saved, &id) in right.iter().take(WRITTEN_FOR_ONE - 1).enumerate() {
            let Some(looked) = self.look_at(root, level, density, id)? else { return Ok(false) };
            (used, entries) = (used + looked.used, entries + looked.entries);
            let lost = used / entries.max(1) / 2;
            if used <= (saved + 1) * density.limit.saturating_sub(lost) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Asks for some of these pages, as soon as half of what was asked for before has come by.
    fn fetch_some(&self, pages: &[PageId], fetched: &mut BTreeSet<PageId>) {
        let ahead = self.ahead();
        let near = &pages[..pages.len().min(ahead)];
        let missing: Vec<_> = near.iter().copied().filter(|page| !fetched.contains(page)).collect();
        let is_needed = near.iter().take(LOOKED_AT).any(|page| !fetched.contains(page));
        if missing.len() >= ahead / 2 || is_needed {
            *fetched = near.iter().copied().collect();
            self.fetch(&missing);
        }
    }

    /// Makes the node that covers `at` denser by one step. Gives where to go on, if there is more.
    fn make_some_dense(
        &self,
        root: &TreeRoot,
        level: u8,
        density: Density<'_>,
        at: Vec<u8>,
    ) -> Result<Option<Vec<u8>>> {
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
