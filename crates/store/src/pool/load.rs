//! Finding a page's frame, and bringing a page into one.
#![expect(unsafe_code, reason = "reads into frames that are latched exclusively")]

use super::{
    Access, ExclusivePage, FrameKey, Pool, QUEUE_SHIFT, Redo, STATE_MASK, SharedPage, State, Volume, reads,
};
use crate::page::{self, Verdict};
use crate::{Error, Result};
use gannet_base::{Lsn, PageId, clock, sim};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a thread that stands by looks whether what it waits for has arrived.
const POLL_EVERY: Duration = Duration::from_micros(50);

impl Pool {
    /// The frame that holds the page, which was `Valid` when looked at; loads it where necessary.
    pub(super) fn locate(&self, volume: &Volume, key: FrameKey, access: Access<'_>) -> Result<u32> {
        loop {
            let Some(index) = self.table.find(key) else {
                match self.load(volume, key, access)? {
                    Some(index) => return Ok(index),
                    None => continue,
                }
            };
            let frame = &self.frames[index as usize];
            match frame.state() {
                State::Valid => {
                    if matches!(access, Access::Normal) && !frame.referenced.load(Ordering::Relaxed) {
                        frame.referenced.store(true, Ordering::Relaxed);
                    }
                    reads::hit();
                    return Ok(index);
                }
                State::Loading => frame.latch.wait_while(|| self.table.key(index) == key),
                State::InFlight => self.wait_in_flight(volume, index, key),
                State::Raw => {
                    if self.adopt(index, key, State::Raw) {
                        self.finish_load(volume, key, index)?;
                        frame.referenced.store(matches!(access, Access::Normal), Ordering::Relaxed);
                        return Ok(index);
                    }
                }
                State::Failed => {
                    if self.adopt(index, key, State::Failed) {
                        // The device refused the batch; ask again alone, so that the error is this page's own.
                        self.read_page(volume, key, index)?;
                        return Ok(index);
                    }
                }
                State::Free => gannet_base::sync::yield_point(),
            }
        }
    }

    /// The page, for reading, if a frame holds it; and whether the device may have older bytes of it, or part of newer ones. `None` says that
    /// at some moment meanwhile the device had all of it, or that it is being read.
    pub(crate) fn resident(&self, volume: &Volume, id: PageId) -> Option<(SharedPage<'_>, bool)> {
        let key = FrameKey::new(volume.slot, id);
        self.resident_at(self.table.find_surely(key)?, key)
    }

    /// The same for those to whom it is no harm when a page is missed that a frame holds.
    pub(crate) fn glimpse(&self, volume: &Volume, id: PageId) -> Option<SharedPage<'_>> {
        let key = FrameKey::new(volume.slot, id);
        Some(self.resident_at(self.table.find(key)?, key)?.0)
    }

    fn resident_at(&self, index: u32, key: FrameKey) -> Option<(SharedPage<'_>, bool)> {
        let frame = &self.frames[index as usize];
        if frame.state() != State::Valid {
            return None;
        }
        let page = self.latch_shared(index, key)?;
        // A frame is marked as being written before it counts as clean.
        let dirty = frame.rec_lsn.load(Ordering::Acquire) != 0 || frame.writing.load(Ordering::Acquire);
        Some((page, dirty))
    }

    /// Latches the page that was found in the frame; `None` when it is not there any more, or not to be seen yet.
    pub(super) fn latch_shared(&self, index: u32, key: FrameKey) -> Option<SharedPage<'_>> {
        let frame = &self.frames[index as usize];
        if !frame.latch.shared_while(|| self.table.key(index) == key) {
            return None;
        }
        let page = SharedPage { pool: self, index, id: key.page() };
        (self.table.key(index) == key && frame.state() == State::Valid).then_some(page)
    }

    /// Like [`Pool::latch_shared`], exclusively.
    pub(super) fn latch_exclusive(&self, index: u32, key: FrameKey) -> Option<ExclusivePage<'_>> {
        let frame = &self.frames[index as usize];
        if !frame.latch.exclusive_while(|| self.table.key(index) == key) {
            return None;
        }
        if self.table.key(index) == key && frame.state() == State::Valid {
            return Some(ExclusivePage { pool: self, index, id: key.page() });
        }
        frame.latch.release_exclusive_unchanged();
        None
    }

    /// Takes over a frame whose bytes were read ahead: it is then `Loading` and latched. False when somebody else was
    /// first, or the frame has got another page since it was found.
    pub(super) fn adopt(&self, index: u32, key: FrameKey, from: State) -> bool {
        let frame = &self.frames[index as usize];
        if !frame.change_state(from, State::Loading) {
            return false;
        }
        frame.latch.exclusive();
        if self.table.key(index) == key {
            return true;
        }
        // Nobody else takes a frame that is `Loading`, so it is still as we found it.
        frame.set_state(from);
        frame.latch.release_exclusive();
        false
    }

    /// Waits until the page that was found in the frame, if it is read ahead, has arrived: reaps the queue it was given to.
    pub(super) fn wait_in_flight(&self, volume: &Volume, index: u32, key: FrameKey) {
        let frame = &self.frames[index as usize];
        // A frame loses its page before it is `InFlight` for another, maybe by a queue of the same number of another volume:
        // with the key still there it is this page's read.
        let word = frame.state.load(Ordering::Acquire);
        let is_awaited = || self.table.key(index) == key && frame.state.load(Ordering::Acquire) == word;
        if word & STATE_MASK == State::InFlight as u8 && is_awaited() {
            let queue = volume.queue(word >> QUEUE_SHIFT);
            if reads::stands_by() && !sim::active() {
                // Who waits in the system for what ends has to run before anybody else learns of it, and this thread may not for long.
                while is_awaited() {
                    queue.poll();
                    if is_awaited() {
                        clock::sleep(POLL_EVERY);
                    }
                }
            } else {
                queue.wait_until(&mut || !is_awaited());
            }
        }
    }

    /// Reads a page that is not in memory. `None` when somebody else brought it meanwhile.
    fn load(&self, volume: &Volume, key: FrameKey, access: Access<'_>) -> Result<Option<u32>> {
        let index = self.take_frame(access)?;
        let shard = self.table.lock(key);
        if self.table.find_locked(key, &shard).is_some() {
            drop(shard);
            self.give_back(index);
            return Ok(None);
        }
        let frame = &self.frames[index as usize];
        frame.set_state(State::Loading);
        frame.referenced.store(matches!(access, Access::Normal), Ordering::Relaxed);
        self.table.insert(key, index, &shard);
        drop(shard);
        self.stats.misses.fetch_add(1, Ordering::Relaxed);
        if !reads::is_background() {
            self.stats.awaited.fetch_add(1, Ordering::Relaxed);
        }
        self.read_page(volume, key, index)?;
        self.remember_in_ring(access, index, key);
        Ok(Some(index))
    }

    /// Reads into a frame that is `Loading` and latched; afterwards it is valid, or gone with an error.
    fn read_page(&self, volume: &Volume, key: FrameKey, index: u32) -> Result<()> {
        // SAFETY: the frame is latched exclusively by the caller.
        let bytes = unsafe { self.bytes_mut(index) };
        reads::serial();
        let offset = key.page().0 * self.page_size as u64;
        match volume.file.read_at(reads::class(), offset, bytes) {
            Ok(()) => self.finish_load(volume, key, index),
            // A page behind the end of the file was never written; redo may still bring it to life.
            Err(error) if error.kind() == gannet_io::ErrorKind::ShortRead && volume.redo().is_some() => {
                bytes.fill(0);
                self.finish_load(volume, key, index)
            }
            Err(error) => {
                self.drop_frame(index, key);
                if error.kind() == gannet_io::ErrorKind::ShortRead {
                    let what = format!("the file {:?} ends before it: it was cut short", volume.file.path());
                    return Err(Error::damaged_page(key.page(), what));
                }
                Err(error.into())
            }
        }
    }

    /// Verifies and redoes a frame that is `Loading` and latched; opens it to everybody, or drops it with an error.
    fn finish_load(&self, volume: &Volume, key: FrameKey, index: u32) -> Result<()> {
        // SAFETY: the frame is latched exclusively by the caller.
        let bytes = unsafe { self.bytes_mut(index) };
        let frame = &self.frames[index as usize];
        match self.check_and_redo(volume, key.page(), bytes) {
            Ok(redone) => {
                if let Some((redo, rec_lsn)) = redone.filter(|(redo, _)| redo.writes()) {
                    frame.whole_in_log.store(false, Ordering::Relaxed);
                    frame.rec_lsn.store(rec_lsn.0.max(1), Ordering::Release);
                    redo.redone(key.page());
                }
                frame.set_state(State::Valid);
                frame.latch.release_exclusive();
                Ok(())
            }
            Err(error) => {
                self.drop_frame(index, key);
                Err(error)
            }
        }
    }

    fn check_and_redo(
        &self,
        volume: &Volume,
        id: PageId,
        bytes: &mut [u8],
    ) -> Result<Option<(Arc<dyn Redo>, Lsn)>> {
        volume.check_not_forgotten()?;
        let verdict = page::verify(bytes, id, volume.salt);
        if verdict == Verdict::Valid {
            volume.check_not_ahead(id, page::lsn(bytes))?;
        }
        if let Some(redo) = volume.redo()
            && let Some(rec_lsn) = redo.redo(id, bytes, verdict)?
        {
            return Ok(Some((redo, rec_lsn)));
        }
        match verdict {
            Verdict::Valid => Ok(None),
            Verdict::NeverWritten => Err(Error::NeverWritten(id)),
            Verdict::Damaged => Err(Error::damaged_page(
                id,
                format_args!("its checksum does not match (in {:?})", volume.file.path()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::memory::Budget;
    use gannet_io::sim::SimDisk;
    use gannet_io::{Disk, OpenOptions};
    use std::path::Path;

    /// With more than 64 of them, who looked for a page that was there looked for ever.
    #[test]
    fn pages_of_one_number_of_many_databases_are_in_memory_together() {
        let disk = SimDisk::new(1);
        let pool = Pool::new(4096, 1024, &Budget::new(16 << 20)).unwrap();
        let attach = |number: u64| {
            let path = format!("{number}.gnt");
            let file = disk.open(Path::new(&path), &OpenOptions::create_new()).unwrap();
            pool.attach(Volume::new(file, number, vec![disk.queue(8).unwrap()])).unwrap()
        };
        let volumes: Vec<_> = (0..200).map(attach).collect();
        for volume in &volumes {
            for id in [PageId(1), PageId(2)] {
                drop(pool.create(volume, id).unwrap());
            }
        }
        for volume in &volumes {
            assert!(pool.resident(volume, PageId(1)).is_some_and(|(page, _)| page.id() == PageId(1)));
            assert_eq!(pool.shared(volume, PageId(2), Access::Normal).unwrap().id(), PageId(2));
        }
        assert_eq!(pool.stats.misses.load(Ordering::Relaxed), 0);
        volumes.iter().for_each(|volume| pool.detach(volume));
    }
}
