//! `list`, `run`, `report`, `compare`: experiments, and what came of them. `gannet lab` leads here.

mod room;
mod run;

use crate::{command_compare, output};
use anyhow::{Context, Result, bail};
use gannet_base::units::{format_size, parse_size};
use gannet_lab::circumstances;
use gannet_lab::device;
use gannet_lab::document::{Document, LEFT_OUT, Part, typed};
use gannet_lab::experiments::{self, Experiment};
use gannet_lab::folders;
use gannet_lab::record::{Ended, REPEAT_MOST, Record, Size};
use lexopt::prelude::*;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const HELP: &str = "\
gannet lab: reproduces published experiments on this machine, against Gannet and rivals in the same run.

USAGE
    gannet lab list
    gannet lab run EXPERIMENT [OPTIONS]
    gannet lab run --resume RUN [--any-build]
    gannet lab report RUN... [--to FOLDER]
    gannet lab compare RUN RUN

EXPERIMENT is a name or number from `list`. A run is a folder with everything that was measured, raw; `report` makes a page of it
(report.html, which needs no network), a summary in Markdown, and each figure as SVG and CSV. Of several runs it makes one page in FOLDER.
Ctrl-C ends a run; --resume goes on with it, also where its folder was moved, and tries again what failed; by another build of the programs only with --any-build. `compare` says in what two runs differ, and what they have in common.

OPTIONS of run; report has --to
    --size SIZE      quick, standard or large [quick]
    --rivals NAMES   who takes part besides Gannet, by commas; none [all that are there]
    --mode MODES     our own I/O modes, by commas [as the experiment says]
    --profile NAMES  what the device is limited to, for everybody, by commas: as-is, cloud (10,000 reads and 10,000 writes a second), raid10 (1,000)
                     [quick: as-is; else all that the experiment has]
    --repeat N       how often each measurement is repeated, 1 to 100 [as the experiment says for the size]
    --seed N         seed of random keys [1]
    --to FOLDER      where the run goes [lab-runs/EXPERIMENT-SIZE-SECONDS]
    --keep-data      leaves the databases in the run's folder
    --help           this text
";

/// Options whose value is a word or a number.
const OPTIONS: [&str; 6] = ["size", "rivals", "mode", "profile", "repeat", "seed"];

/// Whether a word is one of these commands.
pub(crate) fn is_ours(word: &str) -> bool {
    matches!(word, "list" | "run" | "report" | "compare")
}

#[derive(Default, Debug)]
struct Arguments {
    words: Vec<String>,
    /// The options that were given, by their names.
    given: Vec<String>,
    size: Option<Size>,
    rivals: Option<Vec<String>>,
    modes: Option<Vec<String>>,
    profiles: Option<Vec<String>>,
    repeat: Option<u32>,
    seed: Option<u64>,
    to: Option<PathBuf>,
    resume: Option<PathBuf>,
    keeps_data: bool,
    is_any_build: bool,
}

/// Names by commas, each of them once; `none` stands alone, for no name.
fn names(text: &str) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if !names.iter().any(|other| other == name) {
            names.push(name.to_owned());
        }
    }
    if names.is_empty() {
        bail!("no name is given; for nobody write none");
    }
    if names.iter().any(|name| name == "none") {
        if names.len() > 1 {
            bail!("none goes with no other name");
        }
        names.clear();
    }
    Ok(names)
}

fn folder(name: OsString) -> Result<PathBuf> {
    if name.is_empty() {
        bail!("the name of the folder is empty");
    }
    Ok(name.into())
}

fn parse(parser: &mut lexopt::Parser) -> Result<Option<Arguments>> {
    let mut arguments = Arguments::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Value(word) => arguments.words.push(word.string()?),
            Long("keep-data") => {
                arguments.keeps_data = true;
                arguments.given.push("keep-data".to_owned());
            }
            Long("any-build") => {
                arguments.is_any_build = true;
                arguments.given.push("any-build".to_owned());
            }
            Long("to") => {
                arguments.to = Some(folder(parser.value()?).context("--to")?);
                arguments.given.push("to".to_owned());
            }
            Long("resume") => {
                arguments.resume = Some(folder(parser.value()?).context("--resume")?);
                arguments.given.push("resume".to_owned());
            }
            Long(name) if OPTIONS.contains(&name) => {
                let name = name.to_owned();
                let text = parser.value()?.string()?;
                set(&mut arguments, &name, &text).with_context(|| format!("--{name} {text}"))?;
                arguments.given.push(name);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Some(arguments))
}

fn set(arguments: &mut Arguments, name: &str, text: &str) -> Result<()> {
    match name {
        "size" => {
            arguments.size = Some(Size::named(text).context("it is quick, standard or large")?);
        }
        "rivals" => arguments.rivals = Some(names(text)?),
        "mode" => arguments.modes = Some(names(text)?),
        "profile" => arguments.profiles = Some(names(text)?),
        "repeat" => {
            let repeat = text.parse().ok().filter(|repeat| (1..=REPEAT_MOST).contains(repeat));
            arguments.repeat =
                Some(repeat.with_context(|| format!("it is a whole number from 1 to {REPEAT_MOST}"))?);
        }
        "seed" => arguments.seed = Some(text.parse().ok().context("it is a whole number")?),
        other => bail!("there is no option --{other}"),
    }
    Ok(())
}

/// Fails where an option was given that the command has not.
fn must_apply(name: &str, arguments: &Arguments) -> Result<()> {
    let allowed: &[&str] = match name {
        "run" if arguments.resume.is_some() => &["resume", "keep-data", "any-build"],
        "run" if arguments.is_any_build => bail!("--any-build goes with --resume: a new run has one build"),
        "run" => return Ok(()),
        "report" => &["to"],
        _ => &[],
    };
    let Some(other) = arguments.given.iter().find(|given| !allowed.contains(&given.as_str())) else {
        return Ok(());
    };
    if name == "run" {
        bail!("--resume goes on with what was asked for then: --{other} does not go with it");
    }
    bail!("--{other} is no option of gannet lab {name}: see gannet lab --help")
}

/// Runs the command `name` with the arguments behind it.
pub(crate) fn work(name: &str, parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    let Some(arguments) = parse(parser)? else {
        return output::text(HELP);
    };
    must_apply(name, &arguments)?;
    match (name, arguments.words.as_slice()) {
        ("list", []) => list(),
        ("run", []) if arguments.resume.is_some() => run::resume(&arguments, stop),
        ("run", [experiment]) if arguments.resume.is_none() => run::begin(experiment, &arguments, stop),
        ("report", [_, ..]) => report(&arguments),
        ("compare", [one, other]) => command_compare::work(Path::new(one), Path::new(other)),
        (name, words) => bail!("{name} does not take {words:?} so: see gannet lab --help"),
    }
}

fn list() -> Result<()> {
    for experiment in experiments::all() {
        output::line(format_args!(
            "{} {}: {}\n    published by: {}\n    I/O modes: {}",
            experiment.number(),
            experiment.name(),
            experiment.question(),
            experiment.source(),
            experiment.modes().join(", ")
        ))?;
        if experiment.profiles().len() > 1 {
            output::line(format_args!("    profiles of the device: {}", experiment.profiles().join(", ")))?;
        }
        let sizes = [Size::Quick, Size::Standard, Size::Large].map(|size| {
            let needs = experiment.needs(&run::usual(*experiment, size));
            let of = [needs.disk, needs.memory].map(format_size);
            format!("{} {} and {}", room::name(size), of[0], of[1])
        });
        output::line(format_args!(
            "    needs of disk and memory, about, with all rivals: {}",
            sizes.join(", ")
        ))?;
        for rival in experiment.rivals() {
            let how =
                if (rival.is_there)() { "is there".to_owned() } else { format!("is missing: {}", rival.how) };
            output::line(format_args!("    {}: {how}", rival.name))?;
        }
    }
    Ok(())
}

pub(crate) fn find(name: &str) -> Result<&'static dyn Experiment> {
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

/// What is to be said of a run that was interrupted. One of a lab that did not keep how many steps there are is complete where its databases are gone.
fn unfinished(experiment: &dyn Experiment, run: &Record) -> Option<String> {
    let all = match run.steps {
        Some(all) => all,
        None if !run.data().exists() => return None,
        None => experiment.steps(&run.order, &run.data()).len(),
    };
    (run.ended.len() < all).then(|| {
        format!(
            "This run is not complete: {} of {all} steps are done, and only those are told of. gannet lab run --resume goes on with it.",
            run.ended.len()
        )
    })
}

/// What failed, and why.
fn left_out(run: &Record) -> Vec<Part> {
    let failed: Vec<Vec<String>> =
        (run.ended.iter()).filter_map(|ended| Some(vec![ended.id.clone(), ended.skipped.clone()?])).collect();
    if failed.is_empty() {
        return Vec::new();
    }
    let told = format!(
        "{} of the steps failed, or needed one that did, and are left out of what follows: who is not in a table, or has “{LEFT_OUT}” there, or a dash, was not measured. gannet lab run --resume tries \
         them again.",
        failed.len()
    );
    vec![Part::Text(told), Part::Table(["step", "why"].map(str::to_owned).to_vec(), failed)]
}

/// The report of a run.
fn document(run: &Record) -> Result<Document> {
    let experiment = find(&run.order.experiment)?;
    let mut document = experiment.report(run);
    let unfinished = unfinished(experiment, run).map(Part::Text);
    let mixed = circumstances::mixed(run.circumstances_of_steps()).into_iter().map(Part::Text);
    let first: Vec<Part> = unfinished.into_iter().chain(left_out(run)).chain(mixed).collect();
    document.parts.splice(0..0, first);
    Ok(document)
}

/// Adds where figures come from.
fn complete(mut document: Document, runs: &[Record]) -> Document {
    for run in runs {
        let machine = &run.circumstances["machine"];
        let text = |name: &str| machine[name].as_str().unwrap_or("unknown").to_owned();
        document.parts.push(Part::Heading(format!("How {} was measured", run.order.experiment)));
        document.parts.push(Part::Text(format!(
            "{} processors ({}), {} of memory, Linux {}; lab {}, commit {}; size {:?}, each measurement {} times, seed {}. Where nothing else is said, bars and tables have \
             medians over the repetitions, ranges go from the least to the most, and what is “at most” is the most in any of them; lines over time are of the first repetition, and settings as it had them.",
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
        let rivals = circumstances::rivals(run.circumstances_of_steps());
        if !rivals.is_empty() {
            let each: Vec<String> = rivals
                .into_iter()
                .map(|(name, versions)| format!("{name}: {}", versions.join(", ")))
                .collect();
            document.parts.push(Part::Text(format!(
                "Rivals, by what they say of their versions: {}.",
                each.join("; ")
            )));
        }
        if let Some(asked) = asked(run) {
            document.parts.push(Part::Text("What was asked for:".to_owned()));
            document.parts.push(Part::Commands(vec![asked]));
        }
        document.parts.push(Part::Text("What that has run, in its order:".to_owned()));
        document
            .parts
            .push(Part::Commands(run.ended.iter().map(|ended: &Ended| typed(&ended.command)).collect()));
    }
    document
}

/// The command that began a run, as somebody typed it.
fn asked(run: &Record) -> Option<String> {
    let words = run.circumstances["command"].as_array()?;
    let words = words.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()?;
    (!words.is_empty()).then(|| format!("gannet lab {}", typed(&words)))
}

/// Where a report's figures are.
const FIGURES: &str = "figures";

/// Writes a report into a folder. Figures of the one before go.
pub(crate) fn write(document: &Document, folder: &Path) -> Result<()> {
    let figures = folder.join(FIGURES);
    folders::remove(&figures)?;
    fs::create_dir_all(&figures).with_context(|| format!("cannot make {figures:?}"))?;
    let put = |file: PathBuf, text: String| {
        fs::write(&file, text).with_context(|| format!("cannot write {file:?}"))
    };
    put(folder.join("report.html"), document.html())?;
    put(folder.join("summary.md"), document.markdown())?;
    for figure in document.figures() {
        put(figures.join(format!("{}.svg", figure.id)), figure.svg_alone())?;
        put(figures.join(format!("{}.csv", figure.id)), figure.csv())?;
    }
    Ok(())
}

/// Fails where a report would take the place of something else: of a run's own, or of what is none.
fn must_be_for_reports(folder: &Path) -> Result<()> {
    if folder.join("run.json").exists() {
        bail!("--to {folder:?} is a run, which has a report of its own: name another folder");
    }
    let is_empty = !folder.exists()
        || fs::read_dir(folder).with_context(|| format!("--to {folder:?}"))?.next().is_none();
    let is_report = ["report.html", "summary.md"].iter().all(|file| folder.join(file).is_file());
    if !is_empty && !is_report {
        bail!("--to {folder:?} is not empty, and what is there is no report: name another folder");
    }
    Ok(())
}

fn report(arguments: &Arguments) -> Result<()> {
    let runs: Vec<Record> =
        arguments.words.iter().map(|word| Record::open(Path::new(word))).collect::<Result<_>>()?;
    let mut documents = runs.iter().map(document).collect::<Result<Vec<_>>>()?;
    if let ([run], None) = (runs.as_slice(), &arguments.to) {
        write(&complete(documents.swap_remove(0), &runs), run.folder())?;
        return output::line(run.folder().join("report.html").display());
    }
    let Some(folder) = &arguments.to else {
        bail!("of several runs one page is made: say where by --to FOLDER")
    };
    must_be_for_reports(folder)?;
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
    output::line(folder.join("report.html").display())
}

/// `gannet-lab device`: what the device does.
pub(crate) fn device(parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    let (mut file, mut block, mut threads, mut seconds, mut seed) = (PathBuf::new(), None, vec![1], 10, 1);
    let (mut what, mut profile, mut width) = ("random", None, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("sequential") => what = "sequential",
            Long("sync-writes") => what = "sync-writes",
            Long("profile") => profile = Some(crate::profile(&parser.value()?.string()?)?),
            Long("width") => width = Some(parser.value()?.parse()?),
            Long("file") => file = parser.value()?.into(),
            Long("block") => block = Some(parse_size(&parser.value()?.string()?)? as usize),
            Long("threads") => {
                let text = parser.value()?.string()?;
                let numbers =
                    text.split(',').map(|word| word.trim().parse().ok()).collect::<Option<Vec<usize>>>();
                threads = numbers.with_context(|| format!("--threads {text}: numbers by commas"))?;
            }
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
            device::best_sequential_reads(&file, block.unwrap_or(256 << 10), &threads, time, profile, stop)?
        }
        (_, Some(_)) => bail!("--profile goes with --sequential"),
        ("sync-writes", None) => device::synchronous_writes(&file, time, stop)?,
        (_, None) => match threads.as_slice() {
            &[threads] => device::random_reads(&file, block.unwrap_or(8192), threads, time, seed, stop)?,
            _ => bail!("several numbers of --threads go with --sequential"),
        },
    };
    output::line(measured)?;
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_lab::record::Order;
    use gannet_lab::throttle::AS_IS;
    use serde_json::Value;

    fn parsed(words: &[&str]) -> Result<Arguments> {
        Ok(parse(&mut lexopt::Parser::from_args(words))?.unwrap())
    }

    #[test]
    fn what_is_named_twice_takes_part_once_and_none_stands_alone() {
        let arguments =
            parsed(&["X4", "--mode", "direct, buffered,direct", "--rivals", "none", "--repeat", "100"])
                .unwrap();
        assert_eq!(arguments.modes.unwrap(), ["direct", "buffered"]);
        assert_eq!((arguments.rivals, arguments.repeat), (Some(Vec::new()), Some(REPEAT_MOST)));
        for (wrong, says) in [
            (&["--rivals", "none,sqlite"][..], "--rivals none,sqlite: none goes with no other name"),
            (&["--mode", "direct,none"], "--mode direct,none"),
            (&["--profile", ","], "--profile ,: no name"),
            (&["--repeat", "1.5"], "--repeat 1.5: it is a whole number from 1 to 100"),
            (&["--repeat", "0"], "from 1 to 100"),
            (&["--repeat", "4000000000"], "from 1 to 100"),
            (&["--seed", "x"], "--seed x: it is a whole number"),
            (&["--size", "huge"], "quick, standard or large"),
            (&["--to", ""], "--to: the name of the folder is empty"),
            (&["--speed", "1"], "--speed"),
        ] {
            let error = format!("{:#}", parsed(wrong).unwrap_err());
            assert!(error.contains(says), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn an_option_that_does_not_apply_is_refused_by_its_name() {
        let refused = |name: &str, words: &[&str]| must_apply(name, &parsed(words).unwrap());
        for (name, words, option) in [
            ("list", &["--size", "large"][..], "--size"),
            ("report", &["run", "--to", "x", "--repeat", "5"], "--repeat"),
            ("report", &["run", "--keep-data"], "--keep-data"),
            ("compare", &["a", "b", "--to", "x"], "--to"),
            ("run", &["--resume", "x", "--seed", "3"], "--seed"),
            ("run", &["X4", "--any-build"], "--any-build goes with --resume"),
            ("report", &["run", "--any-build"], "--any-build"),
        ] {
            let error = refused(name, words).unwrap_err().to_string();
            assert!(error.contains(option), "{words:?}: {error}");
        }
        refused("run", &["X4", "--size", "large", "--keep-data"]).unwrap();
        refused("run", &["--resume", "x", "--keep-data", "--any-build"]).unwrap();
        refused("report", &["run", "--to", "x"]).unwrap();
    }

    fn order() -> Order {
        Order {
            experiment: "squeeze".to_owned(),
            size: Size::Quick,
            rivals: Vec::new(),
            modes: vec!["direct".to_owned()],
            profiles: vec![AS_IS.to_owned()],
            repeat: 1,
            seed: 1,
        }
    }

    fn ended(id: &str) -> Ended {
        Ended {
            id: id.to_owned(),
            command: Vec::new(),
            began_unix: 1,
            seconds: 1.0,
            output: Vec::new(),
            group: Value::Null,
            skipped: None,
            under: None,
        }
    }

    #[test]
    fn a_report_of_a_run_that_was_interrupted_begins_with_that() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Record::create(&folder.path().join("run"), &order(), 2, Value::Null).unwrap();
        run.add(ended("one")).unwrap();
        let text = document(&run).unwrap().markdown();
        assert!(text.contains("This run is not complete: 1 of 2 steps are done"), "{text}");
        run.add(ended("two")).unwrap();
        assert!(!document(&run).unwrap().markdown().contains("not complete"));
        // One of before there was a number: as long as its databases are there.
        run.steps = None;
        assert_eq!(unfinished(find("X4").unwrap(), &run), None);
        fs::create_dir(run.data()).unwrap();
        assert!(unfinished(find("X4").unwrap(), &run).unwrap().contains("2 of "));
    }

    #[test]
    fn a_report_tells_how_many_steps_had_no_group_and_whose_builds_there_are() {
        use gannet_lab::circumstances::Circumstances;
        let folder = tempfile::tempdir().unwrap();
        let mut run = Record::create(&folder.path().join("run"), &order(), 3, Value::Null).unwrap();
        let usual = Circumstances { lab: "1 (abc)".to_owned(), has_groups: true, ..Circumstances::default() };
        run.add(Ended { under: Some(usual.clone()), ..ended("one") }).unwrap();
        let of_lmdb = Some(("lmdb".to_owned(), "lmdb 0.9.24".to_owned()));
        run.add(Ended { under: Some(Circumstances { rival: of_lmdb, ..usual.clone() }), ..ended("two") })
            .unwrap();
        let text = complete(document(&run).unwrap(), std::slice::from_ref(&run)).markdown();
        assert!(!text.contains("Not all steps") && text.contains("lmdb: lmdb 0.9.24"), "{text}");
        let other = Circumstances { lab: "1 (def)".to_owned(), has_groups: false, ..usual };
        run.add(Ended { under: Some(other), ..ended("three") }).unwrap();
        // As it is read again.
        let run = Record::open(run.folder()).unwrap();
        let text = document(&run).unwrap().markdown();
        assert!(text.contains("1 of 3 steps had no memory cgroup"), "{text}");
        assert!(text.contains("2 by lab 1 (abc); 1 by lab 1 (def)"), "{text}");
    }

    #[test]
    fn a_report_has_the_command_that_began_the_run_and_those_it_has_run() {
        let folder = tempfile::tempdir().unwrap();
        let circumstances = serde_json::json!({ "command": ["run", "squeeze", "--to", "my run"] });
        let mut run = Record::create(&folder.path().join("run"), &order(), 1, circumstances).unwrap();
        run.add(Ended { command: vec!["gannet-lab".to_owned(), "a b".to_owned()], ..ended("one") }).unwrap();
        let text = complete(Document { title: String::new(), parts: Vec::new() }, &[run]).markdown();
        let (asked, ran) = text.split_once("What that has run").unwrap();
        assert!(asked.contains("gannet lab run squeeze --to 'my run'"), "{text}");
        assert!(ran.contains("gannet-lab 'a b'"), "{text}");
    }

    #[test]
    fn a_report_replaces_a_report_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (run, to) = (folder.path().join("run"), folder.path().join("to"));
        drop(Record::create(&run, &order(), 2, Value::Null).unwrap());
        assert!(must_be_for_reports(&run).unwrap_err().to_string().contains("is a run"));
        must_be_for_reports(&to).unwrap();
        write(&Document { title: "one".to_owned(), parts: Vec::new() }, &to).unwrap();
        fs::write(to.join("figures/old.svg"), "x").unwrap();
        must_be_for_reports(&to).unwrap();
        write(&Document { title: "two".to_owned(), parts: Vec::new() }, &to).unwrap();
        assert!(!to.join("figures/old.svg").exists());
        fs::remove_file(to.join("summary.md")).unwrap();
        assert!(must_be_for_reports(&to).unwrap_err().to_string().contains("is no report"));
    }
}
