//! A round of sweep: what it goes by, how it is paced, and what it has done.
//!
//! # Invariants
//! 1. A round for somebody who waits for room is not paced; one that an administrator has asked for is a part of that job. One of the
//!    background is a job from the moment on that it is seen to be long: there are many segments to free, or it has taken a while.
//! 2. What is paced is what reads from the device. A round whose pages are all in memory is held back by nobody; as a part of a job whose
//!    thread asks for processors it waits for these.
//! 3. A round of the background that has a large part of the file to free is not held back: the file would grow meanwhile. Others that are
//!    long wait until long ones are allowed ([`Engine::allow_long_sweeps`](crate::Engine::allow_long_sweeps)).

use super::report::{Cleaned, TreeCleaned};
use super::turn::Turn;
use crate::jobs::{Job, JobKind, JobOrder, Jobs, Pace, Permit, Unit, Worker};
use crate::pool::reads::{ThreadReads, thread_reads};
use crate::shared::Shared;
use crate::space::EXTENT_PAGES;
use crate::{Error, Result};
use gannet_base::TreeId;
use gannet_base::clock::{self, Instant};
use gannet_base::units::format_size;
use std::collections::BTreeMap;
use std::time::Duration;

/// A round of the background is a job when it has so many segments to free.
const JOB_SEGMENTS: u64 = 64;
/// Or when it takes longer than this.
const JOB_AFTER: Duration = Duration::from_secs(1);
/// It is not held back when its segments are so large a part of the file, one in so many.
const URGENT: u64 = 10;

/// Why there is a round.
pub(crate) enum By<'j> {
    /// A writer finds no room.
    Room,
    /// Garbage is there.
    Background(&'j Jobs),
    /// It is this job.
    Job(&'j Job),
    /// It is a part of the job that this one works on.
    Part(&'j Worker),
}

/// See the module's head.
pub(crate) struct Round<'r> {
    by: By<'r>,
    /// The job that a round of the background has become.
    own: Option<Job>,
    /// A hold on the job that it is, or is a part of.
    worker: Option<Worker>,
    /// For what is being done.
    permit: Option<Permit>,
    /// Streams that nobody has written to for so long have their newest segment swept, too.
    pub(super) idle: Duration,
    give_up: &'r dyn Fn() -> bool,
    turn: &'r Turn,
    segment_bytes: u64,
    page_bytes: u64,
    begun: Instant,
    /// What the thread had read when it was last paced.
    read: ThreadReads,
    /// The last page took reads from the device: those to come may as well.
    cold: bool,
    /// Segments there are to free, and how many are too many to wait for others.
    total: u64,
    urgent_from: u64,
    pub(crate) done: Cleaned,
    trees: BTreeMap<TreeId, TreeCleaned>,
}

impl<'r> Round<'r> {
    pub(crate) fn new(shared: &'r Shared, by: By<'r>, idle: Duration, give_up: &'r dyn Fn() -> bool) -> Self {
        let page_bytes = shared.core.page_size as u64;
        let worker = match &by {
            By::Job(job) => Some(job.worker()),
            By::Part(worker) => Some((*worker).clone()),
            By::Room | By::Background(_) => None,
        };
        Round {
            by,
            own: None,
            worker,
            permit: None,
            idle,
            give_up,
            turn: &shared.sweeping,
            segment_bytes: EXTENT_PAGES * page_bytes,
            page_bytes,
            begun: clock::now(),
            read: thread_reads(),
            cold: false,
            total: 0,
            urgent_from: (shared.core.space.capacity() / EXTENT_PAGES / URGENT).max(JOB_SEGMENTS),
            done: Cleaned::default(),
            trees: BTreeMap::new(),
        }
    }

    /// What was done, by tree, when it is over.
    pub(crate) fn cleaned(self) -> Cleaned {
        Cleaned { by_tree: self.trees.into_values().collect(), ..self.done }
    }

    pub(super) fn is_background(&self) -> bool {
        matches!(self.by, By::Background(_))
    }

    /// It is for a writer who finds no room.
    pub(super) fn needs_room(&self) -> bool {
        matches!(self.by, By::Room)
    }

    fn job(&self) -> Option<&Worker> {
        self.worker.as_ref()
    }

    /// Whether it is to end early.
    pub(super) fn gives_up(&self) -> bool {
        (self.give_up)() || self.job().is_some_and(|job| job.check().is_err())
    }

    /// Somebody has cancelled the job that a round of the background has become.
    pub(super) fn was_cancelled(&self) -> bool {
        self.own.as_ref().is_some_and(|job| job.check().is_err())
    }

    /// Fails with [`Error::Cancelled`] when it is to end early.
    pub(super) fn check(&self) -> Result<()> {
        if self.gives_up() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// It is this round's turn. `total`: segments there are to free. False when it has to wait for its time.
    pub(super) fn begins(&mut self, total: impl FnOnce() -> u64) -> bool {
        self.begun = clock::now();
        if !matches!(self.by, By::Room) {
            self.total = total();
        }
        let is_long = (JOB_SEGMENTS..=self.urgent_from).contains(&self.total);
        if let By::Background(jobs) = self.by
            && is_long
            && !jobs.are_long_sweeps_allowed()
        {
            return false;
        }
        if let By::Job(_) | By::Part(_) = self.by {
            if let Some(job) = self.job() {
                job.phase("sweeps", Unit::Segments, self.total);
            }
        } else if self.total >= JOB_SEGMENTS {
            self.become_job();
        }
        true
    }

    /// From now on a round of the background is seen, and paced.
    fn become_job(&mut self) {
        let By::Background(jobs) = self.by else { return };
        if self.own.is_some() {
            return;
        }
        let mut order = JobOrder::new(JobKind::Sweep);
        order.automatic = true;
        if self.total > self.urgent_from {
            order.pace = Pace::Full;
        }
        let bytes = format_size(self.total * self.segment_bytes);
        order.reason = format!("by itself: nobody can see {} undo segments ({bytes}) any more", self.total);
        if !jobs.are_long_sweeps_allowed() {
            order.reason += match self.total > self.urgent_from {
                true => ", too much of the file to wait for sweep_window",
                false => ", which took longer than expected outside of sweep_window",
            };
        }
        let job = jobs.begin(order);
        job.phase_under_way("sweeps", Unit::Segments, self.total, self.done.segments);
        self.worker = Some(job.worker());
        self.own = Some(job);
    }

    /// Waits as long as others are to go first, by what was read from the device since it was called last.
    pub(super) fn pace(&mut self) -> Result<()> {
        if self.own.is_none() && self.is_background() && self.begun.elapsed() >= JOB_AFTER {
            self.become_job();
        }
        let now = thread_reads();
        let read = now.since(self.read);
        self.read = now;
        let bytes = (read.serial_reads + read.batched_reads) * self.page_bytes;
        self.cold = bytes > 0;
        self.done.bytes_read += bytes;
        self.permit = None;
        let Some(job) = self.job() else { return Ok(()) };
        job.count_read(bytes);
        if self.turn.is_urgent() {
            return job.check();
        }
        // What is in memory takes nothing of the device from anybody.
        let permit = if bytes > 0 { Some(job.permit()?) } else { job.breathe().map(|()| None)? };
        self.permit = permit;
        Ok(())
    }

    /// The same between two short pieces of work of which nothing is known to read: waits for a processor, where the thread asks for one and has no
    /// permit, with which it was waited for.
    pub(super) fn breathe(&self) -> Result<()> {
        match self.job().filter(|_| self.permit.is_none() && !self.turn.is_urgent()) {
            Some(job) => job.breathe(),
            None => Ok(()),
        }
    }

    pub(super) fn is_cold(&self) -> bool {
        self.cold
    }

    pub(super) fn undo_page(&mut self) {
        self.done.undo_pages += 1;
    }

    pub(super) fn dead_entry(&mut self, tree: TreeId) {
        self.done.dead_entries += 1;
        self.of_tree(tree).dead_entries += 1;
    }

    pub(super) fn long_value(&mut self, tree: TreeId) {
        self.done.long_values += 1;
        self.of_tree(tree).long_values += 1;
    }

    fn of_tree(&mut self, tree: TreeId) -> &mut TreeCleaned {
        self.trees.entry(tree).or_insert_with(|| TreeCleaned { tree: tree.0, ..TreeCleaned::default() })
    }

    /// All pages of a dropped tree are about to be given back, which may take a while.
    pub(super) fn frees_tree(&mut self) {
        self.permit = None;
        if let Some(job) = self.job() {
            job.note("gives the pages of a dropped tree back");
        }
    }

    pub(super) fn segment_freed(&mut self) {
        self.done.segments += 1;
        self.done.undo_bytes += self.segment_bytes;
        if let Some(job) = self.job() {
            job.set_done(self.done.segments);
        }
    }

    /// A segment cannot be gone through.
    pub(super) fn segment_stays(&mut self, error: &Error) {
        self.done.damaged_segments += 1;
        self.done.damage.get_or_insert_with(|| error.to_string());
    }

    /// The round is over; where it had become a job, so is that.
    pub(super) fn end(&self, outcome: Result<()>) -> Result<()> {
        let Some(job) = &self.own else { return outcome };
        if matches!(outcome, Err(Error::Cancelled)) && job.check().is_ok() {
            // Nobody has cancelled it, and the next round goes on: no failure.
            job.note("left off, as the log was behind wal_limit or the database closes");
            let _: Result<()> = job.end(Ok(()));
            return outcome;
        }
        job.end(outcome)
    }
}
