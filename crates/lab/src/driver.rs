//! What a store has to offer to take part: the same few key-value operations for everybody.

use crate::random::Shuffle;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The rows of a workload: keys are their numbers in eight big-endian bytes, values are filled from the number.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// How many.
    pub count: u64,
    /// Bytes of a value.
    pub value_len: usize,
}

/// Bytes of a key.
pub const KEY_LEN: usize = 8;

/// A key.
pub type Key = [u8; KEY_LEN];

impl Rows {
    /// The key of a row.
    pub fn key(number: u64) -> Key {
        number.to_be_bytes()
    }

    /// Puts a row's value into `value`: cheap, different for each row and version, and not compressible to nothing.
    pub fn value(&self, number: u64, version: u64, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&number.to_le_bytes()[..self.value_len.min(8)]);
        let mut random = crate::random::Random::new(number ^ version.rotate_left(32));
        while value.len() < self.value_len {
            let rest = self.value_len - value.len();
            value.extend_from_slice(&random.next_u64().to_le_bytes()[..rest.min(8)]);
        }
    }
}

/// The order in which rows are loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadOrder {
    /// Ascending, by whatever the store has for sorted input.
    Sorted,
    /// By no pattern, as ordinary inserts.
    Random,
}

impl LoadOrder {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            LoadOrder::Sorted => "sorted",
            LoadOrder::Random => "random",
        }
    }

    /// The row at a place of this order.
    pub fn row(self, place: u64, rows: &Rows) -> u64 {
        match self {
            LoadOrder::Sorted => place,
            LoadOrder::Random => Shuffle::new(rows.count, 42).at(place),
        }
    }
}

/// What a store has counted since it was opened; zero where it does not tell.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counters {
    /// Requests the device got for reading.
    pub device_reads: u64,
    /// Bytes of them.
    pub device_read_bytes: u64,
    /// Requests the device got for writing.
    pub device_writes: u64,
    /// Bytes of them.
    pub device_write_bytes: u64,
    /// Writes of the log somebody waited for.
    pub commit_writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Pages somebody waited for.
    pub page_misses: u64,
    /// Pages read ahead, or in a batch.
    pub pages_prefetched: u64,
    /// Times somebody found no clean frame.
    pub frame_waits: u64,
}

impl Counters {
    /// What the device did in so many seconds.
    pub fn device_json(&self, seconds: f64) -> Value {
        json!({
            "reads": self.device_reads,
            "reads_per_second": self.device_reads as f64 / seconds,
            "read_bytes": self.device_read_bytes,
            "read_bytes_per_second": self.device_read_bytes as f64 / seconds,
            "writes": self.device_writes,
            "write_bytes": self.device_write_bytes,
            "commit_writes": self.commit_writes,
            "syncs": self.syncs,
        })
    }

    /// What the pool of pages did.
    pub fn pool_json(&self) -> Value {
        json!({
            "page_misses": self.page_misses,
            "pages_prefetched": self.pages_prefetched,
            "frame_waits": self.frame_waits,
        })
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            device_reads: self.device_reads - earlier.device_reads,
            device_read_bytes: self.device_read_bytes - earlier.device_read_bytes,
            device_writes: self.device_writes - earlier.device_writes,
            device_write_bytes: self.device_write_bytes - earlier.device_write_bytes,
            commit_writes: self.commit_writes - earlier.commit_writes,
            syncs: self.syncs - earlier.syncs,
            page_misses: self.page_misses - earlier.page_misses,
            pages_prefetched: self.pages_prefetched - earlier.pages_prefetched,
            frame_waits: self.frame_waits - earlier.frame_waits,
        }
    }
}

/// What a scan found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Scanned {
    /// Rows.
    pub count: u64,
    /// Wrapping sum of the first eight bytes of all values.
    pub sum: u64,
}

/// An open store.
pub trait Driver: Sync {
    /// The store's name and version.
    fn name(&self) -> String;

    /// Every setting that matters, as it is in force.
    fn settings(&self) -> Value;

    /// Fills the store.
    fn load(&self, rows: &Rows, order: LoadOrder) -> Result<()>;

    /// Runs `body` with a session of its own: one thread's view of the store.
    fn session(&self, body: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()>;

    /// What the store has counted.
    fn counters(&self) -> Counters;

    /// What it had to do when it was opened, and what of that is still to be done; `None` when it does not say.
    fn restart(&self) -> Option<Value> {
        None
    }

    /// Waits until nothing of that is left.
    fn await_restart(&self) {}

    /// Bytes of log that a start would have to go through now; `None` when it does not say.
    fn log_bytes(&self) -> Option<u64> {
        None
    }

    /// What its memory is used for, in bytes; `None` when it does not say.
    fn memory(&self) -> Option<Value> {
        None
    }

    /// Its files, for asking what the OS has cached of them.
    fn files(&self) -> Vec<PathBuf>;

    /// Closes it properly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// One thread's view of a store.
pub trait Session {
    /// Begins a read transaction with one snapshot, for all look-ups until [`Session::end_reading`].
    fn begin_reading(&mut self) -> Result<()>;

    /// Ends it.
    fn end_reading(&mut self) -> Result<()>;

    /// Looks a key up; false when it is not there. Gives the value's bytes to nobody, but gets hold of all of them.
    fn get(&mut self, key: &Key) -> Result<bool>;

    /// The value of a key, where it is there.
    fn value(&mut self, key: &Key) -> Result<Option<Vec<u8>>>;

    /// Looks many keys up; gives the number of those that are there.
    fn multi_get(&mut self, keys: &[Key]) -> Result<usize>;

    /// Goes through all rows in order of their keys.
    fn scan(&mut self) -> Result<Scanned>;

    /// Writes a row in a transaction of its own, durable on return.
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()>;

    /// Changes a row in a transaction of its own, durable on return; false when the row is not there.
    fn update(&mut self, key: &Key, value: &[u8]) -> Result<bool>;
}
