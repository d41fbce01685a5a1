//! What the store's trees are called in SQL, and what a finding on one of them means.

use super::Finding;
use crate::catalog::{Catalog, Table, TableKey, storage};
use crate::types::text::{self, TextStyle};
use crate::{Error, Result, Value};
use gannet_base::TreeId;
use gannet_store::{Database, Stake, TransactionOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that the first keys of a page may lack, as they are cut where they differ.
const CUT_OFF: usize = 16;

/// What a tree holds.
#[derive(Clone, Debug)]
enum Holds {
    Rows(Arc<Table>),
    /// An index, by its position.
    Index(Arc<Table>, usize),
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Names {
    trees: BTreeMap<String, Holds>,
    is_sql: bool,
}

impl Names {
    /// As defined now.
    pub(super) fn load(store: &Database, level: TransactionOptions) -> Result<Self> {
        let view = store.begin(level).view();
        if !storage::is_sql(&view)? {
            return Ok(Names::default());
        }
        Ok(Self::of(&storage::load(&view)?))
    }

    fn of(catalog: &Catalog) -> Self {
        let mut trees = BTreeMap::new();
        for table in catalog.tables.values() {
            trees.insert(table.storage.name.clone(), Holds::Rows(Arc::clone(table)));
            for (position, index) in table.indexes.iter().enumerate().filter(|(_, index)| !index.primary) {
                trees.insert(index.storage.name.clone(), Holds::Index(Arc::clone(table), position));
            }
        }
        Names { trees, is_sql: true }
    }

    /// Where definitions cannot be read: tables keep the names of their trees.
    pub(super) fn without_definitions(error: &Error, findings: &mut Vec<Finding>) -> Self {
        findings.push(Finding {
            object: "the definitions of tables".to_owned(),
            page: None,
            finding: error.to_string(),
            at_stake: "no table can be used; indexes were not compared with tables".to_owned(),
        });
        Names::default()
    }

    pub(super) fn has_definitions(&self) -> bool {
        self.is_sql
    }

    /// A finding of the store in words of SQL.
    pub(super) fn tell(&self, finding: &gannet_store::Finding) -> Finding {
        let holds = finding.name.as_ref().and_then(|name| self.trees.get(name));
        let object = match (holds, &finding.name) {
            (Some(holds), _) => object(holds),
            (None, Some(name)) => format!("tree {name:?}"),
            (None, None) => part(finding.tree).to_owned(),
        };
        Finding {
            object,
            page: Some(finding.page.0),
            finding: format!("{}: {}", finding.page, finding.what),
            at_stake: at_stake(holds, &finding.stake),
        }
    }
}

/// Parts of the file that belong to no tree of a user.
pub(crate) fn part(tree: TreeId) -> &'static str {
    match tree.0 {
        1 => "the list of trees",
        2 => "the status of transactions",
        3 => "the list of undo segments",
        4 => "undo",
        0 | u32::MAX => "the file's header and space maps",
        _ => "a tree that is not there",
    }
}

fn object(holds: &Holds) -> String {
    match holds {
        Holds::Rows(table) => format!("table {}", table.name),
        Holds::Index(table, position) => index_name(table, *position),
    }
}

/// An index with its table.
pub(super) fn index_name(table: &Table, position: usize) -> String {
    format!("index {} of table {}", table.indexes[position].name, table.name)
}

/// What to do about an index that is damaged.
pub(super) fn index_stake(table: &Table, position: usize) -> String {
    let index = &table.indexes[position];
    let how = match index.constraint {
        Some(_) => "drop the constraint and add it again",
        None => "drop it and create it again",
    };
    format!("queries that use the index may miss rows or fail; {how}: no row of the table is lost by that")
}

fn at_stake(holds: Option<&Holds>, stake: &Stake) -> String {
    let of_rows = matches!(
        stake,
        Stake::Rows { .. } | Stake::SomeRows | Stake::Row { .. } | Stake::Value { .. } | Stake::LostWrite
    );
    match holds {
        Some(Holds::Index(table, position)) if of_rows => index_stake(table, *position),
        Some(Holds::Rows(table)) => rows_stake(table, stake).unwrap_or_else(|| stake.to_string()),
        _ => stake.to_string(),
    }
}

/// The same with keys as SQL shows them.
fn rows_stake(table: &Table, stake: &Stake) -> Option<String> {
    Some(match stake {
        Stake::Rows { lower, upper: Some(upper) } if lower.is_empty() => {
            format!("rows with {} cannot be read", bound(table, upper, "below")?)
        }
        Stake::Rows { lower, upper: None } if !lower.is_empty() => {
            format!("rows with {} cannot be read", bound(table, lower, "from")?)
        }
        Stake::Rows { lower, upper: Some(upper) } => {
            let (from, below) = (bound(table, lower, "from")?, key_values(table, upper)?);
            format!("rows with {from} to below ({below}) cannot be read")
        }
        Stake::Row { key } => {
            format!("the row with {} cannot be read as it was committed", row_name(table, key))
        }
        Stake::Value { key } => {
            format!("a long value of the row with {} cannot be read", row_name(table, key))
        }
        _ => return None,
    })
}

fn bound(table: &Table, key: &[u8], word: &str) -> Option<String> {
    Some(format!("({}) {word} ({})", key_names(table), key_values(table, key)?))
}

fn key_names(table: &Table) -> String {
    match &table.key {
        TableKey::RowId => "row number".to_owned(),
        TableKey::Columns(numbers) => {
            let name = |number: &u16| table.column(*number).map_or("?", |column| column.name.as_str());
            numbers.iter().map(name).collect::<Vec<_>>().join(", ")
        }
    }
}

/// The values of a row's key, or of the first key of a page, which may be cut off: then those are given that it surely has.
fn key_values(table: &Table, key: &[u8]) -> Option<String> {
    let mut padded = key.to_vec();
    padded.resize(key.len() + CUT_OFF, 0);
    if table.key == TableKey::RowId {
        return padded.first_chunk().map(|number| u64::from_be_bytes(*number).to_string());
    }
    let mut rest = &padded[..];
    let mut shown = Vec::new();
    let columns = table.codec().key_columns().iter().zip(table.codec().key_positions());
    for (column, &position) in columns {
        // What follows a key that was cut off is whatever comes first.
        if padded.len() - rest.len() >= key.len() && !shown.is_empty() {
            break;
        }
        shown.push(value_text(&column.decode(&mut rest).ok()?, table, position));
    }
    Some(shown.join(", "))
}

pub(super) fn value_text(value: &Value, table: &Table, position: usize) -> String {
    let mut out = String::new();
    if value.is_null() {
        out.push_str("NULL");
    } else {
        text::write(value, table.columns[position].ty, &TextStyle::default(), &mut out);
    }
    out
}

/// A row by its key.
pub(super) fn row_name(table: &Table, key: &[u8]) -> String {
    match key_values(table, key) {
        Some(values) => format!("({})=({values})", key_names(table)),
        None => format!("key {key:02x?}"),
    }
}
