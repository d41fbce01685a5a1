//! The engine: what all databases of a process share.

use crate::archive::{self, ArchiveVerifyReport, Extension, RecoveryTarget};
use crate::backup::{self, Ask, Reception, RestoreReport, Source, Taken, VerifyReport};
use crate::database::Database;
use crate::jobs::{Jobs, Pace, Pacer, Users, Watch};
use crate::page::PAGE_SIZES;
use crate::pool::{MIN_FRAMES, Pool};
use crate::temp::{TempFile, TempSpace, TempStats};
use crate::transaction::Canceller;
use crate::turns::Turn;
use crate::work::{Lender, Room, WorkMemory, left_for_others};
use crate::{Error, Result};
use gannet_base::memory::{Budget, Purpose};
use gannet_base::units::format_size;
use gannet_io::{DemotedDisk, Disk, ModeRequest, RealDisk, RealOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Part of the budget that is not given to page frames at first: what is left for those who cannot ask them ([`left_for_others`]), but 1/8 as
/// long as that is no more than [`OTHER_ENOUGH`], what a process has besides included, and at least this many bytes. Who needs more has frames
/// make room.
const OTHER_MIN: u64 = 6 << 20;
const OTHER_ENOUGH: u64 = 10 << 20;
/// Smallest budget an engine works with, in bytes.
pub(crate) const MIN_MEMORY: u64 = 8 << 20;

/// Pages of the smallest pool that a database works with.
const LEAST_PAGES: u64 = 128;
/// What a restart takes beside pages and log, in bytes.
const RESTART_MIN: u64 = 2 << 20;

/// How an engine is set up.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The one memory number, in bytes: page frames, log buffers, I/O buffers, transactions and running operations of
    /// all databases together. Default 256 MiB, at least what [`CreateOptions::least_memory`] says of each database: with
    /// the default sizes 25 MiB, never less than 8 MiB; at most what the machine, or the process's control group, has.
    pub memory: u64,
    /// Where temporary files go: what sorts and hash tables have no memory for. Default: the system's folder for such
    /// files, which on many machines is kept in memory and then is a bad place for this.
    pub temp_folder: Option<PathBuf>,
}

impl EngineOptions {
    /// Refuses a budget beyond what the machine, or the process's control group, has of memory. [`Engine::new`] does so.
    pub fn check_machine(&self) -> Result<()> {
        let memory = gannet_io::Memory::of_this_machine();
        let Some(limit) = memory.limit().filter(|limit| self.memory > *limit) else { return Ok(()) };
        let whose = if memory.total == Some(limit) { "this machine" } else { "this process's control group" };
        Err(Error::Invalid(format!(
            "a memory budget of {} is more than the {} of {whose}: give less",
            format_size(self.memory),
            format_size(limit)
        )))
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions { memory: 256 << 20, temp_folder: None }
    }
}

/// How a database is created. What is set here stays with the file.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Bytes of a page: 4096, 8192, 16384 or 32768. Default 8192.
    pub page_size: usize,
    /// Bytes of a log segment: a power of two, at least 64 pages. Default 16 MiB.
    pub segment_size: u64,
}

impl CreateOptions {
    /// For a database that is to be opened with a memory budget of so many bytes. The log keeps half a segment in memory, or more: below 256 MiB
    /// segments are shorter, between a thirty-second and a sixteenth of the budget, but for 64 pages and 1 MiB.
    pub fn for_memory(memory: u64, page_size: usize) -> Self {
        let affordable = (memory / 32 + 1).next_power_of_two();
        let segment_size = CreateOptions::default().segment_size.min(affordable);
        let pages = (page_size as u64).saturating_mul(64);
        CreateOptions { page_size, segment_size: segment_size.max(pages).max(1 << 20) }
    }

    /// The smallest memory budget, in bytes, that such a database works with: to open it after a crash, a log segment has to
    /// be read as a whole. Less is refused when it is created or opened.
    pub fn least_memory(&self) -> u64 {
        // Beside pages for a start: working memory, or what restart needs. The pages to be redone are listed in up to 3/8
        // of a segment's size, that is 1/10 of the log that such a small pool lets grow.
        let pages = LEAST_PAGES * self.page_size as u64;
        let restart = RESTART_MIN + self.segment_size + self.segment_size * 3 / 8;
        MIN_MEMORY.max(pages + OTHER_MIN.max(restart))
    }

    /// Refuses a budget that is too small.
    pub(crate) fn check_memory(&self, limit: u64) -> Result<()> {
        let least = self.least_memory();
        if limit >= least {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "a memory budget of {} is too small for a database with pages of {} and log segments of {}: give at least {}",
            format_size(limit),
            format_size(self.page_size as u64),
            format_size(self.segment_size),
            format_size(least)
        )))
    }
}

impl Default for CreateOptions {
    fn default() -> Self {
        CreateOptions { page_size: 8192, segment_size: 16 << 20 }
    }
}

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bytes of log that redo may have to go through after a crash. Default 1 GiB, at least four segments.
    pub wal_limit: u64,
    /// How the files are opened.
    pub mode: ModeRequest,
    /// The longest an asynchronous commit stays undurable. Default 200 ms.
    pub max_delay: Duration,
    /// How long a shutdown writes pages before it leaves the rest to the next start. Default 10 s.
    pub shutdown_limit: Duration,
    /// Open for reading what a damaged log leaves: the database as it was where the log breaks off, without the pages that
    /// are newer. Nothing is written to its files. Default false: then a log that has lost committed work keeps the
    /// database from opening.
    pub salvage: bool,
    /// Read the pages back that were in memory when the database was closed. Default true; who opens it for a short while, for one
    /// piece of work, has no use for them, and leaves the list of them as it was.
    pub warm: bool,
    /// Remove garbage in the background. Default true; who opens it for a short while, for one piece of work, may leave that to others.
    pub sweep: bool,
    /// How long a snapshot, or a transaction that has written, may hold garbage back before it is ended, where the transaction does not say.
    /// Default none. It is looked for twice a second. Who is ended fails with [`Error::TooOld`] at its next step; what it holds is free when
    /// it has rolled back.
    pub snapshot_limit: Option<Duration>,
    /// A folder that the log is copied into as it becomes durable, so that backups can be restored to any moment: of this database alone,
    /// made where its parent is there. Default none. Who opens the database without it leaves what is written meanwhile to the next who
    /// opens it with it, as far as the log is kept.
    pub archive: Option<PathBuf>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            wal_limit: 1 << 30,
            mode: ModeRequest::Auto,
            max_delay: Duration::from_millis(200),
            shutdown_limit: Duration::from_secs(10),
            salvage: false,
            warm: true,
            sweep: true,
            snapshot_limit: None,
            archive: None,
        }
    }
}

/// Process-wide resources: the memory budget, the page frames, the device layer. Several databases share one engine.
/// Clones are handles to the same engine.
///
/// ```
/// use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// let engine = Engine::new(&EngineOptions::default())?;
/// let path = folder.path().join("data.gnt");
/// let db = engine.create(&path, &CreateOptions::default(), &OpenOptions::default())?;
/// assert!(engine.budget().used() <= engine.budget().limit());
/// db.close()?;
/// let db = engine.open(&path, &OpenOptions::default())?;
/// # db.close()?;
/// # Ok::<(), gannet_store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    disk: Arc<dyn Disk>,
    lender: Lender,
    temp: Arc<TempSpace>,
    users: Arc<Users>,
    pacer: Arc<Pacer>,
    /// What it has of another engine's memory.
    _lent: Option<Arc<WorkMemory>>,
}

/// Part of the budget that an engine beside has.
const BESIDE_SHARE: u64 = 8;

impl Engine {
    /// An engine on the real file system. A budget beyond what the machine, or the process's control group, has is refused.
    pub fn new(options: &EngineOptions) -> Result<Self> {
        options.check_machine()?;
        Self::with_disk(Arc::new(RealDisk::new(RealOptions::default())), options)
    }

    /// An engine on any disk: simulated, throttled, or the real one with options of its own.
    pub fn with_disk(disk: Arc<dyn Disk>, options: &EngineOptions) -> Result<Self> {
        if options.memory < MIN_MEMORY {
            return Err(Error::Invalid(format!(
                "a memory budget of {} is too small: give at least {}",
                format_size(options.memory),
                format_size(MIN_MEMORY)
            )));
        }
        let lender = Lender::new(Budget::new(options.memory));
        let folder = options.temp_folder.clone().unwrap_or_else(std::env::temp_dir);
        let temp = TempSpace::new(&disk, folder, &lender);
        let users = Arc::default();
        let pacer = Pacer::new(&disk, &users);
        Ok(Engine { disk, lender, temp, users, pacer, _lent: None })
    }

    /// An engine for a database that a job of this one makes beside its users. Of this one's budget it has an eighth, or what such a database needs at least,
    /// and frames of its own in it, until it goes with its last handle: so nobody's pages have to make room for what is made. What it asks of the device is
    /// maintenance, and its jobs are paced with this one's.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a database that was created so needs more than half of the budget.
    pub(crate) fn beside(&self, made: &CreateOptions) -> Result<Engine> {
        let (limit, least) = (self.budget().limit(), made.least_memory());
        if least > limit / 2 {
            return Err(Error::Invalid(format!(
                "a database with pages of {} and log segments of {} takes {} to be made beside others, and the memory budget of {} has half of it for that",
                format_size(made.page_size as u64),
                format_size(made.segment_size),
                format_size(least),
                format_size(limit)
            )));
        }
        let memory = least.max(limit / BESIDE_SHARE);
        let lent = Some(Arc::new(self.memory(Purpose::Work, memory)?));
        Ok(Engine {
            disk: Arc::new(DemotedDisk::new(Arc::clone(&self.disk))),
            lender: Lender::new(Budget::new(memory)),
            temp: Arc::clone(&self.temp),
            users: Arc::clone(&self.users),
            pacer: Arc::clone(&self.pacer),
            _lent: lent,
        })
    }

    /// The memory budget: its limit, what is used, and for what.
    pub fn budget(&self) -> &Budget {
        &self.lender.budget
    }

    /// The device layer, with its counters.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Memory for a running operation (a sort, a hash table), charged to the budget until dropped. Page frames make
    /// room where the budget has none, and get it back afterwards.
    pub fn work_memory(&self, bytes: u64) -> Result<WorkMemory> {
        self.lender.work_memory(bytes, true)
    }

    /// Memory for something that stays, such as a session, charged to the budget until dropped. Page frames make room where
    /// the budget has none; operations need not be content with less because of it, see [`Engine::work_limit`].
    pub fn memory(&self, purpose: Purpose, bytes: u64) -> Result<WorkMemory> {
        self.lender.memory(purpose, bytes)
    }

    /// Bytes that an operation should be content with before it spills: its [`Engine::work_share`], and where it is alone, half of the
    /// frames that have no page besides, an eighth of the budget at most. It falls as others begin and rises as they end, so who
    /// grows in steps asks before each.
    pub fn work_limit(&self) -> u64 {
        self.lender.work_limit()
    }

    /// What of [`Engine::work_limit`] does not depend on how full the frames are: a quarter of the budget, shared equally by those who hold
    /// [`WorkMemory`] now, but at least 1 MiB.
    pub fn work_share(&self) -> u64 {
        self.lender.work_share()
    }

    /// A turn to take much memory, about `bytes` or less: no more operations have one than the budget has decent shares for. Where it
    /// `waits`, it does so in line until some of them end, or `give_up` says so: then there is none. Whose transaction changes or locks
    /// rows is to give up soon and not to wait then, as others may wait for it; while that `transaction` waits for a row, the turn does not
    /// count.
    pub fn turn(
        &self,
        bytes: u64,
        waits: bool,
        transaction: Option<Canceller>,
        give_up: impl FnMut() -> bool,
    ) -> Option<Turn> {
        self.lender.turns.take(self.lender.budget.limit(), bytes, waits, transaction, give_up)
    }

    /// A new temporary file in [`EngineOptions::temp_folder`].
    pub fn temp_file(&self) -> Result<TempFile> {
        self.temp_file_within(u64::MAX)
    }

    /// The same for who may take so many bytes, if that is less than [`Engine::work_limit`]: its blocks are smaller then.
    pub fn temp_file_within(&self, bytes: u64) -> Result<TempFile> {
        self.temp.create(bytes)
    }

    /// Bytes of a block of a temporary file that somebody makes now who may take so many: a reader or writer has three at most.
    pub fn temp_block_bytes(&self, within: u64) -> u64 {
        self.temp.block_bytes(within)
    }

    /// A place for jobs: those of a database have one of their own ([`Database::jobs`]).
    pub fn jobs(&self) -> Jobs {
        Jobs::new(&self.disk, &self.pacer)
    }

    /// Said when a statement of a user begins; where jobs want to know of it, they are to be told of its end with what this gives, by the same thread
    /// ([`Engine::statement_ends`]). What users feel of jobs depends on which part of their statements is the device's. Who uses the
    /// store without statements need not say anything: then that is all.
    #[inline]
    pub fn statement_begins(&self) -> Option<Duration> {
        self.users.statement_begins()
    }

    /// A statement of a user has ended, for whose beginning [`Engine::statement_begins`] gave this.
    pub fn statement_ends(&self, began: Duration) {
        self.users.statement_ends(began);
    }

    pub(crate) fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// How jobs are paced from now on that do not say. A job's threads have processors by what holds when it begins.
    pub fn set_job_pace(&self, pace: Pace) {
        self.pacer.set_pace(pace);
    }

    /// Whether long sweeps may begin by themselves from now on, which they may by default; short ones, those for somebody who finds no
    /// room, and those of a database of which more than a tenth is garbage always may.
    pub fn allow_long_sweeps(&self, allowed: bool) {
        self.pacer.allow_long_sweeps(allowed);
    }

    /// Figures of the temporary files since the engine's start.
    pub fn temp_stats(&self) -> TempStats {
        self.temp.stats()
    }

    /// See [`Lender::make_room`].
    pub(crate) fn make_room(&self, bytes: u64) -> Result<Room> {
        self.lender.make_room(bytes)
    }

    /// See [`Lender::take_back`].
    pub(crate) fn take_back(&self) {
        self.lender.take_back();
    }

    /// See [`Lender::tend_room`].
    pub(crate) fn tend_room(&self) -> Result<()> {
        self.lender.tend_room()
    }

    /// Whether [`Engine::create`] can make a database at `path`, as far as what is there goes: nothing, or what a creation has
    /// left that was interrupted before anybody could use the database.
    pub fn is_missing(&self, path: &Path) -> Result<bool> {
        Database::is_missing(self.disk(), path)
    }

    /// Whether the file of a database that nobody has open is complete by itself: it was closed, and everything was written to it in time. Else
    /// its log is a part of it.
    pub fn is_whole(&self, path: &Path) -> Result<bool> {
        let file = self.disk().open(path, &gannet_io::OpenOptions::read())?;
        Ok(crate::meta::Meta::read(&*file)?.clean)
    }

    /// Makes sure that a database can get this name: removes what an interrupted creation has left there.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there is something else: a database, another file, a symbolic link, or the log of a database.
    pub fn clear_name(&self, path: &Path) -> Result<()> {
        Database::clear_name(self.disk(), path)
    }

    /// Gives a database that is closed another name, on the same file system. Its folder goes: a closed database needs nothing of it. So do, with
    /// that, a list of changed pages that incremental backups use, without which the next one reads all pages, and log that was not archived yet.
    ///
    /// # Errors
    /// [`Error::InUse`] where somebody has it open, [`Error::Invalid`] where it was not closed in good order, where the new name is not
    /// free ([`Engine::clear_name`]), and where its folder has files of others.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        Database::rename(self.disk(), from, to)
    }

    /// Removes a database that nobody has open, or what an interrupted creation has left, with its folder.
    ///
    /// # Errors
    /// [`Error::InUse`] where somebody has it open; where it is no database, what opening it says; [`Error::Invalid`] where its folder
    /// has files of others.
    pub fn remove(&self, path: &Path) -> Result<()> {
        Database::remove(self.disk(), path)
    }

    /// Creates a database, where [`Engine::is_missing`]. Its log lies beside it, in a folder with `-wal` appended.
    pub fn create(&self, path: &Path, create: &CreateOptions, open: &OpenOptions) -> Result<Database> {
        Database::create(self, path, create, open)
    }

    /// Restores a database from backups to `path`, where there must be none, as a part of a job; then opens and closes it.
    ///
    /// # Errors
    /// [`Error::Backup`] where the backups cannot be read, do not follow each other, or have no room; what was written is gone then, or is
    /// recognised as an interrupted creation.
    pub fn restore(
        &self,
        source: Source,
        path: &Path,
        options: &OpenOptions,
        watch: &mut Watch<'_>,
    ) -> Result<RestoreReport> {
        backup::restore(self, source, path, options, None, watch)
    }

    /// The same, and goes on with the log of the archive in `folder` up to the target. Where there is no way there, nothing is written.
    ///
    /// # Errors
    /// As [`Engine::restore`], and [`Error::Backup`] where the target is not within reach: what is, is said.
    pub fn restore_to(
        &self,
        source: Source,
        (folder, target): (&Path, RecoveryTarget),
        path: &Path,
        options: &OpenOptions,
        watch: &mut Watch<'_>,
    ) -> Result<RestoreReport> {
        let archive = Extension { folder: folder.to_owned(), target };
        backup::restore(self, source, path, options, Some(&archive), watch)
    }

    /// The same as both, as a job of a database that others use: within an eighth of the budget, where the new database needs no more, and paced.
    ///
    /// # Errors
    /// As these; and where the database needs more than half of the budget, or the source is a stream, of which that is not known.
    pub fn restore_beside(
        &self,
        source: Source,
        archive: Option<(&Path, RecoveryTarget)>,
        path: &Path,
        options: &OpenOptions,
        watch: &mut Watch<'_>,
    ) -> Result<RestoreReport> {
        let made = source.made().ok_or_else(|| {
            Error::Invalid("a stream is restored by a process of its own, and not beside others".to_owned())
        })?;
        let archive = archive.map(|(folder, target)| Extension { folder: folder.to_owned(), target });
        backup::restore(&self.beside(&made)?, source, path, options, archive.as_ref(), watch)
    }

    /// Takes in a backup that is taken elsewhere, as a part of a job, and puts it among those that are there already: each frame is verified as
    /// it comes. `ask` is told which backup it is to add to, if to any, and gives what [`Destination::Stream`](crate::Destination) gets there.
    ///
    /// # Errors
    /// As [`Database::backup_into`], and [`Error::Backup`] where what comes is cut off, damaged, or another backup than was asked for.
    pub fn receive_backup(
        &self,
        reception: &Reception,
        ask: Ask<'_>,
        watch: &mut Watch<'_>,
    ) -> Result<Taken> {
        backup::receive(self, reception, ask, watch)
    }

    /// Proves an archive without restoring it, as a part of a job; says what it holds.
    ///
    /// # Errors
    /// [`Error::Backup`] says what is wrong.
    pub fn verify_archive(
        &self,
        folder: &Path,
        mode: ModeRequest,
        watch: &mut Watch<'_>,
    ) -> Result<ArchiveVerifyReport> {
        archive::verify(self, folder, mode, watch)
    }

    /// Proves backups without restoring them, as a part of a job.
    ///
    /// # Errors
    /// [`Error::Backup`] says what is wrong.
    pub fn verify(&self, source: Source, mode: ModeRequest, watch: &mut Watch<'_>) -> Result<VerifyReport> {
        backup::verify(self, source, mode, watch)
    }

    /// Opens a database, after a crash bringing it up to date.
    pub fn open(&self, path: &Path, options: &OpenOptions) -> Result<Database> {
        Database::open(self, path, options)
    }

    /// The page frames of a page size. The first pool gets all memory meant for pages; one for another page size is
    /// made with half of what the others have.
    pub(crate) fn pool(&self, page_size: usize) -> Result<Arc<Pool>> {
        check_page_size(page_size)?;
        let mut pools = self.lender.pools.lock();
        if let Some(pool) = pools.iter().find(|pool| pool.page_size() == page_size) {
            return Ok(Arc::clone(pool));
        }
        let limit = self.lender.budget.limit();
        let others = left_for_others(&self.lender.budget);
        let others = others.max(OTHER_ENOUGH.min(limit / 8)).max(OTHER_MIN.min(limit * 3 / 4));
        let share = limit - others;
        let bytes = if pools.is_empty() { share } else { share / (pools.len() as u64 + 1) };
        let frames = Pool::frames_for(bytes, page_size);
        if frames < MIN_FRAMES {
            return Err(Error::Invalid(format!(
                "a memory budget of {} has room for only {frames} pages of {page_size} bytes; at least {MIN_FRAMES} \
                 are needed",
                format_size(limit)
            )));
        }
        for other in pools.iter() {
            other.give_memory(other.active_frames() / (pools.len() + 1))?;
        }
        let made = Pool::new(
            page_size,
            frames.min(Pool::frames_for(share - self.page_memory(&pools), page_size)),
            &self.lender.budget,
        )?;
        pools.push(Arc::clone(&made));
        Ok(made)
    }

    fn page_memory(&self, pools: &[Arc<Pool>]) -> u64 {
        pools.iter().map(|pool| pool.charged_bytes()).sum()
    }
}

pub(crate) fn check_page_size(page_size: usize) -> Result<()> {
    if PAGE_SIZES.contains(&page_size) {
        return Ok(());
    }
    let message = format!("a page size of {page_size} is not possible: choose one of {PAGE_SIZES:?}");
    Err(Error::Invalid(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::memory::Purpose;
    use gannet_io::sim::SimDisk;

    #[test]
    fn a_pool_has_as_many_frames_as_its_memory_has_room_for() {
        for page_size in PAGE_SIZES {
            // One more takes more; where the table doubles, much more.
            for bytes in [1 << 20, (8 << 20) + 1, (150 << 20) - 4097, 3 << 30] {
                let frames = Pool::frames_for(bytes, page_size);
                assert!(Pool::memory(frames, page_size) <= bytes, "{frames} of {page_size} in {bytes}");
                assert!(Pool::memory(frames + 1, page_size) > bytes, "{frames} of {page_size} in {bytes}");
            }
        }
        assert_eq!(Pool::frames_for(100, 4096), 0);
    }

    #[test]
    fn pools_of_several_page_sizes_share_one_budget() {
        let engine = Engine::with_disk(
            Arc::new(SimDisk::new(1)),
            &EngineOptions { memory: 32 << 20, ..EngineOptions::default() },
        )
        .unwrap();
        let first = engine.pool(8192).unwrap();
        let before = first.active_frames();
        let second = engine.pool(32768).unwrap();
        assert!(first.active_frames() <= before / 2 + 1 && second.active_frames() > 200);
        assert!(engine.budget().used_for(Purpose::Pool) <= 28 << 20);
        let used = engine.budget().used_for(Purpose::Pool);
        let work = engine.work_memory(10 << 20).unwrap();
        assert!(work.bytes() == 10 << 20 && engine.budget().used() <= 32 << 20);
        assert!(engine.budget().used_for(Purpose::Pool) < used);
        assert!(engine.work_memory(31 << 20).unwrap_err().to_string().contains("work"));
        drop(work);
        assert_eq!(engine.budget().used_for(Purpose::Pool), used);
    }

    #[test]
    fn room_is_kept_for_whom_it_was_made_until_he_has_charged_it() {
        let options = EngineOptions { memory: 16 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(2)), &options).unwrap();
        let _pool = engine.pool(4096).unwrap();
        let pool = || engine.budget().used_for(Purpose::Pool);
        let frames = pool();
        let room = engine.make_room(6 << 20).unwrap();
        let less = pool();
        assert!(less <= frames - (6 << 20));
        // Something ends meanwhile, and gives frames their memory back.
        drop(engine.work_memory(5 << 20).unwrap());
        assert_eq!(pool(), less);
        let charge = engine.budget().charge(Purpose::Log, 6 << 20).unwrap();
        let room = room.charged();
        drop(engine.work_memory(5 << 20).unwrap());
        assert_eq!(pool(), less, "what it was made for is there");
        drop((charge, room));
        assert_eq!(pool(), frames);
    }
}
