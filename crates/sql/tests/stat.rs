//! STAT DATABASE: tables and indexes by their names, figures that agree with what statements say, and who holds what back.

use gannet_sql::session::Rows;
use gannet_sql::stat::{ObjectKind, StatRequest, Statistics, statistics};
use gannet_sql::{Database, Session, TableName};
use gannet_store::{
    CreateOptions, Engine, EngineOptions, JobKind, JobOrder, JobReport, OpenOptions, StatMode,
    TransactionOptions, TreeContents, Watch,
};
use std::path::PathBuf;

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
            "create table orders (id bigint primary key, customer text, amount numeric(10, 2), note text)",
            "create index by_customer on orders (customer, amount desc)",
            "create unique index by_note on orders (note)",
            "create table empty (id int)",
            "insert into orders select n, case when n % 4 = 0 then null else 'customer ' || n % 50 end, n % 3,
               case when n % 7 = 0 then null else 'note ' || n end from generate_series(1, 3000) as n",
        ] {
            run(&mut session, sql);
        }
        drop(session);
        database
    }
}

fn run(session: &mut Session, sql: &str) -> Rows {
    let mut rows = Rows::default();
    session.run(sql, &mut rows).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows
}

fn pid_of(session: &mut Session) -> i32 {
    run(session, "select pg_backend_pid()").text()[0][0].parse().unwrap()
}

/// What a statement with VERBOSE says at its end.
fn told(session: &mut Session, sql: &str) -> (Statistics, JobReport) {
    let rows = run(session, sql);
    let detail = rows.notices.last().unwrap().error.fields().detail.clone().unwrap();
    let mut detail: serde_json::Value = serde_json::from_str(&detail).unwrap();
    let statistics = serde_json::from_value(detail["statistics"].take()).unwrap();
    (statistics, serde_json::from_value(detail["job"].take()).unwrap())
}

fn contents<'s>(statistics: &'s Statistics, name: &str) -> &'s TreeContents {
    let object = statistics.objects.iter().find(|object| object.name == name).unwrap();
    object.contents.as_ref().unwrap()
}

#[test]
fn tables_and_indexes_are_rows_with_figures_that_agree_with_their_contents() {
    let fixture = Fixture::new();
    let database = fixture.create();
    let mut session = database.session("owner").unwrap();
    for sql in ["stat database", "stat database records"] {
        let rows = run(&mut session, sql);
        assert_eq!(rows.tag.as_ref().unwrap().to_string(), "STAT DATABASE 4");
        let names: Vec<&str> = rows.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names[..5], ["name", "kind", "on_table", "rows", "rows_error"]);
        let text = rows.text();
        let beginnings: Vec<Vec<&str>> =
            text.iter().map(|row| row[..5].iter().map(String::as_str).collect()).collect();
        assert_eq!(
            beginnings,
            [
                ["empty", "table", "", "0", "0"],
                ["orders", "table", "", "3000", "0"],
                ["by_customer", "index", "orders", "3000", "0"],
                ["by_note", "index", "orders", "3000", "0"],
            ]
        );
    }
}

#[test]
fn every_estimate_of_a_row_has_its_error_beside_it() {
    let fixture = Fixture::new();
    let database = fixture.create();
    let mut session = database.session("owner").unwrap();
    run(
        &mut session,
        "insert into orders select n, null, 0, n || repeat('x', 600) from generate_series(5000, 40000) as n",
    );
    let mut look = |sql: &str| {
        let rows = run(&mut session, sql);
        let names: Vec<String> = rows.columns.iter().map(|column| column.name.clone()).collect();
        let orders = rows.text().into_iter().find(|row| row[0] == "orders").unwrap();
        names.into_iter().zip(orders).collect::<std::collections::BTreeMap<String, String>>()
    };
    let (sampled, counted) = (look("stat database table orders"), look("stat database table orders records"));
    let errors: Vec<&String> = counted.keys().filter(|name| name.ends_with("_error")).collect();
    assert_eq!(errors.len(), 10);
    for name in errors {
        let figure = name.trim_end_matches("_error");
        assert!(counted.contains_key(figure), "{name}");
        assert_eq!(sampled[figure].is_empty(), sampled[name].is_empty(), "{name}: {sampled:?}");
        assert_eq!(counted[figure].is_empty(), counted[name].is_empty(), "{name}: {counted:?}");
        assert!(matches!(counted[name].as_str(), "" | "0"), "{name}: {counted:?}");
    }
    for name in ["rows_error", "free_bytes_error", "fill_percent_error"] {
        assert!(sampled[name].parse::<f64>().unwrap() > 0.0, "{name}: {sampled:?}");
    }
}

#[test]
fn duplicates_are_entries_that_agree_in_all_columns_of_their_index() {
    let fixture = Fixture::new();
    let database = fixture.create();
    let mut session = database.session("owner").unwrap();
    let (counted, _) = told(&mut session, "stat database records verbose");
    for (index, columns) in [("by_customer", "customer, amount"), ("by_note", "note")] {
        let sql = format!(
            "select count(*), max(c) from (select count(*) as c from orders group by {columns}) as x"
        );
        let groups = run(&mut session, &sql).text();
        let (kinds, longest) = (groups[0][0].parse::<f64>().unwrap(), groups[0][1].parse::<u64>().unwrap());
        let found = contents(&counted, index).duplicates.unwrap();
        assert_eq!((found.total.value, found.longest), (3000.0 - kinds, longest), "{index}");
        assert!(found.longest_is_exact);
    }
    assert_eq!(contents(&counted, "orders").duplicates, None);
}

#[test]
fn verbose_tells_all_of_it_and_who_holds_garbage_back() {
    let fixture = Fixture::new();
    let database = fixture.create();
    let mut reader = database.session("owner").unwrap();
    run(&mut reader, "set application_name = 'report'");
    run(&mut reader, "begin isolation level repeatable read");
    run(&mut reader, "select count(*) from orders");
    let mut session = database.session("owner").unwrap();
    run(&mut session, "delete from orders where id % 10 = 0");
    let mut writer = database.session("owner").unwrap();
    run(&mut writer, "begin");
    run(&mut writer, "update orders set amount = 7 where id = 5");
    let (found, job) = told(&mut session, "stat database table orders records verbose");
    assert_eq!((job.kind, job.about.as_str(), found.mode), (JobKind::Stat, "orders", StatMode::Records));
    let rows = contents(&found, "orders");
    assert_eq!((rows.rows.value, rows.dead_entries.value), (2700.0, 300.0));
    assert_eq!(rows.old_versions.unwrap().value, 301.0);
    let names: Vec<&str> = found.objects.iter().map(|object| object.name.as_str()).collect();
    assert_eq!(names, ["orders", "by_customer", "by_note"]);
    let holder = found.oldest_holder.unwrap();
    assert_eq!((holder.application.as_str(), holder.pid), ("report", pid_of(&mut reader)));
    assert_eq!(found.writers[0].pid, pid_of(&mut writer));
    assert_eq!(found.writers[0].transaction, Some(found.transactions.oldest_active));
    assert_eq!(found.transactions.writers_count, 1);
}

#[test]
fn what_cannot_be_done_says_why() {
    let fixture = Fixture::new();
    let database = fixture.create();
    let mut session = database.session("owner").unwrap();
    for (sql, state, message) in [
        ("stat database table nothing", "42P01", "table \"nothing\" does not exist"),
        ("stat database table by_note", "42809", "\"by_note\" is not a table"),
        ("stat database table other.orders", "3F000", "schema \"other\" does not exist"),
        ("stat database now", "42601", "syntax error at or near \"now\""),
        ("begin; stat database", "25001", "STAT DATABASE cannot run inside a transaction block"),
    ] {
        let error = session.run(sql, &mut Rows::default()).unwrap_err();
        assert_eq!(error.state().to_string(), state, "{sql}: {error}");
        assert!(error.to_string().contains(message), "{sql}: {error}");
    }
    run(&mut session, "rollback");
    run(&mut session, "create role guest login");
    let error = database.session("guest").unwrap().run("stat database", &mut Rows::default()).unwrap_err();
    assert_eq!(error.to_string(), "must be superuser to do STAT DATABASE");
}

#[test]
fn a_map_of_keys_has_trees_by_their_names() {
    let fixture = Fixture::new();
    let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
    let store = fixture.engine.create(&fixture.path(), &create, &OpenOptions::default()).unwrap();
    let mut txn = store.begin(TransactionOptions::default());
    let tree = txn.create_tree("fruit").unwrap();
    txn.put(&tree, b"apple", b"red").unwrap();
    txn.create_tree("shop.fruit").unwrap();
    txn.commit().unwrap();
    let job = store.jobs().begin(JobOrder::new(JobKind::Stat));
    let look = |table: Option<&str>| {
        let request = StatRequest { records: true, table: table.map(TableName::parse) };
        statistics(&store, &request, &mut Watch::new(&job, &mut |_| Ok(())))
    };
    let all = look(None).unwrap();
    let kinds: Vec<ObjectKind> = all.objects.iter().map(|object| object.kind).collect();
    assert_eq!(kinds[..2], [ObjectKind::Tree; 2]);
    assert_eq!(kinds[2..], [ObjectKind::System; 3]);
    assert_eq!(contents(&all, "fruit").rows.value, 1.0);
    assert_eq!(look(Some("fruit")).unwrap().objects.len(), 1);
    // There are no schemas: a point is a part of the name.
    assert_eq!(look(Some("shop.fruit")).unwrap().objects[0].name, "shop.fruit");
    assert!(look(Some("flowers")).unwrap_err().to_string().contains("\"flowers\" does not exist"));
}
