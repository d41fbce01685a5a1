//! Sweep: what it says of garbage and of who holds it back, that it removes what it says, and that one that ends early leaves nothing
//! worse.

use gannet_io::Disk;
use gannet_io::sim::{Chance, Faults, SimDisk};
use gannet_store::{
    CreateOptions, Database, Engine, EngineOptions, Error, HolderKind, Isolation, JobKind, JobOrder,
    JobReport, JobState, OpenOptions, SweepReport, Transaction, TransactionOptions, Tree, Unit, Watch,
    thread_reads,
};
use std::path::Path;
use std::sync::Arc;

const FILE: &str = "s.gnt";
const PAGE: usize = 4096;
const SEGMENT: u64 = 16 * PAGE as u64;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 16 << 20, ..EngineOptions::default() }).unwrap()
}

/// Nothing is swept but by those who ask for it.
fn options() -> OpenOptions {
    OpenOptions { sweep: false, warm: false, ..OpenOptions::default() }
}

fn create(disk: &SimDisk) -> Database {
    let create = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    engine(disk).create(Path::new(FILE), &create, &options()).unwrap()
}

fn open(disk: &SimDisk) -> Database {
    engine(disk).open(Path::new(FILE), &options()).unwrap()
}

fn begin(db: &Database) -> Transaction {
    db.begin(TransactionOptions::default())
}

/// A snapshot that is held until it is dropped.
fn hold(db: &Database) -> Transaction {
    let options =
        TransactionOptions { isolation: Isolation::RepeatableRead, ..TransactionOptions::default() };
    let mut txn = db.begin(options);
    txn.trees().unwrap();
    txn
}

fn key(i: u64) -> Vec<u8> {
    format!("{i:06}").into_bytes()
}

/// A tree with so many rows, of which none has any garbage.
fn filled(db: &Database, rows: u64) -> Tree {
    let mut txn = begin(db);
    let tree = txn.create_tree("rows").unwrap();
    (0..rows).for_each(|i| txn.insert(&tree, &key(i), &[7; 100]).unwrap());
    txn.commit().unwrap();
    db.sweep().unwrap();
    tree
}

fn delete(db: &Database, tree: &Tree, keys: impl Iterator<Item = u64>) {
    let mut txn = begin(db);
    keys.for_each(|i| assert!(txn.delete(tree, &key(i)).unwrap()));
    txn.commit().unwrap();
}

fn look(
    db: &Database,
    show_only: bool,
    tell: &mut dyn FnMut(&JobReport) -> Result<(), Error>,
) -> Result<SweepReport, Error> {
    let job = db.jobs().begin(JobOrder::new(JobKind::Sweep));
    job.end(db.sweep_watched(show_only, &mut Watch::new(&job, tell)))
}

fn show(db: &Database) -> SweepReport {
    look(db, true, &mut |_| Ok(())).unwrap()
}

fn sweep(db: &Database) -> SweepReport {
    look(db, false, &mut |_| Ok(())).unwrap()
}

#[track_caller]
fn is_sound(db: &Database) {
    let findings = db.check().unwrap().findings;
    assert!(findings.is_empty(), "{findings:?}");
}

fn rows(db: &Database, tree: &Tree) -> usize {
    let mut txn = begin(db);
    let mut cursor = txn.cursor(tree, (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)).unwrap();
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn what_is_shown_is_what_is_removed() {
    let db = create(&SimDisk::new(1));
    let tree = filled(&db, 5000);
    let mut txn = begin(&db);
    (0..20).for_each(|i| txn.put(&tree, &key(4900 + i), &vec![9; 3 * PAGE]).unwrap());
    txn.commit().unwrap();
    db.sweep().unwrap();
    delete(&db, &tree, (0..4000).step_by(2));
    delete(&db, &tree, 4900..4910);
    let shown = show(&db);
    assert!(shown.shown_only && shown.before == shown.after && shown.before.held_segments == 0);
    assert!(shown.before.free_segments > 2 && shown.before.holders.is_empty(), "{shown:?}");
    let forecast = shown.forecast.as_ref().unwrap();
    // So few segments are all looked at.
    assert!(forecast.dead_entries.is_exact() && forecast.dead_entries.value == 2010.0, "{forecast:?}");
    assert_eq!((forecast.long_values.value, forecast.dropped_trees.value), (10.0, 0.0));
    assert_eq!(forecast.by_tree.len(), 1);
    assert_eq!(forecast.by_tree[0].name.as_deref(), Some("rows"));
    assert!(forecast.leaf_pages_most > 20.0 && forecast.leaf_pages_most < 2010.0, "{forecast:?}");
    // A simulated device says nothing of itself.
    assert!(forecast.seconds.is_none() && forecast.seconds_from.contains("nothing is known"), "{forecast:?}");
    let swept = sweep(&db);
    let cleaned = &swept.cleaned;
    assert_eq!((cleaned.dead_entries, cleaned.long_values), (2010, 10));
    assert_eq!(cleaned.segments, shown.before.free_segments);
    assert_eq!(cleaned.records as f64, forecast.records.value);
    assert_eq!((cleaned.by_tree.len(), cleaned.by_tree[0].dead_entries), (1, 2010));
    assert_eq!(cleaned.by_tree[0].name.as_deref(), Some("rows"));
    assert_eq!((swept.after.free_segments, swept.after.held_segments), (0, 0));
    assert_eq!(rows(&db, &tree), 5000 - 2010);
    is_sound(&db);
    let again = sweep(&db);
    assert_eq!((again.cleaned.segments, again.cleaned.records), (0, 0));
}

#[test]
fn who_holds_garbage_back_is_named() {
    let db = create(&SimDisk::new(2));
    let tree = filled(&db, 3000);
    delete(&db, &tree, 0..1000);
    let old = hold(&db);
    delete(&db, &tree, 1000..2000);
    let mut open = begin(&db);
    open.put(&tree, b"open", b"1").unwrap();
    delete(&db, &tree, 2000..3000);
    let swept = sweep(&db);
    // What was deleted before the snapshot was taken goes, but for a segment that has something newer, too.
    let before = swept.cleaned.dead_entries;
    assert!(before > 500 && before <= 1000, "{before}");
    let left = &swept.after;
    assert!(left.free_segments == 0 && left.held_segments > 2, "{left:?}");
    assert!(left.horizon < left.next_transaction);
    let [snapshot, writer] = &left.holders[..] else { panic!("{left:?}") };
    assert_eq!((snapshot.kind, snapshot.number), (HolderKind::Snapshot, old.canceller().number()));
    assert_eq!((writer.kind, writer.number), (HolderKind::Transaction, open.canceller().number()));
    assert_eq!(snapshot.held_bytes, left.held_segments * SEGMENT);
    assert!(snapshot.alone_bytes > 0 && snapshot.alone_bytes < snapshot.held_bytes, "{left:?}");
    assert!(writer.held_bytes > 0 && writer.alone_bytes == 0, "{left:?}");
    assert_eq!(snapshot.alone_bytes + writer.held_bytes, snapshot.held_bytes);
    let alone = snapshot.alone_bytes;
    drop(old);
    let swept = sweep(&db);
    assert_eq!(swept.cleaned.undo_bytes, alone);
    let between = swept.cleaned.dead_entries;
    assert!(between > 500 && before + between < 3000, "{before} and {between}");
    drop(open);
    let swept = sweep(&db);
    assert_eq!((before + between + swept.cleaned.dead_entries, swept.after.held_segments), (3000, 0));
    assert_eq!(rows(&db, &tree), 0);
    is_sound(&db);
}

#[test]
fn a_sweep_that_is_cancelled_leaves_the_rest_to_the_next_one() {
    let db = create(&SimDisk::new(3));
    let tree = filled(&db, 20_000);
    delete(&db, &tree, 0..15_000);
    let before = show(&db).before.free_segments;
    let mut told = 0;
    let ended = look(&db, false, &mut |report| {
        told += 1;
        // Somewhere within.
        if report.phase == "sweeps" && report.done > 3 { Err(Error::Cancelled) } else { Ok(()) }
    });
    // It is told every 50 ms of the device's time, which may be longer than it takes.
    let left = show(&db).before.free_segments;
    match ended {
        Err(Error::Cancelled) => assert!(left > 0 && left < before, "{left} of {before}"),
        other => assert!(other.is_ok() && told > 0 && left == 0),
    }
    is_sound(&db);
    sweep(&db);
    assert_eq!((show(&db).before.free_segments, rows(&db, &tree)), (0, 5000));
    is_sound(&db);
}

#[test]
fn one_that_is_cancelled_before_it_begins_removes_nothing() {
    let db = create(&SimDisk::new(4));
    let tree = filled(&db, 2000);
    delete(&db, &tree, 0..2000);
    let before = show(&db).before;
    let ended = look(&db, false, &mut |_| Err(Error::Cancelled));
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    assert_eq!(show(&db).before, before);
    let last = db.jobs().reports();
    assert!(last.iter().any(|job| job.kind == JobKind::Sweep && job.state == JobState::Cancelled));
}

#[test]
fn a_crash_amid_a_sweep_is_just_another_crash() {
    for seed in 0..6 {
        let disk = SimDisk::new(100 + seed);
        let db = create(&disk);
        let tree = filled(&db, 4000);
        delete(&db, &tree, 0..3000);
        db.checkpoint().unwrap();
        // The sweep's own log reaches the device, or part of it, or nothing.
        disk.crash_after(5 + 40 * seed);
        let _ = look(&db, false, &mut |_| Ok(()));
        drop(db);
        let db = open(&disk.crash_image(seed));
        db.await_restart();
        let tree = begin(&db).tree("rows").unwrap().unwrap();
        assert_eq!(rows(&db, &tree), 1000, "seed {seed}");
        is_sound(&db);
        sweep(&db);
        assert_eq!(show(&db).before.free_segments, 0, "seed {seed}");
        is_sound(&db);
    }
}

#[test]
fn a_dropped_tree_is_counted_when_its_pages_are_given_back() {
    let db = create(&SimDisk::new(5));
    let tree = filled(&db, 3000);
    let mut txn = begin(&db);
    txn.drop_tree("rows").unwrap();
    txn.commit().unwrap();
    drop(tree);
    assert_eq!(show(&db).forecast.unwrap().dropped_trees.value, 1.0);
    assert_eq!(sweep(&db).cleaned.trees, 1);
    is_sound(&db);
}

#[test]
fn garbage_of_an_earlier_life_is_known_before_it_is_swept() {
    for seed in 40..50 {
        let disk = SimDisk::new(seed);
        let db = create(&disk);
        let tree = filled(&db, 3000);
        delete(&db, &tree, 0..3000);
        db.close().unwrap();
        // At once: it is learned in the background what there is.
        assert_eq!(sweep(&open(&disk)).cleaned.dead_entries, 3000, "seed {seed}");
    }
}

#[test]
fn what_a_sweep_reads_follows_the_garbage() {
    // The same garbage, in a tree and in one ten times as large, from cold.
    let read = |rows: u64| {
        let disk = SimDisk::new(6);
        let db = create(&disk);
        let tree = filled(&db, rows);
        delete(&db, &tree, 1000..3000);
        db.close().unwrap();
        let db = open(&disk);
        db.await_restart();
        let before = thread_reads();
        let swept = sweep(&db);
        let read = thread_reads().since(before);
        assert_eq!(swept.cleaned.dead_entries, 2000);
        assert_eq!(swept.cleaned.bytes_read % PAGE as u64, 0);
        // Leaves and undo are not read one by one; inner nodes, and neighbours of those that get empty, are.
        assert!(read.serial_reads < read.batched_reads, "{read:?}");
        (read.serial_reads + read.batched_reads) as f64
    };
    let (small, large) = (read(6_000), read(60_000));
    assert!(large <= 1.2 * small, "{small} and {large} pages");
}

#[test]
fn a_row_that_is_changed_under_a_long_reader_stays_cheap() {
    let db = create(&SimDisk::new(7));
    let tree = filled(&db, 100);
    let pages_before = db.pages_by_tree().unwrap()[&tree.id()];
    let mut old = hold(&db);
    for round in 0..3000u64 {
        let mut txn = begin(&db);
        txn.put(&tree, &key(50), &round.to_le_bytes()).unwrap();
        txn.commit().unwrap();
    }
    let pages = |txn: &mut Transaction, expected: &[u8]| {
        let before = thread_reads();
        assert_eq!(txn.get(&tree, &key(50)).unwrap().as_deref(), Some(expected));
        let read = thread_reads().since(before);
        read.hits + read.serial_reads
    };
    // Who reads what is there now pays nothing for 3000 versions, who reads what was there then hardly anything.
    assert!(pages(&mut begin(&db), &2999u64.to_le_bytes()) <= 4);
    let of_old = pages(&mut old, &[7; 100]);
    assert!(of_old <= 10, "{of_old} pages");
    // The row has not grown, nor has its tree.
    assert_eq!(db.pages_by_tree().unwrap()[&tree.id()], pages_before);
    let held = show(&db).before;
    assert!(held.held_segments > 0 && held.free_segments == 0, "{held:?}");
    drop(old);
    sweep(&db);
    assert_eq!(show(&db).before.held_segments, 0);
    is_sound(&db);
}

// ---- snapshot_limit --------------------------------------------------------------------------------------------------

/// Waits until something holds that another thread brings about.
/// Pages that are waited for when all rows of more than fits into the memory are changed for the second time.
fn reads_of_second_changes(is_held: bool) -> u64 {
    const ROWS: u64 = 20_000;
    let disk = SimDisk::new(21);
    let db = create(&disk);
    let tree = filled(&db, ROWS);
    let change = |value: u8| {
        for first in (0..ROWS).step_by(500) {
            let mut txn = begin(&db);
            (first..first + 500).for_each(|i| txn.put(&tree, &key(i), &[value; 900]).unwrap());
            txn.commit().unwrap();
        }
    };
    // From here on versions are as long as rows.
    change(0);
    db.sweep().unwrap();
    let held = is_held.then(|| hold(&db));
    change(1);
    let before = thread_reads();
    change(2);
    let read = thread_reads().since(before);
    drop(held);
    db.sweep().unwrap();
    is_sound(&db);
    read.serial_reads + read.batched_reads
}

#[test]
fn who_changes_rows_under_a_long_reader_reads_nothing_of_what_they_were() {
    let (alone, held) = (reads_of_second_changes(false), reads_of_second_changes(true));
    assert!(alone > 4000, "{alone}: the rows do not fit into the memory");
    assert!(held < alone + alone / 5, "{held} pages, {alone} without a reader");
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        gannet_base::clock::sleep(std::time::Duration::from_millis(5));
    }
}

fn limited(disk: &SimDisk, limit: std::time::Duration) -> (Database, Tree) {
    let create = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    let options = OpenOptions { snapshot_limit: Some(limit), ..options() };
    let db = engine(disk).create(Path::new(FILE), &create, &options).unwrap();
    let tree = filled(&db, 2000);
    (db, tree)
}

const MOMENT: std::time::Duration = std::time::Duration::from_millis(1);

#[test]
fn a_snapshot_that_holds_garbage_back_for_too_long_is_ended() {
    let (db, tree) = limited(&SimDisk::new(20), MOMENT);
    let ended = Arc::new(gannet_base::sync::Mutex::new(Vec::new()));
    let told = Arc::clone(&ended);
    db.on_snapshot_limit(move |holder| told.lock().push(holder.number));
    let mut old = hold(&db);
    let number = old.canceller().number();
    // One whose own limit is another.
    let mut exempt = db.begin(TransactionOptions {
        isolation: Isolation::RepeatableRead,
        snapshot_limit: Some(std::time::Duration::ZERO),
        ..TransactionOptions::default()
    });
    assert!(exempt.get(&tree, &key(1)).unwrap().is_some());
    assert_eq!(db.holders().len(), 2);
    delete(&db, &tree, 0..2000);
    wait_until(|| !ended.lock().is_empty());
    assert!(matches!(old.get(&tree, &key(1)), Err(Error::TooOld)));
    assert!(matches!(old.put(&tree, &key(1), b"1"), Err(Error::TooOld)));
    assert!(exempt.get(&tree, &key(1)).unwrap().is_some());
    drop(old);
    // Who comes after it is not meant.
    assert!(begin(&db).get(&tree, &key(1)).unwrap().is_none());
    drop(exempt);
    assert_eq!(sweep(&db).after.held_segments, 0);
    assert_eq!(*ended.lock(), [number]);
    is_sound(&db);
}

#[test]
fn a_transaction_that_holds_garbage_back_for_too_long_cannot_commit() {
    let (db, tree) = limited(&SimDisk::new(21), MOMENT);
    let mut open = begin(&db);
    open.put(&tree, b"open", b"1").unwrap();
    delete(&db, &tree, 0..2000);
    let number = open.canceller().number();
    let holder = db.garbage().holders.remove(0);
    assert_eq!((holder.kind, holder.number), (HolderKind::Transaction, number));
    assert_eq!(holder.limit_seconds, Some(MOMENT.as_secs_f64()));
    wait_until(|| matches!(open.put(&tree, b"open", b"2"), Err(Error::TooOld)));
    assert!(matches!(open.commit(), Err(Error::TooOld)));
    assert!(begin(&db).get(&tree, b"open").unwrap().is_none());
    assert_eq!(sweep(&db).after.held_segments, 0);
}

#[test]
fn a_long_transaction_is_seen_behind_the_young_snapshots_of_its_statements() {
    let limit = std::time::Duration::from_millis(300);
    let (db, tree) = limited(&SimDisk::new(23), limit);
    let begun = gannet_base::clock::now();
    let mut open = begin(&db);
    open.put(&tree, b"open", b"1").unwrap();
    delete(&db, &tree, 0..2000);
    // One statement after the other: hardly ever there is none.
    let mut statement = open.view();
    while statement.check_limit().is_ok() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{:?}", db.holders());
        gannet_base::clock::sleep(std::time::Duration::from_millis(5));
        statement = open.view();
    }
    assert!(begun.elapsed() >= limit);
    drop(statement);
    assert!(matches!(open.commit(), Err(Error::TooOld)));
    assert_eq!(sweep(&db).after.held_segments, 0);
}

/// It was ended as soon as it was seen to hold anything, as its age was taken for how long it had.
#[test]
fn an_old_snapshot_may_hold_garbage_back_for_as_long_as_a_young_one() {
    let limit = std::time::Duration::from_secs(1);
    let (db, tree) = limited(&SimDisk::new(24), limit);
    let mut old = hold(&db);
    gannet_base::clock::sleep(limit + limit / 5);
    let begun = gannet_base::clock::now();
    delete(&db, &tree, 0..2000);
    // On a slow machine that alone may take as long.
    assert!(db.holders().len() == 1 || begun.elapsed() >= limit);
    wait_until(|| old.get(&tree, &key(1)).is_err());
    assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());
}

/// Limits were looked at of the first 100 holders only.
#[test]
fn behind_many_who_may_hold_garbage_back_one_who_may_not_is_seen() {
    let (db, tree) = limited(&SimDisk::new(25), MOMENT);
    let look = |limit: Option<std::time::Duration>| {
        let mut txn = db.begin(TransactionOptions {
            isolation: Isolation::RepeatableRead,
            snapshot_limit: limit,
            ..TransactionOptions::default()
        });
        assert!(txn.get(&tree, &key(1)).unwrap().is_some());
        txn
    };
    let many: Vec<_> = (0..110).map(|_| look(Some(std::time::Duration::ZERO))).collect();
    let mut meant = look(None);
    delete(&db, &tree, 0..2000);
    let begun = gannet_base::clock::now();
    while !matches!(meant.get(&tree, &key(1)), Err(Error::TooOld)) {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{} hold", many.len());
        gannet_base::clock::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn one_that_holds_nothing_back_may_be_old() {
    let (db, tree) = limited(&SimDisk::new(22), MOMENT);
    let mut old = hold(&db);
    gannet_base::clock::sleep(std::time::Duration::from_millis(1200));
    assert!(old.get(&tree, &key(1)).unwrap().is_some());
}

// ---- the background --------------------------------------------------------------------------------------------------

/// Jobs that the background has begun as there was much to free. On a slow machine a round becomes one also as it takes long.
fn long_sweeps(db: &Database) -> Vec<JobReport> {
    let reports = db.jobs().reports().into_iter();
    reports.filter(|job| job.reason.starts_with("by itself: ") && job.total >= 64).collect()
}

#[test]
fn a_long_round_of_the_background_is_a_job() {
    let create = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    let db = engine(&SimDisk::new(30)).create(Path::new(FILE), &create, &OpenOptions::default()).unwrap();
    let tree = filled(&db, 40_000);
    let old = hold(&db);
    delete(&db, &tree, 0..40_000);
    assert!(db.garbage().held_segments >= 64, "{:?}", db.garbage());
    let by_itself = || long_sweeps(&db);
    assert!(by_itself().is_empty(), "what little the filling has left is no job");
    drop(old);
    let mut jobs = Vec::new();
    wait_until(|| {
        jobs = by_itself();
        jobs.iter().any(|job| job.state == JobState::Done)
    });
    assert_eq!((jobs[0].kind, jobs[0].unit), (JobKind::Sweep, Unit::Segments));
    assert!(
        jobs[0].reason.starts_with("by itself: nobody can see ") && jobs[0].done >= jobs[0].total,
        "{:?}",
        jobs[0]
    );
    assert_eq!((jobs.len(), rows(&db, &tree)), (1, 0));
    is_sound(&db);
}

#[test]
fn a_long_round_waits_for_its_time_unless_there_is_too_much_of_it() {
    let create = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    let engine = engine(&SimDisk::new(31));
    let db = engine.create(Path::new(FILE), &create, &OpenOptions::default()).unwrap();
    engine.allow_long_sweeps(false);
    // A file so large that what is deleted is less than a tenth of it.
    let mut txn = begin(&db);
    let ballast = txn.create_tree("ballast").unwrap();
    let mut loader = txn.bulk_loader(&ballast).unwrap();
    (0..60_000).for_each(|i| loader.push(&key(i), &[7; 900]).unwrap());
    loader.finish().unwrap();
    txn.commit().unwrap();
    let tree = filled(&db, 40_000);
    let old = hold(&db);
    let mut deleted = 0;
    while db.garbage().held_segments < 66 {
        delete(&db, &tree, deleted..deleted + 500);
        deleted += 500;
    }
    drop(old);
    let by_itself = || long_sweeps(&db);
    // Segments that are complete, and that nobody holds back: they wait.
    let waiting = || db.garbage().free_segments >= 64;
    wait_until(waiting);
    gannet_base::clock::sleep(std::time::Duration::from_millis(300));
    assert!(waiting() && by_itself().is_empty(), "{:?}", by_itself());
    engine.allow_long_sweeps(true);
    let mut jobs = Vec::new();
    wait_until(|| {
        jobs = by_itself();
        jobs.iter().any(|job| job.state == JobState::Done)
    });
    assert!(!jobs[0].reason.contains("sweep_window"), "{jobs:?}");
    // More than a tenth of the file does not wait.
    engine.allow_long_sweeps(false);
    let old = hold(&db);
    let rest = db.stats().file_bytes / (16 * PAGE as u64) / 10 + 4;
    let mut text = 1;
    while db.garbage().held_segments < rest {
        let mut txn = begin(&db);
        (deleted..40_000).for_each(|i| txn.put(&tree, &key(i), &[text; 100]).unwrap());
        txn.commit().unwrap();
        text += 1;
    }
    drop(old);
    wait_until(|| by_itself().iter().any(|job| job.reason.contains("too much of the file to wait")));
    is_sound(&db);
}

#[test]
fn the_latest_jobs_are_remembered_and_no_more() {
    let db = create(&SimDisk::new(41));
    let jobs = db.jobs();
    let run = |automatic, about: &str| {
        let job =
            jobs.begin(JobOrder { automatic, about: about.to_owned(), ..JobOrder::new(JobKind::Sweep) });
        job.end(Ok::<_, Error>(())).unwrap();
    };
    let most = 32;
    (0..most).for_each(|_| run(false, "asked for"));
    // One that the database began is one more.
    run(true, "by itself");
    (0..most / 2).for_each(|number| run(false, &number.to_string()));
    run(true, "by itself, again");
    let about: Vec<_> = jobs.reports().into_iter().map(|job| job.about).collect();
    assert_eq!(about.len(), most);
    assert!(!about.contains(&"by itself".to_owned()), "only the latest of those counts");
    assert_eq!(about[most - 2..], ["15", "by itself, again"]);
}

#[test]
fn a_job_that_is_done_tells_of_its_longest_phase_and_others_of_where_they_ended() {
    let db = create(&SimDisk::new(42));
    for is_done in [true, false] {
        let job = db.jobs().begin(JobOrder::new(JobKind::Sweep));
        job.phase("long", Unit::Pages, 70);
        job.set_done(70);
        gannet_base::clock::sleep(std::time::Duration::from_millis(50));
        job.phase("short", Unit::Bytes, 0);
        let outcome = if is_done { Ok(()) } else { Err(Error::Cancelled) };
        let _ = job.end(outcome);
        drop(job);
        let last = db.jobs().reports().pop().unwrap();
        let (phase, done, total) = if is_done { ("long", 70, 70) } else { ("short", 0, 0) };
        assert_eq!((&*last.phase, last.done, last.total), (phase, done, total), "{last:?}");
        assert_eq!(last.rate > 0.0, is_done);
    }
}

#[test]
fn garbage_that_cannot_be_read_ended_all_changes() {
    let disk = SimDisk::new(32);
    let create = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    let options = OpenOptions { warm: false, ..OpenOptions::default() };
    let db = engine(&disk).create(Path::new(FILE), &create, &options).unwrap();
    let tree = filled(&db, 2000);
    let old = hold(&db);
    delete(&db, &tree, 0..1500);
    // Neither the undo nor the leaves of what was deleted stay in memory.
    let mut txn = begin(&db);
    let ballast = txn.create_tree("ballast").unwrap();
    let mut loader = txn.bulk_loader(&ballast).unwrap();
    (0..20_000).for_each(|i| loader.push(&key(i), &[7; 900]).unwrap());
    loader.finish().unwrap();
    txn.commit().unwrap();
    (0..40_000).step_by(2).for_each(|i| drop(begin(&db).get(&ballast, &key(i % 19_997)).unwrap()));
    let read_error = Chance::OneIn(1);
    disk.set_faults(Faults { read_error, only: Some(FILE.to_owned()), ..Faults::default() });
    drop(old);
    wait_until(|| !disk.injected().is_empty());
    gannet_base::clock::sleep(std::time::Duration::from_millis(300));
    disk.set_faults(Faults::default());
    let mut txn = begin(&db);
    txn.put(&tree, &key(1), b"again").unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
    // The segments stayed, and are found by the next start.
    let db = open(&disk);
    wait_until(|| db.garbage().free_segments > 0);
    db.sweep().unwrap();
    assert_eq!(db.garbage().free_segments, 0);
    is_sound(&db);
}
