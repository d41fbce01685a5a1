//! PostgreSQL's binary representation, both ways: what the wire protocol calls format 1. Numbers are big-endian.

use super::numeric::{Base10000, MAX_SCALE, Sign};
use super::text::{self, check_utf8};
use super::{Array, Modifier, Numeric, Record, Type, Value, cast};
use crate::{Error, Result, SqlState};
use compact_str::CompactString;
use std::sync::Arc;

const NUMERIC_NAN: u16 = 0xc000;
const NUMERIC_INFINITY: u16 = 0xd000;
const NUMERIC_NEG_INFINITY: u16 = 0xf000;
const NUMERIC_NEGATIVE: u16 = 0x4000;

/// Reads a value of `ty` sent in binary. Errors: 22P03 for what is malformed, 22021 for text that is no UTF-8.
pub fn read(bytes: &[u8], ty: Type, modifier: Modifier) -> Result<Value> {
    let mut reader = Reader { bytes };
    let value = match ty {
        Type::Bool => Value::Bool(reader.take::<1>()?[0] != 0),
        Type::Int2 => Value::Int(i64::from(reader.i16()?)),
        Type::Int4 => Value::Int(i64::from(reader.i32()?)),
        Type::Int8 => Value::Int(reader.i64()?),
        Type::Oid | Type::Xid | Type::Regproc | Type::Regclass | Type::Regtype | Type::Regnamespace => {
            Value::Int(i64::from(reader.i32()? as u32))
        }
        Type::Float4 => Value::Float(f64::from(f32::from_be_bytes(reader.take()?))),
        Type::Float8 => Value::Float(f64::from_be_bytes(reader.take()?)),
        Type::Date => Value::Int(read_date(reader.i32()?)?),
        Type::Timestamp | Type::TimestampTz => Value::Int(read_timestamp(reader.i64()?)?),
        Type::Numeric => Value::Numeric(reader.numeric()?),
        Type::Text | Type::Varchar | Type::Unknown => Value::text(check_utf8(reader.rest())?),
        Type::Bpchar => Value::Padded(CompactString::new(check_utf8(reader.rest())?)),
        Type::Name => {
            let name = check_utf8(reader.rest())?;
            if name.len() > text::MAX_NAME {
                let error = Error::new(SqlState::NAME_TOO_LONG, "identifier too long");
                return Err(
                    error.detail(format!("Identifier must be less than {} characters.", text::MAX_NAME + 1))
                );
            }
            Value::text(name)
        }
        Type::Char => {
            let [byte] = reader.take()?;
            Value::Text(text::char_text(byte))
        }
        Type::Bytea => Value::Bytes(reader.rest().into()),
        Type::Void => Value::text(""),
        Type::NodeTree => return Err(Error::unsupported("binary input of type pg_node_tree")),
        Type::Record => {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "input of anonymous composite types is not implemented",
            ));
        }
        _ => return read_array(&mut reader, ty, modifier),
    };
    if !reader.bytes.is_empty() {
        return Err(malformed("incorrect binary data format"));
    }
    if modifier < 0 { Ok(value) } else { cast::fit(value, ty, modifier, false) }
}

fn malformed(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(SqlState::INVALID_BINARY_REPRESENTATION, message)
}

fn read_date(days: i32) -> Result<i64> {
    let days = i64::from(days);
    if super::datetime::is_infinite_date(days) { Ok(days) } else { super::datetime::check_date(Some(days)) }
}

fn read_timestamp(micros: i64) -> Result<i64> {
    if super::datetime::is_infinite_timestamp(micros) {
        Ok(micros)
    } else {
        super::datetime::check_timestamp(Some(micros))
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self
            .bytes
            .split_first_chunk::<N>()
            .ok_or_else(|| Error::new(SqlState::PROTOCOL_VIOLATION, "insufficient data left in message"))?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn i16(&mut self) -> Result<i16> {
        self.take().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64> {
        self.take().map(i64::from_be_bytes)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(length)
            .ok_or_else(|| Error::new(SqlState::PROTOCOL_VIOLATION, "insufficient data left in message"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn numeric(&mut self) -> Result<Numeric> {
        let count = self.take().map(u16::from_be_bytes)?;
        let weight = self.i16()?;
        let sign = match self.take().map(u16::from_be_bytes)? {
            0 => Sign::Positive,
            NUMERIC_NEGATIVE => Sign::Negative,
            NUMERIC_NAN => Sign::NaN,
            NUMERIC_INFINITY => Sign::Infinity,
            NUMERIC_NEG_INFINITY => Sign::NegInfinity,
            _ => return Err(malformed("invalid sign in external \"numeric\" value")),
        };
        let scale = self.take().map(u16::from_be_bytes)?;
        if scale > MAX_SCALE {
            return Err(malformed("invalid scale in external \"numeric\" value"));
        }
        let digits = self.slice(usize::from(count) * 2)?;
        let digits = digits
            .chunks_exact(2)
            .map(|digit| u16::from_be_bytes([digit[0], digit[1]]))
            .map(|digit| {
                if digit < 10_000 {
                    Ok(digit)
                } else {
                    Err(malformed("invalid digit in external \"numeric\" value"))
                }
            })
            .collect::<Result<Vec<_>>>()?;
        Numeric::from_base_10000(&Base10000 { sign, weight, scale, digits })
    }
}

fn read_array(reader: &mut Reader<'_>, ty: Type, modifier: Modifier) -> Result<Value> {
    let element = ty.element().ok_or_else(|| Error::internal("a type without a binary form"))?;
    let vector = matches!(ty, Type::Int2Vector | Type::OidVector);
    let dimensions = reader.i32()?;
    let _has_nulls = reader.i32()?;
    let sent = reader.i32()? as u32;
    if sent != element.oid() {
        let name = Type::from_oid(sent).map_or_else(|| sent.to_string(), |ty| ty.name().to_owned());
        return Err(Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "binary data has array element type {sent} ({name}) instead of expected {} ({})",
                element.oid(),
                element.name()
            ),
        ));
    }
    let (length, lower) = match dimensions {
        0 => (0, i32::from(!vector)),
        1 => (reader.i32()?, reader.i32()?),
        2.. => return Err(Error::unsupported("an array of more than one dimension")),
        _ => return Err(malformed(format!("invalid number of dimensions: {dimensions}"))),
    };
    let Ok(length) = usize::try_from(length) else {
        return Err(malformed(format!("invalid array size: {length}")));
    };
    let bad_vector = || malformed(format!("invalid {} data", ty.name()));
    // Its text has no place for bounds.
    if vector && (dimensions, lower) != (1, 0) {
        return Err(bad_vector());
    }
    // Every element has at least its length: what is announced is not trusted with memory.
    let mut values = Vec::with_capacity(length.min(reader.bytes.len() / 4));
    for _ in 0..length {
        values.push(match reader.i32()? {
            -1 if vector => return Err(bad_vector()),
            -1 => Value::Null,
            bytes => {
                let bytes =
                    usize::try_from(bytes).map_err(|_| malformed("insufficient data left in message"))?;
                read(reader.slice(bytes)?, element, modifier)?
            }
        });
    }
    if !reader.bytes.is_empty() {
        return Err(malformed("incorrect binary data format"));
    }
    Array::check_bounds(lower, length)?;
    Ok(Value::Array(Arc::new(Array { element, values, lower })))
}

/// Appends the binary representation of a value that is not NULL.
pub fn write(value: &Value, ty: Type, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Int(value) => match ty.len() {
            2 => out.extend_from_slice(&(*value as i16).to_be_bytes()),
            // Of unsigned numbers the same bits.
            4 => out.extend_from_slice(&(*value as i32).to_be_bytes()),
            _ => out.extend_from_slice(&value.to_be_bytes()),
        },
        Value::Float(value) => match ty {
            Type::Float4 => out.extend_from_slice(&(*value as f32).to_be_bytes()),
            _ => out.extend_from_slice(&value.to_be_bytes()),
        },
        Value::Numeric(value) => write_numeric(value, out),
        Value::Text(text) if ty == Type::Char => out.push(text::char_byte(text)),
        Value::Text(text) | Value::Padded(text) => out.extend_from_slice(text.as_bytes()),
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Array(array) => write_array(array, ty, out),
        Value::Record(record) => write_record(record, out),
    }
}

fn write_numeric(number: &Numeric, out: &mut Vec<u8>) {
    let number = number.to_base_10000();
    let sign = match number.sign {
        Sign::Positive => 0,
        Sign::Negative => NUMERIC_NEGATIVE,
        Sign::NaN => NUMERIC_NAN,
        Sign::Infinity => NUMERIC_INFINITY,
        Sign::NegInfinity => NUMERIC_NEG_INFINITY,
    };
    // PostgreSQL's infinities have a scale, which nobody looks at.
    let infinite = matches!(number.sign, Sign::Infinity | Sign::NegInfinity);
    let scale = if infinite { 32 } else { number.scale };
    out.extend_from_slice(&(number.digits.len() as u16).to_be_bytes());
    out.extend_from_slice(&number.weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&scale.to_be_bytes());
    for digit in number.digits {
        out.extend_from_slice(&digit.to_be_bytes());
    }
}

fn write_array(array: &Array, ty: Type, out: &mut Vec<u8>) {
    let vector = matches!(ty, Type::Int2Vector | Type::OidVector);
    let mut int = |value: i32| out.extend_from_slice(&value.to_be_bytes());
    // A vector has a dimension even when it is empty.
    let dimensions = i32::from(vector || !array.values.is_empty());
    int(dimensions);
    int(i32::from(array.values.iter().any(Value::is_null)));
    int(array.element.oid() as i32);
    if dimensions == 1 {
        int(array.values.len() as i32);
        int(array.lower);
    }
    for value in &array.values {
        write_with_length(value, array.element, out);
    }
}

/// Length and value; NULL is length -1.
fn write_with_length(value: &Value, ty: Type, out: &mut Vec<u8>) {
    if value.is_null() {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return;
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(value, ty, out);
    let length = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Each field with its type.
fn write_record(record: &Record, out: &mut Vec<u8>) {
    out.extend_from_slice(&(record.values.len() as i32).to_be_bytes());
    for (value, ty) in record.values.iter().zip(&*record.types) {
        out.extend_from_slice(&ty.oid().to_be_bytes());
        write_with_length(value, *ty, out);
    }
}

#[cfg(test)]
mod tests;
