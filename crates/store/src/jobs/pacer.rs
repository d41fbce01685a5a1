//! How fast jobs may go beside others.
//!
//! The device says how others fare: what their requests (classes commit and foreground) take now, against what they take while
//! jobs pause. Jobs pause for that now and then, when somebody is there. As long as others are as fast as they should be, jobs
//! get faster, by steps; when others are slowed down, jobs get slower by half (additive increase and multiplicative decrease, as in
//! V. Jacobson, "Congestion avoidance and control", 1988). Where nobody else is there, nothing holds jobs back.
//!
//! # Invariants
//! 1. However others fare, jobs together get [`FLOOR`] of what they have got when they were fastest, and at least [`FLOOR_BYTES`]: every
//!    job ends.
//! 2. Nobody waits here with a latch or a lock that others need.

use gannet_base::clock::{self, Instant};
use gannet_base::sync::Mutex;
use gannet_io::stats::{Operation, Stats};
use gannet_io::{Class, Disk};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How often it is looked how others fare.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long jobs pause to see how fast others are without them, and how often.
const PROBE: Duration = Duration::from_millis(60);
const PROBE_EVERY: Duration = Duration::from_secs(4);
/// Others were there if so many of their requests ended between two looks.
const PRESENT: u64 = 4;
/// Or if they have waited for their requests for such a part of that time.
const WAITING: f64 = 0.2;
/// By how much others may be slowed, where nobody says otherwise.
const SLOWDOWN: f64 = 1.25;
/// The least that jobs get: a part of their highest rate, and bytes a second.
const FLOOR: f64 = 1.0 / 16.0;
const FLOOR_BYTES: f64 = (4 << 20) as f64;
/// What a look adds to the rate, as a part of it, and what it leaves of it.
const FASTER: f64 = 1.15;
const SLOWER: f64 = 0.5;
/// Requests of others that count: those that somebody waits for.
const OTHERS: [(Class, Operation); 3] = [
    (Class::Commit, Operation::Write),
    (Class::Foreground, Operation::Read),
    (Class::Commit, Operation::Sync),
];

/// How a job is paced.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Pace {
    /// So that others are slowed by no more than a quarter; or as [`Engine::set_job_latency_target`](crate::Engine::set_job_latency_target)
    /// says.
    #[default]
    Auto,
    /// So that what others ask of the device takes no longer than this, on average.
    Latency(Duration),
    /// As fast as it goes.
    Full,
}

/// Requests of others that have ended, by kind: how many, and nanoseconds in all.
type Ended = [(u64, u64); OTHERS.len()];

#[derive(Debug)]
struct State {
    /// Bytes a second.
    rate: f64,
    /// Bytes that may be asked for now; below 0 when more was taken than there was.
    tokens: f64,
    refilled: Instant,
    looked: Instant,
    before: Ended,
    /// What a request of others takes without jobs, in nanoseconds, by kind; 0 for unknown.
    alone: [f64; OTHERS.len()],
    probed: Option<Instant>,
    probe_until: Option<Instant>,
    /// Others are there.
    beside: bool,
    /// Bytes taken since the last look, and the most that was taken in a second.
    taken: u64,
    fastest: f64,
}

/// See the module's head. One for each engine, whose jobs share a device.
#[derive(Debug)]
pub(crate) struct Pacer {
    disk: Arc<dyn Disk>,
    jobs: AtomicUsize,
    /// What others' requests may take beside jobs of [`Pace::Auto`], in nanoseconds; 0: see there.
    target: AtomicU64,
    state: Mutex<State>,
}

impl Pacer {
    pub(crate) fn new(disk: &Arc<dyn Disk>) -> Arc<Self> {
        let now = clock::now();
        Arc::new(Pacer {
            disk: Arc::clone(disk),
            jobs: AtomicUsize::new(0),
            target: AtomicU64::new(0),
            state: Mutex::new(State {
                rate: f64::INFINITY,
                tokens: 0.0,
                refilled: now,
                looked: now,
                before: ended(disk.stats()),
                alone: [0.0; OTHERS.len()],
                probed: None,
                probe_until: None,
                beside: false,
                taken: 0,
                fastest: 0.0,
            }),
        })
    }

    /// From now on jobs that do not say are paced so that what others ask of the device takes no longer than this on average; `None`: so
    /// that others are slowed by no more than a quarter.
    pub(crate) fn set_target(&self, target: Option<Duration>) {
        let nanos = target.map_or(0, |target| u64::try_from(target.as_nanos()).unwrap_or(u64::MAX));
        self.target.store(nanos, Ordering::Relaxed);
    }

    /// What holds for a job that asks for this pace.
    fn in_force(&self, pace: Pace) -> Pace {
        match (pace, self.target.load(Ordering::Relaxed)) {
            (Pace::Auto, nanos) if nanos > 0 => Pace::Latency(Duration::from_nanos(nanos)),
            (pace, _) => pace,
        }
    }

    /// A job begins.
    pub(super) fn enter(&self) {
        if self.jobs.fetch_add(1, Ordering::AcqRel) == 0 {
            let mut state = self.state.lock();
            // Nothing is known of now; what was seen is of other times.
            state.before = ended(self.disk.stats());
            state.looked = clock::now();
            state.beside = false;
            (state.probed, state.probe_until) = (None, None);
            state.rate = f64::INFINITY;
            state.taken = 0;
        }
    }

    /// A job has ended.
    pub(super) fn leave(&self) {
        self.jobs.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits until a job may ask for so many bytes, or it is to give up; says for how long.
    pub(super) fn take(&self, pace: &Pace, bytes: u64, give_up: &dyn Fn() -> bool) -> Duration {
        let pace = &self.in_force(*pace);
        if *pace == Pace::Full {
            return Duration::ZERO;
        }
        let begun = clock::now();
        let mut taken = false;
        loop {
            let now = clock::now();
            let wait = {
                let mut state = self.state.lock();
                self.look(&mut state, pace, now);
                if !taken {
                    taken = true;
                    state.taken += bytes;
                    state.tokens -= bytes as f64;
                }
                state.wait(now)
            };
            if wait.is_zero() || give_up() {
                return if now == begun { Duration::ZERO } else { begun.elapsed() };
            }
            clock::sleep(wait.min(LOOK_EVERY));
        }
    }

    /// Looks how others fare, where it is time.
    fn look(&self, state: &mut State, pace: &Pace, now: Instant) {
        state.refill(now);
        let since = now - state.looked;
        // A probe is looked at as a whole.
        let due = state.probe_until.unwrap_or(state.looked + LOOK_EVERY);
        if now < due {
            return;
        }
        let after = ended(self.disk.stats());
        let seen: Ended =
            std::array::from_fn(|i| (after[i].0 - state.before[i].0, after[i].1 - state.before[i].1));
        let got = state.taken as f64 / since.as_secs_f64();
        (state.before, state.looked, state.taken) = (after, now, 0);
        let requests: u64 = seen.iter().map(|(requests, _)| requests).sum();
        let waited: u64 = seen.iter().map(|(_, nanos)| nanos).sum();
        // Who is slowed down much asks for little.
        state.beside = requests >= PRESENT || waited as f64 >= since.as_nanos() as f64 * WAITING;
        if !state.beside {
            state.rate = f64::INFINITY;
            state.tokens = 0.0;
            state.probe_until = None;
            state.fastest = state.fastest.max(got);
            return;
        }
        state.react(pace, &seen, got, now);
    }
}

impl State {
    fn refill(&mut self, now: Instant) {
        let since = (now - self.refilled).as_secs_f64();
        self.refilled = now;
        if self.rate.is_finite() {
            // What was not asked for in time is gone.
            self.tokens = (self.tokens + self.rate * since).min(self.rate * LOOK_EVERY.as_secs_f64());
        } else {
            self.tokens = 0.0;
        }
    }

    /// How long whoever has just taken something waits.
    fn wait(&self, now: Instant) -> Duration {
        if let Some(until) = self.probe_until.filter(|&until| until > now) {
            return until - now;
        }
        if self.tokens >= 0.0 || !self.rate.is_finite() {
            return Duration::ZERO;
        }
        Duration::from_secs_f64((-self.tokens / self.rate).min(1.0))
    }

    /// Others are there, and fared like this since the last look.
    fn react(&mut self, pace: &Pace, seen: &Ended, got: f64, now: Instant) {
        if self.probe_until.take().is_some() {
            self.probed = Some(now);
            for (alone, &(requests, nanos)) in self.alone.iter_mut().zip(seen) {
                if requests > 0 {
                    *alone = nanos as f64 / requests as f64;
                }
            }
            if !self.rate.is_finite() {
                self.rate = (self.fastest / 4.0).max(self.floor());
            }
            return;
        }
        let probe = matches!(pace, Pace::Auto) && self.probed.is_none_or(|at| now - at >= PROBE_EVERY);
        if probe {
            self.probe_until = Some(now + PROBE);
            return;
        }
        if !self.rate.is_finite() {
            self.rate = got.max(self.floor());
        }
        let limit = match pace {
            Pace::Latency(_) => 1.0,
            Pace::Auto | Pace::Full => SLOWDOWN,
        };
        if self.slowdown(pace, seen) > limit {
            self.rate = (self.rate * SLOWER).max(self.floor());
        } else if got >= self.rate * 0.7 {
            // Faster than it can be used it need not be.
            self.rate *= FASTER;
        }
        self.fastest = self.fastest.max(got);
    }

    fn floor(&self) -> f64 {
        (self.fastest * FLOOR).max(FLOOR_BYTES)
    }

    /// By how much others are slowed: 1 for not at all.
    fn slowdown(&self, pace: &Pace, seen: &Ended) -> f64 {
        let (mut weight, mut sum) = (0.0, 0.0);
        for (&alone, &(requests, nanos)) in self.alone.iter().zip(seen) {
            let wanted = match pace {
                Pace::Latency(latency) => latency.as_nanos() as f64,
                Pace::Auto | Pace::Full => alone,
            };
            if requests > 0 && wanted > 0.0 {
                weight += requests as f64;
                sum += nanos as f64 / wanted;
            }
        }
        if weight > 0.0 { sum / weight } else { 1.0 }
    }
}

fn ended(stats: &Stats) -> Ended {
    OTHERS.map(|(class, operation)| {
        let counter = stats.counter(class, operation);
        (counter.requests.load(Ordering::Relaxed), counter.nanos.load(Ordering::Relaxed))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_io::sim::SimDisk;

    #[test]
    fn a_target_is_for_jobs_that_do_not_say() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let pacer = Pacer::new(&disk);
        let (target, own) = (Duration::from_millis(3), Duration::from_millis(1));
        assert_eq!(pacer.in_force(Pace::Auto), Pace::Auto);
        pacer.set_target(Some(target));
        assert_eq!(pacer.in_force(Pace::Auto), Pace::Latency(target));
        assert_eq!(pacer.in_force(Pace::Latency(own)), Pace::Latency(own));
        assert_eq!(pacer.in_force(Pace::Full), Pace::Full);
        pacer.set_target(None);
        assert_eq!(pacer.in_force(Pace::Auto), Pace::Auto);
    }

    #[test]
    fn a_job_gets_slower_where_others_take_longer_than_the_target() {
        let state = |alone: f64| State {
            rate: 64e6,
            tokens: 0.0,
            refilled: clock::now(),
            looked: clock::now(),
            before: Ended::default(),
            alone: [alone; OTHERS.len()],
            probed: None,
            probe_until: None,
            beside: true,
            taken: 0,
            fastest: 0.0,
        };
        // Ten requests of 2 ms each; alone they would take 1.9 ms.
        let seen: Ended = [(0, 0), (10, 20_000_000), (0, 0)];
        let after = |pace: Pace| {
            let mut state = state(1.9e6);
            state.probed = Some(clock::now());
            state.react(&pace, &seen, 64e6, clock::now());
            state.rate
        };
        assert!(after(Pace::Auto) > 64e6);
        assert!(after(Pace::Latency(Duration::from_millis(1))) < 64e6);
        assert!(after(Pace::Latency(Duration::from_millis(5))) > 64e6);
    }
}
