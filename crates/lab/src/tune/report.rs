//! What is said of a tuning: its races as curves and tables, why the pick is fast, and the settings file. All of it from what was recorded.

use super::explain::{Why, mebibytes, percent};
use super::interval::Interval;
use super::race::{End, Standing};
use super::search::{Leg, Point};
use super::tuner::{NAMES, Tuned, exact_size};
use crate::chart::{Bars, Figure, Kind, Spread, number};
use crate::document::Part;
use serde_json::Value;
use std::fmt::Write;

/// What `max_connections` is where nobody says otherwise.
const CONNECTIONS_ANYWAY: usize = 100;
/// Connections that are left for others than the load.
const CONNECTIONS_OVER: usize = 10;

/// A mean and both ends of its interval, as a figure has them.
pub fn spread(interval: Interval) -> Spread {
    Spread { median: interval.mean, least: interval.low(), most: interval.high(), is_at_least: false }
}

/// "4,321 ± 56"
pub fn plus_minus(interval: Option<Interval>) -> String {
    match interval {
        None => "–".to_owned(),
        Some(Interval { mean, half: None }) => number(mean),
        Some(Interval { mean, half: Some(half) }) => format!("{} ± {}", number(mean), number(half)),
    }
}

/// The columns of a table that says why, behind those that say what.
pub const WHY_HEAD: [&str; 11] = [
    "pages in memory",
    "hit rate",
    "reads each",
    "disk busy",
    "processors busy",
    "in reads",
    "for the log",
    "for rows",
    "for memory",
    "for latches, pages",
    "ready",
];

/// Their values.
pub fn why_cells(why: &Why) -> Vec<String> {
    vec![
        why.pool_bytes.map_or("–".to_owned(), mebibytes),
        percent(why.hit_rate),
        why.reads.map_or("–".to_owned(), number),
        percent(why.device_busy),
        percent(why.processors_busy),
        percent(why.shares.reads),
        percent(why.shares.log),
        percent(why.shares.rows),
        percent(why.shares.turns),
        percent(why.shares.latches),
        percent(why.shares.queued),
    ]
}

/// What is to be thought of the rate that is told of the pick.
const RATE_IS_OF_PICK: &str = "That is the rate of the trials that it was picked by, so it is rather too high: of those that are nearly alike the one wins that was lucky.";

/// What the columns mean.
pub const WHY_LEGEND: &str = "Pages in memory: bytes of them at the end. Hit rate: page accesses that found their page in memory, from the pages that were read, and from those that EXPLAIN says a transaction looks \
    at; about. Reads each: pages read for each transaction. Disk and processors busy: share of the time in which they had something to do, whoever it was for. The others are shares of the sessions' time: in \
    reads; waiting for the log, for rows, for a turn at memory, for latches or pages that others read or write; ready, with no processor free. They come from looking at the sessions' threads some 40 times a second, \
    and from what COMMIT took; asynchronous commits wait for no log.";

/// What is said of a tuning.
pub fn parts(tuned: &Tuned) -> Vec<Part> {
    let mut parts = vec![Part::Text(conclusion(tuned))];
    for (number, leg) in tuned.found.legs.iter().enumerate() {
        parts.extend(leg_parts(tuned, leg, number + 1));
    }
    parts.push(Part::Text(
        "In a race all values are tried in each round, and what rounds have in common is taken out of their intervals: what else went on in the machine hits all of them alike."
            .to_owned(),
    ));
    parts.push(Part::Text(WHY_LEGEND.to_owned()));
    parts
}

/// The pick and its interval, and why it is as fast as it is.
fn conclusion(tuned: &Tuned) -> String {
    let pick = &tuned.found.pick;
    let trials: Vec<&Value> = tuned.trials_of(pick).collect();
    let runs = trials.len();
    let mut text = format!(
        "Picked: {}. It did {} transactions a second (confidence {}, {runs} {}). {RATE_IS_OF_PICK} ",
        tuned.config.describe(),
        plus_minus(tuned.interval_of(pick)),
        percent(Some(tuned.rules.confidence)),
        if runs == 1 { "trial: how trials differ is not in it" } else { "trials" },
    );
    if let Some(why) = &tuned.found.ended_by {
        let _ = write!(
            text,
            "It was ended before everything was decided ({why}): what was not raced stands where it began. "
        );
    } else if !tuned.found.is_complete {
        text.push_str(
            "There was not time enough to decide everything: what was not raced stands where it began. ",
        );
    }
    text.push_str(&Why::of(&trials).limited_by(tuned.processors));
    text
}

/// Where the values of a leg are.
fn points(leg: &Leg) -> Vec<Point> {
    let at = |&value: &usize| {
        let mut point = leg.at.clone();
        point[leg.dimension] = value;
        point
    };
    leg.values.iter().map(at).collect()
}

/// What each of them did in this race, what rounds have in common taken out; after a single round, as its seconds say.
fn intervals(tuned: &Tuned, leg: &Leg, points: &[Point]) -> Vec<Option<Interval>> {
    let found = leg.raced.without_rounds(tuned.rules.confidence);
    let of = |(interval, point): (Option<Interval>, &Point)| match interval {
        Some(Interval { half: None, .. }) | None => tuned.interval_of(point),
        known => known,
    };
    found.into_iter().zip(points).map(of).collect()
}

fn leg_parts(tuned: &Tuned, leg: &Leg, number: usize) -> Vec<Part> {
    let dimension = &tuned.dimensions[leg.dimension];
    let points = points(leg);
    let intervals = intervals(tuned, leg, &points);
    let labels: Vec<String> = leg.values.iter().map(|&value| dimension.values[value].clone()).collect();
    let others: Vec<String> = (0..leg.at.len())
        .filter(|&other| other != leg.dimension)
        .map(|other| {
            format!("{} {}", tuned.dimensions[other].name, tuned.dimensions[other].values[leg.at[other]])
        })
        .collect();
    let figure = Figure {
        id: format!("race-{number}-{}", dimension.name.to_lowercase().replace([' ', '/'], "-")),
        title: format!("Race {number}: {} ({})", dimension.name, others.join(", ")),
        y: "transactions a second".to_owned(),
        kind: Kind::Curves {
            x: dimension.name.clone(),
            groups: labels.clone(),
            curves: vec![Bars {
                name: format!("mean, and its interval at {}", percent(Some(tuned.rules.confidence))),
                values: intervals.iter().map(|interval| interval.map(spread)).collect(),
            }],
        },
    };
    let mut rows = Vec::new();
    for (place, point) in points.iter().enumerate() {
        let trials: Vec<&Value> = tuned.trials_of(point).collect();
        let mut row = vec![labels[place].clone(), plus_minus(intervals[place]), trials.len().to_string()];
        row.push(standing(leg, place));
        row.extend(why_cells(&Why::of(&trials)));
        rows.push(row);
    }
    let mut head =
        vec![dimension.name.clone(), "transactions/s".to_owned(), "trials".to_owned(), String::new()];
    head.extend(WHY_HEAD.map(str::to_owned));
    vec![
        Part::Heading(format!("{number}. {}", dimension.name)),
        Part::Text(verdict(tuned, leg, &points, &labels)),
        Part::Figure(figure),
        Part::Table(head, rows),
    ]
}

fn standing(leg: &Leg, place: usize) -> String {
    match &leg.raced.standings[place] {
        _ if leg.raced.pick == Some(place) => "picked".to_owned(),
        Standing::Good if leg.raced.values[place].is_empty() => "not tried".to_owned(),
        Standing::Good => "as good".to_owned(),
        Standing::Behind => "behind".to_owned(),
        Standing::Dropped(rounds) => format!("worse, after {rounds} rounds"),
        Standing::Impossible(why) => format!("cannot be: {why}"),
    }
}

/// How a race ended, and why those that are worse are.
fn verdict(tuned: &Tuned, leg: &Leg, points: &[Point], labels: &[String]) -> String {
    let mut text = match leg.raced.end {
        End::Decided => "Decided.",
        End::Rounds => "Not decided with all the rounds there may be: some could not be told apart.",
        End::Time if tuned.found.ended_by.is_some() => "It was ended before it was decided.",
        End::Time => "There was no time to decide it.",
    }
    .to_owned();
    let Some(pick) = leg.raced.pick else { return text };
    let _ = write!(text, " {} is picked", labels[pick]);
    let good = |place: &usize| {
        let was_tried = !leg.raced.values[*place].is_empty();
        *place != pick && was_tried && leg.raced.standings[*place] == Standing::Good
    };
    let as_good: Vec<&str> = (0..labels.len()).filter(good).map(|place| &*labels[place]).collect();
    match as_good.as_slice() {
        [] => text.push('.'),
        some => {
            let _ = write!(
                text,
                ", the first of those that are as good, as far as can be said: {} too.",
                some.join(", ")
            );
        }
    }
    let why = |place: usize| Why::of(&tuned.trials_of(&points[place]).collect::<Vec<_>>());
    let intervals = intervals(tuned, leg, points);
    let rate = |place: usize| intervals[place].map(|interval| interval.mean);
    let worse =
        |place: &usize| matches!(leg.raced.standings[*place], Standing::Dropped(_) | Standing::Behind);
    for place in (0..labels.len()).filter(worse) {
        if let Some((own, picked)) = rate(place).zip(rate(pick)) {
            let _ = write!(
                text,
                " {} did {} of that: {}.",
                labels[place],
                percent(Some(own / picked)),
                why(place).against(&why(pick))
            );
        }
    }
    text
}

/// Whether a value was decided on, and how that is told.
struct Decision {
    /// Whether it was, or there was nothing to be decided.
    is_made: bool,
    /// Whether the value is as good as any, as far as anybody can say.
    is_as_good: bool,
    says: &'static str,
}

/// How the value of a dimension has come about.
fn decision(tuned: &Tuned, dimension: usize) -> Decision {
    let is_decided = |leg: &Leg| leg.raced.end == End::Decided && leg.raced.pick.is_some();
    // What a later race has moved is no more what was decided.
    let is_of_pick = |leg: &Leg| {
        is_decided(leg) && leg.raced.pick.map(|place| leg.values[place]) == Some(tuned.found.pick[dimension])
    };
    let made = |says| Decision { is_made: true, is_as_good: true, says };
    let open = |says| Decision { is_made: false, is_as_good: false, says };
    let mut legs = tuned.found.legs.iter().filter(|leg| leg.dimension == dimension);
    match legs.clone().next_back() {
        None if tuned.dimensions[dimension].values.len() < 2 => made("there was nothing to choose from"),
        None => open("not raced: this is where it began"),
        Some(last) if is_decided(last) && last.is_among(&tuned.found.pick) => made("decided"),
        Some(last) if is_decided(last) || legs.any(is_of_pick) => {
            made("decided, but not anew where the others are now")
        }
        Some(last) => match (last.raced.end, last.raced.pick) {
            (End::Decided | End::Rounds, Some(_)) => Decision {
                is_made: false,
                is_as_good: true,
                says: "not decided with all the rounds there may be: the first of those that could not be told apart",
            },
            (End::Time, Some(_)) => {
                open("not decided before it was over: the first of those that were as good until then")
            }
            (End::Decided | End::Rounds, None) => {
                open("not decided, as none of its values can be: this is where it stood")
            }
            (End::Time, None) => open("not decided before it was over: this is where it stood"),
        },
    }
}

/// A settings file for `gannet serve --config`: what was decided. What was not, and what is no setting of a server, stands in comments.
pub fn settings_file(tuned: &Tuned) -> String {
    let config = &tuned.config;
    let mut out = format!(
        "# Written by gannet tune: {} transactions a second with {}.\n# {RATE_IS_OF_PICK}\n",
        plus_minus(tuned.interval_of(&tuned.found.pick)),
        config.describe()
    );
    if let Some(why) = &tuned.found.ended_by {
        let _ = writeln!(out, "# It was ended before everything was decided: {}.", why.replace('\n', " "));
    }
    for (dimension, name) in NAMES.into_iter().enumerate() {
        let decision = decision(tuned, dimension);
        let _ = writeln!(out, "# {name} ({}): {}.", value(tuned, dimension), decision.says);
        if let Some(setting) = setting(tuned, name) {
            // What was not decided is there to be seen, and to be switched on by hand.
            let _ = writeln!(out, "{}{setting}", if decision.is_as_good { "" } else { "# " });
        }
        if let Some(hint) = hint(tuned, name).filter(|_| decision.is_made) {
            let _ = writeln!(out, "# {hint}");
        }
    }
    out
}

/// What is picked of a dimension.
fn value(tuned: &Tuned, dimension: usize) -> &str {
    &tuned.dimensions[dimension].values[tuned.found.pick[dimension]]
}

/// The line of a settings file for a dimension, where it is a setting of a server and not what it is anyway.
fn setting(tuned: &Tuned, name: &str) -> Option<String> {
    let config = &tuned.config;
    let connections = config.connections + CONNECTIONS_OVER;
    match name {
        "memory" => Some(format!("memory = \"{}\"", exact_size(config.memory))),
        "I/O mode" => Some(format!("io = \"{}\"", config.io)),
        "connections" => {
            (connections > CONNECTIONS_ANYWAY).then(|| format!("max_connections = {connections}"))
        }
        _ => None,
    }
}

/// How what is no setting of a server is set.
fn hint(tuned: &Tuned, name: &str) -> Option<String> {
    let config = &tuned.config;
    let was_raced = NAMES
        .iter()
        .position(|&other| other == name)
        .is_some_and(|dimension| tuned.found.legs.iter().any(|leg| leg.dimension == dimension));
    match name {
        "page size" if was_raced => {
            let size = exact_size(config.page_size);
            Some(format!(
                "Pages of {size}, fixed when a database is created: gannet dump DB - | gannet load - NEW --create --page-size {size}"
            ))
        }
        "memory of a sort" if config.sort_memory > 0 => {
            Some(format!("In each session: set work_mem = '{}kB'", config.sort_memory >> 10))
        }
        "connections" if was_raced => Some(format!(
            "The load was at its best with {} connections: a pooler can hold it there.",
            config.connections
        )),
        "commits" if !config.is_synchronous => Some(
            "In each session, where losing the last moments before a crash is no harm: set synchronous_commit = off"
                .to_owned(),
        ),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::race::{Raced, Rules};
    use super::super::search::Found;
    use super::super::tuner::{Tried, tests::space};
    use super::*;
    use serde_json::json;

    pub(crate) fn tuned() -> Tuned {
        let space = space();
        let trial = |memory: usize, rate: f64| Tried {
            point: vec![memory, 0, 0, 0, 0, 0],
            measured: json!({ "per_second": [rate, rate + 1.0], "reads_per_transaction": 2 - memory, "hit_rate": 0.5 }),
        };
        let leg = Leg {
            dimension: 0,
            at: vec![0; 6],
            values: vec![0, 1],
            raced: Raced {
                pick: Some(1),
                best: Some(1),
                standings: vec![Standing::Dropped(3), Standing::Good],
                values: vec![vec![10.5], vec![40.5]],
                end: End::Decided,
            },
        };
        let pick = vec![1, 0, 0, 0, 0, 0];
        Tuned {
            dimensions: space.dimensions(),
            rules: Rules { confidence: 0.95, indifference: 0.03, rounds_most: 5 },
            config: space.config(&pick),
            found: Found { pick, legs: vec![leg], is_complete: false, ended_by: None },
            trials: vec![trial(0, 10.0), trial(0, 10.0), trial(0, 10.0), trial(1, 40.0)],
            processors: 2,
            seconds: 1.0,
        }
    }

    #[test]
    fn the_settings_file_is_one_that_a_server_takes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gannet.toml");
        let mut tuned = tuned();
        tuned.config.connections = 300;
        tuned.config.is_synchronous = false;
        tuned.config.sort_memory = 1 << 20;
        std::fs::write(&file, settings_file(&tuned)).unwrap();
        let settings = gannet_server::settings::Settings::gather(Some(&file), [], []).unwrap();
        assert_eq!((settings.size("memory").unwrap(), settings.max_connections().unwrap()), (64 << 20, 310));
        let text = settings_file(&tuned);
        assert!(text.contains("set work_mem = '1024kB'"), "{text}");
        assert!(text.contains("# memory (64MiB): decided.\n"), "{text}");
        assert!(text.contains("of the trials that it was picked by"), "{text}");
        // What was not raced is not recommended.
        assert!(!text.contains("--page-size") && !text.contains("synchronous_commit = off"), "{text}");
        assert!(text.contains("# commits (synchronous): not raced: this is where it began.\n"), "{text}");
        tuned.found.legs[0].dimension = 4;
        assert!(settings_file(&tuned).contains("synchronous_commit = off"));
        // The memory stands elsewhere than it did then.
        let text = settings_file(&tuned);
        assert!(
            text.contains("# commits (synchronous): decided, but not anew where the others are now.\n"),
            "{text}"
        );
    }

    #[test]
    fn what_was_never_decided_is_not_set() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gannet.toml");
        let memory = |tuned: &Tuned| {
            let text = settings_file(tuned);
            std::fs::write(&file, &text).unwrap();
            gannet_server::settings::Settings::gather(Some(&file), [], []).unwrap();
            let is_set = text.lines().any(|line| line.starts_with("memory"));
            (is_set, text.lines().find(|line| line.starts_with("# memory")).unwrap().to_owned())
        };
        let mut tuned = tuned();
        assert!(memory(&tuned).0);
        let raced = &mut tuned.found.legs[0].raced;
        (raced.end, raced.pick) = (End::Time, None);
        let (is_set, says) = memory(&tuned);
        assert!(!is_set && says.contains("before it was over: this is where it stood"), "{says}");
        assert!(settings_file(&tuned).contains("\n# memory = \"64MiB\"\n"));
        // All the rounds tell as much as can be told.
        for (end, is_to_be_set) in [(End::Rounds, true), (End::Time, false)] {
            let raced = &mut tuned.found.legs[0].raced;
            (raced.end, raced.pick) = (end, Some(1));
            let (is_set, says) = memory(&tuned);
            assert!(is_set == is_to_be_set && says.contains("not decided"), "{says}");
        }
        // Decided once, and not again when another one had moved.
        let mut before = tuned.found.legs[0].clone();
        (before.raced.end, before.raced.pick) = (End::Decided, Some(1));
        tuned.found.legs.insert(0, before);
        let (is_set, says) = memory(&tuned);
        assert!(is_set && says.contains("not anew"), "{says}");
        tuned.found.legs[1].raced.pick = Some(0);
        tuned.found.pick[0] = 0;
        let (is_set, says) = memory(&tuned);
        assert!(!is_set && says.contains("not decided"), "{says}");
        // Where there is no other value there is nothing to be decided.
        tuned.found.legs.clear();
        tuned.dimensions[0].values = vec!["64MiB".to_owned()];
        tuned.found.pick[0] = 0;
        let (is_set, says) = memory(&tuned);
        assert!(is_set && says.contains("nothing to choose from"), "{says}");
    }

    #[test]
    fn memory_is_written_as_it_was_measured() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gannet.toml");
        let mut tuned = tuned();
        for bytes in [1792 << 20, 1100 << 20, 2 << 30, 100_000_001] {
            tuned.config.memory = bytes;
            std::fs::write(&file, settings_file(&tuned)).unwrap();
            let settings = gannet_server::settings::Settings::gather(Some(&file), [], []).unwrap();
            assert_eq!(settings.size("memory").unwrap(), bytes);
        }
    }

    #[test]
    fn a_tuning_that_was_ended_says_why() {
        let mut tuned = tuned();
        tuned.found.ended_by = Some("the disk\nis full".to_owned());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gannet.toml");
        std::fs::write(&file, settings_file(&tuned)).unwrap();
        gannet_server::settings::Settings::gather(Some(&file), [], []).unwrap();
        assert!(
            settings_file(&tuned).contains("# It was ended before everything was decided: the disk is full.")
        );
        assert!(conclusion(&tuned).contains("(the disk\nis full)"), "{}", conclusion(&tuned));
    }

    #[test]
    fn what_was_not_decided_or_not_tried_is_not_said_to_be_good() {
        let mut tuned = tuned();
        let leg = &mut tuned.found.legs[0];
        leg.dimension = 3;
        assert!(settings_file(&tuned).contains("at its best with 20 connections"));
        tuned.found.legs[0].raced.end = End::Rounds;
        let text = settings_file(&tuned);
        assert!(!text.contains("at its best") && text.contains("not decided"), "{text}");
        let raced = &mut tuned.found.legs[0].raced;
        (raced.end, raced.pick) = (End::Time, None);
        let text = settings_file(&tuned);
        assert!(!text.contains("at its best") && text.contains("not decided before it was over"), "{text}");
        // A value without a trial.
        let leg = &mut tuned.found.legs[0];
        leg.raced.standings[0] = Standing::Good;
        leg.raced.values[0].clear();
        assert_eq!((&*standing(leg, 0), &*standing(leg, 1)), ("not tried", "as good"));
    }

    #[test]
    fn a_report_says_who_was_picked_and_why_the_others_were_not() {
        let tuned = tuned();
        let again: Tuned = serde_json::from_value(serde_json::to_value(&tuned).unwrap()).unwrap();
        assert_eq!(again, tuned);
        let parts = parts(&tuned);
        let texts: Vec<&str> = parts
            .iter()
            .filter_map(|part| if let Part::Text(text) = part { Some(&**text) } else { None })
            .collect();
        assert!(texts[0].contains("memory 64MiB") && texts[0].contains("not time enough"), "{texts:?}");
        assert!(
            texts[1].contains("16MiB did 26 % of that: 2.00 reads for each transaction against 1.00"),
            "{texts:?}"
        );
        let Some(Part::Table(head, rows)) = parts.iter().find(|part| matches!(part, Part::Table(..))) else {
            panic!("{parts:?}")
        };
        assert!(rows.iter().all(|row| row.len() == head.len()));
        assert_eq!((&*rows[0][3], &*rows[1][3], &*rows[0][2]), ("worse, after 3 rounds", "picked", "3"));
    }
}
