//! Whether others keep all processors busy.
//!
//! Threads that stand by run where a processor has nothing else to do. Where others keep all of them busy, there are moments like that still: whoever
//! stands by gets a twentieth to a tenth of the processors by them. Users lose more than that, as a processor that works for a job does not look
//! for what waits at another one. So who stands by rests there.

use super::reserve::processors;
use gannet_base::clock::{self, Instant};
use gannet_base::sync::Mutex;
use gannet_base::thread;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// How often it is looked, and after how long what was seen before says nothing any more.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const TOO_LONG: Duration = Duration::from_secs(5);
/// Others keep processors busy where less than this part of them was nobody's, or jobs'.
const FREE_PART: u32 = 7;
/// A look that takes longer was interrupted, and says nothing.
const LOOK_MOST: Duration = Duration::from_millis(20);

/// See the module's head. One for each engine.
#[derive(Debug, Default)]
pub(super) struct Saturation {
    /// Nanoseconds of processors that threads have had which stand by, and their reserves: what other threads of jobs have counts as others'.
    ours: AtomicU64,
    saturated: AtomicBool,
    looked: Mutex<Option<Looked>>,
}

/// When it was looked, how long processors had been idle by then, and how long ours had had them.
#[derive(Clone, Copy, Debug)]
struct Looked {
    at: Instant,
    idle: Duration,
    ours: Duration,
}

impl Saturation {
    /// Others keep all processors busy, as it was looked at last.
    pub(super) fn is_there(&self) -> bool {
        self.saturated.load(Relaxed)
    }

    /// A thread that stands by, or a reserve, has had a processor for so long.
    pub(super) fn add(&self, cpu: Duration) {
        self.ours.fetch_add(cpu.as_nanos() as u64, Relaxed);
    }

    /// Looks, where it is time. The caller holds no lock: the system takes a moment to answer.
    pub(super) fn look(&self) {
        let Some(mut looked) = self.looked.try_lock() else { return };
        if looked.is_none_or(|before| before.at.elapsed() >= LOOK_EVERY) {
            let at = clock::now();
            let Some(idle) = thread::idle_time() else { return };
            let ours = Duration::from_nanos(self.ours.load(Relaxed));
            if at.elapsed() <= LOOK_MOST {
                self.judge(&mut looked, Looked { at, idle, ours }, processors());
            }
        }
    }

    #[cfg(test)]
    pub(super) fn set(&self, is_there: bool) {
        self.saturated.store(is_there, Relaxed);
    }

    fn judge(&self, looked: &mut Option<Looked>, now: Looked, processors: u32) {
        let before = looked.replace(now);
        let Some((before, passed)) = before.map(|before| (before, now.at - before.at)) else { return };
        let free = now.idle.saturating_sub(before.idle) + now.ours.saturating_sub(before.ours);
        self.saturated.store(passed < TOO_LONG && free < passed * processors / FREE_PART, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_saturated_where_neither_nobody_nor_jobs_had_them() {
        let saturation = Saturation::default();
        let (start, mut looked) = (clock::now(), None);
        for (seconds, idle, ours, wanted) in [
            (0, 100, 0, false),
            (1, 150, 0, true),
            (2, 200, 50, true),
            (3, 250, 400, false),
            (4, 600, 400, false),
            (5, 600, 400, true),
            (11, 600, 400, false),
        ] {
            let at = start + Duration::from_secs(seconds);
            let (idle, ours) = (Duration::from_millis(idle), Duration::from_millis(ours));
            saturation.judge(&mut looked, Looked { at, idle, ours }, 2);
            assert_eq!(saturation.is_there(), wanted, "{seconds}");
        }
    }
}
