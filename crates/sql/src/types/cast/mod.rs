//! Which type converts to which, when, and how.

use super::datetime;
use super::numeric::{MAX_DIGITS, MAX_SCALE};
use super::text::{self, TextStyle};
use super::{Array, Modifier, NO_MODIFIER, Numeric, Type, Value, unpadded};
use crate::{Error, Result, SqlState};
use compact_str::CompactString;
use memchr::memchr2_iter;
use std::ops::Range;
use std::sync::Arc;

/// Bytes in front of the elements of an array's binary form, where it has any.
const ARRAY_HEAD: usize = 20;
/// Where their number stands there.
const ARRAY_COUNT: Range<usize> = 12..16;

/// When a conversion is applied without being asked for: `pg_cast.castcontext`. Ordered: what is implicit is also allowed for assignment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CastContext {
    /// Anywhere.
    Implicit,
    /// When a value is stored into a column.
    Assignment,
    /// By CAST or `::` only.
    Explicit,
}

/// The weakest context in which `from` converts to `to`; `None` where there is no such cast. Equal types are implicit. Casts through text input
/// and output (any type to text in assignment, text to any type explicitly) are included, as in PostgreSQL.
pub fn context(from: Type, to: Type) -> Option<CastContext> {
    if from == to || from == Type::Unknown {
        return Some(CastContext::Implicit);
    }
    if let Some(context) = listed(from, to) {
        return Some(context);
    }
    if let (Some(from), Some(to), false) =
        (from.element(), to.element(), matches!(to, Type::Int2Vector | Type::OidVector))
        && let Some(context) = context(from, to)
    {
        return Some(context);
    }
    if to.category() == 'S' {
        Some(CastContext::Assignment)
    } else if from.category() == 'S' && !matches!(to, Type::Unknown | Type::Record | Type::Void) {
        Some(CastContext::Explicit)
    } else {
        None
    }
}

/// PostgreSQL's `pg_cast`, as far as we have the types.
#[rustfmt::skip]
fn listed(from: Type, to: Type) -> Option<CastContext> {
    use CastContext::{Assignment, Explicit, Implicit};
    use Type::*;
    Some(match (from, to) {
        (Int2, Int4 | Int8) | (Int4, Int8) => Implicit,
        (Int2 | Int4 | Int8, Float4 | Float8 | Numeric) | (Numeric, Float4 | Float8) | (Float4, Float8) => Implicit,
        (Int8, Int2 | Int4) | (Int4, Int2) => Assignment,
        (Float4 | Float8 | Numeric, Int2 | Int4 | Int8) | (Float4 | Float8, Numeric) | (Float8, Float4) => Assignment,
        (Int4, Bool | Char) | (Bool, Int4) | (Char, Int4) => Explicit,
        (Int2 | Int4 | Int8, Oid | Regproc | Regclass | Regtype | Regnamespace) => Implicit,
        (Oid, Regproc | Regclass | Regtype | Regnamespace) => Implicit,
        (Regproc | Regclass | Regtype | Regnamespace, Oid) => Implicit,
        (Oid | Regproc | Regclass | Regtype | Regnamespace, Int4 | Int8) => Assignment,
        (Bool, Text | Varchar | Bpchar) => Assignment,
        (Char, Text) | (Name, Text) | (NodeTree, Text) => Implicit,
        (Char | Name, Varchar | Bpchar) => Assignment,
        (Text, Varchar | Bpchar | Name) | (Varchar, Text | Bpchar | Name) | (Bpchar, Text | Varchar | Name) => Implicit,
        (Text | Varchar | Bpchar, Char) => Assignment,
        (Text | Varchar, Regclass) => Implicit,
        (Date, Timestamp | TimestampTz) | (Timestamp, TimestampTz) => Implicit,
        (Timestamp, Date) | (TimestampTz, Date | Timestamp) => Assignment,
        _ => return None,
    })
}

/// Converts a value; NULL stays NULL. `explicit`: strings are cut to the modifier silently, as CAST does; else text that is too long is an error,
/// as in assignment. Also fits a value of type `to` itself to the modifier (length, precision and scale).
pub fn cast(
    value: Value,
    from: Type,
    to: Type,
    modifier: Modifier,
    explicit: bool,
    style: &TextStyle,
) -> Result<Value> {
    if value.is_null() {
        return Ok(value);
    }
    if from == to {
        return if modifier < 0 { Ok(value) } else { fit(value, to, modifier, explicit) };
    }
    let value = convert(value, from, to, modifier, explicit, style)?;
    if modifier < 0 { Ok(value) } else { fit(value, to, modifier, explicit) }
}

fn convert(
    value: Value,
    from: Type,
    to: Type,
    modifier: Modifier,
    explicit: bool,
    style: &TextStyle,
) -> Result<Value> {
    let value = match (value, to) {
        (Value::Text(text), _) if to.is_string() => return Ok(string(text, from, to)),
        (Value::Padded(text), Type::Char) => return Ok(string(text, from, to)),
        (Value::Padded(text), _) if to.is_string() => {
            return Ok(string(CompactString::from(unpadded(&text)), from, to));
        }
        (value, _) if from.is_string() => {
            // A cast cuts elements that are too long, behind this; reading does not.
            let modifier = if explicit && to.element().is_some() { NO_MODIFIER } else { modifier };
            return from_string(value, from, to, modifier, style);
        }
        (value, _) if to.is_string() => return to_string(&value, from, to, style),
        (Value::Int(number), _) if to.is_int() => return integer(number, from, to, style).map(Value::Int),
        (Value::Int(number), Type::Float8) => return Ok(Value::Float(number as f64)),
        (Value::Int(number), Type::Float4) => return Ok(Value::Float(f64::from(number as f32))),
        (Value::Int(number), Type::Numeric) => return Ok(Value::Numeric(Numeric::from(number))),
        (Value::Int(number), Type::Bool) => return Ok(Value::Bool(number != 0)),
        (Value::Bool(value), _) if to.is_integer() => return Ok(Value::Int(i64::from(value))),
        (Value::Float(number), _) if to.is_integer() => return float_to_integer(number, to).map(Value::Int),
        (Value::Float(number), Type::Float4) => return narrow(number).map(Value::Float),
        (Value::Float(number), Type::Float8) => return Ok(Value::Float(number)),
        (Value::Float(number), Type::Numeric) => {
            let number = match from {
                Type::Float4 => Numeric::from_f32(number as f32),
                _ => Numeric::from_f64(number),
            };
            return number.map(Value::Numeric);
        }
        (Value::Numeric(number), _) => return from_numeric(number, from, to),
        (Value::Array(array), _) if to.element().is_some() => {
            return cast_array(&array, from, to, modifier, explicit, style);
        }
        (value, _) => value,
    };
    let _ = value;
    Err(cannot_cast(from, to))
}

fn cannot_cast(from: Type, to: Type) -> Error {
    Error::new(SqlState::CANNOT_COERCE, format!("cannot cast type {} to {}", from.name(), to.name()))
}

/// A string as one of another string type.
fn string(text: CompactString, from: Type, to: Type) -> Value {
    match to {
        Type::Bpchar => Value::Padded(text),
        Type::Name => Value::Text(CompactString::new(text::cut_name(&text))),
        Type::Char if from != Type::Char => Value::Text(text::char_text(text::char_byte(&text))),
        _ => Value::Text(text),
    }
}

fn from_string(value: Value, from: Type, to: Type, modifier: Modifier, style: &TextStyle) -> Result<Value> {
    let Some(text) = value.as_str() else { return Err(Error::internal("a string of another kind")) };
    if from == Type::Char && to == Type::Int4 {
        return Ok(Value::Int(i64::from(text::char_byte(text) as i8)));
    }
    text::read(text, to, modifier, style)
}

fn to_string(value: &Value, from: Type, to: Type, style: &TextStyle) -> Result<Value> {
    Ok(match value {
        // The cast to text is a function of its own, and longer than the text representation.
        Value::Bool(value) if to != Type::Name => {
            string(CompactString::const_new(if *value { "true" } else { "false" }), from, to)
        }
        Value::Int(number) if from == Type::Int4 && to == Type::Char => {
            let byte = i8::try_from(*number).map_err(|_| Error::out_of_range("\"char\""))?;
            Value::Text(text::char_text(byte as u8))
        }
        _ => string(text::to_text(value, from, style), from, to),
    })
}

/// Bytes of memory that a conversion to `to` takes anew, about and from above; 0 where the value stays in its own.
pub fn fresh_bytes(value: &Value, to: Type, modifier: Modifier, style: &TextStyle) -> usize {
    match (value, to.element()) {
        (Value::Text(text) | Value::Padded(text), Some(_)) => text_bytes(text, to, modifier),
        (Value::Array(array), Some(element)) => {
            value.heap_bytes() + array.values.len().saturating_mul(blanks(element, modifier))
        }
        (Value::Text(_), None) if to.is_string() && blanks(to, modifier) == 0 => 0,
        (Value::Text(text) | Value::Padded(text), None) if to.is_string() || to == Type::Bytea => {
            text_bytes(text, to, modifier)
        }
        (Value::Bytes(_) | Value::Array(_) | Value::Record(_), None) => {
            text::text_size(value, Type::Unknown, style).all()
        }
        _ => blanks(to, modifier),
    }
}

/// Bytes that a value of `to` takes which is read from text, about and from above.
pub fn text_bytes(text: &str, to: Type, modifier: Modifier) -> usize {
    let Some(element) = to.element() else {
        let digits = if to == Type::Numeric { exponent_bytes(text) } else { 0 };
        return text.len().max(blanks(to, modifier)) + digits;
    };
    let separates = |byte: &u8| match to {
        Type::Int2Vector | Type::OidVector => byte.is_ascii_whitespace(),
        _ => *byte == b',',
    };
    let values = text.as_bytes().iter().filter(|byte| separates(byte)).count() + 1;
    let digits = if element == Type::Numeric { exponent_bytes(text) } else { 0 };
    text.len() + values.saturating_mul(size_of::<Value>() + blanks(element, modifier)) + digits
}

/// Bytes that a value of `to` takes which is read from its binary form, about and from above.
pub fn binary_bytes(bytes: &[u8], to: Type) -> usize {
    // An array's elements stand behind what is said of all of them, each behind its length.
    let elements = || bytes.get(ARRAY_HEAD..).unwrap_or_default();
    let digits = match (to, to.element()) {
        (Type::Numeric, _) => weight_bytes(bytes),
        (_, Some(Type::Numeric)) => {
            let mut rest = elements();
            let mut sum = 0;
            while let Some((len, behind)) = rest.split_first_chunk::<4>() {
                // NULL has no bytes, and -1 for their number.
                let len = usize::try_from(i32::from_be_bytes(*len)).unwrap_or(0);
                let Some((number, behind)) = behind.split_at_checked(len) else { break };
                sum += weight_bytes(number);
                rest = behind;
            }
            sum
        }
        _ => 0,
    };
    // Each has four bytes at least, whatever their number is said to be.
    let count = bytes.get(ARRAY_COUNT).and_then(|count| count.try_into().ok()).map_or(0, u32::from_be_bytes);
    let values = if to.element().is_some() { (count as usize).min(elements().len() / 4) } else { 0 };
    bytes.len() + values * size_of::<Value>() + digits
}

/// Whether a value of this type may take many times the bytes of the text that it is read from.
pub fn outgrows_text(to: Type, modifier: Modifier) -> bool {
    to.element().is_some() || to == Type::Numeric || blanks(to, modifier) > size_of::<Value>()
}

/// Bytes up to which a value is filled with blanks.
fn blanks(ty: Type, modifier: Modifier) -> usize {
    if ty == Type::Bpchar { (modifier - 4).max(0) as usize } else { 0 }
}

/// Bytes of the digits of a number's binary form that are not there: zeros before and behind the point.
fn weight_bytes(number: &[u8]) -> usize {
    let &[_, _, weight, of_weight, _, _, scale, of_scale, ..] = number else { return 0 };
    let weight = usize::try_from(i16::from_be_bytes([weight, of_weight])).unwrap_or(0);
    // A digit takes less than half a byte; of those before the point four are counted as one.
    2 * weight + usize::from(u16::from_be_bytes([scale, of_scale])) / 2
}

/// Bytes of the digits that stand for exponents, in the text of one number or of several: `1e100000` has a hundred thousand.
fn exponent_bytes(text: &str) -> usize {
    let most = MAX_DIGITS as usize + usize::from(MAX_SCALE);
    let of = |at: usize| {
        let behind = text[at + 1..].trim_start_matches(['+', '-']).trim_start_matches('0');
        let length = behind.bytes().take(6).take_while(u8::is_ascii_digit).count();
        // A digit takes less than half a byte.
        10_usize.pow(length as u32).min(most) / 2
    };
    memchr2_iter(b'e', b'E', text.as_bytes()).map(of).sum()
}

/// Between the types whose values are whole numbers.
fn integer(number: i64, from: Type, to: Type, style: &TextStyle) -> Result<i64> {
    match (from, to) {
        (Type::Date, Type::Timestamp) => datetime::date_to_timestamp(number),
        (Type::Date, Type::TimestampTz) => datetime::date_to_timestamptz(number, &style.zone),
        (Type::Timestamp, Type::Date) => datetime::timestamp_to_date(number),
        (Type::Timestamp, Type::TimestampTz) => datetime::timestamp_to_timestamptz(number, &style.zone),
        (Type::TimestampTz, Type::Date) => datetime::timestamptz_to_date(number, &style.zone),
        (Type::TimestampTz, Type::Timestamp) => datetime::timestamptz_to_timestamp(number, &style.zone),
        (Type::Date | Type::Timestamp | Type::TimestampTz, _)
        | (_, Type::Date | Type::Timestamp | Type::TimestampTz) => Err(cannot_cast(from, to)),
        (_, Type::Int8) => Ok(number),
        (_, Type::Int2) => i16::try_from(number).map(i64::from).map_err(|_| Error::out_of_range("smallint")),
        // Object numbers are unsigned; as integer they are the same bits.
        (_, Type::Int4) if is_object_number(from) => Ok(i64::from(number as u32 as i32)),
        (_, Type::Int4) => i32::try_from(number).map(i64::from).map_err(|_| Error::out_of_range("integer")),
        (Type::Int2 | Type::Int4, _) => Ok(i64::from(number as i32 as u32)),
        _ => u32::try_from(number).map(i64::from).map_err(|_| Error::out_of_range("OID")),
    }
}

fn is_object_number(ty: Type) -> bool {
    matches!(ty, Type::Oid | Type::Xid | Type::Regproc | Type::Regclass | Type::Regtype | Type::Regnamespace)
}

/// Rounds half to even.
fn float_to_integer(number: f64, to: Type) -> Result<i64> {
    let rounded = number.round_ties_even();
    // The bounds are powers of two, so both are exact; the upper one is out of range.
    let bound = match to {
        Type::Int2 => 2_f64.powi(15),
        Type::Int4 => 2_f64.powi(31),
        _ => 2_f64.powi(63),
    };
    if rounded >= -bound && rounded < bound {
        Ok(rounded as i64)
    } else {
        Err(Error::out_of_range(to.name()))
    }
}

/// To single precision.
fn narrow(number: f64) -> Result<f64> {
    let narrow = number as f32;
    if narrow.is_infinite() && number.is_finite() {
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
    }
    if narrow == 0.0 && number != 0.0 {
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow"));
    }
    Ok(f64::from(narrow))
}

fn from_numeric(number: Numeric, from: Type, to: Type) -> Result<Value> {
    Ok(match to {
        Type::Int2 => Value::Int(i64::from(number.to_i16()?)),
        Type::Int4 => Value::Int(i64::from(number.to_i32()?)),
        Type::Int8 => Value::Int(number.to_i64()?),
        Type::Float4 => Value::Float(f64::from(number.to_f32()?)),
        Type::Float8 => Value::Float(number.to_f64()?),
        Type::Numeric => Value::Numeric(number),
        _ => return Err(cannot_cast(from, to)),
    })
}

/// Element by element.
fn cast_array(
    array: &Array,
    from: Type,
    to: Type,
    modifier: Modifier,
    explicit: bool,
    style: &TextStyle,
) -> Result<Value> {
    let element = to.element().ok_or_else(|| cannot_cast(from, to))?;
    let values = array
        .values
        .iter()
        .map(|value| cast(value.clone(), array.element, element, modifier, explicit, style))
        .collect::<Result<Vec<_>>>()?;
    Ok(Value::Array(Arc::new(Array { element, values, lower: array.lower })))
}

/// Fits a value of type `ty` to a modifier: length, precision and scale, digits of a second. `explicit` as in [`cast`].
pub fn fit(value: Value, ty: Type, modifier: Modifier, explicit: bool) -> Result<Value> {
    Ok(match value {
        Value::Numeric(number) => Value::Numeric(number.fit(modifier)?),
        Value::Text(text) if ty == Type::Varchar && modifier >= 4 => {
            Value::Text(fit_text(text, (modifier - 4) as usize, explicit, ty)?)
        }
        Value::Padded(text) if modifier >= 4 => {
            let length = (modifier - 4) as usize;
            let mut text = fit_text(text, length, explicit, ty)?;
            let missing = length.saturating_sub(characters(&text));
            text.reserve(missing);
            text.extend(std::iter::repeat_n(' ', missing));
            Value::Padded(text)
        }
        Value::Int(timestamp) if matches!(ty, Type::Timestamp | Type::TimestampTz) => {
            Value::Int(datetime::fit_timestamp(timestamp, modifier))
        }
        Value::Array(array) => {
            let values = array
                .values
                .iter()
                .map(|value| fit(value.clone(), array.element, modifier, explicit))
                .collect::<Result<Vec<_>>>()?;
            Value::Array(Arc::new(Array { element: array.element, values, lower: array.lower }))
        }
        other => other,
    })
}

fn characters(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// Cuts text to so many characters; unless explicitly, only blanks may be lost.
fn fit_text(mut text: CompactString, length: usize, explicit: bool, ty: Type) -> Result<CompactString> {
    // A character has one byte at least.
    if text.len() <= length {
        return Ok(text);
    }
    let Some((end, _)) = text.char_indices().nth(length) else { return Ok(text) };
    if !explicit && !unpadded(&text[end..]).is_empty() {
        let message = format!("value too long for type {}({length})", ty.name());
        return Err(Error::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, message));
    }
    text.truncate(end);
    Ok(text)
}

#[cfg(test)]
mod tests;
