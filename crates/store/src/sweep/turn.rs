//! Whose turn it is to sweep: one sweep at a time, as it works with trees that the next one may free; and nobody looks for what leads where while
//! one frees what has led there.
//!
//! # Invariants
//! 1. Nobody waits for a turn with a latch or a permit in hand: who has the turn waits for those.
//! 2. Somebody who waits for room does not wait for others to be let go first: whoever has the turn makes haste meanwhile.

use crate::Result;
use crate::core::LOOK_EVERY;
use gannet_base::clock;
use gannet_base::sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    sweeping: Mutex<()>,
    /// How many wait for their turn because there is no room for what they write.
    need_room: AtomicUsize,
}

/// Somebody waits for room, as long as this lives.
struct NeedsRoom<'t>(&'t Turn);

impl Drop for NeedsRoom<'_> {
    fn drop(&mut self) {
        self.0.need_room.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turn {
    /// The turn, if nobody has it.
    pub(crate) fn try_take(&self) -> Option<MutexGuard<'_, ()>> {
        self.sweeping.try_lock()
    }

    /// Waits for it, as long as `check` does not fail.
    pub(crate) fn take(&self, check: &mut dyn FnMut() -> Result<()>) -> Result<MutexGuard<'_, ()>> {
        loop {
            if let Some(turn) = self.sweeping.try_lock() {
                return Ok(turn);
            }
            check()?;
            clock::sleep(LOOK_EVERY);
        }
    }

    /// The same for somebody who has no room for what he writes.
    pub(crate) fn take_for_room(&self, check: &mut dyn FnMut() -> Result<()>) -> Result<MutexGuard<'_, ()>> {
        self.need_room.fetch_add(1, Ordering::Relaxed);
        let _needs = NeedsRoom(self);
        self.take(check)
    }

    /// Whether somebody waits for it who has no room for what he writes.
    pub(crate) fn is_urgent(&self) -> bool {
        self.need_room.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody has it.
    pub(crate) fn is_taken(&self) -> bool {
        self.sweeping.try_lock().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use gannet_base::thread;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn who_waits_for_a_turn_can_give_up_and_who_needs_room_is_seen_to() {
        let turn = Arc::new(Turn::default());
        let had = turn.try_take().unwrap();
        assert!(turn.is_taken() && turn.try_take().is_none());
        assert!(matches!(turn.take(&mut || Err(Error::Cancelled)), Err(Error::Cancelled)));
        assert!(!turn.is_urgent());
        let gives_up = Arc::new(AtomicBool::new(false));
        let waits = {
            let (turn, gives_up) = (Arc::clone(&turn), Arc::clone(&gives_up));
            thread::spawn("needs-room", move || {
                let check = || if gives_up.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) };
                turn.take_for_room(&mut { check }).is_err()
            })
        };
        while !turn.is_urgent() {
            clock::sleep(LOOK_EVERY / 10);
        }
        gives_up.store(true, Ordering::Relaxed);
        assert!(waits.join().unwrap() && !turn.is_urgent());
        drop(had);
        assert!(!turn.is_taken() && turn.take_for_room(&mut || Ok(())).is_ok());
    }
}
