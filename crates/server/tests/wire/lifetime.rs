//! Clients that vanish, and the server's end.

use crate::client::{Wire, bind, execute, frame, parse, query, sync};
use crate::fixture::{Fixture, STOP_LIMIT};
use gannet_sql::Database;
use gannet_sql::session::Rows;
use gannet_store::OpenOptions;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const TABLE: &str = "create table t (a int primary key, b int); insert into t values (1, 0), (2, 0)";

#[test]
fn who_vanishes_in_a_transaction_leaves_no_locks() {
    let fixture = Fixture::with(TABLE, |_| {});
    for way in 0..5 {
        let mut wire = fixture.connect();
        let mut other = fixture.connect();
        wire.run("begin");
        wire.run("update t set b = 1 where a = 1");
        other.send(&query("update t set b = 2 where a = 1"));
        fixture.wait_until_running("update t set b = 2");
        match way {
            0 => {}
            // In the middle of a message.
            1 => wire.send(b"Q\0\0\0\x20select"),
            // Within a series of messages.
            2 => wire.send(&[parse("", "select 1", &[]), bind("", "", 0, &[], 0), execute("", 1)].concat()),
            // Within a COPY.
            3 => {
                wire.query("copy t from stdin");
                wire.send(&frame(b'd', b"3\t"));
            }
            // With a goodbye.
            _ => wire.send(&frame(b'X', b"")),
        }
        wire.vanish();
        assert_eq!(other.outcome().good().tags, ["UPDATE 1"], "way {way}");
    }
    assert_eq!(fixture.value("select b from t where a = 1"), "2");
    assert_eq!(fixture.value("select count(*) from t"), "2");
}

#[test]
fn a_connection_held_two_descriptors() {
    let fixture = Fixture::alone("");
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    drop(fixture.connect());
    fixture.wait_for("select count(*) from pg_stat_activity where pid <> pg_backend_pid()", "0");
    let before = open();
    let wires: Vec<Wire> = (0..10).map(|_| fixture.connect()).collect();
    // Each end is in this process.
    let more = open() - before;
    assert!(more <= 2 * wires.len(), "{more} descriptors for {} connections", wires.len());
}

#[test]
fn a_statement_nobody_waits_for_ends() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.run("begin; update t set b = 1 where a = 1");
    wire.send(&query("select pg_sleep(1000)"));
    fixture.wait_until_running("select pg_sleep");
    wire.vanish();
    fixture.connect().run("update t set b = 2 where a = 1");
    fixture.wait_for("select count(*) from pg_stat_activity where pid <> pg_backend_pid()", "0");
}

/// A server that takes clients without asking, by TCP as well.
fn by_tcp_too() -> Fixture {
    Fixture::with(TABLE, |options| {
        options.listen = vec!["127.0.0.1:0".parse().unwrap()];
        options.insecure_trust = true;
    })
}

/// A connection by a Unix socket, and one by TCP.
fn both_ways(fixture: &Fixture) -> [Wire; 2] {
    let mut tcp = Wire::tcp(fixture.server().addresses()[0]);
    tcp.start(&[("user", "owner"), ("database", "shop")]).good();
    [fixture.connect(), tcp]
}

#[test]
fn who_only_says_nothing_more_waits_still() {
    let fixture = by_tcp_too();
    // Longer than it takes to be found gone.
    let slow = |number: usize| format!("insert into t values ({number}, 1) returning pg_sleep(2)");
    for (way, mut wire) in both_ways(&fixture).into_iter().enumerate() {
        // With a goodbye behind it, which the server has read along.
        wire.send(&[query(&slow(10 + way)), frame(b'X', b"")].concat());
        wire.stream.finish();
        assert_eq!(wire.outcome().tags, ["INSERT 0 1"], "way {way}");
        assert_eq!(wire.read(), None);
    }
    for (way, mut wire) in both_ways(&fixture).into_iter().enumerate() {
        // A series, behind data that was read while a statement was under way already.
        wire.send(&[parse("", "copy t from stdin", &[]), bind("", "", 0, &[], 0), execute("", 0)].concat());
        assert_eq!(wire.outcome().kinds, "12G");
        let rest = [
            frame(b'd', format!("{}\t1\n", 20 + way).as_bytes()),
            frame(b'c', b""),
            parse("", &slow(30 + way), &[]),
            bind("", "", 0, &[], 0),
            execute("", 0),
            sync(),
        ];
        wire.send(&rest.concat());
        wire.stream.finish();
        assert_eq!(wire.outcome().good().tags, ["COPY 1", "INSERT 0 1"], "way {way}");
    }
    assert_eq!(fixture.value("select count(*) from t"), "8");
}

#[test]
fn who_is_gone_is_noticed_though_nothing_is_sent_to_him() {
    let fixture = by_tcp_too();
    for mut wire in both_ways(&fixture) {
        wire.run("begin; update t set b = 1 where a = 1");
        wire.send(&query("select pg_sleep(1000)"));
        fixture.wait_until_running("select pg_sleep");
        // As the system does it for a process that was killed.
        drop(wire);
        fixture.connect().run("update t set b = 2 where a = 1");
    }
}

#[test]
fn a_client_that_does_not_read_and_vanishes_is_noticed() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.run("begin; update t set b = 1 where a = 1");
    wire.send(&query("select a from generate_series(1, 100000000) a"));
    fixture.wait_until_running("select a from");
    wire.vanish();
    fixture.connect().run("update t set b = 2 where a = 1");
}

#[test]
fn the_server_ends_whatever_its_clients_do() {
    let mut fixture = Fixture::with(TABLE, |options| options.listen = vec!["127.0.0.1:0".parse().unwrap()]);
    let silent = fixture.raw();
    let asked = {
        let mut wire = crate::client::Wire::tcp(fixture.server().addresses()[0]);
        assert_eq!(wire.start(&[("user", "owner"), ("database", "shop")]).kinds, "R");
        wire
    };
    let mut idle = fixture.connect();
    let mut writer = fixture.connect();
    writer.run("begin; update t set b = 1 where a = 1");
    let mut waiter = fixture.connect();
    waiter.send(&query("update t set b = 2 where a = 1"));
    let mut sleeper = fixture.connect();
    sleeper.send(&query("select pg_sleep(1000)"));
    let mut copier = fixture.connect();
    copier.query("copy t from stdin");
    copier.send(&frame(b'd', b"3\t3\n"));
    fixture.wait_until_running("update t set b = 2");
    fixture.wait_until_running("select pg_sleep");
    let mut committed = fixture.connect();
    committed.run("update t set b = 7 where a = 2");
    fixture.stop().unwrap();
    for (name, wire) in [
        ("idle", &mut idle),
        ("writer", &mut writer),
        ("waiter", &mut waiter),
        ("sleeper", &mut sleeper),
        ("copier", &mut copier),
        ("committed", &mut committed),
    ] {
        let told = wire.outcome();
        assert_eq!((told.state(), told.errors[0].get('S'), told.status), ("57P01", "FATAL", ' '), "{name}");
        assert_eq!(told.errors[0].message(), "terminating connection due to administrator command");
    }
    for mut wire in [silent, asked] {
        assert_eq!(wire.read(), None);
    }
    // Socket and folder are gone; the file has what was committed, and nothing else.
    let path = fixture.folder.path().join("shop.gnt");
    assert!(!gannet_server::socket_folder(&path).exists());
    let database = Database::open(&fixture.engine, &path, &OpenOptions::default(), "owner").unwrap();
    let mut rows = Rows::default();
    let mut session = database.session("owner").unwrap();
    session.run("select a, b from t order by a", &mut rows).unwrap();
    assert_eq!(rows.text(), [["1", "0"], ["2", "7"]]);
    drop(session);
    database.close().unwrap();
}

#[test]
fn the_server_ends_though_a_client_does_not_read() {
    let mut fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.send(&query(
        "select a, 'some text to fill the way to the client' from generate_series(1, 100000000) a",
    ));
    fixture.wait_until_running("select a, ");
    let server = fixture.take();
    server.stop(STOP_LIMIT / 6).unwrap();
}

#[test]
fn a_client_that_does_not_read_can_be_ended() {
    let fixture = Fixture::with(TABLE, |options| {
        options.listen = vec!["127.0.0.1:0".parse().unwrap()];
        options.insecure_trust = true;
    });
    let mut tcp = crate::client::Wire::tcp(fixture.server().addresses()[0]);
    tcp.start(&[("user", "owner"), ("database", "shop")]).good();
    for mut wire in [fixture.connect(), tcp] {
        let pid = wire.run("select pg_backend_pid()").one();
        wire.run("begin; update t set b = 1 where a = 1");
        wire.send(&query("select repeat('x', 1000) from generate_series(1, 10000000)"));
        fixture.wait_until_running("select repeat");
        // Until nothing more fits on the way to it, and longer.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(fixture.value(&format!("select pg_terminate_backend({pid})")), "t");
        assert_eq!(fixture.connect().run("update t set b = 2 where a = 1").tags, ["UPDATE 1"]);
        fixture.wait_for(&format!("select count(*) from pg_stat_activity where pid = {pid}"), "0");
        drop(wire);
    }
}

/// How many short messages fit on the way to a client that reads none of them.
fn room_for_messages() -> usize {
    let (mut ours, _theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let message = frame(b'Z', b"I");
    (0..).take_while(|_| ours.write(&message).is_ok_and(|written| written == message.len())).count()
}

/// Waits until the only session is free for somebody else.
fn wait_for_a_place(fixture: &Fixture) {
    let began = Instant::now();
    while fixture.raw().start(&[("user", "owner"), ("database", "shop")]).status != 'I' {
        assert!(began.elapsed() < STOP_LIMIT, "the place is not given back");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_that_says_goodbye_and_does_not_read_gives_its_place_back() {
    let fixture = Fixture::with(TABLE, |options| options.max_connections = 1);
    let mut wire = fixture.connect();
    let mut messages = sync().repeat(room_for_messages());
    // The answer to this does not fit any more.
    messages.extend(parse("", "select 1", &[]));
    messages.extend(frame(b'X', b""));
    wire.send(&messages);
    wait_for_a_place(&fixture);
    drop(wire);
}

#[test]
fn what_a_statement_gave_is_sent_also_where_the_goodbye_came_with_it() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.send(&[query("select 1"), frame(b'X', b"")].concat());
    assert_eq!(wire.outcome().tags, ["SELECT 1"]);
}

#[test]
fn last_words_that_nobody_reads_hold_no_locks_and_no_place() {
    let fixture = Fixture::with(TABLE, |options| options.max_connections = 2);
    let mut other = fixture.connect();
    let mut wire = fixture.connect();
    wire.run("begin; update t set b = 1 where a = 1");
    // The last answer that fits; then its time is over.
    let mut messages = query("set idle_in_transaction_session_timeout = '1ms'");
    messages.extend(sync().repeat(room_for_messages() - 1));
    wire.send(&messages);
    assert_eq!(other.run("update t set b = 2 where a = 1").tags, ["UPDATE 1"]);
    wait_for_a_place(&fixture);
    drop(wire);
}

#[test]
fn a_dropped_server_has_closed_its_databases() {
    let mut fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.run("begin; update t set b = 1 where a = 1");
    drop(fixture.take());
    assert_eq!(wire.outcome().state(), "57P01");
    let path = fixture.folder.path().join("shop.gnt");
    Database::open(&fixture.engine, &path, &OpenOptions::default(), "owner").unwrap().close().unwrap();
}

#[test]
fn what_a_killed_server_has_left_is_used_and_removed() {
    use std::os::unix::fs::DirBuilderExt;
    let mut left = std::path::PathBuf::new();
    let mut fixture = Fixture::with(TABLE, |options| {
        left = gannet_server::socket_folder(&options.paths[0].join("shop.gnt"));
        std::fs::DirBuilder::new().mode(0o700).create(&left).unwrap();
        drop(std::os::unix::net::UnixListener::bind(left.join(".s.PGSQL.5513")).unwrap());
    });
    fixture.connect().run("select count(*) from t");
    fixture.stop().unwrap();
    assert!(!left.exists());
}
