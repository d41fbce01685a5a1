//! The queue over plain `preadv`/`pwritev` on a small pool of threads, for systems without `io_uring`.
//!
//! # Invariants
//! 1. A pool thread runs a job's system calls and its completion, then announces it; waiting threads only listen.
//! 2. A queue has a pool thread from its beginning on, and never more than `threads_max`. Whoever takes a job and leaves nobody idle behind
//!    starts the next one, which takes the job after. So it is never a submitter who starts one: a thread has the priority of whoever
//!    started it, and would keep that of a job that stands by, in front of everybody who waits for the page. All of them have that of
//!    the thread that made the queue.
//! 3. Where the system has no thread to give, those that are there do the work; after a while it is asked again.
//! 4. A job that may go to the device does not wait for a thread beside an idle one: whoever takes a job wakes one for the next, which
//!    may only lately have become admissible.
//! 5. The pool ends when the queue is dropped, after the last job.
#![expect(unsafe_code, reason = "runs requests on memory that their submitters vouch for")]

use crate::admission::{Scheduler, Shared};
use crate::real::job::Job;
use crate::reaping::Reaping;
use crate::{Completion, Error, ErrorKind, Queue, Request, Result};
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread::{self, JoinHandle};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long the system is not asked for a thread again that had none to give.
const ASK_AGAIN: Duration = Duration::from_secs(1);

struct Pool {
    scheduler: Scheduler<Job>,
    /// Threads without a job, also those that have only been started and are about to look for one.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    /// The system had no thread to give, and is not asked for one before.
    ask_from: Option<Instant>,
    ending: bool,
}

struct Core {
    threads_max: usize,
    pool: Mutex<Pool>,
    work: Condvar,
    reaping: Reaping,
    outstanding: AtomicUsize,
}

pub(super) struct ThreadQueue {
    core: Arc<Core>,
}

impl ThreadQueue {
    pub(super) fn new(depth: usize, threads_max: usize, shared: &Arc<Shared>) -> Result<Self> {
        let pool = Pool {
            scheduler: Scheduler::new(depth, Arc::clone(shared)),
            idle: 0,
            threads: Vec::new(),
            ask_from: None,
            ending: false,
        };
        let core = Core {
            threads_max: threads_max.min(Scheduler::<Job>::slots(depth)).max(1),
            pool: Mutex::new(pool),
            work: Condvar::new(),
            reaping: Reaping::default(),
            outstanding: AtomicUsize::new(0),
        };
        let core = Arc::new(core);
        if !core.start_thread(&mut core.pool.lock()) {
            let way_out = "the system has none to give: allow this user, or this container, more of them";
            return Err(Error::new(ErrorKind::Device, "start", Path::new("a thread for I/O"), way_out));
        }
        Ok(ThreadQueue { core })
    }
}

impl Core {
    /// Starts a pool thread, unless there are enough or the system has none; the caller holds the pool.
    fn start_thread(self: &Arc<Self>, pool: &mut Pool) -> bool {
        if pool.threads.len() >= self.threads_max || pool.ask_from.is_some_and(|from| clock::now() < from) {
            return false;
        }
        let core = Arc::clone(self);
        let started = thread::try_spawn("gannet-io", move || core.work_on());
        let Ok(thread) = started else {
            pool.ask_from = Some(clock::now() + ASK_AGAIN);
            return false;
        };
        pool.threads.push(thread);
        pool.idle += 1;
        true
    }

    /// Sees to it that somebody is there for the next job, and takes it where it may go (invariants 2 and 4); for a pool thread
    /// that has taken one, and holds the pool.
    fn see_to_next(self: &Arc<Self>, pool: &mut Pool) {
        // Whoever ends the pool has noted whom to wait for.
        if pool.idle == 0 && !pool.ending {
            // One that is new looks for a job without being told to.
            self.start_thread(pool);
        } else if pool.idle > 0 && pool.scheduler.has_ready() {
            self.work.notify_one();
        }
    }

    /// What a pool thread does.
    fn work_on(self: &Arc<Self>) {
        let mut pool = self.pool.lock();
        pool.idle -= 1;
        loop {
            let Some((mut job, depth)) = pool.scheduler.next() else {
                if pool.ending && pool.scheduler.waiting() == 0 {
                    // Others may sleep because a class was at its cap when they looked last.
                    self.work.notify_all();
                    return;
                }
                pool.idle += 1;
                self.work.wait(&mut pool);
                pool.idle -= 1;
                continue;
            };
            self.see_to_next(&mut pool);
            drop(pool);
            job.dispatch(depth, clock::now());
            let class = job.request.class;
            let uncount = || {
                self.pool.lock().scheduler.finished(class);
                self.outstanding.fetch_sub(1, Ordering::Release)
            };
            // SAFETY: the submitter promised that the memory is valid and left alone until the completion.
            unsafe { job.run_here(uncount) };
            self.reaping.announce();
            pool = self.pool.lock();
        }
    }
}

// SAFETY: a request's completion is called after its last system call has returned.
impl Queue for ThreadQueue {
    unsafe fn submit(&self, requests: Vec<Request>, completion: &Arc<dyn Completion>) {
        let now = clock::now();
        self.core.outstanding.fetch_add(requests.len(), Ordering::Relaxed);
        let mut refused = Vec::new();
        {
            let pool = &mut *self.core.pool.lock();
            for request in requests {
                match Job::new(request, completion, now) {
                    Ok(job) => pool.scheduler.push(job.request.class, job),
                    Err(end) => refused.push(end),
                }
            }
            // These wake others where there are more jobs than idle threads.
            for _ in 0..pool.scheduler.waiting().min(pool.idle) {
                self.core.work.notify_one();
            }
        }
        if refused.is_empty() {
            return;
        }
        for (token, result) in refused {
            self.core.outstanding.fetch_sub(1, Ordering::Release);
            completion.complete(token, result);
        }
        self.core.reaping.announce();
    }

    fn wait_until(&self, done: &mut dyn FnMut() -> bool) {
        self.core.reaping.wait_announced(done);
    }

    fn poll(&self) {}

    fn in_flight(&self) -> usize {
        self.core.outstanding.load(Ordering::Acquire)
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        let threads = {
            let mut pool = self.core.pool.lock();
            pool.ending = true;
            std::mem::take(&mut pool.threads)
        };
        self.core.work.notify_all();
        for thread in threads {
            // A thread that panicked in a completion has already said so.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ThreadQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadQueue({} in flight)", self.in_flight())
    }
}

#[cfg(all(test, target_os = "linux"))]
#[path = "threads_tests.rs"]
mod tests;
