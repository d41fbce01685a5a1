//! Where things lie in a node: header, slots, cells. This is the one place that knows the offsets.

use crate::page::{self, get_u64};
use std::cmp::Ordering;

/// First word of the node header: level, flags, count, heap start, garbage.
pub(super) const WORD_COUNTS: usize = page::HEADER_LEN;
/// Second word of the node header: fence and prefix lengths, last insertion.
const WORD_LENGTHS: usize = WORD_COUNTS + 8;
/// Third word of the node header: head skip, reserved.
const WORD_HEADS: usize = WORD_LENGTHS + 8;
/// Bytes of the node header that are 0.
pub(super) const RESERVED: std::ops::Range<usize> = WORD_HEADS + 2..SLOTS;
/// Start of the slot array.
pub(super) const SLOTS: usize = WORD_HEADS + 8;
/// Bytes of a slot.
pub(super) const SLOT_LEN: usize = 8;
/// Bytes of a cell before its key suffix: the payload's length.
pub(super) const CELL_HEADER: usize = 2;
/// Bytes of an inner node's payload.
pub(super) const CHILD_LEN: usize = 8;
/// `Header::last_insert` when the last insertion is not known.
pub(super) const NO_SLOT: u16 = u16::MAX;

const FLAG_UPPER: u8 = 1;

/// Offset of slot `i`.
#[inline]
pub(super) fn slot_offset(i: usize) -> usize {
    SLOTS + i * SLOT_LEN
}

/// Bytes of a page an entry takes: slot and cell.
#[inline]
pub(super) fn entry_len(suffix_len: usize, payload_len: usize) -> usize {
    SLOT_LEN + CELL_HEADER + suffix_len + payload_len
}

/// The node header, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) level: u8,
    pub(super) flags: u8,
    pub(super) count: u16,
    /// Offset of the lowest heap byte in use.
    pub(super) heap_start: u16,
    /// Bytes of the heap that belong to no cell.
    pub(super) garbage: u16,
    pub(super) lower_len: u16,
    pub(super) upper_len: u16,
    pub(super) prefix_len: u16,
    /// Slot of the last insertion, a hint for splits; [`NO_SLOT`] when not known.
    pub(super) last_insert: u16,
    /// Bytes that all headed suffixes begin with; heads hold what follows them.
    pub(super) head_skip: u16,
}

impl Header {
    /// Reads the header.
    #[inline]
    pub(super) fn read<S: Source>(source: S) -> Header {
        let counts = source.word(WORD_COUNTS);
        let lengths = source.word(WORD_LENGTHS);
        Header {
            level: counts as u8,
            flags: (counts >> 8) as u8,
            count: (counts >> 16) as u16,
            heap_start: (counts >> 32) as u16,
            garbage: (counts >> 48) as u16,
            lower_len: lengths as u16,
            upper_len: (lengths >> 16) as u16,
            prefix_len: (lengths >> 32) as u16,
            last_insert: (lengths >> 48) as u16,
            head_skip: source.word(WORD_HEADS) as u16,
        }
    }

    /// Writes the header.
    #[inline]
    pub(super) fn write(&self, page: &mut [u8]) {
        page[WORD_COUNTS..SLOTS].copy_from_slice(&self.encode());
    }

    /// The header's bytes.
    #[inline]
    pub(super) fn encode(&self) -> [u8; SLOTS - WORD_COUNTS] {
        let counts = u64::from(self.level)
            | u64::from(self.flags) << 8
            | u64::from(self.count) << 16
            | u64::from(self.heap_start) << 32
            | u64::from(self.garbage) << 48;
        let lengths = u64::from(self.lower_len)
            | u64::from(self.upper_len) << 16
            | u64::from(self.prefix_len) << 32
            | u64::from(self.last_insert) << 48;
        let mut bytes = [0; SLOTS - WORD_COUNTS];
        bytes[..8].copy_from_slice(&counts.to_le_bytes());
        bytes[8..16].copy_from_slice(&lengths.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.head_skip.to_le_bytes());
        bytes
    }

    /// The header of a node without entries.
    pub(super) fn empty(page_size: usize, level: u8, lower: &[u8], upper: Option<&[u8]>) -> Header {
        let upper_len = upper.map_or(0, <[u8]>::len);
        Header {
            level,
            flags: if upper.is_some() { FLAG_UPPER } else { 0 },
            count: 0,
            heap_start: (page_size - lower.len() - upper_len) as u16,
            garbage: 0,
            lower_len: lower.len() as u16,
            upper_len: upper_len as u16,
            prefix_len: fence_prefix(lower, upper) as u16,
            last_insert: NO_SLOT,
            head_skip: 0,
        }
    }

    /// Whether an upper fence exists.
    #[inline]
    pub(super) fn has_upper(&self) -> bool {
        self.flags & FLAG_UPPER != 0
    }

    /// Whether no unknown flag is set.
    pub(super) fn flags_known(&self) -> bool {
        self.flags & !FLAG_UPPER == 0
    }

    /// Whether the node is an inner one.
    #[inline]
    pub(super) fn is_inner(&self) -> bool {
        self.level > 0
    }

    /// The first slot with a head: an inner node's entry 0 has no stored key.
    #[inline]
    pub(super) fn first_headed(&self) -> usize {
        usize::from(self.is_inner())
    }

    /// First byte behind the slots.
    #[inline]
    pub(super) fn slots_end(&self) -> usize {
        slot_offset(usize::from(self.count))
    }

    /// Bytes of both fences.
    #[inline]
    pub(super) fn fences_len(&self) -> usize {
        usize::from(self.lower_len) + usize::from(self.upper_len)
    }
}

/// A slot, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    /// Where the cell starts.
    pub(super) offset: usize,
    /// Length of the key suffix.
    pub(super) suffix_len: usize,
    /// The four suffix bytes behind the head skip, as a big-endian number padded with zeros.
    pub(super) head: u32,
}

impl Slot {
    /// Reads slot `i`.
    #[inline]
    pub(super) fn read<S: Source>(source: S, i: usize) -> Slot {
        let word = source.word(slot_offset(i));
        Slot {
            offset: usize::from(word as u16),
            suffix_len: usize::from((word >> 16) as u16),
            head: (word >> 32) as u32,
        }
    }

    /// Writes slot `i`.
    #[inline]
    pub(super) fn write(&self, page: &mut [u8], i: usize) {
        page[slot_offset(i)..slot_offset(i + 1)].copy_from_slice(&self.encode());
    }

    /// The slot's bytes.
    #[inline]
    pub(super) fn encode(&self) -> [u8; SLOT_LEN] {
        (self.offset as u64 | (self.suffix_len as u64) << 16 | u64::from(self.head) << 32).to_le_bytes()
    }

    /// Where the suffix starts.
    #[inline]
    pub(super) fn suffix_offset(&self) -> usize {
        self.offset + CELL_HEADER
    }

    /// Where the payload starts.
    #[inline]
    pub(super) fn payload_offset(&self) -> usize {
        self.suffix_offset() + self.suffix_len
    }
}

/// The first four bytes of `rest` as a number that orders like them; equal heads say nothing.
#[inline]
pub(super) fn head(rest: &[u8]) -> u32 {
    match rest.first_chunk::<4>() {
        Some(first) => u32::from_be_bytes(*first),
        None => (left_aligned(rest) >> 32) as u32,
    }
}

/// At most eight bytes as a big-endian number, padded with zeros at the end.
#[inline]
pub(super) fn left_aligned(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        // The two quads overlap, in equal bits.
        (Some(first), Some(last)) => {
            u64::from(u32::from_be_bytes(*first)) << 32
                | u64::from(u32::from_be_bytes(*last)) << (64 - 8 * bytes.len())
        }
        _ => {
            let byte = |i: usize| bytes.get(i).map_or(0, |&byte| u64::from(byte) << (56 - 8 * i));
            byte(0) | byte(1) | byte(2)
        }
    }
}

/// Length of the common prefix of `a` and `b`.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// How much of every key the fences determine.
pub(super) fn fence_prefix(lower: &[u8], upper: Option<&[u8]>) -> usize {
    upper.map_or(0, |upper| common_prefix(lower, upper))
}

/// A way to get at a page's bytes: plainly, or while a writer changes them. The search is written once over this.
pub(super) trait Source: Copy {
    /// The 8-byte word at `offset`, a multiple of 8.
    fn word(self, offset: usize) -> u64;

    /// The `len` ≤ 8 bytes at `offset` as [`left_aligned`] gives them.
    fn bytes_at(self, offset: usize, len: usize) -> u64;

    /// Compares the `len` bytes at `offset` with `needle`.
    #[inline(always)]
    fn compare(self, offset: usize, len: usize, needle: &[u8]) -> Ordering {
        let common = len.min(needle.len());
        let mut done = 0;
        while common - done > WORD {
            let wanted = get_u64(needle, done).swap_bytes();
            match self.bytes_at(offset + done, WORD).cmp(&wanted) {
                Ordering::Equal => done += WORD,
                unequal => return unequal,
            }
        }
        // Step back rather than take a short step: the bytes before are known to be equal.
        done = common.saturating_sub(WORD);
        let wanted = left_aligned(&needle[done..common]);
        self.bytes_at(offset + done, common - done).cmp(&wanted).then(len.cmp(&needle.len()))
    }
}

/// Bytes of the unit that optimistic readers load.
pub(super) const WORD: usize = 8;

/// Bytes that nobody changes meanwhile.
impl Source for &[u8] {
    #[inline(always)]
    fn word(self, offset: usize) -> u64 {
        get_u64(self, offset)
    }

    #[inline(always)]
    fn bytes_at(self, offset: usize, len: usize) -> u64 {
        let bytes = &self[offset..offset + len];
        match bytes.first_chunk() {
            Some(word) => u64::from_be_bytes(*word),
            None => left_aligned(bytes),
        }
    }
}
