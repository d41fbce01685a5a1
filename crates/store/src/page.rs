//! The header every page starts with. Layout in `docs/format.md`; this is the one place that reads and writes it.
//!
//! # Invariants
//! 1. A page's checksum covers every byte behind it and mixes in the page's number and the database's salt. It is
//!    computed on the copy that goes to the device and verified on every read from it; in memory it is stale.
//! 2. A page's LSN is the end of the last log record that changed it. A page goes home only when the log is durable
//!    up to that LSN.
//! 3. A page of zeros was never written.

use crate::mutation::{Mutation, planted};
use gannet_base::{Lsn, PageId, TreeId, checksum};

/// Bytes of the common header.
pub const HEADER_LEN: usize = 24;

/// Page sizes a database can be created with, in bytes.
pub const PAGE_SIZES: [usize; 4] = [4096, 8192, 16384, 32768];

/// What a page holds. The numbers are part of the format and never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PageKind {
    /// The file's header (pages 0 and 1).
    Meta = 1,
    /// Which pages of a group are free and whose extents they are.
    SpaceMap = 2,
    /// A node of a B+tree, leaf or inner.
    Node = 3,
    /// A piece of an undo segment.
    Undo = 4,
    /// A piece of a long value.
    Overflow = 5,
    /// The list of pages that hold a long value.
    OverflowIndex = 6,
    /// What the log says of a leaf that was filled beside it (`tree::bulk`): its contents have to be at home. Only redo makes such a page,
    /// where they are not.
    Unfilled = 7,
}

impl PageKind {
    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => PageKind::Meta,
            2 => PageKind::SpaceMap,
            3 => PageKind::Node,
            4 => PageKind::Undo,
            5 => PageKind::Overflow,
            6 => PageKind::OverflowIndex,
            7 => PageKind::Unfilled,
            _ => return None,
        })
    }
}

const LSN: usize = 8;
const TREE: usize = 16;
const KIND: usize = 20;

/// Reads a little-endian `u16` at `offset`.
#[inline]
pub(crate) fn get_u16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

/// Reads a little-endian `u32` at `offset`.
#[inline]
pub(crate) fn get_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

/// Reads a little-endian `u64` at `offset`.
#[inline]
pub(crate) fn get_u64(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

/// Writes a little-endian `u16` at `offset`.
#[inline]
pub(crate) fn put_u16(bytes: &mut [u8], offset: usize, value: u16) {
    bytes[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
}

/// Writes a little-endian `u32` at `offset`.
#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

/// Writes a little-endian `u64` at `offset`.
#[inline]
pub(crate) fn put_u64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

/// The page's LSN.
#[inline]
pub fn lsn(page: &[u8]) -> Lsn {
    Lsn(get_u64(page, LSN))
}

/// Sets the page's LSN.
#[inline]
pub fn set_lsn(page: &mut [u8], lsn: Lsn) {
    put_u64(page, LSN, lsn.0);
}

/// The tree the page belongs to; 0 for pages of the store itself.
#[inline]
pub fn tree(page: &[u8]) -> TreeId {
    TreeId(get_u32(page, TREE))
}

/// The page's kind; `None` for an unknown number or a page never written.
#[inline]
pub fn kind(page: &[u8]) -> Option<PageKind> {
    PageKind::from_number(page[KIND])
}

/// Clears the page and writes a header with LSN 0.
pub fn init(page: &mut [u8], kind: PageKind, tree: TreeId) {
    page.fill(0);
    page[KIND] = kind as u8;
    put_u32(page, TREE, tree.0);
}

/// Writes the checksum: the last step before a page goes to the device.
pub fn seal(page: &mut [u8], id: PageId, salt: u64) {
    let sum = checksum::page(salt, id, &page[8..]);
    put_u64(page, 0, sum);
}

/// What a verification found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The checksum matches.
    Valid,
    /// All zero: never written.
    NeverWritten,
    /// Torn, rotten, or another page's bytes.
    Damaged,
}

/// Verifies a page just read from the device.
pub fn verify(page: &[u8], id: PageId, salt: u64) -> Verdict {
    let stored = get_u64(page, 0);
    if stored == 0 && page.iter().all(|&b| b == 0) {
        return Verdict::NeverWritten;
    }
    let is_valid = stored == checksum::page(salt, id, &page[8..]) || planted(Mutation::PageNotVerified);
    if is_valid { Verdict::Valid } else { Verdict::Damaged }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_from_never_written() {
        let mut page = vec![0; 4096];
        assert_eq!(verify(&page, PageId(9), 1), Verdict::NeverWritten);
        init(&mut page, PageKind::Undo, TreeId(3));
        seal(&mut page, PageId(9), 1);
        assert_eq!(verify(&page, PageId(9), 1), Verdict::Valid);
        assert_eq!(verify(&page, PageId(10), 1), Verdict::Damaged);
        page[4000] ^= 1;
        assert_eq!(verify(&page, PageId(9), 1), Verdict::Damaged);
    }
}
