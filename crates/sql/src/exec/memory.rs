//! What an operator holds of the engine's memory.
//!
//! What can be spilled takes nothing of what the budget leaves for others, and keeps a block beside for whoever writes it: so where memory ends it is
//! spilled, and does not fail.

use super::{Charge, Context};
use crate::Result;
use gannet_store::{Engine, WorkMemory};
use std::sync::{Mutex, PoisonError};

/// The least that is charged at a time, in bytes.
const LEAST: u64 = 16 << 10;
/// The most that is charged beyond what is needed.
const AHEAD_MOST: u64 = 4 << 20;

/// Kept for the first block of whoever spills, beside what can be spilled.
const WRITER: u64 = 16 << 10;

/// A statement whose operators hold more than this takes a turn.
const MUCH: u64 = 64 << 10;

/// Memory of an operator: charged to the engine's budget in steps, before it is used.
#[derive(Debug, Default)]
pub(super) struct Memory {
    held: Option<WorkMemory>,
    /// Bytes of `held` that are in use, or will be.
    bytes: u64,
    /// Those that are kept for a writer.
    for_writer: u64,
    /// The most that was ever held.
    peak: u64,
}

impl Memory {
    /// Sees to it that `bytes` in all are held. False where the operator's share, or the budget, ends before: it is time to spill.
    #[inline]
    pub(super) fn reserve(&mut self, context: &Context<'_>, bytes: usize) -> Result<bool> {
        if bytes as u64 <= self.bytes {
            return Ok(true);
        }
        self.grow(context, bytes as u64)
    }

    #[cold]
    fn grow(&mut self, context: &Context<'_>, bytes: u64) -> Result<bool> {
        await_turn(context, bytes)?;
        let limit = context.work_limit();
        if bytes > limit {
            return Ok(false);
        }
        let ample = (bytes + (bytes / 2).min(AHEAD_MOST)).max(LEAST).min(limit);
        let engine = &context.session.engine;
        let held = self.try_set(engine, ample)? || self.try_set(engine, bytes)?;
        self.tell(context);
        Ok(held)
    }

    /// Who waits for a turn waits for what is held, too.
    pub(super) fn tell(&self, context: &Context<'_>) {
        if self.bytes > MUCH {
            context.session.turn.widen(self.bytes);
        }
    }

    /// Holds `bytes` in all, and a block for a writer; false where the budget, but for what it leaves for others, ends before.
    fn try_set(&mut self, engine: &Engine, bytes: u64) -> Result<bool> {
        match self.set(engine, bytes, WRITER, WorkMemory::grow_leaving) {
            Ok(()) => Ok(true),
            Err(gannet_store::Error::Memory(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The same for what cannot be spilled: an error where the budget ends.
    pub(super) fn demand(&mut self, context: &Context<'_>, bytes: usize) -> Result<()> {
        if bytes as u64 > self.bytes {
            await_turn(context, bytes as u64)?;
            let ample = bytes as u64 + (bytes as u64 / 4).clamp(LEAST, AHEAD_MOST);
            let (engine, for_writer) = (&context.session.engine, self.for_writer);
            if self.set(engine, ample, for_writer, WorkMemory::grow_leaving).is_err() {
                self.set(engine, bytes as u64, for_writer, WorkMemory::grow)?;
            }
            self.tell(context);
        }
        Ok(())
    }

    fn set(
        &mut self,
        engine: &Engine,
        bytes: u64,
        for_writer: u64,
        grow: impl FnOnce(&mut WorkMemory, u64) -> gannet_store::Result<()>,
    ) -> gannet_store::Result<()> {
        let held = match &mut self.held {
            Some(held) => held,
            none => none.insert(engine.work_memory(0)?),
        };
        if let Err(error) = grow(held, (bytes + for_writer).saturating_sub(held.bytes())) {
            // Who holds nothing does not count among those who do.
            self.held.take_if(|held| held.bytes() == 0);
            return Err(error);
        }
        (self.bytes, self.for_writer) = (bytes, for_writer);
        self.peak = self.peak.max(bytes);
        Ok(())
    }

    /// Gives back all but `bytes`.
    pub(super) fn shrink(&mut self, bytes: usize) {
        if let Some(held) = self.held.as_mut().filter(|_| self.bytes > bytes as u64) {
            self.bytes = bytes as u64;
            held.shrink_to(self.bytes + self.for_writer);
        }
    }

    /// Gives back what it may not hold any more, as others have come, but for `bytes`, which are in use.
    pub(super) fn shrink_to_share(&mut self, context: &Context<'_>, bytes: usize) {
        if self.bytes > MUCH {
            let limit = usize::try_from(context.work_limit()).unwrap_or(usize::MAX);
            self.shrink(limit.max(bytes));
        }
    }

    /// Gives back what is kept for a writer: there will be one now.
    pub(super) fn begin_writer(&mut self) {
        self.for_writer = 0;
        self.held.iter_mut().for_each(|held| held.shrink_to(self.bytes));
    }

    /// Holds `bytes` more: an error where the budget ends.
    pub(super) fn add(&mut self, context: &Context<'_>, bytes: usize) -> Result<()> {
        let (bytes, for_writer) = (self.bytes + bytes as u64, self.for_writer);
        Ok(self.set(&context.session.engine, bytes, for_writer, WorkMemory::grow)?)
    }

    /// What is held becomes a value's charge.
    pub(super) fn hand_over(&mut self) -> Charge {
        let held = self.held.take();
        self.release();
        held.map(|held| Box::new(held.uncounted()))
    }

    /// Gives back `bytes`, which somebody else holds now.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.shrink((self.bytes as usize).saturating_sub(bytes));
    }

    /// Gives back everything.
    pub(super) fn release(&mut self) {
        self.held = None;
        (self.bytes, self.for_writer) = (0, 0);
    }

    /// The most that was ever held, in bytes.
    pub(super) fn peak(&self) -> u64 {
        self.peak
    }
}

/// Memory of an operator that several threads take from, each up to its part of what the operator may have.
#[derive(Debug)]
pub(super) struct SharedMemory<'m> {
    memory: Mutex<&'m mut Memory>,
    engine: &'m Engine,
    work_bytes: u64,
    threads: u64,
}

impl<'m> SharedMemory<'m> {
    /// Before it is known for how [many threads](SharedMemory::among). The statement's turn is awaited, if it has none.
    pub(super) fn new(memory: &'m mut Memory, context: &'m Context<'_>) -> Result<Self> {
        await_turn(context, MUCH + 1)?;
        let (engine, work_bytes) = (&context.session.engine, context.work_bytes);
        Ok(SharedMemory { memory: Mutex::new(memory), engine, work_bytes, threads: 1 })
    }

    /// For so many threads.
    pub(super) fn among(self, threads: usize) -> Self {
        SharedMemory { threads: threads as u64, ..self }
    }

    /// Has a thread hold `needed` bytes, or some more, where it held fewer, and says how many it holds; `None` where its part, or the budget,
    /// ends before.
    pub(super) fn grow(&self, held: usize, needed: usize) -> Result<Option<usize>> {
        let limit = self.limit();
        let most = usize::try_from(limit / self.threads).unwrap_or(usize::MAX);
        if needed > most {
            return Ok(None);
        }
        let ample = (needed + (needed / 2).clamp(LEAST as usize, AHEAD_MOST as usize)).min(most);
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        for wanted in [ample, needed] {
            let bytes = memory.bytes + (wanted - held) as u64;
            if bytes <= limit && memory.try_set(self.engine, bytes)? {
                return Ok(Some(wanted));
            }
        }
        Ok(None)
    }

    /// See [`Memory::begin_writer`].
    pub(super) fn begin_writer(&self) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).begin_writer();
    }

    /// Bytes that the operator may take, all threads together.
    pub(super) fn limit(&self) -> u64 {
        self.engine.work_limit().min(self.work_bytes)
    }
}

/// Has the statement wait for its turn before it has a value or a row of `bytes`, if that is long.
#[inline]
pub(super) fn await_room(context: &Context<'_>, bytes: usize) -> Result<()> {
    Ok(context.session.turn.await_long(bytes as u64)?)
}

/// Has the statement wait for its turn before it holds much.
fn await_turn(context: &Context<'_>, bytes: u64) -> Result<()> {
    if bytes > MUCH {
        context.session.turn.await_much(bytes)?;
    }
    Ok(())
}
