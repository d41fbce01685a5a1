//! The experiments: what each of them measures, step by step, and what is said of it afterwards.
//!
//! An experiment is a list of steps, which depends on what was asked for and on nothing else, so that a run that was interrupted goes on where it was; and
//! a report, which depends on what the steps have brought and on nothing else, so that it can be made again.

mod admin;
mod restart;
mod scale;
mod scan;
mod squeeze;
mod tune;

use crate::chart::{Spread, number};
use crate::confine::{OURSELVES, Step};
use crate::document::{Document, Part};
use crate::record::{Order, Record, Size};
use crate::rivals::{self, Program};
use crate::sides::Side;
use crate::throttle::AS_IS;
use gannet_base::units::format_size;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A published investigation that is reproduced.
pub trait Experiment: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Its number, `X1` to `X6`.
    fn number(&self) -> &'static str;

    /// What it asks.
    fn question(&self) -> &'static str;

    /// Who published it.
    fn source(&self) -> &'static str;

    /// Rivals that can take part: the name, and the program or feature that is needed.
    fn rivals(&self) -> &'static [Rival];

    /// Our own I/O modes that can take part.
    fn modes(&self) -> &'static [&'static str];

    /// Those of them that take part at this size where nobody says otherwise.
    fn usual_modes(&self, _size: Size) -> &'static [&'static str] {
        self.modes()
    }

    /// What the device can be limited to for all of it: names of profiles, of which `as-is` is no limit.
    fn profiles(&self) -> &'static [&'static str] {
        &[AS_IS]
    }

    /// How often measurements are repeated at this size, where nobody says otherwise.
    fn repeat(&self, size: Size) -> u32;

    /// What is to be done; databases go to the folder `data`.
    fn steps(&self, order: &Order, data: &Path) -> Vec<Step>;

    /// What it needs, about: it is looked for before anything is made.
    fn needs(&self, order: &Order) -> Needs;

    /// What came of it.
    fn report(&self, run: &Record) -> Document;
}

/// What an experiment needs, about, so that it is not ended in the middle of it; rather too much than too little.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Bytes of the disk, where all databases and what is made of them are there at one time.
    pub disk: u64,
    /// Bytes of memory: the largest limit that somebody is held to, and what the system and the laboratory take beside it.
    pub memory: u64,
}

/// Bytes of memory for who measures, and for clients.
const AROUND: u64 = 256 << 20;

/// Somebody to be compared with.
#[derive(Clone, Copy, Debug)]
pub struct Rival {
    /// Its name.
    pub name: &'static str,
    /// Whether this build, on this machine, has it.
    pub is_there: fn() -> bool,
    /// How to get it.
    pub how: &'static str,
    /// Which version there is; `None` where what it prints when it is measured says that.
    pub version: fn() -> Option<String>,
}

/// SQLite, which is linked in.
const SQLITE: Rival = Rival {
    name: "sqlite",
    is_there: || cfg!(feature = "rivals"),
    how: "cargo build --release -p gannet-lab --features rivals",
    version: || Some(Side::Sqlite.title()),
};

/// PostgreSQL's server, which is started where it is installed.
const POSTGRESQL: Rival = Rival {
    name: "postgresql",
    is_there: || crate::servers::postgres().is_some(),
    how: "apt-get install postgresql-15",
    version: crate::servers::postgres_version,
};

/// Firebird's server, which is started where it is installed.
const FIREBIRD: Rival = Rival {
    name: "firebird",
    is_there: || cfg!(feature = "rivals") && crate::firebird::server::installation().is_some(),
    how: "apt-get install firebird3.0-server, and a lab with the feature rivals",
    version: || Some(Side::Firebird.title()),
};

/// Berkeley DB, whose program is built where its header is.
const BERKELEY_DB: Rival = Rival {
    name: rivals::BERKELEY_DB.name,
    is_there: || rivals::BERKELEY_DB.can_be_built(),
    how: rivals::BERKELEY_DB.how,
    version: || None,
};

/// The folder that a rival's program is built in.
fn program_folder(data: &Path, program: Program) -> PathBuf {
    data.join(format!("program-{}", program.name))
}

/// Builds it.
fn building(data: &Path, program: Program) -> Step {
    let to = program_folder(data, program);
    let command = [OURSELVES, "rival", program.name, "--to", &to.display().to_string()];
    Step {
        id: format!("build, {}", program.name),
        what: format!("builds the program of {}", program.name),
        command: command.map(str::to_owned).to_vec(),
        estimate: Duration::from_secs(1),
        makes: Some(to),
        rival: Some(program.name),
        ..Step::default()
    }
}

/// Threads that read when the device is calibrated, and bytes of what each reads at once.
const CALIBRATED: (u32, u64) = (16, 8192);

fn calibration_id(what: &str) -> String {
    format!("calibration, {what}")
}

/// What the device does alone, by a file that was just filled: random reads, and writes that are each durable. A quick run has a second for either.
fn calibrations(file: &Path, size: Size, seed: u64) -> [Step; 2] {
    let seconds = if size == Size::Quick { 1 } else { 5 };
    let step = |what: &str, more: &[String]| {
        let command =
            [OURSELVES, "device", "--file", &file.display().to_string(), "--seconds"].map(str::to_owned);
        Step {
            id: calibration_id(what),
            what: format!("the device alone: {what}"),
            command: command.into_iter().chain([seconds.to_string()]).chain(more.iter().cloned()).collect(),
            estimate: Duration::from_secs(seconds),
            ..Step::default()
        }
    };
    let (threads, block) = CALIBRATED;
    let reads =
        [("--threads", threads.to_string()), ("--block", block.to_string()), ("--seed", seed.to_string())];
    let reads: Vec<String> = reads.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    [step("reads", &reads), step("durable writes", &["--sync-writes".to_owned()])]
}

/// What is said of that; nothing of a run that has none.
fn calibrated(run: &Record) -> Option<Part> {
    let figure = |what: &str, name: &str| run.find(&calibration_id(what))?.output.first()?[name].as_f64();
    let (reads, writes) =
        (figure("reads", "reads_per_second")?, figure("durable writes", "writes_per_second")?);
    Some(Part::Text(format!(
        "The device alone, once the databases had been filled: {} reads of {} a second at random places by {} threads, {} writes of 4 KiB a second one after the other, each durable.",
        number(reads),
        format_size(CALIBRATED.1),
        CALIBRATED.0,
        number(writes)
    )))
}

/// By how much a figure that was measured once has to be above another one.
const ONCE: f64 = 1.5;
/// By how much medians have to differ where there are fewer than [`MANY`] measurements, of which ranges lie apart by chance now and then: those of three each in one
/// of ten pairs.
const FEW: f64 = 1.1;
/// Of so many, ranges lie apart by chance in one of 35 pairs.
const MANY: u32 = 4;

/// Whether two figures of a run differ by more than chance does. What is known as a bound is above another one where the bound is, and never certainly below.
fn are_told_apart(order: &Order, one: Spread, other: Spread) -> bool {
    // Whatever was asked for: the run may have been interrupted, or have failed but once.
    let was_once = [one, other].iter().any(|spread| spread.least == spread.most);
    let factor = match order.repeat {
        _ if was_once => ONCE,
        MANY.. => 1.0,
        _ => FEW,
    };
    let is_above = |one: Spread, other: Spread| {
        !other.is_at_least && one.least > other.most && one.median >= other.median * factor
    };
    is_above(one, other) || is_above(other, one)
}

/// What is to be thought of differences: `once` says what may be by chance, `more` is said of each figure that was measured once.
fn caveat(order: &Order, more: &str, once: &str) -> String {
    let of_one = format!("what is not {ONCE} times {once} may be so by chance, and is not told apart.");
    match order.repeat {
        1 => format!("Each was measured once{more}: {of_one}"),
        MANY.. => format!(
            "Those whose ranges overlap are not told apart. Where something was measured once, {of_one}"
        ),
        _ => format!(
            "Those whose ranges overlap are not told apart, and, as there are few of each, nor are those whose medians differ by less than a tenth. Where something was measured once, {of_one}"
        ),
    }
}

/// Our modes of a quick run, which is to be quick: what goes past the OS cache by O_DIRECT.
const QUICK_MODES: &[&str] = &["direct"];

/// All that there are.
pub fn all() -> &'static [&'static dyn Experiment] {
    &[&scan::Scan, &scale::Scale, &admin::Admin, &squeeze::Squeeze, &tune::Tune, &restart::Restart]
}

/// The experiment of this name, or number.
pub fn named(name: &str) -> Option<&'static dyn Experiment> {
    all().iter().copied().find(|one| one.name() == name || one.number().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_report_of_nothing_claims_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for experiment in all() {
            let order = Order {
                experiment: experiment.name().to_owned(),
                size: Size::Quick,
                rivals: experiment.rivals().iter().map(|rival| rival.name.to_owned()).collect(),
                modes: experiment.modes().iter().map(|&mode| mode.to_owned()).collect(),
                profiles: experiment.profiles().iter().map(|&name| name.to_owned()).collect(),
                repeat: 1,
                seed: 1,
            };
            let run = folder.path().join(experiment.name());
            let run = Record::create(&run, &order, 1, serde_json::Value::Null).unwrap();
            let text = experiment.report(&run).markdown();
            for claim in [
                "could be made:",
                "could be made,",
                "after 0",
                "After 0",
                "-0 ",
                "NaN",
                "is ahead in",
                "No planner's choice takes",
                "No rival took part",
            ] {
                assert!(!text.contains(claim), "{}: {claim}: {text}", experiment.name());
            }
        }
    }

    #[test]
    fn each_experiment_knows_what_the_device_does_alone_and_a_quick_one_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for experiment in all() {
            let order = Order {
                experiment: experiment.name().to_owned(),
                size: Size::Quick,
                rivals: Vec::new(),
                modes: experiment.usual_modes(Size::Quick).iter().map(|&mode| mode.to_owned()).collect(),
                profiles: vec![AS_IS.to_owned()],
                repeat: 1,
                seed: 1,
            };
            let steps = experiment.steps(&order, Path::new("data"));
            let alone: Vec<&Step> = steps
                .iter()
                .filter(|step| step.command.get(1).is_some_and(|word| word == "device"))
                .collect();
            assert!(!alone.is_empty(), "{}", experiment.name());
            // What is read is there by then, and made anew where it is not.
            for step in alone {
                let place = steps.iter().position(|other| other.id == step.id).unwrap();
                let mut makers = steps[..place].iter().filter_map(|before| before.makes.as_deref());
                assert!(makers.any(|made| step.uses(made)), "{}: {}", experiment.name(), step.id);
            }
            let mut calibrations = steps.iter().filter(|step| step.id.starts_with("calibration"));
            assert!(calibrations.all(|step| step.estimate <= Duration::from_secs(1)));
        }
        let order = Order {
            experiment: "scale".to_owned(),
            size: Size::Quick,
            rivals: Vec::new(),
            modes: Vec::new(),
            profiles: Vec::new(),
            repeat: 1,
            seed: 1,
        };
        let mut run = Record::create(&folder.path().join("run"), &order, 2, serde_json::Value::Null).unwrap();
        assert!(calibrated(&run).is_none());
        for (step, output) in calibrations(Path::new("db"), Size::Quick, 1).iter().zip([
            serde_json::json!({ "reads_per_second": 5000.0 }),
            serde_json::json!({ "writes_per_second": 700.0 }),
        ]) {
            let ended = step.left_out(String::new());
            run.add(crate::record::Ended { output: vec![output], skipped: None, ..ended }).unwrap();
        }
        let Some(Part::Text(told)) = calibrated(&run) else { panic!("nothing is said") };
        assert!(told.contains("5,000 reads of 8KiB") && told.contains("700 writes of 4 KiB"), "{told}");
    }

    #[test]
    fn two_figures_are_told_apart_where_chance_does_not_do_it() {
        let order = |repeat| Order {
            experiment: "scan".to_owned(),
            size: Size::Quick,
            rivals: Vec::new(),
            modes: Vec::new(),
            profiles: Vec::new(),
            repeat,
            seed: 1,
        };
        let of = |least, median, most| Spread { median, least, most, is_at_least: false };
        let (once, thrice) = (order(1), order(3));
        let one = |value| of(value, value, value);
        assert!(!are_told_apart(&once, one(10.0), one(14.0)) && are_told_apart(&once, one(15.0), one(10.0)));
        assert!(!are_told_apart(&once, one(0.0), one(0.0)));
        assert!(!are_told_apart(&thrice, of(9.0, 10.0, 12.0), of(11.0, 30.0, 40.0)));
        assert!(are_told_apart(&thrice, of(9.0, 10.0, 10.5), of(11.0, 12.0, 13.0)));
        // Ranges of few lie apart by chance.
        assert!(!are_told_apart(&thrice, of(9.9, 10.0, 10.1), of(10.2, 10.3, 10.4)));
        assert!(are_told_apart(&order(4), of(9.9, 10.0, 10.1), of(10.2, 10.3, 10.4)));
        // Of three that were asked for two have failed.
        assert!(!are_told_apart(&thrice, one(14.0), of(9.0, 10.0, 10.5)));
        assert!(are_told_apart(&thrice, one(16.0), of(9.0, 10.0, 10.5)));
        // A bound may be more than it says.
        let bound = |value| Spread { is_at_least: true, ..one(value) };
        assert!(
            are_told_apart(&once, bound(20.0), one(10.0)) && are_told_apart(&once, one(10.0), bound(20.0))
        );
        assert!(!are_told_apart(&once, bound(10.0), one(20.0)));
        assert!(!are_told_apart(&once, bound(10.0), bound(20.0)));
    }

    #[test]
    fn steps_are_unique_and_the_same_each_time() {
        for experiment in all() {
            for size in [Size::Quick, Size::Standard, Size::Large] {
                let order = Order {
                    experiment: experiment.name().to_owned(),
                    size,
                    rivals: experiment.rivals().iter().map(|rival| rival.name.to_owned()).collect(),
                    modes: experiment.modes().iter().map(|&mode| mode.to_owned()).collect(),
                    profiles: experiment.profiles().iter().map(|&name| name.to_owned()).collect(),
                    repeat: 2,
                    seed: 1,
                };
                let ids = |steps: Vec<Step>| {
                    steps.into_iter().map(|step| (step.id, step.command)).collect::<Vec<_>>()
                };
                let steps = ids(experiment.steps(&order, Path::new("data")));
                assert_eq!(steps, ids(experiment.steps(&order, Path::new("data"))));
                assert_eq!(steps.iter().map(|(id, _)| id).collect::<HashSet<_>>().len(), steps.len());
                assert!(named(experiment.number()).is_some());
                assert!(experiment.usual_modes(size).iter().all(|mode| experiment.modes().contains(mode)));
                assert_eq!(experiment.profiles().first(), Some(&AS_IS));
            }
        }
    }
}
