//! Operators and functions of arrays, all of one dimension.

use super::arguments::{array, int, present, text};
use super::string::{Room, append_within, reserve};
use super::{Call, Function};
use crate::exec::CHECK_EVERY;
use crate::types::{Array, Type, Value};
use crate::{Error, Result, SqlState};
use std::cmp::Ordering;
use std::sync::Arc;

/// Elements of an array, at most: as in PostgreSQL.
const LIMIT: usize = 134_217_727;

fn check_length(length: usize) -> Result<()> {
    if length > LIMIT {
        let message = format!("array size exceeds the maximum allowed ({LIMIT})");
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    Ok(())
}

/// The array of the result's type.
fn made(call: &Call<'_, '_>, values: Vec<Value>, lower: i32) -> Value {
    Value::Array(Arc::new(Array { element: call.ty.element().unwrap_or(Type::Text), values, lower }))
}

/// The array, where it has this dimension.
fn dimension(a: &[Value]) -> Result<Option<&Array>> {
    let array = array(a, 0)?;
    Ok((int(a, 1)? == 1 && !array.values.is_empty()).then_some(array))
}

fn length(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(dimension(a)?.map_or(Value::Null, |array| Value::Int(array.values.len() as i64)))
}

fn lower(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(dimension(a)?.map_or(Value::Null, |array| Value::Int(i64::from(array.lower))))
}

/// Index of the last element.
pub(super) fn last_index(array: &Array) -> i64 {
    i64::from(array.lower) + array.values.len() as i64 - 1
}

fn upper(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(dimension(a)?.map_or(Value::Null, |array| Value::Int(last_index(array))))
}

fn ndims(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(if array(a, 0)?.values.is_empty() { Value::Null } else { Value::Int(1) })
}

fn dims(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let array = array(a, 0)?;
    if array.values.is_empty() {
        return Ok(Value::Null);
    }
    Ok(Value::text(format!("[{}:{}]", array.lower, last_index(array))))
}

fn cardinality(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(array(a, 0)?.values.len() as i64))
}

/// Elements and first index; none and 1 for NULL.
fn elements(a: &[Value], index: usize) -> Result<(&[Value], i32)> {
    if !present(a, index) {
        return Ok((&[], 1));
    }
    let array = array(a, index)?;
    Ok((&array.values, if array.values.is_empty() { 1 } else { array.lower }))
}

fn element(a: &[Value], index: usize) -> Value {
    a.get(index).cloned().unwrap_or_default()
}

/// Fails when an array of these elements, and `more` bytes, has no room.
fn reserve_copies(call: &Call<'_, '_>, elements: [&[Value]; 2], more: usize) -> Result<()> {
    let bytes = |values: &[Value]| size_of_val(values) + values.iter().map(Value::heap_bytes).sum::<usize>();
    reserve(call, elements.map(bytes).iter().try_fold(more, |sum, bytes| sum.checked_add(*bytes)))
}

fn append_element(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (values, lower) = elements(a, 0)?;
    check_length(values.len() + 1)?;
    Array::check_bounds(lower, values.len() + 1)?;
    reserve_copies(call, [values, a.get(1..).unwrap_or_default()], 0)?;
    let mut result = Vec::with_capacity(values.len() + 1);
    result.extend_from_slice(values);
    result.push(element(a, 1));
    Ok(made(call, result, lower))
}

fn prepend_element(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (values, lower) = elements(a, 1)?;
    check_length(values.len() + 1)?;
    Array::check_bounds(lower, values.len() + 1)?;
    reserve_copies(call, [values, a.get(..1).unwrap_or_default()], 0)?;
    let mut result = Vec::with_capacity(values.len() + 1);
    result.push(element(a, 0));
    result.extend_from_slice(values);
    Ok(made(call, result, lower))
}

fn concatenate(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if !present(a, 0) {
        return Ok(element(a, 1));
    }
    if !present(a, 1) {
        return Ok(element(a, 0));
    }
    let ((left, left_lower), (right, right_lower)) = (elements(a, 0)?, elements(a, 1)?);
    check_length(left.len() + right.len())?;
    reserve_copies(call, [left, right], 0)?;
    let lower = if left.is_empty() { right_lower } else { left_lower };
    Array::check_bounds(lower, left.len() + right.len())?;
    Ok(made(call, [left, right].concat(), lower))
}

/// Equality as functions that look for elements have it: NULL equals NULL.
fn same(a: &Value, b: &Value) -> bool {
    a.total_cmp(b) == Ordering::Equal
}

fn position(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if !present(a, 0) {
        return Ok(Value::Null);
    }
    let wanted = element(a, 1);
    let (values, lower) = elements(a, 0)?;
    let start = match a.get(2) {
        None => 0,
        Some(Value::Null) => {
            let message = "initial position must not be null";
            return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
        }
        Some(_) => (int(a, 2)? - i64::from(lower)).max(0) as usize,
    };
    let found = values.iter().skip(start).position(|value| same(value, &wanted));
    Ok(found.map_or(Value::Null, |index| Value::Int(i64::from(lower) + (start + index) as i64)))
}

fn positions(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if !present(a, 0) {
        return Ok(Value::Null);
    }
    let wanted = element(a, 1);
    let (values, lower) = elements(a, 0)?;
    reserve(call, values.len().checked_mul(size_of::<Value>()))?;
    let found = values.iter().zip(i64::from(lower)..).filter(|(value, _)| same(value, &wanted));
    Ok(made(call, found.map(|(_, index)| Value::Int(index)).collect(), 1))
}

fn remove(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if !present(a, 0) {
        return Ok(Value::Null);
    }
    let unwanted = element(a, 1);
    let (values, lower) = elements(a, 0)?;
    if !values.iter().any(|value| same(value, &unwanted)) {
        return Ok(element(a, 0));
    }
    reserve_copies(call, [values, &[]], 0)?;
    Ok(made(call, values.iter().filter(|value| !same(value, &unwanted)).cloned().collect(), lower))
}

fn replace(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if !present(a, 0) {
        return Ok(Value::Null);
    }
    let (unwanted, new) = (element(a, 1), element(a, 2));
    let (values, lower) = elements(a, 0)?;
    reserve_copies(call, [values, &[]], values.len().saturating_mul(new.heap_bytes()))?;
    let replaced =
        values.iter().map(|value| if same(value, &unwanted) { new.clone() } else { value.clone() });
    Ok(made(call, replaced.collect(), lower))
}

fn trim(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (array, unwanted) = (array(a, 0)?, int(a, 1)?);
    let length = array.values.len();
    match usize::try_from(unwanted).ok().and_then(|unwanted| length.checked_sub(unwanted)) {
        Some(kept) => {
            let kept = &array.values[..kept];
            reserve_copies(call, [kept, &[]], 0)?;
            Ok(made(call, kept.to_vec(), 1))
        }
        None => {
            let message = format!("number of elements to trim must be between 0 and {length}");
            Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message))
        }
    }
}

fn fill(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let null = |message| Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
    if !present(a, 1) || (a.len() > 2 && !present(a, 2)) {
        return null("dimension array or low bound array cannot be null");
    }
    let (sizes, lowers) = (&array(a, 1)?.values, if a.len() > 2 { elements(a, 2)?.0 } else { &[] });
    if sizes.iter().chain(lowers).any(Value::is_null) {
        return null("dimension values cannot be null");
    }
    if sizes.is_empty() {
        return Ok(made(call, Vec::new(), 1));
    }
    if sizes.len() > 1 {
        return Err(Error::unsupported("an array of more than one dimension"));
    }
    if a.len() > 2 && lowers.len() != sizes.len() {
        return Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts")
            .detail("Low bound array has different size than dimensions array."));
    }
    let size = int(sizes, 0)?;
    let lower = if lowers.is_empty() { 1 } else { int(lowers, 0)? as i32 };
    let Ok(size) = usize::try_from(size) else {
        let message = format!("array size exceeds the maximum allowed ({LIMIT})");
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    };
    check_length(size)?;
    Array::check_bounds(lower, size)?;
    reserve(call, size.checked_mul(size_of::<Value>() + a[0].heap_bytes()))?;
    Ok(made(call, vec![element(a, 0); size], lower))
}

fn to_string(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if !present(a, 0) || !present(a, 1) {
        return Ok(Value::Null);
    }
    let (array, separator) = (array(a, 0)?, text(a, 1)?);
    let null = if present(a, 2) { Some(text(a, 2)?) } else { None };
    let types = vec![array.element; array.values.len()];
    let call = Call { types: &types, ..*call };
    let (mut out, mut room) = (String::new(), Room::new(&call));
    let mut first = true;
    for (index, value) in array.values.iter().enumerate() {
        if value.is_null() && null.is_none() {
            continue;
        }
        if !first {
            room.want(out.len() + separator.len())?;
            out.push_str(separator);
        }
        first = false;
        match null {
            Some(null) if value.is_null() => {
                room.want(out.len() + null.len())?;
                out.push_str(null);
            }
            _ => append_within(&mut room, &array.values, index, &mut out)?,
        }
    }
    Ok(Value::Text(out.into()))
}

/// The parts of a string between separators; single characters where that is NULL.
pub(super) fn parts(call: &Call<'_, '_>, a: &[Value]) -> Result<Vec<Value>> {
    let string = text(a, 0)?;
    let null = if present(a, 2) { Some(text(a, 2)?) } else { None };
    let part = |part: &str| if Some(part) == null { Value::Null } else { Value::text(part) };
    if string.is_empty() {
        return Ok(Vec::new());
    }
    if !present(a, 1) {
        reserve(call, super::string::count(string).checked_mul(size_of::<Value>()))?;
        return Ok(string.chars().map(|c| part(c.encode_utf8(&mut [0; 4]))).collect());
    }
    let separator = text(a, 1)?;
    if separator.is_empty() {
        return Ok(vec![part(string)]);
    }
    let (mut parts, mut room, mut bytes) = (Vec::new(), Room::new(call), 0);
    for piece in string.split(separator) {
        bytes += size_of::<Value>() + piece.len();
        room.want(bytes)?;
        parts.push(part(piece));
    }
    Ok(parts)
}

fn from_string(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if !present(a, 0) {
        return Ok(Value::Null);
    }
    Ok(made(call, parts(call, a)?, 1))
}

/// Whether an element of `inner` for which `is_one_of(outer)` comes to `wanted` is there; NULL is none of anything. Of long arrays these are many
/// comparisons: a cancelled statement ends among them.
fn any_element(call: &Call<'_, '_>, inner: &Array, outer: &Array, wanted: bool) -> Result<bool> {
    let mut steps = 0_usize;
    for value in &inner.values {
        let mut found = false;
        for other in outer.values.iter().filter(|_| !value.is_null()) {
            steps += 1;
            if steps.is_multiple_of(CHECK_EVERY) {
                call.context.check()?;
            }
            if same(value, other) {
                found = true;
                break;
            }
        }
        if found == wanted {
            return Ok(true);
        }
    }
    Ok(false)
}

fn contains(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Bool(!any_element(call, array(a, 1)?, array(a, 0)?, false)?))
}

fn contained(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Bool(!any_element(call, array(a, 0)?, array(a, 1)?, false)?))
}

fn overlaps(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Bool(any_element(call, array(a, 0)?, array(a, 1)?, true)?))
}

/// How many of the ascending thresholds are not above the operand.
fn width_bucket(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (operand, thresholds) = (element(a, 0), array(a, 1)?);
    if thresholds.values.iter().any(Value::is_null) {
        let message = "thresholds array must not contain NULLs";
        return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
    }
    let below =
        thresholds.values.partition_point(|threshold| threshold.total_cmp(&operand) != Ordering::Greater);
    Ok(Value::Int(below as i64))
}

#[rustfmt::skip]
pub(super) const OPERATORS: &[(&str, Function)] = operators! {
    "@>" 2748 "arraycontains" (anyarray anyarray) Bool = contains;
    "<@" 2749 "arraycontained" (anyarray anyarray) Bool = contained;
    "&&" 2747 "arrayoverlap" (anyarray anyarray) Bool = overlaps;
};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    2176 "array_length" (anyarray Int4) Int4 = length;
    2091 "array_lower" (anyarray Int4) Int4 = lower;
    2092 "array_upper" (anyarray Int4) Int4 = upper;
    748 "array_ndims" (anyarray) Int4 = ndims;
    747 "array_dims" (anyarray) Text = dims;
    3179 "cardinality" (anyarray) Int4 = cardinality;
    378 "array_append" (anyarray anyelement) anyarray.lax() = append_element;
    379 "array_prepend" (anyelement anyarray) anyarray.lax() = prepend_element;
    383 "array_cat" (anyarray anyarray) anyarray.lax() = concatenate;
    3277 "array_position" (anyarray anyelement) Int4.lax() = position;
    3278 "array_position" (anyarray anyelement Int4) Int4.lax() = position;
    3279 "array_positions" (anyarray anyelement) Int4Array.lax() = positions;
    3167 "array_remove" (anyarray anyelement) anyarray.lax() = remove;
    3168 "array_replace" (anyarray anyelement anyelement) anyarray.lax() = replace;
    6172 "trim_array" (anyarray Int4) anyarray = trim;
    1193 "array_fill" (anyelement Int4Array) anyarray.lax() = fill;
    1286 "array_fill" (anyelement Int4Array Int4Array) anyarray.lax() = fill;
    395 "array_to_string" (anyarray Text) Text.stable() = to_string;
    384 "array_to_string" (anyarray Text Text) Text.lax().stable() = to_string;
    394 "string_to_array" (Text Text) TextArray.lax() = from_string;
    376 "string_to_array" (Text Text Text) TextArray.lax() = from_string;
    3218 "width_bucket" (anyelement anyarray) Int4 = width_bucket;
};
