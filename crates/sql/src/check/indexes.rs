//! Whether a table's indexes have the entries that its rows make.

use super::Finding;
use super::names::{index_name, index_stake, row_name};
use crate::catalog::Table;
use crate::{Error, Result, Value};
use gannet_base::checksum;
use gannet_store::{Scan, Tree, View};
use std::ops::Bound;

/// Rows between two words of progress.
const TELL_EVERY: u64 = 4096;
/// Rows or entries whose counterparts are fetched as one batch.
const FETCH_AT_ONCE: usize = 256;
/// Differences that are named; the others are counted.
const NAMED: usize = 3;

/// Entries, whatever their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Side {
    count: u64,
    sum: u64,
}

impl Side {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(checksum::seeded(checksum::seeded(0, key), value));
    }
}

/// What an index and its table do not agree on.
#[derive(Debug, Default)]
struct Differences {
    /// Rows without their entry.
    missing: u64,
    /// Entries without their row.
    surplus: u64,
    named: Vec<String>,
}

impl Differences {
    fn name(&mut self, what: impl FnOnce() -> String) {
        if self.named.len() < NAMED {
            self.named.push(what());
        }
    }
}

/// A table and its further indexes, as one view shows them.
pub(super) struct Comparison<'c> {
    view: &'c View,
    table: &'c Table,
    /// Told how many trees were gone through.
    tell: &'c mut dyn FnMut(u64) -> Result<()>,
    passed: u64,
    pub(super) findings: Vec<Finding>,
    pub(super) compared: u64,
    pub(super) compared_indexes: u64,
}

impl<'c> Comparison<'c> {
    pub(super) fn new(view: &'c View, table: &'c Table, tell: &'c mut dyn FnMut(u64) -> Result<()>) -> Self {
        let findings = Vec::new();
        Comparison { view, table, tell, passed: 0, findings, compared: 0, compared_indexes: 0 }
    }

    pub(super) fn run(&mut self) -> Result<()> {
        let indexes: Vec<usize> =
            (0..self.table.indexes.len()).filter(|&position| !self.table.indexes[position].primary).collect();
        let mut expected = vec![Side::default(); self.table.indexes.len()];
        self.each_row(|table, key, row| {
            for &position in &indexes {
                let entry = table.codec().index_entry(position, row, key)?;
                expected[position].add(&entry.key, &entry.value);
            }
            Ok(())
        })?;
        for position in indexes {
            let mut found = Side::default();
            self.each_entry(position, |key, value| {
                found.add(key, value);
                Ok(())
            })?;
            self.compared_indexes += 1;
            if found != expected[position] {
                self.locate(position)?;
            }
        }
        Ok(())
    }

    /// Something cannot be read. Where the store has found damage in the table or in its indexes, that is the finding.
    pub(super) fn note_damage(&mut self, error: &Error, known: &[gannet_store::Finding]) {
        let trees: Vec<&str> = std::iter::once(&self.table.storage)
            .chain(self.table.indexes.iter().map(|index| &index.storage))
            .map(|storage| storage.name.as_str())
            .collect();
        let is_known = known
            .iter()
            .any(|finding| finding.name.as_ref().is_some_and(|name| trees.contains(&name.as_str())));
        if !is_known {
            self.findings.push(Finding {
                object: format!("table {}", self.table.name),
                page: None,
                finding: error.to_string(),
                at_stake: "some of its rows cannot be read; its indexes were not compared with it".to_owned(),
            });
        }
    }

    fn open(&self, storage: &crate::catalog::Storage) -> Result<Tree> {
        let tree = self.view.tree(&storage.name)?;
        tree.ok_or_else(|| {
            Error::new(crate::SqlState::DATA_CORRUPTED, format!("tree {:?} is missing", storage.name))
        })
    }

    fn scan(&self, tree: &Tree) -> Result<Scan> {
        let mut scan = self.view.scan(tree, (Bound::Unbounded, Bound::Unbounded))?;
        scan.give_way();
        Ok(scan)
    }

    fn step(&mut self) -> Result<()> {
        self.compared += 1;
        if self.compared.is_multiple_of(TELL_EVERY) { (self.tell)(self.passed) } else { Ok(()) }
    }

    /// Goes through the rows in the order of their keys; of each, the columns that indexes have are there.
    fn each_row(&mut self, mut each: impl FnMut(&Table, &[u8], &[Value]) -> Result<()>) -> Result<()> {
        let (table, codec) = (self.table, self.table.codec());
        let mut columns: Vec<(usize, usize)> = (0..table.indexes.len())
            .flat_map(|index| codec.index_positions(index))
            .map(|&position| (position, position))
            .collect();
        columns.sort_unstable();
        columns.dedup();
        let mut row = vec![Value::Null; table.columns.len()];
        let mut scan = self.scan(&self.open(&table.storage)?)?;
        while let Some((key, value)) = scan.next()? {
            codec.decode_into(key, value, &columns, &mut row)?;
            each(table, key, &row)?;
            self.step()?;
        }
        self.passed += 1;
        (self.tell)(self.passed)
    }

    fn each_entry(
        &mut self,
        position: usize,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let tree = self.open(&self.table.indexes[position].storage)?;
        let mut scan = self.scan(&tree)?;
        while let Some((key, value)) = scan.next()? {
            each(key, value)?;
            self.step()?;
        }
        self.passed += 1;
        (self.tell)(self.passed)
    }

    /// Which entries it are that make the difference.
    fn locate(&mut self, position: usize) -> Result<()> {
        let mut differences = Differences::default();
        self.rows_without_entry(position, &mut differences)?;
        self.entries_without_row(position, &mut differences)?;
        let Differences { missing, surplus, named } = differences;
        self.findings.push(Finding {
            object: index_name(self.table, position),
            page: None,
            finding: format!(
                "it disagrees with its table: {missing} rows have no entry, {surplus} entries have no row: {}",
                named.join("; ")
            ),
            at_stake: index_stake(self.table, position),
        });
        Ok(())
    }

    fn rows_without_entry(&mut self, position: usize, differences: &mut Differences) -> Result<()> {
        let (view, table) = (self.view, self.table);
        let tree = self.open(&table.indexes[position].storage)?;
        let mut wanted: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> = Vec::with_capacity(FETCH_AT_ONCE);
        let mut compare = |wanted: &mut Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>| -> Result<()> {
            let keys: Vec<&[u8]> = wanted.iter().map(|(_, key, _)| &key[..]).collect();
            let found = view.multi_get(&tree, &keys)?;
            for ((row, _, value), found) in wanted.iter().zip(found) {
                if found.as_ref() != Some(value) {
                    differences.missing += 1;
                    let what = if found.is_some() { "another row's entry" } else { "no entry" };
                    differences.name(|| format!("{what} for the row {}", row_name(table, row)));
                }
            }
            wanted.clear();
            Ok(())
        };
        self.each_row(|table, key, row| {
            let entry = table.codec().index_entry(position, row, key)?;
            wanted.push((key.to_vec(), entry.key, entry.value));
            if wanted.len() == FETCH_AT_ONCE { compare(&mut wanted) } else { Ok(()) }
        })?;
        compare(&mut wanted)
    }

    fn entries_without_row(&mut self, position: usize, differences: &mut Differences) -> Result<()> {
        let (view, table) = (self.view, self.table);
        let codec = table.codec();
        let rows = self.open(&table.storage)?;
        let columns: Vec<(usize, usize)> =
            codec.index_positions(position).iter().map(|&column| (column, column)).collect();
        let mut entries: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> = Vec::with_capacity(FETCH_AT_ONCE);
        let mut row = vec![Value::Null; table.columns.len()];
        let mut compare = |entries: &mut Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>| -> Result<()> {
            let keys: Vec<&[u8]> = entries.iter().map(|(row, _, _)| &row[..]).collect();
            for ((row_key, key, value), found) in entries.iter().zip(view.multi_get(&rows, &keys)?) {
                let fits = match &found {
                    None => false,
                    Some(stored) => {
                        codec.decode_into(row_key, stored, &columns, &mut row)?;
                        let entry = codec.index_entry(position, &row, row_key)?;
                        entry.key == *key && entry.value == *value
                    }
                };
                if !fits {
                    differences.surplus += 1;
                    let what = if found.is_some() { "other values" } else { "no such row" };
                    differences
                        .name(|| format!("an entry leads to the row {}: {what}", row_name(table, row_key)));
                }
            }
            entries.clear();
            Ok(())
        };
        self.each_entry(position, |key, value| {
            match codec.index_row_key(position, key, value) {
                Ok(row_key) => entries.push((row_key.to_vec(), key.to_vec(), value.to_vec())),
                // It leads nowhere; the row of no key is not there.
                Err(_) => entries.push((Vec::new(), key.to_vec(), value.to_vec())),
            }
            if entries.len() == FETCH_AT_ONCE { compare(&mut entries) } else { Ok(()) }
        })?;
        compare(&mut entries)
    }
}
