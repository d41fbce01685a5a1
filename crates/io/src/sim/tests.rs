use super::*;
use crate::{AlignedBuffer, Class, Durability, SECTOR};
use std::collections::BTreeSet;

mod crashes;
mod faulty;
mod queues;

const PATH: &str = "/data";
const CACHED: Durability = Durability::Cached;
const DURABLE: Durability = Durability::Durable;

fn filled(byte: u8, sectors: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(sectors * SECTOR);
    buffer.fill(byte);
    buffer
}

fn create(disk: &SimDisk, path: &str) -> Arc<dyn File> {
    disk.open(Path::new(path), &OpenOptions::create_new()).unwrap()
}

fn write(file: &Arc<dyn File>, sector: u64, byte: u8, sectors: usize, durability: Durability) {
    file.write_at(Class::Commit, sector * SECTOR as u64, &filled(byte, sectors), durability).unwrap();
}

/// A disk with one durable file of `sectors` sectors of ones.
fn settled(seed: u64, sectors: usize) -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::new(seed);
    let file = create(&disk, PATH);
    write(&file, 0, 1, sectors, CACHED);
    file.sync(Class::Commit).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    (disk, file)
}

/// The first byte of each sector of the file after a crash; panics if a sector is torn.
fn after(disk: &SimDisk) -> Vec<u8> {
    let bytes = disk.contents(Path::new(PATH)).unwrap();
    bytes
        .chunks(SECTOR)
        .map(|sector| {
            assert!(sector.iter().all(|b| *b == sector[0]), "a sector is torn");
            sector[0]
        })
        .collect()
}

/// All states that crashes leave of the file.
fn outcomes(disk: &SimDisk) -> BTreeSet<Vec<u8>> {
    (0..400).map(|seed| after(&disk.peek_crash(None, seed))).collect()
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.err().expect("this must fail").kind()
}

#[test]
fn reads_see_every_write_and_holes_are_zero() {
    let disk = SimDisk::new(1);
    let file = create(&disk, PATH);
    write(&file, 3, 7, 2, CACHED);
    let mut buffer = filled(9, 5);
    file.read_at(Class::Foreground, 0, &mut buffer).unwrap();
    assert!(buffer[..3 * SECTOR].iter().all(|b| *b == 0) && buffer[3 * SECTOR..].iter().all(|b| *b == 7));
    let mut buffer = filled(0, 6);
    assert_eq!(kind(file.read_at(Class::Foreground, 0, &mut buffer)), ErrorKind::ShortRead);
    assert_eq!(file.cached_bytes(), Some(0));
    assert_eq!(disk.stats().snapshot().total(crate::stats::Operation::Write), (1, 1024));
}

#[test]
fn misaligned_requests_and_writes_to_a_file_opened_for_reading_are_refused() {
    let (disk, file) = settled(1, 8);
    let mut buffer = filled(0, 2);
    let mut read = |offset, range: std::ops::Range<usize>| {
        kind(file.read_at(Class::Foreground, offset, &mut buffer[range]))
    };
    assert_eq!(read(100, 0..SECTOR), ErrorKind::Invalid);
    assert_eq!(read(0, 0..100), ErrorKind::Invalid);
    assert_eq!(read(0, 8..8 + SECTOR), ErrorKind::Invalid);
    let reader = disk.open(Path::new(PATH), &OpenOptions::read()).unwrap();
    assert_eq!(kind(reader.write_at(Class::Commit, 0, &buffer, CACHED)), ErrorKind::Invalid);
    assert_eq!(kind(reader.set_len(0)), ErrorKind::Invalid);
    assert!(!file.is_poisoned() && !reader.is_poisoned());
}

#[test]
fn opening_follows_its_options() {
    let disk = SimDisk::new(1);
    assert_eq!(kind(disk.open(Path::new(PATH), &OpenOptions::read_write())), ErrorKind::NotFound);
    create(&disk, PATH);
    assert_eq!(kind(disk.open(Path::new(PATH), &OpenOptions::create_new())), ErrorKind::AlreadyExists);
    assert!(disk.open(Path::new(PATH), &OpenOptions { create: true, ..OpenOptions::read_write() }).is_ok());
    assert_eq!(kind(disk.open(Path::new("/no/file"), &OpenOptions::create_new())), ErrorKind::NotFound);
    disk.create_dir(Path::new("/no")).unwrap();
    disk.create_dir(Path::new("/no")).unwrap();
    create(&disk, "/no/file");
    assert_eq!(disk.list(Path::new("/no")).unwrap(), ["file"]);
    assert_eq!(disk.list(Path::new("/")).unwrap(), ["data"]);
    assert!(disk.exists(Path::new("/no/./file")).unwrap() && !disk.exists(Path::new("/yes")).unwrap());
    assert_eq!(kind(disk.open(Path::new("/no"), &OpenOptions::read())), ErrorKind::Invalid);
    assert_eq!(kind(disk.remove_dir(Path::new("/no"))), ErrorKind::Invalid);
    disk.remove(Path::new("/no/file")).unwrap();
    disk.remove_dir(Path::new("/no")).unwrap();
    assert_eq!(kind(disk.remove_dir(Path::new("/no"))), ErrorKind::NotFound);
    assert!(!disk.exists(Path::new("/no")).unwrap());
}

#[test]
fn a_second_lock_is_refused_until_the_first_ends() {
    let disk = SimDisk::new(1);
    let held = disk.lock(Path::new(PATH)).unwrap();
    assert_eq!(kind(disk.lock(Path::new(PATH))), ErrorKind::Locked);
    assert!(disk.lock(Path::new("/other")).is_ok());
    assert!(disk.crash_image(1).lock(Path::new(PATH)).is_ok(), "a lock ends with the power");
    drop(held);
}

#[test]
fn a_new_name_replaces_nothing() {
    let disk = SimDisk::new(1);
    let (new, folder) = (Path::new("/new"), Path::new("/folder"));
    drop(disk.open(Path::new(PATH), &OpenOptions::create_new()).unwrap());
    disk.create_dir(folder).unwrap();
    for taken in [Path::new(PATH), folder] {
        assert_eq!(kind(disk.rename_new(Path::new(PATH), taken)), ErrorKind::AlreadyExists);
    }
    disk.rename_new(Path::new(PATH), new).unwrap();
    assert!(disk.exists(new).unwrap() && !disk.exists(Path::new(PATH)).unwrap());
    assert_eq!(kind(disk.rename_new(Path::new(PATH), Path::new("/other"))), ErrorKind::NotFound);
}

#[test]
fn the_lock_of_a_file_goes_with_the_file_not_its_name() {
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new(PATH), &OpenOptions::create_new()).unwrap();
    let held = file.lock().unwrap();
    disk.rename(Path::new(PATH), Path::new("/renamed")).unwrap();
    let again = disk.open(Path::new("/renamed"), &OpenOptions::read_write()).unwrap();
    assert_eq!(kind(again.lock()), ErrorKind::Locked);
    drop(file);
    assert_eq!(kind(again.lock()), ErrorKind::Locked);
    let other = disk.open(Path::new(PATH), &OpenOptions::create_new()).unwrap();
    assert!(other.lock().is_ok());
    drop(held);
    assert!(again.lock().is_ok());
}
