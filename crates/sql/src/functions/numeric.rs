//! Operators and functions of exact numbers.

use super::arguments::{int, numeric};
use super::arithmetic::same;
use super::math::bucket_error;
use super::{Call, Function};
use crate::types::{Numeric, Value};
use crate::{Error, Result, SqlState};

/// A function of one number.
macro_rules! unary {
    (fallible $function:expr) => {
        |_, a| Ok(Value::Numeric($function(numeric(a, 0)?)?))
    };
    ($function:expr) => {
        |_, a| Ok(Value::Numeric($function(numeric(a, 0)?)))
    };
}

/// A function of two.
macro_rules! binary {
    ($function:expr) => {
        |_, a| Ok(Value::Numeric($function(numeric(a, 0)?, numeric(a, 1)?)?))
    };
}

/// Digits behind the point that `round` and `trunc` are given.
fn digits(a: &[Value]) -> Result<i32> {
    Ok(int(a, 1)? as i32)
}

/// log(base, number)
fn log(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Numeric(numeric(a, 1)?.log(numeric(a, 0)?)?))
}

fn scale(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(numeric(a, 0)?.scale().map_or(Value::Null, |scale| Value::Int(i64::from(scale))))
}

fn min_scale(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(numeric(a, 0)?.min_scale().map_or(Value::Null, |scale| Value::Int(i64::from(scale))))
}

fn factorial(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let number = int(a, 0)?;
    if number < 0 {
        let message = "factorial of a negative number is undefined";
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
    }
    // PostgreSQL's limit; more digits no numeric has.
    if number > 32_177 {
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format"));
    }
    let mut product = Numeric::ONE;
    for factor in 2..=number {
        if factor % 256 == 0 {
            call.context.check()?;
        }
        product = product.mul(&Numeric::from(factor))?;
    }
    Ok(Value::Numeric(product))
}

fn width_bucket(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (operand, low, high, count) = (numeric(a, 0)?, numeric(a, 1)?, numeric(a, 2)?, int(a, 3)?);
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
    let ascending = low < high;
    let (below, beyond) =
        if ascending { (operand < low, operand >= high) } else { (operand > low, operand <= high) };
    let bucket = if below {
        0
    } else if beyond {
        count + 1
    } else {
        let (part, whole) =
            if ascending { (operand.sub(low)?, high.sub(low)?) } else { (low.sub(operand)?, low.sub(high)?) };
        part.mul(&Numeric::from(count))?.div_trunc(&whole)?.to_i64()? + 1
    };
    i32::try_from(bucket)
        .map(|bucket| Value::Int(i64::from(bucket)))
        .map_err(|_| Error::out_of_range("integer"))
}

#[rustfmt::skip]
pub(super) const OPERATORS: &[(&str, Function)] = operators! {
    "+" 1724 "numeric_add" (Numeric Numeric) Numeric = binary!(Numeric::add);
    "-" 1725 "numeric_sub" (Numeric Numeric) Numeric = binary!(Numeric::sub);
    "*" 1726 "numeric_mul" (Numeric Numeric) Numeric = binary!(Numeric::mul);
    "/" 1727 "numeric_div" (Numeric Numeric) Numeric = binary!(Numeric::div);
    "%" 1729 "numeric_mod" (Numeric Numeric) Numeric = binary!(Numeric::rem);
    "^" 1739 "numeric_power" (Numeric Numeric) Numeric = binary!(Numeric::power);
    "+" 1915 "numeric_uplus" (Numeric) Numeric = same;
    "-" 1771 "numeric_uminus" (Numeric) Numeric = unary!(Numeric::neg);
    "@" 1704 "numeric_abs" (Numeric) Numeric = unary!(Numeric::abs);
};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    1705 "abs" (Numeric) Numeric = unary!(Numeric::abs);
    1706 "sign" (Numeric) Numeric = unary!(Numeric::sign);
    1711 "ceil" (Numeric) Numeric = unary!(fallible Numeric::ceil);
    2167 "ceiling" (Numeric) Numeric = unary!(fallible Numeric::ceil);
    1712 "floor" (Numeric) Numeric = unary!(fallible Numeric::floor);
    1708 "round" (Numeric) Numeric = |_, a| Ok(Value::Numeric(numeric(a, 0)?.round(0)?));
    1707 "round" (Numeric Int4) Numeric = |_, a| Ok(Value::Numeric(numeric(a, 0)?.round(digits(a)?)?));
    1710 "trunc" (Numeric) Numeric = |_, a| Ok(Value::Numeric(numeric(a, 0)?.trunc(0)?));
    1709 "trunc" (Numeric Int4) Numeric = |_, a| Ok(Value::Numeric(numeric(a, 0)?.trunc(digits(a)?)?));
    1728 "mod" (Numeric Numeric) Numeric = binary!(Numeric::rem);
    1973 "div" (Numeric Numeric) Numeric = binary!(Numeric::div_trunc);
    1738 "pow" (Numeric Numeric) Numeric = binary!(Numeric::power);
    2169 "power" (Numeric Numeric) Numeric = binary!(Numeric::power);
    1730 "sqrt" (Numeric) Numeric = unary!(fallible Numeric::sqrt);
    1732 "exp" (Numeric) Numeric = unary!(fallible Numeric::exp);
    1734 "ln" (Numeric) Numeric = unary!(fallible Numeric::ln);
    1736 "log" (Numeric Numeric) Numeric = log;
    1741 "log" (Numeric) Numeric = unary!(fallible Numeric::log10);
    1481 "log10" (Numeric) Numeric = unary!(fallible Numeric::log10);
    5048 "gcd" (Numeric Numeric) Numeric = binary!(Numeric::gcd);
    5049 "lcm" (Numeric Numeric) Numeric = binary!(Numeric::lcm);
    1376 "factorial" (Int8) Numeric = factorial;
    3281 "scale" (Numeric) Int4 = scale;
    5042 "min_scale" (Numeric) Int4 = min_scale;
    5043 "trim_scale" (Numeric) Numeric = unary!(Numeric::trim_scale);
    2170 "width_bucket" (Numeric Numeric Numeric Int4) Int4 = width_bucket;
};
