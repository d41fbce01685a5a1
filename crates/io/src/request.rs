use crate::{Class, File, Result};
use std::sync::Arc;

/// Whether a write has to be durable when it completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Durable after the next [`File::sync`].
    Cached,
    /// Durable on completion (`RWF_DSYNC`).
    Durable,
}

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the device into memory.
    Read,
    /// From memory to the device.
    Write(Durability),
    /// From memory to the device, whole or not at all; of a length that is among [`File::atomic_writes`].
    WriteAtomic(Durability),
}

/// A piece of memory a request reads into or writes from.
#[derive(Clone, Copy, Debug)]
pub struct IoSlice {
    /// First byte.
    pub address: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

// SAFETY: an `IoSlice` is only an address; who may touch the memory is settled by the contract of `Queue::submit`.
#[expect(unsafe_code, reason = "addresses travel between threads inside requests")]
unsafe impl Send for IoSlice {}

/// One positioned transfer between a file and memory: the slices, in order, are one contiguous range of the file.
#[derive(Debug)]
pub struct Request {
    /// The file; it must belong to the disk that made the queue.
    pub file: Arc<dyn File>,
    /// Which way.
    pub direction: Direction,
    /// For whom.
    pub class: Class,
    /// First byte in the file.
    pub offset: u64,
    /// Memory, in file order. At most 1024 slices.
    pub slices: Vec<IoSlice>,
    /// Handed back on completion.
    pub token: u64,
}

impl Request {
    /// Total length in bytes.
    pub fn len(&self) -> usize {
        self.slices.iter().map(|s| s.len).sum()
    }

    /// Whether nothing is to be transferred.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Told when a request has ended.
pub trait Completion: Send + Sync {
    /// The request with this token has ended. Called exactly once for each request.
    fn complete(&self, token: u64, result: Result<()>);
}
