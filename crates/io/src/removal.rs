//! Large files that go without anybody having to wait for it: a file system that discards what it frees stops everybody's syncs meanwhile, of a file of
//! a GiB that is removed at once for most of a second.

use crate::{Disk, File, OpenOptions, Result};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a file that are given back in one step.
pub const REMOVED_AT_ONCE: u64 = 16 << 20;

/// Makes a file shorter from its end on, by steps.
///
/// # Errors
/// Those of the file, which is shorter then than it was.
pub fn shorten(file: &dyn File, len: u64) -> Result<()> {
    let mut left = file.len()?;
    while left > len {
        left = left.saturating_sub(REMOVED_AT_ONCE).max(len);
        file.set_len(left)?;
    }
    Ok(())
}

/// Removes a file, as [`Disk::remove`] does, and gives back what it has by steps, where it is large. Its name is gone durably before that: what a crash
/// leaves is all of the file, or nothing. Where another name leads to it, a hard link say, the file stays as it is; whoever has it open sees it get shorter.
///
/// # Errors
/// Where the name may still be there.
pub fn remove_large(disk: &dyn Disk, path: &Path) -> Result<()> {
    // What cannot be opened goes at once.
    let opened = if disk.holds_objects() { None } else { disk.open(path, &OpenOptions::read_write()).ok() };
    disk.remove(path)?;
    let is_to_go = |file: &Arc<dyn File>| {
        file.len().is_ok_and(|len| len > REMOVED_AT_ONCE) && file.has_a_name().is_ok_and(|has| !has)
    };
    let Some(file) = opened.filter(is_to_go) else { return Ok(()) };
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    disk.sync_dir(folder.unwrap_or(Path::new(".")))?;
    // Nobody finds it any more: what is not given back now is when it is closed.
    let _ = shorten(&*file, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use crate::sim::SimDisk;

    const LARGE: &str = "folder/large";

    fn with_file(len: u64) -> SimDisk {
        let disk = SimDisk::new(1);
        disk.create_dir(Path::new("folder")).unwrap();
        disk.sync_dir(Path::new(".")).unwrap();
        let file = disk.open(Path::new(LARGE), &OpenOptions::create_new()).unwrap();
        file.allocate(0, len).unwrap();
        file.sync(Class::Foreground).unwrap();
        disk.sync_dir(Path::new("folder")).unwrap();
        disk
    }

    #[test]
    fn a_large_file_goes_by_steps_and_a_crash_leaves_all_of_it_or_nothing() {
        let len = 3 * REMOVED_AT_ONCE + 4096;
        let disk = with_file(len);
        let before = disk.io_count();
        remove_large(&disk, Path::new(LARGE)).unwrap();
        let steps = disk.io_count() - before;
        assert!(steps >= 4, "{steps} requests");
        assert!(!disk.exists(Path::new(LARGE)).unwrap());
        for (at, seed) in (1..=steps).flat_map(|at| (0..8).map(move |seed| (at, seed))) {
            let disk = with_file(len);
            disk.crash_after(at);
            let _ = remove_large(&disk, Path::new(LARGE));
            let disk = disk.crash_image(seed);
            if disk.exists(Path::new(LARGE)).unwrap() {
                let file = disk.open(Path::new(LARGE), &OpenOptions::read()).unwrap();
                assert_eq!(file.len().unwrap(), len, "{at}, {seed}");
            }
        }
    }

    #[test]
    fn a_file_that_has_another_name_stays_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link, soft) =
            (folder.path().join("one"), folder.path().join("two"), folder.path().join("three"));
        let len = REMOVED_AT_ONCE + 4096;
        std::fs::File::create(&path).unwrap().set_len(len).unwrap();
        std::fs::hard_link(&path, &link).unwrap();
        std::os::unix::fs::symlink(&link, &soft).unwrap();
        let disk = crate::RealDisk::default();
        for name in [&path, &soft] {
            remove_large(&disk, name).unwrap();
            assert!(!name.exists());
            assert_eq!(std::fs::metadata(&link).unwrap().len(), len);
        }
        remove_large(&disk, &link).unwrap();
        assert!(!link.exists());
    }

    #[test]
    fn a_small_file_goes_at_once_and_one_that_is_not_there_is_said() {
        let disk = with_file(4096);
        let before = disk.io_count();
        remove_large(&disk, Path::new(LARGE)).unwrap();
        assert_eq!(disk.io_count() - before, 1);
        let error = remove_large(&disk, Path::new(LARGE)).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::NotFound, "{error}");
    }
}
