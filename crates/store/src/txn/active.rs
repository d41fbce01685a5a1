//! One writing transaction, from its first write to its end.
//!
//! # Invariants
//! 1. The state moves only along the arrows drawn in [`crate::txn`], each by one compare-and-swap; so of an
//!    administrator's `doom` and the owner's commit exactly one wins.
//! 2. `csn` is 0 until the commit is in the log, and never changes afterwards. Alone it does not make the transaction
//!    visible: that takes `csn <= visible_csn`.
//! 3. `Ended` is set after the transaction left the active table, and is final.
//! 4. `sequence` counts the undo records written; it never falls, not even with a rollback to a savepoint, so a number
//!    names one change for ever. It is raised while the changed leaf is latched: whoever finds a change in a leaf finds
//!    the count above its number.
//! 5. `reverts` is raised before a rollback to a savepoint takes its first change back.

use super::locks::Held;
use gannet_base::TxnId;
use gannet_base::clock::Instant;
use gannet_base::sync::{Condvar, Mutex};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Where a transaction stands; see the drawing in [`crate::txn`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    /// Writes, or may write.
    Running,
    /// Told to end by an administrator or a limit; can only abort.
    Doomed,
    /// Its commit is being logged, or is logged and not visible yet.
    Committing,
    /// Its changes are being reverted.
    Aborting,
    /// Committed and visible, or reverted.
    Ended,
}

const STATES: [State; 5] = [State::Running, State::Doomed, State::Committing, State::Aborting, State::Ended];

/// A transaction that has written, or is about to. Shared by its owner, those who wait for it, and views.
#[derive(Debug)]
pub(crate) struct ActiveTxn {
    id: TxnId,
    state: AtomicU8,
    csn: AtomicU64,
    newest_undo: AtomicU64,
    sequence: AtomicU32,
    reverts: AtomicU32,
    started: Instant,
    /// The number of its handle, for views; 0 for one that a crash has cut short.
    handle: AtomicU64,
    /// How many nanoseconds it may hold garbage back; 0 for any time.
    limit: AtomicU64,
    /// How many sleep until this transaction ends, or are about to ([`super::waits`]).
    pub(super) waiters: AtomicU32,
    /// What this transaction sleeps on when it waits for others.
    pub(super) wakeup: Condvar,
    /// The shared row locks and the trees it holds.
    pub(super) held: Mutex<Held>,
}

impl ActiveTxn {
    pub(super) fn new(id: TxnId, state: State, newest_undo: u64, started: Instant) -> Self {
        ActiveTxn {
            id,
            state: AtomicU8::new(state as u8),
            csn: AtomicU64::new(0),
            newest_undo: AtomicU64::new(newest_undo),
            sequence: AtomicU32::new(0),
            reverts: AtomicU32::new(0),
            started,
            handle: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            wakeup: Condvar::new(),
            held: Mutex::default(),
        }
    }

    /// Its id, which its versions carry.
    pub(crate) fn id(&self) -> TxnId {
        self.id
    }

    /// Where it stands now.
    pub(crate) fn state(&self) -> State {
        STATES[self.state.load(Ordering::SeqCst) as usize]
    }

    /// Whether it is over: committed and visible, or reverted.
    pub(crate) fn has_ended(&self) -> bool {
        self.state() == State::Ended
    }

    /// Whether it is one that a crash has cut short, and that is still to be reverted.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.handle() == 0 && self.state() == State::Aborting
    }

    /// Whether somebody told it to end: its owner aborts at the next opportunity.
    pub(crate) fn is_doomed(&self) -> bool {
        self.state() == State::Doomed
    }

    /// Its commit sequence number, 0 while its commit is not in the log.
    pub(crate) fn csn(&self) -> u64 {
        self.csn.load(Ordering::Acquire)
    }

    /// Pointer to its newest undo record, 0 when there is none.
    pub(crate) fn newest_undo(&self) -> u64 {
        self.newest_undo.load(Ordering::Acquire)
    }

    /// Remembers its newest undo record.
    pub(crate) fn set_newest_undo(&self, pointer: u64) {
        self.newest_undo.store(pointer, Ordering::Release);
    }

    /// Whether its owner may still read and write.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state(), State::Running | State::Doomed)
    }

    /// The number its next undo record gets: those below are of changes made already.
    pub(crate) fn sequence(&self) -> u32 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Gives a number away (invariant 4).
    pub(crate) fn use_sequence(&self, number: u32) {
        let before = self.sequence.swap(number + 1, Ordering::AcqRel);
        assert_eq!(before, number, "{}: a number of an undo record is given once", self.id);
    }

    /// How often it went back to a savepoint.
    pub(crate) fn reverts(&self) -> u32 {
        self.reverts.load(Ordering::SeqCst)
    }

    /// It is about to go back to a savepoint.
    pub(crate) fn note_revert(&self) {
        self.reverts.fetch_add(1, Ordering::SeqCst);
    }

    /// When it began (for a loser: when the database was opened).
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// The number of the handle that its owner has it by; 0 for one that a crash has cut short.
    pub(crate) fn handle(&self) -> u64 {
        self.handle.load(Ordering::SeqCst)
    }

    /// Its owner makes itself known, and says how long it may hold garbage back. Sequentially consistent: who is told to end by his number
    /// is found by it, or finds the mark behind this.
    pub(crate) fn set_handle(&self, number: u64, limit: Option<Duration>) {
        let nanos = limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.limit.store(nanos, Ordering::Relaxed);
        self.handle.store(number, Ordering::SeqCst);
    }

    /// How long it may hold garbage back.
    pub(crate) fn limit(&self) -> Option<Duration> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }

    pub(super) fn set_csn(&self, csn: u64) {
        let before = self.csn.swap(csn, Ordering::AcqRel);
        assert_eq!(before, 0, "{} commits twice", self.id);
    }

    /// Moves from one state to another; false when it was not in `from`. Sequentially consistent, because a waiter
    /// decides by it whether to sleep ([`super::waits`]).
    pub(super) fn change(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}
