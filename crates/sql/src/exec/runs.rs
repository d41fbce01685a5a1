//! Sorted runs in a temporary file, and how they become one.

use super::arena::{Arena, TOUCHED, touch};
use super::behind::Entry;
use super::sorter::SortOrder;
use super::spill::{SpillReader, SpillWriter, Spilled};
use super::{Context, LARGE_BYTES};
use crate::{Error, Result};
use gannet_store::TempFile;
use std::cmp::Ordering;
use std::ops::Range;

/// Runs merged at a time, least and most.
const FAN_IN: (u64, u64) = (4, 128);

/// Sorted rows in a temporary file.
#[derive(Debug, Default)]
pub(super) struct Runs {
    file: Option<TempFile>,
    /// Where each begins and ends.
    pub(super) places: Vec<(u64, u64)>,
}

impl Runs {
    /// Begins another one.
    pub(super) fn writer(&mut self, context: &Context<'_>) -> Result<SpillWriter> {
        match self.file.take() {
            Some(file) => SpillWriter::append(file),
            None => SpillWriter::new(context),
        }
    }

    /// It is written.
    pub(super) fn push(&mut self, run: Spilled) {
        self.places.push((run.from, run.file.len()));
        self.file = Some(run.file);
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.places.iter().map(|(from, to)| to - from).sum()
    }

    fn reader(&self, index: usize) -> Result<SpillReader> {
        let (from, to) = self.places[index];
        let file = self.file.as_ref().ok_or_else(|| Error::internal("a sort has no file"))?;
        SpillReader::new(file, from, to)
    }
}

/// How many runs are merged at a time: as many as have room for three blocks each, see `gannet_store::TempFile`, and a row.
pub(super) fn fan_in(context: &Context<'_>, longest: usize) -> usize {
    let (least, fits) = fan_in_beside(context, longest, 0);
    fits.clamp(least, FAN_IN.1) as usize
}

/// Whether so many runs can be merged at a time beside rows of `held` bytes in memory.
pub(super) fn fits_beside(context: &Context<'_>, longest: usize, held: usize, runs: usize) -> bool {
    runs as u64 <= fan_in_beside(context, longest, held as u64).1.min(FAN_IN.1)
}

/// How many are merged at least, and how many have room.
fn fan_in_beside(context: &Context<'_>, longest: usize, held: u64) -> (u64, u64) {
    let limit = context.work_limit();
    let block = (limit / 32).next_power_of_two().clamp(16 << 10, 256 << 10);
    let (least, row) = if longest > LARGE_BYTES { (2, longest as u64) } else { (FAN_IN.0, 0) };
    (least, limit.saturating_sub(held) / (3 * block + row))
}

/// Sorted rows that are merged with others.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one of a merge's is in memory, all others are files")]
enum Sorted {
    File(SpillReader),
    Memory(InMemory),
}

/// Sorted rows in memory.
#[derive(Debug)]
pub(super) struct InMemory {
    arena: Arena,
    entries: Vec<Entry>,
    /// The one behind the current one.
    next: usize,
}

impl InMemory {
    pub(super) fn new(arena: Arena, entries: Vec<Entry>) -> Self {
        InMemory { arena, entries, next: 0 }
    }

    pub(super) fn into_arena(self) -> Arena {
        self.arena
    }

    /// Goes to the next row; false behind the last one.
    #[inline]
    pub(super) fn advance(&mut self) -> bool {
        if self.next.is_multiple_of(TOUCHED) {
            touch(
                self.entries[self.next.min(self.entries.len())..]
                    .iter()
                    .take(TOUCHED)
                    .map(|entry| self.arena.row(entry.row)),
            );
        }
        self.next += 1;
        self.next <= self.entries.len()
    }

    #[inline]
    pub(super) fn current(&self) -> &[u8] {
        self.arena.row(self.entries[self.next - 1].row)
    }
}

impl Sorted {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        match self {
            Sorted::File(reader) => reader.advance(),
            Sorted::Memory(rows) => Ok(rows.advance()),
        }
    }

    #[inline]
    fn current(&self) -> &[u8] {
        match self {
            Sorted::File(reader) => reader.current(),
            Sorted::Memory(rows) => rows.current(),
        }
    }
}

/// Runs on their way into one.
#[derive(Debug)]
pub(super) struct Merge {
    sources: Vec<Sorted>,
    /// A heap: the source with the least row first.
    heap: Vec<Source>,
    /// The first source's row was given and has to be replaced.
    given: bool,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    prefix: u64,
    index: usize,
}

impl Merge {
    pub(super) fn new(order: &SortOrder, runs: &Runs, which: Range<usize>) -> Result<Self> {
        let mut merge = Merge { sources: Vec::new(), heap: Vec::new(), given: false };
        for index in which {
            let mut reader = runs.reader(index)?;
            if reader.advance()? {
                merge.push(order, Sorted::File(reader));
            }
        }
        merge.order(order);
        Ok(merge)
    }

    /// Of rows in memory as well, which came behind all others; before the first row is given.
    pub(super) fn add(&mut self, order: &SortOrder, mut rows: InMemory) {
        if rows.advance() {
            self.push(order, Sorted::Memory(rows));
            self.order(order);
        }
    }

    fn push(&mut self, order: &SortOrder, source: Sorted) {
        let (prefix, _) = order.prefix(source.current());
        self.heap.push(Source { prefix, index: self.sources.len() });
        self.sources.push(source);
    }

    fn order(&mut self, order: &SortOrder) {
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(order, at);
        }
    }

    pub(super) fn next(&mut self, order: &SortOrder) -> Result<Option<&[u8]>> {
        if self.given {
            let index = self.heap[0].index;
            if self.sources[index].advance()? {
                (self.heap[0].prefix, _) = order.prefix(self.sources[index].current());
            } else {
                self.heap.swap_remove(0);
            }
            self.sift_down(order, 0);
        }
        self.given = !self.heap.is_empty();
        Ok(self.heap.first().map(|source| self.sources[source.index].current()))
    }

    fn less(&self, order: &SortOrder, a: Source, b: Source) -> bool {
        let by_keys = || order.compare(self.sources[a.index].current(), self.sources[b.index].current());
        // Runs are in the order of their rows: of equal ones the earlier run's comes first.
        a.prefix.cmp(&b.prefix).then_with(by_keys).then(a.index.cmp(&b.index)) == Ordering::Less
    }

    fn sift_down(&mut self, order: &SortOrder, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.less(order, self.heap[child], self.heap[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}
