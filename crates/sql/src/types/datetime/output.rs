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
    push_date_and_time(&civil, out);
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
    push_date_and_time(&civil, out);
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

/// A date, a time or an offset on its way to text: a string that grew by a character at a time would take several times as long.
#[derive(Default)]
struct Line {
    /// Enough for `294276-12-31 23:59:59.999999`, and for a date of the year 5874897.
    bytes: [u8; 32],
    len: usize,
}

impl Line {
    #[inline]
    fn byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// A number of two digits.
    #[inline]
    fn two(&mut self, value: i64) {
        self.byte(b'0' + (value / 10 % 10) as u8);
        self.byte(b'0' + (value % 10) as u8);
    }

    /// A number with at least so many digits, of which there are no more than eight.
    #[inline]
    fn padded(&mut self, value: i64, width: usize) {
        let mut digits = [b'0'; 8];
        let (mut rest, mut start) = (value.unsigned_abs() as u32, digits.len());
        while start > digits.len() - width || rest > 0 {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let digits = &digits[start..];
        self.bytes[self.len..][..digits.len()].copy_from_slice(digits);
        self.len += digits.len();
    }

    #[inline]
    fn date(&mut self, year: i64, month: i64, day: i64) {
        match if year > 0 { year } else { 1 - year } {
            year @ ..=9999 => {
                self.two(year / 100);
                self.two(year % 100);
            }
            year => self.padded(year, 4),
        }
        self.byte(b'-');
        self.two(month);
        self.byte(b'-');
        self.two(day);
    }

    #[inline]
    fn time(&mut self, civil: &Civil) {
        self.byte(b' ');
        self.two(civil.hour);
        self.byte(b':');
        self.two(civil.minute);
        self.byte(b':');
        self.two(civil.second);
        if civil.micros != 0 {
            self.byte(b'.');
            let (mut value, mut width) = (civil.micros, 6);
            while value % 10 == 0 {
                value /= 10;
                width -= 1;
            }
            self.padded(value, width);
        }
    }

    #[inline]
    fn end(&self, out: &mut String) {
        out.push_str(std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default());
    }
}

fn push_date(year: i64, month: i64, day: i64, out: &mut String) {
    let mut line = Line::default();
    line.date(year, month, day);
    line.end(out);
}

fn push_date_and_time(civil: &Civil, out: &mut String) {
    let mut line = Line::default();
    line.date(civil.year, civil.month, civil.day);
    line.time(civil);
    line.end(out);
}

fn push_era(year: i64, out: &mut String) {
    if year <= 0 {
        out.push_str(" BC");
    }
}

fn push_offset(seconds: i64, out: &mut String) {
    let mut line = Line::default();
    line.byte(if seconds < 0 { b'-' } else { b'+' });
    let rest = seconds.abs();
    line.two(rest / 3600);
    if rest % 3600 != 0 {
        line.byte(b':');
        line.two(rest / 60 % 60);
        if rest % 60 != 0 {
            line.byte(b':');
            line.two(rest % 60);
        }
    }
    line.end(out);
}
