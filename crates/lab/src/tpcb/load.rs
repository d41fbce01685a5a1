//! Filling a bank.

use super::{ACCOUNTS, Size, TELLERS};
use crate::tpcc::connection::{Connect, Connection};
use anyhow::Result;
use std::fmt::Write;

/// Rows that a COPY is given at a time.
const AT_ONCE: u64 = 1000;
/// Rows have 100 bytes at least (clause 3.1).
const ACCOUNT_FILLER: usize = 84;
const OTHER_FILLER: usize = 88;

const TABLES: &str = "\
create table tpcb_branches (bid integer primary key, bbalance bigint not null, filler text not null);
create table tpcb_tellers (tid integer primary key, bid integer not null, tbalance bigint not null, filler text not null);
create table tpcb_accounts (aid integer primary key, bid integer not null, abalance bigint not null, filler text not null);
create table tpcb_history (tid integer not null, bid integer not null, aid integer not null, delta bigint not null, mtime timestamp not null, filler text not null);
create table tpcb_sessions (sid integer primary key, done bigint not null)";

/// Creates the tables and fills them: no balance anywhere, nothing in the history.
///
/// # Errors
/// The database's.
pub fn tables(connect: &dyn Connect, size: Size) -> Result<()> {
    let mut connection = connect.connect()?;
    let connection = &mut *connection;
    for statement in TABLES.split(';') {
        connection.batch(statement)?;
    }
    let (short, long) = ("f".repeat(ACCOUNT_FILLER), "f".repeat(OTHER_FILLER));
    fill(connection, "tpcb_branches", size.branches, |bid, line| write!(line, "{bid}\t0\t{long}"))?;
    fill(connection, "tpcb_tellers", size.branches * TELLERS, |tid, line| {
        write!(line, "{tid}\t{}\t0\t{short}", (tid - 1) / TELLERS + 1)
    })?;
    fill(connection, "tpcb_accounts", size.branches * ACCOUNTS, |aid, line| {
        write!(line, "{aid}\t{}\t0\t{short}", (aid - 1) / ACCOUNTS + 1)
    })?;
    fill(connection, "tpcb_sessions", size.sessions, |number, line| write!(line, "{}\t0", number - 1))?;
    connection.batch("analyze")
}

/// Copies rows 1 to `count` into a table.
fn fill(
    connection: &mut dyn Connection,
    table: &str,
    count: u64,
    row: impl Fn(u64, &mut String) -> std::fmt::Result,
) -> Result<()> {
    let (mut next, mut lines) = (1, String::new());
    let mut more = |data: &mut Vec<u8>| {
        lines.clear();
        for number in next..=(next + AT_ONCE - 1).min(count) {
            // Writing to a string does not fail.
            let _ = row(number, &mut lines);
            lines.push('\n');
        }
        next += AT_ONCE;
        data.extend_from_slice(lines.as_bytes());
        next <= count
    };
    connection.load(table, &mut more)?;
    Ok(())
}
