//! Frames for pages to come: free ones, those of pages nobody uses, and waiting where there are none.

use super::{Access, FRAME_WAIT_LIMIT, FrameKey, Pool, ScanRing, State, Volume};
use crate::{Error, Result};
use gannet_base::{PageId, clock};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How many pages of a ring that are not home yet are passed over for one that is.
const DIRTY_PASSED: usize = 64;

impl Pool {
    /// A frame that holds no page, latched exclusively.
    pub(super) fn take_frame(&self, access: Access<'_>) -> Result<u32> {
        let start = clock::now();
        loop {
            if let Access::Ring(ring) = access
                && let Some(index) = self.recycle(ring)
            {
                return Ok(index);
            }
            if let Some(index) = self.try_take_frame() {
                return Ok(index);
            }
            self.stats.frame_waits.fetch_add(1, Ordering::Relaxed);
            // Pages read ahead and given up by whoever asked for them come free by being reaped.
            self.volumes.poll();
            self.volumes.ask_for_clean_frames()?;
            if self.forget_unwritable() {
                continue;
            }
            if start.elapsed() > FRAME_WAIT_LIMIT {
                let message = format!("no page frame came free within {} s", FRAME_WAIT_LIMIT.as_secs());
                return Err(Error::NoFrame(message + "; the memory budget is too small for this load"));
            }
            let mut guard = self.wait_lock.lock();
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.frame_freed.wait_for(&mut guard, Duration::from_millis(5));
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Like [`Pool::take_frame`], but gives up where that would wait.
    pub(super) fn try_take_frame(&self) -> Option<u32> {
        let popped = self.free.lock().pop_back();
        if let Some(index) = popped {
            self.unused_from.fetch_max(index as usize + 1, Ordering::Relaxed);
            return Some(self.latch_free(index));
        }
        // Twice around: once to clear the marks of use, once to find a frame without.
        let mut dirty = 0;
        for _ in 0..2 * self.frames.len() {
            let index = self.hand.fetch_add(1, Ordering::Relaxed) % self.frames.len();
            let frame = &self.frames[index];
            if frame.referenced.swap(false, Ordering::Relaxed) {
                continue;
            }
            if frame.rec_lsn.load(Ordering::Relaxed) != 0 || frame.writing.load(Ordering::Relaxed) {
                // The page writers have fallen behind.
                dirty += 1;
                if dirty % 64 == 1 {
                    self.volumes.hint_clean_frames();
                }
                continue;
            }
            if self.evict(index as u32) {
                if self.stats.evicted.load(Ordering::Relaxed) >= self.tell_at.load(Ordering::Relaxed) {
                    self.tell_at.store(u64::MAX, Ordering::Relaxed);
                    self.volumes.hint_clean_frames();
                }
                return Some(index as u32);
            }
        }
        None
    }

    /// A frame that was taken from the list of free ones.
    pub(super) fn latch_free(&self, index: u32) -> u32 {
        // Only a visitor who came too late can hold the latch, and leaves at once.
        self.frames[index as usize].latch.exclusive();
        index
    }

    /// Takes the place of the ring's oldest page, if nobody else uses it. Pages that are to be written home first keep their places, and are asked
    /// again later: the ring is longer meanwhile, up to twice as long.
    pub(super) fn recycle(&self, ring: &ScanRing) -> Option<u32> {
        let mut frames = ring.frames.lock();
        let limit = ring.limit.load(Ordering::Relaxed);
        let mut dirty = 0;
        while frames.len() >= limit && dirty < DIRTY_PASSED {
            let (index, key) = frames.pop_front()?;
            let frame = &self.frames[index as usize];
            let untouched = self.table.key(index) == key && !frame.referenced.load(Ordering::Relaxed);
            if untouched && self.evict(index) {
                return Some(index);
            }
            let is_dirty =
                frame.rec_lsn.load(Ordering::Relaxed) != 0 || frame.writing.load(Ordering::Relaxed);
            if untouched && is_dirty && frames.len() < 2 * limit {
                frames.push_back((index, key));
                dirty += 1;
            }
        }
        None
    }

    pub(super) fn remember_in_ring(&self, access: Access<'_>, index: u32, key: FrameKey) {
        if let Access::Ring(ring) = access {
            ring.frames.lock().push_back((index, key));
        }
    }

    /// Empties a clean frame that nobody uses; it is then latched exclusively. False when it is in use.
    fn evict(&self, index: u32) -> bool {
        let frame = &self.frames[index as usize];
        if frame.change_state(State::Raw, State::Loading) || frame.change_state(State::Failed, State::Loading)
        {
            // Read ahead and never used.
            frame.latch.exclusive();
            self.unlink(index, self.table.key(index));
            return true;
        }
        if frame.state() != State::Valid || !frame.latch.try_exclusive() {
            return false;
        }
        let clean = frame.rec_lsn.load(Ordering::Acquire) == 0 && !frame.writing.load(Ordering::Acquire);
        if frame.state() != State::Valid || !clean {
            frame.latch.release_exclusive();
            return false;
        }
        self.stats.evicted.fetch_add(1, Ordering::Relaxed);
        self.unlink(index, self.table.key(index));
        true
    }

    pub(super) fn unlink(&self, index: u32, key: FrameKey) {
        let shard = self.table.lock(key);
        self.table.remove(key, index, &shard);
        drop(shard);
        let frame = &self.frames[index as usize];
        frame.set_state(State::Free);
        // The latch stays with the frame, maybe for long. Who waits for the page does not wait for that.
        frame.latch.renew();
    }

    pub(super) fn give_back(&self, index: u32) {
        self.frames[index as usize].latch.release_exclusive();
        self.free.lock().push_back(index);
    }

    /// Drops a frame that could not be loaded.
    pub(super) fn drop_frame(&self, index: u32, key: FrameKey) {
        self.unlink(index, key);
        self.give_back(index);
    }

    /// Drops pages of the volume from `end` on, which the file has no more, as far as nobody looks at them just now.
    pub(crate) fn forget_behind(&self, volume: &Volume, end: PageId) {
        for index in 0..self.frames.len() as u32 {
            let key = self.table.key(index);
            let is_behind = key != FrameKey::NONE && key.volume() == volume.slot && key.page() >= end;
            // Another page that has got the frame meanwhile is read again.
            if is_behind && self.evict(index) {
                self.give_back(index);
            }
        }
    }

    /// Frames have become clean: wakes whoever waits for one.
    pub(crate) fn announce_clean(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _guard = self.wait_lock.lock();
            self.frame_freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FRAME_WAIT_LIMIT, FrameKey, Ordering};
    use crate::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
    use gannet_base::sim::Simulation;
    use gannet_base::{PageId, clock, thread};
    use gannet_io::sim::SimDisk;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    /// Who found a page in a frame does not wait for what the frame is used for next.
    #[test]
    fn a_wait_for_a_page_ends_when_its_frame_is_taken() {
        let run = |exclusive: bool| {
            let options = EngineOptions { memory: 32 << 20, ..EngineOptions::default() };
            let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
            let db = engine
                .create(Path::new("a.gnt"), &CreateOptions::default(), &OpenOptions::default())
                .unwrap();
            db.checkpoint().unwrap();
            let core = Arc::clone(&db.begin(TransactionOptions::default()).shared.core);
            let id = PageId(3);
            let taken = core.pool.exclusive(&core.volume, id).unwrap();
            let (index, key) = (taken.index, FrameKey::new(core.volume.slot, id));
            let other = Arc::clone(&core);
            let waiting = thread::spawn("waiting", move || match exclusive {
                true => other.pool.latch_exclusive(index, key).is_none(),
                false => other.pool.latch_shared(index, key).is_none(),
            });
            clock::sleep(Duration::from_millis(1));
            core.pool.unlink(index, key);
            assert!(waiting.join().unwrap(), "the page is not there any more");
            std::mem::forget(taken);
            core.pool.give_back(index);
        };
        Simulation::new(1).max_steps(100_000).run(move || run(false)).unwrap();
        Simulation::new(2).max_steps(100_000).run(move || run(true)).unwrap();
    }
    /// A rollback that met a minute without frames ended the database.
    #[test]
    fn a_rollback_waits_until_there_are_frames_again() {
        let run = || {
            let options = EngineOptions { memory: 8 << 20, ..EngineOptions::default() };
            let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
            let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
            let open = OpenOptions { sweep: false, warm: false, ..OpenOptions::default() };
            let db = engine.create(Path::new("a.gnt"), &create, &open).unwrap();
            let mut txn = db.begin(TransactionOptions::default());
            let tree = txn.create_tree("t").unwrap();
            (0..200_u64).for_each(|key| txn.insert(&tree, &key.to_be_bytes(), &[7; 100]).unwrap());
            txn.commit().unwrap();
            let mut txn = db.begin(TransactionOptions::default());
            (0..200_u64).for_each(|key| txn.put(&tree, &key.to_be_bytes(), &[8; 90]).unwrap());
            db.checkpoint().unwrap();
            let core = Arc::clone(&txn.shared.core);
            let taken: Vec<u32> = std::iter::from_fn(|| core.pool.try_take_frame()).collect();
            let rolling = thread::spawn("rolls back", move || txn.rollback());
            clock::sleep(FRAME_WAIT_LIMIT * 2);
            assert!(core.pool.stats.frame_waits.load(Ordering::Relaxed) > 12_000, "there were frames");
            taken.into_iter().for_each(|index| core.pool.give_back(index));
            rolling.join().unwrap().unwrap();
            let mut txn = db.begin(TransactionOptions::default());
            assert_eq!(txn.get(&tree, &7_u64.to_be_bytes()).unwrap(), Some(vec![7; 100]));
            txn.put(&tree, b"more", b"").unwrap();
            txn.commit().unwrap();
        };
        Simulation::new(3).max_steps(10_000_000).run(run).unwrap();
    }
}
