//! Who of the sessions takes much memory: the turn of the statement that a session runs, and long values on their way out of the store.
//!
//! # Guarantees
//! 1. A statement waits for its turn ([`Engine::turn`]) before it holds much, be it in its operators or one long value that the store is
//!    about to read for it. Who changes or locks rows does not, nor who has done so in his transaction, as others may wait for him: for a
//!    long value he waits, as it may well not fit beside those of others, but for no more than a moment in the whole transaction. Then he
//!    takes his turn in any case. Definitions and ANALYZE do as he does.
//! 2. A long value is charged before the store reads it, for its copy there and for the one that is made of it.

use super::interrupt::Interrupt;
use crate::exec::LARGE_BYTES;
use gannet_base::clock;
use gannet_base::memory::{OverBudget, Purpose};
use gannet_base::sync::Mutex;
use gannet_store::{Engine, Error, LongValues, Result, Turn, WorkMemory};
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::Duration;

/// So many long rows does a statement hold at a time, about: what its operators keep, spill and merge.
const LONG_ROWS: u64 = 20;
/// So long waits who keeps others waiting.
const MOMENT: Duration = Duration::from_secs(1);
/// A value or a row of more bytes is long. Copies of shorter ones are not charged.
const LONG: u64 = LARGE_BYTES as u64;
/// Of long ones up to this part of the budget everybody can have some: twenty each for fifty statements.
const FEW: u64 = 1024;

/// The turn of a statement, which it keeps from one call to the next.
#[derive(Debug, Default)]
pub(crate) struct StatementTurn {
    turn: Option<Turn>,
    waits: bool,
}

impl StatementTurn {
    /// Of a statement that changes or locks rows, or does not.
    pub(crate) fn new(writes: bool) -> Self {
        StatementTurn { turn: None, waits: !writes }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct SessionTurn {
    engine: Engine,
    interrupt: Interrupt,
    /// What the statement that runs does when there is no turn for it: one of [`IDLE`], [`HASTY`], [`PATIENT`]. One thread at a time runs
    /// statements of a session.
    mood: AtomicU8,
    /// Its turn, and whether there is one, which costs less to ask.
    turn: Mutex<Option<Turn>>,
    has_turn: AtomicBool,
    /// How long a transaction (its handle's number) has waited that others may wait for.
    waited: Mutex<(Option<u64>, Duration)>,
}

/// Ends [`SessionTurn::run`], also when that panics.
struct Running<'r> {
    session: &'r SessionTurn,
    turn: &'r mut StatementTurn,
}

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        self.session.mood.store(IDLE, Relaxed);
        self.turn.turn = self.session.exchange(None);
    }
}

/// None runs, or one without operators, which takes no turns.
const IDLE: u8 = 0;
/// Goes on without waiting, or after a moment.
const HASTY: u8 = 1;
/// Waits.
const PATIENT: u8 = 2;

impl SessionTurn {
    pub(super) fn new(engine: Engine, interrupt: Interrupt) -> Self {
        SessionTurn {
            engine,
            interrupt,
            mood: AtomicU8::new(IDLE),
            turn: Mutex::new(None),
            has_turn: AtomicBool::new(false),
            waited: Mutex::default(),
        }
    }

    /// Runs a statement, or a part of one, that has this turn. What runs within another one takes part in that one's.
    #[inline]
    pub(crate) fn run<T>(&self, turn: &mut StatementTurn, body: impl FnOnce() -> T) -> T {
        if self.mood.load(Relaxed) != IDLE {
            return body();
        }
        self.exchange(turn.turn.take());
        self.mood.store(if turn.waits { PATIENT } else { HASTY }, Relaxed);
        let _running = Running { session: self, turn };
        body()
    }

    /// Puts a turn, or none, in the place of the one that there is.
    #[inline]
    fn exchange(&self, turn: Option<Turn>) -> Option<Turn> {
        if turn.is_none() && !self.has_turn.load(Relaxed) { None } else { self.replace(turn) }
    }

    #[cold]
    fn replace(&self, turn: Option<Turn>) -> Option<Turn> {
        turn.iter().for_each(|turn| turn.set_idle(false));
        self.has_turn.store(turn.is_some(), Relaxed);
        let old = std::mem::replace(&mut *self.turn.lock(), turn);
        old.iter().for_each(|old| old.set_idle(true));
        old
    }

    /// The statement that runs waits for its client or sleeps, or no longer does.
    pub(crate) fn set_idle(&self, idle: bool) {
        if self.has_turn.load(Relaxed) {
            self.turn.lock().iter().for_each(|turn| turn.set_idle(idle));
        }
    }

    /// Has the statement wait for its turn before it has a value or a row of `bytes`, if that is long.
    #[inline]
    pub(crate) fn await_long(&self, bytes: u64) -> Result<()> {
        if bytes > LONG && bytes > self.engine.budget().limit() / FEW {
            self.take(bytes * LONG_ROWS, MOMENT)?;
        }
        Ok(())
    }

    /// Has the statement wait for its turn before it holds `bytes`, unless it has one.
    #[cold]
    pub(crate) fn await_much(&self, bytes: u64) -> Result<()> {
        if self.has_turn.load(Relaxed) { Ok(()) } else { self.take(bytes, Duration::ZERO) }
    }

    /// The statement, if it has a turn, has come to hold `bytes`.
    pub(crate) fn widen(&self, bytes: u64) {
        if self.has_turn.load(Relaxed) {
            self.turn.lock().iter().for_each(|turn| turn.widen(bytes));
        }
    }

    /// Takes a turn for about `bytes`, unless the statement has one, which is then said to need so much. Who keeps others waiting waits for
    /// a `moment` only. [`Error::Cancelled`] when the statement is ended while it waits.
    #[cold]
    fn take(&self, bytes: u64, moment: Duration) -> Result<()> {
        if let Some(turn) = &*self.turn.lock() {
            turn.widen(bytes);
            return Ok(());
        }
        // Who has locked rows keeps others waiting, also such as have a turn.
        let patience = match self.mood.load(Relaxed) {
            IDLE => return Ok(()),
            PATIENT if self.interrupt.transaction().is_none() => None,
            _ => Some(self.left_of(moment)),
        };
        let since = clock::now();
        let turn = self.interrupt.turn(&self.engine, bytes, patience);
        if patience.is_some() {
            self.waited.lock().1 += since.elapsed();
        }
        self.replace(Some(turn.ok_or(Error::Cancelled)?));
        Ok(())
    }

    /// What the transaction has not waited yet of a moment: those who wait for it do so for one moment in all, not for one with each
    /// statement.
    fn left_of(&self, moment: Duration) -> Duration {
        let mut waited = self.waited.lock();
        let transaction = self.interrupt.transaction_number();
        if waited.0 != transaction {
            *waited = (transaction, Duration::ZERO);
        }
        moment.saturating_sub(waited.1)
    }
}

thread_local! {
    /// See [`without_long_values`].
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

/// In `body` no long value is read by the calling thread, which is one of several that work on a statement: a turn is the statement's, and
/// who waits for it must be the only one who does. [`Error::Memory`] where one is met.
pub(crate) fn without_long_values<T>(body: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            REFUSES.set(self.0);
        }
    }
    let _back = Back(REFUSES.replace(true));
    body()
}

impl LongValues for SessionTurn {
    fn expect(&self, bytes: u64) -> Result<Option<WorkMemory>> {
        if bytes <= LONG {
            return Ok(None);
        }
        if REFUSES.get() {
            let (purpose, budget) = (Purpose::Work, self.engine.budget());
            let refused =
                OverBudget { purpose, requested: bytes, used: budget.used(), limit: budget.limit() };
            return Err(Error::Memory(refused));
        }
        self.await_long(bytes)?;
        self.engine.memory(Purpose::Work, 2 * bytes).map(Some)
    }
}
