//! Writing rows: the newest version of a key, changed together with the undo record that brings it back.

use super::seen::{Expected, Standing};
use super::{
    Isolation, LockMode, MAX_CHANGES, Outcome, ROLLBACK_PAGES, ROLLBACK_SPLITS, Transaction, Tree, Writing,
};
use crate::entry::{EXCLUSIVE, Entry, LOCK, MOVED, OVERFLOW, TOMBSTONE, UndoPtr, VERSIONED};
use crate::log::TxnEvent;
use crate::mtr::Mtr;
use crate::mutation::{Mutation, planted};
use crate::node::{NodeRef, Place, max_key_len};
use crate::overflow;
use crate::pool::ExclusivePage;
use crate::shared::CATALOG;
use crate::space::EXTENT_PAGES;
use crate::sweep::round::{By, Round};
use crate::tree::{BTree, TreeRoot, fits};
use crate::txn::active::ActiveTxn;
use crate::txn::locks::WriteKind;
use crate::txn::registry::Snapshot;
use crate::txn::waits::Ticket;
use crate::undo::{Reserved, UndoKind, UndoRecord};
use crate::versions::{Fate, Reader, Row, decode};
use crate::{Error, Result};
use gannet_base::clock::{self, Instant};
use gannet_base::{TreeId, TxnId};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) enum Write<'a> {
    Put(&'a [u8]),
    Insert(&'a [u8]),
    Update(&'a [u8]),
    Delete,
    /// Deletes the key of a row that gets another one.
    Move,
    Lock,
}

/// What a look at the newest version of a key led to.
enum Found {
    Wait(Vec<Arc<ActiveTxn>>),
    /// A transaction that a crash has cut short, and its undo record.
    Loser(TxnId, UndoPtr),
    /// For those who share the row.
    WaitForSharers(Vec<Arc<ActiveTxn>>),
    Free {
        exists: bool,
    },
    /// Not the version that was seen, or not known yet.
    Seen(Standing),
}

/// How long one operation on a row waits for others, however many of them, and in how many turns.
#[derive(Debug)]
pub(super) struct Patience {
    limit: Option<Duration>,
    /// Since when it has waited, work in between included.
    since: Cell<Option<Instant>>,
}

impl Patience {
    fn left(&self) -> Option<Duration> {
        let limit = self.limit?;
        let now = clock::now();
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        Some(limit.saturating_sub(now - since))
    }
}

impl Transaction {
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
            mode => self.lock_shared(tree, key, mode.shared(), None),
        };
        outcome.map(Outcome::is_done)
    }

    fn write_row(&mut self, tree: &Tree, key: &[u8], write: Write<'_>) -> Result<Outcome> {
        self.prepare_row(tree, key)?;
        self.write(&tree.root, key, write, None)
    }

    /// What every write and lock of a row begins with.
    pub(super) fn prepare_row(&mut self, tree: &Tree, key: &[u8]) -> Result<()> {
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

    /// Whether what it does is to end.
    pub(super) fn is_cancelled(&self) -> bool {
        self.handle.cancel.load(Ordering::Relaxed)
            || self.writing.as_ref().is_some_and(|writing| writing.txn.is_doomed())
    }

    /// Gives the transaction a number, a stream, and room for its rollback.
    pub(super) fn start_writing(&mut self) -> Result<()> {
        self.shared.core.throttle(&|| self.is_cancelled())?;
        if let Some(writing) = &self.writing {
            if writing.txn.sequence() >= MAX_CHANGES {
                return Err(Error::Invalid(format!("one transaction makes at most {MAX_CHANGES} changes")));
            }
            return if writing.txn.is_doomed() { Err(self.why_doomed()) } else { Ok(()) };
        }
        if self.shared.registry.is_expired(self.handle.number) {
            return Err(Error::TooOld);
        }
        if self.options.isolation == Isolation::RepeatableRead {
            self.held_snapshot();
        }
        let space = &self.shared.core.space;
        if let Err(error) = space.reserve(&self.shared.core, ROLLBACK_PAGES) {
            self.make_room(error)?;
            space.reserve(&self.shared.core, ROLLBACK_PAGES)?;
        }
        // The number comes after the stream, so that numbers ascend along it: see `undo`, invariant 3.
        let mut stream = self.shared.take_stream();
        let most = self.shared.core.max_open_transactions;
        let Some(txn) = self.shared.registry.begin_write(most) else {
            space.release(&self.shared.core, ROLLBACK_PAGES);
            self.shared.give_stream(stream, false);
            return Err(Error::Invalid(format!(
                "{most} transactions are writing, and the log keeps account of no more"
            )));
        };
        txn.set_handle(self.handle.number, self.options.snapshot_limit);
        stream.begin(txn.id(), txn.started());
        self.handle.id.store(txn.id().0, Ordering::Relaxed);
        self.writing = Some(Writing {
            txn,
            stream,
            reserved_pages: ROLLBACK_PAGES,
            shrunk_bytes: 0,
            shrunk_trees: BTreeSet::new(),
            drops: false,
            trees: SmallVec::new(),
            closed_holds: false,
        });
        // Who was told to end before his transaction could be found by his number has nobody who dooms it.
        if self.shared.registry.is_expired(self.handle.number) {
            self.shared.registry.doom(self.own_id());
            return Err(Error::TooOld);
        }
        Ok(())
    }

    /// Keeps a tree from being dropped while this transaction writes to it.
    fn hold_tree(&mut self, tree: &Tree) -> Result<()> {
        self.shared.check_handle(&tree.root)?;
        let writing = self.writing.as_mut().expect("the transaction writes");
        let Err(place) = writing.trees.binary_search(&tree.id()) else { return Ok(()) };
        if tree.id() != CATALOG && !self.shared.locks.try_hold(&tree.root, &writing.txn) {
            self.lock_tree(tree)?;
        }
        self.writing.as_mut().expect("the transaction writes").trees.insert(place, tree.id());
        Ok(())
    }

    /// Locks a tree's row in the catalog, having made sure that it is still there.
    fn lock_tree(&mut self, tree: &Tree) -> Result<()> {
        let catalog = Arc::clone(&self.shared.catalog);
        let gone = || {
            Error::Invalid(format!("tree {:?} does not exist any more", String::from_utf8_lossy(tree.name())))
        };
        if !self.lock_shared_in(&catalog, tree.name(), LockMode::Definition.shared(), None)?.is_done() {
            return Err(gone());
        }
        let payload = BTree::new(&self.shared.core, &catalog).get(tree.name())?;
        let entry = payload.as_deref().map(decode).transpose()?.ok_or_else(gone)?;
        if crate::catalog::decode(entry.value).is_none_or(|(id, _)| id != tree.id()) {
            return Err(gone());
        }
        // Nobody gets a share of another's row before its creation is committed.
        if entry.writer != self.own_id() {
            tree.root.set_settled();
        }
        Ok(())
    }

    /// Changes one entry, if it is what is `expected`. [`Outcome::Gone`] where a write that needs the key does not find
    /// it. Where the file has no room, garbage that can go makes some.
    pub(super) fn write(
        &mut self,
        root: &Arc<TreeRoot>,
        key: &[u8],
        write: Write<'_>,
        expected: Option<&Expected<'_>>,
    ) -> Result<Outcome> {
        match self.try_write(root, key, &write, expected) {
            Err(error @ Error::NoSpace(_)) => {
                self.make_room(error)?;
                self.try_write(root, key, &write, expected)
            }
            other => other,
        }
    }

    /// Sweeps what is garbage now; the error is what there was no room for. Without latches.
    fn make_room(&self, error: Error) -> Result<()> {
        if !matches!(error, Error::NoSpace(_)) {
            return Err(error);
        }
        let give_up = || self.is_cancelled();
        match self.shared.sweep(&mut Round::new(&self.shared, By::Room, Duration::ZERO, &give_up)) {
            Ok(()) => Ok(()),
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Err(_) => Err(error),
        }
    }

    /// Where it comes to no change, a long value that was stored for it goes again.
    fn try_write(
        &mut self,
        root: &Arc<TreeRoot>,
        key: &[u8],
        write: &Write<'_>,
        expected: Option<&Expected<'_>>,
    ) -> Result<Outcome> {
        let before = self.newest_undo();
        let mut stored = before;
        let result = self.store_long_value(root, key, write).and_then(|long| {
            stored = self.newest_undo();
            self.write_entry(root, key, write, long.as_deref(), expected)
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
        let mut guard = None;
        // A long value that was compared, as its entry was then.
        let mut compared = None;
        let is_patient = expected.is_none_or(|e| e.wait);
        let patience = self.patience(is_patient);
        // Others share the row; new ones wait until this one has had it.
        let mut queued = None;
        loop {
            let ticket = shared.registry.waits().ticket();
            let leaf = btree.leaf_exclusive(key)?;
            let node = NodeRef::new(&leaf);
            let place = node.search(key);
            let payload = place.ok().map(|slot| node.payload(slot));
            let current = payload.map(decode).transpose()?;
            let expected_now = expected.filter(|_| compared.is_none() || compared.as_deref() != payload);
            let found = match &current {
                Some(current) => {
                    let guard = guard.get_or_insert_with(|| self.undo_guard(expected));
                    let reader = Reader::new(guard, self.own());
                    self.examine(reader, root.id, key, current, write, expected_now)?
                }
                None if expected_now.is_some() => Found::Seen(Standing::Settled(Outcome::Gone)),
                None => Found::Free { exists: false },
            };
            let exists = match found {
                Found::Free { exists } => exists,
                Found::Wait(holders) => {
                    drop(leaf);
                    self.wait_for(&holders, ticket, &patience)?;
                    continue;
                }
                Found::Loser(writer, undo) => {
                    drop(leaf);
                    self.take_from_loser(root, writer, undo, ticket, &patience)?;
                    continue;
                }
                Found::WaitForSharers(holders) => {
                    drop(leaf);
                    if is_patient && queued.is_none() {
                        let txn = &self.writing.as_ref().expect("who writes has a number").txn;
                        queued = Some(shared.locks.queue(shared.registry.waits(), root.id, key, txn));
                    }
                    self.wait_for(&holders, ticket, &patience)?;
                    continue;
                }
                Found::Seen(Standing::Settled(outcome)) => return Ok(outcome),
                Found::Seen(Standing::Long(reference)) => {
                    compared = payload.map(<[u8]>::to_vec);
                    drop(leaf);
                    match self.compare_long(expected, &reference)? {
                        Some(outcome) => return Ok(outcome),
                        None => continue,
                    }
                }
            };
            match write {
                Write::Insert(_) if exists => return Err(Error::Duplicate),
                Write::Update(_) | Write::Delete | Write::Move | Write::Lock if !exists => {
                    return Ok(Outcome::Gone);
                }
                Write::Lock if current.is_some_and(|c| c.writer == self.own_id() && c.is_exclusive()) => {
                    return Ok(Outcome::Done);
                }
                _ => {}
            }
            let before = match (&current, &guard) {
                (Some(current), Some(guard)) => {
                    Some((current, self.shared.shorten(Reader::new(guard, self.own()), current)?))
                }
                _ => None,
            };
            let record = self.undo_record(root.id, key, before, write);
            let writing = self.writing.as_mut().expect("the transaction writes");
            let Some(reserved) = writing.stream.reserve(core, record.len()) else {
                drop(leaf);
                self.start_segment()?;
                continue;
            };
            let undo = writing.stream.position(&reserved);
            let payload = new_payload(writing.txn.id(), undo, current.as_ref(), write, long);
            if !fits(node, place, key, payload.len()) {
                drop(leaf);
                btree.make_room(key, payload.len(), Some(shared.registry.horizon()), false)?;
                continue;
            }
            let shrunk = current.map_or(0, |c| c.encoded_len()).saturating_sub(payload.len());
            self.reserve_for_rollback(root.id, shrunk)?;
            self.apply(leaf, place, &payload, &record, &reserved, undo)?;
            return Ok(Outcome::Done);
        }
    }

    fn apply(
        &mut self,
        leaf: ExclusivePage<'_>,
        place: Place,
        payload: &[u8],
        record: &UndoRecord<Cow<'_, [u8]>>,
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
        if record.previous_flags & OVERFLOW != 0 && matches!(record.kind, UndoKind::Update | UndoKind::Delete)
        {
            // One that makes no sense is told of by whoever reads it.
            let len = overflow::checked_reference(&record.value).map_or(0, |(len, _)| len);
            writing.stream.note_garbage(len);
        }
        mtr.put_entry(leaf, place, &record.key, payload);
        mtr.group().set_txn(writing.txn.id(), TxnEvent::Change { undo: undo.0 });
        mtr.commit()?;
        writing.txn.set_newest_undo(undo.0);
        self.changes += 1;
        Ok(())
    }

    /// A rollback makes a row of `tree` longer again by this much: keeps pages for the splits that may take.
    ///
    /// Its key and header stay with the tombstone, but the rest of its room others may fill, or it goes when leaves are
    /// merged. Say that a leaf *owes* what it holds beyond 5/8 of a page. A split cuts near the middle, at most half of the
    /// longest entry off it, which is an eighth of a page (see `node::limits`). So a leaf that lacks `x` bytes, at most one
    /// entry, owes 3/8 of a page and `x` before, and both halves together at most `x / 2` after its split. Each split
    /// therefore takes 3/8 of a page of what the rollback adds: that are 8/3 leaves to a page of bytes. Another 1/3 is
    /// for the nodes above, and enough from a fan-out of nine on.
    ///
    /// What others' rows made a leaf owe is on top, for at most one split of each leaf. Where the rows of whole leaves were
    /// deleted that is covered, too: the halves of shorter rows' leaves differ less, so two splits to a page of
    /// bytes are what it really takes. Where little was deleted from each of many leaves, and others filled up all of
    /// these, it comes out of [`ROLLBACK_PAGES`] and the pages of the tree's own extents; to keep a page for each row
    /// that became shorter would refuse ordinary work on a disk that is nearly full.
    ///
    /// Trees take whole extents: the last one of each may be used in part only.
    fn reserve_for_rollback(&mut self, tree: TreeId, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let writing = self.writing.as_mut().expect("the transaction writes");
        let core = &self.shared.core;
        let shrunk_bytes = writing.shrunk_bytes + bytes as u64;
        let trees = writing.shrunk_trees.len() as u64 + u64::from(!writing.shrunk_trees.contains(&tree));
        // The first tree's last extent is what every transaction begins with.
        let pages = shrunk_bytes * ROLLBACK_SPLITS / core.page_size as u64;
        let wanted = ROLLBACK_PAGES + (trees - 1) * EXTENT_PAGES + pages;
        if wanted > writing.reserved_pages {
            // Where there is no room the row is not changed, or tried again: it counts once.
            core.space.reserve(core, wanted - writing.reserved_pages)?;
            writing.reserved_pages = wanted;
        }
        writing.shrunk_bytes = shrunk_bytes;
        writing.shrunk_trees.insert(tree);
        Ok(())
    }

    pub(super) fn start_segment(&mut self) -> Result<()> {
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
        current: &Entry<'_>,
        write: &Write<'_>,
        expected: Option<&Expected<'_>>,
    ) -> Result<Found> {
        let (own, row) = (reader.own_id(), Row::new(tree, key));
        if current.writer != own {
            let is_left_alone =
                planted(Mutation::LoserRowOverwritten) && self.shared.is_loser(current.writer);
            if self.shared.fate(current.writer)? == Fate::Running && !is_left_alone {
                if self.shared.is_loser(current.writer) {
                    return Ok(Found::Loser(current.writer, current.undo));
                }
                // Nobody to wait for: it has ended meanwhile, look again at once.
                return Ok(Found::Wait(self.shared.registry.find(current.writer).into_iter().collect()));
            }
            // An insert only asks whether the key is there now.
            if self.options.isolation == Isolation::RepeatableRead
                && !matches!(write, Write::Insert(_))
                && let (writer, Fate::Committed(Some(csn))) = self.shared.last_change(reader, row, current)?
                && !reader.snapshot.sees(csn)
            {
                return Err(Error::Conflict(writer));
            }
        }
        if let Some(expected) = expected
            && let Some(standing) = self.standing(expected, (row, current))?
        {
            return Ok(Found::Seen(standing));
        }
        let kind = match write {
            Write::Put(_) | Write::Insert(_) | Write::Update(_) => WriteKind::Update,
            Write::Delete | Write::Move | Write::Lock => WriteKind::Delete,
        };
        let mut holders = self.shared.locks.conflicting(tree, key, own, kind);
        // Who locks the row for another reason is one more who holds the tree.
        if tree == CATALOG
            && kind == WriteKind::Delete
            && self.writing.as_ref().is_some_and(|w| w.closed_holds)
            && let Some((described, _)) = crate::catalog::decode(current.value)
        {
            let mut others = self.shared.locks.holding(&self.shared.registry, described, own);
            others.retain(|other| holders.iter().all(|holder| holder.id() != other.id()));
            holders.append(&mut others);
        }
        if !holders.is_empty() {
            return Ok(Found::WaitForSharers(holders));
        }
        Ok(Found::Free { exists: !current.is_tombstone() })
    }

    /// A snapshot that keeps the undo of what is about to be changed. A leaf's latch does as well until it is taken: what
    /// the leaf points to is there then.
    fn undo_guard(&self, expected: Option<&Expected<'_>>) -> Arc<Snapshot> {
        match (self.options.isolation, expected, &self.snapshot) {
            (Isolation::RepeatableRead, _, Some(held)) => Arc::clone(held),
            (_, Some(expected), _) => Arc::clone(expected.view.snapshot()),
            _ => Arc::new(self.new_snapshot()),
        }
    }

    /// Takes a row back that a crash has left changed, or waits until it is.
    pub(super) fn take_from_loser(
        &self,
        tree: &TreeRoot,
        writer: TxnId,
        undo: UndoPtr,
        ticket: Ticket,
        patience: &Patience,
    ) -> Result<()> {
        if self.shared.revert_row(tree, writer, undo)? {
            return Ok(());
        }
        let holders: Vec<_> = self.shared.registry.find(writer).into_iter().collect();
        self.wait_for(&holders, ticket, patience)
    }

    /// How long an operation on a row waits for others in all; not at all where it is to fail instead.
    pub(super) fn patience(&self, waits: bool) -> Patience {
        let limit = if waits { self.options.lock_timeout } else { Some(Duration::ZERO) };
        Patience { limit, since: Cell::new(None) }
    }

    /// Waits for others.
    pub(super) fn wait_for(
        &self,
        holders: &[Arc<ActiveTxn>],
        ticket: Ticket,
        patience: &Patience,
    ) -> Result<()> {
        let writing = self.writing.as_ref().expect("who waits has a number");
        let waits = self.shared.registry.waits();
        if holders.is_empty() {
            gannet_base::thread::yield_now();
            return self.shared.core.poison.check();
        }
        let timeout = patience.left();
        self.handle.waiting.store(true, Ordering::Relaxed);
        let waited = waits.wait_for(&writing.txn, holders, ticket, timeout, &self.handle.cancel);
        self.handle.waiting.store(false, Ordering::Relaxed);
        if waited.is_ok() {
            return waited;
        }
        // Where the waits were ended by a failure, that is what the caller is told; and why nobody reverts what a crash has cut short.
        self.shared.core.poison.check()?;
        if holders.iter().any(|holder| holder.is_cut_short()) {
            self.shared.core.check_writable()?;
        }
        waited
    }

    /// Waits behind writers that want a row which this one could share; true when he is to do so nevertheless.
    pub(super) fn wait_behind(
        &self,
        writers: &[Arc<ActiveTxn>],
        ticket: Ticket,
        patience: &Patience,
    ) -> Result<bool> {
        let writing = self.writing.as_ref().expect("who waits has a number");
        let (waits, timeout) = (self.shared.registry.waits(), patience.left());
        self.handle.waiting.store(true, Ordering::Relaxed);
        let waited = waits.wait_behind(&writing.txn, writers, ticket, timeout, &self.handle.cancel);
        self.handle.waiting.store(false, Ordering::Relaxed);
        if waited.is_err() { self.shared.core.poison.check().and(waited) } else { waited }
    }

    /// What brings back `before`: an entry, and what its flags, writer and undo are to be then.
    fn undo_record<'k>(
        &self,
        tree: TreeId,
        key: &'k [u8],
        before: Option<(&Entry<'_>, (u8, TxnId, UndoPtr))>,
        write: &Write<'_>,
    ) -> UndoRecord<Cow<'k, [u8]>> {
        let writing = self.writing.as_ref().expect("the transaction writes");
        let (kind, value) = match (before, write) {
            (None, _) => (UndoKind::Insert, &[][..]),
            (Some(_), Write::Lock) => (UndoKind::Lock, &[][..]),
            (Some((entry, _)), Write::Delete | Write::Move) => (UndoKind::Delete, entry.value),
            (Some((entry, _)), _) => (UndoKind::Update, entry.value),
        };
        let (previous_flags, previous_writer, previous_undo) =
            before.map_or((0, TxnId::NONE, UndoPtr::NONE), |(_, header)| header);
        UndoRecord {
            kind,
            done: false,
            writer: writing.txn.id(),
            previous_record: UndoPtr(writing.txn.newest_undo()),
            sequence: writing.txn.sequence(),
            tree,
            previous_flags,
            previous_writer,
            previous_undo,
            key: Cow::Borrowed(key),
            value: Cow::Owned(value.to_vec()),
        }
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
        (Write::Move, _) => (TOMBSTONE | MOVED, &[][..]),
        (Write::Lock, _) => {
            let current = current.expect("only a row that is there is locked");
            (LOCK | EXCLUSIVE | current.flags & OVERFLOW, current.value)
        }
    };
    // A lock outlasts later changes by the same transaction; so does what a deletion has of one, which a savepoint may bring back: nobody shares the key meanwhile.
    let own_lock = |c: &Entry<'_>| if c.is_tombstone() { EXCLUSIVE } else { c.flags & EXCLUSIVE };
    let held = current.filter(|c| c.writer == writer).map_or(0, own_lock);
    let flags = flags | held;
    let entry = Entry { flags: flags | VERSIONED, writer, undo, value };
    let mut payload = Vec::with_capacity(entry.encoded_len());
    entry.encode(&mut payload);
    payload
}

#[cfg(test)]
mod tests {
    use crate::{
        CreateOptions, Engine, EngineOptions, Error, JobKind, JobOrder, JobReport, JobState, OpenOptions,
        TransactionOptions, Watch,
    };
    use gannet_base::{Lsn, clock, thread};
    use gannet_io::sim::SimDisk;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_writer_behind_the_limit_goes_on_and_can_be_cancelled() {
        let options = EngineOptions { memory: 32 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        let db =
            engine.create(Path::new("slow.gnt"), &CreateOptions::default(), &OpenOptions::default()).unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree("t").unwrap();
        for key in 0..200u64 {
            txn.insert(&tree, &key.to_be_bytes(), &[1; 100]).unwrap();
        }
        let core = Arc::clone(&txn.shared.core);
        // As if redo were going on: no checkpoint gives the log back, of which writers may add half of the limit.
        let wal_limit = 16 << 10;
        let added = |bytes| {
            let opened_at = Lsn(core.log.end().0 - bytes);
            core.backlog.begin(opened_at, opened_at, wal_limit);
        };
        added(wal_limit / 2 + 1);
        txn.insert(&tree, &u64::MAX.to_be_bytes(), b"slow").unwrap();
        added(wal_limit);
        let canceller = txn.canceller();
        let begun = clock::now();
        let other = thread::spawn("other", move || {
            clock::sleep(Duration::from_millis(50));
            canceller.cancel();
        });
        assert!(matches!(txn.insert(&tree, b"never", b"so slow"), Err(Error::Cancelled)));
        assert!(begun.elapsed() >= Duration::from_millis(50), "it had not to pause");
        other.join().unwrap();
        txn.canceller().reset();
        core.backlog.end_redo();
        txn.commit().unwrap();
        assert!(db.begin(TransactionOptions::default()).get(&tree, b"never").unwrap().is_none());
    }

    #[test]
    fn a_sweep_that_pauses_can_be_given_up() {
        let options = EngineOptions { memory: 32 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        let db = engine
            .create(Path::new("sweep.gnt"), &CreateOptions::default(), &OpenOptions::default())
            .unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree("t").unwrap();
        for key in 0..200u64 {
            txn.insert(&tree, &key.to_be_bytes(), &[1; 100]).unwrap();
        }
        txn.commit().unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        for key in 0..200u64 {
            assert!(txn.delete(&tree, &key.to_be_bytes()).unwrap());
        }
        let core = Arc::clone(&txn.shared.core);
        txn.commit().unwrap();
        let wal_limit = 16 << 10;
        let opened_at = Lsn(core.log.end().0 - wal_limit);
        core.backlog.begin(opened_at, opened_at, wal_limit);
        assert!(core.is_behind_limit());
        let begun = clock::now();
        let job = db.jobs().begin(JobOrder::new(JobKind::Sweep));
        let mut tell = |_: &JobReport| {
            if begun.elapsed() < Duration::from_millis(50) { Ok(()) } else { Err(Error::Cancelled) }
        };
        let swept = job.end(db.sweep_watched(false, &mut Watch::new(&job, &mut tell)));
        assert!(matches!(swept, Err(Error::Cancelled)), "{swept:?}");
        assert_eq!(job.report().state, JobState::Cancelled);
        core.backlog.end_redo();
        assert!(db.sweep().unwrap() > 0, "what was given up is swept now");
        assert!(db.check().unwrap().findings.is_empty());
    }
}
