//! The buffer pool: a fixed number of page frames between the trees and the device.
//!
//! # What it guarantees
//! 1. A page is in at most one frame, and a frame's bytes are touched only under its latch, or optimistically through
//!    relaxed atomic loads whose result is thrown away if the version moved (see [`latch`]).
//! 2. Before a page read from the device is first shown to anybody, its checksum was verified and, after a crash, the
//!    log records it misses were applied ([`Redo`], "redo on first touch").
//! 3. A dirty frame is never evicted, nor one whose write home has not completed: a page read again is never older
//!    than the one evicted. Those of a database that will never write again are, as soon as others wait for frames; and
//!    none of its pages is read again.
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

mod clean;
mod evict;
mod guard;
pub(crate) mod latch;
mod load;
mod prefetch;
pub(crate) mod reads;
mod table;
mod volume;

use crate::{Error, Result, page};
use gannet_base::PageId;
use gannet_base::memory::{Budget, Charge, Purpose};
use gannet_base::sync::{Condvar, Mutex};
use gannet_io::Arena;
pub(crate) use guard::{ExclusivePage, OptimisticPage, SharedPage};
use latch::Latch;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
pub(crate) use table::FrameKey;
use table::{NIL, Table};
pub(crate) use volume::{BACKGROUND_QUEUES, CleanFrames, Redo, Volume};

/// Fewest frames a pool works with: a structure change latches a handful of pages per thread.
pub(crate) const MIN_FRAMES: usize = 64;

/// Frames whose memory is given back at one time.
const GIVEN_AT_ONCE: usize = 1 << 10;
/// Memory of so many bytes is taken from the system ahead of its use, in steps of the size of a huge page.
const POPULATE_AHEAD: usize = 32 << 20;
const POPULATE_STEP: usize = 2 << 20;

/// One page for so many frames, and no more than so many pages, lie behind the frames and take what requests read over.
const OVER_FRAMES: usize = 128;
const OVER_MOST: usize = 1024;

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
    /// While dirty: the log has whole contents of the page behind `rec_lsn`, or nothing leads to the page before it is durable at home.
    whole_in_log: AtomicBool,
    /// Changes since the page was copied to be written.
    changes: AtomicU32,
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
    /// Those of them that were not read for work in the background.
    pub(crate) awaited: AtomicU64,
    /// Pages read ahead.
    pub(crate) prefetched: AtomicU64,
    /// Pages that came into memory without being read, as new ones.
    pub(crate) created: AtomicU64,
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
    frames: Mutex<VecDeque<(u32, FrameKey)>>,
    limit: AtomicUsize,
    /// The volume's queue that all its reads go to. Whoever waits for a page reaps only the queue that page was given
    /// to; with its reads on several, the backlog of the others would stand still meanwhile.
    queue: std::sync::OnceLock<u8>,
}

impl ScanRing {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = AtomicUsize::new(limit);
        ScanRing { frames: Mutex::default(), limit, queue: std::sync::OnceLock::new() }
    }

    /// Lets the ring have at least `limit` frames.
    pub(crate) fn widen(&self, limit: usize) {
        self.limit.fetch_max(limit, Ordering::Relaxed);
    }
}

/// So many items, whose number follows the budget; an error where the system has no memory for them.
fn allocate<T>(count: usize, make: impl FnMut(usize) -> T) -> Result<Box<[T]>> {
    let mut items = Vec::new();
    items.try_reserve_exact(count).map_err(|_| {
        let bytes = count.saturating_mul(size_of::<T>()) as u64;
        let wanted = gannet_base::units::format_size(bytes);
        Error::Invalid(format!(
            "the system has no {wanted} for the tables of page frames: give a smaller memory budget"
        ))
    })?;
    items.extend((0..count).map(make));
    Ok(items.into_boxed_slice())
}

/// See the module's head.
pub(crate) struct Pool {
    page_size: usize,
    arena: Arena,
    frames: Box<[Frame]>,
    table: Table,
    volumes: volume::Volumes,
    /// Frames without a page: used from the back, in the order of their numbers where they are new; lent from the front.
    free: Mutex<VecDeque<u32>>,
    /// Pages behind the frames, by their numbers, that no request in flight reads over others' pages into.
    over: Mutex<Vec<u32>>,
    /// Frames whose memory was given back: in no list, and never chosen for eviction, as they hold no page.
    retired: Mutex<Vec<u32>>,
    /// Held by who gives memory back.
    giving: Mutex<()>,
    /// Frames whose memory was lent out and could not be taken back yet.
    owed: Mutex<usize>,
    /// Frames from this number on have never been used.
    unused_from: AtomicUsize,
    /// Bytes of the arena whose memory was taken from the system ahead of its use.
    populated: AtomicUsize,
    hand: AtomicUsize,
    /// Frames whose pages were changed often since they were written, see [`Pool::take_changed_often`].
    changed_often: Mutex<Vec<u32>>,
    /// The number of evictions at which the page writers are told to look ahead of the hand again.
    tell_at: AtomicU64,
    wait_lock: Mutex<()>,
    frame_freed: Condvar,
    waiting: AtomicUsize,
    pub(crate) stats: PoolStats,
    charge: Mutex<Charge>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Pool { page_size, frames, .. } = self;
        f.debug_struct("Pool")
            .field("page_size", page_size)
            .field("frames", &frames.len())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// Memory in bytes that a pool of `frames` frames takes.
    pub(crate) fn memory(frames: usize, page_size: usize) -> u64 {
        let each = page_size + size_of::<Frame>() + size_of::<u32>();
        (frames * each + Self::over_pages(frames) * page_size + Table::memory(frames)) as u64
    }

    /// How many pages there are behind so many frames.
    fn over_pages(frames: usize) -> usize {
        (frames / OVER_FRAMES).clamp(1, OVER_MOST)
    }

    /// The most frames whose memory is at most `bytes`.
    pub(crate) fn frames_for(bytes: u64, page_size: usize) -> usize {
        // `memory` never falls with the number of frames: the least number that takes more is one too many.
        let (mut fits, mut too_many) = (0, bytes as usize / page_size + 1);
        while fits + 1 < too_many {
            let frames = fits.midpoint(too_many);
            match Self::memory(frames, page_size) <= bytes {
                true => fits = frames,
                false => too_many = frames,
            }
        }
        fits
    }

    pub(crate) fn new(page_size: usize, frames: usize, budget: &Budget) -> Result<Arc<Self>> {
        let charge = budget.charge(Purpose::Pool, Self::memory(frames, page_size))?;
        let frame = |_| Frame {
            latch: Latch::default(),
            rec_lsn: AtomicU64::new(0),
            whole_in_log: AtomicBool::new(false),
            changes: AtomicU32::new(0),
            state: AtomicU8::new(State::Free as u8),
            referenced: AtomicBool::new(false),
            writing: AtomicBool::new(false),
            io_next: AtomicU32::new(NIL),
        };
        let over = frames as u32..(frames + Self::over_pages(frames)) as u32;
        Ok(Arc::new(Pool {
            page_size,
            arena: Arena::new(over.end as usize * page_size)?,
            frames: allocate(frames, frame)?,
            table: Table::new(frames)?,
            volumes: volume::Volumes::default(),
            free: Mutex::new(allocate(frames, |index| (frames - 1 - index) as u32)?.into_vec().into()),
            over: Mutex::new(over.rev().collect()),
            retired: Mutex::default(),
            giving: Mutex::default(),
            owed: Mutex::default(),
            unused_from: AtomicUsize::new(0),
            populated: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
            changed_often: Mutex::default(),
            tell_at: AtomicU64::new(0),
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

    /// Frames without a page.
    pub(crate) fn free_frames(&self) -> usize {
        self.free.lock().len()
    }

    /// Sees to it that some frames that were never used have memory before somebody wants one. The system zeroes memory as it is
    /// first touched, pages of 2 MiB in a piece: not while somebody waits, nor several threads at the same piece.
    pub(crate) fn populate_ahead(&self) {
        loop {
            // Nothing is lent meanwhile, and whoever wants to lend some does not wait.
            let Some(retired) = self.retired.try_lock() else { return };
            let wanted = self.unused_from.load(Ordering::Relaxed) * self.page_size + POPULATE_AHEAD;
            // What is in use by now has memory already, or has given it away.
            let populated = self.populated.load(Ordering::Relaxed);
            let from = populated.max(wanted - POPULATE_AHEAD).next_multiple_of(POPULATE_STEP);
            let end = from + POPULATE_STEP;
            // Memory that is lent is that of the last frames.
            if end > wanted.min((self.frames.len() - retired.len()) * self.page_size) {
                return;
            }
            self.populated.store(end, Ordering::Relaxed);
            self.arena.populate(from, POPULATE_STEP);
        }
    }

    /// Pages of the volume that are in memory.
    pub(crate) fn resident_pages(&self, volume: &Volume, out: &mut Vec<PageId>) {
        for (index, frame) in self.frames.iter().enumerate() {
            let key = self.table.key(index as u32);
            if frame.state() == State::Valid && key != FrameKey::NONE && key.volume() == volume.slot {
                out.push(key.page());
            }
        }
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
    /// ones to be written. Gives how many it were: fewer where no more came free.
    pub(crate) fn give_memory(&self, count: usize) -> Result<usize> {
        // What one has taken counts as active until he has given it.
        let _turn = self.giving.lock();
        self.give(count, || self.take_frame(Access::Normal).map(Some))
    }

    /// The same with what can be had without waiting.
    pub(crate) fn give_ready_memory(&self, count: usize) -> Result<usize> {
        match self.giving.try_lock() {
            Some(_turn) => self.give(count, || Ok(self.try_take_frame())),
            None => Ok(0),
        }
    }

    fn give(&self, count: usize, mut take: impl FnMut() -> Result<Option<u32>>) -> Result<usize> {
        let mut given = 0;
        while given < count {
            let most = (count - given).min(GIVEN_AT_ONCE);
            match self.give_frames(most, &mut take) {
                Ok(0) => break,
                Ok(more) => given += more,
                Err(error) if given == 0 => return Err(error),
                Err(_) => break,
            }
        }
        let mut charge = self.charge.lock();
        let bytes = charge.bytes() - (given * self.page_size) as u64;
        charge.resize(bytes)?;
        Ok(given)
    }

    /// Gives the memory of up to `count` frames back to the system: of unused ones, then of those that `take` takes. Gives how many it were: fewer
    /// where no more came free.
    fn give_frames(&self, count: usize, take: &mut impl FnMut() -> Result<Option<u32>>) -> Result<usize> {
        let count = count.min(self.active_frames().saturating_sub(MIN_FRAMES));
        let mut given: Vec<u32> = Vec::with_capacity(count);
        while given.len() < count {
            let unused = self.free.lock().pop_front();
            let taken = match unused {
                Some(index) => Ok(Some(self.latch_free(index))),
                None => take(),
            };
            match taken {
                Ok(Some(index)) => given.push(index),
                Err(error) if given.is_empty() => return Err(error),
                Ok(None) | Err(_) => break,
            }
        }
        // Side by side they are given back by one call: a call for each of them takes a start of a small job longer than its work.
        given.sort_unstable();
        let mut retired = self.retired.lock();
        for (from, len) in self.ranges(&given) {
            // SAFETY: the frames hold no page and are latched exclusively; their memory reads as zero afterwards.
            unsafe { self.arena.release(from, len) };
        }
        for &index in &given {
            self.frames[index as usize].latch.release_exclusive();
        }
        retired.extend_from_slice(&given);
        Ok(given.len())
    }

    /// Where the memory of frames, whose numbers ascend, begins, and how long it is, taken together where they lie side by side.
    fn ranges(&self, frames: &[u32]) -> impl Iterator<Item = (usize, usize)> {
        let runs = frames.chunk_by(|index, next| index + 1 == *next);
        runs.map(|run| (run[0] as usize * self.page_size, run.len() * self.page_size))
    }

    /// The memory of `count` of the frames that was given comes back one day.
    pub(crate) fn owe(&self, count: usize) {
        *self.owed.lock() += count;
    }

    /// Takes back memory that is owed, as far as the budget has room besides `left` bytes; false when some does not come now.
    pub(crate) fn return_memory(&self, left: u64) -> bool {
        // Somebody is at it. What is owed to them since they looked comes with a later call.
        let Some(mut owed) = self.owed.try_lock() else { return false };
        if *owed == 0 {
            return true;
        }
        let mut retired = self.retired.lock();
        let mut charge = self.charge.lock();
        let mut back = retired.len();
        while *owed > 0 && back > 0 {
            let bytes = charge.bytes() + self.page_size as u64;
            if charge.resize_leaving(bytes, left).is_err() {
                break;
            }
            back -= 1;
            *owed -= 1;
        }
        let mut back = retired.split_off(back);
        back.sort_unstable();
        for (from, len) in self.ranges(&back) {
            self.arena.retake(from, len);
        }
        let mut free = self.free.lock();
        back.into_iter().for_each(|index| free.push_front(index));
        *owed == 0
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
                let found = self.table.key(index);
                self.wait_in_flight(volume, index, found);
                if !self.adopt(index, found, State::Raw) && !self.adopt(index, found, State::Failed) {
                    if !frame.latch.exclusive_while(|| self.table.key(index) == found) {
                        continue;
                    }
                    // In any other state it is somebody's who is about to latch it, to evict it.
                    if self.table.key(index) != found || frame.state() != State::Valid {
                        frame.latch.release_exclusive_unchanged();
                        gannet_base::sync::yield_point();
                        continue;
                    }
                }
                frame.rec_lsn.store(0, Ordering::Relaxed);
                frame.writing.store(false, Ordering::Relaxed);
                self.unlink(index, found);
                frame.latch.release_exclusive();
                self.free.lock().push_back(index);
            }
        }
        self.volumes.detach(volume);
    }

    /// Of a frame, or of a page behind them.
    fn address(&self, number: u32) -> *mut u8 {
        // SAFETY: the number is below that of the frames and the pages behind them, which the arena was made for.
        unsafe { self.arena.as_ptr().add(number as usize * self.page_size) }
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
            if let Some(page) = self.latch_shared(index, key) {
                return Ok(page);
            }
        }
    }

    /// The page, for changing.
    pub(crate) fn exclusive(&self, volume: &Volume, id: PageId) -> Result<ExclusivePage<'_>> {
        self.exclusive_by(volume, id, Access::Normal)
    }

    /// The same. In a ring it keeps its frame until it was written home: see [`crate::writeback::PageWriter::write`].
    pub(crate) fn exclusive_by(
        &self,
        volume: &Volume,
        id: PageId,
        access: Access<'_>,
    ) -> Result<ExclusivePage<'_>> {
        let key = FrameKey::new(volume.slot, id);
        loop {
            let index = self.locate(volume, key, access)?;
            if let Some(page) = self.latch_exclusive(index, key) {
                return Ok(page);
            }
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
                None => frame.latch.wait_while(|| self.table.key(index) == key),
            }
        }
    }

    /// A page whose earlier contents do not matter, and may still be there: latched exclusively, nothing read. Its first change is one that needs
    /// nothing of them.
    pub(crate) fn create(&self, volume: &Volume, id: PageId) -> Result<ExclusivePage<'_>> {
        self.create_by(volume, id, Access::Normal)
    }

    /// The same, as [`Pool::exclusive_by`].
    pub(crate) fn create_by(
        &self,
        volume: &Volume,
        id: PageId,
        access: Access<'_>,
    ) -> Result<ExclusivePage<'_>> {
        let key = FrameKey::new(volume.slot, id);
        if volume.redo().is_some_and(|redo| redo.knows(id)) {
            // If nothing comes of it, what a crash has left at home is to be mended all the same. Where it cannot be, that does not matter
            // here.
            match self.exclusive(volume, id) {
                Ok(page) => page.release_unchanged(),
                Err(Error::Damaged(_) | Error::NeverWritten(_)) => {}
                Err(error) => return Err(error),
            }
        }
        loop {
            if self.table.find(key).is_none() {
                let index = self.take_frame(access)?;
                let shard = self.table.lock(key);
                if self.table.find_locked(key, &shard).is_some() {
                    drop(shard);
                    self.give_back(index);
                    continue;
                }
                self.table.insert(key, index, &shard);
                drop(shard);
                self.stats.created.fetch_add(1, Ordering::Relaxed);
                // SAFETY: `take_frame` gave the frame latched exclusively.
                unsafe { self.bytes_mut(index) }.fill(0);
                let frame = &self.frames[index as usize];
                frame.referenced.store(matches!(access, Access::Normal), Ordering::Relaxed);
                frame.set_state(State::Valid);
                self.remember_in_ring(access, index, key);
                return Ok(ExclusivePage { pool: self, index, id });
            }
            // An earlier life of the page number is still resident, perhaps only as bytes being read.
            if let Some(page) = self.resident_for_create(volume, key) {
                return Ok(page);
            }
        }
    }

    fn resident_for_create(&self, volume: &Volume, key: FrameKey) -> Option<ExclusivePage<'_>> {
        let index = self.table.find(key)?;
        let frame = &self.frames[index as usize];
        self.wait_in_flight(volume, index, key);
        if self.adopt(index, key, State::Raw) || self.adopt(index, key, State::Failed) {
            // Nobody has verified them.
            // SAFETY: `adopt` gave the frame latched exclusively.
            unsafe { self.bytes_mut(index) }.fill(0);
            frame.set_state(State::Valid);
            return Some(ExclusivePage { pool: self, index, id: key.page() });
        }
        // These stay until the first change. If nothing comes of it, a dirty one goes home as it was: the log may not have yet that it is free,
        // so it may be needed after a crash.
        self.latch_exclusive(index, key)
    }
}

#[cfg(test)]
mod tests {
    use crate::mtr::Mtr;
    use crate::page::{self, PageKind};
    use crate::pool::Access;
    use crate::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
    use gannet_base::TreeId;
    use gannet_io::sim::SimDisk;
    use std::path::Path;
    use std::sync::Arc;

    /// The log may not have yet that a page is free, which is given out again: if nothing comes of that, it is what a crash leaves of the page.
    #[test]
    fn a_page_that_is_created_and_not_changed_keeps_what_it_had() {
        let options = EngineOptions { memory: 32 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        let db =
            engine.create(Path::new("a.gnt"), &CreateOptions::default(), &OpenOptions::default()).unwrap();
        let core = Arc::clone(&db.begin(TransactionOptions::default()).shared.core);
        let tree = TreeId(77);
        let mut mtr = Mtr::new(&core);
        let (id, part) = mtr.allocate(tree, &[]).unwrap();
        mtr.format(part, PageKind::Overflow, tree, b"what it was");
        mtr.commit().unwrap();
        let bytes = || core.pool.shared(&core.volume, id, Access::Normal).unwrap().to_vec();
        let before = bytes();
        for is_dirty in [true, false] {
            if !is_dirty {
                db.checkpoint().unwrap();
            }
            let mut mtr = Mtr::new(&core);
            mtr.add(core.pool.create(&core.volume, id).unwrap());
            drop(mtr);
            assert_eq!(bytes(), before);
        }
        // The first change needs nothing of it.
        let mut mtr = Mtr::new(&core);
        let part = mtr.add(core.pool.create(&core.volume, id).unwrap());
        mtr.format(part, PageKind::Overflow, tree, b"other");
        mtr.commit().unwrap();
        let (now, content) = (bytes(), page::HEADER_LEN..page::HEADER_LEN + 11);
        assert_eq!(now[content.clone()], *b"other\0\0\0\0\0\0");
        assert!(page::lsn(&now) > page::lsn(&before) && before[content] == *b"what it was");
    }
}
