//! Rows that statements will ask for which a client has sent already, behind the one that runs: as far as their keys are known before, these rows' pages come
//! from the device together, in place of one by one as each statement gets there.
//!
//! # Guarantees
//! 1. It is a hint: nothing is evaluated but literals and parameters, and nothing is decided. What is wrong with a statement is found by the statement.
//! 2. While keys are gathered nothing is read. All keys of a tree are asked for at once, and no more of all trees together than the store fetches at one time.
//! 3. Keys take no more memory than [`KEYS_MAX`] and [`BYTES_MAX`] say.

use super::access::{index_tree, table_tree};
use crate::Result;
use crate::catalog::Table;
use crate::codec::key::KeyColumn;
use crate::codec::range::{Next, encode_equal, key_range};
use crate::physical::{Expr, KeyRange, Node, Plan, children};
use crate::types::Value;
use gannet_store::View;
use std::sync::Arc;

/// Keys that are gathered, at most, and bytes of them.
const KEYS_MAX: usize = 512;
const BYTES_MAX: usize = 64 << 10;
/// Longest value that is looked at, in bytes: few keys are longer.
const VALUE_MAX: usize = 2048;

/// Gives the value of a parameter, by its number; `None` where it cannot be had.
type Given<'g> = &'g mut dyn FnMut(usize) -> Option<Value>;

/// Keys of the tree of a table, or of one of its indexes.
#[derive(Debug)]
struct Keys {
    table: Arc<Table>,
    index: Option<usize>,
    keys: Vec<Vec<u8>>,
}

/// Keys that will be asked for.
#[derive(Debug, Default)]
pub(crate) struct Coming {
    trees: Vec<Keys>,
    keys: usize,
    bytes: usize,
}

impl Coming {
    /// Whether there is room for no more.
    pub(crate) fn is_full(&self) -> bool {
        self.keys >= KEYS_MAX || self.bytes >= BYTES_MAX
    }

    /// Adds what a plan looks up, as far as there is room.
    pub(crate) fn add(&mut self, plan: &Plan, given: Given<'_>) -> Result<()> {
        match &plan.node {
            Node::TableScan { access, range: Some(range), backward } => {
                let columns = access.table.codec().key_columns();
                self.push(&access.table, None, first_key(columns, range, *backward, given)?);
            }
            Node::IndexScan { access, index, range, backward, .. } => {
                let columns = access.table.codec().index_columns(*index);
                self.push(&access.table, Some(*index), first_key(columns, range, *backward, given)?);
            }
            Node::Insert { input, insert } => {
                let Node::Values(rows) = &input.node else { return self.add(input, given) };
                for row in rows.iter() {
                    if self.is_full() {
                        break;
                    }
                    self.insert(&insert.table, &insert.values, row, given)?;
                }
            }
            _ => children(plan).into_iter().try_for_each(|child| self.add(child, given))?,
        }
        Ok(())
    }

    /// Where a new row and its entries of indexes will be.
    fn insert(&mut self, table: &Arc<Table>, values: &[Expr], row: &[Expr], given: Given<'_>) -> Result<()> {
        let codec = table.codec();
        let value = |position: &usize| match values.get(*position) {
            Some(Expr::Column(column)) => row.get(*column),
            other => other,
        };
        let key = beginning(codec.key_columns(), codec.key_positions().iter().map_while(value), given)?;
        self.push(table, None, key);
        for number in (0..table.indexes.len()).filter(|&number| !table.indexes[number].primary) {
            let values = codec.index_positions(number).iter().map_while(value);
            self.push(table, Some(number), beginning(codec.index_columns(number), values, given)?);
        }
        Ok(())
    }

    /// Adds a key, where there is one.
    fn push(&mut self, table: &Arc<Table>, index: Option<usize>, key: Option<Vec<u8>>) {
        let Some(key) = key.filter(|key| !key.is_empty() && !self.is_full()) else { return };
        self.keys += 1;
        self.bytes += key.len();
        let is_of = |tree: &&mut Keys| tree.index == index && Arc::ptr_eq(&tree.table, table);
        match self.trees.iter_mut().find(is_of) {
            Some(tree) => tree.keys.push(key),
            None => self.trees.push(Keys { table: Arc::clone(table), index, keys: vec![key] }),
        }
    }

    /// Has what was gathered fetched, for which is waited no longer than for inner nodes on the way. The view is one that goes by the plans' definitions.
    pub(crate) fn fetch(self, view: &View) -> Result<()> {
        let mut left = view.prefetch_limit();
        for Keys { table, index, mut keys } in self.trees {
            keys.truncate(left);
            left -= keys.len();
            let tree = match index {
                None => table_tree(&table, view)?,
                Some(index) => index_tree(&table, index, view)?,
            };
            view.prefetch(tree, &keys)?;
        }
        Ok(())
    }
}

/// The value of an expression, where it is known before its statement runs.
fn known(expr: &Expr, given: Given<'_>) -> Option<Value> {
    match expr {
        Expr::Literal(value) if value.heap_bytes() <= VALUE_MAX => Some(value.clone()),
        Expr::Parameter(number) => given(*number).filter(|value| value.heap_bytes() <= VALUE_MAX),
        _ => None,
    }
}

/// The key of these values, or its beginning, as far as they are known; `None` where no key has them.
fn beginning<'e>(
    columns: &[KeyColumn],
    values: impl Iterator<Item = &'e Expr>,
    given: Given<'_>,
) -> Result<Option<Vec<u8>>> {
    let mut key = Vec::new();
    for (column, expr) in columns.iter().zip(values) {
        let Some(value) = known(expr, given) else { break };
        if !encode_equal(std::slice::from_ref(column), [&value], &mut key)? {
            return Ok(None);
        }
    }
    Ok(Some(key))
}

/// Where a scan of a range begins, as far as that is known; `None` where there is nothing to be scanned.
fn first_key(
    columns: &[KeyColumn],
    range: &KeyRange,
    backward: bool,
    given: Given<'_>,
) -> Result<Option<Vec<u8>>> {
    let equal: Vec<Value> = range.equal.iter().map_while(|expr| known(expr, given)).collect();
    // What comes behind a value that is not known says nothing.
    let is_whole = equal.len() == range.equal.len();
    let mut bound = |bound: &Option<(Vec<Expr>, bool)>| {
        let (exprs, included) = bound.as_ref().filter(|_| is_whole)?;
        let values = exprs.iter().map(|expr| known(expr, given));
        Some((values.collect::<Option<Vec<Value>>>()?, *included))
    };
    let (lower, upper) = (bound(&range.lower), bound(&range.upper));
    let next = Next {
        lower: lower.as_ref().map(|(values, included)| (values.as_slice(), *included)),
        upper: upper.as_ref().map(|(values, included)| (values.as_slice(), *included)),
        is_null: range.is_null && is_whole,
        not_null: range.not_null && is_whole,
    };
    let keys = key_range(columns, equal.iter(), &next)?;
    // From its end on it begins in front of the first key behind it, mostly on the same page.
    Ok(keys.and_then(|keys| if backward { keys.upper } else { Some(keys.lower) }))
}
