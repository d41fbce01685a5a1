//! What an administrator's task costs, and whom: tasks of Gannet, of PostgreSQL, of Firebird and of SQLite, alone and beside users who run TPC-C.
//!
//! | module | job |
//! |---|---|
//! | [`files`] | a database as files: how large it is, what the system caches of it, copies |
//! | [`task`] | the tasks: which program does each, for whom |
//! | `firebird` | Firebird's programs |
//! | `sqlite`, `within` | SQLite's, which are processes of our own |
//! | [`place`] | a server on a copy of the data, and a task run beside it to its end |
//! | [`users`] | users who work for a while, beside a task or without one |
//! | [`measure`] | one task, alone and beside users |
//! | [`garbage`] | changed rows whose old versions a snapshot holds back |
//! | [`studies`] | users as garbage grows, sweeps of more and more garbage, incremental backups of more and more changes |
//!
//! What was found to be fair: users without the task right before those with it, at full load also behind them, as a server that has had time to bring its
//! dirty pages home is faster for a while; users work for some seconds first that do not count; files are removed only when nobody is measured, as that can
//! stop everybody's syncs; a task begins no more than once a second, so that it is not measured how often a program can be started.

pub mod files;
pub(crate) mod firebird;
pub mod garbage;
pub mod measure;
pub mod place;
mod sqlite;
pub mod studies;
pub mod task;
pub mod users;
#[cfg(feature = "rivals")]
pub mod within;
