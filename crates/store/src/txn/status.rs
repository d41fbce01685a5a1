//! A lossy cache of recent commits: which commit sequence number has a version's writer?
//!
//! # What it guarantees
//! 1. [`StatusCache::get`] gives the number that was put for exactly this transaction, or nothing. It takes no lock
//!    and writes to no shared memory.
//! 2. Any entry may be lost at any time: another transaction of the same slot replaces it, and of two that are put at
//!    once one is dropped.
//!
//! A slot is a sequence lock (Lamport 1977; Boehm 2012, "Can seqlocks get along with programming language memory
//! models?"). A tag without a sequence would not do: between two looks at a tag the slot may have gone to another
//! transaction and come back, since old transactions are put again after a look-up in the status tree.

use gannet_base::TxnId;
use gannet_base::memory::{Budget, Charge, OverBudget, Purpose};
use gannet_base::sync;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What became of a version's writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// Not ended: running, being committed, or being reverted.
    Running,
    /// Committed with this commit sequence number, and visible to snapshots of at least that number.
    Committed(u64),
    /// Ended, and not remembered here: the status tree knows.
    Unknown,
}

#[derive(Debug, Default)]
struct Slot {
    /// Odd while somebody writes the slot.
    sequence: AtomicU64,
    txn: AtomicU64,
    csn: AtomicU64,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct StatusCache {
    slots: Box<[Slot]>,
    _charge: Charge,
}

const MOST_SLOTS: u64 = 64 << 10;
const FEWEST_SLOTS: u64 = 256;
/// The cache takes at most this fraction of the memory budget.
const BUDGET_FRACTION: u64 = 256;

impl StatusCache {
    /// A cache whose size follows the budget: 64 Ki slots (1.5 MiB) from 384 MiB on.
    pub(super) fn sized_by(budget: &Budget) -> Result<Self, OverBudget> {
        let affordable = budget.limit() / BUDGET_FRACTION / size_of::<Slot>() as u64;
        // A power of two not above what is affordable.
        let slots = 1u64 << affordable.clamp(FEWEST_SLOTS, MOST_SLOTS).ilog2();
        Self::with_slots(budget, slots as usize)
    }

    /// A cache of `count` slots, a power of two.
    pub(super) fn with_slots(budget: &Budget, count: usize) -> Result<Self, OverBudget> {
        assert!(count.is_power_of_two());
        let charge = budget.charge(Purpose::Transactions, (count * size_of::<Slot>()) as u64)?;
        Ok(StatusCache { slots: (0..count).map(|_| Slot::default()).collect(), _charge: charge })
    }

    fn slot(&self, txn: TxnId) -> &Slot {
        // Ids are given in sequence: neighbours in time never collide.
        &self.slots[txn.0 as usize & (self.slots.len() - 1)]
    }

    pub(super) fn get(&self, txn: TxnId) -> Option<u64> {
        let slot = self.slot(txn);
        let before = slot.sequence.load(Ordering::Acquire);
        if before & 1 != 0 {
            return None;
        }
        let found = slot.txn.load(Ordering::Relaxed);
        sync::yield_point();
        let csn = slot.csn.load(Ordering::Relaxed);
        // If one of these loads saw a later writer's store, the load below sees that writer's odd sequence, or a
        // later one: the writer's release fence pairs with this one.
        fence(Ordering::Acquire);
        let unchanged = slot.sequence.load(Ordering::Relaxed) == before;
        (unchanged && found == txn.0 && csn != 0).then_some(csn)
    }

    pub(super) fn put(&self, txn: TxnId, csn: u64) {
        assert!(!txn.is_none() && csn != 0);
        let slot = self.slot(txn);
        let before = slot.sequence.load(Ordering::Relaxed);
        if before & 1 != 0
            || slot
                .sequence
                .compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        fence(Ordering::Release);
        slot.txn.store(txn.0, Ordering::Relaxed);
        sync::yield_point();
        slot.csn.store(csn, Ordering::Relaxed);
        slot.sequence.store(before + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::sim::Simulation;
    use gannet_base::{random, thread};
    use std::sync::Arc;

    fn csn_of(txn: u64) -> u64 {
        txn * 1000 + 7
    }

    /// Two slots for eight transactions, read and put by three threads at once.
    fn hammer(rounds: u64) {
        let cache = Arc::new(StatusCache::with_slots(&Budget::new(1 << 20), 2).unwrap());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let cache = Arc::clone(&cache);
                thread::spawn("cache", move || {
                    let mut hits = 0;
                    for _ in 0..rounds {
                        let put = 1 + random::below(8);
                        cache.put(TxnId(put), csn_of(put));
                        let get = 1 + random::below(8);
                        if let Some(csn) = cache.get(TxnId(get)) {
                            assert_eq!(csn, csn_of(get), "a csn of another transaction");
                            hits += 1;
                        }
                    }
                    hits
                })
            })
            .collect();
        let hits: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert!(hits > 0);
    }

    #[test]
    fn the_cache_never_gives_another_transactions_number() {
        for seed in 0..300 {
            Simulation::new(seed).run(|| hammer(40)).unwrap();
        }
        // With real threads as well: the simulation does not reorder memory accesses.
        hammer(300_000);
    }

    #[test]
    fn the_size_follows_the_budget_and_is_charged() {
        let budget = Budget::new(1 << 30);
        let cache = StatusCache::sized_by(&budget).unwrap();
        assert_eq!((cache.slots.len(), budget.used_for(Purpose::Transactions)), (64 << 10, 3 << 19));
        drop(cache);
        assert_eq!(budget.used(), 0);
        assert_eq!(StatusCache::sized_by(&Budget::new(64 << 20)).unwrap().slots.len(), 8 << 10);
        assert!(StatusCache::sized_by(&Budget::new(100)).is_err());
    }
}
