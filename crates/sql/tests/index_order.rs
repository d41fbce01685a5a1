//! Many rows in the order of an index that is not the table's: gathered in the table's order, given out in the index's.

use gannet_io::sim::SimDisk;
use gannet_sql::session::Rows;
use gannet_sql::{Database, Session, Value};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::path::Path;
use std::sync::Arc;

const ROWS: i64 = 20_000;

fn rows(session: &mut Session, sql: &str) -> Vec<Vec<Value>> {
    let mut rows = Rows::default();
    session.run(sql, &mut rows).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.rows
}

fn filled() -> Session {
    let engine = Engine::with_disk(
        Arc::new(SimDisk::new(7)),
        &EngineOptions { memory: 64 << 20, ..EngineOptions::default() },
    );
    let (create, open) = (CreateOptions::default(), OpenOptions::default());
    let database = Database::create(&engine.unwrap(), Path::new("/order.gnt"), &create, &open, "me").unwrap();
    let mut session = database.session("me").unwrap();
    // Some rows are longer than a page, and a few longer than what is kept of one.
    let sql = format!(
        "create table t (k int primary key, tag int not null, v text not null);
         insert into t select g, g::bigint * 7919 % {ROWS} / 3, case when g % 5000 = 7 then repeat('l', 300000)
             when g % 997 = 3 then repeat('m', 20000) else 'row ' || g end from generate_series(1, {ROWS}) g;
         create index t_tag on t (tag); analyze t"
    );
    rows(&mut session, &sql);
    session
}

#[test]
fn gathered_rows_leave_in_the_order_of_their_index() {
    let mut session = filled();
    let queries = [
        "select tag, k, length(v) from t order by tag, k",
        "select tag, k, v from t where k % 3 = 0 order by tag",
        "select tag, k, length(v) from t order by tag desc",
        "select tag, k, v from t where tag between 100 and 6000 order by tag limit 9000 offset 5000",
    ];
    // Rows of one tag may come in any order.
    let sorted = |mut rows: Vec<Vec<Value>>| {
        let tags: Vec<i64> = rows.iter().map(|row| row[0].as_int().unwrap()).collect();
        rows.sort_by(|a, b| a[0].cmp(&b[0]).then_with(|| a[1].cmp(&b[1])));
        (tags, rows)
    };
    for work_mem in ["0", "64kB", "4MB"] {
        for query in queries {
            rows(
                &mut session,
                &format!(
                    "set work_mem = '{work_mem}'; set enable_indexscan = on; set enable_seqscan = off; set enable_sort = off"
                ),
            );
            let plan = rows(&mut session, &format!("explain {query}"));
            assert!(format!("{plan:?}").contains("Look Ahead: on"), "{query}: {plan:?}");
            let gathered = sorted(rows(&mut session, query));
            rows(&mut session, "set gannet_look_ahead = off");
            let one_by_one = sorted(rows(&mut session, query));
            rows(&mut session, "reset gannet_look_ahead");
            assert!(gathered == one_by_one, "{work_mem}: {query}");
            rows(&mut session, "set enable_seqscan = on; set enable_sort = on; set enable_indexscan = off");
            let by_sorting = sorted(rows(&mut session, query));
            assert_eq!(gathered.0, by_sorting.0, "{work_mem}: {query}");
        }
    }
}

#[test]
fn rows_that_several_threads_gather_leave_in_the_order_of_their_index() {
    let mut session = filled();
    // Long rows everywhere, none, and some that the first helpers come upon; rows that are missing.
    let query = "select tag, k, length(v) from t order by tag, k";
    let gather = "set enable_seqscan = off; set enable_sort = off";
    let changes = [
        "",
        "update t set v = 'short' where length(v) > 10000",
        "update t set v = repeat('n', 100000) where tag between 4500 and 5000 and k % 97 = 0",
        "update t set v = 'short' where length(v) > 10000; delete from t where k % 7 = 2",
    ];
    for change in changes {
        rows(&mut session, change);
        let expected = rows(&mut session, &format!("set enable_indexscan = off; {query}"));
        rows(&mut session, &format!("reset enable_indexscan; {gather}"));
        let by_index = "select tag, k, length(v) from t order by tag";
        for helpers in [0, 1, 2] {
            rows(&mut session, &format!("set max_parallel_workers_per_gather = {helpers}"));
            let mut found = rows(&mut session, by_index);
            assert!(found.is_sorted_by_key(|row| row[0].as_int().unwrap()), "{change}, {helpers}");
            found.sort_by(|a, b| a[0].cmp(&b[0]).then_with(|| a[1].cmp(&b[1])));
            assert!(found == expected, "{change}, {helpers} helpers");
        }
        if !change.is_empty() && std::thread::available_parallelism().is_ok_and(|count| count.get() > 1) {
            // Tests beside this one may have all helpers.
            let helped = (0..1000).any(|_| {
                let told = rows(&mut session, &format!("explain (analyze) {by_index}"));
                format!("{told:?}").contains("Workers Launched")
            });
            assert!(helped, "nobody has helped");
        }
        rows(&mut session, "reset all");
    }
}

#[test]
fn an_open_scan_does_not_see_what_its_statement_changes() {
    let mut session = filled();
    let moved = rows(
        &mut session,
        "set enable_seqscan = off; set enable_sort = off;
         update t set tag = tag + 100000 where tag < 100000; select count(*) from t where tag >= 100000",
    );
    assert_eq!(moved, [[Value::Int(ROWS)]]);
}
