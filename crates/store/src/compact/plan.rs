//! Where the file can end, and which extents are to be emptied for that.
//!
//! A tree needs as many extents as its pages fill. With the extents that cannot be emptied, and those of space maps, that is where the
//! file can end. In front of the end each tree keeps its fullest extents, as many as it needs: all others are emptied.

use super::Held;
use crate::Result;
use crate::check::{Findings, Trees};
use crate::shared::Shared;
use crate::space::{EXTENT_PAGES, Extent, SYSTEM, Space, extents_per_group};
use crate::undo::UNDO_PAGES;
use gannet_base::TreeId;
use std::collections::{BTreeMap, BTreeSet};

/// Extents that are left to the next transaction, and so not moved into: the file may be longer by as many.
const SPARED: u64 = 2;

/// Room in trees' extents is named where it is more than this part of the pages in use, and so many bytes.
const SPARE_TOLD: u64 = 4;
const SPARE_BYTES_TOLD: u64 = 4 << 20;

/// Fails when the job is to end.
pub(super) type Check<'c> = &'c dyn Fn() -> Result<()>;

/// What is known of a tree's extents.
#[derive(Debug, Default, Clone)]
struct Extents {
    pages: u64,
    /// In front of the end, by the number of their pages.
    in_front: [u64; EXTENT_PAGES as usize + 1],
}

impl Extents {
    fn needed(&self) -> u64 {
        self.pages.div_ceil(EXTENT_PAGES)
    }

    /// Of the extents in front of the end those are kept that have more pages than this, and so many of those that have as many.
    fn kept(&self) -> (u16, u64) {
        let mut left = self.needed();
        for pages in (1..self.in_front.len()).rev() {
            if self.in_front[pages] >= left {
                return (pages as u16, left);
            }
            left -= self.in_front[pages];
        }
        (0, 0)
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Plan {
    /// The extent in front of which everything is to lie.
    pub(super) end: u64,
    /// Pages to be moved.
    pub(super) pages: u64,
    trees: BTreeMap<TreeId, Extents>,
}

/// Shows all extents that are not free.
fn each_extent(shared: &Shared, check: Check<'_>, each: &mut dyn FnMut(u64, Extent)) -> Result<()> {
    for group in 0..shared.core.space.groups() {
        check()?;
        let mut only_used = |extent, what: Extent| {
            if what.owner != TreeId(0) {
                each(extent, what);
            }
        };
        Space::describe(&shared.core, group, &mut only_used)?;
    }
    Ok(())
}

/// Trees whose pages can be moved.
pub(super) fn movable(shared: &Shared) -> BTreeSet<TreeId> {
    let findings = Findings::default();
    Trees::read(shared, &findings).live.into_keys().collect()
}

/// Pages in use.
pub(super) fn used_pages(shared: &Shared, check: Check<'_>) -> Result<u64> {
    let mut pages = 0;
    each_extent(shared, check, &mut |_, what| pages += u64::from(what.used.count_ones()))?;
    Ok(pages)
}

/// The first extent behind so many, among which there are maps and others that stay where they are.
fn end_behind(extents: u64, fixed: &[u64], per_group: u64) -> u64 {
    let mut end = extents;
    loop {
        let with_all =
            extents + end.div_ceil(per_group) + fixed.partition_point(|&extent| extent < end) as u64;
        if with_all == end {
            return end;
        }
        end = with_all;
    }
}

impl Plan {
    pub(super) fn make(shared: &Shared, check: Check<'_>) -> Result<Plan> {
        let movable = movable(shared);
        let (mut trees, mut fixed) = (BTreeMap::<TreeId, Extents>::new(), Vec::new());
        each_extent(shared, check, &mut |extent, what| {
            if movable.contains(&what.owner) {
                trees.entry(what.owner).or_default().pages += u64::from(what.used.count_ones());
            } else if what.owner != SYSTEM {
                fixed.push(extent);
            }
        })?;
        let needed = trees.values().map(Extents::needed).sum();
        let end = end_behind(needed, &fixed, extents_per_group(shared.core.page_size));
        each_extent(shared, check, &mut |extent, what| {
            if let Some(tree) = trees.get_mut(&what.owner).filter(|_| extent < end) {
                tree.in_front[what.used.count_ones() as usize] += 1;
            }
        })?;
        let mut plan = Plan { end, pages: 0, trees };
        let (mut choice, mut pages) = (plan.choice(), 0);
        each_extent(shared, check, &mut |extent, what| {
            if choice(extent, what) {
                pages += u64::from(what.used.count_ones());
            }
        })?;
        drop(choice);
        plan.pages = pages;
        Ok(plan)
    }

    /// Whether an extent is to be emptied; to be asked in the order of the file.
    fn choice(&self) -> impl FnMut(u64, Extent) -> bool + use<> {
        let mut kept: BTreeMap<TreeId, (u16, u64)> =
            self.trees.iter().map(|(&tree, extents)| (tree, extents.kept())).collect();
        let end = self.end;
        move |extent, what| {
            let Some((pages, left)) = kept.get_mut(&what.owner) else { return false };
            let here = what.used.count_ones() as u16;
            if extent < end && here == *pages && *left > 0 {
                *left -= 1;
                return false;
            }
            extent >= end || here <= *pages
        }
    }

    /// Has space management empty what is to be emptied.
    pub(super) fn choose(&self, shared: &Shared, check: Check<'_>) -> Result<()> {
        let mut choice = self.choice();
        for group in 0..shared.core.space.groups() {
            check()?;
            shared.core.space.choose_emptying(&shared.core, group, &mut choice)?;
        }
        Ok(())
    }
}

/// What lies behind where the file could end, by what it is. With `has_damage` some of it could not be read.
pub(super) fn held(shared: &Shared, has_damage: bool, check: Check<'_>) -> Result<Vec<Held>> {
    let plan = Plan::make(shared, check)?;
    let (mut undo, mut strangers, mut others) = (0, 0, 0);
    // Of pages: those in use, and those in the extents of trees that are not.
    let (mut used, mut spare) = (0, 0);
    each_extent(shared, check, &mut |extent, what| {
        used += u64::from(what.used.count_ones());
        if plan.trees.contains_key(&what.owner) {
            spare += u64::from(what.used.count_zeros());
        }
        if extent < plan.end || what.owner == SYSTEM {
            return;
        }
        match what.owner {
            UNDO_PAGES => undo += 1,
            owner if plan.trees.contains_key(&owner) => others += 1,
            _ => strangers += 1,
        }
    })?;
    let extent_bytes = EXTENT_PAGES * shared.core.page_size as u64;
    let mut held = Vec::new();
    let mut hold = |extents: u64, what: &str| {
        if extents > 0 {
            held.push(Held { what: what.to_owned(), bytes: extents * extent_bytes });
        }
    };
    hold(
        undo,
        match has_damage {
            true => {
                "undo that an open transaction or snapshot may need, or that leads to pages that cannot be read"
            }
            false => "undo that an open transaction or snapshot still needs: compact again once it has ended",
        },
    );
    hold(strangers, "trees that are being created or dropped: compact again once that is done");
    let readers = shared.moved_values.lock().is_some();
    let why = if has_damage {
        "pages that cannot be read, or lie beside such: `gannet check` names the damage; restore a backup"
    } else if readers {
        "pages that an open snapshot may still read: compact again once it has ended"
    } else {
        "pages that others were changing: compact again"
    };
    // One that is damaged keeps the file from ending before it, however few there are.
    if others > SPARED || has_damage {
        hold(others, why);
    }
    let bytes = spare * shared.core.page_size as u64;
    if spare > used / SPARE_TOLD && bytes > SPARE_BYTES_TOLD {
        let what = format!(
            "room in the extents of {} trees: each tree has extents of {} KiB of its own, and small ones do not fill them",
            plan.trees.len(),
            extent_bytes >> 10
        );
        held.push(Held { what, bytes });
    }
    if readers && others == 0 {
        let what =
            "old places of long values that an open snapshot may still read: compact again once it has ended";
        held.push(Held { what: what.to_owned(), bytes: 0 });
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_keeps_its_fullest_extents_and_no_more_than_it_needs() {
        let mut in_front = [0; 17];
        (in_front[16], in_front[5], in_front[2]) = (2, 3, 4);
        let extents = Extents { pages: 2 * 16 + 3 * 5 + 4 * 2, in_front };
        assert_eq!((extents.needed(), extents.kept()), (4, (5, 2)));
        let plan = Plan { end: 20, pages: 0, trees: BTreeMap::from([(TreeId(20), extents)]) };
        let mut choice = plan.choice();
        let mut ask = |extent, pages: u32| {
            choice(extent, Extent { used: ((1_u32 << pages) - 1) as u16, owner: TreeId(20) })
        };
        let asked = [(0, 2), (1, 5), (2, 16), (3, 5), (4, 5), (5, 16), (20, 16)].map(|(e, p)| ask(e, p));
        assert_eq!(asked, [true, false, false, false, true, false, true]);
        assert!(!choice(9, Extent { used: 1, owner: UNDO_PAGES }), "what is not a tree's stays");
    }

    #[test]
    fn the_end_lies_behind_maps_and_what_cannot_be_moved() {
        assert_eq!(end_behind(0, &[], 10), 0);
        assert_eq!(end_behind(3, &[], 10), 4);
        assert_eq!(end_behind(9, &[], 10), 10);
        assert_eq!(end_behind(10, &[], 10), 12);
        assert_eq!(end_behind(3, &[2, 3, 50], 10), 6);
    }
}
