//! Sessions of an embedded database: transactions, savepoints, settings, COPY, and several sessions at once. What is expected is what
//! PostgreSQL 15 does.

use gannet_base::memory::Purpose;
use gannet_sql::session::{
    Client, CommandTag, CopyFormat, Interrupt, Notice, OutputColumn, Reason, Rows, TransactionStatus,
};
use gannet_sql::types::text::TextStyle;
use gannet_sql::{Database, Error, Session, Type, Value};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

struct Fixture {
    engine: Engine,
    path: PathBuf,
    database: Option<Database>,
    _folder: tempfile::TempDir,
}

impl Fixture {
    fn new(sql: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory: 32 << 20, temp_folder: Some(folder.path().join("temp")) };
        let engine = Engine::new(&options).unwrap();
        let path = folder.path().join("shop.gnt");
        let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
        let database = Database::create(&engine, &path, &create, &OpenOptions::default(), "owner").unwrap();
        let fixture = Fixture { engine, path, database: Some(database), _folder: folder };
        fixture.session().run(sql);
        fixture
    }

    fn session(&self) -> Sql {
        Sql(self.database.as_ref().unwrap().session("owner").unwrap())
    }

    /// Closes the database and opens it again.
    fn restart(&mut self) {
        self.database.take().unwrap().close().unwrap();
        let open = Database::open(&self.engine, &self.path, &OpenOptions::default(), "owner");
        self.database = Some(open.unwrap());
    }

    /// Waits until so many statements that begin like this run, and one of them waits for a lock, as far as can be seen.
    fn wait_until_running(&self, begin: &str, count: usize) {
        let began = Instant::now();
        let mut session = self.session();
        let sql =
            format!("select count(*) from pg_stat_activity where state = 'active' and query like '{begin}%'");
        while session.one(&sql) != count.to_string() {
            assert!(began.elapsed() < Duration::from_secs(60), "{begin} does not run");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

struct Sql(Session);

impl Sql {
    fn attempt(&mut self, sql: &str) -> Result<Rows, Error> {
        let mut rows = Rows::default();
        self.0.run(sql, &mut rows).map(|()| rows)
    }

    #[track_caller]
    fn run(&mut self, sql: &str) -> Vec<Vec<String>> {
        self.attempt(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")).text()
    }

    /// The only value.
    #[track_caller]
    fn one(&mut self, sql: &str) -> String {
        let rows = self.run(sql);
        assert!(rows.len() == 1 && rows[0].len() == 1, "{sql}: {rows:?}");
        rows[0][0].clone()
    }

    /// The first column.
    #[track_caller]
    fn list(&mut self, sql: &str) -> String {
        self.run(sql).into_iter().map(|row| row[0].clone()).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn fails(&mut self, sql: &str, state: &str) -> Error {
        match self.attempt(sql) {
            Err(error) => {
                assert_eq!(error.state().0, state, "{sql}: {error:?}");
                error
            }
            Ok(_) => panic!("{sql} succeeds"),
        }
    }
}

const TABLE: &str = "create table t (a int primary key, b int); insert into t values (1, 0), (2, 0), (3, 0)";

#[test]
fn a_restart_keeps_what_was_committed() {
    let mut fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    session.run("create table u (a serial, t text default 'none'); insert into u (t) values ('x')");
    session.run("begin; insert into u (t) values ('lost'); create table v (a int)");
    drop(session);
    fixture.restart();
    let mut session = fixture.session();
    assert_eq!(session.run("select a, t from u"), [["1", "x"]]);
    session.fails("select * from v", "42P01");
    session.run("insert into u default values");
    assert_eq!(session.list("select t from u order by a"), "x none");
    drop(session);
    fixture.restart();
    assert_eq!(fixture.session().one("select count(*) from t"), "3");
}

#[test]
fn a_failed_transaction_takes_nothing_but_its_end() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    session.run("begin; update t set b = 1");
    session.fails("select 1/0", "22012");
    assert_eq!(session.0.status(), TransactionStatus::Failed);
    for sql in [
        "select 1",
        "insert into t values (9, 9)",
        "savepoint s",
        "begin",
        "show timezone",
        "set timezone to 'UTC'",
        "create table v (a int)",
        "prepare p as select 1",
    ] {
        let error = session.fails(sql, "25P02");
        assert_eq!(
            error.to_string(),
            "current transaction is aborted, commands ignored until end of transaction block"
        );
    }
    session.fails("rollback to s", "3B001");
    let rows = session.attempt("commit").unwrap();
    assert_eq!(rows.tag.unwrap().to_string(), "ROLLBACK");
    assert_eq!(
        (session.0.status(), session.list("select b from t").as_str()),
        (TransactionStatus::Idle, "0 0 0")
    );
    // A syntax error fails it as well.
    session.run("begin");
    session.fails("selekt", "42601");
    session.fails("select 1", "25P02");
    session.run("rollback");
}

#[test]
fn savepoints_nest() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    session.run("begin; insert into t values (10, 0); savepoint a; insert into t values (11, 0); savepoint b; insert into t values (12, 0)");
    session.run("rollback to b; insert into t values (13, 0)");
    session.fails("insert into t values (13, 1)", "23505");
    session.run("rollback to b; insert into t values (14, 0); release b");
    session.fails("rollback to b", "3B001");
    session.run("rollback to a; insert into t values (15, 0); release a; commit");
    assert_eq!(session.list("select a from t order by a"), "1 2 3 10 15");
    // The same name hides the earlier one until it is released.
    session.run("begin; savepoint s; delete from t where a = 1; savepoint s; delete from t where a = 2; rollback to s");
    assert_eq!(session.list("select a from t order by a"), "2 3 10 15");
    session.run("release s; rollback to s");
    assert_eq!(session.list("select a from t order by a"), "1 2 3 10 15");
    session.run("rollback");
    for sql in ["savepoint s", "release s", "rollback to s"] {
        session.fails(sql, "25P01");
    }
}

#[test]
fn rolling_back_to_a_savepoint_gives_locks_back_to_nobody_else() {
    let fixture = Fixture::new(TABLE);
    let (mut session, mut other) = (fixture.session(), fixture.session());
    session.run(
        "begin; update t set b = 1 where a = 1; savepoint s; update t set b = 2 where a = 2; rollback to s",
    );
    other.fails("select * from t where a = 1 for update nowait", "55P03");
    assert_eq!(other.list("select a from t where a > 1 order by a for update nowait"), "2 3");
    session.run("commit");
    assert_eq!(session.list("select b from t order by a"), "1 0 0");
}

#[test]
fn a_text_of_several_statements_is_one_transaction() {
    let fixture = Fixture::new(TABLE);
    let (mut session, mut other) = (fixture.session(), fixture.session());
    session.fails("update t set b = 1; create table v (a int); select 1/0", "22012");
    assert_eq!(session.list("select b from t"), "0 0 0");
    session.fails("select * from v", "42P01");
    // A syntax error anywhere, and nothing runs.
    session.fails("update t set b = 1; selekt", "42601");
    session.fails("update t set b = 1; commit; update t set b = 2; select 1/0", "22012");
    assert_eq!(other.list("select b from t"), "1 1 1");
    session.fails("begin; update t set b = 3; commit; update t set b = 4; select nothing", "42703");
    assert_eq!(other.list("select b from t"), "3 3 3");
}

#[test]
fn definitions_are_private_until_commit() {
    let fixture = Fixture::new(TABLE);
    let (mut session, mut other) = (fixture.session(), fixture.session());
    session.run("begin; create table v (a int primary key); insert into v values (1); alter table v add column c int default 5; create index v_c on v (c)");
    assert_eq!(session.run("select a, c from v where c = 5"), [["1", "5"]]);
    other.fails("select * from v", "42P01");
    assert_eq!(other.one("select count(*) from pg_class where relname = 'v'"), "0");
    session.run("rollback");
    session.fails("select * from v", "42P01");
    session.run("begin; drop table t; savepoint s; create table t (x text); insert into t values ('new')");
    assert_eq!(other.one("select count(*) from pg_class where relname = 't'"), "1");
    session.run("rollback to s");
    session.fails("select * from t", "42P01");
    session.run("rollback");
    assert_eq!(session.one("select count(*) from t"), "3");
    session.run("begin; create table w (a int); insert into w values (1); commit");
    assert_eq!(other.one("select count(*) from w"), "1");
    session.run("begin; truncate t; insert into t values (7, 7)");
    assert_eq!(session.list("select a from t"), "7");
    session.run("rollback");
    assert_eq!(session.one("select count(*) from t"), "3");
}

#[test]
fn prepared_statements_follow_definitions() {
    let fixture = Fixture::new(TABLE);
    let (mut session, mut other) = (fixture.session(), fixture.session());
    session.run("prepare few as select b from t where a = $1; prepare every as select * from t where a = $1");
    assert_eq!(session.one("execute few (1)"), "0");
    other.run("create index t_b on t (b); alter table t add column c int");
    assert_eq!(session.one("execute few (1)"), "0");
    let error = session.fails("execute every (1)", "0A000");
    assert_eq!(error.to_string(), "cached plan must not change result type");
    other.run("alter table t drop column c");
    assert_eq!(session.run("execute every (1)"), [["1", "0"]]);
    session.fails("execute few", "42601");
    session.fails("execute few (1, 2)", "42601");
    session.fails("execute none", "26000");
    session.fails("prepare few as select 1", "42P05");
    session.run("deallocate few");
    session.fails("execute few (1)", "26000");
    // By the interface for programs.
    let prepared =
        session.0.prepare_unnamed("update t set b = b + $2 where a = $1 returning b", &[]).unwrap();
    assert_eq!(prepared.parameters(), [Type::Int4, Type::Int4]);
    other.run("drop index t_b");
    for expected in ["5", "10"] {
        let mut rows = Rows::default();
        session.0.execute_prepared(&prepared, &[Value::Int(1), Value::Int(5)], &mut rows).unwrap();
        assert_eq!(rows.text(), [[expected]]);
    }
}

#[test]
fn settings_go_back_with_their_transaction() {
    let fixture = Fixture::new("");
    let mut session = fixture.session();
    session.run("set timezone to 'UTC'");
    session.run("begin; set timezone to 'Asia/Tokyo'; savepoint s; set timezone to 'Europe/Berlin'");
    assert_eq!(session.one("show timezone"), "Europe/Berlin");
    session.run("rollback to s");
    assert_eq!(session.one("show timezone"), "Asia/Tokyo");
    session.run("rollback");
    assert_eq!(session.one("show timezone"), "UTC");
    session.run("begin; set timezone to 'Asia/Tokyo'; commit");
    assert_eq!(session.one("show timezone"), "Asia/Tokyo");
    session.run("begin; set local timezone to 'Europe/Berlin'");
    assert_eq!(session.one("select '2020-01-01 00:00+00'::timestamptz"), "2020-01-01 01:00:00+01");
    session.run("commit");
    assert_eq!(session.one("show timezone"), "Asia/Tokyo");
    session.run("begin; set local timezone to 'Europe/Berlin'; set timezone to 'UTC'; commit");
    assert_eq!(session.one("show timezone"), "UTC");
    session.run("begin; set timezone to 'Asia/Tokyo'; set local timezone to 'Europe/Berlin'; commit");
    assert_eq!(session.one("show timezone"), "Asia/Tokyo");
    session.run("set statement_timeout = '5s'; reset statement_timeout");
    assert_eq!(session.one("show statement_timeout"), "0");
    session.run("set statement_timeout = '5s'; reset all");
    assert_eq!(session.one("show statement_timeout"), "0");
    assert_eq!(session.one("select set_config('statement_timeout', '7s', false)"), "7s");
    session.fails("set statement_timeout = 'soon'", "22023");
    session.fails("set nonsense = 1", "42704");
    session.fails("set timezone to 'Nowhere/Atall'", "22023");
    assert_eq!(session.one("show statement_timeout"), "7s");
    session.fails("set statement_timeout = 0; select 1/0", "22012");
    assert_eq!(session.one("show statement_timeout"), "7s");
}

#[test]
fn settings_of_an_open_transaction_follow_what_is_set() {
    let fixture = Fixture::new(TABLE);
    let (mut holder, mut session) = (fixture.session(), fixture.session());
    holder.run("begin; update t set b = 1 where a = 1");
    // In case the limit on locks is ignored.
    session.run("set statement_timeout = '20s'");
    for begin in [
        "begin; set local lock_timeout = '20ms'",
        "begin; select 1; set lock_timeout = '20ms'",
        "begin; select set_config('lock_timeout', '20ms', true)",
        "begin isolation level repeatable read; select * from t; set local lock_timeout = '20ms'",
    ] {
        session.run(begin);
        session.fails("update t set b = 2 where a = 1", "55P03");
        session.run("rollback");
        assert_eq!(session.one("show lock_timeout"), "0");
    }
    session.fails("begin; set local lock_timeout = '20ms'; update t set b = 2 where a = 1", "55P03");
    session.run("rollback");
    // And back: who waits no more than a moment is told at once, who waits on is let in.
    session.run("set lock_timeout = '20ms'; begin; set local lock_timeout = 0");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| session.attempt("update t set b = 2 where a = 1"));
        fixture.wait_until_running("update t set b = 2", 1);
        std::thread::sleep(Duration::from_millis(60));
        holder.run("commit");
        waits.join().unwrap().unwrap();
    });
    session.run("commit");
}

#[test]
fn a_commit_is_as_durable_as_is_set_when_it_comes() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    let stats = || fixture.database.as_ref().unwrap().store().stats();
    for (key, begin) in [
        (10, "set synchronous_commit = off; begin; set local synchronous_commit = on"),
        (11, "begin; select 1; set local synchronous_commit = on"),
        (12, "begin; set synchronous_commit = on"),
    ] {
        session.run(begin);
        session.run(&format!("insert into t values ({key}, 0)"));
        let end = stats().end_lsn;
        session.run("commit");
        assert!(stats().durable_lsn > end, "{begin}");
    }
}

#[test]
fn modes_of_a_transaction_are_what_set_config_says() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    session.run("begin; select set_config('transaction_read_only', 'on', true)");
    assert_eq!(session.one("show transaction_read_only"), "on");
    session.fails("update t set b = 1", "25006");
    session.run("rollback; begin; select set_config('transaction_read_only', 'on', false)");
    session.fails("create table u (a int)", "25006");
    session.run("rollback; begin; savepoint s; select set_config('transaction_read_only', 'true', false); rollback to s");
    session.run("update t set b = 1; rollback");
    session.run("begin; savepoint s; select set_config('transaction_read_only', 'true', false); release s");
    session.run("update t set b = 1; rollback");
    session.run("begin read only");
    session.fails("select set_config('transaction_read_only', 'off', true)", "25001");
    session.run("rollback; begin");
    session.fails("select set_config('transaction_isolation', 'repeatable read', true)", "25001");
    session.run("rollback; begin isolation level repeatable read");
    session.run("select set_config('transaction_isolation', 'repeatable read', true)");
    session.run("select set_config('transaction_read_only', 'off', true); update t set b = 1; commit");
    session.run("begin read only; commit and chain");
    session.fails("update t set b = 1", "25006");
    session.run("rollback");
    session.run("select set_config('transaction_read_only', 'on', false)");
    session.run("update t set b = 2");
}

#[test]
fn what_a_client_set_when_it_connected_is_what_reset_goes_back_to() {
    let fixture = Fixture::new("");
    let mut session = fixture.session();
    for (name, value) in [("timezone", "Asia/Tokyo"), ("application_name", "app"), ("work_mem", "64kB")] {
        session.0.state().set_at_start(name, value).unwrap();
    }
    let shown = |session: &mut Sql| {
        ["timezone", "application_name", "work_mem", "datestyle"]
            .map(|name| session.one(&format!("show {name}")))
    };
    let source = "select string_agg(source, ' ' order by name)
                  from pg_settings where name in ('TimeZone', 'application_name', 'DateStyle')";
    let first = shown(&mut session);
    assert_eq!(first, ["Asia/Tokyo", "app", "64kB", "ISO, MDY"]);
    assert_eq!(session.one(source), "default client client");
    let all = "set timezone to 'UTC'; set application_name to 'x'; set work_mem to 0; set datestyle to 'dmy'";
    for reset in [
        "reset all",
        "discard all",
        "reset timezone; reset application_name; reset work_mem; reset datestyle",
        "set timezone to default; set application_name to default; set work_mem to default; set datestyle to default",
    ] {
        session.run(all);
        assert_eq!(session.one(source), "session session session");
        session.run(reset);
        assert_eq!(shown(&mut session), first, "{reset}");
    }
    assert_eq!(
        session.one("set timezone to 'UTC'; select reset_val from pg_settings where name = 'TimeZone'"),
        "Asia/Tokyo"
    );
}

#[test]
fn numbers_of_pg_settings_are_in_their_unit() {
    let fixture = Fixture::new("");
    let mut session = fixture.session();
    session.0.state().set_at_start("lock_timeout", "2s").unwrap();
    session.run("set statement_timeout = '1min'; set work_mem = '64MB'; set job_latency_target = '1.5ms'");
    let row = |session: &mut Sql, name: &str| {
        session.one(&format!(
            "select concat_ws(' ', setting, unit, vartype, min_val, max_val, boot_val, reset_val) from pg_settings where name = '{name}'"
        ))
    };
    assert_eq!(row(&mut session, "statement_timeout"), "60000 ms integer 0 2147483647 0 0");
    assert_eq!(row(&mut session, "work_mem"), "65536 kB integer 0 2147483647 0 0");
    assert_eq!(row(&mut session, "lock_timeout"), "2000 ms integer 0 2147483647 0 2000");
    assert_eq!(row(&mut session, "job_latency_target"), "1.5 ms real 0 2147483647 0 0");
    assert_eq!(row(&mut session, "extra_float_digits"), "1 integer -15 3 1 1");
    for (name, shown) in [("statement_timeout", "1min"), ("work_mem", "64MB"), ("lock_timeout", "2s")] {
        assert_eq!(session.one(&format!("show {name}")), shown);
        assert_eq!(session.one(&format!("select current_setting('{name}')")), shown);
    }
}

#[test]
fn execute_of_a_prepared_statement_commits() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    session.run("prepare p as insert into t values ($1, 7)");
    let execute = session.0.prepare_unnamed("execute p (20)", &[]).unwrap();
    session.0.execute_prepared(&execute, &[], &mut Rows::default()).unwrap();
    assert_eq!(fixture.session().one("select count(*) from t where b = 7"), "1");
    assert_eq!(
        fixture.session().one("select count(*) from pg_stat_activity where state like '%transaction%'"),
        "0"
    );
}

#[test]
fn what_a_session_keeps_is_charged() {
    let columns: Vec<String> = (0..1600).map(|number| format!("c{number} int")).collect();
    let fixture = Fixture::new(&format!("create table w ({})", columns.join(", ")));
    let refused = |begin: &str, next: &dyn Fn(u32) -> String| {
        let mut session = fixture.session();
        session.run(begin);
        let error =
            (0..20_000).find_map(|number| session.attempt(&next(number)).err()).expect("it is refused");
        assert_eq!(error.state().0, "53200", "{error}");
        session.attempt("rollback").unwrap();
        assert_eq!(session.one("select 1"), "1");
    };
    refused("select 1", &|number| format!("prepare p{number} as select * from w a{number}"));
    refused("begin", &|number| format!("create table t{number} (a int); savepoint s{number}"));
}

/// Each of the two was there when the other one was prepared.
#[test]
fn two_prepared_statements_that_execute_each_other_are_refused() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    session.0.prepare("a", "select 1", &[]).unwrap();
    session.0.prepare("b", "execute a", &[]).unwrap();
    session.0.close_prepared("a");
    session.0.prepare("a", "execute b", &[]).unwrap();
    assert_eq!(session.attempt("execute a").unwrap_err().state().0, "0A000");
    assert_eq!(session.one("select 2"), "2");
}

#[test]
fn a_chained_transaction_has_a_time_of_its_own() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    let first = session.one("begin; select now()");
    session.run("commit and chain");
    let second = session.one("select now()");
    assert_ne!(second, first);
    session.run("rollback and chain");
    assert_ne!(session.one("select now()"), second);
    session.run("commit");
}

#[test]
fn explain_of_execute_shows_the_plan_that_it_would_have_now() {
    let fixture = Fixture::new(
        "create table t (a int primary key, b int); insert into t select n, n from generate_series(1, 20000) n",
    );
    let mut session = fixture.session();
    session.run("prepare p as select a from t where b = 7");
    assert!(session.list("explain execute p").contains("Seq Scan"));
    fixture.session().run("create index on t (b)");
    assert!(session.list("explain execute p").contains("t_b_idx"));
    fixture.session().run("drop table t");
    assert_eq!(session.attempt("explain execute p").unwrap_err().state().0, "42P01");
}

#[test]
fn a_queue_whose_entries_are_found_by_key_gives_each_to_one() {
    let fixture = Fixture::new(
        "create table jobs (id int primary key, state text); insert into jobs select n, 'new' from generate_series(1, 9) n",
    );
    let take = "update jobs set state = 'runs' where id = (select id from jobs where state = 'new' order by id limit 1 for update skip locked) returning id";
    let (mut one, mut other) = (fixture.session(), fixture.session());
    assert!(one.list(&format!("explain {take}")).contains("Index Scan using jobs_pkey on jobs"));
    one.run("begin");
    other.run("begin");
    assert_eq!((one.one(take), other.one(take), one.one(take)), ("1".into(), "2".into(), "3".into()));
    one.run("rollback");
    assert_eq!((other.one(take), one.one(take)), ("1".into(), "3".into()));
}

#[test]
fn execute_goes_by_the_settings_of_the_planner_that_are_in_force() {
    let fixture = Fixture::new(
        "create table t (a int primary key, b int); create index on t (b); insert into t values (1, 3), (2, 2), (3, 1)",
    );
    let mut session = fixture.session();
    session.run("prepare p as select a from t where b > 0; prepare one(int) as select b from t where a = $1");
    let by_key = "1 2 3";
    assert_eq!(session.list("execute p"), by_key);
    session.run("set enable_seqscan = off");
    assert_eq!(session.list("execute p"), "3 2 1");
    assert_eq!(session.list("execute one(2)"), "2");
    session.run("begin; set local enable_indexscan = off; set local enable_seqscan = on");
    assert_eq!(session.list("execute p"), by_key);
    assert_eq!(session.list("execute one(2)"), "2");
    session.run("rollback");
    assert_eq!(session.list("execute p"), "3 2 1");
    session.run("reset enable_seqscan");
    assert_eq!(session.list("execute p"), by_key);
}

#[test]
fn settings_are_in_force_from_the_next_statement_of_a_text() {
    let fixture = Fixture::new("create table t (a int)");
    let (mut session, mut other) = (fixture.session(), fixture.session());
    let midnight = "select timestamptz '2024-01-01 00:00'";
    let here = "2024-01-01 00:00:00";
    let tokyo = |statement: &str| format!("{statement}; {midnight}");
    assert_eq!(session.one(&tokyo("set time zone 'Asia/Tokyo'")), format!("{here}+09"));
    // What was planned there is right for whoever has the same settings.
    other.run("set time zone 'Asia/Tokyo'");
    assert_eq!(other.one(midnight), format!("{here}+09"));
    assert_eq!(session.one(&tokyo("set time zone 'UTC'")), format!("{here}+00"));
    assert_eq!(
        session.one(&tokyo("select set_config('TimeZone', 'Asia/Tokyo', false)")),
        format!("{here}+09")
    );
    assert_eq!(session.one(&tokyo("reset time zone")), format!("{here}+00"));
    // What is undone is so at once.
    for undo in ["commit", "rollback", "rollback to s"] {
        let text = tokyo(&format!("begin; savepoint s; set local time zone 'Asia/Tokyo'; {undo}"));
        assert_eq!(session.one(&text), format!("{here}+00"), "{undo}");
        session.attempt("rollback").unwrap();
    }
    assert_eq!(session.one("set datestyle = 'dmy'; select date '01/02/2024'"), "2024-02-01");
    assert_eq!(session.one("set datestyle = 'mdy'; select date '01/02/2024'"), "2024-01-02");
    assert_eq!(session.one("set bytea_output = 'escape'; select '\\x41'::bytea::text"), "A");
    assert_eq!(session.one("set extra_float_digits = 0; select (0.1::float8 + 0.2)::text"), "0.3");
    // Of a table's column, by COPY.
    session.run("alter table t add z timestamptz");
    let mut rows = Rows::default();
    rows.input = b"1\t2024-01-01 00:00\n".to_vec();
    session.0.run("set time zone 'Asia/Tokyo'; copy t from stdin; reset time zone", &mut rows).unwrap();
    assert_eq!(session.one("select z from t"), "2023-12-31 15:00:00+00");
}

#[test]
fn now_is_read_anew_by_every_query_and_kept_by_a_prepared_statement() {
    let fixture = Fixture::new("create table t (a int primary key, z timestamptz)");
    let mut session = fixture.session();
    session.run("prepare p as select timestamptz 'now' = now()");
    for number in 0..3 {
        assert_eq!(session.one("select timestamptz 'now' = now()"), "t");
        assert_eq!(session.one("select '{\"Now\"}'::timestamptz[] = array[now()]"), "t");
        assert_eq!(session.one("select 'today'::date = current_date"), "t");
        let text = format!("insert into t values ({number}, 'now') returning z = now()");
        assert_eq!(session.one(&text), "t");
        assert_eq!(session.one("update t set z = 'now' where a = 0 returning z = now()"), "t");
        assert_eq!(session.one("execute p"), "f");
    }
}

#[test]
fn copy_names_the_line_that_is_wrong() {
    let fixture = Fixture::new("create table c (a int primary key, b text not null, d date)");
    let mut session = fixture.session();
    let copy = |session: &mut Sql, sql: &str, input: &str| {
        let mut rows = Rows::default();
        rows.input.extend_from_slice(input.as_bytes());
        session.0.run(sql, &mut rows).map(|()| rows)
    };
    let rows = copy(&mut session, "copy c from stdin", "1\tone\t2020-01-01\n2\ttwo\t\\N\n").unwrap();
    assert_eq!(rows.tag.unwrap().to_string(), "COPY 2");
    let rows = copy(
        &mut session,
        "copy c from stdin (format csv, header)",
        "a,b,d\n3,\"x, \"\"y\"\"\",\n4,\"\",2021-02-03\n",
    )
    .unwrap();
    assert_eq!(rows.tag.unwrap().to_string(), "COPY 2");
    for (input, state, context) in [
        ("5\tx\t\\N\nfive\tx\t\\N\n", "22P02", "COPY c, line 2, column a: \"five\""),
        ("5\tx\tnever\n", "22007", "COPY c, line 1, column d: \"never\""),
        ("5\tx\t\\N\n6\tx\n", "22P04", "COPY c, line 2: \"6\tx\""),
        ("5\tx\t\\N\n6\tx\t\\N\t7\n", "22P04", "COPY c, line 2: \"6\tx\t\\N\t7\""),
        ("5\tx\t\\N\n1\ty\t\\N\n", "23505", "COPY c, line 2"),
        ("5\t\\N\t\\N\n", "23502", "COPY c, line 1"),
    ] {
        let error = copy(&mut session, "copy c from stdin", input).unwrap_err();
        assert_eq!(
            (error.state().0, error.fields().context.as_deref()),
            (state, Some(context)),
            "{input:?}: {error}"
        );
    }
    let input = "7,\"x\ny\",\n8,\"x\ny\",\n9,z,\n7,z,\n";
    let error = copy(&mut session, "copy c from stdin (format csv)", input).unwrap_err();
    assert_eq!((error.state().0, error.fields().context.as_deref()), ("23505", Some("COPY c, line 6")));
    let input = "5,\"x\\\n\",\nfive\n";
    let error = copy(&mut session, "copy c from stdin (format csv, escape '\\')", input).unwrap_err();
    assert_eq!(error.fields().context.as_deref(), Some("COPY c, line 3, column a: \"five\""));
    for (input, context) in [
        ("a,d,b\n", "COPY c, line 1: \"a,d,b\""),
        ("a,b,d\n5,\"x\n", "COPY c, line 3: \"5,\"x\n\""),
        ("a,b,d\n5,x,\n6,x\r\n", "COPY c, line 3"),
        ("a,b,d\n5,\"x\n\ny\",\n6,\"\n\"\n", "COPY c, line 6: \"6,\"\n\"\""),
        ("a,b,d\r\n5,\"x\r\ny\n\",\r\n6\r\n", "COPY c, line 5: \"6\""),
        ("a,b,d\n5,\"x\n\",\n6,\"\n\"\n", "COPY c, line 5: \"6,\"\n\"\""),
        ("a,b,d\r5,\"x\ry\n\",\r6\r", "COPY c, line 4: \"6\""),
    ] {
        let error = copy(&mut session, "copy c from stdin (format csv, header match)", input).unwrap_err();
        assert_eq!(
            (error.state().0, error.fields().context.as_deref()),
            ("22P04", Some(context)),
            "{input:?}: {error}"
        );
    }
    let rows = copy(&mut session, "copy c from stdin with (freeze on)", "").unwrap();
    assert!(rows.notices[0].error.to_string().starts_with("FREEZE has no effect"), "{:?}", rows.notices);
    let rows = copy(&mut session, "copy c from stdin with (freeze off)", "").unwrap();
    assert!(rows.notices.is_empty());
    assert_eq!(session.list("select a from c order by a"), "1 2 3 4");
    let mut rows = Rows::default();
    session
        .0
        .run("copy (select * from c order by a) to stdout (format csv, null 'none')", &mut rows)
        .unwrap();
    assert_eq!(
        String::from_utf8(rows.output).unwrap(),
        "1,one,2020-01-01\n2,two,none\n3,\"x, \"\"y\"\"\",none\n4,,2021-02-03\n"
    );
    session.fails("copy c from '/etc/passwd'", "0A000");
    session.fails("copy nothing to stdout", "42P01");
}

#[test]
fn a_statement_runs_out_of_time() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    session.run("set statement_timeout = '20ms'");
    let error = session.fails("select pg_sleep(1000)", "57014");
    assert_eq!(error.to_string(), "canceling statement due to statement timeout");
    // In texts of their own: with less than a second the machine may be too slow for the update, too.
    session.run("set statement_timeout = 0");
    session.run("begin; update t set b = 1 where a = 1");
    let mut other = fixture.session();
    other.run("set statement_timeout = '20ms'");
    let error = other.fails("update t set b = 2 where a = 1", "57014");
    assert_eq!(error.to_string(), "canceling statement due to statement timeout");
    session.run("commit");
    session.run("set statement_timeout = '20s'; set statement_timeout = 0; select pg_sleep(0.03)");
}

/// Interrupts its session, once, when a statement has ended.
struct Late(Interrupt, Option<Reason>);

impl Client for Late {
    fn columns(&mut self, _: &[OutputColumn], _: &TextStyle) -> Result<(), Error> {
        Ok(())
    }

    fn row(&mut self, _: &[Value], _: &[OutputColumn], _: &TextStyle) -> Result<(), Error> {
        Ok(())
    }

    fn complete(&mut self, _: &CommandTag) -> Result<(), Error> {
        if let Some(reason) = self.1.take() {
            self.0.interrupt(reason);
        }
        Ok(())
    }

    fn empty(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn notice(&mut self, _: &Notice) {}

    fn setting_changed(&mut self, _: &str, _: &str) {}

    fn copy_in(&mut self, _: &CopyFormat) -> Result<(), Error> {
        Ok(())
    }

    fn copy_read(&mut self, _: &mut Vec<u8>) -> Result<bool, Error> {
        Ok(false)
    }

    fn copy_out(&mut self, _: &CopyFormat) -> Result<(), Error> {
        Ok(())
    }

    fn copy_write(&mut self, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn copy_out_end(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

#[test]
fn the_time_out_of_a_statement_ended_the_next_one_of_its_text() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    let other = "select count(*) from generate_series(1, 100000)";
    for first in ["select 1", "begin", "update t set b = 1"] {
        let text = format!("{first}; {other}; update t set b = b + 1");
        let mut run = |reason| session.0.run(&text, &mut Late(session.0.interrupt(), Some(reason)));
        run(Reason::Timeout).unwrap_or_else(|error| panic!("{text}: {error}"));
        // Whoever asks himself means all of it.
        let error = run(Reason::User).unwrap_err();
        assert_eq!(
            (error.state().0, &*error.to_string()),
            ("57014", "canceling statement due to user request")
        );
        session.run("rollback");
    }
}

#[test]
fn a_statement_of_few_costly_rows_is_ended_soon() {
    let fixture = Fixture::new("create table w (i int primary key, n int, t text)");
    let mut session = fixture.session();
    session.run("insert into w select g, -g, repeat('x', 500) from generate_series(1, 256) g");
    session.run(
        "create table parent (a int primary key);
         create table child (a int references parent on delete cascade, b int primary key);
         insert into parent values (1);
         insert into child select 1, g from generate_series(1, 60000) g",
    );
    session.run("set statement_timeout = '100ms'");
    // Each of these takes seconds, or minutes (some half a second, where the machine is fast), for one batch of rows, or for one value.
    let costly = "length(replace(repeat(t, 2000), 'x', 'yy')) > 5";
    for statement in [
        "select sum(length(replace(repeat('ab', 500000), 'a', 'bb'))) from generate_series(1, 256)"
            .to_owned(),
        format!("select count(*) from w where {costly}"),
        format!("select count(*) filter (where {costly}) from w"),
        format!("update w set t = t where {costly}"),
        "select a.i from w a join w b on length(replace(repeat(a.t, 2000), 'x', 'yy')) = b.i".to_owned(),
        format!("select i from w order by {costly}"),
        "select i from w, (select array(select g from generate_series(1, 400000) g) as a offset 0) s
         where n = any (a) or n > any (a) or n >= any (a)"
            .to_owned(),
        "select regexp_count(repeat('ab', 500000), 'a.*c|a')".to_owned(),
        "select length(translate(repeat('b', 500000), repeat('a', 500000), ''))".to_owned(),
        "select repeat('a', 1000000) like '%' || repeat('a', 500000) || 'b'".to_owned(),
        "select repeat('a', 1000000) ilike '%' || repeat('a', 500000) || 'b'".to_owned(),
        "select a && b, a @> b from (select array(select g from generate_series(1, 100000) g) as a,
         array(select -g from generate_series(1, 100000) g) as b offset 0) s"
            .to_owned(),
        "select count((i, nullif(i, i)) in (select -g, g from generate_series(1, 300000) g)) from w"
            .to_owned(),
        "select count(*) from w where i > all (select -g from generate_series(1, 300000) g)".to_owned(),
        "delete from parent".to_owned(),
        "select length(btrim(repeat('b', 500000), repeat('a', 5000000) || 'b'))".to_owned(),
    ] {
        // A machine that stands still for a while does not do so each time.
        let mut is_soon = || {
            let start = Instant::now();
            session.fails(&statement, "57014");
            start.elapsed() < Duration::from_secs(2)
        };
        assert!((0..3).any(|_| is_soon()), "{statement}");
    }
}

#[test]
fn additions_by_several_sessions_are_exact() {
    let fixture = Fixture::new("create table n (n int, m int); insert into n values (0, 0)");
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let mut session = fixture.session();
            scope.spawn(move || {
                for turn in 0..50 {
                    if (worker + turn) % 2 == 0 {
                        session.run("update n set n = n + 1");
                    } else {
                        session.run("begin; update n set n = n + 1; savepoint s; update n set m = m + 1; rollback to s; commit");
                    }
                }
            });
        }
    });
    assert_eq!(fixture.session().run("select n, m from n"), [["200", "0"]]);
}

/// Runs `first` in a transaction of one session; then `second` in another one, which waits for it; then `end`s the first. Gives what
/// came of `second`.
fn behind(fixture: &Fixture, begin: &str, first: &str, second: &str, end: &str) -> Result<Rows, Error> {
    let (mut session, mut other) = (fixture.session(), fixture.session());
    session.run("begin");
    session.run(first);
    if !begin.is_empty() {
        other.run(begin);
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let done = other.attempt(second);
            if !begin.is_empty() {
                other.attempt(if done.is_ok() { "commit" } else { "rollback" })?;
            }
            done
        });
        fixture.wait_until_running(&second[..second.len().min(12)], 1);
        // Who runs has not met the row yet, perhaps; and of some statements nothing is to be waited for.
        let (mut looks, began) = (fixture.session(), Instant::now());
        let waits = "select count(*) from pg_locks where not granted";
        while looks.one(waits) == "0" && began.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(2));
        }
        session.run(end);
        waiting.join().unwrap()
    })
}

#[test]
fn a_row_that_was_read_anew_keeps_what_is_not_assigned() {
    let fixture = Fixture::new(
        "create table w (a int primary key, b int, c text, d text); create index w_c on w (c); create index w_b on w (b); \
         insert into w values (1, 1, 'old c', 'old d'); create table o (a int, t text); insert into o values (1, 'from o')",
    );
    let row = || fixture.session().run("select * from w");
    let found = |condition: &str| {
        let mut session = fixture.session();
        session.run("set enable_seqscan = off");
        session.one(&format!("select count(*) from w where {condition}"))
    };
    behind(
        &fixture,
        "",
        "update w set c = 'new c', d = 'new d' where a = 1",
        "update w set b = b + 1 where a = 1",
        "commit",
    )
    .unwrap();
    assert_eq!(row(), [["1", "2", "new c", "new d"]]);
    assert_eq!(
        (found("c = 'new c'"), found("c = 'old c'"), found("b = 2"), found("b = 1")),
        ("1".into(), "0".into(), "1".into(), "0".into())
    );
    // With another table, whose values stay what they were.
    let second = "update w set b = w.b + o.a, d = o.t || w.d from o where w.a = o.a";
    behind(&fixture, "", "update w set b = 10, d = '!' where a = 1", second, "commit").unwrap();
    assert_eq!(row(), [["1", "11", "new c", "from o!"]]);
    assert_eq!((found("b = 11"), found("b = 10"), found("b = 2")), ("1".into(), "0".into(), "0".into()));
}

#[test]
fn read_committed_looks_again_at_rows_it_has_waited_for() {
    let fixture = Fixture::new(TABLE);
    let tag = |done: Result<Rows, Error>| done.unwrap().tag.unwrap().to_string();
    // Still fits, with the new values; no longer fits; gone; fits anew but was not seen to.
    let done = behind(
        &fixture,
        "",
        "update t set b = 5 where a = 1",
        "update t set b = b + 1 where a = 1",
        "commit",
    );
    assert_eq!(
        (tag(done).as_str(), fixture.session().one("select b from t where a = 1").as_str()),
        ("UPDATE 1", "6")
    );
    let done =
        behind(&fixture, "", "update t set b = 7 where a = 1", "update t set b = 0 where b = 6", "commit");
    assert_eq!(tag(done), "UPDATE 0");
    let done = behind(&fixture, "", "delete from t where a = 1", "delete from t where b = 7", "commit");
    assert_eq!(tag(done), "DELETE 0");
    let done =
        behind(&fixture, "", "update t set b = 9 where a = 2", "update t set b = 10 where b = 0", "commit");
    assert_eq!(tag(done), "UPDATE 1");
    assert_eq!(fixture.session().list("select b from t order by a"), "9 10");
    // After a rollback it is as if nothing had been.
    let done = behind(
        &fixture,
        "",
        "update t set b = 0 where a = 2",
        "update t set b = b + 1 where b = 9",
        "rollback",
    );
    assert_eq!(tag(done), "UPDATE 1");
    // What is asked again has the value that it had: a subquery that takes nothing of the row is computed once.
    fixture.session().run("create sequence drawn; create sequence locks");
    for (second, expected) in [
        ("update t set b = b + 1 where a = 1 + (select nextval('drawn'))", "UPDATE 1"),
        (
            "update t set b = b + 1 where a = any (select 2 from (select nextval('drawn')) s (n) where n = 2)",
            "UPDATE 1",
        ),
        ("delete from t where a = 1 + (select nextval('drawn') - 2) and b <> 9", "DELETE 0"),
        ("select a from t where a = (select nextval('locks') + 1) for update", "SELECT 1"),
    ] {
        let done = behind(&fixture, "", "update t set b = 9 where a = 2", second, "commit");
        assert_eq!(tag(done), expected, "{second}");
    }
    let mut session = fixture.session();
    assert_eq!(session.run("select nextval('drawn'), nextval('locks')"), [["4", "2"]]);
    // SELECT FOR UPDATE gives the newest values.
    let done = behind(
        &fixture,
        "",
        "update t set b = 20 where a = 2",
        "select b from t where a = 2 for update",
        "commit",
    );
    assert_eq!(done.unwrap().text(), [["20"]]);
}

#[test]
fn a_row_that_was_waited_for_is_joined_anew() {
    let lateral = "lateral (select * from u where u.x = t.a) s";
    let cases: [(&str, Option<&str>); 19] = [
        ("t left join u on u.x = t.a", Some("77 ")),
        ("u right join t on u.x = t.a", Some("77 ")),
        ("t left join u on u.id = t.id and t.a < 10", Some("77 ")),
        ("t left join u on u.id = t.id and t.b < 10", Some("77 2")),
        ("t left join u on u.id = t.id and t.a < 10 where (u.x is not null)", None),
        ("t left join u on u.id = t.id and t.a < 10 where (u.x is null or u.x < 9)", Some("77 ")),
        // Only a row that was found before can be found again.
        ("t left join u on u.x = 77 and t.a = 77", Some("77 ")),
        ("t left join (select id, x, 1 as n from u) u on u.x = t.a", Some("77 ")),
        ("t left join u v on v.x = t.a left join u on u.id = v.id", Some("77 ")),
        ("t left join (u v join u on v.id = u.id) on v.x = t.a", Some("77 ")),
        ("t left join (u left join u v on v.id = u.id and v.x < 2) on u.x = t.id", Some("77 2")),
        ("t left join (u v join u on v.id = u.id and v.x < 2) on u.x = t.id", Some("77 ")),
        ("t left join u on u.x = t.a join u v on v.id = coalesce(u.id, 9)", None),
        ("u v join t on v.id = t.id left join u on u.x = t.a and u.id = v.id", Some("77 ")),
        ("t left join u on exists (select from u w where w.x = t.a and w.id = u.id)", Some("77 ")),
        ("t left join (select id, x, x as a from u) u using (a)", Some("77 ")),
        ("t, lateral (select * from u where u.x = t.id) u", Some("77 2")),
        ("t left join lateral (select * from u where u.x = t.id) u on u.x = t.a", Some("77 ")),
        ("t, generate_series(1, t.a) u(x)", Some("77 1")),
    ];
    let tables =
        "create table t (id int primary key, a int, b int); create table u (id int primary key, x int);
        insert into t values (1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 0);
        insert into u values (1, 1), (2, 2), (3, 3), (9, 9)";
    let read = |from: &str| {
        let fixture = Fixture::new(tables);
        let condition = if from.contains(" where (u") { "and" } else { "where" };
        let sql = format!(
            "select t.a, u.x from {from} {condition} t.id = 2 order by t.id, u.x limit 1 for update of t"
        );
        behind(&fixture, "", "update t set a = 77 where id = 2", &sql, "commit")
    };
    for (from, expected) in cases {
        let rows: Vec<String> = read(from).unwrap().text().iter().map(|row| row.join(" ")).collect();
        assert_eq!(rows, Vec::from_iter(expected), "{from}");
    }
    // What was made of the row and is not made again.
    for from in [
        format!("t, {}", lateral.replace(" s", " u")),
        format!("t left join {lateral} on true left join u on u.id = s.id"),
        "t left join (select id, x, x::bigint as a from u) u using (a)".to_owned(),
    ] {
        assert_eq!(read(&from).unwrap_err().state().0, "40001", "{from}");
    }
}

#[test]
fn what_is_locked_together_is_looked_at_again_together() {
    let tables = "create table a (id int primary key, v int); create table b (id int primary key, w int);
        create table c (k int primary key, n text);
        insert into a values (1, 10), (2, 20); insert into b values (1, 10), (2, 20); insert into c values (0, 'zero')";
    for (sql, expected) in [
        ("select a.id, v, w from a join b on a.v = b.w order by a.id for update", "1 15 15;2 25 25"),
        (
            "select a.id, v, w from a, b where a.id = b.id and a.v - b.w = 0 order by 1 for share",
            "1 15 15;2 25 25",
        ),
        ("select x.id, x.v, y.v from a x join a y on x.v = y.v order by 1 for update", "1 15 15;2 25 25"),
        (
            "select a.id, n from a join b on a.id = b.id left join c on c.k = a.v - b.w order by 1 for update of a, b",
            "1 zero;2 zero",
        ),
        ("select a.id from a join b on a.id = b.id where a.v = 10 order by 1 for update", ""),
    ] {
        let fixture = Fixture::new(tables);
        let changes = "update a set v = v + 5; update b set w = w + 5";
        let rows = behind(&fixture, "", changes, sql, "commit").unwrap().text();
        let rows: Vec<String> = rows.iter().map(|row| row.join(" ")).collect();
        assert_eq!(rows.join(";"), expected, "{sql}");
    }
}

#[test]
fn repeatable_read_refuses_what_others_have_changed() {
    let fixture = Fixture::new(TABLE);
    let begin = "begin isolation level repeatable read; select * from t";
    for (sql, ends) in [
        ("update t set b = b + 1 where a = 1", true),
        ("delete from t where a = 1", true),
        ("select b from t where a = 1 for update", true),
        ("update t set b = b + 1 where a = 1", false),
    ] {
        let done = behind(
            &fixture,
            begin,
            "update t set b = b + 100 where a = 1",
            sql,
            if ends { "commit" } else { "rollback" },
        );
        match done {
            Err(error) if ends => assert_eq!(
                (error.state().0, error.to_string().as_str()),
                ("40001", "could not serialize access due to concurrent update")
            ),
            done => assert!(!ends && done.is_ok(), "{sql}: {done:?}"),
        }
    }
    let (mut session, mut other) = (fixture.session(), fixture.session());
    session.run("begin isolation level repeatable read");
    let before = session.list("select b from t order by a");
    other.run("update t set b = -1; insert into t values (50, 50)");
    assert_eq!(session.list("select b from t order by a"), before);
    session.fails("update t set b = 0 where a = 2", "40001");
    session.run("rollback");
    assert_eq!(session.list("select b from t order by a"), "-1 -1 -1 50");
}

#[test]
fn rows_can_be_locked_passed_over_or_refused() {
    let fixture = Fixture::new(TABLE);
    let (mut session, mut other) = (fixture.session(), fixture.session());
    session.run("begin; select * from t where a = 2 for update");
    let error = other.fails("select * from t where a = 2 for update nowait", "55P03");
    assert_eq!(error.to_string(), "could not obtain lock on row in relation \"t\"");
    assert_eq!(other.list("select a from t order by a for update skip locked"), "1 3");
    assert_eq!(other.list("select a from t order by a"), "1 2 3");
    other.run("set lock_timeout = '20ms'");
    let error = other.fails("select * from t where a = 2 for update", "55P03");
    assert_eq!(error.to_string(), "canceling statement due to lock timeout");
    session.run("commit; begin; select * from t where a = 2 for share");
    assert_eq!(other.list("select a from t where a = 2 for share nowait"), "2");
    other.fails("select a from t where a = 2 for update nowait", "55P03");
    session.run("commit");
    assert_eq!(other.list("select a from t where a = 2 for update nowait"), "2");
}

#[test]
fn of_those_who_wait_for_each_other_one_is_refused() {
    let fixture = Fixture::new(TABLE);
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(2));
        for (first, second) in [(1, 2), (2, 1)] {
            let mut session = fixture.session();
            let (barrier, refused) = (barrier.clone(), &refused);
            scope.spawn(move || {
                session.run(&format!("begin; update t set b = b + 1 where a = {first}"));
                barrier.wait();
                match session.attempt(&format!("update t set b = b + 1 where a = {second}")) {
                    Ok(_) => drop(session.run("commit")),
                    Err(error) => {
                        assert_eq!(
                            (error.state().0, error.to_string().as_str()),
                            ("40P01", "deadlock detected")
                        );
                        refused.fetch_add(1, Ordering::SeqCst);
                        session.run("rollback");
                    }
                }
            });
        }
    });
    assert_eq!(refused.load(Ordering::SeqCst), 1);
    assert_eq!(fixture.session().list("select b from t order by a"), "1 1 0");
}

#[test]
fn of_those_who_insert_the_same_key_one_wins() {
    let fixture = Fixture::new("create table k (a int primary key, b int unique)");
    let done = behind(&fixture, "", "insert into k values (1, 1)", "insert into k values (1, 2)", "commit");
    let error = done.unwrap_err();
    assert_eq!((error.state().0, error.fields().constraint.as_deref()), ("23505", Some("k_pkey")));
    let done = behind(&fixture, "", "insert into k values (2, 2)", "insert into k values (3, 2)", "rollback");
    assert!(done.is_ok(), "{done:?}");
    let done = behind(&fixture, "", "delete from k where a = 1", "insert into k values (1, 1)", "commit");
    assert!(done.is_ok(), "{done:?}");
    let done =
        behind(&fixture, "", "update k set b = 5 where a = 1", "insert into k values (9, 5)", "commit");
    assert_eq!(done.unwrap_err().fields().constraint.as_deref(), Some("k_b_key"));
    // Many at once: each key has one winner.
    let won = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut session = fixture.session();
            let won = &won;
            scope.spawn(move || {
                for key in 100..130 {
                    match session.attempt(&format!("insert into k values ({key}, {key})")) {
                        Ok(_) => drop(won.fetch_add(1, Ordering::SeqCst)),
                        Err(error) => assert_eq!(error.state().0, "23505"),
                    }
                }
            });
        }
    });
    assert_eq!(won.load(Ordering::SeqCst), 30);
    assert_eq!(fixture.session().one("select count(*) from k where a >= 100"), "30");
}

#[test]
fn a_child_never_outlives_its_parent() {
    let tables = "create table parent (a int primary key); create table child (a int primary key, p int references parent);
        insert into parent values (1), (2), (3), (4)";
    let fixture = Fixture::new(tables);
    let done =
        behind(&fixture, "", "delete from parent where a = 1", "insert into child values (1, 1)", "commit");
    assert_eq!(done.unwrap_err().state().0, "23503");
    let done =
        behind(&fixture, "", "delete from parent where a = 2", "insert into child values (2, 2)", "rollback");
    assert!(done.is_ok(), "{done:?}");
    let done =
        behind(&fixture, "", "insert into child values (3, 3)", "delete from parent where a = 3", "commit");
    assert_eq!(done.unwrap_err().state().0, "23503");
    let done =
        behind(&fixture, "", "insert into child values (4, 4)", "delete from parent where a = 4", "rollback");
    assert!(done.is_ok(), "{done:?}");
    let mut session = fixture.session();
    assert_eq!(session.list("select a from parent order by a"), "2 3");
    assert_eq!(
        session
            .one("select count(*) from child left join parent on parent.a = child.p where parent.a is null"),
        "0"
    );
    // References do not get into each other's way.
    let mut other = fixture.session();
    session.run("begin; insert into child values (20, 2)");
    other.run("insert into child values (21, 2)");
    session.run("commit");
}

#[test]
fn who_waits_for_a_row_that_gets_another_key_is_told() {
    let table = "create table t (a int primary key, b int); insert into t values (1, 0), (2, 0), (30, 0)";
    let statements = [
        "update t set b = 5 where a = 2",
        "delete from t where a = 2",
        "select a from t where a = 2 for update",
        "select a from t where a = 2 for share",
    ];
    for second in statements {
        // To a free key; where the neighbour takes its place, equal in all else.
        for first in [
            "update t set a = 20 where a = 2",
            "update t set a = 20 where a = 2; update t set a = 2 where a = 1",
        ] {
            for begin in ["", "begin", "begin isolation level repeatable read"] {
                let fixture = Fixture::new(table);
                let done = behind(&fixture, begin, first, second, "commit");
                assert_eq!(done.unwrap_err().state().0, "40001", "{first}; {second}");
                assert_eq!(fixture.session().one("select sum(b) from t"), "0");
            }
            // It has not moved after all.
            let fixture = Fixture::new(table);
            assert!(behind(&fixture, "begin", first, second, "rollback").is_ok());
        }
        // Deleted for good, or changed in its place.
        let fixture = Fixture::new(table);
        assert!(behind(&fixture, "", "delete from t where a = 2", second, "commit").is_ok());
        let fixture = Fixture::new(table);
        assert!(behind(&fixture, "", "update t set b = 7 where a = 2", second, "commit").is_ok());
    }
    // Moved before it was seen.
    let fixture = Fixture::new(table);
    let mut session = fixture.session();
    session.run("update t set a = 20 where a = 2; insert into t values (2, 3)");
    let done = behind(
        &fixture,
        "",
        "update t set b = 4 where a = 2",
        "update t set b = b + 1 where a = 2",
        "commit",
    );
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(session.one("select b from t where a = 2"), "5");
}

#[test]
fn a_child_whose_own_key_changes_is_still_a_child() {
    for (action, refused, left) in
        [("", true, "2 7"), ("on delete cascade", false, ""), ("on delete set null", false, "2 7")]
    {
        for moved in ["a = a + 1", "a = 8 - a"] {
            let tables = format!(
                "create table parent (a int primary key);
                 create table child (a int primary key, p int references parent {action});
                 insert into parent values (1); insert into child values (1, 1), (6, 1)"
            );
            let fixture = Fixture::new(&tables);
            let update = format!("update child set {moved}");
            let done = behind(&fixture, "begin", &update, "delete from parent where a = 1", "commit");
            assert_eq!(done.is_err(), refused, "{action}: {done:?}");
            let mut session = fixture.session();
            let orphans =
                "select count(*) from child where p is not null and p not in (select a from parent)";
            assert_eq!(session.one(orphans), "0", "{action}");
            assert_eq!(session.list("select a from child order by a"), left, "{action}");
        }
    }
}

#[test]
fn a_snapshot_and_its_definitions_are_of_one_moment() {
    let fixture =
        Fixture::new("create table t (k int primary key, a int, b int); insert into t values (1, 1, 0)");
    // Who waits for a new index is refused, rather than told that there is no row.
    let update = "begin isolation level repeatable read; update t set b = 1 where a = 1; commit";
    let waited = behind(&fixture, "begin", "create index i on t (a)", update, "commit");
    assert_eq!(waited.unwrap_err().state().0, "40001");
    // Definitions of one's own do not bring those of others along.
    let (mut one, mut other) = (fixture.session(), fixture.session());
    one.run("begin isolation level repeatable read; create table x (a int)");
    let waiting = std::thread::spawn(move || {
        other.run("alter table t drop column b");
    });
    waiting.join().unwrap();
    assert_eq!(one.one("select count(*) from t"), "1");
    one.run("commit");
    assert_eq!(one.run("select * from t"), [["1", "1"]]);
    // Also where the first statement was planned before and goes the short way.
    let (mut one, mut other) = (fixture.session(), fixture.session());
    let prepared = one.0.prepare_unnamed("select a from t where k = $1", &[]).unwrap();
    one.run("begin isolation level repeatable read");
    for change in ["alter table t drop column a", "drop table t"] {
        let mut rows = Rows::default();
        one.0.execute_prepared(&prepared, &[Value::Int(1)], &mut rows).unwrap();
        assert_eq!(rows.text(), [["1"]]);
        other.run(change);
    }
}

#[test]
fn who_changes_definitions_at_the_same_time_does_not_bring_back_what_others_have_dropped() {
    let fixture = Fixture::new("");
    std::thread::scope(|scope| {
        for number in 0..3 {
            let mut session = fixture.session();
            scope.spawn(move || {
                for _ in 0..60 {
                    session.run(&format!("create table d{number} (a int primary key, b int)"));
                    session.run(&format!("create index on d{number} (b)"));
                    session.run(&format!("insert into d{number} values (1, 1)"));
                    session.run(&format!("alter table d{number} add column c int default 7"));
                    assert_eq!(session.run(&format!("table d{number}")), [["1", "1", "7"]]);
                    session.run(&format!("drop table d{number}"));
                }
            });
        }
    });
    assert_eq!(fixture.session().one("select count(*) from pg_class where relname like 'd%'"), "0");
}

#[test]
fn plans_on_definitions_that_were_rolled_back_are_forgotten() {
    let fixture = Fixture::new(
        "create table a (x int); create table b (x int); insert into a values (1); insert into b values (2)",
    );
    let mut session = fixture.session();
    session.run("begin; alter table a rename to z; alter table b rename to a; prepare q as select * from a");
    assert_eq!(session.run("execute q"), [["2"]]);
    session.run("rollback");
    assert_eq!(session.run("execute q"), [["1"]]);
    session.run("prepare ins(int) as insert into a values ($1); begin; create index on a (x); execute ins(5); rollback");
    session.run("execute ins(6)");
    assert_eq!(session.run("select x from a order by x"), [["1"], ["6"]]);
}

#[test]
fn definitions_that_change_nothing_leave_the_plans_of_all_sessions() {
    let fixture = Fixture::new(TABLE);
    let database = fixture.database.as_ref().unwrap();
    let (mut session, before) = (fixture.session(), database.catalog().version);
    for statement in [
        "create table if not exists t (a int)",
        "drop table if exists nosuch",
        "drop sequence if exists nosuch",
        "drop role if exists nosuch",
        "alter table if exists nosuch add column a int",
    ] {
        session.run(statement);
        session.run(&format!("begin; {statement}; savepoint s; {statement}; select * from t; commit"));
        assert_eq!(database.catalog().version, before, "{statement}");
    }
    session.run(
        "begin; create table u (a int); drop table if exists nosuch; create table if not exists t (b int)",
    );
    session.run("savepoint s; drop table u; drop table if exists u; rollback to s; commit; select * from u");
    assert_eq!(database.catalog().version, before + 1);
}

#[test]
fn definitions_that_are_no_more_are_kept_by_nobodys_plan() {
    let fixture = Fixture::new(TABLE);
    let database = fixture.database.as_ref().unwrap();
    let before = std::sync::Arc::downgrade(&database.catalog());
    fixture.session().run("select * from t; select a from t; select b from t");
    assert!(before.upgrade().is_some());
    fixture.session().run("create table u (a int)");
    assert!(before.upgrade().is_none());
    // Nor by that of a transaction that has seen them for longer.
    let mut old = fixture.session();
    old.run("begin isolation level repeatable read; select * from t");
    let before = std::sync::Arc::downgrade(&database.catalog());
    fixture.session().run("drop table u");
    assert_eq!(old.one("select count(*) from t where a < 3"), "2");
    drop(old);
    assert!(before.upgrade().is_none());
}

#[test]
fn a_large_change_of_keys_is_judged_at_its_end() {
    let fixture = Fixture::new(
        "create table parent (id int primary key); insert into parent select generate_series(1, 600);
         create table child (p int references parent); insert into child values (256), (512)",
    );
    let mut session = fixture.session();
    session.run("update parent set id = id - 1");
    assert_eq!(session.one("select count(*) from parent where id in (0, 256, 512, 599)"), "4");
    let refused = session.attempt("update parent set id = id - 1 where id <= 256").unwrap_err();
    assert_eq!(refused.state().0, "23503");
    assert_eq!(session.attempt("delete from parent").unwrap_err().state().0, "23503");
    // A child of two parents, which are both removed by the statement, in different batches.
    session.run(
        "create table p (id int primary key); insert into p select generate_series(1, 600);
         create table a (id int primary key references p on delete cascade); insert into a values (3);
         create table b (id int references p on delete cascade, a int references a); insert into b values (500, 3);
         delete from p",
    );
    assert_eq!(session.one("select (select count(*) from a) + (select count(*) from b)"), "0");
}

#[test]
fn a_dropped_table_leaves_no_name_behind() {
    let fixture = Fixture::new("create table o (a int); create index i on o (a)");
    behind(&fixture, "begin", "alter index i rename to j", "drop table o", "commit").unwrap();
    fixture.session().run("create table j (a int); drop table j; create table i (a int)");
}

#[test]
fn a_child_waits_for_a_new_definition_of_its_parent() {
    let fixture = Fixture::new(
        "create table parent (id int primary key, b int); insert into parent values (1, 1);
         create table child (p int references parent)",
    );
    let insert = "insert into child values (1)";
    behind(&fixture, "", "alter table parent drop column b", insert, "commit").unwrap();
    assert_eq!(fixture.session().one("select count(*) from child join parent on id = p"), "1");
}

#[test]
fn who_locks_rows_waits_for_a_new_definition_of_their_table() {
    let setup = "create table t (k int primary key, a int); insert into t values (1, 1)";
    let lock = "select * from t where k = 1 for update";
    for (change, wanted) in [
        (
            "alter table t add column c int; update t set c = 7",
            vec![["1", "1", "7"].map(str::to_owned).to_vec()],
        ),
        ("truncate t", vec![]),
        (
            "alter table t alter a type bigint; update t set a = 2",
            vec![["1", "2"].map(str::to_owned).to_vec()],
        ),
    ] {
        let fixture = Fixture::new(setup);
        assert_eq!(behind(&fixture, "", change, lock, "commit").unwrap().text(), wanted, "{change}");
    }
    // And who has locked some keeps others from changing it, rather than the other way about.
    let fixture = Fixture::new(setup);
    let (mut session, mut other) = (fixture.session(), fixture.session());
    session.run("begin");
    session.run(lock);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.run("truncate t"));
        fixture.wait_until_running("truncate", 1);
        session.run("update t set a = 3; commit");
        waiting.join().unwrap();
    });
    assert_eq!(session.one("select count(*) from t"), "0");
}

#[test]
fn an_index_is_not_made_of_rows_that_its_transaction_does_not_see() {
    let fixture =
        Fixture::new("create table t (k int primary key, a int); insert into t values (1, 1), (2, 2)");
    let mut other = fixture.session();
    let changes =
        ["insert into t values (3, 3)", "delete from t where k = 1", "update t set a = 5 where k = 2"];
    for change in changes {
        for make in
            ["create index i on t (a)", "alter table t add unique (a)", "alter table t alter a type bigint"]
        {
            let mut session = fixture.session();
            session.run("begin isolation level repeatable read");
            session.run("select count(*) from t");
            other.run(change);
            assert_eq!(session.attempt(make).unwrap_err().state().0, "40001", "{change}, {make}");
            session.run("rollback");
            other.run("delete from t; insert into t values (1, 1), (2, 2)");
        }
    }
    let mut session = fixture.session();
    session.run("begin isolation level repeatable read; insert into t values (4, 4)");
    session.run("create index i on t (a)");
    assert_eq!(session.run("select k from t where a = 4"), [["4"]]);
    session.run("commit");
}

#[test]
fn who_waits_to_change_a_definition_goes_on_with_all_that_was_changed_along() {
    let fixture = Fixture::new("create table t (id int primary key); insert into t values (1)");
    // A sequence that came with a column goes with its table.
    let identity = "alter table t add column s int generated by default as identity";
    behind(&fixture, "", identity, "drop table t", "commit").unwrap();
    assert_eq!(fixture.session().one("select count(*) from pg_class where relkind = 'S'"), "0");
    // A reference that came meanwhile counts.
    fixture.session().run("create table t (id int primary key)");
    let change = "alter table t alter id type text";
    let refused = behind(&fixture, "", "create table c (p int references t)", change, "commit");
    assert_eq!(refused.unwrap_err().state().0, "0A000");
    // Also the second one of the same child.
    fixture.session().run(
        "create table p (id int primary key, u numeric(10, 2) unique); insert into p values (1, 1.40);
         create table pc (id int primary key, pid int references p, x numeric(10, 2)); insert into pc values (1, 1, 1.40)",
    );
    let change = "alter table p alter column u type integer";
    let add = "alter table pc add foreign key (x) references p (u)";
    let refused = behind(&fixture, "", add, change, "commit");
    assert_eq!(refused.unwrap_err().state().0, "0A000");
    assert_eq!(fixture.session().one("select u from p"), "1.40");
    // A name may mean another table.
    fixture.session().run("create table u (id int primary key); insert into u values (1), (2)");
    let swap = "alter table c rename to old_c; alter table u rename to c";
    behind(&fixture, "", swap, "truncate c", "commit").unwrap();
    assert_eq!(fixture.session().one("select count(*) from c"), "0");
    assert_eq!(fixture.session().run("select * from old_c"), Vec::<Vec<String>>::new());
}

#[test]
fn a_definition_that_begins_anew_told_its_notices_twice() {
    let fixture = Fixture::new("create table t (a int)");
    let drop = "drop table if exists nosuch, t";
    let told = behind(&fixture, "", "alter table t add column b int", drop, "commit").unwrap().notices;
    let told: Vec<String> = told.iter().map(|notice| notice.error.to_string()).collect();
    assert_eq!(told, ["table \"nosuch\" does not exist, skipping"]);
}

#[test]
fn copy_goes_on_when_definitions_change_before_it_has_read() {
    for (end, columns, input, outcome) in [
        ("rollback", "", "1\tb\n", Ok("a b")),
        ("commit", "", "1\t2\n", Ok("a x")),
        ("commit", " (a, b)", "1\tb\n", Err("42703")),
    ] {
        let fixture = Fixture::new("create table c (a int, b text); create table other (a int)");
        let (mut session, mut waiting) = (fixture.session(), fixture.session());
        session.run("begin; alter table c add x int; alter table c drop b");
        let done = std::thread::scope(|scope| {
            let copy = scope.spawn(|| {
                let mut rows = Rows::default();
                rows.input = input.into();
                waiting.0.run(&format!("copy c{columns} from stdin"), &mut rows)
            });
            fixture.wait_until_running("copy c", 1);
            std::thread::sleep(Duration::from_millis(5));
            // What it does not need changes, too.
            fixture.session().run("create table another (a int); drop table other");
            session.run(end);
            copy.join().unwrap()
        });
        match (&done, outcome) {
            (Ok(()), Ok(_)) => {}
            (Err(error), Err(state)) => assert_eq!(error.state().0, state, "{error:?}"),
            _ => panic!("{end}{columns}: {done:?}"),
        }
        if let Ok(names) = outcome {
            let rows = session.attempt("select * from c").unwrap();
            let columns: Vec<&str> = rows.columns.iter().map(|column| column.name.as_str()).collect();
            assert_eq!((columns.join(" ").as_str(), rows.text().len()), (names, 1), "{end}");
        }
    }
}

#[test]
fn a_long_line_of_copy_is_charged() {
    let fixture = Fixture::new("create table c (a text)");
    let mut session = fixture.session();
    let mut rows = Rows::default();
    rows.input = "x".repeat(40 << 20).into_bytes();
    rows.input.extend_from_slice(b"\tone too many\n");
    let error = session.0.run("copy c from stdin", &mut rows).unwrap_err();
    assert_eq!(error.state().0, "53200", "{error:?}");
    rows.input = ["y".repeat(3 << 20), "z".to_owned(), String::new()].join("\n").into_bytes();
    session.0.run("copy c from stdin", &mut rows).unwrap();
    assert_eq!(session.list("select length(a) from c order by 1"), "1 3145728");
}

#[test]
fn results_of_functions_are_charged() {
    let fixture = Fixture::new("create table t (x text)");
    let mut session = fixture.session();
    session.run("insert into t values (repeat('a', 10000000))");
    let elements = "(select array_fill(1, array[400000]) a) s";
    for (value, from) in [
        ("length(x || x || x || x)", "t"),
        ("length(x || 1 || x || x || x)", "t"),
        ("length(concat(x, x, x, x))", "t"),
        ("length(concat_ws(',', x, x, x, x))", "t"),
        ("length(format('%s%s%s%s', x, x, x, x))", "t"),
        ("length(array_to_string(array[x, x, x, x], ','))", "t"),
        ("length(translate(x, 'a', '\u{1f600}'))", "t"),
        ("length(encode(x::bytea || x::bytea, 'hex'))", "t"),
        ("length(regexp_replace(x, 'aa', 'bbbbbbbb', 'g'))", "t"),
        ("length(quote_literal(replace(x, 'aa', '''a')) || x || x)", "t"),
        ("cardinality(string_to_array(repeat('a,', 1000000), ','))", "t"),
        ("cardinality(string_to_array(repeat('a', 1200000), null))", "t"),
        ("cardinality(regexp_split_to_array(repeat('a,', 1000000), ','))", "t"),
        ("count(*)", "regexp_split_to_table(repeat('a,', 1000000), ',')"),
        ("count(*)", "regexp_matches(repeat('a,', 500000), 'a', 'g')"),
        ("cardinality(a || a || a)", elements),
        ("cardinality(array_replace(a, 1, 2) || a || a)", elements),
    ] {
        session.fails(&format!("select {value} from {from}"), "53200");
    }
    let shorter = "(select repeat('a', 4000000) x offset 0) s";
    assert_eq!(session.one(&format!("select length(x || x) from {shorter}")), "8000000");
    assert_eq!(session.one(&format!("select cardinality(a || 1) from {elements}")), "400001");
}

#[test]
fn large_values_are_charged_as_long_as_they_live() {
    // With a budget of 32 MiB.
    let fixture = Fixture::new("create table t (a int)");
    let mut session = fixture.session();
    let x = "repeat('x', 9000000 + g)";
    for value in [
        format!("{x}, {x}, {x}, {x}"),
        "array[g::char(9000000), g::char(9000001), g::char(9000002), g::char(9000003)] is null".to_owned(),
        format!("array[{x}, {x}, {x}, {x}] is null"),
        format!("row({x}, {x}, {x}, {x})::text is null"),
        format!("{x} || {x} = upper({x}) || lower({x})"),
        format!("length(upper({x} || {x}))"),
        "length(array_fill(repeat('x', 1000000 + g), array[400])::text)".to_owned(),
        "cardinality(('{' || repeat('1,', 2000000 + g) || '1}')::int[])".to_owned(),
        "length(to_char(g, repeat('RN', 1000000 + g)))".to_owned(),
        "length(regexp_replace(repeat('x', 1000000 + g), '(x+)', repeat('\\1', 500000)))".to_owned(),
        format!("(select length({x} || y.x) from (select {x} || {x} as x offset 0) y)"),
    ] {
        session.fails(&format!("select {value} from generate_series(1, 2) g"), "53200");
    }
    // Aggregates ask for what they need before they take it: no batch of such values is gathered unseen.
    let million = "repeat('x', 1000000) || g";
    for (value, rest) in [
        (format!("length(string_agg({million}, ''))"), ""),
        (format!("length(string_agg({million}, '' order by g))"), ""),
        (format!("length(string_agg({million}, ''))"), "group by g % 2"),
        (format!("cardinality(array_agg({million}))"), ""),
        (format!("length(string_agg(({million})::bytea, ''))"), "group by g % 2"),
    ] {
        let error =
            session.attempt(&format!("select {value} from generate_series(1, 300) g {rest}")).unwrap_err();
        assert_eq!(error.state().0, "53200", "{error:?}");
        let asked: u64 = error.to_string().split(' ').find_map(|word| word.parse().ok()).unwrap();
        assert!(asked < 24 << 20, "{value}: {error:?}");
    }
    // What was given back is there for others.
    assert_eq!(session.one(&format!("select sum(length({x})) from generate_series(1, 20) g")), "180000210");
    let sorted =
        format!("select length(a) from (select {x} a from generate_series(1, 9) g) s order by a limit 1");
    assert_eq!(session.one(&sorted), "9000001");
}

#[test]
fn many_aggregates_at_once_wait_for_their_turn() {
    // With a budget of 32 MiB, which is not enough for all of them, even when they spill.
    let fixture = Fixture::new(
        "create table t (a int, b text);
         insert into t select g, 'some text ' || g from generate_series(1, 60000) g",
    );
    let grouped = "select count(*) from (select b, count(*) from t group by b) s";
    std::thread::scope(|scope| {
        for _ in 0..40 {
            let mut session = fixture.session();
            scope.spawn(move || assert_eq!(session.one(grouped), "60000"));
        }
    });
    // Who waits can be ended, and whoever leaves a turn lying keeps nobody waiting for long.
    let memory = fixture.engine.budget().limit();
    let turns: Vec<_> =
        (0..memory >> 23).map(|_| fixture.engine.turn(1, true, None, || false).unwrap()).collect();
    let mut session = fixture.session();
    session.run("set statement_timeout = '50ms'");
    session.fails(grouped, "57014");
    session.run("set statement_timeout = 0");
    // Whoever has locked rows does not wait: those who have turns may wait for him.
    session.run("begin; select * from t where a = 1 for update");
    assert_eq!(session.one(grouped), "60000");
    session.run("commit");
    // While somebody waits he can be seen to do so.
    let mut other = fixture.session();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| session.one(grouped));
        let waiting = "select count(*) from pg_stat_activity where wait_event = 'MemoryTurn'";
        while other.one(waiting) != "1" {
            std::thread::yield_now();
        }
        turns.iter().for_each(|turn| turn.set_idle(true));
        assert_eq!(waiter.join().unwrap(), "60000");
    });
}

#[test]
fn who_waits_for_a_row_keeps_nobody_from_his_turn() {
    // With a budget of 32 MiB: four turns.
    let fixture = Fixture::new("create table t (id int primary key, v int); insert into t values (1, 0)");
    let mut holder = fixture.session();
    holder.run("begin; update t set v = 1");
    let much = "from (select g, count(*) c from generate_series(1, 20000) g group by g) q";
    std::thread::scope(|scope| {
        for _ in 0..5 {
            let mut session = fixture.session();
            scope.spawn(move || {
                session.run(&format!("update t set v = v + 1 {much} where q.g + q.c - 1 = t.id"));
            });
        }
        let mut reader = fixture.session();
        while reader.one("select count(*) from pg_stat_activity where wait_event = 'transactionid'") != "5" {
            std::thread::yield_now();
        }
        // Here the owner of the row could be waiting for the reader.
        assert_eq!(reader.one(&format!("select count(*) {much}")), "20000");
        holder.run("commit");
    });
    assert_eq!(holder.one("select v from t"), "6");
}

#[test]
fn who_sleeps_keeps_nobody_from_his_turn() {
    // With a budget of 32 MiB: four turns.
    let fixture = Fixture::new("create sequence s");
    let much = "from (select g, count(*) c from generate_series(1, 20000) g group by g) q";
    std::thread::scope(|scope| {
        for _ in 0..5 {
            let mut session = fixture.session();
            scope.spawn(move || {
                session.run("set statement_timeout = '60s'");
                session.fails(&format!("select nextval('s'), pg_sleep(1000) {much}"), "57014");
            });
        }
        let mut reader = fixture.session();
        let (mut asked, since) = (0, std::time::Instant::now());
        while reader.one("select nextval('s')").parse::<i32>().unwrap() < asked + 6 {
            asked += 1;
            assert!(since.elapsed().as_secs() < 60, "one of them has no turn");
            std::thread::yield_now();
        }
        assert_eq!(reader.one(&format!("select count(*) {much}")), "20000");
        let sleepers =
            "select count(pg_cancel_backend(pid)) from pg_stat_activity where query like '%pg_sleep(1000)%'
            and pid <> pg_backend_pid()";
        assert_eq!(reader.one(sleepers), "5");
    });
}

#[test]
fn sessions_with_large_values_wait_for_their_turn() {
    // With a budget of 32 MiB, of which a sort takes some 5 MiB, and a join most.
    let fixture = Fixture::new(
        "create table big (a int primary key, b text);
         insert into big select g, repeat(md5(g::text), 30000) from generate_series(1, 20) g",
    );
    let sorted =
        "select count(*) from (select repeat('x', 900000) x from generate_series(1, 20) g order by 1) s";
    let joined = "select count(*) from big x join big y on x.b = y.b";
    let grouped = "select count(*) from (select b, count(*) from big group by b) s";
    let scanned = "select count(*) from big where b is not null";
    std::thread::scope(|scope| {
        for i in 0..12 {
            let mut session = fixture.session();
            scope.spawn(move || assert_eq!(session.one([sorted, joined, grouped, scanned][i % 4]), "20"));
        }
    });
}

#[test]
fn joins_of_one_statement_leave_each_other_room() {
    // With a budget of 32 MiB, less than each of the tables takes in memory.
    let fixture = Fixture::new(
        "create table t (id int primary key, b text);
         insert into t select g, repeat('y', 1000) || g from generate_series(1, 20000) g; analyze t",
    );
    let joined = "select count(*) from t a join t b on a.b = b.b join t c on c.b = a.b join t d on d.b = a.b";
    assert_eq!(fixture.session().one(joined), "20000");
}

#[test]
fn a_long_value_is_charged_before_it_is_read() {
    // With a budget of 32 MiB.
    let fixture = Fixture::new(
        "create table big (a int primary key, b text);
         insert into big select g, repeat('x', 300000) from generate_series(1, 20) g;
         insert into big select 21, repeat('x', 14000000)",
    );
    let mut session = fixture.session();
    let reads = [
        "select length(b) from big where a = 3",
        "select a from big where a = 3",
        "select count(*) from big where a < 4 and b is not null",
        "select length(b) from big where b like 'x%' order by a limit 1",
    ];
    for query in reads {
        session.run(query);
    }
    // A copy in the store, and one that is made of it: there has to be room for both.
    let large =
        ["select a from big where a = 21", "select count(b) from big", "update big set a = 21 where a = 21"];
    let taken = fixture.engine.work_memory(4 << 20).unwrap();
    for query in large {
        session.fails(query, "53200");
    }
    assert_eq!(session.one("select count(*) from big where a < 21"), "20");
    // Who only counts rows reads none of their values.
    assert_eq!(session.one("select count(*) from big"), "21");
    drop(taken);
    for query in &large[..2] {
        session.run(query);
    }
    // To delete it, it is compared with what was read, and not read again.
    session.run("begin; delete from big where a = 21; rollback");
    // Who is about to read one waits for his turn.
    let memory = fixture.engine.budget().limit();
    let _turns: Vec<_> =
        (0..memory >> 23).map(|_| fixture.engine.turn(1, true, None, || false).unwrap()).collect();
    session.run("set statement_timeout = '50ms'");
    for query in reads {
        session.fails(query, "57014");
    }
    // Whom others may be waiting for does so for a moment only.
    session.run("set statement_timeout = 0");
    session.run("begin");
    let mut other = fixture.session();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| session.one("update big set b = b || '.' where a = 4 returning a"));
        let waiting = "select count(*) from pg_stat_activity where wait_event = 'MemoryTurn'";
        while other.one(waiting) != "1" {
            assert!(!writer.is_finished(), "it does not wait");
            std::thread::yield_now();
        }
        assert_eq!(writer.join().unwrap(), "4");
    });
    // It has waited for its transaction's other statements, too.
    assert_eq!(session.one("select count(*) from big where a < 21 and b like '%.'"), "1");
    session.run("commit");
}

#[test]
fn what_a_long_text_becomes_is_charged_before_it_is_read() {
    // With a budget of 32 MiB.
    let fixture = Fixture::new("create table t (a int)");
    let mut session = fixture.session();
    let list = format!("select a from t where a in (0{})", ",1".repeat(200_000));
    let error = session.attempt(&list).unwrap_err();
    assert_eq!(error.state().0, "53200");
    assert!(error.fields().detail.as_deref().is_some_and(|detail| detail.contains("To read this text")));
    // Statement by statement it is read, and all of it or nothing.
    let many = "insert into t values (1);".repeat(5_000);
    session.run(&many);
    assert_eq!(session.one("select count(*) from t"), "5000");
    assert_eq!(session.attempt(&format!("{many} selekt 1")).unwrap_err().state().0, "42601");
    assert_eq!(session.one("select count(*) from t"), "5000");
    let text = "x".repeat(4 << 20);
    assert_eq!(session.one(&format!("select length('{text}')")), (4 << 20).to_string());
}

#[test]
fn of_many_notices_of_a_statement_the_first_are_told_and_the_others_counted() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    let sql = "select count(pg_cancel_backend(g)) from generate_series(1000000, 1000999) g";
    for _ in 0..2 {
        let notices = session.attempt(sql).unwrap().notices;
        assert_eq!(notices.len(), 201);
        assert_eq!(notices[199].error.to_string(), "PID 1000199 is not a PostgreSQL backend process");
        let last = &notices[200];
        let told = (last.severity, last.error.to_string());
        assert_eq!(told, ("WARNING", "there were 800 more messages, which are not shown".to_owned()));
    }
    session.run("set client_min_messages = error");
    assert!(session.attempt(sql).unwrap().notices.is_empty());
}

#[test]
fn a_setting_that_each_row_changes_comes_back_as_it_was() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    let change = |local: bool| {
        format!(
            "select count(set_config('application_name', g::text, {local})) from generate_series(1, 1000) g"
        )
    };
    session.run("set application_name = 'before'");
    session.run(&format!("begin; {}; savepoint s; {}", change(false), change(true)));
    session.run("set application_name = 'later'; rollback to s");
    assert_eq!(session.one("show application_name"), "1000");
    session.run("rollback");
    assert_eq!(session.one("show application_name"), "before");
    // What SET says behind a SET LOCAL outlasts it, and not what SET LOCAL says behind that.
    session.run("begin; set local application_name = 'a'; set application_name = 'b'");
    session.run("set local application_name = 'c'; commit");
    assert_eq!(session.one("show application_name"), "b");
    session.run(&format!("begin; {}; commit", change(true)));
    assert_eq!(session.one("show application_name"), "b");
}

#[test]
fn rows_much_longer_than_their_text_are_copied_one_after_the_other() {
    let fixture = Fixture::new(
        "create table c (a char(3000000)); create table d (a char(10000000), b char(10000000), c char(10000000), d char(10000000))",
    );
    let mut session = fixture.session();
    let mut rows = Rows::default();
    rows.input = "x\n".repeat(6).into_bytes();
    session.0.run("copy c from stdin", &mut rows).unwrap();
    assert_eq!(session.one("select count(*) || ' ' || sum(octet_length(a)) from c"), "6 18000000");
    // One that does not fit alone is named, and nothing is left of those before it.
    rows.input = b"x\t\\N\t\\N\t\\N\nx\tx\tx\tx\n".to_vec();
    let error = session.0.run("copy d from stdin", &mut rows).unwrap_err();
    assert_eq!(error.state().0, "53200");
    assert_eq!(error.fields().context.as_deref(), Some("COPY d, line 2"));
    assert_eq!(session.one("select count(*) from d"), "0");
}

#[test]
fn a_short_statement_does_not_double_with_each_of_its_levels() {
    // With a budget of 32 MiB.
    let fixture = Fixture::new("create table tt (a int, b bool); insert into tt values (3, true)");
    let mut session = fixture.session();
    let nested = |times: usize, first: &str, wrap: &dyn Fn(&str) -> String| {
        (0..times).fold(first.to_owned(), |inner, _| wrap(&inner))
    };
    let sums = nested(25, "select a as x, a as y from tt", &|inner| {
        format!("select x+y as x, x-y as y from ({inner}) s where x >= y")
    });
    assert_eq!(session.run(&sums), [["24576", "0"]]);
    let groups = nested(25, "select a as x, a as y from tt", &|inner| {
        format!("select x+y as x, x-y as y from ({inner}) s where x >= y group by x+y, x-y")
    });
    assert_eq!(session.run(&groups), [["24576", "0"]]);
    // AND and OR are no work of their own.
    let truths = nested(25, "select b as x, b as y, a from tt", &|inner| {
        format!("select x and (y or a < 7) as x, y and (x or a > 7) as y, a from ({inner}) s where a > 1")
    });
    assert_eq!(session.run(&truths), [["t", "t", "3"]]);
    let between = nested(40, "b", &|inner| format!("({inner} between false and b)"));
    let not_between = nested(40, "b", &|inner| format!("({inner} not between b and false)"));
    let member = nested(40, "b", &|inner| format!("({inner} in (b, false, not b))"));
    let symmetric = nested(25, "b", &|inner| format!("({inner} between symmetric b and false)"));
    let row = format!("select {between}, {not_between}, {member}, {symmetric} from tt");
    assert_eq!(session.run(&row), [["t", "t", "t", "t"]]);
}

#[test]
fn what_a_short_statement_comes_to_is_charged() {
    let columns: Vec<String> = (0..800).map(|number| format!("c{number} int")).collect();
    let fixture = Fixture::new(&format!("create table w ({})", columns.join(", ")));
    let mut session = fixture.session();
    let joined: Vec<String> = (0..300).map(|number| format!("w w{number}")).collect();
    let rows = vec!["(w is null)"; 400].join(" or ");
    let stars = vec!["(select count(*) from (select w.*, x.* from w, w x) y)"; 50].join(", ");
    for sql in [
        format!("select count(*) from {}", joined.join(" natural join ")),
        format!("select count(*) from w where {rows}"),
        format!("select {stars}"),
        // The bounds are needed twice, and each has its own.
        format!(
            "select {}",
            (0..25).fold("true".to_owned(), |inner, _| format!("(false between symmetric {inner} and true)"))
        ),
    ] {
        let error = session.fails(&sql, "53200");
        assert!(
            error.fields().detail.as_deref().is_some_and(|detail| detail.contains("To plan this statement"))
        );
    }
    assert_eq!(session.one("select count(*) from w natural join w x where w is not null"), "0");
}

#[test]
fn what_savepoints_keep_of_settings_is_charged_and_given_back() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    let used = || fixture.engine.budget().used_for(Purpose::Sessions);
    let path = vec!["public"; 120].join(",");
    session.run("set application_name = 'before'");
    let began = used();
    session.run("begin");
    for turn in 0..1000 {
        session
            .run(&format!("set search_path = {path}; set application_name = 'a{turn}'; savepoint s{turn}"));
    }
    assert!(used() - began > 1000 * path.len() as u64, "{} bytes", used() - began);
    // Those of savepoints that are released are one for each setting.
    session.run("release s0");
    assert!(used() - began < 10_000, "{} bytes", used() - began);
    assert_eq!(session.one("show application_name"), "a999");
    session.run("savepoint s; set local application_name = 'local'; release s; rollback");
    assert_eq!(session.one("show application_name"), "before");
    // What is released is the transaction's.
    session.run(
        "begin; savepoint s; set application_name = 'after'; set local timezone = 'Asia/Tokyo'; release s",
    );
    session.run("set local application_name = 'local'; commit");
    assert_eq!(session.one("show application_name"), "after");
    assert_eq!(session.one("show timezone"), "UTC");
}

#[test]
fn a_name_that_is_too_long_is_cut_with_a_notice() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    let long = "n".repeat(1_000_000);
    let notices = session.attempt(&format!("set application_name = '{long}'")).unwrap().notices;
    assert_eq!((notices[0].severity, notices[0].error.state().0), ("NOTICE", "42622"));
    assert!(notices[0].error.to_string().len() < 1000);
    assert_eq!(session.one("show application_name"), long[..63]);
    assert_eq!(session.one("select application_name from pg_stat_activity"), long[..63]);
    let error = session
        .fails(&format!("select set_config('search_path', '{}', false)", "public,".repeat(1000)), "22023");
    assert_eq!(error.fields().detail.as_deref(), Some("It is longer than 1024 bytes."));
}

#[test]
fn rows_in_rows_are_refused_where_their_text_has_no_room() {
    let fixture = Fixture::new(TABLE);
    let mut session = fixture.session();
    // Each level doubles the quotes of those within: a terabyte of one character.
    let row = format!("{}'\"'{}", "row(".repeat(40), ")".repeat(40));
    for sql in [
        format!("select length(({row})::text)"),
        format!("select length(concat({row}, 'x'))"),
        format!("select length(format('%s', {row}))"),
        format!("select length('x' || {row})"),
        format!("copy (select {row}) to stdout"),
    ] {
        let error = session.attempt(&sql).unwrap_err();
        assert!(matches!(error.state().0, "53200" | "54000"), "{sql:.40}: {error}");
    }
    let row = format!("{}'\"'{}", "row(".repeat(3), ")".repeat(3));
    let text = r#"("(""("""""""""""""""")"")")"#;
    assert_eq!(session.one(&format!("select ({row})::text")), text);
}
