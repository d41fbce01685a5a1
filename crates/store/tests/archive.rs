//! The archive: followed while others write, restored to moments in it, and everything that can be wrong with it.

mod meanwhile;

use gannet_base::sim::Simulation;
use gannet_base::{checksum, clock};
use gannet_io::sim::{Chance, CrashPolicy, Faults, Settings, SimDisk};
use gannet_io::stats::Operation;
use gannet_io::{AlignedBuffer, Class, Disk, Durability, ModeRequest, OpenOptions as FileOptions};
use gannet_store::{
    ArchiveReport, ArchiveState, ArchiveVerifyReport, BackupFile, BackupOptions, BackupPlace, BackupPlan,
    CreateOptions, Database, Destination, Engine, EngineOptions, Error, JobKind, JobOrder, JobReport,
    Manifest, OpenOptions, RecoveryTarget, RestoreReport, Source, TransactionOptions, Watch,
};
use meanwhile::Meanwhile;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const FILE: &str = "a.gnt";
const ARCHIVE: &str = "archive";
const SEGMENT: u64 = 1 << 18;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 12 << 20, ..EngineOptions::default() }).unwrap()
}

fn options() -> OpenOptions {
    OpenOptions { archive: Some(ARCHIVE.into()), wal_limit: 4 * SEGMENT, ..OpenOptions::default() }
}

fn create_as(disk: &SimDisk, name: &str, options: &OpenOptions) -> Result<Database, Error> {
    let create = CreateOptions { page_size: 4096, segment_size: SEGMENT };
    let db = engine(disk).create(Path::new(name), &create, options)?;
    let mut txn = db.begin(TransactionOptions::default());
    txn.create_tree("t").unwrap();
    txn.commit().unwrap();
    Ok(db)
}

fn create(disk: &SimDisk) -> Database {
    disk.create_dir(Path::new("backups")).unwrap();
    create_as(disk, FILE, &options()).unwrap()
}

fn open(disk: &SimDisk) -> Database {
    engine(disk).open(Path::new(FILE), &options()).unwrap()
}

/// Puts numbers, each in a transaction of its own.
fn put(db: &Database, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.tree("t").unwrap().unwrap();
        txn.put(&tree, &number.to_be_bytes(), &[number as u8; 500]).unwrap();
        txn.commit().unwrap();
    }
}

/// How many numbers there are: all of them from 0 on.
fn count(db: &Database) -> u64 {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("t").unwrap().unwrap();
    let mut cursor = txn.cursor(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    let mut found = 0;
    while let Some((key, value)) = cursor.next().unwrap() {
        assert_eq!(u64::from_be_bytes(key.try_into().unwrap()), found);
        assert_eq!(value, [found as u8; 500]);
        found += 1;
    }
    drop(cursor);
    drop(txn);
    let report = db.check().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    found
}

fn backup(db: &Database, name: &str, since: Option<&Manifest>) -> Manifest {
    let folder = BackupPlace::new(Arc::clone(db.engine().disk()), "backups");
    let destination = Destination::Folder { folder, name: name.to_owned() };
    let options = BackupOptions { destination, since: since.cloned(), compress: None };
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    job.end(db.backup(options, &mut Watch::new(&job, &mut |_| Ok(())))).unwrap()
}

fn files(disk: &SimDisk, names: &[&str]) -> Source {
    let folder = BackupPlace::new(Arc::new(disk.clone()), "backups");
    let find = |name: &&str| BackupFile::find(&folder.join(name)).unwrap();
    Source::Files(names.iter().map(find).collect())
}

fn restore(disk: &SimDisk, names: &[&str], to: &str, target: RecoveryTarget) -> Result<RestoreReport, Error> {
    restore_told(disk, names, to, target, &mut |_| Ok(()))
}

/// The same, told how far it is; of the log no more than a MiB is to lie beside the file.
fn restore_told(
    disk: &SimDisk,
    names: &[&str],
    to: &str,
    target: RecoveryTarget,
    mut tell: &mut dyn FnMut(&JobReport) -> Result<(), Error>,
) -> Result<RestoreReport, Error> {
    let engine = engine(disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let source = files(disk, names);
    let open = OpenOptions { wal_limit: 4 * SEGMENT, ..OpenOptions::default() };
    let archive = (Path::new(ARCHIVE), target);
    let watch = &mut Watch::new(&job, &mut tell);
    job.end(engine.restore_to(source, archive, Path::new(to), &open, watch))
}

/// What is in a database that is restored up to a target.
fn count_at(disk: &SimDisk, names: &[&str], to: &str, target: RecoveryTarget) -> u64 {
    restore(disk, names, to, target).unwrap();
    let db = engine(disk).open(Path::new(to), &OpenOptions::default()).unwrap();
    let found = count(&db);
    // It can be written to like any other.
    put(&db, found..found + 50);
    assert_eq!(count(&db), found + 50);
    db.close().unwrap();
    found
}

fn verify(disk: &SimDisk) -> Result<ArchiveVerifyReport, Error> {
    let engine = engine(disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Verify));
    let mut tell = |_: &_| Ok(());
    let watch = &mut Watch::new(&job, &mut tell);
    job.end(engine.verify_archive(Path::new(ARCHIVE), ModeRequest::Auto, watch))
}

/// Waits until everything that was committed is archived.
fn await_archived(db: &Database) -> ArchiveReport {
    let end = db.stats().durable_lsn;
    await_report(db, |report| report.archived_lsn >= end.0)
}

fn await_report(db: &Database, is_so: impl Fn(&ArchiveReport) -> bool) -> ArchiveReport {
    for _ in 0..600 {
        let report = db.archive_report().unwrap();
        if is_so(&report) {
            return report;
        }
        clock::sleep(Duration::from_millis(50));
    }
    panic!("{:?}", db.archive_report());
}

fn len(disk: &SimDisk, path: &Path) -> u64 {
    disk.open(path, &FileOptions::read()).unwrap().len().unwrap()
}

/// Removes a database that is closed.
fn remove(disk: &SimDisk, name: &str) {
    let folder = format!("{name}-wal");
    let folder = Path::new(&folder);
    for file in disk.list(folder).unwrap() {
        disk.remove(&folder.join(file)).unwrap();
    }
    disk.remove_dir(folder).unwrap();
    disk.remove(Path::new(name)).unwrap();
}

fn parts(disk: &SimDisk) -> Vec<String> {
    let mut names = disk.list(Path::new(ARCHIVE)).unwrap();
    names.retain(|name| name.ends_with(".gntlog"));
    names.sort();
    names
}

#[test]
fn a_backup_is_brought_to_the_end_an_lsn_a_time_and_a_point() {
    let disk = SimDisk::new(1);
    let db = create(&disk);
    put(&db, 0..100);
    backup(&db, "b", None);
    put(&db, 100..700);
    let lsn = db.stats().end_lsn;
    clock::sleep(Duration::from_millis(30));
    let time = clock::unix_micros();
    clock::sleep(Duration::from_millis(30));
    put(&db, 700..1500);
    let point = db.create_restore_point("before the flood").unwrap();
    put(&db, 1500..1600);
    // Open at every target, and nowhere to be seen.
    let mut open_one = db.begin(TransactionOptions::default());
    let tree = open_one.tree("t").unwrap().unwrap();
    open_one.put(&tree, &u64::MAX.to_be_bytes(), b"never committed").unwrap();
    put(&db, 1600..1700);
    let report = await_archived(&db);
    assert_eq!((report.state, report.gap), (ArchiveState::Archiving, None));
    let verified = verify(&disk).unwrap();
    assert!(verified.gaps.is_empty() && verified.to == report.archived_lsn && verified.parts > 2);
    assert_eq!(verified.points[0].0, "before the flood");
    assert_eq!(verified.points[0].1, point.0);

    assert_eq!(count_at(&disk, &["b"], "end.gnt", RecoveryTarget::End), 1700);
    assert_eq!(count_at(&disk, &["b"], "lsn.gnt", RecoveryTarget::Lsn(lsn.0)), 700);
    assert_eq!(count_at(&disk, &["b"], "time.gnt", RecoveryTarget::Time(time)), 700);
    let target = RecoveryTarget::Point("before the flood".to_owned());
    assert_eq!(count_at(&disk, &["b"], "point.gnt", target), 1500);
    // A time behind the last commit at which nothing had happened yet.
    clock::sleep(Duration::from_millis(1500));
    let report = await_report(&db, |report| report.archived_unix_us > time + 1_500_000);
    drop(open_one);
    db.close().unwrap();
    let later = RecoveryTarget::Time(report.archived_unix_us);
    assert_eq!(count_at(&disk, &["b"], "later.gnt", later), 1700);
}

/// Restores within an engine that others use.
fn restore_beside(
    engine: &Engine,
    disk: &SimDisk,
    to: &str,
    archive: Option<RecoveryTarget>,
    mut tell: &mut dyn FnMut(&JobReport) -> Result<(), Error>,
) -> Result<RestoreReport, Error> {
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let open = OpenOptions { wal_limit: 4 * SEGMENT, ..OpenOptions::default() };
    let archive = archive.map(|target| (Path::new(ARCHIVE), target));
    let watch = &mut Watch::new(&job, &mut tell);
    job.end(engine.restore_beside(files(disk, &["b"]), archive, Path::new(to), &open, watch))
}

#[test]
fn a_restore_beside_others_takes_little_of_their_memory_and_gives_it_back() {
    let disk = SimDisk::new(32);
    let db = create(&disk);
    put(&db, 0..300);
    backup(&db, "b", None);
    put(&db, 300..4000);
    await_archived(&db);
    db.close().unwrap();
    // Others have pages of another size.
    let memory = 64 << 20;
    let options = EngineOptions { memory, ..EngineOptions::default() };
    let engine = Engine::with_disk(Arc::new(disk.clone()), &options).unwrap();
    let made = CreateOptions { page_size: 8192, segment_size: 4 * SEGMENT };
    let users = engine.create(Path::new("users.gnt"), &made, &OpenOptions::default()).unwrap();
    let frames = || users.stats().frames;
    let (before, mut least) = (frames(), u64::MAX);
    let requests = |class: Class| {
        let counter = |operation| disk.stats().counter(class, operation).requests.load(Ordering::Relaxed);
        counter(Operation::Read) + counter(Operation::Write) + counter(Operation::Sync)
    };
    let (commits, reads) = (requests(Class::Commit), requests(Class::Foreground));
    let mut phases = std::collections::BTreeSet::new();
    let mut tell = |report: &JobReport| {
        phases.insert(report.phase.clone());
        least = least.min(frames());
        Ok(())
    };
    let report = restore_beside(&engine, &disk, "r.gnt", Some(RecoveryTarget::End), &mut tell).unwrap();
    assert!(report.restart.redone_pages > 100, "{report:?}");
    assert!(least >= before / 8 * 6, "{least} of {before} frames");
    assert_eq!(frames(), before);
    // What is made is nobody's who waits; the users' database has written next to nothing meanwhile.
    assert!(requests(Class::Commit) - commits < 10 && requests(Class::Foreground) - reads < 10);
    // Given up in any of its phases, it leaves nothing.
    for phase in phases {
        let mut tell =
            |report: &JobReport| if report.phase == phase { Err(Error::Cancelled) } else { Ok(()) };
        let outcome = restore_beside(&engine, &disk, "n.gnt", Some(RecoveryTarget::End), &mut tell);
        assert!(matches!(outcome, Err(Error::Cancelled)), "{phase}: {outcome:?}");
        assert!(disk.list(Path::new("")).unwrap().iter().all(|name| !name.starts_with("n.gnt")), "{phase}");
        assert_eq!(frames(), before, "{phase}");
    }
    restore_beside(&engine, &disk, "plain.gnt", None, &mut |_| Ok(())).unwrap();
    users.close().unwrap();
    for (name, numbers) in [("r.gnt", 4000), ("plain.gnt", 300)] {
        let db = self::engine(&disk).open(Path::new(name), &OpenOptions::default()).unwrap();
        assert_eq!(count(&db), numbers, "{name}");
        db.close().unwrap();
    }
    // Where too little would be left to others, it is refused.
    let small = Engine::with_disk(
        Arc::new(disk.clone()),
        &EngineOptions { memory: 9 << 20, ..EngineOptions::default() },
    );
    let refused = restore_beside(&small.unwrap(), &disk, "n.gnt", None, &mut |_| Ok(())).unwrap_err();
    assert!(refused.to_string().contains("to be made beside others"), "{refused}");
}

#[test]
fn a_long_way_through_an_archive_takes_no_more_room_than_a_database_has_for_its_log() {
    let disk = SimDisk::new(31);
    let db = create(&disk);
    put(&db, 0..300);
    backup(&db, "b", None);
    // Open all the way: its changes are not to be there, wherever its records are.
    let mut open_one = db.begin(TransactionOptions::default());
    let tree = open_one.tree("t").unwrap().unwrap();
    open_one.put(&tree, &u64::MAX.to_be_bytes(), b"never committed").unwrap();
    put(&db, 300..5000);
    let lsn = db.stats().end_lsn;
    put(&db, 5000..9000);
    await_archived(&db);
    drop(open_one);
    db.close().unwrap();
    let before: u64 = parts(&disk).iter().map(|part| len(&disk, &Path::new(ARCHIVE).join(part))).sum();
    assert!(before > 20 * SEGMENT, "{before}");
    let logs = |name: &str| {
        let names = disk.list(Path::new(&format!("{name}-wal"))).unwrap_or_default();
        names.iter().filter(|name| name.ends_with(".log")).count()
    };
    let mut most = 0;
    let mut tell = |_: &JobReport| {
        most = most.max(logs("r.gnt.partial"));
        Ok(())
    };
    let report = restore_told(&disk, &["b"], "r.gnt", RecoveryTarget::End, &mut tell).unwrap();
    assert!((4..=8).contains(&most), "{most} segments");
    assert!(report.restart.log_bytes > 20 * SEGMENT && report.restart.redone_pages > 1000, "{report:?}");
    let db = engine(&disk).open(Path::new("r.gnt"), &OpenOptions::default()).unwrap();
    assert_eq!(count(&db), 9000);
    put(&db, 9000..9100);
    assert_eq!(count(&db), 9100);
    db.close().unwrap();
    assert_eq!(count_at(&disk, &["b"], "lsn.gnt", RecoveryTarget::Lsn(lsn.0)), 5000);
    // Given up anywhere, it leaves nothing that is taken for a database, and the next one begins anew.
    for last in [0, 1, 3, 6] {
        let mut looks = 0;
        let mut tell = |report: &JobReport| {
            looks += u32::from(report.phase.contains("archived log"));
            if looks > last { Err(Error::Cancelled) } else { Ok(()) }
        };
        let outcome = restore_told(&disk, &["b"], "again.gnt", RecoveryTarget::End, &mut tell);
        if outcome.is_ok() {
            break;
        }
        assert!(disk.list(Path::new("")).unwrap().iter().all(|name| !name.starts_with("again.gnt")));
        assert_eq!(count_at(&disk, &["b"], "again.gnt", RecoveryTarget::Lsn(lsn.0)), 5000);
        remove(&disk, "again.gnt");
    }
}

#[test]
fn targets_out_of_reach_are_refused_before_anything_is_written_and_what_is_within_is_said() {
    let disk = SimDisk::new(2);
    let db = create(&disk);
    let before = clock::unix_micros();
    put(&db, 0..50);
    db.create_restore_point("twice").unwrap();
    let manifest = backup(&db, "b", None);
    put(&db, 50..60);
    db.create_restore_point("twice").unwrap();
    db.create_restore_point("twice").unwrap();
    let end = await_archived(&db).archived_lsn;
    for (target, why) in [
        (RecoveryTarget::Time(before), "lies before the end of full backup"),
        (RecoveryTarget::Lsn(manifest.end_lsn - 8), "lies before the end of full backup"),
        (RecoveryTarget::Lsn(end + 100_000), "is not within the archive"),
        (RecoveryTarget::Time(clock::unix_micros() + 60_000_000), "is not within the archive"),
        (RecoveryTarget::Point("never".to_owned()), "there are \"twice\", \"twice\""),
        (RecoveryTarget::Point("twice".to_owned()), "several points are named \"twice\""),
    ] {
        let error = restore(&disk, &["b"], "r.gnt", target).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        let says_range = error.contains("Within reach is everything from lsn");
        assert!(says_range || error.contains("give the lsn"), "{error}");
        assert!(!disk.exists(Path::new("r.gnt")).unwrap() && !disk.exists(Path::new("r.gnt-wal")).unwrap());
    }
    db.create_restore_point("").unwrap_err();
    db.close().unwrap();
}

#[test]
fn the_time_at_which_a_backup_was_complete_is_no_target_unless_the_archive_says_so() {
    let disk = SimDisk::new(6);
    let db = create(&disk);
    put(&db, 0..50);
    await_archived(&db);
    let position = Path::new("archive/archive.position");
    let before = disk.contents(position).unwrap();
    clock::sleep(Duration::from_millis(20));
    let manifest = backup(&db, "b", None);
    db.close().unwrap();
    let said = disk.contents(position).unwrap();
    let says = |bytes: &[u8]| {
        let mut buffer = AlignedBuffer::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        disk.publish(position, &buffer, ModeRequest::Auto).unwrap();
    };
    // As if the power had been cut before more was said.
    says(&before);
    for time in [manifest.finished_unix_us, manifest.finished_unix_us + 1] {
        let error = restore(&disk, &["b"], "r.gnt", RecoveryTarget::Time(time)).unwrap_err().to_string();
        assert!(error.contains("is not within the archive"), "{time}: {error}");
    }
    says(&said);
    assert_eq!(count_at(&disk, &["b"], "r.gnt", RecoveryTarget::Time(manifest.finished_unix_us)), 50);
}

#[test]
fn a_crash_at_any_time_leaves_an_archive_that_goes_on() {
    let mut disk = SimDisk::new(4);
    let mut db = create(&disk);
    put(&db, 0..100);
    backup(&db, "b", None);
    let mut next = 100;
    for round in 0..6u64 {
        put(&db, next..next + 200);
        next += 200;
        if round % 2 == 0 {
            await_archived(&db);
            put(&db, next..next + 40);
            next += 40;
        }
        if round == 3 {
            db.close().unwrap();
        } else {
            // Everything that was committed survives; what was not synced of the archive may not.
            let after = disk.peek_crash(None, round);
            drop(db);
            disk = after;
        }
        db = open(&disk);
    }
    let report = await_archived(&db);
    assert_eq!(report.gap, None);
    let verified = verify(&disk).unwrap();
    assert!(verified.gaps.is_empty(), "{verified:?}");
    assert_eq!(count(&db), next);
    db.close().unwrap();
    assert_eq!(count_at(&disk, &["b"], "end.gnt", RecoveryTarget::End), next);
}

/// Has every write to the archive fail, or none.
fn fail_archive(disk: &SimDisk, faults: Faults) {
    disk.set_faults(Faults { only: Some(".gntlog".to_owned()), ..faults });
}

#[test]
fn what_goes_wrong_with_the_folder_is_tried_again_and_no_user_notices() {
    let disk = SimDisk::new(5);
    let db = create(&disk);
    put(&db, 0..100);
    backup(&db, "b", None);
    let mut next = 100;
    for faults in [
        Faults { write_error: Chance::OneIn(1), ..Faults::default() },
        Faults { sync_error: Chance::OneIn(1), ..Faults::default() },
        Faults { no_space: Chance::OneIn(1), ..Faults::default() },
        Faults { name_error: Chance::OneIn(1), ..Faults::default() },
    ] {
        await_archived(&db);
        fail_archive(&disk, faults);
        put(&db, next..next + 150);
        next += 150;
        let report = await_report(&db, |report| report.state == ArchiveState::Failing);
        assert!(report.failing_since_unix_us > 0 && report.behind_bytes > 0, "{report:?}");
        let alarm = db.outlook().alarms.into_iter().find(|alarm| alarm.name == "archive").unwrap();
        assert!(alarm.what.contains("failing") && alarm.what.contains(ARCHIVE), "{alarm:?}");
        fail_archive(&disk, Faults::default());
        await_archived(&db);
        // It says so a moment later than it has archived it.
        let report = await_report(&db, |report| report.state == ArchiveState::Archiving);
        assert_eq!(report.gap, None);
        assert!(db.outlook().alarms.iter().all(|alarm| alarm.name != "archive"));
    }
    assert_eq!(count(&db), next);
    db.close().unwrap();
    assert!(verify(&disk).unwrap().gaps.is_empty());
    assert_eq!(count_at(&disk, &["b"], "r.gnt", RecoveryTarget::End), next);
}

/// As when the file system of the archive is not mounted any more.
fn take_archive_away(disk: &SimDisk) {
    for name in disk.list(Path::new(ARCHIVE)).unwrap() {
        disk.remove(&Path::new(ARCHIVE).join(name)).unwrap();
    }
    disk.remove_dir(Path::new(ARCHIVE)).unwrap();
}

#[test]
fn an_archive_that_has_gone_is_not_begun_anew_in_silence() {
    let disk = SimDisk::new(31);
    let db = create(&disk);
    put(&db, 0..100);
    backup(&db, "b", None);
    await_archived(&db);
    take_archive_away(&disk);
    // More than is kept for it.
    put(&db, 100..3000);
    let report = await_report(&db, |report| report.state == ArchiveState::Failing);
    assert!(report.error.as_ref().is_some_and(|error| error.contains("mounted")), "{report:?}");
    assert!(report.behind_bytes > 0 && !disk.exists(Path::new(ARCHIVE)).unwrap());
    db.close().unwrap();

    // The next opening cannot know whether it is gone for good, and does not say that all is well.
    let db = open(&disk);
    put(&db, 3000..3010);
    await_archived(&db);
    let report = await_report(&db, |report| report.gap.is_some());
    assert!(report.gap_is_open, "{report:?}");
    let has_alarm = |db: &Database| db.outlook().alarms.iter().any(|alarm| alarm.name == "archive gap");
    assert!(has_alarm(&db));
    // Nor does the one behind it.
    db.close().unwrap();
    let db = open(&disk);
    await_archived(&db);
    await_report(&db, |report| report.gap_is_open);
    backup(&db, "c", None);
    put(&db, 3010..3020);
    await_archived(&db);
    assert!(!has_alarm(&db));
    db.close().unwrap();
    assert_eq!(count_at(&disk, &["c"], "r.gnt", RecoveryTarget::End), 3020);
}

/// Nothing has come into the log since the archive was written to, and the database was opened again.
#[test]
fn a_backup_behind_openings_that_have_archived_nothing_goes_with_the_archive() {
    let disk = SimDisk::new(33);
    let db = create(&disk);
    put(&db, 0..100);
    await_archived(&db);
    db.close().unwrap();
    let alone = OpenOptions { archive: None, ..options() };
    for _ in 0..3 {
        let db = open(&disk);
        await_archived(&db);
        db.close().unwrap();
    }
    let db = engine(&disk).open(Path::new(FILE), &alone).unwrap();
    let manifest = backup(&db, "b", None);
    db.close().unwrap();
    assert_eq!(count_at(&disk, &["b"], "end.gnt", RecoveryTarget::End), 100);
    let at_end = RecoveryTarget::Lsn(manifest.end_lsn);
    assert_eq!(count_at(&disk, &["b"], "lsn.gnt", at_end), 100);
    // Of another copy it is refused all the same.
    let db = engine(&disk).open(Path::new("end.gnt"), &alone).unwrap();
    backup(&db, "c", None);
    db.close().unwrap();
    assert!(restore(&disk, &["c"], "d.gnt", RecoveryTarget::End).is_err());
}

/// As one that is moved away, and as a file system that is mounted over another one.
#[test]
fn an_archive_that_is_emptied_or_replaced_is_noticed_and_gets_nothing() {
    let disk = SimDisk::new(35);
    let db = create(&disk);
    put(&db, 0..100);
    await_archived(&db);
    // The folder stays.
    for name in disk.list(Path::new(ARCHIVE)).unwrap() {
        disk.remove(&Path::new(ARCHIVE).join(name)).unwrap();
    }
    let failing = |db: &Database, from: u64, rows: u64| {
        for next in (from..from + 400 * rows).step_by(rows as usize) {
            put(db, next..next + rows);
            let report = db.archive_report().unwrap();
            if report.state == ArchiveState::Failing {
                return report.error.unwrap();
            }
            clock::sleep(Duration::from_millis(50));
        }
        panic!("{:?}", db.archive_report());
    };
    // Of a part that goes on, when it is noted how far it has come.
    assert!(failing(&db, 100, 1).contains("mounted"));
    assert!(disk.list(Path::new(ARCHIVE)).unwrap().iter().all(|name| name.ends_with(".lock")));
    db.close().unwrap();

    // Another archive of the same database is put there while this one is written to.
    let db = open(&disk);
    put(&db, 1000..1010);
    await_archived(&db);
    let info = Path::new(ARCHIVE).join("archive.info");
    let position = disk.contents(&Path::new(ARCHIVE).join("archive.position")).unwrap();
    let other = SimDisk::new(36);
    let db_of_other = create(&other);
    put(&db_of_other, 0..10);
    await_archived(&db_of_other);
    let file = disk.open(&info, &FileOptions::read_write()).unwrap();
    let mut bytes = AlignedBuffer::zeroed(other.contents(&info).unwrap().len());
    bytes.copy_from_slice(&other.contents(&info).unwrap());
    file.write_at(Class::Foreground, 0, &bytes, Durability::Durable).unwrap();
    db_of_other.close().unwrap();
    let parts_before = parts(&disk);
    // Where the next part begins.
    failing(&db, 1010, 100);
    assert_eq!(disk.contents(&Path::new(ARCHIVE).join("archive.position")).unwrap(), position);
    assert_eq!(parts(&disk), parts_before);
    db.close().unwrap();
}

/// A backup that is taken at once is the way out of a gap: it may end where that ends.
#[test]
fn a_backup_right_behind_a_gap_goes_with_the_archive() {
    let disk = SimDisk::new(37);
    disk.create_dir(Path::new("backups")).unwrap();
    let alone = OpenOptions { archive: None, ..options() };
    let db = create_as(&disk, FILE, &alone).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let filled = txn.create_tree("filled").unwrap();
    let mut loader = txn.bulk_loader(&filled).unwrap();
    (0..5000_u64).for_each(|number| loader.push(&number.to_be_bytes(), &[1; 300]).unwrap());
    loader.finish().unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
    let db = open(&disk);
    let report = await_report(&db, |report| report.gap_is_open && report.state == ArchiveState::Archiving);
    let manifest = backup(&db, "b", None);
    assert!(report.gap.is_some_and(|gap| gap.1 <= manifest.end_lsn), "{report:?}, {manifest:?}");
    await_report(&db, |report| !report.gap_is_open);
    put(&db, 0..10);
    await_archived(&db);
    db.close().unwrap();
    assert_eq!(count_at(&disk, &["b"], "r.gnt", RecoveryTarget::End), 10);
}

/// A log that was begun anew follows no backup from before, whatever lies between.
#[test]
fn an_archive_that_begins_with_a_new_log_is_not_put_behind_a_backup_from_before() {
    let disk = SimDisk::new(34);
    disk.create_dir(Path::new("backups")).unwrap();
    let alone = OpenOptions { archive: None, ..options() };
    let db = create_as(&disk, FILE, &alone).unwrap();
    put(&db, 0..10);
    db.close().unwrap();
    let without_log = |disk: &SimDisk| {
        let folder = Path::new("a.gnt-wal");
        for name in disk.list(folder).unwrap() {
            disk.remove(&folder.join(name)).unwrap();
        }
    };
    without_log(&disk);
    // Here the new log's first segment begins, and nothing is written to it.
    let db = engine(&disk).open(Path::new(FILE), &alone).unwrap();
    db.close().unwrap();
    let manifest = {
        without_log(&disk);
        let db = engine(&disk).open(Path::new(FILE), &alone).unwrap();
        let manifest = backup(&db, "b", None);
        db.close().unwrap();
        manifest
    };
    without_log(&disk);
    let db = open(&disk);
    put(&db, 10..20);
    await_archived(&db);
    let report = await_report(&db, |report| report.gap_is_open);
    db.close().unwrap();
    assert!(verify(&disk).is_ok());
    let refused = restore(&disk, &["b"], "r.gnt", RecoveryTarget::End).unwrap_err().to_string();
    assert!(refused.contains("does not have the log"), "{refused}, {manifest:?}, {report:?}");
    assert!(!disk.exists(Path::new("r.gnt.partial")).unwrap());
}

/// The name of a folder that was made, and whose parent could not be synced then, is durable before anything in it counts.
#[test]
fn the_name_of_the_folder_is_durable_before_what_is_in_it_counts() {
    let disk = SimDisk::new(32);
    disk.create_dir(Path::new("place")).unwrap();
    disk.sync_dir(Path::new(".")).unwrap();
    // Nobody has synced its parent.
    let folder = Path::new("place/archive");
    disk.create_dir(folder).unwrap();
    let options = OpenOptions { archive: Some(folder.to_owned()), ..options() };
    let db = create_as(&disk, FILE, &options).unwrap();
    put(&db, 0..100);
    await_archived(&db);
    let after = disk.crash_image_with(CrashPolicy::KeepNone, 1);
    assert!(after.exists(&folder.join("archive.info")).unwrap());
}

/// A database whose archive has a gap, and how much was there before; it was backed up before.
fn with_gap(disk: &SimDisk) -> (Database, u64) {
    let db = create(disk);
    put(&db, 0..100);
    backup(&db, "before", None);
    put(&db, 100..200);
    await_archived(&db);
    fail_archive(disk, Faults { write_error: Chance::OneIn(1), ..Faults::default() });
    // More than is kept for an archive.
    for round in 0..40 {
        put(&db, 200 + round * 100..300 + round * 100);
        db.checkpoint().unwrap();
    }
    fail_archive(disk, Faults::default());
    let report = await_report(&db, |report| report.gap.is_some() && report.state == ArchiveState::Archiving);
    assert!(report.gap_is_open, "{report:?}");
    (db, 4200)
}

#[test]
fn log_that_was_let_go_of_is_a_gap_that_is_named_and_never_crossed() {
    let disk = SimDisk::new(6);
    let (db, count) = with_gap(&disk);
    let gap_alarm = |db: &Database| db.outlook().alarms.into_iter().any(|alarm| alarm.name == "archive gap");
    assert!(gap_alarm(&db));
    let gap = await_archived(&db).gap.unwrap();
    // It is known after a restart, too.
    db.close().unwrap();
    let db = open(&disk);
    let report = await_archived(&db);
    assert!(report.gap == Some(gap) && report.gap_is_open && gap_alarm(&db), "{report:?}");
    let verified = verify(&disk).unwrap();
    assert_eq!(verified.gaps.iter().map(|gap| (gap.from, gap.to)).collect::<Vec<_>>(), [gap]);
    for target in [RecoveryTarget::End, RecoveryTarget::Lsn(gap.1 + 8)] {
        let error = restore(&disk, &["before"], "r.gnt", target).unwrap_err().to_string();
        assert!(error.contains(&format!("has a gap from lsn {} to {}", gap.0, gap.1)), "{error}");
        assert!(error.contains("from a backup that was taken behind it"), "{error}");
    }
    assert_eq!(count_at(&disk, &["before"], "b.gnt", RecoveryTarget::Lsn(gap.0)), 200);
    // The way out.
    backup(&db, "after", None);
    assert!(!gap_alarm(&db));
    put(&db, count..count + 100);
    await_archived(&db);
    db.close().unwrap();
    assert_eq!(count_at(&disk, &["after"], "after.gnt", RecoveryTarget::End), count + 100);
    let db = open(&disk);
    await_archived(&db);
    assert!(!gap_alarm(&db));
    db.close().unwrap();
}

#[test]
fn log_that_comes_while_nobody_archives_is_archived_by_the_next_who_does() {
    let disk = SimDisk::new(7);
    let db = create(&disk);
    put(&db, 0..100);
    backup(&db, "b", None);
    db.close().unwrap();
    // The folder cannot be reached: the database opens and closes all the same.
    disk.set_faults(Faults {
        read_error: Chance::OneIn(1),
        name_error: Chance::OneIn(1),
        only: Some("archive.info".to_owned()),
        ..Faults::default()
    });
    let db = open(&disk);
    put(&db, 100..400);
    assert!(await_report(&db, |report| report.state == ArchiveState::Failing).behind_bytes > 0);
    db.close().unwrap();
    disk.set_faults(Faults::default());
    let db = open(&disk);
    put(&db, 400..450);
    assert_eq!(await_archived(&db).gap, None);
    db.close().unwrap();
    assert_eq!(count_at(&disk, &["b"], "r.gnt", RecoveryTarget::End), 450);
}

#[test]
fn log_that_was_not_archived_stays_where_the_database_is_opened_without_its_archive() {
    let disk = SimDisk::new(31);
    let db = create(&disk);
    put(&db, 0..100);
    backup(&db, "b", None);
    fail_archive(&disk, Faults { write_error: Chance::OneIn(1), ..Faults::default() });
    put(&db, 100..600);
    db.close().unwrap();
    fail_archive(&disk, Faults::default());
    let mut next = 600;
    for _ in 0..3 {
        let without = OpenOptions { archive: None, ..options() };
        let db = engine(&disk).open(Path::new(FILE), &without).unwrap();
        for _ in 0..2 {
            put(&db, next..next + 100);
            next += 100;
            db.checkpoint().unwrap();
        }
        db.close().unwrap();
    }
    let db = open(&disk);
    assert_eq!(await_archived(&db).gap, None);
    db.close().unwrap();
    assert_eq!(count_at(&disk, &["b"], "r.gnt", RecoveryTarget::End), next);
}

#[test]
fn a_young_database_with_large_segments_is_restored_with_its_archive() {
    let disk = SimDisk::new(33);
    disk.create_dir(Path::new("backups")).unwrap();
    let sim: Arc<dyn Disk> = Arc::new(disk.clone());
    let engine =
        Engine::with_disk(sim, &EngineOptions { memory: 64 << 20, ..EngineOptions::default() }).unwrap();
    let open = OpenOptions { archive: Some(ARCHIVE.into()), ..OpenOptions::default() };
    let db = engine.create(Path::new(FILE), &CreateOptions::default(), &open).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    txn.create_tree("t").unwrap();
    txn.commit().unwrap();
    backup(&db, "b", None);
    put(&db, 0..1500);
    await_archived(&db);
    db.close().unwrap();
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let archive = (Path::new(ARCHIVE), RecoveryTarget::End);
    let mut tell = |_: &_| Ok(());
    let watch = &mut Watch::new(&job, &mut tell);
    let to = Path::new("r.gnt");
    job.end(engine.restore_to(files(&disk, &["b"]), archive, to, &OpenOptions::default(), watch)).unwrap();
    assert_eq!(count(&engine.open(to, &OpenOptions::default()).unwrap()), 1500);
}

#[test]
fn parts_that_were_never_durable_do_not_use_up_the_names() {
    let run = || {
        let disk = SimDisk::new(34);
        let db = create(&disk);
        put(&db, 0..100);
        await_archived(&db);
        let before = parts(&disk).len();
        fail_archive(&disk, Faults { sync_error: Chance::OneIn(1), ..Faults::default() });
        put(&db, 100..200);
        // It is tried every ten seconds.
        clock::sleep(Duration::from_secs(600));
        assert!(db.archive_report().unwrap().error.is_some());
        assert!(parts(&disk).len() <= before + 1, "{:?}", parts(&disk));
        fail_archive(&disk, Faults::default());
        assert_eq!(await_archived(&db).gap, None);
        db.close().unwrap();
    };
    Simulation::new(1).run(run).unwrap();
}

/// A copy of all files as they are, in another folder's place.
fn copy_file(disk: &SimDisk, from: &str, to: &str) {
    let bytes = disk.contents(Path::new(from)).unwrap();
    let file = disk.open(Path::new(to), &FileOptions::create_new()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(bytes.len());
    buffer.copy_from_slice(&bytes);
    file.write_at(Class::Foreground, 0, &buffer, Durability::Durable).unwrap();
}

/// A database with 3,100 rows, of which a backup has 100, and the archive the rest in several parts.
fn with_parts(disk: &SimDisk) -> Database {
    let db = create(disk);
    put(&db, 0..100);
    backup(&db, "b", None);
    for round in 0..6 {
        put(&db, 100 + round * 500..600 + round * 500);
        await_archived(&db);
    }
    db
}

/// A new file of the first bytes of `contents`, in whole blocks.
fn write_some(disk: &SimDisk, path: &Path, contents: &[u8], bytes: usize) {
    let file = disk.open(path, &FileOptions::create_new()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(bytes.min(contents.len()) / 512 * 512);
    let len = buffer.len();
    buffer.copy_from_slice(&contents[..len]);
    file.write_at(Class::Foreground, 0, &buffer, Durability::Durable).unwrap();
}

/// A part that was begun again, and broken off after so many bytes.
fn begin_part_again(disk: &SimDisk, part: &str, attempt: u32, bytes: usize) {
    let path = Path::new(ARCHIVE).join(part);
    let (first, _) = part.split_once('.').unwrap();
    let again = Path::new(ARCHIVE).join(format!("{first}.{attempt:04}.gntlog"));
    write_some(disk, &again, &disk.contents(&path).unwrap(), bytes);
}

#[test]
fn a_part_that_was_begun_again_and_broken_off_takes_nothing_from_what_is_there() {
    let disk = SimDisk::new(61);
    let db = with_parts(&disk);
    let point = db.create_restore_point("p").unwrap().0;
    put(&db, 3100..3200);
    await_archived(&db);
    db.close().unwrap();
    let before = verify(&disk).unwrap();
    let known = parts(&disk);
    assert!(known.len() > 4, "{known:?}");
    for (index, part) in known.iter().enumerate() {
        let len = disk.contents(&Path::new(ARCHIVE).join(part)).unwrap().len();
        // One ends early, the other one late; each time in another part of a frame.
        for (attempt, bytes) in
            [(1, len / 3 + 1024 * index), (2, len / 2 + 512 * index), (3, 512 + 4096 * (index % 4))]
        {
            begin_part_again(&disk, part, attempt, bytes);
        }
    }
    let after = verify(&disk).unwrap();
    assert_eq!((after.to, &after.gaps, &after.points), (before.to, &before.gaps, &before.points));
    assert_eq!(count_at(&disk, &["b"], "end.gnt", RecoveryTarget::End), 3200);
    assert_eq!(count_at(&disk, &["b"], "point.gnt", RecoveryTarget::Point("p".into())), 3100);
    assert_eq!(count_at(&disk, &["b"], "lsn.gnt", RecoveryTarget::Lsn(point)), 3100);
    // It goes on, too.
    let db = open(&disk);
    put(&db, 3200..3300);
    assert_eq!(await_archived(&db).gap, None);
    db.close().unwrap();
    assert_eq!(count_at(&disk, &["b"], "on.gnt", RecoveryTarget::End), 3300);
}

#[test]
fn a_gap_begins_where_the_archive_reads_up_to_if_its_end_was_never_known_to_be_durable() {
    let disk = SimDisk::new(62);
    let db = with_parts(&disk);
    db.close().unwrap();
    let known = parts(&disk);
    let cut = &known[known.len() - 3];
    let path = Path::new(ARCHIVE).join(cut);
    let contents = disk.contents(&path).unwrap();
    disk.remove(&path).unwrap();
    write_some(&disk, &path, &contents, contents.len() / 2);
    disk.remove(&Path::new(ARCHIVE).join("archive.position")).unwrap();
    fail_archive(&disk, Faults { write_error: Chance::OneIn(1), ..Faults::default() });
    let db = open(&disk);
    for round in 0..40 {
        put(&db, 3100 + round * 100..3200 + round * 100);
        db.checkpoint().unwrap();
    }
    fail_archive(&disk, Faults::default());
    let gap = await_report(&db, |report| report.gap.is_some() && report.state == ArchiveState::Archiving).gap;
    await_archived(&db);
    db.close().unwrap();
    let verified = verify(&disk).unwrap();
    let [found] = verified.gaps[..] else { panic!("{verified:?}") };
    // It may be said to begin earlier than it has to, and what is there all the same is read.
    let said = gap.unwrap();
    assert!(said.0 <= found.from && said.1 == found.to, "{said:?}, {found:?}");
    let first = |part: &str| u64::from_str_radix(part.split_once('.').unwrap().0, 16).unwrap();
    assert!((first(cut)..first(&known[known.len() - 2])).contains(&found.from), "{found:?}, {known:?}");
    let error = restore(&disk, &["b"], "r.gnt", RecoveryTarget::End).unwrap_err().to_string();
    assert!(error.contains("has a gap"), "{error}");
    restore(&disk, &["b"], "r.gnt", RecoveryTarget::Lsn(found.from)).unwrap();
}

#[test]
fn an_archive_of_another_database_or_copy_is_refused_before_anything_is_written() {
    let disk = SimDisk::new(8);
    let db = create(&disk);
    put(&db, 0..100);
    let manifest = backup(&db, "b", None);
    await_archived(&db);
    // Another one that is created, and one that is opened.
    let error = create_as(&disk, "other.gnt", &options()).unwrap_err().to_string();
    assert!(error.contains("the archive of another database, a.gnt"), "{error}");
    assert!(!disk.exists(Path::new("other.gnt")).unwrap());
    create_as(&disk, "other.gnt", &OpenOptions::default()).unwrap().close().unwrap();
    let refused = |name: &str| {
        let before = disk.contents(Path::new(name)).unwrap();
        let error = engine(&disk).open(Path::new(name), &options()).unwrap_err().to_string();
        assert!(disk.contents(Path::new(name)).unwrap() == before, "it was written to");
        error
    };
    assert!(refused("other.gnt").contains("the archive of another database, a.gnt"));
    // A copy of the same one, which was restored.
    assert_eq!(count_at(&disk, &["b"], "restored.gnt", RecoveryTarget::End), 100);
    assert!(refused("restored.gnt").contains("the archive of another copy"));
    // Two copies of the closed file: the one that went on with the archive has it.
    db.close().unwrap();
    copy_file(&disk, FILE, "copied.gnt");
    let db = open(&disk);
    put(&db, 100..110);
    await_archived(&db);
    assert!(refused("copied.gnt").contains("the archive of another copy"));
    // A backup of another one is not brought forward with it.
    let other = engine(&disk).open(Path::new("restored.gnt"), &OpenOptions::default()).unwrap();
    put(&other, 150..2000);
    let of_copy = backup(&other, "copy", None);
    assert!(of_copy.end_lsn > manifest.end_lsn);
    other.close().unwrap();
    put(&db, 110..3000);
    await_archived(&db);
    let error = restore(&disk, &["copy"], "r.gnt", RecoveryTarget::End).unwrap_err().to_string();
    assert!(error.contains("was not taken of the copy of the database"), "{error}");
    db.close().unwrap();
}

#[test]
fn an_archive_of_what_the_database_was_later_is_refused_before_anything_is_written() {
    let disk = SimDisk::new(22);
    let db = create(&disk);
    put(&db, 0..100);
    await_archived(&db);
    // The database's volume is put back, and that of the archive is not.
    let earlier = disk.peek_crash(None, 1);
    put(&db, 100..1200);
    await_archived(&db);
    db.close().unwrap();
    for name in disk.list(Path::new(ARCHIVE)).unwrap() {
        let path = Path::new(ARCHIVE).join(name);
        let bytes = disk.contents(&path).unwrap();
        if earlier.exists(&path).unwrap() {
            earlier.remove(&path).unwrap();
        }
        let file = earlier.open(&path, &FileOptions::create_new()).unwrap();
        if !bytes.is_empty() {
            let mut buffer = AlignedBuffer::zeroed(bytes.len());
            buffer.copy_from_slice(&bytes);
            file.write_at(Class::Foreground, 0, &buffer, Durability::Durable).unwrap();
        }
    }
    let before = earlier.contents(Path::new(FILE)).unwrap();
    let error = engine(&earlier).open(Path::new(FILE), &options()).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    assert!(error.to_string().contains("was put back to an earlier state"), "{error}");
    assert!(earlier.contents(Path::new(FILE)).unwrap() == before, "it was written to");
    // It goes on with another one, and what came later is not lost.
    let options = OpenOptions { archive: Some("another".into()), ..options() };
    let db = engine(&earlier).open(Path::new(FILE), &options).unwrap();
    assert_eq!(count(&db), 100);
    await_archived(&db);
    db.close().unwrap();
    assert_eq!(count(&open(&disk)), 1200);
}

#[test]
fn an_archive_that_grows_while_it_is_looked_at_is_not_damaged() {
    let disk = SimDisk::new(23);
    let db = with_parts(&disk);
    let seen = Meanwhile::behind_list(&disk, ARCHIVE, move || {
        // Further parts, and a note of how far it has come.
        put(&db, 3100..5000);
        await_archived(&db);
        db.close().unwrap();
    });
    let options = EngineOptions { memory: 12 << 20, ..EngineOptions::default() };
    let engine = Engine::with_disk(Arc::clone(&seen) as Arc<dyn Disk>, &options).unwrap();
    let job = engine.jobs().begin(JobOrder::new(JobKind::Verify));
    let mut tell = |_: &_| Ok(());
    let watch = &mut Watch::new(&job, &mut tell);
    let report = job.end(engine.verify_archive(Path::new(ARCHIVE), ModeRequest::Auto, watch)).unwrap();
    assert!(seen.is_done());
    assert!(verify(&disk).unwrap().to > report.to, "what came later is not in it");
}

#[test]
fn what_is_wrong_with_an_archive_is_found_and_named() {
    let disk = SimDisk::new(9);
    let db = create(&disk);
    backup(&db, "b", None);
    put(&db, 0..2500);
    await_archived(&db);
    db.close().unwrap();
    let names = parts(&disk);
    assert!(names.len() > 5);
    let path = |index: usize| Path::new(ARCHIVE).join(&names[index]);
    let both = |disk: &SimDisk, why: &str| {
        let error = verify(disk).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        let error = restore(disk, &["b"], "r.gnt", RecoveryTarget::End).unwrap_err().to_string();
        assert!(error.contains("archive") && !disk.exists(Path::new("r.gnt")).unwrap(), "{error}");
    };
    let copy = |seed| disk.peek_crash(None, seed);
    // A bit in the middle, in the first frame, a part that is gone, one that is cut off, one that has another's name.
    let rotten = copy(1);
    rotten.corrupt(&path(2), 9000, 1, 1).unwrap();
    both(&rotten, "missing or damaged");
    let rotten = copy(2);
    rotten.corrupt(&path(3), 100, 1, 1).unwrap();
    both(&rotten, &names[2]);
    both(&rotten, &names[3]);
    // The first one, which nothing comes before.
    let beginning = copy(11);
    beginning.corrupt(&path(0), 100, 1, 1).unwrap();
    both(&beginning, &names[0]);
    let beginning = copy(12);
    beginning.open(&path(0), &FileOptions::read_write()).unwrap().set_len(100).unwrap();
    both(&beginning, &names[0]);
    let gone = copy(3);
    gone.remove(&path(2)).unwrap();
    both(&gone, "the part behind it is missing");
    let cut = copy(4);
    cut.open(&path(2), &FileOptions::read_write()).unwrap().set_len(3 * 4096).unwrap();
    both(&cut, &names[2]);
    let swapped = copy(5);
    swapped.rename(&path(2), &path(3)).unwrap();
    both(&swapped, "were renamed or swapped");
    // The end: what had been archived is known.
    let short = copy(6);
    short.remove(&path(names.len() - 1)).unwrap();
    both(&short, "though it had been archived");
    let nothing = copy(10);
    for name in &names {
        nothing.remove(&Path::new(ARCHIVE).join(name)).unwrap();
    }
    let error = verify(&nothing).unwrap_err().to_string();
    assert!(error.contains("though it had been archived"), "{error}");
    // The folder's own texts.
    let unnamed = copy(7);
    unnamed.remove(&Path::new(ARCHIVE).join("archive.info")).unwrap();
    both(&unnamed, "which says whose they are");
    let newer = copy(8);
    let info = String::from_utf8(newer.contents(&Path::new(ARCHIVE).join("archive.info")).unwrap()).unwrap();
    assert!(info.starts_with("{\"version\":1,"), "{info}");
    let missing = copy(9);
    let error = engine(&missing)
        .verify_archive(
            Path::new("nowhere"),
            ModeRequest::Auto,
            &mut Watch::new(&engine(&missing).jobs().begin(JobOrder::new(JobKind::Verify)), &mut |_| Ok(())),
        )
        .unwrap_err();
    assert!(error.to_string().contains("there is no folder"), "{error}");
}

#[test]
fn a_verify_counts_what_it_reads_and_ends_when_it_is_cancelled() {
    let disk = SimDisk::new(9);
    let db = create(&disk);
    backup(&db, "b", None);
    put(&db, 0..2500);
    await_archived(&db);
    db.close().unwrap();
    let bytes: u64 = parts(&disk).iter().map(|name| len(&disk, &Path::new(ARCHIVE).join(name))).sum();
    let engine = engine(&disk);
    let jobs = engine.jobs();
    let job = jobs.begin(JobOrder::new(JobKind::Verify));
    let report =
        engine.verify_archive(Path::new(ARCHIVE), ModeRequest::Auto, &mut Watch::new(&job, &mut |_| Ok(())));
    assert_eq!(report.unwrap().bytes, bytes);
    // But for the frame that says that a part is complete, where the next one tells it.
    let read = job.report().bytes_read;
    assert!(read <= bytes && read + bytes / 20 >= bytes, "{read} of {bytes}");
    // By whoever is told of it, and by somebody else.
    for (phase, most) in [("looks for its parts", 0), ("verifies the archive", bytes / 2)] {
        let job = jobs.begin(JobOrder::new(JobKind::Verify));
        let mut tell = |report: &JobReport| {
            assert!(report.phase != phase || jobs.cancel(job.report().id));
            Ok(())
        };
        let ended =
            engine.verify_archive(Path::new(ARCHIVE), ModeRequest::Auto, &mut Watch::new(&job, &mut tell));
        assert!(matches!(ended, Err(Error::Cancelled)), "{phase}: {ended:?}");
        assert!(job.report().phase == phase && job.report().bytes_read <= most, "{:?}", job.report());
    }
    // And of a backup.
    let job = jobs.begin(JobOrder::new(JobKind::Verify));
    assert!(jobs.cancel(job.report().id));
    let ended =
        engine.verify(files(&disk, &["b"]), ModeRequest::Auto, &mut Watch::new(&job, &mut |_| Ok(())));
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
}

#[test]
fn damage_within_the_newest_part_is_no_end_of_the_archive() {
    let disk = SimDisk::new(19);
    let db = create(&disk);
    backup(&db, "b", None);
    for begin in 0..8 {
        put(&db, begin * 20..(begin + 1) * 20);
        await_archived(&db);
    }
    // How far the archive has come is noted now and then: as if it had not been yet.
    let copy = |seed| {
        let copy = disk.peek_crash(None, seed);
        copy.remove(&Path::new(ARCHIVE).join("archive.position")).unwrap();
        copy
    };
    let names = parts(&disk);
    let last = Path::new(ARCHIVE).join(names.last().unwrap());
    let len = disk.contents(&last).unwrap().len() as u64;
    assert!(len > 10 * 4096, "{len}");
    assert_eq!(count_at(&copy(1), &["b"], "r.gnt", RecoveryTarget::End), 160);
    // Cut off, it is as a crash leaves it: an end.
    let cut = copy(2);
    resize(&cut, &last, len - 4096);
    verify(&cut).unwrap();
    // With log behind it, it is not, wherever the damage is.
    for at in [len / 2, len / 3] {
        let rotten = copy(3);
        // Two blocks have a frame's head among them, or what it is about.
        overwrite(&rotten, &last, at as usize / 4096 * 4096, &[7; 8192]);
        let error = verify(&rotten).unwrap_err().to_string();
        assert!(error.contains("of frames behind it are whole"), "{error}");
        let error = restore(&rotten, &["b"], "r.gnt", RecoveryTarget::End).unwrap_err().to_string();
        assert!(
            error.contains("of frames behind it are whole") && error.contains("restore up to lsn "),
            "{error}"
        );
        let lsn = error.split("restore up to lsn ").nth(1).and_then(|rest| rest.split(',').next());
        let lsn = lsn.and_then(|lsn| lsn.parse().ok()).unwrap();
        assert!(count_at(&rotten, &["b"], "r.gnt", RecoveryTarget::Lsn(lsn)) < 160);
    }
    db.close().unwrap();
}

#[test]
fn a_backup_before_the_archive_and_one_behind_its_end_are_told() {
    let disk = SimDisk::new(10);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = create_as(&disk, FILE, &OpenOptions::default()).unwrap();
    put(&db, 0..100);
    backup(&db, "early", None);
    for round in 0..30 {
        put(&db, 100 + round * 100..200 + round * 100);
        db.checkpoint().unwrap();
    }
    db.close().unwrap();
    let db = open(&disk);
    await_archived(&db);
    let error = restore(&disk, &["early"], "r.gnt", RecoveryTarget::End).unwrap_err().to_string();
    assert!(error.contains("does not have the log from the end of full backup"), "{error}");
    db.close().unwrap();
    let db = engine(&disk).open(Path::new(FILE), &OpenOptions::default()).unwrap();
    put(&db, 3100..3200);
    backup(&db, "late", None);
    db.close().unwrap();
    let error = restore(&disk, &["late"], "r.gnt", RecoveryTarget::End).unwrap_err().to_string();
    assert!(error.contains("ends at lsn") && error.contains("before the end of full backup"), "{error}");
}

#[test]
fn incremental_backups_compaction_and_growth_are_followed() {
    let disk = SimDisk::new(11);
    let db = create(&disk);
    put(&db, 0..1000);
    let full = backup(&db, "full", None);
    put(&db, 1000..1200);
    backup(&db, "incr", Some(&full));
    // The file is emptied, cut and grows again behind what the backup has.
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("t").unwrap().unwrap();
    (0..1200u64).for_each(|number| assert!(txn.delete(&tree, &number.to_be_bytes()).unwrap()));
    txn.commit().unwrap();
    let job = db.jobs().begin(JobOrder::new(JobKind::Compact));
    job.end(db.compact_watched(&mut Watch::new(&job, &mut |_| Ok(())))).unwrap();
    put(&db, 0..6000);
    let lsn = db.stats().end_lsn.0;
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("t").unwrap().unwrap();
    txn.put(&tree, b"12345678long", &vec![9; 300_000]).unwrap();
    drop(txn);
    await_archived(&db);
    db.close().unwrap();
    assert_eq!(count_at(&disk, &["full", "incr"], "r.gnt", RecoveryTarget::End), 6000);
    assert_eq!(count_at(&disk, &["full"], "f.gnt", RecoveryTarget::Lsn(lsn)), 6000);
}

#[test]
fn log_that_no_backup_needs_is_removed_with_older_ones() {
    let disk = SimDisk::new(12);
    let db = create(&disk);
    let mut next = 0;
    let plan = BackupPlan {
        folder: BackupPlace::new(Arc::clone(db.engine().disk()), "backups"),
        since: None,
        compress: None,
        keep: Some(2),
        archive: Some(ARCHIVE.into()),
        statistics: None,
    };
    let mut taken = Vec::new();
    for _ in 0..4 {
        put(&db, next..next + 800);
        next += 800;
        await_archived(&db);
        let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
        let done = job.end(db.backup_into(&plan, &mut Watch::new(&job, &mut |_| Ok(())))).unwrap();
        assert_eq!(done.complaint, None);
        taken.push(done);
    }
    assert!(taken.last().unwrap().removed_parts > 0);
    put(&db, next..next + 10);
    await_archived(&db);
    db.close().unwrap();
    let kept = &taken[taken.len() - 2].backup.name;
    assert!(verify(&disk).unwrap().from <= taken[taken.len() - 2].backup.manifest.begin.start_lsn);
    assert_eq!(count_at(&disk, &[kept], "r.gnt", RecoveryTarget::End), next + 10);
}

#[test]
fn a_backup_of_a_database_that_was_only_opened_does_not_give_transaction_numbers_out_again() {
    let disk = SimDisk::new(13);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = create_as(&disk, FILE, &OpenOptions::default()).unwrap();
    put(&db, 0..300);
    let before = db.begin(TransactionOptions::default());
    drop(before);
    db.close().unwrap();
    copy_file(&disk, FILE, "alone.gnt");
    // Its log is a new one, in which nothing was done.
    let db = engine(&disk).open(Path::new("alone.gnt"), &OpenOptions::default()).unwrap();
    let manifest = backup(&db, "b", None);
    assert!(manifest.begin.next_txn > 300, "{}", manifest.begin.next_txn);
    db.close().unwrap();
    let engine = engine(&disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let mut tell = |_: &_| Ok(());
    let watch = &mut Watch::new(&job, &mut tell);
    let open = OpenOptions::default();
    engine.restore(files(&disk, &["b"]), Path::new("r.gnt"), &open, watch).unwrap();
    let db = engine.open(Path::new("r.gnt"), &open).unwrap();
    put(&db, 300..310);
    assert!(db.stats().horizon.0 > 300, "{:?}", db.stats().horizon);
    assert_eq!(count(&db), 310);
    db.close().unwrap();
}

#[test]
fn on_a_full_disk_log_that_waits_to_be_archived_makes_room_for_users() {
    let capacity_bytes = Some(6 << 20);
    let disk = SimDisk::with_settings(14, Settings { capacity_bytes, ..Settings::default() });
    disk.create_dir(Path::new("backups")).unwrap();
    // As much log as there is room may wait for the archive, which takes none.
    let open = OpenOptions { wal_limit: 16 * SEGMENT, ..options() };
    let db = create_as(&disk, FILE, &open).unwrap();
    put(&db, 0..200);
    fail_archive(&disk, Faults { write_error: Chance::OneIn(1), ..Faults::default() });
    // Rows that are overwritten: the file does not grow, the log comes to many times the disk.
    for _ in 0..60 {
        put(&db, 0..200);
        db.checkpoint().unwrap();
    }
    assert_eq!(count(&db), 200);
    let alarms = db.outlook().alarms;
    assert!(alarms.iter().any(|alarm| alarm.name == "archive"), "{alarms:?}");
    db.close().unwrap();
}

/// Writes bytes over those of a file.
fn overwrite(disk: &SimDisk, path: &Path, offset: usize, bytes: &[u8]) {
    let file = disk.open(path, &FileOptions::read_write()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(bytes.len());
    buffer.copy_from_slice(bytes);
    file.write_at(Class::Foreground, offset as u64, &buffer, Durability::Durable).unwrap();
}

/// Has the head of a frame say that so many bytes are stored behind it, with a checksum that belongs to that.
fn claim_stored(disk: &SimDisk, path: &Path, at: usize, len: u32) {
    let mut head = disk.contents(path).unwrap()[at..at + 4096].to_vec();
    let backup = u64::from_le_bytes(head[24..32].try_into().unwrap());
    head[48..52].copy_from_slice(&len.to_le_bytes());
    head[52..56].copy_from_slice(&len.to_le_bytes());
    let sum = checksum::seeded(backup, &head[8..]);
    head[..8].copy_from_slice(&sum.to_le_bytes());
    overwrite(disk, path, at, &head);
}

#[test]
fn a_frame_that_claims_to_be_longer_than_its_part_is_named_and_nothing_is_read_beyond() {
    let disk = SimDisk::new(15);
    let db = create(&disk);
    backup(&db, "b", None);
    put(&db, 0..2500);
    await_archived(&db);
    db.close().unwrap();
    let names = parts(&disk);
    assert!(names.len() > 5);
    let path = |index: usize| Path::new(ARCHIVE).join(&names[index]);
    // More than the file has, the most that a frame may have, and more than that.
    for len in [4097, 1 << 20, (1 << 20) + 1, u32::MAX] {
        // The last frame says what is in the part, and saves a look at it: without one the part is gone through.
        let ends = disk.peek_crash(None, 1);
        for index in 0..names.len() - 1 {
            let end = ends.contents(&path(index)).unwrap().len() - 8192;
            claim_stored(&ends, &path(index), end, len);
        }
        assert_eq!(verify(&ends).unwrap().records, verify(&disk).unwrap().records, "{len}");
        assert_eq!(count_at(&ends, &["b"], "r.gnt", RecoveryTarget::End), 2500);
        // One of the log is missed, and named.
        let log = disk.peek_crash(None, 2);
        claim_stored(&log, &path(2), 8192, len);
        let why = if len > 1 << 20 { "the lengths in a frame's head make no sense" } else { "checksum" };
        let error = verify(&log).unwrap_err().to_string();
        assert!(error.contains(&names[2]) && error.contains("offset 8192"), "{len}: {error}");
        assert!(error.contains(why) || error.contains("it is cut off"), "{len}: {error}");
        let error = restore(&log, &["b"], "r.gnt", RecoveryTarget::End).unwrap_err().to_string();
        assert!(error.contains(&names[2]) && !log.exists(Path::new("r.gnt")).unwrap(), "{len}: {error}");
    }
    // Where its end is all that there is of the archive's last part, that is so as well.
    let last = disk.peek_crash(None, 3);
    for name in &names[3..] {
        last.remove(&Path::new(ARCHIVE).join(name)).unwrap();
    }
    last.remove(&Path::new(ARCHIVE).join("archive.position")).unwrap();
    let whole = verify(&last).unwrap();
    let end = last.contents(&path(2)).unwrap().len() - 8192;
    claim_stored(&last, &path(2), end, 1 << 20);
    assert_eq!(verify(&last).unwrap(), whole);
}

/// Cuts a file off, or fills it up with bytes of no meaning, to a length of any kind.
fn resize(disk: &SimDisk, path: &Path, len: u64) {
    disk.open(path, &FileOptions::read_write()).unwrap().set_len(len).unwrap();
}

#[test]
fn a_part_of_any_length_is_cut_off_and_healed_where_its_length_is_no_multiple_of_a_sector() {
    let disk = SimDisk::new(16);
    let db = create(&disk);
    backup(&db, "b", None);
    put(&db, 0..1250);
    await_archived(&db);
    let crashed = disk.peek_crash(None, 1);
    db.close().unwrap();
    let whole = verify(&disk).unwrap();
    let names = parts(&disk);
    let path = |index: usize| Path::new(ARCHIVE).join(&names[index]);
    let last = names.len() - 1;
    for cut in [1, 41, 511, 512, 3001, 4096, 4097, 12_287] {
        // One in the middle, which is complete, and the last one, which is not.
        for index in [1, last] {
            let short = disk.peek_crash(None, 2);
            let len = short.contents(&path(index)).unwrap().len() as u64;
            resize(&short, &path(index), len - cut);
            let found = verify(&short);
            if index == 1 && cut <= 8192 {
                // What says that it is complete is gone, and nothing else.
                assert_eq!(found.unwrap(), ArchiveVerifyReport { bytes: whole.bytes - cut, ..whole.clone() });
                assert_eq!(count_at(&short, &["b"], "r.gnt", RecoveryTarget::End), 1250);
                continue;
            }
            let is_named = |error: String| {
                assert!(error.contains(&names[index]) && error.contains("it is cut off"), "{cut}: {error}");
            };
            is_named(found.unwrap_err().to_string());
            is_named(restore(&short, &["b"], "r.gnt", RecoveryTarget::End).unwrap_err().to_string());
        }
        // The next opening goes on where it is whole.
        let healed = crashed.peek_crash(None, 3);
        let newest = Path::new(ARCHIVE).join(parts(&healed).last().unwrap());
        let len = healed.contents(&newest).unwrap().len() as u64;
        resize(&healed, &newest, len - cut);
        let db = open(&healed);
        await_archived(&db);
        db.close().unwrap();
        assert!(verify(&healed).unwrap().gaps.is_empty(), "{cut}");
        assert_eq!(count_at(&healed, &["b"], "r.gnt", RecoveryTarget::End), 1250, "{cut}");
    }
    // What follows the last frame that is whole is nothing.
    for more in [1, 777, 4096, 9001] {
        let long = disk.peek_crash(None, 4);
        for index in [1, last] {
            resize(&long, &path(index), long.contents(&path(index)).unwrap().len() as u64 + more);
        }
        assert_eq!(
            verify(&long).unwrap(),
            ArchiveVerifyReport { bytes: whole.bytes + 2 * more, ..whole.clone() }
        );
        assert_eq!(count_at(&long, &["b"], "r.gnt", RecoveryTarget::End), 1250);
    }
}

#[test]
fn a_restore_from_an_archive_without_its_last_parts_says_what_verifying_says() {
    for openings in 1..4 {
        let disk = SimDisk::new(17);
        let db = create(&disk);
        put(&db, 0..10);
        await_archived(&db);
        db.close().unwrap();
        for opening in 1..openings {
            let db = open(&disk);
            backup(&db, &format!("early {opening}"), None);
            await_archived(&db);
            db.close().unwrap();
        }
        // The first backup ends where the parts begin that are missing then.
        let before = parts(&disk);
        let db = open(&disk);
        backup(&db, "b", None);
        put(&db, 10..20);
        await_archived(&db);
        backup(&db, "later", None);
        put(&db, 20..30);
        await_archived(&db);
        db.close().unwrap();
        let whole = disk.peek_crash(None, 1);
        assert_eq!(count_at(&whole, &["b"], "r.gnt", RecoveryTarget::End), 30);
        for last in parts(&disk).iter().rev().take_while(|name| !before.contains(name)) {
            disk.remove(&Path::new(ARCHIVE).join(last)).unwrap();
            let said = verify(&disk).unwrap_err().to_string();
            assert!(
                said.contains("is missing or damaged") && said.contains("though it had been archived by"),
                "{said}"
            );
            for name in ["b", "later"] {
                let error = restore(&disk, &[name], "r.gnt", RecoveryTarget::End).unwrap_err().to_string();
                assert!(error.starts_with(&said) && error.contains(": put the part back, or "), "{error}");
            }
        }
    }
}

#[test]
fn an_archive_without_its_last_part_is_restored_up_to_where_it_ends() {
    let disk = SimDisk::new(18);
    let db = create(&disk);
    backup(&db, "b", None);
    put(&db, 0..5);
    db.create_restore_point("five").unwrap();
    put(&db, 5..10);
    await_archived(&db);
    db.close().unwrap();
    let db = open(&disk);
    put(&db, 10..20);
    await_archived(&db);
    db.close().unwrap();
    disk.remove(&Path::new(ARCHIVE).join(parts(&disk).pop().unwrap())).unwrap();
    let said = verify(&disk).unwrap_err().to_string();
    let error = restore(&disk, &["b"], "r.gnt", RecoveryTarget::End).unwrap_err().to_string();
    assert!(error.starts_with(&said), "{error}");
    let (_, to) = error.split_once("restore up to lsn ").unwrap();
    let to = RecoveryTarget::Lsn(to.split_once(',').unwrap().0.parse().unwrap());
    assert_eq!(count_at(&disk, &["b"], "r.gnt", to), 10);
    assert_eq!(count_at(&disk, &["b"], "s.gnt", RecoveryTarget::Point("five".to_owned())), 5);
}

#[test]
fn a_block_of_the_log_that_reads_as_zeros_is_named_and_not_archived() {
    let disk = SimDisk::new(16);
    let db = create(&disk);
    put(&db, 0..100);
    await_archived(&db);
    fail_archive(&disk, Faults { write_error: Chance::OneIn(1), ..Faults::default() });
    put(&db, 100..1300);
    let archived = await_report(&db, |report| report.state == ArchiveState::Failing).archived_lsn;
    // Behind the header of a segment, so that the record that is missing is known.
    let number = archived / SEGMENT + 1;
    assert!(db.stats().durable_lsn.0 > (number + 1) * SEGMENT, "that segment is full");
    let path = format!("{FILE}-wal/{number:016x}.log");
    overwrite(&disk, Path::new(&path), 4096, &[0; 4096]);
    fail_archive(&disk, Faults::default());
    let lost = number * SEGMENT + 4096;
    let is_named = |report: &ArchiveReport| {
        let error = report.error.clone().unwrap_or_default();
        error.contains(&format!("the record at lsn {lost} is not there"))
    };
    let report = await_report(&db, is_named);
    assert!(report.state == ArchiveState::Failing && report.archived_lsn <= lost, "{report:?}");
    let alarm = db.outlook().alarms.into_iter().find(|alarm| alarm.name == "archive").unwrap();
    assert!(alarm.what.contains("is not there"), "{alarm:?}");
    // The database does not need that block, and goes on.
    put(&db, 1300..1310);
    assert_eq!(count(&db), 1310);
    assert!(verify(&disk).unwrap().to <= lost);
    db.close().unwrap();
}

#[test]
fn a_log_that_the_disk_has_not_kept_is_not_taken_for_an_earlier_target() {
    let disk = SimDisk::new(17);
    let db = create(&disk);
    put(&db, 0..100);
    backup(&db, "b", None);
    put(&db, 100..2000);
    await_archived(&db);
    db.close().unwrap();
    let mut short = 0;
    for number in 1.. {
        let disk = disk.peek_crash(None, number);
        // This write is acknowledged, synced, and gone.
        let lost_write = Chance::At(vec![number]);
        disk.set_faults(Faults { lost_write, only: Some(".log".to_owned()), ..Faults::default() });
        let restored = restore(&disk, &["b"], "r.gnt", RecoveryTarget::End);
        let is_lost = !disk.injected().is_empty();
        disk.set_faults(Faults::default());
        if !is_lost {
            break;
        }
        match restored {
            // What the disk has lost of the log that the restored database writes itself may be missed later only, and is named then.
            Ok(_) => match engine(&disk).open(Path::new("r.gnt"), &OpenOptions::default()) {
                Ok(db) => assert_eq!(count(&db), 2000, "{number}"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(
                        said.contains("r.gnt-wal/") && said.contains("complete as it is"),
                        "{number}: {said}"
                    );
                }
            },
            Err(error) => {
                let said = error.to_string();
                assert!(
                    matches!(error, Error::Backup(_))
                        && (said.contains("was restored, and") || said.contains("cannot be applied: ")),
                    "{number}: {said}"
                );
                short += u32::from(said.contains("its log can be read up to lsn"));
            }
        }
    }
    assert!(short > 0, "one of the writes is the last of what was restored");
}
