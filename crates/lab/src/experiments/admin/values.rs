//! Figures of what a step has printed.

use crate::admin::task::Task;
use crate::chart::{Bound, Spread, number};
use serde_json::Value;

/// The share of the users' time in which a task that runs once has to be there for it to be judged by that time.
const MOST: f64 = 0.5;

/// From which share of what came in on those that nobody has served may decide the p99: of them only how long they had waited is known.
const UNSERVED: f64 = 0.01;

/// The median of what several repetitions brought.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

pub(super) fn shown(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), number)
}

pub(super) fn range(values: &[f64]) -> String {
    range_of(Spread::of(values))
}

pub(super) fn range_of(spread: Option<Spread>) -> String {
    spread.map_or("–".to_owned(), |spread| match spread.least < spread.most {
        true => format!("{}–{}", number(spread.least), number(spread.most)),
        false => "one".to_owned(),
    })
}

pub(super) fn figure(value: &Value, path: &str) -> Option<f64> {
    value.pointer(path)?.as_f64()
}

/// The median of values of which some are known as bounds only.
pub(super) fn median_bound(values: &[Bound]) -> Option<Bound> {
    let spread = Spread::of_bounds(values)?;
    Some(Bound { value: spread.median, is_at_least: spread.is_at_least })
}

/// For people.
pub(super) fn shown_bound(bound: Option<Bound>) -> String {
    match bound {
        Some(Bound { value, is_at_least: true }) => format!("≥ {}", number(value)),
        _ => shown(bound.map(|bound| bound.value)),
    }
}

/// How long a run took, or until it had to be ended.
fn seconds(run: &Value) -> Option<Bound> {
    Some(Bound { value: run["seconds"].as_f64()?, is_at_least: run["is_complete"] != true })
}

/// How long the task took alone.
pub(super) fn seconds_alone(told: &Value) -> Option<Bound> {
    let runs = told.pointer("/phases/idle/runs")?.as_array()?;
    median_bound(&runs.iter().filter_map(seconds).collect::<Vec<_>>())
}

/// How long the first one took beside users.
pub(super) fn seconds_beside(told: &Value, load: &str) -> Option<Bound> {
    seconds(told.pointer(&format!("/phases/{load}/with/beside/runs/0"))?)
}

/// How long a run took.
pub(super) fn seconds_of(told: &Value, run: &str) -> Option<Bound> {
    seconds(told.pointer(run)?)
}

/// What is known as more than a bound.
pub(super) fn known(bound: Option<Bound>) -> Option<f64> {
    bound.filter(|bound| !bound.is_at_least).map(|bound| bound.value)
}

/// The ratio of two, where the second one is known.
pub(super) fn ratio_bound(one: Option<Bound>, other: Option<Bound>) -> Option<Bound> {
    let (one, other) = (one?, other.filter(|other| !other.is_at_least && other.value > 0.0)?);
    Some(Bound { value: one.value / other.value, ..one })
}

/// A figure of the users without the task: the mean of before and behind.
pub(super) fn without(told: &Value, load: &str, name: &str) -> Option<f64> {
    let of = |phase: &str| figure(told, &format!("/phases/{load}/{phase}/{name}"));
    Some((of("before")? + of("behind")?) / 2.0)
}

/// A figure of the users with the task.
pub(super) fn with(told: &Value, load: &str, name: &str) -> Option<f64> {
    figure(told, &format!("/phases/{load}/with/{name}"))
}

/// The users' p99 of a phase.
fn p99(told: &Value, load: &str, phase: &str) -> Option<Bound> {
    let of = |name: &str| figure(told, &format!("/phases/{load}/{phase}/{name}"));
    // Runs of before did not count who was not served.
    let unserved = ratio(of("unserved"), of("offered"));
    Some(Bound { value: of("p99_ms")?, is_at_least: unserved.is_some_and(|share| share > UNSERVED) })
}

/// The users' p99 without the task: the mean of before and behind.
pub(super) fn p99_without(told: &Value, load: &str) -> Option<Bound> {
    let (before, behind) = (p99(told, load, "before")?, p99(told, load, "behind")?);
    Some(Bound {
        value: (before.value + behind.value) / 2.0,
        is_at_least: before.is_at_least || behind.is_at_least,
    })
}

/// The users' p99 with the task; `None` as of [`beside`].
pub(super) fn p99_beside(told: &Value, load: &str) -> Option<Bound> {
    p99(told, load, "with").filter(|_| is_beside(told, load))
}

/// Whether the users beside a task that runs once had it beside them for most of their time.
pub(super) fn is_beside(told: &Value, load: &str) -> bool {
    let repeats = told["task"].as_str().and_then(Task::named).is_none_or(Task::repeats);
    repeats || busy(told, load).is_some_and(|share| share >= MOST)
}

/// The same of a figure that is to say what the task has cost the users; `None` where they had it beside them for a small part of their time only.
pub(super) fn beside(told: &Value, load: &str, name: &str) -> Option<f64> {
    with(told, load, name).filter(|_| is_beside(told, load))
}

pub(super) fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.zip(other).filter(|(_, other)| *other > 0.0).map(|(one, other)| one / other)
}

/// Transactions that were not made because of one run of the task: of one that had to be ended, until then. Less than none where users were faster with it.
pub(super) fn lost(told: &Value, load: &str) -> Option<Bound> {
    let (without, with) =
        (without(told, load, "transactions_per_second")?, with(told, load, "transactions_per_second")?);
    let is_at_least = runs_beside(told, load)?.iter().any(|run| run["is_complete"] != true);
    Some(Bound { value: (without - with) * seconds_of_one(told, load)?, is_at_least })
}

/// By how much that may be off to either side: what users did before the task and behind it differs, too.
fn lost_by_chance(told: &Value, load: &str) -> Option<f64> {
    let of = |phase: &str| figure(told, &format!("/phases/{load}/{phase}/transactions_per_second"));
    Some((of("before")? - of("behind")?).abs() * seconds_of_one(told, load)?)
}

/// What was lost in each repetition, from the least that it may have been to the most.
pub(super) fn lost_between(told: &[&Value], load: &str) -> Option<Spread> {
    let each = |told: &&Value| Some((lost(told, load)?, lost_by_chance(told, load)?));
    let all: Vec<(Bound, f64)> = told.iter().filter_map(each).collect();
    let middle = Spread::of_bounds(&all.iter().map(|(lost, _)| *lost).collect::<Vec<_>>())?;
    let least = all.iter().map(|(lost, chance)| lost.value - chance).fold(f64::INFINITY, f64::min);
    let most = all.iter().map(|(lost, chance)| lost.value + chance).fold(f64::NEG_INFINITY, f64::max);
    Some(Spread { least, most, ..middle })
}

fn runs_beside<'t>(told: &'t Value, load: &str) -> Option<&'t Vec<Value>> {
    told.pointer(&format!("/phases/{load}/with/beside/runs"))?.as_array()
}

/// Seconds of the users with the task, for each of its runs.
fn seconds_of_one(told: &Value, load: &str) -> Option<f64> {
    let seconds = figure(told, &format!("/phases/{load}/with/seconds"))?;
    Some(seconds / runs_beside(told, load)?.len().max(1) as f64)
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
