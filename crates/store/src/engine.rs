//! The engine: what all databases of a process share.

use crate::database::Database;
use crate::page::PAGE_SIZES;
use crate::pool::{MIN_FRAMES, Pool};
use crate::{Error, Result};
use gannet_base::memory::Budget;
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

/// Process-wide resources: the memory budget, the page frames, the device layer. Several databases share one engine,
/// provided they have the same page size. Clones are handles to the same engine.
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
    pool: Arc<Mutex<Option<Arc<Pool>>>>,
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
        Ok(Engine { disk, budget: Budget::new(options.memory), pool: Arc::default() })
    }

    /// The memory budget: its limit, what is used, and for what.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The device layer, with its counters.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Creates a database; `path` must not exist. Its log lies beside it, in a folder with `-wal` appended.
    pub fn create(&self, path: &Path, create: &CreateOptions, open: &OpenOptions) -> Result<Database> {
        Database::create(self, path, create, open)
    }

    /// Opens a database, after a crash bringing it up to date.
    pub fn open(&self, path: &Path, options: &OpenOptions) -> Result<Database> {
        Database::open(self, path, options)
    }

    /// The page frames. They are made for the first database's page size, and later ones have to have the same.
    pub(crate) fn pool(&self, page_size: usize) -> Result<Arc<Pool>> {
        if !PAGE_SIZES.contains(&page_size) {
            let message = format!("a page size of {page_size} is not possible: choose one of {PAGE_SIZES:?}");
            return Err(Error::Invalid(message));
        }
        let mut pool = self.pool.lock();
        if let Some(pool) = &*pool {
            if pool.page_size() == page_size {
                return Ok(Arc::clone(pool));
            }
            return Err(Error::Invalid(format!(
                "this engine's frames hold pages of {} bytes, the database has {page_size}: open it in an engine of \
                 its own",
                pool.page_size()
            )));
        }
        let limit = self.budget.limit();
        let share = limit - (limit / 8).max(OTHER_MIN.min(limit * 3 / 4));
        let frames = Pool::frames_for(share, page_size);
        if frames < MIN_FRAMES {
            return Err(Error::Invalid(format!(
                "a memory budget of {} holds only {frames} pages of {page_size} bytes; at least {MIN_FRAMES} are needed",
                format_size(limit)
            )));
        }
        let made = Pool::new(page_size, frames, &self.budget)?;
        *pool = Some(Arc::clone(&made));
        Ok(made)
    }
}
