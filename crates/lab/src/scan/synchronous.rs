//! A folder in which every write is synchronous: the file attribute `S`, as `chattr +S` sets it. Files and folders that are made below have it, too, and
//! the kernel syncs after each write to such a file, whoever writes. It is the nearest that a program can come to a device whose write cache is off.

use anyhow::{Context, Result, bail};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use std::fs::{self, File};
use std::path::Path;

/// Whether the folder could be marked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Marked {
    /// It is.
    Yes,
    /// The file system knows no such thing, or does not hand it down: why.
    No(String),
}

/// Marks a folder.
///
/// # Errors
/// It cannot be opened, or takes no file.
pub fn mark(folder: &Path) -> Result<Marked> {
    let opened = File::open(folder).with_context(|| format!("cannot open {folder:?}"))?;
    let set = ioctl_getflags(&opened).and_then(|flags| ioctl_setflags(&opened, flags | IFlags::SYNC));
    if let Err(error) = set {
        return Ok(Marked::No(format!(
            "the file system of {folder:?} does not take the attribute S: {error}"
        )));
    }
    let probe = folder.join("probe");
    let inherited = File::create(&probe).map_err(anyhow::Error::from).and_then(|file| is_marked(&file));
    fs::remove_file(&probe)?;
    if inherited? {
        return Ok(Marked::Yes);
    }
    Ok(Marked::No(format!("the file system of {folder:?} does not hand the attribute S down to new files")))
}

fn is_marked(file: &File) -> Result<bool> {
    Ok(ioctl_getflags(file)?.contains(IFlags::SYNC))
}

/// Fails where a file below, at any depth, is not marked.
///
/// # Errors
/// One is not, or cannot be looked at.
pub fn check(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let (kind, path) = entry.and_then(|entry| Ok((entry.file_type()?, entry.path())))?;
        if kind.is_dir() {
            check(&path)?;
        } else if kind.is_file() && !is_marked(&File::open(&path)?)? {
            bail!("{path:?} is written without the attribute S");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_in_a_marked_folder_is_marked() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let marked = folder.path().join("marked");
        fs::create_dir(&marked).unwrap();
        match mark(&marked).unwrap() {
            Marked::Yes => {
                fs::create_dir(marked.join("below")).unwrap();
                fs::write(marked.join("below/file"), "text").unwrap();
                check(&marked).unwrap();
            }
            // As it is with a file system in memory.
            Marked::No(reason) => assert!(reason.contains("attribute S"), "{reason}"),
        }
        fs::write(folder.path().join("plain"), "text").unwrap();
        let outcome = check(folder.path()).map_err(|error| error.to_string());
        assert!(outcome.is_err_and(|error| error.contains("attribute S") || error.contains("ioctl")));
    }
}
