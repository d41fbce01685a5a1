//! DELETE.

use super::super::{BATCH_ROWS, Batch, Context, Operator};
use super::describe;
use super::foreign::ForeignKeys;
use super::insert::give;
use super::lock::identity;
use super::writer::{Seen, Writer};
use crate::physical::{self, Checks};
use crate::types::Value;
use crate::{Error, Result};
use gannet_store::Outcome;
use std::sync::Arc;

/// Removes rows, and gives the columns of RETURNING. A row that somebody else has changed meanwhile has to fulfil the condition
/// still, as it is now.
#[derive(Debug)]
pub(super) struct Delete {
    input: Box<dyn Operator>,
    plan: Arc<physical::Delete>,
    writer: Writer,
    foreign: Option<ForeignKeys>,
    /// Columns of the table that index entries and references are made of.
    needed: Vec<usize>,
    batch: Batch,
    done: usize,
    ended: bool,
    old: Vec<Value>,
    some: Vec<Value>,
}

impl Delete {
    pub(super) fn new(input: Box<dyn Operator>, plan: &Arc<physical::Delete>) -> Self {
        let table = &plan.target.table;
        let indexes = (0..table.indexes.len()).filter(|index| !table.indexes[*index].primary);
        let mut needed: Vec<usize> =
            indexes.flat_map(|index| table.codec().index_positions(index).iter().copied()).collect();
        needed.sort_unstable();
        needed.dedup();
        Delete {
            input,
            plan: Arc::clone(plan),
            writer: Writer::new(table, Checks::default()),
            foreign: None,
            needed,
            batch: Batch::new(),
            done: 0,
            ended: false,
            old: Vec::new(),
            some: Vec::new(),
        }
    }

    fn start(&mut self, context: &Context<'_>) -> Result<()> {
        let table = &self.plan.target.table;
        if self.foreign.is_some() || table.referenced_by.is_empty() {
            return Ok(());
        }
        let foreign = ForeignKeys::new(context, table)?;
        self.needed.extend(foreign.referenced());
        self.needed.sort_unstable();
        self.needed.dedup();
        self.foreign = Some(foreign);
        Ok(())
    }

    /// Reads the columns of a row that are needed.
    fn read(&mut self, key: &[u8], bytes: &[u8]) -> Result<()> {
        let table = &self.plan.target.table;
        self.old.clear();
        self.old.resize(table.columns.len(), Value::Null);
        self.some.clear();
        table.codec().decode_row(key, bytes, &self.needed, &mut self.some)?;
        for (at, value) in self.needed.iter().zip(self.some.drain(..)) {
            self.old[*at] = value;
        }
        Ok(())
    }

    /// Removes the next row of the input.
    fn delete(&mut self, context: &Context<'_>, out: &mut Batch) -> Result<()> {
        let place = self.done;
        self.done += 1;
        loop {
            let Some((key, bytes)) = identity(self.batch.row(place), self.plan.target.identity)? else {
                return Ok(());
            };
            self.read(&key, &bytes)?;
            let seen = Seen { view: context.view, key: &key, bytes: &bytes };
            match self.writer.delete(context, seen, &self.old)? {
                Outcome::Done => break,
                Outcome::Gone | Outcome::Repeated => return Ok(()),
                Outcome::Moved => return Err(describe::moved()),
                Outcome::Changed(newer) => {
                    let row = self.batch.row_mut(place);
                    self.plan.target.reread(row, &key, &newer)?;
                    if let Some(recheck) = &self.plan.recheck
                        && !recheck.is_true(row, context)?
                    {
                        return Ok(());
                    }
                }
            }
        }
        if let Some(foreign) = &mut self.foreign {
            foreign.deleted(context, &self.plan.target.table, &self.old)?;
        }
        context.affected.set(context.affected.get() + 1);
        if let Some(returning) = &self.plan.returning {
            out.push_with(|values| give(returning, self.batch.row(place), context, values))?;
        }
        Ok(())
    }
}

impl Operator for Delete {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.plan.returning.as_ref().map_or(0, Vec::len));
        self.start(context)?;
        while out.has_room(context, limit)? && !self.ended {
            if self.done < self.batch.len() {
                self.delete(context, out)?;
                continue;
            }
            context.check()?;
            self.done = 0;
            self.ended = !self.input.next(context, BATCH_ROWS, &mut self.batch)?;
            if let Some(foreign) = &mut self.foreign {
                if self.ended { foreign.finish(context)? } else { foreign.flush(context)? }
            }
        }
        Ok(!out.is_empty())
    }

    fn rewind(&mut self, _: &Context<'_>) -> Result<()> {
        Err(Error::internal("a DELETE that is run twice"))
    }
}
