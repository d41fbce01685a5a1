//! Whether a table's indexes have the entries that its rows make: gone through by pieces, which need not be done by one thread.

use super::Finding;
use super::names::{index_name, index_stake, row_name};
use crate::catalog::{Storage, Table};
use crate::codec::row::IndexEntry;
use crate::{Error, Result, Value};
use gannet_base::checksum;
use gannet_store::{Scan, Tree, View};
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of a piece, about: that of a request of the device beside others.
const PIECE_BYTES: usize = 256 << 10;
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

/// What is gone through. The index is the one at this place among the further ones.
#[derive(Debug)]
enum Stage {
    Rows(Box<Scan>),
    Entries(usize, Box<Scan>, Side),
    /// The index disagrees: rows are looked for that have no entry,
    Missing(usize, Box<Scan>, Differences),
    /// and entries that have no row.
    Surplus(usize, Box<Scan>, Differences),
}

/// A table and its further indexes, as one view shows them.
#[derive(Debug)]
pub(super) struct Comparison {
    view: View,
    pub(super) table: Arc<Table>,
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

    #[cfg(test)]
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// Does the next piece; true when that was the last one.
    pub(super) fn step(&mut self) -> Result<bool> {
        match self.stage.take() {
            None => {
                let scan = self.scan(&self.table.storage)?;
                self.stage = Some(Stage::Rows(scan));
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
                self.compared_indexes += 1;
                if found == self.expected[self.indexes[place]] {
                    return self.next_index(place + 1);
                }
                let scan = self.scan(&self.table.storage)?;
                self.stage = Some(Stage::Missing(place, scan, Differences::default()));
                Ok(false)
            }
            Some(Stage::Missing(place, mut scan, mut differences)) => {
                let over = self.missing_piece(place, &mut scan, &mut differences)?;
                self.stage = Some(match over {
                    true => Stage::Surplus(place, self.scan_index(place)?, differences),
                    false => Stage::Missing(place, scan, differences),
                });
                Ok(false)
            }
            Some(Stage::Surplus(place, mut scan, mut differences)) => {
                if !self.surplus_piece(place, &mut scan, &mut differences)? {
                    self.stage = Some(Stage::Surplus(place, scan, differences));
                    return Ok(false);
                }
                self.tell(place, differences);
                self.next_index(place + 1)
            }
        }
    }

    /// A tree is through, and the index at this place comes next; true when there is none.
    fn next_index(&mut self, place: usize) -> Result<bool> {
        self.passed += 1;
        if place == self.indexes.len() {
            return Ok(true);
        }
        self.stage = Some(Stage::Entries(place, self.scan_index(place)?, Side::default()));
        Ok(false)
    }

    /// Some rows; true when there are no more.
    fn rows_piece(&mut self, scan: &mut Scan) -> Result<bool> {
        let table = Arc::clone(&self.table);
        let (columns, mut row) = (indexed_columns(&table), vec![Value::Null; table.columns.len()]);
        let (mut bytes, mut entry) = (0, IndexEntry::default());
        while let Some((key, value)) = scan.next()? {
            bytes += key.len() + value.len();
            table.codec().decode_into(key, value, &columns, &mut row)?;
            for &position in &self.indexes {
                table.codec().index_entry_into(position, &row, key, &mut entry)?;
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

    fn open(&self, storage: &Storage) -> Result<Tree> {
        let tree = self.view.tree(&storage.name)?;
        tree.ok_or_else(|| {
            Error::new(crate::SqlState::DATA_CORRUPTED, format!("tree {:?} is missing", storage.name))
        })
    }

    fn scan(&self, storage: &Storage) -> Result<Box<Scan>> {
        let mut scan = self.view.scan(&self.open(storage)?, (Bound::Unbounded, Bound::Unbounded))?;
        scan.give_way();
        Ok(Box::new(scan))
    }

    fn scan_index(&self, place: usize) -> Result<Box<Scan>> {
        self.scan(&self.table.indexes[self.indexes[place]].storage)
    }

    // ---- which entries it are that make the difference ----------------------------------------------------------------

    fn tell(&mut self, place: usize, Differences { missing, surplus, named }: Differences) {
        let position = self.indexes[place];
        self.findings.push(Finding {
            object: index_name(&self.table, position),
            page: None,
            finding: format!(
                "it disagrees with its table: {missing} rows have no entry, {surplus} entries have no row: {}",
                named.join("; ")
            ),
            at_stake: index_stake(&self.table, position),
        });
    }

    /// Looks for the entries of some rows; true when there are no more.
    fn missing_piece(
        &mut self,
        place: usize,
        scan: &mut Scan,
        differences: &mut Differences,
    ) -> Result<bool> {
        let (table, position) = (Arc::clone(&self.table), self.indexes[place]);
        let tree = self.open(&table.indexes[position].storage)?;
        let (columns, mut row) = (indexed_columns(&table), vec![Value::Null; table.columns.len()]);
        let mut wanted: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> = Vec::with_capacity(FETCH_AT_ONCE);
        while wanted.len() < FETCH_AT_ONCE
            && let Some((key, value)) = scan.next()?
        {
            table.codec().decode_into(key, value, &columns, &mut row)?;
            let entry = table.codec().index_entry(position, &row, key)?;
            wanted.push((key.to_vec(), entry.key, entry.value));
        }
        self.compared += wanted.len() as u64;
        let keys: Vec<&[u8]> = wanted.iter().map(|(_, key, _)| &key[..]).collect();
        let found = self.view.multi_get(&tree, &keys)?;
        for ((row, _, value), found) in wanted.iter().zip(found) {
            if found.as_ref() != Some(value) {
                differences.missing += 1;
                let what = if found.is_some() { "another row's entry" } else { "no entry" };
                differences.name(|| format!("{what} for the row {}", row_name(&table, row)));
            }
        }
        Ok(wanted.len() < FETCH_AT_ONCE)
    }

    /// Looks for the rows of some entries; true when there are no more.
    fn surplus_piece(
        &mut self,
        place: usize,
        scan: &mut Scan,
        differences: &mut Differences,
    ) -> Result<bool> {
        let (table, position) = (Arc::clone(&self.table), self.indexes[place]);
        let codec = table.codec();
        let rows = self.open(&table.storage)?;
        let mut entries: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> = Vec::with_capacity(FETCH_AT_ONCE);
        while entries.len() < FETCH_AT_ONCE
            && let Some((key, value)) = scan.next()?
        {
            // One that leads nowhere: the row of no key is not there.
            let row_key =
                codec.index_row_key(position, key, value).map_or_else(|_| Vec::new(), |key| key.to_vec());
            entries.push((row_key, key.to_vec(), value.to_vec()));
        }
        self.compared += entries.len() as u64;
        let columns: Vec<(usize, usize)> =
            codec.index_positions(position).iter().map(|&column| (column, column)).collect();
        let mut row = vec![Value::Null; table.columns.len()];
        let keys: Vec<&[u8]> = entries.iter().map(|(row, _, _)| &row[..]).collect();
        for ((row_key, key, value), found) in entries.iter().zip(self.view.multi_get(&rows, &keys)?) {
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
                    .name(|| format!("an entry leads to the row {}: {what}", row_name(&table, row_key)));
            }
        }
        Ok(entries.len() < FETCH_AT_ONCE)
    }
}
