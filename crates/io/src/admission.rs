//! Who may go to the device next.
//!
//! Two levels: a [`Scheduler`] inside each queue, which keeps the backlog by class and the queue's own depth, and one
//! [`Admission`] for the whole disk, which knows how much of each class is at the device and how well it is doing.
//!
//! # Invariants
//! 1. A class of which a queue has nothing at the device is always admitted there. So every queue makes progress by its
//!    own completions alone, whatever other queues hold, and no class starves.
//! 2. `in_flight` counts what was dispatched and not finished; every `enter` is paired with one `leave`.
//! 3. Beyond invariant 1 the whole disk keeps at most `prefetch_depth` prefetches and `maintenance_cap()`
//!    maintenance requests at the device, and a queue at most its depth (plus a reserve for the two strongest classes).

use crate::calibrate::Learner;
use crate::real::Settled;
use crate::stats::{Operation, Stats};
use crate::{Calibration, Class, Direction};
use gannet_base::clock::{self, Instant};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Prefetch depth before anything was calibrated.
pub(crate) const PREFETCH_DEPTH_DEFAULT: usize = 64;
/// Maintenance requests at the device when the foreground is at rest.
pub(crate) const MAINTENANCE_MAX: usize = 8;
/// Places in a queue kept for commit and foreground requests.
const RESERVE: usize = 16;
/// The foreground counts as active for this long after its last request.
const FOREGROUND_MEMORY: Duration = Duration::from_millis(50);

/// What all files and queues of a disk share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stats: Stats,
    pub(crate) admission: Admission,
}

impl Shared {
    pub(crate) fn new(prefetch_depth: usize) -> Self {
        Shared { stats: Stats::default(), admission: Admission::new(prefetch_depth) }
    }

    /// Counts a request that has ended, and learns from it when it ended well.
    pub(crate) fn settle(&self, done: &Settled, now: Instant, ok: bool) {
        let operation = if done.direction == Direction::Read { Operation::Read } else { Operation::Write };
        self.stats.record(done.class, operation, done.bytes as u64, now - done.submitted, ok);
        if ok {
            self.admission.learn(done, now);
        }
    }
}

/// The state of one disk that decides about admission.
#[derive(Debug)]
pub(crate) struct Admission {
    in_flight: [AtomicUsize; Class::ALL.len()],
    prefetch_depth: AtomicUsize,
    learner: Learner,
}

impl Admission {
    fn new(prefetch_depth: usize) -> Self {
        Admission {
            in_flight: Default::default(),
            prefetch_depth: AtomicUsize::new(prefetch_depth.max(1)),
            learner: Learner::default(),
        }
    }

    /// Counts a request that goes to the device; gives how many are there now.
    pub(crate) fn enter(&self, class: Class) -> usize {
        self.in_flight[class as usize].fetch_add(1, Relaxed);
        self.in_flight.iter().map(|n| n.load(Relaxed)).sum()
    }

    /// The counterpart of `enter`.
    pub(crate) fn leave(&self, class: Class) {
        self.in_flight[class as usize].fetch_sub(1, Relaxed);
    }

    /// Requests of a class at the device.
    pub(crate) fn at_device(&self, class: Class) -> usize {
        self.in_flight[class as usize].load(Relaxed)
    }

    pub(crate) fn prefetch_depth(&self) -> usize {
        self.prefetch_depth.load(Relaxed)
    }

    pub(crate) fn set_prefetch_depth(&self, depth: usize) {
        self.prefetch_depth.store(depth.max(1), Relaxed);
    }

    fn learn(&self, done: &Settled, now: Instant) {
        let durable = match done.direction {
            Direction::Read => None,
            Direction::Write(durability) | Direction::WriteAtomic(durability) => Some(durability),
        };
        self.learner.learn(done.class, durable, done.bytes, now - done.dispatched, done.depth, now);
    }

    pub(crate) fn calibration(&self) -> Calibration {
        self.learner.calibration()
    }

    pub(crate) fn calibrate(&self, calibration: &Calibration) {
        self.learner.set(calibration);
        if let Some(depth) = calibration.depth {
            self.set_prefetch_depth(depth);
        }
    }

    fn has_room(&self, class: Class) -> bool {
        match class {
            Class::Commit | Class::Foreground | Class::Deadline => true,
            Class::Prefetch => self.at_device(class) < self.prefetch_depth(),
            Class::Maintenance => self.at_device(class) < self.maintenance_cap(clock::now()),
        }
    }

    /// Maintenance requests allowed at the device: all while the foreground rests or is fast, one when its latency
    /// is six times that of an idle device, in between proportionally.
    pub(crate) fn maintenance_cap(&self, now: Instant) -> usize {
        let Some(latency) = self.learner.foreground_since(now, FOREGROUND_MEMORY) else {
            return MAINTENANCE_MAX;
        };
        let Some(idle) = self.learner.calibration().read_latency else { return MAINTENANCE_MAX / 2 };
        let slowdown = latency.as_secs_f64() / idle.as_secs_f64().max(1e-9);
        let share = ((6.0 - slowdown) / 4.0).clamp(0.0, 1.0);
        1 + ((MAINTENANCE_MAX - 1) as f64 * share) as usize
    }
}

/// The backlog of one queue and what it has at the device.
#[derive(Debug)]
pub(crate) struct Scheduler<J> {
    backlog: [VecDeque<J>; Class::ALL.len()],
    waiting: usize,
    in_flight: [usize; Class::ALL.len()],
    total: usize,
    depth: usize,
    turn: u32,
    shared: Arc<Shared>,
}

impl<J> Scheduler<J> {
    pub(crate) fn new(depth: usize, shared: Arc<Shared>) -> Self {
        Scheduler {
            backlog: Default::default(),
            waiting: 0,
            in_flight: [0; Class::ALL.len()],
            total: 0,
            depth: depth.max(1),
            turn: 0,
            shared,
        }
    }

    /// The most requests a queue of `depth` ever has at the device.
    pub(crate) fn slots(depth: usize) -> usize {
        depth.max(1) + RESERVE + Class::ALL.len()
    }

    pub(crate) fn push(&mut self, class: Class, job: J) {
        self.backlog[class as usize].push_back(job);
        self.waiting += 1;
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The next job that may go to the device, with the number of requests there, itself included.
    pub(crate) fn next(&mut self) -> Option<(J, usize)> {
        if self.waiting == 0 {
            return None;
        }
        // Callers that take one job at a time would never see the weak classes while the strong ones are busy.
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(16)
            && let Some(class) = Class::ALL
                .into_iter()
                .rev()
                .find(|&c| self.in_flight[c as usize] == 0 && !self.backlog[c as usize].is_empty())
        {
            return self.take(class);
        }
        let class = Class::ALL
            .into_iter()
            .find(|&class| !self.backlog[class as usize].is_empty() && self.admissible(class))?;
        self.take(class)
    }

    /// Whether `next` would give out a job.
    pub(crate) fn has_ready(&self) -> bool {
        self.waiting > 0
            && Class::ALL
                .into_iter()
                .any(|class| !self.backlog[class as usize].is_empty() && self.admissible(class))
    }

    fn take(&mut self, class: Class) -> Option<(J, usize)> {
        let job = self.backlog[class as usize].pop_front()?;
        self.waiting -= 1;
        self.in_flight[class as usize] += 1;
        self.total += 1;
        Some((job, self.shared.admission.enter(class)))
    }

    /// A job that `next` gave out has ended.
    pub(crate) fn finished(&mut self, class: Class) {
        self.in_flight[class as usize] -= 1;
        self.total -= 1;
        self.shared.admission.leave(class);
    }

    fn admissible(&self, class: Class) -> bool {
        if self.in_flight[class as usize] == 0 {
            return true;
        }
        let limit = self.depth + if class <= Class::Foreground { RESERVE } else { 0 };
        self.total < limit && self.shared.admission.has_room(class)
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
