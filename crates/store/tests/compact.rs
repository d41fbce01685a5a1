//! Compaction: space goes back to the file system while others work, and nothing else changes; whatever happens meanwhile.

use gannet_base::sync::Mutex;
use gannet_base::{clock, thread};
use gannet_io::Disk;
use gannet_io::sim::SimDisk;
use gannet_store::{
    BackupFile, BackupOptions, CompactReport, CreateOptions, Database, Destination, Engine, EngineOptions,
    Error, Isolation, JobKind, JobOrder, JobState, Manifest, OpenOptions, Source, StatMode, StatOptions,
    TransactionOptions, Tree, Watch,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const FILE: &str = "c.gnt";
const COPY: &str = "copy.gnt";
const PAGE: usize = 4096;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 24 << 20, ..EngineOptions::default() }).unwrap()
}

fn create(disk: &SimDisk) -> Database {
    let options = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    engine(disk).create(Path::new(FILE), &options, &OpenOptions::default()).unwrap()
}

fn open(disk: &SimDisk, name: &str) -> Database {
    engine(disk).open(Path::new(name), &OpenOptions::default()).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

fn value(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number.wrapping_mul(31) ^ i as u64) as u8).collect()
}

/// Numbers that look as if drawn, each once.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |i| i.wrapping_mul(7_368_787) % count)
}

/// Fills a tree row by row, in scattered order, so that its leaves are as split as those of a used one.
fn fill(db: &Database, name: &str, rows: u64, len: usize) -> Rows {
    let mut all = Rows::new();
    let numbers: Vec<u64> = scattered(rows).collect();
    for (index, batch) in numbers.chunks(500).enumerate() {
        let mut txn = db.begin(TransactionOptions::default());
        let tree =
            if index == 0 { txn.create_tree(name) } else { txn.tree(name).map(Option::unwrap) }.unwrap();
        for &number in batch {
            let value = value(number, len);
            txn.put(&tree, &key(number), &value).unwrap();
            all.insert(key(number), value);
        }
        txn.commit().unwrap();
    }
    all
}

/// Deletes what `goes` says, of a tree and of its model.
fn delete(db: &Database, name: &str, rows: &mut Rows, goes: impl Fn(u64) -> bool) {
    let doomed: Vec<Vec<u8>> =
        (0..).zip(rows.keys()).filter(|(i, _)| goes(*i)).map(|(_, key)| key.clone()).collect();
    for batch in doomed.chunks(500) {
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.tree(name).unwrap().unwrap();
        for key in batch {
            assert!(txn.delete(&tree, key).unwrap());
            rows.remove(key);
        }
        txn.commit().unwrap();
    }
}

fn contents(db: &Database, name: &str) -> Rows {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree(name).unwrap().unwrap();
    let mut cursor = txn.cursor(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        rows.insert(key.to_vec(), value.to_vec());
    }
    rows
}

fn sound(db: &Database) {
    let report = db.check().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

fn live(rows: &Rows) -> u64 {
    rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
}

fn len(disk: &SimDisk, name: &str) -> u64 {
    disk.open(Path::new(name), &gannet_io::OpenOptions::read()).unwrap().len().unwrap()
}

fn cancelled_when(
    db: &Database,
    mut when: impl FnMut(&gannet_store::JobReport) -> bool,
) -> Result<CompactReport, Error> {
    let job = db.jobs().begin(JobOrder::new(JobKind::Compact));
    let mut tell =
        |report: &gannet_store::JobReport| if when(report) { Err(Error::Cancelled) } else { Ok(()) };
    job.end(db.compact_watched(&mut Watch::new(&job, &mut tell)))
}

/// After so many rows were deleted, the file is at most 1.3 times what is left.
fn shrinks_after(goes: impl Fn(u64) -> bool) {
    let disk = SimDisk::new(1);
    let db = create(&disk);
    let rows_before = 60_000;
    let mut rows = fill(&db, "t", rows_before, 200);
    let full = db.stats().file_bytes;
    delete(&db, "t", &mut rows, goes);
    let report = db.compact().unwrap();
    let (now, live) = (len(&disk, FILE), live(&rows));
    println!("{full} bytes before, {now} now, {live} live: {report:?}");
    assert_eq!((report.file_bytes, report.held.clone()), (now, vec![]));
    assert!(now * 10 <= live * 13, "{now} for {live} live bytes");
    assert!(report.file_bytes_before >= full && report.used_bytes <= now);
    assert_eq!(contents(&db, "t"), rows);
    sound(&db);
    // There is nothing left to do, and the file stays usable: what is put in makes it grow again.
    let again = db.compact().unwrap();
    assert!(again.file_bytes <= now && again.pages_moved < 32, "{again:?}");
    let more = fill(&db, "more", 3000, 300);
    assert_eq!((contents(&db, "t"), contents(&db, "more")), (rows.clone(), more.clone()));
    db.close().unwrap();
    let db = open(&disk, FILE);
    assert_eq!((contents(&db, "t"), contents(&db, "more")), (rows, more));
    sound(&db);
}

#[test]
fn a_file_shrinks_to_what_is_left_after_scattered_deletes() {
    shrinks_after(|i| i * 7 % 10 != 3);
}

#[test]
fn a_file_shrinks_to_what_is_left_when_the_first_rows_go() {
    shrinks_after(|i| i < 54_000);
}

#[test]
fn a_file_shrinks_to_what_is_left_when_the_last_rows_go() {
    shrinks_after(|i| i >= 6_000);
}

#[test]
fn roots_and_long_values_at_the_end_of_the_file_move_to_its_begin() {
    let disk = SimDisk::new(2);
    let db = create(&disk);
    let mut first = fill(&db, "first", 30_000, 300);
    // What comes later lies behind: roots, and long values with lists of more than one page.
    let mut long = fill(&db, "long", 60, 90_000);
    let mut huge = Rows::new();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("huge").unwrap();
    for number in 0..2 {
        let value = value(number, 3_000_000);
        txn.put(&tree, &key(number), &value).unwrap();
        huge.insert(key(number), value);
    }
    txn.commit().unwrap();
    let small = fill(&db, "small", 10, 50);
    delete(&db, "first", &mut first, |_| true);
    delete(&db, "long", &mut long, |i| i % 2 == 0);
    let report = db.compact().unwrap();
    println!("{report:?}");
    let live = live(&first) + live(&long) + live(&huge) + live(&small);
    assert!(report.value_pages_moved > 1000, "{report:?}");
    assert!(report.file_bytes * 10 <= live * 13, "{report:?} for {live} live bytes");
    for (name, rows) in [("first", &first), ("long", &long), ("huge", &huge), ("small", &small)] {
        assert_eq!(&contents(&db, name), rows, "{name}");
    }
    sound(&db);
    db.close().unwrap();
    let db = open(&disk, FILE);
    for (name, rows) in [("first", &first), ("long", &long), ("huge", &huge), ("small", &small)] {
        assert_eq!(&contents(&db, name), rows, "{name}");
    }
    // Handles from before work on, and so do drops.
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.drop_tree("huge").unwrap());
    txn.commit().unwrap();
    db.sweep().unwrap();
    sound(&db);
}
