//! Gannet's storage engine.

mod error;
pub mod log;
pub mod page;

pub use error::{Error, Result};
