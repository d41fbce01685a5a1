//! Runs of a sort that a thread sorts and writes while the sorter takes more rows.
//!
//! The thread has the rows, the order and the file to itself; the sorter waits for it before it begins another run, gives its rows, or gives its
//! memory back. So there is one at most for each sort, its memory is what the sorter has charged, and nothing of it is left behind a statement.
//! It looks now and then whether anybody wants the run still, so a statement that is to end does not wait for long.

use super::entries::{Entry, Look, sorted};
use super::order::SortOrder;
use super::runs::InMemory;
use crate::exec::arena::Arena;
use crate::exec::spill::SpillWriter;
use crate::{Error, Result, SqlState};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread::{self, JoinHandle};
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool};
use std::time::Duration;

/// Rows that are to become a run.
#[derive(Debug)]
pub(super) struct Work {
    order: Arc<SortOrder>,
    arena: Arena,
    writer: SpillWriter,
    top: usize,
}

/// A run that is written but for its end.
#[derive(Debug)]
pub(super) struct Made {
    /// The writer, behind the run's rows.
    pub(super) writer: SpillWriter,
    /// Empty, with the memory that the rows had.
    pub(super) arena: Arena,
    /// The keys of the last row wanted, where there are as many as are wanted, and these are not long.
    pub(super) cutoff: Option<Vec<u8>>,
}

impl Work {
    /// Of these rows the first `top` go to the writer.
    pub(super) fn new(order: &Arc<SortOrder>, arena: Arena, writer: SpillWriter, top: usize) -> Self {
        Work { order: Arc::clone(order), arena, writer, top }
    }

    /// Bytes of rows, and of what is sorted.
    fn bytes(&self) -> usize {
        self.arena.bytes() + self.arena.len() * size_of::<Entry>()
    }

    /// Sorts and writes; `look` says now and then whether to go on.
    pub(super) fn make(self, look: Look<'_>) -> Result<Made> {
        let Work { order, arena, mut writer, top } = self;
        look()?;
        let entries = sorted(&order, &arena, top, look)?;
        let last = entries.get(top.wrapping_sub(1));
        let cutoff = last.and_then(|last| order.cutoff(arena.row(last.row)));
        let arena = InMemory::new(arena, entries).write(&mut writer, look)?;
        Ok(Made { writer, arena, cutoff })
    }
}

/// A run that is being made.
#[derive(Debug)]
pub(super) struct Behind {
    bytes: usize,
    signs: Arc<Signs>,
    making: Option<Making>,
}

/// What the two threads tell each other.
#[derive(Debug, Default)]
struct Signs {
    /// Nobody wants the run any more.
    unwanted: AtomicBool,
    /// It is through, in whatever way.
    done: Mutex<bool>,
    is_done: Condvar,
}

#[derive(Debug)]
enum Making {
    Thread(JoinHandle<Result<Made>>),
    /// There was no thread to be had.
    Done(Box<Result<Made>>),
}

/// Says at the end of a scope, however it is left, that the run is through.
struct Through(Arc<Signs>);

impl Drop for Through {
    fn drop(&mut self) {
        *self.0.done.lock() = true;
        self.0.is_done.notify_all();
    }
}

impl Behind {
    /// Begins it. Where the system has no thread to give, it is made here and now.
    pub(super) fn begin(work: Work) -> Self {
        let (bytes, signs) = (work.bytes(), Arc::<Signs>::default());
        let through = Through(Arc::clone(&signs));
        let make = move || {
            let through = through;
            let look = || match through.0.unwanted.load(atomic::Ordering::Relaxed) {
                true => Err(Error::new(SqlState::QUERY_CANCELED, "nobody wants the rows any more")),
                false => Ok(()),
            };
            work.make(&look)
        };
        let making = match thread::try_spawn("gannet-sort", make) {
            Ok(thread) => Making::Thread(thread),
            Err(make) => Making::Done(Box::new(make())),
        };
        Behind { bytes, signs, making: Some(making) }
    }

    /// Bytes of its rows, and of what is sorted.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Waits until it is through, no longer than this; false where it is not.
    pub(super) fn is_done_within(&self, limit: Duration) -> bool {
        let mut done = self.signs.done.lock();
        if !*done {
            self.signs.is_done.wait_for(&mut done, limit);
        }
        *done
    }

    /// Waits for it.
    pub(super) fn end(mut self) -> Result<Made> {
        match self.making.take() {
            Some(Making::Thread(thread)) => {
                thread.join().map_err(|panicked| Error::internal(format!("a sort failed: {panicked}")))?
            }
            Some(Making::Done(made)) => *made,
            None => Err(Error::internal("a run was waited for twice")),
        }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        if let Some(Making::Thread(thread)) = self.making.take() {
            self.signs.unwanted.store(true, atomic::Ordering::Relaxed);
            // Its memory is charged by whoever lets it go: it is not to be in use any more.
            let _ = thread.join();
        }
    }
}
