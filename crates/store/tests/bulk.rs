//! Trees that are filled from the bottom up, beside the log: what a crash, a backup, an archive and a lying device make of them.

use gannet_io::sim::{Chance, CrashPolicy, Faults, SimDisk};
use gannet_io::{Disk, ModeRequest};
use gannet_store::{
    ArchiveReport, BackupFile, BackupOptions, BackupPlace, BulkLoader, CreateOptions, Database, Destination,
    Engine, EngineOptions, Error, JobKind, JobOrder, JobReport, Manifest, OpenOptions, RecoveryTarget,
    Source, TransactionOptions, Watch,
};
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FILE: &str = "a.gnt";
const ARCHIVE: &str = "archive";
/// Rows of a load: some 80 leaves.
const ROWS: u64 = 2500;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 12 << 20, ..EngineOptions::default() }).unwrap()
}

fn create(disk: &SimDisk, options: &OpenOptions) -> Database {
    disk.create_dir(Path::new("backups")).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    engine(disk).create(Path::new(FILE), &create, options).unwrap()
}

fn open(disk: &SimDisk, options: &OpenOptions) -> Result<Database, Error> {
    engine(disk).open(Path::new(FILE), options)
}

fn value(number: u64) -> [u8; 100] {
    [number as u8; 100]
}

fn push(loader: &mut BulkLoader<'_>, numbers: Range<u64>) -> Result<(), Error> {
    numbers.into_iter().try_for_each(|number| loader.push(&number.to_be_bytes(), &value(number)))
}

/// Loads a tree, half of it before `between`.
fn load(db: &Database, name: &str, between: impl FnOnce()) -> Result<(), Error> {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree(name)?;
    let mut loader = txn.bulk_loader(&tree)?;
    push(&mut loader, 0..ROWS / 2)?;
    between();
    push(&mut loader, ROWS / 2..ROWS)?;
    loader.finish()?;
    txn.commit()?;
    Ok(())
}

/// Rows of a tree, all of them as they should be; `None` where there is no such tree.
fn rows(db: &Database, name: &str) -> Result<Option<u64>, Error> {
    let mut txn = db.begin(TransactionOptions::default());
    let Some(tree) = txn.tree(name)? else { return Ok(None) };
    let mut cursor = txn.cursor(&tree, (Bound::Unbounded, Bound::Unbounded))?;
    let mut found = 0u64;
    while let Some((key, found_value)) = cursor.next()? {
        assert_eq!((key, found_value), (&found.to_be_bytes()[..], &value(found)[..]));
        found += 1;
    }
    Ok(Some(found))
}

fn is_sound(db: &Database) {
    let report = db.check().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

fn backup(db: &Database, name: &str, since: Option<&Manifest>) -> Manifest {
    backup_beside(db, name, since, &mut |_| Ok(()))
}

/// Takes a backup, and does `work` now and then meanwhile.
fn backup_beside(
    db: &Database,
    name: &str,
    since: Option<&Manifest>,
    work: &mut dyn FnMut(&JobReport) -> Result<(), Error>,
) -> Manifest {
    let folder = BackupPlace::new(Arc::clone(db.engine().disk()), "backups");
    let destination = Destination::Folder { folder, name: name.to_owned() };
    let options = BackupOptions { destination, since: since.cloned(), compress: None };
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    job.end(db.backup(options, &mut Watch::new(&job, work))).unwrap()
}

fn source(disk: &SimDisk, names: &[&str]) -> Source {
    let folder = BackupPlace::new(Arc::new(disk.clone()), "backups");
    let find = |name: &&str| BackupFile::find(&folder.join(name)).unwrap();
    Source::Files(names.iter().map(find).collect())
}

fn restored(disk: &SimDisk, names: &[&str], to: &str) -> Database {
    let engine = engine(disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let mut tell = |_: &_| Ok(());
    let watch = &mut Watch::new(&job, &mut tell);
    job.end(engine.restore(source(disk, names), Path::new(to), &OpenOptions::default(), watch)).unwrap();
    engine.open(Path::new(to), &OpenOptions::default()).unwrap()
}

#[test]
fn a_committed_load_is_at_home_and_hardly_in_the_log() {
    for policy in [CrashPolicy::KeepNone, CrashPolicy::KeepAll] {
        let disk = SimDisk::new(1);
        let db = create(&disk, &OpenOptions::default());
        let before = db.stats().end_lsn.0;
        load(&db, "t", || {}).unwrap();
        let logged = db.stats().end_lsn.0 - before;
        assert!(logged < ROWS * 100 / 2, "{logged} bytes of log");
        let after = disk.peek_crash(Some(policy), 1);
        drop(db);
        let db = open(&after, &OpenOptions::default()).unwrap();
        assert_eq!(rows(&db, "t").unwrap(), Some(ROWS));
        is_sound(&db);
        // It is a tree like any other.
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.tree("t").unwrap().unwrap();
        for number in ROWS..ROWS + 500 {
            txn.put(&tree, &number.to_be_bytes(), &value(number)).unwrap();
        }
        txn.commit().unwrap();
        let after = after.peek_crash(Some(policy), 2);
        let db = open(&after, &OpenOptions::default()).unwrap();
        assert_eq!(rows(&db, "t").unwrap(), Some(ROWS + 500));
        is_sound(&db);
    }
}

#[test]
fn a_power_cut_at_any_point_of_a_load_leaves_all_of_it_or_nothing() {
    let begun = SimDisk::new(2);
    create(&begun, &OpenOptions::default()).close().unwrap();
    let whole = {
        let disk = begun.peek_crash(None, 0);
        let db = open(&disk, &OpenOptions::default()).unwrap();
        let before = disk.io_count();
        load(&db, "t", || {}).unwrap();
        disk.io_count() - before
    };
    assert!(whole > 20, "{whole} requests");
    let mut found = [0, 0];
    for at in 1..=whole + 4 {
        let disk = begun.peek_crash(None, at);
        let db = open(&disk, &OpenOptions::default()).unwrap();
        disk.crash_after(at);
        let done = load(&db, "t", || {});
        disk.power_off();
        drop(db);
        let disk = disk.crash_image(at);
        let db = open(&disk, &OpenOptions::default()).unwrap_or_else(|error| panic!("at {at}: {error}"));
        let rows_found = rows(&db, "t").unwrap_or_else(|error| panic!("at {at}: {error}"));
        assert!([None, Some(ROWS)].contains(&rows_found), "at {at}: {rows_found:?}");
        assert!(done.is_err() || rows_found.is_some(), "at {at}: it was acknowledged");
        found[usize::from(rows_found.is_some())] += 1;
        is_sound(&db);
        // What was given out is there for others again.
        load(&db, "u", || {}).unwrap();
        assert_eq!(rows(&db, "u").unwrap(), Some(ROWS));
        is_sound(&db);
    }
    assert!(found[0] > 10 && found[1] > 1, "nothing, and all of it: {found:?}");
}

#[test]
fn backups_have_what_was_filled_beside_the_log_before_while_and_after_they_were_taken() {
    let disk = SimDisk::new(3);
    let db = create(&disk, &OpenOptions::default());
    load(&db, "before", || {}).unwrap();
    let full = backup(&db, "full", None);
    // One that a backup is taken in the middle of.
    let mut amid = None;
    load(&db, "amid", || amid = Some(backup(&db, "amid", Some(&full)))).unwrap();
    load(&db, "after", || {}).unwrap();
    backup(&db, "last", amid.as_ref());
    // While one is taken trees come and go all the time, so that pages are used again that it has copied.
    let mut phases = Vec::new();
    let mut work = |report: &JobReport| {
        if phases.len() < 12 {
            phases.push(report.phase.clone());
            load(&db, &format!("{} while", phases.len()), || {}).unwrap();
            let mut txn = db.begin(TransactionOptions::default());
            txn.drop_tree(&format!("{} while", phases.len() - 1)).unwrap();
            txn.commit().unwrap();
        }
        Ok(())
    };
    backup_beside(&db, "while", None, &mut work);
    assert!(phases.iter().any(|phase| phase != &phases[0]), "in several phases: {phases:?}");
    let loads = phases.len();
    db.close().unwrap();
    for (names, wanted) in [
        (&["full"][..], [Some(ROWS), None, None]),
        (&["full", "amid"], [Some(ROWS), None, None]),
        (&["full", "amid", "last"], [Some(ROWS); 3]),
        (&["while"], [Some(ROWS); 3]),
    ] {
        let db = restored(&disk, names, &format!("{}.gnt", names.concat()));
        let found = ["before", "amid", "after"].map(|name| rows(&db, name).unwrap());
        assert_eq!(found, wanted, "{names:?}");
        if names == ["while"] {
            let found: Vec<_> =
                (1..=loads).filter_map(|load| rows(&db, &format!("{load} while")).unwrap()).collect();
            assert!([&[ROWS][..], &[ROWS; 2]].contains(&&found[..]), "{found:?}");
        }
        is_sound(&db);
        db.close().unwrap();
    }
}

fn await_archived(db: &Database) -> ArchiveReport {
    let mut report = db.archive_report().unwrap();
    for _ in 0..600 {
        if report.archived_lsn >= db.stats().durable_lsn.0 {
            return report;
        }
        gannet_base::clock::sleep(Duration::from_millis(50));
        report = db.archive_report().unwrap();
    }
    panic!("{report:?}");
}

fn restored_to(disk: &SimDisk, name: &str, to: &str, target: RecoveryTarget) -> Result<Database, Error> {
    let engine = engine(disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let mut tell = |_: &_| Ok(());
    let watch = &mut Watch::new(&job, &mut tell);
    let archive = (Path::new(ARCHIVE), target);
    let open = OpenOptions::default();
    job.end(engine.restore_to(source(disk, &[name]), archive, Path::new(to), &open, watch))?;
    engine.open(Path::new(to), &open)
}

fn archived() -> OpenOptions {
    OpenOptions { archive: Some(ARCHIVE.into()), ..OpenOptions::default() }
}

#[test]
fn a_database_with_an_archive_logs_its_loads_also_when_it_is_opened_without() {
    let disk = SimDisk::new(4);
    let db = create(&disk, &archived());
    backup(&db, "b", None);
    load(&db, "with", || {}).unwrap();
    // After a crash what is done without it is still in the log.
    let disk = disk.peek_crash(None, 1);
    drop(db);
    let db = open(&disk, &OpenOptions::default()).unwrap();
    load(&db, "without", || {}).unwrap();
    let disk = disk.peek_crash(None, 2);
    drop(db);
    let db = open(&disk, &archived()).unwrap();
    load(&db, "behind", || {}).unwrap();
    assert_eq!(await_archived(&db).gap, None);
    db.close().unwrap();
    let db = restored_to(&disk, "b", "r.gnt", RecoveryTarget::End).unwrap();
    for name in ["with", "without", "behind"] {
        assert_eq!(rows(&db, name).unwrap(), Some(ROWS), "{name}");
    }
    is_sound(&db);
    // The copy is another database, which has none.
    let before = db.stats().end_lsn.0;
    load(&db, "beside", || {}).unwrap();
    assert!(db.stats().end_lsn.0 - before < ROWS * 100 / 2);
}

#[test]
fn what_was_filled_before_there_was_an_archive_is_a_gap_in_it() {
    let disk = SimDisk::new(6);
    let db = create(&disk, &OpenOptions::default());
    backup(&db, "first", None);
    load(&db, "before", || {}).unwrap();
    let disk = disk.peek_crash(None, 1);
    drop(db);
    let db = open(&disk, &archived()).unwrap();
    load(&db, "with", || {}).unwrap();
    let gap = await_archived(&db).gap.unwrap();
    backup(&db, "second", None);
    load(&db, "behind", || {}).unwrap();
    await_archived(&db);
    db.close().unwrap();
    let error = restored_to(&disk, "first", "a1.gnt", RecoveryTarget::End).unwrap_err().to_string();
    assert!(error.contains(&format!("has a gap from lsn {}", gap.0)), "{error}");
    let db = restored_to(&disk, "first", "a2.gnt", RecoveryTarget::Lsn(gap.0)).unwrap();
    assert_eq!(rows(&db, "before").unwrap(), None);
    let db = restored_to(&disk, "second", "a3.gnt", RecoveryTarget::End).unwrap();
    for name in ["before", "with", "behind"] {
        assert_eq!(rows(&db, name).unwrap(), Some(ROWS), "{name}");
    }
    is_sound(&db);
}

#[test]
fn a_leaf_that_the_device_has_not_kept_is_named_and_not_taken_for_an_empty_one() {
    let mut named = 0;
    for number in 1.. {
        let disk = SimDisk::new(5);
        let db = create(&disk, &OpenOptions::default());
        disk.set_faults(Faults {
            lost_write: Chance::At(vec![number]),
            only: Some(FILE.to_owned()),
            ..Faults::default()
        });
        load(&db, "t", || {}).unwrap();
        let is_lost = !disk.injected().is_empty();
        disk.set_faults(Faults::default());
        if !is_lost {
            break;
        }
        let after = disk.peek_crash(Some(CrashPolicy::KeepAll), number);
        drop(db);
        let outcome = open(&after, &OpenOptions::default()).and_then(|db| rows(&db, "t"));
        match outcome {
            Ok(found) => assert_eq!(found, Some(ROWS), "{number}"),
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("page "), "{number}: {said}");
                named += 1;
            }
        }
    }
    assert!(named > 0, "one of the writes has leaves");
}

/// Begins a load that is given up, of a tree that gets a row all the same; what is left of the load's last extent stays zeros.
fn give_up(db: &Database, name: &str) {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree(name).unwrap();
    push(&mut txn.bulk_loader(&tree).unwrap(), 0..1500).unwrap();
    txn.insert(&tree, &0_u64.to_be_bytes(), &value(0)).unwrap();
    txn.commit().unwrap();
}

#[test]
fn backups_leave_out_what_loads_have_not_come_to_and_know_how_much_it_is() {
    let disk = SimDisk::new(21);
    let options = OpenOptions::default();
    let db = create(&disk, &options);
    load(&db, "whole", || ()).unwrap();
    give_up(&db, "given up");
    let of_trees = |manifest: &Manifest| manifest.unwritten - manifest.unwritten_undo;
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("under way").unwrap();
    let mut loader = txn.bulk_loader(&tree).unwrap();
    push(&mut loader, 0..1500).unwrap();
    let full = backup(&db, "full", None);
    assert!(of_trees(&full) > 2 && of_trees(&full) < 30 && full.unwritten_undo > 0, "{full:?}");
    drop(loader);
    txn.rollback().unwrap();
    give_up(&db, "given up since");
    let more = backup(&db, "more", Some(&full));
    assert!(more.all_read.is_none());
    for names in [&["full"][..], &["full", "more"]] {
        let engine = engine(&disk);
        let job = engine.jobs().begin(JobOrder::new(JobKind::Verify));
        let verified =
            engine.verify(source(&disk, names), ModeRequest::Auto, &mut Watch::new(&job, &mut |_| Ok(())));
        job.end(verified).unwrap();
    }
    drop(db);
    let copy = restored(&disk, &["full", "more"], "copy.gnt");
    assert_eq!(rows(&copy, "whole").unwrap(), Some(ROWS));
    assert_eq!(rows(&copy, "given up").unwrap(), Some(1));
    assert_eq!(rows(&copy, "given up since").unwrap(), Some(1));
    assert_eq!(rows(&copy, "under way").unwrap(), None);
    // What is restored is backed up as well.
    let again = backup(&copy, "again", None);
    assert!(of_trees(&again) > 2, "{again:?}");
}
