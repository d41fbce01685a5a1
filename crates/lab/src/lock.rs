//! A lock on a run's folder: one lab works on it at a time.
//!
//! 1. Who works on a run has the file `lock` in its folder locked (`flock`), with the number of its process in it. The system lets go of that lock when
//!    its last holder has ended, however he ends: what a crash leaves is a file that nobody has locked.
//! 2. A step holds it, too, as its standard input ([`Lock::shared`]): so nobody takes the run of a lab that was killed before the step that this has left is over.
//! 3. The file goes before the lock does. Who has locked one that is no longer in the folder has locked nothing, and tries again.

use anyhow::{Context, Result, bail};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file's name.
pub const NAME: &str = "lock";
/// How often it is looked whether somebody has let go.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The lock, until this is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes it. A step that a killed lab has left is given so much time to end.
    ///
    /// # Errors
    /// Somebody has it, and who; or the file cannot be written.
    pub fn take(folder: &Path, patience: Duration) -> Result<Self> {
        let path = folder.join(NAME);
        let (begun, mut is_told) = (Instant::now(), false);
        loop {
            if let Some(file) = attempt(&path)? {
                return Ok(Lock { file, path });
            }
            let (owner, holders) = (owner(&path), holders(&path));
            // Where we may not see who has it open, it is taken for the one who has written there that he has.
            let owner = owner.filter(|owner| holders.is_empty() || holders.contains(owner));
            let who: Vec<String> = match owner {
                Some(owner) => vec![owner.to_string()],
                None => holders.iter().map(u32::to_string).collect(),
            };
            let who = if who.is_empty() { "of an unknown number".to_owned() } else { who.join(", ") };
            if owner.is_some() || begun.elapsed() >= patience {
                bail!("{folder:?} is being worked on by process {who}; wait for it, or end it");
            }
            if !std::mem::replace(&mut is_told, true) {
                eprintln!("waiting for process {who} to end, which a lab that was killed has left");
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The same lock for a process that is started: it is held until both have let go.
    ///
    /// # Errors
    /// The system's.
    pub fn shared(&self) -> Result<File> {
        self.file.try_clone().with_context(|| format!("cannot share {:?}", self.path))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Where it stays, it is a file that nobody has locked.
        let _ = fs::remove_file(&self.path);
    }
}

/// The file, locked, if nobody else has it locked.
fn attempt(path: &Path) -> Result<Option<File>> {
    loop {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.with_context(|| format!("cannot write {path:?}"))?;
        match file.try_lock() {
            Ok(()) if !is_at(&file, path) => continue,
            Ok(()) => {
                let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                written.with_context(|| format!("cannot write {path:?}"))?;
                return Ok(Some(file));
            }
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {path:?}"));
            }
        }
    }
}

/// Whether a file is the one that is there by this name.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(own), Ok(there)) => (own.dev(), own.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// The lab that took it.
fn owner(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The processes that have it open, as far as we may see.
fn holders(path: &Path) -> Vec<u32> {
    let Ok(path) = fs::canonicalize(path) else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_it = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|one| fs::read_link(one.path()).ok()).any(|link| link == path)
    };
    processes.filter(has_it).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_second_one_is_refused_and_told_by_whom() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take(folder.path(), Duration::ZERO).unwrap();
        let error = Lock::take(folder.path(), Duration::from_secs(60)).unwrap_err().to_string();
        assert!(error.contains(&format!("worked on by process {}; wait", std::process::id())), "{error}");
        drop(lock);
        assert!(!folder.path().join(NAME).exists());
        drop(Lock::take(folder.path(), Duration::ZERO).unwrap());
    }

    #[test]
    fn what_a_killed_lab_has_left_is_waited_for_and_then_named() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take(folder.path(), Duration::ZERO).unwrap();
        let mut step =
            Command::new("sleep").arg("60").stdin(Stdio::from(lock.shared().unwrap())).spawn().unwrap();
        // As if this process had been killed: the file that it had open is closed, and the number in it is nobody's.
        fs::write(&lock.path, "999999999\n").unwrap();
        let path = lock.path.clone();
        let away = path.with_extension("away");
        // What is dropped removes the file by its name.
        fs::rename(&path, &away).unwrap();
        drop(lock);
        fs::rename(&away, &path).unwrap();
        let error = Lock::take(folder.path(), Duration::from_millis(200)).unwrap_err().to_string();
        assert!(error.contains(&step.id().to_string()), "{error}");
        step.kill().unwrap();
        step.wait().unwrap();
    }

    #[test]
    fn what_a_crash_has_left_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), "1\n").unwrap();
        let lock = Lock::take(folder.path(), Duration::ZERO).unwrap();
        assert_eq!(owner(&folder.path().join(NAME)), Some(std::process::id()));
        drop(lock);
    }
}
