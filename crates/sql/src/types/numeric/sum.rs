//! Sums of many numbers.

use super::{Numeric, Repr, big_power, power, transcendental};
use crate::Result;
use num_bigint::BigInt;

/// A sum to which millions of numbers are added quickly: 128 bits inline, and a long number only where those overflow. Exact,
/// whatever the order; its scale is the largest one seen, as in PostgreSQL.
#[derive(Clone, Debug, Default)]
pub struct NumericSum {
    /// What has been added since it last overflowed, at `scale`.
    recent: i128,
    /// The rest of it, at `scale`.
    rest: Option<Box<BigInt>>,
    scale: u16,
    /// Numbers added, all of them.
    count: u64,
    nans: u64,
    infinities: u64,
    neg_infinities: u64,
}

impl NumericSum {
    /// Nothing, 0.
    pub fn new() -> Self {
        NumericSum::default()
    }

    /// Adds a number.
    #[inline]
    pub fn add(&mut self, number: &Numeric) {
        self.count += 1;
        match &number.0 {
            Repr::Small { digits, scale } if *scale == self.scale => self.add_digits(i128::from(*digits)),
            Repr::Small { digits, scale } => self.add_scaled(i128::from(*digits), *scale),
            Repr::Big(big) => self.add_big(big.digits.clone(), big.scale),
            Repr::NaN => self.nans += 1,
            Repr::Infinity => self.infinities += 1,
            Repr::NegInfinity => self.neg_infinities += 1,
        }
    }

    /// Adds a whole number.
    #[inline]
    pub fn add_int(&mut self, value: i64) {
        self.count += 1;
        if self.scale == 0 {
            self.add_digits(i128::from(value));
        } else {
            self.add_scaled(i128::from(value), 0);
        }
    }

    /// Adds the square of a whole number.
    pub fn add_int_square(&mut self, value: i64) {
        self.count += 1;
        self.add_scaled(i128::from(value) * i128::from(value), 0);
    }

    #[inline]
    fn add_digits(&mut self, digits: i128) {
        match self.recent.checked_add(digits) {
            Some(sum) => self.recent = sum,
            None => {
                self.spill();
                self.recent = digits;
            }
        }
    }

    /// Adds digits of another scale.
    fn add_scaled(&mut self, digits: i128, scale: u16) {
        if scale > self.scale {
            self.widen(scale);
        }
        let factor = power(u32::from(self.scale - scale));
        match factor.and_then(|factor| digits.checked_mul(factor)) {
            Some(digits) => self.add_digits(digits),
            None => self.add_big(BigInt::from(digits), scale),
        }
    }

    fn add_big(&mut self, digits: BigInt, scale: u16) {
        if scale > self.scale {
            self.widen(scale);
        }
        let digits = digits * big_power(u32::from(self.scale - scale));
        match &mut self.rest {
            Some(rest) => **rest += digits,
            None => self.rest = Some(Box::new(digits)),
        }
    }

    /// Moves the 128 bits into the long number.
    fn spill(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        match &mut self.rest {
            Some(rest) => **rest += recent,
            None => self.rest = Some(Box::new(BigInt::from(recent))),
        }
    }

    /// Takes a larger scale.
    fn widen(&mut self, scale: u16) {
        let shift = u32::from(scale - self.scale);
        match power(shift).and_then(|factor| self.recent.checked_mul(factor)) {
            Some(recent) => self.recent = recent,
            None => self.spill(),
        }
        if let Some(rest) = &mut self.rest {
            **rest *= big_power(shift);
        }
        self.scale = scale;
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &NumericSum) {
        self.count += other.count;
        self.nans += other.nans;
        self.infinities += other.infinities;
        self.neg_infinities += other.neg_infinities;
        self.add_scaled(other.recent, other.scale);
        if let Some(rest) = &other.rest {
            self.add_big((**rest).clone(), other.scale);
        }
    }

    /// How many numbers were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum. Error: 22003 where it is beyond the type's limits.
    pub fn sum(&self) -> Result<Numeric> {
        if self.nans > 0 || (self.infinities > 0 && self.neg_infinities > 0) {
            return Ok(Numeric::NAN);
        }
        if self.infinities > 0 {
            return Ok(Numeric::INFINITY);
        }
        if self.neg_infinities > 0 {
            return Ok(Numeric::NEG_INFINITY);
        }
        match &self.rest {
            None => Ok(Numeric::from_i128(self.recent, self.scale)),
            Some(rest) => Numeric::from_big(&**rest + self.recent, u32::from(self.scale)),
        }
    }

    /// The sum divided by the number of summands, with the scale of a quotient; `None` without summands.
    pub fn average(&self) -> Result<Option<Numeric>> {
        if self.count == 0 {
            return Ok(None);
        }
        self.sum()?.div(&Numeric::from_u64(self.count)).map(Some)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.rest.as_ref().map_or(0, |rest| size_of::<BigInt>() + (rest.bits() as usize).div_ceil(64) * 8)
    }
}

/// Variance of `count` numbers from their sum and the sum of their squares; `sample`: of a sample (divided by count - 1), else of a
/// whole population. `None` where there are too few. With `root`: the standard deviation.
pub fn variance(sum: &NumericSum, squares: &NumericSum, sample: bool, root: bool) -> Result<Option<Numeric>> {
    let count = sum.count;
    if count == 0 || (sample && count == 1) {
        return Ok(None);
    }
    let (sum, squares) = (sum.sum()?, squares.sum()?);
    if !sum.is_finite() || !squares.is_finite() {
        return Ok(Some(Numeric::NAN));
    }
    let number = Numeric::from_u64(count);
    let spread = squares.mul(&number)?.sub(&sum.mul(&sum)?)?;
    // Rounding never makes it negative, but equal numbers make it 0, which is shown without a fraction.
    if spread.signum() <= 0 {
        return Ok(Some(Numeric::ZERO));
    }
    let divisor = number.mul(&Numeric::from_u64(if sample { count - 1 } else { count }))?;
    let scale = spread.div_scale(&divisor);
    let variance = spread.div_to_scale(&divisor, scale)?;
    if root { transcendental::root_to_scale(&variance, scale).map(Some) } else { Ok(Some(variance)) }
}
