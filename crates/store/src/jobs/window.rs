//! How many permits jobs may hold at a time.
//!
//! The window of all jobs of an engine together bounds what they have under way, as that of a connection does: where the device is slow, jobs
//! are as slow by themselves. Below 1 it is the part of the time that jobs work: after each piece they rest. Where nobody else is there, nothing
//! holds jobs back at the device.
//!
//! The device says how others fare: what their requests (classes commit and foreground) take now, against what they take while
//! no job runs, or jobs pause. Jobs pause for that now and then, when somebody is there; and they begin as if somebody were. Each look changes
//! the window by a factor: the more, the farther others are from as slow as they may be: what users' statements take, half as long again; at
//! the device by more, up to a limit, where these wait for it only a part of the time ([`Users`](super::users::Users)) (a window that follows
//! latency, as in D. Wei, C. Jin, S. Low and S. Hegde, "FAST TCP: motivation, architecture, algorithms, performance", 2006). Single looks are
//! noise, so sums are compared in which older looks fade; and as noise makes the window larger as often as smaller, by the same factors, it does
//! not move where that settles.
//!
//! # Invariant
//! However others fare, the window is at least [`WINDOW_LEAST`].

use super::pacer::Pace;
use super::reserve::Pieces;
use gannet_base::clock::Instant;
use gannet_io::Class;
use gannet_io::stats::{Operation, Stats};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often it is looked how others fare, and after how long for the first time.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_FIRST: Duration = Duration::from_millis(20);
/// How long jobs pause to see how fast others are without them, how long before that what is under way has to end, and how often.
pub(super) const PROBE: Duration = Duration::from_millis(100);
pub(super) const SETTLE: Duration = Duration::from_millis(20);
const PROBE_EVERY: Duration = Duration::from_secs(4);
/// The same until others were seen without jobs a few times.
const PROBE_SOON: Duration = Duration::from_secs(2);
const PROBES_SOON: u32 = 3;
/// For how long what others take without jobs is known well enough when jobs begin anew.
const KNOWN: Duration = Duration::from_secs(10);
/// Others were there if so many of their requests ended between two looks.
const PRESENT: u64 = 4;
/// They are expected back for so long after they were seen.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// By how much others may be slowed, where nobody says otherwise; and beside a job that holds latches, as users wait for these as well.
pub(super) const SLOWDOWN: f64 = 1.5;
pub(super) const SLOWDOWN_LATCHED: f64 = 1.2;
/// By how much at the device at most, where that is a part of what their statements take.
const SLOWDOWN_DEVICE: f64 = 2.0;
/// See the invariant; where the window begins when somebody comes, and how far it goes.
const WINDOW_LEAST: f64 = 0.25;
const WINDOW_FIRST: f64 = 4.0;
const WINDOW_MOST: f64 = 64.0;
/// How far the window follows with a look: the power of what others may be slowed by, by what they are, and by how much at most.
const FOLLOW: f64 = 0.5;
const LESS: f64 = 0.7;
const MORE: f64 = 1.0 / LESS;
/// What a look leaves of the sums before it.
const FADE: f64 = 0.6;
/// The longest rest.
const REST_MOST: Duration = Duration::from_millis(500);
/// Requests of others that count: those that somebody waits for.
const OTHERS: [(Class, Operation); 3] = [
    (Class::Commit, Operation::Write),
    (Class::Foreground, Operation::Read),
    (Class::Commit, Operation::Sync),
];

/// Requests of others that have ended, by kind: how many, and nanoseconds in all.
pub(super) type Ended = [(u64, u64); OTHERS.len()];

/// Sums of these in which older ones fade.
#[derive(Clone, Copy, Debug, Default)]
struct Sums([(f64, f64); OTHERS.len()]);

impl Sums {
    /// Adds this, of which only a part counts.
    fn add(&mut self, ended: &Ended, part: f64) {
        for (sum, &(requests, nanos)) in self.0.iter_mut().zip(ended) {
            *sum = (sum.0 * FADE + requests as f64 * part, sum.1 * FADE + nanos as f64 * part);
        }
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|(requests, _)| *requests == 0.0)
    }
}

/// Where a look at others without jobs stands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Probe {
    No,
    /// What is under way ends.
    Settles(Instant),
    /// Others are looked at.
    Looks(Instant),
}

/// The window, and what it follows from.
#[derive(Debug)]
pub(super) struct State {
    /// Permits that may be held; infinite where nobody else is there.
    pub(super) window: f64,
    /// Nobody has looked since jobs began.
    is_first: bool,
    /// Permits that are held, but for the reserve's.
    pub(super) held: usize,
    /// Of these, those of threads that stand by.
    pub(super) pieces: Pieces,
    /// Nothing begins before.
    rest_until: Instant,
    /// Until then somebody who holds latches counts as being at work: who asks for processors has asked for a permit.
    pub(super) latched_until: Instant,
    /// Somebody had to wait for a permit since the last look.
    pub(super) wanted: bool,
    pub(super) looked: Instant,
    pub(super) next_look: Instant,
    pub(super) before: Ended,
    /// How others fare beside jobs, and without them.
    beside: Sums,
    alone: Sums,
    /// What statements had had of processors, and commits had waited, when it was looked last; and what statements have of processors without
    /// jobs, and wait for the device. Sums in which older ones fade.
    pub(super) taken: (u64, u64),
    statements: (f64, f64),
    /// When others were seen last.
    seen: Option<Instant>,
    pub(super) probe: Probe,
    probed: Option<Instant>,
    probes: u32,
}

impl State {
    pub(super) fn new(now: Instant, before: Ended) -> Self {
        State {
            window: f64::INFINITY,
            is_first: false,
            held: 0,
            pieces: Pieces::new(now),
            rest_until: now,
            latched_until: now,
            wanted: false,
            looked: now,
            next_look: now,
            before,
            beside: Sums::default(),
            alone: Sums::default(),
            taken: (0, 0),
            statements: (0.0, 0.0),
            seen: None,
            probe: Probe::No,
            probed: None,
            probes: 0,
        }
    }

    /// A job begins where none was; of others so much has ended since the last one.
    pub(super) fn begin(&mut self, ended: &Ended, now: Instant) {
        self.pieces.forget(now);
        // As much of it as a pause would have shown.
        let part = PROBE.as_secs_f64() / (now - self.looked).max(PROBE).as_secs_f64();
        self.alone.add(ended, part);
        self.beside = Sums::default();
        if self.probed.is_some_and(|at| now - at > KNOWN) {
            (self.probed, self.probes) = (None, 0);
            self.statements = (0.0, 0.0);
        }
        if self.seen.is_some_and(|at| now - at > LINGER) {
            self.seen = None;
        }
        if self.seen.is_none() {
            self.window = WINDOW_FIRST;
        }
        (self.probe, self.rest_until) = (Probe::No, now);
        (self.looked, self.next_look) = (now, now + LOOK_FIRST);
        self.is_first = true;
    }

    /// A permit that was taken at `began` comes back.
    pub(super) fn give_back(&mut self, began: Instant, now: Instant) {
        self.held -= 1;
        self.rest_until = self.rest_until.max(now + self.rest_after(now - began));
    }

    /// How long the device is left to others after a piece of work.
    pub(super) fn rest_after(&self, took: Duration) -> Duration {
        match self.window < 1.0 {
            true => took.mul_f64(1.0 / self.window - 1.0).min(REST_MOST),
            false => Duration::ZERO,
        }
    }

    /// How long whoever wants a permit waits at least before it looks again; `None` when there is one.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        if let Probe::Settles(until) | Probe::Looks(until) = self.probe {
            return Some((until.max(now) - now).min(LOOK_EVERY));
        }
        if self.held as f64 >= self.window.max(1.0).floor() {
            return Some(LOOK_EVERY);
        }
        if self.window < 1.0 && self.rest_until > now {
            return Some((self.rest_until - now).min(LOOK_EVERY));
        }
        None
    }

    /// Of others so much has ended since the last look; `taken`: what their statements had of processors, and their commits waited; they may
    /// be slowed by `slowdown`, where `pace` does not say otherwise.
    pub(super) fn react(
        &mut self,
        pace: Pace,
        slowdown: f64,
        ended: &Ended,
        taken: (u64, u64),
        now: Instant,
    ) {
        match self.probe {
            Probe::Settles(_) => {
                self.probe = Probe::Looks(now + PROBE);
                return;
            }
            Probe::Looks(_) => {
                self.probe = Probe::No;
                self.alone.add(ended, 1.0);
                // Whoever reads waits for that alone; a write for commits may have many waiting.
                let [.., (_, reads), _] = ended;
                self.statements.0 = self.statements.0 * FADE + taken.0 as f64;
                self.statements.1 = self.statements.1 * FADE + (reads + taken.1) as f64;
                (self.probed, self.probes) = (Some(now), self.probes + 1);
                return;
            }
            Probe::No => {}
        }
        let requests: u64 = ended.iter().map(|(requests, _)| requests).sum();
        if std::mem::take(&mut self.is_first) && requests > 0 {
            // It may be what the job itself has others do to begin. The next look tells.
            return;
        }
        if requests >= PRESENT {
            self.seen = Some(now);
        }
        if self.seen.is_none_or(|seen| now - seen > LINGER) {
            self.window = f64::INFINITY;
            return;
        }
        if !self.window.is_finite() {
            self.window = WINDOW_FIRST;
            self.beside = Sums::default();
        } else {
            self.beside.add(ended, 1.0);
            let limit = if pace == Pace::Auto { self.limit(slowdown) } else { 1.0 };
            let change = (limit / self.slowdown(pace)).powf(FOLLOW).clamp(LESS, MORE);
            // Larger than it can be used it need not be, nor as long as it is not known how others are without jobs.
            let is_known = pace != Pace::Auto || !self.alone.is_empty();
            let may_grow = std::mem::take(&mut self.wanted) && is_known;
            if change < 1.0 || may_grow {
                self.window = (self.window * change).clamp(WINDOW_LEAST, WINDOW_MOST);
            }
        }
        let every = if self.probes < PROBES_SOON { PROBE_SOON } else { PROBE_EVERY };
        if pace == Pace::Auto && self.probed.is_none_or(|at| now - at >= every) {
            self.probe = Probe::Settles(now + SETTLE);
        }
    }

    /// By how much others may be slowed at the device, so that their statements are by no more than `slowdown`.
    fn limit(&self, slowdown: f64) -> f64 {
        match self.statements {
            // Who uses the store without statements may wait for the device all the time.
            (0.0, _) => slowdown,
            (processor, wait) => (slowdown + (slowdown - 1.0) * processor / wait).min(SLOWDOWN_DEVICE),
        }
    }

    /// By how much others are slowed: what their requests take by what they should take.
    fn slowdown(&self, pace: Pace) -> f64 {
        let (mut takes, mut should) = (0.0, 0.0);
        for (&(requests, nanos), &(alone, alone_nanos)) in self.beside.0.iter().zip(&self.alone.0) {
            let wanted = match pace {
                Pace::Latency(latency) => latency.as_nanos() as f64,
                Pace::Auto | Pace::Full if alone > 0.0 => alone_nanos / alone,
                Pace::Auto | Pace::Full => continue,
            };
            takes += nanos;
            should += requests * wanted;
        }
        if should > 0.0 { takes / should } else { 1.0 }
    }
}

/// What of others has ended since the disk was opened.
pub(super) fn ended(stats: &Stats) -> Ended {
    OTHERS.map(|(class, operation)| {
        let counter = stats.counter(class, operation);
        (counter.requests.load(Ordering::Relaxed), counter.nanos.load(Ordering::Relaxed))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::clock;

    /// Others that ask for 200 pages between two looks, each of which takes 100 µs, and by `slower` of that longer for each permit of the
    /// window. Gives the windows that came of `looks` looks, without those beside probes.
    fn windows(state: &mut State, pace: Pace, slower: f64, looks: u32) -> Vec<f64> {
        let mut now = state.looked;
        let mut windows = Vec::new();
        for _ in 0..looks {
            now = match state.probe {
                Probe::No => now + LOOK_EVERY,
                Probe::Settles(until) | Probe::Looks(until) => until,
            };
            let window = if state.probe == Probe::No { state.window } else { 0.0 };
            let window = if window.is_finite() { window } else { 12.0 };
            state.wanted = true;
            let takes = 100_000.0 * (1.0 + slower * window);
            state.react(pace, SLOWDOWN, &[(0, 0), (200, (200.0 * takes) as u64), (0, 0)], (0, 0), now);
            state.looked = now;
            if state.probe == Probe::No {
                windows.push(state.window);
            }
        }
        windows
    }

    fn average(windows: &[f64]) -> f64 {
        windows.iter().sum::<f64>() / windows.len() as f64
    }

    #[test]
    fn the_window_settles_where_others_are_as_slow_as_they_may_be() {
        for (slower, wanted) in [(0.1, 5.0), (0.5, 1.0), (1.0, 0.5)] {
            let mut state = State::new(clock::now(), Ended::default());
            let windows = windows(&mut state, Pace::Auto, slower, 400);
            let settled = average(&windows[windows.len() / 2..]);
            assert!((0.6 * wanted..1.4 * wanted).contains(&settled), "{slower}: {settled}, not {wanted}");
        }
    }

    #[test]
    fn a_wanted_latency_counts_in_place_of_what_others_take_alone() {
        let mut state = State::new(clock::now(), Ended::default());
        let windows = windows(&mut state, Pace::Latency(Duration::from_micros(300)), 1.0, 400);
        assert_eq!(state.probed, None, "nobody pauses for what is not asked for");
        let settled = average(&windows[windows.len() / 2..]);
        assert!((1.2..2.8).contains(&settled), "{settled}");
    }

    #[test]
    fn however_others_fare_jobs_go_on_and_where_nobody_is_there_nothing_holds_them() {
        let mut state = State::new(clock::now(), Ended::default());
        let hopeless_pace = Pace::Latency(Duration::from_nanos(1));
        let hopeless = windows(&mut state, hopeless_pace, 1.0, 100);
        assert_eq!(hopeless.last(), Some(&WINDOW_LEAST));
        let now = state.looked + LOOK_EVERY;
        state.react(hopeless_pace, SLOWDOWN, &Ended::default(), (0, 0), now);
        assert_eq!(state.window, WINDOW_LEAST, "who was there a moment ago is expected back");
        state.probe = Probe::No;
        state.react(hopeless_pace, SLOWDOWN, &Ended::default(), (0, 0), now + LINGER + LOOK_EVERY);
        assert_eq!(state.window, f64::INFINITY);
    }

    #[test]
    fn jobs_begin_as_if_somebody_were_there() {
        let requests = |count: u64| [(0, 0), (count, count * 100_000), (0, 0)];
        let start = clock::now();
        for (first, then, wanted) in [(0, 0, f64::INFINITY), (3, 0, f64::INFINITY), (3, 50, WINDOW_FIRST)] {
            let mut state = State::new(start, Ended::default());
            state.begin(&requests(0), start);
            assert_eq!((state.window, state.next_look), (WINDOW_FIRST, start + LOOK_FIRST));
            state.react(Pace::Auto, SLOWDOWN, &requests(first), (0, 0), start + LOOK_FIRST);
            assert_eq!(state.window, if first == 0 { f64::INFINITY } else { WINDOW_FIRST });
            state.react(Pace::Auto, SLOWDOWN, &requests(then), (0, 0), start + LOOK_FIRST + LOOK_EVERY);
            assert_eq!(state.window, wanted, "{first} and then {then}");
        }
    }

    #[test]
    fn a_job_goes_on_as_the_one_before_and_others_were_alone_in_between() {
        let mut state = State::new(clock::now(), Ended::default());
        let settled = *windows(&mut state, Pace::Auto, 0.2, 100).last().unwrap();
        let (probes, ended) = (state.probes, state.looked);
        assert!(settled.is_finite() && probes > PROBES_SOON);
        // 300 requests, of 80 microseconds each, within three times as long as a pause.
        let before = state.alone.0[1];
        state.begin(&[(0, 0), (300, 300 * 80_000), (0, 0)], ended + 3 * PROBE);
        assert_eq!((state.window, state.probes), (settled, probes));
        let (requests, nanos) = state.alone.0[1];
        assert!((requests - (before.0 * FADE + 100.0)).abs() < 1e-6);
        assert!((nanos - (before.1 * FADE + 100.0 * 80_000.0)).abs() < 1e-3);
        // A while later nothing of that is worth much.
        state.looked = ended + 2 * KNOWN;
        state.begin(&Ended::default(), ended + 2 * KNOWN);
        assert_eq!((state.window, state.probes, state.seen), (WINDOW_FIRST, 0, None));
    }

    #[test]
    fn where_statements_wait_little_for_the_device_more_may_be_asked_of_it() {
        let limit = |taken: (u64, u64), reads: u64| {
            let mut state = State::new(clock::now(), Ended::default());
            state.probe = Probe::Looks(state.looked + PROBE);
            state.react(
                Pace::Auto,
                SLOWDOWN,
                &[(7, 1_000), (10, reads), (0, 0)],
                taken,
                state.looked + PROBE,
            );
            state.limit(SLOWDOWN)
        };
        assert_eq!(limit((0, 0), 1_000), SLOWDOWN, "nobody knows of statements");
        assert_eq!(limit((0, 1_000), 1_000), SLOWDOWN);
        assert_eq!(limit((400, 0), 1_600), 1.625);
        assert_eq!(limit((400, 600), 1_000), 1.625, "commits wait as well");
        assert_eq!(limit((9_000, 400), 600), SLOWDOWN_DEVICE);
        assert_eq!(limit((9_000, 0), 0), SLOWDOWN_DEVICE);
    }

    #[test]
    fn below_one_permit_jobs_rest_after_each_piece() {
        let now = clock::now();
        let mut state = State::new(now, Ended::default());
        state.window = WINDOW_LEAST;
        assert_eq!(state.wait(now), None);
        state.held = 1;
        assert!(state.wait(now).is_some(), "one at a time");
        let later = now + Duration::from_millis(10);
        state.give_back(now, later);
        assert_eq!(state.wait(later), Some(Duration::from_millis(30)), "a quarter of the time is work");
        assert_eq!(state.wait(later + Duration::from_millis(30)), None);
    }
}
