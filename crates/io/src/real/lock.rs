//! The lock that keeps two processes, or two handles of one process, from the same database.
//!
//! The lock itself is `flock(2)`: it belongs to the open file, ends with it or with the process, and two handles of one
//! process exclude each other. The holder's process id is written into the file for the message only; what decides is
//! the lock. A lock file may be removed by whoever holds the lock, and by nobody else. Files of this process are also kept in a list, because a process id alone misleads between containers.

use crate::real::sys;
use crate::{Error, ErrorKind, Result};
use gannet_base::sync::Mutex;
use std::any::Any;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

static HELD_HERE: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

struct Held {
    file: File,
    identity: (u64, u64),
}

impl Drop for Held {
    fn drop(&mut self) {
        // A name left behind would only mislead the next one who finds the lock taken.
        let _ = self.file.set_len(0);
        let mut held = HELD_HERE.lock();
        if let Some(at) = held.iter().position(|i| *i == self.identity) {
            held.swap_remove(at);
        }
    }
}

/// Takes the lock on `path`, creating the file if need be.
pub(super) fn lock(path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
    let os = |e| Error::from_os("lock", path, "", e);
    loop {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(os)?;
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
        let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(os)?;
        held.push(identity);
        return Ok(Box::new(Held { file, identity }));
    }
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
