//! What no page alone tells, put together from pages in any order: runs of equal entries that go over several leaves, and steps from the
//! last leaf of one parent to the first one of the next.
//!
//! # Invariants
//! 1. A run that may go on on another leaf is known by the hash of its leading part: all of its pieces add up under that. A hash that
//!    two leading parts share (of 64 bits) would join them.
//! 2. Two neighbouring parents share a fence, by whose hash the second of them finds what the first one has left.
//! 3. Memory is charged before it is taken. Where there is no more, what comes is counted as if it stood alone, and
//!    [`Across::is_complete`] is false.

use super::order::Steps;
use crate::Result;
use crate::engine::Engine;
use crate::work::WorkMemory;
use gannet_base::memory::Purpose;
use gannet_base::{PageId, TreeId};
use std::collections::BTreeMap;

/// Bytes that an entry of a map takes, with what the map itself needs.
const ENTRY_BYTES: u64 = 96;
/// Entries that memory is taken for at a time.
const STEP: u64 = 1024;

/// A run, as far as it is on one leaf, that may go on on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) hash: u64,
    pub(super) count: u64,
}

/// Which side of a fence is known.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// The last leaf in front of it.
    Left(PageId),
    /// The first one behind it.
    Right(PageId),
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Across {
    /// Entries and leaves of each run.
    runs: BTreeMap<(TreeId, u64), (u64, u64)>,
    fences: BTreeMap<(TreeId, u64), Side>,
    memory: WorkMemory,
    /// Bytes that may be taken at most.
    limit: u64,
    complete: bool,
}

impl Across {
    pub(super) fn new(engine: &Engine, limit: u64) -> Result<Self> {
        let memory = engine.memory(Purpose::Work, 0)?;
        Ok(Across { runs: BTreeMap::new(), fences: BTreeMap::new(), memory, limit, complete: true })
    }

    /// Whether there was memory for everything.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    fn has_room(&mut self) -> bool {
        let wanted = (self.runs.len() + self.fences.len() + 1) as u64 * ENTRY_BYTES;
        let step = STEP * ENTRY_BYTES;
        let fits = wanted <= self.memory.bytes()
            || (self.memory.bytes() + step <= self.limit && self.memory.grow(step).is_ok());
        self.complete &= fits;
        fits
    }

    /// A run that may go on elsewhere.
    pub(super) fn add_run(&mut self, tree: TreeId, edge: Edge) {
        let key = (tree, edge.hash);
        if !self.runs.contains_key(&key) && !self.has_room() {
            return;
        }
        let (count, leaves) = self.runs.entry(key).or_default();
        *count += edge.count;
        *leaves += 1;
    }

    /// A parent of leaves has this one as its last, in front of the fence with this hash.
    pub(super) fn ends(&mut self, tree: TreeId, fence: u64, last: PageId, steps: &mut Steps) {
        match self.fences.remove(&(tree, fence)) {
            Some(Side::Right(first)) => steps.step(last, first),
            _ if self.has_room() => {
                self.fences.insert((tree, fence), Side::Left(last));
            }
            _ => {}
        }
    }

    /// A parent of leaves has this one as its first, behind the fence with this hash.
    pub(super) fn begins(&mut self, tree: TreeId, fence: u64, first: PageId, steps: &mut Steps) {
        match self.fences.remove(&(tree, fence)) {
            Some(Side::Left(last)) => steps.step(last, first),
            _ if self.has_room() => {
                self.fences.insert((tree, fence), Side::Right(first));
            }
            _ => {}
        }
    }

    /// Of a tree's runs over several leaves: duplicates that no leaf has seen, and the longest run.
    pub(super) fn runs_of(&self, tree: TreeId) -> (u64, u64) {
        let runs = self.runs.range((tree, 0)..=(tree, u64::MAX)).map(|(_, &run)| run);
        runs.fold((0, 0), |(more, longest), (count, leaves)| (more + leaves - 1, longest.max(count)))
    }
}
