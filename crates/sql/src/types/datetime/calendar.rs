//! The calendar: days from and to year, month and day, and the limits of the types.

use crate::{Error, Result, SqlState};

/// Microseconds in a second.
pub const USECS_PER_SECOND: i64 = 1_000_000;
/// Microseconds in a minute.
pub const USECS_PER_MINUTE: i64 = 60 * USECS_PER_SECOND;
/// Microseconds in an hour.
pub const USECS_PER_HOUR: i64 = 60 * USECS_PER_MINUTE;
/// Microseconds in a day.
pub const USECS_PER_DAY: i64 = 24 * USECS_PER_HOUR;

/// 1970-01-01 as days since 2000-01-01.
pub const UNIX_EPOCH_DAYS: i64 = -10_957;
/// 2000-01-01 as days since the Julian epoch.
pub(super) const EPOCH_JULIAN: i64 = 2_451_545;

/// The date behind all others.
pub const DATE_INFINITY: i64 = i32::MAX as i64;
/// The date before all others.
pub const DATE_NEG_INFINITY: i64 = i32::MIN as i64;
/// The timestamp behind all others.
pub const TIMESTAMP_INFINITY: i64 = i64::MAX;
/// The timestamp before all others.
pub const TIMESTAMP_NEG_INFINITY: i64 = i64::MIN;

/// 4714-11-24 BC, Julian day 0.
const DATE_MIN: i64 = -EPOCH_JULIAN;
/// The day after 5874897-12-31.
const DATE_END: i64 = 2_145_031_949;
const TIMESTAMP_MIN: i64 = DATE_MIN * USECS_PER_DAY;
/// 294277-01-01
const TIMESTAMP_END: i64 = 9_223_371_331_200_000_000;

/// A day and a time of day, in some time zone or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Civil {
    /// Year; 0 is 1 BC.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: i64,
    /// Day of the month, 1 to 31.
    pub day: i64,
    /// Hour, 0 to 23.
    pub hour: i64,
    /// Minute.
    pub minute: i64,
    /// Second.
    pub second: i64,
    /// Microsecond.
    pub micros: i64,
}

impl Civil {
    /// The parts of a finite timestamp.
    pub fn of_timestamp(timestamp: i64) -> Self {
        let (days, time) = (timestamp.div_euclid(USECS_PER_DAY), timestamp.rem_euclid(USECS_PER_DAY));
        let (year, month, day) = date_of_days(days);
        Civil {
            year,
            month,
            day,
            hour: time / USECS_PER_HOUR,
            minute: time / USECS_PER_MINUTE % 60,
            second: time / USECS_PER_SECOND % 60,
            micros: time % USECS_PER_SECOND,
        }
    }

    /// The timestamp they are, whether or not in range; `None` beyond 64 bits.
    pub fn to_timestamp(self) -> Option<i64> {
        let days = days_of_date(self.year, self.month, self.day);
        days.checked_mul(USECS_PER_DAY)?.checked_add(self.time())
    }

    /// Microseconds since midnight.
    pub fn time(self) -> i64 {
        self.hour * USECS_PER_HOUR
            + self.minute * USECS_PER_MINUTE
            + self.second * USECS_PER_SECOND
            + self.micros
    }
}

/// Days since 2000-01-01 of a date of the Gregorian calendar. Month is 1 to 12, day may be any.
pub fn days_of_date(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last one; eras are 400 years.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // 730425 days from 0000-03-01 to 2000-01-01.
    era * 146_097 + day_of_era - 730_425
}

/// Year, month and day of a number of days since 2000-01-01.
pub fn date_of_days(days: i64) -> (i64, i64, i64) {
    let days = days + 730_425;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

pub(super) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(super) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Day of the week, Sunday is 0.
pub(super) fn day_of_week(days: i64) -> i64 {
    // 2000-01-01 was a Saturday.
    (days + 6).rem_euclid(7)
}

/// Year and week by ISO 8601: weeks begin on Monday and belong to the year of their Thursday.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    let thursday = days - (day_of_week(days) + 6) % 7 + 3;
    let (year, ..) = date_of_days(thursday);
    (year, (thursday - days_of_date(year, 1, 1)) / 7 + 1)
}

/// Monday of a week by ISO 8601.
pub(super) fn days_of_iso_week(year: i64, week: i64) -> i64 {
    // January 4th is always in the first week.
    let fourth = days_of_date(year, 1, 4);
    fourth - (day_of_week(fourth) + 6) % 7 + (week - 1) * 7
}

/// Whether a date is an infinity.
pub fn is_infinite_date(days: i64) -> bool {
    days == DATE_INFINITY || days == DATE_NEG_INFINITY
}

/// Whether a timestamp is an infinity.
pub fn is_infinite_timestamp(timestamp: i64) -> bool {
    timestamp == TIMESTAMP_INFINITY || timestamp == TIMESTAMP_NEG_INFINITY
}

pub(super) fn date_in_range(days: i64) -> bool {
    (DATE_MIN..DATE_END).contains(&days)
}

pub(super) fn timestamp_in_range(timestamp: i64) -> bool {
    (TIMESTAMP_MIN..TIMESTAMP_END).contains(&timestamp)
}

/// A date as result of a calculation: 22008 where it is out of range.
pub fn check_date(days: Option<i64>) -> Result<i64> {
    days.filter(|days| date_in_range(*days)).ok_or_else(date_out_of_range)
}

/// A timestamp as result of a calculation: 22008 where it is out of range.
pub fn check_timestamp(timestamp: Option<i64>) -> Result<i64> {
    timestamp.filter(|timestamp| timestamp_in_range(*timestamp)).ok_or_else(timestamp_out_of_range)
}

/// 22008
pub fn date_out_of_range() -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range")
}

/// 22008
pub fn timestamp_out_of_range() -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
}
