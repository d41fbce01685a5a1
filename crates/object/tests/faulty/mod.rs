//! A store that fails at a call of one's choice, or hangs.

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts calls, and fails one of them, and all after it where it is said so.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn ObjectStore>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    /// The call that fails; 0 for none.
    fails: AtomicU64,
    /// All after it, too.
    stays_down: AtomicBool,
    /// The answer is lost, not the request.
    after: AtomicBool,
    failed: AtomicU64,
    hang_parts: AtomicBool,
    parts: AtomicU64,
    aborted: AtomicU64,
}

impl Counts {
    /// Whether this call fails.
    fn fails(&self) -> bool {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let at = self.fails.load(Ordering::Relaxed);
        let fails = at != 0 && (call == at || (call > at && self.stays_down.load(Ordering::Relaxed)));
        self.failed.fetch_add(u64::from(fails), Ordering::Relaxed);
        fails
    }

    async fn run<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        if !self.fails() {
            return work.await;
        }
        if self.after.load(Ordering::Relaxed) {
            work.await?;
        }
        Err(planned())
    }
}

fn planned() -> object_store::Error {
    object_store::Error::Generic { store: "faulty", source: "a planned failure".into() }
}

#[allow(dead_code, reason = "each of the tests that share it uses some of it")]
impl Faulty {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Faulty { inner, counts: Arc::default() }
    }

    /// From now on the call of this number fails.
    pub(crate) fn fail_at(&self, call: u64, stays_down: bool, after: bool) {
        self.counts.calls.store(0, Ordering::Relaxed);
        self.counts.failed.store(0, Ordering::Relaxed);
        self.counts.stays_down.store(stays_down, Ordering::Relaxed);
        self.counts.after.store(after, Ordering::Relaxed);
        self.counts.fails.store(call, Ordering::Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.counts.failed.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn hang_parts(&self) {
        self.counts.hang_parts.store(true, Ordering::Relaxed);
    }

    pub(crate) fn parts(&self) -> u64 {
        self.counts.parts.load(Ordering::Relaxed)
    }

    pub(crate) fn aborted(&self) -> u64 {
        self.counts.aborted.load(Ordering::Relaxed)
    }

    /// All keys.
    pub(crate) fn names(&self) -> Vec<String> {
        let all = self.inner.list(None).map(|found| found.unwrap().location.to_string());
        block_on(all.collect())
    }

    pub(crate) fn overwrite(&self, key: &str, bytes: &[u8]) {
        block_on(self.inner.put(&Key::from(key), bytes.to_vec().into())).unwrap();
    }

    pub(crate) fn read(&self, key: &str) -> Vec<u8> {
        block_on(async { self.inner.get(&Key::from(key)).await.unwrap().bytes().await.unwrap().to_vec() })
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a faulty store")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, key: &Key, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.counts.run(self.inner.put_opts(key, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        key: &Key,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.counts.run(self.inner.put_multipart_opts(key, options)).await?;
        Ok(Box::new(FaultyUpload { inner: upload, counts: Arc::clone(&self.counts) }))
    }

    async fn get_opts(&self, key: &Key, options: GetOptions) -> Result<GetResult> {
        self.counts.run(self.inner.get_opts(key, options)).await
    }

    fn delete_stream(&self, keys: BoxStream<'static, Result<Key>>) -> BoxStream<'static, Result<Key>> {
        if self.counts.fails() && !self.counts.after.load(Ordering::Relaxed) {
            return futures_util::stream::once(async { Err(planned()) }).boxed();
        }
        self.inner.delete_stream(keys)
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        self.counts.run(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    counts: Arc<Counts>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.counts.parts.fetch_add(1, Ordering::Relaxed);
        let (work, counts) = (self.inner.put_part(data), Arc::clone(&self.counts));
        Box::pin(async move {
            if counts.hang_parts.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            counts.run(work).await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.counts.run(self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.counts.aborted.fetch_add(1, Ordering::Relaxed);
        self.inner.abort().await
    }
}
