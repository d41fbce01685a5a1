//! `to_char` of timestamps.

use super::pattern::{Case, Field, Key, Node, parse};
use super::{MONTHS, ROMAN_MONTHS, WEEKDAYS};
use crate::Result;
use crate::types::datetime::Zone;
use crate::types::datetime::calendar::{
    Civil, EPOCH_JULIAN, USECS_PER_DAY, USECS_PER_SECOND, day_of_week, days_of_date, days_of_iso_week,
    is_infinite_timestamp, iso_week,
};
use crate::types::datetime::timestamp_out_of_range;
use crate::types::datetime::zone::offset_text;
use std::fmt::Write;

struct Moment<'a> {
    civil: Civil,
    days: i64,
    /// Seconds east of UTC, and the zone's abbreviation; 0 and none without zone.
    offset: i64,
    zone: Option<(&'a Zone, i64)>,
}

/// SQL's `to_char` of a timestamp, with time zone if `zone` is given; `None` (NULL) for infinities and an empty pattern.
pub fn to_char(timestamp: i64, zone: Option<&Zone>, pattern: &str) -> Result<Option<String>> {
    if pattern.is_empty() || is_infinite_timestamp(timestamp) {
        return Ok(None);
    }
    let offset = zone.map_or(0, |zone| zone.offset_at(timestamp));
    let local = timestamp.checked_add(offset * USECS_PER_SECOND).ok_or_else(timestamp_out_of_range)?;
    let moment = Moment {
        civil: Civil::of_timestamp(local),
        days: local.div_euclid(USECS_PER_DAY),
        offset,
        zone: zone.map(|zone| (zone, timestamp)),
    };
    let mut out = String::new();
    for node in parse(pattern) {
        match node {
            Node::Field(field) => moment.write(field, &mut out),
            Node::Space(character) | Node::Separator(character) | Node::Literal(character) => {
                out.push(character);
            }
        }
    }
    Ok(Some(out))
}

/// In the field's case, with blanks behind up to a width.
fn word(text: &str, width: usize, field: Field, out: &mut String) {
    let start = out.len();
    match field.case {
        Case::Upper => out.push_str(&text.to_uppercase()),
        Case::Lower => out.push_str(&text.to_lowercase()),
        Case::Title => out.push_str(text),
    }
    if !field.fill && !field.translated {
        let missing = width.saturating_sub(out.len() - start);
        out.extend(std::iter::repeat_n(' ', missing));
    }
}

/// With zeros before up to a width, and the ending of an ordinal number.
fn number(value: i64, width: usize, field: Field, out: &mut String) {
    let width = if field.fill { 0 } else { width + usize::from(value < 0) };
    // Writing to a string does not fail.
    let _ = write!(out, "{value:0width$}");
    if let Some(case) = field.ordinal {
        let ending = match (value.abs() % 10, value.abs() / 10 % 10) {
            (_, 1) => "th",
            (1, _) => "st",
            (2, _) => "nd",
            (3, _) => "rd",
            _ => "th",
        };
        out.push_str(&if case == Case::Upper { ending.to_uppercase() } else { ending.to_owned() });
    }
}

impl Moment<'_> {
    fn write(&self, field: Field, out: &mut String) {
        let civil = &self.civil;
        let day_of_year = self.days - days_of_date(civil.year, 1, 1) + 1;
        let mut plain = |value, width| number(value, width, field, out);
        match field.key {
            Key::Hour24 => plain(civil.hour, 2),
            Key::Hour12 => plain((civil.hour + 11) % 12 + 1, 2),
            Key::Minute => plain(civil.minute, 2),
            Key::Second => plain(civil.second, 2),
            Key::SecondOfDay => plain(civil.time() / USECS_PER_SECOND, 0),
            Key::Millis | Key::Fraction(_) => {
                let digits = if let Key::Fraction(digits) = field.key { digits } else { 3 };
                let padded = Field { fill: false, ..field };
                number(civil.micros / 10_i64.pow(6 - digits), digits as usize, padded, out);
            }
            Key::DayOfYear => plain(day_of_year, 3),
            Key::IsoDayOfYear => {
                let (year, _) = iso_week(self.days);
                plain(self.days - days_of_iso_week(year, 1) + 1, 3);
            }
            Key::DayOfMonth => plain(civil.day, 2),
            Key::Weekday => plain(day_of_week(self.days) + 1, 0),
            Key::IsoWeekday => plain((day_of_week(self.days) + 6) % 7 + 1, 0),
            Key::Week => plain((day_of_year - 1) / 7 + 1, 2),
            Key::WeekOfMonth => plain((civil.day - 1) / 7 + 1, 0),
            Key::IsoWeek => plain(iso_week(self.days).1, 2),
            Key::MonthNumber => plain(civil.month, 2),
            Key::Quarter => plain((civil.month - 1) / 3 + 1, 0),
            Key::Julian => plain(self.days + EPOCH_JULIAN, 0),
            Key::Century => {
                let century = if civil.year > 0 { (civil.year - 1) / 100 + 1 } else { civil.year / 100 - 1 };
                plain(century, 2);
            }
            Key::Year(digits) => Self::year(civil.year, digits, field, out),
            Key::IsoYear(digits) => Self::year(iso_week(self.days).0, digits, field, out),
            Key::YearWithComma => {
                let year = people_year(civil.year);
                let _ = write!(out, "{},", year / 1000);
                number(year % 1000, 3, Field { fill: false, ..field }, out);
            }
            _ => self.write_text(field, out),
        }
    }

    fn year(year: i64, digits: u32, field: Field, out: &mut String) {
        let year = people_year(year);
        let shown = if digits == 4 { year } else { year % 10_i64.pow(digits) };
        number(shown, digits as usize, field, out);
    }

    fn write_text(&self, field: Field, out: &mut String) {
        let civil = &self.civil;
        match field.key {
            Key::Era { points } => {
                let text = match (civil.year > 0, points) {
                    (true, true) => "A.D.",
                    (true, false) => "AD",
                    (false, true) => "B.C.",
                    (false, false) => "BC",
                };
                word(text, 0, field, out);
            }
            Key::Half { points } => {
                let text = match (civil.hour >= 12, points) {
                    (true, true) => "P.M.",
                    (true, false) => "PM",
                    (false, true) => "A.M.",
                    (false, false) => "AM",
                };
                word(text, 0, field, out);
            }
            Key::Day { short } => {
                let name = WEEKDAYS[day_of_week(self.days) as usize];
                if short { word(&name[..3], 0, field, out) } else { word(name, 9, field, out) }
            }
            Key::Month { short } => {
                let name = MONTHS[(civil.month - 1) as usize];
                if short { word(&name[..3], 0, field, out) } else { word(name, 9, field, out) }
            }
            Key::RomanMonth => word(ROMAN_MONTHS[(civil.month - 1) as usize], 4, field, out),
            Key::Zone => {
                if let Some((zone, timestamp)) = self.zone {
                    word(&zone.abbreviation_at(timestamp), 0, field, out);
                }
            }
            Key::Offset => {
                let text = offset_text(self.offset / 60 * 60);
                let (sign, hours) = text.split_at(1);
                out.push_str(sign);
                out.push_str(hours.strip_prefix('0').filter(|_| field.fill).unwrap_or(hours));
            }
            Key::OffsetHour => {
                let sign = if self.offset < 0 { '-' } else { '+' };
                let _ = write!(out, "{sign}{:02}", self.offset.abs() / 3600);
            }
            Key::OffsetMinute => {
                let _ = write!(out, "{:02}", self.offset.abs() / 60 % 60);
            }
            // FX matters to input only.
            _ => {}
        }
    }
}

/// The year as people count it, without its era.
fn people_year(year: i64) -> i64 {
    if year > 0 { year } else { 1 - year }
}
