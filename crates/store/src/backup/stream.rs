//! A stream that a backup goes to: written by a thread of its own, for whoever reads it may take as long as he likes.
//!
//! # Invariants
//! 1. Nobody but that thread waits for the stream's reader, but for a slot (`slot`), and at the end.
//! 2. There are never more frames on their way than slots, which the memory for them was charged for.

use super::slot::{Lane, Slot, Slots};
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
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

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

impl Slots for (Mutex<State>, Condvar) {
    fn take(&self, lane: Lane) -> Result<bool> {
        let mut state = self.0.lock();
        check(&state)?;
        let free = &mut state.free[lane as usize];
        let is_there = *free > 0;
        *free -= usize::from(is_there);
        Ok(is_there)
    }

    fn wait(&self, lane: Lane) -> Result<bool> {
        let mut state = self.0.lock();
        check(&state)?;
        if state.free[lane as usize] == 0 {
            self.1.wait_for(&mut state, LOOK_EVERY);
        }
        Ok(state.free[lane as usize] > 0)
    }

    fn give_back(&self, lane: Lane) {
        self.0.lock().free[lane as usize] += 1;
        self.1.notify_all();
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

    /// Slots for its frames.
    pub(super) fn slots(&self) -> Arc<dyn Slots> {
        Arc::clone(&self.shared) as _
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
