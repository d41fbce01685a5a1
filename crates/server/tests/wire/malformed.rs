//! Messages that are none. Whatever is sent, the server goes on for everybody else.

use crate::cancel::memory;
use crate::client::{Body, bind, execute, first, frame, parse, query, sync, target};
use crate::fixture::Fixture;

const TABLE: &str = "create table t (a int primary key)";

#[test]
fn first_messages() {
    let fixture = Fixture::new();
    let known = [("user", "owner"), ("database", "shop")];
    // What ends with an error: bytes, and words of the message.
    let refused: Vec<(Vec<u8>, &str)> = vec![
        (first(2 << 16, &known), "unsupported frontend protocol 2.0"),
        (first(4 << 16, &known), "unsupported frontend protocol 4.0"),
        (first(0, &known), "unsupported frontend protocol 0.0"),
        (first(3 << 16, &[("database", "shop")]), "no PostgreSQL user name"),
        (first(3 << 16, &[("user", ""), ("database", "shop")]), "no PostgreSQL user name"),
        (first(3 << 16, &[("user", "owner"), ("database", "shop"), ("replication", "true")]), "replication"),
        (first(3 << 16, &[("user", "owner"), ("database", "shop"), ("nonsense", "1")]), "nonsense"),
        (
            first(3 << 16, &[("user", "owner"), ("database", "shop"), ("options", "-c work_memo=1")]),
            "work_memo",
        ),
        (first(3 << 16, &[("user", "owner"), ("database", "shop"), ("client_encoding", "LATIN9")]), ""),
        (b"\0\0\0\x0c\0\x03\0\0user".to_vec(), "invalid message format"),
        (b"\0\0\0\x0f\0\x03\0\0user\0\xff\0".to_vec(), "UTF8"),
        (b"\0\0\0\x09\0\x03\0\0\0".to_vec(), "no PostgreSQL user name"),
        (b"\0\0\0\x08\x04\xd2\x16\x2e".to_vec(), "invalid message format"),
        (b"\0\0\0\x04".to_vec(), "invalid length of startup packet"),
        (b"\xff\xff\xff\xff".to_vec(), "invalid length of startup packet"),
        (b"\x7f\xff\xff\xff".to_vec(), "invalid length of startup packet"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "invalid length of startup packet"),
        (b"\x16\x03\x01\x02\0\x01".to_vec(), "invalid length of startup packet"),
    ];
    for (bytes, words) in refused {
        let mut wire = fixture.raw();
        wire.send(&bytes);
        let told = wire.started();
        assert_eq!(
            (told.kinds.replace(['R', 'v', 'S'], "").as_str(), told.status),
            ("E", ' '),
            "{bytes:?}: {told:?}"
        );
        assert_eq!(told.errors[0].get('S'), "FATAL");
        assert!(told.errors[0].message().contains(words), "{told:?}");
    }
    for bytes in [&b""[..], b"\0", b"\0\0\0\x20", b"\0\0\0\x20\0\x03\0\0user"] {
        let mut wire = fixture.raw();
        wire.send(bytes);
        wire.vanish();
    }
    fixture.connect().run("select 1");
}

#[test]
fn newer_protocols_are_negotiated_down() {
    let fixture = Fixture::new();
    let known = [("user", "owner"), ("database", "shop"), ("_pq_.wishes", "many")];
    let mut wire = fixture.raw();
    wire.send(&first((3 << 16) + 2, &known));
    let reply = wire.read().unwrap();
    assert_eq!((reply.kind, reply.body), (b'v', Body::new().i32(3 << 16).i32(1).str("_pq_.wishes").0));
    assert_eq!(wire.started().status, 'I');
    let mut wire = fixture.raw();
    assert_eq!(wire.start_as((3 << 16) + 9999, &known[..2]).good().kinds[..2], *"vR");
    // Version 3.0 without wishes is not negotiated about.
    assert_eq!(fixture.raw().start(&known[..2]).good().kinds[..2], *"RS");
}

#[test]
fn messages_that_make_no_sense_are_errors_and_the_session_goes_on() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let bodies: Vec<(u8, Vec<u8>)> = vec![
        (b'P', b"".to_vec()),
        (b'P', b"s\0".to_vec()),
        (b'P', b"s\0select 1\0".to_vec()),
        (b'P', b"s\0select 1\0\0\x01".to_vec()),
        (b'P', b"s\0select 1\0\xff\xff".to_vec()),
        (b'P', b"s\0select 1\0\0\0x".to_vec()),
        (b'P', b"s\0select 1".to_vec()),
        (b'P', b"\xff\0select 1\0\0\0".to_vec()),
        (b'P', b"s\0select '\xc3'\0\0\0".to_vec()),
        (b'B', b"".to_vec()),
        (b'B', b"\0".to_vec()),
        (b'B', b"\0\0\0\0\xff\xff".to_vec()),
        (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0".to_vec()),
        (b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0".to_vec()),
        (b'B', b"\0\0\0\0\0\x01\0\0\0\x05abc".to_vec()),
        (b'B', b"\0\0\x7f\xff\0\0\0\0".to_vec()),
        (b'B', b"\0\0\0\0\0\0\0\x01".to_vec()),
        (b'D', b"".to_vec()),
        (b'D', b"X\0".to_vec()),
        (b'D', b"S".to_vec()),
        (b'C', b"".to_vec()),
        (b'C', b"X\0".to_vec()),
        (b'E', b"".to_vec()),
        (b'E', b"\0".to_vec()),
        (b'E', b"\0\0\0\0".to_vec()),
        (b'E', b"\0\0\0\0\0more".to_vec()),
        (b'H', b"x".to_vec()),
    ];
    for (kind, body) in &bodies {
        let told = wire.series(&[frame(*kind, body), query("select 1")]);
        assert_eq!(
            (told.kinds.as_str(), told.status),
            ("EZ", 'I'),
            "{} {body:?}: {told:?}",
            char::from(*kind)
        );
        assert!(matches!(told.state(), "08P01" | "22021"), "{told:?}");
    }
    // These are answered with ReadyForQuery right away.
    for (kind, body) in [
        (b'Q', &b""[..]),
        (b'Q', b"select 1"),
        (b'Q', b"select 1\0x"),
        (b'Q', b"select '\xff'\0"),
        (b'S', b"x"),
        (b'F', b"\0\0\0\x01\0\0\0\0\0\0"),
    ] {
        let told = wire.ask(&frame(kind, body));
        assert_eq!((told.kinds.as_str(), told.status), ("EZ", 'I'), "{} {body:?}", char::from(kind));
    }
    assert_eq!(wire.run("select 1").one(), "1");
}

#[test]
fn types_and_lengths_that_do_not_exist_end_the_connection() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut messages: Vec<Vec<u8>> =
        (0..=255).filter(|kind| !b"QPBDECHSdcfFX".contains(kind)).map(|kind| frame(kind, b"")).collect();
    messages.truncate(40);
    messages.extend([b'p', b'R', b'Z', 0xff].map(|kind| frame(kind, b"secret\0")));
    for kind in *b"QPBSdX" {
        for len in [0, 1, 3, -1, i32::MIN, i32::MAX, 1 << 30] {
            messages.push(Body::new().u8(kind).i32(len).0);
        }
    }
    for message in messages {
        let mut wire = fixture.connect();
        wire.run("begin; insert into t values (1)");
        let told = wire.ask(&[message.clone(), query("commit")].concat());
        assert_eq!(
            (told.kinds.as_str(), told.state(), told.errors[0].get('S')),
            ("E", "08P01", "FATAL"),
            "{message:?}"
        );
    }
    assert_eq!(fixture.value("select count(*) from t"), "0");
}

#[test]
fn messages_out_of_order() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    assert_eq!(wire.ask(&sync()).kinds, "Z");
    assert_eq!(wire.series(&[execute("", 0)]).state(), "34000");
    assert_eq!(wire.series(&[bind("", "", 0, &[], 0)]).state(), "26000");
    assert_eq!(wire.series(&[target(b'D', b'P', "")]).state(), "34000");
    let told = wire.series(&[parse("", "select 1", &[]), execute("", 0)]);
    assert_eq!((told.kinds.as_str(), told.state()), ("1EZ", "34000"));
    // A simple query within a series ends what it began.
    wire.send(
        &[parse("s", "insert into t values (1)", &[]), bind("", "s", 0, &[], 0), execute("", 0)].concat(),
    );
    assert_eq!(wire.ask(&query("select count(*) from t")).kinds, "12CTDCZ");
    assert_eq!(wire.ask(&sync()).kinds, "Z");
    assert_eq!(fixture.value("select count(*) from t"), "1");
    // A negative limit is none, as in PostgreSQL.
    let told = wire.series(&[
        parse("", "select generate_series(1, 3)", &[]),
        bind("", "", 0, &[], 0),
        execute("", -1),
    ]);
    assert_eq!((told.kinds.as_str(), told.rows.len()), ("12DCZ", 3));
}

#[test]
fn a_length_is_only_a_claim() {
    let fixture = Fixture::alone(TABLE);
    let (used, began) = (fixture.engine.budget().used(), memory());
    let mut claims = Vec::new();
    for kind in *b"QPBd" {
        let mut wire = fixture.connect();
        wire.send(&Body::new().u8(kind).i32((1 << 30) - 1).raw(b"select").0);
        claims.push(wire);
    }
    for _ in 0..20 {
        fixture.connect().run("select count(*) from t");
    }
    let taken = fixture.engine.budget().used() - used;
    assert!(taken <= 16 << 20 && memory() < began + (64 << 20), "{taken} of the budget");
    claims.into_iter().for_each(crate::client::Wire::vanish);
    // One that comes in full, but does not fit into the budget, is refused, and the session goes on.
    let mut wire = fixture.connect();
    let large = vec![b' '; 200 << 20];
    let told = wire.ask(&query(std::str::from_utf8(&large).unwrap()));
    assert_eq!((told.kinds.as_str(), told.state(), told.status), ("EZ", "53200", 'I'));
    let told = wire.series(&[parse("", std::str::from_utf8(&large).unwrap(), &[]), execute("", 0)]);
    assert_eq!((told.kinds.as_str(), told.state()), ("EZ", "53200"));
    assert_eq!(wire.run("select 1").one(), "1");
}
