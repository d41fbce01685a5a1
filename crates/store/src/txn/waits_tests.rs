//! Waiting, waking and deadlocks under many schedules.

use super::active::ActiveTxn;
use super::registry::Registry;
use crate::{Error, Result};
use gannet_base::memory::Budget;
use gannet_base::sim::Simulation;
use gannet_base::sync::{Mutex, yield_point};
use gannet_base::{TxnId, clock, random, thread};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn registry() -> Arc<Registry> {
    Registry::new(TxnId(1), 1, &Budget::new(8 << 20)).unwrap()
}

fn end(registry: &Registry, txn: &Arc<ActiveTxn>) {
    registry.begin_abort(txn);
    registry.finish_abort(txn);
}

fn wait(registry: &Registry, waiter: &Arc<ActiveTxn>, holders: &[Arc<ActiveTxn>]) -> Result<()> {
    let waits = registry.waits();
    waits.wait_for(waiter, holders, waits.ticket(), None, &AtomicBool::new(false))
}

/// Waits like [`wait`] in a thread of its own, which then ends its transaction. Gives whether it was a victim.
fn waiting(
    registry: &Arc<Registry>,
    waiter: &Arc<ActiveTxn>,
    holders: &[Arc<ActiveTxn>],
) -> thread::JoinHandle<bool> {
    let (registry, waiter, holders) = (Arc::clone(registry), Arc::clone(waiter), holders.to_vec());
    thread::spawn("waiter", move || {
        let mut victim = false;
        // All have to end, one wake-up comes for each.
        while !victim && !holders.iter().all(|h| h.has_ended()) {
            let left: Vec<_> = holders.iter().filter(|h| !h.has_ended()).cloned().collect();
            match wait(&registry, &waiter, &left) {
                Ok(()) => {}
                Err(Error::Deadlock(holder)) => {
                    assert!(holders.iter().any(|h| h.id() == holder));
                    victim = true;
                }
                Err(error) => panic!("{error}"),
            }
        }
        end(&registry, &waiter);
        victim
    })
}

/// Runs one wait per transaction, `edges[i]` naming whom transaction i waits for, and counts the victims.
fn victims(seed: u64, edges: &'static [&'static [usize]]) -> usize {
    let run = move || {
        let registry = registry();
        let txns: Vec<_> = edges.iter().map(|_| registry.begin_write(usize::MAX).unwrap()).collect();
        let start = |(i, to): (usize, &&[usize])| {
            let holders: Vec<_> = to.iter().map(|&h| Arc::clone(&txns[h])).collect();
            waiting(&registry, &txns[i], &holders)
        };
        let threads: Vec<_> = edges.iter().enumerate().map(start).collect();
        let victims = threads.into_iter().map(|t| usize::from(t.join().unwrap())).sum();
        assert!(registry.waits().list().is_empty() && registry.active().is_empty());
        assert!(txns.iter().all(|t| t.waiters.load(Ordering::SeqCst) == 0));
        victims
    };
    Simulation::new(seed).run(run).unwrap()
}

#[test]
fn a_circle_has_exactly_one_victim() {
    for seed in 0..200 {
        assert_eq!(victims(seed, &[&[1], &[0]]), 1, "two, seed {seed}");
        assert_eq!(victims(seed, &[&[1], &[2], &[0]]), 1, "three, seed {seed}");
        assert_eq!(
            victims(seed, &[&[1], &[2, 3], &[], &[0]]),
            1,
            "through one of several holders, seed {seed}"
        );
        assert_eq!(victims(seed, &[&[1, 2, 3], &[], &[4], &[], &[5], &[0]]), 1, "five, seed {seed}");
        assert_eq!(victims(seed, &[&[1], &[0], &[3], &[2], &[0, 2]]), 2, "two circles, seed {seed}");
    }
}

#[test]
fn a_circle_through_the_second_holder_is_found_while_the_first_stays() {
    let run = || {
        let registry = registry();
        let [a, b, idle, c] = [(); 4].map(|()| registry.begin_write(usize::MAX).unwrap());
        let threads = [
            waiting(&registry, &a, &[Arc::clone(&b)]),
            waiting(&registry, &b, &[Arc::clone(&idle), Arc::clone(&c)]),
            waiting(&registry, &c, &[Arc::clone(&a)]),
        ];
        clock::sleep(Duration::from_secs(1));
        assert!(registry.active().len() < 4, "nobody was chosen");
        end(&registry, &idle);
        let victims: usize = threads.into_iter().map(|t| usize::from(t.join().unwrap())).sum();
        assert_eq!(victims, 1);
    };
    (0..200).for_each(|seed| Simulation::new(seed).run(run).unwrap());
}

#[test]
fn no_circle_no_victim() {
    for seed in 0..200 {
        assert_eq!(victims(seed, &[&[1], &[2], &[3], &[]]), 0, "chain, seed {seed}");
        assert_eq!(victims(seed, &[&[1, 2], &[3], &[3], &[]]), 0, "diamond, seed {seed}");
        assert_eq!(victims(seed, &[&[], &[0], &[0], &[0, 1, 2]]), 0, "fan, seed {seed}");
    }
}

/// Rows with exclusive owners, taken in random order by transactions that keep all until their end.
fn rows(workers: u64, ordered: bool) -> u64 {
    let registry = registry();
    let owners: Arc<Mutex<BTreeMap<u64, Arc<ActiveTxn>>>> = Arc::default();
    let worker = |_| {
        let (registry, owners) = (Arc::clone(&registry), Arc::clone(&owners));
        thread::spawn("worker", move || {
            let mut victims = 0;
            for _ in 0..4 {
                let txn = registry.begin_write(usize::MAX).unwrap();
                let mut wanted: Vec<u64> = (0..3).map(|_| random::below(4)).collect();
                if ordered {
                    wanted.sort_unstable();
                }
                if wanted.iter().any(|&row| lock_row(&registry, &owners, &txn, row).is_err()) {
                    victims += 1;
                }
                owners.lock().retain(|_, owner| owner.id() != txn.id());
                end(&registry, &txn);
            }
            victims
        })
    };
    let threads: Vec<_> = (0..workers).map(worker).collect();
    threads.into_iter().map(|t| t.join().unwrap()).sum()
}

fn lock_row(
    registry: &Registry,
    owners: &Mutex<BTreeMap<u64, Arc<ActiveTxn>>>,
    txn: &Arc<ActiveTxn>,
    row: u64,
) -> Result<()> {
    loop {
        let holder = {
            let mut owners = owners.lock();
            let owner = owners.entry(row).or_insert_with(|| Arc::clone(txn));
            Arc::clone(owner)
        };
        if holder.id() == txn.id() {
            return Ok(());
        }
        yield_point();
        wait(registry, txn, &[holder])?;
    }
}

#[test]
fn every_deadlock_on_rows_is_found_and_none_invented() {
    let mut victims = 0;
    for seed in 0..200 {
        // A missed deadlock or wake-up would leave the simulation with nobody who can run.
        victims += Simulation::new(seed).run(|| rows(4, false)).unwrap();
        assert_eq!(Simulation::new(seed).run(|| rows(4, true)).unwrap(), 0, "rows in order, seed {seed}");
    }
    assert!(victims > 20, "the test meets no deadlock");
}

#[test]
fn real_threads_lose_no_wake_up() {
    for _ in 0..20 {
        assert_eq!(rows(4, true), 0);
        rows(4, false);
    }
}

#[test]
fn one_of_several_holders_is_enough_to_look_again() {
    let run = || {
        let registry = registry();
        let [a, b, c] = [(); 3].map(|()| registry.begin_write(usize::MAX).unwrap());
        let ender = {
            let (registry, b) = (Arc::clone(&registry), Arc::clone(&b));
            thread::spawn("ender", move || end(&registry, &b))
        };
        wait(&registry, &a, &[Arc::clone(&c), b]).unwrap();
        ender.join().unwrap();
        // That of c does not reach a any more: it does not sleep.
        end(&registry, &c);
        assert!(a.waiters.load(Ordering::SeqCst) == 0 && !a.has_ended());
    };
    (0..100).for_each(|seed| Simulation::new(seed).run(run).unwrap());
}

#[test]
fn time_limits_are_kept() {
    let run = || {
        let registry = registry();
        let [a, b] = [(); 2].map(|()| registry.begin_write(usize::MAX).unwrap());
        let (waits, go) = (registry.waits(), AtomicBool::new(false));
        let holders = [Arc::clone(&b)];
        let started = clock::now();
        let no_wait = waits.wait_for(&a, &holders, waits.ticket(), Some(Duration::ZERO), &go);
        assert!(matches!(no_wait, Err(Error::Locked(id)) if id == b.id()));
        assert!(started.elapsed() < Duration::from_millis(1));
        let limited = waits.wait_for(&a, &holders, waits.ticket(), Some(Duration::from_secs(3)), &go);
        assert!(matches!(limited, Err(Error::Locked(id)) if id == b.id()));
        assert!(started.elapsed() >= Duration::from_secs(3));
        assert!(waits.list().is_empty());
        // The abandoned wait is no edge any more.
        end(&registry, &a);
        assert!(matches!(waits.wait_for(&b, &[a], waits.ticket(), Some(Duration::ZERO), &go), Ok(())));
    };
    (0..50).for_each(|seed| Simulation::new(seed).run(run).unwrap());
}

#[test]
fn a_sleeper_can_be_cancelled_and_doomed() {
    let run = || {
        let registry = registry();
        let [a, b, holder] = [(); 3].map(|()| registry.begin_write(usize::MAX).unwrap());
        let cancel = Arc::new(AtomicBool::new(false));
        let sleeper = |txn: &Arc<ActiveTxn>, cancel: Arc<AtomicBool>| {
            let (registry, txn, holder) = (Arc::clone(&registry), Arc::clone(txn), Arc::clone(&holder));
            thread::spawn("sleeper", move || {
                let waits = registry.waits();
                waits.wait_for(&txn, &[holder], waits.ticket(), None, &cancel)
            })
        };
        let first = sleeper(&a, Arc::clone(&cancel));
        let second = sleeper(&b, Arc::default());
        yield_point();
        cancel.store(true, Ordering::SeqCst);
        registry.waits().recheck();
        assert!(matches!(first.join().unwrap(), Err(Error::Cancelled)));
        assert!(registry.doom(b.id()));
        assert!(matches!(second.join().unwrap(), Err(Error::Cancelled)));
        assert!(registry.waits().list().is_empty());
    };
    (0..100).for_each(|seed| Simulation::new(seed).run(run).unwrap());
}

#[test]
fn a_rollback_to_a_savepoint_wakes_and_leaves_no_edge() {
    let run = || {
        let registry = registry();
        let [a, b] = [(); 2].map(|()| registry.begin_write(usize::MAX).unwrap());
        // Whether b holds the row that a wants.
        let held = Arc::new(Mutex::new(true));
        let waiter = {
            let (registry, a, b, held) =
                (Arc::clone(&registry), Arc::clone(&a), Arc::clone(&b), Arc::clone(&held));
            thread::spawn("waiter", move || {
                let waits = registry.waits();
                loop {
                    let looked = waits.ticket();
                    let free = !*held.lock();
                    yield_point();
                    if free {
                        return;
                    }
                    let holders = [Arc::clone(&b)];
                    waits.wait_for(&a, &holders, looked, None, &AtomicBool::new(false)).unwrap();
                }
            })
        };
        yield_point();
        *held.lock() = false;
        registry.waits().released_some(&b);
        // b still runs, and may wait for a: a does not wait for it any more.
        let (waits, never) = (registry.waits(), AtomicBool::new(false));
        let limit = Some(Duration::from_millis(1));
        let other = waits.wait_for(&b, &[a], waits.ticket(), limit, &never);
        assert!(matches!(other, Err(Error::Locked(_))), "{other:?}");
        waiter.join().unwrap();
    };
    (0..200).for_each(|seed| Simulation::new(seed).run(run).unwrap());
}

#[test]
fn courtesy_is_no_part_of_a_deadlock() {
    let run = || {
        let registry = registry();
        let [holder, writer, sharer] = [(); 3].map(|()| registry.begin_write(usize::MAX).unwrap());
        let sleeper = |txn: &Arc<ActiveTxn>, other: &Arc<ActiveTxn>, courteous: bool| {
            let (registry, txn, other) = (Arc::clone(&registry), Arc::clone(txn), Arc::clone(other));
            thread::spawn("sleeper", move || {
                let (waits, never) = (registry.waits(), AtomicBool::new(false));
                if courteous {
                    return waits.wait_behind(&txn, &[other], waits.ticket(), None, &never);
                }
                let waited = waits.wait_for(&txn, &[other], waits.ticket(), None, &never);
                end(&registry, &txn);
                waited.map(|()| false)
            })
        };
        // Each of them closes the circle under some schedules.
        let writer_waited = sleeper(&writer, &holder, false);
        let sharer_waited = sleeper(&sharer, &writer, true);
        let holder_waited = sleeper(&holder, &sharer, false);
        assert!(sharer_waited.join().unwrap().unwrap(), "the sharer goes ahead");
        end(&registry, &sharer);
        assert!(!holder_waited.join().unwrap().unwrap());
        assert!(!writer_waited.join().unwrap().unwrap());
        assert!(registry.waits().list().is_empty());
    };
    (0..300).for_each(|seed| Simulation::new(seed).run(run).unwrap());
}

/// Who waited for what a crash had cut short slept for ever once nobody reverted it any more.
#[test]
fn nobody_waits_for_a_loser_that_will_not_be_reverted() {
    let run = || {
        let registry = Registry::new(TxnId(5), 1, &Budget::new(8 << 20)).unwrap();
        let loser = registry.insert_loser(TxnId(3), 0);
        let other = registry.begin_write(usize::MAX).unwrap();
        other.set_handle(7, None);
        let sleeper = |holder: &Arc<ActiveTxn>| {
            let (registry, holder) = (Arc::clone(&registry), Arc::clone(holder));
            let waiter = registry.begin_write(usize::MAX).unwrap();
            thread::spawn("waiter", move || {
                let waited = wait(&registry, &waiter, &[holder]);
                end(&registry, &waiter);
                waited
            })
        };
        let (in_vain, in_time) = (sleeper(&loser), sleeper(&other));
        clock::sleep(Duration::from_millis(1));
        registry.waits().strand();
        assert!(matches!(in_vain.join().unwrap(), Err(Error::Cancelled)));
        let late = registry.begin_write(usize::MAX).unwrap();
        assert!(matches!(wait(&registry, &late, &[loser]), Err(Error::Cancelled)));
        assert_eq!(registry.waits().list().len(), 1, "others may yet end");
        end(&registry, &other);
        in_time.join().unwrap().unwrap();
        end(&registry, &late);
    };
    Simulation::new(1).run(run).unwrap();
}
