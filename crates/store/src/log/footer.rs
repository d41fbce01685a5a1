//! The index of a segment: built while records are appended, written as the footer that ends the segment, read at a
//! restart instead of the records.
//!
//! # Invariants
//! 1. A footer is a function of the segment's records and of what was open when the segment began: appending and
//!    scanning both go through [`Index::apply`].
//! 2. [`Index::footer_len`] is an upper bound: a footer computed after a record with the pages counted there never
//!    takes more. So a footer that fitted when it was checked fits when it is written.

use super::record::{ALIGNMENT, Draft, MIN_RECORD_LEN, RecordKind, RecordView, TxnEvent, TxnInfo, padded};
use crate::page::{get_u32, get_u64};
use gannet_base::memory::{Budget, Charge, OverBudget, Purpose};
use gannet_base::{Lsn, PageId, TxnId};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

const FIXED_LEN: usize = 40;
/// Bytes of a footer for each page that was changed, and for each that came home.
pub(super) const PAGE_LEN: usize = 12;
/// LSNs of pages that came home count back from the segment's end, in this unit: so 32 GiB can be told.
const HOME_UNIT: u64 = ALIGNMENT;
const COMMITTED: u64 = 1 << 63;
const FLAG_CRASHED: u32 = 1;
/// Where the number of pages that came home stands.
const HOMES_AT: usize = 36;

/// Spreads page numbers over the table; fixed, so that nothing depends on a random state.
#[derive(Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// The segment being appended to, and the transactions open in the log.
#[derive(Debug)]
pub(crate) struct Index {
    segment_start: u64,
    /// Page to its last LSN, counted from the segment's start.
    pages: HashMap<u64, u32, BuildHasherDefault<PageHasher>>,
    /// Page to the newest LSN up to which it is known to be durable in the data file.
    homes: HashMap<u64, u64, BuildHasherDefault<PageHasher>>,
    begun: Vec<u64>,
    ended: Vec<u64>,
    /// Open transactions and their newest undo pointers; survives the segment.
    pub(crate) open: BTreeMap<u64, u64>,
    pub(crate) highest_txn: u64,
    pub(crate) highest_commit: u64,
    charge: Charge,
}

impl Index {
    /// An index of a log in which nothing happened yet.
    pub(crate) fn new(segment_start: u64, budget: &Budget) -> Result<Self, OverBudget> {
        Ok(Index {
            segment_start,
            pages: HashMap::default(),
            homes: HashMap::default(),
            begun: Vec::new(),
            ended: Vec::new(),
            open: BTreeMap::new(),
            highest_txn: 0,
            highest_commit: 0,
            charge: budget.charge(Purpose::Log, 1 << 16)?,
        })
    }

    /// Goes on after a sealed segment.
    pub(crate) fn resume(&mut self, footer: &Footer) {
        self.open = footer.open.iter().map(|&(txn, undo)| (txn.0, undo)).collect();
        self.highest_txn = footer.highest_txn.0;
        self.highest_commit = footer.highest_commit.0;
    }

    /// First position of the segment.
    pub(crate) fn segment_start(&self) -> u64 {
        self.segment_start
    }

    /// Forgets the finished segment and begins the one at `segment_start`.
    pub(crate) fn begin_segment(&mut self, segment_start: u64) {
        self.segment_start = segment_start;
        self.pages.clear();
        self.homes.clear();
        self.begun.clear();
        self.ended.clear();
    }

    /// Charges the memory that a record with `entries` changes, or pages that came home, can need. Where the budget has none, the index grows all the
    /// same: pages are latched and changed when this is asked, and what one segment's index can take is bounded by the
    /// segment's size (a few MiB), well within what a process may take beside its budget.
    pub(crate) fn reserve(&mut self, entries: usize) {
        // A hash table that just doubled holds 17 bytes an entry at 7/16 of its capacity; sealing sorts a copy and
        // encodes it.
        let pages = (self.pages.len() + self.homes.len() + entries) * (40 + 16 + PAGE_LEN);
        let lists = (self.begun.len() + self.ended.len() + 2) * (16 + 8);
        let open = (self.open.len() + 1) * (64 + 16);
        let needed = (pages + lists + open) as u64;
        if needed > self.charge.bytes() {
            let _ = self.charge.resize(needed.next_power_of_two());
        }
    }

    /// Adds a record that ends at `lsn`.
    pub(crate) fn apply(&mut self, lsn: u64, txn: Option<TxnInfo>, pages: impl Iterator<Item = PageId>) {
        let offset = (lsn - self.segment_start) as u32;
        for page in pages {
            self.pages.insert(page.0, offset);
        }
        let Some(TxnInfo { id: TxnId(id), event }) = txn else { return };
        self.highest_txn = self.highest_txn.max(id);
        if !self.open.contains_key(&id) {
            self.begun.push(id);
        }
        match event {
            TxnEvent::Change { undo } => {
                self.open.insert(id, undo);
            }
            TxnEvent::Commit => {
                self.open.remove(&id);
                self.ended.push(id | COMMITTED);
                self.highest_commit = lsn;
            }
            TxnEvent::Ended => {
                self.open.remove(&id);
                self.ended.push(id);
            }
        }
    }

    /// Adds pages that came home.
    pub(crate) fn apply_homes(&mut self, homes: impl Iterator<Item = (PageId, Lsn)>) {
        for (page, lsn) in homes {
            let newest = self.homes.entry(page.0).or_default();
            *newest = lsn.0.max(*newest);
        }
    }

    /// Adds a record found by a scan.
    pub(crate) fn apply_view(&mut self, record: &RecordView<'_>) {
        self.apply(record.end(), record.txn, record.pages());
        self.apply_homes(record.homes());
    }

    /// The most a footer can take after one more record with `entries` changes, or pages that came home.
    pub(crate) fn footer_len(&self, entries: usize) -> usize {
        let pages = (self.pages.len() + self.homes.len() + entries) * PAGE_LEN;
        let lists = (self.begun.len() + self.ended.len() + 2) * 8;
        MIN_RECORD_LEN + padded(FIXED_LEN + pages + lists + (self.open.len() + 1) * 16)
    }

    /// Pages with their last LSN in the segment, in any order.
    pub(crate) fn pages_unsorted(&self) -> Vec<(PageId, Lsn)> {
        let at = |at: u32| Lsn(self.segment_start + u64::from(at));
        self.pages.iter().map(|(&page, &last)| (PageId(page), at(last))).collect()
    }

    /// The same, sorted by page.
    pub(crate) fn pages(&self) -> Vec<(PageId, Lsn)> {
        let mut pages = self.pages_unsorted();
        pages.sort_unstable();
        pages
    }

    /// Pages with the newest LSN up to which they are known to be durable in the data file, sorted by page.
    pub(crate) fn homes(&self) -> Vec<(PageId, Lsn)> {
        let mut homes: Vec<_> = self.homes.iter().map(|(&page, &lsn)| (PageId(page), Lsn(lsn))).collect();
        homes.sort_unstable();
        homes
    }

    /// The footer's payload, padded. `crashed` says that a restart ends the segment, not the running log.
    pub(crate) fn encode_footer(&self, segment_end: u64, crashed: bool) -> FooterBody {
        let pages = self.pages();
        // Without the others a restart looks at pages that it need not look at.
        let told = |(page, lsn)| Some((page, home_back(segment_end, lsn)?));
        let homes: Vec<_> = self.homes().into_iter().filter_map(told).collect();
        let mut body = Vec::with_capacity(self.footer_len(0));
        for count in [pages.len(), self.begun.len(), self.ended.len(), self.open.len()] {
            body.extend_from_slice(&(count as u32).to_le_bytes());
        }
        body.extend_from_slice(&self.highest_txn.to_le_bytes());
        body.extend_from_slice(&self.highest_commit.to_le_bytes());
        body.extend_from_slice(&(if crashed { FLAG_CRASHED } else { 0 }).to_le_bytes());
        body.extend_from_slice(&(homes.len() as u32).to_le_bytes());
        for (page, lsn) in pages {
            body.extend_from_slice(&page.0.to_le_bytes());
            body.extend_from_slice(&((lsn.0 - self.segment_start) as u32).to_le_bytes());
        }
        for (page, back) in homes {
            body.extend_from_slice(&page.0.to_le_bytes());
            body.extend_from_slice(&back.to_le_bytes());
        }
        self.begun.iter().chain(&self.ended).for_each(|id| body.extend_from_slice(&id.to_le_bytes()));
        for (id, undo) in &self.open {
            body.extend_from_slice(&id.to_le_bytes());
            body.extend_from_slice(&undo.to_le_bytes());
        }
        let payload_len = body.len();
        body.resize(padded(payload_len), 0);
        FooterBody { bytes: body, payload_len }
    }
}

/// How far back from a segment's end a page was changed last that came home, as a footer has it; `None` where that is farther than it can tell.
pub(super) fn home_back(segment_end: u64, lsn: Lsn) -> Option<u32> {
    u32::try_from((segment_end - lsn.0) / HOME_UNIT).ok()
}

/// A footer's encoded body.
pub(crate) struct FooterBody {
    bytes: Vec<u8>,
    payload_len: usize,
}

impl FooterBody {
    /// Bytes the footer takes as a record without further padding.
    pub(crate) fn record_len(&self) -> usize {
        MIN_RECORD_LEN + self.bytes.len()
    }

    /// Makes the record `len` bytes long: so little longer that no record fits in between.
    pub(crate) fn pad_to(&mut self, len: usize) {
        self.bytes.resize(len - MIN_RECORD_LEN, 0);
    }

    /// The footer as the log appends it.
    pub(crate) fn draft(&self) -> Draft<'_> {
        let padding = (self.bytes.len() - self.payload_len) as u8;
        Draft { kind: RecordKind::Footer, txn: None, padding, body: &self.bytes, pages: &[], homes: &[] }
    }
}

/// What a sealed segment says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Footer {
    /// First position of the segment.
    pub segment_start: Lsn,
    /// The life of the log that wrote the segment.
    pub incarnation: u32,
    /// A restart ended the segment: the next one belongs to a later incarnation.
    pub crashed: bool,
    /// Pages changed in the segment with the LSN of their last change in it, sorted by page.
    pub pages: Vec<(PageId, Lsn)>,
    /// Pages that are durable in the data file up to at least this LSN, as far as was learned in the segment, sorted by page.
    pub homes: Vec<(PageId, Lsn)>,
    /// Transactions whose first record is in the segment, in order of that record.
    pub begun: Vec<TxnId>,
    /// Transactions that ended in the segment and whether they committed, in order.
    pub ended: Vec<(TxnId, bool)>,
    /// Transactions open at the segment's end with their newest undo pointers, sorted by transaction.
    pub open: Vec<(TxnId, u64)>,
    /// The highest transaction number in the log so far.
    pub highest_txn: TxnId,
    /// LSN of the last commit in the log so far; 0 for none.
    pub highest_commit: Lsn,
}

impl Footer {
    /// Decodes a verified footer record; `None` when its inner lengths do not agree.
    pub(crate) fn decode(record: &RecordView<'_>, segment_start: u64) -> Option<Footer> {
        let segment_end = record.end();
        if record.kind != RecordKind::Footer {
            return None;
        }
        let payload = record.payload();
        let fixed = payload.get(..FIXED_LEN)?;
        let count = |at: usize| get_u32(fixed, at) as usize;
        let counts = [count(0), count(HOMES_AT), count(4), count(8), count(12)];
        let sizes = [PAGE_LEN, PAGE_LEN, 8, 8, 16];
        let expected: usize = counts.iter().zip(sizes).map(|(count, size)| count * size).sum();
        let mut rest = &payload[FIXED_LEN..];
        if rest.len() != expected {
            return None;
        }
        let mut take = |i: usize| {
            let (list, tail) = rest.split_at(counts[i] * sizes[i]);
            rest = tail;
            list.chunks_exact(sizes[i])
        };
        let lsn = |entry: &[u8]| Lsn(segment_start + u64::from(get_u32(entry, 8)));
        let home = |entry: &[u8]| Lsn(segment_end.saturating_sub(u64::from(get_u32(entry, 8)) * HOME_UNIT));
        Some(Footer {
            segment_start: Lsn(segment_start),
            incarnation: record.incarnation,
            crashed: get_u32(fixed, 32) & FLAG_CRASHED != 0,
            pages: take(0).map(|e| (PageId(get_u64(e, 0)), lsn(e))).collect(),
            homes: take(1).map(|e| (PageId(get_u64(e, 0)), home(e))).collect(),
            begun: take(2).map(|e| TxnId(get_u64(e, 0))).collect(),
            ended: take(3)
                .map(|e| get_u64(e, 0))
                .map(|v| (TxnId(v & !COMMITTED), v & COMMITTED != 0))
                .collect(),
            open: take(4).map(|e| (TxnId(get_u64(e, 0)), get_u64(e, 8))).collect(),
            highest_txn: TxnId(get_u64(fixed, 16)),
            highest_commit: Lsn(get_u64(fixed, 24)),
        })
    }
}
