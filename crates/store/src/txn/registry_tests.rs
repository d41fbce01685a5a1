//! The registry under many schedules, against a fake log and a full history of what was committed.

use super::active::{ActiveTxn, State};
use super::registry::{Commit, Durability, Owner, Registry, Snapshot};
use super::status::{Status, StatusCache};
use crate::Error;
use gannet_base::memory::Budget;
use gannet_base::sim::Simulation;
use gannet_base::sync::{Mutex, yield_point};
use gannet_base::{Lsn, TxnId, random, thread};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const FIRST: u64 = 10;
const FIRST_CSN: u64 = 100;

#[derive(Clone, Copy, Debug)]
enum Verdict {
    Committed { csn: u64, lsn: Lsn, durability: Durability },
    Reverted,
}

/// A log that only counts, and everything that ever happened.
struct World {
    registry: Arc<Registry>,
    end: AtomicU64,
    durable: AtomicU64,
    history: Mutex<BTreeMap<TxnId, Verdict>>,
}

impl World {
    fn new() -> Arc<Self> {
        let cache = StatusCache::with_slots(&Budget::new(1 << 20), 4).unwrap();
        Arc::new(World {
            registry: Registry::with_cache(TxnId(FIRST), FIRST_CSN, cache),
            end: AtomicU64::new(FIRST_CSN),
            durable: AtomicU64::new(FIRST_CSN),
            history: Mutex::default(),
        })
    }

    fn snapshot(&self) -> Snapshot {
        self.registry.take_snapshot(Owner { session: 1, label: "test", limit: None })
    }

    fn sync_log(&self) -> Lsn {
        let end = self.end.load(Ordering::SeqCst);
        yield_point();
        Lsn(self.durable.fetch_max(end, Ordering::SeqCst).max(end))
    }

    /// Logs the commit without waiting for anything.
    fn log_commit(&self, txn: &Arc<ActiveTxn>, durability: Durability) -> crate::Result<Commit> {
        let csn_source = || self.end.load(Ordering::SeqCst) + 1;
        self.registry.commit(txn, durability, csn_source, |csn| {
            let size = 1 + random::below(5);
            let lsn = Lsn(self.end.fetch_add(size, Ordering::SeqCst) + size);
            self.history.lock().insert(txn.id(), Verdict::Committed { csn, lsn, durability });
            yield_point();
            Ok(lsn)
        })
    }

    /// As a session commits: waits until its commit is visible.
    fn commit(&self, txn: &Arc<ActiveTxn>, durability: Durability) {
        let commit = self.log_commit(txn, durability).unwrap();
        if durability == Durability::Sync && commit.needs_durable == Lsn::ZERO {
            assert!(self.durable.load(Ordering::SeqCst) >= commit.lsn.0);
        }
        if commit.needs_durable != Lsn::ZERO {
            let durable = loop {
                let durable = self.sync_log();
                if durable >= commit.needs_durable {
                    break durable;
                }
            };
            self.registry.advance_visible(durable);
        }
        assert!(self.registry.visible_csn() >= commit.csn, "reported before it is visible");
    }

    fn abort(&self, txn: &Arc<ActiveTxn>) {
        self.registry.begin_abort(txn);
        assert_eq!(self.registry.status(txn.id()), Status::Running);
        yield_point();
        self.history.lock().insert(txn.id(), Verdict::Reverted);
        self.registry.finish_abort(txn);
        assert_eq!(self.registry.status(txn.id()), Status::Unknown);
    }

    /// Guarantees 1 to 3 of the registry, seen from a snapshot.
    fn check(&self, snapshot: &Snapshot) {
        let horizon = self.registry.horizon();
        assert!(horizon <= snapshot.xmin(), "{horizon} is above {}", snapshot.xmin());
        assert!(self.registry.oldest_visible_csn() <= snapshot.csn());
        assert!(self.registry.anyone_sees(snapshot.csn(), snapshot.csn() + 1));
        let history = self.history.lock().clone();
        for id in (FIRST..snapshot.xmin().0).map(TxnId) {
            match history.get(&id) {
                Some(Verdict::Committed { csn, .. }) => {
                    assert!(snapshot.sees(*csn), "{id} is below xmin and not seen")
                }
                Some(Verdict::Reverted) => {}
                None => panic!("{id} is below xmin and running"),
            }
        }
        for (id, verdict) in &history {
            let status = self.registry.status(*id);
            match (verdict, status) {
                (Verdict::Reverted, Status::Committed(_)) => panic!("{id} was reverted"),
                (Verdict::Committed { csn, .. }, Status::Committed(said)) => assert_eq!(said, *csn),
                (Verdict::Committed { csn, .. }, Status::Running) => {
                    assert!(!snapshot.sees(*csn), "{id} is seen and said to run")
                }
                (_, Status::Unknown | Status::Running) => {}
            }
        }
        for id in (horizon.0..).map_while(|id| self.registry.find(TxnId(id))) {
            assert!(id.id() >= horizon);
        }
    }

    /// What is visible is durable, apart from asynchronous commits.
    fn check_durability(&self) {
        let visible = self.registry.visible_csn();
        let history = self.history.lock().clone();
        let durable = self.durable.load(Ordering::SeqCst);
        for (id, verdict) in history {
            if let Verdict::Committed { csn, lsn, durability: Durability::Sync } = verdict {
                assert!(csn > visible || lsn.0 <= durable, "{id} is visible and not durable");
            }
        }
    }
}

fn writer(world: &World) {
    for _ in 0..6 {
        let txn = world.registry.begin_write(usize::MAX).unwrap();
        for _ in 0..random::below(3) {
            yield_point();
        }
        match random::below(4) {
            0 => world.abort(&txn),
            1 => world.commit(&txn, Durability::Async),
            _ => world.commit(&txn, Durability::Sync),
        }
    }
}

fn reader(world: &World) {
    let mut kept: Vec<Snapshot> = Vec::new();
    let mut last = (0, TxnId(0));
    for _ in 0..12 {
        let snapshot = world.snapshot();
        assert!((snapshot.csn(), snapshot.xmin()) >= last, "a later snapshot sees less");
        last = (snapshot.csn(), snapshot.xmin());
        kept.push(snapshot);
        world.check(&kept[random::below(kept.len() as u64) as usize]);
        world.check_durability();
        if random::below(2) == 0 {
            drop(kept.swap_remove(random::below(kept.len() as u64) as usize));
        }
    }
}

#[test]
fn snapshots_statuses_and_the_horizon_hold_under_many_schedules() {
    for seed in 0..400 {
        let run = || {
            let world = World::new();
            let bodies: [fn(&World); 5] = [writer, writer, writer, reader, reader];
            let threads = bodies.map(|body| {
                let world = Arc::clone(&world);
                thread::spawn("session", move || body(&world))
            });
            threads.into_iter().for_each(|t| t.join().unwrap());
            let registry = &world.registry;
            assert_eq!((registry.next_txn(), registry.horizon()), (TxnId(FIRST + 18), TxnId(FIRST + 18)));
            assert!(registry.active().is_empty() && registry.snapshots().is_empty());
            assert_eq!(registry.oldest_visible_csn(), registry.visible_csn());
            let history = world.history.lock().clone();
            let committed = history.values().filter_map(|v| match v {
                Verdict::Committed { csn, .. } => Some(*csn),
                Verdict::Reverted => None,
            });
            assert_eq!(registry.visible_csn(), committed.max().unwrap_or(FIRST_CSN));
        };
        Simulation::new(seed).run(run).unwrap();
    }
}

#[test]
fn an_asynchronous_commit_does_not_overtake_a_synchronous_one() {
    let world = World::new();
    let registry = &world.registry;
    let [a, b, c, d] = [(); 4].map(|()| registry.begin_write(usize::MAX).unwrap());
    let a = world.log_commit(&a, Durability::Async).unwrap();
    assert_eq!((a.needs_durable, registry.visible_csn()), (Lsn::ZERO, a.csn));
    let b = world.log_commit(&b, Durability::Sync).unwrap();
    let c = world.log_commit(&c, Durability::Async).unwrap();
    assert_eq!((b.needs_durable, c.needs_durable), (b.lsn, b.lsn));
    assert_eq!(registry.visible_csn(), a.csn);
    let d = world.log_commit(&d, Durability::Sync).unwrap();
    assert_eq!(registry.advance_visible(Lsn(b.lsn.0 - 1)), a.csn);
    assert_eq!(registry.advance_visible(b.lsn), c.csn);
    assert_eq!(registry.advance_visible(Lsn::ZERO), c.csn);
    assert_eq!(registry.advance_visible(d.lsn), d.csn);
    assert!(registry.active().is_empty());
}

#[test]
fn a_commit_is_running_until_it_is_visible() {
    let world = World::new();
    let registry = &world.registry;
    let txn = registry.begin_write(usize::MAX).unwrap();
    let commit = world.log_commit(&txn, Durability::Sync).unwrap();
    registry.cache_committed(txn.id(), commit.csn);
    assert_eq!(registry.status(txn.id()), Status::Running);
    assert_eq!((registry.horizon(), txn.state()), (txn.id(), State::Committing));
    registry.advance_visible(commit.lsn);
    assert_eq!(registry.status(txn.id()), Status::Committed(commit.csn));
    assert!(txn.has_ended() && registry.find(txn.id()).is_none());
}

#[test]
fn a_refused_commit_can_be_aborted_and_leaves_no_trace() {
    let world = World::new();
    let registry = &world.registry;
    let txn = registry.begin_write(usize::MAX).unwrap();
    let full = |_| Err(Error::NoSpace("log".to_owned()));
    assert!(registry.commit(&txn, Durability::Sync, || FIRST_CSN + 1, full).is_err());
    assert_eq!((txn.state(), txn.csn()), (State::Running, 0));
    world.abort(&txn);
    let next = registry.begin_write(usize::MAX).unwrap();
    world.commit(&next, Durability::Sync);
    assert_eq!(registry.visible_csn(), FIRST_CSN + 1);
}

#[test]
fn a_doomed_transaction_cannot_commit() {
    let world = World::new();
    let registry = &world.registry;
    let txn = registry.begin_write(usize::MAX).unwrap();
    assert!(registry.doom(txn.id()) && txn.is_doomed());
    assert!(matches!(world.log_commit(&txn, Durability::Sync), Err(Error::Cancelled)));
    world.abort(&txn);
    assert!(!registry.doom(txn.id()));
    let late = registry.begin_write(usize::MAX).unwrap();
    let commit = world.log_commit(&late, Durability::Sync).unwrap();
    assert!(!registry.doom(late.id()), "its commit is in the log");
    registry.advance_visible(commit.lsn);
}

#[test]
fn losers_hold_the_horizon_until_they_are_reverted() {
    let world = World::new();
    let registry = &world.registry;
    let (a, b) = (registry.insert_loser(TxnId(7), 70), registry.insert_loser(TxnId(4), 40));
    assert_eq!((a.newest_undo(), b.state()), (70, State::Aborting));
    assert_eq!((registry.horizon(), registry.status(TxnId(7))), (TxnId(4), Status::Running));
    registry.finish_abort(&b);
    assert_eq!(registry.horizon(), TxnId(7));
    let snapshot = world.snapshot();
    registry.finish_abort(&a);
    assert_eq!(registry.horizon(), TxnId(7), "held by the snapshot");
    drop(snapshot);
    assert_eq!(registry.horizon(), TxnId(FIRST));
}

#[test]
fn versions_between_live_snapshots_are_seen_by_nobody() {
    let world = World::new();
    let registry = &world.registry;
    let commit = || {
        let txn = registry.begin_write(usize::MAX).unwrap();
        world.commit(&txn, Durability::Sync);
        registry.visible_csn()
    };
    let old = world.snapshot();
    let (a, b) = (commit(), commit());
    let middle = world.snapshot();
    let twin = world.snapshot();
    let c = commit();
    assert!(registry.anyone_sees(FIRST_CSN, a), "by the old snapshot");
    assert!(!registry.anyone_sees(a, b));
    assert!(registry.anyone_sees(b, c), "by the middle one");
    assert!(registry.anyone_sees(c, c + 1), "by one yet to be taken");
    assert_eq!(registry.oldest_visible_csn(), FIRST_CSN);
    let oldest = registry.oldest_snapshot().unwrap();
    assert_eq!((oldest.csn, oldest.xmin, oldest.owner.label), (FIRST_CSN, TxnId(FIRST), "test"));
    drop(old);
    assert!(!registry.anyone_sees(FIRST_CSN, a));
    assert_eq!((registry.oldest_visible_csn(), registry.snapshots().len()), (b, 2));
    drop(middle);
    assert!(registry.anyone_sees(b, c), "by the twin");
    drop(twin);
    assert!(!registry.anyone_sees(b, c) && registry.oldest_snapshot().is_none());
    assert_eq!(registry.oldest_visible_csn(), c);
}

/// A mark of somebody who was gone when it was made stayed for ever, and every step of everybody looked for his own.
#[test]
fn who_is_gone_is_not_told_to_end() {
    let run = |seed: u64| {
        move || {
            let world = World::new();
            let registry = Arc::clone(&world.registry);
            let snapshot = world.snapshot();
            let txn = registry.begin_write(usize::MAX).unwrap();
            txn.set_handle(2, None);
            let ender = {
                let registry = Arc::clone(&registry);
                thread::spawn("ends them", move || [1, 2].map(|owner| registry.expire(owner)))
            };
            (0..seed % 7).for_each(|_| yield_point());
            drop(snapshot);
            registry.forget_owner(1);
            registry.begin_abort(&txn);
            registry.finish_abort(&txn);
            registry.forget_owner(2);
            ender.join().unwrap();
            assert!(!registry.is_expired(1) && !registry.is_expired(2));
            assert!(!registry.expire(1) && !registry.is_expired(1));
        }
    };
    for seed in 0..100 {
        Simulation::new(seed).run(run(seed)).unwrap();
    }
}
