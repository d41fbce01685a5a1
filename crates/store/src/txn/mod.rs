//! The in-memory half of transactions: who is running, what is visible, who waits for whom, which rows are locked in
//! share mode. No page and no log record is touched here; versions, undo and the persistent status tree are built
//! around it.
//!
//! - [`active`]: one writing transaction and its life.
//! - [`registry`]: ids, the commit protocol, snapshots, the horizon.
//! - [`status`]: a lossy cache of recent commits, read without a lock.
//! - [`waits`]: waiting for a transaction's end; deadlocks.
//! - [`locks`]: shared row locks.
//! - [`holds`]: trees that writers keep from being dropped.
//!
//! # Life of a transaction
//! ```text
//!                 commit                      advance_visible
//!   Running ───────────────► Committing ─────────────────────────► Ended
//!    │   │ doom      ▲ log refused │                                 ▲
//!    │   ▼           └─────────────┘ (back to Running)               │
//!    │  Doomed                                                       │
//!    └───┴─── begin_abort ──► Aborting ──── finish_abort ────────────┘
//!                                ▲
//!             insert_loser ──────┘ (found in the log at restart)
//! ```
//! A transaction counts as active until `Ended`: a commit that is not visible yet and an abort that is not reverted
//! yet hold the horizon back and are waited for like a running one.
//!
//! # Order of locks
//! `Registry::commits` before the log's own; `Registry::live` before `Registry::active`; a transaction's list of held
//! locks before a shard of the lock table. The wait-for graph's mutex is taken with none of these held, and nothing
//! is taken under it. A thread that sleeps in [`waits::Waits::wait_for`] must hold no latch.

pub(crate) mod active;
pub(crate) mod holds;
pub(crate) mod locks;
pub(crate) mod registry;
pub(crate) mod status;
pub(crate) mod waits;

#[cfg(test)]
mod locks_tests;
#[cfg(test)]
mod registry_tests;
#[cfg(test)]
mod waits_tests;
