//! Turns of operations that take much memory.
//!
//! # What it guarantees
//! 1. No more of them run at a time than the budget has decent shares for; whoever comes later waits in line, and holds next to nothing
//!    meanwhile. One that needs several shares waits for all of them, but for no more than there are.
//! 2. Who has a turn never waits for one again. Who changes or locks rows, or has done so in his transaction, is not kept waiting for long, as
//!    others may wait for him: he gives up, and takes one without waiting. While he waits for a row himself, his turn does not count, as
//!    the row's owner may wait for whom it keeps waiting, be it through a program with two sessions. So those who have turns that count wait for nobody who waits for one.
//! 3. A turn whose owner has waited for its client, or slept, for a moment in all does not count any more: neither what a client leaves lying nor
//!    what it fetches slowly keeps others waiting.

use crate::transaction::Canceller;
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the budget for each that runs: with what page frames, sessions and temporary files take, and as the first ones hold more
/// than those who come later.
const BUDGET_EACH: u64 = 8 << 20;
/// A turn counts until its owner has waited so long for its client, or slept.
const IDLE_MOST: Duration = Duration::from_secs(1);
/// How often a waiter looks whether it is to give up, and whether somebody has become idle.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Who has a turn.
#[derive(Debug)]
struct Owner {
    number: u64,
    /// Shares that it takes.
    shares: u64,
    /// Its transaction.
    transaction: Option<Canceller>,
    /// Since when it waits for its client, or sleeps.
    idle_since: Option<Instant>,
    /// How long it has done so before.
    idle: Duration,
}

impl Owner {
    fn idle(&self) -> Duration {
        self.idle + self.idle_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn counts(&self) -> bool {
        self.idle() < IDLE_MOST && !self.transaction.as_ref().is_some_and(Canceller::is_waiting)
    }
}

#[derive(Debug, Default)]
struct Owners {
    next: u64,
    running: Vec<Owner>,
    /// Numbers of those who wait, in line.
    waiting: VecDeque<u64>,
}

impl Owners {
    /// Shares that are taken.
    fn busy(&self) -> u64 {
        self.running.iter().filter(|owner| owner.counts()).map(|owner| owner.shares).sum()
    }
}

/// See the module's head. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Arc<(Mutex<Owners>, Condvar)>);

impl Turns {
    /// A turn for an operation that will need about `bytes`; where it `waits` and too many run, once it is the first in line and enough
    /// of them have ended. `None` when `give_up` says so.
    pub(crate) fn take(
        &self,
        budget: u64,
        bytes: u64,
        waits: bool,
        transaction: Option<Canceller>,
        mut give_up: impl FnMut() -> bool,
    ) -> Option<Turn> {
        let (owners, ended) = &*self.0;
        let most = (budget / BUDGET_EACH).max(1);
        let shares = bytes.div_ceil(BUDGET_EACH).clamp(1, most);
        let mut owners = owners.lock();
        let number = owners.next;
        owners.next += 1;
        if waits {
            owners.waiting.push_back(number);
            while owners.waiting.front() != Some(&number) || owners.busy() + shares > most {
                if give_up() {
                    owners.waiting.retain(|waiting| *waiting != number);
                    ended.notify_all();
                    return None;
                }
                ended.wait_for(&mut owners, LOOK_EVERY);
            }
            owners.waiting.pop_front();
            ended.notify_all();
        }
        owners.running.push(Owner { number, shares, transaction, idle_since: None, idle: Duration::ZERO });
        drop(owners);
        Some(Turn { turns: self.clone(), number })
    }
}

/// A turn, until it is dropped: see [`Engine::turn`](crate::Engine::turn).
#[derive(Debug)]
pub struct Turn {
    turns: Turns,
    number: u64,
}

impl Turn {
    /// It turns out that its owner needs about `bytes`: those who come later take them into account.
    pub fn widen(&self, bytes: u64) {
        let mut owners = self.turns.0.0.lock();
        if let Some(owner) = owners.running.iter_mut().find(|owner| owner.number == self.number) {
            owner.shares = owner.shares.max(bytes.div_ceil(BUDGET_EACH));
        }
    }

    /// Its owner waits for its client or sleeps, or no longer does.
    pub fn set_idle(&self, idle: bool) {
        let mut owners = self.turns.0.0.lock();
        if let Some(owner) = owners.running.iter_mut().find(|owner| owner.number == self.number) {
            owner.idle = owner.idle();
            owner.idle_since = idle.then(clock::now);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (owners, ended) = &*self.turns.0;
        owners.lock().running.retain(|owner| owner.number != self.number);
        ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::sim::Simulation;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_run_than_have_a_share_and_all_get_their_turn() {
        let turns = Turns::default();
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let _turn = turns.take(3 * BUDGET_EACH, 1, true, None, || false).unwrap();
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    // The first ones wait for each other, however late they begin; others could come in meanwhile, and later.
                    for _ in 0..12_000 {
                        clock::sleep(Duration::from_millis(5));
                        if most.load(Ordering::SeqCst) >= 3 {
                            break;
                        }
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!((most.into_inner(), turns.0.0.lock().busy()), (3, 0));
    }

    #[test]
    fn who_needs_several_shares_gets_them_in_line() {
        let turns = Turns::default();
        let budget = 4 * BUDGET_EACH;
        let first = turns.take(budget, 1, true, None, || true).unwrap();
        let started = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            // More than there are: all of them.
            let wide = scope.spawn(|| {
                let turn = turns.take(budget, 9 * BUDGET_EACH, true, None, || false).unwrap();
                (started.fetch_add(1, Ordering::SeqCst), turn)
            });
            while turns.0.0.lock().waiting.len() != 1 {
                gannet_base::thread::yield_now();
            }
            // Would have room, but is behind.
            let narrow = scope.spawn(|| {
                let _turn = turns.take(budget, 1, true, None, || false).unwrap();
                started.fetch_add(1, Ordering::SeqCst)
            });
            while turns.0.0.lock().waiting.len() != 2 {
                gannet_base::thread::yield_now();
            }
            drop(first);
            let (place, turn) = wide.join().unwrap();
            assert_eq!((place, turns.0.0.lock().busy()), (0, 4));
            drop(turn);
            assert_eq!(narrow.join().unwrap(), 1);
        });
        let turn = turns.take(budget, 1, true, None, || true).unwrap();
        turn.widen(4 * BUDGET_EACH);
        assert!(turns.take(budget, 1, true, None, || true).is_none());
    }

    #[test]
    fn who_waits_can_give_up_and_is_not_kept_by_the_idle() {
        let run = || {
            let turns = Turns::default();
            let first = turns.take(0, 1, true, None, || false).unwrap();
            assert!(turns.take(0, 1, true, None, || true).is_none());
            // Who changes rows does not wait.
            drop(turns.take(0, 1, false, None, || true).unwrap());
            // Not how long it waits at one time counts, but how long in all.
            for _ in 0..5 {
                assert!(turns.take(0, 1, true, None, || true).is_none());
                first.set_idle(true);
                clock::sleep(IDLE_MOST / 5);
                first.set_idle(false);
            }
            let second = turns.take(0, 1, true, None, || true).unwrap();
            assert!(turns.take(0, 1, true, None, || true).is_none());
            drop((first, second));
            assert!(turns.take(0, 1, true, None, || true).is_some());
        };
        Simulation::new(1).run(run).unwrap();
    }
}
