//! What the local file system needs beside what `object_store` does there.
//!
//! # Invariants
//! 1. Files are for this user alone before there is anything in them (guarantee 5 of [`gannet_io`]).
//! 2. An upload goes to a file beside its place, `NAME#1`, which nobody is shown. What a crash leaves of it goes with the
//!    placeholder that reserved its name.
//! 3. What went through the OS cache does not stay there: behind each part that was written, when that is durable, behind each read, and behind
//!    short files. `object_store` opens files itself, and not past the cache: so others open them beside it, to have the OS forget.

use gannet_io::{Disk, Error, Passing, RealDisk, Result};
use std::any::Any;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What the names of all files begin with.
pub(crate) const BASE: &str = "file://";
/// Permissions of files.
const FILE_PERMISSIONS: u32 = 0o600;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Local(RealDisk);

impl Local {
    /// What the system calls it.
    pub(crate) fn real(path: &Path) -> PathBuf {
        path.to_str().and_then(|text| text.strip_prefix(BASE)).map_or_else(|| path.to_owned(), PathBuf::from)
    }

    /// A folder that is there; what is listed of one that is not, is nothing.
    pub(crate) fn check_folder(&self, folder: &Path) -> Result<()> {
        if Self::real(folder).is_dir() {
            return Ok(());
        }
        Err(Error::new(gannet_io::ErrorKind::NotFound, "list", folder, "there is no such folder"))
    }

    /// Keeps others from a file, and from what is being written for it.
    pub(crate) fn seal(&self, path: &Path) -> Result<()> {
        let real = Self::real(path);
        for file in self.staged(&real)?.into_iter().chain([real]) {
            let permissions = std::fs::Permissions::from_mode(FILE_PERMISSIONS);
            std::fs::set_permissions(&file, permissions)
                .map_err(|error| Error::from_os("keep others from", path, "", error))?;
        }
        Ok(())
    }

    /// The file itself, for who has read or written it to have it forgotten; `None` where it cannot be opened, as one that is gone.
    pub(crate) fn passing(path: &Path) -> Option<Passing> {
        Passing::open(&Self::real(path)).ok()
    }

    /// What is being uploaded to this file.
    pub(crate) fn passing_staged(&self, path: &Path) -> Result<Vec<Passing>> {
        let staged = self.staged(&Self::real(path))?;
        Ok(staged.iter().filter_map(|file| Passing::open(file).ok()).collect())
    }

    /// Removes what uploads to this file have left.
    pub(crate) fn remove_staged(&self, path: &Path) -> Result<()> {
        for file in self.staged(&Self::real(path))? {
            self.0.remove(&file)?;
        }
        Ok(())
    }

    /// Files named as this one, with `#` and a number behind.
    fn staged(&self, real: &Path) -> Result<Vec<PathBuf>> {
        let (Some(folder), Some(name)) = (real.parent(), real.file_name().and_then(|name| name.to_str()))
        else {
            return Ok(Vec::new());
        };
        let is_staged = |other: &String| {
            let number = other.strip_prefix(name).and_then(|rest| rest.strip_prefix('#'));
            number
                .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let names = self.0.list(folder)?.into_iter().filter(is_staged);
        Ok(names.map(|name| folder.join(name)).collect())
    }

    /// Makes names durable: `object_store` does so for what it writes, not for what it removes.
    pub(crate) fn sync_dir(&self, folder: &Path) -> Result<()> {
        self.0.sync_dir(&Self::real(folder))
    }

    pub(crate) fn free_bytes(&self, folder: &Path) -> Result<Option<u64>> {
        self.0.free_bytes(&Self::real(folder))
    }

    pub(crate) fn lock(&self, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        self.0.lock(&Self::real(path))
    }
}
