//! Statements that are large, deep or many: each is answered, or refused with an error that says why, and the server goes on.

use crate::cancel::memory;
use crate::client::{Body, Outcome, bind, bind_each, execute, frame, parse, target};
use crate::fixture::Fixture;

const TABLE: &str = "create table t (a int primary key, b text)";

#[test]
fn a_statement_of_ten_megabytes() {
    let fixture = Fixture::of(&["shop"], TABLE, 256 << 20, |_| {});
    let mut wire = fixture.connect();
    let text = "x".repeat(10 << 20);
    let told = wire.run(&format!("select length('{text}')"));
    assert_eq!(told.one(), (10 << 20).to_string());
    let told = wire.series(&[
        parse("", "insert into t values (1, $1)", &[]),
        bind("", "", 0, &[Some(text.as_bytes())], 0),
        execute("", 0),
    ]);
    assert_eq!(told.good().tags, ["INSERT 0 1"]);
    assert_eq!(wire.run("select b from t").one().len(), text.len());
    let told = wire.run(&format!("select 1 {}", " ".repeat(10 << 20)));
    assert_eq!(told.one(), "1");
    assert_eq!(wire.run(&format!("select 1 /* {text} */ + 1")).one(), "2");
}

#[test]
fn as_many_parameters_as_the_protocol_can_count() {
    let fixture = Fixture::of(&["shop"], TABLE, 256 << 20, |_| {});
    let mut wire = fixture.connect();
    let rows = |count: usize| {
        let rows: Vec<String> = (1..=count).map(|n| format!("(${n})")).collect();
        format!("insert into t (a) values {}", rows.join(","))
    };
    let numbers: Vec<String> = (1..=70_000).map(|n: u32| n.to_string()).collect();
    let values: Vec<Option<&[u8]>> = numbers.iter().map(|text| Some(text.as_bytes())).collect();
    // In two parts: the description is longer than what fits on the way to a client that is still sending.
    let told = wire.series(&[parse("", &rows(65_535), &[]), target(b'D', b'S', "")]).good();
    assert_eq!(told.parameters.len(), 65_535);
    let told = wire.series(&[bind("", "", 0, &values[..65_535], 0), execute("", 0)]).good();
    assert_eq!(told.tags, ["INSERT 0 65535"]);
    assert_eq!(wire.run("select sum(a) from t").one(), "2147450880");
    for sql in [rows(70_000), "select $70000::int".to_owned(), "select $99999999999999999999".to_owned()] {
        let told = wire.series(&[parse("", &sql, &[]), target(b'D', b'S', "")]);
        assert!(matches!(told.state(), "54023" | "42P02" | "42601"), "{:?}", told.errors);
    }
    // 70,000 values of which the count says 4,464.
    let told = wire.series(&[parse("", "select $1::int", &[]), bind("", "", 0, &values, 0)]);
    assert_eq!(told.state(), "08P01");
    assert_eq!(wire.run("select 1").one(), "1");
}

#[test]
fn what_is_nested_deeply_is_answered_or_refused() {
    let fixture = Fixture::of(&["shop"], TABLE, 256 << 20, |_| {});
    let mut wire = fixture.connect();
    let around = |open: &str, core: &str, close: &str, depth: usize| {
        format!("{}{core}{}", open.repeat(depth), close.repeat(depth))
    };
    let mut refused = 0;
    for depth in [100, 1_000, 10_000] {
        let joins: String = (0..depth.min(1_000)).map(|n| format!(" join t t{n} on t{n}.a = t.a")).collect();
        let statements = [
            format!("select {}", around("(", "1", ")", depth)),
            format!("select {} true", "not ".repeat(depth)),
            format!("select {} 1", "- ".repeat(depth)),
            format!("select {}", around("case when true then ", "1", " end", depth)),
            format!("select {}", around("abs(", "1", ")", depth)),
            format!("select {}", around("(select ", "1", ")", depth)),
            format!("select * from {}", around("(select * from ", "t", ") x", depth)),
            format!("select 1 {}", " + 1".repeat(depth)),
            format!("select a from t where true {}", " and a = 1".repeat(depth)),
            format!("select a from t where false {}", " or a = 1".repeat(depth)),
            format!("select a from t where a in (1{})", ", 1".repeat(depth)),
            format!("select a from t group by a having true {}", " and a = 1".repeat(depth.min(10_000))),
            format!("select 1 {}", " union all select 1".repeat(depth)),
            format!("select t.a from t{joins}"),
            format!("select {}", around("array[", "1", "]", depth)),
            format!("select 1 {}", "::int".repeat(depth)),
            format!("select {}", around("exists (select 1 where ", "true", ")", depth)),
            format!("with {} select 1", around("x as (select 1), ", "y as (select 1)", "", depth)),
            "(".repeat(depth),
            format!("select {}", "[".repeat(depth)),
            format!("select {}1", "/*".repeat(depth)),
            format!("{}select 1", "explain ".repeat(depth)),
        ];
        for sql in statements {
            let shown = sql.chars().take(60).collect::<String>();
            let told = wire.query(&sql);
            assert_ne!(told.status, ' ', "{shown} {depth} ends the connection");
            if !told.errors.is_empty() {
                refused += 1;
                let known = [
                    "54001", "54000", "54011", "54023", "42601", "0A000", "53200", "42883", "42P10", "42712",
                    "2202E",
                ];
                assert!(known.contains(&told.state()), "{shown} {depth}: {:?}", told.errors);
            }
            let told = wire.series(&[parse("", &sql, &[])]);
            assert_ne!(told.status, ' ', "{shown} {depth} ends the connection");
        }
        assert!(depth > 100 || refused < 12, "{refused} of a hundred levels are refused");
    }
    assert!(refused > 0);
    assert_eq!(fixture.value("select 1"), "1");
}

/// Repeats until an error; how often, and the error.
fn until_error(most: usize, mut step: impl FnMut(usize) -> Outcome) -> (usize, Outcome) {
    for number in 0..most {
        let told = step(number);
        if !told.errors.is_empty() {
            return (number, told);
        }
    }
    panic!("no error in {most} steps");
}

#[test]
fn prepared_statements_take_memory_of_the_budget() {
    let fixture = Fixture::alone(TABLE);
    let mut wire = fixture.connect();
    let (began, used) = (memory(), fixture.engine.budget().used());
    let (count, told) = until_error(100_000, |number| {
        wire.series(&[parse(&format!("s{number}"), "select a, b from t where a > $1 order by b", &[])])
    });
    assert_eq!(told.state(), "53200", "{told:?}");
    assert!(count > 100, "{count}");
    assert!(memory() < began + (128 << 20), "{count} statements, {} bytes", memory() - began);
    // Others go on; this one too, once it has closed some.
    fixture.connect().run("select count(*) from t");
    let longer = "select a, b, a, b from t where a > $1 order by b, a";
    assert_eq!(wire.series(&[parse("", longer, &[])]).state(), "53200");
    wire.run("deallocate all");
    wire.series(&[parse("", "select 1", &[]), bind("", "", 0, &[], 0), execute("", 0)]).good();
    // Texts count by their length.
    let long = format!("select '{}'", "x".repeat(100_000));
    let (count, told) = until_error(100, |number| wire.series(&[parse(&format!("l{number}"), &long, &[])]));
    assert!(count < 40 && told.state() == "53200", "{count}");
    drop(wire);
    fixture.wait_for("select count(*) from pg_stat_activity where pid <> pg_backend_pid()", "0");
    assert!(fixture.engine.budget().used() < used + (4 << 20));
}

#[test]
fn portals_take_memory_of_the_budget() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    wire.series(&[parse("s", "select $1::text", &[])]).good();
    let value = "x".repeat(100_000);
    let with_value = |number: usize| bind(&format!("p{number}"), "s", 0, &[Some(value.as_bytes())], 0);
    wire.run("begin");
    let (count, told) = until_error(10_000, |number| wire.series(&[with_value(number)]));
    assert!(count > 10 && told.state() == "53200", "{count} {told:?}");
    // The error has failed the transaction, with which the portals have gone.
    wire.run("rollback; begin");
    let none = |number: usize| {
        frame(b'B', &Body::new().str(&format!("p{number}")).str("s").i16(0).i16(1).i32(-1).i16(0).0)
    };
    let (count, told) = until_error(1_000_000, |number| wire.series(&[none(number)]));
    assert!(count > 1_000 && told.state() == "53200", "{count} {told:?}");
    wire.run("rollback; begin");
    // What one has read ahead, and not given yet, counts as well.
    wire.series(&[parse("q", "select repeat('x', 400) from generate_series(1, 300)", &[])]).good();
    let begun =
        |number: usize| [bind(&format!("p{number}"), "q", 0, &[], 0), execute(&format!("p{number}"), 3)];
    let (count, told) = until_error(10_000, |number| wire.series(&begun(number)));
    assert!((10..1_000).contains(&count) && told.state() == "53200", "{count} {told:?}");
    wire.run("rollback; begin");
    // Those that are through do not.
    for number in 0..5 * count {
        wire.series(&[begun(number)[0].clone(), begun(number)[1].clone(), execute(&format!("p{number}"), 0)])
            .good();
    }
    wire.run("rollback");
    assert_eq!(wire.series(&[with_value(0), execute("p0", 0)]).good().one(), value);
}

#[test]
fn formats_and_types_that_nobody_needs_take_memory_of_the_budget_or_none() {
    let fixture = Fixture::alone(TABLE);
    let mut wire = fixture.connect();
    let began = memory();
    // As many as the protocol can count.
    let mixed: Vec<i16> = (0..u16::MAX).map(|index| (index % 2) as i16).collect();
    wire.series(&[parse("s", "begin", &[])]).good();
    wire.run("begin");
    let mut bound = bind_each("p0000", "s", &[], &[], &mixed);
    for number in 0..800 {
        // Its name, behind the head.
        bound[5..10].copy_from_slice(format!("p{number:04}").as_bytes());
        wire.series(std::slice::from_ref(&bound)).good();
    }
    let more = memory().saturating_sub(began);
    // Page frames that are used meanwhile take some, too, by huge pages. All formats would be 100 MiB.
    assert!(more < 64 << 20, "{more} bytes");
    // Those of columns are kept, and count.
    wire.run("rollback");
    let columns: Vec<String> = (0..1_500).map(|column| column.to_string()).collect();
    wire.series(&[parse("wide", &format!("select {}", columns.join(",")), &[])]).good();
    let each = |number: usize, formats: &[i16]| bind_each(&format!("p{number}"), "wide", &[], &[], formats);
    wire.run("begin");
    let (plain, told) = until_error(1_000_000, |number| wire.series(&[each(number, &[0])]));
    assert_eq!(told.state(), "53200", "{told:?}");
    wire.run("rollback; begin");
    let (with_formats, told) = until_error(1_000_000, |number| wire.series(&[each(number, &mixed[..1_500])]));
    assert_eq!(told.state(), "53200", "{told:?}");
    assert!(2 * with_formats < plain, "{with_formats} and {plain} portals");
    // Types of parameters that the statement has not.
    wire.run("rollback");
    let types = vec![23; usize::from(u16::MAX)];
    let (count, told) =
        until_error(10_000, |number| wire.series(&[parse(&format!("t{number}"), "begin", &types)]));
    assert!(count < 100 && told.state() == "53200", "{count} {told:?}");
}

#[test]
fn a_statement_that_was_closed_is_charged_as_long_as_it_has_a_portal() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut wire = fixture.connect();
    let long = "x".repeat(10_000);
    let mut closed = |name: &str, number: usize, begin: bool| {
        let (text, portal) = (format!("select '{long}{number}'"), format!("p{number}"));
        let mut messages = vec![parse(name, &text, &[]), bind(&portal, name, 0, &[], 0)];
        if !name.is_empty() {
            messages.push(target(b'C', b'S', name));
        }
        if begin {
            wire.run("rollback; begin");
        }
        wire.series(&messages)
    };
    for name in ["s", ""] {
        let (count, told) = until_error(1_000, |number| closed(name, number, number == 0));
        assert!((5..100).contains(&count) && told.state() == "53200", "{name}: {count} {told:?}");
    }
    // With their portals they have gone; one after the other there may be as many as one likes.
    wire.run("rollback; begin");
    for number in 0..200 {
        let text = format!("select '{long}{number}'");
        let messages = [
            parse("s", &text, &[]),
            bind("p", "s", 0, &[], 0),
            target(b'C', b'S', "s"),
            execute("p", 0),
            target(b'C', b'P', "p"),
        ];
        assert_eq!(wire.series(&messages).good().one().len(), long.len() + number.to_string().len());
    }
}

#[test]
fn values_too_large_for_the_budget_are_refused() {
    let fixture = Fixture::alone(TABLE);
    let mut wire = fixture.connect();
    let began = memory();
    for sql in [
        "select repeat('x', 1000000000)",
        "select repeat('x', 1000000000), repeat('y', 1000000000)",
        "select string_agg(repeat('x', 1000000), '') from generate_series(1, 1000)",
        "insert into t select 1, repeat('x', 1000000000)",
    ] {
        let told = wire.query(sql);
        assert!(matches!(told.state(), "53200" | "54000" | "22023"), "{sql}: {:?}", told.errors);
    }
    assert!(memory() < began + (256 << 20), "{} bytes more", memory() - began);
    assert_eq!(wire.run("select length(repeat('x', 1000000))").one(), "1000000");
}

#[test]
fn rows_of_records_and_long_numbers_are_charged_as_what_they_become() {
    let fixture = Fixture::alone(TABLE);
    let mut wire = fixture.connect();
    let began = memory();
    // 131,001 digits each.
    let numbers = |count: usize| {
        let columns = vec!["c.n"; count].join(", ");
        format!("select {columns} from (select 1.5e131000::numeric as n offset 0) c")
    };
    let many = numbers(400);
    let nested = format!("select {}'\"'{}", "row(".repeat(40), ")".repeat(40));
    for sql in [
        // Each of its quotes becomes two; it is there as a field, as the row's text, and in the message.
        "select row(repeat('\"', 12000000))",
        // A terabyte of one character.
        &nested,
        &many,
    ] {
        let told = wire.query(sql);
        assert_eq!(told.state(), "53200", "{sql:.60}");
    }
    let told = wire.series(&[parse("", &numbers(100), &[]), bind("", "", 0, &[], 1), execute("", 0)]);
    assert_eq!(told.good().rows[0].len(), 100);
    assert!(memory() < began + (96 << 20), "{} bytes more", memory() - began);
    assert_eq!(wire.run("select length(row(repeat('\"', 1000000))::text)").one(), "2000004");
    assert_eq!(wire.run("select row(repeat('\"', 1000000))").one().len(), 2_000_004);
}

#[test]
fn a_setting_that_is_set_by_turns_takes_no_more_memory() {
    let fixture = Fixture::alone(TABLE);
    let mut wire = fixture.connect();
    wire.run("set application_name = 'before'");
    let began = memory();
    // SET LOCAL and SET of a text of 100 kB, for each row.
    wire.run(
        "begin; select count(set_config('application_name', repeat('x', 100000), g % 2 = 0)) from generate_series(1, 3000) g",
    );
    assert!(memory() < began + (64 << 20), "{} bytes more", memory() - began);
    wire.run("rollback");
    assert_eq!(wire.run("show application_name").one(), "before");
}

#[test]
fn parameters_much_longer_than_their_message_are_charged_before_they_are_made() {
    let fixture = Fixture::alone(TABLE);
    let mut wire = fixture.connect();
    let began = memory();
    let ints = format!("{{{}}}", vec!["1"; 4 << 20].join(","));
    let binary = |count: i32| {
        let mut body = Body::new().i32(1).i32(0).i32(23).i32(count).i32(1);
        for _ in 0..count {
            body = body.i32(4).i32(1);
        }
        body.0
    };
    let many = binary(2 << 20);
    for (format, value) in [(0, ints.as_bytes()), (1, &many)] {
        let told = wire.series(&[
            parse("", "select cardinality($1::int[])", &[]),
            bind("", "", format, &[Some(value)], 0),
        ]);
        // Before: what the portal takes is another matter.
        assert_eq!((told.state(), told.errors[0].get('W')), ("53200", "unnamed portal parameter $1"));
    }
    // Numbers of eight bytes with a hundred thousand digits each.
    let numbers: Vec<String> = (1..=2_000).map(|number| format!("${number}::numeric")).collect();
    let sql = format!("select 1 where 1 in ({})", numbers.join(", "));
    let values = vec![Some(&b"1e131071"[..]); 2_000];
    let told = wire.series(&[parse("", &sql, &[]), bind("", "", 0, &values, 0)]);
    assert!(told.errors[0].get('W').starts_with("unnamed portal parameter $"), "{:?}", told.errors);
    assert!(memory() < began + (128 << 20), "{} bytes more", memory() - began);
    // What fits is taken, and given back.
    let few = binary(1000);
    let told = wire.series(&[
        parse("", "select cardinality($1::int[])", &[]),
        bind("", "", 1, &[Some(&few)], 0),
        execute("", 0),
    ]);
    assert_eq!(told.good().one(), "1000");
}
