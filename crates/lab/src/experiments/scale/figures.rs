//! What is drawn and listed for each profile of the device: throughput and its decline, what is written for a transaction, latencies, and all of it over time.

use super::MULTIPLES;
use super::report::{Found, MIB, row_of};
use crate::chart::{Bars, Figure, Kind, Line, Spread, number};
use crate::document::{LEFT_OUT, Part};
use crate::experiments::{FIREBIRD, POSTGRESQL};
use crate::throttle::profile;
use crate::tpcc::transactions;

/// What was published: the database in GB, on a machine with 16 GB, and transactions a minute on RAID 10 and on an SSD.
pub(super) const PUBLISHED: [(&str, f64, f64, f64); 4] = [
    ("small (fits)", 8.7, 410.0, 2232.0),
    ("medium", 22.7, 392.0, 2235.0),
    ("quite large", 44.0, 360.0, 1938.0),
    ("very large", 81.0, 288.0, 1112.0),
];
/// In GB.
pub(super) const PUBLISHED_MEMORY: f64 = 16.0;

fn over_memory(multiple: f64) -> String {
    format!("{multiple}× the memory")
}

fn shown(spread: Option<Spread>) -> String {
    spread.map_or("–".to_owned(), |spread| number(spread.median))
}

fn range(spread: Spread) -> String {
    format!("{}–{}", number(spread.least), number(spread.most))
}

impl Found<'_> {
    pub(super) fn of_profile(&self, name: &str) -> Vec<Part> {
        let heading = match profile(name) {
            None => "The device as it is".to_owned(),
            Some(limit) => {
                format!(
                    "{name}: the device limited to {0} reads and {0} writes a second",
                    number(limit as f64)
                )
            }
        };
        let mut parts = vec![Part::Heading(heading)];
        parts.extend(self.throughput(name));
        parts.extend(self.decline(name));
        parts.extend(self.written(name));
        parts.extend(self.latencies(name));
        parts.extend(self.over_time(name));
        parts
    }

    /// Bars of a figure of each contestant, for each database.
    fn bars(&self, of: impl Fn(&str, f64) -> Option<Spread>) -> Kind {
        let bars = self.contestants().into_iter().map(|one| Bars {
            values: MULTIPLES.iter().map(|&multiple| of(&one.name, multiple)).collect(),
            name: one.name,
        });
        Kind::Bars { groups: MULTIPLES.map(over_memory).to_vec(), bars: bars.collect(), limit: None }
    }

    fn throughput(&self, profile: &str) -> Vec<Part> {
        let figure = Figure {
            id: format!("throughput-{profile}"),
            title: format!("Throughput, device {profile}"),
            y: "transactions a second".to_owned(),
            kind: self.bars(|name, multiple| self.rate(name, profile, multiple)),
        };
        let ratios: Vec<(&str, &str)> =
            [(POSTGRESQL, "PostgreSQL", "÷ PostgreSQL"), (FIREBIRD, "Firebird", "÷ Firebird")]
                .into_iter()
                .filter_map(|(rival, name, title)| self.has(rival).then_some((name, title)))
                .collect();
        let mut head = vec!["", "database", "transactions/s", "range", "device reads/s"];
        head.extend(ratios.iter().map(|(_, title)| title));
        head.extend(["new orders/min", "p50, ms", "p95, ms", "p99, ms", "p99.9, ms"]);
        let mut rows = Vec::new();
        for (multiple, one) in self.measured() {
            let Some(rate) = self.rate(&one.name, profile, multiple) else {
                if self.is_left_out(&one.name, profile, multiple) {
                    let mut row = vec![one.name.clone(), format!("{multiple}×"), LEFT_OUT.to_owned()];
                    row.resize(head.len(), "–".to_owned());
                    rows.push(row);
                }
                continue;
            };
            let of = |path: &str| shown(self.spread(&one.name, profile, multiple, path));
            let mut row = vec![
                one.name.clone(),
                format!("{multiple}×"),
                number(rate.median),
                range(rate),
                of("/measured/device_per_second/reads"),
            ];
            row.extend(ratios.iter().map(|(rival, _)| {
                let theirs = self.rate(&one.against(rival), profile, multiple);
                let theirs = theirs.filter(|_| !one.name.starts_with(rival));
                theirs.map_or("–".to_owned(), |theirs| number(rate.median / theirs.median))
            }));
            row.extend(
                ["new_orders_per_minute", "p50_ms", "p95_ms", "p99_ms", "p999_ms"]
                    .map(|figure| of(&format!("/measured/{figure}"))),
            );
            rows.push(row);
        }
        vec![Part::Figure(figure), Part::Table(row_of(&head), rows)]
    }

    /// Which share of the throughput with the database that fits is left: by contestant, for each database that was measured its size ÷ memory, and the share.
    fn shares(&self, profile: &str) -> Vec<(String, Vec<(f64, f64)>)> {
        let all = self.contestants().into_iter().filter(|one| !one.only_largest).filter_map(|one| {
            let fits = self.rate(&one.name, profile, MULTIPLES[0])?.median;
            let share = |&multiple: &f64| {
                let rate = self.rate(&one.name, profile, multiple)?.median;
                let of =
                    |path: &str| self.spread(&one.name, profile, multiple, path).map(|spread| spread.median);
                Some((of("/database_bytes")? / of("/memory_bytes")?, rate / fits))
            };
            Some((one.name.clone(), MULTIPLES.iter().filter_map(share).collect()))
        });
        all.collect()
    }

    fn decline(&self, profile: &str) -> Vec<Part> {
        let mut shares = self.shares(profile);
        let sentence = decline_sentence(&shares);
        for (name, of) in [("published, RAID 10", 2), ("published, SSD", 3)] {
            let rate = |row: (&str, f64, f64, f64)| if of == 2 { row.2 } else { row.3 };
            let points = PUBLISHED.map(|row| (row.1 / PUBLISHED_MEMORY, rate(row) / rate(PUBLISHED[0])));
            shares.push((name.to_owned(), points.to_vec()));
        }
        let head: Vec<String> =
            std::iter::once(String::new()).chain(MULTIPLES.map(|multiple| format!("{multiple}×"))).collect();
        let rows = shares.iter().map(|(name, points)| {
            let mut row = vec![name.clone()];
            row.extend(points.iter().map(|(over, share)| format!("{} ({}×)", number(*share), number(*over))));
            row.resize(head.len(), "–".to_owned());
            row
        });
        let table = Part::Table(head.clone(), rows.collect());
        let lines = shares.into_iter().map(|(name, points)| Line { name, points });
        let figure = Figure {
            id: format!("decline-{profile}"),
            title: format!("What is left of the throughput with a database that fits, device {profile}"),
            y: "share of the throughput at 0.5×".to_owned(),
            kind: Kind::Lines { x: "database ÷ memory".to_owned(), lines: lines.collect() },
        };
        vec![
            Part::Figure(figure),
            table,
            Part::Text(format!("In brackets: the database's own size, as measured, ÷ memory. {sentence}")),
        ]
    }

    fn written(&self, profile: &str) -> Vec<Part> {
        const UNTIL_HOME: &str = "/whole/device_per_transaction/written_bytes";
        let kibibytes = |spread: Spread| {
            let [median, least, most] =
                [spread.median, spread.least, spread.most].map(|bytes| bytes / 1024.0);
            Spread { median, least, most, ..spread }
        };
        let figure = Figure {
            id: format!("written-{profile}"),
            title: format!(
                "Written to the device for each transaction, until everything is home, device {profile}"
            ),
            y: "KiB a transaction".to_owned(),
            kind: self.bars(|name, multiple| self.spread(name, profile, multiple, UNTIL_HOME).map(kibibytes)),
        };
        let head = [
            "",
            "database",
            "written until everything is home, KiB",
            "range",
            "written while measured, KiB",
            "writes",
            "read, KiB",
            "reads",
        ];
        let mut rows = Vec::new();
        for (multiple, one) in self.measured() {
            let of = |path: &str| self.spread(&one.name, profile, multiple, path);
            let Some(home) = of(UNTIL_HOME).map(kibibytes) else { continue };
            let each = |name: &str| of(&format!("/measured/device_per_transaction/{name}"));
            rows.push(vec![
                one.name.clone(),
                format!("{multiple}×"),
                number(home.median),
                range(home),
                shown(each("written_bytes").map(kibibytes)),
                shown(each("writes")),
                shown(each("read_bytes").map(kibibytes)),
                shown(each("reads")),
            ]);
        }
        vec![
            Part::Text(
                "What the device did for each transaction: all that it wrote from the begin of the warm-up until a checkpoint behind the load, ÷ all \
                 transactions; and what it did while measured, which leaves out what was still to be written. The counters are the disk's: others who use it count, too."
                    .to_owned(),
            ),
            Part::Figure(figure),
            Part::Table(row_of(&head), rows),
        ]
    }

    fn latencies(&self, profile: &str) -> Vec<Part> {
        let head = ["", "database", "transaction", "count", "p50, ms", "p95, ms", "p99, ms", "p99.9, ms"];
        let mut rows = Vec::new();
        for (multiple, one) in self.measured() {
            for kind in transactions::Kind::ALL {
                let of = |figure: &str| {
                    let path = format!("/measured/kinds/{}/{figure}", kind.name());
                    self.spread(&one.name, profile, multiple, &path)
                };
                let Some(count) = of("count") else { continue };
                let mut row = vec![
                    one.name.clone(),
                    format!("{multiple}×"),
                    kind.name().to_owned(),
                    number(count.median),
                ];
                row.extend(["p50_ms", "p95_ms", "p99_ms", "p999_ms"].map(|figure| shown(of(figure))));
                rows.push(row);
            }
        }
        let figure = Figure {
            id: format!("new-order-p99-{profile}"),
            title: format!("99 of 100 new orders took no longer, device {profile}"),
            y: "ms".to_owned(),
            kind: self.bars(|name, multiple| {
                self.spread(name, profile, multiple, "/measured/kinds/new-order/p99_ms")
            }),
        };
        vec![Part::Figure(figure), Part::Table(row_of(&head), rows)]
    }

    fn over_time(&self, profile: &str) -> Vec<Part> {
        let multiple = MULTIPLES[MULTIPLES.len() - 1];
        // Without a unit it is what is counted, by the second.
        let figure = |id: &str, title: &str, y: &str, columns: &[(&str, &str)], unit: Option<f64>| {
            let lines = self.contestants().into_iter().flat_map(|one| {
                columns.iter().filter_map(move |(column, what)| {
                    let points = match unit {
                        None => self.rates(&one.name, profile, multiple, column)?,
                        Some(unit) => {
                            let points = self.samples(&one.name, profile, multiple, column)?;
                            points.into_iter().map(|(at, value)| (at, value / unit)).collect()
                        }
                    };
                    Some(Line { name: format!("{}{what}", one.name), points })
                })
            });
            Part::Figure(Figure {
                id: format!("{id}-{profile}"),
                title: format!(
                    "{title} over time, {}, device {profile}, the first repetition",
                    over_memory(multiple)
                ),
                y: y.to_owned(),
                kind: Kind::Lines { x: "seconds".to_owned(), lines: lines.collect() },
            })
        };
        let memory = [("group_resident_bytes", ", no files"), ("group_cached_bytes", ", cached")];
        vec![
            figure("transactions", "Transactions", "transactions a second", &[("transactions", "")], None),
            figure("p50", "Latency of half of the transactions", "ms", &[("p50_ms", "")], Some(1.0)),
            figure("p95", "Latency of 95 of 100 transactions", "ms", &[("p95_ms", "")], Some(1.0)),
            figure("p99", "Latency of 99 of 100 transactions", "ms", &[("p99_ms", "")], Some(1.0)),
            figure("writes", "Writes of the device", "writes a second", &[("device_writes", "")], None),
            figure("reads", "Reads of the device", "reads a second", &[("device_reads", "")], None),
            figure("memory", "Memory of the server's group", "MiB", &memory, Some(MIB)),
        ]
    }
}

/// Who keeps how much with the largest database.
fn decline_sentence(shares: &[(String, Vec<(f64, f64)>)]) -> String {
    let largest = |points: &[(f64, f64)]| {
        (points.len() == MULTIPLES.len()).then(|| points.last().map(|point| point.1))?
    };
    let mut left: Vec<(&str, f64)> =
        shares.iter().filter_map(|(name, points)| Some((name.as_str(), largest(points)?))).collect();
    left.sort_by(|one, other| other.1.total_cmp(&one.1));
    let each: Vec<String> =
        left.iter().map(|(name, share)| format!("{name} keeps {} %", number(share * 100.0))).collect();
    match each.is_empty() {
        true => String::new(),
        false => format!("With the largest database, {}.", each.join(", ")),
    }
}
