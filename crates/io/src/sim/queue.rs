//! Requests in flight on the simulated disk.
//!
//! A request ends at a time drawn when it starts. Whoever waits sleeps until the earliest of these times, or until
//! somebody else ran a completion, and then runs what is due. With the power off everything is due at once.
#![expect(unsafe_code, reason = "requests name memory by address; the contract of `Queue::submit` guards it")]

use super::Shared;
use super::file::{SimFile, is_aligned};
use super::inode::WriteKind;
use super::state::{Started, State};
use crate::stats::Operation;
use crate::{Completion, Direction, Error, ErrorKind, IoSlice, Queue, Request, Result, SECTOR};
use gannet_base::clock::{self, Instant};
use gannet_base::sim;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A queue of a [`super::SimDisk`].
pub struct SimQueue {
    shared: Arc<Shared>,
    number: u64,
}

/// The requests of one queue; they live with the disk, which can cut the power.
pub(super) struct QueueState {
    depth: usize,
    /// Requests the device works on, by the time they end.
    running: BTreeMap<(u64, u64), Op>,
    /// Requests beyond the queue's depth.
    backlog: VecDeque<Op>,
    /// Requests taken out whose completion has not returned.
    completing: usize,
}

struct Op {
    id: u64,
    latency: Duration,
    request: Request,
    completion: Arc<dyn Completion>,
    submitted: Instant,
    /// The bytes of a write as they were submitted.
    written: Option<Arc<[u8]>>,
}

impl SimQueue {
    pub(super) fn new(shared: Arc<Shared>, depth: usize) -> Self {
        let mut state = shared.state.lock();
        let number = state.number();
        let depth = depth.max(1);
        state.queues.insert(
            number,
            QueueState { depth, running: BTreeMap::new(), backlog: VecDeque::new(), completing: 0 },
        );
        drop(state);
        SimQueue { shared, number }
    }

    /// Starts a request on the device, or queues it behind others. On an error it has ended already.
    ///
    /// # Safety
    /// As [`Queue::submit`].
    unsafe fn start(&self, request: Request, completion: &Arc<dyn Completion>) {
        let started = self.check(&request).and_then(|file| {
            let mut state = self.shared.state.lock();
            let (started, written) = match write_kind(&request) {
                None => (state.begin_read(&file.handle, request.offset, request.len())?, None),
                Some(kind) => {
                    // SAFETY: until the completion nobody writes this memory.
                    let data: Arc<[u8]> = unsafe { gather(&request.slices) }.into();
                    let started = state.begin_write(&file.handle, request.offset, Arc::clone(&data), kind)?;
                    (started, Some(data))
                }
            };
            Ok((state, started, written))
        });
        match started {
            Ok((mut state, started, written)) => {
                let Started { id, mut latency, split } = started;
                if split > 0 {
                    latency *= 2;
                }
                let (submitted, completion) = (clock::now(), Arc::clone(completion));
                self.state(&mut state).enqueue(Op { id, latency, request, completion, submitted, written });
                state.announce();
            }
            Err(error) => {
                self.conclude(&request, completion, Duration::ZERO, Err(error));
                // Somebody else may wait for it already.
                self.shared.state.lock().announce();
            }
        }
    }

    fn check<'a>(&self, request: &'a Request) -> Result<&'a SimFile> {
        let invalid = |detail: &str| {
            Err(Error::new(ErrorKind::Invalid, "transfer", request.file.path(), detail.to_owned()))
        };
        let Some(file) = request.file.as_any().downcast_ref::<SimFile>() else {
            return invalid("the file is not of a simulated disk");
        };
        if !Arc::ptr_eq(&file.shared, &self.shared) {
            return invalid("the file is of another disk");
        }
        if request.slices.len() > 1024 {
            return invalid("more than 1024 slices");
        }
        if request.slices.iter().any(|s| !is_aligned(s.address) || !s.len.is_multiple_of(SECTOR)) {
            return invalid("the address or length of a slice is not aligned");
        }
        Ok(file)
    }

    fn state<'a>(&self, state: &'a mut State) -> &'a mut QueueState {
        state.queues.get_mut(&self.number).expect("a queue is known as long as it lives")
    }

    /// Runs the completions of every request that is due.
    fn run_due(&self) {
        loop {
            let mut state = self.shared.state.lock();
            let now = if state.powered_off { u64::MAX } else { clock::now().as_nanos() };
            let Some(op) = self.state(&mut state).take_due(now) else { return };
            drop(state);
            self.finish(op);
            let mut state = self.shared.state.lock();
            self.state(&mut state).completing -= 1;
            state.announce();
        }
    }

    fn finish(&self, op: Op) {
        let file = op.request.file.as_any().downcast_ref::<SimFile>().expect("checked when submitted");
        let result = match &op.written {
            Some(data) => {
                // SAFETY: the completion has not been called, so the memory is valid and nobody writes it.
                let unchanged = unsafe { gather(&op.request.slices) } == **data;
                assert!(
                    unchanged,
                    "the memory of a write in flight to {:?} at {} changed",
                    file.handle.path, op.request.offset,
                );
                self.shared.state.lock().finish_write(op.id, &file.handle)
            }
            None => {
                let mut bytes = vec![0; op.request.len()];
                let offset = op.request.offset;
                let result = self.shared.state.lock().finish_read(op.id, &file.handle, offset, &mut bytes);
                if result.is_ok() {
                    // SAFETY: the completion has not been called, so the memory is valid and nobody uses it.
                    unsafe { scatter(&op.request.slices, &bytes) };
                }
                result
            }
        };
        self.conclude(&op.request, &op.completion, op.submitted.elapsed(), result);
    }

    fn conclude(
        &self,
        request: &Request,
        completion: &Arc<dyn Completion>,
        latency: Duration,
        result: Result<()>,
    ) {
        let operation = match request.direction {
            Direction::Read => Operation::Read,
            _ => Operation::Write,
        };
        self.shared.stats.record(request.class, operation, request.len() as u64, latency, result.is_ok());
        completion.complete(request.token, result);
    }
}

fn write_kind(request: &Request) -> Option<WriteKind> {
    match request.direction {
        Direction::Read => None,
        Direction::Write(durability) => Some(WriteKind { durability, atomic: false }),
        Direction::WriteAtomic(durability) => Some(WriteKind { durability, atomic: true }),
    }
}

impl QueueState {
    fn enqueue(&mut self, op: Op) {
        if self.running.len() < self.depth {
            self.run(op);
        } else {
            self.backlog.push_back(op);
        }
    }

    fn run(&mut self, op: Op) {
        // Outside a simulation a request takes no time.
        let due = if sim::active() { (clock::now() + op.latency).as_nanos() } else { 0 };
        self.running.insert((due, op.id), op);
    }

    /// Takes out the earliest request that has ended by `now`, and lets one that waited begin.
    fn take_due(&mut self, now: u64) -> Option<Op> {
        let first = self.running.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let op = first.remove();
        self.completing += 1;
        if let Some(next) = self.backlog.pop_front() {
            self.run(next);
        }
        Some(op)
    }
}

/// # Safety
/// The memory is valid and nobody writes it.
unsafe fn gather(slices: &[IoSlice]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(slices.iter().map(|s| s.len).sum());
    for slice in slices.iter().filter(|s| s.len > 0) {
        // SAFETY: promised by the caller.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(slice.address, slice.len) });
    }
    bytes
}

/// # Safety
/// The memory is valid, as long as `bytes` in total, and nobody uses it.
unsafe fn scatter(slices: &[IoSlice], mut bytes: &[u8]) {
    for slice in slices {
        let (piece, rest) = bytes.split_at(slice.len);
        // SAFETY: promised by the caller; `piece` is our own memory, so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), slice.address, piece.len()) };
        bytes = rest;
    }
}

impl Queue for SimQueue {
    unsafe fn submit(&self, requests: Vec<Request>, completion: &Arc<dyn Completion>) {
        for request in requests {
            // SAFETY: promised by the caller.
            unsafe { self.start(request, completion) };
        }
        let mut state = self.shared.state.lock();
        let one_in = state.settings.complete_in_submit_one_in;
        let at_once = !sim::active() || one_in > 0 && state.random.one_in(one_in);
        drop(state);
        if at_once {
            self.run_due();
        }
    }

    fn wait_until(&self, done: &mut dyn FnMut() -> bool) {
        loop {
            // Taken first: whatever happens from here on, a power cut above all, is not slept through.
            let seen = self.shared.state.lock().epoch;
            self.run_due();
            if done() {
                return;
            }
            let mut state = self.shared.state.lock();
            if state.epoch != seen {
                continue;
            }
            match self.state(&mut state).running.first_key_value().map(|(key, _)| key.0) {
                Some(due) => {
                    let now = clock::now().as_nanos();
                    if due > now {
                        self.shared.changed.wait_for(&mut state, Duration::from_nanos(due - now));
                    }
                }
                // Somebody else is inside the completion that this thread waits for, or will submit it.
                None => self.shared.changed.wait(&mut state),
            }
        }
    }

    fn poll(&self) {
        self.run_due();
    }

    fn in_flight(&self) -> usize {
        let mut state = self.shared.state.lock();
        let queue = self.state(&mut state);
        queue.running.len() + queue.backlog.len() + queue.completing
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        // Every request ends with its completion, also when nobody waited; only a panic leaves them out.
        while !std::thread::panicking() {
            let Some(op) = self.state(&mut self.shared.state.lock()).take_due(u64::MAX) else { break };
            self.finish(op);
        }
        // The operations are dropped outside the lock: they hold files.
        let removed = self.shared.state.lock().queues.remove(&self.number);
        drop(removed);
    }
}

impl fmt::Debug for SimQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimQueue({})", self.number)
    }
}
