//! Versions: what a snapshot sees of an entry, and what a writer finds.

use crate::core::Core;
use crate::entry::{self, Entry, OVERFLOW, REFERENCE_LEN, TOMBSTONE, UndoPtr};
use crate::node::NodeRef;
use crate::pool::{Access, Pool};
use crate::shared::Shared;
use crate::tree::{BTree, TreeRoot};
use crate::txn::active::ActiveTxn;
use crate::txn::registry::Snapshot;
use crate::txn::status::Status;
use crate::undo::{self, Circle, UndoKind, UndoRecord};
use crate::view::LongValues;
use crate::{Error, Result};
use gannet_base::{PageId, TreeId, TxnId};
use gannet_io::Class;
use std::borrow::Cow;
use std::ops::Range;

/// Longest way through old versions that an updater shortens.
const LINK_PAST: usize = 4;

/// Versions of a row that are read ahead: who is further behind waits for each of the others.
const FETCHED_VERSIONS: usize = 32;

/// Stands where the dropping transaction would, for a tree whose creation was rolled back.
pub(crate) const NEVER_CREATED: TxnId = TxnId(u64::MAX);

/// A reader that sees all of its own transaction's changes, also those to come.
pub(crate) const ALL_OWN: u32 = u32::MAX;

/// Whose eyes an entry is looked at with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// The reader's own transaction, once it has a number.
    pub(crate) own: Option<&'a ActiveTxn>,
    /// Of the own transaction's changes it sees those whose undo record has a number below this.
    pub(crate) upto: u32,
    /// The entry is a copy made earlier: meanwhile its writer may have been reverted without a trace.
    pub(crate) copied: bool,
    /// Who is told of long values before they are read.
    pub(crate) long_values: Option<&'a dyn LongValues>,
    /// How undo is read that leads to what it sees.
    pub(crate) undo: Access<'a>,
}

impl<'a> Reader<'a> {
    /// One that sees everything of its own.
    pub(crate) fn new(snapshot: &'a Snapshot, own: Option<&'a ActiveTxn>) -> Self {
        Reader { snapshot, own, upto: ALL_OWN, copied: false, long_values: None, undo: Access::Normal }
    }

    pub(crate) fn own_id(&self) -> TxnId {
        self.own.map_or(TxnId::NONE, ActiveTxn::id)
    }

    /// Whether the own transaction has changed nothing that this reader must not see. To be asked after the entry was
    /// found: see `ActiveTxn`, invariant 4.
    fn sees_all_own(&self) -> bool {
        self.own.is_none_or(|own| own.sequence() <= self.upto)
    }

    /// Fails once the own transaction has come to its end, or is about to: from then on its versions are no more told
    /// apart by their numbers.
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.own.is_none_or(ActiveTxn::is_running) {
            return Ok(());
        }
        Err(Error::Invalid("the transaction that this view belongs to has ended".to_owned()))
    }

    /// What tells that the own transaction has gone back to a savepoint.
    pub(crate) fn reverts(&self) -> u32 {
        self.own.map_or(0, ActiveTxn::reverts)
    }
}

/// A row, by tree and key: undo records of others are none of its history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    tree: TreeId,
    /// The key, in two parts.
    key: (&'a [u8], &'a [u8]),
}

impl<'a> Row<'a> {
    pub(crate) fn new(tree: TreeId, key: &'a [u8]) -> Self {
        Row { tree, key: (&[], key) }
    }

    /// The one at a slot of a leaf.
    pub(crate) fn of(leaf: NodeRef<'a>, slot: usize) -> Self {
        Row { tree: leaf.tree(), key: (leaf.prefix(), leaf.key_suffix(slot)) }
    }

    fn has(&self, record: &UndoRecord) -> bool {
        record.tree == self.tree && record.key.strip_prefix(self.key.0) == Some(self.key.1)
    }
}

/// The way back through the versions of a row. An undo page whose last write was lost is a sound one, of other rows: its values are not shown as this one's.
struct History<'a> {
    core: &'a Core,
    row: Row<'a>,
    circle: Circle,
}

impl<'a> History<'a> {
    fn new(core: &'a Core, row: Row<'a>) -> Self {
        History { core, row, circle: Circle::default() }
    }

    /// The record that a version leads to. Its writer may be another than the version's, where it leads past versions that nobody sees.
    fn record(&mut self, at: UndoPtr, access: Access<'_>) -> Result<UndoRecord> {
        if self.circle.closes(at) {
            return Err(Error::damaged_page(at.page(), "the history of a row leads back to itself"));
        }
        let record = undo::read_by(self.core, at, access)?;
        if self.row.has(&record) {
            return Ok(record);
        }
        let (offset, tree) = (at.offset(), record.tree);
        let what = format_args!(
            "the history of a row of {} leads to the record of another one, of {tree}, at {offset}",
            self.row.tree
        );
        Err(Error::damaged_page(at.page(), what))
    }
}

/// What a reader sees of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen<'p> {
    /// Nothing.
    Absent,
    /// A value.
    Value(Cow<'p, [u8]>),
    /// The reference to a long value.
    Long([u8; REFERENCE_LEN]),
}

impl<'p> Seen<'p> {
    fn of(flags: u8, value: Cow<'p, [u8]>) -> Self {
        if flags & TOMBSTONE != 0 {
            Seen::Absent
        } else if flags & OVERFLOW != 0 {
            Seen::Long(value[..REFERENCE_LEN].try_into().expect("a reference has this length"))
        } else {
            Seen::Value(value)
        }
    }
}

/// What there is of a tree for a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contents {
    /// What is stored in it.
    Stored,
    /// Nothing: it was filled later, in a way that leaves no trace in its rows.
    Nothing,
}

/// What became of an entry's writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It has not ended, or its end is not visible yet.
    Running,
    /// It committed; `None` when so long ago that everybody sees it.
    Committed(Option<u64>),
}

impl Shared {
    /// What became of a version's writer, when the version is looked at in its place, under the latch.
    pub(crate) fn fate(&self, writer: TxnId) -> Result<Fate> {
        match self.known_fate(writer)? {
            Some(fate) => Ok(fate),
            None => Err(Error::Damaged(format!("{writer} wrote a row, but nothing is known of it"))),
        }
    }

    /// The same for what may have changed since; `None` when the writer was reverted.
    fn known_fate(&self, writer: TxnId) -> Result<Option<Fate>> {
        if writer.is_none() || writer < self.registry.known_horizon() {
            return Ok(Some(Fate::Committed(None)));
        }
        match self.registry.status(writer) {
            Status::Running => Ok(Some(Fate::Running)),
            Status::Committed(csn) => Ok(Some(Fate::Committed(Some(csn)))),
            Status::Unknown => {
                let stored = BTree::new(&self.core, &self.status).get(&writer.0.to_be_bytes())?;
                match stored.and_then(|v| v.try_into().ok()) {
                    Some(csn) => {
                        let csn = u64::from_le_bytes(csn);
                        self.registry.cache_committed(writer, csn);
                        Ok(Some(Fate::Committed(Some(csn))))
                    }
                    // The horizon may have passed it, and sweep its status, while we looked.
                    None if writer < self.registry.horizon() => Ok(Some(Fate::Committed(None))),
                    None => Ok(None),
                }
            }
        }
    }

    /// Whether a reader sees what another transaction wrote.
    pub(crate) fn sees_other(&self, reader: Reader<'_>, writer: TxnId) -> Result<bool> {
        if writer.is_none() || reader.snapshot.sees_unasked(writer) {
            return Ok(true);
        }
        let fate = match self.known_fate(writer)? {
            None if reader.copied => return Ok(false),
            None => self.fate(writer)?,
            Some(fate) => fate,
        };
        Ok(match fate {
            Fate::Running => false,
            Fate::Committed(None) => true,
            Fate::Committed(Some(csn)) => reader.snapshot.sees(csn),
        })
    }

    /// Whether a reader sees a change that concerns a whole tree.
    fn sees_mark(&self, reader: Reader<'_>, (writer, sequence): (TxnId, u32)) -> Result<bool> {
        if writer == reader.own_id() {
            return Ok(sequence < reader.upto);
        }
        self.sees_other(Reader { copied: true, ..reader }, writer)
    }

    /// Fails when the reader sees that the tree was dropped. As long as it does not, the tree's pages are kept for it.
    pub(crate) fn check_tree(&self, reader: Reader<'_>, tree: &TreeRoot) -> Result<Contents> {
        self.core.check_open()?;
        reader.snapshot.check_limit()?;
        reader.check_running()?;
        self.check_handle(tree)?;
        let dropped = tree.dropped();
        if dropped.0 == NEVER_CREATED {
            return Err(Error::Invalid(format!("{} does not exist: its creation was rolled back", tree.id)));
        }
        if !dropped.0.is_none() && self.sees_mark(reader, dropped)? {
            return Err(Error::Invalid(format!("{} does not exist any more", tree.id)));
        }
        let filled = tree.filled();
        if !filled.0.is_none() && !self.sees_mark(reader, filled)? {
            return Ok(Contents::Nothing);
        }
        Ok(Contents::Stored)
    }

    /// What a reader sees of an entry.
    pub(crate) fn look<'p>(&self, reader: Reader<'_>, leaf: NodeRef<'p>, slot: usize) -> Result<Seen<'p>> {
        let Entry { mut flags, mut writer, mut undo, value } = decode(leaf.payload(slot))?;
        let mut value = Cow::Borrowed(value);
        let mut history = History::new(&self.core, Row::of(leaf, slot));
        let own = reader.own_id();
        loop {
            // Of the own changes each has to be looked at, unless all of them are seen.
            let is_own = !writer.is_none() && writer == own;
            let seen = if is_own { reader.sees_all_own() } else { self.sees_other(reader, writer)? };
            if seen {
                return Ok(Seen::of(flags, value));
            }
            let record = history.record(undo, reader.undo)?;
            if is_own && record.sequence < reader.upto {
                return Ok(Seen::of(flags, value));
            }
            if record.kind == UndoKind::Insert {
                return Ok(Seen::Absent);
            }
            (flags, writer, undo) = (record.previous_flags, record.previous_writer, record.previous_undo);
            // A lock left the value where it was.
            if record.kind != UndoKind::Lock {
                value = Cow::Owned(record.value);
            }
        }
    }

    /// Reads ahead the undo behind which a reader finds what it sees of some entries of a leaf: for all of them at a time, version by
    /// version, where [`Shared::look`] would wait for one page after the other. Gives how many pages had to be read. What cannot be read
    /// is for `look` to tell, where the row is wanted.
    pub(crate) fn fetch_old(
        &self,
        reader: Reader<'_>,
        leaf: NodeRef<'_>,
        slots: Range<usize>,
        class: Class,
    ) -> usize {
        let hidden = |writer: TxnId, undo: UndoPtr| {
            let other = !writer.is_none() && !undo.is_none() && writer != reader.own_id();
            other && self.sees_other(reader, writer).is_ok_and(|sees| !sees)
        };
        let entries = slots.filter_map(|slot| Entry::decode(leaf.payload(slot)));
        let mut wanted: Vec<_> =
            entries.filter(|entry| hidden(entry.writer, entry.undo)).map(|entry| entry.undo).collect();
        let core = &self.core;
        // More than this would push out again what came first.
        let most = undo_frames(&core.pool);
        let mut started = 0;
        for _ in 0..FETCHED_VERSIONS {
            let mut pages: Vec<PageId> = wanted.iter().map(|undo| undo.page()).collect();
            pages.sort_unstable();
            pages.dedup();
            if pages.len() < 2 || started + pages.len() > most {
                break;
            }
            started += core.pool.prefetch(&core.volume, &pages, class, reader.undo);
            wanted.retain_mut(|at| match undo::before(core, *at, reader.undo) {
                Ok((writer, undo)) => {
                    *at = undo;
                    hidden(writer, undo)
                }
                Err(_) => false,
            });
        }
        started
    }

    /// The number of the newest change of an entry that is no mere lock, if the transaction itself made it.
    pub(crate) fn own_change(&self, own: TxnId, row: Row<'_>, entry: &Entry<'_>) -> Result<Option<u32>> {
        let (mut writer, mut undo, mut is_lock) = (entry.writer, entry.undo, entry.is_lock());
        let mut history = History::new(&self.core, row);
        while writer == own {
            let record = history.record(undo, Access::Normal)?;
            if !is_lock {
                return Ok(Some(record.sequence));
            }
            (writer, undo) = (record.previous_writer, record.previous_undo);
            is_lock = record.previous_flags & entry::LOCK != 0;
        }
        Ok(None)
    }

    /// The newest change of an entry that is not a mere lock: its writer's fate. The reader's own changes count as
    /// committed long ago.
    pub(crate) fn last_change(
        &self,
        reader: Reader<'_>,
        row: Row<'_>,
        entry: &Entry<'_>,
    ) -> Result<(TxnId, Fate)> {
        let (mut writer, mut undo, mut is_lock) = (entry.writer, entry.undo, entry.is_lock());
        let mut history = History::new(&self.core, row);
        loop {
            // Undo of a writer that the snapshot sees unasked may be gone; that of others is kept for the snapshot.
            if writer.is_none() || writer == reader.own_id() || reader.snapshot.sees_unasked(writer) {
                return Ok((writer, Fate::Committed(None)));
            }
            if !is_lock {
                return Ok((writer, self.fate(writer)?));
            }
            let record = history.record(undo, Access::Normal)?;
            (writer, undo) = (record.previous_writer, record.previous_undo);
            is_lock = record.previous_flags & entry::LOCK != 0;
        }
    }

    /// Whether another transaction has put the row under another key since the reader's snapshot, and committed. The snapshot
    /// keeps the undo that is read here.
    pub(crate) fn moved_since(&self, reader: Reader<'_>, row: Row<'_>, entry: &Entry<'_>) -> Result<bool> {
        let (mut flags, mut writer, mut undo) = (entry.flags, entry.writer, entry.undo);
        let mut history = History::new(&self.core, row);
        loop {
            if writer.is_none() || reader.snapshot.sees_unasked(writer) {
                return Ok(false);
            }
            if writer != reader.own_id() {
                match self.fate(writer)? {
                    Fate::Running => {}
                    Fate::Committed(Some(csn)) if !reader.snapshot.sees(csn) => {
                        if flags & entry::MOVED != 0 {
                            return Ok(true);
                        }
                    }
                    Fate::Committed(_) => return Ok(false),
                }
            }
            let record = history.record(undo, Access::Normal)?;
            if record.kind == UndoKind::Insert {
                return Ok(false);
            }
            (flags, writer, undo) = (record.previous_flags, record.previous_writer, record.previous_undo);
        }
    }

    /// How the version in the tree is to be remembered once it has a successor: flags, writer and undo pointer,
    /// without what nobody can ask for any more.
    pub(crate) fn shorten(&self, reader: Reader<'_>, current: &Entry<'_>) -> Result<(u8, TxnId, UndoPtr)> {
        let keep = (current.flags, current.writer, current.undo);
        if current.writer.is_none() || current.writer == reader.own_id() {
            return Ok(keep);
        }
        let Fate::Committed(csn) = self.fate(current.writer)? else { return Ok(keep) };
        if csn.is_none_or(|csn| csn <= self.registry.oldest_visible_csn()) {
            // Every snapshot, live or to come, sees this version or a newer one.
            return Ok((current.flags & entry::KEPT_WHEN_SETTLED, TxnId::NONE, UndoPtr::NONE));
        }
        let Some(csn) = csn else { return Ok(keep) };
        if !reader.snapshot.sees_unasked(current.writer) {
            let undo = self.link_past(reader.snapshot, current.undo, csn)?;
            return Ok((current.flags, current.writer, undo));
        }
        // The reader's own snapshot is newer than what an older one makes everybody keep.
        let Some(oldest) = self.registry.pin_oldest().filter(|pin| !pin.sees_unasked(current.writer)) else {
            return Ok(keep);
        };
        Ok((current.flags, current.writer, self.link_past(&oldest, current.undo, csn)?))
    }

    /// The first of the versions behind `undo` that somebody may see, given when its successor was committed. The snapshot `keeper` keeps
    /// the undo that is read here.
    fn link_past(&self, keeper: &Snapshot, mut undo: UndoPtr, mut superseded: u64) -> Result<UndoPtr> {
        for _ in 0..LINK_PAST {
            // Nobody waits for the device here, with the row's page latched: who is further back than memory goes is some steps longer.
            let Some(record) = undo::read_resident(&self.core, undo)? else { break };
            let writer = record.previous_writer;
            // A lock's record takes the value from the version behind it, which therefore has to stay.
            if !matches!(record.kind, UndoKind::Update | UndoKind::Delete)
                // Nobody may see that the row has moved, but who waits for it has to be told.
                || record.previous_flags & (entry::LOCK | entry::MOVED) != 0
                || record.previous_undo.is_none()
                || keeper.sees_unasked(writer)
            {
                break;
            }
            let Fate::Committed(Some(csn)) = self.fate(writer)? else { break };
            if self.registry.anyone_sees(csn, superseded) {
                break;
            }
            undo = record.previous_undo;
            superseded = csn;
        }
        Ok(undo)
    }
}

/// Frames for the undo that a long scan reads: for what lies behind the rows that it looks at, and for some that the next ones ask for again.
pub(crate) fn undo_frames(pool: &Pool) -> usize {
    (pool.frame_count() / 16).clamp(8, 4096)
}

/// Reads an entry's payload.
pub(crate) fn decode(payload: &[u8]) -> Result<Entry<'_>> {
    Entry::decode(payload).ok_or_else(|| Error::Damaged("a row's entry makes no sense".to_owned()))
}
