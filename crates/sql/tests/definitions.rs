//! Statements that change definitions, on a real database.

use gannet_sql::catalog::{Relation, TableKey};
use gannet_sql::session::Rows;
use gannet_sql::{Database, Error, Session, Value};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
use std::ops::Bound;
use std::path::PathBuf;

struct Fixture {
    engine: Engine,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory: 16 << 20, temp_folder: Some(folder.path().join("temp")) };
        let engine = Engine::new(&options).unwrap();
        let path = folder.path().join("shop.gnt");
        Database::create(
            &engine,
            &path,
            &CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() },
            &OpenOptions::default(),
            "owner",
        )
        .unwrap()
        .close()
        .unwrap();
        Fixture { engine, path, _folder: folder }
    }

    fn open(&self) -> Sql {
        let database = Database::open(&self.engine, &self.path, &OpenOptions::default(), "owner").unwrap();
        let session = database.session("owner").unwrap();
        Sql { session, database }
    }
}

struct Sql {
    session: Session,
    database: Database,
}

impl Sql {
    fn run(&mut self, sql: &str) -> Rows {
        self.attempt(sql).unwrap_or_else(|error| panic!("{sql}: {error}: {:?}", error.fields().detail))
    }

    fn attempt(&mut self, sql: &str) -> Result<Rows, Error> {
        let mut rows = Rows::default();
        self.session.run(sql, &mut rows).map(|()| rows)
    }

    /// State, message and detail of the error.
    fn fails(&mut self, sql: &str) -> (&'static str, String, Option<String>) {
        let Err(error) = self.attempt(sql) else { panic!("{sql} succeeds") };
        (error.state().0, error.to_string(), error.fields().detail.clone())
    }

    /// Checks the error of a statement: state and message.
    fn refuses(&mut self, sql: &str, state: &str, message: &str) {
        let (found, text, _) = self.fails(sql);
        assert_eq!((found, text.as_str()), (state, message), "{sql}");
    }

    fn table(&self, name: &str) -> std::sync::Arc<gannet_sql::catalog::Table> {
        self.database.catalog().table(name).unwrap_or_else(|| panic!("no table {name}")).clone()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.database.catalog().names.keys().cloned().collect();
        names.sort();
        names
    }

    /// Changes what is stored of a table, as another release might have stored it.
    fn change_entry(&self, table: &str, change: impl Fn(&str) -> String) {
        let mut transaction = self.database.store().begin(TransactionOptions::default());
        let tree = transaction.tree("catalog.sql").unwrap().unwrap();
        let mut key = vec![1];
        key.extend_from_slice(&self.table(table).oid.to_be_bytes());
        let entry = transaction.get(&tree, &key).unwrap().unwrap();
        let mut changed = entry[..8].to_vec();
        changed.extend_from_slice(change(std::str::from_utf8(&entry[8..]).unwrap()).as_bytes());
        transaction.put(&tree, &key, &changed).unwrap();
        transaction.commit().unwrap();
    }

    /// Puts rows into a table without indexes, as INSERT would.
    fn fill(&self, name: &str, rows: impl Iterator<Item = Vec<Value>>) {
        let table = self.table(name);
        let mut transaction = self.database.store().begin(TransactionOptions::default());
        let tree = transaction.tree(&table.storage.name).unwrap().unwrap();
        for (number, row) in (1_u64..).zip(rows) {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            match &table.key {
                TableKey::RowId => key.extend_from_slice(&number.to_be_bytes()),
                TableKey::Columns(_) => table.codec().row_key(&row, &mut key).unwrap(),
            }
            table.codec().encode_row(&row, &mut value).unwrap();
            transaction.insert(&tree, &key, &value).unwrap();
        }
        transaction.commit().unwrap();
    }

    /// Rows of a table, and the number of entries of each other index.
    fn contents(&self, name: &str) -> (Vec<Vec<Value>>, Vec<usize>) {
        let table = self.table(name);
        let mut transaction = self.database.store().begin(TransactionOptions::default());
        let view = transaction.view();
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let tree = view.tree(&table.storage.name).unwrap().unwrap();
        let mut scan = view.scan(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
        let mut rows = Vec::new();
        while let Some((key, row)) = scan.next().unwrap() {
            let mut values = Vec::new();
            table.codec().decode_row(key, row, &all, &mut values).unwrap();
            for (position, _) in table.indexes.iter().enumerate().filter(|(_, index)| !index.primary) {
                let entry = table.codec().index_entry(position, &values, key).unwrap();
                let index = view.tree(&table.indexes[position].storage.name).unwrap().unwrap();
                assert_eq!(view.get(&index, &entry.key).unwrap(), Some(entry.value), "{values:?}");
            }
            rows.push(values);
        }
        let count = |name: &str| {
            let tree = view.tree(name).unwrap().unwrap();
            let mut scan = view.scan(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
            let mut count = 0;
            while scan.next().unwrap().is_some() {
                count += 1;
            }
            count
        };
        let others = table.indexes.iter().filter(|index| !index.primary);
        (rows, others.map(|index| count(&index.storage.name)).collect())
    }

    /// Counters of sequences and of tables without primary key that are stored.
    fn counters(&self) -> usize {
        let mut transaction = self.database.store().begin(TransactionOptions::default());
        let view = transaction.view();
        let tree = view.tree("catalog.numbers").unwrap().unwrap();
        let mut scan = view.scan(&tree, (Bound::Excluded(&[1][..]), Bound::Unbounded)).unwrap();
        let mut count = 0;
        while scan.next().unwrap().is_some() {
            count += 1;
        }
        count
    }

    fn trees(&self) -> Vec<String> {
        self.database.store().begin(TransactionOptions::default()).trees().unwrap()
    }

    fn close(self) {
        drop(self.session);
        self.database.close().unwrap();
    }
}

fn int(value: i64) -> Value {
    Value::Int(value)
}

#[test]
fn a_table_is_there_after_reopening_with_the_names_postgresql_gives() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table p (id int primary key, n text not null, m int, unique (n, m))");
    sql.run("create table c (a int references p on delete cascade, b varchar(5) unique)");
    sql.run("create index on c (b desc, a); create index on c (b, a)");
    let names = ["c", "c_b_a_idx", "c_b_a_idx1", "c_b_key", "p", "p_n_m_key", "p_pkey"];
    assert_eq!(sql.names(), names);
    sql.close();
    let sql = fixture.open();
    assert_eq!(sql.names(), names);
    let (parent, child) = (sql.table("p"), sql.table("c"));
    assert_eq!(child.foreign_keys[0].name, "c_a_fkey");
    assert_eq!(child.foreign_keys[0].parent, parent.oid);
    assert_eq!(parent.referenced_by, [child.oid]);
    assert!(parent.columns[0].not_null && !parent.columns[2].not_null);
    assert_eq!(parent.key, TableKey::Columns(vec![1]));
    let descending: Vec<_> = child.indexes[1].columns.iter().map(|c| (c.descending, c.nulls_first)).collect();
    assert_eq!(descending, [(true, true), (false, false)]);
    assert!(matches!(sql.database.catalog().names["p_pkey"], Relation::Index { .. }));
}

#[test]
fn a_rollback_takes_definitions_back() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table a (x int)");
    let trees = sql.trees();
    sql.run("begin; create table b (x int primary key); drop table a; create table a (y text)");
    sql.run("savepoint s; create index i on b (x); alter table b add column z int");
    sql.run("rollback to s; alter table b add column w int");
    assert_eq!(sql.names(), ["a"], "others see nothing of it");
    sql.run("rollback");
    assert_eq!((sql.names(), sql.trees()), (vec!["a".to_owned()], trees));
    assert_eq!(sql.table("a").columns[0].name, "x");
    sql.run("begin; create table b (x int); savepoint s; drop table b; rollback to s; commit");
    assert_eq!(sql.names(), ["a", "b"]);
}

#[test]
fn errors_are_those_of_postgresql() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table p (id int primary key, n text unique, k int)");
    sql.run("create table c (a int references p, b int)");
    sql.run("create sequence s; create index i on c (b)");
    for (statement, state, message) in [
        ("create table p (x int)", "42P07", "relation \"p\" already exists"),
        ("create table i (x int)", "42P07", "relation \"i\" already exists"),
        ("create table t (x int, x int)", "42701", "column \"x\" specified more than once"),
        ("create table t (xmin int)", "42701", "column name \"xmin\" conflicts with a system column name"),
        (
            "create table t (x int primary key, y int primary key)",
            "42P16",
            "multiple primary keys for table \"t\" are not allowed",
        ),
        ("create table t (x int, unique (y))", "42703", "column \"y\" named in key does not exist"),
        ("create table t (x int, unique (x, x))", "42701", "column \"x\" appears twice in unique constraint"),
        (
            "create table t (x int null not null)",
            "42601",
            "conflicting NULL/NOT NULL declarations for column \"x\" of table \"t\"",
        ),
        ("create table t (x int references q)", "42P01", "relation \"q\" does not exist"),
        (
            "create table t (x text references p)",
            "42804",
            "foreign key constraint \"t_x_fkey\" cannot be implemented",
        ),
        (
            "create table t (x int references p (k))",
            "42830",
            "there is no unique constraint matching given keys for referenced table \"p\"",
        ),
        (
            "create table t (x int references c)",
            "42704",
            "there is no primary key for referenced table \"c\"",
        ),
        (
            "create table t (x int, foreign key (x) references p (id, n))",
            "42830",
            "number of referencing and referenced columns for foreign key disagree",
        ),
        ("create table s.t (x int)", "3F000", "schema \"s\" does not exist"),
        ("create table pg_catalog.t (x int)", "42501", "permission denied to create \"pg_catalog.t\""),
        ("create index i on c (a)", "42P07", "relation \"i\" already exists"),
        ("create index j on c (z)", "42703", "column \"z\" does not exist"),
        ("create index j on s (z)", "42809", "\"s\" is not a table"),
        ("create index j on z (z)", "42P01", "relation \"z\" does not exist"),
        ("create index j on c using foo (a)", "42704", "access method \"foo\" does not exist"),
        ("drop table z", "42P01", "table \"z\" does not exist"),
        ("drop table s", "42809", "\"s\" is not a table"),
        ("drop index z", "42704", "index \"z\" does not exist"),
        ("drop sequence z", "42P01", "sequence \"z\" does not exist"),
        ("drop table p", "2BP01", "cannot drop table p because other objects depend on it"),
        (
            "drop index p_pkey",
            "2BP01",
            "cannot drop index p_pkey because constraint p_pkey on table p requires it",
        ),
        (
            "alter table p drop constraint p_pkey",
            "2BP01",
            "cannot drop constraint p_pkey on table p because other objects depend on it",
        ),
        ("alter table p drop constraint q", "42704", "constraint \"q\" of relation \"p\" does not exist"),
        ("alter table p add column k int", "42701", "column \"k\" of relation \"p\" already exists"),
        (
            "alter table p alter column z drop default",
            "42703",
            "column \"z\" of relation \"p\" does not exist",
        ),
        ("alter table p alter column id drop not null", "42P16", "column \"id\" is in a primary key"),
        ("alter table p rename column z to y", "42703", "column \"z\" does not exist"),
        ("alter table p rename to c", "42P07", "relation \"c\" already exists"),
        (
            "alter table p add primary key (k)",
            "42P16",
            "multiple primary keys for table \"p\" are not allowed",
        ),
        ("alter table p owner to nobody", "42704", "role \"nobody\" does not exist"),
        ("truncate p", "0A000", "cannot truncate a table referenced in a foreign key constraint"),
        ("create sequence q increment 0", "22023", "INCREMENT must not be zero"),
        ("create sequence q minvalue 5 maxvalue 4", "22023", "MINVALUE (5) must be less than MAXVALUE (4)"),
        ("create sequence q minvalue 5 start 4", "22023", "START value (4) cannot be less than MINVALUE (5)"),
        (
            "create sequence q as smallint maxvalue 40000",
            "22023",
            "MAXVALUE (40000) is out of range for sequence data type smallint",
        ),
        ("create sequence q as text", "22023", "sequence type must be smallint, integer, or bigint"),
        ("create role owner", "42710", "role \"owner\" already exists"),
        ("drop role nobody", "42704", "role \"nobody\" does not exist"),
        ("drop role owner", "55006", "current user cannot be dropped"),
        ("create role pg_x", "42939", "role name \"pg_x\" is reserved"),
        ("drop table pg_class", "42501", "permission denied: \"pg_class\" is a system catalog"),
    ] {
        sql.refuses(statement, state, message);
    }
    for statement in [
        "create temp table t (x int)",
        "create unlogged table t (x int)",
        "create table t (x int) inherits (p)",
        "create table t (x int) partition by range (x)",
        "create table t (x int) tablespace y",
        "create table t as select 1",
        "create table t (like p)",
        "create table t (x int generated always as identity)",
        "create table t (x int[])",
        "create table t (x int references p deferrable)",
        "create index j on c ((a + 1))",
        "create index j on c (a) where b > 1",
        "create index j on c (a) include (b)",
        "create index concurrently j on c (a)",
        "create index j on c using hash (a)",
        "alter table c add constraint x primary key using index i",
        "alter table c enable row level security",
        "create schema x",
        "create view v as select 1",
        "create type x as enum ('a')",
        "create extension x",
        "grant select on p to owner",
    ] {
        assert_eq!(sql.fails(statement).0, "0A000", "{statement}");
    }
    assert_eq!(sql.names(), ["c", "i", "p", "p_n_key", "p_pkey", "s"]);
}

#[test]
fn a_key_named_as_a_relation_is_does_not_take_its_place() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (a int, b int, constraint c check (a > 0)); create index i on t (b)");
    for (statement, name) in [
        ("alter table t add constraint t primary key (a)", "t"),
        ("alter table t add constraint t unique (a)", "t"),
        ("alter table t add constraint i unique (a)", "i"),
        ("create table u (a int constraint u primary key)", "u"),
        ("create table u (a int constraint q unique, b int constraint q unique)", "q"),
        ("create table u (a serial constraint u_a_seq primary key)", "u_a_seq"),
        ("create table u (a int constraint t unique)", "t"),
    ] {
        sql.refuses(statement, "42P07", &format!("relation \"{name}\" already exists"));
    }
    sql.refuses(
        "alter table t add constraint c unique (a)",
        "42710",
        "constraint \"c\" for relation \"t\" already exists",
    );
    sql.run("alter table t add primary key (a)");
    for name in ["t", "i", "t_pkey"] {
        let statement = format!("alter table t rename constraint t_pkey to {name}");
        sql.refuses(&statement, "42P07", &format!("relation \"{name}\" already exists"));
    }
    for statement in ["alter table t rename constraint t_pkey to c", "alter index t_pkey rename to c"] {
        sql.refuses(statement, "42710", "constraint \"c\" for relation \"t\" already exists");
    }
    sql.refuses(
        "alter table t rename constraint no to t",
        "42704",
        "constraint \"no\" for table \"t\" does not exist",
    );
    // A check has no index.
    sql.run("alter table t rename constraint c to t; alter table t rename constraint t to i");
    sql.run("alter table t rename constraint t_pkey to key; insert into t values (1, 2)");
    assert_eq!(sql.names(), ["i", "key", "t"]);
}

#[test]
fn a_sequence_that_a_default_draws_from_is_found_in_upper_case() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run(
        "create sequence s; create table t (a int, b int default NEXTVAL('s'), c int default NextVal('S'))",
    );
    sql.refuses("drop sequence s", "2BP01", "cannot drop sequence s because other objects depend on it");
    sql.run("alter sequence s rename to r; insert into t (a) values (1)");
    let default = |sql: &Sql, column: usize| sql.table("t").columns[column].default.clone();
    assert_eq!(default(&sql, 1).as_deref(), Some("NEXTVAL('r')"));
    sql.run("drop sequence r cascade; insert into t (a) values (2)");
    assert_eq!((default(&sql, 1), default(&sql, 2)), (None, None));
}

#[test]
fn a_default_that_goes_with_a_column_does_not_come_back() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (a serial, b int default nextval('t_a_seq'), c int)");
    sql.refuses(
        "alter table t drop column a",
        "2BP01",
        "cannot drop column a of table t because other objects depend on it",
    );
    sql.run("alter table t drop column a cascade");
    assert_eq!(sql.table("t").columns[0].default, None);
    sql.run("insert into t (c) values (1)");
    assert_eq!(sql.contents("t").0, [[Value::Null, int(1)]]);
}

#[test]
fn a_check_mentions_columns_and_no_types_or_keywords_of_their_names() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    let check = |sql: &Sql, table: &str| sql.table(table).checks[0].expression.clone();
    sql.run("create table e (date date check (date > date '2000-01-01')); alter table e rename date to day");
    assert_eq!(check(&sql, "e"), "\"day\" > DATE '2000-01-01'");
    sql.run("insert into e values ('2001-01-01')");
    assert_eq!(sql.fails("insert into e values ('1999-01-01')").0, "23514");
    sql.run("create table s (d date, year int, check (extract(year from d) > 1990))");
    sql.run("alter table s rename year to years; alter table s drop column years");
    assert_eq!(check(&sql, "s"), "EXTRACT(YEAR FROM d) > 1990");
    assert_eq!(sql.fails("insert into s values ('1980-01-01')").0, "23514");
    sql.run("alter table s drop column d");
    assert!(sql.table("s").checks.is_empty());
    // Casts, functions, strings in all their forms, and names in quotes.
    sql.run("create table t (text text, length int, \"q\"\"a\" text, check (length(text) < length and text <> 'text' and text::text <> E'text\\'' and cast(text as text) <> $$text '$$ and \"q\"\"a\" <> \"text\"))");
    sql.run("alter table t rename text to \"T\"; alter table t rename length to l; alter table t rename \"q\"\"a\" to q");
    assert_eq!(
        check(&sql, "t"),
        "length(\"T\") < l AND \"T\" <> 'text' AND \"T\"::TEXT <> E'text\\'' AND CAST(\"T\" AS TEXT) <> $$text '$$ AND q <> \"T\""
    );
    sql.run("insert into t values ('a', 2, 'b')");
    assert_eq!(sql.fails("insert into t values ('ab', 2, 'b')").0, "23514");
    // What the system's tables say of it.
    sql.run("create table y (d date, year int, check (extract(year from d) > 1990))");
    let columns = "select conkey from pg_constraint where conrelid = 'y'::regclass";
    assert_eq!(sql.run(columns).text(), [["{1}"]]);
    assert_eq!(sql.table("y").checks[0].name, "y_d_check");
}

#[test]
fn a_check_goes_on_whatever_its_table_is_called() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run(
        "create table t (a int, t int, b int, check (t.a > 0 and t.t > 1 and t . b > 2 and \"t\".\"b\" < 9))",
    );
    assert_eq!(sql.table("t").checks[0].expression, "a > 0 AND t > 1 AND b > 2 AND b < 9");
    sql.run("alter table t rename to u; insert into u values (1, 2, 3)");
    assert_eq!(sql.fails("insert into u values (0, 2, 3)").0, "23514");
    sql.run(
        "alter table u add check (u.a <> 5), add column c int check (u.c > 0); alter table u rename to v",
    );
    sql.run("insert into v values (1, 2, 3, 4)");
    assert_eq!(sql.fails("insert into v values (5, 2, 3, 4)").0, "23514");
    assert_eq!(sql.fails("insert into v values (1, 2, 3, 0)").0, "23514");
    // The row has the table's name.
    sql.run("create table w (a int, b int, check (w is not null)); alter table w rename to x");
    sql.run("alter table x rename a to c; insert into x values (1, 2)");
    assert_eq!(sql.fails("insert into x values (1, null)").0, "23514");
    let message = "a name by which constraint \"w_check\" would mean something else is not supported";
    sql.refuses("alter table x rename to c", "0A000", message);
    sql.refuses("alter table x rename b to x", "0A000", message);
    // A column goes without it.
    sql.run("alter table x drop column b; insert into x values (1)");
    assert_eq!(sql.fails("insert into x values (null)").0, "23514");
}

#[test]
fn what_an_earlier_release_has_left_of_names_can_be_mended() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table u (a int check (a > 0)); create table k (a int primary key, b int unique)");
    // It had stored checks with the table's name, and left it there when that changed.
    sql.change_entry("u", |json| json.replace("a > 0", "t.a > 0"));
    // Its keys might be named as their table.
    sql.change_entry("k", |json| json.replace("k_b_key", "k"));
    sql.close();
    let mut sql = fixture.open();
    assert_eq!(sql.fails("insert into u values (1)").0, "42P01");
    assert_eq!(sql.run("select count(*) from pg_constraint").text(), [["3"]]);
    sql.run("alter table u rename to t; insert into t values (1)");
    sql.run("alter table t rename to v; insert into v values (1)");
    assert_eq!(sql.table("v").checks[0].expression, "a > 0");
    sql.run("alter index k rename to k_key; insert into k values (1, 2)");
}

#[test]
fn what_exists_already_is_no_error_where_that_was_said() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (x int)");
    for (statement, notice) in [
        ("create table if not exists t (y text)", "relation \"t\" already exists, skipping"),
        ("drop table if exists z", "table \"z\" does not exist, skipping"),
        ("drop index if exists z", "index \"z\" does not exist, skipping"),
        ("drop view if exists z", "view \"z\" does not exist, skipping"),
        ("drop schema if exists z", "schema \"z\" does not exist, skipping"),
        ("alter table if exists z add column x int", "relation \"z\" does not exist, skipping"),
        (
            "alter table t add column if not exists x int",
            "column \"x\" of relation \"t\" already exists, skipping",
        ),
        (
            "alter table t drop constraint if exists z",
            "constraint \"z\" of relation \"t\" does not exist, skipping",
        ),
        ("create table u (x int) with (fillfactor = 90)", "storage parameter \"fillfactor\" has no effect"),
    ] {
        let rows = sql.run(statement);
        let notices: Vec<String> = rows.notices.iter().map(|notice| notice.error.to_string()).collect();
        assert_eq!(notices, [notice], "{statement}");
    }
    assert_eq!(sql.table("t").columns.len(), 1);
}

#[test]
fn dropping_with_cascade_takes_dependents_along() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table p (id int primary key, n int unique)");
    sql.run("create table c (a int references p, b int references p (n))");
    let (_, message, detail) = sql.fails("drop table p, p");
    assert_eq!(message, "cannot drop table p because other objects depend on it");
    assert_eq!(
        detail.as_deref(),
        Some(
            "constraint c_a_fkey on table c depends on table p\nconstraint c_b_fkey on table c depends on table p"
        )
    );
    let rows = sql.run("alter table p drop constraint p_n_key cascade");
    assert_eq!(rows.notices[0].error.to_string(), "drop cascades to constraint c_b_fkey on table c");
    assert_eq!(sql.table("p").referenced_by, [sql.table("c").oid]);
    sql.run("drop table p cascade");
    assert!(sql.table("c").foreign_keys.is_empty());
    sql.run("create table p (id int primary key); create table q (id int primary key references p)");
    sql.run("alter table p add foreign key (id) references q; drop table p, q");
    assert_eq!(sql.names(), ["c"]);
    assert_eq!(sql.trees().iter().filter(|name| name.starts_with("t.")).count(), 1);
}

#[test]
fn an_index_is_built_from_rows_through_files() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (a int, b text)");
    let count = 40_000;
    // Long texts, so that the entries do not fit the memory of an operation.
    let row = |n: i64| vec![int(n * 7919 % count), Value::text(format!("{:0100}", n * 31 % count))];
    sql.fill("t", (0..count).map(row));
    let before = fixture.engine.temp_stats().bytes_written;
    sql.run("create index on t (b, a)");
    assert!(fixture.engine.temp_stats().bytes_written > before + (2 << 20), "little was spilled");
    sql.run("create unique index on t (a)");
    sql.run("alter table t add primary key (a)");
    let (rows, entries) = sql.contents("t");
    assert_eq!(entries, [count as usize, count as usize]);
    assert!(rows.iter().map(|row| row[0].as_int().unwrap()).eq(0..count), "in order of the key");
    sql.run("alter table t drop constraint t_pkey");
    assert_eq!(sql.contents("t").0.len(), count as usize);
    assert_eq!(sql.table("t").key, TableKey::RowId);
    assert!(fixture.engine.temp_stats().open_files == 0);
}

#[test]
fn duplicates_are_found_and_named() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (a int, b text)");
    let rows = [(1, Some("x")), (2, None), (1, Some("y")), (2, None)];
    let value = |text: Option<&str>| text.map_or(Value::Null, Value::text);
    sql.fill("t", rows.into_iter().map(|(a, b)| vec![int(a), value(b)]));
    let trees = sql.trees();
    for statement in ["create unique index i on t (a)", "alter table t add constraint i primary key (a)"] {
        let (state, message, detail) = sql.fails(statement);
        assert_eq!((state, message.as_str()), ("23505", "could not create unique index \"i\""));
        assert_eq!(detail.as_deref(), Some("Key (a)=(1) is duplicated."));
    }
    // NULLs agree with nothing.
    sql.run("create unique index j on t (b)");
    assert_eq!(sql.contents("t").1, [4]);
    sql.run("drop index j");
    assert_eq!(sql.trees(), trees);
    sql.refuses(
        "alter table t add primary key (b)",
        "23502",
        "column \"b\" of relation \"t\" contains null values",
    );
}

#[test]
fn rows_too_long_for_a_page_are_kept_when_a_table_is_rewritten() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (a int, b text)");
    let row = |n: i64| vec![int(20 - n), Value::text("x".repeat(n as usize * 3000))];
    sql.fill("t", (0..20).map(row));
    sql.run("alter table t add primary key (a)");
    let (rows, _) = sql.contents("t");
    let lengths: Vec<usize> = rows.iter().map(|row| row[1].as_str().unwrap().len()).collect();
    assert_eq!(lengths, (0..20).map(|n| (19 - n) * 3000).collect::<Vec<_>>());
}

#[test]
fn truncate_gives_tables_new_trees() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table p (id int primary key, n int unique); create table c (a int references p)");
    let (trees, oid) = (sql.trees().len(), sql.table("p").oid);
    let (_, _, detail) = sql.fails("truncate p");
    assert_eq!(detail.as_deref(), Some("Table \"c\" references \"p\"."));
    let rows = sql.run("truncate p cascade");
    assert_eq!(rows.notices[0].error.to_string(), "truncate cascades to table \"c\"");
    sql.run("truncate table p, c restart identity");
    assert_eq!((sql.trees().len(), sql.table("p").oid), (trees, oid));
    sql.fill("c", [vec![Value::Null]].into_iter());
    sql.run("begin; truncate c; rollback");
    assert_eq!(sql.contents("c").0.len(), 1);
    sql.run("truncate c");
    assert!(sql.contents("c").0.is_empty());
}

#[test]
fn passwords_are_kept_as_verifiers() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create user ann password 'secret'; create role bob superuser");
    let ann = sql.database.role("ann").unwrap();
    assert!(ann.login && !ann.superuser);
    let verifier = ann.password.clone().unwrap();
    assert!(verifier.starts_with("SCRAM-SHA-256$4096:") && !verifier.contains("secret"));
    sql.run(&format!("alter role bob password '{verifier}' login"));
    assert_eq!(sql.database.role("bob").unwrap().password.as_deref(), Some(verifier.as_str()));
    sql.run("alter user ann password null");
    assert_eq!(sql.database.role("ann").unwrap().password, None);
    let mut ann = Sql { session: sql.database.session("ann").unwrap(), database: sql.database.clone() };
    ann.run("create table t (a int); alter user ann password 'other'");
    ann.refuses("create role x", "42501", "permission denied to create role");
    ann.refuses("alter role bob nologin", "42501", "permission denied");
    sql.run("create table u (a int)");
    ann.refuses("drop table u", "42501", "must be owner of table u");
    let (state, message, detail) = sql.fails("drop role ann");
    assert_eq!(state, "2BP01");
    assert_eq!(message, "role \"ann\" cannot be dropped because some objects depend on it");
    assert_eq!(detail.as_deref(), Some("owner of table t"));
    sql.run("alter table t owner to owner; drop role ann, bob");
    assert_eq!(sql.database.catalog().roles.len(), 1);
}

#[test]
fn the_owner_locked_everybody_out() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.refuses("alter role owner nologin", "0A000", "role \"owner\" has to stay able to log in");
    sql.refuses("alter role current_user nosuperuser", "0A000", "role \"owner\" has to stay a superuser");
    assert!(sql.database.role("owner").unwrap().login);
    sql.run("alter role owner login superuser; create role ann login; alter role ann nologin");
    assert!(!sql.database.role("ann").unwrap().login);
}

#[test]
fn what_only_superusers_and_owners_may_do_is_refused() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create role ann login; create table t (a int); insert into t values (1)");
    let mut ann = Sql { session: sql.database.session("ann").unwrap(), database: sql.database.clone() };
    ann.refuses(
        "checkpoint",
        "42501",
        "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT",
    );
    ann.refuses("set lc_messages to 'C'", "42501", "permission denied to set parameter \"lc_messages\"");
    ann.refuses("create index on t (a)", "42501", "must be owner of table t");
    ann.refuses("truncate t", "42501", "must be owner of table t");
    sql.run("create table p (id int primary key)");
    ann.refuses("create table spy (id int references p)", "42501", "permission denied for table p");
    ann.run("create table spy (id int primary key, other int references spy)");
    ann.refuses(
        "alter table spy add foreign key (id) references p",
        "42501",
        "permission denied for table p",
    );
    // Whoever owns both, and superusers, may.
    sql.run("create table c (id int references spy, p int references p); drop table c; alter table p owner to ann");
    ann.run("alter table spy add foreign key (id) references p; drop table spy");
    // As in PostgreSQL, one that is not the role's own is passed over.
    ann.run("create table own (a int)");
    for statement in ["vacuum t", "vacuum analyze t", "vacuum analyze t, own"] {
        let notices = ann.run(statement).notices;
        let messages: Vec<String> = notices.iter().map(|notice| notice.error.to_string()).collect();
        let passed_over = "skipping \"t\" --- only table or database owner can vacuum it";
        assert_eq!(messages, [passed_over], "{statement}");
        assert_eq!(notices[0].error.state().0, "01000");
    }
    assert!(ann.run("vacuum analyze own").notices.is_empty());
    // Rows are for every role.
    ann.run("update t set a = 2; insert into t values (3); delete from t where a = 2");
    for statement in ["checkpoint", "vacuum analyze t", "set lc_messages to 'C'", "reset lc_messages"] {
        assert!(sql.run(statement).notices.is_empty());
    }
}

#[test]
fn a_revoked_superuser_kept_its_rights_in_an_open_transaction() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create role alice login superuser; create table t (a int)");
    let session = || Sql { session: sql.database.session("alice").unwrap(), database: sql.database.clone() };
    let (mut alice, mut idle) = (session(), session());
    idle.run("set job_pace = full; reset job_pace");
    alice.run("begin isolation level repeatable read; select 1; savepoint s");
    sql.run("alter role alice nosuperuser");
    for (statement, message) in [
        ("create role m superuser", "permission denied to create role"),
        ("alter role owner password 'x'", "permission denied"),
        ("drop table t", "must be owner of table t"),
        ("select * from pg_authid", "permission denied for table pg_authid"),
        ("select gannet_cancel_job(1)", "must be a superuser to cancel a job"),
        ("set job_pace = full", "permission denied to set parameter \"job_pace\""),
    ] {
        alice.refuses(statement, "42501", message);
        alice.run("rollback to s");
        idle.refuses(statement, "42501", message);
    }
    idle.run("create table own (a int); drop table own");
    // What is granted counts from the next transaction on.
    sql.run("alter role alice superuser");
    idle.run("set job_pace = full; create role m");
    // Who gives it away has it no longer, and who takes that back has.
    idle.run("begin; alter role alice nosuperuser; savepoint s");
    idle.refuses("drop role m", "42501", "permission denied to drop role");
    idle.run("rollback; drop role m");
}

#[test]
fn a_revoked_superuser_went_on_without_the_databases_limit_of_snapshots() {
    let fixture = Fixture::new();
    let limit = Some(std::time::Duration::from_secs(60));
    let options = OpenOptions { snapshot_limit: limit, ..OpenOptions::default() };
    let database = Database::open(&fixture.engine, &fixture.path, &options, "owner").unwrap();
    let of = |user| Sql { session: database.session(user).unwrap(), database: database.clone() };
    let mut sql = of("owner");
    sql.run("create role alice login superuser");
    let mut alice = of("alice");
    alice.run("set snapshot_limit = 0");
    alice.run("begin; set snapshot_limit = '5s'");
    sql.run("alter role alice nosuperuser");
    // What it was is brought back, and set no more.
    alice.run("rollback");
    assert_eq!(alice.run("show snapshot_limit").text(), [["0"]]);
    let denied = "permission denied to set parameter \"snapshot_limit\" beyond the database's";
    alice.refuses("set snapshot_limit = 0", "42501", denied);
    alice.refuses("select set_config('snapshot_limit', '2min', false)", "42501", denied);
    alice.run("reset snapshot_limit");
    assert_eq!(alice.run("show snapshot_limit").text(), [["1min"]]);
}

#[test]
fn a_role_of_the_same_name_is_another_one() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create role bob login");
    let database = sql.database.clone();
    let session = || Sql { session: database.session("bob").unwrap(), database: database.clone() };
    let mut old = session();
    old.run("select 'of the old one'");
    sql.run("drop role bob");
    let gone = "role \"bob\" does not exist";
    old.refuses("create table x (a int)", "28000", gone);
    sql.run("create role bob login superuser; create table t (a int); alter table t owner to bob");
    let mut new = session();
    old.refuses("create role m", "28000", gone);
    old.refuses("alter role bob password 'mine'", "28000", gone);
    old.refuses("drop table t", "28000", gone);
    old.refuses("select * from pg_authid", "42501", "permission denied for table pg_authid");
    let pace = "permission denied to set parameter \"job_pace\"";
    old.refuses("set job_pace = full", "42501", pace);
    assert_eq!(old.run("vacuum t").notices.len(), 1);
    sql.run("alter role bob nosuperuser");
    // Nor is either one's session the other's.
    let (theirs, mine) = (old.session.state().pid, new.session.state().pid);
    let end = |pid| format!("select pg_cancel_backend({pid})");
    assert_eq!(new.fails(&end(theirs)).0, "42501");
    assert_eq!(old.fails(&end(mine)).0, "42501");
    let seen = format!("select query from pg_stat_activity where pid = {theirs}");
    assert_eq!(new.run(&seen).text(), [["<insufficient privilege>"]]);
}

#[test]
fn a_definition_of_a_newer_release_is_refused_by_name() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table fruit (a int)");
    sql.change_entry("fruit", |json| json.replacen('{', "{\"colour\":1,", 1));
    sql.close();
    let error = Database::open(&fixture.engine, &fixture.path, &OpenOptions::default(), "owner").unwrap_err();
    assert_eq!(error.state().0, "0A000");
    let message = error.to_string();
    assert!(message.starts_with("table \"fruit\" of this database needs a newer release"), "{message}");
    assert!(message.contains("colour"), "{message}");
}

#[test]
fn two_sessions_do_not_make_one_name_twice() {
    let fixture = Fixture::new();
    let mut one = fixture.open();
    let mut two = Sql { session: one.database.session("owner").unwrap(), database: one.database.clone() };
    one.run("begin; create table t (a int)");
    two.run("set lock_timeout = '50ms'");
    assert_eq!(two.fails("create table t (b int)").0, "55P03");
    let waiting = std::thread::spawn(move || {
        two.run("set lock_timeout = 0");
        let error = two.fails("create table t (b int)");
        (error.0, error.1)
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    one.run("commit");
    assert_eq!(waiting.join().unwrap(), ("42P07", "relation \"t\" already exists".to_owned()));
    assert_eq!(one.table("t").columns[0].name, "a");
}

/// Runs a statement in another session while `first` has done something and not committed it; gives how it ends once that is committed.
fn behind(one: &mut Sql, first: &str, second: &'static str) -> Result<(), (&'static str, String)> {
    let mut two = Sql { session: one.database.session("owner").unwrap(), database: one.database.clone() };
    one.run(&format!("begin; {first}"));
    two.run("set lock_timeout = '50ms'");
    assert_eq!(two.fails(second).0, "55P03", "{second} waits");
    let waiting = std::thread::spawn(move || {
        two.run("set lock_timeout = 0");
        two.attempt(second).map(drop).map_err(|error| (error.state().0, error.to_string()))
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    one.run("commit");
    waiting.join().unwrap()
}

#[test]
fn a_sequence_stays_what_a_default_names_whoever_changes_it_meanwhile() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create sequence s");
    let create = "create table t (a int, b int default nextval('s'))";
    assert_eq!(behind(&mut sql, create, "alter sequence s rename to r"), Ok(()));
    assert_eq!(sql.table("t").columns[1].default.as_deref(), Some("nextval('r')"));
    sql.run("insert into t (a) values (1)");
    let refused =
        |name| Err(("2BP01", format!("cannot drop sequence {name} because other objects depend on it")));
    sql.run("create sequence q");
    let default = "alter table t alter a set default nextval('q')";
    assert_eq!(behind(&mut sql, default, "drop sequence q"), refused("q"));
    let column = "alter table t add column c int default NEXTVAL('public.q')";
    sql.run("alter table t alter a drop default");
    assert_eq!(behind(&mut sql, column, "drop sequence q"), refused("q"));
    // It is another one now, or none.
    sql.run("create sequence a");
    let rename = "alter sequence a rename to b";
    let gone = |what| Err(("42P01", format!("{what} \"a\" does not exist")));
    assert_eq!(behind(&mut sql, rename, "drop sequence a"), gone("sequence"));
    sql.run("alter sequence b rename to a");
    assert_eq!(behind(&mut sql, rename, "alter sequence a rename to c"), gone("relation"));
    sql.run("alter sequence b rename to a");
    assert_eq!(
        behind(&mut sql, "drop sequence a", "create table u (x int default nextval('a'))"),
        gone("relation")
    );
    assert_eq!(sql.names(), ["q", "r", "t"]);
    // What has come to belong to a table goes with it.
    assert_eq!(behind(&mut sql, "create sequence o owned by t.a", "drop table t"), Ok(()));
    assert_eq!(sql.names(), ["q", "r"]);
}

#[test]
fn analyze_finds_out_about_rows() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (a int, b text, c int); create table u (x int)");
    let count = 50_000;
    let row = |n: i64| {
        let c = if n % 10 == 0 { Value::Null } else { int(n % 7) };
        vec![int(n), Value::text(format!("{n:050}")), c]
    };
    sql.fill("t", (0..count).map(row));
    sql.run("analyze");
    let catalog = sql.database.catalog();
    let found = &catalog.statistics[&sql.table("t").oid];
    assert_eq!(found.rows, count as f64);
    assert!((300.0..1500.0).contains(&found.pages), "{}", found.pages);
    let (a, b, c) = (&found.columns[&1], &found.columns[&2], &found.columns[&3]);
    assert!(a.distinct == -1.0 && a.correlation > 0.99 && a.histogram.len() == 101);
    assert!(b.width > 50.0 && b.histogram[0] < b.histogram[1]);
    assert_eq!(c.distinct, 7.0);
    assert!((c.null_fraction - 0.1).abs() < 0.02 && c.common.len() == 7 && c.histogram.is_empty());
    assert_eq!(catalog.statistics[&sql.table("u").oid].rows, 0.0);
    sql.run("analyze t (a)");
    assert_eq!(sql.database.catalog().statistics[&sql.table("t").oid].columns.len(), 3);
    sql.refuses("analyze t (z)", "42703", "column \"z\" of relation \"t\" does not exist");
    let notices = sql.run("analyze verbose u").notices;
    assert_eq!(
        notices[0].error.to_string(),
        "\"u\": scanned 1 of 1 pages, containing 0 rows; 0 rows in sample, 0 estimated total rows"
    );
    sql.run("drop table u");
    sql.close();
    let sql = fixture.open();
    assert_eq!(sql.database.catalog().statistics.len(), 1);
}

#[test]
fn defaults_checks_and_sequences_work_in_statements() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (id serial primary key, n text default 'x' || 'y' not null, v int check (v > 0), w int, check (v < w))");
    let names = ["t", "t_id_seq", "t_pkey"];
    assert_eq!(sql.names(), names);
    let checks: Vec<String> = sql.table("t").checks.iter().map(|check| check.name.clone()).collect();
    assert_eq!(checks, ["t_v_check", "t_check"]);
    sql.run("insert into t (v, w) values (1, 2), (2, 3)");
    assert_eq!(sql.run("select id, n from t order by id").text(), [["1", "xy"], ["2", "xy"]]);
    let error = sql.fails("insert into t (v, w) values (0, 2)");
    assert_eq!(
        (error.0, error.1.as_str()),
        ("23514", "new row for relation \"t\" violates check constraint \"t_v_check\"")
    );
    sql.run("begin; create sequence s increment 5; select nextval('s'); select nextval('s'); rollback");
    sql.run("create sequence s increment 5 start 3");
    assert_eq!(sql.run("select nextval('s')").text(), [["3"]]);
    sql.run("begin; alter sequence s restart with 100");
    assert_eq!(sql.run("select nextval('s')").text(), [["100"]]);
    sql.run("rollback");
    assert_eq!(sql.run("select nextval('s')").text(), [["8"]]);
    sql.run("create table u (a int default nextval('s'))");
    sql.refuses("drop sequence s", "2BP01", "cannot drop sequence s because other objects depend on it");
    sql.run("alter sequence s rename to \"R\"; insert into u values (default)");
    assert_eq!(sql.run("select a from u").text(), [["13"]]);
}

#[test]
fn dates_in_defaults_and_checks_are_what_they_were_when_defined() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    let made = sql.run("begin; create table t (a int, z timestamptz default 'now', check (z <= timestamp 'now'::timestamptz)); select now()");
    let made = made.text()[0][0].clone();
    sql.run("commit; set time zone 'Asia/Tokyo'; set datestyle = 'dmy'");
    sql.run(
        "alter table t add y timestamptz default '2024-01-01 00:00', add d date default '01/02/2024', add l text default 'now', \
         add check (y < '3/1/2100 00:00'), add check (l in ('now', E'it\\'s'))",
    );
    sql.run("alter table t alter d set default '03/02/2024'; reset time zone; reset datestyle");
    let sql = &mut {
        sql.close();
        fixture.open()
    };
    assert_eq!(
        sql.run("insert into t values (1) returning z, y, d, l").text(),
        [[made.as_str(), "2023-12-31 15:00:00+00", "2024-02-03", "now"]]
    );
    assert_eq!(sql.fails("insert into t values (1, 'now')").0, "23514");
    assert_eq!(sql.fails("insert into t (y) values ('2100-01-02 15:00:00+00')").0, "23514");
    sql.run("insert into t (y, l) values ('2100-01-02 14:59:59+00', 'it''s')");
    assert_eq!(
        sql.run("select pg_get_constraintdef(oid) from pg_constraint where conname = 't_y_check'").text(),
        [["CHECK ((y < '2100-01-03 00:00:00+09'))"]]
    );
}

#[test]
fn between_symmetric_is_stored_as_it_was_written() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run(
        "create table t (a int, b int, n boolean default (2 between symmetric 3 and 1), constraint c1 check (a between symmetric (5) and 1), \
         constraint c2 check (b not between symmetric abs(a) + 1 and case when b between symmetric 7 and a then 3 else (4) end and b > 0), \
         constraint c3 check (b between symmetric length('and)') and 99))",
    );
    let definitions = [
        ["CHECK ((a between symmetric (5) and 1))"],
        [
            "CHECK ((b not between symmetric abs(a) + 1 and case when b between symmetric 7 and a then 3 else (4) end and b > 0))",
        ],
        ["CHECK ((b between symmetric length('and)') and 99))"],
    ];
    let list = "select pg_get_constraintdef(oid) from pg_constraint where contype = 'c' order by conname";
    assert_eq!(sql.run(list).text(), definitions);
    sql.close();
    let mut sql = fixture.open();
    assert_eq!(sql.run(list).text(), definitions);
    assert_eq!(sql.run("insert into t values (3, 10) returning n").text(), [["t"]]);
    assert!(sql.fails("insert into t values (6, 10)").1.contains("c1"));
    assert!(sql.fails("insert into t values (3, 4)").1.contains("c2"));
    sql.run("alter table t rename a to \"A\"; alter table t alter \"A\" type bigint");
    assert!(sql.fails("insert into t values (6, 10)").1.contains("c1"));
    // What is shown can be run.
    for [definition] in definitions {
        sql.run(&format!("create table u (a int, b int, {definition}); drop table u"));
    }
}

#[test]
fn existing_rows_are_looked_at_when_rules_are_added() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table p (id int primary key); insert into p values (1), (2)");
    sql.run("create table c (a int, b int); insert into c values (1, 5), (null, 6), (7, null)");
    sql.refuses(
        "alter table c alter column b set not null",
        "23502",
        "column \"b\" of relation \"c\" contains null values",
    );
    sql.refuses(
        "alter table c add check (b > 5)",
        "23514",
        "check constraint \"c_b_check\" of relation \"c\" is violated by some row",
    );
    let (state, message, detail) = sql.fails("alter table c add foreign key (a) references p");
    assert_eq!(
        (state, message.as_str()),
        ("23503", "insert or update on table \"c\" violates foreign key constraint \"c_a_fkey\"")
    );
    assert_eq!(detail.as_deref(), Some("Key (a)=(7) is not present in table \"p\"."));
    sql.run("delete from c where a = 7; alter table c add foreign key (a) references p, add check (b > 4), alter b set not null");
    let table = sql.table("c");
    assert_eq!((table.foreign_keys.len(), table.checks.len(), table.columns[1].not_null), (1, 1, true));
    assert_eq!(sql.fails("insert into c values (9, 9)").0, "23503");
}

#[test]
fn columns_are_added_dropped_and_changed() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (a int primary key, b text); insert into t values (1, 'x'), (2, 'y')");
    sql.refuses(
        "alter table t add column c int not null",
        "23502",
        "column \"c\" of relation \"t\" contains null values",
    );
    sql.run("alter table t add column c int not null default 5, add column d timestamp default '2020-01-02', add e int");
    assert_eq!(sql.table("t").layouts.len(), 4);
    sql.run("insert into t values (3, 'z', 6)");
    assert_eq!(
        sql.run("select * from t order by a").text(),
        [
            ["1", "x", "5", "2020-01-02 00:00:00", ""],
            ["2", "y", "5", "2020-01-02 00:00:00", ""],
            ["3", "z", "6", "2020-01-02 00:00:00", ""]
        ]
    );
    sql.run("alter table t add column f serial");
    assert_eq!(sql.run("select f from t order by a").text(), [["1"], ["2"], ["3"]]);
    sql.run("create index on t (b); alter table t drop column d, drop column f, alter column c type text");
    assert_eq!(sql.run("select * from t where a = 1").text(), [["1", "x", "5", ""]]);
    assert!(!sql.names().contains(&"t_f_seq".to_owned()));
    sql.run("alter table t add check (c <> ''); alter table t rename column c to \"C\"");
    assert_eq!(sql.fails("insert into t values (4, 'z', '')").0, "23514");
}

#[test]
fn system_tables_tell_what_is_defined() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (id serial primary key, v numeric(10, 2) not null, check (v > 0)); create index on t (v desc)");
    assert_eq!(
        sql.run("select attname, format_type(atttypid, atttypmod), attnotnull from pg_attribute where attrelid = 't'::regclass and attnum > 0 order by attnum").text(),
        [["id", "integer", "t"], ["v", "numeric(10,2)", "t"]]
    );
    assert_eq!(
        sql.run("select relname, relkind from pg_class where relnamespace = 2200 order by 1").text(),
        [["t", "r"], ["t_id_seq", "S"], ["t_pkey", "i"], ["t_v_idx", "i"]]
    );
    assert_eq!(
        sql.run("select indexname, indexdef from pg_indexes order by 1").text(),
        [
            ["t_pkey", "CREATE UNIQUE INDEX t_pkey ON public.t USING btree (id)"],
            ["t_v_idx", "CREATE INDEX t_v_idx ON public.t USING btree (v DESC)"]
        ]
    );
    assert_eq!(
        sql.run("select conname, contype, conkey from pg_constraint order by 1").text(),
        [["t_pkey", "p", "{1}"], ["t_v_check", "c", "{2}"]]
    );
    for table in gannet_sql::system::all() {
        let rows = sql.run(&format!("select * from {}.{}", table.schema, table.name));
        assert!(rows.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.name);
    }
}

#[test]
fn a_sequence_that_is_being_changed_is_not_moved_by_others() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create sequence s; select nextval('s')");
    let set = "select setval('s', 5000)";
    let next = |sql: &mut Sql| sql.run("select nextval('s')").text()[0][0].clone();
    assert_eq!(behind(&mut sql, "alter sequence s restart with 1", set), Ok(()));
    assert_eq!(next(&mut sql), "5001");
    sql.run("create table t (a int); alter sequence s owned by t.a");
    assert_eq!(behind(&mut sql, "truncate t restart identity", set), Ok(()));
    assert_eq!(next(&mut sql), "5001");
    // The limits that hold are the new ones.
    assert_eq!(behind(&mut sql, "alter sequence s maxvalue 5002", "select nextval('s')"), Ok(()));
    let exhausted = "nextval: reached maximum value of sequence \"s\" (5002)";
    sql.refuses("select nextval('s')", "2200H", exhausted);
    let narrow = "alter sequence s restart with 5 maxvalue 20";
    let beyond = "setval: value 5000 is out of bounds for sequence \"s\" (1..20)".to_owned();
    assert_eq!(behind(&mut sql, narrow, set), Err(("22003", beyond)));
    // What is rolled back leaves all as it was.
    assert_eq!(next(&mut sql), "5");
    sql.run("begin; alter sequence s maxvalue 100 restart with 50");
    assert_eq!(next(&mut sql), "50");
    sql.run("rollback");
    assert_eq!(next(&mut sql), "6");
    assert_eq!(behind(&mut sql, "drop sequence s", "alter sequence s restart").unwrap_err().0, "42P01");
}

#[test]
fn a_snapshot_does_not_move_a_sequence_that_was_restarted_since() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create sequence s; select setval('s', 10)");
    let mut old = Sql { session: sql.database.session("owner").unwrap(), database: sql.database.clone() };
    old.run("begin isolation level repeatable read; select 1");
    sql.run("alter sequence s restart with 1000");
    assert_eq!(old.run("select nextval('s')").text(), [["1000"]]);
    assert_eq!(sql.run("select nextval('s')").text(), [["1001"]]);
    assert_eq!(old.run("select nextval('s'), currval('s'), lastval()").text(), [["1002", "1002", "1002"]]);
    // Who draws by an older definition holds the one that he goes by.
    sql.run("set lock_timeout = '50ms'");
    assert_eq!(sql.fails("alter sequence s restart").0, "55P03");
    old.run("commit");
    sql.run("alter sequence s restart");
    assert_eq!(old.run("select nextval('s')").text(), [["1"]]);
}

#[test]
fn counters_of_what_is_dropped_stayed_until_the_database_was_closed() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    let last = "select last_value from pg_sequences where sequencename = 's'";
    sql.run("create sequence s; select setval('s', 1000)");
    let mut old = Sql { session: sql.database.session("owner").unwrap(), database: sql.database.clone() };
    old.run("begin isolation level repeatable read; select 1");
    let begun = "create table t (a int, b serial); insert into t select 1";
    sql.run(&format!("begin; {begun}; rollback; {begun}"));
    assert_eq!(sql.counters(), 5, "of what was rolled back as well");
    sql.run("drop table t; alter sequence s restart; select nextval('s')");
    assert_eq!(sql.counters(), 3);
    // Who sees what was finds what was, and moves what there is.
    assert_eq!(old.run(last).text(), [["1000"]]);
    assert_eq!(old.run("select nextval('s')").text(), [["2"]]);
    old.run("commit; begin isolation level repeatable read; select 1");
    sql.run("begin; drop sequence s; rollback; select nextval('s'); drop sequence s");
    assert_eq!(sql.counters(), 2);
    old.fails("select nextval('s')");
    old.run("rollback");
    assert_eq!(sql.counters(), 2);
    drop(old);
    sql.close();
    assert_eq!(fixture.open().counters(), 0);
}

#[test]
fn lastval_and_the_last_value_of_a_sequence() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create sequence s; create sequence r");
    assert_eq!(sql.run("select pg_sequence_last_value('s')").text(), [[""]]);
    sql.run("select setval('s', 50, false)");
    assert_eq!(sql.run("select pg_sequence_last_value('s')").text(), [[""]]);
    let mut other = Sql { session: sql.database.session("owner").unwrap(), database: sql.database.clone() };
    other.run("select nextval('s')");
    assert_eq!(sql.run("select pg_sequence_last_value('s')").text(), [["50"]]);
    sql.run("select nextval('s'), nextval('r')");
    sql.run("select setval('r', 7)");
    assert_eq!(sql.run("select lastval()").text(), [["7"]]);
    sql.run("drop sequence r");
    sql.refuses("select lastval()", "55000", "lastval is not yet defined in this session");
}

#[test]
fn new_limits_of_a_sequence_are_checked_against_where_it_stands() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create sequence s; select setval('s', 50, false)");
    let beyond = "RESTART value (50) cannot be greater than MAXVALUE (20)";
    sql.refuses("alter sequence s maxvalue 20", "22023", beyond);
    sql.run("alter sequence s maxvalue 60");
    assert_eq!(sql.run("select nextval('s')").text(), [["50"]]);
    // One that was never used has to have room for its first value, too.
    sql.run("create sequence u");
    sql.refuses(
        "alter sequence u minvalue 5 start 5",
        "22023",
        "RESTART value (1) cannot be less than MINVALUE (5)",
    );
}

#[test]
fn a_role_that_is_about_to_own_something_is_not_dropped() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create role ann login; create table t (a int); create sequence s");
    let drop_ann = "drop role ann";
    let refused =
        Err(("2BP01", "role \"ann\" cannot be dropped because some objects depend on it".to_owned()));
    assert_eq!(behind(&mut sql, "alter table t owner to ann", drop_ann), refused);
    sql.run("alter table t owner to owner");
    assert_eq!(behind(&mut sql, "alter sequence s owner to ann", drop_ann), refused);
    sql.run("alter sequence s owner to owner");
    let mut ann = Sql { session: sql.database.session("ann").unwrap(), database: sql.database.clone() };
    assert_eq!(behind(&mut ann, "create table u (a int)", drop_ann), refused);
    ann.run("begin; create table v (a int)");
    sql.run("set lock_timeout = '50ms'");
    assert_eq!(sql.fails(drop_ann).0, "55P03");
    ann.run("rollback; drop table u");
    // And the other way round.
    let gone = Err(("42704", "role \"ann\" does not exist".to_owned()));
    assert_eq!(behind(&mut sql, drop_ann, "alter table t owner to ann"), gone);
}

#[test]
fn owned_sequences_have_the_owner_of_their_table() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create role ann; create table t (id serial); create sequence s");
    let (state, message, detail) = sql.fails("alter sequence t_id_seq owner to ann");
    assert_eq!((state, message.as_str()), ("0A000", "cannot change owner of sequence \"t_id_seq\""));
    assert_eq!(detail.as_deref(), Some("Sequence \"t_id_seq\" is linked to table \"t\"."));
    sql.run("alter sequence t_id_seq owner to owner; alter sequence s owner to ann");
    let differ = "sequence must have same owner as table it is linked to";
    sql.refuses("alter sequence s owned by t.id", "55000", differ);
    sql.run("alter table t owner to ann; alter sequence s owned by t.id");
}

#[test]
fn if_exists_passes_over_a_schema_that_is_not_there() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    let schema = "schema \"nosuch\" does not exist, skipping";
    let relation = |name: &str| format!("relation \"{name}\" does not exist, skipping");
    for (statement, notice) in [
        ("drop table if exists nosuch.t", schema.to_owned()),
        ("drop sequence if exists nosuch.s", schema.to_owned()),
        ("drop index if exists nosuch.i", schema.to_owned()),
        ("drop view if exists nosuch.v", schema.to_owned()),
        ("drop type if exists nosuch.y", schema.to_owned()),
        ("alter table if exists nosuch.t add column a int", relation("t")),
        ("alter table if exists nosuch.t rename to u", relation("t")),
        ("alter sequence if exists nosuch.s restart", relation("s")),
    ] {
        let rows = sql.run(statement);
        let told: Vec<String> = rows.notices.iter().map(|notice| notice.error.to_string()).collect();
        assert_eq!(told, [notice], "{statement}");
    }
    sql.refuses("drop table nosuch.t", "3F000", "schema \"nosuch\" does not exist");
}

#[test]
fn a_read_only_transaction_analyzes_and_defines_nothing() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (a int); insert into t values (1)");
    sql.run("begin read only; analyze t; commit");
    for statement in ["set default_transaction_read_only = on", "vacuum (analyze) t", "analyze"] {
        sql.run(statement);
    }
    for (statement, command) in [
        ("create table u (a int)", "CREATE TABLE"),
        ("drop table t", "DROP TABLE"),
        ("truncate t", "TRUNCATE TABLE"),
        ("alter table t add b int", "ALTER TABLE"),
        ("create index on t (a)", "CREATE INDEX"),
        ("create sequence s", "CREATE SEQUENCE"),
        ("create role ann", "CREATE ROLE"),
    ] {
        let message = format!("cannot execute {command} in a read-only transaction");
        sql.refuses(statement, "25006", &message);
    }
}

#[test]
fn rows_that_are_referred_to_by_another_key_than_the_primary_one_are_locked() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run(
        "create table p (id int primary key, code text unique, n int); create table c (code text references p (code));
         insert into p values (1, 'x', 0), (2, 'z', 0)",
    );
    let child = "insert into c values ('x')";
    assert_eq!(behind(&mut sql, "select * from p where id = 1 for update", child), Ok(()));
    assert_eq!(behind(&mut sql, child, "select * from p where id = 1 for update"), Ok(()));
    sql.run("delete from c");
    let key = "update p set code = 'y' where id = 1";
    assert_eq!(behind(&mut sql, "select * from p where id = 1 for key share", key), Ok(()));
    assert_eq!(sql.run("select code from p order by id").text(), [["y"], ["z"]]);
    let missing =
        "insert or update on table \"c\" violates foreign key constraint \"c_code_fkey\"".to_owned();
    assert_eq!(
        behind(&mut sql, "update p set code = 'x' where id = 1", "insert into c values ('y')"),
        Err(("23503", missing))
    );
    // A parent that is about to come is waited for; one that changes otherwise is not.
    let add = "insert into p values (3, 'new', 0)";
    assert_eq!(behind(&mut sql, add, "insert into c values ('new')"), Ok(()));
    let mut other = Sql { session: sql.database.session("owner").unwrap(), database: sql.database.clone() };
    other.run("set lock_timeout = '50ms'");
    sql.run("begin; update p set n = 1");
    other.run("begin; insert into c values ('z')");
    sql.run("update p set n = 2, code = code; commit");
    other.run("commit");
    sql.run("begin; select * from p for key share");
    other.run("update p set n = 3");
    sql.run("commit; update p set code = code || '2' where id = 1; update p set code = 'x' where id = 1");
}

#[test]
fn constraints_of_added_columns_may_name_what_the_statement_adds_behind_them() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create table t (a int); insert into t values (1), (2)");
    sql.run("alter table t add column b int references t (a), add unique (a)");
    sql.run("alter table t add column x int check (x > y), add column y int default 0");
    sql.run(
        "alter table t add column id serial primary key, add column up int references t, add check (id > 0)",
    );
    sql.run("update t set b = 2, x = 1, up = 1 where a = 1");
    assert_eq!(sql.fails("update t set b = 3").0, "23503");
    assert_eq!(sql.fails("update t set up = 3").0, "23503");
    assert_eq!(sql.fails("update t set x = 0").0, "23514");
    assert_eq!(sql.fails("alter table t add column c int unique default 7").0, "23505");
    assert!(sql.table("t").find_column("c").is_none());
    sql.run("alter table t add column if not exists a int unique");
    assert_eq!(sql.table("t").indexes.len(), 2);
}

#[test]
fn a_sequence_that_a_check_draws_from_is_not_lost_to_it() {
    let fixture = Fixture::new();
    let mut sql = fixture.open();
    sql.run("create sequence s; create table t (a int, constraint drawn check (a < nextval('s') + 100))");
    let message = "cannot drop sequence s because other objects depend on it".to_owned();
    let detail = "constraint drawn on table t depends on sequence s".to_owned();
    assert_eq!(sql.fails("drop sequence s"), ("2BP01", message, Some(detail)));
    sql.run("alter sequence s rename to r; insert into t values (1)");
    assert_eq!(sql.table("t").checks[0].expression, "a < nextval('r') + 100");
    let add = "alter table t add constraint again check (currval('q') > 0)";
    sql.run("create sequence q; truncate t");
    let refused = Err(("2BP01", "cannot drop sequence q because other objects depend on it".to_owned()));
    assert_eq!(behind(&mut sql, add, "drop sequence q"), refused);
    sql.run("drop sequence q cascade; drop sequence r cascade; insert into t values (1000)");
    assert!(sql.table("t").checks.is_empty());
}
