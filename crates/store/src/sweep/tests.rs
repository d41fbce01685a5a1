//! What the undo directory says of segments, and what sweep does where it says too little.

use super::Segment;
use crate::tree::BTree;
use crate::{CreateOptions, Database, Engine, EngineOptions, OpenOptions, TransactionOptions, Tree};
use gannet_base::TxnId;
use gannet_io::sim::{Settings, SimDisk};
use std::path::Path;
use std::sync::Arc;

/// A database on a disk of so many bytes, which sweeps nothing by itself, and a tree with one row.
fn create(capacity_bytes: Option<u64>) -> (Database, Tree) {
    let disk = SimDisk::with_settings(1, Settings { capacity_bytes, ..Settings::default() });
    let options = EngineOptions { memory: 16 << 20, ..EngineOptions::default() };
    let engine = Engine::with_disk(Arc::new(disk), &options).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let options = OpenOptions { sweep: false, warm: false, ..OpenOptions::default() };
    let db = engine.create(Path::new("a.gnt"), &create, &options).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.insert(&tree, b"row", b"value").unwrap();
    txn.commit().unwrap();
    (db, tree)
}

/// Whose records a segment has at most was written down before there was a next one. Where there was no room for that, later transactions
/// went on with the old one, whose garbage a sweep took theirs for after a crash.
#[test]
fn a_segment_that_is_written_to_does_not_say_whose_records_it_has() {
    let (db, _) = create(Some(8 << 20));
    let shared = Arc::clone(&db.begin(TransactionOptions::default()).shared);
    let core = &*shared.core;
    let mut stream = shared.take_stream();
    let first = match stream.newest_segment() {
        Some(segment) => segment,
        None => {
            stream.start_segment(core, &shared.undo_directory, TxnId(7)).unwrap();
            stream.newest_segment().unwrap()
        }
    };
    let mut kept = 0;
    while core.space.reserve(core, 1).is_ok() {
        kept += 1;
    }
    assert!(stream.start_segment(core, &shared.undo_directory, TxnId(8)).is_err());
    let stored = |segment: &Segment| {
        let value = BTree::new(core, &shared.undo_directory).get(&segment.key()).unwrap().unwrap();
        Segment::decode(&segment.key(), &value).unwrap().highest_txn
    };
    assert_eq!(stored(&first), TxnId::NONE);
    core.space.release(core, kept);
    let full = stream.start_segment(core, &shared.undo_directory, TxnId(9)).unwrap().unwrap();
    assert_eq!(stored(&full), full.highest_txn);
    shared.give_stream(stream, true);
}

/// Of a segment that holds records of a transaction that has not ended, whatever is said of it, nothing is removed that is needed.
#[test]
fn a_segment_with_a_record_before_the_horizon_waits() {
    let (db, tree) = create(None);
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.delete(&tree, b"row").unwrap());
    let shared = Arc::clone(&txn.shared);
    let (key, value) = BTree::new(&shared.core, &shared.undo_directory).first_from(&[]).unwrap().unwrap();
    let mut segment = Segment::decode(&key, &value).unwrap();
    segment.highest_txn = TxnId(1);
    shared.streams.lock().complete.push_back(segment);
    db.sweep().unwrap();
    let waits = shared.streams.lock().complete.pop_back().unwrap();
    assert_eq!((waits.first, waits.highest_txn), (segment.first, txn.id().unwrap()));
    txn.rollback().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    assert_eq!(txn.get(&tree, b"row").unwrap(), Some(b"value".to_vec()));
}

/// Replaced long values stayed until a thousand smaller changes had filled the segment that names them.
#[test]
fn a_segment_that_keeps_much_from_being_freed_does_not_wait_until_it_is_full() {
    let (db, tree) = create(None);
    let shared = Arc::clone(&db.begin(TransactionOptions::default()).shared);
    let write = |len: usize| {
        let mut txn = db.begin(TransactionOptions::default());
        txn.put(&tree, b"row", &vec![7; len]).unwrap();
        txn.commit().unwrap();
        std::mem::take(&mut shared.streams.lock().complete).len()
    };
    assert_eq!(write(300 << 10), 0);
    assert_eq!(write(300 << 10), 0);
    assert_eq!(write(1), 1);
    assert_eq!(write(1), 0);
}

/// By it exact statistics are told that something was changed of which no transaction's number tells.
#[test]
fn what_is_taken_back_and_what_is_swept_is_counted() {
    let (db, tree) = create(None);
    let key = |number: u64| number.to_be_bytes();
    let mut txn = db.begin(TransactionOptions::default());
    (0..100).for_each(|number| txn.insert(&tree, &key(number), &[7; 5000]).unwrap());
    let other = txn.create_tree("other").unwrap();
    txn.insert(&other, b"row", b"value").unwrap();
    txn.commit().unwrap();
    let shared = Arc::clone(&db.begin(TransactionOptions::default()).shared);
    let count = || shared.undone_or_swept.load(std::sync::atomic::Ordering::SeqCst);
    let before = count();
    let mut txn = db.begin(TransactionOptions::default());
    (0..10).for_each(|number| assert!(txn.delete(&tree, &key(number)).unwrap()));
    assert_eq!(count(), before, "transactions tell of that");
    txn.rollback().unwrap();
    assert_eq!(count(), before + 10);
    let before = count();
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.delete(&tree, &key(20)).unwrap());
    txn.update(&tree, &key(21), b"short").unwrap();
    txn.commit().unwrap();
    db.sweep().unwrap();
    // A dead entry, two long values, and the segment that tells of them.
    assert!(count() >= before + 4, "{}", count() - before);
    let before = count();
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.drop_tree("other").unwrap());
    txn.commit().unwrap();
    db.sweep().unwrap();
    assert!(count() >= before + 4, "{}", count() - before);
}
