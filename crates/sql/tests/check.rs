//! CHECK DATABASE: damage is named in words of SQL, indexes agree with their tables, and whatever is sound is not reported.

use gannet_base::thread;
use gannet_sql::session::Rows;
use gannet_sql::{Database, Session};
use gannet_store::node::NodeRef;
use gannet_store::page::{self, PageKind};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 8192;

struct Fixture {
    engine: Engine,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory: 32 << 20, temp_folder: Some(folder.path().join("temp")) };
        Fixture { engine: Engine::new(&options).unwrap(), folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("shop.gnt")
    }

    fn create(&self) -> Database {
        let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
        let open = OpenOptions::default();
        let database = Database::create(&self.engine, &self.path(), &create, &open, "owner").unwrap();
        let mut session = database.session("owner").unwrap();
        for sql in [
            "create table orders (id bigint primary key, customer text, paid boolean, amount numeric(10, 2), note text)",
            "create unique index by_note on orders (note)",
            "create index by_customer on orders (customer, amount desc)",
            "create table log (at double precision, what text)",
            "create index log_at on log (at desc nulls last)",
            "insert into orders select n, case when n % 3 = 0 then null else 'customer ' || n % 50 end, n % 2 = 0, n * 1.25,
               case when n % 7 = 0 then null else 'note ' || n end from generate_series(1, 3000) as n",
            "insert into log select case when n % 5 = 0 then null else n * 0.5 end,
               repeat('x', n % 300) from generate_series(1, 2000) as n",
            "update orders set amount = amount + 1 where id % 10 = 0",
            "delete from orders where id % 11 = 0",
        ] {
            session.run(sql, &mut Rows::default()).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        drop(session);
        database
    }

    /// Puts a closed file in the place of the one that is there.
    fn put(&self, bytes: &[u8]) {
        std::fs::write(self.path(), bytes).unwrap();
        // It is complete without a log, and not what that of a later life belongs to.
        let log = self.folder.path().join("shop.gnt-wal");
        if log.exists() {
            std::fs::remove_dir_all(log).unwrap();
        }
    }

    fn open(&self) -> Database {
        Database::open(&self.engine, &self.path(), &OpenOptions::default(), "owner").unwrap()
    }
}

fn run(session: &mut Session, sql: &str) -> Rows {
    let mut rows = Rows::default();
    session.run(sql, &mut rows).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows
}

fn check(database: &Database) -> Vec<Vec<String>> {
    run(&mut database.session("owner").unwrap(), "check database").text()
}

/// The tree of an index.
fn tree_of(database: &Database, index: &str) -> String {
    let catalog = database.catalog();
    let mut indexes = catalog.tables.values().flat_map(|table| &table.indexes);
    indexes.find(|found| found.name == index).unwrap().storage.name.clone()
}

#[test]
fn a_sound_database_has_no_findings_and_verbose_tells_what_was_looked_at() {
    let fixture = Fixture::new();
    let database = fixture.create();
    assert_eq!(check(&database), [[""; 0]; 0]);
    let mut session = database.session("owner").unwrap();
    let rows = run(&mut session, "check database verbose");
    assert_eq!(rows.tag.unwrap().to_string(), "CHECK DATABASE 0");
    let names: Vec<&str> = rows.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["object", "page", "finding", "at_stake"]);
    let last = rows.notices.last().unwrap();
    let detail = last.error.fields().detail.clone().unwrap();
    assert!(detail.contains("\"indexes\":3") && detail.contains("\"findings\":0"), "{detail}");
    for (sql, state) in [("begin; check database", "25001"), ("check tables", "42601")] {
        let error = session.run(sql, &mut Rows::default()).unwrap_err();
        assert_eq!(error.state().to_string(), state, "{sql}: {error}");
    }
    run(&mut session, "rollback");
    run(&mut session, "create role guest login");
    let error = database.session("guest").unwrap().run("check database", &mut Rows::default()).unwrap_err();
    assert_eq!(error.to_string(), "must be superuser to do CHECK DATABASE");
}

#[test]
fn an_index_that_disagrees_with_its_table_is_named_with_the_rows() {
    let fixture = Fixture::new();
    let database = fixture.create();
    let store = database.store();
    let entries = |name: &str| {
        let mut txn = store.begin(TransactionOptions::default());
        let tree = txn.tree(name).unwrap().unwrap();
        let mut cursor = txn.cursor(&tree, (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)).unwrap();
        let mut entries = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            entries.push((key.to_vec(), value.to_vec()));
        }
        entries
    };
    let change = |name: &str, key: &[u8], value: Option<&[u8]>| {
        let mut txn = store.begin(TransactionOptions::default());
        let tree = txn.tree(name).unwrap().unwrap();
        match value {
            Some(value) => txn.put(&tree, key, value).unwrap(),
            None => assert!(txn.delete(&tree, key).unwrap()),
        }
        txn.commit().unwrap();
    };
    // An entry is gone.
    let by_note = tree_of(&database, "by_note");
    let (key, value) = entries(&by_note)[1000].clone();
    change(&by_note, &key, None);
    let found = check(&database);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0][0], "index by_note of table orders");
    let what = &found[0][2];
    assert!(
        what.contains("1 rows have no entry, 0 entries have no row: no entry for the row (id)=("),
        "{what}"
    );
    assert!(found[0][3].contains("drop it and create it again"), "{found:?}");
    // It leads to another row.
    change(&by_note, &key, Some(&entries(&by_note)[5].1));
    let found = check(&database);
    assert!(
        found.len() == 1 && found[0][2].contains("1 rows have no entry, 1 entries have no row"),
        "{found:#?}"
    );
    change(&by_note, &key, Some(&value));
    assert!(check(&database).is_empty());
    // An entry of a row that there is not, in an index that is not unique.
    let log_at = tree_of(&database, "log_at");
    let mut surplus = entries(&log_at)[7].0.clone();
    *surplus.last_mut().unwrap() ^= 0x80;
    change(&log_at, &surplus, Some(b""));
    let found = check(&database);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0][0], "index log_at of table log");
    assert!(found[0][2].contains("0 rows have no entry, 1 entries have no row"), "{found:#?}");
    // What the finding says to do helps.
    let mut session = database.session("owner").unwrap();
    run(&mut session, "drop index log_at");
    run(&mut session, "create index log_at on log (at desc nulls last)");
    assert!(check(&database).is_empty());
}

#[test]
fn a_damaged_page_is_named_by_its_table_and_the_keys_that_are_gone() {
    let fixture = Fixture::new();
    let database = fixture.create();
    let (rows, index) = {
        let catalog = database.catalog();
        let orders = catalog.table("orders").unwrap();
        (orders.storage.name.clone(), tree_of(&database, "by_customer"))
    };
    let id_of = |name: &str| {
        let mut txn = database.store().begin(TransactionOptions::default());
        txn.tree(name).unwrap().unwrap().id().0
    };
    let ids = [id_of(&rows), id_of(&index)];
    database.close().unwrap();
    let sound = std::fs::read(fixture.path()).unwrap();
    for (id, object) in ids.iter().zip(["table orders", "index by_customer of table orders"]) {
        let leaf = sound
            .chunks_exact(PAGE)
            .position(|bytes| {
                let is_leaf = page::kind(bytes) == Some(PageKind::Node) && page::tree(bytes).0 == *id;
                is_leaf && NodeRef::new(bytes).level() == 0 && !NodeRef::new(bytes).lower_fence().is_empty()
            })
            .unwrap();
        let mut bytes = sound.clone();
        bytes[leaf * PAGE + 3000] ^= 4;
        fixture.put(&bytes);
        let database = fixture.open();
        let found = check(&database);
        assert!(found.len() == 1 && found[0][0] == object, "{found:#?}");
        assert_eq!(found[0][1], leaf.to_string());
        let stake = &found[0][3];
        if object.starts_with("table") {
            assert!(stake.starts_with("rows with (id) from (") && stake.contains(") to below ("), "{stake}");
        } else {
            assert!(stake.contains("no row of the table is lost"), "{stake}");
        }
        drop(database);
        fixture.put(&sound);
    }
    assert!(check(&fixture.open()).is_empty());
}

#[test]
fn nothing_sound_is_reported_beside_statements_that_change_everything() {
    let fixture = Fixture::new();
    let database = fixture.create();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|number| {
            let (database, stop) = (database.clone(), Arc::clone(&stop));
            thread::spawn("writer", move || {
                let mut session = database.session("owner").unwrap();
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let from = (round * 37 + number * 1000) % 3000;
                    for sql in [
                        format!("update orders set customer = 'c' || {round}, amount = amount + 1 where id between {from} and {from} + 40"),
                        format!("delete from log where at < {round}"),
                        format!("insert into log values ({round} + 0.25, repeat('y', {round} % 20000))"),
                        format!("create table t{number} (a integer primary key, b text unique)"),
                        format!("insert into t{number} select n, n from generate_series(1, 300) as n"),
                        format!("create index on t{number} (b, a)"),
                        format!("drop table t{number}"),
                    ] {
                        // Two of them may change the same rows.
                        let done = session.run(&sql, &mut Rows::default());
                        assert!(done.as_ref().err().is_none_or(|error| error.to_string().contains("deadlock")), "{done:?}");
                    }
                }
            })
        })
        .collect();
    for _ in 0..12 {
        let found = check(&database);
        assert!(found.is_empty(), "{found:#?}");
    }
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert!(check(&database).is_empty());
}
