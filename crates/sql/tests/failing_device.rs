//! A device that fails under a database: what its sessions are told, and what they can still do.

use gannet_io::sim::{Chance, Faults, SimDisk};
use gannet_sql::session::Rows;
use gannet_sql::{Database, Session, Value};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_log_that_cannot_be_written_was_told_as_the_end_of_the_server_and_ended_sessions_that_could_read() {
    let disk = SimDisk::new(1);
    let options = EngineOptions { memory: 32 << 20, ..EngineOptions::default() };
    let engine = Engine::with_disk(Arc::new(disk.clone()), &options).unwrap();
    let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
    let path = Path::new("/shop.gnt");
    let database = Database::create(&engine, path, &create, &OpenOptions::default(), "owner").unwrap();
    let mut session = database.session("owner").unwrap();
    session.run("create table t (a int); insert into t values (1)", &mut Rows::default()).unwrap();
    disk.set_faults(Faults {
        write_error: Chance::OneIn(1),
        only: Some(".log".to_owned()),
        ..Faults::default()
    });
    for _ in 0..2 {
        let error = session.run("insert into t values (2)", &mut Rows::default()).unwrap_err();
        assert_eq!(error.state().0, "58030", "{error}");
        assert!(error.to_string().contains("/shop.gnt-wal/"), "{error}");
        // The last one of a text was told as done before what it had done was committed.
        let mut told = Rows::default();
        session.run("select 1; insert into t values (2)", &mut told).unwrap_err();
        assert_eq!(told.tag.unwrap().command, "SELECT");
        let mut rows = Rows::default();
        session.run("select a from t where a = 1", &mut rows).unwrap();
        assert_eq!(rows.rows.len(), 1);
    }
    drop(session);
    disk.set_faults(Faults::default());
    assert!(database.close().unwrap_err().to_string().contains("/shop.gnt-wal/"));
}

/// What a session has heard of sequences was in nobody's commit, and could be given again.
#[test]
fn a_sequence_goes_on_behind_what_was_told_of_it_after_a_crash() {
    let disk = SimDisk::new(2);
    let engine = |disk: SimDisk| {
        let options = EngineOptions { memory: 32 << 20, ..EngineOptions::default() };
        Engine::with_disk(Arc::new(disk), &options).unwrap()
    };
    let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
    let path = Path::new("/shop.gnt");
    // What nobody waits for stays in memory.
    let options = OpenOptions { max_delay: Duration::from_secs(3600), ..OpenOptions::default() };
    let database = Database::create(&engine(disk.clone()), path, &create, &options, "owner").unwrap();
    let mut session = database.session("owner").unwrap();
    let one = |session: &mut Session, sql: &str| {
        let mut rows = Rows::default();
        session.run(sql, &mut rows).unwrap();
        rows.rows.last().map(|row| row[0].clone())
    };
    one(&mut session, "create sequence s; create sequence t; select nextval('t')");
    one(&mut session, "select setval('s', 1000)");
    let after_a_crash = |sql: &str| {
        let again = Database::open(&engine(disk.peek_crash(None, 1)), path, &options, "owner").unwrap();
        let mut rows = Rows::default();
        again.session("owner").unwrap().run(sql, &mut rows).unwrap();
        rows.rows[0][0].clone()
    };
    assert_eq!(after_a_crash("select nextval('s')"), Value::Int(1001));
    assert_eq!(one(&mut session, "select nextval('s')"), Some(Value::Int(1001)));
    assert!(matches!(after_a_crash("select nextval('s') > 1001"), Value::Bool(true)));
    // Who does not wait is not told so.
    one(&mut session, "set synchronous_commit = off; select setval('s', 5000)");
    assert!(matches!(after_a_crash("select nextval('s') < 5000"), Value::Bool(true)));
}
