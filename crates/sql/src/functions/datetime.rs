//! Functions of dates and timestamps: the arithmetic is that of [`crate::types::datetime`].

use super::arguments::{float, int, text};
use super::session::now;
use super::string::picture;
use super::{Argument, Call, Function, Returns};
use crate::types::datetime::{self, Zone};
use crate::types::{Numeric, Type, Value};
use crate::{Error, Result, SqlState};

fn zone<'a>(call: &'a Call<'_, '_>) -> &'a Zone {
    &call.context.session.style.zone
}

fn transaction_time(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(Value::Int(call.context.session.transaction_start))
}

/// Digits of a second that are asked for; all of them without an argument.
fn precision(a: &[Value]) -> Result<i32> {
    let digits = super::arguments::int_or(a, 0, 6)?;
    if digits < 0 {
        let message = format!("TIMESTAMP({digits}) precision must not be negative");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(digits.min(6) as i32)
}

fn current_timestamp(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let time = call.context.session.transaction_start;
    Ok(Value::Int(datetime::fit_timestamp(time, precision(a)?)))
}

fn local_timestamp(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let local = datetime::timestamptz_to_timestamp(call.context.session.transaction_start, zone(call))?;
    Ok(Value::Int(datetime::fit_timestamp(local, precision(a)?)))
}

fn current_date(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    datetime::timestamptz_to_date(call.context.session.transaction_start, zone(call)).map(Value::Int)
}

fn statement_time(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(Value::Int(call.context.session.statement_start))
}

fn clock_time(_: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(Value::Int(now()))
}

fn time_of_day(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    let text = datetime::to_char(now(), Some(zone(call)), "Dy Mon DD HH24:MI:SS.US YYYY TZ")?;
    Ok(text.map_or(Value::Null, Value::text))
}

/// What `extract` gives, as numeric; NULL where an infinity has no such part.
fn exact(part: Option<Numeric>) -> Result<Value> {
    Ok(part.map_or(Value::Null, Value::Numeric))
}

/// The same as `date_part` gives it: a float.
fn inexact(part: Option<Numeric>) -> Result<Value> {
    Ok(part.map_or(Value::Null, |part| Value::Float(part.to_f64_lossy())))
}

fn extract_date(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    exact(datetime::extract_date(text(a, 0)?, int(a, 1)?)?)
}

fn extract_timestamp(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    exact(datetime::extract_timestamp(text(a, 0)?, int(a, 1)?)?)
}

fn extract_timestamptz(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    exact(datetime::extract_timestamptz(text(a, 0)?, int(a, 1)?, zone(call))?)
}

/// Of a date, `date_part` gives what its midnight has: hours, too.
fn part_of_date(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    inexact(datetime::extract_timestamp(text(a, 0)?, datetime::date_to_timestamp(int(a, 1)?)?)?)
}

fn part_of_timestamp(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    inexact(datetime::extract_timestamp(text(a, 0)?, int(a, 1)?)?)
}

fn part_of_timestamptz(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    inexact(datetime::extract_timestamptz(text(a, 0)?, int(a, 1)?, zone(call))?)
}

fn truncate(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    datetime::trunc_timestamp(text(a, 0)?, int(a, 1)?).map(Value::Int)
}

fn truncate_in_zone(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let named = if a.len() > 2 { Some(Zone::find(text(a, 2)?)?) } else { None };
    let zone = named.as_ref().unwrap_or(zone(call));
    datetime::trunc_timestamptz(text(a, 0)?, int(a, 1)?, zone).map(Value::Int)
}

fn make_date(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    datetime::make_date(int(a, 0)?, int(a, 1)?, int(a, 2)?).map(Value::Int)
}

fn parts_of(a: &[Value]) -> Result<i64> {
    datetime::make_timestamp(int(a, 0)?, int(a, 1)?, int(a, 2)?, int(a, 3)?, int(a, 4)?, float(a, 5)?)
}

fn make_timestamp(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    parts_of(a).map(Value::Int)
}

fn make_timestamptz(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let named = if a.len() > 6 { Some(Zone::of_parts(text(a, 6)?)?) } else { None };
    let zone = named.as_ref().unwrap_or(zone(call));
    datetime::timestamp_to_timestamptz(parts_of(a)?, zone).map(Value::Int)
}

fn from_epoch(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    datetime::timestamp_from_epoch(float(a, 0)?).map(Value::Int)
}

fn at_zone(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    datetime::timestamptz_to_timestamp(int(a, 1)?, &Zone::find(text(a, 0)?)?).map(Value::Int)
}

fn of_zone(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    datetime::timestamp_to_timestamptz(int(a, 1)?, &Zone::find(text(a, 0)?)?).map(Value::Int)
}

fn is_finite_date(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Bool(!datetime::is_infinite_date(int(a, 0)?)))
}

fn is_finite_timestamp(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Bool(!datetime::is_infinite_timestamp(int(a, 0)?)))
}

fn timestamp_to_char(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(datetime::to_char(int(a, 0)?, None, picture(call, a, 1)?)?.map_or(Value::Null, Value::text))
}

fn timestamptz_to_char(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(datetime::to_char(int(a, 0)?, Some(zone(call)), picture(call, a, 1)?)?
        .map_or(Value::Null, Value::text))
}

fn to_date(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    datetime::to_date(text(a, 0)?, picture(call, a, 1)?).map(Value::Int)
}

fn to_timestamp(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    datetime::to_timestamp(text(a, 0)?, picture(call, a, 1)?, zone(call)).map(Value::Int)
}

/// `date(value)`: a cast that is spelled as a call.
fn date_of_timestamp(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    datetime::timestamp_to_date(int(a, 0)?).map(Value::Int)
}

fn date_of_timestamptz(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    datetime::timestamptz_to_date(int(a, 0)?, zone(call)).map(Value::Int)
}

fn compared_date(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(datetime::compared_date(int(a, 0)?)))
}

fn compared_date_tz(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(datetime::compared_date_tz(int(a, 0)?, zone(call))))
}

fn compared_timestamp(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(datetime::compared_timestamp(int(a, 0)?, zone(call))))
}

/// How moments are converted that are compared with those of another type. No name means these.
#[rustfmt::skip]
static COMPARED: &[Function] = functions! {
    9990 "timestamp" (Date) Timestamp = compared_date;
    9991 "timestamptz" (Date) TimestampTz.stable() = compared_date_tz;
    9992 "timestamptz" (Timestamp) TimestampTz.stable() = compared_timestamp;
};

/// What converts a moment for a comparison, where that could fail otherwise.
pub(crate) fn compared_moment(from: Type, to: Type) -> Option<&'static Function> {
    COMPARED
        .iter()
        .find(|function| function.arguments == [Argument::Is(from)] && function.returns == Returns::Is(to))
}

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    1299 "now" () TimestampTz.stable() = transaction_time;
    2647 "transaction_timestamp" () TimestampTz.stable() = transaction_time;
    2648 "statement_timestamp" () TimestampTz.stable() = statement_time;
    2649 "clock_timestamp" () TimestampTz.volatile() = clock_time;
    274 "timeofday" () Text.volatile() = time_of_day;
    9010 "current_timestamp" (Int4) TimestampTz.optional(1).stable() = current_timestamp;
    9011 "localtimestamp" (Int4) Timestamp.optional(1).stable() = local_timestamp;
    9012 "current_date" () Date.stable() = current_date;
    6199 "extract" (Text Date) Numeric = extract_date;
    6202 "extract" (Text Timestamp) Numeric = extract_timestamp;
    6203 "extract" (Text TimestampTz) Numeric.stable() = extract_timestamptz;
    1384 "date_part" (Text Date) Float8 = part_of_date;
    2021 "date_part" (Text Timestamp) Float8 = part_of_timestamp;
    1171 "date_part" (Text TimestampTz) Float8.stable() = part_of_timestamptz;
    2020 "date_trunc" (Text Timestamp) Timestamp = truncate;
    1217 "date_trunc" (Text TimestampTz) TimestampTz.stable() = truncate_in_zone;
    1284 "date_trunc" (Text TimestampTz Text) TimestampTz.stable() = truncate_in_zone;
    3846 "make_date" (Int4 Int4 Int4) Date = make_date;
    3461 "make_timestamp" (Int4 Int4 Int4 Int4 Int4 Float8) Timestamp = make_timestamp;
    3462 "make_timestamptz" (Int4 Int4 Int4 Int4 Int4 Float8) TimestampTz.stable() = make_timestamptz;
    3463 "make_timestamptz" (Int4 Int4 Int4 Int4 Int4 Float8 Text) TimestampTz.stable() = make_timestamptz;
    1158 "to_timestamp" (Float8) TimestampTz = from_epoch;
    2049 "to_char" (Timestamp Text) Text.stable() = timestamp_to_char;
    1770 "to_char" (TimestampTz Text) Text.stable() = timestamptz_to_char;
    1780 "to_date" (Text Text) Date.stable() = to_date;
    1778 "to_timestamp" (Text Text) TimestampTz.stable() = to_timestamp;
    1159 "timezone" (Text TimestampTz) Timestamp = at_zone;
    2069 "timezone" (Text Timestamp) TimestampTz = of_zone;
    1373 "isfinite" (Date) Bool = is_finite_date;
    1389 "isfinite" (TimestampTz) Bool = is_finite_timestamp;
    2048 "isfinite" (Timestamp) Bool = is_finite_timestamp;
    2029 "date" (Timestamp) Date = date_of_timestamp;
    1178 "date" (TimestampTz) Date.stable() = date_of_timestamptz;
};
