//! States of aggregates.
//!
//! Counts, sums and extremes of whole numbers take no memory of their own, those of exact numbers one piece for each group; none of
//! them takes memory for a row.

use crate::codec::row::{Field, as_text};
use crate::types::numeric::{NumericSum, variance};
use crate::types::{Array, Numeric, Type, Value};
use crate::{Error, Result, SqlState};
use compact_str::CompactString;
use std::cmp::Ordering;
use std::sync::Arc;

/// Largest string or bytea, as in PostgreSQL.
const LIMIT_BYTES: usize = 0x3fff_ffff;

/// What is longer is charged to the budget row by row; rows that are longer are shown as values.
pub(crate) const SHORT_BYTES: usize = 4 << 10;

/// The state of an aggregate over some rows.
#[derive(Clone, Debug)]
pub struct Accumulator(State);

/// How whole numbers are put together bit by bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bits {
    And,
    Or,
    Xor,
}

/// Which figure of spread is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spread {
    /// Of a sample; else of the whole population.
    pub(super) sample: bool,
    /// The standard deviation; else the variance.
    pub(super) root: bool,
}

/// Sums of numbers and of their squares.
#[derive(Clone, Debug, Default)]
struct Moments {
    sum: NumericSum,
    squares: NumericSum,
}

#[derive(Clone, Debug)]
enum State {
    /// count(*)
    Rows(i64),
    /// count(x)
    Count(i64),
    /// sum of smallint and integer, which is a bigint.
    Sum(Option<i64>),
    /// sum of bigint, avg of whole numbers: a sum of 128 bits in two words, and how many.
    Whole { high: i64, low: u64, count: u64, average: bool },
    /// sum and avg of exact numbers.
    Exact { sum: Box<NumericSum>, average: bool },
    /// sum of floats; `single`: in the precision of real.
    Float { sum: Option<f64>, single: bool },
    /// avg, variance and standard deviation of floats, by Youngs and Cramer; no spread: avg.
    Moments { count: f64, sum: f64, squares: f64, spread: Option<Spread> },
    /// Variance and standard deviation of exact and whole numbers.
    Spread { moments: Box<Moments>, spread: Spread },
    /// min (`Less`) and max (`Greater`).
    Extreme { value: Value, wanted: Ordering },
    /// bool_and, bool_or: ends at the first value that is `until`.
    Truth { value: Option<bool>, until: bool },
    /// bit_and and its kin.
    Bits { value: Option<i64>, how: Bits },
    /// string_agg of text.
    Text(Option<CompactString>),
    /// string_agg of bytea.
    Bytes(Option<Vec<u8>>),
    /// array_agg
    Array { element: Type, values: Option<Vec<Value>>, bytes: usize },
}

impl Accumulator {
    pub(super) fn rows() -> Self {
        Accumulator(State::Rows(0))
    }

    pub(super) fn count() -> Self {
        Accumulator(State::Count(0))
    }

    pub(super) fn sum() -> Self {
        Accumulator(State::Sum(None))
    }

    pub(super) fn whole(average: bool) -> Self {
        Accumulator(State::Whole { high: 0, low: 0, count: 0, average })
    }

    pub(super) fn exact(average: bool) -> Self {
        Accumulator(State::Exact { sum: Box::default(), average })
    }

    pub(super) fn float(single: bool) -> Self {
        Accumulator(State::Float { sum: None, single })
    }

    pub(super) fn moments(spread: Option<Spread>) -> Self {
        Accumulator(State::Moments { count: 0.0, sum: 0.0, squares: 0.0, spread })
    }

    pub(super) fn spread(spread: Spread) -> Self {
        Accumulator(State::Spread { moments: Box::default(), spread })
    }

    pub(super) fn extreme(wanted: Ordering) -> Self {
        Accumulator(State::Extreme { value: Value::Null, wanted })
    }

    pub(super) fn truth(until: bool) -> Self {
        Accumulator(State::Truth { value: None, until })
    }

    pub(super) fn bits(how: Bits) -> Self {
        Accumulator(State::Bits { value: None, how })
    }

    pub(super) fn text() -> Self {
        Accumulator(State::Text(None))
    }

    pub(super) fn bytes() -> Self {
        Accumulator(State::Bytes(None))
    }

    pub(super) fn array(types: &[Type]) -> Self {
        let element = types.first().copied().unwrap_or(Type::Text);
        Accumulator(State::Array { element, values: None, bytes: 0 })
    }

    /// Whether it counts rows, whatever they are.
    pub fn counts_rows(&self) -> bool {
        matches!(self.0, State::Rows(_))
    }

    /// Takes so many rows, where it counts them whatever they are.
    pub fn add_rows(&mut self, rows: u64) {
        if let State::Rows(count) = &mut self.0 {
            *count = count.saturating_add_unsigned(rows);
        }
    }

    /// Takes one row's arguments. Strict aggregates pass over NULL themselves.
    #[inline]
    pub fn add(&mut self, arguments: &[Value]) -> Result<()> {
        let value = arguments.first().unwrap_or(&Value::Null);
        match (&mut self.0, value) {
            (State::Rows(count), _) => *count += 1,
            (State::Array { .. }, _) => self.add_element(value),
            (_, Value::Null) => {}
            (State::Count(count), _) => *count += 1,
            (State::Sum(_) | State::Whole { .. }, Value::Int(value)) => self.add_whole(*value)?,
            (State::Exact { sum, .. }, Value::Numeric(value)) => sum.add(value),
            // Of equal ones that are not the same, 1.5 and 1.50 say, the last one counts, as in PostgreSQL.
            (
                State::Extreme { value: best, wanted },
                Value::Numeric(_) | Value::Float(_) | Value::Array(_),
            ) => {
                if best.is_null() || value.total_cmp(best) != wanted.reverse() {
                    best.clone_from(value);
                }
            }
            (State::Extreme { value: best, wanted }, value) => {
                if best.is_null() || value.total_cmp(best) == *wanted {
                    best.clone_from(value);
                }
            }
            _ => return self.add_other(value, arguments.get(1)),
        }
        Ok(())
    }

    /// Takes one row's only argument as it is stored, in a short row; gives it back where a value has to be made of it.
    #[inline]
    pub(crate) fn add_field<'r>(&mut self, field: Field<'r>) -> Result<Option<Field<'r>>> {
        match (&mut self.0, field) {
            (State::Rows(count), _) => *count += 1,
            (State::Array { .. }, field) => return Ok(Some(field)),
            (_, Field::Null) => {}
            (State::Count(count), _) => *count += 1,
            (State::Sum(_) | State::Whole { .. }, Field::Int(value)) => self.add_whole(value)?,
            (State::Exact { sum, .. }, Field::Numeric(value)) => sum.add(&value),
            (State::Extreme { value: best, wanted }, Field::Int(value)) => {
                if best.as_int().is_none_or(|best| value.cmp(&best) == *wanted) {
                    *best = Value::Int(value);
                }
            }
            (State::Extreme { value: best, wanted }, Field::Numeric(value)) => {
                if !matches!(best, Value::Numeric(best) if value.cmp(best) == wanted.reverse()) {
                    *best = Value::Numeric(value);
                }
            }
            (State::Extreme { value: best, wanted }, Field::Text(text)) => {
                if best.as_str().is_none_or(|best| text.cmp(best.as_bytes()) == *wanted) {
                    best.become_text(as_text(text)?);
                }
            }
            (_, field) => return Ok(Some(field)),
        }
        Ok(None)
    }

    #[inline]
    fn add_whole(&mut self, value: i64) -> Result<()> {
        match &mut self.0 {
            State::Sum(sum) => {
                let total = sum.unwrap_or(0).checked_add(value);
                *sum = Some(total.ok_or_else(|| Error::out_of_range("bigint"))?);
            }
            State::Whole { high, low, count, .. } => {
                let (sum, carried) = low.overflowing_add(value as u64);
                *low = sum;
                *high += i64::from(carried) - i64::from(value < 0);
                *count += 1;
            }
            _ => return Err(Error::internal("an aggregate met a value of another type")),
        }
        Ok(())
    }

    fn add_other(&mut self, value: &Value, second: Option<&Value>) -> Result<()> {
        match (&mut self.0, value) {
            (State::Float { sum, single }, Value::Float(value)) => {
                // The first value is the sum as it is: 0 and -0 would be 0.
                let Some(before) = *sum else {
                    *sum = Some(*value);
                    return Ok(());
                };
                let total = if *single { f64::from((before + value) as f32) } else { before + value };
                if total.is_infinite() && before.is_finite() && value.is_finite() {
                    return Err(overflow());
                }
                *sum = Some(total);
            }
            (State::Moments { count, sum, squares, .. }, Value::Float(value)) => {
                (*count, *sum, *squares) = add_moment((*count, *sum, *squares), *value)?;
            }
            (State::Spread { moments, .. }, Value::Int(value)) => {
                moments.sum.add_int(*value);
                moments.squares.add_int_square(*value);
            }
            (State::Spread { moments, .. }, Value::Numeric(value)) => {
                moments.sum.add(value);
                moments.squares.add(&value.mul(value)?);
            }
            (State::Truth { value: so_far, until }, Value::Bool(value)) => {
                if *so_far != Some(*until) {
                    *so_far = Some(*value);
                }
            }
            (State::Bits { value: so_far, how }, Value::Int(value)) => {
                *so_far = Some(match (*so_far, how) {
                    (None, _) => *value,
                    (Some(so_far), Bits::And) => so_far & value,
                    (Some(so_far), Bits::Or) => so_far | value,
                    (Some(so_far), Bits::Xor) => so_far ^ value,
                });
            }
            (State::Text(so_far), Value::Text(value) | Value::Padded(value)) => match so_far {
                None => *so_far = Some(value.clone()),
                Some(so_far) => {
                    let separator = second.and_then(Value::as_str).unwrap_or("");
                    check_length(so_far.len() + separator.len() + value.len())?;
                    so_far.push_str(separator);
                    so_far.push_str(value);
                }
            },
            (State::Bytes(so_far), Value::Bytes(value)) => match so_far {
                None => *so_far = Some(value.to_vec()),
                Some(so_far) => {
                    if let Some(Value::Bytes(separator)) = second {
                        check_length(so_far.len() + separator.len() + value.len())?;
                        so_far.extend_from_slice(separator);
                    }
                    so_far.extend_from_slice(value);
                }
            },
            _ => return Err(Error::internal("an aggregate met a value of another type")),
        }
        Ok(())
    }

    fn add_element(&mut self, value: &Value) {
        if let State::Array { values, bytes, .. } = &mut self.0 {
            // A copy may take less than what it is made of.
            let value = value.clone();
            *bytes += value.heap_bytes();
            values.get_or_insert_default().push(value);
        }
    }

    /// Whether states of parts of the rows can be merged, and come to what one of all rows would.
    pub fn merges(&self) -> bool {
        match self.0 {
            State::Rows(_) | State::Count(_) | State::Sum(_) | State::Whole { .. } => true,
            State::Exact { .. } | State::Spread { .. } => true,
            State::Extreme { .. } | State::Truth { .. } | State::Bits { .. } => true,
            // Sums of floats depend on how they are put together.
            State::Float { .. } | State::Moments { .. } => false,
            State::Text(_) | State::Bytes(_) | State::Array { .. } => false,
        }
    }

    /// Takes the rows of another state of the same aggregate, which come behind those of this one.
    pub fn merge(&mut self, later: &Accumulator) -> Result<()> {
        match (&mut self.0, &later.0) {
            (State::Rows(count), State::Rows(more)) | (State::Count(count), State::Count(more)) => {
                *count += more
            }
            (State::Sum(_), State::Sum(more)) => more.map_or(Ok(()), |more| self.add_whole(more))?,
            (
                State::Whole { high, low, count, .. },
                State::Whole { high: more_high, low: more_low, count: more, .. },
            ) => {
                let (sum, carried) = low.overflowing_add(*more_low);
                *low = sum;
                *high += *more_high + i64::from(carried);
                *count += more;
            }
            (State::Exact { sum, .. }, State::Exact { sum: more, .. }) => sum.merge(more),
            (State::Spread { moments, .. }, State::Spread { moments: more, .. }) => {
                moments.sum.merge(&more.sum);
                moments.squares.merge(&more.squares);
            }
            (State::Extreme { .. }, State::Extreme { value, .. }) => self.add(std::slice::from_ref(value))?,
            (State::Truth { .. }, State::Truth { value, .. }) => {
                self.add(&[value.map_or(Value::Null, Value::Bool)])?;
            }
            (State::Bits { .. }, State::Bits { value, .. }) => {
                self.add(&[value.map_or(Value::Null, Value::Int)])?;
            }
            _ => {
                return Err(Error::internal(
                    "states of different aggregates, or of one that gathers, were merged",
                ));
            }
        }
        Ok(())
    }

    /// The result so far.
    pub fn finish(self) -> Result<Value> {
        Ok(match self.0 {
            State::Rows(count) | State::Count(count) => Value::Int(count),
            State::Sum(sum) | State::Bits { value: sum, .. } => sum.map_or(Value::Null, Value::Int),
            State::Whole { count: 0, .. } => Value::Null,
            State::Whole { high, low, count, average } => {
                let sum = Numeric::from_i128(i128::from(high) << 64 | i128::from(low), 0);
                Value::Numeric(if average { sum.div(&Numeric::from_u64(count))? } else { sum })
            }
            State::Exact { sum, .. } if sum.count() == 0 => Value::Null,
            State::Exact { sum, average: true } => sum.average()?.map_or(Value::Null, Value::Numeric),
            State::Exact { sum, average: false } => Value::Numeric(sum.sum()?),
            State::Float { sum, .. } => sum.map_or(Value::Null, Value::Float),
            State::Moments { count, sum, squares, spread } => {
                finish_moments(count, sum, squares, spread).map_or(Value::Null, Value::Float)
            }
            State::Spread { moments, spread } => {
                variance(&moments.sum, &moments.squares, spread.sample, spread.root)?
                    .map_or(Value::Null, Value::Numeric)
            }
            State::Extreme { value, .. } => value,
            State::Truth { value, .. } => value.map_or(Value::Null, Value::Bool),
            State::Text(text) => text.map_or(Value::Null, Value::Text),
            State::Bytes(bytes) => bytes.map_or(Value::Null, |bytes| Value::Bytes(bytes.into())),
            State::Array { values: None, .. } => Value::Null,
            State::Array { element, values: Some(mut values), .. } => {
                // An array is charged for its elements.
                values.shrink_to_fit();
                Value::Array(Arc::new(Array { element, values, lower: 1 }))
            }
        })
    }

    /// Whether it may have bytes on the heap, of arguments of these types.
    pub fn grows(&self, types: &[Type]) -> bool {
        match self.0 {
            State::Exact { .. } | State::Spread { .. } => true,
            State::Text(_) | State::Bytes(_) | State::Array { .. } => true,
            State::Extreme { .. } => types.iter().any(|ty| ty.len() < 0 || ty.is_string()),
            State::Rows(_) | State::Count(_) | State::Sum(_) | State::Whole { .. } => false,
            State::Float { .. } | State::Moments { .. } | State::Truth { .. } | State::Bits { .. } => false,
        }
    }

    /// Bytes on the heap once it has taken a row's arguments, from above, for one that gathers what it is given; others: 0. Strings and
    /// arrays grow in steps.
    #[inline]
    pub fn gathered_with(&self, arguments: &[Value]) -> usize {
        let added = || arguments.iter().map(Value::heap_bytes).sum::<usize>();
        let grown = |len: usize, capacity: usize, step: usize| {
            let added = arguments.iter().map(string_bytes).sum::<usize>();
            if len + added <= capacity { capacity } else { (len + added).max(capacity + step) }
        };
        match &self.0 {
            State::Text(None) | State::Bytes(None) => grown(0, 0, 0),
            State::Text(Some(text)) => grown(text.len(), text.capacity(), text.capacity() / 2),
            State::Bytes(Some(bytes)) => grown(bytes.len(), bytes.capacity(), bytes.capacity()),
            State::Array { values, bytes, .. } => {
                let values = values.as_deref().unwrap_or_default().len() + 1;
                values.next_power_of_two().max(4) * size_of::<Value>() + bytes + added()
            }
            State::Extreme { value, .. } => value.heap_bytes().max(added()),
            _ => 0,
        }
    }

    /// Bytes on the heap while the result is made of it.
    pub fn finish_bytes(&self) -> usize {
        match &self.0 {
            State::Bytes(Some(bytes)) => bytes.capacity() + bytes.len(),
            State::Array { values: Some(values), .. } if values.capacity() > values.len() => {
                self.heap_bytes() + values.len() * size_of::<Value>()
            }
            _ => self.heap_bytes(),
        }
    }

    /// Bytes on the heap, for memory accounting.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            State::Exact { sum, .. } => size_of::<NumericSum>() + sum.heap_bytes(),
            State::Spread { moments, .. } => {
                size_of::<Moments>() + moments.sum.heap_bytes() + moments.squares.heap_bytes()
            }
            State::Extreme { value, .. } => value.heap_bytes(),
            State::Text(Some(text)) if text.is_heap_allocated() => text.capacity(),
            State::Bytes(Some(bytes)) => bytes.capacity(),
            State::Array { values: Some(values), bytes, .. } => {
                values.capacity() * size_of::<Value>() + bytes
            }
            _ => 0,
        }
    }
}

fn overflow() -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")
}

/// Bytes of a string.
fn string_bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) | Value::Padded(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

fn check_length(bytes: usize) -> Result<()> {
    if bytes > LIMIT_BYTES {
        let message = format!("string buffer exceeds maximum allowed length ({LIMIT_BYTES} bytes)");
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    Ok(())
}

/// Count, sum, and sum of squared differences from the mean, with one value more.
fn add_moment((count, sum, squares): (f64, f64, f64), value: f64) -> Result<(f64, f64, f64)> {
    let (new_count, new_sum) = (count + 1.0, sum + value);
    if count == 0.0 {
        return Ok((new_count, new_sum, if value.is_finite() { squares } else { f64::NAN }));
    }
    let difference = value * new_count - new_sum;
    let mut new_squares = squares + difference * difference / (new_count * count);
    if new_sum.is_infinite() || new_squares.is_infinite() {
        if sum.is_finite() && value.is_finite() {
            return Err(overflow());
        }
        new_squares = f64::NAN;
    }
    Ok((new_count, new_sum, new_squares))
}

fn finish_moments(count: f64, sum: f64, squares: f64, spread: Option<Spread>) -> Option<f64> {
    if count == 0.0 {
        return None;
    }
    let Some(spread) = spread else { return Some(sum / count) };
    let divisor = if spread.sample { count - 1.0 } else { count };
    if divisor <= 0.0 {
        return None;
    }
    let variance = squares / divisor;
    Some(if spread.root { variance.sqrt() } else { variance })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_charged_for_what_it_holds_not_for_what_that_was_copied_from() {
        let mut text = CompactString::with_capacity(64 << 10);
        text.push_str("a text that had another's memory");
        let wide = [Value::Text(text)];
        let mut array = Accumulator::array(&[Type::Text]);
        (0..100).for_each(|_| array.add(&wide).unwrap());
        assert!(array.heap_bytes() < 32 << 10, "{}", array.heap_bytes());
    }
}
