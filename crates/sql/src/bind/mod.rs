//! Binding: from syntax to meaning. Names are resolved against the catalog, types inferred and casts made explicit by
//! PostgreSQL's rules. Syntax nodes are matched exhaustively: a clause that is not implemented is an error that names it.

use crate::catalog::{Catalog, Table};
use crate::logical::{Columns, Planned, Scalar};
use crate::types::text::TextStyle;
use crate::{Error, Result, SqlState, Type};
use sqlparser::ast;
use std::sync::Arc;

mod bridge;
mod datatype;
mod parse;
#[cfg(test)]
mod parse_tests;
mod tokens;
pub mod utility;

pub use datatype::bind_type;
pub use parse::parse;
pub use utility::Utility;

/// Longest text of a statement, in bytes.
pub const MAX_STATEMENT: usize = 64 << 20;

/// A statement as text and syntax tree.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// What it is.
    pub kind: Kind,
    /// Its text, without the semicolon.
    pub text: String,
    /// Where it begins in the text that was parsed, in characters from 1. Places in errors are counted there.
    pub position: usize,
}

/// What kind of statement it is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Queries, INSERT, UPDATE, DELETE, and statements that define something.
    Sql(Box<ast::Statement>),
    /// Everything else.
    Utility(Box<Utility>),
}

impl Parsed {
    /// The syntax tree of a query or definition.
    pub fn statement(&self) -> Option<&ast::Statement> {
        match &self.kind {
            Kind::Sql(statement) => Some(statement),
            Kind::Utility(_) => None,
        }
    }
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
pub fn bind(scope: &Scope<'_>, parsed: &Parsed, parameters: &[Type]) -> Result<Bound> {
    let _ = (scope, parsed, parameters);
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

/// A name as SQL takes it: folded to lower case unless quoted, at most 63 bytes.
pub fn identifier(ident: &ast::Ident) -> Result<String> {
    let name = identifier_text(&ident.value, ident.quote_style.is_some());
    if name.is_empty() {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "zero-length delimited identifier"));
    }
    Ok(name)
}

/// Bytes of a name, at most; what is longer is cut.
const NAME_BYTES: usize = 63;

fn identifier_text(text: &str, quoted: bool) -> String {
    // PostgreSQL folds ASCII only where the encoding has several bytes for a character.
    let mut name = if quoted { text.to_owned() } else { text.to_ascii_lowercase() };
    if name.len() > NAME_BYTES {
        let end = (0..=NAME_BYTES).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
        name.truncate(end);
    }
    name
}

/// The parts of a name, folded.
fn name_parts(name: &ast::ObjectName) -> Result<Vec<String>> {
    name.0
        .iter()
        .map(|part| match part {
            ast::ObjectNamePart::Identifier(ident) => identifier(ident),
            ast::ObjectNamePart::Function(_) => Err(Error::unsupported("a function as part of a name")),
        })
        .collect()
}

/// Where a name stands.
fn name_position(name: &ast::ObjectName) -> Option<usize> {
    match name.0.first()? {
        ast::ObjectNamePart::Identifier(ident) => tokens::position(ident.span),
        ast::ObjectNamePart::Function(_) => None,
    }
}
