//! What is moved about when rows in memory are sorted: a number that orders most of them, and where each stands.

use super::order::SortOrder;
use crate::exec::arena::{Arena, RowRef};
use std::cmp::Ordering;

/// Fewer entries than this are not divided first.
const DIVIDED_LEAST: usize = if cfg!(test) { 64 } else { 1 << 12 };
/// Entries of a division that are worth one, about, and bits of the number of divisions, least and most.
const DIVISION: usize = 16;
const DIVISION_BITS: (u32, u32) = (4, 14);

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// See [`SortOrder::prefix`].
    pub(super) prefix: u64,
    pub(super) row: RowRef,
}

impl Entry {
    /// See [`RowRef::behind`].
    pub(super) fn behind(self, chunks: usize) -> Self {
        Entry { row: self.row.behind(chunks), ..self }
    }

    fn compare(&self, other: &Entry, order: &SortOrder, arena: &Arena) -> Ordering {
        let by_keys = || order.compare(arena.row(self.row), arena.row(other.row));
        self.prefix.cmp(&other.prefix).then_with(by_keys)
    }
}

/// Entries of rows of an arena.
#[derive(Debug)]
pub(super) struct Entries {
    entries: Vec<Entry>,
    /// The prefixes alone tell rows apart.
    exact: bool,
}

impl Entries {
    pub(super) fn new() -> Self {
        Entries { entries: Vec::new(), exact: true }
    }

    /// Those of all rows.
    fn of(order: &SortOrder, arena: &Arena) -> Self {
        let mut all = Entries { entries: Vec::with_capacity(arena.len()), exact: true };
        arena.iter().for_each(|row| all.push(order, arena.row(row), row));
        all
    }

    /// Adds a row, and where it stands.
    #[inline]
    pub(super) fn push(&mut self, order: &SortOrder, row: &[u8], place: RowRef) {
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(self.more());
        }
        let (prefix, tells) = order.prefix(row);
        self.exact &= tells;
        self.entries.push(Entry { prefix, row: place });
    }

    /// How many more there is room made for at a time.
    fn more(&self) -> usize {
        (self.entries.len() / 8).max(64)
    }

    /// Bytes it takes with another row.
    #[inline]
    pub(super) fn bytes_with_one(&self) -> usize {
        let full = self.entries.len() == self.entries.capacity();
        (self.entries.capacity() + if full { self.more() } else { 0 }) * size_of::<Entry>()
    }

    /// All of them in order, or the first ones. Rows with equal keys stay in their order.
    pub(super) fn sorted(self, order: &SortOrder, arena: &Arena, first: usize) -> Vec<Entry> {
        let Entries { mut entries, exact } = self;
        let compare = |a: &Entry, b: &Entry| {
            let by = if exact { a.prefix.cmp(&b.prefix) } else { a.compare(b, order, arena) };
            by.then(a.row.cmp(&b.row))
        };
        if first < entries.len() {
            entries.select_nth_unstable_by(first, compare);
            entries.truncate(first);
        }
        sort(&mut entries, &compare);
        entries
    }
}

/// The rows of an arena in order, or the first ones of them.
pub(super) fn sorted(order: &SortOrder, arena: &Arena, first: usize) -> Vec<Entry> {
    Entries::of(order, arena).sorted(order, arena, first)
}

/// Puts sorted entries that stand one behind the other into their order: of equal ones the earlier one comes first. What the standard library
/// does with that is to find them and merge them.
pub(super) fn merge_sorted(order: &SortOrder, arena: &Arena, entries: &mut [Entry]) {
    entries.sort_by(|a, b| a.compare(b, order, arena));
}

/// Sorts. Many entries are divided by the leading bits of their prefixes first, in place (P. McIlroy, K. Bostic, M. McIlroy, "Engineering Radix
/// Sort", 1993: American flag sort): each division is then in the processor's cache, and takes fewer comparisons.
fn sort(entries: &mut [Entry], compare: &impl Fn(&Entry, &Entry) -> Ordering) {
    let (least, most) =
        entries.iter().fold((u64::MAX, 0), |(least, most), at| (least.min(at.prefix), most.max(at.prefix)));
    if entries.len() < DIVIDED_LEAST || least >= most {
        return entries.sort_unstable_by(compare);
    }
    let bits = (entries.len() / DIVISION).ilog2().clamp(DIVISION_BITS.0, DIVISION_BITS.1);
    let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(bits);
    let division = |entry: &Entry| ((entry.prefix - least) >> shift) as usize;
    let mut ends = vec![0_u32; division(&Entry { prefix: most, row: RowRef::NONE }) + 1];
    let Ok(_) = u32::try_from(entries.len()) else { return entries.sort_unstable_by(compare) };
    entries.iter().for_each(|entry| ends[division(entry)] += 1);
    let mut end = 0;
    for count in &mut ends {
        end += *count;
        *count = end;
    }
    // Where the next entry of each goes; they are filled from the first one on.
    let mut next: Vec<u32> = [0].into_iter().chain(ends.iter().copied()).collect();
    for number in 0..ends.len() {
        while next[number] < ends[number] {
            let at = next[number] as usize;
            let home = division(&entries[at]);
            entries.swap(at, next[home] as usize);
            next[home] += 1;
        }
    }
    let mut begin = 0;
    for end in ends {
        let one = &mut entries[begin..end as usize];
        begin = end as usize;
        sort(one, compare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divided_or_not_entries_are_sorted() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 11
        };
        let kinds: [&dyn Fn(u64) -> u64; 6] = [
            &|random| random << 11,
            &|random| random % 3,
            &|random| if random.is_multiple_of(50) { u64::MAX } else { (1 << 63) | (random % 1000) },
            &|_| 7,
            &|random| u64::from_be_bytes(*b"row 1000") + ((random % 10) << 8),
            // One division has nearly all.
            &|random| if random.is_multiple_of(1000) { random << 11 } else { random % 5000 },
        ];
        for kind in kinds {
            for len in [0, 1, 63, 64, 65, 1000, 20_000] {
                let mut entries: Vec<Entry> = (0..len)
                    .map(|number| Entry { prefix: kind(random()), row: RowRef::from_bits(random() ^ number) })
                    .collect();
                let mut expected = entries.clone();
                let compare = |a: &Entry, b: &Entry| (a.prefix, a.row).cmp(&(b.prefix, b.row));
                expected.sort_by(compare);
                sort(&mut entries, &compare);
                assert!(
                    entries.iter().zip(&expected).all(|(a, b)| compare(a, b) == Ordering::Equal),
                    "{len}"
                );
            }
        }
    }
}
