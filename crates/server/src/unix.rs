//! Unix sockets whatever the length of their path. The system takes a path of 107 bytes; a longer one is gone by way of a descriptor of its folder. (Clients
//! that do not know that need a shorter path, or TCP.)

use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Longest path of a Unix socket that the system takes, in bytes, and so any client: `gannet` itself goes by longer ones, too.
pub const LONGEST_SOCKET_PATH: usize = 107;
/// Names of this process's descriptors.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Connects to the socket of this path.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    by_short_path(path, |path| UnixStream::connect(path))
}

/// Listens at a new socket of this path.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    by_short_path(path, |path| UnixListener::bind(path))
}

fn by_short_path<T>(path: &Path, with: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return with(path) };
    if path.as_os_str().as_bytes().len() <= LONGEST_SOCKET_PATH {
        return with(path);
    }
    let descriptors = Path::new(DESCRIPTORS);
    if !descriptors.exists() {
        let message = format!(
            "a socket's path has {LONGEST_SOCKET_PATH} bytes at most where there is no {DESCRIPTORS}: use a shorter one"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let folder = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    with(&descriptors.join(folder.as_raw_fd().to_string()).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_whose_path_was_too_long_for_the_system_could_not_be_used() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("f".repeat(120));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join(".s.PGSQL.5433");
        let kind = |result: io::Result<UnixStream>| result.unwrap_err().kind();
        assert_eq!(kind(connect(&path)), io::ErrorKind::NotFound);
        let listener = listen(&path).unwrap();
        connect(&path).unwrap();
        drop(listener);
        assert_eq!(kind(connect(&path)), io::ErrorKind::ConnectionRefused);
        assert_eq!(kind(connect(&folder.join("gone").join("s"))), io::ErrorKind::NotFound);
    }
}
