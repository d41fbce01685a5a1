//! Which part of what users' statements take is the device's.
//!
//! What jobs do to users at the device slows a statement by as much as it waits there. Where that is little, jobs may ask more of the device
//! than where it is all, and users feel the same. A statement takes what it has of a processor, and what it waits for the device: other waits,
//! for locks of rows say, are for others who do one or the other. That is counted only while there are jobs, and of a processor only for some of a
//! thread's statements: each look at that clock is a call of the system.

use gannet_base::clock::{self, Instant};
use std::cell::Cell;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

/// Of so many statements of a thread one is looked at, for all of them. Transactions seldom have as many.
const LOOKED_AT: u32 = 11;
/// Of a statement, or a commit, no more counts than this: who looks at others for that long has seen no more of it.
const COUNTS: Duration = super::window::PROBE;

/// See the module's head. One for each engine.
#[derive(Debug, Default)]
pub(crate) struct Users {
    jobs: AtomicUsize,
    /// What statements that have ended had of a processor, and what commits waited for their log to be durable, in nanoseconds.
    processor: AtomicU64,
    commits: AtomicU64,
}

impl Users {
    /// When a statement begins, if that is of interest: how long the calling thread has had a processor by then.
    #[inline]
    pub(crate) fn statement_begins(&self) -> Option<Duration> {
        thread_local!(static STATEMENTS: Cell<u32> = const { Cell::new(0) });
        if !self.are_watched() {
            return None;
        }
        let number = STATEMENTS.get();
        STATEMENTS.set(number.wrapping_add(1));
        number.is_multiple_of(LOOKED_AT).then(clock::thread_cpu)
    }

    /// A statement that the calling thread has begun so has ended.
    pub(crate) fn statement_ends(&self, had: Duration) {
        let took = clock::thread_cpu().saturating_sub(had).min(COUNTS);
        self.processor.fetch_add(u64::from(LOOKED_AT) * took.as_nanos() as u64, Relaxed);
    }

    /// When a commit begins to wait for its log, if that is of interest.
    #[inline]
    pub(crate) fn commit_begins(&self) -> Option<Instant> {
        if self.are_watched() { Some(clock::now()) } else { None }
    }

    /// A commit that began to wait then is durable.
    pub(crate) fn commit_ends(&self, began: Instant) {
        self.commits.fetch_add(began.elapsed().min(COUNTS).as_nanos() as u64, Relaxed);
    }

    fn are_watched(&self) -> bool {
        self.jobs.load(Relaxed) > 0
    }

    /// A job begins; whether it is the only one.
    pub(super) fn enter(&self) -> bool {
        self.jobs.fetch_add(1, AcqRel) == 0
    }

    /// A job has ended; whether it was the last one.
    pub(super) fn leave(&self) -> bool {
        self.jobs.fetch_sub(1, AcqRel) == 1
    }

    /// Nanoseconds that statements had of processors, and commits waited, since the engine began.
    pub(super) fn taken(&self) -> (u64, u64) {
        (self.processor.load(Relaxed), self.commits.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::sim::Simulation;

    #[test]
    fn users_are_counted_while_there_are_jobs() {
        let run = || {
            let users = Users::default();
            assert!(users.statement_begins().is_none() && users.commit_begins().is_none());
            assert!(users.enter() && !users.enter() && !users.leave());
            let (had, began) = (users.statement_begins().unwrap(), users.commit_begins().unwrap());
            clock::sleep(Duration::from_millis(7));
            users.statement_ends(had);
            users.commit_ends(began);
            for number in 1..3 * LOOKED_AT {
                assert_eq!(users.statement_begins().is_some(), number.is_multiple_of(LOOKED_AT));
            }
            // In a simulation who sleeps has a processor.
            let (processor, commits) = users.taken();
            let processor = processor / u64::from(LOOKED_AT);
            assert!((7_000_000..8_000_000).contains(&processor) && (7_000_000..8_000_000).contains(&commits));
            assert!(users.leave() && users.statement_begins().is_none());
        };
        Simulation::new(1).run(run).unwrap();
    }

    #[test]
    fn of_a_long_commit_what_a_look_can_have_seen_counts() {
        let run = || {
            let users = Users::default();
            users.enter();
            let began = users.commit_begins().unwrap();
            clock::sleep(Duration::from_secs(3600));
            users.commit_ends(began);
            assert_eq!(users.taken(), (0, COUNTS.as_nanos() as u64));
        };
        Simulation::new(1).run(run).unwrap();
    }
}
