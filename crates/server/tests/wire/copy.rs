//! COPY over the wire.

use crate::client::{Wire, bind, execute, frame, parse, query, sync};
use crate::fixture::Fixture;

const TABLE: &str = "create table t (a int primary key, b text)";

fn data(text: &str) -> Vec<u8> {
    frame(b'd', text.as_bytes())
}

fn done() -> Vec<u8> {
    frame(b'c', b"")
}

#[test]
fn copy_both_ways() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    assert_eq!(wire.query("copy t from stdin").kinds, "G");
    // Pieces are cut anywhere, Flush and Sync are passed over.
    let told = wire.ask(
        &[data("1\tone\n2\tt"), frame(b'H', b""), sync(), data("wo\\nlines\n3\t\\"), data("N\n"), done()]
            .concat(),
    );
    assert_eq!((told.kinds.as_str(), told.tags.as_slice()), ("CZ", ["COPY 3".to_owned()].as_slice()));
    let told = wire.run("copy t to stdout");
    assert_eq!((told.kinds.as_str(), told.tags[0].as_str()), ("HdddcCZ", "COPY 3"));
    assert_eq!(String::from_utf8(told.copied).unwrap(), "1\tone\n2\ttwo\\nlines\n3\t\\N\n");
    let told =
        wire.run("copy (select a, b from t where a < 3 order by a desc) to stdout (format csv, header)");
    assert_eq!(String::from_utf8(told.copied).unwrap(), "a,b\n2,\"two\nlines\"\n1,one\n");
    // Nothing at all.
    assert_eq!(wire.query("copy t from stdin").kinds, "G");
    assert_eq!(wire.ask(&done()).good().tags, ["COPY 0"]);
}

#[test]
fn a_failure_was_told_only_when_more_rows_came() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    assert_eq!(wire.query("copy t from stdin").kinds, "G");
    let rows: String = (0..256).map(|row| format!("{}\tx\n", row.max(1))).collect();
    // Nothing follows, and not the end either; the last line is not even complete.
    wire.send(&data(&(rows + "257")));
    assert_eq!(wire.outcome().state(), "23505");
    // What still comes of it is passed over.
    wire.send(&data("1\n"));
    assert_eq!(wire.run("select count(*) from t").one(), "0");
}

#[test]
fn data_that_does_not_end_in_a_newline_ends_all_the_same() {
    let fixture = Fixture::with("create table t (b text)", |_| {});
    let mut wire = fixture.connect();
    for (rows, tag) in [
        ("a\r", "COPY 1"),
        ("a\rb\r", "COPY 2"),
        ("\r", "COPY 1"),
        ("a\r\\.\r", "COPY 1"),
        ("a", "COPY 1"),
        ("a\\.\nrubbish", "COPY 1"),
    ] {
        for options in ["", " (format csv)"] {
            if rows.starts_with("a\\.") && !options.is_empty() {
                continue;
            }
            wire.query(&format!("copy t from stdin{options}"));
            // Nothing of what follows is taken for data.
            let told = wire.ask(&[data(rows), done(), query("select 1")].concat());
            assert_eq!(told.good().tags, [tag], "{rows:?}{options}");
            assert_eq!(wire.outcome().one(), "1");
        }
    }
    wire.query("copy t from stdin");
    let told = wire.ask(&[data("a\n\\."), done()].concat());
    assert_eq!((told.state(), told.errors[0].message()), ("22P04", "end-of-copy marker corrupt"));
    assert_eq!(wire.run("select 1").one(), "1");
}

/// Begins a COPY that has a time-out, up to where data is asked for, and tells what came back. Where its time is over before that, it is
/// begun again, behind what ends the failed series.
fn begun_in_time(wire: &mut Wire, messages: &[u8], end: &[u8]) -> String {
    for _ in 0..100 {
        wire.send(messages);
        let told = wire.outcome_until(b"GE");
        if told.kinds.ends_with('G') {
            return told.kinds;
        }
        assert_eq!(told.state(), "57014");
        wire.send(end);
        wire.outcome_until(b"Z");
    }
    panic!("no data is asked for");
}

#[test]
fn a_copy_that_waits_for_its_client_can_be_ended() {
    let fixture = Fixture::with(TABLE, |_| {});
    let (mut wire, mut other) = (fixture.connect(), fixture.connect());
    // Before anything was sent, and within a line.
    for sent in [Vec::new(), data("1\tone\n2\t")] {
        wire.query("copy t from stdin");
        wire.send(&sent);
        assert_eq!(other.run(&format!("select pg_cancel_backend({})", wire.pid)).one(), "t");
        let told = wire.outcome();
        assert_eq!(
            (told.state(), told.errors[0].message(), told.status),
            ("57014", "canceling statement due to user request", 'I')
        );
        assert!(told.errors[0].get('W').starts_with("COPY t, line "), "{told:?}");
        // What the client still sends is passed over.
        assert_eq!(wire.ask(&[data("two\n"), done(), query("select count(*) from t")].concat()).one(), "0");
    }
    let mut limited = fixture.connect();
    limited.run("set statement_timeout = '30ms'");
    assert_eq!(begun_in_time(&mut limited, &query("copy t from stdin"), &[]), "G");
    let told = limited.outcome();
    assert_eq!(
        (told.state(), told.errors[0].message()),
        ("57014", "canceling statement due to statement timeout")
    );
    let begun = [parse("", "copy t from stdin", &[]), bind("", "", 0, &[], 0), execute("", 0)].concat();
    assert_eq!(begun_in_time(&mut limited, &begun, &sync()), "12G");
    assert_eq!(limited.outcome_until(b"E").state(), "57014");
    assert_eq!(limited.ask(&[data("1\tone\n"), done(), sync()].concat()).kinds, "Z");
    // Within a message, be it short, long, or too long for the memory: the rest of it is passed over, its boundaries are not lost.
    let long = format!("1\t{}\n", "x".repeat(1 << 20));
    let too_long = frame(b'd', &vec![b'x'; 80 << 20]);
    for (message, cut) in
        [(data("1\tone\n"), 7), (data("1\tone\n"), 3), (data(&long), 700_000), (too_long, 70 << 20)]
    {
        for limit in ["'100ms'", "0"] {
            // With the statement that fails goes the setting: no other one has a time-out.
            let limited = format!("set statement_timeout = {limit}; copy t from stdin");
            assert_eq!(begun_in_time(&mut wire, &query(&limited), &[]), "CG");
            wire.send(&message[..cut]);
            if limit == "0" {
                assert_eq!(other.run(&format!("select pg_cancel_backend({})", wire.pid)).one(), "t");
            }
            // Without another byte of it.
            assert_eq!(wire.outcome().state(), "57014");
            wire.send(&[&message[cut..], &done()].concat());
            assert_eq!(wire.run("select count(*) from t").one(), "0");
        }
    }
    // What is slow, and not ended, is taken.
    wire.query("copy t from stdin");
    let message = data("1\tone\n");
    for byte in &message {
        wire.send(&[*byte]);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(wire.ask(&done()).good().tags, ["COPY 1"]);
    wire.run("truncate t");
    // To end the session ends that wait, too.
    wire.query("copy t from stdin");
    wire.send(&message[..7]);
    assert_eq!(other.run(&format!("select pg_terminate_backend({})", wire.pid)).one(), "t");
    let told = wire.outcome();
    assert_eq!((told.errors[0].get('S'), told.state(), told.status), ("FATAL", "57P01", ' '));
}

#[test]
fn a_load_whose_client_stands_still_within_a_message_ends_with_its_job() {
    let fixture = Fixture::with(TABLE, |_| {});
    let (mut wire, mut other) = (fixture.connect(), fixture.connect());
    assert_eq!(wire.query("load database from stdin").kinds, "G");
    let message = data("insert into t values (1, 'one');\n");
    wire.send(&message[..10]);
    let cancel = "select gannet_cancel_job(id) from gannet_jobs where job = 'load' and state = 'running'";
    assert_eq!(other.run(cancel).one(), "t");
    assert_eq!(wire.outcome().state(), "57014");
    wire.send(&[&message[10..], &done()].concat());
    assert_eq!(wire.run("select count(*) from t").one(), "0");
}

#[test]
fn the_client_may_give_up() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.query("copy t from stdin");
    let told = wire.ask(&[data("1\tone\n"), frame(b'f', b"no more\0")].concat());
    assert_eq!(
        (told.state(), told.errors[0].message(), told.status),
        ("57014", "COPY from stdin failed: no more", 'I')
    );
    assert_eq!(told.errors[0].get('W'), "COPY t, line 2");
    assert_eq!(wire.run("select count(*) from t").one(), "0");
    wire.run("begin");
    wire.query("copy t from stdin");
    assert_eq!(wire.ask(&frame(b'f', b"\0")).status, 'E');
    wire.run("rollback");
}

#[test]
fn a_bad_row_is_named_and_what_still_comes_is_passed_over() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    for (rows, state, context) in [
        ("1\tone\nx\ttwo\n", "22P02", "COPY t, line 2, column a: \"x\""),
        ("1\n", "22P04", "COPY t, line 1: \"1\""),
        ("1\ta\tb\n", "22P04", "COPY t, line 1: \"1\ta\tb\""),
        ("1\ta\n2\tb\\.c\n", "22P04", "COPY t, line 2"),
        ("1\ta\r\n2\tb\n", "22P04", "COPY t, line 2"),
        ("1\ta\n2\tb\n1\tc\n", "23505", "COPY t, line 3"),
        ("\\N\ta\n", "23502", "COPY t, line 1"),
    ] {
        wire.query("copy t from stdin");
        let mut bytes = data(rows);
        for _ in 0..100 {
            bytes.extend(data("7\tmore\n"));
        }
        bytes.extend(done());
        bytes.extend(query("select count(*) from t"));
        let told = wire.ask(&bytes);
        assert_eq!((told.kinds.as_str(), told.state()), ("EZ", state), "{rows:?}");
        assert_eq!(told.errors[0].get('W'), context);
        assert_eq!(wire.outcome().one(), "0");
    }
}

#[test]
fn invalid_utf_8_is_refused() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.query("copy t from stdin");
    let told = wire.ask(&[frame(b'd', b"1\t\xff\n"), done()].concat());
    assert_eq!(told.state(), "22021");
}

#[test]
fn copy_in_the_extended_protocol() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let begun = |sql: &str| [parse("", sql, &[]), bind("", "", 0, &[], 0), execute("", 0)].concat();
    assert_eq!(wire.ask(&[begun("copy t from stdin"), sync()].concat()).kinds, "12G");
    assert_eq!(wire.ask(&[data("1\tone\n"), done(), sync()].concat()).good().tags, ["COPY 1"]);
    let told = wire.ask(&[begun("copy t to stdout"), sync()].concat());
    assert_eq!((told.kinds.as_str(), told.copied.as_slice()), ("12HdcCZ", b"1\tone\n".as_slice()));
    // After an error everything up to Sync is passed over: data, too.
    assert_eq!(wire.ask(&begun("copy t from stdin")).kinds, "12G");
    let told = wire.ask(&[data("x\tone\n"), data("2\ttwo\n"), done(), execute("", 0), sync()].concat());
    assert_eq!((told.kinds.as_str(), told.state()), ("EZ", "22P02"));
    assert_eq!(wire.run("select count(*) from t").one(), "1");
}

#[test]
fn messages_that_do_not_belong_into_a_copy_end_the_connection() {
    let fixture = Fixture::with(TABLE, |_| {});
    for message in [query("select 1"), execute("", 0), frame(b'y', b""), frame(b'p', b"secret\0")] {
        let mut wire = fixture.connect();
        wire.query("copy t from stdin");
        let told = wire.ask(&[data("1\tone\n"), message].concat());
        assert_eq!(told.status, ' ', "{told:?}");
        assert_eq!(told.errors.last().unwrap().get('S'), "FATAL");
        assert!(told.errors.iter().all(|error| error.state() == "08P01"), "{told:?}");
    }
    // A length that makes no sense: nothing behind it is taken for a message.
    let mut wire = fixture.connect();
    wire.query("copy t from stdin");
    let told = wire.ask(&[data("1\tone\n"), b"d\0\0\0\x01".to_vec(), done(), query("select 1")].concat());
    assert_eq!((told.kinds.as_str(), told.state()), ("E", "08P01"));
    assert_eq!(fixture.value("select count(*) from t"), "0");
}

#[test]
fn a_message_that_is_no_data_does_not_vanish_because_it_is_too_long() {
    let fixture = Fixture::with(TABLE, |_| {});
    // More than the budget has room for, and one that makes no sense.
    for message in [query(&" ".repeat(80 << 20)), frame(b'B', b"\0")] {
        let mut wire = fixture.connect();
        wire.query("copy t from stdin");
        let told = wire.ask(&[data("1\tone\n"), message].concat());
        let errors: Vec<_> = told.errors.iter().map(|error| (error.get('S'), error.state())).collect();
        assert_eq!(
            (errors.as_slice(), told.status),
            ([("ERROR", "08P01"), ("FATAL", "08P01")].as_slice(), ' ')
        );
    }
    assert_eq!(fixture.value("select count(*) from t"), "0");
}

#[test]
fn copies_of_several_statements() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    assert_eq!(wire.query("insert into t values (1, 'a'); copy t from stdin; copy t to stdout").kinds, "CG");
    let told = wire.ask(&[data("2\tb\n"), done()].concat());
    assert_eq!((told.kinds.as_str(), told.copied.as_slice()), ("CHddcCZ", b"1\ta\n2\tb\n".as_slice()));
    // Outside of a COPY its messages are passed over.
    assert_eq!(wire.ask(&[data("3\tc\n"), done(), frame(b'f', b""), sync()].concat()).kinds, "Z");
}
