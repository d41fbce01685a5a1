//! A stream that a backup goes to: written by a thread of its own, for whoever reads it may take as long as he likes.
//!
//! # Invariants
//! 1. Nobody but that thread waits for the stream's reader with anything in hand that others may wait for, such as a permit. Who has a frame to
//!    give has a [`Slot`] for it, so giving it on waits for nothing; and nobody who has a slot for pages waits for a permit: a thread that finds no processor would
//!    keep it from one that does.
//! 2. There are never more frames on their way than slots, which the memory for them was charged for.
//! 3. The log has slots of its own: it is not to be late because of pages.

use crate::jobs::no_thread;
use crate::work::WorkMemory;
use crate::{Error, Result};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread::{self, JoinHandle};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Slots for frames of pages, and of the log.
const PAGE_SLOTS: usize = 4;
const LOG_SLOTS: usize = 1;
/// All of them.
pub(super) const SLOTS: usize = PAGE_SLOTS + LOG_SLOTS;
/// How often who waits for a slot looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a frame holds, as far as slots are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Pages,
    Log,
}

#[derive(Debug)]
struct State {
    frames: VecDeque<(Vec<u8>, Option<Slot>)>,
    /// Slots that nobody has, by lane.
    free: [usize; 2],
    /// The thread is in the middle of writing.
    writing: bool,
    /// No more frames come.
    over: bool,
    failure: Option<String>,
}

/// What writers and the thread share.
type Shared = Arc<(Mutex<State>, Condvar)>;

/// The right to give one frame on.
pub(crate) struct Slot {
    shared: Shared,
    lane: Lane,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("lane", &self.lane).finish_non_exhaustive()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.0.lock().free[self.lane as usize] += 1;
        self.shared.1.notify_all();
    }
}

/// See the module's head.
pub(super) struct Stream {
    shared: Shared,
    thread: Option<JoinHandle<()>>,
    /// Of the frames on their way.
    pub(super) memory: Option<WorkMemory>,
}

impl Stream {
    pub(super) fn new(to: Box<dyn Write + Send>) -> Result<Self> {
        let state = State {
            frames: VecDeque::new(),
            free: [PAGE_SLOTS, LOG_SLOTS],
            writing: false,
            over: false,
            failure: None,
        };
        let shared: Shared = Arc::new((Mutex::new(state), Condvar::new()));
        let own = Arc::clone(&shared);
        let thread =
            thread::try_spawn("gannet-backup-stream", move || write(&own, to)).map_err(|_| no_thread())?;
        Ok(Stream { shared, thread: Some(thread), memory: None })
    }

    /// Waits for a slot, as long as `wanted` does not fail.
    pub(super) fn slot(&self, lane: Lane, wanted: &dyn Fn() -> Result<()>) -> Result<Slot> {
        loop {
            if let Some(slot) = self.try_slot(lane)? {
                return Ok(slot);
            }
            self.await_slot(lane, wanted)?;
        }
    }

    /// Waits until there is a slot, without taking it, as long as `wanted` does not fail.
    pub(super) fn await_slot(&self, lane: Lane, wanted: &dyn Fn() -> Result<()>) -> Result<()> {
        loop {
            wanted()?;
            let mut state = self.shared.0.lock();
            check(&state)?;
            if state.free[lane as usize] > 0 {
                return Ok(());
            }
            self.shared.1.wait_for(&mut state, LOOK_EVERY);
        }
    }

    /// A slot, if there is one.
    pub(super) fn try_slot(&self, lane: Lane) -> Result<Option<Slot>> {
        let mut state = self.shared.0.lock();
        check(&state)?;
        let free = &mut state.free[lane as usize];
        if *free == 0 {
            return Ok(None);
        }
        *free -= 1;
        drop(state);
        Ok(Some(Slot { shared: Arc::clone(&self.shared), lane }))
    }

    /// Gives a frame on. Without a slot: the first one and the last one.
    pub(super) fn put(&self, frame: Vec<u8>, slot: Option<Slot>) -> Result<()> {
        let mut state = self.shared.0.lock();
        check(&state)?;
        state.frames.push_back((frame, slot));
        drop(state);
        self.shared.1.notify_all();
        Ok(())
    }

    /// Waits until everything was taken, as long as `wanted` does not fail.
    pub(super) fn finish(&mut self, wanted: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.shared.0.lock().over = true;
        self.shared.1.notify_all();
        loop {
            wanted()?;
            let mut state = self.shared.0.lock();
            check(&state)?;
            if state.frames.is_empty() && !state.writing {
                drop(state);
                return self.join();
            }
            self.shared.1.wait_for(&mut state, LOOK_EVERY);
        }
    }

    fn join(&mut self) -> Result<()> {
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|panic| Error::Backup(panic.to_string()))?;
        }
        check(&self.shared.0.lock())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.shared.0.lock();
        state.over = true;
        let dropped = std::mem::take(&mut state.frames);
        let is_stuck = state.writing;
        drop(state);
        drop(dropped);
        self.shared.1.notify_all();
        // A reader that takes nothing keeps the thread where it is, until one of them ends; nobody waits for that.
        if !is_stuck {
            let _ = self.join();
        }
    }
}

fn check(state: &State) -> Result<()> {
    match &state.failure {
        Some(failure) => Err(Error::Backup(failure.clone())),
        None => Ok(()),
    }
}

/// The body of the thread.
fn write(shared: &Shared, mut to: Box<dyn Write + Send>) {
    loop {
        let mut state = shared.0.lock();
        let frame = loop {
            if let Some(frame) = state.frames.pop_front() {
                break Some(frame);
            }
            if state.over {
                break None;
            }
            shared.1.wait(&mut state);
        };
        state.writing = true;
        drop(state);
        let done = match &frame {
            Some((bytes, _slot)) => to.write_all(bytes),
            None => to.flush(),
        };
        let (is_last, failed) = (frame.is_none(), done.is_err());
        // Its slot is free before anybody is told.
        drop(frame);
        let mut state = shared.0.lock();
        state.writing = false;
        let mut dropped = VecDeque::new();
        if let Err(error) = done {
            state.failure.get_or_insert(format!("the backup's destination takes no more: {error}"));
            dropped = std::mem::take(&mut state.frames);
        }
        drop(state);
        // Slots that go take the lock.
        drop(dropped);
        shared.1.notify_all();
        if is_last || failed {
            return;
        }
    }
}
