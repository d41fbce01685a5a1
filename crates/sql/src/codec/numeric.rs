//! Exact numbers in keys and rows. The layouts stand in `docs/format.md`.

use super::corrupted;
use crate::Result;
use crate::types::Numeric;
use crate::types::numeric::{Base10000, MAX_SCALE, Parts, Sign};
use num_traits::ToPrimitive;

/// Lead bytes of keys. The others below 0xE0 are reserved.
const ZERO: u8 = 0x80;
const SMALL_WEIGHT: u8 = 0x81;
const WEIGHT_0: u8 = 0x9A;
const LARGE_WEIGHT: u8 = 0xB3;
const INFINITY: u8 = 0xE0;
const NAN: u8 = 0xE1;
/// Weights that lie in the lead byte itself: -24 to 24.
const NEAR: i16 = 24;

/// First bytes of a number in a row; up to `WHOLE` they are the scale of a number written as whole number. The others are
/// reserved.
const WHOLE: u8 = 63;
const POSITIVE: u8 = 64;
const NEGATIVE: u8 = 65;
const ROW_NAN: u8 = 66;
const ROW_INFINITY: u8 = 67;
const ROW_NEGATIVE_INFINITY: u8 = 68;

/// Digits to the base 10000 of a number that the small form holds, at most.
const SMALL_DIGITS: usize = 6;

/// Appends a number to a key, so that bytes are ordered as numbers are; how many digits are shown behind the point is not kept.
pub(super) fn encode_key(number: &Numeric, out: &mut Vec<u8>) {
    let start = out.len();
    let negative = match number.parts() {
        Parts::NaN => return out.push(NAN),
        Parts::Infinity => return out.push(INFINITY),
        Parts::NegInfinity => return out.push(!INFINITY),
        Parts::Small { digits: 0, .. } => return out.push(ZERO),
        Parts::Small { digits, scale } => {
            let (groups, count, weight) = small_groups(digits.unsigned_abs(), scale);
            encode_groups(&groups[..count], weight, out);
            digits < 0
        }
        Parts::Big { .. } => {
            let Base10000 { sign, weight, digits, .. } = number.to_base_10000();
            encode_groups(&digits, weight, out);
            sign == Sign::Negative
        }
    };
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// The digits to the base 10000 of a number that is not 0, how many they are, and their weight.
fn small_groups(digits: u64, scale: u16) -> ([u16; SMALL_DIGITS], usize, i16) {
    // The point stands between two digits.
    let mut rest = u128::from(digits) * [1, 1000, 100, 10][usize::from(scale % 4)];
    let mut weight = -i16::try_from(scale.div_ceil(4)).unwrap_or(i16::MAX);
    while rest.is_multiple_of(10000) {
        rest /= 10000;
        weight += 1;
    }
    let (mut groups, mut first) = ([0; SMALL_DIGITS], SMALL_DIGITS);
    while rest > 0 {
        first -= 1;
        groups[first] = u16::try_from(rest % 10000).unwrap_or(0);
        rest /= 10000;
    }
    groups.rotate_left(first);
    let count = SMALL_DIGITS - first;
    (groups, count, weight + i16::try_from(count).unwrap_or(0) - 1)
}

fn encode_groups(groups: &[u16], weight: i16, out: &mut Vec<u8>) {
    if (-NEAR..=NEAR).contains(&weight) {
        out.push(WEIGHT_0.wrapping_add_signed(i8::try_from(weight).unwrap_or(0)));
    } else {
        out.push(if weight < 0 { SMALL_WEIGHT } else { LARGE_WEIGHT });
        out.extend_from_slice(&(weight.cast_unsigned() ^ 0x8000).to_be_bytes());
    }
    for (index, digit) in groups.iter().enumerate() {
        let more = index + 1 < groups.len();
        out.extend_from_slice(&(digit << 1 | u16::from(more)).to_be_bytes());
    }
}

/// Takes a number from a key whose bytes are complemented by `mask`; `scale` digits are shown behind the point, or as many as are
/// needed.
pub(super) fn decode_key(input: &mut &[u8], mask: u8, scale: Option<u16>) -> Result<Numeric> {
    let mut groups = Groups::default();
    let (sign, weight) = take_key(input, mask, &mut |digit| groups.push(digit))?;
    match sign {
        Sign::NaN => return Ok(Numeric::NAN),
        Sign::Infinity => return Ok(Numeric::INFINITY),
        Sign::NegInfinity => return Ok(Numeric::NEG_INFINITY),
        Sign::Positive | Sign::Negative => {}
    }
    // The last digit counts 10000 to this power.
    let last = i32::from(weight) + 1 - i32::try_from(groups.count).unwrap_or(i32::MAX);
    let needed = u16::try_from(last.saturating_mul(-4).max(0)).unwrap_or(MAX_SCALE);
    let scale = scale.unwrap_or(needed).min(MAX_SCALE);
    if let Some(digits) = groups.scaled(last * 4 + i32::from(scale)) {
        return Ok(Numeric::from_i128(if sign == Sign::Negative { -digits } else { digits }, scale));
    }
    let number = Base10000 { sign, weight, scale, digits: groups.all };
    Numeric::from_base_10000(&number).map_err(|_| corrupted("a number in a key that is too large"))
}

/// Digits to the base 10000 as they are read.
#[derive(Default)]
struct Groups {
    count: usize,
    /// Their number, while it fits.
    value: Option<i128>,
    /// All of them; not kept as long as they are few.
    all: Vec<u16>,
}

impl Groups {
    fn push(&mut self, digit: u16) {
        let value = if self.count == 0 { Some(0) } else { self.value };
        self.value = value.and_then(|v: i128| v.checked_mul(10000)?.checked_add(i128::from(digit)));
        self.count += 1;
        self.all.push(digit);
    }

    /// The number times 10 to the power of `shift`, digits behind the point cut off.
    fn scaled(&self, shift: i32) -> Option<i128> {
        let value = if self.count == 0 { 0 } else { self.value? };
        let factor = 10i128.checked_pow(shift.unsigned_abs());
        if shift >= 0 { value.checked_mul(factor?) } else { Some(factor.map_or(0, |factor| value / factor)) }
    }
}

/// Takes a number from a key: sign and weight, and the digits one by one.
fn take_key(input: &mut &[u8], mask: u8, digit: &mut dyn FnMut(u16)) -> Result<(Sign, i16)> {
    let mut take = |mask: u8| -> Result<u8> {
        let (first, rest) = input.split_first().ok_or_else(|| corrupted("a key ends within a number"))?;
        *input = rest;
        Ok(first ^ mask)
    };
    let lead = take(mask)?;
    let (sign, mask) = match lead {
        ZERO => return Ok((Sign::Positive, 0)),
        NAN => return Ok((Sign::NaN, 0)),
        INFINITY => return Ok((Sign::Infinity, 0)),
        lead if lead == !INFINITY => return Ok((Sign::NegInfinity, 0)),
        ..ZERO => (Sign::Negative, !mask),
        _ => (Sign::Positive, mask),
    };
    let weight = match if sign == Sign::Negative { !lead } else { lead } {
        SMALL_WEIGHT | LARGE_WEIGHT => {
            (u16::from_be_bytes([take(mask)?, take(mask)?]) ^ 0x8000).cast_signed()
        }
        near @ SMALL_WEIGHT..LARGE_WEIGHT => i16::from(near) - i16::from(WEIGHT_0),
        _ => return Err(corrupted("a number in a key begins with a reserved byte")),
    };
    loop {
        let word = u16::from_be_bytes([take(mask)?, take(mask)?]);
        if word >> 1 > 9999 {
            return Err(corrupted("a number in a key has a digit that is none"));
        }
        digit(word >> 1);
        if word & 1 == 0 {
            return Ok((sign, weight));
        }
    }
}

/// Passes over a number in a key.
pub(super) fn skip_key(input: &mut &[u8], mask: u8) -> Result<()> {
    take_key(input, mask, &mut |_| {}).map(drop)
}

/// Appends a number to a row.
pub(super) fn encode_row(number: &Numeric, out: &mut Vec<u8>) {
    let (digits, scale) = match number.parts() {
        Parts::NaN => return out.push(ROW_NAN),
        Parts::Infinity => return out.push(ROW_INFINITY),
        Parts::NegInfinity => return out.push(ROW_NEGATIVE_INFINITY),
        Parts::Small { digits, scale } => (Some(i128::from(digits)), scale),
        Parts::Big { digits, scale } => (digits.to_i128(), scale),
    };
    let whole = u8::try_from(scale).ok().filter(|scale| *scale <= WHOLE);
    if let Some((scale, digits)) = whole.zip(digits) {
        out.push(scale);
        // As many bytes as the number with its sign needs; none for 0.
        let unused = if digits < 0 { digits.leading_ones() } else { digits.leading_zeros() };
        let needed = if digits == 0 { 0 } else { 16 - (unused as usize - 1) / 8 };
        out.extend_from_slice(&digits.to_le_bytes()[..needed]);
        return;
    }
    let Base10000 { sign, weight, scale, digits } = number.to_base_10000();
    out.push(if sign == Sign::Negative { NEGATIVE } else { POSITIVE });
    out.extend_from_slice(&scale.to_le_bytes());
    out.extend_from_slice(&weight.to_le_bytes());
    for digit in &digits {
        out.extend_from_slice(&digit.to_le_bytes());
    }
}

/// Reads a number of a row.
pub(super) fn decode_row(bytes: &[u8]) -> Result<Numeric> {
    let wrong = || corrupted("a number in a row");
    let (&first, rest) = bytes.split_first().ok_or_else(wrong)?;
    let sign = match first {
        ..=WHOLE => {
            if rest.len() > 16 {
                return Err(wrong());
            }
            let negative = rest.last().is_some_and(|byte| byte & 0x80 != 0);
            let mut wide = [if negative { 0xff } else { 0 }; 16];
            wide[..rest.len()].copy_from_slice(rest);
            return Ok(Numeric::from_i128(i128::from_le_bytes(wide), u16::from(first)));
        }
        POSITIVE => Sign::Positive,
        NEGATIVE => Sign::Negative,
        ROW_NAN if rest.is_empty() => return Ok(Numeric::NAN),
        ROW_INFINITY if rest.is_empty() => return Ok(Numeric::INFINITY),
        ROW_NEGATIVE_INFINITY if rest.is_empty() => return Ok(Numeric::NEG_INFINITY),
        _ => return Err(wrong()),
    };
    let [scale0, scale1, weight0, weight1, digits @ ..] = rest else { return Err(wrong()) };
    let (pairs, []) = digits.as_chunks::<2>() else { return Err(wrong()) };
    let digits: Vec<u16> = pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
    if digits.iter().any(|digit| *digit > 9999) || digits.len() > usize::from(u16::MAX) {
        return Err(wrong());
    }
    let number = Base10000 {
        sign,
        weight: i16::from_le_bytes([*weight0, *weight1]),
        scale: u16::from_le_bytes([*scale0, *scale1]),
        digits,
    };
    Numeric::from_base_10000(&number).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigInt;
    use proptest::prelude::*;

    pub(in super::super) fn any_number() -> impl Strategy<Value = Numeric> {
        let scale = prop_oneof![4 => 0u16..6, 1 => 0u16..200];
        prop_oneof![
            4 => (-2000i64..2000, scale.clone()).prop_map(|(digits, scale)| Numeric::new(digits, scale)),
            4 => (any::<i64>(), scale.clone()).prop_map(|(digits, scale)| Numeric::new(digits, scale)),
            2 => (any::<i128>(), scale.clone()).prop_map(|(digits, scale)| Numeric::from_i128(digits, scale)),
            2 => (any::<i128>(), 0u32..300, scale).prop_map(|(digits, more, scale)| {
                Numeric::from_big(BigInt::from(digits) * BigInt::from(10).pow(more) + 7, scale.into()).unwrap()
            }),
            1 => prop::sample::select(vec![Numeric::NAN, Numeric::INFINITY, Numeric::NEG_INFINITY]),
        ]
    }

    fn key(number: &Numeric) -> Vec<u8> {
        let mut out = Vec::new();
        encode_key(number, &mut out);
        out
    }

    fn scale(number: &Numeric) -> u16 {
        match number.parts() {
            Parts::Small { scale, .. } | Parts::Big { scale, .. } => scale,
            _ => 0,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn keys_are_ordered_as_numbers_are(a in any_number(), b in any_number()) {
            prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b), "{:?} {:?}", key(&a), key(&b));
        }

        #[test]
        fn keys_and_rows_give_the_number_back(number in any_number()) {
            let mut bytes = Vec::new();
            encode_row(&number, &mut bytes);
            let back = decode_row(&bytes).unwrap();
            prop_assert_eq!((&back, scale(&back)), (&number, scale(&number)));
            for mask in [0, 0xff] {
                let mut masked: Vec<u8> = key(&number).iter().map(|byte| byte ^ mask).collect();
                masked.push(7);
                let (mut input, mut skipped) = (masked.as_slice(), masked.as_slice());
                let back = decode_key(&mut input, mask, Some(scale(&number))).unwrap();
                prop_assert_eq!((&back, scale(&back)), (&number, scale(&number)));
                skip_key(&mut skipped, mask).unwrap();
                prop_assert_eq!((input, skipped), (&[7][..], &[7][..]));
            }
        }

        #[test]
        fn both_forms_give_one_key(digits: i64, decimals in 0u16..80) {
            let number = Numeric::new(digits, decimals);
            let base = number.to_base_10000();
            let mut wanted = Vec::new();
            if digits == 0 { wanted.push(ZERO) } else { encode_groups(&base.digits, base.weight, &mut wanted) }
            if digits < 0 {
                wanted.iter_mut().for_each(|byte| *byte = !*byte);
            }
            prop_assert_eq!(key(&number), wanted);
        }

        #[test]
        fn any_bytes_are_a_number_or_an_error(mut bytes: Vec<u8>, first in 60u8..70) {
            let _ = decode_row(&bytes);
            let _ = decode_key(&mut bytes.as_slice(), 0, Some(4));
            bytes.insert(0, first);
            let _ = decode_row(&bytes);
        }
    }

    #[test]
    fn small_numbers_take_few_bytes() {
        let row = |number: &Numeric| {
            let mut bytes = Vec::new();
            encode_row(number, &mut bytes);
            bytes
        };
        assert_eq!(row(&Numeric::new(12345, 2)), [2, 0x39, 0x30]);
        assert_eq!(row(&Numeric::new(-1, 0)), [0, 0xff]);
        assert_eq!(row(&Numeric::new(0, 3)), [3]);
        assert_eq!(key(&Numeric::new(10, 1)), [WEIGHT_0, 0, 2]);
        assert_eq!(key(&Numeric::new(100, 2)), [WEIGHT_0, 0, 2]);
    }

    #[test]
    fn weights_at_the_edge_of_the_lead_byte() {
        let mut last = Vec::new();
        for exponent in 80..120 {
            let number = Numeric::from_big(BigInt::from(10).pow(exponent), 0).unwrap();
            let (bytes, mut negative) = (key(&number), Vec::new());
            assert!(bytes > last);
            encode_key(&number.neg(), &mut negative);
            assert_eq!(decode_key(&mut negative.as_slice(), 0, None).unwrap(), number.neg());
            last = bytes;
        }
    }
}
