//! What the sources take from `gannet_base::sync`, made of loom's parts.

pub use loom::sync::MutexGuard;
pub use loom::sync::atomic;

use atomic::AtomicU32;
use atomic::Ordering::Acquire;
use std::cell::Cell;
use std::time::Duration;

/// A mutex without poisoning.
#[derive(Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that is not held.
    pub fn new(value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    /// Takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("a model that panics has ended")
    }
}

loom::lazy_static! {
    /// Where everybody parks, whatever the key: who is woken for nothing looks again. The number counts wakings.
    static ref LOT: (Mutex<u64>, loom::sync::Condvar) = (Mutex::new(0), loom::sync::Condvar::new());
}

/// Waits for [`unpark_all`], if `still_needed` says so; that and the beginning of the wait are one step to whoever wakes.
pub fn park(_key: usize, still_needed: impl FnOnce() -> bool, _timeout: Option<Duration>) -> bool {
    let (wakings, woken) = &*LOT;
    let mut count = wakings.lock();
    if still_needed() {
        let before = *count;
        while *count == before {
            count = woken.wait(count).expect("a model that panics has ended");
        }
    }
    true
}

/// Wakes everybody.
pub fn unpark_all(_key: usize) {
    let (wakings, woken) = &*LOT;
    *wakings.lock() += 1;
    woken.notify_all();
}

/// The models have a choice at every atomic access anyway.
pub fn yield_point() {}

/// The flusher's, which no model has.
#[derive(Debug, Default)]
pub struct Condvar;

impl Condvar {
    /// Nobody waits.
    pub fn wait<T>(&self, _guard: &mut MutexGuard<'_, T>) {
        panic!("no model has a flusher");
    }

    /// Nobody waits.
    pub fn wait_for<T>(&self, _guard: &mut MutexGuard<'_, T>, _timeout: Duration) {
        panic!("no model has a flusher");
    }

    /// Nobody is there.
    pub fn notify_all(&self) {}
}

/// Who sleeps on a word.
#[derive(Debug)]
struct Sleeper {
    word: usize,
    number: u64,
    woken: bool,
}

#[derive(Debug, Default)]
struct Sleepers {
    list: Vec<Sleeper>,
    next: u64,
}

loom::lazy_static! {
    static ref FUTEX: (Mutex<Sleepers>, loom::sync::Condvar) =
        (Mutex::new(Sleepers::default()), loom::sync::Condvar::new());
}

thread_local! {
    /// The next wakings of all are forgotten. All threads of a model run on one of the system's.
    pub static FORGETS_TO_WAKE: Cell<bool> = const { Cell::new(false) };
    /// Who sleeps for a limited time does so for ever.
    pub static SLEEPS_FOR_EVER: Cell<bool> = const { Cell::new(false) };
}

/// Sleeps on a word that holds `expected`. A limited time has always passed at once: threads may be arbitrarily late anyway.
pub fn wait_while(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
    let (sleepers, woken) = &*FUTEX;
    let mut guard = sleepers.lock();
    if word.load(Acquire) != expected {
        return true;
    }
    if timeout.is_some() && !SLEEPS_FOR_EVER.get() {
        return false;
    }
    let number = guard.next;
    guard.next += 1;
    guard.list.push(Sleeper { word: key_of(word), number, woken: false });
    while !guard.list.iter().any(|sleeper| sleeper.number == number && sleeper.woken) {
        guard = woken.wait(guard).expect("a model that panics has ended");
    }
    guard.list.retain(|sleeper| sleeper.number != number);
    true
}

/// Wakes the one who has slept longest.
pub fn wake_one(word: &AtomicU32) {
    wake(word, 1);
}

/// Wakes all who sleep.
pub fn wake_all(word: &AtomicU32) {
    if !FORGETS_TO_WAKE.get() {
        wake(word, usize::MAX);
    }
}

fn wake(word: &AtomicU32, most: usize) {
    let (sleepers, woken) = &*FUTEX;
    let mut guard = sleepers.lock();
    let asleep = guard.list.iter_mut().filter(|sleeper| sleeper.word == key_of(word) && !sleeper.woken);
    asleep.take(most).for_each(|sleeper| sleeper.woken = true);
    drop(guard);
    woken.notify_all();
}

fn key_of(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word) as usize
}
