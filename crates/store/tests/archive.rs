//! The archive: followed while others write, restored to moments in it, and everything that can be wrong with it.

use gannet_base::clock;
use gannet_io::sim::{Settings, SimDisk};
use gannet_io::{AlignedBuffer, Class, Disk, Durability, ModeRequest, OpenOptions as FileOptions};
use gannet_store::{
    ArchiveReport, ArchiveState, ArchiveVerifyReport, BackupFile, BackupOptions, BackupPlan, CreateOptions,
    Database, Destination, Engine, EngineOptions, Error, JobKind, JobOrder, Manifest, OpenOptions,
    RecoveryTarget, RestoreReport, Source, TransactionOptions, Watch,
};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
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
    let destination = Destination::Folder { folder: "backups".into(), name: name.to_owned() };
    let options = BackupOptions { destination, since: since.cloned(), compress: None };
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    job.end(db.backup(options, &mut Watch::new(&job, &mut |_| Ok(())))).unwrap()
}

fn files(disk: &SimDisk, names: &[&str]) -> Source {
    let find = |name: &&str| BackupFile::find(disk, &Path::new("backups").join(name)).unwrap();
    Source::Files(names.iter().map(find).collect())
}

fn restore(disk: &SimDisk, names: &[&str], to: &str, target: RecoveryTarget) -> Result<RestoreReport, Error> {
    let engine = engine(disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let (source, open) = (files(disk, names), OpenOptions::default());
    let archive = (Path::new(ARCHIVE), target);
    let mut tell = |_: &_| Ok(());
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
    assert_eq!((report.state, report.gap, report.behind_seconds), (ArchiveState::Archiving, None, 0.0));
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
