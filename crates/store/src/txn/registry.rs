//! Who is running, what is visible, and behind which point history may be forgotten.
//!
//! # What it guarantees
//! 1. Transactions become visible in the order of their commit records in the log, a synchronous one only when its
//!    record is durable, an asynchronous one never before an earlier synchronous one.
//! 2. A snapshot sees exactly the transactions with `csn <= snapshot.csn`. Each transaction with `id < snapshot.xmin`
//!    had ended when the snapshot was taken: it is seen by the snapshot, or reverted without a trace. So below `xmin`
//!    no status need be looked up.
//! 3. The horizon never falls, and no transaction below it is active or outside of any snapshot, now or later: whoever
//!    wrote a version and is below the horizon committed, and everybody sees it.
//!
//! # Invariants
//! 1. Under `commits`, log order = csn order = order in the queue = order of visibility. `visible` is stored only
//!    there, and only grows.
//! 2. A transaction ends in this order: `visible >= csn` is published; its status goes to the cache; it leaves the
//!    active table; its state becomes `Ended`; its waiters are woken. Whoever wakes up and takes a snapshot therefore
//!    sees the change it waited for, and a status look-up (cache, table, cache again) misses it only if the cache
//!    lost it.
//! 3. `oldest_active` = the smallest id in the active table, or the next id if the table is empty. It is stored only
//!    under the table's lock. It only grows: ids are given in sequence, and losers are inserted before the first
//!    snapshot is taken. A new id never changes it (in an empty table the next id becomes the smallest one).
//! 4. Snapshots are taken one at a time under `live`, which loads **`oldest_active` before `visible`**. If the load of
//!    `oldest_active` shows that T left the table, then by invariant 2 the later load of `visible` gives at least T's
//!    csn. The other way round, T could become visible and leave the table between the two loads: it would be below
//!    `xmin`, taken for visible without a look-up, and yet above the snapshot's csn. Half of the rows it changed
//!    would be seen, those whose header still names it and was compared with the csn would not.
//! 5. Both loads give growing values, so the live snapshots in order of csn are also in order of `xmin`: one ordered
//!    map keyed by (csn, xmin) has the smallest of each first.
//! 6. The horizon is computed under `live`, as min(`oldest_active`, smallest live `xmin`). A snapshot registered later
//!    loads an `oldest_active` that is not smaller, hence an `xmin` not below this horizon.
//!
//! Nothing here survives a crash, and nothing has to: ids, losers and the last csn come from the log.

use super::active::{ActiveTxn, State};
use super::status::{Status, StatusCache};
use super::waits::Waits;
use crate::mutation::{Mutation, planted};
use crate::{Error, Result};
use gannet_base::clock::{self, Instant};
use gannet_base::memory::Budget;
use gannet_base::sync::{self, Mutex, RwLock};
use gannet_base::{Lsn, TxnId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// When a commit becomes visible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// When its log record is durable.
    Sync,
    /// As soon as every earlier commit is visible.
    Async,
}

/// A commit that is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Commit {
    /// Its commit sequence number.
    pub(crate) csn: u64,
    /// Its record's LSN.
    pub(crate) lsn: Lsn,
    /// The commit is visible once [`Registry::advance_visible`] was called with at least this LSN. [`Lsn::ZERO`] when
    /// it is visible already. A committer waits for it before it reports success.
    pub(crate) needs_durable: Lsn,
}

/// Who takes a snapshot, for views.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Owner {
    /// The session's number.
    pub(crate) session: u64,
    /// What for, such as `"statement"` or `"backup"`.
    pub(crate) label: &'static str,
    /// How long it may hold garbage back.
    pub(crate) limit: Option<Duration>,
}

/// A live snapshot, as views show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotInfo {
    /// What it sees.
    pub(crate) csn: u64,
    /// Below this id everybody had ended.
    pub(crate) xmin: TxnId,
    /// When it was taken.
    pub(crate) started: Instant,
    /// Who took it.
    pub(crate) owner: Owner,
}

struct Pending {
    lsn: Lsn,
    csn: u64,
    durability: Durability,
    txn: Arc<ActiveTxn>,
}

struct Commits {
    queue: VecDeque<Pending>,
    last_csn: u64,
    last_lsn: Lsn,
    /// LSN of the last synchronous commit.
    last_sync: Lsn,
    /// The log is known to be durable up to here.
    durable: Lsn,
}

struct Active {
    next: u64,
    table: BTreeMap<TxnId, Arc<ActiveTxn>>,
}

impl Active {
    fn oldest(&self) -> u64 {
        self.table.first_key_value().map_or(self.next, |(id, _)| id.0)
    }
}

/// The slot of a snapshot that views do not show.
const NO_SLOT: u32 = u32::MAX;

struct Live {
    /// How many snapshots there are of each (csn, xmin).
    groups: BTreeMap<(u64, u64), u32>,
    slots: Vec<Option<SnapshotInfo>>,
    free: Vec<u32>,
    /// A snapshot was taken or the horizon was asked for: from now on neither may fall.
    begun: bool,
    /// The last horizon given out.
    horizon: u64,
}

/// See the module's head.
pub(crate) struct Registry {
    commits: Mutex<Commits>,
    active: RwLock<Active>,
    live: Mutex<Live>,
    /// Of the horizons that were computed the last one: see there.
    known_horizon: AtomicU64,
    visible: AtomicU64,
    oldest_active: AtomicU64,
    cache: StatusCache,
    waits: Waits,
    /// Owners that have held garbage back for too long, and are to end: how many, and their numbers.
    expired: (AtomicUsize, Mutex<BTreeSet<u64>>),
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("visible_csn", &self.visible_csn())
            .field("oldest_active", &self.oldest_active.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// A registry whose first transaction is `next_txn`, in a database where everything up to `visible_csn` is
    /// visible. The status cache is charged to `budget`.
    pub(crate) fn new(next_txn: TxnId, visible_csn: u64, budget: &Budget) -> Result<Arc<Self>> {
        Ok(Self::with_cache(next_txn, visible_csn, StatusCache::sized_by(budget)?))
    }

    pub(super) fn with_cache(next_txn: TxnId, visible_csn: u64, cache: StatusCache) -> Arc<Self> {
        assert!(!next_txn.is_none(), "id 0 means no transaction");
        let queue = VecDeque::new();
        Arc::new(Registry {
            commits: Mutex::new(Commits {
                queue,
                last_csn: visible_csn,
                last_lsn: Lsn::ZERO,
                last_sync: Lsn::ZERO,
                durable: Lsn::ZERO,
            }),
            active: RwLock::new(Active { next: next_txn.0, table: BTreeMap::new() }),
            known_horizon: AtomicU64::new(0),
            live: Mutex::new(Live {
                groups: BTreeMap::new(),
                slots: Vec::new(),
                free: Vec::new(),
                begun: false,
                horizon: 0,
            }),
            visible: AtomicU64::new(visible_csn),
            oldest_active: AtomicU64::new(next_txn.0),
            cache,
            waits: Waits::default(),
            expired: Default::default(),
        })
    }

    /// Where transactions wait for each other.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    // ---- transactions ----

    /// Gives a transaction its id, at its first write or row lock; `None` when `most` are active already.
    pub(crate) fn begin_write(&self, most: usize) -> Option<Arc<ActiveTxn>> {
        let started = clock::now();
        let mut active = self.active.write();
        if active.table.len() >= most {
            return None;
        }
        let id = TxnId(active.next);
        active.next += 1;
        let txn = Arc::new(ActiveTxn::new(id, State::Running, 0, started));
        active.table.insert(id, Arc::clone(&txn));
        Some(txn)
    }

    /// Registers a transaction that a crash interrupted, until its changes are reverted and
    /// [`finish_abort`](Self::finish_abort) is called. Only at restart, before the first snapshot.
    pub(crate) fn insert_loser(&self, id: TxnId, newest_undo: u64) -> Arc<ActiveTxn> {
        let live = self.live.lock();
        assert!(!live.begun, "{id} comes too late: snapshots may take it for ended");
        let mut active = self.active.write();
        assert!(!id.is_none() && id.0 < active.next, "{id} was never given out");
        let txn = Arc::new(ActiveTxn::new(id, State::Aborting, newest_undo, clock::now()));
        let before = active.table.insert(id, Arc::clone(&txn));
        assert!(before.is_none(), "{id} is active twice");
        self.oldest_active.store(active.oldest(), Ordering::Release);
        txn
    }

    /// Commits `txn`: takes a csn from `csn_source` (a log position), has `append` log the commit with it, and queues
    /// it to become visible. Both are called under the commit mutex.
    ///
    /// # Errors
    /// [`Error::Cancelled`] when the transaction is doomed, else what `append` says. Either way nothing is committed
    /// and the caller aborts. `append` must fail only when the record is not, and never will be, in the log.
    pub(crate) fn commit(
        &self,
        txn: &Arc<ActiveTxn>,
        durability: Durability,
        csn_source: impl FnOnce() -> u64,
        append: impl FnOnce(u64) -> Result<Lsn>,
    ) -> Result<Commit> {
        let mut commits = self.commits.lock();
        if !txn.change(State::Running, State::Committing) {
            assert!(txn.is_doomed(), "{} commits in state {:?}", txn.id(), txn.state());
            return Err(Error::Cancelled);
        }
        let csn = csn_source();
        assert!(csn > commits.last_csn, "csn {csn} is not above {}", commits.last_csn);
        let lsn = match append(csn) {
            Ok(lsn) => lsn,
            Err(error) => {
                txn.change(State::Committing, State::Running);
                return Err(error);
            }
        };
        assert!(lsn > commits.last_lsn, "{lsn} is not above {}", commits.last_lsn);
        txn.set_csn(csn);
        (commits.last_csn, commits.last_lsn) = (csn, lsn);
        if durability == Durability::Sync {
            commits.last_sync = lsn;
        }
        commits.queue.push_back(Pending { lsn, csn, durability, txn: Arc::clone(txn) });
        let needs_durable = if commits.last_sync > commits.durable { commits.last_sync } else { Lsn::ZERO };
        let ended = self.publish(&mut commits);
        drop(commits);
        self.finish_commits(&ended);
        Ok(Commit { csn, lsn, needs_durable })
    }

    /// Makes visible what may be, now that the log is durable up to `durable`. When it returns, every commit that
    /// needed no more than that is visible. Returns the visible csn.
    pub(crate) fn advance_visible(&self, durable: Lsn) -> u64 {
        let mut commits = self.commits.lock();
        commits.durable = commits.durable.max(durable);
        let ended = self.publish(&mut commits);
        drop(commits);
        self.finish_commits(&ended);
        self.visible_csn()
    }

    /// Takes off the queue what is visible by the log's state, and publishes it.
    fn publish(&self, commits: &mut Commits) -> Vec<Arc<ActiveTxn>> {
        let durable = commits.durable;
        let mut ended = Vec::new();
        let mut visible = 0;
        while let Some(first) = commits.queue.front() {
            let is_early = first.durability == Durability::Sync && first.lsn > durable;
            if is_early && !planted(Mutation::VisibleEarly) {
                break;
            }
            visible = first.csn;
            ended.extend(commits.queue.pop_front().map(|first| first.txn));
        }
        if visible != 0 {
            sync::yield_point();
            let before = self.visible.swap(visible, Ordering::AcqRel);
            assert!(before < visible, "visibility went back from {before} to {visible}");
        }
        ended
    }

    /// Invariant 2, after the publication.
    fn finish_commits(&self, ended: &[Arc<ActiveTxn>]) {
        if ended.is_empty() {
            return;
        }
        for txn in ended {
            self.cache.put(txn.id(), txn.csn());
        }
        self.remove(ended, State::Committing);
    }

    fn remove(&self, ended: &[Arc<ActiveTxn>], from: State) {
        let mut active = self.active.write();
        for txn in ended {
            let removed = active.table.remove(&txn.id());
            assert!(removed.is_some(), "{} ends twice", txn.id());
        }
        self.oldest_active.store(active.oldest(), Ordering::Release);
        drop(active);
        for txn in ended {
            assert!(txn.change(from, State::Ended), "{} ends in state {:?}", txn.id(), txn.state());
            self.waits.ended(txn);
        }
    }

    /// Begins to revert `txn`; from now on it cannot commit.
    pub(crate) fn begin_abort(&self, txn: &ActiveTxn) {
        let begun = txn.change(State::Running, State::Aborting) || txn.change(State::Doomed, State::Aborting);
        assert!(begun, "{} aborts in state {:?}", txn.id(), txn.state());
    }

    /// Ends an aborting transaction, once nothing it wrote is left. Also the end of one that never wrote.
    pub(crate) fn finish_abort(&self, txn: &Arc<ActiveTxn>) {
        self.remove(std::slice::from_ref(txn), State::Aborting);
    }

    /// Tells a running transaction to end, and wakes it if it waits. False when there is no such transaction, or it is
    /// committing or aborting already; true means that it will not commit.
    pub(crate) fn doom(&self, id: TxnId) -> bool {
        let doomed = self.find(id).is_some_and(|txn| txn.change(State::Running, State::Doomed));
        if doomed {
            self.waits.recheck();
        }
        doomed
    }

    /// The transaction with this id, unless it has ended: for those who have to wait for it.
    pub(crate) fn find(&self, id: TxnId) -> Option<Arc<ActiveTxn>> {
        if id.0 < self.oldest_active.load(Ordering::Acquire) {
            return None;
        }
        self.active.read().table.get(&id).cloned()
    }

    /// Everybody who has not ended, oldest first.
    pub(crate) fn active(&self) -> Vec<Arc<ActiveTxn>> {
        self.active.read().table.values().cloned().collect()
    }

    /// The id the next transaction gets.
    pub(crate) fn next_txn(&self) -> TxnId {
        TxnId(self.active.read().next)
    }

    // ---- status ----

    /// What became of `txn`. A transaction that a live snapshot sees is never reported as running. The answer costs no
    /// lock when the cache knows it, or when `txn` is older than every active transaction.
    pub(crate) fn status(&self, txn: TxnId) -> Status {
        if let Some(csn) = self.cache.get(txn) {
            return Status::Committed(csn);
        }
        if let Some(found) = self.find(txn) {
            let csn = found.csn();
            return if csn != 0 && csn <= self.visible_csn() {
                Status::Committed(csn)
            } else {
                Status::Running
            };
        }
        // It may have ended since the first look.
        self.cache.get(txn).map_or(Status::Unknown, Status::Committed)
    }

    /// Remembers what the status tree said about a transaction that has ended.
    pub(crate) fn cache_committed(&self, txn: TxnId, csn: u64) {
        // The tree may hold a commit that is not visible yet; this cache must not.
        if csn <= self.visible_csn() {
            self.cache.put(txn, csn);
        }
    }

    /// Every commit up to this number is visible to a snapshot taken now.
    pub(crate) fn visible_csn(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    // ---- snapshots and the horizon ----

    /// What is visible now, registered until dropped.
    pub(crate) fn take_snapshot(self: &Arc<Self>, owner: Owner) -> Snapshot {
        let started = clock::now();
        let mut live = self.live.lock();
        // Invariant 4: in this order.
        let xmin = self.oldest_active.load(Ordering::Acquire);
        sync::yield_point();
        let csn = self.visible.load(Ordering::Acquire);
        live.begun = true;
        *live.groups.entry((csn, xmin)).or_insert(0) += 1;
        let info = Some(SnapshotInfo { csn, xmin: TxnId(xmin), started, owner });
        let slot = match live.free.pop() {
            Some(slot) => {
                live.slots[slot as usize] = info;
                slot
            }
            None => {
                live.slots.push(info);
                (live.slots.len() - 1) as u32
            }
        };
        drop(live);
        Snapshot { csn, xmin: TxnId(xmin), slot, owner: owner.session, registry: Arc::clone(self) }
    }

    /// Holds the horizon where the oldest snapshot holds it, for who is about to read what that one may see; `None` where there is none.
    /// Nobody sees it: it is for a moment.
    pub(crate) fn pin_oldest(self: &Arc<Self>) -> Option<Snapshot> {
        let mut live = self.live.lock();
        let (&(csn, xmin), _) = live.groups.first_key_value()?;
        *live.groups.entry((csn, xmin)).or_insert(0) += 1;
        drop(live);
        Some(Snapshot { csn, xmin: TxnId(xmin), slot: NO_SLOT, owner: 0, registry: Arc::clone(self) })
    }

    /// Whoever has this number sees nothing more, and does not commit; false when that is so already, or he holds nothing any more. What he
    /// holds he has to let go himself: he may be looking at it.
    pub(crate) fn expire(&self, owner: u64) -> bool {
        let mut expired = self.expired.1.lock();
        let new = expired.insert(owner);
        self.expired.0.store(expired.len(), Ordering::SeqCst);
        drop(expired);
        // Who has something now lets go of it, and forgets the mark, later than it was made: nobody does where he was gone before.
        sync::yield_point();
        if !new || self.has_something(owner) {
            return new;
        }
        self.forget_owner(owner);
        false
    }

    /// Whether this owner has a snapshot, or a transaction that may still write or is being reverted. One that is committing may be here
    /// longer than its owner.
    fn has_something(&self, owner: u64) -> bool {
        let snapshot = self.live.lock().slots.iter().flatten().any(|live| live.owner.session == owner);
        snapshot
            || self
                .active
                .read()
                .table
                .values()
                .any(|txn| txn.handle() == owner && (txn.is_running() || txn.state() == State::Aborting))
    }

    /// Whether this owner was told to end by [`Registry::expire`].
    pub(crate) fn is_expired(&self, owner: u64) -> bool {
        self.expired.0.load(Ordering::SeqCst) > 0 && self.expired.1.lock().contains(&owner)
    }

    /// This owner is gone, and so is what he had.
    pub(crate) fn forget_owner(&self, owner: u64) {
        if self.expired.0.load(Ordering::SeqCst) > 0 {
            let mut expired = self.expired.1.lock();
            expired.remove(&owner);
            self.expired.0.store(expired.len(), Ordering::SeqCst);
        }
    }

    fn drop_snapshot(&self, snapshot: &Snapshot) {
        let key = (snapshot.csn, snapshot.xmin.0);
        let mut live = self.live.lock();
        let group = live.groups.get_mut(&key).expect("a live snapshot is registered");
        *group -= 1;
        if *group == 0 {
            live.groups.remove(&key);
        }
        if snapshot.slot != NO_SLOT {
            live.slots[snapshot.slot as usize] = None;
            live.free.push(snapshot.slot);
        }
    }

    /// Whoever has an id below this committed and is seen by everybody, now and later.
    pub(crate) fn horizon(&self) -> TxnId {
        let mut live = self.live.lock();
        let oldest_active = self.oldest_active.load(Ordering::Acquire);
        let horizon =
            live.groups.first_key_value().map_or(oldest_active, |(key, _)| key.1.min(oldest_active));
        assert!(horizon >= live.horizon, "the horizon fell from {} to {horizon}", live.horizon);
        live.begun = true;
        live.horizon = horizon;
        self.known_horizon.store(horizon, Ordering::Release);
        TxnId(horizon)
    }

    /// The horizon as it was known last, maybe a lower one than it is now: without the lock that every snapshot takes, in which a thread
    /// that stands by may lose its processor.
    pub(crate) fn known_horizon(&self) -> TxnId {
        TxnId(self.known_horizon.load(Ordering::Acquire))
    }

    /// A version that was superseded by a commit of at most this csn is garbage.
    pub(crate) fn oldest_visible_csn(&self) -> u64 {
        let live = self.live.lock();
        live.groups.first_key_value().map_or_else(|| self.visible_csn(), |(key, _)| key.0)
    }

    /// Whether a snapshot, live or yet to be taken, has `from <= csn < until`: whether anybody may need a version
    /// that was committed by `from` and superseded by `until`.
    pub(crate) fn anyone_sees(&self, from: u64, until: u64) -> bool {
        if from >= until {
            return false;
        }
        let live = self.live.lock();
        // Later snapshots have at least today's visible csn.
        until > self.visible_csn() || live.groups.range((from, 0)..(until, 0)).next().is_some()
    }

    /// The snapshot that holds the horizon and garbage back most: the longest-lived of those that see least. Takes
    /// time in proportion to the number of snapshots.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the views of sessions and locks"))]
    pub(crate) fn oldest_snapshot(&self) -> Option<SnapshotInfo> {
        let live = self.live.lock();
        live.slots.iter().flatten().min_by_key(|s| (s.csn, s.xmin, s.started)).copied()
    }

    /// Every live snapshot.
    pub(crate) fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.live.lock().slots.iter().flatten().copied().collect()
    }
}

/// What a statement or transaction sees: every commit up to a csn. Its own changes it tells by their transaction id.
#[derive(Debug)]
#[must_use]
pub(crate) struct Snapshot {
    csn: u64,
    xmin: TxnId,
    slot: u32,
    owner: u64,
    registry: Arc<Registry>,
}

impl Snapshot {
    /// Fails with [`Error::TooOld`] once its owner is to end.
    pub(crate) fn check_limit(&self) -> Result<()> {
        if self.registry.is_expired(self.owner) { Err(Error::TooOld) } else { Ok(()) }
    }

    /// The newest commit it sees.
    #[cfg(test)]
    pub(crate) fn csn(&self) -> u64 {
        self.csn
    }

    /// Whoever has a smaller id had ended when the snapshot was taken.
    #[cfg(test)]
    pub(crate) fn xmin(&self) -> TxnId {
        self.xmin
    }

    /// Whether a version by `writer` is seen without looking up what became of it.
    pub(crate) fn sees_unasked(&self, writer: TxnId) -> bool {
        writer < self.xmin
    }

    /// Whether a version is seen whose writer committed with `csn`.
    pub(crate) fn sees(&self, csn: u64) -> bool {
        csn <= self.csn
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.registry.drop_snapshot(self);
    }
}
