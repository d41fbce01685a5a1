//! A buffer for one transfer at a time between memory and a file: of temporary files, and of whoever reads a file past the
//! page frames.
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
use std::sync::atomic::{AtomicBool, Ordering};

/// How a transfer went.
#[derive(Debug, Default)]
struct Slot {
    done: AtomicBool,
    failure: Mutex<Option<gannet_io::Error>>,
}

impl Completion for Slot {
    fn complete(&self, _token: u64, result: gannet_io::Result<()>) {
        *self.failure.lock() = result.err();
        self.done.store(true, Ordering::Release);
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
        self.slot.done.store(false, Ordering::Relaxed);
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

    /// Waits for the transfer, if there is one.
    pub(crate) fn wait(&mut self) -> Result<()> {
        if !self.under_way {
            return Ok(());
        }
        self.queue.wait_until(&mut || self.slot.done.load(Ordering::Acquire));
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
