//! The right to give a frame on without waiting for whoever takes it: the reader of a stream, or an object store.
//!
//! # Invariants
//! 1. Nobody waits for whoever takes frames with anything in hand that others may wait for, such as a permit. Who has a frame to give has a [`Slot`] for
//!    it, so giving it on waits for nothing; and nobody who has a slot for pages waits for a permit: a thread that finds no processor would
//!    keep it from one that does.
//! 2. The log has slots of its own: it is not to be late because of pages.

use crate::Result;
use std::fmt;
use std::sync::Arc;

/// What a frame holds, as far as slots are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Pages,
    Log,
}

/// Where slots come from.
pub(super) trait Slots: Send + Sync {
    /// Takes a slot, if there is one: it is given back.
    fn take(&self, lane: Lane) -> Result<bool>;

    /// Waits until there is a slot, but not for long; says whether there may be one.
    fn wait(&self, lane: Lane) -> Result<bool>;

    fn give_back(&self, lane: Lane);
}

/// The right to give one frame on.
pub(crate) struct Slot {
    of: Arc<dyn Slots>,
    lane: Lane,
}

impl Slot {
    /// One, if there is one.
    pub(super) fn try_take(of: &Arc<dyn Slots>, lane: Lane) -> Result<Option<Slot>> {
        Ok(of.take(lane)?.then(|| Slot { of: Arc::clone(of), lane }))
    }

    /// Waits for one, as long as `wanted` does not fail.
    pub(super) fn take(of: &Arc<dyn Slots>, lane: Lane, wanted: &dyn Fn() -> Result<()>) -> Result<Slot> {
        loop {
            if let Some(slot) = Self::try_take(of, lane)? {
                return Ok(slot);
            }
            Self::await_one(of, lane, wanted)?;
        }
    }

    /// Waits until there is one, without taking it, as long as `wanted` does not fail.
    pub(super) fn await_one(of: &Arc<dyn Slots>, lane: Lane, wanted: &dyn Fn() -> Result<()>) -> Result<()> {
        loop {
            wanted()?;
            if of.wait(lane)? {
                return Ok(());
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.of.give_back(self.lane);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("lane", &self.lane).finish_non_exhaustive()
    }
}
