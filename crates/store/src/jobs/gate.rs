//! Leave to use a processor, for a thread that holds what others wait for.
//!
//! A thread that holds latches exclusively must not be one that runs only where nobody else wants to (`SCHED_IDLE`): whoever wakes up would
//! stop it with the latch in its hands, and users would wait for that. Nor may it be merely nice: then it is not stopped in the middle of
//! its slice, and users wait for a processor, some milliseconds for each statement. So it asks before each short piece of work, with nothing
//! in its hands. Who answers is the *gatekeeper*, a thread that runs only where nobody else wants to: that it runs at all says that a
//! processor has nothing else to do, within the same cgroup. Then the thread works as any other does, until it asks again: for [`SLICE`] and what it
//! has begun. Where the system refuses to have threads like that, the gatekeeper is nice, and its answers say less.
//!
//! Where processors are never idle nobody would answer, and the job take days. Whoever has waited for [`STARVED`] in vain goes on without an
//! answer, with no more than a part of the processors ([`PART`]), until answers have come in time for a while again. So does whoever gets
//! answers, but so late that he has had less than that part ([`TALLY`]).
//!
//! # Invariants
//! 1. The gatekeeper does nothing but answer. It holds no lock and no latch, whenever it is stopped.
//! 2. Nobody waits for the gatekeeper without a limit.

use super::reserve::processors;
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Mutex, wait_while, wake_one};
use gannet_base::{sim, thread};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::Duration;

/// For how long nobody asks anew: a wake-up of another thread has to be worth it, and who wakes up meanwhile waits that long. And where nobody
/// else asks anything of the device.
const SLICE: Duration = Duration::from_micros(50);
const SLICE_ALONE: Duration = Duration::from_millis(1);
/// How long an answer is waited for, as long as they come.
const STARVED: Duration = Duration::from_millis(100);
/// What counts as in time once they did not, and for how long they have to come so.
const IN_TIME: Duration = Duration::from_millis(10);
const CALM: Duration = Duration::from_millis(200);
/// Which part of what all processors do who gets none may have. Nothing is kept back for his job meanwhile.
const PART: u32 = 40;
/// After so much waiting it is looked what it has brought.
const TALLY: Duration = Duration::from_secs(1);
/// How long one rests at most where they do not.
const REST_MOST: Duration = Duration::from_millis(100);
/// How often it is looked whether the answer is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the gatekeeper is told: nothing; that somebody asks, until it answers by the first again; that nobody will any more.
const SILENCE: u32 = 0;
const ASKED: u32 = 1;
const ENDED: u32 = 2;

/// The gate of one thread. Clones are the same; when the last one is gone, the gatekeeper ends.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Asker>);

#[derive(Debug)]
struct Asker {
    word: Arc<AtomicU32>,
    /// Of the one thread that asks.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Since when what was asked last waits for an answer, or did.
    asked: Option<Instant>,
    /// When it went through last, and how long it had had a processor then.
    passed: Option<(Instant, Duration)>,
    /// How long was waited since that was looked at, and how long it had had a processor then.
    waited: Duration,
    tallied: Duration,
    /// Answers do not come, or too late; since when they come in time again.
    is_starved: bool,
    calm_since: Option<Instant>,
}

impl Gate {
    /// With a gatekeeper of its own, but in a simulation, where nobody has to wait for a processor. Where the system has no thread for it, nobody
    /// ever answers.
    pub(super) fn new() -> Self {
        let word = Arc::new(AtomicU32::new(SILENCE));
        let mut state = State::default();
        if !sim::active() {
            let word = Arc::clone(&word);
            // Nobody waits for its end: it may take a while to find a processor, and holds nothing.
            state.is_starved = thread::try_spawn("gannet-gate", move || keep(&word)).is_err();
        }
        Gate(Arc::new(Asker { word, state: Mutex::new(state) }))
    }

    /// Waits until the calling thread may use a processor for a while, or is to give up. It must hold nothing that others wait for.
    pub(super) fn pass(&self, is_alone: bool, give_up: &dyn Fn() -> bool) {
        if sim::active() {
            return;
        }
        let Asker { word, state } = &*self.0;
        let mut state = state.lock();
        let begun = clock::now();
        let slice = if is_alone { SLICE_ALONE } else { SLICE };
        if state.passed.is_some_and(|(at, _)| begun - at < slice) {
            return;
        }
        // What was asked before may still wait for its answer.
        if word.compare_exchange(SILENCE, ASKED, AcqRel, Acquire).is_ok() {
            state.asked = Some(begun);
            wake_one(word);
        }
        let patience = state.patience(clock::thread_cpu());
        let mut now = begun;
        while word.load(Acquire) == ASKED && now - begun < patience && !give_up() {
            wait_while(word, ASKED, Some((patience - (now - begun)).min(LOOK_EVERY)));
            now = clock::now();
        }
        let is_answered = word.load(Acquire) != ASKED;
        state.pass(is_answered, now - begun, now, clock::thread_cpu());
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.word.store(ENDED, Release);
        wake_one(&self.word);
    }
}

/// The gatekeeper's body.
fn keep(word: &AtomicU32) {
    thread::stand_by();
    loop {
        match word.load(Acquire) {
            SILENCE => {
                wait_while(word, SILENCE, None);
            }
            ASKED => {
                if word.compare_exchange(ASKED, SILENCE, AcqRel, Acquire).is_ok() {
                    wake_one(word);
                }
            }
            _ => return,
        }
    }
}

impl State {
    /// How long an answer is waited for by a thread that has had a processor for so long.
    fn patience(&self, had: Duration) -> Duration {
        match self.passed {
            Some((_, before)) if self.is_starved => {
                (had.saturating_sub(before) * slowness()).clamp(SLICE, REST_MOST)
            }
            _ => STARVED,
        }
    }

    /// It goes on, with an answer or without, after it has waited for so long.
    fn pass(&mut self, is_answered: bool, waited: Duration, now: Instant, had: Duration) {
        self.passed = Some((now, had));
        let is_late = self.asked.is_some_and(|asked| now - asked > IN_TIME);
        if is_late {
            self.calm_since = None;
        }
        self.waited += waited;
        let mut is_slow = false;
        if self.waited >= TALLY || self.is_starved {
            is_slow = !self.is_starved && had.saturating_sub(self.tallied) * slowness() < self.waited;
            (self.waited, self.tallied) = (Duration::ZERO, had);
        }
        if !is_answered || is_slow {
            self.is_starved = true;
        } else if self.is_starved && !is_late && now - *self.calm_since.get_or_insert(now) >= CALM {
            self.is_starved = false;
        }
    }
}

/// How many times as long as it had a processor a starved thread rests.
fn slowness() -> u32 {
    (PART / processors()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_no_answer_rests_in_proportion_until_they_come_in_time_again() {
        let ms = Duration::from_millis;
        let start = clock::now();
        let mut state = State::default();
        let pass = |state: &mut State, asked: u64, is_answered: bool, at: u64, had: u64| {
            state.asked = Some(start + ms(asked));
            state.pass(is_answered, ms(at - asked), start + ms(at), ms(had));
        };
        assert_eq!(state.patience(ms(7)), STARVED);
        pass(&mut state, 0, true, 90, 7);
        assert_eq!(state.patience(ms(8)), STARVED, "answers come");
        pass(&mut state, 100, false, 201, 8);
        assert_eq!(state.patience(ms(9)), ms(1) * slowness());
        assert_eq!(state.patience(ms(8)), SLICE);
        assert_eq!(state.patience(ms(8000)), REST_MOST);
        // One that comes in time is no more than luck; one that comes late begins it anew.
        pass(&mut state, 210, true, 211, 8);
        pass(&mut state, 300, true, 320, 9);
        pass(&mut state, 420, true, 421, 9);
        pass(&mut state, 500, false, 505, 9);
        pass(&mut state, 600, true, 620, 9);
        assert!(state.is_starved);
        pass(&mut state, 700, true, 701, 9);
        pass(&mut state, 800, false, 803, 9);
        assert!(state.is_starved);
        pass(&mut state, 905, true, 906, 9);
        assert_eq!(state.patience(ms(9)), STARVED);
    }

    #[test]
    fn who_gets_answers_too_late_for_his_part_goes_on_without_them() {
        let ms = Duration::from_millis;
        let start = clock::now();
        for (late, wanted) in [(40, true), (0, false)] {
            let mut state = State::default();
            for number in 0..60 {
                let at = start + ms(number * 50);
                state.asked = Some(at);
                state.pass(true, ms(late), at + ms(late), Duration::from_micros(50) * (number as u32 + 1));
            }
            assert_eq!(state.is_starved, wanted, "{late}");
        }
        // What was worth its while is no reason.
        let mut state = State::default();
        for number in 0..60 {
            let at = start + ms(number * 50);
            state.asked = Some(at);
            state.pass(true, ms(20), at + ms(20), ms(20) / slowness() * (number as u32 + 2));
        }
        assert!(!state.is_starved);
    }

    #[test]
    fn whoever_asks_goes_on_and_the_gatekeeper_ends() {
        let gate = Gate::new();
        for number in 0..200 {
            gate.pass(number % 3 == 0, &|| false);
            clock::spin(SLICE);
        }
        gate.pass(false, &|| true);
        let word = Arc::clone(&gate.0.word);
        drop(gate);
        while Arc::strong_count(&word) > 1 {
            clock::sleep(SLICE);
        }
        // A gatekeeper that never comes is not waited for.
        let word = Arc::new(AtomicU32::new(SILENCE));
        let gate = Gate(Arc::new(Asker { word, state: Mutex::default() }));
        for _ in 0..3 {
            gate.pass(false, &|| false);
        }
        assert!(gate.0.state.lock().is_starved);
    }
}
