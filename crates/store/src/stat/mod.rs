//! Statistics: what the file, its transactions and its trees look like.
//!
//! # What it guarantees
//! 1. It changes nothing, and never fails for what it finds: a page that cannot be read is counted and named.
//! 2. *Instant* statistics ([`instant`]) read a bounded number of pages, however large the database is, and say of each figure whether it
//!    is exact, and otherwise how far it may be off in 95 of 100 cases ([`estimate`]).
//! 3. *Exact* ones ([`records`]) count every entry in one paced pass over the file. They are exact when nobody writes; beside
//!    writers each page is counted as it was when it was looked at, and the report says how much was written meanwhile.
//! 4. Neither pushes a page out of memory that somebody uses, nor makes one look used. Nothing is counted for them while
//!    others work.
//! 5. Memory is charged to the budget, and does not grow with the file beyond what was charged.
//!
//! Both count the same things of a leaf ([`leaf`]).

mod across;
mod assemble;
pub(crate) mod estimate;
mod instant;
mod leaf;
mod maps;
mod order;
mod records;
mod report;

pub(crate) use crate::check::Known;
use crate::check::{Findings, Trees};
use crate::core::Core;
use crate::engine::Engine;
use crate::jobs::{Ending, Unit, Watch};
use crate::pool::{Access, ScanRing, SharedPage};
use crate::scan::widest_window;
use crate::shared::{CATALOG, STATUS, Shared, UNDO_DIRECTORY};
use crate::space::SYSTEM;
use crate::undo::UNDO_PAGES;
use crate::{Error, Result};
use assemble::Parts;
use gannet_base::memory::Purpose;
use gannet_base::sync::Mutex;
use gannet_base::{PageId, TreeId, TxnId, clock, random};
use gannet_io::Class;
pub use leaf::Leading;
pub(crate) use records::{Records, Tallies};
pub use report::{
    DuplicateStat, FILL_STEPS, Figure, GarbageStat, HeaderStat, OrderStat, SnapshotStat, SpaceStat, StatMode,
    StatReport, TransactionStat, TreeContents, TreeStat, UnreadablePage, WriterStat,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages that cannot be read and are named.
const NAMED_MOST: usize = 100;
/// Frames for undo pages that are looked at beside the pass.
const RING_FRAMES: usize = 16;
/// Bytes that the sample of a leaf takes, with what is estimated from it.
const SAMPLE_BYTES: u64 = 512;

/// What statistics are wanted.
#[derive(Clone, Default)]
pub struct StatOptions {
    /// How they are made.
    pub mode: StatMode,
    /// Only of these trees, by name; an unknown one is an error.
    pub trees: Option<Vec<String>>,
    /// How long the leading part of keys is, by the name of the tree: where duplicates are to be counted.
    pub leading: BTreeMap<String, Leading>,
    /// Draws the same sample for the same number, as long as nothing changes.
    pub seed: Option<u64>,
}

impl fmt::Debug for StatOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StatOptions { mode, trees, leading, seed } = self;
        let leading: Vec<_> = leading.keys().collect();
        f.debug_struct("StatOptions")
            .field("mode", mode)
            .field("trees", trees)
            .field("leading", &leading)
            .field("seed", seed)
            .finish()
    }
}

/// The trees that statistics are wanted of.
struct Wanted {
    trees: BTreeMap<TreeId, Known>,
}

/// Pages that could not be read.
#[derive(Debug, Default)]
struct Unreadable {
    named: Mutex<BTreeMap<u64, UnreadablePage>>,
    by_tree: Mutex<BTreeMap<u32, u64>>,
    count: AtomicU64,
}

impl Unreadable {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// A page that could not be read.
    fn add(&self, page: PageId, tree: TreeId, why: impl fmt::Display) {
        let mut named = self.named.lock();
        // In the instant mode a node is looked at twice.
        if named.contains_key(&page.0) {
            return;
        }
        if named.len() < NAMED_MOST {
            named.insert(page.0, UnreadablePage { page: page.0, tree: tree.0, why: why.to_string() });
        }
        *self.by_tree.lock().entry(tree.0).or_default() += 1;
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads pages as deep batches into the frames of a ring.
#[derive(Debug)]
struct Reading {
    ring: ScanRing,
    at_once: usize,
    read: AtomicU64,
}

impl Reading {
    fn new(core: &Core) -> Self {
        let at_once = widest_window(&core.pool);
        Reading { ring: ScanRing::new(at_once + RING_FRAMES), at_once, read: AtomicU64::new(0) }
    }

    fn access(&self) -> Access<'_> {
        Access::Ring(&self.ring)
    }

    /// Gives each of the pages, with its place among them, to `take`.
    fn each(
        &self,
        core: &Core,
        pages: &[PageId],
        take: &mut dyn FnMut(usize, PageId, Result<SharedPage<'_>>),
    ) {
        for (chunk, batch) in pages.chunks(self.at_once).enumerate() {
            let mut sorted = batch.to_vec();
            sorted.sort_unstable();
            let started = core.pool.prefetch(&core.volume, &sorted, Class::Prefetch, self.access());
            self.read.fetch_add((started * core.page_size) as u64, Ordering::Relaxed);
            for (place, &id) in batch.iter().enumerate() {
                let page = core.pool.shared(&core.volume, id, self.access());
                take(chunk * self.at_once + place, id, page);
            }
        }
    }
}

/// Makes statistics of what is stored; header and transactions are told by the database.
pub(crate) fn run(
    engine: &Engine,
    shared: &Arc<Shared>,
    options: &StatOptions,
    watch: &mut Watch<'_>,
) -> Result<StatReport> {
    let frame = Frame::begin(shared, options, watch.job().ending())?;
    let parts = match options.mode {
        StatMode::Instant => instant_parts(engine, shared, &frame, options, watch)?,
        StatMode::Records => {
            let records = frame.records(engine, shared)?;
            let bytes_read = records::run(engine, shared, &records, watch)?;
            Parts::Counted(records.counted(bytes_read))
        }
    };
    Ok(frame.end(shared, options.mode, &parts))
}

/// What is known before anything is counted, and what is said of it afterwards.
struct Frame {
    begun: clock::Instant,
    before: Moment,
    all: Trees,
    wanted: Wanted,
    leading: BTreeMap<TreeId, Leading>,
    unreadable: Arc<Unreadable>,
    ending: Ending,
}

impl Frame {
    fn begin(shared: &Shared, options: &StatOptions, ending: Ending) -> Result<Self> {
        let (begun, before) = (clock::now(), Moment::now(shared));
        // Entries that make no sense are the check's to find.
        let all = Trees::read(shared, &Findings::default());
        let wanted = select(&all, options)?;
        let leading = leading_of(&wanted, options);
        Ok(Frame { begun, before, all, wanted, leading, unreadable: Arc::default(), ending })
    }

    fn records(&self, engine: &Engine, shared: &Arc<Shared>) -> Result<Arc<Records>> {
        let wanted = Wanted { trees: self.wanted.trees.clone() };
        Records::new(engine, shared, wanted, self.leading.clone(), (&self.unreadable, &self.ending))
    }

    fn end(self, shared: &Shared, mode: StatMode, parts: &Parts) -> StatReport {
        let Frame { begun, before, all, wanted, leading, unreadable, .. } = self;
        let mut report = StatReport {
            mode,
            trees_missing: !all.complete,
            bytes_read: parts.bytes_read(),
            space: assemble::space(shared, &all, parts),
            trees: assemble::trees(shared, &wanted, &leading, parts, &unreadable),
            changed_meanwhile: before != Moment::now(shared),
            unreadable_pages: unreadable.count(),
            unreadable: unreadable.named.lock().values().cloned().collect(),
            ..StatReport::default()
        };
        if before.all_is_seen() && !report.changed_meanwhile {
            // What was not seen of it is not there.
            report.trees.iter_mut().filter_map(|tree| tree.contents.as_mut()).for_each(TreeContents::settle);
        }
        report.seconds = begun.elapsed().as_secs_f64();
        report
    }
}

/// Exact statistics that are made by whoever looks at all pages anyway.
pub(crate) struct Beside {
    frame: Frame,
    records: Arc<Records>,
}

impl Beside {
    /// Begins them, as a part of the job that this is the ending of; `options` says of which trees.
    pub(crate) fn begin(
        engine: &Engine,
        shared: &Arc<Shared>,
        options: &StatOptions,
        ending: Ending,
    ) -> Result<Self> {
        let frame = Frame::begin(shared, options, ending)?;
        let records = frame.records(engine, shared)?;
        Ok(Beside { frame, records })
    }

    /// What is to be shown the pages.
    pub(crate) fn records(&self) -> Arc<Records> {
        Arc::clone(&self.records)
    }

    /// Ends them, once nobody shows pages any more; as [`run`].
    pub(crate) fn end(self, shared: &Shared, bytes_read: u64) -> StatReport {
        let parts = Parts::Counted(self.records.counted(bytes_read));
        self.frame.end(shared, StatMode::Records, &parts)
    }
}

/// By what it is told that something was changed: transactions, how often each of them has written or taken back, what was taken back meanwhile or
/// swept, and what was put elsewhere.
/// (The log grows by notes of pages that came home, too.)
#[derive(PartialEq)]
struct Moment {
    next: TxnId,
    horizon: TxnId,
    active: Vec<(TxnId, u32, u32)>,
    undone_or_swept: u64,
    moved: u64,
}

impl Moment {
    fn now(shared: &Shared) -> Self {
        let active = shared.registry.active();
        Moment {
            next: shared.registry.next_txn(),
            horizon: shared.registry.horizon(),
            active: active.iter().map(|txn| (txn.id(), txn.sequence(), txn.reverts())).collect(),
            undone_or_swept: shared.undone_or_swept.load(Ordering::SeqCst),
            moved: shared.core.nodes_moved.load(Ordering::SeqCst),
        }
    }

    /// Everybody sees what all others have done.
    fn all_is_seen(&self) -> bool {
        self.horizon == self.next
    }
}

fn select(all: &Trees, options: &StatOptions) -> Result<Wanted> {
    let Some(names) = &options.trees else { return Ok(Wanted { trees: all.live.clone() }) };
    let mut trees = BTreeMap::new();
    for name in names {
        let found = all.live.iter().find(|(_, known)| known.name.as_ref() == Some(name));
        let (&tree, known) = found.ok_or_else(|| Error::Invalid(format!("there is no tree {name:?}")))?;
        trees.insert(tree, known.clone());
    }
    Ok(Wanted { trees })
}

fn leading_of(wanted: &Wanted, options: &StatOptions) -> BTreeMap<TreeId, Leading> {
    let of = |(&tree, known): (&TreeId, &Known)| {
        Some((tree, Arc::clone(options.leading.get(known.name.as_ref()?)?)))
    };
    wanted.trees.iter().filter_map(of).collect()
}

fn instant_parts(
    engine: &Engine,
    shared: &Shared,
    frame: &Frame,
    options: &StatOptions,
    watch: &mut Watch<'_>,
) -> Result<Parts> {
    let Frame { wanted, leading, unreadable, ending, .. } = frame;
    watch.job().phase("reads a sample", Unit::Bytes, 0);
    watch.look()?;
    let leaves = (instant::LEAVES + instant::TREES * instant::LEAST) as u64;
    let _memory = engine.memory(Purpose::Work, leaves * SAMPLE_BYTES)?;
    let reading = Reading::new(&shared.core);
    let used = maps::pages_by_owner(shared, &reading, unreadable).with_own_roots();
    let mut draw = instant::Draw(options.seed.unwrap_or_else(random::next_u64));
    let mut look = || {
        watch.job().set_done(reading.read.load(Ordering::Relaxed));
        watch.look()
    };
    let mut work = instant::Work { reading: &reading, unreadable, ending, draw: &mut draw, look: &mut look };
    let samples = instant::samples(shared, &wanted.trees, &used, leading, &mut work)?;
    let bytes_read = reading.read.load(Ordering::Relaxed);
    watch.job().set_done(bytes_read);
    watch.job().count_read(bytes_read);
    Ok(Parts::Sampled { used, samples, bytes_read })
}

/// The store's own trees.
const OWN_TREES: [TreeId; 3] = [CATALOG, STATUS, UNDO_DIRECTORY];

/// Whether it is known what the pages of this owner are.
fn is_known_owner(tree: TreeId, all: &Trees) -> bool {
    matches!(tree, SYSTEM | UNDO_PAGES) || all.live.contains_key(&tree)
}
