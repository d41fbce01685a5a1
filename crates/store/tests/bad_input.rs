//! Files that are not what they should be: a clear error that names the thing, the rest readable, nothing wrong served.

use gannet_base::sim::Simulation;
use gannet_base::{clock, thread};
use gannet_io::sim::{Chance, Faults, Settings, SimDisk};
use gannet_io::{AlignedBuffer, Class, Disk, OpenOptions as FileOptions};
use gannet_store::{
    CreateOptions, Database, Durability, Engine, EngineOptions, Error, OpenOptions, Result,
    TransactionOptions,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FILE: &str = "b.gnt";
const WAL: &str = "b.gnt-wal";
const PAGE: u64 = 4096;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 8 << 20, ..EngineOptions::default() }).unwrap()
}

fn options() -> OpenOptions {
    OpenOptions { wal_limit: 4 << 20, ..OpenOptions::default() }
}

fn open(disk: &SimDisk) -> Result<Database> {
    engine(disk).open(Path::new(FILE), &options())
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A small database with a few trees' worth of pages, and what it holds.
fn sample(disk: &SimDisk) -> (Database, Rows) {
    let create = CreateOptions { page_size: PAGE as usize, segment_size: 1 << 18 };
    let db = engine(disk).create(Path::new(FILE), &create, &options()).unwrap();
    let mut rows = Rows::new();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    for i in 0..1500u64 {
        let (key, value) = (i.to_be_bytes().to_vec(), vec![i as u8; 100 + i as usize % 50]);
        txn.put(&tree, &key, &value).unwrap();
        rows.insert(key, value);
    }
    let long = vec![7; 60_000];
    txn.put(&tree, b"long", &long).unwrap();
    rows.insert(b"long".to_vec(), long);
    txn.commit().unwrap();
    (db, rows)
}

fn read_all(db: &Database) -> Result<Rows> {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("t")?.ok_or(Error::NeverWritten(Default::default()))?;
    let mut cursor = txn.cursor(&tree, (Bound::Unbounded, Bound::Unbounded))?;
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.next()? {
        rows.insert(key.to_vec(), value.to_vec());
    }
    Ok(rows)
}

fn closed_sample(seed: u64) -> (SimDisk, Rows) {
    let disk = SimDisk::new(seed);
    let (db, rows) = sample(&disk);
    db.close().unwrap();
    (disk, rows)
}

/// Either everything is right, or an error says what is wrong.
fn right_or_refused(disk: &SimDisk, rows: &Rows, what: &str) -> bool {
    match open(disk).and_then(|db| read_all(&db)) {
        Ok(found) => {
            assert_eq!(&found, rows, "{what}");
            true
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() > 15 && !text.contains("panick"), "{what}: {text}");
            false
        }
    }
}

#[test]
fn a_foreign_an_empty_and_a_missing_file_are_told_apart() {
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new(FILE), &FileOptions::create_new()).unwrap();
    assert!(open(&disk).unwrap_err().to_string().contains("not a Gannet database"));
    file.set_len(1 << 20).unwrap();
    assert!(open(&disk).unwrap_err().to_string().contains("not a Gannet database"));
    assert!(!disk.exists(Path::new(WAL)).unwrap(), "a foreign file stays alone");
    let missing = engine(&disk).open(Path::new("missing"), &options()).unwrap_err();
    assert!(missing.to_string().contains("missing"), "{missing}");
}

#[test]
fn one_damaged_header_is_survived_and_two_are_named() {
    let (disk, rows) = closed_sample(2);
    disk.corrupt(Path::new(FILE), 100, 8, 1).unwrap();
    assert!(right_or_refused(&disk, &rows, "one header"));
    for offset in [30, PAGE + 30] {
        disk.corrupt(Path::new(FILE), offset, 100, 2).unwrap();
    }
    let error = open(&disk).unwrap_err();
    assert!(matches!(error, Error::Damaged(_) | Error::Format(_)), "{error}");
    assert!(error.to_string().contains(FILE), "{error}");
    // A device that has forgotten both is no reason to throw away the rest.
    let zeros = AlignedBuffer::zeroed(2 * PAGE as usize);
    let file = disk.open(Path::new(FILE), &FileOptions::read_write()).unwrap();
    file.write_at(Class::Foreground, 0, &zeros, gannet_io::Durability::Durable).unwrap();
    let error = open(&disk).unwrap_err().to_string();
    assert!(error.contains(FILE) && !error.contains("remove it"), "{error}");
}

#[test]
fn a_log_newer_than_the_only_whole_header_is_not_said_to_be_of_another_file() {
    let (disk, rows) = closed_sample(23);
    let closed = disk.contents(Path::new(FILE)).unwrap();
    let db = open(&disk).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    txn.create_tree("u").unwrap();
    txn.commit().unwrap();
    for (bad, other) in [(0, PAGE), (PAGE, 0)] {
        let image = disk.peek_crash(None, 1);
        image.corrupt(Path::new(FILE), bad + 30, 100, 1).unwrap();
        let db = open(&image).unwrap();
        assert_eq!(read_all(&db).unwrap(), rows);
        assert!(db.begin(TransactionOptions::default()).tree("u").unwrap().is_some());
        drop(db);
        // As it was between the two writes of the start.
        let image = disk.peek_crash(None, 1);
        image.corrupt(Path::new(FILE), bad + 30, 100, 1).unwrap();
        let mut page = AlignedBuffer::zeroed(PAGE as usize);
        page.copy_from_slice(&closed[other as usize..(other + PAGE) as usize]);
        let file = image.open(Path::new(FILE), &FileOptions::read_write()).unwrap();
        file.write_at(Class::Foreground, other, &page, gannet_io::Durability::Durable).unwrap();
        let error = open(&image).expect_err("the log is newer").to_string();
        assert!(error.contains("incarnation") && error.contains("only this one is whole"), "{error}");
        assert!(!error.contains("move the log away"), "{error}");
    }
}

#[test]
fn a_database_cut_short_is_named() {
    let (_, rows) = closed_sample(3);
    let mut refused = 0;
    for pages in [1, 2, 3, 5, 6, 17, 40, 60, 100, 200] {
        let (disk, _) = closed_sample(3);
        let file = disk.open(Path::new(FILE), &FileOptions::read_write()).unwrap();
        file.set_len(pages * PAGE).unwrap();
        drop(file);
        refused += u32::from(!right_or_refused(&disk, &rows, &format!("{pages} pages")));
    }
    assert!(refused >= 6, "{refused}");
}

#[test]
fn every_flipped_page_is_noticed_and_the_rest_is_served() {
    let (disk, rows) = closed_sample(4);
    let pages = disk.contents(Path::new(FILE)).unwrap().len() as u64 / PAGE;
    let mut noticed = 0;
    for page in 0..pages {
        let (disk, _) = closed_sample(4);
        let bytes = disk.contents(Path::new(FILE)).unwrap();
        let start = (page * PAGE) as usize;
        if bytes[start..start + PAGE as usize].iter().all(|&b| b == 0) {
            continue;
        }
        disk.corrupt(Path::new(FILE), page * PAGE + page * 37 % PAGE, 1, page).unwrap();
        let read = open(&disk).and_then(|db| read_all(&db));
        match read {
            Ok(found) => assert_eq!(found, rows, "page {page}"),
            Err(error) => {
                noticed += 1;
                assert!(matches!(error, Error::Damaged(_)), "page {page}: {error}");
                assert!(error.to_string().contains(&format!("page {page}")), "page {page}: {error}");
            }
        }
    }
    assert!(noticed > 60, "{noticed}");
}

#[test]
fn a_log_that_is_gone_is_missed_only_when_it_is_needed() {
    let disk = SimDisk::new(5);
    let (db, rows) = sample(&disk);
    let crashed = disk.crash_image(5);
    drop(db);
    assert!(right_or_refused(&crashed, &rows, "with its log"));
    let crashed = disk.crash_image(5);
    for name in crashed.list(Path::new(WAL)).unwrap() {
        crashed.remove(&Path::new(WAL).join(name)).unwrap();
    }
    let error = open(&crashed).unwrap_err().to_string();
    assert!(error.contains("log") && error.contains(WAL), "{error}");
}

/// All files but the lock, which names its last holder.
fn all_files(disk: &SimDisk) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let files = disk.files().into_iter().filter(|path| !path.ends_with("lock"));
    files.map(|path| (path.clone(), disk.contents(&path).unwrap())).collect()
}

#[test]
fn the_log_of_another_database_is_refused_and_left_alone() {
    let disk = SimDisk::new(21);
    let create = CreateOptions { page_size: PAGE as usize, segment_size: 1 << 18 };
    engine(&disk).create(Path::new("p.gnt"), &create, &options()).unwrap().close().unwrap();
    let (db, rows) = sample(&disk);
    let image = disk.crash_image(1);
    drop(db);
    let (file, saved, closed) = (Path::new(FILE), Path::new("saved"), Path::new("p.gnt"));
    image.rename(file, saved).unwrap();
    image.rename(closed, file).unwrap();
    let before = all_files(&image);
    let error = open(&image).map(drop).unwrap_err();
    let words = "\"b.gnt-wal\" holds the log of another database: move it away";
    assert!(matches!(&error, Error::Invalid(text) if text == words), "{error:?}");
    assert!(all_files(&image) == before);
    // The words are those of a creation.
    image.rename(file, closed).unwrap();
    assert_eq!(create_on(&image).map(drop).unwrap_err().to_string(), words);
    image.rename(saved, file).unwrap();
    assert!(right_or_refused(&image, &rows, "beside its own log again"));
    // Some segment of another database among one's own.
    let name = Path::new("b.gnt-wal/00000000000000ff.log");
    let foreign =
        image.list(Path::new("p.gnt-wal")).unwrap().into_iter().find(|name| name.ends_with("0.log"));
    let bytes = image.contents(&Path::new("p.gnt-wal").join(foreign.unwrap())).unwrap();
    let mut buffer = gannet_io::AlignedBuffer::zeroed(bytes.len());
    buffer.copy_from_slice(&bytes);
    let segment = image.open(name, &FileOptions::create_new()).unwrap();
    segment.write_at(Class::Foreground, 0, &buffer, gannet_io::Durability::Cached).unwrap();
    drop(segment);
    let error = open(&image).map(drop).unwrap_err().to_string();
    assert!(error.contains("move them away") && error.contains(name.to_str().unwrap()), "{error}");
    image.remove(name).unwrap();
    assert!(right_or_refused(&image, &rows, "without that segment"));
}

#[test]
fn a_closed_file_needs_no_log_that_is_not_valid_any_more() {
    let (disk, rows) = closed_sample(22);
    for name in disk.list(Path::new(WAL)).unwrap().into_iter().filter(|name| name.ends_with(".log")) {
        disk.corrupt(&Path::new(WAL).join(name), 0, 4096, 1).unwrap();
    }
    assert!(right_or_refused(&disk, &rows, "without a valid segment"));
    assert!(right_or_refused(&disk, &rows, "with those reused"));
}

#[test]
fn a_hole_in_the_log_is_no_crash() {
    let disk = SimDisk::new(6);
    let (db, rows) = sample(&disk);
    // What was acknowledged last of all cannot be told from a write that a crash has torn: nothing behind it says that
    // it was durable. So something follows what this test looks at.
    for name in ["u", "v", "w"] {
        let mut txn = db.begin(TransactionOptions::default());
        txn.create_tree(name).unwrap();
        txn.commit().unwrap();
    }
    let image = disk.crash_image(6);
    drop(db);
    let mut holes = 0;
    let names: Vec<String> =
        image.list(Path::new(WAL)).unwrap().into_iter().filter(|n| n.ends_with(".log")).collect();
    for name in names {
        for block in 1..32 {
            let image = disk.crash_image(6);
            image.corrupt(&Path::new(WAL).join(&name), block * 4096, 4096, 9).unwrap();
            match open(&image).and_then(|db| read_all(&db)) {
                Ok(found) => assert_eq!(found, rows, "{name} {block}"),
                Err(Error::NeverWritten(_)) => panic!("{name} {block}: the tree is gone without a word"),
                Err(error) => {
                    holes += 1;
                    assert!(
                        error.to_string().contains("log") || matches!(error, Error::Damaged(_)),
                        "{error}"
                    );
                }
            }
        }
    }
    assert!(holes > 0);
}

#[test]
fn a_full_disk_refuses_work_and_loses_nothing() {
    let settings = Settings { capacity_bytes: Some(12 << 20), ..Settings::default() };
    let disk = SimDisk::with_settings(7, settings);
    let (db, mut rows) = sample(&disk);
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("t").unwrap().unwrap();
    txn.rollback().unwrap();
    let mut full = None;
    for i in 0..100_000u64 {
        let mut txn = db.begin(TransactionOptions::default());
        let mut batch = Rows::new();
        let done = (0..20).try_for_each(|j| {
            let (key, value) = ((1_000_000 + i * 20 + j).to_be_bytes().to_vec(), vec![j as u8; 900]);
            txn.put(&tree, &key, &value)?;
            batch.insert(key, value);
            Ok(())
        });
        match done.and_then(|()| txn.commit()) {
            Ok(()) => rows.extend(batch),
            Err(error) => {
                full = Some(error);
                break;
            }
        }
    }
    let error = full.expect("the disk is full at some time");
    assert!(matches!(error, Error::NoSpace(_)), "{error}");
    // Still readable, still writable where no new space is needed, and whole after a restart.
    assert_eq!(read_all(&db).unwrap(), rows);
    let mut txn = db.begin(TransactionOptions::default());
    txn.put(&tree, &0u64.to_be_bytes(), b"short").unwrap();
    txn.commit().unwrap();
    rows.insert(0u64.to_be_bytes().to_vec(), b"short".to_vec());
    let image = disk.crash_image(8);
    drop(db);
    let db = open(&image).unwrap();
    assert_eq!(read_all(&db).unwrap(), rows);
}

#[test]
fn an_opening_that_finds_no_room_leaves_a_closed_file_complete() {
    let mut refused = 0;
    for n in 1..20 {
        let disk = SimDisk::new(n);
        let db = create_on(&disk).unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree("t").unwrap();
        txn.put(&tree, b"key", b"value").unwrap();
        txn.commit().unwrap();
        db.close().unwrap();
        let log =
            || disk.files().into_iter().filter(|file| file.extension().is_some_and(|kind| kind == "log"));
        // There was never room for more than what is in use.
        log().skip(1).for_each(|file| disk.remove(&file).unwrap());
        disk.set_faults(Faults { no_space: Chance::At(vec![n]), ..Faults::default() });
        let opened = open(&disk);
        if disk.injected().is_empty() {
            break;
        }
        disk.set_faults(Faults::default());
        let Err(error) = opened else { continue };
        refused += 1;
        assert!(matches!(error, Error::NoSpace(_)), "{error}");
        log().for_each(|file| disk.remove(&file).unwrap());
        let rows = read_all(&open(&disk).unwrap()).unwrap();
        assert_eq!(
            rows,
            Rows::from([(b"key".to_vec(), b"value".to_vec())]),
            "without its log, after: {error}"
        );
    }
    assert!(refused > 0);
}

fn create_on(disk: &SimDisk) -> Result<Database> {
    let create = CreateOptions { page_size: PAGE as usize, segment_size: 1 << 18 };
    engine(disk).create(Path::new(FILE), &create, &options())
}

#[test]
fn a_creation_that_fails_leaves_nothing_behind() {
    // Every operation fails once, each kind by its own.
    let plans: [fn(u64) -> Faults; 3] = [
        |n| Faults { write_error: Chance::At(vec![n]), ..Faults::default() },
        |n| Faults { sync_error: Chance::At(vec![n]), ..Faults::default() },
        |n| Faults { no_space: Chance::At(vec![n]), ..Faults::default() },
    ];
    let mut failures = 0;
    for plan in plans {
        for n in 1..200 {
            let disk = SimDisk::new(n);
            disk.set_faults(plan(n));
            let created = create_on(&disk);
            if disk.injected().is_empty() {
                break;
            }
            // Some failures come late enough to be those of the open database.
            let Err(error) = created else { continue };
            failures += 1;
            assert!(matches!(error, Error::Io(_) | Error::NoSpace(_) | Error::Poisoned(_)), "{error:?}");
            assert_eq!(disk.files(), Vec::<std::path::PathBuf>::new(), "fault {n}: {error}");
            assert!(!disk.exists(Path::new(WAL)).unwrap(), "fault {n}: {error}");
            disk.set_faults(Faults::default());
            create_on(&disk).unwrap().close().unwrap();
        }
    }
    assert!(failures > 10, "{failures} failures");
}

#[test]
fn a_creation_that_fails_takes_nothing_of_others() {
    let disk = SimDisk::with_settings(1, Settings { capacity_bytes: Some(600 << 10), ..Settings::default() });
    disk.create_dir(Path::new(WAL)).unwrap();
    disk.open(Path::new("b.gnt-wal/notes"), &FileOptions::create_new()).unwrap();
    assert!(matches!(create_on(&disk), Err(Error::NoSpace(_))));
    assert_eq!(disk.files(), [Path::new("b.gnt-wal/notes")]);
    disk.open(Path::new("b.gnt-wal/0000000000000007.log"), &FileOptions::create_new()).unwrap();
    assert!(create_on(&disk).unwrap_err().to_string().contains("log of another database"));
    disk.open(Path::new(FILE), &FileOptions::create_new()).unwrap();
    assert!(create_on(&disk).unwrap_err().to_string().contains("exists already"));
    assert_eq!(disk.files().len(), 3);
}

#[test]
fn a_creation_that_was_interrupted_can_be_done_again() {
    let (mut leftovers, mut databases) = (0, 0);
    for count in 1.. {
        let disk = SimDisk::new(count);
        disk.crash_after(count);
        let created = create_on(&disk);
        if !disk.is_crashed() {
            break;
        }
        drop(created);
        for seed in 0..4 {
            let mut image = disk.crash_image(seed);
            if !engine(&image).is_missing(Path::new(FILE)).unwrap() {
                databases += 1;
                open(&image).unwrap().close().unwrap();
                continue;
            }
            leftovers += 1;
            let error = open(&image).unwrap_err().to_string();
            if image.exists(Path::new(FILE)).unwrap() {
                let told = error.contains("its creation was interrupted") && error.contains(WAL);
                assert!(told, "crash at {count}: {error}");
            }
            // Another one while that is cleared away.
            image.crash_after(1 + seed * 4);
            drop(create_on(&image));
            image = image.crash_image(seed);
            if engine(&image).is_missing(Path::new(FILE)).unwrap() {
                create_on(&image).unwrap().close().unwrap();
            }
            open(&image).unwrap().close().unwrap();
        }
    }
    assert!(leftovers > 20 && databases > 0, "{leftovers} leftovers, {databases} databases");
}

#[test]
fn what_may_be_somebodys_is_not_taken_for_an_interrupted_creation() {
    let missing = |disk: &SimDisk| engine(disk).is_missing(Path::new(FILE)).unwrap();
    // An empty file alone, a folder with a log beside it, zeros of another length.
    let disk = SimDisk::new(1);
    assert!(missing(&disk));
    let file = disk.open(Path::new(FILE), &FileOptions::create_new()).unwrap();
    assert!(!missing(&disk));
    disk.create_dir(Path::new(WAL)).unwrap();
    assert!(missing(&disk));
    file.set_len(3 * PAGE).unwrap();
    assert!(!missing(&disk));
    file.set_len(0).unwrap();
    disk.open(Path::new("b.gnt-wal/0000000000000000.log"), &FileOptions::create_new()).unwrap();
    assert!(!missing(&disk));
    assert!(create_on(&disk).unwrap_err().to_string().contains("exists already"));
    let error = open(&disk).unwrap_err().to_string();
    assert!(error.contains("if its creation was interrupted, remove it and \"b.gnt-wal\""), "{error}");
    // A database whose headers are gone, from its first moment on.
    let disk = SimDisk::new(2);
    let db = create_on(&disk).unwrap();
    let image = disk.crash_image(1);
    drop(db);
    for copy in [0, PAGE] {
        image.corrupt(Path::new(FILE), copy + 24, 100, copy).unwrap();
    }
    assert!(!missing(&image));
}

#[test]
fn a_creation_on_the_real_disk_that_fails_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::new(&EngineOptions { memory: 16 << 20, ..EngineOptions::default() }).unwrap();
    let path = folder.path().join(FILE);
    let create = CreateOptions { page_size: PAGE as usize, segment_size: 1 << 18 };
    // A folder in the place of the double-write ring: found out when most is there already.
    let ring = folder.path().join(WAL).join("ring");
    std::fs::create_dir_all(&ring).unwrap();
    let failed = engine.create(&path, &create, &options());
    // Where the device writes pages whole, there is no ring.
    let Err(error) = failed else { return };
    assert!(matches!(error, Error::Io(_)), "{error:?}");
    let names = |folder: &Path| -> Vec<_> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(
        (names(folder.path()), names(&folder.path().join(WAL))),
        (vec![WAL.into()], vec!["ring".into()])
    );
    std::fs::remove_dir(&ring).unwrap();
    std::fs::remove_dir(folder.path().join(WAL)).unwrap();
    let missing = engine.create(&folder.path().join("no/such/b.gnt"), &create, &options());
    assert!(missing.is_err() && names(folder.path()).is_empty());
    let db = engine.create(&path, &create, &options()).unwrap();
    let second = Engine::new(&EngineOptions::default()).unwrap();
    let refused = second.open(&path, &options()).unwrap_err();
    let pid = std::process::id().to_string();
    assert!(matches!(&refused, Error::InUse(text) if text.contains(&pid)), "{refused}");
    db.close().unwrap();
}

#[test]
fn who_opens_a_database_that_is_being_created_is_told_so() {
    let mut refused = 0;
    for seed in 0..40 {
        let run = move || {
            let disk = SimDisk::new(seed);
            let creator = {
                let disk = disk.clone();
                thread::spawn("creator", move || create_on(&disk).unwrap())
            };
            let mut refused = 0;
            while !disk.exists(Path::new(FILE)).unwrap() {
                clock::sleep(Duration::from_micros(20));
            }
            for _ in 0..100 {
                let error = open(&disk).unwrap_err();
                assert!(matches!(&error, Error::InUse(text) if text.contains("in use")), "{error:?}");
                refused += 1;
                clock::sleep(Duration::from_micros(50));
            }
            creator.join().unwrap().close().unwrap();
            open(&disk).unwrap().close().unwrap();
            refused
        };
        refused += Simulation::new(seed).run(run).unwrap();
    }
    assert_eq!(refused, 4000);
}

#[test]
#[cfg(target_os = "linux")]
fn a_budget_beyond_the_machines_memory_is_refused_with_both_figures() {
    let limit = gannet_io::Memory::of_this_machine().limit().unwrap();
    let with = |memory: u64| Engine::new(&EngineOptions { memory, ..EngineOptions::default() });
    for memory in [limit + (1 << 30), 64 << 40] {
        let text = with(memory).unwrap_err().to_string();
        let figures = [memory, limit].map(gannet_base::units::format_size);
        assert!(figures.iter().all(|figure| text.contains(figure)), "{text}");
    }
    with(limit).unwrap();
}

#[test]
fn the_smallest_budget_is_said_and_is_enough() {
    assert_eq!(CreateOptions::default().least_memory(), 25 << 20);
    for (page_size, segment_size) in [(4096, 1 << 18), (8192, 4 << 20), (32768, 2 << 20)] {
        let create = CreateOptions { page_size, segment_size };
        let least = create.least_memory();
        let disk = SimDisk::new(1);
        let with = |memory: u64| {
            let disk: Arc<dyn Disk> = Arc::new(disk.clone());
            Engine::with_disk(disk, &EngineOptions { memory, ..EngineOptions::default() })
        };
        let small = with(least - 1).and_then(|engine| engine.create(Path::new(FILE), &create, &options()));
        let text = small.unwrap_err().to_string();
        assert!(text.contains("too small") && text.contains("at least"), "{text}");
        assert!(disk.files().is_empty());
        let options = OpenOptions { wal_limit: 4 * segment_size, ..OpenOptions::default() };
        let db = with(least).unwrap().create(Path::new(FILE), &create, &options).unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree("t").unwrap();
        txn.commit().unwrap();
        for i in 0u64.. {
            if db.stats().end_lsn.0 > 2 * segment_size + segment_size / 2 {
                break;
            }
            let mut txn = db.begin(TransactionOptions::default());
            for j in 0..200 {
                let key = (i * 200 + j).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
                txn.put(&tree, &key, &[1; 100]).unwrap();
            }
            txn.commit().unwrap();
        }
        let image = disk.crash_image(1);
        drop(db);
        let disk: Arc<dyn Disk> = Arc::new(image);
        let engine = |memory| {
            Engine::with_disk(Arc::clone(&disk), &EngineOptions { memory, ..EngineOptions::default() })
        };
        let refused = engine(least - 1).and_then(|engine| engine.open(Path::new(FILE), &options));
        assert!(refused.unwrap_err().to_string().contains("too small"));
        let db = engine(least).unwrap().open(Path::new(FILE), &options).unwrap();
        assert!(db.restart_report().crashed && read_all(&db).unwrap().len() > 1000);
        db.close().unwrap();
    }
}

#[test]
fn a_database_that_cannot_write_stops_no_other_one_of_its_engine() {
    let disk = SimDisk::new(1);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let engine =
        Engine::with_disk(shared, &EngineOptions { memory: 16 << 20, ..EngineOptions::default() }).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let dead = engine.create(Path::new("dead.gnt"), &create, &options()).unwrap();
    let alive = engine.create(Path::new("alive.gnt"), &create, &options()).unwrap();
    let frames = dead.stats().frames;
    let fill = |db: &Database, rows: u64| {
        let mut txn = db.begin(TransactionOptions { durability: Durability::Async, ..Default::default() });
        let tree = txn.create_tree("t").unwrap();
        for i in 0..rows {
            txn.put(&tree, &i.to_be_bytes(), &[3; 1500]).unwrap();
        }
        txn.commit().unwrap();
    };
    // Two rows to a page: about half of the frames, dirty for ever.
    fill(&dead, frames);
    disk.set_faults(Faults {
        write_error: Chance::OneIn(1),
        only: Some("dead.gnt-wal/ring".into()),
        ..Faults::default()
    });
    dead.checkpoint().unwrap_err();
    assert!(dead.failure().is_some() && dead.stats().dirty_frames > frames / 4);
    fill(&alive, frames * 8);
    assert!(alive.stats().pages_evicted > frames && alive.failure().is_none());
    alive.close().unwrap();
}

#[test]
fn a_database_that_has_failed_with_all_page_frames_gives_them_to_others() {
    let disk = SimDisk::new(1);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let engine =
        Engine::with_disk(shared, &EngineOptions { memory: 16 << 20, ..EngineOptions::default() }).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let dead = engine.create(Path::new("dead.gnt"), &create, &OpenOptions::default()).unwrap();
    let alive = engine.create(Path::new("alive.gnt"), &create, &options()).unwrap();
    let frames = dead.stats().frames;
    let begin =
        |db: &Database| db.begin(TransactionOptions { durability: Durability::Async, ..Default::default() });
    let fill = |db: &Database, rows: std::ops::Range<u64>, value: u8| {
        let mut txn = begin(db);
        let tree = match txn.tree("t")? {
            Some(tree) => tree,
            None => txn.create_tree("t")?,
        };
        for i in rows {
            txn.put(&tree, &i.to_be_bytes(), &[value; 1500])?;
        }
        txn.commit()
    };
    fill(&dead, 0..frames / 2, 1).unwrap();
    dead.checkpoint().unwrap();
    fill(&dead, 0..frames / 2, 2).unwrap();
    disk.set_faults(Faults {
        write_error: Chance::OneIn(1),
        only: Some("dead.gnt-wal/ring".into()),
        ..Faults::default()
    });
    // It fails with the first page that it writes, which it does when there is hardly another frame left.
    let start = clock::now();
    fill(&dead, frames..frames * 8, 3).unwrap_err();
    assert!(dead.failure().is_some());
    fill(&alive, 0..frames * 4, 4).unwrap();
    assert!(start.elapsed() < Duration::from_secs(30), "others have waited {:?}", start.elapsed());
    assert!(alive.failure().is_none());
    // What was committed is newer than what the device has of it: the one is read, or nothing.
    let mut refused = 0;
    for i in 0..frames / 2 {
        let mut txn = begin(&dead);
        match txn.tree("t").and_then(|tree| txn.get(&tree.expect("it is there"), &i.to_be_bytes())) {
            Ok(row) => assert_eq!(row.as_deref(), Some(&[2; 1500][..])),
            Err(Error::Poisoned(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0);
    assert!(dead.close().is_err());
    disk.set_faults(Faults::default());
    let dead = engine.open(Path::new("dead.gnt"), &OpenOptions::default()).unwrap();
    let mut txn = begin(&dead);
    let tree = txn.tree("t").unwrap().unwrap();
    for i in 0..frames / 2 {
        assert_eq!(txn.get(&tree, &i.to_be_bytes()).unwrap().as_deref(), Some(&[2; 1500][..]));
    }
    drop(txn);
    dead.close().unwrap();
    alive.close().unwrap();
}
