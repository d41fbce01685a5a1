//! What the planner knows of sizes without ANALYZE, when plans are made anew, and what ANALYZE finds from a sample.

use gannet_sql::session::Rows;
use gannet_sql::{Database, Session, Value};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};

struct Fixture {
    database: Database,
    _folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory: 32 << 20, temp_folder: Some(folder.path().join("temp")) };
        let engine = Engine::new(&options).unwrap();
        let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
        let path = folder.path().join("shop.gnt");
        let database = Database::create(&engine, &path, &create, &OpenOptions::default(), "owner").unwrap();
        Fixture { database, _folder: folder }
    }

    fn session(&self) -> Session {
        self.database.session("owner").unwrap()
    }
}

fn run(session: &mut Session, sql: &str) -> Vec<Vec<String>> {
    let mut rows = Rows::default();
    session.run(sql, &mut rows).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.text()
}

fn plan(session: &mut Session, sql: &str) -> String {
    run(session, &format!("explain {sql}")).concat().join("\n")
}

/// The estimated rows of a plan's first node.
fn estimate(session: &mut Session, sql: &str) -> f64 {
    let plan = plan(session, sql);
    let number = plan.split("rows=").nth(1).and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{plan}"))
}

const SCHEMA: &str = "create table small (id int primary key, big_id int, note text);
    create table big (id int primary key, grp int, filler text);
    insert into small select n, n * 100, 'x' from generate_series(1, 10) n;
    insert into big select n, n % 100, repeat('y', 60) from generate_series(1, 100000) n;";

#[test]
fn tables_that_were_never_analysed_are_planned_for_as_they_are() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    run(&mut session, SCHEMA);
    assert_eq!(estimate(&mut session, "select * from small"), 10.0);
    let big = estimate(&mut session, "select * from big");
    assert!((70_000.0..140_000.0).contains(&big), "{big}");
    let point = plan(&mut session, "select * from big where id = 7");
    assert!(point.contains("Index Scan using big_pkey") && point.contains("rows=1 "), "{point}");
    let few = plan(&mut session, "select * from small s join big b on b.id = s.big_id");
    assert!(few.contains("Index Join using big_pkey"), "{few}");
    run(
        &mut session,
        "create table other (id int primary key, grp int); insert into other select n, n from generate_series(1, 100000) n",
    );
    let many = plan(&mut session, "select count(*) from other o join big b on b.grp = o.grp");
    assert!(many.contains("Hash Join"), "{many}");
}

#[test]
fn a_plan_of_an_empty_table_is_not_kept_for_a_full_one() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    run(&mut session, "create table a (id int primary key, b int, t text); create index on a (b)");
    run(&mut session, "prepare p (int) as select t from a where b = $1");
    assert!(run(&mut session, "execute p (1)").is_empty());
    assert!(plan(&mut session, "execute p (1)").contains("Seq Scan"));
    // By another session, as most loading is done.
    run(
        &mut fixture.session(),
        "insert into a select n, n, repeat('t', 50) from generate_series(1, 20000) n",
    );
    assert_eq!(run(&mut session, "execute p (1)").len(), 1);
    let filled = plan(&mut session, "execute p (1)");
    assert!(filled.contains("Index Scan using a_b_idx"), "{filled}");
    run(&mut session, "deallocate p");
}

#[test]
fn a_plan_stays_as_long_as_tables_do() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    run(&mut session, SCHEMA);
    let prepared = session.prepare_unnamed("select note from small where id = $1", &[]).unwrap();
    run(&mut session, "update big set grp = grp + 1 where id <= 2000");
    let mut rows = Rows::default();
    session.execute_prepared(&prepared, &[Value::Int(3)], &mut rows).unwrap();
    let again = session.prepare_unnamed("select note from small where id = $1", &[]).unwrap();
    assert!(std::sync::Arc::ptr_eq(&prepared, &again));
}

#[test]
fn rows_follow_the_density_that_analyze_found() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    run(
        &mut session,
        "create table t (id int primary key, filler text);
        insert into t select n, repeat('f', 100) from generate_series(1, 20000) n; analyze t",
    );
    assert_eq!(estimate(&mut session, "select * from t"), 20_000.0);
    run(&mut session, "insert into t select n, repeat('f', 100) from generate_series(20001, 60000) n");
    let grown = estimate(&mut session, "select * from t");
    assert!((50_000.0..70_000.0).contains(&grown), "{grown}");
}

#[test]
fn stable_expressions_are_estimated_with_their_value() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    run(
        &mut session,
        "create table t (id int primary key, day date);
        insert into t select n, current_date - n from generate_series(1, 10000) n; analyze t",
    );
    let few = estimate(&mut session, "select * from t where day > current_date - 100");
    let many = estimate(&mut session, "select * from t where day > current_date - 9000");
    assert!(few < 400.0 && many > 8000.0, "{few} {many}");
}

#[test]
fn analyze_reads_a_sample_and_finds_what_is_there() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    // 80,000 rows on more leaves than a sample of this table would need to be exact.
    run(&mut session, "create table t (id int primary key, few int, skew int, half int, filler text);
        insert into t select n, n % 7, case when n % 4 = 0 then -1 else n end, nullif(n % 2, 0), repeat('f', 40)
        from generate_series(1, 80000) n; analyze t");
    let stats = |session: &mut Session, column: &str, what: &str| {
        run(session, &format!("select {what} from pg_stats where tablename = 't' and attname = '{column}'"))
            .concat()
            .concat()
    };
    let number = |text: String| text.parse::<f64>().unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(number(stats(&mut session, "id", "n_distinct")), -1.0);
    assert!(number(stats(&mut session, "id", "correlation")) > 0.999);
    assert_eq!(number(stats(&mut session, "few", "n_distinct")), 7.0);
    let nulls = number(stats(&mut session, "half", "null_frac"));
    assert!((0.48..0.52).contains(&nulls), "{nulls}");
    assert_eq!(stats(&mut session, "skew", "most_common_vals"), "{-1}");
    let share = number(stats(&mut session, "skew", "most_common_freqs[1]"));
    assert!((0.23..0.27).contains(&share), "{share}");
    let distinct = number(stats(&mut session, "skew", "n_distinct"));
    assert!((-0.65..-0.45).contains(&distinct), "{distinct}");
    assert_eq!(number(stats(&mut session, "filler", "avg_width")), 41.0);
    let rows =
        number(run(&mut session, "select reltuples from pg_class where relname = 't'").concat().concat());
    assert!((79_000.0..81_000.0).contains(&rows), "{rows}");
}

#[test]
fn analyze_can_be_cancelled() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    run(&mut session, SCHEMA);
    session.interrupt().interrupt(gannet_sql::session::Reason::Shutdown);
    let error = session.run("analyze big", &mut Rows::default()).unwrap_err();
    assert_eq!(error.state().0, "57P01");
}

#[test]
fn rows_without_a_partner_are_found_by_an_anti_join() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    run(
        &mut session,
        "create table a (id int primary key, b int); create table b (id int primary key, v int, w int);
        insert into a select n, n * 2 from generate_series(1, 100) n;
        insert into b select n, nullif(n % 3, 0), n from generate_series(1, 100) n",
    );
    let anti = |session: &mut Session, sql: &str, rows: usize, expected: bool| {
        assert_eq!(run(session, sql).len(), rows, "{sql}");
        let plan = plan(session, sql);
        assert_eq!(plan.contains("Anti"), expected, "{plan}");
    };
    let from = "from a left join b on b.id = a.b";
    anti(&mut session, &format!("select a.* {from} where b.id is null"), 50, true);
    anti(
        &mut session,
        &format!("select a.id {from} where b.id is null and b.v is null and a.id > 60"),
        40,
        true,
    );
    // The tested column of a partner may be NULL.
    anti(&mut session, &format!("select a.* {from} where b.v is null"), 66, false);
    // Of the partner something is wanted.
    anti(&mut session, &format!("select a.*, b.w {from} where b.id is null"), 50, false);
    // NULL columns do not pass the join's condition; another join in between uses nothing of the partner.
    anti(&mut session, "select a.id from a left join b on b.v = a.id where b.v is null", 98, true);
    anti(&mut session, "select a.id from a left join b on b.w = a.b where b.id is null", 50, true);
    let more = format!("select a.id, c.w {from} left join b c on c.id = a.id where b.id is null");
    anti(&mut session, &more, 50, true);
    let used = format!("select a.id {from} left join b c on c.id = b.w where b.id is null");
    anti(&mut session, &used, 50, false);
    anti(&mut session, &format!("select count(*) {from} where b.id is null"), 1, true);
    anti(&mut session, &format!("select a.id {from} where b.id is null for update of a"), 50, false);
}

#[test]
fn distinct_subqueries_can_be_sorted_by() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    run(&mut session, "create table t (a int, b int); insert into t values (1, 1), (2, 1), (3, 2)");
    let rows = |session: &mut Session, sql: &str| run(session, sql).concat();
    let highest = "(select max(i.a) from t i where i.b = t.b)";
    assert_eq!(
        rows(&mut session, &format!("select distinct {highest} as x from t order by 1 desc")),
        ["3", "2"]
    );
    assert_eq!(rows(&mut session, &format!("select distinct {highest} as x from t order by x")), ["2", "3"]);
    assert_eq!(rows(&mut session, "select distinct (select max(a) from t) as x order by 1"), ["3"]);
    assert_eq!(
        rows(&mut session, &format!("select {highest} as x, count(*) from t group by 1 order by 1")),
        ["2", "2", "3", "1"]
    );
    let other = format!("select distinct {highest} as x from t order by (select 1)");
    let error = session.run(&other, &mut Rows::default()).unwrap_err();
    assert_eq!(error.state().0, "42P10");
}
