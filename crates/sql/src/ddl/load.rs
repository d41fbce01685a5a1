//! Rows of a dump put into an empty table: its tree is built from the bottom up, and so are those of its indexes.
//!
//! # Guarantees
//! 1. The table gets new trees in the session's transaction, as by TRUNCATE: nobody sees a row before the commit, and a rollback leaves
//!    nothing of them.
//! 2. Rows may come in any order. As long as they ascend they go to the tree as they come; from the first one on that does not, they are sorted
//!    within the memory budget and merged with those before.
//! 3. Every rule of the table is kept but NOT NULL, which who encodes the rows sees to.
//!
//! Who encodes the rows makes the entries of its indexes, too: the table is not read again for them. A thread of its own sorts them, beside
//! the session's, which builds the table.

use super::build::{self, Pushed};
use super::sort::Sorter;
use super::{DdlContext, object_name, validate};
use crate::bind::utility::CopyRelation;
use crate::catalog::{Storage, Table, TableKey};
use crate::room::Taken;
use crate::threads::start_thread;
use crate::{Error, Result, SqlState};
use gannet_base::memory::Purpose;
use gannet_store::{Engine, Tree, WorkMemory};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};

/// Fraction of the budget that entries of a table's indexes take together, as long as they are gathered, where nobody else uses it.
const SORT_SHARE: u64 = 2;
/// Bytes of buffers that are kept of a piece.
const KEPT: usize = 2 << 20;

/// Rows as they are stored.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    /// Keys and rows, one behind the other. Tables without primary key have empty keys.
    pub(crate) bytes: Vec<u8>,
    /// Lengths of keys and rows.
    pub(crate) lengths: Vec<(u32, u32)>,
    /// Their entries, for each index that is not the primary one.
    pub(crate) indexes: Vec<Entries>,
    /// What all of it is charged as, where it is long, and what else it has taken.
    memory: Option<Taken>,
    more: Option<WorkMemory>,
    /// Where the buffers go when nobody needs the rows any more.
    spare: Option<Spare>,
}

impl Encoded {
    /// Bytes of memory that it has, about.
    fn capacity(&self) -> usize {
        let of = |entries: &Entries| {
            entries.bytes.capacity() + entries.lengths.capacity() * size_of::<(u32, bool)>()
        };
        let indexes: usize = self.indexes.iter().map(of).sum();
        self.bytes.capacity() + self.lengths.capacity() * size_of::<(u32, u32)>() + indexes
    }

    /// Charges what it has beyond so many bytes.
    pub(crate) fn charge(&mut self, engine: &Engine, beyond: u64) -> Result<()> {
        let more = (self.capacity() as u64).saturating_sub(beyond);
        match &mut self.more {
            Some(memory) => memory.grow(more.saturating_sub(memory.bytes()))?,
            none if more > 0 => *none = Some(engine.memory(Purpose::Work, more)?),
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Encoded {
    fn drop(&mut self) {
        if let (Some(spare), None) = (self.spare.take(), &self.memory)
            && self.capacity() <= KEPT
        {
            let mut rows = std::mem::take(self);
            rows.more = None;
            rows.bytes.clear();
            rows.lengths.clear();
            rows.indexes.iter_mut().for_each(|entries| entries.truncate(0));
            spare.0.lock().unwrap_or_else(PoisonError::into_inner).push(rows);
        }
    }
}

/// Buffers of rows that nobody needs any more, for those to come: taking memory from the system costs as much as filling it. Clones are
/// the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spare(Arc<Mutex<Vec<Encoded>>>);

impl Spare {
    /// No rows yet, of a table with so many indexes besides the primary one; what they are charged as where they are long.
    pub(crate) fn rows(&self, indexes: usize, memory: Option<Taken>) -> Encoded {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        rows.indexes.resize_with(indexes, Entries::default);
        (rows.memory, rows.spare) = (memory, Some(self.clone()));
        rows
    }
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
pub(crate) type Take<'t> = &'t mut dyn FnMut(Encoded) -> Result<()>;
/// Gives rows of a table.
pub(crate) type Produce<'p> = &'p mut dyn FnMut(&Arc<Table>, Take<'_>) -> Result<()>;

/// How entries of indexes are sorted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sorting {
    /// So many pieces of rows may be behind, whose entries a thread sorts meanwhile; 0: the session does that, too.
    pub(crate) behind: usize,
    /// Nobody else uses the engine.
    pub(crate) alone: bool,
}

/// Fills an empty table of schema `public`; false when it is not empty, or has references, and nothing was done.
pub(crate) fn fill(
    context: &mut DdlContext<'_>,
    name: &str,
    sorting: Sorting,
    produce: Produce<'_>,
) -> Result<bool> {
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
    let (sorters, sorted) = fill_sorting(context, &table, sorting, produce)?;
    if let Some(sorted) = sorted {
        context.drop_storage(&table.storage)?;
        table.storage = sorted;
    }
    for index in 0..table.indexes.len() {
        table.indexes[index].storage =
            if table.indexes[index].primary { table.storage.clone() } else { context.new_storage("i")? };
    }
    build::fill_indexes(context, &table, sorters)?;
    build::drop_trees(context, &old)?;
    let table = context.put_table(table)?;
    table.checks.iter().try_for_each(|check| validate::check_naming_row(context, &table, check))?;
    Ok(true)
}

/// Rows whose entries are to be sorted, and their numbers where these are missing at the end of each key.
struct ToSort {
    rows: Encoded,
    row_ids: Vec<[u8; ROW_ID]>,
}

const ROW_ID: usize = size_of::<u64>();

/// A table's indexes that are not the primary one, by position, and their entries.
type Sorters = Vec<(usize, Sorter)>;

/// Fills the table's tree, and sorts the entries of its indexes meanwhile.
fn fill_sorting(
    context: &DdlContext<'_>,
    table: &Table,
    Sorting { behind, alone }: Sorting,
    produce: Produce<'_>,
) -> Result<(Sorters, Option<Storage>)> {
    let positions: Vec<usize> =
        (0..table.indexes.len()).filter(|&index| !table.indexes[index].primary).collect();
    let engine = &context.session.engine;
    // Pages that were filled are not needed again.
    let limit = engine.budget().limit() / SORT_SHARE / positions.len().max(1) as u64;
    let sorter = |&index: &usize| {
        let sorter = if alone { Sorter::within(engine, limit)? } else { Sorter::new(engine)? };
        Ok((index, sorter))
    };
    let mut sorters: Sorters = positions.iter().map(sorter).collect::<Result<_>>()?;
    if sorters.is_empty() || behind == 0 {
        let check = || context.check();
        let filled = fill_rows(context, table, &mut |piece| sort(&piece, &mut sorters, &check), produce)?;
        return Ok((sorters, filled));
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (send, to_sort) = sync_channel::<ToSort>(behind - 1);
        let (is_over, cancel) = (&is_over, context.cancel);
        let sorting = start_thread(scope, "gannet-sort", move || {
            for piece in to_sort {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                sort(&piece, &mut sorters, &|| build::goes_on(cancel))?;
            }
            Ok(sorters)
        })?;
        let mut has_ended = false;
        let mut hand_on = |piece| {
            send.send(piece).map_err(|_| {
                has_ended = true;
                Error::internal("the thread that sorts entries of indexes has ended")
            })
        };
        let filled = fill_rows(context, table, &mut hand_on, produce);
        is_over.store(filled.is_err(), Ordering::Relaxed);
        drop(send);
        let panicked = |_| Err(Error::internal("a thread that sorts entries of indexes has ended by itself"));
        let sorted = sorting.join().unwrap_or_else(panicked);
        context.check()?;
        match filled {
            // Why it has ended is why this one could not go on.
            Err(error) => Err(sorted.err().filter(|_| has_ended).unwrap_or(error)),
            Ok(filled) => Ok((sorted?, filled)),
        }
    })
}

/// Gives the entries of rows to those that sort them.
fn sort(
    ToSort { rows, row_ids }: &ToSort,
    sorters: &mut Sorters,
    check: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let mut whole = Vec::new();
    for ((_, sorter), entries) in sorters.iter_mut().zip(&rows.indexes) {
        let (mut rest, mut rest_of_rows) = (&entries.bytes[..], &rows.bytes[..]);
        let lengths = entries.lengths.iter().zip(&rows.lengths).enumerate();
        for (place, (&(len, conflicts), &(key, value))) in lengths {
            let (entry, behind) = rest.split_at(len as usize);
            let (row, rows_behind) = rest_of_rows.split_at((key + value) as usize);
            (rest, rest_of_rows) = (behind, rows_behind);
            let row_key = row_ids.get(place).map_or(&row[..key as usize], |id| &id[..]);
            match (conflicts, row_ids.is_empty()) {
                (true, _) => sorter.push(entry, row_key, check)?,
                (false, true) => sorter.push(entry, &[], check)?,
                (false, false) => {
                    whole.clear();
                    whole.extend_from_slice(entry);
                    whole.extend_from_slice(row_key);
                    sorter.push(&whole, &[], check)?;
                }
            }
        }
    }
    Ok(())
}

/// Fills the table's tree, and hands on what is to be sorted. Where rows came out of order, gives another tree with all of them.
fn fill_rows(
    context: &DdlContext<'_>,
    table: &Table,
    hand_on: &mut dyn FnMut(ToSort) -> Result<()>,
    produce: Produce<'_>,
) -> Result<Option<Storage>> {
    let tree = context.tree(&table.storage)?;
    // The codec, which is worked out once, is for the threads that encode, too.
    let shared = Arc::new(table.clone());
    let mut disordered: Option<Sorter> = None;
    build::fill(context, &tree, |filling| {
        let mut take = |rows: Encoded| -> Result<()> {
            context.check()?;
            let mut rest = &rows.bytes[..];
            let mut row_ids = Vec::new();
            if table.key == TableKey::RowId {
                for _ in &rows.lengths {
                    row_ids.push(context.numbers.row_id(table)?.to_be_bytes());
                }
            }
            for (place, &(key, row)) in rows.lengths.iter().enumerate() {
                let (key, behind) = rest.split_at(key as usize);
                let (row, behind) = behind.split_at(row as usize);
                rest = behind;
                let key = row_ids.get(place).map_or(key, |id| &id[..]);
                if let Some(sorter) = &mut disordered {
                    sorter.push(key, row, &|| context.check())?;
                    continue;
                }
                match filling.push(key, row)? {
                    Pushed::Done => {}
                    Pushed::Twice => return Err(duplicate(context, table, key, row)?),
                    Pushed::Below => {
                        let sorter = disordered.insert(Sorter::new(&context.session.engine)?);
                        sorter.push(key, row, &|| context.check())?;
                    }
                }
            }
            hand_on(ToSort { rows, row_ids })
        };
        produce(&shared, &mut take)
    })?;
    disordered.map(|sorter| merge(context, table, &tree, sorter)).transpose()
}

/// A tree of the rows in order, and of those that came out of order.
fn merge(context: &DdlContext<'_>, table: &Table, ordered: &Tree, disordered: Sorter) -> Result<Storage> {
    let mut sorted = disordered.finish(&|| context.check())?;
    let storage = context.new_storage("t")?;
    let tree = context.tree(&storage)?;
    let mut scan = context.latest_view().scan(ordered, (Bound::Unbounded, Bound::Unbounded))?;
    build::fill(context, &tree, |filling| {
        let mut push = |key: &[u8], row: &[u8]| match filling.push(key, row)? {
            Pushed::Done => Ok(()),
            Pushed::Twice | Pushed::Below => Err(duplicate(context, table, key, row)?),
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
            count = count.wrapping_add(1);
            if count.is_multiple_of(4096) {
                context.check()?;
            }
        }
        Ok(())
    })?;
    Ok(storage)
}

/// The error for a row whose primary key is there already.
fn duplicate(context: &DdlContext<'_>, table: &Table, key: &[u8], row: &[u8]) -> Result<Error> {
    let primary = table.primary().ok_or_else(|| Error::internal("two rows have one row number"))?;
    let columns: Vec<usize> =
        primary.columns.iter().filter_map(|column| table.position(column.column)).collect();
    let mut values = Vec::new();
    table.codec().decode_row(key, row, &columns, &mut values)?;
    let columns = || columns.iter().map(|&position| &table.columns[position]);
    let names: Vec<&str> = columns().map(|column| column.name.as_str()).collect();
    let values: Vec<String> =
        values.iter().zip(columns()).map(|(value, column)| build::show(context, value, column.ty)).collect();
    let message = format!("duplicate key value violates unique constraint \"{}\"", primary.name);
    Ok(Error::new(SqlState::UNIQUE_VIOLATION, message)
        .detail(format!("Key ({})=({}) already exists.", names.join(", "), values.join(", ")))
        .table("public", &table.name)
        .constraint(&primary.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_store::EngineOptions;

    #[test]
    fn what_rows_take_beyond_their_share_is_charged_until_nobody_needs_them() {
        let engine = Engine::new(&EngineOptions { memory: 16 << 20, ..EngineOptions::default() }).unwrap();
        let spare = Spare::default();
        let before = engine.budget().used();
        let mut rows = spare.rows(1, None);
        rows.bytes.reserve_exact(1 << 20);
        rows.charge(&engine, 2 << 20).unwrap();
        assert_eq!(engine.budget().used(), before, "it is within its share");
        rows.indexes[0].bytes.reserve_exact(3 << 19);
        rows.charge(&engine, 2 << 20).unwrap();
        assert_eq!(engine.budget().used(), before + (1 << 19));
        rows.charge(&engine, 0).unwrap();
        assert_eq!(engine.budget().used(), before + (5 << 19));
        drop(rows);
        assert_eq!(engine.budget().used(), before);
        let error = {
            let mut rows = spare.rows(0, None);
            rows.bytes.reserve_exact(32 << 20);
            rows.charge(&engine, 0).unwrap_err().to_string()
        };
        assert!(error.contains("memory"), "{error}");
    }
}
