//! TPC-C: the order-entry benchmark (revision 5.11 of its specification), over any database that speaks SQL.
//!
//! | module | job |
//! |---|---|
//! | [`connection`] | what a driver has to offer |
//! | `schema` | the nine tables |
//! | `data` | the initial population, by the specification's distributions (clauses 1.2, 4.3) |
//! | [`load`] | loading it, by several connections |
//! | `transactions` | the five transactions (clause 2) |
//! | `check` | the consistency conditions (clause 3.3.2) |
//! | [`whole`] | all of it read once |
//! | `run` | sessions that work for a while, with the mix of clause 5.2.3; `think`: their users' times; `figures`: what came of it, as JSON |
//!
//! Departures, so that nobody is misled: terminals have keying and think times only where asked for, and there is no terminal I/O; a warehouse
//! has as many terminals as asked for, not ten; deliveries are not queued but done at once; a terminal's district is drawn for
//! every stock-level transaction. Results are therefore not comparable to published tpmC figures.

pub mod check;
pub mod connection;
pub mod data;
mod figures;
pub mod load;
pub mod run;
pub mod schema;
mod think;
pub mod transactions;
pub mod whole;

/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;

/// How large the company is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Its warehouses.
    pub warehouses: u32,
    /// Items of the company, and stock of each warehouse.
    pub items: u32,
    /// Customers of a district, and its initial orders.
    pub customers: u32,
}

impl Size {
    /// The specification's size (clause 1.2).
    pub fn new(warehouses: u32) -> Self {
        Size { warehouses, items: 100_000, customers: 3_000 }
    }

    /// So many times fewer items and customers: for tests, no TPC-C any more.
    pub fn shrunk(self, times: u32) -> Self {
        // Orders have up to 15 different items, and some of a district's orders are to be delivered.
        Size { items: (self.items / times).max(100), customers: (self.customers / times).max(30), ..self }
    }

    /// Last names that customers have for sure in each district (clause 4.3.3.1).
    pub(crate) fn names(self) -> u32 {
        self.customers.min(1000)
    }

    /// The first of a district's initial orders that is not delivered: 2101 of 3000 (clause 4.3.3.1).
    pub(crate) fn first_undelivered(self) -> u32 {
        self.customers / 10 * 7 + 1
    }
}
