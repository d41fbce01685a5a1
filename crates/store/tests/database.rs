//! The store through its public surface, on a simulated device (outside a simulation: at full speed).

use gannet_base::sim::{Generator, Simulation};
use gannet_base::{clock, thread};
use gannet_io::Disk;
use gannet_io::sim::{Chance, Faults, SimDisk};
use gannet_store::{
    CreateOptions, Database, Durability, Engine, EngineOptions, Error, Isolation, LockMode, OpenOptions,
    Transaction, TransactionOptions, Tree,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 8 << 20, ..EngineOptions::default() }).unwrap()
}

fn small() -> CreateOptions {
    CreateOptions { page_size: 4096, segment_size: 1 << 18 }
}

fn create(disk: &SimDisk) -> Database {
    engine(disk).create(Path::new("test.gnt"), &small(), &OpenOptions::default()).unwrap()
}

fn open(disk: &SimDisk) -> Database {
    engine(disk).open(Path::new("test.gnt"), &OpenOptions::default()).unwrap()
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:08}").into_bytes()
}

fn value(i: u64, version: u64) -> Vec<u8> {
    format!("value {i} of version {version}, {}", "x".repeat((i * 7 + version * 13) as usize % 200))
        .into_bytes()
}

fn contents(db: &Database, name: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree(name).unwrap().unwrap();
    let mut cursor = txn.cursor(&tree, ALL).unwrap();
    let mut all = BTreeMap::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        all.insert(key.to_vec(), value.to_vec());
    }
    all
}

#[test]
fn rows_are_there_after_commit_close_and_reopen() {
    let disk = SimDisk::new(1);
    let db = create(&disk);
    let mut model = BTreeMap::new();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    for i in 0..5000 {
        let i = i * 7919 % 5000;
        txn.put(&tree, &key(i), &value(i, 0)).unwrap();
        model.insert(key(i), value(i, 0));
    }
    txn.commit().unwrap();
    assert_eq!(contents(&db, "t"), model);
    let mut txn = db.begin(TransactionOptions::default());
    for i in (0..5000).step_by(3) {
        assert!(txn.delete(&tree, &key(i)).unwrap());
        model.remove(&key(i));
    }
    for i in (1..5000).step_by(3) {
        assert!(txn.update(&tree, &key(i), &value(i, 1)).unwrap());
        model.insert(key(i), value(i, 1));
    }
    txn.commit().unwrap();
    assert_eq!(contents(&db, "t"), model);
    db.close().unwrap();
    let db = open(&disk);
    assert!(!db.restart_report().crashed);
    assert_eq!(contents(&db, "t"), model);
}

#[test]
fn the_file_alone_is_complete_after_a_clean_close() {
    let disk = SimDisk::new(2);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
    for name in disk.list(Path::new("test.gnt-wal")).unwrap() {
        disk.remove(&Path::new("test.gnt-wal").join(name)).unwrap();
    }
    let db = open(&disk);
    assert_eq!(contents(&db, "t").len(), 1);
}

#[test]
fn a_crash_keeps_commits_and_reverts_the_rest() {
    let disk = SimDisk::new(3);
    let db = create(&disk);
    let mut model = BTreeMap::new();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    for i in 0..2000 {
        txn.put(&tree, &key(i), &value(i, 0)).unwrap();
        model.insert(key(i), value(i, 0));
    }
    txn.commit().unwrap();
    let mut open_txn = db.begin(TransactionOptions::default());
    for i in 0..1000 {
        open_txn.put(&tree, &key(i * 3), &value(i, 9)).unwrap();
    }
    // Something committed behind it, so that its changes are in the log.
    let mut txn = db.begin(TransactionOptions::default());
    txn.put(&tree, b"zzz", b"last").unwrap();
    txn.commit().unwrap();
    model.insert(b"zzz".to_vec(), b"last".to_vec());
    let after = disk.crash_image(7);
    drop(open_txn);
    drop(db);
    let db = open(&after);
    let report = db.restart_report();
    assert!(report.crashed && report.losers == 1, "{report:?}");
    assert_eq!(contents(&db, "t"), model);
}

#[test]
fn a_rotten_page_whose_history_is_recycled_is_reported_alone() {
    let disk = SimDisk::new(13);
    let options = OpenOptions { wal_limit: 1 << 20, ..OpenOptions::default() };
    let db = engine(&disk).create(Path::new("test.gnt"), &small(), &options).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let (rotten, other) = (txn.create_tree("rotten").unwrap(), txn.create_tree("other").unwrap());
    txn.put(&rotten, b"a", b"needle in the file").unwrap();
    txn.commit().unwrap();
    for round in 0..40 {
        let mut txn = db.begin(TransactionOptions::default());
        for i in 0..300 {
            txn.put(&other, &key(i), &value(i, round)).unwrap();
        }
        txn.commit().unwrap();
        db.checkpoint().unwrap();
    }
    let mut txn = db.begin(TransactionOptions::default());
    txn.put(&rotten, b"b", b"2").unwrap();
    txn.commit().unwrap();
    let after = disk.crash_image_with(gannet_io::sim::CrashPolicy::KeepNone, 7);
    drop(db);
    let bytes = after.contents(Path::new("test.gnt")).unwrap();
    let at = bytes.windows(6).position(|w| w == b"needle").unwrap() as u64;
    after.corrupt(Path::new("test.gnt"), at, 6, 1).unwrap();
    let db = engine(&after).open(Path::new("test.gnt"), &options).unwrap();
    let damaged = &db.await_restart().damaged_pages;
    assert!(damaged.len() == 1 && damaged[0].contains(&format!("page {}", at / 4096)), "{damaged:?}");
    assert_eq!(contents(&db, "other").len(), 300);
}

#[test]
fn snapshots_see_what_was_there() {
    let disk = SimDisk::new(4);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    for i in 0..300 {
        txn.put(&tree, &key(i), &value(i, 0)).unwrap();
    }
    txn.commit().unwrap();
    let options =
        TransactionOptions { isolation: Isolation::RepeatableRead, ..TransactionOptions::default() };
    let mut old = db.begin(options);
    assert_eq!(old.get(&tree, &key(0)).unwrap(), Some(value(0, 0)));
    for version in 1..20 {
        let mut txn = db.begin(TransactionOptions::default());
        for i in 0..300 {
            txn.put(&tree, &key(i), &value(i, version)).unwrap();
        }
        txn.delete(&tree, &key(version)).unwrap();
        txn.commit().unwrap();
        db.sweep().unwrap();
    }
    for i in 0..300 {
        assert_eq!(old.get(&tree, &key(i)).unwrap(), Some(value(i, 0)));
    }
    let mut cursor = old.cursor(&tree, ALL).unwrap();
    let mut count = 0;
    while cursor.previous().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 300);
    drop(cursor);
    assert!(matches!(old.put(&tree, &key(5), b"late"), Err(Error::Conflict(_))));
    drop(old);
    db.sweep().unwrap();
    assert_eq!(contents(&db, "t").len(), 299);
}

#[test]
fn a_snapshot_sees_the_value_before_a_locked_and_updated_row() {
    let disk = SimDisk::new(4);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    txn.commit().unwrap();
    let options =
        TransactionOptions { isolation: Isolation::RepeatableRead, ..TransactionOptions::default() };
    let mut old = db.begin(options);
    assert_eq!(old.get(&tree, b"a").unwrap().unwrap(), b"1");
    for version in [b"2", b"3"] {
        let mut txn = db.begin(TransactionOptions::default());
        txn.lock(&tree, b"a", LockMode::Exclusive).unwrap();
        txn.put(&tree, b"a", version).unwrap();
        txn.commit().unwrap();
    }
    assert_eq!(old.get(&tree, b"a").unwrap().unwrap(), b"1");
}

#[test]
fn savepoints_take_back_a_part() {
    let disk = SimDisk::new(5);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    let savepoint = txn.savepoint();
    txn.put(&tree, b"a", b"2").unwrap();
    txn.put(&tree, b"b", b"2").unwrap();
    txn.delete(&tree, b"a").unwrap();
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(txn.get(&tree, b"a").unwrap(), Some(b"1".to_vec()));
    assert_eq!(txn.get(&tree, b"b").unwrap(), None);
    txn.put(&tree, b"c", b"3").unwrap();
    txn.commit().unwrap();
    let all = contents(&db, "t");
    assert_eq!(all.keys().map(|k| k[0]).collect::<Vec<_>>(), b"ac");
    let mut txn = db.begin(TransactionOptions::default());
    txn.put(&tree, b"d", b"4").unwrap();
    txn.rollback().unwrap();
    assert_eq!(contents(&db, "t").len(), 2);
}

#[test]
fn long_values_come_and_go() {
    let disk = SimDisk::new(6);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    let long: Vec<u8> = (0..5_000_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
    txn.put(&tree, b"long", &long).unwrap();
    txn.commit().unwrap();
    let file = db.stats().file_bytes;
    for round in 0..5 {
        let mut txn = db.begin(TransactionOptions::default());
        txn.put(&tree, b"long", &long[round..]).unwrap();
        if round % 2 == 0 {
            txn.rollback().unwrap();
        } else {
            txn.commit().unwrap();
        }
        db.sweep().unwrap();
    }
    let mut txn = db.begin(TransactionOptions::default());
    assert_eq!(txn.get(&tree, b"long").unwrap().unwrap(), long[3..]);
    drop(txn);
    assert!(db.stats().file_bytes < file * 4, "{} against {file}", db.stats().file_bytes);
}

#[test]
fn trees_are_created_and_dropped_by_transactions() {
    let disk = SimDisk::new(7);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let gone = txn.create_tree("gone").unwrap();
    txn.put(&gone, b"a", b"1").unwrap();
    txn.rollback().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.tree("gone").unwrap().is_none());
    assert!(txn.put(&gone, b"a", b"1").is_err());
    let tree = txn.create_tree("gone").unwrap();
    txn.put(&tree, b"b", b"2").unwrap();
    assert!(matches!(txn.create_tree("gone"), Err(Error::Duplicate)));
    txn.commit().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.drop_tree("gone").unwrap());
    assert!(!txn.drop_tree("never").unwrap());
    txn.commit().unwrap();
    db.sweep().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.trees().unwrap().is_empty());
    assert!(txn.get(&tree, b"b").is_err());
}

#[test]
fn a_drop_rolled_back_leaves_the_tree() {
    let disk = SimDisk::new(7);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.drop_tree("t").unwrap());
    txn.rollback().unwrap();
    assert!(db.check().unwrap().findings.is_empty());
    let mut txn = db.begin(TransactionOptions::default());
    txn.create_tree("other").unwrap();
    txn.commit().unwrap();
    assert_eq!(contents(&db, "t").len(), 1);
}

/// Writers of a few trees, and somebody who drops one of them and mostly thinks better of it.
#[test]
fn nobody_writes_to_a_tree_that_is_being_dropped() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let mut drops = 0;
    for seed in 0..60 {
        let run = move || {
            let db = Arc::new(create(&SimDisk::new(seed)));
            let mut txn = db.begin(TransactionOptions::default());
            let trees: Vec<_> = NAMES.iter().map(|name| txn.create_tree(name).unwrap()).collect();
            txn.commit().unwrap();
            // How many write to each tree, and whether it is dropped.
            let writing: Arc<[AtomicU32; 3]> = Arc::default();
            let dropping: Arc<[AtomicBool; 3]> = Arc::default();
            let writer = |number: u64| {
                let (db, trees) = (Arc::clone(&db), trees.clone());
                let (writing, dropping) = (Arc::clone(&writing), Arc::clone(&dropping));
                thread::spawn("writer", move || {
                    let mut random = Generator::new(seed * 10 + number);
                    for round in 0..12_u64 {
                        let mut txn = db.begin(TransactionOptions::default());
                        let savepoint = txn.savepoint();
                        let mut own = [0; 3];
                        for _ in 0..1 + random.below(3) {
                            let i = random.below(3) as usize;
                            if txn.put(&trees[i], &key(number), &round.to_le_bytes()).is_err() {
                                // Dropped, or a deadlock.
                                break;
                            }
                            writing[i].fetch_add(1 - own[i], Ordering::SeqCst);
                            own[i] = 1;
                            assert!(!dropping[i].load(Ordering::SeqCst), "written while it is dropped");
                            (0..random.below(4)).for_each(|_| thread::yield_now());
                        }
                        writing
                            .iter()
                            .zip(own)
                            .for_each(|(all, own)| _ = all.fetch_sub(own, Ordering::SeqCst));
                        match random.below(4) {
                            0 => txn.rollback().unwrap(),
                            1 => txn.rollback_to(savepoint).unwrap(),
                            _ => txn.commit().unwrap(),
                        }
                    }
                })
            };
            let threads: Vec<_> = (0..3).map(writer).collect();
            let mut random = Generator::new(seed);
            let mut dropped = 0;
            for round in 0..10 {
                let i = random.below(3) as usize;
                let mut txn = db.begin(TransactionOptions::default());
                if txn.drop_tree(NAMES[i]).is_ok_and(|was_there| was_there) {
                    dropping[i].store(true, Ordering::SeqCst);
                    (0..random.below(6)).for_each(|_| thread::yield_now());
                    assert_eq!(writing[i].load(Ordering::SeqCst), 0, "somebody writes to it");
                    dropped += 1;
                    if round == 9 {
                        txn.commit().unwrap();
                        let mut late = db.begin(TransactionOptions::default());
                        assert!(late.put(&trees[i], b"late", b"").is_err());
                        continue;
                    }
                    dropping[i].store(false, Ordering::SeqCst);
                }
                txn.rollback().unwrap();
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(db.shared_row_locks(10).is_empty());
            dropped
        };
        drops += Simulation::new(seed).run(run).unwrap();
    }
    assert!(drops > 100, "{drops}");
}

/// Rows are added behind all others and taken away again, so that the last leaf is split, merged away and is the root again.
#[test]
fn the_end_of_a_tree_moves_under_many_hands() {
    const WRITERS: u64 = 3;
    for seed in 0..25 {
        let run = move || {
            let db = Arc::new(create(&SimDisk::new(seed)));
            let mut txn = db.begin(TransactionOptions::default());
            let trees = ["a", "b"].map(|name| txn.create_tree(name).unwrap());
            txn.commit().unwrap();
            let writer = |owner: u64| {
                let (db, trees) = (Arc::clone(&db), trees.clone());
                thread::spawn("writer", move || {
                    let mut random = Generator::new(seed * WRITERS + owner);
                    let mut models = [BTreeMap::new(), BTreeMap::new()];
                    let mut next = 0_u64;
                    for round in 0..24_u64 {
                        let tree = (round / 8 % 2) as usize;
                        let model: &mut BTreeMap<Vec<u8>, Vec<u8>> = &mut models[tree];
                        let mut txn = db.begin(TransactionOptions::default());
                        let before = model.clone();
                        for _ in 0..8 {
                            if round % 8 < 4 {
                                next += 1;
                                let key = format!("{next:06}/{owner}").into_bytes();
                                txn.insert(&trees[tree], &key, &[owner as u8; 300]).unwrap();
                                model.insert(key, vec![owner as u8; 300]);
                            } else if let Some((key, _)) = model.pop_last() {
                                assert!(txn.delete(&trees[tree], &key).unwrap());
                            }
                        }
                        if random.one_in(6) {
                            txn.rollback().unwrap();
                            *model = before;
                        } else {
                            txn.commit().unwrap();
                        }
                        if round % 8 == 7 {
                            // Takes away what was deleted, and with it the leaves.
                            db.sweep().unwrap();
                        }
                    }
                    models
                })
            };
            let threads: Vec<_> = (0..WRITERS).map(writer).collect();
            let mut models = [BTreeMap::new(), BTreeMap::new()];
            for thread in threads {
                models.iter_mut().zip(thread.join().unwrap()).for_each(|(all, own)| all.extend(own));
            }
            assert_eq!(models, ["a", "b"].map(|name| contents(&db, name)));
            assert!(db.check().unwrap().findings.is_empty());
        };
        Simulation::new(seed).run(run).unwrap();
    }
}

/// A handle to a tree can reach others before its creation is committed.
#[test]
fn who_writes_to_a_tree_that_is_being_created_waits_for_its_creator() {
    let disk = SimDisk::new(9);
    let db = create(&disk);
    let impatient =
        TransactionOptions { lock_timeout: Some(Duration::ZERO), ..TransactionOptions::default() };
    let mut creator = db.begin(TransactionOptions::default());
    let tree = creator.create_tree("t").unwrap();
    for _ in 0..2 {
        creator.put(&tree, b"own", b"").unwrap();
        assert!(matches!(db.begin(impatient).put(&tree, b"k", b""), Err(Error::Locked(_))));
    }
    creator.commit().unwrap();
    for _ in 0..2 {
        let mut txn = db.begin(impatient);
        txn.put(&tree, b"k", b"").unwrap();
        assert!(matches!(db.begin(impatient).drop_tree("t"), Err(Error::Locked(_))));
        txn.commit().unwrap();
    }
}

/// Then the tree's row itself is locked, exclusively.
#[test]
fn a_tree_is_held_where_there_is_no_room_for_another_shared_lock() {
    const ROWS: u64 = 3000;
    let disk = SimDisk::new(9);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let [a, b] = ["a", "b"].map(|name| txn.create_tree(name).unwrap());
    (0..ROWS).for_each(|i| txn.put(&a, &key(i), b"").unwrap());
    txn.commit().unwrap();
    let mut greedy = db.begin(TransactionOptions::default());
    (0..ROWS).for_each(|i| assert!(greedy.lock(&a, &key(i), LockMode::KeyShare).unwrap()));
    assert!((db.shared_row_locks(10_000).len() as u64) < ROWS, "there is no room");
    let impatient =
        TransactionOptions { lock_timeout: Some(Duration::ZERO), ..TransactionOptions::default() };
    for _ in 0..2 {
        let mut txn = db.begin(impatient);
        txn.put(&b, b"k", b"v").unwrap();
        assert!(matches!(db.begin(impatient).drop_tree("b"), Err(Error::Locked(_))));
        txn.commit().unwrap();
    }
    greedy.commit().unwrap();
}

#[test]
fn a_handle_of_an_earlier_opening_is_refused() {
    let disk = SimDisk::new(9);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    txn.put(&tree, b"k", b"v").unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
    let db = open(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    for result in [txn.put(&tree, b"k", b"w"), txn.get(&tree, b"k").map(drop)] {
        assert!(result.unwrap_err().to_string().contains("an earlier opening"));
    }
    let tree = txn.tree("t").unwrap().unwrap();
    txn.put(&tree, b"k", b"w").unwrap();
    txn.commit().unwrap();
}

/// Which trees a transaction keeps from being dropped is told, however it keeps them.
/// What was taken back by half must not stay.
#[test]
fn a_transaction_whose_savepoint_cannot_be_gone_back_to_cannot_commit() {
    let disk = SimDisk::new(6);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    let rows = 40_000;
    for i in 0..rows {
        txn.put(&tree, &key(i), &[1; 400]).unwrap();
    }
    txn.commit().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let savepoint = txn.savepoint();
    txn.put(&tree, &key(0), b"of the transaction").unwrap();
    // The row's page leaves memory.
    for i in (rows / 2..rows).step_by(4).chain((rows / 2..rows).step_by(7)) {
        txn.get(&tree, &key(i)).unwrap();
    }
    txn.put(&tree, &key(rows - 1), b"of the transaction").unwrap();
    let data = Some("test.gnt".to_owned());
    disk.set_faults(Faults { read_error: Chance::OneIn(1), only: data, ..Faults::default() });
    txn.rollback_to(savepoint).unwrap_err();
    disk.set_faults(Faults::default());
    assert!(matches!(txn.commit(), Err(Error::Cancelled)));
    let mut txn = db.begin(TransactionOptions::default());
    for i in [0, rows - 1] {
        assert_eq!(txn.get(&tree, &key(i)).unwrap().unwrap(), [1; 400], "row {i}");
    }
}

#[test]
fn held_trees_are_told() {
    let disk = SimDisk::new(9);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let names: Vec<_> = (0..12).map(|i| format!("tree {i:02}")).collect();
    let trees: Vec<_> = names.iter().map(|name| txn.create_tree(name).unwrap()).collect();
    txn.commit().unwrap();
    // The first to write to a tree looks whether it is there, later ones need not.
    for _ in 0..2 {
        let mut txn = db.begin(TransactionOptions::default());
        let savepoint = txn.savepoint();
        for (i, tree) in trees.iter().enumerate() {
            txn.put(tree, b"k", b"v").unwrap();
            let mut told: Vec<_> = db.shared_row_locks(100).into_iter().map(|lock| lock.key).collect();
            told.sort();
            let expected: Vec<Box<[u8]>> = names[..=i].iter().map(|name| name.as_bytes().into()).collect();
            assert_eq!(told, expected);
        }
        assert_eq!(db.shared_row_locks(3).len(), 3);
        txn.rollback_to(savepoint).unwrap();
        assert!(db.shared_row_locks(100).is_empty());
        txn.put(&trees[0], b"k", b"v").unwrap();
        assert_eq!(db.shared_row_locks(100).len(), 1);
        txn.commit().unwrap();
        assert!(db.shared_row_locks(100).is_empty());
    }
}

#[test]
fn bulk_loaded_trees_read_like_filled_ones() {
    let disk = SimDisk::new(8);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    let rows: BTreeMap<_, _> = (0..20_000).map(|i| (key(i), value(i, 0))).collect();
    let loaded = txn.bulk_load(&tree, rows.iter().map(|(k, v)| (k.as_slice(), v.as_slice()))).unwrap();
    assert_eq!(loaded, 20_000);
    assert!(txn.bulk_loader(&tree).is_err());
    txn.commit().unwrap();
    assert_eq!(contents(&db, "t"), rows);
    let mut txn = db.begin(TransactionOptions::default());
    let keys: Vec<Vec<u8>> = (0..1000).map(|i| key(i * 37 % 25_000)).collect();
    let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let got = txn.multi_get(&tree, &wanted).unwrap();
    for (key, got) in keys.iter().zip(got) {
        assert_eq!(got.as_ref(), rows.get(key));
    }
    let mut cursor = txn.cursor(&tree, (Bound::Included(&key(100)), Bound::Excluded(&key(200)))).unwrap();
    assert_eq!(cursor.previous().unwrap().unwrap().0, key(199));
    assert_eq!(cursor.next().unwrap(), None);
    cursor.seek(&key(150));
    assert_eq!(cursor.next().unwrap().unwrap().0, key(150));
    assert_eq!(cursor.next().unwrap().unwrap().0, key(151));
    assert_eq!(cursor.previous().unwrap().unwrap().0, key(150));
    cursor.transaction().put(&tree, &key(149), b"new").unwrap();
    assert_eq!(cursor.previous().unwrap().unwrap().1, b"new");
}

#[test]
fn a_savepoint_takes_back_a_bulk_load() {
    let disk = SimDisk::new(8);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    let savepoint = txn.savepoint();
    let rows: BTreeMap<_, _> = (0..5_000).map(|i| (key(i), value(i, 0))).collect();
    txn.bulk_load(&tree, rows.iter().map(|(k, v)| (k.as_slice(), v.as_slice()))).unwrap();
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(txn.get(&tree, &key(7)).unwrap(), None);
    txn.put(&tree, &key(7), b"7").unwrap();
    txn.commit().unwrap();
    assert_eq!(contents(&db, "t").len(), 1);
    assert!(db.check().unwrap().findings.is_empty());
}

#[test]
fn writers_of_one_row_wait_and_deadlocks_are_found() {
    let disk = SimDisk::new(9);
    let db = Arc::new(create(&disk));
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", &0u64.to_le_bytes()).unwrap();
    txn.put(&tree, b"b", &0u64.to_le_bytes()).unwrap();
    txn.commit().unwrap();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let (db, tree) = (Arc::clone(&db), tree.clone());
            thread::spawn("writer", move || {
                let mut done = 0;
                while done < 100 {
                    let mut txn = db.begin(TransactionOptions::default());
                    let order: [&[u8]; 2] = if i % 2 == 0 { [b"a", b"b"] } else { [b"b", b"a"] };
                    let step = |txn: &mut gannet_store::Transaction| {
                        for key in order {
                            txn.lock(&tree, key, LockMode::Exclusive)?;
                            let old = txn.get(&tree, key)?.unwrap();
                            let new = u64::from_le_bytes(old.try_into().unwrap()) + 1;
                            txn.put(&tree, key, &new.to_le_bytes())?;
                        }
                        Ok::<_, Error>(())
                    };
                    match step(&mut txn) {
                        Ok(()) => {
                            txn.commit().unwrap();
                            done += 1;
                        }
                        Err(Error::Deadlock(_)) => txn.rollback().unwrap(),
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    for value in contents(&db, "t").values() {
        assert_eq!(value, &400u64.to_le_bytes());
    }
}

#[test]
fn shared_locks_keep_writers_out() {
    let disk = SimDisk::new(10);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions { durability: Durability::Async, ..Default::default() });
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    txn.commit().unwrap();
    let impatient =
        TransactionOptions { lock_timeout: Some(std::time::Duration::ZERO), ..Default::default() };
    let (mut one, mut two) = (db.begin(impatient), db.begin(impatient));
    assert!(one.lock(&tree, b"a", LockMode::KeyShare).unwrap());
    assert!(two.lock(&tree, b"a", LockMode::Share).unwrap());
    let mut three = db.begin(impatient);
    assert!(matches!(three.put(&tree, b"a", b"2"), Err(Error::Locked(_))));
    two.rollback().unwrap();
    three.put(&tree, b"a", b"2").unwrap();
    assert!(matches!(three.delete(&tree, b"a"), Err(Error::Locked(_))));
    one.commit().unwrap();
    assert!(three.delete(&tree, b"a").unwrap());
    assert!(!db.begin(impatient).lock(&tree, b"none", LockMode::Share).unwrap());
}

#[test]
fn who_waits_for_sharers_is_not_passed_by_new_ones() {
    let disk = SimDisk::new(10);
    let db = Arc::new(create(&disk));
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    txn.put(&tree, b"b", b"1").unwrap();
    txn.commit().unwrap();
    // Shares `a`, and will want `b`.
    let mut first = db.begin(TransactionOptions::default());
    assert!(first.lock(&tree, b"a", LockMode::KeyShare).unwrap());
    let in_thread = |name: &str, run: fn(&mut Transaction, &Tree)| {
        let (db, tree) = (Arc::clone(&db), tree.clone());
        thread::spawn(name, move || {
            let mut txn = db.begin(TransactionOptions::default());
            run(&mut txn, &tree);
            txn.commit().unwrap();
        })
    };
    let deleter = in_thread("deleter", |txn, tree| assert!(txn.delete(tree, b"a").unwrap()));
    let waiting = |count: usize| {
        while db.transactions().iter().filter(|txn| txn.waiting.is_some()).count() < count {
            thread::yield_now();
        }
    };
    waiting(1);
    let late = in_thread("late", |txn, tree| assert!(!txn.lock(tree, b"a", LockMode::KeyShare).unwrap()));
    let other = in_thread("other", |txn, tree| {
        txn.put(tree, b"b", b"2").unwrap();
        // Not granted before the first one wants `b`: then it would be a circle.
        assert!(txn.lock(tree, b"a", LockMode::KeyShare).unwrap());
    });
    waiting(3);
    // Who shares it already may do so again.
    assert!(first.lock(&tree, b"a", LockMode::Share).unwrap());
    first.put(&tree, b"b", b"3").unwrap();
    other.join().unwrap();
    first.commit().unwrap();
    deleter.join().unwrap();
    late.join().unwrap();
}

#[test]
fn everything_can_be_shown() {
    let disk = SimDisk::new(10);
    let engine = engine(&disk);
    let db = engine.create(Path::new("test.gnt"), &small(), &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    let scan = txn.latest_view().scan(&tree, ALL);
    let shown = [
        format!("{engine:?}"),
        format!("{db:?}"),
        format!("{txn:?}"),
        format!("{tree:?}"),
        format!("{:?}", txn.canceller()),
        format!("{scan:?}"),
    ];
    // Their parts refer to each other.
    assert!(shown.iter().all(|text| text.len() < 1 << 20));
}

#[test]
fn bad_requests_are_refused_with_a_reason() {
    let disk = SimDisk::new(11);
    let engine = engine(&disk);
    let open = OpenOptions::default();
    assert!(
        Engine::new(&EngineOptions { memory: 1 << 20, ..EngineOptions::default() })
            .unwrap_err()
            .to_string()
            .contains("at least 8MiB")
    );
    let wrong = CreateOptions { page_size: 5000, ..small() };
    assert!(engine.create(Path::new("x"), &wrong, &open).unwrap_err().to_string().contains("5000"));
    assert!(engine.open(Path::new("missing"), &open).is_err());
    let db = engine.create(Path::new("test.gnt"), &small(), &open).unwrap();
    assert!(
        engine.create(Path::new("test.gnt"), &small(), &open).unwrap_err().to_string().contains("exists")
    );
    let second = engine.open(Path::new("test.gnt"), &open).unwrap_err();
    assert!(matches!(second, Error::InUse(_)), "{second}");
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    let error = txn.put(&tree, &[1; 600], b"v").unwrap_err();
    assert!(error.to_string().contains("600"), "{error}");
    assert!(txn.create_tree("").is_err());
}

#[test]
fn a_key_share_lock_waits_for_an_insert_that_may_be_taken_back() {
    let disk = SimDisk::new(12);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"old", b"1").unwrap();
    txn.commit().unwrap();
    let impatient =
        TransactionOptions { lock_timeout: Some(std::time::Duration::ZERO), ..Default::default() };
    let mut writer = db.begin(impatient);
    writer.insert(&tree, b"new", b"1").unwrap();
    writer.update(&tree, b"old", b"2").unwrap();
    let mut checker = db.begin(impatient);
    assert!(matches!(checker.lock(&tree, b"new", LockMode::KeyShare), Err(Error::Locked(_))));
    assert!(checker.lock(&tree, b"old", LockMode::KeyShare).unwrap());
    writer.rollback().unwrap();
    assert!(!checker.lock(&tree, b"new", LockMode::KeyShare).unwrap());
}

#[test]
fn a_key_share_lock_waits_where_a_deletion_may_come_back() {
    let disk = SimDisk::new(14);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"k", b"1").unwrap();
    txn.put(&tree, b"other", b"1").unwrap();
    txn.commit().unwrap();
    let impatient =
        TransactionOptions { lock_timeout: Some(std::time::Duration::ZERO), ..Default::default() };
    let mut writer = db.begin(impatient);
    assert!(writer.delete(&tree, b"k").unwrap());
    let savepoint = writer.savepoint();
    writer.insert(&tree, b"k", b"2").unwrap();
    writer.update(&tree, b"k", b"3").unwrap();
    let mut checker = db.begin(impatient);
    assert!(matches!(checker.lock(&tree, b"k", LockMode::KeyShare), Err(Error::Locked(_))));
    writer.rollback_to(savepoint).unwrap();
    assert!(matches!(checker.lock(&tree, b"k", LockMode::KeyShare), Err(Error::Locked(_))));
    writer.commit().unwrap();
    assert!(!checker.lock(&tree, b"k", LockMode::KeyShare).unwrap());
    // What was not deleted before may be shared again when it was all taken back.
    let mut writer = db.begin(impatient);
    let savepoint = writer.savepoint();
    assert!(writer.delete(&tree, b"other").unwrap());
    writer.insert(&tree, b"other", b"2").unwrap();
    writer.rollback_to(savepoint).unwrap();
    writer.update(&tree, b"other", b"3").unwrap();
    assert!(checker.lock(&tree, b"other", LockMode::KeyShare).unwrap());
}

#[test]
fn a_tree_number_is_never_given_twice() {
    let disk = SimDisk::new(13);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    txn.create_tree("a").unwrap();
    let dropped = txn.create_tree("b").unwrap().id();
    txn.commit().unwrap();
    // Holds the horizon back, so that the dropped tree is still there after the restart.
    let mut old = db.begin(TransactionOptions { isolation: Isolation::RepeatableRead, ..Default::default() });
    old.trees().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.drop_tree("b").unwrap());
    txn.commit().unwrap();
    let image = disk.crash_image(1);
    drop(old);
    drop(db);
    let db = open(&image);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("c").unwrap();
    assert!(tree.id() > dropped);
    txn.put(&tree, b"k", b"v").unwrap();
    txn.commit().unwrap();
    db.sweep().unwrap();
    assert_eq!(contents(&db, "c").len(), 1);
}

#[test]
fn a_long_value_that_nothing_came_to_refer_to_is_taken_back() {
    let disk = SimDisk::new(14);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    let long = vec![1; 1_000_000];
    for _ in 0..20 {
        assert!(!txn.update(&tree, b"missing", &long).unwrap());
        assert!(matches!(txn.insert(&tree, b"a", &long), Err(Error::Duplicate)));
    }
    txn.commit().unwrap();
    assert!(db.stats().file_bytes < 8 << 20, "{}", db.stats().file_bytes);
    assert_eq!(contents(&db, "t").len(), 1);
}

#[test]
fn a_database_with_large_log_segments_opens_in_a_small_budget() {
    let disk = SimDisk::new(11);
    let engine = |disk: &SimDisk| {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Engine::with_disk(disk, &EngineOptions { memory: 48 << 20, ..EngineOptions::default() }).unwrap()
    };
    let path = Path::new("small.gnt");
    let db = engine(&disk).create(path, &CreateOptions::default(), &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    txn.commit().unwrap();
    drop(db);
    let check = |disk: &SimDisk| {
        let db = engine(disk).open(path, &OpenOptions::default()).unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.tree("t").unwrap().unwrap();
        assert_eq!(txn.get(&tree, b"a").unwrap(), Some(b"1".to_vec()));
        drop(txn);
        db
    };
    // After a clean close, and after a crash, where the last segment is read as a whole.
    let open = check(&disk);
    let crashed = disk.crash_image(3);
    drop(open);
    drop(check(&crashed));
}

#[test]
fn an_insert_taken_back_leaves_the_older_version_to_be_seen() {
    let disk = SimDisk::new(15);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"k", b"old").unwrap();
    txn.commit().unwrap();
    let mut old = db.begin(TransactionOptions { isolation: Isolation::RepeatableRead, ..Default::default() });
    old.put(&tree, b"other", b"1").unwrap();
    let mut deleter = db.begin(TransactionOptions::default());
    assert!(deleter.delete(&tree, b"k").unwrap());
    deleter.commit().unwrap();
    let savepoint = old.savepoint();
    old.insert(&tree, b"k", b"new").unwrap();
    assert_eq!(old.get(&tree, b"k").unwrap().as_deref(), Some(&b"new"[..]));
    old.rollback_to(savepoint).unwrap();
    assert_eq!(old.get(&tree, b"k").unwrap().as_deref(), Some(&b"old"[..]));
    old.insert(&tree, b"k", b"new").unwrap();
    assert!(old.delete(&tree, b"k").unwrap());
    assert_eq!(old.get(&tree, b"k").unwrap(), None);
}

#[test]
fn a_start_that_fails_does_not_pass_for_a_close() {
    let disk = SimDisk::new(16);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    for i in 0..300 {
        txn.put(&tree, &key(i), &value(i, 0)).unwrap();
    }
    txn.commit().unwrap();
    let after = disk.crash_image(1);
    drop(db);
    for nth in 1..80 {
        let image = after.peek_crash(None, 1);
        image.set_faults(Faults { read_error: Chance::At(vec![nth]), ..Faults::default() });
        drop(engine(&image).open(Path::new("test.gnt"), &OpenOptions::default()));
        image.set_faults(Faults::default());
        assert_eq!(contents(&open(&image), "t").len(), 300, "the {nth}th read failed");
    }
}

#[test]
fn bulk_load_takes_keys_with_a_long_common_prefix() {
    let disk = SimDisk::new(17);
    let db = create(&disk);
    for count in [1u64, 60, 61, 200, 5000] {
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree(&format!("t{count}")).unwrap();
        let rows: BTreeMap<_, _> =
            (0..count).map(|i| (format!("customer/orders/{i:08}").into_bytes(), value(i, 0))).collect();
        txn.bulk_load(&tree, rows.iter().map(|(k, v)| (k.as_slice(), v.as_slice()))).unwrap();
        txn.commit().unwrap();
        assert_eq!(contents(&db, &format!("t{count}")), rows);
    }
    let findings = db.check().unwrap().findings;
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn bulk_load_takes_keys_whose_common_prefix_ends_in_the_middle() {
    let disk = SimDisk::new(19);
    let db = create(&disk);
    for prefix in [20, 90, 200] {
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree(&format!("t{prefix}")).unwrap();
        // Long runs of keys that differ at their end only, and then one that differs at its beginning.
        let key = |group: u64, i: u64| format!("{group:03}{:0prefix$}{i:04}", 0).into_bytes();
        let rows: BTreeMap<_, _> = (0..20)
            .flat_map(|group| (0..37 * group).map(move |i| (group, i)))
            .map(|(group, i)| (key(group, i), b"v".to_vec()))
            .collect();
        txn.bulk_load(&tree, rows.iter().map(|(k, v)| (k.as_slice(), v.as_slice()))).unwrap();
        txn.commit().unwrap();
        assert_eq!(contents(&db, &format!("t{prefix}")), rows);
    }
    let findings = db.check().unwrap().findings;
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn a_row_locked_and_then_updated_stays_locked() {
    let disk = SimDisk::new(18);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    txn.commit().unwrap();
    let impatient =
        TransactionOptions { lock_timeout: Some(std::time::Duration::ZERO), ..Default::default() };
    let (mut one, mut two) = (db.begin(impatient), db.begin(impatient));
    assert!(one.lock(&tree, b"a", LockMode::Exclusive).unwrap());
    assert!(one.update(&tree, b"a", b"2").unwrap());
    assert!(matches!(two.lock(&tree, b"a", LockMode::KeyShare), Err(Error::Locked(_))));
    one.rollback().unwrap();
    assert!(two.lock(&tree, b"a", LockMode::KeyShare).unwrap());
}

#[test]
fn a_transaction_that_outlives_its_database_is_refused() {
    let disk = SimDisk::new(19);
    let engine = engine(&disk);
    let db = engine.create(Path::new("one.gnt"), &small(), &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.put(&tree, b"a", b"of one").unwrap();
    txn.commit().unwrap();
    let mut stale = db.begin(TransactionOptions::default());
    db.close().unwrap();
    let other = engine.create(Path::new("two.gnt"), &small(), &OpenOptions::default()).unwrap();
    assert!(stale.get(&tree, b"a").unwrap_err().to_string().contains("closed"));
    assert!(stale.put(&tree, b"a", b"x").unwrap_err().to_string().contains("closed"));
    drop(stale);
    drop(other);
}

#[test]
fn a_lock_timeout_counts_all_that_one_operation_waits_for() {
    let run = || {
        let db = Arc::new(create(&SimDisk::new(1)));
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree("t").unwrap();
        txn.put(&tree, b"k", b"v").unwrap();
        txn.commit().unwrap();
        // Those who share the row end one after the other, each within the time-out of the one before.
        let sharers: Vec<_> = (1..=4)
            .map(|number| {
                let (db, tree) = (Arc::clone(&db), tree.clone());
                let mut txn = db.begin(TransactionOptions::default());
                assert!(txn.lock(&tree, b"k", LockMode::Share).unwrap());
                thread::spawn("sharer", move || {
                    clock::sleep(Duration::from_millis(1500 * number));
                    drop(txn);
                })
            })
            .collect();
        let limit = Duration::from_secs(2);
        let options = TransactionOptions { lock_timeout: Some(limit), ..TransactionOptions::default() };
        let mut late = db.begin(options);
        let begun = clock::now();
        assert!(matches!(late.lock(&tree, b"k", LockMode::Exclusive), Err(Error::Locked(_))));
        let took = begun.elapsed();
        assert!(limit <= took && took < limit + Duration::from_millis(100), "{took:?}");
        drop(late);
        sharers.into_iter().for_each(|thread| thread.join().unwrap());
    };
    Simulation::new(1).run(run).unwrap();
}
