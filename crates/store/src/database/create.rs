//! Creating a database.
//!
//! # A crash at any point
//! 1. The folder is made, locked, and empty; then the file, empty. Both names are durable.
//! 2. The file is marked as one that is being created (`meta`, invariant 5), durably. Before that there is nothing in the
//!    folder but the lock, so an empty file beside such a folder holds nothing, wherever it comes from.
//! 3. Log, ring and space are made. What a crash leaves up to here is recognised by the mark, whose number the log carries.
//! 4. Both copies of the header are written, the second one over the mark. With the first it is a database, an empty one.
//! 5. The database is handed out.
//!
//! What a crash has left is cleared in the opposite order: first the folder, then the file, each durably. So it stays
//! recognisable all the while.

use super::open::{Opened, log_options};
use super::{
    Database, FileLock, LOCK, RING, RestartReport, log_of_another, take_file_lock, take_lock, wal_folder,
};
use crate::archive;
use crate::core::Core;
use crate::engine::{CreateOptions, Engine, OpenOptions, check_page_size};
use crate::log::{self, Log, LogFiles, LogOptions};
use crate::meta::{self, Meta};
use crate::mtr::Mtr;
use crate::page::{PAGE_SIZES, PageKind};
use crate::shared::{CATALOG, STATUS, UNDO_DIRECTORY};
use crate::space::{self, SYSTEM};
use crate::tree::BTree;
use crate::{Error, Result};
use gannet_base::{Lsn, PageId, clock, random};
use gannet_io::{AlignedBuffer, Class, Disk, File};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pages of the first allocation of a new file.
const FIRST_PAGES: u64 = 256;

impl Database {
    pub(crate) fn create(
        engine: &Engine,
        path: &Path,
        create: &CreateOptions,
        open: &OpenOptions,
    ) -> Result<Self> {
        let page_size = create.page_size;
        check_page_size(page_size)?;
        if !create.segment_size.is_power_of_two() || create.segment_size < 64 * page_size as u64 {
            return Err(Error::Invalid(format!(
                "a log segment is a power of two of at least 64 pages ({} bytes), not {}",
                64 * page_size,
                create.segment_size
            )));
        }
        let largest = 1 << 30;
        if create.segment_size > largest {
            return Err(Error::Invalid(format!(
                "a log segment has at most {largest} bytes, not {}",
                create.segment_size
            )));
        }
        create.check_memory(engine.budget().limit())?;
        engine.pool(page_size)?;
        if let Some(folder) = &open.archive {
            archive::check_new(engine.disk(), folder, open.mode)?;
        }
        let disk = engine.disk();
        if !Self::is_missing(disk, path)? {
            return Err(exists_already(path));
        }
        let mut attempt = Attempt::new(disk, path)?;
        let (file, lock) = attempt.start(open)?;
        let folder = attempt.folder.clone();
        let mut meta = Meta {
            page_size,
            database_id: random::next_u64(),
            sequence: 0,
            incarnation: 1,
            clean: false,
            redo_from: Lsn::ZERO,
            log_end: Lsn::ZERO,
            log_crc: None,
            groups: 1,
            next_txn: 1,
            segment_size: create.segment_size,
            lives: Vec::new(),
            homes_from: Lsn::ZERO,
            cut_at: Lsn::ZERO,
            archived: open.archive.is_some(),
            roots: [PageId(3), PageId(4), PageId(5)],
        };
        meta::write_mark(&*file, page_size, meta.database_id)?;
        let log_options = log_options(engine, &meta, open);
        let log_room = engine.make_room(log_options.memory())?;
        let log = Log::create(disk, &folder, &log_options, Lsn::ZERO, 1, engine.budget())?;
        meta.redo_from = log.end();
        meta.begin_life(log.end());
        file.allocate(0, FIRST_PAGES * page_size as u64)?;
        file.sync(Class::Foreground)?;
        let ring = Self::open_ring(&**disk, &*file, &folder, page_size, open)?;
        // The header is written last: until then the file is marked as no database yet.
        let (begun, report) = (clock::now(), RestartReport::default());
        let unarchived = open.archive.as_ref().map(|_| log.hold_from(meta.redo_from));
        let opened = Opened {
            file,
            ring,
            meta,
            log,
            recovery: None,
            begun,
            report,
            lock,
            log_room,
            unarchived,
            was_archived: false,
        };
        let database = Self::assemble(engine, path, open, opened, true)?;
        attempt.done = true;
        Ok(database)
    }

    /// See [`Engine::is_missing`].
    pub(crate) fn is_missing(disk: &Arc<dyn Disk>, path: &Path) -> Result<bool> {
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(Error::Invalid(format!(
                "{path:?} is the name of a folder: a database is a file, give it the name of one"
            )));
        }
        if !disk.exists(path)? {
            return Ok(true);
        }
        // What cannot be looked at is there, and opening it says what is wrong.
        let looked = disk.resolve(path).and_then(|target| {
            let file = disk.open(path, &gannet_io::OpenOptions::read())?;
            Ok((target, file))
        });
        let Ok((target, file)) = looked else { return Ok(false) };
        Ok(target == path && is_leftover(disk, &*file, &wal_folder(path)).unwrap_or(false))
    }
}

/// Refuses a symbolic link: names are of files and their folders.
pub(super) fn no_link(disk: &Arc<dyn Disk>, path: &Path, way_out: &str) -> Result<()> {
    let target = disk.resolve(path)?;
    if target != path {
        let is_there = if disk.exists(&target)? { "" } else { ", which does not exist" };
        return Err(Error::Invalid(format!(
            "{path:?} is a symbolic link to {target:?}{is_there}: {way_out}"
        )));
    }
    Ok(())
}

pub(super) fn exists_already(path: &Path) -> Error {
    Error::Invalid(format!("{path:?} exists already"))
}

/// Bytes at the front of a file that are looked at for anything but zeros.
const BLANK_LOOK: u64 = 1 << 20;

/// Whether the file, with what is in `folder`, is what a creation has left that was interrupted: nothing ever was in it.
pub(super) fn is_leftover(disk: &Arc<dyn Disk>, file: &dyn File, folder: &Path) -> Result<bool> {
    if !matches!(Meta::read(file), Err(Error::Format(_) | Error::Damaged(_))) {
        return Ok(false);
    }
    let has_folder = disk.exists(folder)?;
    if let Some(database_id) = meta::read_mark(file)? {
        let options = LogOptions::new(database_id);
        let files = LogFiles::find(disk, folder, &options, Lsn::ZERO)?;
        return Ok(files.map_or(Ok(Vec::new()), |files| files.foreign_segments())?.is_empty());
    }
    Ok(has_folder && is_blank(file)? && !disk.list(folder)?.iter().any(|name| is_made(name)))
}

/// Whether the file is empty, or of the size of the mark and without it: its size alone was durable.
fn is_blank(file: &dyn File) -> Result<bool> {
    let len = file.len()?;
    Ok((len == 0 || PAGE_SIZES.contains(&(len as usize))) && begins_blank(file, len)?)
}

/// Whether the file begins with so many bytes of zeros.
fn begins_blank(file: &dyn File, len: u64) -> Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    let mut bytes = AlignedBuffer::zeroed(len as usize);
    file.read_at(Class::Foreground, 0, &mut bytes)?;
    Ok(bytes.iter().all(|&byte| byte == 0))
}

/// What a file without a header may be, beside the folder of a database: what an interrupted creation has left.
pub(super) fn explained(error: Error, disk: &Arc<dyn Disk>, file: &dyn File, folder: &Path) -> Error {
    if !matches!(error, Error::Format(_) | Error::Damaged(_)) {
        return error;
    }
    if is_leftover(disk, file, folder).unwrap_or(false) {
        return Error::Format(format!(
            "{:?} is no database yet: its creation was interrupted, and nothing is in it; create it again, or remove it and \
             {folder:?}",
            file.path()
        ));
    }
    // Before there was a mark, an interrupted creation left zeros. So does a device that has forgotten the header, but not alone.
    let first = match file.len().unwrap_or(0) {
        len @ ..4096 => len,
        len => len.min(BLANK_LOOK) / 4096 * 4096,
    };
    let blank = disk.exists(folder).unwrap_or(false) && begins_blank(file, first).unwrap_or(false);
    match error {
        Error::Format(text) if blank => {
            Error::Format(format!("{text}; if its creation was interrupted, remove it and {folder:?}"))
        }
        error => error,
    }
}

/// Whether a file of the folder is made by a creation behind the mark.
fn is_made(name: &str) -> bool {
    name.ends_with(".log") || name == RING || log::is_ours(name)
}

/// An attempt to create a database: should it fail, what it has made goes again. The lock is held all the while, so nobody
/// else has begun to use any of it.
pub(crate) struct Attempt<'a> {
    disk: &'a Arc<dyn Disk>,
    path: &'a Path,
    folder: PathBuf,
    had_folder: bool,
    had_lock: bool,
    /// What was in the folder when it was locked.
    before: BTreeSet<String>,
    lock: Option<FileLock>,
    made_file: bool,
    done: bool,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(disk: &'a Arc<dyn Disk>, path: &'a Path) -> Result<Self> {
        let folder = wal_folder(path);
        let (had_folder, had_lock) = (disk.exists(&folder)?, disk.exists(&folder.join(LOCK))?);
        let before = BTreeSet::new();
        Ok(Attempt {
            disk,
            path,
            folder,
            had_folder,
            had_lock,
            before,
            lock: None,
            made_file: false,
            done: false,
        })
    }

    /// Makes folder and file, or takes over those of an interrupted creation, and locks them.
    pub(crate) fn start(&mut self, open: &OpenOptions) -> Result<(Arc<dyn File>, FileLock)> {
        no_link(self.disk, self.path, "create the database under that name")?;
        let exists = self.disk.exists(self.path)?;
        let lock = self.begin()?;
        let (file, file_lock) = if exists { self.take_over(open)? } else { self.make_file(open)? };
        Ok((file, Arc::new((file_lock, lock))))
    }

    /// Where the log and lock are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// It is a database now.
    pub(crate) fn succeed(&mut self) {
        self.done = true;
    }

    /// Makes and locks the folder.
    fn begin(&mut self) -> Result<FileLock> {
        self.disk.create_dir(&self.folder)?;
        self.disk.sync_dir(parent_of(self.path))?;
        let lock = take_lock(&**self.disk, self.path, &self.folder)?;
        self.note_folder()?;
        self.lock = Some(Arc::clone(&lock));
        Ok(lock)
    }

    fn note_folder(&mut self) -> Result<()> {
        self.before = self.disk.list(&self.folder)?.into_iter().collect();
        Ok(())
    }

    /// Makes and locks the file.
    fn make_file(&mut self, open: &OpenOptions) -> Result<(Arc<dyn File>, FileLock)> {
        if self.before.iter().any(|name| name.ends_with(".log")) {
            return Err(log_of_another(&self.folder));
        }
        let options = gannet_io::OpenOptions::create_new().mode(open.mode);
        let file = self.disk.open(self.path, &options)?;
        self.made_file = true;
        self.disk.sync_dir(parent_of(self.path))?;
        let lock = take_file_lock(&*file, self.path)?;
        Ok((file, lock))
    }

    /// Locks and empties the file that an interrupted creation has left, and its folder.
    fn take_over(&mut self, open: &OpenOptions) -> Result<(Arc<dyn File>, FileLock)> {
        let options = gannet_io::OpenOptions::read_write().mode(open.mode);
        let file = self.disk.open(self.path, &options)?;
        let lock = take_file_lock(&*file, self.path)?;
        // Now nobody else changes it.
        if !is_leftover(self.disk, &*file, &self.folder)? {
            return Err(exists_already(self.path));
        }
        for name in self.before.iter().filter(|name| is_made(name)) {
            self.disk.remove(&self.folder.join(name))?;
        }
        // The mark stays until what it vouches for is gone.
        self.disk.sync_dir(&self.folder)?;
        self.note_folder()?;
        self.made_file = true;
        gannet_io::shorten(&*file, 0)?;
        file.sync(Class::Foreground)?;
        Ok((file, lock))
    }

    /// As far as it is possible: the error that goes up says what was wrong.
    fn take_back(&self) {
        if self.lock.is_some() {
            let names = self.disk.list(&self.folder).unwrap_or_default();
            let mut cleared = true;
            for name in names.iter().filter(|name| !self.before.contains(*name)) {
                cleared &= self.disk.remove(&self.folder.join(name)).is_ok();
            }
            cleared &= self.disk.sync_dir(&self.folder).is_ok();
            // Its mark says what is left in the folder.
            if self.made_file && cleared {
                let _ = gannet_io::remove_large(&**self.disk, self.path);
            }
            // Last, as it keeps others away.
            if !self.had_lock {
                let _ = self.disk.remove(&self.folder.join(LOCK));
            }
        }
        if !self.had_folder {
            let _ = self.disk.remove_dir(&self.folder);
        }
        let _ = self.disk.sync_dir(parent_of(self.path));
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.take_back();
        }
    }
}

pub(super) fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Formats the first group and the roots of the store's own trees, at fixed pages behind the space map.
pub(super) fn create_trees(core: &Core, meta: &Meta) -> Result<()> {
    let mut mtr = Mtr::new(core);
    let map = mtr.add(core.pool.create(&core.volume, space::map_page(0, core.page_size))?);
    mtr.format(map, PageKind::SpaceMap, SYSTEM, &space::first_map(core.page_size, meta.roots.len()));
    for (id, root) in [CATALOG, STATUS, UNDO_DIRECTORY].into_iter().zip(meta.roots) {
        let part = mtr.add(core.pool.create(&core.volume, root)?);
        BTree::format_root(&mut mtr, part, id, core.page_size);
    }
    mtr.commit()?;
    core.space.add_first_group();
    Ok(())
}
