//! Cursors: a transaction's view of a range of keys, in order, both ways.
//!
//! A cursor works on a private copy of one leaf, so it holds no latch between two calls and survives whatever happens to
//! the tree: the next leaf is found by the key where the copy ends. What its snapshot sees of an entry does not change
//! while it looks at an older copy. Changes of its own transaction are noticed by their count and make it look again.
//!
//! Reading ahead: from the second leaf on, the leaves to come are taken from their parents and fetched as deep batches
//! of growing size, so a scan keeps the device busy however the leaves are scattered. A long scan moves to a ring of
//! frames of its own and does not push out what others use.

use crate::node::NodeRef;
use crate::pool::{Access, ScanRing};
use crate::transaction::{Transaction, Tree};
use crate::tree::{BTree, Target};
use crate::txn::registry::Snapshot;
use crate::versions::{Reader, Seen};
use crate::{Error, Result, overflow};
use gannet_base::PageId;
use gannet_base::memory::{Charge, Purpose};
use gannet_io::Class;
use std::collections::VecDeque;
use std::ops::Bound;

/// Leaves read before a scan uses frames of its own.
const RING_AFTER: usize = 32;
/// Leaves under way or waiting, at first and at most.
const FIRST_WINDOW: usize = 8;
const WIDEST_WINDOW: usize = 256;

/// A range of keys.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

impl Bounds {
    pub(crate) fn new(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Self {
        Bounds { lower: lower.map(<[u8]>::to_vec), upper: upper.map(<[u8]>::to_vec) }
    }

    fn above_lower(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) => key >= lower.as_slice(),
            Bound::Excluded(lower) => key > lower.as_slice(),
            Bound::Unbounded => true,
        }
    }

    fn below_upper(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Backward,
}

/// Where a cursor stands between two calls.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Position {
    /// Nowhere yet: forwards begins at the first key, backwards at the last.
    Fresh,
    /// Before the first key of the range.
    Start,
    /// On this key, which was given last.
    At(Vec<u8>),
    /// Just before this key.
    Before(Vec<u8>),
    /// Behind the last key.
    End,
}

/// The leaves a scan is about to need.
#[derive(Debug, Default)]
struct Ahead {
    /// Known, not yet asked for.
    known: VecDeque<PageId>,
    /// Where the next parent begins; `None` before the first one.
    next: Option<Vec<u8>>,
    exhausted: bool,
    /// Asked for and not yet reached.
    outstanding: usize,
    window: usize,
}

/// A transaction's view of a range of keys, in order, both ways; made by [`Transaction::cursor`]. It holds no latch
/// between two steps, and reads the leaves ahead of it as deep batches.
///
/// ```
/// # use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
/// # use std::ops::Bound;
/// # let folder = tempfile::tempdir().unwrap();
/// # let engine = Engine::new(&EngineOptions::default())?;
/// # let path = folder.path().join("data.gnt");
/// # let db = engine.create(&path, &CreateOptions::default(), &OpenOptions::default())?;
/// let mut txn = db.begin(TransactionOptions::default());
/// let tree = txn.create_tree("letters")?;
/// for letter in [b"a", b"b", b"c", b"d"] {
///     txn.put(&tree, letter, b"")?;
/// }
/// let mut cursor = txn.cursor(&tree, (Bound::Excluded(b"a"), Bound::Unbounded))?;
/// assert_eq!(cursor.next()?.map(|(key, _)| key.to_vec()), Some(b"b".to_vec()));
/// cursor.seek(b"d");
/// assert_eq!(cursor.previous()?.map(|(key, _)| key.to_vec()), Some(b"c".to_vec()));
/// // What the transaction changes in between, the cursor sees.
/// cursor.transaction().delete(&tree, b"b")?;
/// assert!(cursor.previous()?.is_none());
/// # drop(cursor);
/// # txn.rollback()?;
/// # db.close()?;
/// # Ok::<(), gannet_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Cursor<'t> {
    txn: &'t mut Transaction,
    own_snapshot: Option<Snapshot>,
    tree: Tree,
    bounds: Bounds,
    position: Position,
    /// Copy of a leaf; empty when none is loaded.
    leaf: Vec<u8>,
    /// Slot of `position` in the copy, while that is valid.
    slot: usize,
    seen_changes: u64,
    direction: Direction,
    leaves_read: usize,
    ahead: Ahead,
    ring: ScanRing,
    key: Vec<u8>,
    value: Vec<u8>,
    _charge: Charge,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(
        txn: &'t mut Transaction,
        own_snapshot: Option<Snapshot>,
        tree: Tree,
        bounds: Bounds,
    ) -> Result<Self> {
        let core = &txn.shared().core;
        let charge = core.budget.charge(Purpose::Work, core.page_size as u64)?;
        let widest = WIDEST_WINDOW.min(core.pool.frame_count() / 16).max(2);
        Ok(Cursor {
            own_snapshot,
            tree,
            bounds,
            position: Position::Fresh,
            leaf: Vec::new(),
            slot: 0,
            seen_changes: txn.changes(),
            direction: Direction::Forward,
            leaves_read: 0,
            ahead: Ahead::default(),
            ring: ScanRing::new(widest * 3 / 2),
            key: Vec::new(),
            value: Vec::new(),
            _charge: charge,
            txn,
        })
    }

    /// The transaction, to be used between two steps. The cursor sees its changes.
    pub fn transaction(&mut self) -> &mut Transaction {
        self.txn
    }

    /// Moves to the place just before `key`: [`Cursor::next`] gives the first key at or above it, and
    /// [`Cursor::previous`] the last one below, within the range.
    pub fn seek(&mut self, key: &[u8]) {
        self.leaf.clear();
        self.ahead = Ahead::default();
        self.leaves_read = 0;
        self.position = Position::Before(key.to_vec());
    }

    /// The next key and its value, or `None` behind the last one.
    #[expect(clippy::should_implement_trait, reason = "the items borrow the cursor, and steps can fail")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.position == Position::End {
            return Ok(None);
        }
        self.turn(Direction::Forward)?;
        loop {
            let node = NodeRef::new(&self.leaf);
            if self.slot < node.count() {
                let slot = self.slot;
                self.slot += 1;
                self.key.clear();
                node.copy_key(slot, &mut self.key);
                if !self.bounds.below_upper(&self.key) {
                    break;
                }
                if self.bounds.above_lower(&self.key) && self.take_value(slot)? {
                    self.remember();
                    return Ok(Some((&self.key, &self.value)));
                }
                continue;
            }
            let Some(upper) = node.upper_fence() else { break };
            if !self.bounds.below_upper(upper) {
                break;
            }
            let upper = upper.to_vec();
            self.load(Target::Covers(&upper), &upper)?;
            // Usually the leaf begins at `upper`; after a merge it begins before.
            self.slot = NodeRef::new(&self.leaf).search(&upper).unwrap_or_else(|s| s);
        }
        self.position = Position::End;
        Ok(None)
    }

    /// The key before and its value, or `None` before the first one. From a fresh cursor: the last one.
    pub fn previous(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.position == Position::Start {
            return Ok(None);
        }
        self.turn(Direction::Backward)?;
        loop {
            let node = NodeRef::new(&self.leaf);
            if self.slot > 0 {
                self.slot -= 1;
                let slot = self.slot;
                self.key.clear();
                node.copy_key(slot, &mut self.key);
                if !self.bounds.above_lower(&self.key) {
                    break;
                }
                if self.bounds.below_upper(&self.key) && self.take_value(slot)? {
                    self.remember();
                    return Ok(Some((&self.key, &self.value)));
                }
                continue;
            }
            let lower = node.lower_fence();
            if lower.is_empty() || !self.bounds.above_lower(lower) && self.bounds.lower != Bound::Unbounded {
                break;
            }
            let lower = lower.to_vec();
            self.load(Target::Before(&lower), &lower)?;
            // Usually the leaf ends at `lower`; it may have grown beyond since.
            let node = NodeRef::new(&self.leaf);
            self.slot =
                if node.covers(&lower) { node.search(&lower).unwrap_or_else(|s| s) } else { node.count() };
        }
        self.position = Position::Start;
        self.leaf.clear();
        Ok(None)
    }

    /// Stores the position as a key: what a step in the other direction, or a look again, starts from.
    fn remember(&mut self) {
        match &mut self.position {
            Position::At(key) => {
                key.clear();
                key.extend_from_slice(&self.key);
            }
            other => *other = Position::At(self.key.clone()),
        }
    }

    /// Makes sure that a leaf is loaded and that `slot` is right for a step in `direction`.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let stale = self.seen_changes != self.txn.changes();
        if !self.leaf.is_empty() && !stale && self.direction == direction {
            return Ok(());
        }
        self.seen_changes = self.txn.changes();
        if self.direction != direction {
            self.ahead = Ahead::default();
            self.leaves_read = 0;
        }
        self.direction = direction;
        let position = self.position.clone();
        match (direction, position) {
            (Direction::Forward, Position::At(key)) => {
                self.load(Target::Covers(&key), &key)?;
                self.slot = NodeRef::new(&self.leaf).search(&key).map_or_else(|s| s, |s| s + 1);
            }
            (_, Position::Before(key)) => {
                self.load(Target::Covers(&key), &key)?;
                self.slot = NodeRef::new(&self.leaf).search(&key).unwrap_or_else(|s| s);
            }
            (Direction::Forward, _) => {
                let start = match &self.bounds.lower {
                    Bound::Included(key) | Bound::Excluded(key) => key.clone(),
                    Bound::Unbounded => Vec::new(),
                };
                self.load(Target::Covers(&start), &start)?;
                self.slot = NodeRef::new(&self.leaf).search(&start).unwrap_or_else(|s| s);
            }
            (Direction::Backward, Position::At(key)) => {
                self.load(Target::Covers(&key), &key)?;
                self.slot = NodeRef::new(&self.leaf).search(&key).unwrap_or_else(|s| s);
            }
            (Direction::Backward, _) => match self.bounds.upper.clone() {
                Bound::Included(key) | Bound::Excluded(key) => {
                    self.load(Target::Covers(&key), &key)?;
                    self.slot = NodeRef::new(&self.leaf).search(&key).map_or_else(|s| s, |s| s + 1);
                }
                Bound::Unbounded => {
                    self.load(Target::Last, &[])?;
                    self.slot = NodeRef::new(&self.leaf).count();
                }
            },
        }
        Ok(())
    }

    /// Copies a leaf; `near` is a key of the way to it.
    fn load(&mut self, target: Target<'_>, near: &[u8]) -> Result<()> {
        let shared = std::sync::Arc::clone(self.txn.shared());
        let root = std::sync::Arc::clone(&self.tree.root);
        let btree = BTree::new(&shared.core, &root);
        if self.leaves_read >= 1 {
            self.read_ahead(&btree, near)?;
        }
        self.leaves_read += 1;
        let access = if self.leaves_read > RING_AFTER { Access::Ring(&self.ring) } else { Access::Normal };
        let page = match target {
            Target::Covers(key) => btree.leaf_shared(key, access)?,
            _ => btree.leaf_at(target, access)?,
        };
        self.leaf.clear();
        self.leaf.extend_from_slice(&page);
        Ok(())
    }

    /// Keeps the window of leaves under way filled.
    fn read_ahead(&mut self, btree: &BTree<'_>, near: &[u8]) -> Result<()> {
        let ahead = &mut self.ahead;
        if ahead.window == 0 {
            ahead.window = FIRST_WINDOW;
        }
        ahead.outstanding = ahead.outstanding.saturating_sub(1);
        let widest = WIDEST_WINDOW.min(btree.core.pool.frame_count() / 16).max(2);
        if ahead.outstanding > ahead.window / 2 {
            return Ok(());
        }
        let wanted = ahead.window - ahead.outstanding;
        while ahead.known.len() < wanted && !ahead.exhausted {
            let from = ahead.next.take().unwrap_or_else(|| near.to_vec());
            let (leaves, next) = match self.direction {
                Direction::Forward => btree.leaves_from(&from)?,
                Direction::Backward => btree.leaves_before(&from)?,
            };
            ahead.known.extend(leaves);
            let within = match (&next, self.direction) {
                (Some(key), Direction::Forward) => self.bounds.below_upper(key),
                (Some(key), Direction::Backward) => self.bounds.above_lower(key),
                (None, _) => false,
            };
            ahead.exhausted = !within;
            ahead.next = next;
        }
        let count = wanted.min(ahead.known.len());
        if count == 0 {
            return Ok(());
        }
        let pages: Vec<PageId> = ahead.known.drain(..count).collect();
        ahead.outstanding += count;
        ahead.window = (ahead.window * 2).min(widest);
        let access = if self.leaves_read > RING_AFTER { Access::Ring(&self.ring) } else { Access::Normal };
        btree.core.pool.prefetch(&btree.core.volume, &pages, Class::Prefetch, access);
        Ok(())
    }

    /// Puts what the transaction sees of an entry into `value`; false when it sees nothing.
    fn take_value(&mut self, slot: usize) -> Result<bool> {
        let snapshot = match (&self.own_snapshot, self.txn.held_snapshot()) {
            (Some(own), _) => own,
            (None, Some(held)) => held,
            (None, None) => return Err(Error::Invalid("the transaction has ended".to_owned())),
        };
        let reader = Reader { snapshot, own: self.txn.reader_id(), copied: true };
        let shared = self.txn.shared();
        let payload = NodeRef::new(&self.leaf).payload(slot);
        self.value.clear();
        if let [0, value @ ..] = payload {
            // Settled and short: the common case, without a copy in between.
            self.value.extend_from_slice(value);
            return Ok(true);
        }
        match shared.look(reader, payload)? {
            Seen::Absent => return Ok(false),
            Seen::Value(value) => self.value = value,
            Seen::Long(reference) => self.value = overflow::read(&shared.core, &reference)?,
        }
        Ok(true)
    }
}
