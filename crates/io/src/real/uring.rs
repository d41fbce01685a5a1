//! The queue over `io_uring(7)` (Linux 5.10 and later).
//!
//! # Invariants
//! 1. The submission ring is touched under `inner` only: a batch is pushed and entered as one. What the kernel has no memory for stays
//!    there when `inner` is let go of; whoever submits comes back until nothing is left, and where it was the reaper who left it, the next
//!    one does so before he waits ([`Harvest::has_left`]). `inner` is never held while waiting: for completions, or for memory that the system lacks.
//! 2. The completion ring is touched by the reaper only (see [`crate::reaping`]).
//! 3. `slots[i]` is occupied exactly while the kernel may still answer for it; the address lists the kernel reads
//!    (`pieces[i]`) do not change meanwhile. It is in `free` when no job has it: one that waits for memory keeps it.
//! 4. At most `Scheduler::slots(depth)` requests are at the device or in the submission ring, each of them once, and one wake-up, which both
//!    rings have room for.
//!
//! The ring is set up without `SINGLE_ISSUER`, `DEFER_TASKRUN` and `COOP_TASKRUN`: with any of them a completion may have
//! to wait until the thread that *submitted* enters the kernel again of its own accord, and here nobody may depend on what that
//! thread does. Its processor time is something else: the kernel interrupts the submitting thread and posts the completion of a
//! request to a device in its name (once it has ended, in a worker of its own). A submitter of low priority, on a machine whose
//! processors are busy, so delays what it has submitted, also for a thread of a higher one that waits for the same page. Whoever
//! submits for work in the background should be no lower than needed; reads ahead of such work have queues of their own, so that
//! only those wait for it who need one of its very pages.
#![expect(unsafe_code, reason = "the rings are shared with the kernel")]

use crate::admission::{Scheduler, Shared};
use crate::real::job::Job;
use crate::real::sys::TRANSFER_MAX;
use crate::real::transfer::{Step, wait_for_memory};
use crate::reaping::Reaping;
use crate::{Completion, Queue, Request, Result};
use gannet_base::clock::{self, Instant};
use gannet_base::sync::Mutex;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::fmt;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// `user_data` of a request that only wakes the reaper.
const WAKE: u64 = u64::MAX;
const ENTER_GETEVENTS: u32 = 1;
/// Completions taken at once.
const BATCH: usize = 128;
/// The pause before the kernel is asked once more to take what it had no memory for.
const ENTER_AGAIN: Duration = Duration::from_millis(1);

/// Address lists of one slot, read by the kernel.
#[derive(Default)]
struct Pieces(Vec<libc::iovec>);

// SAFETY: only addresses; who may touch the memory is settled by the contract of `Queue::submit`.
unsafe impl Send for Pieces {}

struct Inner {
    scheduler: Scheduler<Job>,
    slots: Vec<Option<Job>>,
    pieces: Vec<Pieces>,
    free: Vec<u32>,
    /// A wake-up for the reaper is on its way; a second one would tell him nothing new.
    waking: bool,
}

/// What the reaper works with; locked by the reaper only, so nobody ever waits for it.
#[derive(Default)]
struct Harvest {
    answers: Vec<(u64, i32)>,
    ended: Vec<(Job, Result<()>)>,
    /// Jobs, with their slots, that the system had no memory for: they go there again after a while.
    early: Vec<(u64, Job)>,
    /// The kernel had no memory for all that the reaper has put into the submission ring.
    has_left: bool,
}

pub(super) struct UringQueue {
    ring: IoUring,
    inner: Mutex<Inner>,
    harvest: Mutex<Harvest>,
    reaping: Reaping,
    outstanding: AtomicUsize,
    #[cfg(test)]
    shortage: tests::Shortage,
}

/// Whether `io_uring` works here; the error says why not.
pub(super) fn probe() -> std::result::Result<(), String> {
    let ring = IoUring::new(4).map_err(|e| format!("the system refuses io_uring ({e})"))?;
    if !ring.params().is_feature_nodrop() || !ring.params().is_feature_submit_stable() {
        return Err("io_uring of this kernel is too old (before Linux 5.5)".to_owned());
    }
    let mut known = Probe::new();
    ring.submitter()
        .register_probe(&mut known)
        .map_err(|e| format!("io_uring cannot be asked what it supports ({e})"))?;
    let wanted = [
        ("nop", opcode::Nop::CODE),
        ("read", opcode::Read::CODE),
        ("write", opcode::Write::CODE),
        ("readv", opcode::Readv::CODE),
        ("writev", opcode::Writev::CODE),
        ("fsync", opcode::Fsync::CODE),
    ];
    for (name, code) in wanted {
        if !known.is_supported(code) {
            return Err(format!("io_uring of this kernel does not know {name}"));
        }
    }
    // Some sandboxes let the ring be set up and refuse to enter it.
    // SAFETY: a no-op refers to no memory, and the ring is not shared.
    unsafe { ring.submission_shared().push(&opcode::Nop::new().build()) }.expect("the ring is empty");
    ring.submit_and_wait(1).map_err(|e| format!("the system refuses to run io_uring ({e})"))?;
    Ok(())
}

impl UringQueue {
    pub(super) fn new(depth: usize, shared: &Arc<Shared>) -> io::Result<Self> {
        let slots = Scheduler::<Job>::slots(depth);
        // One more than the slots, for a wake-up.
        let entries = (slots + 1).next_power_of_two() as u32;
        let inner = Inner {
            scheduler: Scheduler::new(depth, Arc::clone(shared)),
            slots: std::iter::repeat_with(|| None).take(slots).collect(),
            pieces: std::iter::repeat_with(Pieces::default).take(slots).collect(),
            free: (0..slots as u32).rev().collect(),
            waking: false,
        };
        Ok(UringQueue {
            ring: IoUring::new(entries)?,
            inner: Mutex::new(inner),
            harvest: Mutex::default(),
            reaping: Reaping::default(),
            outstanding: AtomicUsize::new(0),
            #[cfg(test)]
            shortage: tests::Shortage::default(),
        })
    }

    /// Sends whatever may go to the device; false where some of it stays, see [`UringQueue::enter`].
    fn pump(&self, inner: &mut Inner, now: Instant) -> bool {
        while let Some((mut job, depth)) = inner.scheduler.next() {
            let slot = inner.free.pop().expect("the scheduler admits no more than there are slots");
            job.dispatch(depth, now);
            inner.slots[slot as usize] = Some(job);
            self.push_step(inner, slot);
        }
        self.enter()
    }

    /// Puts the next step of the job in `slot` into the submission ring.
    fn push_step(&self, inner: &mut Inner, slot: u32) {
        let Inner { slots, pieces, .. } = inner;
        let job = slots[slot as usize].as_ref().expect("the slot was filled by the caller");
        let fd = types::Fd(job.file().fd());
        let (transfer, pieces) = (&job.transfer, &mut pieces[slot as usize].0);
        let (at, write) = (transfer.position(), transfer.is_write());
        let entry = match (transfer.step(), job.request.slices.as_slice()) {
            (Step::Transfer(flags), [one]) => {
                let rest = transfer.rest_of(one);
                let (start, len) = (rest.iov_base.cast::<u8>(), rest.iov_len.min(TRANSFER_MAX) as u32);
                match write {
                    true => opcode::Write::new(fd, start, len).offset(at).rw_flags(flags as _).build(),
                    false => opcode::Read::new(fd, start, len).offset(at).rw_flags(flags as _).build(),
                }
            }
            (Step::Transfer(flags), slices) => {
                transfer.rest(slices, pieces);
                let (list, count) = (pieces.as_ptr(), pieces.len() as u32);
                match write {
                    true => opcode::Writev::new(fd, list, count).offset(at).rw_flags(flags as _).build(),
                    false => opcode::Readv::new(fd, list, count).offset(at).rw_flags(flags as _).build(),
                }
            }
            (Step::Sync | Step::Done, _) => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        };
        self.push(&entry.user_data(u64::from(slot)));
    }

    /// Puts an entry into the submission ring; the caller holds `inner`.
    fn push(&self, entry: &squeue::Entry) {
        // SAFETY: the caller holds `inner` (invariant 1). The entry refers to memory that stays valid until its
        // completion: by the contract of `Queue::submit`, and by invariant 3 for address lists.
        unsafe { self.ring.submission_shared().push(entry) }.expect("the ring has room for every slot");
    }

    /// Hands everything in the submission ring to the kernel, normally by one call; false where it has no memory for all of it now, and some
    /// stays there. The caller holds `inner`.
    fn enter(&self) -> bool {
        // SAFETY: the caller holds `inner` (invariant 1).
        while !unsafe { self.ring.submission_shared().is_empty() } {
            if let Err(error) = self.submit_all()
                && is_short_of_memory(&error)
            {
                return false;
            }
        }
        true
    }

    fn submit_all(&self) -> io::Result<usize> {
        #[cfg(test)]
        self.shortage.check()?;
        self.ring.submit()
    }

    /// Hands what has stayed in the submission ring to the kernel, if `left` some has: tries until that goes well. Not to be called with
    /// `inner`.
    fn enter_until_empty(&self, mut left: bool) {
        while left {
            clock::sleep(ENTER_AGAIN);
            let _inner = self.inner.lock();
            left = !self.enter();
        }
    }

    /// Takes up to a batch of answers; only the reaper calls this.
    fn take_answers(&self, answers: &mut Vec<(u64, i32)>) {
        // SAFETY: the caller is the reaper (invariant 2).
        let ring = unsafe { self.ring.completion_shared() };
        answers.extend(ring.take(BATCH).map(|entry| (entry.user_data(), entry.result())));
    }

    /// Runs the completions of what has ended; with `wait` waits for at least one answer, or a while. Only the reaper calls this.
    fn reap(&self, mut wait: bool) {
        let harvest = &mut *self.harvest.lock();
        harvest.answers.clear();
        self.take_answers(&mut harvest.answers);
        while harvest.answers.is_empty() {
            if harvest.has_left {
                let _inner = self.inner.lock();
                harvest.has_left = !self.enter();
            }
            if !wait {
                return;
            }
            if harvest.has_left {
                clock::sleep(ENTER_AGAIN);
                // What is waited for may have come another way, and nobody could be woken here for that.
                wait = false;
            } else {
                self.wait_for_answers();
            }
            self.take_answers(&mut harvest.answers);
        }
        let now = clock::now();
        self.digest(harvest, now);
        for (job, result) in harvest.ended.drain(..) {
            // Not counted any more when its owner hears of it.
            self.outstanding.fetch_sub(1, Ordering::Release);
            job.end(result, now);
        }
        self.try_again(harvest);
    }

    /// Waits for at least one answer, as a rule.
    fn wait_for_answers(&self) {
        // SAFETY: no argument is passed to the kernel.
        let waited = unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 1, ENTER_GETEVENTS, None) };
        if let Err(error) = waited
            && is_short_of_memory(&error)
        {
            gannet_base::thread::yield_now();
        }
    }

    /// Sends what the system had no memory for, after a while.
    fn try_again(&self, harvest: &mut Harvest) {
        let Some((_, first)) = harvest.early.first() else { return };
        wait_for_memory(first.file());
        let inner = &mut *self.inner.lock();
        for (slot, job) in harvest.early.drain(..) {
            inner.slots[slot as usize] = Some(job);
            self.push_step(inner, slot as u32);
        }
        harvest.has_left = !self.enter();
    }

    /// Sorts answers into jobs that have ended and jobs that go on, and sends what may go now.
    fn digest(&self, harvest: &mut Harvest, now: Instant) {
        let inner = &mut *self.inner.lock();
        for &(slot, answer) in &harvest.answers {
            if slot == WAKE {
                inner.waking = false;
                continue;
            }
            let place = &mut inner.slots[slot as usize];
            let mut job = place.take().expect("the kernel answers once for each slot");
            let answer =
                if answer < 0 { Err(io::Error::from_raw_os_error(-answer)) } else { Ok(answer as usize) };
            let file = crate::real::job::file_of(&job.request).expect("checked when the job was made");
            let result = match job.transfer.advance(file, answer) {
                Ok(Step::Done) => Ok(()),
                Ok(_) if job.transfer.take_early() => {
                    harvest.early.push((slot, job));
                    continue;
                }
                Ok(_) => {
                    *place = Some(job);
                    self.push_step(inner, slot as u32);
                    continue;
                }
                Err(error) => Err(error),
            };
            inner.free.push(slot as u32);
            inner.scheduler.finished(job.request.class);
            harvest.ended.push((job, result));
        }
        harvest.has_left = !self.pump(inner, now);
    }
}

/// Whether entering the kernel has failed as it has no memory now, or too much to do; false where it was interrupted.
fn is_short_of_memory(error: &io::Error) -> bool {
    match error.raw_os_error() {
        Some(libc::EINTR) => false,
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => true,
        _ => panic!("io_uring stopped working: {error}"),
    }
}

// SAFETY: requests reach the kernel as they were given, and are told to have ended only when the kernel has answered.
impl Queue for UringQueue {
    unsafe fn submit(&self, requests: Vec<Request>, completion: &Arc<dyn Completion>) {
        let now = clock::now();
        self.outstanding.fetch_add(requests.len(), Ordering::Relaxed);
        let (mut refused, mut alone) = (Vec::new(), Vec::new());
        let has_left = {
            let inner = &mut *self.inner.lock();
            for request in requests {
                match Job::new(request, completion, now) {
                    Ok(job) if job.file().is_alone(job.request.direction) => alone.push(job),
                    Ok(job) => inner.scheduler.push(job.request.class, job),
                    Err(end) => refused.push(end),
                }
            }
            !self.pump(inner, now)
        };
        self.enter_until_empty(has_left);
        if refused.is_empty() && alone.is_empty() {
            return;
        }
        for (token, result) in refused {
            self.outstanding.fetch_sub(1, Ordering::Release);
            completion.complete(token, result);
        }
        // Nothing in the ring can wait for its turn.
        for job in alone {
            // SAFETY: promised by the caller until the completion, which comes from here.
            unsafe { job.run_here(|| self.outstanding.fetch_sub(1, Ordering::Release)) };
        }
        if self.reaping.announce() {
            let mut inner = self.inner.lock();
            if !mem::replace(&mut inner.waking, true) {
                self.push(&opcode::Nop::new().build().user_data(WAKE));
                let has_left = !self.enter();
                drop(inner);
                self.enter_until_empty(has_left);
            }
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

impl Drop for UringQueue {
    fn drop(&mut self) {
        // The kernel still writes to memory of requests at the device.
        while self.in_flight() > 0 {
            self.reap(true);
        }
    }
}

impl fmt::Debug for UringQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UringQueue({} in flight)", self.in_flight())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuffer, Class, Direction, Disk, Durability, File, IoSlice, OpenOptions, RealDisk};
    use gannet_base::sim::Simulation;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    /// Memory that the kernel lacks.
    #[derive(Default)]
    pub(super) struct Shortage {
        is_there: AtomicBool,
        refused: AtomicUsize,
    }

    impl Shortage {
        pub(super) fn check(&self) -> io::Result<()> {
            if !self.is_there.load(Ordering::SeqCst) {
                return Ok(());
            }
            self.refused.fetch_add(1, Ordering::SeqCst);
            Err(io::Error::from_raw_os_error(libc::EAGAIN))
        }
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Completion for Count {
        fn complete(&self, _token: u64, result: Result<()>) {
            result.unwrap();
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A request to write one buffer behind `token` others.
    fn write(file: &Arc<dyn File>, token: u64, buffer: &mut AlignedBuffer) -> Request {
        Request {
            file: Arc::clone(file),
            direction: Direction::Write(Durability::Cached),
            class: Class::Foreground,
            offset: token * 4096,
            slices: vec![IoSlice { address: buffer.as_mut_ptr(), len: buffer.len() }],
            token,
        }
    }

    fn file(folder: &Path) -> Arc<dyn File> {
        let options = OpenOptions { create: true, ..OpenOptions::read_write() };
        RealDisk::default().open(&folder.join("file"), &options).unwrap()
    }

    #[test]
    fn completions_reach_others_while_somebody_submits_what_the_kernel_has_no_memory_for() {
        if probe().is_err() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        let queue = UringQueue::new(4, &Arc::new(Shared::new(4))).unwrap();
        let counts = [Arc::new(Count::default()), Arc::new(Count::default())];
        let mut buffers = [AlignedBuffer::zeroed(4096), AlignedBuffer::zeroed(4096)];
        let mut requests = buffers.iter_mut().zip(&counts).zip(0..).map(|((buffer, count), token)| {
            let completion: Arc<dyn Completion> = count.clone();
            (write(&file, token, buffer), completion)
        });
        let has_ended = |token: usize| counts[token].0.load(Ordering::SeqCst) == 1;
        let (first, second) = (requests.next().unwrap(), requests.next().unwrap());
        // SAFETY: the buffers live until the queue has ended everything, and nobody touches them.
        let submit = |(request, completion)| unsafe { queue.submit(vec![request], &completion) };
        submit(first);
        queue.shortage.is_there.store(true, Ordering::SeqCst);
        let was_stuck = std::thread::scope(|scope| {
            let stuck = scope.spawn(|| submit(second));
            while queue.shortage.refused.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            queue.wait_until(&mut || has_ended(0));
            queue.poll();
            let was_stuck = !stuck.is_finished() && !has_ended(1);
            queue.shortage.is_there.store(false, Ordering::SeqCst);
            queue.wait_until(&mut || has_ended(1));
            was_stuck
        });
        assert!(was_stuck && queue.in_flight() == 0);
    }

    #[test]
    fn a_reaper_runs_completions_while_the_kernel_has_no_memory_for_what_he_sends() {
        if probe().is_err() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        let queue = UringQueue::new(1, &Arc::new(Shared::new(1))).unwrap();
        // More than may be at the device.
        let all = 64;
        let mut buffers: Vec<_> = (0..all).map(|_| AlignedBuffer::zeroed(4096)).collect();
        let requests =
            buffers.iter_mut().zip(0..).map(|(buffer, token)| write(&file, token, buffer)).collect();
        let count = Arc::new(Count::default());
        let completion: Arc<dyn Completion> = count.clone();
        let ended = || count.0.load(Ordering::SeqCst);
        // SAFETY: the buffers live until the queue has ended everything, and nobody touches them.
        unsafe { queue.submit(requests, &completion) };
        let sent = queue.inner.lock().slots.iter().flatten().count();
        queue.shortage.is_there.store(true, Ordering::SeqCst);
        queue.wait_until(&mut || ended() == sent);
        queue.poll();
        let (had_left, had_ended) = (queue.harvest.lock().has_left, ended());
        queue.shortage.is_there.store(false, Ordering::SeqCst);
        queue.wait_until(&mut || ended() == all);
        assert!(had_left && had_ended == sent && sent < all);
        assert!(!queue.harvest.lock().has_left && queue.in_flight() == 0);
    }

    #[test]
    fn nobody_waits_behind_requests_that_the_system_had_no_memory_for() {
        if probe().is_err() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        // What is waited for before another try is virtual time; what the system takes does not count.
        Simulation::new(1).run(move || two_without_memory(folder.path())).unwrap();
    }

    fn two_without_memory(folder: &Path) {
        let file = file(folder);
        let queue = UringQueue::new(4, &Arc::new(Shared::new(4))).unwrap();
        let count = Arc::new(Count::default());
        let completion: Arc<dyn Completion> = count.clone();
        let mut buffers = [AlignedBuffer::zeroed(4096), AlignedBuffer::zeroed(4096)];
        let now = clock::now();
        let mut harvest = Harvest::default();
        for (token, buffer) in (0..).zip(&mut buffers) {
            let request = write(&file, token, buffer);
            let inner = &mut *queue.inner.lock();
            let job = Job::new(request, &completion, now).unwrap_or_else(|_| panic!("it is refused"));
            inner.scheduler.push(Class::Foreground, job);
            let (job, _) = inner.scheduler.next().expect("there is room for it");
            let slot = inner.free.pop().unwrap();
            inner.slots[slot as usize] = Some(job);
            harvest.answers.push((u64::from(slot), -libc::EFAULT));
            queue.outstanding.fetch_add(1, Ordering::SeqCst);
        }
        queue.digest(&mut harvest, now);
        let (early, digested) = (harvest.early.len(), now.elapsed());
        queue.try_again(&mut harvest);
        let tried = now.elapsed();
        // Before anything is found wrong: a queue is not dropped while it waits for the system.
        queue.wait_until(&mut || count.0.load(Ordering::SeqCst) == 2);
        assert_eq!(early, 2);
        assert!(digested < Duration::from_millis(1), "somebody has slept, with the lock");
        assert_eq!(tried.as_millis(), 100, "they wait together");
        assert_eq!(file.len().unwrap(), 8192);
    }
}
