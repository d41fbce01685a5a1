//! A store that fails at a call of one's choice, or hangs.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    /// Every put is carried out, and nobody is told.
    loses_puts: AtomicBool,
    /// Every put is carried out, and does not come back.
    hangs_puts: AtomicBool,
    /// From this call on nothing is answered, and nothing done; 0 for none.
    hangs_from: AtomicU64,
    hang_parts: AtomicBool,
    hang_complete: AtomicBool,
    completes: Mutex<Completes>,
    gets: AtomicU64,
    parts: AtomicU64,
    aborted: AtomicU64,
}

/// What becomes of requests to complete an object.
#[allow(dead_code, reason = "each of the tests that share it uses some of it")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Completes {
    #[default]
    Answered,
    /// They are carried out; then the answer is lost, and the store does not know the upload when it is asked again.
    Lost,
    /// They time out, and are carried out when somebody has asked for the object so often.
    AfterGets(u64),
    /// They fail, and are not carried out.
    Refused,
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
        let fails = self.fails();
        let hangs_from = self.hangs_from.load(Ordering::Relaxed);
        if hangs_from != 0 && self.calls.load(Ordering::Relaxed) >= hangs_from {
            return std::future::pending().await;
        }
        if !fails {
            return work.await;
        }
        if self.after.load(Ordering::Relaxed) {
            // Whatever it was: the answer is lost.
            let _ = work.await;
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

    /// From now on every put is carried out, and its answer lost.
    pub(crate) fn lose_answers_of_puts(&self, loses: bool) {
        self.counts.loses_puts.store(loses, Ordering::Relaxed);
    }

    /// From the call of this number on the store does not answer; 0: it does.
    pub(crate) fn hang_from(&self, call: u64) {
        self.counts.calls.store(0, Ordering::Relaxed);
        self.counts.hangs_from.store(call, Ordering::Relaxed);
    }

    /// From now on there is no answer to whoever completes an object.
    pub(crate) fn hang_complete(&self) {
        self.counts.hang_complete.store(true, Ordering::Relaxed);
    }

    /// From now on this becomes of requests to complete an object.
    pub(crate) fn complete(&self, how: Completes) {
        *self.counts.completes.lock().unwrap() = how;
    }

    /// Calls since somebody has last planned something.
    pub(crate) fn calls(&self) -> u64 {
        self.counts.calls.load(Ordering::Relaxed)
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

    pub(crate) fn hang_puts_after_they_are_done(&self, hang: bool) {
        self.counts.hangs_puts.store(hang, Ordering::Relaxed);
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
        let put = self.counts.run(self.inner.put_opts(key, payload, options)).await;
        if self.counts.hangs_puts.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        if self.counts.loses_puts.load(Ordering::Relaxed) { Err(planned()) } else { put }
    }

    async fn put_multipart_opts(
        &self,
        key: &Key,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.counts.run(self.inner.put_multipart_opts(key, options)).await?;
        Ok(Box::new(FaultyUpload { inner: Some(upload), counts: Arc::clone(&self.counts) }))
    }

    async fn get_opts(&self, key: &Key, options: GetOptions) -> Result<GetResult> {
        self.counts.gets.fetch_add(1, Ordering::Relaxed);
        self.counts.run(self.inner.get_opts(key, options)).await
    }

    fn delete_stream(&self, keys: BoxStream<'static, Result<Key>>) -> BoxStream<'static, Result<Key>> {
        let (counts, inner) = (Arc::clone(&self.counts), Arc::clone(&self.inner));
        let work = async move {
            let deleting = async move { inner.delete_stream(keys).try_collect::<Vec<_>>().await };
            counts.run(deleting).await
        };
        let deleted = futures_util::stream::once(work);
        deleted.map_ok(|keys| futures_util::stream::iter(keys).map(Ok)).try_flatten().boxed()
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
    /// `None` when the store has forgotten it.
    inner: Option<Box<dyn MultipartUpload>>,
    counts: Arc<Counts>,
}

impl FaultyUpload {
    fn inner(&mut self) -> Result<&mut Box<dyn MultipartUpload>> {
        self.inner.as_mut().ok_or_else(forgotten)
    }
}

fn forgotten() -> object_store::Error {
    object_store::Error::NotFound { path: "an upload".to_owned(), source: "it is not known".into() }
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.counts.parts.fetch_add(1, Ordering::Relaxed);
        let counts = Arc::clone(&self.counts);
        let work = match self.inner() {
            Ok(inner) => inner.put_part(data),
            Err(error) => return Box::pin(async { Err(error) }),
        };
        Box::pin(async move {
            if counts.hang_parts.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            counts.run(work).await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if self.counts.hang_complete.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        let (counts, how) = (Arc::clone(&self.counts), *self.counts.completes.lock().unwrap());
        match how {
            Completes::Answered => counts.run(self.inner()?.complete()).await,
            Completes::Lost => {
                self.inner()?.complete().await?;
                self.inner = None;
                Err(forgotten())
            }
            Completes::AfterGets(gets) => {
                let (mut inner, end) =
                    (self.inner.take().ok_or_else(forgotten)?, counts.gets.load(Ordering::Relaxed) + gets);
                tokio::spawn(async move {
                    while counts.gets.load(Ordering::Relaxed) < end {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    inner.complete().await.unwrap();
                });
                Err(planned())
            }
            Completes::Refused => Err(planned()),
        }
    }

    async fn abort(&mut self) -> Result<()> {
        let hangs_from = self.counts.hangs_from.load(Ordering::Relaxed);
        if hangs_from != 0 && self.counts.calls.load(Ordering::Relaxed) >= hangs_from {
            return std::future::pending().await;
        }
        self.counts.aborted.fetch_add(1, Ordering::Relaxed);
        self.inner()?.abort().await
    }
}
