//! Reading ahead: whoever goes through much waits for little.

use gannet_io::sim::SimDisk;
use gannet_io::stats::Operation;
use gannet_io::{Class, Disk};
use gannet_store::{
    CreateOptions, Database, Engine, EngineOptions, OpenOptions, ThreadReads, TransactionOptions, Tree,
    thread_reads,
};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
const ROWS: u64 = 12_000;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 16 << 20, ..EngineOptions::default() }).unwrap()
}

/// Long keys, so that inner nodes have few children and the tree is high.
fn key(i: u64) -> Vec<u8> {
    let mut key = i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
    key.resize(300, (i % 251) as u8);
    // What tells neighbours apart stands at the end, or separators would be short.
    key.rotate_left(8);
    key[..4].copy_from_slice(&(i.wrapping_mul(0x9E37_79B9) as u32).to_be_bytes()[..4]);
    key
}

/// A database filled in random order, closed and opened again: nothing is in memory.
fn cold() -> (Database, Tree) {
    let disk = SimDisk::new(1);
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 20 };
    let db = engine(&disk).create(Path::new("a.gnt"), &create, &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    for i in 0..ROWS {
        txn.put(&tree, &key(i), &[1; 600]).unwrap();
    }
    txn.commit().unwrap();
    db.close().unwrap();
    // Nor does anybody fetch what was.
    disk.remove(Path::new("a.gnt-wal/hot")).unwrap();
    let db = engine(&disk).open(Path::new("a.gnt"), &OpenOptions::default()).unwrap();
    let tree = db.begin(TransactionOptions::default()).tree("t").unwrap().unwrap();
    (db, tree)
}

fn scan(db: &Database, tree: &Tree, forward: bool, from: &[u8], limit: u64) -> (u64, ThreadReads) {
    let view = db.begin(TransactionOptions::default()).view();
    let before = thread_reads();
    let mut scan = view.scan(tree, ALL).unwrap();
    if !from.is_empty() {
        scan.seek(from);
    }
    let mut rows = 0;
    while rows < limit {
        let row = if forward { scan.next().unwrap() } else { scan.previous().unwrap() };
        if row.is_none() {
            break;
        }
        rows += 1;
    }
    (rows, thread_reads().since(before))
}

#[test]
fn a_scan_waits_for_no_page_that_it_could_have_asked_for() {
    for forward in [true, false] {
        let (db, tree) = cold();
        let (rows, reads) = scan(&db, &tree, forward, &[], u64::MAX);
        assert_eq!(rows, ROWS);
        assert!(reads.batched_reads > 2500, "{reads:?}");
        // Only the way down to the first leaf.
        assert!(reads.serial_reads <= 4, "forward {forward}: {reads:?}");
        db.close().unwrap();
    }
}

#[test]
fn a_scan_from_the_middle_waits_for_its_first_leaf_only() {
    for forward in [true, false] {
        let (db, tree) = cold();
        let (rows, reads) = scan(&db, &tree, forward, &key(17), u64::MAX);
        assert!(rows > 0 && rows < ROWS);
        assert!(reads.serial_reads <= 8, "forward {forward}: {reads:?}");
    }
}

#[test]
fn a_short_scan_reads_little_more_than_it_shows() {
    let (db, tree) = cold();
    let (rows, reads) = scan(&db, &tree, true, &key(17), 3);
    assert_eq!(rows, 3);
    assert!(reads.batched_reads + reads.serial_reads <= 8 + 16, "{reads:?}");
    let view = db.begin(TransactionOptions::default()).view();
    let mut quiet = view.scan(&tree, ALL).unwrap();
    quiet.look_ahead(false);
    let before = thread_reads();
    for _ in 0..200 {
        quiet.next().unwrap();
    }
    assert_eq!(thread_reads().since(before).batched_reads, 0);
}

#[test]
fn look_ups_of_many_keys_wait_for_no_node_alone() {
    let (db, tree) = cold();
    let keys: Vec<_> = (0..400).map(|i| key(i * 29)).collect();
    let view = db.begin(TransactionOptions::default()).view();
    let before = thread_reads();
    let values = view.multi_get(&tree, &keys).unwrap();
    assert!(values.iter().all(Option::is_some));
    let reads = thread_reads().since(before);
    assert!(reads.serial_reads <= 2 && reads.batched_reads > 350, "{reads:?}");
    let more: Vec<_> = (0..400).map(|i| key(i * 29 + 7)).collect();
    view.prefetch(&tree, &more).unwrap();
    for key in &more {
        assert!(view.with_value(&tree, key, |value| value.len() == 600).unwrap().unwrap());
    }
    assert!(thread_reads().since(before).serial_reads <= 2);
}

#[test]
fn who_finds_some_keys_of_each_leaf_in_their_order_waits_for_few_of_them() {
    let (db, tree) = cold();
    let mut keys: Vec<_> = (0..ROWS).map(key).collect();
    keys.sort();
    let view = db.begin(TransactionOptions::default()).view();
    let mut finder = view.scan(&tree, ALL).unwrap();
    // Twice, as rounds of a join do.
    for round in 0..2 {
        let before = thread_reads();
        for key in keys.iter().enumerate().filter_map(|(i, key)| (i % 5 < 3 + round).then_some(key)) {
            assert_eq!(finder.find(key).unwrap().unwrap().len(), 600);
        }
        let reads = thread_reads().since(before);
        assert!(reads.batched_reads > 1500, "{reads:?}");
        assert!(reads.serial_reads * 100 < reads.batched_reads, "{reads:?}");
    }
}

#[test]
fn a_tree_filled_in_random_order_is_read_in_long_pieces() {
    const ROWS: u64 = 100_000;
    let disk = SimDisk::new(1);
    let memory = 64 << 20;
    let options = EngineOptions { memory, ..EngineOptions::default() };
    let engine = || Engine::with_disk(Arc::new(disk.clone()), &options).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 20 };
    let db = engine().create(Path::new("a.gnt"), &create, &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    for i in 0..ROWS {
        txn.put(&tree, &i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(20).to_be_bytes(), &[1; 100])
            .unwrap();
    }
    txn.commit().unwrap();
    let file = db.stats().file_bytes;
    assert!(file < ROWS * 108 * 3, "{file} bytes for {ROWS} rows");
    db.close().unwrap();
    for forward in [true, false] {
        disk.remove(Path::new("a.gnt-wal/hot")).unwrap();
        let db = engine().open(Path::new("a.gnt"), &OpenOptions::default()).unwrap();
        let tree = db.begin(TransactionOptions::default()).tree("t").unwrap().unwrap();
        let read_ahead =
            || disk.stats().snapshot().counts[Class::Prefetch as usize][Operation::Read as usize];
        let before = read_ahead();
        assert_eq!(scan(&db, &tree, forward, &[], u64::MAX).0, ROWS);
        let (requests, bytes) = (read_ahead().0 - before.0, read_ahead().1 - before.1);
        assert!(bytes > ROWS * 108, "{bytes} bytes read ahead");
        assert!(bytes / requests >= 3 * 4096, "{requests} requests for {bytes} bytes");
        db.close().unwrap();
    }
}

#[test]
fn a_reader_of_old_versions_waits_for_no_undo_that_it_could_have_asked_for() {
    let disk = SimDisk::new(1);
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 20 };
    let db = engine(&disk).create(Path::new("a.gnt"), &create, &OpenOptions::default()).unwrap();
    let write = |txn: &mut gannet_store::Transaction, tree: &Tree, i: u64, round: u8| {
        txn.put(tree, &i.to_be_bytes(), &[round; 300]).unwrap();
    };
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    for i in 0..ROWS {
        write(&mut txn, &tree, i, 0);
    }
    txn.commit().unwrap();
    let old = db.begin(TransactionOptions::default()).view();
    // Neighbours in the tree are none in the undo.
    for round in 1..=4 {
        for part in 0..20 {
            let mut txn = db.begin(TransactionOptions::default());
            for n in (part * ROWS / 20)..((part + 1) * ROWS / 20) {
                write(&mut txn, &tree, n * 7919 % ROWS, round);
            }
            txn.commit().unwrap();
        }
    }
    let read = |forward: bool, looks_ahead: bool| {
        let before = thread_reads();
        let mut scan = old.scan(&tree, ALL).unwrap();
        scan.look_ahead(looks_ahead);
        let mut rows = 0;
        while let Some((_, value)) = if forward { scan.next().unwrap() } else { scan.previous().unwrap() } {
            assert_eq!(value, [0; 300]);
            rows += 1;
        }
        assert_eq!(rows, ROWS);
        thread_reads().since(before)
    };
    for forward in [true, false] {
        let reads = read(forward, true);
        // How many versions a row has behind it depends on what of the undo was in memory when it was changed; the last page of the
        // longest way among 32 rows has nothing to be read with.
        assert!(reads.batched_reads > ROWS / 4 && reads.serial_reads * 8 < reads.batched_reads, "{reads:?}");
        // Nor does it read much in vain.
        let quiet = read(forward, false);
        assert!(
            reads.batched_reads + reads.serial_reads < quiet.serial_reads * 3 / 2,
            "{reads:?}, {quiet:?}"
        );
    }
    drop(old);
    db.close().unwrap();
}
