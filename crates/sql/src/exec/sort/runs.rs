//! Sorted rows, in temporary files and in memory, and how they become one.

use super::entries::{Entry, Look, merge_sorted};
use super::order::SortOrder;
use crate::exec::arena::{Arena, TOUCHED};
use crate::exec::spill::{SpillReader, SpillWriter, Spilled, readers_within};
use crate::exec::{Context, LARGE_BYTES};
use crate::{Error, Result};
use gannet_store::{Engine, TempFile};
use std::cmp::Ordering;
use std::ops::Range;

/// Runs merged at a time, least and most.
const FAN_IN: (u64, u64) = (4, 128);
/// Rows written between two looks whether anybody wants them still.
const CHECK_EVERY: usize = 1 << 12;

/// Where sorted rows stand among others: of rows with equal keys those of the lower rank come first.
pub(super) type Rank = u64;

/// Sorted rows in temporary files.
#[derive(Debug, Default)]
pub(super) struct Runs {
    files: Vec<TempFile>,
    places: Vec<Place>,
}

/// Where a run is.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Its file's place among the files.
    file: usize,
    from: u64,
    to: u64,
    rank: Rank,
}

impl Runs {
    /// Begins another one, for who may take so many bytes. No other is begun before it was pushed. Where there is no memory for it, all is as it was.
    pub(super) fn writer(&mut self, engine: &Engine, limit: u64) -> Result<SpillWriter> {
        let Some(file) = self.files.pop() else { return SpillWriter::within(engine, limit) };
        SpillWriter::append(file).map_err(|(file, error)| {
            self.files.push(file);
            error
        })
    }

    /// Bytes of the largest blocks of their files.
    fn block_bytes(&self) -> Option<u64> {
        self.files.iter().map(TempFile::block_bytes).max()
    }

    /// How many can be merged at a time: as many as have room, see [`readers_within`].
    pub(super) fn fan_in(&self, context: &Context<'_>, longest: usize) -> usize {
        let least = if longest > LARGE_BYTES { 2 } else { FAN_IN.0 };
        self.readers_beside(context, longest, 0).clamp(least, FAN_IN.1) as usize
    }

    /// Whether all of them, and others, `runs` in all, can be merged at a time beside rows of `held` bytes in memory.
    pub(super) fn fits_beside(
        &self,
        context: &Context<'_>,
        longest: usize,
        held: usize,
        runs: usize,
    ) -> bool {
        runs as u64 <= self.readers_beside(context, longest, held as u64).min(FAN_IN.1)
    }

    fn readers_beside(&self, context: &Context<'_>, longest: usize, held: u64) -> u64 {
        let limit = context.work_limit();
        let block = self.block_bytes().unwrap_or_else(|| context.session.engine.temp_block_bytes(limit));
        readers_within(limit, held, longest, block)
    }

    /// It is written.
    pub(super) fn push(&mut self, run: Spilled, rank: Rank) {
        self.places.push(Place { file: self.files.len(), from: run.from, to: run.file.len(), rank });
        self.files.push(run.file);
    }

    /// Takes others; none is being written.
    pub(super) fn append(&mut self, others: Runs) {
        let before = self.files.len();
        self.files.extend(others.files);
        self.places
            .extend(others.places.into_iter().map(|place| Place { file: before + place.file, ..place }));
    }

    /// Has them in the order of their ranks.
    pub(super) fn order(&mut self) {
        self.places.sort_by_key(|place| place.rank);
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The rank of a run.
    pub(super) fn rank(&self, index: usize) -> Rank {
        self.places[index].rank
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.places.iter().map(|place| place.to - place.from).sum()
    }

    fn reader(&self, index: usize) -> Result<SpillReader> {
        let Place { file, from, to, .. } = self.places[index];
        let file = self.files.get(file).ok_or_else(|| Error::internal("a sort has no file"))?;
        SpillReader::new(file, from, to)
    }
}

/// Sorted rows that are merged with others.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are some tens of them")]
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

    /// All rows of some, in their order: of rows with equal keys those of the earlier ones come first.
    pub(super) fn combined(order: &SortOrder, pieces: Vec<InMemory>, look: Look<'_>) -> Result<Self> {
        let mut arena = Arena::new(0);
        let mut parts = Vec::with_capacity(pieces.len());
        for InMemory { arena: rows, mut entries, .. } in pieces {
            let chunks = arena.append(rows);
            entries.iter_mut().for_each(|entry| *entry = entry.behind(chunks));
            parts.push(entries);
        }
        let entries = merge_sorted(order, &arena, parts, look)?;
        Ok(InMemory::new(arena, entries))
    }

    /// Bytes that [`InMemory::combined`] takes for a while, besides, for so many rows.
    pub(super) fn combining_bytes(rows: usize) -> usize {
        rows * size_of::<Entry>()
    }

    /// Rows.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.arena.bytes() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Writes the rows that were not given yet, and gives the memory they had; `look` says now and then whether to go on.
    pub(super) fn write(mut self, writer: &mut SpillWriter, look: Look<'_>) -> Result<Arena> {
        while self.advance() {
            if self.next.is_multiple_of(CHECK_EVERY) {
                look()?;
            }
            writer.push_encoded(self.current())?;
        }
        self.arena.empty();
        Ok(self.arena)
    }

    pub(super) fn into_arena(self) -> Arena {
        self.arena
    }

    /// Goes to the next row; false behind the last one.
    #[inline]
    pub(super) fn advance(&mut self) -> bool {
        if self.next.is_multiple_of(TOUCHED) {
            let ahead = &self.entries[self.next.min(self.entries.len())..];
            self.arena.touch(ahead.iter().take(TOUCHED).map(|entry| entry.row));
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

    /// See [`SortOrder::prefix`].
    #[inline]
    fn prefix(&self, order: &SortOrder) -> u64 {
        match self {
            Sorted::File(reader) => order.prefix(reader.current()).0,
            Sorted::Memory(rows) => rows.entries[rows.next - 1].prefix,
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
#[derive(Debug, Default)]
pub(super) struct Merge {
    sources: Vec<Sorted>,
    ranks: Vec<Rank>,
    /// The sources' first rows, until the first one is asked for.
    leaves: Vec<Leaf>,
    /// A tree of losers (D. Knuth, "The Art of Computer Programming", volume 3, 5.4.1): the least leaf first, and in each inner node, which are
    /// numbered from 1 on, the greater one of those that have met there. The leaf of source `i` is below node `(i + sources) / 2`.
    tree: Vec<Option<Leaf>>,
}

/// A source's current row.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    prefix: u64,
    index: usize,
    /// There is none: it is behind all others.
    has_ended: bool,
}

impl Merge {
    /// Of some of the runs.
    pub(super) fn new(order: &SortOrder, runs: &Runs, which: Range<usize>) -> Result<Self> {
        let mut merge = Merge::default();
        for index in which {
            let mut reader = runs.reader(index)?;
            if reader.advance()? {
                merge.push(order, runs.rank(index), Sorted::File(reader));
            }
        }
        Ok(merge)
    }

    /// Of rows in memory as well; before the first row is given.
    pub(super) fn add(&mut self, order: &SortOrder, rank: Rank, mut rows: InMemory) {
        if rows.advance() {
            self.push(order, rank, Sorted::Memory(rows));
        }
    }

    fn push(&mut self, order: &SortOrder, rank: Rank, source: Sorted) {
        self.leaves.push(Leaf { prefix: source.prefix(order), index: self.sources.len(), has_ended: false });
        self.sources.push(source);
        self.ranks.push(rank);
    }

    /// The next row, or `None` behind the last one.
    pub(super) fn next(&mut self, order: &SortOrder) -> Result<Option<&[u8]>> {
        match self.tree.first().copied().flatten() {
            None => self.begin(order),
            Some(leaf) if leaf.has_ended => {}
            Some(mut leaf) => {
                let source = &mut self.sources[leaf.index];
                leaf.has_ended = !source.advance()?;
                if !leaf.has_ended {
                    leaf.prefix = source.prefix(order);
                }
                self.replay(order, leaf);
            }
        }
        let least = self.tree.first().copied().flatten().filter(|leaf| !leaf.has_ended);
        Ok(least.map(|leaf| self.sources[leaf.index].current()))
    }

    fn begin(&mut self, order: &SortOrder) {
        let leaves = std::mem::take(&mut self.leaves);
        self.tree = vec![None; leaves.len()];
        leaves.into_iter().for_each(|leaf| self.replay(order, leaf));
    }

    /// Goes from a leaf, which has another row, to the root: the least of all of them comes there; the greater one of each two that meet stays where they met.
    #[inline]
    fn replay(&mut self, order: &SortOrder, leaf: Leaf) {
        let mut winner = Some(leaf);
        let mut at = (leaf.index + self.sources.len()) / 2;
        while at > 0 {
            // A place that nobody came to yet waits for whoever is there first.
            let is_less = match (self.tree[at], winner) {
                (Some(other), Some(winner)) => self.less(order, other, winner),
                (other, _) => other.is_none(),
            };
            if is_less {
                std::mem::swap(&mut self.tree[at], &mut winner);
            }
            at /= 2;
        }
        self.tree[0] = winner;
    }

    #[inline]
    fn less(&self, order: &SortOrder, a: Leaf, b: Leaf) -> bool {
        if a.has_ended || b.has_ended {
            return b.has_ended && !a.has_ended;
        }
        let by_keys = || order.compare(self.sources[a.index].current(), self.sources[b.index].current());
        let by_ranks = || self.ranks[a.index].cmp(&self.ranks[b.index]);
        a.prefix.cmp(&b.prefix).then_with(by_keys).then_with(by_ranks) == Ordering::Less
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqlState;
    use crate::exec::spill::encode_row;
    use crate::types::Value;
    use gannet_base::memory::Purpose;
    use gannet_io::sim::SimDisk;
    use gannet_store::EngineOptions;
    use std::sync::Arc;

    #[test]
    fn a_run_without_memory_to_write_it_leaves_those_before_as_they_were() {
        let options = EngineOptions { memory: 16 << 20, temp_folder: Some("/spill".into()) };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        let order = SortOrder::new(&[], 1);
        let (mut runs, mut row) = (Runs::default(), Vec::new());
        encode_row([&Value::Int(7)], &mut row).unwrap();
        let write = |runs: &mut Runs, rank| -> Result<()> {
            let mut writer = runs.writer(&engine, u64::MAX)?;
            writer.push_encoded(&row)?;
            runs.push(writer.end()?, rank);
            Ok(())
        };
        write(&mut runs, 0).unwrap();
        let free = engine.budget().limit() - engine.budget().used();
        let others = engine.memory(Purpose::Sessions, free).unwrap();
        assert_eq!(write(&mut runs, 1).unwrap_err().state(), SqlState::OUT_OF_MEMORY);
        drop(others);
        write(&mut runs, 1).unwrap();
        let mut merge = Merge::new(&order, &runs, 0..2).unwrap();
        let mut rows = 0;
        while merge.next(&order).unwrap().is_some() {
            rows += 1;
        }
        assert_eq!(rows, 2);
    }
}
