//! Opening a database.

use super::create::{self, create_trees};
use super::{
    CHANGES, Database, FileLock, HOT, HeaderKeeper, LOCK, RING, RestartReport, log_of_another,
    take_file_lock, take_lock, wal_folder,
};
use crate::archive;
use crate::changes::Changes;
use crate::compact::Layout;
use crate::core::Core;
use crate::engine::{CreateOptions, Engine, OpenOptions};
use crate::hot::HotPages;
use crate::log::{Known, Log, LogFiles, LogHold, LogOptions, Recovery, RedoTable};
use crate::meta::Meta;
use crate::mutation::{Mutation, planted};
use crate::outlook::{Notes, Seen};
use crate::page;
use crate::pool::{BACKGROUND_QUEUES, Pool, Redo, Volume};
use crate::recovery::PageRedo;
use crate::restart::Restart;
use crate::ring::{self, Healed};
use crate::shared::{Attachment, CATALOG, FIRST_USER_TREE, STATUS, Shared, Streams, UNDO_DIRECTORY};
use crate::space::{self, Space};
use crate::sweep::limit::Holders;
use crate::sweep::turn::Turn;
use crate::tree::TreeRoot;
use crate::txn::locks::LockTable;
use crate::txn::registry::Registry;
use crate::work::Room;
use crate::writeback::PageWriter;
use crate::{Error, Result};
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::units::format_size;
use gannet_base::{Lsn, TxnId};
use gannet_io::{Class, Disk, File, ModeRequest};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Requests in flight of each queue.
const QUEUE_DEPTH: usize = 128;
/// Queues for reads; sessions take turns.
const READ_QUEUES: usize = 2;
/// Memory for reading the log during restart, in bytes.
const REDO_CACHE: u64 = 8 << 20;
/// Size of the log's buffer, in bytes; less where the budget is small.
const LOG_RING: u64 = 8 << 20;
/// What else a log that is not there may mean.
const OTHER_NAME: &str = "if the file was opened under another name last (a hard link), its log is beside that \
                          name: open it there";

/// What the log says of transactions after a crash.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    pub(super) end: Lsn,
    pub(super) highest_txn: TxnId,
    pub(super) losers: Vec<(TxnId, u64)>,
}

/// The parts of a database that are open before its trees are.
pub(super) struct Opened {
    pub(super) file: Arc<dyn File>,
    pub(super) ring: Option<Arc<dyn File>>,
    pub(super) meta: Meta,
    pub(super) log: Log,
    pub(super) recovery: Option<Recovery>,
    /// When opening began, and what is known of it.
    pub(super) begun: Instant,
    pub(super) report: RestartReport,
    pub(super) lock: FileLock,
    pub(super) log_room: Room,
    /// What of the log was not archived yet.
    pub(super) unarchived: Option<LogHold>,
    /// Somebody has archived it before.
    pub(super) was_archived: bool,
}

/// What becomes part of [`Shared`] as it is.
struct Parts {
    restart: Arc<Restart>,
    hot_pages: HotPages,
    changes: Arc<Changes>,
    attachment: Attachment,
    holders: Holders,
    archive: Option<Arc<archive::Status>>,
}

/// What is in force of the limit asked for: four segments at least.
pub(crate) fn wal_limit(segment_size: u64, open: &OpenOptions) -> u64 {
    open.wal_limit.max(4 * segment_size)
}

pub(super) fn log_options(engine: &Engine, meta: &Meta, open: &OpenOptions) -> LogOptions {
    let mut options = LogOptions::new(meta.database_id);
    options.segment_size = meta.segment_size;
    // At least half a segment, which is the log's own lower limit.
    let affordable = (engine.budget().limit() / 32).max(1).next_power_of_two() / 2;
    options.ring_size = LOG_RING.min(affordable).max(meta.segment_size / 2);
    options.recycle_max = wal_limit(meta.segment_size, open);
    options.mode = open.mode;
    options
}

/// How pages of a redo table are brought up to date, if there are any; see [`PageRedo::new`].
pub(super) fn page_redo(
    log: &Log,
    table: Option<RedoTable>,
    engine: &Engine,
    writes: bool,
) -> Result<Option<Arc<PageRedo>>> {
    let Some(table) = table.filter(|table| !table.is_empty()) else { return Ok(None) };
    let cache = REDO_CACHE.min(engine.budget().limit() / 16).max(256 << 10);
    Ok(Some(Arc::new(PageRedo::new(table, log.reader(cache)?, writes))))
}

impl Database {
    /// Looks whether a file is a database, as opening it would: at its header, and whether the file goes on behind it. Nothing is locked,
    /// changed, or said of the rest, which is for a check.
    ///
    /// # Errors
    /// What opening it says: [`Error::Format`] and [`Error::Damaged`] of a file that is none, or not whole.
    pub fn look(disk: &Arc<dyn Disk>, path: &Path, mode: ModeRequest) -> Result<()> {
        let folder = wal_folder(&disk.resolve(path)?);
        let file = disk.open(path, &gannet_io::OpenOptions::read().mode(mode))?;
        let meta = Meta::read(&*file).map_err(|error| create::explained(error, disk, &*file, &folder))?;
        let (len, page_size) = (file.len()?, meta.page_size as u64);
        let needed = meta.roots.iter().map(|root| (root.0 + 1) * page_size).max().unwrap_or_default();
        if len < needed || len % page_size != 0 {
            return Err(Error::Damaged(format!(
                "{path:?} is cut off: it has {len} bytes, which are no whole pages of {page_size}, or too few; restore the file from a backup"
            )));
        }
        Ok(())
    }

    /// Looks whether the log is there that a file needs which was not closed, as opening it would. For a file that nobody has open, as the log's
    /// files come and go otherwise.
    ///
    /// # Errors
    /// What opening it says: [`Error::Damaged`] where it is not, [`Error::Invalid`] where another database's is.
    pub fn look_for_log(disk: &Arc<dyn Disk>, path: &Path, mode: ModeRequest) -> Result<()> {
        let folder = wal_folder(&disk.resolve(path)?);
        let file = disk.open(path, &gannet_io::OpenOptions::read().mode(mode))?;
        let meta = Meta::read(&*file)?;
        if meta.clean {
            return Ok(());
        }
        let mut options = LogOptions::new(meta.database_id);
        (options.segment_size, options.mode) = (meta.segment_size, mode);
        find_log(disk, &*file, &folder, &options, &meta).map(drop)
    }

    pub(crate) fn open(engine: &Engine, path: &Path, options: &OpenOptions) -> Result<Self> {
        let begun = clock::now();
        let disk = engine.disk();
        let folder = wal_folder(&disk.resolve(path)?);
        let mut new_folder = NewFolder { disk: &**disk, folder: &folder, is_new: !disk.exists(&folder)? };
        let file = disk.open(path, &gannet_io::OpenOptions::read_write().mode(options.mode))?;
        let (mut meta, lock) = lock_header(&**disk, &*file, path, &folder)
            .map_err(|error| create::explained(error, disk, &*file, &folder))?;
        let created = CreateOptions { page_size: meta.page_size, segment_size: meta.segment_size };
        created.check_memory(engine.budget().limit())?;
        engine.pool(meta.page_size)?;
        let log_options = log_options(engine, &meta, options);
        let log_room = engine.make_room(log_options.memory())?;
        // Footers, the last segment and the table of pages to redo take memory that frames do not need yet.
        let _recovery_room = engine.make_room(engine.budget().limit() / 2)?;
        // The last segment is read as a whole, and the footers of the others one at a time.
        let _restart_room = engine.make_room(2 * meta.segment_size)?;
        let files = find_log(disk, &*file, &folder, &log_options, &meta)?;
        let archive = options.archive.as_deref().filter(|_| !options.salvage);
        // Before anything is written: an archive of another one is refused, and log that this one lacks is kept.
        let reach = match archive {
            Some(archive) => archive::look(engine, archive, options.mode, &meta)?,
            None => None,
        };
        let archived = reach.map(|reach| reach.durable);
        let crashed = !meta.clean;
        // Before the ring, which belongs to the same folder: nothing is healed by that of another life.
        let (recovery, log) = if let Some(files) = files {
            let (recovery, log) = Self::recover(engine, &files, &log_options, &meta, options, archived)
                .and_then(|found| check_fit(path, &folder, &meta, &found.0).map(|()| found))
                .map_err(|error| explained(error, &files, &*file, &log_options, &meta))?;
            (Some(recovery), Some(log))
        } else {
            (None, None)
        };
        if let Some((archive, reach)) = archive.zip(reach) {
            let log_end = recovery.as_ref().map_or(meta.log_end, |recovery| recovery.end);
            check_reach(path, archive, reach, log_end)?;
        }
        if options.salvage {
            let Some((recovery, log)) = recovery.zip(log) else {
                return Err(Error::Invalid(format!(
                    "{path:?} was closed, and needs nothing of a log: there is nothing to salvage; open it as usual"
                )));
            };
            let report = RestartReport { crashed, lost: recovery.lost.clone(), ..RestartReport::default() };
            let (ring, recovery) = (None, Some(recovery));
            let (unarchived, was_archived) = (None, false);
            let opened = Opened {
                file,
                ring,
                meta,
                log,
                recovery,
                begun,
                report,
                lock,
                log_room,
                unarchived,
                was_archived,
            };
            return Self::assemble(engine, path, options, opened, false);
        }
        // From here on it is written to.
        new_folder.is_new = false;
        // It is to be durable before anything goes that an older one needs; and one good copy is there at any moment.
        if meta.is_lone(&*file) {
            meta.write(&*file)?
        } else {
            meta.write_again(&*file)?
        }
        let ring = Self::open_ring(&**disk, &*file, &folder, meta.page_size, options)?;
        let mut healed = Healed::default();
        if let Some(file_of_ring) = &ring {
            if crashed {
                let queue = disk.queue(QUEUE_DEPTH)?;
                healed = ring::heal(&**file_of_ring, &file, &*queue, meta.page_size, meta.database_id)?;
            }
            ring::reset(&**file_of_ring, meta.page_size)?;
        }
        let newest = recovery.as_ref().map_or(0, |r| r.incarnation);
        meta.incarnation = meta.incarnation.max(newest) + u32::from(!planted(Mutation::IncarnationKept));
        meta.clean = false;
        let was_archived = meta.archived;
        meta.archived |= archive.is_some();
        meta.log_crc = None;
        meta.begin_life(recovery.as_ref().map_or(meta.log_end, |recovery| recovery.end));
        // Also where nobody archives this time: who opens it with its archive the next time finds what that lacks.
        let holds = meta.archived;
        let (log, unarchived) = match log {
            Some(log) => {
                let kept = holds.then(|| log.oldest_kept()).transpose()?;
                let unarchived = kept.map(|kept| log.hold_from(kept.max(archived.unwrap_or_default())));
                // A closed file is complete without its log, and stays so where there is no room for that.
                log.make_room_to_start().map_err(|error| no_room_to_open(path, meta.segment_size, error))?;
                meta.write_both(&*file)?;
                log.start_writing(meta.incarnation)?;
                (log, unarchived)
            }
            None => {
                let log = begin_log(engine, &folder, &log_options, &mut meta, &*file)
                    .map_err(|error| no_room_to_open(path, log_options.segment_size, error))?;
                let unarchived = holds.then(|| log.hold_from(meta.log_end));
                (log, unarchived)
            }
        };
        let report = RestartReport {
            crashed,
            healed_pages: healed.pages.len() as u64,
            damaged_pages: healed.unreadable,
            ..RestartReport::default()
        };
        let opened = Opened {
            file,
            ring,
            meta,
            log,
            recovery,
            begun,
            report,
            lock,
            log_room,
            unarchived,
            was_archived,
        };
        Self::assemble(engine, path, options, opened, false)
    }

    /// What the log says. A log that has lost something is named with the way out.
    fn recover(
        engine: &Engine,
        files: &LogFiles,
        options: &LogOptions,
        meta: &Meta,
        open: &OpenOptions,
        archived: Option<Lsn>,
    ) -> Result<(Recovery, Log)> {
        let salvage = open.salvage;
        let holds = meta.archived || open.archive.is_some();
        let held_from = holds.then(|| archived.unwrap_or_default());
        let recover = |salvages| {
            let (redo_from, homes_from) = (meta.redo_from, meta.homes_from);
            let known = Known { redo_from, homes_from, incarnation: meta.incarnation, held_from, salvages };
            Log::recover(files, options, &known, engine.budget())
        };
        match recover(salvage) {
            Err(Error::Damaged(what)) if !salvage && recover(true).is_ok() => Err(Error::Damaged(format!(
                "{what}; restore a backup, or salvage what is left for reading (`gannet sql --salvage`)"
            ))),
            result => result,
        }
    }

    /// The double-write ring, unless the device makes writes of a page whole by itself, and the file was never on one that does not.
    pub(super) fn open_ring(
        disk: &dyn Disk,
        data: &dyn File,
        folder: &Path,
        page_size: usize,
        options: &OpenOptions,
    ) -> Result<Option<Arc<dyn File>>> {
        let path = folder.join(RING);
        let exists = disk.exists(&path)?;
        if data.atomic_writes().have(page_size) && !exists {
            return Ok(None);
        }
        let mut open = gannet_io::OpenOptions::read_write().mode(options.mode);
        open.create = true;
        let ring = disk.open(&path, &open)?;
        let wanted = ring::ring_bytes(page_size);
        if ring.len()? < wanted {
            ring.allocate(0, wanted)?;
            ring.sync(Class::Foreground)?;
            disk.sync_dir(folder)?;
        }
        Ok(Some(ring))
    }

    pub(super) fn assemble(
        engine: &Engine,
        path: &Path,
        options: &OpenOptions,
        opened: Opened,
        new: bool,
    ) -> Result<Self> {
        let Opened {
            file,
            ring,
            meta,
            log,
            recovery,
            begun,
            report,
            lock,
            log_room,
            unarchived,
            was_archived,
        } = opened;
        let disk = engine.disk();
        let pool = engine.pool(meta.page_size)?;
        let queues = (0..READ_QUEUES + BACKGROUND_QUEUES)
            .map(|_| disk.queue(QUEUE_DEPTH))
            .collect::<gannet_io::Result<Vec<_>>>()?;
        let volume = pool.attach(Volume::new(Arc::clone(&file), meta.database_id, queues))?;
        volume.set_log(&log);
        let guard = Detach { pool: &pool, volume: Some(&volume) };
        let (table, aftermath) = match recovery {
            Some(Recovery { redo, end, highest_txn, open_transactions, .. }) => {
                (Some(redo), Aftermath { end, highest_txn, losers: open_transactions })
            }
            None => (None, Aftermath::default()),
        };
        let redo = page_redo(&log, table, engine, !options.salvage)?;
        volume.set_redo(redo.clone().map(|redo| redo as _));
        let capacity = file.len()? / meta.page_size as u64;
        let (groups, unreadable) = count_groups(&*file, &meta, redo.as_deref(), capacity);
        let log_options = log_options(engine, &meta, options);
        let core = Arc::new(Core::new(
            Arc::clone(&pool),
            Arc::clone(&volume),
            log.clone(),
            Space::new(meta.page_size, capacity, if new { 0 } else { groups }),
            engine.budget().clone(),
            &log_options,
            wal_limit(meta.segment_size, options),
        ));
        core.space.set_cut_at(meta.cut_at);
        if let Some(error) = unreadable {
            core.set_read_only(format!("what may be a space map cannot be read: {error}"));
        }
        if meta.archived {
            core.whole_log.require();
        }
        if options.salvage {
            let lost = report.lost.as_deref().unwrap_or("nothing of its log is lost");
            core.set_read_only(format!("it is being salvaged ({lost})"));
        }
        let floor = redo.as_ref().map(|_| meta.redo_from);
        if floor.is_some() {
            core.backlog.begin(meta.redo_from, log.end(), core.wal_limit);
        }
        let real_path = disk.resolve(path)?;
        let in_folder = |name| wal_folder(&real_path).join(name);
        let changes = Changes::new(disk, in_folder(CHANGES), options.mode, meta.database_id, &log);
        let changes = Arc::new(changes);
        let (keeper, writer) = Self::start_writer(&core, &**disk, &file, ring, &meta, floor, &changes)?;
        volume.set_writer(Some(Arc::clone(&writer) as _));
        Self::begin_space(&core, &keeper, &meta, new)?;
        let attachment = Attachment {
            pool: Arc::clone(&pool),
            volume: Arc::clone(&volume),
            _lock: lock,
            _log_room: log_room.charged(),
        };
        // From here on that takes the volume out of the pool. Twice would be once too often: the slot may be another database's.
        std::mem::forget(guard);
        let restart = Arc::new(Restart::new(redo.clone(), meta.page_size));
        let hot_pages = HotPages::new(disk, in_folder(HOT), options.mode);
        let holders = Holders::new(options.snapshot_limit);
        let archive = options.archive.as_deref().zip(unarchived.as_ref());
        let status =
            |(folder, hold): (&Path, &LogHold)| archive::Status::new(folder, hold.from(), was_archived);
        let archive = archive.map(|of| Arc::new(status(of)));
        let parts = Parts { restart, hot_pages, changes, attachment, holders, archive };
        let shared = Self::share(engine, &core, &meta, &writer, aftermath.highest_txn, parts)?;
        let mut database = Database {
            engine: engine.clone(),
            path: path.to_owned(),
            real_path,
            shared,
            pool: Arc::clone(&pool),
            volume: Arc::clone(&volume),
            keeper,
            threads: Vec::new(),
            archiver: None,
            archive_at_end: None,
            _unarchived: None,
            flusher: None,
            options: options.clone(),
            next_session: AtomicU64::new(1),
            jobs: engine.jobs(),
            seen: Seen::default(),
            is_noted: AtomicBool::new(false),
            started: false,
            closed: false,
        };
        database.start(redo, &aftermath, begun, report)?;
        database.start_archive(unarchived)?;
        Ok(database)
    }

    /// What writes pages home and moves the checkpoint.
    fn start_writer(
        core: &Arc<Core>,
        disk: &dyn Disk,
        file: &Arc<dyn File>,
        ring: Option<Arc<dyn File>>,
        meta: &Meta,
        floor: Option<Lsn>,
        changes: &Arc<Changes>,
    ) -> Result<(Arc<HeaderKeeper>, Arc<PageWriter>)> {
        let keeper = Arc::new(HeaderKeeper {
            meta: Mutex::new(meta.clone()),
            file: Arc::clone(file),
            log: core.log.clone(),
            groups: core.space.group_count(),
            changes: Arc::clone(changes),
        });
        let queue = disk.queue(QUEUE_DEPTH)?;
        let checkpoint = Arc::clone(&keeper) as _;
        let writer = PageWriter::new(Arc::clone(core), ring, queue, checkpoint, meta.redo_from)?;
        writer.set_floor(floor);
        Ok((keeper, writer))
    }

    /// Begins the space of a new file, and its header with that; or learns of that of a file.
    fn begin_space(core: &Core, keeper: &HeaderKeeper, meta: &Meta, new: bool) -> Result<()> {
        if new {
            create_trees(core, meta)?;
            core.log.flush_to(core.log.end())?;
            let mut meta = keeper.meta.lock();
            // Over the mark, too: from now on the database is somebody's.
            return meta.write_both(&*keeper.file);
        }
        // The last group says where the used part of the file ends, behind which space is kept for rollbacks.
        match core.space.learn_end(core, meta.groups) {
            Err(error @ (Error::Damaged(_) | Error::NeverWritten(_) | Error::Io(_))) => {
                core.set_read_only(format!("a space map is damaged: {error}"));
                return Ok(());
            }
            other => other?,
        }
        // What is free there would be given out without the file growing for it (`space`, invariant 2).
        if let Some((needed, pages)) = core.space.cut_short() {
            let map = space::map_page(core.space.groups() - 1, meta.page_size);
            core.set_read_only(format!(
                "the file is cut off: it has {pages} pages, and its last space map, {map}, says that of {needed} some are in use; restore it from a backup"
            ));
        }
        Ok(())
    }

    fn share(
        engine: &Engine,
        core: &Arc<Core>,
        meta: &Meta,
        writer: &Arc<PageWriter>,
        highest: TxnId,
        parts: Parts,
    ) -> Result<Arc<Shared>> {
        let Parts { restart, hot_pages, changes, attachment, holders, archive } = parts;
        let next_txn = TxnId((highest.0 + 1).max(meta.next_txn).max(1));
        let registry = Registry::new(next_txn, core.log.end().0, engine.budget())?;
        let waiting = Arc::clone(&registry);
        core.poison.on_set(move || waiting.waits().close());
        let waiting = Arc::clone(&registry);
        core.on_read_only(move || waiting.waits().strand());
        static OPENINGS: AtomicU64 = AtomicU64::new(0);
        let opening = OPENINGS.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Shared {
            opening,
            core: Arc::clone(core),
            registry,
            locks: LockTable::new(engine.budget(), engine.budget().limit() / 32),
            catalog: Arc::new(TreeRoot::new(CATALOG, meta.roots[0], b"catalog", opening)),
            status: TreeRoot::new(STATUS, meta.roots[1], b"status", opening),
            undo_directory: TreeRoot::new(UNDO_DIRECTORY, meta.roots[2], b"undo directory", opening),
            streams: Mutex::new(Streams::default()),
            writer: Arc::clone(writer),
            trees: Mutex::new(BTreeMap::new()),
            next_tree: Mutex::new(FIRST_USER_TREE),
            stopping: Mutex::new(false),
            background: Condvar::new(),
            attachment,
            sweeping: Turn::default(),
            holders,
            notes: Notes::default(),
            users: Arc::clone(engine.users()),
            layout: Layout::default(),
            compacting: Mutex::new(()),
            moved_values: Mutex::new(None),
            segments_swept: AtomicU64::new(0),
            undone_or_swept: AtomicU64::new(0),
            first_txn: next_txn,
            restart,
            hot_pages,
            changes,
            archive,
        }))
    }
}

/// The folder of a database to be opened: where it was made for a lock alone, a refusal takes it away again.
struct NewFolder<'a> {
    disk: &'a dyn Disk,
    folder: &'a Path,
    is_new: bool,
}

impl Drop for NewFolder<'_> {
    fn drop(&mut self) {
        if !self.is_new {
            return;
        }
        // Whoever makes it meanwhile has its lock, and ours is gone: that one's file stays.
        if let Ok(lock) = self.disk.lock(&self.folder.join(LOCK)) {
            let _ = self.disk.remove(&self.folder.join(LOCK));
            drop(lock);
        }
        let _ = self.disk.remove_dir(self.folder);
    }
}

/// Takes the lock and reads the header. It is looked at before anything is made: a foreign file stays without company.
pub(super) fn lock_header(
    disk: &dyn Disk,
    file: &dyn File,
    path: &Path,
    folder: &Path,
) -> Result<(Meta, FileLock)> {
    let first = Meta::read(file);
    // No header: perhaps not yet, if somebody is creating the database. That one has a lock then.
    let had_folder = disk.exists(folder)?;
    if first.is_err() && !had_folder {
        return Err(first.expect_err("looked at above"));
    }
    // Without a folder nobody has the file open by this name. Who has it by another one is learned before a folder is made.
    let early = if had_folder { None } else { Some(take_file_lock(file, path)?) };
    disk.create_dir(folder)?;
    let lock = match (take_lock(disk, path, folder), &first) {
        (Ok(lock), _) => lock,
        (Err(error @ Error::InUse(_)), _) | (Err(error), Ok(_)) => return Err(error),
        (Err(_), Err(_)) => return Err(first.expect_err("looked at above")),
    };
    // The folder's lock comes first where there is one: it says best who holds it.
    let own = early.map_or_else(|| take_file_lock(file, path), Ok)?;
    let lock = Arc::new((own, lock)) as FileLock;
    // Now nobody else changes it.
    let meta = Meta::read(file).or(first)?;
    Ok((meta, lock))
}

/// The log of the database's last life, if it is in `folder`. A file that was not closed needs it. One that was closed
/// under another name since the log here was written does not, and the log goes: it ends before the file's last life.
fn find_log(
    disk: &Arc<dyn Disk>,
    file: &dyn File,
    folder: &Path,
    options: &LogOptions,
    meta: &Meta,
) -> Result<Option<LogFiles>> {
    let path = file.path();
    let files = LogFiles::find(disk, folder, options, meta.redo_from)?;
    let newest = files.as_ref().map(LogFiles::newest_segment).transpose()?.flatten();
    if let Some(files) = &files {
        refuse_foreign(files, folder, newest.is_some())?;
    }
    if !meta.clean {
        // The segment that redo begins in has been entered, unless redo begins where the one before it ends.
        let needed = meta.redo_from.0.div_ceil(options.segment_size).saturating_sub(1);
        if newest.is_none_or(|(number, _)| number < needed) {
            if meta.is_lone(file) {
                return Err(Error::Damaged(format!(
                    "page {} of {path:?}, one of two copies of the header, is damaged; as the other one says, which \
                     may be the older, the file was not closed, and its log in {folder:?} is gone: put the folder \
                     back, or restore a backup",
                    meta.copy_page(1).0
                )));
            }
            return Err(Error::Damaged(format!(
                "{path:?} was not closed, and its log in {folder:?} is gone: put the folder back, or restore a \
                 backup; {OTHER_NAME}"
            )));
        }
        return Ok(files);
    }
    let Some((number, incarnation)) = newest else { return Ok(None) };
    let last = meta.log_end.0.div_ceil(options.segment_size).saturating_sub(1);
    // Each life has an incarnation of its own, so a log of the same one is that of another copy.
    if number < last && incarnation < meta.incarnation {
        Log::remove_all(disk, folder)?;
        return Ok(None);
    }
    Ok(files)
}

/// Refuses the log of another database, before anything is written: segments of it would be taken for unused ones. Segments
/// without a valid header, and old ones of this database, may be reused.
fn refuse_foreign(files: &LogFiles, folder: &Path, has_own: bool) -> Result<()> {
    match &files.foreign_segments()?[..] {
        [] => Ok(()),
        _ if !has_own => Err(log_of_another(folder)),
        foreign => Err(Error::Invalid(format!(
            "{folder:?} holds segments of the log of another database: move them away, but nothing else: {foreign:?}"
        ))),
    }
}

/// Refuses a log that a closed file was not closed with: that of another copy of it. Nothing is written before, so the file
/// stays closed. Its own log has not been touched since, as the header is marked as open before that, durably; but for a
/// log that was begun for it and never used (`begin_log`).
fn check_fit(path: &Path, folder: &Path, meta: &Meta, recovery: &Recovery) -> Result<()> {
    let own = recovery.end == meta.log_end && meta.log_crc.is_none_or(|crc| crc == recovery.last_crc);
    let unused = meta.log_crc.is_none() && recovery.highest_txn == TxnId(0) && recovery.redo.is_empty();
    if !meta.clean || own || unused {
        return Ok(());
    }
    Err(Error::Damaged(format!("the log in {folder:?} is not the one that {path:?} was closed with")))
}

/// Refuses an archive that has more of the log than there is. It gets nothing that was not durable before, so the database was put back since, to how it was
/// earlier in the same life, which its header does not tell.
fn check_reach(path: &Path, archive: &Path, reach: archive::Reach, log_end: Lsn) -> Result<()> {
    if reach.end <= log_end {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{archive:?} holds the archive of what this database was later: its log goes up to lsn {}, and that of {path:?} to lsn {log_end}: the database was put \
         back to an earlier state. Restore it from a backup with this archive, or, to go on from here, take another folder, and a full backup",
        reach.end
    )))
}

/// What a log that cannot be used may be, as far as the file's header tells.
fn explained(error: Error, files: &LogFiles, file: &dyn File, options: &LogOptions, meta: &Meta) -> Error {
    let Error::Damaged(mut text) = error else { return error };
    let first = meta.redo_from.0 / options.segment_size;
    // Nothing of it is of the segment that redo begins in.
    if files.newest_segment().is_ok_and(|newest| newest.is_some_and(|(n, _)| n < first)) {
        text = format!("{text}; {OTHER_NAME}");
    }
    if meta.is_lone(file) {
        text += "; of the two copies of the file's header only this one is whole, and the other may have been the newer";
    } else if meta.clean {
        text += "; the file was closed and is complete as it is: move the log away to open it, or put back the copy of the \
                 file that the log belongs to";
    }
    Error::Damaged(text)
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

/// What is missing, and the way out.
fn no_room_to_open(path: &Path, segment_size: u64, error: Error) -> Error {
    match error {
        Error::NoSpace(what) => Error::NoSpace(format!(
            "{what}; opening {path:?} needs room for a log segment, {}: make room, or take the file with its log elsewhere",
            format_size(segment_size)
        )),
        other => other,
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
    meta.log_crc = None;
    meta.clean = true;
    meta.write(file)?;
    let log = Log::create(engine.disk(), folder, options, meta.log_end, meta.incarnation, engine.budget())?;
    log.append_note(b"begin")?;
    log.flush_to(log.end())?;
    meta.clean = false;
    meta.write_both(file)?;
    Ok(log)
}

/// Number of groups with a space map: those the header knows, and those that were added since, or let go of and not cut off
/// ([`Space::learn_end`]).
fn count_groups(
    file: &dyn File,
    meta: &Meta,
    redo: Option<&PageRedo>,
    capacity: u64,
) -> (u64, Option<gannet_io::Error>) {
    let mut groups = meta.groups;
    let mut page = gannet_io::AlignedBuffer::zeroed(meta.page_size);
    loop {
        let id = space::map_page(groups, meta.page_size);
        if redo.is_some_and(|redo| redo.knows(id)) {
            groups += 1;
            continue;
        }
        if id.0 >= capacity {
            return (groups, None);
        }
        if let Err(error) = file.read_at(Class::Foreground, id.0 * meta.page_size as u64, &mut page) {
            return (groups, Some(error));
        }
        // A damaged map is a map: taken for the end of the file, another would be written over what follows it.
        if page::verify(&page, id, meta.database_id) == page::Verdict::NeverWritten {
            return (groups, None);
        }
        groups += 1;
    }
}
