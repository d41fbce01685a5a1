//! What tests of statements by several threads share.

use gannet_io::sim::SimDisk;
use gannet_sql::session::Rows;
use gannet_sql::{Database, Session, Value};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// Runs statements that must not fail; the rows of all of them.
pub(crate) fn rows(session: &mut Session, sql: &str) -> Vec<Vec<Value>> {
    let mut rows = Rows::default();
    session.run(sql, &mut rows).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.rows
}

/// A new database on a simulated disk, of small pages, with 64 MiB.
pub(crate) fn new_database() -> Session {
    let options = EngineOptions { memory: 64 << 20, ..EngineOptions::default() };
    let engine = Engine::with_disk(Arc::new(SimDisk::new(3)), &options).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let open = OpenOptions::default();
    let database = Database::create(&engine, Path::new("/many.gnt"), &create, &open, "me").unwrap();
    database.session("me").unwrap()
}

/// Whether threads beside the session's own work on a query.
pub(crate) fn is_done_by_several(session: &mut Session, query: &str) -> bool {
    let plan = rows(session, &format!("explain (analyze, timing off, buffers) {query}"));
    format!("{plan:?}").contains("Workers Launched")
}

/// Looks again and again, as other tests may have the helpers there are.
pub(crate) fn are_done_by_several(session: &mut Session, queries: &[&str]) {
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) == 1 {
        return;
    }
    for query in queries {
        assert!((0..2000).any(|_| is_done_by_several(session, query)), "{query}");
    }
}
