//! Statistics against what was really done: everything counted agrees with a model, and what is estimated is off by no more than
//! it says.

use gannet_io::Disk;
use gannet_io::sim::SimDisk;
use gannet_store::node::NodeRef;
use gannet_store::page::{self, PageKind};
use gannet_store::{
    BackupOptions, BackupPlace, CreateOptions, Database, Destination, Engine, EngineOptions, Error, Figure,
    Isolation, JobKind, JobOrder, JobState, Leading, Manifest, OpenOptions, StatMode, StatOptions,
    StatReport, Transaction, TransactionOptions, Tree, TreeContents, Watch, thread_reads,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const FILE: &str = "s.gnt";
const PAGE: usize = 4096;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 16 << 20, ..EngineOptions::default() }).unwrap()
}

fn create(disk: &SimDisk) -> Database {
    let options = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    engine(disk).create(Path::new(FILE), &options, &OpenOptions::default()).unwrap()
}

fn open(disk: &SimDisk) -> Database {
    engine(disk).open(Path::new(FILE), &OpenOptions::default()).unwrap()
}

fn begin(db: &Database) -> Transaction {
    db.begin(TransactionOptions::default())
}

/// A snapshot that is held until it is dropped.
fn hold(db: &Database) -> Transaction {
    let options =
        TransactionOptions { isolation: Isolation::RepeatableRead, ..TransactionOptions::default() };
    let mut txn = db.begin(options);
    txn.trees().unwrap();
    txn
}

fn key(i: u64) -> Vec<u8> {
    format!("{i:06}").into_bytes()
}

fn records() -> StatOptions {
    StatOptions { mode: StatMode::Records, ..StatOptions::default() }
}

fn contents(report: &StatReport, name: &str) -> TreeContents {
    let tree = report.trees.iter().find(|tree| tree.name.as_deref() == Some(name)).unwrap();
    tree.contents.clone().unwrap_or_else(|| panic!("{tree:?}"))
}

fn exact(value: u64) -> Figure {
    Figure::exact(value)
}

/// What holds of any tree of which everything was counted.
#[track_caller]
fn agrees_with_itself(report: &StatReport, name: &str) {
    let tree = report.trees.iter().find(|tree| tree.name.as_deref() == Some(name)).unwrap();
    let c = contents(report, name);
    let unwritten = c.unwritten_pages.map_or(0.0, |pages| pages.value);
    let kinds = c.leaf_pages.value + c.inner_pages.value + c.long_value_pages.value + unwritten;
    assert_eq!(kinds, tree.pages.value, "{tree:?}");
    assert_eq!(c.fill_leaves.iter().map(|leaves| leaves.value).sum::<f64>(), c.leaf_pages.value);
    assert_eq!(c.order.steps as f64, c.leaf_pages.value - 1.0, "{tree:?}");
    let used = c.fill_percent.value + c.free_percent.value;
    assert!((used - 100.0).abs() < 1e-6, "{tree:?}");
    assert_eq!(c.free_bytes.value, c.free_percent.value / 100.0 * c.leaf_pages.value * PAGE as f64);
}

/// A tree with rows that were inserted, changed, deleted and locked, by transactions that have ended and by one that has not.
struct Story {
    db: Database,
    _old: Transaction,
    _open: Transaction,
}

const ROWS: u64 = 2000;
const DELETED: u64 = 300;
const UPDATED: u64 = 50;
const LONG: u64 = 5;

fn story(disk: &SimDisk) -> Story {
    let db = create(disk);
    let mut txn = begin(&db);
    let tree = txn.create_tree("rows").unwrap();
    for i in 0..ROWS {
        txn.insert(&tree, &key(i), &[7; 100]).unwrap();
    }
    txn.commit().unwrap();
    // From now on the background has nothing to sweep.
    db.sweep().unwrap();
    let old = hold(&db);
    let mut txn = begin(&db);
    (0..DELETED).for_each(|i| assert!(txn.delete(&tree, &key(i * 3)).unwrap()));
    for i in 0..UPDATED {
        txn.put(&tree, &key(1000 + i), &[8; 60]).unwrap();
    }
    for i in 0..LONG {
        txn.insert(&tree, format!("long {i}").as_bytes(), &vec![9; 3 * PAGE]).unwrap();
    }
    txn.commit().unwrap();
    let mut txn = begin(&db);
    for i in 0..7 {
        txn.insert(&tree, &key(5000 + i), b"not yet").unwrap();
        txn.put(&tree, &key(5000 + i), b"not yet either").unwrap();
    }
    for i in 0..4 {
        txn.put(&tree, &key(1500 + i), &[8; 100]).unwrap();
        txn.delete(&tree, &key(1600 + i)).unwrap();
    }
    Story { db, _old: old, _open: txn }
}

#[test]
fn what_is_counted_is_what_was_done() {
    let story = story(&SimDisk::new(1));
    let report = story.db.statistics(&records()).unwrap();
    let rows = contents(&report, "rows");
    let live = ROWS - DELETED + LONG;
    assert_eq!(rows.rows, exact(live));
    assert_eq!(rows.dead_entries, exact(DELETED));
    assert_eq!(rows.uncommitted_entries, exact(7 + 4 + 4));
    assert_eq!(rows.entries, exact(ROWS + LONG + 7));
    assert_eq!(rows.unsettled_entries, exact(DELETED + UPDATED + LONG + 15));
    // Deletes and updates that committed, those that have not, and each second version of a row that is new.
    assert_eq!(rows.old_versions, Some(exact(DELETED + UPDATED + 4 + 4 + 7)));
    assert!(rows.old_version_bytes.unwrap().value > (DELETED + UPDATED) as f64 * 100.0);
    assert_eq!((rows.long_values, rows.long_value_bytes), (exact(LONG), exact(LONG * 3 * PAGE as u64)));
    // Four pages of 4072 bytes, and a list.
    assert_eq!(rows.long_value_pages, exact(LONG * 5));
    let inline = (ROWS - DELETED - UPDATED - 4) * 100 + UPDATED * 60 + 7 * 14;
    assert_eq!(rows.value_bytes, exact(inline));
    assert_eq!(rows.key_bytes, exact((ROWS - DELETED - 4 + 7 + LONG) * 6));
    assert_eq!((rows.depth, rows.duplicates), (2, None));
    agrees_with_itself(&report, "rows");
    assert_eq!((report.unreadable_pages, report.changed_meanwhile), (0, false));
    assert!(report.bytes_read > 0);
}

/// Statistics by the pass of a backup; full, or to what that one adds.
fn beside_backup(db: &Database, name: &str, since: Option<&Manifest>) -> (Manifest, StatReport) {
    let folder = BackupPlace::new(Arc::clone(db.engine().disk()), "backups");
    let destination = Destination::Folder { folder, name: name.to_owned() };
    let options = BackupOptions { destination, since: since.cloned(), compress: None };
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    let mut tell = |_: &_| Ok(());
    let taken = db.backup_counted(options, Some(&records()), &mut Watch::new(&job, &mut tell));
    let (manifest, report) = job.end(taken).unwrap();
    (manifest, report.unwrap())
}

#[test]
fn a_backup_counts_what_a_pass_of_its_own_does() {
    let disk = SimDisk::new(11);
    disk.create_dir(Path::new("backups")).unwrap();
    let story = story(&disk);
    let alone = story.db.statistics(&records()).unwrap();
    let (full, beside) = beside_backup(&story.db, "full", None);
    assert_eq!((&beside.trees, &beside.space), (&alone.trees, &alone.space));
    assert_eq!((beside.mode, beside.changed_meanwhile), (StatMode::Records, false));
    assert!(beside.bytes_read >= full.pages * PAGE as u64 && beside.transactions.snapshots == 1);
    // One that adds to it copies next to nothing, and counts all the same.
    let (incremental, beside) = beside_backup(&story.db, "incremental", Some(&full));
    assert_eq!((&beside.trees, &beside.space), (&alone.trees, &alone.space));
    assert!(incremental.pages < full.pages, "{incremental:?}");
    assert!(incremental.all_read.unwrap().contains("statistics"));
}

#[test]
fn a_small_tree_is_counted_at_once() {
    let story = story(&SimDisk::new(2));
    let counted = contents(&story.db.statistics(&records()).unwrap(), "rows");
    let report = story.db.statistics(&StatOptions::default()).unwrap();
    let instant = contents(&report, "rows");
    let without_undo = TreeContents { old_versions: None, old_version_bytes: None, ..counted };
    assert_eq!(instant, TreeContents { unwritten_pages: None, ..without_undo });
    agrees_with_itself(&report, "rows");
    assert_eq!(report.mode, StatMode::Instant);
}

#[test]
fn marks_say_who_holds_what_back() {
    let disk = SimDisk::new(3);
    let story = story(&disk);
    let report = story.db.statistics(&StatOptions::default()).unwrap();
    let marks = &report.transactions;
    assert_eq!((marks.snapshots, marks.writers_count), (1, 1));
    assert_eq!(marks.oldest_transaction, marks.oldest_snapshot);
    assert!(marks.oldest_snapshot < marks.oldest_active && marks.oldest_active < marks.next_transaction);
    let holder = marks.oldest_holder.as_ref().unwrap();
    assert_eq!((holder.xmin, marks.writers[0].id), (marks.oldest_snapshot, marks.oldest_active));
    // 300 deletes and 50 updates of 150 bytes each fill no segment of 64 KiB; what the snapshot holds comes when one is full.
    let mut txn = begin(&story.db);
    let tree = txn.tree("rows").unwrap().unwrap();
    (0..900).for_each(|i| txn.put(&tree, &key(1000 + i % 400), &[i as u8; 100]).unwrap());
    txn.commit().unwrap();
    let garbage = story.db.statistics(&StatOptions::default()).unwrap().transactions.garbage;
    assert!(garbage.held_segments > 0 && garbage.held_by_oldest_snapshot + garbage.held_by_writers > 0);
    assert_eq!(garbage.segment_bytes, 16 * PAGE as u64);
    assert_eq!(report.header.page_bytes, PAGE as u64);
    assert!(report.header.closed_cleanly && report.header.restart_log_bytes > 0);
}

#[test]
fn who_has_the_oldest_snapshot_and_writes_holds_back_what_he_does_alone() {
    let db = create(&SimDisk::new(5));
    let mut txn = begin(&db);
    let tree = txn.create_tree("rows").unwrap();
    (0..400).for_each(|i| txn.insert(&tree, &key(i), &[1; 100]).unwrap());
    txn.commit().unwrap();
    let mut holder = hold(&db);
    holder.put(&tree, &key(1000), b"his own").unwrap();
    let mut txn = begin(&db);
    (0..1600).for_each(|i| txn.put(&tree, &key(i % 400), &[i as u8; 100]).unwrap());
    txn.commit().unwrap();
    let garbage = || db.statistics(&StatOptions::default()).unwrap().transactions.garbage;
    let held = garbage();
    assert!(held.held_segments > 0);
    assert_eq!(
        (held.held_by_oldest_snapshot, held.held_by_writers),
        (held.held_segments, held.held_segments)
    );
    // Beside somebody else who needs it, he does not hold it alone.
    let other = hold(&db);
    let mut txn = begin(&db);
    (0..1600).for_each(|i| txn.put(&tree, &key(i % 400), &[i as u8; 100]).unwrap());
    txn.commit().unwrap();
    let more = garbage();
    assert!(more.held_by_oldest_snapshot < more.held_segments, "{more:?}");
    assert_eq!(more.held_by_oldest_snapshot * more.segment_bytes, db.holders()[0].alone_bytes);
    drop((holder, other));
    assert_eq!(garbage().held_by_oldest_snapshot, 0);
}

/// A tree as an index has it: a leading part, and what tells entries of it apart.
fn index(txn: &mut Transaction, runs: &[u64]) -> Tree {
    let tree = txn.create_tree("index").unwrap();
    for (number, &count) in runs.iter().enumerate() {
        for i in 0..count {
            txn.insert(&tree, format!("{number:04}/{i:06}").as_bytes(), b"").unwrap();
        }
    }
    tree
}

fn leading() -> BTreeMap<String, Leading> {
    let slash: Leading = Arc::new(|key: &[u8]| key.iter().position(|&byte| byte == b'/'));
    BTreeMap::from([("index".to_owned(), slash)])
}

#[test]
fn duplicates_are_counted_over_leaves() {
    let db = create(&SimDisk::new(4));
    let mut txn = begin(&db);
    let runs: Vec<u64> = (0..200).map(|i| if i == 77 { 1234 } else { i * 7 % 41 }).collect();
    index(&mut txn, &runs);
    txn.commit().unwrap();
    let options = StatOptions { leading: leading(), ..records() };
    let report = db.statistics(&options).unwrap();
    let found = contents(&report, "index");
    assert_eq!(found.rows, exact(runs.iter().sum()));
    let duplicates = found.duplicates.unwrap();
    assert_eq!(duplicates.total, exact(runs.iter().map(|&count| count.saturating_sub(1)).sum()));
    assert_eq!((duplicates.longest, duplicates.longest_is_exact), (1234, true));
    agrees_with_itself(&report, "index");
    let sampled = db.statistics(&StatOptions { leading: leading(), ..StatOptions::default() }).unwrap();
    let sampled = contents(&sampled, "index").duplicates.unwrap();
    assert!(sampled.total.covers(duplicates.total.value), "{sampled:?}");
    assert!(sampled.longest <= 1234 && !sampled.longest_is_exact);
}

#[test]
fn order_in_the_file_is_seen() {
    let db = create(&SimDisk::new(5));
    let mut txn = begin(&db);
    let (up, mixed) = (txn.create_tree("ascending").unwrap(), txn.create_tree("mixed").unwrap());
    for i in 0..20_000 {
        txn.put(&up, &key(i), &[1; 40]).unwrap();
        txn.put(&mixed, &key(i * 7919 % 20_000), &[1; 40]).unwrap();
    }
    txn.commit().unwrap();
    let report = db.statistics(&records()).unwrap();
    let (up, mixed) = (contents(&report, "ascending").order, contents(&report, "mixed").order);
    assert!(up.backward_percent.value < 2.0, "{up:?}");
    assert!(mixed.backward_percent.value > 20.0, "{mixed:?}");
    agrees_with_itself(&report, "mixed");
}

/// A tree much larger than the sample, with rows of several lengths, some of them long values, deleted rows in one stretch and here and
/// there, and leaves that are differently full.
fn large(disk: &SimDisk) -> (Database, Transaction) {
    let db = create(disk);
    let mut txn = begin(&db);
    let tree = txn.create_tree("rows").unwrap();
    txn.commit().unwrap();
    let old = hold(&db);
    const MANY: u64 = 60_000;
    for batch in 0..60 {
        let mut txn = begin(&db);
        for i in batch * 1000..(batch + 1) * 1000 {
            let number = i * 7919 % MANY;
            let len = if number.is_multiple_of(997) { 3000 } else { 20 + (number * number % 300) as usize };
            txn.insert(&tree, &key(number), &vec![3; len]).unwrap();
        }
        txn.commit().unwrap();
    }
    let mut txn = begin(&db);
    for number in (20_000..24_000).chain((0..MANY).step_by(40).filter(|n| !(20_000..24_000).contains(n))) {
        txn.delete(&tree, &key(number)).unwrap();
    }
    txn.commit().unwrap();
    (db, old)
}

#[test]
fn estimates_are_off_by_no_more_than_they_say() {
    let (db, _old) = large(&SimDisk::new(6));
    let truth = contents(&db.statistics(&records()).unwrap(), "rows");
    assert!(truth.leaf_pages.value > 2000.0, "{truth:?}");
    type Of = fn(&TreeContents) -> Figure;
    let figures: [(&str, Of); 15] = [
        ("leaf pages", |c| c.leaf_pages),
        ("inner pages", |c| c.inner_pages),
        ("long value pages", |c| c.long_value_pages),
        ("entries", |c| c.entries),
        ("rows", |c| c.rows),
        ("dead", |c| c.dead_entries),
        ("key bytes", |c| c.key_bytes),
        ("value bytes", |c| c.value_bytes),
        ("long values", |c| c.long_values),
        ("long value bytes", |c| c.long_value_bytes),
        ("row bytes", |c| c.average_row_bytes),
        ("fill", |c| c.fill_percent),
        ("fullest leaves", |c| c.fill_leaves[4]),
        ("free", |c| c.free_bytes),
        ("backward", |c| c.order.backward_percent),
    ];
    let (mut told, mut true_ones) = (0, 0);
    for seed in 1..=40 {
        let report = db.statistics(&StatOptions { seed: Some(seed), ..StatOptions::default() }).unwrap();
        let seen = contents(&report, "rows");
        assert!(seen.leaves_read <= 520, "{}", seen.leaves_read);
        for (name, of) in figures {
            let (figure, truth) = (of(&seen), of(&truth).value);
            let is_true = figure.covers(truth);
            told += 1;
            true_ones += u32::from(is_true);
            if !is_true {
                println!("seed {seed}, {name}: {figure:?}, in truth {truth}");
            }
        }
        // What is told is worth something.
        assert!(seen.rows.error < 0.1 * seen.rows.value, "{:?}", seen.rows);
    }
    println!("{true_ones} of {told}");
    assert!(f64::from(true_ones) >= 0.95 * f64::from(told), "{true_ones} of {told}");
}

#[test]
fn an_instant_look_reads_few_pages_and_these_as_batches() {
    let disk = SimDisk::new(7);
    let (db, old) = large(&disk);
    drop(old);
    db.close().unwrap();
    let db = open(&disk);
    db.await_restart();
    let (before, awaited) = (thread_reads(), db.stats().page_misses);
    let report = db.statistics(&StatOptions::default()).unwrap();
    let read = thread_reads().since(before);
    // Leaves, nodes above them, and what each tree has; none of it one by one.
    assert!(read.batched_reads <= 600 && read.serial_reads <= 10, "{read:?}");
    // Others read a little meanwhile.
    assert!(db.stats().page_misses - awaited <= 50);
    assert!(report.bytes_read <= (read.batched_reads + read.serial_reads) * PAGE as u64);
    assert!(contents(&report, "rows").rows.error > 0.0);
}

#[test]
fn a_page_that_cannot_be_read_is_counted_and_named() {
    let disk = SimDisk::new(8);
    let db = create(&disk);
    let mut txn = begin(&db);
    let tree = txn.create_tree("rows").unwrap();
    (0..2000).for_each(|i| txn.put(&tree, &key(i), &[7; 100]).unwrap());
    let other = txn.create_tree("other").unwrap();
    txn.put(&other, b"key", b"value").unwrap();
    let number = tree.id();
    txn.commit().unwrap();
    db.close().unwrap();
    let mut bytes = disk.contents(Path::new(FILE)).unwrap();
    let is_leaf = |page: &[u8]| {
        page::kind(page) == Some(PageKind::Node)
            && page::tree(page) == number
            && NodeRef::new(page).level() == 0
    };
    let leaves: Vec<usize> =
        bytes.chunks(PAGE).enumerate().filter(|(_, page)| is_leaf(page)).map(|(place, _)| place).collect();
    // One is rotten; the other verifies, and is no node any more.
    let (rotten, senseless) = (leaves[10], leaves[20]);
    bytes[rotten * PAGE + 100] ^= 1;
    let salt = u64::from_le_bytes(bytes[48..56].try_into().unwrap());
    let page = &mut bytes[senseless * PAGE..(senseless + 1) * PAGE];
    page[28] ^= 0xFF;
    page::seal(page, gannet_base::PageId(senseless as u64), salt);
    let other_disk = SimDisk::new(9);
    write(&other_disk, &bytes);
    let db = open(&other_disk);
    for options in [StatOptions::default(), records()] {
        let report = db.statistics(&options).unwrap();
        let named: Vec<u64> = report.unreadable.iter().map(|page| page.page).collect();
        assert_eq!(named, [rotten as u64, senseless as u64], "{:?}", report.unreadable);
        assert_eq!(report.unreadable_pages, 2);
        let rows = report.trees.iter().find(|tree| tree.name.as_deref() == Some("rows")).unwrap();
        assert_eq!(rows.unreadable_pages, 2);
        assert_eq!(rows.contents.as_ref().unwrap().leaves_read, leaves.len() as u64 - 2);
        assert_eq!(contents(&report, "other").rows, exact(1));
    }
}

fn write(disk: &SimDisk, bytes: &[u8]) {
    use gannet_io::{AlignedBuffer, Class, Durability, OpenOptions};
    let mut options = OpenOptions::read_write();
    options.create = true;
    let file = disk.open(Path::new(FILE), &options).unwrap();
    let mut buffer = AlignedBuffer::zeroed(bytes.len());
    buffer.copy_from_slice(bytes);
    file.write_at(Class::Foreground, 0, &buffer, Durability::Durable).unwrap();
}

#[test]
fn only_the_trees_that_were_asked_for() {
    let db = create(&SimDisk::new(10));
    let mut txn = begin(&db);
    for name in ["one", "two"] {
        let tree = txn.create_tree(name).unwrap();
        (0..300).for_each(|i| txn.put(&tree, &key(i), &[7; 100]).unwrap());
    }
    txn.commit().unwrap();
    for mode in [StatMode::Instant, StatMode::Records] {
        let only =
            |name: &str| StatOptions { mode, trees: Some(vec![name.to_owned()]), ..StatOptions::default() };
        let report = db.statistics(&only("two")).unwrap();
        assert_eq!(report.trees.len(), 1);
        assert_eq!(contents(&report, "two").rows, exact(300));
        let error = db.statistics(&only("three")).unwrap_err();
        assert!(error.to_string().contains("there is no tree \"three\""), "{error}");
        // Without a choice the store's own are there, too.
        let all = db.statistics(&StatOptions { mode, ..StatOptions::default() }).unwrap();
        let names: Vec<_> = all.trees.iter().map(|tree| tree.name.as_deref()).collect();
        assert_eq!(names, [None, None, None, Some("one"), Some("two")]);
        let space = all.space;
        let trees: f64 = all.trees.iter().map(|tree| tree.pages.value).sum();
        let parts = [space.free_pages, space.system_pages, space.undo_pages, space.passing_pages];
        let sum = trees + parts.iter().map(|part| part.value).sum::<f64>();
        assert_eq!((sum, parts.iter().all(Figure::is_exact)), (space.file_pages as f64, true), "{space:?}");
    }
}

#[test]
fn a_tree_that_somebody_may_drop_is_counted_until_he_commits() {
    let db = create(&SimDisk::new(12));
    let mut txn = begin(&db);
    let tree = txn.create_tree("rows").unwrap();
    (0..300).for_each(|i| txn.put(&tree, &key(i), &[7; 100]).unwrap());
    txn.commit().unwrap();
    let options = StatOptions { trees: Some(vec!["rows".to_owned()]), ..records() };
    let before = contents(&db.statistics(&options).unwrap(), "rows");
    let mut dropping = begin(&db);
    assert!(dropping.drop_tree("rows").unwrap());
    let beside = contents(&db.statistics(&options).unwrap(), "rows");
    assert_eq!(beside.leaf_pages, before.leaf_pages);
    dropping.commit().unwrap();
    let error = db.statistics(&options).unwrap_err().to_string();
    assert!(error.contains("there is no tree \"rows\""), "{error}");
}

#[test]
fn counting_ends_when_it_is_asked_to_and_leaves_the_budget_as_it_was() {
    let story = story(&SimDisk::new(11));
    let db = &story.db;
    let used = db.engine().budget().used();
    for mode in [StatMode::Instant, StatMode::Records] {
        let job = db.jobs().begin(JobOrder::new(JobKind::Stat));
        let mut tell = |_: &gannet_store::JobReport| Err(Error::Cancelled);
        let options = StatOptions { mode, ..StatOptions::default() };
        let ended = job.end(db.statistics_watched(&options, &mut Watch::new(&job, &mut tell)));
        assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
        drop(job);
        assert_eq!(db.jobs().reports().last().unwrap().state, JobState::Cancelled);
        db.statistics(&options).unwrap();
        assert_eq!(db.engine().budget().used(), used);
    }
    assert!(db.engine().budget().peak() <= db.engine().budget().limit());
}

#[test]
fn a_report_survives_json() {
    let story = story(&SimDisk::new(12));
    let report = story.db.statistics(&records()).unwrap();
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<StatReport>(&text).unwrap(), report);
}

#[test]
fn writers_go_on_meanwhile() {
    let db = create(&SimDisk::new(13));
    let mut txn = begin(&db);
    let tree = txn.create_tree("rows").unwrap();
    (0..3000).for_each(|i| txn.put(&tree, &key(i), &[7; 100]).unwrap());
    txn.commit().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let mut txn = begin(&db);
                (0..50).for_each(|n| txn.put(&tree, &key(3000 + (i + n) % 2000), &[8; 100]).unwrap());
                if i % 3 == 0 {
                    txn.rollback().unwrap()
                } else {
                    txn.commit().unwrap()
                }
                i += 50;
            }
        });
        for round in 0..12 {
            let mode = if round % 2 == 0 { StatMode::Records } else { StatMode::Instant };
            let report = db.statistics(&StatOptions { mode, ..StatOptions::default() }).unwrap();
            assert_eq!(report.unreadable_pages, 0, "{:?}", report.unreadable);
            assert!(contents(&report, "rows").rows.value >= 2500.0, "{report:?}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
