//! Text representation of every type, both ways, as PostgreSQL 15 reads and writes it.
//!
//! | module | job |
//! |---|---|
//! | `scalars` | boolean, integers, floats, bytea |
//! | `composite` | arrays, vectors, records |
//! | `names` | names of types and relations; quoting |
//! | `size` | how long a text will be |

mod composite;
mod names;
mod scalars;
mod size;

#[cfg(test)]
mod tests;

pub use names::{quote_identifier, relation_name, relation_number, split_name, type_named};
pub use scalars::{read_bool, read_hex, write_float4, write_float8};
pub use size::{TextSize, text_size};

use super::datetime::{self, Zone};
use super::{Modifier, Numeric, Type, Value, cast};
use crate::catalog::Catalog;
use crate::{Error, Result, SqlState};
use compact_str::CompactString;
use std::sync::Arc;

/// Longest identifier, in bytes.
pub const MAX_NAME: usize = 63;

/// What the text of a value depends on, by session settings.
#[derive(Clone, Debug)]
pub struct TextStyle {
    /// `TimeZone`.
    pub zone: Zone,
    /// `DateStyle`'s order of day, month and year for input; output is ISO.
    pub date_order: DateOrder,
    /// `bytea_output = hex`; else escape.
    pub bytea_hex: bool,
    /// `extra_float_digits`: above 0 the shortest text that reads back the same.
    pub extra_float_digits: i32,
    /// Microseconds since 2000-01-01 UTC at the start of the transaction: what 'now', 'today' mean in input.
    pub now: i64,
    /// Names for regclass, regtype and their kin; without it they are numbers.
    pub catalog: Option<Arc<Catalog>>,
}

/// Order of the parts of an ambiguous date.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DateOrder {
    /// Month, day, year.
    Mdy,
    /// Day, month, year.
    Dmy,
    /// Year, month, day.
    Ymd,
}

impl Default for TextStyle {
    fn default() -> Self {
        TextStyle {
            zone: Zone::utc(),
            date_order: DateOrder::Mdy,
            bytea_hex: true,
            extra_float_digits: 1,
            now: 0,
            catalog: None,
        }
    }
}

/// Reads a value of `ty`, and fits it to the modifier as an assignment does (varchar too long: 22001).
pub fn read(text: &str, ty: Type, modifier: Modifier, style: &TextStyle) -> Result<Value> {
    let value = match ty {
        Type::Bool => Value::Bool(read_bool(text)?),
        Type::Int2 => Value::Int(scalars::read_integer(text, Type::Int2)?),
        Type::Int4 => Value::Int(scalars::read_integer(text, Type::Int4)?),
        Type::Int8 => Value::Int(scalars::read_integer(text, Type::Int8)?),
        Type::Float4 => Value::Float(scalars::read_float4(text)?),
        Type::Float8 => Value::Float(scalars::read_float8(text)?),
        Type::Numeric => Value::Numeric(Numeric::parse(text)?),
        Type::Text | Type::Varchar | Type::Unknown | Type::NodeTree => {
            check_text(text)?;
            Value::text(text)
        }
        Type::Bpchar => {
            check_text(text)?;
            Value::Padded(CompactString::new(text))
        }
        Type::Name => {
            check_text(text)?;
            Value::text(cut_name(text))
        }
        Type::Char => Value::Text(char_text(char_byte(text))),
        Type::Bytea => Value::Bytes(scalars::read_bytes(text)?),
        Type::Date => Value::Int(datetime::read_date(text, style)?),
        Type::Timestamp => Value::Int(datetime::read_timestamp(text, style)?),
        Type::TimestampTz => Value::Int(datetime::read_timestamptz(text, style)?),
        Type::Oid | Type::Xid => Value::Int(scalars::read_oid(text, ty)?),
        Type::Regclass | Type::Regtype | Type::Regproc | Type::Regnamespace => {
            Value::Int(i64::from(names::read(text, ty, style)?))
        }
        Type::Int2Vector | Type::OidVector => composite::read_vector(text, ty)?,
        Type::Record => {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "input of anonymous composite types is not implemented",
            ));
        }
        Type::Void => Value::text(""),
        Type::BoolArray
        | Type::ByteaArray
        | Type::CharArray
        | Type::NameArray
        | Type::Int2Array
        | Type::Int4Array
        | Type::TextArray
        | Type::BpcharArray
        | Type::VarcharArray
        | Type::Int8Array
        | Type::Float4Array
        | Type::Float8Array
        | Type::OidArray
        | Type::TimestampArray
        | Type::DateArray
        | Type::TimestampTzArray
        | Type::NumericArray => return composite::read_array(text, ty, modifier, style),
    };
    if modifier < 0 { Ok(value) } else { cast::fit(value, ty, modifier, false) }
}

/// Appends the text of a value that is not NULL.
pub fn write(value: &Value, ty: Type, style: &TextStyle, out: &mut String) {
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push(if *value { 't' } else { 'f' }),
        Value::Int(value) => write_whole(*value, ty, style, out),
        Value::Float(value) if ty == Type::Float4 => {
            write_float4(*value as f32, style.extra_float_digits, out);
        }
        Value::Float(value) => write_float8(*value, style.extra_float_digits, out),
        Value::Numeric(value) => value.write(out),
        Value::Text(value) | Value::Padded(value) => out.push_str(value),
        Value::Bytes(bytes) => scalars::write_bytes(bytes, style.bytea_hex, out),
        Value::Array(array) => match ty {
            Type::Int2Vector | Type::OidVector => composite::write_vector(array, out),
            _ => composite::write_array(array, style, out),
        },
        Value::Record(record) => composite::write_record(record, style, out),
    }
}

/// Appends what is stored as a whole number: a number, a date, a time, or the number of something that has a name.
pub fn write_whole(value: i64, ty: Type, style: &TextStyle, out: &mut String) {
    match ty {
        Type::Date => datetime::write_date(value, out),
        Type::Timestamp => datetime::write_timestamp(value, out),
        Type::TimestampTz => datetime::write_timestamptz(value, &style.zone, out),
        Type::Regclass | Type::Regtype | Type::Regproc | Type::Regnamespace => {
            names::write(value, ty, style, out);
        }
        _ => scalars::write_integer(value, out),
    }
}

/// The text of a value that is not NULL.
pub fn to_text(value: &Value, ty: Type, style: &TextStyle) -> CompactString {
    match value {
        Value::Text(text) | Value::Padded(text) => text.clone(),
        _ => {
            let mut out = String::new();
            write(value, ty, style, &mut out);
            CompactString::from(out)
        }
    }
}

/// Text may have every character but the one numbered 0: 22021.
pub fn check_text(text: &str) -> Result<()> {
    if text.as_bytes().contains(&0) {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        return Err(Error::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message));
    }
    Ok(())
}

/// Bytes as text: 22021 with the first bytes that are none.
pub fn check_utf8(bytes: &[u8]) -> Result<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            check_text(text)?;
            Ok(text)
        }
        Err(error) => {
            let rest = &bytes[error.valid_up_to()..];
            // As many bytes as the first one announces.
            let length = match rest[0] {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                _ => 1,
            };
            let shown: Vec<String> = rest.iter().take(length).map(|byte| format!("0x{byte:02x}")).collect();
            let message = format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" "));
            Err(Error::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message))
        }
    }
}

/// An identifier of at most 63 bytes, cut between characters.
pub fn cut_name(text: &str) -> &str {
    if text.len() <= MAX_NAME {
        return text;
    }
    let mut end = MAX_NAME;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The byte that a text of type "char" stands for: `\\303` is one in octal, otherwise it is the first one; 0 if there is none.
pub fn char_byte(text: &str) -> u8 {
    match text.as_bytes() {
        [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7'] => {
            (a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')
        }
        bytes => bytes.first().copied().unwrap_or(0),
    }
}

/// The text of type "char" for a byte: itself, or octal where it is no character.
pub fn char_text(byte: u8) -> CompactString {
    match byte {
        0 => CompactString::default(),
        1..=127 => CompactString::new(char::from(byte).encode_utf8(&mut [0; 4])),
        128.. => CompactString::from(format!("\\{byte:03o}")),
    }
}

/// White space as C's `isspace` has it.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn trim_space(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii() && is_space(c as u8))
}
