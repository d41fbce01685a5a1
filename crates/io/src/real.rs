//! The real file system: files by `pread`/`pwrite` with direct or uncached I/O where it works, queues over `io_uring`
//! or a pool of threads.

use crate::admission::{PREFETCH_DEPTH_DEFAULT, Shared};
use crate::{Calibration, Disk, Error, File, ModeReport, OpenOptions, Queue, Result, error::is_taken, stats};
use gannet_base::sync::Mutex;
use std::any::Any;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

mod file;
mod job;
mod lock;
mod mode;
pub(crate) mod sys;
mod threads;
mod transfer;
#[cfg(target_os = "linux")]
mod uring;

pub use file::RealFile;
pub(crate) use file::Settled;

/// Permissions of files that are made: read and written by this user, by nobody else.
pub(crate) const FILE_PERMISSIONS: u32 = 0o600;
/// The same of folders.
const FOLDER_PERMISSIONS: u32 = 0o700;

/// What queues are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// `io_uring` where it works, else threads.
    #[default]
    Auto,
    /// `io_uring(7)`; where it does not work, threads, and the report says why.
    Uring,
    /// `preadv`/`pwritev` on a pool of threads.
    Threads,
}

impl Backend {
    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Auto => "auto",
            Backend::Uring => "io_uring",
            Backend::Threads => "threads",
        }
    }
}

/// What was asked for, what queues really use, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackendReport {
    /// What the caller asked for.
    pub requested: Backend,
    /// What is in force; never [`Backend::Auto`]. Threads also where only some queues use them.
    pub effective: Backend,
    /// Why, in one sentence for a user.
    pub reason: String,
}

/// Queues that should have had a ring and got none.
#[derive(Debug, Default)]
struct Refused {
    queues: usize,
    /// What the system said of the last one.
    why: String,
}

/// How a [`RealDisk`] works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RealOptions {
    /// What queues are made of.
    pub backend: Backend,
    /// Prefetch requests at the device at one time, until a calibration says otherwise. Default 64, at least 1.
    pub prefetch_depth: usize,
    /// Threads of one queue of [`Backend::Threads`]. Default 64, at least 1; started as they are needed.
    pub queue_threads: usize,
}

impl Default for RealOptions {
    fn default() -> Self {
        RealOptions { backend: Backend::Auto, prefetch_depth: PREFETCH_DEPTH_DEFAULT, queue_threads: 64 }
    }
}

/// The file system of this machine.
#[derive(Debug)]
pub struct RealDisk {
    options: RealOptions,
    /// What was tried before there was any queue.
    backend: OnceLock<BackendReport>,
    refused: Mutex<Refused>,
    shared: Arc<Shared>,
    /// What was opened, and may be closed meanwhile.
    opened: Mutex<Vec<Weak<RealFile>>>,
}

impl RealDisk {
    /// A view of the file system. Nothing is tried before it is needed.
    pub fn new(options: RealOptions) -> Self {
        let shared = Arc::new(Shared::new(options.prefetch_depth));
        let (backend, refused, opened) = (OnceLock::new(), Mutex::default(), Mutex::default());
        RealDisk { options, backend, refused, shared, opened }
    }

    /// What queues are to be made of. Tried at the first call.
    fn probed_backend(&self) -> &BackendReport {
        self.backend.get_or_init(|| probe_backend(self.options.backend))
    }

    /// Prefetch requests that may be at the device at one time.
    pub fn prefetch_depth(&self) -> usize {
        self.shared.admission.prefetch_depth()
    }

    /// Sets [`RealDisk::prefetch_depth`]; at least 1.
    pub fn set_prefetch_depth(&self, depth: usize) {
        self.shared.admission.set_prefetch_depth(depth);
    }

    /// Takes over a measured calibration: prefetch depth and pacing of maintenance follow it.
    pub fn set_calibration(&self, calibration: &Calibration) {
        self.shared.admission.calibrate(calibration);
    }
}

impl Default for RealDisk {
    fn default() -> Self {
        Self::new(RealOptions::default())
    }
}

#[cfg(target_os = "linux")]
fn probe_backend(requested: Backend) -> BackendReport {
    let report = |effective, reason| BackendReport { requested, effective, reason };
    if requested == Backend::Threads {
        return report(Backend::Threads, "threads were asked for".to_owned());
    }
    match uring::probe() {
        Ok(()) => report(Backend::Uring, "io_uring works here".to_owned()),
        Err(why) => report(Backend::Threads, why),
    }
}

#[cfg(not(target_os = "linux"))]
fn probe_backend(requested: Backend) -> BackendReport {
    let reason = match requested {
        Backend::Threads => "threads were asked for",
        _ => "io_uring exists on Linux only",
    };
    BackendReport { requested, effective: Backend::Threads, reason: reason.to_owned() }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn File>> {
        let file = Arc::new(RealFile::open(path, options, &self.shared)?);
        let mut opened = self.opened.lock();
        opened.retain(|file| file.strong_count() > 0);
        opened.push(Arc::downgrade(&file));
        Ok(file)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|e| Error::from_os("look for", path, "", e))
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        let os = |e| Error::from_os("list", folder, "", e);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(os)? {
            let entry = entry.map_err(os)?;
            let is_folder = entry.file_type().map_err(os)?.is_dir();
            // A name that is not UTF-8 is not one of ours.
            if let (false, Ok(name)) = (is_folder, entry.file_name().into_string()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create_dir(&self, folder: &Path) -> Result<()> {
        match std::fs::DirBuilder::new().mode(FOLDER_PERMISSIONS).create(folder) {
            Err(_) if folder.is_dir() => Ok(()),
            other => other.map_err(|e| Error::from_os("create folder", folder, "", e)),
        }
    }

    fn remove_dir(&self, folder: &Path) -> Result<()> {
        std::fs::remove_dir(folder).map_err(|e| Error::from_os("remove folder", folder, "", e))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        std::fs::remove_file(path).map_err(|e| Error::from_os("remove", path, "", e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to).map_err(|e| Error::from_os("rename", from, format!("to {to:?}"), e))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        let renamed = sys::rename_new(from, to).unwrap_or_else(|| match to.symlink_metadata() {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => std::fs::rename(from, to),
        });
        renamed.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => is_taken(from, to),
            _ => Error::from_os("rename", from, format!("to {to:?}"), e),
        })
    }

    fn sync_dir(&self, folder: &Path) -> Result<()> {
        let synced = std::fs::File::open(folder).and_then(|f| f.sync_all());
        synced.map_err(|e| Error::from_os("sync folder", folder, "", e))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        lock::lock(path)
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        let mut path = path.to_owned();
        // As many links as the kernel follows; opening the file says what is wrong with more.
        for _ in 0..40 {
            if !path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
                break;
            }
            let target = path.read_link().map_err(|e| Error::from_os("follow", &path, "", e))?;
            path = path.parent().unwrap_or(Path::new("")).join(target);
        }
        Ok(path)
    }

    fn free_bytes(&self, folder: &Path) -> Result<Option<u64>> {
        let opened = std::fs::File::open(folder).and_then(|folder| sys::free_bytes(&folder));
        opened.map(Some).map_err(|e| Error::from_os("ask for room in", folder, "", e))
    }

    fn mode_of(&self, path: &Path) -> Option<ModeReport> {
        // Not by its name: files of the log are renamed while they are open.
        let wanted = std::fs::metadata(path).ok()?;
        let files: Vec<_> = self.opened.lock().iter().filter_map(Weak::upgrade).collect();
        files.iter().find(|file| file.is(&wanted)).map(|file| file.report().clone())
    }

    fn queue_backend(&self) -> Option<BackendReport> {
        let mut report = self.probed_backend().clone();
        let Refused { queues, why } = &*self.refused.lock();
        if *queues > 0 {
            report.effective = Backend::Threads;
            report
                .reason
                .push_str(&format!(", but not for every queue: {queues} so far use threads ({why})"));
        }
        Some(report)
    }

    fn queue(&self, depth: usize) -> Result<Arc<dyn Queue>> {
        #[cfg(target_os = "linux")]
        if self.probed_backend().effective == Backend::Uring {
            // A single ring may still fail, for example by a limit on locked memory.
            match uring::UringQueue::new(depth, &self.shared) {
                Ok(queue) => return Ok(Arc::new(queue)),
                Err(error) => {
                    let mut refused = self.refused.lock();
                    refused.queues += 1;
                    refused.why = format!("the system refuses a ring for {depth} requests: {error}");
                }
            }
        }
        Ok(Arc::new(threads::ThreadQueue::new(depth, self.options.queue_threads, &self.shared)?))
    }

    fn stats(&self) -> &stats::Stats {
        &self.shared.stats
    }

    fn calibration(&self) -> Calibration {
        self.shared.admission.calibration()
    }
}
