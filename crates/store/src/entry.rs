//! Leaf entries of versioned trees.
//!
//! ```text
//! flags: u8 | writer: u64, undo: u64 (only when VERSIONED) | value
//! ```
//! An entry without a header is *settled*: it was committed before the horizon, so everybody sees it. A tombstone has
//! no value. A long value is a reference: its length and the first page of its index.
//!
//! # Invariants
//! 1. The entry in the tree is the newest version; `undo` leads to the record that brings back the one before it.
//! 2. A header whose writer is below the horizon belongs to a committed transaction, and its undo pointer is never
//!    followed: the record may be gone.

use crate::node::{NodeMut, NodeRef};
use crate::page::{get_u64, put_u64};
use gannet_base::TxnId;

/// The entry has a header.
pub(crate) const VERSIONED: u8 = 1;
/// The key was deleted.
pub(crate) const TOMBSTONE: u8 = 2;
/// The value is a reference to overflow pages.
pub(crate) const OVERFLOW: u8 = 4;
/// The header's writer only locked the row; value and other flags are those of the version before.
pub(crate) const LOCK: u8 = 8;

/// The header's writer holds the row exclusively, whatever else it did to it: not even its key may be relied on.
pub(crate) const EXCLUSIVE: u8 = 16;

/// Of a deleted key: what it stood for is there still, under another key.
pub(crate) const MOVED: u8 = 32;

const KNOWN_FLAGS: u8 = VERSIONED | TOMBSTONE | OVERFLOW | LOCK | EXCLUSIVE | MOVED;

/// What remains of the flags of a version that everybody sees.
pub(crate) const KEPT_WHEN_SETTLED: u8 = TOMBSTONE | OVERFLOW;

/// Bytes a header adds to an entry.
pub(crate) const HEADER_LEN: usize = 16;

/// Bytes of a reference to a long value.
pub(crate) const REFERENCE_LEN: usize = 16;

/// Position of an undo record: page number in the upper 48 bits, offset below. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub(crate) struct UndoPtr(pub(crate) u64);

impl UndoPtr {
    pub(crate) const NONE: UndoPtr = UndoPtr(0);

    pub(crate) fn new(page: gannet_base::PageId, offset: usize) -> Self {
        UndoPtr(page.0 << 16 | offset as u64)
    }

    pub(crate) fn page(self) -> gannet_base::PageId {
        gannet_base::PageId(self.0 >> 16)
    }

    pub(crate) fn offset(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }

    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// An entry, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) flags: u8,
    /// [`TxnId::NONE`] when settled.
    pub(crate) writer: TxnId,
    pub(crate) undo: UndoPtr,
    /// Empty for a tombstone; a reference for a long value.
    pub(crate) value: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Reads a payload; `None` when it makes no sense.
    #[inline]
    pub(crate) fn decode(payload: &'a [u8]) -> Option<Self> {
        let (&flags, rest) = payload.split_first()?;
        let header = if flags & VERSIONED == 0 { 0 } else { HEADER_LEN };
        if flags & !KNOWN_FLAGS != 0 || rest.len() < header {
            return None;
        }
        let value = &rest[header..];
        if flags & OVERFLOW != 0 && value.len() < REFERENCE_LEN {
            return None;
        }
        if header == 0 {
            return Some(Entry { flags, writer: TxnId::NONE, undo: UndoPtr::NONE, value });
        }
        let (writer, undo) = (TxnId(get_u64(rest, 0)), UndoPtr(get_u64(rest, 8)));
        Some(Entry { flags, writer, undo, value })
    }

    /// Appends the payload.
    #[inline]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.flags);
        if self.flags & VERSIONED != 0 {
            out.extend_from_slice(&self.writer.0.to_le_bytes());
            out.extend_from_slice(&self.undo.0.to_le_bytes());
        }
        out.extend_from_slice(self.value);
    }

    /// Length of the payload in bytes.
    pub(crate) fn encoded_len(&self) -> usize {
        1 + if self.flags & VERSIONED != 0 { HEADER_LEN } else { 0 } + self.value.len()
    }

    pub(crate) fn is_tombstone(&self) -> bool {
        self.flags & TOMBSTONE != 0
    }

    pub(crate) fn is_overflow(&self) -> bool {
        self.flags & OVERFLOW != 0
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.flags & EXCLUSIVE != 0
    }

    pub(crate) fn is_lock(&self) -> bool {
        self.flags & LOCK != 0
    }
}

/// A long value's length in bytes and the first page of its index.
pub(crate) fn decode_reference(value: &[u8]) -> (u64, gannet_base::PageId) {
    (get_u64(value, 0), gannet_base::PageId(get_u64(value, 8)))
}

/// See [`decode_reference`].
pub(crate) fn encode_reference(len: u64, first: gannet_base::PageId) -> [u8; REFERENCE_LEN] {
    let mut out = [0; REFERENCE_LEN];
    put_u64(&mut out, 0, len);
    put_u64(&mut out, 8, first.0);
    out
}

fn settles(payload: &[u8], horizon: TxnId) -> bool {
    Entry::decode(payload).is_some_and(|e| !e.writer.is_none() && e.writer < horizon)
}

/// Whether [`settle`] would free anything.
pub(crate) fn can_settle(node: NodeRef<'_>, horizon: TxnId) -> bool {
    (0..node.count()).any(|slot| settles(node.payload(slot), horizon))
}

/// About how many bytes [`settle`] would free.
pub(crate) fn freed_by_settling(node: NodeRef<'_>, horizon: TxnId) -> usize {
    let freed = |slot: usize| {
        let payload = node.payload(slot);
        match Entry::decode(payload).filter(|entry| !entry.writer.is_none() && entry.writer < horizon) {
            Some(entry) if entry.is_tombstone() => payload.len() + node.key_suffix(slot).len(),
            Some(_) => HEADER_LEN,
            None => 0,
        }
    };
    (0..node.count()).map(freed).sum()
}

/// Takes the headers off all entries whose writer is below `horizon`, and removes such tombstones. A function of the
/// page's logical contents, so the log holds only the horizon.
pub(crate) fn settle(page: &mut [u8], horizon: TxnId) -> Result<(), String> {
    let mut buffer = Vec::new();
    let mut node = NodeMut::new(page);
    for slot in (0..node.view().count()).rev() {
        if !settles(node.view().payload(slot), horizon) {
            continue;
        }
        buffer.clear();
        let entry = Entry::decode(node.view().payload(slot)).ok_or("an entry makes no sense")?;
        let tombstone = entry.is_tombstone();
        let settled = Entry {
            flags: entry.flags & KEPT_WHEN_SETTLED,
            writer: TxnId::NONE,
            undo: UndoPtr::NONE,
            ..entry
        };
        settled.encode(&mut buffer);
        if tombstone {
            node.remove(slot);
        } else if !node.replace(slot, &buffer) {
            return Err("a settled entry is longer than before".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::TreeId;

    #[test]
    fn entries_survive_encoding() {
        for flags in [0, VERSIONED, VERSIONED | TOMBSTONE, VERSIONED | LOCK] {
            let versioned = flags & VERSIONED != 0;
            let entry = Entry {
                flags,
                writer: TxnId(if versioned { 7 } else { 0 }),
                undo: UndoPtr(if versioned { 9 << 16 | 40 } else { 0 }),
                value: if flags & TOMBSTONE == 0 { b"value" } else { b"" },
            };
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            assert_eq!(bytes.len(), entry.encoded_len());
            assert_eq!(Entry::decode(&bytes), Some(entry));
            assert_eq!(Entry::decode(&[0xF0, 1, 2]), None);
        }
    }

    #[test]
    fn a_reference_that_is_cut_short_was_taken_for_one_behind_a_header() {
        for flags in [OVERFLOW, OVERFLOW | VERSIONED, OVERFLOW | VERSIONED | LOCK] {
            let header = if flags & VERSIONED == 0 { 0 } else { HEADER_LEN };
            for len in 0..=REFERENCE_LEN {
                let mut payload = vec![1; 1 + header + len];
                payload[0] = flags;
                let entry = Entry::decode(&payload);
                assert_eq!(entry.is_some(), len == REFERENCE_LEN, "{flags}, {len}");
                assert!(entry.is_none_or(|entry| decode_reference(entry.value).0 > 0));
            }
        }
    }

    #[test]
    fn settling_keeps_what_is_not_yet_settled() {
        let mut page = vec![0; 4096];
        let mut node = NodeMut::init(&mut page, TreeId(9), 0, &[], None);
        let add = |node: &mut NodeMut<'_>, key: &[u8], flags, writer| {
            let mut payload = Vec::new();
            Entry { flags, writer: TxnId(writer), undo: UndoPtr(1 << 16), value: b"v" }.encode(&mut payload);
            let slot = node.view().search(key).unwrap_err();
            assert!(node.insert(slot, key, &payload));
        };
        add(&mut node, b"old", VERSIONED, 5);
        add(&mut node, b"dead", VERSIONED | TOMBSTONE, 5);
        add(&mut node, b"young", VERSIONED, 10);
        settle(&mut page, TxnId(10)).unwrap();
        let node = NodeRef::new(&page);
        assert_eq!(node.count(), 2);
        let entry = |key: &[u8]| Entry::decode(node.payload(node.search(key).unwrap())).unwrap();
        assert!(entry(b"old").writer.is_none());
        assert_eq!(entry(b"young").writer, TxnId(10));
        assert!(!can_settle(node, TxnId(10)));
    }
}
