//! A seeded, deterministic scheduler.
//!
//! Inside [`Simulation::run`] every thread made with [`crate::thread::spawn`] is a real thread, but only one of
//! them runs at a time: the one that holds the *baton*. At every lock, wait, wake, sleep, spawn and explicit
//! [`yield_point`] the scheduler may hand the baton to another runnable thread, chosen by a generator seeded by the
//! caller. Time is virtual: it creeps forward with each step and jumps to the next deadline when nobody can run.
//! A run is therefore a function of its seed, as long as the code inside takes time, randomness, threads and locks
//! from this crate only (a lint in `store` sees to that).
//!
//! # Invariants
//! 1. At most one thread of a simulation runs between two scheduling points.
//! 2. A thread blocked on a key runs again only after a wake of that key or its deadline.
//! 3. When nobody can run and no deadline is left, the run fails and names who waits: a deadlock is found, not
//!    suffered.
//!
//! Simulations may run beside each other: on Linux each keeps its threads to one processor, the one with the fewest simulations. What a
//! run does stays the same, as one of its threads runs at a time; within one processor the baton is handed over faster.
//!
//! The cost outside a simulation is one relaxed load of a static per locking operation.

#[cfg(target_os = "linux")]
mod seat;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CURRENT: RefCell<Option<(Arc<Shared>, usize)>> = const { RefCell::new(None) };
}

const NOBODY: usize = usize::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Runnable,
    Blocked { key: usize, deadline: Option<u64> },
    Done,
}

struct SimThread {
    name: String,
    status: Status,
    timed_out: bool,
    handle: Option<std::thread::Thread>,
}

struct State {
    threads: Vec<SimThread>,
    random: Generator,
    now_ns: u64,
    steps: u64,
    failure: Option<String>,
}

struct Shared {
    state: Mutex<State>,
    current: AtomicUsize,
    finished: Condvar,
    max_steps: u64,
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and any seed is a good one.
#[derive(Debug, Clone)]
pub struct Generator(u64);

impl Generator {
    /// A generator whose outputs are a function of `seed`.
    pub fn new(seed: u64) -> Self {
        Generator(seed)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Multiply-shift keeps the bias below 2^-64 * bound, which no test here can notice.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `n` draws on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// One deterministic run.
#[derive(Debug, Clone)]
pub struct Simulation {
    seed: u64,
    max_steps: u64,
}

/// Why a simulated run failed: a panic, a deadlock or too many steps. Carries the seed that repeats it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("simulation with seed {seed} failed after {steps} steps: {message}")]
pub struct SimFailure {
    /// The seed that repeats the failure.
    pub seed: u64,
    /// Scheduling steps taken.
    pub steps: u64,
    /// What happened.
    pub message: String,
}

impl Simulation {
    /// A simulation that is a function of `seed`.
    pub fn new(seed: u64) -> Self {
        Simulation { seed, max_steps: 50_000_000 }
    }

    /// Fails the run after this many scheduling steps (a livelock).
    pub fn max_steps(mut self, steps: u64) -> Self {
        self.max_steps = steps;
        self
    }

    /// Runs `body` as the first simulated thread and returns its result once every thread it started has ended.
    pub fn run<T: Send + 'static>(self, body: impl FnOnce() -> T + Send + 'static) -> Result<T, SimFailure> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                threads: Vec::new(),
                random: Generator::new(self.seed),
                now_ns: 1_000_000_000,
                steps: 0,
                failure: None,
            }),
            current: AtomicUsize::new(NOBODY),
            finished: Condvar::new(),
            max_steps: self.max_steps,
        });
        RUNNING.fetch_add(1, Ordering::SeqCst);
        #[cfg(target_os = "linux")]
        let _seat = seat::Seat::take();
        let result = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&result);
        shared.start("main".to_owned(), move || *slot.lock().expect("result lock") = Some(body()));
        shared.hand_over(shared.lock(), NOBODY);
        let mut state = shared.lock();
        while state.failure.is_none() && state.threads.iter().any(|t| t.status != Status::Done) {
            state = shared.finished.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        if let Some(message) = state.failure.clone() {
            return Err(SimFailure { seed: self.seed, steps: state.steps, message });
        }
        drop(state);
        let value = result.lock().expect("result lock").take();
        Ok(value.expect("the body ended without a failure"))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Registers and starts a thread; it first runs when it is given the baton.
    fn start(self: &Arc<Self>, name: String, body: impl FnOnce() + Send + 'static) -> usize {
        let id = {
            let mut state = self.lock();
            state.threads.push(SimThread {
                name: name.clone(),
                status: Status::Runnable,
                timed_out: false,
                handle: None,
            });
            state.threads.len() - 1
        };
        let shared = Arc::clone(self);
        let run = move || {
            CURRENT.with(|c| *c.borrow_mut() = Some((Arc::clone(&shared), id)));
            shared.wait_for_baton(id);
            let outcome = catch_unwind(AssertUnwindSafe(body));
            CURRENT.with(|c| *c.borrow_mut() = None);
            let mut state = shared.lock();
            state.threads[id].status = Status::Done;
            if let Err(payload) = outcome {
                let text = payload
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                    .unwrap_or_else(|| "panic without a message".to_owned());
                let name = state.threads[id].name.clone();
                state.failure.get_or_insert(format!("thread {name:?} panicked: {text}"));
                shared.finished.notify_all();
                return;
            }
            shared.wake_locked(&mut state, done_key(id), usize::MAX);
            shared.hand_over(state, id);
        };
        let handle = std::thread::Builder::new()
            .name(name)
            .stack_size(1 << 20)
            .spawn(run)
            .expect("the system gives a thread to the simulation");
        self.lock().threads[id].handle = Some(handle.thread().clone());
        id
    }

    fn wait_for_baton(&self, id: usize) {
        while self.current.load(Ordering::Acquire) != id {
            std::thread::park();
        }
    }

    fn wake_locked(&self, state: &mut State, key: usize, max: usize) -> usize {
        let mut waiting: Vec<usize> = (0..state.threads.len())
            .filter(|&i| matches!(state.threads[i].status, Status::Blocked { key: k, .. } if k == key))
            .collect();
        let mut woken = 0;
        while woken < max && !waiting.is_empty() {
            let pick = state.random.below(waiting.len() as u64) as usize;
            let id = waiting.swap_remove(pick);
            state.threads[id].status = Status::Runnable;
            state.threads[id].timed_out = false;
            woken += 1;
        }
        woken
    }

    /// Chooses who runs next and gives it the baton. Returns at once; `from` waits for the baton itself.
    fn hand_over(&self, mut state: MutexGuard<'_, State>, from: usize) {
        state.steps += 1;
        state.now_ns += 200 + state.random.below(800);
        if state.failure.is_none() && state.steps > self.max_steps {
            state.failure = Some(format!("no end after {} steps\n{}", state.steps, describe(&state)));
        }
        if state.failure.is_some() {
            self.finished.notify_all();
            return;
        }
        loop {
            let now = state.now_ns;
            for thread in &mut state.threads {
                if let Status::Blocked { deadline: Some(deadline), .. } = thread.status
                    && deadline <= now
                {
                    thread.status = Status::Runnable;
                    thread.timed_out = true;
                }
            }
            let runnable: Vec<usize> =
                (0..state.threads.len()).filter(|&i| state.threads[i].status == Status::Runnable).collect();
            if !runnable.is_empty() {
                let next = runnable[state.random.below(runnable.len() as u64) as usize];
                self.current.store(next, Ordering::Release);
                if next != from
                    && let Some(handle) = &state.threads[next].handle
                {
                    handle.unpark();
                }
                return;
            }
            let next_deadline = state.threads.iter().filter_map(|t| match t.status {
                Status::Blocked { deadline, .. } => deadline,
                _ => None,
            });
            match next_deadline.min() {
                Some(deadline) => state.now_ns = deadline,
                None => {
                    if state.threads.iter().any(|t| t.status != Status::Done) {
                        state.failure = Some(format!("deadlock: nobody can run\n{}", describe(&state)));
                    }
                    self.finished.notify_all();
                    return;
                }
            }
        }
    }
}

fn describe(state: &State) -> String {
    let mut text = String::new();
    for (id, thread) in state.threads.iter().enumerate() {
        if thread.status != Status::Done {
            let _ = writeln!(text, "  thread {id} {:?}: {:?}", thread.name, thread.status);
        }
    }
    text
}

fn done_key(id: usize) -> usize {
    // Keys of locks are addresses and therefore never this small (or odd in the top bit).
    usize::MAX - 1 - id
}

fn current() -> Option<(Arc<Shared>, usize)> {
    if RUNNING.load(Ordering::Relaxed) == 0 {
        return None;
    }
    CURRENT.with(|c| c.borrow().clone())
}

/// The same of a thread that was inside a simulation a moment ago. When that has failed meanwhile, nobody waits for its threads
/// any more: they rest for good, as what they would do next means nothing.
fn current_or_rest() -> (Arc<Shared>, usize) {
    let own = CURRENT.with(|c| c.borrow().clone()).expect("only simulated threads come here");
    while own.0.lock().failure.is_some() {
        std::thread::park();
    }
    own
}

/// Whether the calling thread runs inside a simulation.
#[inline]
pub fn active() -> bool {
    RUNNING.load(Ordering::Relaxed) != 0 && CURRENT.with(|c| c.borrow().is_some())
}

/// A place where another simulated thread may run. Nothing happens outside a simulation.
#[inline]
pub fn yield_point() {
    if active() {
        yield_slow();
    }
}

#[cold]
fn yield_slow() {
    let (shared, id) = current_or_rest();
    let mut state = shared.lock();
    // Staying with one thread most of the time reaches deep states sooner than a coin flip at every step.
    if !state.random.one_in(4) {
        state.now_ns += 50;
        return;
    }
    shared.hand_over(state, id);
    shared.wait_for_baton(id);
}

/// Blocks the calling simulated thread until `key` is woken (true) or `timeout` has passed (false).
pub(crate) fn block(key: usize, timeout: Option<Duration>) -> bool {
    let (shared, id) = current_or_rest();
    let mut state = shared.lock();
    let deadline = timeout.map(|t| state.now_ns.saturating_add(t.as_nanos() as u64));
    state.threads[id].status = Status::Blocked { key, deadline };
    shared.hand_over(state, id);
    shared.wait_for_baton(id);
    !shared.lock().threads[id].timed_out
}

/// Makes up to `max` threads blocked on `key` runnable; returns how many.
pub(crate) fn wake(key: usize, max: usize) -> usize {
    let Some((shared, _)) = current() else { return 0 };
    let mut state = shared.lock();
    shared.wake_locked(&mut state, key, max)
}

pub(crate) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> usize {
    let (shared, _) = current().expect("only simulated threads spawn here");
    let id = shared.start(name, body);
    yield_point();
    id
}

pub(crate) fn join(id: usize) {
    let (shared, _) = current().expect("only simulated threads join here");
    while shared.lock().threads[id].status != Status::Done {
        block(done_key(id), None);
    }
}

pub(crate) fn now_ns() -> Option<u64> {
    current().map(|(shared, _)| shared.lock().now_ns)
}

pub(crate) fn random_u64() -> Option<u64> {
    current().map(|(shared, _)| shared.lock().random.next_u64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock, random, sync, thread};

    fn trace(seed: u64) -> Vec<(u64, u64)> {
        Simulation::new(seed)
            .run(|| {
                let log = Arc::new(sync::Mutex::new(Vec::new()));
                let handles: Vec<_> = (0..4u64)
                    .map(|i| {
                        let log = Arc::clone(&log);
                        thread::spawn(&format!("t{i}"), move || {
                            for _ in 0..5 {
                                clock::sleep(Duration::from_micros(random::below(50)));
                                log.lock().push((i, clock::now().as_nanos()));
                            }
                        })
                    })
                    .collect();
                handles.into_iter().for_each(|h| h.join().unwrap());
                let log = log.lock();
                log.clone()
            })
            .unwrap()
    }

    #[test]
    fn a_run_is_a_function_of_its_seed() {
        assert_eq!(trace(1), trace(1));
        assert_ne!(trace(1), trace(2));
    }

    #[test]
    fn a_deadlock_is_reported_with_its_seed() {
        let error = Simulation::new(3)
            .run(|| {
                let (mutex, condvar) = (sync::Mutex::new(()), sync::Condvar::new());
                let mut guard = mutex.lock();
                condvar.wait(&mut guard);
            })
            .unwrap_err();
        assert!(error.message.contains("deadlock"), "{error}");
        assert_eq!(error.seed, 3);
    }

    #[test]
    fn a_panic_in_any_thread_fails_the_run() {
        let error = Simulation::new(4)
            .run(|| {
                let _ = thread::spawn("bad", || panic!("planted")).join();
            })
            .unwrap_err();
        assert!(error.message.contains("planted"), "{error}");
    }

    #[test]
    fn sleeping_takes_virtual_time_only() {
        let slept = Simulation::new(5)
            .run(|| {
                let start = clock::now();
                clock::sleep(Duration::from_secs(3600));
                clock::now() - start
            })
            .unwrap();
        assert!(slept >= Duration::from_secs(3600));
    }
}
