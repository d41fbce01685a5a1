//! Pages in use by the owner of their extent, from space maps: all of them where they are few, else what space management has
//! learned of them.

use super::report::Figure;
use super::{Reading, Unreadable};
use crate::page::{self, PageKind};
use crate::shared::Shared;
use crate::space::{self, EXTENT_PAGES, Learned, SYSTEM};
use gannet_base::{PageId, TreeId};
use std::collections::BTreeMap;

/// Space maps that are read at most: with pages of 8 KiB those of 32 GiB.
const MAPS_MOST: u64 = 256;

/// Pages in use, by owner.
pub(super) fn pages_by_owner(
    shared: &Shared,
    reading: &Reading,
    unreadable: &Unreadable,
) -> BTreeMap<TreeId, Figure> {
    let groups = shared.core.space.groups();
    if groups > MAPS_MOST {
        learned(&shared.core.space.learned())
    } else {
        read(shared, groups, reading, unreadable)
    }
}

fn read(
    shared: &Shared,
    groups: u64,
    reading: &Reading,
    unreadable: &Unreadable,
) -> BTreeMap<TreeId, Figure> {
    let core = &shared.core;
    let mut pages: BTreeMap<TreeId, u64> = BTreeMap::new();
    let mut missing = 0;
    let maps: Vec<PageId> = (0..groups).map(|group| space::map_page(group, core.page_size)).collect();
    reading.each(core, &maps, &mut |_, id, map| {
        let map = map.and_then(|map| match page::kind(&map) {
            Some(PageKind::SpaceMap) => Ok(map),
            _ => Err(crate::Error::damaged_page(id, "a space map is expected here")),
        });
        match map {
            Ok(map) => {
                for extent in space::read_map(&map).filter(|extent| extent.used != 0) {
                    *pages.entry(extent.owner).or_default() += u64::from(extent.used.count_ones());
                }
            }
            Err(error) => {
                missing += 1;
                unreadable.add(id, SYSTEM, error);
            }
        }
    });
    let unknown = (missing * space::extents_per_group(core.page_size) * EXTENT_PAGES) as f64;
    let figure = |(tree, pages)| (tree, Figure { value: pages as f64, error: unknown });
    pages.into_iter().map(figure).collect()
}

/// An extent with room has between 1 and 15 pages in use; of groups that nobody has looked at since the database was opened
/// nothing is known but that they exist.
fn learned(learned: &Learned) -> BTreeMap<TreeId, Figure> {
    let scale = learned.groups as f64 / learned.known.max(1) as f64;
    let figure = |(&tree, &(owned, with_room)): (&TreeId, &(u64, u64))| {
        let full = (owned - with_room) as f64 * EXTENT_PAGES as f64;
        let half = EXTENT_PAGES as f64 / 2.0;
        let (seen, off) = (full + with_room as f64 * half, with_room as f64 * (half - 1.0));
        let value = if tree == SYSTEM { learned.groups as f64 * 3.0 + 3.0 } else { seen * scale };
        let error = if tree == SYSTEM { 0.0 } else { off * scale + seen * (scale - 1.0) };
        (tree, Figure { value, error })
    };
    learned.extents.iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_says_how_much_is_not_known() {
        let extents = BTreeMap::from([(TreeId(20), (100, 0)), (TreeId(21), (10, 10)), (SYSTEM, (4, 0))]);
        let all = learned(&Learned { extents: extents.clone(), known: 4, groups: 4 });
        assert_eq!(all[&TreeId(20)], Figure::exact(1600));
        // Between 1 and 15 pages of each extent are in use.
        let partial = all[&TreeId(21)];
        assert!(partial.covers(10.0) && partial.covers(150.0) && !partial.covers(160.0), "{partial:?}");
        // Three pages of each group, and the roots of the store's own trees.
        assert_eq!(all[&SYSTEM], Figure::exact(15));
        let half = learned(&Learned { extents, known: 2, groups: 4 });
        assert!(half[&TreeId(20)].covers(1600.0) && half[&TreeId(20)].covers(4800.0), "{half:?}");
    }
}
