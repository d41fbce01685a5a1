//! Gannet's SQL: PostgreSQL's language on [`gannet_store`].
//!
//! A [`Database`] opens a file; a [`Session`] runs statements on it and gives their results to a [`Client`], which is
//! the wire protocol, the shell, or a program that embeds the database.
//!
//! # The way of a statement
//! 1. [`parse`](bind::parse): text to syntax tree, by crate `sqlparser`.
//! 2. [`bind`]: names, types, casts and functions are resolved against the [`catalog`]; the result is a
//!    [`logical`] statement, in which every column has a number of its own and every expression a type. Syntax is matched
//!    exhaustively: what is not implemented is an error that names it.
//! 3. [`plan`]: access paths, join order and operators are chosen by cost; the result is a [`physical`] plan, which is
//!    immutable and shared by all sessions through the plan cache.
//! 4. [`exec`]: operators pull batches of rows through the plan, within the memory budget.
//!
//! Nothing below knows SQL: a table is a tree of rows, an index a tree of keys (see [`codec`]).

pub mod bind;
pub mod catalog;
pub mod check;
pub mod codec;
mod crew;
pub mod ddl;
mod digits;
pub mod dump;
mod effort;
mod error;
mod escape;
pub mod exec;
pub mod functions;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod load;
pub mod logical;
pub mod physical;
pub mod plan;
mod room;
pub mod scram;
pub mod session;
pub mod splitter;
pub mod stat;
pub mod sweep;
pub mod system;
mod table_name;
mod threads;
pub mod types;

pub use error::{Error, Fields, Result, SqlState};
pub use session::{Client, CommandTag, Database, Execution, Notice, OutputColumn, Prepared, Session};
pub use table_name::TableName;
pub use types::{Type, Value};
