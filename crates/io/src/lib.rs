//! Files and devices.
//!
//! Everything Gannet reads or writes goes through [`Disk`] and [`File`]: data, log, spill, backup and dump files. The
//! layer decides how a file is opened ([`Mode`]), in which order requests reach the device ([`Class`]), counts and
//! times every one of them, and can be replaced as a whole: by a deterministic device for simulation, or by one that
//! behaves like a slow volume.
//!
//! # What it guarantees
//! 1. A read or write is whole or an error: short transfers are continued, a read behind the end of a file is
//!    [`ErrorKind::ShortRead`].
//! 2. After a failed write or sync a file is *poisoned*: every later write and sync on that handle fails with
//!    [`ErrorKind::Poisoned`] until the file is opened anew. What the device kept of unsynced writes is unknown then,
//!    and a second sync that "succeeds" would prove nothing. Nor would one that was on its way when another failed: it fails,
//!    too. Reads go on.
//! 3. Data is durable when [`File::sync`] returned after the write, or when the write was asked to be
//!    [`Durability::Durable`]. Names (create, rename, remove) are durable after [`Disk::sync_dir`] of their folder. A
//!    file's size and allocation are durable after [`File::sync`].
//! 4. The device may tear a write at [`SECTOR`] boundaries: after a crash each sector of an unsynced write holds
//!    either its old or its new bytes, independently of its neighbours.
//! 5. Files and folders that are made are for this user alone, whatever the process's umask permits: what is in them is for
//!    whoever the database lets in.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[cfg(unix)]
mod admission;
mod arena;
mod buffer;
#[cfg(unix)]
mod calibrate;
mod demoted;
mod error;
mod machine;
#[cfg(unix)]
mod place;
mod queue;
#[cfg(unix)]
mod real;
#[cfg(unix)]
mod reaping;
mod recorded;
mod removal;
mod request;
#[cfg(unix)]
mod residency;
#[cfg(unix)]
mod throttled;

pub use arena::Arena;
pub use buffer::{AlignedBuffer, BUFFER_ALIGNMENT};
pub use demoted::DemotedDisk;
pub use error::{Error, ErrorKind, Result};
pub use machine::{Memory, Pressure};
pub use queue::Queue;
pub use recorded::RecordedDisk;
pub use removal::{REMOVED_AT_ONCE, remove_large, shorten};
pub use request::{Completion, Direction, Durability, IoSlice, Request};
#[cfg(unix)]
pub use {
    calibrate::{Calibration, CalibrationPlan, PEAK_WINDOW, calibrate},
    place::{is_in_memory, try_folder},
    real::{Backend, BackendReport, RealDisk, RealFile, RealOptions},
    residency::{Cached, Passing, Residency, residency},
    throttled::{Profile, ThrottledDisk},
};

/// Smallest unit a device is trusted to write whole, in bytes.
pub const SECTOR: usize = 512;

/// How a file is read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Mode {
    /// `O_DIRECT`: nothing of the file enters the OS cache. Offsets, lengths and addresses are aligned to
    /// [`File::alignment`].
    Direct,
    /// Buffered with `RWF_DONTCACHE` (Linux 6.14): pages leave the OS cache as soon as they are done with.
    Uncached,
    /// Through the OS cache, with `posix_fadvise` used to drop what was cached.
    Buffered,
}

impl Mode {
    /// The name used in settings.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Direct => "direct",
            Mode::Uncached => "uncached",
            Mode::Buffered => "buffered",
        }
    }
}

/// The mode somebody asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ModeRequest {
    /// The best that works: direct, then uncached, then buffered.
    #[default]
    Auto,
    /// Exactly this one; where it does not work, the next in the same order is used and the reason kept.
    Only(Mode),
}

impl ModeRequest {
    /// The name used in settings.
    pub fn name(self) -> &'static str {
        match self {
            ModeRequest::Auto => "auto",
            ModeRequest::Only(mode) => mode.name(),
        }
    }
}

/// What was asked for, what is in force, and why (promise P8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeReport {
    /// What the caller asked for.
    pub requested: ModeRequest,
    /// What is in force.
    pub effective: Mode,
    /// Why, in one sentence for a user, for example "the file system refuses O_DIRECT (EINVAL)".
    pub reason: String,
}

/// Which writes a device makes whole or not at all by itself (`RWF_ATOMIC`): at offsets that are multiples of their length, which is a
/// power of two of no less and no more bytes than this. What a file system would do by writing elsewhere first does not count: the
/// double-write ring is faster than that, and needs no free space for each page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtomicWrites {
    /// Bytes of the shortest one.
    pub min: usize,
    /// Bytes of the longest one; 0 when the device promises nothing.
    pub max: usize,
}

impl AtomicWrites {
    /// The device promises nothing.
    pub const NONE: AtomicWrites = AtomicWrites { min: 0, max: 0 };

    /// All up to this length.
    pub const fn up_to(max: usize) -> Self {
        AtomicWrites { min: if max == 0 { 0 } else { 1 }, max }
    }

    /// Whether those of so many bytes are among them.
    pub fn have(self, len: usize) -> bool {
        len.is_power_of_two() && (self.min..=self.max).contains(&len)
    }
}

/// Who a request is for. The order is the order of precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Class {
    /// Log writes somebody waits for.
    Commit,
    /// Reads a statement waits for.
    Foreground,
    /// Write-back that must happen soon: the pool needs clean frames, or the log nears its limit.
    Deadline,
    /// Reads of what is expected to be needed.
    Prefetch,
    /// Backup, check, sweep, background redo. Paced by the foreground's latency, with a small guaranteed share.
    Maintenance,
}

impl Class {
    /// Every class, strongest first.
    pub const ALL: [Class; 5] =
        [Class::Commit, Class::Foreground, Class::Deadline, Class::Prefetch, Class::Maintenance];

    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Class::Commit => "commit",
            Class::Foreground => "foreground",
            Class::Deadline => "deadline",
            Class::Prefetch => "prefetch",
            Class::Maintenance => "maintenance",
        }
    }
}

/// How to open a file.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Open for writing too.
    pub write: bool,
    /// Make the file if it is missing.
    pub create: bool,
    /// Fail with [`ErrorKind::AlreadyExists`] if it is there.
    pub create_new: bool,
    /// The wanted mode.
    pub mode: ModeRequest,
}

impl OpenOptions {
    /// An existing file, for reading.
    pub fn read() -> Self {
        OpenOptions { write: false, create: false, create_new: false, mode: ModeRequest::Auto }
    }

    /// An existing file, for reading and writing.
    pub fn read_write() -> Self {
        OpenOptions { write: true, ..Self::read() }
    }

    /// A new file, which must not be there yet, for reading and writing.
    pub fn create_new() -> Self {
        OpenOptions { create_new: true, ..Self::read_write() }
    }

    /// The same with another wanted mode.
    pub fn mode(mut self, mode: ModeRequest) -> Self {
        self.mode = mode;
        self
    }
}

/// A place files live in: the real file system, a simulated one, or a throttled view of a real one.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file.
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn File>>;

    /// Whether a file or folder of that name is there.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Names (not paths) of the files in a folder, in no particular order.
    fn list(&self, folder: &Path) -> Result<Vec<String>>;

    /// Makes a folder, if it is not there; its parent must be.
    fn create_dir(&self, folder: &Path) -> Result<()>;

    /// Removes an empty folder. Durable after [`Disk::sync_dir`] of its parent.
    fn remove_dir(&self, folder: &Path) -> Result<()>;

    /// Removes a file. Durable after [`Disk::sync_dir`] of its folder.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Renames a file within one folder, replacing what is there. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// The same, but nothing is replaced: [`ErrorKind::AlreadyExists`] where the name is taken. A disk that cannot look and rename in one step
    /// looks before.
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        match self.exists(to)? {
            true => Err(error::is_taken(from, to)),
            false => self.rename(from, to),
        }
    }

    /// Makes names created, renamed or removed in `folder` durable.
    fn sync_dir(&self, folder: &Path) -> Result<()>;

    /// Takes an exclusive lock that ends with the returned value or with the process. When somebody else holds it:
    /// [`ErrorKind::Locked`] with a message that says who.
    fn lock(&self, path: &Path) -> Result<Box<dyn Any + Send + Sync>>;

    /// Where the file of that name really is: a symbolic link is followed, as far as it is one. The folders on the way there
    /// are left as they are.
    fn resolve(&self, path: &Path) -> Result<PathBuf>;

    /// Bytes that this user can still write to files in `folder`; `None` where that is not known.
    fn free_bytes(&self, folder: &Path) -> Result<Option<u64>>;

    /// Whether files are objects: written once and from their beginning on, there for others when they were synced and not before, never
    /// changed afterwards. Nobody can lock one for longer than he writes it, or rename it.
    fn holds_objects(&self) -> bool {
        false
    }

    /// How the file of that name is open through this disk, by whoever opened it first of those who still have it; `None` where nobody has, or the
    /// disk does not say.
    fn mode_of(&self, _path: &Path) -> Option<ModeReport> {
        None
    }

    /// What queues are made of, and why; `None` where they are not of this system.
    #[cfg(unix)]
    fn queue_backend(&self) -> Option<BackendReport> {
        None
    }

    /// Puts a short file into its place: it is there with all of these bytes, durably, or not at all. Their number is a multiple of
    /// what direct I/O needs. What is there is replaced; a disk that holds objects refuses to, with [`ErrorKind::AlreadyExists`].
    fn publish(&self, path: &Path, bytes: &[u8], mode: ModeRequest) -> Result<()> {
        let mut new = path.to_owned().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        // An attempt before may have left some.
        let file = self.open(&new, &OpenOptions { create: true, ..OpenOptions::read_write().mode(mode) })?;
        let mut buffer = AlignedBuffer::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        file.set_len(0)?;
        file.write_at(Class::Maintenance, 0, &buffer, Durability::Cached)?;
        file.sync(Class::Maintenance)?;
        self.rename(&new, path)?;
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.sync_dir(folder.unwrap_or(Path::new(".")))
    }

    /// Tells that this stays of what was broken off, for [`Disk::take_left`], where that is kept.
    fn leave(&self, _path: &Path) {}

    /// Whether it is not known if locks that were taken here are held still: removals and the like then wait for that.
    fn is_in_doubt(&self) -> bool {
        false
    }

    /// What of files that were broken off may still be there, in words, as it could not be removed in time. Each is told once.
    fn take_left(&self) -> Vec<String> {
        Vec::new()
    }

    /// A queue that keeps up to `depth` requests in flight.
    fn queue(&self, depth: usize) -> Result<Arc<dyn Queue>>;

    /// Counters and latency histograms of everything that went through this disk.
    fn stats(&self) -> &stats::Stats;

    /// What is known of the device: measured on purpose, or shown by the running load. Where a disk learns nothing, nothing.
    #[cfg(unix)]
    fn calibration(&self) -> Calibration {
        Calibration::default()
    }
}

/// An open file. All offsets and lengths are in bytes. In [`Mode::Direct`] offsets, lengths and buffer addresses must
/// be multiples of [`File::alignment`]; [`AlignedBuffer`] gives such memory.
pub trait File: Send + Sync + fmt::Debug {
    /// Where the file is, for messages.
    fn path(&self) -> &Path;

    /// How it is opened and why.
    fn mode(&self) -> &ModeReport;

    /// Alignment required of offsets, lengths and addresses: at least [`SECTOR`], a power of two, at most 4096
    /// unless the device insists on more.
    fn alignment(&self) -> usize;

    /// Reads exactly `buffer.len()` bytes: one plain positioned read in the calling thread.
    fn read_at(&self, class: Class, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Writes all of `buffer`, in the calling thread.
    fn write_at(&self, class: Class, offset: u64, buffer: &[u8], durability: Durability) -> Result<()>;

    /// Makes every completed write, and the file's size, durable.
    fn sync(&self, class: Class) -> Result<()>;

    /// Gives `offset..offset + len` blocks on the device, extending the file; new bytes read as zero. Fails with
    /// [`ErrorKind::NoSpace`] without changing what is there. Durable after [`File::sync`].
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;

    /// Told of a new file before much of it was written: about so many bytes are going to be. Gives the bytes of memory that the file
    /// itself takes meanwhile, no more than `memory` if that can be, and `spare` bytes for what is written while it has none of that; none where
    /// writes go to a device as they come.
    fn expect(&self, len: u64, memory: u64, spare: u64) -> u64 {
        let _ = (len, memory, spare);
        0
    }

    /// Whether a write that ends before `end` waits for nothing but the device: it is taken, or fails; what is so stays so. Where it is not, that is
    /// waited for up to `limit`. Always so where writes go to a device as they come.
    fn has_room(&self, end: u64, limit: Duration) -> bool {
        let _ = (end, limit);
        true
    }

    /// Sets the file's size; bytes added read as zero. Durable after [`File::sync`].
    fn set_len(&self, len: u64) -> Result<()>;

    /// The file's size.
    fn len(&self) -> Result<u64>;

    /// Whether a name leads to it still, of those that the system counts.
    ///
    /// # Errors
    /// Those of asking.
    fn has_a_name(&self) -> Result<bool>;

    /// Whether the file is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Whether an earlier write or sync failed (see the crate's guarantee 2).
    fn is_poisoned(&self) -> bool;

    /// Takes an exclusive lock on the file itself, whatever its names are, that ends with the returned value or with the
    /// process. Nothing is written, other handles may come and go. When somebody else holds it: [`ErrorKind::Locked`].
    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>>;

    /// The writes that the device itself makes whole or not at all.
    fn atomic_writes(&self) -> AtomicWrites;

    /// Bytes of this file that the OS cache holds, by `cachestat(2)` or `mincore(2)`; `None` where neither works.
    fn cached_bytes(&self) -> Option<u64>;

    /// Asks the OS to forget what it has cached of this file. A hint.
    fn drop_cache(&self);

    /// For a queue, which must recognise the files of its own disk.
    fn as_any(&self) -> &dyn Any;
}

pub mod sim;
pub mod stats;
pub mod trace;
