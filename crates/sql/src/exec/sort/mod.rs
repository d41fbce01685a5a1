//! Sorted rows.
//!
//! | module | job |
//! |---|---|
//! | here | the operator |
//! | `order` | what is sorted by, and how rows are laid out for it |
//! | `sorter` | takes rows and gives them back sorted, within memory or through temporary files |
//! | `entries` | what is moved about when rows in memory are sorted |
//! | `behind` | runs that a thread sorts and writes while more rows are taken |
//! | `parts` | rows of a table that several threads take and sort |
//! | `runs` | sorted rows in memory and in temporary files, and how they become one |
//! | `merged` | the last merge by a thread of its own |

mod behind;
mod entries;
mod merged;
mod order;
mod parts;
mod runs;
mod sorter;

pub(super) use order::SortOrder;
pub(super) use sorter::Sorter;

use crate::exec::computed::RowCharges;
use crate::exec::expr::eval_all;
use crate::exec::simple::count;

use crate::Result;
use crate::exec::{BATCH_ROWS, Batch, Context, Helpers, Looked, Operator, helpers};
use crate::physical::{Expr, OrderBy};
use crate::types::Value;
use gannet_base::clock;
use gannet_store::thread_reads;

/// Sorts its input. Where that comes sorted by the first keys already, each group that agrees in them is sorted for itself.
#[derive(Debug)]
pub(super) struct Sort {
    input: Box<dyn Operator>,
    /// The keys by which the input comes sorted.
    presorted: Vec<Expr>,
    top: Option<Expr>,
    sorter: Sorter,
    node: usize,
    /// Whether rows do as they are stored.
    takes_stored: bool,
    /// Whether several threads may take them, and they still may, as nothing was read yet.
    divides: bool,
    may_divide: bool,
    width: usize,
    stage: Stage,
    /// Rows that are still wanted.
    left: usize,
    /// Rows of the input that were not taken yet, from `next_row` on.
    batch: Batch,
    next_row: usize,
    exhausted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Start,
    /// A group has to be read.
    Read,
    /// A group is given.
    Give,
}

impl Sort {
    /// `width`: of the rows.
    pub(super) fn new(
        node: usize,
        input: Box<dyn Operator>,
        keys: &[OrderBy],
        presorted: usize,
        top: Option<&Expr>,
        width: usize,
    ) -> Self {
        let (given, sorted) = keys.split_at(presorted.min(keys.len()));
        let order = SortOrder::new(sorted, width);
        // A group begins where a row says so.
        let takes_stored = given.is_empty() && order.takes_stored();
        // Who wants the first rows only throws most others away.
        let divides = takes_stored && top.is_none();
        Sort {
            input,
            presorted: given.iter().map(|by| by.expr.clone()).collect(),
            top: top.cloned(),
            sorter: Sorter::new(order, node, None),
            node,
            takes_stored,
            divides,
            may_divide: divides,
            width,
            stage: Stage::Start,
            left: usize::MAX,
            batch: Batch::new(),
            next_row: 0,
            exhausted: false,
        }
    }

    /// Has several threads take all rows, where that is possible and worth it; false where it is not.
    fn take_divided(&mut self, context: &Context<'_>) -> Result<bool> {
        let wanted = context.session.settings().helpers;
        let Some(threads) = helpers::threads(wanted) else { return Ok(false) };
        // Alone a thread does it the other way.
        if Helpers::take(wanted).is_none() {
            return Ok(false);
        }
        let Some(parts) = self.input.share(context, parts::wanted(threads))? else { return Ok(false) };
        let (begun, reads) = (clock::now(), thread_reads());
        let (rows, helped) = self.sorter.take_parts(context, &parts, wanted)?;
        let nanos = begun.elapsed().as_nanos() as u64;
        self.input.was_shared(context, &Looked { rows, nanos, reads: thread_reads().since(reads) });
        context.note(self.node, |profile| profile.helpers += helped);
        Ok(true)
    }

    /// Gives the next rows of the input to the sorter as they are stored: all there are, but false where that does not do.
    fn take_stored(&mut self, context: &Context<'_>) -> Result<bool> {
        if std::mem::take(&mut self.may_divide) && self.take_divided(context)? {
            return Ok(true);
        }
        let Sort { input, sorter, .. } = self;
        while let Some(rows) = input.show(context, &mut |row| sorter.add_shown(row, context))? {
            if rows == 0 {
                return Ok(true);
            }
        }
        self.takes_stored = false;
        Ok(false)
    }

    /// Gives the next group of rows to the sorter; false when there is none.
    fn read_group(&mut self, context: &Context<'_>) -> Result<bool> {
        if self.takes_stored && !self.exhausted && self.take_stored(context)? {
            self.exhausted = true;
            return Ok(true);
        }
        let mut group: Option<(Vec<Value>, RowCharges)> = None;
        loop {
            while self.next_row < self.batch.len() {
                let row = self.batch.row(self.next_row);
                if !self.presorted.is_empty() {
                    match &group {
                        None => group = Some(eval_all(&self.presorted, row, context)?),
                        Some((group, _)) if !agrees(&self.presorted, group, row, context)? => {
                            return Ok(true);
                        }
                        Some(_) => {}
                    }
                }
                self.sorter.add(row, context)?;
                self.next_row += 1;
            }
            self.next_row = 0;
            if self.exhausted || !self.input.next(context, BATCH_ROWS, &mut self.batch)? {
                self.batch.reset(self.width);
                let first = !std::mem::replace(&mut self.exhausted, true);
                return Ok(group.is_some() || (first && self.presorted.is_empty()));
            }
            context.check()?;
        }
    }

    fn top(&self) -> Option<usize> {
        (self.left != usize::MAX).then_some(self.left)
    }
}

fn agrees(keys: &[Expr], group: &[Value], row: &[Value], context: &Context<'_>) -> Result<bool> {
    for (key, known) in keys.iter().zip(group) {
        if *key.eval(row, context)? != *known {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Operator for Sort {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.width);
        if self.stage == Stage::Start {
            let top = count(self.top.as_ref(), context)?;
            // What is negative, the LIMIT above will complain of.
            self.left = top.map_or(usize::MAX, |top| usize::try_from(top).unwrap_or(0));
            self.sorter.reset(self.top());
            self.stage = Stage::Read;
        }
        loop {
            if self.stage == Stage::Read {
                if self.left == 0 || !self.read_group(context)? {
                    self.sorter.close();
                    return Ok(!out.is_empty());
                }
                self.sorter.finish(context)?;
                self.stage = Stage::Give;
            }
            while out.has_room(context, limit)? {
                if !out.push_over(|values| self.sorter.next(values))? {
                    self.stage = Stage::Read;
                    break;
                }
                self.left = if self.left == usize::MAX { self.left } else { self.left.saturating_sub(1) };
            }
            if self.stage == Stage::Give {
                return Ok(true);
            }
            self.sorter.reset(self.top());
        }
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.sorter.close();
        self.stage = Stage::Start;
        self.may_divide = self.divides;
        self.batch.reset(self.width);
        self.next_row = 0;
        self.exhausted = false;
        self.input.rewind(context)
    }
}
