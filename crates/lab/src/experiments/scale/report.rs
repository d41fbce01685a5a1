//! What came of it: throughput and how it declines, what is written for a transaction, latencies, and what memory was had.

use super::figures::{PUBLISHED, PUBLISHED_MEMORY};
use super::{Contestant, MULTIPLES, Plan, SESSIONS, contestants, contestants_at, has, load_id, run_id};
use crate::chart::{Spread, number};
use crate::document::{Document, Part};
use crate::experiments::{FIREBIRD, POSTGRESQL, Rival, calibrated};
use crate::record::{Ended, Record};
use crate::throttle::AS_IS;
use gannet_base::units::format_size;
use serde_json::Value;

pub(super) const MIB: f64 = 1048576.0;
const NOT_SEEN: &str = "not seen";
/// How Firebird is set, and how it is spoken to.
const FIREBIRD_TOLD: &str = " Firebird's cache (DefaultDbCachePages) is a quarter of it as well, with half of it the OOM killer comes where there is little, and the rest is for its sessions and for the page cache, which it \
    reads through however large its own is (FileSystemCacheThreshold); where the database fits it is as large as PostgreSQL's. It has no log, and its writes are forced: each page is on the device when its write returns. It is spoken to without \
    encryption, as the others are; the others by Unix sockets, it by the loopback. Its transactions are read committed with record versions and wait for locks; those that \
    only read are snapshots. Where a row was changed while a statement waited for it, Firebird 3 fails and PostgreSQL goes on with the new one: the statement is run again, or, after a second, the \
    transaction, as it may be a deadlock.";

/// What it means to ask at once.
const PIPELINED: &str = "A new order is some 46 statements. Where nothing else is said, each is asked when the one before was answered: on one machine with its client, half of what the \
    processors do is then to wake the one and the other. \"Pipelined\" is the same statements in the same order by a client that asks at once what does not need another's \
    rows, as drivers with a pipeline or batches do (libpq and JDBC among them): three times for a new order, a payment, or a delivery, and twice or three times for what \
    only reads. It is compared with a rival that is asked in the same way; Firebird 3's protocol has none.";

pub(super) fn of(run: &Record) -> Document {
    let found = Found { run, plan: Plan::of(run.order.size) };
    let mut parts = found.head();
    parts.extend(published(has(&run.order, FIREBIRD)));
    for profile in &run.order.profiles {
        parts.extend(found.of_profile(profile));
    }
    parts.push(Part::Heading("Memory".to_owned()));
    parts.extend(found.memory());
    parts.push(Part::Heading("Consistency".to_owned()));
    parts.push(Part::Text(found.consistency()));
    parts.push(Part::Heading("How each was set".to_owned()));
    parts.extend(found.settings());
    Document { title: "X2 scale: does throughput fall faster than size grows?".to_owned(), parts }
}

fn published(with_firebird: bool) -> [Part; 3] {
    let row = |(name, size, raid, ssd): (&str, f64, f64, f64)| {
        vec![
            format!("{name}, {size} GB"),
            format!("{}×", number(size / PUBLISHED_MEMORY)),
            number(raid),
            number(ssd),
        ]
    };
    let head = ["database", "÷ memory", "RAID 10, transactions a minute", "SSD, transactions a minute"];
    [
        Part::Heading("Published".to_owned()),
        Part::Table(head.map(str::to_owned).to_vec(), PUBLISHED.map(row).to_vec()),
        Part::Text(format!(
            "What cannot be compared: the rates themselves, as their machine had four processors, other disks, and Firebird 2.5, and was measured for an hour. And there the \
             database grew and the memory stayed, so that 25 users met each other less often in the larger ones; here the database stays and the memory shrinks, so that only memory \
             differs. {} What can be compared: which share of its throughput each keeps.",
            match with_firebird {
                true => "The Firebird that takes part here is a 3.",
                false => "Firebird does not take part.",
            }
        )),
    ]
}

pub(super) fn row_of(head: &[&str]) -> Vec<String> {
    head.iter().map(|&name| name.to_owned()).collect()
}

fn mebibytes(bytes: Option<f64>) -> String {
    bytes.map_or(NOT_SEEN.to_owned(), |bytes| number(bytes / MIB))
}

/// What the steps have brought.
pub(super) struct Found<'r> {
    pub(super) run: &'r Record,
    plan: Plan,
}

impl Found<'_> {
    /// What a measurement has printed.
    pub(super) fn output(&self, contestant: &str, profile: &str, multiple: f64, time: u32) -> Option<&Value> {
        self.run.find(&run_id(contestant, profile, multiple, time))?.output.first()
    }

    /// All repetitions of a figure.
    pub(super) fn spread(
        &self,
        contestant: &str,
        profile: &str,
        multiple: f64,
        path: &str,
    ) -> Option<Spread> {
        let figures: Vec<f64> = (1..=self.run.order.repeat)
            .filter_map(|time| self.output(contestant, profile, multiple, time)?.pointer(path)?.as_f64())
            .collect();
        Spread::of(&figures)
    }

    pub(super) fn rate(&self, contestant: &str, profile: &str, multiple: f64) -> Option<Spread> {
        self.spread(contestant, profile, multiple, "/measured/transactions_per_second")
    }

    /// Whether a measurement was left out, as it failed, in any repetition.
    pub(super) fn is_left_out(&self, contestant: &str, profile: &str, multiple: f64) -> bool {
        (1..=self.run.order.repeat)
            .any(|time| self.run.is_left_out(&run_id(contestant, profile, multiple, time)))
    }

    /// Whether a rival took part.
    pub(super) fn has(&self, rival: Rival) -> bool {
        has(&self.run.order, rival)
    }

    pub(super) fn contestants(&self) -> Vec<Contestant> {
        contestants(&self.run.order)
    }

    /// Who was measured, and with which database, in this order.
    pub(super) fn measured(&self) -> impl Iterator<Item = (f64, Contestant)> {
        MULTIPLES.into_iter().flat_map(|multiple| {
            contestants_at(&self.run.order, multiple).into_iter().map(move |one| (multiple, one))
        })
    }

    fn head(&self) -> Vec<Part> {
        let loaded = self.contestants().into_iter().filter(|one| !one.only_largest).filter_map(|one| {
            let output = self.run.find(&load_id(one.server))?.output.first()?;
            Some(format!(
                "{}: {} rows, {}, filled in {} s",
                one.name,
                number(output["rows"].as_f64()?),
                format_size(output["database_bytes"].as_u64()?),
                number(output["seconds"].as_f64()?)
            ))
        });
        let loaded: Vec<String> = loaded.collect();
        let Plan { warehouses, warm_up, settle, seconds } = self.plan;
        let mut parts = vec![Part::Text(format!(
            "TPC-C's five transactions by {SESSIONS} sessions without times to think, over the wire by one client, which has the same processors as the server; {warehouses} \
             warehouses. Each measurement begins with a copy of the same database, of which nothing is in memory, and a server whose memory is limited, page cache included. {warm_up} s \
             of the same load come before the {seconds} s that are measured. Where the database fits, all of it is read once before that, by ranges of its keys and indexes and with the same statements for everybody \
             (PostgreSQL's pg_prewarm besides, where it is installed), so that what is measured there is memory: reads of the device meanwhile are beside it. All commits are synchronous."
        ))];
        parts.push(Part::Text(PIPELINED.to_owned()));
        if !loaded.is_empty() {
            parts.push(Part::Text(format!("{}.", loaded.join("; "))));
        }
        parts.extend(calibrated(self.run));
        if self.run.order.profiles.iter().any(|name| name != AS_IS) {
            parts.push(Part::Text(format!(
                "Limits of the device are limits of requests a second, for reads and for writes each, set by cgroup v1's block-I/O controller for its root group: so what the kernel writes \
                 later for a program is held to them, too. They are in force from the end of the warm-up on, {settle} s before what is measured."
            )));
        }
        parts
    }

    /// A column of the samples of the first repetition, by seconds; no number where a sample has none of it. Runs of before wrote 0 for the latencies of a sample in which no
    /// transaction ended.
    pub(super) fn samples(
        &self,
        contestant: &str,
        profile: &str,
        multiple: f64,
        column: &str,
    ) -> Option<Vec<(f64, f64)>> {
        let samples = self.output(contestant, profile, multiple, 1)?.pointer("/measured/samples")?;
        let place_of = |column: &str| samples["columns"].as_array()?.iter().position(|name| name == column);
        let (place, transactions) = (place_of(column)?, place_of("transactions"));
        let is_latency = column.ends_with("_ms");
        let is_empty = |row: &Value| transactions.is_some_and(|place| row[place].as_f64() == Some(0.0));
        let value = |row: &Value| row[place].as_f64().filter(|_| !(is_latency && is_empty(row)));
        let rows = samples["rows"].as_array()?.iter();
        let points: Vec<(f64, f64)> =
            rows.filter_map(|row| Some((row[0].as_f64()?, value(row).unwrap_or(f64::NAN)))).collect();
        points.iter().any(|point| point.1.is_finite()).then_some(points)
    }

    /// A column that counts, as counts a second: samples are not all of one length.
    pub(super) fn rates(
        &self,
        contestant: &str,
        profile: &str,
        multiple: f64,
        column: &str,
    ) -> Option<Vec<(f64, f64)>> {
        let mut since = 0.0;
        let rate = |(at, count): (f64, f64)| (at, count / (at - std::mem::replace(&mut since, at)));
        Some(self.samples(contestant, profile, multiple, column)?.into_iter().map(rate).collect())
    }

    fn memory(&self) -> Vec<Part> {
        let Some(profile) = self.run.order.profiles.first() else { return Vec::new() };
        let mut rows = Vec::new();
        for (multiple, one) in self.measured() {
            let Some(output) = self.output(&one.name, profile, multiple, 1) else { continue };
            let most = |column: &str| {
                let points = self.samples(&one.name, profile, multiple, column)?;
                points.into_iter().map(|point| point.1).reduce(f64::max)
            };
            rows.push(vec![
                one.name.clone(),
                format!("{multiple}×"),
                mebibytes(output["memory_bytes"].as_f64()),
                mebibytes(output["group"]["peak_bytes"].as_f64()),
                mebibytes(most("group_resident_bytes").or_else(|| most("server_resident_bytes"))),
                mebibytes(most("group_cached_bytes")),
                mebibytes(output["database_bytes"].as_f64()),
                mebibytes(output["database_bytes_after"].as_f64()),
            ]);
        }
        let held = match rows.iter().any(|row| row[3] != NOT_SEEN) {
            _ if rows.is_empty() => "Nothing was measured.",
            true if self.has(POSTGRESQL) => {
                "The first repetition. What PostgreSQL has as shared memory (shared_buffers) counts as cached."
            }
            true => "The first repetition.",
            false if self.has(POSTGRESQL) || self.has(FIREBIRD) => {
                "No memory cgroup could be made: nobody was held to the limit but by its own settings, and rivals had the whole machine's page cache."
            }
            false => "No memory cgroup could be made: nobody was held to the limit but by its own settings.",
        };
        let head = [
            "",
            "database",
            "memory, MiB",
            "the cgroup's peak, MiB",
            "no files, at most, MiB",
            "cached, at most, MiB",
            "database before, MiB",
            "after, MiB",
        ];
        vec![Part::Text(held.to_owned()), Part::Table(row_of(&head), rows)]
    }

    fn consistency(&self) -> String {
        let checked =
            |ended: &&Ended| ended.output.first().is_some_and(|output| output["conditions"].is_array());
        let mut conditions = 0;
        let (mut times, mut violated) = (0, Vec::new());
        for ended in self.run.ended.iter().filter(checked) {
            times += 1;
            let found = ended.output[0]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            conditions = conditions.max(found.len());
            for condition in found.iter().filter(|condition| condition["violations"] != 0) {
                violated.push(format!(
                    "{}: condition {} ({}) is violated {} times",
                    ended.id,
                    condition["number"],
                    condition["says"].as_str().unwrap_or_default(),
                    condition["violations"]
                ));
            }
        }
        match violated.as_slice() {
            _ if times == 0 => "Nothing was measured, and nothing checked.".to_owned(),
            [] => format!(
                "After each of the {times} measurements the {conditions} conditions of the specification's clause 3.3.2 that hold for a used database were checked on the server, and held."
            ),
            violated => format!("VIOLATED. {}.", violated.join("; ")),
        }
    }

    fn settings(&self) -> Vec<Part> {
        let Some(profile) = self.run.order.profiles.first() else { return Vec::new() };
        let line = |(multiple, one): (f64, Contestant)| {
            let server = &self.output(&one.name, profile, multiple, 1)?["server"];
            let settings = server["settings"].as_array()?.iter().filter_map(Value::as_str);
            let settings: Vec<&str> = settings.filter(|word| !word.contains("directories")).collect();
            Some(format!("{}, {multiple}×: {}: {}", one.name, server["server"].as_str()?, settings.join(" ")))
        };
        let mut told = "All else is as it comes. Gannet's --memory is the limit less 16 MiB.".to_owned();
        if self.has(POSTGRESQL) {
            told.push_str(
                " PostgreSQL's shared_buffers are a quarter of it, with half of it the OOM killer comes where there is little, and the rest is for its processes and its page cache; where the database fits they \
                 have room for it and an eighth more, three eighths of the memory at least and five at most.",
            );
        }
        if self.has(FIREBIRD) {
            told.push_str(FIREBIRD_TOLD);
        }
        vec![Part::Text(told), Part::Commands(self.measured().filter_map(line).collect())]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::order;
    use super::*;
    use crate::record::Size;
    use serde_json::json;

    fn measured(rate: f64, violations: u32) -> Value {
        json!({
            "memory_bytes": 100, "database_bytes": 500, "database_bytes_after": 600,
            "server": { "server": "One", "settings": ["--memory", "84"] },
            "measured": {
                "transactions_per_second": rate, "p50_ms": 1.0, "device_per_second": { "reads": 12.0 },
                "kinds": { "new-order": { "count": 10, "p99_ms": 7.0 } },
                "samples": {
                    "columns": ["seconds", "transactions", "p99_ms", "device_writes"],
                    // The second one is twice as long, and nothing ended in it: 0 is as old runs have it.
                    "rows": [[1.0, 10, 7.0, 30], [3.0, 0, 0.0, 50], [4.0, 0, null, 60], [5.0, 20, 9.0, 70]],
                },
            },
            "whole": { "device_per_transaction": { "written_bytes": 2048.0 } },
            "conditions": [{ "number": 1, "says": "all is well", "violations": violations }],
        })
    }

    fn record(folder: &std::path::Path, rates: &[(&str, f64, f64)], violations: u32) -> Record {
        let mut run = Record::create(folder, &order(Size::Quick, &["postgresql"]), 1, Value::Null).unwrap();
        for &(name, multiple, rate) in rates {
            let ended = Ended {
                id: run_id(name, AS_IS, multiple, 1),
                command: Vec::new(),
                began_unix: 0,
                seconds: 1.0,
                output: vec![measured(rate, violations)],
                group: Value::Null,
                skipped: None,
                under: None,
            };
            run.add(ended).unwrap();
        }
        run
    }

    #[test]
    fn a_report_says_who_keeps_how_much_and_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut rates = Vec::new();
        for multiple in MULTIPLES {
            rates.push(("Gannet", multiple, 1000.0 - 100.0 * multiple));
            rates.push(("PostgreSQL", multiple, 500.0 - 80.0 * multiple));
        }
        let text = of(&record(folder.path(), &rates, 0)).markdown();
        // 500 of 950, and 100 of 460.
        assert!(text.contains("Gannet keeps 52.6 %, PostgreSQL keeps 21.7 %"), "{text}");
        assert!(text.contains("| Gannet | 5× | 500 | 500–500 | 12.0 | 5.00 |"), "{text}");
        assert!(text.contains("| Gannet | 5× | 2.00 | 2.00–2.00 |"), "{text}");
        assert!(text.contains("the 1 conditions") && text.contains("and held"), "{text}");
        for figure in ["p50-as-is.svg", "p95-as-is.svg", "p99-as-is.svg"] {
            assert!(text.contains(figure), "{figure}: {text}");
        }
    }

    #[test]
    fn over_time_counts_are_by_the_second_and_nothing_is_known_of_what_did_not_end() {
        let folder = tempfile::tempdir().unwrap();
        let document = of(&record(folder.path(), &[("Gannet", MULTIPLES[MULTIPLES.len() - 1], 10.0)], 0));
        let csv = |id: &str| document.figures().find(|figure| figure.id == id).unwrap().csv();
        let lines = |id: &str| csv(id).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            lines("p99-as-is"),
            ["\"Gannet\",1,7", "\"Gannet\",3,", "\"Gannet\",4,", "\"Gannet\",5,9"]
        );
        assert_eq!(
            lines("transactions-as-is"),
            ["\"Gannet\",1,10", "\"Gannet\",3,0", "\"Gannet\",4,0", "\"Gannet\",5,20"]
        );
        assert_eq!(
            lines("writes-as-is"),
            ["\"Gannet\",1,30", "\"Gannet\",3,25", "\"Gannet\",4,60", "\"Gannet\",5,70"]
        );
    }

    #[test]
    fn what_is_violated_is_said_and_what_is_missing_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let run = record(folder.path(), &[("Gannet", 0.5, 10.0)], 3);
        let text = of(&run).markdown();
        assert!(text.contains(
            "VIOLATED. run, Gannet, as-is, 0.5x, 1: condition 1 (all is well) is violated 3 times"
        ));
        assert!(!text.contains("Gannet keeps"), "{text}");
        let empty = tempfile::tempdir().unwrap();
        assert!(of(&record(empty.path(), &[], 0)).markdown().contains("Nothing was measured"));
    }
}
