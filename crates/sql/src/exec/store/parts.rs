//! Rows of a table in parts that lie one behind the other, for threads that look at them at the same time.

use super::access::Rows;
use super::table_scan::{Show, Since, show};
use crate::catalog::Table;
use crate::codec::range::Range;
use crate::codec::row::StoredRow;
use crate::exec::{Context, ShownRow};
use crate::functions::SHORT_BYTES;
use crate::physical::Access;
use crate::types::Value;
use crate::{Error, Result, SqlState};
use gannet_store::{Scan, Tree, View, Visitor};
use std::ops::Bound;
use std::sync::Arc;

/// All rows of a table, or those of a range of the primary key, in their order.
#[derive(Debug)]
pub struct Parts {
    rows: Rows,
    view: View,
    tree: Tree,
    range: Range,
    /// Where the parts but the first begin.
    begins: Vec<Vec<u8>>,
}

/// How far a thread has come with a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::exec) enum Reached {
    /// All of its rows were seen.
    End,
    /// Those before this key were: from there on a row is a long one, which is not for a thread that holds no memory of its own, or was not taken.
    LongRow(Vec<u8>),
    /// Some: nothing more was wanted.
    Nowhere,
}

impl Parts {
    /// `begins`: keys within the range, see [`gannet_store::Division`]. Nothing is demanded of the rows.
    pub(super) fn new(rows: &Rows, view: &View, tree: &Tree, range: Range, begins: Vec<Vec<u8>>) -> Self {
        Parts { rows: rows.clone(), view: view.clone(), tree: tree.clone(), range, begins }
    }

    /// How many there are.
    pub(in crate::exec) fn len(&self) -> usize {
        self.begins.len() + 1
    }

    /// The keys of a part, from the first one that is not below `from`.
    fn range<'p>(&'p self, part: usize, from: &'p [u8]) -> (Bound<&'p [u8]>, Bound<&'p [u8]>) {
        let begin = match part.checked_sub(1) {
            None => self.range.lower.as_slice(),
            Some(before) => self.begins[before].as_slice(),
        };
        let begin = begin.max(from);
        let lower = if begin.is_empty() { Bound::Unbounded } else { Bound::Included(begin) };
        let upper = self.begins.get(part).or(self.range.upper.as_ref());
        (lower, upper.map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_slice())))
    }

    /// For a thread, which goes through some of them.
    pub(in crate::exec) fn reader(&self) -> Result<PartReader<'_>> {
        let scan = self.view.scan(&self.tree, self.range(0, &[]))?;
        Ok(PartReader { parts: self, scan })
    }

    /// Shows the rows of a part from this key on, long ones as well.
    pub(in crate::exec) fn show_rest(
        &self,
        context: &Context<'_>,
        (part, from): (usize, &[u8]),
        each: &mut dyn FnMut(ShownRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut scan = self.view.scan(&self.tree, self.range(part, from))?;
        let mut values = vec![Value::Null; self.rows.width()];
        loop {
            let mut shown = Show::new(&self.rows, context, &mut values, &mut *each);
            if !show(&mut scan, false, &mut shown)? {
                return Ok(());
            }
            context.check()?;
        }
    }
}

/// Goes through parts.
#[derive(Debug)]
pub(in crate::exec) struct PartReader<'p> {
    parts: &'p Parts,
    scan: Scan,
}

impl PartReader<'_> {
    /// Counts the rows of a part, as long as `goes_on` says so, which is asked now and then.
    pub(in crate::exec) fn count(
        &mut self,
        part: usize,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(u64, Reached)> {
        self.scan.go_through(self.parts.range(part, &[]));
        let mut rows = 0;
        while goes_on() {
            match self.scan.pass_over(u64::MAX)? {
                Some(more) => rows += more,
                None => return Ok((rows, Reached::End)),
            }
        }
        Ok((rows, Reached::Nowhere))
    }

    /// Shows the short rows of a part as they are stored, up to the first long one or to one that `each` does not take, as long as `goes_on`
    /// says so, which is asked now and then. Gives the number of those that were taken.
    pub(in crate::exec) fn show(
        &mut self,
        part: usize,
        goes_on: &dyn Fn() -> bool,
        each: &mut dyn FnMut(&StoredRow<'_>) -> Result<bool>,
    ) -> Result<(u64, Reached)> {
        self.scan.go_through(self.parts.range(part, &[]));
        let parts = self.parts;
        let Access { table, columns, .. } = &*parts.rows.access;
        let mut look = Look {
            table,
            columns,
            goes_on,
            each,
            rows: 0,
            long: None,
            ended: false,
            has_failed: false,
            since: Since::default(),
        };
        let shown = self.scan.show(&mut look);
        let reached = match (shown, look.long) {
            (Ok(_), Some(key)) => Reached::LongRow(key),
            (Ok(more), None) if more || look.ended => Reached::Nowhere,
            (Ok(_), None) => Reached::End,
            // The store has not read a value: what came before was taken.
            (Err(error), _) if error.state() == SqlState::OUT_OF_MEMORY && !look.has_failed => {
                let behind = |key: &[u8]| [key, &[0]].concat();
                Reached::LongRow(self.scan.last_key().map(behind).unwrap_or_default())
            }
            (Err(error), _) => return Err(error),
        };
        Ok((look.rows, reached))
    }
}

/// Shows short rows.
struct Look<'l> {
    table: &'l Arc<Table>,
    columns: &'l [usize],
    goes_on: &'l dyn Fn() -> bool,
    each: &'l mut dyn FnMut(&StoredRow<'_>) -> Result<bool>,
    rows: u64,
    /// Where the first long one is, or the one that was not taken.
    long: Option<Vec<u8>>,
    ended: bool,
    /// A row was not taken.
    has_failed: bool,
    since: Since,
}

impl Visitor for Look<'_> {
    type Error = Error;

    #[inline]
    fn entry(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        if row.len() > SHORT_BYTES {
            self.long = Some(key.to_vec());
            return Ok(());
        }
        self.since.add(row.len());
        let taken = self.table.codec().look(key, row, self.columns).and_then(|row| (self.each)(&row));
        self.has_failed = taken.is_err();
        if taken? {
            self.rows += 1;
        } else {
            self.long = Some(key.to_vec());
        }
        Ok(())
    }

    #[inline]
    fn goes_on(&mut self) -> Result<bool> {
        if self.since.is_due() {
            self.ended = !(self.goes_on)();
        }
        Ok(self.long.is_none() && !self.ended)
    }
}
