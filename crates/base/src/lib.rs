//! The ground that every Gannet crate stands on.
//!
//! - [`id`]: page, log and transaction identifiers.
//! - [`checksum`]: the one hash that guards pages, log records and manifests.
//! - [`memory`]: one budget that every consumer of memory is charged to.
//! - [`sync`], [`thread`], [`clock`], [`random`]: the only door to locks, threads, time and randomness. In
//!   production they are thin wrappers; inside a [`sim::Simulation`] a seeded scheduler drives them, one thread
//!   at a time, so that a run is a function of its seed.
//! - [`inherited`]: what the process was given by whoever has started it.
//! - [`corpus`]: the kept inputs of fuzz targets, for tests.
//! - [`units`]: sizes such as `512MiB` and durations such as `10s`, as users write them.

pub mod allocator;
pub mod checksum;
pub mod clock;
#[doc(hidden)]
pub mod corpus;
pub mod id;
pub mod inherited;
pub mod memory;
pub mod random;
pub mod sim;
pub mod sync;
pub mod thread;
pub mod units;

pub use id::{Lsn, PageId, TreeId, TxnId};
