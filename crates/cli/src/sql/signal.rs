//! Ctrl-C: ends the statement that runs, and only that.
//!
//! # Guarantees
//! 1. A signal while a statement runs ends that one and no later one: the canceller runs under the lock that the statement's end takes.
//! 2. A signal while nothing runs is kept, for [`Signals::take`] or for the next statement, whichever comes first.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A statement that did not hear the first request, as it was only beginning, is asked again after this.
const AGAIN: Duration = Duration::from_millis(100);

/// Ends the running statement.
pub(super) type Cancel = Arc<dyn Fn() + Send + Sync>;

/// What wakes the thread without a signal; a signal writes an `X`.
const NUDGE: u8 = b'n';

#[derive(Default)]
struct Shared {
    /// Changed under the lock of `running`.
    pressed: AtomicBool,
    terminated: Arc<AtomicBool>,
    running: Mutex<Option<Cancel>>,
    /// Wakes the thread; `None`: there is none, in tests.
    wake: OnceLock<UnixStream>,
}

/// Signals of this process.
#[derive(Clone, Default)]
pub(super) struct Signals(Arc<Shared>);

impl Signals {
    /// Begins to listen. In a conversation SIGTERM ends the process as ever.
    pub(super) fn listen(conversation: bool) -> Result<Self> {
        let signals = Signals::default();
        signals.register(conversation).context("cannot listen for signals")?;
        Ok(signals)
    }

    fn register(&self, conversation: bool) -> io::Result<()> {
        let (mut read, write) = UnixStream::pair()?;
        pipe::register(SIGINT, write.try_clone()?)?;
        if !conversation {
            flag::register(SIGTERM, Arc::clone(&self.0.terminated))?;
            pipe::register(SIGTERM, write.try_clone()?)?;
        }
        self.0.wake.get_or_init(|| write);
        let shared = Arc::clone(&self.0);
        // Not joined: it waits for signals until the process ends.
        std::thread::Builder::new().name("gannet-signals".into()).spawn(move || {
            let mut bytes = [0; 64];
            while let Ok(count @ 1..) = read.read(&mut bytes) {
                let signalled = bytes[..count].iter().any(|byte| *byte != NUDGE);
                if shared.wake_up(signalled) {
                    drain(&mut read);
                }
            }
        })?;
        Ok(())
    }

    /// Does work that `cancel` ends.
    pub(super) fn during<T>(&self, cancel: Cancel, work: impl FnOnce() -> T) -> T {
        let mut running = self.0.running();
        *running = Some(cancel);
        if self.0.pressed.load(Ordering::SeqCst)
            && let Some(mut wake) = self.0.wake.get()
        {
            // A full pipe has woken the thread already.
            let _ = wake.write(&[NUDGE]);
        }
        drop(running);
        let result = work();
        let mut running = self.0.running();
        *running = None;
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
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, Option<Cancel>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what runs; `signalled`: by a signal that has just come. Gives whether there was something.
    fn wake_up(&self, signalled: bool) -> bool {
        let mut running = self.running();
        if signalled {
            self.pressed.store(true, Ordering::SeqCst);
        }
        let mut cancelled = false;
        loop {
            match &*running {
                Some(cancel) if self.pressed.load(Ordering::SeqCst) => cancel(),
                _ => return cancelled,
            }
            cancelled = true;
            drop(running);
            std::thread::sleep(AGAIN);
            running = self.running();
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
                let thread = std::thread::spawn(move || shared.wake_up(true));
                // Asked at least twice, as one that does not hear.
                receiver.recv().unwrap();
                receiver.recv().unwrap();
                assert!(signals.is_pressed());
                thread
            },
        );
        assert!(thread.join().unwrap());
        assert!(!signals.take());
        assert!(!signals.0.wake_up(true));
        assert!(signals.take() && !signals.take());
    }

    #[test]
    fn a_signal_between_statements_ends_the_next_one() {
        let signals = Signals::default();
        let (write, mut read) = UnixStream::pair().unwrap();
        signals.0.wake.get_or_init(|| write);
        assert!(!signals.0.wake_up(true));
        let (sender, receiver) = mpsc::channel();
        let cancel: Cancel = Arc::new(move || {
            let _ = sender.send(());
        });
        let shared = Arc::clone(&signals.0);
        let thread = signals.during(cancel, || {
            let mut byte = [0];
            read.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [NUDGE]);
            let thread = std::thread::spawn(move || shared.wake_up(false));
            receiver.recv().unwrap();
            thread
        });
        assert!(thread.join().unwrap());
        // A nudge that comes late is nothing.
        assert!(!signals.0.wake_up(false) && !signals.take());
    }
}
