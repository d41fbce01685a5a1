//! Shared row locks: who conflicts with whom, savepoints, accounting, and the protocol with row writers.

use super::active::ActiveTxn;
use super::locks::{Added, LockTable, Mode, Room, WriteKind};
use super::registry::Registry;
use gannet_base::memory::{Budget, Purpose};
use gannet_base::sim::Simulation;
use gannet_base::sync::{RwLock, yield_point};
use gannet_base::{TreeId, TxnId, random, thread};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const TREE: TreeId = TreeId(40);

struct Fixture {
    registry: Arc<Registry>,
    budget: Budget,
    table: LockTable,
    /// What the registry's own structures take.
    base: u64,
}

impl Fixture {
    fn new(cap_bytes: u64) -> Self {
        let budget = Budget::new(8 << 20);
        let registry = Registry::new(TxnId(1), 1, &budget).unwrap();
        let base = budget.used_for(Purpose::Transactions);
        Fixture { registry, table: LockTable::new(&budget, cap_bytes), budget, base }
    }

    fn begin(&self) -> Arc<ActiveTxn> {
        self.registry.begin_write(usize::MAX).unwrap()
    }

    fn add(&self, key: &[u8], txn: &Arc<ActiveTxn>, mode: Mode) {
        assert_eq!(self.table.try_add(TREE, key, txn, mode, Room::Common), Added::Yes);
    }

    fn against(&self, key: &[u8], me: &ActiveTxn, write: WriteKind) -> Vec<TxnId> {
        self.table.conflicting(TREE, key, me.id(), write).iter().map(|t| t.id()).collect()
    }

    fn end(&self, txn: &Arc<ActiveTxn>) {
        self.registry.begin_abort(txn);
        self.registry.finish_abort(txn);
    }

    fn assert_empty(&self) {
        assert_eq!((self.table.used_bytes(), self.table.list(10)), (0, vec![]));
        assert_eq!(self.budget.used_for(Purpose::Transactions), self.base);
    }
}

#[test]
fn modes_conflict_as_documented() {
    let f = Fixture::new(1 << 20);
    let (a, b, me) = (f.begin(), f.begin(), f.begin());
    f.add(b"k", &a, Mode::KeyShare);
    f.add(b"k", &b, Mode::Share);
    f.add(b"k", &me, Mode::Share);
    assert_eq!(f.against(b"k", &me, WriteKind::Update), [b.id()]);
    assert_eq!(f.against(b"k", &me, WriteKind::Delete), [a.id(), b.id()]);
    assert!(f.against(b"other", &me, WriteKind::Delete).is_empty());
    assert!(f.table.conflicting(TreeId(41), b"k", me.id(), WriteKind::Delete).is_empty());
    // One that has ended is not waited for, released or not.
    f.end(&b);
    assert!(f.against(b"k", &me, WriteKind::Update).is_empty());
    [&a, &b, &me].into_iter().for_each(|t| f.table.release_all(t));
    f.assert_empty();
}

#[test]
fn a_lock_is_strengthened_and_never_weakened() {
    let f = Fixture::new(1 << 20);
    let (a, me) = (f.begin(), f.begin());
    f.add(b"k", &a, Mode::KeyShare);
    let used = f.table.used_bytes();
    f.add(b"k", &a, Mode::KeyShare);
    assert_eq!(f.table.used_bytes(), used, "the same lock again costs nothing");
    f.add(b"k", &a, Mode::Share);
    f.add(b"k", &a, Mode::KeyShare);
    assert_eq!(f.against(b"k", &me, WriteKind::Update), [a.id()]);
    assert_eq!(f.table.list(10).len(), 1);
    f.table.release_all(&a);
    f.table.release_all(&a);
    f.assert_empty();
}

#[test]
fn a_savepoint_gives_back_what_came_after_it() {
    let f = Fixture::new(1 << 20);
    let (a, me) = (f.begin(), f.begin());
    f.add(b"before", &a, Mode::KeyShare);
    let mark = f.table.mark(&a);
    let used = f.table.used_bytes();
    assert!(!f.table.release_since(&a, mark));
    f.add(b"after", &a, Mode::Share);
    f.add(b"before", &a, Mode::Share);
    assert_eq!(f.against(b"before", &me, WriteKind::Update), [a.id()]);
    assert!(f.table.release_since(&a, mark));
    assert_eq!(f.table.used_bytes(), used);
    assert!(f.against(b"before", &me, WriteKind::Update).is_empty(), "weakened again");
    assert_eq!(f.against(b"before", &me, WriteKind::Delete), [a.id()]);
    assert!(f.against(b"after", &me, WriteKind::Delete).is_empty());
    f.table.release_all(&a);
    f.assert_empty();
}

#[test]
fn a_full_table_changes_nothing() {
    let f = Fixture::new(1000);
    let (a, b) = (f.begin(), f.begin());
    let mut count = 0u8;
    while f.table.try_add(TREE, &[count], &a, Mode::Share, Room::Common) == Added::Yes {
        count += 1;
    }
    assert!(count > 1);
    let (used, list) = (f.table.used_bytes(), f.table.list(100));
    assert!(used <= 1000 && list.len() == usize::from(count));
    assert_eq!(f.table.try_add(TREE, b"x", &b, Mode::KeyShare, Room::Common), Added::TableFull);
    assert_eq!((f.table.used_bytes(), f.table.list(100)), (used, list.clone()));
    // What many share has room still, and an end as well.
    assert_eq!(f.table.try_add(TREE, b"d", &b, Mode::KeyShare, Room::Kept), Added::Yes);
    assert!(f.table.used_bytes() <= 1000);
    while f.table.try_add(TREE, &[b'd', count], &b, Mode::KeyShare, Room::Kept) == Added::Yes {
        count += 1;
    }
    assert!(f.table.used_bytes() <= 1000);
    f.table.release_all(&b);
    assert_eq!((f.table.used_bytes(), f.table.list(100)), (used, list));
    assert_eq!(f.table.list(1).len(), 1);
    f.table.release_all(&a);
    f.add(b"x", &b, Mode::KeyShare);
    f.table.release_all(&b);
    f.assert_empty();
    // The budget is a limit as well.
    let rest = f.budget.limit() - f.budget.used();
    let hog = f.budget.charge(Purpose::Work, rest).unwrap();
    assert_eq!(f.table.try_add(TREE, b"x", &b, Mode::Share, Room::Common), Added::TableFull);
    drop(hog);
    f.assert_empty();
}

/// One row under one latch: its exclusive owner, and the values that readers in share mode must not see change.
#[derive(Default)]
struct Row {
    owner: Option<Arc<ActiveTxn>>,
    value: u64,
}

struct Bank {
    fixture: Fixture,
    rows: [RwLock<Row>; 2],
}

impl Bank {
    /// Locks row `i` in share mode, or exclusively when the table is full.
    fn share(&self, i: usize, txn: &Arc<ActiveTxn>) -> crate::Result<()> {
        loop {
            let looked = self.fixture.registry.waits().ticket();
            let holders = {
                let row = self.rows[i].read();
                match other_owner(&row, txn) {
                    Some(owner) => vec![owner],
                    None => {
                        match self.fixture.table.try_add(TREE, &[i as u8], txn, Mode::Share, Room::Common) {
                            Added::Yes => return Ok(()),
                            Added::TableFull => {
                                drop(row);
                                return self.write(i, txn, WriteKind::Delete, |_| {});
                            }
                        }
                    }
                }
            };
            let never = AtomicBool::new(false);
            self.fixture.registry.waits().wait_for(txn, &holders, looked, None, &never)?;
        }
    }

    fn write(
        &self,
        i: usize,
        txn: &Arc<ActiveTxn>,
        kind: WriteKind,
        change: impl Fn(&mut u64),
    ) -> crate::Result<()> {
        loop {
            let looked = self.fixture.registry.waits().ticket();
            let holders = {
                let mut row = self.rows[i].write();
                let holders = match other_owner(&row, txn) {
                    Some(owner) => vec![owner],
                    None => self.fixture.table.conflicting(TREE, &[i as u8], txn.id(), kind),
                };
                if holders.is_empty() {
                    row.owner = Some(Arc::clone(txn));
                    change(&mut row.value);
                    return Ok(());
                }
                holders
            };
            let never = AtomicBool::new(false);
            self.fixture.registry.waits().wait_for(txn, &holders, looked, None, &never)?;
        }
    }

    fn session(&self) {
        for _ in 0..4 {
            let txn = self.fixture.begin();
            let i = random::below(2) as usize;
            let outcome = if random::below(3) == 0 {
                self.write(i, &txn, WriteKind::Update, |value| *value += 1)
            } else {
                self.share(i, &txn).map(|()| {
                    let seen = self.rows[i].read().value;
                    (0..3).for_each(|_| yield_point());
                    assert_eq!(self.rows[i].read().value, seen, "changed under a share lock");
                })
            };
            // Taking the second row as well makes deadlocks possible.
            let outcome = outcome.and_then(|()| self.share(1 - i, &txn));
            assert!(matches!(outcome, Ok(()) | Err(crate::Error::Deadlock(_))), "{outcome:?}");
            if random::below(2) == 0 {
                self.fixture.table.release_all(&txn);
                self.fixture.end(&txn);
            } else {
                self.fixture.end(&txn);
                self.fixture.table.release_all(&txn);
            }
        }
    }
}

fn other_owner(row: &Row, me: &ActiveTxn) -> Option<Arc<ActiveTxn>> {
    row.owner.clone().filter(|owner| owner.id() != me.id() && !owner.has_ended())
}

#[test]
fn shared_locks_and_row_writers_exclude_each_other_under_many_schedules() {
    for seed in 0..300 {
        let run = move || {
            // Every third run has room for two locks only.
            let cap = if seed % 3 == 0 { 400 } else { 1 << 20 };
            let bank = Arc::new(Bank { fixture: Fixture::new(cap), rows: Default::default() });
            let session = |_| {
                let bank = Arc::clone(&bank);
                thread::spawn("session", move || bank.session())
            };
            let threads: Vec<_> = (0..4).map(session).collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            bank.fixture.assert_empty();
            assert!(bank.fixture.registry.waits().list().is_empty());
        };
        Simulation::new(seed).run(run).unwrap();
    }
}
