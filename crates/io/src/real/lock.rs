//! The lock that keeps two processes, or two handles of one process, from the same database.
//!
//! The lock itself is `flock(2)`: it belongs to the open file, ends with it or with the process, and two handles of one
//! process exclude each other. The holder's process id is written into the file for the message only, as far as there is room for it; what
//! decides is the lock. A lock file may be removed by whoever holds the lock, and by nobody else. Files of this process are also kept
//! in a list, because a process id alone misleads between containers. A file that is no lock file is locked in the same way,
//! and nothing is written to it.
//!
//! A file is held a moment longer than its process lives while the kernel ends the process's requests to `io_uring`; so
//! long its lock stands, too, and what these requests write still arrives. That moment is waited for.

use crate::real::{FILE_PERMISSIONS, sys};
use crate::{Error, ErrorKind, Result};
use gannet_base::clock;
use gannet_base::sync::Mutex;
use std::any::Any;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// How long a lock may outlive its process.
const LINGERING: Duration = Duration::from_secs(1);
/// How often such a lock is tried.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

static HELD_HERE: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// A lock that is held, and its place in the list.
struct Held {
    file: File,
    identity: (u64, u64),
    /// It is a lock file, with our process id in it.
    ours: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.ours {
            // A process id left behind would only mislead the next one who finds the lock taken.
            let _ = self.file.set_len(0);
        }
        let mut held = HELD_HERE.lock();
        // The open file may live on in other descriptors. Where this fails, the lock ends with the last of them.
        let _ = sys::unlock(&self.file);
        if let Some(at) = held.iter().position(|i| *i == self.identity) {
            held.swap_remove(at);
        }
    }
}

/// Takes the lock on the open file itself, which holds for all its names. A holder that is no living process, or is not
/// known, is given [`LINGERING`] to let go.
pub(super) fn lock_file(file: &File, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
    let os = |e| Error::from_os("lock", path, "", e);
    let file = file.try_clone().map_err(os)?;
    let identity = identity(&file.metadata().map_err(os)?);
    let start = clock::now();
    loop {
        // Seen before the lock is tried: who gives up has tried it once more after that time, also where the machine stood still meanwhile.
        let is_over = clock::now() - start >= LINGERING;
        // The list is not held while waiting: others of this process may take locks of other files.
        let mut held = HELD_HERE.lock();
        if held.contains(&identity) {
            let text = format!("this very process (pid {}) has the file open already", std::process::id());
            return Err(Error::new(ErrorKind::Locked, "lock", path, text));
        }
        if sys::try_lock(&file).map_err(os)? {
            held.push(identity);
            return Ok(Box::new(Held { file, identity, ours: false }));
        }
        drop(held);
        let holder = listed_holder(identity);
        if holder.is_some_and(is_alive) || is_over {
            let text = match holder.filter(|&pid| is_alive(pid)) {
                Some(pid) => {
                    format!("the process with pid {pid} has the file open, perhaps under another name")
                }
                None => "another process has the file open, perhaps under another name".to_owned(),
            };
            return Err(Error::new(ErrorKind::Locked, "lock", path, text));
        }
        clock::sleep(LOOK_AGAIN);
    }
}

/// Whether the process has not ended; one whose parent has not taken notice yet has.
fn is_alive(pid: u32) -> bool {
    // Behind the program's name, which may contain anything, parentheses included.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit_once(')')?.1.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Who holds the lock on a file according to `/proc/locks`, which not every system has, and which does not show processes of
/// other containers: for a message, and to tell who may still let go.
fn listed_holder(identity: (u64, u64)) -> Option<u32> {
    let device = (libc::major(identity.0), libc::minor(identity.0));
    let name = format!("{:02x}:{:02x}:{}", device.0, device.1, identity.1);
    holder_in(&std::fs::read_to_string("/proc/locks").ok()?, &name)
}

/// The process of the line about a `flock` that is held on the file of that name.
fn holder_in(locks: &str, name: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let ours = fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&name);
        fields.get(4).filter(|_| ours)?.parse().ok().filter(|&pid| pid > 0)
    })
}

/// Takes the lock on `path`, creating the file if need be.
pub(super) fn lock(path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
    let os = |e| Error::from_os("lock", path, "", e);
    loop {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_PERMISSIONS)
            .open(path)
            .map_err(os)?;
        let identity = identity(&file.metadata().map_err(os)?);
        // The list is held across the attempt, so that a lock of this process is always found in it.
        let mut held = HELD_HERE.lock();
        if held.contains(&identity) {
            let text = format!("this very process (pid {}) has it open already", std::process::id());
            return Err(Error::new(ErrorKind::Locked, "lock", path, text));
        }
        if !sys::try_lock(&file).map_err(os)? {
            return Err(Error::new(ErrorKind::Locked, "lock", path, holder(&mut file)));
        }
        // Whoever held it may have removed the file meanwhile: others would make and lock another one.
        if !std::fs::metadata(path).is_ok_and(|named| self::identity(&named) == identity) {
            continue;
        }
        match write_pid(&mut file).map_err(os) {
            // On a full disk there may still be everything to open a database with: this is for a message.
            Err(error) if error.kind() != ErrorKind::NoSpace => return Err(error),
            _ => {}
        }
        held.push(identity);
        return Ok(Box::new(Held { file, identity, ours: true }));
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    if file.metadata()?.len() > 0 {
        file.set_len(0)?;
    }
    writeln!(file, "{}", std::process::id())
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok());
    match pid {
        Some(pid) => format!("the process with pid {pid} has it open"),
        None => "another process has it open and has not said which one it is".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_does_not_keep_anybody_from_a_lock() {
        // Nothing can be written to it, and it can be locked as any file.
        let full = Path::new("/dev/full");
        let held = lock(full).unwrap();
        assert_eq!(lock(full).unwrap_err().kind(), ErrorKind::Locked);
        drop(held);
        drop(lock(full).unwrap());
        let silent = tempfile::tempfile().unwrap();
        assert!(holder(&mut { silent }).contains("has not said which one"));
    }

    #[test]
    fn the_holder_is_who_holds_the_lock_not_who_waits() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:42 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 08:01:43 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 08:01:42 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 14 08:01:42 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 08:01:44 0 EOF\n";
        assert_eq!(holder_in(locks, "08:01:42"), Some(14));
        assert_eq!(holder_in(locks, "08:01:43"), Some(12));
        assert_eq!(holder_in(locks, "08:01:44"), None);
        assert_eq!(holder_in(locks, "08:01:45"), None);
    }
}
