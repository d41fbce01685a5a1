//! A disk that behaves like a slower, wider or narrower one.
//!
//! Every request is carried out by the disk underneath at once and told to have ended when the modelled device would
//! have ended it: see [`Model`]. Queues schedule classes exactly as the real ones do, against the modelled device.
//!
//! # Invariants
//! 1. A request's end is not told before its due time, nor before the disk underneath has ended it.
//! 2. No thread is kept for the delays: who waits sleeps until the next due time (see [`crate::reaping`] for who
//!    that is), and is woken earlier when something due sooner is submitted.
#![expect(unsafe_code, reason = "passes on requests on memory that their submitters vouch for")]

use crate::admission::{PREFETCH_DEPTH_DEFAULT, Scheduler, Shared};
use crate::real::Settled;
use crate::reaping::Reaping;
use crate::stats::Operation;
use crate::{
    AtomicWrites, BackendReport, Calibration, Class, Completion, Direction, Disk, Durability, Error,
    ErrorKind, File, ModeReport,
};
use crate::{OpenOptions, Queue, Request, Result, stats};
use gannet_base::clock::{self, Instant};
use gannet_base::random;
use gannet_base::sync::{Condvar, Mutex};
use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fmt, mem};

/// How a modelled device behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Shortest time of a request.
    pub latency_min: Duration,
    /// Longest time of a request; the time is evenly distributed in between.
    pub latency_max: Duration,
    /// Requests worked on at one time; at least 1.
    pub width: usize,
    /// Bytes read in a second; at least 1.
    pub read_bytes_per_second: u64,
    /// Bytes written in a second; at least 1.
    pub write_bytes_per_second: u64,
    /// Time of a sync, and what a durable write takes longer.
    pub sync_latency: Duration,
}

impl Profile {
    /// Names that [`Profile::named`] knows.
    pub const NAMES: [&'static str; 2] = ["slow-wide", "raid10"];

    /// A profile by its name: `slow-wide` is a network volume (0.5–2 ms a request, 64 at one time), `raid10` eight
    /// spinning disks behind a controller with a write cache.
    pub fn named(name: &str) -> Option<Profile> {
        let us = Duration::from_micros;
        match name {
            "slow-wide" => Some(Profile {
                latency_min: us(500),
                latency_max: us(2000),
                width: 64,
                read_bytes_per_second: 1 << 30,
                write_bytes_per_second: 512 << 20,
                sync_latency: us(1500),
            }),
            "raid10" => Some(Profile {
                latency_min: us(3000),
                latency_max: us(12_000),
                width: 8,
                read_bytes_per_second: 800 << 20,
                write_bytes_per_second: 400 << 20,
                sync_latency: us(500),
            }),
            _ => None,
        }
    }
}

/// When the modelled device would end requests: `width` lanes, each with one request at a time and taken in the order
/// of arrival, and one channel for each direction that every request's bytes go through.
#[derive(Debug)]
struct Model {
    profile: Profile,
    state: Mutex<ModelState>,
}

#[derive(Debug)]
struct ModelState {
    /// When each lane is free again.
    lanes: BinaryHeap<Reverse<Instant>>,
    channels: [Instant; 2],
}

impl Model {
    fn new(profile: Profile) -> Self {
        let lanes = (0..profile.width.max(1)).map(|_| Reverse(Instant::default())).collect();
        Model { profile, state: Mutex::new(ModelState { lanes, channels: [Instant::default(); 2] }) }
    }

    /// Gives a request that arrives `now` its place, and the time it ends.
    fn book(&self, direction: Direction, bytes: usize, now: Instant) -> Instant {
        let profile = &self.profile;
        let (channel, rate) = match direction {
            Direction::Read => (0, profile.read_bytes_per_second),
            _ => (1, profile.write_bytes_per_second),
        };
        let spread = profile.latency_max.saturating_sub(profile.latency_min).as_nanos() as u64;
        let latency = profile.latency_min + Duration::from_nanos(random::below(spread + 1));
        let transfer = (bytes as u128 * 1_000_000_000 / u128::from(rate.max(1))) as u64;
        let durable = matches!(
            direction,
            Direction::Write(Durability::Durable) | Direction::WriteAtomic(Durability::Durable)
        );
        let extra = if durable { profile.sync_latency } else { Duration::ZERO };
        let mut state = self.state.lock();
        let Reverse(free) = state.lanes.pop().expect("there is at least one lane");
        let start = free.max(now);
        let passed = state.channels[channel].max(start) + Duration::from_nanos(transfer);
        state.channels[channel] = passed;
        let end = passed.max(start + latency) + extra;
        state.lanes.push(Reverse(end));
        end
    }
}

fn sleep_until(due: Instant) {
    let left = due - clock::now();
    if !left.is_zero() {
        clock::sleep(left);
    }
}

/// A disk in front of another one, slowed down to a [`Profile`]. It has statistics of its own, with the modelled
/// latencies.
#[derive(Debug)]
pub struct ThrottledDisk {
    under: Arc<dyn Disk>,
    model: Arc<Model>,
    shared: Arc<Shared>,
}

impl ThrottledDisk {
    /// `under`, slowed down.
    pub fn new(under: Arc<dyn Disk>, profile: Profile) -> Self {
        let shared = Arc::new(Shared::new(PREFETCH_DEPTH_DEFAULT));
        ThrottledDisk { under, model: Arc::new(Model::new(profile)), shared }
    }

    /// How the device behaves.
    pub fn profile(&self) -> &Profile {
        &self.model.profile
    }

    /// Takes over a measured calibration, as [`crate::RealDisk::set_calibration`] does.
    pub fn set_calibration(&self, calibration: &Calibration) {
        self.shared.admission.calibrate(calibration);
    }
}

impl Disk for ThrottledDisk {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn File>> {
        let under = self.under.open(path, options)?;
        let (model, shared) = (Arc::clone(&self.model), Arc::clone(&self.shared));
        Ok(Arc::new(ThrottledFile { under, model, shared }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.under.exists(path)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        self.under.list(folder)
    }

    fn create_dir(&self, folder: &Path) -> Result<()> {
        self.under.create_dir(folder)
    }

    fn remove_dir(&self, folder: &Path) -> Result<()> {
        self.under.remove_dir(folder)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.under.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.under.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        self.under.rename_new(from, to)
    }

    fn sync_dir(&self, folder: &Path) -> Result<()> {
        let due = clock::now() + self.model.profile.sync_latency;
        let result = self.under.sync_dir(folder);
        sleep_until(due);
        result
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        self.under.lock(path)
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        self.under.resolve(path)
    }

    fn free_bytes(&self, folder: &Path) -> Result<Option<u64>> {
        self.under.free_bytes(folder)
    }

    fn mode_of(&self, path: &Path) -> Option<ModeReport> {
        self.under.mode_of(path)
    }

    fn queue_backend(&self) -> Option<BackendReport> {
        self.under.queue_backend()
    }

    fn queue(&self, depth: usize) -> Result<Arc<dyn Queue>> {
        let slots = Scheduler::<Job>::slots(depth);
        let inner = Inner {
            scheduler: Scheduler::new(depth, Arc::clone(&self.shared)),
            slots: std::iter::repeat_with(|| None).take(slots).collect(),
            free: (0..slots).rev().collect(),
            due: BinaryHeap::new(),
            wake: false,
        };
        Ok(Arc::new(ThrottledQueue {
            under: self.under.queue(slots)?,
            arrivals: Arc::new(Arrivals(Mutex::new(std::iter::repeat_with(|| None).take(slots).collect()))),
            model: Arc::clone(&self.model),
            shared: Arc::clone(&self.shared),
            inner: Mutex::new(inner),
            timer: Condvar::new(),
            reaping: Reaping::default(),
            outstanding: AtomicUsize::new(0),
        }))
    }

    fn stats(&self) -> &stats::Stats {
        &self.shared.stats
    }

    fn calibration(&self) -> Calibration {
        self.shared.admission.calibration()
    }
}

/// A file of a [`ThrottledDisk`].
#[derive(Debug)]
struct ThrottledFile {
    under: Arc<dyn File>,
    model: Arc<Model>,
    shared: Arc<Shared>,
}

impl ThrottledFile {
    fn delayed(
        &self,
        class: Class,
        direction: Direction,
        bytes: usize,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let submitted = clock::now();
        let depth = self.shared.admission.enter(class);
        let due = self.model.book(direction, bytes, submitted);
        let result = run();
        sleep_until(due);
        self.shared.admission.leave(class);
        let done = Settled { class, direction, bytes, submitted, dispatched: submitted, depth };
        self.shared.settle(&done, clock::now(), result.is_ok());
        result
    }
}

impl File for ThrottledFile {
    fn path(&self) -> &Path {
        self.under.path()
    }

    fn mode(&self) -> &ModeReport {
        self.under.mode()
    }

    fn alignment(&self) -> usize {
        self.under.alignment()
    }

    fn read_at(&self, class: Class, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.delayed(class, Direction::Read, buffer.len(), || self.under.read_at(class, offset, buffer))
    }

    fn write_at(&self, class: Class, offset: u64, buffer: &[u8], durability: Durability) -> Result<()> {
        let direction = Direction::Write(durability);
        self.delayed(class, direction, buffer.len(), || {
            self.under.write_at(class, offset, buffer, durability)
        })
    }

    fn sync(&self, class: Class) -> Result<()> {
        let start = clock::now();
        let result = self.under.sync(class);
        sleep_until(start + self.model.profile.sync_latency);
        self.shared.stats.record(class, Operation::Sync, 0, start.elapsed(), result.is_ok());
        result
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.under.allocate(offset, len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.under.set_len(len)
    }

    fn len(&self) -> Result<u64> {
        self.under.len()
    }

    fn has_a_name(&self) -> Result<bool> {
        self.under.has_a_name()
    }

    fn is_poisoned(&self) -> bool {
        self.under.is_poisoned()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        self.under.lock()
    }

    fn atomic_writes(&self) -> AtomicWrites {
        self.under.atomic_writes()
    }

    fn cached_bytes(&self) -> Option<u64> {
        self.under.cached_bytes()
    }

    fn drop_cache(&self) {
        self.under.drop_cache();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A request that has not gone to the device, or has; its file is the one underneath.
struct Job {
    /// Taken when the request goes to the queue underneath.
    request: Option<Request>,
    completion: Arc<dyn Completion>,
    token: u64,
    settled: Settled,
}

struct Inner {
    scheduler: Scheduler<Job>,
    slots: Vec<Option<Job>>,
    free: Vec<usize>,
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Tells the reaper to look after its predicate.
    wake: bool,
}

/// Results of the queue underneath, by slot.
struct Arrivals(Mutex<Vec<Option<Result<()>>>>);

impl Completion for Arrivals {
    fn complete(&self, token: u64, result: Result<()>) {
        self.0.lock()[token as usize] = Some(result);
    }
}

struct ThrottledQueue {
    under: Arc<dyn Queue>,
    arrivals: Arc<Arrivals>,
    model: Arc<Model>,
    shared: Arc<Shared>,
    inner: Mutex<Inner>,
    /// The reaper sleeps here, on `inner`, until the next due time.
    timer: Condvar,
    reaping: Reaping,
    outstanding: AtomicUsize,
}

impl ThrottledQueue {
    fn job(
        request: Request,
        completion: &Arc<dyn Completion>,
        now: Instant,
    ) -> std::result::Result<Job, (u64, Error)> {
        let token = request.token;
        let Some(file) = request.file.as_any().downcast_ref::<ThrottledFile>() else {
            let text = "the file was opened by another kind of disk than the queue";
            let path = request.file.path();
            return Err((token, Error::new(ErrorKind::Invalid, "submit a request for", path, text)));
        };
        let under = Arc::clone(&file.under);
        let settled = Settled {
            class: request.class,
            direction: request.direction,
            bytes: request.len(),
            submitted: now,
            dispatched: now,
            depth: 1,
        };
        let request = Some(Request { file: under, ..request });
        Ok(Job { request, completion: Arc::clone(completion), token, settled })
    }

    /// Sends whatever may go to the device.
    fn pump(&self, inner: &mut Inner) {
        let mut batch = Vec::new();
        let now = clock::now();
        while let Some((mut job, depth)) = inner.scheduler.next() {
            let slot = inner.free.pop().expect("the scheduler admits no more than there are slots");
            let request = job.request.take().expect("a waiting job has its request");
            batch.push(Request { token: slot as u64, ..request });
            (job.settled.dispatched, job.settled.depth) = (now, depth);
            let due = self.model.book(job.settled.direction, job.settled.bytes, now);
            inner.due.push(Reverse((due, slot)));
            inner.slots[slot] = Some(job);
        }
        if batch.is_empty() {
            return;
        }
        let arrivals: Arc<dyn Completion> = Arc::clone(&self.arrivals) as _;
        // SAFETY: our own submitters promised that the memory is valid and left alone until their completion, which
        // comes after the one underneath.
        unsafe { self.under.submit(batch, &arrivals) };
        self.timer.notify_one();
    }

    /// Slots that are due; with `wait` sleeps until there is one, or until woken.
    fn take_due(&self, wait: bool) -> Vec<usize> {
        let mut due = Vec::new();
        let mut inner = self.inner.lock();
        loop {
            let now = clock::now();
            while inner.due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
                due.extend(inner.due.pop().map(|Reverse((_, slot))| slot));
            }
            if !due.is_empty() || !wait || mem::take(&mut inner.wake) {
                return due;
            }
            match inner.due.peek().map(|Reverse((at, _))| *at - now) {
                Some(left) => {
                    self.timer.wait_for(&mut inner, left);
                }
                None => self.timer.wait(&mut inner),
            }
        }
    }

    /// Runs the completions of what is due. Only the reaper calls this.
    fn reap(&self, wait: bool) {
        let due = self.take_due(wait);
        if due.is_empty() {
            return;
        }
        let arrivals = &self.arrivals.0;
        self.under.wait_until(&mut || {
            let arrived = arrivals.lock();
            due.iter().all(|&slot| arrived[slot].is_some())
        });
        let mut ended = Vec::with_capacity(due.len());
        {
            let (inner, mut arrived) = (&mut *self.inner.lock(), arrivals.lock());
            for slot in due {
                let job = inner.slots[slot].take().expect("a due slot is taken");
                let result = arrived[slot].take().expect("waited for above");
                inner.free.push(slot);
                inner.scheduler.finished(job.settled.class);
                ended.push((job, result));
            }
            // Submitting may complete refused requests at once.
            drop(arrived);
            self.pump(inner);
        }
        let now = clock::now();
        for (job, result) in ended {
            self.outstanding.fetch_sub(1, Ordering::Release);
            self.shared.settle(&job.settled, now, result.is_ok());
            job.completion.complete(job.token, result);
        }
    }
}

// SAFETY: a request's completion is called after the queue underneath has completed it.
impl Queue for ThrottledQueue {
    unsafe fn submit(&self, requests: Vec<Request>, completion: &Arc<dyn Completion>) {
        let now = clock::now();
        self.outstanding.fetch_add(requests.len(), Ordering::Relaxed);
        let mut refused = Vec::new();
        {
            let inner = &mut *self.inner.lock();
            for request in requests {
                match Self::job(request, completion, now) {
                    Ok(job) => inner.scheduler.push(job.settled.class, job),
                    Err(end) => refused.push(end),
                }
            }
            self.pump(inner);
        }
        if refused.is_empty() {
            return;
        }
        for (token, error) in refused {
            self.outstanding.fetch_sub(1, Ordering::Release);
            completion.complete(token, Err(error));
        }
        if self.reaping.announce() {
            self.inner.lock().wake = true;
            self.timer.notify_one();
        }
    }

    fn wait_until(&self, done: &mut dyn FnMut() -> bool) {
        self.reaping.wait_until(done, || self.reap(true));
    }

    fn poll(&self) {
        self.reaping.poll(|| self.reap(false));
    }

    fn in_flight(&self) -> usize {
        self.outstanding.load(Ordering::Acquire)
    }
}

impl Drop for ThrottledQueue {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            self.reap(true);
        }
    }
}

impl fmt::Debug for ThrottledQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThrottledQueue({} in flight over {:?})", self.in_flight(), self.under)
    }
}

#[cfg(test)]
#[path = "throttled_tests.rs"]
mod tests;
