//! A queue of requests, each of them a task of the runtime's thread.
//!
//! # Invariants
//! 1. Each request ends with exactly one call of its completion, also where its task is dropped.
//! 2. The runtime lives as long as the queue, and so longer than any request that somebody waits for.
#![expect(unsafe_code, reason = "puts what was read where the submitters of requests say")]

use crate::disk::{Shared, given_up};
use crate::error::of_store;
use crate::file::ObjectFile;
use crate::runtime::{LOOK_EVERY, unless_cancelled};
use gannet_base::clock;
use gannet_base::sync::{Condvar, Mutex};
use gannet_io::stats::Operation;
use gannet_io::{Completion, Direction, Durability, Error, ErrorKind, IoSlice, Queue, Request, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct ObjectQueue {
    shared: Arc<Shared>,
    ended: Arc<Ended>,
    /// As many are under way at one time.
    depth: Arc<Semaphore>,
}

/// Tells that a request has ended.
#[derive(Debug, Default)]
struct Ended {
    in_flight: AtomicUsize,
    waiting: Mutex<()>,
    told: Condvar,
}

/// A request that has not ended yet.
struct Open {
    completion: Arc<dyn Completion>,
    token: u64,
    ended: Arc<Ended>,
    result: Result<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.completion.complete(self.token, std::mem::replace(&mut self.result, Ok(())));
        self.ended.in_flight.fetch_sub(1, Ordering::AcqRel);
        // Whoever has looked, and is about to wait, holds the lock.
        drop(self.ended.waiting.lock());
        self.ended.told.notify_all();
    }
}

impl ObjectQueue {
    pub(crate) fn new(shared: &Arc<Shared>, depth: usize) -> Self {
        let depth = Arc::new(Semaphore::new(depth.max(1)));
        ObjectQueue { shared: Arc::clone(shared), ended: Arc::default(), depth }
    }

    /// Begins to read.
    fn read(&self, request: Request, mut open: Open) {
        let Some(file) = request.file.as_any().downcast_ref::<ObjectFile>() else {
            open.result = Err(foreign(request.file.path()));
            return;
        };
        let (object, range) = match file.object(request.offset, request.len()) {
            Ok(wanted) => wanted,
            Err(error) => {
                open.result = Err(error);
                return;
            }
        };
        let (store, depth) = (Arc::clone(&self.shared.store), Arc::clone(&self.depth));
        let (cancelled, path) = (Arc::clone(&self.shared.settings.cancelled), file.path.clone());
        let (slices, stats, begin) = (request.slices, Arc::clone(&self.shared.stats), clock::now());
        let (class, len) = (request.class, range.end - range.start);
        self.shared.runtime.spawn(async move {
            let _place = depth.acquire().await;
            let got = unless_cancelled(&cancelled, object.get(&*store, range)).await;
            open.result = match got {
                Ok(Ok(bytes)) => {
                    // SAFETY: of these slices the submitter vouches until `open` ends, that they are valid and nobody else's; their
                    // lengths together are what was asked for, which `bytes` has exactly.
                    unsafe { scatter(&bytes, &slices) };
                    Ok(())
                }
                Ok(Err(error)) => Err(of_store("read", &path, &error)),
                Err(ended) => Err(given_up(ended, "read", &path)),
            };
            stats.record(class, Operation::Read, len, begin.elapsed(), open.result.is_ok());
            drop(open);
        });
    }
}

fn foreign(path: &Path) -> Error {
    Error::new(ErrorKind::Invalid, "use", path, "it is a file of another disk than the queue")
}

/// Copies bytes to where they belong.
///
/// # Safety
/// The slices are valid for writes, and nobody else uses them; they are as long as `bytes`.
unsafe fn scatter(bytes: &[u8], slices: &[IoSlice]) {
    let mut rest = bytes;
    for slice in slices {
        let (now, later) = rest.split_at(slice.len);
        // SAFETY: as the caller vouches; what was just allocated does not overlap with them.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), slice.address, slice.len) };
        rest = later;
    }
}

impl Queue for ObjectQueue {
    unsafe fn submit(&self, requests: Vec<Request>, completion: &Arc<dyn Completion>) {
        for request in requests {
            self.ended.in_flight.fetch_add(1, Ordering::AcqRel);
            let mut open = Open {
                completion: Arc::clone(completion),
                token: request.token,
                ended: Arc::clone(&self.ended),
                result: Err(given_up(crate::runtime::Ended::Overdue, "use", request.file.path())),
            };
            match request.direction {
                Direction::Read => self.read(request, open),
                Direction::Write(_) | Direction::WriteAtomic(_) => {
                    // Where it waits, it does so for room in memory.
                    open.result = write(&request);
                }
            }
        }
    }

    fn wait_until(&self, done: &mut dyn FnMut() -> bool) {
        let mut waiting = self.ended.waiting.lock();
        while !done() {
            self.ended.told.wait_for(&mut waiting, LOOK_EVERY);
        }
    }

    fn poll(&self) {}

    fn in_flight(&self) -> usize {
        self.ended.in_flight.load(Ordering::Acquire)
    }
}

fn write(request: &Request) -> Result<()> {
    let mut offset = request.offset;
    for slice in &request.slices {
        // SAFETY: of the slice the submitter vouches that it is valid and not written to until the request ends.
        let bytes = unsafe { std::slice::from_raw_parts(slice.address, slice.len) };
        request.file.write_at(request.class, offset, bytes, Durability::Cached)?;
        offset += slice.len as u64;
    }
    Ok(())
}
