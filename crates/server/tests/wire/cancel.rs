//! Statements that are ended: by a cancel request, by time-outs, by other sessions.

use crate::client::{bind, execute, frame, parse, query, sync};
use crate::fixture::Fixture;
use std::time::Duration;

const TABLE: &str = "create table t (a int primary key, b int); insert into t values (1, 0), (2, 0)";
const SLEEP: &str = "select pg_sleep(1000)";

#[test]
fn who_knows_the_secret_cancels() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.send(&query(SLEEP));
    fixture.wait_until_running("select pg_sleep");
    // The wrong secret, the wrong session: nothing happens.
    fixture.cancel(wire.pid, wire.secret ^ 1);
    fixture.cancel(wire.pid ^ 0x4000_0000, wire.secret);
    fixture.wait_until_running("select pg_sleep");
    fixture.cancel(wire.pid, wire.secret);
    let told = wire.outcome();
    assert_eq!(
        (told.state(), told.errors[0].message(), told.status),
        ("57014", "canceling statement due to user request", 'I')
    );
    // One that comes when nothing runs ends nothing.
    fixture.cancel(wire.pid, wire.secret);
    assert_eq!(wire.run("select 1").one(), "1");
}

#[test]
fn a_cancelled_statement_fails_its_transaction_only() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.run("begin");
    wire.run("update t set b = 1 where a = 1");
    wire.send(&[parse("", SLEEP, &[]), bind("", "", 0, &[], 0), execute("", 0), sync()].concat());
    fixture.wait_until_running("select pg_sleep");
    fixture.cancel(wire.pid, wire.secret);
    let told = wire.outcome();
    assert_eq!((told.state(), told.status), ("57014", 'E'));
    assert_eq!(wire.run("rollback").status, 'I');
    assert_eq!(wire.run("select sum(b) from t").one(), "0");
}

#[test]
fn waiting_for_a_lock_can_be_cancelled_and_runs_out_of_time() {
    let fixture = Fixture::with(TABLE, |_| {});
    let (mut holder, mut waiter) = (fixture.connect(), fixture.connect());
    holder.run("begin");
    holder.run("update t set b = 1 where a = 1");
    waiter.send(&query("update t set b = 2 where a = 1"));
    fixture.wait_until_running("update t set b = 2");
    fixture.cancel(waiter.pid, waiter.secret);
    let told = waiter.outcome();
    assert_eq!(
        (told.state(), told.errors[0].message()),
        ("57014", "canceling statement due to user request")
    );
    waiter.run("set statement_timeout = '20ms'");
    let told = waiter.query("update t set b = 2 where a = 1");
    assert_eq!(
        (told.state(), told.errors[0].message()),
        ("57014", "canceling statement due to statement timeout")
    );
    waiter.run("set statement_timeout = 0; set lock_timeout = '20ms'");
    assert_eq!(waiter.query("update t set b = 2 where a = 1").state(), "55P03");
    holder.run("commit");
    waiter.run("update t set b = 2 where a = 1");
}

#[test]
fn statement_timeout_ends_one_statement() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.run("set statement_timeout = '30ms'");
    let told = wire.query(SLEEP);
    assert_eq!(
        (told.state(), told.errors[0].message()),
        ("57014", "canceling statement due to statement timeout")
    );
    let told = wire.series(&[parse("", SLEEP, &[]), bind("", "", 0, &[], 0), execute("", 0)]);
    assert_eq!(told.state(), "57014");
    let told = wire.query("select count(*) from generate_series(1, 1000000000000) a");
    assert_eq!(told.state(), "57014");
    wire.run("set statement_timeout = 0");
    assert_eq!(wire.run("select 1").one(), "1");
}

#[test]
fn what_ended_one_statement_ends_no_later_one() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let series = |sql: &str| [parse("", sql, &[]), bind("", "", 0, &[], 0), execute("", 0)];
    wire.send(&[series(SLEEP).concat(), sync()].concat());
    fixture.wait_until_running("select pg_sleep");
    fixture.cancel(wire.pid, wire.secret);
    assert_eq!(wire.outcome().state(), "57014");
    // Nobody has planned it before.
    assert_eq!(wire.series(&series("select 4711")).good().one(), "4711");
}

#[test]
fn idle_sessions_end_when_their_time_is_over() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.run("set idle_in_transaction_session_timeout = '30ms'");
    wire.run("begin; update t set b = 1 where a = 1");
    let told = wire.outcome();
    assert_eq!((told.kinds.as_str(), told.errors[0].get('S'), told.state()), ("E", "FATAL", "25P03"));
    assert_eq!(told.errors[0].message(), "terminating connection due to idle-in-transaction timeout");
    // Its lock is gone.
    fixture.connect().run("update t set b = 2 where a = 1");
    // In a failed transaction, too; and a message of which only a part comes is no sign of life.
    let mut wire = fixture.connect();
    wire.run("set idle_in_transaction_session_timeout = '30ms'");
    wire.query("begin; select 1/0");
    wire.send(b"Q\0\0");
    assert_eq!(wire.outcome().state(), "25P03");
    let mut wire = fixture.connect();
    wire.run("set idle_session_timeout = '30ms'");
    let told = wire.outcome();
    assert_eq!((told.errors[0].get('S'), told.state()), ("FATAL", "57P05"));
    assert_eq!(told.errors[0].message(), "terminating connection due to idle-session timeout");
    // Between messages of one series nobody is idle.
    let mut wire = fixture.connect();
    let set = "set idle_session_timeout = '20ms'";
    wire.send(&[parse("", set, &[]), bind("", "", 0, &[], 0), execute("", 0), frame(b'H', b"")].concat());
    assert_eq!(wire.outcome_until(b"C").kinds, "12C");
    std::thread::sleep(Duration::from_millis(80));
    wire.series(&[]).good();
}

#[test]
fn a_session_that_holds_garbage_back_for_too_long_is_ended() {
    let fixture =
        Fixture::with(TABLE, |options| options.open.snapshot_limit = Some(Duration::from_millis(1)));
    let mut other = fixture.connect();
    other.run("set snapshot_limit = 0");
    other.run("create table many (a int)");
    other.run("insert into many select generate_series(1, 5000)");
    let mut wire = fixture.connect();
    wire.run("begin isolation level repeatable read");
    wire.run("select count(*) from many");
    other.run("delete from many");
    // It is idle, and told all the same.
    let told = wire.outcome();
    assert_eq!((told.errors[0].get('S'), told.state(), told.status), ("FATAL", "25P04", ' '));
    assert_eq!(told.errors[0].message(), "terminating connection due to snapshot_limit");
    // With a savepoint, too, which would keep the snapshot of a failed transaction.
    other.run("insert into many select generate_series(1, 5000)");
    let mut wire = fixture.connect();
    wire.run("begin isolation level repeatable read");
    wire.run("select count(*) from many");
    wire.run("savepoint s");
    other.run("delete from many");
    assert_eq!(wire.outcome().state(), "25P04");
    other.run("vacuum");
}

#[test]
fn a_session_can_end_another_one() {
    let fixture = Fixture::with(TABLE, |_| {});
    let (mut wire, mut other) = (fixture.connect(), fixture.connect());
    other.send(&query(SLEEP));
    fixture.wait_until_running("select pg_sleep");
    assert_eq!(wire.run(&format!("select pg_cancel_backend({})", other.pid)).one(), "t");
    assert_eq!(other.outcome().state(), "57014");
    other.run("begin; update t set b = 1 where a = 1");
    // It is idle, and ends all the same: its lock is given back.
    assert_eq!(wire.run(&format!("select pg_terminate_backend({})", other.pid)).one(), "t");
    let told = other.outcome();
    assert_eq!((told.errors[0].get('S'), told.state(), told.status), ("FATAL", "57P01", ' '));
    wire.run("update t set b = 2 where a = 1");
    assert_eq!(wire.run("select pg_terminate_backend(2147483647)").one(), "f");
    let told = wire.query("select pg_terminate_backend(pg_backend_pid())");
    assert_eq!((told.state(), told.status), ("57P01", ' '));
}

#[test]
fn a_client_that_does_not_read_takes_no_memory_and_can_be_cancelled() {
    let fixture = Fixture::alone(TABLE);
    let mut wire = fixture.connect();
    wire.send(&query(
        "select a, 'some text to fill the way to the client' from generate_series(1, 100000000) a",
    ));
    fixture.wait_until_running("select a, ");
    let began = memory();
    // Others go on meanwhile.
    let mut other = fixture.connect();
    for _ in 0..200 {
        other.run("update t set b = b + 1 where a = 2");
    }
    fixture.wait_until_running("select a, ");
    assert!(memory() < began + (48 << 20), "from {began} to {} bytes", memory());
    fixture.cancel(wire.pid, wire.secret);
    let told = wire.outcome();
    assert_eq!((told.kinds.as_str(), told.state()), ("TDEZ", "57014"));
    assert_eq!(wire.run("select 1").one(), "1");
}

#[test]
fn a_million_rows_arrive() {
    let fixture = Fixture::new();
    let mut wire = fixture.connect();
    wire.send(&query("select a from generate_series(1, 1000000) a"));
    let (mut rows, mut sum) = (0_u64, 0_u64);
    loop {
        let reply = wire.read().unwrap();
        match reply.kind {
            b'D' => {
                rows += 1;
                sum += std::str::from_utf8(&reply.body[6..]).unwrap().parse::<u64>().unwrap();
            }
            b'Z' => break,
            b'T' | b'C' => {}
            other => panic!("message {other}"),
        }
    }
    assert_eq!((rows, sum), (1_000_000, 500_000_500_000));
}

/// Memory that this process has, in bytes.
pub(crate) fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
