//! What is said of redo, of shutdowns, and of sustained load on modelled devices.

use super::report::{Found, LINE_STEP, MEBI, head, median, scaled, told};
use super::{Contestant, On, device_id};
use crate::chart::{Bars, Figure, Kind, Line, Spread, number};
use crate::document::Part;
use crate::restart::Side;
use serde_json::Value;

impl Found<'_> {
    /// How much is done on modelled devices while nothing is the matter.
    pub(super) fn steady(&self) -> Vec<Part> {
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        for one in self.contestants.iter().filter(|one| matches!(one.on, On::Modelled | On::Starved)) {
            let series = self.before(one);
            let Some(first) = series.first() else { continue };
            let last = self.plan.before.into();
            rows.push(vec![
                one.name.clone(),
                told(Spread::of(&series.iter().map(|series| series.rate(last)).collect::<Vec<_>>())),
                told(self.spread("steady", one, "/latency_us/p50").map(|us| scaled(us, 1e3))),
                told(self.spread("steady", one, "/latency_us/p99").map(|us| scaled(us, 1e3))),
                told(self.spread("steady", one, "/latency_us/max").map(|us| scaled(us, 1e3))),
            ]);
            lines.push(Line { name: one.name.clone(), points: first.line(0.0, LINE_STEP) });
        }
        if rows.is_empty() {
            return Vec::new();
        }
        let columns = ["", "updates/s at the end", "p50, ms", "p99, ms", "longest, ms"];
        vec![
            Part::Text(
                "Sustained load on modelled devices, from an opening with nothing in memory on:".to_owned(),
            ),
            Part::Table(head(&columns), rows),
            Part::Figure(Figure {
                id: "restart-sustained".to_owned(),
                title: "Sustained load on modelled devices, the first repetition".to_owned(),
                y: "updates a second".to_owned(),
                kind: Kind::Lines { x: "seconds".to_owned(), lines },
            }),
        ]
    }

    fn device(&self, on: On) -> Option<f64> {
        let rate =
            |round| self.run.find(&device_id(on, round))?.output.first()?.get("bytes_per_second")?.as_f64();
        median(&(1..=self.run.order.repeat).filter_map(rate).collect::<Vec<_>>())
    }

    /// Bytes of log that were redone in a second, in each repetition; and the share that was, where not all of it in the time that it was watched.
    fn redone(&self, contestant: &Contestant) -> Vec<Redone> {
        self.outputs("rest", contestant)
            .into_iter()
            .filter_map(|output| Redone::of(contestant.side, output))
            .collect()
    }

    pub(super) fn redo(&self) -> Vec<Part> {
        let (mut rows, mut bars) = (Vec::new(), Vec::new());
        for one in self.contestants.iter().filter(|one| one.on != On::Starved) {
            let redone = self.redone(one);
            let of = |figure: fn(&Redone) -> f64| Spread::of(&redone.iter().map(figure).collect::<Vec<_>>());
            let rate = of(|redone| redone.bytes / redone.seconds / MEBI);
            let device = self.device(one.on).map(|rate| rate / MEBI);
            let share = rate.zip(device).map(|(rate, device)| rate.median / device);
            let least = redone.iter().map(|redone| redone.share).fold(1.0, f64::min);
            let whole =
                if least < 1.0 { format!("{} % of it in ", number(least * 100.0)) } else { String::new() };
            rows.push(vec![
                one.name.clone(),
                told(of(|redone| redone.whole).map(|bytes| scaled(bytes, MEBI))),
                format!("{whole}{}", told(of(|redone| redone.seconds))),
                told(rate),
                device.map_or("–".to_owned(), number),
                share.map_or("–".to_owned(), number),
                told(self.loaded_redo(one)),
            ]);
            bars.push(Bars { name: one.name.clone(), values: vec![rate] });
        }
        let columns = [
            "",
            "log, MiB",
            "redone in peace, s",
            "MiB/s",
            "the device's sequential reads, MiB/s",
            "share",
            "redone under load, s",
        ];
        let figure = Figure {
            id: "restart-redo".to_owned(),
            title: "Log redone in a second, in peace".to_owned(),
            y: "MiB a second".to_owned(),
            kind: Kind::Bars { groups: head(&["redo"]), bars, limit: None },
        };
        let mut text = "Gannet's redo is counted from the start of the process until no page is left to be redone; in that it reads the pages that lack changes, besides the log."
            .to_owned();
        text.push_str(&self.of_rivals([
            "",
            " SQLite's is the time to its first commit: it reads all of its log to find the newest copy of each page, and brings none home.",
            " Berkeley DB's is the time to its first commit, too: it brings everything home before that.",
        ]));
        text.push_str(&self.postgres_says());
        vec![Part::Figure(figure), Part::Table(head(&columns), rows), Part::Text(text)]
    }

    pub(super) fn takes_part(&self, side: Side) -> bool {
        self.contestants.iter().any(|one| one.side == side)
    }

    /// Seconds until all was redone beside the load.
    fn loaded_redo(&self, contestant: &Contestant) -> Option<Spread> {
        // The others let nobody in before.
        if matches!(contestant.side, Side::WirePostgres | Side::Sqlite | Side::BerkeleyDb) {
            return None;
        }
        self.spread("loaded", contestant, "/redo_seconds")
    }

    fn postgres_says(&self) -> String {
        let Some(one) = self.contestants.iter().find(|one| one.side == Side::WirePostgres) else {
            return String::new();
        };
        let mut text = " PostgreSQL's is what its own log says".to_owned();
        if let Some(seconds) = median(&self.figures("rest", one, "/restart/checkpoint_seconds")) {
            text.push_str(&format!(
                "; the checkpoint behind it, before it lets anybody in, took {} s more",
                number(seconds)
            ));
        }
        text.push('.');
        text
    }

    pub(super) fn shutdown(&self) -> Vec<Part> {
        let mut rows = Vec::new();
        for one in &self.contestants {
            rows.push(vec![
                one.name.clone(),
                told(self.spread("rest", one, "/shutdown_idle_seconds")),
                told(self.spread("loaded", one, "/shutdown_loaded_seconds")),
            ]);
        }
        vec![
            Part::Table(head(&["", "in peace, after the redo, s", "under full load, s"]), rows),
            Part::Text(
                "Gannet's shutdown_limit is 10 s, as it is by default: what is not at home then is redone by the next start. \
                 Rivals write everything home."
                    .to_owned(),
            ),
        ]
    }
}

/// A redo in peace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Redone {
    /// Bytes of log there were, and those that were redone.
    pub(super) whole: f64,
    pub(super) bytes: f64,
    /// In so many seconds.
    pub(super) seconds: f64,
    /// The share of what there was.
    pub(super) share: f64,
}

impl Redone {
    /// By what a step has printed.
    pub(super) fn of(side: Side, output: &Value) -> Option<Self> {
        let figure = |path: &str| output.pointer(path).and_then(Value::as_f64);
        let all = |bytes: f64, seconds: f64| Redone { whole: bytes, bytes, seconds, share: 1.0 };
        match side {
            Side::WirePostgres => Some(all(figure("/log_bytes")?, figure("/restart/redo_seconds")?)),
            Side::Sqlite | Side::BerkeleyDb => {
                Some(all(figure("/log_bytes")?, figure("/first_commit_seconds")?))
            }
            Side::WireGannet | Side::Gannet => {
                let bytes = figure("/log_bytes")?;
                if let Some(seconds) = figure("/redo_seconds") {
                    return Some(all(bytes, seconds));
                }
                let pages = figure("/restart/pages").filter(|&pages| pages > 0.0)?;
                let share = 1.0 - figure("/restart/pages_left")? / pages;
                Some(Redone {
                    whole: bytes,
                    bytes: bytes * share,
                    seconds: figure("/watched_seconds")?,
                    share,
                })
            }
        }
    }
}
