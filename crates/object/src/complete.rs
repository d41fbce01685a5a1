//! Completing an object.
//!
//! It may take a store longer than a request may take, and an answer may be lost: then the request is repeated by the crate, and the store knows
//! nothing any more of an upload that it has completed. So no error says that it was not done, and what there is then says how it went. Nobody else writes an object of this name, which is
//! reserved, and a store shows none that is not whole: so it is the object if it is as long as that, and is not what has reserved its name.

use crate::disk::read_back;
use gannet_base::clock;
use object_store::path::Path as Key;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, Result};
use std::sync::Arc;
use std::time::Duration;

/// The pause before the second look whether it is there; each further one is twice as long, up to a limit.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MOST: Duration = Duration::from_secs(10);
/// For how long it is looked where the store has refused it: what was done before was done then, and is seen soon.
const REFUSED_WITHIN: Duration = Duration::from_secs(30);
/// How long one look may take.
const LOOK: Duration = Duration::from_secs(30);

/// What the store knows an upload by. It is in use as long as the object is being completed.
pub(crate) type Handle = Arc<tokio::sync::Mutex<Box<dyn MultipartUpload>>>;

/// See the module's head.
pub(crate) struct Completion {
    pub(crate) upload: Handle,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) key: Key,
    /// Bytes of the object.
    pub(crate) len: u64,
    pub(crate) placeholder: Vec<u8>,
    /// What has failed may have been done.
    pub(crate) loses_answers: bool,
    /// See [`crate::Settings::completed_within`].
    pub(crate) within: Duration,
}

/// Whether the store can be asked, and says that it does not do it.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
    )
}

impl Completion {
    /// How long it takes at most.
    pub(crate) fn limit(&self) -> Duration {
        self.within + 2 * LOOK
    }

    /// Completes the object; fails where it is not known to be there.
    pub(crate) async fn run(self) -> Result<()> {
        let begin = clock::now();
        let work = async { self.upload.lock().await.complete().await };
        let error = match tokio::time::timeout(self.within, work).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => Error::Generic { store: "object", source: "the store does not answer".into() },
        };
        if !self.loses_answers {
            return Err(error);
        }
        let within = if is_refusal(&error) { self.within.min(REFUSED_WITHIN) } else { self.within };
        let mut pause = PAUSE;
        loop {
            if let Ok(Ok(true)) = tokio::time::timeout(LOOK, self.is_there()).await {
                return Ok(());
            }
            // The store may be at it still, or cannot be asked.
            let left = within.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(error);
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (2 * pause).min(PAUSE_MOST);
        }
    }

    async fn is_there(&self) -> Result<bool> {
        let found = match self.store.head(&self.key).await {
            Err(Error::NotFound { .. }) => return Ok(false),
            found => found?,
        };
        if found.size != self.len {
            return Ok(false);
        }
        if found.size != self.placeholder.len() as u64 {
            return Ok(true);
        }
        let (bytes, _) = read_back(&*self.store, &self.key).await?;
        Ok(bytes != self.placeholder)
    }
}
