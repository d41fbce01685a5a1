//! Rows that statements will ask for which a client has sent already, behind the one that runs: as far as their keys are known before, these rows' pages come
//! from the device together, in place of one by one as each statement gets there.
//!
//! # Guarantees
//! 1. It is a hint: nothing is evaluated but literals and parameters, nothing is waited for but inner nodes of trees, and nothing is decided. What is wrong with a
//!    statement is found by the statement.
//! 2. Keys of one tree that come behind one another are asked for at once.

use super::access::{index_tree, table_tree};
use crate::Result;
use crate::catalog::Table;
use crate::codec::key::KeyColumn;
use crate::codec::range::{Next, encode_equal, key_range};
use crate::physical::{Expr, KeyRange, Node, Plan, children};
use crate::types::Value;
use gannet_store::{Tree, View};

/// Gives the value of a parameter, by its number; `None` where it cannot be had.
pub(crate) type Given<'g> = &'g mut dyn FnMut(usize) -> Option<Value>;

/// Keys of one tree.
struct Keys<'p> {
    tree: &'p Tree,
    keys: Vec<Vec<u8>>,
}

/// Keys that are to be asked for.
pub(crate) struct Coming<'p> {
    view: &'p View,
    waiting: Option<Keys<'p>>,
}

impl<'p> Coming<'p> {
    /// Of statements that go by definitions which this view sees.
    pub(crate) fn new(view: &'p View) -> Self {
        Coming { view, waiting: None }
    }

    /// Adds what a plan looks up.
    pub(crate) fn add(&mut self, plan: &'p Plan, given: Given<'_>) -> Result<()> {
        match &plan.node {
            Node::TableScan { access, range: Some(range), backward } => {
                let columns = access.table.codec().key_columns();
                let key = first_key(columns, range, *backward, given)?;
                self.look_up(&access.table, None, key)
            }
            Node::IndexScan { access, index, range, backward, .. } => {
                let columns = access.table.codec().index_columns(*index);
                let key = first_key(columns, range, *backward, given)?;
                self.look_up(&access.table, Some(*index), key)
            }
            Node::Insert { input, insert } => {
                let Node::Values(rows) = &input.node else { return self.add(input, given) };
                rows.iter().try_for_each(|row| self.insert(&insert.table, &insert.values, row, given))
            }
            _ => children(plan).into_iter().try_for_each(|child| self.add(child, given)),
        }
    }

    /// Where a new row and its entries of indexes will be.
    fn insert(
        &mut self,
        table: &'p Table,
        values: &'p [Expr],
        row: &'p [Expr],
        given: Given<'_>,
    ) -> Result<()> {
        let codec = table.codec();
        let value = |position: &usize| match values.get(*position) {
            Some(Expr::Column(column)) => row.get(*column),
            other => other,
        };
        let of = |positions: &'p [usize]| positions.iter().map_while(value);
        self.look_up(table, None, beginning(codec.key_columns(), of(codec.key_positions()), given)?)?;
        for number in (0..table.indexes.len()).filter(|&number| !table.indexes[number].primary) {
            let values = of(codec.index_positions(number));
            self.look_up(table, Some(number), beginning(codec.index_columns(number), values, given)?)?;
        }
        Ok(())
    }

    /// Adds a key, where there is one.
    fn look_up(&mut self, table: &'p Table, index: Option<usize>, key: Option<Vec<u8>>) -> Result<()> {
        let Some(key) = key.filter(|key| !key.is_empty()) else { return Ok(()) };
        let tree = match index {
            None => table_tree(table, self.view)?,
            Some(index) => index_tree(table, index, self.view)?,
        };
        match &mut self.waiting {
            Some(waiting) if std::ptr::eq(waiting.tree, tree) => waiting.keys.push(key),
            _ => {
                self.fetch()?;
                self.waiting = Some(Keys { tree, keys: vec![key] });
            }
        }
        Ok(())
    }

    /// Has what was added fetched.
    pub(crate) fn fetch(&mut self) -> Result<()> {
        match self.waiting.take() {
            Some(Keys { tree, keys }) => Ok(self.view.prefetch(tree, &keys)?),
            None => Ok(()),
        }
    }
}

/// The value of an expression, where it is known before its statement runs.
fn known(expr: &Expr, given: Given<'_>) -> Option<Value> {
    match expr {
        Expr::Literal(value) => Some(value.clone()),
        Expr::Parameter(number) => given(*number),
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
