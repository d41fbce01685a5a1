//! A buffer for one transfer at a time between memory and a file, or for several at once to and from different places of it: of
//! temporary files, and of whoever reads a file past the page frames.
//!
//! # Invariants
//! 1. From [`Block::start`] until the completion was seen by [`Block::wait`] nobody touches the buffer but the device.
//! 2. A block waits for its transfer before its buffer goes.
#![expect(unsafe_code, reason = "hands a buffer to the device")]

use crate::work::WorkMemory;
use crate::{Error, Result};
use gannet_base::sync::Mutex;
use gannet_io::{AlignedBuffer, Class, Completion, Direction, File, IoSlice, Queue, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How a transfer went.
#[derive(Debug, Default)]
struct Slot {
    /// Requests under way.
    left: AtomicUsize,
    failure: Mutex<Option<gannet_io::Error>>,
}

impl Completion for Slot {
    fn complete(&self, _token: u64, result: gannet_io::Result<()>) {
        if let Err(error) = result {
            self.failure.lock().get_or_insert(error);
        }
        self.left.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A range of a file, and where its bytes are in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRange {
    pub(crate) place: usize,
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

impl FileRange {
    /// Adds pieces that follow each other both in the block and in the file to one range.
    pub(crate) fn add_to(ranges: &mut Vec<FileRange>, piece: FileRange) {
        match ranges.last_mut() {
            Some(last)
                if last.offset + last.len as u64 == piece.offset && last.place + last.len == piece.place =>
            {
                last.len += piece.len;
            }
            _ => ranges.push(piece),
        }
    }
}

/// See the module's head.
pub(crate) struct Block {
    buffer: AlignedBuffer,
    slot: Arc<Slot>,
    queue: Arc<dyn Queue>,
    under_way: bool,
    /// Length of the transfer.
    len: usize,
    _memory: WorkMemory,
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("under_way", &self.under_way).field("len", &self.len).finish()
    }
}

impl Block {
    /// A zeroed block as long as `memory`, which is what it is charged to; its transfers go to `queue`.
    pub(crate) fn new(queue: &Arc<dyn Queue>, memory: WorkMemory) -> Self {
        Block {
            buffer: AlignedBuffer::zeroed(memory.bytes() as usize),
            slot: Arc::default(),
            queue: Arc::clone(queue),
            under_way: false,
            len: 0,
            _memory: memory,
        }
    }

    /// The buffer.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        assert!(!self.under_way, "the device has the block");
        &mut self.buffer
    }

    /// Bytes of the buffer.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// What the last transfer was of.
    pub(crate) fn transferred(&self) -> &[u8] {
        assert!(!self.under_way, "the device has the block");
        &self.buffer[..self.len()]
    }

    /// Length of the last transfer.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Begins to transfer the first `len` bytes, to or from `offset` of a file of the queue's disk.
    pub(crate) fn start(
        &mut self,
        file: &Arc<dyn File>,
        direction: Direction,
        class: Class,
        offset: u64,
        len: usize,
    ) {
        assert!(!self.under_way && len <= self.buffer.len());
        self.under_way = true;
        self.len = len;
        self.slot.left.store(1, Ordering::Relaxed);
        let request = Request {
            file: Arc::clone(file),
            direction,
            class,
            offset,
            slices: vec![IoSlice { address: self.buffer.as_mut_ptr(), len }],
            token: 0,
        };
        let completion: Arc<dyn Completion> = Arc::clone(&self.slot) as _;
        // SAFETY: the buffer is ours, as long as `len`, and untouched until the completion (invariant 1), for which its
        // drop waits (invariant 2).
        unsafe { self.queue.submit(vec![request], &completion) };
    }

    /// Begins to transfer several ranges of a file to or from parts of the buffer, which do not overlap and ascend.
    pub(crate) fn start_ranges(
        &mut self,
        file: &Arc<dyn File>,
        direction: Direction,
        class: Class,
        ranges: &[FileRange],
    ) {
        assert!(!self.under_way && !ranges.is_empty());
        self.under_way = true;
        self.len = ranges.iter().map(|range| range.len).sum();
        self.slot.left.store(ranges.len(), Ordering::Relaxed);
        let (mut rest, mut passed) = (&mut self.buffer[..], 0);
        let mut requests = Vec::with_capacity(ranges.len());
        for (token, range) in ranges.iter().enumerate() {
            let (part, behind) = rest[range.place - passed..].split_at_mut(range.len);
            (rest, passed) = (behind, range.place + range.len);
            requests.push(Request {
                file: Arc::clone(file),
                direction,
                class,
                offset: range.offset,
                slices: vec![IoSlice { address: part.as_mut_ptr(), len: range.len }],
                token: token as u64,
            });
        }
        let completion: Arc<dyn Completion> = Arc::clone(&self.slot) as _;
        // SAFETY: the slices are parts of our buffer that do not overlap, untouched until the last completion (invariant 1),
        // for which its drop waits (invariant 2).
        unsafe { self.queue.submit(requests, &completion) };
    }

    /// Waits for the transfer, if there is one.
    pub(crate) fn wait(&mut self) -> Result<()> {
        if !self.under_way {
            return Ok(());
        }
        self.queue.wait_until(&mut || self.slot.left.load(Ordering::Acquire) == 0);
        self.under_way = false;
        self.slot.failure.lock().take().map_or(Ok(()), |error| Err(Error::from(error)))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // Whoever cares has asked for the result before.
        let _ = self.wait();
    }
}
