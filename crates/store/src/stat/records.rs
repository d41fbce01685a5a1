//! Exact statistics: every leaf entry is counted, in one pass over the file: of its own ([`crate::pass`]), or that of a full backup.

use super::across::{Across, Edge};
use super::leaf::{self, Leading, Leaf};
use super::order::Steps;
use super::{RING_FRAMES, Unreadable, Wanted};
use crate::check::{Findings, read_segments, segments_memory};
use crate::engine::Engine;
use crate::jobs::{Ending, Watch};
use crate::node::{NodeRef, verify_structure};
use crate::page::{self, PageKind};
use crate::pass::{self, Bytes, Course, Flaw, Visitor, WORKERS};
use crate::pool::{Access, ScanRing};
use crate::shared::Shared;
use crate::space::{EXTENT_PAGES, Extent, SYSTEM};
use crate::undo::{self, Segment, UNDO_PAGES, UndoKind};
use crate::work::WorkMemory;
use crate::{Result, overflow};
use gannet_base::memory::Purpose;
use gannet_base::sync::Mutex;
use gannet_base::{Lsn, PageId, TreeId, TxnId, checksum};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a tree's figures take with each thread, the map's share included.
const TALLY_BYTES: u64 = 2 * size_of::<Tally>() as u64;

/// What was counted of a tree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(super) leaf: Leaf,
    pub(super) inner_pages: u64,
    pub(super) long_pages: u64,
    pub(super) unwritten_pages: u64,
    /// The level of the root.
    pub(super) level: u8,
    pub(super) old_versions: u64,
    pub(super) old_version_bytes: u64,
    /// The longest run of duplicates that is on one leaf.
    pub(super) longest: u64,
    pub(super) steps: Steps,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.leaf.add(&other.leaf);
        self.inner_pages += other.inner_pages;
        self.long_pages += other.long_pages;
        self.unwritten_pages += other.unwritten_pages;
        self.level = self.level.max(other.level);
        self.old_versions += other.old_versions;
        self.old_version_bytes += other.old_version_bytes;
        self.longest = self.longest.max(other.longest);
        self.steps.add(&other.steps);
    }
}

pub(crate) type Tallies = BTreeMap<TreeId, Tally>;

/// What a pass has found.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) trees: BTreeMap<TreeId, Tally>,
    /// Pages in use by the owner of their extent.
    pub(super) used: BTreeMap<TreeId, u64>,
    /// Pages of which no space map could be read that says whose they are.
    pub(super) unseen: u64,
    pub(super) across: Across,
    pub(super) bytes_read: u64,
}

/// What a pass counts with.
pub(crate) struct Records {
    shared: Arc<Shared>,
    horizon: TxnId,
    wanted: Wanted,
    roots: BTreeMap<PageId, TreeId>,
    leading: BTreeMap<TreeId, Leading>,
    segments: BTreeMap<PageId, Segment>,
    unreadable: Arc<Unreadable>,
    ending: Ending,
    /// For undo pages that are looked at beside the pass.
    ring: ScanRing,
    trees: Mutex<Tallies>,
    used: Mutex<BTreeMap<TreeId, u64>>,
    unseen: AtomicU64,
    across: Mutex<Across>,
    _memory: WorkMemory,
}

/// Counts the entries of all trees that are wanted, in a pass of its own; gives the bytes that it read.
pub(super) fn run(
    engine: &Engine,
    shared: &Arc<Shared>,
    records: &Arc<Records>,
    watch: &mut Watch<'_>,
) -> Result<u64> {
    let course =
        Course { thread: "gannet-stat", phase: "counts entries", pages: shared.core.space.capacity() };
    pass::run(engine, shared, records, course, watch)
}

impl Records {
    pub(super) fn new(
        engine: &Engine,
        shared: &Arc<Shared>,
        wanted: Wanted,
        leading: BTreeMap<TreeId, Leading>,
        (unreadable, ending): (&Arc<Unreadable>, &Ending),
    ) -> Result<Arc<Self>> {
        // Those of each thread, the reserve's too, and the sum.
        let tallies = (wanted.trees.len() * (WORKERS + 2)) as u64 * TALLY_BYTES;
        let memory = engine.memory(Purpose::Work, tallies + segments_memory(shared))?;
        Ok(Arc::new(Records {
            shared: Arc::clone(shared),
            horizon: shared.registry.horizon(),
            roots: wanted.trees.iter().map(|(&tree, known)| (known.root, tree)).collect(),
            leading,
            // Entries that make no sense are the check's to find.
            segments: read_segments(shared, &Findings::default()),
            unreadable: Arc::clone(unreadable),
            ending: ending.clone(),
            ring: ScanRing::new(RING_FRAMES),
            trees: Mutex::default(),
            used: Mutex::default(),
            unseen: AtomicU64::new(0),
            across: Mutex::new(Across::new(engine, engine.work_limit() / 4)?),
            wanted,
            _memory: memory,
        }))
    }

    /// What was counted, once all threads have ended.
    pub(super) fn counted(self: Arc<Self>, bytes_read: u64) -> Counted {
        let records = Arc::into_inner(self).expect("the threads of the pass have ended");
        Counted {
            trees: records.trees.into_inner(),
            used: records.used.into_inner(),
            unseen: records.unseen.into_inner(),
            across: records.across.into_inner(),
            bytes_read,
        }
    }
}

impl Visitor for Records {
    type Own = Tallies;

    fn begin(&self) -> Tallies {
        Tallies::new()
    }

    fn end(&self, own: Tallies) {
        let mut trees = self.trees.lock();
        own.iter().for_each(|(&tree, tally)| trees.entry(tree).or_default().add(tally));
    }

    fn roots(&self) -> &BTreeMap<PageId, TreeId> {
        &self.roots
    }

    fn extent(&self, first: PageId, extent: Extent) -> bool {
        if first.0.is_multiple_of(EXTENT_PAGES) {
            *self.used.lock().entry(extent.owner).or_default() += u64::from(extent.used.count_ones());
        }
        // The roots of the store's own trees are in the system's first extent.
        matches!(extent.owner, SYSTEM | UNDO_PAGES) || self.wanted.trees.contains_key(&extent.owner)
    }

    fn used_and_free(&self, _first: PageId, _extent: Extent) {}

    fn unknown(&self, first: PageId) {
        if first.0.is_multiple_of(EXTENT_PAGES) {
            self.unseen.fetch_add(EXTENT_PAGES, Ordering::Relaxed);
        }
    }

    fn may_be_unwritten(&self, owner: TreeId) -> bool {
        owner == UNDO_PAGES
    }

    fn last_change(&self, _page: PageId) -> Option<Lsn> {
        None
    }

    fn page(&self, id: PageId, owner: TreeId, bytes: Bytes<'_>, own: &mut Tallies) {
        match owner {
            SYSTEM => {}
            UNDO_PAGES => self.undo_page(id, &bytes, own),
            _ if !self.wanted.trees.contains_key(&owner) => {}
            _ => self.tree_page(id, owner, bytes, own),
        }
    }

    fn bad(&self, id: PageId, flaw: Flaw) {
        self.unreadable.add(id, flaw.tree, flaw.what);
    }

    fn note(&self) -> Option<String> {
        let count = self.unreadable.count();
        (count > 0).then(|| format!("{count} pages cannot be read"))
    }
}

impl Records {
    fn tree_page(&self, id: PageId, tree: TreeId, bytes: Bytes<'_>, own: &mut Tallies) {
        if matches!(bytes, Bytes::Unwritten) {
            own.entry(tree).or_default().unwritten_pages += 1;
            return;
        }
        let kind = page::kind(&bytes).filter(|_| page::tree(&bytes) == tree);
        match kind {
            Some(PageKind::Node) => self.node(id, tree, bytes, own),
            Some(PageKind::Overflow) => own.entry(tree).or_default().long_pages += 1,
            // A crash has cut short what was to fill it.
            Some(PageKind::Unfilled) => own.entry(tree).or_default().unwritten_pages += 1,
            Some(PageKind::OverflowIndex) if overflow::decode_index(&bytes).is_some() => {
                own.entry(tree).or_default().long_pages += 1;
            }
            _ => self.stranger(id, tree),
        }
    }

    /// A page that is something else than its extent says. The two were not looked at at one moment.
    fn stranger(&self, id: PageId, tree: TreeId) {
        let core = &self.shared.core;
        let owner = || pass::owner_of(core, &self.roots, id).ok().flatten();
        if owner() != Some(tree) {
            return;
        }
        let Ok(page) = core.pool.shared(&core.volume, id, Access::Ring(&self.ring)) else { return };
        let fits = page::tree(&page) == tree
            && matches!(
                page::kind(&page),
                Some(PageKind::Node | PageKind::Overflow | PageKind::OverflowIndex | PageKind::Unfilled)
            );
        drop(page);
        if !fits && owner() == Some(tree) {
            self.unreadable.add(id, tree, "it is no page of the tree that its extent belongs to");
        }
    }

    fn node(&self, id: PageId, tree: TreeId, bytes: Bytes<'_>, own: &mut Tallies) {
        if let Err(what) = verify_structure(&bytes, self.shared.core.page_size) {
            return self.unreadable.add(id, tree, what);
        }
        let node = NodeRef::new(&bytes);
        let tally = own.entry(tree).or_default();
        if self.roots.get(&id) == Some(&tree) {
            tally.level = node.level();
        }
        if node.level() > 0 {
            tally.inner_pages += 1;
            if node.level() == 1 && node.count() > 0 {
                self.parent(tree, node, &mut tally.steps);
            }
            return;
        }
        let mut seen = leaf::look(&self.shared, self.horizon, tree, node, self.leading.get(&tree));
        if seen.senseless > 0 {
            self.unreadable.add(id, tree, format_args!("{} of its entries make no sense", seen.senseless));
        }
        seen.resolve(&self.shared, Access::Ring(&self.ring), &self.ending);
        tally.leaf.add(&seen.leaf);
        tally.longest = tally.longest.max(seen.runs.inside);
        if !seen.runs.edges.is_empty() {
            self.edges(tree, &seen.runs.edges);
        }
    }

    fn edges(&self, tree: TreeId, edges: &[Edge]) {
        let mut across = self.across.lock();
        edges.iter().for_each(|&edge| across.add_run(tree, edge));
    }

    /// Steps from leaf to leaf, as a parent of leaves tells them.
    fn parent(&self, tree: TreeId, node: NodeRef<'_>, steps: &mut Steps) {
        steps.add(&Steps::of_parent(node));
        let fence = |key: &[u8]| checksum::seeded(u64::from(tree.0), key);
        let mut across = self.across.lock();
        if !node.lower_fence().is_empty() {
            across.begins(tree, fence(node.lower_fence()), node.child(0), steps);
        }
        if let Some(upper) = node.upper_fence() {
            across.ends(tree, fence(upper), node.child(node.count() - 1), steps);
        }
    }

    /// Earlier versions that are kept, by the tree of their rows.
    fn undo_page(&self, id: PageId, bytes: &[u8], own: &mut Tallies) {
        let segment = PageId(id.0 / EXTENT_PAGES * EXTENT_PAGES);
        // A page of an earlier life of its extent says nothing.
        if bytes.is_empty() || !self.segments.get(&segment).is_some_and(|segment| segment.owns(bytes)) {
            return;
        }
        let records = match undo::records(bytes, id) {
            Ok(records) => records,
            Err(error) => return self.unreadable.add(id, UNDO_PAGES, error),
        };
        for (_, record) in records {
            let has_version = matches!(record.kind, UndoKind::Update | UndoKind::Delete);
            if has_version && !record.done && self.wanted.trees.contains_key(&record.tree) {
                let tally = own.entry(record.tree).or_default();
                tally.old_versions += 1;
                tally.old_version_bytes += record.len() as u64;
            }
        }
    }
}
