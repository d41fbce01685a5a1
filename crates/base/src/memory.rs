//! One memory budget.
//!
//! # What it guarantees
//! 1. The sum of all live [`Charge`]s of a [`Budget`] never exceeds its limit.
//! 2. A charge is given back exactly once, when it is dropped, whatever path leads there.
//! 3. Nobody waits here: a charge that does not fit fails at once with [`OverBudget`], which says what was asked
//!    and who holds how much; waiting, spilling or shrinking is the caller's decision.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What memory is used for; shown to users by these names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Page frames and their descriptors.
    Pool,
    /// Log buffers and the log's in-memory index.
    Log,
    /// Write-back and other I/O buffers.
    Io,
    /// Transactions, snapshots, status cache and row locks.
    Transactions,
    /// Cursors, sorts, hashes and other memory of running statements.
    Work,
    /// Connections, sessions and plans.
    Sessions,
}

impl Purpose {
    /// Every purpose, in display order.
    pub const ALL: [Purpose; 6] =
        [Purpose::Pool, Purpose::Log, Purpose::Io, Purpose::Transactions, Purpose::Work, Purpose::Sessions];

    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Pool => "pool",
            Purpose::Log => "log",
            Purpose::Io => "io",
            Purpose::Transactions => "transactions",
            Purpose::Work => "work",
            Purpose::Sessions => "sessions",
        }
    }
}

/// A request that does not fit into the budget. All figures in bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{requested} bytes of {} memory do not fit: {used} of {limit} bytes are in use", purpose.name())]
pub struct OverBudget {
    /// What the memory was for.
    pub purpose: Purpose,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes in use, all purposes together.
    pub used: u64,
    /// The budget's limit in bytes.
    pub limit: u64,
}

#[derive(Debug)]
struct Inner {
    limit: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
    by_purpose: [AtomicU64; Purpose::ALL.len()],
    peak_by_purpose: [AtomicU64; Purpose::ALL.len()],
}

/// A limit in bytes that many consumers share. Cloning gives another handle to the same budget.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Inner>);

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Budget(Arc::new(Inner {
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            by_purpose: Default::default(),
            peak_by_purpose: Default::default(),
        }))
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit.load(Relaxed)
    }

    /// Bytes charged now.
    pub fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// The most bytes ever charged at one time.
    pub fn peak(&self) -> u64 {
        self.0.peak.load(Relaxed)
    }

    /// Bytes charged now for `purpose`.
    pub fn used_for(&self, purpose: Purpose) -> u64 {
        self.0.by_purpose[purpose as usize].load(Relaxed)
    }

    /// The most bytes ever charged at one time for `purpose`.
    pub fn peak_for(&self, purpose: Purpose) -> u64 {
        self.0.peak_by_purpose[purpose as usize].load(Relaxed)
    }

    /// Charges `bytes`, or fails at once when they do not fit.
    pub fn charge(&self, purpose: Purpose, bytes: u64) -> Result<Charge, OverBudget> {
        self.add(purpose, bytes, self.limit())?;
        Ok(Charge { budget: self.clone(), purpose, bytes })
    }

    fn add(&self, purpose: Purpose, bytes: u64, limit: u64) -> Result<(), OverBudget> {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit);
        match self.0.used.fetch_update(Relaxed, Relaxed, fits) {
            Ok(before) => {
                self.0.peak.fetch_max(before + bytes, Relaxed);
                let before = self.0.by_purpose[purpose as usize].fetch_add(bytes, Relaxed);
                self.0.peak_by_purpose[purpose as usize].fetch_max(before + bytes, Relaxed);
                Ok(())
            }
            Err(used) => Err(OverBudget { purpose, requested: bytes, used, limit }),
        }
    }

    fn sub(&self, purpose: Purpose, bytes: u64) {
        self.0.used.fetch_sub(bytes, Relaxed);
        self.0.by_purpose[purpose as usize].fetch_sub(bytes, Relaxed);
    }
}

/// Bytes charged to a [`Budget`] until this value is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    purpose: Purpose,
    bytes: u64,
}

impl Charge {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the charge to `bytes`; on failure it stays as it was.
    pub fn resize(&mut self, bytes: u64) -> Result<(), OverBudget> {
        self.resize_leaving(bytes, 0)
    }

    /// The same, but grows only where `left` bytes of the budget stay free for others.
    pub fn resize_leaving(&mut self, bytes: u64, left: u64) -> Result<(), OverBudget> {
        if bytes > self.bytes {
            let limit = self.budget.limit().saturating_sub(left);
            self.budget.add(self.purpose, bytes - self.bytes, limit)?;
        } else {
            self.budget.sub(self.purpose, self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.sub(self.purpose, self.bytes);
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes used", self.used(), self.limit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_never_exceed_the_limit_and_come_back() {
        let budget = Budget::new(100);
        let mut a = budget.charge(Purpose::Pool, 60).unwrap();
        let error = budget.charge(Purpose::Work, 41).unwrap_err();
        assert_eq!((error.used, error.requested, error.limit), (60, 41, 100));
        assert!(error.to_string().contains("work"));
        a.resize(100).unwrap();
        assert!(a.resize(101).is_err());
        a.resize(60).unwrap();
        assert!(a.resize_leaving(91, 10).is_err() && a.bytes() == 60);
        a.resize_leaving(90, 10).unwrap();
        a.resize(100).unwrap();
        assert_eq!(budget.used_for(Purpose::Pool), 100);
        drop(a);
        assert_eq!((budget.used(), budget.peak()), (0, 100));
        let _work = budget.charge(Purpose::Work, 7).unwrap();
        assert_eq!((budget.peak_for(Purpose::Pool), budget.peak_for(Purpose::Work)), (100, 7));
    }
}
