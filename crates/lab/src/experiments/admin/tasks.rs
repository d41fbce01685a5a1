//! Tasks alone and beside users, as figures and tables.

use super::found::Found;
use super::values::{
    beside, busy, figure, is_beside, lost, lost_between, median, median_bound, p99_beside, p99_without,
    range, range_of, ratio, ratio_bound, seconds_alone, seconds_beside, shown, shown_bound, without,
};
use crate::admin::task::Task;
use crate::chart::{Bars, Bound, Figure, Kind as Chart, Line, Spread, number};
use crate::document::Part;
use crate::experiments::{are_told_apart, caveat};
use crate::sides::{GANNET, Side};
use serde_json::Value;

const MIB: f64 = (1 << 20) as f64;
/// Full load, and what Gannet's tasks are told there besides: see [`Haste`](crate::admin::task::Haste).
const FULL_LOAD: [(&str, &str); 2] = [("closed", ""), ("hurried", ", --job-pace full")];
/// Tasks whose users are drawn over time.
const DRAWN: [Task; 3] = [Task::Backup, Task::Check, Task::Dump];

impl Found<'_> {
    /// Bars of all tasks, of all contestants.
    pub(super) fn bars(
        &self,
        id: &str,
        title: &str,
        y: &str,
        is_to_be_1: bool,
        of: impl Fn(&Value) -> Option<Bound>,
    ) -> Part {
        let tasks: Vec<Task> = Task::ALL
            .into_iter()
            .filter(|&task| self.contestants().iter().any(|&side| !self.each(side, task, &of).is_empty()))
            .collect();
        let bars = self.contestants().into_iter().map(|side| Bars {
            name: self.title(side),
            values: tasks.iter().map(|&task| Spread::of_bounds(&self.each(side, task, &of))).collect(),
        });
        Part::Figure(Figure {
            id: id.to_owned(),
            title: title.to_owned(),
            y: y.to_owned(),
            kind: Chart::Bars {
                groups: tasks.iter().map(|task| task.name().to_owned()).collect(),
                bars: bars.collect(),
                limit: is_to_be_1.then(|| ("without the task".to_owned(), vec![Some(1.0); tasks.len()])),
            },
        })
    }

    pub(super) fn alone(&self) -> Vec<Part> {
        let mut rows = Vec::new();
        for (task, side) in self.rows() {
            let seconds = self.each(side, task, seconds_alone);
            let copy = median_bound(&self.each(side, Task::Copy, seconds_alone));
            let mebibytes = |path: &str| {
                median(&self.each(side, task, |told| figure(told, path))).map(|bytes| bytes / MIB)
            };
            rows.push(vec![
                task.name().to_owned(),
                format!("{}: {}", self.title(side), task.tool(side).unwrap_or_default()),
                shown_bound(median_bound(&seconds)),
                range_of(Spread::of_bounds(&seconds)),
                self.speed(side, task),
                shown_bound(ratio_bound(median_bound(&seconds), copy)),
                shown(mebibytes("/phases/idle/room_at_destination_bytes")),
                shown(mebibytes("/phases/idle/room_beside_bytes")),
                format!(
                    "{} → {}",
                    shown(mebibytes("/phases/idle/cached_before_bytes")),
                    shown(mebibytes("/phases/idle/cached_after_bytes"))
                ),
                shown(mebibytes("/phases/idle/cached_at_destination_bytes")),
            ]);
        }
        let head = [
            "task",
            "by",
            "s",
            "range",
            "MB/s",
            "÷ plain copy",
            "room at the destination, MiB",
            "room beside, MiB",
            "cached of the database, MiB",
            "cached of what was made, MiB",
        ];
        vec![
            Part::Text(
                "MB/s are bytes of the data files by the time, where a task goes through all of them. The plain copy is of the same contestant's data files, without the log, by direct I/O, \
                 synced. Room at the destination is what lies there afterwards; room beside is how much more database and log took meanwhile, at most. Cached is what the \
                 system's page cache has of the files, of the database before and after: the users' work has left what is there before."
                    .to_owned(),
            ),
            self.bars("alone", "Tasks alone", "seconds", false, seconds_alone),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
        ]
    }

    /// Megabytes a second of a task that goes through all data, by its median time: of what had to be ended it is that much at most.
    fn speed(&self, side: Side, task: Task) -> String {
        let bytes = median(&self.each(side, task, |told| figure(told, "/phases/idle/data_bytes")));
        let seconds = median_bound(&self.each(side, task, seconds_alone)).filter(|_| task.is_of_all_data());
        let speed = ratio(bytes.map(|bytes| bytes / 1e6), seconds.map(|bound| bound.value));
        let at_most = if seconds.is_some_and(|bound| bound.is_at_least) { "≤ " } else { "" };
        speed.map_or("–".to_owned(), |speed| format!("{at_most}{}", number(speed)))
    }

    /// A task's time beside users, or that it had to be ended.
    pub(super) fn beside(&self, side: Side, task: Task, load: &str) -> [String; 2] {
        let seconds = self.each(side, task, |told| seconds_beside(told, load));
        let ratios =
            self.each(side, task, |told| ratio_bound(seconds_beside(told, load), seconds_alone(told)));
        let ratio = shown_bound(median_bound(&ratios));
        let Some(middle) = median_bound(&seconds) else { return ["–".to_owned(), ratio] };
        if middle.is_at_least {
            return [format!("not within {} s", self.limit()), ratio];
        }
        let besides = match seconds.iter().filter(|bound| bound.is_at_least).count() {
            0 => String::new(),
            ended => format!(", and {ended} not within {} s", self.limit()),
        };
        [format!("{}{besides}", number(middle.value)), ratio]
    }

    pub(super) fn full_load(&self) -> Vec<Part> {
        let name = "transactions_per_second";
        let kept = |told: &Value, load: &str| ratio(beside(told, load, name), without(told, load, name));
        let mut rows = Vec::new();
        for (task, side) in self.rows() {
            for (load, told) in FULL_LOAD {
                let took =
                    |task, load| median_bound(&self.each(side, task, |told| seconds_beside(told, load)));
                if took(task, load).is_none() {
                    continue;
                }
                let ratios = self.each(side, task, |told| kept(told, load));
                let [seconds, times] = self.beside(side, task, load);
                rows.push(vec![
                    task.name().to_owned(),
                    format!("{}{told}", self.title(side)),
                    format!(
                        "{} → {}",
                        shown(median(&self.each(side, task, |told| without(told, load, name)))),
                        shown(median(&self.each(side, task, |told| beside(told, load, name))))
                    ),
                    shown(median(&ratios)),
                    range(&ratios),
                    seconds,
                    times,
                    shown_bound(ratio_bound(took(task, load), took(Task::Copy, "closed"))),
                    shown(median(&self.each(side, task, |told| busy(told, load))).map(|share| share * 100.0)),
                    shown_bound(median_bound(&self.each(side, task, |told| lost(told, load)))),
                ]);
            }
        }
        let head = [
            "task",
            "by",
            "users' transactions/s, without → with",
            "÷",
            "range",
            "the task's s",
            "÷ alone",
            "÷ plain copy likewise",
            "% of the time it ran",
            "transactions lost to one run",
        ];
        let mut parts = vec![
            self.bars(
                "full-load-users",
                "Users' throughput at full load beside the task, ÷ without it",
                "ratio",
                true,
                |told| kept(told, "closed").map(Bound::from),
            ),
            self.bars("full-load-time", "Tasks beside users at full load", "seconds", false, |told| {
                seconds_beside(told, "closed")
            }),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
        ];
        parts.extend(self.hardly_beside("closed"));
        parts.extend(DRAWN.into_iter().filter_map(|task| self.over_time(task)));
        parts
    }

    /// Whose figures of users are left out, as they had the task beside them for a small part of their time only.
    fn hardly_beside(&self, load: &str) -> Option<Part> {
        let is_left_out =
            |&(task, side): &(Task, Side)| self.task(side, task).iter().any(|told| !is_beside(told, load));
        let names: Vec<String> = self
            .rows()
            .iter()
            .filter(|row| is_left_out(row))
            .map(|&(task, side)| format!("the {} of {}", task.name(), self.title(side)))
            .collect();
        (!names.is_empty()).then(|| {
            Part::Text(format!(
                "What users had beside {} is left out: it ran for less than half of their time, in which they had found their way, so that says little of it.",
                names.join(", ")
            ))
        })
    }

    /// The users' throughput at full load, before, with and behind the task, against the mean before.
    pub(super) fn over_time(&self, task: Task) -> Option<Part> {
        let line = |side: Side| {
            let told = *self.task(side, task).first()?;
            let mean = figure(told, "/phases/closed/before/transactions_per_second")?;
            let (mut points, mut begin) = (Vec::new(), 0.0);
            for phase in ["before", "with", "behind"] {
                let phase = told.pointer(&format!("/phases/closed/{phase}"))?;
                let mut since = 0.0;
                for sample in phase["samples"].as_array()? {
                    let (at, count) = (sample[0].as_f64()?, sample[1].as_f64()?);
                    if at > since {
                        points.push((begin + at, count / (at - since) / mean));
                    }
                    since = at;
                }
                begin += phase["seconds"].as_f64()?;
            }
            let began = figure(told, "/phases/closed/before/seconds")?
                + figure(told, "/phases/closed/with/beside/runs/0/began")?;
            Some(Line {
                name: format!("{} (the task begins at {} s)", self.title(side), number(began)),
                points,
            })
        };
        let lines: Vec<Line> = self.contestants().into_iter().filter_map(line).collect();
        (!lines.is_empty()).then(|| {
            Part::Figure(Figure {
                id: format!("over-time-{}", task.name()),
                title: format!(
                    "Users at full load before, beside and behind {}, the first repetition",
                    task.name()
                ),
                y: "throughput ÷ mean before".to_owned(),
                kind: Chart::Lines { x: "seconds".to_owned(), lines },
            })
        })
    }

    pub(super) fn half_load(&self) -> Vec<Part> {
        let slower = |told: &Value| ratio_bound(p99_beside(told, "open"), p99_without(told, "open"));
        let name = "transactions_per_second";
        let mut rows = Vec::new();
        for (task, side) in self.rows() {
            let ratios = self.each(side, task, slower);
            let kept =
                self.each(side, task, |told| ratio(beside(told, "open", name), without(told, "open", name)));
            let [seconds, times] = self.beside(side, task, "open");
            rows.push(vec![
                task.name().to_owned(),
                self.title(side),
                format!(
                    "{} → {}",
                    shown_bound(median_bound(&self.each(side, task, |told| p99_without(told, "open")))),
                    shown_bound(median_bound(&self.each(side, task, |told| p99_beside(told, "open"))))
                ),
                shown_bound(median_bound(&ratios)),
                range_of(Spread::of_bounds(&ratios)),
                shown(median(&kept)),
                seconds,
                times,
                shown(median(&self.each(side, task, |told| busy(told, "open"))).map(|share| share * 100.0)),
            ]);
        }
        let head = [
            "task",
            "by",
            "users' p99, ms, without → with",
            "÷",
            "range",
            "users' transactions/s ÷ without",
            "the task's s",
            "÷ alone",
            "% of the time it ran",
        ];
        let mut parts = vec![
            self.bars(
                "half-load-p99",
                "Users' p99 at half load beside the task, ÷ without it",
                "ratio",
                true,
                slower,
            ),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
        ];
        let counts_unserved = |&(task, side): &(Task, Side)| {
            self.task(side, task).iter().any(|told| figure(told, "/phases/open/with/offered").is_some())
        };
        if self.rows().iter().any(counts_unserved) {
            parts.push(Part::Text(
                "Transactions that had come in by the end and that nobody had served count with the time that they had waited, which is less than they would have taken: where they are more than \
                 one in a hundred, the p99 is that much at least (≥)."
                    .to_owned(),
            ));
        }
        parts.extend(self.hardly_beside("open"));
        parts
    }

    /// With which tasks Gannet is ahead of each rival, and with which it is not.
    pub(super) fn verdicts(&self) -> Vec<Part> {
        /// Of all repetitions, beside users of such a load.
        type All<'f> = &'f dyn Fn(&[&Value], &str) -> Option<Spread>;
        let name = "transactions_per_second";
        let mut rows = Vec::new();
        for rival in self.contestants().into_iter().filter(|&side| side != GANNET) {
            // What `each` brings of all repetitions, and whether two of that differ by more than chance.
            let mut judge = |what: &str,
                             is_more_better: bool,
                             (our_load, each): (&str, All<'_>),
                             differ: &dyn Fn(Spread, Spread) -> bool| {
                let (mut ahead, mut behind, mut alike) = (Vec::new(), Vec::new(), Vec::new());
                // SQLite's lets nobody write meanwhile.
                let is_judged =
                    |task: Task| task != Task::Copy && !(task == Task::Compact && rival == Side::Sqlite);
                for task in Task::ALL.into_iter().filter(|&task| is_judged(task)) {
                    // Ours is direct I/O in any case.
                    let our_task = if task == Task::DirectBackup { Task::Backup } else { task };
                    let of = |side, task, load| each(&self.task(side, task), load);
                    let (Some(ours), Some(theirs)) =
                        (of(GANNET, our_task, our_load), of(rival, task, "closed"))
                    else {
                        continue;
                    };
                    if ours.is_at_least && theirs.is_at_least {
                        continue;
                    }
                    let figure = |spread: Spread| {
                        shown_bound(Some(Bound { value: spread.median, is_at_least: spread.is_at_least }))
                    };
                    let told = format!("{} ({} : {})", task.name(), figure(ours), figure(theirs));
                    let list = match differ(ours, theirs) {
                        false => &mut alike,
                        true if (ours.median > theirs.median) == is_more_better => &mut ahead,
                        true => &mut behind,
                    };
                    list.push(told);
                }
                let listed = |tasks: Vec<String>| {
                    if tasks.is_empty() { "–".to_owned() } else { tasks.join(", ") }
                };
                if our_load != "closed" && ahead.len() + behind.len() + alike.len() == 0 {
                    // A run of before there was that.
                    return;
                }
                let lists = [ahead, behind, alike].map(listed);
                rows.push([self.title(rival), what.to_owned()].into_iter().chain(lists).collect());
            };
            let lie_apart = |one: Spread, other: Spread| {
                let is_above = |one: Spread, other: Spread| !other.is_at_least && one.least > other.most;
                is_above(one, other) || is_above(other, one)
            };
            type Figure<'f> = &'f dyn Fn(&Value, &str) -> Option<Bound>;
            let mut judge_each = |what: &str, is_more_better: bool, our_load: &str, of: Figure<'_>| {
                let each = |told: &[&Value], load: &str| {
                    Spread::of_bounds(&told.iter().filter_map(|told| of(told, load)).collect::<Vec<_>>())
                };
                judge(what, is_more_better, (our_load, &each), &|ours, theirs| {
                    are_told_apart(&self.run.order, ours, theirs)
                });
            };
            judge_each("time alone, s", false, "closed", &|told, _| seconds_alone(told));
            judge_each("users' p99 at half load ÷ without", false, "closed", &|told, _| {
                ratio_bound(p99_beside(told, "open"), p99_without(told, "open"))
            });
            judge_each("users' p99 at half load, ms", false, "closed", &|told, _| p99_beside(told, "open"));
            for (load, how) in FULL_LOAD {
                judge_each(&format!("time at full load{how}, s"), false, load, &seconds_beside);
                judge_each(
                    &format!("users' throughput kept at full load{how}"),
                    true,
                    load,
                    &|told, load| ratio(beside(told, load, name), without(told, load, name)).map(Bound::from),
                );
            }
            for (load, how) in FULL_LOAD {
                let what = format!("transactions lost to one run{how}");
                judge(&what, false, (load, &lost_between), &lie_apart);
            }
        }
        if rows.is_empty() {
            return vec![Part::Text("No rival took part.".to_owned())];
        }
        let head = ["against", "in", "Gannet is ahead", "Gannet is behind", "not told apart"];
        let caveat = caveat(&self.run.order, "", "as much");
        vec![
            Part::Text(format!(
                "Medians, Gannet's first, of tasks that both have, but for SQLite's VACUUM, which lets nobody write. What is known as a bound (≥), as of a task that had to be ended, is behind where that is \
                 more than the other; what an ended task cost is told as far as it came. With --job-pace full: Gannet's tasks so, the others' as ever. {caveat} Transactions lost are told apart where they differ by more than what users did before the tasks and behind them differs."
            )),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
        ]
    }
}
