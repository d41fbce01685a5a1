//! Filling a database, by several connections where there are several warehouses.

use super::connection::{Connect, Connection};
use super::{Size, data, schema};
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

pub use super::data::Interrupted;

/// How often it is told how far the load has come.
const PERIOD: Duration = Duration::from_millis(50);

/// What is loaded, and how.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What the database is to hold.
    pub size: Size,
    /// Seed of the data.
    pub seed: u64,
    /// Connections that load at a time; each works on a warehouse of its own.
    pub loaders: u32,
}

/// Creates the tables and fills them; gives the number of rows. `watch` is called now and then with the share that is done, and may end the load
/// early by giving false: that is [`Interrupted`].
pub fn tables(connect: &dyn Connect, load: &Load, mut watch: impl FnMut(f64) -> bool) -> Result<u64> {
    let mut connection = connect.connect()?;
    schema::create_tables(&mut *connection)?;
    let now = now(&mut *connection)?;
    let (next, steps) = (AtomicU32::new(0), data::steps(load.size));
    let told = Told { steps: AtomicU64::new(0), goes_on: AtomicBool::new(true) };
    let mut connections = vec![connection];
    while connections.len() < load.loaders.clamp(1, load.size.warehouses) as usize {
        connections.push(connect.connect()?);
    }
    std::thread::scope(|scope| {
        let (told, next, now) = (&told, &next, now.as_str());
        let threads: Vec<_> = connections
            .into_iter()
            .map(|connection| scope.spawn(move || fill(connection, load, now, next, told)))
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(PERIOD);
            if !watch(told.steps.load(Ordering::Relaxed) as f64 / steps as f64) {
                told.goes_on.store(false, Ordering::Relaxed);
            }
        }
        let joined = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread that loads panicked")))
        });
        let ended: Vec<Result<u64>> = joined.collect();
        ended.into_iter().sum()
    })
}

/// Creates the indexes and gathers the planner's statistics, for filled tables. Before each step `goes_on` may end it: that is [`Interrupted`].
pub fn finish(connection: &mut dyn Connection, goes_on: impl Fn() -> bool) -> Result<()> {
    for step in schema::INDEXES.iter().chain(&["analyze"]) {
        if !goes_on() {
            return Err(Interrupted.into());
        }
        connection.batch(step)?;
    }
    Ok(())
}

/// Drops the tables.
pub fn drop_tables(connection: &mut dyn Connection) -> Result<()> {
    schema::TABLES.iter().try_for_each(|table| connection.batch(&format!("drop table {table}")))
}

/// What those who load tell, and are told.
struct Told {
    steps: AtomicU64,
    goes_on: AtomicBool,
}

/// The time, as text that COPY takes.
fn now(connection: &mut dyn Connection) -> Result<String> {
    let statement = connection.prepare("select cast(localtimestamp as text)")?;
    let rows = connection.query(statement, &[])?;
    Ok(rows.first().and_then(|row| row.first()).context("there is no time")?.text()?.to_owned())
}

/// Takes up parts until none is left: 0 are the items, others warehouses. When one loader fails, the others take up no more.
fn fill(
    mut connection: Box<dyn Connection>,
    load: &Load,
    now: &str,
    next: &AtomicU32,
    told: &Told,
) -> Result<u64> {
    let connection = &mut *connection;
    let mut rows = 0;
    let progress = &mut |more| {
        told.steps.fetch_add(more, Ordering::Relaxed);
        told.goes_on.load(Ordering::Relaxed)
    };
    loop {
        let part = next.fetch_add(1, Ordering::Relaxed);
        if part > load.size.warehouses {
            return Ok(rows);
        }
        let filled = match part {
            0 => data::fill_items(connection, load.size, load.seed, progress),
            warehouse => data::fill_warehouse(connection, load.size, warehouse, load.seed, now, progress),
        };
        rows += filled.inspect_err(|_| next.store(load.size.warehouses + 1, Ordering::Relaxed))?;
    }
}
