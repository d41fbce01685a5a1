//! Rows of a dump put into an empty table: its tree is built from the bottom up, and so are those of its indexes.
//!
//! # Guarantees
//! 1. The table gets new trees in the session's transaction, as by TRUNCATE: nobody sees a row before the commit, and a rollback leaves
//!    nothing of them.
//! 2. Rows may come in any order. As long as they ascend they go to the tree as they come; from the first one on that does not, they are sorted
//!    within the memory budget and merged with those before.
//! 3. Every rule of the table is kept but NOT NULL, which who encodes the rows sees to.

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
    if let Some(sorted) = fill_rows(context, &table, produce)? {
        context.drop_storage(&table.storage)?;
        table.storage = sorted;
    }
    for index in 0..table.indexes.len() {
        table.indexes[index].storage =
            if table.indexes[index].primary { table.storage.clone() } else { context.new_storage("i")? };
    }
    for index in 0..table.indexes.len() {
        if !table.indexes[index].primary {
            build::fill_index(context, &table, index)?;
        }
    }
    build::drop_trees(context, &old)?;
    let table = context.put_table(table)?;
    table.checks.iter().try_for_each(|check| validate::check(context, &table, check))?;
    Ok(true)
}

/// Fills the table's tree. Where rows came out of order, gives another one with all of them.
fn fill_rows(context: &DdlContext<'_>, table: &Table, produce: Produce<'_>) -> Result<Option<Storage>> {
    let tree = context.tree(&table.storage)?;
    // The codec, which is worked out once, is for the threads that encode, too.
    let shared = Arc::new(table.clone());
    let mut disordered: Option<Sorter> = None;
    build::fill(context, &tree, |filling| {
        let mut take = |rows: &Encoded| -> Result<()> {
            context.check()?;
            let mut rest = &rows.bytes[..];
            for &(key, row) in &rows.lengths {
                let (mut key, behind) = rest.split_at(key as usize);
                let (row, behind) = behind.split_at(row as usize);
                rest = behind;
                let number;
                if table.key == TableKey::RowId {
                    number = context.numbers.row_id(table)?.to_be_bytes();
                    key = &number;
                }
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
