//! Dates and timestamps as text, in ISO style: `2024-01-31 10:20:30.5+01`.

use super::Zone;
use super::calendar::{
    DATE_INFINITY, DATE_NEG_INFINITY, TIMESTAMP_INFINITY, TIMESTAMP_NEG_INFINITY, USECS_PER_DAY,
    USECS_PER_SECOND, date_of_days,
};
use crate::digits::{ASCII, eight};

/// Appends a date.
pub fn write_date(days: i64, out: &mut String) {
    let mut line = Line::default();
    match days {
        DATE_INFINITY => line.word(b"infinity"),
        DATE_NEG_INFINITY => line.word(b"-infinity"),
        _ => {
            let (year, month, day) = date_of_days(days);
            line.date(year, month, day);
            line.era(year);
        }
    }
    line.end(out);
}

/// Appends a timestamp without time zone.
pub fn write_timestamp(timestamp: i64, out: &mut String) {
    Day::default().timestamp(timestamp).end(out);
}

/// A day and its text, for timestamps that are of one day, mostly.
#[derive(Debug)]
pub(crate) struct Day {
    days: i64,
    /// Its date, without what is said of an era.
    date: Line,
    year: i64,
}

impl Default for Day {
    fn default() -> Self {
        // No day that a timestamp is of.
        Day { days: i64::MAX, date: Line::default(), year: 1 }
    }
}

impl Day {
    /// The text of a timestamp without time zone.
    #[inline]
    pub(crate) fn timestamp(&mut self, timestamp: i64) -> Line {
        let mut line = Line::default();
        if line.infinity(timestamp) {
            return line;
        }
        let (days, time) = (timestamp.div_euclid(USECS_PER_DAY), timestamp.rem_euclid(USECS_PER_DAY));
        if days != self.days {
            let (year, month, day) = date_of_days(days);
            *self = Day { days, date: Line::default(), year };
            self.date.date(year, month, day);
        }
        line.clone_from(&self.date);
        line.time(time);
        line.era(self.year);
        line
    }
}

/// Appends a timestamp as the clock of a time zone shows it, with the zone's offset.
pub fn write_timestamptz(timestamp: i64, zone: &Zone, out: &mut String) {
    let mut line = Line::default();
    if !line.infinity(timestamp) {
        let offset = zone.offset_at(timestamp);
        // Near the ends of the range the sum overflows only with offsets that no zone has.
        let local = zone.to_local(timestamp).unwrap_or(timestamp);
        let (year, month, day) = date_of_days(local.div_euclid(USECS_PER_DAY));
        line.date(year, month, day);
        line.time(local.rem_euclid(USECS_PER_DAY));
        line.offset(offset);
        line.era(year);
    }
    line.end(out);
}

/// The text of a date or a time, as long as it is being made: a string that grew by a character at a time would take several times as long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// Enough for `294276-12-31 23:59:59.999999+15:59:59`, for as much before our era, and for a date of the year 5874897.
    bytes: [[u8; 16]; 3],
    len: usize,
}

impl Line {
    /// What it is.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes.as_flattened()[..self.len]
    }

    /// Appends the first ones of these bytes.
    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N], used: usize) {
        self.bytes.as_flattened_mut()[self.len..self.len + N].copy_from_slice(&bytes);
        self.len += used;
    }

    #[inline]
    fn word<const N: usize>(&mut self, word: &[u8; N]) {
        self.put(*word, N);
    }

    #[inline]
    fn infinity(&mut self, timestamp: i64) -> bool {
        match timestamp {
            TIMESTAMP_INFINITY => self.word(b"infinity"),
            TIMESTAMP_NEG_INFINITY => self.word(b"-infinity"),
            _ => return false,
        }
        true
    }

    /// A number of two digits.
    #[inline]
    fn two(&mut self, value: i64) {
        let [tens, units] = [value / 10 % 10, value % 10].map(|digit| b'0' + digit as u8);
        self.word(&[tens, units]);
    }

    /// The year with four digits or more, month and day.
    #[inline]
    fn date(&mut self, year: i64, month: i64, day: i64) {
        match if year > 0 { year } else { 1 - year } {
            year @ ..=9999 => {
                // YYYYMMDD, and then two hyphens in between.
                let digits = eight((year * 10_000 + month * 100 + day) as u32) | ASCII;
                let [y0, y1, y2, y3, m0, m1, d0, d1] = digits.to_le_bytes();
                self.word(&[y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1]);
            }
            year => {
                let digits = eight(year as u32);
                let zeros = (digits.trailing_zeros() / 8).min(7);
                self.put(((digits | ASCII) >> (8 * zeros)).to_le_bytes(), 8 - zeros as usize);
                self.word(b"-");
                self.two(month);
                self.word(b"-");
                self.two(day);
            }
        }
    }

    /// The time of a day, by its microseconds.
    #[inline]
    fn time(&mut self, time: i64) {
        let (seconds, micros) = ((time / USECS_PER_SECOND) as u32, (time % USECS_PER_SECOND) as u32);
        let clock = seconds / 3600 * 10_000 + seconds / 60 % 60 * 100 + seconds % 60;
        let [_, _, h0, h1, m0, m1, s0, s1] = (eight(clock) | ASCII).to_le_bytes();
        self.word(&[b' ', h0, h1, b':', m0, m1, b':', s0, s1]);
        if micros != 0 {
            // Six digits, less the zeros at their end.
            let digits = eight(micros) >> 16;
            self.word(b".");
            self.put((digits | ASCII).to_le_bytes(), 8 - digits.leading_zeros() as usize / 8);
        }
    }

    /// What stands behind a year before ours.
    #[inline]
    fn era(&mut self, year: i64) {
        if year <= 0 {
            self.word(b" BC");
        }
    }

    fn offset(&mut self, seconds: i64) {
        self.word(if seconds < 0 { b"-" } else { b"+" });
        let rest = seconds.abs();
        // A zone by its number of hours may be farther away than any is.
        if rest / 3600 >= 100 {
            self.word(&[b'0' + (rest / 360_000) as u8]);
        }
        self.two(rest / 3600);
        if rest % 3600 != 0 {
            self.word(b":");
            self.two(rest / 60 % 60);
            if rest % 60 != 0 {
                self.word(b":");
                self.two(rest % 60);
            }
        }
    }

    #[inline]
    fn end(&self, out: &mut String) {
        out.push_str(std::str::from_utf8(self.as_bytes()).unwrap_or_default());
    }
}
