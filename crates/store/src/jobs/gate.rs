//! Leave to use a processor, for a thread that holds what others wait for.
//!
//! A thread that holds latches exclusively must not be one that runs only where nobody else wants to (`SCHED_IDLE`): whoever wakes up would
//! stop it with the latch in its hands, and users would wait for that. Nor may it be merely nice: then it is not stopped in the middle of
//! its slice, and users wait for a processor, some milliseconds for each statement. So it asks before each short piece of work, with nothing
//! in its hands. Who answers is the *gatekeeper*, a thread that runs only where nobody else wants to: that it runs at all says that a
//! processor has nothing else to do. Then the thread works as any other does, until it asks again: for [`SLICE`] and what it has begun.
//! What can be done without holding anything, it has the gatekeeper do: an *errand*, the end of which is an answer as well.
//!
//! Where processors are never idle nobody would answer, and the job take days. Whoever has waited for [`STARVED`] in vain goes on without an
//! answer, with no more than a part of the processors ([`PART`]), until answers have come in time for a while again.

use super::reserve::processors;
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::{sim, thread};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// For how long nobody asks anew: a wake-up of another thread has to be worth it, and who wakes up meanwhile waits that long. And where nobody
/// else asks anything of the device.
const SLICE: Duration = Duration::from_micros(50);
const SLICE_ALONE: Duration = Duration::from_millis(1);
/// How long an answer is waited for, as long as they come.
const STARVED: Duration = Duration::from_millis(100);
/// For how long they have to come in time once they did not.
const CALM: Duration = Duration::from_millis(200);
/// Which part of what all processors do who gets none may have. Nothing is kept back for his job meanwhile.
const PART: u32 = 40;
/// How long one rests at most where they do not.
const REST_MOST: Duration = Duration::from_millis(100);

/// The gate of one thread. Clones are the same; when the last one is gone, the gatekeeper has nothing of the job's in hand, and ends.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Asker>);

#[derive(Debug)]
struct Asker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The gatekeeper waits for somebody who asks, and who asks for an answer.
    asked: Condvar,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    /// What was asked last, while there is no answer.
    asks: Option<u64>,
    questions: u64,
    errand: Option<Box<dyn FnOnce() + Send>>,
    /// The gatekeeper is at an errand.
    is_at_errand: bool,
    /// Nobody asks any more; nobody answers any more.
    ended: bool,
    keeper_gone: bool,
    /// When it went through last, and how long it had had a processor then.
    passed: Option<(Instant, Duration)>,
    /// An answer did not come in time; since when they do again.
    is_starved: bool,
    calm_since: Option<Instant>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("asks", &self.asks)
            .field("is_starved", &self.is_starved)
            .finish_non_exhaustive()
    }
}

impl Gate {
    /// With a gatekeeper of its own, but in a simulation, where nobody has to wait for a processor.
    pub(super) fn new() -> Self {
        let state = State { keeper_gone: sim::active(), ..State::default() };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), asked: Condvar::new(), answered: Condvar::new() });
        if !sim::active() {
            let keeper = Keeper(Arc::clone(&shared));
            // Nobody waits for its end, but for that of an errand: it may take a while to find a processor.
            drop(thread::spawn("gannet-gate", move || keeper.keep()));
        }
        Gate(Arc::new(Asker(shared)))
    }

    /// Waits until the calling thread may use a processor for a while, or is to give up. It must hold nothing that others wait for.
    pub(super) fn pass(&self, is_alone: bool, give_up: &dyn Fn() -> bool) {
        self.ask(None, is_alone, give_up);
    }

    /// The same, and has the gatekeeper see to something before; or does so itself, where that does not answer in time: then both may be
    /// at it together.
    pub(super) fn pass_after<T: Send + 'static>(
        &self,
        errand: impl Fn() -> T + Send + Sync + 'static,
        is_alone: bool,
        give_up: &dyn Fn() -> bool,
    ) -> T {
        if self.0.0.state.lock().is_starved {
            // What a starved gatekeeper has begun may be in its hands for long.
            self.ask(None, is_alone, give_up);
            return errand();
        }
        let errand = Arc::new(errand);
        let result: Arc<Mutex<Option<T>>> = Arc::default();
        let by_keeper = {
            let (errand, result) = (Arc::clone(&errand), Arc::clone(&result));
            move || {
                let value = errand();
                *result.lock() = Some(value);
            }
        };
        self.ask(Some(Box::new(by_keeper)), is_alone, give_up);
        let result = result.lock().take();
        result.unwrap_or_else(|| errand())
    }

    fn ask(&self, errand: Option<Box<dyn FnOnce() + Send>>, is_alone: bool, give_up: &dyn Fn() -> bool) {
        let shared = &self.0.0;
        let mut state = shared.state.lock();
        let begun = clock::now();
        let slice = if is_alone { SLICE_ALONE } else { SLICE };
        let may_go_on =
            (is_alone || errand.is_none()) && state.passed.is_some_and(|(at, _)| begun - at < slice);
        if may_go_on || state.keeper_gone {
            return;
        }
        let patience = state.patience(clock::thread_cpu());
        state.questions += 1;
        (state.asks, state.errand) = (Some(state.questions), errand);
        shared.asked.notify_one();
        let mut now = begun;
        while state.asks.is_some() && !state.keeper_gone && now - begun < patience && !give_up() {
            shared.answered.wait_for(&mut state, patience - (now - begun));
            now = clock::now();
        }
        let in_time = state.asks.take().is_none();
        state.errand = None;
        state.pass(in_time, now, clock::thread_cpu());
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.ended = true;
        self.0.asked.notify_one();
        // An errand that was given up has the database in its hands.
        while state.is_at_errand && !state.keeper_gone {
            self.0.answered.wait(&mut state);
        }
    }
}

/// The gatekeeper.
struct Keeper(Arc<Shared>);

impl Keeper {
    fn keep(&self) {
        thread::stand_by();
        crate::pool::reads::in_background();
        let shared = &self.0;
        let mut state = shared.state.lock();
        while !state.ended {
            if let Some(question) = state.asks {
                let errand = state.errand.take();
                state.is_at_errand = errand.is_some();
                // It has to run without the lock that it may have got as a gift of whoever waited.
                drop(state);
                if let Some(errand) = errand {
                    errand();
                }
                state = shared.state.lock();
                state.is_at_errand = false;
                if state.asks == Some(question) {
                    state.asks = None;
                }
                // Who asked, or waits for the errand's end.
                shared.answered.notify_one();
            } else {
                shared.asked.wait(&mut state);
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.state.lock().keeper_gone = true;
        self.0.answered.notify_one();
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

    /// It goes on, with an answer or without.
    fn pass(&mut self, in_time: bool, now: Instant, had: Duration) {
        self.passed = Some((now, had));
        if !in_time {
            (self.is_starved, self.calm_since) = (true, None);
        } else if self.is_starved && now - *self.calm_since.get_or_insert(now) >= CALM {
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
        assert_eq!(state.patience(ms(7)), STARVED);
        state.pass(true, start, ms(7));
        assert_eq!(state.patience(ms(8)), STARVED, "answers come");
        state.pass(false, start + ms(101), ms(8));
        assert_eq!(state.patience(ms(9)), ms(1) * slowness());
        assert_eq!(state.patience(ms(8)), SLICE);
        assert_eq!(state.patience(ms(8000)), REST_MOST);
        // One that comes in time is no more than luck.
        state.pass(true, start + ms(110), ms(9));
        state.pass(false, start + ms(310), ms(9));
        state.pass(true, start + ms(320), ms(10));
        assert!(state.patience(ms(10)) < STARVED);
        state.pass(true, start + ms(520), ms(11));
        assert_eq!(state.patience(ms(12)), STARVED);
    }

    #[test]
    fn errands_are_done_whoever_does_them() {
        let gate = Gate::new();
        for number in 0..100 {
            let is_alone = number % 3 == 0;
            assert_eq!(gate.pass_after(move || number, is_alone, &|| false), number);
            gate.pass(is_alone, &|| false);
        }
        assert_eq!(gate.pass_after(|| 7, false, &|| true), 7, "nobody waits for the gatekeeper");
    }

    #[test]
    fn where_the_gatekeeper_is_gone_work_goes_on() {
        let gate = Gate::new();
        let calls = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let errand = {
            let calls = Arc::clone(&calls);
            move || match calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0 => panic!("planted"),
                number => number,
            }
        };
        assert!(gate.pass_after(errand, false, &|| false) > 0);
        gate.pass(false, &|| false);
    }
}
