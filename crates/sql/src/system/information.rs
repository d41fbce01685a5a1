//! `information_schema`.

use super::relations::identities;
use super::{Each, NULL, Rows, SystemTable, all, definition, int, text, yes};
use crate::Result;
use crate::catalog::{BOOTSTRAP_ROLE, Column, ColumnNumber, Index, ReferentialAction, Sequence, Table};
use crate::exec::Context;
use crate::types::{NO_MODIFIER, Type, Value};

fn database(context: &Context<'_>) -> Value {
    text(&context.session.database)
}

fn public() -> Value {
    text("public")
}

pub(super) fn tables(context: &Context<'_>) -> Rows {
    let row = |schema: &str, name: &str, kind: &str, writable: bool| {
        let no = text("NO");
        let kind = text(kind);
        let database = database(context);
        let writable = yes(writable);
        vec![database, text(schema), text(name), kind, NULL, NULL, NULL, NULL, NULL, writable, no, NULL]
    };
    let system = |table: &SystemTable| {
        let kind = if table.is_view() { "VIEW" } else { "BASE TABLE" };
        row(table.schema, table.name, kind, false)
    };
    let users = context.catalog.tables.values().map(|table| row("public", &table.name, "BASE TABLE", true));
    Ok(users.chain(all().map(system)).collect())
}

/// Lengths and precisions: of strings in characters and bytes; of numbers with base and scale; of times.
fn sizes(ty: Type, modifier: i32) -> [Value; 6] {
    let mut sizes = [NULL, NULL, NULL, NULL, NULL, NULL];
    match ty {
        Type::Text => sizes[1] = int(1_i64 << 30),
        Type::Varchar | Type::Bpchar => {
            let length = i64::from(modifier) - 4;
            if modifier >= 0 {
                sizes[0] = int(length);
            }
            sizes[1] = int(if modifier >= 0 { (length * 4).min(1 << 30) } else { 1 << 30 });
        }
        Type::Int2 | Type::Int4 | Type::Int8 => {
            sizes[2] = int(i64::from(ty.len()) * 8);
            sizes[3] = int(2);
            sizes[4] = int(0);
        }
        Type::Float4 | Type::Float8 => {
            sizes[2] = int(if ty == Type::Float4 { 24 } else { 53 });
            sizes[3] = int(2);
        }
        Type::Numeric => {
            sizes[3] = int(10);
            if modifier >= 0 {
                let packed = modifier - 4;
                sizes[2] = int(packed >> 16 & 0xffff);
                sizes[4] = int(((packed & 0x7ff) ^ 1024) - 1024);
            }
        }
        Type::Date => sizes[5] = int(0),
        Type::Timestamp | Type::TimestampTz => sizes[5] = int(if modifier >= 0 { modifier } else { 6 }),
        _ => {}
    }
    sizes
}

/// A column of a table or view.
struct Described<'a> {
    schema: &'a str,
    table: &'a str,
    number: i64,
    name: &'a str,
    ty: Type,
    modifier: i32,
    not_null: bool,
    default: Option<&'a str>,
    identity: Option<&'a Sequence>,
    writable: bool,
}

impl Described<'_> {
    fn row(&self, context: &Context<'_>) -> Vec<Value> {
        let number = self.number;
        let [characters, bytes, precision, radix, scale, time] = sizes(self.ty, self.modifier);
        let type_name = if self.ty.element().is_some() { "ARRAY" } else { self.ty.name() };
        let identity = |of: &dyn Fn(&Sequence) -> String| super::optional(self.identity, |s| text(of(s)));
        let mut row = vec![
            database(context),
            text(self.schema),
            text(self.table),
            text(self.name),
            int(number),
            super::optional(self.default, text),
            yes(!self.not_null),
            text(type_name),
            characters,
            bytes,
            precision,
            radix,
            scale,
            time,
        ];
        // Intervals, character sets, collations and domains.
        row.extend(std::iter::repeat_n(NULL, 11));
        row.extend([database(context), text("pg_catalog"), text(self.ty.internal_name())]);
        row.extend([NULL, NULL, NULL, NULL, text(number.to_string()), yes(false)]);
        row.extend([
            yes(self.identity.is_some()),
            super::optional(self.identity, |_| text("BY DEFAULT")),
            identity(&|sequence| sequence.start.to_string()),
            identity(&|sequence| sequence.increment.to_string()),
            identity(&|sequence| sequence.maximum.to_string()),
            identity(&|sequence| sequence.minimum.to_string()),
            yes(self.identity.is_some_and(|sequence| sequence.cycle)),
            text("NEVER"),
            NULL,
            yes(self.writable),
        ]);
        row
    }
}

fn describe<'a>(table: &'a Table, column: &'a Column, identity: Option<&'a Sequence>) -> Described<'a> {
    Described {
        schema: "public",
        table: &table.name,
        number: i64::from(column.number),
        name: &column.name,
        ty: column.ty,
        modifier: column.modifier,
        not_null: column.not_null,
        default: if identity.is_some() { None } else { column.default.as_deref() },
        identity,
        writable: true,
    }
}

pub(super) fn columns(context: &Context<'_>, each: Each<'_>) -> Result<()> {
    let identities = identities(context);
    for table in context.catalog.tables.values() {
        for column in &table.columns {
            let identity = identities.get(&(table.oid, column.number)).copied();
            each(describe(table, column, identity).row(context))?;
        }
    }
    for table in all() {
        for (number, (name, ty)) in (1..).zip(table.columns) {
            let described = Described {
                schema: table.schema,
                table: table.name,
                number,
                name,
                ty: *ty,
                modifier: NO_MODIFIER,
                not_null: false,
                default: None,
                identity: None,
                writable: false,
            };
            each(described.row(context))?;
        }
    }
    Ok(())
}

pub(super) fn table_constraints(context: &Context<'_>) -> Rows {
    let row = |table: &Table, name: &str, kind: &str| {
        let unique = if kind == "UNIQUE" { yes(true) } else { NULL };
        vec![
            database(context),
            public(),
            text(name),
            database(context),
            public(),
            text(&table.name),
            text(kind),
            yes(false),
            yes(false),
            yes(true),
            unique,
        ]
    };
    let mut rows = Vec::new();
    for table in context.catalog.tables.values() {
        for index in table.indexes.iter().filter(|index| index.constraint.is_some()) {
            rows.push(row(table, &index.name, if index.primary { "PRIMARY KEY" } else { "UNIQUE" }));
        }
        rows.extend(table.checks.iter().map(|check| row(table, &check.name, "CHECK")));
        rows.extend(table.foreign_keys.iter().map(|key| row(table, &key.name, "FOREIGN KEY")));
        // A column that refuses NULL counts as a constraint, under a made-up name.
        for column in table.columns.iter().filter(|column| column.not_null) {
            rows.push(row(table, &not_null_name(table, column), "CHECK"));
        }
    }
    Ok(rows)
}

fn not_null_name(table: &Table, column: &Column) -> String {
    format!("{}_{}_{}_not_null", crate::catalog::PUBLIC, table.oid, column.number)
}

fn index_columns(index: &Index) -> Vec<ColumnNumber> {
    index.columns.iter().map(|column| column.column).collect()
}

pub(super) fn key_column_usage(context: &Context<'_>) -> Rows {
    let mut rows = Vec::new();
    let mut push = |table: &Table, name: &str, columns: &[ColumnNumber], places: Option<Vec<i64>>| {
        for (place, &number) in columns.iter().enumerate() {
            let Some(column) = table.column(number) else { continue };
            let referred = places.as_ref().and_then(|places| places.get(place));
            rows.push(vec![
                database(context),
                public(),
                text(name),
                database(context),
                public(),
                text(&table.name),
                text(&column.name),
                int(place as i64 + 1),
                super::optional(referred, |place| int(*place)),
            ]);
        }
    };
    for table in context.catalog.tables.values() {
        for index in table.indexes.iter().filter(|index| index.constraint.is_some()) {
            push(table, &index.name, &index_columns(index), None);
        }
        for key in &table.foreign_keys {
            let parent = context.catalog.tables.get(&key.parent);
            let index =
                parent.and_then(|parent| parent.indexes.iter().find(|index| index.oid == key.parent_index));
            let places = index.map(|index| {
                let of = index_columns(index);
                let place = |number| of.iter().position(|other| other == number).unwrap_or(0) as i64 + 1;
                key.parent_columns.iter().map(place).collect()
            });
            push(table, &key.name, &key.columns, places);
        }
    }
    Ok(rows)
}

pub(super) fn schemata(context: &Context<'_>) -> Rows {
    let owner = context.catalog.roles.get(&BOOTSTRAP_ROLE);
    let row = |name: &str| {
        let owner = super::optional(owner, |role| text(&role.name));
        vec![database(context), text(name), owner, NULL, NULL, NULL, NULL]
    };
    Ok(["pg_catalog", "public", "information_schema"].map(row).into())
}

fn rule(action: ReferentialAction) -> Value {
    text(match action {
        ReferentialAction::NoAction => "NO ACTION",
        ReferentialAction::Restrict => "RESTRICT",
        ReferentialAction::Cascade => "CASCADE",
        ReferentialAction::SetNull => "SET NULL",
        ReferentialAction::SetDefault => "SET DEFAULT",
    })
}

pub(super) fn referential_constraints(context: &Context<'_>) -> Rows {
    let mut rows = Vec::new();
    for table in context.catalog.tables.values() {
        for key in &table.foreign_keys {
            let index = definition::find_index(context.catalog, key.parent_index);
            let constraint = index.filter(|(_, index)| index.constraint.is_some());
            let known = |value: Value| if constraint.is_some() { value } else { NULL };
            rows.push(vec![
                database(context),
                public(),
                text(&key.name),
                known(database(context)),
                known(public()),
                super::optional(constraint, |(_, index)| text(&index.name)),
                text("NONE"),
                rule(key.on_update),
                rule(key.on_delete),
            ]);
        }
    }
    Ok(rows)
}

pub(super) fn constraint_column_usage(context: &Context<'_>) -> Rows {
    let mut rows = Vec::new();
    let mut push = |table: &Table, constraint: &str, columns: &[ColumnNumber]| {
        for column in columns.iter().filter_map(|&number| table.column(number)) {
            rows.push(vec![
                database(context),
                public(),
                text(&table.name),
                text(&column.name),
                database(context),
                public(),
                text(constraint),
            ]);
        }
    };
    for table in context.catalog.tables.values() {
        for index in table.indexes.iter().filter(|index| index.constraint.is_some()) {
            push(table, &index.name, &index_columns(index));
        }
        for check in &table.checks {
            push(table, &check.name, &super::check_columns(context, table, check));
        }
        for key in &table.foreign_keys {
            if let Some(parent) = context.catalog.tables.get(&key.parent) {
                push(parent, &key.name, &key.parent_columns);
            }
        }
    }
    Ok(rows)
}

pub(super) fn check_constraints(context: &Context<'_>) -> Rows {
    let row = |name: &str, clause: String| vec![database(context), public(), text(name), text(clause)];
    let mut rows = Vec::new();
    for table in context.catalog.tables.values() {
        rows.extend(table.checks.iter().map(|check| row(&check.name, format!("(({}))", check.expression))));
        for column in table.columns.iter().filter(|column| column.not_null) {
            rows.push(row(&not_null_name(table, column), format!("{} IS NOT NULL", column.name)));
        }
    }
    Ok(rows)
}

pub(super) fn sequences(context: &Context<'_>) -> Rows {
    let row = |sequence: &Sequence| {
        vec![
            database(context),
            public(),
            text(&sequence.name),
            text(sequence.ty.name()),
            int(i64::from(sequence.ty.len()) * 8),
            int(2),
            int(0),
            text(sequence.start.to_string()),
            text(sequence.minimum.to_string()),
            text(sequence.maximum.to_string()),
            text(sequence.increment.to_string()),
            yes(sequence.cycle),
        ]
    };
    // Those of identity columns are part of their column.
    let listed = context.catalog.sequences.values().filter(|sequence| !sequence.identity);
    Ok(listed.map(|sequence| row(sequence)).collect())
}
