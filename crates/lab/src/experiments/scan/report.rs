//! The report on the patterns.

use super::beside;
use super::found::{Found, Memory, PATTERNS, mebibytes, megabytes, plain, ranged};
use super::{BUDGET_SHARE, Contestant, FIREBIRD, POSTGRESQL, SEQUENTIAL_BLOCK, SQLITE};
use crate::chart::{Bars, Figure, Kind, Line, Spread, number};
use crate::document::{Document, LEFT_OUT, Part};
use crate::experiments::{are_told_apart, caveat};
use crate::record::{Ended, Record};
use crate::scan::Plan as QueryPlan;
use crate::scan::ROW_LEN;
use crate::scan::read::Pattern;
use gannet_base::units::format_size;
use serde_json::Value;

/// What came of a run.
pub(super) fn document(run: &Record) -> Document {
    let found = Found::new(run);
    let mut parts = vec![Part::Text(introduction(&found))];
    if found.lacked_groups() {
        parts.push(Part::Text(
            "No memory cgroup could be made: nobody was held to the limit but by his own settings, and rivals had the whole machine's page cache."
                .to_owned(),
        ));
    }
    parts.extend(published());
    for (memory, title) in [(Memory::Twice, "Twice the memory, cold"), (Memory::Fits, "Fitting, warm")] {
        parts.push(Part::Heading(title.to_owned()));
        parts.extend(patterns(&found, memory));
    }
    parts.push(Part::Heading("What the memory makes".to_owned()));
    parts.extend(slower(&found));
    parts.push(Part::Heading("The same rows by either plan".to_owned()));
    parts.extend(plans(&found));
    parts.push(Part::Heading("Against the best of the others".to_owned()));
    parts.extend(against(&found));
    parts.push(Part::Heading("I/O modes, and what stays in the OS cache".to_owned()));
    parts.extend(modes(&found));
    parts.extend(beside::parts(&found));
    parts.push(Part::Heading("Settings".to_owned()));
    parts.extend(settings(&found));
    Document { title: "X1 scan: the file cache that eats the machine".to_owned(), parts }
}

/// Who runs where, and how rows come to the program that reads.
fn who(found: &Found<'_>) -> String {
    let order = &found.run.order;
    let (sqlite, postgresql, firebird) =
        (super::has(order, SQLITE), super::has(order, POSTGRESQL), super::has(order, FIREBIRD));
    let within = if sqlite { "Gannet and SQLite run" } else { "Gannet runs" };
    let servers = match postgresql {
        true => {
            "the servers of Gannet and PostgreSQL send their rows, as text, to one and the same client outside of the limit."
        }
        false => "Gannet's server sends its rows, as text, to a client outside of the limit.",
    };
    let firebird = match firebird {
        true => {
            " Firebird's server sends them as numbers and text to a client of its own, which is outside of the limit, too, by the loopback and without encryption; what either client does with a row is measured with it."
        }
        false => "",
    };
    format!("{within} within the program that reads; {servers}{firebird}")
}

fn introduction(found: &Found<'_>) -> String {
    let plan = &found.plan;
    format!(
        "A table of {} rows of {ROW_LEN} bytes (a primary key in the order of loading, a number that is a permutation of the keys and has an index, a random text), {} of values in all. \
         It is read with {} of memory, page cache included, nothing of it in memory when the query begins; and with {}, in which it fits, when all of it has been read before. \
         Rows are looked at, checked against what was loaded, and thrown away. A query whose rows take longer than {} s from the first one on is ended; its time until the first row is as measured, and the rest is computed from the rate \
         at which rows came then. \
         {} The device alone: reads in sequence of {}, {} (before all of that and behind it; the most counts); of 8 KiB at random places one by one, {} a second.",
        number(plan.rows as f64),
        format_size(plan.rows * ROW_LEN),
        format_size(plan.cold),
        format_size(plan.fits),
        plan.most,
        who(found),
        format_size(SEQUENTIAL_BLOCK),
        found.sequential().map_or("–".to_owned(), |(rates, threads)| {
            let least = if rates.least < rates.most {
                format!("{} to ", number(rates.least / 1e6))
            } else {
                String::new()
            };
            format!("{least}{} MB/s, the fastest by {threads} threads", number(rates.most / 1e6))
        }),
        plain(found.device("random", "/reads_per_second")),
    )
}

fn published() -> Vec<Part> {
    let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
    vec![
        Part::Heading("Published".to_owned()),
        Part::Text(
            "Firebird on Windows, which opened its files with a hint that access would be random; Windows then kept every page that was read. With the hint → without it:".to_owned(),
        ),
        Part::Table(
            row(["", "8 GB on 4 GB of memory", "1 GB, fitting"]),
            vec![
                row(["natural table scan", "2m00s → 1m10s", "4.2s → 4.5s"]),
                row(["scan + external sort", "3m20s → 1m30s", "12.4s → 12.7s"]),
                row(["all rows in the order of another index", "15m → 12m", "1m10s → 1m30s"]),
            ],
        ),
        Part::Text(
            "What cannot be compared: their seconds with ours, as disk, system and rows were others; and their hint is none of our I/O modes. Here one database is read with two amounts of memory, there two \
             databases were with one. What can: by how much each pattern is slower once the database is larger than the memory; whether one setting is the best in both columns; and how far the order of an \
             index is from a scan: 10 times there, and the rate of single reads of the device for whoever waits for each row."
                .to_owned(),
        ),
    ]
}

fn rate(
    found: &Found<'_>,
    memory: Memory,
    contestant: &Contestant,
    pattern: Pattern,
    plan: QueryPlan,
) -> Option<Spread> {
    found.rate(&found.measured(memory, contestant, pattern, plan))
}

fn patterns(found: &Found<'_>, memory: Memory) -> Vec<Part> {
    let name = if memory == Memory::Twice { "twice" } else { "fits" };
    let sequential = found.sequential().map(|(rates, _)| rates.most);
    // What is in memory is not read, and rows in the order of an index are not read in sequence.
    let limit = sequential.filter(|_| memory == Memory::Twice).map(|rate| {
        let of = |plan| (plan != QueryPlan::Index).then_some(rate / ROW_LEN as f64);
        let name = "rows' bytes, read from the device alone in sequence".to_owned();
        (name, PATTERNS.iter().map(|&(_, _, plan)| of(plan)).collect())
    });
    let bars = found.contestants().into_iter().map(|contestant| Bars {
        values: PATTERNS
            .iter()
            .map(|&(_, pattern, plan)| rate(found, memory, &contestant, pattern, plan))
            .collect(),
        name: contestant.name,
    });
    let figure = Figure {
        id: format!("patterns-{name}"),
        title: match memory {
            Memory::Twice => "Rows a second, the database twice the memory, cold".to_owned(),
            Memory::Fits => "Rows a second, the database fits and is in memory".to_owned(),
        },
        y: "rows a second".to_owned(),
        kind: Kind::Bars {
            groups: PATTERNS.iter().map(|(title, ..)| (*title).to_owned()).collect(),
            bars: bars.collect(),
            limit,
        },
    };
    let mut head = vec!["", "", "s", "rows/s", "rows, MB/s"];
    if memory == Memory::Twice {
        head.extend(["read, MB/s", "÷ device in sequence at most", "reads/s", "written, MiB"]);
    }
    head.extend(["our files cached during, MiB", "behind, MiB"]);
    let mut rows = Vec::new();
    for (title, pattern, plan) in PATTERNS {
        for contestant in found.contestants() {
            let measured = found.measured(memory, &contestant, pattern, plan);
            let Some((seconds, whole)) = found.seconds(&measured) else {
                if found.is_left_out(memory, &contestant, pattern, plan) {
                    let mut row = vec![title.to_owned(), contestant.name.clone(), LEFT_OUT.to_owned()];
                    row.resize(head.len(), "–".to_owned());
                    rows.push(row);
                }
                continue;
            };
            let rate = found.rate(&measured);
            let of = |path: &str| Found::spread(&measured, path).map(|spread| spread.median);
            let read = of("/device_read_bytes_per_second");
            let projected = if whole { "" } else { ", projected" };
            let mut row = vec![
                title.to_owned(),
                contestant.name.clone(),
                format!("{}{projected}", ranged(seconds)),
                plain(rate.map(|rate| rate.median)),
                megabytes(rate.map(|rate| rate.median * ROW_LEN as f64)),
            ];
            if memory == Memory::Twice {
                row.extend([
                    megabytes(read),
                    share_of(read, sequential),
                    plain(of("/device_reads_per_second")),
                    mebibytes(of("/device_written_bytes")),
                ]);
            }
            row.extend([
                mebibytes(of("/watched/files_cached_most_bytes")),
                mebibytes(of("/cached_behind_bytes")),
            ]);
            rows.push(row);
        }
    }
    let head = head.into_iter().map(str::to_owned).collect();
    let mut parts = vec![Part::Figure(figure), Part::Table(head, rows)];
    if memory == Memory::Twice {
        parts.push(Part::Text(
            "What was read and written is the whole disk's, temporary files of a sort included. Files count as cached whoever reads them; temporary files that have no name are not among them."
                .to_owned(),
        ));
    }
    parts
}

/// Which share of what the device was calibrated at somebody has read. Who has read more has shown that the calibration is no limit.
fn share_of(read: Option<f64>, device: Option<f64>) -> String {
    let Some(share) = read.zip(device).map(|(read, device)| read / device) else { return "–".to_owned() };
    if share > NO_LIMIT { "above it: no limit here".to_owned() } else { number(share) }
}

/// A share from which on the calibration of the device is none of a limit.
const NO_LIMIT: f64 = 1.1;

/// What a row costs with half of the memory, against what it costs when all is in memory.
fn slower(found: &Found<'_>) -> Vec<Part> {
    // Seconds for 8 GB and for 1 GB.
    let published = |name: &str, seconds: [(f64, f64); 3]| {
        let mut row = vec![name.to_owned(), "–".to_owned()];
        row.extend(seconds.map(|(large, small)| number(large / 8.0 / small)));
        row
    };
    let mut rows = vec![
        published("published, with the hint", [(120.0, 4.2), (200.0, 12.4), (900.0, 70.0)]),
        published("published, without", [(70.0, 4.5), (90.0, 12.7), (720.0, 90.0)]),
    ];
    for contestant in found.contestants() {
        let ratio = |pattern, plan| {
            let [twice, fits] =
                [Memory::Twice, Memory::Fits].map(|memory| rate(found, memory, &contestant, pattern, plan));
            twice.zip(fits).map(|(twice, fits)| fits.median / twice.median)
        };
        let mut row = vec![contestant.name.clone()];
        row.extend(PATTERNS.map(|(_, pattern, plan)| plain(ratio(pattern, plan))));
        rows.push(row);
    }
    let mut head = vec![String::new()];
    head.extend(PATTERNS.map(|(title, ..)| title.to_owned()));
    vec![
        Part::Text(
            "How many times as long a row takes with a database of twice the memory, cold, as with one that is in memory. Of the published ones: 8 GB on 4 GB against 1 GB, by the gigabyte."
                .to_owned(),
        ),
        Part::Table(head, rows),
    ]
}

/// What one plan takes, and whether the planner takes it.
fn plans(found: &Found<'_>) -> Vec<Part> {
    let head = [
        "",
        "memory",
        "order of the index, s",
        "scan and sort, s",
        "the planner's choice, s",
        "the planner's choice",
    ];
    let (mut rows, mut wrong, mut is_compared) = (Vec::new(), Vec::new(), false);
    let took_part = |rival| super::has(&found.run.order, rival);
    for memory in [Memory::Twice, Memory::Fits] {
        for contestant in found.contestants() {
            let median = |plan| rate(found, memory, &contestant, Pattern::Tag, plan).map(|rate| rate.median);
            let best =
                median(QueryPlan::Index).zip(median(QueryPlan::Sort)).map(|(one, other)| one.max(other));
            let ratio = best.zip(median(QueryPlan::Chosen)).map(|(best, chosen)| best / chosen);
            is_compared |= ratio.is_some();
            if let Some(ratio) = ratio.filter(|&ratio| ratio > 1.2) {
                let memory = if memory == Memory::Twice { "half the memory" } else { "all in memory" };
                wrong.push(format!("{}, {memory}: {}", contestant.name, number(ratio)));
            }
            let seconds = |plan| {
                let measured = found.measured(memory, &contestant, Pattern::Tag, plan);
                let (seconds, whole) = found.seconds(&measured)?;
                Some(format!("{}{}", ranged(seconds), if whole { "" } else { ", projected" }))
            };
            let chosen = found.measured(memory, &contestant, Pattern::Tag, QueryPlan::Chosen);
            let mut plans: Vec<&str> = chosen.iter().filter_map(|one| one["plan"].as_str()).collect();
            plans.dedup();
            if plans.is_empty() {
                continue;
            }
            let cell = |plan| seconds(plan).unwrap_or("–".to_owned());
            rows.push(vec![
                contestant.name.clone(),
                if memory == Memory::Twice { "half" } else { "fits" }.to_owned(),
                cell(QueryPlan::Index),
                cell(QueryPlan::Sort),
                cell(QueryPlan::Chosen),
                plans.join("; then "),
            ]);
        }
    }
    vec![
        Part::Text(format!(
            "All rows in the order of the index, where the index is forced, where a sort is, and as the planner has it. {} forced by enable_sort, enable_seqscan and \
             enable_indexscan{}{}. Where the planner takes a plan that is forced as well, it is measured once.",
            if took_part(POSTGRESQL) { "Gannet and PostgreSQL are" } else { "Gannet is" },
            if took_part(SQLITE) { ", SQLite by INDEXED BY and NOT INDEXED" } else { "" },
            if took_part(FIREBIRD) { ", Firebird by PLAN" } else { "" },
        )),
        Part::Table(head.map(str::to_owned).to_vec(), rows),
        Part::Text(match wrong.is_empty() {
            _ if !is_compared => "No planner's choice was compared with another plan.".to_owned(),
            true => "No planner's choice takes more than 1.2 times as long as the other plan.".to_owned(),
            false => format!(
                "Where the planner's choice takes more than 1.2 times as long as the other plan: {}.",
                wrong.join("; ")
            ),
        }),
    ]
}

/// The best of ours against the best rival of the same kind.
fn against(found: &Found<'_>) -> Vec<Part> {
    let head = ["", "", "Gannet, rows/s", "best rival, rows/s", "ratio", ""].map(str::to_owned).to_vec();
    let mut rows = Vec::new();
    let (mut ahead, mut alike, mut behind) = (Vec::new(), Vec::new(), Vec::new());
    for memory in [Memory::Twice, Memory::Fits] {
        for (title, pattern, plan) in PATTERNS {
            for is_served in [false, true] {
                let kind = || found.contestants().into_iter().filter(|one| one.is_served() == is_served);
                let rate = |one: &Contestant, plan| rate(found, memory, one, pattern, plan);
                // The mode that comes first is the default; another one may be no excuse.
                let ours = kind().find(Contestant::is_ours);
                let Some((ours, mine)) = ours.and_then(|one| rate(&one, plan).map(|rate| (one, rate))) else {
                    continue;
                };
                let others = kind().filter(|one| !one.is_ours());
                let best = others
                    .filter_map(|one| rate(&one, plan).map(|rate| (one, rate)))
                    .max_by(|one, other| one.1.median.total_cmp(&other.1.median));
                let Some((best, theirs)) = best else { continue };
                let within = if memory == Memory::Twice { "2×" } else { "fitting" };
                let (what, whom) = (format!("{title}, {within}"), format!("{} ÷ {}", ours.name, best.name));
                let list = match are_told_apart(&found.run.order, mine, theirs) {
                    false => &mut alike,
                    true if mine.median > theirs.median => &mut ahead,
                    true => &mut behind,
                };
                let is_projected = |one: &Contestant| {
                    let measured = found.measured(memory, one, pattern, plan);
                    found.seconds(&measured).is_some_and(|(_, whole)| !whole)
                };
                let projected = match (is_projected(&ours), is_projected(&best)) {
                    (false, false) => "",
                    (true, false) => "Gannet's is projected",
                    (false, true) => "the rival's is projected",
                    (true, true) => "both are projected",
                };
                let besides = if projected.is_empty() { String::new() } else { format!(", {projected}") };
                list.push(format!("{what} ({whom}{besides})"));
                let rates = [mine.median, theirs.median, mine.median / theirs.median].map(number);
                rows.push([what, whom].into_iter().chain(rates).chain([projected.to_owned()]).collect());
            }
        }
    }
    if rows.is_empty() {
        let took_part = found.contestants().iter().any(|one| !one.is_ours());
        let none =
            if took_part { "Nothing was measured of Gannet and a rival." } else { "No rival took part." };
        return vec![Part::Text(none.to_owned())];
    }
    let told = [
        ("is ahead in", ahead),
        ("is behind in", behind),
        ("and the best rival are not told apart in", alike),
    ];
    let told = told.into_iter().filter(|(_, list)| !list.is_empty()).map(|(what, list)| {
        let list = if list.len() == rows.len() { "each of these".to_owned() } else { list.join("; ") };
        format!("Gannet, in the first of its modes, {what}: {list}.")
    });
    let told: Vec<String> = told.collect();
    let caveat = caveat(&found.run.order, ", by queries that are short", "as fast");
    let text = format!("{} {caveat}", told.join(" "));
    vec![Part::Table(head, rows), Part::Text(text)]
}

/// For each pattern the fastest mode in either column, and what each leaves in the cache.
fn modes(found: &Found<'_>) -> Vec<Part> {
    let ours: Vec<Contestant> =
        found.contestants().into_iter().filter(|one| one.driver == "gannet").collect();
    let mut rows = Vec::new();
    let mut best = Vec::new();
    for (title, pattern, plan) in PATTERNS {
        let mut row = vec![title.to_owned()];
        for memory in [Memory::Twice, Memory::Fits] {
            let rates: Vec<(String, f64)> = ours
                .iter()
                .filter_map(|one| {
                    Some((
                        one.io.clone().unwrap_or_default(),
                        rate(found, memory, one, pattern, plan)?.median,
                    ))
                })
                .collect();
            let most = rates.iter().max_by(|one, other| one.1.total_cmp(&other.1)).cloned();
            let all: Vec<String> =
                rates.iter().map(|(mode, rate)| format!("{mode} {}", number(*rate))).collect();
            row.push(all.join(", "));
            if let (Some((mode, most)), Some((_, first))) = (most, rates.first()) {
                best.push((
                    format!("{title}, {}", if memory == Memory::Twice { "2×" } else { "fitting" }),
                    mode,
                    most / first,
                ));
            }
        }
        rows.push(row);
    }
    let mut parts =
        vec![Part::Table(["", "2×, rows/s", "fitting, rows/s"].map(str::to_owned).to_vec(), rows)];
    // What is within a tenth of it is as good, on a machine whose runs differ by that.
    let slower: Vec<String> = best
        .iter()
        .filter(|(.., ratio)| *ratio > 1.1)
        .map(|(what, mode, ratio)| format!("{what}: {mode} is {} times as fast", number(*ratio)))
        .collect();
    if let Some(mode) = ours.first().and_then(|one| one.io.clone()) {
        parts.push(Part::Text(match slower.is_empty() {
            _ if best.is_empty() => "Nothing was measured.".to_owned(),
            true => format!("No other mode is ahead of {mode} by more than a tenth, in either column."),
            false => {
                format!("Where another mode is ahead of {mode} by more than a tenth: {}.", slower.join("; "))
            }
        }));
    }
    let mut table = Vec::new();
    for contestant in found.contestants() {
        let ended: Vec<&Ended> = (found.rounds())
            .filter_map(|round| {
                let id = super::cold_id(&contestant.name, Pattern::Rows, QueryPlan::Chosen, round);
                found.run.find(&id)
            })
            .collect();
        let outputs: Vec<&Value> = ended.iter().filter_map(|ended| ended.output.first()).collect();
        let Some(output) = outputs.first() else { continue };
        let of = |path: &str| Found::spread(&outputs, path).map(|spread| spread.median);
        let most = |path: &str| Found::spread(&outputs, path).map(|spread| spread.most);
        let settings = &output["settings"];
        let mode = settings["io_mode"].as_str().map_or("–".to_owned(), |mode| {
            let reason = settings["io_mode_reason"].as_str().filter(|reason| !reason.is_empty());
            reason.map_or(mode.to_owned(), |reason| format!("{mode}: {reason}"))
        });
        let groups = ended.iter().filter_map(|ended| ended.group["peak_bytes"].as_f64());
        let peak = most("/group/peak_bytes").or_else(|| groups.reduce(f64::max));
        table.push(vec![
            contestant.name.clone(),
            mode,
            mebibytes(of("/size_bytes")),
            plain(of("/size_bytes").map(|size| size / found.plan.cold as f64)),
            mebibytes(peak),
            mebibytes(most("/measured/watched/files_cached_most_bytes")),
            mebibytes(most("/measured/watched/group_cached_most_bytes")),
            mebibytes(of("/measured/cached_behind_bytes")),
            mebibytes(of("/cached_closed_bytes")),
        ]);
    }
    let head = [
        "",
        "effective I/O mode",
        "files, MiB",
        "÷ memory",
        "the cgroup's peak at most, MiB",
        "cached of the files at most, MiB",
        "cached for the cgroup at most, MiB",
        "behind the query, MiB",
        "behind the close, MiB",
    ];
    parts.push(Part::Text(format!(
        "A scan of all rows to the client, with {} of memory. A cgroup's cache has programs and temporary files, too{}.",
        format_size(found.plan.cold),
        if super::has(&found.run.order, POSTGRESQL) { ", but not what PostgreSQL's processes share" } else { "" },
    )));
    parts.push(Part::Table(head.map(str::to_owned).to_vec(), table));
    parts.push(Part::Figure(cached_over_time(found)));
    parts
}

/// Cached pages while rows are sorted: the files, and what else the group has.
fn cached_over_time(found: &Found<'_>) -> Figure {
    let line = |contestant: Contestant| {
        let output = found.output(&super::cold_id(&contestant.name, Pattern::Sort, QueryPlan::Chosen, 1))?;
        let samples = output.pointer("/measured/watched/samples")?.as_array()?;
        let point = |sample: &Value| {
            Some((sample[0].as_f64()?, sample[2].as_f64().or(sample[3].as_f64())? / f64::from(1 << 20)))
        };
        Some(Line { name: contestant.name, points: samples.iter().filter_map(point).collect() })
    };
    Figure {
        id: "cached-over-time".to_owned(),
        title: "What the OS caches during scan + sort, twice the memory, the first repetition".to_owned(),
        y: "MiB cached".to_owned(),
        kind: Kind::Lines {
            x: "seconds".to_owned(),
            lines: found.contestants().into_iter().filter_map(line).collect(),
        },
    }
}

/// How each was set.
fn settings(found: &Found<'_>) -> Vec<Part> {
    let mut rows = Vec::new();
    let has_neighbour = |name: &str| {
        found.contestants().iter().any(|one| one.name == name && !found.outputs("neighbour", one).is_empty())
    };
    for contestant in found.contestants() {
        let twice = found.output(&super::cold_id(&contestant.name, Pattern::Scan, QueryPlan::Chosen, 1));
        let fits = found.outputs("fits", &contestant).into_iter().next();
        for (memory, output) in [("2×", twice), ("fitting", fits)] {
            let Some(output) = output else { continue };
            rows.push(vec![
                contestant.name.clone(),
                memory.to_owned(),
                output["database"].as_str().unwrap_or("").to_owned(),
                told(&output["settings"]),
            ]);
        }
    }
    vec![
        Part::Text(format!(
            "Every commit is durable when it returns, with everybody. Where the database fits, who has a cache of his own has one for all of it: PostgreSQL's shared_buffers and Firebird's DefaultDbCachePages \
             have room for the database and an eighth more (three eighths of the memory at least, five at most), Firebird sorts in memory (TempCacheLimit), SQLite's cache is half of the memory. Beside a neighbour {} 1/{BUDGET_SHARE} of the memory.",
            match (has_neighbour("PostgreSQL"), has_neighbour("Firebird")) {
                (false, false) => "Gannet's budget is",
                (true, false) => "Gannet's budget and PostgreSQL's shared_buffers are",
                (false, true) => "Gannet's budget and Firebird's cache of pages are",
                (true, true) =>
                    "Gannet's budget, PostgreSQL's shared_buffers and Firebird's cache of pages are",
            },
        )),
        Part::Table(["", "memory", "", "settings"].map(str::to_owned).to_vec(), rows),
    ]
}

/// Settings as words.
fn told(settings: &Value) -> String {
    let one = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let Some(settings) = settings.as_object() else { return String::new() };
    let each =
        settings.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| match value.as_array() {
            Some(list) => list.iter().map(one).collect::<Vec<_>>().join(" "),
            None => format!("{name}={}", one(value)),
        });
    each.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_more_than_the_calibration_is_no_share_of_it() {
        assert_eq!(share_of(Some(500.0), Some(1000.0)), "0.500");
        assert_eq!(share_of(Some(1050.0), Some(1000.0)), "1.05");
        assert_eq!(share_of(Some(1123.0), Some(536.0)), "above it: no limit here");
        assert_eq!(share_of(None, Some(1.0)), "–");
    }
}
