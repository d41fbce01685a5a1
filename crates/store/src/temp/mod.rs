//! Temporary files: what sorts and hash tables have no memory for.
//!
//! # What it guarantees
//! 1. A temporary file is written and read in large blocks, several under way at a time, past the OS cache where that is
//!    possible. Nothing of it is ever made durable.
//! 2. It is removed when its last handle goes. What a crash leaves behind is removed when the next engine with the same
//!    folder starts, by whoever that is, but never while the process that made it lives.
//! 3. The memory of its blocks is charged to the budget. One block is enough to go on, and may be a small one; more, and larger ones, make it
//!    faster, and are taken only where something is left for others.
//!
//! # Names
//! ```text
//! gannet-temp-0123456789abcdef.lock    locked as long as the engine with this random number lives
//! gannet-temp-0123456789abcdef-17      its 17th file
//! ```
//! # Invariants
//! 1. A file exists only while its engine's lock is held: the lock is taken before the first file is made, and given back
//!    behind the removal of the last one.
//! 2. Who removes another engine's files holds that engine's lock, so that engine is gone.

mod stream;

use crate::block::Block;
use crate::work::{Lender, WorkMemory};
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use gannet_base::random;
use gannet_base::sync::Mutex;
use gannet_io::{BUFFER_ALIGNMENT, Disk, ErrorKind, File, OpenOptions, Queue};
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
pub use stream::{TempReader, TempWriter};

const PREFIX: &str = "gannet-temp-";
/// Length of an engine's number in a name.
const ID_LEN: usize = 16;
/// Bytes of a block, least and most.
const BLOCK_LEAST: u64 = 16 << 10;
const BLOCK_MOST: u64 = 256 << 10;
/// Blocks that one operation's share of the memory is to hold.
const BLOCKS_OF_A_SHARE: u64 = 32;
/// Requests in flight of all temporary files of an engine.
const QUEUE_DEPTH: usize = 64;

/// Figures of the temporary files of an engine since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TempStats {
    /// Files made.
    pub files: u64,
    /// Files that exist now.
    pub open_files: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

#[derive(Debug, Default)]
struct Counters {
    files: AtomicU64,
    open_files: AtomicU64,
    bytes_written: AtomicU64,
    bytes_read: AtomicU64,
}

/// Where an engine's temporary files are.
pub(crate) struct TempSpace {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    lender: Lender,
    /// Made with the first file.
    home: Mutex<Option<Home>>,
    counters: Counters,
}

/// What an engine that has temporary files holds.
struct Home {
    id: String,
    next: u64,
    queue: Arc<dyn Queue>,
    lock_path: PathBuf,
    _lock: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for TempSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TempSpace").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl TempSpace {
    /// Removes what crashed engines have left in the folder. What cannot be removed is left to the next one.
    pub(crate) fn new(disk: &Arc<dyn Disk>, folder: PathBuf, lender: &Lender) -> Arc<Self> {
        let space = TempSpace {
            disk: Arc::clone(disk),
            folder,
            lender: lender.clone(),
            home: Mutex::default(),
            counters: Counters::default(),
        };
        space.remove_left_overs();
        Arc::new(space)
    }

    pub(crate) fn stats(&self) -> TempStats {
        let counters = &self.counters;
        TempStats {
            files: counters.files.load(Ordering::Relaxed),
            open_files: counters.open_files.load(Ordering::Relaxed),
            bytes_written: counters.bytes_written.load(Ordering::Relaxed),
            bytes_read: counters.bytes_read.load(Ordering::Relaxed),
        }
    }

    /// Bytes of a block of a file that somebody makes now who may take `within` bytes.
    pub(crate) fn block_bytes(&self, within: u64) -> u64 {
        let share = self.lender.work_limit().min(within);
        (share / BLOCKS_OF_A_SHARE).next_power_of_two().clamp(BLOCK_LEAST, BLOCK_MOST)
    }

    /// Makes an empty file, for who may take `within` bytes.
    pub(crate) fn create(self: &Arc<Self>, within: u64) -> Result<TempFile> {
        let (path, queue) = {
            let mut home = self.home.lock();
            if home.is_none() {
                *home = Some(self.settle()?);
            }
            let home = home.as_mut().expect("made above");
            home.next += 1;
            let name = format!("{PREFIX}{}-{}", home.id, home.next);
            (self.folder.join(name), Arc::clone(&home.queue))
        };
        let file = self.disk.open(&path, &OpenOptions::create_new())?;
        self.counters.files.fetch_add(1, Ordering::Relaxed);
        self.counters.open_files.fetch_add(1, Ordering::Relaxed);
        let alignment = file.alignment().max(BUFFER_ALIGNMENT);
        let block = (self.block_bytes(within) as usize).max(alignment);
        let storage = Storage { file, queue, space: Arc::clone(self), alignment: alignment as u64, block };
        Ok(TempFile { storage: Arc::new(storage), len: 0 })
    }

    fn settle(&self) -> Result<Home> {
        make_folder(&*self.disk, &self.folder)?;
        let queue = self.disk.queue(QUEUE_DEPTH)?;
        loop {
            let id = format!("{:016x}", random::next_u64());
            let lock_path = self.lock_path(&id);
            match self.disk.lock(&lock_path) {
                Ok(lock) => return Ok(Home { id, next: 0, queue, lock_path, _lock: lock }),
                // Somebody who removes left-overs has come upon it: take another number.
                Err(error) if error.kind() == ErrorKind::Locked => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn lock_path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{PREFIX}{id}.lock"))
    }

    fn remove_left_overs(&self) {
        let names = self.disk.list(&self.folder).unwrap_or_default();
        let ids: BTreeSet<&str> = names.iter().filter_map(|name| id_of(name)).collect();
        for id in ids {
            let lock_path = self.lock_path(id);
            let Ok(_lock) = self.disk.lock(&lock_path) else { continue };
            for name in names.iter().filter(|name| id_of(name) == Some(id)) {
                let path = self.folder.join(name);
                if path != lock_path {
                    let _ = self.disk.remove(&path);
                }
            }
            let _ = self.disk.remove(&lock_path);
        }
    }

    /// Whether there is memory for more blocks than each file needs: operations hold less than half of the budget. Those who come later
    /// have to get their first ones, too.
    fn has_plenty(&self) -> bool {
        let budget = &self.lender.budget;
        budget.used_for(Purpose::Work) < budget.limit() / 2
    }

    /// Memory for a block or a record.
    fn charge(&self, bytes: u64) -> Result<WorkMemory> {
        self.lender.work_memory(bytes, false)
    }
}

impl Drop for TempSpace {
    fn drop(&mut self) {
        if let Some(home) = self.home.get_mut().take() {
            // Still locked: nobody is led to believe that there is something to remove.
            let _ = self.disk.remove(&home.lock_path);
        }
    }
}

/// The number of the engine that a temporary file, or a lock, is named by.
fn id_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(PREFIX)?;
    let (id, rest) = (rest.get(..ID_LEN)?, rest.get(ID_LEN..)?);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let ours = id.bytes().all(|b| b.is_ascii_hexdigit())
        && (rest == ".lock" || rest.strip_prefix('-').is_some_and(is_number));
    ours.then_some(id)
}

fn make_folder(disk: &dyn Disk, folder: &Path) -> Result<()> {
    if folder.as_os_str().is_empty() || disk.list(folder).is_ok() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        make_folder(disk, parent)?;
    }
    disk.create_dir(folder)?;
    Ok(())
}

/// What the handles of one file share.
#[derive(Debug)]
struct Storage {
    file: Arc<dyn File>,
    queue: Arc<dyn Queue>,
    space: Arc<TempSpace>,
    /// Offsets and lengths of all transfers are multiples of it.
    alignment: u64,
    /// Bytes of a block, where there is memory for it.
    block: usize,
}

impl Storage {
    /// A zeroed block without which nothing goes on: a small one where a larger one would leave too little for others.
    fn first_block(&self) -> Result<Block> {
        match self.further_block(self.block) {
            Err(Error::Memory(_)) => {
                let least = BLOCK_LEAST.max(self.alignment).min(self.block as u64);
                Ok(Block::new(&self.queue, self.space.charge(least)?))
            }
            other => other,
        }
    }

    /// A zeroed block of `bytes` that there can be done without; fails where it would leave too little for others.
    fn further_block(&self, bytes: usize) -> Result<Block> {
        let mut memory = self.space.charge(0)?;
        memory.grow_leaving(bytes as u64)?;
        Ok(Block::new(&self.queue, memory))
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // What cannot be removed now, the next start removes.
        let _ = self.space.disk.remove(self.file.path());
        self.space.counters.open_files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A temporary file, made by [`Engine::temp_file`](crate::Engine::temp_file). It goes with its last handle.
///
/// ```
/// # use gannet_store::{Engine, EngineOptions};
/// let engine = Engine::new(&EngineOptions::default())?;
/// let mut writer = engine.temp_file()?.writer()?;
/// writer.write_all(b"first run")?;
/// let second = writer.position();
/// writer.write_all(b"second run")?;
/// let file = writer.finish()?;
/// let mut run = [0; 6];
/// file.reader(second, file.len())?.read_exact(&mut run)?;
/// assert_eq!(&run, b"second");
/// # Ok::<(), gannet_store::Error>(())
/// ```
#[derive(Debug)]
pub struct TempFile {
    storage: Arc<Storage>,
    len: u64,
}

impl TempFile {
    /// Where the bytes written so far end. The next writer begins there or a little behind.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of its blocks, of which a reader or writer has three at most.
    pub fn block_bytes(&self) -> u64 {
        self.storage.block as u64
    }

    /// Goes on writing at the end: [`TempWriter::position`] says where that is. Readers may go on meanwhile.
    pub fn writer(self) -> Result<TempWriter> {
        self.writer_or_file().map_err(|(_, error)| error)
    }

    /// The same, but the file comes back where there is no memory for a block.
    pub fn writer_or_file(self) -> std::result::Result<TempWriter, (TempFile, Error)> {
        TempWriter::new(self)
    }

    /// Reads the bytes `from..to`, once, in their order. There may be any number of readers.
    pub fn reader(&self, from: u64, to: u64) -> Result<TempReader> {
        TempReader::new(&self.storage, from, to, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_are_ours() {
        let id = "0123456789abcdef";
        for name in ["gannet-temp-0123456789abcdef.lock", "gannet-temp-0123456789abcdef-17"] {
            assert_eq!(id_of(name), Some(id));
        }
        for name in [
            "gannet-temp-0123456789abcdef",
            "gannet-temp-0123456789abcdef-",
            "gannet-temp-0123456789abcdef-1x",
            "gannet-temp-0123456789abcdeg-1",
            "gannet-temp-0123456789abcdé-1",
            "gannet-temp-12.lock",
            "notes.txt",
        ] {
            assert_eq!(id_of(name), None, "{name}");
        }
    }
}
