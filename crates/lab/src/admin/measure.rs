//! One task, alone and beside users.
//!
//! The users work for a while that does not count; then in a closed loop without the task, with it, without it; then in an open loop, at half of what they reached
//! without it, likewise; and for a task that can be asked not to heed them ([`Haste`]) once more in a closed loop, with it so. Then they are gone, and the task runs alone. A compaction leaves little to the next one: alone it runs on a copy, before.

use super::garbage::{self, Snapshot, Sweeper};
use super::place::{Place, Ran, Setup, go_on};
use super::task::{Haste, Task};
use super::users::{Phase, Users};
use crate::device::{self, Counters};
use crate::tpcc::connection::Connect;
use anyhow::Result;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long two begins of a task are apart at least.
const APART: Duration = Duration::from_secs(1);
/// A task that is through sooner is run alone until so much time has gone, at most so often.
const ALONE: (Duration, usize) = (Duration::from_secs(1), 3);
/// How often a task runs beside users at most that makes something: what it makes stays until the users are gone, as nothing is removed beside them.
pub const MADE_MOST: usize = 3;
/// One of so many rows of the stock is garbage when a sweep begins.
pub const GARBAGE: u32 = 10;

/// How long it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Each time that counts.
    pub each: Duration,
    /// The time before the first of them.
    pub warm_up: Duration,
    /// How long a task may take.
    pub limit: Duration,
    /// How long a sample is.
    pub sample: Duration,
}

struct Measure<'a> {
    task: Task,
    times: Times,
    stop: &'a AtomicBool,
    /// Of the runs.
    number: AtomicU32,
    /// Of the phases.
    phase: AtomicU32,
}

/// Measures a task.
///
/// # Errors
/// Something fails, or `stop` is set.
pub fn task(
    setup: &Setup,
    task: Task,
    times: Times,
    looks_at_conditions: bool,
    stop: &AtomicBool,
) -> Result<Value> {
    let sweeper = if task == Task::Sweep { Sweeper::Asked } else { Sweeper::Server };
    let mut place = Place::begin(setup, sweeper)?;
    let measure = Measure { task, times, stop, number: AtomicU32::new(0), phase: AtomicU32::new(0) };
    let mut connect = place.server()?.connect()?;
    let mut idle = Value::Null;
    if task == Task::Compact {
        // What users leave behind is a part of what there is to do.
        measure.users(setup, &*connect).work(0, None, times.warm_up, None, stop)?;
        let aside = place.aside()?;
        idle = measure.alone(&aside)?;
        aside.end()?;
        place.resume()?;
        connect = place.server()?.connect()?;
    }
    place.prepare(task, stop)?;
    let mut phases = measure.beside_users(&place, setup, &*connect)?;
    if idle.is_null() {
        idle = measure.alone(&place)?;
    }
    // Of what was ended as it took too long there is nothing to be proven.
    let is_whole =
        idle["runs"].as_array().and_then(|runs| runs.last()).is_some_and(|ran| ran["is_complete"] == true);
    phases["idle"] = idle;
    let number = measure.number.load(Ordering::Relaxed);
    let proof = if is_whole { place.prove(task, number, stop)? } else { None };
    let conditions = if looks_at_conditions { Some(place.conditions(&*connect)?) } else { None };
    // Without databases that a task has made among the server's own.
    place.clean()?;
    let (data, server) = (place.data_bytes()?, place.server()?);
    let told = json!({
        "task": task.name(),
        "tool": task.tool(setup.side),
        "server": server.describe(),
        "warehouses": setup.size.warehouses,
        "sessions": setup.sessions,
        "memory": setup.memory,
        "data_bytes": data,
        "phases": phases,
        "proof": proof,
        "conditions": conditions,
        "group": server.group(),
    });
    place.end()?;
    Ok(told)
}

impl Measure<'_> {
    fn users<'a>(&self, setup: &Setup, connect: &'a dyn Connect) -> Users<'a> {
        Users {
            connect,
            size: setup.size,
            sessions: setup.sessions,
            seed: setup.seed,
            sample: self.times.sample,
        }
    }

    fn next(&self) -> u64 {
        u64::from(self.phase.fetch_add(1, Ordering::Relaxed)) + 1
    }

    /// The task by itself, cold as to what is kept of it and warm as to the server.
    fn alone(&self, place: &Place) -> Result<Value> {
        place.clean()?;
        let mut held = self.garbage(place)?;
        let data = place.data_bytes()?;
        let cached = place.cached()?;
        let disk = device::number_of(&place.out())?;
        let counted = || Counters::of(&disk).unwrap_or_default();
        let (before, began) = (counted(), Instant::now());
        let mut runs: Vec<Ran> = Vec::new();
        let mut room = None;
        loop {
            if let Some(snapshot) = held.take() {
                snapshot.release()?;
            }
            let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
            let stop = || self.stop.load(Ordering::Relaxed);
            // Looking at what it takes would slow a short one down; the first run is looked at, which is the only one where it is long.
            let ran =
                place.run((self.task, Haste::None), number, self.times.limit * 4, runs.is_empty(), &stop)?;
            room = room.or(ran.room);
            runs.push(ran);
            if !self.task.repeats() || began.elapsed() > ALONE.0 || runs.len() >= ALONE.1 {
                break;
            }
        }
        let device = counted().since(before);
        let after = place.cached()?;
        Ok(json!({
            "runs": runs.iter().map(Ran::to_json).collect::<Vec<_>>(),
            "data_bytes": data,
            "room_beside_bytes": room.map(|room| room.0),
            "room_at_destination_bytes": room.map(|room| room.1),
            "cached_before_bytes": cached.0,
            "cached_after_bytes": after.0,
            "cached_at_destination_bytes": after.1,
            "device_read_bytes": device.read_bytes / runs.len() as u64,
            "device_written_bytes": device.written_bytes / runs.len() as u64,
        }))
    }

    /// What there is to be swept, in full, behind whatever was left.
    fn garbage(&self, place: &Place) -> Result<Option<Snapshot>> {
        if self.task != Task::Sweep {
            return Ok(None);
        }
        let snapshot = Snapshot::take(place)?;
        garbage::scattered(place, GARBAGE, self.number.load(Ordering::Relaxed))?;
        Ok(Some(snapshot))
    }

    fn beside_users(&self, place: &Place, setup: &Setup, connect: &dyn Connect) -> Result<Value> {
        let users = self.users(setup, connect);
        let alone = |rate, time| users.work(self.next(), rate, time, None, self.stop);
        let warm_up = alone(None, self.times.warm_up)?;
        let before = alone(None, self.times.each)?;
        let with = self.with_task(place, &users, None, Haste::None)?;
        let behind = alone(None, self.times.each)?;
        place.clean()?;
        let rate = (before.per_second + behind.per_second) / 4.0;
        let calm = alone(Some(rate), self.times.each)?;
        let calm_with = self.with_task(place, &users, Some(rate), Haste::None)?;
        let calm_behind = alone(Some(rate), self.times.each)?;
        place.clean()?;
        let mut phases = json!({
            "warm_up": warm_up.json,
            "closed": { "before": before.json, "with": with.json, "behind": behind.json },
            "open": { "before": calm.json, "with": calm_with.json, "behind": calm_behind.json },
        });
        if self.task.can_hurry(setup.side) {
            let before = alone(None, self.times.each)?;
            let with = self.with_task(place, &users, None, Haste::Full)?;
            let behind = alone(None, self.times.each)?;
            place.clean()?;
            phases["hurried"] = json!({ "before": before.json, "with": with.json, "behind": behind.json });
        }
        Ok(phases)
    }

    /// Users beside the task, which runs again and again until their time is over, and to its end. They leave sooner where it is not to run any more: what they do then says nothing of it.
    fn with_task(&self, place: &Place, users: &Users<'_>, rate: Option<f64>, haste: Haste) -> Result<Phase> {
        go_on(self.stop)?;
        let held = Mutex::new(self.garbage(place)?);
        let most = self.task.runs_most();
        let beside = |ends_early: &(dyn Fn() -> bool + Sync), works: Instant| -> Result<Value> {
            // Sessions have to find their way first.
            let mut next = (self.times.each / 5).min(APART);
            let (mut runs, mut busy) = (Vec::new(), Duration::ZERO);
            loop {
                while works.elapsed() < next {
                    if ends_early() {
                        anyhow::bail!("interrupted");
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
                if works.elapsed() >= self.times.each || runs.len() >= most {
                    return Ok(json!({ "runs": runs, "busy_seconds": busy.as_secs_f64() }));
                }
                let begun = works.elapsed();
                let snapshot = held.lock().ok().and_then(|mut held| held.take());
                if let Some(snapshot) = snapshot {
                    snapshot.release()?;
                }
                let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
                let ran = place.run((self.task, haste), number, self.times.limit, false, ends_early)?;
                let mut told = ran.to_json();
                told["began"] = begun.as_secs_f64().into();
                runs.push(told);
                // With what has gone on within the server, if it was ended.
                busy += works.elapsed() - begun;
                next = if runs.len() < most { begun + ran.time.max(APART) } else { Duration::ZERO };
            }
        };
        users.work(self.next(), rate, self.times.each, Some(&beside), self.stop)
    }
}
