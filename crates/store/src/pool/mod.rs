//! The buffer pool: a fixed number of page frames between the trees and the device.
//!
//! # What it guarantees
//! 1. A page is in at most one frame, and a frame's bytes are touched only under its latch, or optimistically through
//!    relaxed atomic loads whose result is thrown away if the version moved (see [`latch`]).
//! 2. Before a page read from the device is first shown to anybody, its checksum was verified and, after a crash, the
//!    log records it misses were applied ([`Redo`], "redo on first touch").
//! 3. A dirty frame is never evicted, nor one whose write home has not completed: a page read again is never older
//!    than the one evicted.
//! 4. A reader never waits for somebody else's write: the page writer copies a page under its shared latch, for the
//!    time of a `memcpy`, and keeps clean frames ready; a frame is waited for only when every frame is dirty.
//! 5. `rec_lsn` of a dirty frame is a log position not above the start of the oldest record whose change is only in
//!    memory; so everything below the smallest of them is on the device (with the page writer's own list of pages
//!    on their way, see [`crate::writeback`]).
//!
//! # States of a frame
//! ```text
//!            take            load in this thread        verified, redone
//!   Free ───────────► Loading (latched) ───────────────────────────────► Valid
//!     ▲                 ▲      adopt by whoever wants it                   │
//!     │   prefetch      │                                                  │ evict: clean, not being written,
//!     └──────► InFlight ─► Raw (read, not verified) | Failed               │        latch free, not used lately
//!     └───────────────────────────────────────────────────────────────────┘
//! ```
//! Only `Loading` holds the latch: whoever holds it is a running thread. A frame in flight belongs to the device; any
//! thread that needs it reaps the queue it was submitted to, so nobody depends on the one who asked for it.
#![expect(unsafe_code, reason = "page bytes live in one arena; the frame's latch decides who may touch them")]

pub(crate) mod latch;
mod prefetch;
pub(crate) mod reads;
mod table;
mod volume;

use crate::node::RacyNode;
use crate::page::{self, Verdict};
use crate::{Error, Result};
use gannet_base::memory::{Budget, Charge, Purpose};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::{Lsn, PageId, clock};
use gannet_io::{Arena, Class};
use latch::{Latch, Version};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
pub(crate) use table::FrameKey;
use table::{NIL, Table};
pub(crate) use volume::{CleanFrames, Redo, Volume};

/// Fewest frames a pool works with: a structure change latches a handful of pages per thread.
pub(crate) const MIN_FRAMES: usize = 64;

/// How long a page request waits for a clean frame before it gives up.
const FRAME_WAIT_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum State {
    Free,
    Loading,
    InFlight,
    Raw,
    Failed,
    Valid,
}

/// The state's bits of a frame's state word; above them stands the queue that a read in flight was given to.
const STATE_MASK: u8 = 7;
const QUEUE_SHIFT: u32 = 3;
/// Most queues of a volume.
const MAX_QUEUES: usize = 32;

const STATES: [State; 6] =
    [State::Free, State::Loading, State::InFlight, State::Raw, State::Failed, State::Valid];

#[derive(Debug)]
#[repr(align(64))]
struct Frame {
    latch: Latch,
    /// 0 when clean.
    rec_lsn: AtomicU64,
    state: AtomicU8,
    referenced: AtomicBool,
    writing: AtomicBool,
    /// Next frame of the same read request.
    io_next: AtomicU32,
}

impl Frame {
    fn state(&self) -> State {
        STATES[usize::from(self.state.load(Ordering::Acquire) & STATE_MASK)]
    }

    fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    fn set_in_flight(&self, queue: u8) {
        self.state.store(State::InFlight as u8 | queue << QUEUE_SHIFT, Ordering::Release);
    }

    fn change_state(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Plain counters of a pool.
#[derive(Debug, Default)]
pub(crate) struct PoolStats {
    /// Pages read because somebody waited for them.
    pub(crate) misses: AtomicU64,
    /// Pages read ahead.
    pub(crate) prefetched: AtomicU64,
    /// Pages dropped to make room.
    pub(crate) evicted: AtomicU64,
    /// Times a reader found no clean frame.
    pub(crate) frame_waits: AtomicU64,
}

/// How a page is used, which decides what it may push out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access<'a> {
    /// Likely to be used again.
    Normal,
    /// Passed over once: recycles the frames of its own ring.
    Ring(&'a ScanRing),
}

/// The frames one scan may occupy. When the ring is full, the scan's next page takes the place of its oldest one, as
/// long as nobody else has used that in the meantime.
#[derive(Debug)]
pub(crate) struct ScanRing {
    frames: Mutex<std::collections::VecDeque<(u32, FrameKey)>>,
    limit: usize,
    /// The volume's queue that all its reads go to. Whoever waits for a page reaps only the queue that page was given
    /// to; with its reads on several, the backlog of the others would stand still meanwhile.
    queue: std::sync::OnceLock<u8>,
}

impl ScanRing {
    pub(crate) fn new(limit: usize) -> Self {
        ScanRing { frames: Mutex::default(), limit, queue: std::sync::OnceLock::new() }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Pool {
    page_size: usize,
    arena: Arena,
    frames: Box<[Frame]>,
    table: Table,
    volumes: volume::Volumes,
    free: Mutex<Vec<u32>>,
    /// Frames whose memory was given back: in no list, and never chosen for eviction, as they hold no page.
    retired: Mutex<Vec<u32>>,
    /// Frames whose memory was lent out and could not be taken back yet.
    owed: Mutex<usize>,
    hand: AtomicUsize,
    wait_lock: Mutex<()>,
    frame_freed: Condvar,
    waiting: AtomicUsize,
    pub(crate) stats: PoolStats,
    charge: Mutex<Charge>,
}

impl Pool {
    /// Memory in bytes that a pool of `frames` frames takes.
    pub(crate) fn memory(frames: usize, page_size: usize) -> u64 {
        (frames * (page_size + size_of::<Frame>() + size_of::<u32>()) + Table::memory(frames)) as u64
    }

    /// The most frames whose memory is at most `bytes`.
    pub(crate) fn frames_for(bytes: u64, page_size: usize) -> usize {
        let mut frames = (bytes / (page_size as u64 + 64)) as usize;
        while frames > 0 && Self::memory(frames, page_size) > bytes {
            frames -= (frames / 64).max(1);
        }
        frames
    }

    pub(crate) fn new(page_size: usize, frames: usize, budget: &Budget) -> Result<Arc<Self>> {
        let charge = budget.charge(Purpose::Pool, Self::memory(frames, page_size))?;
        let frame = |_| Frame {
            latch: Latch::default(),
            rec_lsn: AtomicU64::new(0),
            state: AtomicU8::new(State::Free as u8),
            referenced: AtomicBool::new(false),
            writing: AtomicBool::new(false),
            io_next: AtomicU32::new(NIL),
        };
        Ok(Arc::new(Pool {
            page_size,
            arena: Arena::new(frames * page_size)?,
            frames: (0..frames).map(frame).collect(),
            table: Table::new(frames),
            volumes: volume::Volumes::default(),
            free: Mutex::new((0..frames as u32).rev().collect()),
            retired: Mutex::default(),
            owed: Mutex::default(),
            hand: AtomicUsize::new(0),
            wait_lock: Mutex::new(()),
            frame_freed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            stats: PoolStats::default(),
            charge: Mutex::new(charge),
        }))
    }

    pub(crate) fn page_size(&self) -> usize {
        self.page_size
    }

    pub(crate) fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// Frames in use or ready to be used.
    pub(crate) fn active_frames(&self) -> usize {
        self.frames.len() - self.retired.lock().len()
    }

    /// Bytes charged to the budget.
    pub(crate) fn charged_bytes(&self) -> u64 {
        self.charge.lock().bytes()
    }

    /// Gives the memory of up to `count` frames back to the budget, keeping at least [`MIN_FRAMES`]; waits for dirty
    /// ones to be written. Gives how many it were.
    pub(crate) fn give_memory(&self, count: usize) -> Result<usize> {
        let mut given = 0;
        while given < count && self.active_frames() > MIN_FRAMES {
            let index = self.take_frame(Access::Normal)?;
            // SAFETY: the frame holds no page and is latched exclusively; its memory reads as zero afterwards.
            unsafe { self.arena.release(index as usize * self.page_size, self.page_size) };
            self.frames[index as usize].latch.release_exclusive();
            self.retired.lock().push(index);
            given += 1;
        }
        let mut charge = self.charge.lock();
        let bytes = charge.bytes() - (given * self.page_size) as u64;
        charge.resize(bytes)?;
        Ok(given)
    }

    /// Takes back the memory of `count` frames that was given. Where the budget has no room for some of them now, they come
    /// with the next call.
    pub(crate) fn return_memory(&self, count: usize) {
        let mut owed = self.owed.lock();
        *owed += count;
        *owed -= self.take_memory(*owed);
    }

    /// Takes memory for up to `count` frames given back before, as far as the budget has room. Gives how many it were.
    fn take_memory(&self, count: usize) -> usize {
        let mut retired = self.retired.lock();
        let mut charge = self.charge.lock();
        let mut taken = 0;
        while taken < count && !retired.is_empty() {
            let bytes = charge.bytes() + self.page_size as u64;
            if charge.resize(bytes).is_err() {
                break;
            }
            self.free.lock().extend(retired.pop());
            taken += 1;
        }
        taken
    }

    /// Makes a database's file known; its pages are addressed by the returned slot.
    pub(crate) fn attach(&self, volume: Volume) -> Result<Arc<Volume>> {
        self.volumes.attach(volume)
    }

    /// Forgets a database and drops its pages without writing them. No page of it may be in use.
    pub(crate) fn detach(&self, volume: &Volume) {
        for index in 0..self.frames.len() as u32 {
            let frame = &self.frames[index as usize];
            while self.table.key(index).volume() == volume.slot && self.table.key(index) != FrameKey::NONE {
                if frame.state() == State::InFlight {
                    self.wait_in_flight(volume, frame);
                }
                frame.latch.exclusive();
                let key = self.table.key(index);
                if key != FrameKey::NONE && key.volume() == volume.slot && frame.state() != State::InFlight {
                    frame.rec_lsn.store(0, Ordering::Relaxed);
                    frame.writing.store(false, Ordering::Relaxed);
                    self.unlink(index, key);
                    frame.latch.release_exclusive();
                    self.free.lock().push(index);
                } else {
                    frame.latch.release_exclusive();
                }
            }
        }
        self.volumes.detach(volume);
    }

    fn address(&self, frame: u32) -> *mut u8 {
        // SAFETY: a frame's number is below the number of frames the arena was made for.
        unsafe { self.arena.as_ptr().add(frame as usize * self.page_size) }
    }

    /// The frame's bytes.
    ///
    /// # Safety
    /// The caller holds the frame's latch, shared or exclusive, for as long as the slice lives.
    unsafe fn bytes(&self, frame: u32) -> &[u8] {
        // SAFETY: the memory is initialised (a fresh mapping is zero) and the latch keeps writers away.
        unsafe { std::slice::from_raw_parts(self.address(frame), self.page_size) }
    }

    /// The frame's bytes, for writing.
    ///
    /// # Safety
    /// The caller holds the frame's latch exclusively, or has taken the frame out of everybody's reach, for as long
    /// as the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the frame's latch is the exclusive borrow")]
    unsafe fn bytes_mut(&self, frame: u32) -> &mut [u8] {
        // SAFETY: as in `bytes`, and nobody else reads or writes through a reference.
        unsafe { std::slice::from_raw_parts_mut(self.address(frame), self.page_size) }
    }

    // ---- getting at pages -------------------------------------------------------------------------------------

    /// The page, for reading.
    pub(crate) fn shared(&self, volume: &Volume, id: PageId, access: Access<'_>) -> Result<SharedPage<'_>> {
        let key = FrameKey::new(volume.slot, id);
        loop {
            let index = self.locate(volume, key, access)?;
            let frame = &self.frames[index as usize];
            frame.latch.shared();
            if self.table.key(index) == key && frame.state() == State::Valid {
                return Ok(SharedPage { pool: self, index, id });
            }
            frame.latch.release_shared();
        }
    }

    /// The page, for changing.
    pub(crate) fn exclusive(&self, volume: &Volume, id: PageId) -> Result<ExclusivePage<'_>> {
        let key = FrameKey::new(volume.slot, id);
        loop {
            let index = self.locate(volume, key, Access::Normal)?;
            let frame = &self.frames[index as usize];
            frame.latch.exclusive();
            if self.table.key(index) == key && frame.state() == State::Valid {
                return Ok(ExclusivePage { pool: self, index, id });
            }
            frame.latch.release_exclusive();
        }
    }

    /// The page, to be read without a latch and validated afterwards.
    pub(crate) fn optimistic(
        &self,
        volume: &Volume,
        id: PageId,
        access: Access<'_>,
    ) -> Result<OptimisticPage<'_>> {
        let key = FrameKey::new(volume.slot, id);
        loop {
            let index = self.locate(volume, key, access)?;
            let frame = &self.frames[index as usize];
            match frame.latch.optimistic() {
                Some(version) if self.table.key(index) == key && frame.state() == State::Valid => {
                    return Ok(OptimisticPage { pool: self, index, id, version });
                }
                Some(_) => {}
                // Somebody changes the page: queue up behind them instead of spinning.
                None => {
                    frame.latch.shared();
                    frame.latch.release_shared();
                }
            }
        }
    }

    /// A page whose earlier contents do not matter: zeroed, latched exclusively, nothing read.
    pub(crate) fn create(&self, volume: &Volume, id: PageId) -> Result<ExclusivePage<'_>> {
        let key = FrameKey::new(volume.slot, id);
        loop {
            if self.table.find(key).is_none() {
                let index = self.take_frame(Access::Normal)?;
                let shard = self.table.lock(key);
                if self.table.find_locked(key, &shard).is_some() {
                    drop(shard);
                    self.give_back(index);
                    continue;
                }
                self.table.insert(key, index, &shard);
                drop(shard);
                // SAFETY: `take_frame` gave the frame latched exclusively.
                unsafe { self.bytes_mut(index) }.fill(0);
                self.frames[index as usize].set_state(State::Valid);
                return Ok(ExclusivePage { pool: self, index, id });
            }
            // An earlier life of the page number is still resident, perhaps only as bytes being read.
            let Some(index) = self.resident_for_create(volume, key) else { continue };
            // SAFETY: the frame is latched exclusively.
            let bytes = unsafe { self.bytes_mut(index) };
            // If nothing comes of it and the frame is dirty, it goes home as it is: with the LSN of its last change, so
            // that redo does not look for all of its history.
            let lsn = page::lsn(bytes);
            bytes.fill(0);
            if self.frames[index as usize].rec_lsn.load(Ordering::Relaxed) != 0 {
                page::set_lsn(bytes, lsn);
            }
            return Ok(ExclusivePage { pool: self, index, id });
        }
    }

    fn resident_for_create(&self, volume: &Volume, key: FrameKey) -> Option<u32> {
        let index = self.table.find(key)?;
        let frame = &self.frames[index as usize];
        if frame.state() == State::InFlight {
            self.wait_in_flight(volume, frame);
        }
        if self.adopt(index, key, State::Raw) || self.adopt(index, key, State::Failed) {
            frame.set_state(State::Valid);
            return Some(index);
        }
        frame.latch.exclusive();
        if self.table.key(index) == key && frame.state() == State::Valid {
            frame.set_state(State::Valid);
            return Some(index);
        }
        frame.latch.release_exclusive();
        None
    }

    /// The frame that holds the page, which was `Valid` when looked at; loads it where necessary.
    fn locate(&self, volume: &Volume, key: FrameKey, access: Access<'_>) -> Result<u32> {
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
                State::Loading => {
                    frame.latch.shared();
                    frame.latch.release_shared();
                }
                State::InFlight => self.wait_in_flight(volume, frame),
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

    /// Takes over a frame whose bytes were read ahead: it is then `Loading` and latched. False when somebody else was
    /// first, or the frame has got another page since it was found.
    fn adopt(&self, index: u32, key: FrameKey, from: State) -> bool {
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

    /// Waits until a read ahead has come to its end, reaping the queue it was given to.
    fn wait_in_flight(&self, volume: &Volume, frame: &Frame) {
        // State and queue are one word: a frame that goes elsewhere meanwhile shows another one.
        let word = frame.state.load(Ordering::Acquire);
        if word & STATE_MASK == State::InFlight as u8 {
            let queue = volume.queue(word >> QUEUE_SHIFT);
            queue.wait_until(&mut || frame.state.load(Ordering::Acquire) != word);
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
        match volume.file.read_at(Class::Foreground, offset, bytes) {
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
            Ok(rec_lsn) => {
                if let Some(rec_lsn) = rec_lsn {
                    frame.rec_lsn.store(rec_lsn.0.max(1), Ordering::Release);
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

    fn check_and_redo(&self, volume: &Volume, id: PageId, bytes: &mut [u8]) -> Result<Option<Lsn>> {
        let verdict = page::verify(bytes, id, volume.salt);
        if let Some(redo) = volume.redo()
            && let Some(rec_lsn) = redo.redo(id, bytes, verdict)?
        {
            return Ok(Some(rec_lsn));
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

    // ---- frames -----------------------------------------------------------------------------------------------

    /// A frame that holds no page, latched exclusively.
    fn take_frame(&self, access: Access<'_>) -> Result<u32> {
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
            if start.elapsed() > FRAME_WAIT_LIMIT {
                let message = format!("no page frame came free within {} s", FRAME_WAIT_LIMIT.as_secs());
                return Err(Error::Invalid(message + "; the memory budget is too small for this load"));
            }
            let mut guard = self.wait_lock.lock();
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.frame_freed.wait_for(&mut guard, Duration::from_millis(5));
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Like [`Pool::take_frame`], but gives up where that would wait.
    fn try_take_frame(&self) -> Option<u32> {
        let popped = self.free.lock().pop();
        if let Some(index) = popped {
            // Only a visitor who came too late can hold the latch, and leaves at once.
            self.frames[index as usize].latch.exclusive();
            return Some(index);
        }
        // Twice around: once to clear the marks of use, once to find a frame without.
        let mut dirty = 0;
        for _ in 0..2 * self.frames.len() {
            let index = self.hand.fetch_add(1, Ordering::Relaxed) % self.frames.len();
            let frame = &self.frames[index];
            if frame.rec_lsn.load(Ordering::Relaxed) != 0 || frame.writing.load(Ordering::Relaxed) {
                dirty += 1;
                if dirty % 64 == 1 {
                    self.volumes.hint_clean_frames();
                }
                frame.referenced.store(false, Ordering::Relaxed);
                continue;
            }
            if frame.referenced.swap(false, Ordering::Relaxed) {
                continue;
            }
            if self.evict(index as u32) {
                return Some(index as u32);
            }
        }
        None
    }

    /// Takes the place of the ring's oldest page, if nobody else uses it.
    fn recycle(&self, ring: &ScanRing) -> Option<u32> {
        let mut frames = ring.frames.lock();
        while frames.len() >= ring.limit {
            let (index, key) = frames.pop_front()?;
            let untouched = self.table.key(index) == key
                && !self.frames[index as usize].referenced.load(Ordering::Relaxed);
            if untouched && self.evict(index) {
                return Some(index);
            }
        }
        None
    }

    fn remember_in_ring(&self, access: Access<'_>, index: u32, key: FrameKey) {
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

    fn unlink(&self, index: u32, key: FrameKey) {
        let shard = self.table.lock(key);
        self.table.remove(key, index, &shard);
        self.frames[index as usize].set_state(State::Free);
    }

    fn give_back(&self, index: u32) {
        self.frames[index as usize].latch.release_exclusive();
        self.free.lock().push(index);
    }

    /// Drops a frame that could not be loaded.
    fn drop_frame(&self, index: u32, key: FrameKey) {
        self.unlink(index, key);
        self.give_back(index);
    }

    /// Frames have become clean: wakes whoever waits for one.
    pub(crate) fn announce_clean(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _guard = self.wait_lock.lock();
            self.frame_freed.notify_all();
        }
    }

    // ---- for the page writer ----------------------------------------------------------------------------------

    /// Frames of the volume that are dirty and not being written: (frame, page, rec_lsn).
    pub(crate) fn dirty_frames(&self, volume: &Volume, out: &mut Vec<(u32, PageId, Lsn)>) {
        out.clear();
        for (index, frame) in self.frames.iter().enumerate() {
            let rec_lsn = frame.rec_lsn.load(Ordering::Acquire);
            if rec_lsn != 0 && !frame.writing.load(Ordering::Acquire) {
                let key = self.table.key(index as u32);
                if key != FrameKey::NONE && key.volume() == volume.slot {
                    out.push((index as u32, key.page(), Lsn(rec_lsn)));
                }
            }
        }
    }

    /// Smallest rec_lsn of the volume's dirty frames.
    pub(crate) fn min_rec_lsn(&self, volume: &Volume) -> Option<Lsn> {
        let of_volume = |(index, frame): (usize, &Frame)| {
            let rec_lsn = frame.rec_lsn.load(Ordering::Acquire);
            (rec_lsn != 0 && self.table.key(index as u32).volume() == volume.slot).then_some(Lsn(rec_lsn))
        };
        self.frames.iter().enumerate().filter_map(of_volume).min()
    }

    /// Where the eviction hand stands: dirty frames just ahead of it are worth cleaning first.
    pub(crate) fn hand(&self) -> usize {
        self.hand.load(Ordering::Relaxed) % self.frames.len()
    }

    /// Copies a dirty page out for writing and marks the frame as being written. `register` is told the page's
    /// rec_lsn before the frame forgets it. `None` when the frame is busy or no longer that dirty page.
    pub(crate) fn copy_for_write(
        &self,
        volume: &Volume,
        index: u32,
        id: PageId,
        out: &mut [u8],
        register: &mut dyn FnMut(Lsn),
    ) -> Option<Lsn> {
        let frame = &self.frames[index as usize];
        if !frame.latch.try_shared() {
            return None;
        }
        let rec_lsn = frame.rec_lsn.load(Ordering::Acquire);
        let ours = self.table.key(index) == FrameKey::new(volume.slot, id)
            && frame.state() == State::Valid
            && rec_lsn != 0
            && !frame.writing.load(Ordering::Acquire);
        let mut lsn = None;
        if ours {
            // SAFETY: the frame is latched shared.
            let bytes = unsafe { self.bytes(index) };
            out.copy_from_slice(bytes);
            lsn = Some(page::lsn(out));
            register(Lsn(rec_lsn));
            frame.writing.store(true, Ordering::Release);
            frame.rec_lsn.store(0, Ordering::Release);
        }
        frame.latch.release_shared();
        lsn
    }

    /// The write of a frame has reached its home: the frame may be evicted again (unless changed meanwhile).
    pub(crate) fn finish_write(&self, index: u32) {
        self.frames[index as usize].writing.store(false, Ordering::Release);
    }
}

/// A page latched shared.
#[derive(Debug)]
pub(crate) struct SharedPage<'p> {
    pool: &'p Pool,
    index: u32,
    id: PageId,
}

impl SharedPage<'_> {
    pub(crate) fn id(&self) -> PageId {
        self.id
    }
}

impl Deref for SharedPage<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: this guard holds the latch shared.
        unsafe { self.pool.bytes(self.index) }
    }
}

impl Drop for SharedPage<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pool.frames[self.index as usize].latch.release_shared();
    }
}

/// A page latched exclusively.
#[derive(Debug)]
pub(crate) struct ExclusivePage<'p> {
    pool: &'p Pool,
    index: u32,
    id: PageId,
}

impl ExclusivePage<'_> {
    pub(crate) fn id(&self) -> PageId {
        self.id
    }

    /// The page is about to change by a record that starts at or behind `log_end`.
    pub(crate) fn mark_dirty(&self, log_end: Lsn) {
        let frame = &self.pool.frames[self.index as usize];
        if frame.rec_lsn.load(Ordering::Relaxed) == 0 {
            frame.rec_lsn.store(log_end.0.max(1), Ordering::Release);
        }
    }

    /// Gives the page other contents while optimistic readers may be looking at it.
    pub(crate) fn publish(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.pool.page_size);
        // SAFETY: the frame is page-aligned, mapped and as long as asserted; this guard holds the latch exclusively.
        unsafe { RacyNode::publish(self.pool.address(self.index), bytes) }
    }
}

impl Deref for ExclusivePage<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: this guard holds the latch exclusively.
        unsafe { self.pool.bytes(self.index) }
    }
}

impl DerefMut for ExclusivePage<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: this guard holds the latch exclusively.
        unsafe { self.pool.bytes_mut(self.index) }
    }
}

impl Drop for ExclusivePage<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pool.frames[self.index as usize].latch.release_exclusive();
    }
}

/// A page looked at without a latch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptimisticPage<'p> {
    pool: &'p Pool,
    index: u32,
    id: PageId,
    version: Version,
}

impl<'p> OptimisticPage<'p> {
    pub(crate) fn id(&self) -> PageId {
        self.id
    }

    /// Address of the page's bytes: to be read through relaxed atomic loads only, and trusted only after
    /// [`OptimisticPage::validate`]. It stays mapped as long as the pool.
    pub(crate) fn address(&self) -> *const u8 {
        self.pool.address(self.index)
    }

    /// Whether everything read so far was the unchanged page.
    #[inline]
    pub(crate) fn validate(&self) -> bool {
        self.pool.frames[self.index as usize].latch.validate(self.version)
    }

    /// Latches the page shared, if it has not changed since.
    pub(crate) fn into_shared(self) -> Option<SharedPage<'p>> {
        let latch = &self.pool.frames[self.index as usize].latch;
        latch.shared();
        let guard = SharedPage { pool: self.pool, index: self.index, id: self.id };
        latch.version_is(self.version).then_some(guard)
    }

    /// Latches the page exclusively, if it has not changed since.
    pub(crate) fn into_exclusive(self) -> Option<ExclusivePage<'p>> {
        let latch = &self.pool.frames[self.index as usize].latch;
        latch.exclusive();
        if latch.version_is(self.version) {
            return Some(ExclusivePage { pool: self.pool, index: self.index, id: self.id });
        }
        // Nothing was changed, and moving the version would only make others start over, too.
        latch.release_exclusive_unchanged();
        None
    }
}
