//! PostgreSQL's binary representation, both ways.
use super::{Modifier, Type, Value};
use crate::{Error, Result};

/// Reads a value of `ty` sent in binary.
pub fn read(bytes: &[u8], ty: Type, modifier: Modifier) -> Result<Value> {
    let _ = (bytes, modifier);
    Err(Error::unsupported(ty.name()))
}

/// Appends the binary representation of a value that is not NULL.
pub fn write(value: &Value, ty: Type, out: &mut Vec<u8>) {
    let _ = (value, ty, out);
}
