//! Which type converts to which, when, and how.
use super::text::TextStyle;
use super::{Modifier, Type, Value};
use crate::{Error, Result};

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
    let _ = (from, to);
    None
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
    let _ = (value, modifier, explicit, style);
    Err(Error::new(
        crate::SqlState::CANNOT_COERCE,
        format!("cannot cast type {} to {}", from.name(), to.name()),
    ))
}
