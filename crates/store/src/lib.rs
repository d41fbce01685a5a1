//! Gannet's storage engine.

mod catalog;
mod change;
mod check;
mod core;
mod cursor;
mod database;
mod engine;
mod entry;
mod error;
pub mod log;
mod meta;
mod mtr;
pub mod node;
mod overflow;
pub mod page;
mod pool;
mod recovery;
mod shared;
mod space;
mod sweep;
mod transaction;
mod tree;
mod txn;
mod undo;
mod versions;
mod writeback;

pub use check::{CheckReport, Finding};
pub use cursor::Cursor;
pub use database::{Database, DatabaseStats, RestartReport};
pub use engine::{CreateOptions, Engine, EngineOptions, OpenOptions};
pub use error::{Error, Result};
pub use transaction::{
    BulkLoader, Canceller, Durability, Isolation, LockMode, Savepoint, Transaction, TransactionOptions, Tree,
};
