//! Aggregates of all rows by several threads: each takes one part of the rows after the other and makes states of it, which are merged in the
//! order of the rows.
//!
//! Results are those of one thread: what depends on how sums are put together, as of floats, or gathers what it is given, is not done here.
//!
//! # Memory
//! A thread takes short rows only, and no value of them that is more than short once it is made, so that a state has no more either; what the
//! states of a part have is charged when the part is through. Where a row or a value is longer, or that has no room, the statement's own thread goes on, alone:
//! long values are charged before they are read, and take the statement's turn.

use super::State;
use crate::codec::row::{Field, StoredRow};
use crate::exec::store::{PartReader, Parts, Reached};
use crate::exec::{Context, Helpers};
use crate::functions::{Accumulator, SHORT_BYTES};
use crate::session::without_long_values;
use crate::{Error, Result, SqlState};
use gannet_base::memory::Purpose;
use gannet_store::{Engine, WorkMemory};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts for each thread: who is slower takes fewer.
pub(super) const PARTS_EACH: usize = 4;
/// Aggregates of the most that are done so: each has a state in each part.
pub(super) const STATES_MOST: usize = 16;

/// A column, or none, and the state of its aggregate.
type Fold = (Option<usize>, Accumulator);

/// What was made of a part of the rows.
#[derive(Debug)]
pub(super) struct Part {
    /// Of those that were seen.
    pub(super) states: Vec<Accumulator>,
    /// From this key on nobody has seen any; `None`: all were seen.
    pub(super) rest: Option<Vec<u8>>,
    rows: u64,
    _memory: Option<WorkMemory>,
}

impl Part {
    /// Nobody has seen any.
    fn unseen() -> Self {
        Part { states: Vec::new(), rest: Some(Vec::new()), rows: 0, _memory: None }
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
}

/// What the threads work on.
struct Work<'w> {
    parts: &'w Parts,
    engine: &'w Engine,
    folds: Vec<Fold>,
    /// Only the number of rows is wanted.
    counts_rows: bool,
    next: AtomicUsize,
    cancel: &'w AtomicBool,
    /// Parts from this one on are not wanted any more: something has gone wrong with it, or, from the first one on, a thread has ended by a panic.
    stops_at: AtomicUsize,
    done: Mutex<BTreeMap<usize, Part>>,
    /// What has gone wrong first, in the order of the rows.
    failure: Mutex<Option<(usize, Error)>>,
}

/// Sees to it that others stop when its thread ends by a panic.
struct Watched<'w>(&'w AtomicUsize);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has all parts seen to. What no thread can see to beside others is left to the caller.
pub(super) fn run(
    context: &Context<'_>,
    parts: &Parts,
    states: &[State],
    counts_rows: bool,
    helpers: &Helpers,
) -> Result<Done> {
    let work = Work {
        parts,
        engine: &context.session.engine,
        folds: states.iter().map(|state| (state.column(), state.accumulator.clone())).collect(),
        counts_rows,
        next: AtomicUsize::new(0),
        cancel: context.cancel,
        stops_at: AtomicUsize::new(usize::MAX),
        done: Mutex::default(),
        failure: Mutex::default(),
    };
    let outcomes = helpers.run(&|| work.take_parts());
    if let Some((_, error)) = locked(&work.failure).take() {
        return Err(error);
    }
    if outcomes.contains(&None) {
        return Err(Error::internal("a thread that helped has ended by itself"));
    }
    context.check()?;
    let mut found = std::mem::take(&mut *locked(&work.done));
    let rows = found.values().map(|part| part.rows).sum();
    let parts = (0..parts.len()).map(|part| found.remove(&part).unwrap_or_else(Part::unseen)).collect();
    Ok(Done { parts, rows, helpers: outcomes.len() as u64 - 1 })
}

impl Work<'_> {
    /// Whether this part is still wanted.
    fn wants(&self, number: usize) -> bool {
        !self.cancel.load(Ordering::Relaxed) && number < self.stops_at.load(Ordering::Relaxed)
    }

    /// A thread's work.
    fn take_parts(&self) {
        let _watched = Watched(&self.stops_at);
        let mut reader = None;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.parts.len() || !self.wants(number) {
                break;
            }
            match self.take_part(&mut reader, number) {
                Ok(Some(part)) => {
                    locked(&self.done).insert(number, part);
                }
                Ok(None) => {}
                // The statement's own thread may find room for it.
                Err(error) if error.state() == SqlState::OUT_OF_MEMORY => {}
                Err(error) => {
                    self.stops_at.fetch_min(number, Ordering::Relaxed);
                    let mut failure = locked(&self.failure);
                    if failure.as_ref().is_none_or(|(before, _)| number < *before) {
                        *failure = Some((number, error));
                    }
                }
            }
        }
    }

    /// Sees to a part; `None` where nothing of it is wanted any more.
    fn take_part<'p>(&'p self, reader: &mut Option<PartReader<'p>>, number: usize) -> Result<Option<Part>> {
        let reader = match reader {
            Some(reader) => reader,
            None => reader.insert(self.parts.reader()?),
        };
        let mut folds = self.folds.clone();
        let goes_on = || self.wants(number);
        let (rows, reached) = if self.counts_rows {
            let (rows, reached) = reader.count(number, &goes_on)?;
            folds.iter_mut().for_each(|(_, state)| state.add_rows(rows));
            (rows, reached)
        } else {
            without_long_values(|| {
                reader.show(number, &goes_on, &mut |row| add_row(&mut folds, row).map(|()| true))
            })?
        };
        let rest = match reached {
            Reached::End => None,
            Reached::LongRow(key) => Some(key),
            Reached::Nowhere => return Ok(None),
        };
        let states: Vec<_> = folds.into_iter().map(|(_, state)| state).collect();
        let bytes = states.iter().map(Accumulator::heap_bytes).sum::<usize>() as u64;
        let memory = (bytes > 0).then(|| self.engine.memory(Purpose::Work, bytes)).transpose()?;
        Ok(Some(Part { states, rest, rows, _memory: memory }))
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
        let field = row.field(place)?;
        // What is short as it is stored may be long as a value: blanks and zeros are left out.
        let bytes = match &field {
            Field::Padded(text, blanks) => text.len() + blanks,
            Field::Numeric(number) => number.heap_bytes(),
            Field::Value(value) => value.heap_bytes(),
            Field::Null | Field::Text(_) | Field::Bytes(_) | Field::Int(_) => 0,
        };
        if bytes > SHORT_BYTES {
            return Err(not_short());
        }
        if let Some(field) = state.add_field(field)? {
            state.add(&[row.value_of(place, field)?])?;
        }
    }
    Ok(())
}

/// Nobody is told: the part is left to the statement's own thread.
#[cold]
fn not_short() -> Error {
    Error::new(SqlState::OUT_OF_MEMORY, "a value is longer than what one of several threads takes")
}
