//! Operators of whole numbers and dates.

use super::arguments::int;
use super::{Call, Function};
use crate::types::Value;
use crate::{Error, Result, SqlState};

/// A width of whole numbers.
trait Width {
    const MIN: i64;
    const MAX: i64;
    const NAME: &'static str;
}

/// smallint
struct Small;
/// integer
struct Medium;
/// bigint
struct Big;

impl Width for Small {
    const MIN: i64 = i16::MIN as i64;
    const MAX: i64 = i16::MAX as i64;
    const NAME: &'static str = "smallint";
}

impl Width for Medium {
    const MIN: i64 = i32::MIN as i64;
    const MAX: i64 = i32::MAX as i64;
    const NAME: &'static str = "integer";
}

impl Width for Big {
    const MIN: i64 = i64::MIN;
    const MAX: i64 = i64::MAX;
    const NAME: &'static str = "bigint";
}

#[inline]
fn fit<W: Width>(value: Option<i64>) -> Result<Value> {
    match value {
        Some(value) if (W::MIN..=W::MAX).contains(&value) => Ok(Value::Int(value)),
        _ => Err(Error::out_of_range(W::NAME)),
    }
}

pub(super) fn division_by_zero() -> Error {
    Error::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

fn add<W: Width>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    fit::<W>(int(a, 0)?.checked_add(int(a, 1)?))
}

fn sub<W: Width>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    fit::<W>(int(a, 0)?.checked_sub(int(a, 1)?))
}

fn mul<W: Width>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    fit::<W>(int(a, 0)?.checked_mul(int(a, 1)?))
}

fn div<W: Width>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    match int(a, 1)? {
        0 => Err(division_by_zero()),
        divisor => fit::<W>(int(a, 0)?.checked_div(divisor)),
    }
}

fn rem(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    match int(a, 1)? {
        0 => Err(division_by_zero()),
        divisor => Ok(Value::Int(int(a, 0)?.wrapping_rem(divisor))),
    }
}

fn neg<W: Width>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    fit::<W>(int(a, 0)?.checked_neg())
}

fn abs<W: Width>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    fit::<W>(int(a, 0)?.checked_abs())
}

pub(super) fn same(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(a.first().cloned().unwrap_or_default())
}

fn and(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(int(a, 0)? & int(a, 1)?))
}

fn or(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(int(a, 0)? | int(a, 1)?))
}

fn xor(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(int(a, 0)? ^ int(a, 1)?))
}

fn not(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(!int(a, 0)?))
}

// A shift takes the low bits of its distance, as the processors PostgreSQL runs on do.
fn shl2(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(i64::from((int(a, 0)? as i32).wrapping_shl(int(a, 1)? as u32) as i16)))
}

fn shl4(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(i64::from((int(a, 0)? as i32).wrapping_shl(int(a, 1)? as u32))))
}

fn shl8(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(int(a, 0)?.wrapping_shl(int(a, 1)? as u32)))
}

fn shr4(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(i64::from((int(a, 0)? as i32).wrapping_shr(int(a, 1)? as u32))))
}

fn shr8(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(int(a, 0)?.wrapping_shr(int(a, 1)? as u32)))
}

fn greatest_divisor(a: i64, b: i64) -> u64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn gcd<W: Width>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    fit::<W>(i64::try_from(greatest_divisor(int(a, 0)?, int(a, 1)?)).ok())
}

fn lcm<W: Width>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (a, b) = (int(a, 0)?, int(a, 1)?);
    if a == 0 || b == 0 {
        return Ok(Value::Int(0));
    }
    let multiple = (a.unsigned_abs() / greatest_divisor(a, b)).checked_mul(b.unsigned_abs());
    fit::<W>(multiple.and_then(|multiple| i64::try_from(multiple).ok()))
}

/// Days that a date may be away from 2000-01-01: 4714-11-24 BC, and one more than 5874897-12-31.
const DATES: std::ops::Range<i64> = -2_451_545..2_145_031_949;

fn is_infinite_date(days: i64) -> bool {
    days == i64::from(i32::MIN) || days == i64::from(i32::MAX)
}

fn shift_date(days: i64, by: i64) -> Result<Value> {
    if is_infinite_date(days) {
        return Ok(Value::Int(days));
    }
    // Both are of 32 bits.
    let sum = days.saturating_add(by);
    if !DATES.contains(&sum) {
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range"));
    }
    Ok(Value::Int(sum))
}

fn date_plus(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    shift_date(int(a, 0)?, int(a, 1)?)
}

fn plus_date(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    shift_date(int(a, 1)?, int(a, 0)?)
}

fn date_minus(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    shift_date(int(a, 0)?, int(a, 1)?.saturating_neg())
}

fn dates_apart(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (a, b) = (int(a, 0)?, int(a, 1)?);
    if is_infinite_date(a) || is_infinite_date(b) {
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite dates"));
    }
    fit::<Medium>(a.checked_sub(b))
}

#[rustfmt::skip]
pub(super) const OPERATORS: &[(&str, Function)] = operators! {
    "+" 176 "int2pl" (Int2 Int2) Int2 = add::<Small>;
    "+" 177 "int4pl" (Int4 Int4) Int4 = add::<Medium>;
    "+" 463 "int8pl" (Int8 Int8) Int8 = add::<Big>;
    "+" 178 "int24pl" (Int2 Int4) Int4 = add::<Medium>;
    "+" 179 "int42pl" (Int4 Int2) Int4 = add::<Medium>;
    "+" 837 "int82pl" (Int8 Int2) Int8 = add::<Big>;
    "+" 841 "int28pl" (Int2 Int8) Int8 = add::<Big>;
    "+" 1274 "int84pl" (Int8 Int4) Int8 = add::<Big>;
    "+" 1278 "int48pl" (Int4 Int8) Int8 = add::<Big>;
    "-" 180 "int2mi" (Int2 Int2) Int2 = sub::<Small>;
    "-" 181 "int4mi" (Int4 Int4) Int4 = sub::<Medium>;
    "-" 464 "int8mi" (Int8 Int8) Int8 = sub::<Big>;
    "-" 182 "int24mi" (Int2 Int4) Int4 = sub::<Medium>;
    "-" 183 "int42mi" (Int4 Int2) Int4 = sub::<Medium>;
    "-" 838 "int82mi" (Int8 Int2) Int8 = sub::<Big>;
    "-" 942 "int28mi" (Int2 Int8) Int8 = sub::<Big>;
    "-" 1275 "int84mi" (Int8 Int4) Int8 = sub::<Big>;
    "-" 1279 "int48mi" (Int4 Int8) Int8 = sub::<Big>;
    "*" 152 "int2mul" (Int2 Int2) Int2 = mul::<Small>;
    "*" 141 "int4mul" (Int4 Int4) Int4 = mul::<Medium>;
    "*" 465 "int8mul" (Int8 Int8) Int8 = mul::<Big>;
    "*" 170 "int24mul" (Int2 Int4) Int4 = mul::<Medium>;
    "*" 171 "int42mul" (Int4 Int2) Int4 = mul::<Medium>;
    "*" 839 "int82mul" (Int8 Int2) Int8 = mul::<Big>;
    "*" 943 "int28mul" (Int2 Int8) Int8 = mul::<Big>;
    "*" 1276 "int84mul" (Int8 Int4) Int8 = mul::<Big>;
    "*" 1280 "int48mul" (Int4 Int8) Int8 = mul::<Big>;
    "/" 153 "int2div" (Int2 Int2) Int2 = div::<Small>;
    "/" 154 "int4div" (Int4 Int4) Int4 = div::<Medium>;
    "/" 466 "int8div" (Int8 Int8) Int8 = div::<Big>;
    "/" 172 "int24div" (Int2 Int4) Int4 = div::<Medium>;
    "/" 173 "int42div" (Int4 Int2) Int4 = div::<Medium>;
    "/" 840 "int82div" (Int8 Int2) Int8 = div::<Big>;
    "/" 948 "int28div" (Int2 Int8) Int8 = div::<Big>;
    "/" 1277 "int84div" (Int8 Int4) Int8 = div::<Big>;
    "/" 1281 "int48div" (Int4 Int8) Int8 = div::<Big>;
    "%" 155 "int2mod" (Int2 Int2) Int2 = rem;
    "%" 156 "int4mod" (Int4 Int4) Int4 = rem;
    "%" 945 "int8mod" (Int8 Int8) Int8 = rem;
    "+" 1911 "int2up" (Int2) Int2 = same;
    "+" 1912 "int4up" (Int4) Int4 = same;
    "+" 1910 "int8up" (Int8) Int8 = same;
    "-" 213 "int2um" (Int2) Int2 = neg::<Small>;
    "-" 212 "int4um" (Int4) Int4 = neg::<Medium>;
    "-" 462 "int8um" (Int8) Int8 = neg::<Big>;
    "@" 1253 "int2abs" (Int2) Int2 = abs::<Small>;
    "@" 1251 "int4abs" (Int4) Int4 = abs::<Medium>;
    "@" 1230 "int8abs" (Int8) Int8 = abs::<Big>;
    "&" 1892 "int2and" (Int2 Int2) Int2 = and;
    "&" 1898 "int4and" (Int4 Int4) Int4 = and;
    "&" 1904 "int8and" (Int8 Int8) Int8 = and;
    "|" 1893 "int2or" (Int2 Int2) Int2 = or;
    "|" 1899 "int4or" (Int4 Int4) Int4 = or;
    "|" 1905 "int8or" (Int8 Int8) Int8 = or;
    "#" 1894 "int2xor" (Int2 Int2) Int2 = xor;
    "#" 1900 "int4xor" (Int4 Int4) Int4 = xor;
    "#" 1906 "int8xor" (Int8 Int8) Int8 = xor;
    "~" 1895 "int2not" (Int2) Int2 = not;
    "~" 1901 "int4not" (Int4) Int4 = not;
    "~" 1907 "int8not" (Int8) Int8 = not;
    "<<" 1896 "int2shl" (Int2 Int4) Int2 = shl2;
    "<<" 1902 "int4shl" (Int4 Int4) Int4 = shl4;
    "<<" 1908 "int8shl" (Int8 Int4) Int8 = shl8;
    ">>" 1897 "int2shr" (Int2 Int4) Int2 = shr4;
    ">>" 1903 "int4shr" (Int4 Int4) Int4 = shr4;
    ">>" 1909 "int8shr" (Int8 Int4) Int8 = shr8;
    "+" 1141 "date_pli" (Date Int4) Date = date_plus;
    "+" 2550 "integer_pl_date" (Int4 Date) Date = plus_date;
    "-" 1142 "date_mii" (Date Int4) Date = date_minus;
    "-" 1140 "date_mi" (Date Date) Int4 = dates_apart;
};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    1398 "abs" (Int2) Int2 = abs::<Small>;
    1397 "abs" (Int4) Int4 = abs::<Medium>;
    1396 "abs" (Int8) Int8 = abs::<Big>;
    940 "mod" (Int2 Int2) Int2 = rem;
    941 "mod" (Int4 Int4) Int4 = rem;
    947 "mod" (Int8 Int8) Int8 = rem;
    5044 "gcd" (Int4 Int4) Int4 = gcd::<Medium>;
    5045 "gcd" (Int8 Int8) Int8 = gcd::<Big>;
    5046 "lcm" (Int4 Int4) Int4 = lcm::<Medium>;
    5047 "lcm" (Int8 Int8) Int8 = lcm::<Big>;
};
