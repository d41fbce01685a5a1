//! A checker of isolation: what concurrent sessions were told, and whether any order of their transactions explains it.
//!
//! Sessions append unique values to few hot lists and read them back, so a list read tells which transactions wrote before, and
//! in which order. From that, the order of versions and the dependencies between transactions follow without knowing anything of
//! the database's inside, and a promise that was broken shows as a cycle. After Kingsbury and Alvaro, "Elle: Inferring Isolation
//! Anomalies from Experimental Observations" (VLDB 2020), and Adya's "Weak Consistency" (1999).
//!
//! # What is guaranteed
//! 1. No false alarm: whatever is reported cannot happen at the level that the transaction asked for, given that every value is
//!    appended once and that times are those of one clock. The rules stand in [`graph`].
//! 2. The outcome of a transaction whose commit was not answered may be either; it counts as committed from the moment that
//!    somebody else has seen one of its values, and then has to be there wholly.
//! 3. Reads of transactions that were rolled back are judged, too: a statement's answer is right when it is given.
//!
//! | module | job |
//! |---|---|
//! | [`history`] | what was recorded, and its file |
//! | [`check`] | what can be told from single reads: G1a, G1b, lost and doubled appends, one's own writes |
//! | `order` | the order of a key's versions, and who wrote them |
//! | [`graph`], `cycle` | dependencies as points in time; cycles: G0, G1c, read skew, lost update, G2 |
//! | [`workload`], [`run`] | random transactions on a server, and the sessions that run them |
//! | [`client`], [`spawned`] | a connection; a server process that can be killed |
//! | [`script`] | the classic anomalies as interleaved sessions, compared with PostgreSQL's outcomes |

pub mod anomaly;
pub mod check;
pub mod client;
mod cycle;
pub mod graph;
pub mod history;
mod order;
pub mod run;
pub mod script;
pub mod spawned;
pub mod workload;

#[cfg(test)]
mod tests;
