//! Tables of the system: `pg_catalog`, `information_schema`, and our own views. They are computed when they are read, from the
//! definitions that the statement runs with.
//!
//! | module | tables |
//! |---|---|
//! | `tables_catalog`, `tables_views`, `tables_information` | which there are, with their columns |
//! | `relations` | tables, columns, indexes, sequences |
//! | `constraints` | constraints, and what depends on what |
//! | `objects` | types, functions, schemas and other objects that are always the same |
//! | `roles` | roles |
//! | `views` | the views `pg_tables`, `pg_indexes` and their kin |
//! | `activity` | settings, sessions |
//! | `monitor` | memory, devices, background work, locks |
//! | `information` | `information_schema` |
//! | [`definition`] | definitions as SQL text |

mod activity;
mod constraints;
pub mod definition;
mod information;
mod monitor;
mod objects;
mod relations;
mod roles;
mod tables_catalog;
mod tables_information;
mod tables_views;
mod views;

pub(crate) use activity::FIRST_DATABASE;

use crate::Result;
use crate::bind::{self, Scope};
use crate::catalog::{Check, ColumnNumber, INFORMATION_SCHEMA, Oid, PG_CATALOG, Table};
use crate::exec::Context;
use crate::types::text::TextStyle;
use crate::types::{Array, Type, Value};
use std::cell::Cell;
use std::sync::Arc;

/// The columns that a check mentions; none where it cannot be bound, as one that an earlier release has left with a name that is gone.
fn check_columns(context: &Context<'_>, table: &Table, check: &Check) -> Vec<ColumnNumber> {
    let session = context.session;
    let style = TextStyle { catalog: Some(Arc::clone(context.catalog)), ..session.style.clone() };
    let scope = Scope {
        catalog: context.catalog,
        style: &style,
        database: &session.database,
        user: &session.user,
        of_the_moment: Cell::default(),
    };
    let mentions = bind::mentions(&scope, table, &check.expression);
    bind::columns_mentioned(&mentions.unwrap_or_default())
}

/// A table that is computed.
#[derive(Debug)]
pub struct SystemTable {
    /// Its number in `pg_class`.
    pub oid: u32,
    /// Its schema: `pg_catalog` or `information_schema`.
    pub schema: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its columns.
    pub columns: &'static [(&'static str, Type)],
    /// Gives all its rows, in no order, each as long as `columns`.
    pub rows: fn(&Context<'_>, Each<'_>) -> Result<()>,
}

/// Takes the rows of a table, one by one.
pub type Each<'e> = &'e mut dyn FnMut(Vec<Value>) -> Result<()>;

/// What has the rows of a table: a function that makes all of them, as few as they are, or one that gives one after the other.
trait Source<Kind> {
    fn give(&self, context: &Context<'_>, each: Each<'_>) -> Result<()>;
}

/// Kinds of [`Source`].
struct AtOnce;
struct OneByOne;

impl<F: Fn(&Context<'_>) -> Rows> Source<AtOnce> for F {
    fn give(&self, context: &Context<'_>, each: Each<'_>) -> Result<()> {
        self(context)?.into_iter().try_for_each(each)
    }
}

impl<F: Fn(&Context<'_>, Each<'_>) -> Result<()>> Source<OneByOne> for F {
    fn give(&self, context: &Context<'_>, each: Each<'_>) -> Result<()> {
        self(context, each)
    }
}

/// Tables in the notation `oid schema name = function { column: Type, ... }`.
macro_rules! system_tables {
    (
        pub(super) static $list:ident;
        $($oid:literal $schema:ident $name:ident = $rows:path { $($column:ident: $ty:ident,)* })*
    ) => {
        pub(super) static $list: &[super::SystemTable] = &[$(super::SystemTable {
            oid: $oid,
            schema: stringify!($schema),
            name: stringify!($name),
            columns: &[$((stringify!($column), $crate::types::Type::$ty)),*],
            rows: |context, each| super::Source::give(&$rows, context, each),
        }),*];
    };
}
use system_tables;

/// All of them.
pub fn all() -> impl Iterator<Item = &'static SystemTable> {
    tables_catalog::CATALOG.iter().chain(tables_views::VIEWS).chain(tables_information::INFORMATION)
}

/// The table of this name; without a schema, `pg_catalog` is searched, as PostgreSQL does before any other schema.
pub fn find(schema: Option<&str>, name: &str) -> Option<&'static SystemTable> {
    let schema = schema.unwrap_or("pg_catalog");
    all().find(|table| table.name == name && table.schema == schema)
}

/// The table of this number.
pub fn by_oid(oid: Oid) -> Option<&'static SystemTable> {
    all().find(|table| table.oid == oid)
}

impl SystemTable {
    /// The number of its schema.
    pub fn schema_oid(&self) -> Oid {
        if self.schema == "pg_catalog" { PG_CATALOG } else { INFORMATION_SCHEMA }
    }

    /// Whether it is a view in PostgreSQL.
    pub fn is_view(&self) -> bool {
        self.oid >= 12000
    }
}

type Rows = Result<Vec<Vec<Value>>>;

/// Tables of what there is none of.
#[expect(clippy::unnecessary_wraps, reason = "tables that have rows may fail")]
fn none(_: &Context<'_>) -> Rows {
    Ok(Vec::new())
}

// ---- values ---------------------------------------------------------------------------------------------------------

fn text(text: impl AsRef<str>) -> Value {
    Value::text(text)
}

fn int(value: impl Into<i64>) -> Value {
    Value::Int(value.into())
}

fn char(value: char) -> Value {
    Value::text(value.encode_utf8(&mut [0; 4]))
}

fn float(value: f64) -> Value {
    Value::Float(value)
}

const TRUE: Value = Value::Bool(true);
const FALSE: Value = Value::Bool(false);
const NULL: Value = Value::Null;
/// The number of no object.
const NO_OID: Value = Value::Int(0);

/// A value, or NULL.
fn optional<T>(value: Option<T>, of: impl FnOnce(T) -> Value) -> Value {
    value.map_or(NULL, of)
}

fn array(element: Type, values: Vec<Value>) -> Value {
    Value::Array(Arc::new(Array { element, values, lower: 1 }))
}

/// An int2vector or oidvector.
fn vector(element: Type, values: Vec<Value>) -> Value {
    Value::Array(Arc::new(Array { element, values, lower: 0 }))
}

/// `YES` or `NO`, as `information_schema` has them.
fn yes(value: bool) -> Value {
    text(if value { "YES" } else { "NO" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_and_numbers_are_unique() {
        let mut oids = HashSet::new();
        let mut names = HashSet::new();
        for table in all() {
            assert!(oids.insert(table.oid), "{} {}", table.oid, table.name);
            assert!(names.insert((table.schema, table.name)), "{}", table.name);
            let columns: HashSet<_> = table.columns.iter().map(|(name, _)| name).collect();
            assert_eq!(columns.len(), table.columns.len(), "{}", table.name);
        }
    }

    #[test]
    fn the_catalog_hides_nothing() {
        assert_eq!(find(None, "pg_class").map(|table| table.oid), Some(1259));
        assert!(find(None, "columns").is_none());
        assert!(find(Some("information_schema"), "columns").is_some());
        assert!(find(Some("public"), "pg_class").is_none());
    }
}
