//! Making trees denser, where some neighbours fit into one page less: from the left to the right, first the nodes above the leaves, so
//! that leaves have their neighbours under the same parent, then the leaves, then what is above them once more.

use super::fullness::Fullness;
use super::{Compaction, plan};
use crate::Result;
use crate::entry::Entry;
use crate::jobs::Unit;
use crate::node::NodeRef;
use crate::page::{self, PageKind};
use crate::pool::Access;
use crate::shared::{STATUS, UNDO_DIRECTORY};
use crate::tree::{BTree, Children, Dense, Density, TreeRoot, fill_limit, is_full};
use gannet_base::{PageId, TreeId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many nodes are written at most for one that becomes free: nodes that are fuller than that, on average, stay as they are.
pub(super) const WRITTEN_FOR_ONE: usize = 4;
/// Nodes that are looked at for one permit, at most.
const LOOKED_AT: usize = 8;

/// Whether a tree's entries have versions.
pub(super) fn has_versions(tree: TreeId) -> bool {
    !matches!(tree, STATUS | UNDO_DIRECTORY)
}

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
            // Everything else is compacted all the same.
            self.make_tree_dense(id).or_else(|error| self.pass_over(error))?;
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
        let has_versions = level == 0 && has_versions(id);
        let mut fetched = BTreeSet::new();
        let mut from = Some(Vec::new());
        while let Some(at) = from {
            self.step()?;
            // For a piece of work only: garbage is to be swept in between.
            let _garbage = self.hold_garbage();
            let density = Density {
                limit: fill_limit(self.shared.core.page_size, level.into()),
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

    /// Looks whether one of some nodes of `level`, from the one that covers `at` on, is to be made denser, and asks for those behind them. Leaves that are
    /// known to be dense are passed over.
    fn find_sparse(
        &self,
        root: &TreeRoot,
        level: u8,
        density: Density<'_>,
        fetched: &mut BTreeSet<PageId>,
        at: &[u8],
    ) -> Result<Found> {
        let Children { pages, next, .. } =
            BTree::new(&self.shared.core, root).children_from(at, level + 1)?;
        let fullness = self.fullness.get().filter(|_| level == 0).map(Arc::as_ref);
        let is_here = |key: &[u8]| key >= at && next.as_deref().is_none_or(|next| key < next);
        let mut left = &pages[..];
        let mut from = at.to_vec();
        for _ in 0..LOOKED_AT {
            let skipped =
                fullness.map_or(Some(0), |fullness| fullness.first_sparse(left)).unwrap_or(left.len());
            self.job.advance(skipped as u64);
            left = &left[skipped..];
            let [id, right @ ..] = left else { return Ok(Found::Dense(next)) };
            self.fetch_some(left, fullness, fetched);
            let looked = self.look_at(root, level, density, *id)?;
            let is_it = |looked: &Looked| match skipped {
                0 => looked.covers(&from),
                _ => is_here(&looked.lower),
            };
            // Somebody else has changed something where it is otherwise: what, the step sees.
            let Some(looked) = looked.filter(is_it) else { return Ok(Found::Sparse(from)) };
            if skipped > 0 {
                from = looked.lower.clone();
            }
            if self.is_worth_it(root, level, density, &looked, right)? {
                if let Some(fullness) = fullness {
                    left.iter().take(2).for_each(|&page| fullness.forget(page));
                }
                return Ok(Found::Sparse(from));
            }
            self.job.advance(1);
            match looked.upper {
                Some(upper) => from = upper,
                None => return Ok(Found::Dense(None)),
            }
            left = right;
        }
        Ok(Found::Dense(Some(from)))
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
            Err(error) if error.is_unreadable() => return Ok(None),
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
        if is_full(first.used, density.limit) {
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

    /// Asks for those of these pages that are going to be looked at, as soon as half of what was asked for before has come by.
    fn fetch_some(&self, pages: &[PageId], fullness: Option<&Fullness>, fetched: &mut BTreeSet<PageId>) {
        let ahead = self.ahead();
        let near = match fullness {
            Some(fullness) => fullness.looked_at(pages, ahead),
            None => pages[..pages.len().min(ahead)].to_vec(),
        };
        let missing: Vec<_> = near.iter().copied().filter(|page| !fetched.contains(page)).collect();
        let is_needed = near.iter().take(LOOKED_AT).any(|page| !fetched.contains(page));
        if missing.len() >= ahead / 2 || is_needed {
            *fetched = near.into_iter().collect();
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
        let ring = Access::Ring(&self.ring);
        let mut step = tree.make_dense(&at, level, density, ring)?;
        // The left one, then the right one; then what is to be done with them.
        for _ in 0..2 {
            if let Dense::Settled(page) = step {
                self.bring_home_soon(page);
                step = tree.make_dense(&at, level, density, ring)?;
            }
        }
        self.came_to(at, step)
    }

    /// Where to go on behind a step at `at`, if there is more.
    fn came_to(&self, at: Vec<u8>, step: Dense) -> Result<Option<Vec<u8>>> {
        Ok(match step {
            Dense::Merged(left) => {
                self.bring_home_soon(left);
                self.counters.merged.fetch_add(1, Ordering::Relaxed);
                self.job.advance(1);
                Some(at)
            }
            Dense::Settled(page) => {
                self.bring_home_soon(page);
                Some(at)
            }
            Dense::Filled(left, next) => {
                self.bring_home_soon(left);
                self.job.advance(1);
                Some(next)
            }
            Dense::Passed(next) | Dense::Busy(next) => {
                self.job.advance(1);
                Some(next)
            }
            // Everything else is compacted all the same.
            Dense::Unreadable(error, next) => {
                self.pass_over(error)?;
                self.job.advance(1);
                Some(next)
            }
            Dense::End => None,
        })
    }

    /// Whether a rollback may make an entry of the leaf longer again: it was promised room as the leaf is (`reserve_for_rollback`).
    fn may_be_reverted(&self, leaf: NodeRef<'_>) -> bool {
        let writer = |slot| Entry::decode(leaf.payload(slot)).map(|entry| entry.writer);
        (0..leaf.count())
            .filter_map(writer)
            .any(|writer| !writer.is_none() && self.shared.registry.find(writer).is_some())
    }
}
