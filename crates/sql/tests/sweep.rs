//! SWEEP DATABASE and VACUUM as jobs, who holds garbage back by name, and `snapshot_limit`.

use gannet_sql::session::Rows;
use gannet_sql::sweep::Swept;
use gannet_sql::{Database, Session};
use gannet_store::{CreateOptions, Engine, EngineOptions, JobKind, JobReport, OpenOptions};
use std::time::Duration;

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

    /// A database that sweeps only when it is told to.
    fn database(&self, snapshot_limit: Option<Duration>) -> Database {
        let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
        let open = OpenOptions { sweep: false, snapshot_limit, ..OpenOptions::default() };
        let path = self.folder.path().join("shop.gnt");
        let database = Database::create(&self.engine, &path, &create, &open, "owner").unwrap();
        let mut session = database.session("owner").unwrap();
        run(&mut session, "set snapshot_limit = 0");
        run(&mut session, "create table t (id bigint primary key, v text); create index by_v on t (v)");
        run(&mut session, "insert into t select n, 'v' || n from generate_series(1, 3000) as n");
        run(&mut session, "vacuum");
        drop(session);
        database
    }
}

fn run(session: &mut Session, sql: &str) -> Rows {
    let mut rows = Rows::default();
    session.run(sql, &mut rows).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows
}

fn one(session: &mut Session, sql: &str) -> String {
    run(session, sql).text().concat().concat()
}

/// What a statement with VERBOSE says at its end.
fn told(session: &mut Session, sql: &str) -> (Swept, JobReport) {
    let rows = run(session, sql);
    let detail = rows.notices.last().unwrap().error.fields().detail.clone().unwrap();
    let mut detail: serde_json::Value = serde_json::from_str(&detail).unwrap();
    let swept = serde_json::from_value(detail["swept"].take()).unwrap();
    (swept, serde_json::from_value(detail["job"].take()).unwrap())
}

#[test]
fn tables_and_indexes_are_named() {
    let fixture = Fixture::new();
    let database = fixture.database(None);
    let mut session = database.session("owner").unwrap();
    run(&mut session, "delete from t where id <= 1000");
    let (shown, job) = told(&mut session, "sweep database show verbose");
    assert!(job.kind == JobKind::Sweep && job.reason == "SWEEP DATABASE by owner", "{job:?}");
    let dead: Vec<(&str, f64)> =
        shown.objects.iter().map(|object| (object.object.as_str(), object.dead_entries.value)).collect();
    assert_eq!(dead, [("index by_v", 1000.0), ("table t", 1000.0)]);
    assert!(shown.report.shown_only && shown.holders.is_empty());
    let rows = run(&mut session, "sweep database");
    let line =
        |what: &str| rows.text().into_iter().find(|row| row[0] == what).unwrap_or_else(|| panic!("{what}"));
    assert_eq!(rows.tag.as_ref().unwrap().to_string(), "SWEEP DATABASE 4");
    assert_eq!(line("table t")[4], "1000");
    assert_eq!(line("index by_v")[1], "dead entries");
    let free = line("undo that nobody can see");
    assert!(free[2] != "0" && free[3] == "0" && free[2] == free[4], "{free:?}");
    assert!(told(&mut session, "sweep database verbose").0.objects.is_empty());
    run(&mut session, "check database");
}

#[test]
fn a_vacuum_is_the_same_job() {
    let fixture = Fixture::new();
    let database = fixture.database(None);
    let mut session = database.session("owner").unwrap();
    run(&mut session, "delete from t where id <= 1000");
    run(&mut session, "vacuum t");
    let jobs = "select reason || ' ' || state from gannet_jobs where job = 'sweep' and id is not null
                order by id desc limit 1";
    assert_eq!(one(&mut session, jobs), "VACUUM by owner done");
    assert_eq!(told(&mut session, "sweep database verbose").0.report.cleaned.records, 0);
}

#[test]
fn who_holds_garbage_back_is_named_and_can_be_ended() {
    let fixture = Fixture::new();
    let database = fixture.database(None);
    let mut reader = database.session("owner").unwrap();
    run(&mut reader, "begin isolation level repeatable read; select count(*) from t");
    let mut session = database.session("owner").unwrap();
    run(&mut session, "delete from t");
    let (swept, _) = told(&mut session, "sweep database verbose");
    let pid = reader.state().pid;
    let holder = &swept.holders[0];
    assert_eq!(holder.session.as_ref().unwrap().pid, pid);
    assert!(holder.describe().contains("idle in transaction"), "{}", holder.describe());
    let view = format!(
        "select kind, held_bytes = alone_bytes, held_bytes = {}, age_seconds > 0, limit_seconds is null
         from gannet_snapshots where pid = {pid}",
        holder.holder.held_bytes
    );
    assert_eq!(run(&mut session, &view).text(), [["snapshot", "t", "t", "t", "t"]]);
    assert_eq!(one(&mut session, &format!("select pg_terminate_backend({pid})")), "t");
    let error = reader.run("select 1", &mut Rows::default()).unwrap_err();
    assert_eq!(error.state().to_string(), "57P01");
    drop(reader);
    let (swept, _) = told(&mut session, "sweep database verbose");
    assert_eq!((swept.report.after.held_segments, swept.holders.len()), (0, 0));
}

#[test]
fn a_session_that_holds_garbage_back_for_too_long_is_ended_and_told_why() {
    let fixture = Fixture::new();
    let database = fixture.database(Some(Duration::from_millis(1)));
    let mut exempt = database.session("owner").unwrap();
    run(&mut exempt, "set snapshot_limit = 0");
    run(&mut exempt, "begin isolation level repeatable read; select count(*) from t");
    let mut reader = database.session("owner").unwrap();
    assert_eq!(one(&mut reader, "show snapshot_limit"), "1ms");
    run(&mut reader, "begin isolation level repeatable read; select count(*) from t");
    let mut session = database.session("owner").unwrap();
    run(&mut session, "set snapshot_limit = 0");
    run(&mut session, "delete from t");
    let error = loop {
        match reader.run("select count(*) from t", &mut Rows::default()) {
            Ok(()) => gannet_base::clock::sleep(Duration::from_millis(5)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.state().to_string(), "25P04");
    assert!(error.to_string().contains("snapshot_limit"), "{error}");
    // The session is over, and has let go of what it held.
    let held = format!("select count(*) from gannet_snapshots where pid = {}", reader.state().pid);
    assert_eq!(one(&mut session, &held), "0");
    assert!(reader.interrupt().is_shut_down());
    run(&mut reader, "rollback");
    let again = reader.run("select count(*) from t", &mut Rows::default()).unwrap_err();
    assert_eq!(again.state().to_string(), "25P04");
    assert_eq!(one(&mut exempt, "select count(*) from t"), "3000");
    let limit = "select limit_seconds is null from gannet_snapshots where pid = ";
    let pid = exempt.state().pid;
    assert_eq!(one(&mut session, &format!("{limit}{pid}")), "t");
}

#[test]
fn what_cannot_be_done_says_why() {
    let fixture = Fixture::new();
    let database = fixture.database(Some(Duration::from_secs(600)));
    let mut session = database.session("owner").unwrap();
    for (sql, state, message) in [
        ("sweep database now", "42601", "syntax error at or near \"now\""),
        ("begin; sweep database", "25001", "SWEEP DATABASE cannot run inside a transaction block"),
    ] {
        let error = session.run(sql, &mut Rows::default()).unwrap_err();
        assert_eq!(error.state().to_string(), state, "{sql}: {error}");
        assert!(error.to_string().contains(message), "{sql}: {error}");
    }
    run(&mut session, "rollback");
    run(&mut session, "create role guest login");
    let mut guest = database.session("guest").unwrap();
    for (sql, state, message) in [
        ("sweep database", "42501", "must be superuser to do SWEEP DATABASE"),
        ("set snapshot_limit = 0", "42501", "permission denied to set parameter \"snapshot_limit\""),
        ("set snapshot_limit = '11min'", "42501", "beyond the database's"),
        ("set snapshot_limit = 'soon'", "22023", "invalid value for parameter \"snapshot_limit\""),
    ] {
        let error = guest.run(sql, &mut Rows::default()).unwrap_err();
        assert_eq!(error.state().to_string(), state, "{sql}: {error}");
        assert!(error.to_string().contains(message), "{sql}: {error}");
    }
    run(&mut guest, "set snapshot_limit = '5min'");
    let setting = "select effective || ' ' || source from gannet_settings where name = 'snapshot_limit'";
    assert_eq!(one(&mut guest, setting), "5min session");
    assert_eq!(one(&mut session, setting), "10min default");
}
