//! What a crash leaves is done while the database is in use: nobody waits for it, and a crash in the middle of it is another crash.

use gannet_io::sim::{Chance, CrashPolicy, Faults, SimDisk};
use gannet_io::{AlignedBuffer, Class, Disk, Profile, ThrottledDisk};
use gannet_store::{
    CreateOptions, Database, Engine, EngineOptions, LockMode, OpenOptions, RestartPhase, TransactionOptions,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FILE: &str = "test.gnt";

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn engine(disk: &SimDisk, memory: u64) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory, ..EngineOptions::default() }).unwrap()
}

fn options() -> OpenOptions {
    OpenOptions { wal_limit: 8 << 20, shutdown_limit: Duration::ZERO, ..OpenOptions::default() }
}

fn create(disk: &SimDisk) -> Database {
    let small = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    engine(disk, 16 << 20).create(Path::new(FILE), &small, &options()).unwrap()
}

fn open(disk: &SimDisk) -> Database {
    engine(disk, 16 << 20).open(Path::new(FILE), &options()).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    let mut value = vec![round as u8; 100 + (number % 50) as usize];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

/// Commits rows `numbers` of this round.
fn write(db: &Database, model: &mut Model, numbers: impl Iterator<Item = u64>, round: u64) {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = match txn.tree("t").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("t").unwrap(),
    };
    for number in numbers {
        txn.put(&tree, &key(number), &value(number, round)).unwrap();
        model.insert(key(number), value(number, round));
    }
    txn.commit().unwrap();
}

fn contents(db: &Database) -> Model {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("t").unwrap().unwrap();
    let mut cursor = txn.cursor(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    let mut model = Model::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        model.insert(key.to_vec(), value.to_vec());
    }
    model
}

fn assert_sound(db: &Database) {
    let report = db.await_restart();
    assert!(report.phase == RestartPhase::Done && report.damaged_pages.is_empty(), "{report:?}");
    assert_eq!(db.check().unwrap().findings, []);
}

#[test]
fn rows_are_read_and_written_before_the_rest_is_redone() {
    let disk = SimDisk::new(1);
    let db = create(&disk);
    let mut model = Model::new();
    for round in 0..10 {
        write(&db, &mut model, (0..5000).filter(|number| number % 7 == round % 7), round);
    }
    let after = disk.crash_image(1);
    drop(db);
    let db = open(&after);
    write(&db, &mut model, (0..5000).step_by(500), 99);
    assert_eq!(contents(&db), model);
    assert!(db.restart_report().crashed);
    assert_sound(&db);
    assert_eq!(contents(&db), model);
}

/// Each read of the log fails once, at the opening or behind it. Whoever gathers what is due goes past it by each page's own way; what needs just
/// that leaves the database for reading.
#[test]
fn a_sector_of_the_log_that_cannot_be_read_ends_no_database() {
    let disk = SimDisk::new(7);
    let db = create(&disk);
    let mut model = Model::new();
    for round in 0..6 {
        write(&db, &mut model, (0..5000).filter(|number| number % 7 == round % 7), round);
    }
    let after = disk.crash_image(7);
    drop(db);
    let (mut refused, mut for_reading, mut as_before) = (0, 0, 0);
    for nth in (1..).step_by(3) {
        let image = after.peek_crash(None, nth);
        let read_error = Chance::At(vec![nth]);
        image.set_faults(Faults { read_error, only: Some(".log".to_owned()), ..Faults::default() });
        let opened = engine(&image, 16 << 20).open(Path::new(FILE), &options());
        let Ok(db) = opened else {
            assert!(!image.injected().is_empty());
            refused += 1;
            continue;
        };
        let report = db.await_restart();
        if image.injected().is_empty() {
            break;
        }
        assert_eq!(contents(&db), model, "{nth}");
        match db.begin(TransactionOptions::default()).create_tree("another") {
            Ok(_) => {
                assert_eq!(report.phase, RestartPhase::Done, "{nth}: {report:?}");
                let mut model = model.clone();
                write(&db, &mut model, 0..1, 99);
                assert_eq!(contents(&db), model, "{nth}");
                as_before += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("open for reading only"), "{nth}: {error}, {report:?}");
                for_reading += 1;
            }
        }
    }
    println!("{refused} times it did not open, {for_reading} times for reading, {as_before} times as before");
    assert!(as_before > 3, "{as_before}, {for_reading}, {refused}");
}

#[test]
fn a_row_of_a_transaction_that_was_cut_short_is_free_at_once() {
    let disk = SimDisk::new(2);
    let db = create(&disk);
    let mut model = Model::new();
    write(&db, &mut model, 0..3000, 0);
    let mut cut_short = db.begin(TransactionOptions::default());
    let tree = cut_short.tree("t").unwrap().unwrap();
    for number in 0..3000 {
        match number % 3 {
            0 => drop(cut_short.delete(&tree, &key(number)).unwrap()),
            _ => cut_short.put(&tree, &key(number), b"never committed").unwrap(),
        }
        cut_short.put(&tree, &key(10_000 + number), b"never committed").unwrap();
    }
    // Something committed behind it, so that its changes are in the log.
    write(&db, &mut model, 5000..5001, 0);
    let after = disk.crash_image(2);
    drop(cut_short);
    drop(db);
    let db = open(&after);
    assert_eq!(db.restart_report().losers, 1);
    let options = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..TransactionOptions::default() };
    let mut txn = db.begin(options);
    let tree = txn.tree("t").unwrap().unwrap();
    for number in (0..3000).rev().step_by(100) {
        // The last rows are the first to be reverted in the background, whatever comes of that meanwhile.
        assert_eq!(txn.get(&tree, &key(number)).unwrap(), Some(value(number, 0)));
        let mode = if number % 2 == 0 { LockMode::Share } else { LockMode::Exclusive };
        assert!(txn.lock(&tree, &key(number), mode).unwrap());
        txn.put(&tree, &key(number), &value(number, 7)).unwrap();
        model.insert(key(number), value(number, 7));
        txn.insert(&tree, &key(10_000 + number), b"new").unwrap();
        model.insert(key(10_000 + number), b"new".to_vec());
    }
    txn.commit().unwrap();
    assert_eq!(contents(&db), model);
    assert_sound(&db);
    assert_eq!(db.restart_report().reverted_losers, 1);
    assert_eq!(contents(&db), model);
}

#[test]
fn a_crash_in_a_restart_is_another_crash() {
    let mut disk = SimDisk::new(3);
    let db = create(&disk);
    let mut model = Model::new();
    for round in 0..6 {
        write(&db, &mut model, 0..2000, round);
    }
    let mut cut_short = db.begin(TransactionOptions::default());
    let tree = cut_short.tree("t").unwrap().unwrap();
    for number in 0..2000 {
        cut_short.put(&tree, &key(number), b"never committed").unwrap();
    }
    write(&db, &mut model, 5000..5001, 0);
    let mut image = disk.crash_image(3);
    drop(cut_short);
    drop(db);
    for round in 0..30 {
        disk = image;
        // In the middle of opening, or of what follows.
        disk.crash_after(5 + round * 9);
        if let Ok(db) = engine(&disk, 16 << 20).open(Path::new(FILE), &options()) {
            db.await_restart();
        }
        image = disk.crash_image(round);
    }
    let db = open(&image);
    assert_eq!(contents(&db), model);
    assert_sound(&db);
    assert_eq!(contents(&db), model);
}

#[test]
fn pages_that_came_home_are_not_looked_at() {
    let disk = SimDisk::new(4);
    let small = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    // A log so long that no checkpoint moves, and few page frames: most pages go home to make room.
    let options = OpenOptions { wal_limit: 1 << 30, ..options() };
    let db = engine(&disk, 8 << 20).create(Path::new(FILE), &small, &options).unwrap();
    let mut model = Model::new();
    for first in (0..60_000).step_by(1000) {
        write(&db, &mut model, first..first + 1000, 0);
    }
    let (frames, log_bytes) = (db.stats().frames, db.stats().log_bytes);
    let after = disk.crash_image(4);
    drop(db);
    let changed = after.open(Path::new(FILE), &gannet_io::OpenOptions::read()).unwrap().len().unwrap() / 4096;
    let db = engine(&after, 8 << 20).open(Path::new(FILE), &options).unwrap();
    let report = db.await_restart();
    assert!(report.log_bytes >= log_bytes / 2, "no checkpoint moved: {report:?}");
    assert!(changed > 2 * frames && report.pages <= frames + frames / 2, "{changed}, {frames}, {report:?}");
    assert_eq!(contents(&db), model);
    assert_sound(&db);
}

#[test]
fn a_log_at_its_limit_takes_commits_while_it_is_redone() {
    let disk = SimDisk::new(5);
    let db = create(&disk);
    let mut model = Model::new();
    let mut round = 0;
    while db.stats().log_bytes < 5 << 20 {
        write(&db, &mut model, (0..4000).filter(|number| number % 10 == round % 10), round);
        round += 1;
    }
    let mut image = disk.crash_image_with(CrashPolicy::KeepNone, 5);
    drop(db);
    // Each life adds to the log that the first one has left.
    for life in 0..5 {
        let db = open(&image);
        write(&db, &mut model, (0..4000).filter(|number| number % 10 == life), 100 + life);
        assert_eq!(contents(&db), model);
        image = image.crash_image(life);
    }
    let db = open(&image);
    assert_sound(&db);
    assert_eq!(contents(&db), model);
    db.close().unwrap();
}

#[test]
fn memory_for_few_changes_makes_many_rounds() {
    let disk = SimDisk::new(6);
    let small = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let open_options = OpenOptions { wal_limit: 64 << 20, ..options() };
    let db = engine(&disk, 64 << 20).create(Path::new(FILE), &small, &open_options).unwrap();
    let mut model = Model::new();
    for round in 0..40 {
        write(&db, &mut model, 0..4000, round);
    }
    let after = disk.crash_image(6);
    drop(db);
    let db = engine(&after, 8 << 20).open(Path::new(FILE), &open_options).unwrap();
    let report = db.await_restart();
    assert!(report.log_bytes > 10 << 20 && report.redone_pages > 50, "{report:?}");
    assert_eq!(contents(&db), model);
    assert_sound(&db);
}

/// Waits until more than so many pages were read ahead.
fn await_prefetched(db: &Database, pages: u64) {
    for _ in 0..6000 {
        if db.stats().pages_prefetched > pages {
            return;
        }
        gannet_base::clock::sleep(Duration::from_millis(10));
    }
    panic!("{:?}", db.stats());
}

/// Waits until all pages are in memory that were at the last close, which must be more than so many.
fn await_warm(db: &Database, pages: u64) {
    for _ in 0..6000 {
        let work = db.background_work();
        if work.pages_warmed > pages && work.pages_to_warm == 0 && !work.warming_up {
            assert_eq!(work.pages_left_cold, 0, "{work:?}");
            return;
        }
        gannet_base::clock::sleep(Duration::from_millis(10));
    }
    panic!("{:?}", db.background_work());
}

#[test]
fn pages_that_were_in_memory_are_there_after_the_next_start() {
    let disk = SimDisk::new(7);
    let db = create(&disk);
    let mut model = Model::new();
    write(&db, &mut model, 0..5000, 0);
    assert_eq!(contents(&db), model);
    let options = OpenOptions { shutdown_limit: Duration::from_secs(60), ..options() };
    db.close().unwrap();
    let db = engine(&disk, 16 << 20).open(Path::new(FILE), &options).unwrap();
    await_warm(&db, 150);
    let misses = db.stats().page_misses;
    assert_eq!(contents(&db), model);
    assert!(db.stats().page_misses - misses < 5, "what was in memory is in memory");
    db.close().unwrap();
}

#[test]
fn a_life_that_has_only_made_pages_leaves_a_list_of_them() {
    let disk = SimDisk::new(9);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    let rows: Vec<_> = (0..5000u32).map(u32::to_be_bytes).collect();
    txn.bulk_load(&tree, rows.iter().map(|key| (&key[..], &[1; 200][..]))).unwrap();
    txn.commit().unwrap();
    assert_eq!(db.stats().page_misses, 0, "then this shows nothing");
    db.close_within(Duration::from_secs(60)).unwrap();
    let db = open(&disk);
    // Nobody asks for any.
    await_prefetched(&db, 100);
}

#[test]
fn the_list_of_hot_pages_outlives_a_start_that_ends_before_redo_is_through() {
    let disk = SimDisk::new(8);
    let db = create(&disk);
    let mut model = Model::new();
    write(&db, &mut model, 0..5000, 0);
    db.close_within(Duration::from_secs(60)).unwrap();
    let db = open(&disk);
    assert_eq!(contents(&db), model);
    db.close().unwrap();
    let db = open(&disk);
    write(&db, &mut model, 0..5000, 1);
    let after = disk.crash_image_with(CrashPolicy::KeepAll, 8);
    drop(db);
    let list = |disk: &SimDisk| {
        let path = Path::new("test.gnt-wal/hot");
        let file = disk.open(path, &gannet_io::OpenOptions::read()).unwrap();
        let mut bytes = AlignedBuffer::zeroed(file.len().unwrap() as usize);
        file.read_at(Class::Foreground, 0, &mut bytes).unwrap();
        bytes.to_vec()
    };
    // On a device so slow that redo is not through before we are. One that is busy elsewhere may need it slower.
    let outlives = |millis| {
        let image = after.peek_crash(Some(CrashPolicy::KeepAll), 8);
        let latency = Duration::from_millis(millis);
        let slow = Profile {
            latency_min: latency,
            latency_max: latency,
            width: 1,
            ..Profile::named("slow-wide").unwrap()
        };
        let disk: Arc<dyn Disk> = Arc::new(ThrottledDisk::new(Arc::new(image.clone()), slow));
        let memory = EngineOptions { memory: 16 << 20, ..EngineOptions::default() };
        let db = Engine::with_disk(disk, &memory).unwrap().open(Path::new(FILE), &options()).unwrap();
        let is_under_way = db.restart_report().phase == RestartPhase::Redo;
        db.close().unwrap();
        let is_kept = is_under_way && list(&image) == list(&after);
        let db = open(&image);
        db.await_restart();
        assert_eq!(contents(&db), model);
        is_kept
    };
    assert!([5, 20, 80].into_iter().any(outlives), "what redo had brought by then was taken for hot");
}
