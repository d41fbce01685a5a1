//! Aggregates over one group, or over groups that come one after the other.

use super::State;
use super::parallel::{self, PARTS_EACH, Part, STATES_MOST};
use crate::Result;
use crate::exec::computed::RowCharges;
use crate::exec::expr::eval_all;
use crate::exec::memory::Memory;
use crate::exec::{
    BATCH_ROWS, Batch, Context, Helpers, LARGE_BYTES, Looked, Operator, Parts, ShownRow, helpers,
};
use crate::physical::{AggregateExpr, Expr};
use crate::types::Value;
use gannet_base::clock;
use gannet_store::thread_reads;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Ordered {
    node: usize,
    input: Box<dyn Operator>,
    /// `None`: all rows are one group, and there is a result for no rows too.
    groups: Option<Vec<Expr>>,
    states: Vec<State>,
    /// Whether only the number of rows is wanted: all are one group.
    counts_rows: bool,
    /// Whether rows do as they are stored, of the same.
    takes_stored: bool,
    /// Whether several threads may do it, and they still may, as nothing was read yet.
    divides: bool,
    may_divide: bool,
    memory: Memory,
    /// The group that is read.
    group: Option<(Vec<Value>, RowCharges)>,
    batch: Batch,
    next_row: usize,
    done: bool,
}

impl Ordered {
    pub(super) fn new(
        node: usize,
        input: Box<dyn Operator>,
        groups: Option<&[Expr]>,
        aggregates: &[AggregateExpr],
    ) -> Self {
        let states: Vec<_> = aggregates.iter().map(|call| State::new(node, call)).collect();
        Ordered {
            node,
            input,
            groups: groups.map(<[Expr]>::to_vec),
            counts_rows: groups.is_none() && states.iter().all(State::counts_rows),
            takes_stored: groups.is_none() && states.iter().all(State::takes_stored),
            divides: false,
            may_divide: false,
            states,
            memory: Memory::default(),
            group: None,
            batch: Batch::new(),
            next_row: 0,
            done: false,
        }
    }

    /// Several threads may do it, where its aggregates allow that: there are many rows.
    pub(super) fn dividing(mut self) -> Self {
        self.divides = self.groups.is_none()
            && self.states.len() <= STATES_MOST
            && self.states.iter().all(State::merges);
        self.may_divide = self.divides;
        self
    }

    fn width(&self) -> usize {
        self.groups.as_ref().map_or(0, Vec::len) + self.states.len()
    }

    /// Takes the rows of the batch up to the end of the group; true when another one begins there.
    fn take_rows(&mut self, context: &Context<'_>) -> Result<bool> {
        while self.next_row < self.batch.len() {
            let row = self.batch.row(self.next_row);
            if let Some(groups) = &self.groups {
                match &self.group {
                    None => self.group = Some(eval_all(groups, row, context)?),
                    Some((group, _)) => {
                        for (expr, known) in groups.iter().zip(group) {
                            if *expr.eval(row, context)? != *known {
                                return Ok(true);
                            }
                        }
                    }
                }
            }
            each(&mut self.states, |state, others| state.add(row, context, &mut self.memory, others))?;
            self.next_row += 1;
        }
        let bytes = heap_bytes(&self.states);
        self.memory.demand(context, bytes)?;
        Ok(false)
    }

    /// Has several threads take all rows, where that is possible and worth it; false where it is not.
    fn take_divided(&mut self, context: &Context<'_>) -> Result<bool> {
        let wanted = context.session.settings().helpers;
        let Some(threads) = helpers::threads(wanted) else { return Ok(false) };
        let Some(parts) = self.input.share(context, threads * PARTS_EACH)? else { return Ok(false) };
        let (begun, reads) = (clock::now(), thread_reads());
        let done = {
            let helpers = Helpers::take(wanted);
            parallel::run(context, &parts, &self.states, self.counts_rows, &helpers)?
        };
        let rows = done.rows + self.merge(context, &parts, done.parts)?;
        let nanos = begun.elapsed().as_nanos() as u64;
        self.input.was_shared(context, &Looked { rows, nanos, reads: thread_reads().since(reads) });
        context.note(self.node, |profile| profile.helpers += done.helpers);
        Ok(true)
    }

    /// Puts what was made of parts together, with the rows that nobody has seen, and gives how many these are.
    fn merge(&mut self, context: &Context<'_>, parts: &Parts, made: Vec<Part>) -> Result<u64> {
        let Ordered { states, memory, .. } = self;
        let mut rows = 0;
        for (number, part) in made.into_iter().enumerate() {
            for (state, later) in states.iter_mut().zip(&part.states) {
                state.accumulator.merge(later)?;
            }
            memory.demand(context, heap_bytes(states))?;
            if let Some(from) = part.rest {
                parts.show_rest(context, (number, &from), &mut |row| {
                    rows += 1;
                    take_shown(states, memory, context, row)
                })?;
                memory.demand(context, heap_bytes(states))?;
            }
        }
        Ok(rows)
    }

    /// Has the next rows of the input in the batch, or taken; false when there are no more.
    fn next_rows(&mut self, context: &Context<'_>) -> Result<bool> {
        if std::mem::take(&mut self.may_divide) && self.take_divided(context)? {
            return Ok(false);
        }
        if self.counts_rows
            && let Some(rows) = self.input.pass_over(context)?
        {
            self.states.iter_mut().for_each(|state| state.add_rows(rows));
            return Ok(rows > 0);
        }
        if self.takes_stored {
            let Ordered { input, states, memory, .. } = self;
            let mut take = |row: ShownRow<'_>| take_shown(states, memory, context, row);
            if let Some(rows) = input.show(context, &mut take)? {
                return Ok(rows > 0);
            }
            self.takes_stored = false;
        }
        self.input.next(context, BATCH_ROWS, &mut self.batch)
    }

    fn give(&mut self, context: &Context<'_>, out: &mut Batch) -> Result<()> {
        let (group, _charges) = self.group.take().unwrap_or_default();
        let mut bytes = heap_bytes(&self.states);
        out.push_with(|values| {
            values.extend(group);
            for state in &mut self.states {
                bytes -= state.heap_bytes();
                let value = state.finish(context, &mut self.memory, bytes)?;
                bytes += value.heap_bytes();
                values.push(value);
            }
            Ok(true)
        })?;
        if bytes > LARGE_BYTES {
            // It is the batch's.
            self.memory.release();
        }
        Ok(())
    }
}

/// Has each state take a row.
#[inline]
fn take_shown(
    states: &mut [State],
    memory: &mut Memory,
    context: &Context<'_>,
    row: ShownRow<'_>,
) -> Result<()> {
    each(states, |state, others| match row {
        ShownRow::Stored(row) => state.add_stored(row, context, memory, others),
        ShownRow::Values(row) => state.add(row, context, memory, others),
    })
}

/// Does something with each state, and what tells the bytes of the others.
#[inline]
fn each(
    states: &mut [State],
    mut work: impl FnMut(&mut State, &dyn Fn() -> usize) -> Result<()>,
) -> Result<()> {
    for index in 0..states.len() {
        let (before, rest) = states.split_at_mut(index);
        let [state, after @ ..] = rest else { break };
        work(state, &|| heap_bytes(before) + heap_bytes(after))?;
    }
    Ok(())
}

/// Bytes of all states.
fn heap_bytes(states: &[State]) -> usize {
    states.iter().map(State::heap_bytes).sum()
}

impl Operator for Ordered {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.width());
        while out.has_room(context, limit)? && !self.done {
            if self.take_rows(context)? {
                self.give(context, out)?;
                continue;
            }
            context.check()?;
            self.next_row = 0;
            if !self.next_rows(context)? {
                self.done = true;
                if self.group.is_some() || self.groups.is_none() {
                    self.give(context, out)?;
                }
                let peak = self.memory.peak();
                context.note(self.node, |profile| profile.memory_bytes = profile.memory_bytes.max(peak));
                self.states.iter_mut().for_each(State::close);
                self.memory.release();
            }
        }
        Ok(!out.is_empty())
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.states.iter_mut().for_each(State::close);
        self.memory.release();
        self.group = None;
        self.batch.reset(0);
        self.next_row = 0;
        self.done = false;
        self.may_divide = self.divides;
        self.input.rewind(context)
    }
}
