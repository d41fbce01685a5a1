//! Figures of what a step has printed.

use crate::chart::{Spread, number};
use serde_json::Value;

/// The median of what several repetitions brought.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

pub(super) fn shown(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), number)
}

pub(super) fn range(values: &[f64]) -> String {
    Spread::of(values).map_or("–".to_owned(), |spread| match spread.least < spread.most {
        true => format!("{}–{}", number(spread.least), number(spread.most)),
        false => "one".to_owned(),
    })
}

pub(super) fn figure(value: &Value, path: &str) -> Option<f64> {
    value.pointer(path)?.as_f64()
}

/// How long the task took alone.
pub(super) fn seconds_alone(told: &Value) -> Option<f64> {
    let runs = told.pointer("/phases/idle/runs")?.as_array()?;
    let complete = runs.iter().filter(|run| run["is_complete"] == true);
    median(&complete.filter_map(|run| run["seconds"].as_f64()).collect::<Vec<_>>())
}

/// How long the first one took beside users; `None` where it had to be ended.
pub(super) fn seconds_beside(told: &Value, load: &str) -> Option<f64> {
    let first = told.pointer(&format!("/phases/{load}/with/beside/runs/0"))?;
    (first["is_complete"] == true).then(|| first["seconds"].as_f64())?
}

/// The same, where one that had to be ended has taken longer than any other.
pub(super) fn seconds_beside_at_least(told: &Value, load: &str) -> Option<f64> {
    let first = told.pointer(&format!("/phases/{load}/with/beside/runs/0"))?;
    Some(if first["is_complete"] == true { first["seconds"].as_f64()? } else { f64::INFINITY })
}

/// How long a run took; `None` where it had to be ended.
pub(super) fn seconds_of(told: &Value, run: &str) -> Option<f64> {
    let run = told.pointer(run)?;
    (run["is_complete"] == true).then(|| run["seconds"].as_f64())?
}

/// A figure of the users without the task: the mean of before and behind.
pub(super) fn without(told: &Value, load: &str, name: &str) -> Option<f64> {
    let of = |phase: &str| figure(told, &format!("/phases/{load}/{phase}/{name}"));
    Some((of("before")? + of("behind")?) / 2.0)
}

pub(super) fn with(told: &Value, load: &str, name: &str) -> Option<f64> {
    figure(told, &format!("/phases/{load}/with/{name}"))
}

pub(super) fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.zip(other).filter(|(_, other)| *other > 0.0).map(|(one, other)| one / other)
}

/// Transactions that were not made because of one run of the task; `None` where one had to be ended.
pub(super) fn lost(told: &Value) -> Option<f64> {
    let (without, with) = (
        without(told, "closed", "transactions_per_second")?,
        with(told, "closed", "transactions_per_second")?,
    );
    let beside = told.pointer("/phases/closed/with")?;
    let runs = beside.pointer("/beside/runs")?.as_array()?;
    if runs.iter().any(|run| run["is_complete"] != true) {
        return None;
    }
    Some(((without - with) * beside["seconds"].as_f64()?).max(0.0) / runs.len().max(1) as f64)
}

/// The share of the users' time in which the task ran.
pub(super) fn busy(told: &Value, load: &str) -> Option<f64> {
    ratio(with(told, load, "beside/busy_seconds"), with(told, load, "seconds"))
}

/// Transactions a second over time.
pub(super) fn rates(users: &Value) -> Option<Vec<(f64, f64)>> {
    let (mut points, mut since) = (Vec::new(), 0.0);
    for sample in users["samples"].as_array()? {
        let (at, count) = (sample[0].as_f64()?, sample[1].as_f64()?);
        if at > since {
            points.push((at, count / (at - since)));
        }
        since = at;
    }
    Some(points)
}
