//! Latencies in buckets at most 1.6 % wide: exact enough for ratios of percentiles, small enough for every thread.

use serde_json::{Value, json};
use std::time::Duration;

const STEP_BITS: u32 = 6;
const STEPS: usize = 1 << STEP_BITS;
const BUCKETS: usize = STEPS * 40;

/// A histogram of durations from 1 ns to about half an hour.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: vec![0; BUCKETS], count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// Adds `times` operations that took `latency` each.
    pub fn record(&mut self, latency: Duration, times: u64) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += times;
        self.count += times;
        self.sum_ns += u128::from(nanos) * u128::from(times);
        self.max_ns = self.max_ns.max(nanos);
    }

    /// Adds everything that `other` holds.
    pub fn merge(&mut self, other: &Histogram) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(into, from)| *into += from);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Number of operations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latency in microseconds that a `share` (0.0–1.0) of the operations did not exceed.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, times) in self.buckets.iter().enumerate() {
            seen += times;
            if seen >= wanted {
                return (upper_ns(index).min(self.max_ns)) as f64 / 1000.0;
            }
        }
        0.0
    }

    /// The longest latency in microseconds.
    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1000.0
    }

    /// All buckets that hold something, as `[upper bound in µs, operations]`: percentiles can be computed anew from them, and those of several be put together.
    pub fn buckets_json(&self) -> Value {
        let buckets = self.buckets.iter().enumerate().filter(|(_, times)| **times > 0);
        buckets.map(|(index, times)| json!([upper_ns(index) as f64 / 1000.0, times])).collect()
    }

    /// Percentiles, mean, and all buckets.
    pub fn to_json(&self) -> Value {
        json!({
            "count": self.count,
            "mean": if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 / 1000.0 },
            "p50": self.quantile_us(0.5),
            "p95": self.quantile_us(0.95),
            "p99": self.quantile_us(0.99),
            "p999": self.quantile_us(0.999),
            "max": self.max_ns as f64 / 1000.0,
            "buckets": self.buckets_json(),
        })
    }
}

/// Below 64 ns every nanosecond has a bucket; from there on every power of two has 64.
fn bucket(nanos: u64) -> usize {
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let power = 63 - nanos.leading_zeros();
    let step = (nanos >> (power - STEP_BITS)) as usize - STEPS;
    ((power - STEP_BITS + 1) as usize * STEPS + step).min(BUCKETS - 1)
}

/// The largest duration a bucket holds.
fn upper_ns(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let shift = (bucket / STEPS - 1) as u32;
    (((bucket % STEPS + STEPS + 1) as u64) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_two_percent() {
        let mut histogram = Histogram::default();
        (1..=100_000).for_each(|us| histogram.record(Duration::from_micros(us), 1));
        for share in [0.001, 0.5, 0.99, 1.0] {
            let exact = share * 100_000.0;
            let ratio = histogram.quantile_us(share) / exact;
            assert!((0.999..1.02).contains(&ratio), "{share}: {ratio}");
        }
    }

    #[test]
    fn buckets_follow_one_another() {
        for nanos in (0..5000).chain((1..40).map(|p| 1_u64 << p)) {
            assert!(upper_ns(bucket(nanos)) >= nanos);
            assert!(nanos == 0 || bucket(nanos - 1) <= bucket(nanos));
        }
    }
}
