//! What is said of X5, from what its steps have recorded.

use super::{Axis, CONNECTIONS, Plan, REPORTS, Run, TUNER, axes, grid};
use crate::chart::{Bars, Figure, Kind, number};
use crate::document::{Document, Part};
use crate::experiments::calibrated;
use crate::record::Record;
use crate::tune::builtin::Size;
use crate::tune::explain::{Why, mebibytes, percent};
use crate::tune::interval::Interval;
use crate::tune::report::{WHY_HEAD, WHY_LEGEND, parts, plus_minus, settings_file, spread, why_cells};
use crate::tune::tuner::{Tuned, exact_size, per_second};
use gannet_base::units::format_size;
use serde_json::Value;

/// How sure intervals are.
const CONFIDENCE: f64 = 0.95;
/// The score at the begin and at the end of the published test, on one processor and with one cache for all.
const PUBLISHED: (f64, f64) = (407.0, 169.0);

struct Found<'r> {
    run: &'r Record,
    plan: Plan,
}

impl<'r> Found<'r> {
    /// What was measured of a run, each time.
    fn measured(&self, run: &Run) -> Vec<&'r Value> {
        let of = |time: u32| self.run.find(&run.id(time))?.output.first()?.get("measured");
        (1..=self.run.order.repeat).filter_map(of).collect()
    }

    fn interval(&self, run: &Run) -> Option<Interval> {
        let runs: Vec<Vec<f64>> = self.measured(run).into_iter().map(per_second).collect();
        Interval::of_runs(&runs, CONFIDENCE)
    }

    fn median(&self, run: &Run, path: &str) -> Option<f64> {
        let values: Vec<f64> =
            self.measured(run).iter().filter_map(|measured| measured.pointer(path)?.as_f64()).collect();
        crate::chart::Spread::of(&values).map(|spread| spread.median)
    }

    fn figure(&self, axis: &Axis) -> Part {
        Part::Figure(Figure {
            id: axis.id.to_owned(),
            title: axis.title.to_owned(),
            y: "transactions a second".to_owned(),
            kind: Kind::Curves {
                x: axis.x.to_owned(),
                groups: axis.runs.iter().map(|(label, _)| label.clone()).collect(),
                curves: match axis.theirs.is_empty() {
                    true => vec![self.curve(&axis.runs, "mean, and its interval at 95 %")],
                    false => vec![
                        self.curve(&axis.runs, "Gannet: mean, and its interval at 95 %"),
                        self.curve(&axis.theirs, &format!("{}: the same", self.title_of_rival())),
                    ],
                },
            },
        })
    }

    fn curve(&self, runs: &[(String, Run)], name: &str) -> Bars {
        let values = runs.iter().map(|(_, run)| self.interval(run).map(spread)).collect();
        Bars { name: name.to_owned(), values }
    }

    /// PostgreSQL, with its version as it was then.
    fn title_of_rival(&self) -> String {
        let mut all = self.run.ended.iter().filter_map(|ended| ended.output.first());
        let name = all.find_map(|output| {
            output.pointer("/measured/server/server")?.as_str().filter(|name| name.starts_with("PostgreSQL"))
        });
        name.unwrap_or("PostgreSQL").to_owned()
    }

    /// How Gannet compares with PostgreSQL along an axis, and where that did not get through; nothing where it took no part.
    fn against(&self, axis: &Axis) -> Option<String> {
        let (mut ratios, mut failed) = (Vec::new(), Vec::new());
        for ((label, ours), (_, theirs)) in axis.runs.iter().zip(&axis.theirs) {
            let is_left_out = |time| self.run.is_left_out(&theirs.id(time));
            match self.interval(ours).zip(self.interval(theirs)) {
                Some((ours, theirs)) => {
                    let overlap = ours.high() >= theirs.low() && theirs.high() >= ours.low();
                    let known = ours.half.is_some() && theirs.half.is_some();
                    let doubt = if known && !overlap { "" } else { " (not told apart)" };
                    ratios.push(format!("{label}: {}{doubt}", number(ours.mean / theirs.mean)));
                }
                None if (1..=self.run.order.repeat).any(is_left_out) => failed.push(label.as_str()),
                None => {}
            }
        }
        let name = self.title_of_rival();
        let mut text = String::new();
        if !ratios.is_empty() {
            text += &format!("Gannet's transactions ÷ those of {name}: {}.", ratios.join(", "));
        }
        if !failed.is_empty() {
            text += &format!(" {name} did not get through this with: {}.", failed.join(", "));
        }
        (!text.is_empty()).then(|| text.trim().to_owned())
    }

    fn table(&self, axis: &Axis) -> Part {
        let mut head =
            [axis.x, "transactions/s", "p50, ms", "p99, ms", "memory in all"].map(str::to_owned).to_vec();
        head.extend(WHY_HEAD.map(str::to_owned));
        head.push("I/O in force".to_owned());
        let mut rows = Vec::new();
        for (label, run) in axis.runs.iter().chain(&axis.theirs) {
            let measured = self.measured(run);
            if measured.is_empty() {
                continue;
            }
            let label = match run.is_rival {
                true => format!("{label}, {}", self.title_of_rival()),
                false => label.clone(),
            };
            let millis =
                |path: &str| self.median(run, path).map_or("–".to_owned(), |us| number(us / 1000.0));
            let mut row = vec![label, plus_minus(self.interval(run))];
            let held = self.median(run, "/group/peak_bytes").map_or("–".to_owned(), mebibytes);
            row.extend([millis("/latency_us/p50"), millis("/latency_us/p99"), held]);
            row.extend(why_cells(&Why::of(&measured)));
            let mode = measured[0]["io"]["effective"].as_str();
            row.push(mode.unwrap_or(if run.is_rival { "–" } else { "not told" }).to_owned());
            rows.push(row);
        }
        Part::Table(head, rows)
    }

    /// The best value of an axis and the worst one, and what makes the difference.
    fn verdict(&self, axis: &Axis) -> String {
        let mut known: Vec<(&str, &Run, Interval)> =
            axis.runs.iter().filter_map(|(label, run)| Some((&**label, run, self.interval(run)?))).collect();
        known.sort_by(|one, other| other.2.mean.total_cmp(&one.2.mean));
        let (Some(best), Some(worst)) = (known.first(), known.last()) else {
            return "Nothing was measured.".to_owned();
        };
        if known.len() < 2 {
            return format!("Only {} was measured.", best.0);
        }
        let why = |run: &Run| Why::of(&self.measured(run));
        let alike: Vec<&str> =
            known[1..].iter().filter(|other| other.2.high() >= best.2.low()).map(|other| other.0).collect();
        let processors = self.processors();
        let mut text = format!("The most was measured with {}", best.0);
        match alike.as_slice() {
            _ if known.iter().any(|one| one.2.half.is_none()) => {
                text.push_str("; how sure that is, is not known of all values.");
            }
            [] => text.push_str(", and no other value's interval reaches its own."),
            some => text.push_str(&format!("; the intervals of {} reach its own.", some.join(", "))),
        }
        text.push_str(&format!(
            " {} did {} of that: {}. With {}: {}",
            worst.0,
            percent(Some(worst.2.mean / best.2.mean)),
            why(worst.1).against(&why(best.1)),
            best.0,
            why(best.1).limited_by(processors)
        ));
        text
    }

    fn processors(&self) -> usize {
        self.run.circumstances["machine"]["cpus"].as_u64().map_or(1, |cpus| cpus as usize)
    }

    fn axis(&self, axis: &Axis) -> Vec<Part> {
        let mut parts = vec![Part::Heading(axis.title.to_owned())];
        parts.push(Part::Text(match axis.id {
            "memory" => "One cache for all connections: the budget is all that is to be set.".to_owned(),
            "sorts" => format!(
                "One transaction in {REPORTS} is a report that sorts 20,000 rows; a sort that has no room goes through temporary files. A report is one transaction, too, so these \
                 figures are not to be compared with those of the load alone."
            ),
            "commits" => "An asynchronous commit is durable at most 200 ms later (max_delay): a crash may take these last moments, and harms nothing else. It is measured to be seen; \
                 the tuner, and everything else here, commits synchronously."
                .to_owned(),
            "modes" => "Each server is held to the same memory, page cache included, so a mode that goes through the page cache has no more than the others.".to_owned(),
            "growth" => format!("A budget of {}, and databases of more and more of it.", format_size(self.plan.usual_memory)),
            _ => "Everything else as it is elsewhere.".to_owned(),
        }));
        if axis.id == "growth" {
            parts.push(Part::Text(self.decline(axis)));
        } else {
            parts.push(Part::Text(self.verdict(axis)));
        }
        parts.extend(self.against(axis).map(Part::Text));
        parts.push(self.figure(axis));
        parts.push(self.table(axis));
        parts
    }

    /// What is known of some runs.
    fn means<'a>(&self, runs: &'a [(String, Run)]) -> Vec<(&'a str, &'a Run, f64)> {
        let mean = |(label, run): &'a (String, Run)| Some((&**label, run, self.interval(run)?.mean));
        runs.iter().filter_map(mean).collect()
    }

    /// How far the score falls as the file grows.
    fn decline(&self, axis: &Axis) -> String {
        let rates = self.means(&axis.runs);
        let theirs = match self.means(&axis.theirs).as_slice() {
            [first, .., last] => format!(
                " Of {} {} was left from {} to {}.",
                self.title_of_rival(),
                percent(Some(last.2 / first.2)),
                first.0,
                last.0
            ),
            _ => String::new(),
        };
        let published = format!(
            "Published: from 30 GB to 1.7 TB, which is from 2 to more than 100 memories of 16 GB, the score fell from {} to {}, to {} of it.",
            number(PUBLISHED.0),
            number(PUBLISHED.1),
            percent(Some(PUBLISHED.1 / PUBLISHED.0))
        );
        let why = |run: &Run| Why::of(&self.measured(run));
        match rates.as_slice() {
            [first, .., last] => format!(
                "From {} to {} of the memory it went from {} to {} transactions a second, to {} of it: {}.{theirs} {published}",
                first.0,
                last.0,
                number(first.2),
                number(last.2),
                percent(Some(last.2 / first.2)),
                why(last.1).against(&why(first.1))
            ),
            _ => published,
        }
    }

    fn tuner(&self, axes: &[Axis]) -> Vec<Part> {
        let mut told = vec![Part::Heading("The tuner".to_owned())];
        let output = self.run.find(TUNER).and_then(|ended| ended.output.first()?.get("measured").cloned());
        let tuned = output.and_then(|output| serde_json::from_value::<Tuned>(output).ok());
        let Some(tuned) = tuned else {
            told.push(Part::Text("It has not run.".to_owned()));
            return told;
        };
        told.push(Part::Text(self.agreement(&tuned, axes)));
        told.extend(parts(&tuned).into_iter().map(|part| match part {
            // They stand below one heading here.
            Part::Heading(text) => Part::Text(format!("Race {text}.")),
            other => other,
        }));
        told.push(Part::Text("What it writes for gannet serve --config:".to_owned()));
        told.push(Part::Commands(settings_file(&tuned).lines().map(str::to_owned).collect()));
        told
    }

    /// Whether the tuner's pick is as good as the best of a full sweep.
    fn agreement(&self, tuned: &Tuned, axes: &[Axis]) -> String {
        let config = &tuned.config;
        let in_space = |run: &&Run| {
            run.connections == config.connections
                && run.is_synchronous
                && run.reports == 0
                && run.io == config.io
                && run.sort_memory == 0
                && run.bytes == self.plan.usual_bytes()
                && self.plan.tune_pages.contains(&run.page_size)
        };
        let of_grid = grid(&self.run.order, &self.plan);
        let swept = axes.iter().flat_map(|axis| axis.runs.iter().map(|(_, run)| run)).chain(&of_grid);
        let swept: Vec<(&Run, Interval)> =
            swept.filter(in_space).filter_map(|run| Some((run, self.interval(run)?))).collect();
        let peak = swept.iter().max_by(|one, other| one.1.mean.total_cmp(&other.1.mean));
        let begin = format!("{} trials in {} s.", tuned.trials.len(), number(tuned.seconds));
        let (Some((peak, of_peak)), Some(of_pick)) = (peak, tuned.interval_of(&tuned.found.pick)) else {
            return format!("{begin} It cannot be compared with a sweep.");
        };
        let same =
            |(run, _): &&(&Run, Interval)| run.memory == config.memory && run.page_size == config.page_size;
        let sweep_at_pick = swept.iter().find(same).map(|(_, interval)| *interval);
        let overlap = of_pick.high() >= of_peak.low() && of_peak.high() >= of_pick.low();
        let compared = match of_pick.half.is_some() && of_peak.half.is_some() {
            false => "The intervals of pick and peak are not both known",
            true if overlap => "The intervals of pick and peak overlap",
            true => "The intervals of pick and peak do not overlap",
        };
        format!(
            "{begin} It picked memory {} and pages of {}: {} transactions a second. The sweep above, measured without it, had its peak with memory {} and pages of {}: {}; with what \
             the tuner picked it had {}. {compared}.",
            exact_size(config.memory),
            exact_size(config.page_size),
            plus_minus(Some(of_pick)),
            exact_size(peak.memory),
            exact_size(peak.page_size),
            plus_minus(Some(*of_peak)),
            plus_minus(sweep_at_pick)
        )
    }
}

fn published() -> Vec<Part> {
    let row = |cells: [&str; 7]| cells.map(str::to_owned).to_vec();
    vec![
        Part::Heading("Published".to_owned()),
        Part::Text(
            "Firebird, a database of 1.7 TB on a desktop machine of 16 GB, 20 connections that mostly insert, and update. With a cache for each connection, and with hash slots \
             (1009 to 30011) and lock memory (1 to 7 MB) set by hand, the scores were:"
                .to_owned(),
        ),
        Part::Table(
            row(["pages for each connection", "256", "512", "768", "1024", "1500", "2048"]),
            vec![
                row(["a process for each", "299", "371", "362", "312", "390", "285"]),
                row(["a thread for each", "372", "359", "386", "387", "392", "284"]),
            ],
        ),
        Part::Text(
            "Between neighbours they go up and down by a quarter, without intervals, and nobody could say why they drop at the end. Scores are of another load on another machine, so their height \
             cannot be compared with ours. What can: the shape of the curve over memory, whether a peak can be told from chance, and how far the score falls as the file grows."
                .to_owned(),
        ),
    ]
}

pub(super) fn report(run: &Record) -> Document {
    let found = Found { run, plan: Plan::of(run.order.size) };
    let axes = axes(&run.order, &found.plan);
    let size = Size::of_bytes(found.plan.usual_bytes());
    let groups: Vec<bool> = axes
        .iter()
        .flat_map(|axis| &axis.runs)
        .flat_map(|(_, run)| found.measured(run))
        .map(|measured| !measured["group"].is_null())
        .collect();
    let mut parts = vec![
        Part::Text(format!(
            "{CONNECTIONS} connections, each sending the transaction below again and again to Gannet's server on a Unix socket of this machine; commits are synchronous unless said otherwise. Each \
             measurement is a server of its own on a fresh copy of a database, cold; {} s go by before anything is measured, and {} s are. The database is of {}, with segments of the log of {}, the budget {}, where they are not what is \
             looked at. Afterwards it is checked that every row that was acknowledged is there, once, and every update.",
            f64::from(found.plan.warm_up) / 10.0,
            f64::from(found.plan.measure) / 10.0,
            format_size(found.plan.usual_bytes()),
            format_size(found.plan.segment),
            format_size(found.plan.usual_memory),
        )),
        Part::Text(match groups.contains(&true) {
            _ if groups.is_empty() => "Nothing was measured.".to_owned(),
            true => "Each server is held by a memory cgroup to its budget, 64 MiB for the process, and 0.5 MiB for each connection, page cache included.".to_owned(),
            false => "No memory cgroup could be made: servers were held by their budget only.".to_owned(),
        }),
        Part::Commands(size.script().lines().map(str::to_owned).collect()),
    ];
    if axes.iter().any(|axis| !axis.theirs.is_empty()) {
        parts.push(Part::Text(
            "PostgreSQL is sent the same transactions by the same client, and has as much memory in all as Gannet's server beside it, a quarter of that as shared_buffers; its settings stand with each step. Memory in all: the most that each one's cgroup had. (Gannet leaves \
             what is beyond its budget and its process; PostgreSQL has page cache there.) What it waits for is not looked at. Firebird, which the published scores are of, has no client here that sends this load."
                .to_owned(),
        ));
    }
    parts.push(Part::Text(
            "Intervals are at a confidence of 95 % (Student's t): of the runs' means where there are several, of two the wider one of that and of batches within them; of a single run of means of batches within it, \
             so that how runs differ is not in it. The load's threads run on \
             the processors that the server runs on; how busy the disk was is counted for the whole disk, whoever else uses it. There is nothing about locks to set: no slots of a hash table, no memory of a lock manager."
                .to_owned(),
    ));
    parts.extend(calibrated(run));
    parts.extend(published());
    for axis in &axes {
        parts.extend(found.axis(axis));
    }
    parts.push(Part::Text(WHY_LEGEND.to_owned()));
    parts.extend(found.tuner(&axes));
    Document { title: "X5 tune: which setting was it?".to_owned(), parts }
}

#[cfg(test)]
mod tests {
    use super::super::Tune;
    use super::*;
    use crate::experiments::Experiment;
    use crate::record::{Ended, Order, Size as RunSize};
    use crate::tune::report::tests::tuned;
    use serde_json::json;
    use std::path::Path;

    fn record(folder: &Path) -> Record {
        let order = Order {
            experiment: "tune".to_owned(),
            size: RunSize::Quick,
            rivals: Vec::new(),
            modes: vec!["direct".to_owned(), "buffered".to_owned()],
            profiles: vec!["as-is".to_owned()],
            repeat: 1,
            seed: 1,
        };
        Record::create(folder, &order, 1, json!({ "machine": { "cpus": 2 } })).unwrap()
    }

    fn texts(document: &Document) -> String {
        document
            .parts
            .iter()
            .filter_map(|part| if let Part::Text(text) = part { Some(&**text) } else { None })
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// As much as the memory has megabytes, with some noise.
    fn measured(command: &[String]) -> Value {
        let after =
            |name: &str| command.iter().position(|word| word == name).map(|place| command[place + 1].clone());
        let memory: f64 = after("--memory").unwrap().parse().unwrap();
        let rate = memory / f64::from(1 << 20);
        json!({ "measured": {
            "per_second": [rate, rate + 1.0, rate - 1.0], "per_second_mean": rate, "io": { "effective": after("--io") },
            "reads_per_transaction": 100.0 / rate, "hit_rate": 0.9, "latency_us": { "p50": 1000.0, "p99": 5000.0 },
        } })
    }

    #[test]
    fn a_run_without_steps_says_that_nothing_was_measured() {
        let folder = tempfile::tempdir().unwrap();
        let document = report(&record(&folder.path().join("run")));
        let text = texts(&document);
        assert!(text.contains("Nothing was measured.") && text.contains("It has not run."), "{text}");
        assert!(!text.contains("No memory cgroup could be made"), "{text}");
    }

    /// A run of which each step has this to say of its command.
    fn recorded(folder: &Path, tuned: &Tuned, measured: fn(&[String]) -> Value) -> Record {
        let mut run = record(folder);
        for step in Tune.steps(&run.order, Path::new("data")) {
            let output = match step.id.as_str() {
                TUNER => json!({ "measured": tuned }),
                id if id.starts_with("load") || id.starts_with("calibration") => json!({}),
                _ => measured(&step.command),
            };
            let (id, command) = (step.id, step.command);
            let (group, skipped) = (Value::Null, None);
            run.add(Ended {
                id,
                command,
                began_unix: 0,
                seconds: 1.0,
                output: vec![output],
                group,
                skipped,
                under: None,
            })
            .unwrap();
        }
        run
    }

    #[test]
    fn intervals_that_are_not_known_are_not_compared() {
        let folder = tempfile::tempdir().unwrap();
        let mut tuned = tuned();
        tuned.config.io = "direct".to_owned();
        // A single batch says nothing of how batches differ.
        let one = |command: &[String]| {
            let mut told = measured(command);
            told["measured"]["per_second"].as_array_mut().unwrap().truncate(1);
            told
        };
        let text = texts(&report(&recorded(&folder.path().join("run"), &tuned, one)));
        assert!(text.contains("The intervals of pick and peak are not both known."), "{text}");
        assert!(text.contains("how sure that is, is not known of all values."), "{text}");
    }

    #[test]
    fn what_was_measured_is_told_with_its_peak_and_beside_what_was_published() {
        let folder = tempfile::tempdir().unwrap();
        let mut tuned = tuned();
        tuned.config.io = "direct".to_owned();
        let run = recorded(&folder.path().join("run"), &tuned, measured);
        let document = report(&run);
        let text = texts(&document);
        assert!(text.contains("The most was measured with 128MiB, and no other value's interval reaches its own. 16MiB did 1"), "{text}");
        // All that have the same memory are alike.
        assert!(text.contains("; the intervals of 20, 60, 200 reach its own"), "{text}");
        assert!(
            text.contains(
                "From ½× to 8× of the memory it went from 32.0 to 32.0 transactions a second, to 100 % of it"
            ),
            "{text}"
        );
        assert!(text.contains("to 42 % of it"), "{text}");
        // The sweep has its peak at 128, the tuner's pick did 40: that is not the same.
        assert!(text.contains("The intervals of pick and peak do not overlap."), "{text}");
        let ids: Vec<&str> = document.figures().map(|figure| &*figure.id).collect();
        assert_eq!(
            ids,
            ["memory", "connections", "pages", "sorts", "commits", "modes", "growth", "race-1-memory"]
        );
        let tables = document.parts.iter().filter_map(|part| match part {
            Part::Table(head, rows) => Some((head.len(), rows)),
            _ => None,
        });
        assert!(
            tables
                .into_iter()
                .all(|(width, rows)| !rows.is_empty() && rows.iter().all(|row| row.len() == width))
        );
    }
}
