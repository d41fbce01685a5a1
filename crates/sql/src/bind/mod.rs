//! Binding: from syntax to meaning. Names are resolved against the catalog, types inferred and casts made explicit by
//! PostgreSQL's rules. Syntax nodes are matched exhaustively: a clause that is not implemented is an error that names it.

use crate::catalog::{Catalog, Table};
use crate::logical::{ColumnId, Columns, Planned, Scalar};
use crate::types::text::TextStyle;
use crate::{Error, Result, SqlState, Type};
use sqlparser::ast;
use std::sync::Arc;

/// Longest text of a statement, in bytes.
pub const MAX_STATEMENT: usize = 64 << 20;

/// A statement as text and syntax tree.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The syntax tree.
    pub statement: ast::Statement,
    /// Its text, without the semicolon.
    pub text: String,
}

/// Splits and parses a text of statements separated by semicolons. Syntax errors carry 42601 and a position.
pub fn parse(sql: &str) -> Result<Vec<Parsed>> {
    let _ = sql;
    Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "no parser yet"))
}

/// What binding needs to know.
#[derive(Debug)]
pub struct Scope<'a> {
    /// The definitions.
    pub catalog: &'a Arc<Catalog>,
    /// How literals are read.
    pub style: &'a TextStyle,
    /// Name of the database, for `db.schema.table` and `current_database()`.
    pub database: &'a str,
    /// Name of the role.
    pub user: &'a str,
}

/// A bound statement.
#[derive(Clone, Debug)]
pub struct Bound {
    /// What it means.
    pub planned: Planned,
    /// Its columns.
    pub columns: Columns,
    /// Types of its parameters, as inferred or given.
    pub parameters: Vec<Type>,
}

/// Binds SELECT, VALUES, INSERT, UPDATE or DELETE. `parameters`: types the client gave, [`Type::Unknown`] where it left them open; those are
/// inferred (42P18 where that is not possible).
pub fn bind(scope: &Scope<'_>, statement: &ast::Statement, parameters: &[Type]) -> Result<Bound> {
    let _ = (scope, statement, parameters);
    Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "no binder yet"))
}

/// Binds an expression over the columns of one table, each with a number from 0 in the table's order: a CHECK constraint (boolean).
pub fn bind_check(scope: &Scope<'_>, table: &Table, sql: &str) -> Result<Scalar> {
    let _ = (scope, table, sql);
    Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "no binder yet"))
}

/// Binds a column's default, over no columns, cast to the column's type by assignment.
pub fn bind_default(scope: &Scope<'_>, ty: Type, modifier: i32, sql: &str) -> Result<Scalar> {
    let _ = (scope, ty, modifier, sql);
    Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "no binder yet"))
}

/// The type and modifier that a type's name in SQL stands for: `varchar(10)`, `numeric(12, 2)`, `int`, `timestamptz`. (serial is
/// for the caller to look at first.)
pub fn bind_type(data_type: &ast::DataType) -> Result<(Type, i32)> {
    Err(Error::unsupported(data_type))
}

/// A name as SQL takes it: folded to lower case unless quoted, at most 63 bytes.
pub fn identifier(ident: &ast::Ident) -> Result<String> {
    Ok(if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() })
}

#[doc(hidden)]
pub type Unused = ColumnId;
