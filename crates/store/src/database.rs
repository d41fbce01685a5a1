//! An open database: creating, opening, closing.
//!
//! # Files
//! `NAME` holds the pages. `NAME-wal/` holds the log segments, the double-write ring (`ring`) and the lock (`lock`). After a
//! clean shutdown the file alone is the whole database.
//!
//! # Opening
//! 1. The lock is taken, the header read.
//! 2. After a crash: the ring heals torn pages and is emptied; the log's footers and its last segment say which pages
//!    lack changes, and which transactions lost.
//! 3. The header is written: not clean, next incarnation. Only then is the log, or anything else, written.
//! 4. Pages are redone as they are touched; here every page of the table is touched before the database is handed
//!    out. Then the losers are reverted.
//!
//! A crash in 2 changes nothing that 2 would not do again. A crash in 3 or later leaves a longer log, and the same
//! start of it.

use crate::check::CheckReport;
use crate::core::Core;
use crate::engine::{CreateOptions, Engine, OpenOptions};
use crate::log::{Flusher, Log, LogOptions, Recovery, RedoTable};
use crate::meta::Meta;
use crate::mtr::Mtr;
use crate::page::{self, PageKind};
use crate::pool::{Access, Pool, ScanRing, Volume};
use crate::recovery::ChainRedo;
use crate::shared::{Attachment, CATALOG, FIRST_USER_TREE, STATUS, Shared, Streams, UNDO_DIRECTORY};
use crate::space::{self, SYSTEM, Space};
use crate::transaction::{Transaction, TransactionOptions};
use crate::tree::{BTree, TreeRoot};
use crate::txn::locks::LockTable;
use crate::txn::registry::Registry;
use crate::undo::Segment;
use crate::work::Room;
use crate::writeback::{self, Checkpoint, PageWriter};
use crate::{Error, Result, entry};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::{Lsn, PageId, TxnId, clock, random, thread};
use gannet_io::{Class, Disk, File, ModeReport};
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Requests in flight of each queue.
const QUEUE_DEPTH: usize = 128;
/// Queues for reads; sessions take turns.
const READ_QUEUES: usize = 2;
/// Memory for reading the log during restart, in bytes.
const REDO_CACHE: u64 = 8 << 20;
/// Size of the log's buffer, in bytes; less where the budget is small.
const LOG_RING: u64 = 8 << 20;
/// Extents of the first allocation of a new file.
const FIRST_PAGES: u64 = 256;

/// What a restart did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestartReport {
    /// Whether there was anything to do: the database had not been closed.
    pub crashed: bool,
    /// Torn pages restored from the double-write ring.
    pub healed_pages: u64,
    /// Pages looked at, redone, and changes applied to them.
    pub examined_pages: u64,
    /// See `examined_pages`.
    pub redone_pages: u64,
    /// See `examined_pages`.
    pub applied_changes: u64,
    /// Pages that could not be brought up to date, with the reason. Everything else is readable.
    pub damaged_pages: Vec<String>,
    /// Transactions reverted.
    pub losers: u64,
    /// Bytes of log between the redo position and the end.
    pub log_bytes: u64,
    /// From the beginning of the open to its end.
    pub duration: Duration,
}

/// Figures of a database at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseStats {
    /// Page frames of the engine.
    pub frames: u64,
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
}

impl Checkpoint for HeaderKeeper {
    fn advance(&self, redo_from: Lsn) -> Result<()> {
        let mut meta = self.meta.lock();
        meta.redo_from = redo_from;
        meta.groups = self.groups.load(Ordering::Relaxed).max(meta.groups);
        meta.write(&*self.file)?;
        self.log.set_keep_from(redo_from);
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
    path: PathBuf,
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    volume: Arc<Volume>,
    keeper: Arc<HeaderKeeper>,
    threads: Vec<thread::JoinHandle<()>>,
    flusher: Option<Flusher>,
    options: OpenOptions,
    report: RestartReport,
    next_session: AtomicU64,
    /// The start came to its end: pages are redone, losers reverted. Before that it must not pass for complete.
    started: bool,
    closed: bool,
}

/// What the log says of transactions after a crash.
#[derive(Debug, Default)]
struct Aftermath {
    end: Lsn,
    highest_txn: TxnId,
    losers: Vec<(TxnId, u64)>,
}

/// The parts of a database that are open before its trees are.
struct Opened {
    file: Arc<dyn File>,
    ring: Option<Arc<dyn File>>,
    meta: Meta,
    log: Log,
    recovery: Option<Recovery>,
    healed: u64,
    lock: Box<dyn Any + Send + Sync>,
    log_room: Room,
}

fn wal_folder(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn log_options(engine: &Engine, meta: &Meta, open: &OpenOptions) -> LogOptions {
    let mut options = LogOptions::new(meta.database_id);
    options.segment_size = meta.segment_size;
    // At least half a segment, which is the log's own lower limit.
    let affordable = (engine.budget().limit() / 16).max(1).next_power_of_two() / 2;
    options.ring_size = LOG_RING.min(affordable).max(meta.segment_size / 2);
    options.mode = open.mode;
    options
}

impl Database {
    pub(crate) fn create(
        engine: &Engine,
        path: &Path,
        create: &CreateOptions,
        open: &OpenOptions,
    ) -> Result<Self> {
        let page_size = create.page_size;
        engine.pool(page_size)?;
        if !create.segment_size.is_power_of_two() || create.segment_size < 64 * page_size as u64 {
            return Err(Error::Invalid(format!(
                "a log segment is a power of two of at least 64 pages ({} bytes), not {}",
                64 * page_size,
                create.segment_size
            )));
        }
        let largest = 1 << 30;
        if create.segment_size > largest {
            return Err(Error::Invalid(format!(
                "a log segment has at most {largest} bytes, not {}",
                create.segment_size
            )));
        }
        let disk = engine.disk();
        let folder = wal_folder(path);
        if disk.exists(path)? {
            return Err(Error::Invalid(format!("{path:?} exists already")));
        }
        if disk.exists(&folder)? && disk.list(&folder)?.iter().any(|name| name.ends_with(".log")) {
            return Err(Error::Invalid(format!(
                "{folder:?} holds the log of another database: move it away"
            )));
        }
        disk.create_dir(&folder)?;
        disk.sync_dir(parent_of(path))?;
        let lock = disk.lock(&folder.join("lock"))?;
        let file = disk.open(path, &gannet_io::OpenOptions::create_new().mode(open.mode))?;
        disk.sync_dir(parent_of(path))?;
        let mut meta = Meta {
            page_size,
            database_id: random::next_u64(),
            sequence: 0,
            incarnation: 1,
            clean: false,
            redo_from: Lsn::ZERO,
            log_end: Lsn::ZERO,
            groups: 1,
            next_txn: 1,
            segment_size: create.segment_size,
            roots: [PageId(3), PageId(4), PageId(5)],
        };
        let log_options = log_options(engine, &meta, open);
        let log_room = engine.make_room(log_options.memory())?;
        let log = Log::create(disk, &folder, &log_options, Lsn::ZERO, 1, engine.budget())?;
        meta.redo_from = log.end();
        file.allocate(0, FIRST_PAGES * page_size as u64)?;
        file.sync(Class::Foreground)?;
        let ring = Self::open_ring(&**disk, &*file, &folder, page_size, open)?;
        // The header is written last: until then the file is no database.
        let opened = Opened { file, ring, meta, log, recovery: None, healed: 0, lock, log_room };
        Self::assemble(engine, path, open, opened, true)
    }

    pub(crate) fn open(engine: &Engine, path: &Path, options: &OpenOptions) -> Result<Self> {
        let start = clock::now();
        let disk = engine.disk();
        let folder = wal_folder(path);
        // The header is looked at before anything is made: a foreign file stays untouched.
        let file = disk.open(path, &gannet_io::OpenOptions::read_write().mode(options.mode))?;
        let meta = Meta::read(&*file)?;
        disk.create_dir(&folder)?;
        let lock = disk.lock(&folder.join("lock"))?;
        // Now nobody else changes it.
        let mut meta = Meta { ..Meta::read(&*file).unwrap_or(meta) };
        engine.pool(meta.page_size)?;
        let log_options = log_options(engine, &meta, options);
        let log_room = engine.make_room(log_options.memory())?;
        // Footers, the last segment and the table of pages to redo take memory that frames do not need yet.
        let _recovery_room = engine.make_room(engine.budget().limit() / 2)?;
        // The last segment is read as a whole, and the footers of the others one at a time.
        let _restart_room = engine.make_room(2 * meta.segment_size)?;
        let present = Log::is_present(disk, &folder, &log_options, engine.budget())?;
        if !meta.clean && !present {
            return Err(Error::Damaged(format!(
                "{path:?} was not closed, and its log in {folder:?} is gone: put the folder back, or restore a backup"
            )));
        }
        let ring = Self::open_ring(&**disk, &*file, &folder, meta.page_size, options)?;
        let mut healed = 0;
        if let Some(ring) = &ring {
            if !meta.clean {
                healed = writeback::heal(&**ring, &*file, meta.page_size, meta.database_id)?.len() as u64;
            }
            writeback::reset(&**ring, meta.page_size)?;
        }
        let (recovery, log) = if present {
            let (recovery, log) =
                Log::recover(disk, &folder, &log_options, meta.redo_from, meta.incarnation, engine.budget())?;
            (Some(recovery), Some(log))
        } else {
            (None, None)
        };
        let crashed = !meta.clean;
        let newest = recovery.as_ref().map_or(0, |r| r.incarnation);
        meta.incarnation = meta.incarnation.max(newest) + 1;
        meta.clean = false;
        let log = match log {
            Some(log) => {
                meta.write(&*file)?;
                log.start_writing(meta.incarnation)?;
                log
            }
            None => begin_log(engine, &folder, &log_options, &mut meta, &*file)?,
        };
        let opened = Opened { file, ring, meta, log, recovery, healed, lock, log_room };
        let mut database = Self::assemble(engine, path, options, opened, false)?;
        database.report.crashed = crashed;
        database.report.duration = start.elapsed();
        Ok(database)
    }

    /// The double-write ring, unless the device makes writes of a page whole by itself.
    fn open_ring(
        disk: &dyn Disk,
        data: &dyn File,
        folder: &Path,
        page_size: usize,
        options: &OpenOptions,
    ) -> Result<Option<Arc<dyn File>>> {
        let path = folder.join("ring");
        let exists = disk.exists(&path)?;
        if data.atomic_write_max() >= page_size && !exists {
            return Ok(None);
        }
        let mut open = gannet_io::OpenOptions::read_write().mode(options.mode);
        open.create = true;
        let ring = disk.open(&path, &open)?;
        let wanted = writeback::ring_bytes(page_size);
        if ring.len()? < wanted {
            ring.allocate(0, wanted)?;
            ring.sync(Class::Foreground)?;
            disk.sync_dir(folder)?;
        }
        Ok(Some(ring))
    }

    fn assemble(
        engine: &Engine,
        path: &Path,
        options: &OpenOptions,
        opened: Opened,
        new: bool,
    ) -> Result<Self> {
        let Opened { file, ring, meta, log, recovery, healed, lock, log_room } = opened;
        let disk = engine.disk();
        let pool = engine.pool(meta.page_size)?;
        let queues =
            (0..READ_QUEUES).map(|_| disk.queue(QUEUE_DEPTH)).collect::<gannet_io::Result<Vec<_>>>()?;
        let volume = pool.attach(Volume::new(Arc::clone(&file), meta.database_id, queues))?;
        let guard = Detach { pool: &pool, volume: Some(&volume) };
        let (table, aftermath) = match recovery {
            Some(Recovery { redo, end, highest_txn, open_transactions, .. }) => {
                (Some(redo), Aftermath { end, highest_txn, losers: open_transactions })
            }
            None => (None, Aftermath::default()),
        };
        let redo = Self::prepare_redo(&log, table, meta.redo_from, engine)?;
        volume.set_redo(redo.clone().map(|redo| redo as _));
        let capacity = file.len()? / meta.page_size as u64;
        let groups = count_groups(&*file, &meta, redo.as_deref(), capacity)?;
        let log_options = log_options(engine, &meta, options);
        let wal_limit = options.wal_limit.max(4 * meta.segment_size);
        let core = Arc::new(Core::new(
            Arc::clone(&pool),
            Arc::clone(&volume),
            log.clone(),
            Space::new(capacity, if new { 0 } else { groups }),
            engine.budget().clone(),
            &log_options,
            wal_limit,
        ));
        let keeper = Arc::new(HeaderKeeper {
            meta: Mutex::new(meta.clone()),
            file: Arc::clone(&file),
            log: log.clone(),
            groups: core.space.group_count(),
        });
        let writer = PageWriter::new(
            Arc::clone(&core),
            ring,
            disk.queue(QUEUE_DEPTH)?,
            Arc::clone(&keeper) as _,
            meta.redo_from,
        )?;
        writer.set_floor(redo.as_ref().map(|_| meta.redo_from));
        volume.set_writer(Some(Arc::clone(&writer) as _));
        if new {
            create_trees(&core, &meta)?;
            core.log.flush_to(core.log.end())?;
            keeper.meta.lock().write(&*file)?;
        }
        if !new {
            // The last group says where the used part of the file ends, behind which space is kept for rollbacks.
            match core.space.learn(&core, groups - 1) {
                Err(error @ (Error::Damaged(_) | Error::NeverWritten(_))) => {
                    core.set_read_only(format!("a space map is damaged: {error}"));
                }
                other => other?,
            }
        }
        let attachment = Attachment {
            pool: Arc::clone(&pool),
            volume: Arc::clone(&volume),
            _lock: lock,
            _log_room: log_room,
        };
        let shared = Self::share(engine, &core, &meta, &writer, aftermath.highest_txn, attachment)?;
        let mut database = Database {
            engine: engine.clone(),
            path: path.to_owned(),
            shared,
            pool: Arc::clone(&pool),
            volume: Arc::clone(&volume),
            keeper,
            threads: Vec::new(),
            flusher: None,
            options: options.clone(),
            report: RestartReport { healed_pages: healed, ..RestartReport::default() },
            next_session: AtomicU64::new(1),
            started: false,
            closed: false,
        };
        std::mem::forget(guard);
        database.start(redo, &aftermath)?;
        Ok(database)
    }

    fn prepare_redo(
        log: &Log,
        table: Option<RedoTable>,
        redo_from: Lsn,
        engine: &Engine,
    ) -> Result<Option<Arc<ChainRedo>>> {
        let Some(table) = table.filter(|table| !table.is_empty()) else { return Ok(None) };
        let cache = REDO_CACHE.min(engine.budget().limit() / 16).max(256 << 10);
        Ok(Some(Arc::new(ChainRedo::new(table, log.reader(cache)?, redo_from))))
    }

    fn share(
        engine: &Engine,
        core: &Arc<Core>,
        meta: &Meta,
        writer: &Arc<PageWriter>,
        highest: TxnId,
        attachment: Attachment,
    ) -> Result<Arc<Shared>> {
        let next_txn = TxnId((highest.0 + 1).max(meta.next_txn).max(1));
        let registry = Registry::new(next_txn, core.log.end().0, engine.budget())?;
        let waiting = Arc::clone(&registry);
        core.poison.on_set(move || waiting.waits().close());
        let undo_directory = TreeRoot::new(UNDO_DIRECTORY, meta.roots[2]);
        let (next_stream, segments) = read_undo_directory(core, &undo_directory, next_txn)?;
        Ok(Arc::new(Shared {
            core: Arc::clone(core),
            registry,
            locks: LockTable::new(engine.budget(), engine.budget().limit() / 32),
            catalog: Arc::new(TreeRoot::new(CATALOG, meta.roots[0])),
            status: TreeRoot::new(STATUS, meta.roots[1]),
            undo_directory,
            streams: Mutex::new(Streams::new(next_stream, segments)),
            writer: Arc::clone(writer),
            trees: Mutex::new(BTreeMap::new()),
            next_tree: Mutex::new(FIRST_USER_TREE),
            stopping: Mutex::new(false),
            background: Condvar::new(),
            attachment,
            sweeping: Mutex::new(()),
        }))
    }

    /// Starts the threads, redoes pages and reverts losers.
    fn start(&mut self, redo: Option<Arc<ChainRedo>>, aftermath: &Aftermath) -> Result<()> {
        let writer = Arc::clone(&self.shared.writer);
        let core = Arc::clone(&self.shared.core);
        self.threads.push(thread::spawn("gannet-writer", move || {
            let _guard = PoisonOnPanic(core);
            writer.run();
        }));
        self.load_trees()?;
        let register = |&(id, undo): &(TxnId, u64)| self.shared.registry.insert_loser(id, undo);
        let losers: Vec<_> = aftermath.losers.iter().map(register).collect();
        if let Some(redo) = redo {
            self.redo_all(&redo)?;
            (self.report.redone_pages, self.report.applied_changes) = redo.progress();
            if let Some(first) = self.report.damaged_pages.first() {
                // The log that these pages lack must stay, so nothing more can be logged: look, save, restore.
                let count = self.report.damaged_pages.len();
                let why =
                    format!("{count} pages could not be brought up to date from the log, the first: {first}");
                self.shared.core.set_read_only(why);
            } else {
                self.volume.set_redo(None);
                self.shared.writer.set_floor(None);
            }
        }
        self.report.losers = losers.len() as u64;
        if self.shared.core.is_read_only() {
            // Readers step over the losers' changes through undo.
            return Ok(());
        }
        for loser in &losers {
            self.shared.finish_revert(loser, true)?;
        }
        self.report.log_bytes = aftermath.end.0.saturating_sub(self.keeper.meta.lock().redo_from.0);
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::spawn("gannet-background", move || {
            let _guard = PoisonOnPanic(Arc::clone(&shared.core));
            shared.run_background();
        }));
        self.flusher = Some(self.shared.core.log.start_flusher(self.options.max_delay));
        self.started = true;
        Ok(())
    }

    /// Touches every page that the log knows, in page order and with deep batches.
    fn redo_all(&mut self, redo: &ChainRedo) -> Result<()> {
        let pages = redo.pages();
        self.report.examined_pages = pages.len() as u64;
        let batch = (self.pool.frame_count() / 8).clamp(8, 256);
        let ring = ScanRing::new(batch * 2);
        for window in pages.chunks(batch) {
            self.pool.prefetch(&self.volume, window, Class::Prefetch, Access::Ring(&ring));
            for &id in window {
                match self.pool.shared(&self.volume, id, Access::Ring(&ring)) {
                    Ok(_) => {}
                    Err(error @ (Error::Damaged(_) | Error::NeverWritten(_))) => {
                        self.report.damaged_pages.push(error.to_string());
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Notes every tree of the catalog, dropped and created ones in any state included.
    fn load_trees(&self) -> Result<()> {
        let catalog = BTree::new(&self.shared.core, &self.shared.catalog);
        let status = BTree::new(&self.shared.core, &self.shared.status);
        let next = status.get(&crate::catalog::NEXT_TREE)?.and_then(|value| value.try_into().ok());
        if let Some(next) = next {
            *self.shared.next_tree.lock() = u64::from_le_bytes(next) as u32;
        }
        let mut from = Vec::new();
        while let Some((key, payload)) = catalog.first_from(&from)? {
            let entry = crate::versions::decode(&payload)?;
            if let Some((id, root)) = crate::catalog::decode(entry.value)
                && !root.is_none()
            {
                self.shared.tree_root(id, root);
            }
            // The version before may be another tree of the same name, which a rollback brings back.
            if entry.flags & entry::VERSIONED != 0 {
                self.load_previous(&entry)?;
            }
            from = key;
            from.push(0);
        }
        Ok(())
    }

    fn load_previous(&self, entry: &entry::Entry<'_>) -> Result<()> {
        let mut undo = entry.undo;
        let open: Vec<TxnId> =
            self.shared.core.log.open_transactions().into_iter().map(|(id, _)| id).collect();
        let mut writer = entry.writer;
        while open.contains(&writer) && !undo.is_none() {
            let record = crate::undo::read(&self.shared.core, undo)?;
            if let Some((id, root)) = crate::catalog::decode(&record.value)
                && !root.is_none()
            {
                self.shared.tree_root(id, root);
            }
            (writer, undo) = (record.previous_writer, record.previous_undo);
        }
        Ok(())
    }

    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> usize {
        self.shared.core.page_size
    }

    /// The engine it belongs to.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What the start had to do.
    pub fn restart_report(&self) -> &RestartReport {
        &self.report
    }

    /// How the data file is opened, and why.
    pub fn io_mode(&self) -> &ModeReport {
        self.volume.file.mode()
    }

    /// Begins a transaction.
    pub fn begin(&self, options: TransactionOptions) -> Transaction {
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        Transaction::new(Arc::clone(&self.shared), options, number)
    }

    /// Writes everything that is dirty now and moves the checkpoint behind it.
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.core.poison.check()?;
        self.shared.core.log.flush_to(self.shared.core.log.end())?;
        self.shared.writer.flush_all(Duration::MAX).map(drop)
    }

    /// Sweeps what is garbage now; gives the number of undo segments freed. The background does the same all the time.
    pub fn sweep(&self) -> Result<u64> {
        self.shared.core.poison.check()?;
        self.shared.sweep(Duration::ZERO)
    }

    /// Checks that everything refers to everything else as it should: trees, versions, long values, free space, and
    /// the pages on the device. Findings are no error. No transaction may run meanwhile.
    pub fn check(&self) -> Result<CheckReport> {
        self.shared.core.poison.check()?;
        self.shared.check()
    }

    /// Figures of this moment.
    pub fn stats(&self) -> DatabaseStats {
        let core = &self.shared.core;
        let mut dirty = Vec::new();
        self.pool.dirty_frames(&self.volume, &mut dirty);
        let pool = &self.pool.stats;
        DatabaseStats {
            frames: self.pool.frame_count() as u64,
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

    /// Closes the database: everything committed is durable; within the shutdown limit all pages are written, and then
    /// the file alone is complete. What is not written by then is redone at the next start.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        *self.shared.stopping.lock() = true;
        self.shared.background.notify_all();
        // A panic in a thread of ours has poisoned the database already, or was reported by the panic itself. The page
        // writer, which was started first, is the last to go: the others may wait for frames that it makes clean.
        for thread in self.threads.drain(1.min(self.threads.len())..) {
            let _ = thread.join();
        }
        self.flusher = None;
        let result = if self.started { self.write_out() } else { Ok(false) };
        self.shared.writer.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let result = result.and_then(|written| if written { self.finish_clean() } else { Ok(()) });
        // Transactions may outlive this handle: from now on they are refused. The pages and the lock go with the last
        // of them.
        self.shared.core.close();
        result
    }

    /// Writes all dirty pages; false when that was not possible in time.
    fn write_out(&self) -> Result<bool> {
        let core = &self.shared.core;
        core.poison.check()?;
        core.log.flush_to(core.log.end())?;
        self.shared.writer.flush_all(self.options.shutdown_limit)
    }

    /// With all threads gone: writes what the last of them left, and the header that says so.
    fn finish_clean(&self) -> Result<()> {
        if !self.started
            || !self.write_out()?
            || self.shared.core.is_read_only()
            || !self.shared.registry.active().is_empty()
        {
            return Ok(());
        }
        let end = self.shared.core.log.close()?;
        // Transactions outlive this handle. What one of them has changed before the log was closed is not written.
        if self.pool.min_rec_lsn(&self.volume).is_some() || !self.shared.registry.active().is_empty() {
            return Ok(());
        }
        let mut meta = self.keeper.meta.lock();
        meta.clean = true;
        meta.redo_from = end;
        meta.log_end = end;
        meta.next_txn = self.shared.registry.next_txn().0;
        meta.groups = self.shared.core.space.groups();
        meta.write(&*self.volume.file)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Nobody is left to tell; what was not written is redone.
        let _ = self.end();
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

/// Takes the volume out of the pool when opening fails half-way.
struct Detach<'a> {
    pool: &'a Pool,
    volume: Option<&'a Arc<Volume>>,
}

impl Drop for Detach<'_> {
    fn drop(&mut self) {
        if let Some(volume) = self.volume {
            volume.set_writer(None);
            volume.set_redo(None);
            self.pool.detach(volume);
        }
    }
}

/// Begins a new log for a database that was closed and lost its log since. At each moment header and log suit each other:
/// first the closed database learns of the life to come and where that begins, then the log begins, durably, and then
/// the database is open.
fn begin_log(
    engine: &Engine,
    folder: &Path,
    options: &LogOptions,
    meta: &mut Meta,
    file: &dyn File,
) -> Result<Log> {
    meta.log_end = Lsn(meta.log_end.0.next_multiple_of(options.segment_size));
    meta.redo_from = meta.log_end;
    meta.clean = true;
    meta.write(file)?;
    let log = Log::create(engine.disk(), folder, options, meta.log_end, meta.incarnation, engine.budget())?;
    log.append_note(b"begin")?;
    log.flush_to(log.end())?;
    meta.clean = false;
    meta.write(file)?;
    Ok(log)
}

/// Formats the first group and the roots of the store's own trees, at fixed pages behind the space map.
fn create_trees(core: &Core, meta: &Meta) -> Result<()> {
    let mut mtr = Mtr::new(core);
    let map = mtr.add(core.pool.create(&core.volume, space::map_page(0, core.page_size))?);
    mtr.format(map, PageKind::SpaceMap, SYSTEM, &space::first_map(core.page_size, meta.roots.len()));
    for (id, root) in [CATALOG, STATUS, UNDO_DIRECTORY].into_iter().zip(meta.roots) {
        let part = mtr.add(core.pool.create(&core.volume, root)?);
        BTree::format_root(&mut mtr, part, id, core.page_size);
    }
    mtr.commit()?;
    core.space.add_first_group();
    Ok(())
}

/// Number of groups with a space map: those the header knows, and those that were added since.
fn count_groups(file: &dyn File, meta: &Meta, redo: Option<&ChainRedo>, capacity: u64) -> Result<u64> {
    let mut groups = meta.groups;
    let mut page = gannet_io::AlignedBuffer::zeroed(meta.page_size);
    loop {
        let id = space::map_page(groups, meta.page_size);
        if redo.is_some_and(|redo| redo.knows(id)) {
            groups += 1;
            continue;
        }
        if id.0 >= capacity {
            return Ok(groups);
        }
        file.read_at(Class::Foreground, id.0 * meta.page_size as u64, &mut page)?;
        // A damaged map is a map: taken for the end of the file, another would be written over what follows it.
        if page::verify(&page, id, meta.database_id) == page::Verdict::NeverWritten {
            return Ok(groups);
        }
        groups += 1;
    }
}

/// The undo segments of earlier lives: all complete, since nobody writes to them any more.
fn read_undo_directory(core: &Core, root: &TreeRoot, next_txn: TxnId) -> Result<(u32, VecDeque<Segment>)> {
    let tree = BTree::new(core, root);
    let mut segments = VecDeque::new();
    let mut next_stream = 0;
    let mut from = Vec::new();
    while let Some((key, value)) = tree.first_from(&from)? {
        let mut segment = Segment::decode(&key, &value)
            .ok_or_else(|| Error::Damaged("an entry of the undo directory makes no sense".to_owned()))?;
        if segment.highest_txn.is_none() {
            segment.highest_txn = TxnId(next_txn.0 - 1);
        }
        next_stream = next_stream.max(segment.stream);
        segments.push_back(segment);
        from = key;
        from.push(0);
    }
    Ok((next_stream, segments))
}
