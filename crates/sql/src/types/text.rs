//! Text representation of every type, both ways.
use super::datetime::Zone;
use super::{Modifier, Type, Value};
use crate::catalog::Catalog;
use crate::{Error, Result};
use std::sync::Arc;

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
    let _ = (text, modifier, style);
    Err(Error::unsupported(ty.name()))
}

/// Appends the text of a value that is not NULL.
pub fn write(value: &Value, ty: Type, style: &TextStyle, out: &mut String) {
    let _ = (value, ty, style, out);
}
