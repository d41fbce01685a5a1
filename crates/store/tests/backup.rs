//! Backups: taken while others write, restored elsewhere, compared with what was committed; and everything that can be wrong with them.

mod meanwhile;

use gannet_base::sync::Mutex;
use gannet_base::{PageId, checksum, clock, thread};
use gannet_io::sim::{Chance, Faults, Settings, SimDisk};
use gannet_io::stats::Operation;
use gannet_io::{
    AlignedBuffer, Class, Disk, Durability as IoDurability, ModeRequest, OpenOptions as FileOptions,
};
use gannet_store::{
    BackupFile, BackupOptions, BackupPlace, BackupPlan, CreateOptions, Database, Destination, Engine,
    EngineOptions, Error, JobKind, JobOrder, JobReport, Manifest, OpenOptions, RestoreReport, Since, Source,
    Taken, TransactionOptions, VerifyReport, Watch, page,
};
use meanwhile::Meanwhile;
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const FILE: &str = "b.gnt";
const COPY: &str = "copy.gnt";
const ACCOUNTS: u64 = 600;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 10 << 20, ..EngineOptions::default() }).unwrap()
}

fn open(disk: &SimDisk, name: &str) -> Database {
    engine(disk).open(Path::new(name), &OpenOptions::default()).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

fn number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value[..8].try_into().unwrap())
}

/// An account with so much on it, filled up so that accounts take many pages.
fn account(balance: i64) -> Vec<u8> {
    let mut value = balance.to_le_bytes().to_vec();
    value.resize(400, 0xAB);
    value
}

/// A database with accounts, all of them empty, and a count of transfers.
fn bank(disk: &SimDisk) -> Database {
    let options = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine(disk).create(Path::new(FILE), &options, &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("accounts").unwrap();
    for number in 0..ACCOUNTS {
        txn.put(&tree, &key(number), &account(0)).unwrap();
    }
    txn.put(&tree, b"transfers", &account(0)).unwrap();
    txn.put(&tree, b"long", &vec![7; 20_000]).unwrap();
    txn.commit().unwrap();
    db
}

/// Moves something from one account to another, and counts it; now and then accounts come and go.
fn transfer(db: &Database, count: u64) {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("accounts").unwrap().unwrap();
    let (from, to) = (count * 7919 % ACCOUNTS, (count * 104_729 + 1) % ACCOUNTS);
    for (account_number, by) in [(from, -1), (to, 1)] {
        let balance = number(&txn.get(&tree, &key(account_number)).unwrap().unwrap());
        txn.put(&tree, &key(account_number), &account(balance + by)).unwrap();
    }
    txn.put(&tree, b"transfers", &account(count as i64)).unwrap();
    // Trees grow and shrink, so that pages are taken and given back.
    let passing = |n: u64| format!("passing {:08}", n).into_bytes();
    txn.put(&tree, &passing(count), &vec![1; 900]).unwrap();
    if count > 40 {
        txn.delete(&tree, &passing(count - 40)).unwrap();
    }
    txn.commit().unwrap();
}

/// What is in a bank: transfers, after it was made sure that nothing was lost or made by them.
fn audit(db: &Database) -> i64 {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("accounts").unwrap().unwrap();
    let mut cursor = txn.cursor(&tree, (Bound::Included(&b"0"[..]), Bound::Excluded(&b":"[..]))).unwrap();
    let (mut sum, mut accounts) = (0, 0);
    while let Some((_, value)) = cursor.next().unwrap() {
        sum += number(value);
        accounts += 1;
    }
    drop(cursor);
    assert_eq!((sum, accounts), (0, ACCOUNTS));
    assert_eq!(txn.get(&tree, b"long").unwrap().unwrap(), vec![7; 20_000]);
    let transfers = number(&txn.get(&tree, b"transfers").unwrap().unwrap());
    drop(txn);
    let report = db.check().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    transfers
}

fn folder(db: &Database, name: &str) -> Destination {
    let folder = BackupPlace::new(Arc::clone(db.engine().disk()), "backups");
    Destination::Folder { folder, name: name.to_owned() }
}

fn place(disk: &SimDisk, path: impl Into<PathBuf>) -> BackupPlace {
    BackupPlace::new(Arc::new(disk.clone()), path)
}

fn options(destination: Destination, since: Option<&Manifest>) -> BackupOptions {
    BackupOptions { destination, since: since.cloned(), compress: None }
}

fn backup(db: &Database, options: BackupOptions) -> Result<Manifest, Error> {
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    job.end(db.backup(options, &mut Watch::new(&job, &mut |_| Ok(()))))
}

fn restore(disk: &SimDisk, source: Source, to: &str) -> Result<RestoreReport, Error> {
    let engine = engine(disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let mut tell = |_: &_| Ok(());
    job.end(engine.restore(source, Path::new(to), &OpenOptions::default(), &mut Watch::new(&job, &mut tell)))
}

fn file(disk: &SimDisk, name: &str) -> BackupFile {
    BackupFile::find(&place(disk, "backups").join(name)).unwrap()
}

fn verify(disk: &SimDisk, source: Source) -> Result<VerifyReport, Error> {
    let engine = engine(disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Verify));
    job.end(engine.verify(source, ModeRequest::Auto, &mut Watch::new(&job, &mut |_| Ok(()))))
}

/// Bytes that somebody writes.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Vec<u8>>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs `work` while transfers go on; gives how many of them were committed before and after it.
fn beside_transfers<T>(db: &Database, from: u64, work: impl FnOnce() -> T) -> (u64, T, u64) {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(from));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in from + 1.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                transfer(db, count);
                done.store(count, Ordering::SeqCst);
                // However slow the backup is, the log of all this is to stay short.
                clock::sleep(Duration::from_micros(500));
            }
        });
        while done.load(Ordering::SeqCst) < from + 20 {
            thread::yield_now();
        }
        let before = done.load(Ordering::SeqCst);
        let result = work();
        stop.store(true, Ordering::SeqCst);
        (before, result, done.load(Ordering::SeqCst) + 1)
    })
}

#[test]
fn a_backup_taken_beside_writers_is_the_database_at_one_moment() {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let (before, manifest, after) =
        beside_transfers(&db, 0, || backup(&db, options(folder(&db, "full"), None)).unwrap());
    assert!(manifest.pages > 60 && manifest.log_bytes > 0 && !manifest.is_incremental());
    let report = restore(&disk, Source::Files(vec![file(&disk, "full")]), COPY).unwrap();
    assert_eq!(report.manifest, manifest);
    let copy = open(&disk, COPY);
    assert!(!copy.restart_report().crashed, "a restored database was closed");
    let transfers = audit(&copy) as u64;
    assert!((before..=after).contains(&transfers), "{transfers} of {before} to {after}");
    // Both go on, each by itself.
    transfer(&copy, transfers + 1);
    transfer(&db, 10_000);
    assert_eq!((audit(&copy), audit(&db)), (transfers as i64 + 1, 10_000));
    copy.close().unwrap();
    assert_eq!(audit(&open(&disk, COPY)), transfers as i64 + 1);
}

/// A destination that takes its time.
struct Slow(Pipe);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        clock::sleep(Duration::from_millis(5));
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn pages_that_come_home_after_they_were_copied_get_their_changes_all_the_same() {
    let disk = SimDisk::new(10);
    let db = bank(&disk);
    let pipe = Pipe::default();
    let (before, _, after) = beside_transfers(&db, 0, || {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::SeqCst) {
                    db.checkpoint().unwrap();
                }
            });
            backup(&db, options(Destination::Stream(Box::new(Slow(pipe.clone()))), None)).unwrap();
            ended.store(true, Ordering::SeqCst);
        });
    });
    let bytes = pipe.0.lock().clone();
    restore(&disk, Source::Stream(Box::new(std::io::Cursor::new(bytes))), COPY).unwrap();
    let transfers = audit(&open(&disk, COPY)) as u64;
    assert!((before..=after).contains(&transfers), "{transfers} of {before} to {after}");
}

#[test]
fn incremental_backups_add_to_each_other() {
    let disk = SimDisk::new(2);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let mut last: Option<Manifest> = None;
    let mut counts = Vec::new();
    let mut done = 0;
    for name in ["0", "1", "2", "3"] {
        let (before, manifest, after) =
            beside_transfers(&db, done, || backup(&db, options(folder(&db, name), last.as_ref())).unwrap());
        counts.push(before..=after);
        done = after;
        last = Some(manifest);
    }
    for (index, expected) in counts.iter().enumerate() {
        let chain = file(&disk, &index.to_string()).chain().unwrap();
        assert_eq!(chain.len(), index + 1);
        let proven = verify(&disk, Source::Files(chain.clone())).unwrap();
        assert!(proven.manifests.len() == index + 1 && proven.log_records > 0, "{proven:?}");
        let to = format!("copy{index}.gnt");
        restore(&disk, Source::Files(chain), &to).unwrap();
        let transfers = audit(&open(&disk, &to)) as u64;
        assert!(expected.contains(&transfers), "{index}: {transfers} of {expected:?}");
    }
    // What was changed during a backup is in the next one. In between those two hardly anything has changed.
    db.sweep().unwrap();
    let rest = backup(&db, options(folder(&db, "rest"), last.as_ref())).unwrap();
    let small = backup(&db, options(folder(&db, "small"), Some(&rest))).unwrap();
    assert!(small.pages < 20, "{small:?}");
}

#[test]
fn a_stream_is_a_backup_and_so_are_several_in_a_row() {
    let disk = SimDisk::new(3);
    let db = bank(&disk);
    let pipe = Pipe::default();
    let stream = || Destination::Stream(Box::new(pipe.clone()));
    (1..50).for_each(|count| transfer(&db, count));
    let full = backup(&db, BackupOptions { compress: Some(1), ..options(stream(), None) }).unwrap();
    let first = pipe.0.lock().clone();
    assert_eq!(first.len() as u64, full.bytes);
    (50..100).for_each(|count| transfer(&db, count));
    backup(&db, options(stream(), Some(&full))).unwrap();
    let both = pipe.0.lock().clone();
    let source = |bytes: &[u8]| Source::Stream(Box::new(std::io::Cursor::new(bytes.to_vec())));
    for (bytes, to, transfers) in [(&first, "one.gnt", 49), (&both, "two.gnt", 99)] {
        restore(&disk, source(bytes), to).unwrap();
        assert_eq!(audit(&open(&disk, to)), transfers);
    }
    for (bytes, words) in [
        (&both[first.len()..], "has to come before it"),
        (&both[..both.len() - 4096], "cut off"),
        (&both[..first.len() - 10_000], "cut off"),
        (&both[8192..], "no backup begins there"),
        (&[], "holds no backup"),
        (&[7; 9000], "no frame of a backup"),
    ] {
        let refused = [restore(&disk, source(bytes), "none.gnt").err(), verify(&disk, source(bytes)).err()];
        for error in refused.map(Option::unwrap) {
            assert!(matches!(&error, Error::Backup(what) if what.contains(words)), "{error}");
        }
        assert!(!disk.exists(Path::new("none.gnt")).unwrap());
    }
}

#[test]
fn backups_of_the_wrong_order_or_database_are_refused() {
    let disk = SimDisk::new(4);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let full = backup(&db, options(folder(&db, "full"), None)).unwrap();
    transfer(&db, 1);
    let one = backup(&db, options(folder(&db, "one"), Some(&full))).unwrap();
    transfer(&db, 2);
    backup(&db, options(folder(&db, "two"), Some(&one))).unwrap();
    let refused = |names: &[&str], words: &str| {
        let files = names.iter().map(|name| file(&disk, name)).collect();
        let error = restore(&disk, Source::Files(files), "none.gnt").unwrap_err();
        assert!(matches!(&error, Error::Backup(what) if what.contains(words)), "{names:?}: {error}");
        assert!(
            !disk.exists(Path::new("none.gnt")).unwrap() && !disk.exists(Path::new("none.gnt-wal")).unwrap()
        );
    };
    refused(&["one", "full"], "give them in the order in which they were taken");
    refused(&["full", "two"], "without leaving one out");
    refused(&["two"], "has to come before it");
    refused(&["full", "full"], "adds to none");
    refused(&[], "no backup");
    // A file that is there is left alone, whatever it is.
    let error = restore(&disk, Source::Files(vec![file(&disk, "full")]), FILE).unwrap_err();
    assert!(error.to_string().contains("overwrites nothing"), "{error}");
    assert!(
        matches!(backup(&db, options(folder(&db, "full"), None)), Err(Error::Backup(what)) if what.contains("exists already"))
    );
    assert_eq!(file(&disk, "full").manifest, full);

    // A copy that was restored is another one from then on, and so is another database.
    restore(&disk, Source::Files(vec![file(&disk, "full")]), COPY).unwrap();
    let copy = open(&disk, COPY);
    let error = backup(&copy, options(folder(&db, "three"), Some(&one))).unwrap_err();
    assert!(error.to_string().contains("was restored or replaced"), "{error}");
    let small = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let other = engine(&disk).create(Path::new("other.gnt"), &small, &OpenOptions::default()).unwrap();
    let error = backup(&other, options(folder(&db, "three"), Some(&one))).unwrap_err();
    assert!(error.to_string().contains("of another database"), "{error}");
    assert!(!disk.exists(Path::new("backups/three.gntbackup")).unwrap());
}

/// Makes a file.
fn make(disk: &SimDisk, path: impl AsRef<Path>, bytes: &[u8]) {
    let file = disk.open(path.as_ref(), &FileOptions::create_new()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(bytes.len());
    buffer.copy_from_slice(bytes);
    file.write_at(Class::Foreground, 0, &buffer, IoDurability::Durable).unwrap();
}

/// Copies the database, which is closed, to another file.
fn duplicate(disk: &SimDisk, to: &str) {
    make(disk, to, &disk.contents(Path::new(FILE)).unwrap());
}

#[test]
fn what_a_copy_of_the_file_keeps_does_not_count_what_the_first_one_has_taken() {
    let disk = SimDisk::new(41);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let first = keeping(&db, None, 9).backup.name;
    transfer(&db, 1);
    let second = keeping(&db, Some(Since::Latest), 9).backup.name;
    db.close().unwrap();
    duplicate(&disk, "twin.gnt");
    let twin = open(&disk, "twin.gnt");
    let own = keeping(&twin, None, 1);
    assert!(own.removed.is_empty(), "{:?}", own.removed);
    let complaint = own.complaint.unwrap();
    assert!(complaint.contains(&first) && complaint.contains("another name than twin"), "{complaint}");
    let own = own.backup.name;
    transfer(&twin, 2);
    assert_eq!(keeping(&twin, None, 1).removed, [own]);
    // What the twin has is of another copy for the first file, which goes on with its own.
    let db = open(&disk, FILE);
    let third = keeping(&db, None, 1);
    assert_eq!((third.removed, third.complaint), (vec![second, first], None));
}

#[test]
fn a_backup_whose_parent_was_removed_meanwhile_is_none() {
    let disk = SimDisk::new(42);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let first = keeping(&db, None, 9).backup.name;
    transfer(&db, 1);
    let plan = BackupPlan {
        folder: place(&disk, "backups"),
        since: Some(Since::Latest),
        compress: None,
        keep: None,
        archive: None,
        statistics: None,
    };
    let manifest = PathBuf::from(format!("backups/{first}.json"));
    let mut remove = |report: &JobReport| {
        if report.phase == "counts pages" && disk.exists(&manifest).unwrap() {
            disk.remove(&manifest).unwrap();
        }
        Ok(())
    };
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    let taken = job.end(db.backup_into(&plan, &mut Watch::new(&job, &mut remove)));
    let said = taken.unwrap_err().to_string();
    assert!(said.contains(&first) && said.contains("take a full one"), "{said}");
    assert!(BackupFile::all(&place(&disk, "backups"), &mut |_| ()).unwrap().is_empty());
}

#[test]
fn a_copy_adds_to_backups_of_its_past_and_not_to_those_of_its_twin() {
    let disk = SimDisk::new(11);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    transfer(&db, 1);
    let past = backup(&db, options(folder(&db, "past"), None)).unwrap();
    transfer(&db, 2);
    db.close().unwrap();
    duplicate(&disk, "twin.gnt");
    let (db, twin) = (open(&disk, FILE), open(&disk, "twin.gnt"));
    transfer(&db, 3);
    (100..200).for_each(|count| transfer(&twin, count));
    let own = backup(&db, options(folder(&db, "own"), Some(&past))).unwrap();
    transfer(&db, 4);
    backup(&db, options(folder(&db, "next"), Some(&own))).unwrap();
    backup(&twin, options(folder(&db, "twin"), Some(&past))).unwrap();
    let error = backup(&twin, options(folder(&db, "none"), Some(&own))).unwrap_err();
    assert!(error.to_string().contains("was not taken of this copy"), "{error}");
    for (name, transfers) in [("next", 4), ("twin", 199)] {
        let to = format!("{name}-copy.gnt");
        let chain = file(&disk, name).chain().unwrap();
        restore(&disk, Source::Files(chain), &to).unwrap();
        assert_eq!(audit(&open(&disk, &to)), transfers);
    }
}

#[test]
fn no_bit_of_a_backup_turns_unnoticed() {
    let disk = SimDisk::new(5);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    (1..20).for_each(|count| transfer(&db, count));
    let manifest = backup(&db, options(folder(&db, "full"), None)).unwrap();
    db.close().unwrap();
    let path = Path::new("backups/full.gntbackup");
    let bytes = disk.contents(path).unwrap();
    let write = |at: usize, value: u8| {
        let block = at / 4096 * 4096;
        let mut buffer = AlignedBuffer::zeroed(4096);
        buffer.copy_from_slice(&bytes[block..block + 4096]);
        buffer[at - block] = value;
        let file = disk.open(path, &FileOptions::read_write()).unwrap();
        file.write_at(Class::Foreground, block as u64, &buffer, IoDurability::Durable).unwrap();
    };
    let used = |at: &usize| bytes[*at] != 0;
    for at in (0..bytes.len()).step_by(bytes.len() / 150).filter(used) {
        write(at, bytes[at] ^ 0x10);
        let error = restore(&disk, Source::Files(vec![file(&disk, "full")]), "none.gnt").unwrap_err();
        assert!(matches!(&error, Error::Backup(_)), "{at}: {error}");
        let error = verify(&disk, Source::Files(vec![file(&disk, "full")])).unwrap_err();
        assert!(matches!(&error, Error::Backup(_)), "{at}: {error}");
        write(at, bytes[at]);
    }
    restore(&disk, Source::Files(vec![file(&disk, "full")]), COPY).unwrap();
    assert_eq!(audit(&open(&disk, COPY)), 19);

    // A data file that is shorter, and a manifest that is another's.
    let data = disk.open(path, &FileOptions::read_write()).unwrap();
    data.set_len(manifest.bytes - 4096).unwrap();
    let error = restore(&disk, Source::Files(vec![file(&disk, "full")]), "none.gnt").unwrap_err();
    assert!(error.to_string().contains("it was cut or replaced"), "{error}");
    disk.remove(Path::new("backups/full.json")).unwrap();
    let error = BackupFile::find(&place(&disk, path)).unwrap_err();
    assert!(error.to_string().contains("was broken off"), "{error}");
    let error = BackupFile::find(&place(&disk, "backups/other")).unwrap_err();
    assert!(error.to_string().contains("there is no backup"), "{error}");
    // A stream that was kept as a file.
    disk.rename(path, Path::new("backups/stream")).unwrap();
    let error = BackupFile::find(&place(&disk, "backups/stream")).unwrap_err();
    assert!(error.to_string().contains("`- < stream`"), "{error}");
}

#[test]
fn a_destination_without_room_is_refused_and_one_that_fills_up_fails_the_backup_only() {
    let settings = |capacity| Settings { capacity_bytes: capacity, ..Settings::default() };
    let disk = SimDisk::with_settings(6, settings(Some(8 << 20)));
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    (1..30).for_each(|count| transfer(&db, count));
    // Somebody else takes nearly all of it, beside segments that are being made.
    let hog = disk.open(Path::new("hog"), &FileOptions::create_new()).unwrap();
    let take = || {
        let free = disk.free_bytes(Path::new("backups")).unwrap().unwrap();
        free < 200 << 10 || hog.allocate(0, hog.len().unwrap() + free - (50 << 10)).is_ok()
    };
    while !take() {}
    let error = backup(&db, options(folder(&db, "full"), None)).unwrap_err();
    assert!(
        matches!(&error, Error::Backup(what) if what.contains("needs") && what.contains("free")),
        "{error}"
    );
    // What is compressed is tried.
    let error =
        backup(&db, BackupOptions { compress: Some(1), ..options(folder(&db, "full"), None) }).unwrap_err();
    assert!(matches!(&error, Error::Backup(what) if what.contains("destination is full")), "{error}");
    assert!(disk.list(Path::new("backups")).unwrap().is_empty());
    let error =
        backup(&db, options(Destination::Folder { folder: place(&disk, "no"), name: "x".into() }, None));
    assert!(matches!(error, Err(Error::Backup(what)) if what.contains("there is no folder")));
    transfer(&db, 30);
    assert_eq!(audit(&db), 30);
}

#[test]
fn a_backup_during_which_the_database_fails_is_none() {
    let disk = SimDisk::new(40);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    (1..60).for_each(|count| transfer(&db, count));
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    let mut failed = false;
    let mut tell = |report: &gannet_store::JobReport| {
        if report.phase == "copies pages" && !failed {
            failed = true;
            let only = Some(FILE.to_owned());
            disk.set_faults(Faults { write_error: Chance::OneIn(1), only, ..Faults::default() });
            db.checkpoint().unwrap_err();
            disk.set_faults(Faults::default());
        }
        Ok(())
    };
    let taking = options(folder(&db, "b"), None);
    let taken = job.end(db.backup(taking, &mut Watch::new(&job, &mut tell)));
    assert!(matches!(taken, Err(Error::Poisoned(_))), "{taken:?}");
    assert!(failed && disk.list(Path::new("backups")).unwrap().is_empty());
}

#[test]
fn a_backup_that_is_cancelled_leaves_nothing() {
    let disk = SimDisk::new(7);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    let mut tell = |report: &gannet_store::JobReport| match report.phase.as_str() {
        "copies pages" => Err(Error::Cancelled),
        _ => Ok(()),
    };
    let ended = job.end(db.backup(options(folder(&db, "full"), None), &mut Watch::new(&job, &mut tell)));
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    assert!(disk.list(Path::new("backups")).unwrap().is_empty());
    drop(job);
    backup(&db, options(folder(&db, "full"), None)).unwrap();
    assert_eq!(BackupFile::all(&place(&disk, "backups"), &mut |error| panic!("{error}")).unwrap().len(), 1);
}

#[test]
fn what_a_crash_leaves_of_a_restore_is_no_database_and_the_next_one_takes_its_place() {
    let disk = SimDisk::new(8);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    (1..30).for_each(|count| transfer(&db, count));
    backup(&db, options(folder(&db, "full"), None)).unwrap();
    db.close().unwrap();
    let before = disk.io_count();
    restore(&disk, Source::Files(vec![file(&disk, "full")]), "try.gnt").unwrap();
    let count = disk.io_count() - before;
    for (seed, at) in (1..count).step_by((count / 25).max(1) as usize).enumerate() {
        let disk = disk.crash_image(seed as u64);
        let source = Source::Files(vec![file(&disk, "full")]);
        disk.crash_after(at);
        let done = restore(&disk, source, COPY).is_ok();
        let disk = disk.crash_image(seed as u64 + 1000);
        // Either there is none, or it is whole; and who was told that it is there has it.
        let has_name = disk.exists(Path::new(COPY)).unwrap() && meta_is_there(&disk, COPY);
        match restore(&disk, Source::Files(vec![file(&disk, "full")]), COPY) {
            Ok(_) => assert!(!done && !has_name, "{at} of {count}"),
            Err(error) => {
                assert!(has_name && error.to_string().contains("overwrites nothing"), "{at}: {error}");
            }
        }
        assert!(!has_name || !disk.exists(Path::new(&format!("{COPY}.partial"))).unwrap(), "{at}");
        assert_eq!(audit(&open(&disk, COPY)), 29, "{at} of {count}");
    }
}

/// Whether a file is a database, and not what a creation has left.
fn meta_is_there(disk: &SimDisk, name: &str) -> bool {
    !engine(disk).is_missing(Path::new(name)).unwrap()
}

#[test]
fn a_restore_that_is_ended_while_it_applies_the_log_is_done_again_by_the_same_command() {
    let disk = SimDisk::new(33);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    (1..30).for_each(|count| transfer(&db, count));
    backup(&db, options(folder(&db, "full"), None)).unwrap();
    db.close().unwrap();
    let source = || Source::Files(vec![file(&disk, "full")]);
    let engine = engine(&disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let mut ended = false;
    let mut tell = |report: &gannet_store::JobReport| match report.phase.as_str() {
        "applies the log" => {
            ended = true;
            Err(Error::Cancelled)
        }
        _ => Ok(()),
    };
    let watch = &mut Watch::new(&job, &mut tell);
    let outcome = engine.restore(source(), Path::new(COPY), &OpenOptions::default(), watch);
    assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
    drop(job);
    assert!(ended && disk.list(Path::new("")).unwrap().iter().all(|name| !name.starts_with(COPY)));
    restore(&disk, source(), COPY).unwrap();
    assert_eq!(audit(&open(&disk, COPY)), 29);
    assert!(!disk.exists(Path::new(&format!("{COPY}.partial"))).unwrap());
}

#[test]
fn a_budget_or_a_disk_too_small_for_the_database_is_said_before_anything_is_written() {
    let disk = SimDisk::new(34);
    disk.create_dir(Path::new("backups")).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 16 << 20 };
    let options_of = |memory| EngineOptions { memory, ..EngineOptions::default() };
    let sim = |disk: &SimDisk| -> Arc<dyn Disk> { Arc::new(disk.clone()) };
    let large = Engine::with_disk(sim(&disk), &options_of(32 << 20)).unwrap();
    let db = large.create(Path::new(FILE), &create, &OpenOptions::default()).unwrap();
    let mut bytes = Vec::new();
    backup(&db, options(folder(&db, "full"), None)).unwrap();
    bytes.extend_from_slice(&disk.contents(Path::new("backups/full.gntbackup")).unwrap());
    db.close().unwrap();
    let small = Engine::with_disk(sim(&disk), &options_of(10 << 20)).unwrap();
    let before = disk.list(Path::new("")).unwrap();
    let stream = Source::Stream(Box::new(std::io::Cursor::new(bytes)));
    for source in [Source::Files(vec![file(&disk, "full")]), stream] {
        let job = small.jobs().begin(JobOrder::new(JobKind::Restore));
        let mut tell = |_: &_| Ok(());
        let watch = &mut Watch::new(&job, &mut tell);
        let refused = small.restore(source, Path::new(COPY), &OpenOptions::default(), watch);
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains("is too small for a database with") && said.contains("give at least"),
            "{said}"
        );
        assert_eq!(disk.list(Path::new("")).unwrap(), before);
    }
}

#[test]
fn openings_in_which_nothing_was_logged_do_not_make_a_copy_forget_its_backups() {
    let disk = SimDisk::new(35);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let first = keeping(&db, None, 1).backup.name;
    db.close().unwrap();
    for _ in 0..300 {
        let db = open(&disk, FILE);
        assert_eq!(audit(&db), 0);
        db.close().unwrap();
    }
    let db = open(&disk, FILE);
    let second = keeping(&db, Some(Since::Latest), 1);
    assert_eq!(second.backup.manifest.begin.parent, Some(file(&disk, &first).manifest.as_parent()));
    assert_eq!((second.backup.manifest.all_read, second.complaint), (None, None));
    // Those in which something was logged count. When they are too many that is said.
    db.close().unwrap();
    for count in 1..260 {
        let db = open(&disk, FILE);
        transfer(&db, count);
        db.close().unwrap();
    }
    let db = open(&disk, FILE);
    let third = keeping(&db, None, 1);
    let complaint = third.complaint.unwrap();
    assert!(complaint.contains(&first) && complaint.contains("remove it, or move it away"), "{complaint}");
    disk.remove(Path::new(&format!("backups/{}.json", third.backup.name))).unwrap();
    let plan = BackupPlan {
        folder: place(&disk, "backups"),
        since: Some(Since::Latest),
        compress: None,
        keep: None,
        archive: None,
        statistics: None,
    };
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    let refused = job.end(db.backup_into(&plan, &mut Watch::new(&job, &mut |_| Ok(()))));
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("earlier ones are not known any more"), "{said}");
}

/// Has a backup say of itself that it was begun at another time.
fn begun_at(disk: &SimDisk, name: &str, unix_us: u64) {
    let path = PathBuf::from(format!("backups/{name}.json"));
    let bytes = disk.contents(&path).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let line = with_number(text.lines().next().unwrap(), "started_unix_us", &unix_us.into());
    disk.remove(&path).unwrap();
    make(disk, &path, &sealed(&line));
}

#[test]
fn a_clock_that_was_set_back_makes_no_older_backup_the_latest_and_keeps_none_in_place_of_a_newer() {
    let disk = SimDisk::new(36);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let first = keeping(&db, None, 9).backup;
    begun_at(&disk, &first.name, first.manifest.begin.started_unix_us + 3_600_000_000);
    transfer(&db, 1);
    let second = keeping(&db, None, 9).backup.name;
    let found = || match Source::find(&[place(&disk, "backups")]) {
        Ok(Source::Files(files)) => Ok(files.last().unwrap().name.clone()),
        Ok(Source::Stream(_)) => panic!("a folder is no stream"),
        Err(error) => Err(error),
    };
    assert_eq!(found().unwrap(), second);
    transfer(&db, 2);
    let third = keeping(&db, None, 2);
    assert_eq!(third.removed, [first.name]);
    db.close().unwrap();
    // Of two times that it was open nobody can tell which came first: the clock says one thing, the log the other.
    let db = open(&disk, FILE);
    transfer(&db, 3);
    let fourth = keeping(&db, None, 9).backup;
    begun_at(&disk, &fourth.name, 1);
    let said = found().unwrap_err().to_string();
    assert!(said.contains(&fourth.name) && said.contains(&third.backup.name), "{said}");
    assert!(said.contains("name the one"), "{said}");
}

#[test]
fn of_backups_that_begin_at_one_place_in_the_log_the_one_that_ends_later_is_the_latest() {
    let disk = SimDisk::new(37);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let quiet = keeping(&db, None, 9).backup;
    let mut is_due = true;
    let mut tell = |report: &JobReport| {
        if report.phase == "counts pages" && std::mem::take(&mut is_due) {
            transfer(&db, 1);
        }
        Ok(())
    };
    let folder = place(&disk, "backups");
    let plan =
        BackupPlan { folder, since: None, compress: None, keep: None, archive: None, statistics: None };
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    let later = job.end(db.backup_into(&plan, &mut Watch::new(&job, &mut tell))).unwrap().backup;
    assert_eq!(quiet.manifest.begin.start_lsn, later.manifest.begin.start_lsn);
    assert!(quiet.manifest.end_lsn < later.manifest.end_lsn);
    // The clock was set back between them.
    begun_at(&disk, &quiet.name, later.manifest.begin.started_unix_us + 3_600_000_000);
    let Source::Files(found) = Source::find(&[place(&disk, "backups")]).unwrap() else { panic!("a folder") };
    assert_eq!(found.last().unwrap().name, later.name);
    restore(&disk, Source::Files(found), COPY).unwrap();
    assert_eq!(audit(&open(&disk, COPY)), 1);
}

#[test]
fn what_a_crash_leaves_of_a_backup_does_not_pass_for_one() {
    let disk = SimDisk::new(9);
    disk.create_dir(Path::new("backups")).unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    let db = bank(&disk);
    (1..30).for_each(|count| transfer(&db, count));
    let before = disk.io_count();
    backup(&db, options(folder(&db, "sound"), None)).unwrap();
    let count = disk.io_count() - before;
    drop(db);
    for (seed, at) in (1..count).step_by((count / 20).max(1) as usize).enumerate() {
        let disk = disk.crash_image(seed as u64);
        let db = open(&disk, FILE);
        disk.crash_after(at);
        let taken = backup(&db, options(folder(&db, "full"), None));
        drop(db);
        let disk = disk.crash_image(seed as u64 + 1000);
        let found = BackupFile::all(&place(&disk, "backups"), &mut |_| ()).unwrap();
        let found: Vec<_> = found.into_iter().filter(|one| one.name == "full").collect();
        assert!(taken.is_err() || !found.is_empty());
        if let [one] = &found[..] {
            restore(&disk, Source::Files(vec![one.clone()]), COPY).unwrap();
            assert_eq!(audit(&open(&disk, COPY)), 29);
        }
        assert_eq!(audit(&open(&disk, FILE)), 29);
    }
}

#[test]
fn a_backup_whose_end_failed_does_not_come_back_without_its_data_behind_a_power_cut() {
    for (at, seed) in (1..6).flat_map(|at| (0..8).map(move |seed| (at, seed))) {
        let disk = SimDisk::new(38);
        disk.create_dir(Path::new("backups")).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let db = bank(&disk);
        let beside = disk.clone();
        let failing = Meanwhile::behind_publish(&disk, move || beside.crash_after(at));
        let folder = BackupPlace::new(failing, "backups");
        let destination = Destination::Folder { folder, name: "b".to_owned() };
        backup(&db, options(destination, None)).unwrap_err();
        drop(db);
        let disk = disk.crash_image(seed);
        if disk.exists(Path::new("backups/b.json")).unwrap() {
            assert!(disk.exists(Path::new("backups/b.gntbackup")).unwrap(), "{at}, {seed}");
            restore(&disk, Source::Files(vec![file(&disk, "b")]), COPY).unwrap();
            assert_eq!(audit(&open(&disk, COPY)), 0);
        }
    }
}

#[test]
fn a_backup_that_is_shorter_than_it_says_is_kept_in_place_of_no_older_one() {
    let disk = SimDisk::new(39);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let first = keeping(&db, None, 9).backup;
    transfer(&db, 1);
    let second = keeping(&db, None, 9).backup;
    let data = format!("backups/{}.gntbackup", second.name);
    let data = disk.open(Path::new(&data), &FileOptions::read_write()).unwrap();
    data.set_len(data.len().unwrap() - 4096).unwrap();
    transfer(&db, 2);
    let third = keeping(&db, None, 2);
    let complaint = third.complaint.unwrap();
    assert!(complaint.contains("it was cut or replaced") && complaint.contains(&second.name), "{complaint}");
    assert!(third.removed.is_empty(), "{:?}", third.removed);
    restore(&disk, Source::Files(vec![first]), COPY).unwrap();
    assert_eq!(audit(&open(&disk, COPY)), 0);
}

/// Bytes read by whatever is no user's, so far.
fn read_bytes(disk: &SimDisk) -> u64 {
    disk.stats().counter(Class::Maintenance, Operation::Read).bytes.load(Ordering::Relaxed)
}

/// Enough transfers to fill some segments of the log, which a checkpoint lets go of.
fn much(db: &Database, from: u64) -> u64 {
    (from..from + 150).for_each(|count| transfer(db, count));
    db.checkpoint().unwrap();
    from + 150
}

#[test]
fn an_incremental_backup_reads_what_has_changed_whatever_became_of_the_log() {
    let disk = SimDisk::new(21);
    disk.create_dir(Path::new("backups")).unwrap();
    let mut db = bank(&disk);
    // What never changes again, so that a look at all pages differs from anything the background may read meanwhile.
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("history").unwrap();
    (0..20_000).for_each(|number| txn.put(&tree, &key(number), &account(0)).unwrap());
    txn.commit().unwrap();
    let mut next = much(&db, 1);
    let mut manifests = vec![backup(&db, options(folder(&db, "0"), None)).unwrap()];
    for round in 1..6 {
        next = much(&db, next);
        match round {
            2 => {
                db.close().unwrap();
                db = open(&disk, FILE);
            }
            // Killed: the list goes on where the file's header is.
            3 => {
                transfer(&db, next);
                next += 1;
                drop(db);
                db = open(&disk, FILE);
                db.await_restart();
            }
            _ => {}
        }
        let taken = backup(&db, options(folder(&db, &round.to_string()), manifests.last())).unwrap();
        assert_eq!(taken.all_read, None, "{round}");
        manifests.push(taken);
    }
    db.sweep().unwrap();
    db.checkpoint().unwrap();
    let rest = backup(&db, options(folder(&db, "rest"), manifests.last())).unwrap();
    transfer(&db, next);
    db.checkpoint().unwrap();
    let before = read_bytes(&disk);
    let small = backup(&db, options(folder(&db, "small"), Some(&rest))).unwrap();
    let read = read_bytes(&disk) - before;
    // Pages, the list, footers, segments of the log, and what the background reads.
    let all = disk.contents(Path::new(FILE)).unwrap().len() as u64;
    assert!(read < all / 3, "{read} bytes for {} pages of {all} bytes", small.pages);
    restore(&disk, Source::Files(file(&disk, "small").chain().unwrap()), COPY).unwrap();
    assert_eq!(audit(&open(&disk, COPY)), next as i64);
}

#[test]
fn the_list_of_changed_pages_knows_what_a_look_at_all_pages_finds() {
    let disk = SimDisk::new(22);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let full = backup(&db, options(folder(&db, "0"), None)).unwrap();
    let mut next = 1;
    // Long enough to be merged, beside marks of other backups.
    for round in 0..40 {
        next = much(&db, next);
        if round % 15 == 7 {
            backup(&db, options(folder(&db, &format!("other{round}")), Some(&full))).unwrap();
        }
    }
    // So that there is next to nothing for the background to change from here on.
    db.sweep().unwrap();
    let by_list = backup(&db, options(folder(&db, "by-list"), Some(&full))).unwrap();
    assert_eq!(by_list.all_read, None);
    let list = disk.contents(Path::new("b.gnt-wal/changes")).unwrap().len() as u64;
    let unmerged = (db.stats().end_lsn.0 >> 18) * 2 * 4096;
    assert!(list < unmerged / 2, "{list} bytes, {unmerged} without merging");
    for name in ["by-list", "other22"] {
        restore(&disk, Source::Files(file(&disk, name).chain().unwrap()), &format!("{name}.gnt")).unwrap();
    }
    assert_eq!(audit(&open(&disk, "by-list.gnt")), next as i64 - 1);
    // Where the background was about to put a merged list in its place, which it had made before, the next one is met.
    let by_looking = (1..10).find_map(|round| {
        disk.corrupt(Path::new("b.gnt-wal/changes"), 4096 + 100, 8, round).unwrap();
        let taken = backup(&db, options(folder(&db, &format!("by-looking{round}")), Some(&full))).unwrap();
        taken.all_read.is_some().then_some(taken)
    });
    let by_looking = by_looking.expect("a damaged list is not believed");
    // In between the background may have changed a few.
    let more = by_looking.pages.abs_diff(by_list.pages);
    assert!(more < 20, "{} by list, {} by looking", by_list.pages, by_looking.pages);
    // That one has begun a new list.
    next = much(&db, next);
    let last = backup(&db, options(folder(&db, "last"), Some(&by_looking))).unwrap();
    assert_eq!(last.all_read, None);
    restore(&disk, Source::Files(file(&disk, "last").chain().unwrap()), COPY).unwrap();
    assert_eq!(audit(&open(&disk, COPY)), next as i64 - 1);
}

#[test]
fn a_list_of_changed_pages_that_missed_something_is_not_believed() {
    let disk = SimDisk::new(23);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let full = backup(&db, options(folder(&db, "0"), None)).unwrap();
    much(&db, 1);
    db.close().unwrap();
    let before = disk.contents(Path::new("b.gnt-wal/changes")).unwrap();
    let db = open(&disk, FILE);
    much(&db, 151);
    db.close().unwrap();
    // An older list, and then none of the log: both say less than what has happened.
    for lost in ["list", "log"] {
        if lost == "list" {
            let list = disk.open(Path::new("b.gnt-wal/changes"), &FileOptions::read_write()).unwrap();
            let mut buffer = AlignedBuffer::zeroed(before.len());
            buffer.copy_from_slice(&before);
            list.set_len(0).unwrap();
            list.write_at(Class::Foreground, 0, &buffer, IoDurability::Durable).unwrap();
        } else {
            for name in
                disk.list(Path::new("b.gnt-wal")).unwrap().iter().filter(|name| name.ends_with(".log"))
            {
                disk.remove(&Path::new("b.gnt-wal").join(name)).unwrap();
            }
        }
        let db = open(&disk, FILE);
        let taken = backup(&db, options(folder(&db, lost), Some(&full))).unwrap();
        assert!(taken.all_read.is_some(), "{lost}");
        let to = format!("{lost}.gnt");
        restore(&disk, Source::Files(file(&disk, lost).chain().unwrap()), &to).unwrap();
        assert_eq!(audit(&open(&disk, &to)), 300);
        db.close().unwrap();
    }
}

fn keeping(db: &Database, since: Option<Since>, keep: u32) -> Taken {
    let (folder, keep) = (BackupPlace::new(Arc::clone(db.engine().disk()), "backups"), Some(keep));
    let plan = BackupPlan { folder, since, compress: None, keep, archive: None, statistics: None };
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    job.end(db.backup_into(&plan, &mut Watch::new(&job, &mut |_| Ok(())))).unwrap()
}

/// Copies a backup from one disk to another, or to another name.
fn copied((from, name): (&SimDisk, &str), (to, new): (&SimDisk, &str)) {
    for ending in ["gntbackup", "json"] {
        let bytes = from.contents(Path::new(&format!("backups/{name}.{ending}"))).unwrap();
        make(to, format!("backups/{new}.{ending}"), &bytes);
    }
}

#[test]
fn nothing_goes_that_another_backup_needs_or_may_need() {
    let disk = SimDisk::new(31);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let first = keeping(&db, None, 1);
    transfer(&db, 1);
    // Another copy of the database, as of that backup's life, which goes on by itself.
    db.close().unwrap();
    let (disk, fork) = (disk.crash_image(1), disk.crash_image(2));
    let db = open(&disk, FILE);
    let other = open(&fork, FILE);
    transfer(&other, 2);
    let of_fork = backup(&other, options(folder(&other, "of-fork"), Some(&first.backup.manifest))).unwrap();
    assert!(of_fork.is_incremental());
    copied((&fork, "of-fork"), (&disk, "of-fork"));
    // The first one would go, and is what that one adds to.
    let second = keeping(&db, None, 1);
    assert_eq!((second.removed, second.complaint), (vec![], None));
    restore(&disk, Source::Files(file(&disk, "of-fork").chain().unwrap()), COPY).unwrap();
    // A backup under a second name is no second backup.
    let name = second.backup.name;
    copied((&disk, &name), (&disk, "twice"));
    let third = keeping(&db, None, 2);
    assert_eq!((third.removed, third.complaint), (vec![], None));
    assert!(BackupFile::find(&place(&disk, "backups").join(name)).is_ok());
    // While one cannot be read, nobody knows what it adds to.
    disk.corrupt(Path::new("backups/of-fork.json"), 10, 4, 1).unwrap();
    let fourth = keeping(&db, None, 1);
    let complaint = fourth.complaint.unwrap();
    assert!(complaint.contains("of-fork.json") && fourth.removed.is_empty(), "{complaint}");
}

#[test]
fn nothing_goes_that_a_backup_needs_by_way_of_another_folder() {
    let disk = SimDisk::new(40);
    disk.create_dir(Path::new("backups")).unwrap();
    disk.create_dir(Path::new("other")).unwrap();
    let db = bank(&disk);
    let first = keeping(&db, None, 9).backup;
    transfer(&db, 1);
    let second = keeping(&db, None, 9).backup;
    let destination = Destination::Folder { folder: place(&disk, "other"), name: "more".to_owned() };
    backup(&db, options(destination, Some(&first.manifest))).unwrap();
    transfer(&db, 2);
    let taken = keeping(&db, Some(Since::Path(place(&disk, "other/more"))), 1);
    let complaint = taken.complaint.unwrap();
    assert!(taken.removed.is_empty() && complaint.contains(&taken.backup.name), "{complaint}");
    let more = BackupFile::find(&place(&disk, "other/more")).unwrap();
    restore(&disk, Source::Files(vec![first.clone(), more, taken.backup.clone()]), COPY).unwrap();
    assert_eq!(audit(&open(&disk, COPY)), 2);
    // What is younger goes all the same.
    transfer(&db, 3);
    let third = keeping(&db, None, 9).backup;
    let added = keeping(&db, Some(Since::Latest), 9).backup;
    transfer(&db, 4);
    let fourth = keeping(&db, None, 1);
    assert_eq!(fourth.removed, [added.name, third.name]);
    assert!(fourth.complaint.unwrap().contains(&taken.backup.name));
    // Moved away, as the message says.
    for ending in ["json", "gntbackup"] {
        disk.remove(Path::new(&format!("backups/{}.{ending}", taken.backup.name))).unwrap();
    }
    let fifth = keeping(&db, None, 1);
    assert_eq!(fifth.complaint, None);
    assert_eq!(
        fifth.removed.iter().collect::<BTreeSet<_>>(),
        [first.name, second.name, fourth.backup.name].iter().collect()
    );
}

#[test]
fn which_backup_is_the_latest_is_not_guessed_where_one_cannot_be_read() {
    let disk = SimDisk::new(32);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let folder = place(&disk, "backups");
    let found = || match Source::find(std::slice::from_ref(&folder)) {
        Ok(Source::Files(files)) => Ok(files.last().unwrap().name.clone()),
        Ok(Source::Stream(_)) => panic!("a folder is no stream"),
        Err(error) => Err(error),
    };
    let path = |name: &str, ending: &str| format!("backups/{name}.{ending}");
    let since_latest = || {
        let (folder, since) = (folder.clone(), Some(Since::Latest));
        let plan = BackupPlan { folder, since, compress: None, keep: None, archive: None, statistics: None };
        let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
        job.end(db.backup_into(&plan, &mut Watch::new(&job, &mut |_| Ok(()))))
    };
    let refused = |unread: &str| {
        let before = disk.list(&folder.path).unwrap().len();
        for error in [found().unwrap_err(), since_latest().unwrap_err()] {
            let Error::Backup(said) = error else { panic!("{error:?}") };
            assert!(said.contains(unread) && said.contains("is not known therefore"), "{said}");
        }
        assert_eq!(disk.list(&folder.path).unwrap().len(), before, "nothing was begun");
    };
    let first = keeping(&db, None, 9).backup.name;
    transfer(&db, 1);
    let second = since_latest().unwrap().backup.name;
    assert_eq!(found().unwrap(), second);
    // One whose data is gone may have been the latest, and so may one whose manifest is damaged, or is empty.
    disk.remove(Path::new(&path(&second, "gntbackup"))).unwrap();
    refused(&path(&second, "gntbackup"));
    disk.remove(Path::new(&path(&second, "json"))).unwrap();
    assert_eq!(found().unwrap(), first);
    let third = since_latest().unwrap().backup;
    assert_eq!(third.manifest.begin.parent, Some(file(&disk, &first).manifest.as_parent()));
    let manifest = path(&third.name, "json");
    disk.corrupt(Path::new(&manifest), 10, 4, 1).unwrap();
    refused(&manifest);
    disk.open(Path::new(&manifest), &FileOptions::read_write()).unwrap().set_len(0).unwrap();
    refused(&manifest);
    // Whoever names one gets it.
    restore(&disk, Source::find(&[folder.join(&first)]).unwrap(), COPY).unwrap();
    assert_eq!(audit(&open(&disk, COPY)), 0);
    // Moved away, as the message says.
    disk.remove(Path::new(&manifest)).unwrap();
    assert_eq!(found().unwrap(), first);
    // What is not whole is nothing to add to, by whatever name it is asked for.
    let data = path(&first, "gntbackup");
    let file_of_it = disk.open(Path::new(&data), &FileOptions::read_write()).unwrap();
    file_of_it.set_len(file_of_it.len().unwrap() - 4096).unwrap();
    let by_name = |name: &str| {
        let (folder, since) = (folder.clone(), Some(Since::Path(place(&disk, name))));
        let plan = BackupPlan { folder, since, compress: None, keep: None, archive: None, statistics: None };
        let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
        job.end(db.backup_into(&plan, &mut Watch::new(&job, &mut |_| Ok(()))))
    };
    for refused in [since_latest(), by_name(&first), by_name(&format!("backups/{first}"))] {
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("it was cut or replaced") && said.contains(&data), "{said}");
    }
    let said = by_name("no-such").unwrap_err().to_string();
    assert!(said.contains("backups/no-such"), "{said}");
}

/// Bytes of the heads of frames, and what frames are a multiple of.
const HEAD: usize = 4096;

#[test]
fn a_backup_that_goes_while_others_look_what_is_in_the_folder_is_not_there_and_none_that_is_broken() {
    let (data, manifest) = ("backups/other.gntbackup", "backups/other.json");
    for data_goes_first in [false, true] {
        let disk = SimDisk::new(15);
        disk.create_dir(Path::new("backups")).unwrap();
        let db = bank(&disk);
        backup(&db, options(folder(&db, "mine"), None)).unwrap();
        backup(&db, options(folder(&db, "other"), None)).unwrap();
        if data_goes_first {
            // Whoever looks now finds a manifest without data; the next time it is gone, too.
            disk.remove(Path::new(data)).unwrap();
        }
        let beside = disk.clone();
        let seen = Meanwhile::behind_list(&disk, "backups", move || {
            beside.remove(Path::new(manifest)).unwrap();
        });
        let mut complaints = Vec::new();
        let place = BackupPlace::new(Arc::clone(&seen) as Arc<dyn Disk>, "backups");
        let found = BackupFile::all(&place, &mut |error| complaints.push(error)).unwrap();
        let names: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
        assert!(seen.is_done() && complaints.is_empty(), "{complaints:?}");
        assert_eq!(names, ["mine"]);
    }
}

/// The text of a manifest, or of a first frame, with one of its numbers changed.
fn with_number(line: &str, field: &str, value: &serde_json::Value) -> String {
    let mut fields: serde_json::Value = serde_json::from_str(line).unwrap();
    let place = fields.get_mut(field).unwrap_or_else(|| panic!("there is no field {field}"));
    *place = value.clone();
    fields.to_string()
}

/// Puts a text into a frame, with lengths and checksums that belong to it.
fn put_text(frame: &mut [u8], text: &[u8]) {
    assert!(text.len() <= frame.len() - HEAD);
    let backup = u64::from_le_bytes(frame[24..32].try_into().unwrap());
    frame[HEAD..].fill(0);
    frame[HEAD..HEAD + text.len()].copy_from_slice(text);
    frame[48..52].copy_from_slice(&(text.len() as u32).to_le_bytes());
    frame[52..56].copy_from_slice(&(text.len() as u32).to_le_bytes());
    frame[56..64].copy_from_slice(&checksum::seeded(backup, text).to_le_bytes());
    let sum = checksum::seeded(backup, &frame[8..HEAD]);
    frame[..8].copy_from_slice(&sum.to_le_bytes());
}

/// A line with its checksum, as long as that of a manifest.
fn sealed(line: &str) -> Vec<u8> {
    let mut text = format!("{line}\n{:016x}", checksum::seeded(0, line.as_bytes())).into_bytes();
    text.resize((text.len() + 1).next_multiple_of(HEAD) - 1, b' ');
    text.push(b'\n');
    text
}

/// The files of a backup in which a number is another one, wherever it stands, as somebody would make them who wants to do harm.
fn forged(data: &[u8], manifest: &[u8], field: &str, value: &serde_json::Value) -> (Vec<u8>, Vec<u8>) {
    let line = std::str::from_utf8(manifest).unwrap().lines().next().unwrap();
    let manifest = sealed(&with_number(line, field, value));
    let mut data = data.to_vec();
    let last = data.len() - HEAD - manifest.len();
    put_text(&mut data[last..], &manifest);
    let len = u32::from_le_bytes(data[52..56].try_into().unwrap()) as usize;
    let begin = std::str::from_utf8(&data[HEAD..HEAD + len]).unwrap().to_owned();
    if begin.contains(&format!("\"{field}\":")) {
        put_text(&mut data[..2 * HEAD], with_number(&begin, field, value).as_bytes());
    }
    (data, manifest)
}

fn overwritten(disk: &SimDisk, path: &str, bytes: &[u8]) {
    let file = disk.open(Path::new(path), &FileOptions::read_write()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(bytes.len());
    buffer.copy_from_slice(bytes);
    file.set_len(0).unwrap();
    file.write_at(Class::Foreground, 0, &buffer, IoDurability::Durable).unwrap();
}

#[test]
fn absurd_numbers_in_a_manifest_are_refused_before_anything_is_made_of_them() {
    let disk = SimDisk::new(33);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    (1..20).for_each(|count| transfer(&db, count));
    backup(&db, options(folder(&db, "full"), None)).unwrap();
    db.close().unwrap();
    let (data_path, manifest_path) = ("backups/full.gntbackup", "backups/full.json");
    let data = disk.contents(Path::new(data_path)).unwrap();
    let manifest = disk.contents(Path::new(manifest_path)).unwrap();
    let whole = file(&disk, "full").manifest;
    let refused = |error: Error, what: &str| {
        let clear =
            matches!(&error, Error::Backup(_) | Error::Damaged(_) | Error::Format(_) | Error::Invalid(_));
        assert!(clear, "{what}: {error:?}");
        let none = ["none.gnt", "none.gnt-wal"].iter().all(|name| !disk.exists(Path::new(name)).unwrap());
        assert!(none, "{what}: something is left: {error}");
    };
    let of_file = whole.file_bytes / (4096 * 16);
    for (field, values) in [
        ("groups", vec![of_file + 1, 1 << 40, u64::MAX]),
        ("file_bytes", vec![0, 4095, whole.file_bytes + 1, 1 << 60, u64::MAX - 4095, u64::MAX]),
        ("page_size", vec![0, 1, 1 << 20]),
        ("segment_size", vec![0, 1, 1 << 40, u64::MAX]),
        ("pages", vec![u64::MAX]),
        ("unwritten", vec![u64::MAX]),
        ("unwritten_undo", vec![whole.unwritten + 1, u64::MAX]),
        ("frames", vec![0, 1, 1 << 40, u64::MAX]),
        ("bytes", vec![0, whole.bytes + 4096, u64::MAX]),
        ("log_bytes", vec![u64::MAX]),
        ("start_lsn", vec![whole.end_lsn + 8, u64::MAX]),
        ("end_lsn", vec![0, 1 << 62, u64::MAX]),
        ("next_txn", vec![u64::MAX]),
    ] {
        for value in values {
            let what = format!("{field} {value}");
            let (data, manifest) = forged(&data, &manifest, field, &value.into());
            overwritten(&disk, data_path, &data);
            overwritten(&disk, manifest_path, &manifest);
            let found = || BackupFile::find(&place(&disk, manifest_path));
            match found() {
                Err(error) => refused(error, &what),
                Ok(found) => {
                    let source = || Source::Files(vec![found.clone()]);
                    refused(restore(&disk, source(), "none.gnt").unwrap_err(), &what);
                    refused(verify(&disk, source()).unwrap_err(), &what);
                }
            }
            // The same where there is no manifest beside.
            let stream = || Source::Stream(Box::new(std::io::Cursor::new(data.clone())));
            refused(restore(&disk, stream(), "none.gnt").unwrap_err(), &what);
            refused(verify(&disk, stream()).unwrap_err(), &what);
        }
    }
    // What was forged with the number that was there is whole.
    let (data, manifest) = forged(&data, &manifest, "groups", &whole.begin.groups.into());
    overwritten(&disk, data_path, &data);
    overwritten(&disk, manifest_path, &manifest);
    restore(&disk, Source::Files(vec![file(&disk, "full")]), COPY).unwrap();
    assert_eq!(audit(&open(&disk, COPY)), 19);
}

/// Marks one more page of a tree as used in the space map that a backup has; says which.
fn claim_a_page(data: &mut [u8], database_id: u64) -> u64 {
    let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut at = 0;
    loop {
        let (len, count) = (number(data, at + 52), number(data, at + 64));
        let frame = &mut data[at..at + HEAD + len];
        let place = (0..count).find(|place| number(frame, 72 + 8 * place) == 2);
        let Some(place) = place.filter(|_| frame[16] == 2) else {
            at += HEAD + len.next_multiple_of(HEAD);
            continue;
        };
        let map = &mut frame[HEAD + place * 4096..][..4096];
        let extent = (1..504).find(|extent| {
            let bytes = &map[64 + extent * 8..][..8];
            // Owners below are the store's own, and undo.
            number(bytes, 4) > 10 && bytes[1] & 0x80 == 0
        });
        let extent = extent.unwrap();
        map[64 + extent * 8 + 1] |= 0x80;
        page::seal(map, PageId(2), database_id);
        let backup = u64::from_le_bytes(frame[24..32].try_into().unwrap());
        let sum = checksum::seeded(backup, &frame[HEAD..]);
        frame[56..64].copy_from_slice(&sum.to_le_bytes());
        let sum = checksum::seeded(backup, &frame[8..HEAD]);
        frame[..8].copy_from_slice(&sum.to_le_bytes());
        return extent as u64 * 16 + 15;
    }
}

#[test]
fn pages_of_undo_that_were_never_written_made_up_for_one_of_a_tree_that_was_missing() {
    let disk = SimDisk::new(34);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let full = backup(&db, options(folder(&db, "full"), None)).unwrap();
    assert!(full.unwritten_undo > 0 && full.unwritten == full.unwritten_undo, "{full:?}");
    verify(&disk, Source::Files(vec![file(&disk, "full")])).unwrap();
    let path = "backups/full.gntbackup";
    let mut data = disk.contents(Path::new(path)).unwrap();
    let page = claim_a_page(&mut data, full.begin.database_id);
    overwritten(&disk, path, &data);
    let error = verify(&disk, Source::Files(vec![file(&disk, "full")])).unwrap_err().to_string();
    assert!(error.contains(&format!("1 pages are missing, page {page} ")), "{error}");
    // An earlier release did not tell them apart.
    let line = full.to_line();
    let field = format!("\"unwritten_undo\":{},", full.unwritten_undo);
    assert!(line.contains(&field));
    let before = Manifest::from_line(&line.replace(&field, "")).unwrap();
    assert_eq!(before, Manifest { unwritten_undo: 0, ..full });
}

#[test]
fn what_lies_beside_a_backup_that_was_broken_off_goes_when_it_is_nobodys() {
    let disk = SimDisk::new(34);
    disk.create_dir(Path::new("backups")).unwrap();
    let db = bank(&disk);
    let make = |name: &str| {
        let file = disk.open(&Path::new("backups").join(name), &FileOptions::create_new()).unwrap();
        file.write_at(Class::Foreground, 0, &AlignedBuffer::zeroed(4096), IoDurability::Cached).unwrap();
        file
    };
    let whole = keeping(&db, None, 9).backup.name;
    // What a backup to the folder's URL leaves when it is killed, with the object that has its name and without it; by whose path, too.
    let killed = [
        "b-20200101T000000Z-full.gntbackup",
        "b-20200101T000000Z-full.gntbackup#1",
        "b-20200102T000000Z-incr.gntbackup#27",
        "b-20200102T000000Z-incr.json#1",
        "b-20200103T000000Z.2-full.json#3",
        &format!("{whole}.json#1"),
    ];
    let unpublished = [
        "b-20200104T000000Z-full.json.new",
        "b-20200105T000000Z-full.json.new",
        &format!("{whole}.json.new"),
    ];
    make("b-20200104T000000Z-full.gntbackup");
    killed.iter().chain(&unpublished).for_each(|name| drop(make(name)));
    // Somebody writes one that he has given a name as these, by himself, and others have files of their own.
    let theirs = [
        "b-20200106T000000Z-full.gntbackup",
        "b-20200106T000000Z-full.gntbackup#1",
        "b-20200106T000000Z-full.json.new",
        "b-20200101T000000Z-full.gntbackup#x",
        "b-20200101T000000Z-full.gntbackup#",
        "b-20200101T000000Z-full.notes#1",
        "b-notes.gntbackup#1",
        "b-notes.json.new",
        "c-20200101T000000Z-full.gntbackup#1",
        "c-20200101T000000Z-full.json.new",
        // Those of a database that was restored under the name of a backup, and what somebody else calls so.
        "b-20200107T000000Z-full-20200108T000000Z-full.gntbackup",
        "b-20200107T000000Z-full-20200108T000000Z-full.json.new",
        "b-20200107T000000Z-other.gntbackup#1",
        "b-20200107T0000.json.new",
    ];
    let files: Vec<_> = theirs.iter().map(|name| make(name)).collect();
    let held = files[0].lock().unwrap();
    let names = || -> BTreeSet<String> { disk.list(Path::new("backups")).unwrap().into_iter().collect() };
    let has = |name: &&str| names().contains(*name);
    // Whoever removes nothing else removes manifests that never got their names.
    let folder = place(&disk, "backups");
    let plan =
        BackupPlan { folder, since: None, compress: None, keep: None, archive: None, statistics: None };
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    let taken = job.end(db.backup_into(&plan, &mut Watch::new(&job, &mut |_| Ok(())))).unwrap();
    assert!(!unpublished.iter().any(has), "{:?}", names());
    assert!(killed.iter().all(has) && theirs.iter().all(has), "{:?}", names());
    assert!(has(&"b-20200104T000000Z-full.gntbackup"));
    let kept = keeping(&db, None, 9);
    assert_eq!(kept.complaint, None);
    assert_eq!(
        kept.removed,
        ["b-20200101T000000Z-full", "b-20200104T000000Z-full"],
        "what was broken off is told"
    );
    let mut left: BTreeSet<String> = theirs.iter().map(|name| (*name).to_owned()).collect();
    for name in [&whole, &taken.backup.name, &kept.backup.name] {
        left.extend([format!("{name}.gntbackup"), format!("{name}.json")]);
    }
    assert_eq!(names(), left);
    drop(held);
    let last = keeping(&db, None, 9);
    assert_eq!(last.removed, ["b-20200106T000000Z-full"]);
    assert!(!theirs[..3].iter().any(has) && theirs[3..].iter().all(has));
}
