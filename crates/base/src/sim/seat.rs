//! Processors for simulations.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Mutex;

/// Where the simulations of this process run: the processor of each.
static TAKEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The calling thread, and those that it begins, are kept to one processor until this goes. Where the system refuses, to none.
pub(super) struct Seat {
    processor: usize,
    before: CpuSet,
}

impl Seat {
    pub(super) fn take() -> Option<Seat> {
        let before = sched_getaffinity(None).ok()?;
        let mut taken = TAKEN.lock().unwrap_or_else(|e| e.into_inner());
        let processor = (0..CpuSet::MAX_CPU)
            .filter(|&processor| before.is_set(processor))
            .min_by_key(|processor| taken.iter().filter(|&other| other == processor).count())?;
        let mut own = CpuSet::new();
        own.set(processor);
        sched_setaffinity(None, &own).ok()?;
        taken.push(processor);
        Some(Seat { processor, before })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(at) = taken.iter().position(|&other| other == self.processor) {
            taken.swap_remove(at);
        }
        // It was allowed before; and if not any more, the thread stays where it is.
        let _ = sched_setaffinity(None, &self.before);
    }
}
