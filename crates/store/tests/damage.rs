//! Bit flips in every page and every log record of a small database, pages of zeros, and truncation: what is damaged is named,
//! the rest stays readable, nothing wrong is served, nothing panics, and a check finds each.
//!
//! - `cargo test --test damage` takes a few bytes of each page and of each part of the log.
//! - `DAMAGE=all cargo test --release -p gannet-store --test damage -- --nocapture` takes every byte (an hour or so).

use gannet_base::TreeId;
use gannet_io::sim::{Chance, CrashPolicy, Faults, SimDisk};
use gannet_io::{Disk, OpenOptions as FileOptions};
use gannet_store::page::{self, PageKind};
use gannet_store::{
    BackupOptions, CreateOptions, Database, Destination, Engine, EngineOptions, JobKind, JobOrder, Manifest,
    OpenOptions, Result, Stake, TransactionOptions, Watch,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILE: &str = "d.gnt";
const WAL: &str = "d.gnt-wal";
const PAGE: usize = 4096;
/// Bytes of a page's header, each of which is tried in any case.
const HEADER: usize = 24;
/// Where a space map has its first extent.
const FIRST_DESCRIPTOR: usize = 64;
/// Bytes of a log segment's header.
const SEGMENT_HEADER: usize = 4096;

/// Owner of undo segments.
const UNDO_PAGES: TreeId = TreeId(4);

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn is_exhaustive() -> bool {
    std::env::var_os("DAMAGE").is_some_and(|value| value == "all")
}

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 8 << 20, ..EngineOptions::default() }).unwrap()
}

/// What is in use stays so until it was looked at.
fn unswept() -> OpenOptions {
    OpenOptions { sweep: false, ..OpenOptions::default() }
}

fn open(disk: &SimDisk) -> Result<Database> {
    engine(disk).open(Path::new(FILE), &OpenOptions { wal_limit: 4 << 20, ..unswept() })
}

/// A database with every kind of page, among them undo that waits to be swept, and what its tree holds.
fn sample(disk: &SimDisk) -> (Database, Rows) {
    let (db, mut states) = sample_with_history(disk);
    (db, states.pop().unwrap())
}

/// The same with what its tree held after each commit.
fn sample_with_history(disk: &SimDisk) -> (Database, Vec<Rows>) {
    let create = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    let db = engine(disk).create(Path::new(FILE), &create, &unswept()).unwrap();
    let mut rows = Rows::new();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    for i in 0..400_u64 {
        let (key, value) = (format!("{i:04}").into_bytes(), vec![i as u8; 60 + i as usize % 50]);
        txn.put(&tree, &key, &value).unwrap();
        rows.insert(key, value);
    }
    let long: Vec<u8> = (0..5 * PAGE).map(|i| (i * 7) as u8).collect();
    txn.put(&tree, b"long", &long).unwrap();
    rows.insert(b"long".to_vec(), long);
    txn.commit().unwrap();
    let before = rows.clone();
    let mut txn = db.begin(TransactionOptions::default());
    for i in 100..120 {
        let key = format!("{i:04}").into_bytes();
        txn.put(&tree, &key, b"changed").unwrap();
        rows.insert(key, b"changed".to_vec());
    }
    assert!(txn.delete(&tree, b"0007").unwrap());
    rows.remove(&b"0007"[..]);
    txn.commit().unwrap();
    (db, vec![before, rows])
}

/// What can be read, key by key: an error ends a scan, so that each row is asked for.
fn read(db: &Database, expected: &Rows) -> std::result::Result<(), Vec<String>> {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = match txn.tree("t") {
        Ok(Some(tree)) => tree,
        Ok(None) => panic!("the tree is gone without a word"),
        Err(error) => return Err(vec![error.to_string()]),
    };
    let mut errors = Vec::new();
    for (key, value) in expected {
        match txn.get(&tree, key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value), "{:?}", String::from_utf8_lossy(key)),
            Err(error) => errors.push(error.to_string()),
        }
    }
    let mut cursor = txn.cursor(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    let mut found = Rows::new();
    loop {
        match cursor.next() {
            Ok(Some((key, value))) => drop(found.insert(key.to_vec(), value.to_vec())),
            Ok(None) => break,
            Err(error) => {
                errors.push(error.to_string());
                break;
            }
        }
    }
    assert!(found.iter().all(|(key, value)| expected.get(key) == Some(value)), "a row that is not there");
    assert!(!errors.is_empty() || found == *expected, "rows are missing without a word");
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Bytes of a page or record that are tried: all of them, or its header and a few others.
fn places(len: usize, header: usize, others: usize, number: usize) -> Vec<usize> {
    if is_exhaustive() {
        return (0..len).collect();
    }
    let mut places: Vec<usize> = (0..header).step_by(5).map(|at| (at + number % 5) % header).collect();
    places.extend((0..others).map(|nth| header + (number * 131 + nth * 997) % (len - header)));
    places
}

fn flip(disk: &SimDisk, path: &Path, at: u64) {
    let mut sector = gannet_io::AlignedBuffer::zeroed(512);
    let file = disk.open(path, &FileOptions::read_write()).unwrap();
    let start = at / 512 * 512;
    file.read_at(gannet_io::Class::Foreground, start, &mut sector).unwrap();
    sector[(at - start) as usize] ^= 1 << (at % 8);
    let durable = gannet_io::Durability::Durable;
    file.write_at(gannet_io::Class::Foreground, start, &sector, durable).unwrap();
}

/// As a device does that has forgotten a page.
fn forget(disk: &SimDisk, number: usize) {
    let file = disk.open(Path::new(FILE), &FileOptions::read_write()).unwrap();
    let zeros = gannet_io::AlignedBuffer::zeroed(PAGE);
    let durable = gannet_io::Durability::Durable;
    file.write_at(gannet_io::Class::Foreground, (number * PAGE) as u64, &zeros, durable).unwrap();
}

fn copy(disk: &SimDisk) -> SimDisk {
    disk.peek_crash(Some(CrashPolicy::KeepAll), 1)
}

/// How often a kind of page was damaged, and what came of it.
#[derive(Debug, Default)]
struct Tally {
    tried: u64,
    refused: u64,
    found: u64,
    rows_unreadable: u64,
}

/// Flips one byte of a page of a closed database; says whether the damage was noticed.
fn flip_in_page(sound: &SimDisk, rows: &Rows, number: usize, at: usize, tally: &mut Tally) -> bool {
    let place = format!("page {number}, byte {at}");
    let disk = copy(sound);
    flip(&disk, Path::new(FILE), (number * PAGE + at) as u64);
    let found = look(&disk, rows, number, &place, tally);
    // The background may have swept the segment by now: of its pages only those with records are read.
    let now = |db: Database| db.pages_by_tree().unwrap().get(&UNDO_PAGES).copied().unwrap_or(0);
    let before = || pages_in_use(&sound.contents(Path::new(FILE)).unwrap(), Some(UNDO_PAGES));
    found.is_none_or(|(db, found)| found || now(db) < before())
}

/// Looks at a database with a damaged page, and at everything in it; says whether the check has found the page, unless the start has
/// refused the file and named it.
fn look(
    disk: &SimDisk,
    rows: &Rows,
    number: usize,
    place: &str,
    tally: &mut Tally,
) -> Option<(Database, bool)> {
    tally.tried += 1;
    let named = |text: &str| text.contains(&format!("page {number}")) || text.contains(FILE);
    let db = match open(disk) {
        Ok(db) => db,
        Err(error) => {
            assert!(named(&error.to_string()), "{place}: {error}");
            tally.refused += 1;
            return None;
        }
    };
    let report = db.check().unwrap();
    let found = report.findings.iter().any(|finding| finding.page.0 == number as u64);
    let others = report.findings.iter().filter(|finding| finding.page.0 != number as u64).count();
    assert!(others == 0, "{place}: {:#?}", report.findings);
    if let Err(errors) = read(&db, rows) {
        tally.rows_unreadable += 1;
        assert!(found && errors.iter().all(|error| named(error)), "{place}: {errors:?}");
    }
    tally.found += u64::from(found);
    Some((db, found))
}

/// Pages in use, of a tree or of all, as the first space map of a file says; the header's are left out.
fn pages_in_use(file: &[u8], tree: Option<TreeId>) -> u64 {
    let map = &file[2 * PAGE..3 * PAGE];
    let extents = map[FIRST_DESCRIPTOR..].chunks_exact(8).filter(|extent| {
        let owner = u32::from_le_bytes(extent[4..].try_into().unwrap());
        owner != 0 && tree.is_none_or(|tree| tree.0 == owner)
    });
    let used = extents.map(|extent| u64::from(u16::from_le_bytes([extent[0], extent[1]]).count_ones()));
    used.sum::<u64>() - if tree.is_none() { 2 } else { 0 }
}

#[test]
fn every_flipped_byte_of_every_page_is_found_and_the_rest_is_served() {
    let sound = SimDisk::new(1);
    let (db, rows) = sample(&sound);
    db.close().unwrap();
    let bytes = sound.contents(Path::new(FILE)).unwrap();
    let image = copy(&sound);
    let report = open(&image).unwrap().check().unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut in_use = 0;
    for number in 2..bytes.len() / PAGE {
        let kind = page::kind(&bytes[number * PAGE..(number + 1) * PAGE]);
        let tally = tallies.entry(format!("{kind:?}")).or_default();
        let mut places = places(PAGE, HEADER, 3, number);
        let first = flip_in_page(&sound, &rows, number, places.remove(0), tally);
        in_use += u64::from(first);
        // What is not in use may hold anything.
        for at in places.into_iter().filter(|_| first) {
            assert!(flip_in_page(&sound, &rows, number, at, tally), "page {number}, byte {at}: not found");
        }
    }
    println!("{tallies:#?}");
    assert_eq!(in_use, pages_in_use(&bytes, None), "each page in use was found damaged");
    let kinds =
        [PageKind::SpaceMap, PageKind::Node, PageKind::Undo, PageKind::Overflow, PageKind::OverflowIndex];
    for kind in kinds {
        let tally = &tallies[&format!("{:?}", Some(kind))];
        assert!(tally.found + tally.refused > 0, "{kind:?}: {tally:?}");
    }
}

#[test]
fn a_page_of_zeros_is_found_and_the_rest_is_served() {
    let sound = SimDisk::new(1);
    let (db, rows) = sample(&sound);
    db.close().unwrap();
    let bytes = sound.contents(Path::new(FILE)).unwrap();
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for number in 2..bytes.len() / PAGE {
        let kind = page::kind(&bytes[number * PAGE..(number + 1) * PAGE]);
        // Pages of undo that nobody has written to are zeros; and nobody needs what is in the others any more.
        if matches!(kind, None | Some(PageKind::Undo)) {
            continue;
        }
        let disk = copy(&sound);
        forget(&disk, number);
        let tally = tallies.entry(format!("{kind:?}")).or_default();
        let found = look(&disk, &rows, number, &format!("page {number} of zeros, {kind:?}"), tally);
        assert!(found.is_none_or(|(_, found)| found), "page {number} of zeros, {kind:?}: not found");
    }
    println!("{tallies:#?}");
    assert_eq!(tallies.len(), 4, "{tallies:?}");
}

/// Which pages are in use by trees, or for the store itself, as the first space map of a file says.
fn used_by_trees(file: &[u8]) -> Vec<usize> {
    let map = &file[2 * PAGE..3 * PAGE];
    let mut pages = Vec::new();
    for (extent, bytes) in map[FIRST_DESCRIPTOR..].chunks_exact(8).enumerate() {
        let used = u16::from_le_bytes([bytes[0], bytes[1]]);
        let owner = u32::from_le_bytes(bytes[4..].try_into().unwrap());
        if owner != 0 && owner != UNDO_PAGES.0 {
            pages.extend((0..16).filter(|place| used & 1 << place != 0).map(|place| extent * 16 + place));
        }
    }
    pages.retain(|&page| page >= 2);
    pages
}

fn backup(db: &Database) -> Result<Manifest> {
    let destination = Destination::Stream(Box::new(std::io::sink()));
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    let options = BackupOptions { destination, since: None, compress: None };
    job.end(db.backup(options, &mut Watch::new(&job, &mut |_| Ok(()))))
}

#[test]
fn a_page_of_a_tree_that_the_device_had_lost_as_zeros_was_left_out_of_a_backup() {
    let sound = SimDisk::new(5);
    let (db, _) = sample(&sound);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("loaded").unwrap();
    let rows: Vec<[u8; 8]> = (0..1500_u64).map(u64::to_be_bytes).collect();
    txn.bulk_load(&tree, rows.iter().map(|key| (&key[..], &[1; 100][..]))).unwrap();
    txn.put(&tree, b"long", &[5; 20 * PAGE]).unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
    let bytes = sound.contents(Path::new(FILE)).unwrap();
    let whole = backup(&open(&copy(&sound)).unwrap()).unwrap();
    assert_eq!(whole.unwritten, whole.unwritten_undo);
    let (mut refused, pages) = (0, used_by_trees(&bytes));
    for &number in &pages {
        let disk = copy(&sound);
        forget(&disk, number);
        let error = match open(&disk) {
            Ok(db) => backup(&db).map(drop).expect_err(&format!("page {number}")),
            Err(error) => {
                refused += 1;
                error
            }
        };
        let text = error.to_string();
        let is_named = [' ', ':'].iter().any(|behind| text.contains(&format!("page {number}{behind}")));
        assert!(is_named, "page {number}: {text}");
    }
    let full = pages.chunk_by(|a, b| a / 16 == b / 16).filter(|extent| extent.len() == 16).count();
    assert!(full > 3 && refused < 5, "{full} full extents, {refused} refused");
}

#[test]
fn of_a_row_whose_change_never_ended_check_says_that_it_cannot_be_read_without_its_undo() {
    let sound = SimDisk::new(4);
    let (db, _) = sample(&sound);
    let mut open_txn = db.begin(TransactionOptions::default());
    let tree = open_txn.tree("t").unwrap().unwrap();
    open_txn.put(&tree, b"0200", b"never committed").unwrap();
    // Everything is home: the log heals nothing of it.
    db.checkpoint().unwrap();
    let disk = copy(&sound);
    disk.remove(&Path::new(WAL).join("ring")).unwrap();
    let bytes = disk.contents(Path::new(FILE)).unwrap();
    for (number, page) in bytes.chunks_exact(PAGE).enumerate() {
        if page::kind(page) == Some(PageKind::Undo) {
            flip(&disk, Path::new(FILE), (number * PAGE + PAGE / 2) as u64);
        }
    }
    let crashed = open(&disk).unwrap();
    let findings = crashed.check().unwrap().findings;
    let stake = Stake::Row { key: b"0200".to_vec() };
    assert!(findings.iter().any(|finding| finding.stake == stake), "{findings:#?}");
    let mut txn = crashed.begin(TransactionOptions::default());
    let tree = txn.tree("t").unwrap().unwrap();
    assert!(txn.get(&tree, b"0200").is_err(), "what it was is lost");
    assert!(txn.get(&tree, b"0201").unwrap().is_some());
}

#[test]
fn a_closed_file_alone_is_the_database_with_either_copy_of_its_header() {
    let sound = SimDisk::new(3);
    let (db, rows) = sample(&sound);
    db.close().unwrap();
    let names: Vec<_> = sound.list(Path::new(WAL)).unwrap();
    names.iter().for_each(|name| sound.remove(&Path::new(WAL).join(name)).unwrap());
    for number in 0..2 {
        let disk = copy(&sound);
        forget(&disk, number);
        let db = open(&disk).unwrap();
        assert_eq!(read(&db, &rows), Ok(()), "without page {number}");
    }
    // Of one that was not closed either copy says so, and the error names the one that is damaged.
    let running = copy(&sound);
    let _db = open(&running).unwrap();
    for number in 0..2 {
        let disk = copy(&running);
        let names: Vec<_> = disk.list(Path::new(WAL)).unwrap();
        names.iter().for_each(|name| disk.remove(&Path::new(WAL).join(name)).unwrap());
        forget(&disk, number);
        let error = open(&disk).expect_err("its log is gone").to_string();
        assert!(error.contains(&format!("page {number} ")) && error.contains("is damaged"), "{error}");
    }
}

#[test]
fn a_flipped_byte_of_the_header_is_survived_by_the_other_copy() {
    let sound = SimDisk::new(2);
    let (db, rows) = sample(&sound);
    db.checkpoint().unwrap();
    for number in 0..2 {
        for at in places(PAGE, 152, 3, number) {
            // Of an open database: an opening writes the older copy anew.
            let before = sound.contents(Path::new(FILE)).unwrap();
            flip(&sound, Path::new(FILE), (number * PAGE + at) as u64);
            let findings = db.check().unwrap().findings;
            assert!(
                findings.len() == 1 && findings[0].page.0 == number as u64,
                "page {number}, byte {at}: {findings:#?}"
            );
            flip(&sound, Path::new(FILE), (number * PAGE + at) as u64);
            assert!(sound.contents(Path::new(FILE)).unwrap() == before);
        }
    }
    assert!(db.check().unwrap().findings.is_empty());
    assert_eq!(read(&db, &rows), Ok(()));
}

#[test]
fn a_sector_that_cannot_be_read_kept_the_database_from_opening() {
    let disk = SimDisk::new(9);
    let (db, rows) = sample(&disk);
    db.close().unwrap();
    let (mut read_only, mut refused) = (0, Vec::new());
    for nth in 1.. {
        let image = copy(&disk);
        let read_error = Chance::At(vec![nth]);
        image.set_faults(Faults { read_error, only: Some(FILE.to_owned()), ..Faults::default() });
        let opened = open(&image);
        if image.injected().is_empty() {
            break;
        }
        image.set_faults(Faults::default());
        let Ok(db) = opened else {
            refused.push(nth);
            continue;
        };
        read(&db, &rows).unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        read_only += usize::from(txn.create_tree("another").is_err());
    }
    assert!(read_only >= 2, "the last space map, and the tree of states: {read_only}");
    assert!(refused.len() <= 1, "without the catalog there is nothing to open: {refused:?}");
}

#[test]
fn a_database_cut_short_anywhere_is_refused_or_says_what_is_missing() {
    let sound = SimDisk::new(3);
    let (db, rows) = sample(&sound);
    db.close().unwrap();
    let len = sound.contents(Path::new(FILE)).unwrap().len();
    let step = if is_exhaustive() { 512 } else { 5 * PAGE + 512 };
    let (mut refused, mut found, mut whole) = (0, 0, 0);
    for left in (0..len).step_by(step) {
        let disk = copy(&sound);
        disk.open(Path::new(FILE), &FileOptions::read_write()).unwrap().set_len(left as u64).unwrap();
        match open(&disk) {
            Err(error) => {
                assert!(error.to_string().contains(FILE), "{left} bytes: {error}");
                refused += 1;
            }
            Ok(db) => {
                let findings = db.check().unwrap().findings;
                let readable = read(&db, &rows).is_ok();
                assert!(readable || !findings.is_empty(), "{left} bytes: not found");
                if findings.is_empty() { whole += 1 } else { found += 1 }
            }
        }
    }
    println!("{refused} refused, {found} found, {whole} with nothing but free space cut off");
    assert!(refused > 0 && found + refused > 10);
}

/// Flips a byte of the log of a crashed database.
fn flip_in_log(sound: &SimDisk, rows: &Rows, path: &Path, at: usize, tally: &mut Tally) {
    let place = format!("{path:?}, byte {at}");
    let disk = copy(sound);
    flip(&disk, path, at as u64);
    tally.tried += 1;
    let db = match open(&disk) {
        Ok(db) => db,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("log") || text.contains(WAL) || text.contains("page "), "{place}: {text}");
            tally.refused += 1;
            return;
        }
    };
    let report = db.check().unwrap();
    match read(&db, rows) {
        // What was damaged was needed by nobody any more.
        Ok(()) if db.restart_report().damaged_pages.is_empty() => {
            assert!(report.findings.is_empty(), "{place}: {:#?}", report.findings);
        }
        Ok(()) => tally.found += u64::from(!report.findings.is_empty()),
        Err(errors) => {
            tally.rows_unreadable += 1;
            tally.found += 1;
            assert!(!report.findings.is_empty(), "{place}: {errors:?}");
        }
    }
}

#[test]
fn every_flipped_byte_of_the_log_is_noticed_or_harmless() {
    let disk = SimDisk::new(4);
    let (db, rows) = sample(&disk);
    // What was acknowledged last of all cannot be told from a write that a crash has torn: nothing behind it says that
    // it was durable. So something follows what this test looks at.
    for name in ["u", "v", "w"] {
        let mut txn = db.begin(TransactionOptions::default());
        txn.create_tree(name).unwrap();
        txn.commit().unwrap();
    }
    let end = db.stats().end_lsn.0;
    let sound = copy(&disk);
    drop(db);
    assert_eq!(read(&open(&copy(&sound)).unwrap(), &rows), Ok(()));
    let mut tally = Tally::default();
    let mut segments: Vec<PathBuf> = sound.files();
    segments.retain(|path| path.starts_with(WAL) && path.extension().is_some_and(|end| end == "log"));
    for path in segments {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let first = u64::from_str_radix(name, 16).unwrap() << 18;
        let used = (end.saturating_sub(first) as usize).min(1 << 18);
        if used == 0 {
            continue;
        }
        for at in places(SEGMENT_HEADER, 48, 3, 1) {
            flip_in_log(&sound, &rows, &path, at, &mut tally);
        }
        let step = if is_exhaustive() { 1 } else { 397 };
        for at in (SEGMENT_HEADER..used).step_by(step) {
            flip_in_log(&sound, &rows, &path, at, &mut tally);
        }
    }
    println!("{tally:#?}");
    assert!(tally.refused > 10, "{tally:?}");
}

#[test]
fn a_log_cut_short_anywhere_is_noticed_or_harmless() {
    let disk = SimDisk::new(5);
    let (db, rows) = sample(&disk);
    for name in ["u", "v", "w"] {
        let mut txn = db.begin(TransactionOptions::default());
        txn.create_tree(name).unwrap();
        txn.commit().unwrap();
    }
    let sound = copy(&disk);
    drop(db);
    let mut segments: Vec<PathBuf> = sound.files();
    segments.retain(|path| path.starts_with(WAL) && path.extension().is_some_and(|end| end == "log"));
    let mut refused = 0;
    for path in segments {
        let len = sound.contents(&path).unwrap().len();
        let step = if is_exhaustive() { 512 } else { 16 << 10 };
        for left in (0..len).step_by(step) {
            let disk = copy(&sound);
            disk.open(&path, &FileOptions::read_write()).unwrap().set_len(left as u64).unwrap();
            match open(&disk) {
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("log") || text.contains(WAL), "{path:?}, {left} bytes: {text}");
                    refused += 1;
                }
                Ok(db) => {
                    let sound = db.check().unwrap().findings.is_empty();
                    assert_eq!(read(&db, &rows).is_ok(), sound, "{path:?}, {left} bytes");
                }
            }
        }
    }
    assert!(refused > 0);
}

fn files(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    disk.files().into_iter().map(|path| (path.clone(), disk.contents(&path).unwrap())).collect()
}

/// What a salvage shows: rows that can be read are those of one moment. Gives which state of `states` that was (0 is before the
/// first), and how many rows cannot be read; nothing where a page that says what there is came home later than that.
fn salvaged(disk: &SimDisk, states: &[Rows], place: &str) -> Option<(usize, usize)> {
    let options = OpenOptions { salvage: true, ..OpenOptions::default() };
    let db = match engine(disk).open(Path::new(FILE), &options) {
        Ok(db) => db,
        Err(error) => {
            assert!(error.to_string().contains("page "), "{place}: {error}");
            return None;
        }
    };
    assert!(db.restart_report().lost.is_some(), "{place}");
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.create_tree("new").is_err());
    let mut unreadable = 0;
    let mut possible: Vec<usize> = (0..=states.len()).collect();
    match txn.tree("t") {
        Ok(Some(tree)) => {
            for key in states[0].keys() {
                match txn.get(&tree, key) {
                    Ok(found) => possible.retain(|&at| at > 0 && states[at - 1].get(key) == found.as_ref()),
                    Err(_) => unreadable += 1,
                }
            }
        }
        Ok(None) => possible.truncate(1),
        Err(_) => unreadable += states[0].len(),
    }
    assert!(!possible.is_empty(), "{place}: what a salvage shows was never there at one time");
    drop(txn);
    db.close().unwrap();
    Some((possible[0], unreadable))
}

#[test]
fn what_a_damaged_log_leaves_is_salvaged_as_it_was_at_one_time() {
    let disk = SimDisk::new(6);
    let (db, states) = sample_with_history(&disk);
    // Some of it is in the data file, newer than what the log will have.
    db.checkpoint().unwrap();
    for round in 0..3 {
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree(&format!("other {round}")).unwrap();
        for i in 0..100_u32 {
            txn.put(&tree, &i.to_be_bytes(), &[7; 300]).unwrap();
        }
        txn.commit().unwrap();
    }
    let checkpointed = copy(&disk);
    drop(db);
    let disk = SimDisk::new(7);
    let (db, _) = sample_with_history(&disk);
    for round in 0..40 {
        let mut txn = db.begin(TransactionOptions::default());
        // It lies in a leaf with others.
        let tree = txn.tree("t").unwrap().unwrap();
        txn.put(&tree, b"0399 and more", &[round; 300]).unwrap();
        txn.commit().unwrap();
    }
    let end = db.stats().end_lsn.0 as usize;
    let fresh = copy(&disk);
    // All pages came home, and then the power went, before the header was written.
    db.checkpoint().unwrap();
    let home = disk.contents(Path::new(FILE)).unwrap();
    let written = copy(&fresh);
    let file = written.open(Path::new(FILE), &FileOptions::read_write()).unwrap();
    let mut pages = gannet_io::AlignedBuffer::zeroed(home.len() - 2 * PAGE);
    pages.copy_from_slice(&home[2 * PAGE..]);
    let durable = gannet_io::Durability::Durable;
    file.write_at(gannet_io::Class::Foreground, 2 * PAGE as u64, &pages, durable).unwrap();
    drop((db, file));
    let mut seen = [0; 3];
    let (mut unreadable, mut hopeless) = (0, 0);
    for (sound, step) in [(&fresh, 1009), (&written, 1013), (&checkpointed, 4099)] {
        let mut segments: Vec<PathBuf> = sound.files();
        segments.retain(|path| path.starts_with(WAL) && path.extension().is_some_and(|end| end == "log"));
        for path in segments {
            let step = if is_exhaustive() { 61 } else { step };
            for at in (0..end.min(1 << 18)).step_by(step) {
                let place = format!("{path:?}, byte {at}");
                let disk = copy(sound);
                flip(&disk, &path, at as u64);
                let Err(refusal) = open(&copy(&disk)) else { continue };
                if !refusal.to_string().contains("--salvage") {
                    hopeless += 1;
                    continue;
                }
                let before = files(&disk);
                let outcome = salvaged(&disk, &states, &place);
                assert!(files(&disk) == before, "{place}: a salvage has changed a file");
                assert!(open(&disk).is_err(), "{place}: a salvage has hidden the damage");
                match outcome {
                    Some((state, rows)) => {
                        seen[state] += 1;
                        unreadable += usize::from(rows > 0);
                    }
                    None => hopeless += 1,
                }
            }
        }
    }
    println!("{seen:?} by moment, {unreadable} with rows that cannot be read, {hopeless} refused");
    assert!(seen.iter().all(|&count| count > 0) && unreadable > 0, "{seen:?}, {unreadable}");
}
