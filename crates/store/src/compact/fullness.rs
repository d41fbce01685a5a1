//! How full each leaf is, of one pass over the file: so that only those leaves are looked at, in the order of their keys, which may be made denser.
//!
//! The pass costs what statistics cost: large requests in the order of the file, by threads that stand by. Leaves read one by one in the order of their
//! keys are as many requests as pages, for a look at what is dense already.
//!
//! # Invariant
//! It is a hint. What it says of a page is as old as the pass; a page that it knows nothing of is looked at, and so is each one before it is changed. What has
//! become sparse since is left to the next compaction.

use super::dense::WRITTEN_FOR_ONE;
use crate::node::NodeRef;
use crate::page::{self, PageKind};
use crate::pass::{Bytes, Flaw, Visitor};
use crate::space::Extent;
use crate::tree::{Density, fill_limit, is_full};
use gannet_base::{Lsn, PageId, TreeId, TxnId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, Ordering};

/// What is not known of a page, or is no leaf.
const UNKNOWN: u8 = 0;
/// Parts of a page that are told apart.
const PARTS: usize = 256;

/// See the module's head. One byte for each page of the file.
#[derive(Debug)]
pub(super) struct Fullness {
    page_size: usize,
    horizon: TxnId,
    wanted: BTreeSet<TreeId>,
    /// Parts in use of each leaf, rounded down, but 1 at least.
    used: Vec<AtomicU8>,
    roots: BTreeMap<PageId, TreeId>,
}

impl Fullness {
    /// Of the leaves of these trees, among so many pages; entries count without what nobody needs who begins behind `horizon`.
    pub(super) fn new(page_size: usize, pages: u64, wanted: BTreeSet<TreeId>, horizon: TxnId) -> Self {
        let used = (0..pages).map(|_| AtomicU8::new(UNKNOWN)).collect();
        Fullness { page_size, horizon, wanted, used, roots: BTreeMap::new() }
    }

    /// Bytes of memory that it takes for so many pages.
    pub(super) fn memory(pages: u64) -> u64 {
        pages
    }

    /// From now on nothing is known of this page.
    pub(super) fn forget(&self, page: PageId) {
        if let Some(used) = self.used.get(page.0 as usize) {
            used.store(UNKNOWN, Ordering::Relaxed);
        }
    }

    /// Bytes that a leaf uses at least.
    fn used(&self, page: PageId) -> usize {
        let parts = self.used.get(page.0 as usize).map_or(UNKNOWN, |used| used.load(Ordering::Relaxed));
        usize::from(parts) * (self.page_size / PARTS)
    }

    /// The first of these neighbours that may be made denser with those on its right.
    pub(super) fn first_sparse(&self, leaves: &[PageId]) -> Option<usize> {
        (0..leaves.len()).find(|&first| self.may_be_worth_it(&leaves[first..]))
    }

    /// Which of these neighbours are going to be looked at, from the first one on: no more than so many.
    pub(super) fn looked_at(&self, leaves: &[PageId], most: usize) -> Vec<PageId> {
        let mut pages = Vec::with_capacity(most);
        let mut end = 0;
        for first in 0..leaves.len() {
            if pages.len() >= most {
                break;
            }
            if self.may_be_worth_it(&leaves[first..]) {
                let window = first.max(end)..leaves.len().min(first + WRITTEN_FOR_ONE);
                end = window.end;
                pages.extend_from_slice(&leaves[window]);
            }
        }
        pages.truncate(most);
        pages
    }

    /// Whether the first one, with some of those behind it, may fit into one page less.
    fn may_be_worth_it(&self, leaves: &[PageId]) -> bool {
        let limit = fill_limit(self.page_size, 0);
        let mut used = 0;
        let fits = |(index, &page): (usize, &PageId)| {
            used += self.used(page);
            index > 0 && used <= index * limit
        };
        leaves.first().is_some_and(|&first| !is_full(self.used(first), limit))
            && leaves.iter().take(WRITTEN_FOR_ONE).enumerate().any(fits)
    }

    fn look(&self, id: PageId, bytes: &[u8]) {
        let Some(used) = self.used.get(id.0 as usize).filter(|_| page::kind(bytes) == Some(PageKind::Node))
        else {
            return;
        };
        let node = NodeRef::new(bytes);
        if node.level() > 0 {
            return;
        }
        let density = Density { limit: self.page_size, horizon: Some(self.horizon), may: &|_| true };
        let parts = density.used(node) / (self.page_size / PARTS);
        used.store(parts.clamp(1, PARTS - 1) as u8, Ordering::Relaxed);
    }
}

impl Visitor for Fullness {
    type Own = ();

    fn begin(&self) {}

    fn end(&self, (): ()) {}

    fn roots(&self) -> &BTreeMap<PageId, TreeId> {
        // Those of the store's own trees among the system's pages are no more than a few.
        &self.roots
    }

    fn extent(&self, _first: PageId, extent: Extent) -> bool {
        self.wanted.contains(&extent.owner)
    }

    fn used_and_free(&self, _first: PageId, _extent: Extent) {}

    fn unknown(&self, _first: PageId) {}

    fn may_be_unwritten(&self, _owner: TreeId) -> bool {
        true
    }

    fn last_change(&self, _page: PageId) -> Option<Lsn> {
        None
    }

    fn page(&self, id: PageId, owner: TreeId, bytes: Bytes<'_>, (): &mut ()) {
        if !bytes.is_empty() && page::tree(&bytes) == owner {
            self.look(id, &bytes);
        }
    }

    fn bad(&self, _id: PageId, _flaw: Flaw) {
        // It stays unknown; whoever looks at it says so.
    }

    fn note(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeMut;

    const PAGE_SIZE: usize = 4096;
    const TREE: TreeId = TreeId(20);

    /// A leaf, or a node above, with so many settled entries of about a hundred bytes.
    fn node(level: u8, entries: u32) -> Vec<u8> {
        let mut page = vec![0; PAGE_SIZE];
        page::init(&mut page, PageKind::Node, TREE);
        let mut node = NodeMut::init(&mut page, TREE, level, &[], None);
        let payload = if level == 0 { &[0; 80][..] } else { &[7; 8] };
        for slot in 0..entries {
            assert!(node.insert(slot as usize, format!("k{slot:06}").as_bytes(), payload));
        }
        page
    }

    #[test]
    fn only_leaves_that_may_fit_into_one_less_are_named_and_what_is_not_known() {
        let fullness = Fullness::new(PAGE_SIZE, 100, BTreeSet::from([TREE]), TxnId(1));
        let leaves: Vec<PageId> = (0..10).map(PageId).collect();
        let show = |page: u64, level: u8, entries: u32| {
            fullness.page(PageId(page), TREE, Bytes::Page(&node(level, entries)), &mut ());
        };
        assert_eq!(fullness.first_sparse(&leaves), Some(0), "nothing is known");
        for page in 0..10 {
            show(page, 0, 39);
        }
        assert_eq!(fullness.first_sparse(&leaves), None, "all are full");
        show(7, 0, 20);
        assert_eq!(
            fullness.first_sparse(&leaves),
            None,
            "what one half leaves free is less than a full one takes"
        );
        show(8, 0, 15);
        assert_eq!(fullness.first_sparse(&leaves), Some(7));
        assert_eq!(fullness.first_sparse(&leaves[8..]), None);
        assert_eq!(fullness.looked_at(&leaves, 10), &leaves[7..]);
        assert_eq!(fullness.looked_at(&leaves, 2), &leaves[7..9]);
        show(8, 0, 39);
        fullness.forget(PageId(3));
        assert_eq!(fullness.first_sparse(&leaves), Some(3), "it may be empty");
        fullness.forget(PageId(1 << 40));
        show(99, 1, 41);
        assert_eq!(fullness.used(PageId(99)), 0, "no leaf");
        assert_eq!(fullness.used(PageId(1 << 40)), 0);
        assert_eq!(fullness.first_sparse(&[]), None);
    }
}
