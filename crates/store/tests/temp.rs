//! Memory of running operations, the temporary files they spill to, and what they are told of their reads.

use gannet_base::memory::Purpose;
use gannet_base::sim::{Generator, Simulation};
use gannet_io::sim::{Chance, Faults, Settings, SimDisk};
use gannet_io::{Disk, Mode};
use gannet_store::{
    CreateOptions, Engine, EngineOptions, Error, OpenOptions, TempFile, TransactionOptions, thread_reads,
};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn options(folder: &Path) -> EngineOptions {
    EngineOptions { memory: 16 << 20, temp_folder: Some(folder.to_owned()) }
}

fn simulated(disk: &SimDisk) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Engine::with_disk(disk, &options(Path::new("/spill/here"))).unwrap()
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Generator::new(seed);
    (0..len).map(|_| random.next_u64() as u8).collect()
}

/// Writes `content` in pieces of all sizes.
fn write(engine: &Engine, content: &[u8], seed: u64) -> TempFile {
    let mut random = Generator::new(seed);
    let mut writer = engine.temp_file().unwrap().writer().unwrap();
    let mut rest = content;
    while !rest.is_empty() {
        let most = 1 << (1 + random.below(18));
        let count = (1 + random.below(most) as usize).min(rest.len());
        writer.write_all(&rest[..count]).unwrap();
        rest = &rest[count..];
        assert_eq!(writer.position(), (content.len() - rest.len()) as u64);
    }
    writer.finish().unwrap()
}

fn check(file: &TempFile, content: &[u8], from: usize, to: usize, random: &mut Generator) {
    let mut reader = file.reader(from as u64, to as u64).unwrap();
    let (mut at, mut shown) = (from, 0);
    while at < to {
        let count = (1 + random.below(100_000) as usize).min(to - at);
        let expected = &content[at..at + count];
        let is_shown = reader.peek(count).unwrap().is_some_and(|bytes| {
            assert!(bytes == expected, "bytes {at} to {} as they lie there", at + count);
            true
        });
        if is_shown && random.below(2) == 0 {
            reader.pass(count);
            assert!(reader.passed(count) == expected);
            shown += 1;
        } else {
            let mut got = vec![0; count];
            reader.read_exact(&mut got).unwrap();
            assert!(got == expected, "bytes {at} to {}", at + count);
        }
        at += count;
        assert_eq!(reader.remaining(), (to - at) as u64);
    }
    assert!(matches!(reader.read_exact(&mut [0]), Err(Error::Invalid(_))));
    assert_eq!(reader.peek(1).unwrap(), None);
    assert!(shown > 0 || to - from < 1_000_000, "nothing lay together");
}

fn round_trip(engine: &Engine) {
    let content = bytes(7, 3_000_001);
    let file = write(engine, &content, 1);
    assert_eq!((file.len(), file.is_empty()), (content.len() as u64, false));
    let mut random = Generator::new(3);
    check(&file, &content, 0, content.len(), &mut random);
    for _ in 0..20 {
        let from = random.below(content.len() as u64) as usize;
        let to = from + random.below((content.len() - from) as u64 + 1) as usize;
        check(&file, &content, from, to, &mut random);
    }
    assert!(matches!(file.reader(5, file.len() + 1), Err(Error::Invalid(_))));
    assert!(matches!(file.reader(5, 4), Err(Error::Invalid(_))));
    assert!(file.reader(5, 5).unwrap().read_exact(&mut []).is_ok());
}

#[test]
fn what_was_written_is_read_on_any_disk() {
    round_trip(&simulated(&SimDisk::new(1)));
    let folder = tempfile::tempdir().unwrap();
    round_trip(&Engine::new(&options(folder.path())).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_grows_while_it_is_read_by_several() {
    let engine = simulated(&SimDisk::new(2));
    let mut file = engine.temp_file().unwrap();
    let mut runs: Vec<(u64, u64, Vec<u8>)> = Vec::new();
    let mut readers = Vec::new();
    for run in 0..8 {
        let content = bytes(run, 10_000 + 40_000 * run as usize);
        let mut writer = file.writer().unwrap();
        let from = writer.position();
        writer.write_all(&content).unwrap();
        file = writer.finish().unwrap();
        readers.push(file.reader(from, file.len()).unwrap());
        runs.push((from, file.len(), content));
    }
    // A merge: a piece of each in turn.
    let mut at = 0;
    while readers.iter().any(|reader| reader.remaining() > 0) {
        for (reader, (_, _, content)) in readers.iter_mut().zip(&runs).filter(|(r, _)| r.remaining() > 0) {
            let mut piece = vec![0; 1000];
            reader.read_exact(&mut piece).unwrap();
            assert!(piece == content[at..at + 1000]);
        }
        at += 1000;
    }
    // The file lives as long as somebody reads it.
    drop(file);
    assert_eq!(engine.temp_stats().open_files, 1);
    drop(readers);
    let stats = engine.temp_stats();
    assert_eq!((stats.files, stats.open_files), (1, 0));
    assert!(stats.bytes_written >= 1_200_000 && stats.bytes_read >= stats.bytes_written);
}

#[test]
fn blocks_are_large_and_ask_for_the_next_ones() {
    let disk = SimDisk::new(3);
    let engine = simulated(&disk);
    let content = bytes(1, 2 << 20);
    let before = disk.stats().snapshot();
    let file = write(&engine, &content, 5);
    let written = disk.stats().snapshot().since(&before);
    let (requests, volume) = written.total(gannet_io::stats::Operation::Write);
    assert!(volume == 2 << 20 && requests <= 17, "{requests} writes of {volume} bytes");
    assert_eq!(written.total(gannet_io::stats::Operation::Sync).0, 0, "never made durable");
    let mut reader = file.reader(0, file.len()).unwrap();
    reader.read_exact(&mut [0; 10]).unwrap();
    assert!(engine.temp_stats().bytes_read > 300_000, "further blocks are under way");
}

#[test]
fn blocks_are_charged_and_make_do_with_little() {
    let engine = simulated(&SimDisk::new(4));
    let used = || engine.budget().used_for(Purpose::Work);
    let content = bytes(2, 1 << 20);
    let mut writer = engine.temp_file().unwrap().writer().unwrap();
    assert!(used() > 0);
    writer.write_all(&content).unwrap();
    let block = used() / 3;
    // Nothing is left: one block has to do.
    let hog = engine.work_memory(engine.budget().limit() - engine.budget().used()).unwrap();
    assert!(engine.temp_file().unwrap().writer().is_err());
    writer.write_all(&content).unwrap();
    let file = writer.finish().unwrap();
    drop(hog);
    let hog = engine.work_memory(engine.budget().limit() - engine.budget().used() - block).unwrap();
    check(&file, &[&content[..], &content[..]].concat(), 0, 2 << 20, &mut Generator::new(1));
    drop((file, hog));
    assert_eq!(used(), 0);
}

#[test]
fn a_writer_or_reader_makes_do_with_a_small_block_where_there_is_no_room_for_a_large_one() {
    let engine = simulated(&SimDisk::new(4));
    let free = || engine.budget().limit() - engine.budget().used();
    let content = bytes(2, 300_000);
    let file = write(&engine, &content, 1);
    let mut hog = engine.work_memory(free() - (20 << 10)).unwrap();
    assert!(file.block_bytes() > 20 << 10);
    check(&file, &content, 0, content.len(), &mut Generator::new(1));
    let mut writer = file.writer().unwrap();
    let from = writer.position() as usize;
    writer.write_all(&content).unwrap();
    let file = writer.finish().unwrap();
    // Where there is none at all the file is as it was.
    hog.grow(free()).unwrap();
    let Err((file, Error::Memory(_))) = file.writer_or_file() else { panic!("there is no memory") };
    drop(hog);
    check(&file, &content, 0, content.len(), &mut Generator::new(2));
    let mut again = vec![0; content.len()];
    file.reader(from as u64, file.len()).unwrap().read_exact(&mut again).unwrap();
    assert!(again == content);
}

#[test]
fn whose_memory_is_limited_has_smaller_blocks() {
    let engine = simulated(&SimDisk::new(4));
    let block = |file: TempFile| file.block_bytes();
    let most = block(engine.temp_file().unwrap());
    assert!(most > 64 << 10 && engine.temp_block_bytes(u64::MAX) == most);
    assert_eq!(block(engine.temp_file_within(64 << 10).unwrap()), 16 << 10);
    assert_eq!(engine.temp_block_bytes(2 << 20), 64 << 10);
    assert_eq!(block(engine.temp_file_within(u64::MAX).unwrap()), most);
}

#[test]
fn a_full_disk_is_said_and_the_file_goes() {
    let disk = SimDisk::with_settings(5, Settings { capacity_bytes: Some(4 << 20), ..Settings::default() });
    let engine = simulated(&disk);
    let mut writer = engine.temp_file().unwrap().writer().unwrap();
    let chunk = vec![1; 100_000];
    let error = (0..100).find_map(|_| writer.write_all(&chunk).err()).unwrap();
    let text = error.to_string();
    assert!(matches!(error, Error::NoSpace(_)) && text.contains("gannet-temp-"), "{text}");
    assert!(writer.position() > 3 << 20, "all of the disk is used");
    assert!(matches!(writer.write_all(&chunk), Err(Error::NoSpace(_))));
    assert!(matches!(writer.finish(), Err(Error::NoSpace(_))));
    // The room is there again.
    write(&engine, &bytes(1, 3 << 20), 1);
}

#[test]
fn a_device_that_fails_is_reported_and_leaves_no_memory_behind() {
    let disk = SimDisk::new(6);
    let engine = simulated(&disk);
    let file = write(&engine, &bytes(1, 1 << 20), 1);
    disk.set_faults(Faults {
        write_error: Chance::OneIn(3),
        read_error: Chance::OneIn(3),
        ..Faults::default()
    });
    let mut reader = file.reader(0, file.len()).unwrap();
    assert!((0..16).any(|_| reader.read_exact(&mut [0; 65_536]).is_err()));
    let mut writer = engine.temp_file().unwrap().writer().unwrap();
    let failed = (0..100).any(|_| writer.write_all(&[0; 65_536]).is_err());
    assert!(failed && writer.finish().is_err());
    drop((reader, file));
    assert_eq!(engine.budget().used(), 0);
}

fn left_over(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, b"left").unwrap();
    path
}

#[test]
fn left_overs_go_at_the_next_start_but_not_those_of_the_living() {
    let folder = tempfile::tempdir().unwrap();
    let living = Engine::new(&options(folder.path())).unwrap();
    let file = write(&living, &bytes(1, 10_000), 1);
    let dead = left_over(folder.path(), "gannet-temp-0123456789abcdef-3");
    let lock = left_over(folder.path(), "gannet-temp-0123456789abcdef.lock");
    let foreign = left_over(folder.path(), "gannet-temporary-notes");
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    let second = Engine::new(&options(folder.path())).unwrap();
    assert!(!dead.exists() && !lock.exists() && foreign.exists());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before - 2);
    check(&file, &bytes(1, 10_000), 0, 10_000, &mut Generator::new(1));
    drop((living, second));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "the file keeps its engine's lock");
    drop(file);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn left_overs_of_a_power_cut_go_too() {
    let disk = SimDisk::new(8);
    let engine = simulated(&disk);
    let file = write(&engine, &bytes(1, 100_000), 1);
    disk.sync_dir(Path::new("/spill/here")).unwrap();
    disk.sync_dir(Path::new("/spill")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let image = disk.crash_image(1);
    let names = |disk: &SimDisk| disk.list(Path::new("/spill/here")).unwrap();
    assert_eq!(names(&image).len(), 1);
    let engine_after = simulated(&image);
    assert!(names(&image).is_empty());
    drop((file, engine, engine_after));
}

#[test]
fn temporary_files_are_private_and_past_the_cache() {
    use std::os::unix::fs::PermissionsExt;
    // Beside the build, as the system's folder may be kept in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let engine = Engine::new(&options(folder.path())).unwrap();
    let file = write(&engine, &bytes(1, 1 << 20), 1);
    check(&file, &bytes(1, 1 << 20), 0, 1 << 20, &mut Generator::new(1));
    let path = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path());
    let path = path.into_iter().find(|p| p.extension().is_none()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let opened = engine.disk().open(&path, &gannet_io::OpenOptions::read()).unwrap();
    if opened.mode().effective == Mode::Direct {
        assert_eq!(opened.cached_bytes().unwrap_or(0), 0);
    }
}

#[test]
fn work_memory_grows_and_shrinks_in_steps() {
    let engine = simulated(&SimDisk::new(9));
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine.create(Path::new("w.gnt"), &create, &OpenOptions::default()).unwrap();
    let pool = || engine.budget().used_for(Purpose::Pool);
    let frames = pool();
    // Frames have nothing to lose yet.
    assert_eq!((engine.work_share(), engine.work_limit()), (4 << 20, 6 << 20));
    let mut memory = engine.work_memory(1 << 20).unwrap();
    for step in 2..=8u64 {
        memory.grow(1 << 20).unwrap();
        assert_eq!(memory.bytes(), step << 20);
    }
    assert!(pool() < frames, "frames have made room");
    let refused = memory.grow(1 << 30);
    assert!(matches!(refused, Err(Error::Memory(_))) && memory.bytes() == 8 << 20, "{refused:?}");
    let second = engine.work_memory(10).unwrap();
    assert_eq!(engine.work_limit(), 2 << 20);
    memory.shrink_to(9 << 20);
    memory.shrink_to(1 << 20);
    assert!(memory.bytes() == 1 << 20 && pool() > frames - (1 << 20));
    let many: Vec<_> = (0..10).map(|_| engine.work_memory(1).unwrap()).collect();
    assert_eq!(engine.work_limit(), 1 << 20);
    drop((memory, second, many));
    assert_eq!((pool(), engine.work_limit()), (frames, 6 << 20));
    db.close().unwrap();
}

#[test]
fn frames_come_back_even_if_somebody_else_takes_their_room_first() {
    let engine = simulated(&SimDisk::new(10));
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine.create(Path::new("w.gnt"), &create, &OpenOptions::default()).unwrap();
    let pool = || engine.budget().used_for(Purpose::Pool);
    let frames = pool();
    let free = engine.budget().limit() - engine.budget().used();
    let first = engine.work_memory(free + (2 << 20)).unwrap();
    let other = engine.budget().charge(Purpose::Sessions, 0).unwrap();
    let mut other = other;
    drop(first);
    other.resize(free).unwrap();
    let second = engine.work_memory(2 << 20).unwrap();
    drop(second);
    other.resize(0).unwrap();
    drop(engine.work_memory(1).unwrap());
    assert_eq!(pool(), frames);
    db.close().unwrap();
}

#[test]
fn frames_that_come_back_leave_some_for_others() {
    let engine = simulated(&SimDisk::new(10));
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine.create(Path::new("w.gnt"), &create, &OpenOptions::default()).unwrap();
    let free = || engine.budget().limit() - engine.budget().used();
    let before = free();
    let mut work = engine.work_memory(before + (4 << 20)).unwrap();
    let others = engine.budget().charge(Purpose::Sessions, free()).unwrap();
    assert_eq!(free(), 0);
    work.shrink_to(before + (2 << 20));
    // And a little more, so that not every small statement moves frames.
    let (left, more) = (engine.budget().limit() / 32, engine.budget().limit() / 128);
    assert!((left..left + 2 * more).contains(&free()), "{} of {left}", free());
    drop((work, others));
    assert_eq!(free(), before);
    db.close().unwrap();
}

#[test]
fn where_memory_is_short_small_statements_move_no_frames() {
    let engine = simulated(&SimDisk::new(11));
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine.create(Path::new("w.gnt"), &create, &OpenOptions::default()).unwrap();
    let pool = || engine.budget().used_for(Purpose::Pool);
    let frames = pool();
    let hog = engine.work_memory(engine.budget().limit() / 2).unwrap();
    assert!(pool() < frames, "frames have made room");
    // The first one may find nothing left for it.
    drop(engine.work_memory(8 << 10).unwrap());
    let before = pool();
    let mut held = Vec::new();
    for round in 0..1000u64 {
        let mut memory = engine.work_memory(4 << 10).unwrap();
        memory.grow(4 << 10).unwrap();
        memory.shrink_to(1 << 10);
        held.push(memory);
        if round % 4 == 3 {
            held.clear();
        }
        assert_eq!(pool(), before, "round {round}");
    }
    drop((hog, held));
    assert_eq!(pool(), frames);
    db.close().unwrap();
}

#[test]
fn a_statement_with_much_memory_leaves_some_for_others_and_for_the_log() {
    let engine = simulated(&SimDisk::new(12));
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine.create(Path::new("w.gnt"), &create, &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    let mut hog = engine.work_memory(0).unwrap();
    let take_all = |hog: &mut gannet_store::WorkMemory| while hog.grow(1 << 16).is_ok() {};
    hog.grow(engine.budget().limit() / 2).unwrap();
    let left = engine.budget().limit() - engine.budget().used();
    assert!(left >= engine.budget().limit() / 32, "{left} bytes are left");
    // When frames have nothing left to give, all of it is taken, and still the log gets new segments.
    take_all(&mut hog);
    for row in 0..2000u32 {
        txn.put(&tree, &row.to_be_bytes(), &[7; 500]).unwrap();
    }
    txn.commit().unwrap();
    assert!(db.stats().end_lsn.0 > 4 << 18, "the log has grown by segments");
    drop(hog);
    db.close().unwrap();
}

#[test]
fn who_can_do_with_less_takes_nothing_of_what_is_left_for_others() {
    let engine = simulated(&SimDisk::new(12));
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine.create(Path::new("w.gnt"), &create, &OpenOptions::default()).unwrap();
    let free = || engine.budget().limit() - engine.budget().used();
    let left = engine.budget().limit() / 32;
    let mut hogs: Vec<_> = (0..3).map(|_| engine.work_memory(0).unwrap()).collect();
    for hog in &mut hogs {
        while hog.grow_leaving(1 << 14).is_ok() {}
        assert!(free() >= left, "{} bytes are left", free());
    }
    let taken: u64 = hogs.iter().map(gannet_store::WorkMemory::bytes).sum();
    assert!(taken > engine.budget().limit() / 2, "frames have given what they had: {taken}");
    // So whoever comes next has some, and who spills a block.
    let session = engine.memory(Purpose::Sessions, left / 2).unwrap();
    let file = write(&engine, &bytes(1, 100_000), 1);
    drop((session, file));
    let held = hogs[0].bytes();
    hogs[0].shrink_to(held - (1 << 16));
    hogs[0].grow_leaving(1 << 16).unwrap();
    drop(hogs);
    db.close().unwrap();
}

#[test]
fn very_many_have_room_together_for_what_each_counts_on() {
    let engine = simulated(&SimDisk::new(9));
    let many: Vec<_> = (0..24).map(|_| engine.work_memory(1).unwrap()).collect();
    assert_eq!(engine.work_share(), 512 << 10, "of 16 MiB");
    let more: Vec<_> = (0..100).map(|_| engine.work_memory(1).unwrap()).collect();
    assert_eq!(engine.work_share(), 256 << 10);
    let others = many.into_iter().map(gannet_store::WorkMemory::uncounted).collect::<Vec<_>>();
    drop(more);
    assert_eq!(engine.work_share(), 4 << 20, "what is no operation's does not count");
    drop(others);
    assert_eq!(engine.budget().used_for(Purpose::Work), 0);
}

#[test]
fn frames_make_room_for_what_stays() {
    let engine = simulated(&SimDisk::new(13));
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine.create(Path::new("w.gnt"), &create, &OpenOptions::default()).unwrap();
    let used = |purpose| engine.budget().used_for(purpose);
    let frames = used(Purpose::Pool);
    let half = engine.budget().limit() / 2;
    let sessions: Vec<_> =
        (0..half >> 16).map(|_| engine.memory(Purpose::Sessions, 1 << 16).unwrap()).collect();
    assert!(used(Purpose::Sessions) == half && used(Purpose::Pool) < frames && used(Purpose::Work) == 0);
    assert_eq!(engine.work_share(), 4 << 20, "no operation has less because of it");
    drop(sessions);
    assert_eq!((used(Purpose::Sessions), used(Purpose::Pool)), (0, frames));
    db.close().unwrap();
}

#[test]
fn a_thread_is_told_what_it_has_read() {
    let disk = SimDisk::new(11);
    let engine = simulated(&disk);
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let db = engine.create(Path::new("r.gnt"), &create, &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    let rows: Vec<_> = (0..20_000u32).map(|i| i.to_be_bytes()).collect();
    txn.bulk_load(&tree, rows.iter().map(|key| (&key[..], &[1; 200][..]))).unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
    // Otherwise they would be in memory before they are asked for.
    disk.remove(Path::new("r.gnt-wal/hot")).unwrap();
    let db = simulated(&disk).open(Path::new("r.gnt"), &OpenOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.tree("t").unwrap().unwrap();
    let view = txn.view();
    let start = thread_reads();
    view.get(&tree, &rows[5]).unwrap();
    let first = thread_reads().since(start);
    assert!((2..=4).contains(&first.serial_reads) && first.batched_reads == 0, "{first:?}");
    let before = thread_reads();
    view.get(&tree, &rows[5]).unwrap();
    let again = thread_reads().since(before);
    assert!(again.serial_reads == 0 && (2..=4).contains(&again.hits), "{again:?}");
    // Look-ahead of an index join: the pages are asked for at once, and nobody waits for one alone.
    let keys: Vec<_> = rows.iter().step_by(400).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    view.multi_get(&tree, &[&rows[0][..], &rows[19_999][..]]).unwrap();
    let before = thread_reads();
    view.prefetch(&tree, &keys).unwrap();
    let asked = thread_reads().since(before);
    assert!(asked.batched_reads >= 45 && asked.serial_reads <= 8, "{asked:?}");
    for key in &keys {
        assert!(view.get(&tree, key).unwrap().is_some());
    }
    assert_eq!(thread_reads().since(before).serial_reads, asked.serial_reads);
    let mut scan = view.scan(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    while scan.next().unwrap().is_some() {}
    let all = thread_reads().since(start);
    assert!(all.batched_reads > 900 && all.serial_reads < 30, "{all:?}");
    let elsewhere = gannet_base::thread::spawn("other", thread_reads).join().unwrap();
    assert_eq!(elsewhere, Default::default());
}

#[test]
fn blocks_end_in_any_order() {
    for seed in 0..8 {
        let run = move || {
            let engine = simulated(&SimDisk::new(seed));
            let content = bytes(seed, 700_000);
            let file = write(&engine, &content, seed);
            let mut readers: Vec<_> = (0..4).map(|i| file.reader(i * 1000, file.len()).unwrap()).collect();
            let mut piece = vec![0; 69_000];
            for turn in 0..10 {
                for (i, reader) in readers.iter_mut().enumerate() {
                    reader.read_exact(&mut piece).unwrap();
                    let at = i * 1000 + turn * piece.len();
                    assert!(piece == content[at..at + piece.len()]);
                }
            }
            // Some are dropped with blocks under way.
            drop(file);
            drop(engine);
            readers.len()
        };
        assert_eq!(Simulation::new(seed).run(run).unwrap(), 4);
    }
}
