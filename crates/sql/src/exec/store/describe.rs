//! Rows and keys in messages.

use super::super::Context;
use crate::catalog::{Column, ColumnNumber, Index, Table};
use crate::types::{Value, text};
use crate::{Error, SqlState};

/// Most bytes of a value within a row.
const MOST_BYTES: usize = 64;

fn text_of(value: &Value, column: &Column, context: &Context<'_>) -> String {
    let mut out = String::new();
    match value {
        Value::Null => out.push_str("null"),
        value => text::write(value, column.ty, &context.session.style, &mut out),
    }
    out
}

/// `Failing row contains (1, null, abc).`
fn failing_row(table: &Table, row: &[Value], context: &Context<'_>) -> String {
    let values = row.iter().zip(&table.columns).map(|(value, column)| {
        let mut text = text_of(value, column, context);
        if text.len() > MOST_BYTES {
            let most = (0..=MOST_BYTES).rev().find(|length| text.is_char_boundary(*length));
            text.truncate(most.unwrap_or(0));
            text.push_str("...");
        }
        text
    });
    format!("Failing row contains ({}).", values.collect::<Vec<_>>().join(", "))
}

/// `Key (a, b)=(1, x)`
pub(super) fn key<'v>(
    table: &Table,
    columns: &[ColumnNumber],
    values: impl Iterator<Item = &'v Value>,
    context: &Context<'_>,
) -> String {
    let columns: Vec<&Column> = columns.iter().filter_map(|number| table.column(*number)).collect();
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let values: Vec<String> =
        values.zip(&columns).map(|(value, column)| text_of(value, column, context)).collect();
    format!("Key ({})=({})", names.join(", "), values.join(", "))
}

/// A row that was waited for and has another primary key now.
pub(super) fn moved() -> Error {
    Error::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
        .detail("The primary key of a row was changed meanwhile.")
}

/// A row that was waited for differs in what a part of the query was computed of.
pub(super) fn stale() -> Error {
    Error::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
        .detail("A column that a lateral subquery or a joined column depends on was changed meanwhile.")
}

/// NULL in a column that has none.
pub(super) fn null_value(table: &Table, column: &Column, row: &[Value], context: &Context<'_>) -> Error {
    let message = format!(
        "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
        column.name, table.name
    );
    Error::new(SqlState::NOT_NULL_VIOLATION, message)
        .detail(failing_row(table, row, context))
        .table("public", &table.name)
        .column(&column.name)
}

/// A row that a CHECK constraint refuses.
pub(super) fn check(table: &Table, name: &str, row: &[Value], context: &Context<'_>) -> Error {
    let message = format!("new row for relation \"{}\" violates check constraint \"{name}\"", table.name);
    Error::new(SqlState::CHECK_VIOLATION, message)
        .detail(failing_row(table, row, context))
        .table("public", &table.name)
        .constraint(name)
}

/// A key that is there already.
pub(super) fn duplicate(table: &Table, index: &Index, row: &[Value], context: &Context<'_>) -> Error {
    let columns: Vec<ColumnNumber> = index.columns.iter().map(|column| column.column).collect();
    let values = columns.iter().filter_map(|number| row.get(table.position(*number)?));
    let message = format!("duplicate key value violates unique constraint \"{}\"", index.name);
    Error::new(SqlState::UNIQUE_VIOLATION, message)
        .detail(format!("{} already exists.", key(table, &columns, values, context)))
        .table("public", &table.name)
        .constraint(&index.name)
}

/// A wait for a row that took too long.
pub(super) fn waited_too_long(error: gannet_store::Error) -> Error {
    match error {
        gannet_store::Error::Locked(_) => {
            Error::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
        }
        other => other.into(),
    }
}
