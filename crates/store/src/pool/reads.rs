//! What each thread has read: for explaining where a statement's time went.

use gannet_io::Class;
use std::cell::Cell;

/// Pages that a thread has asked the page frames for, since it began; see [`thread_reads`]. The difference of two looks is
/// what happened in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadReads {
    /// Pages found in memory. Inner nodes that are looked at without a latch count, as every page on the way down does;
    /// what was read ahead does not count again when it is used for the first time.
    pub hits: u64,
    /// Pages this thread read from the device one by one, each of them waited for.
    pub serial_reads: u64,
    /// Pages this thread had read ahead, many at a time.
    pub batched_reads: u64,
    /// How many times it had pages read ahead: each takes about as long as one page read alone, where the device is wide.
    pub batches: u64,
}

impl ThreadReads {
    /// What came since `earlier`.
    pub fn since(&self, earlier: ThreadReads) -> ThreadReads {
        ThreadReads {
            hits: self.hits - earlier.hits,
            serial_reads: self.serial_reads - earlier.serial_reads,
            batched_reads: self.batched_reads - earlier.batched_reads,
            batches: self.batches - earlier.batches,
        }
    }
}

thread_local! {
    static HITS: Cell<u64> = const { Cell::new(0) };
    static SERIAL: Cell<u64> = const { Cell::new(0) };
    static BATCHED: Cell<u64> = const { Cell::new(0) };
    static BATCHES: Cell<u64> = const { Cell::new(0) };
    static BACKGROUND: Cell<bool> = const { Cell::new(false) };
    static STANDS_BY: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread's counters. They only grow.
pub fn thread_reads() -> ThreadReads {
    ThreadReads {
        hits: HITS.get(),
        serial_reads: SERIAL.get(),
        batched_reads: BATCHED.get(),
        batches: BATCHES.get(),
    }
}

/// Counts as the calling thread's what others have asked for in its place.
pub fn add_thread_reads(reads: ThreadReads) {
    HITS.set(HITS.get() + reads.hits);
    SERIAL.set(SERIAL.get() + reads.serial_reads);
    BATCHED.set(BATCHED.get() + reads.batched_reads);
    BATCHES.set(BATCHES.get() + reads.batches);
}

/// From now on the calling thread's reads do not count as those of somebody whom the background would keep waiting: they are of class
/// maintenance.
pub(crate) fn in_background() {
    BACKGROUND.set(true);
}

/// The same of a thread that runs only while nobody else wants a processor: whoever waits for a page that such a thread has asked for is not to wait for
/// its coming back, too.
pub(crate) fn standing_by() {
    in_background();
    STANDS_BY.set(true);
}

/// See [`standing_by`].
pub(super) fn stands_by() -> bool {
    STANDS_BY.get()
}

/// What the calling thread reads as long as this lives is read for a job: no user waits for it, and jobs are not paced by it.
#[derive(Debug)]
pub(crate) struct Background {
    before: bool,
    /// It is about the calling thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Background {
    pub(crate) fn begin() -> Self {
        Background { before: BACKGROUND.replace(true), _here: std::marker::PhantomData }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        BACKGROUND.set(self.before);
    }
}

/// The class of what the calling thread reads and waits for.
pub(crate) fn class() -> Class {
    if is_background() { Class::Maintenance } else { Class::Foreground }
}

pub(super) fn is_background() -> bool {
    BACKGROUND.get()
}

#[inline]
pub(super) fn hit() {
    HITS.set(HITS.get() + 1);
}

/// How many pages the calling thread has read and waited for, each alone. Only grows.
pub(crate) fn serial_reads() -> u64 {
    SERIAL.get()
}

pub(super) fn serial() {
    SERIAL.set(SERIAL.get() + 1);
}

pub(super) fn batched(pages: usize) {
    BATCHED.set(BATCHED.get() + pages as u64);
    BATCHES.set(BATCHES.get() + 1);
}
