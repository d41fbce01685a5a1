//! Gannet's storage engine.

mod error;
pub mod node;
pub mod page;
mod pool;

pub use error::{Error, Result};
