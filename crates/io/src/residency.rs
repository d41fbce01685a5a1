//! How much of a set of files the OS cache holds: the proof that nothing is cached twice.

use crate::real::sys;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Cached bytes of some files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Residency {
    /// Each file with its size and its cached bytes; `None` where it could not be found out (or the file is gone).
    pub files: Vec<(PathBuf, Option<Cached>)>,
}

/// One file's share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cached {
    /// The file's size in bytes.
    pub len_bytes: u64,
    /// Bytes of it in the OS cache, in whole OS pages.
    pub cached_bytes: u64,
}

impl Residency {
    /// Cached bytes of all files together; `None` when any of them is unknown.
    pub fn cached_bytes(&self) -> Option<u64> {
        self.files.iter().map(|(_, cached)| cached.map(|c| c.cached_bytes)).sum()
    }
}

/// Asks for files by path; each is opened for reading and nothing of it is read.
pub fn residency<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Residency {
    let one = |path: &Path| {
        let file = std::fs::File::open(path).ok()?;
        let len_bytes = file.metadata().ok()?.len();
        Some(Cached { len_bytes, cached_bytes: sys::cached_bytes(&file)? })
    };
    let files = paths.into_iter().map(|path| {
        let path = path.as_ref();
        (path.to_owned(), one(path))
    });
    Residency { files: files.collect() }
}

/// A file that somebody else reads or writes through the OS cache: to have the OS forget it behind him. It follows the file, whatever its name is.
#[derive(Debug)]
pub struct Passing(File);

impl Passing {
    /// Opens the file for reading; nothing of it is read.
    ///
    /// # Errors
    /// Whatever keeps it from being opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Passing)
    }

    /// Makes durable what is written until now: only so can it be forgotten.
    ///
    /// # Errors
    /// What the device says.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    /// Asks the OS to forget what it has of the file and is not still to be written. A hint.
    pub fn forget(&self) {
        sys::forget(&self.0);
    }

    /// The same for what somebody has read who reads on: the page that he ends in he still needs. A hint.
    pub fn forget_read(&self, range: &Range<u64>) {
        sys::forget_range(&self.0, range);
    }

    /// Bytes of it in the OS cache; `None` where nobody can say.
    pub fn cached_bytes(&self) -> Option<u64> {
        sys::cached_bytes(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_has_read_or_written_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 16 << 20]).unwrap();
        let passing = Passing::open(&path).unwrap();
        // It goes by the file, not by its name.
        let path = folder.path().join("other");
        std::fs::rename(folder.path().join("file"), &path).unwrap();
        passing.sync().unwrap();
        passing.forget();
        // A folder in memory forgets nothing.
        if passing.cached_bytes() == Some(0) {
            assert_eq!(std::fs::read(&path).unwrap().len(), 16 << 20);
            assert!(passing.cached_bytes().is_some_and(|bytes| bytes >= 16 << 20));
            // What is cached in pieces of several pages is forgotten by pieces.
            passing.forget_read(&(100..(8 << 20) + 100));
            let left = passing.cached_bytes().unwrap();
            assert!(((8 << 20)..(12 << 20)).contains(&left), "{left}");
        }
    }

    #[test]
    fn both_ways_of_asking_agree() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 100_000]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let by_mapping = sys::mincore(&file, 100_000);
        assert_eq!(by_mapping, sys::cached_bytes(&file));
        assert!(by_mapping.is_none_or(|bytes| bytes >= 100_000));
    }
}
