//! Aggregates by several threads: they come to what one thread comes to.

mod common;

use common::{are_done_by_several, is_done_by_several, new_database, rows};
use gannet_sql::session::Rows;
use gannet_sql::{Session, Value};

const ROWS: i64 = 13_000;

/// A table of some MiB; `long`: what is added to some rows.
fn filled(long: &str) -> Session {
    let mut session = new_database();
    rows(
        &mut session,
        &format!(
            "create table t (k int primary key, s smallint, b bigint, n numeric, f float8, v text, d date, w boolean);
             insert into t select g, g % 30000, g::bigint * 1000003 % 65537 - 30000, (g * 7919 % 1000) / 8.0,
                 g / 3.0, case when g % 7 = 0 then null else 'row ' || g % 1000 || repeat('x', 150) {long} end,
                 date '2000-01-01' + g % 4000, g % 3 = 0 from generate_series(1, {ROWS}) g;
             alter table t add column c char(5000) default 'short';
             update t set c = 'c' || k where k % 10 = 0;
             alter table t add column young text default repeat('young', 1000);
             alter table t add column wide numeric default 1e6000; analyze t"
        ),
    );
    session
}

const QUERIES: &[&str] = &[
    "select count(*) from t",
    "select count(*), count(v), min(k), max(k), min(v), max(v) from t",
    "select sum(s), sum(k), sum(b), sum(n), avg(s), avg(b), avg(n) from t",
    "select variance(k), stddev_pop(n), var_samp(b), min(n), max(n), min(d), max(d), min(f), max(f) from t",
    "select bool_and(w), bool_or(w), bit_and(k), bit_or(b), min(w::text) from t",
    "select count(*), sum(b), min(v), max(n) from t where k > 500 and k <= 12500",
    "select (select count(*) from t), (select max(v) from t)",
    "select s.k, (select sum(t.b) from t where t.k > s.k) from generate_series(1, 2) s(k)",
];

/// Values that are long once they are made, of rows that are short.
const LONG_VALUES: [&str; 3] = [
    "select count(*), max(c) from t where k <= 11000",
    "select count(*), min(young) from t where k <= 11000",
    "select sum(wide) = 13000 * 1e6000, max(n) from t",
];

/// Those that one thread does.
const ALONE: &[&str] = &[
    "select sum(f), avg(f) from t",
    "select count(*) from t where w",
    "select count(distinct s) from t",
    "select max(v) from t where k between 100 and 200",
    "select length(string_agg(v, ',')) from t",
    "select count(*) filter (where w) from t",
    "select s % 7, count(*) from t group by 1 order by 1",
];

fn agree(session: &mut Session) {
    agree_on(session, &[QUERIES, ALONE].concat());
}

fn agree_on(session: &mut Session, queries: &[&str]) {
    for query in queries {
        rows(session, "set max_parallel_workers_per_gather = 0");
        let alone = rows(session, query);
        assert!(!is_done_by_several(session, query), "{query}");
        rows(session, "reset max_parallel_workers_per_gather");
        // Other tests may have the helpers there are.
        for _ in 0..2 {
            assert_eq!(rows(session, query), alone, "{query}");
        }
    }
}

#[test]
fn several_threads_come_to_what_one_does() {
    let mut session = filled("");
    are_done_by_several(&mut session, &QUERIES[..4]);
    for query in ALONE {
        assert!(!is_done_by_several(&mut session, query), "{query}");
    }
    agree(&mut session);
    agree_on(&mut session, &LONG_VALUES);
    // Own changes are seen, others' are not, and equal numbers of other scale are the last ones.
    rows(
        &mut session,
        "begin; delete from t where k % 5 = 0; update t set v = null where k > 7000; savepoint s;
         delete from t where k % 3 = 0; rollback to s",
    );
    agree(&mut session);
    rows(&mut session, "rollback");
    for (k, greatest) in [(2, "124.8750000000000000"), (ROWS, "124.87500")] {
        rows(&mut session, &format!("update t set n = 124.87500 where k = {k}"));
        assert_eq!(rows(&mut session, "select max(n)::text from t"), [[Value::text(greatest)]], "{k}");
    }
    let plan = rows(&mut session, "explain (analyze, timing off) select count(v) from t");
    assert!(format!("{plan:?}").contains(&format!("rows={ROWS} loops=1")), "{plan:?}");
}

#[test]
fn long_rows_are_left_to_the_statement_itself() {
    // Longer than a thread takes; longer than a page; too long for anybody without leave.
    for long in ["5000", "30000", "200000"] {
        let mut session =
            filled(&format!("|| case when g % 4999 = 11 then repeat('long', {long} / 4) else '' end"));
        agree(&mut session);
        are_done_by_several(&mut session, &QUERIES[..2]);
    }
}

#[test]
fn errors_and_the_end_of_a_statement_come_through() {
    let mut session = filled("");
    rows(
        &mut session,
        "alter table t add column big bigint; update t set big = 9223372036854775807 where k in (7, 12000)",
    );
    let mut out = Rows::default();
    session.run("select sum(big) from t", &mut out).unwrap();
    assert_eq!(rows(&mut session, "select sum(big)::text from t"), [[Value::text("18446744073709551614")]]);
    rows(&mut session, "set statement_timeout = '1ms'");
    let failed =
        (0..50).find_map(|_| session.run("select max(v), sum(n) from t", &mut Rows::default()).err());
    let error = failed.expect("it takes longer than that");
    assert_eq!(error.to_string(), "canceling statement due to statement timeout");
    rows(&mut session, "set statement_timeout = 0");
    assert_eq!(rows(&mut session, "select count(*) from t"), [[Value::Int(ROWS)]]);
}
