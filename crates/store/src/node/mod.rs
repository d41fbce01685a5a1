//! Nodes of a B+tree: a sorted map from key bytes to payload bytes on one page.
//!
//! Everything here is a pure function of page bytes: no I/O, no latches, no clock. Leaves (level 0) and inner nodes
//! (level ≥ 1) share one structure; an inner node's payload is the 8-byte little-endian number of a child page, and
//! entry *i* leads to the keys ≥ keyᵢ and < keyᵢ₊₁. The byte layout stands in `docs/format.md`.
//!
//! # Invariants
//! 1. A node covers the keys from its *lower fence* (inclusive; empty = −∞) to its *upper fence* (exclusive; absent =
//!    +∞), and every key in it lies between them. Fences take the place of sibling links (Graefe, "Write-optimized
//!    B-trees", 2004): parent and children can be checked against each other without a third page.
//! 2. The common prefix of both fences is cut off every stored key (none without an upper fence). It is a function of
//!    the fences alone, so a logged key suffix means the same when it is redone.
//! 3. Slots are in ascending key order without duplicates. All stored suffixes share their first `head_skip` bytes, and a
//!    slot's head is the four bytes behind those. Fences cut off what they determine; the head skip makes up for what
//!    they do not, foremost in a tree's rightmost nodes and its root, which have no prefix.
//! 4. Entry 0 of an inner node has the lower fence as its key; it is stored with an empty suffix. It goes only
//!    with the node's last entry.
//! 5. Cells never overlap, and `garbage` counts exactly the heap bytes that no cell owns.
//! 6. Whether a change fits depends on [`NodeRef::free_space`] alone, which is a function of fences, keys and
//!    payloads, not of where they lie. Redo applies the same [`NodeOp`] to a page whose heap may be laid out
//!    differently, and it fits there exactly when it fitted the first time.
//! 7. Keys of at most [`max_key_len`] and payloads of at most [`max_inline_payload`] bytes always fit after one split
//!    at the place that [`NodeRef::choose_split_for_insert`] or [`NodeRef::choose_split_for_replace`] names.
//!
//! [`verify_structure`] proves 1–5 of arbitrary bytes. A page that passed it can be read and changed through this module
//! without a panic for out-of-range bytes; the caller keeps to slots below [`NodeRef::count`].
//!
//! # Reading while a writer is at work
//! Inner nodes may be read without a latch through [`RacyNode`], whose results mean something only after the caller has
//! validated the page's version. It reads 8-byte words with relaxed atomic loads and nothing else. The writer, which
//! holds the exclusive latch and has made the version odd, changes a private copy of the page and publishes it with
//! [`RacyNode::publish`], word by word with relaxed atomic stores. The
//! fences that order these words against the version belong to the caller's latch, as in every sequence lock: an
//! acquire fence between the reader's last word and its second look at the version, a release fence between the
//! writer's odd version and its first word. Leaves are only read under a latch and changed in place. (A reader that comes
//! late may still have a root that has become a leaf, or a frame that has another page: plain stores meet its atomic loads there. What it has read
//! is thrown away by the version.)

mod image;
mod layout;
mod limits;
mod merge;
mod op;
mod racy;
mod read;
mod search;
mod split;
mod verify;
mod write;

#[cfg(test)]
mod tests;

pub use limits::{MAX_LEVEL, max_entry_len, max_inline_payload, max_key_len};
pub use op::NodeOp;
pub use racy::RacyNode;
pub use read::{Entry, NodeRef};
pub use split::SplitPoint;
pub use verify::verify_structure;
pub use write::NodeMut;

/// Where a search has found a key: `Ok` with its slot, or `Err` with the slot to insert it at. Good as long as the page does
/// not change.
pub type Place = Result<usize, usize>;
