//! Garbage of a known amount: rows of the stock that are changed under a snapshot, which holds what they were before.

use super::place::Place;
use super::task;
use crate::isolation::client::Client;
use crate::servers::Kind;
use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// An old snapshot, until this is dropped or let go.
#[derive(Debug)]
pub struct Snapshot(Client);

fn run(client: &mut Client, sql: &str) -> Result<String> {
    client.run(sql).map(|answer| answer.tag).map_err(|error| anyhow!("{sql}: {error}"))
}

impl Snapshot {
    /// Takes one.
    ///
    /// # Errors
    /// What the server says.
    pub fn take(place: &Place) -> Result<Self> {
        let mut client = place.server()?.client(task::DATABASE)?;
        run(&mut client, "begin isolation level repeatable read; select count(*) from warehouse")?;
        Ok(Snapshot(client))
    }

    /// Lets go of it, and of what it holds.
    ///
    /// # Errors
    /// What the server says.
    pub fn release(mut self) -> Result<()> {
        run(&mut self.0, "rollback").map(|_| ())
    }
}

/// Changes one of `every` rows of the stock, spread over all of it; gives their number.
///
/// # Errors
/// What the server says.
pub fn scattered(place: &Place, every: u32, which: u32) -> Result<u64> {
    changed(
        place,
        &format!(
            "update stock set s_remote_cnt = s_remote_cnt + 1 where s_i_id % {every} = {}",
            which % every
        ),
    )
}

/// Changes rows that lie together: those of the first `items` of `of` items of each warehouse's stock, and as large a share of each district's customers.
///
/// # Errors
/// What the server says.
pub fn together(place: &Place, share: f64, items: u32, customers: u32) -> Result<u64> {
    let first = |count: u32| (f64::from(count) * share).round() as u32;
    let stock = changed(
        place,
        &format!("update stock set s_remote_cnt = s_remote_cnt + 1 where s_i_id <= {}", first(items)),
    )?;
    let owed = changed(
        place,
        &format!(
            "update customer set c_delivery_cnt = c_delivery_cnt + 1 where c_id <= {}",
            first(customers)
        ),
    )?;
    Ok(stock + owed)
}

fn changed(place: &Place, sql: &str) -> Result<u64> {
    let tag = run(&mut place.server()?.client(task::DATABASE)?, sql)?;
    let rows = tag.strip_prefix("UPDATE ").and_then(|count| count.parse().ok());
    rows.ok_or_else(|| anyhow!("{sql}: {tag}"))
}

/// What is held back: of Gannet bytes of undo, of PostgreSQL dead rows, as it estimates.
///
/// # Errors
/// What the server says.
pub fn amount(place: &Place, kind: Kind) -> Result<Value> {
    let (sql, unit) = match kind {
        Kind::Gannet => ("select max(held_bytes) from gannet_snapshots", "bytes"),
        Kind::PostgreSql => ("select sum(n_dead_tup) from pg_stat_user_tables", "rows"),
    };
    let rows = place.sql(sql)?;
    let value = rows.first().and_then(|row| row.first().cloned().flatten());
    Ok(json!({ "amount": value.and_then(|text| text.parse::<f64>().ok()), "unit": unit }))
}

/// Settings by which nobody sweeps but who is asked to.
pub fn unswept(kind: Kind) -> Vec<String> {
    match kind {
        Kind::PostgreSql => vec!["autovacuum=off".to_owned()],
        Kind::Gannet => {
            // A minute that is hours away, whatever zone this machine's clock has: no zone is 7 minutes off.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
            let minute = |later: u64| {
                let minutes = now.as_secs() / 60 + later;
                format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60)
            };
            vec!["--sweep-window".to_owned(), format!("{}-{}", minute(11 * 60 + 7), minute(11 * 60 + 8))]
        }
    }
}

/// PostgreSQL looks for garbage every quarter of a minute, as measurements do not last long; Gannet looks by itself.
pub fn swept(kind: Kind) -> Vec<String> {
    match kind {
        Kind::PostgreSql => vec!["autovacuum_naptime=15s".to_owned()],
        Kind::Gannet => Vec::new(),
    }
}
