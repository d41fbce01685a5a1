//! Reading a node whose bytes stay put.

use super::layout::{CHILD_LEN, Header, SLOTS, Slot, entry_len};
use super::search::search;
use crate::page::{self, get_u16, get_u64};
use gannet_base::{PageId, TreeId};
use std::ops::Range;

/// A node, read-only. The bytes must have passed [`super::verify_structure`]; on others a method may panic, but it
/// reads nothing outside the page.
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    page: &'a [u8],
}

/// An entry as an iteration gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The key without the node's prefix.
    pub suffix: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> NodeRef<'a> {
    /// The node on `page`.
    #[inline]
    pub fn new(page: &'a [u8]) -> Self {
        NodeRef { page }
    }

    /// The page's bytes.
    pub fn page(self) -> &'a [u8] {
        self.page
    }

    #[inline]
    pub(super) fn header(self) -> Header {
        Header::read(self.page)
    }

    #[inline]
    pub(super) fn slot(self, i: usize) -> Slot {
        Slot::read(self.page, i)
    }

    /// The tree the node belongs to.
    pub fn tree(self) -> TreeId {
        page::tree(self.page)
    }

    /// Height above the leaves, which are at level 0.
    #[inline]
    pub fn level(self) -> u8 {
        self.header().level
    }

    /// Whether payloads are child pages.
    #[inline]
    pub fn is_inner(self) -> bool {
        self.header().is_inner()
    }

    /// Number of entries.
    #[inline]
    pub fn count(self) -> usize {
        usize::from(self.header().count)
    }

    /// Smallest key the node may hold; empty for the leftmost node of its level.
    #[inline]
    pub fn lower_fence(self) -> &'a [u8] {
        &self.page[self.page.len() - usize::from(self.header().lower_len)..]
    }

    /// First key behind the node; `None` for the rightmost node of its level.
    #[inline]
    pub fn upper_fence(self) -> Option<&'a [u8]> {
        let header = self.header();
        let end = self.page.len() - usize::from(header.lower_len);
        header.has_upper().then(|| &self.page[end - usize::from(header.upper_len)..end])
    }

    /// What all keys between the fences begin with; cut off stored keys.
    #[inline]
    pub fn prefix(self) -> &'a [u8] {
        let header = self.header();
        let start = self.page.len() - usize::from(header.lower_len);
        &self.page[start..start + usize::from(header.prefix_len)]
    }

    /// Whether `key` lies between the fences.
    #[inline]
    pub fn covers(self, key: &[u8]) -> bool {
        self.lower_fence() <= key && self.upper_fence().is_none_or(|upper| key < upper)
    }

    /// `key` without the node's prefix. The node must cover it.
    #[inline]
    pub fn strip(self, key: &[u8]) -> &[u8] {
        debug_assert!(self.covers(key), "the key lies outside the fences");
        key.get(usize::from(self.header().prefix_len)..).unwrap_or_default()
    }

    /// The suffix that is stored, and logged, for `key` at `slot`: empty for an inner node's first entry.
    #[inline]
    pub fn suffix_to_store(self, slot: usize, key: &[u8]) -> &[u8] {
        if slot == 0 && self.is_inner() { &[] } else { self.strip(key) }
    }

    /// Finds `key`, which the node must cover: `Ok` with its slot, or `Err` with the slot to insert it at.
    #[inline]
    pub fn search(self, key: &[u8]) -> Result<usize, usize> {
        let header = self.header();
        let found = search(self.page, &header, usize::from(header.count), self.strip(key));
        // An inner node's first key is stored as an empty suffix.
        if found == Err(1) && header.is_inner() && key == self.lower_fence() { Ok(0) } else { found }
    }

    /// The entry of an inner node that leads to `key`, which the node must cover: its slot and child.
    ///
    /// # Panics
    /// When the node has no entries.
    #[inline]
    pub fn child_for(self, key: &[u8]) -> (usize, PageId) {
        let header = self.header();
        debug_assert!(header.is_inner());
        let slot = match search(self.page, &header, usize::from(header.count), self.strip(key)) {
            Ok(slot) => slot,
            Err(slot) => slot.checked_sub(1).expect("an inner node has entries"),
        };
        (slot, self.child(slot))
    }

    /// The child that entry `i` of an inner node leads to.
    #[inline]
    pub fn child(self, i: usize) -> PageId {
        PageId(get_u64(self.page, self.slot(i).payload_offset()))
    }

    /// The suffix of entry `i` as it is stored.
    #[inline]
    pub(super) fn stored_suffix(self, i: usize) -> &'a [u8] {
        let slot = self.slot(i);
        &self.page[slot.suffix_offset()..slot.payload_offset()]
    }

    /// The key of entry `i` without the node's prefix.
    #[inline]
    pub fn key_suffix(self, i: usize) -> &'a [u8] {
        let header = self.header();
        if i == 0 && header.is_inner() {
            &self.lower_fence()[usize::from(header.prefix_len)..]
        } else {
            self.stored_suffix(i)
        }
    }

    /// Whether `key` is the one of entry `i`.
    #[inline]
    pub fn has_key(self, i: usize, key: &[u8]) -> bool {
        key.strip_prefix(self.prefix()) == Some(self.key_suffix(i))
    }

    /// Appends the key of entry `i` to `key`.
    #[inline]
    pub fn copy_key(self, i: usize, key: &mut Vec<u8>) {
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(self.key_suffix(i));
    }

    /// The payload of entry `i`.
    #[inline]
    pub fn payload(self, i: usize) -> &'a [u8] {
        &self.page[self.payload_range(i)]
    }

    /// Where in the page that is.
    #[inline]
    pub fn payload_range(self, i: usize) -> Range<usize> {
        let slot = self.slot(i);
        let start = slot.payload_offset();
        start..start + usize::from(get_u16(self.page, slot.offset))
    }

    /// The entries in `range`, in key order; reversible.
    #[inline]
    pub fn entries(
        self,
        range: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = Entry<'a>> + ExactSizeIterator {
        range.map(move |i| Entry { suffix: self.key_suffix(i), payload: self.payload(i) })
    }

    /// Bytes the cell of entry `i` takes.
    #[inline]
    pub(super) fn cell_len(self, i: usize) -> usize {
        let slot = self.slot(i);
        self.payload_range(i).end - slot.offset
    }

    /// Bytes between slots and heap.
    #[inline]
    pub(super) fn contiguous(self) -> usize {
        let header = self.header();
        usize::from(header.heap_start) - header.slots_end()
    }

    /// Bytes that further entries can take, wherever they lie now.
    #[inline]
    pub fn free_space(self) -> usize {
        self.contiguous() + usize::from(self.header().garbage)
    }

    /// Bytes in use, headers and fences included.
    pub fn used_bytes(self) -> usize {
        self.page.len() - self.free_space()
    }

    /// Bytes the entries take, slots included.
    pub(super) fn entries_bytes(self) -> usize {
        self.used_bytes() - SLOTS - self.header().fences_len()
    }

    /// Whether an entry whose key has `suffix_len` bytes behind the prefix fits without a split.
    #[inline]
    pub fn fits(self, suffix_len: usize, payload_len: usize) -> bool {
        entry_len(suffix_len, payload_len) <= self.free_space()
    }

    /// Whether entry `i` has room for a payload of `payload_len` bytes in place of its own.
    #[inline]
    pub fn fits_replaced(self, i: usize, payload_len: usize) -> bool {
        payload_len <= self.free_space() + self.payload_range(i).len()
    }

    /// What is wrong with an entry as a stored one of this node, whatever slot it goes to.
    pub(super) fn misshapen(self, suffix_len: usize, payload: &[u8]) -> Option<&'static str> {
        let key_len = usize::from(self.header().prefix_len) + suffix_len;
        if key_len > super::max_key_len(self.page.len()) {
            Some("the key is too long")
        } else if self.is_inner() {
            (payload.len() != CHILD_LEN || payload == [0; CHILD_LEN]).then_some("no child's page number")
        } else {
            (payload.len() > super::max_inline_payload(self.page.len(), key_len))
                .then_some("the payload is too long")
        }
    }
}
