//! Users as garbage grows, sweeps by garbage, incremental backups by changes, as figures and tables.

use super::found::Found;
use super::values::{figure, median, rates, ratio, shown};
use super::{changes_id, growing_id, sweeps_id};
use crate::admin::task::Task;
use crate::chart::{Figure, Kind as Chart, Line, number};
use crate::document::Part;
use crate::servers::Kind;
use serde_json::Value;

const MIB: f64 = (1 << 20) as f64;

impl Found<'_> {
    pub(super) fn growing(&self) -> Vec<Part> {
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

    pub(super) fn sweeps(&self) -> Vec<Part> {
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

    pub(super) fn changes(&self) -> Vec<Part> {
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
}
