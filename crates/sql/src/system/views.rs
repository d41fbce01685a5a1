//! The views `pg_tables`, `pg_indexes`, `pg_sequences`, `pg_stats`.

use super::{FALSE, NULL, Rows, SystemTable, all, array, definition, float, int, text};
use crate::catalog::{BOOTSTRAP_ROLE, ColumnStatistics, Oid};
use crate::exec::Context;
use crate::types::{Type, Value};

/// The name of a role.
fn owner(context: &Context<'_>, oid: Oid) -> Value {
    super::optional(context.catalog.roles.get(&oid), |role| text(&role.name))
}

pub(super) fn tables(context: &Context<'_>) -> Rows {
    let mut rows = Vec::new();
    for table in context.catalog.tables.values() {
        let keys = !table.foreign_keys.is_empty() || !table.referenced_by.is_empty();
        rows.push(vec![
            text("public"),
            text(&table.name),
            owner(context, table.owner),
            NULL,
            Value::Bool(!table.indexes.is_empty()),
            FALSE,
            Value::Bool(keys),
            FALSE,
        ]);
    }
    let system = |table: &SystemTable| {
        let owner = owner(context, BOOTSTRAP_ROLE);
        vec![text(table.schema), text(table.name), owner, NULL, FALSE, FALSE, FALSE, FALSE]
    };
    rows.extend(all().filter(|table| !table.is_view()).map(system));
    Ok(rows)
}

pub(super) fn indexes(context: &Context<'_>) -> Rows {
    let mut rows = Vec::new();
    for table in context.catalog.tables.values() {
        for index in &table.indexes {
            rows.push(vec![
                text("public"),
                text(&table.name),
                text(&index.name),
                NULL,
                text(definition::index(table, index, false)),
            ]);
        }
    }
    Ok(rows)
}

pub(super) fn sequences(context: &Context<'_>) -> Rows {
    let mut rows = Vec::new();
    for sequence in context.catalog.sequences.values() {
        let position = context.session.sequence_position(context.view, sequence)?;
        rows.push(vec![
            text("public"),
            text(&sequence.name),
            owner(context, sequence.owner),
            int(sequence.ty.oid()),
            int(sequence.start),
            int(sequence.minimum),
            int(sequence.maximum),
            int(sequence.increment),
            Value::Bool(sequence.cycle),
            int(1),
            if position.called { int(position.value) } else { NULL },
        ]);
    }
    Ok(rows)
}

/// Texts of values, as an array of any type has them.
fn values<'a>(texts: impl Iterator<Item = &'a String>) -> String {
    let quoted = texts.map(|text| {
        let plain = !text.is_empty()
            && !text.eq_ignore_ascii_case("null")
            && !text.contains(['{', '}', ',', '"', '\\'])
            && !text.contains(char::is_whitespace);
        if plain { text.clone() } else { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) }
    });
    format!("{{{}}}", quoted.collect::<Vec<_>>().join(","))
}

pub(super) fn statistics(context: &Context<'_>) -> Rows {
    let mut rows = Vec::new();
    for (oid, found) in &context.catalog.statistics {
        let Some(table) = context.catalog.tables.get(oid) else { continue };
        for (&number, column) in &found.columns {
            let Some(of) = table.column(number) else { continue };
            rows.push(statistics_row(&table.name, &of.name, column));
        }
    }
    Ok(rows)
}

fn statistics_row(table: &str, name: &str, column: &ColumnStatistics) -> Vec<Value> {
    let ColumnStatistics { null_fraction, width, distinct, common, histogram, correlation } = column;
    let shares = common.iter().map(|(_, share)| float(*share)).collect();
    vec![
        text("public"),
        text(table),
        text(name),
        FALSE,
        float(*null_fraction),
        int(width.round() as i64),
        float(*distinct),
        if common.is_empty() { NULL } else { text(values(common.iter().map(|(value, _)| value))) },
        if common.is_empty() { NULL } else { array(Type::Float4, shares) },
        if histogram.is_empty() { NULL } else { text(values(histogram.iter())) },
        float(*correlation),
        NULL,
        NULL,
        NULL,
    ]
}
