//! TPC-C: the order-entry benchmark (revision 5.11 of its specification), over any database that speaks SQL.
//!
//! | module | job |
//! |---|---|
//! | [`connection`] | what a driver has to offer |
//! | `schema` | the nine tables |
//! | `data` | the initial population, by the specification's distributions (clauses 1.2, 4.3) |
//! | `transactions` | the five transactions (clause 2) |
//! | `check` | the consistency conditions (clause 3.3.2) |
//! | `run` | sessions that work for a while, with the mix of clause 5.2.3 |
//!
//! Departures, so that nobody is misled: terminals have no think or keying times unless asked for; there is no terminal I/O;
//! results are therefore not comparable to published tpmC figures.

pub mod check;
pub mod connection;
pub mod data;
pub mod run;
pub mod schema;
pub mod transactions;

/// Items of the company, and stock of each warehouse.
pub const ITEMS: u32 = 100_000;
/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;
/// Customers of a district, and its initial orders.
pub const CUSTOMERS: u32 = 3_000;
