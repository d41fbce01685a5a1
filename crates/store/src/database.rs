//! An open database: creating, opening, closing.
//!
//! # Files
//! `NAME` holds the pages. `NAME-wal/` holds the log segments, the double-write ring (`ring`), the list of hot pages
//! (`hot`), that of changed ones (`changes`) and the lock (`lock`). After a
//! clean shutdown the file alone is the whole database. `NAME` is the file's name behind symbolic links; as a file may have
//! several names all the same, the data file itself is locked too.
//!
//! # Opening
//! 1. The locks are taken, the header read, the log looked at: that of another database is refused, and beside a closed file
//!    any but the one it was closed with. Up to here nothing is written, so whoever is refused finds everything as it was. Only
//!    a log that an earlier life has left under this name goes: no later life needs it.
//! 2. After a crash: the log's footers and its last segment say which pages lack changes, and which transactions lost;
//!    the ring heals torn pages and is emptied.
//! 3. The header is written: not clean, next incarnation. Only then is the log, or anything else, written.
//! 4. The database is handed out. Pages are redone as they are touched, the others and the losers see to in the background
//!    (`restart`).
//!
//! A file that is being created has no header before everything else of it is there, and is locked all the time. An attempt
//! that fails takes away what it has made; what one leaves that is cut short by a crash is recognised and created anew
//! (`create`).
//!
//! A crash in 2 changes nothing that 2 would not do again. A crash in 3 or later leaves a longer log, and the same
//! start of it.

mod compact;
pub(crate) mod create;
mod open;
mod rename;
pub(crate) mod replay;
mod report;
mod restart;
mod stat;

pub(crate) use create::Attempt;
pub(crate) use open::wal_limit;
pub use report::{RowLockReport, SnapshotReport, TransactionReport, WorkReport};

use crate::archive::ArchiveReport;
use crate::backup::{self, BackupOptions, Lineage, Manifest};
use crate::changes::Changes;
use crate::check::{self, CheckReport};
use crate::core::Core;
use crate::engine::{Engine, OpenOptions};
use crate::jobs::{JobKind, JobOrder, Jobs, Unit, Watch};
use crate::log::{Flusher, Log, LogHold, Note, POINT_NAME_MAX};
use crate::meta::Meta;
use crate::mutation::{Mutation, planted};
use crate::outlook::Seen;
use crate::pool::{Pool, Volume};
use crate::shared::Shared;
use crate::stat::{StatOptions, StatReport};
use crate::sweep::report::SweepReport;
use crate::transaction::{Transaction, TransactionOptions};
use crate::view::LongValues;
use crate::writeback::Checkpoint;
use crate::{Error, Result};
use gannet_base::clock::{self, Instant};
use gannet_base::sync::Mutex;
use gannet_base::units::format_size;
use gannet_base::{Lsn, TxnId, thread};
use gannet_io::{Disk, File, ModeReport, ModeRequest};
use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Name of the lock.
const LOCK: &str = "lock";
/// Name of the double-write ring.
const RING: &str = "ring";
/// Name of the list of hot pages.
const HOT: &str = "hot";
/// Name of the list of changed pages.
const CHANGES: &str = "changes";

/// How long a shutdown waits at least for the thread that archives the log, which ends at once where its folder answers.
const ARCHIVE_LEAST: Duration = Duration::from_secs(5);

/// Where a restart stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPhase {
    /// Pages are brought up to date from the log.
    Redo,
    /// What a crash has cut short is being reverted.
    Revert,
    /// Nothing is left.
    #[default]
    Done,
    /// It cannot go on: the database is open for reading only, or has failed.
    Stopped,
}

impl RestartPhase {
    /// As views and figures show it.
    pub fn name(self) -> &'static str {
        match self {
            RestartPhase::Redo => "redo",
            RestartPhase::Revert => "revert",
            RestartPhase::Done => "done",
            RestartPhase::Stopped => "stopped",
        }
    }
}

/// What a restart did, and has still to do while the database is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestartReport {
    /// Whether there was anything to do: the database had not been closed.
    pub crashed: bool,
    /// Where it stands.
    pub phase: RestartPhase,
    /// Torn pages restored from the double-write ring.
    pub healed_pages: u64,
    /// Pages that were changed and may not have come home before the crash.
    pub pages: u64,
    /// Of these, pages looked at so far, redone, and changes applied to them.
    pub examined_pages: u64,
    /// Pages nobody has looked at yet.
    pub pages_left: u64,
    /// Bytes of these.
    pub bytes_left: u64,
    /// See `examined_pages`.
    pub redone_pages: u64,
    /// See `examined_pages`.
    pub applied_changes: u64,
    /// What could not be brought up to date, with the reason. Everything else is readable.
    pub damaged_pages: Vec<String>,
    /// What of the log is gone, where the database is being salvaged; see [`OpenOptions::salvage`].
    pub lost: Option<String>,
    /// Transactions that the crash has cut short.
    pub losers: u64,
    /// Of these, transactions reverted so far.
    pub reverted_losers: u64,
    /// Bytes of log between the redo position and the end.
    pub log_bytes: u64,
    /// From the beginning of the open to its end.
    pub duration: Duration,
    /// From then on to the end of the work in the background, or until now.
    pub background: Duration,
    /// How long redo will take, at the pace it has had so far; `None` where that cannot be told.
    pub time_left: Option<Duration>,
}

impl fmt::Display for RestartReport {
    /// What is left, or how it ended, in words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lost) = &self.lost {
            return write!(f, "salvaged, for reading only: {lost}");
        }
        let losers_left = self.losers - self.reverted_losers;
        match self.phase {
            RestartPhase::Redo => {
                let (pages, size) = (self.pages_left, format_size(self.bytes_left));
                write!(f, "{pages} of {} pages ({size}) are left to be redone", self.pages)?;
                if losers_left > 0 {
                    write!(f, ", {losers_left} transactions to be reverted")?;
                }
                match self.time_left {
                    Some(left) => write!(f, "; about {:.1} s", left.as_secs_f64()),
                    None => Ok(()),
                }
            }
            RestartPhase::Revert => {
                write!(f, "{losers_left} of {} transactions are left to be reverted", self.losers)
            }
            RestartPhase::Done => write!(
                f,
                "{} of {} pages redone and {} transactions reverted within {:.1} s",
                self.redone_pages,
                self.pages,
                self.losers,
                self.background.as_secs_f64()
            ),
            RestartPhase::Stopped => match self.damaged_pages.first() {
                Some(first) => {
                    write!(f, "stopped, {} pages or more are damaged: {first}", self.damaged_pages.len())
                }
                None => write!(f, "stopped: the rest is left to the next start"),
            },
        }
    }
}

/// Figures of a database at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseStats {
    /// Page frames of the engine.
    pub frames: u64,
    /// Those of them whose memory is lent to others.
    pub frames_lent: u64,
    /// Those of them that have memory, and no page.
    pub frames_free: u64,
    /// Frames with changes that are not on the device yet.
    pub dirty_frames: u64,
    /// Pages read because somebody waited for them.
    pub page_misses: u64,
    /// Pages read ahead.
    pub pages_prefetched: u64,
    /// Pages dropped from memory to make room.
    pub pages_evicted: u64,
    /// Times a reader found no clean frame and had to wait.
    pub frame_waits: u64,
    /// Pages written home.
    pub pages_written: u64,
    /// Bytes of log that a restart would have to look at.
    pub log_bytes: u64,
    /// Log position: everything up to here is durable.
    pub durable_lsn: Lsn,
    /// Log position of the last record.
    pub end_lsn: Lsn,
    /// Bytes of the data file.
    pub file_bytes: u64,
    /// Undo segments waiting to be swept.
    pub undo_segments: u64,
    /// Writing transactions.
    pub active_transactions: u64,
    /// Transactions below this number are visible to everybody.
    pub horizon: TxnId,
}

/// Persists the checkpoint: the header in the data file, then the log's own memory of what is needed.
#[derive(Debug)]
struct HeaderKeeper {
    meta: Mutex<Meta>,
    file: Arc<dyn File>,
    log: Log,
    groups: Arc<AtomicU64>,
    changes: Arc<Changes>,
}

impl Checkpoint for HeaderKeeper {
    fn advance(&self, redo_from: Lsn) -> Result<()> {
        let mut meta = self.meta.lock();
        // What is below it may be gone from the log: it never moves back, whoever says so.
        let redo_from = meta.redo_from.max(redo_from);
        self.changes.fold(&meta, redo_from);
        meta.redo_from = redo_from;
        meta.groups = self.groups.load(Ordering::Relaxed).max(meta.groups);
        meta.write(&*self.file)?;
        let kept = if planted(Mutation::SegmentRecycledEarly) { self.log.durable() } else { redo_from };
        self.log.set_keep_from(kept);
        Ok(())
    }
}

/// An open database. Dropping it closes it as [`Database::close`] does, without reporting errors. It can be shared
/// between threads; each [`Transaction`] belongs to one at a time.
///
/// ```
/// # use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let engine = Engine::new(&EngineOptions::default())?;
/// # let path = folder.path().join("data.gnt");
/// let db = engine.create(&path, &CreateOptions::default(), &OpenOptions::default())?;
/// let mut txn = db.begin(TransactionOptions::default());
/// let tree = txn.create_tree("fruit")?;
/// txn.put(&tree, b"apple", b"red")?;
/// txn.commit()?;
/// println!("{}: {}", db.io_mode().effective.name(), db.io_mode().reason);
/// db.close()?;
///
/// let db = engine.open(&path, &OpenOptions::default())?;
/// assert!(!db.restart_report().crashed);
/// # db.close()?;
/// # Ok::<(), gannet_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Database {
    engine: Engine,
    /// By what name it was opened, which may be a symbolic link; and where its file is, beside which its log is.
    path: PathBuf,
    real_path: PathBuf,
    pub(crate) shared: Arc<Shared>,
    pool: Arc<Pool>,
    volume: Arc<Volume>,
    keeper: Arc<HeaderKeeper>,
    threads: Vec<thread::JoinHandle<()>>,
    /// The thread that archives the log.
    archiver: Option<thread::JoinHandle<()>>,
    /// How the archive was doing when that ended: what a close writes behind it is no commit, and left to the next opening.
    archive_at_end: Option<Box<ArchiveReport>>,
    /// What of the log an archive lacks that nobody writes to this time.
    _unarchived: Option<LogHold>,
    flusher: Option<Flusher>,
    options: OpenOptions,
    next_session: AtomicU64,
    jobs: Jobs,
    /// By [`Database::outlook`].
    pub(crate) seen: Seen,
    /// A backup was taken, or begun, since this was opened, and says so.
    is_noted: AtomicBool,
    /// The start came to its end, and the database can be written. Before that it must not pass for complete.
    started: bool,
    closed: bool,
}

/// Where the log and lock are of the database at `path`, which leads through no symbolic link.
fn wal_folder(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// Refuses a folder with what may be all that is left of another database's last life.
fn log_of_another(folder: &Path) -> Error {
    Error::Invalid(format!("{folder:?} holds the log of another database: move it away"))
}

/// What says that a database is ours, as long as anybody holds it.
pub(crate) type FileLock = Arc<dyn Any + Send + Sync>;

/// Takes the lock of the database at `path`, in its folder, which is there.
fn take_lock(disk: &dyn Disk, path: &Path, folder: &Path) -> Result<FileLock> {
    match disk.lock(&folder.join(LOCK)) {
        Ok(lock) => Ok(Arc::from(lock)),
        Err(error) if error.kind() == gannet_io::ErrorKind::Locked => {
            Err(Error::InUse(format!("{path:?} is in use: {}", error.detail())))
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes the lock of the data file itself: the same file may be reached by several names, each with a folder of its own.
fn take_file_lock(file: &dyn File, path: &Path) -> Result<FileLock> {
    match file.lock() {
        Ok(lock) => Ok(Arc::from(lock)),
        Err(error) if error.kind() == gannet_io::ErrorKind::Locked => {
            Err(Error::InUse(format!("{path:?} is in use: {}", error.detail())))
        }
        Err(error) => Err(error.into()),
    }
}

impl Database {
    /// Where the database is, by the name that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number that it was given when it was created, and that its copies have.
    pub fn database_id(&self) -> u64 {
        self.volume.salt
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> usize {
        self.shared.core.page_size
    }

    /// The engine it belongs to.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What the start had to do, and how far it is with what it does while the database is in use.
    pub fn restart_report(&self) -> RestartReport {
        self.shared.restart.report()
    }

    /// Waits until what a crash has left is done in the background, or cannot be done, or the database is being closed; then
    /// says how it went. Nobody has to wait for it in order to work.
    pub fn await_restart(&self) -> RestartReport {
        self.shared.restart.wait(&mut || !*self.shared.stopping.lock());
        self.restart_report()
    }

    /// The same as a part of a job, which may be cancelled meanwhile.
    pub(crate) fn await_restart_watched(&self, watch: &mut Watch<'_>) -> Result<()> {
        if !self.shared.restart.is_at_work() {
            return Ok(());
        }
        let mut outcome = Ok(());
        watch.job().phase("waits for what the start has left", Unit::Pages, 0);
        self.shared.restart.wait(&mut || {
            outcome = watch.look();
            outcome.is_ok() && !*self.shared.stopping.lock()
        });
        outcome
    }

    /// The jobs of this database.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// How the data file is opened, and why.
    pub fn io_mode(&self) -> &ModeReport {
        self.volume.file.mode()
    }

    /// Begins a transaction.
    pub fn begin(&self, options: TransactionOptions) -> Transaction {
        self.begin_as(options, None)
    }

    /// The same for a transaction about whose long values `watcher` is told before it, or one of its views and scans, reads them.
    pub fn begin_watched(&self, options: TransactionOptions, watcher: Arc<dyn LongValues>) -> Transaction {
        self.begin_as(options, Some(watcher))
    }

    fn begin_as(&self, options: TransactionOptions, watcher: Option<Arc<dyn LongValues>>) -> Transaction {
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        Transaction::new(&self.shared, options, number, watcher)
    }

    /// The failure since which the database takes no more changes, until it is opened anew.
    pub fn failure(&self) -> Option<String> {
        self.shared.core.poison.check().err().map(|error| error.to_string())
    }

    /// Behind the last record of the log: whatever has been committed so far, asynchronously or not, is in front of it.
    pub fn log_end(&self) -> Lsn {
        self.shared.core.log.end()
    }

    /// Waits until whatever was committed before is durable, by asynchronous commits as well.
    pub fn make_durable(&self) -> Result<()> {
        let core = &self.shared.core;
        core.poison.check()?;
        core.log.flush_to(core.log.end()).inspect_err(|error| core.poison.set_by(error))
    }

    /// Writes everything that is dirty now and moves the checkpoint behind it.
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.core.poison.check()?;
        self.shared.core.log.flush_to(self.shared.core.log.end())?;
        self.shared.writer.flush_all(Duration::MAX).map(drop)
    }

    /// Sweeps what is garbage now; gives the number of undo segments freed. The background does the same all the time.
    pub fn sweep(&self) -> Result<u64> {
        let job = self.jobs().begin(JobOrder::new(JobKind::Sweep));
        let outcome = self.sweep_watched(false, &mut Watch::new(&job, &mut |_| Ok(())));
        job.end(outcome).map(|report| report.cleaned.segments)
    }

    /// The same as a part of a job; says what there was, what became of it, and what is left and why. With `show_only` nothing is
    /// removed, and what that would cost is said instead. What a crash has left is waited for. What a sweep that ends early leaves is
    /// swept by the next one.
    pub fn sweep_watched(&self, show_only: bool, watch: &mut Watch<'_>) -> Result<SweepReport> {
        self.await_restart_watched(watch)?;
        let begun = clock::now();
        let before = self.shared.garbage();
        let mut report = SweepReport { shown_only: show_only, before, ..SweepReport::default() };
        if show_only {
            self.shared.core.check_open()?;
            report.forecast = Some(self.shared.forecast(self.engine.disk().calibration(), watch)?);
        } else {
            self.shared.core.check_writable()?;
            report.cleaned = self.shared.sweep_by_job(watch)?;
        }
        report.after = self.shared.garbage();
        report.seconds = begun.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Checks that everything that is stored is whole, and refers to everything else as it should: trees, versions, long values,
    /// undo, free space, and the pages on the device. Findings are no error. Transactions may run meanwhile; what a crash has
    /// left is waited for.
    pub fn check(&self) -> Result<CheckReport> {
        let job = self.jobs().begin(JobOrder::new(JobKind::Check));
        let outcome = self.check_watched(&mut Watch::new(&job, &mut |_| Ok(())));
        job.end(outcome)
    }

    /// The same as a part of a job.
    pub fn check_watched(&self, watch: &mut Watch<'_>) -> Result<CheckReport> {
        self.await_restart_watched(watch)?;
        self.shared.core.poison.check()?;
        let _stays = self.shared.layout.keep(&mut || watch.look())?;
        let header = {
            // Nobody writes it meanwhile.
            let meta = self.keeper.meta.lock();
            check::header(&meta, &*self.volume.file)
        };
        check::run(&self.engine, &self.shared, header, watch)
    }

    /// Takes a backup as a part of a job, while everybody works: see [`BackupOptions`]. What a crash has left is waited for. Gives what
    /// the backup says of itself.
    ///
    /// # Errors
    /// [`Error::Backup`] where the destination fails, is full, or cannot keep up with the log, or the backup that this one is to add to is of
    /// another database; [`Error::Damaged`] where a page cannot be copied. What was made of the backup is gone then, or can be told from a
    /// complete one.
    pub fn backup(&self, options: BackupOptions, watch: &mut Watch<'_>) -> Result<Manifest> {
        Ok(self.backup_counted(options, None, watch)?.0)
    }

    /// The same, and, if they are wanted, exact statistics by the same pass over the file: all pages are read then, also for a backup that
    /// adds to another one. Those of the options that say how they are made do not count.
    pub fn backup_counted(
        &self,
        options: BackupOptions,
        statistics: Option<&StatOptions>,
        watch: &mut Watch<'_>,
    ) -> Result<(Manifest, Option<StatReport>)> {
        self.await_restart_watched(watch)?;
        let _stays = self.shared.layout.keep(&mut || watch.look())?;
        self.is_noted.store(true, Ordering::Release);
        let meta = self.meta();
        let origin = backup::Origin {
            engine: &self.engine,
            shared: &self.shared,
            path: &self.path,
            meta: &meta,
            mode: self.options.mode,
        };
        let (taken, report) = origin.back_up(options, statistics, watch)?;
        if let Some(archive) = &self.shared.archive {
            archive.note_backup(Lsn(taken.end_lsn));
        }
        Ok((taken, report.map(|report| self.with_marks(report))))
    }

    /// How the archive is doing; `None` where there is none.
    pub fn archive_report(&self) -> Option<ArchiveReport> {
        let durable = self.shared.core.log.durable();
        self.shared.archive.as_ref().map(|archive| archive.report(durable))
    }

    /// Names this moment, durably: a restore can go on to it with the log of an archive. Names may be given several times; then the LSN
    /// says which one is meant. Gives the point's LSN.
    pub fn create_restore_point(&self, name: &str) -> Result<Lsn> {
        if name.is_empty() || name.len() > POINT_NAME_MAX {
            return Err(Error::Invalid(format!("the name of a point has 1 to {POINT_NAME_MAX} bytes")));
        }
        let core = &self.shared.core;
        core.check_open()?;
        core.check_writable()?;
        let note = Note::Point { unix_us: clock::unix_micros(), name: name.to_owned() };
        let lsn = core.log.append_note(&note.encode())?;
        core.log.flush_to(lsn).inspect_err(|error| core.poison.set_by(error))?;
        Ok(lsn)
    }

    /// The header as it is now.
    pub(crate) fn meta(&self) -> Meta {
        self.keeper.meta.lock().clone()
    }

    /// How files are to be opened.
    /// Why nothing can be written to it, though it is open.
    pub(crate) fn why_read_only(&self) -> Option<String> {
        self.shared.core.why_read_only().map(str::to_owned)
    }

    pub(crate) fn io_mode_request(&self) -> ModeRequest {
        self.options.mode
    }

    /// What tells backups of this copy of the database from others, given the bytes of its pages in use.
    pub(crate) fn lineage_of(&self, bytes: u64) -> Lineage {
        Lineage::new(&self.path, &self.keeper.meta.lock(), bytes)
    }

    /// Figures of this moment.
    pub fn stats(&self) -> DatabaseStats {
        let core = &self.shared.core;
        let mut dirty = Vec::new();
        self.pool.dirty_frames(&self.volume, &mut dirty);
        let pool = &self.pool.stats;
        DatabaseStats {
            frames: self.pool.frame_count() as u64,
            frames_lent: (self.pool.frame_count() - self.pool.active_frames()) as u64,
            frames_free: self.pool.free_frames() as u64,
            dirty_frames: dirty.len() as u64,
            page_misses: pool.misses.load(Ordering::Relaxed),
            pages_prefetched: pool.prefetched.load(Ordering::Relaxed),
            pages_evicted: pool.evicted.load(Ordering::Relaxed),
            frame_waits: pool.frame_waits.load(Ordering::Relaxed),
            pages_written: self.shared.writer.pages_written(),
            log_bytes: core.log.used_bytes(),
            durable_lsn: core.log.durable(),
            end_lsn: core.log.end(),
            file_bytes: core.space.capacity() * core.page_size as u64,
            undo_segments: self.shared.streams.lock().complete.len() as u64,
            active_transactions: self.shared.registry.active().len() as u64,
            horizon: self.shared.registry.horizon(),
        }
    }

    /// The database is about to be closed: from now on nobody who writes waits for a checkpoint any more, which may take longer
    /// than the time there is.
    pub fn stop_waiting(&self) {
        self.shared.core.stop_waiting();
    }

    /// Closes the database: everything committed is durable; within the shutdown limit all pages are written, and then
    /// the file alone is complete. What is not written by then is redone at the next start.
    pub fn close(self) -> Result<()> {
        let limit = self.options.shutdown_limit;
        self.close_within(limit)
    }

    /// The same; and how the archive was doing when all was over, if there is one.
    pub fn close_reporting(mut self) -> Result<Option<ArchiveReport>> {
        self.end(self.options.shutdown_limit)?;
        Ok(self.archive_at_end.take().map(|report| *report))
    }

    /// The same with another limit than that which the database was opened with.
    pub fn close_within(mut self, limit: Duration) -> Result<()> {
        self.end(limit)
    }

    fn end(&mut self, limit: Duration) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let deadline = clock::now() + limit;
        *self.shared.stopping.lock() = true;
        self.shared.core.stop_waiting();
        self.shared.background.notify_all();
        // A panic in a thread of ours has poisoned the database already, or was reported by the panic itself. The page
        // writer, which was started first, is the last to go: the others may wait for frames that it makes clean.
        for thread in self.threads.drain(1.min(self.threads.len())..) {
            let _ = thread.join();
        }
        if let (Some(thread), Some(archive)) = (self.archiver.take(), &self.shared.archive)
            && archive.await_end(limit.max(ARCHIVE_LEAST))
        {
            let _ = thread.join();
        }
        self.archive_at_end = self.archive_report().map(Box::new);
        self.flusher = None;
        if self.started {
            self.shared.save_hot_pages(true);
        }
        let result = if self.started { self.write_out(deadline) } else { Ok(false) };
        self.shared.writer.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let result = result.and_then(|written| if written { self.finish_clean(deadline) } else { Ok(()) });
        // Transactions may outlive this handle: from now on they are refused. The pages and the lock go with the last
        // of them.
        self.shared.core.close();
        result
    }

    /// Writes all dirty pages; false when that was not possible in time.
    fn write_out(&self, deadline: Instant) -> Result<bool> {
        let core = &self.shared.core;
        core.poison.check()?;
        core.log.flush_to(core.log.end())?;
        self.shared.writer.flush_all(deadline - clock::now())
    }

    /// With all threads gone: writes what the last of them left, and the header that says so.
    fn finish_clean(&self, deadline: Instant) -> Result<()> {
        if !self.started
            || !self.shared.restart.is_over()
            || !self.write_out(deadline)?
            || self.shared.core.is_read_only()
            || !self.shared.registry.active().is_empty()
        {
            return Ok(());
        }
        let (end, crc) = self.shared.core.log.close()?;
        // Transactions outlive this handle. What one of them has changed before the log was closed is not written. (After a
        // failure nobody can tell: see `Pool::forget_unwritable`.)
        if self.pool.min_rec_lsn(&self.volume).is_some()
            || !self.shared.registry.active().is_empty()
            || self.shared.core.poison.is_set()
        {
            return Ok(());
        }
        let mut meta = self.keeper.meta.lock();
        // What a restart has folded into the list of changes names this life.
        let is_noted = self.shared.archive.is_some() || self.restart_report().crashed;
        if !is_noted && !self.is_noted.load(Ordering::Acquire) {
            meta.end_life(end);
        }
        self.keeper.changes.fold(&meta, end);
        meta.clean = true;
        meta.redo_from = end;
        meta.log_end = end;
        meta.log_crc = Some(crc);
        meta.next_txn = self.shared.registry.next_txn().0;
        meta.groups = self.shared.core.space.groups();
        meta.write_both(&*self.volume.file)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Nobody is left to tell; what was not written is redone.
        let _ = self.end(self.options.shutdown_limit);
    }
}

/// Ends all changes when the thread it lives in panics: its work is missing from then on.
struct PoisonOnPanic(Arc<Core>);

impl Drop for PoisonOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison.set("a background thread has panicked".to_owned());
        }
    }
}
