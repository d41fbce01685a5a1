use super::calendar::{days_in_month, iso_week};
use super::*;
use crate::Result;
use crate::types::text::{self, TextStyle};
use crate::types::{Type, Value};
use proptest::prelude::*;

fn style() -> TextStyle {
    TextStyle { zone: Zone::parse("Europe/Berlin").unwrap(), ..TextStyle::default() }
}

fn number(text: &str, ty: Type) -> Result<i64> {
    match text::read(text, ty, -1, &style())? {
        Value::Int(value) => Ok(value),
        other => panic!("{other:?}"),
    }
}

fn unescape(text: &str) -> String {
    text.replace("\\\\", "\u{1}").replace("\\t", "\t").replace("\\n", "\n").replace('\u{1}', "\\")
}

fn evaluate(function: &str, first: &str, second: &str) -> Result<Option<String>> {
    let style = style();
    let zone = &style.zone;
    let shown = |ty, value: Result<i64>| {
        value.map(|value| Some(text::to_text(&Value::Int(value), ty, &style).into_string()))
    };
    let numbers = || first.split(',').map(|part| part.parse::<f64>().unwrap()).collect::<Vec<_>>();
    let numeric = |value: Result<Option<crate::types::Numeric>>| Ok(value?.map(|value| value.to_string()));
    match function {
        "extract_date" => numeric(extract_date(first, number(second, Type::Date)?)),
        "extract_timestamp" => numeric(extract_timestamp(first, number(second, Type::Timestamp)?)),
        "extract_timestamptz" => {
            numeric(extract_timestamptz(first, number(second, Type::TimestampTz)?, zone))
        }
        "trunc_timestamp" => shown(Type::Timestamp, trunc_timestamp(first, number(second, Type::Timestamp)?)),
        "trunc_timestamptz" => {
            let timestamp = number(second, Type::TimestampTz)?;
            shown(Type::TimestampTz, trunc_timestamptz(first, timestamp, zone))
        }
        "make_date" => {
            let parts = numbers();
            shown(Type::Date, make_date(parts[0] as i64, parts[1] as i64, parts[2] as i64))
        }
        "make_timestamp" => {
            let parts = numbers();
            let [year, month, day, hour, minute] = [0, 1, 2, 3, 4].map(|index| parts[index] as i64);
            shown(Type::Timestamp, make_timestamp(year, month, day, hour, minute, parts[5]))
        }
        "timestamp_from_epoch" => shown(Type::TimestampTz, timestamp_from_epoch(first.parse().unwrap())),
        "to_char_timestamp" => to_char(number(second, Type::Timestamp)?, None, first),
        "to_char_timestamptz" => to_char(number(second, Type::TimestampTz)?, Some(zone), first),
        "to_date" => shown(Type::Date, to_date(first, second)),
        "to_timestamp" => shown(Type::TimestampTz, to_timestamp(first, second, zone)),
        other => panic!("no function {other}"),
    }
}

#[test]
fn answers_are_those_of_postgresql() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("samples.txt").lines().filter(|line| !line.starts_with('#')) {
        let [function, first, second, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not a sample: {line}")
        };
        let found = match evaluate(function, &unescape(first), &unescape(second)) {
            Ok(Some(value)) => value,
            Ok(None) => "NULL".to_owned(),
            Err(error) => {
                let fields = error.fields();
                let detail = fields.detail.as_ref().map_or(String::new(), |detail| format!(" / {detail}"));
                format!("!{} {}{detail}", fields.state, fields.message)
            }
        };
        count += 1;
        if found != unescape(expected) {
            wrong.push(format!(
                "{function} {first:?} {second:?}\n  expected {expected:?}\n  found    {found:?}"
            ));
        }
    }
    assert!(count > 1000);
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_day_has_a_date_of_its_own() {
    let (mut year, mut month, mut day) = (-4713, 11, 24);
    // 15 centuries around the time when the year has no number, and around the present.
    for days in -2_451_545..500_000 {
        assert_eq!(date_of_days(days), (year, month, day));
        assert_eq!(days_of_date(year, month, day), days);
        day += 1;
        if day > days_in_month(year, month) {
            (month, day) = (month + 1, 1);
        }
        if month > 12 {
            (year, month) = (year + 1, 1);
        }
    }
}

#[test]
fn timestamps_of_every_length_are_written_as_they_are_read() {
    for text in [
        "4714-11-24 00:00:00 BC",
        "0044-03-15 12:00:00 BC",
        "0001-01-01 00:00:00",
        "0999-12-31 23:59:59.000001",
        "1999-12-31 23:59:59.999999",
        "2024-02-29 07:08:09.5",
        "9999-12-31 23:59:59.999999",
        "10000-01-01 00:00:00",
        "294276-12-31 23:59:59.999999",
    ] {
        let mut written = String::new();
        super::write_timestamp(number(text, Type::Timestamp).unwrap(), &mut written);
        assert_eq!(written, text);
    }
    for text in ["4714-11-24 BC", "0001-01-01", "99999-10-02", "5874897-12-31"] {
        let mut written = String::new();
        super::write_date(number(text, Type::Date).unwrap(), &mut written);
        assert_eq!(written, text);
    }
}

#[test]
fn zones_have_postgresqls_names_and_signs() {
    // Summer of 2024 in UTC.
    let summer = number("2024-07-01 00:00+00", Type::TimestampTz).unwrap();
    for (given, name, hours) in [
        ("utc", "UTC", 0.0),
        ("europe/berlin", "Europe/Berlin", 2.0),
        ("+02", "<+02>-02", 2.0),
        ("-3.5", "<-03:30>+03:30", -3.5),
        ("-03:30", "-03:30", 3.5),
        ("XYZ+3", "XYZ+3", -3.0),
        ("<+02>-02", "<+02>-02", 2.0),
        ("EST5EDT", "EST5EDT", -4.0),
        ("UTC+3", "UTC+3", -3.0),
        ("0", "<+00>+00", 0.0),
    ] {
        let zone = Zone::parse(given).unwrap();
        assert_eq!(zone.name(), name, "{given}");
        assert_eq!(zone.offset_at(summer) as f64, hours * 3600.0, "{given}");
    }
    for bad in ["CEST", "foo", "", "170", "-170", "Europe", "Europe/", "../etc/passwd", "<", "nan"] {
        let error = Zone::parse(bad).unwrap_err();
        assert_eq!(error.to_string(), format!("invalid value for parameter \"TimeZone\": \"{bad}\""));
    }
    assert_eq!(Zone::find("cest").unwrap().offset_at(summer), 7200);
    assert_eq!(Zone::find("+02").unwrap().offset_at(summer), -7200);
    assert_eq!(Zone::find("foo").unwrap_err().to_string(), "time zone \"foo\" not recognized");
    assert_eq!(Zone::parse("Europe/Berlin").unwrap().abbreviation_at(summer), "CEST");
}

proptest! {
    #[test]
    fn weeks_have_seven_days(days in -2_000_000_i64..2_000_000) {
        let (year, week) = iso_week(days);
        prop_assert!((1..=53).contains(&week));
        let monday = calendar::days_of_iso_week(year, week);
        prop_assert!((monday..monday + 7).contains(&days));
        prop_assert_eq!(calendar::day_of_week(monday), 1);
    }

    #[test]
    fn local_time_and_utc_agree(seconds in -60_000_000_000_i64..200_000_000_000, name in prop::sample::select(vec!["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])) {
        let zone = Zone::parse(name).unwrap();
        let timestamp = seconds * USECS_PER_SECOND;
        let local = zone.to_local(timestamp).unwrap();
        let back = zone.to_utc(local).unwrap();
        // An hour that comes twice is the second one.
        prop_assert!(back == timestamp || (zone.to_local(back) == Some(local) && back > timestamp));
    }

    #[test]
    fn any_pattern_is_applied_or_refused(text in "[-+:., 0-9A-Za-zä]{0,20}", pattern in "[-:., DMYHSIWJCQTZAPBFXthä\"]{0,20}") {
        let _ = to_date(&text, &pattern);
        let _ = to_timestamp(&text, &pattern, &style().zone);
        let _ = to_char(0, Some(&style().zone), &pattern);
    }
}
