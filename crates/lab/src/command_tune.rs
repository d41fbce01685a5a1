//! `gannet-lab tune`, which `gannet tune` leads to: finds the configuration in which a database serves a load best.

use crate::tune_sources::{self, Workplace};
use crate::{command_inserts, output};
use anyhow::{Context, Result, bail};
use gannet_base::units::{parse_duration, parse_size};
use gannet_lab::document::{Document, Part};
use gannet_lab::servers;
use gannet_lab::tune::builtin::Size;
use gannet_lab::tune::load::Mix;
use gannet_lab::tune::race::Rules;
use gannet_lab::tune::report::{parts, settings_file};
use gannet_lab::tune::script::Script;
use gannet_lab::tune::trial;
use gannet_lab::tune::tuner::{self, Order, Space, Tuned};
use lexopt::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) const HELP: &str = "\
gannet tune: finds the settings with which a database serves a load best, on this machine, and says why.

USAGE
    gannet tune DB [OPTIONS]

DB is copied, never changed; it may be open. Each trial is a server of its own on a fresh copy, with the load of all connections. What is certainly
worse is dropped, the rest is tried again, until it can be told apart or makes no difference. Without --script the load is the built-in one, inserts and
some updates in a table of its own, and DB need not be there.

THE LOAD
    --script FILE[@N]    statements that each connection runs again and again, N times as often as others [1]; may be given several times.
                         A transaction that is begun in it is to end in it.
                         `\\set NAME random(1, 1000)` on a line of its own draws a number, `:NAME` stands for it
    --size SIZE          of the built-in load's table [256MiB]
    --reports N          one transaction of the built-in load in N is a report that sorts 20,000 rows; 0 for none [0]

WHAT IS SEARCHED, by commas; of those that are as good the first is picked, the least where there is an order
    --memory SIZES       budgets [a sixteenth to all of the database, as far as there is memory]
    --page-size SIZES    the database is made anew for others than its own [its own]
    --sort-memory SIZES  work_mem of sessions; 0 for a share of the budget [0]
    --connections N,N    [20]
    --commits KINDS      synchronous, asynchronous: durable at most 200 ms after the commit [synchronous]
    --io MODES           auto, direct, uncached, buffered [auto]

HOW
    --time DURATION      how long it may take in all, copies with it [10m]
    --seconds S          measured time of a trial, 0.1 at least [5]
    --warm-up S          time before that [2]
    --rounds N           how often each is tried at most, 1 at least [8]
    --confidence C       how certain it has to be that what is dropped is worse [0.95]
    --indifference C     what makes no difference, as a share [0.03]
    --confined           a memory cgroup holds each server, page cache included, to its budget, 64 MiB, and 0.5 MiB for each connection
    --seed N             seed of random numbers [1]

WHAT COMES OF IT
    --write FILE         settings for `gannet serve --config FILE`; what was not decided stands there as a comment
    --to FOLDER          a report with curves: report.html, summary.md, figures, tune.json
    --json               everything on standard output, as JSON
    --work FOLDER        where the copies go, which is to be on the database's device [DB.tune]
    --help               this text
";

/// What it ends with when it was interrupted.
const INTERRUPTED: i32 = 130;
const TIME: Duration = Duration::from_secs(600);
/// Bytes of the built-in load's table where nobody says.
const BUILT_IN: u64 = 256 << 20;
/// Sizes of memory that are tried where nobody says which: shares of the database.
const SHARES: [u64; 5] = [16, 8, 4, 2, 1];
/// Segments of the log of a database that is made for the built-in load: the least budget can open it.
const SEGMENT: u64 = 2 << 20;
/// The least of them.
const MEMORY_LEAST: u64 = 32 << 20;

#[derive(Default)]
struct Arguments {
    database: Option<PathBuf>,
    scripts: Vec<String>,
    bytes: Option<u64>,
    reports: Option<u32>,
    memory: Vec<u64>,
    page_size: Vec<u64>,
    sort_memory: Vec<u64>,
    connections: Vec<usize>,
    is_synchronous: Vec<bool>,
    io: Vec<String>,
    time: Option<Duration>,
    measure: Option<Duration>,
    warm_up: Option<Duration>,
    rounds: Option<u32>,
    confidence: Option<f64>,
    indifference: Option<f64>,
    is_confined: bool,
    seed: Option<u64>,
    write: Option<PathBuf>,
    to: Option<PathBuf>,
    as_json: bool,
    work: Option<PathBuf>,
}

/// Values separated by commas.
fn list<T: PartialEq>(text: &str, read: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    let mut values = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let value = read(word)?;
        if !values.contains(&value) {
            values.push(value);
        }
    }
    if values.is_empty() {
        bail!("no value is named");
    }
    Ok(values)
}

fn sizes(text: &str) -> Result<Vec<u64>> {
    list(text, |word| Ok(parse_size(word)?))
}

fn parse(parser: &mut lexopt::Parser) -> Result<Option<Arguments>> {
    let mut arguments = Arguments::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Value(word) if arguments.database.is_none() => arguments.database = Some(word.into()),
            Long("json") => arguments.as_json = true,
            Long("confined") => arguments.is_confined = true,
            Long("write") => arguments.write = Some(parser.value()?.into()),
            Long("to") => arguments.to = Some(parser.value()?.into()),
            Long("work") => arguments.work = Some(parser.value()?.into()),
            Long("script") => arguments.scripts.push(parser.value()?.string()?),
            Long(name) => {
                let name = name.to_owned();
                if !OPTIONS.contains(&name.as_str()) {
                    bail!("--{name}: there is no such option; see gannet tune --help");
                }
                let text = parser.value()?.string()?;
                set(&mut arguments, &name, &text).with_context(|| format!("--{name} {text}"))?;
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if arguments.database.is_none() {
        bail!("the database is missing: gannet tune DB; see gannet tune --help");
    }
    // The least is preferred.
    arguments.memory.sort_unstable();
    arguments.sort_memory.sort_unstable();
    arguments.connections.sort_unstable();
    if !arguments.scripts.is_empty() && (arguments.bytes.is_some() || arguments.reports.is_some()) {
        bail!("--size and --reports are for the built-in load: leave them, or --script, out");
    }
    Ok(Some(arguments))
}

/// Options that [`set`] knows.
const OPTIONS: [&str; 15] = [
    "size",
    "reports",
    "memory",
    "page-size",
    "sort-memory",
    "connections",
    "commits",
    "io",
    "time",
    "seconds",
    "warm-up",
    "rounds",
    "confidence",
    "indifference",
    "seed",
];

fn set(arguments: &mut Arguments, name: &str, text: &str) -> Result<()> {
    match name {
        "size" => arguments.bytes = Some(parse_size(text)?),
        "reports" => arguments.reports = Some(text.parse()?),
        "memory" => arguments.memory = sizes(text)?,
        "page-size" => arguments.page_size = sizes(text)?,
        "sort-memory" => arguments.sort_memory = sizes(text)?,
        "connections" => {
            arguments.connections = list(text, |word| match word.parse()? {
                0 => bail!("there is no load without a connection"),
                number => Ok(number),
            })?;
        }
        "commits" => {
            arguments.is_synchronous = list(text, |word| match word {
                "synchronous" => Ok(true),
                "asynchronous" => Ok(false),
                other => bail!("commits are synchronous or asynchronous, not {other:?}"),
            })?;
        }
        "io" => {
            arguments.io = list(text, |word| {
                crate::mode(word)?;
                Ok(word.to_owned())
            })?;
        }
        "time" => arguments.time = Some(parse_duration(text)?),
        "seconds" => {
            let measure = crate::seconds(text)?;
            if measure < trial::MEASURE_LEAST {
                bail!("a trial is measured for {} s at least", trial::MEASURE_LEAST.as_secs_f64());
            }
            arguments.measure = Some(measure);
        }
        "warm-up" => arguments.warm_up = Some(crate::seconds(text)?),
        "rounds" => {
            let rounds = text.parse().ok().filter(|&rounds| rounds > 0);
            arguments.rounds = Some(rounds.context("it is a whole number, 1 at least")?);
        }
        "confidence" => arguments.confidence = Some(share(text)?),
        "indifference" => arguments.indifference = Some(share(text)?),
        "seed" => arguments.seed = Some(text.parse()?),
        _ => bail!("there is no such option; see gannet tune --help"),
    }
    Ok(())
}

fn share(text: &str) -> Result<f64> {
    let share: f64 = text.parse()?;
    if !(0.0..1.0).contains(&share) {
        bail!("it is a share: 0 or more, and less than 1");
    }
    Ok(share)
}

/// `FILE` or `FILE@WEIGHT`.
fn script(word: &str) -> Result<(Script, u32)> {
    let (file, weight) = match word.rsplit_once('@') {
        Some((file, weight)) if weight.parse::<u32>().is_ok_and(|weight| weight > 0) => {
            (file, weight.parse()?)
        }
        _ => (word, 1),
    };
    let text = fs::read_to_string(file).with_context(|| format!("the script {file}"))?;
    Ok((Script::parse(&text).with_context(|| format!("the script {file}"))?, weight))
}

/// Budgets that are worth a trial for a database of so many bytes.
fn budgets(bytes: u64, machine: Option<u64>) -> Vec<u64> {
    let most = machine.map_or(u64::MAX, |machine| machine / 10 * 7);
    let mut sizes: Vec<u64> = SHARES
        .iter()
        .map(|share| (bytes / share).next_multiple_of(1 << 20).clamp(MEMORY_LEAST, most.max(MEMORY_LEAST)))
        .collect();
    sizes.dedup();
    sizes
}

/// Bytes of the disk that copies take, about: of a database with so many, into which the built-in load fills so many, with pages of so many sizes. One copy for each size of pages,
/// each with the log that it is made by, the one of a trial, and the dump that others than the first are made of.
fn room_for(given: u64, filled: u64, page_sizes: u64) -> u64 {
    let each = given + filled / 2 * 3;
    let others = page_sizes.saturating_sub(1);
    each * (2 + others + others.min(1))
}

/// Fails where what comes of it could not be written: it would be known too late.
fn must_be_writable(arguments: &Arguments) -> Result<()> {
    for file in [&arguments.write, &arguments.to].into_iter().flatten() {
        if fs::symlink_metadata(file).is_ok() {
            bail!("{file:?} is there already: name another place for what comes of it");
        }
    }
    if arguments.write.is_some() && arguments.write == arguments.to {
        bail!("--write names a file, --to a folder: give them two names");
    }
    if let Some(file) = &arguments.write {
        File::create_new(file).with_context(|| format!("--write: cannot write {file:?}"))?;
        fs::remove_file(file).with_context(|| format!("--write: cannot remove {file:?}"))?;
    }
    let Some(folder) = &arguments.to else { return Ok(()) };
    let missing: Vec<&Path> =
        folder.ancestors().take_while(|above| !above.as_os_str().is_empty() && !above.exists()).collect();
    let made = fs::create_dir_all(folder).with_context(|| format!("--to: cannot make the folder {folder:?}"));
    for above in missing {
        // What was not made is not to be removed.
        let _ = fs::remove_dir(above);
    }
    made
}

/// Runs the command.
pub(crate) fn work(parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    let Some(arguments) = parse(parser)? else {
        return output::text(HELP);
    };
    let scripts: Vec<(Script, u32)> =
        arguments.scripts.iter().map(|word| script(word)).collect::<Result<_>>()?;
    must_be_writable(&arguments)?;
    let begun = Instant::now();
    let database = arguments.database.clone().unwrap_or_default();
    let folder = match &arguments.work {
        Some(folder) => folder.clone(),
        None => tune_sources::beside(&database)?,
    };
    let place = Workplace::make(&folder)?;
    let mut tell = |line: &str| eprintln!("{line}");
    let tuned = prepare(&arguments, scripts, &database, &place, begun, stop)
        .and_then(|order| tuner::tune(&order, stop, &mut tell));
    drop(place);
    // What was tried is known, whatever has ended it.
    let published = tuned.as_ref().ok().map(|tuned| publish(&arguments, tuned, &database));
    if stop.load(Ordering::Relaxed) {
        eprintln!("gannet-lab: interrupted");
        std::process::exit(INTERRUPTED);
    }
    published.transpose()?;
    match tuned?.found.ended_by {
        Some(why) => bail!("it was ended before everything was decided: {why}"),
        None => Ok(()),
    }
}

fn prepare(
    arguments: &Arguments,
    scripts: Vec<(Script, u32)>,
    database: &Path,
    place: &Workplace,
    begun: Instant,
    stop: &AtomicBool,
) -> Result<Order> {
    let seed = arguments.seed.unwrap_or(1);
    let is_builtin = scripts.is_empty();
    let size = is_builtin.then(|| Size::of_bytes(arguments.bytes.unwrap_or(BUILT_IN)));
    let given = fs::metadata(database).map_or(0, |found| found.len());
    let filled = arguments.bytes.unwrap_or(BUILT_IN);
    tune_sources::must_have_room(
        place.folder(),
        room_for(given, if is_builtin { filled } else { 0 }, arguments.page_size.len() as u64),
    )?;
    if database.exists() {
        eprintln!("copying {}", database.display());
    } else if is_builtin {
        eprintln!(
            "{} is not there: the table is the built-in load's own, in a new database",
            database.display()
        );
    }
    let first = place.folder().join("db");
    let mut copying = Duration::ZERO;
    let own_size = match (database.exists(), size) {
        (true, _) => {
            let copied = Instant::now();
            tune_sources::copy(database, &first, place, stop)?;
            copying = copied.elapsed();
            let own = tune_sources::settle(&first, size, seed)?;
            Some(own)
        }
        (false, Some(_)) => None,
        (false, None) => bail!("there is no database {database:?} that the script could run in"),
    };
    let pages = match (arguments.page_size.as_slice(), own_size) {
        ([], own) => vec![own.unwrap_or(8192)],
        (given, _) => given.to_vec(),
    };
    let mut templates = BTreeMap::new();
    for &page_size in &pages {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let dir = place.folder().join(format!("db-{page_size}"));
        let file = match own_size {
            Some(own) if own == page_size => servers::database(&first),
            Some(_) => tune_sources::with_pages(&first, &dir, page_size, place, stop)?,
            None => {
                command_inserts::make(&dir, size.context("no load")?, (page_size, SEGMENT), seed)?;
                servers::database(&dir)
            }
        };
        templates.insert(page_size, file);
    }
    let bytes = templates.values().filter_map(|file| Some(fs::metadata(file).ok()?.len())).max().unwrap_or(0);
    let or = |given: &[u64], otherwise: Vec<u64>| if given.is_empty() { otherwise } else { given.to_vec() };
    let machine = gannet_lab::machine::describe()["memory_bytes"].as_u64();
    let space = Space {
        memory: or(&arguments.memory, budgets(bytes, machine)),
        page_size: pages,
        sort_memory: or(&arguments.sort_memory, vec![0]),
        connections: if arguments.connections.is_empty() { vec![20] } else { arguments.connections.clone() },
        is_synchronous: if arguments.is_synchronous.is_empty() {
            vec![true]
        } else {
            arguments.is_synchronous.clone()
        },
        io: if arguments.io.is_empty() { vec!["auto".to_owned()] } else { arguments.io.clone() },
    };
    Ok(Order {
        space,
        rules: Rules {
            confidence: arguments.confidence.unwrap_or(0.95),
            indifference: arguments.indifference.unwrap_or(0.03),
            rounds_most: arguments.rounds.unwrap_or(8),
        },
        time: arguments.time.unwrap_or(TIME),
        begun,
        // Trials copy what it has become.
        copying: if given > 0 { copying.mul_f64(bytes as f64 / given as f64) } else { copying },
        templates,
        folder: place.folder().join("run"),
        is_confined: arguments.is_confined,
        mix: match size {
            Some(size) => size.mix(arguments.reports.unwrap_or(0))?,
            None => Mix { scripts },
        },
        size,
        warm_up: arguments.warm_up.unwrap_or(Duration::from_secs(2)),
        measure: arguments.measure.unwrap_or(Duration::from_secs(5)),
        seed,
    })
}

/// Tells what came of it, and then writes what was asked for: what cannot be written is known all the same.
fn publish(arguments: &Arguments, tuned: &Tuned, database: &Path) -> Result<()> {
    let settings = settings_file(tuned);
    let name = database.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut all = parts(tuned);
    all.push(Part::Heading("The settings".to_owned()));
    all.push(Part::Commands(settings.lines().map(str::to_owned).collect()));
    let document = Document { title: format!("The settings for {name}"), parts: all };
    let printed = if arguments.as_json {
        output::line(
            json!({ "workload": "tune", "measured": tuned, "machine": gannet_lab::machine::describe() }),
        )
    } else {
        let text = document.parts.iter().filter(|part| !matches!(part, Part::Figure(_))).cloned().collect();
        output::text(Document { title: document.title.clone(), parts: text }.markdown())
    };
    if let Some(file) = &arguments.write {
        fs::write(file, &settings).with_context(|| format!("cannot write {file:?}"))?;
    }
    if let Some(folder) = &arguments.to {
        crate::command_lab::write(&document, folder)?;
        let file = folder.join("tune.json");
        fs::write(&file, serde_json::to_vec_pretty(tuned)?)
            .with_context(|| format!("cannot write {file:?}"))?;
    }
    printed?;
    for (what, file) in [("settings", &arguments.write), ("report", &arguments.to)] {
        if let Some(file) = file.as_ref().filter(|_| !arguments.as_json) {
            output::line(format_args!("\n{what}: {}", file.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_lists_and_mistakes_are_named() {
        let words = [
            "db.gnt",
            "--memory",
            "64MiB,32MiB,64MiB",
            "--connections",
            "5, 20",
            "--commits",
            "synchronous,asynchronous",
        ];
        let arguments = parse(&mut lexopt::Parser::from_args(words)).unwrap().unwrap();
        assert_eq!((arguments.memory, arguments.connections), (vec![32 << 20, 64 << 20], vec![5, 20]));
        assert_eq!(arguments.is_synchronous, [true, false]);
        for (wrong, says) in [
            (&["--memory", "64MiB"][..], "the database is missing"),
            (&["db", "--connections", "0"], "--connections 0"),
            (&["db", "--commits", "never"], "synchronous or asynchronous"),
            (&["db", "--io", "fast"], "--io"),
            (&["db", "--confidence", "95"], "a share"),
            (&["db", "--memory", ","], "no value"),
            (&["db", "--script", "x", "--size", "1GiB"], "built-in load"),
            (&["db", "--speed", "1"], "no such option"),
            (&["db", "--seconds", "0"], "--seconds 0: a trial is measured for 0.1 s at least"),
            (&["db", "--seconds", "0.01"], "0.1 s at least"),
            (&["db", "--rounds", "0"], "--rounds 0: it is a whole number, 1 at least"),
            (&["db", "--rounds", "1.5"], "a whole number"),
        ] {
            let Err(error) = parse(&mut lexopt::Parser::from_args(wrong)) else { panic!("{wrong:?}") };
            assert!(format!("{error:#}").contains(says), "{wrong:?}: {error:#}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_known_before_anything_is_tried() {
        let folder = tempfile::tempdir().unwrap();
        let asked = |name: &str, path: &Path| {
            let words = ["db".as_ref(), name.as_ref(), path.as_os_str()];
            must_be_writable(&parse(&mut lexopt::Parser::from_args(words)).unwrap().unwrap())
        };
        for (name, path) in [("--write", "/nonexist/x.toml"), ("--to", "/proc/report"), ("--write", "")] {
            let error = format!("{:#}", asked(name, Path::new(path)).unwrap_err());
            assert!(error.contains(name) && error.contains(path), "{error}");
        }
        let there = folder.path().join("there");
        fs::write(&there, "x").unwrap();
        assert!(asked("--write", &there).unwrap_err().to_string().contains("is there already"));
        asked("--write", &folder.path().join("settings.toml")).unwrap();
        asked("--to", &folder.path().join("a/report")).unwrap();
        // Nothing is left of the attempt.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn room_is_looked_for_before_anything_is_copied() {
        // The copy, and a trial's; with a second size of pages one more, and the dump that it is made of.
        assert_eq!((room_for(100, 0, 0), room_for(100, 0, 1), room_for(100, 0, 2)), (200, 200, 400));
        assert_eq!(room_for(100, 100, 1), 500);
        let folder = tempfile::tempdir().unwrap();
        tune_sources::must_have_room(folder.path(), 4096).unwrap();
        let error = tune_sources::must_have_room(folder.path(), u64::MAX / 2).unwrap_err().to_string();
        assert!(error.contains("--work") && error.contains("there are"), "{error}");
    }

    #[test]
    fn budgets_follow_the_database_and_the_machine() {
        let mebibytes = |sizes: Vec<u64>| sizes.into_iter().map(|size| size >> 20).collect::<Vec<_>>();
        assert_eq!(mebibytes(budgets(1 << 30, None)), [64, 128, 256, 512, 1024]);
        assert_eq!(mebibytes(budgets(1 << 30, Some(500 << 20))), [64, 128, 256, 350]);
        assert_eq!(mebibytes(budgets(5 << 20, None)), [32]);
    }
}
