//! Order-preserving keys: a column's bytes compare as its values do, and say themselves where they end.
//!
//! # Guarantees
//! 1. Bytewise order is the order of [`Value::total_cmp`], turned round for a descending column, with NULLs first or last as
//!    the column wants them. Equal values have equal bytes.
//! 2. No value's bytes are the beginning of another's. So the keys that begin with some values are those between the bytes
//!    of these values and their [`successor`].
//!
//! The layout stands in `docs/format.md`.

use super::{Form, corrupted, fixed_scale, numeric, padded_length, unpadded};
use crate::types::{Modifier, Type, Value};
use crate::{Error, Result, SqlState};
use compact_str::CompactString;
use std::borrow::Cow;

/// What stands before a value that can be NULL. Other bytes are reserved.
const NULL_FIRST: u8 = 0x10;
const PRESENT: u8 = 0x20;
const NULL_LAST: u8 = 0x30;

/// End of a string. The bytes 0 and 1 within it are written as 1 and the byte plus 1.
const END: u8 = 0;
const ESCAPE: u8 = 1;

/// A column of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyColumn {
    /// Its type.
    pub ty: Type,
    /// The type's modifier.
    pub modifier: Modifier,
    /// Whether it may be NULL; a column of a primary key may not.
    pub nullable: bool,
    /// Largest first.
    pub descending: bool,
    /// NULLs before everything else.
    pub nulls_first: bool,
}

/// Where a value stands among those that a column can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// It is the value encoded.
    At,
    /// It is below the value encoded, and above all others that are.
    Below,
    /// It is above the value encoded, and below all others that are.
    Above,
}

/// Whether a value of a type can be read back from a key just as it was.
pub fn is_lossless(ty: Type, modifier: Modifier) -> bool {
    match Form::of(ty) {
        // -0 and 0 are one key.
        None | Some(Form::Float4 | Form::Float8) => false,
        // 1.0 and 1.00 are one key.
        Some(Form::Numeric) => fixed_scale(modifier).is_some(),
        Some(Form::Padded) => padded_length(modifier).is_some(),
        Some(_) => true,
    }
}

/// Makes the last bytes of a key that begins with `prefix` impossible to reach: the least bytes above all that begin with
/// `prefix`; false where there are none.
pub fn successor(prefix: &mut Vec<u8>) -> bool {
    while let Some(last) = prefix.last_mut() {
        if *last < 0xff {
            *last += 1;
            return true;
        }
        prefix.pop();
    }
    false
}

/// Refuses a key that is longer than `longest`, which is what fits the store's pages.
pub fn check_length(key: &[u8], longest: usize, index: &str) -> Result<()> {
    if key.len() <= longest {
        return Ok(());
    }
    let message = format!("index row size {} exceeds maximum {longest} for index \"{index}\"", key.len());
    Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
        .hint("Values larger than 1/8 of a page cannot be indexed.\nConsider an index of shorter columns, or a larger page size."))
}

fn float_bits(value: f64) -> u64 {
    // One zero and one NaN; that NaN is above infinity.
    let bits = if value.is_nan() { f64::NAN.to_bits() & !(1 << 63) } else { (value + 0.0).to_bits() };
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn float_from_bits(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

fn float4_bits(value: f32) -> u32 {
    let bits = if value.is_nan() { f32::NAN.to_bits() & !(1 << 31) } else { (value + 0.0).to_bits() };
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

fn float4_from_bits(bits: u32) -> f32 {
    f32::from_bits(if bits >> 31 == 1 { bits & !(1 << 31) } else { !bits })
}

/// The number of type real that is next to `value`.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
fn nearest_float4(value: f64) -> f32 {
    value as f32
}

fn encode_string(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.iter().all(|byte| *byte > ESCAPE) {
        out.extend_from_slice(bytes);
    } else {
        for byte in bytes {
            if *byte <= ESCAPE {
                out.extend_from_slice(&[ESCAPE, byte + 1]);
            } else {
                out.push(*byte);
            }
        }
    }
    out.push(END);
}

/// Takes a string from a key whose bytes are complemented by `mask`.
fn decode_string<'k>(input: &mut &'k [u8], mask: u8) -> Result<Cow<'k, [u8]>> {
    let end = input
        .iter()
        .position(|byte| byte ^ mask == END)
        .ok_or_else(|| corrupted("a string in a key has no end"))?;
    let whole: &'k [u8] = input;
    let (string, rest) = (&whole[..end], &whole[end + 1..]);
    *input = rest;
    if mask == 0 && !string.contains(&ESCAPE) {
        return Ok(Cow::Borrowed(string));
    }
    let mut plain = Vec::with_capacity(string.len());
    let mut bytes = string.iter().map(|byte| byte ^ mask);
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            ESCAPE => match bytes.next() {
                Some(escaped @ 1..=2) => escaped - 1,
                _ => return Err(corrupted("a string in a key has an escape that is none")),
            },
            other => other,
        });
    }
    Ok(Cow::Owned(plain))
}

#[inline(always)]
fn take<const N: usize>(input: &mut &[u8], mask: u8) -> Result<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk::<N>().ok_or_else(|| corrupted("a key is too short"))?;
    *input = rest;
    Ok(bytes.map(|byte| byte ^ mask))
}

/// The text of stored bytes.
pub(super) fn stored_text(bytes: &[u8]) -> Result<CompactString> {
    CompactString::from_utf8(bytes).map_err(|_| corrupted("a string that is no UTF-8"))
}

/// A value of type character(n) as it is seen, from the stored one without blanks.
pub(super) fn padded(stored: &[u8], modifier: Modifier) -> Result<Value> {
    let mut text = stored_text(stored)?;
    if let Some(length) = padded_length(modifier) {
        let characters = text.chars().count();
        text.extend(std::iter::repeat_n(' ', length.saturating_sub(characters)));
    }
    Ok(Value::Padded(text))
}

/// Takes a whole number from a key.
#[inline]
fn take_whole(form: Form, input: &mut &[u8], mask: u8) -> Result<i64> {
    let whole = first_whole(form, input, mask).ok_or_else(|| corrupted("a key is too short"))?;
    *input = &input[form.width().unwrap_or_default()..];
    Ok(whole)
}

/// The whole number that a key begins with; `None` where it is too short, and of forms of anything else.
#[inline(always)]
fn first_whole(form: Form, key: &[u8], mask: u8) -> Option<i64> {
    fn first<const N: usize>(key: &[u8], mask: u8) -> Option<[u8; N]> {
        Some(key.first_chunk::<N>()?.map(|byte| byte ^ mask))
    }
    Some(match form {
        Form::Int2 => i64::from((u16::from_be_bytes(first(key, mask)?) ^ 1 << 15).cast_signed()),
        Form::Int4 => i64::from((u32::from_be_bytes(first(key, mask)?) ^ 1 << 31).cast_signed()),
        Form::Int8 => (u64::from_be_bytes(first(key, mask)?) ^ 1 << 63).cast_signed(),
        Form::Oid => i64::from(u32::from_be_bytes(first(key, mask)?)),
        _ => return None,
    })
}

/// A whole number at the same place of all keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeInKey {
    offset: usize,
    form: Form,
    mask: u8,
}

impl WholeInKey {
    /// Reads it; `None` where the key is too short.
    #[inline(always)]
    pub(super) fn read(self, key: &[u8]) -> Option<i64> {
        first_whole(self.form, key.get(self.offset..)?, self.mask)
    }
}

impl KeyColumn {
    fn form(&self) -> Result<Form> {
        Form::of(self.ty).ok_or_else(|| Error::unsupported(format!("a key of type {}", self.ty.name())))
    }

    fn mask(&self) -> u8 {
        if self.descending { 0xff } else { 0 }
    }

    /// Bytes of the column where they are always the same number.
    pub(super) fn fixed_width(&self) -> Option<usize> {
        if self.nullable { None } else { Form::of(self.ty)?.width() }
    }

    /// Appends what stands before a value that is not NULL.
    pub(super) fn encode_present(&self, out: &mut Vec<u8>) {
        if self.nullable {
            out.push(PRESENT);
        }
    }

    /// Appends NULL.
    pub(super) fn encode_null(&self, out: &mut Vec<u8>) -> Result<()> {
        if !self.nullable {
            return Err(Error::internal("NULL in a key that has none"));
        }
        out.push(if self.nulls_first { NULL_FIRST } else { NULL_LAST });
        Ok(())
    }

    /// Appends a value that the column holds.
    pub fn encode(&self, value: &Value, out: &mut Vec<u8>) -> Result<()> {
        if value.is_null() {
            return self.encode_null(out);
        }
        match self.place(value, out)? {
            Place::At => Ok(()),
            Place::Below | Place::Above => Err(Error::out_of_range(self.ty.name())),
        }
    }

    /// Appends the value that the column can hold next to `value`, which is not NULL, and says on which side of it `value` is.
    pub(super) fn place(&self, value: &Value, out: &mut Vec<u8>) -> Result<Place> {
        self.encode_present(out);
        let start = out.len();
        let place = self.place_ascending(value, out)?;
        if self.descending {
            out[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
        Ok(place)
    }

    fn place_ascending(&self, value: &Value, out: &mut Vec<u8>) -> Result<Place> {
        let form = self.form()?;
        match (form, value) {
            (Form::Bool, Value::Bool(value)) => out.push(u8::from(*value)),
            (Form::Int2 | Form::Int4 | Form::Int8 | Form::Oid, Value::Int(value)) => {
                return Ok(place_int(form, *value, out));
            }
            (Form::Float4, Value::Float(value)) => {
                let near = nearest_float4(*value);
                out.extend_from_slice(&float4_bits(near).to_be_bytes());
                let near = f64::from(near);
                // Neither is true of NaN.
                if *value < near {
                    return Ok(Place::Below);
                }
                if *value > near {
                    return Ok(Place::Above);
                }
            }
            (Form::Float8, Value::Float(value)) => out.extend_from_slice(&float_bits(*value).to_be_bytes()),
            (Form::Numeric, Value::Numeric(number)) => numeric::encode_key(number, out),
            (Form::Text, Value::Text(text) | Value::Padded(text)) => encode_string(text.as_bytes(), out),
            (Form::Padded, Value::Text(text) | Value::Padded(text)) => {
                encode_string(unpadded(text).as_bytes(), out);
            }
            (Form::Bytes, Value::Bytes(bytes)) => encode_string(bytes, out),
            _ => return Err(Error::internal(format!("a key of type {} made of {value:?}", self.ty.name()))),
        }
        Ok(Place::At)
    }

    /// Takes the column's value from a key. Of a type that [`is_lossless`] it is what was put in, else an equal one.
    pub fn decode(&self, input: &mut &[u8]) -> Result<Value> {
        if !self.take_present(input)? {
            return Ok(Value::Null);
        }
        let mask = self.mask();
        Ok(match self.form()? {
            Form::Bool => match take::<1>(input, mask)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                _ => return Err(corrupted("a truth value in a key")),
            },
            form @ (Form::Int2 | Form::Int4 | Form::Int8 | Form::Oid) => {
                Value::Int(take_whole(form, input, mask)?)
            }
            Form::Float4 => Value::Float(f64::from(float4_from_bits(u32::from_be_bytes(take(input, mask)?)))),
            Form::Float8 => Value::Float(float_from_bits(u64::from_be_bytes(take(input, mask)?))),
            Form::Numeric => Value::Numeric(numeric::decode_key(input, mask, fixed_scale(self.modifier))?),
            Form::Text => Value::Text(stored_text(&decode_string(input, mask)?)?),
            Form::Padded => padded(&decode_string(input, mask)?, self.modifier)?,
            Form::Bytes => Value::Bytes(decode_string(input, mask)?.as_ref().into()),
        })
    }

    /// The column as a whole number of keys where it begins there, if it is one in each of them.
    pub(super) fn whole_at(&self, offset: usize) -> Option<WholeInKey> {
        let form = Form::of(self.ty)?;
        let is_whole = matches!(form, Form::Int2 | Form::Int4 | Form::Int8 | Form::Oid);
        (is_whole && !self.nullable).then(|| WholeInKey { offset, form, mask: self.mask() })
    }

    /// Passes over the column's value in a key.
    pub fn skip(&self, input: &mut &[u8]) -> Result<()> {
        if !self.take_present(input)? {
            return Ok(());
        }
        let form = self.form()?;
        if let Some(width) = form.width() {
            *input = input.get(width..).ok_or_else(|| corrupted("a key is too short"))?;
            return Ok(());
        }
        if form == Form::Numeric {
            return numeric::skip_key(input, self.mask());
        }
        let end = END ^ self.mask();
        let length = input.iter().position(|byte| *byte == end);
        let length = length.ok_or_else(|| corrupted("a string in a key has no end"))?;
        *input = &input[length + 1..];
        Ok(())
    }

    /// Takes what stands before a value; false when it is NULL.
    fn take_present(&self, input: &mut &[u8]) -> Result<bool> {
        if !self.nullable {
            return Ok(true);
        }
        match take::<1>(input, 0)? {
            [PRESENT] => Ok(true),
            [NULL_FIRST | NULL_LAST] => Ok(false),
            _ => Err(corrupted("a reserved byte in a key")),
        }
    }
}

fn place_int(form: Form, value: i64, out: &mut Vec<u8>) -> Place {
    let (least, largest) = form.int_range().unwrap_or((i64::MIN, i64::MAX));
    let near = value.clamp(least, largest);
    // As eight bytes with the sign flipped; of narrower numbers the last ones, with their own sign flipped.
    let bytes = match form {
        Form::Oid => near.cast_unsigned(),
        Form::Int2 => near.cast_unsigned() ^ 1 << 15,
        Form::Int4 => near.cast_unsigned() ^ 1 << 31,
        _ => near.cast_unsigned() ^ 1 << 63,
    }
    .to_be_bytes();
    out.extend_from_slice(&bytes[8 - form.width().unwrap_or(8)..]);
    match value.cmp(&near) {
        std::cmp::Ordering::Less => Place::Below,
        std::cmp::Ordering::Equal => Place::At,
        std::cmp::Ordering::Greater => Place::Above,
    }
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
