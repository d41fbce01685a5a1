//! An open file of the real file system.
//!
//! # Invariants
//! 1. `poisoned` is set before the failure of a write or sync is reported to anybody, and never cleared. Zeros that allocation
//!    writes behind the end, where the system gives no blocks otherwise, are cut off again when they fail, and poison nothing.
//! 2. Requests that can be seen to be wrong (unaligned, on a read-only handle, too many slices) fail before they reach
//!    the system, and poison nothing.
//! 3. The system tells of a failed write-back once for each open file: whichever sync, or durable write through the OS cache,
//!    asks next takes it, and the others hear of nothing. So these are made one at a time, under `syncing`, and who fails
//!    poisons the file before he lets go of it. In direct mode a durable write has left nothing in the cache and is told of
//!    its own failure: there they go side by side, and only plain syncs take turns.
#![expect(unsafe_code, reason = "hands addresses to the system")]

use crate::admission::Shared;
use crate::error::Poison;
use crate::real::transfer::{Step, Transfer, wait_for_memory};
use crate::real::{FILE_PERMISSIONS, lock, mode, sys};
use crate::stats::Operation;
use crate::{
    AlignedBuffer, AtomicWrites, Class, Direction, Durability, Error, ErrorKind, File, IoSlice, Mode,
};
use crate::{ModeReport, OpenOptions, Result};
use gannet_base::clock::{self, Instant};
use gannet_base::sync::Mutex;
use std::any::Any;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Files are dropped from the OS cache whenever this many bytes went through it: no more than jobs may leave there.
const FORGET_EVERY: u64 = 1 << 20;

/// The most slices one request may have.
const SLICES_MAX: usize = 1024;

/// A file opened by a [`crate::RealDisk`].
#[derive(Debug)]
pub struct RealFile {
    file: std::fs::File,
    path: PathBuf,
    writable: bool,
    mode: ModeReport,
    alignment: usize,
    atomic: AtomicWrites,
    /// Flags of every transfer, from the mode.
    base_flags: i32,
    /// Whether `RWF_DSYNC` works here; cleared for good when the system refuses it.
    durable_writes: AtomicBool,
    poisoned: Poison,
    cached: AtomicU64,
    /// Held while the size changes.
    sizing: Mutex<()>,
    /// Held while something is made durable through the OS cache: invariant 3.
    syncing: Mutex<()>,
    shared: Arc<Shared>,
}

impl RealFile {
    pub(super) fn open(path: &Path, options: &OpenOptions, shared: &Arc<Shared>) -> Result<Self> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(options.write)
            .create(options.create && options.write)
            .create_new(options.create_new)
            .mode(FILE_PERMISSIONS)
            .open(path)
            .map_err(|e| Error::from_os("open", path, "", e))?;
        let probed = mode::probe(&file, options.mode);
        Ok(RealFile {
            file,
            path: path.to_owned(),
            writable: options.write,
            base_flags: if probed.report.effective == Mode::Uncached { sys::RWF_DONTCACHE } else { 0 },
            mode: probed.report,
            alignment: probed.alignment,
            atomic: probed.atomic,
            durable_writes: AtomicBool::new(cfg!(target_os = "linux")),
            poisoned: Poison::default(),
            cached: AtomicU64::new(0),
            sizing: Mutex::new(()),
            syncing: Mutex::new(()),
            shared: Arc::clone(shared),
        })
    }

    /// Whether it is the file that the system says this of.
    pub(super) fn is(&self, other: &std::fs::Metadata) -> bool {
        self.file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (other.dev(), other.ino()))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(crate) fn path_ref(&self) -> &Path {
        &self.path
    }

    pub(crate) fn report(&self) -> &ModeReport {
        &self.mode
    }

    pub(crate) fn alignment_bytes(&self) -> usize {
        self.alignment
    }

    pub(crate) fn poison(&self, failure: &Error) {
        self.poisoned.set(failure);
    }

    pub(crate) fn no_durable_writes(&self) {
        self.durable_writes.store(false, Ordering::Relaxed);
    }

    /// The `RWF_` flags of a transfer.
    pub(crate) fn flags(&self, direction: Direction) -> i32 {
        let (durability, atomic) = match direction {
            Direction::Read => return self.base_flags,
            Direction::Write(durability) => (durability, 0),
            Direction::WriteAtomic(durability) => (durability, sys::RWF_ATOMIC),
        };
        let through = durability == Durability::Durable && self.durable_writes.load(Ordering::Relaxed);
        self.base_flags | atomic | if through { sys::RWF_DSYNC } else { 0 }
    }

    /// Whether such a transfer is made alone, beside no other one of the kind and no sync: invariant 3.
    pub(crate) fn is_alone(&self, direction: Direction) -> bool {
        let durable = matches!(
            direction,
            Direction::Write(Durability::Durable) | Direction::WriteAtomic(Durability::Durable)
        );
        durable && (self.mode.effective != Mode::Direct || !self.durable_writes.load(Ordering::Relaxed))
    }

    /// Finds what is wrong with a request before the system sees it; gives its length.
    pub(crate) fn check(&self, direction: Direction, offset: u64, slices: &[IoSlice]) -> Result<usize> {
        let operation = if direction == Direction::Read { "read" } else { "write" };
        let invalid = |text: String| Err(Error::new(ErrorKind::Invalid, operation, &self.path, text));
        let total: usize = slices.iter().map(|s| s.len).sum();
        if direction != Direction::Read {
            self.check_writable(operation)?;
        }
        if slices.len() > SLICES_MAX {
            return invalid(format!("{} slices, at most {SLICES_MAX} are possible", slices.len()));
        }
        if offset.checked_add(total as u64).is_none_or(|end| end > i64::MAX as u64) {
            return invalid(format!("{total} bytes at offset {offset} are behind any file's end"));
        }
        if self.mode.effective == Mode::Direct {
            let mask = self.alignment - 1;
            let bits = slices.iter().fold(offset as usize, |bits, s| bits | s.len | s.address.addr());
            if bits & mask != 0 {
                let text = format!(
                    "{total} bytes at offset {offset}: offset, lengths and addresses must be multiples of {}",
                    self.alignment
                );
                return invalid(text);
            }
        }
        if let Direction::WriteAtomic(_) = direction {
            let fits = slices.len() == 1 && self.atomic.have(total);
            if !fits || !offset.is_multiple_of(total as u64) {
                let text = format!(
                    "{total} bytes in {} slices at offset {offset} cannot be written atomically; the device \
                     writes aligned powers of two from {} up to {} bytes whole",
                    slices.len(),
                    self.atomic.min,
                    self.atomic.max
                );
                return invalid(text);
            }
        }
        Ok(total)
    }

    fn check_writable(&self, operation: &'static str) -> Result<()> {
        if !self.writable {
            let text = "it is open for reading only";
            return Err(Error::new(ErrorKind::Invalid, operation, &self.path, text));
        }
        self.poisoned.check(operation, &self.path)
    }

    /// Runs a whole checked transfer in the calling thread.
    ///
    /// # Safety
    /// The memory of `slices` must be as [`crate::Queue::submit`] asks.
    pub(crate) unsafe fn run(&self, transfer: &mut Transfer, slices: &[IoSlice]) -> Result<()> {
        let mut pieces = Vec::new();
        let mut turn = None;
        if self.is_alone(transfer.direction()) {
            turn = Some(self.syncing.lock());
            self.check_writable("write")?;
        }
        loop {
            let answer = match transfer.step() {
                Step::Done => return Ok(()),
                Step::Sync => {
                    // The system knows no durable writes, as has just turned out.
                    turn.get_or_insert_with(|| self.syncing.lock());
                    self.check_writable("sync")?;
                    self.file.sync_data().map(|()| 0)
                }
                Step::Transfer(flags) => {
                    let (write, at) = (transfer.is_write(), transfer.position());
                    match slices {
                        // SAFETY: promised by the caller; the slices lie inside the ones handed in.
                        [one] => unsafe {
                            sys::transfer(self.fd(), write, &[transfer.rest_of(one)], at, flags)
                        },
                        _ => {
                            transfer.rest(slices, &mut pieces);
                            // SAFETY: as above.
                            unsafe { sys::transfer(self.fd(), write, &pieces, at, flags) }
                        }
                    }
                }
            };
            transfer.advance(self, answer)?;
            if transfer.take_early() {
                wait_for_memory(self);
            }
        }
    }

    /// Gives clean pages of the OS cache back. Uncached transfers leave some there as well: those that somebody else looked at meanwhile.
    pub(super) fn leave_cache(&self) {
        if self.mode.effective != Mode::Direct {
            sys::forget(&self.file);
        }
    }

    /// Counts a finished request; `dispatched` is when it left for the device.
    pub(crate) fn settle(&self, done: &Settled, now: Instant, ok: bool) {
        self.shared.settle(done, now, ok);
        if self.mode.effective != Mode::Direct {
            let bytes = done.bytes as u64;
            let before = self.cached.fetch_add(bytes, Ordering::Relaxed);
            if before / FORGET_EVERY != (before + bytes) / FORGET_EVERY {
                self.leave_cache();
            }
        }
    }

    fn transfer_here(&self, class: Class, direction: Direction, offset: u64, slice: IoSlice) -> Result<()> {
        // What is refused here, as in the queues, never was an operation and is not counted.
        if self.check(direction, offset, &[slice])? == 0 {
            return Ok(());
        }
        let mut transfer = Transfer::new(self, direction, offset, slice.len);
        // SAFETY: the slice was made from a reference that the public caller holds during the whole call, exclusive
        // for reads; for writes the memory is only read.
        unsafe { self.admit(class, &mut transfer, &[slice]) }
    }

    /// Runs a whole checked transfer in the calling thread when it may go to the device, and counts it.
    ///
    /// # Safety
    /// As for [`RealFile::run`].
    unsafe fn admit(&self, class: Class, transfer: &mut Transfer, slices: &[IoSlice]) -> Result<()> {
        let submitted = clock::now();
        let depth = self.shared.admission.enter(class);
        // SAFETY: promised by the caller.
        let result = unsafe { self.run(transfer, slices) };
        self.shared.admission.leave(class);
        let (direction, bytes) = (transfer.direction(), transfer.total());
        let done = Settled { class, direction, bytes, submitted, dispatched: submitted, depth };
        self.settle(&done, clock::now(), result.is_ok());
        result
    }

    /// Has `call` make what was written durable, in its turn: invariant 3.
    fn sync_by(&self, class: Class, call: impl FnOnce() -> io::Result<()>) -> Result<()> {
        let _turn = self.syncing.lock();
        self.check_writable("sync")?;
        let start = clock::now();
        let result = call().map_err(|e| Error::from_os("sync", &self.path, "", e));
        if let Err(failure) = &result {
            self.poison(failure);
        }
        self.shared.stats.record(class, Operation::Sync, 0, clock::now() - start, result.is_ok());
        result?;
        // A write may have failed meanwhile.
        self.check_writable("sync")
    }

    /// Writes zeros where the file ends. A failure is not one of the file, which the caller makes as long as it was.
    fn write_zeros(&self, offset: u64, len: u64) -> Result<()> {
        let mut zeros = AlignedBuffer::zeroed(1 << 20);
        let direction = Direction::Write(Durability::Cached);
        let mut at = offset.next_multiple_of(self.alignment as u64);
        let end = offset + len;
        while at < end {
            let piece = (end - at).min(zeros.len() as u64);
            // Direct writes are whole blocks; what this adds behind the end is cut off again below.
            let piece = piece.next_multiple_of(self.alignment as u64);
            let slice = IoSlice { address: zeros.as_mut_ptr(), len: piece as usize };
            let mut transfer = Transfer::beyond(self, direction, at, slice.len);
            // SAFETY: the buffer is this function's own, has room for the slice, and outlives the call.
            unsafe { self.admit(Class::Maintenance, &mut transfer, &[slice]) }?;
            at += piece;
        }
        self.file.set_len(end).map_err(|e| Error::from_os("allocate", &self.path, "", e))
    }
}

/// What is counted of a request when it has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) class: Class,
    pub(crate) direction: Direction,
    pub(crate) bytes: usize,
    pub(crate) submitted: Instant,
    pub(crate) dispatched: Instant,
    /// Requests at the device when this one left, itself included.
    pub(crate) depth: usize,
}

impl File for RealFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn mode(&self) -> &ModeReport {
        &self.mode
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn read_at(&self, class: Class, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let slice = IoSlice { address: buffer.as_mut_ptr(), len: buffer.len() };
        self.transfer_here(class, Direction::Read, offset, slice)
    }

    fn write_at(&self, class: Class, offset: u64, buffer: &[u8], durability: Durability) -> Result<()> {
        let slice = IoSlice { address: buffer.as_ptr().cast_mut(), len: buffer.len() };
        self.transfer_here(class, Direction::Write(durability), offset, slice)
    }

    fn sync(&self, class: Class) -> Result<()> {
        let result = self.sync_by(class, || self.file.sync_data());
        self.leave_cache();
        result
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable("allocate")?;
        if len == 0 {
            return Ok(());
        }
        let _sizing = self.sizing.lock();
        let before = self.len()?;
        let result = match sys::allocate(&self.file, offset, len) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
                // What is inside the file may hold data and stays as it is.
                let start = offset.max(before);
                let end = offset.saturating_add(len);
                if start < end { self.write_zeros(start, end - start) } else { Ok(()) }
            }
            other => {
                let detail = format!("{len} bytes at offset {offset}");
                other.map_err(|e| Error::from_os("allocate", &self.path, detail, e))
            }
        };
        if result.is_err() && self.len().is_ok_and(|now| now > before) {
            // Part of it may have been given; the size goes back, and with it the blocks.
            self.file.set_len(before).map_err(|e| Error::from_os("truncate", &self.path, "", e))?;
        }
        result
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable("truncate")?;
        let _sizing = self.sizing.lock();
        self.file
            .set_len(len)
            .map_err(|e| Error::from_os("truncate", &self.path, format!("to {len} bytes"), e))
    }

    fn len(&self) -> Result<u64> {
        match self.file.metadata() {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => Err(Error::from_os("ask for the size of", &self.path, "", error)),
        }
    }

    fn has_a_name(&self) -> Result<bool> {
        match self.file.metadata() {
            Ok(metadata) => Ok(metadata.nlink() > 0),
            Err(error) => Err(Error::from_os("ask for the names of", &self.path, "", error)),
        }
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.is_set()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        lock::lock_file(&self.file, &self.path)
    }

    fn atomic_writes(&self) -> AtomicWrites {
        self.atomic
    }

    fn cached_bytes(&self) -> Option<u64> {
        sys::cached_bytes(&self.file)
    }

    fn drop_cache(&self) {
        sys::forget(&self.file);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for RealFile {
    fn drop(&mut self) {
        self.leave_cache();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, ModeRequest, RealDisk};
    use gannet_base::thread;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    fn file(folder: &Path, mode: Mode) -> Arc<dyn File> {
        let options = OpenOptions::create_new().mode(ModeRequest::Only(mode));
        RealDisk::default().open(&folder.join("file"), &options).unwrap()
    }

    fn real(file: &Arc<dyn File>) -> &RealFile {
        file.as_any().downcast_ref().unwrap()
    }

    #[test]
    fn a_sync_beside_one_that_takes_the_error_does_not_succeed() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), Mode::Buffered);
        let (failed, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
        let syncs: Vec<_> = (0..3)
            .map(|_| {
                let (file, failed, calls) = (Arc::clone(&file), Arc::clone(&failed), Arc::clone(&calls));
                thread::spawn("sync", move || {
                    real(&file).sync_by(Class::Commit, || {
                        calls.fetch_add(1, Ordering::SeqCst);
                        // The first to ask is told, and comes to say so only when the others have asked.
                        let told = failed.swap(false, Ordering::SeqCst);
                        clock::sleep(Duration::from_millis(if told { 100 } else { 20 }));
                        if told { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
                    })
                })
            })
            .collect();
        let kinds: Vec<_> = syncs.into_iter().map(|sync| sync.join().unwrap().unwrap_err().kind()).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == ErrorKind::Device).count(), 1, "{kinds:?}");
        assert_eq!(calls.load(Ordering::SeqCst), 1, "what comes behind a failure is not asked for");
    }

    #[test]
    fn zeros_that_found_no_room_poison_nothing() {
        if !cfg!(target_os = "linux") {
            return;
        }
        let full = RealDisk::default().open(Path::new("/dev/full"), &OpenOptions::read_write()).unwrap();
        let error = real(&full).write_zeros(0, 1 << 16).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(!full.is_poisoned(), "room may come, and who asks for it again is to be told of room");
    }

    #[test]
    fn a_durable_write_through_the_cache_waits_for_a_sync_and_fails_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), Mode::Buffered);
        let begun = Arc::new(AtomicBool::new(false));
        let sync = {
            let (file, begun) = (Arc::clone(&file), Arc::clone(&begun));
            thread::spawn("sync", move || {
                real(&file).sync_by(Class::Commit, || {
                    begun.store(true, Ordering::SeqCst);
                    clock::sleep(Duration::from_millis(100));
                    Err(io::Error::from_raw_os_error(libc::EIO))
                })
            })
        };
        while !begun.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let mut buffer = AlignedBuffer::zeroed(4096);
        let error = file.write_at(Class::Commit, 0, &buffer, Durability::Durable).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert_eq!(sync.join().unwrap().unwrap_err().kind(), ErrorKind::Device);
        assert_eq!(file.len().unwrap(), 0, "it never reached the system");
        // What was written before can be read as ever, if there is any.
        assert_eq!(file.read_at(Class::Commit, 0, &mut buffer).unwrap_err().kind(), ErrorKind::ShortRead);
    }
}
