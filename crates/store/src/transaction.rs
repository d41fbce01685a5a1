//! Transactions on versioned trees.
//!
//! # What it guarantees
//! 1. A transaction's changes become visible together, when its commit is durable (or at once, if it asked not to wait),
//!    or not at all.
//! 2. `READ COMMITTED`: each operation sees what was committed when it began, and a write acts on the newest committed
//!    version. `REPEATABLE READ`: all operations see one snapshot, and a write to a row that somebody changed since is
//!    refused with [`crate::Error::Conflict`].
//! 3. Two writers of one key never both succeed unseen: the key's leaf is latched while a writer looks at the newest
//!    version, and an uncommitted one is waited for.
//! 4. A change and its undo record are one mini-transaction.
//!
//! # Order
//! A transaction waits for others only without latches. Room for the undo record is found before the leaf is changed;
//! the leaf is latched before the undo page.

mod end;
mod lock;
mod long;
mod seen;
mod trees;
mod write;

use crate::Result;
use crate::cursor::Cursor;
use crate::entry::UndoPtr;
use crate::scan::Bounds;
use crate::shared::Shared;
use crate::tree::TreeRoot;
use crate::txn::active::ActiveTxn;
use crate::txn::locks::LockMark;
use crate::txn::locks::{Mode, Room};
use crate::txn::registry::{Owner, Snapshot};
use crate::undo::Stream;
use crate::versions::{ALL_OWN, Reader};
use crate::view::{self, LongValues, View};
use gannet_base::{Lsn, TreeId, TxnId};
pub use seen::Outcome;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
pub use trees::BulkLoader;

/// Pages kept for the rollback of each writing transaction.
const ROLLBACK_PAGES: u64 = 16;
/// Pages that a rollback takes for each page of bytes that it adds to rows, see `reserve_for_rollback`.
const ROLLBACK_SPLITS: u64 = 3;
/// Most changes of one transaction: each has a number of 32 bits, the last few of which are left alone.
const MAX_CHANGES: u32 = u32::MAX - 16;

/// What a transaction sees of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// Each operation sees what was committed when it began.
    #[default]
    ReadCommitted,
    /// All operations see what was committed at the first one (snapshot isolation).
    RepeatableRead,
}

/// When a commit is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When it is durable.
    #[default]
    Sync,
    /// At once; it becomes durable within the database's `max_delay`, in order, wholly or not at all.
    Async,
}

/// How a row is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// Nobody else may lock or change the row.
    Exclusive,
    /// Nobody else may change the row; others may share the lock.
    Share,
    /// Nobody else may delete the row or lock it exclusively; it may be updated.
    KeyShare,
    /// The same, of one of few rows that many share, such as a table's definition: where there is no memory for one more lock it becomes an
    /// exclusive one, and for these a part of that memory is kept.
    Definition,
}

impl LockMode {
    /// How a lock that others may share is kept.
    fn shared(self) -> (Mode, Room) {
        match self {
            LockMode::Share => (Mode::Share, Room::Common),
            LockMode::KeyShare => (Mode::KeyShare, Room::Common),
            LockMode::Definition => (Mode::KeyShare, Room::Kept),
            LockMode::Exclusive => unreachable!("nobody shares it"),
        }
    }
}

/// How a transaction runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransactionOptions {
    /// What it sees of others.
    pub isolation: Isolation,
    /// When its commit is acknowledged.
    pub durability: Durability,
    /// How long it waits for a row; `None`: as long as it takes (deadlocks are found).
    pub lock_timeout: Option<Duration>,
    /// How long it may hold garbage back before it is ended; `None`: as the database was opened
    /// ([`OpenOptions::snapshot_limit`](crate::OpenOptions::snapshot_limit)); zero: any time.
    pub snapshot_limit: Option<Duration>,
}

/// A tree of a database: an ordered map from keys to values, both byte strings. A handle is good for the opening of the
/// database that gave it; any other refuses it.
#[derive(Clone, Debug)]
pub struct Tree {
    pub(crate) root: Arc<TreeRoot>,
}

impl Tree {
    /// The tree's name.
    pub fn name(&self) -> &[u8] {
        &self.root.name
    }

    /// The tree's number.
    pub fn id(&self) -> TreeId {
        self.root.id
    }
}

/// A place in a transaction to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    number: u64,
    undo: UndoPtr,
    locks: Option<LockMark>,
    owner: u64,
}

#[derive(Debug)]
struct Writing {
    txn: Arc<ActiveTxn>,
    stream: Stream,
    reserved_pages: u64,
    /// Bytes that a rollback adds to rows.
    shrunk_bytes: u64,
    /// Trees that these rows belong to.
    shrunk_trees: BTreeSet<TreeId>,
    /// A tree was dropped.
    drops: bool,
    /// Trees that are kept from being dropped, ascending.
    trees: SmallVec<[TreeId; 4]>,
    /// Others lock a tree's row to keep it, see [`crate::txn::holds`].
    closed_holds: bool,
}

/// A transaction. Dropped without [`Transaction::commit`], it is rolled back.
///
/// On [`crate::Error::Conflict`] and [`crate::Error::Deadlock`] roll back and run the whole transaction again.
///
/// ```
/// # use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let engine = Engine::new(&EngineOptions::default())?;
/// # let path = folder.path().join("data.gnt");
/// # let db = engine.create(&path, &CreateOptions::default(), &OpenOptions::default())?;
/// let mut txn = db.begin(TransactionOptions::default());
/// let fruit = txn.create_tree("fruit")?;
/// txn.put(&fruit, b"apple", b"red")?;
/// let savepoint = txn.savepoint();
/// txn.put(&fruit, b"apple", b"blue")?;
/// txn.rollback_to(savepoint)?;
/// txn.commit()?;
///
/// let mut txn = db.begin(TransactionOptions::default());
/// assert_eq!(txn.get(&fruit, b"apple")?, Some(b"red".to_vec()));
/// assert_eq!(txn.multi_get(&fruit, &[b"apple", b"pear"])?, [Some(b"red".to_vec()), None]);
/// assert!(txn.insert(&fruit, b"apple", b"green").is_err());
/// # drop(txn);
/// # db.close()?;
/// # Ok::<(), gannet_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Transaction {
    pub(crate) shared: Arc<Shared>,
    options: TransactionOptions,
    snapshot: Option<Arc<Snapshot>>,
    writing: Option<Writing>,
    handle: Arc<Handle>,
    changes: u64,
    last_savepoint: u64,
    /// Savepoints that a rollback to an earlier one has made invalid: ranges of their numbers, from the first (not
    /// including it) to the last, ascending.
    lost_savepoints: Vec<(u64, u64)>,
    /// The commit is not told of before the log is durable up to here.
    behind: Lsn,
}

/// What a transaction's views and other threads have of it.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    /// Each transaction has another one, from its beginning.
    pub(crate) number: u64,
    pub(crate) long_values: Option<Arc<dyn LongValues>>,
    /// Its waits are to end.
    cancel: AtomicBool,
    /// It waits for a row, or another lock.
    waiting: AtomicBool,
    /// Its number, once it has one.
    id: AtomicU64,
}

impl Handle {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.registry.forget_owner(self.number);
    }
}

/// Makes a transaction's waits, and its views' scans when they come to another leaf, end with [`crate::Error::Cancelled`]. See
/// [`Transaction::canceller`].
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Handle>);

impl Canceller {
    /// Ends the wait or scan that is going on, and refuses later ones until [`Canceller::reset`].
    pub fn cancel(&self) {
        self.0.cancel.store(true, Ordering::SeqCst);
        self.0.shared.registry.waits().recheck();
    }

    /// Lets the transaction wait and scan again.
    pub fn reset(&self) {
        self.0.cancel.store(false, Ordering::SeqCst);
    }

    /// Whether the transaction waits for a row or another lock.
    pub fn is_waiting(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// The number of the transaction's handle: each has another one, from its beginning.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// The transaction's number; `None` before its first write or lock.
    pub fn transaction(&self) -> Option<TxnId> {
        let id = TxnId(self.0.id.load(Ordering::Relaxed));
        (!id.is_none()).then_some(id)
    }
}

/// The limit of a transaction that asks for this one, see [`TransactionOptions::snapshot_limit`].
fn limit_in_force(shared: &Shared, wanted: Option<Duration>) -> Option<Duration> {
    let limit = wanted.or(shared.holders.limit).filter(|limit| !limit.is_zero());
    if limit.is_some() {
        shared.holders.some_limited();
    }
    limit
}

impl Transaction {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        options: TransactionOptions,
        number: u64,
        long_values: Option<Arc<dyn LongValues>>,
    ) -> Self {
        let handle = Handle {
            shared: Arc::clone(shared),
            number,
            long_values,
            cancel: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            id: AtomicU64::new(TxnId::NONE.0),
        };
        let limit = limit_in_force(shared, options.snapshot_limit);
        Transaction {
            shared: Arc::clone(shared),
            options: TransactionOptions { snapshot_limit: limit, ..options },
            snapshot: None,
            writing: None,
            handle: Arc::new(handle),
            changes: 0,
            last_savepoint: 0,
            lost_savepoints: Vec::new(),
            behind: Lsn::ZERO,
        }
    }

    /// A handle with which another thread makes this transaction give up a wait for a row.
    pub fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.handle))
    }

    /// The transaction's number; `None` before its first write or lock.
    pub fn id(&self) -> Option<TxnId> {
        self.writing.as_ref().map(|w| w.txn.id())
    }

    /// Changes made so far: tells a cursor that it has to look again.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// What the transaction sees of others.
    pub fn isolation(&self) -> Isolation {
        self.options.isolation
    }

    /// The longest key that fits, in bytes.
    pub fn max_key_len(&self) -> usize {
        crate::node::max_key_len(self.shared.core.page_size)
    }

    /// Decides anew when the commit is acknowledged.
    pub fn set_durability(&mut self, durability: Durability) {
        self.options.durability = durability;
    }

    /// Has the commit wait, unless it is asynchronous, until the log is durable up to `lsn` ([`Database::log_end`](crate::Database::log_end)), also
    /// where this transaction writes nothing: for who hands on what another one has committed asynchronously.
    pub fn wait_for_log(&mut self, lsn: Lsn) {
        self.behind = self.behind.max(lsn);
    }

    /// Decides anew how long to wait for a row, see [`TransactionOptions::lock_timeout`].
    pub fn set_lock_timeout(&mut self, timeout: Option<Duration>) {
        self.options.lock_timeout = timeout;
    }

    /// Decides anew how long garbage may be held back, see [`TransactionOptions::snapshot_limit`]: by snapshots that are taken from here on.
    pub fn set_snapshot_limit(&mut self, limit: Option<Duration>) {
        self.options.snapshot_limit = limit_in_force(&self.shared, limit);
    }

    fn own(&self) -> Option<&ActiveTxn> {
        self.writing.as_ref().map(|w| &*w.txn)
    }

    fn own_id(&self) -> TxnId {
        self.own().map_or(TxnId::NONE, ActiveTxn::id)
    }

    /// Why the transaction cannot go on, where it was told to end.
    fn why_doomed(&self) -> crate::Error {
        let expired = self.shared.registry.is_expired(self.handle.number);
        if expired { crate::Error::TooOld } else { crate::Error::Cancelled }
    }

    pub(crate) fn active(&self) -> Option<Arc<ActiveTxn>> {
        self.writing.as_ref().map(|w| Arc::clone(&w.txn))
    }

    // ---- reading ----------------------------------------------------------------------------------------------

    fn new_snapshot(&self) -> Snapshot {
        let (session, limit) = (self.handle.number, self.options.snapshot_limit);
        self.shared.registry.take_snapshot(Owner { session, label: "transaction", limit })
    }

    /// The snapshot of the whole transaction, taken at its first use.
    fn held_snapshot(&mut self) -> &Arc<Snapshot> {
        if self.snapshot.is_none() {
            self.snapshot = Some(Arc::new(self.new_snapshot()));
        }
        self.snapshot.as_ref().expect("taken above")
    }

    /// Runs `read` with the snapshot this transaction's isolation asks for.
    fn with_reader<T>(&mut self, read: impl FnOnce(&Shared, Reader<'_>) -> Result<T>) -> Result<T> {
        match self.options.isolation {
            Isolation::ReadCommitted => {
                let snapshot = self.new_snapshot();
                read(&self.shared, self.reader(&snapshot))
            }
            Isolation::RepeatableRead => {
                let snapshot = Arc::clone(self.held_snapshot());
                read(&self.shared, self.reader(&snapshot))
            }
        }
    }

    fn reader<'a>(&'a self, snapshot: &'a Snapshot) -> Reader<'a> {
        Reader { long_values: self.handle.long_values.as_deref(), ..Reader::new(snapshot, self.own()) }
    }

    /// The snapshot this transaction's isolation asks for.
    fn statement_snapshot(&mut self) -> Arc<Snapshot> {
        match self.options.isolation {
            Isolation::ReadCommitted => Arc::new(self.new_snapshot()),
            Isolation::RepeatableRead => Arc::clone(self.held_snapshot()),
        }
    }

    fn view_of(&self, snapshot: Arc<Snapshot>, upto: u32) -> View {
        View::new(&self.handle, snapshot, self.active(), upto)
    }

    /// Changes made so far, by their numbers.
    fn sequence(&self) -> u32 {
        self.own().map_or(0, ActiveTxn::sequence)
    }

    /// What a statement that begins now sees: under `REPEATABLE READ` the transaction's snapshot (taken at its first
    /// use), under `READ COMMITTED` a snapshot taken now, and with it what this transaction has changed so far.
    pub fn view(&mut self) -> View {
        let snapshot = self.statement_snapshot();
        self.view_of(snapshot, self.sequence())
    }

    /// Whether a view that this transaction gave is what [`Transaction::view`] would give now: under `REPEATABLE READ`, as
    /// long as nothing was changed since.
    pub fn is_current(&self, view: &View) -> bool {
        self.options.isolation == Isolation::RepeatableRead
            && view.shows(self.handle.number, self.sequence(), self.writing.is_some())
    }

    /// What is committed now, whatever the isolation, and what this transaction has changed so far. For checks that have
    /// to hold for everybody, as of a foreign key.
    pub fn latest_view(&mut self) -> View {
        self.view_of(Arc::new(self.new_snapshot()), self.sequence())
    }

    /// The value of `key`.
    pub fn get(&mut self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.with_reader(|shared, reader| view::fetch_owned(shared, reader, &tree.root, key))
    }

    /// The values of many keys, in the order of `keys`. Pages that are not in memory are fetched as deep batches: the
    /// device works on all of them at once.
    pub fn multi_get(&mut self, tree: &Tree, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.with_reader(|shared, reader| view::multi_fetch(shared, reader, &tree.root, keys))
    }

    /// A cursor over the keys within `range`, forwards and backwards. It sees the transaction's snapshot (under
    /// `READ COMMITTED`, one taken now) and this transaction's own changes, also later ones.
    pub fn cursor<'t>(&'t mut self, tree: &Tree, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<Cursor<'t>> {
        let snapshot = self.statement_snapshot();
        let view = self.view_of(snapshot, ALL_OWN);
        Cursor::new(self, view, tree.clone(), Bounds::new(range.0, range.1))
    }

    fn newest_undo(&self) -> UndoPtr {
        self.writing.as_ref().map_or(UndoPtr::NONE, |w| UndoPtr(w.txn.newest_undo()))
    }
}
