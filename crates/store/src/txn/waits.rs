//! Waiting for transactions to end, and finding deadlocks.
//!
//! A statement that meets a row of another transaction waits for that transaction: **look** at the row, **wait** here
//! for those who hold it, look again. It sleeps until *one* of them has ended, but needs *all* of them to let go; so
//! each of them is an edge of the wait-for graph, and any circle in it can only be opened by ending a transaction.
//!
//! # What it guarantees
//! 1. No wake-up is lost: if a holder ends, or gives back a part of its locks, after the caller took its [`Ticket`],
//!    `wait_for` returns.
//! 2. A deadlock is found by the transaction whose wait closes the circle, before it sleeps. It alone is the victim:
//!    its edges are not added, so no second transaction finds the same circle.
//! 3. No deadlock is reported that does not exist: every edge in the graph belongs to a transaction that sleeps, for
//!    holders of which none has ended or given anything back since it looked. (A sleeper whose time is just
//!    running out, or who was just cancelled, counts until it has woken up.)
//!
//! Whoever waits behind somebody out of courtesy only (see [`Waits::wait_behind`]) is no part of a deadlock: he is told to go
//! ahead when his wait would close a circle, or when another's does that goes through him.
//!
//! Everybody who waits for a transaction is woken at its end, and they race for the row; the first takes it, the
//! others wait for that one. There is no queue per row: on a hot row of *n* waiters this costs *n* wake-ups per
//! transaction, and no order among them is promised.
//!
//! # Invariants
//! 1. A transaction is in `waiting` exactly as long as it sleeps and nothing it waits for has happened: whoever ends
//!    takes its waiters out, with all their edges, and wakes them. A woken transaction has no edges (guarantee 3); if
//!    it has to wait again, it comes back with new ones and searches again.
//! 2. `edges` holds (h, w) exactly if h is among the holders of `waiting[w]`.
//! 3. A waiter first adds itself to `waiters` of each holder, then looks whether it has ended; whoever ends first sets
//!    `Ended`, then looks at `waiters`. All four are sequentially consistent, so at least one sees the other (Dekker):
//!    either the waiter does not sleep, or the ending transaction takes the graph's mutex, which the waiter holds
//!    from its announcement until it sleeps, and finds it in the graph. So the end of a transaction nobody waits for
//!    costs one load.
//! 4. `cancel`, `doom`, `closed` and `stranded` are set before [`Waits::recheck`] takes the mutex, and looked at under it.

use super::active::ActiveTxn;
use crate::{Error, Result};
use gannet_base::TxnId;
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Taken before looking at a row: locks given back after it was taken are not slept through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) struct Ticket(u64);

/// A sleeping transaction, as views show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WaitInfo {
    /// Who waits.
    pub(crate) waiter: TxnId,
    /// For whom.
    pub(crate) holders: Vec<TxnId>,
    /// Since when.
    pub(crate) since: Instant,
}

#[derive(Debug)]
struct Waiting {
    waiter: Arc<ActiveTxn>,
    holders: Vec<TxnId>,
    since: Instant,
    /// It need not wait for them.
    courteous: bool,
}

#[derive(Debug, Default)]
struct Graph {
    waiting: BTreeMap<TxnId, Waiting>,
    /// Those who were waiting courteously and are to go ahead, until they have woken up.
    ahead: BTreeSet<TxnId>,
    /// (holder, waiter)
    edges: BTreeSet<(TxnId, TxnId)>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    graph: Mutex<Graph>,
    /// How often somebody gave back locks before its end.
    releases: AtomicU64,
    /// Nobody may end any more, so nobody waits.
    closed: AtomicBool,
    /// Those that a crash has cut short may not end any more, so nobody waits for them.
    stranded: AtomicBool,
}

impl Waits {
    /// To be taken before looking at what one may have to wait for.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.releases.load(Ordering::SeqCst))
    }

    /// Sleeps until one of `holders` has ended or given locks back; the caller then looks again. Returns at once when
    /// that is already so since the `looked` ticket was taken. A `timeout` of zero means not to wait, none to wait for
    /// ever.
    ///
    /// # Errors
    /// [`Error::Deadlock`] when a holder waits for `waiter`, directly or through others; [`Error::Locked`] when the
    /// time is up; [`Error::Cancelled`] when `cancel` is set or the waiter doomed (both need a [`Waits::recheck`]), or the wait would be in
    /// vain.
    pub(crate) fn wait_for(
        &self,
        waiter: &Arc<ActiveTxn>,
        holders: &[Arc<ActiveTxn>],
        looked: Ticket,
        timeout: Option<Duration>,
        cancel: &AtomicBool,
    ) -> Result<()> {
        self.wait(waiter, holders, looked, timeout, cancel, false).map(drop)
    }

    /// Waits behind `writers` in the same way, who wait for a lock that this one would be granted. True when he is to take it
    /// nevertheless, as somebody would wait in a circle; false when he is to look again.
    ///
    /// # Errors
    /// Those of [`Waits::wait_for`], but no deadlock.
    pub(crate) fn wait_behind(
        &self,
        waiter: &Arc<ActiveTxn>,
        writers: &[Arc<ActiveTxn>],
        looked: Ticket,
        timeout: Option<Duration>,
        cancel: &AtomicBool,
    ) -> Result<bool> {
        match self.wait(waiter, writers, looked, timeout, cancel, true) {
            Err(Error::Deadlock(_)) => Ok(true),
            result => result,
        }
    }

    /// True when a `courteous` waiter is to go ahead.
    fn wait(
        &self,
        waiter: &Arc<ActiveTxn>,
        holders: &[Arc<ActiveTxn>],
        looked: Ticket,
        timeout: Option<Duration>,
        cancel: &AtomicBool,
        courteous: bool,
    ) -> Result<bool> {
        assert!(holders.iter().all(|h| h.id() != waiter.id()), "{} waits for itself", waiter.id());
        if holders.is_empty() {
            return Ok(false);
        }
        let mut graph = self.graph.lock();
        for holder in holders {
            holder.waiters.fetch_add(1, Ordering::SeqCst);
        }
        let moved_on = holders.iter().any(|h| h.has_ended()) || self.ticket() != looked;
        let result = if moved_on {
            Ok(false)
        } else if self.is_given_up(waiter, holders, cancel) {
            Err(Error::Cancelled)
        } else if timeout == Some(Duration::ZERO) {
            Err(Error::Locked(holders[0].id()))
        } else if let Some(holder) = graph.circle_through(waiter.id(), holders, courteous) {
            Err(Error::Deadlock(holder))
        } else {
            graph.insert(waiter, holders, courteous);
            let result = self.sleep(&mut graph, waiter, holders, timeout, cancel);
            graph.remove(waiter.id());
            let ahead = graph.ahead.remove(&waiter.id());
            result.map(|()| ahead)
        };
        for holder in holders {
            holder.waiters.fetch_sub(1, Ordering::SeqCst);
        }
        result
    }

    /// Wakes those who wait for `txn`, which has ended.
    pub(super) fn ended(&self, txn: &ActiveTxn) {
        debug_assert!(txn.has_ended());
        if txn.waiters.load(Ordering::SeqCst) != 0 {
            self.graph.lock().wake_waiters_of(txn.id());
        }
    }

    /// Wakes those who wait for `txn`, which has given back some of its locks (a rollback to a savepoint). To be
    /// called after they are given back.
    pub(crate) fn released_some(&self, txn: &ActiveTxn) {
        // Under the mutex: whoever holds it compares its ticket and then sleeps without a gap.
        let mut graph = self.graph.lock();
        self.releases.fetch_add(1, Ordering::SeqCst);
        graph.wake_waiters_of(txn.id());
    }

    /// Has every sleeper look whether it is cancelled or doomed. To be called after a `cancel` flag was set.
    pub(crate) fn recheck(&self) {
        for waiting in self.graph.lock().waiting.values() {
            waiting.waiter.wakeup.notify_all();
        }
    }

    /// Ends every wait, now and later, with [`Error::Cancelled`]: transactions may not come to their end any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.recheck();
    }

    /// The same of those who wait for what a crash has cut short: it may not be reverted any more.
    pub(crate) fn strand(&self) {
        self.stranded.store(true, Ordering::SeqCst);
        self.recheck();
    }

    /// Whether a wait is to end, or not to begin.
    fn is_given_up(&self, waiter: &ActiveTxn, holders: &[Arc<ActiveTxn>], cancel: &AtomicBool) -> bool {
        waiter.is_doomed()
            || cancel.load(Ordering::SeqCst)
            || self.closed.load(Ordering::SeqCst)
            || self.stranded.load(Ordering::SeqCst) && holders.iter().any(|holder| holder.is_cut_short())
    }

    /// Everybody who sleeps, by id.
    pub(crate) fn list(&self) -> Vec<WaitInfo> {
        let graph = self.graph.lock();
        let info =
            |w: &Waiting| WaitInfo { waiter: w.waiter.id(), holders: w.holders.clone(), since: w.since };
        graph.waiting.values().map(info).collect()
    }

    /// Sleeps until somebody takes `waiter` out of the graph, or there is a reason to give up.
    fn sleep(
        &self,
        graph: &mut MutexGuard<'_, Graph>,
        waiter: &ActiveTxn,
        holders: &[Arc<ActiveTxn>],
        timeout: Option<Duration>,
        cancel: &AtomicBool,
    ) -> Result<()> {
        let deadline = timeout.map(|timeout| clock::now() + timeout);
        loop {
            match deadline.map(|deadline| deadline - clock::now()) {
                None => waiter.wakeup.wait(graph),
                Some(Duration::ZERO) => return Err(Error::Locked(holders[0].id())),
                Some(left) => {
                    waiter.wakeup.wait_for(graph, left);
                }
            }
            // An end counts even if the time ran out as well.
            if !graph.waiting.contains_key(&waiter.id()) {
                return Ok(());
            }
            if self.is_given_up(waiter, holders, cancel) {
                return Err(Error::Cancelled);
            }
        }
    }
}

impl Graph {
    fn insert(&mut self, waiter: &Arc<ActiveTxn>, holders: &[Arc<ActiveTxn>], courteous: bool) {
        let id = waiter.id();
        self.edges.extend(holders.iter().map(|h| (h.id(), id)));
        let holders = holders.iter().map(|h| h.id()).collect();
        let entry = Waiting { waiter: Arc::clone(waiter), holders, since: clock::now(), courteous };
        assert!(self.waiting.insert(id, entry).is_none(), "{id} waits in two threads");
    }

    fn remove(&mut self, waiter: TxnId) -> Option<Waiting> {
        let entry = self.waiting.remove(&waiter)?;
        for holder in &entry.holders {
            self.edges.remove(&(*holder, waiter));
        }
        Some(entry)
    }

    fn wake_waiters_of(&mut self, holder: TxnId) {
        while let Some(&(_, waiter)) = self.edges.range((holder, TxnId(0))..=(holder, TxnId(u64::MAX))).next()
        {
            let entry = self.remove(waiter).expect("an edge belongs to a sleeping transaction");
            entry.waiter.wakeup.notify_all();
        }
    }

    /// The holder through which `waiter` would wait for itself. Unless he waits courteously himself, others who do are told to go
    /// ahead where they alone would close a circle.
    fn circle_through(
        &mut self,
        waiter: TxnId,
        holders: &[Arc<ActiveTxn>],
        courteous: bool,
    ) -> Option<TxnId> {
        if let Some(circle) = self.way(holders, waiter, courteous) {
            return circle.last().copied();
        }
        while !courteous && let Some(circle) = self.way(holders, waiter, true) {
            let polite = circle.into_iter().find(|id| self.waiting.get(id).is_some_and(|w| w.courteous));
            let id = polite.expect("without the courteous there is no circle");
            let entry = self.remove(id).expect("found in the graph");
            self.ahead.insert(id);
            entry.waiter.wakeup.notify_all();
        }
        None
    }

    /// Who waits for whom from one of `holders` to `waiter`, the holder last; those who wait courteously count where
    /// `courteous` says so.
    fn way(&self, holders: &[Arc<ActiveTxn>], waiter: TxnId, courteous: bool) -> Option<Vec<TxnId>> {
        // Each one found, and by whom.
        let mut found = BTreeMap::new();
        let mut stack: Vec<_> = holders.iter().map(|holder| (holder.id(), None)).collect();
        while let Some((id, by)) = stack.pop() {
            if id == waiter {
                return Some(std::iter::successors(by, |id| found[id]).collect());
            }
            if found.contains_key(&id) {
                continue;
            }
            found.insert(id, by);
            // A doomed transaction is about to give up its wait.
            let waits = |w: &&Waiting| !w.waiter.is_doomed() && (courteous || !w.courteous);
            if let Some(next) = self.waiting.get(&id).filter(waits) {
                stack.extend(next.holders.iter().map(|holder| (*holder, Some(id))));
            }
        }
        None
    }
}
