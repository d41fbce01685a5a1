//! The embedded key-value API from one end to the other, in a temporary folder:
//! `cargo run --release -p gannet-store --example kv`.

use gannet_store::{
    CreateOptions, Durability, Engine, EngineOptions, Isolation, LockMode, OpenOptions, Result,
    TransactionOptions,
};
use std::ops::Bound;
use std::path::Path;

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("example.gnt");
    // One engine for the process; all its databases share the one memory budget.
    let engine = Engine::new(&EngineOptions { memory: 128 << 20, ..EngineOptions::default() })?;
    fill(&engine, &path)?;
    change(&engine, &path)?;
    read(&engine, &path)
}

/// Creates a database, and in it a tree loaded from sorted input.
fn fill(engine: &Engine, path: &Path) -> Result<()> {
    let db = engine.create(path, &CreateOptions::default(), &OpenOptions::default())?;
    println!("created {:?}, opened {}: {}", path, db.io_mode().effective.name(), db.io_mode().reason);

    // Creating a tree is part of a transaction like everything else. The loader writes whole pages, bottom-up; it
    // needs ascending keys and a tree that this very transaction has created.
    let mut txn = db.begin(TransactionOptions::default());
    let cities = txn.create_tree("cities")?;
    let mut loader = txn.bulk_loader(&cities)?;
    for number in 0..100_000u32 {
        // Keys are compared byte by byte, so numbers are written big-endian.
        loader.push(&number.to_be_bytes(), format!("city {number}").as_bytes())?;
    }
    loader.finish()?;
    txn.commit()?;

    // Everything committed is durable already. Closing writes the pages home, so that the file alone is complete.
    db.close()
}

/// Opens it again and changes it.
fn change(engine: &Engine, path: &Path) -> Result<()> {
    let db = engine.open(path, &OpenOptions::default())?;
    assert!(!db.restart_report().crashed, "it was closed");

    let mut txn = db.begin(TransactionOptions::default());
    let cities = txn.tree("cities")?.expect("created above");
    txn.put(&cities, &7u32.to_be_bytes(), b"Bergen")?;
    // A savepoint takes back a part of a transaction.
    let savepoint = txn.savepoint();
    assert!(txn.delete(&cities, &8u32.to_be_bytes())?);
    txn.rollback_to(savepoint)?;
    assert!(txn.get(&cities, &8u32.to_be_bytes())?.is_some());
    // Durable when `commit` returns.
    txn.commit()?;

    // An asynchronous commit does not wait for the device: it is durable within `OpenOptions::max_delay`.
    let options = TransactionOptions { durability: Durability::Async, ..TransactionOptions::default() };
    let mut txn = db.begin(options);
    // Nobody else changes the row between this look and the update.
    assert!(txn.lock(&cities, &9u32.to_be_bytes(), LockMode::Exclusive)?);
    txn.update(&cities, &9u32.to_be_bytes(), b"Bodo")?;
    txn.commit()?;

    // A transaction that is dropped is rolled back.
    let mut txn = db.begin(TransactionOptions::default());
    txn.put(&cities, b"never", b"seen")?;
    drop(txn);
    db.close()
}

/// Reads it: by key, by many keys at once, in order.
fn read(engine: &Engine, path: &Path) -> Result<()> {
    let db = engine.open(path, &OpenOptions::default())?;
    // All operations of this transaction see one snapshot.
    let options =
        TransactionOptions { isolation: Isolation::RepeatableRead, ..TransactionOptions::default() };
    let mut txn = db.begin(options);
    let cities = txn.tree("cities")?.expect("created above");
    assert_eq!(txn.get(&cities, &7u32.to_be_bytes())?.as_deref(), Some(&b"Bergen"[..]));
    assert_eq!(txn.get(&cities, b"never")?, None);

    // Pages that many keys need are fetched as one deep batch, not one after the other.
    let wanted: Vec<[u8; 4]> = (0..1000u32).map(|i| (i * 97).to_be_bytes()).collect();
    let keys: Vec<&[u8]> = wanted.iter().map(|key| key.as_slice()).collect();
    let values = txn.multi_get(&cities, &keys)?;
    println!("{} of {} keys found", values.iter().flatten().count(), keys.len());

    let (first, last) = (5u32.to_be_bytes(), 10u32.to_be_bytes());
    let mut cursor = txn.cursor(&cities, (Bound::Included(&first), Bound::Excluded(&last)))?;
    while let Some((key, value)) = cursor.next()? {
        let number = u32::from_be_bytes(key.try_into().expect("four bytes"));
        println!("{number} {}", String::from_utf8_lossy(value));
    }
    drop(cursor);
    txn.rollback()?;

    let stats = db.stats();
    println!(
        "{} of {} bytes of memory in use, {} pages read, file of {} bytes",
        engine.budget().used(),
        engine.budget().limit(),
        stats.page_misses + stats.pages_prefetched,
        stats.file_bytes
    );
    db.close()
}
