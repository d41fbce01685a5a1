//! Sorted rows.

use super::computed::RowCharges;
use super::expr::eval_all;
use super::simple::count;
use super::sorter::{SortOrder, Sorter};
use super::{BATCH_ROWS, Batch, Context, Operator};
use crate::Result;
use crate::physical::{Expr, OrderBy};
use crate::types::Value;

/// Sorts its input. Where that comes sorted by the first keys already, each group that agrees in them is sorted for itself.
#[derive(Debug)]
pub(super) struct Sort {
    input: Box<dyn Operator>,
    /// The keys by which the input comes sorted.
    presorted: Vec<Expr>,
    top: Option<Expr>,
    sorter: Sorter,
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
        Sort {
            input,
            presorted: given.iter().map(|by| by.expr.clone()).collect(),
            top: top.cloned(),
            sorter: Sorter::new(SortOrder::new(sorted, width), node, None),
            width,
            stage: Stage::Start,
            left: usize::MAX,
            batch: Batch::new(),
            next_row: 0,
            exhausted: false,
        }
    }

    /// Gives the next group of rows to the sorter; false when there is none.
    fn read_group(&mut self, context: &Context<'_>) -> Result<bool> {
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
        self.batch.reset(self.width);
        self.next_row = 0;
        self.exhausted = false;
        self.input.rewind(context)
    }
}
