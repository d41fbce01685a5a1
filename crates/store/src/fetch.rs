//! Brings many pages into memory in the order of the file, in the background, while others use the device, too.
//!
//! # What it guarantees
//! 1. It is a hint: a page that it has not brought is read by whoever needs it.
//! 2. Each of its threads has one batch at the device while the one before arrives. Beside others who read pages batches are short:
//!    whoever waits for a page is not to wait for a long batch of ours first.
//! 3. The system zeroes memory when it is first touched, which takes milliseconds for each 2 MiB of it: a thread of its own sees to
//!    that ahead of the others, whose batches would lie at the device meanwhile, ended and taken by nobody.
//! 4. Its threads have ended when [`Fetch::end`] comes back, or the [`Fetch`] is gone.

use crate::core::Core;
use crate::pool::{self, Access, BACKGROUND_QUEUES};
use crate::{Error, Result};
use gannet_base::PageId;
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread::{self, JoinHandle, Panicked};
use gannet_io::Class;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// More than one, as who takes what has ended leaves the device without work for a moment.
const THREADS: usize = BACKGROUND_QUEUES;
/// Pages that a thread asks for at one time, and while somebody else reads pages.
const AT_ONCE: usize = 256;
const BESIDE_OTHERS: usize = 16;
/// How long others count as reading pages after the last one.
const OTHERS_MEMORY: Duration = Duration::from_millis(50);

/// Which pages, and when.
pub(crate) trait Source: Send + Sync {
    /// The next of the pages, in ascending order, not more than `most`. While it is not time for them it waits, if it `may_wait`,
    /// and gives none otherwise. `None` when there are no more, or nobody wants them any more.
    fn next(&self, most: usize, may_wait: bool) -> Option<Vec<PageId>>;

    /// Nobody wants them any more: `next` is not to wait.
    fn stop(&self);

    /// The device has brought one of them.
    fn arrived(&self, page: PageId);
}

/// The calling thread gets out of others' way from now on: of the processor's, and of those who read pages.
pub(crate) fn step_back() {
    thread::step_back();
    pool::reads::in_background();
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Fetch<S: Source + 'static> {
    pub(crate) source: Arc<S>,
    threads: Vec<JoinHandle<()>>,
    memory: Arc<Memory>,
    populating: Option<JoinHandle<()>>,
}

/// When more memory is to be taken from the system.
#[derive(Debug, Default)]
struct Memory {
    state: Mutex<MemoryState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct MemoryState {
    used: bool,
    over: bool,
}

impl Memory {
    /// Some was used.
    fn used(&self) {
        self.state.lock().used = true;
        self.changed.notify_one();
    }

    /// No more will be used.
    fn over(&self) {
        self.state.lock().over = true;
        self.changed.notify_one();
    }

    /// Waits until some was used; false when no more will be.
    fn await_use(&self) -> bool {
        let mut state = self.state.lock();
        while !state.used && !state.over {
            self.changed.wait(&mut state);
        }
        state.used = false;
        !state.over
    }
}

impl<S: Source> Fetch<S> {
    /// Begins. Its threads are as nice as the one that starts them.
    pub(crate) fn start(core: &Arc<Core>, source: S) -> Self {
        let source = Arc::new(source);
        let mut fetch = Fetch { source, threads: Vec::new(), memory: Arc::default(), populating: None };
        let (populated, used) = (Arc::clone(core), Arc::clone(&fetch.memory));
        // Without as many threads as it would have, or without any, whoever needs a page reads it himself.
        fetch.populating = thread::try_spawn("gannet-populate", move || {
            while used.await_use() {
                populated.pool.populate_ahead();
            }
        })
        .ok();
        for number in 0..THREADS {
            let (core, source, memory) =
                (Arc::clone(core), Arc::clone(&fetch.source), Arc::clone(&fetch.memory));
            let body = move || run(&core, &*source, &memory, number);
            fetch.threads.extend(thread::try_spawn("gannet-fetch", body).ok());
        }
        fetch
    }

    /// Waits until its source has no more. Fails when a thread has ended by a panic.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.join()
    }

    /// Ends it. Fails when a thread has ended by a panic.
    pub(crate) fn end(self) -> Result<()> {
        self.source.stop();
        self.finish()
    }

    fn join(&mut self) -> Result<()> {
        let mut ends: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        self.memory.over();
        ends.extend(self.populating.take().map(JoinHandle::join));
        let ended: std::result::Result<(), Panicked> = ends.into_iter().collect();
        ended.map_err(|panic| Error::Poisoned(panic.to_string()))
    }
}

impl<S: Source> Drop for Fetch<S> {
    fn drop(&mut self) {
        // Only where something else has failed already.
        self.source.stop();
        let _ = self.join();
    }
}

fn run(core: &Arc<Core>, source: &dyn Source, memory: &Memory, number: usize) {
    pool::reads::in_background();
    let (pool, volume) = (&core.pool, &core.volume);
    // By one queue: whoever waits for a page reaps only that page's.
    let queue = volume.background_queue(number);
    let few = (pool.active_frames() / 64).max(1);
    let mut missed = pool.stats.awaited.load(Ordering::Relaxed);
    let mut others: Option<Instant> = None;
    let mut under_way: Vec<PageId> = Vec::new();
    loop {
        let (misses, now) = (pool.stats.awaited.load(Ordering::Relaxed), clock::now());
        if misses != missed {
            (missed, others) = (misses, Some(now));
        }
        let beside = others.is_some_and(|last| now - last < OTHERS_MEMORY);
        // As long as something is under way it is to be reaped: the device gets no more from this queue meanwhile.
        let most = few.min(if beside { BESIDE_OTHERS } else { AT_ONCE });
        let next = source.next(most, under_way.is_empty());
        if let Some(next) = &next {
            pool.prefetch_by(queue, volume, next, Class::Prefetch, Access::Normal);
            memory.used();
        }
        // While the device reads these, those before them arrive.
        for page in std::mem::take(&mut under_way) {
            pool.await_prefetch(volume, page);
            source.arrived(page);
        }
        let Some(next) = next else { return };
        under_way = next;
    }
}
