//! Exact numbers of any length, as PostgreSQL's `numeric`.
//!
//! A number is a whole number of decimal digits and a *display scale*, the digits behind the point that are shown: 1.50
//! is 150 with scale 2. Two numbers are equal when their values are, whatever their scales: 1.5 = 1.50.
//!
//! # Invariants
//! 1. Digits that fit into 64 bits are kept inline, in the small form; only longer ones are on the heap. So the form says which
//!    numbers are long, and the small form is the fast path of everything: no allocation, intermediate results in 128 bits.
//! 2. At most [`MAX_DIGITS`] digits stand before the point and [`MAX_SCALE`] behind it. What would go beyond is the error
//!    "value overflows numeric format".
//! 3. Which scale a result has is part of SQL, and as PostgreSQL 15 chooses it.
//!
//! | module | job |
//! |---|---|
//! | `arithmetic` | the four operations, remainder, rounding |
//! | `convert` | text, machine integers and floats, precision and scale of a column, base 10000 |
//! | `transcendental` | square root, exponential, logarithm, power |
//! | `sum` | sums of many numbers |

mod arithmetic;
mod convert;
mod sum;
mod transcendental;

#[cfg(test)]
mod tests;

pub use convert::{Base10000, Sign};
pub use sum::{NumericSum, variance};

use crate::{Error, Result, SqlState};
use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Digits before the point, at most.
pub const MAX_DIGITS: u32 = 131_072;

/// Digits behind the point, at most.
pub const MAX_SCALE: u16 = 16_383;

/// An exact number, or NaN, or an infinity.
#[derive(Clone)]
pub struct Numeric(Repr);

#[derive(Clone)]
enum Repr {
    /// digits / 10^scale
    Small {
        digits: i64,
        scale: u16,
    },
    Big(Box<Big>),
    NaN,
    Infinity,
    NegInfinity,
}

/// Digits that do not fit into 64 bits.
#[derive(Clone)]
struct Big {
    digits: BigInt,
    scale: u16,
}

/// What a number is made of, for those who store it.
#[derive(Clone, Copy, Debug)]
pub enum Parts<'a> {
    /// `digits` / 10^`scale`
    Small {
        /// The digits.
        digits: i64,
        /// How many of them stand behind the point; may be more than there are.
        scale: u16,
    },
    /// The same, with digits that do not fit into 64 bits.
    Big {
        /// The digits.
        digits: &'a BigInt,
        /// How many of them stand behind the point.
        scale: u16,
    },
    /// Not a number.
    NaN,
    /// More than any number.
    Infinity,
    /// Less than any number.
    NegInfinity,
}

const POWERS: [i128; 39] = {
    let mut powers = [1_i128; 39];
    let mut index = 1;
    while index < powers.len() {
        powers[index] = powers[index - 1] * 10;
        index += 1;
    }
    powers
};

/// 10^exponent, if it fits.
fn power(exponent: u32) -> Option<i128> {
    POWERS.get(exponent as usize).copied()
}

/// 10^exponent
fn big_power(exponent: u32) -> BigInt {
    match power(exponent) {
        Some(power) => BigInt::from(power),
        None => BigInt::from(5).pow(exponent) << exponent,
    }
}

fn overflow() -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}

fn division_by_zero() -> Error {
    Error::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// Number of decimal digits; 0 for 0.
fn digit_count(digits: &BigInt) -> u32 {
    if let Some(small) = digits.magnitude().to_u128() {
        return small.checked_ilog10().map_or(0, |log| log + 1);
    }
    // log10(2^(bits-1)) <= log10(digits) < log10(2^bits): the two differ in one digit at most.
    let bits = digits.bits();
    let fewest = ((bits - 1) as f64 * std::f64::consts::LOG10_2).floor() as u32;
    // Beyond this the estimate is certain to be exact to one digit, as bits are below 2^24.
    if digits.magnitude() >= big_power(fewest + 1).magnitude() {
        fewest + 2
    } else if digits.magnitude() >= big_power(fewest).magnitude() {
        fewest + 1
    } else {
        fewest
    }
}

impl Numeric {
    /// 0
    pub const ZERO: Numeric = Numeric::new(0, 0);
    /// 1
    pub const ONE: Numeric = Numeric::new(1, 0);
    /// Not a number. Equal to itself and above all numbers, unlike in floating point.
    pub const NAN: Numeric = Numeric(Repr::NaN);
    /// More than any number.
    pub const INFINITY: Numeric = Numeric(Repr::Infinity);
    /// Less than any number.
    pub const NEG_INFINITY: Numeric = Numeric(Repr::NegInfinity);

    /// `digits` / 10^`scale`. The scale is at most [`MAX_SCALE`].
    pub const fn new(digits: i64, scale: u16) -> Self {
        assert!(scale <= MAX_SCALE);
        Numeric(Repr::Small { digits, scale })
    }

    /// `digits` / 10^`scale`. The scale is at most [`MAX_SCALE`].
    pub fn from_i128(digits: i128, scale: u16) -> Self {
        match i64::try_from(digits) {
            Ok(digits) => Numeric::new(digits, scale),
            Err(_) => Numeric(Repr::Big(Box::new(Big { digits: BigInt::from(digits), scale }))),
        }
    }

    /// `digits` / 10^`scale`. Error: beyond the limits of the type.
    pub fn from_big(digits: BigInt, scale: u32) -> Result<Self> {
        let Some(scale) = u16::try_from(scale).ok().filter(|scale| *scale <= MAX_SCALE) else {
            return Err(overflow());
        };
        if let Some(digits) = digits.to_i64() {
            return Ok(Numeric::new(digits, scale));
        }
        // 3.32 bits a digit; only numbers near the limit are looked at closely.
        let certain = u64::from(MAX_DIGITS) * 33 / 10;
        if digits.bits() > certain && digit_count(&digits) > MAX_DIGITS + u32::from(scale) {
            return Err(overflow());
        }
        Ok(Numeric(Repr::Big(Box::new(Big { digits, scale }))))
    }

    /// What the number is made of.
    pub fn parts(&self) -> Parts<'_> {
        match &self.0 {
            Repr::Small { digits, scale } => Parts::Small { digits: *digits, scale: *scale },
            Repr::Big(big) => Parts::Big { digits: &big.digits, scale: big.scale },
            Repr::NaN => Parts::NaN,
            Repr::Infinity => Parts::Infinity,
            Repr::NegInfinity => Parts::NegInfinity,
        }
    }

    /// The digits of a finite number, and its scale.
    fn digits(&self) -> Option<(Cow<'_, BigInt>, u32)> {
        match &self.0 {
            Repr::Small { digits, scale } => Some((Cow::Owned(BigInt::from(*digits)), u32::from(*scale))),
            Repr::Big(big) => Some((Cow::Borrowed(&big.digits), u32::from(big.scale))),
            _ => None,
        }
    }

    /// The same, to calculate with.
    fn to_big(&self) -> Option<(BigInt, u32)> {
        let (digits, scale) = self.digits()?;
        Some((digits.into_owned(), scale))
    }

    /// Whether it is neither NaN nor infinite.
    pub fn is_finite(&self) -> bool {
        matches!(self.0, Repr::Small { .. } | Repr::Big(_))
    }

    /// Whether it is NaN.
    pub fn is_nan(&self) -> bool {
        matches!(self.0, Repr::NaN)
    }

    /// Whether it is an infinity.
    pub fn is_infinite(&self) -> bool {
        matches!(self.0, Repr::Infinity | Repr::NegInfinity)
    }

    /// Whether it is 0.
    pub fn is_zero(&self) -> bool {
        matches!(self.0, Repr::Small { digits: 0, .. })
    }

    /// -1, 0 or 1; 0 for NaN.
    pub fn signum(&self) -> i32 {
        match &self.0 {
            Repr::Small { digits, .. } => digits.signum() as i32,
            Repr::Big(big) => {
                if big.digits.is_negative() {
                    -1
                } else {
                    1
                }
            }
            Repr::NaN => 0,
            Repr::Infinity => 1,
            Repr::NegInfinity => -1,
        }
    }

    /// SQL's `sign()`: -1, 0 or 1, NaN of NaN.
    pub fn sign(&self) -> Numeric {
        if self.is_nan() { Numeric::NAN } else { Numeric::new(i64::from(self.signum()), 0) }
    }

    /// Digits behind the point that are shown; `None` where there is no point.
    pub fn scale(&self) -> Option<u16> {
        match &self.0 {
            Repr::Small { scale, .. } => Some(*scale),
            Repr::Big(big) => Some(big.scale),
            _ => None,
        }
    }

    /// Digits behind the point that are needed to show the value; `None` where there is no point.
    pub fn min_scale(&self) -> Option<u16> {
        self.trim_scale().scale()
    }

    /// The same value without zeros at the end of its fraction.
    pub fn trim_scale(&self) -> Numeric {
        match &self.0 {
            Repr::Small { digits, scale } => {
                let (digits, scale) = trim_small(*digits, *scale);
                Numeric::new(digits, scale)
            }
            Repr::Big(big) => {
                let (digits, scale) = trim_big(&big.digits, big.scale);
                match digits.to_i64() {
                    Some(digits) => Numeric::new(digits, scale),
                    None => Numeric(Repr::Big(Box::new(Big { digits, scale }))),
                }
            }
            _ => self.clone(),
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Big(big) => size_of::<Big>() + (big.digits.bits() as usize).div_ceil(64) * 8,
            _ => 0,
        }
    }
}

fn trim_small(mut digits: i64, mut scale: u16) -> (i64, u16) {
    if digits == 0 {
        return (0, 0);
    }
    while scale > 0 && digits % 10 == 0 {
        digits /= 10;
        scale -= 1;
    }
    (digits, scale)
}

fn trim_big(digits: &BigInt, scale: u16) -> (BigInt, u16) {
    let mut digits = digits.clone();
    let mut scale = scale;
    // From large steps to small ones, so that long tails of zeros cost few divisions.
    let mut step = 8192_u16;
    while step > 0 {
        while scale >= step {
            let power = big_power(u32::from(step));
            let quotient = &digits / &power;
            if &quotient * &power != digits {
                break;
            }
            digits = quotient;
            scale -= step;
        }
        step /= 2;
    }
    (digits, scale)
}

fn compare_small(a: i64, a_scale: u16, b: i64, b_scale: u16) -> Ordering {
    if a_scale == b_scale || a == 0 {
        return a.cmp(&b);
    }
    if a.signum() != b.signum() {
        return a.cmp(&b);
    }
    let difference = u32::from(a_scale.abs_diff(b_scale));
    match power(difference) {
        // 19 digits and 19 more fit into 128 bits.
        Some(factor) if difference <= 19 => {
            let (a, b) = (i128::from(a), i128::from(b));
            if a_scale < b_scale { (a * factor).cmp(&b) } else { a.cmp(&(b * factor)) }
        }
        // The one with more digits behind the point is nearer to 0, whatever its 19 digits are.
        _ => {
            if (a_scale < b_scale) == (a > 0) {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
    }
}

fn compare_big(a: &BigInt, a_scale: u32, b: &BigInt, b_scale: u32) -> Ordering {
    if a_scale == b_scale || a.sign() != b.sign() {
        return a.cmp(b);
    }
    // Decided by size alone, where it can be: 10^low <= |number| < 10^high.
    let bounds = |digits: &BigInt, scale: u32| {
        let log = digits.bits() as f64 * std::f64::consts::LOG10_2 - f64::from(scale);
        (log - 1.0, log + 1.0)
    };
    let larger = if a.is_negative() { Ordering::Less } else { Ordering::Greater };
    let ((a_low, a_high), (b_low, b_high)) = (bounds(a, a_scale), bounds(b, b_scale));
    if !a.is_zero() && a_low > b_high {
        return larger;
    }
    if !a.is_zero() && b_low > a_high {
        return larger.reverse();
    }
    if a_scale < b_scale {
        (a * big_power(b_scale - a_scale)).cmp(b)
    } else {
        a.cmp(&(b * big_power(a_scale - b_scale)))
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By value: -Infinity, numbers, Infinity, NaN.
impl Ord for Numeric {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Repr::Small { digits: a, scale: s }, Repr::Small { digits: b, scale: t }) =
            (&self.0, &other.0)
        {
            return compare_small(*a, *s, *b, *t);
        }
        let rank = |number: &Numeric| match number.0 {
            Repr::NegInfinity => 0,
            Repr::Small { .. } | Repr::Big(_) => 1,
            Repr::Infinity => 2,
            Repr::NaN => 3,
        };
        match (self.digits(), other.digits()) {
            (Some((a, s)), Some((b, t))) => compare_big(&a, s, &b, t),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

/// Equal numbers have equal hashes, whatever their scales.
impl Hash for Numeric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Repr::Small { digits, scale } => hash_small(*digits, *scale, state),
            Repr::Big(big) => {
                let (digits, scale) = trim_big(&big.digits, big.scale);
                match digits.to_i64() {
                    Some(digits) => hash_small(digits, scale, state),
                    None => {
                        digits.hash(state);
                        state.write_u16(scale);
                    }
                }
            }
            Repr::NaN => state.write_u8(2),
            Repr::Infinity => state.write_u8(1),
            Repr::NegInfinity => state.write_u8(0),
        }
    }
}

fn hash_small<H: Hasher>(digits: i64, scale: u16, state: &mut H) {
    let (digits, scale) = trim_small(digits, scale);
    state.write_i64(digits);
    state.write_u16(scale);
}

impl fmt::Debug for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<i64> for Numeric {
    fn from(value: i64) -> Self {
        Numeric::new(value, 0)
    }
}

impl From<i32> for Numeric {
    fn from(value: i32) -> Self {
        Numeric::new(i64::from(value), 0)
    }
}

impl Default for Numeric {
    fn default() -> Self {
        Numeric::ZERO
    }
}
