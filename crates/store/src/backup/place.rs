//! Where backups are: not always on the disk that their database is on.

use gannet_io::Disk;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A folder with backups, or one of a backup's files, on some disk: that of the engine, or one that an object store is behind.
#[derive(Clone)]
pub struct BackupPlace {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// What it is called there.
    pub path: PathBuf,
}

impl BackupPlace {
    /// A path on a disk.
    pub fn new(disk: Arc<dyn Disk>, path: impl Into<PathBuf>) -> Self {
        BackupPlace { disk, path: path.into() }
    }

    /// What is called so in this folder.
    pub fn join(&self, name: impl AsRef<Path>) -> Self {
        BackupPlace { disk: Arc::clone(&self.disk), path: self.path.join(name) }
    }

    /// The folder that it lies in.
    pub(super) fn parent(&self) -> Self {
        let folder = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        BackupPlace { disk: Arc::clone(&self.disk), path: folder.unwrap_or(Path::new(".")).to_owned() }
    }
}

impl fmt::Debug for BackupPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.path, f)
    }
}
