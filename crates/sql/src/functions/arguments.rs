//! Taking values apart: a variant that the argument's type does not have is an internal error.

use crate::types::{Array, Numeric, Value};
use crate::{Error, Result};

#[cold]
fn wrong(wanted: &str, index: usize) -> Error {
    Error::internal(format!("argument {} of a function is no {wanted}", index + 1))
}

/// A whole number, date or time.
#[inline]
pub(super) fn int(arguments: &[Value], index: usize) -> Result<i64> {
    match arguments.get(index) {
        Some(Value::Int(value)) => Ok(*value),
        _ => Err(wrong("whole number", index)),
    }
}

/// A whole number that is there, or what stands for one that is not.
pub(super) fn int_or(arguments: &[Value], index: usize, default: i64) -> Result<i64> {
    if index < arguments.len() { int(arguments, index) } else { Ok(default) }
}

/// A number of real or double precision.
#[inline]
pub(super) fn float(arguments: &[Value], index: usize) -> Result<f64> {
    match arguments.get(index) {
        Some(Value::Float(value)) => Ok(*value),
        _ => Err(wrong("floating-point number", index)),
    }
}

/// An exact number.
#[inline]
pub(super) fn numeric(arguments: &[Value], index: usize) -> Result<&Numeric> {
    match arguments.get(index) {
        Some(Value::Numeric(value)) => Ok(value),
        _ => Err(wrong("exact number", index)),
    }
}

/// A truth value.
pub(super) fn boolean(arguments: &[Value], index: usize) -> Result<bool> {
    match arguments.get(index) {
        Some(Value::Bool(value)) => Ok(*value),
        _ => Err(wrong("truth value", index)),
    }
}

/// A string.
#[inline]
pub(super) fn text(arguments: &[Value], index: usize) -> Result<&str> {
    match arguments.get(index) {
        Some(Value::Text(value) | Value::Padded(value)) => Ok(value),
        _ => Err(wrong("string", index)),
    }
}

/// A string that is there, or what stands for one that is not.
pub(super) fn text_or<'a>(arguments: &'a [Value], index: usize, default: &'a str) -> Result<&'a str> {
    if index < arguments.len() { text(arguments, index) } else { Ok(default) }
}

/// Bytes.
#[inline]
pub(super) fn bytes(arguments: &[Value], index: usize) -> Result<&[u8]> {
    match arguments.get(index) {
        Some(Value::Bytes(value)) => Ok(value),
        _ => Err(wrong("bytea", index)),
    }
}

/// An array.
pub(super) fn array(arguments: &[Value], index: usize) -> Result<&Array> {
    match arguments.get(index) {
        Some(Value::Array(value)) => Ok(value),
        _ => Err(wrong("array", index)),
    }
}

/// Whether an argument is given and not NULL.
pub(super) fn present(arguments: &[Value], index: usize) -> bool {
    arguments.get(index).is_some_and(|value| !value.is_null())
}
