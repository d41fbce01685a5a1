//! One thread that runs what is asked of a store.
//!
//! # Invariants
//! 1. The thread ends when the last disk, file and queue that use it are gone; nothing that runs on it keeps it.
//! 2. Whoever waits for something that runs there waits until it ends, its time is over, or he has given up. What he no longer waits for is
//!    ended, too.

use crate::Cancelled;
use gannet_base::thread::{self, JoinHandle};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// How often it is looked whether somebody has given up.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Threads for calls that block, as those of the local file system do.
const BLOCKING: usize = 8;

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
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(BLOCKING).build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let thread = thread::spawn("gannet-object", move || {
            // Nice only: connections of a thread that never runs would be given up by the other side.
            thread::step_back();
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        });
        Ok(Runtime { handle, end: Some(end), thread: Some(thread) })
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
        let cancelled = Cancelled::clone(cancelled);
        self.wait(async move { unless_cancelled(&cancelled, work).await })
    }

    /// Runs something that is to be done although somebody has given up, but for no longer than `limit`.
    pub(crate) fn run_within<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Ended> {
        self.wait(async move { tokio::time::timeout(limit, work).await.map_err(|_| Ended::Overdue) })
    }

    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Ended>> + Send + 'static,
    ) -> Result<T, Ended> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            // Nobody listens any more: then nobody misses it.
            let _ = sender.send(work.await);
        });
        // The sender goes with the work, also where that panics.
        receiver.recv().unwrap_or(Err(Ended::Overdue))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
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
        assert_eq!(runtime.run_within(Duration::from_millis(20), forever()), Err(Ended::Overdue));
        assert_eq!(runtime.run_within(Duration::from_secs(20), async { 8 }), Ok(8));
    }
}
