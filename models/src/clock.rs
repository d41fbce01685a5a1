//! Time, which stands still: whatever has a limit reaches it when its thread runs.

use std::ops::Sub;
use std::time::Duration;

/// The one point in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Instant;

impl Instant {
    /// None.
    pub fn elapsed(self) -> Duration {
        Duration::ZERO
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, _: Instant) -> Duration {
        Duration::ZERO
    }
}

/// Now.
pub fn now() -> Instant {
    Instant
}
