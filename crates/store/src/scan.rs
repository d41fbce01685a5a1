//! Scans: a view of a range of keys, in order, both ways.
//!
//! A scan works on a private copy of one leaf, so it holds no latch between two calls and survives whatever happens to
//! the tree: the next leaf is found by the key where the copy ends. What its view sees of an entry does not change
//! while it looks at an older copy, with one exception: a rollback to a savepoint, which is noticed by its count and makes
//! the scan look again.
//!
//! From the second leaf on it reads ahead ([`ahead`]). A long scan moves to a ring of frames of its own and does not push
//! out what others use.

mod ahead;

use crate::entry::{HEADER_LEN, VERSIONED};
use crate::node::NodeRef;
use crate::pool::{Access, ScanRing, reads};
use crate::transaction::Tree;
use crate::tree::{BTree, Target};
use crate::txn::active::ActiveTxn;
use crate::versions::{Contents, Reader, Seen, undo_frames};
use crate::view::{View, fetch_owned, long_value};
use crate::work::WorkMemory;
use crate::{Error, Result};
pub(crate) use ahead::widest_window;
use ahead::{Ahead, Course, ring_frames};
use gannet_base::TxnId;
use gannet_base::memory::{Charge, Purpose};
use gannet_io::Class;
use std::borrow::Cow;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Leaves read before a scan uses frames of its own.
const RING_AFTER: usize = 32;
/// Leaves that are passed over at a time.
const PASS_OVER: usize = 64;
/// Pages of undo that were waited for one by one, from which on they are read ahead, and for how many rows at a time.
const OLD_AFTER: u64 = 3;
const OLD_ROWS: usize = 32;

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

    /// No key of the range is below this one.
    pub(crate) fn first(&self) -> &[u8] {
        match &self.lower {
            Bound::Included(lower) | Bound::Excluded(lower) => lower,
            Bound::Unbounded => &[],
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.above_lower(key) && self.below_upper(key)
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

/// Why no more of a leaf is shown.
enum LeafEnd {
    Through,
    /// The copy is: see the module's head.
    Stale,
    Enough,
}

/// Who is shown entries, by [`Scan::show`].
pub trait Visitor {
    /// Why it can fail.
    type Error: From<Error>;

    /// Takes an entry.
    fn entry(&mut self, key: &[u8], value: &[u8]) -> std::result::Result<(), Self::Error>;

    /// Whether another one is wanted. Nothing of the one before is held any more.
    fn goes_on(&mut self) -> std::result::Result<bool, Self::Error>;
}

/// Where a scan stands between two calls.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Position {
    /// Nowhere yet: forwards begins at the first key, backwards at the last.
    Fresh,
    /// Before the first key of the range.
    Start,
    /// On the key that was given last.
    At,
    /// Just before this key.
    Before(Vec<u8>),
    /// Behind the last key.
    End,
}

/// A view of a range of keys, in order, both ways; made by [`View::scan`]. It holds no latch between two steps, borrows
/// nothing, and reads the leaves ahead of it as deep batches.
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
/// let mut scan = txn.view().scan(&tree, (Bound::Excluded(b"a"), Bound::Unbounded))?;
/// assert_eq!(scan.next()?.map(|(key, _)| key.to_vec()), Some(b"b".to_vec()));
/// // What the transaction does now, the scan does not show.
/// txn.delete(&tree, b"c")?;
/// assert_eq!(scan.next()?.map(|(key, _)| key.to_vec()), Some(b"c".to_vec()));
/// scan.seek(b"c");
/// assert_eq!(scan.previous()?.map(|(key, _)| key.to_vec()), Some(b"b".to_vec()));
/// # drop(scan);
/// # txn.rollback()?;
/// # db.close()?;
/// # Ok::<(), gannet_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Scan {
    view: View,
    tree: Tree,
    bounds: Bounds,
    position: Position,
    /// Copy of a leaf; empty when none is loaded.
    leaf: Vec<u8>,
    /// Slot of `position` in the copy, while that is valid.
    slot: usize,
    /// How often the transaction had gone back to a savepoint when the leaf was copied.
    reverts: u32,
    direction: Direction,
    leaves_read: usize,
    looks_ahead: bool,
    /// What it reads ahead as.
    class: Class,
    ahead: Ahead,
    /// Pages that were waited for, or read ahead, to see older versions of rows, in which older leaves fade.
    old_waited: u64,
    /// Slots of the leaf for which that was read ahead.
    old_fetched: Range<usize>,
    /// Somebody else all of whose changes the view sees, as an entry has it: usually who made the one before made the next one, too.
    seen_writer: Option<[u8; 8]>,
    /// The same of one whose changes it does not see.
    hidden_writer: Option<[u8; 8]>,
    ring: ScanRing,
    /// The frames for undo, once it uses frames of its own.
    undo_ring: ScanRing,
    /// The key that was given last.
    at: Vec<u8>,
    /// The one that is being looked at.
    key: Vec<u8>,
    /// Where in the copy of the leaf the value is that was given last; `None`: it is `value`.
    place: Option<Range<usize>>,
    value: Vec<u8>,
    /// What `value` is charged as, where that is a long one.
    long: Option<WorkMemory>,
    _charge: Charge,
}

impl Scan {
    pub(crate) fn new(view: View, tree: Tree, bounds: Bounds) -> Result<Self> {
        let shared = view.shared();
        shared.check_tree(view.reader(true), &tree.root)?;
        let core = &shared.core;
        let charge = core.budget.charge(Purpose::Work, core.page_size as u64)?;
        let widest = widest_window(&core.pool);
        Ok(Scan {
            tree,
            bounds,
            position: Position::Fresh,
            leaf: Vec::new(),
            slot: 0,
            reverts: 0,
            direction: Direction::Forward,
            leaves_read: 0,
            looks_ahead: true,
            class: Class::Prefetch,
            ahead: Ahead::default(),
            old_waited: 0,
            old_fetched: 0..0,
            seen_writer: None,
            hidden_writer: None,
            ring: ScanRing::new(ring_frames(widest)),
            undo_ring: ScanRing::new(undo_frames(&core.pool)),
            at: Vec::new(),
            key: Vec::new(),
            place: None,
            value: Vec::new(),
            long: None,
            _charge: charge,
            view,
        })
    }

    /// Turns reading ahead off or on; it is on at first. Off is right for who expects to stop soon.
    pub fn look_ahead(&mut self, on: bool) {
        self.looks_ahead = on;
        self.ahead = Ahead::default();
    }

    /// From now on it gives way to others: it reads ahead as maintenance does, and never into frames that others use.
    pub fn give_way(&mut self) {
        self.class = Class::Maintenance;
        self.leaves_read = RING_AFTER + 1;
    }

    /// Begins anew, with another range of keys, and as one that reads much: through its own ring of frames.
    pub fn go_through(&mut self, range: (Bound<&[u8]>, Bound<&[u8]>)) {
        self.forget_long();
        self.bounds = Bounds::new(range.0, range.1);
        self.position = Position::Fresh;
        self.leaf.clear();
        (self.ahead, self.old_waited) = (Ahead::default(), 0);
        self.leaves_read = RING_AFTER + 1;
    }

    /// How pages are to be fetched for a scan that reads much.
    pub(crate) fn ring_access(&self) -> Access<'_> {
        Access::Ring(&self.ring)
    }

    /// From now on the scan goes on with everything that `own` has changed.
    pub(crate) fn look_again(&mut self, own: Option<Arc<ActiveTxn>>) {
        self.view.set_own(own);
        self.leaf.clear();
    }

    /// Moves to the place just before `key`: [`Scan::next`] gives the first key at or above it, and
    /// [`Scan::previous`] the last one below, within the range.
    pub fn seek(&mut self, key: &[u8]) {
        self.forget_long();
        self.leaf.clear();
        (self.ahead, self.old_waited) = (Ahead::default(), 0);
        self.leaves_read = 0;
        self.position = Position::Before(key.to_vec());
    }

    /// The key that was given or shown last, also where what came behind it has failed; `None` where none was since the scan began, or it has ended.
    pub fn last_key(&self) -> Option<&[u8]> {
        (self.position == Position::At).then_some(&self.at)
    }

    /// Gives back the memory of a long value that was given last, see [`LongValues`](crate::LongValues): who has taken what it needs of it
    /// does not keep it until the next step.
    #[inline]
    pub fn forget_long(&mut self) {
        if self.long.is_some() {
            (self.value, self.long) = (Vec::new(), None);
        }
    }

    /// The value of `key`, within the range or not. Who asks in the order of keys, for some of each leaf, has one copy of a leaf serve all
    /// of those, and leaves are read ahead as by [`Scan::next`]. From there that goes on behind the key.
    pub fn find(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.forget_long();
        let reader = self.view.reader(true);
        reader.check_running()?;
        let is_stale = self.leaf.is_empty() || self.reverts != reader.reverts();
        self.key.clear();
        self.key.extend_from_slice(key);
        if is_stale || !NodeRef::new(&self.leaf).covers(key) {
            if self.view.shared().check_tree(reader, &self.tree.root)? == Contents::Nothing {
                return Ok(None);
            }
            self.load_ahead(key)?;
        } else if self.direction != Direction::Forward {
            self.direction = Direction::Forward;
            self.ahead = Ahead::default();
        }
        let found = NodeRef::new(&self.leaf).search(key);
        self.slot = found.map_or_else(|slot| slot, |slot| slot + 1);
        let is_there = match found {
            Ok(slot) => self.take_value(slot)?,
            Err(_) => false,
        };
        self.remember();
        Ok(is_there.then(|| self.given().1))
    }

    /// Copies the leaf that covers `key`, which others may lie before that nobody wanted: those were read ahead in vain. Where the leaf was not,
    /// reading ahead begins anew.
    fn load_ahead(&mut self, key: &[u8]) -> Result<()> {
        let before = Some(&self.leaf).filter(|leaf| !leaf.is_empty() && self.direction == Direction::Forward);
        let behind = before.and_then(|leaf| NodeRef::new(leaf).upper_fence()).filter(|fence| *fence <= key);
        let behind = behind.map(<[u8]>::to_vec);
        if behind.is_none() {
            self.direction = Direction::Forward;
            self.ahead = Ahead::default();
        }
        let waited = reads::serial_reads();
        self.load(Target::Covers(key), key)?;
        if reads::serial_reads() > waited {
            self.ahead = Ahead::default();
        } else if behind.is_some_and(|fence| NodeRef::new(&self.leaf).lower_fence() != fence) {
            self.ahead.pass_by();
        }
        Ok(())
    }

    /// The next key and its value, or `None` behind the last one.
    #[expect(clippy::should_implement_trait, reason = "the items borrow the scan, and steps can fail")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.position == Position::End {
            return Ok(None);
        }
        if !self.turn(Direction::Forward)? {
            return Ok(None);
        }
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
                if self.bounds.above_lower(&self.key) && self.take_value_or_stand(slot, slot)? {
                    self.remember();
                    return Ok(Some(self.given()));
                }
                continue;
            }
            if !self.next_leaf()? {
                break;
            }
        }
        self.position = Position::End;
        Ok(None)
    }

    /// Shows the next keys and values, those that [`Scan::next`] would give, until no more are wanted; false behind the last one. Of long values,
    /// one is in memory at a time.
    pub fn show<V: Visitor>(&mut self, visitor: &mut V) -> std::result::Result<bool, V::Error> {
        loop {
            if self.position == Position::End || !self.turn(Direction::Forward)? {
                return Ok(false);
            }
            if !self.leaf_is_within() {
                if let Some(more) = self.show_singly(visitor)? {
                    return Ok(more);
                }
                continue;
            }
            let mut last = None;
            let end = self.show_leaf(visitor, &mut last);
            if let Some(slot) = last {
                self.stand_on(slot);
            }
            match end? {
                LeafEnd::Enough => return Ok(true),
                LeafEnd::Stale => {}
                LeafEnd::Through => {
                    if !self.next_leaf()? {
                        self.position = Position::End;
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// The same of the leaf that is loaded, all of which is within the range. `last`: the last one shown.
    fn show_leaf<V: Visitor>(
        &mut self,
        visitor: &mut V,
        last: &mut Option<usize>,
    ) -> std::result::Result<LeafEnd, V::Error> {
        let node = NodeRef::new(&self.leaf);
        let (count, prefix) = (node.count(), node.prefix().len());
        self.key.clear();
        self.key.extend_from_slice(node.prefix());
        while self.slot < count {
            let slot = self.slot;
            self.slot += 1;
            self.key.truncate(prefix);
            self.key.extend_from_slice(NodeRef::new(&self.leaf).key_suffix(slot));
            if !self.take_value_or_stand(slot, slot)? {
                continue;
            }
            *last = Some(slot);
            let value = match &self.place {
                Some(place) => &self.leaf[place.clone()],
                None => &self.value,
            };
            let taken = visitor.entry(&self.key, value);
            self.forget_long();
            taken?;
            if !visitor.goes_on()? {
                return Ok(LeafEnd::Enough);
            }
            let reader = self.view.reader(true);
            if self.reverts != reader.reverts() || reader.check_running().is_err() {
                return Ok(LeafEnd::Stale);
            }
        }
        Ok(LeafEnd::Through)
    }

    /// The same one by one, to the end of a leaf; whether there are more, where that was the end.
    fn show_singly<V: Visitor>(&mut self, visitor: &mut V) -> std::result::Result<Option<bool>, V::Error> {
        loop {
            let Some((key, value)) = self.next()? else { return Ok(Some(false)) };
            let taken = visitor.entry(key, value);
            self.forget_long();
            taken?;
            if !visitor.goes_on()? {
                return Ok(Some(true));
            }
            if self.slot >= NodeRef::new(&self.leaf).count() {
                return Ok(None);
            }
        }
    }

    /// As [`Scan::show`], the other way: those that [`Scan::previous`] would give.
    pub fn show_back<V: Visitor>(&mut self, visitor: &mut V) -> std::result::Result<bool, V::Error> {
        loop {
            let Some((key, value)) = self.previous()? else { return Ok(false) };
            let taken = visitor.entry(key, value);
            self.forget_long();
            taken?;
            if !visitor.goes_on()? {
                return Ok(true);
            }
        }
    }

    /// Stores the key of a slot as the position.
    fn stand_on(&mut self, slot: usize) {
        self.key.clear();
        NodeRef::new(&self.leaf).copy_key(slot, &mut self.key);
        self.remember();
    }

    /// Passes over the next keys, those of some leaves and no more than `most` that [`Scan::next`] would give, and gives how many those are;
    /// `None` behind the last one. Of a value nothing is looked at but whether it is seen.
    pub fn pass_over(&mut self, most: u64) -> Result<Option<u64>> {
        if self.position == Position::End || !self.turn(Direction::Forward)? {
            return Ok(None);
        }
        self.forget_long();
        let mut seen = 0;
        for _ in 0..PASS_OVER {
            // What was passed over counts; the next call tells of a failure behind it.
            match self.pass_over_leaf(most, &mut seen) {
                Err(_) if seen > 0 => return Ok(Some(seen)),
                passed => passed?,
            }
            if seen == most {
                break;
            }
            let goes_on = self.position != Position::End
                && match self.next_leaf() {
                    Err(_) if seen > 0 => return Ok(Some(seen)),
                    next => next?,
                };
            if !goes_on {
                self.position = Position::End;
                return Ok(Some(seen).filter(|seen| *seen > 0));
            }
            self.view.reader(true).check_running()?;
        }
        Ok(Some(seen))
    }

    /// The same of the leaf that is loaded; adds to `seen` how many it sees, also before a failure. Where the range ends there, so does the scan.
    fn pass_over_leaf(&mut self, most: u64, seen: &mut u64) -> Result<()> {
        let within = self.leaf_is_within();
        let (mut last, mut failed) = (None, Ok(()));
        while *seen < most && self.slot < NodeRef::new(&self.leaf).count() {
            let (node, slot) = (NodeRef::new(&self.leaf), self.slot);
            if !within {
                self.key.clear();
                node.copy_key(slot, &mut self.key);
                if !self.bounds.below_upper(&self.key) {
                    self.position = Position::End;
                    break;
                }
            }
            let at_once = self.seen_at_once(node.payload(slot)).is_some();
            if within || self.bounds.above_lower(&self.key) {
                match if at_once { Ok(true) } else { self.sees(slot) } {
                    Ok(true) => (*seen, last) = (*seen + 1, Some(slot)),
                    Ok(false) => {}
                    // The next step begins with it.
                    Err(error) => {
                        failed = Err(error);
                        break;
                    }
                }
            }
            self.slot += 1;
        }
        if let Some(slot) = last
            && self.position != Position::End
        {
            self.stand_on(slot);
        }
        failed
    }

    /// Whether the view sees an entry that somebody has changed lately, or that has a long value.
    fn sees(&mut self, slot: usize) -> Result<bool> {
        if self.note_writer(slot)?.is_some() {
            return Ok(true);
        }
        self.fetch_old(slot);
        let (shared, reader) = (self.view.shared(), self.view.reader(true));
        let before = reads::serial_reads();
        let seen = shared.look(Reader { undo: self.undo_access(), ..reader }, NodeRef::new(&self.leaf), slot);
        let is_there = seen.map(|seen| !matches!(seen, Seen::Absent));
        self.old_waited += reads::serial_reads() - before;
        // Nobody keeps the undo of a transaction that has ended for this reader.
        reader.check_running()?;
        is_there
    }

    /// Whether all keys that the leaf can have are within the range.
    fn leaf_is_within(&self) -> bool {
        let leaf = NodeRef::new(&self.leaf);
        let below = match leaf.upper_fence() {
            _ if self.bounds.upper == Bound::Unbounded => true,
            Some(fence) => self.bounds.below_upper(fence),
            None => false,
        };
        below && (self.bounds.lower == Bound::Unbounded || self.bounds.above_lower(leaf.lower_fence()))
    }

    /// Forwards, to the next leaf; false where there is none in the range.
    fn next_leaf(&mut self) -> Result<bool> {
        let Some(upper) = NodeRef::new(&self.leaf).upper_fence() else { return Ok(false) };
        if !self.bounds.below_upper(upper) {
            return Ok(false);
        }
        let upper = upper.to_vec();
        self.load(Target::Covers(&upper), &upper)?;
        // Usually the leaf begins at `upper`; after a merge it begins before.
        self.slot = NodeRef::new(&self.leaf).search(&upper).unwrap_or_else(|s| s);
        Ok(true)
    }

    /// The key before and its value, or `None` before the first one. From a fresh scan: the last one.
    pub fn previous(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.position == Position::Start {
            return Ok(None);
        }
        if !self.turn(Direction::Backward)? {
            return Ok(None);
        }
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
                if self.bounds.below_upper(&self.key) && self.take_value_or_stand(slot, slot + 1)? {
                    self.remember();
                    return Ok(Some(self.given()));
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
    #[inline]
    fn remember(&mut self) {
        std::mem::swap(&mut self.at, &mut self.key);
        self.position = Position::At;
    }

    /// What is given: the key that was remembered, and its value.
    #[inline]
    fn given(&self) -> (&[u8], &[u8]) {
        let value = match &self.place {
            Some(place) => &self.leaf[place.clone()],
            None => &self.value,
        };
        (&self.at, value)
    }

    /// Makes sure that a leaf is loaded and that `slot` is right for a step in `direction`; false when the view sees
    /// nothing of the tree.
    fn turn(&mut self, direction: Direction) -> Result<bool> {
        let reader = self.view.reader(true);
        reader.check_running()?;
        let stale = self.reverts != reader.reverts();
        if !self.leaf.is_empty() && !stale && self.direction == direction {
            return Ok(true);
        }
        if self.view.shared().check_tree(reader, &self.tree.root)? == Contents::Nothing {
            return Ok(false);
        }
        if self.direction != direction {
            (self.ahead, self.old_waited) = (Ahead::default(), 0);
            self.leaves_read = 0;
        }
        self.direction = direction;
        let position = self.position.clone();
        match (direction, position) {
            (Direction::Forward, Position::At) => {
                let key = self.at.clone();
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
            (Direction::Backward, Position::At) => {
                let key = self.at.clone();
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
        Ok(true)
    }

    /// Copies a leaf; `near` is a key of the way to it. Where that fails, none is loaded: the next step begins at the position.
    fn load(&mut self, target: Target<'_>, near: &[u8]) -> Result<()> {
        self.leaf.clear();
        // Of many leaves nothing may be seen: whoever looks between rows would not be asked.
        self.view.check_cancelled()?;
        let shared = Arc::clone(self.view.shared());
        let root = Arc::clone(&self.tree.root);
        let btree = BTree::new(&shared.core, &root);
        if self.leaves_read >= 1 && self.looks_ahead {
            let course =
                Course { btree: &btree, direction: self.direction, bounds: &self.bounds, class: self.class };
            let ring = (self.leaves_read > RING_AFTER).then_some(&self.ring);
            self.ahead.step(course, near, ring)?;
        }
        self.leaves_read += 1;
        let access = if self.leaves_read > RING_AFTER { Access::Ring(&self.ring) } else { Access::Normal };
        self.reverts = self.view.reader(true).reverts();
        let page = match target {
            Target::Covers(key) => btree.leaf_shared(key, access)?,
            _ => btree.leaf_at(target, access)?,
        };
        self.leaf.extend_from_slice(&page);
        self.old_waited /= 2;
        self.old_fetched = 0..0;
        Ok(())
    }

    /// Reads ahead what the rows from `slot` on need of undo, once rows had to wait for theirs; how much that was fades with each leaf.
    fn fetch_old(&mut self, slot: usize) {
        if self.old_waited < OLD_AFTER || !self.looks_ahead || self.old_fetched.contains(&slot) {
            return;
        }
        let leaf = NodeRef::new(&self.leaf);
        let slots = match self.direction {
            Direction::Forward => slot..leaf.count().min(slot + OLD_ROWS),
            Direction::Backward => (slot + 1).saturating_sub(OLD_ROWS)..slot + 1,
        };
        self.old_fetched = slots.clone();
        // Somebody waits for it right away.
        let class = if self.class == Class::Maintenance { self.class } else { reads::class() };
        let reader = Reader { undo: self.undo_access(), ..self.view.reader(true) };
        self.old_waited += self.view.shared().fetch_old(reader, leaf, slots, class) as u64;
    }

    /// Undo that a long scan reads does not push out what others use, either.
    fn undo_access(&self) -> Access<'_> {
        if self.leaves_read > RING_AFTER { Access::Ring(&self.undo_ring) } else { Access::Normal }
    }

    /// As [`Scan::take_value`]. Where that fails, the scan stands at `next` as before, so that the next step is this one again.
    #[inline]
    fn take_value_or_stand(&mut self, slot: usize, next: usize) -> Result<bool> {
        let taken = self.take_value(slot);
        if taken.is_err() {
            self.slot = next;
        }
        taken
    }

    /// Finds out where what the view sees of an entry is; false when it sees nothing.
    #[inline]
    fn take_value(&mut self, slot: usize) -> Result<bool> {
        self.forget_long();
        let payload = NodeRef::new(&self.leaf).payload_range(slot);
        match self.seen_at_once(&self.leaf[payload.clone()]) {
            Some(header) => {
                self.place = Some(payload.start + header..payload.end);
                Ok(true)
            }
            None => self.look(slot),
        }
    }

    /// How long the header is of an entry with a short value that is settled, or whose writer is known to be seen: the common cases.
    #[inline]
    fn seen_at_once(&self, payload: &[u8]) -> Option<usize> {
        match payload {
            [0, ..] => Some(1),
            [VERSIONED, writer @ ..] if writer.len() >= HEADER_LEN => {
                (writer.first_chunk() == self.seen_writer.as_ref()).then_some(1 + HEADER_LEN)
            }
            _ => None,
        }
    }

    /// Makes note of the writer of an entry of which nothing but that is to be asked, if the view sees it; gives how long the header is.
    fn note_writer(&mut self, slot: usize) -> Result<Option<usize>> {
        let payload = NodeRef::new(&self.leaf).payload(slot);
        let [VERSIONED, rest @ ..] = payload else { return Ok(None) };
        let Some((writer, _)) = rest.split_first_chunk().filter(|_| rest.len() >= HEADER_LEN) else {
            return Ok(None);
        };
        let (id, reader) = (TxnId(u64::from_le_bytes(*writer)), self.view.reader(true));
        if id.is_none() || id == reader.own_id() || self.hidden_writer.as_ref() == Some(writer) {
            return Ok(None);
        }
        if !self.view.shared().sees_other(reader, id)? {
            self.hidden_writer = Some(*writer);
            return Ok(None);
        }
        self.seen_writer = Some(*writer);
        Ok(self.seen_at_once(payload))
    }

    /// The same of an entry that somebody has changed lately, or that has a long value.
    fn look(&mut self, slot: usize) -> Result<bool> {
        if let Some(header) = self.note_writer(slot)? {
            let payload = NodeRef::new(&self.leaf).payload_range(slot);
            self.place = Some(payload.start + header..payload.end);
            return Ok(true);
        }
        self.place = None;
        self.value.clear();
        self.fetch_old(slot);
        let (shared, reader) = (self.view.shared(), self.view.reader(true));
        let before = reads::serial_reads();
        let seen = shared.look(Reader { undo: self.undo_access(), ..reader }, NodeRef::new(&self.leaf), slot);
        self.old_waited += reads::serial_reads() - before;
        reader.check_running()?;
        match seen? {
            Seen::Absent => return Ok(false),
            Seen::Value(Cow::Borrowed(value)) => self.value.extend_from_slice(value),
            Seen::Value(Cow::Owned(value)) => self.value = value,
            Seen::Long(reference) => match long_value(shared, reader, self.reverts, &reference)? {
                Some((value, memory)) => (self.value, self.long) = (value, memory),
                // Taken back meanwhile, by another thread: the row as it is now.
                None => match fetch_owned(shared, reader, &self.tree.root, &self.key)? {
                    Some(value) => self.value = value,
                    None => return Ok(false),
                },
            },
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
