//! A disk that writes down everything that matters for what a power cut leaves, while another one does the work.
//!
//! # Invariants
//! 1. What goes to the trace, and when, is what [`crate::trace`] guarantees: begins before the disk underneath hears of them,
//!    ends before anybody else does.
//! 2. No operation succeeds that could not be written down: a trace with a gap would prove what is not so.
//! 3. Reads, and everything else that changes nothing, pass through untouched.
#![expect(unsafe_code, reason = "reads and passes on memory of requests that their submitters vouch for")]

use crate::trace::{Event, Writer};
use crate::{
    AtomicWrites, Class, Completion, Direction, Disk, Durability, Error, ErrorKind, File, IoSlice, ModeReport,
};
use crate::{OpenOptions, Queue, Request, Result, stats};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A disk in front of another one that records what is written, see [`crate::trace`].
#[derive(Debug)]
pub struct RecordedDisk {
    under: Arc<dyn Disk>,
    trace: Arc<Trace>,
}

/// The trace, and the words for its failures.
#[derive(Debug)]
struct Trace {
    writer: Writer,
    path: PathBuf,
}

impl Trace {
    fn write(&self, event: &Event<'_>) -> Result<()> {
        self.writer.write(event).map_err(|error| Error::from_os("record in", &self.path, "", error))
    }

    /// Writes down a transfer's begin; gives its number.
    fn begin<'e>(&self, event: impl FnOnce(u64) -> Event<'e>) -> Result<u64> {
        let id = self.writer.number();
        self.write(&event(id))?;
        Ok(id)
    }

    /// Writes down how a transfer ended.
    fn end(&self, id: u64, result: Result<()>) -> Result<()> {
        self.write(&Event::Ended { id, well: result.is_ok() })?;
        result
    }

    /// Runs a transfer between its begin and its end.
    fn during<'e>(
        &self,
        event: impl FnOnce(u64) -> Event<'e>,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let id = self.begin(event)?;
        self.end(id, run())
    }
}

/// A path as the trace has it.
fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::new(ErrorKind::Invalid, "record", path, "its name is not UTF-8"))
}

impl RecordedDisk {
    /// `under`, recorded to a new file at `trace`.
    pub fn new(under: Arc<dyn Disk>, trace: &Path) -> Result<Self> {
        let writer = Writer::create(trace).map_err(|error| Error::from_os("record in", trace, "", error))?;
        Ok(RecordedDisk { under, trace: Arc::new(Trace { writer, path: trace.to_owned() }) })
    }
}

impl Disk for RecordedDisk {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn File>> {
        let name = text(path)?;
        let created = (options.create || options.create_new) && !self.under.exists(path)?;
        let under = self.under.open(path, options)?;
        let (number, trace) = (self.trace.writer.number(), Arc::clone(&self.trace));
        self.trace.write(&Event::Opened { file: number, created, path: name })?;
        Ok(Arc::new(RecordedFile { under, number, trace }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.under.exists(path)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        self.under.list(folder)
    }

    fn create_dir(&self, folder: &Path) -> Result<()> {
        let (path, there) = (text(folder)?, self.under.exists(folder)?);
        self.under.create_dir(folder)?;
        if there { Ok(()) } else { self.trace.write(&Event::FolderCreated { path }) }
    }

    fn remove_dir(&self, folder: &Path) -> Result<()> {
        let path = text(folder)?;
        self.under.remove_dir(folder)?;
        self.trace.write(&Event::FolderRemoved { path })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let name = text(path)?;
        self.under.remove(path)?;
        self.trace.write(&Event::Removed { path: name })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (old, new) = (text(from)?, text(to)?);
        self.under.rename(from, to)?;
        self.trace.write(&Event::Renamed { from: old, to: new })
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        let (old, new) = (text(from)?, text(to)?);
        self.under.rename_new(from, to)?;
        self.trace.write(&Event::Renamed { from: old, to: new })
    }

    fn sync_dir(&self, folder: &Path) -> Result<()> {
        let path = text(folder)?;
        self.trace.during(|id| Event::SyncFolder { id, path }, || self.under.sync_dir(folder))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        let (name, there) = (text(path)?, self.under.exists(path)?);
        let lock = self.under.lock(path)?;
        if !there && self.under.exists(path)? {
            // A lock may be a file, which has a name, and may be removed by it.
            let file = self.trace.writer.number();
            self.trace.write(&Event::Opened { file, created: true, path: name })?;
            self.trace.write(&Event::Closed { file })?;
        }
        Ok(lock)
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        self.under.resolve(path)
    }

    fn free_bytes(&self, folder: &Path) -> Result<Option<u64>> {
        self.under.free_bytes(folder)
    }

    fn mode_of(&self, path: &Path) -> Option<ModeReport> {
        self.under.mode_of(path)
    }

    #[cfg(unix)]
    fn queue_backend(&self) -> Option<crate::BackendReport> {
        self.under.queue_backend()
    }

    fn queue(&self, depth: usize) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(RecordedQueue { under: self.under.queue(depth)?, trace: Arc::clone(&self.trace) }))
    }

    fn stats(&self) -> &stats::Stats {
        self.under.stats()
    }

    #[cfg(unix)]
    fn calibration(&self) -> crate::Calibration {
        self.under.calibration()
    }
}

/// A file of a [`RecordedDisk`].
#[derive(Debug)]
struct RecordedFile {
    under: Arc<dyn File>,
    number: u64,
    trace: Arc<Trace>,
}

impl Drop for RecordedFile {
    fn drop(&mut self) {
        // A trace that fails here fails at the next operation as well; this event changes nothing on the device.
        let _ = self.trace.write(&Event::Closed { file: self.number });
    }
}

impl File for RecordedFile {
    fn path(&self) -> &Path {
        self.under.path()
    }

    fn mode(&self) -> &ModeReport {
        self.under.mode()
    }

    fn alignment(&self) -> usize {
        self.under.alignment()
    }

    fn read_at(&self, class: Class, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.under.read_at(class, offset, buffer)
    }

    fn write_at(&self, class: Class, offset: u64, buffer: &[u8], durability: Durability) -> Result<()> {
        let (file, durable) = (self.number, durability == Durability::Durable);
        self.trace.during(
            |id| Event::Write { id, file, offset, durable, atomic: false, data: buffer },
            || self.under.write_at(class, offset, buffer, durability),
        )
    }

    fn sync(&self, class: Class) -> Result<()> {
        self.trace.during(|id| Event::Sync { id, file: self.number }, || self.under.sync(class))
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.under.allocate(offset, len)?;
        self.trace.write(&Event::Allocated { file: self.number, offset, len })
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.under.set_len(len)?;
        self.trace.write(&Event::Resized { file: self.number, len })
    }

    fn len(&self) -> Result<u64> {
        self.under.len()
    }

    fn has_a_name(&self) -> Result<bool> {
        self.under.has_a_name()
    }

    fn is_poisoned(&self) -> bool {
        self.under.is_poisoned()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        self.under.lock()
    }

    fn atomic_writes(&self) -> AtomicWrites {
        self.under.atomic_writes()
    }

    fn cached_bytes(&self) -> Option<u64> {
        self.under.cached_bytes()
    }

    fn drop_cache(&self) {
        self.under.drop_cache();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Requests of one submission: told of their ends first.
struct Ends {
    trace: Arc<Trace>,
    completion: Arc<dyn Completion>,
    requests: Vec<Begun>,
}

struct Begun {
    token: u64,
    /// The file of a write: as long as that is under way it is not closed, also where nobody else holds it any more.
    _file: Option<Arc<dyn File>>,
    /// The number of a write, or why its begin could not be written down; none for a read.
    write: Option<Result<u64>>,
}

impl Completion for Ends {
    fn complete(&self, index: u64, result: Result<()>) {
        let Begun { token, write, .. } = &self.requests[index as usize];
        let result = match write {
            None => result,
            Some(Ok(id)) => self.trace.end(*id, result),
            Some(Err(error)) => Err(error.duplicate()),
        };
        self.completion.complete(*token, result);
    }
}

#[derive(Debug)]
struct RecordedQueue {
    under: Arc<dyn Queue>,
    trace: Arc<Trace>,
}

impl RecordedQueue {
    /// The request as the disk underneath takes it. One for a file of another disk is left as it is: the queue
    /// underneath refuses it.
    fn begin(&self, request: Request, index: usize) -> (Begun, Request) {
        let token = request.token;
        let Some(file) = request.file.as_any().downcast_ref::<RecordedFile>() else {
            return (Begun { token, _file: None, write: None }, Request { token: index as u64, ..request });
        };
        let (durability, atomic) = match request.direction {
            Direction::Read => (None, false),
            Direction::Write(durability) => (Some(durability), false),
            Direction::WriteAtomic(durability) => (Some(durability), true),
        };
        let write = durability.map(|durability| {
            let data = gathered(&request.slices);
            let (file, offset, durable) = (file.number, request.offset, durability == Durability::Durable);
            self.trace.begin(|id| Event::Write { id, file, offset, durable, atomic, data: &data })
        });
        let under = Arc::clone(&file.under);
        let held = write.is_some().then(|| Arc::clone(&request.file));
        (Begun { token, _file: held, write }, Request { file: under, token: index as u64, ..request })
    }
}

/// The bytes of a write.
fn gathered(slices: &[IoSlice]) -> Vec<u8> {
    let mut data = Vec::with_capacity(slices.iter().map(|slice| slice.len).sum());
    for slice in slices {
        // SAFETY: the submitter promised that the memory is valid and not written by anybody before the completion,
        // and the request has not even been passed on.
        data.extend_from_slice(unsafe { std::slice::from_raw_parts(slice.address, slice.len) });
    }
    data
}

// SAFETY: a request's completion is called by the one that the queue underneath calls.
impl Queue for RecordedQueue {
    unsafe fn submit(&self, requests: Vec<Request>, completion: &Arc<dyn Completion>) {
        let begun = requests.into_iter().enumerate().map(|(index, request)| self.begin(request, index));
        let (begun, requests): (Vec<Begun>, Vec<Request>) = begun.unzip();
        let (trace, completion) = (Arc::clone(&self.trace), Arc::clone(completion));
        let ends: Arc<dyn Completion> = Arc::new(Ends { trace, completion, requests: begun });
        // SAFETY: our own submitters promised that the memory is valid and left alone until their completion, which
        // is called by the one underneath.
        unsafe { self.under.submit(requests, &ends) };
    }

    fn wait_until(&self, done: &mut dyn FnMut() -> bool) {
        self.under.wait_until(done);
    }

    fn poll(&self) {
        self.under.poll();
    }

    fn in_flight(&self) -> usize {
        self.under.in_flight()
    }
}

#[cfg(test)]
#[path = "recorded_tests.rs"]
mod tests;
