//! What a folder is good for, asked before anything depends on it.

use crate::real::sys;
use crate::{Disk, OpenOptions, RealDisk, Result};
use std::path::Path;

/// Whether what is written to the folder stays in memory, as on `tmpfs`. Where the system cannot say: no.
pub fn is_in_memory(folder: &Path) -> bool {
    std::fs::File::open(folder).is_ok_and(|folder| sys::is_in_memory(&folder))
}

/// Makes a file in the folder, and removes it.
pub fn try_folder(folder: &Path) -> Result<()> {
    let disk = RealDisk::default();
    let name = format!(".gannet-try-{}-{:016x}.tmp", std::process::id(), gannet_base::random::next_u64());
    let path = folder.join(name);
    disk.open(&path, &OpenOptions::create_new())?;
    disk.remove(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_known_for_what_they_are() {
        let folder = tempfile::tempdir_in(".").unwrap();
        assert!(!is_in_memory(folder.path()));
        try_folder(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(try_folder(&folder.path().join("missing")).is_err());
        #[cfg(target_os = "linux")]
        assert!(is_in_memory(Path::new("/dev/shm")) || !Path::new("/dev/shm").exists());
    }
}
