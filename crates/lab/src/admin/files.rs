//! A database as files: how large it is, what the system caches of it, and copies of it.
//!
//! Files of a server that runs may go while they are looked at: those count as not there.

use anyhow::{Context, Result, bail};
use gannet_io::{
    AlignedBuffer, Class, Disk, Durability, Mode, ModeRequest, OpenOptions, RealDisk, RealOptions,
};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, sync_channel};
use std::time::Instant;

/// Bytes of one transfer.
const BLOCK: usize = 4 << 20;
/// Transfers that were read and are not yet written.
const AHEAD: usize = 2;
/// Shorter files are copied as they are: their bytes do not count.
const SHORT: u64 = 1 << 20;

/// What is on the way to `path`, where that has not gone meanwhile.
fn there<T>(what: std::io::Result<T>, path: &Path) -> Result<Option<T>> {
    match what {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{}", path.display())),
    }
}

/// The files in a folder and below, or the file itself. Sockets are none.
///
/// # Errors
/// A folder cannot be read.
pub fn all(path: &Path) -> Result<Vec<PathBuf>> {
    let Some(found) = there(fs::symlink_metadata(path), path)? else { return Ok(Vec::new()) };
    if found.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    if found.is_dir() {
        let Some(entries) = there(fs::read_dir(path), path)? else { return Ok(files) };
        for entry in entries {
            files.extend(all(&entry?.path())?);
        }
    }
    files.sort();
    Ok(files)
}

/// What Firebird has in its folder besides the database: its settings, locks and users.
const FIREBIRDS_OWN: [&str; 5] = ["root", "lock", "tmp", "password", "security3.fdb"];

/// Whether a file is of a database's log, Gannet's, PostgreSQL's or SQLite's, or of what lies beside that; or of what Firebird has for itself.
fn is_apart(file: &Path) -> bool {
    let is_log = file.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        name == "pg_wal" || name.ends_with("-wal") || name.ends_with("-shm")
    });
    let first = file.components().next().and_then(|part| part.as_os_str().to_str());
    is_log || first.is_some_and(|first| FIREBIRDS_OWN.contains(&first))
}

/// The files of a server's folder that hold the data: without the log.
///
/// # Errors
/// As [`all`].
pub fn data(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = all(folder)?.into_iter();
    Ok(files.filter(|file| !is_apart(file.strip_prefix(folder).unwrap_or(file))).collect())
}

/// Bytes in these files.
pub fn bytes(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| fs::metadata(file).ok()).map(|found| found.len()).sum()
}

/// Bytes that these files take of the device.
pub fn allocated(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| fs::metadata(file).ok()).map(|found| found.blocks() * 512).sum()
}

/// Bytes of these files that the system has in its cache; `None` where it says so of none of them.
pub fn cached(files: &[PathBuf]) -> Option<u64> {
    let told = gannet_io::residency(files).files;
    let known: Vec<u64> =
        told.iter().filter_map(|(_, cached)| cached.map(|cached| cached.cached_bytes)).collect();
    (files.is_empty() || !known.is_empty()).then(|| known.iter().sum())
}

/// Copies a file by direct I/O, where the system lets us, and makes the copy durable: reading and writing at one time.
fn copy_long(disk: &RealDisk, from: &Path, to: &Path, len: u64) -> Result<Mode> {
    let mode = ModeRequest::Only(Mode::Direct);
    let source = disk.open(from, &OpenOptions::read().mode(mode))?;
    let target = disk.open(to, &OpenOptions::create_new().mode(mode))?;
    let (filled, to_write) = sync_channel::<Result<(u64, usize, AlignedBuffer)>>(AHEAD);
    let (emptied, to_fill) = channel::<AlignedBuffer>();
    for _ in 0..=AHEAD {
        // Its other end is this function's.
        let _ = emptied.send(AlignedBuffer::zeroed(BLOCK));
    }
    let reader = &source;
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(move || {
            for offset in (0..len).step_by(BLOCK) {
                // Whoever writes has failed.
                let Ok(mut buffer) = to_fill.recv() else { return };
                let size = (len - offset).min(BLOCK as u64) as usize;
                let read = reader.read_at(Class::Foreground, offset, &mut buffer[..size]);
                let told = read.map(|()| (offset, size, buffer)).map_err(anyhow::Error::from);
                let failed = told.is_err();
                if filled.send(told).is_err() || failed {
                    return;
                }
            }
        });
        for block in to_write {
            let (offset, size, buffer) = block?;
            target.write_at(Class::Foreground, offset, &buffer[..size], Durability::Cached)?;
            // The reader may be through.
            let _ = emptied.send(buffer);
        }
        drop(emptied);
        Ok(())
    })?;
    target.sync(Class::Foreground)?;
    Ok(target.mode().effective)
}

/// Copies a file, durably. Gives the mode of a long one; `None` where it was short, or has gone.
fn copy(disk: &RealDisk, from: &Path, to: &Path) -> Result<Option<Mode>> {
    let Some(found) = there(fs::metadata(from), from)? else { return Ok(None) };
    if found.len() >= SHORT && found.len().is_multiple_of(4096) {
        return copy_long(disk, from, to, found.len())
            .map(Some)
            .with_context(|| format!("cannot copy {from:?} to {to:?}"));
    }
    if there(fs::copy(from, to), from)?.is_some() {
        File::open(to)?.sync_all()?;
    }
    Ok(None)
}

/// Copies files of a folder to another folder, which must not be there yet, durably.
fn copy_files(files: &[PathBuf], from: &Path, to: &Path) -> Result<Value> {
    let began = Instant::now();
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::create_dir(to).with_context(|| format!("cannot make {to:?}"))?;
    let disk = RealDisk::new(RealOptions::default());
    let (mut copied, mut mode) = (0, None);
    for file in files {
        let target = to.join(file.strip_prefix(from)?);
        fs::create_dir_all(target.parent().unwrap_or(to))?;
        mode = copy(&disk, file, &target)?.or(mode);
        copied += fs::metadata(&target).map_or(0, |found| found.len());
    }
    let seconds = began.elapsed().as_secs_f64();
    Ok(json!({ "bytes": copied, "mode": mode.map(Mode::name), "seconds": seconds }))
}

/// The plain copy that tasks are compared with: of the data files of a folder, by direct I/O, durable. Of a database that changes meanwhile it is worth nothing
/// but its time.
///
/// # Errors
/// The target is there, or something cannot be read or written.
pub fn plain_copy(from: &Path, to: &Path) -> Result<Value> {
    let files = data(from)?;
    if files.is_empty() {
        bail!("there is nothing to be copied in {from:?}");
    }
    copy_files(&files, from, to)
}

/// A copy of a server's folder, with its log, its empty folders, its owners and its rights: for a server of its own. Nothing of it is in the page cache.
///
/// # Errors
/// As [`plain_copy`].
pub fn duplicate(from: &Path, to: &Path) -> Result<()> {
    copy_files(&all(from)?, from, to)?;
    like(from, to)
}

/// Gives a folder's copy, and what is in it, the owners and rights of the original; makes the folders that are empty.
fn like(from: &Path, to: &Path) -> Result<()> {
    let found = fs::symlink_metadata(from)?;
    if found.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            like(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if !found.is_file() {
        return Ok(());
    }
    let own = fs::metadata(to)?;
    if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
        chown(to, Some(found.uid()), Some(found.gid()))
            .with_context(|| format!("cannot give {to:?} to the owner of {from:?}"))?;
    }
    fs::set_permissions(to, found.permissions())?;
    Ok(())
}

/// Removes a folder, or a file, if it is there.
///
/// # Errors
/// It cannot be removed.
pub fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    there(removed, path).map(|_| ()).context("cannot remove it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let from = temp.path().join("from");
        for (name, bytes) in [
            ("base/1", vec![7; (9 << 20) + 4096]),
            ("base/2", vec![8; 100]),
            ("pg_wal/0001", vec![9; 10]),
            ("x.gnt-wal/ring", vec![9; 10]),
            ("lock/fb_lock", vec![9; 10]),
            ("lab.sqlite-wal", vec![9; 10]),
            ("password", vec![9; 10]),
        ] {
            fs::create_dir_all(from.join(name).parent().unwrap()).unwrap();
            fs::write(from.join(name), bytes).unwrap();
        }
        fs::create_dir(from.join("empty")).unwrap();
        (temp, from)
    }

    #[test]
    fn a_plain_copy_has_the_data_and_not_the_log() {
        let (temp, from) = folder();
        let to = temp.path().join("to");
        let told = plain_copy(&from, &to).unwrap();
        assert_eq!(told["bytes"], (9 << 20) + 4096 + 100);
        for name in ["base/1", "base/2"] {
            assert!(fs::read(from.join(name)).unwrap() == fs::read(to.join(name)).unwrap(), "{name}");
        }
        for name in ["pg_wal", "x.gnt-wal", "lock", "password", "lab.sqlite-wal"] {
            assert!(!to.join(name).exists(), "{name}");
        }
        assert!(plain_copy(&from, &to).is_err());
        assert!(plain_copy(&from.join("empty"), &temp.path().join("other")).is_err());
    }

    #[test]
    fn a_duplicate_has_everything_with_its_rights() {
        let (temp, from) = folder();
        let to = temp.path().join("to");
        fs::set_permissions(from.join("base"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        duplicate(&from, &to).unwrap();
        assert_eq!(all(&to).unwrap().len(), 7);
        assert!(to.join("empty").is_dir());
        assert_eq!(fs::metadata(to.join("base")).unwrap().mode() & 0o777, 0o700);
        assert_eq!(bytes(&all(&from).unwrap()), bytes(&all(&to).unwrap()));
    }

    #[test]
    fn what_is_not_there_has_no_files_and_is_removed_without_complaint() {
        let temp = tempfile::tempdir().unwrap();
        let missing = temp.path().join("missing");
        assert!(all(&missing).unwrap().is_empty());
        remove(&missing).unwrap();
        assert_eq!(cached(&[]), Some(0));
    }
}
