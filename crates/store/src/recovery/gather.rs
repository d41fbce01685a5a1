//! Changes that pages are due, gathered by one scan of the log.
//!
//! # Invariants
//! 1. What was gathered for a page is complete: every change behind the LSN up to which the table says that it is durable, from
//!    its last first contents on, in the log's order.
//! 2. Memory is charged before it is used, and bounded: where it does not suffice, the pages with the highest numbers are
//!    left to another scan.

use super::PageRedo;
use crate::engine::Engine;
use crate::log::{Log, RecordView};
use crate::work::WorkMemory;
use crate::{Error, Result};
use gannet_base::Lsn;
use gannet_base::memory::Purpose;
use std::ops::Range;

/// Part of the budget that a read of the log takes, and its bounds in bytes.
const CHUNK_SHARE: u64 = 256;
const CHUNK_MIN: u64 = 64 << 10;
const CHUNK_MAX: u64 = 256 << 10;
/// Parts the pages of a scan are cut into, of which the last ones are dropped when memory runs out.
const PARTS: usize = 16;
/// Memory is taken in pieces of this size; an operation is shorter than a quarter of one.
const PIECE: usize = 256 << 10;
/// In front of each change: place of the next one, length, kind, whether it is first contents, two bytes unused, LSN, LSN
/// before.
const HEAD: usize = 28;
const NONE: u32 = u32::MAX;
/// Records after which the scan looks whether it is to give up.
const LOOK_UP_EVERY: u32 = 256;

/// A change due to a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due<'a> {
    pub(crate) lsn: Lsn,
    previous: Lsn,
    pub(crate) kind: u8,
    /// It needs no earlier content of the page.
    pub(crate) init: bool,
    pub(crate) bytes: &'a [u8],
}

/// The changes of one page: places of the first and the last one.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List { first: NONE, last: NONE };

/// Changes of some neighbouring pages of the table.
#[derive(Debug, Default)]
struct Part {
    lists: Vec<List>,
    pieces: Vec<Box<[u8]>>,
    used: usize,
}

impl Part {
    fn at(&self, place: u32) -> (u32, Due<'_>) {
        let place = place as usize;
        let bytes = &self.pieces[place / PIECE][place % PIECE..];
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let due = Due {
            lsn: Lsn(long(12)),
            previous: Lsn(long(20)),
            kind: bytes[8],
            init: bytes[9] != 0,
            bytes: &bytes[HEAD..HEAD + (word(4) as usize)],
        };
        (word(0), due)
    }

    fn list(&self, index: usize) -> List {
        self.lists.get(index).copied().unwrap_or(EMPTY)
    }

    /// Whether there is room for `len` bytes without another piece.
    fn has_room(&self, len: usize) -> bool {
        !self.pieces.is_empty() && self.used + len <= PIECE
    }

    fn add_piece(&mut self) {
        self.pieces.push(vec![0; PIECE].into_boxed_slice());
        self.used = 0;
    }

    fn put(&mut self, index: usize, due: &Due<'_>) {
        let number = self.pieces.len() - 1;
        let place = (number * PIECE + self.used) as u32;
        let piece = &mut self.pieces[number][self.used..];
        piece[..4].copy_from_slice(&NONE.to_le_bytes());
        piece[4..8].copy_from_slice(&(due.bytes.len() as u32).to_le_bytes());
        (piece[8], piece[9]) = (due.kind, u8::from(due.init));
        piece[12..20].copy_from_slice(&due.lsn.0.to_le_bytes());
        piece[20..28].copy_from_slice(&due.previous.0.to_le_bytes());
        piece[HEAD..HEAD + due.bytes.len()].copy_from_slice(due.bytes);
        self.used += HEAD + due.bytes.len();
        let list = self.lists[index];
        // With first contents the page's history begins anew.
        if due.init || list.first == NONE {
            self.lists[index] = List { first: place, last: place };
            return;
        }
        let before = list.last as usize;
        self.pieces[before / PIECE][before % PIECE..][..4].copy_from_slice(&place.to_le_bytes());
        self.lists[index].last = place;
    }
}

/// Changes of the pages at neighbouring places of the table.
#[derive(Debug)]
pub(crate) struct Gathered {
    range: Range<usize>,
    /// Pages of each part.
    width: usize,
    parts: Vec<Part>,
    memory: WorkMemory,
    limit: u64,
}

impl Gathered {
    fn new(range: Range<usize>, memory: WorkMemory, limit: u64) -> Self {
        let width = range.len().div_ceil(PARTS).max(1);
        let parts = (0..range.len().div_ceil(width)).map(|_| Part::default()).collect();
        Gathered { range, width, parts, memory, limit }
    }

    /// Places of the table whose pages have everything they are due here.
    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    fn place(&self, index: usize) -> Option<(usize, usize)> {
        let offset = index.checked_sub(self.range.start).filter(|_| index < self.range.end)?;
        Some((offset / self.width, offset % self.width))
    }

    /// What leads a page from `have` to `last`, oldest first; `None` when there is a gap.
    pub(super) fn way(&self, index: usize, have: Lsn, last: Lsn) -> Option<impl Iterator<Item = Due<'_>>> {
        let (part, offset) = self.place(index)?;
        let part = &self.parts[part];
        let mut at = part.list(offset).first;
        let mut start = None;
        let mut reached = have;
        while at != NONE {
            let (next, due) = part.at(at);
            // Other changes of the same group carry the same LSN.
            if due.lsn > reached {
                if !due.init && due.previous != reached {
                    return None;
                }
                start.get_or_insert(at);
                reached = due.lsn;
            }
            at = next;
        }
        let places = std::iter::successors(start, |&at| Some(part.at(at).0).filter(|&next| next != NONE));
        (reached == last).then(|| places.map(|at| part.at(at).1))
    }

    /// Makes room for `len` bytes about the page at `index`; false when it is left to another scan.
    fn reserve(&mut self, index: usize, len: usize) -> bool {
        loop {
            let Some((number, _)) = self.place(index) else { return false };
            let (width, part) = (self.width, &self.parts[number]);
            let lists = if part.lists.is_empty() { width * size_of::<List>() } else { 0 };
            let piece = if part.has_room(len) { 0 } else { PIECE };
            let more = (lists + piece) as u64;
            let is_full = part.pieces.len() >= (NONE as usize / PIECE);
            if more == 0 {
                return true;
            }
            if !is_full && self.memory.bytes() + more <= self.limit && self.memory.grow(more).is_ok() {
                let part = &mut self.parts[number];
                if lists > 0 {
                    part.lists = vec![EMPTY; width];
                }
                if piece > 0 {
                    part.add_piece();
                }
                return true;
            }
            self.drop_last_part();
        }
    }

    fn drop_last_part(&mut self) {
        let Some(part) = self.parts.pop() else { return };
        self.range.end = self.range.start + self.parts.len() * self.width;
        let freed = part.lists.len() * size_of::<List>() + part.pieces.len() * PIECE;
        drop(part);
        self.memory.shrink_to(self.memory.bytes() - freed as u64);
    }
}

/// How the log is scanned.
pub(crate) struct Scan<'a> {
    pub(crate) log: &'a Log,
    /// Where it ended when it was opened.
    pub(crate) end: Lsn,
    /// Bytes that changes may take which are gathered at one time: the fewer, the more often the log is read.
    pub(crate) limit: u64,
    /// Whether to give up.
    pub(crate) is_stopping: &'a dyn Fn() -> bool,
}

/// Goes through the table in page order: gathers what some of its pages are due, as many as there is memory for, and has `touch` bring those at
/// these places up to date, which is false when it was given up, as is what this returns.
pub(crate) fn redo_in_turns(
    engine: &Engine,
    redo: &PageRedo,
    scan: &Scan<'_>,
    touch: &mut dyn FnMut(Range<usize>) -> Result<bool>,
) -> Result<bool> {
    let chunk = (engine.budget().limit() / CHUNK_SHARE).next_power_of_two().clamp(CHUNK_MIN, CHUNK_MAX);
    let pages = redo.table().len();
    let (mut from, mut count) = (0, pages);
    let mut gathers = true;
    while from < pages {
        let wanted = from..pages.min(from + count);
        let mut range = wanted.clone();
        if gathers {
            let gathered = engine
                .memory(Purpose::Log, scan.log.scan_memory(chunk))
                .and_then(|memory| gather(redo, wanted.clone(), scan, chunk, memory));
            match gathered {
                Ok(None) => return Ok(false),
                Ok(Some(gathered)) => {
                    range = gathered.range();
                    redo.set_gathered(Some(gathered));
                }
                // Whoever finds no way through the log from its beginning walks each page's own, which may go past what cannot be read.
                // So does who gets no thread to read it with.
                Err(Error::Damaged(_) | Error::Memory(_) | Error::Io(_) | Error::Invalid(_)) => {
                    gathers = false
                }
                Err(error) => return Err(error),
            }
        }
        if range.is_empty() && wanted.len() > 1 {
            // Not even the first part of them found room.
            count = wanted.len().div_ceil(PARTS);
            continue;
        }
        // One page's changes alone may be more than there is memory for.
        range.end = range.end.max(from + 1);
        if !touch(range.clone())? {
            return Ok(false);
        }
        redo.set_gathered(None);
        from = range.end;
        count = if gathers { (range.len() * 2).max(64) } else { pages };
    }
    Ok(true)
}

/// Gathers, within the scan's limit and what `memory` has for reading `chunk` bytes of the log at a time, what the pages at the places `range` of the table are due, as far as that does not need more.
/// Pages that were looked at already count for nothing. `None` when it was given up.
fn gather(
    redo: &PageRedo,
    range: Range<usize>,
    scan: &Scan<'_>,
    chunk: u64,
    memory: WorkMemory,
) -> Result<Option<Gathered>> {
    let limit = scan.limit + memory.bytes();
    let entries = redo.table().entries();
    let mut gathered = Gathered::new(range.clone(), memory, limit);
    let due = range.filter(|&index| !redo.is_done(index)).map(|index| entries[index].home);
    let Some(from) = due.min() else { return Ok(Some(gathered)) };
    let mut stopped = false;
    let mut records = 0u32;
    let mut visit = |record: &RecordView<'_>| {
        let lsn = Lsn(record.end());
        for change in record.changes() {
            let Some(index) = redo.table().find(change.page) else { continue };
            let entry = entries[index];
            if lsn <= entry.home || redo.is_done(index) {
                continue;
            }
            let due = Due {
                lsn,
                previous: change.previous,
                kind: change.kind,
                init: change.init,
                bytes: change.bytes,
            };
            if gathered.reserve(index, HEAD + due.bytes.len()) {
                let (part, offset) = gathered.place(index).expect("there is room for it");
                gathered.parts[part].put(offset, &due);
            }
        }
        records = records.wrapping_add(1);
        stopped = records.is_multiple_of(LOOK_UP_EVERY) && (scan.is_stopping)();
        Ok(!stopped && !gathered.range.is_empty())
    };
    scan.log.scan(from, scan.end, chunk, &mut visit)?;
    Ok((!stopped).then_some(gathered))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineOptions;
    use gannet_io::sim::SimDisk;
    use std::sync::Arc;

    fn gathered(range: Range<usize>, limit: u64) -> Gathered {
        let options = EngineOptions { memory: 32 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        Gathered::new(range, engine.memory(Purpose::Log, 0).unwrap(), limit)
    }

    fn add(gathered: &mut Gathered, index: usize, lsn: u64, previous: u64, init: bool, bytes: &[u8]) -> bool {
        let due = Due { lsn: Lsn(lsn), previous: Lsn(previous), kind: 1, init, bytes };
        let has_room = gathered.reserve(index, HEAD + bytes.len());
        if has_room {
            let (part, offset) = gathered.place(index).unwrap();
            gathered.parts[part].put(offset, &due);
        }
        has_room
    }

    fn way(gathered: &Gathered, index: usize, have: u64, last: u64) -> Option<Vec<(u64, u8)>> {
        let changes = gathered.way(index, Lsn(have), Lsn(last))?;
        Some(changes.map(|due| (due.lsn.0, due.bytes[0])).collect())
    }

    #[test]
    fn a_page_gets_what_leads_from_where_it_is_to_the_end_and_nothing_across_a_gap() {
        let mut all = gathered(100..200, 1 << 20);
        // Two changes in one group; others' changes in between.
        for (lsn, previous, byte) in [(16, 8, 1), (24, 16, 2), (24, 16, 3), (40, 24, 4)] {
            assert!(add(&mut all, 107, lsn, previous, false, &[byte; 60]));
            assert!(add(&mut all, 108, lsn, 0, false, &[9]));
        }
        assert_eq!(way(&all, 107, 8, 40), Some(vec![(16, 1), (24, 2), (24, 3), (40, 4)]));
        assert_eq!(way(&all, 107, 16, 40), Some(vec![(24, 2), (24, 3), (40, 4)]));
        assert_eq!(way(&all, 107, 24, 40), Some(vec![(40, 4)]));
        // Older than what was gathered, on no way at all, and further than what was gathered.
        for (have, last) in [(0, 40), (12, 40), (20, 40), (8, 48)] {
            assert_eq!(way(&all, 107, have, last), None, "{have} {last}");
        }
        assert_eq!(way(&all, 99, 8, 40), None);
        assert_eq!(way(&all, 150, 8, 40), None);
    }

    #[test]
    fn first_contents_make_what_was_before_superfluous() {
        let mut all = gathered(0..1, 1 << 20);
        add(&mut all, 0, 16, 8, false, &[1]);
        add(&mut all, 0, 24, 16, true, &[2]);
        add(&mut all, 0, 32, 24, false, &[3]);
        for have in [0, 8, 12, 20] {
            assert_eq!(way(&all, 0, have, 32), Some(vec![(24, 2), (32, 3)]), "{have}");
        }
        assert_eq!(way(&all, 0, 24, 32), Some(vec![(32, 3)]));
    }

    #[test]
    fn where_memory_is_short_the_last_pages_are_left_to_another_scan() {
        let mut all = gathered(0..160, 4 * PIECE as u64);
        // Each part of ten pages takes a piece and its lists.
        for index in (0..160).step_by(10) {
            add(&mut all, index, 16, 8, false, &[1; 1000]);
        }
        assert_eq!(all.range(), 0..30);
        assert_eq!(way(&all, 20, 8, 16), Some(vec![(16, 1)]));
        assert!(!add(&mut all, 30, 24, 16, false, &[1]), "its place is gone");
        // One page alone may be too much.
        let mut one = gathered(5..6, PIECE as u64 / 2);
        assert!(!add(&mut one, 5, 16, 8, false, &[1]));
        assert!(one.range().is_empty());
    }
}
