//! Where the frames of a backup go.
//!
//! # Invariants
//! 1. In a folder a backup is two files, `NAME.gntbackup` with the frames and `NAME.json` with the manifest. The manifest is there only
//!    when all of the other file is durable: a file without one is a part of a backup that was broken off, or is being
//!    made; whoever makes it holds its lock.
//! 2. Nothing that is there is overwritten.

use super::manifest::Manifest;
use super::{failed, format};
use crate::block::Block;
use crate::{Error, Result};
use gannet_base::sync::Mutex;
use gannet_base::units::format_size;
use gannet_io::{
    AlignedBuffer, Class, Direction, Disk, Durability, ErrorKind, File, ModeRequest, OpenOptions,
};
use std::any::Any;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ending of the file with a backup's frames.
pub(crate) const DATA: &str = ".gntbackup";
/// Bytes of a file that are removed in one step.
const REMOVED_AT_ONCE: u64 = 16 << 20;
/// Ending of its manifest.
pub(crate) const MANIFEST: &str = ".json";

/// Where a backup goes.
pub enum Destination {
    /// Two files of this name in a folder, which is there.
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The backup's name.
        name: String,
    },
    /// One stream of bytes, as to a pipe.
    Stream(Box<dyn Write + Send>),
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Folder { folder, name } => write!(f, "{:?}", folder.join(name)),
            Destination::Stream(_) => f.write_str("a stream"),
        }
    }
}

/// See the module's head.
pub(crate) struct Sink {
    /// Frames so far.
    frames: AtomicU64,
    /// Where the next frame goes.
    next: AtomicU64,
    place: Place,
}

enum Place {
    Files(Files),
    Stream(Mutex<Box<dyn Write + Send>>),
}

struct Files {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    name: String,
    mode: ModeRequest,
    data: Arc<dyn File>,
    complete: bool,
    _lock: Box<dyn Any + Send + Sync>,
}

impl Sink {
    /// Begins a backup at its destination, with its first frame.
    pub(crate) fn new(
        disk: &Arc<dyn Disk>,
        destination: Destination,
        mode: ModeRequest,
        begin: &[u8],
    ) -> Result<Self> {
        let place = match destination {
            Destination::Folder { folder, name } => Place::Files(Files::create(disk, folder, name, mode)?),
            Destination::Stream(stream) => Place::Stream(Mutex::new(stream)),
        };
        let sink = Sink { frames: AtomicU64::new(1), next: AtomicU64::new(begin.len() as u64), place };
        sink.write_at(0, begin)?;
        Ok(sink)
    }

    /// Refuses a folder where fewer bytes than these are free.
    pub(crate) fn check_room(&self, disk: &dyn Disk, needed: u64) -> Result<()> {
        let Place::Files(files) = &self.place else { return Ok(()) };
        let free = disk.free_bytes(&files.folder).map_err(|error| failed(&error.into()))?;
        if free.is_none_or(|free| free >= needed) {
            return Ok(());
        }
        Err(Error::Backup(format!(
            "the backup needs {}, and {:?} has {} free",
            format_size(needed),
            files.folder,
            format_size(free.unwrap_or_default())
        )))
    }

    /// The number of the next frame.
    pub(crate) fn number(&self) -> u64 {
        self.frames.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a frame, whose number is one that [`Sink::number`] gave: the first `len` bytes of the block. It may still be on its
    /// way when this returns; the block's next wait tells how that went.
    pub(crate) fn put(&self, block: &mut Block, len: usize) -> Result<()> {
        match &self.place {
            Place::Files(files) => {
                let at = self.next.fetch_add(len as u64, Ordering::Relaxed);
                let direction = Direction::Write(Durability::Cached);
                block.start(&files.data, direction, Class::Maintenance, at, len);
                Ok(())
            }
            Place::Stream(stream) => {
                self.next.fetch_add(len as u64, Ordering::Relaxed);
                stream.lock().write_all(&block.bytes()[..len]).map_err(|error| stream_failed(&error))
            }
        }
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<()> {
        match &self.place {
            Place::Files(files) => {
                let mut buffer = AlignedBuffer::zeroed(bytes.len());
                buffer.copy_from_slice(bytes);
                let written = files.data.write_at(Class::Maintenance, at, &buffer, Durability::Cached);
                written.map_err(|error| failed(&error.into()))
            }
            Place::Stream(stream) => stream.lock().write_all(bytes).map_err(|error| stream_failed(&error)),
        }
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Ends the backup: when this returns, it is complete and durable. `manifest` gets the number of frames and bytes. Nobody puts
    /// anything any more.
    pub(crate) fn finish(mut self, mut manifest: Manifest) -> Result<Manifest> {
        manifest.frames = self.number() + 1;
        let at = self.bytes();
        let len = format::end_frame(&manifest)?.len() as u64;
        manifest.bytes = at + len;
        let end = format::end_frame(&manifest)?;
        // A number of bytes may take one more digit than it did without the end; the frame is as long all the same.
        if end.len() as u64 != len {
            return Err(Error::Invalid("a manifest lies about its length".to_owned()));
        }
        self.write_at(at, &end)?;
        match &mut self.place {
            Place::Files(files) => files.finish(&manifest).map_err(|error| failed(&error))?,
            Place::Stream(stream) => stream.lock().flush().map_err(|error| stream_failed(&error))?,
        }
        Ok(manifest)
    }
}

impl Files {
    fn create(disk: &Arc<dyn Disk>, folder: PathBuf, name: String, mode: ModeRequest) -> Result<Self> {
        let (data_path, manifest) = (data_path(&folder, &name), manifest_path(&folder, &name));
        for path in [&data_path, &manifest] {
            if disk.exists(path).map_err(|error| failed(&error.into()))? {
                return Err(Error::Backup(format!("{path:?} exists already: a backup overwrites nothing")));
            }
        }
        let made = disk.open(&data_path, &OpenOptions::create_new().mode(mode)).map_err(|error| {
            if error.kind() == ErrorKind::NotFound {
                return Error::Backup(format!("there is no folder {folder:?} to put a backup into"));
            }
            failed(&error.into())
        })?;
        let lock = made.lock().map_err(|error| failed(&error.into()))?;
        Ok(Files { disk: Arc::clone(disk), folder, name, mode, data: made, complete: false, _lock: lock })
    }

    fn finish(&mut self, manifest: &Manifest) -> Result<()> {
        self.data.sync(Class::Maintenance)?;
        self.disk.sync_dir(&self.folder)?;
        let text = manifest.encode();
        let path = manifest_path(&self.folder, &self.name);
        let mut new = path.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        write_text(&*self.disk, &new, &text, self.mode)?;
        self.disk.rename(&new, &path)?;
        self.disk.sync_dir(&self.folder)?;
        self.complete = true;
        Ok(())
    }
}

impl Drop for Files {
    /// What is not complete goes, as far as it can be removed: without its manifest it does not count in any case.
    fn drop(&mut self) {
        if !self.complete {
            let _ = self.disk.remove(&manifest_path(&self.folder, &self.name));
            let _ = remove_by_steps(&*self.disk, &data_path(&self.folder, &self.name), &mut || Ok(()));
            let _ = self.disk.sync_dir(&self.folder);
        }
    }
}

/// Removes a file from its end on, by steps, each of them after `before`. A file system that discards what it frees stops everybody's syncs
/// meanwhile: of a file of a GiB that is removed at once, for most of a second.
///
/// # Errors
/// Those of `before`, and of the file; what is left of it is shorter then.
pub(crate) fn remove_by_steps(
    disk: &dyn Disk,
    path: &Path,
    before: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let file = disk.open(path, &OpenOptions::read_write())?;
    let mut left = file.len()?;
    while left > REMOVED_AT_ONCE {
        before()?;
        left -= REMOVED_AT_ONCE;
        file.set_len(left)?;
    }
    before()?;
    Ok(disk.remove(path)?)
}

pub(crate) fn data_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{DATA}"))
}

pub(crate) fn manifest_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{MANIFEST}"))
}

/// Writes a short text, of a multiple of a block, durably, in place of what an attempt before has left.
pub(crate) fn write_text(disk: &dyn Disk, path: &Path, text: &str, mode: ModeRequest) -> Result<()> {
    let mut options = OpenOptions::read_write().mode(mode);
    options.create = true;
    let file = disk.open(path, &options)?;
    let mut buffer = AlignedBuffer::zeroed(text.len());
    buffer.copy_from_slice(text.as_bytes());
    file.set_len(0)?;
    file.write_at(Class::Maintenance, 0, &buffer, Durability::Cached)?;
    Ok(file.sync(Class::Maintenance)?)
}

fn stream_failed(error: &std::io::Error) -> Error {
    Error::Backup(format!("the backup's destination takes no more: {error}"))
}
