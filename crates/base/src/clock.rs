//! Time, real or simulated.

use crate::sim;
use std::ops::{Add, Sub};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point on the monotonic clock; only differences mean something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    /// Nanoseconds since an arbitrary start.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `nanos` nanoseconds after the arbitrary start.
    pub fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Time passed since this instant.
    pub fn elapsed(self) -> Duration {
        now() - self
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration.as_nanos() as u64))
    }
}

/// The current instant.
pub fn now() -> Instant {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    if sim::active() {
        return Instant(sim::now_ns().expect("inside a simulation"));
    }
    // One second ahead, so that 0 can stand for "never".
    Instant(START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64 + 1_000_000_000)
}

/// Wall-clock time in microseconds since 1970-01-01 UTC.
pub fn unix_micros() -> u64 {
    if sim::active() {
        return 1_700_000_000_000_000 + sim::now_ns().expect("inside a simulation") / 1000;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}

/// How long the calling thread has had a processor. In a simulation, where nobody waits for one, it is as [`now`].
pub fn thread_cpu() -> Duration {
    if sim::active() {
        return Duration::from_nanos(now().as_nanos());
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Keeps a processor busy until the calling thread has had it for so long; gives how long that took.
pub fn spin(cpu: Duration) -> Duration {
    let (begun, had) = (now(), thread_cpu());
    if sim::active() {
        sleep(cpu);
    }
    // To ask for the time is a call of the system.
    while thread_cpu() - had < cpu {
        (0..1000).for_each(|_| std::hint::spin_loop());
    }
    begun.elapsed()
}

/// Suspends the calling thread.
pub fn sleep(duration: Duration) {
    if sim::active() {
        // Nobody wakes key 0: only the deadline ends the wait.
        sim::block(0, Some(duration));
    } else {
        std::thread::sleep(duration);
    }
}

/// As [`unix_micros`], as of the kernel's last tick: some milliseconds late at most, for a fraction of the cost.
pub fn unix_micros_coarse() -> u64 {
    if sim::active() {
        return unix_micros();
    }
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        u64::try_from(time.tv_sec).map_or(0, |seconds| seconds * 1_000_000 + time.tv_nsec as u64 / 1000)
    }
    #[cfg(not(target_os = "linux"))]
    unix_micros()
}
