//! What is sorted by, how rows are laid out for it, and the order of rows so laid out.

use crate::codec::row::{Field, StoredRow};
use crate::exec::keys::Shapes;
use crate::exec::spill::{Fields, ROW_HEADER, Raw, encode, encode_field, field_room, unpadded};
use crate::exec::{Context, LARGE_BYTES};
use crate::physical::{Expr, OrderBy};
use crate::types::Value;
use crate::{Error, Result, SqlState};
use std::cmp::Ordering;

/// What is sorted by, and how rows are laid out for it.
#[derive(Debug)]
pub(in crate::exec) struct SortOrder {
    keys: Vec<Key>,
    /// The columns stored behind the keys.
    rest: Vec<usize>,
    /// Of each stored value the column of the row that it is, if any.
    columns: Vec<Option<usize>>,
    /// The same, where all of them are columns.
    places: Option<Vec<usize>>,
}

#[derive(Debug)]
struct Key {
    expr: Expr,
    descending: bool,
    nulls_first: bool,
}

impl SortOrder {
    /// For rows of `width` values.
    pub(in crate::exec) fn new(order: &[OrderBy], width: usize) -> Self {
        let mut keys: Vec<Key> = Vec::new();
        let mut columns: Vec<Option<usize>> = Vec::new();
        for by in order {
            let column = match &by.expr {
                // What stands there already, or is the same for all rows, decides nothing.
                Expr::Column(column) if columns.contains(&Some(*column)) => continue,
                Expr::Literal(_) | Expr::Parameter(_) => continue,
                Expr::Column(column) => Some(*column),
                _ => None,
            };
            let &OrderBy { descending, nulls_first, .. } = by;
            keys.push(Key { expr: by.expr.clone(), descending, nulls_first });
            columns.push(column);
        }
        let rest: Vec<usize> = (0..width).filter(|&column| !columns.contains(&Some(column))).collect();
        columns.extend(rest.iter().copied().map(Some));
        let places = columns.iter().copied().collect();
        SortOrder { keys, rest, columns, places }
    }

    /// Whether rows do as they are stored, see [`SortOrder::encode_stored`].
    pub(super) fn takes_stored(&self) -> bool {
        self.places.is_some()
    }

    /// Bytes that a stored row takes encoded, or a few more.
    pub(super) fn stored_room(&self, row: &StoredRow<'_>) -> Result<usize> {
        let mut room = ROW_HEADER;
        for place in self.places.iter().flatten() {
            room += field_room(&row.field(*place)?);
        }
        Ok(room)
    }

    /// Encodes a row as it is stored; false where that takes more than `most` bytes.
    #[inline]
    pub(super) fn encode_stored(
        &self,
        row: &StoredRow<'_>,
        shapes: &mut Shapes,
        most: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        out.clear();
        out.extend_from_slice(&[0; ROW_HEADER]);
        for (index, place) in self.places.iter().flatten().enumerate() {
            let field = row.field(*place)?;
            // What is short as it is stored may be long as a value: blanks and zeros are left out, and a column's default does not stand there.
            let may_be_long = matches!(field, Field::Padded(..) | Field::Numeric(_) | Field::Value(_));
            if may_be_long && out.len() + field_room(&field) > most {
                return Ok(false);
            }
            if let Field::Value(value) = &field
                && index < self.keys.len()
            {
                shapes.admit(index, value)?;
            }
            encode_field(&field, out);
        }
        end_row(out)?;
        Ok(out.len() <= most)
    }

    /// Encodes a row. Long ones are charged by whoever has it encoded.
    pub(super) fn encode(
        &self,
        row: &[Value],
        context: &Context<'_>,
        shapes: &mut Shapes,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.clear();
        out.extend_from_slice(&[0; ROW_HEADER]);
        for (index, key) in self.keys.iter().enumerate() {
            let value = key.expr.eval(row, context)?;
            shapes.admit(index, &value)?;
            encode(&value, out);
        }
        for &column in &self.rest {
            encode(&row[column], out);
        }
        end_row(out)
    }

    /// Puts the columns of an encoded row into their places.
    #[inline]
    pub(super) fn decode(&self, row: &[u8], out: &mut [Value]) -> Result<()> {
        Fields(&row[ROW_HEADER..]).put(self.columns.iter().copied(), out)
    }

    /// The order of two encoded rows.
    pub(super) fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        self.compare_fields(left, right).unwrap_or(Ordering::Equal)
    }

    fn compare_fields(&self, left: &[u8], right: &[u8]) -> Result<Ordering> {
        let (mut left, mut right) = (Fields(&left[ROW_HEADER..]), Fields(&right[ROW_HEADER..]));
        for key in &self.keys {
            let order = key.compare(&left.raw()?, &right.raw()?);
            if order != Ordering::Equal {
                return Ok(order);
            }
        }
        Ok(Ordering::Equal)
    }

    /// The keys of a row, for rows to be [compared](SortOrder::compare) with; none where they are long, which somebody would have to charge.
    pub(super) fn cutoff(&self, row: &[u8]) -> Option<Vec<u8>> {
        let mut rest = Fields(&row[ROW_HEADER..]);
        self.keys.iter().try_for_each(|_| rest.raw().map(|_| ())).ok()?;
        let keys = &row[..row.len() - rest.0.len()];
        (keys.len() <= LARGE_BYTES).then(|| keys.to_vec())
    }

    /// A number that is less only where the row is less, and whether it alone tells rows apart.
    pub(super) fn prefix(&self, row: &[u8]) -> (u64, bool) {
        let Some(key) = self.keys.first() else { return (0, true) };
        match Fields(&row[ROW_HEADER..]).raw() {
            Ok(raw) => {
                let (prefix, exact) = key.prefix(&raw);
                (prefix, exact && self.keys.len() == 1)
            }
            Err(_) => (0, false),
        }
    }
}

/// Puts its length before a row.
#[inline]
fn end_row(out: &mut [u8]) -> Result<()> {
    let Ok(len) = u32::try_from(out.len() - ROW_HEADER) else {
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row is larger than 4 GiB"));
    };
    out[..ROW_HEADER].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

impl Key {
    fn compare(&self, left: &Raw<'_>, right: &Raw<'_>) -> Ordering {
        match (left.is_null(), right.is_null()) {
            (false, false) if self.descending => right.total_cmp(left),
            (false, false) => left.total_cmp(right),
            (true, true) => Ordering::Equal,
            (true, false) if self.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if self.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
        }
    }

    fn prefix(&self, raw: &Raw<'_>) -> (u64, bool) {
        let (ascending, exact) = match raw {
            Raw::Other(Value::Null) => return (if self.nulls_first { 0 } else { u64::MAX }, true),
            Raw::Int(value) => (*value as u64 ^ 1 << 63, true),
            Raw::Text(bytes) | Raw::Bytes(bytes) => (leading(bytes), false),
            Raw::Padded(bytes) => (leading(unpadded(bytes)), false),
            Raw::Other(Value::Bool(value)) => (1 + u64::from(*value), true),
            Raw::Other(Value::Float(value)) => (float_order(*value), false),
            Raw::Other(Value::Numeric(value)) => (float_order(value.to_f64_lossy()), false),
            Raw::Other(_) => (1 << 63, false),
        };
        let directed = if self.descending { !ascending } else { ascending };
        // The ends are for NULLs.
        let inner = directed.clamp(1, u64::MAX - 1);
        (inner, exact && inner == directed)
    }
}

/// The first bytes, as a number that orders like them.
fn leading(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(word)
}

/// A number that orders like the float, all NaN behind everything.
fn float_order(value: f64) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::spill::encode_row;

    #[test]
    fn of_the_last_row_wanted_its_keys_are_kept_and_no_long_ones() {
        let key = |column| OrderBy { expr: Expr::Column(column), descending: false, nulls_first: false };
        let order = SortOrder::new(&[key(0), key(1)], 3);
        let row = |len: usize, rest: usize| {
            let mut row = Vec::new();
            let texts = [Value::text("x".repeat(len)), Value::text("y".repeat(rest))];
            encode_row([&Value::Int(1), &texts[0], &texts[1]], &mut row).unwrap();
            row
        };
        let kept = order.cutoff(&row(10, 1 << 20)).unwrap();
        assert!(kept.len() < 30, "{}", kept.len());
        assert_eq!(order.compare(&row(10, 5), &kept), Ordering::Equal);
        assert_eq!(order.compare(&row(11, 5), &kept), Ordering::Greater);
        assert_eq!(order.cutoff(&row(1 << 20, 1)), None);
    }
}
