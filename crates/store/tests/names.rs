//! One data file under several names: one database, one log.
#![cfg(unix)]

use gannet_io::{Disk, sim::SimDisk};
use gannet_store::{
    CreateOptions, Database, Engine, EngineOptions, Error, OpenOptions, Result, TransactionOptions,
};
use std::ops::Bound;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

fn engine() -> Engine {
    Engine::new(&EngineOptions { memory: 8 << 20, ..EngineOptions::default() }).unwrap()
}

fn create(path: &Path) -> Database {
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine().create(path, &create, &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    txn.create_tree("t").unwrap();
    txn.commit().unwrap();
    db
}

fn open(path: &Path) -> Result<Database> {
    engine().open(path, &OpenOptions::default())
}

/// Adds so many rows, which fill about as many quarters of a segment.
fn add(db: &Database, count: usize) {
    add_filled(db, count, 1);
}

fn add_filled(db: &Database, count: usize, byte: u8) {
    for _ in 0..count {
        let key = rows(db).to_be_bytes();
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.tree("t").unwrap().unwrap();
        txn.put(&tree, &key, &[byte; 60_000]).unwrap();
        txn.commit().unwrap();
    }
}

fn rows(db: &Database) -> usize {
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("t").unwrap().unwrap();
    let mut cursor = txn.cursor(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    count
}

/// The files as they are while the database is open: what a crash of the process leaves.
fn copy_open(from: &Path, to: &Path) {
    let files = || {
        let log = std::fs::read_dir(from.join("l.gnt-wal")).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<_> = log.chain([from.join("l.gnt")]).collect();
        names.sort();
        names.into_iter().map(|name| std::fs::read(&name).map(|bytes| (name, bytes)).ok()).collect::<Vec<_>>()
    };
    // What is written between two reads is in no order that a crash could leave.
    let (mut before, mut now) = (files(), files());
    while before != now {
        (before, now) = (now, files());
    }
    std::fs::create_dir(to.join("l.gnt-wal")).unwrap();
    for (name, bytes) in
        now.into_iter().map(|file| file.expect("nothing has changed, so nothing was removed"))
    {
        std::fs::write(to.join(name.strip_prefix(from).unwrap()), bytes).unwrap();
    }
}

#[test]
fn files_and_folders_are_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let temp_folder = folder.path().join("spill");
    let options = EngineOptions { memory: 8 << 20, temp_folder: Some(temp_folder) };
    let engine = Engine::new(&options).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine.create(&folder.path().join("l.gnt"), &create, &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    txn.create_tree("t").unwrap();
    txn.commit().unwrap();
    // More than a segment, so that there are several.
    add(&db, 12);
    let temp = engine.temp_file().unwrap();
    let mut folders = vec![folder.path().to_owned()];
    let mut names = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(metadata.permissions().mode() & 0o777, expected, "{:?}", entry.path());
            if metadata.is_dir() {
                folders.push(entry.path());
            }
            names.push(entry.file_name().into_string().unwrap());
        }
    }
    let count = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
    assert!(count(".log") > 1 && count("l.gnt-wal") == 1 && count("spill") == 1, "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("gannet-temp-")), "{names:?}");
    drop(temp);
    db.close().unwrap();
}

#[test]
fn a_file_that_is_open_is_refused_under_its_other_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let db = create(&at("l.gnt"));
    std::os::unix::fs::symlink("l.gnt", at("m.gnt")).unwrap();
    std::fs::hard_link(at("l.gnt"), at("n.gnt")).unwrap();
    // A folder left by an earlier life does not let anybody in.
    std::fs::hard_link(at("l.gnt"), at("o.gnt")).unwrap();
    std::fs::create_dir(at("o.gnt-wal")).unwrap();
    for name in ["l.gnt", "m.gnt", "n.gnt", "o.gnt"] {
        let error = open(&at(name)).unwrap_err();
        assert!(matches!(error, Error::InUse(_)), "{name}: {error}");
        let pid = format!("pid {}", std::process::id());
        assert!(error.to_string().contains("is in use") && error.to_string().contains(&pid), "{error}");
    }
    for name in ["m.gnt-wal", "n.gnt-wal"] {
        assert!(!at(name).exists(), "{name}");
    }
    db.close().unwrap();
}

#[test]
fn a_symbolic_link_uses_the_log_of_what_it_points_to() {
    let folder = tempfile::tempdir().unwrap();
    let crashed = tempfile::tempdir().unwrap();
    let db = create(&folder.path().join("l.gnt"));
    add(&db, 3);
    copy_open(folder.path(), crashed.path());
    db.close().unwrap();
    std::fs::create_dir(crashed.path().join("links")).unwrap();
    let link = crashed.path().join("links/m.gnt");
    std::os::unix::fs::symlink("../l.gnt", &link).unwrap();
    let db = open(&link).unwrap();
    assert!(db.restart_report().crashed);
    assert_eq!(rows(&db), 3);
    // So do those who look at its files.
    assert_eq!(db.path(), link);
    let files = db.files();
    assert!(files.len() > 1 && files.iter().all(|file| file.is_file()), "{files:?}");
    assert!(files.iter().any(|file| file.extension().is_some_and(|end| end == "log")), "{files:?}");
    db.close().unwrap();
    assert!(!crashed.path().join("links/m.gnt-wal").exists());
}

#[test]
fn a_link_to_nothing_is_named_when_a_database_is_to_be_created_there() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("m.gnt");
    std::os::unix::fs::symlink("none.gnt", &link).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let error = engine().create(&link, &create, &OpenOptions::default()).unwrap_err();
    let told = error.to_string().contains("is a symbolic link to") && error.to_string().contains("none.gnt");
    assert!(told && matches!(error, Error::Invalid(_)), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_refused_opening_leaves_no_folder_behind() {
    let folder = tempfile::tempdir().unwrap();
    let crashed = tempfile::tempdir().unwrap();
    let db = create(&folder.path().join("l.gnt"));
    copy_open(folder.path(), crashed.path());
    db.close().unwrap();
    let (log, away) = (crashed.path().join("l.gnt-wal"), crashed.path().join("away"));
    std::fs::rename(&log, &away).unwrap();
    assert!(open(&crashed.path().join("l.gnt")).unwrap_err().to_string().contains("is gone"));
    assert!(!log.exists());
    // One that was there stays, with what is in it.
    std::fs::create_dir(&log).unwrap();
    std::fs::write(log.join("notes"), "mine").unwrap();
    open(&crashed.path().join("l.gnt")).unwrap_err();
    assert_eq!(std::fs::read(log.join("notes")).unwrap(), b"mine");
}

#[test]
fn a_closed_file_opens_by_each_of_its_names_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("l.gnt"), folder.path().join("n.gnt"));
    create(&one).close().unwrap();
    std::fs::hard_link(&one, &other).unwrap();
    let mut expected = 0;
    for (round, added) in [1, 2, 9, 0, 0, 30, 1, 5].into_iter().enumerate() {
        let db = open(if round % 2 == 0 { &other } else { &one }).unwrap();
        assert_eq!(rows(&db), expected, "round {round}");
        add(&db, added);
        expected += added;
        db.close().unwrap();
    }
}

#[test]
fn after_a_crash_another_name_without_the_log_is_refused_and_says_so() {
    for added in [0, 1, 9, 30] {
        let folder = tempfile::tempdir().unwrap();
        let crashed = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("l.gnt"), folder.path().join("n.gnt"));
        // `n.gnt-wal` gets a log of an earlier life.
        create(&one).close().unwrap();
        std::fs::hard_link(&one, &other).unwrap();
        let db = open(&other).unwrap();
        add(&db, 6);
        db.close().unwrap();
        let db = open(&one).unwrap();
        add(&db, added);
        copy_open(folder.path(), crashed.path());
        db.close().unwrap();
        std::fs::hard_link(crashed.path().join("l.gnt"), crashed.path().join("n.gnt")).unwrap();
        std::fs::rename(folder.path().join("n.gnt-wal"), crashed.path().join("n.gnt-wal")).unwrap();
        std::fs::hard_link(crashed.path().join("l.gnt"), crashed.path().join("o.gnt")).unwrap();
        for name in ["n.gnt", "o.gnt"] {
            let error = open(&crashed.path().join(name)).unwrap_err();
            assert!(matches!(error, Error::Damaged(_)), "{name}: {error}");
            assert!(error.to_string().contains("opened under another name"), "{name}, {added}: {error}");
        }
        let db = open(&crashed.path().join("l.gnt")).unwrap();
        assert_eq!(rows(&db), 6 + added);
        db.close().unwrap();
    }
}

#[test]
fn the_log_of_a_diverged_copy_is_refused_and_the_closed_file_stays_closed() {
    for (added, elsewhere) in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 9), (9, 1), (9, 9), (30, 1), (1, 30)] {
        let [one, other, crashed] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
        let [one_file, other_file, file] = [&one, &other, &crashed].map(|folder| folder.path().join("l.gnt"));
        create(&one_file).close().unwrap();
        std::fs::copy(&one_file, &other_file).unwrap();
        let db = open(&one_file).unwrap();
        add_filled(&db, added, 1);
        db.close().unwrap();
        let db = open(&other_file).unwrap();
        add_filled(&db, elsewhere, 2);
        copy_open(other.path(), crashed.path());
        db.close().unwrap();
        std::fs::rename(&file, crashed.path().join("saved")).unwrap();
        std::fs::copy(&one_file, &file).unwrap();
        let what = format!("{added} rows here, {elsewhere} in the other copy");
        if let Err(error) = open(&file) {
            assert!(matches!(error, Error::Damaged(_)), "{what}: {error}");
            assert!(error.to_string().contains("put back the copy"), "{what}: {error}");
            assert!(std::fs::read(&file).unwrap() == std::fs::read(&one_file).unwrap(), "{what}");
        } else {
            panic!("{what}: opened");
        }
        // The log was not touched either.
        std::fs::rename(&file, crashed.path().join("closed")).unwrap();
        std::fs::rename(crashed.path().join("saved"), &file).unwrap();
        let db = open(&file).unwrap();
        assert_eq!(rows(&db), elsewhere, "{what}");
        db.close().unwrap();
        std::fs::remove_dir_all(crashed.path().join("l.gnt-wal")).unwrap();
        std::fs::rename(crashed.path().join("closed"), &file).unwrap();
        let db = open(&file).unwrap();
        assert_eq!(rows(&db), added, "{what}");
        db.close().unwrap();
    }
}

#[test]
fn a_creation_that_was_interrupted_on_the_real_disk_can_be_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("l.gnt");
    // As it is left by a process that was killed before it could say anything of it.
    std::fs::create_dir(folder.path().join("l.gnt-wal")).unwrap();
    std::fs::write(folder.path().join("l.gnt-wal/lock"), "1\n").unwrap();
    std::fs::write(&path, "").unwrap();
    let link = folder.path().join("m.gnt");
    std::os::unix::fs::symlink("l.gnt", &link).unwrap();
    assert!(engine().is_missing(&path).unwrap() && !engine().is_missing(&link).unwrap());
    for name in [&path, &link] {
        let error = open(name).unwrap_err().to_string();
        assert!(error.contains("its creation was interrupted"), "{error}");
    }
    create(&path).close().unwrap();
    assert!(!engine().is_missing(&path).unwrap());
    // An empty file of somebody's is none.
    std::fs::write(folder.path().join("n.gnt"), "").unwrap();
    assert!(!engine().is_missing(&folder.path().join("n.gnt")).unwrap());
    assert!(!engine().is_missing(folder.path()).unwrap());
    let db = open(&link).unwrap();
    assert_eq!(rows(&db), 0);
    db.close().unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_closed_database_gets_another_name_and_takes_nothing_of_its_folder_along() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, third] = ["a.gnt", "b.gnt", "c.gnt"].map(|name| folder.path().join(name));
    let db = create(&first);
    add(&db, 3);
    let engine = engine();
    assert!(matches!(engine.rename(&first, &second), Err(Error::InUse(_))));
    copy_crashed(folder.path(), &db);
    db.close().unwrap();
    engine.rename(&first, &second).unwrap();
    assert_eq!(names(folder.path()), ["b.gnt", "crashed.gnt", "crashed.gnt-wal"]);
    // As it is where the process was killed on the way.
    engine.rename(&second, &third).unwrap();
    let db = open(&third).unwrap();
    assert_eq!(rows(&db), 3);
    add(&db, 1);
    db.close().unwrap();
    assert_eq!(names(folder.path()), ["c.gnt", "c.gnt-wal", "crashed.gnt", "crashed.gnt-wal"]);
    // What is there keeps its name, and what needs its log does, too.
    let said = |result: Result<()>| result.unwrap_err().to_string();
    let error = said(engine.rename(&third, &folder.path().join("crashed.gnt")));
    assert!(error.contains("crashed.gnt\" exists already"), "{error}");
    let error = said(engine.rename(&folder.path().join("crashed.gnt"), &first));
    assert!(error.contains("was not closed in good order"), "{error}");
    std::fs::create_dir(folder.path().join("a.gnt-wal")).unwrap();
    std::fs::write(folder.path().join("a.gnt-wal/0000000000000001.log"), b"of another").unwrap();
    let error = said(engine.rename(&third, &first));
    assert!(error.contains("holds the log of another database"), "{error}");
    assert_eq!(said(engine.clear_name(&first)), error);
    assert_eq!(rows(&open(&third).unwrap()), 4);
}

/// The database as a crash of the process would leave it, by the name `crashed.gnt`.
fn copy_crashed(folder: &Path, db: &Database) {
    let log = folder.join("crashed.gnt-wal");
    std::fs::create_dir(&log).unwrap();
    for name in names(&folder.join("a.gnt-wal")).iter().filter(|name| *name != "lock") {
        std::fs::copy(folder.join("a.gnt-wal").join(name), log.join(name)).unwrap();
    }
    std::fs::copy(db.path(), folder.join("crashed.gnt")).unwrap();
}

#[test]
fn what_is_removed_is_a_database_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gnt");
    let engine = engine();
    let db = create(&path);
    add(&db, 3);
    assert!(matches!(engine.remove(&path), Err(Error::InUse(_))));
    copy_crashed(folder.path(), &db);
    db.close().unwrap();
    // A file of somebody else, in the folder or in its place.
    std::fs::write(folder.path().join("a.gnt-wal/notes"), b"mine").unwrap();
    let error = engine.remove(&path).unwrap_err().to_string();
    assert!(error.contains("something that no database has made: \"notes\""), "{error}");
    assert_eq!(rows(&open(&path).unwrap()), 3);
    std::fs::remove_file(folder.path().join("a.gnt-wal/notes")).unwrap();
    let other = folder.path().join("other");
    std::fs::write(&other, b"no database").unwrap();
    assert!(matches!(engine.remove(&other), Err(Error::Format(_))));
    std::os::unix::fs::symlink("a.gnt", folder.path().join("link")).unwrap();
    let error = engine.remove(&folder.path().join("link")).unwrap_err().to_string();
    assert!(error.contains("is a symbolic link to"), "{error}");
    engine.remove(&path).unwrap();
    engine.remove(&folder.path().join("crashed.gnt")).unwrap();
    assert_eq!(names(folder.path()), ["link", "other"]);
}

#[test]
fn a_name_is_cleared_of_what_an_interrupted_creation_has_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gnt");
    let engine = engine();
    engine.clear_name(&path).unwrap();
    std::fs::create_dir(folder.path().join("a.gnt-wal")).unwrap();
    std::fs::write(folder.path().join("a.gnt-wal/lock"), b"").unwrap();
    std::fs::write(&path, b"").unwrap();
    assert!(engine.is_missing(&path).unwrap());
    engine.clear_name(&path).unwrap();
    assert_eq!(names(folder.path()), Vec::<String>::new());
    create(&path).close().unwrap();
    let error = engine.clear_name(&path).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
}

/// A closed database, `a.gnt`, on a disk of its own.
fn closed_on_a_disk() -> SimDisk {
    let disk = SimDisk::new(1);
    let db = on(&disk)
        .create(
            Path::new("a.gnt"),
            &CreateOptions { page_size: 4096, segment_size: 1 << 18 },
            &OpenOptions::default(),
        )
        .unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    txn.create_tree("t").unwrap();
    txn.commit().unwrap();
    add(&db, 3);
    db.close().unwrap();
    disk.crash_image(1)
}

fn on(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &EngineOptions { memory: 8 << 20, ..EngineOptions::default() }).unwrap()
}

/// What a power cut at each of its requests leaves of some work.
fn cut(image: &SimDisk, work: impl Fn(&Engine) -> Result<()>, look: impl Fn(&SimDisk, u64)) {
    let whole = {
        let disk = image.crash_image(2);
        let begun = disk.io_count();
        work(&on(&disk)).unwrap();
        disk.io_count() - begun
    };
    assert!(whole > 4, "{whole} requests");
    for at in 1..=whole + 1 {
        for seed in 0..4 {
            let disk = image.crash_image(seed);
            disk.crash_after(at);
            let done = work(&on(&disk)).is_ok();
            assert_eq!(done, at > whole, "at {at} of {whole}");
            disk.power_off();
            look(&disk.crash_image(at * 31 + seed), at);
        }
    }
}

#[test]
fn a_power_cut_at_any_point_of_a_renaming_leaves_the_database_by_one_of_its_names() {
    let [from, to] = ["a.gnt", "b.gnt"].map(Path::new);
    let mut found = [0; 2];
    let found_by = std::cell::RefCell::new(&mut found);
    cut(
        &closed_on_a_disk(),
        |engine| engine.rename(from, to),
        |disk, at| {
            let engine = on(disk);
            let is_done = disk.exists(to).unwrap();
            assert_ne!(is_done, disk.exists(from).unwrap(), "at {at}");
            if !is_done {
                engine.rename(from, to).unwrap_or_else(|error| panic!("at {at}: {error}"));
            }
            assert_eq!(rows(&engine.open(to, &OpenOptions::default()).unwrap()), 3);
            found_by.borrow_mut()[usize::from(is_done)] += 1;
        },
    );
    assert!(found[0] > 5 && found[1] > 3, "by its old name, and by its new one: {found:?}");
}

#[test]
fn a_power_cut_at_any_point_of_a_removal_leaves_what_can_be_removed() {
    let path = Path::new("a.gnt");
    cut(
        &closed_on_a_disk(),
        |engine| engine.remove(path),
        |disk, at| {
            if disk.exists(path).unwrap() {
                on(disk).remove(path).unwrap_or_else(|error| panic!("at {at}: {error}"));
            }
            assert_eq!(disk.list(Path::new("")).unwrap(), Vec::<String>::new(), "at {at}");
        },
    );
}

#[test]
fn a_power_cut_while_an_empty_leftover_is_cleared_leaves_what_can_be_cleared() {
    let path = Path::new("a.gnt");
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new("a.gnt-wal")).unwrap();
    for name in ["a.gnt-wal/lock", "a.gnt"] {
        disk.open(Path::new(name), &gannet_io::OpenOptions::create_new()).unwrap();
    }
    disk.sync_dir(Path::new("a.gnt-wal")).unwrap();
    disk.sync_dir(Path::new(".")).unwrap();
    cut(
        &disk.crash_image(1),
        |engine| engine.clear_name(path),
        |disk, at| {
            let engine = on(disk);
            assert!(engine.is_missing(path).unwrap(), "at {at}");
            engine.clear_name(path).unwrap_or_else(|error| panic!("at {at}: {error}"));
            let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
            engine.create(path, &create, &OpenOptions::default()).unwrap().close().unwrap();
        },
    );
}
