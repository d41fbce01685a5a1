//! Names of objects that were given none, made as PostgreSQL makes them: `t_pkey`, `t_a_b_key`, `t_a_seq`, and with a number
//! behind them when they are taken.

use crate::catalog::{Catalog, Table};

/// Bytes of a name, at most.
const LONGEST: usize = 63;

/// Cuts a text to `length` bytes, at a character's boundary.
fn clip(text: &str, length: usize) -> &str {
    let mut end = length.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// `first_second_label`, with the longer of the first two cut so that it fits.
fn join(first: &str, second: &str, label: &str) -> String {
    let overhead = label.len() + 1 + usize::from(!second.is_empty());
    let room = LONGEST.saturating_sub(overhead);
    let (mut a, mut b) = (first.len(), second.len());
    while a + b > room {
        if a > b { a -= 1 } else { b -= 1 }
    }
    let (first, second) = (clip(first, a), clip(second, b));
    if second.is_empty() { format!("{first}_{label}") } else { format!("{first}_{second}_{label}") }
}

fn unused(first: &str, second: &str, label: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut name = join(first, second, label);
    let mut pass = 0;
    while taken(&name) {
        pass += 1;
        name = join(first, second, &format!("{label}{pass}"));
    }
    name
}

/// Whether a constraint of any table has the name.
fn is_constraint(catalog: &Catalog, table: Option<&Table>, name: &str) -> bool {
    catalog.tables.values().map(|table| &**table).chain(table).any(|table| has_constraint(table, name))
}

/// Whether a constraint of the table has the name.
pub(super) fn has_constraint(table: &Table, name: &str) -> bool {
    table.checks.iter().any(|check| check.name == name)
        || table.foreign_keys.iter().any(|key| key.name == name)
        || table.indexes.iter().any(|index| index.constraint.is_some() && index.name == name)
}

/// Whether an index of `table`, which is not in the catalog as it is now, or any relation has the name.
pub(super) fn is_relation(catalog: &Catalog, table: Option<&Table>, name: &str) -> bool {
    catalog.names.contains_key(name)
        || table
            .is_some_and(|table| table.name == name || table.indexes.iter().any(|index| index.name == name))
}

/// The columns' part of a generated name.
fn columns_part(columns: &[&str]) -> String {
    let mut part = String::new();
    for column in columns {
        if !part.is_empty() {
            part.push('_');
        }
        part.push_str(column);
        if part.len() >= LONGEST {
            break;
        }
    }
    clip(&part, LONGEST).to_owned()
}

/// For an index, unique constraint or primary key: `label` is `idx`, `key` or `pkey`.
pub(super) fn index(catalog: &Catalog, table: &Table, columns: &[&str], label: &str) -> String {
    let columns = if label == "pkey" { String::new() } else { columns_part(columns) };
    unused(&table.name, &columns, label, |name| {
        is_relation(catalog, Some(table), name) || label != "idx" && is_constraint(catalog, Some(table), name)
    })
}

/// For a sequence of a serial column.
pub(super) fn sequence(catalog: &Catalog, table: &str, column: &str) -> String {
    unused(table, column, "seq", |name| name == table || is_relation(catalog, None, name))
}

/// For a CHECK constraint over `columns`.
pub(super) fn check(catalog: &Catalog, table: &Table, columns: &[&str]) -> String {
    let column = if let [column] = columns { column } else { "" };
    unused(&table.name, column, "check", |name| is_constraint(catalog, Some(table), name))
}

/// For a foreign key.
pub(super) fn foreign_key(catalog: &Catalog, table: &Table, columns: &[&str]) -> String {
    let columns = columns_part(columns);
    unused(&table.name, &columns, "fkey", |name| is_constraint(catalog, Some(table), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_where_they_are_longest() {
        let long = "a".repeat(60);
        assert_eq!(join("t", "", "pkey"), "t_pkey");
        assert_eq!(join(&long, "b", "key"), format!("{}_b_key", "a".repeat(57)));
        assert_eq!(join(&long, &"b".repeat(60), "key").len(), 63);
        let umlauts = "ä".repeat(31);
        assert!(join(&umlauts, "", "pkey").len() <= 63);
    }
}
