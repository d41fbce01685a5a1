//! INSERT.

use super::super::computed::RowCharges;
use super::super::expr::eval_into;
use super::super::{BATCH_ROWS, Batch, Context, Operator};
use super::foreign::ForeignKeys;
use super::writer::Writer;
use crate::Result;
use crate::physical::{self, Expr};
use crate::types::Value;
use std::sync::Arc;

/// Adds rows, and gives the columns of RETURNING.
#[derive(Debug)]
pub(super) struct Insert {
    input: Box<dyn Operator>,
    plan: Arc<physical::Insert>,
    writer: Writer,
    foreign: Option<ForeignKeys>,
    /// Rows of the input, and how many of them are done.
    batch: Batch,
    done: usize,
    ended: bool,
    row: Vec<Value>,
    /// What the row's values are charged as.
    charges: RowCharges,
}

impl Insert {
    pub(super) fn new(input: Box<dyn Operator>, plan: &Arc<physical::Insert>) -> Self {
        Insert {
            input,
            plan: Arc::clone(plan),
            writer: Writer::new(&plan.table, Arc::clone(&plan.checks)),
            foreign: None,
            batch: Batch::new(),
            done: 0,
            ended: false,
            row: Vec::new(),
            charges: RowCharges::default(),
        }
    }

    /// Adds the row made of the next one of the input's.
    fn insert(&mut self, context: &Context<'_>, out: &mut Batch) -> Result<()> {
        let source = self.batch.row(self.done);
        self.done += 1;
        self.row.clear();
        self.charges = eval_into(&self.plan.values, source, context, &mut self.row)?;
        self.writer.insert(context, &self.row)?;
        if let Some(foreign) = &mut self.foreign {
            foreign.inserted(context, &self.plan.table, &self.row)?;
        }
        context.affected.set(context.affected.get() + 1);
        if let Some(returning) = &self.plan.returning {
            out.push_with(|values| give(returning, &self.row, context, values))?;
        }
        Ok(())
    }
}

/// Appends what RETURNING gives for a row.
pub(super) fn give(
    returning: &[Expr],
    row: &[Value],
    context: &Context<'_>,
    values: &mut Vec<Value>,
) -> Result<bool> {
    eval_into(returning, row, context, values)?;
    Ok(true)
}

impl Operator for Insert {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.plan.returning.as_ref().map_or(0, Vec::len));
        if self.foreign.is_none() && !self.plan.table.foreign_keys.is_empty() {
            self.foreign = Some(ForeignKeys::new(context, &self.plan.table)?);
        }
        while out.has_room(context, limit)? && !self.ended {
            if self.done < self.batch.len() {
                self.insert(context, out)?;
                continue;
            }
            context.check()?;
            self.done = 0;
            if !self.input.next(context, BATCH_ROWS, &mut self.batch)? {
                self.ended = true;
                if let Some(foreign) = &mut self.foreign {
                    foreign.finish(context)?;
                }
            }
        }
        Ok(!out.is_empty())
    }

    fn rewind(&mut self, _: &Context<'_>) -> Result<()> {
        Err(crate::Error::internal("an INSERT that is run twice"))
    }
}
