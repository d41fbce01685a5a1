//! Firebird 3, beside whom we are measured: its server, its dialect of SQL, and a driver.
//!
//! | module | job |
//! |---|---|
//! | [`server`] | a root folder of its own, started on it for one measurement, and how it is set |
//! | [`dialect`] | the workloads' statements, which are written for PostgreSQL, in Firebird's words |
//! | `wire` | connections of SQL workloads (feature `rivals`) |
//!
//! The client is Firebird's own library, which comes with the server and is loaded when somebody connects; nothing is linked. `rsfbclient` has a client in Rust, too
//! (0.29 was tried): a statement that gives one row and fails, or finds none, leaves that one out of step with the server, and what remains takes two or three messages
//! each way for what takes one. Both ask after a statement without rows how many it has changed: so those are made to give one, see [`dialect::with_answer`].

pub mod dialect;
pub mod server;
#[cfg(feature = "rivals")]
pub mod wire;
