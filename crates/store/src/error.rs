use gannet_base::memory::OverBudget;
use gannet_base::{PageId, TxnId};

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, by what a caller can do about it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device or file system failed. Whether the database can go on is said by [`Error::is_fatal`].
    #[error("{0}")]
    Io(std::sync::Arc<gannet_io::Error>),
    /// Stored bytes are not what was written. Other pages stay readable.
    #[error("damaged: {0}")]
    Damaged(String),
    /// A page that something refers to was never written: damage of a special kind.
    #[error("damaged: {0} is referred to, but was never written")]
    NeverWritten(PageId),
    /// The file is no Gannet database, or of a format this release does not read.
    #[error("{0}")]
    Format(String),
    /// Somebody else has the database open, and the message says who.
    #[error("{0}")]
    InUse(String),
    /// A write or sync failed earlier; the database takes no more changes until it is opened anew.
    #[error("the database is closed to changes since an earlier failure: {0}")]
    Poisoned(String),
    /// Another transaction changed the row first: roll back and run the transaction again (SQLSTATE 40001).
    #[error("could not serialize access: the row was changed by {0}, which this transaction does not see")]
    Conflict(TxnId),
    /// Waiting would have closed a circle of waiting transactions: roll back and run it again (SQLSTATE 40P01).
    #[error("deadlock detected while waiting for {0}")]
    Deadlock(TxnId),
    /// The row is locked and the caller did not want to wait, or not that long (SQLSTATE 55P03).
    #[error("the row is locked by {0}")]
    Locked(TxnId),
    /// The key is there already (SQLSTATE 23505).
    #[error("the key exists already")]
    Duplicate,
    /// The request can never work: a key too long, an unknown tree, a read-only database.
    #[error("{0}")]
    Invalid(String),
    /// The memory budget has no room.
    #[error(transparent)]
    Memory(#[from] OverBudget),
    /// All page frames are in use, for longer than anybody waits: the memory budget is too small for this load.
    #[error("{0}")]
    NoFrame(String),
    /// The file system has no room; nothing was changed, and what is committed is safe.
    #[error("no space left: {0}")]
    NoSpace(String),
    /// The process, or the system, has as many files open as it may; nothing was changed, and what is committed is safe.
    #[error("too many open files: {0}")]
    TooManyFiles(String),
    /// A backup cannot be made, read or restored; the message says whether that is about its destination, its source or the order of
    /// its parts. No database was changed.
    #[error("{0}")]
    Backup(String),
    /// The transaction held garbage back for longer than `snapshot_limit` permits, and was ended: roll back, and begin anew
    /// (SQLSTATE 25P04).
    #[error("the transaction was ended: it has held garbage back for longer than snapshot_limit permits")]
    TooOld,
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// A damaged page, named.
    pub(crate) fn damaged_page(page: PageId, what: impl std::fmt::Display) -> Self {
        Error::Damaged(format!("{page}: {what}"))
    }

    /// Whether stored bytes could not be had: they are damaged, or the device did not give them. With the database not poisoned that harms nobody
    /// but who needs these bytes: a write or sync that fails poisons it.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self, Error::Damaged(_) | Error::NeverWritten(_) | Error::Io(_))
    }

    /// Whether the same may go well later: there was no room, on the device or in memory, or for one more open file.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Error::NoSpace(_) | Error::TooManyFiles(_) | Error::Memory(_) | Error::NoFrame(_))
    }

    /// Whether the database cannot take further changes until it is opened anew.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Error::Poisoned(_) | Error::Io(_))
    }
}

impl From<gannet_io::Error> for Error {
    fn from(error: gannet_io::Error) -> Self {
        match error.kind() {
            gannet_io::ErrorKind::NoSpace => Error::NoSpace(error.to_string()),
            _ => Error::Io(std::sync::Arc::new(error)),
        }
    }
}
