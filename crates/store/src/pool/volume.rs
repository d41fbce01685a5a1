//! A database's file as the pool sees it.

use crate::log::Log;
use crate::page::Verdict;
use crate::{Error, Result};
use gannet_base::sync::{Mutex, RwLock};
use gannet_base::{Lsn, PageId};
use gannet_io::{File, Queue};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Queues for reads that only work in the background uses.
pub(crate) const BACKGROUND_QUEUES: usize = 2;

/// Brings a page read after a crash up to date.
pub(crate) trait Redo: Send + Sync + fmt::Debug {
    /// Whether the page's bytes on the device may lack changes.
    fn knows(&self, page: PageId) -> bool;

    /// Applies the log records that `bytes` misses. Gives a log position not above the oldest applied record when
    /// something was applied. Called under the page's exclusive latch, before anybody sees the page.
    fn redo(&self, page: PageId, bytes: &mut [u8], verdict: Verdict) -> Result<Option<Lsn>>;

    /// Whether pages to which something was applied are to be written.
    fn writes(&self) -> bool;

    /// The page for which a log position was given is dirty now, since that position.
    fn redone(&self, page: PageId);
}

/// The page writer, as the pool and writers to the log see it.
pub(crate) trait CleanFrames: Send + Sync + fmt::Debug {
    /// Somebody waits for a clean frame: write something soon. Fails when this database can never write again.
    fn ask(&self) -> Result<()>;

    /// See to it that the frames ahead of the eviction hand are clean.
    fn look_ahead(&self);

    /// Write everything soon, so that the log can be shortened.
    fn shorten_log(&self);

    /// Why nothing of this database, neither page nor checkpoint, will be written any more; `None` when something may be.
    fn end(&self) -> Option<Error>;
}

/// See the module's head.
pub(crate) struct Volume {
    pub(crate) slot: u16,
    pub(crate) file: Arc<dyn File>,
    pub(crate) salt: u64,
    /// The last [`BACKGROUND_QUEUES`], where there are more, are for work in the background alone.
    queues: Vec<Arc<dyn Queue>>,
    next_queue: AtomicUsize,
    redo: RwLock<Option<Arc<dyn Redo>>>,
    has_redo: AtomicBool,
    writer: RwLock<Option<Arc<dyn CleanFrames>>>,
    /// The log, which a page from the device is never ahead of.
    log: OnceLock<Log>,
    /// Why pages that are newer than what the device has of them may be missing in the pool.
    forgotten: OnceLock<Error>,
}

/// Who writes and redoes its pages refers to the pool, which refers to it: they are not shown.
impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("slot", &self.slot).field("file", &self.file).finish_non_exhaustive()
    }
}

impl Volume {
    pub(crate) fn new(file: Arc<dyn File>, salt: u64, queues: Vec<Arc<dyn Queue>>) -> Self {
        assert!(!queues.is_empty() && queues.len() <= super::MAX_QUEUES);
        Volume {
            slot: 0,
            file,
            salt,
            queues,
            next_queue: AtomicUsize::new(0),
            redo: RwLock::new(None),
            has_redo: AtomicBool::new(false),
            writer: RwLock::new(None),
            log: OnceLock::new(),
            forgotten: OnceLock::new(),
        }
    }

    /// Fails when the device is not to be asked for pages any more: see [`super::Pool::forget_unwritable`].
    pub(super) fn check_not_forgotten(&self) -> Result<()> {
        self.forgotten.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Says which log its pages were changed by. Once.
    pub(crate) fn set_log(&self, log: &Log) {
        let first = self.log.set(log.clone()).is_ok();
        assert!(first, "a volume has one log");
    }

    /// Fails for a page whose last change is behind the end of the log: the log that was durable before the page went home has
    /// lost its end, and with it changes of other pages that belong to this one's.
    pub(super) fn check_not_ahead(&self, id: PageId, lsn: Lsn) -> Result<()> {
        match self.log.get().map(Log::end) {
            Some(end) if lsn > end => Err(Error::damaged_page(
                id,
                format_args!(
                    "its last change, {lsn}, is behind the end of the log, {end}: log that was durable is gone"
                ),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn queue(&self, number: u8) -> &Arc<dyn Queue> {
        &self.queues[number as usize]
    }

    pub(crate) fn pick_queue(&self) -> u8 {
        let shared = self.queues.len().saturating_sub(BACKGROUND_QUEUES).max(1);
        (self.next_queue.fetch_add(1, Ordering::Relaxed) % shared) as u8
    }

    /// A queue for work in the background, whose threads may come late to reap it: nobody else is to depend on them. Each of them
    /// has its own `number`, so that none is woken by what another waits for.
    pub(crate) fn background_queue(&self, number: usize) -> u8 {
        (self.queues.len() - 1 - number % BACKGROUND_QUEUES.min(self.queues.len())) as u8
    }

    /// One of them, for a thread that has no number.
    pub(crate) fn pick_background_queue(&self) -> u8 {
        self.background_queue(self.next_queue.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn set_redo(&self, redo: Option<Arc<dyn Redo>>) {
        self.has_redo.store(redo.is_some(), Ordering::Release);
        *self.redo.write() = redo;
    }

    pub(crate) fn redo(&self) -> Option<Arc<dyn Redo>> {
        if self.has_redo.load(Ordering::Acquire) { self.redo.read().clone() } else { None }
    }

    /// Asks the page writer to make all of the log behind us superfluous.
    pub(crate) fn shorten_log(&self) {
        if let Some(writer) = self.writer.read().clone() {
            writer.shorten_log();
        }
    }

    pub(crate) fn set_writer(&self, writer: Option<Arc<dyn CleanFrames>>) {
        *self.writer.write() = writer;
    }
}

/// The databases of an engine that share this pool.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    slots: Mutex<Vec<Option<Arc<Volume>>>>,
    hinted: AtomicBool,
}

impl Volumes {
    pub(super) fn attach(&self, mut volume: Volume) -> Result<Arc<Volume>> {
        let mut slots = self.slots.lock();
        let slot = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        if slot >= usize::from(u16::MAX) {
            return Err(Error::Invalid("an engine holds at most 65,534 databases".to_owned()));
        }
        volume.slot = slot as u16;
        let volume = Arc::new(volume);
        if slot == slots.len() {
            slots.push(None);
        }
        slots[slot] = Some(Arc::clone(&volume));
        Ok(volume)
    }

    pub(super) fn detach(&self, volume: &Volume) {
        let gone = self.slots.lock()[usize::from(volume.slot)].take();
        assert!(gone.is_some_and(|gone| std::ptr::eq(&*gone, volume)), "a volume leaves its own slot, once");
    }

    fn writers(&self) -> Vec<Arc<dyn CleanFrames>> {
        let slots = self.slots.lock();
        slots.iter().flatten().filter_map(|v| v.writer.read().clone()).collect()
    }

    /// Runs the completions of reads that have ended.
    pub(super) fn poll(&self) {
        let slots = self.slots.lock().clone();
        slots.iter().flatten().flat_map(|v| &v.queues).for_each(|queue| queue.poll());
    }

    /// Asks every page writer to write. Fails when none of them can.
    pub(super) fn ask_for_clean_frames(&self) -> Result<()> {
        self.hinted.store(false, Ordering::Relaxed);
        let mut refusal = None;
        let mut able = false;
        for writer in self.writers() {
            match writer.ask() {
                Ok(()) => able = true,
                Err(error) => refusal = Some(error),
            }
        }
        match refusal {
            Some(error) if !able => Err(error),
            _ => Ok(()),
        }
    }

    /// Tells `forget` the databases that will never write again. None of them goes, nor comes another in its place,
    /// until that is done.
    pub(super) fn forget_ended(&self, mut forget: impl FnMut(&Volume)) {
        let slots = self.slots.lock();
        for volume in slots.iter().flatten() {
            let writer = volume.writer.read().clone();
            if let Some(error) = writer.and_then(|writer| writer.end()) {
                let _ = volume.forgotten.set(error);
                forget(volume);
            }
        }
    }

    /// Clean frames are running out: a word to the page writers.
    pub(super) fn hint_clean_frames(&self) {
        if !self.hinted.swap(true, Ordering::Relaxed) {
            self.writers().iter().for_each(|writer| writer.look_ahead());
            self.hinted.store(false, Ordering::Relaxed);
        }
    }
}
