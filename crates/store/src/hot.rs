//! The list of hot pages: which pages are in memory, kept in a file beside the log, so that the next start has them before they
//! are missed.
//!
//! # What it guarantees
//! 1. It is a hint, and nothing depends on it: it is written without a sync and in place. What is found of it is believed block
//!    by block, as far as a block verifies and is of the newest list; a page it names wrongly is read in vain.
//! 2. Pages are fetched in the order of the file, into frames that are free: nothing that somebody has fetched for himself
//!    goes for it.
//!
//! The layout of a block is that of any list of pages ([`crate::page_list`]).

use crate::fetch::{Fetch, Source};
use crate::page_list::{BLOCK, decode, encode, pages_of};
use crate::pool::Access;
use crate::shared::Shared;
use gannet_base::PageId;
use gannet_base::clock::{self, Instant};
use gannet_base::memory::{Charge, Purpose};
use gannet_base::sync::Mutex;
use gannet_io::{AlignedBuffer, Class, Disk, Durability, File, ModeRequest, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Blocks written or read by one request.
const BLOCKS_AT_ONCE: usize = 64;

/// The list is written anew when so large a part of the frames has other pages, but not more often than this.
const CHANGED_SHARE: u64 = 8;
const SAVE_PAUSE: Duration = Duration::from_secs(5);

/// Where the list is, and when it was written.
#[derive(Debug)]
pub(crate) struct HotPages {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    mode: ModeRequest,
    /// Nothing until what was written before was read back, or could not be: until then it is not to be written over.
    saved: Mutex<Option<Saved>>,
    pub(crate) warming: Warming,
}

/// How far the pages of the list of the life before are fetched.
#[derive(Debug, Default)]
pub(crate) struct Warming {
    running: AtomicBool,
    done: AtomicU64,
    /// Not fetched yet; or, once it is over, left out.
    rest: AtomicU64,
    over: AtomicBool,
}

impl Warming {
    /// Whether pages are fetched now, how many were, how many will be, and how many were left out at its end.
    pub(crate) fn report(&self) -> (bool, u64, u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (is_over, rest) = (self.over.load(Ordering::Relaxed), of(&self.rest));
        let (left, left_out) = if is_over { (0, rest) } else { (rest, 0) };
        (self.running.load(Ordering::Relaxed), of(&self.done), left, left_out)
    }

    /// So many pages are listed.
    fn listed(&self, pages: usize) {
        self.rest.store(pages as u64, Ordering::Relaxed);
    }

    fn begin(&self) {
        self.running.store(true, Ordering::Relaxed);
    }

    /// One of the listed pages is there.
    fn arrived(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.rest.fetch_sub(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.running.store(false, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Saved {
    generation: u64,
    at: Instant,
    /// Pages that had come into memory by then.
    loaded: u64,
}

impl HotPages {
    pub(crate) fn new(disk: &Arc<dyn Disk>, path: PathBuf, mode: ModeRequest) -> Self {
        let (saved, warming) = (Mutex::default(), Warming::default());
        HotPages { disk: Arc::clone(disk), path, mode, saved, warming }
    }

    /// The database is open. Where there is no list there is none to be read back first.
    pub(crate) fn begin(&self) {
        if self.disk.exists(&self.path).is_ok_and(|there| !there) {
            *self.saved.lock() = Some(Saved { generation: 0, at: clock::now(), loaded: 0 });
        }
    }

    fn open(&self, create: bool) -> gannet_io::Result<Arc<dyn File>> {
        let options = OpenOptions { create, ..OpenOptions::read_write() };
        self.disk.open(&self.path, &options.mode(self.mode))
    }

    /// The first pages of the newest list, not more than `most`, as far as it can be read, and its generation.
    fn read(&self, salt: u64, most: usize) -> gannet_io::Result<(u64, Vec<PageId>)> {
        let mut pages = Vec::new();
        let mut newest = 0;
        if !self.disk.exists(&self.path)? {
            return Ok((newest, pages));
        }
        let file = self.open(false)?;
        let len = file.len()? / BLOCK as u64 * BLOCK as u64;
        let mut buffer = AlignedBuffer::zeroed(BLOCKS_AT_ONCE * BLOCK);
        let mut at = 0;
        while at < len && pages.len() < most {
            let count = buffer.len().min((len - at) as usize);
            file.read_at(Class::Prefetch, at, &mut buffer[..count])?;
            for block in buffer[..count].chunks(BLOCK) {
                // The list begins with its first block: what is of another generation was left by a longer one.
                match decode(block, salt) {
                    Some(generation) if newest == 0 || generation == newest => newest = generation,
                    _ => return Ok((newest, pages)),
                }
                let room = most - pages.len();
                let found: Vec<PageId> = pages_of(block).take(room).collect();
                pages.reserve_exact(found.len());
                pages.extend(found);
            }
            at += count as u64;
        }
        Ok((newest, pages))
    }

    fn write(&self, pages: &[PageId], generation: u64, salt: u64) -> gannet_io::Result<()> {
        let file = self.open(true)?;
        let mut buffer = AlignedBuffer::zeroed(BLOCKS_AT_ONCE * BLOCK);
        let (mut at, mut filled, mut rest) = (0, 0, pages);
        // An empty list is a block without pages.
        loop {
            let taken = encode(rest, generation, salt, &mut buffer[filled..filled + BLOCK]);
            rest = &rest[taken..];
            filled += BLOCK;
            if rest.is_empty() || filled == buffer.len() {
                file.write_at(Class::Maintenance, at, &buffer[..filled], Durability::Cached)?;
                at += filled as u64;
                filled = 0;
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }
}

impl Shared {
    /// Writes the list anew where enough has changed since the last time; `at_end` for the last one, which asks only whether
    /// anything has. What goes wrong is no harm.
    pub(crate) fn save_hot_pages(&self, at_end: bool) {
        let (hot, pool) = (&self.hot_pages, &self.core.pool);
        let stats = &pool.stats;
        let counters = [&stats.misses, &stats.prefetched, &stats.created];
        let loaded: u64 = counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum();
        let mut guard = hot.saved.lock();
        let Some(saved) = &mut *guard else { return };
        let changed = loaded.saturating_sub(saved.loaded);
        let enough = changed >= (pool.active_frames() as u64 / CHANGED_SHARE).max(1)
            && saved.at.elapsed() >= SAVE_PAUSE;
        if !(enough || at_end && changed > 0) {
            return;
        }
        let frames = pool.frame_count() as u64;
        let Ok(_charge) = self.core.budget.charge(Purpose::Work, frames * 8) else {
            return;
        };
        let mut pages = Vec::with_capacity(frames as usize);
        pool.resident_pages(&self.core.volume, &mut pages);
        pages.sort_unstable();
        let generation = saved.generation + 1;
        // A list half written is of the new generation in front, and of none behind.
        let _ = hot.write(&pages, generation, self.core.volume.salt);
        *saved = Saved { generation, at: clock::now(), loaded };
    }

    /// Reads the list of the life before.
    pub(crate) fn read_hot_pages(&self) -> HotList {
        let hot = &self.hot_pages;
        if !hot.disk.exists(&hot.path).unwrap_or(false) {
            return HotList::default();
        }
        let frames = self.core.pool.frame_count();
        let Ok(mut charge) = self.core.budget.charge(Purpose::Work, frames as u64 * 8) else {
            return HotList::default();
        };
        let (generation, mut pages) = hot.read(self.core.volume.salt, frames).unwrap_or_default();
        pages.shrink_to_fit();
        // A charge that shrinks is never refused.
        let _ = charge.resize(pages.len() as u64 * 8);
        hot.warming.listed(pages.len());
        HotList { generation, pages, _charge: Some(charge) }
    }

    /// Fetches the pages of a list. From then on there will be newer ones.
    pub(crate) fn warm_up(self: &Arc<Self>, list: HotList) {
        let generation = list.generation;
        let source = Hot { shared: Arc::clone(self), list, next: Mutex::default() };
        self.hot_pages.warming.begin();
        if let Err(error) = Fetch::start(&self.core, source).finish() {
            self.core.poison.set(format!("the list of hot pages could not be read back: {error}"));
        }
        self.hot_pages.warming.end();
        if !self.is_stopping() {
            *self.hot_pages.saved.lock() = Some(Saved { generation, at: clock::now(), loaded: 0 });
        }
    }
}

/// A list as it was read, in the order of the file.
#[derive(Default)]
pub(crate) struct HotList {
    generation: u64,
    pages: Vec<PageId>,
    _charge: Option<Charge>,
}

/// The pages of a list that are in memory soon.
struct Hot {
    shared: Arc<Shared>,
    list: HotList,
    /// The first one that is not asked for yet.
    next: Mutex<usize>,
}

impl Source for Hot {
    fn next(&self, most: usize, _may_wait: bool) -> Option<Vec<PageId>> {
        let mut next = self.next.lock();
        let pages = &self.list.pages[*next..];
        let pages = &pages[..most.min(pages.len())];
        if pages.is_empty() || self.shared.is_stopping() || self.shared.core.pool.free_frames() < most * 4 {
            return None;
        }
        *next += pages.len();
        Some(pages.to_vec())
    }

    fn stop(&self) {
        *self.next.lock() = self.list.pages.len();
    }

    fn arrived(&self, page: PageId) {
        // Whatever goes wrong shows where the page is needed.
        let _ = self.shared.core.pool.shared(&self.shared.core.volume, page, Access::Normal);
        self.shared.hot_pages.warming.arrived();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_io::sim::SimDisk;

    fn list(disk: &SimDisk) -> HotPages {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        HotPages::new(&disk, "hot".into(), ModeRequest::Auto)
    }

    #[test]
    fn a_list_is_read_back_and_a_shorter_one_hides_the_rest_of_the_one_before() {
        let disk = SimDisk::new(1);
        let hot = list(&disk);
        assert_eq!(hot.read(7, usize::MAX).unwrap(), (0, vec![]));
        let many: Vec<_> = (0..300_000u64).map(|i| PageId(i * i % 977 + i * 1000)).collect();
        for (generation, pages) in [(1, &many[..]), (2, &many[..5]), (3, &[]), (4, &many[..10_000])] {
            hot.write(pages, generation, 7).unwrap();
            assert_eq!(hot.read(7, usize::MAX).unwrap(), (generation, pages.to_vec()));
        }
        assert_eq!(hot.read(8, usize::MAX).unwrap(), (0, vec![]), "of another database");
    }

    #[test]
    fn how_far_warming_up_is_can_be_told_at_any_time() {
        let warming = Warming::default();
        assert_eq!(warming.report(), (false, 0, 0, 0));
        warming.listed(3);
        assert_eq!(warming.report(), (false, 0, 3, 0), "it waits for redo");
        warming.begin();
        warming.arrived();
        assert_eq!(warming.report(), (true, 1, 2, 0));
        warming.arrived();
        warming.end();
        assert_eq!(warming.report(), (false, 2, 0, 1), "there was no memory for the last one");
    }

    #[test]
    fn of_a_list_that_is_torn_the_front_is_read() {
        let disk = SimDisk::new(1);
        let hot = list(&disk);
        let pages: Vec<_> = (0..20_000u64).map(|i| PageId(i * 3)).collect();
        hot.write(&pages, 1, 7).unwrap();
        disk.corrupt("hot".as_ref(), 2 * BLOCK as u64 + 100, 8, 1).unwrap();
        let (generation, found) = hot.read(7, usize::MAX).unwrap();
        assert!(generation == 1 && found.len() > 8000 && pages.starts_with(&found));
    }
}
