//! Rows of a table in the order of its key.

use super::super::{Batch, Context, Operator};
use super::access::{Rows, evaluate, scan};
use crate::codec::range::{Range, encode_equal};
use crate::codec::row::StoredRow;
use crate::physical::{Access, KeyRange};
use crate::types::Value;
use crate::{Error, Result};
use gannet_store::{Scan, Visitor};

/// Rows looked at between two looks at whether the statement was cancelled.
pub(super) const CHECK_EVERY: usize = 1024;

/// Rows of a table in the order of its key: all, or a range of the primary key.
#[derive(Debug)]
pub(super) struct TableScan {
    rows: Rows,
    range: Option<KeyRange>,
    /// The range is one value for each column of the key.
    whole_key: bool,
    backward: bool,
    state: State,
    /// Where the filter looks at a row that is shown.
    judged: Vec<Value>,
}

#[derive(Debug)]
enum State {
    New,
    Scanning(Box<Scan>),
    Done,
}

impl TableScan {
    pub(super) fn new(node: usize, access: &Access, range: Option<&KeyRange>, backward: bool) -> Self {
        let columns = access.table.codec().key_columns().len();
        let whole_key = columns > 0 && range.is_some_and(|range| range.equal.len() == columns);
        TableScan {
            rows: Rows::new(node, access),
            range: range.cloned(),
            whole_key,
            backward,
            state: State::New,
            judged: Vec::new(),
        }
    }

    /// Adds the only row there can be.
    fn fetch_one(&self, context: &Context<'_>, range: &KeyRange, out: &mut Batch) -> Result<()> {
        let columns = self.rows.table.codec().key_columns();
        let mut key = Vec::with_capacity(16);
        for (expr, column) in range.equal.iter().zip(columns) {
            if !encode_equal(std::slice::from_ref(column), [&*expr.eval(&[], context)?], &mut key)? {
                return Ok(());
            }
        }
        let tree = self.rows.tree(context.view)?;
        out.push_with(|values| {
            let start = values.len();
            let found = context.view.with_value(tree, &key, |row| self.rows.decode(&key, row, values))?;
            // The filter may ask the store for more; it comes when the page is free again.
            Ok(found.transpose()?.is_some() && self.rows.passes(&values[start..], context)?)
        })?;
        Ok(())
    }

    fn start(&mut self, context: &Context<'_>) -> Result<State> {
        let range = match &self.range {
            None => Some(Range::default()),
            Some(range) => evaluate(self.rows.table.codec().key_columns(), range, context)?,
        };
        let Some(range) = range else { return Ok(State::Done) };
        Ok(State::Scanning(Box::new(scan(context.view, self.rows.tree(context.view)?, &range)?)))
    }
}

impl Operator for TableScan {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.rows.width());
        if let State::New = self.state {
            if let Some(range) = self.range.as_ref().filter(|_| self.whole_key) {
                self.fetch_one(context, range, out)?;
                self.state = State::Done;
                out.has_room(context, limit)?;
                return Ok(!out.is_empty());
            }
            self.state = self.start(context)?;
        }
        let State::Scanning(scan) = &mut self.state else { return Ok(false) };
        context.check()?;
        let mut fill = Fill { rows: &self.rows, context, limit, out, looked_at: 0, bytes: 0 };
        let more = if self.backward { show_backward(scan, &mut fill)? } else { scan.show(&mut fill)? };
        if !more {
            self.state = State::Done;
        }
        Ok(!out.is_empty())
    }

    fn pass_over(&mut self, context: &Context<'_>) -> Result<Option<u64>> {
        if self.whole_key || self.backward || self.rows.filter.is_some() {
            return Ok(None);
        }
        if let State::New = self.state {
            self.state = self.start(context)?;
        }
        let State::Scanning(scan) = &mut self.state else { return Ok(Some(0)) };
        let rows = pass_over(context, scan)?;
        if rows == 0 {
            self.state = State::Done;
        }
        Ok(Some(rows))
    }

    fn show(
        &mut self,
        context: &Context<'_>,
        each: &mut dyn FnMut(&StoredRow<'_>) -> Result<()>,
    ) -> Result<Option<u64>> {
        if self.whole_key || self.rows.identity {
            return Ok(None);
        }
        if let State::New = self.state {
            self.state = self.start(context)?;
        }
        let State::Scanning(scan) = &mut self.state else { return Ok(Some(0)) };
        context.check()?;
        let mut show =
            Show { rows: &self.rows, context, judged: &mut self.judged, each, looked_at: 0, shown: 0 };
        let more = if self.backward { show_backward(scan, &mut show)? } else { scan.show(&mut show)? };
        let shown = show.shown;
        if !more {
            self.state = State::Done;
        }
        Ok(Some(shown))
    }

    fn rewind(&mut self, _: &Context<'_>) -> Result<()> {
        self.state = State::New;
        Ok(())
    }
}

/// As [`Scan::show`], the other way.
fn show_backward(scan: &mut Scan, visitor: &mut impl Visitor<Error = Error>) -> Result<bool> {
    loop {
        let Some((key, row)) = scan.previous()? else { return Ok(false) };
        visitor.entry(key, row)?;
        scan.forget_long();
        if !visitor.goes_on()? {
            return Ok(true);
        }
    }
}

/// Puts rows into a batch.
struct Fill<'f, 'c> {
    rows: &'f Rows,
    context: &'f Context<'c>,
    limit: usize,
    out: &'f mut Batch,
    looked_at: usize,
    bytes: usize,
}

impl Visitor for Fill<'_, '_> {
    type Error = Error;

    #[inline]
    fn entry(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        self.bytes += row.len();
        self.rows.push(self.context, key, row, self.out)
    }

    #[inline]
    fn goes_on(&mut self) -> Result<bool> {
        self.looked_at += 1;
        if self.looked_at.is_multiple_of(CHECK_EVERY) {
            self.context.check()?;
        }
        self.out.has_room_beyond(self.context, self.limit, self.bytes)
    }
}

/// Shows rows as they are stored.
struct Show<'s, 'c> {
    rows: &'s Rows,
    context: &'s Context<'c>,
    judged: &'s mut Vec<Value>,
    each: &'s mut dyn FnMut(&StoredRow<'_>) -> Result<()>,
    looked_at: usize,
    shown: u64,
}

impl Visitor for Show<'_, '_> {
    type Error = Error;

    #[inline]
    fn entry(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        self.shown += u64::from(self.rows.show(self.context, key, row, self.judged, self.each)?);
        Ok(())
    }

    #[inline]
    fn goes_on(&mut self) -> Result<bool> {
        self.looked_at += 1;
        if !self.looked_at.is_multiple_of(CHECK_EVERY) {
            return Ok(true);
        }
        self.context.check()?;
        Ok(self.shown == 0)
    }
}

/// Passes over the next rows; gives how many, 0 behind the last one.
pub(super) fn pass_over(context: &Context<'_>, scan: &mut Scan) -> Result<u64> {
    loop {
        context.check()?;
        match scan.pass_over(u64::MAX)? {
            Some(0) => {}
            Some(rows) => return Ok(rows),
            None => return Ok(0),
        }
    }
}
