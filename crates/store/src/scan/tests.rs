//! Scans that meet what cannot be read.

use crate::tree::BTree;
use crate::{CreateOptions, Database, Engine, EngineOptions, OpenOptions, TransactionOptions, Tree};
use gannet_base::PageId;
use gannet_io::sim::SimDisk;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
const PAGE: u64 = 4096;

fn open(disk: &SimDisk) -> (Database, Tree) {
    let options = EngineOptions { memory: 16 << 20, ..EngineOptions::default() };
    let engine = Engine::with_disk(Arc::new(disk.clone()), &options).unwrap();
    let options = OpenOptions { sweep: false, warm: false, ..OpenOptions::default() };
    let db = engine.open(Path::new("a.gnt"), &options).unwrap();
    let tree = db.begin(TransactionOptions::default()).tree("t").unwrap().unwrap();
    (db, tree)
}

/// A closed database with a tree of so many rows, four of which fit a leaf.
fn filled(disk: &SimDisk, rows: u64) {
    let options = EngineOptions { memory: 16 << 20, ..EngineOptions::default() };
    let engine = Engine::with_disk(Arc::new(disk.clone()), &options).unwrap();
    let create = CreateOptions { page_size: PAGE as usize, segment_size: 1 << 18 };
    let db = engine.create(Path::new("a.gnt"), &create, &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    let mut loader = txn.bulk_loader(&tree).unwrap();
    (0..rows).for_each(|row| loader.push(&row.to_be_bytes(), &[7; 900]).unwrap());
    loader.finish().unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
}

/// Reading ahead failed the scan a thousand leaves before it had to.
#[test]
fn a_scan_comes_to_the_damaged_node_before_it_fails() {
    let disk = SimDisk::new(1);
    filled(&disk, 8000);
    let (db, tree) = open(&disk);
    let core = Arc::clone(&db.begin(TransactionOptions::default()).shared.core);
    let btree = BTree::new(&core, &tree.root);
    assert_eq!(btree.root_level().unwrap(), 2);
    let parents = btree.children_from(&[], 2).unwrap().pages;
    assert!(parents.len() >= 4, "{parents:?}");
    let first = |next: Option<Vec<u8>>| u64::from_be_bytes(next.unwrap()[..8].try_into().unwrap());
    let mut from = Vec::new();
    for _ in 0..2 {
        from = btree.children_from(&from, 1).unwrap().next.unwrap();
    }
    from.resize(8, 0);
    let whole = first(Some(from));
    drop(core);
    db.close().unwrap();
    disk.corrupt(Path::new("a.gnt"), parents[2].0 * PAGE + 1000, 8, 1).unwrap();
    let (db, tree) = open(&disk);
    let view = db.begin(TransactionOptions::default()).view();
    let mut scan = view.scan(&tree, ALL).unwrap();
    let mut rows = 0;
    let error = loop {
        match scan.next() {
            Ok(row) => assert_eq!(row.unwrap().0, &u64::to_be_bytes(rows)),
            Err(error) => break error,
        }
        rows += 1;
    };
    assert!(matches!(error, crate::Error::Damaged(_)), "{error}");
    assert_eq!(rows, whole);
}

/// A turn that could not read its leaf left the copy of before under the new direction.
#[test]
fn a_step_that_failed_is_the_same_step_when_it_is_tried_again() {
    let disk = SimDisk::new(2);
    filled(&disk, 400);
    let (db, tree) = open(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let core = Arc::clone(&txn.shared.core);
    let view = txn.view();
    let mut scan = view.scan(&tree, ALL).unwrap();
    let key = |row: u64| row.to_be_bytes();
    let failing = |fails: bool| {
        // Nothing of the file is in memory, so the next step reads.
        core.pool.forget_behind(&core.volume, PageId(0));
        let read_error = if fails { gannet_io::sim::Chance::OneIn(1) } else { gannet_io::sim::Chance::Never };
        let only = Some("a.gnt".to_owned());
        disk.set_faults(gannet_io::sim::Faults { read_error, only, ..Default::default() });
    };
    for row in 0..101 {
        assert_eq!(scan.next().unwrap().unwrap().0, &key(row));
    }
    failing(true);
    assert!(scan.previous().is_err());
    failing(false);
    assert_eq!(scan.previous().unwrap().unwrap().0, &key(99));
    failing(true);
    assert!(scan.next().is_err());
    failing(false);
    for row in 100..200 {
        assert_eq!(scan.next().unwrap().unwrap().0, &key(row));
    }
    failing(true);
    let behind =
        (200..400).find(|row| scan.next().map(|found| assert_eq!(found.unwrap().0, &key(*row))).is_err());
    failing(false);
    assert_eq!(scan.next().unwrap().unwrap().0, &key(behind.unwrap()));
    drop(scan);
    txn.rollback().unwrap();
}

/// Where a value could not be read, the next step was the one behind its row.
#[test]
fn a_row_whose_value_could_not_be_read_comes_with_the_next_step() {
    let disk = SimDisk::new(3);
    filled(&disk, 40);
    let (db, tree) = open(&disk);
    let key = |row: u64| row.to_be_bytes();
    let mut txn = db.begin(TransactionOptions::default());
    [5, 17].into_iter().for_each(|row| txn.put(&tree, &key(row), &[8; 3 * PAGE as usize]).unwrap());
    txn.commit().unwrap();
    db.checkpoint().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let core = Arc::clone(&txn.shared.core);
    let failing = |fails: bool| {
        core.pool.forget_behind(&core.volume, PageId(0));
        let read_error = if fails { gannet_io::sim::Chance::OneIn(1) } else { gannet_io::sim::Chance::Never };
        let only = Some("a.gnt".to_owned());
        disk.set_faults(gannet_io::sim::Faults { read_error, only, ..Default::default() });
    };
    let view = txn.view();
    let mut scan = view.scan(&tree, ALL).unwrap();
    scan.seek(&key(5));
    assert_eq!(scan.previous().unwrap().unwrap().0, &key(4));
    failing(true);
    assert!(scan.next().is_err());
    assert!(scan.next().is_err());
    failing(false);
    assert_eq!(scan.next().unwrap().unwrap(), (&key(5)[..], &[8; 3 * PAGE as usize][..]));
    scan.seek(&key(7));
    assert_eq!(scan.previous().unwrap().unwrap().0, &key(6));
    failing(true);
    assert!(scan.previous().is_err());
    failing(false);
    assert_eq!(scan.previous().unwrap().unwrap().0, &key(5));

    // What is shown, and passed over, likewise.
    struct Keys(Vec<u64>);
    impl super::Visitor for Keys {
        type Error = crate::Error;
        fn entry(&mut self, key: &[u8], _: &[u8]) -> crate::Result<()> {
            self.0.push(u64::from_be_bytes(key.try_into().unwrap()));
            Ok(())
        }
        fn goes_on(&mut self) -> crate::Result<bool> {
            Ok(true)
        }
    }
    let mut shown = Keys(Vec::new());
    let mut scan = view.scan(&tree, ALL).unwrap();
    scan.seek(&key(16));
    assert_eq!(scan.next().unwrap().unwrap().0, &key(16));
    failing(true);
    assert!(scan.show(&mut shown).is_err());
    failing(false);
    while scan.show(&mut shown).unwrap() {}
    assert_eq!(shown.0, (17..40).collect::<Vec<_>>());
    drop(scan);
    txn.rollback().unwrap();
}
