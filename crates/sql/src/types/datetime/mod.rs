//! Dates and timestamps: reading, writing, parts, time zones.
//!
//! A date is a number of days since 2000-01-01, a timestamp a number of microseconds since 2000-01-01 00:00, in UTC if it has a
//! time zone. The calendar is the Gregorian one, also before it was invented; year 0 is 1 BC. The smallest and the largest
//! number of each are the infinities. Leap seconds do not exist.
//!
//! | module | job |
//! |---|---|
//! | `calendar` | days from and to year, month and day; limits |
//! | `zone` | time zones |
//! | `input` | text to date and timestamp, in all the ways PostgreSQL understands |
//! | `output` | date and timestamp to text, in ISO style |
//! | `parts` | extract, date_trunc, make_date and so on |
//! | `format` | to_char, to_date, to_timestamp |

mod calendar;
mod format;
mod input;
mod output;
mod parts;
mod zone;
mod zone_names;

#[cfg(test)]
mod tests;

pub use calendar::{
    Civil, DATE_INFINITY, DATE_NEG_INFINITY, TIMESTAMP_INFINITY, TIMESTAMP_NEG_INFINITY, UNIX_EPOCH_DAYS,
    USECS_PER_DAY, USECS_PER_HOUR, USECS_PER_MINUTE, USECS_PER_SECOND, check_date, check_timestamp,
    date_of_days, date_out_of_range, days_of_date, is_infinite_date, is_infinite_timestamp,
    timestamp_out_of_range,
};
pub use format::{to_char, to_date, to_timestamp};
pub use input::{names_the_moment, read_date, read_timestamp, read_timestamptz};
pub(crate) use output::Day;
pub use output::{write_date, write_timestamp, write_timestamptz};
pub use parts::{
    compared_date, compared_date_tz, compared_timestamp, date_to_timestamp, date_to_timestamptz,
    extract_date, extract_timestamp, extract_timestamptz, fit_timestamp, is_near, make_date, make_timestamp,
    timestamp_from_epoch, timestamp_to_date, timestamp_to_timestamptz, timestamptz_to_date,
    timestamptz_to_timestamp, trunc_timestamp, trunc_timestamptz,
};
pub use zone::Zone;
