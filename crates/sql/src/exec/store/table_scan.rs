//! Rows of a table in the order of its key.

use super::super::memory::await_room;
use super::super::{BATCH_BYTES, Batch, Context, FREE_BYTES, Operator, ShownRow, leave};
use super::access::{Rows, bounds, evaluate, scan};
use super::parts::Parts;
use crate::codec::range::{Range, encode_equal};
use crate::functions::SHORT_BYTES;
use crate::physical::{Access, KeyRange};
use crate::types::Value;
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use gannet_store::{Scan, Visitor, WorkMemory};
use std::sync::Arc;

/// Leaves of the smallest range that several threads go through at the same time: a few milliseconds' work.
const SHARED_LEAST: u64 = 512;
/// Rows looked at between two looks at whether the statement was cancelled.
pub(super) const CHECK_EVERY: usize = 1024;

/// What was looked at since the last look at whether the statement was cancelled.
#[derive(Debug, Default)]
pub(super) struct Since {
    rows: usize,
    bytes: usize,
}

impl Since {
    /// A row was looked at.
    #[inline]
    pub(super) fn add(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes;
    }

    /// Looks, and says that it did, where it is time.
    #[inline]
    pub(super) fn check(&mut self, context: &Context<'_>) -> Result<bool> {
        let is_due = self.is_due();
        if is_due {
            context.check()?;
        }
        Ok(is_due)
    }

    /// Whether it is time; then it counts anew.
    #[inline]
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.rows >= CHECK_EVERY || self.bytes >= BATCH_BYTES;
        if is_due {
            *self = Since::default();
        }
        is_due
    }
}

/// Rows of a table in the order of its key: all, or a range of the primary key.
#[derive(Debug)]
pub(super) struct TableScan {
    rows: Rows,
    range: Option<Arc<KeyRange>>,
    /// The range is one value for each column of the key.
    whole_key: bool,
    backward: bool,
    state: State,
    /// Of the row that is shown last.
    values: Vec<Value>,
}

#[derive(Debug)]
enum State {
    New,
    Scanning(Box<Scan>),
    Done,
}

impl TableScan {
    pub(super) fn new(
        node: usize,
        access: &Arc<Access>,
        range: Option<&Arc<KeyRange>>,
        backward: bool,
    ) -> Self {
        let columns = access.table.codec().key_columns().len();
        let whole_key = columns > 0 && range.is_some_and(|range| range.equal.len() == columns);
        TableScan {
            rows: Rows::new(node, access),
            range: range.cloned(),
            whole_key,
            backward,
            state: State::New,
            values: Vec::new(),
        }
    }

    /// Adds the only row there can be.
    fn fetch_one(&self, context: &Context<'_>, range: &KeyRange, out: &mut Batch) -> Result<()> {
        let columns = self.rows.access.table.codec().key_columns();
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

    /// The range now; `None` when there can be no row in it.
    fn evaluate(&self, context: &Context<'_>) -> Result<Option<Range>> {
        match &self.range {
            None => Ok(Some(Range::default())),
            Some(range) => evaluate(self.rows.access.table.codec().key_columns(), range, context),
        }
    }

    fn start(&mut self, context: &Context<'_>) -> Result<State> {
        let Some(range) = self.evaluate(context)? else { return Ok(State::Done) };
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
        let mut fill = Fill { rows: &self.rows, context, limit, out, bytes: 0, since: Since::default() };
        let more = show(scan, self.backward, &mut fill)?;
        if !more {
            self.state = State::Done;
        }
        Ok(!out.is_empty())
    }

    fn pass_over(&mut self, context: &Context<'_>) -> Result<Option<u64>> {
        if self.whole_key || self.backward || self.rows.access.filter.is_some() {
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
        each: &mut dyn FnMut(ShownRow<'_>) -> Result<()>,
    ) -> Result<Option<u64>> {
        if self.whole_key || self.rows.access.identity {
            return Ok(None);
        }
        if let State::New = self.state {
            self.state = self.start(context)?;
        }
        let State::Scanning(scan) = &mut self.state else { return Ok(Some(0)) };
        context.check()?;
        let (rows, values) = (&self.rows, &mut self.values);
        values.resize(rows.width(), Value::Null);
        let mut show = Show::new(rows, context, values, each);
        let more = self::show(scan, self.backward, &mut show)?;
        let shown = show.shown;
        if !more {
            self.state = State::Done;
        }
        Ok(Some(shown))
    }

    fn share(&mut self, context: &Context<'_>, parts: usize) -> Result<Option<Parts>> {
        let is_plain = !self.whole_key
            && !self.backward
            && !self.rows.access.identity
            && self.rows.access.filter.is_none();
        if !is_plain || !matches!(self.state, State::New) {
            return Ok(None);
        }
        let Some(range) = self.evaluate(context)? else {
            self.state = State::Done;
            return Ok(None);
        };
        let tree = self.rows.tree(context.view)?;
        let division = context.view.divide(tree, bounds(&range), parts)?;
        if division.leaf_pages < SHARED_LEAST || division.keys.len() + 1 < parts {
            // What the range is made of may have taken long.
            self.state = State::Scanning(Box::new(scan(context.view, tree, &range)?));
            return Ok(None);
        }
        let parts = Parts::new(&self.rows, context.view, tree, range, division.keys);
        self.state = State::Done;
        Ok(Some(parts))
    }

    fn rewind(&mut self, _: &Context<'_>) -> Result<()> {
        self.state = State::New;
        Ok(())
    }
}

/// [`Scan::show`], or the same the other way.
pub(super) fn show(
    scan: &mut Scan,
    backward: bool,
    visitor: &mut impl Visitor<Error = Error>,
) -> Result<bool> {
    if backward { scan.show_back(visitor) } else { scan.show(visitor) }
}

/// Puts rows into a batch.
struct Fill<'f, 'c> {
    rows: &'f Rows,
    context: &'f Context<'c>,
    limit: usize,
    out: &'f mut Batch,
    /// Bytes of rows that were looked at.
    bytes: usize,
    since: Since,
}

impl Visitor for Fill<'_, '_> {
    type Error = Error;

    #[inline]
    fn entry(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        self.bytes += row.len();
        self.since.add(row.len());
        self.rows.push(self.context, key, row, self.out)
    }

    #[inline]
    fn goes_on(&mut self) -> Result<bool> {
        self.since.check(self.context)?;
        self.out.has_room_beyond(self.context, self.limit, self.bytes)
    }
}

/// Shows rows as they are stored, or where they are long as values: the store's copy is given back then before anybody makes one of his own.
pub(super) struct Show<'s, 'c> {
    rows: &'s Rows,
    context: &'s Context<'c>,
    /// Where the filter looks at a row, and a long one becomes values.
    values: &'s mut Vec<Value>,
    is_long: bool,
    each: &'s mut dyn FnMut(ShownRow<'_>) -> Result<()>,
    shown: u64,
    since: Since,
}

impl<'s, 'c> Show<'s, 'c> {
    /// `values`: as many as a row has.
    pub(super) fn new(
        rows: &'s Rows,
        context: &'s Context<'c>,
        values: &'s mut Vec<Value>,
        each: &'s mut dyn FnMut(ShownRow<'_>) -> Result<()>,
    ) -> Self {
        Show { rows, context, values, is_long: false, each, shown: 0, since: Since::default() }
    }
}

impl Visitor for Show<'_, '_> {
    type Error = Error;

    #[inline]
    fn entry(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        self.since.add(row.len());
        self.is_long = row.len() > SHORT_BYTES;
        if self.is_long {
            self.is_long = self.rows.decode_over(self.context, key, row, self.values)?;
            if !self.is_long {
                leave(self.values);
            }
        } else if self.rows.show(self.context, key, row, self.values, self.each)? {
            self.shown += 1;
        }
        Ok(())
    }

    #[inline]
    fn goes_on(&mut self) -> Result<bool> {
        if self.is_long {
            self.shown += 1;
            let bytes = self.values.iter().map(Value::heap_bytes).sum::<usize>();
            let _memory = hold(self.context, bytes)?;
            (self.each)(ShownRow::Values(self.values))?;
            leave(self.values);
        }
        Ok(!self.since.check(self.context)? || self.shown == 0)
    }
}

/// What values of a long row that were made are charged as.
fn hold(context: &Context<'_>, bytes: usize) -> Result<Option<WorkMemory>> {
    if bytes <= FREE_BYTES {
        return Ok(None);
    }
    await_room(context, bytes)?;
    Ok(Some(context.session.engine.memory(Purpose::Work, bytes as u64)?))
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
