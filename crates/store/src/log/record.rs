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

use crate::mutation::{Mutation, planted};
use crate::page::{get_u32, get_u64, put_u16, put_u32, put_u64};
use gannet_base::{Lsn, PageId, TxnId, checksum};

/// Records are aligned to this many bytes.
pub(crate) const ALIGNMENT: u64 = 8;
/// Bytes of a record's header without transaction information.
const HEADER_LEN: usize = 32;
/// The most bytes of a header.
const HEADER_MAX: usize = HEADER_LEN + 16;
/// Bytes of a record's trailer.
pub(crate) const TRAILER_LEN: usize = 8;
/// The shortest record: a filler without a body.
pub(crate) const MIN_RECORD_LEN: usize = HEADER_LEN + TRAILER_LEN;

const START: usize = 8;
const PREVIOUS: usize = 16;
const INCARNATION: usize = 20;
const NOT_DURABLE: usize = 24;
const KIND: usize = 28;
const EVENT: usize = 29;
const PADDING: usize = 30;

const CHANGE_INIT: u8 = 0x80;
/// The most bytes that a page takes in a note that it came home.
const HOME_MAX: usize = 20;

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
    /// States of pages that are durable in the data file.
    Home = 5,
}

impl RecordKind {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => RecordKind::Group,
            2 => RecordKind::Filler,
            3 => RecordKind::Footer,
            4 => RecordKind::Note,
            5 => RecordKind::Home,
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

/// Bytes of the header of a record with the event of this number, 0 for none; `None` when there is no such event.
fn header_len(event: u8) -> Option<usize> {
    match event {
        0 => Some(HEADER_LEN),
        1 => Some(HEADER_LEN + 16),
        2 | 3 => Some(HEADER_LEN + 8),
        _ => None,
    }
}

impl TxnInfo {
    fn number(self) -> u8 {
        match self.event {
            TxnEvent::Change { .. } => 1,
            TxnEvent::Commit => 2,
            TxnEvent::Ended => 3,
        }
    }

    fn put(self, header: &mut [u8]) {
        header[EVENT] = self.number();
        put_u64(header, HEADER_LEN, self.id.0);
        if let TxnEvent::Change { undo } = self.event {
            put_u64(header, HEADER_LEN + 8, undo);
        }
    }

    /// What a header of the length that goes with its event says.
    fn get(header: &[u8]) -> Option<Self> {
        let event = match header[EVENT] {
            1 => TxnEvent::Change { undo: get_u64(header, HEADER_LEN + 8) },
            2 => TxnEvent::Commit,
            3 => TxnEvent::Ended,
            _ => return None,
        };
        Some(TxnInfo { id: TxnId(get_u64(header, HEADER_LEN)), event })
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
    bytes: [u8; HEADER_MAX],
    len: usize,
    /// The trailer of the same record.
    pub(crate) trailer: [u8; TRAILER_LEN],
    /// The record's checksum: the next record's link to it.
    pub(crate) crc: u32,
}

impl Head {
    /// Encodes the header of a record whose body is `body_len` bytes, a multiple of [`ALIGNMENT`], of which the last
    /// `padding` mean nothing.
    pub(crate) fn encode(
        place: &Place,
        kind: RecordKind,
        txn: Option<TxnInfo>,
        padding: u8,
        body_len: usize,
        body_sum: u64,
    ) -> Head {
        let mut bytes = [0; HEADER_MAX];
        let len = header_len(txn.map_or(0, TxnInfo::number)).expect("every event has a length");
        let total = (len + body_len + TRAILER_LEN) as u32;
        debug_assert_eq!(u64::from(total) % ALIGNMENT, 0);
        let not_durable = u32::try_from(place.start - place.durable);
        put_u64(&mut bytes, START, place.start);
        put_u32(&mut bytes, PREVIOUS, place.previous_crc);
        put_u32(&mut bytes, INCARNATION, place.identity.incarnation);
        put_u32(
            &mut bytes,
            NOT_DURABLE,
            not_durable.expect("what is not durable is a ring and a record at most"),
        );
        bytes[KIND] = kind as u8;
        bytes[PADDING] = padding;
        if let Some(txn) = txn {
            txn.put(&mut bytes);
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
        let ends = get_u32(bytes, trailer) as usize == len && get_u32(bytes, trailer + 4) == crc;
        if !ends && !planted(Mutation::RecordNotVerified) {
            return None;
        }
        let kind = RecordKind::from_number(bytes[KIND])?;
        let head_len = header_len(bytes[EVENT])?;
        if head_len + usize::from(bytes[PADDING]) > trailer {
            return None;
        }
        let identity = Identity { database_id, incarnation: get_u32(bytes, INCARNATION) };
        let sum = identity.body_sum(kind, &bytes[head_len..trailer]);
        if identity.crc(len as u32, &bytes[..head_len], sum) != crc && !planted(Mutation::RecordNotVerified) {
            return None;
        }
        let view = RecordView {
            bytes,
            kind,
            txn: TxnInfo::get(&bytes[..head_len]),
            start,
            durable: start.checked_sub(u64::from(get_u32(bytes, NOT_DURABLE)))?,
            crc,
            previous_crc: get_u32(bytes, PREVIOUS),
            incarnation: identity.incarnation,
        };
        let (mut changes, mut homes) = (view.changes(), view.homes());
        changes.by_ref().for_each(drop);
        homes.by_ref().for_each(drop);
        (changes.rest.is_empty() && homes.rest.is_empty()).then_some(view)
    }

    /// The record's LSN: the position behind its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// What stands between header and trailer, without padding.
    pub(crate) fn payload(&self) -> &'a [u8] {
        let head_len = header_len(self.bytes[EVENT]).expect("verified");
        &self.bytes[head_len..self.bytes.len() - TRAILER_LEN - usize::from(self.bytes[PADDING])]
    }

    /// The page changes, in order; empty for other kinds.
    pub(crate) fn changes(&self) -> Changes<'a> {
        Changes { rest: if self.kind == RecordKind::Group { self.payload() } else { &[] } }
    }

    /// Pages whose states up to an LSN are durable in the data file; none for other kinds.
    pub(crate) fn homes(&self) -> Homes<'a> {
        Homes { rest: if self.kind == RecordKind::Home { self.payload() } else { &[] }, last: 0 }
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

/// Checksum of the filler at position `start` whose header begins `bytes`, and of the record before; `None` for everything else. Its body,
/// and what is behind that, need not be there.
pub(crate) fn filler_head(database_id: u64, start: u64, bytes: &[u8]) -> Option<(u32, u32)> {
    let head = bytes.get(..HEADER_LEN)?;
    if head[KIND] != RecordKind::Filler as u8 || head[EVENT] != 0 || get_u64(head, START) != start {
        return None;
    }
    let identity = Identity { database_id, incarnation: get_u32(head, INCARNATION) };
    let crc = get_u32(head, 4);
    (identity.crc(get_u32(head, 0), head, 0) == crc).then(|| (crc, get_u32(head, PREVIOUS)))
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
            durable: self.start - u64::from(get_u32(&self.bytes, NOT_DURABLE)),
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

/// Iterates over a group's changes. Ends early, with something left, where the bytes make no sense: verified records are
/// without that.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Changes<'a> {
    type Item = ChangeView<'a>;

    fn next(&mut self) -> Option<ChangeView<'a>> {
        let (&kind, mut rest) = self.rest.split_first()?;
        let page = PageId(take_number(&mut rest)?);
        let previous = Lsn(take_number(&mut rest)?);
        let (len, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        self.rest = rest;
        Some(ChangeView { page, previous, kind: kind & !CHANGE_INIT, init: kind & CHANGE_INIT != 0, bytes })
    }
}

/// Iterates over the pages of a note that they came home. Ends early, with something left, as [`Changes`] does.
#[derive(Clone, Debug)]
pub(crate) struct Homes<'a> {
    rest: &'a [u8],
    last: u64,
}

impl Iterator for Homes<'_> {
    type Item = (PageId, Lsn);

    fn next(&mut self) -> Option<(PageId, Lsn)> {
        let mut rest = self.rest;
        let page = self.last.checked_add(take_number(&mut rest)?)?;
        let lsn = take_number(&mut rest)?;
        (self.rest, self.last) = (rest, page);
        Some((PageId(page), Lsn(lsn)))
    }
}

/// The body of a note that pages came home, which ascend, padded; and the length of the padding.
pub(crate) fn encode_homes(pages: &[(PageId, Lsn)]) -> (Vec<u8>, u8) {
    let mut body = Vec::with_capacity(pages.len() * HOME_MAX);
    let mut last = 0;
    for (page, lsn) in pages {
        put_number(&mut body, page.0 - last);
        put_number(&mut body, lsn.0);
        last = page.0;
    }
    let end = body.len();
    body.resize(padded(end), 0);
    let padding = (body.len() - end) as u8;
    (body, padding)
}

/// Writes a number in groups of 7 bits, the lowest first, bit 7 set in all but the last (LEB128).
fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7F);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Makes `bytes`, whose length is a record's, a record at `start` as far as length, position and checksum go. What it holds is
/// left alone: for tests that want to get behind the checksum.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn seal(database_id: u64, start: u64, bytes: &mut [u8]) {
    let len = bytes.len();
    put_u64(bytes, START, start);
    let identity = Identity { database_id, incarnation: get_u32(bytes, INCARNATION) };
    let (Some(kind), Some(head_len)) = (RecordKind::from_number(bytes[KIND]), header_len(bytes[EVENT]))
    else {
        return;
    };
    let Some(body) = bytes.get(head_len..len - TRAILER_LEN) else { return };
    let crc = identity.crc(len as u32, &bytes[..head_len], identity.body_sum(kind, body));
    for at in [0, len - TRAILER_LEN] {
        put_u32(bytes, at, len as u32);
        put_u32(bytes, at + 4, crc);
    }
}

/// `len` rounded up to [`ALIGNMENT`].
pub(crate) fn padded(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT as usize)
}

/// Collects the changes of one group. Reused from group to group, it allocates nothing once it has grown.
#[derive(Default, Clone, Debug)]
pub struct GroupBuilder {
    /// The changes, padded.
    body: Vec<u8>,
    padding: usize,
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
        self.padding = 0;
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

    /// Adds a change to `page`, whose LSN before the group is `previous`. `kind` is below 128. `write` appends the operation's
    /// bytes, less than 64 KiB, which are handed back.
    /// Several changes of one page in one group carry the same `previous`.
    pub fn change(
        &mut self,
        page: PageId,
        previous: Lsn,
        kind: u8,
        init: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> &[u8] {
        debug_assert_eq!(kind & CHANGE_INIT, 0);
        self.body.truncate(self.body.len() - self.padding);
        self.body.push(kind | if init { CHANGE_INIT } else { 0 });
        put_number(&mut self.body, page.0);
        put_number(&mut self.body, previous.0);
        let start = self.body.len() + 2;
        self.body.extend_from_slice(&[0; 2]);
        write(&mut self.body);
        let end = self.body.len();
        assert!(end >= start, "an operation only appends its bytes");
        let len = u16::try_from(end - start).expect("an operation is hardly longer than a page");
        put_u16(&mut self.body, start - 2, len);
        self.body.resize(padded(end), 0);
        self.padding = self.body.len() - end;
        self.pages.push(page);
        &self.body[start..end]
    }

    /// Adds a change whose operation is `bytes`.
    pub fn change_bytes(&mut self, page: PageId, previous: Lsn, kind: u8, init: bool, bytes: &[u8]) {
        self.change(page, previous, kind, init, |out| out.extend_from_slice(bytes));
    }

    /// Bytes the group will take in the log.
    pub fn record_len(&self) -> usize {
        self.draft().len()
    }

    /// The group as the log appends it.
    pub(crate) fn draft(&self) -> Draft<'_> {
        Draft {
            kind: RecordKind::Group,
            txn: self.txn,
            padding: self.padding as u8,
            body: &self.body,
            pages: &self.pages,
            homes: &[],
        }
    }
}

/// A record that has no place in the log yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) txn: Option<TxnInfo>,
    /// How many bytes at the end of the body mean nothing.
    pub(crate) padding: u8,
    /// Padded to [`ALIGNMENT`].
    pub(crate) body: &'a [u8],
    pub(crate) pages: &'a [PageId],
    pub(crate) homes: &'a [(PageId, Lsn)],
}

impl Draft<'_> {
    /// Entries that its segment's index may get from it.
    pub(crate) fn entries(&self) -> usize {
        self.pages.len() + self.homes.len()
    }

    /// Bytes the record will take.
    pub(crate) fn len(&self) -> usize {
        let header = header_len(self.txn.map_or(0, TxnInfo::number)).expect("every event has a length");
        header + self.body.len() + TRAILER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_read_back_and_too_long_ones_refused() {
        for number in [0, 1, 0x7F, 0x80, 0x3FFF, 0x4000, 1 << 48, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            bytes.push(7);
            let mut rest = &bytes[..];
            assert_eq!((take_number(&mut rest), rest), (Some(number), &[7][..]));
            let cut = bytes.len() - 2;
            assert_eq!(take_number(&mut &bytes[..cut]), None);
        }
        assert_eq!(take_number(&mut &[0xFF; 12][..]), None);
        // 2^64
        assert_eq!(take_number(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2][..]), None);
    }

    #[test]
    fn pages_that_came_home_are_read_back_and_bytes_that_make_no_sense_do_not_verify() {
        let pages = [(PageId(0), Lsn(8)), (PageId(7), Lsn(u64::MAX - 7)), (PageId(u64::MAX), Lsn(1 << 40))];
        let (body, padding) = encode_homes(&pages);
        let identity = Identity { database_id: 5, incarnation: 1 };
        let place = Place { identity, start: 4096, durable: 4096, previous_crc: 0 };
        let record = |body: &[u8], padding| {
            let sum = identity.body_sum(RecordKind::Home, body);
            let head = Head::encode(&place, RecordKind::Home, None, padding, body.len(), sum);
            [head.bytes(), body, &head.trailer].concat()
        };
        let parse =
            |bytes: &[u8]| RecordView::parse(5, 4096, bytes).map(|view| view.homes().collect::<Vec<_>>());
        assert_eq!(parse(&record(&body, padding)).as_deref(), Some(&pages[..]));
        // Half an entry; a page behind the last one there can be.
        assert_eq!(parse(&record(&[1, 8, 3, 0, 0, 0, 0, 0], 5)), None);
        let beyond = [&body[..body.len() - usize::from(padding)], &[1, 8]].concat();
        let rest = (8 - beyond.len() % 8) % 8;
        assert_eq!(parse(&record(&[&beyond[..], &vec![0; rest]].concat(), rest as u8)), None);
    }

    #[test]
    fn a_group_whose_changes_make_no_sense_does_not_verify_whatever_its_checksum_says() {
        let identity = Identity { database_id: 5, incarnation: 1 };
        let place = Place { identity, start: 4096, durable: 4096, previous_crc: 0 };
        let record = |body: &[u8], padding| {
            let sum = identity.body_sum(RecordKind::Group, body);
            let head = Head::encode(&place, RecordKind::Group, None, padding, body.len(), sum);
            [head.bytes(), body, &head.trailer].concat()
        };
        let parses = |bytes: &[u8]| RecordView::parse(5, 4096, bytes).map(|view| view.changes().count());
        // Kind, page, previous LSN, length, operation; padding.
        assert_eq!(parses(&record(&[1, 9, 8, 1, 0, 42, 0, 0], 2)), Some(1));
        assert_eq!(parses(&record(&[1, 9, 8, 0, 0, 1, 9, 8, 1, 0, 42, 0, 0, 0, 0, 0], 5)), Some(2));
        for (body, padding) in [
            ([1, 9, 8, 2, 0, 42, 0, 0], 2),
            ([1, 9, 8, 1, 0, 42, 0, 0], 1),
            ([1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80], 0),
            ([1, 9, 8, 1, 0, 42, 0, 0], 9),
        ] {
            assert_eq!(parses(&record(&body, padding)), None, "{body:?} {padding}");
        }
    }
}
