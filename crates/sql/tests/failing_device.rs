//! A device that fails under a database: what its sessions are told, and what they can still do.

use gannet_io::sim::{Chance, Faults, SimDisk};
use gannet_sql::Database;
use gannet_sql::session::Rows;
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::path::Path;
use std::sync::Arc;

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
        let mut rows = Rows::default();
        session.run("select a from t where a = 1", &mut rows).unwrap();
        assert_eq!(rows.rows.len(), 1);
    }
    drop(session);
    disk.set_faults(Faults::default());
    assert!(database.close().unwrap_err().to_string().contains("/shop.gnt-wal/"));
}
