//! Requests that are submitted together and waited for.

use crate::Result;
use gannet_base::sync::Mutex;
use gannet_io::{AlignedBuffer, Completion, Queue, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts a batch's completions and keeps its first error.
#[derive(Debug, Default)]
struct Batch {
    left: AtomicUsize,
    error: Mutex<Option<gannet_io::Error>>,
}

impl Completion for Batch {
    fn complete(&self, _token: u64, result: gannet_io::Result<()>) {
        if let Err(error) = result {
            self.error.lock().get_or_insert(error);
        }
        self.left.fetch_sub(1, Ordering::Release);
    }
}

/// Submits requests on `bytes` and waits for all of them; the first error counts.
#[expect(unsafe_code, reason = "hands a buffer to the device")]
pub(crate) fn submit_and_wait(
    queue: &dyn Queue,
    requests: Vec<Request>,
    bytes: &mut AlignedBuffer,
) -> Result<()> {
    let batch = Arc::new(Batch { left: AtomicUsize::new(requests.len()), error: Mutex::default() });
    let completion: Arc<dyn Completion> = Arc::clone(&batch) as _;
    // SAFETY: the slices lie in `bytes`, which this function borrows exclusively until every request has completed.
    unsafe { queue.submit(requests, &completion) };
    queue.wait_until(&mut || batch.left.load(Ordering::Acquire) == 0);
    let _ = bytes;
    match batch.error.lock().take() {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}
