//! Gannet's laboratory: the same workloads against Gannet and against rivals, with raw data.
//!
//! A [`driver::Driver`] opens one store with fixed settings and hands out sessions; [`run`] lets threads work on
//! sessions for a while and keeps a histogram of latencies and a throughput figure for every second; [`report`] puts
//! everything that is needed to understand, and to repeat, a measurement into one JSON object.
//!
//! An experiment ([`experiments`]) is a list of such measurements, each in a process of its own ([`confine`]), whose results are kept in a folder ([`record`]) and
//! told of in a [`document`] with figures ([`chart`]).
//!
//! Nothing here asserts a speed: programs measure, people judge.

pub mod admin;
pub mod chart;
pub mod circumstances;
pub mod confine;
pub mod device;
pub mod document;
pub mod driver;
pub mod experiments;
pub mod firebird;
pub mod folders;
pub mod gannet;
pub mod histogram;
pub mod isolation;
pub mod lock;
pub mod machine;
pub mod random;
pub mod record;
pub mod report;
pub mod restart;
pub mod rivals;
pub mod run;
pub mod scan;
pub mod servers;
pub mod sides;
pub mod sql;
#[cfg(feature = "rivals")]
pub mod sqlite;
pub mod table;
pub mod throttle;
pub mod tpcb;
pub mod tpcc;
pub mod tune;
pub mod wire;
pub mod workload;
