//! How long keys and payloads may be, and why one split is always enough.
//!
//! Let `U` be the bytes of a page behind the node header, `K` the longest key and `M` the longest key and payload
//! together. A leaf entry takes at most `E = 10 + M` bytes (slot, cell header, content), both fences at most `2K`.
//!
//! *Leaves.* An insertion that does not fit leaves a sequence of entries, the new one among them, of `T ≤ U + E` bytes.
//! Cut it behind the longest left part of at most `U − 2K` bytes. The left part is longer than `U − 2K − E`, so
//! the right one is shorter than `T − (U − 2K − E) ≤ 2E + 2K`. Both fit beside two fences if `2E + 4K ≤ U`.
//! Cutting longer prefixes off only shortens entries. With `K = page / 8` this gives `M = page / 4 − 34`. The same holds
//! for a payload that is replaced by a longer one.
//!
//! *Inner nodes.* Entries take at most `E = 18 + K` bytes. One cut is forbidden: the one that would make the pending
//! entry the first of the right sibling while older entries follow, because the sibling's first entry must be there
//! before the pending one is. Cuts that leave at most `U − 2K` bytes on either side span at least `U − 4K − E` bytes;
//! allowed cuts lie at most `2E` apart; so `4K + 3E = 7K + 54 ≤ U` is enough, and holds from 4 KiB on.

use super::layout::{CELL_HEADER, SLOT_LEN, SLOTS};

/// Highest level a node can have. A tree of this height would exceed any device.
pub const MAX_LEVEL: u8 = 31;

/// Longest key in bytes, fences and separators included.
pub const fn max_key_len(page_size: usize) -> usize {
    page_size / 8
}

/// Most bytes a leaf entry's key and payload can have together.
pub const fn max_entry_len(page_size: usize) -> usize {
    let usable = page_size - SLOTS;
    (usable - 4 * max_key_len(page_size)) / 2 - SLOT_LEN - CELL_HEADER
}

/// Longest payload a leaf takes for a key of `key_len` ≤ [`max_key_len`] bytes; what is longer goes to overflow pages.
/// Pass [`max_key_len`] for the length that suits every key.
pub const fn max_inline_payload(page_size: usize, key_len: usize) -> usize {
    max_entry_len(page_size) - key_len
}
