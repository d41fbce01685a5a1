//! The simple query protocol.

use crate::client::{frame, query};
use crate::fixture::Fixture;

#[test]
fn a_session_begins_with_its_settings_and_key() {
    let fixture = Fixture::new();
    let mut wire = fixture.raw();
    let began = wire.start(&[
        ("user", "owner"),
        ("database", "shop"),
        ("application_name", "tests"),
        ("options", "-c statement_timeout=7s"),
    ]);
    assert_eq!(began.status, 'I', "{began:?}");
    assert!(began.kinds.starts_with("RS") && began.kinds.ends_with("KZ"), "{}", began.kinds);
    let setting = |name: &str| wire.settings.get(name).cloned().unwrap_or_default();
    assert_eq!(setting("application_name"), "tests");
    assert_eq!(setting("server_encoding"), "UTF8");
    assert_eq!(setting("client_encoding"), "UTF8");
    assert_eq!(setting("integer_datetimes"), "on");
    assert_eq!(setting("standard_conforming_strings"), "on");
    assert!(setting("server_version").starts_with("15"), "{}", setting("server_version"));
    assert_eq!(wire.run("show statement_timeout").one(), "7s");
}

#[test]
fn a_client_without_a_locale_and_one_that_says_how_intervals_look_were_refused() {
    let fixture = Fixture::new();
    let mut wire = fixture.raw();
    let parameters = [
        ("user", "owner"),
        ("database", "shop"),
        ("client_encoding", "SQL_ASCII"),
        ("options", "-c intervalstyle=iso_8601"),
    ];
    wire.start(&parameters).good();
    assert_eq!(wire.settings["client_encoding"], "SQL_ASCII");
    assert_eq!(wire.settings["IntervalStyle"], "iso_8601");
    assert_eq!(wire.run("select pg_client_encoding() || 'é'").one(), "SQL_ASCIIé");
    // Nothing is converted, and what is no UTF-8 is still none.
    assert_eq!(wire.ask(&frame(b'Q', b"select '\xe9'\0")).state(), "22021");
    assert_eq!(wire.ask(&query("set client_encoding = 'latin1'")).state(), "22023");
    wire.run("set client_encoding = 'utf8'; set intervalstyle to default").good();
    assert_eq!(wire.run("select pg_client_encoding()").one(), "UTF8");
}

#[test]
fn what_a_pool_sends_between_two_users_was_not_known() {
    let fixture = Fixture::new();
    let mut wire = fixture.connect();
    let told = wire.run(
        "select pg_advisory_unlock_all(); close all; unlisten *; reset all; set session authorization default; \
         reset session authorization; set role none; reset role",
    );
    let tags = ["SELECT 1", "CLOSE CURSOR ALL", "UNLISTEN", "RESET", "SET", "RESET", "SET", "RESET"];
    assert_eq!(told.good().tags, tags);
    for other in ["close c", "listen x", "set role owner", "set session authorization owner"] {
        assert!(!wire.ask(&query(other)).errors.is_empty(), "{other}");
    }
}

#[test]
fn a_text_of_several_statements_gives_all_their_results() {
    let fixture = Fixture::new();
    let mut wire = fixture.connect();
    let told = wire.run(
        "create table t (a int); insert into t values (1), (2); select a from t order by a; select 'x' as b",
    );
    assert_eq!(told.kinds, "CCTDCTDCZ");
    assert_eq!(told.tags, ["CREATE TABLE", "INSERT 0 2", "SELECT 2", "SELECT 1"]);
    assert_eq!(told.text(), [["1"], ["2"], ["x"]]);
    assert_eq!(told.columns, [("b".to_owned(), 25, 0)]);
    for empty in ["", "  ", ";", " ; ; -- nothing"] {
        assert_eq!(wire.run(empty).kinds, "IZ", "{empty:?}");
    }
}

#[test]
fn statements_of_one_text_are_one_transaction() {
    let fixture = Fixture::with("create table t (a int primary key)", |_| {});
    let mut wire = fixture.connect();
    let told = wire
        .query("insert into t values (1); insert into t values (2); select 1/0; insert into t values (3)");
    assert_eq!((told.state(), told.kinds.as_str(), told.status), ("22012", "CCTEZ", 'I'));
    assert_eq!(wire.run("select count(*) from t").one(), "0");
    // What BEGIN finds belongs to the transaction; what follows COMMIT is one of its own.
    let told = wire.query("insert into t values (1); begin; insert into t values (2); commit; insert into t values (3); select 1/0");
    assert_eq!(told.state(), "22012");
    assert_eq!(wire.run("select a from t order by a").text(), [["1"], ["2"]]);
    let told = wire.query("begin; insert into t values (5); select 1/0");
    assert_eq!((told.state(), told.status), ("22012", 'E'));
    assert_eq!(wire.query("select 1").state(), "25P02");
    assert_eq!(wire.run("commit").tags, ["ROLLBACK"]);
    assert_eq!(wire.run("select count(*) from t").one(), "2");
}

#[test]
fn the_status_says_where_the_transaction_stands() {
    let fixture = Fixture::new();
    let mut wire = fixture.connect();
    assert_eq!(wire.run("begin").status, 'T');
    assert_eq!(wire.run("savepoint s").status, 'T');
    assert_eq!(wire.query("select nothing").status, 'E');
    assert_eq!(wire.run("rollback to s").status, 'T');
    assert_eq!(wire.query("selekt").status, 'E');
    assert_eq!(wire.run("rollback").status, 'I');
    let told = wire.run("commit");
    assert_eq!((told.tags, told.notices[0].state()), (vec!["COMMIT".to_owned()], "25P01"));
}

#[test]
fn errors_have_their_fields() {
    let fixture = Fixture::with("create table t (a int constraint few primary key, b int not null)", |_| {});
    let mut wire = fixture.connect();
    let told = wire.query("select 1, nothing");
    let error = &told.errors[0];
    assert_eq!(
        (error.get('S'), error.get('V'), error.state(), error.get('P')),
        ("ERROR", "ERROR", "42703", "11")
    );
    wire.run("insert into t values (1, 1)");
    let told = wire.query("insert into t values (1, 1)");
    let error = &told.errors[0];
    assert_eq!((error.get('s'), error.get('t'), error.get('n')), ("public", "t", "few"));
    assert_eq!(error.get('D'), "Key (a)=(1) already exists.");
    let told = wire.query("insert into t values (2)");
    assert_eq!((told.errors[0].state(), told.errors[0].get('c')), ("23502", "b"));
    let told = wire.query("select 'é', nothing");
    assert_eq!(told.errors[0].get('P'), "13", "in characters, not bytes");
}

#[test]
fn settings_that_clients_follow_are_told_of() {
    let fixture = Fixture::new();
    let mut wire = fixture.connect();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let told = wire.run("set timezone to 'Asia/Tokyo'");
    assert_eq!(told.settings, [pair("TimeZone", "Asia/Tokyo")]);
    wire.run("begin");
    assert_eq!(wire.run("set timezone to 'UTC'").settings, [pair("TimeZone", "UTC")]);
    assert_eq!(wire.run("rollback").settings, [pair("TimeZone", "Asia/Tokyo")]);
    assert_eq!(wire.run("show timezone").one(), "Asia/Tokyo");
}

#[test]
fn a_simple_query_forgets_the_unnamed_statement_and_portal() {
    use crate::client::{bind, parse};
    let fixture = Fixture::new();
    let mut wire = fixture.connect();
    wire.series(&[parse("", "select 1", &[])]).good();
    wire.run("select 2");
    assert_eq!(wire.series(&[bind("", "", 0, &[], 0)]).state(), "26000");
}

#[test]
fn several_databases_live_on_one_engine() {
    let fixture = Fixture::of(&["shop", "store"], "create table t (a text)", 64 << 20, |_| {});
    let (mut shop, mut store) = (fixture.connect_to("shop"), fixture.connect_to("store"));
    shop.run("insert into t values ('in shop')");
    store.run("insert into t values ('in store')");
    assert_eq!(shop.run("select a from t").one(), "in shop");
    assert_eq!(store.run("select a from t").one(), "in store");
    assert_eq!(shop.run("select current_database()").one(), "shop");
    let told = fixture.raw().start(&[("user", "owner"), ("database", "house")]);
    assert_eq!((told.state(), told.errors[0].get('S'), told.status), ("3D000", "FATAL", ' '));
    // The database is the user's where none is named.
    assert_eq!(
        fixture.raw().start(&[("user", "owner")]).errors[0].message(),
        "database \"owner\" does not exist"
    );
}
