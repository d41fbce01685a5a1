//! How large trees are said to be, samples of them, and what else a database tells of itself.

use gannet_base::sim::Generator;
use gannet_base::thread;
use gannet_io::Disk;
use gannet_io::sim::SimDisk;
use gannet_store::{
    CreateOptions, Database, Durability, Engine, EngineOptions, LockMode, OpenOptions, Transaction,
    TransactionOptions, Tree,
};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

fn create() -> Database {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let engine =
        Engine::with_disk(disk, &EngineOptions { memory: 16 << 20, ..EngineOptions::default() }).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    engine.create(Path::new("v.gnt"), &create, &OpenOptions::default()).unwrap()
}

fn begin(db: &Database) -> Transaction {
    db.begin(TransactionOptions::default())
}

/// Keys in an order that leaves pages half full here and there.
fn fill(db: &Database, rows: u32, value: usize) -> Tree {
    let mut txn = begin(db);
    let tree = txn.create_tree("t").unwrap();
    for number in 0..rows {
        let key = number.wrapping_mul(0x9E37_79B1).to_be_bytes();
        txn.put(&tree, &key, &vec![7; value]).unwrap();
    }
    txn.commit().unwrap();
    tree
}

#[test]
fn a_tree_tells_its_size_at_every_height() {
    for (rows, levels) in [(0, 1), (10, 1), (2000, 2), (60_000, 3)] {
        let db = create();
        let tree = fill(&db, rows, 100);
        let size = begin(&db).view().tree_size(&tree).unwrap();
        assert_eq!(size.levels, levels, "{rows} rows");
        let (least, most) = (f64::from(rows) * 0.7, f64::from(rows) * 1.4);
        assert!(size.entries >= least && size.entries <= most, "{rows} rows: {size:?}");
        let pages = db.pages_by_tree().unwrap()[&tree.id()] as f64;
        assert!(size.leaf_pages <= pages * 1.3 && size.leaf_pages >= pages * 0.6, "{pages} pages: {size:?}");
        db.close().unwrap();
    }
}

#[test]
fn a_tree_is_divided_into_parts_of_about_equal_size() {
    for (rows, parts, leaves) in [(0, 1, 0), (2000, 8, 50), (60_000, 8, 500), (60_000, 100, 500)] {
        let db = create();
        let tree = fill(&db, rows, 100);
        let view = begin(&db).view();
        let division = view.divide(&tree, (Bound::Unbounded, Bound::Unbounded), parts).unwrap();
        assert_eq!(division.keys.len() + 1, parts, "{rows} rows");
        assert!(division.keys.is_sorted() && division.leaf_pages >= leaves, "{division:?}");
        let mut scan = view.scan(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
        let (mut counts, mut last) = (Vec::new(), Vec::new());
        for part in 0..parts {
            let lower =
                part.checked_sub(1).map_or(Bound::Unbounded, |at| Bound::Included(&division.keys[at][..]));
            let upper = division.keys.get(part).map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
            scan.go_through((lower, upper));
            let mut count = 0;
            while let Some((key, _)) = scan.next().unwrap() {
                assert!(last.as_slice() < key || count == 0 && part == 0);
                last = key.to_vec();
                count += 1;
            }
            counts.push(count);
        }
        assert_eq!(counts.iter().sum::<u32>(), rows);
        let mean = rows / parts as u32;
        assert!(counts.iter().all(|count| (mean / 3..=mean * 3).contains(count)), "{counts:?}");
        db.close().unwrap();
    }
}

#[test]
fn of_a_range_only_what_lies_in_it_is_divided() {
    let db = create();
    let tree = fill(&db, 60_000, 100);
    let view = begin(&db).view();
    let (lower, upper) = ([0x40, 0, 0, 0], [0x50, 0, 0, 0]);
    for range in [
        (Bound::Included(&lower[..]), Bound::Excluded(&upper[..])),
        (Bound::Excluded(&lower[..]), Bound::Included(&upper[..])),
    ] {
        let division = view.divide(&tree, range, 8).unwrap();
        assert_eq!(division.keys.len(), 7);
        assert!(division.keys.iter().all(|key| key[..] >= lower[..] && key[..] <= upper[..]), "{division:?}");
        assert!((50..1000).contains(&division.leaf_pages), "{}", division.leaf_pages);
    }
    let one = (Bound::Included(&lower[..]), Bound::Included(&lower[..]));
    assert!(view.divide(&tree, one, 8).unwrap().keys.is_empty());
}

#[test]
fn a_size_follows_what_is_written() {
    let db = create();
    let tree = fill(&db, 10, 100);
    let mut sizes = Vec::new();
    for round in 0..4_u32 {
        let mut txn = begin(&db);
        for number in 0..5000_u32 {
            txn.put(&tree, &[&b"more"[..], &(round * 5000 + number).to_be_bytes()].concat(), &[1; 50])
                .unwrap();
        }
        txn.commit().unwrap();
        sizes.push(begin(&db).view().tree_size(&tree).unwrap().entries);
    }
    for (round, size) in sizes.iter().enumerate() {
        let rows = (round + 1) as f64 * 5000.0;
        assert!(*size > rows * 0.7 && *size < rows * 1.4, "{sizes:?}");
    }
}

#[test]
fn a_sample_is_spread_over_the_tree_and_bounded() {
    let db = create();
    let tree = fill(&db, 60_000, 100);
    let view = begin(&db).view();
    let mut sample = view.sample(&tree, 100).unwrap();
    let (mut rows, mut below) = (0_u32, 0_u32);
    let mut last = Vec::new();
    while sample
        .read_leaf(&mut |key, value| {
            assert!(last.as_slice() < key && value.len() == 100);
            last = key.to_vec();
            rows += 1;
            below += u32::from(key[0] < 64);
        })
        .unwrap()
    {}
    assert!((90..=101).contains(&sample.leaves_read()), "{}", sample.leaves_read());
    let estimate = f64::from(rows) / sample.leaves_read() as f64 * sample.leaf_pages();
    assert!((48_000.0..75_000.0).contains(&estimate), "{estimate}");
    // A quarter of the keys begins so.
    let share = f64::from(below) / f64::from(rows);
    assert!((0.18..0.32).contains(&share), "{share}");
}

#[test]
fn a_sample_of_more_leaves_than_there_are_is_everything() {
    for rows in [0, 1, 700, 20_000] {
        let db = create();
        let tree = fill(&db, rows, 60);
        let mut sample = begin(&db).view().sample(&tree, 1_000_000).unwrap();
        let mut seen = 0;
        while sample.read_leaf(&mut |_, _| seen += 1).unwrap() {}
        assert_eq!((seen, sample.leaves_read() as f64), (rows, sample.leaf_pages()));
    }
}

#[test]
fn a_sample_shows_what_its_view_sees() {
    let db = create();
    let tree = fill(&db, 3000, 60);
    let mut sample = begin(&db).view().sample(&tree, 1_000_000).unwrap();
    let mut txn = begin(&db);
    for number in 0..3000_u32 {
        let key = number.wrapping_mul(0x9E37_79B1).to_be_bytes();
        if number % 2 == 0 {
            txn.delete(&tree, &key).unwrap();
        } else {
            txn.put(&tree, &key, &[9; 300]).unwrap();
        }
    }
    txn.commit().unwrap();
    let mut seen = 0;
    while sample
        .read_leaf(&mut |_, value| {
            assert_eq!(value, [7; 60]);
            seen += 1;
        })
        .unwrap()
    {}
    assert_eq!(seen, 3000);
}

#[test]
fn who_waits_for_whom_is_told() {
    let db = Arc::new(create());
    let tree = fill(&db, 10, 10);
    let key = 3_u32.wrapping_mul(0x9E37_79B1).to_be_bytes();
    let mut holder = begin(&db);
    assert!(db.transactions().is_empty() && holder.canceller().transaction().is_none());
    holder.put(&tree, &key, b"mine").unwrap();
    let id = holder.id().unwrap();
    assert_eq!(holder.canceller().transaction(), Some(id));
    let waiter = thread::spawn("waiter", {
        let (db, tree) = (Arc::clone(&db), tree.clone());
        move || begin(&db).put(&tree, &key, b"later")
    });
    let waiting = loop {
        let found = db.transactions().into_iter().find(|report| report.waiting.is_some());
        match found {
            Some(report) => break report,
            None => thread::yield_now(),
        }
    };
    assert_eq!(waiting.waits_for, [id]);
    assert_eq!(db.transactions().len(), 2);
    holder.commit().unwrap();
    waiter.join().unwrap().unwrap();
}

#[test]
fn shared_locks_snapshots_and_background_work_are_told() {
    let db = create();
    let tree = fill(&db, 10, 10);
    let key = 3_u32.wrapping_mul(0x9E37_79B1).to_be_bytes();
    let mut txn = begin(&db);
    txn.lock(&tree, &key, LockMode::Share).unwrap();
    // Beside the row, the tree is held against being dropped.
    let mut locks = db.shared_row_locks(10);
    locks.retain(|lock| lock.tree.is_some());
    assert_eq!((locks.len(), locks[0].tree, &*locks[0].key), (1, Some(tree.id()), &key[..]));
    assert_eq!(Some(locks[0].holder), txn.id());
    assert!(locks[0].whole_row && db.snapshots().is_empty());
    let view = txn.view();
    assert_eq!(db.snapshots().len(), 1);
    drop((view, txn));
    let before = db.background_work();
    assert!(before.redo_from <= before.log_end && before.dirty_pages > 0);
    db.checkpoint().unwrap();
    let after = db.background_work();
    assert!(after.redo_from > before.redo_from && after.pages_written > before.pages_written);
}

#[test]
fn a_page_in_use_is_not_written_again_and_again() {
    const ROWS: u32 = 60_000;
    const HOT: u32 = 16;
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let engine =
        Engine::with_disk(disk, &EngineOptions { memory: 8 << 20, ..EngineOptions::default() }).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine.create(Path::new("hot.gnt"), &create, &OpenOptions::default()).unwrap();
    let mut txn = begin(&db);
    let tree = txn.create_tree("t").unwrap();
    let mut loader = txn.bulk_loader(&tree).unwrap();
    for i in 0..ROWS {
        loader.push(&i.to_be_bytes(), &[7; 400]).unwrap();
    }
    loader.finish().unwrap();
    txn.commit().unwrap();
    db.checkpoint().unwrap();
    let before = db.stats();
    let mut random = Generator::new(1);
    for round in 0..10_000 {
        let mut txn = begin(&db);
        // Far apart: each on a leaf of its own.
        let hot = (round % HOT) * (ROWS / HOT);
        txn.lock(&tree, &hot.to_be_bytes(), LockMode::Exclusive).unwrap();
        for _ in 0..3 {
            let cold = random.below(u64::from(ROWS)) as u32;
            assert!(txn.get(&tree, &cold.to_be_bytes()).unwrap().is_some());
        }
        txn.set_durability(Durability::Async);
        txn.commit().unwrap();
    }
    let after = db.stats();
    let evicted = after.pages_evicted - before.pages_evicted;
    let written = after.pages_written - before.pages_written;
    assert!(evicted > 10_000, "{evicted} pages were evicted");
    assert!(written < evicted / 8, "{written} pages were written, {evicted} evicted");
}
