//! Compaction: space goes back to the file system while others work, and nothing else changes; whatever happens meanwhile.

use gannet_base::sync::Mutex;
use gannet_base::{clock, thread};
use gannet_io::Disk;
use gannet_io::sim::{Chance, Faults, SimDisk};
use gannet_store::node::NodeRef;
use gannet_store::page::{self, PageKind};
use gannet_store::{
    BackupFile, BackupOptions, BackupPlace, CompactReport, CreateOptions, Database, Destination, Engine,
    EngineOptions, Error, Isolation, JobKind, JobOrder, JobState, Manifest, OpenOptions, RecoveryTarget,
    Source, StatMode, StatOptions, StatReport, TransactionOptions, Watch, thread_reads,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const FILE: &str = "c.gnt";
const COPY: &str = "copy.gnt";
const PAGE: usize = 4096;
/// Where the header has the number of the database.
const DATABASE_ID_AT: usize = 48;
/// Where a page of the list of a long value has the number of the next one, and the count of those it lists.
const NEXT_LIST_AT: usize = 24;
const LIST_COUNT_AT: usize = 32;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 24 << 20, ..EngineOptions::default() }).unwrap()
}

fn create(disk: &SimDisk) -> Database {
    let options = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    engine(disk).create(Path::new(FILE), &options, &OpenOptions::default()).unwrap()
}

fn open(disk: &SimDisk, name: &str) -> Database {
    engine(disk).open(Path::new(name), &OpenOptions::default()).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

fn value(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number.wrapping_mul(31) ^ i as u64) as u8).collect()
}

/// Numbers that look as if drawn, each once.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |i| i.wrapping_mul(7_368_787) % count)
}

/// Fills a tree row by row, in scattered order, so that its leaves are as split as those of a used one.
fn fill(db: &Database, name: &str, rows: u64, len: usize) -> Rows {
    let mut all = Rows::new();
    let numbers: Vec<u64> = scattered(rows).collect();
    for (index, batch) in numbers.chunks(500).enumerate() {
        let mut txn = db.begin(TransactionOptions::default());
        let tree =
            if index == 0 { txn.create_tree(name) } else { txn.tree(name).map(Option::unwrap) }.unwrap();
        for &number in batch {
            let value = value(number, len);
            txn.put(&tree, &key(number), &value).unwrap();
            all.insert(key(number), value);
        }
        txn.commit().unwrap();
    }
    all
}

/// Deletes what `goes` says, of a tree and of its model.
fn delete(db: &Database, name: &str, rows: &mut Rows, goes: impl Fn(u64) -> bool) {
    let doomed: Vec<Vec<u8>> =
        (0..).zip(rows.keys()).filter(|(i, _)| goes(*i)).map(|(_, key)| key.clone()).collect();
    for batch in doomed.chunks(500) {
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.tree(name).unwrap().unwrap();
        for key in batch {
            assert!(txn.delete(&tree, key).unwrap());
            rows.remove(key);
        }
        txn.commit().unwrap();
    }
}

fn contents(db: &Database, name: &str) -> Rows {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree(name).unwrap().unwrap();
    let mut cursor = txn.cursor(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        rows.insert(key.to_vec(), value.to_vec());
    }
    rows
}

fn sound(db: &Database) {
    let report = db.check().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

fn live(rows: &Rows) -> u64 {
    rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
}

fn len(disk: &SimDisk, name: &str) -> u64 {
    disk.open(Path::new(name), &gannet_io::OpenOptions::read()).unwrap().len().unwrap()
}

fn cancelled_when(
    db: &Database,
    mut when: impl FnMut(&gannet_store::JobReport) -> bool,
) -> Result<CompactReport, Error> {
    let job = db.jobs().begin(JobOrder::new(JobKind::Compact));
    let mut tell =
        |report: &gannet_store::JobReport| if when(report) { Err(Error::Cancelled) } else { Ok(()) };
    job.end(db.compact_watched(&mut Watch::new(&job, &mut tell)))
}

/// After so many rows were deleted, the file is at most 1.3 times what is left.
fn shrinks_after(goes: impl Fn(u64) -> bool) {
    let disk = SimDisk::new(1);
    let db = create(&disk);
    let rows_before = 60_000;
    let mut rows = fill(&db, "t", rows_before, 200);
    let full = db.stats().file_bytes;
    delete(&db, "t", &mut rows, goes);
    let report = db.compact().unwrap();
    let (now, live) = (len(&disk, FILE), live(&rows));
    println!("{full} bytes before, {now} now, {live} live: {report:?}");
    assert_eq!((report.file_bytes, report.held.clone()), (now, vec![]));
    assert!(now * 10 <= live * 13, "{now} for {live} live bytes");
    assert!(report.file_bytes_before >= full && report.used_bytes <= now);
    assert_eq!(contents(&db, "t"), rows);
    sound(&db);
    // There is nothing left to do, and the file stays usable: what is put in makes it grow again.
    let again = db.compact().unwrap();
    assert!(again.file_bytes <= now && again.pages_moved < 32, "{again:?}");
    let more = fill(&db, "more", 3000, 300);
    assert_eq!((contents(&db, "t"), contents(&db, "more")), (rows.clone(), more.clone()));
    db.close().unwrap();
    let db = open(&disk, FILE);
    assert_eq!((contents(&db, "t"), contents(&db, "more")), (rows, more));
    sound(&db);
}

#[test]
fn a_file_shrinks_to_what_is_left_after_scattered_deletes() {
    shrinks_after(|i| i * 7 % 10 != 3);
}

#[test]
fn a_file_shrinks_to_what_is_left_when_the_first_rows_go() {
    shrinks_after(|i| i < 54_000);
}

#[test]
fn a_file_shrinks_to_what_is_left_when_the_last_rows_go() {
    shrinks_after(|i| i >= 6_000);
}

#[test]
fn what_cannot_be_read_is_named_and_stays_and_the_rest_is_compacted() {
    let disk = SimDisk::new(11);
    let db = create(&disk);
    let mut rows = fill(&db, "t", 20_000, 200);
    delete(&db, "t", &mut rows, |i| i % 3 != 0);
    db.close().unwrap();
    let bytes = disk.contents(Path::new(FILE)).unwrap();
    let before = bytes.len() as u64;
    let is_leaf = |page: &[u8]| page::kind(page) == Some(PageKind::Node) && NodeRef::new(page).level() == 0;
    let leaves: Vec<usize> =
        (2..bytes.len() / PAGE).filter(|&i| is_leaf(&bytes[i * PAGE..(i + 1) * PAGE])).collect();
    for &page in leaves[leaves.len() / 2..].iter().step_by(60) {
        disk.corrupt(Path::new(FILE), (page * PAGE) as u64 + 2000, 16, page as u64).unwrap();
    }
    let db = open(&disk, FILE);
    // Some of these are free already: what is in use is what a check names.
    let in_use: BTreeSet<String> =
        db.check().unwrap().findings.iter().map(|finding| format!("{}:", finding.page)).collect();
    assert!(in_use.len() > 3, "{in_use:?}");
    let report = db.compact().unwrap();
    assert!(report.file_bytes < before && report.pages_moved > 100, "{report:?}");
    // Two of three leaves are too many, before the first one that is damaged and behind the last one. (Some of these are free already.)
    assert!(report.pages_merged as usize > leaves.len() / 3, "{} leaves, {report:?}", leaves.len());
    assert_eq!(report.unreadable.len(), in_use.len(), "{in_use:?}, {report:?}");
    assert!(
        in_use.iter().all(|page| report.unreadable.iter().any(|what| what.contains(page))),
        "{in_use:?}, {report:?}"
    );
    assert!(report.held.iter().any(|held| held.what.contains("cannot be read")), "{report:?}");
    // What is damaged is so still, and nothing else.
    assert!(!db.check().unwrap().findings.is_empty());
    let sorted = |mut all: Vec<String>| {
        all.sort();
        all
    };
    assert_eq!(sorted(db.compact().unwrap().unreadable), sorted(report.unreadable));
}

/// Writes a page of a closed database, changed, with a valid checksum.
fn change_page(disk: &SimDisk, number: usize, change: impl FnOnce(&mut [u8])) {
    let bytes = disk.contents(Path::new(FILE)).unwrap();
    let salt = u64::from_le_bytes(bytes[DATABASE_ID_AT..][..8].try_into().unwrap());
    let mut page = gannet_io::AlignedBuffer::zeroed(PAGE);
    page.copy_from_slice(&bytes[number * PAGE..(number + 1) * PAGE]);
    change(&mut page);
    page::seal(&mut page, gannet_base::PageId(number as u64), salt);
    let file = disk.open(Path::new(FILE), &gannet_io::OpenOptions::read_write()).unwrap();
    let durable = gannet_io::Durability::Durable;
    file.write_at(gannet_io::Class::Foreground, (number * PAGE) as u64, &page, durable).unwrap();
}

#[test]
fn a_list_of_a_long_value_that_leads_back_to_itself_had_reads_and_compactions_go_on_for_ever() {
    let disk = SimDisk::new(13);
    let db = create(&disk);
    // Some long values at the begin of the file, which stay there, and some of the same tree at its end.
    let mut long = fill(&db, "long", 40, 60_000);
    let mut first = fill(&db, "first", 20_000, 300);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("long").unwrap().unwrap();
    for number in 100..120 {
        let value = value(number, 60_000);
        txn.put(&tree, &key(number), &value).unwrap();
        long.insert(key(number), value);
    }
    txn.commit().unwrap();
    delete(&db, "first", &mut first, |_| true);
    db.sweep().unwrap();
    db.close().unwrap();
    let bytes = disk.contents(Path::new(FILE)).unwrap();
    let is_list = |&i: &usize| page::kind(&bytes[i * PAGE..(i + 1) * PAGE]) == Some(PageKind::OverflowIndex);
    let list = (2..bytes.len() / PAGE).find(is_list).unwrap();
    for lists_nothing in [false, true] {
        let image = disk.crash_image(1);
        change_page(&image, list, |page| {
            page[NEXT_LIST_AT..][..8].copy_from_slice(&(list as u64).to_le_bytes());
            if lists_nothing {
                page[LIST_COUNT_AT..][..2].fill(0);
            }
        });
        let db = open(&image, FILE);
        let report = db.compact().unwrap();
        let named = format!("page {list}");
        assert!(report.unreadable.iter().any(|what| what.contains(&named)), "{list}: {report:?}");
        assert!(db.check().unwrap().findings.iter().any(|found| found.page.0 == list as u64));
        // What its pages hold is read; nothing goes on behind it.
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.tree("long").unwrap().unwrap();
        let mut refused = 0;
        for (key, value) in &long {
            match txn.get(&tree, key) {
                Ok(found) => assert_eq!(found.as_ref(), Some(value)),
                Err(Error::Damaged(what)) => {
                    assert!(what.contains(&named), "{what}");
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(refused, usize::from(lists_nothing));
    }
}

#[test]
fn roots_and_long_values_at_the_end_of_the_file_move_to_its_begin() {
    let disk = SimDisk::new(2);
    let db = create(&disk);
    let mut first = fill(&db, "first", 30_000, 300);
    // What comes later lies behind: roots, and long values with lists of more than one page.
    let mut long = fill(&db, "long", 60, 90_000);
    let mut huge = Rows::new();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("huge").unwrap();
    for number in 0..2 {
        let value = value(number, 3_000_000);
        txn.put(&tree, &key(number), &value).unwrap();
        huge.insert(key(number), value);
    }
    txn.commit().unwrap();
    let small = fill(&db, "small", 10, 50);
    delete(&db, "first", &mut first, |_| true);
    delete(&db, "long", &mut long, |i| i % 2 == 0);
    let report = db.compact().unwrap();
    println!("{report:?}");
    let live = live(&first) + live(&long) + live(&huge) + live(&small);
    assert!(report.value_pages_moved > 1000, "{report:?}");
    assert!(report.file_bytes * 10 <= live * 13, "{report:?} for {live} live bytes");
    for (name, rows) in [("first", &first), ("long", &long), ("huge", &huge), ("small", &small)] {
        assert_eq!(&contents(&db, name), rows, "{name}");
    }
    sound(&db);
    db.close().unwrap();
    let db = open(&disk, FILE);
    for (name, rows) in [("first", &first), ("long", &long), ("huge", &huge), ("small", &small)] {
        assert_eq!(&contents(&db, name), rows, "{name}");
    }
    // Handles from before work on, and so do drops.
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.drop_tree("huge").unwrap());
    txn.commit().unwrap();
    db.sweep().unwrap();
    sound(&db);
}

// ---- beside others ------------------------------------------------------------------------------------------------------

const ACCOUNTS: u64 = 400;

fn account(balance: i64) -> Vec<u8> {
    let mut value = balance.to_le_bytes().to_vec();
    value.resize(300, 0xAB);
    value
}

/// A database with accounts that are empty, behind much that is gone by the time others begin.
fn bank(disk: &SimDisk) -> Database {
    let db = create(disk);
    let mut passing = fill(&db, "passing", 8000, 300);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("accounts").unwrap();
    for number in scattered(ACCOUNTS) {
        txn.put(&tree, &key(number), &account(0)).unwrap();
    }
    txn.put(&tree, b"long", &value(7, 60_000)).unwrap();
    txn.commit().unwrap();
    delete(&db, "passing", &mut passing, |i| i % 10 != 0);
    db
}

fn balance(value: &[u8]) -> i64 {
    i64::from_le_bytes(value[..8].try_into().unwrap())
}

/// Moves something from one account to another; long and short rows come and go.
fn transfer(db: &Database, count: u64) {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("accounts").unwrap().unwrap();
    for (number, by) in [(count * 7919 % ACCOUNTS, -1), ((count * 104_729 + 1) % ACCOUNTS, 1)] {
        let before = balance(&txn.get(&tree, &key(number)).unwrap().unwrap());
        txn.put(&tree, &key(number), &account(before + by)).unwrap();
    }
    let passing = |n: u64| format!("passing {n:08}").into_bytes();
    let len = if count.is_multiple_of(9) { 20_000 } else { 700 };
    txn.put(&tree, &passing(count), &value(count, len)).unwrap();
    if count > 40 {
        txn.delete(&tree, &passing(count - 40)).unwrap();
    }
    txn.put(&tree, b"transfers", &account(count as i64)).unwrap();
    if count.is_multiple_of(5) { txn.rollback().unwrap() } else { txn.commit().unwrap() }
}

/// Nothing was lost or made by transfers; gives the last one that counts.
fn audit(db: &Database) -> u64 {
    let mut txn = db
        .begin(TransactionOptions { isolation: Isolation::RepeatableRead, ..TransactionOptions::default() });
    let tree = txn.tree("accounts").unwrap().unwrap();
    let mut cursor = txn.cursor(&tree, (Bound::Included(&b"0"[..]), Bound::Excluded(&b":"[..]))).unwrap();
    let (mut sum, mut accounts) = (0, 0);
    while let Some((_, value)) = cursor.next().unwrap() {
        sum += balance(value);
        accounts += 1;
    }
    drop(cursor);
    assert_eq!((sum, accounts), (0, ACCOUNTS));
    assert!(txn.get(&tree, b"long").unwrap().unwrap() == value(7, 60_000));
    let mut cursor =
        txn.cursor(&tree, (Bound::Included(&b"passing"[..]), Bound::Excluded(&b"q"[..]))).unwrap();
    while let Some((key, stored)) = cursor.next().unwrap() {
        let number: u64 = std::str::from_utf8(&key[8..]).unwrap().parse().unwrap();
        assert!(stored == value(number, stored.len()), "passing row {number}");
    }
    drop(cursor);
    txn.get(&tree, b"transfers").unwrap().map_or(0, |value| balance(&value) as u64)
}

/// Runs `work` while transfers and audits go on; gives how many transfers there were.
fn beside_transfers<T>(db: &Database, from: u64, work: impl FnOnce() -> T) -> (u64, T) {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(from));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in from + 1.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                transfer(db, count);
                done.store(count, Ordering::SeqCst);
                clock::sleep(Duration::from_micros(300));
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                audit(db);
            }
        });
        while done.load(Ordering::SeqCst) < from + 20 {
            thread::yield_now();
        }
        let result = work();
        stop.store(true, Ordering::SeqCst);
        (done.load(Ordering::SeqCst), result)
    })
}

#[test]
fn nobody_sees_anything_of_a_compaction_beside_him() {
    let disk = SimDisk::new(3);
    let db = bank(&disk);
    let before = db.stats().file_bytes;
    let (_, reports) = beside_transfers(&db, 0, || (0..4).map(|_| db.compact().unwrap()).collect::<Vec<_>>());
    println!("{reports:?}");
    assert!(reports.iter().any(|report| report.pages_moved > 0 && report.pages_merged > 0), "{reports:?}");
    assert!(reports[3].file_bytes < before / 2, "{reports:?}");
    audit(&db);
    sound(&db);
    // As if the power went.
    drop(db);
    let db = open(&disk, FILE);
    audit(&db);
    sound(&db);
}

#[test]
fn a_file_that_grows_meanwhile_is_cut_where_it_has_to_end() {
    let disk = SimDisk::new(35);
    let db = create(&disk);
    let mut gone = fill(&db, "gone", 40_000, 200);
    delete(&db, "gone", &mut gone, |_| true);
    fill(&db, "grows", 1_000, 200);
    let stop = AtomicBool::new(false);
    let (report, rows) = std::thread::scope(|scope| {
        let inserter = scope.spawn(|| {
            // Each commit makes pages dirty that lie where there was room last.
            let mut rows = 1_000;
            while rows < 6_000 && !stop.load(Ordering::SeqCst) {
                let mut txn = db.begin(TransactionOptions::default());
                let tree = txn.tree("grows").unwrap().unwrap();
                for number in rows..rows + 20 {
                    txn.put(&tree, &key(number), &value(number, 200)).unwrap();
                }
                txn.commit().unwrap();
                rows += 20;
            }
            rows
        });
        let report = db.compact().unwrap();
        stop.store(true, Ordering::SeqCst);
        (report, inserter.join().unwrap())
    });
    assert!(report.file_bytes < report.file_bytes_before / 2, "{report:?}");
    assert_eq!(contents(&db, "grows").len() as u64, rows);
    sound(&db);
    drop(db);
    let db = open(&disk, FILE);
    assert_eq!(contents(&db, "grows").len() as u64, rows);
    sound(&db);
}

/// Pages that this thread reads from the device while it reads these rows one by one.
fn reads_of(db: &Database, name: &str, rows: &Rows) -> u64 {
    let before = thread_reads();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree(name).unwrap().unwrap();
    for key in rows.keys() {
        assert!(txn.get(&tree, key).unwrap().is_some());
    }
    thread_reads().since(before).serial_reads
}

#[test]
fn a_compaction_that_changes_more_than_memory_has_leaves_what_users_read_in_memory() {
    let disk = SimDisk::new(31);
    let db = create(&disk);
    let mut worn = fill(&db, "worn", 60_000, 700);
    delete(&db, "worn", &mut worn, |i| i % 3 == 0);
    let hot = fill(&db, "hot", 6_000, 700);
    // Of use more than once: what was merely read once more may go at any time.
    reads_of(&db, "hot", &hot);
    assert_eq!(reads_of(&db, "hot", &hot), 0);
    // What is dirty already is not what this is about.
    db.checkpoint().unwrap();
    let pages = live(&hot) / PAGE as u64;
    let frames = db.stats().frames;
    // Users go on reading meanwhile.
    let (mut lost, mut times) = (0, 0);
    let report = cancelled_when(&db, |report| {
        lost += reads_of(&db, "hot", &hot);
        times += u32::from(report.phase == "makes trees denser");
        false
    });
    let report = report.unwrap();
    let changed = report.pages_merged + report.pages_moved;
    assert!(changed > frames / 2 && pages < frames / 2, "{report:?}, {frames} frames");
    lost += reads_of(&db, "hot", &hot);
    assert!(times > 0);
    // How often users read meanwhile is a matter of the machine.
    assert!(lost < pages / 2, "{lost} of {pages}, {frames} frames, {report:?}");
    sound(&db);
}

#[test]
fn what_a_transaction_has_under_way_can_be_taken_back_behind_a_compaction() {
    let disk = SimDisk::new(4);
    let db = create(&disk);
    fill(&db, "front", 4000, 300);
    let rows = fill(&db, "t", 3000, 300);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("t").unwrap().unwrap();
    for key in rows.keys() {
        assert!(txn.delete(&tree, key).unwrap());
    }
    let mut other = db.begin(TransactionOptions::default());
    let created = other.create_tree("new").unwrap();
    other.put(&created, b"a", &value(1, 50_000)).unwrap();
    let mut front = contents(&db, "front");
    delete(&db, "front", &mut front, |i| i % 20 != 0);
    let report = db.compact().unwrap();
    println!("{report:?}");
    assert!(!report.held.is_empty() && report.held[0].what.contains("undo"), "{report:?}");
    txn.rollback().unwrap();
    other.commit().unwrap();
    assert_eq!((contents(&db, "t"), contents(&db, "front")), (rows, front));
    sound(&db);
    let after = db.compact().unwrap();
    assert!(after.file_bytes < report.file_bytes && after.held.is_empty(), "{after:?} behind {report:?}");
    sound(&db);
}

#[test]
fn a_snapshot_reads_long_values_where_they_were() {
    let disk = SimDisk::new(5);
    let db = create(&disk);
    let mut front = fill(&db, "front", 10_000, 300);
    let rows = fill(&db, "long", 40, 50_000);
    delete(&db, "front", &mut front, |i| i % 20 != 0);
    db.sweep().unwrap();
    let mut reader = db
        .begin(TransactionOptions { isolation: Isolation::RepeatableRead, ..TransactionOptions::default() });
    let tree = reader.tree("long").unwrap().unwrap();
    // It has a copy of the leaf, and with it the old places of all values there.
    let view = reader.view();
    let mut scan = view.scan(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    let mut seen = Rows::new();
    let mut read = |scan: &mut gannet_store::Scan| {
        let next = scan.next().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
        next.map(|(key, value)| seen.insert(key, value)).is_some()
    };
    assert!(read(&mut scan));
    let report = db.compact().unwrap();
    println!("{report:?}");
    assert!(report.value_pages_moved > 100 && report.file_bytes > 2 * report.used_bytes, "{report:?}");
    assert!(report.held.iter().any(|held| held.what.contains("snapshot may still read")), "{report:?}");
    // What others write meanwhile does not get there.
    let more = fill(&db, "more", 20, 60_000);
    while read(&mut scan) {}
    assert!(seen == rows);
    drop((scan, view));
    drop(reader);
    let after = db.compact().unwrap();
    assert!(after.file_bytes < report.file_bytes / 2 + 1_500_000, "{after:?}");
    assert!(contents(&db, "long") == rows && contents(&db, "more") == more);
    sound(&db);
}

fn options(db: &Database, name: &str, since: Option<&Manifest>) -> BackupOptions {
    let folder = BackupPlace::new(Arc::clone(db.engine().disk()), "backups");
    let destination = Destination::Folder { folder, name: name.to_owned() };
    BackupOptions { destination, since: since.cloned(), compress: None }
}

fn backup(db: &Database, options: BackupOptions) -> Manifest {
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    job.end(db.backup(options, &mut Watch::new(&job, &mut |_| Ok(())))).unwrap()
}

fn restore(disk: &SimDisk, name: &str, to: &str) -> Database {
    restore_from(disk, chain(disk, name), None, to)
}

/// A backup with all that it adds to.
fn chain(disk: &SimDisk, name: &str) -> Source {
    let place = BackupPlace::new(Arc::new(disk.clone()), Path::new("backups").join(name));
    Source::Files(BackupFile::find(&place).unwrap().chain().unwrap())
}

/// Restored with all that an archive has, if there is one.
fn restore_from(disk: &SimDisk, source: Source, archive: Option<&str>, to: &str) -> Database {
    let engine = engine(disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let mut tell = |_: &_| Ok(());
    let mut watch = Watch::new(&job, &mut tell);
    let (path, opened) = (Path::new(to), OpenOptions::default());
    let restored = match archive {
        Some(archive) => {
            let target = (Path::new(archive), RecoveryTarget::End);
            engine.restore_to(source, target, path, &opened, &mut watch)
        }
        None => engine.restore(source, path, &opened, &mut watch),
    };
    job.end(restored).unwrap();
    open(disk, to)
}

#[test]
fn backups_and_compactions_beside_each_other_and_beside_writers() {
    let disk = SimDisk::new(6);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let mut last: Option<Manifest> = None;
    let mut done = 0;
    let mut counts = Vec::new();
    for name in ["0", "1", "2", "3"] {
        let before = done;
        let (now, manifest) = beside_transfers(&db, done, || {
            std::thread::scope(|scope| {
                let compaction = scope.spawn(|| db.compact().unwrap());
                let manifest = backup(&db, options(&db, name, last.as_ref()));
                compaction.join().unwrap();
                // Between two backups the file is cut.
                db.compact().unwrap();
                manifest
            })
        });
        counts.push(before..=now);
        done = now;
        last = Some(manifest);
    }
    for (index, expected) in counts.iter().enumerate() {
        let copy = restore(&disk, &index.to_string(), &format!("{index}-{COPY}"));
        let transfers = audit(&copy);
        assert!(
            expected.contains(&transfers) || transfers + 1 == *expected.start(),
            "{index}: {transfers} of {expected:?}"
        );
        sound(&copy);
        assert!(copy.compact().unwrap().held.is_empty());
        audit(&copy);
        sound(&copy);
    }
    db.compact().unwrap();
    assert!(len(&disk, FILE) < 2_000_000, "{}", len(&disk, FILE));
}

#[test]
fn the_end_stays_as_long_as_a_backup_is_under_way() {
    let disk = SimDisk::new(7);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = Arc::new(bank(&disk));
    let before = len(&disk, FILE);
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    let mut compaction = None;
    let mut tell = |report: &gannet_store::JobReport| {
        if report.phase == "makes it durable" {
            // Everything but the manifest is written: pages and log of a file that is as it was.
            let other = Arc::clone(&db);
            compaction = Some(thread::spawn("compact", move || other.compact().unwrap()));
            let waits = |report: &gannet_store::JobReport| {
                report.kind == JobKind::Compact && report.note.contains("waits for a backup")
            };
            while !db.jobs().reports().iter().any(waits) {
                clock::sleep(Duration::from_millis(1));
            }
            assert_eq!(len(&disk, FILE), before);
        }
        Ok(())
    };
    job.end(db.backup(options(&db, "full", None), &mut Watch::new(&job, &mut tell))).unwrap();
    let report = compaction.unwrap().join().unwrap();
    assert!(report.file_bytes < before / 2, "{report:?}");
    let copy = restore(&disk, "full", COPY);
    assert_eq!(contents(&copy, "passing"), contents(&db, "passing"));
    sound(&copy);
}

// ---- chains of backups over a cut -----------------------------------------------------------------------------------------

/// Where the space map of the second group lies: a group is 31.5 MiB long.
const SECOND_MAP: u64 = 504 * 16 + 2;

/// Puts long values of so many KiB in, each in a transaction of its own.
fn fill_long(db: &Database, numbers: std::ops::Range<u64>, kib: usize) -> Rows {
    let mut rows = Rows::new();
    for number in numbers {
        let mut txn = db.begin(TransactionOptions::default());
        let tree = match txn.tree("long").unwrap() {
            Some(tree) => tree,
            None => txn.create_tree("long").unwrap(),
        };
        let value = vec![number as u8; kib << 10];
        txn.put(&tree, &key(number), &value).unwrap();
        txn.commit().unwrap();
        rows.insert(key(number), value);
    }
    rows
}

/// What a file has where the second group's space map lies.
fn second_map(disk: &SimDisk, name: &str) -> Vec<u8> {
    let bytes = disk.contents(Path::new(name)).unwrap();
    let at = SECOND_MAP as usize * PAGE;
    bytes.get(at..at + PAGE).map(<[u8]>::to_vec).unwrap_or_default()
}

fn is_map(page: &[u8]) -> bool {
    !page.is_empty() && page::kind(page) == Some(PageKind::SpaceMap)
}

#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_is_restored_over_a_cut_has_no_space_map_of_before_where_the_file_grew_again() {
    let disk = SimDisk::new(21);
    disk.create_dir(Path::new("backups")).unwrap();
    let create = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    let archived = OpenOptions { archive: Some("archive".into()), ..OpenOptions::default() };
    let db = engine(&disk).create(Path::new(FILE), &create, &archived).unwrap();
    let pipe = Pipe::default();
    let to_pipe = |since: Option<&Manifest>| {
        let destination = Destination::Stream(Box::new(pipe.clone()));
        backup(&db, BackupOptions { destination, since: since.cloned(), compress: None })
    };
    let mut rows = fill_long(&db, 0..40, 1024);
    let (full, streamed) = (backup(&db, options(&db, "full", None)), to_pipe(None));
    assert_eq!(full.begin.groups, 2);
    delete(&db, "long", &mut rows, |number| number >= 4);
    db.compact().unwrap();
    assert!(len(&disk, FILE) < 8 << 20, "{}", len(&disk, FILE));
    // It grows by more than is needed: over the place of the map, which is formatted only when its group is.
    let mut next = 100;
    while len(&disk, FILE) <= (SECOND_MAP + 1) * PAGE as u64 {
        rows.extend(fill_long(&db, next..next + 1, 64));
        next += 1;
    }
    let more = backup(&db, options(&db, "incr", Some(&full)));
    to_pipe(Some(&streamed));
    assert_eq!(more.begin.groups, 1, "{more:?}");
    let at_backup = rows.clone();
    rows.extend(fill_long(&db, 50..51, 8));
    db.close().unwrap();
    assert!(!is_map(&second_map(&disk, FILE)), "the group was not formatted");
    let verifying = engine(&disk);
    let job = verifying.jobs().begin(JobOrder::new(JobKind::Verify));
    let mut tell = |_: &_| Ok(());
    let mut watch = Watch::new(&job, &mut tell);
    job.end(verifying.verify(chain(&disk, "incr"), gannet_io::ModeRequest::Auto, &mut watch)).unwrap();
    let stream = || Source::Stream(Box::new(std::io::Cursor::new(pipe.0.lock().clone())));
    for (to, source, archive) in [
        ("files.gnt", chain(&disk, "incr"), None),
        ("stream.gnt", stream(), None),
        ("files-archive.gnt", chain(&disk, "incr"), Some("archive")),
        ("stream-archive.gnt", stream(), Some("archive")),
    ] {
        let copy = restore_from(&disk, source, archive, to);
        assert!(!is_map(&second_map(&disk, to)), "{to}: the map of before is back");
        sound(&copy);
        let expected = if archive.is_some() { &rows } else { &at_backup };
        assert!(contents(&copy, "long") == *expected, "{to}");
        // The group is begun anew, and found by the next opening.
        let mut all = contents(&copy, "long");
        all.extend(fill_long(&copy, 60..70, 1024));
        copy.close().unwrap();
        assert!(is_map(&second_map(&disk, to)), "{to}");
        let copy = open(&disk, to);
        sound(&copy);
        assert!(contents(&copy, "long") == all, "{to}");
    }
}

#[test]
fn a_space_map_that_a_cut_has_left_where_it_was_counts_again_when_its_group_is_begun_anew() {
    for crashes in [false, true] {
        let disk = SimDisk::new(22);
        disk.create_dir(Path::new("backups")).unwrap();
        let create = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
        let archived = OpenOptions { archive: Some("archive".into()), ..OpenOptions::default() };
        let db = engine(&disk).create(Path::new(FILE), &create, &archived).unwrap();
        let mut rows = fill_long(&db, 0..40, 1024);
        let full = backup(&db, options(&db, "full", None));
        delete(&db, "long", &mut rows, |number| number >= 4);
        // The header says that one group is left, and the file stays as long as it is.
        let size_error = Chance::OneIn(1);
        disk.set_faults(Faults { size_error, only: Some(FILE.to_owned()), ..Faults::default() });
        db.compact().unwrap_err();
        disk.set_faults(Faults::default());
        let first = backup(&db, options(&db, "incr-1", Some(&full)));
        let alone = backup(&db, options(&db, "full-1", None));
        assert_eq!((full.begin.groups, first.begin.groups, alone.begin.groups), (2, 1, 1));
        let disk = if crashes {
            disk.power_off();
            drop(db);
            disk.crash_image(1)
        } else {
            db.close().unwrap();
            disk
        };
        assert!(is_map(&second_map(&disk, FILE)));
        let db = engine(&disk).open(Path::new(FILE), &archived).unwrap();
        rows.extend(fill_long(&db, 100..101, 8));
        let second = backup(&db, options(&db, "incr-2", Some(&first)));
        assert_eq!(second.begin.groups, 1, "nothing of the other one is in use");
        let of_second = rows.clone();
        rows.extend(fill_long(&db, 200..230, 1024));
        let third = backup(&db, options(&db, "incr-3", Some(&second)));
        assert_eq!(third.begin.groups, 2);
        let of_third = rows.clone();
        rows.extend(fill_long(&db, 300..301, 8));
        assert!(contents(&db, "long") == rows);
        db.close().unwrap();
        for (name, groups, expected) in [("incr-2", 1, &of_second), ("incr-3", 2, &of_third)] {
            let to = format!("{name}-{COPY}");
            let copy = restore(&disk, name, &to);
            sound(&copy);
            assert_eq!(is_map(&second_map(&disk, &to)), groups == 2, "{name}");
            assert!(contents(&copy, "long") == *expected, "{name}");
        }
        // The log has the map's first contents behind each backup that did not count it.
        for name in ["full", "incr-1", "full-1", "incr-2", "incr-3"] {
            let copy =
                restore_from(&disk, chain(&disk, name), Some("archive"), &format!("all-{name}-{COPY}"));
            sound(&copy);
            assert!(contents(&copy, "long") == rows, "{name}");
        }
    }
}

// ---- crashes, and ends before the end -------------------------------------------------------------------------------------

/// A small database of which most is gone: with long values, and roots behind all that.
fn worn(disk: &SimDisk) -> (Database, Vec<(&'static str, Rows)>) {
    let db = create(disk);
    let mut first = fill(&db, "first", 3000, 300);
    let mut long = fill(&db, "long", 12, 30_000);
    let last = fill(&db, "last", 300, 100);
    delete(&db, "first", &mut first, |i| i % 12 != 0);
    delete(&db, "long", &mut long, |i| i % 3 != 0);
    (db, vec![("first", first), ("long", long), ("last", last)])
}

fn same(db: &Database, rows: &[(&str, Rows)], when: &str) {
    for (name, rows) in rows {
        assert!(contents(db, name) == *rows, "{name} {when}");
    }
    let report = db.check().unwrap();
    assert!(report.findings.is_empty(), "{when}: {:?}", report.findings);
    let restart = db.await_restart();
    assert!(restart.damaged_pages.is_empty(), "{when}: {restart:?}");
}

#[test]
fn a_crash_at_any_point_of_a_compaction_loses_nothing_and_the_next_one_goes_on() {
    let disk = SimDisk::new(8);
    let (db, mut rows) = worn(&disk);
    db.close().unwrap();
    let long = len(&disk, FILE);
    let image = disk.crash_image(1);
    // How many requests a whole one takes.
    let whole = {
        let disk = image.crash_image(2);
        let db = open(&disk, FILE);
        let begun = disk.io_count();
        db.compact().unwrap();
        disk.io_count() - begun
    };
    assert!(whole > 100, "{whole} requests");
    let mut cut = [0; 2];
    for (round, at) in (1..whole + 40).step_by((whole / 60) as usize + 1).enumerate() {
        let disk = image.crash_image(at);
        let db = open(&disk, FILE);
        disk.crash_after(at);
        let outcome = db.compact();
        // Whoever comes later writes where pages were, until the power goes.
        let mut more = Rows::new();
        if outcome.is_ok() {
            more = fill_some(&db, 40);
        }
        disk.power_off();
        drop(db);
        let mut disk = disk.crash_image(at * 31);
        if round % 3 == 0 {
            // And once more, while the log is redone.
            disk.crash_after(at % 50);
            drop(engine(&disk).open(Path::new(FILE), &OpenOptions::default()));
            disk = disk.crash_image(at * 17);
        }
        let db = open(&disk, FILE);
        let when = format!("behind a crash at request {at} of {whole}");
        if !more.is_empty() {
            rows.push(("more", more));
        }
        same(&db, &rows, &when);
        cut[usize::from(len(&disk, FILE) < long)] += 1;
        let report = db.compact().unwrap();
        assert!(report.file_bytes < 1_500_000, "{when}: {report:?}");
        same(&db, &rows, &when);
        db.close().unwrap();
        same(&open(&disk, FILE), &rows, &when);
        rows.retain(|(name, _)| *name != "more");
    }
    assert!(cut[0] > 5 && cut[1] > 0, "files that were not cut, and that were: {cut:?}");
}

#[test]
fn a_file_that_is_cut_and_grows_again_and_again_is_redone_without_what_was_cut_off() {
    let mut disk = SimDisk::new(33);
    let mut db = create(&disk);
    let mut names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"].into_iter();
    let (mut kept, mut ends) = (Vec::new(), 0);
    for (life, rounds) in [3, 2, 6].into_iter().enumerate() {
        // Of these pages the log has only that they lose what is on them.
        let name = format!("base {life}");
        let mut base = fill(&db, &name, 10_000, 200);
        db.checkpoint().unwrap();
        let begun_at = db.background_work().redo_from;
        delete(&db, &name, &mut base, |_| true);
        for round in 0..rounds {
            // Each end lies behind the one before, so no cut covers another one; and the room behind is in use again by what comes next.
            let name = names.next().unwrap();
            kept.push((name, fill(&db, name, 1_000, 200)));
            let other = format!("{name} gone");
            let mut gone = fill(&db, &other, 3_000, 200);
            delete(&db, &other, &mut gone, |_| true);
            let report = db.compact().unwrap();
            assert!(report.file_bytes < report.file_bytes_before * 3 / 4, "{life}, {round}: {report:?}");
            assert!(report.file_bytes > ends, "{life}, {round}: {report:?}");
            ends = report.file_bytes;
            let redo_from = db.background_work().redo_from;
            assert_eq!(redo_from, begun_at, "{life}, {round}");
        }
        disk.power_off();
        drop(db);
        disk = disk.crash_image(life as u64);
        db = open(&disk, FILE);
        same(&db, &kept, &format!("behind the crash of life {life}"));
    }
    db.close().unwrap();
    same(&open(&disk, FILE), &kept, "closed");
}

#[test]
fn a_page_that_came_home_without_a_note_before_a_crash_is_not_redone_once_it_was_cut_off() {
    let disk = SimDisk::new(34);
    let db = create(&disk);
    let kept = fill(&db, "kept", 1_000, 200);
    let gone = fill(&db, "gone", 2_000, 200);
    db.close().unwrap();
    let image = disk.crash_image(1);
    // Of these pages the log has only what they lose.
    let lose = |disk: &SimDisk, gone: &mut Rows| {
        let db = open(disk, FILE);
        delete(&db, "gone", gone, |i| i % 3 == 0);
        db
    };
    let requests = {
        let disk = image.crash_image(2);
        let db = lose(&disk, &mut gone.clone());
        let before = disk.io_count();
        db.checkpoint().unwrap();
        disk.io_count() - before
    };
    for at in 1..=requests {
        let disk = image.crash_image(2);
        let db = lose(&disk, &mut gone.clone());
        disk.crash_after(at);
        let _ = db.checkpoint();
        disk.power_off();
        drop(db);
        // Pages that are found as they should be are written again, and noted.
        let disk = disk.crash_image(at);
        let db = open(&disk, FILE);
        db.await_restart();
        let mut txn = db.begin(TransactionOptions::default());
        txn.drop_tree("gone").unwrap();
        txn.commit().unwrap();
        let report = db.compact().unwrap();
        assert!(report.file_bytes < report.file_bytes_before / 2, "{at}: {report:?}");
        disk.power_off();
        drop(db);
        let db = open(&disk.crash_image(at), FILE);
        same(&db, &[("kept", kept.clone())], &format!("request {at} of {requests}"));
    }
}

/// Rows that are durable.
fn fill_some(db: &Database, count: u64) -> Rows {
    let mut rows = Rows::new();
    let mut txn = db.begin(TransactionOptions::default());
    let Ok(tree) = txn.create_tree("more") else { return rows };
    for number in 0..count {
        let value = value(number, 3000);
        if txn.put(&tree, &key(number), &value).is_err() {
            return Rows::new();
        }
        rows.insert(key(number), value);
    }
    if txn.commit().is_ok() { rows } else { Rows::new() }
}

#[test]
fn a_compaction_that_is_cancelled_leaves_its_work_to_the_next_one() {
    let phases = [
        "sweeps",
        "looks how full pages are",
        "makes trees denser",
        "moves pages",
        "gives back the end of the file",
    ];
    for phase in phases {
        let disk = SimDisk::new(9);
        let (db, rows) = worn(&disk);
        let mut seen = false;
        let outcome = cancelled_when(&db, |report| {
            seen |= report.phase == phase;
            seen
        });
        let state = db.jobs().reports().last().unwrap().state;
        // Whoever is told too late has his work done.
        assert_eq!(outcome.is_err(), state == JobState::Cancelled, "{phase}");
        same(&db, &rows, phase);
        let report = db.compact().unwrap();
        assert!(report.file_bytes < 1_500_000, "{phase}: {report:?}");
        same(&db, &rows, phase);
        db.close().unwrap();
        same(&open(&disk, FILE), &rows, phase);
    }
}

#[test]
fn one_compaction_runs_at_a_time_and_none_where_nothing_can_be_written() {
    let disk = SimDisk::new(10);
    let (db, rows) = worn(&disk);
    let mut refused = None;
    cancelled_when(&db, |_| {
        refused.get_or_insert_with(|| db.compact().unwrap_err());
        false
    })
    .unwrap();
    let error = refused.unwrap();
    assert!(matches!(&error, Error::InUse(what) if what.contains("another compaction")), "{error}");
    same(&db, &rows, "behind a refusal");
    disk.power_off();
    drop(db);
    let disk = disk.crash_image(3);
    let salvage = OpenOptions { salvage: true, ..OpenOptions::default() };
    let db = engine(&disk).open(Path::new(FILE), &salvage).unwrap();
    let error = db.compact().unwrap_err();
    assert!(matches!(&error, Error::Damaged(what) if what.contains("reading only")), "{error}");
}

#[test]
fn a_full_device_gets_room_back() {
    let settings =
        gannet_io::sim::Settings { capacity_bytes: Some(64 << 20), ..gannet_io::sim::Settings::default() };
    let disk = SimDisk::with_settings(11, settings);
    let (db, rows) = worn(&disk);
    let file = disk.open(Path::new("others"), &gannet_io::OpenOptions::create_new()).unwrap();
    let (mut end, mut step) = (0, 1 << 26);
    while step >= 4096 {
        match file.allocate(end, step) {
            Ok(()) => end += step,
            Err(_) => step /= 2,
        }
    }
    let before = len(&disk, FILE);
    let report = db.compact().unwrap();
    println!("{report:?}");
    assert!(report.file_bytes < before / 2, "{report:?}");
    assert!(db.failure().is_none());
    same(&db, &rows, "on a full device");
}

#[test]
fn statistics_and_checks_beside_a_compaction_are_those_of_a_sound_database() {
    let disk = SimDisk::new(12);
    let db = bank(&disk);
    let stop = AtomicBool::new(false);
    let has_all_accounts = |report: &StatReport| {
        let accounts = report.trees.iter().find(|tree| tree.name.as_deref() == Some("accounts")).unwrap();
        let rows = accounts.contents.as_ref().unwrap().rows;
        assert!(rows.covers((ACCOUNTS + 1) as f64), "{rows:?}");
    };
    let statistics = || {
        let records = StatOptions { mode: StatMode::Records, ..StatOptions::default() };
        [records, StatOptions::default()].map(|options| db.statistics(&options).unwrap())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                // What moves meanwhile may be counted twice, or not at all, which is said.
                for report in statistics() {
                    assert!(report.unreadable.is_empty(), "{:?}", report.unreadable);
                    if report.mode == StatMode::Records && !report.changed_meanwhile {
                        has_all_accounts(&report);
                    }
                }
                sound(&db);
                clock::sleep(Duration::from_millis(30));
            }
        });
        for round in 0..4 {
            let mut passing = fill(&db, &format!("round {round}"), 600, 300);
            delete(&db, &format!("round {round}"), &mut passing, |i| i % 10 != 0);
            db.compact().unwrap();
        }
        stop.store(true, Ordering::SeqCst);
    });
    statistics().iter().for_each(has_all_accounts);
    sound(&db);
}
