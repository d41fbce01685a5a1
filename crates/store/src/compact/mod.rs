//! Compaction: gives space back to the file system while everybody works.
//!
//! # What it guarantees
//! 1. It changes where rows lie, never what anybody sees. Each step is one mini-transaction under latches that are held for as long
//!    as it takes to copy a few pages; nobody waits for a compaction as such.
//! 2. It can end at any step, by being cancelled or by a crash: what was done stays, the rest is left to the next one. The file is
//!    never larger for it.
//! 3. What cannot be moved is named ([`Held`]): undo that a snapshot or a transaction needs, trees that are being made or dropped,
//!    long values that somebody may be reading at their old place.
//! 4. It is paced as every job, pauses as writers do when the log nears its limit, and one runs at a time.
//!
//! # How
//! 1. Garbage is swept, so that only what is needed is moved.
//! 2. Trees are made denser ([`dense`]): neighbours are merged, or the left one is filled from the right one. Where that may be, one pass over the file has
//!    told ([`fullness`]).
//! 3. How many extents each tree needs says where the file can end ([`plan`]). Extents behind that, and the emptiest ones of a tree in front of
//!    it, are *emptied*: their pages go to other extents of the same tree, then to free extents, all in front of the end ([`moves`],
//!    [`values`]). Others take nothing of an extent that is being emptied.
//! 4. What is free behind the last extent in use is cut off ([`cut`], where the argument about crashes stands).
//!
//! Holes are not punched. Free extents inside the file are what rollbacks are promised (`space`, invariant 4): that promise needs blocks that the
//! file system has given already. So what goes back goes back at the end of the file, and its length says what it takes.
//!
//! # Old numbers of pages
//! A node is found through its parent, under latches or with versions, so nobody keeps the number of one (`tree`). A long value's pages are named by
//! its entry, and a reader may have a copy of that: of the entry, or of a list of pages. A page that was moved keeps its bytes, and is
//! not given out again, until every snapshot that was there then has ended (`space::emptying`, invariant 1). After a crash there is none. An undo record
//! may name a long value as well; so only those are moved whose entry is settled, to which no undo leads.
//!
//! Who goes through the whole file (backup, check, statistics) relies on the numbers it has read at its begin: roots, long values and the end of
//! the file stay as they are meanwhile ([`Layout`]).
//!
//! # A crash at any point
//! Trees, lists of long values, the catalog and space maps change in mini-transactions: a page is at its old place or at its new one,
//! with what refers to it, and the other one is free.

mod cut;
mod dense;
mod fullness;
mod moves;
mod plan;
mod values;

use crate::engine::Engine;
use crate::jobs::{Crew, Permit, Stop, Unit, Watch, Worker, run_crew};
use crate::pass::{self, Course};
use crate::pool::{Access, ScanRing};
use crate::shared::{CATALOG, STATUS, Shared, UNDO_DIRECTORY};
use crate::space::EXTENT_PAGES;
use crate::sweep::round as sweep;
use crate::tree::TreeRoot;
use crate::txn::registry::{Owner, Snapshot};
use crate::work::WorkMemory;
use crate::{Error, Result};
use fullness::Fullness;
use gannet_base::memory::Purpose;
use gannet_base::sync::Mutex;
use gannet_base::{Lsn, PageId, TreeId, clock};
use gannet_io::Class;
use plan::Plan;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Times that it is looked what else can be moved.
const ROUNDS: usize = 4;
/// A further time only where that makes the file shorter by so large a part.
const WORTH_A_ROUND: u64 = 64;
/// How often it is looked whether what is waited for has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long readers of long values, transactions whose undo lies behind the end, and, with extents in hand that were emptied, whoever goes through
/// the whole file are waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Frames that pages come into which are looked at once, or changed and written home: so that a compaction, which changes more pages than
/// memory may have, drives few of users' out. And how many pages are asked for ahead at most, and are written together.
const RING_FRAMES: usize = 1024;
const AHEAD: usize = 64;
const WRITTEN_TOGETHER: usize = 128;
/// The last ones of these, to which more may come: a node, its neighbour, and both again.
const AT_WORK: usize = 4;

/// What keeps the file from becoming shorter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// What it is, and what lets it go.
    pub what: String,
    /// Bytes of it behind where the file could end.
    pub bytes: u64,
}

/// Pages that a report names which could not be read, at most.
const UNREADABLE_TOLD: usize = 10;

/// What a compaction did.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CompactReport {
    /// Length of the data file before it.
    pub file_bytes_before: u64,
    /// And after it.
    pub file_bytes: u64,
    /// Bytes of pages in use before it.
    pub used_bytes_before: u64,
    /// And after it.
    pub used_bytes: u64,
    /// Bytes inside the file that are free after it.
    pub free_bytes: u64,
    /// Pages that became free as others took what was on them.
    pub pages_merged: u64,
    /// Pages that were moved towards the begin of the file.
    pub pages_moved: u64,
    /// Of these, pages of long values.
    pub value_pages_moved: u64,
    /// What keeps the file from becoming shorter; nothing where it is as short as it can be.
    pub held: Vec<Held>,
    /// What could not be read, so that pages stay where they are, each page once: the first ten of it.
    #[serde(default)]
    pub unreadable: Vec<String>,
}

/// Who goes through the file as a whole, and who moves what those rely on: not both at a time.
#[derive(Debug, Default)]
pub(crate) struct Layout(Mutex<Users>);

#[derive(Debug, Default)]
struct Users {
    keeping: usize,
    moving: bool,
}

/// Roots, long values and the end of the file stay where they are as long as this lives.
#[derive(Debug)]
pub(crate) struct Keeping<'l>(&'l Layout);

/// They may be moved as long as this lives: a short step, for which nobody waits with this in hand.
#[derive(Debug)]
pub(crate) struct Moving<'l>(&'l Layout);

impl Layout {
    /// Waits for the step that is under way, as long as `check` does not fail.
    pub(crate) fn keep(&self, check: &mut dyn FnMut() -> Result<()>) -> Result<Keeping<'_>> {
        loop {
            {
                let mut users = self.0.lock();
                if !users.moving {
                    users.keeping += 1;
                    return Ok(Keeping(self));
                }
            }
            check()?;
            clock::sleep(LOOK_EVERY / 10);
        }
    }

    /// `None` while somebody relies on it.
    pub(crate) fn try_move(&self) -> Option<Moving<'_>> {
        let mut users = self.0.lock();
        if users.keeping > 0 || users.moving {
            return None;
        }
        users.moving = true;
        Some(Moving(self))
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        self.0.0.lock().keeping -= 1;
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.0.lock().moving = false;
    }
}

/// Writes the header of a file that has so many groups now, and is about to be cut with the log ending there.
pub(crate) type WriteHeader = Box<dyn Fn(u64, Lsn) -> Result<()> + Send + Sync>;

#[derive(Debug, Default)]
struct Counters {
    merged: AtomicU64,
    moved: AtomicU64,
    value_pages: AtomicU64,
}

/// A compaction under way.
struct Compaction {
    shared: Arc<Shared>,
    job: Worker,
    /// For the step under way; one thread works here.
    permit: Mutex<Option<Permit>>,
    stop: Stop,
    ring: ScanRing,
    /// Pages that are asked for ahead at one time.
    ahead: usize,
    /// Pages that are as they will stay, and were not written home yet.
    complete: Mutex<Vec<PageId>>,
    counters: Counters,
    write_header: WriteHeader,
    report: Mutex<CompactReport>,
    /// Once the garbage is gone; nothing where there was no memory for it.
    fullness: OnceLock<Arc<Fullness>>,
}

impl fmt::Debug for Compaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compaction").field("counters", &self.counters).finish_non_exhaustive()
    }
}

/// Compacts an open database, of which nothing is left to be done after a crash. Who may do so has made sure that nobody else does.
pub(crate) fn run(
    engine: &Engine,
    shared: &Arc<Shared>,
    write_header: WriteHeader,
    watch: &mut Watch<'_>,
) -> Result<CompactReport> {
    let core = &shared.core;
    core.check_writable()?;
    let frames = RING_FRAMES.min(core.pool.frame_count() / 8).max(8);
    let compaction = Arc::new(Compaction {
        shared: Arc::clone(shared),
        job: watch.job().worker(),
        permit: Mutex::new(None),
        stop: Stop::default(),
        ring: ScanRing::new(frames),
        ahead: AHEAD.min(frames / 2),
        complete: Mutex::default(),
        counters: Counters::default(),
        write_header,
        report: Mutex::new(CompactReport {
            file_bytes_before: core.volume.file.len()?,
            ..CompactReport::default()
        }),
        fullness: OnceLock::new(),
    });
    let _memory = engine.memory(Purpose::Work, 8 * core.page_size as u64)?;
    let run_one = |watch: &mut Watch<'_>, part: fn(&Compaction) -> Result<()>| {
        let compaction = Arc::clone(&compaction);
        let stop = compaction.stop.clone();
        run_crew("gannet-compact", Crew::AsksFirst, watch, &stop, vec![move || part(&compaction)])
    };
    run_one(watch, Compaction::prepare)?;
    let _map = compaction.see_how_full(engine, watch)?;
    run_one(watch, Compaction::work)?;
    let report = compaction.report.lock().clone();
    Ok(report)
}

impl Compaction {
    /// What comes before the file is looked at.
    fn prepare(&self) -> Result<()> {
        let core = &self.shared.core;
        for group in 0..core.space.groups() {
            self.breathe()?;
            core.space.learn(core, group)?;
        }
        self.report.lock().used_bytes_before = self.used_bytes()?;
        self.sweep()
    }

    /// Looks how full leaves are, if there is memory to remember that.
    fn see_how_full(&self, engine: &Engine, watch: &mut Watch<'_>) -> Result<Option<WorkMemory>> {
        let core = &self.shared.core;
        let pages = core.space.capacity();
        let Ok(charge) = engine.memory(Purpose::Work, Fullness::memory(pages)) else { return Ok(None) };
        let wanted = plan::movable(&self.shared).into_iter().filter(|tree| dense::has_versions(*tree));
        let fullness = Fullness::new(core.page_size, pages, wanted.collect(), self.shared.registry.horizon());
        let fullness = self.fullness.get_or_init(|| Arc::new(fullness));
        let course = Course { thread: "gannet-compact", phase: "looks how full pages are", pages };
        pass::run(engine, &self.shared, fullness, course, watch)?;
        Ok(Some(charge))
    }

    fn work(&self) -> Result<()> {
        self.make_trees_dense()?;
        for number in 0..ROUNDS {
            let went_on = self.round(number > 0)?;
            self.cut()?;
            if !went_on {
                break;
            }
        }
        *self.permit.lock() = None;
        self.conclude()
    }

    /// Fails when it is to end.
    fn check(&self) -> Result<()> {
        if self.stop.is_set() {
            return Err(Error::Cancelled);
        }
        self.job.check()?;
        self.shared.core.check_writable()
    }

    /// The same between two pieces of work that need no permit, and waits for a processor.
    fn breathe(&self) -> Result<()> {
        self.job.breathe()?;
        self.check()
    }

    fn is_over(&self) -> bool {
        self.check().is_err()
    }

    /// Asks for pages that are about to be looked at. Where jobs rest after what they ask of the device they are waited for, as the permit in hand, and
    /// the rest behind it, are for this.
    fn fetch(&self, pages: &[PageId]) {
        let core = &self.shared.core;
        let ring = Access::Ring(&self.ring);
        let asked = core.pool.prefetch(&core.volume, pages, Class::Maintenance, ring);
        self.job.count_read((asked * core.page_size) as u64);
        if self.job.rests() {
            pages.iter().for_each(|&page| core.pool.await_prefetch(&core.volume, page));
        }
    }

    /// How many pages are asked for ahead at one time; where jobs rest, no more bytes than by one request.
    fn ahead(&self) -> usize {
        match self.job.rests() {
            true => self.ahead.min((self.job.request_bytes() as usize / self.shared.core.page_size).max(1)),
            false => self.ahead,
        }
    }

    /// Nothing more is to come to this page, but for what comes next: it goes home with others, and its frame to the next one.
    fn bring_home_soon(&self, page: PageId) {
        let mut complete = self.complete.lock();
        // A node that was merged may be filled next.
        if complete.last() != Some(&page) {
            complete.push(page);
        }
    }

    /// Called without latches before a step that looks at a few pages and may change them.
    fn step(&self) -> Result<()> {
        *self.permit.lock() = None;
        self.shared.core.throttle(&|| self.is_over())?;
        self.check()?;
        self.pace()?;
        self.write_complete()
    }

    /// Writes home what is complete, once it is worth it. Nobody else does: so frames of the ring come free as fast as others are filled.
    fn write_complete(&self) -> Result<()> {
        let complete: Vec<_> = {
            let mut complete = self.complete.lock();
            let all_but_last = complete.len().saturating_sub(AT_WORK);
            if all_but_last < WRITTEN_TOGETHER.min(self.ahead * 2) {
                return Ok(());
            }
            complete.drain(..all_but_last).collect()
        };
        let written = self.shared.writer.write(complete)?;
        self.job.count_written((written * self.shared.core.page_size) as u64);
        self.pace()
    }

    /// Waits as long as others are to go first. The permit is for what is done until this is called again, or something is waited for.
    fn pace(&self) -> Result<()> {
        *self.permit.lock() = None;
        let permit = self.job.permit()?;
        *self.permit.lock() = Some(permit);
        Ok(())
    }

    /// A snapshot, so that nothing that is there now is freed as garbage meanwhile.
    fn hold_garbage(&self) -> Snapshot {
        self.shared.registry.take_snapshot(Owner { session: 0, label: "compact", limit: None })
    }

    /// What garbage there is goes; so does what the undo behind the end is about, if it can.
    fn sweep(&self) -> Result<()> {
        *self.permit.lock() = None;
        let give_up = || self.is_over();
        let mut round = sweep::Round::new(&self.shared, sweep::By::Part(&self.job), Duration::ZERO, &give_up);
        self.shared.sweep(&mut round).or_else(|error| self.pass_over(error))?;
        if let Some(damage) = round.cleaned().damage {
            self.note_unreadable(damage);
        }
        Ok(())
    }

    /// Moves what is to be moved once, `again` only where it is worth it; false when nothing was.
    fn round(&self, again: bool) -> Result<bool> {
        let core = &self.shared.core;
        if !self.await_readers()? {
            return Ok(false);
        }
        let plan = Plan::make(&self.shared, &|| self.breathe())?;
        // Others go on taking pages meanwhile, also behind the end.
        let gain = core.space.end_in_use(core)?.saturating_sub(plan.end * EXTENT_PAGES);
        let is_worth_it = !again || gain >= core.space.capacity() / WORTH_A_ROUND;
        if plan.pages == 0 || !is_worth_it || !core.space.begin_emptying(core, plan.end)? {
            return Ok(false);
        }
        let round = Round(self, self.counters.value_pages.load(Ordering::Relaxed));
        plan.choose(&self.shared, &|| self.breathe())?;
        let before = self.counters.moved.load(Ordering::Relaxed);
        self.job.phase("moves pages", Unit::Pages, plan.pages);
        let moved_all = self.move_all()?;
        drop(round);
        if !moved_all {
            // Nothing is kept from others while it is waited for.
            self.moving().map(drop)?;
            return Ok(true);
        }
        // Undo of transactions that have ended since lies in front of the end from now on.
        self.leave_streams(plan.end)?;
        self.sweep()?;
        let let_go = self.await_readers()?;
        Ok(let_go && self.counters.moved.load(Ordering::Relaxed) > before)
    }

    /// Has transactions to come begin segments of their own, instead of going on with one behind the end.
    fn leave_streams(&self, end: u64) -> Result<()> {
        let shared = &self.shared;
        let mut streams = shared.streams.lock().take_idle();
        let mut result = Ok(());
        for stream in &mut streams {
            if stream.lies_behind(end) {
                match stream.complete(&shared.core, &shared.undo_directory) {
                    Ok(segment) => shared.streams.lock().complete.extend(segment),
                    Err(error) => result = Err(error),
                }
            }
        }
        shared.streams.lock().give_idle(streams);
        result
    }

    /// Waits a while for those who may read long values at their old places; false where some are left.
    fn await_readers(&self) -> Result<bool> {
        let begun = clock::now();
        *self.permit.lock() = None;
        let mut has_told = false;
        while !self.shared.end_emptying() {
            if begun.elapsed() >= PATIENCE {
                return Ok(false);
            }
            has_told = true;
            self.check()?;
            self.job.note("waits for readers of long values");
            clock::sleep(LOOK_EVERY);
        }
        if has_told {
            self.job.note("");
        }
        Ok(true)
    }

    /// Waits until nobody goes through the whole file.
    fn moving(&self) -> Result<Moving<'_>> {
        loop {
            if let Some(moving) = self.moving_within(Duration::MAX)? {
                return Ok(moving);
            }
        }
    }

    /// The same for so long; `None` where somebody does still.
    fn moving_within(&self, patience: Duration) -> Result<Option<Moving<'_>>> {
        let (begun, mut waited) = (clock::now(), false);
        *self.permit.lock() = None;
        loop {
            if let Some(moving) = self.shared.layout.try_move() {
                if waited {
                    self.job.note("");
                }
                return Ok(Some(moving));
            }
            self.check()?;
            if begun.elapsed() >= patience {
                return Ok(None);
            }
            waited = true;
            self.job.note("waits for a backup, a check or statistics to end");
            clock::sleep(LOOK_EVERY / 10);
        }
    }

    /// The tree of this number, if it is one whose nodes may be moved: nobody can take its creation back, and it was not dropped. Asked
    /// behind [`Compaction::hold_garbage`]: as long as that is held, none of its pages is freed with the tree.
    fn with_tree<T>(&self, id: TreeId, work: impl FnOnce(&TreeRoot) -> Result<T>) -> Result<Option<T>> {
        let shared = &self.shared;
        match id {
            CATALOG => work(&shared.catalog).map(Some),
            STATUS => work(&shared.status).map(Some),
            UNDO_DIRECTORY => work(&shared.undo_directory).map(Some),
            _ => match shared.find_tree(id) {
                Some(root) if root.dropped().0.is_none() => work(&root).map(Some),
                _ => Ok(None),
            },
        }
    }

    fn conclude(&self) -> Result<()> {
        let core = &self.shared.core;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let used = self.used_bytes()?;
        let has_damage = !self.report.lock().unreadable.is_empty();
        let held = plan::held(&self.shared, has_damage, &|| self.breathe())?;
        let mut report = self.report.lock();
        report.file_bytes = core.volume.file.len()?;
        report.used_bytes = used;
        report.free_bytes = report.file_bytes.saturating_sub(used);
        report.pages_merged = load(&self.counters.merged);
        report.pages_moved = load(&self.counters.moved);
        report.value_pages_moved = load(&self.counters.value_pages);
        report.held = held;
        Ok(())
    }

    /// Passes over what cannot be read, and remembers it; any other error is handed back.
    fn pass_over(&self, error: Error) -> Result<()> {
        if !error.is_unreadable() || self.shared.core.poison.is_set() {
            return Err(error);
        }
        self.check()?;
        self.note_unreadable(error.to_string());
        Ok(())
    }

    fn note_unreadable(&self, what: String) {
        self.job.note(&what);
        let mut report = self.report.lock();
        if report.unreadable.len() < UNREADABLE_TOLD && !report.unreadable.contains(&what) {
            report.unreadable.push(what);
        }
    }

    fn used_bytes(&self) -> Result<u64> {
        Ok(plan::used_pages(&self.shared, &|| self.breathe())? * self.shared.core.page_size as u64)
    }
}

/// What is being emptied, and the pages of long values that had been moved before.
struct Round<'c>(&'c Compaction, u64);

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let Round(compaction, before) = self;
        let shared = &compaction.shared;
        if compaction.counters.value_pages.load(Ordering::Relaxed) > *before {
            *shared.moved_values.lock() = Some(clock::now());
        } else {
            shared.core.space.end_emptying();
        }
    }
}

impl Shared {
    /// Lets go of the extents that a compaction has emptied, once nobody can look for a long value there; false while somebody can.
    pub(crate) fn end_emptying(&self) -> bool {
        let mut moved = self.moved_values.lock();
        let Some(at) = *moved else { return true };
        if self.registry.snapshots().iter().any(|snapshot| snapshot.started <= at) {
            return false;
        }
        self.core.space.end_emptying();
        *moved = None;
        true
    }
}
