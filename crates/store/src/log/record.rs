//! The bytes of a record: the one place that writes and reads them. Layout in `docs/format.md`.
//!
//! # Invariants
//! 1. A record starts and ends at a multiple of [`ALIGNMENT`] and never straddles a segment.
//! 2. Its checksum covers every byte of it except a filler's body, and mixes in the database and the incarnation;
//!    its header names its own position. So bytes of another place, another database, or a life of the log that
//!    a crash has ended never verify as the record expected here.
//! 3. Header and trailer both carry length and checksum: a record is found from its start or from its end.
//!
//! The checksum is built in two steps, body first, so that the appender hashes a large body before it takes the
//! log's mutex, and only the short header under it.

use crate::page::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use gannet_base::{Lsn, PageId, TxnId, checksum};

/// Records are aligned to this many bytes.
pub(crate) const ALIGNMENT: u64 = 8;
/// Bytes of a record's header without transaction information.
pub(crate) const HEADER_LEN: usize = 40;
/// Bytes of the transaction information behind the header.
pub(crate) const TXN_LEN: usize = 16;
/// Bytes of a record's trailer.
pub(crate) const TRAILER_LEN: usize = 8;
/// The shortest record: a filler without a body.
pub(crate) const MIN_RECORD_LEN: usize = HEADER_LEN + TRAILER_LEN;
/// Bytes of a change's header.
pub(crate) const CHANGE_LEN: usize = 24;

const START: usize = 8;
const DURABLE: usize = 16;
const PREVIOUS: usize = 24;
const INCARNATION: usize = 28;
const KIND: usize = 32;
const EVENT: usize = 33;
const COUNT: usize = 36;

const CHANGE_INIT: u8 = 1;

/// What a record is. The numbers are part of the format and never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// Page changes that happen together or not at all, and what they mean to a transaction.
    Group = 1,
    /// Nothing: fills the log up to a block or to a footer.
    Filler = 2,
    /// The index of the segment it ends.
    Footer = 3,
    /// Bytes of the caller.
    Note = 4,
}

impl RecordKind {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => RecordKind::Group,
            2 => RecordKind::Filler,
            3 => RecordKind::Footer,
            4 => RecordKind::Note,
            _ => return None,
        })
    }
}

/// What a group means to its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnEvent {
    /// It did something that can be undone; `undo` points to its newest undo record.
    Change {
        /// Position of the newest undo record, in the caller's terms.
        undo: u64,
    },
    /// It committed.
    Commit,
    /// It was rolled back wholly.
    Ended,
}

/// A transaction and what happened to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxnInfo {
    /// The transaction.
    pub id: TxnId,
    /// What happened to it.
    pub event: TxnEvent,
}

impl TxnInfo {
    fn numbers(self) -> (u8, u64) {
        match self.event {
            TxnEvent::Change { undo } => (1, undo),
            TxnEvent::Commit => (2, 0),
            TxnEvent::Ended => (3, 0),
        }
    }

    fn from_numbers(id: u64, event: u8, undo: u64) -> Option<Self> {
        let event = match event {
            1 => TxnEvent::Change { undo },
            2 => TxnEvent::Commit,
            3 => TxnEvent::Ended,
            _ => return None,
        };
        Some(TxnInfo { id: TxnId(id), event })
    }
}

/// Whose log, and which life of it. Every checksum mixes this in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) database_id: u64,
    pub(crate) incarnation: u32,
}

impl Identity {
    /// The seed of every checksum.
    pub(crate) fn seed(self) -> u64 {
        self.database_id ^ u64::from(self.incarnation).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// The checksum of a record's body. A filler's body is not covered.
    pub(crate) fn body_sum(self, kind: RecordKind, body: &[u8]) -> u64 {
        if kind == RecordKind::Filler { 0 } else { checksum::seeded(self.seed(), body) }
    }

    fn crc(self, len: u32, head: &[u8], body_sum: u64) -> u32 {
        let seed = self.seed() ^ body_sum ^ (u64::from(len) << 32);
        // 0 is kept for "no record before this one".
        (checksum::seeded(seed, &head[START..]) as u32).max(1)
    }
}

/// What the log knows about a record's place when it appends it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) identity: Identity,
    pub(crate) start: u64,
    pub(crate) durable: u64,
    pub(crate) previous_crc: u32,
}

/// An encoded header and what goes with it.
pub(crate) struct Head {
    bytes: [u8; HEADER_LEN + TXN_LEN],
    len: usize,
    /// The trailer of the same record.
    pub(crate) trailer: [u8; TRAILER_LEN],
    /// The record's checksum: the next record's link to it.
    pub(crate) crc: u32,
}

impl Head {
    /// Encodes the header of a record whose body is `body_len` bytes, a multiple of [`ALIGNMENT`].
    pub(crate) fn encode(
        place: &Place,
        kind: RecordKind,
        txn: Option<TxnInfo>,
        count: u32,
        body_len: usize,
        body_sum: u64,
    ) -> Head {
        debug_assert_eq!(body_len as u64 % ALIGNMENT, 0);
        let mut bytes = [0; HEADER_LEN + TXN_LEN];
        let len = if txn.is_some() { HEADER_LEN + TXN_LEN } else { HEADER_LEN };
        let total = (len + body_len + TRAILER_LEN) as u32;
        put_u64(&mut bytes, START, place.start);
        put_u64(&mut bytes, DURABLE, place.durable);
        put_u32(&mut bytes, PREVIOUS, place.previous_crc);
        put_u32(&mut bytes, INCARNATION, place.identity.incarnation);
        bytes[KIND] = kind as u8;
        put_u32(&mut bytes, COUNT, count);
        if let Some(txn) = txn {
            let (event, undo) = txn.numbers();
            bytes[EVENT] = event;
            put_u64(&mut bytes, HEADER_LEN, txn.id.0);
            put_u64(&mut bytes, HEADER_LEN + 8, undo);
        }
        let crc = place.identity.crc(total, &bytes[..len], body_sum);
        put_u32(&mut bytes, 0, total);
        put_u32(&mut bytes, 4, crc);
        let mut trailer = [0; TRAILER_LEN];
        put_u32(&mut trailer, 0, total);
        put_u32(&mut trailer, 4, crc);
        Head { bytes, len, trailer, crc }
    }

    /// The header's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A verified record over borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordView<'a> {
    bytes: &'a [u8],
    pub(crate) kind: RecordKind,
    pub(crate) txn: Option<TxnInfo>,
    pub(crate) start: u64,
    pub(crate) durable: u64,
    pub(crate) crc: u32,
    pub(crate) previous_crc: u32,
    pub(crate) incarnation: u32,
}

impl<'a> RecordView<'a> {
    /// The record at the beginning of `bytes`, if a whole and valid one starts there at position `start`.
    pub(crate) fn parse(database_id: u64, start: u64, bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() < MIN_RECORD_LEN || get_u64(bytes, START) != start {
            return None;
        }
        let len = get_u32(bytes, 0) as usize;
        if len < MIN_RECORD_LEN || !(len as u64).is_multiple_of(ALIGNMENT) || len > bytes.len() {
            return None;
        }
        let bytes = &bytes[..len];
        let crc = get_u32(bytes, 4);
        let trailer = len - TRAILER_LEN;
        if get_u32(bytes, trailer) as usize != len || get_u32(bytes, trailer + 4) != crc {
            return None;
        }
        let kind = RecordKind::from_number(bytes[KIND])?;
        let head_len = if bytes[EVENT] == 0 { HEADER_LEN } else { HEADER_LEN + TXN_LEN };
        if head_len > trailer {
            return None;
        }
        let identity = Identity { database_id, incarnation: get_u32(bytes, INCARNATION) };
        let sum = identity.body_sum(kind, &bytes[head_len..trailer]);
        if identity.crc(len as u32, &bytes[..head_len], sum) != crc {
            return None;
        }
        let txn = match bytes[EVENT] {
            0 => None,
            event => Some(TxnInfo::from_numbers(
                get_u64(bytes, HEADER_LEN),
                event,
                get_u64(bytes, HEADER_LEN + 8),
            )?),
        };
        Some(RecordView {
            bytes,
            kind,
            txn,
            start,
            durable: get_u64(bytes, DURABLE),
            crc,
            previous_crc: get_u32(bytes, PREVIOUS),
            incarnation: identity.incarnation,
        })
    }

    /// The record's LSN: the position behind its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn count(&self) -> u32 {
        get_u32(self.bytes, COUNT)
    }

    /// The bytes between header and trailer.
    pub(crate) fn body(&self) -> &'a [u8] {
        let head_len = if self.txn.is_none() { HEADER_LEN } else { HEADER_LEN + TXN_LEN };
        &self.bytes[head_len..self.bytes.len() - TRAILER_LEN]
    }

    /// A note's or footer's bytes, without padding.
    pub(crate) fn payload(&self) -> &'a [u8] {
        let body = self.body();
        &body[..(self.count() as usize).min(body.len())]
    }

    /// The page changes, in order; empty for other kinds.
    pub(crate) fn changes(&self) -> Changes<'a> {
        match self.kind {
            RecordKind::Group => Changes { rest: self.body(), left: self.count() },
            _ => Changes { rest: &[], left: 0 },
        }
    }

    /// The pages changed, in order, with repetitions.
    pub(crate) fn pages(&self) -> impl Iterator<Item = PageId> + use<'a> {
        self.changes().map(|c| c.page)
    }

    /// An owned copy.
    pub(crate) fn to_record(self) -> Record {
        Record { bytes: self.bytes.to_vec(), start: self.start, kind: self.kind, txn: self.txn }
    }
}

/// A verified record read from the log.
#[derive(Clone, Debug)]
pub struct Record {
    bytes: Vec<u8>,
    start: u64,
    kind: RecordKind,
    txn: Option<TxnInfo>,
}

impl Record {
    /// The record's LSN: the position behind its last byte.
    pub fn lsn(&self) -> Lsn {
        Lsn(self.start + self.bytes.len() as u64)
    }

    /// The position of its first byte.
    pub fn start(&self) -> Lsn {
        Lsn(self.start)
    }

    /// What it is.
    pub fn kind(&self) -> RecordKind {
        self.kind
    }

    /// What it means to a transaction.
    pub fn txn(&self) -> Option<TxnInfo> {
        self.txn
    }

    fn view(&self) -> RecordView<'_> {
        RecordView {
            bytes: &self.bytes,
            kind: self.kind,
            txn: self.txn,
            start: self.start,
            durable: get_u64(&self.bytes, DURABLE),
            crc: get_u32(&self.bytes, 4),
            previous_crc: get_u32(&self.bytes, PREVIOUS),
            incarnation: get_u32(&self.bytes, INCARNATION),
        }
    }

    /// The page changes, in the order they were made; empty for other kinds than groups.
    pub fn changes(&self) -> Changes<'_> {
        self.view().changes()
    }

    /// A note's bytes.
    pub fn payload(&self) -> &[u8] {
        self.view().payload()
    }
}

/// A page change over borrowed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangeView<'a> {
    /// The page changed.
    pub page: PageId,
    /// The page's LSN before the group.
    pub previous: Lsn,
    /// What the operation is, in the caller's terms.
    pub kind: u8,
    /// The change needs no earlier content of the page.
    pub init: bool,
    /// The operation.
    pub bytes: &'a [u8],
}

/// Iterates over a group's changes.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Iterator for Changes<'a> {
    type Item = ChangeView<'a>;

    fn next(&mut self) -> Option<ChangeView<'a>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let (head, rest) = self.rest.split_at(CHANGE_LEN);
        let len = get_u32(head, 20) as usize;
        let (bytes, rest) = (&rest[..len], &rest[padded(len)..]);
        self.rest = rest;
        Some(ChangeView {
            page: PageId(get_u64(head, 0)),
            previous: Lsn(get_u64(head, 8)),
            kind: get_u16(head, 16) as u8,
            init: head[18] & CHANGE_INIT != 0,
            bytes,
        })
    }
}

/// `len` rounded up to [`ALIGNMENT`].
pub(crate) fn padded(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT as usize)
}

/// Collects the changes of one group. Reused from group to group, it allocates nothing once it has grown.
#[derive(Default, Clone, Debug)]
pub struct GroupBuilder {
    body: Vec<u8>,
    pages: Vec<PageId>,
    txn: Option<TxnInfo>,
}

impl GroupBuilder {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.body.clear();
        self.pages.clear();
        self.txn = None;
    }

    /// Bytes that it holds for later groups.
    pub fn memory(&self) -> usize {
        self.body.capacity() + self.pages.capacity() * size_of::<PageId>()
    }

    /// Whether there is nothing to append.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.txn.is_none()
    }

    /// Says what the group means to its transaction.
    pub fn set_txn(&mut self, id: TxnId, event: TxnEvent) {
        self.txn = Some(TxnInfo { id, event });
    }

    /// Adds a change to `page`, whose LSN before the group is `previous`. `write` appends the operation's bytes, which
    /// are handed back.
    /// Several changes of one page in one group carry the same `previous`.
    pub fn change(
        &mut self,
        page: PageId,
        previous: Lsn,
        kind: u8,
        init: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> &[u8] {
        let start = self.body.len();
        self.body.resize(start + CHANGE_LEN, 0);
        write(&mut self.body);
        let end = self.body.len();
        assert!(end >= start + CHANGE_LEN, "an operation only appends its bytes");
        let len = end - start - CHANGE_LEN;
        self.body.resize(start + CHANGE_LEN + padded(len), 0);
        let head = &mut self.body[start..start + CHANGE_LEN];
        put_u64(head, 0, page.0);
        put_u64(head, 8, previous.0);
        put_u16(head, 16, u16::from(kind));
        head[18] = if init { CHANGE_INIT } else { 0 };
        put_u32(head, 20, u32::try_from(len).expect("an operation is far below 4 GiB"));
        self.pages.push(page);
        &self.body[start + CHANGE_LEN..end]
    }

    /// Adds a change whose operation is `bytes`.
    pub fn change_bytes(&mut self, page: PageId, previous: Lsn, kind: u8, init: bool, bytes: &[u8]) {
        self.change(page, previous, kind, init, |out| out.extend_from_slice(bytes));
    }

    /// Bytes the group will take in the log.
    pub fn record_len(&self) -> usize {
        let txn = if self.txn.is_some() { TXN_LEN } else { 0 };
        HEADER_LEN + txn + self.body.len() + TRAILER_LEN
    }

    /// The group as the log appends it.
    pub(crate) fn draft(&self) -> Draft<'_> {
        Draft {
            kind: RecordKind::Group,
            txn: self.txn,
            count: self.pages.len() as u32,
            body: &self.body,
            pages: &self.pages,
        }
    }
}

/// A record that has no place in the log yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) txn: Option<TxnInfo>,
    /// Number of changes, or bytes of payload.
    pub(crate) count: u32,
    /// Padded to [`ALIGNMENT`].
    pub(crate) body: &'a [u8],
    pub(crate) pages: &'a [PageId],
}

impl Draft<'_> {
    /// Bytes the record will take.
    pub(crate) fn len(&self) -> usize {
        let txn = if self.txn.is_some() { TXN_LEN } else { 0 };
        HEADER_LEN + txn + self.body.len() + TRAILER_LEN
    }
}
