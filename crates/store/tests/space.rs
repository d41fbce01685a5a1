//! Room in the data file: what is kept for rollbacks, what is found again, on a simulated device that may be full.

use gannet_io::sim::{Settings, SimDisk};
use gannet_io::{Disk, File, OpenOptions as FileOptions};
use gannet_store::{
    CreateOptions, Database, Engine, EngineOptions, Error, OpenOptions, Result, Transaction,
    TransactionOptions, Tree,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

const FILE: &str = "s.gnt";
const VALUE: usize = 200;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 32 << 20, ..EngineOptions::default() }).unwrap()
}

fn options() -> OpenOptions {
    OpenOptions { wal_limit: 4 << 20, ..OpenOptions::default() }
}

fn create(disk: &SimDisk) -> Database {
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    engine(disk).create(Path::new(FILE), &create, &options()).unwrap()
}

fn begin(db: &Database) -> Transaction {
    db.begin(TransactionOptions::default())
}

/// Even numbers are what a tree is filled with; odd ones lie between them.
fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

fn load(db: &Database, name: &str, bytes: usize) -> (Tree, u64) {
    let rows = (bytes / VALUE) as u64;
    let mut txn = begin(db);
    let tree = txn.create_tree(name).unwrap();
    let mut loader = txn.bulk_loader(&tree).unwrap();
    for i in 0..rows {
        loader.push(&key(2 * i), &[i as u8; VALUE]).unwrap();
    }
    loader.finish().unwrap();
    txn.commit().unwrap();
    (tree, rows)
}

fn drop_tree(db: &Database, name: &str) {
    let mut txn = begin(db);
    assert!(txn.drop_tree(name).unwrap());
    txn.commit().unwrap();
}

fn delete_all(txn: &mut Transaction, tree: &Tree, rows: u64) {
    for i in 0..rows {
        assert!(txn.delete(tree, &key(2 * i)).unwrap());
    }
}

/// Inserts rows with these odd keys, until there has been no room for a hundred of them.
fn fill(db: &Database, tree: &Tree, keys: impl Iterator<Item = u64>, value: usize) -> Rows {
    let mut rows = Rows::new();
    let put = |key: &[u8]| -> Result<()> {
        let mut txn = begin(db);
        txn.put(tree, key, &vec![7; value])?;
        txn.commit()
    };
    let refused = Cell::new(0);
    for i in keys.take_while(|_| refused.get() < 100) {
        let key = key(2 * i + 1);
        match put(&key) {
            Ok(()) => drop(rows.insert(key.to_vec(), vec![7; value])),
            Err(Error::NoSpace(_)) => refused.set(refused.get() + 1),
            Err(error) => panic!("{error}"),
        }
    }
    rows
}

/// Takes what room the device has left.
fn fill_device(disk: &SimDisk) -> Arc<dyn File> {
    let file = disk.open(Path::new("others"), &FileOptions::create_new()).unwrap();
    let (mut end, mut step) = (0, 1 << 30);
    while step >= 4096 {
        match file.allocate(end, step) {
            Ok(()) => end += step,
            Err(_) => step /= 2,
        }
    }
    file
}

fn contents(db: &Database, tree: &Tree) -> Rows {
    let mut txn = begin(db);
    let mut cursor = txn.cursor(tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        rows.insert(key.to_vec(), value.to_vec());
    }
    rows
}

fn full_device() -> Settings {
    Settings { capacity_bytes: Some(256 << 20), ..Settings::default() }
}

#[test]
fn a_large_delete_grows_the_file_by_its_undo_and_what_a_rollback_takes() {
    let db = create(&SimDisk::new(1));
    let deleted = 20 << 20;
    let (tree, rows) = load(&db, "t", deleted);
    let before = db.stats().file_bytes;
    let mut txn = begin(&db);
    delete_all(&mut txn, &tree, rows);
    let most = db.stats().file_bytes - before;
    assert!(most < 5 * deleted as u64, "{most} bytes while the transaction ran");
    txn.commit().unwrap();
    // The undo is as long as what was deleted, and some, and the file grows in steps of an eighth.
    let left = db.stats().file_bytes - before;
    assert!(left < 5 * deleted as u64 / 2, "{left} bytes afterwards");
    let report = db.check().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn a_large_delete_keeps_free_room_of_the_file_for_its_rollback() {
    let db = create(&SimDisk::new(2));
    let deleted = 8 << 20;
    load(&db, "other", 5 * deleted);
    let (tree, rows) = load(&db, "t", deleted);
    drop_tree(&db, "other");
    db.sweep().unwrap();
    let before = db.stats().file_bytes;
    let mut txn = begin(&db);
    delete_all(&mut txn, &tree, rows);
    assert_eq!(db.stats().file_bytes, before);
    txn.commit().unwrap();
    assert!(db.stats().file_bytes <= before);
}

fn is_rolled_back_on_a_full_device(free: usize, deleted: usize) {
    let disk = SimDisk::with_settings(3, full_device());
    let db = create(&disk);
    load(&db, "other", free.max(VALUE));
    let (tree, rows) = load(&db, "t", deleted);
    let mut all = contents(&db, &tree);
    drop_tree(&db, "other");
    db.sweep().unwrap();
    let mut deleting = begin(&db);
    delete_all(&mut deleting, &tree, rows);
    // Three new rows for four deleted ones just fit beside the tombstones.
    let among = fill(&db, &tree, (0..rows).filter(|i| i % 4 != 0), VALUE);
    let _others = fill_device(&disk);
    // Then everything else that the file has, and whatever else the leaves take.
    let more = 30_000 + (2 * free / VALUE) as u64;
    let behind = fill(&db, &tree, rows..rows + more, VALUE);
    assert!((behind.len() as u64) < more, "the device is full");
    all.extend(fill(&db, &tree, (0..rows).filter(|i| i % 4 == 0), VALUE));
    all.extend(behind);
    all.extend(among);
    deleting.rollback().unwrap();
    assert!(db.failure().is_none());
    assert!(contents(&db, &tree) == all);
    let report = db.check().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn a_large_delete_is_rolled_back_on_a_full_device() {
    is_rolled_back_on_a_full_device(0, 2 << 20);
}

/// It uses what it has reserved, which is little enough to be kept for the next ones, were it not used.
#[test]
fn what_a_rollback_has_used_is_reserved_no_more() {
    is_rolled_back_on_a_full_device(0, 1 << 20);
}

#[test]
fn a_large_delete_is_rolled_back_on_a_full_device_into_room_inside_the_file() {
    is_rolled_back_on_a_full_device(20 << 20, 2 << 20);
}

/// Bytes of rows that find room in a tree until the device is full.
fn room_for(db: &Database, tree: &Tree) -> usize {
    const LONGER: usize = 900;
    fill(db, tree, 1 << 40.., LONGER).len() * LONGER
}

#[test]
fn what_a_dropped_table_and_its_indexes_took_is_used_again_on_a_full_device() {
    let disk = SimDisk::with_settings(4, full_device());
    let db = create(&disk);
    // More than one space map describes, in trees that lie behind one another.
    let each = 20 << 20;
    for name in ["table", "index 1", "index 2"] {
        load(&db, name, each);
    }
    let (tree, _) = load(&db, "t", VALUE);
    let _others = fill_device(&disk);
    let before = room_for(&db, &tree);
    for name in ["table", "index 1", "index 2"] {
        drop_tree(&db, name);
    }
    // Nobody has swept yet. Undo takes its part of the room, too.
    let room = room_for(&db, &tree);
    assert!(room > 3 * each / 2, "room for {room} bytes after a drop of {} ({before} before)", 3 * each);
    db.close().unwrap();
}

#[test]
fn room_in_parts_of_the_file_that_nobody_has_looked_at_yet_is_found_on_a_full_device() {
    let disk = SimDisk::with_settings(5, full_device());
    let db = create(&disk);
    // The file ends in the second group, the room is in the first.
    let large = 24 << 20;
    load(&db, "first", large);
    load(&db, "second", large);
    load(&db, "t", VALUE);
    drop_tree(&db, "first");
    db.sweep().unwrap();
    db.close().unwrap();
    let _others = fill_device(&disk);
    let db = engine(&disk).open(Path::new(FILE), &options()).unwrap();
    let tree = begin(&db).tree("t").unwrap().unwrap();
    let room = room_for(&db, &tree);
    assert!(room > large / 2, "room for {room} bytes after a drop of {large}");
}

fn a_file_that_was_cut_survives_a_crash(grows_again: bool) {
    let disk = SimDisk::new(6);
    let db = create(&disk);
    let (tree, rows) = load(&db, "t", 4 << 20);
    let mut txn = begin(&db);
    delete_all(&mut txn, &tree, rows);
    let most = db.stats().file_bytes;
    txn.commit().unwrap();
    let cut = db.stats().file_bytes;
    assert!(cut < most, "{cut} of {most} bytes are left");
    let more = grows_again.then(|| contents(&db, &load(&db, "more", 12 << 20).0));
    assert_eq!(grows_again, db.stats().file_bytes > cut);
    for seed in 0..4 {
        let image = disk.crash_image(seed);
        let db = engine(&image).open(Path::new(FILE), &options()).unwrap();
        let mut txn = begin(&db);
        let (tree, found) = (txn.tree("t").unwrap().unwrap(), txn.tree("more").unwrap());
        drop(txn);
        assert!(contents(&db, &tree).is_empty());
        assert!(found.map(|found| contents(&db, &found)) == more);
        load(&db, "again", 4 << 20);
        let report = db.check().unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        db.close().unwrap();
    }
}

#[test]
fn a_crash_behind_a_cut_of_the_file_is_harmless() {
    a_file_that_was_cut_survives_a_crash(false);
}

#[test]
fn a_crash_behind_growth_that_follows_a_cut_of_the_file_is_harmless() {
    a_file_that_was_cut_survives_a_crash(true);
}

#[test]
fn the_file_grows_where_the_log_keeps_segments_it_does_not_need() {
    let disk = SimDisk::with_settings(11, full_device());
    let db = create(&disk);
    let (tree, _) = load(&db, "t", 1 << 20);
    let mut all = contents(&db, &tree);
    let segments = || disk.files().iter().filter(|path| path.extension().is_some_and(|e| e == "log")).count();
    let mut filled = 0;
    // How many there are depends on how soon changed pages are written, which is not for this test to say.
    while (filled < 20_000 || segments() < 8) && filled < 200_000 {
        all.extend(fill(&db, &tree, filled..filled + 5_000, VALUE));
        filled += 5_000;
    }
    db.close().unwrap();
    let db = engine(&disk).open(Path::new(FILE), &options()).unwrap();
    let tree = begin(&db).tree("t").unwrap().unwrap();
    assert!(segments() >= 8, "{} segments", segments());
    let _others = fill_device(&disk);
    let before = db.stats().file_bytes;
    let more = fill(&db, &tree, filled..filled + 40_000, VALUE);
    assert!(more.len() < 40_000, "the device is full");
    let grown = db.stats().file_bytes - before;
    // Others have left less than a page: a segment at least has made room. How many do depends on how many the log uses meanwhile.
    assert!(grown >= 1 << 18, "{grown} bytes");
    all.extend(more);
    assert!(contents(&db, &tree) == all);
    assert!(db.failure().is_none());
}
