//! Versions: what a snapshot sees of an entry, and what a writer finds.

use crate::entry::{self, Entry, UndoPtr};
use crate::shared::Shared;
use crate::tree::{BTree, TreeRoot};
use crate::txn::registry::Snapshot;
use crate::txn::status::Status;
use crate::undo::{self, UndoKind};
use crate::{Error, Result};
use gannet_base::TxnId;

/// Longest way through old versions that an updater shortens.
const LINK_PAST: usize = 4;

/// Whose eyes an entry is looked at with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// The reader's own transaction, whose changes it sees.
    pub(crate) own: TxnId,
    /// The entry is a copy made earlier: meanwhile its writer may have been reverted without a trace.
    pub(crate) copied: bool,
}

/// What a reader sees of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Nothing.
    Absent,
    /// A value.
    Value(Vec<u8>),
    /// The reference to a long value.
    Long(Vec<u8>),
}

impl Seen {
    fn of(entry: &Entry<'_>) -> Self {
        if entry.is_tombstone() {
            Seen::Absent
        } else if entry.is_overflow() {
            Seen::Long(entry.value.to_vec())
        } else {
            Seen::Value(entry.value.to_vec())
        }
    }
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
        if writer.is_none() || writer < self.registry.horizon() {
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

    fn sees(&self, reader: Reader<'_>, writer: TxnId) -> Result<bool> {
        if writer.is_none() || writer == reader.own || reader.snapshot.sees_unasked(writer) {
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

    /// Fails when the reader sees that the tree was dropped. As long as it does not, the tree's pages are kept for it.
    pub(crate) fn check_tree(&self, reader: Reader<'_>, tree: &TreeRoot) -> Result<()> {
        let dropped_by = tree.dropped_by();
        let reader = Reader { copied: true, ..reader };
        if !dropped_by.is_none() && self.sees(reader, dropped_by)? {
            return Err(Error::Invalid(format!("{} does not exist any more", tree.id)));
        }
        Ok(())
    }

    /// What a reader sees of an entry.
    pub(crate) fn look(&self, reader: Reader<'_>, payload: &[u8]) -> Result<Seen> {
        let entry = decode(payload)?;
        if self.sees(reader, entry.writer)? {
            return Ok(Seen::of(&entry));
        }
        self.look_back(reader, entry)
    }

    /// Walks the versions before an entry that the reader does not see.
    fn look_back(&self, reader: Reader<'_>, entry: Entry<'_>) -> Result<Seen> {
        let mut value = entry.value.to_vec();
        let mut flags = entry.flags;
        let mut undo = entry.undo;
        loop {
            let record = undo::read(&self.core, undo)?;
            if record.kind == UndoKind::Insert {
                return Ok(Seen::Absent);
            }
            let current = Entry { flags, writer: record.writer, undo, value: &value };
            let previous = record.previous(&current);
            if self.sees(reader, previous.writer)? {
                return Ok(Seen::of(&previous));
            }
            (flags, undo) = (previous.flags, previous.undo);
            value = previous.value.to_vec();
        }
    }

    /// The newest change of an entry that is not a mere lock: its writer's fate. The reader's own changes count as
    /// committed long ago.
    pub(crate) fn last_change(&self, reader: Reader<'_>, entry: &Entry<'_>) -> Result<(TxnId, Fate)> {
        let (mut writer, mut undo, mut is_lock) = (entry.writer, entry.undo, entry.is_lock());
        loop {
            // Undo of a writer that the snapshot sees unasked may be gone; that of others is kept for the snapshot.
            if writer.is_none() || writer == reader.own || reader.snapshot.sees_unasked(writer) {
                return Ok((writer, Fate::Committed(None)));
            }
            if !is_lock {
                return Ok((writer, self.fate(writer)?));
            }
            let record = undo::read(&self.core, undo)?;
            (writer, undo) = (record.previous_writer, record.previous_undo);
            is_lock = record.previous_flags & entry::LOCK != 0;
        }
    }

    /// How the version in the tree is to be remembered once it has a successor: flags, writer and undo pointer,
    /// without what nobody can ask for any more.
    pub(crate) fn shorten(&self, reader: Reader<'_>, current: &Entry<'_>) -> Result<(u8, TxnId, UndoPtr)> {
        let keep = (current.flags, current.writer, current.undo);
        if current.writer.is_none() || current.writer == reader.own {
            return Ok(keep);
        }
        let Fate::Committed(csn) = self.fate(current.writer)? else { return Ok(keep) };
        if csn.is_none_or(|csn| csn <= self.registry.oldest_visible_csn()) {
            // Every snapshot, live or to come, sees this version or a newer one.
            return Ok((current.flags & !(entry::VERSIONED | entry::LOCK), TxnId::NONE, UndoPtr::NONE));
        }
        match csn {
            Some(csn) if !reader.snapshot.sees_unasked(current.writer) => {
                Ok((current.flags, current.writer, self.link_past(reader, current.undo, csn)?))
            }
            _ => Ok(keep),
        }
    }

    /// The first of the versions behind `undo` that somebody may see, given when its successor was committed. The
    /// reader's snapshot keeps the undo that is read here.
    fn link_past(&self, reader: Reader<'_>, mut undo: UndoPtr, mut superseded: u64) -> Result<UndoPtr> {
        for _ in 0..LINK_PAST {
            let record = undo::read(&self.core, undo)?;
            let writer = record.previous_writer;
            // A lock's record takes the value from the version behind it, which therefore has to stay.
            if !matches!(record.kind, UndoKind::Update | UndoKind::Delete)
                || record.previous_flags & entry::LOCK != 0
                || record.previous_undo.is_none()
                || reader.snapshot.sees_unasked(writer)
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

/// Reads an entry's payload.
pub(crate) fn decode(payload: &[u8]) -> Result<Entry<'_>> {
    Entry::decode(payload).ok_or_else(|| Error::Damaged("a row's entry makes no sense".to_owned()))
}
