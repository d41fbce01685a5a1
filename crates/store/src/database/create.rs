//! Creating a database.

use super::open::{Opened, log_options};
use super::{Database, FileLock, LOCK, log_of_another, take_file_lock, take_lock, wal_folder};
use crate::core::Core;
use crate::engine::{CreateOptions, Engine, OpenOptions, check_page_size};
use crate::log::Log;
use crate::meta::Meta;
use crate::mtr::Mtr;
use crate::page::PageKind;
use crate::shared::{CATALOG, STATUS, UNDO_DIRECTORY};
use crate::space::{self, SYSTEM};
use crate::tree::BTree;
use crate::{Error, Result};
use gannet_base::{Lsn, PageId, random};
use gannet_io::{Class, Disk, File};
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
        let disk = engine.disk();
        if disk.exists(path)? {
            return Err(Error::Invalid(format!("{path:?} exists already")));
        }
        let mut attempt = Attempt::new(&**disk, path)?;
        let (lock, folder) = (attempt.begin()?, attempt.folder.clone());
        let file = attempt.make_file(open)?;
        let lock = Arc::new((take_file_lock(&*file, path)?, lock)) as FileLock;
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
            roots: [PageId(3), PageId(4), PageId(5)],
        };
        let log_options = log_options(engine, &meta, open);
        let log_room = engine.make_room(log_options.memory())?;
        let log = Log::create(disk, &folder, &log_options, Lsn::ZERO, 1, engine.budget())?;
        meta.redo_from = log.end();
        file.allocate(0, FIRST_PAGES * page_size as u64)?;
        file.sync(Class::Foreground)?;
        let ring = Self::open_ring(&**disk, &*file, &folder, page_size, open)?;
        // The header is written last: until then the file is no database.
        let opened = Opened { file, ring, meta, log, recovery: None, healed: 0, lock, log_room };
        let database = Self::assemble(engine, path, open, opened, true)?;
        attempt.done = true;
        Ok(database)
    }
}

/// An attempt to create a database: should it fail, what it has made goes again. The lock is held all the while, so nobody
/// else has begun to use any of it.
struct Attempt<'a> {
    disk: &'a dyn Disk,
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
    fn new(disk: &'a dyn Disk, path: &'a Path) -> Result<Self> {
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

    /// Makes and locks the folder.
    fn begin(&mut self) -> Result<FileLock> {
        self.disk.create_dir(&self.folder)?;
        self.disk.sync_dir(parent_of(self.path))?;
        let lock = take_lock(self.disk, self.path, &self.folder)?;
        self.before = self.disk.list(&self.folder)?.into_iter().collect();
        self.lock = Some(Arc::clone(&lock));
        if self.before.iter().any(|name| name.ends_with(".log")) {
            return Err(log_of_another(&self.folder));
        }
        Ok(lock)
    }

    fn make_file(&mut self, open: &OpenOptions) -> Result<Arc<dyn File>> {
        let options = gannet_io::OpenOptions::create_new().mode(open.mode);
        let file = self.disk.open(self.path, &options)?;
        self.made_file = true;
        self.disk.sync_dir(parent_of(self.path))?;
        Ok(file)
    }

    /// As far as it is possible: the error that goes up says what was wrong.
    fn take_back(&self) {
        if self.lock.is_some() {
            let names = self.disk.list(&self.folder).unwrap_or_default();
            for name in names.iter().filter(|name| !self.before.contains(*name)) {
                let _ = self.disk.remove(&self.folder.join(name));
            }
            if self.made_file {
                let _ = self.disk.remove(self.path);
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

fn parent_of(path: &Path) -> &Path {
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
