//! Planned faults.

use super::*;
use gannet_base::sim::Simulation;

fn first() -> Chance {
    Chance::At(vec![1])
}

#[test]
fn a_failed_write_poisons_its_handle_and_may_have_stored_any_sector() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (disk, file) = settled(seed, 2);
        disk.set_faults(Faults { write_error: first(), ..Faults::default() });
        let write = |file: &Arc<dyn File>| file.write_at(Class::Commit, 0, &filled(2, 2), DURABLE);
        assert_eq!(kind(write(&file)), ErrorKind::Device);
        assert_eq!(kind(write(&file)), ErrorKind::Poisoned);
        assert_eq!(kind(file.sync(Class::Commit)), ErrorKind::Poisoned);
        assert!(file.is_poisoned());
        file.read_at(Class::Foreground, 0, &mut filled(0, 1)).unwrap();
        seen.insert(after(&disk));
        let reopened = disk.open(Path::new(PATH), &OpenOptions::read_write()).unwrap();
        write(&reopened).unwrap();
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn after_a_failed_sync_a_later_success_proves_nothing() {
    let mut lost = 0;
    for seed in 0..50 {
        let (disk, file) = settled(seed, 2);
        let other = disk.open(Path::new(PATH), &OpenOptions::read_write()).unwrap();
        write(&file, 0, 2, 2, CACHED);
        disk.set_faults(Faults { sync_error: first(), ..Faults::default() });
        assert_eq!(kind(file.sync(Class::Commit)), ErrorKind::Device);
        assert_eq!(kind(other.sync(Class::Commit)), ErrorKind::Device, "other handles learn of it");
        let reopened = disk.open(Path::new(PATH), &OpenOptions::read_write()).unwrap();
        reopened.sync(Class::Commit).unwrap();
        assert_eq!(after(&disk), [2, 2], "the cache still shows it");
        lost += usize::from(after(&disk.crash_image_with(CrashPolicy::KeepAll, 1)) != [2, 2]);
    }
    assert!((5..50).contains(&lost), "{lost}");
}

#[test]
fn a_read_error_passes_and_short_reads_are_continued() {
    let (disk, file) = settled(1, 8);
    let faults = Faults { read_error: first(), short_read: Chance::OneIn(1), ..Faults::default() };
    disk.set_faults(faults);
    let mut buffer = filled(0, 8);
    assert_eq!(kind(file.read_at(Class::Foreground, 0, &mut buffer)), ErrorKind::Device);
    file.read_at(Class::Foreground, 0, &mut buffer).unwrap();
    assert!(buffer.iter().all(|b| *b == 1));
    let struck: Vec<Fault> = disk.injected().iter().map(|i| i.fault).collect();
    assert_eq!(struck, [Fault::ShortRead, Fault::ReadError, Fault::ShortRead]);
}

#[test]
fn a_full_disk_refuses_to_grow_but_not_to_overwrite() {
    let settings = Settings { capacity_bytes: Some(16384), ..Settings::default() };
    let disk = SimDisk::with_settings(1, settings);
    let file = create(&disk, PATH);
    file.allocate(0, 12288).unwrap();
    assert_eq!(kind(file.allocate(0, 20480)), ErrorKind::NoSpace);
    assert_eq!(file.len().unwrap(), 12288, "a failed allocation changes nothing");
    write(&file, 0, 1, 24, CACHED);
    let second = create(&disk, "/second");
    write(&second, 0, 1, 8, CACHED);
    let full = second.write_at(Class::Commit, 4096, &filled(1, 1), CACHED);
    assert_eq!(kind(full), ErrorKind::NoSpace);
    disk.remove(Path::new(PATH)).unwrap();
    let third = create(&disk, "/third");
    assert_eq!(kind(third.allocate(0, 8192)), ErrorKind::NoSpace, "an open file keeps its blocks");
    drop(file);
    third.allocate(0, 8192).unwrap();
}

#[test]
fn space_runs_out_by_plan_only_where_it_is_needed() {
    let (disk, file) = settled(1, 8);
    disk.set_faults(Faults { no_space: Chance::OneIn(1), ..Faults::default() });
    write(&file, 0, 2, 8, CACHED);
    assert_eq!(kind(file.allocate(0, 8192)), ErrorKind::NoSpace);
    assert_eq!(kind(file.write_at(Class::Commit, 4096, &filled(1, 1), CACHED)), ErrorKind::NoSpace);
}

#[test]
fn a_lost_write_is_acknowledged_synced_and_gone() {
    let (disk, file) = settled(1, 2);
    disk.set_faults(Faults { lost_write: first(), ..Faults::default() });
    write(&file, 1, 2, 2, DURABLE);
    file.sync(Class::Commit).unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([vec![1, 1, 0]]));
    let injection = Injection { fault: Fault::LostWrite, path: PATH.into(), offset: 512, len: 1024 };
    assert_eq!(disk.injected(), [injection]);
}

#[test]
fn a_misdirected_write_hits_another_aligned_place() {
    for seed in 0..50 {
        let (disk, file) = settled(seed, 8);
        disk.set_faults(Faults { misdirected_write: first(), ..Faults::default() });
        write(&file, 2, 2, 2, DURABLE);
        let state = after(&disk);
        let hit = state.iter().position(|b| *b == 2).unwrap();
        assert!(hit != 2 && hit % 2 == 0 && state[hit + 1] == 2, "{state:?}");
        assert_eq!(outcomes(&disk), BTreeSet::from([state]));
    }
}

#[test]
fn faults_can_be_kept_to_some_files() {
    let (disk, file) = settled(1, 1);
    let faults = Faults { write_error: Chance::OneIn(1), only: Some("log".into()), ..Faults::default() };
    disk.set_faults(faults);
    write(&file, 0, 2, 1, CACHED);
    let log = create(&disk, "/log");
    assert_eq!(kind(log.write_at(Class::Commit, 0, &filled(1, 1), CACHED)), ErrorKind::Device);
}

#[test]
fn rot_flips_bits_that_stay_flipped() {
    let (disk, _file) = settled(1, 4);
    disk.corrupt(Path::new(PATH), 512, 512, 3).unwrap();
    let bytes = disk.contents(Path::new(PATH)).unwrap();
    let differing: Vec<usize> = (0..2048).filter(|i| bytes[*i] != 1).collect();
    assert!((1..=8).contains(&differing.len()) && differing.iter().all(|i| (512..1024).contains(i)));
    assert!(disk.crash_image(1).contents(Path::new(PATH)).unwrap() == bytes);
    assert_eq!(kind(disk.corrupt(Path::new(PATH), 2048, 1, 3)), ErrorKind::Invalid);
}

#[test]
fn a_change_of_size_or_name_fails_and_changes_nothing() {
    let (disk, file) = settled(1, 8);
    let always = || Chance::OneIn(1);
    disk.set_faults(Faults { size_error: always(), name_error: always(), ..Faults::default() });
    assert_eq!(kind(file.allocate(4096, 4096)), ErrorKind::Device);
    assert_eq!(kind(file.set_len(0)), ErrorKind::Device);
    assert_eq!(kind(disk.rename(Path::new(PATH), Path::new("/g"))), ErrorKind::Device);
    assert_eq!(kind(disk.remove(Path::new(PATH))), ErrorKind::Device);
    assert_eq!(kind(disk.open(Path::new("/h"), &OpenOptions::create_new())), ErrorKind::Device);
    assert_eq!((file.len().unwrap(), disk.files()), (8 * SECTOR as u64, vec![PathBuf::from(PATH)]));
    assert_eq!(disk.injected().len(), 5);
}

#[test]
fn a_read_of_what_a_lie_has_left_is_noted_and_one_of_what_was_written_since_is_not() {
    let (disk, file) = settled(1, 2);
    disk.set_faults(Faults { lost_write: first(), ..Faults::default() });
    write(&file, 0, 2, 2, DURABLE);
    write(&file, 0, 3, 1, DURABLE);
    file.read_at(Class::Foreground, 0, &mut filled(0, 1)).unwrap();
    assert!(!disk.was_untrue(Path::new(PATH)).unwrap(), "the first sector was written again");
    let image = disk.peek_crash(None, 1);
    file.read_at(Class::Foreground, 0, &mut filled(0, 2)).unwrap();
    assert!(disk.was_untrue(Path::new(PATH)).unwrap() && !image.was_untrue(Path::new(PATH)).unwrap());
    let file = image.open(Path::new(PATH), &OpenOptions::read()).unwrap();
    file.read_at(Class::Foreground, 0, &mut filled(0, 2)).unwrap();
    assert!(image.was_untrue(Path::new(PATH)).unwrap(), "a crash does not make it true");
    image.set_faults(Faults { power_off_at_lie: Some("data".to_owned()), ..Faults::default() });
    assert!(file.read_at(Class::Foreground, 0, &mut filled(0, 2)).is_err() && image.is_crashed());
}

#[test]
fn a_failed_sync_can_be_told_of_once_though_others_are_on_their_way() {
    for told_once in [false, true] {
        let failed = Simulation::new(3).run(move || {
            let (disk, file) = settled(1, 2);
            write(&file, 0, 2, 2, CACHED);
            disk.set_faults(Faults {
                sync_error: first(),
                sync_error_told_once: told_once,
                ..Faults::default()
            });
            let other = Arc::clone(&file);
            let sync = gannet_base::thread::spawn("sync", move || other.sync(Class::Commit).is_err());
            let failed = [file.sync(Class::Commit).is_err(), sync.join().unwrap()];
            assert_eq!(kind(file.sync(Class::Commit)), ErrorKind::Poisoned);
            failed.into_iter().filter(|failed| *failed).count()
        });
        let failed = failed.unwrap();
        assert_eq!(failed, if told_once { 1 } else { 2 });
    }
}
