//! Rows of a table in the order of an index.

use super::super::{BATCH_ROWS, Batch, Context, Operator};
use super::access::{Rows, evaluate, index_tree, scan};
use super::ahead::{Keys, Window};
use super::gather::Gathered;
use super::table_scan::{Since, pass_over, show};
use crate::catalog::Table;
use crate::codec::range::encode_equal;
use crate::physical::{Access, KeyRange};
use crate::{Error, Result};
use gannet_store::{Scan, Visitor};
use std::sync::Arc;

/// Rows that are given out before rows are gathered in the table's order: fewer may be wanted.
const FEW_ROWS: u64 = 4096;

/// How an index is gone through.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// Which index, by position in the table.
    pub(super) index: usize,
    pub(super) backward: bool,
    /// The index has all that is taken.
    pub(super) index_only: bool,
    /// Rows of the table are fetched in deep batches ahead of their turn; else one by one.
    pub(super) look_ahead: bool,
}

/// Rows of a table in the order of an index, of which a range is gone through.
#[derive(Debug)]
pub(super) struct IndexScan {
    rows: Rows,
    range: Arc<KeyRange>,
    how: How,
    /// The range is one value for each column of a unique index.
    whole_key: bool,
    started: bool,
    /// `None` when all entries were taken.
    scan: Option<Box<Scan>>,
    window: Window,
    /// Rows visited.
    visited: u64,
    /// Once many rows were visited.
    gathered: Option<Box<Gathered>>,
}

impl IndexScan {
    pub(super) fn new(node: usize, access: &Arc<Access>, range: &Arc<KeyRange>, how: How) -> Self {
        let index = &access.table.indexes[how.index];
        IndexScan {
            whole_key: index.unique && range.equal.len() == index.columns.len(),
            rows: Rows::new(node, access),
            range: Arc::clone(range),
            how,
            started: false,
            scan: None,
            window: Window::new(how.look_ahead),
            visited: 0,
            gathered: None,
        }
    }

    fn start(&mut self, context: &Context<'_>, limit: usize) -> Result<()> {
        self.started = true;
        self.window.begin(limit);
        let table = &self.rows.access.table;
        let columns = table.codec().index_columns(self.how.index);
        if let Some(range) = evaluate(columns, &self.range, context)? {
            let tree = index_tree(table, self.how.index, context.view)?;
            let mut scan = scan(context.view, tree, &range)?;
            scan.look_ahead(self.how.look_ahead || self.how.index_only);
            self.scan = Some(Box::new(scan));
        }
        Ok(())
    }

    /// Adds the only row there can be.
    fn fetch_one(&mut self, context: &Context<'_>, out: &mut Batch) -> Result<()> {
        self.started = true;
        let (rows, index) = (&self.rows, self.how.index);
        let columns = rows.access.table.codec().index_columns(index);
        let (mut entry, mut row_key) = (Vec::with_capacity(16), Vec::new());
        for (expr, column) in self.range.equal.iter().zip(columns) {
            if !encode_equal(std::slice::from_ref(column), [&*expr.eval(&[], context)?], &mut entry)? {
                return Ok(());
            }
        }
        let tree = index_tree(&rows.access.table, index, context.view)?;
        if context.view.with_value(tree, &entry, |value| row_key.extend_from_slice(value))?.is_none() {
            return Ok(());
        }
        if self.how.index_only {
            return rows.push_with(context, out, |values| rows.decode_entry(index, &entry, &row_key, values));
        }
        self.visit(context, &row_key, out).map(drop)
    }

    /// Adds the row with a key that the index has; gives the bytes it has in the table.
    fn visit(&self, context: &Context<'_>, key: &[u8], out: &mut Batch) -> Result<usize> {
        let tree = self.rows.tree(context.view)?;
        let mut bytes = 0;
        out.push_with(|values| {
            let start = values.len();
            let found = context.view.with_value(tree, key, |row| {
                bytes = row.len();
                self.rows.decode(key, row, values)
            })?;
            found.ok_or_else(|| self.rows.missing_row(self.how.index))??;
            // The filter may ask the store for more; it comes when the page is free again.
            self.rows.passes(&values[start..], context)
        })?;
        Ok(bytes)
    }

    /// Adds rows from the entries alone.
    fn scan_entries(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<()> {
        let Some(scan) = &mut self.scan else { return Ok(()) };
        context.check()?;
        let mut fill =
            Fill { rows: &self.rows, index: self.how.index, context, limit, out, since: Since::default() };
        if !show(scan, self.how.backward, &mut fill)? {
            self.scan = None;
        }
        Ok(())
    }

    /// Takes entries of the index into the window.
    fn fill(&mut self, context: &Context<'_>) -> Result<()> {
        let wanted = self.window.wanted();
        let Some(scan) = self.scan.as_mut().filter(|_| wanted > 0) else { return Ok(()) };
        context.check()?;
        let table = &self.rows.access.table;
        let mut added = 0;
        while added < wanted {
            if !push_key(scan, table, self.how, &mut self.window.keys)? {
                self.scan = None;
                break;
            }
            added += 1;
        }
        self.window.fetch(context, self.rows.tree(context.view)?, added)
    }

    /// Adds rows by visits to the table.
    fn visit_rows(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<()> {
        let mut bytes = 0;
        while out.has_room_beyond(context, limit, bytes)? {
            if self.visited < FEW_ROWS || !self.how.look_ahead {
                self.fill(context)?;
            }
            if self.window.keys.len() == 0 {
                break;
            }
            bytes += self.visit(context, self.window.keys.get(0), out)?;
            self.window.keys.advance();
            self.visited += 1;
        }
        if self.window.keys.len() == 0
            && (self.scan.is_some() || self.gathered.is_some())
            && out.has_room_beyond(context, limit, bytes)?
        {
            self.window.release();
            self.give_gathered(context, limit, out)?;
        }
        Ok(())
    }

    /// Adds rows that were gathered in the table's order.
    fn give_gathered(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<()> {
        let mut gathered = self.gathered.take().unwrap_or_else(|| Box::new(Gathered::new()));
        let mut bytes = 0;
        while out.has_room_beyond(context, limit, bytes)? {
            let Some((key, row)) = gathered.take() else {
                let Some(scan) = &mut self.scan else { return Ok(()) };
                let (table, how) = (&self.rows.access.table, self.how);
                let next = |keys: &mut Keys| push_key(scan, table, how, keys);
                if !gathered.fill(context, self.rows.node, self.rows.tree(context.view)?, next)? {
                    self.scan = None;
                    return Ok(());
                }
                continue;
            };
            match row {
                Some(row) => {
                    bytes += row.len();
                    self.rows.push(context, key, row, out)?;
                }
                None => bytes += self.visit(context, key, out)?,
            }
        }
        self.gathered = Some(gathered);
        Ok(())
    }
}

impl Operator for IndexScan {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.rows.width());
        if !self.started && self.whole_key {
            self.fetch_one(context, out)?;
            out.has_room(context, limit)?;
            return Ok(!out.is_empty());
        }
        if !self.started {
            self.start(context, limit)?;
        }
        if self.how.index_only {
            self.scan_entries(context, limit, out)?;
        } else {
            self.visit_rows(context, limit, out)?;
        }
        Ok(!out.is_empty())
    }

    fn pass_over(&mut self, context: &Context<'_>) -> Result<Option<u64>> {
        if self.whole_key || self.how.backward || !self.how.index_only || self.rows.access.filter.is_some() {
            return Ok(None);
        }
        if !self.started {
            self.start(context, BATCH_ROWS)?;
        }
        let Some(scan) = &mut self.scan else { return Ok(Some(0)) };
        let rows = pass_over(context, scan)?;
        if rows == 0 {
            self.scan = None;
        }
        Ok(Some(rows))
    }

    fn rewind(&mut self, _: &Context<'_>) -> Result<()> {
        self.started = false;
        self.scan = None;
        self.window.release();
        self.visited = 0;
        self.gathered = None;
        Ok(())
    }
}

/// Puts into a batch what entries have of rows.
struct Fill<'f, 'c> {
    rows: &'f Rows,
    index: usize,
    context: &'f Context<'c>,
    limit: usize,
    out: &'f mut Batch,
    since: Since,
}

impl Visitor for Fill<'_, '_> {
    type Error = Error;

    #[inline]
    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Fill { rows, index, .. } = *self;
        self.since.add(key.len() + value.len());
        rows.push_with(self.context, self.out, |values| rows.decode_entry(index, key, value, values))
    }

    #[inline]
    fn goes_on(&mut self) -> Result<bool> {
        self.since.check(self.context)?;
        self.out.has_room(self.context, self.limit)
    }
}

/// Adds the key of the row that the next entry of an index leads to; false when there are no more entries.
fn push_key(scan: &mut Scan, table: &Table, how: How, keys: &mut Keys) -> Result<bool> {
    let entry = if how.backward { scan.previous()? } else { scan.next()? };
    let Some((key, value)) = entry else { return Ok(false) };
    keys.push(table.codec().index_row_key(how.index, key, value)?);
    Ok(true)
}
