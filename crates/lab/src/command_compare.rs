//! `compare`: what two runs of an experiment have in common, and in what they differ.

use crate::command_lab::find;
use crate::output;
use anyhow::{Result, bail};
use gannet_base::units::format_size;
use gannet_lab::chart::{Bars, Figure, Kind, Spread, number};
use gannet_lab::circumstances::{self, Circumstances};
use gannet_lab::record::Record;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What a figure has for each of some groups; `None` where it has none.
fn grouped(kind: &Kind) -> Option<(&[String], &[Bars])> {
    match kind {
        Kind::Bars { groups, bars, .. } => Some((groups, bars)),
        Kind::Curves { groups, curves, .. } => Some((groups, curves)),
        Kind::Lines { .. } => None,
    }
}

/// Under what the steps of a run were measured, as people read it; where that was not the same for all, with their numbers. `None`: it was not kept.
fn of_steps(run: &Record, of: impl Fn(&Circumstances) -> String) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    run.circumstances_of_steps().for_each(|one| *counts.entry(of(one)).or_default() += 1);
    match counts.len() {
        0 => None,
        1 => counts.into_keys().next(),
        _ => {
            let each: Vec<String> =
                counts.iter().map(|(value, count)| format!("{value} ({count} steps)")).collect();
            Some(each.join("; "))
        }
    }
}

/// The versions of a rival, where there are any.
fn versions(run: &Record, rival: &str) -> String {
    let all = circumstances::rivals(run.circumstances_of_steps());
    all.get(rival).map_or_else(|| "unknown".to_owned(), |versions| versions.join("; "))
}

/// The disk that a run began on, and what it was limited to.
fn device(run: &Record) -> String {
    let device = &run.circumstances["device"];
    let Some(number) = device["number"].as_str() else { return "unknown".to_owned() };
    let limits = device["limits"].as_array().into_iter().flatten();
    let limits =
        limits.map(|limit| format!(", {} {}s a second", limit[1], limit[0].as_str().unwrap_or_default()));
    format!("{number}{}", limits.collect::<String>())
}

/// What figures depend on, by name, as people read it: as it was with the steps, or else when the run began.
fn depends_on(run: &Record) -> Vec<(&'static str, String)> {
    let machine = &run.circumstances["machine"];
    let on = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
    let word = |value: &Value| value.as_str().map_or_else(|| "unknown".to_owned(), str::to_owned);
    let all = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let order = &run.order;
    vec![
        ("size", format!("{:?}", order.size).to_lowercase()),
        ("repetitions", order.repeat.to_string()),
        ("seed", order.seed.to_string()),
        ("I/O modes", all(&order.modes)),
        ("profiles of the device", all(&order.profiles)),
        ("rivals", all(&order.rivals)),
        ("steps that are done", run.ended.iter().filter(|one| one.skipped.is_none()).count().to_string()),
        ("commit", word(&machine["commit"])),
        (
            "programs",
            of_steps(run, Circumstances::programs)
                .unwrap_or_else(|| format!("lab {}", word(&run.circumstances["lab"]))),
        ),
        (
            "machine",
            of_steps(run, |one| one.machine.clone()).unwrap_or_else(|| {
                let memory = machine["memory_bytes"].as_u64().map_or("unknown".to_owned(), format_size);
                format!("{} processors ({}), {memory} of memory", machine["cpus"], word(&machine["cpu"]))
            }),
        ),
        ("kernel", of_steps(run, |one| one.kernel.clone()).unwrap_or_else(|| word(&machine["kernel"]))),
        (
            "swap",
            of_steps(run, |one| on(one.has_swap))
                .unwrap_or_else(|| on(run.circumstances["has_swap"] == true)),
        ),
        (
            "memory cgroups",
            of_steps(run, |one| if one.has_groups { "can be made" } else { "cannot be made" }.to_owned())
                .unwrap_or_else(|| "unknown".to_owned()),
        ),
        ("device", device(run)),
    ]
}

/// In what two runs differ: a table, or a sentence where they do not.
fn differences(runs: &[Record; 2], names: &[String; 2]) -> String {
    let [first, second] = runs.each_ref().map(depends_on);
    let mut both: Vec<(String, String, String)> = first
        .into_iter()
        .zip(second)
        .map(|((name, one), (_, other))| (name.to_owned(), one, other))
        .collect();
    // Who takes part in one of them only is told by that.
    let [rivals, others] = runs.each_ref().map(|run| &run.order.rivals);
    for rival in rivals.iter().filter(|rival| others.contains(rival)) {
        let [one, other] = runs.each_ref().map(|run| versions(run, rival));
        both.push((format!("version of {rival}"), one, other));
    }
    let rows: Vec<String> = both
        .into_iter()
        .filter(|(_, one, other)| one != other)
        .map(|(name, one, other)| format!("| {name} | {one} | {other} |"))
        .collect();
    if rows.is_empty() {
        return "Both were asked for and run alike.".to_owned();
    }
    format!(
        "They differ in this, so figures may differ by it:\n\n| | {} | {} |\n|---|---|---|\n{}",
        names[0],
        names[1],
        rows.join("\n")
    )
}

/// A median, or what it is at least.
fn told(spread: Spread) -> String {
    format!("{}{}", if spread.is_at_least { "≥ " } else { "" }, number(spread.median))
}

/// The ratio of the second to the first: of a bound it is one, too, and of two bounds nothing is known.
fn ratio(first: Spread, second: Spread) -> String {
    let ratio = number(second.median / first.median);
    match (first.is_at_least, second.is_at_least) {
        (false, false) => ratio,
        (false, true) => format!("≥ {ratio}"),
        (true, false) => format!("≤ {ratio}"),
        (true, true) => "–".to_owned(),
    }
}

/// A name without versions, by which a contestant is found who is of another one.
fn unversioned(name: &str) -> String {
    let is_version = |word: &&str| {
        let word = word.trim_end_matches(',');
        word.starts_with(|first: char| first.is_ascii_digit())
            && word.chars().all(|char| char.is_ascii_digit() || char == '.')
    };
    let mut words = name.split(' ');
    // What begins with a number is counted by it.
    words.next().into_iter().chain(words.filter(|word| !is_version(word))).collect::<Vec<_>>().join(" ")
}

/// The bars of the same contestant: of this name, or else the only ones whose name differs by a version.
fn same<'b>(name: &str, among: &'b [Bars]) -> Option<&'b Bars> {
    among.iter().find(|other| other.name == name).or_else(|| {
        let mut alike = among.iter().filter(|other| unversioned(&other.name) == unversioned(name));
        alike.next().filter(|_| alike.next().is_none())
    })
}

/// What is there of both, and the ratios, as lines of a table; `alone` gets the names of what is there of one only.
fn rows(first: &Figure, second: &Figure, alone: &mut Vec<String>) -> Vec<String> {
    let (Some((groups, bars)), Some((other_groups, other_bars))) =
        (grouped(&first.kind), grouped(&second.kind))
    else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    let has_any = |bars: &&Bars| bars.values.iter().any(Option::is_some);
    let others = other_bars.iter().filter(has_any).filter(|other| same(&other.name, bars).is_none());
    alone.extend(others.map(|other| format!("{}: {}", second.title, other.name)));
    for bars in bars {
        let Some(theirs) = same(&bars.name, other_bars) else {
            alone.extend(Some(bars).filter(has_any).map(|bars| format!("{}: {}", first.title, bars.name)));
            continue;
        };
        for (group, value) in groups.iter().zip(&bars.values) {
            let place = other_groups.iter().position(|other| other == group);
            let other = place.and_then(|place| theirs.values.get(place).copied().flatten());
            let (Some(value), Some(other)) = (value, other) else {
                if value.is_some() || other.is_some() {
                    alone.push(format!("{}: {}, {group}", first.title, bars.name));
                }
                continue;
            };
            let of = [told(*value), told(other), ratio(*value, other)];
            rows.push(format!(
                "| {} | {group} | {} | {} | {} |",
                first.title,
                bars.name,
                first.y,
                of.join(" | ")
            ));
        }
        // Groups that only the other one has.
        let more = other_groups.iter().zip(&theirs.values);
        let more = more.filter(|(group, value)| value.is_some() && !groups.contains(group));
        alone.extend(more.map(|(group, _)| format!("{}: {}, {group}", second.title, theirs.name)));
    }
    rows
}

/// Runs the command.
pub(crate) fn work(one: &Path, other: &Path) -> Result<()> {
    let runs = [Record::open(one)?, Record::open(other)?];
    if runs[0].order.experiment != runs[1].order.experiment {
        bail!("{one:?} is a run of {}, {other:?} of {}", runs[0].order.experiment, runs[1].order.experiment);
    }
    let experiment = find(&runs[0].order.experiment)?;
    let names = [one, other].map(|run| run.display().to_string());
    output::line(differences(&runs, &names))?;
    let [first, second] = runs.each_ref().map(|run| experiment.report(run));
    let (mut found, mut alone) = (Vec::new(), Vec::new());
    for figure in first.figures() {
        if let Some(same) = second.figures().find(|other| other.id == figure.id) {
            found.extend(rows(figure, same, &mut alone));
        }
    }
    if found.is_empty() {
        bail!("the two have nothing in common that was measured");
    }
    output::line(format_args!(
        "\n| figure | of | | unit | {} | {} | ratio |\n|---|---|---|---|---|---|---|\n{}",
        names[0],
        names[1],
        found.join("\n")
    ))?;
    match alone.is_empty() {
        true => Ok(()),
        false => output::line(format_args!("\nMeasured in one of them only: {}.", alone.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_lab::chart::Bound;
    use gannet_lab::record::{Ended, Order, Size};
    use serde_json::json;

    #[test]
    fn what_steps_were_measured_under_makes_runs_differ_too() {
        let folder = tempfile::tempdir().unwrap();
        let run = |name: &str, under: &[Circumstances], device: &Value| {
            let order = Order {
                experiment: "squeeze".to_owned(),
                size: Size::Quick,
                rivals: vec!["lmdb".to_owned()],
                modes: Vec::new(),
                profiles: Vec::new(),
                repeat: 1,
                seed: 1,
            };
            let there = json!({ "lab": "1", "has_swap": false, "device": device });
            let mut run = Record::create(&folder.path().join(name), &order, 5, there).unwrap();
            for (number, under) in under.iter().enumerate() {
                run.add(Ended {
                    id: number.to_string(),
                    command: Vec::new(),
                    began_unix: 0,
                    seconds: 1.0,
                    output: Vec::new(),
                    group: Value::Null,
                    skipped: None,
                    under: Some(under.clone()),
                })
                .unwrap();
            }
            run
        };
        let rival = |version: &str| Some(("lmdb".to_owned(), format!("lmdb {version}")));
        let usual = Circumstances {
            lab: "1 (abc)".to_owned(),
            kernel: "6.1".to_owned(),
            has_groups: true,
            rival: rival("0.9.24"),
            ..Circumstances::default()
        };
        let others = [
            Circumstances { has_groups: false, rival: rival("0.9.31"), ..usual.clone() },
            Circumstances {
                kernel: "6.6".to_owned(),
                has_groups: false,
                rival: rival("0.9.31"),
                ..usual.clone()
            },
        ];
        let names = ["a", "b"].map(str::to_owned);
        let free = json!({ "number": "8:0", "limits": [] });
        let limited = json!({ "number": "8:16", "limits": [["read", 500]] });
        let both = || [usual.clone(), usual.clone()];
        let told = differences(&[run("a", &both(), &free), run("b", &others, &limited)], &names);
        for row in [
            "| kernel | 6.1 | 6.1 (1 steps); 6.6 (1 steps) |",
            "| memory cgroups | can be made | cannot be made |",
            "| device | 8:0 | 8:16, 500 reads a second |",
            "| version of lmdb | lmdb 0.9.24 | lmdb 0.9.31 |",
        ] {
            assert!(told.contains(row), "{row}: {told}");
        }
        assert!(!told.contains("programs") && !told.contains("swap"), "{told}");
        let told = differences(&[run("c", &both(), &free), run("d", &both(), &free)], &names);
        assert_eq!(told, "Both were asked for and run alike.");
        // Runs of a lab that did not keep it.
        let told = differences(&[run("e", &[], &Value::Null), run("f", &[], &Value::Null)], &names);
        assert_eq!(told, "Both were asked for and run alike.");
    }

    #[test]
    fn a_bound_stays_a_bound_and_figures_have_their_unit() {
        let figure = |values: &[(f64, bool)]| Figure {
            id: "x".to_owned(),
            title: "Time".to_owned(),
            y: "seconds".to_owned(),
            kind: Kind::Bars {
                groups: (0..values.len()).map(|group| group.to_string()).collect(),
                bars: vec![Bars {
                    name: "one".to_owned(),
                    values: values
                        .iter()
                        .map(|&(value, is_at_least)| Spread::of_bounds(&[Bound { value, is_at_least }]))
                        .collect(),
                }],
                limit: None,
            },
        };
        let first = figure(&[(2.0, false), (2.0, false), (2.0, true), (2.0, true)]);
        let second = figure(&[(4.0, false), (4.0, true), (4.0, false), (4.0, true)]);
        assert_eq!(
            rows(&first, &second, &mut Vec::new()),
            [
                "| Time | 0 | one | seconds | 2.00 | 4.00 | 2.00 |",
                "| Time | 1 | one | seconds | 2.00 | ≥ 4.00 | ≥ 2.00 |",
                "| Time | 2 | one | seconds | ≥ 2.00 | 4.00 | ≤ 2.00 |",
                "| Time | 3 | one | seconds | ≥ 2.00 | ≥ 4.00 | – |",
            ]
        );
    }

    #[test]
    fn a_rival_of_another_version_is_found_and_what_is_missing_is_told() {
        let figure = |names: &[&str], groups: &[&str]| Figure {
            id: "x".to_owned(),
            title: "Time".to_owned(),
            y: "seconds".to_owned(),
            kind: Kind::Bars {
                groups: groups.iter().map(|&group| group.to_owned()).collect(),
                bars: names
                    .iter()
                    .map(|&name| Bars {
                        name: name.to_owned(),
                        values: vec![Spread::of(&[2.0]); groups.len()],
                    })
                    .collect(),
                limit: None,
            },
        };
        let mut alone = Vec::new();
        let first = figure(&["Gannet", "SQLite 3.50.2", "2 threads", "4 threads", "LMDB"], &["a", "b"]);
        let second = figure(&["SQLite 3.51.0", "Gannet", "8 threads", "Berkeley DB"], &["b", "c"]);
        let found = rows(&first, &second, &mut alone);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().any(|row| row.contains("| b | SQLite 3.50.2 |")), "{found:?}");
        assert_eq!(
            alone,
            [
                "Time: 8 threads",
                "Time: Berkeley DB",
                "Time: Gannet, a",
                "Time: Gannet, c",
                "Time: SQLite 3.50.2, a",
                "Time: SQLite 3.51.0, c",
                "Time: 2 threads",
                "Time: 4 threads",
                "Time: LMDB",
            ]
        );
    }

    #[test]
    fn what_makes_two_runs_differ_is_told_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let run = |name: &str, seed, modes: &[&str], commit: &str| {
            let order = Order {
                experiment: "squeeze".to_owned(),
                size: Size::Quick,
                rivals: Vec::new(),
                modes: modes.iter().map(|&mode| mode.to_owned()).collect(),
                profiles: vec!["as-is".to_owned()],
                repeat: 1,
                seed,
            };
            let there = json!({ "machine": { "cpus": 2, "commit": commit }, "has_swap": false });
            Record::create(&folder.path().join(name), &order, 5, there).unwrap()
        };
        let names = ["a", "b"].map(str::to_owned);
        let runs = [run("a", 1, &["direct"], "abc"), run("b", 2, &["direct", "buffered"], "abd")];
        let told = differences(&runs, &names);
        for row in ["| seed | 1 | 2 |", "| I/O modes | direct | direct, buffered |", "| commit | abc | abd |"]
        {
            assert!(told.contains(row), "{told}");
        }
        assert!(!told.contains("size") && !told.contains("processors") && !told.contains("rivals"), "{told}");
        let runs = [run("c", 1, &["direct"], "abc"), run("d", 1, &["direct"], "abc")];
        assert_eq!(differences(&runs, &names), "Both were asked for and run alike.");
    }
}
