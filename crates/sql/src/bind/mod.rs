//! Binding: from syntax to meaning. Names are resolved against the catalog, types inferred and casts made explicit by
//! PostgreSQL's rules. Syntax nodes are matched exhaustively: a clause that is not implemented is an error that names it.

use crate::catalog::{Catalog, ColumnNumber, Table};
use crate::logical::{ColumnInfo, Columns, Output, Planned, Query, Rel, Scalar, walk};
use crate::types::cast::CastContext;
use crate::types::text::TextStyle;
use crate::{Error, Result, SqlState, Type};
use binder::{Binder, Clause, RelationKind, Visible};
use places::Places;
use sqlparser::ast;
use std::cell::Cell;
use std::sync::Arc;

mod binder;
mod bridge;
mod calls;
mod coerce;
mod datatype;
mod dml;
mod expr;
mod from;
#[cfg(test)]
mod golden_tests;
mod group;
mod literal_rows;
mod literals;
mod lock;
mod lookahead;
mod names;
mod operators;
mod parentheses;
mod parse;
#[cfg(test)]
mod parse_tests;
mod places;
mod plain;
mod query;
mod select;
mod stored;
mod subquery;
mod titles;
pub(crate) mod tokens;
pub mod utility;
mod weight;

pub(crate) use binder::Mention;
pub(crate) use bridge::identity_text;
pub use datatype::bind_type;
pub use parse::{Statements, parse};
pub use utility::Utility;
pub(crate) use weight::weighed_tokens;
pub use weight::weight;

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
    /// Set when a literal was read that says 'now', 'today' or their kin: what was bound is right at this moment only.
    pub of_the_moment: Cell<bool>,
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

impl Bound {
    /// A query for one row of expressions over no columns.
    pub fn of_expressions(expressions: Vec<(Scalar, Type)>) -> Bound {
        let (mut columns, mut computed, mut output) = (Columns::default(), Vec::new(), Vec::new());
        for (scalar, ty) in expressions {
            let (name, modifier) = ("value".to_owned(), crate::types::NO_MODIFIER);
            let info = ColumnInfo { name: name.clone(), ty, modifier, origin: None, nullable: true };
            let column = columns.add(info);
            computed.push((column, scalar));
            output.push(Output { column, name });
        }
        let one = Rel::Values { columns: Vec::new(), rows: vec![Vec::new()] };
        let rel = Rel::Project { input: Box::new(one), columns: computed };
        Bound { planned: Planned::Query(Query { rel, output }), columns, parameters: Vec::new() }
    }
}

/// The types of a statement's parameters, once all that can be is inferred: 42P18 where one is open still.
pub fn known(parameters: &[Type]) -> Result<&[Type]> {
    match parameters.iter().position(|ty| *ty == Type::Unknown) {
        None => Ok(parameters),
        Some(index) => {
            let message = format!("could not determine data type of parameter ${}", index + 1);
            Err(Error::new(SqlState::INDETERMINATE_DATATYPE, message))
        }
    }
}

/// Binds SELECT, VALUES, INSERT, UPDATE or DELETE. `parameters`: types the client gave, [`Type::Unknown`] where it left them open; those are
/// inferred (42P18 where that is not possible).
pub fn bind(scope: &Scope<'_>, parsed: &Parsed, parameters: &[Type]) -> Result<Bound> {
    let Some(statement) = parsed.statement() else {
        return Err(Error::internal("a statement without a plan was to be bound"));
    };
    let mut binder = Binder::new(scope, Some(Places::new(&parsed.text, parsed.position)), parameters);
    let planned = match statement {
        ast::Statement::Query(query) => match &*query.body {
            ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_) => {
                return Err(Error::unsupported("WITH in front of a data-modifying statement"));
            }
            _ => {
                let bound = binder.query(query)?;
                Planned::Query(Binder::closed(bound))
            }
        },
        ast::Statement::Insert(insert) => Planned::Insert(binder.insert(insert)?),
        ast::Statement::Update(update) => Planned::Update(binder.update(update)?),
        ast::Statement::Delete(delete) => Planned::Delete(binder.delete(delete)?),
        ast::Statement::Merge(_) => return Err(Error::unsupported("MERGE")),
        other => {
            // Statements are named by their first words; everything else of them may be long.
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            return Err(Error::unsupported(words.join(" ")));
        }
    };
    binder.finish(planned)
}

/// Binds an expression over the columns of one table, each with a number from 0 in the table's order: a CHECK constraint (boolean).
pub fn bind_check(scope: &Scope<'_>, table: &Table, sql: &str) -> Result<Scalar> {
    let expr = parse::parse_expression(sql)?;
    check(&mut definition_binder(scope, sql), table, &expr)
}

/// A new CHECK constraint's text as it is stored, see the module `stored`: dates and times are what they are here and now.
pub fn define_check(scope: &Scope<'_>, table: &Table, sql: &str) -> Result<String> {
    let expr = parse::parse_expression(sql)?;
    let mut binder = definition_binder(scope, sql);
    binder.times = Some(Vec::new());
    check(&mut binder, table, &expr)?;
    stored::text(sql, &binder.times.unwrap_or_default())
}

/// What a CHECK constraint mentions, in the order of the text.
pub(crate) fn mentions(scope: &Scope<'_>, table: &Table, sql: &str) -> Result<Vec<Mention>> {
    let expr = parse::parse_expression(sql)?;
    let mut binder = definition_binder(scope, sql);
    binder.mentions = Some(Vec::new());
    check(&mut binder, table, &expr)?;
    let mut mentions = binder.mentions.unwrap_or_default();
    mentions.sort_by_key(|mention| mention.at);
    Ok(mentions)
}

/// The columns among what is mentioned, each once.
pub(crate) fn columns_mentioned(mentions: &[Mention]) -> Vec<ColumnNumber> {
    let mut columns = Vec::new();
    for column in mentions.iter().filter_map(|mention| mention.column) {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

fn definition_binder<'a>(scope: &'a Scope<'a>, sql: &'a str) -> Binder<'a> {
    let mut binder = Binder::new(scope, Some(Places::new(sql, 1)), &[]);
    binder.allows_parameters = false;
    binder
}

fn check<'a>(binder: &mut Binder<'a>, table: &Table, expr: &'a ast::Expr) -> Result<Scalar> {
    binder.push_level(Clause::Check);
    let ids = binder.add_table_columns(table);
    let columns = table.columns.iter().map(|column| column.name.clone()).zip(ids).collect();
    let name = Some(table.name.clone());
    binder.show(Visible {
        name,
        schema: None,
        columns,
        table: None,
        kind: RelationKind::Table,
        optional: false,
        witness: None,
    });
    let typed = binder.expr(expr)?;
    let scalar = binder.condition(typed, "argument of CHECK")?;
    refuse_subqueries(&scalar, "check constraint")?;
    Ok(scalar)
}

/// Binds a column's default, over no columns, cast to the column's type by assignment.
pub fn bind_default(scope: &Scope<'_>, ty: Type, modifier: i32, sql: &str) -> Result<Scalar> {
    let expr = parse::parse_expression(sql)?;
    default(&mut definition_binder(scope, sql), ty, modifier, &expr)
}

/// A default's text as it may stand behind DEFAULT: PostgreSQL's grammar has only some expressions there, and all of them in parentheses.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn default_clause(sql: &str) -> Result<String> {
    let stands_alone = matches!(
        parse::parse_expression(sql)?,
        ast::Expr::Nested(_)
            | ast::Expr::Value(_)
            | ast::Expr::Function(_)
            | ast::Expr::Cast { .. }
            | ast::Expr::TypedString(_)
    );
    Ok(if stands_alone { sql.to_owned() } else { format!("({sql})") })
}

/// A new default's text as it is stored, likewise.
pub fn define_default(scope: &Scope<'_>, ty: Type, modifier: i32, sql: &str) -> Result<String> {
    let expr = parse::parse_expression(sql)?;
    let mut binder = definition_binder(scope, sql);
    binder.times = Some(Vec::new());
    default(&mut binder, ty, modifier, &expr)?;
    stored::text(sql, &binder.times.unwrap_or_default())
}

/// Whether a default's text is a string, which has no type but its column's.
pub fn is_string_literal(sql: &str) -> Result<bool> {
    let expr = parse::parse_expression(sql)?;
    let mut inner = &expr;
    while let ast::Expr::Nested(nested) = inner {
        inner = nested;
    }
    Ok(matches!(inner, ast::Expr::Value(literal) if literal.clone().into_string().is_some()))
}

fn default<'a>(binder: &mut Binder<'a>, ty: Type, modifier: i32, expr: &'a ast::Expr) -> Result<Scalar> {
    binder.push_level(Clause::Default);
    let refers = |error: Error| {
        if error.state() == SqlState::UNDEFINED_COLUMN {
            Error::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot use column reference in DEFAULT expression")
        } else {
            error
        }
    };
    let typed = binder.expr(expr).map_err(refers)?;
    let (from, at) = (typed.ty, typed.position);
    let Ok(typed) = binder.try_coerce(typed, ty, modifier, CastContext::Assignment)? else {
        let message =
            format!("default expression is of type {} but column is of type {}", from.name(), ty.name());
        let error = Error::new(SqlState::DATATYPE_MISMATCH, message)
            .hint("You will need to rewrite or cast the expression.");
        return Err(binder::place(error, at));
    };
    refuse_subqueries(&typed.scalar, "DEFAULT expression")?;
    Ok(typed.scalar)
}

/// Binds an argument of EXECUTE, over no columns, cast by assignment to the type of the parameter with this number.
pub fn bind_argument(scope: &Scope<'_>, number: usize, ty: Type, expr: &ast::Expr) -> Result<Scalar> {
    let mut binder = Binder::new(scope, None, &[]);
    binder.allows_parameters = false;
    binder.push_level(Clause::Argument);
    let typed = binder.expr(expr)?;
    let (from, at) = (typed.ty, typed.position);
    let Ok(typed) = binder.try_coerce(typed, ty, crate::types::NO_MODIFIER, CastContext::Assignment)? else {
        let message = format!(
            "parameter ${number} of type {} cannot be coerced to the expected type {}",
            from.name(),
            ty.name()
        );
        let error = Error::new(SqlState::DATATYPE_MISMATCH, message)
            .hint("You will need to rewrite or cast the expression.");
        return Err(binder::place(error, at));
    };
    refuse_subqueries(&typed.scalar, "EXECUTE parameter")?;
    Ok(typed.scalar)
}

fn refuse_subqueries(scalar: &Scalar, place: &str) -> Result<()> {
    let mut found = matches!(scalar, Scalar::Subquery(_));
    walk::parts(scalar, &mut |child| found |= refuse_subqueries(child, place).is_err());
    if found {
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot use subquery in {place}")));
    }
    Ok(())
}

/// A name as SQL takes it: folded to lower case unless quoted, at most 63 bytes.
pub fn identifier(ident: &ast::Ident) -> Result<String> {
    // Other dialects take strings for aliases.
    if ident.quote_style == Some('\'') {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("syntax error at or near \"'{}'\"", ident.value.replace('\'', "''")),
        ));
    }
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
