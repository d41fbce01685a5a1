//! A stored row as a row of the plan.

use super::super::{Batch, Context, ShownRow, walk};
use crate::catalog::Table;
use crate::codec::key::KeyColumn;
use crate::codec::range::{Next, Range, key_range};
use crate::functions::like::{behind, fixed_part};
use crate::physical::{Access, Expr, KeyRange};
use crate::types::Value;
use crate::{Error, Result, SqlState};
use gannet_store::{Scan, Tree, View};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

/// What an operator takes of a table's rows.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// Number of the node, for its counters.
    pub(super) node: usize,
    pub(super) access: Arc<Access>,
    order: OnceLock<DecodeOrder>,
}

/// The columns that a filter looks at, and the others: position in the table, and in the row that is given.
#[derive(Clone, Debug)]
struct DecodeOrder {
    early: Vec<(usize, usize)>,
    late: Vec<(usize, usize)>,
}

/// The tree of a table's rows.
pub(super) fn table_tree<'t>(table: &'t Table, view: &View) -> Result<&'t Tree> {
    table.storage.tree(|name| open_tree(view, name))
}

/// The tree of an index (by position in the table); the primary one is the table's own.
pub(super) fn index_tree<'t>(table: &'t Table, index: usize, view: &View) -> Result<&'t Tree> {
    let index = &table.indexes[index];
    let storage = if index.primary { &table.storage } else { &index.storage };
    storage.tree(|name| open_tree(view, name))
}

fn open_tree(view: &View, name: &str) -> Result<Tree> {
    view.tree(name)?.ok_or_else(|| {
        Error::new(SqlState::DATA_CORRUPTED, format!("the catalog names tree \"{name}\", which is not there"))
    })
}

/// A scan of a range of keys.
pub(super) fn scan(view: &View, tree: &Tree, range: &Range) -> Result<Scan> {
    Ok(view.scan(tree, bounds(range))?)
}

/// A range of keys as the store has it.
pub(super) fn bounds(range: &Range) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let lower = if range.lower.is_empty() { Bound::Unbounded } else { Bound::Included(&range.lower[..]) };
    (lower, range.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
}

/// The keys that a condition on the first columns of a key means now; `None` when there can be none.
pub(super) fn evaluate(
    columns: &[KeyColumn],
    range: &KeyRange,
    context: &Context<'_>,
) -> Result<Option<Range>> {
    let value = |expr: &Expr| expr.eval(&[], context).map(|value| value.into_owned());
    let bound = |bound: &Option<(Vec<Expr>, bool)>| match bound {
        Some((exprs, included)) => {
            Ok::<_, Error>(Some((exprs.iter().map(&value).collect::<Result<Vec<_>>>()?, *included)))
        }
        None => Ok(None),
    };
    let equal = range.equal.iter().map(value).collect::<Result<Vec<_>>>()?;
    let (mut lower, mut upper) = (bound(&range.lower)?, bound(&range.upper)?);
    let mut not_null = range.not_null;
    if let Some(pattern) = &range.like {
        let pattern = value(pattern)?;
        let Some(pattern) = pattern.as_str() else { return Ok(None) };
        not_null = true;
        if let Some((fixed, whole)) = fixed_part(pattern) {
            let end = if whole { Some(fixed.clone()) } else { behind(&fixed) };
            upper = end.map(|end| (vec![Value::text(end)], whole));
            lower = Some((vec![Value::text(fixed)], true));
        }
    }
    let next = Next {
        lower: lower.as_ref().map(|(values, included)| (values.as_slice(), *included)),
        upper: upper.as_ref().map(|(values, included)| (values.as_slice(), *included)),
        is_null: range.is_null,
        not_null,
    };
    key_range(columns, equal.iter(), &next)
}

impl DecodeOrder {
    fn new(access: &Access) -> Self {
        let mut used = vec![access.filter.is_none(); access.columns.len() + 2];
        if let Some(filter) = &access.filter {
            walk::expressions(filter, &mut |part| {
                if let Expr::Column(place) = part {
                    used[*place] = true;
                }
            });
        }
        let places = access.columns.iter().enumerate().map(|(place, column)| (*column, place));
        // Where the row as a whole is looked at, all of it comes first.
        let whole = used[access.columns.len()..].contains(&true);
        let (early, late) = places.partition(|(_, place)| whole || used[*place]);
        DecodeOrder { early, late }
    }
}

impl Rows {
    pub(super) fn new(node: usize, access: &Arc<Access>) -> Self {
        Rows { node, access: Arc::clone(access), order: OnceLock::new() }
    }

    /// The same without any columns: whether there is a row.
    pub(super) fn without_columns(&self) -> Self {
        let access = Access { columns: Vec::new(), identity: false, ..Access::clone(&self.access) };
        Rows { node: self.node, access: Arc::new(access), order: OnceLock::new() }
    }

    /// In which order columns are read; who reads one row at most does not ask.
    #[inline]
    fn order(&self) -> &DecodeOrder {
        self.order.get_or_init(|| DecodeOrder::new(&self.access))
    }

    /// Values of a row that is given.
    pub(super) fn width(&self) -> usize {
        self.access.columns.len() + if self.access.identity { 2 } else { 0 }
    }

    pub(super) fn tree(&self, view: &View) -> Result<&Tree> {
        table_tree(&self.access.table, view)
    }

    /// Appends a row; the filter is not asked.
    pub(super) fn decode(&self, key: &[u8], row: &[u8], values: &mut Vec<Value>) -> Result<()> {
        self.access.table.codec().decode_row(key, row, &self.access.columns, values)?;
        if self.access.identity {
            values.extend([Value::Bytes(key.into()), Value::Bytes(row.into())]);
        }
        Ok(())
    }

    /// Appends what an index entry has of a row; the filter is not asked.
    pub(super) fn decode_entry(
        &self,
        index: usize,
        key: &[u8],
        value: &[u8],
        values: &mut Vec<Value>,
    ) -> Result<()> {
        if self.access.identity {
            return Err(Error::internal("an index does not have the identity of a row"));
        }
        self.access.table.codec().decode_index(index, key, value, &self.access.columns, values)
    }

    /// Whether a row that is given fulfils the filter.
    pub(super) fn passes(&self, row: &[Value], context: &Context<'_>) -> Result<bool> {
        let Some(filter) = &self.access.filter else { return Ok(true) };
        let passes = filter.is_true(row, context)?;
        if !passes {
            context.note(self.node, |profile| profile.rows_removed += 1);
        }
        Ok(passes)
    }

    /// Adds a row to a batch, if it fulfils the filter.
    #[inline]
    pub(super) fn push(&self, context: &Context<'_>, key: &[u8], row: &[u8], out: &mut Batch) -> Result<()> {
        out.push_over(|values| self.decode_over(context, key, row, values))?;
        Ok(())
    }

    /// Shows a row, if it fulfils the filter, and says whether it does. `judged`: where that looks at it.
    #[inline]
    pub(super) fn show(
        &self,
        context: &Context<'_>,
        key: &[u8],
        row: &[u8],
        judged: &mut [Value],
        each: &mut dyn FnMut(ShownRow<'_>) -> Result<()>,
    ) -> Result<bool> {
        if self.access.filter.is_some() {
            self.decode_some(key, row, &self.order().early, false, judged)?;
            if !self.passes(judged, context)? {
                return Ok(false);
            }
        }
        each(ShownRow::Stored(&self.access.table.codec().look(key, row, &self.access.columns)?))?;
        Ok(true)
    }

    /// Puts a row over another one, if it fulfils the filter, and says whether it does. Of one that does not, no more is read than the filter
    /// looks at.
    #[inline]
    pub(super) fn decode_over(
        &self,
        context: &Context<'_>,
        key: &[u8],
        row: &[u8],
        values: &mut [Value],
    ) -> Result<bool> {
        let order = self.order();
        let whole = order.late.is_empty();
        self.decode_some(key, row, &order.early, whole, values)?;
        if !self.passes(values, context)? {
            return Ok(false);
        }
        if !whole {
            self.decode_some(key, row, &order.late, true, values)?;
        }
        Ok(true)
    }

    /// Puts these columns of a row, and its identity where that is wanted, into their places.
    #[inline]
    fn decode_some(
        &self,
        key: &[u8],
        row: &[u8],
        columns: &[(usize, usize)],
        identity: bool,
        values: &mut [Value],
    ) -> Result<()> {
        self.access.table.codec().decode_into(key, row, columns, values)?;
        if identity && self.access.identity {
            let place = self.access.columns.len();
            values[place] = Value::Bytes(key.into());
            values[place + 1] = Value::Bytes(row.into());
        }
        Ok(())
    }

    /// Adds a row that `decode` appends to a batch, if it fulfils the filter.
    pub(super) fn push_with(
        &self,
        context: &Context<'_>,
        out: &mut Batch,
        decode: impl FnOnce(&mut Vec<Value>) -> Result<()>,
    ) -> Result<()> {
        out.push_with(|values| {
            let start = values.len();
            decode(values)?;
            self.passes(&values[start..], context)
        })?;
        Ok(())
    }

    /// An index entry whose row is not there.
    pub(super) fn missing_row(&self, index: usize) -> Error {
        let message = format!(
            "index \"{}\" leads to a row that table \"{}\" does not have",
            self.access.table.indexes[index].name, self.access.table.name
        );
        Error::new(SqlState::DATA_CORRUPTED, message)
    }
}
