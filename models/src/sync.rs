//! What the sources take from `gannet_base::sync`, made of loom's parts.

pub use loom::sync::MutexGuard;
pub use loom::sync::atomic;

use loom::sync::Condvar;
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
    static ref LOT: (Mutex<u64>, Condvar) = (Mutex::new(0), Condvar::new());
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
