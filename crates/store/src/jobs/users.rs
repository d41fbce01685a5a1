//! Which part of what users' statements take is the device's.
//!
//! What jobs do to users at the device slows a statement by as much as it waits there. Where that is little, jobs may ask more of the device
//! than where it is all, and users feel the same. Statements are counted only while there are jobs: users pay for no clock otherwise.

use gannet_base::clock::{self, Instant};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::time::Duration;

/// Of a statement, or a commit, no more counts than this: who looks at others for that long has seen no more of it.
const COUNTS: Duration = super::pacer::PROBE;

/// See the module's head. One for each engine.
#[derive(Debug, Default)]
pub(crate) struct Users {
    jobs: AtomicUsize,
    /// What statements that have ended took, and what commits waited for their log to be durable, in nanoseconds.
    statements: AtomicU64,
    commits: AtomicU64,
}

impl Users {
    /// When a statement or a commit begins, if that is of interest.
    #[inline]
    pub(crate) fn begins(&self) -> Option<Instant> {
        if self.jobs.load(Relaxed) > 0 { Some(clock::now()) } else { None }
    }

    /// A statement of a user that began then has ended.
    pub(crate) fn statement_ends(&self, began: Instant) {
        add(&self.statements, began);
    }

    /// A commit that began to wait then is durable.
    pub(crate) fn commit_ends(&self, began: Instant) {
        add(&self.commits, began);
    }

    /// A job begins; whether it is the only one.
    pub(super) fn enter(&self) -> bool {
        self.jobs.fetch_add(1, AcqRel) == 0
    }

    /// A job has ended; whether it was the last one.
    pub(super) fn leave(&self) -> bool {
        self.jobs.fetch_sub(1, AcqRel) == 1
    }

    /// Nanoseconds of statements, and of commits that waited, since the engine began.
    pub(super) fn taken(&self) -> (u64, u64) {
        (self.statements.load(Relaxed), self.commits.load(Relaxed))
    }
}

fn add(sum: &AtomicU64, began: Instant) {
    sum.fetch_add(began.elapsed().min(COUNTS).as_nanos() as u64, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_counted_while_there_are_jobs() {
        let users = Users::default();
        assert!(users.begins().is_none());
        assert!(users.enter() && !users.enter() && !users.leave());
        let began = users.begins().unwrap();
        clock::sleep(Duration::from_millis(1));
        users.statement_ends(began);
        users.commit_ends(began);
        let (statements, commits) = users.taken();
        assert!(statements >= 1_000_000 && commits >= statements);
        assert!(users.leave() && users.begins().is_none());
    }

    #[test]
    fn of_a_long_statement_what_a_look_can_have_seen_counts() {
        let users = Users::default();
        users.enter();
        let now = clock::now();
        let long_ago = Instant::from_nanos(now.as_nanos().saturating_sub(3_600_000_000_000));
        users.statement_ends(long_ago);
        assert!(users.taken().0 <= COUNTS.as_nanos() as u64);
    }
}
