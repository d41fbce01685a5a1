//! Garbage of a known amount: rows of the stock that are changed under a snapshot, which holds what they were before.

use super::place::{Place, Setup, one};
use crate::firebird::server::SWEEP_INTERVAL;
use crate::sides::{GANNET, POSTGRESQL, Side};
use crate::tpcc::connection::{Connection, Datum};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, SystemTime};

/// An old snapshot, until this is dropped or let go.
pub struct Snapshot(Box<dyn Connection>);

fn run(session: &mut dyn Connection, sql: &str) -> Result<u64> {
    let statement = session.prepare(sql)?;
    session.execute(statement, &[]).with_context(|| sql.to_owned())
}

impl Snapshot {
    /// Takes one.
    ///
    /// # Errors
    /// What the server says.
    pub fn take(place: &Place) -> Result<Self> {
        let mut session = place.session()?;
        run(&mut *session, "begin isolation level repeatable read read only")?;
        // Where it is not taken at the begin, it is now.
        one(&mut *session, "select count(*) from warehouse")?;
        Ok(Snapshot(session))
    }

    /// Lets go of it, and of what it holds.
    ///
    /// # Errors
    /// What the server says.
    pub fn release(mut self) -> Result<()> {
        run(&mut *self.0, "rollback").map(|_| ())
    }
}

/// Changes one of `every` rows of the stock, spread over all of it; gives their number.
///
/// # Errors
/// What the server says.
pub fn scattered(place: &Place, every: u32, which: u32) -> Result<u64> {
    // The rest of a division: not everybody has a sign for that.
    changed(
        place,
        &format!(
            "update stock set s_remote_cnt = s_remote_cnt + 1 where s_i_id - s_i_id / {every} * {every} = {}",
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
    run(&mut *place.session()?, sql)
}

/// What is held back: of Gannet bytes of undo, of PostgreSQL dead rows, as it estimates, of Firebird transactions since the oldest snapshot, of
/// SQLite bytes of its log, which has no other room for versions.
///
/// # Errors
/// What the server says.
pub fn amount(place: &Place, side: Side) -> Result<Value> {
    let (sql, unit) = match side {
        Side::Sqlite => return Ok(json!({ "amount": place.log_bytes()?, "unit": "log" })),
        GANNET => ("select max(held_bytes) from gannet_snapshots", "bytes"),
        POSTGRESQL => ("select sum(n_dead_tup) from pg_stat_user_tables", "rows"),
        Side::Firebird => {
            ("select mon$next_transaction - mon$oldest_snapshot from mon$database", "transactions")
        }
    };
    let mut session = place.session()?;
    let statement = session.prepare(sql)?;
    let rows = session.query(statement, &[])?;
    let amount = match rows.first().and_then(|row| row.first()) {
        Some(Datum::Null) | None => None,
        Some(value) => Some(value.scaled(0)?),
    };
    Ok(json!({ "amount": amount, "unit": unit }))
}

/// Who removes garbage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sweeper {
    /// The server, by itself.
    Server,
    /// Nobody but who is asked to.
    Asked,
}

/// The server's settings for that; Gannet's in a file in the folder for the copy.
///
/// # Errors
/// The file cannot be written.
pub fn settings(setup: &Setup, sweeper: Sweeper) -> Result<Vec<String>> {
    match (setup.side, sweeper) {
        (GANNET | Side::Firebird, Sweeper::Server) | (Side::Sqlite, _) => Ok(Vec::new()),
        // Measurements do not last as long as it waits by default between two looks at what there is.
        (POSTGRESQL, Sweeper::Server) => Ok(vec!["autovacuum_naptime=15s".to_owned()]),
        (POSTGRESQL, Sweeper::Asked) => Ok(vec!["autovacuum=off".to_owned()]),
        // Whoever reads rows removes their old versions still, as does who is told by him: that cannot be shut.
        (Side::Firebird, Sweeper::Asked) => Ok(vec![format!("{SWEEP_INTERVAL}=0")]),
        (GANNET, Sweeper::Asked) => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
            let file = setup.scratch.join("settings.toml");
            fs::write(&file, format!("sweep_window = \"{}\"\n", shut(now.as_secs() / 60)))?;
            Ok(vec!["--config".to_owned(), file.display().to_string()])
        }
    }
}

/// A window of one minute that is hours away from this minute since 1970, whatever zone the machine's clock has: no zone is 7 minutes off.
fn shut(now: u64) -> String {
    let minute = |later: u64| format!("{:02}:{:02}", (now + later) / 60 % 24, (now + later) % 60);
    format!("{}-{}", minute(11 * 60 + 7), minute(11 * 60 + 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_a_minute_far_from_now_also_at_midnight() {
        assert_eq!(shut(0), "11:07-11:08");
        assert_eq!(shut(12 * 60 + 52), "23:59-00:00");
        assert_eq!(shut(24 * 60 * 20_000 + 13 * 60), "00:07-00:08");
    }
}
