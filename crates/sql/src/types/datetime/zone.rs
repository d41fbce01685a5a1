//! Time zones: by name from the system's (or the built-in) database, by offset, or by a POSIX description.

use super::calendar::{USECS_PER_DAY, USECS_PER_SECOND, days_of_date};
use super::zone_names::ABBREVIATIONS;
use super::{Civil, UNIX_EPOCH_DAYS, date_of_days};
use crate::{Error, Result, SqlState};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use std::sync::Arc;

/// A time zone. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Zone {
    name: Arc<str>,
    rules: Rules,
}

#[derive(Clone, Debug)]
enum Rules {
    /// Always so many seconds east of UTC.
    Fixed {
        seconds: i64,
        abbreviation: Arc<str>,
    },
    Named(TimeZone),
}

/// The rules repeat after 400 years, and the database ends with year 9999: what lies behind is looked up here.
const LAST_ERA_YEAR: i64 = 9200;
/// Farthest a zone may be from UTC, in seconds.
const MAX_OFFSET: i64 = 167 * 3600 + 3599;

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Zone {
    /// UTC.
    pub fn utc() -> Self {
        Zone::fixed(0, "UTC", "UTC")
    }

    fn fixed(seconds: i64, name: &str, abbreviation: &str) -> Self {
        Zone { name: name.into(), rules: Rules::Fixed { seconds, abbreviation: abbreviation.into() } }
    }

    /// A zone as the setting TimeZone has it: a name (`Europe/Berlin`, `UTC`, in any case), a number of hours (`+02`, `-3.5`; east is
    /// positive), or a POSIX description (`EST5EDT`, `<+02>-02`, `-03:30`; there, west is positive). Error: 22023.
    pub fn parse(name: &str) -> Result<Self> {
        let invalid = || {
            let message = format!("invalid value for parameter \"TimeZone\": \"{name}\"");
            Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
        };
        if let Some(hours) = parse_hours(name) {
            let seconds = (hours * 3600.0) as i64;
            if seconds.unsigned_abs() > MAX_OFFSET as u64 {
                return Err(invalid().detail("UTC timezone offset is out of range."));
            }
            let east = offset_text(seconds);
            let name = format!("<{east}>{}", offset_text(-seconds));
            return Ok(Zone::fixed(seconds, &name, &east));
        }
        Zone::look_up(name).ok_or_else(invalid)
    }

    /// A zone as `AT TIME ZONE` has it: an abbreviation such as `CEST`, or what [`Zone::parse`] takes but for numbers of hours. Error: 22023.
    pub fn find(name: &str) -> Result<Self> {
        if let Some(seconds) = abbreviation_offset(&name.to_ascii_lowercase()) {
            return Ok(Zone::fixed(seconds, name, name));
        }
        Zone::look_up(name).ok_or_else(|| not_recognized(name))
    }

    /// A zone as functions have it that make a moment of its parts: an offset from UTC such as `+02:30`, east of it, or what [`Zone::find`] takes. Error: 22023.
    pub fn of_parts(name: &str) -> Result<Self> {
        match super::input::numeric_zone(name)? {
            Some(seconds) => Ok(Zone::fixed(seconds, name, name)),
            None => Zone::find(name),
        }
    }

    /// By name or POSIX description.
    pub(super) fn look_up(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("utc") {
            return Some(Zone::utc());
        }
        if name.is_empty() || name.len() > 255 || name.eq_ignore_ascii_case("etc/unknown") {
            return None;
        }
        if let Ok(zone) = TimeZone::get(name) {
            let canonical = zone.iana_name().unwrap_or(name).to_owned();
            return Some(Zone { name: canonical.as_str().into(), rules: Rules::Named(zone) });
        }
        Zone::posix(name)
    }

    fn posix(description: &str) -> Option<Self> {
        let after_name = match description.strip_prefix('<') {
            Some(rest) => rest.find('>')? + 2,
            None => description.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(description.len()),
        };
        let (abbreviation, rest) = description.split_at(after_name);
        let (seconds, rest) = posix_offset(rest)?;
        let abbreviation = abbreviation.trim_matches(['<', '>']);
        if rest.is_empty() {
            let name = description.to_ascii_uppercase();
            return Some(Zone::fixed(-seconds, &name, &abbreviation.to_ascii_uppercase()));
        }
        // With summer time; the rules of the United States where none are given.
        let zone = TimeZone::posix(description)
            .or_else(|_| TimeZone::posix(&format!("{description},M3.2.0,M11.1.0")))
            .ok()?;
        Some(Zone { name: description.into(), rules: Rules::Named(zone) })
    }

    /// The name, as SHOW TimeZone gives it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Seconds east of UTC at a moment, given as timestamp in UTC.
    pub fn offset_at(&self, timestamp: i64) -> i64 {
        match &self.rules {
            Rules::Fixed { seconds, .. } => *seconds,
            Rules::Named(zone) => i64::from(zone.to_offset(to_instant(timestamp)).seconds()),
        }
    }

    /// Seconds east of UTC where the clock shows this timestamp. Where it never does, because the clock was put forward, the
    /// offset before that; where it does so twice, because the clock was put back, the offset after that.
    pub fn offset_of_local(&self, timestamp: i64) -> i64 {
        match &self.rules {
            Rules::Fixed { seconds, .. } => *seconds,
            Rules::Named(zone) => {
                let Some(local) = to_local(timestamp) else { return 0 };
                i64::from(
                    match zone.to_ambiguous_timestamp(local).offset() {
                        AmbiguousOffset::Unambiguous { offset } => offset,
                        AmbiguousOffset::Gap { before, .. } => before,
                        AmbiguousOffset::Fold { after, .. } => after,
                    }
                    .seconds(),
                )
            }
        }
    }

    /// The abbreviation in use at a moment, such as `CEST`.
    pub fn abbreviation_at(&self, timestamp: i64) -> String {
        match &self.rules {
            Rules::Fixed { abbreviation, .. } => abbreviation.to_string(),
            Rules::Named(zone) => zone.to_offset_info(to_instant(timestamp)).abbreviation().to_owned(),
        }
    }

    /// What the clock shows at a moment, as timestamp; `None` beyond 64 bits.
    pub fn to_local(&self, timestamp: i64) -> Option<i64> {
        timestamp.checked_add(self.offset_at(timestamp) * USECS_PER_SECOND)
    }

    /// The moment when the clock shows this; `None` beyond 64 bits.
    pub fn to_utc(&self, local: i64) -> Option<i64> {
        local.checked_sub(self.offset_of_local(local) * USECS_PER_SECOND)
    }
}

/// 22023
pub(super) fn not_recognized(name: &str) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"))
}

/// Seconds east of UTC of an abbreviation in lower case.
pub(super) fn abbreviation_offset(name: &str) -> Option<i64> {
    let index = ABBREVIATIONS.binary_search_by(|(abbreviation, _)| abbreviation.cmp(&name)).ok()?;
    Some(i64::from(ABBREVIATIONS[index].1))
}

/// `+02`, `-03:30`, `+00:00:01`
pub(super) fn offset_text(seconds: i64) -> String {
    let (sign, rest) = if seconds < 0 { ('-', -seconds) } else { ('+', seconds) };
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    match (minutes, seconds) {
        (0, 0) => format!("{sign}{hours:02}"),
        (_, 0) => format!("{sign}{hours:02}:{minutes:02}"),
        _ => format!("{sign}{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// A plain number, and nothing else.
fn parse_hours(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let numeric = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    text.parse().ok().filter(|_| numeric)
}

/// `[+-]hh[:mm[:ss]]` and what follows it.
fn posix_offset(text: &str) -> Option<(i64, &str)> {
    let (sign, mut rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let mut seconds = 0;
    for (index, unit) in [3600, 60, 1].into_iter().enumerate() {
        if index > 0 {
            match rest.strip_prefix(':') {
                Some(after) => rest = after,
                None => break,
            }
        }
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let value: i64 =
            rest[..end].parse().ok().filter(|value| *value < if index == 0 { 168 } else { 60 })?;
        seconds += value * unit;
        rest = &rest[end..];
    }
    Some((sign * seconds, rest))
}

/// Shifted by whole eras into the years the database has.
fn into_database(timestamp: i64) -> i64 {
    let era = days_of_date(2400, 1, 1) * USECS_PER_DAY;
    let limit = days_of_date(LAST_ERA_YEAR, 1, 1) * USECS_PER_DAY;
    if timestamp >= limit { limit + (timestamp - limit).rem_euclid(era) } else { timestamp }
}

fn to_instant(timestamp: i64) -> Timestamp {
    let timestamp = into_database(timestamp);
    let micros = timestamp - UNIX_EPOCH_DAYS * USECS_PER_DAY;
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MIN)
}

fn to_local(timestamp: i64) -> Option<DateTime> {
    let timestamp = into_database(timestamp);
    let (year, month, day) = date_of_days(timestamp.div_euclid(USECS_PER_DAY));
    let civil = Civil::of_timestamp(timestamp);
    DateTime::new(
        i16::try_from(year).ok()?,
        month as i8,
        day as i8,
        civil.hour as i8,
        civil.minute as i8,
        civil.second as i8,
        (civil.micros * 1000) as i32,
    )
    .ok()
}
