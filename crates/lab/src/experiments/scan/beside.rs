//! The report on what goes with the patterns: a neighbour, single rows, a database that grows, two that share.

use super::found::{Found, mebibytes, plain};
use super::{SINGLES, SYNCHRONOUS, neighbours, served};
use crate::chart::{Bars, Figure, Kind, Line, Spread, number};
use crate::document::Part;
use gannet_base::units::format_size;
use serde_json::Value;

/// Phases of the readers' test.
const PHASES: [&str; 5] = ["insert", "select", "update", "select again", "delete"];

pub(super) fn parts(found: &Found<'_>) -> Vec<Part> {
    let mut parts = vec![Part::Heading("A neighbour in the same memory".to_owned())];
    parts.extend(neighbour(found));
    parts.push(Part::Heading(format!("{} single rows, each durable", number(SINGLES as f64))));
    parts.extend(singles(found));
    parts.push(Part::Heading("A database that outgrows the memory".to_owned()));
    parts.extend(growth(found));
    parts.push(Part::Heading("Two databases of one server".to_owned()));
    parts.extend(share(found));
    parts
}

fn median(outputs: &[&Value], path: &str) -> Option<f64> {
    Found::spread(outputs, path).map(|spread| spread.median)
}

fn neighbour(found: &Found<'_>) -> Vec<Part> {
    let (limit, _) = found.plan.neighbour;
    let head = [
        "",
        "blocks asked for, alone",
        "read again",
        "blocks asked for, beside",
        "read again",
        "of 100",
        "worst p99, µs: alone",
        "beside",
        "least of its file cached, MiB",
        "scans done",
        "backups done",
    ];
    let (mut rows, mut lines, mut hurt, mut unhurt) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut failed, mut ended) = (Vec::new(), Vec::new());
    let of_100 = |(again, all): (f64, f64)| (all > 0.0).then(|| again / all * 100.0);
    for contestant in neighbours(&found.run.order) {
        let outputs = found.outputs("neighbour", &contestant);
        let Some(first) = outputs.first() else { continue };
        let of = |path: &str| median(&outputs, path);
        let count = |name: &str| {
            let counts = outputs.iter().filter_map(|output| Some(output[name].as_array()?.len() as f64));
            plain(Spread::of(&counts.collect::<Vec<_>>()).map(|spread| spread.median))
        };
        let share = of("/beside/read_again").zip(of("/beside/touches")).and_then(of_100);
        let alone = of("/alone/read_again").zip(of("/alone/touches")).and_then(of_100);
        let died: Vec<&str> =
            outputs.iter().filter_map(|output| output["neighbour_ended"].as_str()).collect();
        if let Some(how) = died.first() {
            ended.push(format!("{} ({how}; {} of {} times)", contestant.name, died.len(), outputs.len()));
        } else if of("/beside/touches") == Some(0.0) {
            ended.push(format!("{} (it was not ended, but got no block at all)", contestant.name));
        } else if let (Some(share), Some(alone)) = (share, alone) {
            // One block in a hundred more than alone.
            let told =
                format!("{} ({} of 100 blocks, alone {})", contestant.name, number(share), number(alone));
            if share > alone + 1.0 { hurt.push(told) } else { unhurt.push(told) }
        }
        rows.push(vec![
            contestant.name.clone(),
            plain(of("/alone/touches")),
            plain(of("/alone/read_again")),
            plain(of("/beside/touches")),
            plain(of("/beside/read_again")),
            plain(share),
            plain(of("/alone/worst_p99_us")),
            plain(of("/beside/worst_p99_us")),
            mebibytes(of("/beside/least_cached_bytes")),
            count("scan_seconds"),
            count("backup_seconds"),
        ]);
        for failure in outputs.iter().filter_map(|output| output["failures"].as_array()).flatten() {
            failed.push(format!("{}: {}", contestant.name, failure.as_str().unwrap_or("")));
        }
        let mut before = 0.0;
        let mut points = Vec::new();
        for interval in first["intervals"].as_array().into_iter().flatten() {
            let (Some(seconds), Some(again)) =
                (interval["seconds"].as_f64(), interval["read_again"].as_f64())
            else {
                continue;
            };
            points.push((seconds, again / (seconds - before)));
            before = seconds;
        }
        lines.push(Line { name: contestant.name, points });
    }
    if rows.is_empty() {
        return vec![Part::Text("Not measured yet.".to_owned())];
    }
    let first = neighbours(&found.run.order)
        .first()
        .and_then(|one| found.outputs("neighbour", one).into_iter().next());
    let time = |name: &str| first.and_then(|first| first[name].as_f64()).map_or("–".to_owned(), number);
    let mut told = String::new();
    if !ended.is_empty() {
        told += &format!("The neighbour did not live on beside: {}. ", ended.join("; "));
    }
    if !hurt.is_empty() {
        told += &format!("The neighbour had to read more again than alone beside: {}. ", hurt.join("; "));
    }
    if !unhurt.is_empty() {
        told += &format!("It did not, by more than one block in a hundred, beside: {}. ", unhurt.join("; "));
    }
    if !failed.is_empty() {
        told += &format!(
            "What failed in the memory that was left, and was not begun again: {}.",
            failed.join("; ")
        );
    }
    vec![
        Part::Text(format!(
            "A program of {} works through the OS cache with a file of half of that, of which it reads as many random blocks of 4 KiB as there are every two seconds; in the same memory cgroup a server, first at rest, \
             then, from second {} to second {}, with one client that scans again and again and a backup that is begun again and again. What the program has to read from the device again, somebody has pushed out. A mapping would show \
             the same as major faults; the program reads instead.",
            format_size(limit),
            time("from"),
            time("until")
        )),
        Part::Figure(Figure {
            id: "neighbour".to_owned(),
            title: "What the neighbour has to read again, the first repetition".to_owned(),
            y: "blocks a second".to_owned(),
            kind: Kind::Lines { x: "seconds".to_owned(), lines },
        }),
        Part::Table(head.map(str::to_owned).to_vec(), rows),
        Part::Text(told),
    ]
}

/// The readers' test, as steps of this name have it: a row of the table for each contestant, and a bar.
fn each_single(found: &Found<'_>, step: &str) -> (Vec<Vec<String>>, Vec<Bars>) {
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for contestant in found.contestants() {
        let outputs = found.outputs(step, &contestant);
        let seconds = |phase: usize| Found::spread(&outputs, &format!("/phases/{phase}/seconds"));
        if seconds(0).is_none() {
            continue;
        }
        let p99 = |phase: usize| median(&outputs, &format!("/phases/{phase}/latency_us/p99"));
        let p50 = |phase: usize| median(&outputs, &format!("/phases/{phase}/latency_us/p50"));
        let mut row = vec![contestant.name.clone()];
        row.push(plain(median(&outputs, "/seconds")));
        row.extend((0..PHASES.len()).map(|phase| plain(seconds(phase).map(|spread| spread.median))));
        row.extend([0, 2, 4].map(|phase| format!("{} / {}", plain(p50(phase)), plain(p99(phase)))));
        if step == SYNCHRONOUS {
            let before = median(&found.outputs("singles", &contestant), "/seconds");
            let ratio = median(&outputs, "/seconds").zip(before).map(|(now, before)| now / before);
            row.push(plain(ratio));
        }
        rows.push(row);
        let changes = [0, 2, 4].map(seconds);
        bars.push(Bars { name: contestant.name, values: changes.to_vec() });
    }
    (rows, bars)
}

fn singles(found: &Found<'_>) -> Vec<Part> {
    let (rows, bars) = each_single(found, "singles");
    if rows.is_empty() {
        return vec![Part::Text("Not measured yet.".to_owned())];
    }
    let mut head = vec!["", "all, s"];
    head.extend(PHASES);
    head.extend(["insert p50 / p99, µs", "update", "delete"]);
    let write = found.device("writes", "/latency_us/p50");
    let least = write.map(|micros| micros * SINGLES as f64 / 1e6);
    let cache = found.rounds().find_map(|round| {
        found.output(&super::device_id("writes", round))?["write_cache"].as_str().map(str::to_owned)
    });
    let owned = |head: &[&str]| head.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let figure = |id: &str, title: String, bars: Vec<Bars>| {
        Part::Figure(Figure {
            id: id.to_owned(),
            title,
            y: "seconds".to_owned(),
            kind: Kind::Bars {
                groups: ["insert", "update", "delete"].map(str::to_owned).to_vec(),
                bars,
                limit: least.map(|least| {
                    ("as many synchronous writes, the device alone".to_owned(), vec![Some(least); 3])
                }),
            },
        })
    };
    let count = number(SINGLES as f64);
    let mut parts = vec![
        Part::Text(format!(
            "Each row is inserted, updated and deleted by a statement, sent as text, and a transaction of its own by one connection, with an index beside the primary key left out; in between all are selected. \
             Whoever waits for the device once for each waits {} µs, which is what a synchronous write of 4 KiB takes here; the device's write cache is as it is ({}). Everybody's commits are durable when they are acknowledged.",
            plain(write),
            cache.as_deref().unwrap_or("unknown")
        )),
        figure("singles", format!("{count} statements that each commit"), bars),
        Part::Table(owned(&head), rows),
    ];
    let (rows, bars) = each_single(found, SYNCHRONOUS);
    parts.push(Part::Text(
        "What the source's readers saw with the device's write cache off was 10 to 50 times slower. That can be had by hand only (hdparm -W0), and not of every device. Next to it comes a folder in which the kernel syncs \
         behind every write, whoever writes and whatever he asked for (the file attribute S, as chattr +S sets it): log, pages and temporary files."
            .to_owned(),
    ));
    if rows.is_empty() {
        let reason = found.contestants().iter().find_map(|contestant| {
            found.outputs(SYNCHRONOUS, contestant).first()?["unmeasured"].as_str().map(str::to_owned)
        });
        parts.push(Part::Text(format!("Not measured: {}.", reason.as_deref().unwrap_or("not yet"))));
        return parts;
    }
    head.push("÷ as it is");
    parts.push(figure("singles-synced", format!("{count} statements, every write synchronous"), bars));
    parts.push(Part::Table(owned(&head), rows));
    parts
}

fn growth(found: &Found<'_>) -> Vec<Part> {
    let (limit, most) = found.plan.growth;
    let (mut rows, mut inserts, mut lookups) = (Vec::new(), Vec::new(), Vec::new());
    for contestant in found.contestants().iter().filter(|one| one.is_served()) {
        let outputs = found.outputs("growth", contestant);
        let points_of = |output: &Value| output["points"].as_array().cloned().unwrap_or_default();
        let Some(points) = outputs.first().map(|output| points_of(output)) else { continue };
        if points.is_empty() {
            continue;
        }
        // A figure of each repetition.
        let each = |of: &dyn Fn(&Value) -> Option<f64>| -> Option<Spread> {
            Spread::of(&outputs.iter().filter_map(|output| of(output)).collect::<Vec<_>>())
        };
        let middle = |of: &dyn Fn(&Value) -> Option<f64>| each(of).map(|spread| spread.median);
        let line = |path: &str| {
            let points = points.iter().filter_map(|point| {
                Some((point["size_bytes"].as_f64()? / limit as f64, point[path].as_f64()?))
            });
            Line { name: contestant.name.clone(), points: points.collect() }
        };
        // What it was while all fitted, and at the end.
        let rates = |output: &Value, larger: bool| {
            let within = |point: &&Value| {
                point["size_bytes"].as_f64().is_some_and(|size| match larger {
                    true => size >= 2.0 * limit as f64,
                    false => size <= 0.8 * limit as f64,
                })
            };
            let values: Vec<f64> = (points_of(output).iter().filter(within))
                .filter_map(|point| point["rows_per_second"].as_f64())
                .collect();
            Spread::of(&values).map(|spread| spread.median)
        };
        let most = |path: &'static str| {
            each(&|output| points_of(output).iter().filter_map(|point| point[path].as_f64()).reduce(f64::max))
                .map(|spread| spread.most)
        };
        rows.push(vec![
            contestant.name.clone(),
            plain(middle(&|output| output["rows"].as_f64())),
            plain(middle(&|output| Some(points_of(output).last()?["size_bytes"].as_f64()? / limit as f64))),
            plain(middle(&|output| rates(output, false))),
            plain(middle(&|output| rates(output, true))),
            mebibytes(each(&|output| output["group"]["peak_bytes"].as_f64()).map(|spread| spread.most)),
            mebibytes(most("files_cached_bytes")),
            mebibytes(most("resident_bytes")),
        ]);
        inserts.push(line("rows_per_second"));
        lookups.push(line("lookup_us_mean"));
    }
    if rows.is_empty() {
        return vec![Part::Text("Not measured yet.".to_owned())];
    }
    let head = [
        "",
        "rows inserted",
        "files at the end ÷ memory",
        "rows/s below 0.8×",
        "rows/s from 2× on",
        "the cgroup's peak at most, MiB",
        "cached of the files at most, MiB",
        "resident at most, MiB",
    ];
    let figure = |id: &str, title: &str, y: &str, lines| {
        let x = "files ÷ memory".to_owned();
        let (id, title, y) = (id.to_owned(), title.to_owned(), y.to_owned());
        Part::Figure(Figure { id, title, y, kind: Kind::Lines { x, lines } })
    };
    vec![
        Part::Text(format!(
            "One connection inserts 500 rows at a time, each a durable transaction, into an empty table with the same index, and stays while its database grows beyond the {} that the server may have; then it looks random \
             rows up. It ends at {} s at the latest. Rows come with random index keys, so each insert needs a page of the index that may not be in memory. \
             Gannet and PostgreSQL are sent a statement of text for 500 rows and parse it each time; Firebird, which has none for several rows, runs prepared blocks of 120 rows and less, and has its look-ups prepared each time.",
            format_size(limit),
            most
        )),
        figure(
            "growth-inserts",
            "Rows inserted a second as the database grows, the first repetition",
            "rows a second",
            inserts,
        ),
        figure(
            "growth-lookups",
            "A look-up by key as the database grows, the first repetition",
            "µs, mean",
            lookups,
        ),
        Part::Table(head.map(str::to_owned).to_vec(), rows),
    ]
}

fn share(found: &Found<'_>) -> Vec<Part> {
    let Some(contestant) = found.run.order.modes.first().map(|mode| served(mode)) else { return Vec::new() };
    let outputs = found.outputs("share", &contestant);
    let Some(output) = outputs.first() else { return vec![Part::Text("Not measured yet.".to_owned())] };
    let of = |path: &str| median(&outputs, path);
    let mut rows = Vec::new();
    for (index, name) in output["databases"].as_array().into_iter().flatten().enumerate() {
        rows.push(vec![
            name.as_str().unwrap_or("").to_owned(),
            plain(of(&format!("/alone_rows_per_second/{index}"))),
            plain(of(&format!("/together_rows_per_second/{index}"))),
        ]);
    }
    vec![
        Part::Text(format!(
            "Two databases, each twice the memory of {}, served by one process with one budget: scanned one after the other, and both at one time. Of the budget of {} MiB, {} were in use at most; the cgroup's peak was {} MiB, of which {} MiB \
             were cached pages of the files at most.",
            format_size(found.plan.cold),
            mebibytes(of("/budget/limit_bytes")),
            mebibytes(of("/budget/peak_bytes")),
            mebibytes(of("/group/peak_bytes")),
            mebibytes(of("/watched/files_cached_most_bytes")),
        )),
        Part::Table(
            ["database", "alone, rows/s", "both at one time, rows/s"].map(str::to_owned).to_vec(),
            rows,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;
    use serde_json::json;

    /// What the report says below the figure of a neighbour, beside Gannet's server.
    fn said(output: &Value) -> String {
        let folder = tempfile::tempdir().unwrap();
        let mut run = run(&folder.path().join("run"));
        for ended in
            run.ended.iter_mut().filter(|ended| ended.id.starts_with("neighbour, Gannet's server, direct"))
        {
            ended.output = vec![output.clone()];
        }
        let texts = neighbour(&Found::new(&run)).into_iter().filter_map(|part| match part {
            Part::Text(text) => Some(text),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_neighbour_that_did_not_live_on_was_hurt() {
        let (alone, beside) =
            (json!({ "touches": 100, "read_again": 0 }), json!({ "touches": 50, "read_again": 0 }));
        let well = said(&json!({ "alone": alone, "beside": beside }));
        assert!(
            well.contains("It did not, by more than one block in a hundred, beside: Gannet's server, direct"),
            "{well}"
        );
        let ended = said(&json!({ "alone": alone, "beside": beside, "neighbour_ended": "signal: 9" }));
        assert!(
            ended.contains("did not live on beside: Gannet's server, direct (signal: 9; 1 of 1 times)"),
            "{ended}"
        );
        assert!(!ended.contains("It did not, by more"), "{ended}");
        let none = json!({ "touches": 0, "read_again": 0 });
        let stuck = said(&json!({ "alone": alone, "beside": none }));
        assert!(stuck.contains("it was not ended, but got no block at all"), "{stuck}");
        let again = json!({ "touches": 50, "read_again": 5 });
        let hurt = said(&json!({ "alone": alone, "beside": again }));
        assert!(hurt.contains("had to read more again than alone beside: Gannet's server, direct"), "{hurt}");
    }
}
