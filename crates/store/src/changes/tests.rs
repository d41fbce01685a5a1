//! The list of changed pages by itself, over a log that says what it is to say; what happens while it is merged.

use super::*;
use crate::log::{GroupBuilder, LogOptions};
use crate::work::Lender;
use gannet_io::sim::SimDisk;
use gannet_io::stats::Stats;
use gannet_io::{Queue, Result as IoResult};
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;

const SEGMENT: u64 = 256 << 10;
const FOLDER: &str = "/db.gnt-wal";
const LIST: &str = "/db.gnt-wal/changes";
const SALT: u64 = 77;
const PAGE_SIZE: usize = 4096;

type Action = Box<dyn FnOnce() + Send>;

/// A disk on which something else is done, once, when a file is made: as another thread would that comes in between.
struct Meanwhile {
    disk: SimDisk,
    action: Mutex<Option<Action>>,
}

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meanwhile").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl Disk for Meanwhile {
    fn open(&self, path: &Path, options: &OpenOptions) -> IoResult<Arc<dyn File>> {
        let file = self.disk.open(path, options)?;
        if options.create {
            // What it does may make files, too.
            let action = self.action.lock().take();
            if let Some(action) = action {
                action();
            }
        }
        Ok(file)
    }

    fn exists(&self, path: &Path) -> IoResult<bool> {
        self.disk.exists(path)
    }

    fn list(&self, folder: &Path) -> IoResult<Vec<String>> {
        self.disk.list(folder)
    }

    fn create_dir(&self, folder: &Path) -> IoResult<()> {
        self.disk.create_dir(folder)
    }

    fn remove_dir(&self, folder: &Path) -> IoResult<()> {
        self.disk.remove_dir(folder)
    }

    fn remove(&self, path: &Path) -> IoResult<()> {
        self.disk.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> IoResult<()> {
        self.disk.rename(from, to)
    }

    fn sync_dir(&self, folder: &Path) -> IoResult<()> {
        self.disk.sync_dir(folder)
    }

    fn lock(&self, path: &Path) -> IoResult<Box<dyn Any + Send + Sync>> {
        self.disk.lock(path)
    }

    fn resolve(&self, path: &Path) -> IoResult<PathBuf> {
        self.disk.resolve(path)
    }

    fn free_bytes(&self, folder: &Path) -> IoResult<Option<u64>> {
        self.disk.free_bytes(folder)
    }

    fn queue(&self, depth: usize) -> IoResult<Arc<dyn Queue>> {
        self.disk.queue(depth)
    }

    fn stats(&self) -> &Stats {
        self.disk.stats()
    }
}

/// A log, and the list of what it has changed.
struct Fixture {
    sim: SimDisk,
    disk: Arc<Meanwhile>,
    log: Log,
    changes: Changes,
    meta: Meta,
    budget: Budget,
    /// Pages of the file, which grows with what is changed.
    pages: Mutex<u64>,
}

impl Fixture {
    /// With a list that begins where the log does, and is long enough to be merged.
    fn new() -> Arc<Self> {
        let sim = SimDisk::new(1);
        let plain: Arc<dyn Disk> = Arc::new(sim.clone());
        let budget = Budget::new(64 << 20);
        let options = LogOptions { segment_size: SEGMENT, ring_size: SEGMENT / 2, ..LogOptions::new(SALT) };
        let log = Log::create(&plain, Path::new(FOLDER), &options, Lsn::ZERO, 1, &budget).unwrap();
        let disk = Arc::new(Meanwhile { disk: sim.clone(), action: Mutex::new(None) });
        let of_changes: Arc<dyn Disk> = Arc::clone(&disk) as _;
        let changes = Changes::new(&of_changes, LIST.into(), ModeRequest::Auto, SALT, &log);
        let meta = Meta {
            page_size: PAGE_SIZE,
            database_id: SALT,
            sequence: 1,
            incarnation: 1,
            clean: false,
            redo_from: Lsn::ZERO,
            log_end: Lsn::ZERO,
            log_crc: None,
            groups: 1,
            next_txn: 1,
            segment_size: SEGMENT,
            lives: vec![Life { id: 5, from: Lsn::ZERO }],
            homes_from: Lsn::ZERO,
            archived: false,
            cut_at: Lsn::ZERO,
            roots: [PageId(3), PageId(4), PageId(5)],
        };
        let fixture = Fixture { sim, disk, log, changes, meta, budget, pages: Mutex::new(16) };
        fixture.changes.mark(&fixture.meta, Lsn::ZERO);
        fixture.grow(30);
        Arc::new(fixture)
    }

    /// Changes pages that the file did not have before, until so many segments are full, and takes notice of them.
    fn grow(&self, segments: u64) {
        let mut pages = self.pages.lock();
        let end = self.log.end().0 + segments * SEGMENT;
        while self.log.end().0 < end {
            let mut group = GroupBuilder::new();
            group.change(PageId(*pages), Lsn::ZERO, 3, true, |out| out.resize(out.len() + 8000, 1));
            // Some pages lie far from each other.
            *pages += 1 + *pages % 5 * 20;
            self.log.append(&group).unwrap();
        }
        self.log.flush_to(self.log.end()).unwrap();
        self.changes.fold(&self.meta, self.log.durable());
    }

    fn pages(&self) -> u64 {
        *self.pages.lock()
    }

    fn since(&self, since: Lsn) -> Since {
        let memory = Lender::new(self.budget.clone()).memory(Purpose::Work, 0).unwrap();
        self.changes.since(&self.meta, since, GrowingSet::new(memory)).unwrap()
    }

    /// The list knows just what the log says, all of which is still there.
    fn assert_knows(&self, since: Lsn) {
        let (mut logged, mut behind) = (BTreeSet::new(), BTreeSet::new());
        let mut footers = Lender::new(self.budget.clone()).memory(Purpose::Log, 0).unwrap();
        self.log
            .changed_pages(since, &mut footers, &mut |page, last| {
                logged.insert(page);
                if last > since {
                    behind.insert(page);
                }
            })
            .unwrap();
        assert!(logged.len() > 100, "{} pages", logged.len());
        let set = match self.since(since) {
            Since::Pages(set, _) => set,
            Since::Unknown(why) => panic!("{why}"),
        };
        let lost: Vec<_> = behind.iter().filter(|page| !set.has(**page)).collect();
        assert!(lost.is_empty(), "{} of {} pages are not in the list: {lost:?}", lost.len(), behind.len());
        // Of a segment that is in the list all are known.
        assert!(
            pages_of(&set).all(|page| logged.contains(&page)),
            "the list knows of changes that there were not"
        );
    }

    fn assert_unknown(&self, since: Lsn, why: &str) {
        match self.since(since) {
            Since::Pages(..) => panic!("it is believed"),
            Since::Unknown(said) => assert!(said.contains(why), "{said}"),
        }
    }

    fn len(&self) -> usize {
        self.sim.contents(Path::new(LIST)).unwrap().len()
    }

    /// As the background does it now and then.
    fn merge(&self) {
        self.changes.merge_when_long(&self.budget, PAGE_SIZE, || self.pages());
    }
}

fn pages_of(set: &PageSet) -> impl Iterator<Item = PageId> {
    std::iter::successors(set.next(PageId(0)), |page| set.next(PageId(page.0 + 1)))
}

#[test]
fn within_the_last_segment_it_is_known_what_came_first() {
    let fixture = Fixture::new();
    let changed = |since| match fixture.since(since) {
        Since::Pages(set, _) => pages_of(&set).collect::<Vec<_>>(),
        Since::Unknown(why) => panic!("{why}"),
    };
    let mut group = GroupBuilder::new();
    group.change(PageId(3), Lsn::ZERO, 3, true, |out| out.resize(out.len() + 10, 1));
    group.change(PageId(5), Lsn::ZERO, 3, true, |out| out.resize(out.len() + 10, 1));
    fixture.log.append(&group).unwrap();
    let since = fixture.log.end();
    assert_eq!(changed(since), []);
    let mut group = GroupBuilder::new();
    group.change(PageId(5), Lsn::ZERO, 3, true, |out| out.resize(out.len() + 10, 1));
    fixture.log.append(&group).unwrap();
    assert_eq!(changed(since), [PageId(5)]);
}

#[test]
fn merging_changes_nothing_but_the_length() {
    let fixture = Fixture::new();
    fixture.assert_knows(Lsn::ZERO);
    let before = fixture.len();
    fixture.merge();
    assert!(fixture.len() < before / 4, "{} of {before} bytes", fixture.len());
    fixture.assert_knows(Lsn::ZERO);
    // It goes on.
    fixture.grow(3);
    fixture.assert_knows(Lsn::ZERO);
}

#[test]
fn pages_that_are_added_before_the_list_is_read_to_be_merged_stay_in_it() {
    let fixture = Fixture::new();
    let before = fixture.len();
    fixture.changes.merge_when_long(&fixture.budget, PAGE_SIZE, || {
        let pages = fixture.pages();
        // The page writer is quicker: the file has more pages than this by now, and the list has them.
        fixture.grow(5);
        pages
    });
    assert!(fixture.len() < before, "it was merged");
    fixture.assert_knows(Lsn::ZERO);
}

#[test]
fn what_is_appended_while_the_merged_list_is_written_stays_in_it() {
    let fixture = Fixture::new();
    let before = fixture.len();
    let start = fixture.log.end();
    let beside = Arc::clone(&fixture);
    *fixture.disk.action.lock() = Some(Box::new(move || {
        // A backup, too.
        beside.changes.mark(&beside.meta, beside.log.end());
        beside.grow(5);
    }));
    fixture.merge();
    assert!(fixture.disk.action.lock().is_none() && fixture.len() < before, "it was merged meanwhile");
    fixture.assert_knows(Lsn::ZERO);
    fixture.assert_knows(start);
    // So does the file, for whoever opens it.
    let disk: Arc<dyn Disk> = Arc::new(fixture.sim.clone());
    let again = Changes::new(&disk, LIST.into(), ModeRequest::Auto, SALT, &fixture.log);
    let memory = Lender::new(fixture.budget.clone()).memory(Purpose::Work, 0).unwrap();
    let meta = Meta { redo_from: fixture.log.durable(), ..fixture.meta.clone() };
    match again.since(&meta, Lsn::ZERO, GrowingSet::new(memory)).unwrap() {
        Since::Pages(set, _) => assert!(set.has(PageId(16)) && set.pages() >= fixture.pages() - 101),
        Since::Unknown(why) => panic!("{why}"),
    }
}

#[test]
fn space_maps_behind_the_end_of_the_file_stay_in_the_list_where_other_pages_go() {
    let fixture = Fixture::new();
    let map = crate::space::map_page(20, PAGE_SIZE);
    // The file had so many groups before it was cut.
    for page in [map, PageId(map.0 + 1)] {
        let mut group = GroupBuilder::new();
        group.change(page, Lsn::ZERO, 3, true, |out| out.resize(out.len() + 8000, 1));
        fixture.log.append(&group).unwrap();
    }
    fixture.grow(2);
    let end = fixture.pages();
    assert!(end < map.0, "{end} pages");
    let before = fixture.len();
    fixture.merge();
    assert!(fixture.len() < before, "it was merged");
    let Since::Pages(set, _) = fixture.since(Lsn::ZERO) else { panic!("it is not known") };
    assert!(set.has(map) && !set.has(PageId(map.0 + 1)));
}

#[test]
fn a_list_that_begins_while_the_one_before_is_merged_is_the_one_that_counts() {
    let fixture = Fixture::new();
    let start = fixture.log.end();
    let beside = Arc::clone(&fixture);
    *fixture.disk.action.lock() = Some(Box::new(move || {
        beside.changes.end(&mut beside.changes.state.lock(), "a planned failure");
        beside.changes.mark(&beside.meta, beside.log.end());
        beside.grow(5);
    }));
    fixture.merge();
    assert!(fixture.disk.action.lock().is_none(), "it was merged meanwhile");
    fixture.assert_unknown(Lsn::ZERO, "begins later");
    fixture.assert_knows(start);
    fixture.grow(2);
    fixture.assert_knows(start);
}

#[test]
fn a_list_with_an_entry_in_the_place_of_another_one_is_not_believed() {
    let fixture = Fixture::new();
    // A mark, and entries of two blocks each.
    let (len, first) = (2 * BLOCK, BLOCK);
    let list = fixture.sim.open(Path::new(LIST), &OpenOptions::read_write()).unwrap();
    let mut entry = AlignedBuffer::zeroed(len);
    list.read_at(Class::Maintenance, (first + len) as u64, &mut entry).unwrap();
    list.write_at(Class::Maintenance, first as u64, &entry, Durability::Durable).unwrap();
    let before = fixture.len();
    fixture.merge();
    assert_eq!(fixture.len(), before, "it is not merged");
    fixture.assert_unknown(Lsn::ZERO, "it is damaged");
}
