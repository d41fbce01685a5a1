//! The one binary search over a node's slots, for plain and for optimistic readers.

use super::layout::{Header, Slot, Source, head};
use std::cmp::Ordering;
use std::hint::select_unpredictable;

/// Finds `suffix` among the first `count` slots of a node: `Ok` with its slot, or `Err` with the slot it would be
/// inserted at. Entry 0 of an inner node lies below everything and is never `Ok`.
///
/// Heads are searched first and without branches that depend on them: a search that touches nothing but the slot
/// array mispredicts nothing. Only where heads tie are cells compared; an equal head proves nothing, since heads
/// are padded with zeros ("a" and "a\0" tie).
///
/// Ends within 2·log₂(count) + 2 steps whatever the bytes are.
#[inline]
pub(super) fn search<S: Source>(
    source: S,
    header: &Header,
    count: usize,
    suffix: &[u8],
) -> Result<usize, usize> {
    let mut first = header.first_headed();
    if count <= first {
        return Err(count);
    }
    let skip = usize::from(header.head_skip);
    let rest = if skip == 0 {
        suffix
    } else {
        // What all suffixes begin with, compared once.
        let (shared, rest) = suffix.split_at(skip.min(suffix.len()));
        match source.compare(Slot::read(source, first).suffix_offset(), skip, shared) {
            Ordering::Equal => rest,
            Ordering::Greater => return Err(first),
            Ordering::Less => return Err(count),
        }
    };
    let wanted = head(rest);
    let mut remaining = count - first;
    while remaining > 1 {
        let half = remaining / 2;
        // Everything below `first` has a smaller head.
        first = select_unpredictable(Slot::read(source, first + half - 1).head < wanted, first + half, first);
        remaining -= half;
    }
    let mut slot = Slot::read(source, first);
    if slot.head < wanted {
        first += 1;
        if first == count {
            return Err(count);
        }
        slot = Slot::read(source, first);
    }
    if slot.head > wanted {
        return Err(first);
    }
    match compare_rest(source, slot, skip, rest) {
        Ordering::Equal => Ok(first),
        Ordering::Greater => Err(first),
        Ordering::Less => search_ties(source, first + 1..count, skip, rest),
    }
}

/// Finds `rest` in slots whose heads are at least its own.
fn search_ties<S: Source>(
    source: S,
    mut slots: std::ops::Range<usize>,
    skip: usize,
    rest: &[u8],
) -> Result<usize, usize> {
    let wanted = head(rest);
    while slots.start < slots.end {
        let middle = slots.start.midpoint(slots.end);
        let slot = Slot::read(source, middle);
        match slot.head.cmp(&wanted).then_with(|| compare_rest(source, slot, skip, rest)) {
            Ordering::Equal => return Ok(middle),
            Ordering::Less => slots.start = middle + 1,
            Ordering::Greater => slots.end = middle,
        }
    }
    Err(slots.start)
}

/// Compares a suffix behind the bytes that all share.
#[inline(always)]
fn compare_rest<S: Source>(source: S, slot: Slot, skip: usize, rest: &[u8]) -> Ordering {
    source.compare(slot.suffix_offset() + skip, slot.suffix_len.saturating_sub(skip), rest)
}
