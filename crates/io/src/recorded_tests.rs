use super::*;
use crate::sim::{CrashPolicy, Replay, Settings, SimDisk};
use crate::trace::Reader;
use crate::{AlignedBuffer, SECTOR};
use gannet_base::sim::Generator;
use gannet_base::sync::Mutex;
use std::collections::BTreeMap;

/// A recorded simulated disk, and the replay of what was recorded so far.
struct Pair {
    sim: SimDisk,
    recorded: RecordedDisk,
    folder: tempfile::TempDir,
}

impl Pair {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sim = SimDisk::with_settings(1, Settings { atomic_write_max: 4096, ..Settings::default() });
        let recorded = RecordedDisk::new(Arc::new(sim.clone()), &folder.path().join("trace")).unwrap();
        Pair { sim, recorded, folder }
    }

    fn replay(&self) -> Replay {
        let (mut replay, mut reader) =
            (Replay::default(), Reader::open(&self.folder.path().join("trace")).unwrap());
        while let Some(event) = reader.read().unwrap() {
            replay.apply(&event).unwrap();
        }
        replay
    }
}

fn contents(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    disk.files().into_iter().map(|path| (path.clone(), disk.contents(&path).unwrap())).collect()
}

fn filled(byte: u8, sectors: u64) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(sectors as usize * SECTOR);
    buffer.fill(byte);
    buffer
}

#[derive(Default)]
struct Told(Mutex<Vec<(u64, bool)>>);

impl Completion for Told {
    fn complete(&self, token: u64, result: Result<()>) {
        self.0.lock().push((token, result.is_ok()));
    }
}

/// Writes by a queue, in two slices.
fn submit(queue: &Arc<dyn Queue>, file: Arc<dyn File>, offset: u64, direction: Direction, byte: u8) {
    let mut parts = [filled(byte, 4), filled(byte, 4)];
    let slices = parts.iter_mut().map(|part| IoSlice { address: part.as_mut_ptr(), len: part.len() });
    let request = Request {
        file,
        direction,
        class: Class::Commit,
        offset,
        slices: slices.collect(),
        token: u64::from(byte),
    };
    let told = Arc::new(Told::default());
    let completion: Arc<dyn Completion> = Arc::clone(&told) as _;
    // SAFETY: the buffers outlive the wait for the completion, and nobody else knows them.
    unsafe { queue.submit(vec![request], &completion) };
    queue.wait_until(&mut || !told.0.lock().is_empty());
    assert_eq!(*told.0.lock(), [(u64::from(byte), true)], "the submitter's own token comes back");
}

/// Something that a program may do with the files of its disk.
fn step(disk: &RecordedDisk, queue: &Arc<dyn Queue>, random: &mut Generator, byte: u8) {
    let path = |random: &mut Generator| PathBuf::from(format!("/d/{}", random.below(3)));
    let chosen = path(random);
    let options = OpenOptions { create: true, ..OpenOptions::read_write() };
    let file = disk.open(&chosen, &options).unwrap();
    let (offset, sectors) = (random.below(16) * 4096, 1 + random.below(9));
    let durability = if random.one_in(3) { Durability::Durable } else { Durability::Cached };
    match random.below(10) {
        0..3 => file.write_at(Class::Commit, offset, &filled(byte, sectors), durability).unwrap(),
        3 => submit(queue, Arc::clone(&file), offset, Direction::Write(durability), byte),
        4 => submit(queue, Arc::clone(&file), offset, Direction::WriteAtomic(durability), byte),
        5 => file.sync(Class::Commit).unwrap(),
        6 => disk.sync_dir(Path::new("/d")).unwrap(),
        7 => file.allocate(offset, sectors * 4096).unwrap(),
        8 => file.set_len(offset).unwrap(),
        _ if random.one_in(2) => disk.remove(&chosen).unwrap(),
        _ => disk.rename(&chosen, &path(random)).unwrap(),
    }
}

#[test]
fn what_was_recorded_is_what_the_device_underneath_has_and_what_of_it_is_durable() {
    for seed in 0..20 {
        let pair = Pair::new();
        let queue = pair.recorded.queue(4).unwrap();
        let random = &mut Generator::new(seed);
        pair.recorded.create_dir(Path::new("/d")).unwrap();
        pair.recorded.sync_dir(Path::new("/")).unwrap();
        for byte in 1..=120 {
            step(&pair.recorded, &queue, random, byte);
            if byte % 8 == 0 {
                let replay = pair.replay();
                let least = contents(&replay.crash(Some(CrashPolicy::KeepNone), 1));
                assert_eq!(least, pair.sim.durable_image(), "seed {seed}, step {byte}");
                let most = contents(&replay.crash(Some(CrashPolicy::KeepAll), 1));
                assert_eq!(most, contents(&pair.sim), "seed {seed}, step {byte}");
            }
        }
    }
}

#[test]
fn a_write_that_had_not_ended_when_the_sync_began_is_not_covered_by_it() {
    let write =
        |id, offset| Event::Write { id, file: 1, offset, durable: false, atomic: false, data: &[7; SECTOR] };
    let mut replay = Replay::default();
    replay.add_folder(Path::new("/d")).unwrap();
    replay.add_file(Path::new("/d/f"), &[1; 2 * SECTOR]).unwrap();
    for event in [
        Event::Opened { file: 1, created: false, path: "/d/f" },
        write(2, 0),
        write(3, SECTOR as u64),
        Event::Ended { id: 2, well: true },
        Event::Sync { id: 4, file: 1 },
        Event::Ended { id: 3, well: true },
        Event::Ended { id: 4, well: true },
    ] {
        replay.apply(&event).unwrap();
    }
    let least = replay.crash(Some(CrashPolicy::KeepNone), 1).contents(Path::new("/d/f")).unwrap();
    assert_eq!((least[0], least[SECTOR]), (7, 1));
    replay.apply(&Event::Sync { id: 5, file: 1 }).unwrap();
    let error = replay.apply(&Event::Ended { id: 5, well: false }).unwrap_err();
    assert!(error.to_string().contains("the device of the recorded run failed"), "{error}");
}

#[test]
fn what_a_killed_process_was_writing_is_seen_by_the_next_one_and_durable_only_after_a_sync() {
    const S: usize = SECTOR;
    let path = Path::new("/d/f");
    let open = |file| Event::Opened { file, created: false, path: "/d/f" };
    let mut replay = Replay::default();
    replay.add_folder(Path::new("/d")).unwrap();
    replay.add_file(path, &[1; 3 * S]).unwrap();
    replay.apply(&open(1)).unwrap();
    let data = &[7; 2 * S];
    replay
        .apply(&Event::Write { id: 2, file: 1, offset: S as u64, durable: true, atomic: false, data })
        .unwrap();
    // The second of its two sectors has arrived.
    let left = BTreeMap::from([(path.to_owned(), [[1; S], [1; S], [7; S]].concat())]);
    replay.killed(&left).unwrap();
    let found = |replay: &Replay, policy| replay.crash(Some(policy), 1).contents(path).unwrap();
    assert_eq!(found(&replay, CrashPolicy::KeepAll), left[path]);
    assert_eq!(found(&replay, CrashPolicy::KeepNone), [1; 3 * S]);
    for event in [open(1), Event::Sync { id: 2, file: 1 }, Event::Ended { id: 2, well: true }] {
        replay.apply(&event).unwrap();
    }
    assert_eq!(found(&replay, CrashPolicy::KeepNone), left[path]);
    for (left, words) in [
        (BTreeMap::from([(path.to_owned(), vec![9; 3 * S])]), "its bytes are not those"),
        (BTreeMap::new(), "the file is gone"),
        (
            [left, BTreeMap::from([("/d/g".into(), vec![])])].into_iter().flatten().collect(),
            "a name that was not",
        ),
    ] {
        let error = replay.killed(&left).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn files_that_were_there_before_and_folders_are_found_after_a_cut() {
    let mut replay = Replay::default();
    replay.add_folder(Path::new("/a/b")).unwrap();
    replay.add_file(Path::new("/a/b/f"), b"bytes").unwrap();
    replay.apply(&Event::FolderCreated { path: "/a/c" }).unwrap();
    let left = |replay: &Replay, policy| replay.crash(Some(policy), 1).folders();
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(left(&replay, CrashPolicy::KeepNone), paths(&["/a", "/a/b"]));
    assert_eq!(left(&replay, CrashPolicy::KeepAll), paths(&["/a", "/a/b", "/a/c"]));
    let disk = replay.crash(Some(CrashPolicy::KeepNone), 1);
    assert_eq!(contents(&disk), BTreeMap::from([(PathBuf::from("/a/b/f"), b"bytes".to_vec())]));
}

#[test]
#[cfg(target_os = "linux")]
fn an_operation_that_cannot_be_recorded_fails() {
    let pair = Pair::new();
    let file = pair.recorded.open(Path::new("/f"), &OpenOptions::create_new()).unwrap();
    let trace = Arc::new(Trace { writer: Writer::full(), path: "/dev/full".into() });
    let disk = RecordedDisk { under: Arc::new(pair.sim.clone()), trace };
    let again = disk.open(Path::new("/f"), &OpenOptions::read_write());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(disk.sync_dir(Path::new("/")).unwrap_err().kind(), ErrorKind::NoSpace);
    file.sync(Class::Commit).unwrap();
}

#[test]
fn a_file_that_nobody_holds_any_more_is_closed_behind_the_writes_that_are_under_way() {
    let pair = Pair::new();
    let queue = pair.recorded.queue(4).unwrap();
    let file = pair.recorded.open(Path::new("/a"), &OpenOptions::create_new()).unwrap();
    submit(&queue, file, 0, Direction::Write(Durability::Cached), 7);
    let (mut ended, mut is_closed) = (false, false);
    let mut reader = Reader::open(&pair.folder.path().join("trace")).unwrap();
    while let Some(event) = reader.read().unwrap() {
        ended |= matches!(event, Event::Ended { .. });
        is_closed |= matches!(event, Event::Closed { .. });
        assert!(ended || !is_closed);
    }
    assert!(ended && is_closed);
    pair.replay();
}
