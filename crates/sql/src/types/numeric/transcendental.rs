//! Square root, exponential, logarithm and power.
//!
//! They are computed in binary fixed point, with enough spare bits that the result is correctly rounded to its scale but for
//! one case in millions. The scale is the one PostgreSQL chooses: at least 16 significant digits.

use super::arithmetic::{MAX_DISPLAY_SCALE, MIN_SIGNIFICANT, divide_rounded, rescale};
use super::{MAX_DIGITS, Numeric, Repr, big_power, digit_count, division_by_zero, overflow};
use crate::{Error, Result, SqlState};
use num_bigint::BigInt;
use num_traits::{One, Signed, ToPrimitive, Zero};

/// Bits beyond those a result needs.
const SPARE_BITS: u64 = 40;
/// e^x with |x| beyond this is out of range, or 0.
const EXP_LIMIT: f64 = 6000.0;
const LOG10_E: f64 = std::f64::consts::LOG10_E;

/// Bits that so many decimal digits need.
fn bits_of(digits: i32) -> u64 {
    (f64::from(digits.max(0)) * std::f64::consts::LOG2_10).ceil() as u64
}

/// The square root of a number that is not negative, rounded to a scale.
pub(super) fn root_to_scale(number: &Numeric, scale: i32) -> Result<Numeric> {
    let Some((digits, old)) = number.to_big() else { return Ok(number.clone()) };
    // One more digit, cut off: enough to round, as a root that ends within the scale is exact.
    let shift = 2 * (scale + 1) - old as i32;
    let square =
        if shift >= 0 { digits * big_power(shift as u32) } else { digits / big_power(shift.unsigned_abs()) };
    Numeric::from_big(rescale(square.sqrt(), scale + 1, scale), scale as u32)
}

fn negative_logarithm() -> Error {
    let message = "cannot take logarithm of a negative number";
    Error::new(SqlState::INVALID_ARGUMENT_FOR_LOGARITHM, message)
}

fn invalid_power(message: &'static str) -> Error {
    Error::new(SqlState::INVALID_ARGUMENT_FOR_POWER, message)
}

/// A number in binary fixed point: digits / 10^scale as a multiple of 2^-bits, cut off.
fn to_fixed(digits: &BigInt, scale: u32, bits: u64) -> BigInt {
    (digits << bits) / big_power(scale)
}

/// And back, rounded.
fn from_fixed(value: &BigInt, bits: u64, scale: i32) -> Result<Numeric> {
    let digits = divide_rounded(&(value * big_power(scale as u32)), &(BigInt::one() << bits));
    Numeric::from_big(digits, scale as u32)
}

/// e^(digits / 10^from), rounded to `scale`.
fn exponential(digits: &BigInt, from: u32, scale: i32) -> Result<Numeric> {
    let approximate = Numeric::from_big(digits.clone(), from).map_or(f64::INFINITY, |n| n.to_f64_lossy());
    if approximate.abs() >= EXP_LIMIT {
        if digits.is_positive() {
            return Err(overflow());
        }
        return Numeric::from_big(BigInt::zero(), scale as u32);
    }
    // Halved until it is below 2^-8; each halving is undone by a squaring, which doubles the relative error.
    let halvings = (approximate.abs().log2().ceil() + 8.0).max(0.0) as u64;
    let significant = scale + 1 + ((approximate * LOG10_E) as i32).max(0);
    let bits = bits_of(significant) + halvings + SPARE_BITS;
    let x: BigInt = to_fixed(digits, from, bits + halvings) >> (2 * halvings);
    let one = BigInt::one() << bits;
    let (mut sum, mut term, mut index) = (&one + &x, x.clone(), 2_u32);
    loop {
        term = ((&term * &x) >> bits) / index;
        // A shift rounds down, so a negative term ends at -1.
        if term.bits() <= 1 {
            break;
        }
        sum += &term;
        index += 1;
    }
    for _ in 0..halvings {
        sum = (&sum * &sum) >> bits;
    }
    from_fixed(&sum, bits, scale)
}

/// 2 * atanh(numerator / denominator) in fixed point; the quotient is well below 1.
fn atanh_doubled(numerator: &BigInt, denominator: &BigInt, bits: u64) -> BigInt {
    let z = (numerator << bits) / denominator;
    let square = (&z * &z) >> bits;
    let (mut sum, mut power, mut index) = (z.clone(), z, 1_u32);
    loop {
        power = (&power * &square) >> bits;
        index += 2;
        if power.bits() <= 1 {
            return sum << 1u32;
        }
        sum += &power / index;
    }
}

/// ln 2 in fixed point.
fn ln_2(bits: u64) -> BigInt {
    // Machin-like: ln 2 = 18 atanh(1/26) - 2 atanh(1/4801) + 8 atanh(1/8749).
    let part = |denominator: i32| atanh_doubled(&BigInt::one(), &BigInt::from(denominator), bits);
    part(26) * 9 - part(4801) + part(8749) * 4
}

/// ln(digits / 10^from), rounded to `scale`; the digits are positive.
fn logarithm(digits: &BigInt, from: u32, scale: i32) -> Result<(BigInt, i32)> {
    // digits / 10^from = m * 2^exponent with m between 1/2 and 2.
    let denominator = big_power(from);
    let exponent = digits.bits() as i64 - denominator.bits() as i64;
    let bits = bits_of(scale) + SPARE_BITS;
    let (numerator, denominator) = if exponent >= 0 {
        (digits.clone(), denominator << exponent)
    } else {
        (digits << exponent.unsigned_abs(), denominator)
    };
    // ln m = 2 atanh((m - 1) / (m + 1)), where the quotient is within 1/3.
    let mantissa = atanh_doubled(&(&numerator - &denominator), &(&numerator + &denominator), bits);
    let sum = mantissa + ln_2(bits) * exponent;
    let scaled = divide_rounded(&(sum * big_power(scale as u32)), &(BigInt::one() << bits));
    Ok((scaled, scale))
}

/// About the position of the first digit of a number's logarithm, as PostgreSQL estimates it.
fn logarithm_weight(number: &Numeric) -> i32 {
    if number.signum() <= 0 {
        return 0;
    }
    if *number >= Numeric::new(9, 1) && *number <= Numeric::new(11, 1) {
        // ln(1 + x) is about x.
        return number.sub(&Numeric::ONE).map_or(0, |x| x.decimal_weight());
    }
    approximate_log10(number).map_or(0, |log| (log / LOG10_E).abs().log10() as i32)
}

/// log10 of a positive finite number, nearly.
fn approximate_log10(number: &Numeric) -> Option<f64> {
    let (digits, scale) = number.to_big()?;
    let magnitude = digits.abs();
    let drop = digit_count(&magnitude).saturating_sub(17);
    let leading = (magnitude / big_power(drop)).to_f64()?;
    Some(leading.log10() + f64::from(drop) - f64::from(scale))
}

fn to_display_scale(scale: i32, operands: &[&Numeric]) -> i32 {
    let scale = operands.iter().fold(scale, |scale, operand| scale.max(operand.display_scale()));
    scale.clamp(0, MAX_DISPLAY_SCALE)
}

impl Numeric {
    /// Square root. Error: 2201F of negative numbers.
    pub fn sqrt(&self) -> Result<Numeric> {
        if self.signum() < 0 {
            return Err(invalid_power("cannot take square root of a negative number"));
        }
        if !self.is_finite() {
            return Ok(self.clone());
        }
        let weight = self.weight() * 2 + 1;
        root_to_scale(self, to_display_scale(MIN_SIGNIFICANT - weight, &[self]))
    }

    /// e to this power. Error: 22003.
    pub fn exp(&self) -> Result<Numeric> {
        let Some((digits, scale)) = self.to_big() else {
            return Ok(if matches!(self.0, Repr::NegInfinity) { Numeric::ZERO } else { self.clone() });
        };
        let weight = (self.to_f64_lossy() * LOG10_E).clamp(-2000.0, 2000.0) as i32;
        exponential(&digits, scale, to_display_scale(MIN_SIGNIFICANT - weight, &[self]))
    }

    /// Natural logarithm. Error: 2201E of 0 and negative numbers.
    pub fn ln(&self) -> Result<Numeric> {
        self.check_logarithm()?;
        let Some((digits, scale)) = self.to_big() else { return Ok(self.clone()) };
        let result_scale = to_display_scale(MIN_SIGNIFICANT - logarithm_weight(self), &[self]);
        let (digits, scale) = logarithm(&digits, scale, result_scale)?;
        Numeric::from_big(digits, scale as u32)
    }

    fn check_logarithm(&self) -> Result<()> {
        if self.signum() < 0 {
            return Err(negative_logarithm());
        }
        if self.is_zero() {
            let message = "cannot take logarithm of zero";
            return Err(Error::new(SqlState::INVALID_ARGUMENT_FOR_LOGARITHM, message));
        }
        Ok(())
    }

    /// Logarithm to base 10. Error: 2201E.
    pub fn log10(&self) -> Result<Numeric> {
        self.log(&Numeric::new(10, 0))
    }

    /// Logarithm to a base. Errors: 2201E, 22012 for base 1.
    pub fn log(&self, base: &Numeric) -> Result<Numeric> {
        if self.is_nan() || base.is_nan() {
            return Ok(Numeric::NAN);
        }
        if self.signum() < 0 || base.signum() < 0 {
            return Err(negative_logarithm());
        }
        base.check_logarithm()?;
        self.check_logarithm()?;
        let (Some((number, s)), Some((base_digits, t))) = (self.to_big(), base.to_big()) else {
            return Ok(match (base.is_infinite(), self.is_infinite()) {
                (true, true) => Numeric::NAN,
                (true, false) => Numeric::ZERO,
                _ => Numeric::INFINITY,
            });
        };
        let (base_weight, number_weight) = (logarithm_weight(base), logarithm_weight(self));
        let weight = number_weight - base_weight;
        let scale = to_display_scale(MIN_SIGNIFICANT - weight, &[self, base]);
        let inner_scale = |own: i32| (scale + weight - own + 8).max(0);
        let (base_log, base_scale) = logarithm(&base_digits, t, inner_scale(base_weight))?;
        let (number_log, number_scale) = logarithm(&number, s, inner_scale(number_weight))?;
        if base_log.is_zero() {
            return Err(division_by_zero());
        }
        // number_log / 10^number_scale divided by base_log / 10^base_scale, at `scale`.
        let shift = scale + base_scale - number_scale;
        let quotient = if shift >= 0 {
            divide_rounded(&(number_log * big_power(shift as u32)), &base_log)
        } else {
            divide_rounded(&number_log, &(base_log * big_power(shift.unsigned_abs())))
        };
        Numeric::from_big(quotient, scale as u32)
    }

    /// This number to a power. Errors: 2201F, 22003.
    pub fn power(&self, exponent: &Numeric) -> Result<Numeric> {
        if !self.is_finite() || !exponent.is_finite() {
            return self.power_special(exponent);
        }
        if self.is_zero() && exponent.signum() < 0 {
            return Err(invalid_power("zero raised to a negative power is undefined"));
        }
        if self.signum() < 0 && !exponent.is_integral() {
            return Err(complex_power());
        }
        if let Some(whole) = exponent.to_exact_i64().and_then(|whole| i32::try_from(whole).ok()) {
            return self.power_whole(whole);
        }
        if self.is_zero() {
            return Numeric::from_big(BigInt::zero(), MIN_SIGNIFICANT as u32);
        }
        let negative = self.signum() < 0 && exponent.is_odd();
        let result = self.abs().power_general(exponent)?;
        Ok(if negative { result.neg() } else { result })
    }

    /// A positive number to any power: e^(exponent * ln(self)).
    fn power_general(&self, exponent: &Numeric) -> Result<Numeric> {
        let (Some((base, s)), Some((exponent_digits, t))) = (self.to_big(), exponent.to_big()) else {
            return Ok(Numeric::NAN);
        };
        let log_weight = logarithm_weight(self);
        let product = |scale: i32| -> Result<(BigInt, u32)> {
            let (log, log_scale) = logarithm(&base, s, scale.max(0))?;
            // To the scale of the logarithm again.
            Ok((rescale(log * &exponent_digits, log_scale + t as i32, log_scale), log_scale as u32))
        };
        let (digits, scale) = product(8 - log_weight)?;
        let estimate = (BigIntRatio { digits, scale }).to_f64();
        if estimate.abs() > EXP_LIMIT * 3.01 / 3.0 {
            if estimate > 0.0 {
                return Err(overflow());
            }
            return Numeric::from_big(BigInt::zero(), MAX_DISPLAY_SCALE as u32);
        }
        let weight = (estimate * LOG10_E) as i32;
        let result_scale = to_display_scale(MIN_SIGNIFICANT - weight, &[self, exponent]);
        let (digits, scale) = product((result_scale + weight).max(0) - log_weight + 8 + 4)?;
        exponential(&digits, scale, result_scale)
    }

    /// To a whole power, by repeated squaring with as many digits as the result needs.
    fn power_whole(&self, exponent: i32) -> Result<Numeric> {
        let scale = to_display_scale(MIN_SIGNIFICANT, &[self]);
        let Some((digits, from)) = self.to_big() else { return Ok(Numeric::NAN) };
        match exponent {
            0 => return Numeric::ONE.round(scale),
            1 => return self.round(scale),
            -1 => return Numeric::ONE.div_to_scale(self, scale),
            2 => return Numeric::from_big(rescale(&digits * &digits, from as i32 * 2, scale), scale as u32),
            _ if self.is_zero() => return Numeric::from_big(BigInt::zero(), scale as u32),
            _ => {}
        }
        let weight = f64::from(exponent) * approximate_log10(&self.abs()).unwrap_or(0.0);
        if weight > f64::from(MAX_DIGITS) + 4.0 {
            return Err(overflow());
        }
        if weight + 1.0 < -f64::from(scale) {
            return Numeric::from_big(BigInt::zero(), scale as u32);
        }
        let significant = 1 + scale + weight as i32 + f64::from(exponent).abs().ln() as i32 + 8;
        let mut base = Floating { digits, scale: i64::from(from) };
        let mut result = Floating { digits: BigInt::one(), scale: 0 };
        let mut rest = exponent.unsigned_abs();
        loop {
            if rest & 1 == 1 {
                result = result.multiply(&base, significant);
            }
            rest >>= 1;
            if rest == 0 {
                break;
            }
            base = base.multiply(&base, significant);
        }
        let digits = if exponent < 0 {
            // 10^scale / (digits / 10^result.scale)
            let shift = i64::from(scale) + result.scale;
            if shift < 0 { BigInt::zero() } else { divide_rounded(&big_power(shift as u32), &result.digits) }
        } else if result.scale >= 0 {
            rescale(result.digits, result.scale as i32, scale)
        } else {
            result.digits * big_power((i64::from(scale) - result.scale) as u32)
        };
        Numeric::from_big(digits, scale as u32)
    }

    /// Powers with NaN or infinities, by the rules of POSIX `pow`.
    fn power_special(&self, exponent: &Numeric) -> Result<Numeric> {
        if self.is_nan() || exponent.is_nan() {
            let one = exponent.is_zero() || *self == Numeric::ONE;
            return Ok(if one { Numeric::ONE } else { Numeric::NAN });
        }
        let (sign, exponent_sign) = (self.signum(), exponent.signum());
        if sign == 0 && exponent_sign < 0 {
            return Err(invalid_power("zero raised to a negative power is undefined"));
        }
        if sign < 0 && !exponent.is_integral() {
            return Err(complex_power());
        }
        if *self == Numeric::ONE || exponent_sign == 0 {
            return Ok(Numeric::ONE);
        }
        if sign == 0 {
            return Ok(Numeric::ZERO);
        }
        if exponent.is_infinite() {
            if *self == Numeric::new(-1, 0) {
                return Ok(Numeric::ONE);
            }
            let grows = self.abs() > Numeric::ONE;
            return Ok(if grows == (exponent_sign > 0) { Numeric::INFINITY } else { Numeric::ZERO });
        }
        if exponent_sign < 0 {
            return Ok(Numeric::ZERO);
        }
        Ok(if sign < 0 && exponent.is_odd() { Numeric::NEG_INFINITY } else { Numeric::INFINITY })
    }
}

fn complex_power() -> Error {
    invalid_power("a negative number raised to a non-integer power yields a complex result")
}

/// digits / 10^scale without the type's limits.
struct BigIntRatio {
    digits: BigInt,
    scale: u32,
}

impl BigIntRatio {
    fn to_f64(&self) -> f64 {
        let drop = digit_count(&self.digits).saturating_sub(17);
        let leading = (&self.digits / big_power(drop)).to_f64().unwrap_or(f64::NAN);
        leading * 10_f64.powi(drop as i32 - self.scale as i32)
    }
}

/// digits / 10^scale, kept to some number of significant digits.
struct Floating {
    digits: BigInt,
    scale: i64,
}

impl Floating {
    fn multiply(&self, other: &Floating, significant: i32) -> Floating {
        let digits = &self.digits * &other.digits;
        let scale = self.scale + other.scale;
        let spare = digit_count(&digits).saturating_sub(significant.max(1) as u32);
        if spare == 0 {
            return Floating { digits, scale };
        }
        Floating { digits: divide_rounded(&digits, &big_power(spare)), scale: scale - i64::from(spare) }
    }
}
