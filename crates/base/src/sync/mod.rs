//! Locks and condition variables: `parking_lot` in production, driven by the seeded scheduler in a simulation.
//!
//! A lock is not poisoned by a panic: the store treats a panic while state is inconsistent as a bug that must stop
//! the database, and has its own switch for that.

mod futex;
mod lock;
mod park;

pub use futex::{wait_while, wake_all, wake_one};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use park::{park, unpark_all};

pub use crate::sim::yield_point;
/// The standard library's. Code whose memory orderings are model-checked (see `models/`) takes them from here.
pub use std::sync::atomic;
