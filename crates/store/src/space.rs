//! Free space: which pages of the file are used, and by which tree.
//!
//! The file is cut into *extents* of 16 pages and *groups* of as many extents as one space map page describes. The
//! map of a group is the third page of the group's first extent. An extent belongs to one tree or to nobody, so a
//! tree's pages lie together and scans read large.
//!
//! # Invariants
//! 1. Space maps change only in mini-transactions, together with the change that starts or stops using the page, and
//!    only under the space lock, which is held until the record is in the log buffer. So a crash leaks no page and
//!    gives none away twice.
//! 2. The file's growth is durable before a page behind the old end is given out.
//! 3. What is kept in memory (which extents have room) is only a hint about maps read so far; the maps are the truth.
//! 4. `reserved` pages are kept for rollbacks, which must not fail for lack of space: the free extents inside the file
//!    whose maps were read, and the never used end of the file (less the extents that new groups' maps will take there),
//!    are together at least as many. All others leave so much behind, and an extent each for the next transaction to reserve
//!    and for its undo; a rollback can use every extent that counts. Up to [`SPARE_MAX`] of them, `spare`, belong to no
//!    transaction: the next ones take these without the space lock. Whoever finds no room takes them back first. While a
//!    rollback has used extents that still count as reserved (`short`), nothing becomes spare, and nobody takes of it.
//! 5. In passing the file is cut only behind the highest page that was given out in this life, also where a compaction has let go of it and not cut it off,
//!    and never below the length that it was opened with, behind which no earlier life gave out a page. So no page that was ever used lies behind its end,
//!    whether or not a crash keeps the cut; growth later is durable before it is used, as always. Pages that were used are cut off
//!    by a compaction alone (`compact::cut`), which says why redo needs none of them.

mod emptying;

use crate::change::PATCH;
use crate::core::Core;
use crate::log::ChangeView;
use crate::mtr::Mtr;
use crate::page::{self, HEADER_LEN, PageKind};
use crate::pool::ExclusivePage;
use crate::undo::UNDO_PAGES;
use crate::{Error, Result};
use emptying::{Emptying, TRIED};
use gannet_base::sync::{Mutex, MutexGuard};
use gannet_base::{PageId, TreeId};
use gannet_io::{Class, ErrorKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Pages of an extent.
pub(crate) const EXTENT_PAGES: u64 = 16;

/// Owner of the extents that hold file header and space maps.
pub(crate) const SYSTEM: TreeId = TreeId(u32::MAX);

const FIRST_DESCRIPTOR: usize = 64;
const DESCRIPTOR_LEN: usize = 8;
const MAP_PAGE: u64 = 2;
/// Extents freed by one mini-transaction: each takes 40 bytes of a log record.
const FREED_AT_ONCE: usize = 256;
const GROW_MIN_BYTES: u64 = 2 << 20;
const GROW_MAX_BYTES: u64 = 64 << 20;

/// Most pages that stay reserved for transactions to come.
const SPARE_MAX: u64 = 64 * EXTENT_PAGES;

/// Changes of one space map: the offset of each, and its bytes.
type MapEdits = Vec<(usize, [u8; DESCRIPTOR_LEN])>;

/// Extents that one space map describes.
pub(crate) fn extents_per_group(page_size: usize) -> u64 {
    ((page_size - FIRST_DESCRIPTOR) / DESCRIPTOR_LEN) as u64
}

/// The page that holds a group's space map.
pub(crate) fn map_page(group: u64, page_size: usize) -> PageId {
    PageId(group * extents_per_group(page_size) * EXTENT_PAGES + MAP_PAGE)
}

/// The group whose space map lies on this page, if one may lie there.
pub(crate) fn group_of_map(page: PageId, page_size: usize) -> Option<u64> {
    let group_pages = extents_per_group(page_size) * EXTENT_PAGES;
    (page.0 % group_pages == MAP_PAGE).then_some(page.0 / group_pages)
}

/// Behind the pages that a change in the log is about: its own, and of a space map's those of the extent that is taken or given back, which may be
/// changed later.
pub(crate) fn end_of_change(change: &ChangeView<'_>, page_size: usize) -> u64 {
    let behind = change.page.0 + 1;
    match (group_of_map(change.page, page_size), change.kind, change.bytes) {
        (Some(group), PATCH, [low, high, ..]) => {
            let offset = usize::from(u16::from_le_bytes([*low, *high]));
            let index = (offset.saturating_sub(FIRST_DESCRIPTOR) / DESCRIPTOR_LEN) as u64;
            behind.max((group * extents_per_group(page_size) + index + 1) * EXTENT_PAGES)
        }
        _ => behind,
    }
}

/// What a space map says of one extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// One bit for each page in use.
    pub(crate) used: u16,
    /// The tree the extent belongs to; 0 when it is free.
    pub(crate) owner: TreeId,
}

impl Extent {
    const FREE: Extent = Extent { used: 0, owner: TreeId(0) };

    /// What a space map page says of its extent with this number.
    pub(crate) fn decode(bytes: &[u8], index: u64) -> Self {
        let at = descriptor_offset(index);
        Extent { used: page::get_u16(bytes, at), owner: TreeId(page::get_u32(bytes, at + 4)) }
    }

    pub(crate) fn encode(self) -> [u8; DESCRIPTOR_LEN] {
        let mut out = [0; DESCRIPTOR_LEN];
        page::put_u16(&mut out, 0, self.used);
        page::put_u32(&mut out, 4, self.owner.0);
        out
    }
}

fn descriptor_offset(index: u64) -> usize {
    FIRST_DESCRIPTOR + index as usize * DESCRIPTOR_LEN
}

/// Reads every extent of a space map page.
pub(crate) fn read_map(bytes: &[u8]) -> impl Iterator<Item = Extent> + '_ {
    (0..extents_per_group(bytes.len())).map(|index| Extent::decode(bytes, index))
}

/// Contents of a new group's map behind the page header: only the map's own extent is in use.
pub(crate) fn new_map(page_size: usize) -> Vec<u8> {
    first_map(page_size, 0)
}

/// The same for the first group, whose first extent also holds `roots` fixed pages behind the map.
pub(crate) fn first_map(page_size: usize, roots: usize) -> Vec<u8> {
    let mut bytes = vec![0; page_size];
    let system = Extent { used: (1 << (MAP_PAGE as usize + 1 + roots)) - 1, owner: SYSTEM };
    bytes[FIRST_DESCRIPTOR..FIRST_DESCRIPTOR + DESCRIPTOR_LEN].copy_from_slice(&system.encode());
    bytes[HEADER_LEN..FIRST_DESCRIPTOR + DESCRIPTOR_LEN].to_vec()
}

#[derive(Debug, Default, Clone)]
struct Group {
    /// Whether the map was read since the database was opened.
    known: bool,
    free_extents: u64,
}

#[derive(Debug, Default)]
struct State {
    groups: Vec<Group>,
    /// Extents that one space map describes.
    per_group: u64,
    /// Free extents of all known groups.
    free_extents: u64,
    /// Extents with room, by owner.
    partial: BTreeMap<TreeId, BTreeSet<u64>>,
    /// How many extents each tree owns.
    owned: BTreeMap<TreeId, u64>,
    /// Pages the file has room for.
    capacity: u64,
    /// Pages the file had room for when it was opened, or that were in use since, as far as no compaction has cut them off: see invariant 5.
    opened_with: u64,
    /// Behind the highest page that was ever given out, as far as known.
    high_water: u64,
    reserved: u64,
    /// Extents that a compaction empties.
    emptying: Option<Emptying>,
}

impl State {
    fn has_room(&self, tree: TreeId, extent: u64) -> bool {
        self.partial.get(&tree).is_some_and(|set| set.contains(&extent)) && !self.is_emptying(extent)
    }

    /// One of the tree's extents with room.
    fn some_room(&self, tree: TreeId) -> Option<u64> {
        let partial = self.partial.get(&tree)?;
        partial.iter().take(TRIED).copied().find(|&extent| !self.is_emptying(extent))
    }

    /// Whether a tree may begin another extent while it has some with room: not if those are a quarter of all.
    fn may_spread(&self, tree: TreeId) -> bool {
        let partial = self.partial.get(&tree).map_or(0, BTreeSet::len) as u64;
        partial * 4 < self.owned.get(&tree).copied().unwrap_or(0)
    }

    fn count_owned(&mut self, extent: Extent, by: i64) {
        if extent == Extent::FREE {
            return;
        }
        let count = self.owned.entry(extent.owner).or_default();
        *count = count.saturating_add_signed(by);
        if *count == 0 {
            self.owned.remove(&extent.owner);
        }
    }

    /// The first extent behind the high-water mark.
    fn unused_from(&self) -> u64 {
        self.high_water / EXTENT_PAGES
    }

    /// Extents behind the high-water mark that a map describes: all in the last group, and free.
    fn described_unused(&self) -> u64 {
        (self.groups.len() as u64 * self.per_group).saturating_sub(self.unused_from())
    }

    /// Free extents of a known group in front of the high-water mark.
    fn holes(&self, group: u64) -> u64 {
        let unused = if group + 1 == self.groups.len() as u64 { self.described_unused() } else { 0 };
        self.groups[group as usize].free_extents.saturating_sub(unused)
    }

    /// Extents that new groups' maps take among those from `from` to before `end`.
    fn map_extents(&self, from: u64, end: u64) -> u64 {
        end.div_ceil(self.per_group) - from.div_ceil(self.per_group)
    }

    /// Extents behind the high-water mark that the file has room for, and that can be given out.
    fn unused(&self) -> u64 {
        let (from, end) = (self.unused_from(), self.capacity / EXTENT_PAGES);
        if from < end { end - from - self.map_extents(from, end) } else { 0 }
    }

    /// Pages the file must have room for so that `extents` behind the high-water mark can be given out.
    fn pages_for(&self, extents: u64) -> u64 {
        let from = self.unused_from();
        let mut end = from + extents;
        loop {
            let with_maps = from + extents + self.map_extents(from, end);
            if with_maps == end {
                return end * EXTENT_PAGES;
            }
            end = with_maps;
        }
    }

    /// Free extents that are in reach without growing: see invariant 4.
    fn in_reach(&self) -> u64 {
        self.free_extents.saturating_sub(self.described_unused()) + self.unused()
    }

    /// Notes a new group: all its extents but the one with the map are free.
    fn add_group(&mut self) {
        let free_extents = self.per_group - 1;
        self.groups.push(Group { known: true, free_extents });
        self.free_extents += free_extents;
    }

    /// Extents to be left for rollbacks.
    fn reserved_extents(&self) -> u64 {
        self.reserved.div_ceil(EXTENT_PAGES)
    }
}

/// What maps have said that were read so far.
#[derive(Debug)]
pub(crate) struct Learned {
    /// By owner: extents, and how many of these have pages that are not in use.
    pub(crate) extents: BTreeMap<TreeId, (u64, u64)>,
    /// Groups whose map was read.
    pub(crate) known: u64,
    /// All of them.
    pub(crate) groups: u64,
}

/// The space of one database file.
#[derive(Debug)]
pub(crate) struct Space {
    state: Mutex<State>,
    /// Pages that are reserved, and belong to no transaction.
    spare: AtomicU64,
    /// Fewer extents are in reach than are reserved. Changes under the space lock.
    short: AtomicBool,
    /// Formatted groups, for those who must not wait for the space lock.
    groups: Arc<AtomicU64>,
    /// Pages the file has room for, for the same: while it grows, whoever has the lock waits for the device. Follows
    /// [`State::capacity`] under the lock.
    capacity: AtomicU64,
    /// See [`Space::cut_at`].
    cut_at: AtomicU64,
}

impl Space {
    /// Space management of a file of `capacity` pages with `groups` formatted groups.
    pub(crate) fn new(page_size: usize, capacity: u64, groups: u64) -> Self {
        let state = State {
            groups: vec![Group::default(); groups as usize],
            per_group: extents_per_group(page_size),
            capacity,
            opened_with: capacity,
            ..State::default()
        };
        Space {
            state: Mutex::new(state),
            spare: AtomicU64::new(0),
            short: AtomicBool::new(false),
            groups: Arc::new(AtomicU64::new(groups)),
            capacity: AtomicU64::new(capacity),
            cut_at: AtomicU64::new(0),
        }
    }

    /// The number of formatted groups, as it grows.
    pub(crate) fn group_count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.groups)
    }

    /// The first group of a new file was formatted.
    pub(crate) fn add_first_group(&self) {
        let mut state = self.state.lock();
        state.add_group();
        self.groups.store(1, Ordering::Release);
        state.high_water = EXTENT_PAGES;
    }

    /// Takes the space lock for a mini-transaction.
    pub(crate) fn lock<'c>(&'c self, core: &'c Core) -> Allocations<'c> {
        Allocations { core, state: self.state.lock(), maps: Vec::new(), taken: 0, privileged: false }
    }

    /// Pages the file has room for. Takes no lock: commits ask.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Acquire)
    }

    fn set_capacity(&self, state: &mut State, pages: u64) {
        state.capacity = pages;
        self.capacity.store(pages, Release);
    }

    /// Number of formatted groups. Takes no lock: threads ask for each extent that may be stopped for long.
    pub(crate) fn groups(&self) -> u64 {
        self.groups.load(Ordering::Acquire)
    }

    /// The same, when none is being formatted: its map's first contents are in the log then, below the log's end. Waits for whoever has the
    /// space lock, and for the device where the file grows.
    pub(crate) fn settled_groups(&self) -> u64 {
        self.state.lock().groups.len() as u64
    }

    /// Up to where pages are in use, as maps say that were read, and how many the file has, where these are fewer.
    pub(crate) fn cut_short(&self) -> Option<(u64, u64)> {
        let state = self.state.lock();
        (state.high_water > state.capacity).then_some((state.high_water, state.capacity))
    }

    /// What is known of extents, by their owner, without reading a map.
    pub(crate) fn learned(&self) -> Learned {
        let state = self.state.lock();
        let with_room = |tree| state.partial.get(tree).map_or(0, BTreeSet::len) as u64;
        Learned {
            extents: state.owned.iter().map(|(tree, &owned)| (*tree, (owned, with_room(tree)))).collect(),
            known: state.groups.iter().filter(|group| group.known).count() as u64,
            groups: state.groups.len() as u64,
        }
    }

    /// Keeps `pages` more for rollbacks, growing the file where it has not so many to spare.
    pub(crate) fn reserve(&self, core: &Core, pages: u64) -> Result<()> {
        let is_short = self.short.load(Acquire);
        if !is_short && self.spare.fetch_update(AcqRel, Acquire, |spare| spare.checked_sub(pages)).is_ok() {
            return Ok(());
        }
        let mut allocations = self.lock(core);
        if is_short {
            allocations.take_spare();
        }
        loop {
            let wanted = allocations.state.reserved + pages;
            match allocations.provide(wanted.div_ceil(EXTENT_PAGES)) {
                Err(Error::NoSpace(_)) if allocations.take_spare() => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    allocations.state.reserved = wanted;
                    return Ok(());
                }
            }
        }
    }

    /// Keeps at most `pages` more for rollbacks, as far as so many are free without growing the file; says how many.
    pub(crate) fn reserve_free(&self, pages: u64) -> u64 {
        let mut state = self.state.lock();
        let free = state.in_reach().saturating_sub(state.reserved_extents()) * EXTENT_PAGES;
        let kept = pages.min(free);
        state.reserved += kept;
        kept
    }

    /// Ends a reservation. What the file has grown by for it, and was not used, goes back to the device, unless it is little.
    pub(crate) fn release(&self, core: &Core, pages: u64) {
        let sum = |spare: u64| Some(spare + pages).filter(|&sum| sum <= SPARE_MAX);
        // Who has used what he had reserved has said so himself.
        if !self.short.load(Acquire) && self.spare.fetch_update(AcqRel, Acquire, sum).is_ok() {
            #[cfg(debug_assertions)]
            self.check_reserve();
            return;
        }
        let mut state = self.state.lock();
        state.reserved = state.reserved.saturating_sub(pages);
        if state.in_reach() >= state.reserved_extents() {
            self.short.store(false, Release);
        }
        cut(core, &mut state);
    }

    /// Invariant 4.
    #[cfg(debug_assertions)]
    fn check_reserve(&self) {
        let state = self.state.lock();
        let (in_reach, reserved) = (state.in_reach(), state.reserved_extents());
        assert!(
            self.short.load(Acquire) || in_reach >= reserved,
            "{in_reach} free extents are in reach and {reserved} are reserved"
        );
    }

    /// Reads a group's map, if that was not done yet, so that its free space is found. Of a group that was cut off there is nothing to
    /// learn.
    pub(crate) fn learn(&self, core: &Core, group: u64) -> Result<()> {
        let mut allocations = self.lock(core);
        if group < allocations.state.groups.len() as u64 { allocations.learn(group) } else { Ok(()) }
    }

    /// Gives back everything that belongs to `tree` except for page `keep`, in mini-transactions that fit the log, as long as `go_on`
    /// says so; false when it has not come to its end.
    pub(crate) fn free_while(
        &self,
        core: &Core,
        tree: TreeId,
        keep: PageId,
        go_on: &dyn Fn() -> bool,
    ) -> Result<bool> {
        for group in 0..self.groups() {
            let mut freed = FREED_AT_ONCE;
            while freed == FREED_AT_ONCE {
                if !go_on() {
                    return Ok(false);
                }
                core.await_log_room();
                let mut mtr = Mtr::new(core);
                freed = mtr.allocations().free_some(group, tree, keep)?;
                mtr.commit()?;
            }
        }
        Ok(true)
    }
}

/// Pages by which the file grows at least, as long as the device has room.
fn growth_step(pages: u64, page_size: u64) -> u64 {
    (pages * page_size / 8).clamp(GROW_MIN_BYTES, GROW_MAX_BYTES) / page_size
}

/// Makes the file so much larger that at least `extents` never used ones can be given out. Durable on return.
fn grow(core: &Core, state: &mut State, extents: u64) -> Result<()> {
    let page_size = core.page_size as u64;
    let target = state.pages_for(extents).next_multiple_of(EXTENT_PAGES);
    let generous = state.capacity + growth_step(state.capacity, page_size);
    let from = state.capacity * page_size;
    let allocate = |capacity: u64| core.volume.file.allocate(from, capacity * page_size - from);
    let is_full = |error: &gannet_io::Error| error.kind() == ErrorKind::NoSpace;
    let mut capacity = target.max(generous.next_multiple_of(EXTENT_PAGES));
    let mut outcome = allocate(capacity);
    if outcome.as_ref().is_err_and(is_full) {
        capacity = target;
        outcome = allocate(capacity);
    }
    if outcome.as_ref().is_err_and(is_full) && core.log.give_up_spares().is_ok() {
        outcome = allocate(capacity);
    }
    if outcome.as_ref().is_err_and(is_full) {
        core.log.give_up_holds();
        if core.log.give_up_spares().is_ok() {
            outcome = allocate(capacity);
        }
    }
    outcome?;
    core.volume.file.sync(Class::Foreground).inspect_err(|e| core.poison.set(e.to_string()))?;
    core.space.set_capacity(state, capacity);
    Ok(())
}

/// Gives the never used end of the file back, if that is more than ordinary growth leaves there.
fn cut(core: &Core, state: &mut State) {
    let page_size = core.page_size as u64;
    let step = growth_step(state.high_water, page_size);
    let inside = state.in_reach() - state.unused();
    let needed = state.pages_for(state.reserved_extents().saturating_sub(inside));
    let kept = (needed.max(state.opened_with) + step).next_multiple_of(EXTENT_PAGES);
    // A file that could not be cut is merely larger than it has to be.
    if state.capacity > kept + step && core.volume.file.set_len(kept * page_size).is_ok() {
        core.space.set_capacity(state, kept);
    }
}

#[derive(Debug)]
struct Map<'c> {
    group: u64,
    page: ExclusivePage<'c>,
    edits: BTreeMap<u64, Extent>,
}

impl Map<'_> {
    fn extent(&self, index: u64) -> Extent {
        self.edits.get(&index).copied().unwrap_or_else(|| Extent::decode(&self.page, index))
    }
}

/// The space lock, with the allocations of one mini-transaction so far. Dropped without [`Allocations::finish`],
/// nothing has happened.
#[derive(Debug)]
pub(crate) struct Allocations<'c> {
    core: &'c Core,
    state: MutexGuard<'c, State>,
    maps: Vec<Map<'c>>,
    /// Free extents taken so far.
    taken: u64,
    privileged: bool,
}

impl<'c> Allocations<'c> {
    /// This mini-transaction belongs to a rollback and may use what is reserved for those.
    pub(crate) fn use_reserve(&mut self) {
        self.privileged = true;
    }

    /// A page for `tree`: in the extent of the first of `near` that has room; else in a new extent, for what will be
    /// wanted near there next; else, where too many of the tree's extents have room already, in any of those.
    pub(crate) fn allocate(&mut self, tree: TreeId, near: &[PageId]) -> Result<PageId> {
        let mut tried = u64::MAX;
        for (index, page) in near.iter().enumerate() {
            let extent = page.0 / EXTENT_PAGES;
            // The first one's map is read, if it was not; of the others only those known to have room are looked at.
            if extent != tried
                && ((index == 0 && !self.state.is_emptying(extent)) || self.state.has_room(tree, extent))
                && let Some(page) = self.allocate_in(extent, tree)?
            {
                return Ok(page);
            }
            tried = extent;
        }
        let mut full = None;
        // A rollback is counted to fill the tree's own extents, so it does not begin others beside them.
        if let Some(first) = near.first()
            && !self.privileged
            && self.state.may_spread(tree)
        {
            match self.begin_extent(tree, *first) {
                Err(error @ Error::NoSpace(_)) => full = Some(error),
                begun => return begun,
            }
        }
        while let Some(extent) = self.state.some_room(tree) {
            match self.allocate_in(extent, tree)? {
                Some(page) => return Ok(page),
                None => drop(self.state.partial.get_mut(&tree).map(|set| set.remove(&extent))),
            }
        }
        match full {
            Some(error) => Err(error),
            None => self.begin_extent(tree, near.first().copied().unwrap_or(PageId(0))),
        }
    }

    /// The first page of a new extent for `tree`, just behind that of `near` if that is free.
    fn begin_extent(&mut self, tree: TreeId, near: PageId) -> Result<PageId> {
        let extent = self.free_extent(tree, near.0 / EXTENT_PAGES + 1)?;
        self.edit(extent, |e| *e = Extent { used: 1, owner: tree })?;
        Ok(PageId(extent * EXTENT_PAGES))
    }

    /// A whole extent for `tree`, just behind page `near` if that is free; gives its first page.
    pub(crate) fn allocate_extent(&mut self, tree: TreeId, near: PageId) -> Result<PageId> {
        let extent = self.free_extent(tree, near.0 / EXTENT_PAGES + 1)?;
        self.edit(extent, |e| *e = Extent { used: u16::MAX, owner: tree })?;
        Ok(PageId(extent * EXTENT_PAGES))
    }

    /// Frees a page of `tree`.
    pub(crate) fn free(&mut self, tree: TreeId, page: PageId) -> Result<()> {
        let bit = 1 << (page.0 % EXTENT_PAGES);
        let mut problem = None;
        self.edit(page.0 / EXTENT_PAGES, |extent| {
            if extent.owner != tree || extent.used & bit == 0 {
                problem = Some(format!("is freed by {tree}, but its extent says {extent:?}"));
                return;
            }
            extent.used &= !bit;
            if extent.used == 0 {
                *extent = Extent::FREE;
            }
        })?;
        problem.map_or(Ok(()), |what| Err(Error::damaged_page(page, what)))
    }

    /// Frees a whole extent of `tree`, given its first page.
    pub(crate) fn free_extent_of(&mut self, tree: TreeId, first: PageId) -> Result<()> {
        let mut owner = tree;
        self.edit(first.0 / EXTENT_PAGES, |extent| {
            owner = extent.owner;
            if owner == tree {
                *extent = Extent::FREE;
            }
        })?;
        if owner != tree {
            return Err(Error::damaged_page(
                first,
                format!("its extent is freed by {tree}, but belongs to {owner}"),
            ));
        }
        Ok(())
    }

    /// Frees extents of `tree` in a group, at most [`FREED_AT_ONCE`], except for page `keep`; says how many.
    fn free_some(&mut self, group: u64, tree: TreeId, keep: PageId) -> Result<usize> {
        if group >= self.state.groups.len() as u64 {
            // It was cut off since they were counted, and had nothing of any tree.
            return Ok(0);
        }
        let per_group = extents_per_group(self.core.page_size);
        let map = self.map(group)?;
        let map = &self.maps[map];
        let kept = Extent { used: 1 << (keep.0 % EXTENT_PAGES), owner: tree };
        let left = |index| {
            let keeps = !keep.is_none() && group * per_group + index == keep.0 / EXTENT_PAGES;
            if keeps { kept } else { Extent::FREE }
        };
        let owned = (0..per_group).filter(|&i| map.extent(i).owner == tree && map.extent(i) != left(i));
        let owned: Vec<u64> = owned.take(FREED_AT_ONCE).collect();
        for &index in &owned {
            self.edit(group * per_group + index, |extent| *extent = left(index))?;
        }
        Ok(owned.len())
    }

    /// The lowest free page of an extent, if the extent belongs to `tree` and has one.
    fn allocate_in(&mut self, extent: u64, tree: TreeId) -> Result<Option<PageId>> {
        let mut found = None;
        self.edit(extent, |e| {
            if e.owner == tree && e.used != u16::MAX {
                let index = (!e.used).trailing_zeros();
                e.used |= 1 << index;
                found = Some(PageId(extent * EXTENT_PAGES + u64::from(index)));
            }
        })?;
        Ok(found)
    }

    /// An extent that belongs to nobody: `wanted` if that is free, else one near it, else the first one found. The file
    /// grows only where no more are in reach than have to be left to rollbacks.
    fn free_extent(&mut self, tree: TreeId, wanted: u64) -> Result<u64> {
        loop {
            let reserved = self.state.reserved_extents();
            let left = if self.privileged {
                0
            } else if tree == UNDO_PAGES {
                reserved
            } else {
                // The next transaction finds room for its rollback and its undo, or nobody could delete anything on a full
                // disk.
                reserved.max(1) + 1
            };
            match self.provide(left + 1) {
                Err(Error::NoSpace(_)) if self.take_spare() => {}
                other => break other?,
            }
        }
        let extent = self.find_free(wanted)?;
        self.taken += 1;
        if self.privileged && self.state.in_reach() < self.state.reserved_extents() + self.taken {
            self.core.space.short.store(true, Release);
        }
        Ok(extent)
    }

    /// Ends the reservation of what belongs to no transaction; false when there is nothing of the kind.
    fn take_spare(&mut self) -> bool {
        let spare = self.core.space.spare.swap(0, AcqRel);
        self.state.reserved = self.state.reserved.saturating_sub(spare);
        spare > 0
    }

    fn find_free(&mut self, wanted: u64) -> Result<u64> {
        let per_group = self.state.per_group;
        let groups = self.state.groups.len() as u64;
        let wanted = self.state.wanted_place(wanted);
        let near = wanted / per_group;
        // Holes before the never used end, so that the file does not grow while it has room.
        if near < groups
            && let Some(extent) = self.hole(near, wanted % per_group)?
        {
            return Ok(extent);
        }
        if near + 1 >= groups
            && near <= groups
            && let Some(extent) = self.never_used()?
        {
            return Ok(extent);
        }
        for group in (0..groups).filter(|&group| group != near) {
            let known = self.state.groups[group as usize].known;
            if known && let Some(extent) = self.hole(group, 0)? {
                return Ok(extent);
            }
        }
        self.never_used()?.ok_or_else(|| Error::NoSpace("no extent of the data file is free".to_owned()))
    }

    /// A free extent of a group in front of the high-water mark, from the one with number `first` on if there is one.
    fn hole(&mut self, group: u64, first: u64) -> Result<Option<u64>> {
        if self.state.groups[group as usize].known && self.state.holes(group) == 0 {
            return Ok(None);
        }
        let place = self.map(group)?;
        let start = group * self.state.per_group;
        let end = self.state.unused_from().saturating_sub(start).min(self.state.per_group);
        let map = &self.maps[place];
        let is_free =
            |&index: &u64| map.extent(index) == Extent::FREE && !self.state.is_emptying(start + index);
        let found = (first..end).find(is_free).or_else(|| (0..first.min(end)).find(is_free));
        Ok(found.map(|index| start + index))
    }

    /// The first extent behind the high-water mark, if the file reaches so far. Begins a group where necessary.
    fn never_used(&mut self) -> Result<Option<u64>> {
        if self.state.unused() == 0 {
            return Ok(None);
        }
        if self.state.unused_from() == self.state.groups.len() as u64 * self.state.per_group {
            self.add_group()?;
        }
        let extent = self.state.unused_from();
        self.state.high_water = (extent + 1) * EXTENT_PAGES;
        Ok(Some(extent))
    }

    /// Sees to it that so many free extents are in reach: the file grows, and where it cannot, maps that nobody has
    /// looked at yet may know of some.
    fn provide(&mut self, extents: u64) -> Result<()> {
        let missing = (extents + self.taken).saturating_sub(self.state.in_reach());
        if missing == 0 {
            return Ok(());
        }
        let wanted = self.state.unused() + missing;
        let refused = match grow(self.core, &mut self.state, wanted) {
            Err(error @ Error::NoSpace(_)) => error,
            other => return other,
        };
        for group in 0..self.state.groups.len() as u64 {
            if self.state.groups[group as usize].known {
                continue;
            }
            self.learn(group)?;
            // Not all of them are to be latched at one time.
            self.maps.retain(|map| !map.edits.is_empty());
            if self.state.in_reach() >= extents + self.taken {
                return Ok(());
            }
        }
        Err(refused)
    }

    /// Formats the map of a new group, in an extent that the file has room for.
    fn add_group(&mut self) -> Result<()> {
        let group = self.state.groups.len() as u64;
        let id = map_page(group, self.core.page_size);
        // Formatted by a mini-transaction of its own: a group without users is harmless.
        let mut mtr = Mtr::new(self.core);
        let part = mtr.add(self.core.pool.create(&self.core.volume, id)?);
        mtr.format(part, PageKind::SpaceMap, SYSTEM, &new_map(self.core.page_size));
        let lsn = mtr.commit()?;
        // The header may count it from now on, and is not to be ahead of what a start finds in the log.
        self.core.log.flush_to(lsn)?;
        self.state.high_water = (id.0 / EXTENT_PAGES + 1) * EXTENT_PAGES;
        self.state.add_group();
        self.core.space.groups.store(self.state.groups.len() as u64, Ordering::Release);
        Ok(())
    }

    /// Latches a group's map, once for this mini-transaction; gives its place in `maps`.
    fn map(&mut self, group: u64) -> Result<usize> {
        if let Some(place) = self.maps.iter().position(|m| m.group == group) {
            return Ok(place);
        }
        let id = map_page(group, self.core.page_size);
        let page = self.core.pool.exclusive(&self.core.volume, id)?;
        if page::kind(&page) != Some(PageKind::SpaceMap) {
            return Err(Error::damaged_page(id, "a space map is expected here"));
        }
        self.maps.push(Map { group, page, edits: BTreeMap::new() });
        self.learn(group)?;
        Ok(self.maps.len() - 1)
    }

    /// Notes what a group's map says, if that was not done before.
    fn learn(&mut self, group: u64) -> Result<()> {
        if self.state.groups[group as usize].known {
            return Ok(());
        }
        let place = self.map_unlearned(group)?;
        let first = group * extents_per_group(self.core.page_size);
        let extents: Vec<Extent> = read_map(&self.maps[place].page).collect();
        let mut free_extents = 0;
        for (index, extent) in (0u64..).zip(extents) {
            if extent == Extent::FREE {
                free_extents += 1;
                continue;
            }
            self.state.high_water = self.state.high_water.max((first + index + 1) * EXTENT_PAGES);
            *self.state.owned.entry(extent.owner).or_default() += 1;
            if extent.used != u16::MAX && extent.owner != SYSTEM {
                self.state.partial.entry(extent.owner).or_default().insert(first + index);
            }
        }
        self.state.groups[group as usize] = Group { known: true, free_extents };
        self.state.free_extents += free_extents;
        Ok(())
    }

    fn map_unlearned(&mut self, group: u64) -> Result<usize> {
        match self.maps.iter().position(|m| m.group == group) {
            Some(place) => Ok(place),
            None => {
                // Marked before the latch is taken, so that `map` does not come back here.
                self.state.groups[group as usize].known = true;
                let place = self.map(group);
                self.state.groups[group as usize].known = false;
                place
            }
        }
    }

    fn edit(&mut self, extent: u64, change: impl FnOnce(&mut Extent)) -> Result<()> {
        let per_group = extents_per_group(self.core.page_size);
        let (group, index) = (extent / per_group, extent % per_group);
        if group >= self.state.groups.len() as u64 {
            let page = PageId(extent * EXTENT_PAGES);
            return Err(Error::damaged_page(page, "it lies behind the last space map, and is in use"));
        }
        let place = self.map(group)?;
        let map = &mut self.maps[place];
        let before = map.extent(index);
        let mut after = before;
        change(&mut after);
        if after != before {
            map.edits.insert(index, after);
        }
        Ok(())
    }

    /// The space maps to change, with offset and bytes of each change; brings the hints in memory up to date. From
    /// here on the mini-transaction must go through.
    pub(crate) fn finish(&mut self) -> Vec<(ExclusivePage<'c>, MapEdits)> {
        let per_group = extents_per_group(self.core.page_size);
        let mut out = Vec::with_capacity(self.maps.len());
        self.taken = 0;
        for map in self.maps.drain(..) {
            let mut edits = Vec::with_capacity(map.edits.len());
            for (&index, &after) in &map.edits {
                let before = Extent::decode(&map.page, index);
                let extent = map.group * per_group + index;
                note(&mut self.state, map.group, extent, before, after);
                edits.push((descriptor_offset(index), after.encode()));
            }
            if !edits.is_empty() {
                out.push((map.page, edits));
            }
        }
        out
    }
}

impl Drop for Allocations<'_> {
    /// What was not finished has not happened: extents that these allocations alone had filled have room still.
    fn drop(&mut self) {
        let per_group = extents_per_group(self.core.page_size);
        for map in &self.maps {
            for &index in map.edits.keys() {
                let is = Extent::decode(&map.page, index);
                note(&mut self.state, map.group, map.group * per_group + index, is, is);
            }
        }
    }
}

fn note(state: &mut State, group: u64, extent: u64, before: Extent, after: Extent) {
    let (was_free, is_free) = (before == Extent::FREE, after == Extent::FREE);
    if was_free != is_free && state.counts_as_free(group, extent, is_free) {
        let group = &mut state.groups[group as usize];
        if is_free {
            group.free_extents += 1;
            state.free_extents += 1;
        } else {
            group.free_extents -= 1;
            state.free_extents -= 1;
        }
    }
    if before.owner != after.owner {
        if let Some(set) = state.partial.get_mut(&before.owner) {
            set.remove(&extent);
        }
        state.count_owned(before, -1);
        state.count_owned(after, 1);
    }
    let set = state.partial.entry(after.owner).or_default();
    if after.used != u16::MAX && after != Extent::FREE {
        set.insert(extent);
    } else {
        set.remove(&extent);
    }
    if set.is_empty() {
        state.partial.remove(&after.owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
    use gannet_io::sim::SimDisk;
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn who_asks_for_the_size_of_the_file_waited_for_its_growth() {
        let space = Space::new(4096, 10 * EXTENT_PAGES, 1);
        let growing = space.state.lock();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let space = &space;
            scope.spawn(move || tell.send(space.capacity()));
            let asked = told.recv_timeout(std::time::Duration::from_secs(20));
            drop(growing);
            assert_eq!(asked, Ok(10 * EXTENT_PAGES));
        });
    }

    /// What a tree has free of its own was lost sight of where a mini-transaction had taken it all, and came to nothing.
    #[test]
    fn pages_that_were_taken_for_nothing_are_found_again() {
        let options = EngineOptions { memory: 8 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
        let db = engine.create(Path::new("a.gnt"), &create, &OpenOptions::default()).unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree("t").unwrap();
        let core = &txn.shared.core;
        let root = tree.root.root();
        let room = || core.space.state.lock().has_room(tree.root.id, root.0 / EXTENT_PAGES);
        assert!(room());
        let mut allocations = core.space.lock(core);
        for _ in 0..2 * EXTENT_PAGES {
            allocations.allocate(tree.root.id, &[root]).unwrap();
        }
        assert!(!allocations.state.has_room(tree.root.id, root.0 / EXTENT_PAGES));
        drop(allocations);
        assert!(room());
    }

    #[test]
    fn a_change_of_a_space_map_is_about_the_extent_that_it_says_something_of() {
        let end_of = |page: PageId, kind: u8, offset: usize| {
            let mut bytes = Vec::new();
            crate::change::encode_at(&mut bytes, offset, &Extent { used: 1, owner: TreeId(20) }.encode());
            let change =
                ChangeView { page, previous: gannet_base::Lsn::ZERO, kind, init: false, bytes: &bytes };
            end_of_change(&change, 4096)
        };
        let map = map_page(1, 4096);
        assert_eq!(end_of(map, PATCH, descriptor_offset(0)), map.0 - MAP_PAGE + EXTENT_PAGES);
        assert_eq!(end_of(map, PATCH, descriptor_offset(503)), map_page(2, 4096).0 - MAP_PAGE);
        assert_eq!(end_of(PageId(map.0 + 1), PATCH, descriptor_offset(503)), map.0 + 2);
        assert_eq!(end_of(map, crate::change::FORMAT, descriptor_offset(503)), map.0 + 1);
    }

    #[test]
    fn the_never_used_end_leaves_out_what_maps_will_take() {
        for high_water in 1..20 {
            for extents in 0..20 {
                let mut state =
                    State { per_group: 4, high_water: high_water * EXTENT_PAGES, ..State::default() };
                state.capacity = state.pages_for(extents);
                let maps =
                    (high_water..state.capacity / EXTENT_PAGES).filter(|extent| extent % 4 == 0).count();
                assert_eq!(state.unused(), extents);
                assert_eq!(state.capacity, (high_water + extents + maps as u64) * EXTENT_PAGES);
            }
        }
    }
}
