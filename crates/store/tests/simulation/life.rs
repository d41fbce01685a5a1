//! The lives of one database: opened, used, ended in some way or other, opened again.

use crate::backup;
use crate::damage;
use crate::oracle::{Look, Oracle, Place};
use crate::plan::{Plan, Trouble, trace};
use crate::session::{self, Condition, World};
use gannet_base::sim::Generator;
use gannet_base::{clock, sync::Mutex, thread};
use gannet_io::sim::{Faults, SimDisk};
use gannet_io::{Disk, OpenOptions as FileOptions};
use gannet_store::{
    BackupFile, BackupOptions, BackupPlace, Database, Destination, Durability, Engine, Error, Isolation,
    JobKind, JobOrder, OpenOptions, RecoveryTarget, RestartPhase, Source, TransactionOptions, Watch,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) const PATH: &str = "sim.gnt";
const LOG: &str = "sim.gnt-wal";
const OTHERS: &str = "others";
const BACKUPS: &str = "first";
const RESTORED: &str = "restored.gnt";

/// What one seed went through.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) lives: u64,
    pub(crate) crashes: u64,
    pub(crate) crashed_restarts: u64,
    /// Lives whose sessions worked beside a restart.
    pub(crate) beside: u64,
    pub(crate) commits: u64,
    pub(crate) operations: u64,
    pub(crate) observations: u64,
    pub(crate) io: u64,
    pub(crate) redone_pages: u64,
    pub(crate) losers: u64,
    /// Times the data file was seen to have grown, and to have been cut.
    pub(crate) grown: u64,
    pub(crate) cut: u64,
    /// Backups taken; of these, read by the list of changed pages; restored.
    pub(crate) backups: u64,
    pub(crate) backups_by_list: u64,
    pub(crate) backups_restored: u64,
    /// Databases of which bytes went bad, and of these: refused at the start, with pages that could not be read, and left
    /// without a judgement, as nobody could have told.
    pub(crate) damaged: u64,
    pub(crate) refused: u64,
    pub(crate) unreadable: u64,
    pub(crate) unjudged: u64,
    /// Backups brought to the end by an archive, and those that were not, as it lacked something.
    pub(crate) restored: u64,
    pub(crate) not_restored: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, other: &Summary) {
        self.lives += other.lives;
        self.crashes += other.crashes;
        self.crashed_restarts += other.crashed_restarts;
        self.beside += other.beside;
        self.commits += other.commits;
        self.operations += other.operations;
        self.observations += other.observations;
        self.io += other.io;
        self.redone_pages += other.redone_pages;
        self.losers += other.losers;
        self.grown += other.grown;
        self.cut += other.cut;
        self.backups += other.backups;
        self.backups_by_list += other.backups_by_list;
        self.backups_restored += other.backups_restored;
        self.damaged += other.damaged;
        self.refused += other.refused;
        self.unreadable += other.unreadable;
        self.unjudged += other.unjudged;
        self.restored += other.restored;
        self.not_restored += other.not_restored;
    }
}

pub(crate) fn engine(plan: &Plan, disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &plan.engine).expect("the budget is large enough")
}

/// Everything a seed stands for.
pub(crate) fn lives(plan: Plan) -> Summary {
    let mut random = Generator::new(plan.seed);
    let mut summary = Summary::default();
    trace(|| format!("{plan:#?}"));
    let oracle = Arc::new(Mutex::new(Oracle::new()));
    let (mut disk, db) = create(&plan, &mut random, &mut summary);
    let mut next = Some(db);
    for life in 0..plan.epochs {
        let trouble = plan.trouble(&mut random);
        trace(|| format!("life {life}: {trouble:?}"));
        let db = match next.take() {
            Some(db) => db,
            None => {
                disk = reopen_until(&plan, disk, &mut random, &mut summary);
                oracle.lock().restarted();
                open(&plan, &disk, &mut summary)
            }
        };
        let condition = match trouble {
            Trouble::Faults { .. } => Condition::Faulty,
            Trouble::Full(_) => Condition::Full,
            Trouble::None | Trouble::Crash(_) => Condition::Well,
        };
        let world = World::new(&plan, db, &disk, &oracle, condition);
        begin(&world, &mut random, &mut summary);
        if life == 0 {
            fill(&world);
            back_up(&world);
        }
        disk = live(Arc::new(world), &trouble, &mut random, &mut summary);
        summary.lives += 1;
    }
    disk.cancel_crash();
    oracle.lock().restarted();
    match &plan.damage {
        Some(damage) => damage::decline(&plan, damage, disk, &oracle, &mut random, &mut summary),
        None => last(&plan, &disk, &oracle, &mut summary),
    }
    summary.commits = oracle.lock().commits;
    summary.observations = oracle.lock().observations;
    summary
}

/// The end of a database that nothing has happened to: everything is there, and there is no garbage.
fn last(plan: &Plan, disk: &SimDisk, oracle: &Arc<Mutex<Oracle>>, summary: &mut Summary) {
    let db = open(plan, disk, summary);
    await_restart(&db, summary);
    check(&db, "at the end");
    let world = World::new(plan, db, disk, oracle, Condition::Well);
    settle(&world);
    backup::verify(&world);
    world.db.sweep().expect("a sweep");
    check(&world.db, "behind a sweep");
    if plan.compacts {
        world.db.compact().expect("a compaction");
        check(&world.db, "behind a compaction");
        settle(&world);
    }
    await_archived(&world.db);
    world.db.close().expect("a clean end");
    if plan.open.archive.is_some() {
        restore(plan, disk, oracle, summary);
    }
}

/// A backup of the first life, where there is an archive, whose log is to bring it to the end.
fn back_up(world: &World) {
    if world.plan.open.archive.is_none() {
        return;
    }
    world.disk.create_dir(Path::new(BACKUPS)).expect("a folder");
    world.disk.sync_dir(Path::new(".")).expect("a sync");
    let folder = BackupPlace::new(Arc::new(world.disk.clone()), BACKUPS);
    let destination = Destination::Folder { folder, name: "first".to_owned() };
    let options = BackupOptions { destination, since: None, compress: None };
    let job = world.db.jobs().begin(JobOrder::new(JobKind::Backup));
    job.end(world.db.backup(options, &mut Watch::new(&job, &mut |_| Ok(())))).expect("a backup");
}

/// Waits until the archive has everything.
fn await_archived(db: &Database) {
    let end = db.stats().durable_lsn.0;
    for _ in 0..10_000 {
        match db.archive_report() {
            Some(report) if report.archived_lsn < end => clock::sleep(Duration::from_millis(20)),
            _ => return,
        }
    }
    panic!("not archived: {:?}", db.archive_report());
}

/// Brings the backup of the first life to the end of the archive: what is there then is what was there in the end, unless the archive says
/// that it lacks something.
fn restore(plan: &Plan, disk: &SimDisk, oracle: &Arc<Mutex<Oracle>>, summary: &mut Summary) {
    let engine = engine(plan, disk);
    let archive = plan.open.archive.as_deref().expect("asked before");
    let backup = BackupPlace::new(Arc::new(disk.clone()), Path::new(BACKUPS).join("first"));
    let backup = BackupFile::find(&backup).expect("a backup");
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let mut tell = |_: &_| Ok(());
    let watch = &mut Watch::new(&job, &mut tell);
    let target = (archive, RecoveryTarget::End);
    let restored =
        engine.restore_to(Source::Files(vec![backup]), target, Path::new(RESTORED), &plan.open, watch);
    match restored {
        Err(Error::Backup(why)) if why.contains("has a gap") || why.contains("does not have the log") => {
            trace(|| format!("not restored: {why}"));
            summary.not_restored += 1;
            return;
        }
        restored => drop(restored.unwrap_or_else(|error| panic!("restore: {error}"))),
    }
    summary.restored += 1;
    let open = OpenOptions { archive: None, ..plan.open.clone() };
    let db = engine.open(Path::new(RESTORED), &open).expect("a restored database");
    await_restart(&db, summary);
    check(&db, "of what was restored");
    let world = World::new(plan, db, disk, oracle, Condition::Well);
    settle(&world);
    world.db.close().expect("a clean end");
}

/// Creates the database; what a crash in the middle leaves is a database, or creating it can begin anew, with another crash.
fn create(plan: &Plan, random: &mut Generator, summary: &mut Summary) -> (SimDisk, Database) {
    let mut disk = SimDisk::with_settings(random.next_u64(), plan.disk.clone());
    loop {
        if random.one_in(4) {
            disk.crash_after(1 + random.below(60));
        }
        match engine(plan, &disk).create(Path::new(PATH), &plan.create, &plan.open) {
            Ok(db) => {
                // First this: threads of the database go on between two looks.
                disk.cancel_crash();
                if !disk.is_crashed() {
                    return (disk, db);
                }
                drop(db);
            }
            Err(error) => assert!(disk.is_crashed(), "create: {error}"),
        }
        summary.crashes += 1;
        let image = disk.crash_image(random.next_u64());
        match engine(plan, &image).open(Path::new(PATH), &plan.open) {
            // The header was written last, so everything is there.
            Ok(db) => {
                check(&db, "after a crash at its creation");
                return (image, db);
            }
            Err(error) => {
                let whole = matches!(error, Error::Format(_) | Error::Io(_));
                assert!(whole, "a file that is no database yet: {error:?}");
                let missing = engine(plan, &image).is_missing(Path::new(PATH)).expect("a look at it");
                assert!(missing, "left by an interrupted creation: {error:?}");
            }
        }
        disk = image;
    }
}

/// Crashes and failures at the start, as often as the seed says; gives a disk on which the next start goes through.
fn reopen_until(plan: &Plan, mut disk: SimDisk, random: &mut Generator, summary: &mut Summary) -> SimDisk {
    while random.one_in(2) {
        let mut power = false;
        if random.one_in(3) {
            let (faults, with_power) = plan.faults(random);
            trace(|| format!("a start with {faults:?}"));
            disk.set_faults(faults);
            power = with_power;
        } else {
            let within = 1 << (2 + random.below(8));
            disk.crash_after(1 + random.below(within));
        }
        let trouble = |disk: &SimDisk| disk.is_crashed() || !disk.injected().is_empty();
        match engine(plan, &disk).open(Path::new(PATH), &plan.open) {
            Ok(db) if random.one_in(2) => {
                let closed = db.close();
                trace(|| format!("a short life: {closed:?}"));
                assert!(closed.is_ok() || trouble(&disk), "close: {closed:?}");
            }
            Ok(db) => drop(db),
            Err(error) => {
                trace(|| format!("no start: {error}"));
                let sound = matches!(error, Error::Io(_) | Error::NoSpace(_) | Error::Poisoned(_));
                assert!(sound && trouble(&disk), "open: {error:?}");
            }
        }
        if disk.is_crashed() || power {
            summary.crashes += 1;
            disk = disk.crash_image(random.next_u64());
        }
        disk.cancel_crash();
        disk.set_faults(Faults::default());
    }
    disk
}

fn open(plan: &Plan, disk: &SimDisk, summary: &mut Summary) -> Database {
    disk.set_faults(Faults::default());
    let db = match engine(plan, disk).open(Path::new(PATH), &plan.open) {
        Ok(db) => db,
        Err(error) => panic!("open: {error:?}: {error}"),
    };
    let report = db.restart_report();
    trace(|| format!("{report:?}"));
    summary.crashed_restarts += u64::from(report.crashed);
    summary.losers += report.losers;
    db
}

/// Waits until nothing is left of a crash.
fn await_restart(db: &Database, summary: &mut Summary) {
    let report = db.await_restart();
    trace(|| format!("{report:?}"));
    assert!(report.damaged_pages.is_empty(), "restart: {report:?}");
    assert_eq!(report.phase, RestartPhase::Done, "restart: {report:?}");
    summary.redone_pages += report.redone_pages;
}

/// The beginning of a life: when nothing is left of a crash any more, or beside that, with or without a look at everything.
fn begin(world: &World, random: &mut Generator, summary: &mut Summary) {
    match random.below(4) {
        0 => {
            await_restart(&world.db, summary);
            check(&world.db, "after the start");
            settle(world);
        }
        1 => settle(world),
        _ => {}
    }
    let phase = world.db.restart_report().phase;
    summary.beside += u64::from(matches!(phase, RestartPhase::Redo | RestartPhase::Revert));
    trace(|| format!("sessions begin, restart: {phase:?}"));
}

fn check(db: &Database, when: &str) {
    let report = db.check().unwrap_or_else(|error| panic!("check {when}: {error}"));
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "check {when}: {} findings:\n{}", findings.len(), findings.join("\n"));
}

/// Holds everything that is there after a start against the oracle, which then starts from it.
fn settle(world: &World) {
    let options = TransactionOptions { isolation: Isolation::RepeatableRead, ..Default::default() };
    let mut txn = world.db.begin(options);
    let state =
        session::everything(world, &mut txn).unwrap_or_else(|stop| panic!("reading everything: {stop:?}"));
    txn.commit().expect("a reader's commit");
    let mut oracle = world.oracle.lock();
    let now = oracle.moment();
    if let Err(what) = oracle.judge_state(&state, Look { from: now, to: now }) {
        drop(oracle);
        panic!("after the start: {what}");
    }
    oracle.rebase(state);
}

/// The first rows.
fn fill(world: &World) {
    let mut txn = world.db.begin(TransactionOptions { durability: Durability::Sync, ..Default::default() });
    let mut writes = BTreeMap::new();
    for name in ["tree0", "tree1"].into_iter().take(world.plan.trees as usize) {
        let tree = txn.create_tree(name).expect("a new tree");
        let token = world.oracle.lock().moment();
        let at = |tree, key: &[u8]| Place { tree, key: key.to_vec() };
        writes.insert(at(0, name.as_bytes()), (token, Some(token)));
        txn.put(&tree, b"\0tag", &world.plan.short_value(token)).expect("a tag");
        writes.insert(at(token, b"\0tag"), (token, Some(token)));
        for number in 0..world.plan.initial_rows {
            let (key, value) = (world.plan.key(number), world.oracle.lock().moment());
            txn.put(&tree, &key, &world.plan.value(value)).expect("a new row");
            writes.insert(at(token, &key), (value, Some(value)));
        }
    }
    let index = world.oracle.lock().committing("the first rows".to_owned(), true, &writes);
    txn.commit().expect("the first commit");
    world.oracle.lock().committed(index);
}

/// One life, to its end; gives the disk that is found afterwards.
fn live(world: Arc<World>, trouble: &Trouble, random: &mut Generator, summary: &mut Summary) -> SimDisk {
    match trouble {
        Trouble::None => {}
        Trouble::Crash(after) => world.disk.crash_after(*after),
        Trouble::Faults { faults, .. } => world.disk.set_faults(faults.as_ref().clone()),
        Trouble::Full(left) => fill_disk(&world.disk, *left),
    }
    let io = world.disk.io_count();
    world.watch_size();
    work(&world, random, summary);
    let size = world.watch_size();
    summary.grown += size.grown;
    summary.cut += size.cut;
    let world = Arc::into_inner(world).expect("all threads have ended");
    summary.operations += world.operations.load(Ordering::Relaxed);
    summary.io += world.disk.io_count() - io;
    if world.condition == Condition::Full {
        world.disk.remove(Path::new(OTHERS)).expect("a file of others");
        world.disk.sync_dir(Path::new(".")).expect("a sync");
    }
    end(world, trouble, random, summary)
}

/// Everybody who uses the database in one life, until they have ended.
pub(crate) fn work(world: &Arc<World>, random: &mut Generator, summary: &mut Summary) {
    let mut threads = Vec::new();
    for number in 0..world.plan.sessions {
        let (world, seed) = (Arc::clone(world), random.next_u64());
        threads.push(thread::spawn(&format!("session-{number}"), move || session::run(&world, number, seed)));
    }
    if random.one_in(2) {
        let (world, seed) = (Arc::clone(world), random.next_u64());
        threads.push(thread::spawn("long-reader", move || session::read_long(&world, seed)));
    }
    if random.one_in(2) {
        let (world, seed) = (Arc::clone(world), random.next_u64());
        threads.push(thread::spawn("disturber", move || session::disturb(&world, seed)));
    }
    if random.one_in(2) {
        let (world, seed) = (Arc::clone(world), random.next_u64());
        threads.push(thread::spawn("checker", move || session::check(&world, seed)));
    }
    if world.plan.compacts {
        let (world, seed) = (Arc::clone(world), world.plan.seed ^ world.moment());
        threads.push(thread::spawn("compactor", move || session::compact(&world, seed)));
    }
    let counts = Arc::new(Mutex::new(backup::Counts::default()));
    if world.plan.backs_up && world.condition != Condition::Damaged {
        let (world, seed) = (Arc::clone(world), world.plan.seed ^ world.moment());
        let counts = Arc::clone(&counts);
        threads.push(thread::spawn("backup", move || backup::run(&world, seed, &counts)));
    }
    for thread in threads {
        thread.join().expect("a session's panic ends the simulation before this");
    }
    counts.lock().add_to(summary);
}

/// Ends a life: by a power cut, by closing, or by just letting go.
fn end(world: World, trouble: &Trouble, random: &mut Generator, summary: &mut Summary) -> SimDisk {
    let disk = world.disk.clone();
    if world.closed.load(Ordering::SeqCst) && !disk.is_crashed() {
        refuses(&world);
    }
    world.end_faults();
    let healthy = !world.closed.load(Ordering::SeqCst) && !disk.is_crashed();
    if healthy && matches!(trouble, Trouble::None | Trouble::Full(_)) {
        if random.one_in(2) {
            check(&world.db, "at the end of a life");
        }
        let stranded = if random.one_in(3) { session::strand(&world, random) } else { Vec::new() };
        let is_clean = stranded.is_empty() && world.plan.open.shutdown_limit.as_secs() > 0;
        if random.one_in(3) {
            drop(world.db);
        } else {
            world.db.close().expect("closing a database that is well");
            world.oracle.lock().all_durable();
            trace(|| "closed".to_owned());
            // A shutdown without time, or with transactions under way, may leave work for the log.
            if is_clean && random.one_in(4) {
                lose_log(&disk);
            }
        }
        disk.cancel_crash();
        return disk;
    }
    let power = !matches!(trouble, Trouble::Faults { power: false, .. });
    if power {
        let strands = healthy && random.one_in(2);
        let stranded = if strands { session::strand(&world, random) } else { Vec::new() };
        if strands || random.one_in(2) {
            disk.power_off();
        }
        drop(stranded);
        drop(world.db);
        summary.crashes += 1;
        disk.crash_image(random.next_u64())
    } else {
        // The process ends, the machine goes on.
        drop(world.db);
        disk
    }
}

/// Fills the disk, but for `left` bytes, with a file of others.
fn fill_disk(disk: &SimDisk, left: u64) {
    let file = disk.open(Path::new(OTHERS), &FileOptions::create_new()).expect("a file of others");
    let (mut end, mut step) = (0, 1 << 30);
    while step >= 4096 {
        match file.allocate(end, step) {
            Ok(()) => end += step,
            Err(_) => step /= 2,
        }
    }
    file.set_len(end.saturating_sub(left)).expect("a file that becomes shorter");
}

/// A database that met a failure takes no more changes, and says why.
fn refuses(world: &World) {
    let mut txn = world.db.begin(TransactionOptions::default());
    let error = txn.create_tree("refused").expect_err("the database is closed to changes");
    if session::is_read_only(&error) {
        return;
    }
    assert!(matches!(error, Error::Poisoned(_)), "{error:?}");
    let error = world.db.checkpoint().expect_err("the database is closed to changes");
    assert!(matches!(error, Error::Poisoned(_)), "{error:?}");
}

/// After a clean shutdown the file alone is the database.
fn lose_log(disk: &SimDisk) {
    let folder = Path::new(LOG);
    for name in disk.list(folder).expect("the log's folder") {
        disk.remove(&folder.join(name)).expect("a file of the log");
    }
    disk.sync_dir(folder).expect("a sync");
    trace(|| "the log is lost".to_owned());
}
