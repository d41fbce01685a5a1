//! What survives a crash.

use super::*;
use gannet_base::sim::Generator;

#[test]
fn what_was_synced_stays_and_what_was_not_may_vanish_tear_and_be_reordered() {
    let (disk, file) = settled(1, 4);
    write(&file, 0, 2, 4, CACHED);
    write(&file, 1, 3, 1, CACHED);
    let seen = outcomes(&disk);
    assert!(seen.contains(&vec![1, 1, 1, 1]) && seen.contains(&vec![2, 3, 2, 2]));
    assert!(seen.contains(&vec![1, 3, 1, 1]), "the later write without the earlier");
    assert!(seen.iter().any(|s| s.contains(&1) && s.contains(&2)), "torn between sectors");
    assert!(seen.iter().all(|s| s.len() == 4 && [1, 2].contains(&s[0]) && s[1] >= 1));

    file.sync(Class::Commit).unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([vec![2, 3, 2, 2]]));
}

#[test]
fn nothing_written_before_a_sync_is_reordered_behind_it() {
    let (disk, file) = settled(2, 2);
    write(&file, 0, 2, 1, CACHED);
    file.sync(Class::Commit).unwrap();
    write(&file, 1, 3, 1, CACHED);
    assert_eq!(outcomes(&disk), BTreeSet::from([vec![2, 1], vec![2, 3]]));
}

#[test]
fn a_durable_write_makes_its_own_range_durable_and_no_other() {
    let (disk, file) = settled(3, 3);
    write(&file, 0, 2, 3, CACHED);
    write(&file, 1, 3, 1, DURABLE);
    let seen = outcomes(&disk);
    assert!(seen.iter().all(|s| s[1] == 3));
    assert_eq!(seen.len(), 4, "both neighbours free: {seen:?}");
}

#[test]
fn a_durable_write_keeps_the_size_it_needs() {
    let (disk, file) = settled(4, 8);
    file.set_len(512).unwrap();
    file.set_len(4096).unwrap();
    write(&file, 2, 5, 1, DURABLE);
    assert_eq!(outcomes(&disk), BTreeSet::from([vec![1, 0, 5, 0, 0, 0, 0, 0]]));
    write(&file, 9, 6, 1, DURABLE);
    assert_eq!(outcomes(&disk), BTreeSet::from([vec![1, 0, 5, 0, 0, 0, 0, 0, 0, 6]]));
}

#[test]
fn a_write_made_before_a_durable_cut_does_not_come_back() {
    let (disk, file) = settled(4, 4);
    write(&file, 0, 2, 4, CACHED);
    file.set_len(512).unwrap();
    write(&file, 3, 3, 1, DURABLE);
    assert!(outcomes(&disk).iter().all(|s| s[1..] == [0, 0, 3]));
}

#[test]
fn size_and_allocation_are_volatile_until_sync() {
    let (disk, file) = settled(5, 1);
    file.allocate(0, 1024).unwrap();
    file.set_len(512 * 3).unwrap();
    write(&file, 3, 4, 1, CACHED);
    let seen = outcomes(&disk);
    for expected in [vec![1], vec![1, 0], vec![1, 0, 0], vec![1, 0, 0, 0], vec![1, 0, 0, 4]] {
        assert!(seen.contains(&expected), "{expected:?} in {seen:?}");
    }
    assert_eq!(seen.len(), 5);
    file.sync(Class::Commit).unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([vec![1, 0, 0, 4]]));
}

#[test]
fn names_are_volatile_until_their_folder_is_synced() {
    let disk = SimDisk::new(6);
    let names = |disk: &SimDisk| -> BTreeSet<Vec<String>> {
        (0..200).map(|seed| disk.peek_crash(None, seed).list(Path::new("/")).unwrap()).collect()
    };
    let set = |lists: &[&[&str]]| -> BTreeSet<Vec<String>> {
        lists.iter().map(|l| l.iter().map(|n| (*n).to_owned()).collect()).collect()
    };
    create(&disk, "/a").sync(Class::Commit).unwrap();
    assert_eq!(names(&disk), set(&[&[], &["a"]]));
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(names(&disk), set(&[&["a"]]));
    disk.rename(Path::new("/a"), Path::new("/b")).unwrap();
    assert_eq!(names(&disk), set(&[&["a"], &["b"]]), "undone or done");
    disk.sync_dir(Path::new("/")).unwrap();
    disk.remove(Path::new("/b")).unwrap();
    assert_eq!(names(&disk), set(&[&[], &["b"]]), "a removed file may reappear");
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(names(&disk), set(&[&[]]));
}

#[test]
fn a_rename_over_a_file_leaves_one_of_the_two_whole() {
    let disk = SimDisk::new(7);
    for (path, byte) in [(PATH, 1), ("/new", 2)] {
        let file = create(&disk, path);
        write(&file, 0, byte, 2, CACHED);
        file.sync(Class::Commit).unwrap();
    }
    disk.sync_dir(Path::new("/")).unwrap();
    disk.rename(Path::new("/new"), Path::new(PATH)).unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([vec![1, 1], vec![2, 2]]));
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([vec![2, 2]]));
}

#[test]
fn a_folder_that_vanishes_takes_its_files_along() {
    let disk = SimDisk::new(8);
    disk.create_dir(Path::new("/log")).unwrap();
    create(&disk, "/log/1").sync(Class::Commit).unwrap();
    disk.sync_dir(Path::new("/log")).unwrap();
    let states: BTreeSet<_> = (0..100)
        .map(|seed| {
            let image = disk.peek_crash(None, seed);
            (image.exists(Path::new("/log")).unwrap(), image.files().len())
        })
        .collect();
    assert_eq!(states, BTreeSet::from([(false, 0), (true, 1)]));
}

#[test]
fn an_atomic_write_is_whole_or_absent_even_at_the_end_of_the_file() {
    for start in [0, 8] {
        let settings = Settings { atomic_write_max: 4096, ..Settings::default() };
        let disk = SimDisk::with_settings(9, settings);
        let file = create(&disk, PATH);
        write(&file, 0, 1, 8, DURABLE);
        disk.sync_dir(Path::new("/")).unwrap();
        let direction = crate::Direction::WriteAtomic(CACHED);
        queues::transfer(&disk, &file, direction, start, &mut filled(2, 8)).unwrap();
        let allowed = [1, 2, 0].map(|b| vec![b; 8]);
        for state in outcomes(&disk) {
            let piece = state.get(start as usize..).unwrap().to_vec();
            assert!(piece.is_empty() || allowed.contains(&piece), "{state:?}");
        }
        let odd = queues::transfer(&disk, &file, direction, 1, &mut filled(2, 8));
        assert_eq!(kind(odd), ErrorKind::Invalid);
    }
}

#[test]
fn power_goes_off_in_the_chosen_operation_and_ends_every_other() {
    for count in 1..=5 {
        let (disk, file) = settled(10, 2);
        disk.crash_after(count);
        let before = disk.io_count();
        let results = [
            file.write_at(Class::Commit, 0, &filled(2, 1), CACHED),
            file.sync(Class::Commit),
            file.allocate(0, 8192),
            disk.rename(Path::new(PATH), Path::new("/other")),
            disk.sync_dir(Path::new("/")),
        ];
        for (index, result) in results.into_iter().enumerate() {
            assert_eq!(result.is_ok(), (index as u64) + 1 < count, "operation {index} of {count}");
        }
        assert!(disk.is_crashed());
        assert_eq!(disk.io_count(), before + count);
        let error = file.read_at(Class::Foreground, 0, &mut filled(0, 1)).unwrap_err();
        assert!(error.kind() == ErrorKind::Device && error.to_string().contains("power is off"));
        assert_eq!(kind(file.len()), ErrorKind::Device);
        assert_eq!(kind(disk.list(Path::new("/"))), ErrorKind::Device);
        let restarted = disk.crash_image(count);
        assert_eq!(restarted.files().len(), 1);
        assert!(!restarted.is_crashed());
    }
}

#[test]
fn the_write_that_meets_the_crash_may_be_stored_in_part() {
    let (disk, file) = settled(11, 3);
    disk.crash_after(1);
    assert!(file.write_at(Class::Commit, 0, &filled(2, 3), DURABLE).is_err());
    let seen = outcomes(&disk);
    assert_eq!(seen.len(), 8, "every subset of three sectors: {seen:?}");
}

#[test]
fn a_crash_image_is_a_function_of_its_seed_and_can_crash_again() {
    let (disk, file) = settled(12, 16);
    write(&file, 0, 2, 16, CACHED);
    for seed in 0..20 {
        let (one, two) = (disk.crash_image(seed), disk.crash_image(seed));
        assert_eq!(after(&one), after(&two));
        assert_eq!(after(&one), after(&one.crash_image(seed + 1)), "all that is left is durable");
    }
    assert_eq!(after(&disk.crash_image_with(CrashPolicy::KeepNone, 1)), vec![1; 16]);
    assert_eq!(after(&disk.crash_image_with(CrashPolicy::KeepAll, 1)), vec![2; 16]);
}

#[test]
fn the_durable_image_shows_what_no_crash_takes() {
    let (disk, file) = settled(13, 1);
    write(&file, 0, 2, 2, CACHED);
    create(&disk, "/young");
    let image = disk.durable_image();
    assert_eq!(image.len(), 1);
    assert_eq!(image[Path::new(PATH)], vec![1; SECTOR]);
    assert_eq!(disk.files().len(), 2);
}

/// What a crash may leave, by the crate's guarantees alone; a missing sector counts as zero.
struct Oracle {
    seen: Vec<u8>,
    allowed: Vec<BTreeSet<u8>>,
    lowest_len: usize,
}

impl Oracle {
    fn write(&mut self, sector: usize, byte: u8, sectors: usize, durability: Durability) {
        let end = sector + sectors;
        self.seen.resize(self.seen.len().max(end), 0);
        self.seen[sector..end].fill(byte);
        for allowed in &mut self.allowed[sector..end] {
            if durability == DURABLE {
                allowed.clear();
            }
            allowed.insert(byte);
        }
        if durability == DURABLE {
            self.lowest_len = self.lowest_len.max(end);
        }
    }

    fn set_len(&mut self, len: usize) {
        self.seen.resize(len, 0);
        for allowed in &mut self.allowed[len..] {
            allowed.insert(0);
        }
        self.lowest_len = self.lowest_len.min(len);
    }

    fn sync(&mut self) {
        self.lowest_len = self.seen.len();
        for (sector, allowed) in self.allowed.iter_mut().enumerate() {
            *allowed = BTreeSet::from([self.seen.get(sector).copied().unwrap_or(0)]);
        }
    }

    fn check(&self, found: &[u8], context: &str) {
        assert!(found.len() >= self.lowest_len, "{context}: {} sectors left", found.len());
        for (sector, allowed) in self.allowed.iter().enumerate() {
            let byte = found.get(sector).copied().unwrap_or(0);
            assert!(allowed.contains(&byte), "{context}: sector {sector} is {byte}, not of {allowed:?}");
        }
    }
}

#[test]
fn random_histories_leave_only_what_the_guarantees_allow() {
    const SECTORS: u64 = 12;
    for seed in 0..150 {
        let mut random = Generator::new(seed);
        let (disk, file) = settled(seed, 4);
        let mut oracle = Oracle { seen: vec![1; 4], allowed: vec![], lowest_len: 4 };
        oracle.allowed.resize(SECTORS as usize, BTreeSet::from([0]));
        oracle.sync();
        for step in 0..40 {
            let (sector, byte) = (random.below(SECTORS), step as u8 + 2);
            let sectors = (1 + random.below(SECTORS - sector)) as usize;
            match random.below(8) {
                0 => {
                    file.set_len(sector * SECTOR as u64).unwrap();
                    oracle.set_len(sector as usize);
                }
                1 => {
                    file.sync(Class::Commit).unwrap();
                    oracle.sync();
                }
                2 | 3 => {
                    write(&file, sector, byte, sectors, DURABLE);
                    oracle.write(sector as usize, byte, sectors, DURABLE);
                }
                _ => {
                    write(&file, sector, byte, sectors, CACHED);
                    oracle.write(sector as usize, byte, sectors, CACHED);
                }
            }
            assert_eq!(after(&disk), oracle.seen, "seed {seed} step {step}: what is seen");
            for policy in CrashPolicy::ALL {
                let image = disk.peek_crash(Some(policy), random.next_u64());
                oracle.check(&after(&image), &format!("seed {seed} step {step} {policy:?}"));
            }
            let all = disk.peek_crash(Some(CrashPolicy::KeepAll), 0);
            assert_eq!(after(&all), oracle.seen, "seed {seed} step {step}: everything kept");
        }
    }
}
