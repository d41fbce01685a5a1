//! Numbers from and to text, machine integers, floats, and PostgreSQL's digits in base 10000; fitting to a column's
//! precision and scale.

use super::{MAX_DIGITS, MAX_SCALE, Numeric, Repr, arithmetic, big_power, overflow};
use crate::types::Modifier;
use crate::{Error, Result, SqlState};
use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};
use std::fmt;

/// Sign of a number in base 10000, and what is no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    /// 0 or more.
    Positive,
    /// Less than 0.
    Negative,
    /// Not a number.
    NaN,
    /// More than any number.
    Infinity,
    /// Less than any number.
    NegInfinity,
}

/// A number as PostgreSQL keeps and sends it: the sum of `digits[i]` * 10000^(`weight` - i). There are no zeros at either end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Base10000 {
    /// The sign.
    pub sign: Sign,
    /// Position of the first digit.
    pub weight: i16,
    /// Decimal digits behind the point that are shown.
    pub scale: u16,
    /// The digits, each below 10000.
    pub digits: Vec<u16>,
}

impl Numeric {
    /// Reads a number as SQL has it, blanks around it allowed. Errors: 22P02, 22003.
    pub fn parse(text: &str) -> Result<Numeric> {
        let trimmed = text.trim_matches(is_space);
        match scan(trimmed.as_bytes()) {
            Some(Scanned::Number { negative, digits, scale }) => finish(negative, &digits, scale),
            Some(Scanned::Special(number)) => Ok(number),
            None => Err(Error::invalid_text("numeric", text)),
        }
    }

    /// A whole number of any machine type.
    pub fn from_u64(value: u64) -> Numeric {
        Numeric::from_i128(i128::from(value), 0)
    }

    /// A float's value to 15 significant digits, as PostgreSQL converts it.
    pub fn from_f64(value: f64) -> Result<Numeric> {
        from_float(value, 15)
    }

    /// A float of single precision to 6 significant digits, as PostgreSQL converts it.
    pub fn from_f32(value: f32) -> Result<Numeric> {
        from_float(f64::from(value), 6)
    }

    /// The nearest float. Error: 22003 where it is beyond the largest one, or not 0 and below the smallest.
    pub fn to_f64(&self) -> Result<f64> {
        let value = self.to_f64_lossy();
        if (value.is_infinite() && self.is_finite()) || (value == 0.0 && !self.is_zero()) {
            let message = format!("\"{self}\" is out of range for type double precision");
            return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        Ok(value)
    }

    /// The nearest float, infinite where there is none.
    pub fn to_f64_lossy(&self) -> f64 {
        match &self.0 {
            // Both exact, so the quotient is rounded once.
            Repr::Small { digits, scale } if digits.unsigned_abs() < 1 << 53 && *scale <= 22 => {
                *digits as f64 / 10_f64.powi(i32::from(*scale))
            }
            Repr::Small { digits, scale } => format!("{digits}e-{scale}").parse().unwrap_or(f64::NAN),
            Repr::Big(big) => format!("{}e-{}", big.digits, big.scale).parse().unwrap_or(f64::NAN),
            Repr::NaN => f64::NAN,
            Repr::Infinity => f64::INFINITY,
            Repr::NegInfinity => f64::NEG_INFINITY,
        }
    }

    /// The nearest single-precision float. Error: 22003.
    pub fn to_f32(&self) -> Result<f32> {
        let value = match &self.0 {
            Repr::NaN => f32::NAN,
            Repr::Infinity => f32::INFINITY,
            Repr::NegInfinity => f32::NEG_INFINITY,
            _ => self.to_string().parse::<f32>().unwrap_or(f32::NAN),
        };
        if (value.is_infinite() && self.is_finite()) || (value == 0.0 && !self.is_zero()) {
            let message = format!("\"{self}\" is out of range for type real");
            return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        Ok(value)
    }

    /// Rounded half away from zero. Errors: 22003, 0A000 of NaN and infinities.
    pub fn to_i16(&self) -> Result<i16> {
        self.to_integer("smallint").and_then(|value| narrow(value, "smallint"))
    }

    /// Rounded half away from zero. Errors: 22003, 0A000 of NaN and infinities.
    pub fn to_i32(&self) -> Result<i32> {
        self.to_integer("integer").and_then(|value| narrow(value, "integer"))
    }

    /// Rounded half away from zero. Errors: 22003, 0A000 of NaN and infinities.
    pub fn to_i64(&self) -> Result<i64> {
        self.to_integer("bigint")
    }

    fn to_integer(&self, type_name: &str) -> Result<i64> {
        match &self.0 {
            Repr::Small { digits, scale: 0 } => Ok(*digits),
            Repr::NaN => Err(not_a_number("NaN", type_name)),
            Repr::Infinity | Repr::NegInfinity => Err(not_a_number("infinity", type_name)),
            _ => match self.round(0)?.0 {
                Repr::Small { digits, .. } => Ok(digits),
                _ => Err(Error::out_of_range(type_name)),
            },
        }
    }

    /// Fits the number to `numeric(precision, scale)`: rounds it, and fails with 22003 when too many digits stand before the point.
    pub fn fit(&self, modifier: Modifier) -> Result<Numeric> {
        if modifier < 4 {
            return Ok(self.clone());
        }
        let (precision, scale) = unpack_modifier(modifier);
        if self.is_nan() {
            return Ok(Numeric::NAN);
        }
        if self.is_infinite() {
            return Err(field_overflow(format!(
                "A field with precision {precision}, scale {scale} cannot hold an infinite value."
            )));
        }
        let rounded = self.round(scale)?;
        let before_point = precision - scale;
        if !rounded.is_zero() && rounded.decimal_weight() >= before_point {
            let limit = if before_point == 0 { "1".to_owned() } else { format!("10^{before_point}") };
            return Err(field_overflow(format!(
                "A field with precision {precision}, scale {scale} must round to an absolute value less than {limit}."
            )));
        }
        Ok(rounded)
    }

    /// The number in base 10000.
    pub fn to_base_10000(&self) -> Base10000 {
        let special = |sign| Base10000 { sign, weight: 0, scale: 0, digits: Vec::new() };
        let Some((digits, scale)) = self.digits() else {
            return special(match self.0 {
                Repr::Infinity => Sign::Infinity,
                Repr::NegInfinity => Sign::NegInfinity,
                _ => Sign::NaN,
            });
        };
        // The point shall stand between two digits of base 10000.
        let padding = (4 - scale % 4) % 4;
        let mut text = match &self.0 {
            Repr::Small { digits, .. } => digits.unsigned_abs().to_string(),
            _ => digits.magnitude().to_string(),
        };
        text.extend(std::iter::repeat_n('0', padding as usize));
        let lead = (4 - text.len() % 4) % 4;
        text.insert_str(0, &"000"[..lead]);
        let mut groups: Vec<u16> = text
            .as_bytes()
            .chunks_exact(4)
            .map(|group| group.iter().fold(0, |value, digit| value * 10 + u16::from(digit - b'0')))
            .collect();
        let mut weight = groups.len() as i32 - 1 - ((scale + padding) / 4) as i32;
        let zeros = groups.iter().take_while(|group| **group == 0).count();
        groups.drain(..zeros);
        weight -= zeros as i32;
        groups.truncate(groups.len() - groups.iter().rev().take_while(|group| **group == 0).count());
        if groups.is_empty() {
            weight = 0;
        }
        let sign = if self.signum() < 0 { Sign::Negative } else { Sign::Positive };
        Base10000 { sign, weight: weight as i16, scale: scale as u16, digits: groups }
    }

    /// The number that base 10000 stands for. Digits behind the scale are cut off. Every digit is below 10000.
    pub fn from_base_10000(number: &Base10000) -> Result<Numeric> {
        match number.sign {
            Sign::NaN => return Ok(Numeric::NAN),
            Sign::Infinity => return Ok(Numeric::INFINITY),
            Sign::NegInfinity => return Ok(Numeric::NEG_INFINITY),
            Sign::Positive | Sign::Negative => {}
        }
        let scale = (number.digits.len() as i32 - 1 - i32::from(number.weight)) * 4;
        let digits = if number.digits.len() <= 9 {
            let digits =
                number.digits.iter().fold(0, |value: i128, digit| value * 10000 + i128::from(*digit));
            BigInt::from(digits)
        } else {
            let text: String = number.digits.iter().map(|digit| format!("{digit:04}")).collect();
            parse_digits(text.as_bytes())
        };
        let digits = arithmetic::rescale_truncated(digits, scale, i32::from(number.scale));
        Numeric::from_big(
            if number.sign == Sign::Negative { -digits } else { digits },
            u32::from(number.scale),
        )
    }

    /// Appends the text.
    pub fn write(&self, out: &mut String) {
        // Writing to a string does not fail.
        let _ = self.write_to(out);
    }

    fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        match &self.0 {
            Repr::Small { digits, scale } => {
                let mut buffer = itoa::Buffer::new();
                write_point(out, *digits < 0, buffer.format(digits.unsigned_abs()), usize::from(*scale))
            }
            Repr::Big(big) => {
                let text = big.digits.magnitude().to_string();
                write_point(out, big.digits.is_negative(), &text, usize::from(big.scale))
            }
            Repr::NaN => out.write_str("NaN"),
            Repr::Infinity => out.write_str("Infinity"),
            Repr::NegInfinity => out.write_str("-Infinity"),
        }
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

/// Digits with a point in front of the last `scale` of them.
fn write_point(f: &mut impl fmt::Write, negative: bool, digits: &str, scale: usize) -> fmt::Result {
    if negative {
        f.write_str("-")?;
    }
    if scale == 0 {
        return f.write_str(digits);
    }
    match digits.len().checked_sub(scale) {
        Some(whole) if whole > 0 => {
            f.write_str(&digits[..whole])?;
            f.write_str(".")?;
            f.write_str(&digits[whole..])
        }
        _ => {
            f.write_str("0.")?;
            for _ in digits.len()..scale {
                f.write_str("0")?;
            }
            f.write_str(digits)
        }
    }
}

/// Precision and scale of a modifier.
pub(super) fn unpack_modifier(modifier: Modifier) -> (i32, i32) {
    let packed = modifier - 4;
    // The scale is a signed number of 11 bits.
    (packed >> 16 & 0xffff, ((packed & 0x7ff) ^ 1024) - 1024)
}

fn field_overflow(detail: String) -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").detail(detail)
}

fn not_a_number(what: &str, type_name: &str) -> Error {
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot convert {what} to {type_name}"))
}

fn narrow<T: TryFrom<i64>>(value: i64, type_name: &str) -> Result<T> {
    T::try_from(value).map_err(|_| Error::out_of_range(type_name))
}

/// White space as C's `isspace` has it.
fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

enum Scanned {
    /// The digits without leading zeros, and how many of them stand behind the point (negative: zeros to be added).
    Number {
        negative: bool,
        digits: Vec<u8>,
        scale: i64,
    },
    Special(Numeric),
}

fn scan(text: &[u8]) -> Option<Scanned> {
    let (negative, rest) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest.eq_ignore_ascii_case(b"nan") {
        // A sign before it is an error.
        return (rest.len() == text.len()).then_some(Scanned::Special(Numeric::NAN));
    }
    if rest.eq_ignore_ascii_case(b"infinity") || rest.eq_ignore_ascii_case(b"inf") {
        let number = if negative { Numeric::NEG_INFINITY } else { Numeric::INFINITY };
        return Some(Scanned::Special(number));
    }
    let mut digits = Vec::with_capacity(rest.len());
    let (mut seen, mut point, mut scale, mut at) = (false, false, 0_i64, 0);
    while let Some(byte) = rest.get(at) {
        match byte {
            b'0'..=b'9' => {
                seen = true;
                scale += i64::from(point);
                if *byte != b'0' || !digits.is_empty() {
                    digits.push(*byte);
                }
            }
            b'.' if !point => point = true,
            b'e' | b'E' if seen => {
                scale -= scan_exponent(&rest[at + 1..])?;
                return Some(Scanned::Number { negative, digits, scale });
            }
            _ => return None,
        }
        at += 1;
    }
    seen.then_some(Scanned::Number { negative, digits, scale })
}

/// The exponent, kept within bounds that are far beyond those of the type.
fn scan_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0_i64, |value, digit| (value * 10 + i64::from(digit - b'0')).min(1 << 40));
    Some(if negative { -value } else { value })
}

fn finish(negative: bool, digits: &[u8], scale: i64) -> Result<Numeric> {
    if digits.len() as i64 - scale > i64::from(MAX_DIGITS) && !digits.is_empty() {
        return Err(overflow());
    }
    if scale > i64::from(MAX_SCALE) || scale < -(1 << 30) {
        return Err(overflow());
    }
    if digits.len() <= 18 && scale >= 0 {
        let value = digits.iter().fold(0_i64, |value, digit| value * 10 + i64::from(digit - b'0'));
        return Ok(Numeric::new(if negative { -value } else { value }, scale as u16));
    }
    let mut value = parse_digits(digits);
    if scale < 0 && !digits.is_empty() {
        value *= big_power(scale.unsigned_abs() as u32);
    }
    Numeric::from_big(if negative { -value } else { value }, scale.max(0) as u32)
}

/// A long run of decimal digits. Halves are read apart, which for long numbers is faster than digit by digit.
fn parse_digits(digits: &[u8]) -> BigInt {
    if digits.len() <= 36 {
        let value = digits.iter().fold(0_i128, |value, digit| value * 10 + i128::from(digit - b'0'));
        return BigInt::from(value);
    }
    let (high, low) = digits.split_at(digits.len() / 2);
    parse_digits(high) * big_power(low.len() as u32) + parse_digits(low)
}

fn from_float(value: f64, significant: usize) -> Result<Numeric> {
    if value.is_nan() {
        return Ok(Numeric::NAN);
    }
    if value.is_infinite() {
        return Ok(if value > 0.0 { Numeric::INFINITY } else { Numeric::NEG_INFINITY });
    }
    // Correctly rounded, as C's %.15g.
    let text = format!("{value:.*e}", significant - 1);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits =
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    Numeric::parse(&format!("{digits}e{exponent}"))
}

impl Numeric {
    /// The whole number of an integral value, if it fits.
    pub(super) fn to_exact_i64(&self) -> Option<i64> {
        match &self.0 {
            Repr::Small { .. } if self.is_integral() => self.to_i64().ok(),
            Repr::Big(big) if self.is_integral() => (&big.digits / big_power(u32::from(big.scale))).to_i64(),
            _ => None,
        }
    }
}
