//! Waiting until a word changes: the primitive under those who sleep in groups, since one call wakes them all.

use crate::sim;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

/// Waits on `word` as long as it holds `expected` and nobody wakes it. Returns false only when `timeout` ran out; may return
/// early for no reason.
pub fn wait_while(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
    if sim::active() {
        return word.load(Acquire) != expected || sim::block(key_of(word), timeout);
    }
    system::wait_while(word, expected, timeout)
}

/// Wakes one thread that waits on `word`.
pub fn wake_one(word: &AtomicU32) {
    if sim::active() {
        sim::wake(key_of(word), 1);
    } else {
        system::wake(word, 1);
    }
}

/// Wakes every thread that waits on `word`.
pub fn wake_all(word: &AtomicU32) {
    if sim::active() {
        sim::wake(key_of(word), usize::MAX);
    } else {
        system::wake(word, i32::MAX as u32);
    }
}

fn key_of(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word) as usize
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags};
    use rustix::time::Timespec;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    pub(super) fn wait_while(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
        // A time too long for the system is as good as none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        futex::wait(word, Flags::PRIVATE, expected, timeout.as_ref()) != Err(Errno::TIMEDOUT)
    }

    pub(super) fn wake(word: &AtomicU32, most: u32) {
        // It fails only for addresses that are not a word's.
        let _ = futex::wake(word, Flags::PRIVATE, most);
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use crate::sync::park::{park, unpark_all};
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Acquire;
    use std::time::Duration;

    pub(super) fn wait_while(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
        park(super::key_of(word), || word.load(Acquire) == expected, timeout)
    }

    pub(super) fn wake(word: &AtomicU32, _most: u32) {
        unpark_all(super::key_of(word));
    }
}
