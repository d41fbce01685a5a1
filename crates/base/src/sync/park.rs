//! Waiting on an address: the one primitive under the store's own latches, which pack their state into one word
//! and therefore cannot embed a mutex.
#![expect(unsafe_code, reason = "parking_lot_core's queue is keyed by address, which it cannot check")]

use crate::sim;
use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, ParkResult};
use std::time::Duration;

/// Waits on `key` until it is unparked. `still_needed` is asked under the queue's lock: when it says no, or an
/// unpark of `key` comes after it was asked, the call returns. Returns false only when `timeout` ran out.
pub fn park(key: usize, still_needed: impl FnOnce() -> bool, timeout: Option<Duration>) -> bool {
    if sim::active() {
        return !still_needed() || sim::block(key, timeout);
    }
    let deadline = timeout.map(|t| std::time::Instant::now() + t);
    // SAFETY: `key` is the address of a latch owned by the caller, so nobody else parks on it; the closures neither
    // panic nor call back into parking_lot_core.
    let result =
        unsafe { parking_lot_core::park(key, still_needed, || {}, |_, _| {}, DEFAULT_PARK_TOKEN, deadline) };
    result != ParkResult::TimedOut
}

/// Wakes every thread parked on `key`.
pub fn unpark_all(key: usize) {
    if sim::active() {
        sim::wake(key, usize::MAX);
    } else {
        // SAFETY: as in `park`.
        unsafe { parking_lot_core::unpark_all(key, DEFAULT_UNPARK_TOKEN) };
    }
}
