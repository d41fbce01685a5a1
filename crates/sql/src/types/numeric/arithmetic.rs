//! The four operations, remainders and rounding. NaN is contagious; infinities follow the rules of floating point.

use super::{MAX_DIGITS, MAX_SCALE, Numeric, POWERS, Repr, big_power, digit_count, division_by_zero, power};
use crate::Result;
use num_bigint::BigInt;
use num_traits::{One, Signed, ToPrimitive, Zero};

/// A quotient has at least so many significant digits.
pub(super) const MIN_SIGNIFICANT: i32 = 16;
/// A quotient, root or power has no more digits than this behind the point, unless an operand has.
pub(super) const MAX_DISPLAY_SCALE: i32 = 1000;
/// `round` and `trunc` need not look further than this in front of the point.
const MOST_DIGITS: i32 = MAX_DIGITS as i32;

/// Quotient, rounded half away from zero. The divisor is not 0.
pub(super) fn divide_rounded(dividend: &BigInt, divisor: &BigInt) -> BigInt {
    let (quotient, remainder) = (dividend / divisor, dividend % divisor);
    if (remainder.abs() << 1u32) < divisor.abs() {
        quotient
    } else if dividend.is_negative() == divisor.is_negative() {
        quotient + 1
    } else {
        quotient - 1
    }
}

fn divide_rounded_i128(dividend: i128, divisor: i128) -> i128 {
    let (quotient, remainder) = (dividend / divisor, dividend % divisor);
    // The remainder is smaller than the divisor, so the difference cannot overflow.
    if remainder.unsigned_abs() < divisor.unsigned_abs() - remainder.unsigned_abs() {
        quotient
    } else if (dividend < 0) == (divisor < 0) {
        quotient + 1
    } else {
        quotient - 1
    }
}

/// digits / 10^scale with another number of digits behind the point, which may be negative; rounded half away from zero.
pub(super) fn rescale(digits: BigInt, scale: i32, to: i32) -> BigInt {
    if to >= scale {
        return digits * big_power((to - scale) as u32);
    }
    let drop = (scale - to) as u32;
    if drop > digit_count(&digits) {
        return BigInt::zero();
    }
    divide_rounded(&digits, &big_power(drop))
}

/// As [`rescale`], cut off.
pub(super) fn rescale_truncated(digits: BigInt, scale: i32, to: i32) -> BigInt {
    if to >= scale {
        return digits * big_power((to - scale) as u32);
    }
    let drop = (scale - to) as u32;
    if drop >= digit_count(&digits) {
        return BigInt::zero();
    }
    digits / big_power(drop)
}

/// Both numbers as digits of one scale.
fn align(a: &Numeric, b: &Numeric) -> Option<(BigInt, BigInt, u32)> {
    let ((a, s), (b, t)) = (a.to_big()?, b.to_big()?);
    Some(match s.cmp(&t) {
        std::cmp::Ordering::Equal => (a, b, s),
        std::cmp::Ordering::Less => (a * big_power(t - s), b, t),
        std::cmp::Ordering::Greater => (a, b * big_power(s - t), s),
    })
}

/// As [`align`], for small numbers whose scales are not far apart.
fn align_small(a: &Numeric, b: &Numeric) -> Option<(i128, i128, u16)> {
    let (Repr::Small { digits: a, scale: s }, Repr::Small { digits: b, scale: t }) = (&a.0, &b.0) else {
        return None;
    };
    let (a, b) = (i128::from(*a), i128::from(*b));
    if s == t {
        return Some((a, b, *s));
    }
    let difference = u32::from(s.abs_diff(*t));
    // Below 2^63 * 10^18, so that two of them can be added.
    let factor = power(difference).filter(|_| difference <= 18)?;
    Some(if s < t { (a * factor, b, *t) } else { (a, b * factor, *s) })
}

/// Position and value of the first digit in base 10000: value = digit * 10000^position + ...
fn first_digit(number: &Numeric) -> (i32, i64) {
    let (digits, scale) = match &number.0 {
        Repr::Small { digits: 0, .. } => return (0, 0),
        Repr::Small { digits, scale } => {
            let count = digits.unsigned_abs().ilog10() as i32 + 1;
            let weight = (count - 1 - i32::from(*scale)).div_euclid(4);
            let shift = i32::from(*scale) + 4 * weight;
            let magnitude = u128::from(digits.unsigned_abs());
            // 1 to 4 digits remain: the shift is between count - 4 and count - 1.
            let factor = POWERS[shift.unsigned_abs() as usize] as u128;
            let first = if shift >= 0 { magnitude / factor } else { magnitude * factor };
            return (weight, first as i64);
        }
        Repr::Big(big) => (&big.digits, i32::from(big.scale)),
        _ => return (0, 0),
    };
    let weight = (digit_count(digits) as i32 - 1 - scale).div_euclid(4);
    let shift = scale + 4 * weight;
    let magnitude = digits.abs();
    let first = if shift >= 0 {
        magnitude / big_power(shift as u32)
    } else {
        magnitude * big_power(shift.unsigned_abs())
    };
    (weight, first.to_i64().unwrap_or(1))
}

impl Numeric {
    /// Position of the first digit in base 10000.
    pub(super) fn weight(&self) -> i32 {
        first_digit(self).0
    }

    /// Position of the first decimal digit: the number is below 10^(position + 1). 0 for 0.
    pub(super) fn decimal_weight(&self) -> i32 {
        match &self.0 {
            Repr::Small { digits: 0, .. } => 0,
            Repr::Small { digits, scale } => digits.unsigned_abs().ilog10() as i32 - i32::from(*scale),
            Repr::Big(big) => digit_count(&big.digits) as i32 - 1 - i32::from(big.scale),
            _ => 0,
        }
    }

    pub(super) fn display_scale(&self) -> i32 {
        self.scale().map_or(0, i32::from)
    }

    /// Sum.
    pub fn add(&self, other: &Numeric) -> Result<Numeric> {
        if let Some((a, b, scale)) = align_small(self, other) {
            return Ok(Numeric::from_i128(a + b, scale));
        }
        if let Some((a, b, scale)) = align(self, other) {
            return Numeric::from_big(a + b, scale);
        }
        Ok(match (&self.0, &other.0) {
            (Repr::NaN, _) | (_, Repr::NaN) => Numeric::NAN,
            (Repr::Infinity, Repr::NegInfinity) | (Repr::NegInfinity, Repr::Infinity) => Numeric::NAN,
            (Repr::Infinity, _) | (_, Repr::Infinity) => Numeric::INFINITY,
            _ => Numeric::NEG_INFINITY,
        })
    }

    /// Difference.
    pub fn sub(&self, other: &Numeric) -> Result<Numeric> {
        if let Some((a, b, scale)) = align_small(self, other) {
            return Ok(Numeric::from_i128(a - b, scale));
        }
        self.add(&other.neg())
    }

    /// The number with the other sign.
    pub fn neg(&self) -> Numeric {
        match &self.0 {
            Repr::Small { digits, scale } => Numeric::from_i128(-i128::from(*digits), *scale),
            // -2^63 fits where 2^63 does not.
            Repr::Big(big) => match (-&big.digits).to_i64() {
                Some(digits) => Numeric::new(digits, big.scale),
                None => Numeric(Repr::Big(Box::new(super::Big { digits: -&big.digits, scale: big.scale }))),
            },
            Repr::NaN => Numeric::NAN,
            Repr::Infinity => Numeric::NEG_INFINITY,
            Repr::NegInfinity => Numeric::INFINITY,
        }
    }

    /// Absolute value.
    pub fn abs(&self) -> Numeric {
        if self.signum() < 0 { self.neg() } else { self.clone() }
    }

    /// Product.
    pub fn mul(&self, other: &Numeric) -> Result<Numeric> {
        if let (Repr::Small { digits: a, scale: s }, Repr::Small { digits: b, scale: t }) =
            (&self.0, &other.0)
        {
            let scale = s + t;
            if scale <= MAX_SCALE {
                return Ok(Numeric::from_i128(i128::from(*a) * i128::from(*b), scale));
            }
        }
        if let (Some((a, s)), Some((b, t))) = (self.to_big(), other.to_big()) {
            let (product, scale) = (a * b, s + t);
            let limit = u32::from(MAX_SCALE);
            return if scale > limit {
                Numeric::from_big(rescale(product, scale as i32, limit as i32), limit)
            } else {
                Numeric::from_big(product, scale)
            };
        }
        Ok(match self.signum() * other.signum() {
            _ if self.is_nan() || other.is_nan() => Numeric::NAN,
            0 => Numeric::NAN,
            1 => Numeric::INFINITY,
            _ => Numeric::NEG_INFINITY,
        })
    }

    /// Quotient, with the scale that PostgreSQL chooses: at least 16 significant digits. Error: 22012.
    pub fn div(&self, other: &Numeric) -> Result<Numeric> {
        if let Some(special) = self.divide_special(other)? {
            return Ok(special);
        }
        self.div_to_scale(other, self.div_scale(other))
    }

    /// The scale of the quotient, PostgreSQL's `select_div_scale`.
    pub(super) fn div_scale(&self, other: &Numeric) -> i32 {
        let ((weight, first), (other_weight, other_first)) = (first_digit(self), first_digit(other));
        let mut quotient_weight = weight - other_weight;
        if first <= other_first {
            quotient_weight -= 1;
        }
        (MIN_SIGNIFICANT - quotient_weight * 4)
            .max(self.display_scale())
            .max(other.display_scale())
            .clamp(0, MAX_DISPLAY_SCALE)
    }

    /// NaN, infinities and zero divisors.
    fn divide_special(&self, other: &Numeric) -> Result<Option<Numeric>> {
        if self.is_nan() || other.is_nan() {
            return Ok(Some(Numeric::NAN));
        }
        if other.is_zero() {
            return Err(division_by_zero());
        }
        if self.is_infinite() {
            return Ok(Some(match self.signum() * other.signum() {
                _ if other.is_infinite() => Numeric::NAN,
                1 => Numeric::INFINITY,
                _ => Numeric::NEG_INFINITY,
            }));
        }
        Ok(other.is_infinite().then_some(Numeric::ZERO))
    }

    /// Quotient of finite numbers, rounded to `scale` digits behind the point (0 to [`MAX_SCALE`]). The divisor is not 0.
    pub(super) fn div_to_scale(&self, other: &Numeric, scale: i32) -> Result<Numeric> {
        if let (Repr::Small { digits: a, scale: s }, Repr::Small { digits: b, scale: t }) =
            (&self.0, &other.0)
        {
            // Not negative in [`Numeric::div`], unless the scale is at its limit.
            let shift = scale - i32::from(*s) + i32::from(*t);
            let factor = u32::try_from(shift).ok().and_then(power);
            if let Some(dividend) = factor.and_then(|factor| i128::from(*a).checked_mul(factor)) {
                return Ok(Numeric::from_i128(divide_rounded_i128(dividend, i128::from(*b)), scale as u16));
            }
        }
        let (Some((a, s)), Some((b, t))) = (self.to_big(), other.to_big()) else {
            return Ok(Numeric::NAN);
        };
        let shift = scale - s as i32 + t as i32;
        let quotient = if shift >= 0 {
            divide_rounded(&(a * big_power(shift as u32)), &b)
        } else {
            divide_rounded(&a, &(b * big_power(shift.unsigned_abs())))
        };
        Numeric::from_big(quotient, scale as u32)
    }

    /// SQL's `div()`: the whole part of the quotient. Error: 22012.
    pub fn div_trunc(&self, other: &Numeric) -> Result<Numeric> {
        if let Some(special) = self.divide_special(other)? {
            return Ok(special);
        }
        if let Some((a, b, _)) = align_small(self, other) {
            return Ok(Numeric::from_i128(a / b, 0));
        }
        match align(self, other) {
            Some((a, b, _)) => Numeric::from_big(a / b, 0),
            None => Ok(Numeric::NAN),
        }
    }

    /// Remainder of the division, with the sign of the dividend. Error: 22012.
    pub fn rem(&self, other: &Numeric) -> Result<Numeric> {
        if self.is_nan() || other.is_nan() {
            return Ok(Numeric::NAN);
        }
        if other.is_zero() {
            return Err(division_by_zero());
        }
        if let Some((a, b, scale)) = align_small(self, other) {
            return Ok(Numeric::from_i128(a % b, scale));
        }
        if let Some((a, b, scale)) = align(self, other) {
            return Numeric::from_big(a % b, scale);
        }
        Ok(if self.is_infinite() { Numeric::NAN } else { self.clone() })
    }

    /// The smallest whole number that is not below.
    pub fn ceil(&self) -> Result<Numeric> {
        self.whole(|quotient, remainder| if remainder > 0 { quotient + 1 } else { quotient })
    }

    /// The largest whole number that is not above.
    pub fn floor(&self) -> Result<Numeric> {
        self.whole(|quotient, remainder| if remainder < 0 { quotient - 1 } else { quotient })
    }

    /// The whole part, adjusted by the sign of the fraction.
    fn whole(&self, adjust: impl Fn(BigInt, i32) -> BigInt) -> Result<Numeric> {
        if let Repr::Small { scale: 0, .. } = self.0 {
            return Ok(self.clone());
        }
        let Some((digits, scale)) = self.to_big() else { return Ok(self.clone()) };
        let factor = big_power(scale);
        let sign = (&digits % &factor).signum().to_i32().unwrap_or(0);
        Numeric::from_big(adjust(digits / factor, sign), 0)
    }

    /// Rounded half away from zero to so many digits behind the point, or before it where `scale` is negative.
    pub fn round(&self, scale: i32) -> Result<Numeric> {
        // One digit more than there can be, for what is rounded up to it.
        let scale = scale.clamp(-MOST_DIGITS - 1, MAX_SCALE.into());
        if let Repr::Small { digits, scale: old } = self.0
            && let Ok(new) = u16::try_from(scale)
        {
            if new == old {
                return Ok(self.clone());
            }
            let digits = i128::from(digits);
            if let Some(factor) = power(u32::from(new.abs_diff(old))).filter(|_| new.abs_diff(old) <= 19) {
                let digits = if new > old { digits * factor } else { divide_rounded_i128(digits, factor) };
                return Ok(Numeric::from_i128(digits, new));
            }
        }
        self.rounded_by(scale, rescale)
    }

    /// Cut off behind so many digits behind the point, or before it where `scale` is negative.
    pub fn trunc(&self, scale: i32) -> Result<Numeric> {
        self.rounded_by(scale.clamp(-MOST_DIGITS, MAX_SCALE.into()), rescale_truncated)
    }

    fn rounded_by(&self, scale: i32, rescale: fn(BigInt, i32, i32) -> BigInt) -> Result<Numeric> {
        let Some((digits, old)) = self.to_big() else { return Ok(self.clone()) };
        let digits = rescale(digits, old as i32, scale);
        if scale < 0 && !digits.is_zero() {
            Numeric::from_big(digits * big_power(scale.unsigned_abs()), 0)
        } else {
            Numeric::from_big(digits, scale.max(0) as u32)
        }
    }

    /// Greatest common divisor: the largest number of which both are multiples by whole numbers. NaN of what is not finite.
    pub fn gcd(&self, other: &Numeric) -> Result<Numeric> {
        let Some((mut a, mut b, scale)) = align(self, other) else { return Ok(Numeric::NAN) };
        while !b.is_zero() {
            (a, b) = (b.clone(), a % b);
        }
        Numeric::from_big(a.abs(), scale)
    }

    /// Least common multiple; 0 if one of them is 0. NaN of what is not finite.
    pub fn lcm(&self, other: &Numeric) -> Result<Numeric> {
        let Some((a, b, scale)) = align(self, other) else { return Ok(Numeric::NAN) };
        if a.is_zero() || b.is_zero() {
            return Numeric::from_big(BigInt::zero(), scale);
        }
        let (mut greater, mut less) = (a.clone(), b.clone());
        while !less.is_zero() {
            (greater, less) = (less.clone(), greater % less);
        }
        Numeric::from_big((a / greater * b).abs(), scale)
    }

    /// Whether it is a whole number.
    pub fn is_integral(&self) -> bool {
        match &self.0 {
            Repr::Small { digits, scale } => trim_to_whole(*digits, *scale),
            Repr::Big(big) => (&big.digits % big_power(u32::from(big.scale))).is_zero(),
            Repr::NaN => false,
            Repr::Infinity | Repr::NegInfinity => true,
        }
    }

    /// Whether a whole number is odd.
    pub(super) fn is_odd(&self) -> bool {
        match self.to_big() {
            Some((digits, scale)) => ((digits / big_power(scale)) % 2u32).abs().is_one(),
            None => false,
        }
    }

    /// 1 more.
    pub fn increment(&self) -> Result<Numeric> {
        self.add(&Numeric::ONE)
    }
}

fn trim_to_whole(digits: i64, scale: u16) -> bool {
    digits == 0 || power(u32::from(scale)).is_some_and(|factor| i128::from(digits) % factor == 0)
}
