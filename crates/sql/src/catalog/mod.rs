//! What a database contains: tables, indexes, sequences, constraints, roles, statistics.
//!
//! # Guarantees
//! 1. A [`Catalog`] is immutable. A statement runs from start to end with one, and with a view of the data taken together
//!    with it, so the two agree: a reader keeps what it began with, however tables change meanwhile, and needs no lock.
//! 2. Definitions change in transactions, like rows: they are entries of a tree of the same store. Until its transaction
//!    commits, a change is seen by its own session only.
//! 3. Who writes to a table holds a key-share lock on the table's catalog entry until its transaction ends, who changes
//!    or drops the definition an exclusive one. After the lock was had, the definition is looked at again.
//!
//! Entries are JSON (see `docs/format.md`); unknown members are refused, so that a newer release's objects are never
//! half understood.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub mod model;
pub mod sequences;
pub mod storage;
#[cfg(test)]
mod tests;

pub use model::*;
pub use sequences::Numbers;
pub(crate) use sequences::stored_position;
