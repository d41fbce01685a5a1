//! What a check does with what the pass shows it.

use super::sums::Fact;
use super::{Check, Stake};
use crate::pass::{Bytes, Flaw, Visitor};
use crate::space::{EXTENT_PAGES, Extent, SYSTEM};
use crate::undo::UNDO_PAGES;
use gannet_base::{Lsn, PageId, TreeId};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

impl Check {
    /// Whether a tree's pages are looked at as such.
    pub(super) fn is_known(&self, owner: TreeId) -> bool {
        owner == SYSTEM || self.survey.trees.live.contains_key(&owner)
    }
}

impl Visitor for Check {
    /// Bytes to put things together in.
    type Own = Vec<u8>;

    fn begin(&self) -> Vec<u8> {
        Vec::new()
    }

    fn end(&self, _scratch: Vec<u8>) {}

    fn roots(&self) -> &BTreeMap<PageId, TreeId> {
        &self.survey.roots
    }

    fn extent(&self, first: PageId, extent: Extent) -> bool {
        if extent.owner == UNDO_PAGES && first.0.is_multiple_of(EXTENT_PAGES) {
            self.sums.state(first, Fact::Segment, &mut Vec::new());
        }
        true
    }

    fn used_and_free(&self, first: PageId, extent: Extent) {
        let what = format!("its extent is free, and says of pages that they are in use: {extent:?}");
        self.find(first, TreeId(0), what, Stake::Allocation);
    }

    fn unknown(&self, _first: PageId) {
        // The map itself is found damaged.
    }

    fn may_be_unwritten(&self, owner: TreeId) -> bool {
        owner == UNDO_PAGES || !self.is_known(owner)
    }

    fn last_change(&self, page: PageId) -> Option<Lsn> {
        let logged = self.survey.last_change(page);
        if logged.is_some() {
            self.counters.compared_with_log.fetch_add(1, Ordering::Relaxed);
        }
        logged
    }

    fn page(&self, id: PageId, owner: TreeId, bytes: Bytes<'_>, scratch: &mut Vec<u8>) {
        self.content(id, owner, bytes, scratch);
    }

    fn bad(&self, id: PageId, flaw: Flaw) {
        self.counters.pages.fetch_add(1, Ordering::Relaxed);
        self.note_bad(id, flaw);
    }

    fn note(&self) -> Option<String> {
        self.findings_so_far()
    }
}
