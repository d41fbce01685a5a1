//! Disks over object stores: what is written, reserved, locked, and given up.

mod faulty;

use faulty::{Completes, Faulty};
use gannet_io::{Class, Disk, Durability, ErrorKind, ModeRequest, OpenOptions};
use gannet_object::{ObjectDisk, Settings, is_url, open};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BASE: &str = "mem://bucket";
const MIB: usize = 1 << 20;

fn settings() -> Settings {
    Settings::new(Arc::new(|| false))
}

fn disk(store: &Arc<Faulty>) -> ObjectDisk {
    ObjectDisk::new(BASE, Arc::clone(store) as _, settings()).unwrap()
}

fn in_memory() -> Arc<Faulty> {
    Arc::new(Faulty::new(Arc::new(InMemory::new())))
}

fn path(name: &str) -> std::path::PathBuf {
    Path::new(BASE).join("folder").join(name)
}

/// Bytes that differ from place to place.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251) as u8 ^ at as u8).collect()
}

/// Waits for what comes soon, and on a slow machine later.
#[track_caller]
fn wait_until(mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn contents(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, &OpenOptions::read()).unwrap();
    let mut all = vec![0; file.len().unwrap() as usize];
    file.read_at(Class::Maintenance, 0, &mut all).unwrap();
    all
}

#[test]
fn parts_are_gathered_from_writes_of_several_threads_and_seen_when_synced() {
    let store = in_memory();
    let disk = disk(&store);
    let file = disk.open(&path("a"), &OpenOptions::create_new()).unwrap();
    let memory = file.expect(20 * MIB as u64, 12 * MIB as u64, 0);
    assert_eq!(memory, 10 * MIB as u64);
    let all = bytes(17 * MIB + 4096);
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(300_000, Ordering::Relaxed);
                    if at >= all.len() {
                        return;
                    }
                    let piece = &all[at..(at + 300_000).min(all.len())];
                    file.write_at(Class::Maintenance, at as u64, piece, Durability::Cached).unwrap();
                }
            });
        }
    });
    assert_eq!(file.len().unwrap(), all.len() as u64);
    // Its name is taken, and nothing of it is seen.
    assert!(disk.exists(&path("a")).unwrap() && contents(&disk, &path("a")).len() < 100);
    assert_eq!(
        disk.open(&path("a"), &OpenOptions::create_new()).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    file.sync(Class::Maintenance).unwrap();
    assert!(contents(&disk, &path("a")) == all);
    assert_eq!(store.parts(), 4);
    let error = file.write_at(Class::Maintenance, 0, &[1], Durability::Cached).unwrap_err();
    assert!(error.to_string().contains("mem://bucket/folder/a"), "{error}");
    drop(file);
    assert_eq!(store.aborted(), 0);
    assert_eq!(disk.list(&Path::new(BASE).join("folder")).unwrap(), ["a"]);
    disk.remove(&path("a")).unwrap();
    assert!(disk.list(&Path::new(BASE).join("folder")).unwrap().is_empty());
}

#[test]
fn parts_are_as_long_as_their_number_needs() {
    let store = in_memory();
    let disk = disk(&store);
    for (index, (len, memory, part, parts)) in [
        (1 << 20, 64 << 20, 8, 4),
        (1 << 30, 20 << 20, 8, 2),
        (1 << 30, 0, 5, 2),
        (400 << 30, 1 << 30, 62, 4),
        (4 << 40, 0, 630, 2),
    ]
    .into_iter()
    .enumerate()
    {
        let file = disk.open(&path(&index.to_string()), &OpenOptions::create_new()).unwrap();
        assert_eq!(file.expect(len, memory, 0), (part * parts) << 20, "{len} {memory}");
    }
    assert_eq!(store.aborted(), 5);
}

#[test]
fn holes_and_what_is_broken_off_are_no_objects() {
    let store = in_memory();
    let disk = disk(&store);
    let file = disk.open(&path("a"), &OpenOptions::create_new()).unwrap();
    file.write_at(Class::Maintenance, 100, &[1; 100], Durability::Cached).unwrap();
    let error = file.sync(Class::Maintenance).unwrap_err();
    assert!(error.to_string().contains("parts of it are missing"), "{error}");
    drop(file);
    assert_eq!(store.aborted(), 1);
    assert!(contents(&disk, &path("a")).starts_with(b"being written"));
}

#[test]
fn short_files_are_published_once() {
    let store = in_memory();
    let disk = disk(&store);
    disk.publish(&path("a.json"), b"text", ModeRequest::Auto).unwrap();
    let error = disk.publish(&path("a.json"), b"other", ModeRequest::Auto).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    // An answer that was lost.
    disk.publish(&path("a.json"), b"text", ModeRequest::Auto).unwrap();
    assert_eq!(contents(&disk, &path("a.json")), b"text");
}

#[test]
fn an_object_that_was_replaced_is_not_read_on() {
    let store = in_memory();
    let disk = disk(&store);
    disk.publish(&path("a"), &bytes(5000), ModeRequest::Auto).unwrap();
    let file = disk.open(&path("a"), &OpenOptions::read()).unwrap();
    let mut some = [0; 100];
    assert_eq!(file.read_at(Class::Maintenance, 4950, &mut some).unwrap_err().kind(), ErrorKind::ShortRead);
    file.read_at(Class::Maintenance, 4900, &mut some).unwrap();
    assert!(some[..] == bytes(5000)[4900..]);
    disk.remove(&path("a")).unwrap();
    let error = file.read_at(Class::Maintenance, 0, &mut some).unwrap_err();
    assert!(
        error.kind() == ErrorKind::NotFound && error.to_string().contains("removed meanwhile"),
        "{error}"
    );
    disk.publish(&path("a"), &bytes(6000), ModeRequest::Auto).unwrap();
    let error = file.read_at(Class::Maintenance, 0, &mut some).unwrap_err();
    assert!(error.to_string().contains("replaced by somebody else"), "{error}");
}

#[test]
fn who_gives_up_does_not_wait_for_a_store_that_hangs() {
    let store = in_memory();
    let flag = Arc::new(AtomicBool::new(false));
    let cancelled = Arc::clone(&flag);
    let settings = Settings::new(Arc::new(move || cancelled.load(Ordering::Relaxed)));
    let disk = ObjectDisk::new(BASE, Arc::clone(&store) as _, settings).unwrap();
    let file = disk.open(&path("a"), &OpenOptions::create_new()).unwrap();
    store.hang_parts();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        flag.store(true, Ordering::Relaxed);
    });
    let error = (0..)
        .find_map(|at| file.write_at(Class::Maintenance, at * 4096, &[1; 4096], Durability::Cached).err())
        .unwrap();
    assert!(error.to_string().contains("cancelled"), "{error}");
    canceller.join().unwrap();
    // What was begun is taken back all the same. (Who waited would never come here.)
    disk.remove(&path("a")).unwrap();
    drop(file);
    assert_eq!((store.aborted(), store.names()), (1, Vec::new()));
}

#[test]
fn who_gives_up_while_an_object_is_completed_does_not_wait_for_that() {
    let store = in_memory();
    let flag = Arc::new(AtomicBool::new(false));
    let cancelled = Arc::clone(&flag);
    let settings = Settings::new(Arc::new(move || cancelled.load(Ordering::Relaxed)));
    let disk = ObjectDisk::new(BASE, Arc::clone(&store) as _, settings).unwrap();
    let file = disk.open(&path("a"), &OpenOptions::create_new()).unwrap();
    file.write_at(Class::Maintenance, 0, &[1; 4096], Durability::Cached).unwrap();
    store.hang_complete();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        flag.store(true, Ordering::Relaxed);
        Instant::now()
    });
    let error = file.sync(Class::Maintenance).unwrap_err();
    assert!(error.to_string().contains("cancelled"), "{error}");
    // It would have been a quarter of an hour.
    assert!(canceller.join().unwrap().elapsed() < Duration::from_secs(60));
    // Nobody knows whether it was completed: both are taken back.
    disk.remove(&path("a")).unwrap();
    drop(file);
    assert_eq!((store.aborted(), store.names(), disk.take_left()), (1, Vec::new(), Vec::new()));
}

#[test]
fn what_was_put_counts_where_its_answer_is_lost() {
    let store = in_memory();
    let disk = disk(&store);
    store.overwrite("folder/theirs", b"theirs");
    store.lose_answers_of_puts(true);
    disk.publish(&path("mine"), b"text", ModeRequest::Auto).unwrap();
    let file = disk.open(&path("file"), &OpenOptions::create_new()).unwrap();
    file.write_at(Class::Maintenance, 0, &bytes(5000), Durability::Cached).unwrap();
    file.sync(Class::Maintenance).unwrap();
    // What somebody else has put there is not taken for one's own, and stays.
    disk.publish(&path("theirs"), b"text", ModeRequest::Auto).unwrap_err();
    disk.open(&path("theirs"), &OpenOptions::create_new()).unwrap_err();
    store.lose_answers_of_puts(false);
    assert_eq!(contents(&disk, &path("mine")), b"text");
    assert!(contents(&disk, &path("file")) == bytes(5000));
    assert_eq!(store.read("folder/theirs"), b"theirs");
}

#[test]
fn an_object_that_the_store_has_completed_counts_where_the_answer_is_lost() {
    for how in [Completes::Lost, Completes::AfterGets(1), Completes::AfterGets(2)] {
        let store = in_memory();
        let disk = disk(&store);
        let file = disk.open(&path("a"), &OpenOptions::create_new()).unwrap();
        let all = bytes(9 * MIB);
        file.write_at(Class::Maintenance, 0, &all, Durability::Cached).unwrap();
        store.complete(how);
        file.sync(Class::Maintenance).unwrap_or_else(|error| panic!("{how:?}: {error}"));
        drop(file);
        assert!(contents(&disk, &path("a")) == all, "{how:?}");
        assert_eq!((store.aborted(), disk.take_left()), (0, Vec::new()), "{how:?}");
    }
}

#[test]
fn an_object_that_is_not_there_as_a_whole_is_not_taken_for_complete() {
    let placeholder = |store: &Faulty| store.read("folder/a");
    for cut in [None, Some(4999), Some(0)] {
        for (len, is_there) in [(5000, true), ("being written: ".len() + 32, true), (5000, false)] {
            let store = in_memory();
            let quick = Settings { completed_within: Duration::from_millis(300), ..settings() };
            let disk = ObjectDisk::new(BASE, Arc::clone(&store) as _, quick).unwrap();
            let file = disk.open(&path("a"), &OpenOptions::create_new()).unwrap();
            assert_eq!(placeholder(&store).len(), "being written: ".len() + 32);
            file.write_at(Class::Maintenance, 0, &bytes(len), Durability::Cached).unwrap();
            match cut {
                _ if !is_there => disk.remove(&path("a")).unwrap(),
                Some(cut) => store.overwrite("folder/a", &bytes(cut)),
                None => {}
            }
            store.complete(Completes::Refused);
            let error = file.sync(Class::Maintenance).unwrap_err();
            assert!(error.to_string().contains("a planned failure"), "{error}");
            drop(file);
            assert_eq!(store.aborted(), 1);
        }
    }
}

/// Every renewal is carried out, and none of them is acknowledged: for longer than a lock is held that nobody renews. Whether it is held then.
fn is_held_without_answers(free_after: Duration) -> bool {
    let store = in_memory();
    let disk = |free_after| {
        let quick = Settings { renewed_every: Duration::from_millis(100), free_after, ..settings() };
        ObjectDisk::new(BASE, Arc::clone(&store) as _, quick).unwrap()
    };
    let (first, second) = (disk(free_after), disk(Duration::from_secs(20)));
    store.lose_answers_of_puts(true);
    let held = first.lock(&path("shop.lock")).unwrap();
    std::thread::sleep(2 * free_after);
    let published = first.publish(&path("a"), b"text", ModeRequest::Auto);
    store.lose_answers_of_puts(false);
    let is_held = published.is_ok()
        && second.lock(&path("shop.lock")).is_err_and(|error| error.kind() == ErrorKind::Locked);
    drop(held);
    is_held && store.names() == ["folder/a"]
}

#[test]
fn a_lock_is_not_lost_with_the_answers_to_who_renews_it() {
    // A machine that stands still for so long that nobody renews it does not do so for much longer.
    assert!(
        [800, 3000, 10_000].into_iter().any(|millis| is_held_without_answers(Duration::from_millis(millis)))
    );
    // For a time no answer at all comes through: then the lock has another version than its holder knows, and is his own all the same.
    let store = in_memory();
    let (renewed_every, free_after) = (Duration::from_millis(100), Duration::from_secs(20));
    let quick = Settings { renewed_every, free_after, ..settings() };
    let third = ObjectDisk::new(BASE, Arc::clone(&store) as _, quick).unwrap();
    let held = third.lock(&path("shop.lock")).unwrap();
    let before = store.read("folder/shop.lock");
    store.fail_at(1, true, true);
    // One renewal, and the look whether it was carried out; and one more.
    wait_until(|| store.calls() >= 4);
    store.fail_at(0, false, false);
    let meanwhile = store.read("folder/shop.lock");
    assert!(meanwhile != before, "it was renewed, and nobody was told");
    wait_until(|| store.read("folder/shop.lock") != meanwhile);
    third.publish(&path("b"), b"text", ModeRequest::Auto).unwrap();
    drop(held);
    assert_eq!(store.names(), ["folder/b"]);
}

#[test]
fn a_lock_was_thought_to_be_held_since_a_renewal_that_had_found_an_earlier_one() {
    // A machine that stands still for a while does not do so each time.
    assert!((0..5).any(|_| is_lost_in_time()));
}

/// Whether a holder whose renewals are not answered, of which the first was carried out, knows that he has lost the lock when others may have it.
/// False, too, where the machine was too slow to tell.
fn is_lost_in_time() -> bool {
    let millis = Duration::from_millis;
    let store = in_memory();
    let (renewed_every, free_after) = (millis(400), millis(2000));
    // Who has not got it back by then waits no more.
    let quick = Settings { renewed_every, free_after, regained_within: Duration::ZERO, ..settings() };
    let disk = ObjectDisk::new(BASE, Arc::clone(&store) as _, quick).unwrap();
    let held = disk.lock(&path("shop.lock")).unwrap();
    let first = store.read("folder/shop.lock");
    // One renewal is carried out, and not answered.
    store.hang_puts_after_they_are_done(true);
    wait_until(|| store.read("folder/shop.lock") != first);
    let (changed, second) = (Instant::now(), store.read("folder/shop.lock"));
    std::thread::sleep(millis(200));
    store.hang_puts_after_they_are_done(false);
    store.fail_at(0, false, false);
    // The next one is refused, looks twice, and finds that one; then the store is silent.
    wait_until(|| store.calls() >= 3 || changed.elapsed() > free_after);
    std::thread::sleep(millis(50));
    store.hang_from(1);
    // It is as the first renewal has left it.
    let is_as_it_was = store.read("folder/shop.lock") == second;
    std::thread::sleep((free_after + millis(50)).saturating_sub(changed.elapsed()));
    // Whoever has found it unchanged for that long may have it.
    store.hang_from(0);
    let published = disk.publish(&path("a"), b"text", ModeRequest::Auto);
    // Counted from the second renewal he would lose it 400 ms later.
    let is_soon = changed.elapsed() < free_after + millis(300);
    drop(held);
    let Err(error) = published else { return false };
    assert!(error.kind() == ErrorKind::Locked && error.to_string().contains("was lost"), "{error}");
    is_as_it_was && is_soon
}

#[test]
fn a_lock_is_lost_where_the_look_for_whose_it_is_hangs() {
    // As above.
    assert!((0..5).any(|_| is_lost_when_a_look_hangs()));
}

/// Whether a holder knows that he has lost the lock when the store has been silent for too long, from where he looked whether it was his own renewal
/// that came in between. False, too, where the machine was too slow.
fn is_lost_when_a_look_hangs() -> bool {
    let store = in_memory();
    let free_after = Duration::from_millis(400);
    let (renewed_every, regained_within) = (Duration::from_millis(50), Duration::ZERO);
    let quick = Settings { renewed_every, free_after, regained_within, ..settings() };
    let disk = ObjectDisk::new(BASE, Arc::clone(&store) as _, quick).unwrap();
    let held = disk.lock(&path("shop.lock")).unwrap();
    // It is his own still, and has another version than he knows.
    store.overwrite("folder/shop.lock", &store.read("folder/shop.lock"));
    store.hang_from(2);
    std::thread::sleep(3 * free_after);
    store.hang_from(0);
    let published = disk.publish(&path("a"), b"text", ModeRequest::Auto);
    drop(held);
    published.is_err_and(|error| error.kind() == ErrorKind::Locked && error.to_string().contains("was lost"))
}

/// What becomes of a request behind an outage in which a lock could have been taken over, and what there is then.
fn behind_an_outage(is_taken_over: bool) -> (gannet_io::Result<()>, Vec<String>) {
    let store = in_memory();
    let free_after = Duration::from_millis(400);
    let quick = Settings { renewed_every: Duration::from_millis(50), free_after, ..settings() };
    let disk = ObjectDisk::new(BASE, Arc::clone(&store) as _, quick).unwrap();
    let held = disk.lock(&path("shop.lock")).unwrap();
    let file = disk.open(&path("long"), &OpenOptions::create_new()).unwrap();
    store.hang_from(1);
    std::thread::sleep(3 * free_after);
    if is_taken_over {
        store.overwrite("folder/shop.lock", b"process 2 of elsewhere\n0 1\n");
    }
    store.hang_from(0);
    // Parts wait for nobody.
    let written = file.write_at(Class::Maintenance, 0, &bytes(9 * MIB), Durability::Cached);
    let published = disk.publish(&path("a"), b"text", ModeRequest::Auto);
    let published = published.and(written).and_then(|()| file.sync(Class::Maintenance));
    drop((file, held));
    (published, store.names())
}

#[test]
fn a_lock_that_could_not_be_renewed_for_long_is_held_again_where_nobody_has_had_it() {
    let (published, names) = behind_an_outage(false);
    published.unwrap();
    assert_eq!(names, ["folder/a", "folder/long"]);
    // A machine that stood still may not have noticed the outage.
    let is_kept_from_it = || {
        let (published, names) = behind_an_outage(true);
        let Err(said) = published else { return false };
        assert_eq!(said.kind(), ErrorKind::Locked, "{said}");
        said.to_string().contains("taken the lock over") && !names.contains(&"folder/a".to_owned())
    };
    assert!((0..5).any(|_| is_kept_from_it()));
}

#[test]
fn nobody_waits_for_a_lock_that_was_given_back_while_it_could_not_be_renewed() {
    let store = in_memory();
    let (renewed_every, free_after) = (Duration::from_millis(50), Duration::from_millis(200));
    let cleaned_within = Duration::from_millis(100);
    let quick = Settings { renewed_every, free_after, cleaned_within, ..settings() };
    let disk = ObjectDisk::new(BASE, Arc::clone(&store) as _, quick).unwrap();
    let held = disk.lock(&path("shop.lock")).unwrap();
    store.fail_at(1, true, false);
    std::thread::sleep(3 * free_after);
    drop(held);
    store.fail_at(0, false, false);
    disk.publish(&path("a"), b"text", ModeRequest::Auto).unwrap();
}

#[test]
fn what_could_not_be_deleted_at_once_is_deleted() {
    let store = in_memory();
    let disk = disk(&store);
    for after in [false, true] {
        disk.publish(&path("a"), b"text", ModeRequest::Auto).unwrap();
        store.fail_at(1, false, after);
        disk.remove(&path("a")).unwrap();
        assert!(store.has_failed() && store.names().is_empty());
    }
}

#[test]
fn a_lock_excludes_others_and_is_free_when_its_holder_is_gone() {
    let store = in_memory();
    let disk = |free_after| {
        let quick = Settings { renewed_every: Duration::from_millis(50), free_after, ..settings() };
        ObjectDisk::new(BASE, Arc::clone(&store) as _, quick).unwrap()
    };
    let patient = Duration::from_secs(20);
    let (first, second) = (disk(patient), disk(patient));
    let held = first.lock(&path("shop.lock")).unwrap();
    let error = second.lock(&path("shop.lock")).unwrap_err();
    assert!(error.kind() == ErrorKind::Locked && error.detail().contains("process"), "{error}");
    drop(held);
    drop(second.lock(&path("shop.lock")).unwrap());
    assert!(store.names().is_empty());
    // Of one that is gone it stays, and nobody renews it.
    first.publish(&path("shop.lock"), b"process 1 of elsewhere\n0 1\n", ModeRequest::Auto).unwrap();
    let free_after = Duration::from_millis(400);
    let third = disk(free_after);
    let begin = Instant::now();
    let held = third.lock(&path("shop.lock")).unwrap();
    assert!(begin.elapsed() >= free_after);
    // Somebody who could not be told from one that is gone finds that he has lost it, and does nothing more.
    store.overwrite("folder/shop.lock", b"process 2 of elsewhere\n0 1\n");
    wait_until(|| third.exists(&path("a")).is_err());
    let error = third.publish(&path("a"), b"text", ModeRequest::Auto).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Locked && error.to_string().contains("taken the lock over"),
        "{error}"
    );
    drop(held);
    assert_eq!(store.names(), ["folder/shop.lock"]);
}

#[test]
fn who_was_stopped_for_long_does_not_give_away_the_lock_of_another_one() {
    let store = in_memory();
    let disk = disk(&store);
    let held = disk.lock(&path("shop.lock")).unwrap();
    // Before it could notice.
    store.overwrite("folder/shop.lock", b"process 2 of elsewhere\n0 1\n");
    drop(held);
    assert_eq!(store.read("folder/shop.lock"), b"process 2 of elsewhere\n0 1\n");
}

/// The request is carried out while somebody gives up: what it has made is taken back, and what another one has made stays.
#[test]
fn what_was_made_for_somebody_who_has_given_up_goes() {
    for theirs in [false, true] {
        for lock in [false, true] {
            let store = in_memory();
            if theirs {
                store.overwrite("folder/a", b"process 2 of elsewhere\n0 1\n");
            }
            let flag = Arc::new(AtomicBool::new(false));
            let cancelled = Arc::clone(&flag);
            let settings = Settings::new(Arc::new(move || cancelled.load(Ordering::Relaxed)));
            let disk = ObjectDisk::new(BASE, Arc::clone(&store) as _, settings).unwrap();
            store.hang_puts_after_they_are_done(true);
            let canceller = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(200));
                flag.store(true, Ordering::Relaxed);
            });
            let error = match lock {
                true => disk.lock(&path("a")).map(drop).unwrap_err(),
                false => disk.open(&path("a"), &OpenOptions::create_new()).map(drop).unwrap_err(),
            };
            canceller.join().unwrap();
            assert!(error.to_string().contains("cancelled"), "{error}");
            assert_eq!(store.names().len(), usize::from(theirs));
            assert_eq!(disk.take_left(), Vec::<String>::new());
        }
    }
}

#[test]
fn files_of_this_machine_are_synced_for_this_user_alone_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let (disk, place) = open(&url, settings()).unwrap();
    let (file_path, real) = (place.join("a.gntbackup"), folder.path().join("a.gntbackup"));
    let permissions = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = disk.open(&file_path, &OpenOptions::create_new()).unwrap();
    file.expect(1 << 30, 0, 0);
    let all = bytes(6 * MIB);
    file.write_at(Class::Maintenance, 0, &all, Durability::Cached).unwrap();
    let staged = folder.path().join("a.gntbackup#1");
    assert_eq!((permissions(&staged), permissions(&real)), (0o600, 0o600));
    assert_eq!(disk.list(&place).unwrap(), ["a.gntbackup"]);
    file.sync(Class::Maintenance).unwrap();
    assert!(contents(&*disk, &file_path) == all && permissions(&real) == 0o600 && !staged.exists());
    disk.publish(&place.join("a.json"), b"text", ModeRequest::Auto).unwrap();
    assert_eq!(permissions(&folder.path().join("a.json")), 0o600);
    // What a crash leaves beside a file goes with it.
    std::fs::write(&staged, "left").unwrap();
    disk.remove(&file_path).unwrap();
    assert!(!staged.exists() && !real.exists() && folder.path().join("a.json").exists());
    // The lock is that of whoever takes a backup into the folder by its path.
    let held = disk.lock(&place.join("a.lock")).unwrap();
    let error = gannet_io::RealDisk::default().lock(&folder.path().join("a.lock")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    drop(held);
    assert!(disk.free_bytes(&place).unwrap().is_some());
    let missing = place.join("missing");
    assert_eq!(disk.list(&missing).unwrap_err().kind(), ErrorKind::NotFound);
    let made = disk.open(&missing.join("a"), &OpenOptions::create_new());
    assert_eq!(made.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!folder.path().join("missing").exists());
}

#[test]
fn what_goes_to_files_by_their_url_does_not_stay_in_the_cache_of_the_system() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("a");
    let cached = || gannet_io::residency([&real]).cached_bytes();
    std::fs::write(&real, vec![0; MIB]).unwrap();
    let probe = gannet_io::Passing::open(&real).unwrap();
    probe.sync().unwrap();
    probe.forget();
    if cached() != Some(0) {
        println!("skipped: the system forgets nothing here, or does not say");
        return;
    }
    std::fs::remove_file(&real).unwrap();
    let (disk, place) = open(&format!("file://{}", folder.path().display()), settings()).unwrap();
    let path = place.join("a");
    let file = disk.open(&path, &OpenOptions::create_new()).unwrap();
    file.expect(0, 0, 0);
    let all = bytes(30 * MIB);
    for (number, piece) in all.chunks(MIB).enumerate() {
        file.write_at(Class::Maintenance, (number * MIB) as u64, piece, Durability::Cached).unwrap();
        // Two parts of 5 MiB are under way.
        assert!(file.cached_bytes().unwrap() <= 10 * MIB as u64, "{:?}", file.cached_bytes());
    }
    file.sync(Class::Maintenance).unwrap();
    assert!(cached() <= Some(MIB as u64), "{:?}", cached());
    let file = disk.open(&path, &OpenOptions::read()).unwrap();
    let mut read = vec![0; 3 * MIB];
    for (number, piece) in all.chunks(3 * MIB).enumerate() {
        file.read_at(Class::Maintenance, (number * 3 * MIB) as u64, &mut read).unwrap();
        assert!(read == piece);
    }
    // How far the system reads ahead is its own matter: what that leaves goes with the file.
    drop(file);
    assert!(cached() <= Some(MIB as u64), "{:?}", cached());
    disk.publish(&place.join("b"), &bytes(2 * MIB), ModeRequest::Auto).unwrap();
    let published = gannet_io::residency([folder.path().join("b")]).cached_bytes();
    assert!(published <= Some(MIB as u64), "{published:?}");
}

#[test]
fn paths_are_no_urls() {
    for url in ["file:///x", "s3://bucket", "gs://b/c", "az://c", "http+x://y"] {
        assert!(is_url(url), "{url}");
    }
    for path in ["/x", "x", "./s3:/x", "", "://x", "a b://c", "-"] {
        assert!(!is_url(path), "{path}");
    }
    let error = open("ftp://host/x", settings()).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("ftp://host/x"), "{error}");
}

#[test]
fn nothing_is_said_to_be_left_of_a_file_that_is_gone() {
    for is_cancelled in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let cancelled = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&cancelled);
        let settings = Settings::new(Arc::new(move || asked.load(Ordering::Relaxed)));
        let (disk, place) = open(&format!("file://{}", folder.path().display()), settings).unwrap();
        let path = place.join("a.gntbackup");
        let file = disk.open(&path, &OpenOptions::create_new()).unwrap();
        file.expect(1 << 30, 0, 0);
        file.write_at(Class::Maintenance, 0, &bytes(6 * MIB), Durability::Cached).unwrap();
        assert!(folder.path().join("a.gntbackup#1").exists());
        cancelled.store(is_cancelled, Ordering::Relaxed);
        // The name goes first, and what it was to have with it.
        disk.remove(&path).unwrap();
        drop(file);
        assert_eq!(disk.take_left(), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_store_underneath_may_be_any() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    let disk = ObjectDisk::new(BASE, Arc::new(store), settings()).unwrap();
    disk.publish(&path("a"), b"text", ModeRequest::Auto).unwrap();
    assert_eq!(std::fs::read(folder.path().join("folder/a")).unwrap(), b"text");
}
