//! Statements about pages, compared without keeping them.
//!
//! Whoever refers to a page says what the page should be; the page says what it is. Both are hashed in the same way; the
//! one is added to a sum, the other taken away. There is a sum for each short range of pages, so a difference says where to
//! look. The order does not matter, so one pass over the file in its own order is enough, and memory is 8 bytes a range.
//!
//! # Invariants
//! 1. In a database at rest that is sound each sum is 0.
//! 2. In one that is not, the sums of the ranges concerned differ from 0, unless 64-bit hashes happen to cancel out.
//! 3. Changes made while the pass is under way can make a sum differ from 0, but never hide a difference that is there
//!    (as in 2): a range that differs is to be looked at page by page.

use crate::space::EXTENT_PAGES;
use gannet_base::{PageId, TreeId, checksum};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// What somebody says of a page.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fact<'a> {
    /// The root of a tree.
    Root(TreeId),
    /// A node below a root.
    Node { tree: TreeId, level: u8, lower: &'a [u8], upper: Option<&'a [u8]> },
    /// A page of the list of a long value.
    Index(TreeId),
    /// A page of a long value.
    Piece(TreeId),
    /// The first page of an undo segment.
    Segment,
    /// In use and never written; nobody says so of a page that he refers to.
    Unwritten(TreeId),
}

impl Fact<'_> {
    fn hash(&self, page: PageId, scratch: &mut Vec<u8>) -> u64 {
        let (kind, tree) = match *self {
            Fact::Root(tree) => (1, tree),
            Fact::Node { tree, .. } => (2, tree),
            Fact::Index(tree) => (3, tree),
            Fact::Piece(tree) => (4, tree),
            Fact::Segment => (5, TreeId(0)),
            Fact::Unwritten(tree) => (6, tree),
        };
        scratch.clear();
        scratch.push(kind);
        scratch.extend_from_slice(&tree.0.to_le_bytes());
        if let Fact::Node { level, lower, upper, .. } = *self {
            scratch.extend_from_slice(&[level, u8::from(upper.is_some())]);
            scratch.extend_from_slice(&(lower.len() as u32).to_le_bytes());
            scratch.extend_from_slice(lower);
            scratch.extend_from_slice(upper.unwrap_or_default());
        }
        checksum::seeded(page.0, scratch)
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Sums {
    sums: Box<[AtomicU64]>,
    /// Pages of a range, an extent or several.
    range: u64,
    /// Pages behind the last one that is looked at.
    end: u64,
}

impl Sums {
    /// Pages of a range, so that the sums of `pages` pages take at most `bytes`.
    pub(super) fn range_for(pages: u64, bytes: u64) -> u64 {
        let mut range = EXTENT_PAGES;
        while Self::memory(pages, range) > bytes {
            range *= 2;
        }
        range
    }

    /// Bytes that the sums take.
    pub(super) fn memory(pages: u64, range: u64) -> u64 {
        pages.div_ceil(range) * size_of::<u64>() as u64
    }

    pub(super) fn new(pages: u64, range: u64) -> Self {
        let sums = (0..pages.div_ceil(range)).map(|_| AtomicU64::new(0)).collect();
        Sums { sums, range, end: pages }
    }

    /// Somebody refers to `page`.
    pub(super) fn refer(&self, page: PageId, fact: Fact<'_>, scratch: &mut Vec<u8>) {
        if page.0 < self.end {
            self.sums[(page.0 / self.range) as usize].fetch_add(fact.hash(page, scratch), Ordering::Relaxed);
        }
    }

    /// `page` says this of itself.
    pub(super) fn state(&self, page: PageId, fact: Fact<'_>, scratch: &mut Vec<u8>) {
        if page.0 < self.end {
            self.sums[(page.0 / self.range) as usize].fetch_sub(fact.hash(page, scratch), Ordering::Relaxed);
        }
    }

    /// The ranges of pages of which something does not agree.
    pub(super) fn differing(&self) -> Vec<Range<u64>> {
        let differs = |(number, sum): (usize, &AtomicU64)| {
            let first = number as u64 * self.range;
            (sum.load(Ordering::Relaxed) != 0).then(|| first..(first + self.range).min(self.end))
        };
        self.sums.iter().enumerate().filter_map(differs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agrees_cancels_out_and_what_does_not_is_located() {
        let mut scratch = Vec::new();
        let sums = Sums::new(100, 16);
        let node = |lower| Fact::Node { tree: TreeId(20), level: 1, lower, upper: Some(b"m") };
        sums.refer(PageId(5), node(b"a"), &mut scratch);
        sums.state(PageId(40), Fact::Segment, &mut scratch);
        sums.refer(PageId(40), Fact::Segment, &mut scratch);
        let differing =
            || sums.differing().into_iter().map(|range| (range.start, range.end)).collect::<Vec<_>>();
        assert_eq!(differing(), [(0, 16)]);
        sums.state(PageId(5), node(b"a"), &mut scratch);
        assert!(differing().is_empty());
        // Another page of the same range, another fence, another kind.
        for (page, fact) in [(6, node(b"a")), (5, node(b"b")), (5, Fact::Piece(TreeId(20)))] {
            sums.refer(PageId(5), node(b"a"), &mut scratch);
            sums.state(PageId(page), fact, &mut scratch);
            assert_eq!(differing(), [(0, 16)], "{fact:?}");
            sums.state(PageId(5), node(b"a"), &mut scratch);
            sums.refer(PageId(page), fact, &mut scratch);
        }
        sums.refer(PageId(99), Fact::Unwritten(TreeId(3)), &mut scratch);
        assert_eq!(differing(), [(96, 100)]);
    }

    #[test]
    fn the_sums_fit_the_memory_there_is() {
        assert_eq!(Sums::range_for(1000, 1 << 20), EXTENT_PAGES);
        let pages = 300_u64 << 17;
        let range = Sums::range_for(pages, 4 << 20);
        assert!(Sums::memory(pages, range) <= 4 << 20 && Sums::memory(pages, range / 2) > 4 << 20);
    }
}
