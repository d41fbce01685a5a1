//! Gannet's storage engine.

mod error;
pub mod page;
mod pool;
mod txn;

pub use error::{Error, Result};
