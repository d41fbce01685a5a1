//! Tasks by size, users as garbage grows, sweeps by garbage, incremental backups by changes, as figures and tables.

use super::found::Found;
use super::values::{
    figure, known, median, median_bound, rates, ratio, ratio_bound, seconds_of, shown, shown_bound,
};
use super::{changes_id, growing_id, sizes_id, sweeps_id};
use crate::admin::studies::SIZED;
use crate::admin::task::Task;
use crate::chart::{Bars, Bound, Figure, Kind as Chart, Line, Spread, number};
use crate::document::Part;
use crate::sides::Side;
use serde_json::Value;

const MIB: f64 = (1 << 20) as f64;

impl Found<'_> {
    /// A task's times on databases of all sizes: megabytes and seconds.
    fn by_size(&self, side: Side, task: Task) -> Vec<(f64, Option<Bound>)> {
        let of = |warehouses| {
            let told = self.told(|time| sizes_id(side, warehouses, time));
            let bytes =
                median(&told.iter().filter_map(|told| figure(told, "/data_bytes")).collect::<Vec<_>>())?;
            let tasks = told.iter().filter_map(|told| told["tasks"].as_array()).flatten();
            let runs =
                tasks.filter(|one| one["task"] == task.name()).filter_map(|one| one["runs"].as_array());
            let seconds: Vec<Bound> = runs.flatten().filter_map(|run| seconds_of(run, "")).collect();
            (!seconds.is_empty()).then(|| (bytes / 1e6, median_bound(&seconds)))
        };
        self.plan.sizes().into_iter().filter_map(of).collect()
    }

    /// Whether a task's time grows with the database, or faster.
    pub(super) fn sizes(&self) -> Vec<Part> {
        let (mut rows, mut bars) = (Vec::new(), Vec::new());
        for side in self.contestants() {
            let mut values = Vec::new();
            for task in SIZED {
                let points = self.by_size(side, task);
                // Of the largest, for each of its megabytes, against the smallest.
                let grown = match points.as_slice() {
                    [(small, first), .., (large, last)] => ratio_bound(*last, *first)
                        .map(|times| Bound { value: times.value / (large / small), ..times }),
                    _ => None,
                };
                values.push(grown.and_then(|grown| Spread::of_bounds(&[grown])));
                if points.is_empty() {
                    continue;
                }
                let each: Vec<String> = points
                    .iter()
                    .map(|(size, seconds)| format!("{}: {}", number(*size), shown_bound(*seconds)))
                    .collect();
                rows.push(vec![
                    task.name().to_owned(),
                    format!("{}: {}", self.title(side), task.tool(side).unwrap_or_default()),
                    each.join(", "),
                    shown_bound(grown),
                ]);
            }
            bars.push(Bars { name: self.title(side), values });
        }
        if rows.is_empty() {
            return vec![Part::Text("Not measured yet.".to_owned())];
        }
        rows.sort_by_key(|row| SIZED.iter().position(|task| task.name() == row[0]));
        let head = [
            "task",
            "by",
            "size of the data files, MB: seconds",
            "time ÷ size, the largest against the smallest",
        ];
        vec![
            Part::Text(format!(
                "The same tasks without users on databases of {} warehouses, with the same memory, which the smallest one nearly fits into. Where the last column is 1 the time is in proportion to the size; what is always \
                 to be done, as starting a program and syncing, makes it less. Medians.",
                self.plan.sizes().iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
            )),
            Part::Figure(Figure {
                id: "by-size".to_owned(),
                title: "A task's time ÷ the size of the data, the largest database against the smallest"
                    .to_owned(),
                y: "ratio".to_owned(),
                kind: Chart::Bars {
                    groups: SIZED.iter().map(|task| task.name().to_owned()).collect(),
                    bars,
                    limit: Some(("in proportion to the size".to_owned(), vec![Some(1.0); SIZED.len()])),
                },
            }),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
        ]
    }

    pub(super) fn growing(&self) -> Vec<Part> {
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        for side in self.contestants() {
            for is_held in [false, true] {
                let told = self.told(|time| growing_id(side, is_held, time));
                let name = format!(
                    "{}, {}",
                    self.title(side),
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
                    (Some("log"), Some(bytes)) => format!("{} MiB of log", number(bytes / MIB)),
                    (Some("transactions"), Some(count)) => {
                        format!("{} transactions since the oldest snapshot", number(count))
                    }
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

    pub(super) fn sweeps(&self) -> Vec<Part> {
        let line = |side: Side| {
            let told = self.told(|time| sweeps_id(side, time));
            let count = told.first()?["points"].as_array()?.len();
            let of = |point: usize, path: &str| {
                let path = format!("/points/{point}{path}");
                median(&told.iter().filter_map(|told| figure(told, &path)).collect::<Vec<_>>())
            };
            let seconds = |point: usize| {
                let run = format!("/points/{point}/run");
                known(median_bound(
                    &told.iter().filter_map(|told| seconds_of(told, &run)).collect::<Vec<_>>(),
                ))
            };
            let points =
                (0..count).filter_map(|point| Some((of(point, "/rows")? / 1e3, seconds(point)?))).collect();
            let tool = Task::Sweep.tool(side).unwrap_or_default();
            Some(Line { name: format!("{}: {tool}", self.title(side)), points })
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

    pub(super) fn changes(&self) -> Vec<Part> {
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        for side in self.contestants() {
            self.changes_of(side, &mut rows, &mut lines);
        }
        if rows.is_empty() {
            return Vec::new();
        }
        let head = ["by", "pages in it, % of a full one's", "s", "÷ full", "read, MiB", "its size, MiB"];
        vec![
            Part::Figure(Figure {
                id: "incremental-by-change".to_owned(),
                title: "An incremental backup by what has changed, without users".to_owned(),
                y: "seconds".to_owned(),
                kind: Chart::Lines { x: "pages in it, % of a full backup's".to_owned(), lines },
            }),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
        ]
    }

    fn changes_of(&self, side: Side, rows: &mut Vec<Vec<String>>, lines: &mut Vec<Line>) {
        let told = self.told(|time| changes_id(side, time));
        let Some(first) = told.first() else { return };
        let of = |path: &str| median(&told.iter().filter_map(|told| figure(told, path)).collect::<Vec<_>>());
        // Who does not say how many pages there are has made a file of nothing else.
        let pages = |run: &str| {
            of(&format!("{run}/said/manifest/pages")).or_else(|| of(&format!("{run}/said/made_bytes")))
        };
        let size = |run: &str| {
            of(&format!("{run}/said/manifest/bytes")).or_else(|| of(&format!("{run}/said/made_bytes")))
        };
        let time = |run: &str| {
            median_bound(&told.iter().filter_map(|told| seconds_of(told, run)).collect::<Vec<_>>())
        };
        let (all, full) = (pages("/full"), time("/full"));
        let title = told.iter().find_map(|told| told.pointer("/server/server")?.as_str());
        let title = title.map_or_else(|| self.title(side), str::to_owned);
        let mut points = Vec::new();
        for point in 0..first["points"].as_array().map_or(0, Vec::len) {
            let run = format!("/points/{point}/run");
            let seconds = time(&run);
            let share = ratio(pages(&run), all).map(|share| share * 100.0);
            // How long one takes that had to be ended nobody knows.
            points.extend(share.zip(known(seconds)));
            rows.push(vec![
                title.clone(),
                shown(share),
                shown_bound(seconds),
                shown_bound(ratio_bound(seconds, full)),
                shown(of(&format!("{run}/said/job/bytes_read")).map(|bytes| bytes / MIB)),
                shown(size(&run).map(|bytes| bytes / MIB)),
            ]);
        }
        lines.push(Line { name: format!("{title}, incremental"), points });
        if let Some(full) = known(full) {
            lines.push(Line { name: format!("{title}, full"), points: vec![(0.0, full), (100.0, full)] });
        }
    }
}
