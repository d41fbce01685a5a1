//! Locks and condition variables: `parking_lot` in production, driven by the seeded scheduler in a simulation.
//!
//! A lock is not poisoned by a panic: the store treats a panic while state is inconsistent as a bug that must stop
//! the database, and has its own switch for that.

mod lock;
mod park;

pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use park::{park, unpark_all, unpark_one};

pub use crate::sim::yield_point;
