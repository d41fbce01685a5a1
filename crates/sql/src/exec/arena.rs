//! Many rows in little memory: encoded, one behind the other, in chunks that never move.

use super::spill::{Fields, ROW_HEADER, row_len};

/// Bytes of a chunk, least and most.
const CHUNK_LEAST: usize = 4 << 10;
pub(super) const CHUNK_MOST: usize = 1 << 20;

/// Rows that are to be touched together, before they are looked at one by one, and cache lines of each.
pub(super) const TOUCHED: usize = 16;
const TOUCHED_LINES: usize = 4;
const CACHE_LINE: usize = 64;

/// Touches rows that lie anywhere in memory: the processor waits for all of them at once then, and not for each when its turn comes (as in
/// S. Chen et al., "Improving Hash Join Performance through Prefetching", 2004).
pub(super) fn touch<'r>(rows: impl Iterator<Item = &'r [u8]>) {
    let lines = rows.flat_map(|row| row.iter().step_by(CACHE_LINE).take(TOUCHED_LINES));
    std::hint::black_box(lines.fold(0, |sum, byte| sum ^ byte));
}

/// Where a row stands in its arena. Rows that were added later have greater ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RowRef(u64);

impl RowRef {
    /// No row.
    pub(super) const NONE: RowRef = RowRef(u64::MAX);

    fn new(chunk: usize, offset: usize) -> Self {
        RowRef((chunk as u64) << 32 | offset as u64)
    }

    fn place(self) -> (usize, usize) {
        ((self.0 >> 32) as usize, self.0 as u32 as usize)
    }

    pub(super) fn to_bits(self) -> u64 {
        self.0
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        RowRef(bits)
    }

    /// The row's place in an arena to which its own was appended, see [`Arena::append`].
    pub(super) fn behind(self, chunks: usize) -> Self {
        RowRef(self.0 + ((chunks as u64) << 32))
    }
}

/// Encoded rows, each behind a header of a fixed number of bytes for whoever owns the arena.
#[derive(Debug)]
pub(super) struct Arena {
    chunks: Vec<Vec<u8>>,
    /// Empty ones of [`CHUNK_MOST`] bytes, to be used before others are made.
    spare: Vec<Vec<u8>>,
    header: usize,
    /// Of all chunks, spare ones too.
    bytes: usize,
    rows: usize,
}

impl Arena {
    /// An empty one whose rows have headers of `header` bytes.
    pub(super) fn new(header: usize) -> Self {
        Arena { chunks: Vec::new(), spare: Vec::new(), header, bytes: 0, rows: 0 }
    }

    /// Rows in it.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Of these, the bytes of chunks that have rows in them.
    pub(super) fn used(&self) -> usize {
        self.bytes - self.spare_bytes()
    }

    /// All spare chunks are of one size: this is asked for each row.
    fn spare_bytes(&self) -> usize {
        self.spare.len() * CHUNK_MOST
    }

    /// Bytes it will take with another row of `len` bytes.
    #[inline]
    pub(super) fn bytes_with(&self, len: usize) -> usize {
        let needed = len + self.header;
        match self.chunks.last() {
            Some(chunk) if chunk.capacity() - chunk.len() >= needed => self.bytes,
            _ if needed <= CHUNK_MOST && !self.spare.is_empty() => self.bytes,
            _ => self.bytes + self.next_chunk(needed),
        }
    }

    fn next_chunk(&self, needed: usize) -> usize {
        (self.bytes / 2).clamp(CHUNK_LEAST, CHUNK_MOST).max(needed)
    }

    /// Adds a row, encoded by [`super::spill::encode_row`]; its header is zeros.
    pub(super) fn push(&mut self, row: &[u8]) -> RowRef {
        let needed = row.len() + self.header;
        let fits = self.chunks.last().is_some_and(|chunk| chunk.capacity() - chunk.len() >= needed);
        if !fits {
            let spare = if needed <= CHUNK_MOST { self.spare.pop() } else { None };
            let chunk = spare.unwrap_or_else(|| {
                let chunk = Vec::with_capacity(self.next_chunk(needed));
                self.bytes += chunk.capacity();
                chunk
            });
            self.chunks.push(chunk);
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let place = RowRef::new(number, chunk.len());
        chunk.resize(chunk.len() + self.header, 0);
        chunk.extend_from_slice(row);
        self.rows += 1;
        place
    }

    /// A row as it was added.
    #[inline]
    pub(super) fn row(&self, row: RowRef) -> &[u8] {
        let (chunk, offset) = row.place();
        let bytes = &self.chunks[chunk][offset + self.header..];
        &bytes[..row_len(bytes)]
    }

    /// [Touches](touch) rows. How long a row is stands at its beginning: so all beginnings come first.
    pub(super) fn touch(&self, rows: impl Iterator<Item = RowRef> + Clone) {
        let first = |row: RowRef| {
            let (chunk, offset) = row.place();
            self.chunks[chunk][offset + self.header]
        };
        std::hint::black_box(rows.clone().fold(0, |sum, row| sum ^ first(row)));
        touch(rows.map(|row| self.row(row)));
    }

    /// Takes all rows of another arena, with headers of the same length, and gives by how many chunks they stand [behind](RowRef::behind)
    /// where they stood.
    pub(super) fn append(&mut self, mut other: Arena) -> usize {
        debug_assert_eq!(self.header, other.header, "another header");
        other.drop_spare();
        let before = self.chunks.len();
        self.chunks.append(&mut other.chunks);
        self.bytes += other.bytes;
        self.rows += other.rows;
        before
    }

    /// The values of a row.
    #[inline]
    pub(super) fn fields(&self, row: RowRef) -> Fields<'_> {
        Fields(&self.row(row)[ROW_HEADER..])
    }

    /// A row's header.
    #[inline]
    pub(super) fn header(&self, row: RowRef) -> &[u8] {
        let (chunk, offset) = row.place();
        &self.chunks[chunk][offset..offset + self.header]
    }

    /// A row's header, to be changed.
    #[inline]
    pub(super) fn header_mut(&mut self, row: RowRef) -> &mut [u8] {
        let (chunk, offset) = row.place();
        &mut self.chunks[chunk][offset..offset + self.header]
    }

    /// The row behind `row`, or the first one; `None` at the end.
    pub(super) fn next(&self, row: Option<RowRef>) -> Option<RowRef> {
        let (mut chunk, mut offset) = match row {
            Some(row) => {
                let (chunk, offset) = row.place();
                (chunk, offset + self.header + self.row(row).len())
            }
            None => (0, 0),
        };
        while offset >= self.chunks.get(chunk)?.len() {
            chunk += 1;
            offset = 0;
        }
        Some(RowRef::new(chunk, offset))
    }

    /// All rows, in the order in which they were added.
    pub(super) fn iter(&self) -> impl Iterator<Item = RowRef> + '_ {
        std::iter::successors(self.next(None), |row| self.next(Some(*row)))
    }

    /// Keeps these rows, given in the order in which they were added, and forgets the others. They move towards the front, within the memory
    /// that is there.
    pub(super) fn keep(&mut self, rows: impl IntoIterator<Item = RowRef>) {
        let (mut chunk, mut end, mut kept) = (0, 0, 0);
        for row in rows {
            let len = self.header + self.row(row).len();
            let (from_chunk, from) = row.place();
            // A row fits where it stands, so it is always reached.
            while self.chunks[chunk].capacity() - end < len {
                self.chunks[chunk].truncate(end);
                (chunk, end) = (chunk + 1, 0);
            }
            let (before, behind) = self.chunks.split_at_mut(from_chunk);
            match before.get_mut(chunk) {
                Some(to) => {
                    to.truncate(end);
                    to.extend_from_slice(&behind[0][from..from + len]);
                }
                None => behind[0].copy_within(from..from + len, end),
            }
            end += len;
            kept += 1;
        }
        if let Some(last) = self.chunks.get_mut(chunk) {
            last.truncate(end);
            self.chunks.truncate(chunk + 1);
        }
        self.bytes = self.chunks.iter().map(Vec::capacity).sum::<usize>() + self.spare_bytes();
        self.rows = kept;
    }

    /// Forgets all rows and keeps the memory for others.
    pub(super) fn empty(&mut self) {
        for mut chunk in self.chunks.drain(..) {
            if chunk.capacity() == CHUNK_MOST {
                chunk.clear();
                self.spare.push(chunk);
            }
        }
        self.bytes = self.spare_bytes();
        self.rows = 0;
    }

    /// Gives back memory that no row is in.
    pub(super) fn drop_spare(&mut self) {
        self.bytes -= self.spare_bytes();
        self.spare = Vec::new();
    }

    /// Forgets all rows and gives their memory back, but for a small part.
    pub(super) fn clear(&mut self) {
        self.spare = Vec::new();
        self.chunks.truncate(1);
        // One that was made for a long row, or was a spare one, is more than a small part.
        self.chunks.retain(|chunk| chunk.capacity() < CHUNK_MOST);
        self.chunks.iter_mut().for_each(Vec::clear);
        self.bytes = self.chunks.first().map_or(0, Vec::capacity);
        self.rows = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::spill::encode_row;
    use super::*;
    use crate::types::Value;

    #[test]
    fn rows_of_all_sizes_are_found_and_iterated() {
        for header in [0, 16] {
            let mut arena = Arena::new(header);
            let mut refs = Vec::new();
            let mut row = Vec::new();
            for number in 0..3000_usize {
                row.clear();
                let len = if number % 500 == 7 { 2 << 20 } else { number % 300 };
                encode_row([&Value::text("x".repeat(len))], &mut row).unwrap();
                let expected = arena.bytes_with(row.len());
                refs.push(arena.push(&row));
                assert_eq!(arena.bytes(), expected);
            }
            assert!(refs.is_sorted() && arena.iter().eq(refs.iter().copied()));
            assert!(arena.fields(refs[299]).value().unwrap() == Value::text("x".repeat(299)));
            if header > 0 {
                arena.header_mut(refs[5]).fill(7);
                assert_eq!((arena.header(refs[5]), arena.header(refs[6])), (&[7; 16][..], &[0; 16][..]));
            }
            let fields = |row: RowRef, arena: &Arena| arena.row(row).to_vec();
            for some in [|number| number % 7 == 3 || number % 500 == 7, |number| number % 5 == 1] {
                let all: Vec<RowRef> = arena.iter().collect();
                let kept: Vec<RowRef> = (0..all.len()).filter(|n| some(*n)).map(|n| all[n]).collect();
                let rows: Vec<Vec<u8>> = kept.iter().map(|row| fields(*row, &arena)).collect();
                arena.keep(kept);
                assert_eq!(arena.len(), rows.len());
                assert!(arena.iter().map(|row| fields(row, &arena)).eq(rows));
            }
            assert!(arena.bytes() < 8 << 20, "{}", arena.bytes());
            let last = arena.push(&row);
            assert_eq!((arena.iter().last(), fields(last, &arena)), (Some(last), row.clone()));
            let bytes = arena.bytes();
            arena.empty();
            assert!(arena.is_empty() && arena.used() == 0 && arena.bytes() <= bytes);
            let (spare, expected) = (arena.bytes(), arena.bytes_with(100));
            assert!(spare > 0 && expected == spare);
            let first = arena.push(&row);
            assert!(arena.iter().eq([first]) && arena.bytes() == spare && arena.used() > 0);
            arena.keep([]);
            assert!(arena.is_empty() && arena.iter().next().is_none());
            arena.clear();
            assert!(arena.is_empty() && arena.iter().next().is_none() && arena.bytes() < 10_000);
        }
    }
}
