//! Sizes of databases and relations, and sizes for people to read.
//!
//! The store does not count the pages of a tree: the size of a table is what ANALYZE found, and NULL before it ran. That of a
//! secondary index is not known.

use super::arguments::{int, numeric, text};
use super::{Call, Function};
use crate::exec::Context;
use crate::types::{Numeric, Value};
use crate::{Error, Result, SqlState};

/// Units: their names, from which size on the next one is taken, and their bits.
const UNITS: [(&str, i64, u32); 6] = [
    ("bytes", 10 * 1024, 0),
    ("kB", 20 * 1024 - 1, 10),
    ("MB", 20 * 1024 - 1, 20),
    ("GB", 20 * 1024 - 1, 30),
    ("TB", 20 * 1024 - 1, 40),
    ("PB", 20 * 1024 - 1, 50),
];

/// Sizes are divided until one bit more than the unit has is left, by which they are rounded.
fn bits_to_next(unit: usize) -> u32 {
    let rounds = |unit: usize| u32::from(unit > 0);
    UNITS[unit + 1].2 - UNITS[unit].2 - rounds(unit + 1) + rounds(unit)
}

fn pretty_int(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let mut size = int(a, 0)?;
    let mut unit = 0;
    while unit + 1 < UNITS.len() && size.unsigned_abs() >= UNITS[unit].1 as u64 {
        size /= 1 << bits_to_next(unit);
        unit += 1;
    }
    if unit > 0 {
        size = (size + if size < 0 { -1 } else { 1 }) / 2;
    }
    Ok(Value::text(format!("{size} {}", UNITS[unit].0)))
}

fn pretty_numeric(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let mut size = numeric(a, 0)?.clone();
    let mut unit = 0;
    while unit + 1 < UNITS.len() && size.abs() >= Numeric::from(UNITS[unit].1) {
        size = size.div_trunc(&Numeric::from(1_i64 << bits_to_next(unit)))?;
        unit += 1;
    }
    if unit > 0 {
        let half = Numeric::from(if size.signum() < 0 { -1_i64 } else { 1 });
        size = size.add(&half)?.div_trunc(&Numeric::from(2_i64))?;
    }
    Ok(Value::text(format!("{size} {}", UNITS[unit].0)))
}

fn page_bytes(context: &Context<'_>) -> f64 {
    context.session.database().store().page_size() as f64
}

/// Bytes of a table's own tree.
fn table_bytes(context: &Context<'_>, oid: u32) -> Value {
    let statistics = context.catalog.statistics.get(&oid);
    statistics.map_or(Value::Null, |found| Value::Int((found.pages * page_bytes(context)) as i64))
}

/// Bytes of a table, or of the primary key's index, which is the table.
fn relation_size(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if a.len() > 1 {
        match text(a, 1)?.to_ascii_lowercase().as_str() {
            "main" => {}
            "fsm" | "vm" | "init" => return Ok(Value::Int(0)),
            _ => {
                return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "invalid fork name")
                    .hint("Valid fork names are \"main\", \"fsm\", \"vm\", and \"init\"."));
            }
        }
    }
    let oid = u32::try_from(int(a, 0)?).unwrap_or(0);
    Ok(table_bytes(call.context, oid))
}

/// The primary key is the table's own order: its index takes no space. Others have sizes nobody counts.
fn indexes_size(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let oid = u32::try_from(int(a, 0)?).unwrap_or(0);
    let Some(table) = call.context.catalog.tables.get(&oid) else { return Ok(Value::Null) };
    let known = table.indexes.iter().all(|index| index.primary);
    Ok(if known { Value::Int(0) } else { Value::Null })
}

fn file_bytes(call: &Call<'_, '_>) -> Value {
    Value::Int(call.context.session.database().store().stats().file_bytes as i64)
}

fn database_size(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if let Some(Value::Text(name)) = a.first()
        && name.as_str() != call.context.session.database
    {
        let message = format!("database \"{name}\" does not exist");
        return Err(Error::new(SqlState::INVALID_CATALOG_NAME, message));
    }
    Ok(file_bytes(call))
}

fn tablespace_size(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(file_bytes(call))
}

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    2288 "pg_size_pretty" (Int8) Text = pretty_int;
    3166 "pg_size_pretty" (Numeric) Text = pretty_numeric;
    2325 "pg_relation_size" (Regclass) Int8.volatile() = relation_size;
    2332 "pg_relation_size" (Regclass Text) Int8.volatile() = relation_size;
    2997 "pg_table_size" (Regclass) Int8.volatile() = relation_size;
    2286 "pg_total_relation_size" (Regclass) Int8.volatile() = relation_size;
    2998 "pg_indexes_size" (Regclass) Int8.volatile() = indexes_size;
    2168 "pg_database_size" (Name) Int8.volatile() = database_size;
    2324 "pg_database_size" (Oid) Int8.volatile() = database_size;
    2322 "pg_tablespace_size" (Oid) Int8.volatile() = tablespace_size;
    2323 "pg_tablespace_size" (Name) Int8.volatile() = tablespace_size;
};
