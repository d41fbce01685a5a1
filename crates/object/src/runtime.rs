//! One thread that runs what is asked of a store.
//!
//! # Invariants
//! 1. The thread ends when the last disk, file and queue that use it are gone; nothing that runs on it keeps it.
//! 2. Whoever waits for something that runs there waits until it ends, its time is over, or he has given up: he looks himself, and so is
//!    heard also where the thread hangs in a call that blocks. What he no longer waits for is ended, too.

use crate::Cancelled;
use gannet_base::clock;
use gannet_base::sync::Mutex;
use gannet_base::thread::{self, JoinHandle};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// How often it is looked whether somebody has given up.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Threads for calls that block, as those of the local file system do.
const BLOCKING: usize = 8;
/// How long the thread's end is waited for. One that hangs in a call is left alone.
const ENDED_WITHIN: Duration = Duration::from_secs(1);

/// Why something was not waited for to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Whoever asked for it has given up.
    Cancelled,
    /// It took too long, or came to an end by itself.
    Overdue,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Runtime {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    /// Ends with the thread.
    ended: Mutex<Receiver<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How long somebody waits.
#[derive(Clone, Copy)]
struct Patience<'c> {
    /// At most.
    limit: Option<Duration>,
    /// Once this says that somebody has given up, so much longer.
    cancelled: &'c dyn Fn() -> bool,
    grace: Duration,
}

impl Runtime {
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(BLOCKING).build()?;
        let handle = runtime.handle().clone();
        let (end, asked_to_end) = oneshot::channel::<()>();
        let (running, ended) = mpsc::channel();
        let thread = thread::spawn("gannet-object", move || {
            let _running = running;
            // Nice only: connections of a thread that never runs would be given up by the other side.
            thread::step_back();
            let _ = runtime.block_on(asked_to_end);
            runtime.shutdown_background();
        });
        Ok(Runtime { handle, end: Some(end), ended: Mutex::new(ended), thread: Some(thread) })
    }

    /// Runs something that nobody waits for here.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.handle.spawn(work).abort_handle()
    }

    /// Runs something, and waits for it.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        cancelled: &Cancelled,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Ended> {
        if cancelled() {
            return Err(Ended::Cancelled);
        }
        self.wait(Patience { limit: None, cancelled: &**cancelled, grace: Duration::ZERO }, work)
    }

    /// Runs something that is worth some time also for whoever has given up: for no longer than `limit`, and for `grace` after that.
    pub(crate) fn run_to_end<T: Send + 'static>(
        &self,
        limit: Duration,
        (cancelled, grace): (&dyn Fn() -> bool, Duration),
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Ended> {
        self.wait(Patience { limit: Some(limit), cancelled, grace }, work)
    }

    fn wait<T: Send + 'static>(
        &self,
        patience: Patience<'_>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Ended> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let task = self.spawn(async move {
            // Nobody listens any more: then nobody misses it.
            let _ = sender.send(work.await);
        });
        let (begin, mut cancelled_at) = (clock::now(), None);
        let why = loop {
            let left = patience.limit.map(|limit| limit.saturating_sub(begin.elapsed()));
            match receiver.recv_timeout(left.unwrap_or(LOOK_EVERY).min(LOOK_EVERY)) {
                Ok(done) => return Ok(done),
                // The sender goes with the work, also where that panics.
                Err(RecvTimeoutError::Disconnected) => break Ended::Overdue,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if (patience.cancelled)()
                && cancelled_at.get_or_insert_with(clock::now).elapsed() >= patience.grace
            {
                break Ended::Cancelled;
            }
            if left.is_some_and(|left| left.is_zero()) {
                break Ended::Overdue;
            }
        };
        task.abort();
        Err(why)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.end = None;
        let ended = self.ended.lock().recv_timeout(ENDED_WITHIN);
        if let (Err(RecvTimeoutError::Disconnected), Some(thread)) = (ended, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// What comes first: the end of the work, or that somebody gives up.
pub(crate) async fn unless_cancelled<T>(
    cancelled: &Cancelled,
    work: impl Future<Output = T>,
) -> Result<T, Ended> {
    let mut work = pin!(work);
    loop {
        if cancelled() {
            return Err(Ended::Cancelled);
        }
        if let Ok(done) = tokio::time::timeout(LOOK_EVERY, &mut work).await {
            return Ok(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_gives_up_is_heard() {
        let runtime = Runtime::new().unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        let cancelled: Cancelled = {
            let flag = Arc::clone(&flag);
            Arc::new(move || flag.load(Ordering::Relaxed))
        };
        assert_eq!(runtime.run(&cancelled, async { 7 }), Ok(7));
        flag.store(true, Ordering::Relaxed);
        let forever = std::future::pending::<()>;
        assert_eq!(runtime.run(&cancelled, forever()), Err(Ended::Cancelled));
    }

    #[test]
    fn who_gives_up_is_heard_where_the_thread_hangs_in_a_call() {
        let runtime = Runtime::new().unwrap();
        let begin = clock::now();
        let (let_go, hanging) = mpsc::channel::<()>();
        // As a call of a file system that does not answer.
        runtime.spawn(async move {
            let _ = hanging.recv();
        });
        let cancelled: Cancelled = Arc::new(move || begin.elapsed() > Duration::from_millis(200));
        assert_eq!(runtime.run(&cancelled, async { 7 }), Err(Ended::Cancelled));
        let (limit, nobody) = (Duration::from_millis(20), &|| false);
        assert_eq!(runtime.run_to_end(limit, (nobody, limit), async { 7 }), Err(Ended::Overdue));
        drop(runtime);
        // Who waited for the call would never come here.
        drop(let_go);
    }

    #[test]
    fn what_is_worth_some_time_gets_it_from_whoever_has_given_up() {
        let runtime = Runtime::new().unwrap();
        let cancelled: Cancelled = Arc::new(|| true);
        let after = |millis| async move { tokio::time::sleep(Duration::from_millis(millis)).await };
        let (limit, grace) = (Duration::from_secs(20), Duration::from_millis(500));
        assert_eq!(runtime.run(&cancelled, after(0)), Err(Ended::Cancelled));
        assert_eq!(runtime.run_to_end(limit, (&*cancelled, limit), after(100)), Ok(()));
        let begin = clock::now();
        assert_eq!(runtime.run_to_end(limit, (&*cancelled, grace), after(60_000)), Err(Ended::Cancelled));
        assert!(begin.elapsed() >= grace && begin.elapsed() < limit);
        let short = Duration::from_millis(100);
        assert_eq!(runtime.run_to_end(short, (&|| false, grace), after(60_000)), Err(Ended::Overdue));
    }
}
