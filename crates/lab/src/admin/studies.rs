//! What else depends on how much there is to do: tasks by the size of the database, users as garbage grows, sweeps of more and more garbage, incremental backups of more and
//! more changes.

use super::garbage::{self, Snapshot, Sweeper};
use super::measure::Times;
use super::place::{Place, Setup, go_on};
use super::task::{Haste, Task};
use super::users::Users;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How far apart two of the numbers are by which rows are chosen.
const PRIME: u32 = 7;

/// Tasks that go through all of a database, and need nothing that another one has made.
pub const SIZED: [Task; 5] = [Task::Copy, Task::Backup, Task::Stat, Task::Check, Task::Dump];
/// How often each of them runs, unless that takes longer than the time: then once.
const SIZED_TIMES: (u32, Duration) = (3, Duration::from_secs(5));

/// Those tasks, without users, one after the other.
///
/// # Errors
/// Something fails, or `stop` is set.
pub fn sizes(setup: &Setup, limit: Duration, stop: &AtomicBool) -> Result<Value> {
    let place = Place::begin(setup, Sweeper::Server)?;
    let ends_early = || stop.load(Ordering::Relaxed);
    let (mut tasks, mut number) = (Vec::new(), 0);
    for task in SIZED.into_iter().filter(|task| task.tool(setup.side).is_some()) {
        let mut runs = Vec::new();
        for _ in 0..SIZED_TIMES.0 {
            go_on(stop)?;
            number += 1;
            let ran = place.run((task, Haste::None), number, limit, false, &ends_early)?;
            runs.push(ran.to_json());
            if ran.time > SIZED_TIMES.1 {
                break;
            }
        }
        place.clean()?;
        tasks.push(json!({ "task": task.name(), "runs": runs }));
    }
    let told = json!({
        "server": place.server()?.describe(), "warehouses": setup.size.warehouses, "tasks": tasks, "data_bytes": place.data_bytes()?,
    });
    place.end()?;
    Ok(told)
}

/// Users in a closed loop, for so long, under a snapshot from before they began or without one.
///
/// # Errors
/// Something fails, or `stop` is set.
pub fn growing(setup: &Setup, is_held: bool, times: Times, stop: &AtomicBool) -> Result<Value> {
    let place = Place::begin(setup, Sweeper::Server)?;
    let connect = place.server()?.connect()?;
    let users = Users {
        connect: &*connect,
        size: setup.size,
        sessions: setup.sessions,
        seed: setup.seed,
        sample: times.sample,
    };
    users.work(0, None, times.warm_up, None, stop)?;
    let snapshot = if is_held { Some(Snapshot::take(&place)?) } else { None };
    let phase = users.work(1, None, times.each, None, stop)?;
    let amount = garbage::amount(&place, setup.side)?;
    if let Some(snapshot) = snapshot {
        snapshot.release()?;
    }
    let server = place.server()?;
    let told = json!({
        "held": is_held, "server": server.describe(), "warehouses": setup.size.warehouses, "sessions": setup.sessions,
        "users": phase.json, "garbage": amount, "data_bytes": place.data_bytes()?, "group": server.group(),
    });
    place.end()?;
    Ok(told)
}

/// Sweeps, without users, of the old versions of one of `every` rows of the stock, for each of these.
///
/// # Errors
/// Something fails, or `stop` is set.
pub fn sweeps(setup: &Setup, every: &[u32], limit: Duration, stop: &AtomicBool) -> Result<Value> {
    let place = Place::begin(setup, Sweeper::Asked)?;
    let ends_early = || stop.load(Ordering::Relaxed);
    let mut points = Vec::new();
    for (number, &every) in every.iter().enumerate() {
        go_on(stop)?;
        let snapshot = Snapshot::take(&place)?;
        let rows = garbage::scattered(&place, every, number as u32 * PRIME)?;
        let amount = garbage::amount(&place, setup.side)?;
        snapshot.release()?;
        let ran = place.run((Task::Sweep, Haste::None), number as u32, limit, false, &ends_early)?;
        points.push(json!({ "rows": rows, "garbage": amount, "run": ran.to_json() }));
    }
    let told = json!({
        "server": place.server()?.describe(), "warehouses": setup.size.warehouses, "points": points, "data_bytes": place.data_bytes()?,
    });
    place.end()?;
    Ok(told)
}

/// Incremental backups, without users, each after so large a share of stock and customers was changed; and a full one, for comparison.
///
/// # Errors
/// Something fails, or `stop` is set.
pub fn changes(setup: &Setup, shares: &[f64], limit: Duration, stop: &AtomicBool) -> Result<Value> {
    if Task::Incremental.tool(setup.side).is_none() {
        bail!("{} has no incremental backup", setup.side.title());
    }
    let place = Place::begin(setup, Sweeper::Server)?;
    let ends_early = || stop.load(Ordering::Relaxed);
    // In this order: Firebird has the next one add to the latest, which is to be the chain's.
    let full = place.run((Task::Backup, Haste::None), 0, limit, false, &ends_early)?;
    place.prepare(Task::Incremental, stop)?;
    let mut points = Vec::new();
    for (number, &share) in shares.iter().enumerate() {
        go_on(stop)?;
        let rows = if share > 0.0 {
            garbage::together(&place, share, setup.size.items, setup.size.customers)?
        } else {
            0
        };
        let ran =
            place.run((Task::Incremental, Haste::None), number as u32 + 1, limit, false, &ends_early)?;
        points.push(json!({ "share": share, "rows": rows, "run": ran.to_json() }));
    }
    place.prove(Task::Incremental, 0, stop)?;
    let told = json!({
        "server": place.server()?.describe(), "warehouses": setup.size.warehouses, "full": full.to_json(), "points": points,
        "data_bytes": place.data_bytes()?,
    });
    place.end()?;
    Ok(told)
}
