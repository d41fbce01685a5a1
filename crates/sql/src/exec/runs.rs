//! Sorted runs in a temporary file, and how they become one.

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
    let limit = context.work_limit();
    let block = (limit / 32).next_power_of_two().clamp(16 << 10, 256 << 10);
    let (least, row) = if longest > LARGE_BYTES { (2, longest as u64) } else { (FAN_IN.0, 0) };
    (limit / (3 * block + row)).clamp(least, FAN_IN.1) as usize
}

/// Runs on their way into one.
#[derive(Debug)]
pub(super) struct Merge {
    sources: Vec<SpillReader>,
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
                let (prefix, _) = order.prefix(reader.current());
                merge.heap.push(Source { prefix, index: merge.sources.len() });
                merge.sources.push(reader);
            }
        }
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(order, at);
        }
        Ok(merge)
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
