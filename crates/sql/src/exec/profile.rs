//! Counting what a node does, for EXPLAIN ANALYZE.

use super::{Batch, Context, Looked, Operator, Parts, ShownRow};
use crate::Result;
use gannet_base::clock;
use gannet_store::{ThreadReads, thread_reads};

/// An operator that is watched.
#[derive(Debug)]
pub(super) struct Profiled {
    node: usize,
    inner: Box<dyn Operator>,
    /// Whether this run was asked for anything, and has given something.
    started: bool,
    gave: bool,
    /// Nanoseconds in this run.
    spent_ns: u64,
}

impl Profiled {
    pub(super) fn new(node: usize, inner: Box<dyn Operator>) -> Self {
        Profiled { node, inner, started: false, gave: false, spent_ns: 0 }
    }

    fn watch<T>(
        &mut self,
        context: &Context<'_>,
        work: impl FnOnce(&mut dyn Operator) -> Result<T>,
    ) -> Result<T> {
        let reads = thread_reads();
        let start = clock::now();
        let result = work(&mut *self.inner);
        self.count(context, start.elapsed().as_nanos() as u64, thread_reads().since(reads));
        result
    }

    fn count(&mut self, context: &Context<'_>, nanos: u64, reads: ThreadReads) {
        self.spent_ns += nanos;
        context.note(self.node, |profile| {
            profile.total_ns += nanos;
            profile.hits += reads.hits;
            profile.serial_reads += reads.serial_reads;
            profile.batched_reads += reads.batched_reads;
        });
    }

    /// It has given so many rows otherwise than by [`Operator::next`], or cannot.
    fn has_given(&mut self, context: &Context<'_>, rows: Option<u64>) {
        let Some(rows) = rows else { return };
        let first = (!self.gave).then_some(self.spent_ns);
        let begins = !std::mem::replace(&mut self.started, true);
        self.gave = true;
        context.note(self.node, |profile| {
            profile.loops += u64::from(begins);
            profile.first_row_ns += first.unwrap_or(0);
            profile.rows += rows;
        });
    }
}

impl Operator for Profiled {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        if !self.started {
            self.started = true;
            context.note(self.node, |profile| profile.loops += 1);
        }
        let more = self.watch(context, |inner| inner.next(context, limit, out))?;
        let first = (!self.gave).then_some(self.spent_ns);
        self.gave = true;
        context.note(self.node, |profile| {
            profile.first_row_ns += first.unwrap_or(0);
            if more {
                profile.rows += out.len() as u64;
            }
        });
        Ok(more)
    }

    fn pass_over(&mut self, context: &Context<'_>) -> Result<Option<u64>> {
        let rows = self.watch(context, |inner| inner.pass_over(context))?;
        self.has_given(context, rows);
        Ok(rows)
    }

    /// What is done with the rows counts as this node's: two looks at the clock for each of them would be more than that.
    fn show(
        &mut self,
        context: &Context<'_>,
        each: &mut dyn FnMut(ShownRow<'_>) -> Result<()>,
    ) -> Result<Option<u64>> {
        let rows = self.watch(context, |inner| inner.show(context, each))?;
        self.has_given(context, rows);
        Ok(rows)
    }

    fn share(&mut self, context: &Context<'_>, parts: usize) -> Result<Option<Parts>> {
        self.watch(context, |inner| inner.share(context, parts))
    }

    fn was_shared(&mut self, context: &Context<'_>, looked: &Looked) {
        self.count(context, looked.nanos, looked.reads);
        self.has_given(context, Some(looked.rows));
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.started = false;
        self.gave = false;
        self.spent_ns = 0;
        self.watch(context, |inner| inner.rewind(context))
    }
}
