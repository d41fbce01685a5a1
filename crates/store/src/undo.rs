//! Undo: what every version looked like before, in append-only segments.
//!
//! A segment is one extent. A writing transaction owns a *stream* while it runs and appends to the stream's newest
//! segment; when a segment is full, the directory tree (key: stream and sequence, big-endian) gets the next one. The
//! sequence is the log position at which the segment begins, so no two segments ever have the same.
//! Undo pages go through the pool and the log like any page, so a long reader costs disk, not memory.
//!
//! ```text
//! record: len u16 | kind u8 | previous flags u8 | done u8 | 0 u8 | key len u16 |
//!         writer u64 | previous record of the writer u64 | sequence u32 | tree u32 |
//!         only where there was a version before: previous writer u64 | previous undo u64 |
//!         key | previous value
//! ```
//!
//! # Invariants
//! 1. A record is written by the same mini-transaction as the change it describes, so neither is there without the
//!    other. An entry's undo pointer is therefore never dangling while its writer is at or above the horizon.
//! 2. `done` is set by the same mini-transaction that reverts (or sweeps) the record. Reverting is idempotent.
//! 3. Transactions of one stream follow one another, so their numbers ascend along the stream.
//! 4. A segment is freed only when every transaction in it is below the horizon and every record's consequences
//!    (dead entries, long values nobody sees) were carried out.

use crate::core::Core;
use crate::entry::{Entry, OVERFLOW, REFERENCE_LEN, UndoPtr};
use crate::mtr::{Mtr, Part};
use crate::page::{self, HEADER_LEN, PageKind, get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use crate::pool::Access;
use crate::space::EXTENT_PAGES;
use crate::tree::{BTree, TreeRoot};
use crate::{Error, Result};
use gannet_base::clock::{self, Instant};
use gannet_base::{PageId, TreeId, TxnId};
use std::time::Duration;

/// Owner of undo segments.
pub(crate) const UNDO_PAGES: TreeId = TreeId(4);

/// Bytes of a record's header where there was no version before.
const SHORT_HEADER: usize = 32;
/// The same where there was one.
const LONG_HEADER: usize = 48;
const KIND_AT: usize = 2;
const FLAGS_AT: usize = 3;
const DONE_AT: usize = 4;
const KEY_LEN_AT: usize = 6;
const WRITER_AT: usize = 8;
const PREVIOUS_RECORD_AT: usize = 16;
const SEQUENCE_AT: usize = 24;
const TREE_AT: usize = 28;
const PREVIOUS_WRITER_AT: usize = 32;
const PREVIOUS_UNDO_AT: usize = 40;

/// Stream and sequence of the segment a page belongs to: tells it from what the page held in an earlier segment.
const STREAM_AT: usize = HEADER_LEN + 4;
const SEGMENT_AT: usize = HEADER_LEN + 8;
/// Offset of the first record of an undo page, behind header, end position and segment.
const FIRST_RECORD: usize = HEADER_LEN + 16;

/// What a transaction did to an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum UndoKind {
    /// The key was not there.
    Insert = 1,
    /// There was a version before.
    Update = 2,
    /// There was a version before; now there is a tombstone.
    Delete = 3,
    /// The row was locked; its value stayed.
    Lock = 4,
    /// Overflow pages were allocated; the value is their reference. No entry.
    Chain = 5,
}

impl UndoKind {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => UndoKind::Insert,
            2 => UndoKind::Update,
            3 => UndoKind::Delete,
            4 => UndoKind::Lock,
            5 => UndoKind::Chain,
            _ => return None,
        })
    }

    fn header_len(self) -> usize {
        match self {
            UndoKind::Insert | UndoKind::Chain => SHORT_HEADER,
            UndoKind::Update | UndoKind::Delete | UndoKind::Lock => LONG_HEADER,
        }
    }
}

/// An undo record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UndoRecord<B = Vec<u8>> {
    pub(crate) kind: UndoKind,
    pub(crate) done: bool,
    pub(crate) writer: TxnId,
    /// The writer's record before this one.
    pub(crate) previous_record: UndoPtr,
    /// Number of the record within its transaction: tells a statement's own changes from earlier ones.
    pub(crate) sequence: u32,
    pub(crate) tree: TreeId,
    pub(crate) previous_flags: u8,
    pub(crate) previous_writer: TxnId,
    pub(crate) previous_undo: UndoPtr,
    pub(crate) key: B,
    pub(crate) value: B,
}

impl<B: AsRef<[u8]>> UndoRecord<B> {
    /// Bytes the record takes.
    pub(crate) fn len(&self) -> usize {
        self.kind.header_len() + self.key.as_ref().len() + self.value.as_ref().len()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (key, value) = (self.key.as_ref(), self.value.as_ref());
        let mut header = [0; LONG_HEADER];
        let header_len = self.kind.header_len();
        put_u16(&mut header, 0, self.len() as u16);
        header[KIND_AT] = self.kind as u8;
        header[FLAGS_AT] = self.previous_flags;
        header[DONE_AT] = u8::from(self.done);
        put_u16(&mut header, KEY_LEN_AT, key.len() as u16);
        put_u64(&mut header, WRITER_AT, self.writer.0);
        put_u64(&mut header, PREVIOUS_RECORD_AT, self.previous_record.0);
        put_u32(&mut header, SEQUENCE_AT, self.sequence);
        put_u32(&mut header, TREE_AT, self.tree.0);
        put_u64(&mut header, PREVIOUS_WRITER_AT, self.previous_writer.0);
        put_u64(&mut header, PREVIOUS_UNDO_AT, self.previous_undo.0);
        debug_assert!(header[header_len..].iter().all(|&byte| byte == 0), "nothing was before");
        out.extend_from_slice(&header[..header_len]);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
}

impl UndoRecord {
    /// The version before, as an entry. For a lock, `current` gives the value.
    pub(crate) fn previous<'a>(&'a self, current: &Entry<'a>) -> Entry<'a> {
        let value = if self.kind == UndoKind::Lock { current.value } else { &self.value };
        Entry { flags: self.previous_flags, writer: self.previous_writer, undo: self.previous_undo, value }
    }

    /// `None` where there is no record that makes sense: what leads to a long value has a whole reference.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, header, rest) = split(bytes)?;
        let (key, value) = rest.split_at_checked(usize::from(get_u16(header, KEY_LEN_AT)))?;
        let (previous_writer, previous_undo) = previous_of(kind, header);
        let has_reference = match kind {
            UndoKind::Update | UndoKind::Delete => header[FLAGS_AT] & OVERFLOW != 0,
            UndoKind::Chain => true,
            UndoKind::Insert | UndoKind::Lock => false,
        };
        if has_reference && value.len() < REFERENCE_LEN {
            return None;
        }
        Some(UndoRecord {
            kind,
            done: header[DONE_AT] != 0,
            writer: TxnId(get_u64(header, WRITER_AT)),
            previous_record: UndoPtr(get_u64(header, PREVIOUS_RECORD_AT)),
            sequence: get_u32(header, SEQUENCE_AT),
            tree: TreeId(get_u32(header, TREE_AT)),
            previous_flags: header[FLAGS_AT],
            previous_writer,
            previous_undo,
            key: key.to_vec(),
            value: value.to_vec(),
        })
    }
}

/// Kind, header, and what follows it, of the record at the front of `bytes`.
fn split(bytes: &[u8]) -> Option<(UndoKind, &[u8], &[u8])> {
    let len = usize::from(u16::from_le_bytes(*bytes.first_chunk()?));
    let bytes = bytes.get(..len)?;
    let kind = UndoKind::from_number(*bytes.get(KIND_AT)?)?;
    let (header, rest) = bytes.split_at_checked(kind.header_len())?;
    Some((kind, header, rest))
}

/// Who wrote the version before, and its undo.
fn previous_of(kind: UndoKind, header: &[u8]) -> (TxnId, UndoPtr) {
    match kind.header_len() {
        SHORT_HEADER => (TxnId::NONE, UndoPtr::NONE),
        _ => (TxnId(get_u64(header, PREVIOUS_WRITER_AT)), UndoPtr(get_u64(header, PREVIOUS_UNDO_AT))),
    }
}

fn end_of(page: &[u8]) -> usize {
    usize::from(get_u16(page, crate::change::UNDO_END))
}

fn check_page(page: &[u8], id: PageId) -> Result<()> {
    let end = end_of(page);
    if page::kind(page) != Some(PageKind::Undo) || end < FIRST_RECORD || end > page.len() {
        return Err(Error::damaged_page(id, "an undo page is expected here"));
    }
    Ok(())
}

/// Finds out, of the records that somebody follows one by one, that they lead back to one of them: in a damaged file, as a sound one never does. Every record is held
/// against one from before, which is chosen anew behind twice as many each time (Brent 1980): no more than three times around.
#[derive(Debug, Default)]
pub(crate) struct Circle {
    known: UndoPtr,
    left: u64,
    span: u64,
}

impl Circle {
    /// Whether it is closed: `at` is the next record.
    pub(crate) fn closes(&mut self, at: UndoPtr) -> bool {
        if !self.known.is_none() && self.known == at {
            return true;
        }
        if self.left == 0 {
            (self.known, self.span) = (at, (2 * self.span).max(1));
            self.left = self.span;
        }
        self.left -= 1;
        false
    }
}

/// Reads the record at `at`.
pub(crate) fn read(core: &Core, at: UndoPtr) -> Result<UndoRecord> {
    read_by(core, at, Access::Normal)
}

/// The same for somebody who may not need the page again.
pub(crate) fn read_by(core: &Core, at: UndoPtr, access: Access<'_>) -> Result<UndoRecord> {
    read_as(core, at, access, UndoRecord::decode)
}

/// Who wrote the version before the change at `at`, and its undo; none where there was none.
pub(crate) fn before(core: &Core, at: UndoPtr, access: Access<'_>) -> Result<(TxnId, UndoPtr)> {
    read_as(core, at, access, |bytes| split(bytes).map(|(kind, header, _)| previous_of(kind, header)))
}

/// The record at `at`, where its page is in memory.
pub(crate) fn read_resident(core: &Core, at: UndoPtr) -> Result<Option<UndoRecord>> {
    match core.pool.glimpse(&core.volume, at.page()) {
        Some(page) => decode_at(&page, at, UndoRecord::decode).map(Some),
        None => Ok(None),
    }
}

fn read_as<T>(
    core: &Core,
    at: UndoPtr,
    access: Access<'_>,
    decode: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T> {
    let page = core.pool.shared(&core.volume, at.page(), access)?;
    decode_at(&page, at, decode)
}

fn decode_at<T>(page: &[u8], at: UndoPtr, decode: impl FnOnce(&[u8]) -> Option<T>) -> Result<T> {
    check_page(page, at.page())?;
    let record = page.get(at.offset()..end_of(page)).and_then(decode);
    record.ok_or_else(|| Error::damaged_page(at.page(), format_args!("no undo record at {}", at.offset())))
}

/// The same, where it must be one of `txn`.
pub(crate) fn read_of(core: &Core, at: UndoPtr, txn: TxnId) -> Result<UndoRecord> {
    let record = read(core, at)?;
    if record.writer != txn {
        let (offset, found) = (at.offset(), record.writer);
        let what = format_args!("an undo record of {txn} is expected at {offset}, not of {found}");
        return Err(Error::damaged_page(at.page(), what));
    }
    Ok(record)
}

/// Reads every record of a page of `segment`, with its position; `None` when the segment does not reach that far.
pub(crate) fn read_page(
    core: &Core,
    id: PageId,
    segment: &Segment,
) -> Result<Option<Vec<(UndoPtr, UndoRecord)>>> {
    let page = match core.pool.shared(&core.volume, id, Access::Normal) {
        Ok(page) => page,
        Err(Error::NeverWritten(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    if segment.owns(&page) { records(&page, id).map(Some) } else { Ok(None) }
}

/// Every record of an undo page, with its position.
pub(crate) fn records(page: &[u8], id: PageId) -> Result<Vec<(UndoPtr, UndoRecord)>> {
    check_page(page, id)?;
    let end = end_of(page);
    let mut records = Vec::new();
    let mut at = FIRST_RECORD;
    while at < end {
        let record = UndoRecord::decode(&page[at..end])
            .ok_or_else(|| Error::damaged_page(id, format_args!("no undo record at {at}")))?;
        let len = record.len();
        records.push((UndoPtr::new(id, at), record));
        at += len;
    }
    Ok(records)
}

/// Marks a record of an undo page that takes part in the mini-transaction as done; `value`, where given, takes the
/// place of the record's value of the same length.
pub(crate) fn mark_latched(
    mtr: &mut Mtr<'_>,
    part: Part,
    at: UndoPtr,
    done: bool,
    value: Option<(&UndoRecord, &[u8])>,
) {
    if done {
        mtr.patch(part, at.offset() + DONE_AT, &[1]);
    }
    if let Some((record, value)) = value {
        debug_assert_eq!(record.value.len(), value.len());
        mtr.patch(part, at.offset() + record.kind.header_len() + record.key.len(), value);
    }
}

/// A directory entry: where a segment lies, and the highest transaction in it (0 while it grows).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) stream: u32,
    pub(crate) sequence: u64,
    pub(crate) first: PageId,
    pub(crate) highest_txn: TxnId,
}

const DIRECTORY_VALUE: usize = 16;
/// A segment does not wait until it is full where it keeps long values of so many extents from being freed.
const GARBAGE_EXTENTS: u64 = 8;

impl Segment {
    pub(crate) fn key(&self) -> [u8; 12] {
        let mut key = [0; 12];
        key[..4].copy_from_slice(&self.stream.to_be_bytes());
        key[4..].copy_from_slice(&self.sequence.to_be_bytes());
        key
    }

    /// Whether a page has something of this segment, not of what lay there before.
    pub(crate) fn owns(&self, page: &[u8]) -> bool {
        page::kind(page) == Some(PageKind::Undo)
            && get_u32(page, STREAM_AT) == self.stream
            && get_u64(page, SEGMENT_AT) == self.sequence
    }

    pub(crate) fn value(&self) -> [u8; DIRECTORY_VALUE] {
        let mut value = [0; DIRECTORY_VALUE];
        put_u64(&mut value, 0, self.first.0);
        put_u64(&mut value, 8, self.highest_txn.0);
        value
    }

    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<Self> {
        if key.len() != 12 || value.len() != DIRECTORY_VALUE {
            return None;
        }
        Some(Segment {
            stream: u32::from_be_bytes(key[..4].try_into().ok()?),
            sequence: u64::from_be_bytes(key[4..].try_into().ok()?),
            first: PageId(get_u64(value, 0)),
            highest_txn: TxnId(get_u64(value, 8)),
        })
    }
}

/// A place to append undo records to; one transaction uses it at a time.
#[derive(Debug)]
pub(crate) struct Stream {
    id: u32,
    segment: Option<Segment>,
    /// Page and offset of the next record; the page is fresh when the offset is 0.
    page: PageId,
    offset: usize,
    /// Bytes of long values that are garbage once the records of the newest segment are.
    garbage: u64,
    last_used: Instant,
}

/// Where the next undo record goes, see [`Stream::reserve`].
#[derive(Debug)]
pub(crate) struct Reserved {
    page: PageId,
    offset: usize,
    len: usize,
}

impl Stream {
    pub(crate) fn new(id: u32) -> Self {
        Stream { id, segment: None, page: PageId::NONE, offset: 0, garbage: 0, last_used: clock::now() }
    }

    /// Finds room for a record of `len` bytes; `None` when that takes a new segment first
    /// ([`Stream::start_segment`]).
    pub(crate) fn reserve(&mut self, core: &Core, len: usize) -> Option<Reserved> {
        debug_assert!(FIRST_RECORD + len <= core.page_size);
        let segment = self.segment?;
        if self.offset != 0 && self.offset + len > core.page_size {
            if self.page.0 + 1 == segment.first.0 + EXTENT_PAGES {
                return None;
            }
            self.page = PageId(self.page.0 + 1);
            self.offset = 0;
        }
        Some(Reserved { page: self.page, offset: self.offset, len })
    }

    /// The segment that is appended to.
    pub(crate) fn newest_segment(&self) -> Option<Segment> {
        self.segment
    }

    /// Whether there is a segment to append to.
    pub(crate) fn has_segment(&self) -> bool {
        self.segment.is_some()
    }

    /// Notes that `txn` writes to this stream from `now` on.
    pub(crate) fn begin(&mut self, txn: TxnId, now: Instant) {
        self.last_used = now;
        if let Some(segment) = &mut self.segment {
            segment.highest_txn = txn;
        }
    }

    /// Starts the next segment; takes latches of its own. Gives the segment that was completed, if there was one.
    pub(crate) fn start_segment(
        &mut self,
        core: &Core,
        directory: &TreeRoot,
        txn: TxnId,
    ) -> Result<Option<Segment>> {
        let tree = BTree::new(core, directory);
        let near = self.segment.map_or(PageId::NONE, |s| s.first);
        // Streams are numbered anew in each life of the database, log positions never come back.
        let mut next = Segment {
            stream: self.id,
            sequence: core.log.end().0,
            first: PageId::NONE,
            highest_txn: TxnId::NONE,
        };
        let key = next.key();
        let mut mtr = Mtr::new(core);
        tree.put_made(&mut mtr, &key, DIRECTORY_VALUE, |mtr| {
            next.first = mtr.allocations().allocate_extent(UNDO_PAGES, near)?;
            Ok(next.value())
        })?;
        mtr.commit()?;
        next.highest_txn = txn;
        self.page = next.first;
        self.offset = 0;
        self.garbage = 0;
        let full = self.segment.replace(next);
        if let Some(full) = &full {
            // Not before nobody writes to it any more: where there is no next one, shorter records still find room in it, of later
            // transactions. An entry that does not say whose records there are is taken for one of the whole life.
            match tree.put(&full.key(), &full.value()) {
                Err(error) if !error.is_passing() => return Err(error),
                _ => {}
            }
        }
        Ok(full)
    }

    /// Completes the newest segment of a stream nobody has written to for `idle`, so that it can be swept.
    pub(crate) fn retire(
        &mut self,
        core: &Core,
        directory: &TreeRoot,
        horizon: TxnId,
        idle: Duration,
    ) -> Result<Option<Segment>> {
        let Some(segment) = self.segment else { return Ok(None) };
        if segment.highest_txn >= horizon || self.last_used.elapsed() < idle {
            return Ok(None);
        }
        self.complete(core, directory)
    }

    /// Notes that the record written last makes as many bytes of a long value garbage, once its transaction has committed and nobody sees
    /// what was before.
    pub(crate) fn note_garbage(&mut self, bytes: u64) {
        self.garbage += bytes;
    }

    /// Whether its newest segment keeps so many bytes of long values from being freed that it is not to wait until it is full.
    pub(crate) fn keeps_much(&self, core: &Core) -> bool {
        self.garbage >= GARBAGE_EXTENTS * EXTENT_PAGES * core.page_size as u64
    }

    /// Whether its newest segment does not lie in front of this extent.
    pub(crate) fn lies_behind(&self, extent: u64) -> bool {
        self.segment.is_some_and(|segment| segment.first.0 / EXTENT_PAGES >= extent)
    }

    /// Completes the newest segment, whatever room it has left.
    pub(crate) fn complete(&mut self, core: &Core, directory: &TreeRoot) -> Result<Option<Segment>> {
        let Some(segment) = self.segment else { return Ok(None) };
        BTree::new(core, directory).put(&segment.key(), &segment.value())?;
        self.segment = None;
        self.garbage = 0;
        Ok(Some(segment))
    }

    /// Lets the undo page take part in a mini-transaction; call before its first change.
    pub(crate) fn latch<'c>(&self, mtr: &mut Mtr<'c>, core: &'c Core, reserved: &Reserved) -> Result<Part> {
        if reserved.offset == 0 {
            return Ok(mtr.add(core.pool.create(&core.volume, reserved.page)?));
        }
        mtr.latch(reserved.page)
    }

    /// Where the record will be: to be known before it is written, as the entry points to it.
    pub(crate) fn position(&self, reserved: &Reserved) -> UndoPtr {
        UndoPtr::new(reserved.page, reserved.offset.max(FIRST_RECORD))
    }

    /// Writes the record.
    pub(crate) fn append(
        &mut self,
        mtr: &mut Mtr<'_>,
        part: Part,
        reserved: &Reserved,
        record: &UndoRecord<impl AsRef<[u8]>>,
    ) {
        let at = reserved.offset.max(FIRST_RECORD);
        if reserved.offset == 0 {
            let segment = self.segment.expect("a reservation lies in a segment");
            let mut head = [0; FIRST_RECORD - HEADER_LEN];
            put_u16(&mut head, 0, FIRST_RECORD as u16);
            put_u32(&mut head, STREAM_AT - HEADER_LEN, segment.stream);
            put_u64(&mut head, SEGMENT_AT - HEADER_LEN, segment.sequence);
            mtr.format(part, PageKind::Undo, UNDO_PAGES, &head);
        }
        debug_assert_eq!(record.len(), reserved.len);
        mtr.undo(part, at, |out| record.encode(out));
        self.offset = at + record.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_noticed_wherever_it_begins_and_nothing_else_is_one() {
        for (before, length) in [(0, 1), (0, 2), (1, 1), (5, 3), (3, 17), (1000, 300), (7, 1000)] {
            let mut circle = Circle::default();
            let at = |step: u64| if step < before { step } else { before + (step - before) % length };
            let noticed = (0..10_000).find(|&step| circle.closes(UndoPtr(1 + at(step)))).unwrap();
            assert!(
                (before + length..=3 * (before + length)).contains(&noticed),
                "{before} {length} {noticed}"
            );
        }
        let mut circle = Circle::default();
        assert!((1..10_000).all(|at| !circle.closes(UndoPtr(at))));
    }
}
