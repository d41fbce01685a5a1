//! The page writer: brings dirty pages home, keeps clean frames ready, and moves the checkpoint on.
//!
//! # What it guarantees
//! 1. A page goes home only when the log is durable up to the page's LSN.
//! 2. Torn pages are healed: a batch of pages is first written, durably, to a slot of the *double-write ring*, then
//!    home. A slot is used again only after the data file was synced behind the batch. After a crash every page named
//!    by a slot not known to be retired is verified, and restored from the slot where its home is torn. Where the
//!    device makes writes of a page whole or not at all, the ring is left out. So it is for a page of which the log has
//!    whole contents (a page's first ones, or an image) behind its rec_lsn: by 3 they are there until its home is durable,
//!    and redo begins with them, whatever is at home; and for a leaf that is filled beside the log, to which nothing leads before it is durable
//!    at home. But a page that a slot may still heal goes there again: what a slot
//!    holds is never older than what has come home.
//! 3. The checkpoint (`redo_from` in the file header) never passes a page change that is not durable in the data
//!    file: it is at most the smallest rec_lsn of the dirty frames and of the batches not yet synced.
//! 4. Two writes of one page are never in flight together: a frame being written is not picked again.
//! 5. What came home is noted in the log, behind the sync of the data file that made it durable. So a restart looks only at
//!    pages that were dirty, or had just been written, however many the log's window has. Where there is no room for a note, a footer cannot tell of it, or a crash
//!    takes it, a page is looked at that need not be. Whoever wants a page never to be looked at again has the notes made durable, and asks
//!    whether one was left out ([`PageWriter::unnoted_up_to`]): that is a compaction, before it cuts the file.
//!
//! # Why a crash at any point is harmless
//! - before the slot is complete: the slot's checksum does not verify; no home was touched.
//! - while pages go home: the slot is complete and durable; torn homes are healed from it before anything else
//!   happens. A home that was not written at all is brought up to date from the log, and a torn one that no slot holds is made
//!   of it. One that an older slot holds is restored to that state first: redo goes on from there to the whole contents.
//! - before the sync of the data file: as before; the slot is still there, since slots are reused only after a sync.
//! - after it: the slot is stale, but says so: every slot written later names the last retired one, and a valid home
//!   is never touched.
//! - after a sync that failed, whoever made it: nothing is noted and no slot retired, and nothing tells which bytes of the homes are durable, however well they read. So healing
//!   writes every page home again that a live slot holds in no older state.
//! - where the ring cannot be read: what cannot is left out, as if it had not been written whole; a torn home that needs it shows as damaged,
//!   and one that an older slot made older than redo begins does not fit its history in the log.
//! - while healing: homes are restored from slots that hold what they hold until everything is synced; then the ring is
//!   emptied, and only then used again. What goes home is written to its slot again before, the same bytes, and that synced: a process that was killed, and a
//!   write that failed, leave a slot that reads well and is not durable.
//!
//! The term and the idea are InnoDB's (Heikki Tuuri); that whole contents in the log heal as well is how PostgreSQL does it for all pages.

use crate::batch::submit_and_wait;
use crate::core::Core;
use crate::mutation::{Mutation, planted};
use crate::page;
use crate::pool::CleanFrames;
use crate::ring::{self, SLOT_HEADER, SLOTS, batch_pages, slot_bytes};
use crate::{Error, Result};
use gannet_base::memory::Charge;
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::{Lsn, PageId};
use gannet_io::{AlignedBuffer, Class, Direction, Durability, File, IoSlice, Queue, Request};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long the writer sleeps when nothing asks for it.
const IDLE_PAUSE: Duration = Duration::from_millis(50);
/// Batches after which the data file is synced, however few slots they have taken: a sync is not to last for long.
const UNSYNCED: usize = 64;
/// The checkpoint moves in steps of this part of `wal_limit`: pages become due, and are looked for, together.
const STEP_SHARE: u64 = 32;

/// Work waiting for the writer.
#[derive(Debug, Default)]
struct Requests {
    stop: bool,
    /// Look whether frames ahead of the eviction hand are dirty.
    look_ahead: bool,
    /// Somebody waits for a clean frame.
    clean_frames: bool,
    /// Write everything and move the checkpoint to the log's end: the disk is full, and old segments are the way out.
    short_log: bool,
    /// Write these pages: they are as they will stay.
    complete: Vec<Range<u64>>,
}

/// A batch that has not been made durable in the data file.
#[derive(Debug)]
struct Pending {
    number: u64,
    rec_lsn: Lsn,
    /// Every page of it was written home. One that failed halfway stays in the list for ever, and so does the checkpoint.
    home: bool,
    /// Its pages, each with the LSN that it was written with.
    pages: Vec<(PageId, Lsn)>,
}

/// Called when the checkpoint can move: persists it and lets the log forget what is below.
pub(crate) trait Checkpoint: Send + Sync + std::fmt::Debug {
    /// Everything below `redo_from` is durable in the data file. One that is lower than what was said before says nothing new.
    fn advance(&self, redo_from: Lsn) -> Result<()>;
}

#[derive(Debug)]
struct Buffer {
    /// Slot header and pages.
    bytes: AlignedBuffer,
    /// Pages in slots that no durable slot says to be retired, each with the newest of them.
    in_ring: HashMap<PageId, u64>,
    _charge: Charge,
}

/// The page writer of one database. [`PageWriter::run`] is the body of its thread.
#[derive(Debug)]
pub(crate) struct PageWriter {
    core: Arc<Core>,
    ring: Option<Arc<dyn File>>,
    queue: Arc<dyn Queue>,
    checkpoint: Arc<dyn Checkpoint>,
    requests: Mutex<Requests>,
    wake: Condvar,
    progress: Condvar,
    /// Held by whoever writes a batch: the thread, or a checkpoint at shutdown.
    buffer: Mutex<Buffer>,
    pending: Mutex<Vec<Pending>>,
    /// Batches begun.
    batches: AtomicU64,
    /// The last slot of the ring that was written, and the last one whose pages are durable at home.
    sequence: AtomicU64,
    retired: AtomicU64,
    /// Redo floor while restart is not finished: the checkpoint stays below it.
    floor: AtomicU64,
    redo_from: AtomicU64,
    /// See [`PageWriter::unnoted_up_to`].
    unnoted_up_to: AtomicU64,
    /// End of the log when pages were last looked for that its window makes due.
    window_seen: AtomicU64,
    pages_written: AtomicU64,
    ended: AtomicBool,
}

impl PageWriter {
    pub(crate) fn new(
        core: Arc<Core>,
        ring: Option<Arc<dyn File>>,
        queue: Arc<dyn Queue>,
        checkpoint: Arc<dyn Checkpoint>,
        redo_from: Lsn,
    ) -> Result<Arc<Self>> {
        let len = slot_bytes(core.page_size);
        let charge = core.budget.charge(gannet_base::memory::Purpose::Io, len as u64)?;
        Ok(Arc::new(PageWriter {
            core,
            ring,
            queue,
            checkpoint,
            requests: Mutex::default(),
            wake: Condvar::new(),
            progress: Condvar::new(),
            buffer: Mutex::new(Buffer {
                bytes: AlignedBuffer::zeroed(len),
                in_ring: HashMap::new(),
                _charge: charge,
            }),
            pending: Mutex::default(),
            batches: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            floor: AtomicU64::new(u64::MAX),
            redo_from: AtomicU64::new(redo_from.0),
            unnoted_up_to: AtomicU64::new(0),
            window_seen: AtomicU64::new(redo_from.0),
            pages_written: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        }))
    }

    /// Keeps the checkpoint from passing `floor`; `None` lets it go.
    pub(crate) fn set_floor(&self, floor: Option<Lsn>) {
        self.floor.store(floor.map_or(u64::MAX, |f| f.0), Ordering::SeqCst);
    }

    /// Changes up to here may have come home in this life without a note of it in the log; later ones have not.
    pub(crate) fn unnoted_up_to(&self) -> Lsn {
        Lsn(self.unnoted_up_to.load(Ordering::Relaxed))
    }

    /// Pages written home so far.
    pub(crate) fn pages_written(&self) -> u64 {
        self.pages_written.load(Ordering::Relaxed)
    }

    /// Where a restart would begin to redo.
    pub(crate) fn redo_from(&self) -> Lsn {
        Lsn(self.redo_from.load(Ordering::Relaxed))
    }

    /// Until [`PageWriter::stop`] or a failure.
    pub(crate) fn run(&self) {
        let mut busy = false;
        loop {
            let request = {
                let mut requests = self.requests.lock();
                if !busy && !requests.stop && !requests.any() {
                    self.wake.wait_for(&mut requests, IDLE_PAUSE);
                }
                if requests.stop {
                    break;
                }
                std::mem::take(&mut *requests)
            };
            match self.work(&request) {
                Ok(wrote) => busy = wrote,
                Err(error) => {
                    self.core.poison.set_by(&error);
                    break;
                }
            }
            self.progress.notify_all();
        }
        self.ended.store(true, Ordering::SeqCst);
        self.progress.notify_all();
        self.core.pool.announce_clean();
    }

    /// Ends the thread after its current batch.
    pub(crate) fn stop(&self) {
        self.requests.lock().stop = true;
        self.wake.notify_all();
    }

    /// One round: everything the log's window or the lack of clean frames asks for. Says whether the next one is due at once.
    ///
    /// A page is written as late as possible, as more changes may come to it until then: when the eviction hand is about to
    /// take its frame, unless somebody has used it since the hand came by the last time; when its oldest change falls
    /// out of the log's window; or when it has become so many changes that a restart would be long about them.
    fn work(&self, request: &Requests) -> Result<bool> {
        self.core.poison.check()?;
        let mut chosen = Vec::new();
        self.core.pool.next_victims(&self.core.volume, request.clean_frames, &mut chosen);
        self.core.pool.take_changed_often(&self.core.volume, &mut chosen);
        chosen.extend(self.dirty_of(request.complete.iter().cloned().flatten().map(PageId)));
        let window = request.short_log || self.is_window_due();
        if window {
            let end = self.core.log.end();
            let below = if request.short_log { end } else { self.window_target(end) };
            chosen.extend(self.dirty(|_, since| since < below));
            self.window_seen.store(end.0, Ordering::Relaxed);
        }
        let mut written = self.write_all(chosen)?;
        if written == 0 && request.clean_frames {
            // Those next to the eviction hand are all latched, it may be by the very threads that wait.
            written = self.write_all(self.dirty(|_, _| true))?;
        }
        self.core.pool.tell_when_used_up();
        // Otherwise batches stay in the ring until their slots are needed: a sync for each would cost more.
        if window || (written == 0 && !request.any()) {
            self.sync_and_advance(request.short_log)?;
        }
        Ok(written > 0 && self.is_window_due())
    }

    /// Dirty pages of which that is wanted; asked with the page, and since when it is dirty.
    fn dirty(&self, is_wanted: impl Fn(PageId, Lsn) -> bool) -> Vec<(u32, PageId)> {
        let mut dirty = Vec::new();
        self.core.pool.dirty_frames(&self.core.volume, &mut dirty);
        dirty.retain(|&(_, id, since)| is_wanted(id, since));
        dirty.into_iter().map(|(frame, id, _)| (frame, id)).collect()
    }

    /// Those of these pages that are dirty.
    fn dirty_of(&self, pages: impl IntoIterator<Item = PageId>) -> Vec<(u32, PageId)> {
        let frame = |id| Some((self.core.pool.dirty_frame(&self.core.volume, id)?, id));
        pages.into_iter().filter_map(frame).collect()
    }

    /// Writes pages home as far as they are not busy; says how many it were.
    fn write_all(&self, mut pages: Vec<(u32, PageId)>) -> Result<usize> {
        // In the order of the file: neighbours go home in one request.
        pages.sort_unstable_by_key(|&(_, id)| id);
        pages.dedup();
        let mut written = 0;
        for batch in pages.chunks(batch_pages(self.core.page_size)) {
            // A list may have all that is dirty: whoever ends the thread has a deadline.
            if self.requests.lock().stop {
                break;
            }
            written += self.write_batch(batch)?;
            self.core.pool.announce_clean();
        }
        Ok(written)
    }

    /// Whether the log has grown by a step since pages were last looked for that are due, or has come near its limit.
    fn is_window_due(&self) -> bool {
        let step = self.core.wal_limit / STEP_SHARE;
        let grown = self.core.log.end().0.saturating_sub(self.window_seen.load(Ordering::Relaxed));
        grown >= step || self.core.log.used_bytes() > self.core.wal_limit / 8 * 5
    }

    /// Pages dirty since before this position are due when the log ends at `end`: half the log window is kept free, so
    /// that the oldest part is written while it is still far from the limit.
    fn window_target(&self, end: Lsn) -> Lsn {
        Lsn(end.0.saturating_sub(self.core.wal_limit / 2))
    }

    /// Writes up to a batch of dirty pages home; those that are busy just now are left out. Says how many it were.
    fn write_batch(&self, pages: &[(u32, PageId)]) -> Result<usize> {
        let mut buffer = self.buffer.lock();
        // Before somebody else gets at the buffer, and with it at the checkpoint: what a failed batch took is dirty no more.
        self.write_pages(&mut buffer, pages).inspect_err(|error| self.core.poison.set_by(error))
    }

    fn write_pages(&self, buffer: &mut Buffer, pages: &[(u32, PageId)]) -> Result<usize> {
        self.core.poison.check()?;
        let number = self.batches.fetch_add(1, Ordering::Relaxed) + 1;
        let size = self.core.page_size;
        let mut taken: Vec<(u32, PageId)> = Vec::with_capacity(pages.len());
        // How many of them, from the first one on, go to the ring.
        let mut ringed = 0;
        let mut states = Vec::with_capacity(pages.len());
        let mut highest = Lsn::ZERO;
        self.pending.lock().push(Pending { number, rec_lsn: Lsn(u64::MAX), home: false, pages: Vec::new() });
        let with_entry = |change: &mut dyn FnMut(&mut Pending)| {
            let mut pending = self.pending.lock();
            change(pending.iter_mut().find(|p| p.number == number).expect("pushed above"));
        };
        let Buffer { bytes, in_ring, .. } = buffer;
        // One that becomes whole meanwhile comes by twice: then it is being written already, and there may be no room behind the last one.
        let is_whole = |&&(frame, id): &&(u32, PageId)| {
            self.core.pool.is_whole_in_log(frame) && !in_ring.contains_key(&id)
        };
        for &(frame, id) in pages.iter().filter(|page| !is_whole(page)).chain(pages.iter().filter(is_whole)) {
            if taken.len() == pages.len() {
                break;
            }
            let at = SLOT_HEADER + taken.len() * size;
            let out = &mut bytes[at..at + size];
            let mut register =
                |rec_lsn: Lsn| with_entry(&mut |entry| entry.rec_lsn = entry.rec_lsn.min(rec_lsn));
            let copied = self.core.pool.copy_for_write(&self.core.volume, frame, id, out, &mut register);
            if let Some((lsn, is_whole)) = copied {
                highest = highest.max(lsn);
                page::seal(&mut bytes[at..at + size], id, self.core.volume.salt);
                taken.push((frame, id));
                states.push((id, lsn));
                if !is_whole || in_ring.contains_key(&id) {
                    ringed = taken.len();
                }
            }
        }
        if taken.is_empty() {
            self.pending.lock().retain(|p| p.number != number);
            return Ok(0);
        }
        if self.pending.lock().len() > UNSYNCED {
            self.sync_data()?;
        }
        let slot = if ringed > 0 { Some(self.take_slot()?) } else { None };
        // A change that could not be logged must not get home: the check comes after the copies.
        self.core.poison.check()?;
        if planted(Mutation::HomeNotedEarly) {
            self.core.log.append_homes(&states)?;
        }
        if !planted(Mutation::HomeBeforeLog) {
            self.core.log.flush_to(highest)?;
        }
        if planted(Mutation::HomeBeforeRing) {
            self.write_home(bytes, &taken)?;
        }
        if let Some(sequence) = slot {
            let retired = self.write_slot(bytes, sequence, &taken[..ringed])?;
            in_ring.retain(|_, slot| *slot > retired);
            in_ring.extend(taken[..ringed].iter().map(|&(_, id)| (id, sequence)));
        }
        self.write_home(bytes, &taken)?;
        with_entry(&mut |entry| (entry.home, entry.pages) = (true, std::mem::take(&mut states)));
        for &(frame, _) in &taken {
            self.core.pool.finish_write(frame);
        }
        self.pages_written.fetch_add(taken.len() as u64, Ordering::Relaxed);
        Ok(taken.len())
    }

    /// Makes sure that the next slot is free, and gives its number.
    fn take_slot(&self) -> Result<u64> {
        let sequence = self.sequence.load(Ordering::Relaxed) + 1;
        let is_taken = sequence > self.retired.load(Ordering::Relaxed) + SLOTS;
        if is_taken && !planted(Mutation::SlotReusedEarly) {
            self.sync_data()?;
        }
        self.sequence.store(sequence, Ordering::Relaxed);
        Ok(sequence)
    }

    /// Writes a slot; gives the last one that it says to be retired.
    fn write_slot(&self, bytes: &mut [u8], sequence: u64, pages: &[(u32, PageId)]) -> Result<u64> {
        let retired = self.retired.load(Ordering::Relaxed);
        let Some(ring) = &self.ring else { return Ok(retired) };
        let list = pages
            .iter()
            .enumerate()
            .map(|(index, &(_, id))| (id, page::lsn(&bytes[SLOT_HEADER + index * self.core.page_size..])));
        let header = ring::header(sequence, retired, self.core.volume.salt, list);
        bytes[..SLOT_HEADER].copy_from_slice(&header);
        let offset = (sequence % SLOTS) * slot_bytes(self.core.page_size) as u64;
        let len = SLOT_HEADER + pages.len() * self.core.page_size;
        let durability =
            if planted(Mutation::RingNotDurable) { Durability::Cached } else { Durability::Durable };
        ring.write_at(Class::Deadline, offset, &bytes[..len], durability)?;
        Ok(retired)
    }

    fn write_home(&self, bytes: &mut AlignedBuffer, pages: &[(u32, PageId)]) -> Result<()> {
        let size = self.core.page_size;
        let atomic = self.ring.is_none();
        let direction = if atomic {
            Direction::WriteAtomic(Durability::Cached)
        } else {
            Direction::Write(Durability::Cached)
        };
        let start = bytes.as_mut_ptr();
        let mut requests: Vec<Request> = Vec::new();
        let mut last = PageId::NONE;
        for (index, &(_, id)) in pages.iter().enumerate() {
            let slice = IoSlice { address: start.wrapping_add(SLOT_HEADER + index * size), len: size };
            match requests.last_mut() {
                Some(request) if last.0 + 1 == id.0 && !atomic => match request.slices.last_mut() {
                    // Neighbours in the file are neighbours in the buffer.
                    Some(before) => before.len += size,
                    None => request.slices.push(slice),
                },
                _ => requests.push(Request {
                    file: Arc::clone(&self.core.volume.file),
                    direction,
                    class: Class::Deadline,
                    offset: id.0 * size as u64,
                    slices: vec![slice],
                    token: 0,
                }),
            }
            last = id;
        }
        submit_and_wait(&*self.queue, requests, bytes)
    }

    /// Makes every batch written so far durable and retires their slots.
    fn sync_data(&self) -> Result<()> {
        if !planted(Mutation::RetireWithoutSync) {
            self.core.volume.file.sync(Class::Deadline)?;
            // The file is synced by others, too, when it grows: a failure that one of them was told of concerns these pages.
            self.core.poison.check()?;
        }
        // Nobody else has begun a slot or a batch meanwhile: the buffer is ours.
        self.retired.store(self.sequence.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut homes = Vec::new();
        self.pending.lock().retain_mut(|batch| {
            if batch.home {
                homes.append(&mut batch.pages);
            }
            !batch.home
        });
        // Of a page that is in several batches the newest state counts.
        homes.sort_unstable_by_key(|&(id, lsn)| (id, std::cmp::Reverse(lsn)));
        homes.dedup_by_key(|&mut (id, _)| id);
        // Invariant 5: without room for it a note is left out, and a failure of the log shows where it matters.
        if !self.core.log.append_homes(&homes).is_ok_and(|are_all_told| are_all_told) {
            let last = homes.iter().map(|(_, lsn)| lsn.0).max().unwrap_or(0);
            self.unnoted_up_to.fetch_max(last, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Moves the checkpoint as far as it can go, if that is worth a header write or wanted `at_once`.
    fn sync_and_advance(&self, at_once: bool) -> Result<()> {
        let _writing = self.buffer.lock();
        self.core.poison.check()?;
        if !self.pending.lock().is_empty() && !planted(Mutation::CheckpointPastPending) {
            self.sync_data()?;
        }
        let before = self.redo_from.load(Ordering::Relaxed);
        // A header write for each small step would cost more than it gives.
        let step = (self.core.wal_limit / 16).max(1);
        let is_worth = |to: Lsn| {
            to.0 >= before + step
                || (to.0 > before && (at_once || self.core.log.used_bytes() > self.core.wal_limit / 2))
        };
        // Further than the log it cannot go; how far it can takes a look at every frame.
        if !is_worth(self.core.log.end()) {
            return Ok(());
        }
        let target = self.redo_floor();
        if is_worth(target) {
            self.checkpoint.advance(target)?;
            self.redo_from.store(target.0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Everything below this is durable in the data file.
    fn redo_floor(&self) -> Lsn {
        // In this order: where redo is over, what it has brought in is dirty before its floor goes; whoever makes a page dirty later than that
        // logs the change behind `end`; a page that moves from dirty to pending is in `pending` before it leaves the pool's sight.
        let floor = Lsn(self.floor.load(Ordering::SeqCst));
        let end = self.core.log.end();
        let durable = self.core.log.durable();
        let mut dirty = self.core.pool.min_rec_lsn(&self.core.volume).unwrap_or(end);
        let mut pending = self.pending.lock().iter().map(|p| p.rec_lsn).min().unwrap_or(end);
        if planted(Mutation::CheckpointPastDirty) {
            dirty = end;
        }
        if planted(Mutation::CheckpointPastPending) {
            pending = end;
        }
        end.min(durable).min(dirty).min(pending).min(floor)
    }

    /// Writes every page that is dirty now, and moves the checkpoint behind them. For shutdown and tests; competes
    /// with the thread only for batches. Gives up at `deadline`, with false.
    pub(crate) fn flush_all(&self, within: Duration) -> Result<bool> {
        let deadline = gannet_base::clock::now() + within;
        self.flush_below(self.core.log.end(), &mut |_| Ok(gannet_base::clock::now() < deadline))
    }

    /// Writes every page that is dirty since before `target`, and moves the checkpoint as far as it can go: up to there at least.
    /// `go_on` is asked before so many bytes are written; false where it did not want to.
    pub(crate) fn flush_below(
        &self,
        target: Lsn,
        go_on: &mut dyn FnMut(u64) -> Result<bool>,
    ) -> Result<bool> {
        loop {
            let mut due = {
                // As in `write_or_sync`: what is on its way may be dirty again by the time that it is there.
                let _writing = self.buffer.lock();
                self.core.poison.check()?;
                self.dirty(|_, since| since < target)
            };
            if due.is_empty() {
                break;
            }
            due.sort_unstable_by_key(|&(_, id)| id);
            for batch in due.chunks(batch_pages(self.core.page_size)) {
                if !go_on((batch.len() * self.core.page_size) as u64)? {
                    return Ok(false);
                }
                self.write_batch(batch)?;
            }
            gannet_base::thread::yield_now();
        }
        let _writing = self.buffer.lock();
        self.core.poison.check()?;
        self.sync_data().inspect_err(|e| self.core.poison.set_by(e))?;
        let target = self.redo_floor();
        // A header half written must not be followed by another one over the copy that is whole.
        self.checkpoint.advance(target).inspect_err(|e| self.core.poison.set_by(e))?;
        self.redo_from.fetch_max(target.0, Ordering::Relaxed);
        Ok(true)
    }
}

impl PageWriter {
    /// The thread is to write these pages, which are as they will stay, soon.
    pub(crate) fn write_soon(&self, pages: Range<u64>) {
        self.requests.lock().complete.push(pages);
        self.wake.notify_all();
    }

    /// Writes home what is dirty of these pages and not busy just now, and says how many it were.
    pub(crate) fn write(&self, pages: impl IntoIterator<Item = PageId>) -> Result<usize> {
        self.write_all(self.dirty_of(pages))
    }

    /// Writes these pages, and makes all of them durable at home; nobody is to change them meanwhile. `go_on` is asked before each batch.
    pub(crate) fn bring_home(
        &self,
        pages: &[Range<u64>],
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let pages = || pages.iter().cloned().flatten().map(PageId);
        while self.write_or_sync(|| self.dirty_of(pages()), &mut |_| go_on())? {
            gannet_base::thread::yield_now();
        }
        Ok(())
    }

    /// Writes home what is dirty from page `first` on since `before`, as far as it is not busy; `go_on` is asked before so many bytes are written. False where
    /// nothing of that was dirty: then all that went home before is durable there.
    pub(crate) fn write_from(
        &self,
        first: PageId,
        before: Lsn,
        go_on: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<bool> {
        self.write_or_sync(|| self.dirty(|page, since| page >= first && since < before), go_on)
    }

    /// Writes home what `dirty` says, as far as it is not busy; where that is nothing, makes all durable that went home before, and gives false.
    fn write_or_sync(
        &self,
        dirty: impl FnOnce() -> Vec<(u32, PageId)>,
        go_on: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<bool> {
        let mut due = {
            // Whoever has the buffer leaves nothing on its way: else a page would seem to be, of which that is what was there before.
            let _writing = self.buffer.lock();
            self.core.poison.check()?;
            let due = dirty();
            if due.is_empty() {
                return self.sync_data().inspect_err(|error| self.core.poison.set_by(error)).map(|()| false);
            }
            due
        };
        due.sort_unstable_by_key(|&(_, id)| id);
        for batch in due.chunks(batch_pages(self.core.page_size)) {
            go_on((batch.len() * self.core.page_size) as u64)?;
            self.write_batch(batch)?;
            self.core.pool.announce_clean();
        }
        Ok(true)
    }

    /// Has `work` done while no page goes home and the checkpoint stays where it is.
    pub(crate) fn while_still<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _writing = self.buffer.lock();
        self.core.poison.check()?;
        work()
    }
}

impl Requests {
    fn any(&self) -> bool {
        self.look_ahead || self.clean_frames || self.short_log || !self.complete.is_empty()
    }
}

impl CleanFrames for PageWriter {
    fn ask(&self) -> Result<()> {
        self.core.poison.check()?;
        if self.ended.load(Ordering::SeqCst) {
            return Err(Error::Poisoned("the page writer has ended".to_owned()));
        }
        self.requests.lock().clean_frames = true;
        self.wake.notify_all();
        Ok(())
    }

    fn end(&self) -> Option<Error> {
        let error = self.core.poison.check().err()?;
        // Whoever has the buffer may have looked before the failure, and be writing pages or the checkpoint. Everybody later
        // looks once he has it.
        self.buffer.try_lock().map(|_| error)
    }

    fn look_ahead(&self) {
        self.requests.lock().look_ahead = true;
        self.wake.notify_all();
    }

    fn shorten_log(&self) {
        self.requests.lock().short_log = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{CreateOptions, Engine, EngineOptions, OpenOptions};
    use crate::mtr::Mtr;
    use crate::page::PageKind;
    use crate::pool::Access;
    use gannet_base::TreeId;
    use gannet_base::sim::Simulation;
    use gannet_base::thread;
    use gannet_io::Disk;
    use gannet_io::sim::{Chance, CrashPolicy, Faults, SimDisk};
    use std::path::Path;

    const FILE: &str = "d.gnt";
    const SIZE: usize = 4096;
    const OWNER: TreeId = TreeId(99);

    fn engine(disk: &SimDisk) -> Engine {
        let options = EngineOptions { memory: 8 << 20, ..EngineOptions::default() };
        Engine::with_disk(Arc::new(disk.clone()), &options).unwrap()
    }

    #[test]
    fn what_is_brought_home_is_what_the_page_has_now() {
        changed_on_its_way(|writer, page, arrives| {
            std::thread::scope(|scope| {
                let pages = page.0..page.0 + 1;
                let bringing =
                    scope.spawn(move || writer.bring_home(std::slice::from_ref(&pages), &mut || Ok(())));
                gannet_base::clock::sleep(Duration::from_millis(30));
                assert!(!bringing.is_finished(), "it is not at home");
                arrives();
                bringing.join().unwrap().unwrap();
            });
        });
    }

    #[test]
    fn all_that_is_written_is_what_pages_have_now() {
        changed_on_its_way(|writer, _, arrives| {
            std::thread::scope(|scope| {
                // As whoever writes a batch has it.
                let writing = writer.buffer.lock();
                let flushing = scope.spawn(|| writer.flush_all(Duration::from_secs(60)));
                gannet_base::clock::sleep(Duration::from_millis(30));
                arrives();
                drop(writing);
                assert!(flushing.join().unwrap().unwrap());
            });
        });
    }

    /// A page gets other contents while those before are on their way home; `bring` has them arrive, and brings the page home.
    fn changed_on_its_way(bring: impl Fn(&PageWriter, PageId, &dyn Fn())) {
        let disk = SimDisk::new(2);
        let create = CreateOptions { page_size: SIZE, segment_size: 1 << 18 };
        let db = engine(&disk).create(Path::new(FILE), &create, &OpenOptions::default()).unwrap();
        let core = &db.shared.core;
        let mut mtr = Mtr::new(core);
        let (id, part) = mtr.allocate(OWNER, &[PageId::NONE]).unwrap();
        mtr.format(part, PageKind::Overflow, OWNER, &[1; 100]);
        mtr.commit().unwrap();
        // These contents are on their way when the page gets others, of which the log knows nothing.
        let frame = core.pool.dirty_frame(&core.volume, id).unwrap();
        let mut before = vec![0; SIZE];
        core.pool.copy_for_write(&core.volume, frame, id, &mut before, &mut |_| {}).unwrap();
        let mut contents = vec![0; SIZE];
        page::init(&mut contents, PageKind::Overflow, OWNER);
        contents[SIZE - 100..].fill(2);
        let mut mtr = Mtr::new(core);
        let part = mtr.latch(id).unwrap();
        mtr.fill(part, OWNER, &contents);
        mtr.commit().unwrap();
        bring(&db.shared.writer, id, &|| core.pool.finish_write(frame));
        assert!(core.pool.dirty_frame(&core.volume, id).is_none());
        let home = disk.peek_crash(Some(CrashPolicy::KeepNone), 1).contents(Path::new(FILE)).unwrap();
        let home = &home[id.0 as usize * SIZE..][..SIZE];
        assert!(
            page::verify(home, id, core.volume.salt) == page::Verdict::Valid
                && home[SIZE - 100..] == [2; 100]
        );
    }

    #[test]
    fn the_redo_position_in_the_header_moved_back() {
        let disk = SimDisk::new(3);
        let create = CreateOptions { page_size: SIZE, segment_size: 1 << 18 };
        let db = engine(&disk).create(Path::new(FILE), &create, &OpenOptions::default()).unwrap();
        let writer = &db.shared.writer;
        assert!(writer.flush_all(Duration::from_secs(60)).unwrap());
        let redo_from = writer.redo_from();
        assert!(redo_from > Lsn(8));
        writer.checkpoint.advance(Lsn(8)).unwrap();
        let image = disk.peek_crash(Some(CrashPolicy::KeepNone), 1);
        let file = image.open(Path::new(FILE), &gannet_io::OpenOptions::read()).unwrap();
        assert_eq!(crate::meta::Meta::read(&*file).unwrap().redo_from, redo_from);
    }

    /// A page goes home while the file grows, and the one sync that the device fails is told of once. Then the power goes.
    fn left_beside_growth(seed: u64) -> (SimDisk, PageId) {
        let disk = SimDisk::new(seed);
        let create = CreateOptions { page_size: SIZE, segment_size: 1 << 18 };
        let db = engine(&disk).create(Path::new(FILE), &create, &OpenOptions::default()).unwrap();
        let core = &db.shared.core;
        let mut mtr = Mtr::new(core);
        let (id, part) = mtr.allocate(OWNER, &[PageId::NONE]).unwrap();
        mtr.format(part, PageKind::Overflow, OWNER, &[1; 100]);
        mtr.commit().unwrap();
        disk.set_faults(Faults {
            sync_error: Chance::At(vec![1]),
            sync_error_told_once: true,
            only: Some(FILE.to_owned()),
            ..Faults::default()
        });
        let shared = Arc::clone(&db.shared);
        let growing = thread::spawn("grows", move || {
            gannet_base::clock::sleep(Duration::from_micros(40 * seed));
            let _ = shared.core.space.reserve(&shared.core, 1 << 12);
        });
        let _ = db.shared.writer.flush_all(Duration::from_secs(60));
        let _ = growing.join();
        // What was noted is to be there.
        let _ = core.log.flush_to(core.log.end());
        (disk.crash_image_with(CrashPolicy::KeepNone, seed), id)
    }

    #[test]
    fn what_went_home_beside_a_sync_that_failed_was_noted_and_lost() {
        for seed in 0..40 {
            let (image, id) = Simulation::new(seed).run(move || left_beside_growth(seed)).unwrap();
            let db = engine(&image).open(Path::new(FILE), &OpenOptions::default()).unwrap();
            let core = &db.shared.core;
            let page = core.pool.shared(&core.volume, id, Access::Normal).unwrap();
            assert_eq!(page[page::HEADER_LEN..][..100], [1; 100], "seed {seed}");
        }
    }

    #[test]
    fn what_a_slot_may_heal_is_never_older_than_what_came_home() {
        let disk = SimDisk::new(1);
        let create = CreateOptions { page_size: SIZE, segment_size: 1 << 18 };
        let db = engine(&disk).create(Path::new(FILE), &create, &OpenOptions::default()).unwrap();
        let core = &db.shared.core;
        let flush = || assert!(db.shared.writer.flush_all(Duration::from_secs(60)).unwrap());
        let mut mtr = Mtr::new(core);
        let (id, part) = mtr.allocate(OWNER, &[PageId::NONE]).unwrap();
        mtr.format(part, PageKind::Overflow, OWNER, &[1; 100]);
        mtr.commit().unwrap();
        flush();
        // With this change alone the page goes to the ring.
        let mut mtr = Mtr::new(core);
        let part = mtr.latch(id).unwrap();
        mtr.patch(part, SIZE - 100, &[2; 100]);
        mtr.commit().unwrap();
        flush();
        // The log has these contents, but only as long as the page is not durable at home.
        let mut mtr = Mtr::new(core);
        let part = mtr.latch(id).unwrap();
        mtr.format(part, PageKind::Overflow, OWNER, &[3; 100]);
        let lsn = mtr.commit().unwrap();
        flush();
        let image = disk.peek_crash(Some(CrashPolicy::KeepNone), 1);
        image.corrupt(Path::new(FILE), id.0 * SIZE as u64 + 200, 8, 1).unwrap();
        let db = engine(&image).open(Path::new(FILE), &OpenOptions::default()).unwrap();
        let core = &db.shared.core;
        let page = core.pool.shared(&core.volume, id, Access::Normal).unwrap();
        assert_eq!(page::lsn(&page), lsn);
        assert!(page[SIZE - 100..] == [0; 100], "what was there before is back");
    }
}
