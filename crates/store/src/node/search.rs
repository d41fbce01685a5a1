//! The one binary search over a node's slots, for plain and for optimistic readers.

use super::layout::{Slot, Source, head};
use std::cmp::Ordering;
use std::hint::select_unpredictable;

/// Finds `suffix` among the first `count` slots: `Ok` with its slot, or `Err` with the slot it would be inserted at.
///
/// Heads are searched first and without branches that depend on them: a search that touches nothing but the slot
/// array mispredicts nothing. Only where heads tie are cells compared; an equal head proves nothing, since heads
/// are padded with zeros ("a" and "a\0" tie).
///
/// Ends within 2·log₂(count) + 2 steps whatever the bytes are.
#[inline]
pub(super) fn search<S: Source>(source: S, count: usize, suffix: &[u8]) -> Result<usize, usize> {
    let wanted = head(suffix);
    if count == 0 {
        return Err(0);
    }
    let mut first = 0;
    let mut remaining = count;
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
    match source.compare(slot.suffix_offset(), slot.suffix_len, suffix) {
        Ordering::Equal => Ok(first),
        Ordering::Greater => Err(first),
        Ordering::Less => search_ties(source, first + 1, count, wanted, suffix),
    }
}

/// Finds `suffix` in slots `low..high`, whose heads are at least `wanted`.
fn search_ties<S: Source>(
    source: S,
    mut low: usize,
    mut high: usize,
    wanted: u32,
    suffix: &[u8],
) -> Result<usize, usize> {
    while low < high {
        let middle = low + (high - low) / 2;
        let slot = Slot::read(source, middle);
        let order = match slot.head.cmp(&wanted) {
            Ordering::Equal => source.compare(slot.suffix_offset(), slot.suffix_len, suffix),
            unequal => unequal,
        };
        match order {
            Ordering::Equal => return Ok(middle),
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    Err(low)
}
