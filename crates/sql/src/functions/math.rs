//! Operators and functions of real and double precision.

use super::arguments::{float, int};
use super::arithmetic::{division_by_zero, same};
use super::{Call, Function};
use crate::types::Value;
use crate::{Error, Result, SqlState};

fn overflow() -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")
}

fn underflow() -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow")
}

fn bad_input() -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")
}

/// A result that is infinite though no operand is has overflown; one that is zero where it must not be has underflown.
#[inline]
fn checked(result: f64, may_be_infinite: bool, may_be_zero: bool) -> Result<Value> {
    if result.is_infinite() && !may_be_infinite {
        return Err(overflow());
    }
    if result == 0.0 && !may_be_zero {
        return Err(underflow());
    }
    Ok(Value::Float(result))
}

/// Rounds to the precision of real, where `F4`.
#[inline]
fn fit<const F4: bool>(value: f64) -> f64 {
    if F4 { f64::from(value as f32) } else { value }
}

fn add<const F4: bool>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (a, b) = (float(a, 0)?, float(a, 1)?);
    checked(fit::<F4>(a + b), a.is_infinite() || b.is_infinite(), true)
}

fn sub<const F4: bool>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (a, b) = (float(a, 0)?, float(a, 1)?);
    checked(fit::<F4>(a - b), a.is_infinite() || b.is_infinite(), true)
}

fn mul<const F4: bool>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (a, b) = (float(a, 0)?, float(a, 1)?);
    checked(fit::<F4>(a * b), a.is_infinite() || b.is_infinite(), a == 0.0 || b == 0.0)
}

fn div<const F4: bool>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (a, b) = (float(a, 0)?, float(a, 1)?);
    if b == 0.0 && !a.is_nan() {
        return Err(division_by_zero());
    }
    checked(fit::<F4>(a / b), a.is_infinite(), a == 0.0 || b.is_infinite())
}

fn power(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (base, exponent) = (float(a, 0)?, float(a, 1)?);
    let undefined = |message| Err(Error::new(SqlState::INVALID_ARGUMENT_FOR_POWER, message));
    if base == 0.0 && exponent < 0.0 {
        return undefined("zero raised to a negative power is undefined");
    }
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        return undefined("a negative number raised to a non-integer power yields a complex result");
    }
    let infinite = base.is_infinite() || exponent.is_infinite();
    checked(base.powf(exponent), infinite, infinite || base == 0.0)
}

fn sqrt(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let value = float(a, 0)?;
    if value < 0.0 {
        let message = "cannot take square root of a negative number";
        return Err(Error::new(SqlState::INVALID_ARGUMENT_FOR_POWER, message));
    }
    Ok(Value::Float(value.sqrt()))
}

fn exp(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let value = float(a, 0)?;
    checked(value.exp(), value.is_infinite(), value.is_infinite())
}

fn logarithm(value: f64, log: fn(f64) -> f64) -> Result<Value> {
    let undefined = |message| Err(Error::new(SqlState::INVALID_ARGUMENT_FOR_LOGARITHM, message));
    if value == 0.0 {
        return undefined("cannot take logarithm of zero");
    }
    if value < 0.0 {
        return undefined("cannot take logarithm of a negative number");
    }
    Ok(Value::Float(log(value)))
}

fn ln(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    logarithm(float(a, 0)?, f64::ln)
}

fn log10(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    logarithm(float(a, 0)?, f64::log10)
}

/// A function that is defined everywhere.
macro_rules! plain {
    ($function:expr) => {
        |_, a| Ok(Value::Float($function(float(a, 0)?)))
    };
}

/// A function of an angle, which cannot be infinite.
macro_rules! angle {
    ($function:expr) => {
        |_, a| match float(a, 0)? {
            value if value.is_infinite() => Err(bad_input()),
            value => Ok(Value::Float($function(value))),
        }
    };
}

/// A function of a range.
macro_rules! within {
    ($least:expr, $most:expr, $function:expr) => {
        |_, a| match float(a, 0)? {
            value if !value.is_nan() && !($least..=$most).contains(&value) => Err(bad_input()),
            value => Ok(Value::Float($function(value))),
        }
    };
}

fn cotangent(value: f64) -> f64 {
    1.0 / value.tan()
}

/// From here on the inverse of sinh and cosh is ln 2x to the last digit, and x² overflows some way behind.
const INVERSE_LARGE: f64 = (1_u64 << 28) as f64;

fn inverse_sinh(value: f64) -> f64 {
    let size = value.abs();
    if size < INVERSE_LARGE || !size.is_finite() {
        value.asinh()
    } else {
        (size.ln() + std::f64::consts::LN_2).copysign(value)
    }
}

fn inverse_cosh(value: f64) -> f64 {
    if value < INVERSE_LARGE || !value.is_finite() {
        value.acosh()
    } else {
        value.ln() + std::f64::consts::LN_2
    }
}

fn sign(value: f64) -> f64 {
    if value > 0.0 {
        1.0
    } else if value < 0.0 {
        -1.0
    } else {
        // NaN, too, as in PostgreSQL.
        0.0
    }
}

fn atan2(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Float(float(a, 0)?.atan2(float(a, 1)?)))
}

/// An angle of one degree.
const DEGREE: f64 = std::f64::consts::PI / 180.0;

fn degrees(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let value = float(a, 0)?;
    checked(value / DEGREE, value.is_infinite(), value == 0.0)
}

fn radians(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let value = float(a, 0)?;
    checked(value * DEGREE, value.is_infinite(), value == 0.0)
}

pub(super) fn bucket_error(message: &'static str) -> Error {
    Error::new(SqlState::INVALID_ARGUMENT_FOR_WIDTH_BUCKET, message)
}

fn width_bucket(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (operand, low, high, count) = (float(a, 0)?, float(a, 1)?, float(a, 2)?, int(a, 3)?);
    if count <= 0 {
        return Err(bucket_error("count must be greater than zero"));
    }
    if operand.is_nan() || low.is_nan() || high.is_nan() {
        return Err(bucket_error("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(bucket_error("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(bucket_error("lower bound cannot equal upper bound"));
    }
    let (below, beyond) =
        if low < high { (operand < low, operand >= high) } else { (operand > low, operand <= high) };
    let bucket = if below {
        0
    } else if beyond {
        count + 1
    } else {
        // Halved, the difference of two finite numbers is finite.
        let share = (operand / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
        ((count as f64 * share) as i64).min(count - 1) + 1
    };
    i32::try_from(bucket)
        .map(|bucket| Value::Int(i64::from(bucket)))
        .map_err(|_| Error::out_of_range("integer"))
}

/// One step of SplitMix64.
fn next_of_seed(state: u64) -> (u64, u64) {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (state, mixed ^ (mixed >> 31))
}

fn random(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    let seed = &call.context.session.seed;
    let bits = match seed.get() {
        Some(state) => {
            let (state, bits) = next_of_seed(state);
            seed.set(Some(state));
            bits
        }
        None => gannet_base::random::next_u64(),
    };
    // 53 bits: every result below 1 is possible, and none is 1.
    Ok(Value::Float((bits >> 11) as f64 / (1u64 << 53) as f64))
}

fn setseed(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let seed = float(a, 0)?;
    if !(-1.0..=1.0).contains(&seed) {
        let message = format!("setseed parameter {seed} is out of allowed range [-1,1]");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    call.context.session.seed.set(Some(seed.to_bits()));
    // What a function without result gives is shown as nothing.
    Ok(Value::text(""))
}

#[rustfmt::skip]
pub(super) const OPERATORS: &[(&str, Function)] = operators! {
    "+" 204 "float4pl" (Float4 Float4) Float4 = add::<true>;
    "+" 218 "float8pl" (Float8 Float8) Float8 = add::<false>;
    "+" 281 "float48pl" (Float4 Float8) Float8 = add::<false>;
    "+" 285 "float84pl" (Float8 Float4) Float8 = add::<false>;
    "-" 205 "float4mi" (Float4 Float4) Float4 = sub::<true>;
    "-" 219 "float8mi" (Float8 Float8) Float8 = sub::<false>;
    "-" 282 "float48mi" (Float4 Float8) Float8 = sub::<false>;
    "-" 286 "float84mi" (Float8 Float4) Float8 = sub::<false>;
    "*" 202 "float4mul" (Float4 Float4) Float4 = mul::<true>;
    "*" 216 "float8mul" (Float8 Float8) Float8 = mul::<false>;
    "*" 279 "float48mul" (Float4 Float8) Float8 = mul::<false>;
    "*" 283 "float84mul" (Float8 Float4) Float8 = mul::<false>;
    "/" 203 "float4div" (Float4 Float4) Float4 = div::<true>;
    "/" 217 "float8div" (Float8 Float8) Float8 = div::<false>;
    "/" 280 "float48div" (Float4 Float8) Float8 = div::<false>;
    "/" 284 "float84div" (Float8 Float4) Float8 = div::<false>;
    "+" 1913 "float4up" (Float4) Float4 = same;
    "+" 1914 "float8up" (Float8) Float8 = same;
    "-" 206 "float4um" (Float4) Float4 = plain!(std::ops::Neg::neg);
    "-" 220 "float8um" (Float8) Float8 = plain!(std::ops::Neg::neg);
    "@" 207 "float4abs" (Float4) Float4 = plain!(f64::abs);
    "@" 221 "float8abs" (Float8) Float8 = plain!(f64::abs);
    "^" 232 "dpow" (Float8 Float8) Float8 = power;
    "|/" 230 "dsqrt" (Float8) Float8 = sqrt;
    "||/" 231 "dcbrt" (Float8) Float8 = plain!(f64::cbrt);
};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    1394 "abs" (Float4) Float4 = plain!(f64::abs);
    1395 "abs" (Float8) Float8 = plain!(f64::abs);
    2308 "ceil" (Float8) Float8 = plain!(f64::ceil);
    2320 "ceiling" (Float8) Float8 = plain!(f64::ceil);
    2309 "floor" (Float8) Float8 = plain!(f64::floor);
    1342 "round" (Float8) Float8 = plain!(f64::round_ties_even);
    1343 "trunc" (Float8) Float8 = plain!(f64::trunc);
    2310 "sign" (Float8) Float8 = plain!(sign);
    1346 "pow" (Float8 Float8) Float8 = power;
    1368 "power" (Float8 Float8) Float8 = power;
    1344 "sqrt" (Float8) Float8 = sqrt;
    1345 "cbrt" (Float8) Float8 = plain!(f64::cbrt);
    1347 "exp" (Float8) Float8 = exp;
    1341 "ln" (Float8) Float8 = ln;
    1340 "log" (Float8) Float8 = log10;
    1194 "log10" (Float8) Float8 = log10;
    1610 "pi" () Float8 = |_, _| Ok(Value::Float(std::f64::consts::PI));
    1608 "degrees" (Float8) Float8 = degrees;
    1609 "radians" (Float8) Float8 = radians;
    1604 "sin" (Float8) Float8 = angle!(f64::sin);
    1605 "cos" (Float8) Float8 = angle!(f64::cos);
    1606 "tan" (Float8) Float8 = angle!(f64::tan);
    1607 "cot" (Float8) Float8 = angle!(cotangent);
    1600 "asin" (Float8) Float8 = within!(-1.0, 1.0, f64::asin);
    1601 "acos" (Float8) Float8 = within!(-1.0, 1.0, f64::acos);
    1602 "atan" (Float8) Float8 = plain!(f64::atan);
    1603 "atan2" (Float8 Float8) Float8 = atan2;
    2462 "sinh" (Float8) Float8 = plain!(f64::sinh);
    2463 "cosh" (Float8) Float8 = plain!(f64::cosh);
    2464 "tanh" (Float8) Float8 = plain!(f64::tanh);
    2465 "asinh" (Float8) Float8 = plain!(inverse_sinh);
    2466 "acosh" (Float8) Float8 = within!(1.0, f64::INFINITY, inverse_cosh);
    2467 "atanh" (Float8) Float8 = within!(-1.0, 1.0, f64::atanh);
    320 "width_bucket" (Float8 Float8 Float8 Int4) Int4 = width_bucket;
    1598 "random" () Float8.volatile() = random;
    1599 "setseed" (Float8) Void.volatile() = setseed;
};
