//! Object stores as disks: what backups need of [`gannet_io::Disk`], by the crate `object_store`.
//!
//! An object store has no files. It has objects, which are there as a whole or not at all, are never changed, and have no locks. So
//! a disk here does less than others: [`Disk::holds_objects`] says so.
//!
//! # What it guarantees
//! 1. A file that is written is seen by others when its [`File::sync`](gannet_io::File::sync) returned, with all of its bytes, and not
//!    before. Its name is reserved from its creation on by a short placeholder, so that nobody else takes it. One that is dropped before it is
//!    complete is given up: what was uploaded of it goes, as far as the store can be reached.
//! 2. Nothing that is there is overwritten: names are reserved, and short files are published, on the condition that there is none.
//! 3. What a store has acknowledged is durable. Of the local file system that is true because each file and its folder are synced.
//! 4. Memory for a file that is written is bounded, and said in advance ([`File::expect`](gannet_io::File::expect)): who writes faster than
//!    the store takes it waits.
//! 5. Nothing is waited for without end: a request that fails is tried again for a time, and whoever gives up is heard within a tenth of a
//!    second, or within about one where an object is just being completed. What is to be taken back then takes five seconds in all; what stays
//!    is said ([`Disk::take_left`]).
//! 6. Files are for this user alone on the local file system; elsewhere, for whoever the store lets in.
//!
//! # How
//! The crate `object_store` is asynchronous, and nobody else here is: one thread of its own runs what it is asked for
//! (`runtime`), and whoever asks waits.
//!
//! # Locks
//! A lock is an object, made on the condition that there is none, which its holder renews every few seconds (`lease`). Of a holder that
//! is gone it stays, and is taken over by whoever has seen it unchanged for long enough. On the local file system it is a lock like any other.

use gannet_io::{Disk, Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

mod complete;
mod disk;
mod error;
mod file;
mod lease;
mod local;
mod queue;
mod runtime;
mod stores;
mod upload;

pub use disk::ObjectDisk;

/// Says that nobody waits any more for what is under way.
pub type Cancelled = Arc<dyn Fn() -> bool + Send + Sync>;

/// How a disk behaves.
#[derive(Clone)]
pub struct Settings {
    /// What is under way ends when this says so; asked some ten times a second.
    pub cancelled: Cancelled,
    /// How often the holder of a lock renews it. Default 15 s.
    pub renewed_every: Duration,
    /// A lock that was not renewed for so long has no holder any more. Default 60 s.
    pub free_after: Duration,
    /// For so long it is tried to renew a lock that others may have taken over already, before it is given up. Default 15 min.
    pub regained_within: Duration,
    /// Once somebody has given up, it is tried for so long, in all, to take back what was broken off. Default 5 s.
    pub cleaned_within: Duration,
    /// For so long it is waited, in all, for the store to complete an object, and looked whether it has where its answer was lost. Default 15 min:
    /// it takes some time for an object of thousands of parts, and so does syncing one.
    pub completed_within: Duration,
}

impl Settings {
    /// The defaults.
    pub fn new(cancelled: Cancelled) -> Self {
        Settings {
            cancelled,
            renewed_every: Duration::from_secs(15),
            free_after: Duration::from_secs(60),
            regained_within: Duration::from_secs(15 * 60),
            cleaned_within: Duration::from_secs(5),
            completed_within: Duration::from_secs(15 * 60),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Settings {
            cancelled: _,
            renewed_every,
            free_after,
            regained_within,
            cleaned_within,
            completed_within,
        } = self;
        f.debug_struct("Settings")
            .field("renewed_every", renewed_every)
            .field("free_after", free_after)
            .field("regained_within", regained_within)
            .field("cleaned_within", cleaned_within)
            .field("completed_within", completed_within)
            .finish_non_exhaustive()
    }
}

/// Whether a text is a URL, and no path: it begins with a scheme and `://`.
pub fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
            && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
    })
}

/// What the system calls the place of a `file://` URL; `None` for another one.
pub fn local_path(url: &str) -> Option<PathBuf> {
    let opened = stores::open(url).ok().filter(|opened| opened.store.is_none())?;
    Some(local::Local::real(&opened.path))
}

/// The disk that a URL is on, and what the place is called there: `file:///folder`, `s3://bucket/prefix`, `gs://bucket/prefix`,
/// `az://container/prefix`. Nothing is asked of the store yet; credentials come from the environment, under the names that each store's own
/// tools use.
///
/// # Errors
/// [`ErrorKind::Invalid`] where it is no such URL, or its store was not built in: then the message says by which feature it is.
pub fn open(url: &str, settings: Settings) -> Result<(Arc<dyn Disk>, PathBuf)> {
    let stores::Opened { store, base, path } =
        stores::open(url).map_err(|what| Error::new(ErrorKind::Invalid, "use", Path::new(url), what))?;
    let disk = match store {
        Some(store) => ObjectDisk::new(&base, store, settings)?,
        None => ObjectDisk::local(settings)?,
    };
    Ok((Arc::new(disk), path))
}
