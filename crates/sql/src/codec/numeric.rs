//! Exact numbers in keys and rows. The layouts stand in `docs/format.md`.
//!
//! Between the bytes here and [`Numeric`](crate::types::Numeric) stands PostgreSQL's binary representation, which says all
//! there is to say of a number: digits to the base 10000, their weight, sign, and digits to be shown behind the point.

use super::corrupted;
use crate::types::{NO_MODIFIER, Type, Value, binary};
use crate::{Error, Result};

/// Lead bytes of keys. The others below 0xE0 are reserved.
const ZERO: u8 = 0x80;
const SMALL_WEIGHT: u8 = 0x81;
const WEIGHT_0: u8 = 0x9A;
const LARGE_WEIGHT: u8 = 0xB3;
const INFINITY: u8 = 0xE0;
const NAN: u8 = 0xE1;
/// Weights that lie in the lead byte itself: -24 to 24.
const NEAR: i32 = 24;

/// First bytes of a number in a row; up to `MAX_SCALE` they are the scale of a number written as whole number. The others are
/// reserved.
const MAX_SCALE: u8 = 63;
const POSITIVE: u8 = 64;
const NEGATIVE: u8 = 65;
const ROW_NAN: u8 = 66;
const ROW_INFINITY: u8 = 67;
const ROW_NEGATIVE_INFINITY: u8 = 68;

const SIGN_NEGATIVE: u16 = 0x4000;
const SIGN_NAN: u16 = 0xC000;
const SIGN_INFINITY: u16 = 0xD000;
const SIGN_NEGATIVE_INFINITY: u16 = 0xF000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Positive,
    Negative,
    Nan,
    Infinity,
    NegativeInfinity,
}

/// A number taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Parts {
    kind: Kind,
    /// The first digit counts 10000 to this power.
    weight: i32,
    /// Decimal digits shown behind the point.
    scale: u16,
    /// Digits to the base 10000, neither the first nor the last of them 0. None: the number is 0.
    digits: Vec<u16>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

impl Parts {
    fn of(value: &Value) -> Result<Parts> {
        let mut bytes = Vec::with_capacity(32);
        binary::write(value, Type::Numeric, &mut bytes);
        Self::parse(&bytes).ok_or_else(|| Error::internal("a number without a representation"))
    }

    fn parse(bytes: &[u8]) -> Option<Parts> {
        let count = usize::from(u16_at(bytes, 0)?);
        let mut weight = i32::from(u16_at(bytes, 2)?.cast_signed());
        let kind = match u16_at(bytes, 4)? {
            0 => Kind::Positive,
            SIGN_NEGATIVE => Kind::Negative,
            SIGN_NAN => Kind::Nan,
            SIGN_INFINITY => Kind::Infinity,
            SIGN_NEGATIVE_INFINITY => Kind::NegativeInfinity,
            _ => return None,
        };
        let scale = u16_at(bytes, 6)?;
        let mut digits = Vec::with_capacity(count);
        for index in 0..count {
            digits.push(u16_at(bytes, 8 + 2 * index).filter(|digit| *digit < 10000)?);
        }
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        weight -= i32::try_from(zeros).ok()?;
        while digits.last() == Some(&0) {
            digits.pop();
        }
        Some(match kind {
            Kind::Nan | Kind::Infinity | Kind::NegativeInfinity => Parts::special(kind, 0),
            Kind::Positive | Kind::Negative if digits.is_empty() => Parts::special(Kind::Positive, scale),
            Kind::Positive | Kind::Negative => Parts { kind, weight, scale, digits },
        })
    }

    /// A number without digits.
    fn special(kind: Kind, scale: u16) -> Parts {
        Parts { kind, weight: 0, scale, digits: Vec::new() }
    }

    fn value(&self) -> Result<Value> {
        let mut bytes = Vec::with_capacity(8 + 2 * self.digits.len());
        let count = u16::try_from(self.digits.len()).map_err(|_| corrupted("a number of too many digits"))?;
        let weight = i16::try_from(self.weight).map_err(|_| corrupted("a number that is too large"))?;
        let sign = match self.kind {
            Kind::Positive => 0,
            Kind::Negative => SIGN_NEGATIVE,
            Kind::Nan => SIGN_NAN,
            Kind::Infinity => SIGN_INFINITY,
            Kind::NegativeInfinity => SIGN_NEGATIVE_INFINITY,
        };
        bytes.extend_from_slice(&count.to_be_bytes());
        bytes.extend_from_slice(&weight.to_be_bytes());
        bytes.extend_from_slice(&sign.to_be_bytes());
        bytes.extend_from_slice(&self.scale.to_be_bytes());
        for digit in &self.digits {
            bytes.extend_from_slice(&digit.to_be_bytes());
        }
        binary::read(&bytes, Type::Numeric, NO_MODIFIER)
            .map_err(|error| corrupted(&format!("a number that is none ({error})")))
    }

    /// The number as whole number of units of its last digit shown, where it has no digits behind that.
    fn scaled(&self) -> Option<i128> {
        if !matches!(self.kind, Kind::Positive | Kind::Negative) {
            return None;
        }
        let mut mantissa = 0i128;
        for digit in &self.digits {
            mantissa = mantissa.checked_mul(10000)?.checked_add(i128::from(*digit))?;
        }
        // The last digit counts 10000 to this power; the unit is 10 to the power of -scale.
        let last = self.weight + 1 - i32::try_from(self.digits.len()).ok()?;
        let shift = if self.digits.is_empty() { 0 } else { last * 4 + i32::from(self.scale) };
        let factor = 10i128.checked_pow(shift.unsigned_abs())?;
        if shift >= 0 {
            mantissa = mantissa.checked_mul(factor)?;
        } else if mantissa % factor == 0 {
            mantissa /= factor;
        } else {
            return None;
        }
        Some(if self.kind == Kind::Negative { -mantissa } else { mantissa })
    }

    fn from_scaled(mantissa: i128, scale: u16) -> Parts {
        let mut rest = mantissa.unsigned_abs();
        // Digits are aligned to the point: the last one holds the last 1 to 4 decimals.
        let behind = u32::from(scale).div_ceil(4);
        let unit = 10u128.pow(behind * 4 - u32::from(scale));
        let mut digits = Vec::with_capacity(11);
        let step = 10000 / unit;
        if step < 10000 && rest > 0 {
            digits.push(u16::try_from(rest % step * unit).unwrap_or(0));
            rest /= step;
        } else if step < 10000 {
            digits.push(0);
        }
        while rest > 0 {
            digits.push(u16::try_from(rest % 10000).unwrap_or(0));
            rest /= 10000;
        }
        let weight = i32::try_from(digits.len()).unwrap_or(0) - 1 - behind.cast_signed();
        digits.reverse();
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        while digits.last() == Some(&0) {
            digits.pop();
        }
        if digits.is_empty() {
            return Parts::special(Kind::Positive, scale);
        }
        let kind = if mantissa < 0 { Kind::Negative } else { Kind::Positive };
        Parts { kind, weight: weight - i32::try_from(zeros).unwrap_or(0), scale, digits }
    }

    fn encode_key(&self, out: &mut Vec<u8>) {
        let start = out.len();
        match self.kind {
            Kind::Nan => return out.push(NAN),
            Kind::Infinity => return out.push(INFINITY),
            Kind::NegativeInfinity => return out.push(!INFINITY),
            _ if self.digits.is_empty() => return out.push(ZERO),
            Kind::Positive | Kind::Negative => {}
        }
        if (-NEAR..=NEAR).contains(&self.weight) {
            out.push(WEIGHT_0.wrapping_add_signed(i8::try_from(self.weight).unwrap_or(0)));
        } else {
            out.push(if self.weight < 0 { SMALL_WEIGHT } else { LARGE_WEIGHT });
            // i16 holds every weight there is: see `value`.
            let weight = i16::try_from(self.weight).unwrap_or(i16::MAX);
            out.extend_from_slice(&(weight.cast_unsigned() ^ 0x8000).to_be_bytes());
        }
        for (index, digit) in self.digits.iter().enumerate() {
            let more = index + 1 < self.digits.len();
            out.extend_from_slice(&(digit << 1 | u16::from(more)).to_be_bytes());
        }
        if self.kind == Kind::Negative {
            out[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    fn decode_key(input: &mut &[u8], mask: u8, scale: u16) -> Result<Parts> {
        let mut take = |negative: u8| -> Result<u8> {
            let (first, rest) = input.split_first().ok_or_else(|| corrupted("a key ends within a number"))?;
            *input = rest;
            Ok(first ^ mask ^ negative)
        };
        let lead = take(0)?;
        match lead {
            ZERO => return Ok(Parts::special(Kind::Positive, scale)),
            NAN => return Ok(Parts::special(Kind::Nan, 0)),
            INFINITY => return Ok(Parts::special(Kind::Infinity, 0)),
            lead if lead == !INFINITY => return Ok(Parts::special(Kind::NegativeInfinity, 0)),
            _ => {}
        }
        let (kind, negative) = if lead < ZERO { (Kind::Negative, 0xff) } else { (Kind::Positive, 0) };
        let weight = match lead ^ negative {
            SMALL_WEIGHT | LARGE_WEIGHT => {
                let weight = u16::from_be_bytes([take(negative)?, take(negative)?]);
                i32::from((weight ^ 0x8000).cast_signed())
            }
            near @ SMALL_WEIGHT..LARGE_WEIGHT => i32::from(near) - i32::from(WEIGHT_0),
            _ => return Err(corrupted("a number in a key begins with a reserved byte")),
        };
        let mut digits = Vec::new();
        loop {
            let word = u16::from_be_bytes([take(negative)?, take(negative)?]);
            let digit = word >> 1;
            if digit > 9999 {
                return Err(corrupted("a number in a key has a digit that is none"));
            }
            digits.push(digit);
            if word & 1 == 0 {
                return Ok(Parts { kind, weight, scale, digits });
            }
        }
    }

    fn encode_row(&self, out: &mut Vec<u8>) {
        match self.kind {
            Kind::Nan => return out.push(ROW_NAN),
            Kind::Infinity => return out.push(ROW_INFINITY),
            Kind::NegativeInfinity => return out.push(ROW_NEGATIVE_INFINITY),
            Kind::Positive | Kind::Negative => {}
        }
        let small = u8::try_from(self.scale).ok().filter(|scale| *scale <= MAX_SCALE);
        if let Some((scale, mantissa)) = small.zip(self.scaled()) {
            out.push(scale);
            let bytes = mantissa.to_le_bytes();
            // As many bytes as the number with its sign needs; none for 0.
            let unused = if mantissa < 0 { mantissa.leading_ones() } else { mantissa.leading_zeros() };
            let needed = if mantissa == 0 { 0 } else { 16 - (unused as usize - 1) / 8 };
            out.extend_from_slice(&bytes[..needed]);
            return;
        }
        out.push(if self.kind == Kind::Negative { NEGATIVE } else { POSITIVE });
        out.extend_from_slice(&self.scale.to_le_bytes());
        out.extend_from_slice(&i16::try_from(self.weight).unwrap_or(i16::MAX).to_le_bytes());
        for digit in &self.digits {
            out.extend_from_slice(&digit.to_le_bytes());
        }
    }

    fn decode_row(bytes: &[u8]) -> Result<Parts> {
        let wrong = || corrupted("a number in a row");
        let (&first, rest) = bytes.split_first().ok_or_else(wrong)?;
        let kind = match first {
            ..=MAX_SCALE => {
                if rest.len() > 16 {
                    return Err(wrong());
                }
                let sign = rest.last().is_some_and(|byte| byte & 0x80 != 0);
                let mut wide = [if sign { 0xff } else { 0 }; 16];
                wide[..rest.len()].copy_from_slice(rest);
                return Ok(Parts::from_scaled(i128::from_le_bytes(wide), u16::from(first)));
            }
            POSITIVE => Kind::Positive,
            NEGATIVE => Kind::Negative,
            ROW_NAN if rest.is_empty() => return Ok(Parts::special(Kind::Nan, 0)),
            ROW_INFINITY if rest.is_empty() => return Ok(Parts::special(Kind::Infinity, 0)),
            ROW_NEGATIVE_INFINITY if rest.is_empty() => return Ok(Parts::special(Kind::NegativeInfinity, 0)),
            _ => return Err(wrong()),
        };
        let [scale0, scale1, weight0, weight1, digits @ ..] = rest else { return Err(wrong()) };
        let (pairs, []) = digits.as_chunks::<2>() else { return Err(wrong()) };
        let digits: Vec<u16> = pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
        if digits.iter().any(|digit| *digit > 9999) {
            return Err(wrong());
        }
        Ok(Parts {
            kind,
            weight: i32::from(i16::from_le_bytes([*weight0, *weight1])),
            scale: u16::from_le_bytes([*scale0, *scale1]),
            digits,
        })
    }
}

/// Appends a number to a key, so that bytes are ordered as numbers are; how many digits are shown behind the point is not kept.
pub(super) fn encode_key(value: &Value, out: &mut Vec<u8>) -> Result<()> {
    Parts::of(value)?.encode_key(out);
    Ok(())
}

/// Takes a number from a key whose bytes are complemented by `mask`; `scale` digits are shown behind the point.
pub(super) fn decode_key(input: &mut &[u8], mask: u8, scale: u16) -> Result<Value> {
    Parts::decode_key(input, mask, scale)?.value()
}

/// Passes over a number in a key.
pub(super) fn skip_key(input: &mut &[u8], mask: u8) -> Result<()> {
    Parts::decode_key(input, mask, 0).map(drop)
}

/// Appends a number to a row.
pub(super) fn encode_row(value: &Value, out: &mut Vec<u8>) -> Result<()> {
    Parts::of(value)?.encode_row(out);
    Ok(())
}

/// Reads a number of a row.
pub(super) fn decode_row(bytes: &[u8]) -> Result<Value> {
    Parts::decode_row(bytes)?.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From PostgreSQL's binary representation.
    fn parts(weight: i16, sign: u16, scale: u16, digits: &[u16]) -> Parts {
        let mut bytes = Vec::new();
        for word in [digits.len() as u16, weight.cast_unsigned(), sign, scale].iter().chain(digits) {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        Parts::parse(&bytes).unwrap()
    }

    fn any_parts() -> impl Strategy<Value = Parts> {
        let finite = (-40i16..40, any::<bool>(), 0u16..80, prop::collection::vec(0u16..10000, 0..12))
            .prop_map(|(weight, negative, scale, digits)| {
                // What is behind the digits shown is not there: the scale covers the last digit, as in every number.
                let least = (digits.len() as i32 - 1 - i32::from(weight)).max(0) * 4;
                let scale = scale.max(u16::try_from(least).unwrap());
                parts(weight, if negative { SIGN_NEGATIVE } else { 0 }, scale, &digits)
            });
        prop_oneof![
            20 => finite,
            1 => Just(Parts::special(Kind::Nan, 0)),
            1 => Just(Parts::special(Kind::Infinity, 0)),
            1 => Just(Parts::special(Kind::NegativeInfinity, 0)),
        ]
    }

    /// The order of two numbers, worked out digit by digit.
    fn compare(a: &Parts, b: &Parts) -> std::cmp::Ordering {
        let rank = |p: &Parts| match p.kind {
            Kind::NegativeInfinity => 0,
            Kind::Negative => 1,
            Kind::Positive if p.digits.is_empty() => 2,
            Kind::Positive => 3,
            Kind::Infinity => 4,
            Kind::Nan => 5,
        };
        let magnitude = || a.weight.cmp(&b.weight).then_with(|| a.digits.cmp(&b.digits));
        rank(a).cmp(&rank(b)).then_with(|| match rank(a) {
            3 => magnitude(),
            1 => magnitude().reverse(),
            _ => std::cmp::Ordering::Equal,
        })
    }

    proptest! {
        #[test]
        fn keys_are_ordered_as_numbers_are(a in any_parts(), b in any_parts()) {
            let (mut x, mut y) = (Vec::new(), Vec::new());
            a.encode_key(&mut x);
            b.encode_key(&mut y);
            prop_assert_eq!(x.cmp(&y), compare(&a, &b), "{:?} {:?}", x, y);
        }

        #[test]
        fn keys_and_rows_give_the_number_back(number in any_parts()) {
            let mut bytes = Vec::new();
            number.encode_row(&mut bytes);
            prop_assert_eq!(&Parts::decode_row(&bytes).unwrap(), &number);
            let mut key = Vec::new();
            number.encode_key(&mut key);
            for mask in [0, 0xff] {
                let mut masked: Vec<u8> = key.iter().map(|byte| byte ^ mask).collect();
                masked.push(7);
                let mut input = masked.as_slice();
                prop_assert_eq!(&Parts::decode_key(&mut input, mask, number.scale).unwrap(), &number);
                prop_assert_eq!(input, [7]);
            }
        }
    }

    #[test]
    fn small_numbers_take_few_bytes() {
        let mut bytes = Vec::new();
        parts(0, 0, 2, &[123, 4500]).encode_row(&mut bytes);
        assert_eq!(bytes, [2, 0x39, 0x30]);
        bytes.clear();
        parts(0, SIGN_NEGATIVE, 0, &[1]).encode_row(&mut bytes);
        assert_eq!(bytes, [0, 0xff]);
        bytes.clear();
        parts(0, 0, 3, &[]).encode_row(&mut bytes);
        assert_eq!(bytes, [3]);
    }

    #[test]
    fn any_bytes_are_a_number_or_an_error() {
        for first in 0..=255 {
            for len in 0..24u32 {
                let mut bytes = vec![first];
                bytes.extend((0..len).map(|i| first ^ (i as u8).wrapping_mul(37)));
                let _ = Parts::decode_row(&bytes);
                let _ = Parts::decode_key(&mut bytes.as_slice(), 0, 0);
            }
        }
    }
}
