//! Gannet's storage engine.

mod change;
mod core;
mod entry;
mod error;
pub mod log;
mod meta;
mod mtr;
pub mod node;
mod overflow;
pub mod page;
mod pool;
mod space;
mod tree;
mod undo;
mod writeback;

pub use error::{Error, Result};
