//! Sorts by several threads: they come to what one thread comes to, within memory and beyond.

mod common;

use common::{are_done_by_several, is_done_by_several, new_database, rows};
use gannet_sql::session::Rows;
use gannet_sql::{Session, Value};

const ROWS: i64 = 4_000;

/// A table of some MiB; `long`: what is added to some rows.
fn filled(long: &str) -> Session {
    let mut session = new_database();
    rows(
        &mut session,
        &format!(
            "create table t (k int primary key, s smallint, n numeric, f float8, v text, d timestamptz, w boolean,
                 p char(300), b bytea, a date);
             insert into t select g, g * 7919 % 300, g / 3.0 - g * 31 % 500, case when g % 11 = 0 then 'NaN' else (g * 7919 % 1000)::float8 / 8 end,
                 case when g % 7 = 0 then null else 'row ' || g * 7919 % 1000 || repeat('x', 600) {long} end,
                 to_timestamp(g * 7919 % 4000 * 3600), g % 3 = 0, 'p' || g % 50,
                 decode(lpad(to_hex(g * 7919 % 5000), 8, '0'), 'hex'), date '2000-01-01' + g % 20
             from generate_series(1, {ROWS}) g; analyze t"
        ),
    );
    session
}

/// Each with a key for ties, or without: rows with equal keys come in the order of the table.
const QUERIES: &[&str] = &[
    "select k, v from t order by v",
    "select v, k, s from t order by s desc, v nulls first",
    "select k, n, f from t order by f, n desc",
    "select * from t order by p, w desc, d",
    "select a, b, k from t order by b desc",
    "select k, a from t order by a desc, k",
    "select k, d, w from t where k > 100 and k <= 3900 order by w, d",
    "select k, v || s from t order by s",
    "select s, count(*), sum(k) from (select s, k from t order by s offset 0) r group by s order by s",
    "select a.k, b.k from (select k, s from t order by s, k offset 10) a join t b on b.k = a.k + 1 order by a.s, a.k",
];

/// Those that one thread takes the rows for.
const ALONE: &[&str] = &[
    "select k, v from t where w order by v, k",
    "select k, v from t order by lower(v), k",
    "select k, v from t order by v, k limit 10",
    "select k from t where k between 100 and 200 order by s",
];

fn agree(session: &mut Session, queries: &[&str], memories: &[&str]) {
    rows(session, "set enable_indexscan = off");
    for query in queries {
        rows(session, "set max_parallel_workers_per_gather = 0; set work_mem = 0");
        let alone = rows(session, query);
        assert!(!is_done_by_several(session, query), "{query}");
        rows(session, "reset max_parallel_workers_per_gather");
        for work_mem in memories {
            rows(session, &format!("set work_mem = '{work_mem}'"));
            assert!(rows(session, query) == alone, "{query}, {work_mem}");
        }
    }
    rows(session, "set work_mem = 0");
}

#[test]
fn several_threads_sort_as_one_does() {
    let mut session = filled("");
    for work_mem in ["0", "200kB"] {
        rows(&mut session, &format!("set work_mem = '{work_mem}'"));
        are_done_by_several(&mut session, &QUERIES[..4]);
    }
    for query in ALONE {
        assert!(!is_done_by_several(&mut session, query), "{query}");
    }
    agree(&mut session, &[QUERIES, ALONE].concat(), &["0", "1200kB", "64kB"]);
    // As much memory as the rows need, about, and what it takes to put the threads' parts together.
    agree(&mut session, &QUERIES[..1], &["2900kB", "3MB", "3100kB", "3200kB", "3400kB", "4MB"]);
    // Own changes are seen, others' are not.
    rows(
        &mut session,
        "begin; delete from t where k % 5 = 0; update t set v = null where k > 2000; savepoint s;
         delete from t where k % 3 = 0; rollback to s",
    );
    agree(&mut session, &QUERIES[..2], &["0", "200kB"]);
    rows(&mut session, "rollback");
    let plan = rows(&mut session, "explain (analyze, timing off) select k, v from t order by v");
    let (plan, all) = (format!("{plan:?}"), format!("rows={ROWS} loops=1"));
    assert_eq!(plan.matches(&all).count(), 2, "{plan}");
}

#[test]
fn rows_that_are_long_or_become_so_are_left_to_the_statement_itself() {
    // Longer than a thread takes; too long for anybody without leave.
    for long in ["5000", "200000"] {
        let mut session =
            filled(&format!("|| case when g % 1499 = 11 then repeat('long', {long} / 4) else '' end"));
        let query = "select k, v, s from t order by s, k";
        agree(
            &mut session,
            &[query, "select v, k from t order by v, k", "select k, v from t order by s"],
            &["0", "300kB"],
        );
        are_done_by_several(&mut session, &[query]);
    }
    let mut session = filled("");
    rows(&mut session, "alter table t add column c char(70000); update t set c = 'c' || k where k % 200 = 7");
    let query = "select k, c from t order by s, k";
    agree(&mut session, &[query, "select c, k from t order by c nulls first, k"], &["0", "300kB"]);
    are_done_by_several(&mut session, &[query]);
}

#[test]
fn a_sort_that_is_ended_or_left_gives_everything_back() {
    let mut session = filled("");
    for work_mem in ["0", "200kB"] {
        rows(&mut session, &format!("set work_mem = '{work_mem}'; set statement_timeout = '1ms'"));
        let failed = (0..50)
            .find_map(|_| session.run("select k, v, n from t order by v, n", &mut Rows::default()).err());
        let error = failed.expect("it takes longer than that");
        assert_eq!(error.to_string(), "canceling statement due to statement timeout");
        rows(&mut session, "set statement_timeout = 0");
        let left = session.run("select 1 / (s - 150), v from t order by s desc, v", &mut Rows::default());
        assert_eq!(left.unwrap_err().to_string(), "division by zero");
        let held = rows(&mut session, "select used_bytes from gannet_memory where purpose = 'work'");
        assert!(held[0][0].as_int().unwrap() < 1 << 20, "{held:?}");
        let found = rows(&mut session, "select count(*) from (select k from t order by v offset 0) r");
        assert_eq!(found, [[Value::Int(ROWS)]]);
    }
}
