//! Tuning: which setting is the best for a load, how sure that is, and why it is so.
//!
//! A load is a few scripts ([`script`]) that connections run over the wire ([`load`]); there is one of our own ([`builtin`]). A [`trial`] is one configuration, tried
//! once: a fresh copy of the database, a server of its own, the load, and what server, device and threads were doing meanwhile ([`waits`]). Which trials are made
//! is decided by a [`search`] along one dimension after the other, each a [`race`] between its values, that knows nothing of databases. [`explain`] says why the one
//! that is picked is faster, from what was counted in the trials; a [`tuner`] leads
//! all of it, and its [`report`] is made from what it has recorded. The built-in load can be run against a [`rival`], too.

pub mod builtin;
pub mod explain;
pub mod interval;
pub mod load;
mod observer;
pub mod race;
pub mod report;
pub mod rival;
pub mod script;
pub mod search;
pub mod trial;
pub mod tuner;
pub mod waits;
