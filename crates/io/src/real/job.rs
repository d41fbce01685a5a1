//! A request inside a queue of the real disk.
#![expect(unsafe_code, reason = "runs requests on memory that their submitters vouch for")]

use crate::real::transfer::Transfer;
use crate::real::{RealFile, Settled};
use crate::{Completion, Error, ErrorKind, Request, Result};
use gannet_base::clock::{self, Instant};
use std::sync::Arc;

/// A request on its way, with whom to tell.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) transfer: Transfer,
    completion: Arc<dyn Completion>,
    submitted: Instant,
    dispatched: Instant,
    /// Requests at the device when this one left.
    depth: usize,
}

/// The file behind a request, when it belongs to a real disk.
pub(crate) fn file_of(request: &Request) -> Result<&RealFile> {
    request.file.as_any().downcast_ref::<RealFile>().ok_or_else(|| {
        let text = "the file was opened by another kind of disk than the queue";
        Error::new(ErrorKind::Invalid, "submit a request for", request.file.path(), text)
    })
}

impl Job {
    /// Checks a request. A refused or empty one has ended already: the token and the result to tell.
    pub(crate) fn new(
        request: Request,
        completion: &Arc<dyn Completion>,
        now: Instant,
    ) -> std::result::Result<Job, (u64, Result<()>)> {
        let checked = file_of(&request).and_then(|file| {
            let total = file.check(request.direction, request.offset, &request.slices)?;
            Ok((total > 0).then(|| Transfer::new(file, request.direction, request.offset, total)))
        });
        match checked {
            Ok(Some(transfer)) => Ok(Job {
                request,
                transfer,
                completion: Arc::clone(completion),
                submitted: now,
                dispatched: now,
                depth: 1,
            }),
            Ok(None) => Err((request.token, Ok(()))),
            Err(error) => Err((request.token, Err(error))),
        }
    }

    pub(crate) fn file(&self) -> &RealFile {
        file_of(&self.request).expect("checked when the job was made")
    }

    /// Counts the job and tells its owner.
    pub(crate) fn end(self, result: Result<()>, now: Instant) {
        let done = Settled {
            class: self.request.class,
            direction: self.request.direction,
            bytes: self.transfer.total(),
            submitted: self.submitted,
            dispatched: self.dispatched,
            depth: self.depth,
        };
        self.file().settle(&done, now, result.is_ok());
        let Job { request, completion, .. } = self;
        let token = request.token;
        // The file goes before its owner is told, who may want to be the only one left to hold it.
        drop(request);
        completion.complete(token, result);
    }

    /// Runs the job in the calling thread; `uncount` is called before its owner hears of it.
    ///
    /// # Safety
    /// The memory of the request must be as [`crate::Queue::submit`] asks.
    pub(crate) unsafe fn run_here<T>(mut self, uncount: impl FnOnce() -> T) {
        let Job { request, transfer, .. } = &mut self;
        let file = file_of(request).expect("checked when the job was made");
        // SAFETY: promised by the caller.
        let result = unsafe { file.run(transfer, &request.slices) };
        uncount();
        self.end(result, clock::now());
    }

    /// Marks the job as leaving for the device.
    pub(crate) fn dispatch(&mut self, depth: usize, now: Instant) {
        self.dispatched = now;
        self.depth = depth;
    }
}
