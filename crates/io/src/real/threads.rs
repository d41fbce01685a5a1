//! The queue over plain `preadv`/`pwritev` on a small pool of threads, for systems without `io_uring`.
//!
//! # Invariants
//! 1. A pool thread runs a job's system calls and its completion, then announces it; waiting threads only listen.
//! 2. There are never more pool threads than `threads_max`; one is started when a job finds all of them busy.
//! 3. The pool ends when the queue is dropped, after the last job.
#![expect(unsafe_code, reason = "runs requests on memory that their submitters vouch for")]

use crate::admission::{Scheduler, Shared};
use crate::real::job::Job;
use crate::reaping::Reaping;
use crate::{Completion, Queue, Request};
use gannet_base::clock;
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread::{self, JoinHandle};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Pool {
    scheduler: Scheduler<Job>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    ending: bool,
}

struct Core {
    pool: Mutex<Pool>,
    work: Condvar,
    reaping: Reaping,
    outstanding: AtomicUsize,
}

pub(super) struct ThreadQueue {
    core: Arc<Core>,
    threads_max: usize,
}

impl ThreadQueue {
    pub(super) fn new(depth: usize, threads_max: usize, shared: &Arc<Shared>) -> Self {
        let pool = Pool {
            scheduler: Scheduler::new(depth, Arc::clone(shared)),
            idle: 0,
            threads: Vec::new(),
            ending: false,
        };
        let core = Core {
            pool: Mutex::new(pool),
            work: Condvar::new(),
            reaping: Reaping::default(),
            outstanding: AtomicUsize::new(0),
        };
        let threads_max = threads_max.min(Scheduler::<Job>::slots(depth)).max(1);
        ThreadQueue { core: Arc::new(core), threads_max }
    }

    /// Wakes or starts threads for what waits; the caller holds the pool.
    fn staff(&self, pool: &mut Pool) {
        let waiting = pool.scheduler.waiting();
        for _ in 0..waiting.min(pool.idle) {
            self.core.work.notify_one();
        }
        let missing = waiting.saturating_sub(pool.idle).min(self.threads_max - pool.threads.len());
        for _ in 0..missing {
            let core = Arc::clone(&self.core);
            pool.threads.push(thread::spawn("gannet-io", move || core.work_on()));
        }
    }
}

impl Core {
    /// What a pool thread does.
    fn work_on(&self) {
        let mut pool = self.pool.lock();
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
            self.staff(pool);
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
