//! What is moved about when rows in memory are sorted: a number that orders most of them, and where each stands.
//!
//! However many there are, whoever sorts them looks now and then whether to go on.

use super::order::SortOrder;
use crate::Result;
use crate::exec::arena::{Arena, RowRef};
use std::cmp::Ordering;

/// Fewer entries than this are not divided first.
const DIVIDED_LEAST: usize = if cfg!(test) { 64 } else { 1 << 12 };
/// Entries of a division that are worth one, about, and bits of the number of divisions, least and most.
const DIVISION: usize = 16;
const DIVISION_BITS: (u32, u32) = (4, 14);
/// Entries sorted, merged or divided between two looks whether to go on.
const LOOK_EVERY: usize = if cfg!(test) { 256 } else { 1 << 16 };
/// Divisions of a radix sort filled between two looks.
const LOOK_DIVISIONS: usize = 256;
/// Entries of which the middle one divides the others.
const SAMPLE: usize = 31;
/// A part that is smaller than this one of the whole is one too small, and so many of these are too many.
const SMALL_PART: usize = 16;
const SMALL_MOST: u32 = 8;

/// Says whether to go on.
pub(super) type Look<'l> = &'l dyn Fn() -> Result<()>;

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
    fn of(order: &SortOrder, arena: &Arena, look: Look<'_>) -> Result<Self> {
        let mut all = Entries { entries: Vec::with_capacity(arena.len()), exact: true };
        let mut rows = arena.iter();
        while all.entries.len() < arena.len() {
            look()?;
            rows.by_ref().take(LOOK_EVERY).for_each(|row| all.push(order, arena.row(row), row));
        }
        Ok(all)
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
    pub(super) fn sorted(
        self,
        order: &SortOrder,
        arena: &Arena,
        first: usize,
        look: Look<'_>,
    ) -> Result<Vec<Entry>> {
        let Entries { mut entries, exact } = self;
        let compare = |a: &Entry, b: &Entry| {
            let by = if exact { a.prefix.cmp(&b.prefix) } else { a.compare(b, order, arena) };
            by.then(a.row.cmp(&b.row))
        };
        if first < entries.len() {
            select(&mut entries, first, &compare, look)?;
            entries.truncate(first);
        }
        sort(&mut entries, &compare, look)?;
        Ok(entries)
    }
}

/// The rows of an arena in order, or the first ones of them.
pub(super) fn sorted(order: &SortOrder, arena: &Arena, first: usize, look: Look<'_>) -> Result<Vec<Entry>> {
    Entries::of(order, arena, look)?.sorted(order, arena, first, look)
}

/// Merges sorted entries of an arena's rows: of equal ones those that come first in `parts` do so. Besides what these take it takes as much once more.
pub(super) fn merge_sorted(
    order: &SortOrder,
    arena: &Arena,
    parts: Vec<Vec<Entry>>,
    look: Look<'_>,
) -> Result<Vec<Entry>> {
    let mut from = Vec::with_capacity(parts.iter().map(Vec::len).sum());
    // Where the parts end.
    let mut ends = Vec::with_capacity(parts.len());
    for part in parts {
        look()?;
        from.extend(part);
        ends.push(from.len());
    }
    let mut into = from.clone();
    while ends.len() > 1 {
        let mut begin = 0;
        for two in ends.chunks(2) {
            let (middle, end) = (two[0], two[two.len() - 1]);
            let (first, second) = (&from[begin..middle], &from[middle..end]);
            merge_two(order, arena, (first, second), &mut into[begin..end], look)?;
            begin = end;
        }
        ends = ends.chunks(2).map(|two| two[two.len() - 1]).collect();
        std::mem::swap(&mut from, &mut into);
    }
    Ok(from)
}

fn merge_two(
    order: &SortOrder,
    arena: &Arena,
    (first, second): (&[Entry], &[Entry]),
    into: &mut [Entry],
    look: Look<'_>,
) -> Result<()> {
    let is_less = |a: &Entry, b: &Entry| a.compare(b, order, arena) == Ordering::Less;
    let (mut at, mut other) = (0, 0);
    // Often one is all behind the other.
    if let (Some(last), Some(begin)) = (first.last(), second.first())
        && is_less(begin, last)
    {
        while at < first.len() && other < second.len() {
            look()?;
            let done = at + other;
            let end = into.len().min(done + LOOK_EVERY);
            for place in &mut into[done..end] {
                let (Some(&one), Some(&two)) = (first.get(at), second.get(other)) else { break };
                let is_second = is_less(&two, &one);
                *place = if is_second { two } else { one };
                other += usize::from(is_second);
                at += usize::from(!is_second);
            }
        }
    }
    let (rest, left) = into[at + other..].split_at_mut(first.len() - at);
    rest.copy_from_slice(&first[at..]);
    left.copy_from_slice(&second[other..]);
    Ok(())
}

/// Sorts. Many entries are divided by the leading bits of their prefixes first, in place (P. McIlroy, K. Bostic, M. McIlroy, "Engineering Radix
/// Sort", 1993: American flag sort): each division is then in the processor's cache, and takes fewer comparisons.
fn sort(entries: &mut [Entry], compare: &impl Fn(&Entry, &Entry) -> Ordering, look: Look<'_>) -> Result<()> {
    let (least, most) =
        entries.iter().fold((u64::MAX, 0), |(least, most), at| (least.min(at.prefix), most.max(at.prefix)));
    if entries.len() < DIVIDED_LEAST || least >= most {
        return sort_by_comparing(entries, compare, look);
    }
    let bits = (entries.len() / DIVISION).ilog2().clamp(DIVISION_BITS.0, DIVISION_BITS.1);
    let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(bits);
    let division = |entry: &Entry| ((entry.prefix - least) >> shift) as usize;
    let mut ends = vec![0_u32; division(&Entry { prefix: most, row: RowRef::NONE }) + 1];
    let Ok(_) = u32::try_from(entries.len()) else { return sort_by_comparing(entries, compare, look) };
    entries.iter().for_each(|entry| ends[division(entry)] += 1);
    let mut end = 0;
    for count in &mut ends {
        end += *count;
        *count = end;
    }
    // Where the next entry of each goes; they are filled from the first one on.
    let mut next: Vec<u32> = [0].into_iter().chain(ends.iter().copied()).collect();
    for number in 0..ends.len() {
        if number.is_multiple_of(LOOK_DIVISIONS) {
            look()?;
        }
        while next[number] < ends[number] {
            let at = next[number] as usize;
            let home = division(&entries[at]);
            entries.swap(at, next[home] as usize);
            next[home] += 1;
        }
    }
    let (mut begin, mut looked) = (0, 0);
    for end in ends {
        let one = &mut entries[begin..end as usize];
        begin = end as usize;
        sort(one, compare, look)?;
        if begin - looked >= LOOK_EVERY {
            look()?;
            looked = begin;
        }
    }
    Ok(())
}

/// Sorts by comparisons alone. Many entries, all of which differ, are divided until there are few of them in each part, as the standard library does; so
/// there is time for a look.
fn sort_by_comparing(
    mut entries: &mut [Entry],
    compare: &impl Fn(&Entry, &Entry) -> Ordering,
    look: Look<'_>,
) -> Result<()> {
    if entries.len() > LOOK_EVERY && put_in_order(entries, compare, look)? {
        return Ok(());
    }
    let mut small = 0;
    while entries.len() > LOOK_EVERY && small < SMALL_MOST {
        let (count, at) = (entries.len(), divide(entries, compare, look)?);
        let (less, greater) = entries.split_at_mut(at);
        let (shorter, longer) = match at < count / 2 {
            true => (less, &mut greater[1..]),
            false => (&mut greater[1..], less),
        };
        small += u32::from(shorter.len() < count / SMALL_PART);
        sort_by_comparing(shorter, compare, look)?;
        entries = longer;
    }
    entries.sort_unstable_by(compare);
    Ok(())
}

/// Has the `first` least entries, all of which differ, come first.
fn select(
    mut entries: &mut [Entry],
    mut first: usize,
    compare: &impl Fn(&Entry, &Entry) -> Ordering,
    look: Look<'_>,
) -> Result<()> {
    let mut small = 0;
    while entries.len() > LOOK_EVERY && small < SMALL_MOST {
        let (count, at) = (entries.len(), divide(entries, compare, look)?);
        small += u32::from(at.min(count - at) < count / SMALL_PART);
        match first.cmp(&at) {
            Ordering::Less => entries = &mut entries[..at],
            Ordering::Equal => return Ok(()),
            Ordering::Greater => {
                first -= at + 1;
                entries = &mut entries[at + 1..];
            }
        }
    }
    entries.select_nth_unstable_by(first, compare);
    Ok(())
}

/// Whether the entries are in order, or in the opposite one: then they are put in order.
fn put_in_order(
    entries: &mut [Entry],
    compare: &impl Fn(&Entry, &Entry) -> Ordering,
    look: Look<'_>,
) -> Result<bool> {
    let way = compare(&entries[0], &entries[1]);
    // Each block has the last one of the block before.
    for begin in (0..entries.len() - 1).step_by(LOOK_EVERY) {
        look()?;
        let block = &entries[begin..entries.len().min(begin + LOOK_EVERY + 1)];
        if !block.is_sorted_by(|a, b| compare(a, b) == way) {
            return Ok(false);
        }
    }
    if way == Ordering::Greater {
        entries.reverse();
    }
    Ok(true)
}

/// Has entries that are less than one of them stand before it, and those that are greater behind it, and gives its place. By N. Lomuto's scheme
/// without branches.
fn divide(
    entries: &mut [Entry],
    compare: &impl Fn(&Entry, &Entry) -> Ordering,
    look: Look<'_>,
) -> Result<usize> {
    let last = entries.len() - 1;
    let mut sample: [usize; SAMPLE] = std::array::from_fn(|number| number * last / (SAMPLE - 1));
    sample.sort_unstable_by(|a, b| compare(&entries[*a], &entries[*b]));
    entries.swap(sample[SAMPLE / 2], last);
    let one = entries[last];
    let mut less = 0;
    for begin in (0..last).step_by(LOOK_EVERY) {
        look()?;
        for at in begin..last.min(begin + LOOK_EVERY) {
            let is_less = compare(&entries[at], &one) == Ordering::Less;
            entries.swap(less, at);
            less += usize::from(is_less);
        }
    }
    entries.swap(less, last);
    Ok(less)
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
                let agrees = |entries: &[Entry], expected: &[Entry]| {
                    entries.iter().zip(expected).all(|(a, b)| compare(a, b) == Ordering::Equal)
                };
                let given = entries.clone();
                sort(&mut entries, &compare, &|| Ok(())).unwrap();
                assert!(agrees(&entries, &expected), "{len}");
                entries.clone_from(&given);
                sort_by_comparing(&mut entries, &compare, &|| Ok(())).unwrap();
                assert!(agrees(&entries, &expected), "{len} by comparing");
                entries.reverse();
                sort_by_comparing(&mut entries, &compare, &|| Ok(())).unwrap();
                assert!(agrees(&entries, &expected), "{len} from the end");
                for first in [0, len as usize / 100, len as usize / 2, (len as usize).saturating_sub(1)] {
                    entries.clone_from(&given);
                    if first < entries.len() {
                        select(&mut entries, first, &compare, &|| Ok(())).unwrap();
                        entries.truncate(first);
                        entries.sort_by(compare);
                        assert!(agrees(&entries, &expected[..first]), "{first} of {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn whoever_sorts_or_merges_many_looks_often_whether_to_go_on() {
        let order = SortOrder::new(&[], 0);
        let mut arena = Arena::new(0);
        let (mut rows, mut state) = (Vec::new(), 1_u64);
        for _ in 0..40_000 {
            rows.push(arena.push(&[0; 4]));
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let other = (state >> 33) as usize % rows.len();
            let last = rows.len() - 1;
            rows.swap(other, last);
        }
        let of = |prefix: &dyn Fn(usize) -> u64| {
            let entries = rows.iter().enumerate().map(|(at, row)| Entry { prefix: prefix(at), row: *row });
            Entries { entries: entries.collect(), exact: true }
        };
        // Alike, of two kinds, and all different.
        let kinds: [&dyn Fn(usize) -> u64; 3] =
            [&|_| 7, &|at| at as u64 % 2, &|at| (at as u64).wrapping_mul(1 << 48)];
        for prefix in kinds {
            for first in [usize::MAX, 30_000] {
                let looks = std::cell::Cell::new(0);
                let look = || {
                    looks.set(looks.get() + 1);
                    Ok(())
                };
                of(prefix).sorted(&order, &arena, first, &look).unwrap();
                assert!(looks.get() >= rows.len() / LOOK_EVERY, "{} looks", looks.get());
                let stops = || match looks.replace(looks.get() - 1) {
                    1 => Err(crate::Error::internal("nobody wants them")),
                    _ => Ok(()),
                };
                assert!(of(prefix).sorted(&order, &arena, first, &stops).is_err(), "the last look counts");
            }
        }
        let looks = std::cell::Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            Ok(())
        };
        let sorted = |prefix: &dyn Fn(usize) -> u64| {
            of(prefix).sorted(&order, &arena, usize::MAX, &|| Ok(())).unwrap()
        };
        let parts = vec![sorted(&|at| at as u64), sorted(&|at| 2 * at as u64), sorted(&|_| 7)];
        let merged = merge_sorted(&order, &arena, parts.clone(), &look).unwrap();
        let mut expected = parts.concat();
        expected.sort_by_key(|entry| entry.prefix);
        let shown = |entries: &[Entry]| entries.iter().map(|at| (at.prefix, at.row)).collect::<Vec<_>>();
        assert!(shown(&merged) == shown(&expected));
        assert!(looks.get() >= rows.len() / LOOK_EVERY, "{} looks", looks.get());
    }
}
