//! Backups as streams: read by somebody who takes his time, or nothing; and kept by somebody who has not the database.

use gannet_base::clock;
use gannet_base::sync::Mutex;
use gannet_io::sim::{Settings, SimDisk};
use gannet_io::{Disk, ModeRequest};
use gannet_store::{
    BackupFile, BackupOptions, BackupPlace, CreateOptions, Database, Destination, Engine, EngineOptions,
    Error, JobKind, JobOrder, Manifest, OpenOptions, Reception, Since, Source, Taken, TransactionOptions,
    Watch,
};
use std::io::{Cursor, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const KEYS: u64 = 3000;

fn engine(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 10 << 20, ..EngineOptions::default() }).unwrap()
}

/// A database whose log may not become long.
fn database(disk: &SimDisk, name: &str) -> Database {
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let open = OpenOptions { wal_limit: 1 << 20, ..OpenOptions::default() };
    let db = engine(disk).create(Path::new(name), &create, &open).unwrap();
    write(&db, 1);
    db
}

fn write(db: &Database, value: u8) {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = match txn.tree("t").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("t").unwrap(),
    };
    for key in 0..KEYS {
        txn.put(&tree, &key.to_be_bytes(), &[value; 400]).unwrap();
    }
    txn.commit().unwrap();
}

fn backup(db: &Database, to: Box<dyn Write + Send>, since: Option<&Manifest>) -> Result<Manifest, Error> {
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    let options =
        BackupOptions { destination: Destination::Stream(to), since: since.cloned(), compress: None };
    job.end(db.backup(options, &mut Watch::new(&job, &mut |_| Ok(()))))
}

/// Bytes that somebody writes, as long as they are taken.
#[derive(Clone, Default)]
struct Pipe {
    bytes: Arc<Mutex<Vec<u8>>>,
    stands_still: Arc<AtomicBool>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        while self.stands_still.load(Ordering::SeqCst) {
            clock::sleep(Duration::from_millis(1));
        }
        self.bytes.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn who_takes_nothing_of_a_stream_holds_up_nobody_but_the_backup_which_ends_when_the_log_has_grown() {
    let disk = SimDisk::new(1);
    let db = database(&disk, "b.gnt");
    let pipe = Pipe::default();
    pipe.stands_still.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| backup(&db, Box::new(pipe.clone()), None));
        // Jobs beside it have their permits, and go on; so do users, and the log is let go of.
        for value in 2..8 {
            let job = db.jobs().begin(JobOrder::new(JobKind::Check));
            let report = job.end(db.check_watched(&mut Watch::new(&job, &mut |_| Ok(())))).unwrap();
            assert!(report.findings.is_empty(), "{:?}", report.findings);
            write(&db, value);
        }
        let error = stuck.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("takes the log slower than it grows"), "{error}");
    });
    // One that is cancelled ends, though nobody takes anything.
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| backup(&db, Box::new(pipe.clone()), None));
        let id = loop {
            let running = |report: &&gannet_store::JobReport| report.state == gannet_store::JobState::Running;
            if let Some(job) = db.jobs().reports().iter().find(running) {
                break job.id;
            }
            clock::sleep(Duration::from_millis(1));
        };
        clock::sleep(Duration::from_millis(30));
        assert!(db.jobs().cancel(id));
        assert!(matches!(stuck.join().unwrap(), Err(Error::Cancelled)));
    });
    pipe.stands_still.store(false, Ordering::SeqCst);
    db.close().unwrap();
}

fn place(disk: &SimDisk) -> BackupPlace {
    BackupPlace::new(Arc::new(disk.clone()), "kept")
}

/// Keeps what `ask` gives, on a disk of its own.
fn keep(
    disk: &SimDisk,
    db: &Database,
    how: (Option<Since>, Option<u32>),
    ask: &mut dyn FnMut(Option<&Manifest>) -> Vec<u8>,
) -> Result<Taken, Error> {
    keep_as(disk, db, how, ask, false)
}

fn keep_as(
    disk: &SimDisk,
    db: &Database,
    (since, keep): (Option<Since>, Option<u32>),
    ask: &mut dyn FnMut(Option<&Manifest>) -> Vec<u8>,
    compressed: bool,
) -> Result<Taken, Error> {
    let engine = engine(disk);
    let reception = Reception {
        folder: place(disk),
        since,
        keep,
        lineage: db.lineage().unwrap(),
        compressed,
        mode: ModeRequest::Auto,
    };
    let job = engine.jobs().begin(JobOrder::new(JobKind::Backup));
    let mut ask = |since: Option<&Manifest>| -> Result<Box<dyn Read + Send>, Error> {
        Ok(Box::new(Cursor::new(ask(since))))
    };
    job.end(engine.receive_backup(&reception, &mut ask, &mut Watch::new(&job, &mut |_| Ok(()))))
}

fn stream(db: &Database, since: Option<&Manifest>) -> Vec<u8> {
    let pipe = Pipe::default();
    backup(db, Box::new(pipe.clone()), since).unwrap();
    pipe.bytes.lock().clone()
}

fn restored(disk: &SimDisk) -> u8 {
    let engine = engine(disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let source = Source::find(&[place(disk)]).unwrap();
    let path = Path::new("copy.gnt");
    let (open, mut tell) = (OpenOptions::default(), |_: &_| Ok(()));
    job.end(engine.restore(source, path, &open, &mut Watch::new(&job, &mut tell))).unwrap();
    let db = engine.open(path, &open).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("t").unwrap().unwrap();
    let value = txn.get(&tree, &7u64.to_be_bytes()).unwrap().unwrap()[0];
    drop(txn);
    db.close().unwrap();
    engine.remove(path).unwrap();
    value
}

#[test]
fn what_a_server_sends_is_kept_in_chains_and_older_ones_go() {
    let (disk, far) = (SimDisk::new(2), SimDisk::new(3));
    far.create_dir(Path::new("kept")).unwrap();
    let db = database(&disk, "b.gnt");
    let mut ask = |since: Option<&Manifest>| stream(&db, since);
    let first = keep(&far, &db, (None, None), &mut ask).unwrap();
    assert!(first.backup.name.starts_with("b-") && !first.backup.manifest.is_incremental());
    write(&db, 2);
    let second = keep(&far, &db, (Some(Since::Latest), None), &mut ask).unwrap();
    assert_eq!(second.backup.manifest.begin.parent, Some(first.backup.manifest.as_parent()));
    assert_eq!(restored(&far), 2);
    // One of another copy stays, though it is older.
    let twin = database(&SimDisk::new(9), "b.gnt");
    let other = keep(&far, &twin, (None, None), &mut |since| stream(&twin, since)).unwrap();
    write(&db, 3);
    let third = keep(&far, &db, (None, Some(1)), &mut ask).unwrap();
    assert_eq!(third.removed.len(), 2, "{:?}", third.removed);
    let left = BackupFile::all(&place(&far), &mut |error| panic!("{error}")).unwrap();
    let mut left: Vec<_> = left.into_iter().map(|one| one.name).collect();
    let mut wanted = vec![other.backup.name, third.backup.name];
    left.sort();
    wanted.sort();
    assert_eq!(left, wanted);
}

#[test]
fn what_comes_cut_off_or_damaged_or_is_another_backup_is_not_kept() {
    let (disk, far) = (SimDisk::new(4), SimDisk::new(5));
    far.create_dir(Path::new("kept")).unwrap();
    let db = database(&disk, "b.gnt");
    let other = database(&SimDisk::new(6), "b.gnt");
    let whole = stream(&db, None);
    let incremental = {
        let manifest = backup(&db, Box::new(Pipe::default()), None).unwrap();
        stream(&db, Some(&manifest))
    };
    let turned = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let half = whole.len() / 2;
    for (bytes, words) in [
        (Vec::new(), "nothing came that is a backup"),
        (whole[..100].to_vec(), "cut off"),
        (whole[..half].to_vec(), "cut off"),
        (whole[..whole.len() - 1].to_vec(), "cut off"),
        (whole[..whole.len() / 4096 * 4096 - 8192].to_vec(), "cut off"),
        (turned(20), "checksum"),
        (turned(half), "damaged"),
        (turned(whole.len() - 4096), "damaged"),
        (stream(&other, None), "another backup came than was asked for"),
        (incremental, "has to come before it"),
    ] {
        let len = bytes.len();
        let mut bytes = Some(bytes);
        let error = keep(&far, &db, (None, None), &mut |_| bytes.take().unwrap()).unwrap_err().to_string();
        assert!(error.contains(words), "{len} bytes: {error}");
        let left = far.list(Path::new("kept")).unwrap();
        assert!(left.iter().all(|name| name.ends_with(".lock")), "{len} bytes: {left:?}");
    }
    // A full one is none where one was asked for that adds to another.
    let first = keep(&far, &db, (None, None), &mut |since| stream(&db, since)).unwrap();
    let error = keep(&far, &db, (Some(Since::Latest), None), &mut |_| whole.clone()).unwrap_err().to_string();
    assert!(error.contains("adds to none") || error.contains("than was asked for"), "{error}");
    // On a disk without room, which is known before, or found when it is compressed, nothing of it is left.
    for compressed in [false, true] {
        let settings = Settings { capacity_bytes: Some(300 << 10), ..Settings::default() };
        let small = SimDisk::with_settings(8, settings);
        small.create_dir(Path::new("kept")).unwrap();
        let ask = &mut |since: Option<&Manifest>| stream(&db, since);
        let error = keep_as(&small, &db, (None, None), ask, compressed).unwrap_err().to_string();
        assert!(error.contains("free") || error.contains("full"), "{error}");
        let left = small.list(Path::new("kept")).unwrap();
        assert!(left.iter().all(|name| name.ends_with(".lock")), "{left:?}");
    }
    let left = BackupFile::all(&place(&far), &mut |error| panic!("{error}")).unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].name, first.backup.name);
}
