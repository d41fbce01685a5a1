//! How fast jobs may go beside others.
//!
//! A job takes a [`Permit`] for each piece of work that it asks of the device or of the processors, and holds it until the piece is
//! done. How many permits there are at a time is the *window* of all jobs of an engine together ([`window`](super::window)). Permits for what asks for a processor
//! alone do not count: whoever stands by has to wait for one anyway, and rests where others keep all of them busy (`saturation`).
//!
//! # Invariants
//! 1. However others fare, the window has a least size, and where processors are never idle the reserve works (`reserve`):
//!    every job ends.
//! 2. Nobody waits here with a latch or a lock that others need, nor with a permit: who has one, and asks for another one, is to
//!    ask without waiting.

use super::reserve::{self, Reserve, Role};
use super::saturation::Saturation;
use super::users::Users;
use super::window::{Ended, LINGER, LOOK_EVERY, Probe, SETTLE, SLOWDOWN, SLOWDOWN_LATCHED, State, ended};
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use gannet_io::Disk;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of one request: where nobody else is there, and where somebody may have to wait behind it.
const REQUEST_ALONE: u64 = 1 << 20;
const REQUEST_BESIDE: u64 = 256 << 10;
/// A target that says [`Pace::Full`].
const FULL: u64 = u64::MAX;

/// How a job is paced.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Pace {
    /// So that others take no longer than half as long again, as far as the device is concerned, and what they ask of that no longer than
    /// twice as long; or as [`Engine::set_job_pace`](crate::Engine::set_job_pace) says.
    #[default]
    Auto,
    /// So that what others ask of the device takes no longer than this, on average.
    Latency(Duration),
    /// As fast as it goes: nothing is held back at the device, and threads have processors as those of users do.
    Full,
}

impl Pace {
    /// So that what others ask of the device takes no longer than this on average; [`Pace::Auto`] where it is nothing.
    pub fn with_target(target: Duration) -> Self {
        if target.is_zero() { Pace::Auto } else { Pace::Latency(target) }
    }
}

/// See the module's head. One for each engine, whose jobs share a device.
#[derive(Debug)]
pub(crate) struct Pacer {
    disk: Arc<dyn Disk>,
    users: Arc<Users>,
    saturation: Saturation,
    crowded: AtomicBool,
    rests: AtomicBool,
    /// How jobs of [`Pace::Auto`] are paced: what others' requests may take beside them, in nanoseconds; 0: see there; or [`FULL`].
    target: AtomicU64,
    /// Whether long sweeps may begin by themselves.
    long_sweeps: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// Leave to do a piece of work, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    pacer: Arc<Pacer>,
    began: Instant,
    work: Work,
    of: Holder,
    /// It is one of the window's. Who works as fast as it goes takes none of those from others.
    counts: bool,
}

/// What a piece of work asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// The device, and a processor now and then.
    Device,
    Processor,
}

/// Who has a permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Ordinary,
    /// How slow it is to be.
    StandsBy {
        slowness: u32,
    },
    Reserve {
        slowness: u32,
    },
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = clock::now();
        let mut state = match self.of {
            Holder::Ordinary => self.pacer.state.lock(),
            Holder::StandsBy { slowness } => {
                let (took, cpu) = self.pacer.count();
                let mut state = self.pacer.state.lock();
                state.pieces.has_worked(took, cpu * slowness, now);
                state.pieces.end(now);
                state
            }
            Holder::Reserve { slowness } => {
                let (took, cpu) = self.pacer.count();
                let mut state = self.pacer.state.lock();
                let rest = match self.work {
                    Work::Device => state.rest_after(now - self.began),
                    Work::Processor => Duration::ZERO,
                };
                return state.pieces.end_of_reserve(took, cpu * slowness, rest, now);
            }
        };
        if !self.counts {
            return;
        }
        state.give_back(self.began, now);
        drop(state);
        self.pacer.changed.notify_one();
    }
}

impl Pacer {
    pub(crate) fn new(disk: &Arc<dyn Disk>, users: &Arc<Users>) -> Arc<Self> {
        let now = clock::now();
        Arc::new(Pacer {
            disk: Arc::clone(disk),
            users: Arc::clone(users),
            saturation: Saturation::default(),
            target: AtomicU64::new(0),
            long_sweeps: AtomicBool::new(true),
            crowded: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            state: Mutex::new(State::new(now, ended(disk.stats()))),
            changed: Condvar::new(),
        })
    }

    /// From now on jobs that do not say are paced so.
    pub(crate) fn set_pace(&self, pace: Pace) {
        let target = match pace {
            Pace::Auto => 0,
            Pace::Latency(target) => {
                u64::try_from(target.as_nanos()).map_or(FULL - 1, |nanos| nanos.clamp(1, FULL - 1))
            }
            Pace::Full => FULL,
        };
        self.target.store(target, Ordering::Relaxed);
    }

    pub(crate) fn allow_long_sweeps(&self, allowed: bool) {
        self.long_sweeps.store(allowed, Ordering::Relaxed);
    }

    pub(super) fn are_long_sweeps_allowed(&self) -> bool {
        self.long_sweeps.load(Ordering::Relaxed)
    }

    /// What holds for a job that asks for this pace.
    pub(super) fn in_force(&self, pace: Pace) -> Pace {
        match (pace, self.target.load(Ordering::Relaxed)) {
            (Pace::Auto, FULL) => Pace::Full,
            (Pace::Auto, nanos) if nanos > 0 => Pace::Latency(Duration::from_nanos(nanos)),
            (pace, _) => pace,
        }
    }

    /// A job begins.
    pub(super) fn enter(&self) {
        if self.users.enter() {
            let mut state = self.state.lock();
            let (ended, now) = (self.ended_since(&mut state), clock::now());
            state.begin(&ended, now);
            self.crowded.store(true, Ordering::Relaxed);
        }
    }

    /// A job has ended.
    pub(super) fn leave(&self) {
        if self.users.leave() {
            let mut state = self.state.lock();
            self.ended_since(&mut state);
            state.looked = clock::now();
        }
    }

    /// What of others has ended since this was asked last.
    fn ended_since(&self, state: &mut State) -> Ended {
        let after = ended(self.disk.stats());
        let before = std::mem::replace(&mut state.before, after);
        std::array::from_fn(|i| (after[i].0 - before[i].0, after[i].1 - before[i].1))
    }

    /// What users' statements had of processors, and commits waited, since this was asked last.
    fn taken_since(&self, state: &mut State) -> (u64, u64) {
        let after = self.users.taken();
        let before = std::mem::replace(&mut state.taken, after);
        (after.0 - before.0, after.1 - before.1)
    }

    /// Bytes that a job of this pace is to ask of the device by one request.
    pub(super) fn request_bytes(&self, pace: Pace) -> u64 {
        if self.is_crowded() && self.in_force(pace) != Pace::Full { REQUEST_BESIDE } else { REQUEST_ALONE }
    }

    /// Whether others ask for the device, or may be about to.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Whether jobs of this pace rest after each piece, as there is less than one permit.
    pub(super) fn rests(&self, pace: Pace) -> bool {
        self.rests.load(Ordering::Relaxed) && self.in_force(pace) != Pace::Full
    }

    /// Takes a permit: waits for it until the job is to give up, or, where it may not wait, gives `None`.
    pub(super) fn take(
        self: &Arc<Self>,
        pace: Pace,
        work: Work,
        may_wait: bool,
        give_up: &dyn Fn() -> bool,
    ) -> Option<Permit> {
        let pace = self.in_force(pace);
        let role = reserve::role();
        if let Role::Reserve(reserve) = &role
            && !reserve.is_dismissed()
        {
            let permit = if may_wait { self.take_as_reserve(reserve, pace, work, give_up) } else { None };
            if permit.is_some() || !may_wait || give_up() {
                // It waits for need, and is not held back for others.
                return permit;
            }
        }
        if let Role::Asks(gate) = &role
            && may_wait
        {
            gate.pass(!self.is_crowded(), give_up);
        }
        let slowness = self.slowness(&role, pace);
        // What it has done without a permit counts as well.
        let (took, cpu) = if let Role::StandsBy(_) = &role { self.count() } else { Default::default() };
        let mut now = clock::now();
        let mut state = self.state.lock();
        match &role {
            Role::StandsBy(_) => state.pieces.has_worked(took, cpu * slowness, now),
            Role::Asks(_) => state.latched_until = now + LINGER,
            Role::Ordinary | Role::Reserve(_) => {}
        }
        loop {
            self.look(&mut state, pace, now);
            if let Role::StandsBy(reserve) = &role
                && pace != Pace::Full
                && !state.pieces.in_reserve()
                && !reserve.is_dismissed()
                && !state.pieces.rest(now).is_zero()
            {
                if !may_wait || give_up() {
                    return None;
                }
                let rest = state.pieces.begin_rest(now);
                drop(state);
                // If it was woken for a permit, that is for somebody else.
                self.changed.notify_one();
                reserve.wait(rest);
                now = clock::now();
                state = self.state.lock();
                state.pieces.end_rest();
                continue;
            }
            if let Role::StandsBy(reserve) = &role
                && state.pieces.in_reserve()
                && !reserve.is_dismissed()
            {
                drop(state);
                if !may_wait || give_up() {
                    return None;
                }
                let dismissed = reserve.wait_to_try();
                now = clock::now();
                state = self.state.lock();
                if !dismissed && state.pieces.may_try(now) {
                    drop(state);
                    let went_well = Reserve::finds_processor();
                    now = clock::now();
                    state = self.state.lock();
                    if !reserve.is_dismissed() {
                        state.pieces.tried(went_well, now);
                    }
                }
                continue;
            }
            let is_free = pace == Pace::Full || work == Work::Processor;
            let wait = if is_free { None } else { state.wait(now) };
            let Some(wait) = wait else {
                let counts = !is_free;
                state.held += usize::from(counts);
                let of = match &role {
                    Role::StandsBy(_) => {
                        state.pieces.begin(now);
                        // Waiting was no work.
                        self.count();
                        Holder::StandsBy { slowness }
                    }
                    Role::Ordinary | Role::Reserve(_) | Role::Asks(_) => Holder::Ordinary,
                };
                drop(state);
                return Some(Permit { pacer: Arc::clone(self), began: now, work, of, counts });
            };
            state.wanted = true;
            if !may_wait || give_up() {
                return None;
            }
            self.changed.wait_for(&mut state, wait);
            if let Role::Asks(gate) = &role {
                // The answer was for then; and whoever else waits need not wait for this one to come back.
                drop(state);
                self.changed.notify_one();
                gate.pass(!self.is_crowded(), give_up);
                state = self.state.lock();
            }
            now = clock::now();
        }
    }

    /// How long it is since the calling thread, which stands by or is a reserve, asked this last, and how long it has had a processor meanwhile.
    fn count(&self) -> (Duration, Duration) {
        let (took, cpu) = reserve::count();
        self.saturation.add(cpu);
        (took, cpu)
    }

    /// How many times as long as it has a processor a thread's work is to take: where processors are nobody's, those who stand by need not rest.
    fn slowness(&self, role: &Role, pace: Pace) -> u32 {
        match role {
            Role::StandsBy(reserve) => {
                self.saturation.look();
                let rests = self.saturation.is_there() && pace != Pace::Full;
                if rests { reserve.slowness(true) } else { 0 }
            }
            // A reserve that takes a permit as others do is dismissed.
            Role::Ordinary | Role::Reserve(_) | Role::Asks(_) => 0,
        }
    }

    /// Takes a permit for the reserve, once it is needed; `None` when it is dismissed, or the job is to give up.
    fn take_as_reserve(
        self: &Arc<Self>,
        reserve: &Reserve,
        pace: Pace,
        work: Work,
        give_up: &dyn Fn() -> bool,
    ) -> Option<Permit> {
        loop {
            let now = clock::now();
            let mut state = self.state.lock();
            self.look(&mut state, pace, now);
            if state.pieces.are_stuck(now) {
                drop(state);
                let is_crowded = reserve.is_crowded();
                state = self.state.lock();
                if is_crowded {
                    state.pieces.are_starved(clock::now());
                }
            }
            let wait = state.pieces.until_needed(clock::now());
            if state.probe == Probe::No && wait.is_zero() {
                drop(state);
                self.saturation.look();
                let slowness = reserve.slowness(self.saturation.is_there());
                self.count();
                let of = Holder::Reserve { slowness };
                let began = clock::now();
                return Some(Permit { pacer: Arc::clone(self), began, work, of, counts: false });
            }
            drop(state);
            // While it is probed how others fare alone, nothing is begun.
            let wait = if wait.is_zero() { SETTLE } else { wait };
            if give_up() || reserve.wait(wait) {
                return None;
            }
        }
    }

    /// Looks how others fare, where it is time.
    fn look(&self, state: &mut State, pace: Pace, now: Instant) {
        let due = match state.probe {
            Probe::No => state.next_look,
            Probe::Settles(until) | Probe::Looks(until) => until,
        };
        if now < due {
            return;
        }
        let (ended, taken) = (self.ended_since(state), self.taken_since(state));
        (state.looked, state.next_look) = (now, now + LOOK_EVERY);
        let slowdown = if now < state.latched_until { SLOWDOWN_LATCHED } else { SLOWDOWN };
        // Who works as fast as it goes looks for those who do not.
        let pace = match pace {
            Pace::Full => match self.in_force(Pace::Auto) {
                Pace::Full => Pace::Auto,
                others => others,
            },
            own => own,
        };
        state.react(pace, slowdown, &ended, taken, now);
        self.crowded.store(state.window.is_finite(), Ordering::Relaxed);
        self.rests.store(state.window < 1.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_io::sim::SimDisk;

    #[test]
    fn a_target_is_for_jobs_that_do_not_say() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let pacer = Pacer::new(&disk, &Arc::default());
        let (target, own) = (Duration::from_millis(3), Duration::from_millis(1));
        assert_eq!(pacer.in_force(Pace::Auto), Pace::Auto);
        pacer.set_pace(Pace::Latency(target));
        assert_eq!(pacer.in_force(Pace::Auto), Pace::Latency(target));
        assert_eq!(pacer.in_force(Pace::Latency(own)), Pace::Latency(own));
        assert_eq!(pacer.in_force(Pace::Full), Pace::Full);
        pacer.set_pace(Pace::Full);
        assert_eq!(pacer.in_force(Pace::Auto), Pace::Full);
        assert_eq!(pacer.in_force(Pace::Latency(own)), Pace::Latency(own));
        pacer.set_pace(Pace::Auto);
        assert_eq!(pacer.in_force(Pace::Auto), Pace::Auto);
    }

    #[test]
    fn who_works_as_fast_as_it_goes_takes_no_permit_from_others() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(3));
        let pacer = Pacer::new(&disk, &Arc::default());
        {
            let mut state = pacer.state.lock();
            (state.window, state.next_look) = (0.25, clock::now() + Duration::from_secs(3600));
        }
        let take = |pace| pacer.take(pace, Work::Device, false, &|| false);
        let full = take(Pace::Full);
        assert!(full.is_some());
        let paced = take(Pace::Auto);
        assert!(paced.is_some() && take(Pace::Auto).is_none());
        drop(full);
        assert_eq!(pacer.state.lock().held, 1);
        drop(paced);
        assert_eq!(pacer.state.lock().held, 0);
    }

    #[test]
    fn who_stands_by_is_not_kept_back_when_his_reserve_has_nothing_to_do_any_more() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(2));
        let pacer = Pacer::new(&disk, &Arc::default());
        {
            let (mut state, now) = (pacer.state.lock(), clock::now());
            state.pieces.begin(now);
            state.pieces.are_starved(now + Duration::from_secs(1));
            assert!(state.pieces.in_reserve());
        }
        let reserve = Reserve::default();
        let waits = {
            let (pacer, reserve) = (Arc::clone(&pacer), reserve.clone());
            gannet_base::thread::spawn("stands-by", move || {
                reserve.stand_by();
                pacer.take(Pace::Full, Work::Device, true, &|| false).is_some()
            })
        };
        reserve.dismiss();
        assert!(waits.join().unwrap());
    }

    #[test]
    fn who_stands_by_rests_where_others_keep_processors_busy() {
        let run = || {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(3));
            for (is_busy, pace, rests) in
                [(false, Pace::Auto, false), (true, Pace::Auto, true), (true, Pace::Full, false)]
            {
                let pacer = Pacer::new(&disk, &Arc::default());
                pacer.saturation.set(is_busy);
                let work = gannet_base::thread::spawn("stands-by", move || {
                    Reserve::default().stand_by();
                    let take = |may_wait| pacer.take(pace, Work::Processor, may_wait, &|| false);
                    let permit = take(true);
                    // In a simulation who sleeps has a processor.
                    clock::sleep(Duration::from_millis(3));
                    drop(permit);
                    let (at_once, asked) = (take(false).is_some(), clock::now());
                    let permit = take(true);
                    (at_once, permit.is_some(), asked.elapsed())
                });
                let (at_once, has_one, waited) = work.join().unwrap();
                assert!(has_one && at_once != rests, "{is_busy} {pace:?}");
                assert_eq!(waited >= Duration::from_millis(1), rests, "{is_busy} {pace:?}: {waited:?}");
            }
        };
        gannet_base::sim::Simulation::new(3).run(run).unwrap();
    }
}
