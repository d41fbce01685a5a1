//! Conditions on the first columns of a key as a range of keys.

use super::key::{KeyColumn, Place, successor};
use crate::types::Value;
use crate::{Error, Result};

/// Keys from `lower` on, below `upper` (to the end where there is none).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Range {
    /// The least key that may be in it.
    pub lower: Vec<u8>,
    /// The least key that is above it.
    pub upper: Option<Vec<u8>>,
}

/// A bound of the values of the next columns, compared as a row, and whether it is included. These columns go in one direction.
pub type ValueBound<'v> = Option<(&'v [Value], bool)>;

/// What is demanded of the columns behind those that are given: of the first of them, where it does not say otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Next<'v> {
    /// Not below this.
    pub lower: ValueBound<'v>,
    /// Not above this.
    pub upper: ValueBound<'v>,
    /// NULL.
    pub is_null: bool,
    /// Not NULL; bounds imply it.
    pub not_null: bool,
}

/// Appends the bytes of `values`, the first columns of a key, to `out`; false when no key has them: one is NULL, or beyond what its
/// column can hold.
pub fn encode_equal<'v>(
    columns: &[KeyColumn],
    values: impl IntoIterator<Item = &'v Value>,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let mut columns = columns.iter();
    for value in values {
        let column = columns.next().ok_or_else(|| Error::internal("more values than the key has columns"))?;
        if value.is_null() || column.place(value, out)? != Place::At {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The keys whose first columns are `equal` and whose next one is as `next` demands; `None` when there can be none.
pub fn key_range<'v>(
    columns: &[KeyColumn],
    equal: impl ExactSizeIterator<Item = &'v Value>,
    next: &Next<'_>,
) -> Result<Option<Range>> {
    let given = equal.len();
    let mut prefix = Vec::with_capacity(32);
    if !encode_equal(columns, equal, &mut prefix)? {
        return Ok(None);
    }
    let bounded = next.lower.is_some() || next.upper.is_some();
    let range = if bounded || next.is_null || next.not_null {
        let columns = columns.get(given..).filter(|columns| !columns.is_empty());
        let columns = columns.ok_or_else(|| Error::internal("a bound behind the key's last column"))?;
        match next_range(columns, &prefix, next, bounded)? {
            Some(range) => range,
            None => return Ok(None),
        }
    } else {
        within(prefix)
    };
    Ok(Some(range).filter(|range| range.upper.as_ref().is_none_or(|upper| range.lower < *upper)))
}

/// All keys that begin with `prefix`.
fn within(prefix: Vec<u8>) -> Range {
    let upper = behind(prefix.clone());
    Range { lower: prefix, upper }
}

/// The least key behind all that begin with `prefix`.
fn behind(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    successor(&mut prefix).then_some(prefix)
}

fn next_range(columns: &[KeyColumn], prefix: &[u8], next: &Next<'_>, bounded: bool) -> Result<Option<Range>> {
    let column = &columns[0];
    if next.is_null {
        if bounded || next.not_null || !column.nullable {
            return Ok(None);
        }
        let mut key = prefix.to_vec();
        column.encode_null(&mut key)?;
        return Ok(Some(within(key)));
    }
    let mut present = prefix.to_vec();
    column.encode_present(&mut present);
    let mut range = within(present);
    for (bound, is_lower) in [(next.lower, true), (next.upper, false)] {
        let Some((values, included)) = bound else { continue };
        let mut key = prefix.to_vec();
        let Some(inside) = place_row(columns, values, (is_lower, included), &mut key)? else {
            return Ok(None);
        };
        // In a descending column the largest values come first.
        if is_lower != column.descending {
            if !inside {
                match behind(key) {
                    Some(above) => key = above,
                    None => return Ok(None),
                }
            }
            range.lower = key;
        } else {
            range.upper = if inside { behind(key) } else { Some(key) };
        }
    }
    Ok(Some(range))
}

/// Appends the values of a bound, as many as matter, and says whether keys that begin with them are within it; `None` when no key is.
fn place_row(
    columns: &[KeyColumn],
    values: &[Value],
    (is_lower, included): (bool, bool),
    key: &mut Vec<u8>,
) -> Result<Option<bool>> {
    for (number, value) in values.iter().enumerate() {
        let column = columns
            .get(number)
            .filter(|column| column.descending == columns[0].descending)
            .ok_or_else(|| Error::internal("a bound of a row that the key does not have so"))?;
        if value.is_null() {
            // Of rows that are equal so far it is not known: these are out, whether or not the bound is included.
            return Ok((number > 0).then_some(false));
        }
        match column.place(value, key)? {
            Place::At => {}
            // No key has this value, so what comes behind it does not matter.
            Place::Below => return Ok(Some(is_lower)),
            Place::Above => return Ok(Some(!is_lower)),
        }
    }
    Ok(Some(included))
}
