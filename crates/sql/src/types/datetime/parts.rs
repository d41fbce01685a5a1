//! Parts of dates and timestamps, and dates and timestamps from parts and from each other.

use super::calendar::{
    Civil, DATE_INFINITY, DATE_NEG_INFINITY, EPOCH_JULIAN, TIMESTAMP_INFINITY, TIMESTAMP_NEG_INFINITY,
    UNIX_EPOCH_DAYS, USECS_PER_DAY, USECS_PER_SECOND, check_timestamp, date_in_range, date_of_days,
    day_of_week, days_in_month, days_of_date, days_of_iso_week, is_infinite_timestamp, iso_week,
    timestamp_in_range,
};
use super::{Zone, timestamp_out_of_range};
use crate::types::{Modifier, Numeric, Type, text};
use crate::{Error, Result, SqlState};

fn overflow(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
}

/// Midnight of a date. Error: 22008.
pub fn date_to_timestamp(days: i64) -> Result<i64> {
    match days {
        DATE_INFINITY => Ok(TIMESTAMP_INFINITY),
        DATE_NEG_INFINITY => Ok(TIMESTAMP_NEG_INFINITY),
        _ => days
            .checked_mul(USECS_PER_DAY)
            .filter(|timestamp| timestamp_in_range(*timestamp))
            .ok_or_else(|| overflow("date out of range for timestamp")),
    }
}

/// Midnight of a date in a time zone. Error: 22008.
pub fn date_to_timestamptz(days: i64, zone: &Zone) -> Result<i64> {
    let local = date_to_timestamp(days)?;
    if is_infinite_timestamp(local) {
        return Ok(local);
    }
    zone.to_utc(local)
        .filter(|timestamp| timestamp_in_range(*timestamp))
        .ok_or_else(|| overflow("date out of range for timestamp"))
}

/// Midnight of a date, to be compared with timestamps: beyond all of them, but for infinity, where there is no such timestamp.
pub fn compared_date(days: i64) -> i64 {
    date_to_timestamp(days).unwrap_or(beyond(days))
}

/// The same in a time zone.
pub fn compared_date_tz(days: i64, zone: &Zone) -> i64 {
    date_to_timestamptz(days, zone).unwrap_or(beyond(days))
}

/// The moment when a zone's clock shows this, to be compared with others.
pub fn compared_timestamp(local: i64, zone: &Zone) -> i64 {
    timestamp_to_timestamptz(local, zone).unwrap_or(beyond(local))
}

/// Whether a moment of this type is one of every other, in any zone.
pub fn is_near(moment: i64, ty: Type) -> bool {
    let unit = if ty == Type::Date { USECS_PER_DAY } else { 1 };
    let room = 2 * USECS_PER_DAY;
    let near = |moment: i64| timestamp_in_range(moment - room) && timestamp_in_range(moment + room);
    moment.checked_mul(unit).is_some_and(|moment| timestamp_in_range(moment) && near(moment))
}

/// Before or behind all timestamps, but for infinity.
const fn beyond(moment: i64) -> i64 {
    if moment < 0 { TIMESTAMP_NEG_INFINITY + 1 } else { TIMESTAMP_INFINITY - 1 }
}

/// The day of a timestamp.
pub fn timestamp_to_date(timestamp: i64) -> Result<i64> {
    Ok(match timestamp {
        TIMESTAMP_INFINITY => DATE_INFINITY,
        TIMESTAMP_NEG_INFINITY => DATE_NEG_INFINITY,
        _ => timestamp.div_euclid(USECS_PER_DAY),
    })
}

/// The moment when a zone's clock shows this. Error: 22008.
pub fn timestamp_to_timestamptz(local: i64, zone: &Zone) -> Result<i64> {
    if is_infinite_timestamp(local) { Ok(local) } else { check_timestamp(zone.to_utc(local)) }
}

/// What a zone's clock shows at this moment. Error: 22008.
pub fn timestamptz_to_timestamp(timestamp: i64, zone: &Zone) -> Result<i64> {
    if is_infinite_timestamp(timestamp) { Ok(timestamp) } else { check_timestamp(zone.to_local(timestamp)) }
}

/// The day in a zone. Error: 22008.
pub fn timestamptz_to_date(timestamp: i64, zone: &Zone) -> Result<i64> {
    timestamp_to_date(timestamptz_to_timestamp(timestamp, zone)?)
}

/// Rounds to so many digits of a second, half away from 2000-01-01.
pub fn fit_timestamp(timestamp: i64, modifier: Modifier) -> i64 {
    let Some(unit) = u32::try_from(modifier).ok().filter(|digits| *digits < 6) else { return timestamp };
    if is_infinite_timestamp(timestamp) {
        return timestamp;
    }
    let unit = 10_i64.pow(6 - unit);
    // The end of the range is whole seconds, so the result is in range or that end itself.
    timestamp.abs().saturating_add(unit / 2) / unit * unit * timestamp.signum()
}

/// The date of year (negative: BC), month and day. Error: 22008.
pub fn make_date(year: i64, month: i64, day: i64) -> Result<i64> {
    let internal = checked_year(year, month, day)?;
    let days = days_of_date(internal, month, day);
    if !date_in_range(days) {
        return Err(overflow(format!("date out of range: {internal}-{month:02}-{day:02}")));
    }
    Ok(days)
}

/// The year with 1 BC as 0, when such a day exists.
fn checked_year(year: i64, month: i64, day: i64) -> Result<i64> {
    let internal = if year < 0 { year + 1 } else { year };
    if year == 0 || !(1..=12).contains(&month) || day < 1 || day > days_in_month(internal, month) {
        return Err(overflow(format!("date field value out of range: {internal}-{month:02}-{day:02}")));
    }
    Ok(internal)
}

/// The timestamp of its parts. Error: 22008.
pub fn make_timestamp(year: i64, month: i64, day: i64, hour: i64, minute: i64, seconds: f64) -> Result<i64> {
    let internal = checked_year(year, month, day)?;
    let micros = (seconds * 1e6).round_ties_even();
    let in_range = (0..=24).contains(&hour)
        && (0..60).contains(&minute)
        && (0.0..=60e6).contains(&micros)
        && (hour * 60 + minute) * 60 * USECS_PER_SECOND + micros as i64 <= USECS_PER_DAY;
    if !in_range {
        let message = format!("time field value out of range: {hour}:{minute:02}:{}", two_digits(seconds));
        return Err(overflow(message));
    }
    let time = (hour * 60 + minute) * 60 * USECS_PER_SECOND + micros as i64;
    let timestamp = days_of_date(internal, month, day)
        .checked_mul(USECS_PER_DAY)
        .and_then(|midnight| midnight.checked_add(time))
        .filter(|timestamp| timestamp_in_range(*timestamp));
    timestamp.ok_or_else(|| {
        overflow(format!(
            "timestamp out of range: {internal}-{month:02}-{day:02} {hour}:{minute:02}:{}",
            two_digits(seconds)
        ))
    })
}

/// C's `%02g`
fn two_digits(value: f64) -> String {
    let text = general(value);
    if text.len() < 2 { format!("0{text}") } else { text }
}

/// C's `%g`
fn general(value: f64) -> String {
    let mut out = String::new();
    // 15 digits less 9 are 6.
    text::write_float8(value, -9, &mut out);
    out
}

/// The timestamp of seconds since 1970-01-01 00:00 UTC. Error: 22008.
pub fn timestamp_from_epoch(seconds: f64) -> Result<i64> {
    if seconds.is_nan() {
        return Err(overflow("timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(if seconds > 0.0 { TIMESTAMP_INFINITY } else { TIMESTAMP_NEG_INFINITY });
    }
    let micros = ((seconds + (UNIX_EPOCH_DAYS * 86_400) as f64) * 1e6).round_ties_even();
    // What is beyond 64 bits saturates, and is out of range then.
    Some(micros as i64)
        .filter(|timestamp| timestamp_in_range(*timestamp))
        .ok_or_else(|| overflow(format!("timestamp out of range: \"{}\"", general(seconds))))
}

/// A part of a date or timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
    Julian,
    IsoYear,
    Weekday,
    IsoWeekday,
    DayOfYear,
    Epoch,
    /// Known as a word, but no part.
    Other,
}

impl Part {
    /// Units of time. Only the first 10 characters count.
    fn unit(name: &str) -> Option<Part> {
        Some(match name.get(..10).unwrap_or(name) {
            "us" | "usec" | "usecond" | "useconds" | "usecs" | "microsecon" => Part::Microseconds,
            "ms" | "msec" | "msecond" | "mseconds" | "msecs" | "millisecon" => Part::Milliseconds,
            "s" | "sec" | "second" | "seconds" | "secs" => Part::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Part::Minute,
            "h" | "hour" | "hours" | "hr" | "hrs" => Part::Hour,
            "d" | "day" | "days" => Part::Day,
            "w" | "week" | "weeks" => Part::Week,
            "mon" | "mons" | "month" | "months" => Part::Month,
            "qtr" | "quarter" => Part::Quarter,
            "y" | "year" | "years" | "yr" | "yrs" => Part::Year,
            "dec" | "decade" | "decades" | "decs" => Part::Decade,
            "c" | "cent" | "centuries" | "century" => Part::Century,
            "mil" | "mils" | "millennia" | "millennium" => Part::Millennium,
            "timezone" => Part::Timezone,
            "timezone_h" => Part::TimezoneHour,
            "timezone_m" => Part::TimezoneMinute,
            "@" | "ago" => Part::Other,
            _ => return None,
        })
    }

    fn of(name: &str) -> Option<Part> {
        Part::unit(name).or_else(|| {
            Some(match name {
                "dow" => Part::Weekday,
                "isodow" => Part::IsoWeekday,
                "doy" => Part::DayOfYear,
                "isoyear" => Part::IsoYear,
                "j" | "jd" | "julian" => Part::Julian,
                "epoch" => Part::Epoch,
                "now" | "today" | "tomorrow" | "yesterday" | "infinity" | "-infinity" | "allballs" => {
                    Part::Other
                }
                _ => return None,
            })
        })
    }

    /// Whether it grows with time, so that an infinity has it.
    fn grows(self) -> bool {
        matches!(
            self,
            Part::Year
                | Part::Decade
                | Part::Century
                | Part::Millennium
                | Part::Julian
                | Part::IsoYear
                | Part::Epoch
        )
    }
}

fn not_recognized(name: &str, ty: Type) -> Error {
    let message = format!("unit \"{name}\" not recognized for type {}", ty.name());
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn not_supported(name: &str, ty: Type) -> Error {
    let message = format!("unit \"{name}\" not supported for type {}", ty.name());
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

fn whole(value: i64) -> Numeric {
    Numeric::from(value)
}

/// The part of an infinity: another one, or none.
fn part_of_infinity(part: Part, positive: bool) -> Option<Numeric> {
    part.grows().then_some(if positive { Numeric::INFINITY } else { Numeric::NEG_INFINITY })
}

/// SQL's `extract` from a date; `None` is NULL. Errors: 22023, 0A000.
pub fn extract_date(field: &str, days: i64) -> Result<Option<Numeric>> {
    let name = field.to_ascii_lowercase();
    let part = Part::of(&name).ok_or_else(|| not_recognized(&name, Type::Date))?;
    let of_time = matches!(
        part,
        Part::Microseconds | Part::Milliseconds | Part::Second | Part::Minute | Part::Hour | Part::Other
    );
    if of_time || matches!(part, Part::Timezone | Part::TimezoneHour | Part::TimezoneMinute) {
        return Err(not_supported(&name, Type::Date));
    }
    if super::is_infinite_date(days) {
        return Ok(part_of_infinity(part, days > 0));
    }
    Ok(Some(match part {
        Part::Julian => whole(days + EPOCH_JULIAN),
        Part::Epoch => whole((days - UNIX_EPOCH_DAYS) * 86_400),
        _ => {
            let (year, month, day) = date_of_days(days);
            whole(part_of_day(part, days, &Civil { year, month, day, ..Civil::default() }))
        }
    }))
}

/// SQL's `extract` from a timestamp; `None` is NULL. Errors: 22023, 0A000.
pub fn extract_timestamp(field: &str, timestamp: i64) -> Result<Option<Numeric>> {
    extract(field, timestamp, None)
}

/// SQL's `extract` from a timestamp with time zone; `None` is NULL. Errors: 22023, 0A000.
pub fn extract_timestamptz(field: &str, timestamp: i64, zone: &Zone) -> Result<Option<Numeric>> {
    extract(field, timestamp, Some(zone))
}

fn extract(field: &str, timestamp: i64, zone: Option<&Zone>) -> Result<Option<Numeric>> {
    let ty = if zone.is_some() { Type::TimestampTz } else { Type::Timestamp };
    let name = field.to_ascii_lowercase();
    let part = Part::of(&name).ok_or_else(|| not_recognized(&name, ty))?;
    let of_zone = matches!(part, Part::Timezone | Part::TimezoneHour | Part::TimezoneMinute);
    if part == Part::Other {
        return Err(not_supported(&name, ty));
    }
    if is_infinite_timestamp(timestamp) {
        return Ok(part_of_infinity(part, timestamp > 0));
    }
    if of_zone && zone.is_none() {
        return Err(not_supported(&name, ty));
    }
    if part == Part::Epoch {
        return epoch(timestamp).map(Some);
    }
    let offset = zone.map_or(0, |zone| zone.offset_at(timestamp));
    let local = timestamp.checked_add(offset * USECS_PER_SECOND).ok_or_else(timestamp_out_of_range)?;
    let civil = Civil::of_timestamp(local);
    let days = local.div_euclid(USECS_PER_DAY);
    let in_minute = civil.second * USECS_PER_SECOND + civil.micros;
    Ok(Some(match part {
        Part::Microseconds => whole(in_minute),
        Part::Milliseconds => Numeric::new(in_minute, 3),
        Part::Second => Numeric::new(in_minute, 6),
        Part::Minute => whole(civil.minute),
        Part::Hour => whole(civil.hour),
        Part::Timezone => whole(offset),
        Part::TimezoneHour => whole(offset / 3600),
        Part::TimezoneMinute => whole(offset / 60 % 60),
        Part::Julian => {
            let time = whole(civil.time()).div(&whole(USECS_PER_DAY))?;
            whole(days + EPOCH_JULIAN).add(&time)?
        }
        _ => whole(part_of_day(part, days, &civil)),
    }))
}

/// Seconds since 1970.
fn epoch(timestamp: i64) -> Result<Numeric> {
    let unix = UNIX_EPOCH_DAYS * USECS_PER_DAY;
    match timestamp.checked_sub(unix) {
        Some(micros) => Ok(Numeric::new(micros, 6)),
        // The last 30 years of the range. PostgreSQL divides here, to the scale of a quotient.
        None => {
            let micros = Numeric::from_i128(i128::from(timestamp) - i128::from(unix), 0);
            micros.div(&whole(USECS_PER_SECOND))?.round(6)
        }
    }
}

fn part_of_day(part: Part, days: i64, civil: &Civil) -> i64 {
    // The year as people count it: there is none numbered 0.
    let year = if civil.year > 0 { civil.year } else { civil.year - 1 };
    let periods = |length: i64| {
        if civil.year > 0 { (civil.year + length - 1) / length } else { -((length - civil.year) / length) }
    };
    match part {
        Part::Day => civil.day,
        Part::Month => civil.month,
        Part::Quarter => (civil.month - 1) / 3 + 1,
        Part::Week => iso_week(days).1,
        Part::Decade if civil.year >= 0 => civil.year / 10,
        Part::Decade => -((9 - civil.year) / 10),
        Part::Century => periods(100),
        Part::Millennium => periods(1000),
        Part::IsoYear => {
            let (year, _) = iso_week(days);
            if year > 0 { year } else { year - 1 }
        }
        Part::Weekday => day_of_week(days),
        Part::IsoWeekday => (day_of_week(days) + 6) % 7 + 1,
        Part::DayOfYear => days - days_of_date(civil.year, 1, 1) + 1,
        _ => year,
    }
}

/// SQL's `date_trunc` of a timestamp. Errors: 22023, 0A000.
pub fn trunc_timestamp(field: &str, timestamp: i64) -> Result<i64> {
    if is_infinite_timestamp(timestamp) {
        return Ok(timestamp);
    }
    let part = trunc_part(field, Type::Timestamp)?;
    let cut = truncate(part, timestamp).ok_or_else(|| not_supported(field, Type::Timestamp))?;
    check_timestamp(cut.to_timestamp())
}

/// SQL's `date_trunc` of a timestamp with time zone, by that zone's clock. Errors: 22023, 0A000.
pub fn trunc_timestamptz(field: &str, timestamp: i64, zone: &Zone) -> Result<i64> {
    if is_infinite_timestamp(timestamp) {
        return Ok(timestamp);
    }
    let part = trunc_part(field, Type::TimestampTz)?;
    let offset = zone.offset_at(timestamp) * USECS_PER_SECOND;
    let local = timestamp.checked_add(offset).ok_or_else(timestamp_out_of_range)?;
    let cut = truncate(part, local).ok_or_else(|| not_supported(field, Type::TimestampTz))?;
    let within_day =
        matches!(part, Part::Microseconds | Part::Milliseconds | Part::Second | Part::Minute | Part::Hour);
    let cut = cut.to_timestamp();
    check_timestamp(if within_day {
        cut.and_then(|cut| cut.checked_sub(offset))
    } else {
        // The beginning of the day may have another offset.
        cut.and_then(|cut| zone.to_utc(cut))
    })
}

fn trunc_part(field: &str, ty: Type) -> Result<Part> {
    let name = field.to_ascii_lowercase();
    Part::unit(&name).ok_or_else(|| not_recognized(&name, ty))
}

fn truncate(part: Part, timestamp: i64) -> Option<Civil> {
    let civil = Civil::of_timestamp(timestamp);
    let midnight = Civil { hour: 0, minute: 0, second: 0, micros: 0, ..civil };
    let year = |year: i64| Civil { year, month: 1, day: 1, ..midnight };
    let period = |length: i64| {
        if civil.year > 0 {
            year((civil.year + length - 1) / length * length - length + 1)
        } else {
            year(-((length - civil.year) / length * length) + 1)
        }
    };
    Some(match part {
        Part::Microseconds => civil,
        Part::Milliseconds => Civil { micros: civil.micros / 1000 * 1000, ..civil },
        Part::Second => Civil { micros: 0, ..civil },
        Part::Minute => Civil { second: 0, micros: 0, ..civil },
        Part::Hour => Civil { hour: civil.hour, ..midnight },
        Part::Day => midnight,
        Part::Week => {
            let (iso_year, week) = iso_week(timestamp.div_euclid(USECS_PER_DAY));
            let (year, month, day) = date_of_days(days_of_iso_week(iso_year, week));
            Civil { year, month, day, ..midnight }
        }
        Part::Month => Civil { day: 1, ..midnight },
        Part::Quarter => Civil { month: (civil.month - 1) / 3 * 3 + 1, day: 1, ..midnight },
        Part::Year => year(civil.year),
        Part::Decade if civil.year > 0 => year(civil.year / 10 * 10),
        Part::Decade => year(-((9 - civil.year) / 10 * 10)),
        Part::Century => period(100),
        Part::Millennium => period(1000),
        _ => return None,
    })
}
