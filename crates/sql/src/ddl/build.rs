//! Filling indexes, and writing a table's rows anew: scan, sort by key, load from the bottom up.
//!
//! The caller holds the exclusive lock on the table's entry, so the rows that are committed when the scan begins are all there will
//! be, save for those of the own transaction, which the view shows as well.

use super::DdlContext;
use super::sort::{Sorted, Sorter};
use crate::catalog::{Table, TableKey};
use crate::threads::start_thread;
use crate::types::{Value, text};
use crate::{Error, Result, SqlState};
use gannet_store::{BulkLoader, Engine, Tree};
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Rows between two looks at whether the statement was cancelled.
pub(super) const CHECK_EVERY: u32 = 4096;

/// Fills the tree of an index (by position, not the primary one), which this transaction has created, from the table's rows.
pub(super) fn fill_index(context: &DdlContext<'_>, table: &Table, position: usize) -> Result<()> {
    let rows = context.tree(&table.storage)?;
    let mut sorter = Sorter::new(&context.session.engine)?;
    let everything: Vec<usize> = (0..table.columns.len()).collect();
    let mut row = Vec::new();
    for_each_row(context, &rows, |key, value| {
        row.clear();
        table.codec().decode_row(key, value, &everything, &mut row)?;
        let entry = table.codec().index_entry(position, &row, key)?;
        sorter.push(&entry.key, &entry.value, &|| context.check())
    })?;
    let index = &table.indexes[position];
    let tree = context.tree(&index.storage)?;
    load(context, &tree, sorter.finish(&|| context.check())?, |_, row_key| {
        duplicate_of(context, table, position, &rows, row_key)
    })
}

/// Writes all rows of `old` in the shape of `new`, which gets new trees for itself and its indexes; those of `old` are dropped. `complete` appends
/// the values of columns that `old` does not have; `keep` says which of its columns `new` has, by position in `old`.
pub(super) fn rewrite(
    context: &DdlContext<'_>,
    old: &Table,
    mut new: Table,
    keep: &[usize],
    mut complete: impl FnMut(&mut Vec<Value>) -> Result<()>,
) -> Result<Table> {
    new.storage = context.new_storage("t")?;
    // No row of an earlier layout is left.
    new.layouts.drain(..new.layouts.len().saturating_sub(1));
    for index in 0..new.indexes.len() {
        new.indexes[index].storage =
            if new.indexes[index].primary { new.storage.clone() } else { context.new_storage("i")? };
    }
    let source = context.tree(&old.storage)?;
    let mut sorter = Sorter::new(&context.session.engine)?;
    let (mut row, mut new_key, mut new_row) = (Vec::new(), Vec::new(), Vec::new());
    let mut null_in_key = None;
    for_each_row(context, &source, |key, value| {
        row.clear();
        new_key.clear();
        new_row.clear();
        old.codec().decode_row(key, value, keep, &mut row)?;
        complete(&mut row)?;
        for (column, value) in new.columns.iter().zip(&row) {
            if column.not_null && value.is_null() {
                let error = contains_null(&new, &column.name);
                if !matches!(&new.key, TableKey::Columns(key) if key.contains(&column.number)) {
                    return Err(error);
                }
                // As in PostgreSQL, keys that are there twice are an error before those that are not there.
                null_in_key.get_or_insert(error);
                return Ok(());
            }
        }
        match (&old.key, &new.key) {
            (_, TableKey::Columns(_)) => new.codec().row_key(&row, &mut new_key)?,
            (TableKey::RowId, TableKey::RowId) => new_key.extend_from_slice(key),
            (TableKey::Columns(_), TableKey::RowId) => {
                new_key.extend_from_slice(&context.numbers.row_id(&new)?.to_be_bytes());
            }
        }
        new.codec().encode_row(&row, &mut new_row)?;
        sorter.push(&new_key, &new_row, &|| context.check())
    })?;
    let tree = context.tree(&new.storage)?;
    load(context, &tree, sorter.finish(&|| context.check())?, |key, value| {
        let everything: Vec<usize> = (0..new.columns.len()).collect();
        let mut values = Vec::new();
        new.codec().decode_row(key, value, &everything, &mut values)?;
        let primary = new.indexes.iter().position(|index| index.primary);
        let primary = primary.ok_or_else(|| Error::internal("two rows have one row number"))?;
        Ok(duplicate(context, &new, primary, &values))
    })?;
    if let Some(error) = null_in_key {
        return Err(error);
    }
    for (position, index) in new.indexes.iter().enumerate() {
        if !index.primary {
            fill_index(context, &new, position)?;
        }
    }
    drop_trees(context, old)?;
    Ok(new)
}

/// Drops the trees of a table and its indexes.
pub(super) fn drop_trees(context: &DdlContext<'_>, table: &Table) -> Result<()> {
    context.drop_storage(&table.storage)?;
    for index in table.indexes.iter().filter(|index| !index.primary) {
        context.drop_storage(&index.storage)?;
    }
    Ok(())
}

fn for_each_row(
    context: &DdlContext<'_>,
    tree: &Tree,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let everything = (Bound::Unbounded, Bound::Unbounded);
    let mut scan = context.latest_view().scan(tree, everything)?;
    // What is loaded is there for everybody who sees the new tree, also for this transaction's snapshot.
    let mut seen = context.snapshot_view().map(|view| view.scan(tree, everything)).transpose()?;
    let mut count = 0_u32;
    while let Some((key, value)) = scan.next()? {
        if let Some(seen) = &mut seen
            && seen.next()? != Some((key, value))
        {
            return Err(changed_since());
        }
        each(key, value)?;
        count = count.wrapping_add(1);
        if count.is_multiple_of(CHECK_EVERY) {
            context.check()?;
        }
    }
    if let Some(seen) = &mut seen
        && seen.next()?.is_some()
    {
        return Err(changed_since());
    }
    Ok(())
}

/// Rows are not what the transaction's snapshot shows.
fn changed_since() -> Error {
    Error::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
}

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pushed {
    /// It is in.
    Done,
    /// The entry before has the same key.
    Twice,
    /// Its key is below the one before.
    Below,
}

/// An empty tree that is filled with entries in the order of their keys.
pub(super) struct Filling<'t> {
    loader: BulkLoader<'t>,
    previous: Option<Vec<u8>>,
    /// What is too long for a page of its own is put in afterwards, one by one.
    long: Option<Sorter>,
    engine: Engine,
    /// Asked now and then whether to go on.
    check: &'t dyn Fn() -> Result<()>,
}

impl<'t> Filling<'t> {
    fn new(loader: BulkLoader<'t>, engine: &Engine, check: &'t dyn Fn() -> Result<()>) -> Self {
        Filling { loader, previous: None, long: None, engine: engine.clone(), check }
    }

    /// Adds the entries as they come; gives the first one whose key was there already.
    fn push_all(&mut self, mut sorted: Sorted) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut count = 0_u32;
        while let Some((key, value)) = sorted.next()? {
            if self.push(key, value)? != Pushed::Done {
                return Ok(Some((key.to_vec(), value.to_vec())));
            }
            count = count.wrapping_add(1);
            if count.is_multiple_of(CHECK_EVERY) {
                (self.check)()?;
            }
        }
        Ok(None)
    }

    /// Completes the tree; gives what is to be put in afterwards.
    fn finish(self) -> Result<Long> {
        self.loader.finish()?;
        Ok(Long(self.long))
    }

    /// Adds an entry, unless its key is not above all before.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<Pushed> {
        match self.previous.as_deref().map(|previous| key.cmp(previous)) {
            Some(Ordering::Less) => return Ok(Pushed::Below),
            Some(Ordering::Equal) => return Ok(Pushed::Twice),
            None | Some(Ordering::Greater) => {}
        }
        if self.loader.takes(key, value) {
            self.loader.push(key, value)?;
        } else {
            let long = match &mut self.long {
                Some(long) => long,
                None => self.long.insert(Sorter::new(&self.engine)?),
            };
            long.push(key, value, self.check)?;
        }
        let previous = self.previous.get_or_insert_default();
        previous.clear();
        previous.extend_from_slice(key);
        Ok(Pushed::Done)
    }
}

/// Entries that are too long for bulk load.
struct Long(Option<Sorter>);

impl Long {
    fn put(self, context: &DdlContext<'_>, tree: &Tree) -> Result<()> {
        if let Some(entries) = self.0 {
            let check = || context.check();
            let mut entries = entries.finish(&check)?;
            while let Some((key, value)) = entries.next()? {
                check()?;
                put_long(context, tree, key, value)?;
            }
        }
        Ok(())
    }
}

/// Fills an empty tree of this transaction with what `work` pushes.
pub(super) fn fill<R>(
    context: &DdlContext<'_>,
    tree: &Tree,
    work: impl FnOnce(&mut Filling<'_>) -> Result<R>,
) -> Result<R> {
    let check = || context.check();
    let (result, long) = {
        let mut transaction = context.transaction.borrow_mut();
        let mut filling = Filling::new(transaction.bulk_loader(tree)?, &context.session.engine, &check);
        let result = work(&mut filling)?;
        (result, filling.finish()?)
    };
    long.put(context, tree)?;
    Ok(result)
}

/// Fills an empty tree of this transaction. `twice` makes the error for an entry whose key was there already.
fn load(
    context: &DdlContext<'_>,
    tree: &Tree,
    sorted: Sorted,
    twice: impl FnOnce(&[u8], &[u8]) -> Result<Error>,
) -> Result<()> {
    match fill(context, tree, |filling| filling.push_all(sorted))? {
        Some((key, value)) => Err(twice(&key, &value)?),
        None => Ok(()),
    }
}

/// Fills the trees of some indexes (by position, none of them the primary one), which this transaction has created, from their entries:
/// several at a time, each by a thread of its own.
pub(super) fn fill_indexes(
    context: &DdlContext<'_>,
    table: &Table,
    sorters: Vec<(usize, Sorter)>,
) -> Result<()> {
    let together = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let rows = context.tree(&table.storage)?;
    let mut sorters = sorters.into_iter();
    loop {
        let some: Vec<_> = sorters.by_ref().take(together).collect();
        if some.is_empty() {
            return Ok(());
        }
        let tree = |(position, _): &(usize, Sorter)| context.tree(&table.indexes[*position].storage);
        let trees: Vec<Tree> = some.iter().map(tree).collect::<Result<_>>()?;
        let positions: Vec<usize> = some.iter().map(|(position, _)| *position).collect();
        let filled = fill_together(context, &trees, some)?;
        for ((tree, position), (twice, long)) in trees.iter().zip(positions).zip(filled) {
            if let Some((_, row_key)) = twice {
                return Err(duplicate_of(context, table, position, &rows, &row_key)?);
            }
            long.put(context, tree)?;
        }
    }
}

/// What has become of an index: the entry that is there twice, and those that are to be put in afterwards.
type Filled = (Option<(Vec<u8>, Vec<u8>)>, Long);

fn fill_together(
    context: &DdlContext<'_>,
    trees: &[Tree],
    sorters: Vec<(usize, Sorter)>,
) -> Result<Vec<Filled>> {
    let mut transaction = context.transaction.borrow_mut();
    let loaders = transaction.bulk_loaders(trees)?;
    let (engine, cancel) = (&context.session.engine, context.cancel);
    let filled: Vec<Result<Filled>> = std::thread::scope(|scope| {
        let fill = |((_, sorter), loader): ((usize, Sorter), _)| {
            start_thread(scope, "gannet-index", move || {
                let check = || goes_on(cancel);
                let mut filling = Filling::new(loader, engine, &check);
                let twice = filling.push_all(sorter.finish(&check)?)?;
                Ok((twice, filling.finish()?))
            })
        };
        let threads: Vec<_> = sorters.into_iter().zip(loaders).map(fill).collect();
        let panicked = |_| Err(Error::internal("a thread that builds an index has ended by itself"));
        threads.into_iter().map(|thread| thread?.join().unwrap_or_else(panicked)).collect()
    });
    context.check()?;
    filled.into_iter().collect()
}

/// Whether a thread goes on. The session says why not, when all have ended.
pub(super) fn goes_on(cancel: &AtomicBool) -> Result<()> {
    if cancel.load(Relaxed) { Err(Error::internal("it was cancelled")) } else { Ok(()) }
}

/// The error for a row that agrees with another one in the columns of a unique index.
fn duplicate_of(
    context: &DdlContext<'_>,
    table: &Table,
    position: usize,
    rows: &Tree,
    row_key: &[u8],
) -> Result<Error> {
    let everything: Vec<usize> = (0..table.columns.len()).collect();
    let mut values = Vec::new();
    if let Some(value) = context.latest_view().get(rows, row_key)? {
        table.codec().decode_row(row_key, &value, &everything, &mut values)?;
    }
    Ok(duplicate(context, table, position, &values))
}

fn put_long(context: &DdlContext<'_>, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
    match context.transaction.borrow_mut().put(tree, key, value) {
        Err(gannet_store::Error::Invalid(message)) => Err(Error::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("an index entry is too long: {message}"),
        )),
        other => Ok(other?),
    }
}

/// The error for rows that agree in the columns of a unique index.
fn duplicate(context: &DdlContext<'_>, table: &Table, index: usize, row: &[Value]) -> Error {
    let index = &table.indexes[index];
    let columns: Vec<usize> =
        index.columns.iter().filter_map(|column| table.position(column.column)).collect();
    let error =
        Error::new(SqlState::UNIQUE_VIOLATION, format!("could not create unique index \"{}\"", index.name));
    let names: Vec<&str> = columns.iter().map(|&position| table.columns[position].name.as_str()).collect();
    let values: Vec<String> = columns
        .iter()
        .filter_map(|&position| Some(show(context, row.get(position)?, table.columns[position].ty)))
        .collect();
    error
        .detail(format!("Key ({})=({}) is duplicated.", names.join(", "), values.join(", ")))
        .table("public", &table.name)
        .constraint(&index.name)
}

/// The text of a value.
pub(super) fn show(context: &DdlContext<'_>, value: &Value, ty: crate::Type) -> String {
    let mut out = String::new();
    if value.is_null() {
        out.push_str("null");
    } else {
        text::write(value, ty, &context.session.style, &mut out);
    }
    out
}

/// The error for rows that have NULL where it is to be refused.
pub(super) fn contains_null(table: &Table, column: &str) -> Error {
    Error::new(
        SqlState::NOT_NULL_VIOLATION,
        format!("column \"{column}\" of relation \"{}\" contains null values", table.name),
    )
    .table("public", &table.name)
    .column(column)
}
