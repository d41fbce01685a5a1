//! A recorded run on the simulated device: what a power cut at any moment of it may leave.
//!
//! The events of a [`crate::trace`] drive the same state that a [`SimDisk`] has, so what may be lost, torn and reordered is
//! what the head of [`crate::sim`] says, and nothing else. Nothing runs here, and nothing waits.
//!
//! # Invariants
//! 1. A write is in flight from its begin to its end; a sync covers what ended before it began, and takes effect at its end.
//! 2. The device of a recorded run did not fail. A run in which it did says nothing about what was durable, and is refused.
//! 3. When the recorded process is killed, the device goes on: what of the writes in flight is seen then is neither lost nor
//!    durable ([`Replay::killed`]).
//! 4. Two writes in flight to one sector are a bug of the recorded program, as they are on a [`SimDisk`], which panics.

use super::content::Content;
use super::inode::{Change, Inode, WriteKind};
use super::names::{Names, normal};
use super::state::{FlyingWrite, Handle, InFlight, State};
use super::{CrashPolicy, Settings, SimDisk, crash};
use crate::trace::Event;
use crate::{Durability, Error, ErrorKind, OpenOptions, Result, SECTOR};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A transfer that has begun.
enum Running {
    Write { file: u64, id: u64 },
    Sync { file: u64, cutoff: u64 },
    SyncFolder { folder: PathBuf, cutoff: u64 },
}

/// The device at one moment of a recorded run.
pub struct Replay {
    state: State,
    files: BTreeMap<u64, Handle>,
    running: BTreeMap<u64, Running>,
}

impl Default for Replay {
    fn default() -> Self {
        // What was atomic was checked when it was recorded.
        let settings = Settings { atomic_write_max: usize::MAX, ..Settings::default() };
        Replay { state: State::new(0, settings), files: BTreeMap::new(), running: BTreeMap::new() }
    }
}

impl Replay {
    /// Adds a folder that was there, durably, before the run; its parents too.
    pub fn add_folder(&mut self, folder: &Path) -> Result<()> {
        let folder = normal("add", folder)?;
        for ancestor in folder.ancestors().collect::<Vec<_>>().into_iter().rev() {
            if !self.state.names.live.has_folder(ancestor) {
                let sequence = self.state.number();
                self.state.names.create_folder(sequence, ancestor)?;
                self.state.names.sync(ancestor.parent().expect("the root is there"), u64::MAX);
            }
        }
        Ok(())
    }

    /// Adds a file that was there, durably, before the run. Its folder must have been added.
    pub fn add_file(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let path = normal("add", path)?;
        let number = self.state.number();
        self.state.names.link(number, &path, number)?;
        self.state.names.sync(path.parent().expect("a file has a folder"), u64::MAX);
        let mut content = Content::default();
        content.write(0, bytes);
        content.set_len(bytes.len() as u64);
        self.state.inodes.insert(number, Inode::default().settled(content));
        Ok(())
    }

    /// The next event of the run. After an error the replay is of no use.
    pub fn apply(&mut self, event: &Event<'_>) -> Result<()> {
        match *event {
            Event::Opened { file, created, path } => {
                let options = OpenOptions { create_new: created, ..OpenOptions::read_write() };
                let handle = self.state.open(Path::new(path), &options)?;
                self.files.insert(file, handle);
            }
            Event::Closed { file } => {
                self.files.remove(&file);
            }
            Event::Write { id, file, offset, durable, atomic, data } => {
                let durability = if durable { Durability::Durable } else { Durability::Cached };
                let (handle, kind) = (handle(&self.files, file)?, WriteKind { durability, atomic });
                let begun = self.state.begin_write(handle, offset, data.into(), kind)?;
                self.running.insert(id, Running::Write { file, id: begun.id });
            }
            Event::Sync { id, file } => {
                let cutoff = self.state.begin_sync(handle(&self.files, file)?)?.id;
                self.running.insert(id, Running::Sync { file, cutoff });
            }
            Event::SyncFolder { id, path } => {
                let folder = normal("sync folder", Path::new(path))?;
                let cutoff = self.state.begin_sync_dir(&folder)?.id;
                self.running.insert(id, Running::SyncFolder { folder, cutoff });
            }
            Event::Ended { id, well } => self.end(id, well)?,
            Event::Resized { file, len } => {
                self.state.change_size(handle(&self.files, file)?, Change::SetLen(len))?;
            }
            Event::Allocated { file, offset, len } => {
                self.state.change_size(handle(&self.files, file)?, Change::Allocate(offset, len))?;
            }
            Event::FolderCreated { path } => {
                let path = normal("create folder", Path::new(path))?;
                self.change_names(&path, |names, sequence| names.create_folder(sequence, &path))?;
            }
            Event::FolderRemoved { path } => {
                let path = normal("remove folder", Path::new(path))?;
                self.change_names(&path, |names, sequence| names.remove_folder(sequence, &path))?;
            }
            Event::Removed { path } => {
                let path = normal("remove", Path::new(path))?;
                self.change_names(&path, |names, sequence| names.unlink(sequence, &path))?;
            }
            Event::Renamed { from, to } => {
                let (from, to) = (normal("rename", Path::new(from))?, normal("rename", Path::new(to))?);
                self.change_names(&from, |names, sequence| names.rename(sequence, &from, &to))?;
            }
            Event::Mark(_) => {}
        }
        Ok(())
    }

    fn change_names(
        &mut self,
        path: &Path,
        change: impl FnOnce(&mut Names, u64) -> Result<()>,
    ) -> Result<()> {
        self.state.change_names("replay", path, change)
    }

    fn end(&mut self, id: u64, well: bool) -> Result<()> {
        let running = self.running.remove(&id).ok_or_else(|| unknown("transfer", id))?;
        if !well {
            let detail = "the device of the recorded run failed";
            return Err(Error::new(ErrorKind::Invalid, "replay", Path::new(""), detail));
        }
        match running {
            Running::Write { file, id } => self.state.finish_write(id, handle(&self.files, file)?),
            Running::Sync { file, cutoff } => self.state.finish_sync(cutoff, handle(&self.files, file)?),
            Running::SyncFolder { folder, cutoff } => self.state.finish_sync_dir(&folder, cutoff),
        }
    }

    /// The process has been killed, and `left` is what every file has been found to hold afterwards. The next event is the first one of
    /// another process. Fails where the files are not what the events explain: one of them was not recorded any more.
    pub fn killed(&mut self, left: &BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
        self.files.clear();
        for running in std::mem::take(&mut self.running).into_values() {
            if let Running::Write { id, .. } = running {
                self.land(id, left);
            }
        }
        let unexplained = |path: &Path, detail| Err(Error::new(ErrorKind::Invalid, "explain", path, detail));
        if let Some(path) = left.keys().find(|path| !self.state.names.live.files.contains_key(*path)) {
            return unexplained(path, "a name that was not recorded");
        }
        for (path, number) in &self.state.names.live.files {
            match left.get(path) {
                None => return unexplained(path, "the file is gone"),
                Some(bytes) if *bytes != self.state.inodes[number].visible.to_vec() => {
                    return unexplained(path, "its bytes are not those that were recorded");
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Ends a write whose process is gone: what of it is found in its file has arrived, and waits for a sync.
    fn land(&mut self, id: u64, left: &BTreeMap<PathBuf, Vec<u8>>) {
        let InFlight { inode, offset, write, .. } =
            self.state.in_flight.remove(&id).expect("a write that runs is in flight");
        let FlyingWrite { data, kind, .. } = write.expect("it is a write");
        let mut named = self.state.names.live.files.iter().filter(|(_, number)| **number == inode);
        let Some(found) = named.next().and_then(|(path, _)| left.get(path)) else { return };
        let arrived = |(index, sector): (usize, &[u8])| {
            let start = offset as usize + index * SECTOR;
            found.get(start..start + sector.len()) == Some(sector)
        };
        let live: Vec<bool> = data.chunks(SECTOR).enumerate().map(arrived).collect();
        if live.contains(&true) {
            let sequence = self.state.number();
            let inode = self.state.inodes.get_mut(&inode).expect("a name refers to an inode");
            inode.write(sequence, offset, data, live, WriteKind { durability: Durability::Cached, ..kind });
        }
    }

    /// The disk that would be found if the power went off now; the run goes on. `None` lets the seed choose.
    pub fn crash(&self, policy: Option<CrashPolicy>, seed: u64) -> SimDisk {
        SimDisk::from_state(crash::image(&self.state, policy, seed))
    }
}

fn handle(files: &BTreeMap<u64, Handle>, file: u64) -> Result<&Handle> {
    files.get(&file).ok_or_else(|| unknown("file", file))
}

fn unknown(what: &str, number: u64) -> Error {
    let detail = format!("{what} {number} is not known");
    Error::new(ErrorKind::Invalid, "replay", Path::new(""), detail)
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replay({} files open, {} transfers running)", self.files.len(), self.running.len())
    }
}
