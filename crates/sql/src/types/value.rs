//! A value, without its type: see [`crate::types`].

use super::{Numeric, Type};
use crate::{Error, Result, SqlState};
use compact_str::CompactString;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A value. Which variant a type uses:
///
/// | types | variant |
/// |---|---|
/// | boolean | `Bool` |
/// | smallint, integer, bigint, oid and its kin | `Int` |
/// | date | `Int`: days since 2000-01-01 |
/// | timestamp, timestamp with time zone | `Int`: microseconds since 2000-01-01 00:00 (UTC) |
/// | real, double precision | `Float` |
/// | numeric | `Numeric` |
/// | text, varchar, name, "char" | `Text` |
/// | character(n) | `Padded`: padded with blanks, which do not count in comparisons |
/// | bytea | `Bytes` |
/// | arrays, int2vector, oidvector | `Array` |
/// | record | `Record` |
///
/// The infinities of date and timestamp are `i32::MIN`/`MAX` and `i64::MIN`/`MAX`, so they order themselves.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// SQL's NULL, of any type.
    #[default]
    Null,
    /// boolean
    Bool(bool),
    /// Whole numbers, dates and times.
    Int(i64),
    /// real and double precision
    Float(f64),
    /// numeric
    Numeric(Numeric),
    /// Strings.
    Text(CompactString),
    /// character(n)
    Padded(CompactString),
    /// bytea
    Bytes(Arc<[u8]>),
    /// Arrays of one dimension.
    Array(Arc<Array>),
    /// A row.
    Record(Arc<Record>),
}

/// A row, which says itself of what types it is.
#[derive(Clone, Debug)]
pub struct Record {
    /// The types of its fields.
    pub types: Arc<[Type]>,
    /// The fields.
    pub values: Vec<Value>,
}

/// An array of one dimension (or none, when empty).
#[derive(Clone, Debug)]
pub struct Array {
    /// Type of the elements.
    pub element: Type,
    /// The elements.
    pub values: Vec<Value>,
    /// Index of the first one: 1, but 0 in `int2vector` and `oidvector`.
    pub lower: i32,
}

impl Array {
    /// Whether an array may begin at this index, with so many elements: the index behind the last one is an integer, too.
    ///
    /// # Errors
    /// It may not (54000).
    pub(crate) fn check_bounds(lower: i32, length: usize) -> Result<()> {
        match i32::try_from(length).ok().and_then(|length| lower.checked_add(length)) {
            Some(_) => Ok(()),
            None => {
                let message = format!("array lower bound is too large: {lower}");
                Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message))
            }
        }
    }
}

/// Bytes of which a text may have several times what it needs.
const SHORT_TEXT: usize = 64;

impl Value {
    /// A string.
    pub fn text(text: impl AsRef<str>) -> Self {
        Value::Text(CompactString::new(text))
    }

    /// Becomes a string, in the memory of the one that it was where that has memory of its own, and not much too much of it.
    #[inline]
    pub(crate) fn become_text(&mut self, new: &str) {
        match self {
            Value::Text(text)
                if text.is_heap_allocated() && text.capacity() <= 4 * new.len().max(SHORT_TEXT) =>
            {
                text.clear();
                text.push_str(new);
            }
            _ => *self = Value::text(new),
        }
    }

    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The truth value; `None` for NULL.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The whole number; `None` for NULL and other variants.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The string; `None` for NULL and other variants.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(value) | Value::Padded(value) => Some(value),
            _ => None,
        }
    }

    /// The order of two values of one type, as a comparison has it. It fails for records that have none: see [`Record::compare`].
    #[inline]
    pub fn compare(&self, other: &Self) -> Result<Ordering> {
        match (self, other) {
            (Value::Record(a), Value::Record(b)) => a.compare(b),
            (a, b) => Ok(a.total_cmp(b)),
        }
    }

    /// The order of two values of one type. NULLs are equal to each other and behind everything else, NaN is equal to
    /// itself and behind all numbers; strings are compared bytewise. Records that [`Value::compare`] fails for differ.
    pub fn total_cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Null, _) => Ordering::Greater,
            (_, Value::Null) => Ordering::Less,
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => compare_floats(*a, *b),
            (Value::Numeric(a), Value::Numeric(b)) => a.cmp(b),
            (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Value::Padded(a), Value::Padded(b)) => unpadded(a).as_bytes().cmp(unpadded(b).as_bytes()),
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            (Value::Array(a), Value::Array(b)) => a.total_cmp(b),
            (Value::Record(a), Value::Record(b)) => a.total_cmp(b),
            // Only values of equal types meet; this keeps the order total all the same.
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }

    /// Whether two values are one and the same, not just equal: 1.0 is not 1.00, nor 0 the float -0.
    pub fn is_identical(&self, other: &Self) -> bool {
        let all =
            |a: &[Self], b: &[Self]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_identical(b));
        match (self, other) {
            (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
            (Value::Numeric(a), Value::Numeric(b)) => a == b && a.scale() == b.scale(),
            (Value::Padded(a), Value::Padded(b)) => a == b,
            (Value::Array(a), Value::Array(b)) => {
                a.element == b.element && a.lower == b.lower && all(&a.values, &b.values)
            }
            (Value::Record(a), Value::Record(b)) => a.types == b.types && all(&a.values, &b.values),
            (a, b) => a == b,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Value::Bool(_) => 0,
            Value::Int(_) => 1,
            Value::Float(_) => 2,
            Value::Numeric(_) => 3,
            Value::Text(_) => 4,
            Value::Padded(_) => 5,
            Value::Bytes(_) => 6,
            Value::Array(_) => 7,
            Value::Record(_) => 8,
            Value::Null => 9,
        }
    }

    /// Bytes on the heap, for memory accounting: an estimate from above.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => 0,
            Value::Numeric(numeric) => numeric.heap_bytes(),
            Value::Text(text) | Value::Padded(text) => {
                if text.is_heap_allocated() {
                    text.capacity()
                } else {
                    0
                }
            }
            Value::Bytes(bytes) => bytes.len() + 16,
            Value::Array(array) => 64 + bytes_of_all(&array.values),
            Value::Record(record) => 80 + bytes_of_all(&record.values),
        }
    }

    /// Those that a copy takes beside it: nothing of what copies have in common.
    #[inline]
    pub fn copy_bytes(&self) -> usize {
        match self {
            Value::Bytes(_) | Value::Array(_) | Value::Record(_) => 0,
            other => other.heap_bytes(),
        }
    }
}

impl Array {
    /// By the elements, then by their number; arrays that have them in common by the index of the first one.
    fn total_cmp(&self, other: &Self) -> Ordering {
        let lower = |array: &Self| if array.values.is_empty() { 1 } else { array.lower };
        compare_all(&self.values, &other.values).then_with(|| lower(self).cmp(&lower(other)))
    }
}

impl Record {
    /// The order of two rows: that of the first fields that differ. As in PostgreSQL, fields of different types have none, and if all fields
    /// of the shorter row are equal, nor have the rows.
    pub fn compare(&self, other: &Self) -> Result<Ordering> {
        for index in 0..self.values.len().min(other.values.len()) {
            alike(self.types[index], other.types[index], index)?;
            match self.values[index].compare(&other.values[index])? {
                Ordering::Equal => {}
                order => return Ok(order),
            }
        }
        same_length(self.types.len(), other.types.len())?;
        Ok(Ordering::Equal)
    }

    fn total_cmp(&self, other: &Self) -> Ordering {
        for (a, b) in self.types.iter().zip(&self.values).zip(other.types.iter().zip(&other.values)) {
            match a.0.cmp(b.0).then_with(|| a.1.total_cmp(b.1)) {
                Ordering::Equal => {}
                order => return order,
            }
        }
        self.values.len().cmp(&other.values.len())
    }
}

/// The types of the fields of records that are sorted, grouped, or looked for among each other, as far as those seen tell.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    types: Option<Arc<[Type]>>,
    /// Of fields that are records themselves.
    fields: Vec<Shape>,
}

impl Shape {
    /// Fails if the value is a record of other types than those before it.
    pub fn admit(&mut self, value: &Value) -> Result<()> {
        let Value::Record(record) = value else { return Ok(()) };
        match &self.types {
            None => {
                self.types = Some(Arc::clone(&record.types));
                self.fields = vec![Shape::default(); record.types.len()];
            }
            Some(types) if Arc::ptr_eq(types, &record.types) => {}
            Some(types) => {
                for (index, (known, ty)) in types.iter().zip(&*record.types).enumerate() {
                    alike(*known, *ty, index)?;
                }
                same_length(types.len(), record.types.len())?;
            }
        }
        self.fields.iter_mut().zip(&record.values).try_for_each(|(shape, field)| shape.admit(field))
    }
}

fn alike(left: Type, right: Type, index: usize) -> Result<()> {
    if left == right {
        return Ok(());
    }
    let (left, right, column) = (left.name(), right.name(), index + 1);
    let message =
        format!("cannot compare dissimilar column types {left} and {right} at record column {column}");
    Err(Error::new(SqlState::DATATYPE_MISMATCH, message))
}

fn same_length(left: usize, right: usize) -> Result<()> {
    if left == right {
        return Ok(());
    }
    let message = "cannot compare record types with different numbers of columns";
    Err(Error::new(SqlState::DATATYPE_MISMATCH, message))
}

/// A string of type character(n) without the blanks it is padded with.
pub fn unpadded(text: &str) -> &str {
    text.trim_end_matches(' ')
}

fn bytes_of_all(values: &[Value]) -> usize {
    size_of_val(values) + values.iter().map(Value::heap_bytes).sum::<usize>()
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    match a.partial_cmp(&b) {
        Some(order) => order,
        None => a.is_nan().cmp(&b.is_nan()),
    }
}

fn compare_all(a: &[Value], b: &[Value]) -> Ordering {
    for (a, b) in a.iter().zip(b) {
        match a.total_cmp(b) {
            Ordering::Equal => {}
            other => return other,
        }
    }
    a.len().cmp(&b.len())
}

/// Equality as DISTINCT and GROUP BY have it: NULL equals NULL, NaN equals NaN.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.total_cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }
}

/// Equal values have equal hashes.
impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Value::Null => state.write_u8(0xff),
            Value::Bool(value) => value.hash(state),
            Value::Int(value) => state.write_i64(*value),
            Value::Float(value) => {
                // -0 equals 0, and every NaN every other.
                let bits = if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() };
                state.write_u64(bits);
            }
            Value::Numeric(value) => value.hash(state),
            Value::Text(value) => value.as_bytes().hash(state),
            Value::Padded(value) => unpadded(value).as_bytes().hash(state),
            Value::Bytes(value) => value.hash(state),
            Value::Array(array) => array.values.hash(state),
            Value::Record(record) => record.values.hash(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_no_larger_than_a_string() {
        assert!(size_of::<Value>() <= 32, "{}", size_of::<Value>());
    }

    #[test]
    fn blanks_at_the_end_count_in_text_only() {
        assert_ne!(Value::text("a"), Value::text("a "));
        assert_eq!(Value::Padded("a".into()), Value::Padded("a  ".into()));
    }

    #[test]
    fn equal_is_not_identical() {
        let numeric = |text: &str| Value::Numeric(Numeric::parse(text).unwrap());
        let record =
            |field| Value::Record(Arc::new(Record { types: [Type::Numeric].into(), values: vec![field] }));
        for (a, b) in [
            (numeric("1.0"), numeric("1.00")),
            (Value::Float(0.0), Value::Float(-0.0)),
            (Value::Padded("a".into()), Value::Padded("a ".into())),
            (record(numeric("1.0")), record(numeric("1.00"))),
        ] {
            assert!(a == b && !a.is_identical(&b) && a.is_identical(&a.clone()), "{a:?} {b:?}");
        }
    }

    #[test]
    fn nan_and_null_come_last() {
        let mut values =
            [Value::Null, Value::Float(f64::NAN), Value::Float(f64::INFINITY), Value::Float(-1.0)];
        values.sort();
        assert!(
            values[0] == Value::Float(-1.0) && values[2] == Value::Float(f64::NAN) && values[3].is_null()
        );
    }
}
