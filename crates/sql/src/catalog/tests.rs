//! Definitions and numbers on a real store, and through crashes of a simulated one.

use super::*;
use crate::Type;

use gannet_io::sim::SimDisk;
use gannet_store::{CreateOptions, Database, Engine, EngineOptions, OpenOptions, TransactionOptions};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

const PATH: &str = "test.gnt";

fn engine(disk: &SimDisk) -> Engine {
    let options = EngineOptions { memory: 16 << 20, ..EngineOptions::default() };
    Engine::with_disk(Arc::new(disk.clone()), &options).unwrap()
}

fn create(disk: &SimDisk) -> Arc<Database> {
    let options = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
    let database = engine(disk).create(Path::new(PATH), &options, &OpenOptions::default()).unwrap();
    let mut transaction = database.begin(TransactionOptions::default());
    storage::bootstrap(&mut transaction, "owner").unwrap();
    transaction.commit().unwrap();
    Arc::new(database)
}

fn reopen(disk: &SimDisk) -> Arc<Database> {
    Arc::new(engine(disk).open(Path::new(PATH), &OpenOptions::default()).unwrap())
}

fn load(database: &Database) -> Catalog {
    storage::load(&database.begin(TransactionOptions::default()).view()).unwrap()
}

fn numbers(database: &Arc<Database>) -> Numbers {
    Numbers::open(Arc::clone(database), &load(database)).unwrap()
}

fn sequence(counter: Oid) -> Sequence {
    Sequence {
        oid: counter,
        name: format!("s{counter}"),
        ty: Type::Int8,
        start: 1,
        increment: 1,
        minimum: 1,
        maximum: i64::MAX,
        cycle: false,
        owned_by: None,
        identity: false,
        owner: BOOTSTRAP_ROLE,
        counter,
        begin: (1, false),
        revision: 0,
    }
}

fn table(oid: Oid) -> Table {
    let column = |number, name: &str| Column {
        number,
        name: name.to_owned(),
        ty: Type::Int4,
        modifier: -1,
        not_null: false,
        default: Some("1 + 1".to_owned()),
        missing: None,
    };
    Table {
        oid,
        name: format!("table_{oid}"),
        columns: (1..=10).map(|number| column(number, &format!("column_{number}"))).collect(),
        storage: Storage::new(format!("t.{oid}")),
        key: TableKey::RowId,
        layouts: vec![Layout((1..=10).collect())],
        indexes: Vec::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        referenced_by: Vec::new(),
        owner: BOOTSTRAP_ROLE,
        next_column: 11,
        revision: 0,
        codec: CodecCell::default(),
    }
}

/// The next value of a sequence that is defined so.
fn next(given: &Numbers, sequence: &Sequence) -> crate::Result<i64> {
    given.confirm(sequence)?;
    given.nextval(sequence).map(|value| value.expect("it was confirmed"))
}

/// Puts a sequence into the catalog, so that its counter is not taken for one that nobody has.
fn define(database: &Database, sequence: &Sequence) {
    let mut transaction = database.begin(TransactionOptions::default());
    let mut catalog = storage::load(&transaction.view()).unwrap();
    storage::put_sequence(&mut transaction, &mut catalog, sequence.clone()).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn what_a_durable_transaction_used_is_not_given_again_after_a_crash() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let database = create(&disk);
        let (s, t) = (sequence(7), table(9));
        define(&database, &s);
        let mut transaction = database.begin(TransactionOptions::default());
        let mut catalog = storage::load(&transaction.view()).unwrap();
        storage::put_table(&mut transaction, &mut catalog, t.clone()).unwrap();
        transaction.commit().unwrap();
        let given = numbers(&database);
        let mut transaction = database.begin(TransactionOptions::default());
        let tree = transaction.create_tree("used").unwrap();
        let mut used = HashSet::new();
        for _ in 0..=seed * 9 {
            let value = next(&given, &s).unwrap();
            let (oid, row) = (given.new_oid().unwrap(), given.row_id(&t).unwrap());
            assert!(used.insert((value, oid, row)));
            transaction.put(&tree, &value.to_be_bytes(), b"").unwrap();
        }
        transaction.commit().unwrap();
        let after = disk.peek_crash(None, seed);
        let again = reopen(&after);
        let given = numbers(&again);
        let largest = |part: fn(&(i64, Oid, u64)) -> i64| used.iter().map(part).max().unwrap();
        assert!(next(&given, &s).unwrap() > largest(|used| used.0), "seed {seed}");
        assert!(i64::from(given.new_oid().unwrap()) > largest(|used| i64::from(used.1)));
        assert!(given.row_id(&t).unwrap() as i64 > largest(|used| used.2 as i64));
    }
}

#[test]
fn counters_of_what_was_never_committed_are_let_go_of_and_give_no_number_twice() {
    let disk = SimDisk::new(1);
    let database = create(&disk);
    let s = sequence(7);
    define(&database, &s);
    let catalog = load(&database);
    let given = numbers(&database);
    assert_eq!(next(&given, &s).unwrap(), 1);
    let (own_rows, own_values) = (table(2000), sequence(3000));
    assert_eq!((given.row_id(&own_rows).unwrap(), next(&given, &own_values).unwrap()), (1, 1));
    for oid in 4000..4100 {
        given.row_id(&table(oid)).unwrap();
        next(&given, &sequence(oid + 1000)).unwrap();
    }
    assert_eq!(given.in_memory(), (101, 102));
    given.trim(&catalog);
    assert_eq!(given.in_memory(), (0, 1));
    assert_eq!(next(&given, &s).unwrap(), 2);
    // Whose transaction goes on gets others.
    assert!(given.row_id(&own_rows).unwrap() > 1 && next(&given, &own_values).unwrap() > 1);
    given.trim(&catalog);
    assert_eq!(given.in_memory(), (1, 2), "few are kept");
}

#[test]
fn an_orderly_end_leaves_no_gap_in_a_sequence() {
    let disk = SimDisk::new(1);
    let database = create(&disk);
    let s = sequence(7);
    define(&database, &s);
    let given = numbers(&database);
    assert_eq!((1..=40).map(|_| next(&given, &s).unwrap()).last(), Some(40));
    given.close().unwrap();
    drop(given);
    Arc::into_inner(database).unwrap().close().unwrap();
    let database = reopen(&disk);
    let given = numbers(&database);
    assert_eq!(next(&given, &s).unwrap(), 41);
    assert!(given.setval(&s, 100, false).unwrap());
    assert_eq!(next(&given, &s).unwrap(), 100);
    // A restart is another counter.
    let restarted = Sequence { counter: 8, begin: (5, true), ..s.clone() };
    assert_eq!(next(&given, &restarted).unwrap(), 6);
    assert_eq!(next(&given, &s).unwrap(), 101);
    assert_eq!(given.setval(&s, 0, true).unwrap_err().state().0, "22003");
}

#[test]
fn sequences_end_cycle_and_go_backwards() {
    let disk = SimDisk::new(2);
    let given = numbers(&create(&disk));
    let short = Sequence { maximum: 3, increment: 2, ..sequence(20) };
    assert_eq!([next(&given, &short).unwrap(), next(&given, &short).unwrap()], [1, 3]);
    let error = next(&given, &short).unwrap_err();
    assert_eq!(error.state().0, "2200H");
    assert_eq!(error.to_string(), "nextval: reached maximum value of sequence \"s20\" (3)");
    let around = Sequence { maximum: 3, cycle: true, ..sequence(21) };
    let values: Vec<i64> = (0..70).map(|_| next(&given, &around).unwrap()).collect();
    assert!(values.chunks(3).all(|chunk| [1, 2, 3].starts_with(chunk)), "{values:?}");
    let back = Sequence {
        minimum: i64::MIN,
        maximum: -1,
        start: -1,
        increment: -1,
        begin: (-1, false),
        ..sequence(22)
    };
    assert_eq!((0..40).map(|_| next(&given, &back).unwrap()).last(), Some(-40));
    let end = Sequence { begin: (i64::MAX, false), ..sequence(23) };
    assert_eq!(next(&given, &end).unwrap(), i64::MAX);
    assert!(next(&given, &end).is_err());
}

#[test]
fn sessions_share_a_sequence() {
    let disk = SimDisk::new(3);
    let given = numbers(&create(&disk));
    let s = sequence(30);
    let mut all: Vec<i64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..500).map(|_| next(&given, &s).unwrap()).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    assert_eq!(all, (1..=2000).collect::<Vec<_>>());
}

#[test]
fn counters_of_what_is_gone_are_removed_at_the_next_start() {
    let disk = SimDisk::new(4);
    let database = create(&disk);
    let kept = sequence(40);
    define(&database, &kept);
    let given = numbers(&database);
    for s in [&kept, &sequence(41)] {
        next(&given, s).unwrap();
    }
    given.close().unwrap();
    drop(given);
    let given = numbers(&database);
    assert_eq!(next(&given, &kept).unwrap(), 2);
    assert_eq!(next(&given, &sequence(41)).unwrap(), 1, "it was never defined");
}

#[test]
fn ten_thousand_tables_are_loaded_at_once_and_kept_where_they_have_not_changed() {
    let disk = SimDisk::new(5);
    let database = create(&disk);
    let mut transaction = database.begin(TransactionOptions::default());
    let mut catalog = storage::load(&transaction.view()).unwrap();
    for oid in 0..10_000 {
        storage::put_table(&mut transaction, &mut catalog, table(FIRST_USER_OID + oid)).unwrap();
    }
    transaction.commit().unwrap();
    let started = std::time::Instant::now();
    let loaded = load(&database);
    let took = started.elapsed();
    assert_eq!((loaded.tables.len(), loaded.names.len()), (10_000, 10_000));
    // Far more than it takes, for machines that do something else as well.
    assert!(took.as_secs() < 5, "{took:?}");
    let mut transaction = database.begin(TransactionOptions::default());
    let mut changed = loaded.clone();
    let mut table = Table::clone(&loaded.tables[&FIRST_USER_OID]);
    table.name = "other".to_owned();
    storage::put_table(&mut transaction, &mut changed, table).unwrap();
    transaction.commit().unwrap();
    let view = database.begin(TransactionOptions::default()).view();
    let reloaded = storage::reload(&view, &loaded).unwrap();
    let same = |oid: &Oid| Arc::ptr_eq(&loaded.tables[oid], &reloaded.tables[oid]);
    assert_eq!(reloaded.tables.keys().filter(|oid| !same(oid)).collect::<Vec<_>>(), [&FIRST_USER_OID]);
    assert!(reloaded.table("other").is_some() && !reloaded.names.contains_key("table_16384"));
}

#[test]
fn a_change_waits_for_writers_and_is_seen_by_those_who_come_after() {
    let disk = SimDisk::new(6);
    let database = create(&disk);
    let mut transaction = database.begin(TransactionOptions::default());
    let mut catalog = storage::load(&transaction.view()).unwrap();
    let table = storage::put_table(&mut transaction, &mut catalog, table(20_000)).unwrap();
    transaction.commit().unwrap();
    let impatient =
        TransactionOptions { lock_timeout: Some(std::time::Duration::ZERO), ..TransactionOptions::default() };
    let (mut writer, mut other) = (database.begin(impatient), database.begin(impatient));
    let mut changer = database.begin(impatient);
    assert!(storage::lock_for_write(&mut writer, &catalog, &table).unwrap());
    assert!(storage::lock_for_write(&mut other, &catalog, &table).unwrap());
    let mut private = catalog.clone();
    let refused = storage::claim_table(&mut changer, &mut private, table.oid).unwrap_err();
    assert_eq!(refused.state().0, "55P03");
    drop((writer, other));
    let claimed = storage::claim_table(&mut changer, &mut private, table.oid).unwrap().unwrap();
    assert!(Arc::ptr_eq(&claimed, &table));
    let changed = Table { name: "renamed".to_owned(), ..Table::clone(&table) };
    storage::put_table(&mut changer, &mut private, changed).unwrap();
    let mut late = database.begin(impatient);
    assert!(storage::lock_for_write(&mut late, &catalog, &table).is_err());
    changer.commit().unwrap();
    assert!(!storage::lock_for_write(&mut late, &catalog, &table).unwrap(), "it is another one now");
    let now = storage::claim_table(&mut late, &mut catalog, table.oid).unwrap().unwrap();
    assert_eq!((now.name.as_str(), catalog.names.len()), ("renamed", 1));
}

#[test]
fn statistics_go_with_their_table_also_where_they_are_newer() {
    let mut base = Catalog::default();
    for oid in [9, 10] {
        base.tables.insert(oid, Arc::new(table(oid)));
    }
    let mut private = base.clone();
    private.tables.remove(&9);
    // ANALYZE has committed meanwhile.
    let mut committed = base.clone();
    for oid in [9, 10] {
        committed.statistics.insert(oid, Arc::new(TableStatistics::default()));
    }
    committed.adopt(&base, &private);
    assert_eq!(committed.statistics.keys().copied().collect::<Vec<_>>(), [10]);
}
