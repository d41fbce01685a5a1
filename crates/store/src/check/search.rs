//! The search: where what pages say of each other does not agree, what is it?
//!
//! # What it guarantees
//! 1. It reports only what is wrong at one moment, seen under latches or with everything that could explain it held still.
//! 2. Of a range of pages it is given it finds every reference that does not fit its page, and every page in use that nothing
//!    refers to, as far as they were so before the search began.
//!
//! # Why going along a tree misses nothing
//! Nodes of a level are gone through by key: the next one is the one that covers the upper fence of the one before. A node
//! that splits behind that look leaves what was seen, one that is merged into its left neighbour is met there, whole. So an
//! entry, or a child, that was there all the time is met.
//!
//! A long value leaves its entry for an undo record, and comes back by a rollback, which leaves the record behind and marks it. Undo is
//! therefore gone through before the trees and behind them. Sweep, which alone frees long values and segments of
//! committed transactions, is held off meanwhile.
//!
//! # How others get by
//! Latches are held while it is looked what lies under them, so the thread runs as users do, asks for a processor before each short piece of work,
//! with nothing latched, and takes a permit for it. What it is about to look at under a latch is brought into memory before.

mod twice;

use super::page::{keeps_long_value, replaces_long_value};
use super::report::Findings;
use super::survey::{Trees, read_segments};
use super::{Check, Doubtful, Stake, Watch};
use crate::entry::{Entry, UndoPtr, decode_reference};
use crate::jobs::{Permit, ask_for_processors};
use crate::node::{NodeRef, verify_structure};
use crate::page::{self, PageKind};
use crate::pool::{Access, ScanRing, SharedPage};
use crate::shared::{CATALOG, STATUS, UNDO_DIRECTORY};
use crate::space::{EXTENT_PAGES, SYSTEM};
use crate::tree::{BTree, TreeRoot};
use crate::undo::{self, UNDO_PAGES, UndoKind, UndoRecord};
use crate::work::WorkMemory;
use crate::{Result, catalog, overflow};
use gannet_base::{Lsn, PageId, TreeId, TxnId};
use gannet_io::Class;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// How often the catalog and undo are read again for what neither of them explains.
const STRANGER_LOOKS: u32 = 3;

/// Children that are looked at under one latch of their parent.
const CHILDREN_AT_ONCE: usize = 8;

/// Frames for pages that are looked at only once.
const RING_FRAMES: usize = 256;

/// Pages, one bit each.
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, page: PageId) {
        if let Some(word) = self.0.get_mut((page.0 / 64) as usize) {
            *word |= 1 << (page.0 % 64);
        }
    }

    fn has(&self, page: PageId) -> bool {
        self.0.get((page.0 / 64) as usize).is_some_and(|word| word & 1 << (page.0 % 64) != 0)
    }
}

/// A child, and what its parent says of it.
struct Child {
    page: PageId,
    level: u8,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

/// Nodes of one level that are still to be gone through.
struct Span {
    level: u8,
    from: Vec<u8>,
    /// They end here.
    until: Option<Vec<u8>>,
}

/// A page of a long value that is not what it should be.
struct Broken {
    page: PageId,
    what: String,
    /// It is whole, but may be given out again.
    unmarked: bool,
}

impl Broken {
    fn new(page: PageId, what: String) -> Self {
        Broken { page, what, unmarked: false }
    }
}

struct Search<'c, 'w> {
    check: &'c Check,
    watch: &'c mut Watch<'w>,
    /// For the piece of work under way.
    permit: Option<Permit>,
    /// What is looked at only once pushes nobody's pages out.
    ring: ScanRing,
    /// Where to look, ascending.
    ranges: Vec<Range<u64>>,
    /// Pages that something leads to.
    seen: Bits,
    /// Pages of long values that lists of entries have named, and those that were named again: see [`twice`].
    listed: Bits,
    twice: BTreeSet<PageId>,
    trees: Trees,
    /// Trees that are dropped and not yet swept.
    dropped: BTreeSet<TreeId>,
    /// Trees whose leaves were gone through for long values.
    with_leaves: BTreeSet<TreeId>,
    /// Trees of which something cannot be read that would lead to further pages.
    blocked: BTreeSet<TreeId>,
    /// Some undo could not be read.
    undo_is_cut: bool,
    /// Pages that were changed behind this position may be referred to by what was gone through before.
    begun: Lsn,
    /// Transactions below this number had ended by then.
    running_from: TxnId,
}

impl Check {
    /// Finds out what the differences mean that the pass has left.
    pub(super) fn search(&self, memory: &mut WorkMemory, watch: &mut Watch<'_>) -> Result<()> {
        let ranges = self.sums.differing();
        let uneven = self.lengths.lock().values().any(|&pages| pages != 0);
        let doubtful = std::mem::take(&mut *self.doubtful.lock());
        let is_even = ranges.is_empty() && !uneven && self.strangers.lock().is_empty();
        if is_even && doubtful.leaves.is_empty() {
            return Ok(());
        }
        let words = self.survey.pages.div_ceil(64);
        memory.grow(2 * words * size_of::<u64>() as u64)?;
        let _turn = self.shared.sweeping.take(&mut || watch.look())?;
        let _asking = (!watch.job().is_at_full_pace()).then(ask_for_processors);
        self.confirm_doubtful(&doubtful, watch)?;
        if is_even {
            return Ok(());
        }
        // Of this moment: what was not there when the check began may be here.
        let active = self.shared.registry.active();
        let running_from = active.iter().map(|txn| txn.id()).min().unwrap_or(self.shared.registry.next_txn());
        let begun = self.shared.core.log.end();
        // Whoever is in the middle of something has pages that nothing refers to yet.
        let at_rest = begun == self.survey.log_end && self.shared.registry.active().is_empty();
        let mut search = Search {
            check: self,
            watch,
            permit: None,
            ring: ScanRing::new(RING_FRAMES.min(self.shared.core.pool.frame_count() / 8)),
            ranges,
            seen: Bits(vec![0; words as usize]),
            listed: Bits(vec![0; words as usize]),
            twice: BTreeSet::new(),
            trees: Trees::read(&self.shared, &Findings::default()),
            dropped: BTreeSet::new(),
            with_leaves: BTreeSet::new(),
            blocked: BTreeSet::new(),
            undo_is_cut: false,
            begun,
            running_from,
        };
        search.run(at_rest)
    }

    /// Looks again at leaves with versions that were missing while somebody swept; nobody does now.
    fn confirm_doubtful(&self, doubtful: &Doubtful, watch: &mut Watch<'_>) -> Result<()> {
        let mut broken = 0;
        for &(id, tree) in &doubtful.leaves {
            broken += u64::from(self.confirm_histories(id, tree));
            watch.look()?;
        }
        // Where so many are sound, the others were as much in between when they were looked at.
        if let (1.., Some(&(id, tree))) = (broken, doubtful.leaves.first())
            && doubtful.more > 0
        {
            let (more, looked) = (doubtful.more, doubtful.leaves.len());
            let what = format!(
                "{broken} of {looked} such leaves are broken, and {more} more were not looked at again: check again"
            );
            self.find(id, tree, what, Stake::History);
        }
        Ok(())
    }
}

impl Search<'_, '_> {
    fn run(&mut self, at_rest: bool) -> Result<()> {
        self.undo()?;
        let concerned = self.concerned();
        self.walk_all(&concerned, false)?;
        let with_leaves: Vec<TreeId> =
            self.with_long_values()?.into_iter().filter(|tree| concerned.contains(tree)).collect();
        self.walk_all(&with_leaves, true)?;
        self.undo()?;
        self.unreferenced()?;
        self.named_twice()?;
        self.strangers()?;
        if at_rest && !self.unexplained().is_empty() {
            // Whatever leads there comes from where nobody would look for it.
            let all: Vec<TreeId> = self.trees.live.keys().copied().collect();
            self.walk_all(&all, true)?;
            self.named_twice()?;
            for range in self.unexplained() {
                let page = PageId(range.start);
                let tree = self.check.owner(page).ok().flatten().unwrap_or_default();
                let what = format!(
                    "what pages {} to {} say of themselves is not what others say of them",
                    range.start,
                    range.end - 1
                );
                self.check.find(page, tree, what, Stake::SomeRows);
            }
        }
        Ok(())
    }

    /// Ranges in which the sums differ although nothing has changed, and in which nothing was found.
    fn unexplained(&self) -> Vec<Range<u64>> {
        let explained = |range: &&Range<u64>| {
            self.check.findings.touch(range)
                || self.has_bad(range)
                || self.has_stranger(range)
                // Which of these pages are in use is not known.
                || self.check.extent(PageId(range.start)).is_err()
                || self.check.extent(PageId(range.end - 1)).is_err()
        };
        self.ranges.iter().filter(|range| !explained(range)).cloned().collect()
    }

    fn has_bad(&self, range: &Range<u64>) -> bool {
        self.check.bad.lock().range(PageId(range.start)..PageId(range.end)).next().is_some()
    }

    /// Whether pages of a range belong to a tree that is on its way in or out, or that was not gone through as a whole.
    fn has_stranger(&self, range: &Range<u64>) -> bool {
        let owner = |number| self.check.owner(PageId(number)).ok().flatten();
        range.clone().filter_map(owner).any(|tree| match tree {
            SYSTEM => false,
            UNDO_PAGES => self.is_blocked(UNDO_DIRECTORY),
            _ => !self.trees.live.contains_key(&tree) || self.is_blocked(tree) || self.misses_undo(),
        })
    }

    /// Whether there may be pages that something leads to which cannot be read.
    fn is_blocked(&self, tree: TreeId) -> bool {
        self.blocked.contains(&tree) || self.check.bad.lock().values().any(|flaw| flaw.tree == tree)
    }

    /// Whether there may be undo that cannot be read: it leads to long values of any tree, and to trees that are dropped.
    fn misses_undo(&self) -> bool {
        self.undo_is_cut || self.is_blocked(UNDO_DIRECTORY)
    }

    /// Called before each piece of work, with nothing latched: tells how far it is, and waits as long as others are to go first; but not while somebody
    /// waits for room, which is not to be had as long as this goes on.
    fn tick(&mut self) -> Result<()> {
        self.permit = None;
        self.check.tell(self.watch)?;
        if !self.check.shared.sweeping.is_urgent() {
            self.permit = Some(self.watch.job().permit()?);
        }
        Ok(())
    }

    fn is_suspicious(&self, page: PageId) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= page.0);
        self.ranges.get(at).is_some_and(|range| range.contains(&page.0))
    }

    /// Reports a page, with what is known of it better than before.
    fn find(&mut self, page: PageId, tree: TreeId, what: impl std::fmt::Display, stake: Stake) {
        if stake != Stake::Space {
            self.blocked.insert(tree);
        }
        self.check.bad.lock().remove(&page);
        self.check.find(page, tree, what, stake);
    }

    /// Trees that own pages where something differs.
    fn concerned(&self) -> Vec<TreeId> {
        let mut owners: BTreeSet<TreeId> = self.check.bad.lock().values().map(|flaw| flaw.tree).collect();
        for range in &self.ranges {
            for page in range.clone().step_by(EXTENT_PAGES as usize).map(PageId) {
                match self.check.extent(page) {
                    Ok(Some(extent)) => {
                        owners.insert(extent.owner);
                        if extent.owner == SYSTEM {
                            owners.extend([CATALOG, STATUS, UNDO_DIRECTORY]);
                        }
                    }
                    Ok(None) => {}
                    // The pass knew of no page there.
                    Err(_) => owners.extend(self.trees.live.keys()),
                }
            }
        }
        // What refers to an undo segment is a leaf of the directory, which `undo` goes through.
        owners.into_iter().filter(|tree| self.trees.live.contains_key(tree)).collect()
    }

    /// Trees whose long values are to be looked at: pages of such differ, or their number does, or a page that nobody has met may be
    /// one.
    fn with_long_values(&mut self) -> Result<BTreeSet<TreeId>> {
        let check = self.check;
        let uneven = check.lengths.lock();
        let mut trees: BTreeSet<TreeId> =
            uneven.iter().filter(|(_, pages)| **pages != 0).map(|(&tree, _)| tree).collect();
        drop(uneven);
        trees.extend(check.bad.lock().values().map(|flaw| flaw.tree));
        for range in self.ranges.clone() {
            self.tick()?;
            let unmet = self.unmet(&range);
            let core = &check.shared.core;
            let pages: Vec<PageId> = unmet.iter().map(|&(page, _)| page).collect();
            core.pool.prefetch(&core.volume, &pages, Class::Maintenance, Access::Ring(&self.ring));
            for (page, tree) in unmet {
                if let Ok(bytes) = core.pool.shared(&core.volume, page, Access::Ring(&self.ring))
                    && matches!(page::kind(&bytes), Some(PageKind::Overflow | PageKind::OverflowIndex))
                {
                    trees.insert(tree);
                }
            }
        }
        Ok(trees)
    }

    /// Pages in use of a range that nothing has led to so far, with their owners.
    fn unmet(&self, range: &Range<u64>) -> Vec<(PageId, TreeId)> {
        let pages = range.clone().map(PageId).filter(|&page| !self.seen.has(page));
        pages.filter_map(|page| Some((page, self.check.owner(page).ok().flatten()?))).collect()
    }

    // ---- trees ------------------------------------------------------------------------------------------------

    fn walk_all(&mut self, trees: &[TreeId], leaves: bool) -> Result<()> {
        for &id in trees {
            let shared = &self.check.shared;
            let own = [&*shared.catalog, &shared.status, &shared.undo_directory];
            if let Some(root) = own.into_iter().find(|root| root.id == id) {
                self.walk(root, false)?;
                continue;
            }
            let Some(root) = self.root_of(id) else { continue };
            self.walk(&root, leaves)?;
            if leaves {
                self.with_leaves.insert(id);
            }
        }
        Ok(())
    }

    /// The root of a tree that is none of the store's own.
    fn root_of(&self, id: TreeId) -> Option<Arc<TreeRoot>> {
        let known = self.trees.live.get(&id)?;
        let name = known.name.clone().unwrap_or_default();
        Some(self.check.shared.tree_root(id, known.root, name.as_bytes()))
    }

    /// Goes through a tree's inner nodes, from the root down; with `leaves`, also through those.
    fn walk(&mut self, root: &TreeRoot, leaves: bool) -> Result<()> {
        let whole = Child { page: root.root(), level: u8::MAX, lower: Vec::new(), upper: None };
        let Some(level) = self.child(root.id, &whole) else { return Ok(()) };
        let lowest = u8::from(!leaves);
        let mut open = vec![Span { level, from: Vec::new(), until: None }];
        while let Some(span) = open.pop() {
            if span.level >= lowest {
                self.span(root, span, lowest, &mut open)?;
            }
        }
        Ok(())
    }

    fn span(&mut self, root: &TreeRoot, span: Span, lowest: u8, open: &mut Vec<Span>) -> Result<()> {
        let core = &self.check.shared.core;
        let btree = BTree::new(core, root);
        let mut from = span.from;
        loop {
            self.tick()?;
            if span.level > 0 {
                self.fetch_children(&btree, &from, span.level);
            }
            // What cannot be reached was reported from above.
            let Ok(page) = btree.inner_shared(&from, span.level) else { return Ok(()) };
            let sound = verify_structure(&page, core.page_size).is_ok();
            let node = NodeRef::new(&page);
            // A tree that has lost a level meanwhile has shown its nodes as those of another level.
            if !sound || node.level() != span.level {
                return Ok(());
            }
            let next = match span.level {
                0 => {
                    let next = node.upper_fence().map(<[u8]>::to_vec);
                    self.leaf(root, page);
                    next
                }
                _ => self.children(root.id, node, &from, lowest, open),
            };
            match next {
                Some(next) if span.until.as_ref().is_none_or(|until| next < *until) => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// Brings children into memory that are about to be looked at with their parent latched.
    fn fetch_children(&self, tree: &BTree<'_>, from: &[u8], level: u8) {
        let core = &self.check.shared.core;
        // What cannot be reached is reported from above.
        let Ok(children) = tree.children_from(from, level) else { return };
        let suspicious = children.pages.into_iter().filter(|&page| self.is_suspicious(page));
        let pages: Vec<PageId> = suspicious.take(CHILDREN_AT_ONCE).collect();
        core.pool.prefetch(&core.volume, &pages, Class::Maintenance, Access::Ring(&self.ring));
        pages.into_iter().for_each(|page| core.pool.await_prefetch(&core.volume, page));
    }

    /// Looks at some children of a latched node, from the one that covers `from` on; gives where to go on.
    fn children(
        &mut self,
        tree: TreeId,
        node: NodeRef<'_>,
        from: &[u8],
        lowest: u8,
        open: &mut Vec<Span>,
    ) -> Option<Vec<u8>> {
        let level = node.level() - 1;
        let mut looked_at = 0;
        for slot in node.child_for(from).0..node.count() {
            let suspicious = self.is_suspicious(node.child(slot));
            if !suspicious && level < lowest {
                continue;
            }
            if suspicious && looked_at == CHILDREN_AT_ONCE {
                let mut next = Vec::new();
                node.copy_key(slot, &mut next);
                return Some(next);
            }
            looked_at += usize::from(suspicious);
            let mut lower = Vec::new();
            node.copy_key(slot, &mut lower);
            let upper = if slot + 1 < node.count() {
                let mut upper = Vec::new();
                node.copy_key(slot + 1, &mut upper);
                Some(upper)
            } else {
                node.upper_fence().map(<[u8]>::to_vec)
            };
            let child = Child { page: node.child(slot), level, lower, upper };
            if suspicious && self.child(tree, &child).is_none() {
                continue;
            }
            if level >= lowest {
                open.push(Span { level, from: child.lower, until: child.upper });
            }
        }
        node.upper_fence().map(<[u8]>::to_vec)
    }

    /// Looks at a node whose parent is latched, or at a root; gives its level if one can go on from there.
    fn child(&mut self, tree: TreeId, child: &Child) -> Option<u8> {
        self.seen.set(child.page);
        if let Some(what) = self.mismarked(child.page, tree) {
            self.check.find(child.page, tree, what, Stake::Allocation);
        }
        let stake = Stake::Rows { lower: child.lower.clone(), upper: child.upper.clone() };
        let fault = match self.check.expect(child.page, tree, PageKind::Node) {
            Err(what) => what,
            Ok(page) => match verify_structure(&page, self.check.shared.core.page_size) {
                Err(what) => what,
                Ok(()) => {
                    let node = NodeRef::new(&page);
                    let is_root = child.level == u8::MAX;
                    if !is_root && node.level() != child.level {
                        format!("is of level {}, and its parent leads to level {}", node.level(), child.level)
                    } else if node.lower_fence() != child.lower
                        || node.upper_fence() != child.upper.as_deref()
                    {
                        "covers other keys than its parent says".to_owned()
                    } else {
                        return Some(node.level());
                    }
                }
            },
        };
        self.find(child.page, tree, fault, stake);
        None
    }

    /// What is wrong with how a page is marked that `tree` refers to: as used, by the tree.
    fn mismarked(&self, page: PageId, tree: TreeId) -> Option<String> {
        match self.check.owner(page) {
            Ok(Some(owner)) if owner == tree => None,
            Ok(Some(owner)) => Some(format!("is in use, and its extent belongs to {owner}")),
            Ok(None) => Some("is in use, and marked as free".to_owned()),
            // The map cannot be read, which is reported for itself.
            Err(_) => None,
        }
    }

    // ---- long values ------------------------------------------------------------------------------------------

    fn leaf(&mut self, root: &TreeRoot, leaf: SharedPage<'_>) {
        let references = references(&leaf);
        // Lists can be long: nobody is to wait for the leaf meanwhile.
        drop(leaf);
        for (key, reference) in references {
            if self.long_value(root.id, reference).is_err() {
                self.long_value_again(root, key, reference);
            }
        }
    }

    /// The same under the leaf's latch: meanwhile a rollback may have freed the value.
    fn long_value_again(&mut self, root: &TreeRoot, key: Vec<u8>, reference: (u64, PageId)) {
        let core = &self.check.shared.core;
        let Ok(leaf) = BTree::new(core, root).inner_shared(&key, 0) else { return };
        let node = NodeRef::new(&leaf);
        let Ok(slot) = node.search(&key) else { return };
        let entry = Entry::decode(node.payload(slot)).filter(Entry::is_overflow);
        if entry.is_none_or(|entry| decode_reference(entry.value) != reference) {
            return;
        }
        if let Err(Broken { page, what, unmarked }) = self.long_value(root.id, reference) {
            let stake = if unmarked { Stake::Allocation } else { Stake::Value { key } };
            self.find(page, root.id, what, stake);
        }
    }

    fn long_value(&mut self, tree: TreeId, (len, first): (u64, PageId)) -> std::result::Result<(), Broken> {
        let per_page = overflow::bytes_per_page(self.check.shared.core.page_size) as u64;
        let expected = len.div_ceil(per_page);
        let pages = self.list(tree, first, expected, true)?;
        if pages == expected {
            return Ok(());
        }
        let what = format!("a value of {len} bytes takes {expected} pages, its list has {pages}");
        Err(Broken::new(first, what))
    }

    /// Goes through a list of at most `most` pages, which is an entry's or one that undo keeps; says how many it has.
    fn list(
        &mut self,
        tree: TreeId,
        first: PageId,
        most: u64,
        of_entry: bool,
    ) -> std::result::Result<u64, Broken> {
        let (mut index, mut pages) = (first, 0);
        while !index.is_none() {
            self.seen.set(index);
            let broken = |what| Broken::new(index, what);
            let read = self.check.expect(index, tree, PageKind::OverflowIndex).map_err(broken)?;
            let Some((next, listed)) = overflow::decode_index(&read) else {
                let what = "lists more pages than it has room for, or none and leads to another list";
                return Err(broken(what.to_owned()));
            };
            drop(read);
            self.marked(index, tree)?;
            if of_entry && self.is_suspicious(index) {
                self.named(index);
            }
            pages += listed.len() as u64;
            if pages > most {
                return Err(broken(format!("the list of a long value of {most} pages goes on here")));
            }
            for page in listed {
                self.seen.set(page);
                if self.is_suspicious(page) {
                    let what = self.check.expect(page, tree, PageKind::Overflow).map(drop);
                    what.map_err(|what| Broken::new(page, what))?;
                    self.marked(page, tree)?;
                    if of_entry {
                        self.named(page);
                    }
                }
            }
            index = next;
        }
        Ok(pages)
    }

    fn marked(&self, page: PageId, tree: TreeId) -> std::result::Result<(), Broken> {
        match self.mismarked(page, tree) {
            None => Ok(()),
            Some(what) => Err(Broken { page, what, unmarked: true }),
        }
    }

    // ---- undo -------------------------------------------------------------------------------------------------

    /// Goes through all undo: segments, long values that only undo leads to, trees that are dropped.
    fn undo(&mut self) -> Result<()> {
        let check = self.check;
        for (first, segment) in read_segments(&check.shared, &check.findings) {
            if self.is_suspicious(first) {
                self.segment_in_use(first);
            }
            for page in (first.0..first.0 + EXTENT_PAGES).map(PageId) {
                self.tick()?;
                self.seen.set(page);
                match undo::read_page(&check.shared.core, page, &segment) {
                    Ok(Some(records)) => {
                        records.iter().for_each(|(at, record)| self.undo_record(*at, record));
                    }
                    Ok(None) => break,
                    // It is reported as such.
                    Err(_) => self.undo_is_cut = true,
                }
            }
        }
        Ok(())
    }

    fn segment_in_use(&mut self, first: PageId) {
        let Ok(extent) = self.check.extent(first) else { return };
        if extent.is_none_or(|extent| extent.owner != UNDO_PAGES) {
            let what = format!("begins an undo segment, and its extent says {extent:?}");
            self.check.find(first, UNDO_PAGES, what, Stake::Allocation);
        }
    }

    fn undo_record(&mut self, at: UndoPtr, record: &UndoRecord) {
        if record.tree == CATALOG
            && record.kind == UndoKind::Delete
            && !record.done
            && let Some((tree, _)) = catalog::decode(&record.value)
        {
            self.dropped.insert(tree);
        }
        if !self.trees.live.contains_key(&record.tree) {
            return;
        }
        let (len, first) = decode_reference_of(record);
        let per_page = overflow::bytes_per_page(self.check.shared.core.page_size) as u64;
        if keeps_long_value(record) {
            let listed = self.list(record.tree, first, len.div_ceil(per_page), false);
            // A rollback may have put the value back meanwhile, and freed it with another record.
            let still = undo::read(&self.check.shared.core, at).is_ok_and(|now| keeps_long_value(&now));
            if let Err(Broken { page, what, unmarked }) = listed
                && still
            {
                let stake = if unmarked { Stake::Allocation } else { Stake::History };
                self.find(page, record.tree, what, stake);
            }
        } else if self.may_have_passed(record) {
            // What is being written, or freed by a rollback, need not be whole.
            let _ = self.list(record.tree, first, len.div_ceil(per_page), false);
        }
    }

    /// Whether a record leads to a long value that its entry may have had while the tree was gone through elsewhere: one that is
    /// being written, or one that a rollback has put back.
    fn may_have_passed(&self, record: &UndoRecord) -> bool {
        if record.kind == UndoKind::Chain {
            return !record.done && self.check.shared.registry.find(record.writer).is_some();
        }
        record.done && record.writer >= self.running_from && replaces_long_value(record)
    }

    // ---- what nothing leads to --------------------------------------------------------------------------------

    fn unreferenced(&mut self) -> Result<()> {
        let what = "is marked as used, and nothing refers to it";
        let mut segments = Vec::new();
        for range in self.ranges.clone() {
            self.tick()?;
            for (page, owner) in self.unmet(&range) {
                if owner == UNDO_PAGES {
                    segments.extend(page.0.is_multiple_of(EXTENT_PAGES).then_some(page));
                } else if self.is_lost(page, owner) {
                    self.find(page, owner, what, Stake::Space);
                }
            }
        }
        if segments.is_empty() || self.is_blocked(UNDO_DIRECTORY) {
            return Ok(());
        }
        // Whichever has begun since undo was gone through stands in the directory by now.
        let directory = read_segments(&self.check.shared, &self.check.findings);
        for page in segments.into_iter().filter(|page| !directory.contains_key(page)) {
            self.find(page, UNDO_PAGES, what, Stake::Space);
        }
        Ok(())
    }

    /// Whether a page in use that was not met belongs to nobody.
    fn is_lost(&self, page: PageId, owner: TreeId) -> bool {
        let check = self.check;
        let known = self.trees.live.contains_key(&owner) && check.is_known(owner);
        if owner == SYSTEM || !known || self.is_blocked(owner) {
            return false;
        }
        let core = &check.shared.core;
        match core.pool.shared(&core.volume, page, Access::Ring(&self.ring)) {
            Err(crate::Error::NeverWritten(_)) => {}
            Err(_) => return false,
            Ok(bytes) if page::lsn(&bytes) > self.begun => return false,
            Ok(bytes) => match page::kind(&bytes) {
                Some(PageKind::Node) if verify_structure(&bytes, core.page_size).is_ok() => {
                    let node = NodeRef::new(&bytes);
                    let (lower, level) = (node.lower_fence().to_vec(), node.level());
                    drop(bytes);
                    if self.leads_to(owner, &lower, level) == Some(page) {
                        return false;
                    }
                }
                Some(PageKind::Overflow | PageKind::OverflowIndex)
                    if !self.with_leaves.contains(&owner) || self.misses_undo() =>
                {
                    return false;
                }
                _ => {}
            },
        }
        matches!(check.owner(page), Ok(Some(still)) if still == owner)
    }

    /// The node of a tree at `level` that covers `key`.
    fn leads_to(&self, tree: TreeId, key: &[u8], level: u8) -> Option<PageId> {
        let root = self.check.shared.find_tree(tree)?;
        BTree::new(&self.check.shared.core, &root).inner_shared(key, level).ok().map(|page| page.id())
    }

    /// Pages of trees that the catalog does not name. Catalog and undo are not read at one moment: a drop that is rolled back in
    /// between was in the one, and is in the other.
    fn strangers(&mut self) -> Result<()> {
        for look in 0.. {
            let unexplained = self.unexplained_strangers();
            if unexplained.is_empty() {
                return Ok(());
            }
            if look == STRANGER_LOOKS {
                for (tree, page) in unexplained {
                    let what = "belongs to a tree that there is not, and never was dropped";
                    self.check.find(page, tree, what, Stake::Space);
                }
                return Ok(());
            }
            self.trees = Trees::read(&self.check.shared, &Findings::default());
            self.undo()?;
        }
        Ok(())
    }

    fn unexplained_strangers(&self) -> Vec<(TreeId, PageId)> {
        let trees = &self.trees;
        let is_unexplained = |(tree, page): &(TreeId, PageId)| {
            let known = trees.live.contains_key(tree)
                || trees.passing.contains(tree)
                || !trees.complete
                || self.misses_undo();
            let here = matches!(self.check.owner(*page), Ok(Some(owner)) if owner == *tree);
            here && !known && !self.dropped.contains(tree)
        };
        let strangers = self.check.strangers.lock().clone();
        strangers.into_iter().filter(is_unexplained).collect()
    }
}

/// The long values that a leaf's entries have, by their keys.
fn references(leaf: &[u8]) -> Vec<(Vec<u8>, (u64, PageId))> {
    let node = NodeRef::new(leaf);
    let mut references = Vec::new();
    for slot in 0..node.count() {
        if let Some(entry) = Entry::decode(node.payload(slot)).filter(Entry::is_overflow) {
            let mut key = Vec::new();
            node.copy_key(slot, &mut key);
            references.push((key, decode_reference(entry.value)));
        }
    }
    references
}

fn decode_reference_of(record: &UndoRecord) -> (u64, PageId) {
    if record.value.len() == crate::entry::REFERENCE_LEN {
        decode_reference(&record.value)
    } else {
        (0, PageId::NONE)
    }
}
