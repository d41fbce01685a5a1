//! Definitions as SQL text, as `pg_get_indexdef` and its kin give them.

use crate::catalog::{Catalog, Check, ColumnNumber, ForeignKey, Index, Oid, ReferentialAction, Table};
use sqlparser::keywords::{
    ALL_KEYWORDS, ALL_KEYWORDS_INDEX, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_TABLE_ALIAS,
};

/// A name as it stands in SQL text: with quotes where it needs them.
pub fn quote_identifier(name: &str) -> String {
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if plain && !is_reserved(name) { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn is_reserved(name: &str) -> bool {
    // Words that PostgreSQL reserves, as far as they are not in the parser's lists.
    const WORDS: [&str; 36] = [
        "all",
        "analyse",
        "analyze",
        "and",
        "any",
        "array",
        "as",
        "asc",
        "both",
        "case",
        "cast",
        "check",
        "collate",
        "column",
        "constraint",
        "create",
        "default",
        "desc",
        "distinct",
        "do",
        "else",
        "end",
        "false",
        "foreign",
        "in",
        "not",
        "null",
        "or",
        "primary",
        "references",
        "some",
        "table",
        "then",
        "true",
        "unique",
        "user",
    ];
    if WORDS.contains(&name) {
        return true;
    }
    let upper = name.to_ascii_uppercase();
    let Ok(index) = ALL_KEYWORDS.binary_search(&upper.as_str()) else { return false };
    let keyword = ALL_KEYWORDS_INDEX[index];
    // What is reserved in both places is so in PostgreSQL; the others are words of other systems.
    RESERVED_FOR_COLUMN_ALIAS.contains(&keyword) && RESERVED_FOR_TABLE_ALIAS.contains(&keyword)
}

fn names(table: &Table, columns: &[ColumnNumber]) -> String {
    let names = columns.iter().filter_map(|&number| Some(quote_identifier(&table.column(number)?.name)));
    names.collect::<Vec<_>>().join(", ")
}

/// A column of an index, without its order.
pub fn index_column(table: &Table, index: &Index, place: usize) -> Option<String> {
    Some(quote_identifier(&table.column(index.columns.get(place)?.column)?.name))
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
        Some(parent) => (quote_identifier(&parent.name), names(parent, &key.parent_columns)),
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
