//! Transactions on versioned trees.
//!
//! # What it guarantees
//! 1. A transaction's changes become visible together, when its commit is durable (or at once, if it asked not to wait),
//!    or not at all.
//! 2. `READ COMMITTED`: each operation sees what was committed when it began, and a write acts on the newest committed
//!    version. `REPEATABLE READ`: all operations see one snapshot, and a write to a row that somebody changed since is
//!    refused with [`Error::Conflict`].
//! 3. Two writers of one key never both succeed unseen: the key's leaf is latched while a writer looks at the newest
//!    version, and an uncommitted one is waited for.
//! 4. A change and its undo record are one mini-transaction.
//!
//! # Order
//! A transaction waits for others only without latches. Room for the undo record is found before the leaf is changed;
//! the leaf is latched before the undo page.

mod seen;

use crate::cursor::Cursor;
use crate::entry::{self, EXCLUSIVE, Entry, LOCK, OVERFLOW, TOMBSTONE, UndoPtr, VERSIONED};
use crate::log::TxnEvent;
use crate::mtr::Mtr;
use crate::node::{NodeRef, max_entry_len, max_key_len};
use crate::pool::Access;
use crate::scan::Bounds;
use crate::shared::{CATALOG, Shared};
use crate::tree::{BTree, TreeRoot, fits};
use crate::txn::active::ActiveTxn;
use crate::txn::locks::{Added, LockMark, Mode, WriteKind};
use crate::txn::registry::{self, Owner, Snapshot};
use crate::undo::{Reserved, Stream, UndoKind, UndoRecord};
use crate::versions::{ALL_OWN, Fate, Reader, Seen, decode};
use crate::view::{self, View};
use crate::{Error, Result, overflow};
use gannet_base::{PageId, TreeId, TxnId};
pub use seen::Outcome;
use seen::{Expected, Standing};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pages kept for the rollback of each writing transaction.
const ROLLBACK_PAGES: u64 = 16;
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
}

/// A tree of a database: an ordered map from keys to values, both byte strings.
#[derive(Clone, Debug)]
pub struct Tree {
    pub(crate) root: Arc<TreeRoot>,
    pub(crate) name: Arc<[u8]>,
}

impl Tree {
    /// The tree's name.
    pub fn name(&self) -> &[u8] {
        &self.name
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
    /// Trees whose catalog entry is locked against being dropped.
    trees: BTreeSet<TreeId>,
}

/// A transaction. Dropped without [`Transaction::commit`], it is rolled back.
///
/// On [`Error::Conflict`] and [`Error::Deadlock`] roll back and run the whole transaction again.
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
    shared: Arc<Shared>,
    options: TransactionOptions,
    snapshot: Option<Arc<Snapshot>>,
    writing: Option<Writing>,
    cancel: Arc<AtomicBool>,
    changes: u64,
    number: u64,
    last_savepoint: u64,
    /// Savepoints that a rollback to an earlier one has made invalid: ranges of their numbers, from the first (not
    /// including it) to the last, ascending.
    lost_savepoints: Vec<(u64, u64)>,
}

/// Makes a transaction's waits end with [`Error::Cancelled`]. See [`Transaction::canceller`].
#[derive(Clone, Debug)]
pub struct Canceller {
    flag: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

impl Canceller {
    /// Ends the wait that is going on, and refuses later ones until [`Canceller::reset`].
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::SeqCst);
        self.shared.registry.waits().recheck();
    }

    /// Lets the transaction wait again.
    pub fn reset(&self) {
        self.flag.store(false, Ordering::SeqCst);
    }
}

enum Write<'a> {
    Put(&'a [u8]),
    Insert(&'a [u8]),
    Update(&'a [u8]),
    Delete,
    Lock,
}

/// What a look at the newest version of a key led to.
enum Found {
    Wait(Vec<Arc<ActiveTxn>>),
    Free {
        exists: bool,
    },
    /// Not the version that was seen, or not known yet.
    Seen(Standing),
}

impl Transaction {
    pub(crate) fn new(shared: Arc<Shared>, options: TransactionOptions, number: u64) -> Self {
        Transaction {
            shared,
            options,
            snapshot: None,
            writing: None,
            cancel: Arc::default(),
            changes: 0,
            number,
            last_savepoint: 0,
            lost_savepoints: Vec::new(),
        }
    }

    /// A handle with which another thread makes this transaction give up a wait for a row.
    pub fn canceller(&self) -> Canceller {
        Canceller { flag: Arc::clone(&self.cancel), shared: Arc::clone(&self.shared) }
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
        max_key_len(self.shared.core.page_size)
    }

    /// Decides anew when the commit is acknowledged.
    pub fn set_durability(&mut self, durability: Durability) {
        self.options.durability = durability;
    }

    /// Decides anew how long to wait for a row, see [`TransactionOptions::lock_timeout`].
    pub fn set_lock_timeout(&mut self, timeout: Option<Duration>) {
        self.options.lock_timeout = timeout;
    }

    fn own(&self) -> Option<&ActiveTxn> {
        self.writing.as_ref().map(|w| &*w.txn)
    }

    fn own_id(&self) -> TxnId {
        self.own().map_or(TxnId::NONE, ActiveTxn::id)
    }

    pub(crate) fn active(&self) -> Option<Arc<ActiveTxn>> {
        self.writing.as_ref().map(|w| Arc::clone(&w.txn))
    }

    // ---- reading ----------------------------------------------------------------------------------------------

    fn new_snapshot(&self) -> Snapshot {
        self.shared.registry.take_snapshot(Owner { session: self.number, label: "transaction" })
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
                read(&self.shared, Reader::new(&snapshot, self.own()))
            }
            Isolation::RepeatableRead => {
                let snapshot = Arc::clone(self.held_snapshot());
                read(&self.shared, Reader::new(&snapshot, self.own()))
            }
        }
    }

    /// The snapshot this transaction's isolation asks for.
    fn statement_snapshot(&mut self) -> Arc<Snapshot> {
        match self.options.isolation {
            Isolation::ReadCommitted => Arc::new(self.new_snapshot()),
            Isolation::RepeatableRead => Arc::clone(self.held_snapshot()),
        }
    }

    fn view_of(&self, snapshot: Arc<Snapshot>, upto: u32) -> View {
        View::new(&self.shared, snapshot, self.active(), upto, self.number)
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

    // ---- writing ----------------------------------------------------------------------------------------------

    /// Puts a value, whether or not the key is there.
    pub fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_row(tree, key, Write::Put(value)).map(drop)
    }

    /// Adds a key that must not be there: else [`Error::Duplicate`].
    pub fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_row(tree, key, Write::Insert(value)).map(drop)
    }

    /// Changes the value of a key; false when it is not there.
    pub fn update(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write_row(tree, key, Write::Update(value)).map(Outcome::is_done)
    }

    /// Removes a key; false when it is not there.
    pub fn delete(&mut self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.write_row(tree, key, Write::Delete).map(Outcome::is_done)
    }

    /// Locks a row until the transaction ends; false when it is not there.
    pub fn lock(&mut self, tree: &Tree, key: &[u8], mode: LockMode) -> Result<bool> {
        let outcome = match mode {
            LockMode::Exclusive => self.write_row(tree, key, Write::Lock),
            LockMode::Share => self.lock_shared(tree, key, Mode::Share, None),
            LockMode::KeyShare => self.lock_shared(tree, key, Mode::KeyShare, None),
        };
        outcome.map(Outcome::is_done)
    }

    fn write_row(&mut self, tree: &Tree, key: &[u8], write: Write<'_>) -> Result<Outcome> {
        self.prepare_row(tree, key)?;
        self.write(&Arc::clone(&tree.root), key, write, None)
    }

    /// What every write and lock of a row begins with.
    fn prepare_row(&mut self, tree: &Tree, key: &[u8]) -> Result<()> {
        self.start_writing()?;
        self.hold_tree(tree)?;
        self.check_key(key)
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        let longest = max_key_len(self.shared.core.page_size);
        if key.len() > longest {
            let message =
                format!("the key has {} bytes; with this page size at most {longest} fit", key.len());
            return Err(Error::Invalid(message));
        }
        Ok(())
    }

    /// Gives the transaction a number, a stream, and room for its rollback.
    fn start_writing(&mut self) -> Result<()> {
        self.shared.core.throttle()?;
        if let Some(writing) = &self.writing {
            if writing.txn.sequence() >= MAX_CHANGES {
                return Err(Error::Invalid(format!("one transaction makes at most {MAX_CHANGES} changes")));
            }
            return if writing.txn.is_doomed() { Err(Error::Cancelled) } else { Ok(()) };
        }
        if self.options.isolation == Isolation::RepeatableRead {
            self.held_snapshot();
        }
        let most = self.shared.core.max_open_transactions;
        if self.shared.registry.active_count() >= most {
            return Err(Error::Invalid(format!(
                "{most} transactions are writing, and the log keeps account of no more"
            )));
        }
        self.shared.core.space.reserve(&self.shared.core, ROLLBACK_PAGES)?;
        // The number comes after the stream, so that numbers ascend along it: see `undo`, invariant 3.
        let mut stream = self.shared.take_stream();
        let txn = self.shared.registry.begin_write();
        stream.begin(txn.id());
        self.writing = Some(Writing {
            txn,
            stream,
            reserved_pages: ROLLBACK_PAGES,
            shrunk_bytes: 0,
            trees: BTreeSet::new(),
        });
        Ok(())
    }

    /// Keeps a tree from being dropped while this transaction writes to it.
    fn hold_tree(&mut self, tree: &Tree) -> Result<()> {
        let writing = self.writing.as_ref().expect("the transaction writes");
        if tree.root.id == CATALOG || writing.trees.contains(&tree.root.id) {
            return Ok(());
        }
        let catalog = Arc::clone(&self.shared.catalog);
        let gone = || {
            Error::Invalid(format!("tree {:?} does not exist any more", String::from_utf8_lossy(&tree.name)))
        };
        if !self.lock_shared_in(&catalog, &tree.name, Mode::KeyShare, None)?.is_done() {
            return Err(gone());
        }
        match self.shared.created_tree(&catalog, &tree.name)? {
            Some((id, _)) if id == tree.root.id => {}
            _ => return Err(gone()),
        }
        self.writing.as_mut().expect("the transaction writes").trees.insert(tree.root.id);
        Ok(())
    }

    /// Changes one entry, if it is what is `expected`. [`Outcome::Gone`] where a write that needs the key does not find
    /// it. Where it comes to no change, a long value that was stored for it goes again.
    fn write(
        &mut self,
        root: &Arc<TreeRoot>,
        key: &[u8],
        write: Write<'_>,
        expected: Option<&Expected<'_>>,
    ) -> Result<Outcome> {
        let before = self.newest_undo();
        let mut stored = before;
        let result = self.store_long_value(root, key, &write).and_then(|long| {
            stored = self.newest_undo();
            self.write_entry(root, key, &write, long.as_deref(), expected)
        });
        let newest = self.newest_undo();
        let unused = newest != before && (newest == stored || stored == before && result.is_err());
        if unused {
            let writing = self.writing.as_ref().expect("the transaction writes");
            if let Err(error) = self.shared.revert_to(newest, before, writing.txn.id()) {
                return result.and(Err(error));
            }
            writing.txn.set_newest_undo(before.0);
        }
        result
    }

    fn write_entry(
        &mut self,
        root: &Arc<TreeRoot>,
        key: &[u8],
        write: &Write<'_>,
        long: Option<&[u8]>,
        expected: Option<&Expected<'_>>,
    ) -> Result<Outcome> {
        let shared = Arc::clone(&self.shared);
        let core = &*shared.core;
        let btree = BTree::new(core, root);
        // Keeps the undo that is followed below; under READ COMMITTED it says nothing about what is seen.
        let guard = match (self.options.isolation, expected) {
            (Isolation::ReadCommitted, None) => Arc::new(self.new_snapshot()),
            (Isolation::ReadCommitted, Some(expected)) => Arc::clone(expected.view.snapshot()),
            (Isolation::RepeatableRead, _) => Arc::clone(self.held_snapshot()),
        };
        // A long value that was compared, as its entry was then.
        let mut compared = None;
        loop {
            let ticket = shared.registry.waits().ticket();
            let leaf = btree.leaf_exclusive(key)?;
            let node = NodeRef::new(&leaf);
            let payload = node.search(key).ok().map(|slot| node.payload(slot));
            let current = payload.map(decode).transpose()?;
            let active = self.active();
            let reader = Reader::new(&guard, active.as_deref());
            let expected_now = expected.filter(|_| compared.is_none() || compared.as_deref() != payload);
            let exists = match self.examine(reader, root.id, key, current.as_ref(), write, expected_now)? {
                Found::Free { exists } => exists,
                Found::Wait(holders) => {
                    drop(leaf);
                    self.wait_for(&holders, ticket, expected.is_none_or(|e| e.wait))?;
                    continue;
                }
                Found::Seen(Standing::Settled(outcome)) => return Ok(outcome),
                Found::Seen(Standing::Long(reference)) => {
                    compared = payload.map(<[u8]>::to_vec);
                    drop(leaf);
                    let value = overflow::read(core, &reference)?;
                    if expected.is_some_and(|e| e.seen != value) {
                        return Ok(Outcome::Changed(value));
                    }
                    continue;
                }
            };
            match write {
                Write::Insert(_) if exists => return Err(Error::Duplicate),
                Write::Update(_) | Write::Delete | Write::Lock if !exists => return Ok(Outcome::Gone),
                Write::Lock if current.is_some_and(|c| c.writer == self.own_id() && c.is_exclusive()) => {
                    return Ok(Outcome::Done);
                }
                _ => {}
            }
            let record = self.undo_record(reader, root.id, key, current.as_ref(), write)?;
            let writing = self.writing.as_mut().expect("the transaction writes");
            let Some(reserved) = writing.stream.reserve(core, record.len()) else {
                drop(leaf);
                self.start_segment()?;
                continue;
            };
            let undo = writing.stream.position(&reserved);
            let payload = new_payload(writing.txn.id(), undo, current.as_ref(), write, long);
            if !fits(node, key, payload.len()) {
                drop(leaf);
                btree.make_room(key, payload.len(), Some(shared.registry.horizon()), false)?;
                continue;
            }
            let shrunk = current.map_or(0, |c| c.encoded_len()).saturating_sub(payload.len());
            self.reserve_for_rollback(shrunk)?;
            self.apply(leaf, key, &payload, &record, &reserved, undo)?;
            return Ok(Outcome::Done);
        }
    }

    fn apply(
        &mut self,
        leaf: crate::pool::ExclusivePage<'_>,
        key: &[u8],
        payload: &[u8],
        record: &UndoRecord,
        reserved: &Reserved,
        undo: UndoPtr,
    ) -> Result<()> {
        let core = &*self.shared.core;
        let writing = self.writing.as_mut().expect("the transaction writes");
        let mut mtr = Mtr::new(core);
        let leaf = mtr.add(leaf);
        let undo_part = writing.stream.latch(&mut mtr, core, reserved)?;
        writing.txn.use_sequence(record.sequence);
        writing.stream.append(&mut mtr, undo_part, reserved, record);
        mtr.put_entry(leaf, key, payload);
        mtr.group().set_txn(writing.txn.id(), TxnEvent::Change { undo: undo.0 });
        mtr.commit()?;
        writing.txn.set_newest_undo(undo.0);
        self.changes += 1;
        Ok(())
    }

    /// A rollback makes the row longer again by this much: keeps pages for the splits that may take.
    fn reserve_for_rollback(&mut self, bytes: usize) -> Result<()> {
        let writing = self.writing.as_mut().expect("the transaction writes");
        let core = &self.shared.core;
        writing.shrunk_bytes += bytes as u64;
        // Every split gains at least a quarter of a page, and allocates up to three pages.
        let wanted = ROLLBACK_PAGES + writing.shrunk_bytes * 4 / core.page_size as u64 * 3;
        if wanted > writing.reserved_pages {
            core.space.reserve(core, wanted - writing.reserved_pages)?;
            writing.reserved_pages = wanted;
        }
        Ok(())
    }

    fn start_segment(&mut self) -> Result<()> {
        let shared = &self.shared;
        let writing = self.writing.as_mut().expect("the transaction writes");
        let complete =
            writing.stream.start_segment(&shared.core, &shared.undo_directory, writing.txn.id())?;
        if let Some(segment) = complete {
            shared.streams.lock().complete.push_back(segment);
            shared.background.notify_all();
        }
        Ok(())
    }

    /// Looks at the newest version of a key with the eyes of a writer; the leaf is latched.
    fn examine(
        &self,
        reader: Reader<'_>,
        tree: TreeId,
        key: &[u8],
        current: Option<&Entry<'_>>,
        write: &Write<'_>,
        expected: Option<&Expected<'_>>,
    ) -> Result<Found> {
        let own = reader.own_id();
        let Some(current) = current else {
            return Ok(match expected {
                Some(_) => Found::Seen(Standing::Settled(Outcome::Gone)),
                None => Found::Free { exists: false },
            });
        };
        if current.writer != own {
            if self.shared.fate(current.writer)? == Fate::Running {
                // Nobody to wait for: it has ended meanwhile, look again at once.
                return Ok(Found::Wait(self.shared.registry.find(current.writer).into_iter().collect()));
            }
            // An insert only asks whether the key is there now.
            if self.options.isolation == Isolation::RepeatableRead
                && !matches!(write, Write::Insert(_))
                && let (writer, Fate::Committed(Some(csn))) = self.shared.last_change(reader, current)?
                && !reader.snapshot.sees(csn)
            {
                return Err(Error::Conflict(writer));
            }
        }
        if let Some(expected) = expected
            && let Some(standing) = self.standing(expected, current)?
        {
            return Ok(Found::Seen(standing));
        }
        let kind = match write {
            Write::Put(_) | Write::Insert(_) | Write::Update(_) => WriteKind::Update,
            Write::Delete | Write::Lock => WriteKind::Delete,
        };
        let holders = self.shared.locks.conflicting(tree, key, own, kind);
        if !holders.is_empty() {
            return Ok(Found::Wait(holders));
        }
        Ok(Found::Free { exists: !current.is_tombstone() })
    }

    /// Waits for others; `patient` is false for who is to fail instead.
    fn wait_for(
        &self,
        holders: &[Arc<ActiveTxn>],
        ticket: crate::txn::waits::Ticket,
        patient: bool,
    ) -> Result<()> {
        let writing = self.writing.as_ref().expect("who waits has a number");
        let waits = self.shared.registry.waits();
        if holders.is_empty() {
            gannet_base::thread::yield_now();
            return self.shared.core.poison.check();
        }
        let timeout = if patient { self.options.lock_timeout } else { Some(Duration::ZERO) };
        let waited = waits.wait_for(&writing.txn, holders, ticket, timeout, &self.cancel);
        // Where the waits were ended by a failure, that is what the caller is told.
        if waited.is_err() { self.shared.core.poison.check().and(waited) } else { waited }
    }

    fn undo_record(
        &self,
        reader: Reader<'_>,
        tree: TreeId,
        key: &[u8],
        current: Option<&Entry<'_>>,
        write: &Write<'_>,
    ) -> Result<UndoRecord> {
        let writing = self.writing.as_ref().expect("the transaction writes");
        let (kind, value) = match (current, write) {
            (None, _) => (UndoKind::Insert, &[][..]),
            (Some(_), Write::Lock) => (UndoKind::Lock, &[][..]),
            (Some(entry), Write::Delete) => (UndoKind::Delete, entry.value),
            (Some(entry), _) => (UndoKind::Update, entry.value),
        };
        let (previous_flags, previous_writer, previous_undo) = match current {
            Some(entry) => self.shared.shorten(reader, entry)?,
            None => (0, TxnId::NONE, UndoPtr::NONE),
        };
        Ok(UndoRecord {
            kind,
            done: false,
            writer: writing.txn.id(),
            previous_record: UndoPtr(writing.txn.newest_undo()),
            sequence: writing.txn.sequence(),
            tree,
            previous_flags,
            previous_writer,
            previous_undo,
            key: key.to_vec(),
            value: value.to_vec(),
        })
    }

    /// Writes a value that does not fit its leaf to pages of its own; gives the reference.
    fn store_long_value(
        &mut self,
        root: &TreeRoot,
        key: &[u8],
        write: &Write<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let (Write::Put(value) | Write::Insert(value) | Write::Update(value)) = write else {
            return Ok(None);
        };
        let core = Arc::clone(&self.shared.core);
        let inline = max_entry_len(core.page_size) - key.len() - 1 - entry::HEADER_LEN;
        if value.len() <= inline {
            return Ok(None);
        }
        if value.len() as u64 > overflow::MAX_VALUE {
            return Err(Error::Invalid(format!("a value has at most 1 GiB, not {} bytes", value.len())));
        }
        let record = UndoRecord {
            kind: UndoKind::Chain,
            done: false,
            writer: self.own_id(),
            previous_record: UndoPtr(
                self.writing.as_ref().expect("the transaction writes").txn.newest_undo(),
            ),
            sequence: 0,
            tree: root.id,
            previous_flags: 0,
            previous_writer: TxnId::NONE,
            previous_undo: UndoPtr::NONE,
            key: Vec::new(),
            value: vec![0; entry::REFERENCE_LEN],
        };
        let (first, reference) = self.start_long_value(&core, root, record, value.len() as u64)?;
        overflow::write(&core, root.id, first, value)?;
        Ok(Some(reference))
    }

    /// Allocates a long value's first index page, together with the undo record that knows of it.
    fn start_long_value(
        &mut self,
        core: &crate::core::Core,
        root: &TreeRoot,
        mut record: UndoRecord,
        len: u64,
    ) -> Result<(PageId, Vec<u8>)> {
        loop {
            let writing = self.writing.as_mut().expect("the transaction writes");
            let Some(reserved) = writing.stream.reserve(core, record.len()) else {
                self.start_segment()?;
                continue;
            };
            let undo = writing.stream.position(&reserved);
            let mut mtr = Mtr::new(core);
            let undo_part = writing.stream.latch(&mut mtr, core, &reserved)?;
            let (first, part) = mtr.allocate(root.id, root.root)?;
            record.value = entry::encode_reference(len, first).to_vec();
            record.sequence = writing.txn.sequence();
            writing.txn.use_sequence(record.sequence);
            writing.stream.append(&mut mtr, undo_part, &reserved, &record);
            overflow::format_index(&mut mtr, part, root.id);
            mtr.group().set_txn(writing.txn.id(), TxnEvent::Change { undo: undo.0 });
            mtr.commit()?;
            writing.txn.set_newest_undo(undo.0);
            return Ok((first, record.value));
        }
    }

    // ---- locks ------------------------------------------------------------------------------------------------

    fn lock_shared(
        &mut self,
        tree: &Tree,
        key: &[u8],
        mode: Mode,
        expected: Option<&Expected<'_>>,
    ) -> Result<Outcome> {
        self.prepare_row(tree, key)?;
        self.lock_shared_in(&Arc::clone(&tree.root), key, mode, expected)
    }

    fn lock_shared_in(
        &mut self,
        root: &Arc<TreeRoot>,
        key: &[u8],
        mode: Mode,
        expected: Option<&Expected<'_>>,
    ) -> Result<Outcome> {
        let shared = Arc::clone(&self.shared);
        let btree = BTree::new(&shared.core, root);
        // A long value that was compared, as its entry was then.
        let mut compared = None;
        loop {
            let ticket = shared.registry.waits().ticket();
            let leaf = btree.leaf_shared(key, Access::Normal)?;
            let node = NodeRef::new(&leaf);
            let Ok(slot) = node.search(key) else { return Ok(Outcome::Gone) };
            let payload = node.payload(slot);
            let current = decode(payload)?;
            let own = self.own_id();
            let running = current.writer != own && shared.fate(current.writer)? == Fate::Running;
            // An update leaves the key alone; a delete or an exclusive lock does not, nor does an insert, which may yet
            // be taken back.
            let stands_against = mode == Mode::Share || current.is_tombstone() || current.is_exclusive();
            let before = if running && !stands_against { self.committed(payload)? } else { Seen::Absent };
            if running && before == Seen::Absent {
                let holders: Vec<_> = shared.registry.find(current.writer).into_iter().collect();
                drop(leaf);
                self.wait_for(&holders, ticket, expected.is_none_or(|e| e.wait))?;
                continue;
            }
            self.check_conflict(&current, mode)?;
            if let Some(expected) = expected
                && compared.as_deref() != Some(payload)
                && let Some(standing) = self.standing_for_lock(expected, &current, before, mode)?
            {
                match standing {
                    Standing::Settled(outcome) => return Ok(outcome),
                    Standing::Long(reference) => {
                        compared = Some(payload.to_vec());
                        drop(leaf);
                        let value = overflow::read(&shared.core, &reference)?;
                        if expected.seen != value {
                            return Ok(Outcome::Changed(value));
                        }
                        continue;
                    }
                }
            }
            if current.is_tombstone() {
                return Ok(Outcome::Gone);
            }
            let txn = &self.writing.as_ref().expect("who locks has a number").txn;
            match shared.locks.try_add(root.id, key, txn, mode) {
                Added::Yes => return Ok(Outcome::Done),
                // No memory for one more shared lock: the row itself has room for an exclusive one.
                Added::TableFull => {
                    drop(leaf);
                    return self.write(root, key, Write::Lock, expected);
                }
            }
        }
    }

    /// Under `REPEATABLE READ`: refuses a shared lock on a row that has changed since the snapshot.
    fn check_conflict(&self, current: &Entry<'_>, mode: Mode) -> Result<()> {
        if let (Isolation::RepeatableRead, Some(snapshot)) = (self.options.isolation, &self.snapshot)
            && (mode == Mode::Share || current.is_tombstone())
            && let (writer, Fate::Committed(Some(csn))) =
                self.shared.last_change(Reader::new(snapshot, self.own()), current)?
            && !snapshot.sees(csn)
        {
            return Err(Error::Conflict(writer));
        }
        Ok(())
    }

    /// What a row that somebody is changing was before.
    fn committed<'p>(&self, payload: &'p [u8]) -> Result<Seen<'p>> {
        let snapshot = self.new_snapshot();
        self.shared.look(Reader::new(&snapshot, self.own()), payload)
    }

    // ---- savepoints and the end -------------------------------------------------------------------------------

    /// A place to go back to with [`Transaction::rollback_to`]. It costs next to nothing and keeps nothing, so that each
    /// statement may take one.
    pub fn savepoint(&mut self) -> Savepoint {
        self.last_savepoint += 1;
        let writing = self.writing.as_ref();
        Savepoint {
            number: self.last_savepoint,
            undo: writing.map_or(UndoPtr::NONE, |w| UndoPtr(w.txn.newest_undo())),
            locks: writing.map(|w| self.shared.locks.mark(&w.txn)),
            owner: self.number,
        }
    }

    /// Reverts everything since the savepoint, which stays valid; savepoints made after it do not.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        if savepoint.owner != self.number {
            return Err(Error::Invalid("a savepoint belongs to the transaction that made it".to_owned()));
        }
        self.lose_savepoints_after(savepoint.number)?;
        let Some(writing) = &mut self.writing else { return Ok(()) };
        writing.txn.note_revert();
        let newest = UndoPtr(writing.txn.newest_undo());
        self.shared.revert_to(newest, savepoint.undo, writing.txn.id())?;
        writing.txn.set_newest_undo(savepoint.undo.0);
        match savepoint.locks {
            Some(mark) => drop(self.shared.locks.release_since(&writing.txn, mark)),
            None => self.shared.locks.release_all(&writing.txn),
        }
        // Which trees are held is asked again at the next write.
        writing.trees.clear();
        // Rows came free as well, not only shared locks.
        self.shared.registry.waits().released_some(&writing.txn);
        self.changes += 1;
        Ok(())
    }

    /// Makes the savepoints taken after `number` invalid; fails when it is so itself.
    fn lose_savepoints_after(&mut self, number: u64) -> Result<()> {
        let behind = self.lost_savepoints.partition_point(|&(from, _)| from < number);
        if behind > 0 && number <= self.lost_savepoints[behind - 1].1 {
            let message = "the savepoint is gone since a rollback to an earlier one";
            return Err(Error::Invalid(message.to_owned()));
        }
        self.lost_savepoints.truncate(behind);
        if number < self.last_savepoint {
            self.lost_savepoints.push((number, self.last_savepoint));
        }
        Ok(())
    }

    /// Makes the changes visible, and durable unless the transaction is asynchronous.
    pub fn commit(mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        if writing.txn.sequence() == 0 {
            // Locks only.
            let done = shared.abort(&writing.txn, false);
            self.give_back(writing);
            return done;
        }
        match self.log_commit(&shared, &writing) {
            Ok(()) => {
                shared.locks.release_all(&writing.txn);
                self.give_back(writing);
                Ok(())
            }
            Err(error) if writing.txn.csn() == 0 => {
                // Not in the log: the transaction is whole and can be reverted.
                self.writing = Some(writing);
                Err(error)
            }
            // In the log, but nobody knows whether it is durable: the database is poisoned.
            Err(error) => Err(error),
        }
    }

    fn log_commit(&self, shared: &Shared, writing: &Writing) -> Result<()> {
        let core = &*shared.core;
        let durability = match self.options.durability {
            Durability::Sync => registry::Durability::Sync,
            Durability::Async => registry::Durability::Async,
        };
        let id = writing.txn.id();
        let append = |csn: u64| {
            let mut mtr = Mtr::new(core);
            mtr.group().set_txn(id, TxnEvent::Commit);
            let status = BTree::new(core, &shared.status);
            status.put_made(&mut mtr, &id.0.to_be_bytes(), 8, |_| Ok(csn.to_le_bytes().to_vec()))?;
            mtr.commit()
        };
        let commit = shared.registry.commit(&writing.txn, durability, || core.log.end().0, append)?;
        if commit.needs_durable != gannet_base::Lsn::ZERO {
            core.log.flush_to(commit.needs_durable).inspect_err(|e| core.poison.set(e.to_string()))?;
            shared.registry.advance_visible(core.log.durable());
        }
        Ok(())
    }

    /// Reverts everything.
    pub fn rollback(mut self) -> Result<()> {
        self.end_by_rollback()
    }

    fn end_by_rollback(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let done = self.shared.abort(&writing.txn, writing.txn.sequence() > 0);
        self.give_back(writing);
        done
    }

    fn give_back(&self, writing: Writing) {
        self.shared.core.space.release(writing.reserved_pages);
        self.shared.give_stream(writing.stream);
    }

    // ---- trees ------------------------------------------------------------------------------------------------

    /// Creates a tree; [`Error::Duplicate`] when the name is taken.
    pub fn create_tree(&mut self, name: &str) -> Result<Tree> {
        if name.is_empty() || name.len() > crate::catalog::MAX_NAME {
            return Err(Error::Invalid(format!("a tree's name has 1 to {} bytes", crate::catalog::MAX_NAME)));
        }
        self.start_writing()?;
        let before = self.newest_undo();
        let result = self.create_tree_entry(name);
        if result.is_err() && self.newest_undo() != before {
            let writing = self.writing.as_ref().expect("the transaction writes");
            self.shared.revert_to(self.newest_undo(), before, writing.txn.id())?;
            writing.txn.set_newest_undo(before.0);
        }
        result
    }

    fn newest_undo(&self) -> UndoPtr {
        self.writing.as_ref().map_or(UndoPtr::NONE, |w| UndoPtr(w.txn.newest_undo()))
    }

    fn create_tree_entry(&mut self, name: &str) -> Result<Tree> {
        let shared = Arc::clone(&self.shared);
        let id = shared.new_tree_id()?;
        // The catalog entry comes first, under the transaction's undo; its root is filled in once allocated. A crash
        // in between finds a tree without pages, which the rollback frees as such.
        self.write(
            &shared.catalog,
            name.as_bytes(),
            Write::Insert(&crate::catalog::encode(id, PageId::NONE)),
            None,
        )
        .map(drop)?;
        let mut mtr = Mtr::new(&shared.core);
        let (root, part) = mtr.allocate(id, PageId::NONE)?;
        BTree::format_root(&mut mtr, part, id, shared.core.page_size);
        mtr.commit()?;
        let entry = crate::catalog::encode(id, root);
        self.write(&shared.catalog, name.as_bytes(), Write::Update(&entry), None).map(drop)?;
        Ok(Tree { root: shared.tree_root(id, root), name: Arc::from(name.as_bytes()) })
    }

    /// Opens a tree that this transaction sees.
    pub fn tree(&mut self, name: &str) -> Result<Option<Tree>> {
        self.with_reader(|shared, reader| view::find_tree(shared, reader, name))
    }

    /// Drops a tree with everything in it; false when there is no such tree. Waits for those who write to it.
    pub fn drop_tree(&mut self, name: &str) -> Result<bool> {
        self.start_writing()?;
        let catalog = Arc::clone(&self.shared.catalog);
        self.write(&catalog, name.as_bytes(), Write::Lock, None).map(drop)?;
        let tree = self.shared.created_tree(&catalog, name.as_bytes())?;
        let sequence = self.sequence();
        let dropped = self.write(&catalog, name.as_bytes(), Write::Delete, None)?.is_done();
        if let Some(root) = tree.filter(|_| dropped).and_then(|(id, _)| self.shared.find_tree(id)) {
            root.set_dropped(self.own_id(), sequence);
        }
        Ok(dropped)
    }

    /// Names of the trees this transaction sees.
    pub fn trees(&mut self) -> Result<Vec<String>> {
        let tree = Tree { root: Arc::clone(&self.shared.catalog), name: Arc::from(&b"catalog"[..]) };
        let mut cursor = self.cursor(&tree, (Bound::Unbounded, Bound::Unbounded))?;
        let mut names = Vec::new();
        while let Some((key, _)) = cursor.next()? {
            names.push(String::from_utf8_lossy(key).into_owned());
        }
        Ok(names)
    }

    /// Fills a tree that this transaction has created, and that is still empty, from `entries` in ascending order of
    /// their keys, each once. Far faster than inserting: pages are filled and logged once. Values have to fit a page.
    pub fn bulk_load<'e>(
        &mut self,
        tree: &Tree,
        entries: impl IntoIterator<Item = (&'e [u8], &'e [u8])>,
    ) -> Result<u64> {
        let mut loader = self.bulk_loader(tree)?;
        let mut count = 0;
        for (key, value) in entries {
            loader.push(key, value)?;
            count += 1;
        }
        loader.finish()?;
        Ok(count)
    }

    /// The incremental form of [`Transaction::bulk_load`].
    pub fn bulk_loader<'t>(&'t mut self, tree: &'t Tree) -> Result<BulkLoader<'t>> {
        let created = self
            .shared
            .created_tree(&self.shared.catalog, &tree.name)?
            .is_some_and(|(id, _)| id == tree.id());
        let own = self.own_id();
        let payload = BTree::new(&self.shared.core, &self.shared.catalog).get(&tree.name)?;
        let writer = payload.as_deref().and_then(Entry::decode).map(|e| e.writer);
        let core = &*self.shared.core;
        let leaf = BTree::new(core, &tree.root).leaf_shared(&[], Access::Normal)?;
        let empty = NodeRef::new(&leaf).count() == 0 && leaf.id() == tree.root.root;
        drop(leaf);
        if !created || own.is_none() || writer != Some(own) || !empty {
            let message = "bulk load fills an empty tree that the same transaction has created";
            return Err(Error::Invalid(message.to_owned()));
        }
        // The rows have no undo of their own. Reverting this record, which changes nothing, empties the tree.
        let entry = crate::catalog::encode(tree.id(), tree.root.root);
        let sequence = self.sequence();
        self.write(&Arc::clone(&self.shared.catalog), &tree.name, Write::Update(&entry), None).map(drop)?;
        // A view from before it sees none of the rows, which say nothing of it.
        tree.root.set_filled(own, sequence);
        let core = &*self.shared.core;
        let inner = crate::tree::BulkLoader::new(BTree::new(core, &tree.root));
        Ok(BulkLoader { inner, payload: Vec::new(), page_size: core.page_size })
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Err(error) = self.end_by_rollback() {
            // Nobody is left to tell; the next start reverts the transaction from the log.
            self.shared.core.poison.set(format!("a rollback failed: {error}"));
        }
    }
}

/// Fills a new tree from sorted input, see [`Transaction::bulk_load`].
#[derive(Debug)]
pub struct BulkLoader<'t> {
    inner: crate::tree::BulkLoader<'t>,
    payload: Vec<u8>,
    page_size: usize,
}

impl BulkLoader<'_> {
    /// Adds an entry behind all before it.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let longest = max_entry_len(self.page_size) - 1 - entry::HEADER_LEN;
        if key.len() + value.len() > longest {
            return Err(Error::Invalid(format!(
                "a row of {} bytes is too long for bulk load: with this page size at most {longest} bytes fit",
                key.len() + value.len()
            )));
        }
        self.payload.clear();
        // Written settled: who sees the tree at all sees every row of it.
        self.payload.push(0);
        self.payload.extend_from_slice(value);
        self.inner.push(key, &self.payload)
    }

    /// Completes the tree.
    pub fn finish(self) -> Result<()> {
        self.inner.finish()
    }
}

/// The payload that a write leaves in the leaf.
fn new_payload(
    writer: TxnId,
    undo: UndoPtr,
    current: Option<&Entry<'_>>,
    write: &Write<'_>,
    long: Option<&[u8]>,
) -> Vec<u8> {
    let (flags, value) = match (write, long) {
        (Write::Put(_) | Write::Insert(_) | Write::Update(_), Some(reference)) => (OVERFLOW, reference),
        (Write::Put(value) | Write::Insert(value) | Write::Update(value), None) => (0, *value),
        (Write::Delete, _) => (TOMBSTONE, &[][..]),
        (Write::Lock, _) => {
            let current = current.expect("only a row that is there is locked");
            (LOCK | EXCLUSIVE | current.flags & OVERFLOW, current.value)
        }
    };
    // A lock outlasts later changes by the same transaction.
    let held = current.filter(|c| c.writer == writer).map_or(0, |c| c.flags & EXCLUSIVE);
    let flags = flags | held;
    let entry = Entry { flags: flags | VERSIONED, writer, undo, value };
    let mut payload = Vec::with_capacity(entry.encoded_len());
    entry.encode(&mut payload);
    payload
}
