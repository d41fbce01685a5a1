//! What a database tells of itself: settings, memory, devices, sessions, locks, sizes, what EXPLAIN counts.

use gannet_base::thread;
use gannet_io::{Mode, ModeRequest};
use gannet_sql::session::{Rows, SettingReport};
use gannet_sql::{Database, Session};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
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

    fn database(&self, name: &str) -> Database {
        let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
        let path = self.folder.path().join(format!("{name}.gnt"));
        Database::create(&self.engine, &path, &create, &OpenOptions::default(), "owner").unwrap()
    }
}

fn run(session: &mut Session, sql: &str) -> Vec<Vec<String>> {
    let mut rows = Rows::default();
    session.run(sql, &mut rows).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.text()
}

fn one(session: &mut Session, sql: &str) -> String {
    run(session, sql).concat().concat()
}

fn number(session: &mut Session, sql: &str) -> i64 {
    let text = one(session, sql);
    text.parse().unwrap_or_else(|_| panic!("{sql}: {text}"))
}

#[test]
fn settings_say_what_was_asked_for_and_what_holds() {
    let fixture = Fixture::new();
    let database = fixture.database("shop");
    database.publish_settings(vec![SettingReport {
        name: "max_connections".to_owned(),
        requested: "1000".to_owned(),
        effective: "100".to_owned(),
        source: "file".to_owned(),
        reason: "no more fit".to_owned(),
        is_place: false,
    }]);
    let mut session = database.session("owner").unwrap();
    run(&mut session, "set statement_timeout = '5s'");
    let of = |session: &mut Session, name: &str| {
        run(
            session,
            &format!(
                "select requested, effective, source, reason from gannet_settings where name = '{name}'"
            ),
        )
        .remove(0)
    };
    assert_eq!(of(&mut session, "max_connections"), ["1000", "100", "file", "no more fit"]);
    assert_eq!(of(&mut session, "statement_timeout")[1..3], ["5s", "session"]);
    assert_eq!(of(&mut session, "lock_timeout")[2], "default");
    assert_eq!(of(&mut session, "page_size")[1], "8KiB");
    let io = of(&mut session, "io");
    assert_eq!(io[0], "auto");
    assert!(!io[3].is_empty());
    drop(session);
    // One of them was asked for.
    let mode = ModeRequest::Only(Mode::Buffered);
    let open = OpenOptions { mode, ..OpenOptions::default() };
    let path = fixture.folder.path().join("shop.gnt");
    database.close().unwrap();
    let database = Database::open(&fixture.engine, &path, &open, "owner").unwrap();
    let mut session = database.session("owner").unwrap();
    assert_eq!(of(&mut session, "io")[..2], ["buffered", "buffered"]);
}

#[test]
fn memory_and_devices_are_counted() {
    let fixture = Fixture::new();
    let database = fixture.database("shop");
    let mut session = database.session("owner").unwrap();
    let parts = number(&mut session, "select sum(used_bytes) from gannet_memory where purpose <> 'total'");
    let total = number(&mut session, "select used_bytes from gannet_memory where purpose = 'total'");
    assert!((parts - total).abs() < 1 << 20, "{parts} {total}");
    assert_eq!(
        number(&mut session, "select limit_bytes from gannet_memory where purpose = 'total'"),
        32 << 20
    );
    assert_eq!(number(&mut session, "select count(*) from gannet_memory where peak_bytes < used_bytes"), 0);
    assert!(number(&mut session, "select peak_bytes from gannet_memory where purpose = 'pool'") > 8 << 20);
    let commits =
        "select sum(requests)::bigint from gannet_io where class = 'commit' and operation = 'write'";
    let before = number(&mut session, commits);
    run(&mut session, "create table t (id int primary key)");
    assert!(number(&mut session, commits) > before);
    let waits = "select count(*) from gannet_io where requests > 0 and latency_us_p50 > 0
        and latency_us_p50 <= latency_us_p99 and latency_us_p99 <= latency_us_max
        and total_ms > 0";
    assert_eq!(
        number(&mut session, waits),
        number(&mut session, "select count(*) from gannet_io where requests > 0")
    );
    let files = run(&mut session, "select path, bytes from gannet_files");
    assert!(files[0][0].ends_with("shop.gnt") && files.len() > 1);
    // How the data file and the log are open, by whom they are read; what nobody has open has no mode.
    let modes =
        run(&mut session, "select distinct mode, reason is not null from gannet_files order by 1 limit 1");
    assert!(
        ["direct", "uncached", "buffered"].contains(&modes[0][0].as_str()) && modes[0][1] == "t",
        "{modes:?}"
    );
    let unknown = "select count(*) from gannet_files where (mode is null) <> (reason is null) or path like '%.gnt' and mode is null";
    assert_eq!(number(&mut session, unknown), 0);
}

#[test]
fn a_compaction_is_a_job_with_a_row_of_what_it_did() {
    let fixture = Fixture::new();
    let database = fixture.database("shop");
    let mut session = database.session("owner").unwrap();
    run(
        &mut session,
        "create table t (id int primary key, note text);
         insert into t select n, repeat('x', 300) from generate_series(1, 30000) as n;
         delete from t where id % 20 <> 7",
    );
    let mut rows = Rows::default();
    session.run("compact database verbose", &mut rows).unwrap();
    assert_eq!(rows.tag.as_ref().unwrap().to_string(), "COMPACT DATABASE 1");
    let names: Vec<&str> = rows.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(
        names,
        ["file_bytes_before", "file_bytes", "free_bytes", "pages_merged", "pages_moved", "held"]
    );
    let detail = rows.notices.last().unwrap().error.fields().detail.clone().unwrap();
    assert!(detail.contains("\"compaction\":{") && detail.contains("\"kind\":\"compact\""), "{detail}");
    assert_eq!(number(&mut session, "select count(*) from t where note = repeat('x', 300)"), 1500);
    let ended = "select job || ' ' || state || ' ' || reason from gannet_jobs where job = 'compact'";
    assert_eq!(one(&mut session, ended), "compact done COMPACT DATABASE by owner");
    for (sql, state) in [("begin; compact database", "25001"), ("compact database t", "42601")] {
        let error = session.run(sql, &mut Rows::default()).unwrap_err();
        assert_eq!(error.state().to_string(), state, "{sql}: {error}");
    }
    run(&mut session, "rollback; create role guest login");
    let error = database.session("guest").unwrap().run("compact database", &mut Rows::default()).unwrap_err();
    assert_eq!(error.to_string(), "must be superuser to do COMPACT DATABASE");
}

#[test]
fn backups_are_verified_by_a_job_with_a_row_for_what_is_wrong() {
    let fixture = Fixture::new();
    let database = fixture.database("shop");
    let mut session = database.session("owner").unwrap();
    run(&mut session, "create table t (id int primary key); insert into t select generate_series(1, 5000)");
    let folder = fixture.folder.path().join("backups");
    std::fs::create_dir(&folder).unwrap();
    let place = folder.display().to_string();
    let name = run(&mut session, &format!("backup database to '{place}'"))[0][0].clone();
    let mut rows = Rows::default();
    session.run(&format!("verify backup '{place}' verbose"), &mut rows).unwrap();
    assert_eq!(rows.tag.as_ref().unwrap().to_string(), "VERIFY BACKUP 0");
    let names: Vec<&str> = rows.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["object", "finding", "at_stake"]);
    let detail = rows.notices.last().unwrap().error.fields().detail.clone().unwrap();
    assert!(detail.contains("\"log_records\":") && detail.contains("\"kind\":\"verify\""), "{detail}");
    // By its name, and from a store.
    assert_eq!(run(&mut session, &format!("verify backup '{place}/{name}'")).len(), 0);
    assert_eq!(run(&mut session, &format!("verify backup 'file://{place}'")).len(), 0);
    let data = folder.join(format!("{name}.gntbackup"));
    let whole = std::fs::read(&data).unwrap();
    std::fs::write(&data, &whole[..whole.len() - 100]).unwrap();
    let found = run(&mut session, &format!("verify backup '{place}'"));
    assert!(found.len() == 1 && found[0][0] == place && found[0][1].contains("it was cut"), "{found:?}");
    let found = run(&mut session, "verify archive '/nowhere'");
    assert!(found.len() == 1 && found[0][1].contains("there is no folder"), "{found:?}");
    let ended = "select job || ' ' || state || ' ' || about || ' ' || reason from gannet_jobs where job = 'verify' order by id limit 1";
    assert_eq!(one(&mut session, ended), format!("verify done of {place} VERIFY BACKUP by owner"));
    for (sql, state) in [
        ("begin; verify backup '/b'", "25001"),
        ("verify backup 'b'", "42602"),
        ("verify archive 'a'", "42602"),
        ("verify archive 'file:///a'", "22023"),
        ("verify backup 'ftp://host/b'", "22023"),
    ] {
        let error = session.run(sql, &mut Rows::default()).unwrap_err();
        assert_eq!(error.state().to_string(), state, "{sql}: {error}");
        run(&mut session, "rollback");
    }
    run(&mut session, "create role guest login");
    for statement in ["verify backup '/b'", "verify archive '/a'"] {
        let error = database.session("guest").unwrap().run(statement, &mut Rows::default()).unwrap_err();
        assert!(error.to_string().starts_with("must be superuser to do VERIFY"), "{error}");
    }
    // Why a job failed may have some of what it read.
    let script = fixture.folder.path().join("bad.sql");
    std::fs::write(&script, "create table x (a int); create table x (a int);").unwrap();
    let load = format!("load database from '{}'", script.display());
    let _ = session.run(&load, &mut Rows::default()).unwrap_err();
    let why = "select detail from gannet_jobs where job = 'load' and state = 'failed'";
    let told = one(&mut session, why);
    assert!(told.contains("already exists"), "{told}");
    assert_eq!(one(&mut database.session("guest").unwrap(), why), "<insufficient privilege>");
}

#[test]
fn a_restore_is_a_job_beside_the_users() {
    let fixture = Fixture::new();
    let database = fixture.database("shop");
    let mut session = database.session("owner").unwrap();
    run(&mut session, "create table t (id int primary key); insert into t select generate_series(1, 5000)");
    let at = |name: &str| fixture.folder.path().join(name).display().to_string();
    std::fs::create_dir(at("backups")).unwrap();
    run(&mut session, &format!("backup database to '{}'", at("backups")));
    let restore = format!("restore database from '{}' to '{}'", at("backups"), at("copy.gnt"));
    let mut rows = Rows::default();
    session.run(&format!("{restore} verbose"), &mut rows).unwrap();
    assert_eq!(rows.tag.as_ref().unwrap().to_string(), "RESTORE DATABASE 1");
    let detail = rows.notices.last().unwrap().error.fields().detail.clone().unwrap();
    assert!(
        detail.contains("\"kind\":\"restore\"") && detail.contains("\"reverted_transactions\":"),
        "{detail}"
    );
    let path = fixture.folder.path().join("copy.gnt");
    let copy = Database::open(&fixture.engine, &path, &OpenOptions::default(), "owner").unwrap();
    assert_eq!(one(&mut copy.session("owner").unwrap(), "select count(*) from t"), "5000");
    let ended = "select state || ' ' || about from gannet_jobs where job = 'restore'";
    assert_eq!(one(&mut session, ended), format!("done from {} to {}", at("backups"), at("copy.gnt")));
    for (sql, state) in [
        (restore.as_str(), "58030"),
        ("begin; restore database from '/b' to '/n'", "25001"),
        ("restore database from 'b' to '/n'", "42602"),
        ("restore database from '/b' to 'n'", "42602"),
        ("restore database from '/b' to '/n' archive 'a'", "42602"),
        ("restore database from '/b' to '/n' archive 'file:///a'", "22023"),
        ("restore database from '/b' to 'file:///n'", "22023"),
        ("restore database from 'ftp://host/b' to '/n'", "22023"),
        ("restore database from '/b' to '/n' archive '/a' until time 'soon'", "22007"),
        ("restore database from '/b' to '/n' archive '/a' until time 'infinity'", "22023"),
        ("restore database from '/b' to '/n' archive '/a' until time '1969-01-01'", "22023"),
    ] {
        let error = session.run(sql, &mut Rows::default()).unwrap_err();
        assert_eq!(error.state().to_string(), state, "{sql}: {error}");
        run(&mut session, "rollback");
    }
    run(&mut session, "create role guest login");
    let error = database.session("guest").unwrap().run(&restore, &mut Rows::default()).unwrap_err();
    assert_eq!(error.to_string(), "must be superuser to do RESTORE DATABASE");
}

#[test]
fn jobs_and_snapshots_are_told() {
    let fixture = Fixture::new();
    let database = fixture.database("shop");
    let mut session = database.session("owner").unwrap();
    run(&mut session, "create table t (id int primary key); insert into t select generate_series(1, 1000)");
    assert_eq!(
        one(&mut session, "select string_agg(job, ' ' order by job) from gannet_jobs"),
        "checkpoint restart sweep warm-up"
    );
    run(&mut session, "check database");
    let ended = "select job || ' ' || state || ' ' || (pid = pg_backend_pid()) || ' ' || (bytes_read > 0) || ' ' || reason
                 from gannet_jobs where id is not null";
    assert_eq!(one(&mut session, ended), "check done true true CHECK DATABASE by owner");
    assert_eq!(one(&mut session, "select gannet_cancel_job(max(id)) from gannet_jobs"), "f");
    let restart = "select phase || ' ' || crashed || ' ' || pages || ' ' || pages_left || ' ' || transactions_left from gannet_restart";
    assert_eq!(one(&mut session, restart), "done false 0 0 0");
    run(&mut session, "checkpoint");
    assert!(number(&mut session, "select done from gannet_jobs where job = 'checkpoint'") > 0);
    let mut reader = database.session("owner").unwrap();
    run(&mut reader, "begin isolation level repeatable read; select count(*) from t");
    let pid = reader.state().pid;
    let held =
        format!("select count(*) from gannet_snapshots where pid = {pid} and taken <= clock_timestamp()");
    assert_eq!(number(&mut session, &held), 1);
    let xmin = format!("select backend_xmin is not null from pg_stat_activity where pid = {pid}");
    assert_eq!(one(&mut session, &xmin), "t");
    run(&mut reader, "commit");
    assert_eq!(number(&mut session, &held), 0);
}

#[test]
fn warming_up_after_an_opening_is_told() {
    let fixture = Fixture::new();
    let database = fixture.database("shop");
    let mut session = database.session("owner").unwrap();
    let row = "select done || ' ' || remaining || ' ' || state || ' ' || reason from gannet_jobs where job = 'warm-up'";
    let reason = "pages that were in memory at the last close";
    assert_eq!(one(&mut session, row), format!("0 0 idle {reason}"));
    run(&mut session, "create table t (id int primary key); insert into t select generate_series(1, 50000)");
    drop(session);
    database.close().unwrap();
    let path = fixture.folder.path().join("shop.gnt");
    let database = Database::open(&fixture.engine, &path, &OpenOptions::default(), "owner").unwrap();
    let mut session = database.session("owner").unwrap();
    let ended = "select count(*) from gannet_jobs where job = 'warm-up' and state = 'idle' and done > 20 and remaining = 0";
    while number(&mut session, ended) == 0 {
        thread::yield_now();
    }
    assert!(one(&mut session, row).ends_with(reason));
}

#[test]
fn forecasts_and_alarms_are_told() {
    let fixture = Fixture::new();
    let database = fixture.database("shop");
    let mut session = database.session("owner").unwrap();
    let forecasts = "select string_agg(name, ' ' order by name) from gannet_forecasts where detail <> ''";
    assert_eq!(one(&mut session, forecasts), "horizon log space");
    assert!(
        number(&mut session, "select bytes::bigint from gannet_forecasts where name = 'space'") > 1 << 20
    );
    // Nobody has looked for a minute: nothing is foretold.
    let foretold = "select count(bytes_per_second) + count(seconds_left) from gannet_forecasts";
    assert_eq!(number(&mut session, foretold), 0);
    let alarms = "select count(*) from gannet_alarms where name in ('log', 'horizon', 'restart', 'failure')";
    assert_eq!(number(&mut session, alarms), 0);
}

#[test]
fn the_servers_machine_is_seen() {
    let fixture = Fixture::new();
    let mut session = fixture.database("shop").session("owner").unwrap();
    let rows =
        "select count(*) from gannet_machine where memory_bytes >= available_bytes and available_bytes > 0";
    assert_eq!(number(&mut session, rows), 1);
    // Where there is a limit it is one, and shares are shares.
    let odd = "select count(*) from gannet_machine where cgroup_limit_bytes <= 0 or swap_free_bytes > swap_bytes \
               or memory_full_percent > memory_some_percent or io_some_percent not between 0 and 100";
    assert_eq!(number(&mut session, odd), 0);
}

#[test]
fn who_waits_for_a_lock_is_seen_and_can_be_cancelled() {
    let fixture = Fixture::new();
    let database = fixture.database("shop");
    let mut holder = database.session("owner").unwrap();
    run(&mut holder, "create table t (id int primary key, v int); insert into t values (1, 1)");
    run(&mut holder, "begin; update t set v = 2");
    let mut waiter = database.session("owner").unwrap();
    let (waiting, held) = (waiter.state().pid, holder.state().pid);
    run(&mut waiter, "set application_name = 'patient'");
    let thread = thread::spawn("waiter", move || {
        let error = waiter.run("update t set v = 3", &mut Rows::default()).unwrap_err();
        error.state().to_string()
    });
    let mut looker = database.session("owner").unwrap();
    let activity = format!(
        "select state, wait_event_type, wait_event, application_name, query, xact_start is not null
         from pg_stat_activity where pid = {waiting} and wait_event_type = 'Lock'"
    );
    let seen = loop {
        match run(&mut looker, &activity).pop() {
            Some(row) => break row,
            None => thread::yield_now(),
        }
    };
    assert_eq!(seen, ["active", "Lock", "transactionid", "patient", "update t set v = 3", "t"]);
    let locks = format!(
        "select w.pid, h.pid, w.mode, w.waitstart is not null from pg_locks w
         join pg_locks h on h.transactionid = w.transactionid and h.granted
         where not w.granted and w.pid = {waiting}"
    );
    let row = [waiting.to_string(), held.to_string(), "ShareLock".to_owned(), "t".to_owned()];
    assert_eq!(run(&mut looker, &locks), [row]);
    let tables =
        format!("select relation::regclass from pg_locks where locktype = 'relation' and pid = {held}");
    assert_eq!(one(&mut looker, &tables), "t");
    assert_eq!(one(&mut looker, &format!("select pg_cancel_backend({waiting})")), "t");
    assert_eq!(thread.join().unwrap(), "57014");
    assert_eq!(one(&mut looker, "select pg_cancel_backend(2147483647)"), "f");
    run(&mut holder, "rollback");
}

#[test]
fn a_terminated_session_says_so() {
    let fixture = Fixture::new();
    let database = fixture.database("shop");
    let mut session = database.session("owner").unwrap();
    let mut other = database.session("owner").unwrap();
    let pid = other.state().pid;
    assert_eq!(one(&mut session, &format!("select pg_terminate_backend({pid})")), "t");
    assert_eq!(other.run("select 1", &mut Rows::default()).unwrap_err().state().0, "57P01");
}

#[test]
fn databases_that_are_open_together_know_each_other() {
    let fixture = Fixture::new();
    let all = [fixture.database("shop"), fixture.database("archive")];
    all.iter().for_each(|database| database.publish_neighbours(&all));
    let mut shop = all[0].session("owner").unwrap();
    let mut archive = all[1].session("owner").unwrap();
    assert_eq!(
        run(&mut shop, "select datname from pg_database order by oid"),
        run(&mut archive, "values ('archive'), ('shop')")
    );
    let everybody = "select datname, pid from pg_stat_activity a join pg_database d using (datname)
        where a.datid = d.oid order by 1";
    let pids = [("archive", archive.state().pid), ("shop", shop.state().pid)];
    assert_eq!(run(&mut shop, everybody), pids.map(|(name, pid)| [name.to_owned(), pid.to_string()]));
    assert!(number(&mut shop, "select pg_database_size('archive')") > 0);
    assert_eq!(
        number(&mut shop, "select pg_database_size(oid) from pg_database where datname = 'archive'"),
        number(&mut archive, "select pg_database_size(current_database())")
    );
    assert_eq!(one(&mut archive, &format!("select pg_terminate_backend({})", shop.state().pid)), "t");
    assert_eq!(shop.run("select 1", &mut Rows::default()).unwrap_err().state().0, "57P01");
    drop((shop, archive));
    for database in all {
        database.close().unwrap();
    }
}

#[test]
fn a_role_ends_and_sees_only_its_own_sessions() {
    let fixture = Fixture::new();
    let all = [fixture.database("shop"), fixture.database("archive")];
    all.iter().for_each(|database| database.publish_neighbours(&all));
    let mut owner = all[0].session("owner").unwrap();
    run(&mut owner, "create role me login; create role you login; create role boss login superuser");
    run(&mut all[1].session("owner").unwrap(), "create role me login");
    let mut me = all[0].session("me").unwrap();
    assert_eq!(run(&mut me, "show is_superuser").concat(), ["off"]);
    assert_eq!(run(&mut all[0].session("boss").unwrap(), "show is_superuser").concat(), ["on"]);
    let mut twin = all[0].session("me").unwrap();
    let mut you = all[0].session("you").unwrap();
    // A role of the same name elsewhere is another role.
    let mut namesake = all[1].session("me").unwrap();
    for session in [&mut twin, &mut you, &mut namesake] {
        run(session, "select 'a secret'");
    }
    for (session, cancel, terminate) in [
        (
            &owner,
            "must be a superuser to cancel superuser query",
            "must be a superuser to terminate superuser process",
        ),
        (
            &you,
            "must be a member of the role whose query is being canceled or member of pg_signal_backend",
            "must be a member of the role whose process is being terminated or member of pg_signal_backend",
        ),
        (
            &namesake,
            "must be a member of the role whose query is being canceled or member of pg_signal_backend",
            "must be a member of the role whose process is being terminated or member of pg_signal_backend",
        ),
    ] {
        let pid = session.state().pid;
        for (function, message) in [("pg_cancel_backend", cancel), ("pg_terminate_backend", terminate)] {
            let error = me.run(&format!("select {function}({pid})"), &mut Rows::default()).unwrap_err();
            assert_eq!((error.state().0, error.to_string().as_str()), ("42501", message));
        }
        let query = format!("select query from pg_stat_activity where pid = {pid}");
        assert_eq!(one(&mut me, &query), "<insufficient privilege>");
    }
    let pid = twin.state().pid;
    let query = format!("select query from pg_stat_activity where pid = {pid}");
    assert_eq!(one(&mut me, &query), "select 'a secret'");
    assert_eq!(one(&mut me, &format!("select pg_terminate_backend({pid})")), "t");
    assert_eq!(twin.run("select 1", &mut Rows::default()).unwrap_err().state().0, "57P01");
    for session in [&mut owner, &mut you, &mut namesake] {
        run(session, "select 1");
    }
    let pid = you.state().pid;
    assert_eq!(one(&mut owner, &format!("select pg_terminate_backend({pid})")), "t");
}

#[test]
fn prepared_statements_are_listed() {
    let fixture = Fixture::new();
    let mut session = fixture.database("shop").session("owner").unwrap();
    run(&mut session, "prepare add (int, text) as select $1 + length($2)");
    session.prepare("wire", "select 1", &[]).unwrap();
    let all = "select name, statement, parameter_types, from_sql, prepare_time <= now() from pg_prepared_statements";
    let rows = run(&mut session, &format!("{all} order by name"));
    assert_eq!(rows[0][0], "add");
    assert_eq!(rows[0][2..], ["{integer,text}", "t", "t"]);
    assert_eq!(rows[1], ["wire", "select 1", "{}", "f", "t"]);
    run(&mut session, "deallocate add");
    session.close_prepared("wire");
    assert!(run(&mut session, all).is_empty());
}

#[test]
fn sizes_of_relations_are_those_of_now() {
    let fixture = Fixture::new();
    let mut session = fixture.database("shop").session("owner").unwrap();
    run(&mut session, "create table t (id int primary key, v text, long text); create index t_v on t (v)");
    assert_eq!(number(&mut session, "select pg_relation_size('t')"), 8192);
    run(&mut session, "insert into t (id, v) select n, repeat('v', 20) || n from generate_series(1, 5000) n");
    let table = number(&mut session, "select pg_table_size('t')");
    let index = number(&mut session, "select pg_relation_size('t_v')");
    assert!(table > 5000 * 25 && table < 5000 * 100, "{table}");
    assert!(index > 5000 * 25 && index < 5000 * 100, "{index}");
    assert_eq!(number(&mut session, "select pg_indexes_size('t')"), index);
    assert_eq!(number(&mut session, "select pg_total_relation_size('t')"), table + index);
    assert_eq!(number(&mut session, "select pg_relation_size('t_pkey')"), 0);
    assert_eq!(number(&mut session, "select pg_relation_size('pg_class')"), 0);
    assert_eq!(one(&mut session, "select pg_relation_size(1) is null"), "t");
    run(&mut session, "update t set long = repeat('w', 100000) where id = 1");
    assert!(number(&mut session, "select pg_table_size('t')") >= table + 100_000, "long values count");
    let live = "select n_live_tup, last_analyze is null from pg_stat_user_tables where relname = 't'";
    let row = run(&mut session, live).remove(0);
    let rows: f64 = row[0].parse().unwrap();
    assert!((3500.0..6500.0).contains(&rows) && row[1] == "t", "{row:?}");
}

#[test]
fn a_view_that_is_not_there_is_an_error() {
    let fixture = Fixture::new();
    let mut session = fixture.database("shop").session("owner").unwrap();
    let error = session.run("select * from pg_stat_bgwriter", &mut Rows::default()).unwrap_err();
    assert_eq!(error.state().0, "42P01");
}

#[test]
fn explain_counts_what_is_read_and_what_is_spilled() {
    let fixture = Fixture::new();
    let database = fixture.database("shop");
    let mut session = database.session("owner").unwrap();
    run(
        &mut session,
        "create table t (id int primary key, v text);
        insert into t select n, repeat('v', 900) || n from generate_series(1, 20000) n",
    );
    let path = database.store().path().to_owned();
    drop(session);
    database.close().unwrap();
    // Otherwise its pages are in memory before they are asked for.
    std::fs::remove_file(path.with_extension("gnt-wal").join("hot")).unwrap();
    let database = Database::open(&fixture.engine, &path, &OpenOptions::default(), "owner").unwrap();
    let mut session = database.session("owner").unwrap();
    let explain = |session: &mut Session, sql: &str| {
        let text = one(session, &format!("explain (analyze, buffers, format json) {sql}"));
        serde_json::from_str::<serde_json::Value>(&text).unwrap()[0]["Plan"].clone()
    };
    // Warm, the pages are hits; cold, they were read.
    let count = |plan: &serde_json::Value, what: &str| plan[what].as_i64().unwrap();
    let few = "select * from t where id between 100 and 300";
    let cold = explain(&mut session, few);
    let warm = explain(&mut session, few);
    assert!(count(&cold, "Serial Reads") + count(&cold, "Batched Reads") >= 20, "{cold}");
    assert_eq!(count(&warm, "Serial Reads") + count(&warm, "Batched Reads"), 0, "{warm}");
    assert!(count(&warm, "Hits") >= 20, "{warm}");
    // 18 MB do not fit into an operator's share of 32 MB.
    let sort = explain(&mut session, "select * from t order by v");
    assert!(count(&sort, "Disk Usage") > 10_000 && count(&sort, "Memory Usage") > 100, "{sort}");
    let small = explain(&mut session, "select * from t where id < 10 order by v");
    assert!(small.get("Disk Usage").is_none() && count(&small, "Memory Usage") > 0, "{small}");
    let hash = explain(&mut session, "select v, count(*) from t group by v");
    let text = hash.to_string();
    assert!(text.contains("Memory Usage"), "{hash}");
}

#[test]
fn the_archive_is_told_and_points_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::new(&EngineOptions::default()).unwrap();
    let open = OpenOptions { archive: Some(folder.path().join("log")), ..OpenOptions::default() };
    let path = folder.path().join("shop.gnt");
    let database = Database::create(&engine, &path, &CreateOptions::default(), &open, "owner").unwrap();
    let mut session = database.session("owner").unwrap();
    run(&mut session, "create table t (id int primary key); create role guest login");
    let point = number(&mut session, "select pg_create_restore_point('here')");
    assert!(point > 0);
    let archived = "select state || ' ' || (archived_until <= now()) || ' ' || (error is null) || ' ' || (gap_from is null)
                    from gannet_archive where behind_bytes = 0";
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while number(&mut session, "select count(*) from gannet_archive where behind_bytes = 0") == 0 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(one(&mut session, archived), "archiving true true true");
    assert!(number(&mut session, "select archived_lsn from gannet_archive") >= point);
    let mut guest = database.session("guest").unwrap();
    let error = guest.run("select pg_create_restore_point('x')", &mut Rows::default()).unwrap_err();
    assert_eq!(error.state().to_string(), "42501");
    drop((session, guest));
    database.close().unwrap();
    // Without an archive there is no row.
    let database = Database::open(&engine, &path, &OpenOptions::default(), "owner").unwrap();
    let mut session = database.session("owner").unwrap();
    assert_eq!(number(&mut session, "select count(*) from gannet_archive"), 0);
}

#[test]
fn where_files_lie_is_for_superusers() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    let engine = Engine::new(&EngineOptions::default()).unwrap();
    let archive = place.join("log");
    let open = OpenOptions { archive: Some(archive.clone()), ..OpenOptions::default() };
    let path = place.join("shop.gnt");
    let database = Database::create(&engine, &path, &CreateOptions::default(), &open, "owner").unwrap();
    let setting = |name: &str, effective: String, is_place| SettingReport {
        name: name.to_owned(),
        requested: String::new(),
        effective,
        source: "flag".to_owned(),
        reason: String::new(),
        is_place,
    };
    let archive_text = archive.display().to_string();
    database.publish_settings(vec![
        setting("archive", archive_text, true),
        setting("port", "5433".to_owned(), false),
    ]);
    let mut owner = database.session("owner").unwrap();
    let place = place.display().to_string();
    run(&mut owner, "create table t (id int primary key); create role guest login");
    std::fs::create_dir(folder.path().join("backup")).unwrap();
    run(&mut owner, &format!("backup database to '{place}/backup'"));
    // The folder of the archive cannot be written to any more: an alarm and an error tell of it.
    let away = folder.path().join("away");
    std::fs::rename(&archive, &away).unwrap();
    std::fs::write(&archive, "in its place").unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while number(&mut owner, "select count(*) from gannet_archive where error is not null") == 0 {
        run(&mut owner, "insert into t select coalesce(max(id), 0) + 1 from t");
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut guest = database.session("guest").unwrap();
    let mut told = Vec::new();
    for view in run(&mut owner, "select relname from pg_class where relname like 'gannet%'").concat() {
        let rows = format!("select * from {view}");
        if run(&mut owner, &rows).concat().iter().any(|value| value.contains(&place)) {
            told.push(view.clone());
        }
        let seen = run(&mut guest, &rows);
        assert!(!seen.concat().iter().any(|value| value.contains(&place)), "{view}: {seen:?}");
    }
    told.sort();
    assert_eq!(told, ["gannet_alarms", "gannet_archive", "gannet_files", "gannet_jobs", "gannet_settings"]);
    let names = "select name from gannet_settings where name in ('archive', 'port') order by name";
    assert_eq!(run(&mut owner, names).concat(), ["archive", "port"]);
    assert_eq!(run(&mut guest, names).concat(), ["port"]);
    let files = "select count(*) > 1 and count(path) = 0 and count(bytes) = count(*) from gannet_files";
    assert_eq!(one(&mut guest, files), "t");
    let hidden = "select destination is null and error = '<insufficient privilege>' and state <> '' from gannet_archive";
    assert_eq!(one(&mut guest, hidden), "t");
}
