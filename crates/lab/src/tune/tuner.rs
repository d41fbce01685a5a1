//! Tunes a database for a load: a search over configurations, each trial of which is one of the real thing.

use super::builtin;
use super::interval::Interval;
use super::load::Mix;
use super::race::{Measured, Rules};
use super::search::{Dimension, Found, Point, search};
use super::trial::{self, Config, Impossible, Setup};
use crate::chart::number;
use anyhow::{Result, anyhow, bail};
use gannet_base::units::format_duration;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Names of the dimensions, in the order of a [`Point`].
pub const NAMES: [&str; 6] =
    ["memory", "page size", "memory of a sort", "connections", "commits", "I/O mode"];
/// What each trial takes beside its measured time, until one has shown it: copy, start, check, end.
const AROUND: Duration = Duration::from_secs(2);

/// A size in the largest unit that leaves no fraction: read again it is the same, and no two are alike.
pub fn exact_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, power)| bytes > 0 && bytes.trailing_zeros() >= *power);
    unit.map_or_else(|| format!("{bytes}B"), |(name, power)| format!("{}{name}", bytes >> power))
}

/// The values that are searched. Of those that are as good the first is picked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes of the memory budget.
    pub memory: Vec<u64>,
    /// Bytes of a page, each of which there is a database of.
    pub page_size: Vec<u64>,
    /// Bytes that a sort may take; 0 for its share of the budget.
    pub sort_memory: Vec<u64>,
    /// Connections.
    pub connections: Vec<usize>,
    /// Whether commits wait until they are durable.
    pub is_synchronous: Vec<bool>,
    /// I/O modes.
    pub io: Vec<String>,
}

impl Space {
    /// The dimensions, as a search has them.
    pub fn dimensions(&self) -> Vec<Dimension> {
        let sort = |&bytes: &u64| if bytes == 0 { "its share".to_owned() } else { exact_size(bytes) };
        let commits = |&waits: &bool| if waits { "synchronous" } else { "asynchronous" }.to_owned();
        let values: [(Vec<String>, bool); 6] = [
            (self.memory.iter().map(|&bytes| exact_size(bytes)).collect(), true),
            (self.page_size.iter().map(|&bytes| exact_size(bytes)).collect(), false),
            (self.sort_memory.iter().map(sort).collect(), true),
            (self.connections.iter().map(usize::to_string).collect(), true),
            (self.is_synchronous.iter().map(commits).collect(), false),
            (self.io.clone(), false),
        ];
        let dimension = |(name, (values, is_ordered)): (&str, (Vec<String>, bool))| Dimension {
            name: name.to_owned(),
            values,
            is_ordered,
        };
        NAMES.into_iter().zip(values).map(dimension).collect()
    }

    /// The configuration of a point.
    pub fn config(&self, point: &Point) -> Config {
        Config {
            memory: self.memory[point[0]],
            page_size: self.page_size[point[1]],
            sort_memory: self.sort_memory[point[2]],
            connections: self.connections[point[3]],
            is_synchronous: self.is_synchronous[point[4]],
            io: self.io[point[5]].clone(),
        }
    }
}

/// How a database is tuned.
#[derive(Clone, Debug)]
pub struct Order {
    /// What is searched.
    pub space: Space,
    /// When who is dropped.
    pub rules: Rules,
    /// How long it may take in all, since `begun`.
    pub time: Duration,
    /// When it was asked for: what was prepared since is a part of the time.
    pub begun: Instant,
    /// How long the copy of a trial takes, about, as the first one did; until a trial has shown it.
    pub copying: Duration,
    /// The databases, by the size of their pages.
    pub templates: BTreeMap<u64, PathBuf>,
    /// The folder of trials, which is not there yet.
    pub folder: PathBuf,
    /// Whether each server is held by a memory cgroup.
    pub is_confined: bool,
    /// The load.
    pub mix: Mix,
    /// The built-in load's tables.
    pub size: Option<builtin::Size>,
    /// Time of each trial before anything is measured.
    pub warm_up: Duration,
    /// Measured time of each trial.
    pub measure: Duration,
    /// Seed of random numbers; each trial has one of its own.
    pub seed: u64,
}

/// A trial and its point.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tried {
    /// Which configuration it was.
    pub point: Point,
    /// What was measured.
    pub measured: Value,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tuned {
    /// What was searched.
    pub dimensions: Vec<Dimension>,
    /// When who was dropped.
    pub rules: Rules,
    /// The pick, and the way there.
    pub found: Found,
    /// Configuration that is picked.
    pub config: Config,
    /// Every trial.
    pub trials: Vec<Tried>,
    /// Processors of the machine.
    pub processors: usize,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl Tuned {
    /// What was measured of a configuration.
    pub fn trials_of<'t>(&'t self, point: &'t Point) -> impl Iterator<Item = &'t Value> {
        self.trials.iter().filter(move |trial| trial.point == *point).map(|trial| &trial.measured)
    }

    /// Transactions a second of a configuration.
    pub fn interval_of(&self, point: &Point) -> Option<Interval> {
        let runs: Vec<Vec<f64>> = self.trials_of(point).map(per_second).collect();
        Interval::of_runs(&runs, self.rules.confidence)
    }
}

/// Transactions a second in each interval of a trial.
pub fn per_second(measured: &Value) -> Vec<f64> {
    measured["per_second"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// Whether a trial did nothing.
fn is_idle(measured: &Value) -> bool {
    measured["per_second_mean"].as_f64().unwrap_or(0.0) <= 0.0
}

/// Tunes; `tell` is told what goes on. Where it is ended, by an error or by `stop`, there is what was tried until then: [`Found::ended_by`] says why.
///
/// # Errors
/// There is not a single trial: why; or nothing was done in any.
pub fn tune(order: &Order, stop: &AtomicBool, tell: &mut dyn FnMut(&str)) -> Result<Tuned> {
    let dimensions = order.space.dimensions();
    if dimensions.iter().all(|dimension| dimension.values.len() < 2) {
        bail!(
            "there is nothing to choose from, as each of {} has one value: {}. Name several of one of them",
            NAMES.join(", "),
            order.space.config(&vec![0; dimensions.len()]).describe()
        );
    }
    let mut trials: Vec<Tried> = Vec::new();
    let mut longest = order.warm_up + order.measure + AROUND + order.copying;
    let mut broken: Option<anyhow::Error> = None;
    let start = vec![0; dimensions.len()];
    let mut count = 0;
    let mut found = search(&dimensions, start, &order.rules, &mut |point| {
        if order.begun.elapsed() + longest > order.time {
            return Ok(Measured::OutOfTime);
        }
        let config = order.space.config(point);
        let Some(template) = order.templates.get(&config.page_size) else {
            broken = Some(anyhow!("no database with pages of {}", config.page_size));
            return Ok(Measured::OutOfTime);
        };
        count += 1;
        let setup = Setup {
            template: template.clone(),
            folder: order.folder.clone(),
            is_confined: order.is_confined,
            mix: order.mix.clone(),
            size: order.size,
            warm_up: order.warm_up,
            measure: order.measure,
            seed: order.seed + count,
        };
        let left = order.time.saturating_sub(order.begun.elapsed()).as_secs();
        let left = format_duration(Duration::from_secs(left));
        let tried = Instant::now();
        let measured = match trial::run(&setup, &config, stop) {
            Ok(measured) => measured,
            Err(error) => {
                let Some(Impossible(why)) = error.downcast_ref() else {
                    // What was tried is known all the same.
                    broken = Some(error.context(config.describe()));
                    return Ok(Measured::OutOfTime);
                };
                tell(&format!("{left} left at most; {}: cannot be: {why}", config.describe()));
                return Ok(Measured::Impossible(why.clone()));
            }
        };
        longest = longest.max(tried.elapsed());
        let rate = measured["per_second_mean"].as_f64().unwrap_or(0.0);
        tell(&format!("{left} left at most; {}: {} a second", config.describe(), number(rate)));
        trials.push(Tried { point: point.clone(), measured });
        Ok(Measured::Value(rate))
    })?;
    if trials.is_empty() {
        if let Some(error) = broken {
            return Err(error);
        }
        if let Some(why) = found.ended_by {
            bail!(why);
        }
        bail!(
            "the time, {}, is not enough for a single trial, which takes {} about: give it more by --time",
            format_duration(order.time),
            format_duration(Duration::from_secs(longest.as_secs_f64().ceil() as u64))
        );
    }
    if let Some(error) = broken {
        found.ended_by = Some(format!("{error:#}"));
    }
    if found.ended_by.is_none() && trials.iter().all(|tried| is_idle(&tried.measured)) {
        bail!(
            "no transaction ended within the measured time, {}, of any trial: there is nothing to pick by. Give trials more time by --seconds, or the load less to do",
            format_duration(order.measure)
        );
    }
    let config = order.space.config(&found.pick);
    Ok(Tuned {
        dimensions,
        rules: order.rules,
        found,
        config,
        trials,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        seconds: order.begun.elapsed().as_secs_f64(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn space() -> Space {
        Space {
            memory: vec![16 << 20, 64 << 20],
            page_size: vec![8192, 4096],
            sort_memory: vec![0],
            connections: vec![20],
            is_synchronous: vec![true, false],
            io: vec!["auto".to_owned()],
        }
    }

    #[test]
    fn where_there_is_nothing_to_choose_it_says_so() {
        let space =
            Space { memory: vec![1 << 20], page_size: vec![8192], is_synchronous: vec![true], ..space() };
        let order = Order {
            space,
            rules: Rules { confidence: 0.95, indifference: 0.03, rounds_most: 3 },
            time: Duration::from_secs(1),
            begun: Instant::now(),
            copying: Duration::ZERO,
            templates: BTreeMap::new(),
            folder: PathBuf::new(),
            is_confined: false,
            mix: Mix { scripts: Vec::new() },
            size: None,
            warm_up: Duration::ZERO,
            measure: Duration::from_secs(1),
            seed: 1,
        };
        let error = tune(&order, &AtomicBool::new(false), &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("nothing to choose from") && error.contains("memory 1MiB"), "{error}");
        // Nor is anything tried without time for it: what was prepared, and the copy, are a part of that.
        let order = Order { space: super::tests::space(), ..order };
        let tuned =
            |order: &Order| tune(order, &AtomicBool::new(false), &mut |_| {}).unwrap_err().to_string();
        let error = tuned(&order);
        assert!(error.contains("not enough for a single trial"), "{error}");
        let hour = Duration::from_secs(3600);
        let long = Order { time: hour, copying: hour, ..order.clone() };
        assert!(tuned(&long).contains("not enough for a single trial"), "{}", tuned(&long));
        let begun = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
        let late = Order { time: Duration::from_secs(90), begun, ..order.clone() };
        assert!(tuned(&late).contains("not enough for a single trial"), "{}", tuned(&late));
        // What goes wrong in the first trial is said.
        let error = tuned(&Order { time: hour, ..order });
        assert!(error.contains("no database with pages of"), "{error}");
    }

    #[test]
    fn a_size_is_read_as_it_was_written() {
        use gannet_base::units::parse_size;
        for (bytes, text) in [
            (1792 << 20, "1792MiB"),
            (1100 << 20, "1100MiB"),
            (3 << 30, "3GiB"),
            (8192, "8KiB"),
            (1000, "1000B"),
            (0, "0B"),
        ] {
            assert_eq!((&*exact_size(bytes), parse_size(text).unwrap()), (text, bytes));
        }
        let memory = vec![1792 << 20, 1843 << 20];
        let labels = Space { memory, ..space() }.dimensions()[0].values.clone();
        assert_ne!(labels[0], labels[1]);
    }

    #[test]
    fn a_trial_without_a_transaction_is_idle() {
        use serde_json::json;
        assert!(is_idle(&json!({ "per_second_mean": 0.0 })) && is_idle(&json!({})));
        assert!(!is_idle(&json!({ "per_second_mean": 0.1 })));
    }

    #[test]
    fn a_point_is_a_configuration() {
        let space = space();
        let point = vec![1, 0, 0, 0, 1, 0];
        let config = space.config(&point);
        assert_eq!((config.memory, config.page_size, config.is_synchronous), (64 << 20, 8192, false));
        let dimensions = space.dimensions();
        let names: Vec<&str> =
            dimensions.iter().zip(&point).map(|(dimension, &value)| &*dimension.values[value]).collect();
        assert_eq!(names, ["64MiB", "8KiB", "its share", "20", "asynchronous", "auto"]);
    }
}
