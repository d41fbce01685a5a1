//! Flushing: group commit that gathers.
//!
//! Whoever waits for an LSN and finds a free slot writes everything appended so far, for everybody; the others sleep
//! until the write that covers them is done. Up to `max_in_flight` writes are at the device at one time; beside others a write
//! begins when it is long, or nobody may be kept waiting. (Through the OS cache the file makes them one at a time.)
//!
//! # Why so
//! Committers come in circles: each appends, waits, and appends again. A write begun at once takes along who happens to be
//! there; those it has just missed wait for it and for the next one, and the circle falls into two groups that keep each
//! other waiting. So a commit's write begins when as many have come as wait for commits at one time, as completed writes saw
//! them (DeWitt et al. 1984, "Implementation techniques for main memory database systems", names group commit; PostgreSQL's
//! `commit_delay` is the same with a fixed time). One committer never waits for others. With more, the last one to come
//! begins the write, and nobody is woken for it. All of a group sleep on one word: one system call wakes them.
//!
//! Who never comes again must not keep the others: the first of a group sleeps no longer than [`PATIENCE`] writes take, from
//! when he came or the device fell idle, and then writes for those who are there. Committers that come at odd times would
//! mostly wait in vain, or long for little: a wait was worth it if [`YIELD`] came for each time that a write takes. Each one
//! that was not is followed by writes that begin at once, twice as many each time, half as many after [`STREAK`] in a row
//! that were.
//!
//! # Invariants
//! 1. No two writes in flight touch one block. While the last write ends inside a block, the next one must wait for it,
//!    so a long write for several ends with a filler that completes its block.
//! 2. `durable` only advances over a contiguous prefix of completed writes. A long range is written in several pieces, so
//!    it may lie inside a record; `whole`, which records claim and callers see, is the end of a record at or below it.
//! 3. No write to a segment begins before the segment before it is durable wholly. So a segment's valid header proves
//!    the segment before, and a restart trusts that one's footer without looking at its records. It costs one wait for
//!    the device a segment.
//! 4. While somebody sleeps for bytes that are not handed to the device, one of these is true: a write is at the device, and
//!    its end looks again; one is woken to write (`chosen`); one sleeps with a limit (`Watched`).
//! 5. After the first failed write nothing more is written, `durable` stands still, and everybody is told why.
//!
//! # A crash at any point
//! A write begins at a block boundary and, when the log's end lies inside that block, repeats the bytes that are
//! durable in it already. The device tears writes at sectors only, and each sector then holds its old or its new bytes; of
//! a sector that holds durable bytes both carry those same bytes at the same place. So a torn rewrite never harms what was
//! acknowledged. What is behind the acknowledged bytes is a valid record or fails verification. A write further on may
//! survive while an earlier one is lost: its records lie behind a hole, claim a durable LSN not beyond the hole, and
//! were never acknowledged, because of invariant 2.

use super::append::State;
use super::segment::BLOCK;
use super::{Inner, LogOptions};
use crate::{Error, Result};
use gannet_base::clock::{self, Instant};
use gannet_base::sync::atomic::AtomicU32;
use gannet_base::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use gannet_base::sync::{MutexGuard, wait_while, wake_all, wake_one};
use gannet_io::{AlignedBuffer, Class, Durability};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of one write.
pub(crate) const WRITE_MAX: u64 = 512 << 10;
/// Bytes copied out of the ring under one hold of the mutex.
const COPY_MAX: usize = 64 << 10;
/// How many times as long as a write takes others are waited for.
const PATIENCE: u32 = 2;
/// How many others have to come in the time of a write for a wait to be worth it.
const YIELD: u32 = 2;
/// Most writes that begin at once after a wait in vain.
const HASTE_MAX: u32 = 64;
/// Waits in a row that were worth it, before those in vain are forgiven by half.
const STREAK: u32 = 8;

const WAITING: u32 = 0;
const COVERED: u32 = 1;
const LEAD: u32 = 2;
const FAILED: u32 = 3;

/// Those who sleep until one write is done, all on one word, so that one system call wakes them.
#[derive(Debug, Default)]
struct Group(AtomicU32);

impl Group {
    /// Sleeps until the write is done or failed, or the caller is to begin it: `LEAD`, which goes to one. `WAITING` when
    /// `most` has passed.
    fn wait(&self, most: Option<Duration>) -> u32 {
        loop {
            match self.0.load(Acquire) {
                WAITING if wait_while(&self.0, WAITING, most) => {}
                LEAD if self.take_lead() => return LEAD,
                LEAD => {}
                outcome => return outcome,
            }
        }
    }

    /// Takes the order to begin the write, if nobody has.
    fn take_lead(&self) -> bool {
        self.0.compare_exchange(LEAD, WAITING, AcqRel, Acquire).is_ok()
    }
}

/// How a thread waits for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A commit: it may wait for others that share its write.
    Commit,
    /// It is in the way of something else.
    Now,
}

/// Who sees to it that those who gather do not wait for ever for others who never come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathering {
    /// Nobody: none sleeps in `next`, or one is woken to write.
    Unwatched,
    /// One of them, who sleeps for a limited time.
    Watched,
    /// They have waited long enough, or must not.
    Over,
}

/// A write at the device.
#[derive(Debug)]
struct Flight {
    to: u64,
    /// It ends where a record ends.
    whole: bool,
    done: bool,
    group: Arc<Group>,
    /// It is a piece of a long range, and some of these wait for it, too.
    shared: Option<Arc<Group>>,
    /// How many committers wait for it.
    riders: usize,
}

/// The part of the log's state that flushing owns.
#[derive(Debug)]
pub(crate) struct FlushState {
    /// Everything below is on the device.
    pub(crate) durable: u64,
    /// End of a record, everything below is on the device.
    pub(crate) whole: u64,
    /// Ends of some records above `whole`, ascending.
    marks: VecDeque<u64>,
    mark_distance: u64,
    /// Everything below is on the device or on its way.
    pub(crate) submitted: u64,
    /// The flusher sleeps until something is appended.
    pub(crate) flusher_idle: bool,
    /// The flusher is to end.
    pub(crate) flusher_stop: bool,
    flights: VecDeque<Flight>,
    buffers: Vec<AlignedBuffer>,
    /// Those whose bytes are not submitted, and some who wait for a piece of a long range that is.
    next: Arc<Group>,
    /// How many sleep in `next` for bytes that are not submitted, at most.
    sleepers: usize,
    /// How many of these are committers.
    gathered: usize,
    gathering: Gathering,
    poisoned: Option<String>,
    /// How many are woken to write and have not come yet: one at most.
    chosen: usize,
    /// How many wait for commits at one time, from what completed writes saw; falls slowly.
    committers: usize,
    /// Writes left that begin at once.
    haste: u32,
    /// How many the next wait in vain is followed by.
    setback: u32,
    /// Waits for others in a row that were worth it.
    streak: u32,
    /// Bytes that are worth a write at once, beside others.
    long: u64,
    /// How long a write takes, a moving mean.
    write_time: Duration,
    /// When the last write ended.
    idle_since: Instant,
    /// When the one who watches came.
    watched_since: Instant,
    max_in_flight: usize,
    segment_size: u64,
}

impl FlushState {
    /// Nothing appended behind `end`.
    pub(crate) fn new(end: u64, options: &LogOptions) -> Self {
        let (max_in_flight, write_max) = (options.max_in_flight, options.write_max());
        FlushState {
            durable: end,
            whole: end,
            marks: VecDeque::new(),
            mark_distance: write_max / 8,
            submitted: end,
            flusher_idle: false,
            flusher_stop: false,
            flights: VecDeque::with_capacity(max_in_flight * 2),
            buffers: (0..max_in_flight).map(|_| AlignedBuffer::zeroed(write_max as usize)).collect(),
            next: Arc::default(),
            sleepers: 0,
            gathered: 0,
            gathering: Gathering::Unwatched,
            poisoned: None,
            chosen: 0,
            committers: 0,
            haste: 0,
            setback: 1,
            streak: 0,
            long: (write_max / 8).max(2 * BLOCK),
            write_time: Duration::ZERO,
            idle_since: clock::now(),
            watched_since: clock::now(),
            max_in_flight,
            segment_size: options.segment_size,
        }
    }

    /// Moves to `end`, everything below it being durable, with nothing in flight.
    pub(crate) fn restart_at(&mut self, end: u64) {
        assert!(self.flights.is_empty(), "no write is in flight before the log is started");
        (self.durable, self.whole, self.submitted) = (end, end, end);
    }

    /// Takes notice of a record that ends at `end`.
    pub(crate) fn appended(&mut self, end: u64) {
        if end >= self.marks.back().copied().unwrap_or(self.whole) + self.mark_distance {
            self.marks.push_back(end);
        }
    }

    /// Fails when an earlier write failed.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.poisoned {
            Some(cause) => Err(Error::Poisoned(cause.clone())),
            None => Ok(()),
        }
    }

    /// A write buffer, while no write is in flight.
    pub(crate) fn idle_buffer(&mut self) -> &mut AlignedBuffer {
        assert!(self.flights.is_empty(), "no write is in flight before the log is started");
        self.buffers.last_mut().expect("every slot is free")
    }

    /// Refuses everything from now on because of `cause`.
    pub(crate) fn refuse(&mut self, cause: &Error) {
        self.poison(cause.to_string()).wake();
    }

    fn poison(&mut self, cause: String) -> Wakes {
        self.poisoned.get_or_insert(cause);
        let mut told: Vec<_> = self.flights.iter().map(|flight| Arc::clone(&flight.group)).collect();
        told.push(Arc::clone(&self.next));
        told.iter().for_each(|group| group.0.store(FAILED, Release));
        Wakes { ended: told, leader: None }
    }

    /// Whether a write of bytes not submitted yet may start now.
    fn has_slot(&self) -> bool {
        let block_is_free =
            self.submitted.is_multiple_of(BLOCK) || self.flights.back().is_none_or(|flight| flight.done);
        let segment_is_open =
            !self.submitted.is_multiple_of(self.segment_size) || self.durable == self.submitted;
        block_is_free && segment_is_open && !self.buffers.is_empty()
    }

    /// Whether a write up to `end` for `committers` of them should not wait for more.
    fn is_due(&self, committers: usize, end: u64) -> bool {
        committers >= self.committers
            || self.haste > 0
            || end - self.submitted >= self.long
            || self.gathering == Gathering::Over
    }

    /// Has one of those who sleep write now, if one should: whom to wake.
    fn next_leader(&mut self, end: u64) -> Option<Arc<Group>> {
        if self.sleepers == 0 || self.chosen > 0 || !self.is_due(self.gathered, end) || !self.has_slot() {
            return None;
        }
        self.chosen += 1;
        self.sleepers -= 1;
        // Most likely a committer.
        self.gathered = self.gathered.saturating_sub(1);
        self.gathering = Gathering::Over;
        self.next.0.store(LEAD, Release);
        Some(Arc::clone(&self.next))
    }

    /// Whether somebody woken to write may be forestalled by one who is running already, and is.
    fn forestall(&mut self) -> bool {
        let recalled = self.next.take_lead();
        if recalled {
            self.chosen = 0;
            self.sleepers += 1;
            self.gathered += 1;
        }
        recalled
    }

    /// The same as [`FlushState::next_leader`] after one who was woken to write and finds his bytes written: others relied on
    /// him.
    fn next_heir(&mut self, end: u64) -> Option<Arc<Group>> {
        self.gathering = if self.sleepers > 0 { Gathering::Over } else { Gathering::Unwatched };
        self.next_leader(end)
    }

    /// Puts the write up to `to` in flight, of a log that ends at `end`, by somebody who is a committer or not. Those whose
    /// bytes it leaves behind wait for a slot only.
    fn begin(&mut self, to: u64, end: u64, own: usize) {
        let whole = to == end;
        if self.haste > 0 {
            self.haste -= 1;
        } else if self.gathering == Gathering::Watched && self.gathered + own >= self.committers {
            let waited = clock::now() - self.watched_since.max(self.idle_since);
            let others = (self.gathered + own - 1) as u32;
            self.judge(waited * YIELD <= self.write_time * others);
        }
        self.submitted = to;
        let next = Arc::clone(&self.next);
        let flight = if whole {
            Flight { to, whole, done: false, group: next, shared: None, riders: own + self.close_next() }
        } else {
            self.gathering = Gathering::Over;
            Flight { to, whole, done: false, group: Arc::default(), shared: Some(next), riders: own }
        };
        self.flights.push_back(flight);
    }

    /// Draws the lesson from a wait for others.
    fn judge(&mut self, worth_it: bool) {
        if !worth_it {
            self.haste = self.setback;
            self.setback = (self.setback * 2).min(HASTE_MAX);
            self.streak = 0;
            return;
        }
        self.streak += 1;
        if self.streak == STREAK {
            (self.streak, self.setback) = (0, (self.setback / 2).max(1));
        }
    }

    /// Who sleeps from now on for bytes that are not submitted belongs to another group. How many committers belonged to this
    /// one.
    fn close_next(&mut self) -> usize {
        let recalled = usize::from(self.next.take_lead());
        self.chosen -= recalled;
        self.next = Arc::default();
        self.gathering = Gathering::Unwatched;
        self.sleepers = 0;
        std::mem::take(&mut self.gathered) + recalled
    }

    /// Where to sleep until `target` is durable, and how long at most.
    fn join(&mut self, target: u64, wait: Wait) -> (Arc<Group>, Option<Duration>) {
        let own = usize::from(wait == Wait::Commit);
        if target <= self.submitted {
            let flight = self.flights.iter_mut().find(|flight| flight.to >= target);
            let flight = flight.expect("what is submitted and not durable is in flight");
            flight.riders += own;
            return (Arc::clone(&flight.group), None);
        }
        self.sleepers += 1;
        self.gathered += own;
        if wait == Wait::Now {
            self.gathering = Gathering::Over;
        }
        let watches = self.gathering == Gathering::Unwatched && self.chosen == 0;
        if watches {
            self.gathering = Gathering::Watched;
            self.watched_since = clock::now();
        }
        (Arc::clone(&self.next), watches.then(|| self.write_time * PATIENCE))
    }

    /// The one of `group` who watches has slept as long as he should. Breaks when he is to go on as if he had just come, else
    /// says how long he sleeps again.
    fn watch(&mut self, group: &Arc<Group>) -> ControlFlow<(), Option<Duration>> {
        let gathers = Arc::ptr_eq(group, &self.next) && group.0.load(Acquire) == WAITING;
        if !gathers || self.gathering != Gathering::Watched {
            return ControlFlow::Continue(None);
        }
        if !self.flights.is_empty() {
            // The device is slow today; whoever is there when it has done is enough.
            self.gathering = Gathering::Over;
            return ControlFlow::Continue(None);
        }
        let (most, waited) = (self.write_time * PATIENCE, self.idle_since.elapsed());
        if waited < most {
            return ControlFlow::Continue(Some(most - waited));
        }
        self.committers = self.gathered.max(1);
        self.judge(false);
        // The write that begins now is not one of them.
        self.haste += 1;
        self.gathering = Gathering::Over;
        self.sleepers -= 1;
        self.gathered = self.gathered.saturating_sub(1);
        ControlFlow::Break(())
    }

    /// A write took `taken` and ended `now`. One that stalled moves the mean by little.
    fn timed(&mut self, taken: Duration, now: Instant) {
        let taken = taken.min(self.write_time * 4 + Duration::from_millis(1));
        self.write_time = (self.write_time * 7 + taken) / 8;
        self.idle_since = now;
    }

    /// Ends the write up to `to`.
    fn complete(&mut self, to: u64, end: u64) -> Wakes {
        let riders: usize = self.flights.iter().map(|flight| flight.riders).sum();
        let committing = (riders + self.gathered).max(1);
        self.committers = committing.max(self.committers - self.committers.div_ceil(8));
        let flight = self.flights.iter_mut().find(|flight| flight.to == to).expect("the write is in flight");
        (flight.done, flight.riders) = (true, 0);
        let mut ended = Vec::new();
        while self.flights.front().is_some_and(|flight| flight.done) {
            let flight = self.flights.pop_front().expect("looked at");
            self.durable = flight.to;
            if flight.whole {
                self.whole = flight.to;
            }
            ended.push(flight.group);
            // Those who wait for more come again. Once another write has taken them along, that one wakes them.
            if let Some(shared) = flight.shared.filter(|shared| Arc::ptr_eq(shared, &self.next)) {
                self.close_next();
                ended.push(shared);
            }
        }
        ended.iter().for_each(|group| group.0.store(COVERED, Release));
        while self.marks.front().is_some_and(|&mark| mark <= self.durable) {
            self.whole = self.whole.max(self.marks.pop_front().expect("looked at"));
        }
        Wakes { ended, leader: self.next_leader(end) }
    }
}

/// Whom a change of the state wakes, once the mutex is free.
#[must_use]
struct Wakes {
    /// Groups whose write is done, or never will be.
    ended: Vec<Arc<Group>>,
    /// A group of which one is to write.
    leader: Option<Arc<Group>>,
}

impl Wakes {
    fn wake(&self) {
        self.ended.iter().for_each(|group| wake_all(&group.0));
        // Woken last: those covered may append their next group first, and ride along.
        self.leader.iter().for_each(|group| wake_one(&group.0));
    }
}

impl Inner {
    /// Waits until the log is durable up to `target`, writing what is missing when a slot is free.
    pub(crate) fn flush_until(&self, target: u64, wait: Wait) -> Result<()> {
        let own = usize::from(wait == Wait::Commit);
        let mut chosen = false;
        loop {
            if !chosen && self.durable.load(Acquire) >= target {
                return Ok(());
            }
            let mut state = self.state.lock();
            state.flush.check()?;
            let end = state.end;
            if target > end {
                let text = format!("a wait for lsn {target}, but the log ends at lsn {end}");
                return Err(Error::Invalid(text));
            }
            state.flush.chosen -= usize::from(chosen);
            let missing = state.flush.submitted < target;
            let due = chosen || wait == Wait::Now || state.flush.is_due(state.flush.gathered + 1, end);
            let begins = missing && due && state.flush.has_slot();
            if begins && (state.flush.chosen == 0 || state.flush.forestall()) {
                self.write_range(state, own);
                chosen = false;
                continue;
            }
            let heir = if chosen { state.flush.next_heir(end) } else { None };
            let place = (state.flush.durable < target).then(|| state.flush.join(target, wait));
            drop(state);
            heir.inspect(|group| wake_one(&group.0));
            let Some((group, mut most)) = place else { return Ok(()) };
            let outcome = loop {
                let outcome = group.wait(most);
                if outcome != WAITING {
                    break outcome;
                }
                match self.state.lock().flush.watch(&group) {
                    ControlFlow::Continue(longer) => most = longer,
                    ControlFlow::Break(()) => break WAITING,
                }
            };
            chosen = outcome == LEAD;
        }
    }

    /// Writes one range from the first byte not submitted, by a committer (`own` is 1) or somebody else (0). Called when a write
    /// may start.
    fn write_range<'a>(&'a self, mut state: MutexGuard<'a, State>, own: usize) {
        let from = state.flush.submitted & !(BLOCK - 1);
        let limit = state.segment_end(from + 1).min(from + self.write_max);
        let long = state.end - from >= state.flush.long && state.end < limit;
        if long && state.flush.sleepers > 0 && state.flush.max_in_flight > 1 {
            state.fill_block();
            self.end.store(state.end, Release);
        }
        let to = state.end.min(limit);
        let mut buffer = state.flush.buffers.pop().expect("a slot is free");
        let end = state.end;
        state.flush.begin(to, end, own);
        let mut leader = state.flush.next_leader(end);
        let len = (to - from) as usize;
        let padded = len.next_multiple_of(BLOCK as usize);
        for at in (0..len).step_by(COPY_MAX) {
            if at > 0 {
                drop(state);
                leader.take().inspect(|group| wake_one(&group.0));
                state = self.state.lock();
            }
            state.ring.get(from + at as u64, &mut buffer[at..len.min(at + COPY_MAX)]);
        }
        drop(state);
        leader.inspect(|group| wake_one(&group.0));
        buffer[len..padded].fill(0);
        let begun = clock::now();
        let result = self.write_block(from, &buffer[..padded]);
        let mut state = self.state.lock();
        state.flush.buffers.push(buffer);
        let wakes = match result {
            Err(error) => state.flush.poison(error.to_string()),
            Ok(()) if state.flush.poisoned.is_some() => Wakes { ended: Vec::new(), leader: None },
            Ok(()) => {
                let end = state.end;
                let now = clock::now();
                state.flush.timed(now - begun, now);
                state.flush.complete(to, end)
            }
        };
        self.durable.store(state.flush.durable, Release);
        self.durable_records.fetch_max(state.flush.whole, AcqRel);
        drop(state);
        wakes.wake();
    }

    fn write_block(&self, from: u64, bytes: &[u8]) -> Result<()> {
        let file = self.segments.file_to_write(from / self.segments.size)?;
        Ok(file.write_at(Class::Commit, from % self.segments.size, bytes, Durability::Durable)?)
    }

    /// The flusher's life: nothing stays unflushed much longer than half of `max_delay` plus the device's time.
    fn run_flusher(&self, max_delay: Duration) {
        let mut state = self.state.lock();
        while !state.flush.flusher_stop {
            if state.end == state.flush.durable {
                state.flush.flusher_idle = true;
                self.flusher.wait(&mut state);
                continue;
            }
            self.flusher.wait_for(&mut state, max_delay / 2);
            let end = state.end;
            drop(state);
            if self.flush_until(end, Wait::Now).is_err() {
                // Those who wait for their commits are told; nothing will ever be flushed again.
                return;
            }
            state = self.state.lock();
        }
    }
}

/// A thread that flushes what nobody waits for. Stops when dropped.
#[derive(Debug)]
pub struct Flusher {
    inner: Arc<Inner>,
    thread: Option<gannet_base::thread::JoinHandle<()>>,
}

impl Flusher {
    pub(crate) fn start(inner: &Arc<Inner>, max_delay: Duration) -> Self {
        inner.state.lock().flush.flusher_stop = false;
        let shared = Arc::clone(inner);
        let thread = gannet_base::thread::spawn("log-flusher", move || shared.run_flusher(max_delay));
        Flusher { inner: Arc::clone(inner), thread: Some(thread) }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.inner.state.lock().flush.flusher_stop = true;
        self.inner.flusher.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic in the flusher has been reported where it happened.
            let _ = thread.join();
        }
    }
}
