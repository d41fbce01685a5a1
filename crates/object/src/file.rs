//! Files: objects that are read, and such as are being written.

use crate::disk::{Shared, not_of_objects};
use crate::local::Local;
use crate::upload::Upload;
use gannet_base::clock;
use gannet_io::stats::Operation;
use gannet_io::{
    AtomicWrites, Class, Durability, Error, ErrorKind, File, Mode, ModeReport, ModeRequest, Passing, Result,
    SECTOR,
};
use object_store::path::Path as Key;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt};
use std::any::Any;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An object.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    pub(crate) path: PathBuf,
    shared: Arc<Shared>,
    report: ModeReport,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Read(Object),
    Upload(Upload),
}

/// One that is complete, as it was when it was opened.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    key: Key,
    len: u64,
    /// What the store calls these very bytes.
    e_tag: Option<String>,
    /// On the local file system: the OS is to forget what was read.
    passing: Option<Arc<Passing>>,
}

impl Object {
    /// Bytes of it. One that was replaced since gives an error.
    pub(crate) async fn get(
        self,
        store: &dyn ObjectStore,
        range: Range<u64>,
    ) -> object_store::Result<Vec<u8>> {
        let wanted = range.end - range.start;
        let options = GetOptions::new().with_range(Some(range.clone())).with_if_match(self.e_tag);
        let bytes = store.get_opts(&self.key, options).await?.bytes().await?;
        if let Some(passing) = &self.passing {
            passing.forget_read(&range);
        }
        if bytes.len() as u64 != wanted {
            let what = format!("{} bytes came instead of {wanted}", bytes.len());
            return Err(object_store::Error::Generic { store: "object", source: what.into() });
        }
        Ok(bytes.into())
    }
}

impl ObjectFile {
    pub(crate) fn open(shared: &Arc<Shared>, path: &Path, requested: ModeRequest) -> Result<Self> {
        let key = shared.key("open", path)?;
        let (store, asked) = (Arc::clone(&shared.store), key.clone());
        let meta = shared.run("open", path, async move { store.head(&asked).await })?;
        let passing = shared.local.as_ref().and_then(|_| Local::passing(path)).map(Arc::new);
        let object = Object { key, len: meta.size, e_tag: meta.e_tag, passing };
        Ok(Self::new(shared, path, requested, Kind::Read(object)))
    }

    pub(crate) fn upload(shared: &Arc<Shared>, path: &Path, requested: ModeRequest, upload: Upload) -> Self {
        Self::new(shared, path, requested, Kind::Upload(upload))
    }

    fn new(shared: &Arc<Shared>, path: &Path, requested: ModeRequest, kind: Kind) -> Self {
        let reason = match &shared.local {
            Some(_) => "by way of a URL; the OS is told to forget what was read or written",
            None => "an object store does as it likes",
        };
        let reason = reason.to_owned();
        let report = ModeReport { requested, effective: Mode::Buffered, reason };
        ObjectFile { path: path.to_owned(), shared: Arc::clone(shared), report, kind }
    }

    /// What is to be got for a read.
    pub(crate) fn object(&self, offset: u64, len: usize) -> Result<(Object, Range<u64>)> {
        let Kind::Read(object) = &self.kind else { return Err(not_of_objects("read", &self.path)) };
        let end = offset.saturating_add(len as u64);
        if end > object.len {
            let what = format!("{len} bytes at offset {offset}, and it has {}", object.len);
            return Err(Error::new(ErrorKind::ShortRead, "read", &self.path, what));
        }
        Ok((object.clone(), offset..end))
    }

    /// The files that are behind it on the local file system.
    fn passing(&self) -> impl Iterator<Item = &Passing> {
        let (read, written) = match &self.kind {
            Kind::Read(object) => (object.passing.as_deref(), &[][..]),
            Kind::Upload(upload) => (None, upload.passing()),
        };
        read.into_iter().chain(written)
    }

    fn being_written(&self, operation: &'static str) -> Result<&Upload> {
        match &self.kind {
            Kind::Upload(upload) => Ok(upload),
            Kind::Read(_) => Err(not_of_objects(operation, &self.path)),
        }
    }
}

impl File for ObjectFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn mode(&self) -> &ModeReport {
        &self.report
    }

    fn alignment(&self) -> usize {
        SECTOR
    }

    fn read_at(&self, class: Class, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let (object, range) = self.object(offset, buffer.len())?;
        let (store, begin) = (Arc::clone(&self.shared.store), clock::now());
        let got = self.shared.run("read", &self.path, async move { object.get(&*store, range).await });
        let len = buffer.len() as u64;
        self.shared.stats.record(class, Operation::Read, len, begin.elapsed(), got.is_ok());
        buffer.copy_from_slice(&got?);
        Ok(())
    }

    fn write_at(&self, class: Class, offset: u64, buffer: &[u8], _durability: Durability) -> Result<()> {
        let begin = clock::now();
        let written = self.being_written("write")?.write(&self.shared, offset, buffer);
        let len = buffer.len() as u64;
        self.shared.stats.record(class, Operation::Write, len, begin.elapsed(), written.is_ok());
        written
    }

    /// Completes the object: from here on it is there, and is written no more.
    fn sync(&self, class: Class) -> Result<()> {
        let begin = clock::now();
        let synced = self.being_written("complete")?.finish(&self.shared);
        self.shared.stats.record(class, Operation::Sync, 0, begin.elapsed(), synced.is_ok());
        synced
    }

    fn allocate(&self, _offset: u64, _len: u64) -> Result<()> {
        Err(not_of_objects("allocate", &self.path))
    }

    fn expect(&self, len: u64, memory: u64, spare: u64) -> u64 {
        match &self.kind {
            Kind::Upload(upload) => upload.expect(len, memory, spare),
            Kind::Read(_) => 0,
        }
    }

    fn has_room(&self, end: u64, limit: Duration) -> bool {
        match &self.kind {
            Kind::Upload(upload) => upload.has_room(&self.shared, end, limit),
            Kind::Read(_) => true,
        }
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        Err(not_of_objects("resize", &self.path))
    }

    fn len(&self) -> Result<u64> {
        Ok(match &self.kind {
            Kind::Read(object) => object.len,
            Kind::Upload(upload) => upload.len(),
        })
    }

    fn has_a_name(&self) -> Result<bool> {
        // An object is there, or it is nothing yet.
        Ok(matches!(self.kind, Kind::Read(_)))
    }

    fn is_poisoned(&self) -> bool {
        matches!(&self.kind, Kind::Upload(upload) if upload.has_failed())
    }

    /// Whoever writes an object has reserved its name.
    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        self.being_written("lock").map(|_| Box::new(()) as _)
    }

    fn atomic_writes(&self) -> AtomicWrites {
        AtomicWrites::NONE
    }

    fn cached_bytes(&self) -> Option<u64> {
        let mut files = self.passing().peekable();
        files.peek()?;
        files.map(Passing::cached_bytes).sum()
    }

    fn drop_cache(&self) {
        self.passing().for_each(Passing::forget);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for ObjectFile {
    fn drop(&mut self) {
        if let Kind::Upload(upload) = &self.kind {
            upload.give_up(&self.shared);
        }
        // With what was read ahead.
        self.drop_cache();
    }
}
