//! Randomness that is not for secrets: eviction, back-off, identities, sampling. Seeded inside a simulation.

use crate::sim::{self, Generator};
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    static GENERATOR: RefCell<Generator> = RefCell::new(Generator::new(RandomState::new().hash_one(0)));
}

/// 64 random bits.
pub fn next_u64() -> u64 {
    match sim::random_u64() {
        Some(value) => value,
        None => GENERATOR.with(|g| g.borrow_mut().next_u64()),
    }
}

/// A number in `0..bound`; `bound` must not be 0.
pub fn below(bound: u64) -> u64 {
    ((u128::from(next_u64()) * u128::from(bound)) >> 64) as u64
}
