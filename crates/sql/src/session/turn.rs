//! Who of the sessions takes much memory: the turn of the statement that a session runs, and long values on their way out of the store.
//!
//! # Guarantees
//! 1. A statement waits for its turn ([`Engine::turn`]) before it holds much, be it in its operators or one long value that the store is
//!    about to read for it. Who changes or locks rows does not, nor who has done so in his transaction, as others may wait for him: for a
//!    long value he waits a moment, as it may well not fit beside those of others, then takes his turn in any case.
//! 2. A long value is charged before the store reads it, for its copy there and for the one that is made of it.

use super::interrupt::Interrupt;
use gannet_base::memory::Purpose;
use gannet_base::sync::Mutex;
use gannet_store::{Engine, Error, LongValues, Result, Turn, WorkMemory};
use std::time::Duration;

/// So many long rows does a statement hold at a time, about: what its operators keep, spill and merge.
const LONG_ROWS: u64 = 20;
/// So long waits who keeps others waiting.
const MOMENT: Duration = Duration::from_secs(1);
/// A value or a row of more bytes is long. Copies of shorter ones are not charged.
const LONG: u64 = 64 << 10;

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
    /// Of the statement that runs: none while none does, or one without operators.
    running: Mutex<Option<StatementTurn>>,
}

impl SessionTurn {
    pub(super) fn new(engine: Engine, interrupt: Interrupt) -> Self {
        SessionTurn { engine, interrupt, running: Mutex::new(None) }
    }

    /// Runs a statement, or a part of one, that has this turn; it may run within another one.
    pub(crate) fn run<T>(&self, turn: &mut StatementTurn, body: impl FnOnce() -> T) -> T {
        if let Some(turn) = &turn.turn {
            turn.set_idle(false);
        }
        let outer = self.running.lock().replace(std::mem::take(turn));
        let result = body();
        *turn = std::mem::replace(&mut *self.running.lock(), outer).unwrap_or_default();
        if let Some(turn) = &turn.turn {
            turn.set_idle(true);
        }
        result
    }

    /// Has the statement wait for its turn before it has a value or a row of `bytes`, if that is long.
    #[inline]
    pub(crate) fn await_long(&self, bytes: u64) -> Result<()> {
        if bytes > LONG {
            self.take(bytes * LONG_ROWS, MOMENT)?;
        }
        Ok(())
    }

    /// Has the statement wait for its turn before it holds `bytes`, unless it has one.
    #[cold]
    pub(crate) fn await_much(&self, bytes: u64) -> Result<()> {
        let has_one = self.running.lock().as_ref().is_some_and(|running| running.turn.is_some());
        if has_one { Ok(()) } else { self.take(bytes, Duration::ZERO) }
    }

    /// Takes a turn for about `bytes`, unless the statement has one, which is then said to need so much. Who keeps others waiting waits for
    /// a `moment` only. [`Error::Cancelled`] when the statement is ended while it waits.
    #[cold]
    fn take(&self, bytes: u64, moment: Duration) -> Result<()> {
        let waits = match &*self.running.lock() {
            None => return Ok(()),
            Some(StatementTurn { turn: Some(turn), .. }) => {
                turn.widen(bytes);
                return Ok(());
            }
            Some(running) => running.waits,
        };
        // Who has locked rows keeps others waiting, also such as have a turn.
        let patience = (!waits || self.interrupt.transaction().is_some()).then_some(moment);
        let turn = self.interrupt.turn(&self.engine, bytes, patience).ok_or(Error::Cancelled)?;
        if let Some(running) = &mut *self.running.lock() {
            running.turn = Some(turn);
        }
        Ok(())
    }
}

impl LongValues for SessionTurn {
    fn expect(&self, bytes: u64) -> Result<Option<WorkMemory>> {
        if bytes <= LONG {
            return Ok(None);
        }
        self.await_long(bytes)?;
        self.engine.memory(Purpose::Work, 2 * bytes).map(Some)
    }
}
