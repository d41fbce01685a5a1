//! Physical backups: taken while everybody works, proven without being restored, restored to a new file.
//!
//! # What it guarantees
//! 1. A backup is complete, durable and consistent, or it is none: a manifest that does not come says so. Restored, the database is
//!    as it was at one moment, the backup's end: what was committed by then is there, and nothing else.
//! 2. Nobody waits for a backup. There is no freeze, no second file that takes changes meanwhile, and nothing to merge afterwards.
//! 3. Every page in it was verified when it was copied, and what was left out as never written may be so ([`unwritten`]). A damaged database gives an
//!    error, and no backup.
//! 4. An incremental backup has every page that was changed since the start of the one that it adds to, and the space maps that this one did not
//!    count. It says which one that is, and is taken only of the same copy of the same database: the header has the times that this copy was open.
//! 5. Whatever goes wrong with destination or source is [`Error::Backup`], and the database goes on as if nothing was.
//!
//! # How
//! A backup is a *fuzzy* copy of the pages in use, and the log from its start to its end (as C. Mohan and I. Narang, "An efficient
//! and flexible method for archiving a data base", 1993, do it). A page that is copied has every change below the start
//! ([`pages`]); what came later is in the log, which is copied beside the pages ([`log`]). To restore it is to write pages and log to
//! their places, and a header that says that the file was not closed: the database is then opened as after any crash.
//!
//! What the log says of pages that came home is not true of the copy: a page may have been copied before it was changed, and have
//! come home after that. So the header of a file that was restored says up to where the log's notes do not count (`homes_from`).
//!
//! A page that was free when its turn came is passed over. If the log changed it in between, its first change there may be of
//! a content that is not in the backup. So at the end all pages that the log has changed since the start, and that were passed over, are
//! copied as they are then, in use or not. Pages that are changed for the first time after that begin with their first contents.

mod compress;
pub(crate) mod format;
mod lineage;
mod log;
pub(crate) mod manifest;
mod pages;
mod place;
mod receive;
pub(crate) mod restore;
mod room;
mod segments;
pub(crate) mod set;
pub(crate) mod sink;
mod slot;
mod source;
mod stream;
mod unwritten;
mod verify;

use crate::block::Block;
use crate::changes;
use crate::check::Trees;
use crate::engine::Engine;
use crate::fetch;
use crate::jobs::{Crew, Stop, Unit, Watch, Worker, no_thread, run_crew};
use crate::log::HoldWitness;
use crate::meta::{FORMAT_VERSION, Meta};
use crate::page_set::{GrowingSet, PageSet};
use crate::shared::Shared;
use crate::space;
use crate::stat::{Beside, Records, StatOptions, StatReport};
use crate::{Error, Result};
use compress::Compression;
use format::{CONTENT_MAX, HEAD};
use gannet_base::memory::Purpose;
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::{Lsn, clock, random, thread};
use gannet_io::{ErrorKind, ModeRequest};
pub use lineage::Lineage;
use log::{LogCopy, Touched};
use manifest::BACKUP_VERSION;
pub use manifest::{Begin, Manifest, OpenTime, Parent};
use pages::Candidates;
pub use place::BackupPlace;
pub(crate) use receive::run as receive;
pub use receive::{Ask, Reception};
pub use restore::RestoreReport;
pub(crate) use restore::run as restore;
pub use set::{BackupPlan, Since, Taken};
pub use sink::Destination;
use sink::Sink;
pub use source::{BackupFile, Source};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
pub use verify::VerifyReport;
pub(crate) use verify::run as verify;

/// Threads that copy pages.
const WORKERS: usize = 4;
/// Requests that each of them has under way or at hand.
const BLOCKS: usize = 3;
/// As many blocks more a thread takes that compresses, about.
const COMPRESSING: usize = 4;
/// Bytes of pages in a frame, at least.
const CONTENT_LEAST: u64 = 64 << 10;
/// How often it is looked whether the log was copied.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How a backup is taken.
#[derive(Debug)]
pub struct BackupOptions {
    /// Where it goes.
    pub destination: Destination,
    /// The backup that it adds to; `None` for a full one.
    pub since: Option<Manifest>,
    /// Frames are compressed by Zstandard at this level, 1 to 22. Default: they are not.
    pub compress: Option<i32>,
}

/// What went wrong with the destination.
fn failed(error: &Error) -> Error {
    match error {
        Error::Cancelled => Error::Cancelled,
        Error::NoSpace(what) => Error::Backup(format!("the backup's destination is full: {what}")),
        // As another thread has found.
        Error::Io(what) if what.earlier() == Some(ErrorKind::NoSpace) => {
            Error::Backup(format!("the backup's destination is full: {what}"))
        }
        error => Error::Backup(format!("the backup's destination failed: {error}")),
    }
}

/// A backup that is being taken.
struct Copy {
    shared: Arc<Shared>,
    job: Worker,
    sink: Sink,
    backup_id: u64,
    page_size: usize,
    /// Pages of a frame, at most.
    frame_pages: usize,
    compression: Compression,
    /// See [`Begin::start_lsn`].
    start: Lsn,
    /// Pages without a later change are left out.
    since: Option<Lsn>,
    /// Groups that the backup which this one adds to did not count.
    new_groups: Range<u64>,
    candidates: Mutex<Candidates>,
    /// What all pages in use are shown to for statistics.
    counting: Option<Arc<Records>>,
    bytes_read: AtomicU64,
    /// Pages whose turn has come.
    copied: PageSet,
    pages_copied: AtomicU64,
    /// In use, and never written; and those of undo among them.
    unwritten: AtomicU64,
    unwritten_undo: AtomicU64,
    /// Trees, once somebody has asked for them.
    trees: OnceLock<Trees>,
    log_bytes: AtomicU64,
    touched: Mutex<Touched>,
    /// Whether the log is still there that the backup needs.
    log_is_kept: HoldWitness,
    /// See [`Manifest::end_lsn`], once it is known.
    log_end: Mutex<Option<Lsn>>,
    log_end_known: Condvar,
    log_copied: AtomicBool,
    stop: Stop,
}

impl Copy {
    fn end_or_wait(&self, limit: Duration) -> Option<Lsn> {
        let mut end = self.log_end.lock();
        if end.is_none() {
            self.log_end_known.wait_for(&mut end, limit);
        }
        *end
    }
}

/// An open database, with its header.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'o> {
    pub(crate) engine: &'o Engine,
    pub(crate) shared: &'o Arc<Shared>,
    pub(crate) path: &'o Path,
    pub(crate) meta: &'o Meta,
    pub(crate) mode: ModeRequest,
}

impl Origin<'_> {
    /// Takes a backup, and makes statistics by the same pass, if they are wanted.
    pub(crate) fn back_up(
        self,
        options: BackupOptions,
        statistics: Option<&StatOptions>,
        watch: &mut Watch<'_>,
    ) -> Result<(Manifest, Option<StatReport>)> {
        let Origin { engine, shared, .. } = self;
        let begin = |options| Beside::begin(engine, shared, options, watch.job().ending());
        let beside = statistics.map(begin).transpose()?;
        let counting = beside.as_ref().map(Beside::records);
        let (manifest, bytes_read) = run(self, options, counting, watch)?;
        Ok((manifest, beside.map(|beside| beside.end(shared, bytes_read))))
    }
}

/// Takes a backup; gives the bytes of pages that it read, too.
fn run(
    origin: Origin<'_>,
    options: BackupOptions,
    counting: Option<Arc<Records>>,
    watch: &mut Watch<'_>,
) -> Result<(Manifest, u64)> {
    let Origin { engine, shared, path, meta, mode } = origin;
    let core = &shared.core;
    core.check_open()?;
    core.poison.check()?;
    if let Some(why) = core.why_read_only() {
        return Err(Error::Damaged(format!("a backup would not be whole: {why}")));
    }
    let BackupOptions { destination, since, compress } = options;
    if compress.is_some_and(|level| !(1..=22).contains(&level)) {
        return Err(Error::Invalid("a level of compression is from 1 to 22".to_owned()));
    }
    if let Some(parent) = &since {
        check_parent(parent, &Lineage::new(path, meta, 0))?;
    }
    // Before its start: what comes behind that is in the log it copies.
    let _whole_log = Requirement::new(shared);
    let hold = core.log.hold();
    let begin = Begin {
        version: BACKUP_VERSION,
        made_by: format!("gannet {}", env!("CARGO_PKG_VERSION")),
        backup_id: random::next_u64(),
        parent: since.as_ref().map(Manifest::as_parent),
        database_id: meta.database_id,
        life: meta.lives.last().map_or(0, |life| life.id),
        lives: OpenTime::of(&meta.lives),
        format_version: FORMAT_VERSION,
        page_size: core.page_size as u32,
        segment_size: meta.segment_size,
        roots: meta.roots.map(|root| root.0),
        // Behind the start: a group that is not counted here, and is formatted, has its first contents in the log of the backup.
        groups: core.space.settled_groups(),
        next_txn: shared.registry.next_txn().0,
        start_lsn: hold.from().0,
        started_unix_us: clock::unix_micros(),
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let pages = core.space.capacity();
    shared.changes.mark(meta, hold.from());
    let mut all_read = None;
    let new_groups = since.as_ref().map_or(0, |parent| parent.begin.groups)..begin.groups;
    let changed = changed_pages(engine, shared, meta, (begin.parent, new_groups.clone()), watch)?;
    let (changed, _changed_memory) = match changed {
        Some(_) if counting.is_some() => {
            all_read = Some("statistics were made of them".to_owned());
            (None, None)
        }
        Some(changes::Since::Pages(pages, memory)) => (Some(pages), Some(memory)),
        Some(changes::Since::Unknown(why)) => {
            all_read = Some(why);
            // The next one need not read everything.
            shared.changes.mark(meta, hold.from());
            (None, None)
        }
        None => (None, None),
    };
    // A thread that compresses takes several times a block for that.
    let parts = WORKERS * if compress.is_some() { BLOCKS + COMPRESSING } else { BLOCKS };
    let share = (engine.work_limit() / 2 / parts as u64).max(CONTENT_LEAST);
    let frame_pages = ((1 << share.ilog2()).min(CONTENT_MAX as u64) / core.page_size as u64).max(1) as usize;
    let _memory = engine.memory(Purpose::Work, 2 * PageSet::memory(pages))?;
    let compression = Compression::within(engine, compress, frame_pages * core.page_size, WORKERS)?;
    let mut copy = Copy {
        shared: Arc::clone(shared),
        job: watch.job().worker(),
        sink: Sink::new(destination, mode, &format::begin_frame(&begin)?)?,
        backup_id: begin.backup_id,
        page_size: core.page_size,
        frame_pages,
        compression,
        start: hold.from(),
        since: begin.parent.map(|parent| Lsn(parent.start_lsn)),
        new_groups,
        candidates: Mutex::new(Candidates { set: changed, in_use: true, next: 0, end: pages }),
        counting,
        bytes_read: AtomicU64::new(0),
        copied: PageSet::new(pages),
        pages_copied: AtomicU64::new(0),
        unwritten: AtomicU64::new(0),
        unwritten_undo: AtomicU64::new(0),
        trees: OnceLock::new(),
        log_bytes: AtomicU64::new(0),
        touched: Mutex::new(Touched::new(hold.from(), engine.memory(Purpose::Work, 0)?)),
        log_is_kept: hold.witness(),
        log_end: Mutex::new(None),
        log_end_known: Condvar::new(),
        log_copied: AtomicBool::new(false),
        stop: Stop::default(),
    };
    watch.job().phase("counts pages", Unit::Bytes, 0);
    copy.check_room(engine, watch)?;
    let copy = Arc::new(copy);
    let end = Copy::copy_all(&copy, engine, hold, pages, watch);
    let copy =
        Arc::try_unwrap(copy).map_err(|_| Error::Backup("a thread of the backup still runs".to_owned()))?;
    let end = end?;
    watch.job().phase("makes it durable", Unit::Bytes, 0);
    watch.look()?;
    let manifest = Manifest {
        begin,
        end_lsn: end.0,
        incarnation: core.log.incarnation(),
        file_bytes: core.space.capacity() * core.page_size as u64,
        frames: 0,
        pages: copy.pages_copied.load(Ordering::Relaxed),
        unwritten: copy.unwritten.load(Ordering::Relaxed),
        unwritten_undo: copy.unwritten_undo.load(Ordering::Relaxed),
        log_bytes: copy.log_bytes.load(Ordering::Relaxed),
        bytes: 0,
        all_read,
        compressed: compress.is_some(),
        finished_unix_us: clock::unix_micros(),
    };
    let bytes_read = copy.bytes_read.into_inner();
    Ok((copy.sink.finish(manifest, &mut || watch.look())?, bytes_read))
}

/// All of the log is needed, as long as this lives.
struct Requirement<'s>(&'s Shared);

impl<'s> Requirement<'s> {
    fn new(shared: &'s Shared) -> Self {
        shared.core.whole_log.require();
        Requirement(shared)
    }
}

impl Drop for Requirement<'_> {
    fn drop(&mut self) {
        self.0.core.whole_log.release();
    }
}

/// The pages that a backup which adds to another one has to look at; nothing for a full one. Space maps of groups which that one did not count are among
/// them, changed or not: those of groups that were let go of are as they were where the file was not cut off after all.
fn changed_pages(
    engine: &Engine,
    shared: &Shared,
    meta: &Meta,
    (parent, new_groups): (Option<Parent>, Range<u64>),
    watch: &mut Watch<'_>,
) -> Result<Option<changes::Since>> {
    let Some(parent) = parent else { return Ok(None) };
    watch.job().phase("looks for what has changed", Unit::Bytes, 0);
    let mut set = GrowingSet::new(engine.memory(Purpose::Work, 0)?);
    for group in new_groups {
        set.add(space::map_page(group, shared.core.page_size))?;
    }
    shared.changes.since(meta, Lsn(parent.start_lsn), set).map(Some)
}

/// Refuses a parent that what is to be copied does not follow.
fn check_parent(parent: &Manifest, lineage: &Lineage) -> Result<()> {
    if !lineage.is_same_database(parent) {
        return Err(Error::Backup(format!(
            "{parent} is of another database: take a full backup, or give one of this database"
        )));
    }
    if !lineage.is_past(parent) {
        return Err(Error::Backup(format!(
            "{parent} was not taken of this copy of the database, which was restored or replaced since, or too long ago: take a full \
             backup"
        )));
    }
    Ok(())
}

/// Tells that the log's thread has ended, however.
struct LogCopied<'c>(&'c Copy);

impl Drop for LogCopied<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.set();
        }
        self.0.log_copied.store(true, Ordering::Release);
    }
}

impl Copy {
    /// Refuses a destination with less room than is needed, and tells it how much is to come.
    fn check_room(&mut self, engine: &Engine, watch: &mut Watch<'_>) -> Result<()> {
        let pages = {
            let candidates = self.candidates.lock();
            self.count_in_use(candidates.set.as_ref())?
        };
        watch.look()?;
        let frames = pages.div_ceil(self.frame_pages as u64);
        let most = pages * self.page_size as u64 + frames * HEAD as u64;
        // What is compressed takes nobody knows how much.
        if !self.compression.is_wanted() && (self.since.is_none() || self.candidates.lock().set.is_some()) {
            self.sink.check_room(most)?;
        }
        self.sink.expect(
            engine,
            most,
            (HEAD + self.frame_pages * self.page_size).max(log::MEMORY as usize) as u64,
        )
    }

    /// Copies pages and log; gives the backup's end.
    fn copy_all(
        this: &Arc<Self>,
        engine: &Engine,
        hold: crate::log::LogHold,
        pages: u64,
        watch: &mut Watch<'_>,
    ) -> Result<Lsn> {
        let log_queue = engine.disk().queue(BLOCKS)?;
        let log_block = Block::new(&log_queue, engine.memory(Purpose::Io, log::MEMORY)?);
        let footers = engine.memory(Purpose::Log, 0)?;
        let copy = Arc::clone(this);
        let is_in_haste = watch.job().is_at_full_pace();
        let log_thread = thread::try_spawn("gannet-backup-log", move || {
            // It has to keep up with the log.
            if !is_in_haste {
                fetch::step_back();
            }
            let _copied = LogCopied(&copy);
            let done = LogCopy::new(&copy, hold, log_block, footers).and_then(LogCopy::run);
            if done.is_err() {
                copy.stop.set();
            }
            done
        })
        .map_err(|_| no_thread())?;
        watch.job().phase("copies pages", Unit::Bytes, pages * this.page_size as u64);
        let mut outcome = Self::copy_candidates(this, engine, watch).and_then(|()| {
            let set = this.passed_over()?;
            watch.job().phase("copies pages that were passed over", Unit::Bytes, 0);
            let end = set.pages();
            *this.candidates.lock() = Candidates { set: Some(set), in_use: false, next: 0, end };
            Self::copy_candidates(this, engine, watch)
        });
        let log = &this.shared.core.log;
        let end = log.end();
        if outcome.is_ok() {
            watch.job().phase("copies the log", Unit::Bytes, 0);
            // The database may have failed meanwhile: then a frame may have had a change that no log has, or a page on the device may lack some. Whoever
            // fails has thrown the switch before a copy could be made of either.
            outcome = this.shared.core.poison.check().and_then(|()| log.flush_to(end));
        }
        if outcome.is_err() {
            this.stop.set();
        }
        *this.log_end.lock() = Some(end);
        this.log_end_known.notify_all();
        while !this.log_copied.load(Ordering::Acquire) {
            if outcome.is_ok() {
                outcome = watch.look().inspect_err(|_| this.stop.set());
            }
            clock::sleep(LOOK_EVERY);
        }
        let log_outcome = log_thread.join().map_err(|panic| Error::Backup(panic.to_string()))?;
        // What the log's thread failed with comes first: the others may have ended because of it.
        match (log_outcome, outcome) {
            (Err(Error::Cancelled), Err(error)) | (Ok(()), Err(error)) | (Err(error), _) => Err(error),
            (Ok(()), Ok(())) => Ok(end),
        }
    }

    fn copy_candidates(this: &Arc<Self>, engine: &Engine, watch: &mut Watch<'_>) -> Result<()> {
        // One block for the reserve.
        let queue = engine.disk().queue(WORKERS * BLOCKS + 1)?;
        let bytes = (HEAD + this.frame_pages * this.page_size) as u64;
        let mut workers = Vec::with_capacity(WORKERS + 1);
        for number in 0..=this.compression.workers() {
            let copy = Arc::clone(this);
            let take = || -> Result<_> {
                let mut blocks = Vec::with_capacity(BLOCKS);
                for _ in 0..if number == 0 { 1 } else { BLOCKS } {
                    blocks.push(Block::new(&queue, engine.memory(Purpose::Io, bytes)?));
                }
                Ok((blocks, this.compression.memory(engine)?))
            };
            match take() {
                Ok((blocks, memory)) => workers.push(move || {
                    let _memory = memory;
                    copy.copy_pages(blocks)
                }),
                // What compresses is content with fewer: the reserve, and one.
                Err(Error::Memory(_)) if this.compression.is_wanted() && number > 1 => break,
                Err(error) => return Err(error),
            }
        }
        run_crew("gannet-backup", Crew::StandsBy, watch, &this.stop, workers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_io::sim::{Settings, SimDisk};
    use gannet_io::{AlignedBuffer, Class, Disk, Durability, OpenOptions};

    #[test]
    fn a_full_destination_was_said_to_have_failed_by_the_thread_behind_the_one_that_found_it_full() {
        let disk = SimDisk::with_settings(1, Settings { capacity_bytes: Some(0), ..Settings::default() });
        let file = disk.open(Path::new("full"), &OpenOptions::create_new()).unwrap();
        for _ in 0..2 {
            let buffer = AlignedBuffer::zeroed(4096);
            let error = file.write_at(Class::Maintenance, 0, &buffer, Durability::Cached).unwrap_err();
            let said = failed(&error.into()).to_string();
            assert!(said.starts_with("the backup's destination is full: "), "{said}");
        }
    }
}
