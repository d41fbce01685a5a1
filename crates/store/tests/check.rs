//! What a check finds: pages that verify, and contradict each other all the same. Each test changes some bytes of a closed
//! database as a bug or a device might have, seals the page again, and holds the findings against what was done.

use gannet_base::PageId;
use gannet_io::sim::SimDisk;
use gannet_io::{AlignedBuffer, Class, Disk, Durability as IoDurability, OpenOptions as FileOptions};
use gannet_store::node::{NodeMut, NodeRef};
use gannet_store::page::{self, PageKind};
use gannet_store::{
    CheckReport, CreateOptions, Database, Engine, EngineOptions, Error, JobKind, JobOrder, JobReport,
    JobState, OpenOptions, Stake, TransactionOptions, Watch,
};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

const FILE: &str = "c.gnt";
const PAGE: usize = 4096;
/// Where the header has the number of the database.
const DATABASE_ID_AT: usize = 48;
/// Where a space map has its first extent, and an index page of a long value its list.
const FIRST_DESCRIPTOR: usize = 64;
const LIST_COUNT_AT: usize = 32;
const LIST_AT: usize = 40;
const EXTENT_PAGES: usize = 16;
/// Of an undo record of something that was there before: where its key is, the number of its writer, and kinds.
const UNDO_HEADER: usize = 48;
const UNDO_WRITER_AT: usize = 8;
const UNDO_UPDATE: u8 = 2;
const UNDO_DELETE: u8 = 3;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 8 << 20, ..EngineOptions::default() }).unwrap()
}

fn open(disk: &SimDisk) -> Database {
    engine(disk).open(Path::new(FILE), &OpenOptions::default()).unwrap()
}

fn key(i: u64) -> Vec<u8> {
    format!("{i:05}").into_bytes()
}

/// Two trees of a few dozen leaves, one of them with a long value; some undo that nobody has swept.
fn create(disk: &SimDisk) -> Database {
    let options = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    let db = engine(disk).create(Path::new(FILE), &options, &OpenOptions::default()).unwrap();
    for name in ["one", "two"] {
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree(name).unwrap();
        for i in 0..800 {
            txn.put(&tree, &key(i), &[i as u8; 100]).unwrap();
        }
        txn.put(&tree, b"long", &vec![7; 3 * PAGE]).unwrap();
        txn.commit().unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        for i in 100..120 {
            txn.put(&tree, &key(i), b"changed").unwrap();
        }
        txn.commit().unwrap();
    }
    db
}

/// A closed database, page by page.
struct Image {
    disk: SimDisk,
    bytes: Vec<u8>,
}

impl Image {
    /// What a crash leaves of a disk.
    fn behind_a_crash(disk: &SimDisk) -> Self {
        let disk = disk.crash_image(1);
        let bytes = disk.contents(Path::new(FILE)).unwrap();
        Image { disk, bytes }
    }

    /// Page and place of the one undo record of a kind for keys that begin so.
    fn undo_record(&self, key: &[u8], kind: u8) -> (usize, usize) {
        let records = self.pages(PageKind::Undo).into_iter().filter_map(|(number, _)| {
            let page = self.page(number);
            let is_it = |at: &usize| page[*at + UNDO_HEADER..].starts_with(key) && page[*at + 2] == kind;
            (0..PAGE - UNDO_HEADER).find(is_it).map(|at| (number, at))
        });
        let [record] = records.collect::<Vec<_>>()[..] else { panic!("one record") };
        record
    }

    fn new() -> Self {
        let disk = SimDisk::new(1);
        create(&disk).close().unwrap();
        let bytes = disk.contents(Path::new(FILE)).unwrap();
        Image { disk, bytes }
    }

    fn page(&self, number: usize) -> &[u8] {
        &self.bytes[number * PAGE..(number + 1) * PAGE]
    }

    /// Pages of a kind, with a tree.
    fn pages(&self, kind: PageKind) -> Vec<(usize, u32)> {
        let of_kind = |&number: &usize| page::kind(self.page(number)) == Some(kind);
        let numbers = (0..self.bytes.len() / PAGE).filter(of_kind);
        numbers.map(|number| (number, page::tree(self.page(number)).0)).collect()
    }

    /// Leaves of the tree called `one`, but for its root, in the order of their keys.
    fn leaves(&self) -> Vec<usize> {
        let tree = self.pages(PageKind::Overflow)[0].1;
        let nodes = self.pages(PageKind::Node).into_iter().filter(|&(_, owner)| owner == tree);
        let leaf = |&number: &usize| NodeRef::new(self.page(number)).level() == 0;
        let mut leaves: Vec<usize> = nodes.map(|(number, _)| number).filter(leaf).collect();
        leaves.sort_by_key(|&number| NodeRef::new(self.page(number)).lower_fence().to_vec());
        leaves
    }

    /// Writes a page with a valid checksum.
    fn put(&mut self, number: usize, bytes: &[u8]) {
        let salt = u64::from_le_bytes(self.bytes[DATABASE_ID_AT..][..8].try_into().unwrap());
        let mut buffer = AlignedBuffer::zeroed(PAGE);
        buffer.copy_from_slice(bytes);
        page::seal(&mut buffer, PageId(number as u64), salt);
        let file = self.disk.open(Path::new(FILE), &FileOptions::read_write()).unwrap();
        let at = (number * PAGE) as u64;
        file.write_at(Class::Foreground, at, &buffer, IoDurability::Durable).unwrap();
        self.bytes[number * PAGE..(number + 1) * PAGE].copy_from_slice(&buffer);
    }

    fn change(&mut self, number: usize, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.page(number).to_vec();
        change(&mut bytes);
        self.put(number, &bytes);
    }

    /// Changes what the first space map says of the extent of a page.
    fn change_extent(&mut self, page: usize, change: impl FnOnce(&mut [u8])) {
        let at = FIRST_DESCRIPTOR + page / EXTENT_PAGES * 8;
        self.change(2, |map| change(&mut map[at..at + 8]));
    }

    fn check(&self) -> CheckReport {
        open(&self.disk).check().unwrap()
    }
}

/// That there is a finding on this page, and what it says; `stake` says what is at stake.
#[track_caller]
fn assert_found(report: &CheckReport, page: usize, what: &str, stake: impl Fn(&Stake) -> bool) {
    let fits = |finding: &&gannet_store::Finding| {
        finding.page.0 == page as u64 && finding.what.contains(what) && stake(&finding.stake)
    };
    assert!(report.findings.iter().any(|finding| fits(&finding)), "page {page}: {:#?}", report.findings);
}

#[test]
fn a_sound_database_has_no_findings_and_figures_that_make_sense() {
    let image = Image::new();
    let report = image.check();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    assert_eq!(report.trees, 5);
    // How many undo records there are, sweep decides.
    assert!(report.entries >= 1602 && report.pages > 60, "{report:?}");
    assert!(report.bytes_read >= report.pages * PAGE as u64);
}

#[test]
fn a_leaf_in_the_place_of_another_one_is_named_with_the_keys_that_are_gone() {
    let mut image = Image::new();
    let leaves = image.leaves();
    let (wrong, place) = (image.page(leaves[3]).to_vec(), leaves[5]);
    let lower = NodeRef::new(image.page(place)).lower_fence().to_vec();
    image.put(place, &wrong);
    let report = image.check();
    let keys = |stake: &Stake| matches!(stake, Stake::Rows { lower: from, .. } if *from == lower);
    assert_found(&report, place, "covers other keys", keys);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert_eq!(report.findings[0].name.as_deref(), Some("one"));
}

/// A scan began it again and again, a write put rows into the wrong leaf.
#[test]
fn a_leaf_in_the_place_of_another_one_was_taken_for_that() {
    let mut image = Image::new();
    let leaves = image.leaves();
    let (wrong, place) = (image.page(leaves[3]).to_vec(), leaves[5]);
    let gone = NodeRef::new(image.page(place)).lower_fence().to_vec();
    image.put(place, &wrong);
    let db = open(&image.disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("one").unwrap().unwrap();
    let refused = |error: Error| {
        let Error::Damaged(what) = &error else { panic!("{error}") };
        assert!(what.contains(&format!("page {place}: covers other keys than its parent says")), "{what}");
    };
    refused(txn.get(&tree, &gone).unwrap_err());
    refused(txn.put(&tree, &gone, b"new").unwrap_err());
    let view = txn.view();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let (mut scan, mut seen) = (view.scan(&tree, all).unwrap(), 0);
    let error = loop {
        match scan.next() {
            Ok(row) => assert!(row.is_some() && seen < 802),
            Err(error) => break error,
        }
        seen += 1;
    };
    refused(error);
    let mut scan = view.scan(&tree, all).unwrap();
    let error = loop {
        match scan.previous() {
            Ok(row) => assert!(row.is_some() && seen < 802),
            Err(error) => break error,
        }
        seen += 1;
    };
    refused(error);
    assert_eq!(txn.get(&tree, &key(799)).unwrap().unwrap(), [31; 100]);
}

/// The opening went through the same trees for ever.
#[test]
fn a_leaf_of_the_catalog_in_the_place_of_another_one_kept_an_opening_from_ending() {
    let disk = SimDisk::new(1);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    for number in 0..60 {
        txn.create_tree(&format!("{number:0250}")).unwrap();
    }
    txn.commit().unwrap();
    db.close().unwrap();
    let bytes = disk.contents(Path::new(FILE)).unwrap();
    let mut image = Image { disk, bytes };
    let of_catalog = |(number, tree): (usize, u32)| {
        (tree == 1 && NodeRef::new(image.page(number)).level() == 0).then_some(number)
    };
    let mut leaves: Vec<usize> = image.pages(PageKind::Node).into_iter().filter_map(of_catalog).collect();
    leaves.sort_by_key(|&number| NodeRef::new(image.page(number)).lower_fence().to_vec());
    let wrong = image.page(leaves[1]).to_vec();
    image.put(leaves[3], &wrong);
    let opened = engine(&image.disk).open(Path::new(FILE), &OpenOptions::default());
    let error = opened.map(drop).unwrap_err().to_string();
    assert!(error.contains("covers other keys than its parent says"), "{error}");
}

/// Nothing of the database could be had.
#[test]
fn a_tree_of_which_a_crash_has_left_undo_that_cannot_be_read_kept_the_database_shut() {
    let disk = SimDisk::new(1);
    let db = create(&disk);
    let mut dropping = db.begin(TransactionOptions::default());
    assert!(dropping.drop_tree("one").unwrap());
    db.checkpoint().unwrap();
    let mut image = Image::behind_a_crash(&disk);
    let (page, at) = image.undo_record(b"one", UNDO_DELETE);
    image.change(page, |page| page[at + UNDO_WRITER_AT] ^= 0x40);
    let db = open(&image.disk);
    let mut txn = db.begin(TransactionOptions::default());
    let two = txn.tree("two").unwrap().unwrap();
    assert_eq!(txn.get(&two, &key(799)).unwrap().unwrap(), [31; 100]);
    let error = txn.put(&two, &key(799), b"new").unwrap_err().to_string();
    assert!(error.contains("what tree \"one\" was before the crash is damaged"), "{error}");
}

/// Of values that only undo leads to it was said that nothing does.
#[test]
fn undo_that_cannot_be_read_made_sound_long_values_lost_space() {
    let disk = SimDisk::new(1);
    let db = create(&disk);
    // It keeps sweep from the value.
    let mut reader = db.begin(TransactionOptions::default());
    let tree = reader.tree("one").unwrap().unwrap();
    let _view = reader.view();
    let mut txn = db.begin(TransactionOptions::default());
    txn.put(&tree, b"long", b"short").unwrap();
    txn.commit().unwrap();
    db.checkpoint().unwrap();
    let mut image = Image::behind_a_crash(&disk);
    let (page, at) = image.undo_record(b"long", UNDO_UPDATE);
    image.change(page, |page| page[at + 2] = 99);
    let report = image.check();
    assert_found(&report, page, "no undo record", |stake| *stake == Stake::History);
    assert!(report.findings.iter().all(|finding| finding.stake == Stake::History), "{:#?}", report.findings);
}

/// A check of a database that is open failed, or knew of no lost writes without a word.
#[test]
fn a_log_footer_that_is_damaged_is_found() {
    let disk = SimDisk::new(1);
    let db = create(&disk);
    let segment = 1 << 18;
    let folder = format!("{FILE}-wal");
    let last = db.stats().end_lsn.0 / segment;
    assert!(last > 0);
    let path = Path::new(&folder).join(format!("{:016x}.log", last - 1));
    assert!(db.check().unwrap().findings.is_empty());
    disk.corrupt(&path, segment - 100, 8, 1).unwrap();
    let report = db.check().unwrap();
    assert_found(&report, 0, "its footer is missing or damaged", |stake| *stake == Stake::Log);
    assert_eq!((report.findings.len(), report.compared_with_log), (1, 0), "{:#?}", report.findings);
    // That log is not needed any more.
    db.checkpoint().unwrap();
    assert!(db.check().unwrap().findings.is_empty());
}

#[test]
fn a_tree_that_somebody_may_drop_is_there_until_he_commits() {
    let mut image = Image::new();
    let leaves = image.leaves();
    let (wrong, place) = (image.page(leaves[3]).to_vec(), leaves[5]);
    image.put(place, &wrong);
    let db = open(&image.disk);
    let mut dropping = db.begin(TransactionOptions::default());
    assert!(dropping.drop_tree("one").unwrap());
    // As with TRUNCATE: another one has its name.
    dropping.create_tree("one").unwrap();
    let report = db.check().unwrap();
    assert_found(&report, place, "covers other keys", |stake| matches!(stake, Stake::Rows { .. }));
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert_eq!(report.findings[0].name.as_deref(), Some("one"));
    dropping.rollback().unwrap();
    assert_eq!(db.check().unwrap().findings.len(), 1);
}

#[test]
fn a_page_of_another_tree_is_named() {
    let mut image = Image::new();
    let place = image.leaves()[4];
    image.change(place, |page| page[16] ^= 1);
    assert_found(&image.check(), place, "belongs to", |stake| matches!(stake, Stake::Rows { .. }));
}

#[test]
fn a_leaf_whose_slots_are_out_of_order_is_named() {
    let mut image = Image::new();
    let place = image.leaves()[4];
    image.change(place, |page| page.copy_within(48..56, 64));
    assert_found(&image.check(), place, "", |stake| matches!(stake, Stake::Rows { .. }));
}

#[test]
fn an_entry_that_makes_no_sense_is_named_by_its_key() {
    let mut image = Image::new();
    let place = image.leaves()[4];
    let mut lost = Vec::new();
    NodeRef::new(image.page(place)).copy_key(2, &mut lost);
    image.change(place, |page| {
        let mut payload = NodeRef::new(page).payload(2).to_vec();
        payload[0] = 0x80;
        assert!(NodeMut::new(page).replace(2, &payload));
    });
    let report = image.check();
    let keys = |stake: &Stake| matches!(stake, Stake::Rows { lower, .. } if *lower == lost);
    assert_found(&report, place, "makes no sense", keys);
}

#[test]
fn an_inner_node_that_leads_to_the_wrong_children_is_found_out() {
    let mut image = Image::new();
    let leaves = image.leaves();
    let is_parent = |number: &usize| {
        let node = NodeRef::new(image.page(*number));
        node.level() == 1 && (0..node.count()).any(|slot| node.child(slot).0 == leaves[3] as u64)
    };
    let parent = image.pages(PageKind::Node).into_iter().map(|(number, _)| number).find(is_parent).unwrap();
    let slots: Vec<usize> = [leaves[3], leaves[4]]
        .iter()
        .map(|&leaf| {
            let node = NodeRef::new(image.page(parent));
            (0..node.count()).find(|&slot| node.child(slot).0 == leaf as u64).unwrap()
        })
        .collect();
    // Two children change places.
    image.change(parent, |page| {
        for (slot, leaf) in slots.iter().zip([leaves[4], leaves[3]]) {
            assert!(NodeMut::new(page).replace(*slot, &(leaf as u64).to_le_bytes()));
        }
    });
    let report = image.check();
    for leaf in [leaves[3], leaves[4]] {
        assert_found(&report, leaf, "covers other keys", |stake| matches!(stake, Stake::Rows { .. }));
    }
    // One is referred to twice, the other one not at all.
    image.change(parent, |page| {
        assert!(NodeMut::new(page).replace(slots[0], &(leaves[3] as u64).to_le_bytes()));
        assert!(NodeMut::new(page).replace(slots[1], &(leaves[3] as u64).to_le_bytes()));
    });
    // What was in that one is at stake there, not the space that it takes.
    let report = image.check();
    assert_found(&report, leaves[3], "covers other keys", |stake| matches!(stake, Stake::Rows { .. }));
    assert!(report.findings.iter().all(|finding| finding.stake != Stake::Space), "{:#?}", report.findings);
    // Behind the end of the file.
    image.change(parent, |page| {
        assert!(NodeMut::new(page).replace(slots[0], &(1_u64 << 40).to_le_bytes()));
    });
    let report = image.check();
    let beyond = |finding: &gannet_store::Finding| finding.page.0 == 1 << 40;
    assert!(report.findings.iter().any(beyond), "{:#?}", report.findings);
}

#[test]
fn a_page_in_use_that_is_marked_as_free_is_named() {
    let mut image = Image::new();
    let place = image.leaves()[4];
    image.change_extent(place, |extent| extent[place % 16 / 8] &= !(1 << (place % 8)));
    let report = image.check();
    assert_found(&report, place, "marked as free", |stake| *stake == Stake::Allocation);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
}

#[test]
fn an_extent_of_another_owner_is_named() {
    let mut image = Image::new();
    let place = image.leaves()[4];
    let other = image.pages(PageKind::Overflow).last().unwrap().1;
    image.change_extent(place, |extent| extent[4..8].copy_from_slice(&other.to_le_bytes()));
    let report = image.check();
    assert_found(&report, place, "belongs to", |_| true);
    // And one of a tree that there never was.
    image.change_extent(place, |extent| extent[4..8].copy_from_slice(&999_u32.to_le_bytes()));
    let report = image.check();
    assert_found(&report, place, "its extent belongs to tree 999", |stake| *stake == Stake::Allocation);
    assert!(report.findings.iter().any(|finding| finding.what.contains("never was dropped")));
}

#[test]
fn space_that_nobody_uses_is_named() {
    let mut image = Image::new();
    let file = image.bytes.len() / PAGE;
    let free = file / EXTENT_PAGES * EXTENT_PAGES - EXTENT_PAGES;
    let tree = image.pages(PageKind::Overflow)[0].1;
    for (owner, undo) in [(tree, false), (4, true), (999, false)] {
        image.change_extent(free, |extent| {
            extent[..2].copy_from_slice(&if undo { u16::MAX } else { 1 }.to_le_bytes());
            extent[4..8].copy_from_slice(&owner.to_le_bytes());
        });
        let report = image.check();
        assert_found(&report, free, "", |stake| *stake == Stake::Space);
        assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    }
    image.change_extent(free, |extent| extent[4..8].fill(0));
    assert_found(&image.check(), free, "its extent is free", |stake| *stake == Stake::Allocation);
}

#[test]
fn a_list_of_a_long_value_that_is_too_short_or_leads_astray_is_named() {
    let mut image = Image::new();
    let list = image.pages(PageKind::OverflowIndex)[0].0;
    let sound = image.page(list).to_vec();
    let of_long = |stake: &Stake| matches!(stake, Stake::Value { key } if key == b"long");
    let count = u16::from_le_bytes([sound[LIST_COUNT_AT], sound[LIST_COUNT_AT + 1]]);
    image.change(list, |page| page[LIST_COUNT_AT..][..2].copy_from_slice(&(count - 1).to_le_bytes()));
    assert_found(&image.check(), list, "its list has", of_long);
    image.put(list, &sound);
    let leaf = image.leaves()[2];
    image.change(list, |page| page[LIST_AT..][..8].copy_from_slice(&(leaf as u64).to_le_bytes()));
    assert_found(&image.check(), leaf, "kind Node", of_long);
    image.put(list, &sound);
    image.change(list, |page| page[LIST_COUNT_AT..][..2].fill(0xFF));
    assert_found(&image.check(), list, "more pages", of_long);
    image.put(list, &sound);
    assert!(image.check().findings.is_empty());
}

#[test]
fn a_page_of_two_long_values_is_named_with_both_also_while_the_database_is_in_use() {
    let disk = SimDisk::new(1);
    let db = create(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let one = txn.tree("one").unwrap().unwrap();
    txn.put(&one, b"longer", &vec![8; 5 * PAGE]).unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
    let bytes = disk.contents(Path::new(FILE)).unwrap();
    let mut image = Image { disk, bytes };
    let lists = image.pages(PageKind::OverflowIndex);
    let of_one: Vec<usize> =
        lists.iter().filter(|(_, tree)| *tree == lists[0].1).map(|(number, _)| *number).collect();
    assert_eq!((lists.len(), of_one.len()), (3, 2));
    let shared: [u8; 8] = image.page(of_one[0])[LIST_AT..][..8].try_into().unwrap();
    image.change(of_one[1], |page| page[LIST_AT..][..8].copy_from_slice(&shared));
    let shared = u64::from_le_bytes(shared) as usize;
    let assert_named = |report: &CheckReport| {
        for named in [&b"long"[..], b"longer"] {
            let of_it = |stake: &Stake| matches!(stake, Stake::Value { key } if key == named);
            assert_found(report, shared, "two long values, of the keys \"long\" and \"longer\"", of_it);
        }
    };
    assert_named(&image.check());
    // Somebody is in the middle of something.
    let db = open(&image.disk);
    let mut txn = db.begin(TransactionOptions::default());
    let two = txn.tree("two").unwrap().unwrap();
    txn.put(&two, b"longest", &vec![9; 9 * PAGE]).unwrap();
    assert_named(&db.check().unwrap());
}

#[test]
fn a_write_that_was_lost_is_found_as_long_as_somebody_knows_of_it() {
    let disk = SimDisk::new(2);
    let db = create(&disk);
    db.checkpoint().unwrap();
    let before = disk.contents(Path::new(FILE)).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("one").unwrap().unwrap();
    txn.put(&tree, &key(300), b"lost").unwrap();
    txn.commit().unwrap();
    db.checkpoint().unwrap();
    let after = disk.contents(Path::new(FILE)).unwrap();
    assert!(db.check().unwrap().findings.is_empty());
    let lost = (2..before.len() / PAGE)
        .find(|&number| {
            let (old, new) = (&before[number * PAGE..][..PAGE], &after[number * PAGE..][..PAGE]);
            old != new && page::kind(new) == Some(PageKind::Node)
        })
        .unwrap();
    let mut buffer = AlignedBuffer::zeroed(PAGE);
    buffer.copy_from_slice(&before[lost * PAGE..][..PAGE]);
    let file = disk.open(Path::new(FILE), &FileOptions::read_write()).unwrap();
    file.write_at(Class::Foreground, (lost * PAGE) as u64, &buffer, IoDurability::Durable).unwrap();
    assert_found(&db.check().unwrap(), lost, "a write was lost", |stake| *stake == Stake::LostWrite);
}

#[test]
fn a_check_ends_when_it_is_asked_to() {
    let disk = SimDisk::new(3);
    let db = create(&disk);
    let mut told = 0;
    let job = db.jobs().begin(JobOrder::new(JobKind::Check));
    let mut tell = |report: &JobReport| {
        if report.total == 0 {
            // It has not begun: what comes after every opening is not through yet.
            return Ok(());
        }
        told += 1;
        assert!(report.done <= report.total, "{report:?}");
        assert_eq!(report.state, JobState::Running);
        Err(Error::Cancelled)
    };
    let ended = job.end(db.check_watched(&mut Watch::new(&job, &mut tell)));
    assert!(matches!(ended, Err(Error::Cancelled)) && told == 1, "{ended:?}");
    drop(job);
    let report = &db.jobs().reports()[0];
    assert_eq!((report.kind, report.state), (JobKind::Check, JobState::Cancelled));
    assert!(!db.jobs().cancel(report.id));
    assert!(db.check().unwrap().findings.is_empty());
}

#[test]
fn a_check_leaves_the_budget_as_it_was() {
    let disk = SimDisk::new(4);
    let db = create(&disk);
    let used = db.engine().budget().used();
    assert!(db.check().unwrap().findings.is_empty());
    assert_eq!(db.engine().budget().used(), used);
    assert!(db.engine().budget().peak() <= db.engine().budget().limit());
}
