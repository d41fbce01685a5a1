//! What an operator holds of the engine's memory.

use super::Context;
use crate::{Error, Result};
use gannet_store::WorkMemory;

/// The least that is charged at a time, in bytes.
const LEAST: u64 = 16 << 10;
/// The most that is charged beyond what is needed.
const AHEAD_MOST: u64 = 4 << 20;

/// A statement whose operators hold more than this takes a turn.
const MUCH: u64 = 64 << 10;

/// Memory of an operator: charged to the engine's budget in steps, before it is used.
#[derive(Debug, Default)]
pub(super) struct Memory {
    held: Option<WorkMemory>,
    /// Bytes of `held`.
    bytes: u64,
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
        match self.set(context, ample) {
            Ok(()) => Ok(true),
            Err(gannet_store::Error::Memory(_)) => match self.set(context, bytes) {
                Ok(()) => Ok(true),
                Err(gannet_store::Error::Memory(_)) => Ok(false),
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The same for what cannot be spilled: an error where the budget ends.
    pub(super) fn demand(&mut self, context: &Context<'_>, bytes: usize) -> Result<()> {
        if bytes as u64 > self.bytes {
            await_turn(context, bytes as u64)?;
            let ample = bytes as u64 + (bytes as u64 / 4).clamp(LEAST, AHEAD_MOST);
            if self.set(context, ample).is_err() {
                self.set(context, bytes as u64).map_err(Error::from)?;
            }
        }
        Ok(())
    }

    fn set(&mut self, context: &Context<'_>, bytes: u64) -> gannet_store::Result<()> {
        match &mut self.held {
            Some(held) => held.grow(bytes - self.bytes)?,
            None => self.held = Some(context.session.engine.work_memory(bytes)?),
        }
        self.bytes = bytes;
        self.peak = self.peak.max(bytes);
        Ok(())
    }

    /// Gives back all but `bytes`.
    pub(super) fn shrink(&mut self, bytes: usize) {
        if let Some(held) = self.held.as_mut().filter(|held| held.bytes() > bytes as u64) {
            held.shrink_to(bytes as u64);
            self.bytes = bytes as u64;
        }
    }

    /// Holds `bytes` more: an error where the budget ends.
    pub(super) fn add(&mut self, context: &Context<'_>, bytes: usize) -> Result<()> {
        self.set(context, self.bytes + bytes as u64).map_err(Error::from)
    }

    /// Gives back `bytes`, which somebody else holds now.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.shrink((self.bytes as usize).saturating_sub(bytes));
    }

    /// Gives back everything.
    pub(super) fn release(&mut self) {
        self.held = None;
        self.bytes = 0;
    }

    /// The most that was ever held, in bytes.
    pub(super) fn peak(&self) -> u64 {
        self.peak
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
