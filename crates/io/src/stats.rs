//! Counters and latency histograms, per class. Counting costs a few relaxed additions.

use crate::Class;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Kinds of operations counted apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Syncs.
    Sync,
}

const BUCKETS: usize = 32 * 8;

/// Latencies in buckets that widen by 9–12 % each: eight per power of two.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Histogram {
    /// Adds one latency.
    pub fn record(&self, latency: Duration) {
        self.buckets[Self::bucket(latency.as_nanos() as u64)].fetch_add(1, Relaxed);
    }

    fn bucket(nanos: u64) -> usize {
        // 8 steps per power of two, starting at 256 ns.
        let value = (nanos >> 8).max(1);
        let power = 63 - value.leading_zeros() as usize;
        let step = if power >= 3 { (value >> (power - 3)) & 7 } else { (value << (3 - power)) & 7 };
        (power * 8 + step as usize).min(BUCKETS - 1)
    }

    /// Number of latencies recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Relaxed)).sum()
    }

    /// The latency that a `share` (0.0–1.0) of requests did not exceed, within 13 %; zero when nothing was recorded.
    pub fn quantile(&self, share: f64) -> Duration {
        let total = self.count();
        let wanted = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += bucket.load(Relaxed);
            if seen >= wanted {
                let (power, step) = (index / 8, index % 8);
                let nanos = ((8 + step as u64 + 1) << power << 8) >> 3;
                return Duration::from_nanos(nanos);
            }
        }
        Duration::ZERO
    }
}

/// Figures of one class and operation.
#[derive(Debug, Default)]
pub struct Counter {
    /// Requests completed.
    pub requests: AtomicU64,
    /// Bytes transferred.
    pub bytes: AtomicU64,
    /// Requests that failed.
    pub errors: AtomicU64,
    /// Nanoseconds from submission to completion, of all requests together.
    pub nanos: AtomicU64,
    /// Latencies from submission to completion.
    pub latency: Histogram,
}

/// Everything counted on one disk.
#[derive(Debug, Default)]
pub struct Stats {
    counters: [[Counter; 3]; Class::ALL.len()],
}

/// A copy of the plain counters at one time: `[class][operation] = (requests, bytes)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Requests and bytes by class and operation.
    pub counts: [[(u64, u64); 3]; Class::ALL.len()],
}

impl Stats {
    /// The figures of a class and operation.
    pub fn counter(&self, class: Class, operation: Operation) -> &Counter {
        &self.counters[class as usize][operation as usize]
    }

    /// Counts one completed request.
    pub fn record(&self, class: Class, operation: Operation, bytes: u64, latency: Duration, ok: bool) {
        let counter = self.counter(class, operation);
        counter.requests.fetch_add(1, Relaxed);
        counter.bytes.fetch_add(bytes, Relaxed);
        counter.nanos.fetch_add(latency.as_nanos() as u64, Relaxed);
        counter.latency.record(latency);
        if !ok {
            counter.errors.fetch_add(1, Relaxed);
        }
    }

    /// The plain counters now.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (class, row) in self.counters.iter().enumerate() {
            for (operation, counter) in row.iter().enumerate() {
                snapshot.counts[class][operation] =
                    (counter.requests.load(Relaxed), counter.bytes.load(Relaxed));
            }
        }
        snapshot
    }
}

impl Snapshot {
    /// Requests and bytes of `operation`, all classes together.
    pub fn total(&self, operation: Operation) -> (u64, u64) {
        self.counts.iter().fold((0, 0), |sum, row| {
            let (requests, bytes) = row[operation as usize];
            (sum.0 + requests, sum.1 + bytes)
        })
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let mut difference = *self;
        for (row, old_row) in difference.counts.iter_mut().zip(&earlier.counts) {
            for (cell, old) in row.iter_mut().zip(old_row) {
                *cell = (cell.0 - old.0, cell.1 - old.1);
            }
        }
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.record(Duration::from_micros(us)));
        for (share, us) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let got = histogram.quantile(share).as_nanos() as f64 / 1000.0;
            assert!((got / us - 1.0).abs() < 0.13, "{share}: {got} against {us}");
        }
    }
}
