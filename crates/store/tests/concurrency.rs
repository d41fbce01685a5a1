//! Real threads, really at the same time, on a device without delays: what the seeded simulation, which runs one thread
//! at a time, cannot show.

use gannet_base::sim::Generator;
use gannet_io::Disk;
use gannet_io::sim::SimDisk;
use gannet_store::{
    CreateOptions, Database, Durability, Engine, EngineOptions, OpenOptions, TransactionOptions, Tree,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const WRITERS: u64 = 4;

fn create(seed: u64, page_size: usize) -> (SimDisk, Arc<Database>) {
    let disk = SimDisk::new(seed);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let engine =
        Engine::with_disk(shared, &EngineOptions { memory: 8 << 20, ..EngineOptions::default() }).unwrap();
    let create = CreateOptions { page_size, segment_size: 1 << 20 };
    let open = OpenOptions { wal_limit: 8 << 20, ..OpenOptions::default() };
    (disk, Arc::new(engine.create(Path::new("t.gnt"), &create, &open).unwrap()))
}

fn key(owner: u64, i: u64) -> Vec<u8> {
    // Neighbours in the tree belong to different writers, so that they meet on every leaf.
    format!("{i:06}/{owner}").into_bytes()
}

/// Changes only its own keys, and knows what each of them must hold.
fn writer(db: &Database, tree: &Tree, owner: u64, keys: u64, rounds: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut random = Generator::new(owner + 1);
    let mut model = BTreeMap::new();
    let options = TransactionOptions { durability: Durability::Async, ..TransactionOptions::default() };
    for round in 0..rounds {
        let mut txn = db.begin(options);
        let mut pending = model.clone();
        // Grows for a while, then shrinks to nearly nothing, so that leaves split and merge under everybody's hands.
        let growing = (round / 40) % 2 == 0;
        for _ in 0..20 {
            let key = key(owner, random.below(keys));
            if random.below(10) < if growing { 8 } else { 1 } {
                let value = vec![round as u8; random.below(300) as usize];
                txn.put(tree, &key, &value).unwrap();
                pending.insert(key, value);
            } else {
                let was_there = txn.delete(tree, &key).unwrap();
                assert_eq!(was_there, pending.remove(&key).is_some());
            }
        }
        let probe = key(owner, random.below(keys));
        assert_eq!(txn.get(tree, &probe).unwrap().as_ref(), pending.get(&probe));
        if random.one_in(5) {
            txn.rollback().unwrap();
        } else {
            txn.commit().unwrap();
            model = pending;
        }
    }
    model
}

/// Reads everything, forwards and backwards: in order, each key once, whole values.
fn reader(db: &Database, tree: &Tree, stop: &AtomicBool) -> u64 {
    let all: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
    let mut passes = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut txn = db.begin(TransactionOptions::default());
        let mut cursor = txn.cursor(tree, all).unwrap();
        let mut forwards = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            assert!(value.windows(2).all(|w| w[0] == w[1]), "a mixed value");
            forwards.push(key.to_vec());
        }
        assert!(forwards.windows(2).all(|w| w[0] < w[1]), "out of order");
        let mut backwards = Vec::new();
        while let Some((key, _)) = cursor.previous().unwrap() {
            backwards.push(key.to_vec());
        }
        backwards.reverse();
        assert_eq!(forwards, backwards);
        passes += 1;
    }
    passes
}

/// Checks again and again; what is sound is not reported, whatever others do meanwhile.
fn checker(db: &Database, stop: &AtomicBool) -> u64 {
    let mut checks = 0;
    while !stop.load(Ordering::Relaxed) {
        let findings = db.check().unwrap().findings;
        assert!(findings.is_empty(), "{findings:#?}");
        checks += 1;
    }
    checks
}

fn run(page_size: usize, keys: u64, rounds: u64) {
    let (_disk, db) = create(page_size as u64, page_size);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.commit().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (db, tree, stop) = (Arc::clone(&db), tree.clone(), Arc::clone(&stop));
            gannet_base::thread::spawn("session", move || reader(&db, &tree, &stop))
        })
        .collect();
    let checker = {
        let (db, stop) = (Arc::clone(&db), Arc::clone(&stop));
        gannet_base::thread::spawn("checker", move || checker(&db, &stop))
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|owner| {
            let (db, tree) = (Arc::clone(&db), tree.clone());
            gannet_base::thread::spawn("session", move || writer(&db, &tree, owner, keys, rounds))
        })
        .collect();
    let mut expected = BTreeMap::new();
    for writer in writers {
        expected.extend(writer.join().unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().unwrap() > 0);
    }
    assert!(checker.join().unwrap() > 0);
    let mut txn = db.begin(TransactionOptions::default());
    let mut found = BTreeMap::new();
    let mut cursor = txn.cursor(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.insert(key.to_vec(), value.to_vec());
    }
    assert_eq!(found, expected);
}

#[test]
fn leaves_split_and_merge_under_many_hands() {
    run(4096, 500, 160);
}

#[test]
fn data_larger_than_the_pool_is_changed_by_many_hands() {
    run(8192, 20_000, 80);
}
