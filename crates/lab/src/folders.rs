//! Folders of databases: copied, so that each measurement begins with the same one, and how much is in them.

use crate::confine::{chill, installed, to_end};
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Copies a folder with owners and times, to where nothing is afterwards but the copy. It is on the device, and nothing of either is in the page cache.
///
/// # Errors
/// There is no `cp`, no room, or `stop` was set.
pub fn copy(from: &Path, to: &Path, stop: &AtomicBool) -> Result<()> {
    remove(to)?;
    let cp = installed("cp").context("there is no cp")?;
    // A copy that shares its blocks would be written elsewhere than the one before.
    let words = ["-a", "--reflink=never", "--"].map(OsStr::new);
    if let Err(error) = to_end(&cp, &[&words[..], &[from.as_os_str(), to.as_os_str()]].concat(), stop) {
        if stop.load(Ordering::Relaxed) {
            remove(to)?;
            return Err(error);
        }
        let takes = bytes(from)?;
        return Err(error.context(format!("cannot copy {from:?} to {to:?}; a copy takes {takes} bytes")));
    }
    sync(to)?;
    chill(&[from.to_owned(), to.to_owned()])
}

/// Removes a folder, if it is there.
///
/// # Errors
/// The system's.
pub fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {folder:?}"))
        }
        _ => Ok(()),
    }
}

/// Makes what is in a folder durable.
fn sync(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync(&entry.path())?;
        } else if kind.is_file() {
            File::open(entry.path())?
                .sync_all()
                .with_context(|| format!("cannot sync {:?}", entry.path()))?;
        }
    }
    File::open(folder)?.sync_all()?;
    Ok(())
}

/// Bytes of a cache that has room for all of a database of so many, and for what is added to it, where that fits into so much memory: three eighths of it at least, as nothing else
/// needs them, and five at most, as the rest is for whatever else its server needs.
pub fn cache_for(database: u64, memory: u64) -> u64 {
    (database + database / 8).clamp(memory / 8 * 3, memory / 8 * 5)
}

/// Bytes on the device that a file takes, or all files in a folder and those below.
///
/// # Errors
/// The system's.
pub fn bytes(path: &Path) -> Result<u64> {
    let found = fs::symlink_metadata(path).with_context(|| format!("cannot look at {path:?}"))?;
    if !found.is_dir() {
        return Ok(found.blocks() * 512);
    }
    let mut sum = 0;
    for entry in fs::read_dir(path)? {
        sum += bytes(&entry?.path())?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_replaces_what_was_there_and_takes_as_much() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("below")).unwrap();
        fs::write(from.join("below/file"), vec![7; 100_000]).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(to.join("old"), "x").unwrap();
        copy(&from, &to, &AtomicBool::new(false)).unwrap();
        assert_eq!(fs::read(to.join("below/file")).unwrap(), vec![7; 100_000]);
        assert!(!to.join("old").exists());
        assert!(bytes(&to).unwrap() >= 100_000);
        assert_eq!(bytes(&to).unwrap(), bytes(&from).unwrap());
        remove(&to).unwrap();
        remove(&to).unwrap();
        assert!(!to.exists());
    }

    #[test]
    fn a_cache_has_room_for_the_database_and_leaves_some_to_others() {
        assert_eq!(cache_for(400 << 20, 1200 << 20), 450 << 20);
        assert_eq!(cache_for(480 << 20, 1200 << 20), 540 << 20);
        assert_eq!(cache_for(900 << 20, 1200 << 20), 750 << 20);
        assert_eq!(cache_for(1 << 20, 1200 << 20), 450 << 20);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = copy(&folder.path().join("none"), &folder.path().join("to"), &AtomicBool::new(false));
        assert!(format!("{:#}", error.unwrap_err()).contains("none"));
    }
}
