//! `compare`: what two runs of an experiment have in common, and in what they differ.

use crate::command_lab::find;
use crate::output;
use anyhow::{Result, bail};
use gannet_base::units::format_size;
use gannet_lab::chart::{Bars, Figure, Kind, number};
use gannet_lab::record::Record;
use serde_json::Value;
use std::path::Path;

/// What a figure has for each of some groups; `None` where it has none.
fn grouped(kind: &Kind) -> Option<(&[String], &[Bars])> {
    match kind {
        Kind::Bars { groups, bars, .. } => Some((groups, bars)),
        Kind::Curves { groups, curves, .. } => Some((groups, curves)),
        Kind::Lines { .. } => None,
    }
}

/// What figures depend on, by name, as people read it.
fn circumstances(run: &Record) -> Vec<(&'static str, String)> {
    let machine = &run.circumstances["machine"];
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
        ("lab", word(&run.circumstances["lab"])),
        ("processors", format!("{} ({})", machine["cpus"], word(&machine["cpu"]))),
        ("memory", machine["memory_bytes"].as_u64().map_or("unknown".to_owned(), format_size)),
        ("kernel", word(&machine["kernel"])),
        ("swap", if run.circumstances["has_swap"] == true { "on" } else { "off" }.to_owned()),
    ]
}

/// In what two runs differ: a table, or a sentence where they do not.
fn differences(runs: &[Record; 2], names: &[String; 2]) -> String {
    let [first, second] = runs.each_ref().map(circumstances);
    let rows: Vec<String> = first
        .into_iter()
        .zip(second)
        .filter(|((_, one), (_, other))| one != other)
        .map(|((name, one), (_, other))| format!("| {name} | {one} | {other} |"))
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

/// What is there of both, and the ratios, as lines of a table.
fn rows(first: &Figure, second: &Figure) -> Vec<String> {
    let (Some((groups, bars)), Some((other_groups, other_bars))) =
        (grouped(&first.kind), grouped(&second.kind))
    else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for bars in bars {
        let Some(theirs) = other_bars.iter().find(|other| other.name == bars.name) else { continue };
        for (group, value) in groups.iter().zip(&bars.values) {
            let place = other_groups.iter().position(|other| other == group);
            let other = place.and_then(|place| theirs.values.get(place).copied().flatten());
            let (Some(value), Some(other)) = (value, other) else { continue };
            let of = [value.median, other.median, other.median / value.median].map(number);
            rows.push(format!("| {} | {group} | {} | {} |", first.title, bars.name, of.join(" | ")));
        }
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
    let mut found = Vec::new();
    for figure in first.figures() {
        if let Some(same) = second.figures().find(|other| other.id == figure.id) {
            found.extend(rows(figure, same));
        }
    }
    if found.is_empty() {
        bail!("the two have nothing in common that was measured");
    }
    output::line(format_args!(
        "\n| figure | of | | {} | {} | ratio |\n|---|---|---|---|---|---|\n{}",
        names[0],
        names[1],
        found.join("\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_lab::record::{Order, Size};
    use serde_json::json;

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
