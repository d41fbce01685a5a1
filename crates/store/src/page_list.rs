//! Lists of pages in a file: ascending numbers, in blocks that stand for themselves.
//!
//! A block has a checksum, the list that it is of, and as many pages as fit, each as the distance to the one before. The layout
//! stands in `docs/format.md`.

use crate::page::{get_u16, get_u64, put_u16, put_u64};
use gannet_base::{PageId, checksum};

/// Length of a block in bytes.
pub(crate) const BLOCK: usize = 4096;
const GENERATION_AT: usize = 8;
const FIRST_AT: usize = 16;
const COUNT_AT: usize = 24;
const DELTAS_AT: usize = 26;

/// Fills a block with as many of the pages, which ascend, as fit; says how many.
pub(crate) fn encode(pages: &[PageId], generation: u64, salt: u64, block: &mut [u8]) -> usize {
    block.fill(0);
    put_u64(block, GENERATION_AT, generation);
    let mut count = 0;
    let mut end = DELTAS_AT;
    let mut last = 0;
    for page in pages {
        if count == 0 {
            put_u64(block, FIRST_AT, page.0);
        } else {
            let mut delta = page.0 - last;
            let len = (u64::BITS - delta.leading_zeros()).div_ceil(7).max(1) as usize;
            if end + len > BLOCK {
                break;
            }
            for byte in &mut block[end..end + len] {
                *byte = delta as u8 | 0x80;
                delta >>= 7;
            }
            block[end + len - 1] &= 0x7F;
            end += len;
        }
        last = page.0;
        count += 1;
    }
    put_u16(block, COUNT_AT, count as u16);
    let sum = checksum::seeded(salt, &block[GENERATION_AT..]);
    put_u64(block, 0, sum);
    count
}

/// The generation of a block, if it is one.
pub(crate) fn decode(block: &[u8], salt: u64) -> Option<u64> {
    (get_u64(block, 0) == checksum::seeded(salt, &block[GENERATION_AT..]))
        .then(|| get_u64(block, GENERATION_AT))
}

/// The pages of a block that verified.
pub(crate) fn pages_of(block: &[u8]) -> impl Iterator<Item = PageId> + '_ {
    let mut deltas = block[DELTAS_AT..].iter();
    let mut last = get_u64(block, FIRST_AT);
    (0..get_u16(block, COUNT_AT)).map(move |number| {
        if number > 0 {
            let mut delta = 0;
            for (shift, &byte) in (0..u64::BITS).step_by(7).zip(deltas.by_ref()) {
                delta |= u64::from(byte & 0x7F) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            last = last.wrapping_add(delta);
        }
        PageId(last)
    })
}
