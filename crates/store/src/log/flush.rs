//! Flushing: group commit without a timer.
//!
//! Whoever waits for an LSN and finds a free slot writes everything appended so far, for everybody; the others sleep
//! until the write that covers them is done. Up to `max_in_flight` writes are at the device at one time.
//!
//! # Why so
//! Committers come in circles: each appends, waits, and appends again. A write that takes along all of them costs one
//! latency for all; two writes side by side cost one and a half for each, fill blocks, and wake threads twice as often. So
//! with many committers (more than two for each slot, as completed writes saw them) slots beyond the first are kept for long
//! ranges, the next leader is woken after those who were covered, and who comes meanwhile leaves the writing to him. With
//! few, side by side is faster: nobody waits for the rest of somebody else's write.
//!
//! # Invariants
//! 1. No two writes in flight touch one block. While the last write ends inside a block, the next one must wait for it,
//!    so when several committers are active a write ends with a filler that completes its block.
//! 2. `durable` only advances over a contiguous prefix of completed writes. A long range is written in several pieces, so
//!    it may lie inside a record; `whole`, which records claim and callers see, is the end of a record at or below it.
//! 3. No write to a segment begins before the segment before it is durable wholly. So a segment's valid header proves
//!    the segment before, and a restart trusts that one's footer without looking at its records. It costs one wait for
//!    the device a segment.
//! 4. Nobody sleeps while a slot is free and bytes that he waits for are not handed to the device, unless somebody has been
//!    woken to write them: every change of that condition (a write begun with more left over, a write ended, a chosen
//!    one who finds nothing to do) wakes one sleeper whose bytes are not. With many committers a second slot counts as
//!    free only for a long range, see below.
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
use gannet_base::sync::{MutexGuard, park, unpark_one};
use gannet_io::{AlignedBuffer, Class, Durability};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Most bytes of one write.
pub(crate) const WRITE_MAX: u64 = 512 << 10;
/// Bytes copied out of the ring under one hold of the mutex.
const COPY_MAX: usize = 64 << 10;
/// Bytes that are worth a write beside another one when many commit.
const OVERLAP_MIN: u64 = 64 << 10;
/// Writes that go on ending at block boundaries after committers were last seen waiting for each other.
const CROWD: u32 = 64;

const WAITING: u32 = 0;
const COVERED: u32 = 1;
const LEAD: u32 = 2;
const FAILED: u32 = 3;

/// Somebody asleep until `lsn` is durable, or until it is his turn to write.
#[derive(Debug)]
struct Waiter {
    lsn: u64,
    state: AtomicU32,
}

impl Waiter {
    fn key(&self) -> usize {
        std::ptr::from_ref(&self.state) as usize
    }

    fn wait(&self) -> u32 {
        loop {
            let state = self.state.load(Acquire);
            if state != WAITING {
                return state;
            }
            park(self.key(), || self.state.load(Acquire) == WAITING, None);
        }
    }

    fn wake(&self) {
        unpark_one(self.key());
    }
}

/// A write at the device.
#[derive(Debug)]
struct Flight {
    to: u64,
    /// It ends where a record ends.
    whole: bool,
    done: bool,
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
    waiters: Vec<Arc<Waiter>>,
    poisoned: Option<String>,
    /// Writes left that end at a block boundary.
    crowd: u32,
    /// Sleepers woken to write who have not begun.
    chosen: usize,
    /// How many wait for commits at one time, from what completed writes saw; falls slowly.
    committers: usize,
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
            waiters: Vec::new(),
            poisoned: None,
            crowd: 0,
            chosen: 0,
            committers: 0,
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
        self.poison(cause.to_string()).iter().for_each(|waiter| waiter.wake());
    }

    fn poison(&mut self, cause: String) -> Vec<Arc<Waiter>> {
        self.poisoned.get_or_insert(cause);
        self.waiters.drain(..).inspect(|waiter| waiter.state.store(FAILED, Release)).collect()
    }

    /// Whether a write of bytes not submitted yet, of which the last is below `end`, may start now.
    fn may_start(&self, end: u64) -> bool {
        let idle = self.flights.iter().all(|flight| flight.done);
        let block_is_free =
            self.submitted.is_multiple_of(BLOCK) || self.flights.back().is_none_or(|flight| flight.done);
        let segment_is_open =
            !self.submitted.is_multiple_of(self.segment_size) || self.durable == self.submitted;
        let worth_it = idle || !self.is_crowded() || end - self.submitted >= OVERLAP_MIN;
        block_is_free && segment_is_open && worth_it && !self.buffers.is_empty()
    }

    /// Whether so many commit that writes side by side only make the groups smaller.
    fn is_crowded(&self) -> bool {
        self.committers > 2 * self.max_in_flight
    }

    /// Whether somebody woken to write will take along what is appended now.
    fn is_led(&self) -> bool {
        self.chosen > 0 && (self.is_crowded() || self.buffers.len() <= self.chosen)
    }

    /// A sleeper who should write now, if there is one.
    fn next_leader(&mut self, end: u64) -> Option<Arc<Waiter>> {
        if !self.may_start(end) || self.is_led() {
            return None;
        }
        let index = self.waiters.iter().position(|waiter| waiter.lsn > self.submitted)?;
        let leader = self.waiters.remove(index);
        leader.state.store(LEAD, Release);
        self.chosen += 1;
        Some(leader)
    }

    /// Ends the write up to `to`. Returns whom to wake, in that order.
    fn complete(&mut self, to: u64, end: u64) -> Vec<Arc<Waiter>> {
        let committing = self.waiters.len() + self.max_in_flight - self.buffers.len() + 1;
        self.committers = committing.max(self.committers - self.committers / 8);
        let flight = self.flights.iter_mut().find(|flight| flight.to == to).expect("the write is in flight");
        flight.done = true;
        while self.flights.front().is_some_and(|flight| flight.done) {
            let flight = self.flights.pop_front().expect("looked at");
            self.durable = flight.to;
            if flight.whole {
                self.whole = flight.to;
            }
        }
        while self.marks.front().is_some_and(|&mark| mark <= self.durable) {
            self.whole = self.whole.max(self.marks.pop_front().expect("looked at"));
        }
        // Woken last: those covered may append their next group first, and ride along.
        let leader = self.next_leader(end);
        let mut woken: Vec<_> = Vec::new();
        let durable = self.durable;
        self.waiters.retain(|waiter| {
            let covered = waiter.lsn <= durable;
            if covered {
                waiter.state.store(COVERED, Release);
                woken.push(Arc::clone(waiter));
            }
            !covered
        });
        woken.extend(leader);
        woken
    }
}

impl Inner {
    /// Waits until the log is durable up to `target`, writing what is missing when a slot is free.
    pub(crate) fn flush_until(&self, target: u64) -> Result<()> {
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
            if state.flush.submitted < target && state.flush.may_start(end) && !state.flush.is_led() {
                self.write_range(state);
                chosen = false;
                continue;
            }
            // Others may have relied on the chosen one, who has nothing to write any more.
            let heir = if chosen { state.flush.next_leader(end) } else { None };
            let mut waiter = None;
            if state.flush.durable < target {
                state.flush.crowd = CROWD;
                let entry = Arc::new(Waiter { lsn: target, state: AtomicU32::new(WAITING) });
                state.flush.waiters.push(Arc::clone(&entry));
                waiter = Some(entry);
            }
            drop(state);
            if let Some(heir) = heir {
                heir.wake();
            }
            match waiter.map(|waiter| waiter.wait()) {
                None | Some(COVERED) => return Ok(()),
                outcome => chosen = outcome == Some(LEAD),
            }
        }
    }

    /// Writes one range from the first byte not submitted. Called when a write may start.
    fn write_range<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        let from = state.flush.submitted & !(BLOCK - 1);
        let limit = state.segment_end(from + 1).min(from + self.write_max);
        if state.flush.crowd > 0 {
            state.flush.crowd -= 1;
            if state.end < limit && state.flush.max_in_flight > 1 && !state.flush.is_crowded() {
                state.fill_block();
                self.end.store(state.end, Release);
            }
        }
        let to = state.end.min(limit);
        let mut buffer = state.flush.buffers.pop().expect("a slot is free");
        let whole = to == state.end;
        state.flush.flights.push_back(Flight { to, whole, done: false });
        state.flush.submitted = to;
        let end = state.end;
        let leader = state.flush.next_leader(end);
        let len = (to - from) as usize;
        let padded = len.next_multiple_of(BLOCK as usize);
        for at in (0..len).step_by(COPY_MAX) {
            if at > 0 {
                drop(state);
                state = self.state.lock();
            }
            state.ring.get(from + at as u64, &mut buffer[at..len.min(at + COPY_MAX)]);
        }
        drop(state);
        if let Some(leader) = leader {
            leader.wake();
        }
        buffer[len..padded].fill(0);
        let result = self.write_block(from, &buffer[..padded]);
        let mut state = self.state.lock();
        state.flush.buffers.push(buffer);
        let woken = match result {
            Err(error) => state.flush.poison(error.to_string()),
            Ok(()) if state.flush.poisoned.is_some() => Vec::new(),
            Ok(()) => {
                let end = state.end;
                state.flush.complete(to, end)
            }
        };
        self.durable.store(state.flush.durable, Release);
        self.durable_records.fetch_max(state.flush.whole, AcqRel);
        drop(state);
        woken.iter().for_each(|waiter| waiter.wake());
    }

    fn write_block(&self, from: u64, bytes: &[u8]) -> Result<()> {
        let file = self.segments.file(from / self.segments.size)?;
        Ok(file.write_at(Class::Commit, from % self.segments.size, bytes, Durability::Durable)?)
    }

    /// The flusher's life: nothing stays unflushed much longer than half of `max_delay` plus the device's time.
    fn run_flusher(&self, max_delay: std::time::Duration) {
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
            if self.flush_until(end).is_err() {
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
    pub(crate) fn start(inner: &Arc<Inner>, max_delay: std::time::Duration) -> Self {
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
