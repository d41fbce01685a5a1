//! The disk. See the head of the crate for what it guarantees.

use crate::error::{cancelled, of_store, words};
use crate::file::ObjectFile;
use crate::lease::{Lease, Standings};
use crate::local::{self, Local};
use crate::queue::ObjectQueue;
use crate::runtime::{Ended, LOOK_EVERY, Runtime};
use crate::upload::Upload;
use crate::{Settings, lease};
use gannet_base::clock::{self, Instant};
use gannet_base::sync::Mutex;
use gannet_io::stats::Stats;
use gannet_io::{Disk, Error, ErrorKind, File, ModeRequest, OpenOptions, Passing, Queue, Result};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use std::any::Any;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often an object is put or deleted where the answer may have been lost, and the pause before that is done again; before each further time it is
/// longer by as much.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);
/// How long it is tried to take back something that was broken off.
const CLEANED_WITHIN: Duration = Duration::from_secs(15);
/// The same where somebody has given up and waits for that: of the time for everything together, one thing gets this fraction at most.
const ONE_OF_CLEANED: u32 = 2;

/// A store as a disk. Names of files begin with the store's URL; what is behind that is the object's key.
#[derive(Debug)]
pub struct ObjectDisk(Arc<Shared>);

/// What a disk shares with its files, queues and locks.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) runtime: Runtime,
    pub(crate) settings: Settings,
    pub(crate) stats: Arc<Stats>,
    pub(crate) local: Option<Local>,
    base: String,
    /// How locks stand that were taken here: where one is not held, nothing is done.
    pub(crate) standings: Arc<Standings>,
    /// Since when everything is being taken back, as somebody has given up.
    cleaned_since: Mutex<Option<Instant>>,
    /// What could not be taken back, for [`Disk::take_left`].
    left: Mutex<Vec<String>>,
}

impl Shared {
    /// The object's key.
    pub(crate) fn key(&self, operation: &'static str, path: &Path) -> Result<Key> {
        let invalid = |what: String| Error::new(ErrorKind::Invalid, operation, path, what);
        let rest = path.to_str().and_then(|text| text.strip_prefix(&self.base));
        let rest = rest.ok_or_else(|| invalid(format!("it is not on {}", self.base)))?;
        Key::parse(rest).map_err(|error| invalid(words(&error)))
    }

    /// Runs an operation of the store, and waits for it.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        path: &Path,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.check_lock(operation, path)?;
        match self.runtime.run(&self.settings.cancelled, work) {
            Ok(done) => done.map_err(|error| of_store(operation, path, &error)),
            Err(ended) => Err(given_up(ended, operation, path)),
        }
    }

    /// Takes something back that was broken off, called so, also for whoever has given up; but not for long. What is not there any more
    /// is as good.
    pub(crate) fn take_back(
        &self,
        operation: &'static str,
        path: &Path,
        what: impl FnOnce() -> String,
        work: impl Future<Output = object_store::Result<()>> + Send + 'static,
    ) -> Result<()> {
        self.try_take_back(operation, path, work).inspect_err(|_| self.note_left(what()))
    }

    /// Notes that something could not be taken back, once.
    fn note_left(&self, what: String) {
        let mut left = self.left.lock();
        if !left.contains(&what) {
            left.push(what);
        }
    }

    /// The same for what somebody else sees to where it fails.
    pub(crate) fn try_take_back(
        &self,
        operation: &'static str,
        path: &Path,
        work: impl Future<Output = object_store::Result<()>> + Send + 'static,
    ) -> Result<()> {
        // Whoever gives up while this is under way does not wait for longer than one who has done so before.
        let patience: (&dyn Fn() -> bool, _) = (&|| self.has_given_up(), self.one_cleaned_within());
        match self.runtime.run_to_end(self.cleaning_time(), patience, work) {
            Ok(Err(object_store::Error::NotFound { .. })) => Ok(()),
            Ok(done) => done.map_err(|error| of_store(operation, path, &error)),
            Err(ended) => Err(given_up(ended, operation, path)),
        }
    }

    /// Whether somebody has given up; from when on there is little time to take back what was broken off.
    fn has_given_up(&self) -> bool {
        let has = (self.settings.cancelled)();
        if has {
            self.cleaned_since.lock().get_or_insert_with(clock::now);
        }
        has
    }

    /// How long something may take that is taken back now.
    fn cleaning_time(&self) -> Duration {
        if !self.has_given_up() {
            return CLEANED_WITHIN;
        }
        let since = self.cleaned_since.lock().map_or(Duration::ZERO, |since| since.elapsed());
        self.settings.cleaned_within.saturating_sub(since).min(self.one_cleaned_within())
    }

    fn one_cleaned_within(&self) -> Duration {
        self.settings.cleaned_within / ONE_OF_CLEANED
    }

    /// Takes back an object whose making has failed, if it was given up: it may have been made all the same. One that says of itself that it is another's
    /// stays.
    pub(crate) fn forget_own(
        &self,
        operation: &'static str,
        path: &Path,
        is_own: impl Fn(&[u8]) -> bool + Send + 'static,
    ) {
        let Ok(key) = self.key(operation, path) else { return };
        if self.has_given_up() {
            let store = Arc::clone(&self.store);
            let work = async move { delete_own(&*store, &key, is_own).await };
            let _ = self.take_back(operation, path, || path.display().to_string(), work);
        }
    }

    /// Fails where a lock was lost. Where one could not be renewed in time it is waited until that is known.
    pub(crate) fn check_lock(&self, operation: &'static str, path: &Path) -> Result<()> {
        while !self.check_not_lost(operation, path)? {
            if self.has_given_up() {
                return Err(cancelled(operation, path));
            }
            clock::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Fails where a lock was lost; false where it is not known whether it is held.
    pub(crate) fn check_not_lost(&self, operation: &'static str, path: &Path) -> Result<bool> {
        self.standings.are_held().map_err(|why| {
            Error::new(ErrorKind::Locked, operation, path, format!("the lock was lost: {why}"))
        })
    }

    /// Makes an object with these bytes, if there is none.
    pub(crate) fn create(&self, operation: &'static str, path: &Path, bytes: Vec<u8>) -> Result<()> {
        let (store, key) = (Arc::clone(&self.store), self.key(operation, path)?);
        self.run(operation, path, async move { put_own(&*store, &key, bytes, PutMode::Create).await })?;
        let Some(local) = &self.local else { return Ok(()) };
        local.seal(path)?;
        Local::passing(path).inspect(Passing::forget);
        Ok(())
    }
}

pub(crate) fn given_up(ended: Ended, operation: &'static str, path: &Path) -> Error {
    match ended {
        Ended::Cancelled => cancelled(operation, path),
        Ended::Overdue => Error::new(ErrorKind::Device, operation, path, "the store does not answer"),
    }
}

/// Puts an object on a condition. An answer may be lost, and then the request is repeated, and meets what it has done itself: that is
/// recognised by its bytes, which therefore nobody else writes. (The crate repeats no request of which it does not know whether it was
/// carried out.)
pub(crate) async fn put_own(
    store: &dyn ObjectStore,
    key: &Key,
    bytes: Vec<u8>,
    mode: PutMode,
) -> object_store::Result<UpdateVersion> {
    use object_store::Error as E;
    let mut attempt = 1;
    loop {
        let error = match store.put_opts(key, bytes.clone().into(), mode.clone().into()).await {
            Ok(put) => return Ok(UpdateVersion { e_tag: put.e_tag, version: put.version }),
            Err(error) => error,
        };
        if let Ok((there, version)) = read_back(store, key).await
            && there == bytes
        {
            return Ok(version);
        }
        if attempt == ATTEMPTS || !matches!(error, E::Generic { .. }) {
            return Err(error);
        }
        tokio::time::sleep(PAUSE * attempt).await;
        attempt += 1;
    }
}

/// Deletes an object of a name that nobody else uses. Where an answer was lost it is done again, and there may be none any more. (As above: the crate does not repeat it.)
pub(crate) async fn delete(store: &dyn ObjectStore, key: &Key) -> object_store::Result<()> {
    use object_store::Error as E;
    let mut attempt = 1;
    loop {
        match store.delete(key).await {
            Err(E::NotFound { .. }) if attempt > 1 => return Ok(()),
            Err(E::Generic { .. }) if attempt < ATTEMPTS => {}
            deleted => return deleted,
        }
        tokio::time::sleep(PAUSE * attempt).await;
        attempt += 1;
    }
}

/// Deletes an object, if what stands in it says that it is one's own. Before it is done again, too: what was deleted may be another one's by then.
pub(crate) async fn delete_own(
    store: &dyn ObjectStore,
    key: &Key,
    is_own: impl Fn(&[u8]) -> bool,
) -> object_store::Result<()> {
    use object_store::Error as E;
    let mut attempt = 1;
    loop {
        let there = match read_back(store, key).await {
            Err(E::NotFound { .. }) if attempt > 1 => return Ok(()),
            there => there?.0,
        };
        if !is_own(&there) {
            return Ok(());
        }
        match store.delete(key).await {
            Err(E::Generic { .. }) if attempt < ATTEMPTS => {}
            deleted => return deleted,
        }
        tokio::time::sleep(PAUSE * attempt).await;
        attempt += 1;
    }
}

/// What an object holds, and its version.
pub(crate) async fn read_back(
    store: &dyn ObjectStore,
    key: &Key,
) -> object_store::Result<(Vec<u8>, UpdateVersion)> {
    let found = store.get_opts(key, GetOptions::default()).await?;
    let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
    Ok((found.bytes().await?.to_vec(), version))
}

impl ObjectDisk {
    /// A store, the names of whose files begin with `base`, such as `s3://bucket`.
    pub fn new(base: &str, store: Arc<dyn ObjectStore>, settings: Settings) -> Result<Self> {
        Self::with(base, store, None, settings)
    }

    /// The file system of this machine; names of files begin with `file://`.
    pub fn local(settings: Settings) -> Result<Self> {
        let store = Arc::new(LocalFileSystem::new().with_fsync(true));
        Self::with(local::BASE, store, Some(Local::default()), settings)
    }

    fn with(
        base: &str,
        store: Arc<dyn ObjectStore>,
        local: Option<Local>,
        settings: Settings,
    ) -> Result<Self> {
        let runtime =
            Runtime::new().map_err(|error| Error::from_os("use", Path::new(base), "no runtime", error))?;
        Ok(ObjectDisk(Arc::new(Shared {
            store,
            runtime,
            settings,
            stats: Arc::default(),
            local,
            base: base.to_owned(),
            standings: Arc::default(),
            cleaned_since: Mutex::default(),
            left: Mutex::default(),
        })))
    }
}

/// The error of what objects cannot do.
pub(crate) fn not_of_objects(operation: &'static str, path: &Path) -> Error {
    let what = "objects are written once, and never changed";
    Error::new(ErrorKind::Invalid, operation, path, what)
}

impl Disk for ObjectDisk {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn File>> {
        if !options.write {
            return Ok(Arc::new(ObjectFile::open(&self.0, path, options.mode)?));
        }
        if !options.create_new {
            return Err(not_of_objects("open for changes", path));
        }
        if let (Some(local), Some(folder)) = (&self.0.local, path.parent()) {
            local.check_folder(folder)?;
        }
        let upload = Upload::begin(&self.0, path)?;
        Ok(Arc::new(ObjectFile::upload(&self.0, path, options.mode, upload)))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let (store, key) = (Arc::clone(&self.0.store), self.0.key("look for", path)?);
        match self.0.run("look for", path, async move { store.head(&key).await }) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        if let Some(local) = &self.0.local {
            local.check_folder(folder)?;
        }
        let (store, key) = (Arc::clone(&self.0.store), self.0.key("list", folder)?);
        let listed = self.0.run("list", folder, async move { store.list_with_delimiter(Some(&key)).await });
        let objects = listed.map_err(|error| match error.kind() {
            // Of a prefix that nothing has, nothing is listed.
            ErrorKind::NotFound => {
                let what = format!(
                    "there is no such bucket: make it first, or look at its name. {}",
                    error.detail()
                );
                Error::new(ErrorKind::Device, "list", folder, what)
            }
            _ => error,
        })?;
        let names = objects.objects.iter().filter_map(|found| found.location.filename());
        Ok(names.map(str::to_owned).collect())
    }

    /// There are no folders, but as parts of names.
    fn create_dir(&self, _folder: &Path) -> Result<()> {
        Ok(())
    }

    fn remove_dir(&self, _folder: &Path) -> Result<()> {
        Ok(())
    }

    /// Also for whoever has given up, and then for some seconds only: it takes back what was broken off.
    fn remove(&self, path: &Path) -> Result<()> {
        self.0.check_lock("remove", path)?;
        if let Some(local) = &self.0.local {
            local.remove_staged(path)?;
        }
        let (store, key) = (Arc::clone(&self.0.store), self.0.key("remove", path)?);
        let work = || {
            let (store, key) = (Arc::clone(&store), key.clone());
            async move { delete(&*store, &key).await }
        };
        if !(self.0.settings.cancelled)() {
            let removed = self.0.run("remove", path, work());
            if removed.is_ok() || !(self.0.settings.cancelled)() {
                return removed;
            }
        }
        self.0.take_back("remove", path, || path.display().to_string(), work())
    }

    fn rename(&self, from: &Path, _to: &Path) -> Result<()> {
        Err(not_of_objects("rename", from))
    }

    /// What was acknowledged is durable, but for what was removed from the local file system.
    fn sync_dir(&self, folder: &Path) -> Result<()> {
        self.0.local.as_ref().map_or(Ok(()), |local| local.sync_dir(folder))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        match &self.0.local {
            Some(local) => local.lock(path),
            None => Ok(Box::new(Lease::take(&self.0, path, lease::who())?)),
        }
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn free_bytes(&self, folder: &Path) -> Result<Option<u64>> {
        self.0.local.as_ref().map_or(Ok(None), |local| local.free_bytes(folder))
    }

    fn holds_objects(&self) -> bool {
        true
    }

    fn publish(&self, path: &Path, bytes: &[u8], _mode: ModeRequest) -> Result<()> {
        self.0.create("publish", path, bytes.to_vec())
    }

    fn leave(&self, path: &Path) {
        self.0.note_left(path.display().to_string());
    }

    fn is_in_doubt(&self) -> bool {
        self.0.standings.are_held() == Ok(false)
    }

    fn take_left(&self) -> Vec<String> {
        std::mem::take(&mut self.0.left.lock())
    }

    fn queue(&self, depth: usize) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(ObjectQueue::new(&self.0, depth)))
    }

    fn stats(&self) -> &Stats {
        &self.0.stats
    }
}
