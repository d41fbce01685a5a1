//! The extended query protocol.

use crate::client::{Wire, bind, bind_each, execute, frame, parse, query, sync, target};
use crate::fixture::Fixture;
use gannet_server::frontend::{Connection, Failure};
use gannet_sql::session::TransactionStatus;

const TABLE: &str = "create table t (a int primary key, b text); insert into t select n, 'row ' || n from generate_series(1, 10) n";

#[test]
fn parse_bind_describe_execute_close_sync() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let told = wire
        .series(&[
            parse("s", "select a, b from t where a > $1 order by a limit 2", &[]),
            target(b'D', b'S', "s"),
            bind("p", "s", 0, &[Some(b"3")], 0),
            target(b'D', b'P', "p"),
            execute("p", 0),
            target(b'C', b'P', "p"),
            target(b'C', b'S', "s"),
        ])
        .good();
    assert_eq!(told.kinds, "1tT2TDC33Z");
    assert_eq!(told.parameters, [23]);
    assert_eq!(told.columns, [("a".to_owned(), 23, 0), ("b".to_owned(), 25, 0)]);
    assert_eq!(told.text(), [["4", "row 4"], ["5", "row 5"]]);
    assert_eq!(wire.series(&[target(b'D', b'S', "s")]).state(), "26000");
    assert_eq!(wire.series(&[target(b'D', b'P', "p")]).state(), "34000");
    // Closing what is not there is no error.
    assert_eq!(wire.series(&[target(b'C', b'S', "s"), target(b'C', b'P', "p")]).good().kinds, "33Z");
}

#[test]
fn statements_without_rows_and_without_text() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let told = wire.series(&[
        parse("", "insert into t values ($1, $2)", &[]),
        target(b'D', b'S', ""),
        bind("", "", 0, &[Some(b"11"), None], 0),
        target(b'D', b'P', ""),
        execute("", 0),
    ]);
    assert_eq!((told.kinds.as_str(), told.tags[0].as_str()), ("1tn2nCZ", "INSERT 0 1"));
    assert_eq!(told.parameters, [23, 25]);
    let told =
        wire.series(&[parse("", "", &[]), bind("", "", 0, &[], 0), target(b'D', b'P', ""), execute("", 0)]);
    assert_eq!(told.good().kinds, "12nIZ");
    let told = wire.series(&[parse("", "begin", &[]), bind("", "", 0, &[], 0), execute("", 0)]);
    assert_eq!((told.kinds.as_str(), told.status), ("12CZ", 'T'));
    assert_eq!(wire.series(&[parse("", "select 1; select 2", &[])]).state(), "42601");
    wire.run("rollback");
    let told = wire.series(&[parse("", "show timezone", &[]), target(b'D', b'S', "")]);
    assert_eq!(told.good().columns, [("TimeZone".to_owned(), 25, 0)]);
}

#[test]
fn names_of_relations_in_parameters_are_those_of_the_bind() {
    let fixture = Fixture::with("create sequence old; select setval('old', 100)", |_| {});
    let (mut wire, mut other) = (fixture.connect(), fixture.connect());
    wire.series(&[parse("s", "select nextval($1)", &[2205])]).good();
    let mut next = |name: &str| {
        let told = wire.series(&[bind("", "s", 0, &[Some(name.as_bytes())], 0), execute("", 0)]);
        told.good().text()[0][0].clone()
    };
    assert_eq!(next("old"), "101");
    other.run("create sequence new");
    assert_eq!(next("new"), "1");
    other.run("alter sequence old rename to older; alter sequence new rename to old");
    assert_eq!(next("old"), "2");
}

#[test]
fn formats_are_those_of_the_last_bind() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select $1::int4, $2::text, $1::int4 + 1", &[])]).good();
    let binary = |number: i32| Some(number.to_be_bytes().to_vec());
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let seven: [&[u8]; 2] = [&7i32.to_be_bytes(), b"7"];
    for (formats, results, first, wanted) in [
        (&[1, 0][..], &[1, 0, 0][..], seven[0], vec![binary(7), text("a"), text("8")]),
        (&[], &[], seven[1], vec![text("7"), text("a"), text("8")]),
        (&[0, 1], &[0, 1, 1], seven[1], vec![text("7"), text("a"), binary(8)]),
        (&[1], &[1], seven[0], vec![binary(7), text("a"), binary(8)]),
        (&[0, 0], &[0], seven[1], vec![text("7"), text("a"), text("8")]),
    ] {
        for portal in ["", "p"] {
            let told = wire.series(&[
                bind_each(portal, "s", formats, &[Some(first), Some(b"a")], results),
                execute(portal, 0),
                target(b'C', b'P', portal),
            ]);
            assert_eq!(told.good().rows, std::slice::from_ref(&wanted), "{portal:?} {formats:?} {results:?}");
        }
    }
    for (formats, results, state) in [
        (&[2][..], &[][..], "22023"),
        (&[], &[0, -1, 1], "22023"),
        (&[0, 0, 0], &[], "08P01"),
        (&[], &[0, 1], "08P01"),
    ] {
        let told =
            wire.series(&[bind_each("", "s", formats, &[Some(b"7"), Some(b"a")], results), execute("", 0)]);
        assert_eq!(told.state(), state, "{formats:?} {results:?}");
    }
}

#[test]
fn messages_of_any_length_follow_each_other() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select $1::text", &[])]).good();
    // Memory of short ones is used again, that of long ones is not.
    for length in [10, 4000, 4080, 4096, 4100, 3, 40_000, 2100, 2200, 300_000, 1, 0] {
        let text: Vec<u8> = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
        let told = wire.series(&[bind("", "s", 0, &[Some(&text)], 0), execute("", 0)]);
        assert_eq!(told.good().rows, [[Some(text)]], "{length}");
    }
}

#[test]
fn parameters_are_read_by_the_settings_of_the_moment() {
    let fixture = Fixture::with("create table t (a int primary key, z timestamptz)", |_| {});
    let mut wire = fixture.connect();
    wire.series(&[
        parse("s", "insert into t values ($1, $2)", &[]),
        parse("zone", "set time zone 'Asia/Tokyo'", &[]),
    ]);
    let midnight = Some(b"2024-01-01 00:00".as_slice());
    wire.run("set time zone 'Asia/Tokyo'");
    wire.series(&[bind("", "s", 0, &[Some(b"1"), midnight], 0), execute("", 0)]).good();
    wire.run("reset time zone; begin");
    wire.series(&[
        bind("", "zone", 0, &[], 0),
        execute("", 0),
        bind("", "s", 0, &[Some(b"2"), midnight], 0),
        execute("", 0),
    ])
    .good();
    wire.run("savepoint s; set time zone 'America/New_York'; rollback to s");
    wire.series(&[bind("", "s", 0, &[Some(b"3"), midnight], 0), execute("", 0)]).good();
    wire.run("commit");
    assert_eq!(
        wire.run("set time zone 'UTC'; select a, z from t order by a").text(),
        [1, 2, 3].map(|a| [a.to_string(), "2023-12-31 15:00:00+00".to_owned()])
    );
    // 'now' is now, not the time of the statement before.
    wire.series(&[parse("later", "select $1 > $2", &[1184, 1184])]).good();
    let before = wire.run("select clock_timestamp()").one();
    let values = [Some(b"now".as_slice()), Some(before.as_bytes())];
    let told = wire.series(&[bind("", "later", 0, &values, 0), execute("", 0)]);
    assert_eq!(told.good().one(), "t");
}

#[test]
fn portals_stop_at_their_limit_and_go_on() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.run("begin");
    let told = wire.series(&[
        parse("s", "select a from t order by a", &[]),
        bind("p", "s", 0, &[], 0),
        execute("p", 4),
    ]);
    assert_eq!((told.kinds.as_str(), told.rows.len()), ("12DsZ", 4));
    // A second one runs between.
    let other = wire.series(&[bind("q", "s", 0, &[], 0), execute("q", 1), execute("q", 2)]);
    assert_eq!(
        (other.kinds.as_str(), other.text()),
        ("2DsDsZ", vec![vec!["1".to_owned()], vec!["2".into()], vec!["3".into()]])
    );
    let told = wire.series(&[execute("p", 4), execute("p", 4), execute("p", 4)]);
    assert_eq!((told.kinds.as_str(), told.rows.len()), ("DsDCCZ", 6));
    assert_eq!(told.tags, ["SELECT 2", "SELECT 0"]);
    assert_eq!(told.text()[0], ["5"]);
    wire.run("commit");
    assert_eq!(wire.series(&[execute("q", 0)]).state(), "34000", "portals end with their transaction");
    // Outside of BEGIN a portal lives until Sync.
    let told = wire.series(&[bind("p", "s", 0, &[], 0), execute("p", 9)]);
    assert_eq!(told.kinds, "2DsZ");
    assert_eq!(wire.series(&[execute("p", 9)]).state(), "34000");
    assert_eq!(wire.series(&[bind("p", "s", 0, &[], 0)]).kinds, "2Z");
    assert_eq!(wire.series(&[execute("p", 9)]).state(), "34000", "it was not even run");
}

#[test]
fn a_statement_that_makes_its_rows_at_once_gave_all_of_them_whatever_the_limit() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.run("begin");
    let begin = [
        parse("s", "explain (costs off) select 1 from t x, t y where x.b = y.b", &[]),
        bind("p", "s", 0, &[], 0),
    ];
    let all = wire.series(&[begin[0].clone(), bind("all", "s", 0, &[], 0), execute("all", 0)]).good().text();
    assert!(all.len() > 2, "{all:?}");
    let told =
        wire.series(&[begin[1].clone(), execute("p", 1), execute("p", 1), execute("p", 0), execute("p", 0)]);
    assert_eq!((told.kinds.as_str(), told.text()), ("2DsDsDCCZ", all));
    wire.run("commit");
    // A job ends its transaction, and its portal with it.
    for limit in [1, 200] {
        let told =
            wire.series(&[parse("", "check database", &[]), bind("", "", 0, &[], 0), execute("", limit)]);
        assert!(told.good().kinds.ends_with("CZ"), "{limit}");
        let told =
            wire.series(&[parse("", "stat database", &[]), bind("", "", 0, &[], 0), execute("", limit)]);
        assert!(!told.good().rows.is_empty(), "{limit}");
    }
    let told = wire.series(&[parse("", "show work_mem", &[]), bind("", "", 0, &[], 0), execute("", 5)]);
    assert_eq!((told.kinds.as_str(), told.tags.as_slice()), ("12DCZ", ["SHOW".to_owned()].as_slice()));
}

#[test]
fn a_change_with_returning_is_made_whole_whatever_the_limit() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let told = wire.series(&[
        parse("", "update t set b = 'new' returning a", &[]),
        bind("", "", 0, &[], 0),
        execute("", 3),
    ]);
    assert_eq!((told.kinds.as_str(), told.rows.len()), ("12DsZ", 3));
    assert_eq!(wire.run("select count(*) from t where b = 'new'").one(), "10");
}

#[test]
fn a_portal_at_its_end_ends_again_as_what_it_is() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.run("prepare gives as delete from t where a = 3 returning a");
    for (sql, first, again) in [
        ("insert into t values (11, '') returning a", "INSERT 0 1", "INSERT 0 0"),
        ("update t set b = '' where a < 3 returning a", "UPDATE 2", "UPDATE 0"),
        ("delete from t where a = 11 returning a", "DELETE 1", "DELETE 0"),
        ("execute gives", "DELETE 1", "DELETE 0"),
        ("select a from t where a > 8", "SELECT 2", "SELECT 0"),
        ("select a from t where a = 8", "SELECT 1", "SELECT 0"),
        ("show timezone", "SHOW", "SHOW"),
        ("explain select 1", "EXPLAIN", "EXPLAIN"),
    ] {
        let told = wire.series(&[
            parse("", sql, &[]),
            bind("", "", 0, &[], 0),
            execute("", 0),
            execute("", 0),
            execute("", 1),
        ]);
        assert_eq!(told.good().tags, [first, again, again], "{sql}");
    }
    // It has given all it was asked for, and there is nothing behind.
    let told = wire.series(&[
        parse("", "update t set b = 'x' where a in (4, 5) returning a", &[]),
        bind("", "", 0, &[], 0),
        execute("", 2),
        execute("", 2),
    ]);
    assert_eq!((told.kinds.as_str(), told.tags[0].as_str()), ("12DsCZ", "UPDATE 0"));
}

#[test]
fn a_row_by_its_key_stops_at_the_limit_as_others_do() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select a from t where a = $1", &[])]).good();
    let told = wire.series(&[bind("", "s", 0, &[Some(b"3")], 0), execute("", 1), execute("", 1)]);
    assert_eq!((told.kinds.as_str(), told.tags), ("2DsCZ", vec!["SELECT 0".to_owned()]));
    let told = wire.series(&[bind("", "s", 0, &[Some(b"3")], 0), execute("", 2)]);
    assert_eq!((told.kinds.as_str(), told.tags), ("2DCZ", vec!["SELECT 1".to_owned()]));
    let told = wire.series(&[bind("", "s", 0, &[Some(b"77")], 0), execute("", 1)]);
    assert_eq!((told.kinds.as_str(), told.tags), ("2CZ", vec!["SELECT 0".to_owned()]));
}

#[test]
fn explain_has_the_parameters_of_its_statement() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let told =
        wire.series(&[parse("s", "explain select * from t where a = $1", &[]), target(b'D', b'S', "s")]);
    assert_eq!((told.parameters.as_slice(), told.columns[0].0.as_str()), ([23].as_slice(), "QUERY PLAN"));
    let told = wire.series(&[bind("", "s", 0, &[Some(b"3")], 0), execute("", 0)]).good();
    assert!(told.text().iter().any(|line| line[0].contains("a = $1")), "{told:?}");
    assert_eq!(told.tags, ["EXPLAIN"]);
    let told = wire.series(&[
        parse("", "explain (analyze, timing off, costs off) update t set b = $2 where a > $1", &[20]),
        target(b'D', b'S', ""),
        bind("", "", 0, &[Some(b"7"), Some(b"new")], 0),
        execute("", 0),
    ]);
    assert_eq!(told.good().parameters, [20, 25]);
    assert_eq!(wire.run("select count(*) from t where b = 'new'").one(), "3");
    // They are looked for when it is parsed, as the rest of it is.
    assert_eq!(wire.series(&[bind("", "s", 0, &[], 0)]).state(), "08P01");
    assert_eq!(wire.series(&[parse("", "explain select $1 is null", &[])]).state(), "42P18");
    assert_eq!(wire.series(&[parse("", "explain select * from nothing", &[])]).state(), "42P01");
    assert_eq!(wire.query("explain select $1::int").state(), "42P02");
}

#[test]
fn statements_without_a_plan_take_parameters_of_known_types_and_ask_for_none() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    for types in [&[0][..], &[23, 705]] {
        let told = wire.series(&[parse("", "begin", types)]);
        assert_eq!((told.state(), told.status), ("42P18", 'I'), "{types:?}");
    }
    let told = wire.series(&[parse("", "begin", &[23]), bind("", "", 0, &[Some(b"7")], 0), execute("", 0)]);
    assert_eq!((told.kinds.as_str(), told.status), ("12CZ", 'T'));
    wire.series(&[parse("", "rollback", &[23]), bind("", "", 0, &[Some(b"7")], 0), execute("", 0)]).good();
    // A value is read all the same; a failed transaction reads none.
    wire.series(&[parse("end", "rollback", &[23])]).good();
    assert_eq!(wire.series(&[bind("", "end", 0, &[Some(b"x")], 0)]).state(), "22P02");
    wire.query("begin; select 1/0");
    assert_eq!(wire.series(&[bind("", "end", 0, &[Some(b"7")], 0)]).state(), "25P02");
    wire.run("rollback");
    let told = wire.series(&[parse("", "", &[23]), bind("", "", 0, &[Some(b"7")], 0), execute("", 0)]);
    assert_eq!(told.good().kinds, "12IZ");
}

#[test]
fn values_are_read_last() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select $1::int", &[])]).good();
    let one = [Some(b"x".as_slice())];
    let two = [Some(b"x".as_slice()), Some(b"y".as_slice())];
    // Their number comes before what is in them, and before formats that are none.
    for (values, formats, state) in [
        (&two[..], &[][..], "08P01"),
        (&two, &[2, 2], "08P01"),
        (&one, &[0, 0], "08P01"),
        (&one, &[2], "22023"),
        (&one, &[], "22P02"),
    ] {
        let told = wire.series(&[bind_each("", "s", formats, values, &[])]);
        assert_eq!(told.state(), state, "{} values, {formats:?}", values.len());
    }
    // So does the portal's name.
    let told = wire.series(&[bind("p", "s", 0, &[Some(b"1")], 0), bind("p", "s", 0, &one, 0)]);
    assert_eq!(told.state(), "42P03");
    wire.query("begin; select 1/0");
    assert_eq!(wire.series(&[bind_each("", "s", &[], &two, &[])]).state(), "08P01");
    assert_eq!(wire.series(&[bind_each("", "s", &[2], &one, &[])]).state(), "25P02");
}

#[test]
fn a_portal_that_gives_no_rows_runs_once() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let told = wire.series(&[
        parse("", "delete from t where a = 1", &[]),
        bind("", "", 0, &[], 0),
        execute("", 0),
        execute("", 0),
    ]);
    assert_eq!((told.kinds.as_str(), told.state()), ("12CEZ", "55000"));
    assert_eq!(wire.run("select count(*) from t").one(), "10", "the series is one transaction");
}

#[test]
fn after_an_error_everything_up_to_sync_is_passed_over() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let told = wire.series(&[
        parse("", "insert into t values (11, '')", &[]),
        bind("", "", 0, &[], 0),
        execute("", 0),
        parse("", "select 1/0", &[]),
        bind("", "", 0, &[], 0),
        execute("", 0),
        parse("x", "select 1", &[]),
        // A simple query, and a message that is no message, are passed over as well.
        query("insert into t values (12, '')"),
        frame(b'B', b"\0"),
        target(b'C', b'S', "x"),
    ]);
    assert_eq!((told.kinds.as_str(), told.state(), told.status), ("12C12EZ", "22012", 'I'));
    assert_eq!(wire.run("select count(*) from t").one(), "10");
    assert_eq!(wire.series(&[target(b'D', b'S', "x")]).state(), "26000");
}

#[test]
fn a_series_is_one_transaction_whatever_statements_are_in_it() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let insert = |number: u32| format!("insert into t values ({number}, 'x')");
    let run = |sql: &str| [parse("", sql, &[]), bind("", "", 0, &[], 0), execute("", 0)];
    let count = |wire: &mut Wire| wire.run("select count(*) from t").text()[0][0].clone();
    // What needs a place of its own is refused behind work, and takes none of it away.
    for sql in ["vacuum", "check database", "sweep database", "dump database to stdout"] {
        let messages: Vec<_> = run(&insert(20)).into_iter().chain(run(sql)).collect();
        assert_eq!(wire.series(&messages).state(), "25001", "{sql}");
        assert_eq!(count(&mut wire), "10", "{sql}: the error ends the series");
        let told = wire.series(&run(sql)).good();
        assert_eq!(told.status, 'I', "{sql} alone");
    }
    // Nor does what needs none commit what stands before it.
    for sql in
        ["set work_mem = '1MB'", "show work_mem", "create table u (a int)", "analyze t", "create role r"]
    {
        let messages: Vec<_> =
            run(&insert(20)).into_iter().chain(run(sql)).chain(run("select 1 / 0")).collect();
        assert_eq!(wire.series(&messages).state(), "22012", "{sql}");
        assert_eq!(count(&mut wire), "10", "{sql}");
        let messages: Vec<_> = run(&insert(21)).into_iter().chain(run(sql)).collect();
        assert_eq!(wire.series(&messages).good().status, 'I');
        assert_eq!(count(&mut wire), "11", "{sql}");
        wire.run("delete from t where a = 21; drop table if exists u; drop role if exists r");
    }
    // A setting that was changed before is something that was done, too.
    let messages: Vec<_> = run("set work_mem = '2MB'").into_iter().chain(run("vacuum")).collect();
    assert_eq!(wire.series(&messages).state(), "25001");
}

#[test]
fn any_error_fails_the_transaction() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let bad: [Vec<Vec<u8>>; 9] = [
        vec![execute("nothing", 0)],
        vec![target(b'D', b'P', "nothing")],
        vec![target(b'D', b'S', "nothing")],
        vec![bind("", "nothing", 0, &[], 0)],
        vec![parse("", "select $1", &[4_000_000])],
        vec![parse("", "select $1::int", &[]), bind("", "", 0, &[Some(b"x")], 0)],
        vec![parse("", "select $1::int", &[]), bind("", "", 1, &[Some(b"xyz")], 0)],
        vec![parse("", "select $1::int", &[]), bind("", "", 0, &[], 0)],
        vec![frame(b'B', b"\0")],
    ];
    for messages in bad {
        wire.run("begin");
        wire.run("insert into t values (99, 'lost')");
        let told = wire.series(&messages);
        assert_eq!((told.errors.len(), told.status), (1, 'E'), "{messages:?}: {told:?}");
        assert_eq!(wire.query("select 1").state(), "25P02");
        assert_eq!(wire.run("commit").tags, ["ROLLBACK"]);
        // Without BEGIN what the series has done so far is undone.
        let mut series = vec![
            parse("", "insert into t values (99, 'lost')", &[]),
            bind("", "", 0, &[], 0),
            execute("", 0),
        ];
        series.extend(messages.clone());
        let told = wire.series(&series);
        assert_eq!((told.errors.len(), told.status), (1, 'I'), "{messages:?}: {told:?}");
        assert_eq!(wire.run("select count(*) from t").one(), "10", "{messages:?}");
    }
}

#[test]
fn a_failed_transaction_takes_its_end_and_nothing_else() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[
        parse("end", "rollback", &[]),
        parse("read", "select a from t", &[]),
        parse("write", "delete from t", &[]),
    ])
    .good();
    wire.run("begin");
    wire.query("select 1/0");
    assert_eq!(wire.series(&[parse("", "select 1", &[])]).state(), "25P02");
    assert_eq!(wire.series(&[bind("", "read", 0, &[], 0)]).state(), "25P02");
    assert_eq!(wire.series(&[bind("", "write", 0, &[], 0)]).state(), "25P02");
    assert_eq!(wire.series(&[target(b'D', b'S', "read")]).state(), "25P02");
    let told = wire.series(&[bind("", "end", 0, &[], 0), target(b'D', b'P', ""), execute("", 0)]);
    assert_eq!((told.kinds.as_str(), told.status), ("2nCZ", 'I'));
}

#[test]
fn flush_gives_what_there_is() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.send(&[parse("s", "select 1", &[]), frame(b'H', b"")].concat());
    assert_eq!(wire.read().unwrap().kind, b'1');
    wire.send(&[bind("", "s", 0, &[], 0), execute("", 0), frame(b'H', b"")].concat());
    assert_eq!(wire.outcome_until(b"C").kinds, "2DC");
    assert_eq!(wire.ask(&sync()).kinds, "Z");
}

#[test]
fn an_error_does_not_wait_for_sync() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    // What was done before it comes with it, and Flush after it has nothing to give.
    let messages = [parse("", "select 1/0", &[]), bind("", "", 0, &[], 0), execute("", 0), frame(b'H', b"")];
    wire.send(&messages.concat());
    let told = wire.outcome_until(b"E");
    assert_eq!((told.kinds.as_str(), told.state()), ("12E", "22012"));
    wire.send(&[parse("", "select 1", &[]), frame(b'H', b"")].concat());
    assert_eq!(wire.ask(&sync()).kinds, "Z");
    // Without Flush, too; and one that is found before anything runs.
    wire.send(&target(b'D', b'S', "nothing"));
    assert_eq!(wire.outcome_until(b"E").state(), "26000");
    assert_eq!(wire.ask(&sync()).kinds, "Z");
    wire.send(&frame(b'B', b"\0"));
    assert_eq!(wire.outcome_until(b"E").state(), "08P01");
    assert_eq!(wire.ask(&sync()).kinds, "Z");
}

#[test]
fn names_that_are_taken_are_refused_but_the_unnamed_is_replaced() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select 1", &[]), parse("", "select 1", &[]), parse("", "select 2", &[])])
        .good();
    assert_eq!(wire.series(&[parse("s", "select 2", &[])]).state(), "42P05");
    assert_eq!(wire.series(&[bind("p", "s", 0, &[], 0), bind("p", "s", 0, &[], 0)]).state(), "42P03");
    let told = wire.series(&[bind("", "s", 0, &[], 0), bind("", "", 0, &[], 0), execute("", 0)]);
    assert_eq!(told.good().one(), "2");
    // A failed Parse takes the unnamed statement away.
    wire.series(&[parse("", "selekt", &[])]);
    assert_eq!(wire.series(&[bind("", "", 0, &[], 0)]).state(), "26000");
}

#[test]
fn counts_and_formats_have_to_fit() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select $1::int, $2::text", &[])]).good();
    let bound = |formats: &[i16], values: usize, results: &[i16]| {
        let mut body = crate::client::Body::new().str("").str("s").i16(formats.len() as i16);
        for format in formats {
            body = body.i16(*format);
        }
        body = body.i16(values as i16);
        for _ in 0..values {
            body = body.value(Some(b"1234"));
        }
        body = body.i16(results.len() as i16);
        for format in results {
            body = body.i16(*format);
        }
        frame(b'B', &body.0)
    };
    for good in [bound(&[], 2, &[]), bound(&[1], 2, &[1]), bound(&[0, 1], 2, &[1, 0])] {
        wire.series(&[good]).good();
    }
    for (bad, state) in [
        (bound(&[], 1, &[]), "08P01"),
        (bound(&[], 3, &[]), "08P01"),
        (bound(&[0, 0, 0], 2, &[]), "08P01"),
        (bound(&[], 2, &[0, 0, 0]), "08P01"),
        (bound(&[2], 2, &[]), "22023"),
        (bound(&[], 2, &[-1]), "22023"),
    ] {
        assert_eq!(wire.series(&[bad]).state(), state);
    }
}

#[test]
fn a_prepared_statement_follows_definitions() {
    let fixture = Fixture::with(TABLE, |_| {});
    let (mut wire, mut other) = (fixture.connect(), fixture.connect());
    wire.series(&[
        parse("all", "select * from t where a = 1", &[]),
        parse("one", "select b from t where a = 1", &[]),
    ])
    .good();
    other.run("create index on t (b); alter table t add column c int default 7");
    let run = |name: &str| vec![bind("", name, 0, &[], 0), execute("", 0)];
    assert_eq!(wire.series(&run("one")).good().one(), "row 1");
    let told = wire.series(&run("all"));
    assert_eq!(
        (told.state(), told.errors[0].message()),
        ("0A000", "cached plan must not change result type")
    );
    other.run("drop table t");
    assert_eq!(wire.series(&run("one")).state(), "42P01");
}

#[test]
fn portals_of_ended_transactions_leave_nothing_behind() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select a from t order by a limit 1", &[])]).good();
    // Binary here; a later portal of the same name without formats gives text.
    wire.series(&[bind("p", "s", 0, &[], 1), execute("p", 0)]).good();
    let plain = frame(b'B', &crate::client::Body::new().str("p").str("s").i16(0).i16(0).i16(0).0);
    assert_eq!(wire.series(&[plain, execute("p", 0)]).good().one(), "1");
}

#[test]
fn portals_outlive_what_a_savepoint_takes_back() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.run("begin; update t set b = 'own' where a <= 6");
    let select = "select a, b from t order by a";
    let told = wire.series(&[parse("s", select, &[]), bind("p", "s", 0, &[], 0), execute("p", 4)]);
    assert_eq!(told.kinds, "12DsZ");
    wire.run("savepoint one; delete from t where a > 4");
    assert_eq!(wire.series(&[bind("q", "s", 0, &[], 0), execute("q", 1)]).kinds, "2DsZ");
    assert_eq!(wire.query("select 1/0").status, 'E');
    assert_eq!(wire.series(&[execute("p", 1)]).state(), "25P02");
    wire.run("rollback to one");
    let told = wire.series(&[execute("p", 2)]).good();
    assert_eq!(told.text(), [["5", "own"], ["6", "own"]], "it sees what it has seen");
    assert_eq!(wire.series(&[execute("q", 1)]).state(), "34000", "it was made behind the savepoint");
    wire.run("rollback to one");
    assert_eq!(wire.series(&[execute("p", 1)]).good().text(), [["7", "row 7"]]);
    // Nor does one go that was made behind a savepoint which is no more: it is its transaction's.
    wire.run("savepoint two");
    wire.series(&[bind("r", "s", 0, &[], 0), execute("r", 1)]).good();
    wire.run("release two; savepoint three; rollback to three");
    assert_eq!(wire.series(&[execute("r", 1)]).good().text(), [["2", "own"]]);
    // One that fails itself does not go on.
    let told = wire.series(&[
        parse("", "select 1 / (a - 2) from t order by a", &[]),
        bind("f", "", 0, &[], 0),
        execute("f", 1),
        execute("f", 0),
    ]);
    assert_eq!(told.state(), "22012");
    wire.run("rollback to one");
    assert_eq!(wire.series(&[execute("f", 0)]).state(), "34000");
}

#[test]
fn a_begin_that_fails_leaves_no_transaction() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let told = wire.query("begin isolation level serializable");
    assert_eq!((told.state(), told.status), ("0A000", 'I'));
    let told = wire.query("insert into t values (11, ''); begin isolation level repeatable read");
    assert_eq!((told.state(), told.status), ("25001", 'I'));
    assert_eq!(wire.run("select count(*) from t").one(), "10");
    // In a transaction that is there, it is an error like any other.
    wire.run("begin");
    let told = wire.query("begin isolation level serializable");
    assert_eq!((told.state(), told.status), ("0A000", 'E'));
    wire.run("rollback");
}

#[test]
fn modes_count_in_a_transaction_that_nobody_has_begun() {
    let fixture = Fixture::with(TABLE, |_| {});
    let (mut wire, mut other) = (fixture.connect(), fixture.connect());
    let told = wire.query("set transaction read only; insert into t values (11, '')");
    assert_eq!((told.state(), told.notices.len()), ("25006", 0));
    let told = wire.run("set transaction read only");
    assert_eq!(told.notices[0].state(), "25P01");
    wire.run("insert into t values (11, '')");
    // In a series they count until Sync, though there is a warning.
    let count = || vec![parse("", "select count(*) from t", &[]), bind("", "", 0, &[], 0), execute("", 0)];
    let modes = "set transaction isolation level repeatable read";
    let mut series = vec![parse("", modes, &[]), bind("", "", 0, &[], 0), execute("", 0)];
    series.extend(count());
    series.push(frame(b'H', b""));
    wire.send(&series.concat());
    let told = wire.outcome_until(b"C");
    assert_eq!(told.notices[0].state(), "25P01");
    assert_eq!(wire.outcome_until(b"C").one(), "11");
    other.run("delete from t");
    assert_eq!(wire.series(&count()).one(), "11");
    assert_eq!(wire.run("select count(*) from t").one(), "0");
}

#[test]
fn an_empty_query_ends_what_was_begun_before_it() {
    let fixture = Fixture::with(TABLE, |_| {});
    let (mut wire, mut other) = (fixture.connect(), fixture.connect());
    let insert = [parse("", "insert into t values (11, '')", &[]), bind("", "", 0, &[], 0), execute("", 0)];
    wire.send(&[&insert.concat()[..], &query(" ; ")].concat());
    let told = wire.outcome();
    assert_eq!((told.kinds.as_str(), told.status), ("12CIZ", 'I'));
    assert_eq!(other.run("select count(*) from t").one(), "11");
}

#[test]
fn what_is_discarded_is_not_taken_back() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select 7", &[])]).good();
    assert_eq!(wire.query("select 1; discard all").state(), "25001");
    assert_eq!(wire.series(&[bind("", "s", 0, &[], 0), execute("", 0)]).good().one(), "7");
    wire.run("discard all");
    assert_eq!(wire.series(&[bind("", "s", 0, &[], 0)]).state(), "26000");
}

#[test]
fn an_execute_stops_at_its_limit_and_goes_on() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.run("prepare s (int) as select a from t where a > $1 order by a; begin");
    let told = wire.series(&[
        parse("", "execute s (2)", &[]),
        bind("p", "", 0, &[], 0),
        target(b'D', b'P', "p"),
        execute("p", 3),
    ]);
    assert_eq!((told.kinds.as_str(), told.rows.len()), ("12TDsZ", 3));
    let told = wire.series(&[execute("p", 0)]).good();
    assert_eq!((told.rows.len(), told.tags[0].as_str()), (5, "SELECT 5"));
    wire.run("commit");
}

#[test]
fn clients_learn_what_heals_a_statement() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select * from t", &[])]).good();
    wire.run("alter table t add column c int");
    let told = wire.series(&[bind("", "s", 0, &[], 0), execute("", 0)]);
    assert_eq!((told.state(), told.errors[0].get('R')), ("0A000", "RevalidateCachedQuery"));
    let told = wire.series(&[bind("", "none", 0, &[], 0)]);
    assert_eq!((told.state(), told.errors[0].get('R')), ("26000", "FetchPreparedStatement"));
}

#[test]
fn a_failed_transaction_reads_no_parameters() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select $1::int", &[])]).good();
    wire.query("begin; select 1/0");
    assert_eq!(wire.series(&[bind("", "s", 0, &[Some(b"x")], 0)]).state(), "25P02");
    wire.run("rollback");
    assert_eq!(wire.series(&[bind("", "s", 0, &[Some(b"x")], 0)]).state(), "22P02");
    // A statement without rows takes formats for as many as one likes.
    wire.series(&[parse("", "delete from t where a = 1", &[])]).good();
    let body = crate::client::Body::new().str("").str("").i16(0).i16(0).i16(2).i16(1).i16(1);
    wire.series(&[frame(b'B', &body.0), execute("", 0)]).good();
}

#[test]
fn settings_of_a_transaction_end_with_its_failure() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let set = "begin; set timezone = 'Asia/Tokyo'; set local idle_in_transaction_session_timeout = '20ms'";
    // In one go: between them nobody is idle, however slow.
    wire.send(&[query(set), query("select 1/0")].concat());
    wire.outcome().good();
    let told = wire.outcome();
    assert_eq!(told.status, 'E');
    assert!(
        told.settings.iter().any(|(name, value)| name == "TimeZone" && value != "Asia/Tokyo"),
        "{told:?}"
    );
    std::thread::sleep(std::time::Duration::from_millis(60));
    wire.run("rollback");
}

#[test]
fn our_client_asks_many_statements_at_once() {
    let fixture = Fixture::with("create table wide (a int primary key, b text)", |_| {});
    let mut connection = fixture.frontend();
    let prepare = |connection: &mut Connection, sql: &str| connection.prepare(sql).unwrap();
    let begin = prepare(&mut connection, "begin");
    let insert = prepare(&mut connection, "insert into wide values ($1, $2)");
    let commit = prepare(&mut connection, "commit");
    let read = prepare(&mut connection, "select a, b from wide where a = $1");
    let fails = prepare(&mut connection, "select 1 / $1");
    // More than is sent before answers are read, and more than sockets hold.
    let text = "x".repeat(3000);
    let mut give = |number: usize, place: usize, _: u32, out: &mut Vec<u8>| {
        match place {
            0 => out.extend_from_slice(&i32::try_from(number).unwrap().to_be_bytes()),
            _ => out.extend_from_slice(text.as_bytes()),
        }
        Ok(true)
    };
    let asked: Vec<_> = [&begin].into_iter().chain([&insert; 400]).chain([&commit]).collect();
    let tags = connection.run(&asked, &mut give, &mut |_, _| Ok(())).unwrap();
    assert_eq!((tags.len(), &*tags[0], &*tags[400], &*tags[401]), (402, "BEGIN", "INSERT 0 1", "COMMIT"));
    // Answers that are more than sockets hold.
    let mut rows = Vec::new();
    let asked = [&read; 402];
    let tags = connection.run(&asked, &mut give, &mut |number, row| {
        rows.push((number, row[0].map(<[u8]>::to_vec), row[1].map(<[u8]>::len)));
        Ok(())
    });
    assert_eq!(tags.unwrap().iter().filter(|tag| *tag == "SELECT 1").count(), 400);
    let expected =
        (1..=400).map(|number: usize| (number, Some((number as i32).to_be_bytes().to_vec()), Some(3000)));
    assert_eq!(rows, expected.collect::<Vec<_>>());
    // An error ends all of it, wherever it comes: what was asked behind it has no effect, and the connection is good for more.
    for (before, zero) in [(0, 0), (3, 3), (300, 300)] {
        let asked: Vec<_> =
            [&insert; 300][..before].iter().copied().chain([&fails]).chain([&insert; 300]).collect();
        let mut give = |number: usize, place: usize, _: u32, out: &mut Vec<u8>| {
            match place {
                0 if number == zero => out.extend_from_slice(&0_i32.to_be_bytes()),
                0 => out.extend_from_slice(&(1000 + i32::try_from(number).unwrap()).to_be_bytes()),
                _ => out.extend_from_slice(text.as_bytes()),
            }
            Ok(true)
        };
        let Err(Failure::Server(report)) = connection.run(&asked, &mut give, &mut |_, _| Ok(())) else {
            panic!("no error")
        };
        assert_eq!(report.state, "22012");
        assert_eq!(connection.status(), TransactionStatus::Idle);
    }
    // Neither has what the caller cannot give, though what came before it was sent.
    let mut give = |number: usize, place: usize, _: u32, out: &mut Vec<u8>| {
        match place {
            0 if number == 250 => return Err(std::io::Error::other("no")),
            0 => out.extend_from_slice(&(2000 + i32::try_from(number).unwrap()).to_be_bytes()),
            _ => out.extend_from_slice(text.as_bytes()),
        }
        Ok(true)
    };
    let asked: Vec<_> = [&begin].into_iter().chain([&insert; 300]).collect();
    let refused = connection.run(&asked, &mut give, &mut |_, _| Ok(()));
    assert!(matches!(refused, Err(Failure::Receiver(_))) && connection.is_alive());
    assert_eq!(connection.status(), TransactionStatus::Active);
    let rollback = prepare(&mut connection, "rollback");
    connection.run(&[&rollback], &mut give, &mut |_, _| Ok(())).unwrap();
    let count = prepare(&mut connection, "select count(*) from wide");
    let mut found = 0;
    let mut take = |_: usize, row: &[Option<&[u8]>]| {
        found = i64::from_be_bytes(row[0].unwrap().try_into().unwrap());
        Ok(())
    };
    connection.run(&[&count], &mut give, &mut take).unwrap();
    assert_eq!(found, 400);
}

#[test]
fn whoever_takes_no_rows_any_more_has_a_connection_that_is_good_for_more() {
    let fixture = Fixture::with("create table seen (a int)", |_| {});
    let mut connection = fixture.frontend();
    let one = connection.prepare("select 1").unwrap();
    let many = connection.prepare("select n, repeat('x', 1000) from generate_series(1, 1000000) n").unwrap();
    let copy = connection.prepare("copy (select generate_series(1, 1000000)) to stdout").unwrap();
    let mut none = |_: usize, _: usize, _: u32, _: &mut Vec<u8>| Ok(false);
    let mut taken = 0;
    let refused = connection.run(&[&one, &many, &one], &mut none, &mut |number, _| {
        taken += 1;
        if number == 1 { Err(std::io::Error::other("enough")) } else { Ok(()) }
    });
    assert!(matches!(refused, Err(Failure::Receiver(_))) && connection.is_alive(), "{refused:?}");
    assert_eq!(taken, 2);
    let refused = connection.run(&[&one, &copy, &one], &mut none, &mut |_, _| Ok(()));
    assert!(matches!(refused, Err(Failure::Receiver(_))) && connection.is_alive(), "{refused:?}");
    assert_eq!(connection.run(&[&one, &one], &mut none, &mut |_, _| Ok(())).unwrap(), ["SELECT 1"; 2]);
}

#[test]
fn a_copy_among_statements_that_are_asked_at_once_is_refused() {
    let fixture = Fixture::with("create table wide (a int primary key, b text)", |_| {});
    let text = "x".repeat(3000);
    let mut give = |number: usize, place: usize, _: u32, out: &mut Vec<u8>| {
        match place {
            0 => out.extend_from_slice(&i32::try_from(number).unwrap().to_be_bytes()),
            _ => out.extend_from_slice(text.as_bytes()),
        }
        Ok(true)
    };
    for (before, behind) in [(0, 0), (1, 0), (40, 0), (0, 40), (1, 40)] {
        let mut connection = fixture.frontend();
        let insert = connection.prepare("insert into wide values ($1, $2)").unwrap();
        let copy = connection.prepare("copy wide from stdin").unwrap();
        let inserts = |count: usize| std::iter::repeat_n(&insert, count);
        let asked: Vec<_> = inserts(before).chain([&copy]).chain(inserts(behind)).collect();
        let refused = connection.run(&asked, &mut give, &mut |_, _| Ok(()));
        assert!(matches!(refused, Err(Failure::Receiver(_))), "{before}, {behind}: {refused:?}");
        // Where the server waits for data, the protocol has no place for a statement.
        assert_eq!(connection.is_alive(), behind == 0);
        assert_eq!(fixture.value("select count(*) from wide"), "0");
    }
}

#[test]
fn statements_that_came_at_once_have_their_rows_fetched_at_once() {
    let rows = "create table big (id int primary key, v text);
        insert into big select n, repeat('v', 900) from generate_series(1, 4000) n";
    let fixture = Fixture::with(rows, |options| {
        // Otherwise its pages are in memory before they are asked for.
        std::fs::remove_file(options.paths[0].join("shop.gnt-wal").join("hot")).unwrap();
    });
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select id from big where id = $1", &[])]).good();
    let requests = |wire: &mut Wire| -> u64 {
        let sql = "select requests from gannet_io where class = 'prefetch' and operation = 'read'";
        wire.run(sql).one().parse().unwrap()
    };
    // Inner nodes are in memory from here on.
    wire.run("select v from big where id = 1");
    let statement =
        |id: usize| [bind("", "s", 0, &[Some(id.to_string().as_bytes())], 0), execute("", 0)].concat();
    let ids = |ids: &mut dyn Iterator<Item = usize>| ids.map(statement).collect::<Vec<_>>();
    let before = requests(&mut wire);
    let told = wire.series(&ids(&mut (1..20).map(|n| n * 100))).good();
    assert_eq!(told.rows.len(), 19);
    let at_once = requests(&mut wire);
    assert!(at_once >= before + 10, "{before} {at_once}");
    // One by one there is nothing to look at.
    for id in (20..25).map(|n| n * 100) {
        assert_eq!(wire.series(&[statement(id)]).good().rows.len(), 1);
    }
    assert_eq!(requests(&mut wire), at_once);
    // An error among them: what was looked at behind it is passed over, and what comes then is looked at anew.
    let mut failing = ids(&mut (20..40).map(|n| n * 100 + 30));
    failing.insert(2, bind("", "none", 0, &[], 0));
    assert_eq!(wire.series(&failing).state(), "26000");
    let failed = requests(&mut wire);
    assert_eq!(wire.series(&ids(&mut (1..20).map(|n| n * 100 + 30))).good().rows.len(), 19);
    let last = requests(&mut wire);
    assert!(last >= failed + 15, "{failed} {last}");
    wire.run("set gannet_look_ahead = off");
    let told = wire.series(&ids(&mut (1..20).map(|n| n * 100 + 50))).good();
    assert_eq!((told.rows.len(), requests(&mut wire)), (19, last));
}
