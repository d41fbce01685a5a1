//! Tables of the system: `pg_catalog`, `information_schema`, and our own views. They are computed when they are read.

use crate::Result;
use crate::exec::Context;
use crate::types::{Type, Value};

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
    /// All its rows, in no order, each as long as `columns`.
    pub rows: fn(&Context<'_>) -> Result<Vec<Vec<Value>>>,
}

/// The table of this name; without a schema, `pg_catalog` is searched, as PostgreSQL does before any other schema.
pub fn find(schema: Option<&str>, name: &str) -> Option<&'static SystemTable> {
    let _ = (schema, name);
    None
}

/// The table of this number.
pub fn by_oid(oid: u32) -> Option<&'static SystemTable> {
    let _ = oid;
    None
}
