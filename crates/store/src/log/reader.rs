//! Reading records back: single ones by their LSN, and one page's history.
//!
//! # Invariants
//! 1. Only what is durable is read.
//! 2. Every record handed out verified: position, checksum, database, and the incarnation its segment's header names.
//! 3. A cached chunk is used only for positions that were durable when it was read, so the log's growing end is never
//!    read from an old copy.
//!
//! The device is read in chunks of 64 KiB, several at one time where a page's history is dense. A bounded number is kept: a redo in
//! page order walks many chains that cross the same stretches of the log.

use super::Inner;
use super::record::{ALIGNMENT, MIN_RECORD_LEN, Record, RecordView, TRAILER_LEN};
use super::segment::BLOCK;
use crate::page::get_u32;
use crate::{Error, Result};
use gannet_base::memory::{Charge, Purpose};
use gannet_base::sync::Mutex;
use gannet_base::{Lsn, PageId};
use gannet_io::{AlignedBuffer, Class};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

const CHUNK: u64 = 64 << 10;
/// Most chunks that are read at one time, where a page's history is so dense that it comes by all of them.
const CHUNKS_MOST: u64 = 8;
/// Bytes of one page's changes that are kept while its history is walked, so that they need not be read twice.
const KEPT_OF_HISTORY: usize = 64 << 10;

/// One change of one page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageChange {
    /// LSN of the group it belongs to.
    pub lsn: Lsn,
    /// What the operation is, in the caller's terms.
    pub kind: u8,
    /// It needs no earlier content of the page.
    pub init: bool,
    /// The operation.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
struct Chunk {
    bytes: Arc<AlignedBuffer>,
    valid_to: u64,
    used: u64,
}

#[derive(Debug)]
struct Cache {
    chunks: BTreeMap<u64, Chunk>,
    capacity: usize,
    clock: u64,
    incarnations: BTreeMap<u64, u32>,
}

/// Reads a log. Shared by any number of threads.
#[derive(Debug)]
pub struct LogReader {
    inner: Arc<Inner>,
    cache: Mutex<Cache>,
    _charge: Charge,
}

impl LogReader {
    pub(crate) fn new(inner: &Arc<Inner>, cache_bytes: u64) -> Result<Self> {
        let capacity = (cache_bytes / CHUNK).max(2) as usize;
        let charge = inner.budget.charge(Purpose::Log, capacity as u64 * CHUNK)?;
        let (chunks, incarnations) = (BTreeMap::new(), BTreeMap::new());
        Ok(LogReader {
            inner: Arc::clone(inner),
            cache: Mutex::new(Cache { chunks, capacity, clock: 0, incarnations }),
            _charge: charge,
        })
    }

    /// The record that ends at `lsn`, which must be durable.
    ///
    /// # Errors
    /// [`Error::Damaged`] when no valid record ends there, [`Error::Invalid`] when `lsn` is not durable yet.
    pub fn read_at(&self, lsn: Lsn) -> Result<Record> {
        self.with_record(lsn, |record| Ok(record.to_record()))
    }

    /// Gives `visit` the changes of `page` above `have`, its LSN in the data file, up to `last`, oldest first. They begin
    /// with a change that needs no earlier content, where there is one: then `have` does not matter. Of a long history
    /// only the positions are kept in memory, and read again, except for the newest changes. Gives where the record of the oldest one begins; `have`
    /// where there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`] when a record of the chain is missing or does not change the page, or when the chain does not
    /// come by `have`: the page in the data file is not a state this history went through. Nothing was visited then.
    pub fn chain(
        &self,
        page: PageId,
        last: Lsn,
        have: Lsn,
        visit: &mut dyn FnMut(&PageChange) -> Result<()>,
    ) -> Result<Lsn> {
        let mut from = have;
        let mut newest_first: Vec<(Lsn, Option<Vec<PageChange>>)> = Vec::new();
        let mut kept = 0;
        let mut at = last;
        let mut dense = 0;
        while at > have {
            let keeps = kept < KEPT_OF_HISTORY;
            // The next ones lie as far before it, most likely.
            let chunks = if dense == 0 { 1 } else { (4 * dense / CHUNK).clamp(1, CHUNKS_MOST) };
            let (previous, init, changes) = self.with_record_among(at, chunks, |record| {
                let (previous, init) = step_back(record, page)?;
                from = Lsn(record.start);
                Ok((previous, init, keeps.then(|| changes_of(record, page))))
            })?;
            kept += changes
                .iter()
                .flatten()
                .map(|change| change.bytes.len() + size_of::<PageChange>())
                .sum::<usize>();
            newest_first.push((at, changes));
            let distance = at.0.saturating_sub(previous.0);
            dense = if distance <= CHUNK * CHUNKS_MOST / 2 { distance.max(1) } else { 0 };
            at = previous;
            if init {
                at = have;
            }
        }
        if at < have && !newest_first.is_empty() {
            return Err(Error::damaged_page(
                page,
                format!("its lsn {have} is not in its history, which goes from {at} straight on beyond it"),
            ));
        }
        for (lsn, changes) in newest_first.into_iter().rev() {
            let changes = match changes {
                Some(changes) => changes,
                None => self.with_record(lsn, |record| Ok(changes_of(record, page)))?,
            };
            for change in &changes {
                visit(change)?;
            }
        }
        Ok(from)
    }

    fn with_record<T>(&self, lsn: Lsn, use_record: impl FnOnce(&RecordView<'_>) -> Result<T>) -> Result<T> {
        self.with_record_among(lsn, 1, use_record)
    }

    /// The same, by a read of so many chunks before its end where one is necessary.
    fn with_record_among<T>(
        &self,
        lsn: Lsn,
        chunks: u64,
        use_record: impl FnOnce(&RecordView<'_>) -> Result<T>,
    ) -> Result<T> {
        let size = self.inner.segments.size;
        let durable = self.inner.durable.load(Acquire);
        if lsn.0 > durable {
            return Err(Error::Invalid(format!(
                "{lsn} is read, but the log is durable only up to {durable}"
            )));
        }
        let segment_start = lsn.0.saturating_sub(1) / size * size;
        let offset = lsn.0 - segment_start;
        if offset < BLOCK + MIN_RECORD_LEN as u64 || !offset.is_multiple_of(ALIGNMENT) {
            return Err(self.damaged(lsn, "no record can end there"));
        }
        let trailer =
            self.read(lsn.0 - TRAILER_LEN as u64, lsn.0, durable, chunks, |bytes| get_u32(bytes, 0))?;
        let len = u64::from(trailer);
        if len < MIN_RECORD_LEN as u64 || len > offset - BLOCK {
            return Err(self.damaged(lsn, "no record ends there"));
        }
        let incarnation = self.incarnation(lsn, segment_start / size)?;
        let start = lsn.0 - len;
        self.read(start, lsn.0, durable, chunks, |bytes| {
            match RecordView::parse(self.inner.segments.database_id, start, bytes) {
                Some(record) if record.end() == lsn.0 && record.incarnation == incarnation => {
                    use_record(&record)
                }
                _ => Err(self.damaged(lsn, "the record that ends there does not verify")),
            }
        })?
    }

    fn damaged(&self, lsn: Lsn, what: impl Display) -> Error {
        let size = self.inner.segments.size;
        let number = lsn.0.saturating_sub(1) / size;
        let path = self.inner.segments.path(number);
        Error::Damaged(format!("log {path:?}, offset {}: {what} ({lsn})", lsn.0 - number * size))
    }

    fn incarnation(&self, lsn: Lsn, number: u64) -> Result<u32> {
        if let Some(&incarnation) = self.cache.lock().incarnations.get(&number) {
            return Ok(incarnation);
        }
        let header = self.inner.segments.read_header(number)?;
        let header =
            header.ok_or_else(|| self.damaged(lsn, "the segment is missing or its header damaged"))?;
        self.cache.lock().incarnations.insert(number, header.identity.incarnation);
        Ok(header.identity.incarnation)
    }

    /// Gives the bytes `from..to`, which lie in one segment, to `use_bytes`.
    fn read<T>(
        &self,
        from: u64,
        to: u64,
        durable: u64,
        chunks: u64,
        use_bytes: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let first = from & !(CHUNK - 1);
        if to <= first + CHUNK {
            let chunk = self.chunk(first, to, durable, chunks)?;
            return Ok(use_bytes(&chunk[(from - first) as usize..(to - first) as usize]));
        }
        let mut bytes = Vec::with_capacity((to - from) as usize);
        for start in (first..to).step_by(CHUNK as usize) {
            let (low, high) = (from.max(start), to.min(start + CHUNK));
            let chunk = self.chunk(start, high, durable, 1)?;
            bytes.extend_from_slice(&chunk[(low - start) as usize..(high - start) as usize]);
        }
        Ok(use_bytes(&bytes))
    }

    /// The chunk at `start`, with everything below `needed` as it is durable. Where it must be read, so many `chunks` are, of which
    /// it is the last one, as far as the segment goes and the cache has room for several such reads.
    fn chunk(&self, start: u64, needed: u64, durable: u64, chunks: u64) -> Result<Arc<AlignedBuffer>> {
        {
            let mut cache = self.cache.lock();
            cache.clock += 1;
            let clock = cache.clock;
            if let Some(chunk) = cache.chunks.get_mut(&start).filter(|chunk| chunk.valid_to >= needed) {
                chunk.used = clock;
                return Ok(Arc::clone(&chunk.bytes));
            }
        }
        let segments = &self.inner.segments;
        let file = match segments.file(start / segments.size) {
            Err(Error::Io(error)) if error.kind() == gannet_io::ErrorKind::NotFound => {
                return Err(self.damaged(Lsn(start + 1), "the segment is gone"));
            }
            file => file?,
        };
        let before = (start % segments.size / CHUNK).min(chunks - 1);
        let before = before.min(self.cache.lock().capacity as u64 / 8);
        let mut bytes = AlignedBuffer::zeroed(((before + 1) * CHUNK) as usize);
        file.read_at(Class::Foreground, start % segments.size - before * CHUNK, &mut bytes)?;
        if before == 0 {
            let bytes = Arc::new(bytes);
            self.cache.lock().keep(start, &bytes, durable);
            return Ok(bytes);
        }
        let mut cache = self.cache.lock();
        let mut last = None;
        for (part, number) in bytes.chunks_exact(CHUNK as usize).zip(0..) {
            let mut chunk = AlignedBuffer::zeroed(CHUNK as usize);
            chunk.copy_from_slice(part);
            let chunk = Arc::new(chunk);
            cache.keep(start - (before - number) * CHUNK, &chunk, durable);
            last = Some(chunk);
        }
        Ok(last.expect("the chunk itself is among them"))
    }
}

impl Cache {
    /// Keeps a chunk as it was when the log was durable so far, for the one that was used least lately.
    fn keep(&mut self, start: u64, bytes: &Arc<AlignedBuffer>, durable: u64) {
        if self.chunks.len() >= self.capacity && !self.chunks.contains_key(&start) {
            let oldest = self.chunks.iter().min_by_key(|(_, chunk)| chunk.used).map(|(&start, _)| start);
            oldest.map(|start| self.chunks.remove(&start));
        }
        let (used, valid_to) = (self.clock, durable.min(start + CHUNK));
        self.chunks.insert(start, Chunk { bytes: Arc::clone(bytes), valid_to, used });
    }
}

/// The page's LSN before the record, and whether its history begins here.
fn step_back(record: &RecordView<'_>, page: PageId) -> Result<(Lsn, bool)> {
    let lsn = Lsn(record.end());
    let mut previous = None;
    let mut init = false;
    for change in record.changes().filter(|change| change.page == page) {
        previous.get_or_insert(change.previous);
        init |= change.init;
    }
    match previous {
        Some(previous) if init || previous < lsn => Ok((previous, init)),
        Some(previous) => Err(Error::damaged_page(page, format!("{lsn} says it follows {previous}"))),
        None => Err(Error::damaged_page(page, format!("its history names {lsn}, where it was not changed"))),
    }
}

/// The record's changes of `page`, in order, from the last one on that needs no earlier content.
fn changes_of(record: &RecordView<'_>, page: PageId) -> Vec<PageChange> {
    let lsn = Lsn(record.end());
    let mut changes = Vec::new();
    for change in record.changes().filter(|change| change.page == page) {
        if change.init {
            changes.clear();
        }
        let bytes = change.bytes.to_vec();
        changes.push(PageChange { lsn, kind: change.kind, init: change.init, bytes });
    }
    changes
}
