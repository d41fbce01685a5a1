use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Result of an I/O operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it was: what a caller can act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file or folder is not there.
    NotFound,
    /// The file is there already.
    AlreadyExists,
    /// The system refuses access.
    PermissionDenied,
    /// Somebody else has it open.
    Locked,
    /// The file system or quota is full.
    NoSpace,
    /// The process, or the system, has as many files open as it may: the same may go well later.
    TooManyOpen,
    /// The file ends before the bytes asked for.
    ShortRead,
    /// An earlier write or sync failed; open the file anew.
    Poisoned,
    /// The file system is read-only.
    ReadOnly,
    /// The request was not aligned, or is not possible on this file: a bug in the caller.
    Invalid,
    /// The device failed.
    Device,
}

/// A failed operation on a file.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    path: PathBuf,
    detail: String,
    source: Option<io::Error>,
    earlier: Option<ErrorKind>,
}

impl Error {
    /// An error found by ourselves.
    pub fn new(kind: ErrorKind, operation: &'static str, path: &Path, detail: impl Into<String>) -> Self {
        Error { kind, operation, path: path.to_owned(), detail: detail.into(), source: None, earlier: None }
    }

    /// An error the system reported.
    pub fn from_os(
        operation: &'static str,
        path: &Path,
        detail: impl Into<String>,
        source: io::Error,
    ) -> Self {
        let kind = match source.raw_os_error() {
            Some(libc::ENOENT) => ErrorKind::NotFound,
            Some(libc::EEXIST) => ErrorKind::AlreadyExists,
            Some(libc::EACCES | libc::EPERM) => ErrorKind::PermissionDenied,
            // The last one is of a limit on the length of a process's files.
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => ErrorKind::NoSpace,
            Some(libc::EMFILE | libc::ENFILE) => ErrorKind::TooManyOpen,
            Some(libc::EROFS) => ErrorKind::ReadOnly,
            Some(libc::EINVAL) => ErrorKind::Invalid,
            _ => ErrorKind::Device,
        };
        Error {
            kind,
            operation,
            path: path.to_owned(),
            detail: detail.into(),
            source: Some(source),
            earlier: None,
        }
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Of [`ErrorKind::Poisoned`]: what kind the earlier failure was.
    pub fn earlier(&self) -> Option<ErrorKind> {
        self.earlier
    }

    /// The file it happened on.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is known beyond the operation and the file.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// A copy for another waiter of the same failed operation. The OS error keeps its code.
    pub fn duplicate(&self) -> Self {
        let source = self.source.as_ref().map(|s| match s.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(s.kind(), s.to_string()),
        });
        Error {
            kind: self.kind,
            operation: self.operation,
            path: self.path.clone(),
            detail: self.detail.clone(),
            source,
            earlier: self.earlier,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {:?}", self.operation, self.path)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

/// Whether a file takes writes and syncs still, and the failure since which it does not.
#[derive(Debug, Default)]
pub(crate) struct Poison(OnceLock<Error>);

impl Poison {
    /// It takes none any more since this failure, if it has until then.
    pub(crate) fn set(&self, failure: &Error) {
        // The first one counts.
        let _ = self.0.set(failure.duplicate());
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Refuses an operation on a file that takes none.
    pub(crate) fn check(&self, operation: &'static str, path: &Path) -> Result<()> {
        let Some(first) = self.0.get() else { return Ok(()) };
        let text = format!(
            "an earlier write or sync failed; what the device kept is unknown until it is opened anew; that failure: {first}"
        );
        let refused = Error::new(ErrorKind::Poisoned, operation, path, text);
        Err(Error { earlier: Some(first.kind), ..refused })
    }
}

/// What renaming to a name that is taken says, where nothing is to be replaced.
pub(crate) fn is_taken(from: &Path, to: &Path) -> Error {
    Error::new(ErrorKind::AlreadyExists, "rename", from, format!("{to:?} is there"))
}

impl std::error::Error for Error {
    /// What lies behind the system's error, which itself is part of the message: who writes the whole chain writes it once.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().and_then(std::error::Error::source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn the_systems_words_stand_once_in_the_chain() {
        let system = || io::Error::from_raw_os_error(libc::EROFS);
        let error = Error::from_os("open", Path::new("f"), "", system());
        assert_eq!(error.to_string(), format!("cannot open \"f\": {}", system()));
        assert!(error.source().is_none() && error.kind() == ErrorKind::ReadOnly);
    }
}
