//! Constraints, and what depends on what.

use super::{FALSE, NO_OID, NULL, Rows, TRUE, array, char, int, relations, text};
use crate::catalog::{ColumnNumber, Oid, PUBLIC, ReferentialAction, Relation, Table};
use crate::exec::Context;
use crate::types::{Type, Value};

/// `pg_class` in `pg_depend`.
const PG_CLASS: u32 = 1259;
const PG_ATTRDEF: u32 = 2604;
const PG_CONSTRAINT: u32 = 2606;

struct Constraint<'a> {
    oid: Oid,
    name: &'a str,
    kind: char,
    table: Oid,
    index: Oid,
    columns: Vec<ColumnNumber>,
    /// Parent, its columns, and what happens on an update and a delete.
    foreign: Option<(Oid, &'a [ColumnNumber], ReferentialAction, ReferentialAction)>,
    condition: Option<&'a str>,
}

fn action(action: ReferentialAction) -> char {
    match action {
        ReferentialAction::NoAction => 'a',
        ReferentialAction::Restrict => 'r',
        ReferentialAction::Cascade => 'c',
        ReferentialAction::SetNull => 'n',
        ReferentialAction::SetDefault => 'd',
    }
}

fn numbers(columns: &[ColumnNumber]) -> Value {
    array(Type::Int2, columns.iter().map(|&number| int(number)).collect())
}

impl Constraint<'_> {
    fn row(self) -> Vec<Value> {
        let (parent, parent_columns, update, delete, matching) = match self.foreign {
            Some((parent, columns, update, delete)) => {
                (int(parent), numbers(columns), char(action(update)), char(action(delete)), char('s'))
            }
            None => (NO_OID, NULL, text(" "), text(" "), text(" ")),
        };
        vec![
            int(self.oid),
            text(self.name),
            int(PUBLIC),
            char(self.kind),
            FALSE,
            FALSE,
            TRUE,
            int(self.table),
            NO_OID,
            int(self.index),
            NO_OID,
            parent,
            update,
            delete,
            matching,
            TRUE,
            int(0),
            Value::Bool(self.kind != 'c'),
            if self.columns.is_empty() { NULL } else { numbers(&self.columns) },
            parent_columns,
            NULL,
            NULL,
            NULL,
            NULL,
            NULL,
            super::optional(self.condition, text),
        ]
    }
}

fn of_table<'t>(context: &Context<'_>, table: &'t Table) -> Vec<Constraint<'t>> {
    let mut constraints = Vec::new();
    for index in &table.indexes {
        if let Some(oid) = index.constraint {
            constraints.push(Constraint {
                oid,
                name: &index.name,
                kind: if index.primary { 'p' } else { 'u' },
                table: table.oid,
                index: index.oid,
                columns: index.columns.iter().map(|column| column.column).collect(),
                foreign: None,
                condition: None,
            });
        }
    }
    for check in &table.checks {
        constraints.push(Constraint {
            oid: check.oid,
            name: &check.name,
            kind: 'c',
            table: table.oid,
            index: 0,
            columns: super::check_columns(context, table, check),
            foreign: None,
            condition: Some(&check.expression),
        });
    }
    for key in &table.foreign_keys {
        constraints.push(Constraint {
            oid: key.oid,
            name: &key.name,
            kind: 'f',
            table: table.oid,
            index: key.parent_index,
            columns: key.columns.clone(),
            foreign: Some((key.parent, &key.parent_columns, key.on_update, key.on_delete)),
            condition: None,
        });
    }
    constraints
}

pub(super) fn constraints(context: &Context<'_>) -> Rows {
    let mut rows = Vec::new();
    for table in context.catalog.tables.values() {
        rows.extend(of_table(context, table).into_iter().map(Constraint::row));
    }
    Ok(rows)
}

/// An object, or a part of it: table of the catalog, number, number of the part.
type Object = (u32, Oid, i64);

fn dependency(object: Object, on: Object, kind: char) -> Vec<Value> {
    vec![int(object.0), int(object.1), int(object.2), int(on.0), int(on.1), int(on.2), char(kind)]
}

pub(super) fn dependencies(context: &Context<'_>) -> Rows {
    let catalog = context.catalog;
    let mut rows = Vec::new();
    for sequence in catalog.sequences.values() {
        if let Some((table, column)) = sequence.owned_by {
            let kind = if sequence.identity { 'i' } else { 'a' };
            rows.push(dependency((PG_CLASS, sequence.oid, 0), (PG_CLASS, table, i64::from(column)), kind));
        }
    }
    for (oid, table, column, default) in relations::numbered_defaults(context) {
        let column = (PG_CLASS, table.oid, i64::from(column.number));
        rows.push(dependency((PG_ATTRDEF, oid, 0), column, 'a'));
        for name in crate::ddl::sequences_mentioned(default)? {
            if let Some(Relation::Sequence(sequence)) = catalog.names.get(&name) {
                rows.push(dependency((PG_ATTRDEF, oid, 0), (PG_CLASS, *sequence, 0), 'n'));
            }
        }
    }
    for table in catalog.tables.values() {
        for index in &table.indexes {
            match index.constraint {
                Some(constraint) => {
                    let on = (PG_CONSTRAINT, constraint, 0);
                    rows.push(dependency((PG_CLASS, index.oid, 0), on, 'i'));
                    for column in &index.columns {
                        let column = (PG_CLASS, table.oid, i64::from(column.column));
                        rows.push(dependency(on, column, 'a'));
                    }
                }
                None => {
                    for column in &index.columns {
                        let column = (PG_CLASS, table.oid, i64::from(column.column));
                        rows.push(dependency((PG_CLASS, index.oid, 0), column, 'a'));
                    }
                }
            }
        }
        for key in &table.foreign_keys {
            rows.push(dependency((PG_CONSTRAINT, key.oid, 0), (PG_CLASS, key.parent_index, 0), 'n'));
        }
    }
    Ok(rows)
}
