//! Changed rows: their constraints, their keys, and the entries of the table's indexes.
//!
//! # Guarantees
//! 1. A row and its entries are changed in one transaction, the row first. Two transactions that want one key meet at one entry of
//!    the store: the later one waits, and is refused when the earlier one commits.
//! 2. Uniqueness is checked row by row, as in PostgreSQL: an update that passes through a state with two equal keys is refused.
//! 3. After an error some of a row's entries may have been changed already: the statement has to be taken back.

use super::super::{Context, LARGE_BYTES};
use super::access::{index_tree, table_tree};
use super::describe::{self, waited_too_long};
use crate::catalog::{Table, TableKey};
use crate::codec::key::check_length;
use crate::physical::Checks;
use crate::types::Value;
use crate::{Error, Result, SqlState};
use gannet_store::{Error as StoreError, LockMode, Outcome, Transaction, View};
use std::sync::Arc;

/// Room that a row gets before its length is known: one of that many bytes grows once or twice.
const FIRST_BYTES: usize = 128;
/// Bytes that a changed row is expected to grow by.
const SPARE_BYTES: usize = 16;
/// The next row need not be as long as the one before.
const RESERVED_MOST: usize = 16 << 10;

/// Writes rows of a table.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) table: Arc<Table>,
    /// The primary key's index, by position in the table.
    primary: Option<usize>,
    /// The other ones, in the order in which they were made.
    indexes: Vec<usize>,
    /// Over a row, in the order in which they are looked at.
    checks: Checks,
    key: Vec<u8>,
    row: Vec<u8>,
    old_entry: Vec<u8>,
    new_entry: Vec<u8>,
}

/// A row as a statement has seen it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'r> {
    pub(super) view: &'r View,
    pub(super) key: &'r [u8],
    /// Its bytes.
    pub(super) bytes: &'r [u8],
}

impl Writer {
    pub(super) fn new(table: &Arc<Table>, checks: Checks) -> Self {
        let mut indexes: Vec<usize> =
            (0..table.indexes.len()).filter(|index| !table.indexes[*index].primary).collect();
        indexes.sort_by_key(|index| table.indexes[*index].oid);
        Writer {
            primary: table.indexes.iter().position(|index| index.primary),
            table: Arc::clone(table),
            indexes,
            checks,
            key: Vec::new(),
            row: Vec::new(),
            old_entry: Vec::new(),
            new_entry: Vec::new(),
        }
    }

    /// NOT NULL and CHECK.
    fn check_row(&self, context: &Context<'_>, row: &[Value]) -> Result<()> {
        for (value, column) in row.iter().zip(&self.table.columns) {
            if column.not_null && value.is_null() {
                return Err(describe::null_value(&self.table, column, row, context));
            }
        }
        for (name, condition) in &*self.checks {
            if condition.truth(row, context)? == Some(false) {
                return Err(describe::check(&self.table, name, row, context));
            }
        }
        Ok(())
    }

    /// Puts what entries of indexes are made of into their places, and what stands at `others`.
    pub(super) fn keep_entries(&self, row: &[Value], others: &[usize], kept: &mut Vec<Value>) {
        kept.clear();
        if self.indexes.is_empty() && others.is_empty() {
            return;
        }
        kept.resize(row.len(), Value::Null);
        for index in &self.indexes {
            for position in self.table.codec().index_positions(*index) {
                kept[*position].clone_from(&row[*position]);
            }
        }
        for position in others {
            kept[*position].clone_from(&row[*position]);
        }
    }

    /// Makes key and bytes of a row; `row_id` for a table without primary key. `about`: bytes it takes.
    fn encode(&mut self, row: &[Value], row_id: Option<u64>, about: usize) -> Result<()> {
        self.key.clear();
        if self.row.capacity() > LARGE_BYTES {
            // Of a long row nothing is kept for the next one.
            self.row = Vec::new();
        }
        self.row.clear();
        self.row.reserve(about);
        match row_id {
            Some(id) => self.key.extend_from_slice(&id.to_be_bytes()),
            None => self.table.codec().row_key(row, &mut self.key)?,
        }
        self.table.codec().encode_row(row, &mut self.row)
    }

    fn check_key(&self, transaction: &Transaction) -> Result<()> {
        let Some(primary) = self.primary else { return Ok(()) };
        check_length(&self.key, transaction.max_key_len(), &self.table.indexes[primary].name)
    }

    /// Adds a row, one value for each column.
    pub(super) fn insert(&mut self, context: &Context<'_>, row: &[Value]) -> Result<()> {
        self.check_row(context, row)?;
        let row_id = match self.table.key {
            TableKey::RowId => Some(context.session.next_row_id(&self.table)?),
            TableKey::Columns(_) => None,
        };
        self.encode(row, row_id, FIRST_BYTES)?;
        let tree = table_tree(&self.table, context.view)?;
        let mut transaction = context.transaction.borrow_mut();
        self.check_key(&transaction)?;
        let done = transaction.insert(tree, &self.key, &self.row);
        done.map_err(|error| self.insert_error(error, self.primary, row, context))?;
        for index in &self.indexes {
            let tree = index_tree(&self.table, *index, context.view)?;
            self.new_entry.clear();
            let conflicts = self.table.codec().index_key(*index, row, &self.key, &mut self.new_entry)?;
            let name = &self.table.indexes[*index].name;
            check_length(&self.new_entry, transaction.max_key_len(), name)?;
            let value = if conflicts { &self.key[..] } else { &[] };
            let done = transaction.insert(tree, &self.new_entry, value);
            done.map_err(|error| self.insert_error(error, conflicts.then_some(*index), row, context))?;
        }
        Ok(())
    }

    /// Why a key could not be added; `unique`: the index whose uniqueness it would violate if it is there.
    fn insert_error(
        &self,
        error: StoreError,
        unique: Option<usize>,
        row: &[Value],
        context: &Context<'_>,
    ) -> Error {
        match (error, unique) {
            (StoreError::Duplicate, Some(index)) => {
                describe::duplicate(&self.table, &self.table.indexes[index], row, context)
            }
            (StoreError::Duplicate, None) => {
                self.damaged("there is an entry already for a row that is about to be added")
            }
            (error, _) => waited_too_long(error),
        }
    }

    fn damaged(&self, what: &str) -> Error {
        Error::new(SqlState::DATA_CORRUPTED, format!("table \"{}\" is damaged: {what}", self.table.name))
    }

    /// Whether a row gets another key in a unique index that is not the table's own order: somebody may refer to the old one.
    fn changes_key(&self, old: &[Value], new: &[Value]) -> bool {
        let differ = |at: &usize| !is_same(&old[*at], &new[*at]);
        let mut unique = self.indexes.iter().filter(|index| self.table.indexes[**index].unique);
        unique.any(|index| self.table.codec().index_positions(*index).iter().any(differ))
    }

    /// Replaces a row that was seen, `old`, by `new`. Of `old` only what entries of indexes are made of is looked at.
    pub(super) fn update(
        &mut self,
        context: &Context<'_>,
        seen: Seen<'_>,
        old: &[Value],
        new: &[Value],
    ) -> Result<Outcome> {
        self.check_row(context, new)?;
        let row_id = match self.table.key {
            TableKey::RowId => Some(row_id(seen.key).ok_or_else(|| self.damaged("a row without number"))?),
            TableKey::Columns(_) => None,
        };
        self.encode(new, row_id, (seen.bytes.len() + SPARE_BYTES).min(RESERVED_MOST))?;
        let tree = table_tree(&self.table, context.view)?;
        let mut transaction = context.transaction.borrow_mut();
        let moves = self.key != seen.key;
        if !moves && self.changes_key(old, new) {
            // As a row that goes: who has locked its key is waited for.
            let outcome =
                transaction.lock_seen(seen.view, tree, seen.key, seen.bytes, LockMode::Exclusive, true);
            let outcome = outcome.map_err(waited_too_long)?;
            if outcome != Outcome::Done {
                return Ok(outcome);
            }
        }
        let outcome = if moves {
            self.check_key(&transaction)?;
            transaction.move_seen(seen.view, tree, seen.key, seen.bytes)
        } else {
            transaction.update_seen(seen.view, tree, seen.key, seen.bytes, &self.row)
        };
        let outcome = outcome.map_err(waited_too_long)?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
        if moves {
            let done = transaction.insert(tree, &self.key, &self.row);
            done.map_err(|error| self.insert_error(error, self.primary, new, context))?;
        }
        for position in 0..self.indexes.len() {
            self.update_entry(context, &mut transaction, self.indexes[position], seen.key, old, new)?;
        }
        Ok(Outcome::Done)
    }

    /// Brings a row's entry in an index up to date.
    fn update_entry(
        &mut self,
        context: &Context<'_>,
        transaction: &mut Transaction,
        index: usize,
        old_key: &[u8],
        old: &[Value],
        new: &[Value],
    ) -> Result<()> {
        let codec = self.table.codec();
        let moves = self.key != old_key;
        let same = |at: &usize| is_same(&old[*at], &new[*at]);
        if !moves && codec.index_positions(index).iter().all(same) {
            return Ok(());
        }
        self.old_entry.clear();
        self.new_entry.clear();
        codec.index_key(index, old, old_key, &mut self.old_entry)?;
        let conflicts = codec.index_key(index, new, &self.key, &mut self.new_entry)?;
        let value = if conflicts { &self.key[..] } else { &[] };
        let tree = index_tree(&self.table, index, context.view)?;
        if self.old_entry == self.new_entry {
            // An entry without value has the row's key within its own.
            if moves
                && conflicts
                && !transaction.update(tree, &self.new_entry, value).map_err(waited_too_long)?
            {
                return Err(self.damaged("a row has no entry in an index"));
            }
            return Ok(());
        }
        check_length(&self.new_entry, transaction.max_key_len(), &self.table.indexes[index].name)?;
        if !transaction.delete(tree, &self.old_entry).map_err(waited_too_long)? {
            return Err(self.damaged("a row has no entry in an index"));
        }
        let done = transaction.insert(tree, &self.new_entry, value);
        done.map_err(|error| self.insert_error(error, conflicts.then_some(index), new, context))
    }

    /// Removes a row that was seen.
    pub(super) fn delete(&mut self, context: &Context<'_>, seen: Seen<'_>, old: &[Value]) -> Result<Outcome> {
        let tree = table_tree(&self.table, context.view)?;
        let mut transaction = context.transaction.borrow_mut();
        let outcome = transaction.delete_seen(seen.view, tree, seen.key, seen.bytes);
        let outcome = outcome.map_err(waited_too_long)?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
        for index in &self.indexes {
            self.old_entry.clear();
            self.table.codec().index_key(*index, old, seen.key, &mut self.old_entry)?;
            let tree = index_tree(&self.table, *index, context.view)?;
            if !transaction.delete(tree, &self.old_entry).map_err(waited_too_long)? {
                return Err(self.damaged("a row has no entry in an index"));
            }
        }
        Ok(Outcome::Done)
    }
}

/// The number of a row of a table without primary key.
fn row_id(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

/// Whether a change of a column is none. Values that are equal, but not the same (1.0 and 1.00), have one key.
pub(super) fn is_same(old: &Value, new: &Value) -> bool {
    old.total_cmp(new).is_eq()
}
