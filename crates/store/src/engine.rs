//! The engine: what all databases of a process share.

use crate::database::Database;
use crate::page::PAGE_SIZES;
use crate::pool::{MIN_FRAMES, Pool};
use crate::{Error, Result};
use gannet_base::memory::{Budget, Charge, Purpose};
use gannet_base::sync::Mutex;
use gannet_base::units::format_size;
use gannet_io::{Disk, ModeRequest, RealDisk, RealOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Part of the budget that is not given to page frames: 1/8, but at least this many bytes.
const OTHER_MIN: u64 = 6 << 20;
/// Smallest budget an engine works with, in bytes.
pub(crate) const MIN_MEMORY: u64 = 8 << 20;

/// How an engine is set up.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The one memory number, in bytes: page frames, log buffers, I/O buffers, transactions and running operations of
    /// all databases together. Default 256 MiB, at least 8 MiB.
    pub memory: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions { memory: 256 << 20 }
    }
}

/// How a database is created. What is set here stays with the file.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Bytes of a page: 4096, 8192, 16384 or 32768. Default 8192.
    pub page_size: usize,
    /// Bytes of a log segment: a power of two, at least 64 pages. Default 16 MiB.
    pub segment_size: u64,
}

impl Default for CreateOptions {
    fn default() -> Self {
        CreateOptions { page_size: 8192, segment_size: 16 << 20 }
    }
}

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bytes of log that redo may have to go through after a crash. Default 1 GiB, at least four segments.
    pub wal_limit: u64,
    /// How the files are opened.
    pub mode: ModeRequest,
    /// The longest an asynchronous commit stays undurable. Default 200 ms.
    pub max_delay: Duration,
    /// How long a shutdown writes pages before it leaves the rest to the next start. Default 10 s.
    pub shutdown_limit: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            wal_limit: 1 << 30,
            mode: ModeRequest::Auto,
            max_delay: Duration::from_millis(200),
            shutdown_limit: Duration::from_secs(10),
        }
    }
}

/// Process-wide resources: the memory budget, the page frames, the device layer. Several databases share one engine.
/// Clones are handles to the same engine.
///
/// ```
/// use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// let engine = Engine::new(&EngineOptions::default())?;
/// let path = folder.path().join("data.gnt");
/// let db = engine.create(&path, &CreateOptions::default(), &OpenOptions::default())?;
/// assert!(engine.budget().used() <= engine.budget().limit());
/// db.close()?;
/// let db = engine.open(&path, &OpenOptions::default())?;
/// # db.close()?;
/// # Ok::<(), gannet_store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    disk: Arc<dyn Disk>,
    budget: Budget,
    /// One pool for each page size in use.
    pools: Arc<Mutex<Vec<Arc<Pool>>>>,
}

impl Engine {
    /// An engine on the real file system.
    pub fn new(options: &EngineOptions) -> Result<Self> {
        Self::with_disk(Arc::new(RealDisk::new(RealOptions::default())), options)
    }

    /// An engine on any disk: simulated, throttled, or the real one with options of its own.
    pub fn with_disk(disk: Arc<dyn Disk>, options: &EngineOptions) -> Result<Self> {
        if options.memory < MIN_MEMORY {
            return Err(Error::Invalid(format!(
                "a memory budget of {} is too small: give at least {}",
                format_size(options.memory),
                format_size(MIN_MEMORY)
            )));
        }
        Ok(Engine { disk, budget: Budget::new(options.memory), pools: Arc::default() })
    }

    /// The memory budget: its limit, what is used, and for what.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The device layer, with its counters.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Memory for a running operation (a sort, a hash table), charged to the budget until dropped. Page frames make
    /// room where the budget has none, and get it back afterwards.
    pub fn work_memory(&self, bytes: u64) -> Result<WorkMemory> {
        let mut lent = Vec::new();
        let charge = loop {
            match self.budget.charge(Purpose::Work, bytes) {
                Ok(charge) => break charge,
                Err(refusal) => {
                    let missing = refusal.requested - (refusal.limit - refusal.used).min(refusal.requested);
                    if !self.lend_frames(missing, &mut lent)? {
                        take_back(&lent);
                        return Err(refusal.into());
                    }
                }
            }
        };
        Ok(WorkMemory { charge: Some(charge), lent })
    }

    /// Has page frames give `bytes` of memory to the budget, for something that charges it on its own, until the
    /// returned value is dropped. Gives less where frames have no more to give; the charge then fails.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<Room> {
        let mut room = Room { lent: Vec::new() };
        self.lend_frames(bytes, &mut room.lent)?;
        Ok(room)
    }

    /// Has the pools give up `bytes`, the largest one first; false when they have no more to give.
    fn lend_frames(&self, bytes: u64, lent: &mut Vec<(Arc<Pool>, usize)>) -> Result<bool> {
        let mut pools = self.pools.lock().clone();
        pools.sort_by_key(|pool| std::cmp::Reverse(pool.charged_bytes()));
        let mut left = bytes;
        for pool in pools {
            let given = pool.give_memory((left as usize).div_ceil(pool.page_size()))?;
            left = left.saturating_sub((given * pool.page_size()) as u64);
            if given > 0 {
                lent.push((pool, given));
            }
            if left == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Creates a database; `path` must not exist. Its log lies beside it, in a folder with `-wal` appended.
    pub fn create(&self, path: &Path, create: &CreateOptions, open: &OpenOptions) -> Result<Database> {
        Database::create(self, path, create, open)
    }

    /// Opens a database, after a crash bringing it up to date.
    pub fn open(&self, path: &Path, options: &OpenOptions) -> Result<Database> {
        Database::open(self, path, options)
    }

    /// The page frames of a page size. The first pool gets all memory meant for pages; one for another page size is
    /// made with half of what the others have.
    pub(crate) fn pool(&self, page_size: usize) -> Result<Arc<Pool>> {
        if !PAGE_SIZES.contains(&page_size) {
            let message = format!("a page size of {page_size} is not possible: choose one of {PAGE_SIZES:?}");
            return Err(Error::Invalid(message));
        }
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.iter().find(|pool| pool.page_size() == page_size) {
            return Ok(Arc::clone(pool));
        }
        let limit = self.budget.limit();
        let share = limit - (limit / 8).max(OTHER_MIN.min(limit * 3 / 4));
        let bytes = if pools.is_empty() { share } else { share / (pools.len() as u64 + 1) };
        let frames = Pool::frames_for(bytes, page_size);
        if frames < MIN_FRAMES {
            return Err(Error::Invalid(format!(
                "a memory budget of {} has room for only {frames} pages of {page_size} bytes; at least {MIN_FRAMES} \
                 are needed",
                format_size(limit)
            )));
        }
        for other in pools.iter() {
            other.give_memory(other.active_frames() / (pools.len() + 1))?;
        }
        let made = Pool::new(
            page_size,
            frames.min(Pool::frames_for(share - self.page_memory(&pools), page_size)),
            &self.budget,
        )?;
        pools.push(Arc::clone(&made));
        Ok(made)
    }

    fn page_memory(&self, pools: &[Arc<Pool>]) -> u64 {
        pools.iter().map(|pool| pool.charged_bytes()).sum()
    }
}

/// Memory of a running operation, see [`Engine::work_memory`].
#[derive(Debug)]
pub struct WorkMemory {
    charge: Option<Charge>,
    /// Frames given up for it.
    lent: Vec<(Arc<Pool>, usize)>,
}

impl WorkMemory {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }
}

impl Drop for WorkMemory {
    fn drop(&mut self) {
        // The charge goes first: the frames take its place in the budget.
        self.charge = None;
        take_back(&self.lent);
    }
}

/// Room in the budget that page frames made, see [`Engine::make_room`].
#[derive(Debug)]
pub(crate) struct Room {
    lent: Vec<(Arc<Pool>, usize)>,
}

impl Drop for Room {
    fn drop(&mut self) {
        take_back(&self.lent);
    }
}

fn take_back(lent: &[(Arc<Pool>, usize)]) {
    for (pool, frames) in lent {
        pool.take_memory(*frames);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_io::sim::SimDisk;

    #[test]
    fn pools_of_several_page_sizes_share_one_budget() {
        let engine =
            Engine::with_disk(Arc::new(SimDisk::new(1)), &EngineOptions { memory: 32 << 20 }).unwrap();
        let first = engine.pool(8192).unwrap();
        let before = first.active_frames();
        let second = engine.pool(32768).unwrap();
        assert!(first.active_frames() <= before / 2 + 1 && second.active_frames() > 200);
        assert!(engine.budget().used_for(Purpose::Pool) <= 28 << 20);
        let used = engine.budget().used_for(Purpose::Pool);
        let work = engine.work_memory(10 << 20).unwrap();
        assert!(work.bytes() == 10 << 20 && engine.budget().used() <= 32 << 20);
        assert!(engine.budget().used_for(Purpose::Pool) < used);
        assert!(engine.work_memory(31 << 20).unwrap_err().to_string().contains("work"));
        drop(work);
        assert_eq!(engine.budget().used_for(Purpose::Pool), used);
    }
}
