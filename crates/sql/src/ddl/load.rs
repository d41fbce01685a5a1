//! Rows of a dump put into an empty table: its tree is built from the bottom up, and so are those of its indexes.
//!
//! # Guarantees
//! 1. The table gets new trees in the session's transaction, as by TRUNCATE: nobody sees a row before the commit, and a rollback leaves
//!    nothing of them.
//! 2. Rows may come in any order. As long as they ascend they go to the tree as they come; from the first one on that does not, they are sorted
//!    within the memory budget and merged with those before.
//! 3. Every rule of the table is kept but NOT NULL, which who encodes the rows sees to.
//!
//! Who encodes the rows makes the entries of its indexes, too: the table is not read again for them.

use super::build::{self, Pushed};
use super::sort::Sorter;
use super::{DdlContext, object_name, validate};
use crate::bind::utility::CopyRelation;
use crate::catalog::{Storage, Table, TableKey};
use crate::{Error, Result, SqlState};
use gannet_store::Tree;
use std::ops::Bound;
use std::sync::Arc;

/// Rows as they are stored.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    /// Keys and rows, one behind the other. Tables without primary key have empty keys.
    pub(crate) bytes: Vec<u8>,
    /// Lengths of keys and rows.
    pub(crate) lengths: Vec<(u32, u32)>,
    /// Their entries, for each index that is not the primary one.
    pub(crate) indexes: Vec<Entries>,
}

/// Entries of an index, one for each row.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// Keys, one behind the other. Those of tables without primary key lack the row's, which is not known yet.
    pub(crate) bytes: Vec<u8>,
    /// Their lengths, and whether another entry of the same key would be a violation: then the row's key is the entry's value.
    pub(crate) lengths: Vec<(u32, bool)>,
}

impl Entries {
    /// Keeps those of so many rows.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.lengths.truncate(rows);
        // A key may have been begun behind the last one.
        let bytes = self.lengths.iter().map(|(len, _)| *len as usize).sum();
        self.bytes.truncate(bytes);
    }
}

/// Takes rows.
pub(crate) type Take<'t> = &'t mut dyn FnMut(&Encoded) -> Result<()>;
/// Gives rows of a table.
pub(crate) type Produce<'p> = &'p mut dyn FnMut(&Arc<Table>, Take<'_>) -> Result<()>;

/// Fills an empty table of schema `public`; false when it is not empty, or has references, and nothing was done.
pub(crate) fn fill(context: &mut DdlContext<'_>, name: &str, produce: Produce<'_>) -> Result<bool> {
    let relation = CopyRelation { schema: Some("public".to_owned()), name: name.to_owned(), position: 0 };
    let table = context.claim_named_table(&object_name(&relation), false)?;
    let old = table.ok_or_else(|| Error::internal("a table that may be missing"))?;
    let source = context.tree(&old.storage)?;
    let is_empty = {
        let mut scan = context.latest_view().scan(&source, (Bound::Unbounded, Bound::Unbounded))?;
        scan.next()?.is_none()
    };
    if !is_empty || !old.foreign_keys.is_empty() {
        return Ok(false);
    }
    let mut table = Table::clone(&old);
    // No row of an earlier layout is left.
    table.layouts.drain(..table.layouts.len().saturating_sub(1));
    table.storage = context.new_storage("t")?;
    let mut indexes = IndexSorters::new(context, &table)?;
    if let Some(sorted) = fill_rows(context, &table, &mut indexes, produce)? {
        context.drop_storage(&table.storage)?;
        table.storage = sorted;
    }
    for index in 0..table.indexes.len() {
        table.indexes[index].storage =
            if table.indexes[index].primary { table.storage.clone() } else { context.new_storage("i")? };
    }
    build::fill_indexes(context, &table, indexes.sorters)?;
    build::drop_trees(context, &old)?;
    let table = context.put_table(table)?;
    table.checks.iter().try_for_each(|check| validate::check(context, &table, check))?;
    Ok(true)
}

/// The entries of a table's indexes.
struct IndexSorters {
    /// By position of the index in the table.
    sorters: Vec<(usize, Sorter)>,
    /// How far each index's bytes of the rows at hand are taken.
    taken: Vec<usize>,
    key: Vec<u8>,
}

impl IndexSorters {
    fn new(context: &DdlContext<'_>, table: &Table) -> Result<Self> {
        let positions = (0..table.indexes.len()).filter(|&index| !table.indexes[index].primary);
        let sorter = |index| Ok((index, Sorter::new(&context.session.engine)?));
        let sorters: Vec<_> = positions.map(sorter).collect::<Result<_>>()?;
        Ok(IndexSorters { taken: vec![0; sorters.len()], sorters, key: Vec::new() })
    }

    /// Takes the entries of one of the rows, which come one after the other. `is_whole`: their keys are complete.
    fn take(&mut self, rows: &Encoded, number: usize, row_key: &[u8], is_whole: bool) -> Result<()> {
        for (((_, sorter), taken), entries) in self.sorters.iter_mut().zip(&mut self.taken).zip(&rows.indexes)
        {
            if number == 0 {
                *taken = 0;
            }
            let (len, conflicts) = entries.lengths[number];
            let key = &entries.bytes[*taken..][..len as usize];
            *taken += len as usize;
            match (conflicts, is_whole) {
                (true, _) => sorter.push(key, row_key)?,
                (false, true) => sorter.push(key, &[])?,
                (false, false) => {
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    self.key.extend_from_slice(row_key);
                    sorter.push(&self.key, &[])?;
                }
            }
        }
        Ok(())
    }
}

/// Fills the table's tree. Where rows came out of order, gives another one with all of them.
fn fill_rows(
    context: &DdlContext<'_>,
    table: &Table,
    indexes: &mut IndexSorters,
    produce: Produce<'_>,
) -> Result<Option<Storage>> {
    let tree = context.tree(&table.storage)?;
    // The codec, which is worked out once, is for the threads that encode, too.
    let shared = Arc::new(table.clone());
    let mut disordered: Option<Sorter> = None;
    build::fill(context, &tree, |filling| {
        let mut take = |rows: &Encoded| -> Result<()> {
            context.check()?;
            let mut rest = &rows.bytes[..];
            let is_whole = table.key != TableKey::RowId;
            for (place, &(key, row)) in rows.lengths.iter().enumerate() {
                let (mut key, behind) = rest.split_at(key as usize);
                let (row, behind) = behind.split_at(row as usize);
                rest = behind;
                let number;
                if !is_whole {
                    number = context.numbers.row_id(table)?.to_be_bytes();
                    key = &number;
                }
                indexes.take(rows, place, key, is_whole)?;
                if let Some(sorter) = &mut disordered {
                    sorter.push(key, row)?;
                    continue;
                }
                match filling.push(key, row)? {
                    Pushed::Done => {}
                    Pushed::Twice => return Err(duplicate(table)),
                    Pushed::Below => {
                        disordered.insert(Sorter::new(&context.session.engine)?).push(key, row)?;
                    }
                }
            }
            Ok(())
        };
        produce(&shared, &mut take)
    })?;
    disordered.map(|sorter| merge(context, table, &tree, sorter)).transpose()
}

/// A tree of the rows in order, and of those that came out of order.
fn merge(context: &DdlContext<'_>, table: &Table, ordered: &Tree, disordered: Sorter) -> Result<Storage> {
    let mut sorted = disordered.finish()?;
    let storage = context.new_storage("t")?;
    let tree = context.tree(&storage)?;
    let mut scan = context.latest_view().scan(ordered, (Bound::Unbounded, Bound::Unbounded))?;
    build::fill(context, &tree, |filling| {
        let mut push = |key: &[u8], row: &[u8]| match filling.push(key, row)? {
            Pushed::Done => Ok(()),
            Pushed::Twice | Pushed::Below => Err(duplicate(table)),
        };
        let mut count = 0_u32;
        let mut waiting = sorted.next()?;
        while let Some((key, row)) = scan.next()? {
            while let Some((sorted_key, sorted_row)) = waiting.filter(|(sorted_key, _)| *sorted_key < key) {
                push(sorted_key, sorted_row)?;
                waiting = sorted.next()?;
            }
            push(key, row)?;
            count = count.wrapping_add(1);
            if count.is_multiple_of(4096) {
                context.check()?;
            }
        }
        while let Some((key, row)) = waiting {
            push(key, row)?;
            waiting = sorted.next()?;
        }
        Ok(())
    })?;
    Ok(storage)
}

fn duplicate(table: &Table) -> Error {
    let name = table.primary().map_or(table.name.as_str(), |index| index.name.as_str());
    let message = format!("duplicate key value violates unique constraint \"{name}\"");
    Error::new(SqlState::UNIQUE_VIOLATION, message).table("public", &table.name).constraint(name)
}
