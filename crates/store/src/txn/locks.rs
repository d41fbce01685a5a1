//! Shared row locks (`FOR SHARE`, and `FOR KEY SHARE` as foreign keys take it). An exclusive lock is not here: it is
//! the writer's id in the row itself.
//!
//! # What it guarantees
//! 1. A lock added is found by every [`LockTable::conflicting`] of another transaction until it is released, or its
//!    transaction has ended.
//! 2. The memory of all locks never exceeds the table's cap nor the budget. When there is no room the answer is
//!    [`Added::TableFull`], nothing was changed, and the caller takes the row's exclusive lock instead: stricter, but
//!    stored in the row. Of rows that many share, such as definitions, that would let one writer after the other work: a part of the
//!    memory is for locks of these ([`Room::Kept`]).
//! 3. Releasing takes time in proportion to what the transaction holds; with no lock left, the accounting is at zero.
//!
//! A writer that waits for sharers says so, see [`LockTable::queue`]: whoever comes later and does not share the row yet waits
//! behind him, or else a row that is shared without a pause, such as a table's definition under load, would starve him.
//! Nobody depends on that: who would wait in a circle because of it goes ahead.
//!
//! # Invariants
//! 1. **The leaf's latch makes "look at the row, then at the table" atomic.** `try_add` is called under the shared
//!    latch of the leaf that holds the row (or would hold it), after the caller saw that no other transaction owns
//!    the row; `conflicting` under its exclusive latch, before the writer puts its id in. So for one row the two
//!    never run at the same time, and the latch orders one's memory accesses before the other's. Releases need no
//!    latch.
//! 2. `Shard::count` is the number of (lock, holder) pairs in the shard. It is raised before a pair is added and
//!    lowered after one is removed, both under the shard's mutex; by invariant 1 a writer that reads 0 misses nothing.
//! 3. Each pair in the table stands once in its transaction's list with `before: None`, at the place where it was
//!    acquired; each strengthening of it stands further behind. Undoing the list from its end therefore restores what
//!    was held at any earlier length.
//! 4. The charge of a transaction = the sum of the costs of its list entries; a key shared by several holders is
//!    charged to each, so whoever stays last has paid for it.

use super::active::ActiveTxn;
use super::holds::HeldTrees;
use super::waits::Waits;
use gannet_base::memory::{Budget, Charge, Purpose};
use gannet_base::sync::Mutex;
use gannet_base::{TreeId, TxnId, checksum};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How a row is locked in share mode. The later one includes the earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Mode {
    /// The row must stay, with its key: what a foreign key needs.
    KeyShare,
    /// The row must stay as it is.
    Share,
}

/// From which memory a lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// What there is for all.
    Common,
    /// That and what others leave free, for rows of which there are few.
    Kept,
}

/// Which part of the memory for locks only [`Room::Kept`] has.
const KEPT_PART: u64 = 4;

/// What a writer is about to do to a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteKind {
    /// Change columns that no foreign key refers to (`FOR NO KEY UPDATE`): conflicts with [`Mode::Share`].
    Update,
    /// Delete it, change its key, or lock it exclusively (`FOR UPDATE`): conflicts with every mode.
    Delete,
}

impl WriteKind {
    fn conflicts_with(self, mode: Mode) -> bool {
        self == WriteKind::Delete || mode == Mode::Share
    }
}

/// What came of [`LockTable::try_add`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Added {
    /// The transaction holds the lock.
    Yes,
    /// There is no memory for it: take the exclusive lock in the row.
    TableFull,
}

/// How far a transaction's lists of locks and of held trees reached, for a savepoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockMark {
    rows: usize,
    trees: usize,
}

/// A lock, as views show it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LockInfo {
    /// The row's tree.
    pub(crate) tree: TreeId,
    /// The row's key.
    pub(crate) key: Box<[u8]>,
    /// Who holds it.
    pub(crate) txn: TxnId,
    /// How.
    pub(crate) mode: Mode,
}

#[derive(Debug)]
struct HeldLock {
    tree: TreeId,
    key: Arc<[u8]>,
    /// The mode that this one replaced.
    before: Option<Mode>,
}

impl HeldLock {
    fn cost(&self) -> u64 {
        cost_of(&self.key)
    }
}

/// Bytes charged for a lock.
fn cost_of(key: &[u8]) -> u64 {
    LOCK_BYTES + key.len() as u64
}

/// The shared row locks of one transaction, in the order they were taken, and the trees it holds.
#[derive(Debug, Default)]
pub(super) struct Held {
    list: Vec<HeldLock>,
    charge: Option<Charge>,
    pub(super) trees: HeldTrees,
}

impl Held {
    fn charge_more(&mut self, budget: &Budget, bytes: u64) -> bool {
        match &mut self.charge {
            Some(charge) => charge.resize(charge.bytes() + bytes).is_ok(),
            none => {
                *none = budget.charge(Purpose::Transactions, bytes).ok();
                none.is_some()
            }
        }
    }

    fn charge_less(&mut self, bytes: u64) {
        let charge = self.charge.as_mut().expect("a lock was charged");
        charge.resize(charge.bytes() - bytes).expect("shrinking a charge succeeds");
        if charge.bytes() == 0 {
            self.charge = None;
        }
    }
}

type Holders = Vec<(Arc<ActiveTxn>, Mode)>;
type Rows = BTreeMap<Arc<[u8]>, Holders>;
type Row = (TreeId, Box<[u8]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard {
    count: AtomicUsize,
    locks: Mutex<BTreeMap<TreeId, Rows>>,
}

const SHARDS: usize = 64;

/// Memory of one lock beside its key: an entry of the transaction's list and one of the table, with room for what
/// collections and the allocator leave unused.
const LOCK_BYTES: u64 = 192;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct LockTable {
    shards: Box<[Shard]>,
    budget: Budget,
    cap_bytes: u64,
    used_bytes: AtomicU64,
    /// Writers that wait for sharers, by row.
    queues: Mutex<BTreeMap<Row, Vec<Arc<ActiveTxn>>>>,
    /// Writers in `queues`.
    queued: AtomicUsize,
    /// Transactions that are about to drop a tree, or have done so and are not over: see [`super::holds`].
    pub(super) droppers: AtomicUsize,
}

/// A writer's place in a row's queue, until it is dropped.
#[derive(Debug)]
pub(crate) struct Queued<'t> {
    table: &'t LockTable,
    waits: &'t Waits,
    row: Row,
    txn: Arc<ActiveTxn>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut queues = self.table.queues.lock();
        if let Some(queue) = queues.get_mut(&self.row) {
            queue.retain(|txn| !Arc::ptr_eq(txn, &self.txn));
            if queue.is_empty() {
                queues.remove(&self.row);
            }
        }
        self.table.queued.fetch_sub(1, Ordering::SeqCst);
        drop(queues);
        // Those behind him look again: at the row that is his now, or at who is ahead of them if he has given up.
        self.waits.released_some(&self.txn);
    }
}

impl LockTable {
    /// An empty table that takes at most `cap_bytes` of `budget`.
    pub(crate) fn new(budget: &Budget, cap_bytes: u64) -> Self {
        LockTable {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            budget: budget.clone(),
            cap_bytes,
            used_bytes: AtomicU64::new(0),
            queues: Mutex::default(),
            queued: AtomicUsize::new(0),
            droppers: AtomicUsize::new(0),
        }
    }

    /// Bytes charged for all locks.
    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn shard(&self, tree: TreeId, key: &[u8]) -> &Shard {
        &self.shards[checksum::seeded(u64::from(tree.0), key) as usize % SHARDS]
    }

    /// Locks a row in share mode for `txn`, or strengthens the lock it has. The caller holds the leaf's shared latch
    /// and saw that nobody else owns the row (invariant 1).
    pub(crate) fn try_add(
        &self,
        tree: TreeId,
        key: &[u8],
        txn: &Arc<ActiveTxn>,
        mode: Mode,
        room: Room,
    ) -> Added {
        assert!(!txn.has_ended(), "{} takes a lock after its end", txn.id());
        let mut held = txn.held.lock();
        let shard = self.shard(tree, key);
        let mut locks = shard.locks.lock();
        let entry = locks.get(&tree).and_then(|rows| rows.get_key_value(key));
        let place = entry.and_then(|(_, holders)| holders.iter().position(|(h, _)| Arc::ptr_eq(h, txn)));
        let before = place.and_then(|place| entry.map(|(_, holders)| holders[place].1));
        if before.is_some_and(|before| before >= mode) {
            return Added::Yes;
        }
        if !self.reserve(&mut held, cost_of(key), room) {
            return Added::TableFull;
        }
        let key = entry.map_or_else(|| Arc::from(key), |(key, _)| Arc::clone(key));
        held.list.push(HeldLock { tree, key: Arc::clone(&key), before });
        let holders = locks.entry(tree).or_default().entry(key).or_insert_with(|| Vec::with_capacity(1));
        match place {
            Some(place) => holders[place].1 = mode,
            None => {
                shard.count.fetch_add(1, Ordering::Release);
                holders.push((Arc::clone(txn), mode));
            }
        }
        Added::Yes
    }

    /// Whose locks stand against a write of the row by `me`; empty when it may go on. The caller holds the leaf's
    /// exclusive latch (invariant 1). Costs one hash and one atomic load when the shard has no locks.
    pub(crate) fn conflicting(
        &self,
        tree: TreeId,
        key: &[u8],
        me: TxnId,
        write: WriteKind,
    ) -> Vec<Arc<ActiveTxn>> {
        let shard = self.shard(tree, key);
        if shard.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let locks = shard.locks.lock();
        let Some(holders) = locks.get(&tree).and_then(|rows| rows.get(key)) else { return Vec::new() };
        holders
            .iter()
            // A holder that has ended has merely not come to release its locks yet.
            .filter(|(txn, mode)| write.conflicts_with(*mode) && txn.id() != me && !txn.has_ended())
            .map(|(txn, _)| Arc::clone(txn))
            .collect()
    }

    /// Has those who want to share the row from now on wait behind `txn`, who waits for sharers.
    pub(crate) fn queue<'t>(
        &'t self,
        waits: &'t Waits,
        tree: TreeId,
        key: &[u8],
        txn: &Arc<ActiveTxn>,
    ) -> Queued<'t> {
        let row = (tree, Box::from(key));
        self.queues.lock().entry(Clone::clone(&row)).or_default().push(Arc::clone(txn));
        self.queued.fetch_add(1, Ordering::SeqCst);
        Queued { table: self, waits, row, txn: Arc::clone(txn) }
    }

    /// The writers behind whom `txn` waits before it shares the row: nobody if it does so already. The caller has taken his
    /// ticket before, so that he notices when they give up.
    pub(crate) fn ahead_of(&self, tree: TreeId, key: &[u8], txn: &Arc<ActiveTxn>) -> Vec<Arc<ActiveTxn>> {
        if self.queued.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let row = (tree, Box::from(key));
        let mut ahead = self.queues.lock().get(&row).cloned().unwrap_or_default();
        ahead.retain(|writer| !Arc::ptr_eq(writer, txn) && !writer.has_ended());
        let locks = self.shard(tree, key).locks.lock();
        let holders = locks.get(&tree).and_then(|rows| rows.get(key));
        if holders.is_some_and(|holders| holders.iter().any(|(holder, _)| Arc::ptr_eq(holder, txn))) {
            ahead.clear();
        }
        ahead
    }

    /// Where `txn`'s lists of locks and held trees end now.
    pub(crate) fn mark(&self, txn: &ActiveTxn) -> LockMark {
        let held = txn.held.lock();
        LockMark { rows: held.list.len(), trees: held.trees.len() }
    }

    /// Gives back what was locked or held, and undoes what was strengthened, since `mark`. Returns whether there was
    /// anything; if so the caller tells [`super::waits::Waits::released_some`].
    pub(crate) fn release_since(&self, txn: &ActiveTxn, mark: LockMark) -> bool {
        let mut held = txn.held.lock();
        assert!(
            mark.rows <= held.list.len() && mark.trees <= held.trees.len(),
            "a mark outlived an earlier one"
        );
        let any = mark.trees < held.trees.len();
        held.trees.truncate(mark.trees);
        if mark.rows == held.list.len() {
            return any;
        }
        let released = held.list.split_off(mark.rows);
        let mut bytes = 0;
        for lock in released.iter().rev() {
            self.undo(txn, lock);
            bytes += lock.cost();
        }
        held.charge_less(bytes);
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if mark.rows == 0 {
            held.list = Vec::new();
        }
        true
    }

    /// Gives back everything `txn` holds. To be called once its end is certain: a commit when it is visible, an abort
    /// when it is reverted. Before or after its end makes no difference to others.
    pub(crate) fn release_all(&self, txn: &ActiveTxn) {
        self.release_since(txn, LockMark { rows: 0, trees: 0 });
    }

    /// Up to `limit` locks, in order of tree, key and holder. Looks at one shard after the other, so it is no
    /// picture of one moment.
    pub(crate) fn list(&self, limit: usize) -> Vec<LockInfo> {
        let mut list = Vec::new();
        for shard in &self.shards {
            if shard.count.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let locks = shard.locks.lock();
            let pairs: usize = locks.values().flat_map(BTreeMap::values).map(Vec::len).sum();
            assert_eq!(pairs, shard.count.load(Ordering::Relaxed), "invariant 2");
            let rows = locks.iter().flat_map(|(tree, rows)| rows.iter().map(move |row| (*tree, row)));
            let infos = rows.flat_map(|(tree, (key, holders))| {
                holders.iter().map(move |(txn, mode)| LockInfo {
                    tree,
                    key: Box::from(&**key),
                    txn: txn.id(),
                    mode: *mode,
                })
            });
            list.extend(infos.take(limit - list.len()));
        }
        list.sort_unstable();
        list
    }

    /// Charges `bytes` to the cap and to the budget, or to neither.
    fn reserve(&self, held: &mut Held, bytes: u64, room: Room) -> bool {
        let cap = match room {
            Room::Common => self.cap_bytes - self.cap_bytes / KEPT_PART,
            Room::Kept => self.cap_bytes,
        };
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= cap);
        if self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return false;
        }
        let charged = held.charge_more(&self.budget, bytes);
        if !charged {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        charged
    }

    fn undo(&self, txn: &ActiveTxn, lock: &HeldLock) {
        let shard = self.shard(lock.tree, &lock.key);
        let mut locks = shard.locks.lock();
        let rows = locks.get_mut(&lock.tree).expect("a held lock is in the table");
        let holders = rows.get_mut(&lock.key).expect("a held lock is in the table");
        let place = holders.iter().position(|(h, _)| h.id() == txn.id()).expect("a holder is in its lock");
        if let Some(before) = lock.before {
            holders[place].1 = before;
            return;
        }
        holders.swap_remove(place);
        if holders.is_empty() {
            rows.remove(&lock.key);
            if rows.is_empty() {
                locks.remove(&lock.tree);
            }
        }
        shard.count.fetch_sub(1, Ordering::Release);
    }
}
