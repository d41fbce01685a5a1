//! Whether a table's indexes have the entries that its rows make: gone through by pieces, which need not be done by one thread.

use super::Finding;
use super::names::{index_name, index_stake, row_name};
use crate::catalog::Table;
use crate::{Error, Result, Value};
use gannet_base::checksum;
use gannet_store::{Job, Scan, Tree, View};
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of a piece, about: that of a request of the device beside others.
const PIECE_BYTES: usize = 256 << 10;
/// Rows or entries between two looks whether the job is to end.
const LOOK_EVERY: u64 = 4096;
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

/// Positions of a table's indexes that are not the primary one.
pub(super) fn further_indexes(table: &Table) -> Vec<usize> {
    (0..table.indexes.len()).filter(|&position| !table.indexes[position].primary).collect()
}

/// The columns that indexes have, as a codec decodes them.
fn indexed_columns(table: &Table) -> Vec<(usize, usize)> {
    let of = |index| table.codec().index_positions(index);
    let mut columns: Vec<(usize, usize)> =
        (0..table.indexes.len()).flat_map(of).map(|&position| (position, position)).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// What is gone through.
#[derive(Debug)]
enum Stage {
    Rows(Box<Scan>),
    /// Those of the index at this place among the further ones.
    Entries(usize, Box<Scan>, Side),
}

/// A table and its further indexes, as one view shows them.
#[derive(Debug)]
pub(super) struct Comparison {
    view: View,
    table: Arc<Table>,
    /// Positions of the further indexes.
    indexes: Vec<usize>,
    /// What the rows say that these should have, by position.
    expected: Vec<Side>,
    /// `None` before the first piece.
    stage: Option<Stage>,
    /// Trees that were gone through.
    pub(super) passed: u64,
    pub(super) findings: Vec<Finding>,
    pub(super) compared: u64,
    pub(super) compared_indexes: u64,
}

impl Comparison {
    /// `None` for a table without further indexes.
    pub(super) fn new(view: View, table: Arc<Table>) -> Option<Self> {
        let indexes = further_indexes(&table);
        let (expected, findings) = (vec![Side::default(); table.indexes.len()], Vec::new());
        (!indexes.is_empty()).then_some(Comparison {
            view,
            table,
            indexes,
            expected,
            stage: None,
            passed: 0,
            findings,
            compared: 0,
            compared_indexes: 0,
        })
    }

    /// Does the next piece; true when that was the last one. Where an index disagrees, it is looked at whole for what it is.
    pub(super) fn step(&mut self, job: &Job) -> Result<bool> {
        match self.stage.take() {
            None => {
                let scan = self.scan(&self.open(&self.table.storage)?)?;
                self.stage = Some(Stage::Rows(Box::new(scan)));
                Ok(false)
            }
            Some(Stage::Rows(mut scan)) => {
                if self.rows_piece(&mut scan)? {
                    return self.next_index(0);
                }
                self.stage = Some(Stage::Rows(scan));
                Ok(false)
            }
            Some(Stage::Entries(place, mut scan, mut found)) => {
                if !self.entries_piece(&mut scan, &mut found)? {
                    self.stage = Some(Stage::Entries(place, scan, found));
                    return Ok(false);
                }
                drop(scan);
                self.compared_indexes += 1;
                let position = self.indexes[place];
                if found != self.expected[position] {
                    self.locate(position, job)?;
                }
                self.next_index(place + 1)
            }
        }
    }

    /// A tree is through, and the index at this place comes next; true when there is none.
    fn next_index(&mut self, place: usize) -> Result<bool> {
        self.passed += 1;
        let Some(&position) = self.indexes.get(place) else { return Ok(true) };
        let tree = self.open(&self.table.indexes[position].storage)?;
        self.stage = Some(Stage::Entries(place, Box::new(self.scan(&tree)?), Side::default()));
        Ok(false)
    }

    /// Some rows; true when there are no more.
    fn rows_piece(&mut self, scan: &mut Scan) -> Result<bool> {
        let table = Arc::clone(&self.table);
        let (columns, mut row) = (indexed_columns(&table), vec![Value::Null; table.columns.len()]);
        let mut bytes = 0;
        while let Some((key, value)) = scan.next()? {
            bytes += key.len() + value.len();
            table.codec().decode_into(key, value, &columns, &mut row)?;
            for &position in &self.indexes {
                let entry = table.codec().index_entry(position, &row, key)?;
                self.expected[position].add(&entry.key, &entry.value);
            }
            self.compared += 1;
            if bytes >= PIECE_BYTES {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Some entries; true when there are no more.
    fn entries_piece(&mut self, scan: &mut Scan, found: &mut Side) -> Result<bool> {
        let mut bytes = 0;
        while let Some((key, value)) = scan.next()? {
            bytes += key.len() + value.len();
            found.add(key, value);
            self.compared += 1;
            if bytes >= PIECE_BYTES {
                return Ok(false);
            }
        }
        Ok(true)
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

    /// Goes through the rows in the order of their keys; of each, the columns that indexes have are there.
    fn each_row(
        &mut self,
        job: &Job,
        mut each: impl FnMut(&Table, &[u8], &[Value]) -> Result<()>,
    ) -> Result<()> {
        let table = Arc::clone(&self.table);
        let (columns, mut row) = (indexed_columns(&table), vec![Value::Null; table.columns.len()]);
        let mut scan = self.scan(&self.open(&table.storage)?)?;
        while let Some((key, value)) = scan.next()? {
            table.codec().decode_into(key, value, &columns, &mut row)?;
            each(&table, key, &row)?;
            self.count(job)?;
        }
        Ok(())
    }

    fn each_entry(
        &mut self,
        position: usize,
        job: &Job,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let tree = self.open(&self.table.indexes[position].storage)?;
        let mut scan = self.scan(&tree)?;
        while let Some((key, value)) = scan.next()? {
            each(key, value)?;
            self.count(job)?;
        }
        Ok(())
    }

    fn count(&mut self, job: &Job) -> Result<()> {
        self.compared += 1;
        if self.compared.is_multiple_of(LOOK_EVERY) { Ok(job.check()?) } else { Ok(()) }
    }

    /// Which entries it are that make the difference.
    fn locate(&mut self, position: usize, job: &Job) -> Result<()> {
        let mut differences = Differences::default();
        self.rows_without_entry(position, &mut differences, job)?;
        self.entries_without_row(position, &mut differences, job)?;
        let Differences { missing, surplus, named } = differences;
        self.findings.push(Finding {
            object: index_name(&self.table, position),
            page: None,
            finding: format!(
                "it disagrees with its table: {missing} rows have no entry, {surplus} entries have no row: {}",
                named.join("; ")
            ),
            at_stake: index_stake(&self.table, position),
        });
        Ok(())
    }

    fn rows_without_entry(
        &mut self,
        position: usize,
        differences: &mut Differences,
        job: &Job,
    ) -> Result<()> {
        let (view, owned) = (self.view.clone(), Arc::clone(&self.table));
        let table = &*owned;
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
        self.each_row(job, |table, key, row| {
            let entry = table.codec().index_entry(position, row, key)?;
            wanted.push((key.to_vec(), entry.key, entry.value));
            if wanted.len() == FETCH_AT_ONCE { compare(&mut wanted) } else { Ok(()) }
        })?;
        compare(&mut wanted)
    }

    fn entries_without_row(
        &mut self,
        position: usize,
        differences: &mut Differences,
        job: &Job,
    ) -> Result<()> {
        let (view, owned) = (self.view.clone(), Arc::clone(&self.table));
        let table = &*owned;
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
        self.each_entry(position, job, |key, value| {
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
