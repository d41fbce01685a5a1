//! Functions that give rows.

use super::arguments::{array, boolean, int, numeric};
use super::array::{last_index, parts};
use super::pattern::Given;
use super::{Call, TableFunction};
use crate::exec::{Context, RowSource};
use crate::types::{Array, Numeric, Value};
use crate::{Error, Result, SqlState};
use std::collections::VecDeque;
use std::sync::Arc;

fn nothing() -> Box<dyn RowSource> {
    Box::new(Given::default())
}

fn bad(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// Whole numbers from one to another.
#[derive(Debug)]
struct Whole {
    next: Option<i64>,
    stop: i64,
    step: i64,
    /// The largest and smallest of the type.
    limits: (i64, i64),
}

impl RowSource for Whole {
    fn next(&mut self, _: &Context<'_>, out: &mut Vec<Value>) -> Result<bool> {
        let Some(value) = self.next else { return Ok(false) };
        if if self.step > 0 { value > self.stop } else { value < self.stop } {
            self.next = None;
            return Ok(false);
        }
        let next = value.checked_add(self.step);
        self.next = next.filter(|next| (self.limits.0..=self.limits.1).contains(next));
        out.push(Value::Int(value));
        Ok(true)
    }
}

fn open_whole(limits: (i64, i64), a: &[Value]) -> Result<Box<dyn RowSource>> {
    if a.iter().any(Value::is_null) {
        return Ok(nothing());
    }
    let step = super::arguments::int_or(a, 2, 1)?;
    if step == 0 {
        return Err(bad("step size cannot equal zero"));
    }
    Ok(Box::new(Whole { next: Some(int(a, 0)?), stop: int(a, 1)?, step, limits }))
}

fn open_int4(_: &Call<'_, '_>, a: Vec<Value>) -> Result<Box<dyn RowSource>> {
    open_whole((i64::from(i32::MIN), i64::from(i32::MAX)), &a)
}

fn open_int8(_: &Call<'_, '_>, a: Vec<Value>) -> Result<Box<dyn RowSource>> {
    open_whole((i64::MIN, i64::MAX), &a)
}

/// About as many as the bounds say, where they are known.
fn series_estimate(a: &[Option<Value>]) -> f64 {
    let number = |index: usize| match a.get(index) {
        Some(Some(Value::Int(value))) => Some(*value as f64),
        Some(Some(Value::Numeric(value))) => Some(value.to_f64_lossy()),
        _ => None,
    };
    let step = if a.len() > 2 { number(2) } else { Some(1.0) };
    match (number(0), number(1), step) {
        (Some(start), Some(stop), Some(step)) if step != 0.0 => {
            ((stop - start + step) / step).floor().max(0.0)
        }
        _ => 1000.0,
    }
}

/// Exact numbers from one to another.
#[derive(Debug)]
struct Exact {
    /// `None` behind the last one that there can be.
    next: Option<Numeric>,
    stop: Numeric,
    step: Numeric,
}

impl RowSource for Exact {
    fn next(&mut self, _: &Context<'_>, out: &mut Vec<Value>) -> Result<bool> {
        let Some(next) = self.next.take() else { return Ok(false) };
        if if self.step.signum() > 0 { next > self.stop } else { next < self.stop } {
            return Ok(false);
        }
        // What is beyond the type is beyond the end.
        self.next = next.add(&self.step).ok();
        out.push(Value::Numeric(next));
        Ok(true)
    }
}

fn open_numeric(_: &Call<'_, '_>, a: Vec<Value>) -> Result<Box<dyn RowSource>> {
    if a.iter().any(Value::is_null) {
        return Ok(nothing());
    }
    let (start, stop) = (numeric(&a, 0)?.clone(), numeric(&a, 1)?.clone());
    let step = if a.len() > 2 { numeric(&a, 2)?.clone() } else { Numeric::ONE };
    for (name, value) in [("start", &start), ("stop", &stop), ("step", &step)] {
        let what = if name == "step" { "step size".to_owned() } else { format!("{name} value") };
        if value.is_nan() {
            return Err(bad(format!("{what} cannot be NaN")));
        }
        if value.is_infinite() {
            return Err(bad(format!("{what} cannot be infinity")));
        }
    }
    if step.is_zero() {
        return Err(bad("step size cannot equal zero"));
    }
    Ok(Box::new(Exact { next: Some(start), stop, step }))
}

fn open_subscripts(_: &Call<'_, '_>, a: Vec<Value>) -> Result<Box<dyn RowSource>> {
    if a.iter().any(Value::is_null) {
        return Ok(nothing());
    }
    let array = array(&a, 0)?;
    if int(&a, 1)? != 1 || array.values.is_empty() {
        return Ok(nothing());
    }
    let (first, last) = (i64::from(array.lower), last_index(array));
    let backwards = a.len() > 2 && boolean(&a, 2)?;
    let (next, stop, step) = if backwards { (last, first, -1) } else { (first, last, 1) };
    Ok(Box::new(Whole { next: Some(next), stop, step, limits: (i64::MIN, i64::MAX) }))
}

/// The elements of an array.
#[derive(Debug)]
struct Elements {
    array: Arc<Array>,
    next: usize,
}

impl RowSource for Elements {
    fn next(&mut self, _: &Context<'_>, out: &mut Vec<Value>) -> Result<bool> {
        let Some(value) = self.array.values.get(self.next) else { return Ok(false) };
        out.push(value.clone());
        self.next += 1;
        Ok(true)
    }
}

fn open_elements(_: &Call<'_, '_>, mut a: Vec<Value>) -> Result<Box<dyn RowSource>> {
    match a.pop() {
        Some(Value::Array(array)) => Ok(Box::new(Elements { array, next: 0 })),
        _ => Ok(nothing()),
    }
}

fn elements_estimate(a: &[Option<Value>]) -> f64 {
    match a.first() {
        Some(Some(Value::Array(array))) => array.values.len() as f64,
        _ => 10.0,
    }
}

fn open_parts(call: &Call<'_, '_>, a: Vec<Value>) -> Result<Box<dyn RowSource>> {
    let there = a.first().is_some_and(|text| !text.is_null());
    Given::open(if there { parts(call, &a)? } else { Vec::new() })
}

/// Options, `name=value` each.
#[derive(Debug)]
struct Options(VecDeque<Value>);

impl RowSource for Options {
    fn next(&mut self, _: &Context<'_>, out: &mut Vec<Value>) -> Result<bool> {
        let Some(option) = self.0.pop_front() else { return Ok(false) };
        match option.as_str().unwrap_or_default().split_once('=') {
            Some((name, value)) => out.extend([Value::text(name), Value::text(value)]),
            None => out.extend([option, Value::Null]),
        }
        Ok(true)
    }
}

fn open_options(call: &Call<'_, '_>, a: Vec<Value>) -> Result<Box<dyn RowSource>> {
    if a.iter().any(Value::is_null) {
        return Ok(nothing());
    }
    let options = array(&a, 0)?;
    super::string::reserve(call, Some(a[0].heap_bytes()))?;
    Ok(Box::new(Options(options.values.iter().cloned().collect())))
}

/// The columns a sequence's definition has.
fn open_sequence(call: &Call<'_, '_>, a: Vec<Value>) -> Result<Box<dyn RowSource>> {
    if a.iter().any(Value::is_null) {
        return Ok(nothing());
    }
    let sequence = super::sequence::find(call.context, int(&a, 0)?)?;
    let row = vec![
        Value::Int(sequence.start),
        Value::Int(sequence.minimum),
        Value::Int(sequence.maximum),
        Value::Int(sequence.increment),
        Value::Bool(sequence.cycle),
        Value::Int(1),
        Value::Int(i64::from(sequence.ty.oid())),
    ];
    Ok(Box::new(Row(Some(row))))
}

/// One row.
#[derive(Debug)]
struct Row(Option<Vec<Value>>);

impl RowSource for Row {
    fn next(&mut self, _: &Context<'_>, out: &mut Vec<Value>) -> Result<bool> {
        let row = self.0.take();
        let there = row.is_some();
        out.extend(row.unwrap_or_default());
        Ok(there)
    }
}

/// The tables that a table is a part of: there are no partitions.
fn open_ancestors(_: &Call<'_, '_>, _: Vec<Value>) -> Result<Box<dyn RowSource>> {
    Ok(nothing())
}

macro_rules! table {
    ($oid:literal $name:literal ($($argument:ident)*) $optional:literal [$($column:literal $returns:ident),*] $estimate:expr, $open:expr) => {
        TableFunction {
            oid: $oid,
            name: $name,
            arguments: &[$(argument!($argument)),*],
            optional: $optional,
            columns: &[$(($column, returns!($returns))),*],
            estimate: $estimate,
            open: $open,
        }
    };
}

#[rustfmt::skip]
pub(super) const TABLES: &[TableFunction] = &[
    table!(1066 "generate_series" (Int4 Int4 Int4) 1 ["generate_series" Int4] series_estimate, open_int4),
    table!(1068 "generate_series" (Int8 Int8 Int8) 1 ["generate_series" Int8] series_estimate, open_int8),
    table!(3259 "generate_series" (Numeric Numeric Numeric) 1 ["generate_series" Numeric] series_estimate, open_numeric),
    table!(1191 "generate_subscripts" (anyarray Int4 Bool) 1 ["generate_subscripts" Int4] elements_estimate, open_subscripts),
    table!(2331 "unnest" (anyarray) 0 ["unnest" anyelement] elements_estimate, open_elements),
    table!(6161 "string_to_table" (Text Text Text) 1 ["string_to_table" Text] |_| 1000.0, open_parts),
    table!(2289 "pg_options_to_table" (TextArray) 0 ["option_name" Text, "option_value" Text] |_| 3.0, open_options),
    table!(3425 "pg_partition_ancestors" (Regclass) 0 ["relid" Regclass] |_| 1.0, open_ancestors),
    table!(3078 "pg_sequence_parameters" (Oid) 0
        ["start_value" Int8, "minimum_value" Int8, "maximum_value" Int8, "increment" Int8, "cycle_option" Bool,
         "cache_size" Int8, "data_type" Oid] |_| 1.0, open_sequence),
];
