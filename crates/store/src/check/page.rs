//! What one page says: whether it is sound in itself, and what it states and refers to.

use super::report::Key;
use super::sums::Fact;
use super::{Check, DOUBTFUL_MAX, Stake};
use crate::entry::{Entry, OVERFLOW, decode_reference};
use crate::node::{NodeRef, verify_structure};
use crate::page::{self, PageKind};
use crate::pass::{Bytes, Flaw};
use crate::pool::{Access, SharedPage};
use crate::shared::{CATALOG, STATUS, UNDO_DIRECTORY};
use crate::space::{self, EXTENT_PAGES, SYSTEM};
use crate::undo::{self, Circle, Segment, UNDO_PAGES, UndoKind, UndoRecord};
use crate::versions::Fate;
use crate::{catalog, overflow};
use gannet_base::{PageId, TreeId};
use std::sync::atomic::Ordering;

/// Pages of a long value's list that are followed at most: as many as the longest value has with the smallest page.
const LIST_MOST: u64 = 1 << 10;

impl Check {
    /// A page in use, by the tree that its extent belongs to.
    pub(super) fn content(&self, id: PageId, owner: TreeId, bytes: Bytes<'_>, scratch: &mut Vec<u8>) {
        self.counters.pages.fetch_add(1, Ordering::Relaxed);
        if !self.is_known(owner) && owner != UNDO_PAGES {
            self.strangers.lock().entry(owner).or_insert(id);
            return;
        }
        if owner == UNDO_PAGES {
            return self.undo_page(id, &bytes, scratch);
        }
        if matches!(bytes, Bytes::Unwritten) && owner == SYSTEM {
            let what = "a space map is expected here, and it was never written".to_owned();
            return self.note_bad(id, Flaw { tree: SYSTEM, what, lost_write: false });
        }
        if matches!(bytes, Bytes::Unwritten) {
            return self.sums.state(id, Fact::Unwritten(owner), scratch);
        }
        let kind = page::kind(&bytes);
        let fits = match kind {
            Some(PageKind::SpaceMap) => owner == SYSTEM && self.is_map(id),
            Some(PageKind::Node | PageKind::Unfilled) => owner != SYSTEM,
            Some(PageKind::Overflow | PageKind::OverflowIndex) => self.may_have_long_values(owner),
            Some(PageKind::Meta | PageKind::Undo) | None => false,
        };
        if !fits || page::tree(&bytes) != owner {
            return self.confirm_stranger(id);
        }
        match kind {
            Some(PageKind::Node) => {
                let recent = self.node(id, owner, &bytes, scratch);
                if recent {
                    self.versions(id, owner, NodeRef::new(&bytes));
                }
            }
            Some(PageKind::Overflow) => self.sums.state(id, Fact::Piece(owner), scratch),
            Some(PageKind::Unfilled) => self.sums.state(id, Fact::Unwritten(owner), scratch),
            Some(PageKind::OverflowIndex) => self.index(id, owner, &bytes, scratch),
            _ => {}
        }
    }

    fn is_map(&self, id: PageId) -> bool {
        let page_size = self.shared.core.page_size;
        let group = id.0 / EXTENT_PAGES / space::extents_per_group(page_size);
        id == space::map_page(group, page_size)
    }

    fn may_have_long_values(&self, tree: TreeId) -> bool {
        !matches!(tree, SYSTEM | CATALOG | STATUS | UNDO_DIRECTORY)
    }

    /// A page that is something else than its extent says. The two were not looked at at one moment.
    fn confirm_stranger(&self, id: PageId) {
        let core = &self.shared.core;
        let Ok(Some(before)) = self.owner(id) else { return };
        let Ok(page) = core.pool.shared(&core.volume, id, Access::Normal) else { return };
        let (kind, tree) = (page::kind(&page), page::tree(&page));
        drop(page);
        let fits = match kind {
            Some(PageKind::SpaceMap) => before == SYSTEM,
            Some(PageKind::Node | PageKind::Overflow | PageKind::OverflowIndex | PageKind::Unfilled) => {
                tree == before
            }
            Some(PageKind::Meta | PageKind::Undo) | None => false,
        };
        let gone = !matches!(self.owner(id), Ok(Some(owner)) if owner == before);
        if fits || gone || !self.is_known(before) {
            return;
        }
        let what = match kind {
            Some(kind) => {
                format!("its extent belongs to {before}, and it is a page of kind {kind:?} of {tree}")
            }
            None => format!("its extent belongs to {before}, and it is no page of a known kind"),
        };
        self.note_bad(id, Flaw { tree: before, what, lost_write: false });
    }

    // ---- nodes ------------------------------------------------------------------------------------------------

    /// Whether the node has versions that somebody may still ask the history of.
    fn node(&self, id: PageId, tree: TreeId, bytes: &[u8], scratch: &mut Vec<u8>) -> bool {
        if let Err(what) = verify_structure(bytes, self.shared.core.page_size) {
            self.note_bad(id, Flaw { tree, what, lost_write: false });
            return false;
        }
        let node = NodeRef::new(bytes);
        let (lower, upper) = (node.lower_fence(), node.upper_fence());
        if self.survey.roots.get(&id) == Some(&tree) {
            if !lower.is_empty() || upper.is_some() {
                let what = "is a root, and does not cover all keys";
                self.find(id, tree, what, Stake::SomeRows);
            }
            self.sums.state(id, Fact::Root(tree), scratch);
        } else {
            self.sums.state(id, Fact::Node { tree, level: node.level(), lower, upper }, scratch);
        }
        if node.level() > 0 {
            if node.count() == 0 {
                let stake = Stake::Rows { lower: lower.to_vec(), upper: upper.map(<[u8]>::to_vec) };
                self.find(id, tree, "is an inner node without children", stake);
            }
            self.children(tree, node, scratch);
            return false;
        }
        self.leaf(id, tree, node, scratch)
    }

    fn children(&self, tree: TreeId, node: NodeRef<'_>, scratch: &mut Vec<u8>) {
        let level = node.level() - 1;
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        if node.count() > 0 {
            node.copy_key(0, &mut lower);
        }
        for slot in 0..node.count() {
            let last = slot + 1 == node.count();
            upper.clear();
            if !last {
                node.copy_key(slot + 1, &mut upper);
            }
            let upper_fence = if last { node.upper_fence() } else { Some(&upper[..]) };
            let fact = Fact::Node { tree, level, lower: &lower, upper: upper_fence };
            self.refer(node.child(slot), tree, fact, scratch);
            std::mem::swap(&mut lower, &mut upper);
        }
    }

    /// Notes a reference, unless it leads nowhere.
    pub(super) fn refer(&self, page: PageId, tree: TreeId, fact: Fact<'_>, scratch: &mut Vec<u8>) {
        if page.0 >= self.survey.pages && page.0 >= self.shared.core.space.capacity() {
            let what = "is referred to, and lies behind the end of the file";
            self.note_bad(page, Flaw { tree, what: what.to_owned(), lost_write: false });
        }
        self.sums.refer(page, fact, scratch);
    }

    fn leaf(&self, id: PageId, tree: TreeId, node: NodeRef<'_>, scratch: &mut Vec<u8>) -> bool {
        self.counters.entries.fetch_add(node.count() as u64, Ordering::Relaxed);
        let mut recent = false;
        for slot in 0..node.count() {
            let payload = node.payload(slot);
            let what = match tree {
                STATUS => status_entry(node, slot, payload),
                UNDO_DIRECTORY => self.directory_entry(node, slot, payload, scratch),
                _ => match Entry::decode(payload) {
                    None => Some("makes no sense"),
                    Some(entry) => {
                        recent |= !entry.writer.is_none() && entry.writer >= self.survey.horizon;
                        self.entry(tree, &entry, scratch)
                    }
                },
            };
            if let Some(what) = what {
                let mut key = Vec::new();
                node.copy_key(slot, &mut key);
                let what = format!("the entry of {} {what}", Key(&key));
                let mut upper = key.clone();
                upper.push(0);
                self.find(id, tree, what, Stake::Rows { lower: key, upper: Some(upper) });
            }
        }
        recent
    }

    /// An entry of a versioned tree; says what is wrong with it.
    fn entry(&self, tree: TreeId, entry: &Entry<'_>, scratch: &mut Vec<u8>) -> Option<&'static str> {
        if entry.is_tombstone() && !entry.value.is_empty() {
            return Some("is one of a deleted row, and has a value");
        }
        if entry.is_overflow() {
            let (len, first) = decode_reference(entry.value);
            if len > overflow::MAX_VALUE || first.is_none() {
                return Some("refers to a long value that cannot be");
            }
            self.refer(first, tree, Fact::Index(tree), scratch);
            let pages = len.div_ceil(overflow::bytes_per_page(self.shared.core.page_size) as u64);
            self.add_length(tree, pages as i64);
        }
        None
    }

    fn add_length(&self, tree: TreeId, pages: i64) {
        *self.lengths.lock().entry(tree).or_default() += pages;
    }

    fn directory_entry(
        &self,
        node: NodeRef<'_>,
        slot: usize,
        payload: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Option<&'static str> {
        let mut key = Vec::new();
        node.copy_key(slot, &mut key);
        let Some(segment) = Segment::decode(&key, payload) else { return Some("makes no sense") };
        self.refer(segment.first, UNDO_PAGES, Fact::Segment, scratch);
        None
    }

    /// Follows the undo pointers of a leaf's entries as long as anybody may follow them. First of the entries as they were, as this thread may
    /// be stopped for long, and nobody is to wait for the leaf then. What was missing may have been freed by sweep since, when a snapshot ended
    /// or a writer was undone, so it is looked for again in the leaf itself, with sweep held off: later, where one is under way, as that may wait
    /// for the very permit with which we look.
    fn versions(&self, id: PageId, tree: TreeId, leaf: NodeRef<'_>) {
        if self.broken_in(leaf, tree).is_empty() {
            return;
        }
        match self.shared.sweeping.try_take() {
            Some(_turn) => {
                self.confirm_histories(id, tree);
            }
            None => {
                let mut doubtful = self.doubtful.lock();
                match doubtful.leaves.len() < DOUBTFUL_MAX {
                    true => doubtful.leaves.push((id, tree)),
                    false => doubtful.more += 1,
                }
            }
        }
    }

    /// Says what is missing of a leaf's versions. Whoever asks sees to it that nobody sweeps.
    pub(super) fn confirm_histories(&self, id: PageId, tree: TreeId) -> bool {
        let broken = self.broken_histories(id, tree);
        let is_broken = !broken.is_empty();
        for (what, stake) in broken {
            self.find(id, tree, what, stake);
        }
        is_broken
    }

    fn broken_histories(&self, id: PageId, tree: TreeId) -> Vec<(String, Stake)> {
        let core = &self.shared.core;
        let Ok(leaf) = core.pool.shared(&core.volume, id, Access::Normal) else { return Vec::new() };
        // A leaf that was merged away keeps its bytes, and nobody keeps their history. While it is latched, it stays in use.
        let in_use = matches!(self.owner(id), Ok(Some(owner)) if owner == tree);
        if !in_use || page::kind(&leaf) != Some(PageKind::Node) || page::tree(&leaf) != tree {
            return Vec::new();
        }
        self.broken_in(NodeRef::new(&leaf), tree)
    }

    /// What is missing of the versions of a leaf's entries.
    fn broken_in(&self, leaf: NodeRef<'_>, tree: TreeId) -> Vec<(String, Stake)> {
        let mut broken = Vec::new();
        // Behind a version that everybody sees nobody looks. Asked once: it takes a lock that every snapshot takes.
        let oldest = self.shared.registry.oldest_visible_csn();
        for slot in 0..if leaf.level() == 0 { leaf.count() } else { 0 } {
            let Some(entry) = Entry::decode(leaf.payload(slot)) else { continue };
            if entry.writer < self.survey.horizon {
                continue;
            }
            let mut key = Vec::new();
            leaf.copy_key(slot, &mut key);
            let mut is_current = true;
            if let Err(what) = self.history(tree, &key, &entry, oldest, &mut is_current) {
                let what = format!("the entry of {}: {what}", Key(&key));
                broken.push((what, if is_current { Stake::Row { key } } else { Stake::History }));
            }
        }
        broken
    }

    /// Follows an entry's versions up to one that was committed by `oldest`; `is_current` is left true when all that was found are versions of
    /// transactions that have not committed.
    fn history(
        &self,
        tree: TreeId,
        key: &[u8],
        entry: &Entry<'_>,
        oldest: u64,
        is_current: &mut bool,
    ) -> std::result::Result<(), String> {
        let (mut writer, mut at) = (entry.writer, entry.undo);
        let mut circle = Circle::default();
        while !writer.is_none() {
            match self.shared.fate(writer).map_err(|error| error.to_string())? {
                Fate::Running => {}
                Fate::Committed(Some(csn)) if csn > oldest => *is_current = false,
                Fate::Committed(_) => return Ok(()),
            }
            if circle.closes(at) {
                return Err(format!("its history, as of {writer}, leads back to {at:?}"));
            }
            let record = undo::read(&self.shared.core, at)
                .map_err(|error| format!("its history, as of {writer}, cannot be read: {error}"))?;
            // The record may be another writer's, where it leads past versions that nobody sees.
            if record.tree != tree || record.key != key {
                return Err(format!(
                    "its history, as of {writer}, leads to {at:?}, where a record of {} of {} is",
                    Key(&record.key),
                    record.tree
                ));
            }
            if record.kind == UndoKind::Insert {
                return Ok(());
            }
            (writer, at) = (record.previous_writer, record.previous_undo);
        }
        Ok(())
    }

    // ---- long values and undo ---------------------------------------------------------------------------------

    fn index(&self, id: PageId, tree: TreeId, bytes: &[u8], scratch: &mut Vec<u8>) {
        let Some((next, listed)) = overflow::decode_index(bytes) else {
            let what =
                "lists more pages of a long value than it has room for, or none and leads to another list"
                    .to_owned();
            return self.note_bad(id, Flaw { tree, what, lost_write: false });
        };
        self.sums.state(id, Fact::Index(tree), scratch);
        if !next.is_none() {
            self.refer(next, tree, Fact::Index(tree), scratch);
        }
        for &page in &listed {
            self.refer(page, tree, Fact::Piece(tree), scratch);
        }
        self.add_length(tree, -(listed.len() as i64));
    }

    fn undo_page(&self, id: PageId, bytes: &[u8], scratch: &mut Vec<u8>) {
        if bytes.is_empty() || page::kind(bytes) != Some(PageKind::Undo) {
            return;
        }
        let records = match undo::records(bytes, id) {
            Ok(records) => records,
            Err(error) => return self.find(id, UNDO_PAGES, error, Stake::History),
        };
        // Asked behind the records: who has written one of them had his number before.
        let next = self.shared.registry.next_txn();
        self.counters.undo_records.fetch_add(records.len() as u64, Ordering::Relaxed);
        let segment = PageId(id.0 / EXTENT_PAGES * EXTENT_PAGES);
        let ours = self.survey.segments.get(&segment).is_some_and(|segment| segment.owns(bytes));
        for (at, record) in records {
            if record.writer >= next {
                let what = format!("the record at {} is by {}, who never was", at.offset(), record.writer);
                self.find(id, UNDO_PAGES, what, Stake::History);
            }
            if ours && keeps_long_value(&record) && self.is_known(record.tree) {
                self.long_value_of_undo(&record, scratch);
            }
        }
    }

    /// A long value that was replaced, and that waits to be swept; part of it may be gone.
    fn long_value_of_undo(&self, record: &UndoRecord, scratch: &mut Vec<u8>) {
        let (_, first) = decode_reference(&record.value);
        if first.is_none() {
            return;
        }
        self.sums.refer(first, Fact::Index(record.tree), scratch);
        let (mut index, mut left) = (first, LIST_MOST);
        while !index.is_none() && left > 0 {
            let Ok((next, listed)) = overflow::read_index(&self.shared.core, index) else { return };
            self.add_length(record.tree, listed.len() as i64);
            (index, left) = (next, left - 1);
        }
    }

    /// A page of a tree, as everybody gets it, if it is what is expected of it; else what is wrong.
    pub(super) fn expect(
        &self,
        id: PageId,
        tree: TreeId,
        kind: PageKind,
    ) -> std::result::Result<SharedPage<'_>, String> {
        let flaw = self.bad.lock().get(&id).filter(|flaw| !flaw.lost_write).cloned();
        if let Some(flaw) = flaw {
            return Err(flaw.what);
        }
        let core = &self.shared.core;
        if id.is_none() || id.0 >= core.space.capacity() {
            return Err("is referred to, and is no page of the file".to_owned());
        }
        let page = core.pool.shared(&core.volume, id, Access::Normal).map_err(|error| error.to_string())?;
        if page::kind(&page) == Some(kind) && page::tree(&page) == tree {
            return Ok(page);
        }
        Err(match page::kind(&page) {
            Some(found) => {
                format!("is a page of kind {found:?} of {}, not {kind:?} of {tree}", page::tree(&page))
            }
            None => "is no page of a known kind".to_owned(),
        })
    }
}

/// Whether the version before had a long value of its own.
pub(super) fn replaces_long_value(record: &UndoRecord) -> bool {
    matches!(record.kind, UndoKind::Update | UndoKind::Delete) && record.previous_flags & OVERFLOW != 0
}

/// Whether a record is all that leads to a long value: the version before had it, and sweep has not freed it yet.
pub(super) fn keeps_long_value(record: &UndoRecord) -> bool {
    !record.done && replaces_long_value(record)
}

fn status_entry(node: NodeRef<'_>, slot: usize, payload: &[u8]) -> Option<&'static str> {
    let mut key = Vec::new();
    node.copy_key(slot, &mut key);
    let known = payload.len() == 8 && (key.len() == 8 || key == catalog::NEXT_TREE);
    (!known).then_some("is no transaction's, or has no commit number")
}
