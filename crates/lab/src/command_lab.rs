//! `list`, `run`, `report`, `compare`: experiments, and what came of them. `gannet lab` leads here.

use anyhow::{Context, Result, bail};
use gannet_base::units::{format_duration, parse_size};
use gannet_lab::chart::{Bars, Kind, number};
use gannet_lab::confine::{self, Step};
use gannet_lab::device;
use gannet_lab::document::{Document, Part};
use gannet_lab::experiments::{self, Experiment};
use gannet_lab::machine;
use gannet_lab::record::{Ended, Order, Record, Size};
use gannet_lab::throttle::{self, AS_IS};
use lexopt::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

pub(crate) const HELP: &str = "\
gannet lab: reproduces published experiments on this machine, against Gannet and rivals in the same run.

USAGE
    gannet lab list
    gannet lab run EXPERIMENT [OPTIONS]
    gannet lab run --resume RUN
    gannet lab report RUN... [--to FOLDER]
    gannet lab compare RUN RUN

EXPERIMENT is a name or number from `list`. A run is a folder with everything that was measured, raw; `report` makes a page of it
(report.html, which needs no network), a summary in Markdown, and each figure as SVG and CSV. Of several runs it makes one page in FOLDER.
Ctrl-C ends a run; --resume goes on with it.

OPTIONS
    --size SIZE      quick, standard or large [quick]
    --rivals NAMES   who takes part besides Gannet, by commas; none [all that are there]
    --mode MODES     our own I/O modes, by commas [as the experiment says]
    --profile NAMES  what the device is limited to, for everybody, by commas: as-is, cloud (10,000 reads and 10,000 writes a second), raid10 (1,000)
                     [quick: as-is; else all that the experiment has]
    --repeat N       how often each measurement is repeated [as the experiment says for the size]
    --seed N         seed of random keys [1]
    --to FOLDER      where the run goes [lab-runs/EXPERIMENT-SIZE-SECONDS]
    --keep-data      leaves the databases in the run's folder
    --help           this text
";

/// Whether a word is one of these commands.
pub(crate) fn is_ours(word: &str) -> bool {
    matches!(word, "list" | "run" | "report" | "compare")
}

#[derive(Default)]
struct Arguments {
    words: Vec<String>,
    size: Option<Size>,
    rivals: Option<Vec<String>>,
    modes: Option<Vec<String>>,
    profiles: Option<Vec<String>>,
    repeat: Option<u32>,
    seed: Option<u64>,
    to: Option<PathBuf>,
    resume: Option<PathBuf>,
    keeps_data: bool,
}

fn names(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty() && *name != "none")
        .map(str::to_owned)
        .collect()
}

fn parse(parser: &mut lexopt::Parser) -> Result<Option<Arguments>> {
    let mut arguments = Arguments::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Value(word) => arguments.words.push(word.string()?),
            Long("keep-data") => arguments.keeps_data = true,
            Long("size") => {
                let name = parser.value()?.string()?;
                let size = Size::named(&name);
                arguments.size =
                    Some(size.with_context(|| format!("--size is quick, standard or large, not {name:?}"))?);
            }
            Long("rivals") => arguments.rivals = Some(names(&parser.value()?.string()?)),
            Long("mode") => arguments.modes = Some(names(&parser.value()?.string()?)),
            Long("profile") => arguments.profiles = Some(names(&parser.value()?.string()?)),
            Long("repeat") => {
                let repeat: u32 = parser.value()?.parse()?;
                if repeat == 0 {
                    bail!("--repeat is 1 at least");
                }
                arguments.repeat = Some(repeat);
            }
            Long("seed") => arguments.seed = Some(parser.value()?.parse()?),
            Long("to") => arguments.to = Some(parser.value()?.into()),
            Long("resume") => arguments.resume = Some(parser.value()?.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Some(arguments))
}

/// Runs the command `name` with the arguments behind it.
pub(crate) fn work(name: &str, parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    let Some(arguments) = parse(parser)? else {
        print!("{HELP}");
        return Ok(());
    };
    match (name, arguments.words.as_slice()) {
        ("list", []) => list(),
        ("run", []) if arguments.resume.is_some() => resume(&arguments, stop),
        ("run", [experiment]) if arguments.resume.is_none() => begin(experiment, &arguments, stop),
        ("report", [_, ..]) => report(&arguments),
        ("compare", [one, other]) => compare(Path::new(one), Path::new(other)),
        (name, words) => bail!("{name} does not take {words:?} so: see gannet lab --help"),
    }
}

fn list() -> Result<()> {
    for experiment in experiments::all() {
        println!("{} {}: {}", experiment.number(), experiment.name(), experiment.question());
        println!("    published by: {}", experiment.source());
        println!("    I/O modes: {}", experiment.modes().join(", "));
        if experiment.profiles().len() > 1 {
            println!("    profiles of the device: {}", experiment.profiles().join(", "));
        }
        for rival in experiment.rivals() {
            let how =
                if (rival.is_there)() { "is there".to_owned() } else { format!("is missing: {}", rival.how) };
            println!("    {}: {how}", rival.name);
        }
    }
    Ok(())
}

fn find(name: &str) -> Result<&'static dyn Experiment> {
    experiments::named(name).with_context(|| {
        let names: Vec<&str> = experiments::all().iter().map(|one| one.name()).collect();
        format!("there is no experiment {name:?}, only {}", names.join(", "))
    })
}

/// Those of the names that were asked for, each of which there is.
fn chosen(what: &str, asked: Option<&[String]>, all: &[&str]) -> Result<Vec<String>> {
    let Some(asked) = asked else { return Ok(all.iter().map(|&name| name.to_owned()).collect()) };
    if let Some(unknown) = asked.iter().find(|name| !all.contains(&name.as_str())) {
        bail!("{what} {unknown:?} takes no part in this experiment, only {}", all.join(", "));
    }
    Ok(asked.to_vec())
}

/// Profiles of the device that were asked for, or are usual, and can be set for what is in this folder.
fn profiles(
    experiment: &dyn Experiment,
    size: Size,
    asked: Option<&[String]>,
    folder: &Path,
) -> Result<Vec<String>> {
    let usual = [AS_IS.to_owned()];
    let asked = if size == Size::Quick { asked.or(Some(&usual)) } else { asked };
    let mut profiles = chosen("the profile", asked, experiment.profiles())?;
    if profiles.iter().any(|name| name != AS_IS) {
        // The folder is not made before everything else is known to be right.
        let there = folder.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("."));
        if let Err(error) = throttle::possible(there) {
            let limited: Vec<String> = profiles.extract_if(.., |name| name != AS_IS).collect();
            eprintln!("left out of the profiles: {}: {error:#}", limited.join(", "));
        }
    }
    if profiles.is_empty() {
        bail!("--profile leaves no profile that can be measured here: {}", experiment.profiles().join(", "));
    }
    Ok(profiles)
}

fn begin(name: &str, arguments: &Arguments, stop: &AtomicBool) -> Result<()> {
    let experiment = find(name)?;
    let size = arguments.size.unwrap_or(Size::Quick);
    let all: Vec<&str> = experiment.rivals().iter().map(|rival| rival.name).collect();
    let mut rivals = chosen("the rival", arguments.rivals.as_deref(), &all)?;
    for rival in experiment.rivals().iter().filter(|rival| !(rival.is_there)()) {
        if rivals.iter().any(|name| name == rival.name) {
            eprintln!("{} is left out, as it is missing; to have it: {}", rival.name, rival.how);
            rivals.retain(|name| name != rival.name);
        }
    }
    let usual: Vec<String> = experiment.usual_modes().iter().map(|&mode| mode.to_owned()).collect();
    let asked = arguments.modes.as_ref().unwrap_or(&usual);
    let modes = chosen("the mode", Some(asked), experiment.modes())?;
    if modes.is_empty() {
        bail!("--mode names no mode: {}", experiment.modes().join(", "));
    }
    let folder = arguments.to.clone().unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let size = serde_json::to_value(size)
            .ok()
            .and_then(|size| size.as_str().map(str::to_owned))
            .unwrap_or_default();
        PathBuf::from(format!("lab-runs/{}-{size}-{now}", experiment.name()))
    });
    let order = Order {
        experiment: experiment.name().to_owned(),
        size,
        rivals,
        modes,
        profiles: profiles(experiment, size, arguments.profiles.as_deref(), &folder)?,
        repeat: arguments.repeat.unwrap_or_else(|| experiment.repeat(size)),
        seed: arguments.seed.unwrap_or(1),
    };
    let mut run = Record::create(&folder, &order, circumstances())?;
    go_on(experiment, &mut run, arguments, stop)
}

fn resume(arguments: &Arguments, stop: &AtomicBool) -> Result<()> {
    let folder = arguments.resume.as_deref().unwrap_or(Path::new(""));
    let differs = arguments.size.is_some()
        || arguments.rivals.is_some()
        || arguments.modes.is_some()
        || arguments.profiles.is_some()
        || arguments.repeat.is_some()
        || arguments.seed.is_some()
        || arguments.to.is_some();
    if differs {
        bail!("--resume goes on with what was asked for then: give no other options with it");
    }
    let mut run = Record::open(folder)?;
    go_on(find(&run.order.experiment.clone())?, &mut run, arguments, stop)
}

/// What figures depend on. The commit is that of the sources that this was built from, where they are still there.
fn circumstances() -> Value {
    let sources = env!("CARGO_MANIFEST_DIR");
    let commit = Command::new("git").args(["-C", sources, "describe", "--always", "--dirty"]).output();
    let commit = commit.ok().filter(|output| output.status.success());
    let mut machine = machine::describe();
    if machine["commit"].is_null() {
        machine["commit"] =
            commit.map_or(Value::Null, |output| String::from_utf8_lossy(&output.stdout).trim().into());
    }
    json!({
        "lab": env!("CARGO_PKG_VERSION"),
        "machine": machine,
        "has_swap": confine::has_swap(),
        "command": std::env::args().skip(1).collect::<Vec<_>>(),
    })
}

/// Whether a step has not been done yet.
fn is_due(step: &Step, run: &Record) -> Result<bool> {
    let Some(ended) = run.find(&step.id) else { return Ok(true) };
    if ended.command != step.command {
        bail!(
            "{:?} was run another way by the lab that began this run ({}): begin a new one",
            step.id,
            ended.command.join(" ")
        );
    }
    Ok(false)
}

fn go_on(
    experiment: &dyn Experiment,
    run: &mut Record,
    arguments: &Arguments,
    stop: &AtomicBool,
) -> Result<()> {
    fs::create_dir_all(run.data())?;
    let data = fs::canonicalize(run.data())?;
    let steps = experiment.steps(&run.order, &data);
    let mut due = Vec::new();
    for step in &steps {
        if is_due(step, run)? {
            due.push(step);
        }
    }
    // What is still to be measured needs what was made for it.
    let missing =
        |step: &&Step| step.makes.as_ref().is_some_and(|made| !made.exists()) && run.find(&step.id).is_some();
    let again: Vec<&Step> = if due.is_empty() { Vec::new() } else { steps.iter().filter(missing).collect() };
    let mut left: Duration = again.iter().chain(&due).map(|step| step.estimate).sum();
    let all = again.len() + due.len();
    for (number, step) in again.iter().chain(&due).enumerate() {
        let seconds = Duration::from_secs(left.as_secs_f64().round() as u64);
        eprintln!("{}/{all}, about {} left: {}", number + 1, format_duration(seconds), step.what);
        let Some(ended) = confine::run(step, stop)? else {
            eprintln!("interrupted; to go on: gannet lab run --resume {}", run.folder().display());
            std::process::exit(130);
        };
        left = left.saturating_sub(step.estimate);
        if run.find(&step.id).is_none() {
            run.add(ended)?;
        }
    }
    if !arguments.keeps_data {
        fs::remove_dir_all(&data).with_context(|| format!("cannot remove {data:?}"))?;
    }
    let document = complete(experiment.report(run), std::slice::from_ref(run));
    write(&document, run.folder())?;
    println!("{}", run.folder().join("report.html").display());
    Ok(())
}

/// Adds where figures come from.
fn complete(mut document: Document, runs: &[Record]) -> Document {
    for run in runs {
        let machine = &run.circumstances["machine"];
        let text = |name: &str| machine[name].as_str().unwrap_or("unknown").to_owned();
        document.parts.push(Part::Heading(format!("How {} was measured", run.order.experiment)));
        document.parts.push(Part::Text(format!(
            "{} processors ({}), {} of memory, Linux {}; lab {}, commit {}; size {:?}, each measurement {} times, seed {}. Where nothing else is said, bars and tables have \
             medians, and ranges go from the least to the most.",
            machine["cpus"],
            text("cpu"),
            machine["memory_bytes"].as_u64().map_or("unknown".to_owned(), gannet_base::units::format_size),
            text("kernel"),
            run.circumstances["lab"].as_str().unwrap_or("unknown"),
            text("commit"),
            run.order.size,
            run.order.repeat,
            run.order.seed,
        )));
        document.parts.push(Part::Text("The commands, in their order:".to_owned()));
        document
            .parts
            .push(Part::Commands(run.ended.iter().map(|ended: &Ended| ended.command.join(" ")).collect()));
    }
    document
}

/// Writes a report into a folder.
pub(crate) fn write(document: &Document, folder: &Path) -> Result<()> {
    let figures = folder.join("figures");
    fs::create_dir_all(&figures).with_context(|| format!("cannot make {figures:?}"))?;
    fs::write(folder.join("report.html"), document.html())?;
    fs::write(folder.join("summary.md"), document.markdown())?;
    for figure in document.figures() {
        fs::write(figures.join(format!("{}.svg", figure.id)), figure.svg_alone())?;
        fs::write(figures.join(format!("{}.csv", figure.id)), figure.csv())?;
    }
    Ok(())
}

fn report(arguments: &Arguments) -> Result<()> {
    let runs: Vec<Record> =
        arguments.words.iter().map(|word| Record::open(Path::new(word))).collect::<Result<_>>()?;
    let mut documents = Vec::new();
    for run in &runs {
        documents.push(find(&run.order.experiment)?.report(run));
    }
    if let ([run], None) = (runs.as_slice(), &arguments.to) {
        let document = complete(documents.swap_remove(0), &runs);
        write(&document, run.folder())?;
        println!("{}", run.folder().join("report.html").display());
        return Ok(());
    }
    let Some(folder) = &arguments.to else {
        bail!("of several runs one page is made: say where by --to FOLDER")
    };
    let mut all = Document { title: "Gannet's lab".to_owned(), parts: Vec::new() };
    for (index, document) in documents.into_iter().enumerate() {
        all.parts.push(Part::Heading(document.title));
        all.parts.extend(document.parts.into_iter().map(|part| match part {
            // Runs of one experiment have figures of the same name.
            Part::Figure(mut figure) => {
                figure.id = format!("{}-{}", index + 1, figure.id);
                Part::Figure(figure)
            }
            other => other,
        }));
    }
    write(&complete(all, &runs), folder)?;
    println!("{}", folder.join("report.html").display());
    Ok(())
}

/// What a figure has for each of some groups; `None` where it has none.
fn grouped(kind: &Kind) -> Option<(&[String], &[Bars])> {
    match kind {
        Kind::Bars { groups, bars, .. } => Some((groups, bars)),
        Kind::Curves { groups, curves, .. } => Some((groups, curves)),
        Kind::Lines { .. } => None,
    }
}

/// Prints what two runs of an experiment have in common, and their ratio.
fn compare(one: &Path, other: &Path) -> Result<()> {
    let runs = [Record::open(one)?, Record::open(other)?];
    if runs[0].order.experiment != runs[1].order.experiment {
        bail!("{one:?} is a run of {}, {other:?} of {}", runs[0].order.experiment, runs[1].order.experiment);
    }
    let experiment = find(&runs[0].order.experiment)?;
    let [first, second] = runs.each_ref().map(|run| experiment.report(run));
    println!(
        "| figure | of | | {} | {} | ratio |\n|---|---|---|---|---|---|",
        one.display(),
        other.display()
    );
    let mut found = 0;
    for figure in first.figures() {
        let Some((groups, bars)) = grouped(&figure.kind) else { continue };
        let same = second.figures().find(|other| other.id == figure.id);
        let Some((other_groups, other_bars)) = same.and_then(|other| grouped(&other.kind)) else { continue };
        for bars in bars {
            let Some(theirs) = other_bars.iter().find(|other| other.name == bars.name) else { continue };
            for (group, value) in groups.iter().zip(&bars.values) {
                let place = other_groups.iter().position(|other| other == group);
                let other = place.and_then(|place| theirs.values.get(place).copied().flatten());
                let (Some(value), Some(other)) = (value, other) else { continue };
                let ratio = other.median / value.median;
                println!(
                    "| {} | {group} | {} | {} | {} | {} |",
                    figure.title,
                    bars.name,
                    number(value.median),
                    number(other.median),
                    number(ratio)
                );
                found += 1;
            }
        }
    }
    if found == 0 {
        bail!("the two have nothing in common that was measured");
    }
    Ok(())
}

/// `gannet-lab device`: what the device does.
pub(crate) fn device(parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    let (mut file, mut block, mut threads, mut seconds, mut seed) = (PathBuf::new(), None, 1, 10, 1);
    let (mut what, mut profile, mut width) = ("random", None, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("sequential") => what = "sequential",
            Long("sync-writes") => what = "sync-writes",
            Long("profile") => profile = Some(crate::profile(&parser.value()?.string()?)?),
            Long("width") => width = Some(parser.value()?.parse()?),
            Long("file") => file = parser.value()?.into(),
            Long("block") => block = Some(parse_size(&parser.value()?.string()?)? as usize),
            Long("threads") => threads = parser.value()?.parse()?,
            Long("seconds") => seconds = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let time = Duration::from_secs(seconds);
    if let (Some(profile), Some(width)) = (&mut profile, width) {
        profile.width = width;
    }
    let measured = match (what, profile) {
        ("sequential", profile) => {
            device::sequential_reads(&file, block.unwrap_or(256 << 10), threads, time, profile, stop)?
        }
        (_, Some(_)) => bail!("--profile goes with --sequential"),
        ("sync-writes", None) => device::synchronous_writes(&file, time, stop)?,
        (_, None) => device::random_reads(&file, block.unwrap_or(8192), threads, time, seed, stop)?,
    };
    println!("{measured}");
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_limited_where_that_was_asked_for_and_only_to_what_there_is() {
        let (scale, folder) = (find("X2").unwrap(), Path::new("a-run"));
        let of = |size, asked: Option<&[&str]>| {
            let asked: Option<Vec<String>> =
                asked.map(|names| names.iter().map(|&name| name.to_owned()).collect());
            profiles(scale, size, asked.as_deref(), folder)
        };
        assert_eq!(of(Size::Quick, None).unwrap(), [AS_IS]);
        // Whether there can be limits depends on the system.
        assert!(of(Size::Standard, None).unwrap().starts_with(&[AS_IS.to_owned()]));
        assert_eq!(of(Size::Standard, Some(&["as-is"])).unwrap(), [AS_IS]);
        for wrong in [&["floppy"][..], &[]] {
            assert!(of(Size::Quick, Some(wrong)).is_err(), "{wrong:?}");
        }
        let squeeze = find("squeeze").unwrap();
        assert_eq!(profiles(squeeze, Size::Large, None, folder).unwrap(), [AS_IS]);
    }
}
