//! What space management does for a compaction: extents that are being emptied take nothing new, pages of theirs find places in front
//! of where the file is to end, and the end of the file is let go of.
//!
//! # Invariants
//! 1. Of an extent that is being emptied nothing is given out, neither a page nor, once it is free, the extent. So whoever still has the number of a
//!    page that was moved away finds its bytes as they were, until [`Space::end_emptying`].
//! 2. Such an extent does not count as free: what is kept for rollbacks lies elsewhere.
//! 3. Where the file ends for space management it may end for the file system later, never the other way round.
//! 4. A group that was let go of is counted again only with a map that was formatted anew, whose first contents the log has behind the start of
//!    every backup that did not count it. So the header never counts more groups than there are, and of those that an opening finds behind, whose
//!    maps may be as they were left, it forgets those at the end of which nothing is in use, as far as they can be read ([`Space::learn_end`]).

use super::{Allocations, EXTENT_PAGES, Extent, SYSTEM, Space, State, map_page, read_map};
use crate::core::Core;
use crate::pool::Access;
use crate::{Error, Result};
use gannet_base::memory::{Charge, Purpose};
use gannet_base::sync::MutexGuard;
use gannet_base::{Lsn, PageId, TreeId};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Extents with room that are looked at where most of a tree's are being emptied.
pub(super) const TRIED: usize = 64;

/// Extents that are being emptied.
#[derive(Debug)]
pub(super) struct Emptying {
    /// One bit for each extent of the file.
    set: Vec<u64>,
    /// What is moved goes in front of this extent.
    end: u64,
    /// How many of them are free by now, by group.
    free: BTreeMap<u64, u64>,
    _charge: Charge,
}

impl State {
    pub(super) fn is_emptying(&self, extent: u64) -> bool {
        let word = |emptying: &Emptying| emptying.set.get(extent as usize / 64).copied().unwrap_or(0);
        self.emptying.as_ref().is_some_and(|emptying| word(emptying) & 1 << (extent % 64) != 0)
    }

    /// An extent has become free, or is not any more; false where that does not count.
    pub(super) fn counts_as_free(&mut self, group: u64, extent: u64, is_free: bool) -> bool {
        if !self.is_emptying(extent) {
            return true;
        }
        if let Some(emptying) = &mut self.emptying {
            let free = emptying.free.entry(group).or_default();
            *free = free.saturating_add_signed(if is_free { 1 } else { -1 });
        }
        false
    }

    /// Where to look for a free extent: while the file is being compacted, in front of where it is to end.
    pub(super) fn wanted_place(&self, wanted: u64) -> u64 {
        if self.emptying.as_ref().is_some_and(|emptying| wanted >= emptying.end) { 0 } else { wanted }
    }
}

impl Space {
    /// Shows what a group's map says of its extents.
    pub(crate) fn describe(core: &Core, group: u64, each: &mut dyn FnMut(u64, Extent)) -> Result<()> {
        let id = map_page(group, core.page_size);
        let map = core.pool.shared(&core.volume, id, Access::Normal)?;
        if crate::page::kind(&map) != Some(crate::page::PageKind::SpaceMap) {
            return Err(Error::damaged_page(id, "a space map is expected here"));
        }
        let first = group * super::extents_per_group(core.page_size);
        (first..).zip(read_map(&map)).for_each(|(extent, what)| each(extent, what));
        Ok(())
    }

    /// From now on extents can be chosen to be emptied; what is moved goes in front of extent `end`. False when the last
    /// compaction's are not let go of yet.
    pub(crate) fn begin_emptying(&self, core: &Core, end: u64) -> Result<bool> {
        let mut state = self.state.lock();
        if state.emptying.is_some() {
            return Ok(false);
        }
        let words = (state.groups.len() as u64 * state.per_group).div_ceil(64);
        let charge = core.budget.charge(Purpose::Work, words * 8)?;
        state.emptying =
            Some(Emptying { set: vec![0; words as usize], end, free: BTreeMap::new(), _charge: charge });
        Ok(true)
    }

    /// Has those extents of a group emptied that `choose` says.
    pub(crate) fn choose_emptying(
        &self,
        core: &Core,
        group: u64,
        choose: &mut dyn FnMut(u64, Extent) -> bool,
    ) -> Result<()> {
        let mut allocations = self.lock(core);
        let place = allocations.map(group)?;
        let first = group * allocations.state.per_group;
        let extents: Vec<Extent> = read_map(&allocations.maps[place].page).collect();
        let chosen =
            (first..).zip(extents).filter(|&(extent, what)| what != Extent::FREE && choose(extent, what));
        let chosen: Vec<u64> = chosen.map(|(extent, _)| extent).collect();
        if let Some(emptying) = &mut allocations.state.emptying {
            for extent in chosen {
                if let Some(word) = emptying.set.get_mut(extent as usize / 64) {
                    *word |= 1 << (extent % 64);
                }
            }
        }
        Ok(())
    }

    /// Whether the page's extent is being emptied.
    pub(crate) fn is_emptying(&self, page: PageId) -> bool {
        self.state.lock().is_emptying(page.0 / EXTENT_PAGES)
    }

    /// The last extent below `below` that is being emptied.
    pub(crate) fn last_emptying(&self, below: u64) -> Option<u64> {
        let state = self.state.lock();
        let emptying = state.emptying.as_ref()?;
        let mut index = (below.div_ceil(64) as usize).min(emptying.set.len());
        while let Some(last) = index.checked_sub(1) {
            let rest = below - last as u64 * 64;
            let word = emptying.set[last] & if rest >= 64 { u64::MAX } else { (1 << rest) - 1 };
            if word != 0 {
                return Some(last as u64 * 64 + u64::from(word.ilog2()));
            }
            index = last;
        }
        None
    }

    /// What was emptied is free for everybody; nobody has an old number of a page there any more.
    pub(crate) fn end_emptying(&self) {
        let mut state = self.state.lock();
        let Some(emptying) = state.emptying.take() else { return };
        for (group, free) in emptying.free {
            if let Some(group) = state.groups.get_mut(group as usize) {
                group.free_extents += free;
            }
            state.free_extents += free;
        }
    }

    /// Pages up to the end of the last extent in use.
    pub(crate) fn end_in_use(&self, core: &Core) -> Result<u64> {
        let mut allocations = self.lock(core);
        let groups = allocations.state.groups.len() as u64;
        Ok(allocations.last_in_use(groups)?.1 * EXTENT_PAGES)
    }

    /// Reads the map of the last group, which says where the used part of the file ends. Groups at the end that the header does not count, and of which
    /// nothing is in use, are forgotten, as by [`Space::retreat`].
    pub(crate) fn learn_end(&self, core: &Core, counted: u64) -> Result<()> {
        let mut allocations = self.lock(core);
        let mut groups = allocations.state.groups.len() as u64;
        let mut end = allocations.end_in(groups - 1)?;
        while groups > counted && allocations.is_bare(groups - 1, end) {
            // One that cannot be read may be in use, and whoever needs it is told.
            let Ok(before) = allocations.end_in(groups - 2) else { break };
            (groups, end) = (groups - 1, before);
        }
        self.forget_behind(&mut allocations.state, groups, end);
        Ok(())
    }

    /// Forgets the groups behind the first so many, whose maps were read; the last extent in use ends at `end`.
    fn forget_behind(&self, state: &mut State, groups: u64, end: u64) {
        for group in state.groups.drain(groups as usize..) {
            state.free_extents -= group.free_extents;
        }
        let gone = self.groups.swap(groups, Ordering::Relaxed) - groups;
        if let Some(maps) = state.owned.get_mut(&SYSTEM) {
            *maps = maps.saturating_sub(gone);
        }
        state.high_water = end * EXTENT_PAGES;
    }

    /// Lets go of what is free at the end, but for what is kept for rollbacks: from now on it is not given out, unless the file
    /// grows again. Gives the pages that are left.
    pub(crate) fn retreat(&self, core: &Core) -> Result<u64> {
        let mut allocations = self.lock(core);
        allocations.take_spare();
        let groups = allocations.state.groups.len() as u64;
        // Above the highest extent in use nothing counts, so that has to be known.
        for group in 0..groups {
            allocations.learn(group)?;
            allocations.maps.clear();
        }
        let (groups, end) = allocations.last_in_use(groups)?;
        let state = &mut *allocations.state;
        // What was in use is cut off by whoever knows that redo does not need it, and by nobody in passing.
        state.opened_with = state.opened_with.max(state.high_water);
        self.forget_behind(state, groups, end);
        let inside = state.free_extents - state.described_unused();
        let needed = state.pages_for(state.reserved_extents().saturating_sub(inside));
        let capacity = state.capacity.min(needed.next_multiple_of(EXTENT_PAGES));
        self.set_capacity(state, capacity);
        Ok(capacity)
    }

    /// Where the log was when pages that had been in use were last cut off. A page whose last change is not behind it, and that reads as zeros, was
    /// not written since: another one was in its place.
    pub(crate) fn cut_at(&self) -> Lsn {
        Lsn(self.cut_at.load(Ordering::Relaxed))
    }

    pub(crate) fn set_cut_at(&self, at: Lsn) {
        self.cut_at.store(at.0, Ordering::Relaxed);
    }

    /// Keeps the end of the file where it is for space management, as long as what this gives lives.
    pub(crate) fn hold_end(&self) -> End<'_> {
        End { state: self.state.lock() }
    }
}

/// The end of the file, held.
pub(crate) struct End<'s> {
    state: MutexGuard<'s, State>,
}

impl End<'_> {
    /// Pages in front of it.
    pub(crate) fn pages(&self) -> u64 {
        self.state.capacity
    }

    /// Groups in front of it.
    pub(crate) fn groups(&self) -> u64 {
        self.state.groups.len() as u64
    }

    /// The file ends there now.
    pub(crate) fn was_cut(&mut self) {
        self.state.opened_with = self.state.capacity;
    }
}

impl Allocations<'_> {
    /// Groups that are needed, of the first so many, and the end of the last extent in use.
    fn last_in_use(&mut self, mut groups: u64) -> Result<(u64, u64)> {
        loop {
            let end = self.end_in(groups - 1)?;
            if groups == 1 || !self.is_bare(groups - 1, end) {
                return Ok((groups, end));
            }
            groups -= 1;
        }
    }

    /// The end of a group's last extent in use.
    fn end_in(&mut self, group: u64) -> Result<u64> {
        let first = group * self.state.per_group;
        let place = self.map(group)?;
        let extents: Vec<Extent> = read_map(&self.maps[place].page).collect();
        self.maps.clear();
        let is_used =
            |&index: &u64| extents[index as usize] != Extent::FREE || self.state.is_emptying(first + index);
        (0..self.state.per_group).rev().find(is_used).map(|last| first + last + 1).ok_or_else(|| {
            let map = map_page(group, self.core.page_size);
            Error::damaged_page(map, "a space map that does not know its own extent")
        })
    }

    /// Whether a group whose last extent in use ends there has nothing but its own map.
    fn is_bare(&self, group: u64, end: u64) -> bool {
        end == group * self.state.per_group + 1
    }

    /// A page for what `tree` has in an extent that is being emptied: in one of the tree's others in front of where the file is to end, from
    /// `from` on, or in the first free extent there; `None` where there is none. The file does not grow for it.
    pub(crate) fn place(&mut self, tree: TreeId, from: &mut u64) -> Result<Option<PageId>> {
        let Some(end) = self.state.emptying.as_ref().map(|emptying| emptying.end) else { return Ok(None) };
        while let Some(extent) = self.next_partial(tree, *from..end) {
            *from = extent;
            match self.allocate_in(extent, tree)? {
                Some(page) => return Ok(Some(page)),
                None => *from = extent + 1,
            }
        }
        // As for everybody else: see `free_extent`.
        let left = self.state.reserved_extents().max(1) + 1;
        if self.state.in_reach() <= left + self.taken {
            return Ok(None);
        }
        for group in 0..self.state.groups.len() as u64 {
            if group * self.state.per_group >= end {
                break;
            }
            if self.state.holes(group) == 0 {
                continue;
            }
            match self.hole(group, 0)? {
                Some(extent) if extent < end => {
                    self.edit(extent, |e| *e = Extent { used: 1, owner: tree })?;
                    self.taken += 1;
                    *from = extent;
                    return Ok(Some(PageId(extent * EXTENT_PAGES)));
                }
                _ => self.maps.retain(|map| !map.edits.is_empty()),
            }
        }
        Ok(None)
    }

    fn next_partial(&self, tree: TreeId, range: std::ops::Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let partial = self.state.partial.get(&tree)?;
        partial.range(range).copied().find(|&extent| !self.state.is_emptying(extent))
    }
}
