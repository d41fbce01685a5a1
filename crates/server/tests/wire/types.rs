//! Values of every type, as text and binary, both ways.

use crate::client::{Body, bind, execute, frame, parse};
use crate::fixture::Fixture;

/// Type, number, text, and PostgreSQL's binary form.
fn samples() -> Vec<(&'static str, u32, &'static str, Vec<u8>)> {
    let array = |oid: i32, values: &[&[u8]]| {
        let mut body = Body::new().i32(1).i32(0).i32(oid).i32(values.len() as i32).i32(1);
        for value in values {
            body = body.value(Some(value));
        }
        body.0
    };
    vec![
        ("bool", 16, "t", vec![1]),
        ("bytea", 17, "\\x00ff5c", vec![0, 0xff, 0x5c]),
        ("int2", 21, "-2", (-2_i16).to_be_bytes().to_vec()),
        ("int4", 23, "65536", 65536_i32.to_be_bytes().to_vec()),
        ("int8", 20, "-9223372036854775808", i64::MIN.to_be_bytes().to_vec()),
        ("float4", 700, "1.5", 1.5_f32.to_be_bytes().to_vec()),
        ("float8", 701, "-0.1", (-0.1_f64).to_be_bytes().to_vec()),
        ("float8", 701, "NaN", f64::NAN.to_be_bytes().to_vec()),
        ("numeric", 1700, "12345.678", Body::new().i16(3).i16(1).i16(0).i16(3).i16(1).i16(2345).i16(6780).0),
        ("numeric", 1700, "-0.0001", Body::new().i16(1).i16(-1).i16(0x4000).i16(4).i16(1).0),
        ("numeric", 1700, "NaN", Body::new().i16(0).i16(0).i16(-0x4000).i16(0).0),
        ("text", 25, "héllo\tworld", "héllo\tworld".as_bytes().to_vec()),
        ("text", 25, "", Vec::new()),
        ("varchar", 1043, "v", b"v".to_vec()),
        ("name", 19, "n", b"n".to_vec()),
        ("oid", 26, "4000000000", 4_000_000_000_u32.to_be_bytes().to_vec()),
        ("date", 1082, "1999-12-31", (-1_i32).to_be_bytes().to_vec()),
        ("date", 1082, "infinity", i32::MAX.to_be_bytes().to_vec()),
        ("timestamp", 1114, "2000-01-01 00:00:01.5", 1_500_000_i64.to_be_bytes().to_vec()),
        ("timestamptz", 1184, "2000-01-01 09:00:00+09", 0_i64.to_be_bytes().to_vec()),
        ("int4[]", 1007, "{1,-1}", array(23, &[&1_i32.to_be_bytes(), &(-1_i32).to_be_bytes()])),
        ("text[]", 1009, "{a,\"b c\"}", array(25, &[b"a", b"b c"])),
    ]
}

#[test]
fn every_type_goes_both_ways_in_both_formats() {
    let fixture = Fixture::new();
    let mut wire = fixture.connect();
    wire.run("set timezone to 'Asia/Tokyo'");
    for (name, oid, text, binary) in samples() {
        let ways = [(0, 0), (0, 1), (1, 0), (1, 1)];
        for (given, wanted) in ways {
            let value = if given == 0 { text.as_bytes() } else { &binary };
            let expected = if wanted == 0 { text.as_bytes() } else { &binary };
            let told = wire
                .series(&[
                    parse("", &format!("select $1::{name}"), &[]),
                    bind("", "", given, &[Some(value)], wanted),
                    crate::client::target(b'D', b'P', ""),
                    execute("", 0),
                ])
                .good();
            assert_eq!(told.columns[0].1, oid, "{name}");
            assert_eq!(told.columns[0].2, wanted, "{name}");
            assert_eq!(told.rows[0][0].as_deref(), Some(expected), "{name} {text} from {given} to {wanted}");
        }
        let null = wire
            .series(&[
                parse("", &format!("select $1::{name}"), &[oid]),
                bind("", "", 1, &[None], 1),
                execute("", 0),
            ])
            .good();
        assert_eq!(null.rows, [[None]], "{name}");
    }
}

#[test]
fn types_given_by_the_client_count() {
    let fixture = Fixture::new();
    let mut wire = fixture.connect();
    for (oid, name) in [(20, "bigint"), (25, "text"), (1700, "numeric"), (1184, "timestamp with time zone")] {
        let told = wire.series(&[
            parse("", "select pg_typeof($1)", &[oid]),
            crate::client::target(b'D', b'S', ""),
            bind("", "", 0, &[None], 0),
            execute("", 0),
        ]);
        assert_eq!((told.parameters.as_slice(), told.one()), ([oid].as_slice(), name.to_owned()));
    }
    let told = wire.series(&[parse("", "select $1", &[3_000_000_000])]);
    assert_eq!(
        (told.state(), told.errors[0].message()),
        ("42704", "type with OID 3000000000 does not exist")
    );
}

#[test]
fn bytes_that_are_no_value_are_refused() {
    let fixture = Fixture::new();
    let mut wire = fixture.connect();
    let cases: [(&str, i16, &[u8], &str); 16] = [
        ("int4", 0, b"x", "22P02"),
        ("int4", 0, b"99999999999", "22003"),
        ("int4", 1, b"\0\0\0", "22P03"),
        ("int4", 1, b"\0\0\0\0\0", "22P03"),
        ("bool", 1, b"", "22P03"),
        ("float8", 1, b"abc", "22P03"),
        ("text", 0, b"\xff", "22021"),
        ("text", 1, b"a\xc3", "22021"),
        ("text", 1, b"a\0b", "22021"),
        ("text", 0, b"a\0b", "22021"),
        ("date", 1, b"\0", "22P03"),
        ("timestamp", 0, b"tomorrowish", "22007"),
        ("numeric", 1, b"\0\x01\0\0\0\0\0\0", "22P03"),
        ("numeric", 1, b"\0\x01\0\0\0\0\0\0\x7f\xff", "22P03"),
        ("int4[]", 1, b"\x7f\xff\xff\xff\0\0\0\0\0\0\0\x17", "0A000"),
        ("int4[]", 1, b"\0\0\0\x01\0\0\0\0\0\0\0\x17\x7f\xff\xff\xff\0\0\0\x01", "22P03"),
    ];
    for (name, format, bytes, state) in cases {
        let told = wire.series(&[
            parse("", &format!("select $1::{name}"), &[]),
            bind("", "", format, &[Some(bytes)], 0),
            execute("", 0),
        ]);
        // Bytes that are missing are the message's fault, as PostgreSQL sees it.
        let fits = told.state() == state || state == "22P03" && told.state() == "08P01";
        assert!(fits, "{name} {bytes:?}: {told:?}");
    }
    let told = wire.series(&[parse("", "select $1::int4", &[]), bind("named", "", 0, &[Some(b"x")], 0)]);
    assert_eq!(told.errors[0].get('W'), "portal \"named\" parameter $1");
}

#[test]
fn formats_are_chosen_column_by_column() {
    let fixture = Fixture::new();
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select 1, 2", &[])]).good();
    let bytes = Body::new().str("").str("s").i16(0).i16(0).i16(2).i16(1).i16(0).0;
    let told = wire.series(&[frame(b'B', &bytes), execute("", 0)]).good();
    assert_eq!(told.rows, [[Some(vec![0, 0, 0, 1]), Some(b"2".to_vec())]]);
}
