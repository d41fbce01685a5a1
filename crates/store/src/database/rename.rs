//! Giving a closed database another name, and removing one that nobody wants.
//!
//! # A crash at any point
//! The log's folder goes first, durably. A database that was closed needs nothing of it, so there is one whole database all the while, by the
//! one name or by the other. What is to be removed is recognised by its file, which goes last: whoever was interrupted does it again. Only an
//! empty file that a creation has left is recognised by its folder, and goes first.

use super::create::{exists_already, is_leftover, no_link, parent_of};
use super::open::lock_header;
use super::{
    CHANGES, Database, FileLock, HOT, LOCK, RING, log_of_another, take_file_lock, take_lock, wal_folder,
};
use crate::log;
use crate::meta::{self, Meta};
use crate::{Error, Result};
use gannet_io::{Disk, ErrorKind, OpenOptions};
use std::path::Path;
use std::sync::Arc;

impl Database {
    /// See [`crate::Engine::clear_name`].
    pub(crate) fn clear_name(disk: &Arc<dyn Disk>, path: &Path) -> Result<()> {
        if disk.exists(path)? {
            if !Self::is_missing(disk, path)? {
                return Err(exists_already(path));
            }
            Self::remove(disk, path)?;
        }
        is_free(disk, path)
    }

    /// See [`crate::Engine::rename`].
    pub(crate) fn rename(disk: &Arc<dyn Disk>, from: &Path, to: &Path) -> Result<()> {
        no_link(disk, from, "rename what it leads to")?;
        if disk.exists(to)? {
            return Err(exists_already(to));
        }
        is_free(disk, to)?;
        let folder = wal_folder(from);
        let file = disk.open(from, &OpenOptions::read_write())?;
        let (meta, lock) = lock_header(&**disk, &*file, from, &folder)?;
        if !meta.clean {
            return Err(Error::Invalid(format!(
                "{from:?} was not closed in good order and needs its log: open and close it, and then rename it"
            )));
        }
        remove_folder(disk, &folder)?;
        // Somebody may have made a file of that name meanwhile.
        disk.rename_new(from, to).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => exists_already(to),
            _ => error.into(),
        })?;
        disk.sync_dir(parent_of(to))?;
        if parent_of(from) != parent_of(to) {
            disk.sync_dir(parent_of(from))?;
        }
        drop(lock);
        Ok(())
    }

    /// See [`crate::Engine::remove`].
    pub(crate) fn remove(disk: &Arc<dyn Disk>, path: &Path) -> Result<()> {
        no_link(disk, path, "remove what it leads to")?;
        let folder = wal_folder(path);
        let file = disk.open(path, &OpenOptions::read_write())?;
        let lock = lock_both(disk, &*file, path, &folder)?;
        if let Err(error) = Meta::read(&*file) {
            if !is_leftover(disk, &*file, &folder)? {
                return Err(error);
            }
            if meta::read_mark(&*file)?.is_none() {
                // It is known by its folder, in which there is nothing yet.
                disk.remove(path)?;
                disk.sync_dir(parent_of(path))?;
                return remove_folder(disk, &folder);
            }
        }
        remove_folder(disk, &folder)?;
        gannet_io::remove_large(&**disk, path)?;
        disk.sync_dir(parent_of(path))?;
        drop(lock);
        Ok(())
    }
}

/// Refuses a name that a link has, or beside which another database's log lies.
fn is_free(disk: &Arc<dyn Disk>, path: &Path) -> Result<()> {
    no_link(disk, path, "use the name that it leads to")?;
    let folder = wal_folder(path);
    if disk.exists(&folder)? && disk.list(&folder)?.iter().any(|name| name.ends_with(".log")) {
        return Err(log_of_another(&folder));
    }
    Ok(())
}

/// Keeps everybody else away; of the folder only where there is one.
fn lock_both(
    disk: &Arc<dyn Disk>,
    file: &dyn gannet_io::File,
    path: &Path,
    folder: &Path,
) -> Result<FileLock> {
    let of_folder = match disk.exists(folder)? {
        true => Some(take_lock(&**disk, path, folder)?),
        false => None,
    };
    Ok(Arc::new((take_file_lock(file, path)?, of_folder)))
}

/// Removes a database's folder, durably. Whatever else is in it stays, and is refused before anything is removed.
fn remove_folder(disk: &Arc<dyn Disk>, folder: &Path) -> Result<()> {
    if !disk.exists(folder)? {
        return Ok(());
    }
    let names = disk.list(folder)?;
    let of = |name: &str, file: &str| {
        name == file || name.strip_prefix(file).is_some_and(|rest| [".new", ".merged"].contains(&rest))
    };
    let is_ours = |name: &String| {
        log::is_ours(name) || [RING, LOCK].contains(&&**name) || of(name, HOT) || of(name, CHANGES)
    };
    if let Some(other) = names.iter().find(|name| !is_ours(name)) {
        return Err(Error::Invalid(format!("{folder:?} has something that no database has made: {other:?}")));
    }
    // The lock goes last: it keeps others away.
    for name in names.iter().filter(|name| *name != LOCK).chain(names.iter().filter(|name| *name == LOCK)) {
        disk.remove(&folder.join(name))?;
    }
    // What is gone from a folder is gone for good when that is synced, whatever the system makes of the folder itself.
    disk.sync_dir(folder)?;
    disk.remove_dir(folder)?;
    disk.sync_dir(parent_of(folder))?;
    Ok(())
}
