//! Gannet's storage engine.

mod error;
pub mod page;
mod pool;

pub use error::{Error, Result};
