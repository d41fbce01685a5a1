//! Pages in use by the owner of their extent, from space maps: all of them where they are few; else what space management has
//! learned of them, if it knows them all, or some that are spread over the file.

use super::estimate;
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
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    pub(super) pages: BTreeMap<TreeId, Figure>,
    /// What an owner may have all the same of which nothing was seen.
    pub(super) unseen: f64,
}

impl Owners {
    /// Pages of one owner.
    pub(super) fn of(&self, owner: TreeId) -> Figure {
        self.pages.get(&owner).copied().unwrap_or(Figure { value: 0.0, error: self.unseen })
    }

    /// The roots of the store's own trees lie among the system's pages, as far as these were seen.
    pub(super) fn with_own_roots(mut self) -> Self {
        let unseen = Figure { value: 0.0, error: self.unseen };
        for tree in super::OWN_TREES {
            self.pages.entry(tree).or_insert(unseen).value += 1.0;
            let system = self.pages.entry(SYSTEM).or_insert(unseen);
            system.value = (system.value - 1.0).max(0.0);
        }
        self
    }
}

/// Pages in use, by owner.
pub(super) fn pages_by_owner(shared: &Shared, reading: &Reading, unreadable: &Unreadable) -> Owners {
    let groups = shared.core.space.groups();
    let known = shared.core.space.learned();
    if groups > MAPS_MOST && known.known == known.groups {
        return Owners { pages: learned(&known), unseen: 0.0 };
    }
    // One in the middle of each of as many parts of the file.
    let count = groups.min(MAPS_MOST);
    let wanted: Vec<u64> = (0..count).map(|part| (2 * part + 1) * groups / (2 * count)).collect();
    let (seen, maps) = read(shared, &wanted, reading, unreadable);
    let group_pages = (space::extents_per_group(shared.core.page_size) * EXTENT_PAGES) as f64;
    estimated(&seen, maps, groups, group_pages)
}

/// Reads the maps of these groups: the pages in use of each owner, by group, and how many could be read.
fn read(
    shared: &Shared,
    groups: &[u64],
    reading: &Reading,
    unreadable: &Unreadable,
) -> (BTreeMap<TreeId, Vec<f64>>, u64) {
    let core = &shared.core;
    let mut pages: BTreeMap<TreeId, Vec<f64>> = BTreeMap::new();
    let mut count = 0;
    let maps: Vec<PageId> = groups.iter().map(|&group| space::map_page(group, core.page_size)).collect();
    reading.each(core, &maps, &mut |_, id, map| {
        let map = map.and_then(|map| match page::kind(&map) {
            Some(PageKind::SpaceMap) => Ok(map),
            _ => Err(crate::Error::damaged_page(id, "a space map is expected here")),
        });
        match map {
            Ok(map) => {
                let mut here: BTreeMap<TreeId, u64> = BTreeMap::new();
                for extent in space::read_map(&map).filter(|extent| extent.used != 0) {
                    *here.entry(extent.owner).or_default() += u64::from(extent.used.count_ones());
                }
                count += 1;
                here.into_iter().for_each(|(owner, used)| pages.entry(owner).or_default().push(used as f64));
            }
            Err(error) => unreadable.add(id, SYSTEM, error),
        }
    });
    (pages, count)
}

/// What all groups have, by what those have whose maps were read.
fn estimated(seen: &BTreeMap<TreeId, Vec<f64>>, maps: u64, groups: u64, group_pages: f64) -> Owners {
    let is_census = maps == groups;
    // If none of so many groups has any, at most three in as many have.
    let seldom = if is_census { 0.0 } else { 3.0 / maps.max(1) as f64 * groups as f64 * group_pages };
    let of = |(&owner, used): (&TreeId, &Vec<f64>)| {
        if owner == SYSTEM && !is_census {
            return (owner, of_system(groups));
        }
        let mut sample = used.clone();
        sample.resize(maps as usize, 0.0);
        (owner, estimate::total(&sample, Figure::exact(groups), seldom))
    };
    Owners { pages: seen.iter().map(of).collect(), unseen: seldom }
}

/// Three pages of each group, and the roots of the store's own trees.
fn of_system(groups: u64) -> Figure {
    Figure::exact(groups * 3 + 3)
}

/// An extent with room has between 1 and 15 pages in use.
fn learned(learned: &Learned) -> BTreeMap<TreeId, Figure> {
    let figure = |(&tree, &(owned, with_room)): (&TreeId, &(u64, u64))| {
        if tree == SYSTEM {
            return (tree, of_system(learned.groups));
        }
        let full = (owned - with_room) as f64 * EXTENT_PAGES as f64;
        let half = EXTENT_PAGES as f64 / 2.0;
        (tree, Figure { value: full + with_room as f64 * half, error: with_room as f64 * (half - 1.0) })
    };
    learned.extents.iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::{CATALOG, STATUS};
    use crate::stat::{SpaceStat, StatMode, StatOptions, StatReport};
    use crate::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
    use gannet_io::sim::SimDisk;
    use gannet_io::{AlignedBuffer, Class, Disk, Durability};
    use std::path::Path;
    use std::sync::Arc;

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
    }

    #[test]
    fn what_was_not_seen_of_a_large_file_is_no_exact_nothing() {
        let (small, large) = (TreeId(20), TreeId(21));
        // 1,024 groups of 16,000 pages: the large tree has 100 in each, the small one lies in eight.
        let has = |group: u64| (100.0, if group < 8 { 5000.0 } else { 0.0 });
        let look = |maps: u64| {
            let mut seen: BTreeMap<TreeId, Vec<f64>> = BTreeMap::new();
            for part in 0..maps {
                let (of_large, of_small) = has((2 * part + 1) * 1024 / (2 * maps));
                seen.entry(large).or_default().push(of_large);
                if of_small > 0.0 {
                    seen.entry(small).or_default().push(of_small);
                }
            }
            estimated(&seen, maps, 1024, 16_000.0)
        };
        for maps in [1, 16, 64, 256] {
            let owners = look(maps);
            assert!(owners.of(large).covers(102_400.0) && owners.of(small).covers(40_000.0), "{owners:?}");
            assert!(!owners.of(small).is_exact() && !owners.of(TreeId(99)).is_exact(), "{owners:?}");
        }
        let all = look(1024);
        assert_eq!((all.of(large), all.of(small)), (Figure::exact(102_400), Figure::exact(40_000)));
        assert!(all.of(TreeId(99)).is_exact());
    }

    #[test]
    fn the_stores_own_trees_had_exactly_one_page_where_none_of_their_extents_was_seen() {
        let seen = BTreeMap::from([(SYSTEM, vec![3.0; 256]), (STATUS, vec![100.0; 256])]);
        let owners = estimated(&seen, 256, 512, 16_000.0).with_own_roots();
        let catalog = owners.of(CATALOG);
        assert!(catalog.value == 1.0 && catalog.covers(501.0), "{catalog:?}");
        assert!(!owners.of(STATUS).is_exact() && owners.of(STATUS).covers(51_201.0));
        assert_eq!(owners.of(SYSTEM), Figure::exact(3 * 512));
        // Where all was seen there are no others.
        let all = estimated(&BTreeMap::from([(SYSTEM, vec![6.0, 3.0])]), 2, 2, 16_000.0).with_own_roots();
        assert_eq!((all.of(CATALOG), all.of(SYSTEM)), (Figure::exact(1), Figure::exact(6)));
    }

    const PAGE: usize = 4096;
    const FILE: &str = "s.gnt";

    fn engine(disk: &SimDisk) -> Engine {
        let options = EngineOptions { memory: 16 << 20, ..EngineOptions::default() };
        Engine::with_disk(Arc::new(disk.clone()), &options).unwrap()
    }

    /// Statistics of a database whose file this is.
    fn statistics(bytes: &[u8], mode: StatMode) -> StatReport {
        let disk = SimDisk::new(2);
        let mut options = gannet_io::OpenOptions::read_write();
        options.create = true;
        let file = disk.open(Path::new(FILE), &options).unwrap();
        let mut buffer = AlignedBuffer::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        file.write_at(Class::Foreground, 0, &buffer, Durability::Durable).unwrap();
        drop(file);
        let open = OpenOptions { sweep: false, warm: false, ..OpenOptions::default() };
        let db = engine(&disk).open(Path::new(FILE), &open).unwrap();
        db.statistics(&StatOptions { mode, ..StatOptions::default() }).unwrap()
    }

    #[test]
    fn a_file_whose_map_is_damaged_was_called_free_and_exactly_so() {
        let disk = SimDisk::new(1);
        let create = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
        let db = engine(&disk).create(Path::new(FILE), &create, &OpenOptions::default()).unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree("t").unwrap();
        (0..2000_u64).for_each(|i| txn.insert(&tree, &i.to_be_bytes(), &[7; 100]).unwrap());
        txn.commit().unwrap();
        db.close().unwrap();
        let mut bytes = disk.contents(Path::new(FILE)).unwrap();
        let truth = statistics(&bytes, StatMode::Records);
        assert!(truth.space.free_pages.is_exact() && truth.space.system_pages == Figure::exact(3));
        let map = space::map_page(0, PAGE).0;
        bytes[map as usize * PAGE + 100] ^= 1;
        for mode in [StatMode::Instant, StatMode::Records] {
            let found = statistics(&bytes, mode);
            let named: Vec<u64> = found.unreadable.iter().map(|page| page.page).collect();
            assert_eq!(named, [map], "{mode:?}");
            let parts = |space: SpaceStat| {
                [space.free_pages, space.system_pages, space.undo_pages, space.passing_pages]
            };
            for (found, truth) in parts(found.space).iter().zip(parts(truth.space)) {
                assert!(!found.is_exact() && found.covers(truth.value), "{mode:?}: {found:?} {truth:?}");
                assert!(found.value >= 0.0, "{mode:?}: {found:?}");
            }
            assert_eq!(found.trees.len(), truth.trees.len());
            for (found, truth) in found.trees.iter().zip(&truth.trees) {
                let pages = found.pages;
                assert!(!pages.is_exact() && pages.covers(truth.pages.value), "{mode:?}: {found:?}");
            }
        }
        // No more is unknown than the file has.
        let free = statistics(&bytes, StatMode::Records).space.free_pages;
        assert_eq!(free.error, truth.space.file_pages as f64);
    }
}
