#![expect(unsafe_code, reason = "a queue works on memory whose lifetime only its callers know")]

use crate::{Completion, Request};
use std::fmt;
use std::sync::Arc;

/// Requests in flight. Shared by any number of threads.
///
/// Whoever waits also reaps: a thread in [`Queue::wait_until`] runs the completions of every request that ends, also
/// of those other threads submitted. So nobody depends on the submitter coming back.
pub trait Queue: Send + Sync + fmt::Debug {
    /// Hands over requests. They may reach the device at once or later, in any order, as the in-flight caps of their
    /// classes allow; this call does not wait for the device (it may wait for room in the submission queue), but for durable
    /// writes through the OS cache: they are made one at a time, and may be made here.
    /// Each request ends with exactly one call of `completion.complete(request.token, result)`, from this call or any
    /// later call of any thread on this queue, or from a thread of the backend. Completions must be short and must
    /// not call into the queue.
    ///
    /// # Safety
    /// Until a request's completion is called, the memory its slices point to must stay valid, and must not be read
    /// (for reads) or written (for both) by anybody else.
    unsafe fn submit(&self, requests: Vec<Request>, completion: &Arc<dyn Completion>);

    /// Runs completions until `done` says true. `done` must be made true by completions, by this or another thread.
    fn wait_until(&self, done: &mut dyn FnMut() -> bool);

    /// Runs the completions of requests that have ended, without waiting.
    fn poll(&self);

    /// Requests submitted and not completed.
    fn in_flight(&self) -> usize;
}
