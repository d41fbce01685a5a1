//! Reading an inner node while a writer may be changing it.
//!
//! # Protocol
//! 1. A writer holds the exclusive latch, makes the version odd, changes a *private copy* of the page and stores it
//!    with [`RacyNode::publish`]; then it makes the version even again. Readers under a shared latch read plainly.
//! 2. An optimistic reader notes an even version, reads through [`RacyNode`], and trusts the result only if the version
//!    is unchanged behind an acquire fence. Until then every value is a guess: it is bounds-checked here, and must not
//!    be acted upon by the caller.
//! 3. All shared accesses are relaxed atomic operations on whole aligned 8-byte words. There are no mixed sizes and
//!    no plain stores that race, so the argument needs no "works in practice".
//!
//! The common header (checksum, LSN) is never read here, so whoever changes only that while holding the latch may do
//! so plainly, through a slice of just those bytes. Bytes that the device brings in stand outside the language's
//! model: a frame is filled before its page is published to readers, and a reader with an old pointer into it fails
//! the validation.
#![expect(unsafe_code, reason = "optimistic reads go through atomic loads at raw addresses")]

use super::layout::{Header, SLOT_LEN, SLOTS, Slot, Source, WORD};
use super::search::search;
use gannet_base::PageId;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An inner node that may change while it is read. No method panics or runs long, whatever the bytes are.
#[derive(Clone, Copy)]
pub struct RacyNode<'a> {
    start: *const u8,
    len: usize,
    lifetime: PhantomData<&'a [AtomicU64]>,
}

impl<'a> RacyNode<'a> {
    /// The node on the `len` bytes at `start`.
    ///
    /// # Safety
    /// `start` is aligned to 8 bytes and the `len` bytes behind it stay allocated during `'a`. Stores to them that
    /// may happen meanwhile are atomic ones of aligned 8-byte words, such as [`RacyNode::publish`] makes.
    #[inline]
    pub unsafe fn new(start: *const u8, len: usize) -> Self {
        debug_assert!(start.cast::<AtomicU64>().is_aligned());
        RacyNode { start, len, lifetime: PhantomData }
    }

    /// Stores `page` at `start`, touching only words that differ.
    ///
    /// # Safety
    /// `start` is aligned to 8 bytes, and as many bytes as `page` has stay allocated and writable there. The caller
    /// holds the page's exclusive latch, so nobody else stores; concurrent loads are those of [`RacyNode`].
    pub unsafe fn publish(start: *mut u8, page: &[u8]) {
        let (words, rest) = page.as_chunks::<WORD>();
        debug_assert!(rest.is_empty() && start.cast::<AtomicU64>().is_aligned());
        for (i, bytes) in words.iter().enumerate() {
            // SAFETY: word `i` lies inside the page, which the caller vouches for; the start is aligned, and so is
            // every word. Other accesses meanwhile are atomic loads of the same size.
            let word = unsafe { AtomicU64::from_ptr(start.add(i * WORD).cast()) };
            let value = u64::from_ne_bytes(*bytes);
            if word.load(Relaxed) != value {
                word.store(value, Relaxed);
            }
        }
    }

    /// The node's height above the leaves.
    #[inline]
    pub fn level(self) -> u8 {
        Header::read(self).level
    }

    /// Number of entries; never more than fit on the page.
    #[inline]
    pub fn count(self) -> usize {
        self.bounded_count(&Header::read(self))
    }

    /// Whether `key` lies between the fences.
    #[inline]
    pub fn covers(self, key: &[u8]) -> bool {
        let header = Header::read(self);
        let lower_len = usize::from(header.lower_len);
        let Some(lower) = self.len.checked_sub(lower_len) else { return false };
        if self.compare(lower, lower_len, key) == Ordering::Greater {
            return false;
        }
        let upper_len = usize::from(header.upper_len);
        let Some(upper) = lower.checked_sub(upper_len) else { return false };
        !header.has_upper() || self.compare(upper, upper_len, key) == Ordering::Greater
    }

    /// The entry that leads to `key`: its slot and child. `None` when the bytes make no sense; a result may be as
    /// wrong, but not out of bounds.
    #[inline]
    pub fn child_for(self, key: &[u8]) -> Option<(usize, PageId)> {
        let header = Header::read(self);
        let suffix = key.get(usize::from(header.prefix_len)..)?;
        let slot = match search(self, &header, self.bounded_count(&header), suffix) {
            Ok(slot) => slot,
            Err(slot) => slot.checked_sub(1)?,
        };
        let child = PageId(self.unaligned(Slot::read(self, slot).payload_offset(), WORD)?);
        (header.is_inner() && !child.is_none()).then_some((slot, child))
    }

    #[inline]
    fn bounded_count(self, header: &Header) -> usize {
        usize::from(header.count).min(self.len.saturating_sub(SLOTS) / SLOT_LEN)
    }

    /// The `len` ≤ 8 bytes at `offset`, the first of them lowest, zeros above; `None` outside the page.
    #[inline]
    fn unaligned(self, offset: usize, len: usize) -> Option<u64> {
        if len == 0 || offset + len > self.len {
            return (len == 0).then_some(0);
        }
        let (aligned, shift) = (offset & !(WORD - 1), offset % WORD * 8);
        let mut value = self.word(aligned) >> shift;
        if offset % WORD + len > WORD {
            value |= self.word(aligned + WORD) << (64 - shift);
        }
        Some(if len < WORD { value & ((1 << (len * 8)) - 1) } else { value })
    }
}

impl Source for RacyNode<'_> {
    /// 0 outside the page.
    #[inline(always)]
    fn word(self, offset: usize) -> u64 {
        debug_assert_eq!(offset % WORD, 0);
        if offset + WORD > self.len {
            return 0;
        }
        // SAFETY: `new`'s caller vouches that the page stays allocated, is aligned, and is stored to by atomic
        // words only; the word lies inside it and is aligned. The pointer is only loaded from.
        let word = unsafe { AtomicU64::from_ptr(self.start.add(offset).cast_mut().cast()) };
        u64::from_le(word.load(Relaxed))
    }

    /// 0 outside the page.
    #[inline(always)]
    fn bytes_at(self, offset: usize, len: usize) -> u64 {
        self.unaligned(offset, len).unwrap_or(0).swap_bytes()
    }
}
