//! Definitions as SQL text, as `pg_get_indexdef` and its kin give them.

use crate::catalog::{Catalog, Check, ColumnNumber, ForeignKey, Index, Oid, ReferentialAction, Table};
pub use crate::types::text::quote_identifier;

fn names(table: &Table, columns: &[ColumnNumber]) -> String {
    let names = columns.iter().filter_map(|&number| Some(quote_identifier(&table.column(number)?.name)));
    names.collect::<Vec<_>>().join(", ")
}

/// A column of an index, without its order.
pub fn index_column(table: &Table, index: &Index, place: usize) -> Option<String> {
    Some(quote_identifier(&table.column(index.columns.get(place)?.column)?.name).into_owned())
}

/// `CREATE INDEX ...`. With `pretty` the schema is left out, as `pg_get_indexdef(oid, 0, true)` does.
pub fn index(table: &Table, index: &Index, pretty: bool) -> String {
    let unique = if index.unique { "UNIQUE " } else { "" };
    let schema = if pretty { "" } else { "public." };
    let mut columns = Vec::new();
    for (place, column) in index.columns.iter().enumerate() {
        let order = match (column.descending, column.nulls_first) {
            (false, false) => "",
            (false, true) => " NULLS FIRST",
            (true, true) => " DESC",
            (true, false) => " DESC NULLS LAST",
        };
        columns.push(format!("{}{order}", index_column(table, index, place).unwrap_or_default()));
    }
    format!(
        "CREATE {unique}INDEX {} ON {schema}{} USING btree ({})",
        quote_identifier(&index.name),
        quote_identifier(&table.name),
        columns.join(", ")
    )
}

/// `PRIMARY KEY (a)`, `UNIQUE (a, b)`: of an index that is a constraint.
pub fn key(table: &Table, index: &Index) -> String {
    let columns: Vec<ColumnNumber> = index.columns.iter().map(|column| column.column).collect();
    let what = if index.primary { "PRIMARY KEY" } else { "UNIQUE" };
    format!("{what} ({})", names(table, &columns))
}

/// `CHECK ((a > 0))`, with one pair of parentheses if `pretty`.
pub fn check(check: &Check, pretty: bool) -> String {
    if pretty { format!("CHECK ({})", check.expression) } else { format!("CHECK (({}))", check.expression) }
}

/// `FOREIGN KEY (a) REFERENCES t(b) ON DELETE CASCADE`
pub fn foreign_key(catalog: &Catalog, table: &Table, key: &ForeignKey) -> String {
    let (parent, columns) = match catalog.tables.get(&key.parent) {
        Some(parent) => (quote_identifier(&parent.name).into_owned(), names(parent, &key.parent_columns)),
        None => (String::new(), String::new()),
    };
    let mut text = format!("FOREIGN KEY ({}) REFERENCES {parent}({columns})", names(table, &key.columns));
    for (what, action) in [(" ON UPDATE ", key.on_update), (" ON DELETE ", key.on_delete)] {
        let action = match action {
            ReferentialAction::NoAction => continue,
            ReferentialAction::Restrict => "RESTRICT",
            ReferentialAction::Cascade => "CASCADE",
            ReferentialAction::SetNull => "SET NULL",
            ReferentialAction::SetDefault => "SET DEFAULT",
        };
        text.push_str(what);
        text.push_str(action);
    }
    text
}

/// The index of this number, and its table.
pub fn find_index(catalog: &Catalog, oid: Oid) -> Option<(&Table, &Index)> {
    catalog.tables.values().find_map(|table| {
        let index = table.indexes.iter().find(|index| index.oid == oid)?;
        Some((&**table, index))
    })
}

/// The definition of the constraint of this number.
pub fn constraint(catalog: &Catalog, oid: Oid, pretty: bool) -> Option<String> {
    catalog.tables.values().find_map(|table| {
        if let Some(found) = table.checks.iter().find(|check| check.oid == oid) {
            return Some(check(found, pretty));
        }
        if let Some(found) = table.foreign_keys.iter().find(|key| key.oid == oid) {
            return Some(foreign_key(catalog, table, found));
        }
        let index = table.indexes.iter().find(|index| index.constraint == Some(oid))?;
        Some(key(table, index))
    })
}
