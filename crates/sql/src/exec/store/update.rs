//! UPDATE.

use super::super::computed::RowCharges;
use super::super::{BATCH_ROWS, Batch, Context, LARGE_BYTES, Operator};
use super::describe;
use super::foreign::ForeignKeys;
use super::insert::give;
use super::lock::identity;
use super::long_row;
use super::writer::{Seen, Writer};
use crate::physical;
use crate::types::Value;
use crate::{Error, Result};
use gannet_store::Outcome;
use std::mem;
use std::sync::Arc;

/// Changes rows, and gives the columns of RETURNING. A row that somebody else has changed meanwhile is looked at again as it is
/// now: it has to fulfil the condition still, and the new values are computed from it. A row that the input gives twice is changed once.
#[derive(Debug)]
pub(super) struct Update {
    input: Box<dyn Operator>,
    plan: Arc<physical::Update>,
    writer: Writer,
    foreign: Option<ForeignKeys>,
    batch: Batch,
    done: usize,
    ended: bool,
    /// Columns of foreign keys.
    linked: Vec<usize>,
    /// The row as it was: what index entries and foreign keys are made of.
    old: Vec<Value>,
    new: NewRow,
}

/// A row as it becomes.
#[derive(Debug, Default)]
struct NewRow {
    values: Vec<Value>,
    /// What is assigned, before it is.
    made: Vec<Value>,
    /// What the values that were made are charged as.
    charges: RowCharges,
}

impl NewRow {
    /// Gives back the values, and then what they are charged as.
    fn leave(&mut self) {
        self.made.clear();
        self.values.clear();
        self.charges.clear();
    }
}

impl Update {
    pub(super) fn new(input: Box<dyn Operator>, plan: &Arc<physical::Update>) -> Self {
        Update {
            input,
            plan: Arc::clone(plan),
            writer: Writer::new(&plan.target.table, Arc::clone(&plan.checks)),
            foreign: None,
            batch: Batch::new(),
            done: 0,
            ended: false,
            linked: Vec::new(),
            old: Vec::new(),
            new: NewRow::default(),
        }
    }

    /// Changes the next row of the input.
    fn update(&mut self, context: &Context<'_>, out: &mut Batch) -> Result<()> {
        let (plan, new) = (&self.plan, &mut self.new);
        let row = self.batch.row_mut(self.done);
        self.done += 1;
        loop {
            let Some((key, bytes)) = identity(row, plan.target.identity)? else { return Ok(()) };
            new.leave();
            if plan.returning.is_some() && bytes.len() > LARGE_BYTES {
                // Of others but strings only the owners are counted.
                let texts = plan.target.columns.iter().filter_map(|(_, in_row)| row[*in_row].as_str());
                let copies = long_row(context, 2 * texts.map(str::len).sum::<usize>())?;
                copies.into_iter().for_each(|memory| new.charges.hold(memory));
            }
            for (_, value) in &plan.assignments {
                new.made.push(value.eval(row, context)?.into_row(context, &mut new.charges)?);
            }
            new.values.resize(plan.target.table.columns.len(), Value::Null);
            for (in_table, in_row) in &plan.target.columns {
                let value = &mut row[*in_row];
                // Only RETURNING looks at the row once more; where it has changed meanwhile it is read anew.
                new.values[*in_table] =
                    if plan.returning.is_some() { value.clone() } else { mem::take(value) };
            }
            self.writer.keep_entries(&new.values, &self.linked, &mut self.old);
            for ((positions, _), value) in plan.assignments.iter().zip(new.made.drain(..)) {
                assign(&mut new.values, positions, value)?;
            }
            let seen = Seen { view: context.view, key: &key, bytes: &bytes };
            match self.writer.update(context, seen, &self.old, &new.values)? {
                Outcome::Done => break,
                Outcome::Gone | Outcome::Repeated => return Ok(()),
                Outcome::Moved => return Err(describe::moved()),
                Outcome::Changed(newer) => {
                    plan.target.reread(row, &key, &newer)?;
                    if let Some(recheck) = &plan.recheck
                        && !recheck.is_true(row, context)?
                    {
                        return Ok(());
                    }
                }
            }
        }
        if let Some(foreign) = &mut self.foreign {
            foreign.updated(context, &plan.target.table, &self.old, &new.values)?;
        }
        context.affected.set(context.affected.get() + 1);
        if let Some(returning) = &plan.returning {
            new.values.extend(row.iter().cloned());
            out.push_with(|values| give(returning, &new.values, context, values))?;
        }
        Ok(())
    }
}

/// Puts a value into its column, or a row's values into theirs.
fn assign(new: &mut [Value], positions: &[usize], value: Value) -> Result<()> {
    match (positions, value) {
        ([at], value) => new[*at] = value,
        (_, Value::Null) => positions.iter().for_each(|at| new[*at] = Value::Null),
        (_, Value::Record(record)) if record.values.len() == positions.len() => {
            positions.iter().zip(&record.values).for_each(|(at, value)| new[*at].clone_from(value));
        }
        _ => return Err(Error::internal("an assignment of what is no row of its width")),
    }
    Ok(())
}

impl Operator for Update {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.plan.returning.as_ref().map_or(0, Vec::len));
        let table = &self.plan.target.table;
        if self.foreign.is_none() && !(table.foreign_keys.is_empty() && table.referenced_by.is_empty()) {
            let foreign = ForeignKeys::new(context, &Arc::clone(table))?;
            self.linked = foreign.linked();
            self.foreign = Some(foreign);
        }
        while out.has_room(context, limit)? && !self.ended {
            if self.done < self.batch.len() {
                self.update(context, out)?;
                continue;
            }
            context.check()?;
            self.done = 0;
            // Values that were moved out of the batch are charged with it.
            self.new.leave();
            self.ended = !self.input.next(context, BATCH_ROWS, &mut self.batch)?;
            if let Some(foreign) = &mut self.foreign {
                if self.ended { foreign.finish(context)? } else { foreign.flush(context)? }
            }
        }
        Ok(!out.is_empty())
    }

    fn rewind(&mut self, _: &Context<'_>) -> Result<()> {
        Err(Error::internal("an UPDATE that is run twice"))
    }
}
