//! Rules that are added to a table with rows: whether the rows follow them. Each is a query that looks for one row that does not, over what
//! is committed once the exclusive lock was had.

use super::build::{contains_null, show};
use super::text::quote;
use super::{DdlContext, names};
use crate::catalog::{Check, Column, ForeignKey, Table};
use crate::types::Value;
use crate::{Error, Result, SqlState};

/// Most bytes of a value within a row that is shown.
const SHOWN_BYTES: usize = 64;
/// A value of more bytes is not written for that.
const LONG_BYTES: usize = 64 << 10;

fn from(table: &Table) -> String {
    format!("public.{}", quote(&table.name))
}

/// No row has NULL in a column.
pub(super) fn not_null(context: &DdlContext<'_>, table: &Table, column: &Column) -> Result<()> {
    let sql = format!("SELECT 1 FROM {} WHERE {} IS NULL LIMIT 1", from(table), quote(&column.name));
    if context.query(&sql, 1)?.is_empty() { Ok(()) } else { Err(contains_null(table, &column.name)) }
}

/// No row has a false condition.
pub(super) fn check(context: &DdlContext<'_>, table: &Table, check: &Check) -> Result<()> {
    debug_assert!(names::has_constraint(table, &check.name), "the constraint is part of the table");
    let sql = format!("SELECT 1 FROM {} WHERE NOT ({}) LIMIT 1", from(table), check.expression);
    if context.query(&sql, 1)?.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        SqlState::CHECK_VIOLATION,
        format!("check constraint \"{}\" of relation \"{}\" is violated by some row", check.name, table.name),
    )
    .table("public", &table.name)
    .constraint(&check.name))
}

/// As [`check`], for rows of which nobody knows where they came from: the error shows one.
pub(super) fn check_naming_row(context: &DdlContext<'_>, table: &Table, check: &Check) -> Result<()> {
    let error = match self::check(context, table, check) {
        Err(error) if error.state() == SqlState::CHECK_VIOLATION => error,
        checked => return checked,
    };
    // Looked for once more: most tables have no such row, and need not be read as a whole.
    let sql = format!("SELECT * FROM {} WHERE NOT ({}) LIMIT 1", from(table), check.expression);
    let rows = match context.query(&sql, 1) {
        Ok(rows) => rows,
        Err(other) if other.state() == SqlState::QUERY_CANCELED => return Err(other),
        // It is not to be told in place of the first one.
        Err(_) => return Err(error),
    };
    let Some(row) = rows.first() else { return Err(error) };
    let shown = |(value, column): (&Value, &Column)| {
        if value.heap_bytes() > LONG_BYTES {
            return "...".to_owned();
        }
        let mut text = show(context, value, column.ty);
        if text.len() > SHOWN_BYTES {
            let end = (0..=SHOWN_BYTES).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
            text.push_str("...");
        }
        text
    };
    let values: Vec<String> = row.iter().zip(&table.columns).map(shown).collect();
    Err(error.detail(format!("Failing row contains ({}).", values.join(", "))))
}

/// Every row refers to one that is there.
pub(super) fn foreign_key(
    context: &DdlContext<'_>,
    table: &Table,
    parent: &Table,
    key: &ForeignKey,
) -> Result<()> {
    let column = |table: &Table, number| {
        table.column(number).cloned().ok_or_else(|| Error::internal("a foreign key without its column"))
    };
    let children = key.columns.iter().map(|&number| column(table, number)).collect::<Result<Vec<_>>>()?;
    let parents =
        key.parent_columns.iter().map(|&number| column(parent, number)).collect::<Result<Vec<_>>>()?;
    let child = |column: &Column| format!("c.{}", quote(&column.name));
    let selected: Vec<String> = children.iter().map(child).collect();
    let present: Vec<String> = selected.iter().map(|column| format!("{column} IS NOT NULL")).collect();
    let equal: Vec<String> = selected
        .iter()
        .zip(&parents)
        .map(|(child, parent)| format!("p.{} = {child}", quote(&parent.name)))
        .collect();
    let sql = format!(
        "SELECT {} FROM {} AS c WHERE {} AND NOT EXISTS (SELECT 1 FROM {} AS p WHERE {}) LIMIT 1",
        selected.join(", "),
        from(table),
        present.join(" AND "),
        from(parent),
        equal.join(" AND ")
    );
    let rows = context.query(&sql, 1)?;
    let Some(row) = rows.first() else { return Ok(()) };
    let names: Vec<&str> = children.iter().map(|column| column.name.as_str()).collect();
    let values: Vec<String> =
        row.iter().zip(&children).map(|(value, column)| show(context, value, column.ty)).collect();
    Err(Error::new(
        SqlState::FOREIGN_KEY_VIOLATION,
        format!(
            "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
            table.name, key.name
        ),
    )
    .detail(format!(
        "Key ({})=({}) is not present in table \"{}\".",
        names.join(", "),
        values.join(", "),
        parent.name
    ))
    .table("public", &table.name)
    .constraint(&key.name))
}
