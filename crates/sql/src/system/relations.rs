//! Tables, columns, indexes and sequences.

use super::{Each, FALSE, NO_OID, NULL, Rows, SystemTable, TRUE, all, char, float, int, text, vector};
use crate::Result;
use crate::catalog::{BOOTSTRAP_ROLE, Column, ColumnNumber, Index, Oid, PUBLIC, Sequence, Table};
use crate::exec::Context;
use crate::types::{NO_MODIFIER, Type, Value};
use std::collections::HashMap;

/// The access method of tables and indexes in `pg_am`.
const HEAP: u32 = 2;
const BTREE: u32 = 403;
/// The collation of text in `pg_collation`.
pub(super) const DEFAULT_COLLATION: u32 = 100;
pub(super) const C_COLLATION: u32 = 950;
/// The first made-up number of a default.
const FIRST_DEFAULT: u32 = 0x8000_0000;

/// What `pg_class` says of a relation.
struct Class<'a> {
    oid: Oid,
    name: &'a str,
    schema: Oid,
    owner: Oid,
    method: u32,
    kind: char,
    columns: usize,
    checks: usize,
    pages: f64,
    rows: f64,
    has_index: bool,
    has_triggers: bool,
}

impl Class<'_> {
    fn row(self) -> Vec<Value> {
        vec![
            int(self.oid),
            text(self.name),
            int(self.schema),
            NO_OID,
            NO_OID,
            int(self.owner),
            int(self.method),
            int(self.oid),
            NO_OID,
            int(self.pages.min(f64::from(i32::MAX)) as i64),
            float(self.rows),
            int(0),
            NO_OID,
            Value::Bool(self.has_index),
            FALSE,
            char('p'),
            char(self.kind),
            int(self.columns as i64),
            int(self.checks as i64),
            FALSE,
            Value::Bool(self.has_triggers),
            FALSE,
            FALSE,
            FALSE,
            TRUE,
            char(if self.kind == 'r' && self.schema == PUBLIC { 'd' } else { 'n' }),
            FALSE,
            NO_OID,
            int(0),
            int(0),
            NULL,
            NULL,
            NULL,
        ]
    }
}

pub(super) fn classes(context: &Context<'_>, each: Each<'_>) -> Result<()> {
    let catalog = context.catalog;
    for table in catalog.tables.values() {
        let found = catalog.statistics.get(&table.oid);
        let class = Class {
            oid: table.oid,
            name: &table.name,
            schema: PUBLIC,
            owner: table.owner,
            method: HEAP,
            kind: 'r',
            columns: table.columns.len(),
            checks: table.checks.len(),
            pages: found.map_or(0.0, |found| found.pages),
            rows: found.map_or(-1.0, |found| found.rows),
            has_index: !table.indexes.is_empty(),
            // As PostgreSQL says of tables with foreign keys, which are triggers there.
            has_triggers: !table.foreign_keys.is_empty() || !table.referenced_by.is_empty(),
        };
        each(class.row())?;
        for index in &table.indexes {
            let class = Class {
                oid: index.oid,
                name: &index.name,
                schema: PUBLIC,
                owner: table.owner,
                method: BTREE,
                kind: 'i',
                columns: index.columns.len(),
                checks: 0,
                pages: 0.0,
                rows: found.map_or(0.0, |found| found.rows),
                has_index: false,
                has_triggers: false,
            };
            each(class.row())?;
        }
    }
    catalog.sequences.values().try_for_each(|sequence| each(sequence_class(sequence).row()))?;
    all().try_for_each(|table| each(system_class(table).row()))
}

fn sequence_class(sequence: &Sequence) -> Class<'_> {
    Class {
        oid: sequence.oid,
        name: &sequence.name,
        schema: PUBLIC,
        owner: sequence.owner,
        method: 0,
        kind: 'S',
        columns: 3,
        checks: 0,
        pages: 1.0,
        rows: 1.0,
        has_index: false,
        has_triggers: false,
    }
}

fn system_class(table: &SystemTable) -> Class<'_> {
    let view = table.is_view();
    Class {
        oid: table.oid,
        name: table.name,
        schema: table.schema_oid(),
        owner: BOOTSTRAP_ROLE,
        method: if view { 0 } else { HEAP },
        kind: if view { 'v' } else { 'r' },
        columns: table.columns.len(),
        checks: 0,
        pages: 0.0,
        rows: -1.0,
        has_index: false,
        has_triggers: false,
    }
}

/// The collation of a type's values in `pg_collation`.
pub(super) fn collation(ty: Type) -> u32 {
    match ty {
        Type::Text | Type::Varchar | Type::Bpchar | Type::NodeTree => DEFAULT_COLLATION,
        Type::TextArray | Type::VarcharArray | Type::BpcharArray => DEFAULT_COLLATION,
        Type::Name | Type::NameArray => C_COLLATION,
        _ => 0,
    }
}

/// `pg_type.typbyval`
pub(super) fn by_value(ty: Type) -> bool {
    matches!(ty.len(), 1 | 2 | 4 | 8) && ty != Type::Name
}

/// `pg_type.typalign`
pub(super) fn alignment(ty: Type) -> char {
    match ty {
        Type::Bool | Type::Char | Type::Name | Type::Unknown => 'c',
        Type::Int2 => 's',
        Type::Int8 | Type::Float8 | Type::Timestamp | Type::TimestampTz | Type::Record => 'd',
        _ => {
            let wide = [Type::Int8, Type::Float8, Type::Timestamp, Type::TimestampTz];
            if ty.element().is_some_and(|element| wide.contains(&element)) { 'd' } else { 'i' }
        }
    }
}

/// `pg_type.typstorage`
pub(super) fn storage(ty: Type) -> char {
    match ty {
        Type::Numeric => 'm',
        Type::Int2Vector | Type::OidVector | Type::Unknown => 'p',
        _ if ty.len() == -1 => 'x',
        _ => 'p',
    }
}

struct Attribute<'a> {
    relation: Oid,
    name: &'a str,
    ty: Type,
    modifier: i32,
    number: i64,
    not_null: bool,
    default: bool,
    missing: Option<&'a str>,
    identity: bool,
}

impl Attribute<'_> {
    fn row(self) -> Vec<Value> {
        let ty = self.ty;
        vec![
            int(self.relation),
            text(self.name),
            int(ty.oid()),
            int(-1),
            int(ty.len()),
            int(self.number),
            int(i64::from(ty.element().is_some())),
            int(-1),
            int(self.modifier),
            Value::Bool(by_value(ty)),
            char(alignment(ty)),
            char(storage(ty)),
            text(""),
            Value::Bool(self.not_null),
            Value::Bool(self.default),
            Value::Bool(self.missing.is_some()),
            text(if self.identity { "d" } else { "" }),
            text(""),
            FALSE,
            TRUE,
            int(0),
            int(collation(ty)),
            NULL,
            NULL,
            NULL,
            super::optional(self.missing, |missing| text(format!("{{{missing}}}"))),
        ]
    }
}

/// The sequences of columns with an identity, by table and column.
pub(super) fn identities<'a>(context: &'a Context<'_>) -> HashMap<(Oid, ColumnNumber), &'a Sequence> {
    let sequences = context.catalog.sequences.values().filter(|sequence| sequence.identity);
    sequences.filter_map(|sequence| Some((sequence.owned_by?, &**sequence))).collect()
}

pub(super) fn attributes(context: &Context<'_>, each: Each<'_>) -> Result<()> {
    let identities = identities(context);
    for table in context.catalog.tables.values() {
        for column in &table.columns {
            let identity = identities.contains_key(&(table.oid, column.number));
            each(
                Attribute {
                    relation: table.oid,
                    name: &column.name,
                    ty: column.ty,
                    modifier: column.modifier,
                    number: i64::from(column.number),
                    not_null: column.not_null,
                    default: column.default.is_some() && !identity,
                    missing: column.missing.as_deref(),
                    identity,
                }
                .row(),
            )?;
        }
        for index in &table.indexes {
            index_attributes(table, index).try_for_each(&mut *each)?;
        }
    }
    for sequence in context.catalog.sequences.values() {
        let columns = [("last_value", Type::Int8), ("log_cnt", Type::Int8), ("is_called", Type::Bool)];
        fixed_attributes(sequence.oid, &columns, true).try_for_each(&mut *each)?;
    }
    for table in all() {
        fixed_attributes(table.oid, table.columns, false).try_for_each(&mut *each)?;
    }
    Ok(())
}

fn index_attributes<'a>(table: &'a Table, index: &'a Index) -> impl Iterator<Item = Vec<Value>> + 'a {
    (1..).zip(&index.columns).filter_map(|(number, column)| {
        let column = table.column(column.column)?;
        let attribute = Attribute {
            relation: index.oid,
            name: &column.name,
            ty: column.ty,
            modifier: column.modifier,
            number,
            not_null: false,
            default: false,
            missing: None,
            identity: false,
        };
        Some(attribute.row())
    })
}

fn fixed_attributes<'a>(
    relation: Oid,
    columns: &'a [(&'a str, Type)],
    not_null: bool,
) -> impl Iterator<Item = Vec<Value>> + 'a {
    (1..).zip(columns).map(move |(number, (name, ty))| {
        let attribute = Attribute {
            relation,
            name,
            ty: *ty,
            modifier: NO_MODIFIER,
            number,
            not_null,
            default: false,
            missing: None,
            identity: false,
        };
        attribute.row()
    })
}

/// Defaults, each with a made-up number. (They have none of their own: they are part of their table.)
pub(super) fn numbered_defaults<'a>(
    context: &'a Context<'_>,
) -> impl Iterator<Item = (Oid, &'a Table, &'a Column, &'a str)> {
    let columns = context.catalog.tables.values().flat_map(|table| {
        table.columns.iter().filter_map(move |column| Some((&**table, column, column.default.as_deref()?)))
    });
    (FIRST_DEFAULT..).zip(columns).map(|(oid, (table, column, default))| (oid, table, column, default))
}

pub(super) fn defaults(context: &Context<'_>) -> Rows {
    let identities = identities(context);
    let rows = numbered_defaults(context)
        .filter(|(_, table, column, _)| !identities.contains_key(&(table.oid, column.number)))
        .map(|(oid, table, column, default)| {
            vec![int(oid), int(table.oid), int(column.number), text(default)]
        });
    Ok(rows.collect())
}

/// The operator class of a type's order in `pg_opclass`: PostgreSQL's numbers are not fixed, those of a fresh installation are taken.
fn operator_class(ty: Type) -> u32 {
    match ty {
        Type::Int8 => 3124,
        Type::Int4 => 1978,
        Type::Int2 => 1979,
        Type::Oid => 1981,
        Type::Text | Type::Varchar => 3126,
        Type::Timestamp => 3128,
        Type::TimestampTz => 3127,
        Type::Date => 3122,
        Type::Numeric => 3125,
        Type::Float8 => 3123,
        _ => 0,
    }
}

pub(super) fn indexes(context: &Context<'_>) -> Rows {
    let mut rows = Vec::new();
    for table in context.catalog.tables.values() {
        for index in &table.indexes {
            let types: Vec<Type> = index
                .columns
                .iter()
                .map(|column| table.column(column.column).map_or(Type::Unknown, |column| column.ty))
                .collect();
            let numbers = index.columns.iter().map(|column| int(column.column)).collect();
            let options = index
                .columns
                .iter()
                .map(|column| int(i64::from(column.descending) | i64::from(column.nulls_first) << 1));
            let count = int(index.columns.len() as i64);
            rows.push(vec![
                int(index.oid),
                int(table.oid),
                count.clone(),
                count,
                Value::Bool(index.unique),
                FALSE,
                Value::Bool(index.primary),
                FALSE,
                TRUE,
                FALSE,
                TRUE,
                FALSE,
                TRUE,
                TRUE,
                FALSE,
                vector(Type::Int2, numbers),
                vector(Type::Oid, types.iter().map(|&ty| int(collation(ty))).collect()),
                vector(Type::Oid, types.iter().map(|&ty| int(operator_class(ty))).collect()),
                vector(Type::Int2, options.collect()),
                NULL,
                NULL,
            ]);
        }
    }
    Ok(rows)
}

pub(super) fn sequences(context: &Context<'_>) -> Rows {
    let row = |sequence: &Sequence| {
        vec![
            int(sequence.oid),
            int(sequence.ty.oid()),
            int(sequence.start),
            int(sequence.increment),
            int(sequence.maximum),
            int(sequence.minimum),
            int(1),
            Value::Bool(sequence.cycle),
        ]
    };
    Ok(context.catalog.sequences.values().map(|sequence| row(sequence)).collect())
}
