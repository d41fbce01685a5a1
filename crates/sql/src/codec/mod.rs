//! How rows and keys become bytes.
//!
//! | module | job |
//! |---|---|
//! | [`key`] | order-preserving keys: bytewise order is the order of the values |
//! | [`range`] | conditions on the first columns of a key become a range of keys |
//! | [`row`] | rows: any column is found without reading those before it |
//! | `numeric` | exact numbers within both |
//!
//! A table's tree maps the key of a row (its primary key, or a row number) to the row. A unique index maps its columns to
//! the row's key; where one of them is NULL, and in an index that is not unique, the row's key is appended to
//! the columns instead, and the value is empty. The layouts stand in `docs/format.md`.
//!
//! # Guarantees
//! 1. Stored bytes are judged before they are believed: whatever they are, reading them gives values or XX001.
//! 2. What is written does not depend on settings, the catalog's other objects or the platform.

pub mod key;
mod numeric;
pub mod range;
pub mod row;

use crate::types::{Modifier, Type};
use crate::{Error, SqlState};

/// Stored bytes that make no sense.
pub(crate) fn corrupted(what: &str) -> Error {
    Error::new(SqlState::DATA_CORRUPTED, format!("stored data is damaged: {what}"))
}

/// How values of a type lie in keys and rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Bool,
    Int2,
    Int4,
    Int8,
    /// Numbers of objects: 4 bytes without sign.
    Oid,
    Float4,
    Float8,
    Numeric,
    Text,
    /// character(n): without the blanks it is padded with, where its type says how many there are.
    Padded,
    Bytes,
}

impl Form {
    /// The form of a type that a column may have.
    fn of(ty: Type) -> Option<Form> {
        Some(match ty {
            Type::Bool => Form::Bool,
            Type::Int2 => Form::Int2,
            Type::Int4 | Type::Date => Form::Int4,
            Type::Int8 | Type::Timestamp | Type::TimestampTz => Form::Int8,
            Type::Oid => Form::Oid,
            Type::Float4 => Form::Float4,
            Type::Float8 => Form::Float8,
            Type::Numeric => Form::Numeric,
            Type::Text | Type::Varchar | Type::Name => Form::Text,
            Type::Bpchar => Form::Padded,
            Type::Bytea => Form::Bytes,
            _ => return None,
        })
    }

    /// Bytes of a value; `None` where they vary.
    fn width(self) -> Option<usize> {
        match self {
            Form::Bool => Some(1),
            Form::Int2 => Some(2),
            Form::Int4 | Form::Oid | Form::Float4 => Some(4),
            Form::Int8 | Form::Float8 => Some(8),
            Form::Numeric | Form::Text | Form::Padded | Form::Bytes => None,
        }
    }

    /// Smallest and largest whole number, of the forms that hold such.
    fn int_range(self) -> Option<(i64, i64)> {
        match self {
            Form::Int2 => Some((i64::from(i16::MIN), i64::from(i16::MAX))),
            Form::Int4 => Some((i64::from(i32::MIN), i64::from(i32::MAX))),
            Form::Int8 => Some((i64::MIN, i64::MAX)),
            Form::Oid => Some((0, i64::from(u32::MAX))),
            _ => None,
        }
    }
}

/// Characters of `character(n)`; `None` where the type has no length.
fn padded_length(modifier: Modifier) -> Option<usize> {
    usize::try_from(modifier).ok()?.checked_sub(4)
}

/// Digits behind the point that every value of `numeric(p, s)` shows; `None` where the type leaves it open.
fn fixed_scale(modifier: Modifier) -> Option<u16> {
    let packed = modifier.checked_sub(4).filter(|packed| *packed >= 0)?;
    // The scale is a signed number of 11 bits; one below 0 rounds before the point and shows nothing behind it.
    let scale = ((packed & 0x7ff) ^ 1024) - 1024;
    Some(u16::try_from(scale).unwrap_or(0))
}

/// A string of type character(n) without the blanks it is padded with.
fn unpadded(text: &str) -> &str {
    text.trim_end_matches(' ')
}
