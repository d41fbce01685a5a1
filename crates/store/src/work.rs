//! Memory of running operations: charged to the budget, in which page frames make room.
//!
//! # What it guarantees
//! 1. What is held is charged before it is handed out; the budget's limit is never exceeded.
//! 2. Frames given up for somebody come back, to those pools that gave them, when the budget has room for them again.
//! 3. As long as frames have anything to give, a part of the budget is left for those who cannot ask frames for room: cursors,
//!    sessions, plans. One large sort does not make everybody else's statements fail. Who can do with less takes nothing of that part
//!    even when frames have nothing to give ([`WorkMemory::grow_leaving`]): so who spills finds memory for a block to write with.
//!
//! Who needs a few KiB for a statement does not take them from frames, nor give them back, one by one: frames give some more than is asked
//! for, and come back once there is room for more than that. In between statements touch a counter and no lock.

use crate::pool::Pool;
use crate::turns::Turns;
use crate::{Error, Result};
use gannet_base::memory::{Budget, Charge, Purpose};
use gannet_base::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Fraction of the budget that all operations are meant to take together.
const WORK_SHARE: u64 = 4;
/// Who is alone takes this fraction of the frames without a page besides: nobody loses a page by that, but for those that come soon.
const UNUSED_SHARE: u64 = 2;
/// And no more than this fraction of the budget: he and one who comes later, with his share, are within half of it.
const ALONE_SHARE: u64 = 8;
/// The least that one operation may count on, in bytes, and the least where there are so many that they would not have that together.
const WORK_LEAST: u64 = 1 << 20;
const WORK_LEAST_OF_MANY: u64 = 256 << 10;
/// Fraction of the budget that is left for others.
const LEFT_SHARE: u64 = 32;
/// Frames come back when there is room for twice this fraction of the budget besides what is left for others, as far as room for once of it stays.
const MORE_SHARE: u64 = 128;
/// Bytes that frames give on top of what is asked for, at most that fraction. Whoever asks waits for them, and the frames are missed elsewhere: what
/// statements take together at most is lent in many small steps, and then stays lent.
const MORE_MOST: u64 = 512 << 10;

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
    /// Those for whom frames made room that is not charged yet: nothing comes back to frames meanwhile.
    asking: Arc<AtomicUsize>,
    /// Some frames have not come back.
    owed: Arc<AtomicBool>,
    /// Held by whoever has frames make room for others.
    lending: Arc<Mutex<()>>,
    pub(crate) turns: Turns,
}

/// Somebody for whom frames make room, until he has charged it.
#[derive(Debug)]
struct Asking(Arc<AtomicUsize>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Lender {
    pub(crate) fn new(budget: Budget) -> Self {
        Lender {
            budget,
            pools: Arc::default(),
            holders: Arc::default(),
            asking: Arc::default(),
            owed: Arc::default(),
            lending: Arc::default(),
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
        let mut memory = WorkMemory { lender, purpose, charge: None, counted: false };
        memory.set(bytes, 0)?;
        Ok(memory)
    }

    /// See [`crate::Engine::work_limit`].
    pub(crate) fn work_limit(&self) -> u64 {
        let (share, limit) = (self.work_share(), self.budget.limit());
        if self.holders.load(Ordering::Relaxed) > 1 {
            return share;
        }
        let pools = self.pools.lock().clone();
        let unused: u64 = pools.iter().map(|pool| (pool.free_frames() * pool.page_size()) as u64).sum();
        share + (unused / UNUSED_SHARE).min(limit / ALONE_SHARE)
    }

    /// See [`crate::Engine::work_share`].
    pub(crate) fn work_share(&self) -> u64 {
        let holders = self.holders.load(Ordering::Relaxed).max(1);
        let limit = self.budget.limit();
        let least = WORK_LEAST.min(limit / 4 * 3 / holders).max(WORK_LEAST_OF_MANY);
        (limit / WORK_SHARE / holders).max(least)
    }

    /// Has page frames give `bytes` of memory to the budget, for something that charges it on its own, until the
    /// returned value is dropped. Gives less where frames have no more to give; the charge then fails.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<Room> {
        let mut room = Room { lender: self.clone(), asking: Some(self.ask()), given: Vec::new() };
        self.have_given(bytes, |pool, frames| room.given.push((Arc::clone(pool), frames)))?;
        Ok(room)
    }

    fn ask(&self) -> Asking {
        self.asking.fetch_add(1, Ordering::Acquire);
        Asking(Arc::clone(&self.asking))
    }

    /// Has the pools lend `bytes`, until there is room for them again; false when they have no more to give.
    fn lend_frames(&self, bytes: u64) -> Result<bool> {
        self.have_given(bytes, |pool, frames| self.owe(pool, frames))
    }

    /// Where `bytes` more would leave too little for others, has the pools lend what is missing. One does so at a time: of many who find at
    /// once that there is too little, each would take as much as all of them need.
    fn keep_room(&self, bytes: u64) -> Result<Option<Asking>> {
        let limit = self.budget.limit();
        let wanted = |left: u64| self.budget.used().saturating_add(bytes).saturating_add(left);
        let left = left_for_others(&self.budget);
        if wanted(left) <= limit {
            return Ok(None);
        }
        let asking = self.ask();
        let _turn = match self.lending.try_lock() {
            Some(turn) => turn,
            // Somebody is at it, and there is enough meanwhile.
            None if wanted(left / 2) <= limit => return Ok(Some(asking)),
            None => self.lending.lock(),
        };
        let missing = wanted(left).saturating_sub(limit);
        if missing > 0 {
            // For others; where frames have not that much, it is enough if there is room for this one.
            self.lend_frames(missing.min(limit) + MORE_MOST.min(limit / MORE_SHARE))?;
        }
        Ok(Some(asking))
    }

    /// Has a part of the budget left for others, as far as frames give it without waiting, and no more than that, where who takes and gives
    /// memory does not ask frames; to be called now and then.
    pub(crate) fn tend_room(&self) -> Result<()> {
        let missing = self.budget.used() + left_for_others(&self.budget);
        let missing = missing.saturating_sub(self.budget.limit());
        if missing > 0
            && let Some(_turn) = self.lending.try_lock()
        {
            self.have_given_by(
                missing,
                |pool, frames| pool.give_ready_memory(frames),
                |pool, frames| self.owe(pool, frames),
            )?;
        }
        self.take_back();
        Ok(())
    }

    fn owe(&self, pool: &Pool, frames: usize) {
        pool.owe(frames);
        self.owed.store(true, Ordering::Release);
    }

    /// Has the pools give up `bytes`, the largest one first; false when they have no more to give.
    fn have_given(&self, bytes: u64, told: impl FnMut(&Arc<Pool>, usize)) -> Result<bool> {
        self.have_given_by(bytes, |pool, frames| pool.give_memory(frames), told)
    }

    fn have_given_by(
        &self,
        bytes: u64,
        give: impl Fn(&Pool, usize) -> Result<usize>,
        mut told: impl FnMut(&Arc<Pool>, usize),
    ) -> Result<bool> {
        let mut pools = self.pools.lock().clone();
        pools.sort_by_key(|pool| std::cmp::Reverse(pool.charged_bytes()));
        let mut left = bytes;
        for pool in pools {
            let given = give(&pool, (left as usize).div_ceil(pool.page_size()))?;
            left = left.saturating_sub((given * pool.page_size()) as u64);
            if given > 0 {
                told(&pool, given);
            }
            if left == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets frames come back, where there is room for more than a few.
    pub(crate) fn take_back(&self) {
        if !self.owed.load(Ordering::Relaxed) {
            return;
        }
        let more = self.budget.limit() / MORE_SHARE;
        let left = left_for_others(&self.budget) + more;
        let room = self.budget.limit().saturating_sub(self.budget.used());
        if room < left + more || self.asking.load(Ordering::Acquire) > 0 {
            return;
        }
        // Before it is looked: who lends some meanwhile says so afterwards.
        self.owed.store(false, Ordering::Relaxed);
        let pools = self.pools.lock().clone();
        let unpaid = pools.iter().filter(|pool| !pool.return_memory(left)).count();
        if unpaid > 0 {
            self.owed.store(true, Ordering::Release);
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
    counted: bool,
}

impl WorkMemory {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }

    /// None yet, for which the same frames make room.
    pub(crate) fn another(&self, purpose: Purpose) -> WorkMemory {
        WorkMemory { lender: self.lender.clone(), purpose, charge: None, counted: false }
    }

    /// Takes `bytes` more; where the budget has no room for them, [`Error::Memory`], and what is held stays as it is.
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        self.set(self.bytes().saturating_add(bytes), 0)
    }

    /// The same for who can do with less: where frames have nothing to give, it takes nothing of what is left for others.
    pub fn grow_leaving(&mut self, bytes: u64) -> Result<()> {
        let left = left_for_others(&self.lender.budget);
        self.set(self.bytes().saturating_add(bytes), left)
    }

    /// It is no operation's any more, with which others would have to be content with less.
    pub fn uncounted(mut self) -> Self {
        if std::mem::take(&mut self.counted) {
            self.lender.holders.fetch_sub(1, Ordering::Relaxed);
        }
        self
    }

    /// Gives back all but `bytes`; does nothing when no more are held.
    pub fn shrink_to(&mut self, bytes: u64) {
        let freed = self.bytes().saturating_sub(bytes);
        let Some(charge) = self.charge.as_mut().filter(|_| freed > 0) else { return };
        charge.resize(bytes).expect("shrinking a charge succeeds");
        self.lender.take_back();
    }

    /// Holds `bytes` in all, and grows to that only where `left` stay free.
    fn set(&mut self, bytes: u64, left: u64) -> Result<()> {
        let more = bytes.saturating_sub(self.bytes());
        let mut asking = if more > 0 { self.lender.keep_room(more)? } else { None };
        loop {
            let charge = match &mut self.charge {
                Some(charge) => charge,
                none => none.insert(self.lender.budget.charge(self.purpose, 0).map_err(Error::Memory)?),
            };
            let Err(refusal) = charge.resize_leaving(bytes, left) else { return Ok(()) };
            asking.get_or_insert_with(|| self.lender.ask());
            let missing = refusal.used.saturating_add(refusal.requested).saturating_sub(refusal.limit);
            let outcome = self.lender.lend_frames(missing);
            if !matches!(outcome, Ok(true)) {
                drop(asking);
                self.lender.take_back();
                return Err(outcome.err().unwrap_or(Error::Memory(refusal)));
            }
        }
    }
}

impl Drop for WorkMemory {
    fn drop(&mut self) {
        if self.counted {
            self.lender.holders.fetch_sub(1, Ordering::Relaxed);
        }
        // The charge goes first: the frames take its place in the budget.
        self.charge = None;
        self.lender.take_back();
    }
}

/// Room in the budget that page frames made, see [`Lender::make_room`].
#[derive(Debug)]
pub(crate) struct Room {
    lender: Lender,
    asking: Option<Asking>,
    /// What frames were given up: of which pool, and how many.
    given: Vec<(Arc<Pool>, usize)>,
}

impl Room {
    /// What it was made for is charged by now.
    pub(crate) fn charged(mut self) -> Self {
        self.asking = None;
        self.lender.take_back();
        self
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.asking = None;
        for (pool, frames) in &self.given {
            self.lender.owe(pool, *frames);
        }
        self.lender.take_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::thread;

    const PAGE: u64 = 8192;
    const NEEDS: u64 = 2 * PAGE;

    /// A budget in which `free` bytes are left, with half of it in frames.
    fn lender(free: u64) -> (Lender, Arc<Pool>, Charge) {
        let lender = Lender::new(Budget::new(64 << 20));
        let pool = Pool::new(PAGE as usize, 4096, &lender.budget).unwrap();
        lender.pools.lock().push(Arc::clone(&pool));
        let rest = lender.budget.limit() - lender.budget.used() - free;
        let rest = lender.budget.charge(Purpose::Sessions, rest).unwrap();
        (lender, pool, rest)
    }

    #[test]
    fn of_many_who_find_too_little_room_one_has_frames_make_it() {
        // Less than anybody takes without waiting for who makes room.
        let free = (64 << 20) / LEFT_SHARE / 4;
        let (lender, pool, _rest) = lender(free);
        let (frames, turn) = (pool.active_frames(), lender.lending.lock());
        let threads: Vec<_> = (0..12)
            .map(|_| {
                let lender = lender.clone();
                thread::spawn("asks", move || lender.memory(Purpose::Work, NEEDS).unwrap())
            })
            .collect();
        while lender.asking.load(Ordering::Acquire) < 12 {
            thread::yield_now();
        }
        assert_eq!(pool.active_frames(), frames, "nobody lends beside him whose turn it is");
        drop(turn);
        let _held: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let missing = left_for_others(&lender.budget) - free + 12 * NEEDS + MORE_MOST;
        let given = (frames - pool.active_frames()) as u64 * PAGE;
        assert!(given > MORE_MOST && given <= missing + PAGE, "{given} of {missing}");
    }

    #[test]
    fn a_part_is_left_where_who_takes_does_not_ask_frames_and_no_more_than_that() {
        let (lender, pool, _rest) = lender((64 << 20) / LEFT_SHARE);
        let frames = pool.active_frames();
        let free = || lender.budget.limit() - lender.budget.used();
        lender.tend_room().unwrap();
        assert_eq!(pool.active_frames(), frames, "that much is left");
        let taken = lender.budget.charge(Purpose::Sessions, 1 << 20).unwrap();
        lender.tend_room().unwrap();
        assert!(free() >= left_for_others(&lender.budget), "{}", free());
        assert!(pool.active_frames() < frames);
        drop(taken);
        lender.tend_room().unwrap();
        assert!(pool.active_frames() + 128 > frames, "{} of {frames}", pool.active_frames());
        assert!(free() >= left_for_others(&lender.budget), "{}", free());
    }

    #[test]
    fn who_finds_enough_while_another_makes_room_does_not_wait_for_him() {
        let (lender, pool, _rest) = lender((64 << 20) / LEFT_SHARE - PAGE);
        let (frames, _turn) = (pool.active_frames(), lender.lending.lock());
        let held = lender.memory(Purpose::Work, NEEDS).unwrap();
        assert_eq!((held.bytes(), pool.active_frames()), (NEEDS, frames));
    }
}
