use super::*;
use crate::types::binary;
use crate::types::datetime::Zone;
use crate::types::text::type_named;

fn style() -> TextStyle {
    TextStyle { zone: Zone::parse("Europe/Berlin").unwrap(), ..TextStyle::default() }
}

/// A type and its modifier, as `numeric(5,2)` or `timestamp(2) without time zone`.
fn type_and_modifier(text: &str) -> (Type, Modifier) {
    let ty = type_named(text).unwrap_or_else(|| panic!("no type {text}"));
    let Some((_, rest)) = text.split_once('(') else {
        // The word alone means one character.
        return (ty, if text == "character" { 5 } else { -1 });
    };
    let numbers: Vec<i32> =
        rest.split_once(')').unwrap().0.split(',').map(|number| number.parse().unwrap()).collect();
    let modifier = match (ty, &numbers[..]) {
        (Type::Timestamp | Type::TimestampTz, [digits]) => *digits,
        (_, [precision, scale]) => ((precision << 16) | (scale & 0x7ff)) + 4,
        (_, [length]) => length + 4,
        _ => panic!("{text}"),
    };
    (ty, modifier)
}

fn unescape(text: &str) -> String {
    text.replace("\\\\", "\u{1}").replace("\\t", "\t").replace("\\n", "\n").replace('\u{1}', "\\")
}

fn converted(from: &str, to: &str, kind: &str, text: &str) -> Result<String> {
    let style = style();
    let (from, from_modifier) = type_and_modifier(from);
    let (to, modifier) = type_and_modifier(to);
    let explicit = kind == "explicit";
    let value = text::read(text, from, from_modifier, &style)?;
    let asked = if explicit { CastContext::Explicit } else { CastContext::Assignment };
    if context(from, to).is_none_or(|context| context > asked) {
        return Ok(if explicit { "!42846" } else { "!42804" }.to_owned());
    }
    let value = cast(value, from, to, modifier, explicit, &style)?;
    // As the samples have it: blanks at the end of character(n) get lost on the way to text.
    Ok(unpadded_if(to, &text::to_text(&value, to, &style)).to_owned())
}

fn unpadded_if(ty: Type, text: &str) -> &str {
    if ty == Type::Bpchar { unpadded(text) } else { text }
}

#[test]
fn answers_are_those_of_postgresql() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("samples.txt").lines().filter(|line| !line.starts_with('#')) {
        let [from, to, kind, text, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not a sample: {line}")
        };
        let mut expected = unescape(expected);
        if expected.starts_with("!42846") || expected.starts_with("!42804") {
            expected.truncate(6);
        }
        let found = converted(from, to, kind, &unescape(text)).unwrap_or_else(|error| {
            let fields = error.fields();
            let detail = fields.detail.as_ref().map_or(String::new(), |detail| format!(" / {detail}"));
            format!("!{} {}{detail}", fields.state, fields.message)
        });
        count += 1;
        if found != expected {
            wrong
                .push(format!("{from} to {to}, {kind}: {text:?}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(count > 2000);
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn casts_apply_where_those_of_postgresql_do() {
    let rows: Vec<(Type, &str)> = include_str!("contexts.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once('\t').unwrap())
        .map(|(ty, row)| (type_named(ty).unwrap_or_else(|| panic!("no type {ty}")), row))
        .collect();
    let mut wrong = Vec::new();
    for (from, row) in &rows {
        for ((to, _), expected) in rows.iter().zip(row.chars()) {
            let found = match context(*from, *to) {
                Some(CastContext::Implicit) => 'i',
                Some(CastContext::Assignment) => 'a',
                Some(CastContext::Explicit) => 'e',
                None => '-',
            };
            if found != expected {
                wrong.push(format!("{} to {}: expected {expected}, found {found}", from.name(), to.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_a_value_takes_is_known_before_it_is_read() {
    let style = style();
    let numbers = format!("{{{}}}", ["1e131071"; 3].join(","));
    let ints = format!("{{{}}}", ["1"; 5000].join(","));
    for (text, ty, modifier) in [
        ("x", Type::Bpchar, 4 + 100_000),
        ("{x,y,NULL}", Type::BpcharArray, 4 + 100_000),
        (&*ints, Type::Int4Array, -1),
        (&*ints, Type::TextArray, -1),
        (&*"1 ".repeat(5000), Type::OidVector, -1),
        ("1e131071", Type::Numeric, -1),
        ("-1E+0131071", Type::Numeric, -1),
        (&*numbers, Type::NumericArray, -1),
    ] {
        assert!(outgrows_text(ty, modifier), "{}", ty.name());
        let value = text::read(text, ty, modifier, &style).unwrap();
        let (expected, found) = (text_bytes(text, ty, modifier), value.heap_bytes());
        // From above, but not by much; a vector may have grown by doubling.
        assert!(found <= 2 * expected && expected <= 2 * found, "{text:.20}: {expected}, {found}");
        assert_eq!(fresh_bytes(&Value::text(text), ty, modifier, &style) == 0, ty == Type::Numeric);
        let mut binary = Vec::new();
        binary::write(&value, ty, &mut binary);
        let expected = binary_bytes(&binary, ty);
        assert!(found <= 2 * expected, "{text:.20} in binary: {expected}, {found}");
    }
    for (text, most) in [("12.5", 4), ("1.5e10", 6 + 50), ("{1.5e3,2.5e-3}", 14 + 2 * 5 + 64)] {
        let ty = if text.starts_with('{') { Type::NumericArray } else { Type::Numeric };
        assert!(text_bytes(text, ty, -1) <= most, "{text}");
    }
    assert!(!outgrows_text(Type::Text, -1) && !outgrows_text(Type::Bpchar, 4 + 10));
}
