//! What is said of a run.

use super::{Plan, changes_id, contestants, growing_id, sweeps_id, task_id};
use crate::admin::measure::GARBAGE;
use crate::admin::task::Task;
use crate::chart::{Bars, Figure, Kind as Chart, Line, Spread, number};
use crate::document::{Document, Part};
use crate::record::Record;
use crate::servers::Kind;
use gannet_base::units::format_size;
use serde_json::Value;

const MIB: f64 = (1 << 20) as f64;
/// Tasks whose users are drawn over time.
const DRAWN: [Task; 3] = [Task::Backup, Task::Check, Task::Dump];

pub(super) fn report(run: &Record) -> Document {
    let found = Found { run, plan: Plan::of(run.order.size) };
    let mut parts = found.introduction();
    parts.extend(published());
    parts.push(Part::Heading("Alone".to_owned()));
    parts.extend(found.alone());
    parts.push(Part::Heading("Beside users at full load".to_owned()));
    parts.extend(found.full_load());
    parts.push(Part::Heading("Beside users at half load".to_owned()));
    parts.extend(found.half_load());
    parts.push(Part::Heading("Who is ahead".to_owned()));
    parts.extend(found.verdicts());
    parts.push(Part::Heading("Users as garbage grows".to_owned()));
    parts.extend(found.growing());
    parts.push(Part::Heading("Sweep by garbage, incremental backup by change".to_owned()));
    parts.extend(found.sweeps());
    parts.extend(found.changes());
    parts.push(Part::Heading("Settings".to_owned()));
    parts.extend(found.settings());
    Document { title: "X3 admin: what maintenance costs, and whom".to_owned(), parts }
}

fn published() -> Vec<Part> {
    let rows = [
        ["record statistics (gstat -r)", "RAID", "0:42 → 4:34, 4:18 → 15:18, 7:44 → 26:25, 13:30 → 43:18"],
        ["the same", "SSD", "0:30 → 1:58, 3:25 → 8:38, 6:51 → 17:44, 19:06 → 26:52"],
        ["physical backup (nbackup), direct I/O", "RAID", "3:09 → 55:27, 9:57 → 1:37:58"],
        ["the same", "SSD", "3:53 → 6:27, 12:19 → 21:42"],
        ["the same without direct I/O", "RAID", "2:57 → 21:10, 10:07 → 56:57"],
        ["the same", "SSD", "2:33 → 3:16, 10:31 → 23:54; larger sizes idle only: 26:40, 33:19"],
        ["plain file copy", "RAID", "1:04 → 2:28, 5:30 → 28:37"],
        ["the same", "SSD", "1:39 → 1:57, 6:06 → 8:18, 24:36 → 29:12"],
        ["sweep, beside users", "RAID", "1:44:30, 4:04:50, 8:28:07, 7:04:29"],
        [
            "the same",
            "SSD",
            "0:44:46, 2:11:18, 4:15:16, 3:19:41; it also started uninvited during measurements",
        ],
        [
            "logical backup and restore (gbak)",
            "",
            "“too slow to be practical”: about an hour for 10 GB restored",
        ],
    ];
    vec![
        Part::Heading("Published".to_owned()),
        Part::Text(
            "Firebird 2.5.2 with databases of 8.7 GB (which fits into memory), 22.7, 44 and 81 GB, 25 users of TPC-C, four cores and 16 GB of memory. Times of a task idle → beside users, \
             by size; the backup took 1.8 to 22 times as long as a plain copy of the file."
                .to_owned(),
        ),
        Part::Table(
            ["task", "disks", "published"].map(str::to_owned).to_vec(),
            rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect(),
        ),
        Part::Text(
            "What cannot be compared: their machine, their disks and the size of their databases, so seconds as such; which users' throughput they had during gstat, as the talk's table of \
             that is garbled in every copy there is. What can: a task's time beside users against idle, its time against a plain copy, and who of two contestants of the same run costs the \
             users less. Tasks of the same name are not the same: gannet stat counts every record with its versions, pgstattuple reads pages; gannet check looks at every page, its checksum \
             and each index against its table, bt_index_check at indexes and whether each row has its entry; gannet backup verifies every page. PostgreSQL 15 has no incremental \
             backup, and VACUUM FULL is no rival of a compaction, as it locks the users out."
                .to_owned(),
        ),
    ]
}

/// The median of what several repetitions brought.
fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

fn shown(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), number)
}

fn range(values: &[f64]) -> String {
    Spread::of(values).map_or("–".to_owned(), |spread| match spread.least < spread.most {
        true => format!("{}–{}", number(spread.least), number(spread.most)),
        false => "one".to_owned(),
    })
}

fn figure(value: &Value, path: &str) -> Option<f64> {
    value.pointer(path)?.as_f64()
}

/// How long the task took alone.
fn seconds_alone(told: &Value) -> Option<f64> {
    let runs = told.pointer("/phases/idle/runs")?.as_array()?;
    let complete = runs.iter().filter(|run| run["is_complete"] == true);
    median(&complete.filter_map(|run| run["seconds"].as_f64()).collect::<Vec<_>>())
}

/// How long the first one took beside users; `None` where it had to be ended.
fn seconds_beside(told: &Value, load: &str) -> Option<f64> {
    let first = told.pointer(&format!("/phases/{load}/with/beside/runs/0"))?;
    (first["is_complete"] == true).then(|| first["seconds"].as_f64())?
}

/// A figure of the users without the task: the mean of before and behind.
fn without(told: &Value, load: &str, name: &str) -> Option<f64> {
    let of = |phase: &str| figure(told, &format!("/phases/{load}/{phase}/{name}"));
    Some((of("before")? + of("behind")?) / 2.0)
}

fn with(told: &Value, load: &str, name: &str) -> Option<f64> {
    figure(told, &format!("/phases/{load}/with/{name}"))
}

fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.zip(other).filter(|(_, other)| *other > 0.0).map(|(one, other)| one / other)
}

/// Transactions that were not made because of one run of the task.
fn lost(told: &Value) -> Option<f64> {
    let (without, with) = (
        without(told, "closed", "transactions_per_second")?,
        with(told, "closed", "transactions_per_second")?,
    );
    let beside = told.pointer("/phases/closed/with")?;
    let runs = beside.pointer("/beside/runs")?.as_array()?.len().max(1);
    Some(((without - with) * beside["seconds"].as_f64()?).max(0.0) / runs as f64)
}

/// The share of the users' time in which the task ran.
fn busy(told: &Value, load: &str) -> Option<f64> {
    ratio(with(told, load, "beside/busy_seconds"), with(told, load, "seconds"))
}

struct Found<'r> {
    run: &'r Record,
    plan: Plan,
}

impl Found<'_> {
    fn contestants(&self) -> Vec<Kind> {
        contestants(&self.run.order)
    }

    /// What a step has printed, of each repetition that has ended.
    fn told(&self, id: impl Fn(u32) -> String) -> Vec<&Value> {
        (1..=self.run.order.repeat).filter_map(|time| self.run.find(&id(time))?.output.first()).collect()
    }

    fn task(&self, kind: Kind, task: Task) -> Vec<&Value> {
        self.told(|time| task_id(kind, task, time))
    }

    fn each(&self, kind: Kind, task: Task, of: impl Fn(&Value) -> Option<f64>) -> Vec<f64> {
        self.task(kind, task).into_iter().filter_map(of).collect()
    }

    /// The contestant, with its version as it was then.
    fn title(&self, kind: Kind) -> String {
        let mut told = Task::ALL.into_iter().flat_map(|task| self.task(kind, task));
        let name = told.find_map(|told| told.pointer("/server/server")?.as_str());
        name.map_or_else(|| super::word(kind).to_owned(), str::to_owned)
    }

    /// Task and contestant of each row, where something was measured.
    fn rows(&self) -> Vec<(Task, Kind)> {
        let all = Task::ALL.into_iter();
        all.flat_map(|task| self.contestants().into_iter().map(move |kind| (task, kind)))
            .filter(|&(task, kind)| !self.task(kind, task).is_empty())
            .collect()
    }

    fn introduction(&self) -> Vec<Part> {
        let plan = &self.plan;
        let group = self
            .rows()
            .first()
            .and_then(|&(task, kind)| self.task(kind, task).first().map(|told| told["has_group"] == true));
        let held = match group {
            Some(false) => {
                "No memory cgroup could be made, so nobody is held to it but by its own settings, and PostgreSQL has the whole machine's page cache."
            }
            _ => "Server and task are in one memory cgroup of that size, page cache included.",
        };
        let rough = match self.run.order.size {
            crate::record::Size::Quick => {
                " At this size each time is so short that figures are rough, a p99 most of all: the standard size is what counts."
            }
            _ => "",
        };
        let conditions: Vec<&Value> = self
            .rows()
            .into_iter()
            .flat_map(|(task, kind)| self.task(kind, task))
            .filter(|told| told["conditions"].is_u64())
            .collect();
        let mut proofs: Vec<&str> = self
            .rows()
            .into_iter()
            .flat_map(|(task, kind)| self.task(kind, task))
            .filter_map(|told| told["proof"].as_str())
            .collect();
        proofs.sort_unstable();
        proofs.dedup();
        let mut parts = vec![
            Part::Text(format!(
                "TPC-C with {} warehouses, {} of memory. {held} {} users without think times, each transaction committed durably, work over a Unix socket; their program is outside of the \
                 group. Each task is a step of its own on a fresh copy of the loaded data: {} s of users that do not count, then {} s without the task, with it, without it, in a closed loop (full \
                 load); then the same in an open loop at half of that throughput (half load), where latency counts from when a transaction comes in. A task begins again when it has ended, once a second \
                 at most; the time with it lasts until it has ended, {} s at most, and its first run's time counts. Then the users are gone and it runs alone. Files are removed only when nobody is \
                 measured.{rough}",
                plan.warehouses,
                format_size(plan.memory()),
                plan.sessions,
                plan.warm_up,
                plan.seconds,
                plan.limit,
            )),
            Part::Text(format!(
                "A sweep has the old versions of one in {GARBAGE} rows of the stock to remove, which a snapshot holds until it begins, and nobody sweeps before: Gannet's sweep_window is \
                 shut, PostgreSQL's autovacuum is off. A compaction runs alone on a copy, before, as it leaves little to do to the next one. An incremental backup has what users have changed \
                 since the one before."
            )),
        ];
        if !conditions.is_empty() || !proofs.is_empty() {
            let conditions = match conditions.len() {
                0 => String::new(),
                count => format!(
                    " After {count} of the steps the conditions of TPC-C (clause 3.3.2) were looked at, and held."
                ),
            };
            let proofs = match proofs.as_slice() {
                [] => String::new(),
                names => format!(" What was made was proven whole by {}.", names.join(", ")),
            };
            parts.push(Part::Text(format!("{conditions}{proofs}").trim().to_owned()));
        }
        parts
    }

    /// Bars of all tasks, of all contestants.
    fn bars(
        &self,
        id: &str,
        title: &str,
        y: &str,
        is_to_be_1: bool,
        of: impl Fn(&Value) -> Option<f64>,
    ) -> Part {
        let tasks: Vec<Task> = Task::ALL
            .into_iter()
            .filter(|&task| self.contestants().iter().any(|&kind| !self.each(kind, task, &of).is_empty()))
            .collect();
        let bars = self.contestants().into_iter().map(|kind| Bars {
            name: self.title(kind),
            values: tasks.iter().map(|&task| Spread::of(&self.each(kind, task, &of))).collect(),
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

    fn alone(&self) -> Vec<Part> {
        let mut rows = Vec::new();
        for (task, kind) in self.rows() {
            let seconds = self.each(kind, task, seconds_alone);
            let speed = self.each(kind, task, |told| {
                let bytes = figure(told, "/phases/idle/data_bytes").filter(|_| task.is_of_all_data())?;
                ratio(Some(bytes / 1e6), seconds_alone(told))
            });
            let copy = median(&self.each(kind, Task::Copy, seconds_alone));
            let mebibytes = |path: &str| {
                median(&self.each(kind, task, |told| figure(told, path))).map(|bytes| bytes / MIB)
            };
            rows.push(vec![
                task.name().to_owned(),
                format!("{}: {}", self.title(kind), task.tool(kind).unwrap_or_default()),
                shown(median(&seconds)),
                range(&seconds),
                shown(median(&speed)),
                shown(ratio(median(&seconds), copy)),
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

    /// A task's time beside users, or that it had to be ended.
    fn beside(&self, kind: Kind, task: Task, load: &str) -> [String; 2] {
        let seconds = self.each(kind, task, |told| seconds_beside(told, load));
        if seconds.is_empty() {
            return [format!("not within {} s", self.plan.limit), "–".to_owned()];
        }
        let ratios = self.each(kind, task, |told| ratio(seconds_beside(told, load), seconds_alone(told)));
        [shown(median(&seconds)), shown(median(&ratios))]
    }

    fn full_load(&self) -> Vec<Part> {
        let name = "transactions_per_second";
        let kept = |told: &Value| ratio(with(told, "closed", name), without(told, "closed", name));
        let mut rows = Vec::new();
        for (task, kind) in self.rows() {
            let ratios = self.each(kind, task, kept);
            let [seconds, times] = self.beside(kind, task, "closed");
            let beside = |task| median(&self.each(kind, task, |told| seconds_beside(told, "closed")));
            rows.push(vec![
                task.name().to_owned(),
                self.title(kind),
                format!(
                    "{} → {}",
                    shown(median(&self.each(kind, task, |told| without(told, "closed", name)))),
                    shown(median(&self.each(kind, task, |told| with(told, "closed", name))))
                ),
                shown(median(&ratios)),
                range(&ratios),
                seconds,
                times,
                shown(ratio(beside(task), beside(Task::Copy))),
                shown(median(&self.each(kind, task, |told| busy(told, "closed"))).map(|share| share * 100.0)),
                shown(median(&self.each(kind, task, lost))),
            ]);
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
                kept,
            ),
            self.bars("full-load-time", "Tasks beside users at full load", "seconds", false, |told| {
                seconds_beside(told, "closed")
            }),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
        ];
        parts.extend(DRAWN.into_iter().filter_map(|task| self.over_time(task)));
        parts
    }

    /// The users' throughput at full load, before, with and behind the task, against the mean before.
    fn over_time(&self, task: Task) -> Option<Part> {
        let line = |kind: Kind| {
            let told = *self.task(kind, task).first()?;
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
                name: format!("{} (the task begins at {} s)", self.title(kind), number(began)),
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

    fn half_load(&self) -> Vec<Part> {
        let slower = |told: &Value| ratio(with(told, "open", "p99_ms"), without(told, "open", "p99_ms"));
        let name = "transactions_per_second";
        let mut rows = Vec::new();
        for (task, kind) in self.rows() {
            let ratios = self.each(kind, task, slower);
            let kept =
                self.each(kind, task, |told| ratio(with(told, "open", name), without(told, "open", name)));
            let [seconds, times] = self.beside(kind, task, "open");
            rows.push(vec![
                task.name().to_owned(),
                self.title(kind),
                format!(
                    "{} → {}",
                    shown(median(&self.each(kind, task, |told| without(told, "open", "p99_ms")))),
                    shown(median(&self.each(kind, task, |told| with(told, "open", "p99_ms"))))
                ),
                shown(median(&ratios)),
                range(&ratios),
                shown(median(&kept)),
                seconds,
                times,
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
        ];
        vec![
            self.bars(
                "half-load-p99",
                "Users' p99 at half load beside the task, ÷ without it",
                "ratio",
                true,
                slower,
            ),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
        ]
    }

    /// With which tasks Gannet is ahead of each rival, and with which it is not.
    fn verdicts(&self) -> Vec<Part> {
        let name = "transactions_per_second";
        let mut rows = Vec::new();
        for rival in self.contestants().into_iter().filter(|&kind| kind != Kind::Gannet) {
            let mut judge = |what: &str, is_more_better: bool, of: &dyn Fn(&Value) -> Option<f64>| {
                let (mut ahead, mut behind) = (Vec::new(), Vec::new());
                for task in Task::ALL.into_iter().filter(|&task| task != Task::Copy) {
                    let pair =
                        (median(&self.each(Kind::Gannet, task, of)), median(&self.each(rival, task, of)));
                    let (Some(ours), Some(theirs)) = pair else { continue };
                    let told = format!("{} ({} : {})", task.name(), number(ours), number(theirs));
                    let is_ahead = if is_more_better { ours >= theirs } else { ours <= theirs };
                    if is_ahead { ahead.push(told) } else { behind.push(told) }
                }
                let listed = |tasks: Vec<String>| {
                    if tasks.is_empty() { "–".to_owned() } else { tasks.join(", ") }
                };
                rows.push(vec![self.title(rival), what.to_owned(), listed(ahead), listed(behind)]);
            };
            judge("time alone, s", false, &seconds_alone);
            judge("time at full load, s", false, &|told| seconds_beside(told, "closed"));
            judge("users' throughput kept at full load", true, &|told| {
                ratio(with(told, "closed", name), without(told, "closed", name))
            });
            judge("transactions lost to one run", false, &lost);
            judge("users' p99 at half load ÷ without", false, &|told| {
                ratio(with(told, "open", "p99_ms"), without(told, "open", "p99_ms"))
            });
            judge("users' p99 at half load, ms", false, &|told| with(told, "open", "p99_ms"));
        }
        if rows.is_empty() {
            return vec![Part::Text("No rival took part.".to_owned())];
        }
        let head = ["against", "in", "Gannet is ahead (or as good)", "Gannet is behind"];
        vec![
            Part::Text("Medians, Gannet's first, of tasks that both have.".to_owned()),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
        ]
    }

    fn growing(&self) -> Vec<Part> {
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        for kind in self.contestants() {
            for is_held in [false, true] {
                let told = self.told(|time| growing_id(kind, is_held, time));
                let name = format!(
                    "{}, {}",
                    self.title(kind),
                    if is_held { "under an old snapshot" } else { "without" }
                );
                if let Some(points) = told.first().and_then(|told| rates(&told["users"])) {
                    lines.push(Line { name: name.clone(), points });
                }
                let each = |of: &dyn Fn(&Value) -> Option<f64>| {
                    told.iter().filter_map(|told| of(told)).collect::<Vec<_>>()
                };
                if told.is_empty() {
                    continue;
                }
                let quarters = each(&|told| {
                    let points = rates(&told["users"])?;
                    let (first, last) = (points.len() / 4, points.len() - points.len() / 4);
                    let mean = |points: &[(f64, f64)]| {
                        (!points.is_empty())
                            .then(|| points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64)
                    };
                    ratio(mean(&points[last..]), mean(&points[..first]))
                });
                let amount = median(&each(&|told| figure(told, "/garbage/amount")));
                let unit = told.iter().find_map(|told| told.pointer("/garbage/unit")?.as_str());
                let amount = match (unit, amount) {
                    (Some("bytes"), Some(bytes)) => format!("{} MiB of undo", number(bytes / MIB)),
                    (Some(_), Some(count)) => format!("{} dead rows, as it estimates", number(count)),
                    _ => "–".to_owned(),
                };
                rows.push(vec![
                    name,
                    shown(median(&each(&|told| figure(told, "/users/transactions_per_second")))),
                    shown(median(&quarters)),
                    shown(median(&each(&|told| figure(told, "/users/p99_ms")))),
                    amount,
                ]);
            }
        }
        let head =
            ["", "transactions/s", "last quarter ÷ first", "p99, ms", "held back or unswept at the end"];
        vec![
            Part::Text(format!(
                "Users at full load for {} s, under a snapshot that was taken before and reads nothing any more, and without one.",
                self.plan.growing
            )),
            Part::Figure(Figure {
                id: "growing".to_owned(),
                title: "Users' throughput as garbage grows, the first repetition".to_owned(),
                y: "transactions a second".to_owned(),
                kind: Chart::Lines { x: "seconds".to_owned(), lines },
            }),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
        ]
    }

    fn sweeps(&self) -> Vec<Part> {
        let line = |kind: Kind| {
            let told = self.told(|time| sweeps_id(kind, time));
            let count = told.first()?["points"].as_array()?.len();
            let of = |point: usize, path: &str| {
                let path = format!("/points/{point}{path}");
                median(&told.iter().filter_map(|told| figure(told, &path)).collect::<Vec<_>>())
            };
            let points = (0..count)
                .filter_map(|point| Some((of(point, "/rows")? / 1e3, of(point, "/run/seconds")?)))
                .collect();
            let tool = Task::Sweep.tool(kind).unwrap_or_default();
            Some(Line { name: format!("{}: {tool}", self.title(kind)), points })
        };
        let lines: Vec<Line> = self.contestants().into_iter().filter_map(line).collect();
        let rows = lines.iter().flat_map(|line| {
            line.points
                .iter()
                .map(|(rows, seconds)| vec![line.name.clone(), number(rows * 1e3), number(*seconds)])
        });
        let head = ["", "rows changed", "s"].map(str::to_owned).to_vec();
        let table = Part::Table(head, rows.collect());
        let figure = Figure {
            id: "sweep-by-garbage".to_owned(),
            title: "A sweep by the garbage there is, without users".to_owned(),
            y: "seconds".to_owned(),
            kind: Chart::Lines { x: "thousand rows of the stock that were changed".to_owned(), lines },
        };
        vec![Part::Figure(figure), table]
    }

    fn changes(&self) -> Vec<Part> {
        let told = self.told(changes_id);
        let Some(first) = told.first() else { return Vec::new() };
        let of = |path: &str| median(&told.iter().filter_map(|told| figure(told, path)).collect::<Vec<_>>());
        let (all, full) = (of("/full/said/manifest/pages"), of("/full/seconds"));
        let count = first["points"].as_array().map_or(0, Vec::len);
        let (mut rows, mut points) = (Vec::new(), Vec::new());
        for point in 0..count {
            let of = |path: &str| of(&format!("/points/{point}/run{path}"));
            let share = ratio(of("/said/manifest/pages"), all).map(|share| share * 100.0);
            if let Some(point) = share.zip(of("/seconds")) {
                points.push(point);
            }
            rows.push(vec![
                shown(share),
                shown(of("/seconds")),
                shown(ratio(of("/seconds"), full)),
                shown(of("/said/job/bytes_read").map(|bytes| bytes / MIB)),
                shown(of("/said/manifest/bytes").map(|bytes| bytes / MIB)),
            ]);
        }
        let mut lines = vec![Line { name: "incremental".to_owned(), points }];
        if let Some(full) = full {
            lines.push(Line { name: "full".to_owned(), points: vec![(0.0, full), (100.0, full)] });
        }
        let head = ["pages in it, % of a full one's", "s", "÷ full", "read, MiB", "its size, MiB"];
        vec![
            Part::Figure(Figure {
                id: "incremental-by-change".to_owned(),
                title: "Gannet's incremental backup by what has changed, without users".to_owned(),
                y: "seconds".to_owned(),
                kind: Chart::Lines { x: "pages in it, % of a full backup's".to_owned(), lines },
            }),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
        ]
    }

    fn settings(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        for kind in self.contestants() {
            // Those of a sweep differ by who sweeps besides.
            for task in [Task::Backup, Task::Sweep] {
                let Some(&told) = self.task(kind, task).first() else { continue };
                let settings = told.pointer("/server/settings").and_then(Value::as_array);
                let settings: Vec<String> = settings
                    .into_iter()
                    .flatten()
                    .filter_map(|setting| setting.as_str().map(str::to_owned))
                    .collect();
                parts.push(Part::Text(format!(
                    "{}, {}; data files of {} before the task ran alone:",
                    self.title(kind),
                    if task == Task::Sweep { "for a sweep" } else { "for all others" },
                    figure(told, "/phases/idle/data_bytes")
                        .map_or("unknown size".to_owned(), |bytes| format_size(bytes as u64)),
                )));
                parts.push(Part::Commands(settings));
            }
        }
        parts
    }
}

/// Transactions a second over time.
fn rates(users: &Value) -> Option<Vec<(f64, f64)>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Ended, Order, Size};
    use serde_json::json;

    fn phase(rate: f64, p99: f64) -> Value {
        json!({
            "seconds": 2.0, "transactions_per_second": rate, "p99_ms": p99,
            "samples": [[1.0, rate, p99], [2.0, rate, p99]],
        })
    }

    fn told(name: &str, alone: f64, beside: Option<f64>, kept: f64) -> Value {
        let mut with = phase(1000.0 * kept, 20.0);
        let run = json!({ "seconds": beside.unwrap_or(20.0), "is_complete": beside.is_some(), "began": 0.5 });
        with["beside"] = json!({ "runs": [run], "busy_seconds": 1.0 });
        json!({
            "server": { "server": name, "settings": ["fsync=on"] }, "has_group": true, "conditions": 11, "proof": "gannet verify",
            "phases": {
                "idle": {
                    "runs": [{ "seconds": alone, "is_complete": true }], "data_bytes": 100_000_000, "room_at_destination_bytes": 1 << 20,
                    "room_beside_bytes": 0, "cached_before_bytes": 0, "cached_after_bytes": 1 << 20, "cached_at_destination_bytes": 0,
                },
                "closed": { "before": phase(1100.0, 10.0), "with": with, "behind": phase(900.0, 10.0) },
                "open": { "before": phase(500.0, 10.0), "with": with, "behind": phase(500.0, 10.0) },
            },
        })
    }

    fn run(folder: &std::path::Path, steps: Vec<(String, Value)>) -> Record {
        let order = Order {
            experiment: "admin".to_owned(),
            size: Size::Quick,
            rivals: vec!["postgresql".to_owned()],
            modes: vec!["auto".to_owned()],
            repeat: 1,
            seed: 1,
        };
        let mut run = Record::create(folder, &order, Value::Null).unwrap();
        for (id, output) in steps {
            let (command, output) = (Vec::new(), vec![output]);
            run.add(Ended {
                id,
                command,
                began_unix: 0,
                seconds: 1.0,
                output,
                group: Value::Null,
                skipped: None,
            })
            .unwrap();
        }
        run
    }

    #[test]
    fn a_report_says_what_was_measured_and_who_is_ahead() {
        let folder = tempfile::tempdir().unwrap();
        let steps = vec![
            (task_id(Kind::Gannet, Task::Copy, 1), told("Gannet", 0.5, Some(1.0), 1.0)),
            (task_id(Kind::Gannet, Task::Check, 1), told("Gannet", 1.0, Some(2.0), 0.9)),
            (task_id(Kind::PostgreSql, Task::Check, 1), told("PostgreSQL 15", 0.8, None, 0.5)),
        ];
        let text = report(&run(&folder.path().join("run"), steps)).markdown();
        // 100 MB in a second, twice as long as the copy.
        assert!(
            text.contains(
                "| check | Gannet: gannet check | 1.00 | one | 100 | 2.00 | 1.00 | 0 | 0 → 1.00 | 0 |"
            ),
            "{text}"
        );
        // (1000 - 900) a second for 2 s.
        assert!(
            text.contains("| check | Gannet | 1,000 → 900 | 0.900 | one | 2.00 | 2.00 | 2.00 | 50.0 | 200 |"),
            "{text}"
        );
        assert!(text.contains("not within 20 s"), "{text}");
        assert!(text.contains("| PostgreSQL 15 | time alone, s | – | check (1.00 : 0.800) |"), "{text}");
        assert!(text.contains("users' throughput kept at full load | check (0.900 : 0.500) | –"), "{text}");
        assert!(text.contains("After 3 of the steps") && !text.contains("No rival"), "{text}");
    }

    #[test]
    fn a_report_of_nothing_has_no_figures_made_up() {
        let folder = tempfile::tempdir().unwrap();
        let text = report(&run(&folder.path().join("run"), Vec::new())).markdown();
        assert!(!text.contains("NaN") && !text.contains("After 0"), "{text}");
    }
}
