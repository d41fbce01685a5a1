//! Memory of running operations: charged to the budget, in which page frames make room.
//!
//! # What it guarantees
//! 1. What is held is charged before it is handed out; the budget's limit is never exceeded.
//! 2. Frames given up for somebody come back when their memory is given back. Where somebody else was quicker to charge it,
//!    they come with the next memory that is given back.
//! 3. As long as frames have anything to give, a part of the budget is left for those who cannot ask frames for room: cursors,
//!    sessions, plans. One large sort does not make everybody else's statements fail.

use crate::pool::Pool;
use crate::turns::Turns;
use crate::{Error, Result};
use gannet_base::memory::{Budget, Charge, Purpose};
use gannet_base::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Fraction of the budget that all operations are meant to take together.
const WORK_SHARE: u64 = 4;
/// The least that one operation may count on, in bytes.
const WORK_LEAST: u64 = 1 << 20;
/// Fraction of the budget that is left for others.
const LEFT_SHARE: u64 = 32;

/// Bytes of a budget that are left for those who cannot ask frames for room.
pub(crate) fn left_for_others(budget: &Budget) -> u64 {
    budget.limit() / LEFT_SHARE
}

/// The budget and the page frames that can make room in it. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Lender {
    pub(crate) budget: Budget,
    /// One pool for each page size in use.
    pub(crate) pools: Arc<Mutex<Vec<Arc<Pool>>>>,
    /// Operations that hold memory.
    holders: Arc<AtomicU64>,
    /// Frames have not come back yet for which there was no room.
    owed: Arc<AtomicBool>,
    pub(crate) turns: Turns,
}

/// Frames given up: of which pool, and how many.
type Lent = Vec<(Arc<Pool>, usize)>;

impl Lender {
    pub(crate) fn new(budget: Budget) -> Self {
        Lender {
            budget,
            pools: Arc::default(),
            holders: Arc::default(),
            owed: Arc::default(),
            turns: Turns::default(),
        }
    }

    /// Memory for an operation; `counted` where it is to be reckoned with when others ask how much they may take.
    pub(crate) fn work_memory(&self, bytes: u64, counted: bool) -> Result<WorkMemory> {
        let mut memory = self.memory(Purpose::Work, bytes)?;
        if counted {
            self.holders.fetch_add(1, Ordering::Relaxed);
            memory.counted = true;
        }
        Ok(memory)
    }

    /// See [`crate::Engine::memory`].
    pub(crate) fn memory(&self, purpose: Purpose, bytes: u64) -> Result<WorkMemory> {
        let lender = self.clone();
        let mut memory = WorkMemory { lender, purpose, charge: None, lent: Vec::new(), counted: false };
        memory.set(bytes)?;
        Ok(memory)
    }

    /// See [`crate::Engine::work_limit`].
    pub(crate) fn work_limit(&self) -> u64 {
        let holders = self.holders.load(Ordering::Relaxed).max(1);
        (self.budget.limit() / WORK_SHARE / holders).max(WORK_LEAST)
    }

    /// Has page frames give `bytes` of memory to the budget, for something that charges it on its own, until the
    /// returned value is dropped. Gives less where frames have no more to give; the charge then fails.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<Room> {
        let mut room = Room { lender: self.clone(), lent: Vec::new() };
        self.lend_frames(bytes, &mut room.lent)?;
        Ok(room)
    }

    /// Has the pools give up `bytes`, the largest one first; false when they have no more to give.
    fn lend_frames(&self, bytes: u64, lent: &mut Lent) -> Result<bool> {
        let mut pools = self.pools.lock().clone();
        pools.sort_by_key(|pool| std::cmp::Reverse(pool.charged_bytes()));
        let mut left = bytes;
        for pool in pools {
            let given = pool.give_memory((left as usize).div_ceil(pool.page_size()))?;
            left = left.saturating_sub((given * pool.page_size()) as u64);
            if given > 0 {
                lent.push((pool, given));
            }
            if left == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets frames come back, and those that could not before.
    fn take_back(&self, lent: &[(Arc<Pool>, usize)]) {
        for (pool, frames) in lent {
            if !pool.return_memory(*frames) {
                self.owed.store(true, Ordering::Relaxed);
            }
        }
        if self.owed.load(Ordering::Relaxed) {
            self.owed.store(false, Ordering::Relaxed);
            if self.pools.lock().iter().filter(|pool| !pool.return_memory(0)).count() > 0 {
                self.owed.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Memory of a running operation, see [`crate::Engine::work_memory`], or of something else for which frames make room, see
/// [`crate::Engine::memory`].
#[derive(Debug)]
pub struct WorkMemory {
    lender: Lender,
    purpose: Purpose,
    charge: Option<Charge>,
    lent: Lent,
    counted: bool,
}

impl WorkMemory {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }

    /// Takes `bytes` more; where the budget has no room for them, [`Error::Memory`], and what is held stays as it is.
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        self.set(self.bytes().saturating_add(bytes))
    }

    /// Gives back all but `bytes`; does nothing when no more are held.
    pub fn shrink_to(&mut self, bytes: u64) {
        let freed = self.bytes().saturating_sub(bytes);
        let Some(charge) = self.charge.as_mut().filter(|_| freed > 0) else { return };
        charge.resize(bytes).expect("shrinking a charge succeeds");
        let mut left = freed as usize;
        for (pool, frames) in &mut self.lent {
            let back = (left / pool.page_size()).min(*frames);
            self.lender.take_back(&[(Arc::clone(pool), back)]);
            *frames -= back;
            left -= back * pool.page_size();
        }
        self.lent.retain(|(_, frames)| *frames > 0);
    }

    fn set(&mut self, bytes: u64) -> Result<()> {
        let mut lent = Vec::new();
        let budget = &self.lender.budget;
        let wanted = budget.used() + bytes.saturating_sub(self.bytes()) + left_for_others(budget);
        if bytes > self.bytes() && wanted > budget.limit() {
            // For others; where frames have not that much, it is enough if there is room for this one.
            let missing = (wanted - budget.limit()).min(budget.limit());
            if let Err(error) = self.lender.lend_frames(missing, &mut lent) {
                self.lender.take_back(&lent);
                return Err(error);
            }
        }
        loop {
            let result = match &mut self.charge {
                Some(charge) => charge.resize(bytes),
                None => self.lender.budget.charge(self.purpose, bytes).map(|charge| {
                    self.charge = Some(charge);
                }),
            };
            let Err(refusal) = result else { break };
            let missing = refusal.requested - (refusal.limit - refusal.used).min(refusal.requested);
            let outcome = self.lender.lend_frames(missing, &mut lent);
            if !matches!(outcome, Ok(true)) {
                self.lender.take_back(&lent);
                return Err(outcome.err().unwrap_or(Error::Memory(refusal)));
            }
        }
        for (pool, frames) in lent {
            match self.lent.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &pool)) {
                Some((_, count)) => *count += frames,
                None => self.lent.push((pool, frames)),
            }
        }
        Ok(())
    }
}

impl Drop for WorkMemory {
    fn drop(&mut self) {
        if self.counted {
            self.lender.holders.fetch_sub(1, Ordering::Relaxed);
        }
        // The charge goes first: the frames take its place in the budget.
        self.charge = None;
        self.lender.take_back(&self.lent);
    }
}

/// Room in the budget that page frames made, see [`Lender::make_room`].
#[derive(Debug)]
pub(crate) struct Room {
    lender: Lender,
    lent: Lent,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.lender.take_back(&self.lent);
    }
}
