//! Backups that go to object stores and come back, from a simulated disk; and what is left where something fails on the way.

mod faulty;

use faulty::Faulty;
use gannet_io::sim::SimDisk;
use gannet_io::{Class, Disk, Durability, ModeRequest, OpenOptions as FileOptions, RealDisk};
use gannet_object::{ObjectDisk, Settings};
use gannet_store::{
    BackupFile, BackupPlace, BackupPlan, CreateOptions, Database, Ending, Engine, EngineOptions, Error,
    JobKind, JobOrder, JobState, OpenOptions, Pace, Since, Source, Taken, TransactionOptions, VerifyReport,
    Watch,
};
use object_store::memory::InMemory;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const BASE: &str = "mem://bucket";
/// Rows of a little more than a quarter of a page.
const ROW: usize = 1200;

fn engine(disk: &SimDisk) -> Engine {
    engine_on(Arc::new(disk.clone()))
}

fn engine_on(disk: Arc<dyn Disk>) -> Engine {
    let options = EngineOptions { memory: 24 << 20, ..EngineOptions::default() };
    Engine::with_disk(disk, &options).unwrap()
}

/// A database with rows of these numbers.
fn shop(disk: &SimDisk, rows: std::ops::Range<u64>) -> Database {
    shop_in(&engine(disk), Path::new("shop.gnt"), rows)
}

fn shop_in(engine: &Engine, path: &Path, rows: std::ops::Range<u64>) -> Database {
    let options = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine.create(path, &options, &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    txn.create_tree("rows").unwrap();
    txn.commit().unwrap();
    add(&db, rows);
    db
}

fn add(db: &Database, rows: std::ops::Range<u64>) {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("rows").unwrap().unwrap();
    for number in rows {
        txn.put(&tree, &number.to_be_bytes(), &[number as u8; ROW]).unwrap();
    }
    txn.commit().unwrap();
}

/// Adds rows from this number on; gives the last one.
fn add_until(db: &Database, mut from: u64, is_over: impl Fn() -> bool) -> u64 {
    while !is_over() {
        add(db, from..from + 100);
        from += 100;
    }
    from
}

/// How many rows there are, all of them those that were added first.
fn rows(db: &Database) -> u64 {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("rows").unwrap().unwrap();
    let mut count: u64 = 0;
    while let Some(value) = txn.get(&tree, &count.to_be_bytes()).unwrap() {
        assert_eq!(value, [count as u8; ROW]);
        count += 1;
    }
    count
}

fn place(store: &Arc<Faulty>) -> BackupPlace {
    let completed_within = Duration::from_millis(300);
    place_of(store, Settings { completed_within, ..Settings::new(Arc::new(|| false)) })
}

fn place_of(store: &Arc<Faulty>, settings: Settings) -> BackupPlace {
    let disk = ObjectDisk::new(BASE, Arc::clone(store) as _, settings).unwrap();
    BackupPlace::new(Arc::new(disk), format!("{BASE}/backups"))
}

fn plan(folder: &BackupPlace, since: Option<Since>, keep: Option<u32>) -> BackupPlan {
    BackupPlan { folder: folder.clone(), since, compress: None, keep, archive: None, statistics: None }
}

fn backup(db: &Database, plan: &BackupPlan) -> Result<Taken, Error> {
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    job.end(db.backup_into(plan, &mut Watch::new(&job, &mut |_| Ok(()))))
}

fn verify(place: &BackupPlace) -> Result<VerifyReport, Error> {
    let engine = engine(&SimDisk::new(1));
    let source = Source::find(std::slice::from_ref(place))?;
    let job = engine.jobs().begin(JobOrder::new(JobKind::Verify));
    job.end(engine.verify(source, ModeRequest::Auto, &mut Watch::new(&job, &mut |_| Ok(()))))
}

/// Rows of what is restored; on an empty disk, where nothing is left if that fails.
fn restored(places: &[BackupPlace]) -> Result<u64, Error> {
    let disk = SimDisk::new(1);
    let engine = engine(&disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let (open, to) = (OpenOptions::default(), Path::new("copy.gnt"));
    let outcome = Source::find(places)
        .and_then(|source| engine.restore(source, to, &open, &mut Watch::new(&job, &mut |_| Ok(()))));
    if job.end(outcome).inspect_err(|_| assert!(engine.open(to, &open).is_err())).is_err() {
        return Err(Error::Backup("not restored".to_owned()));
    }
    Ok(rows(&engine.open(to, &open)?))
}

/// What goes for any store: a chain, its parts, and what of it is kept.
fn chains_come_back(folder: &BackupPlace) {
    let disk = SimDisk::new(1);
    let db = shop(&disk, 0..6000);
    let full = backup(&db, &plan(folder, None, None)).unwrap();
    add(&db, 6000..6100);
    let one = backup(&db, &plan(folder, Some(Since::Latest), None)).unwrap();
    add(&db, 6100..6200);
    let name = BackupPlace::new(Arc::clone(&folder.disk), one.backup.name.clone());
    let two = backup(&db, &plan(folder, Some(Since::Path(name)), None)).unwrap();
    assert!(full.backup.manifest.bytes > 12 << 20 && two.backup.manifest.bytes < 4 << 20);
    let report = verify(folder).unwrap();
    assert_eq!(report.manifests.len(), 3);
    assert_eq!(restored(std::slice::from_ref(folder)).unwrap(), 6200);
    assert_eq!(restored(&[one.backup.data()]).unwrap(), 6100);
    assert_eq!(restored(&[full.backup.manifest(), folder.join(&one.backup.name)]).unwrap(), 6100);
    assert_eq!(restored(&[folder.join(&full.backup.name)]).unwrap(), 6000);
    // What was broken off goes with older chains, and what is somebody else's stays.
    let old = "shop-20200101T000000Z-full.gntbackup";
    folder.disk.publish(&folder.join(old).path, b"being written", ModeRequest::Auto).unwrap();
    folder.disk.publish(&folder.join("notes.txt").path, b"mine", ModeRequest::Auto).unwrap();
    let kept = backup(&db, &plan(folder, None, Some(1))).unwrap();
    assert_eq!((kept.removed.len(), kept.complaint.as_deref()), (4, None));
    let mut left = folder.disk.list(&folder.path).unwrap();
    left.retain(|name| name != "shop.lock");
    left.sort();
    let name = kept.backup.name;
    assert_eq!(left, ["notes.txt".to_owned(), format!("{name}.gntbackup"), format!("{name}.json")]);
    assert_eq!(restored(std::slice::from_ref(folder)).unwrap(), 6200);
    let compressed = BackupPlan { compress: Some(1), ..plan(folder, Some(Since::Latest), Some(1)) };
    let last = backup(&db, &compressed).unwrap();
    assert!(last.backup.manifest.is_incremental() && last.removed.is_empty());
    assert_eq!(restored(std::slice::from_ref(folder)).unwrap(), 6200);
}

#[test]
fn chains_go_to_objects_and_come_back() {
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    chains_come_back(&place(&store));
    assert!(store.parts() > 8 && store.aborted() == 0);
}

#[test]
fn chains_go_to_files_by_their_url_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let (disk, path) = gannet_object::open(&url, Settings::new(Arc::new(|| false))).unwrap();
    chains_come_back(&BackupPlace::new(disk, path));
}

#[test]
fn what_a_killed_backup_to_a_url_leaves_goes_with_the_next_one_to_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let names = || {
        let files = std::fs::read_dir(folder.path()).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let (disk, home): (Arc<dyn Disk>, _) = (Arc::new(RealDisk::default()), tempfile::tempdir().unwrap());
    let real = BackupPlace::new(Arc::clone(&disk), folder.path());
    let db = shop_in(&engine_on(disk), &home.path().join("shop.gnt"), 0..500);
    {
        let (disk, path) = gannet_object::open(&url, Settings::new(Arc::new(|| false))).unwrap();
        let path = path.join("shop-20200101T000000Z-full.gntbackup");
        let file = disk.open(&path, &FileOptions::create_new()).unwrap();
        file.write_at(Class::Maintenance, 0, &[1; 4096], Durability::Cached).unwrap();
        // Nobody takes it back.
        std::mem::forget(file);
    }
    let staged = "shop-20200101T000000Z-full.gntbackup#1";
    assert!(names().contains(staged), "{:?}", names());
    let kept = backup(&db, &plan(&real, None, Some(1))).unwrap();
    assert_eq!((kept.removed, kept.complaint), (vec!["shop-20200101T000000Z-full".to_owned()], None));
    let name = kept.backup.name;
    let mut left = names();
    left.remove("shop.lock");
    assert_eq!(left, BTreeSet::from([format!("{name}.gntbackup"), format!("{name}.json")]));
}

#[test]
fn whichever_call_fails_no_part_of_a_backup_passes_for_one() {
    let disk = SimDisk::new(1);
    let db = shop(&disk, 0..5000);
    for (stays_down, after) in [(false, false), (true, false), (false, true)] {
        for call in 1.. {
            let inner = Arc::new(InMemory::new());
            let store = Arc::new(Faulty::new(Arc::clone(&inner) as _));
            store.fail_at(call, stays_down, after);
            let outcome = backup(&db, &plan(&place(&store), None, Some(1)));
            let has_failed = store.has_failed();
            let what = format!("call {call}, {stays_down}, {after}: {outcome:?}");
            // What others find there.
            let folder = place(&Arc::new(Faulty::new(inner)));
            let found = BackupFile::all(&folder, &mut |_| ()).unwrap();
            match &outcome {
                Ok(taken) => assert_eq!(found.len(), 1, "{what} {taken:?}"),
                Err(error) => {
                    let Error::Backup(said) = error else { panic!("{what}") };
                    assert!(said.contains(BASE) && said.contains("a planned failure"), "{what}");
                }
            }
            // Where nobody knows, it is whole all the same.
            if !found.is_empty() {
                verify(&folder).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            if !has_failed {
                assert!(outcome.is_ok() && call > 10, "{what}");
                break;
            }
            if !stays_down && outcome.is_err() {
                // And all of it was taken back, but for what the failure itself has left.
                assert!(folder.disk.list(&folder.path).unwrap().len() <= 1, "{what}");
            }
        }
    }
    assert_eq!(rows(&db), 5000);
}

#[test]
fn whichever_read_fails_nothing_is_restored_and_the_message_names_the_object() {
    let disk = SimDisk::new(1);
    let db = shop(&disk, 0..3000);
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    backup(&db, &plan(&place(&store), None, None)).unwrap();
    for call in 1.. {
        store.fail_at(call, true, false);
        let outcome = verify(&place(&store));
        if !store.has_failed() {
            outcome.unwrap();
            assert!(call > 4);
            break;
        }
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(BASE) && error.contains("a planned failure"), "{call}: {error}");
        store.fail_at(call, true, false);
        restored(&[place(&store)]).unwrap_err();
    }
}

#[test]
fn what_was_cut_or_is_gone_is_said_so() {
    let disk = SimDisk::new(1);
    let db = shop(&disk, 0..1000);
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let folder = place(&store);
    let taken = backup(&db, &plan(&folder, None, None)).unwrap();
    let key = format!("backups/{}.gntbackup", taken.backup.name);
    let whole = store.read(&key);
    let complaint = || verify(&folder).unwrap_err().to_string();
    store.overwrite(&key, &whole[..whole.len() - 4096]);
    assert!(complaint().contains("cut or replaced") && complaint().contains(&key), "{}", complaint());
    // Frames begin at multiples of 4096 bytes: their heads and what they hold are hit.
    for at in (0..whole.len()).step_by(whole.len() / 4096 / 20 * 4096).flat_map(|at| [at + 9, at + 2000]) {
        let Some(byte) = whole.get(at).filter(|&&byte| byte != 0) else { continue };
        let mut flipped = whole.clone();
        flipped[at] = byte ^ 1;
        store.overwrite(&key, &flipped);
        let said = complaint();
        assert!(said.contains("the backup is damaged") && said.contains(&key), "{at}: {said}");
    }
    folder.disk.remove(&taken.backup.data().path).unwrap();
    assert!(complaint().contains("is gone"), "{}", complaint());
    folder.disk.remove(&taken.backup.manifest().path).unwrap();
    assert!(complaint().contains("there is no backup \"mem://bucket/backups\""), "{}", complaint());
}

/// A store that takes nothing holds up nobody but the backup: other jobs have their permits, and when the log has grown by more than is kept for it,
/// every thread of the backup ends, whatever it was waiting for.
#[test]
fn a_store_that_hangs_holds_up_nobody_but_the_backup_which_ends_when_the_log_has_grown() {
    let disk = SimDisk::new(1);
    let options = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let limited = OpenOptions { wal_limit: 1 << 20, ..OpenOptions::default() };
    let engine = engine(&disk);
    let db = engine.create(Path::new("shop.gnt"), &options, &limited).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    txn.create_tree("rows").unwrap();
    txn.commit().unwrap();
    (0..12).for_each(|part| add(&db, part * 1000..(part + 1) * 1000));
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    store.hang_parts();
    let is_late = Arc::new(AtomicBool::new(false));
    let cancelled = Arc::clone(&is_late);
    let folder = place_of(&store, Settings::new(Arc::new(move || cancelled.load(Ordering::Relaxed))));
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| backup(&db, &plan(&folder, None, None)));
        // All parts that are in memory are under way.
        while store.parts() < 2 && !stuck.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // One permit at a time, as soon as there are users for a while.
        engine.set_job_pace(Pace::Latency(Duration::from_nanos(1)));
        let job = db.jobs().begin(JobOrder::new(JobKind::Check));
        let (begin, mut permits) = (Instant::now(), 0);
        for number in 0..u64::MAX {
            let mut txn = db.begin(TransactionOptions::default());
            let tree = txn.tree("rows").unwrap().unwrap();
            txn.put(&tree, &u64::MAX.to_be_bytes(), &number.to_be_bytes()).unwrap();
            txn.commit().unwrap();
            let has_one = job.try_permit().unwrap().is_some();
            permits += u32::from(has_one && number > 400);
            if permits == 20 || begin.elapsed() > Duration::from_secs(60) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let end =
            add_until(&db, 12_000, || stuck.is_finished() || begin.elapsed() > Duration::from_secs(120));
        let is_over = stuck.is_finished();
        is_late.store(!is_over, Ordering::Relaxed);
        let error = stuck.join().unwrap().unwrap_err().to_string();
        assert!(permits == 20 && is_over, "{permits} {end} {error}");
        assert!(error.contains("takes the log slower than it grows"), "{error}");
    });
    assert_eq!((store.aborted(), store.names()), (1, Vec::<String>::new()));
}

#[test]
fn a_backup_that_lacks_memory_for_its_parts_says_so_and_leaves_nothing() {
    let options = EngineOptions { memory: 8 << 20, ..EngineOptions::default() };
    let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
    let db = shop_in(&engine, Path::new("shop.gnt"), 0..100);
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let error = backup(&db, &plan(&place(&store), None, None)).unwrap_err().to_string();
    assert!(error.contains("number of parts") && error.contains("give more memory"), "{error}");
    assert!(store.names().is_empty(), "{:?}", store.names());
}

#[test]
fn a_backup_that_is_cancelled_while_the_store_hangs_ends_and_leaves_nothing() {
    let disk = SimDisk::new(1);
    let db = shop(&disk, 0..12_000);
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    store.hang_parts();
    let flag = Arc::new(AtomicBool::new(false));
    let cancelled = Arc::clone(&flag);
    let settings = Settings::new(Arc::new(move || cancelled.load(Ordering::Relaxed)));
    let folder = place_of(&store, settings);
    let canceller = std::thread::spawn({
        let store = Arc::clone(&store);
        move || {
            let begin = Instant::now();
            while store.parts() == 0 && begin.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(10));
            }
            std::thread::sleep(Duration::from_millis(200));
            flag.store(true, Ordering::Relaxed);
        }
    });
    // Who waited for the parts would never come to an end.
    let error = backup(&db, &plan(&folder, None, None)).unwrap_err();
    assert!(error.to_string().contains("cancelled"), "{error}");
    canceller.join().unwrap();
    drop(folder);
    assert_eq!((store.aborted(), store.names()), (1, Vec::<String>::new()));
    assert_eq!(rows(&db), 12_000);
}

#[test]
fn a_backup_whose_puts_are_carried_out_and_not_acknowledged_is_complete() {
    let disk = SimDisk::new(1);
    let db = shop(&disk, 0..5000);
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let quick = Settings { renewed_every: Duration::from_millis(20), ..Settings::new(Arc::new(|| false)) };
    let folder = place_of(&store, quick);
    store.lose_answers_of_puts(true);
    backup(&db, &plan(&folder, None, Some(1))).unwrap();
    add(&db, 5000..5100);
    backup(&db, &plan(&folder, Some(Since::Latest), Some(1))).unwrap();
    store.lose_answers_of_puts(false);
    assert_eq!(verify(&folder).unwrap().manifests.len(), 2);
    assert_eq!(restored(std::slice::from_ref(&folder)).unwrap(), 5100);
    assert!(!store.names().iter().any(|name| name.ends_with(".lock")), "{:?}", store.names());
}

/// Whoever gives up is heard in less. What he does not wait for takes 15 seconds, or does not end. It is to be little more than one, which is for
/// completing an object; but a backup's threads leave a busy machine to others. It has to be soon once in three tries.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn who_gives_up_is_heard_whichever_call_hangs_and_is_told_what_may_be_left() {
    let disk = SimDisk::new(1);
    let db = shop(&disk, 0..5000);
    let mut told = 0;
    for call in 1.. {
        let mut tries = (0..3).map(|_| give_up_at(&db, call));
        let Some((of_this, _)) = tries.find(|(_, late)| *late < SOON) else {
            panic!("{call}: it is too late")
        };
        let Some(of_this) = of_this else {
            assert!(call > 10, "{call}");
            break;
        };
        told += of_this;
    }
    assert!(told > 10, "{told}");
    assert_eq!(rows(&db), 5000);
}

/// A backup that is given up while the store does not answer from this call on: of how many objects it is told that they may be left, if there
/// was such a call, and how long it has gone on.
fn give_up_at(db: &Database, call: u64) -> (Option<usize>, Duration) {
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let flag = Arc::new(AtomicBool::new(false));
    let cancelled = Arc::clone(&flag);
    let cancelled = Arc::new(move || cancelled.load(Ordering::Relaxed));
    let cleaned_within = Duration::from_millis(200);
    let folder = place_of(&store, Settings { cleaned_within, ..Settings::new(cancelled) });
    store.hang_from(call);
    let over = AtomicBool::new(false);
    let (outcome, late) = std::thread::scope(|scope| {
        let canceller = scope.spawn(|| {
            while store.calls() < call && !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::thread::sleep(Duration::from_millis(30));
            flag.store(true, Ordering::Relaxed);
            Instant::now()
        });
        let outcome = backup(db, &plan(&folder, None, Some(1)));
        over.store(true, Ordering::Relaxed);
        let ended = Instant::now();
        (outcome, ended.saturating_duration_since(canceller.join().unwrap()))
    });
    let has_hung = store.calls() >= call;
    store.hang_from(0);
    if !has_hung {
        outcome.unwrap();
        return (None, late);
    }
    let Err(error) = outcome else { return (Some(0), late) };
    let said = error.to_string();
    assert!(said.contains("cancelled"), "{call}: {said}");
    for name in store.names() {
        assert!(said.contains("may be left there") && said.contains(&name), "{call}: {name}: {said}");
    }
    (Some(store.names().len()), late)
}

#[test]
fn a_job_that_is_cancelled_by_its_number_does_not_wait_for_its_store() {
    let disk = SimDisk::new(1);
    let db = shop(&disk, 0..500);
    assert!((0..3).any(|_| cancel_by_number(&db) < SOON));
}

/// Cancels a backup whose store does not answer; gives how long it has gone on.
fn cancel_by_number(db: &Database) -> Duration {
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let slot: Arc<OnceLock<Ending>> = Arc::default();
    let asked = Arc::clone(&slot);
    let cancelled = Arc::new(move || asked.get().is_some_and(Ending::is_asked_for));
    let cleaned_within = Duration::from_millis(200);
    let folder = place_of(&store, Settings { cleaned_within, ..Settings::new(cancelled) });
    let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
    slot.set(job.ending()).unwrap();
    // The name is reserved, and then nothing is answered any more.
    let hung = 8;
    store.hang_from(hung);
    let number = job.report().id;
    let (error, cancelled_at) = std::thread::scope(|scope| {
        let canceller = scope.spawn(|| {
            while store.calls() < hung {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(db.jobs().cancel(number));
            Instant::now()
        });
        let mut tell = |_: &_| Ok(());
        let watch = &mut Watch::new(&job, &mut tell);
        let error = job.end(db.backup_into(&plan(&folder, None, None), watch)).unwrap_err();
        (error, canceller.join().unwrap())
    });
    let late = cancelled_at.elapsed();
    let said = error.to_string();
    assert!(said.starts_with("cancelled; ") && said.contains("may be left there"), "{said}");
    assert!(store.names().iter().all(|name| said.contains(name)), "{said}: {:?}", store.names());
    assert_eq!((job.report().state, job.report().note), (JobState::Cancelled, said));
    late
}

#[test]
fn two_backups_of_a_database_do_not_go_to_one_place_at_a_time() {
    let disk = SimDisk::new(1);
    let db = shop(&disk, 0..100);
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let quick = Settings { renewed_every: Duration::from_millis(100), ..Settings::new(Arc::new(|| false)) };
    let (folder, other) = (place_of(&store, quick.clone()), place_of(&store, quick));
    let held = other.disk.lock(&other.join("shop.lock").path).unwrap();
    let error = backup(&db, &plan(&folder, None, None)).unwrap_err();
    assert!(error.to_string().contains("another backup of shop into \"mem://bucket/backups\""), "{error}");
    drop(held);
    backup(&db, &plan(&folder, None, None)).unwrap();
}
