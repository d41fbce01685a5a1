//! The log's ring and its group commit under test, and as much of the log as they need around them: one mutex, an append that copies
//! into the ring, and a device that keeps what it was given and refuses what it must never get.
#![expect(dead_code, reason = "the models use a part of them")]

use crate::Result;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

#[path = "../../crates/store/src/log/buffer.rs"]
mod buffer;
#[path = "../../crates/store/src/log/flush.rs"]
mod flush;

use append::State;
use buffer::Ring;
use flush::{FlushState, Wait};
use segment::{BLOCK, Segments};

/// Blocks of eight bytes, so that a ring of a few of them is soon full.
mod segment {
    use crate::Result;
    use crate::device::File;
    use std::sync::Arc;

    pub(crate) const BLOCK: u64 = 8;

    #[derive(Debug)]
    pub(crate) struct Segments {
        pub(crate) size: u64,
        pub(crate) device: Arc<File>,
    }

    impl Segments {
        pub(crate) fn file_to_write(&self, _number: u64) -> Result<Arc<File>> {
            Ok(Arc::clone(&self.device))
        }
    }
}

mod append {
    use super::{BLOCK, FlushState, Ring};

    #[derive(Debug)]
    pub(crate) struct State {
        pub(crate) ring: Ring,
        pub(crate) end: u64,
        pub(crate) flush: FlushState,
    }

    impl State {
        /// Nothing comes to the end of the one segment.
        pub(crate) fn segment_end(&self, _at: u64) -> u64 {
            u64::MAX / BLOCK * BLOCK
        }

        /// No write of a model is that long.
        pub(crate) fn fill_block(&mut self) {}
    }
}

pub(crate) struct LogOptions {
    max_in_flight: usize,
    segment_size: u64,
}

impl LogOptions {
    fn write_max(&self) -> u64 {
        8 * BLOCK
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    segments: Segments,
    state: Mutex<State>,
    flusher: Condvar,
    durable: AtomicU64,
    durable_records: AtomicU64,
    end: AtomicU64,
    write_max: u64,
}

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Append {
    /// Nothing.
    Right,
    /// The bytes come into the ring after the log's end has moved.
    Late,
    /// Nobody waits for room in the ring.
    WithoutRoom,
}

impl Inner {
    /// A log with a ring of so many blocks.
    pub(crate) fn new(blocks: usize, max_in_flight: usize) -> Self {
        let options = LogOptions { max_in_flight, segment_size: u64::MAX / BLOCK * BLOCK };
        // The first segment's header, as it were: the ring of a log never begins at nothing.
        let start = BLOCK;
        Inner {
            segments: Segments { size: options.segment_size, device: Arc::default() },
            state: Mutex::new(State {
                ring: Ring::new(blocks * BLOCK as usize),
                end: start,
                flush: FlushState::new(start, &options),
            }),
            flusher: Condvar::default(),
            durable: AtomicU64::new(start),
            durable_records: AtomicU64::new(start),
            end: AtomicU64::new(start),
            write_max: options.write_max(),
        }
    }

    /// Appends a record; gives where it begins and ends.
    pub(crate) fn append(&self, record: &[u8], how: Append) -> Result<(u64, u64)> {
        let mut state = self.state.lock();
        loop {
            state.flush.check()?;
            let end = state.end + record.len() as u64;
            let release = end.saturating_sub(state.ring.len()).next_multiple_of(BLOCK);
            if release <= state.flush.durable || how == Append::WithoutRoom {
                break;
            }
            drop(state);
            self.flush_until(release, Wait::Now)?;
            state = self.state.lock();
        }
        let start = state.end;
        let end = start + record.len() as u64;
        if how != Append::Late {
            state.ring.put(start, record);
        }
        state.end = end;
        state.flush.appended(end);
        self.end.store(end, Release);
        drop(state);
        if how == Append::Late {
            self.state.lock().ring.put(start, record);
        }
        Ok((start, end))
    }

    /// Commits a record: it is on the device, whole, and said to be.
    pub(crate) fn commit(&self, record: &[u8], how: Append) {
        let (start, end) = self.append(record, how).expect("the device does not fail");
        self.flush_until(end, Wait::Commit).expect("the device does not fail");
        assert!(self.durable.load(Acquire) >= end, "a commit is told of before the log is durable");
        assert_eq!(
            self.segments.device.read(start, end),
            record,
            "a commit is told of that is not on the device"
        );
    }

    /// Whether the device has this byte from `start` to `end`.
    pub(crate) fn has(&self, start: u64, end: u64, byte: u8) -> bool {
        self.segments.device.read(start, end).iter().all(|found| *found == byte)
    }

    /// Commits a record on a device that may fail: it is there, or its committer is told.
    pub(crate) fn try_commit(&self, record: &[u8]) -> bool {
        let Ok((start, end)) = self.append(record, Append::Right) else { return false };
        let done = self.flush_until(end, Wait::Commit).is_ok();
        assert!(!done || self.segments.device.read(start, end) == record, "a commit is told of that failed");
        done
    }

    pub(crate) fn fail_from_now_on(&self) {
        self.segments.device.fail();
    }
}
