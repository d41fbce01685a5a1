//! How much of a set of files the OS cache holds: the proof that nothing is cached twice.

use crate::real::sys;
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

#[cfg(test)]
mod tests {
    use super::*;

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
