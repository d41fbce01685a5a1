//! Where the frames of a backup go.
//!
//! # Invariants
//! 1. In a folder a backup is two files, `NAME.gntbackup` with the frames and `NAME.json` with the manifest. The manifest is there only
//!    when all of the other file is durable: a file without one is a part of a backup that was broken off, or is being
//!    made; whoever makes it holds its lock, or, where files are objects, has reserved its name.
//! 2. Nothing that is there is overwritten.

use super::manifest::Manifest;
use super::place::BackupPlace;
use super::room::Room;
use super::slot::{Lane, Slot, Slots};
use super::stream::{SLOTS, Stream};
use super::{failed, format};
use crate::block::Block;
use crate::engine::Engine;
use crate::jobs::Permit;
use crate::work::WorkMemory;
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use gannet_base::sync::Mutex;
use gannet_base::units::format_size;
use gannet_io::{
    AlignedBuffer, Class, Direction, Durability, ErrorKind, File, ModeRequest, OpenOptions, REMOVED_AT_ONCE,
};
use std::any::Any;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ending of the file with a backup's frames.
pub(crate) const DATA: &str = ".gntbackup";
/// Ending of its manifest.
pub(crate) const MANIFEST: &str = ".json";
/// What follows the name of a manifest that has not its name yet.
pub(crate) const UNPUBLISHED: &str = ".new";

/// Where a backup goes.
pub enum Destination {
    /// Two files of this name in a folder, which is there.
    Folder {
        /// The folder.
        folder: BackupPlace,
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
    next: Arc<AtomicU64>,
    /// For frames that come after [`Sink::expect`]; `None` where whoever takes them does not keep anybody waiting: a device.
    slots: Option<Arc<dyn Slots>>,
    place: Place,
}

enum Place {
    Files(Files),
    Stream(Stream),
}

struct Files {
    folder: BackupPlace,
    name: String,
    mode: ModeRequest,
    data: Arc<dyn File>,
    /// Of what the file itself holds.
    memory: Option<WorkMemory>,
    /// The manifest may be there.
    published: bool,
    complete: bool,
    _lock: Box<dyn Any + Send + Sync>,
}

impl Sink {
    /// Begins a backup at its destination, with its first frame.
    pub(crate) fn new(destination: Destination, mode: ModeRequest, begin: &[u8]) -> Result<Self> {
        let place = match destination {
            Destination::Folder { folder, name } => Place::Files(Files::create(folder, name, mode)?),
            Destination::Stream(stream) => Place::Stream(Stream::new(stream)?),
        };
        let next = Arc::new(AtomicU64::new(begin.len() as u64));
        let sink = Sink { frames: AtomicU64::new(1), next, slots: None, place };
        sink.write_at(0, begin)?;
        Ok(sink)
    }

    /// Refuses a folder where fewer bytes than these are free.
    pub(crate) fn check_room(&self, needed: u64) -> Result<()> {
        let Place::Files(Files { folder, .. }) = &self.place else { return Ok(()) };
        let free = folder.disk.free_bytes(&folder.path).map_err(|error| failed(&error.into()))?;
        if free.is_none_or(|free| free >= needed) {
            return Ok(());
        }
        Err(Error::Backup(format!(
            "the backup needs {}, and {:?} has {} free",
            format_size(needed),
            folder,
            format_size(free.unwrap_or_default())
        )))
    }

    /// Takes the memory that a backup of about this length needs, of frames of no more than so many bytes, which have slots; 0 where nobody asks
    /// for these.
    pub(crate) fn expect(&mut self, engine: &Engine, len: u64, frame: u64) -> Result<()> {
        match &mut self.place {
            Place::Files(files) => {
                // With the parts of an object all under way, there is still room for some frames.
                let bytes = files.data.expect(len, engine.work_limit(), SLOTS as u64 * frame);
                let memory = engine.memory(Purpose::Io, bytes);
                files.memory = Some(memory.map_err(|error| match error {
                    Error::Memory(_) => lacks_memory(bytes, &error),
                    other => other,
                })?);
                if files.folder.disk.holds_objects() {
                    let (data, next) = (Arc::clone(&files.data), Arc::clone(&self.next));
                    self.slots = Some(Arc::new(Room { data, next, frame, held: Mutex::default() }));
                }
            }
            Place::Stream(stream) => {
                stream.memory = Some(engine.memory(Purpose::Io, SLOTS as u64 * frame)?);
                self.slots = Some(stream.slots());
            }
        }
        Ok(())
    }

    /// Waits until a frame of the log may be given on, as long as `wanted` does not fail: to be asked for before anything that others may wait
    /// for.
    pub(crate) fn log_slot(&self, wanted: &dyn Fn() -> Result<()>) -> Result<Option<Slot>> {
        self.slots.as_ref().map(|slots| Slot::take(slots, Lane::Log, wanted)).transpose()
    }

    /// Waits until a frame of pages might be given on, as long as `wanted` does not fail; with no permit in hand.
    pub(crate) fn await_slot(&self, wanted: &dyn Fn() -> Result<()>) -> Result<()> {
        self.slots.as_ref().map_or(Ok(()), |slots| Slot::await_one(slots, Lane::Pages, wanted))
    }

    /// Whether a frame of pages may be given on now, and the slot for that, if it needs one.
    pub(crate) fn try_slot(&self) -> Result<(bool, Option<Slot>)> {
        let Some(slots) = &self.slots else { return Ok((true, None)) };
        let slot = Slot::try_take(slots, Lane::Pages)?;
        Ok((slot.is_some(), slot))
    }

    /// The number of the next frame.
    pub(crate) fn number(&self) -> u64 {
        self.frames.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a frame, whose number is one that [`Sink::number`] gave: the first `len` bytes of the block. It may still be on its
    /// way when this returns; the block's next wait, or the end, tells how that went.
    pub(crate) fn put(&self, block: &mut Block, len: usize, slot: Option<Slot>) -> Result<()> {
        match &self.place {
            Place::Files(files) => {
                let at = self.next.fetch_add(len as u64, Ordering::Relaxed);
                if files.folder.disk.holds_objects() {
                    // Whoever has no slot may wait here, and has no permit.
                    let bytes = &block.bytes()[..len];
                    let written = files.data.write_at(Class::Maintenance, at, bytes, Durability::Cached);
                    return written.map_err(|error| failed(&error.into()));
                }
                let direction = Direction::Write(Durability::Cached);
                block.start(&files.data, direction, Class::Maintenance, at, len);
                Ok(())
            }
            Place::Stream(stream) => {
                self.next.fetch_add(len as u64, Ordering::Relaxed);
                stream.put(block.bytes()[..len].to_vec(), slot)
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
            Place::Stream(stream) => stream.put(bytes.to_vec(), None),
        }
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Ends the backup: when this returns, it is complete and durable. `manifest` gets the number of frames and bytes. Nobody puts
    /// anything any more. Who takes a stream is waited for as long as `wanted` does not fail.
    pub(crate) fn finish(
        mut self,
        mut manifest: Manifest,
        wanted: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Manifest> {
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
        self.seal(&manifest, wanted)?;
        Ok(manifest)
    }

    /// The same for a backup whose end was put with the rest of its frames, as another one has made it.
    pub(crate) fn seal(&mut self, manifest: &Manifest, wanted: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        match &mut self.place {
            Place::Files(files) => files.finish(manifest).map_err(|error| failed(&error)),
            Place::Stream(stream) => stream.finish(wanted),
        }
    }
}

impl Files {
    fn create(folder: BackupPlace, name: String, mode: ModeRequest) -> Result<Self> {
        let data_place = data_place(&folder, &name);
        let disk = &folder.disk;
        for place in [&data_place, &manifest_place(&folder, &name)] {
            if disk.exists(&place.path).map_err(|error| failed(&error.into()))? {
                return Err(exists_already(&place.path));
            }
        }
        let options = OpenOptions::create_new().mode(mode);
        let made = disk.open(&data_place.path, &options).map_err(|error| match error.kind() {
            ErrorKind::NotFound => no_folder(&folder),
            // Somebody else was quicker.
            ErrorKind::AlreadyExists => exists_already(&data_place.path),
            _ => failed(&error.into()),
        })?;
        let lock = made.lock().map_err(|error| failed(&error.into()))?;
        Ok(Files {
            folder,
            name,
            mode,
            data: made,
            memory: None,
            published: false,
            complete: false,
            _lock: lock,
        })
    }

    fn finish(&mut self, manifest: &Manifest) -> Result<()> {
        let disk = &*self.folder.disk;
        self.data.sync(Class::Maintenance)?;
        disk.sync_dir(&self.folder.path)?;
        let place = manifest_place(&self.folder, &self.name);
        self.published = true;
        disk.publish(&place.path, manifest.encode().as_bytes(), self.mode)?;
        // Without locks, somebody may have taken it for one that was broken off.
        if disk.holds_objects() && !disk.exists(&data_place(&self.folder, &self.name).path)? {
            return Err(Error::Backup("what was written was removed meanwhile".to_owned()));
        }
        self.complete = true;
        Ok(())
    }
}

/// So much memory is not to be had for what is on its way to an object.
fn lacks_memory(bytes: u64, error: &Error) -> Error {
    Error::Backup(format!(
        "what is on its way to the object store takes {}: an object has a limited number of parts, so they are the longer, the larger the database \
         is, and a few of them are in memory; give more memory, or take the backup into a folder, by its path ({error})",
        format_size(bytes)
    ))
}

pub(crate) fn no_folder(folder: &BackupPlace) -> Error {
    Error::Backup(format!("there is no folder {folder:?} to put a backup into"))
}

fn exists_already(path: &Path) -> Error {
    Error::Backup(format!("{path:?} exists already: a backup overwrites nothing"))
}

impl Drop for Files {
    /// What is not complete goes, as far as it can be removed: without its manifest it does not count in any case. With a manifest that cannot be
    /// removed, durably, it is a whole backup, and stays: a manifest without its data would be one that cannot be read.
    fn drop(&mut self) {
        if !self.complete {
            let disk = &*self.folder.disk;
            if disk.is_in_doubt() {
                // Nobody waits for minutes to hear what has failed.
                return disk.leave(&data_place(&self.folder, &self.name).path);
            }
            if self.published {
                let manifest = manifest_place(&self.folder, &self.name);
                let removed = disk.remove(&manifest.path);
                if !disk.holds_objects() {
                    let _ = disk.remove(&unpublished(&manifest).path);
                }
                let is_gone = match removed {
                    Err(error) if error.kind() != ErrorKind::NotFound => false,
                    // Before the data gets shorter: a power cut may bring it back.
                    _ => disk.sync_dir(&self.folder.path).is_ok(),
                };
                if !is_gone {
                    return disk.leave(&data_place(&self.folder, &self.name).path);
                }
            }
            let data = data_place(&self.folder, &self.name);
            let removed = remove_by_steps(&data, &mut || Ok(None));
            let is_gone =
                |error: &Error| matches!(error, Error::Io(error) if error.kind() == ErrorKind::NotFound);
            if disk.holds_objects() && removed.is_err_and(|error| !is_gone(&error)) {
                disk.leave(&data.path);
            }
            let _ = disk.sync_dir(&self.folder.path);
        }
    }
}

/// What is asked before each step of a removal: the permit that the step is to have, if any, or why nothing more is removed.
pub(crate) type Before<'b> = &'b mut dyn FnMut() -> Result<Option<Permit>>;

/// Removes a file from its end on, by steps, each of them after `before` ([`REMOVED_AT_ONCE`]).
///
/// # Errors
/// Those of `before`, and of the file; what is left of it is shorter then.
pub(crate) fn remove_by_steps(place: &BackupPlace, before: Before<'_>) -> Result<()> {
    let BackupPlace { disk, path } = place;
    if !disk.holds_objects() {
        let file = disk.open(path, &OpenOptions::read_write())?;
        let mut left = file.len()?;
        while left > REMOVED_AT_ONCE {
            let _permit = before()?;
            left -= REMOVED_AT_ONCE;
            file.set_len(left)?;
        }
    }
    let _permit = before()?;
    Ok(disk.remove(path)?)
}

pub(crate) fn data_place(folder: &BackupPlace, name: &str) -> BackupPlace {
    folder.join(format!("{name}{DATA}"))
}

pub(crate) fn manifest_place(folder: &BackupPlace, name: &str) -> BackupPlace {
    folder.join(format!("{name}{MANIFEST}"))
}

/// A manifest that has not its name yet ([`gannet_io::Disk::publish`]).
pub(crate) fn unpublished(manifest: &BackupPlace) -> BackupPlace {
    let mut path = manifest.path.clone().into_os_string();
    path.push(UNPUBLISHED);
    BackupPlace::new(Arc::clone(&manifest.disk), path)
}
