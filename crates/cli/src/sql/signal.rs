//! Ctrl-C: ends the statement that runs, and only that. SIGTERM, and in a conversation SIGHUP: end the statement, and then the shell.
//!
//! # Guarantees
//! 1. A signal while a statement runs ends that one and no later one: the canceller runs under the lock that the statement's end takes.
//! 2. A signal while nothing runs is kept, for [`Signals::take`] or for the next statement, whichever comes first.
//! 3. A signal that ends the shell ends the wait for a line, too: either who is about to wait sees it, or the thread of signals sees
//!    that somebody waits, as each sets its own flag before it looks at the other's.

use anyhow::{Context, Result};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{self, OptionalActions, Termios};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A statement that did not hear the first request, as it was only beginning, is asked again after this.
const AGAIN: Duration = Duration::from_millis(100);
/// A wait that has not ended after being asked so often cannot hear.
const DEAF: u32 = 20;

/// Ends the running statement.
pub(super) type Cancel = Arc<dyn Fn() + Send + Sync>;

/// What wakes the thread without a signal; a signal writes an `X`.
const NUDGE: u8 = b'n';

#[derive(Default)]
struct Shared {
    /// Changed under the lock of `running`.
    pressed: AtomicBool,
    terminated: Arc<AtomicBool>,
    /// Something is waited for that may never come.
    waiting: AtomicBool,
    /// How a conversation has found its terminal.
    terminal: OnceLock<Termios>,
    running: Mutex<Option<Cancel>>,
    /// Wakes the thread; `None`: there is none, in tests.
    wake: OnceLock<UnixStream>,
}

/// Signals of this process.
#[derive(Clone, Default)]
pub(super) struct Signals(Arc<Shared>);

impl Signals {
    /// Begins to listen.
    pub(super) fn listen(conversation: bool) -> Result<Self> {
        let signals = Signals::default();
        signals.register(conversation).context("cannot listen for signals")?;
        Ok(signals)
    }

    fn register(&self, conversation: bool) -> io::Result<()> {
        let (mut read, write) = UnixStream::pair()?;
        pipe::register(SIGINT, write.try_clone()?)?;
        // A script may be started so that it outlives its terminal.
        let ends: &[i32] = if conversation { &[SIGTERM, SIGHUP] } else { &[SIGTERM] };
        for signal in ends {
            flag::register(*signal, Arc::clone(&self.0.terminated))?;
            pipe::register(*signal, write.try_clone()?)?;
        }
        if let (true, Ok(terminal)) = (conversation, termios::tcgetattr(io::stdin())) {
            self.0.terminal.get_or_init(|| terminal);
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
                    // One that ends the shell may have been among them.
                    shared.wake_up(false);
                }
            }
        })?;
        Ok(())
    }

    /// Does work that `cancel` ends.
    pub(super) fn during<T>(&self, cancel: Cancel, work: impl FnOnce() -> T) -> T {
        let mut running = self.0.running();
        *running = Some(cancel);
        if self.is_pressed()
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

    /// Waits for what may never come, a line or a server, in a conversation; `None`: the process is to end.
    pub(super) fn wait<T>(&self, wait: impl FnOnce() -> T) -> Option<T> {
        self.0.waiting.store(true, Ordering::SeqCst);
        let done = (!self.is_terminated()).then(wait);
        self.0.waiting.store(false, Ordering::SeqCst);
        done.filter(|_| !self.is_terminated())
    }

    /// Whether Ctrl-C came while nothing ran; forgets it.
    pub(super) fn take(&self) -> bool {
        self.0.pressed.swap(false, Ordering::SeqCst) || self.is_terminated()
    }

    /// Whether Ctrl-C came since the work began.
    pub(super) fn is_pressed(&self) -> bool {
        self.0.is_pressed()
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

    fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::SeqCst) || self.terminated.load(Ordering::SeqCst)
    }

    /// Ends what runs; `signalled`: by a signal that has just come. Gives whether there was something.
    fn wake_up(&self, signalled: bool) -> bool {
        let mut running = self.running();
        if signalled {
            self.pressed.store(true, Ordering::SeqCst);
        }
        let mut cancelled = false;
        let mut asked = 0;
        loop {
            let waiting = self.terminated.load(Ordering::SeqCst) && self.waiting.load(Ordering::SeqCst);
            match &*running {
                Some(cancel) if self.is_pressed() => cancel(),
                _ if waiting => {}
                _ => return cancelled,
            }
            cancelled = true;
            if waiting {
                self.end_wait(asked);
                asked += 1;
            }
            drop(running);
            std::thread::sleep(AGAIN);
            running = self.running();
        }
    }

    /// Ends the wait for a line, which hears SIGINT: it goes to the first thread, which waits.
    fn end_wait(&self, asked: u32) {
        if asked < DEAF {
            // It is asked again.
            let _ = kill_process(getpid(), Signal::INT);
            return;
        }
        // A terminal without line editing, output that is none, a server that is silent: nobody hears. What was not committed is
        // rolled back all the same.
        if let Some(terminal) = self.terminal.get() {
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, terminal);
        }
        std::process::exit(i32::from(crate::INTERRUPTED));
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
