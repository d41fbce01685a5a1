//! Ending statements: at the user's request, for a time-out, or because the server goes down.

use crate::{Error, Result, SqlState};
use gannet_base::TxnId;
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread::JoinHandle;
use gannet_store::{Canceller, Engine, Turn};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

/// Why a statement is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// `statement_timeout`
    Timeout = 1,
    /// The user asked.
    User = 2,
    /// `snapshot_limit`: the session is to end.
    SnapshotLimit = 3,
    /// The session is to end, as the server goes down or an administrator wants it.
    Shutdown = 4,
}

impl Reason {
    /// Whether it ends the session, not only its statement.
    fn ends_session(self) -> bool {
        self as u8 >= Reason::SnapshotLimit as u8
    }
}

#[derive(Debug, Default)]
struct Shared {
    cancel: AtomicBool,
    reason: AtomicU8,
    running: AtomicBool,
    waits_for_memory: AtomicBool,
    canceller: Mutex<Option<Canceller>>,
    waker: Mutex<Waker>,
}

/// Wakes whoever waits for the session's client.
#[derive(Default)]
struct Waker(Option<Box<dyn Fn() + Send>>);

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Waker").field(&self.0.is_some()).finish()
    }
}

/// Ends a session's running statement, from any thread. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Shared>);

impl Interrupt {
    /// Ends the running statement. Nothing happens when none runs, except that what ends the session ends whatever comes next.
    pub fn interrupt(&self, reason: Reason) {
        if !reason.ends_session() && !self.0.running.load(Ordering::Acquire) {
            return;
        }
        let canceller = self.0.canceller.lock();
        self.interrupt_with(reason, canceller.as_ref());
    }

    /// Ends the session because of `snapshot_limit`, if it still is in the transaction that the store knows by this number.
    pub(super) fn end_transaction(&self, number: u64) {
        // A transaction gives its canceller back before it commits: as long as it is here, so is the transaction.
        let canceller = self.0.canceller.lock();
        if canceller.as_ref().is_some_and(|canceller| canceller.number() == number) {
            self.interrupt_with(Reason::SnapshotLimit, canceller.as_ref());
        }
    }

    /// Under the canceller's lock.
    fn interrupt_with(&self, reason: Reason, canceller: Option<&Canceller>) {
        // What ends the session is not to be taken for less, nor what ends a whole text for what ends one statement of it.
        self.0.reason.fetch_max(reason as u8, Ordering::SeqCst);
        self.0.cancel.store(true, Ordering::SeqCst);
        if let Some(canceller) = canceller {
            canceller.cancel();
        }
        if let (true, Some(wake)) = (reason.ends_session(), &self.0.waker.lock().0) {
            wake();
        }
    }

    /// What else is to be done when the session is to end: it may wait for its client, not run a statement.
    pub fn on_shutdown(&self, wake: impl Fn() + Send + 'static) {
        self.0.waker.lock().0 = Some(Box::new(wake));
        self.repeat();
    }

    /// Tells again what ends the session.
    fn repeat(&self) {
        if let Some(reason) = self.end_of_session() {
            self.interrupt(reason);
        }
    }

    /// Why the session is to end, if it is.
    fn end_of_session(&self) -> Option<Reason> {
        let is = |wanted: &Reason| self.0.reason.load(Ordering::SeqCst) == *wanted as u8;
        [Reason::SnapshotLimit, Reason::Shutdown].into_iter().find(is)
    }

    /// Whether the session is to end.
    pub fn is_shut_down(&self) -> bool {
        self.end_of_session().is_some()
    }

    /// What the client of a session that is to end is told.
    pub fn farewell(&self) -> Error {
        self.error()
    }

    /// Whether the statement waits for its turn to take much memory.
    pub fn waits_for_memory(&self) -> bool {
        self.0.waits_for_memory.load(Ordering::Relaxed)
    }

    /// A turn to take much memory, see [`Engine::turn`], for which the statement waits no longer than its `patience`, if that ends.
    /// `None` when the statement is ended before.
    pub(super) fn turn(&self, engine: &Engine, bytes: u64, patience: Option<Duration>) -> Option<Turn> {
        let transaction = self.0.canceller.lock().clone();
        let cancelled = || self.0.cancel.load(Ordering::Relaxed);
        self.0.waits_for_memory.store(true, Ordering::Relaxed);
        let since = clock::now();
        let give_up = || cancelled() || patience.is_some_and(|patience| since.elapsed() >= patience);
        let mut turn = engine.turn(bytes, true, transaction.clone(), give_up);
        if turn.is_none() && !cancelled() {
            turn = engine.turn(bytes, false, transaction, || false);
        }
        self.0.waits_for_memory.store(false, Ordering::Relaxed);
        turn
    }

    /// The number of the session's transaction, if it has written or locked something.
    pub fn transaction(&self) -> Option<TxnId> {
        self.0.canceller.lock().as_ref()?.transaction()
    }

    /// The number of the store's handle of the session's transaction.
    pub fn transaction_number(&self) -> Option<u64> {
        Some(self.0.canceller.lock().as_ref()?.number())
    }

    /// An error when the running statement is to end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.cancel.load(Ordering::SeqCst) { Err(self.error()) } else { Ok(()) }
    }

    /// The flag that running operators look at.
    pub(super) fn flag(&self) -> &AtomicBool {
        &self.0.cancel
    }

    /// A statement begins, or a text of several.
    pub(crate) fn begin(&self) {
        // Most often nobody has asked, and there is nothing to take back.
        if self.0.cancel.load(Ordering::SeqCst) {
            self.take_back(Reason::User);
        }
        // Whoever sees it running sees what was taken back before.
        self.0.running.store(true, Ordering::Release);
    }

    /// The next statement of a text begins, and the alarm of the one before is taken back: if that has rung too late for its own statement, it ends
    /// no other one.
    pub(super) fn forget_timeout(&self) {
        if self.0.cancel.load(Ordering::SeqCst) {
            self.take_back(Reason::Timeout);
        }
    }

    /// Takes back what was asked for, where it is no more than that.
    fn take_back(&self, most: Reason) {
        // Whoever asks does all of it under this lock, so that nothing of another wish is cleared.
        let canceller = self.0.canceller.lock();
        if self.0.reason.load(Ordering::SeqCst) > most as u8 {
            return;
        }
        self.0.reason.store(0, Ordering::SeqCst);
        self.0.cancel.store(false, Ordering::SeqCst);
        if let Some(canceller) = &*canceller {
            canceller.reset();
        }
    }

    /// The statement has ended.
    pub(super) fn end(&self) {
        self.0.running.store(false, Ordering::Release);
    }

    /// Waits of this transaction are to end as well; `None`: there is no transaction any more.
    pub(super) fn set_canceller(&self, canceller: Option<Canceller>) {
        let mut place = self.0.canceller.lock();
        if let (Some(canceller), true) = (&canceller, self.0.cancel.load(Ordering::SeqCst)) {
            canceller.cancel();
        }
        *place = canceller;
    }

    /// A wait of the store that was cancelled does not know why; the client is told.
    pub(super) fn explain(&self, error: Error) -> Error {
        let is = |of: gannet_store::Error| {
            let of = Error::from(of);
            error.state() == of.state() && *error.fields().message == *of.fields().message
        };
        let cancelled = is(gannet_store::Error::Cancelled) || is(gannet_store::Error::TooOld);
        if !(cancelled && self.0.cancel.load(Ordering::SeqCst)) {
            return error;
        }
        match &error.fields().context {
            Some(context) => self.error().context(context.clone()),
            None => self.error(),
        }
    }

    /// What the client is told.
    pub(super) fn error(&self) -> Error {
        let reason = self.0.reason.load(Ordering::SeqCst);
        if reason == Reason::Shutdown as u8 {
            Error::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
        } else if reason == Reason::SnapshotLimit as u8 {
            Error::new(SqlState::TRANSACTION_TIMEOUT, "terminating connection due to snapshot_limit")
                .detail(
                    "The session's transaction has held garbage back for longer than snapshot_limit permits.",
                )
                .hint("Keep transactions short. A superuser may set snapshot_limit to 0 for a session.")
        } else if reason == Reason::Timeout as u8 {
            Error::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
        } else {
            Error::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
        }
    }
}

#[derive(Debug, Default)]
struct Alarms {
    /// By time and number.
    pending: BTreeMap<(Instant, u64), Interrupt>,
    next: u64,
    stopping: bool,
}

/// One thread that ends statements which ran out of time; it is started with the first one.
#[derive(Debug, Default)]
pub(super) struct Timer {
    alarms: Arc<(Mutex<Alarms>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// An alarm that is set; dropped, it is taken back.
#[derive(Debug)]
pub(super) struct Alarm {
    alarms: Arc<(Mutex<Alarms>, Condvar)>,
    key: (Instant, u64),
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.alarms.0.lock().pending.remove(&self.key);
    }
}

impl Timer {
    /// Interrupts after `delay`, unless the alarm is dropped before.
    pub(super) fn set(&self, delay: Duration, interrupt: Interrupt) -> Alarm {
        let mut alarms = self.alarms.0.lock();
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let at = Instant::from_nanos(clock::now().as_nanos().saturating_add(nanos));
        let key = (at, alarms.next);
        alarms.next += 1;
        alarms.pending.insert(key, interrupt);
        let first = alarms.pending.keys().next() == Some(&key);
        drop(alarms);
        if !self.start() && first {
            self.alarms.1.notify_one();
        }
        Alarm { alarms: Arc::clone(&self.alarms), key }
    }

    /// Starts its thread; false where it runs already. A thread that is nice is not to be the first who needs it: what it starts is nice, too.
    pub(super) fn start(&self) -> bool {
        let mut thread = self.thread.lock();
        if thread.is_some() {
            return false;
        }
        let shared = Arc::clone(&self.alarms);
        *thread = Some(gannet_base::thread::spawn("gannet-timer", move || ring(&shared)));
        true
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.alarms.0.lock().stopping = true;
        self.alarms.1.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic there has ended nothing but time-outs.
            let _ = thread.join();
        }
    }
}

fn ring((alarms, changed): &(Mutex<Alarms>, Condvar)) {
    let mut alarms = alarms.lock();
    while !alarms.stopping {
        let now = clock::now();
        match alarms.pending.first_key_value() {
            None => changed.wait(&mut alarms),
            Some(((at, _), _)) if *at > now => {
                let left = Duration::from_nanos(at.as_nanos() - now.as_nanos());
                changed.wait_for(&mut alarms, left);
            }
            Some(_) => {
                if let Some((_, interrupt)) = alarms.pending.pop_first() {
                    interrupt.interrupt(Reason::Timeout);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn an_alarm_rings_unless_taken_back() {
        let timer = Timer::default();
        let (kept, dropped) = (Interrupt::default(), Interrupt::default());
        kept.begin();
        dropped.begin();
        let late = timer.set(Duration::from_secs(3600), dropped.clone());
        let _alarm = timer.set(Duration::from_millis(1), kept.clone());
        while !kept.flag().load(Ordering::SeqCst) {
            gannet_base::thread::yield_now();
        }
        drop(late);
        assert!(timer.alarms.0.lock().pending.is_empty() && !dropped.flag().load(Ordering::SeqCst));
        assert!(kept.error().to_string().contains("timeout"));
    }

    #[test]
    fn a_shutdown_is_not_taken_back_by_a_statement_that_begins() {
        let interrupts: Arc<Vec<Interrupt>> = Arc::new((0..20_000).map(|_| Interrupt::default()).collect());
        for interrupt in &*interrupts {
            interrupt.begin();
            interrupt.interrupt(Reason::User);
            interrupt.end();
        }
        // Two threads go through them side by side, the one that shuts down now and then a little later.
        let arrived = Arc::new(AtomicUsize::new(0));
        let meet = |arrived: &AtomicUsize, round: usize| {
            arrived.fetch_add(1, Ordering::SeqCst);
            let mut spins = 0;
            while arrived.load(Ordering::SeqCst) < 2 * (round + 1) {
                // The other one may wait for this processor.
                spins += 1;
                if spins % 1000 == 0 { gannet_base::thread::yield_now() } else { std::hint::spin_loop() }
            }
        };
        let (shared, other) = (Arc::clone(&interrupts), Arc::clone(&arrived));
        let thread = gannet_base::thread::spawn("shutdown", move || {
            for (round, interrupt) in shared.iter().enumerate() {
                meet(&other, round);
                (0..round % 32).for_each(|_| std::hint::spin_loop());
                interrupt.interrupt(Reason::Shutdown);
            }
        });
        for (round, interrupt) in interrupts.iter().enumerate() {
            meet(&arrived, round);
            interrupt.begin();
        }
        thread.join().unwrap();
        let lost = interrupts
            .iter()
            .filter(|interrupt| !interrupt.is_shut_down() || !interrupt.flag().load(Ordering::SeqCst));
        assert_eq!(lost.count(), 0);
    }

    #[test]
    fn a_timeout_that_comes_too_late_is_forgotten_and_a_users_wish_is_not() {
        let interrupt = Interrupt::default();
        let is_set = || interrupt.flag().load(Ordering::SeqCst);
        interrupt.begin();
        interrupt.interrupt(Reason::Timeout);
        interrupt.forget_timeout();
        assert!(!is_set());
        for both in [[Reason::Timeout, Reason::User], [Reason::User, Reason::Timeout]] {
            for reason in both {
                interrupt.interrupt(reason);
            }
            interrupt.forget_timeout();
            assert!(is_set(), "{both:?}");
            assert!(interrupt.error().to_string().contains("user request"));
            interrupt.begin();
            assert!(!is_set());
        }
    }

    #[test]
    fn a_limit_ends_the_session_and_is_not_taken_for_less() {
        let interrupt = Interrupt::default();
        interrupt.end_transaction(7);
        assert!(!interrupt.is_shut_down(), "there is no such transaction");
        interrupt.interrupt(Reason::SnapshotLimit);
        interrupt.begin();
        interrupt.interrupt(Reason::User);
        assert!(interrupt.is_shut_down() && interrupt.flag().load(Ordering::SeqCst));
        assert_eq!(interrupt.error().state(), SqlState::TRANSACTION_TIMEOUT);
        interrupt.interrupt(Reason::Shutdown);
        assert_eq!(interrupt.error().state(), SqlState::ADMIN_SHUTDOWN);
    }

    #[test]
    fn only_a_running_statement_is_cancelled_but_a_shutdown_stays() {
        let interrupt = Interrupt::default();
        interrupt.interrupt(Reason::User);
        interrupt.begin();
        assert!(!interrupt.flag().load(Ordering::SeqCst));
        interrupt.interrupt(Reason::User);
        assert!(interrupt.flag().load(Ordering::SeqCst));
        interrupt.end();
        interrupt.interrupt(Reason::Shutdown);
        interrupt.begin();
        assert!(interrupt.flag().load(Ordering::SeqCst));
        assert_eq!(interrupt.error().state(), SqlState::ADMIN_SHUTDOWN);
    }
}
