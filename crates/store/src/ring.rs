//! The double-write ring: its bytes, and what is restored from it after a crash. `writeback` says what it is for, and why a crash
//! at any point is harmless.
//!
//! A ring has [`SLOTS`] slots. Each is a header block, which names the pages of a batch, and the pages themselves, sealed as
//! they go home.

use crate::Result;
use crate::batch::submit_and_wait;
use crate::mutation::{Mutation, planted};
use crate::page::{self, Verdict, get_u64, put_u64};
use gannet_base::{Lsn, PageId, checksum};
use gannet_io::{AlignedBuffer, Class, Direction, Durability, File, IoSlice, Queue, Request};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Slots of the ring.
pub(crate) const SLOTS: u64 = 4;
/// Bytes of a slot's header: a whole block, so that it is written with the pages in one aligned request.
pub(crate) const SLOT_HEADER: usize = 4096;
/// Bytes of pages in a slot.
const BATCH_BYTES: usize = 1 << 20;
/// How often healing tries to read what it cannot read.
const READ_TRIES: u32 = 10;
const MAGIC: u64 = 0x474E_5452_494E_4731;

const MAGIC_AT: usize = 8;
const SEQUENCE_AT: usize = 16;
const RETIRED_AT: usize = 24;
const COUNT_AT: usize = 32;
const DATABASE_AT: usize = 40;
pub(crate) const LIST_AT: usize = 48;

/// Pages of one batch.
pub(crate) fn batch_pages(page_size: usize) -> usize {
    (BATCH_BYTES / page_size).min((SLOT_HEADER - LIST_AT) / 16)
}

pub(crate) fn slot_bytes(page_size: usize) -> usize {
    SLOT_HEADER + batch_pages(page_size) * page_size
}

/// Size of a ring file in bytes.
pub(crate) fn ring_bytes(page_size: usize) -> u64 {
    SLOTS * slot_bytes(page_size) as u64
}

/// The header of a slot with batch `sequence` of these pages, each with its LSN, when batches up to `retired` are durable at
/// home.
pub(crate) fn header(
    sequence: u64,
    retired: u64,
    salt: u64,
    pages: impl ExactSizeIterator<Item = (PageId, Lsn)>,
) -> [u8; SLOT_HEADER] {
    let mut bytes = [0; SLOT_HEADER];
    put_u64(&mut bytes, MAGIC_AT, MAGIC);
    put_u64(&mut bytes, SEQUENCE_AT, sequence);
    put_u64(&mut bytes, RETIRED_AT, retired);
    put_u64(&mut bytes, COUNT_AT, pages.len() as u64);
    put_u64(&mut bytes, DATABASE_AT, salt);
    for (index, (id, lsn)) in pages.enumerate() {
        put_u64(&mut bytes, LIST_AT + index * 16, id.0);
        put_u64(&mut bytes, LIST_AT + index * 16 + 8, lsn.0);
    }
    let sum = checksum::seeded(salt, &bytes[8..]);
    put_u64(&mut bytes, 0, sum);
    bytes
}

/// A slot that may hold pages whose homes are torn.
struct Slot {
    sequence: u64,
    offset: u64,
    header: AlignedBuffer,
    pages: Vec<PageId>,
    /// Of each copy.
    lsns: Vec<Lsn>,
}

/// What healing has done.
#[derive(Debug, Default)]
pub(crate) struct Healed {
    /// Pages whose homes were torn, or could not be read.
    pub(crate) pages: Vec<PageId>,
    /// What the device would not read of the ring, in words. It counts as what was not written whole: a page that needs it is damaged,
    /// which shows when the page is used, and all others are as they are to be.
    pub(crate) unreadable: Vec<String>,
}

/// Everything that healing works with.
struct Healer<'a> {
    ring: &'a dyn File,
    data: &'a Arc<dyn File>,
    queue: &'a dyn Queue,
    page_size: usize,
    salt: u64,
}

/// Restores torn pages after a crash, before anything else reads the data file. Durable on return.
pub(crate) fn heal(
    ring: &dyn File,
    data: &Arc<dyn File>,
    queue: &dyn Queue,
    page_size: usize,
    salt: u64,
) -> Result<Healed> {
    let healer = Healer { ring, data, queue, page_size, salt };
    let mut healed = Healed::default();
    if planted(Mutation::RingNotHealed) {
        return Ok(healed);
    }
    let slots = healer.live_slots(&mut healed)?;
    let mut seen = BTreeSet::new();
    for slot in slots {
        healer.heal_slot(&slot, &mut seen, &mut healed)?;
    }
    if !planted(Mutation::HealedNotSynced) {
        data.sync(Class::Foreground)?;
    }
    Ok(healed)
}

impl Healer<'_> {
    /// Slots not known to be retired, newest first: a page that is in two of them is taken from the newer one.
    fn live_slots(&self, healed: &mut Healed) -> Result<Vec<Slot>> {
        let mut slots = Vec::new();
        let mut retired = 0;
        let len = self.ring.len()?;
        for slot in 0..SLOTS {
            let offset = slot * slot_bytes(self.page_size) as u64;
            if offset + slot_bytes(self.page_size) as u64 > len {
                break;
            }
            let mut header = AlignedBuffer::zeroed(SLOT_HEADER);
            if let Err(error) = read_again(self.ring, offset, &mut header) {
                let what = format!("pages that slot {slot} of the ring may have held: {error}");
                healed.unreadable.push(what);
                continue;
            }
            let count = get_u64(&header, COUNT_AT) as usize;
            let ours = get_u64(&header, MAGIC_AT) == MAGIC
                && get_u64(&header, DATABASE_AT) == self.salt
                && get_u64(&header, 0) == checksum::seeded(self.salt, &header[8..])
                && count <= batch_pages(self.page_size);
            if ours {
                retired = retired.max(get_u64(&header, RETIRED_AT));
                let listed = |index: usize, at: usize| get_u64(&header, LIST_AT + index * 16 + at);
                slots.push(Slot {
                    sequence: get_u64(&header, SEQUENCE_AT),
                    offset,
                    pages: (0..count).map(|index| PageId(listed(index, 0))).collect(),
                    lsns: (0..count).map(|index| Lsn(listed(index, 8))).collect(),
                    header,
                });
            }
        }
        slots.retain(|slot| slot.sequence > retired);
        slots.sort_by_key(|slot| std::cmp::Reverse(slot.sequence));
        Ok(slots)
    }

    /// Brings a slot's pages home where their homes are torn, or may not be durable.
    fn heal_slot(&self, slot: &Slot, seen: &mut BTreeSet<PageId>, healed: &mut Healed) -> Result<()> {
        let size = self.page_size;
        let mut copies = AlignedBuffer::zeroed(slot.pages.len().max(1) * size);
        for (index, error) in read_pages(self.ring, slot.offset + SLOT_HEADER as u64, size, &mut copies) {
            healed.unreadable.push(format!("{}, as far as it needs its copy: {error}", slot.pages[index]));
        }
        let copy = |index: usize| &copies[index * size..(index + 1) * size];
        // What is not whole belongs to an incomplete slot: its pages' homes were not touched by it, so damage there has
        // another cause, which shows when the page is used. The same holds for a copy that is whole and not the one which the header lists: the batch
        // that was in the slot before has left it, and a slot between the two may have a newer one.
        let is_there = |index: usize| {
            let copy = copy(index);
            page::verify(copy, slot.pages[index], self.salt) == Verdict::Valid
                && page::lsn(copy) == slot.lsns[index]
        };
        let mut places: Vec<usize> = (0..slot.pages.len()).filter(|&index| is_there(index)).collect();
        places.retain(|&index| seen.insert(slot.pages[index]));
        // Homes behind the end of the file were never written, nor are they now: redo brings such pages to life.
        let end = self.data.len()?;
        places.retain(|&index| slot.pages[index].0 < end / size as u64);
        let mut homes = AlignedBuffer::zeroed(slot.pages.len().max(1) * size);
        if self.transfer(Direction::Read, slot, &places, &mut homes).is_err() {
            for &index in &places {
                let home = &mut homes[index * size..(index + 1) * size];
                let offset = slot.pages[index].0 * size as u64;
                if read_again(&**self.data, offset, home).is_err() {
                    // Writing it may help; that it reads as damaged has it written.
                    home.fill(u8::MAX);
                }
            }
        }
        let mut written = Vec::new();
        for &index in &places {
            let (id, home) = (slot.pages[index], &homes[index * size..(index + 1) * size]);
            let verdict = page::verify(home, id, self.salt);
            if verdict == Verdict::Damaged {
                healed.pages.push(id);
            }
            // A home that reads well may still not be durable, if a sync failed before the crash: as long as the copy is not
            // older, it is written again. The copy stays until that is synced.
            if verdict != Verdict::Valid || page::lsn(home) <= page::lsn(copy(index)) {
                written.push(index);
            }
        }
        if !written.is_empty() {
            self.write_again(slot, &written, &copies)?;
        }
        self.transfer(Direction::Write(Durability::Cached), slot, &written, &mut copies)
    }

    /// Makes copies durable that are about to go home. A process that was killed while it wrote a slot leaves one that reads well and may not be durable,
    /// and so does a write that has failed, of which a sync says nothing: so they are written once more, the same bytes in their places. While a home
    /// is written its copy is all there is of a page.
    fn write_again(&self, slot: &Slot, places: &[usize], copies: &AlignedBuffer) -> Result<()> {
        let size = self.page_size;
        let write =
            |offset, bytes: &[u8]| self.ring.write_at(Class::Foreground, offset, bytes, Durability::Cached);
        write(slot.offset, &slot.header)?;
        // Neighbours by one request.
        for run in places.chunk_by(|before, next| before + 1 == *next) {
            let (from, to) = (run[0] * size, (run[0] + run.len()) * size);
            write(slot.offset + (SLOT_HEADER + from) as u64, &copies[from..to])?;
        }
        Ok(self.ring.sync(Class::Foreground)?)
    }

    /// Reads or writes the homes of the pages at these places of a slot, each at the same place of `bytes`.
    fn transfer(
        &self,
        direction: Direction,
        slot: &Slot,
        places: &[usize],
        bytes: &mut AlignedBuffer,
    ) -> Result<()> {
        let (size, start) = (self.page_size, bytes.as_mut_ptr());
        let request = |&index: &usize| Request {
            file: Arc::clone(self.data),
            direction,
            class: Class::Foreground,
            offset: slot.pages[index].0 * size as u64,
            slices: vec![IoSlice { address: start.wrapping_add(index * size), len: size }],
            token: 0,
        };
        submit_and_wait(self.queue, places.iter().map(request).collect(), bytes)
    }
}

/// Reads what will be given up where it cannot be read: once the ring is emptied nobody can try again.
fn read_again(file: &dyn File, offset: u64, bytes: &mut [u8]) -> gannet_io::Result<()> {
    let mut outcome = Ok(());
    for _ in 0..READ_TRIES {
        outcome = file.read_at(Class::Foreground, offset, bytes);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Reads pages that lie one behind the other, where that fails one by one: a bad sector is not to take the others along. Those that cannot be
/// read are zeros, and told of.
fn read_pages(
    file: &dyn File,
    offset: u64,
    size: usize,
    bytes: &mut AlignedBuffer,
) -> Vec<(usize, gannet_io::Error)> {
    if file.read_at(Class::Foreground, offset, bytes).is_ok() {
        return Vec::new();
    }
    let mut failed = Vec::new();
    for (index, page) in bytes.chunks_exact_mut(size).enumerate() {
        if let Err(error) = read_again(file, offset + (index * size) as u64, page) {
            page.fill(0);
            failed.push((index, error));
        }
    }
    failed
}

/// Makes every slot of the ring empty, durably: sequence numbers start anew. Only behind [`heal`].
pub(crate) fn reset(ring: &dyn File, page_size: usize) -> Result<()> {
    let zeros = AlignedBuffer::zeroed(SLOT_HEADER);
    for slot in 0..SLOTS {
        let offset = slot * slot_bytes(page_size) as u64;
        ring.write_at(Class::Foreground, offset, &zeros, Durability::Cached)?;
    }
    ring.sync(Class::Foreground)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_io::Disk;
    use gannet_io::sim::{Chance, CrashPolicy, Faults, SimDisk};
    use std::path::Path;

    const SIZE: usize = 4096;
    const SALT: u64 = 7;
    const HOME: PageId = PageId(3);

    /// A whole page, full of `byte`, which is its LSN as well.
    fn filled(byte: u8) -> AlignedBuffer {
        let mut page = AlignedBuffer::zeroed(SIZE);
        page.fill(byte);
        page::set_lsn(&mut page, Lsn(u64::from(byte)));
        page::seal(&mut page, HOME, SALT);
        page
    }

    fn open(disk: &SimDisk, name: &str) -> Arc<dyn File> {
        let options = gannet_io::OpenOptions { create: true, ..gannet_io::OpenOptions::read_write() };
        disk.open(Path::new(name), &options).unwrap()
    }

    fn heal_on(disk: &SimDisk) -> Result<Healed> {
        let queue = disk.queue(4)?;
        heal(&*open(disk, "/ring"), &open(disk, "/data"), &*queue, SIZE, SALT)
    }

    fn write_slot(ring: &dyn File, sequence: u64, listed: u8, copy: &AlignedBuffer) {
        let mut slot = AlignedBuffer::zeroed(SLOT_HEADER + SIZE);
        let list = [(HOME, Lsn(u64::from(listed)))].into_iter();
        slot[..SLOT_HEADER].copy_from_slice(&header(sequence, 0, SALT, list));
        slot[SLOT_HEADER..].copy_from_slice(copy);
        let offset = sequence % SLOTS * slot_bytes(SIZE) as u64;
        ring.write_at(Class::Deadline, offset, &slot, Durability::Cached).unwrap();
    }

    /// A disk with a page at home, and its next state in a slot that a killed process was writing.
    fn left_by_a_kill(seed: u64) -> SimDisk {
        let disk = SimDisk::new(seed);
        let (ring, data) = (open(&disk, "/ring"), open(&disk, "/data"));
        ring.allocate(0, ring_bytes(SIZE)).unwrap();
        data.write_at(Class::Foreground, HOME.0 * SIZE as u64, &filled(1), Durability::Durable).unwrap();
        ring.sync(Class::Foreground).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        write_slot(&*ring, 1, 2, &filled(2));
        disk
    }

    #[test]
    fn what_a_slot_had_before_it_was_half_written_heals_nothing() {
        let disk = left_by_a_kill(1);
        let (ring, data) = (open(&disk, "/ring"), open(&disk, "/data"));
        disk.corrupt(Path::new("/data"), HOME.0 * SIZE as u64 + 100, 8, 1).unwrap();
        // The header of a newer batch is there, and behind it is still the copy of an older one.
        write_slot(&*ring, 2, 3, &filled(1));
        assert_eq!(heal_on(&disk).unwrap().pages, [HOME]);
        let mut home = AlignedBuffer::zeroed(SIZE);
        data.read_at(Class::Foreground, HOME.0 * SIZE as u64, &mut home).unwrap();
        assert!(home[..] == filled(2)[..]);
    }

    #[test]
    fn a_slot_that_could_not_be_read_kept_the_database_from_opening() {
        let unreadable =
            |chance| Faults { read_error: chance, only: Some("/ring".into()), ..Faults::default() };
        let disk = left_by_a_kill(1);
        disk.corrupt(Path::new("/data"), HOME.0 * SIZE as u64 + 100, 8, 1).unwrap();
        let image = disk.peek_crash(Some(CrashPolicy::KeepAll), 1);
        image.set_faults(unreadable(Chance::OneIn(1)));
        let healed = heal_on(&image).unwrap();
        assert!(healed.pages.is_empty() && healed.unreadable.len() == SLOTS as usize, "{healed:?}");
        assert!(healed.unreadable[0].contains("slot 0"), "{healed:?}");
        // Headers are read, and copies are not.
        let image = disk.peek_crash(Some(CrashPolicy::KeepAll), 1);
        image.set_faults(unreadable(Chance::At((5..50).collect())));
        let healed = heal_on(&image).unwrap();
        assert!(healed.pages.is_empty() && healed.unreadable.len() == 1, "{healed:?}");
        assert!(healed.unreadable[0].starts_with(&HOME.to_string()), "{healed:?}");
        // A failure that passes loses nothing.
        let image = disk.peek_crash(Some(CrashPolicy::KeepAll), 1);
        image.set_faults(unreadable(Chance::At(vec![1, 2, 3, 7, 8])));
        let healed = heal_on(&image).unwrap();
        assert!(healed.pages == [HOME] && healed.unreadable.is_empty(), "{healed:?}");
    }

    #[test]
    fn a_page_was_healed_from_a_slot_that_was_not_durable_and_torn_for_good_by_the_next_crash() {
        for seed in 0..300 {
            for (count, has_failed) in (1..16).flat_map(|count| [false, true].map(|failed| (count, failed))) {
                let disk = left_by_a_kill(seed);
                if has_failed {
                    // What it wrote is read all the same, and no sync makes it durable any more.
                    disk.set_faults(Faults { sync_error: Chance::At(vec![1]), ..Faults::default() });
                    open(&disk, "/ring").sync(Class::Foreground).unwrap_err();
                    disk.set_faults(Faults::default());
                }
                disk.crash_after(count);
                let _ = heal_on(&disk);
                let image = disk.crash_image(seed);
                heal_on(&image).unwrap();
                let mut home = AlignedBuffer::zeroed(SIZE);
                open(&image, "/data").read_at(Class::Foreground, HOME.0 * SIZE as u64, &mut home).unwrap();
                assert_eq!(
                    page::verify(&home, HOME, SALT),
                    Verdict::Valid,
                    "seed {seed}, I/O {count}, {has_failed}"
                );
            }
        }
    }
}
