use super::*;
use crate::types::{Array, Record, binary};
use proptest::prelude::*;

/// A field of a sample, without its escapes.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => out.push(match characters.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('v') => '\x0b',
                other => other.unwrap(),
            }),
            _ => out.push(character),
        }
    }
    out
}

fn shown(result: Result<Value>, ty: Type, style: &TextStyle) -> String {
    match result {
        Ok(value) => to_text(&value, ty, style).into_string(),
        Err(error) => {
            let fields = error.fields();
            let detail = fields.detail.as_ref().map_or(String::new(), |detail| format!(" / {detail}"));
            format!("!{} {}{detail}", fields.state, fields.message)
        }
    }
}

#[test]
fn answers_are_those_of_postgresql() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("samples.txt").lines().filter(|line| !line.starts_with('#')) {
        let [ty, zone, order, text, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not a sample: {line}")
        };
        let ty = type_named(ty).unwrap_or_else(|| panic!("no type {ty}"));
        let style = TextStyle {
            zone: Zone::parse(zone).unwrap(),
            date_order: match order {
                "MDY" => DateOrder::Mdy,
                "DMY" => DateOrder::Dmy,
                _ => DateOrder::Ymd,
            },
            ..TextStyle::default()
        };
        let (text, expected) = (unescape(text), unescape(expected));
        let value = read(&text, ty, -1, &style);
        if let Ok(value) = &value {
            // What was read goes through binary, too.
            let mut bytes = Vec::new();
            binary::write(value, ty, &mut bytes);
            assert_eq!(&binary::read(&bytes, ty, -1).unwrap(), value, "{text} as {ty:?}");
        }
        let found = shown(value, ty, &style);
        count += 1;
        if found != expected {
            wrong.push(format!(
                "{} {zone} {order} {text:?}\n  expected {expected}\n  found    {found}",
                ty.name()
            ));
        }
    }
    assert!(count > 1000);
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// A value of a type, from everywhere in its range.
fn any_value(ty: Type) -> BoxedStrategy<Value> {
    let ints = |least: i64, most: i64| {
        prop_oneof![least..=most, Just(least), Just(most), (-1000_i64).max(least)..1000]
            .prop_map(Value::Int)
            .boxed()
    };
    match ty {
        Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Type::Int2 => ints(i64::from(i16::MIN), i64::from(i16::MAX)),
        Type::Int4 => ints(i64::from(i32::MIN), i64::from(i32::MAX)),
        Type::Int8 => ints(i64::MIN, i64::MAX),
        Type::Oid => ints(0, i64::from(u32::MAX)),
        Type::Date => {
            prop_oneof![ints(-2_451_545, 2_145_031_948), Just(Value::Int(datetime::DATE_INFINITY))].boxed()
        }
        Type::Timestamp | Type::TimestampTz => {
            prop_oneof![ints(-211_813_488_000_000_000, 9_223_371_331_199_999_999), Just(Value::Int(i64::MIN))]
                .boxed()
        }
        Type::Float4 => any::<f32>().prop_map(|value| Value::Float(f64::from(value))).boxed(),
        Type::Float8 => any::<f64>().prop_map(Value::Float).boxed(),
        Type::Numeric => (any::<i128>(), 0_u16..40, 0_u32..128)
            .prop_map(|(digits, scale, shift)| Value::Numeric(Numeric::from_i128(digits >> shift, scale)))
            .boxed(),
        Type::Bytea => prop::collection::vec(any::<u8>(), 0..20).prop_map(|b| Value::Bytes(b.into())).boxed(),
        _ => "[^\0]{0,12}".prop_map(Value::text).boxed(),
    }
}

fn typed_value() -> impl Strategy<Value = (Type, Value)> {
    let types = [
        Type::Bool,
        Type::Int2,
        Type::Int4,
        Type::Int8,
        Type::Oid,
        Type::Date,
        Type::Timestamp,
        Type::TimestampTz,
        Type::Float4,
        Type::Float8,
        Type::Numeric,
        Type::Bytea,
        Type::Text,
    ];
    prop::sample::select(types.to_vec()).prop_flat_map(|ty| {
        let array = ty.array().unwrap();
        let elements = prop::collection::vec(prop_oneof![3 => any_value(ty), 1 => Just(Value::Null)], 0..6);
        let lower = -3_i32..4;
        prop_oneof![
            (Just(ty), any_value(ty)),
            (
                Just(array),
                (elements, lower).prop_map(move |(values, lower)| {
                    let lower = if values.is_empty() { 1 } else { lower };
                    Value::Array(Arc::new(Array { element: ty, values, lower }))
                })
            ),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back((ty, value) in typed_value(), zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/St_Johns"]), hex in any::<bool>()) {
        let style = TextStyle { zone: Zone::parse(zone).unwrap(), bytea_hex: hex, ..TextStyle::default() };
        let text = to_text(&value, ty, &style);
        prop_assert!(text.len() <= text_size(&value, ty, &style).text, "{}", text);
        prop_assert_eq!(&read(&text, ty, -1, &style).unwrap(), &value, "{}", text);
        let mut bytes = Vec::new();
        binary::write(&value, ty, &mut bytes);
        prop_assert_eq!(&binary::read(&bytes, ty, -1).unwrap(), &value);
    }

    #[test]
    fn the_size_of_a_row_is_known_before_its_text_is_made(fields in prop::collection::vec(typed_value(), 0..4), levels in 0..8, hex in any::<bool>()) {
        let style = TextStyle { bytea_hex: hex, ..TextStyle::default() };
        let record = |fields: Vec<(Type, Value)>| {
            let (types, values): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
            (Type::Record, Value::Record(Arc::new(Record { types: types.into(), values })))
        };
        let (ty, value) = (0..levels).fold(record(fields), |inner, _| record(vec![inner]));
        let text = to_text(&value, ty, &style);
        prop_assert!(text.len() <= text_size(&value, ty, &style).text, "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}", ty in prop::sample::select(Type::ALL)) {
        let _ = read(&text, ty, -1, &TextStyle::default());
    }

    #[test]
    fn anything_like_a_timestamp_is_read_or_refused(text in "[-+:./ 0-9a-zTZ]{0,30}", ty in prop::sample::select(vec![Type::Date, Type::Timestamp, Type::TimestampTz])) {
        let _ = read(&text, ty, -1, &TextStyle::default());
    }
}

#[test]
fn words_for_the_present_mean_the_transaction_start() {
    // 2024-03-01 00:30 in Berlin, still February in UTC.
    let style = TextStyle { zone: Zone::parse("Europe/Berlin").unwrap(), ..TextStyle::default() };
    let Value::Int(now) = read("2024-03-01 00:30", Type::TimestampTz, -1, &style).unwrap() else { panic!() };
    let style = TextStyle { now, ..style };
    for (ty, text, expected) in [
        (Type::TimestampTz, "now", "2024-03-01 00:30:00+01"),
        (Type::Timestamp, "now", "2024-03-01 00:30:00"),
        (Type::Date, "today", "2024-03-01"),
        (Type::Date, "yesterday", "2024-02-29"),
        (Type::Timestamp, "tomorrow 10:00", "2024-03-02 10:00:00"),
        (Type::TimestampTz, "today allballs", "2024-03-01 01:00:00+01"),
    ] {
        assert_eq!(shown(read(text, ty, -1, &style), ty, &style), expected, "{text}");
    }
}

#[test]
fn what_is_read_fits_its_modifier() {
    let style = TextStyle::default();
    let text = |text: &str, ty, modifier| shown(read(text, ty, modifier, &style), ty, &style);
    assert_eq!(text("abc  ", Type::Varchar, 3 + 4), "abc");
    assert_eq!(text("abcd", Type::Varchar, 3 + 4), "!22001 value too long for type character varying(3)");
    assert_eq!(text("ä", Type::Bpchar, 3 + 4), "ä  ");
    assert_eq!(text("äöüß", Type::Bpchar, 3 + 4), "!22001 value too long for type character(3)");
    assert_eq!(text("1.005", Type::Numeric, ((5 << 16) | 2) + 4), "1.01");
    assert_eq!(text("{1.005,2}", Type::NumericArray, ((5 << 16) | 2) + 4), "{1.01,2.00}");
    assert_eq!(text("2024-01-01 00:00:00.55", Type::Timestamp, 1), "2024-01-01 00:00:00.6");
}

#[test]
fn identifiers_are_quoted_where_they_must() {
    for (name, expected) in [
        ("plain_1", "plain_1"),
        ("Mixed", "\"Mixed\""),
        ("select", "\"select\""),
        ("a\"b", "\"a\"\"b\""),
        ("", "\"\""),
        ("1a", "\"1a\""),
        ("name", "name"),
    ] {
        assert_eq!(quote_identifier(name), expected);
    }
    assert_eq!(split_name("Public.\"A.\"\"b\" ").unwrap(), ["public", "A.\"b"]);
    assert!(split_name("a..b").is_err() && split_name("\"a").is_err() && split_name("").is_err());
}

#[test]
fn relations_have_names_and_numbers() {
    use crate::catalog::{Catalog, Relation, Sequence};
    let sequence = Sequence {
        oid: 20_000,
        name: "My seq".to_owned(),
        ty: Type::Int8,
        start: 1,
        increment: 1,
        minimum: 1,
        maximum: 10,
        cycle: false,
        owned_by: None,
        identity: false,
        owner: 10,
        counter: 20_000,
        begin: (1, false),
        revision: 0,
    };
    let mut catalog = Catalog::default();
    catalog.names.insert(sequence.name.clone(), Relation::Sequence(sequence.oid));
    catalog.sequences.insert(sequence.oid, Arc::new(sequence));
    let style = TextStyle { catalog: Some(Arc::new(catalog)), ..TextStyle::default() };
    for (text, expected) in [
        ("\"My seq\"", "\"My seq\""),
        (" public . \"My seq\" ", "\"My seq\""),
        ("20000", "\"My seq\""),
        ("20001", "20001"),
        ("-", "-"),
        ("0", "-"),
        ("my seq", "!42602 invalid name syntax"),
        ("none", "!42P01 relation \"none\" does not exist"),
        ("public.none", "!42P01 relation \"public.none\" does not exist"),
        ("x.none", "!3F000 schema \"x\" does not exist"),
        ("a.b.c.d", "!42601 improper relation name (too many dotted names): a.b.c.d"),
        ("", "!42602 invalid name syntax"),
    ] {
        assert_eq!(shown(read(text, Type::Regclass, -1, &style), Type::Regclass, &style), expected, "{text}");
    }
}

/// A word that is written without quotes is a name wherever a dump has one, whatever the parser knows it for.
#[test]
fn an_index_called_async_was_taken_for_an_option() {
    let forms = [
        "CREATE INDEX @ ON public.t USING btree (@, b DESC)",
        "CREATE UNIQUE INDEX @ ON public.@ USING btree (b, @ DESC NULLS LAST)",
        "CREATE TABLE public.@ (\n    @ integer DEFAULT 1 NOT NULL)",
        "CREATE TABLE public.t (\n    a text,\n    @ integer GENERATED BY DEFAULT AS IDENTITY,\n    b text)",
        "ALTER TABLE ONLY public.@ ADD CONSTRAINT @ PRIMARY KEY (@, b)",
        "ALTER TABLE ONLY public.@ ADD CONSTRAINT @ UNIQUE (b, @)",
        "ALTER TABLE ONLY public.@ ADD CONSTRAINT @ CHECK (@ > 0 AND b < @)",
        "ALTER TABLE ONLY public.@ ADD CONSTRAINT @ FOREIGN KEY (@) REFERENCES public.@(@) ON DELETE CASCADE",
        "ALTER TABLE ONLY public.@ ALTER COLUMN @ SET DEFAULT 1",
        "CREATE SEQUENCE public.@ AS integer INCREMENT BY 1 CACHE 1 CYCLE",
        "ALTER SEQUENCE public.@ OWNED BY public.@.@",
        "COPY public.@ (@, b) FROM stdin",
    ];
    let mut taken = Vec::new();
    // Whoever reads before the parser knows one more.
    let words = sqlparser::keywords::ALL_KEYWORDS.iter().chain(&["OVERRIDING"]);
    for word in words.map(|word| word.to_lowercase()) {
        // A name of the same length that nobody knows, of a letter that nothing else has, takes two bytes for each, of 63.
        if quote_identifier(&word) != word || word.len() > 31 {
            continue;
        }
        let other = "ö".repeat(word.len());
        for form in forms {
            let tree = |name: &str| {
                crate::bind::parse(&form.replace('@', name)).map(|parsed| format!("{:?}", parsed[0].kind))
            };
            let expected = tree(&other).unwrap().replace(&other, &word);
            if tree(&word).is_ok_and(|tree| tree == expected) {
                continue;
            }
            taken.push(format!("{word}: {form}"));
        }
    }
    assert!(taken.is_empty(), "{taken:#?}");
}

#[test]
fn the_text_of_rows_in_rows_is_not_made_to_learn_that_it_is_long() {
    let style = TextStyle::default();
    let nested = |first: &str, levels: usize| {
        (0..levels).fold(Value::text(first), |inner, level| {
            let ty = if level == 0 { Type::Text } else { Type::Record };
            Value::Record(Arc::new(Record { types: [ty].into(), values: vec![inner] }))
        })
    };
    let size = |value: &Value| text_size(value, Type::Record, &style);
    for levels in 1..16 {
        let value = nested("\"", levels);
        let (known, made) = (size(&value).text, to_text(&value, Type::Record, &style).len());
        assert!((made..4 * made + 200).contains(&known), "{levels} levels: {known}, {made}");
    }
    // Where no memory would do, that is what comes out.
    for levels in [40, 64, 100, 1_000] {
        assert!(size(&nested("\"", levels)).all() > 1 << 39, "{levels}");
    }
    // A long text stands beside each of the levels around it while it is made.
    let long = size(&nested(&"x".repeat(1 << 20), 3));
    assert!((1 << 20..2 << 20).contains(&long.text) && long.beside > 3 << 20, "{long:?}");
}
