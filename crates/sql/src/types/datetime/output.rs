//! Dates and timestamps as text, in ISO style: `2024-01-31 10:20:30.5+01`.

use super::Zone;
use super::calendar::{
    Civil, DATE_INFINITY, DATE_NEG_INFINITY, TIMESTAMP_INFINITY, TIMESTAMP_NEG_INFINITY, date_of_days,
};

/// Appends a date.
pub fn write_date(days: i64, out: &mut String) {
    match days {
        DATE_INFINITY => out.push_str("infinity"),
        DATE_NEG_INFINITY => out.push_str("-infinity"),
        _ => {
            let (year, month, day) = date_of_days(days);
            push_date(year, month, day, out);
            push_era(year, out);
        }
    }
}

/// Appends a timestamp without time zone.
pub fn write_timestamp(timestamp: i64, out: &mut String) {
    if push_infinity(timestamp, out) {
        return;
    }
    let civil = Civil::of_timestamp(timestamp);
    push_date(civil.year, civil.month, civil.day, out);
    push_time(&civil, out);
    push_era(civil.year, out);
}

/// Appends a timestamp as the clock of a time zone shows it, with the zone's offset.
pub fn write_timestamptz(timestamp: i64, zone: &Zone, out: &mut String) {
    if push_infinity(timestamp, out) {
        return;
    }
    let offset = zone.offset_at(timestamp);
    // Near the ends of the range the sum overflows only with offsets that no zone has.
    let civil = Civil::of_timestamp(zone.to_local(timestamp).unwrap_or(timestamp));
    push_date(civil.year, civil.month, civil.day, out);
    push_time(&civil, out);
    push_offset(offset, out);
    push_era(civil.year, out);
}

fn push_infinity(timestamp: i64, out: &mut String) -> bool {
    match timestamp {
        TIMESTAMP_INFINITY => out.push_str("infinity"),
        TIMESTAMP_NEG_INFINITY => out.push_str("-infinity"),
        _ => return false,
    }
    true
}

/// A number with at least so many digits, of which there are no more than eight.
#[inline]
fn push_padded(value: i64, width: usize, out: &mut String) {
    let mut digits = [b'0'; 8];
    let (mut rest, mut start) = (value.unsigned_abs() as u32, digits.len());
    while start > digits.len() - width || rest > 0 {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.push_str(std::str::from_utf8(&digits[start..]).unwrap_or_default());
}

/// A number of two digits.
#[inline]
fn push_two(value: i64, out: &mut String) {
    let digit = |value: i64| char::from(b'0' + (value % 10) as u8);
    out.push(digit(value / 10));
    out.push(digit(value));
}

fn push_date(year: i64, month: i64, day: i64, out: &mut String) {
    push_padded(if year > 0 { year } else { 1 - year }, 4, out);
    out.push('-');
    push_two(month, out);
    out.push('-');
    push_two(day, out);
}

fn push_era(year: i64, out: &mut String) {
    if year <= 0 {
        out.push_str(" BC");
    }
}

fn push_time(civil: &Civil, out: &mut String) {
    out.push(' ');
    push_two(civil.hour, out);
    out.push(':');
    push_two(civil.minute, out);
    out.push(':');
    push_two(civil.second, out);
    if civil.micros != 0 {
        out.push('.');
        let (mut value, mut width) = (civil.micros, 6);
        while value % 10 == 0 {
            value /= 10;
            width -= 1;
        }
        push_padded(value, width, out);
    }
}

fn push_offset(seconds: i64, out: &mut String) {
    out.push(if seconds < 0 { '-' } else { '+' });
    let rest = seconds.abs();
    push_two(rest / 3600, out);
    if rest % 3600 != 0 {
        out.push(':');
        push_two(rest / 60 % 60, out);
        if rest % 60 != 0 {
            out.push(':');
            push_two(rest % 60, out);
        }
    }
}
