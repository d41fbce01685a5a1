//! Aggregates of all rows by several threads: each takes one part of the rows after the other and makes states of it, which are merged in the
//! order of the rows.
//!
//! Results are those of one thread: what depends on how sums are put together, as of floats, or gathers what it is given, is not done here.

use super::State;
use crate::codec::row::StoredRow;
use crate::exec::store::{PartReader, Parts, Seen};
use crate::exec::{Context, Helpers};
use crate::functions::Accumulator;
use crate::session::without_long_values;
use crate::{Error, Result, SqlState};
use gannet_store::ThreadReads;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Parts for each thread: who is slower takes fewer.
pub(super) const PARTS_EACH: usize = 4;

/// A column, or none, and the state of its aggregate.
type Fold = (Option<usize>, Accumulator);

/// What was made of a part of the rows.
#[derive(Debug)]
pub(super) struct Part {
    /// Of those that were seen.
    pub(super) states: Vec<Accumulator>,
    /// From this key on nobody has seen any; `None`: all were seen.
    pub(super) rest: Option<Vec<u8>>,
}

impl Part {
    /// Nobody has seen any.
    fn unseen() -> Self {
        Part { states: Vec::new(), rest: Some(Vec::new()) }
    }
}

/// What threads have come to.
#[derive(Debug)]
pub(super) struct Done {
    /// The parts, in their order.
    pub(super) parts: Vec<Part>,
    /// Rows that were seen.
    pub(super) rows: u64,
    /// Threads beside the statement's own that have worked.
    pub(super) helpers: u64,
    /// Pages that these, and all threads, have asked for.
    pub(super) reads: (ThreadReads, ThreadReads),
}

/// What the threads work on.
struct Work<'w> {
    parts: &'w Parts,
    folds: Vec<Fold>,
    /// Only the number of rows is wanted.
    counts_rows: bool,
    next: AtomicUsize,
    cancel: &'w AtomicBool,
    /// Something has gone wrong.
    stops: AtomicBool,
    done: Mutex<BTreeMap<usize, Part>>,
}

/// Has all parts seen to. Parts that no thread can see to alone are left to the caller.
pub(super) fn run(
    context: &Context<'_>,
    parts: &Parts,
    states: &[State],
    counts_rows: bool,
    helpers: &Helpers,
) -> Result<Done> {
    let folds = states.iter().map(|state| (state.column(), state.accumulator.clone())).collect();
    let work = Work {
        parts,
        folds,
        counts_rows,
        next: AtomicUsize::new(0),
        cancel: context.cancel,
        stops: AtomicBool::new(false),
        done: Mutex::default(),
    };
    let mut done = Done { parts: Vec::new(), rows: 0, helpers: 0, reads: Default::default() };
    for (thread, (outcome, reads)) in helpers.run(&|| work.run()).into_iter().enumerate() {
        done.rows += outcome.unwrap_or_else(|| Err(Error::internal("a thread has ended by itself")))?;
        add(&mut done.reads.1, reads);
        if thread > 0 {
            add(&mut done.reads.0, reads);
            done.helpers += 1;
        }
    }
    context.check()?;
    let mut found = work.done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.parts = (0..parts.len()).map(|part| found.remove(&part).unwrap_or_else(Part::unseen)).collect();
    Ok(done)
}

fn add(to: &mut ThreadReads, more: ThreadReads) {
    to.hits += more.hits;
    to.serial_reads += more.serial_reads;
    to.batched_reads += more.batched_reads;
    to.batches += more.batches;
}

impl Work<'_> {
    fn goes_on(&self) -> bool {
        !self.cancel.load(Ordering::Relaxed) && !self.stops.load(Ordering::Relaxed)
    }

    /// A thread's work; gives the rows it has seen.
    fn run(&self) -> Result<u64> {
        let result = self.take_parts();
        match result {
            // Others, or the statement's own thread, have room for what this one has none for.
            Err(error) if error.state() == SqlState::OUT_OF_MEMORY => Ok(0),
            Err(error) => {
                self.stops.store(true, Ordering::Relaxed);
                Err(error)
            }
            rows => rows,
        }
    }

    fn take_parts(&self) -> Result<u64> {
        let mut reader = self.parts.reader()?;
        let mut rows = 0;
        while self.goes_on() {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts.len() {
                break;
            }
            rows += self.take_part(&mut reader, part)?;
        }
        Ok(rows)
    }

    fn take_part(&self, reader: &mut PartReader<'_>, part: usize) -> Result<u64> {
        let mut folds = self.folds.clone();
        let goes_on = || self.goes_on();
        let result = if self.counts_rows {
            let counted = reader.count(part, &goes_on);
            counted.inspect(|(rows, _)| folds.iter_mut().for_each(|(_, state)| state.add_rows(*rows)))
        } else {
            without_long_values(|| reader.show(part, &goes_on, &mut |row| add_row(&mut folds, row)))
        };
        let (rows, rest) = match result {
            Ok((rows, Seen::All)) => (rows, None),
            Ok((rows, Seen::Before(key))) => (rows, Some(key)),
            // Nobody waits for this any more.
            Ok((_, Seen::Some)) => return Ok(0),
            Err(error) if error.state() == SqlState::OUT_OF_MEMORY => return Ok(0),
            Err(error) => return Err(error),
        };
        let states = folds.into_iter().map(|(_, state)| state).collect();
        self.done.lock().unwrap_or_else(PoisonError::into_inner).insert(part, Part { states, rest });
        Ok(rows)
    }
}

/// Takes a short row.
#[inline]
fn add_row(folds: &mut [Fold], row: &StoredRow<'_>) -> Result<()> {
    for (column, state) in folds {
        let Some(place) = *column else {
            state.add(&[])?;
            continue;
        };
        if let Some(field) = state.add_field(row.field(place)?)? {
            state.add(&[row.value_of(place, field)?])?;
        }
    }
    Ok(())
}
