//! Operators and functions of bytea.

use super::arguments::{bytes, int, int_or, text};
use super::string::{negative_length, reserve, span};
use super::{Call, Function};
use crate::types::Value;
use crate::types::text::check_utf8;
use crate::{Error, Result, SqlState};

/// Room for bytes that are gathered and then moved to where their owners are counted.
fn reserve_twice(call: &Call<'_, '_>, bytes: usize) -> Result<()> {
    reserve(call, bytes.checked_mul(2))
}

/// A part of others.
fn part(call: &Call<'_, '_>, bytes: &[u8]) -> Result<Value> {
    reserve(call, Some(bytes.len()))?;
    made(bytes)
}

fn made(bytes: impl Into<std::sync::Arc<[u8]>>) -> Result<Value> {
    Ok(Value::Bytes(bytes.into()))
}

fn concatenate(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (a, b) = (bytes(a, 0)?, bytes(a, 1)?);
    reserve_twice(call, a.len() + b.len())?;
    made([a, b].concat())
}

fn length(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(bytes(a, 0)?.len() as i64))
}

fn bit_length(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(bytes(a, 0)?.len() as i64 * 8))
}

fn slice(bytes: &[u8], start: i64, length: Option<i64>) -> Result<&[u8]> {
    let (first, length) = span(start, length)?;
    let rest = bytes.get(first..).unwrap_or_default();
    Ok(&rest[..length.min(rest.len())])
}

fn substring(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let length = if a.len() > 2 { Some(int(a, 2)?) } else { None };
    part(call, slice(bytes(a, 0)?, int(a, 1)?, length)?)
}

fn position(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (bytes, wanted) = (bytes(a, 0)?, bytes(a, 1)?);
    if wanted.is_empty() {
        return Ok(Value::Int(1));
    }
    let found = bytes.windows(wanted.len()).position(|window| window == wanted);
    Ok(Value::Int(found.map_or(0, |at| at as i64 + 1)))
}

/// The index, if there is such a byte.
fn index(a: &[Value]) -> Result<usize> {
    let (length, index) = (bytes(a, 0)?.len(), int(a, 1)?);
    match usize::try_from(index) {
        Ok(index) if index < length => Ok(index),
        _ => {
            let message = format!("index {index} out of valid range, 0..{}", length as i64 - 1);
            Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message))
        }
    }
}

fn get_byte(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(i64::from(bytes(a, 0)?[index(a)?])))
}

fn set_byte(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let index = index(a)?;
    reserve_twice(call, bytes(a, 0)?.len())?;
    let mut bytes = bytes(a, 0)?.to_vec();
    bytes[index] = int(a, 2)? as u8;
    made(bytes)
}

fn overlay(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (old, new, start) = (bytes(a, 0)?, bytes(a, 1)?, int(a, 2)?);
    let length = int_or(a, 3, new.len() as i64)?;
    if start <= 0 {
        return Err(negative_length());
    }
    let behind = start + length;
    if i32::try_from(behind).is_err() {
        return Err(Error::out_of_range("integer"));
    }
    reserve_twice(call, 2 * old.len() + new.len())?;
    made([slice(old, 1, Some(start - 1))?, new, slice(old, behind, None)?].concat())
}

/// The bytes without those of a set at the beginning, or the end.
fn trimmed(call: &Call<'_, '_>, a: &[Value], left: bool, right: bool) -> Result<Value> {
    let (mut rest, set) = (bytes(a, 0)?, bytes(a, 1)?);
    while left
        && let [first, behind @ ..] = rest
        && set.contains(first)
    {
        rest = behind;
    }
    while right
        && let [before @ .., last] = rest
        && set.contains(last)
    {
        rest = before;
    }
    part(call, rest)
}

fn characters(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (bytes, encoding) = (bytes(a, 0)?, text(a, 1)?);
    if !matches!(encoding.to_ascii_lowercase().replace('-', "").as_str(), "utf8" | "unicode") {
        return Err(Error::unsupported(format!("encoding \"{encoding}\"")));
    }
    Ok(Value::Int(super::string::count(check_utf8(bytes)?) as i64))
}

#[rustfmt::skip]
pub(super) const OPERATORS: &[(&str, Function)] = operators! {
    "||" 2011 "byteacat" (Bytea Bytea) Bytea = concatenate;
};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    2010 "length" (Bytea) Int4 = length;
    1713 "length" (Bytea Name) Int4.stable() = characters;
    720 "octet_length" (Bytea) Int4 = length;
    1810 "bit_length" (Bytea) Int4 = bit_length;
    2012 "substring" (Bytea Int4 Int4) Bytea = substring;
    2013 "substring" (Bytea Int4) Bytea = substring;
    2085 "substr" (Bytea Int4 Int4) Bytea = substring;
    2086 "substr" (Bytea Int4) Bytea = substring;
    2014 "position" (Bytea Bytea) Int4 = position;
    721 "get_byte" (Bytea Int4) Int4 = get_byte;
    722 "set_byte" (Bytea Int4 Int4) Bytea = set_byte;
    749 "overlay" (Bytea Bytea Int4 Int4) Bytea = overlay;
    752 "overlay" (Bytea Bytea Int4) Bytea = overlay;
    2015 "btrim" (Bytea Bytea) Bytea = |call, a| trimmed(call, a, true, true);
    6195 "ltrim" (Bytea Bytea) Bytea = |call, a| trimmed(call, a, true, false);
    6196 "rtrim" (Bytea Bytea) Bytea = |call, a| trimmed(call, a, false, true);
};
