//! Ctrl-C: ends the statement that runs, and only that.
//!
//! # Guarantees
//! 1. A statement is cancelled by a signal that comes while it runs, from [`Signals::during`]'s first moment, and no later one is: the
//!    canceller runs under the lock which the statement's end takes.
//! 2. A signal while nothing runs is kept for [`Signals::take`].

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A statement that did not hear the first request, as it was only beginning, is asked again after this.
const AGAIN: Duration = Duration::from_millis(100);

/// Ends the running statement.
pub(super) type Cancel = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Shared {
    pressed: AtomicBool,
    terminated: Arc<AtomicBool>,
    running: Mutex<Option<Cancel>>,
}

/// Signals of this process.
#[derive(Clone, Default)]
pub(super) struct Signals(Arc<Shared>);

impl Signals {
    /// Begins to listen. In a conversation SIGTERM ends the process as ever.
    pub(super) fn listen(conversation: bool) -> Result<Self> {
        let signals = Signals::default();
        let (mut read, write) = UnixStream::pair().context("cannot listen for signals")?;
        let registered = write.try_clone().and_then(|write| pipe::register(SIGINT, write));
        registered.context("cannot listen for signals")?;
        if !conversation {
            flag::register(SIGTERM, Arc::clone(&signals.0.terminated))
                .and_then(|_| pipe::register(SIGTERM, write))
                .context("cannot listen for signals")?;
        }
        let shared = Arc::clone(&signals.0);
        // Not joined: it waits for signals until the process ends.
        std::thread::Builder::new()
            .name("gannet-signals".into())
            .spawn(move || {
                while read.read(&mut [0; 64]).is_ok_and(|count| count > 0) {
                    shared.signalled();
                    drain(&mut read);
                }
            })
            .context("cannot listen for signals")?;
        Ok(signals)
    }

    /// Does work that `cancel` ends.
    pub(super) fn during<T>(&self, cancel: Cancel, work: impl FnOnce() -> T) -> T {
        *self.running() = Some(cancel);
        let result = work();
        *self.running() = None;
        self.0.pressed.store(false, Ordering::SeqCst);
        result
    }

    /// Whether Ctrl-C came while nothing ran; forgets it.
    pub(super) fn take(&self) -> bool {
        self.0.pressed.swap(false, Ordering::SeqCst) || self.is_terminated()
    }

    /// Whether Ctrl-C came since the work began.
    pub(super) fn is_pressed(&self) -> bool {
        self.0.pressed.load(Ordering::SeqCst) || self.is_terminated()
    }

    /// Whether the process is to end.
    pub(super) fn is_terminated(&self) -> bool {
        self.0.terminated.load(Ordering::SeqCst)
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Cancel>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn signalled(&self) {
        self.pressed.store(true, Ordering::SeqCst);
        loop {
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            match &*running {
                Some(cancel) if self.pressed.load(Ordering::SeqCst) => cancel(),
                _ => return,
            }
            drop(running);
            std::thread::sleep(AGAIN);
        }
    }
}

/// Takes out what came while the statement was ended: it was meant for the same one.
fn drain(read: &mut UnixStream) {
    if read.set_nonblocking(true).is_ok() {
        loop {
            match read.read(&mut [0; 64]) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        // It was a blocking one a moment ago.
        let _ = read.set_nonblocking(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_running_statement_is_cancelled_until_it_ends() {
        let signals = Signals::default();
        let shared = Arc::clone(&signals.0);
        let (sender, receiver) = mpsc::channel();
        let thread = signals.during(
            Arc::new(move || {
                let _ = sender.send(());
            }),
            || {
                let thread = std::thread::spawn(move || shared.signalled());
                // Asked at least twice, as one that does not hear.
                receiver.recv().unwrap();
                receiver.recv().unwrap();
                assert!(signals.is_pressed());
                thread
            },
        );
        thread.join().unwrap();
        assert!(!signals.take());
        signals.0.signalled();
        assert!(signals.take() && !signals.take());
    }
}
