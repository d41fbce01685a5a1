//! Gannet's storage engine.

mod error;
pub mod node;
pub mod page;

pub use error::{Error, Result};
