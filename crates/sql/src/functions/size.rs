//! Sizes of databases and relations, and sizes for people to read.
//!
//! Sizes of relations are those of now: the pages that the file's space maps say their trees have, inner nodes and long values
//! included.

use super::arguments::{int, numeric, text};
use super::{Call, Function};
use crate::catalog::{Storage, Table};
use crate::exec::Context;
use crate::session::Database;
use crate::system::{FIRST_DATABASE, definition};
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

/// Bytes of trees, by the pages that the space maps say they have.
fn tree_bytes<'s>(context: &Context<'_>, trees: impl Iterator<Item = &'s Storage>) -> Result<Value> {
    let store = context.session.database().store();
    let pages = store.pages_by_tree()?;
    let mut sum = 0;
    for storage in trees {
        let open = |name: &str| {
            context
                .view
                .tree(name)?
                .ok_or_else(|| Error::internal("a tree that the catalog names is not there"))
        };
        sum += pages.get(&storage.tree(open)?.id()).copied().unwrap_or(0);
    }
    Ok(Value::Int((sum * store.page_size() as u64) as i64))
}

/// Secondary indexes of a table. The primary key is the table's own order.
fn secondary(table: &Table) -> impl Iterator<Item = &Storage> {
    table.indexes.iter().filter(|index| !index.primary).map(|index| &index.storage)
}

/// Bytes of a table, with its long values, or of an index; `with_indexes`: of a table and its indexes.
fn bytes_of(context: &Context<'_>, oid: u32, with_indexes: bool) -> Result<Value> {
    if let Some(table) = context.catalog.tables.get(&oid) {
        let indexes = secondary(table).filter(|_| with_indexes);
        return tree_bytes(context, std::iter::once(&table.storage).chain(indexes));
    }
    if let Some((_, index)) = definition::find_index(context.catalog, oid) {
        return tree_bytes(context, (!index.primary).then_some(&index.storage).into_iter());
    }
    // What is computed when it is read takes no space; what is not there has no size.
    let nothing = crate::system::by_oid(oid).is_some() || context.catalog.sequences.contains_key(&oid);
    Ok(if nothing { Value::Int(0) } else { Value::Null })
}

fn relation(a: &[Value]) -> Result<u32> {
    Ok(u32::try_from(int(a, 0)?).unwrap_or(0))
}

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
    bytes_of(call.context, relation(a)?, false)
}

fn total_size(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    bytes_of(call.context, relation(a)?, true)
}

fn indexes_size(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let oid = relation(a)?;
    match call.context.catalog.tables.get(&oid) {
        Some(table) => tree_bytes(call.context, secondary(table)),
        None => bytes_of(call.context, oid, false)
            .map(|found| if found.is_null() { found } else { Value::Int(0) }),
    }
}

fn file_bytes(database: &Database) -> Value {
    Value::Int(database.store().stats().file_bytes as i64)
}

fn database_size(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let databases = call.context.session.database().neighbours();
    match a.first() {
        Some(Value::Text(name)) => {
            let found = databases.iter().find(|database| database.name() == name.as_str());
            found.map(file_bytes).ok_or_else(|| {
                Error::new(SqlState::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist"))
            })
        }
        _ => {
            let place = usize::try_from(int(a, 0)? - FIRST_DATABASE).ok();
            Ok(place.and_then(|place| databases.get(place)).map_or(Value::Null, file_bytes))
        }
    }
}

fn tablespace_size(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(file_bytes(call.context.session.database()))
}

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    2288 "pg_size_pretty" (Int8) Text = pretty_int;
    3166 "pg_size_pretty" (Numeric) Text = pretty_numeric;
    2325 "pg_relation_size" (Regclass) Int8.volatile() = relation_size;
    2332 "pg_relation_size" (Regclass Text) Int8.volatile() = relation_size;
    2997 "pg_table_size" (Regclass) Int8.volatile() = relation_size;
    2286 "pg_total_relation_size" (Regclass) Int8.volatile() = total_size;
    2998 "pg_indexes_size" (Regclass) Int8.volatile() = indexes_size;
    2168 "pg_database_size" (Name) Int8.volatile() = database_size;
    2324 "pg_database_size" (Oid) Int8.volatile() = database_size;
    2322 "pg_tablespace_size" (Oid) Int8.volatile() = tablespace_size;
    2323 "pg_tablespace_size" (Name) Int8.volatile() = tablespace_size;
};
