//! `run`: what an experiment has to do is done step by step, and goes on where it was interrupted.

use super::{Arguments, chosen, complete, document, find, room, write};
use crate::output;
use anyhow::{Context, Result, bail};
use gannet_base::units::format_duration;
use gannet_lab::circumstances::Circumstances;
use gannet_lab::confine::{self, Step};
use gannet_lab::device;
use gannet_lab::document::typed;
use gannet_lab::experiments::Experiment;
use gannet_lab::folders;
use gannet_lab::machine;
use gannet_lab::record::{Ended, Order, Record, Size};
use gannet_lab::servers;
use gannet_lab::throttle::{self, AS_IS, Noted};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

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
        if let Err(error) = throttle::possible(nearest(folder)) {
            let limited: Vec<String> = profiles.extract_if(.., |name| name != AS_IS).collect();
            eprintln!("left out of the profiles: {}: {error:#}", limited.join(", "));
        }
    }
    if profiles.is_empty() {
        bail!("--profile leaves no profile that can be measured here: {}", experiment.profiles().join(", "));
    }
    Ok(profiles)
}

/// What is asked for where nothing is said but the size, with all rivals that an experiment has.
pub(super) fn usual(experiment: &dyn Experiment, size: Size) -> Order {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    Order {
        experiment: experiment.name().to_owned(),
        size,
        rivals: experiment.rivals().iter().map(|rival| rival.name.to_owned()).collect(),
        modes: words(experiment.usual_modes(size)),
        profiles: words(experiment.profiles()),
        repeat: experiment.repeat(size),
        seed: 1,
    }
}

pub(super) fn begin(name: &str, arguments: &Arguments, stop: &AtomicBool) -> Result<()> {
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
    let usual: Vec<String> = experiment.usual_modes(size).iter().map(|&mode| mode.to_owned()).collect();
    let asked = arguments.modes.as_ref().unwrap_or(&usual);
    let modes = chosen("the mode", Some(asked), experiment.modes())?;
    if modes.is_empty() {
        bail!("--mode names no mode: {}", experiment.modes().join(", "));
    }
    let folder = arguments.to.clone().unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let size = room::name(size);
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
    let steps = experiment.steps(&order, &folder).len();
    // The folder is not made where nothing can be measured in it.
    let there = nearest(&folder);
    throttle::must_be_free(there)?;
    room::must_be_enough(experiment, &order, there, &folder.join("data"))?;
    let mut circumstances = circumstances();
    circumstances["device"] =
        json!({ "number": device::number_of(there)?, "limits": throttle::found(there)? });
    go_on(experiment, Record::create(&folder, &order, steps, circumstances)?, arguments, stop)
}

/// What is there of a folder that may be still to be made.
fn nearest(folder: &Path) -> &Path {
    let there = folder.ancestors().find(|above| above.is_dir());
    // Of a relative one, it is where we are.
    there.filter(|there| !there.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn resume(arguments: &Arguments, stop: &AtomicBool) -> Result<()> {
    let folder = arguments.resume.as_deref().unwrap_or(Path::new(""));
    let run = Record::take(folder)?;
    throttle::lift_noted(run.folder());
    throttle::must_be_free(run.folder())?;
    let experiment = find(&run.order.experiment)?;
    room::must_be_enough(experiment, &run.order, run.folder(), &run.data())?;
    must_go_on_alike(&run, &Circumstances::now(), arguments.is_any_build)?;
    go_on(experiment, run, arguments, stop)
}

/// What figures depend on, as it is when a run begins.
fn circumstances() -> Value {
    json!({
        "lab": env!("CARGO_PKG_VERSION"),
        "gannet": servers::gannet_version(),
        "machine": machine::describe(),
        "has_swap": confine::has_swap(),
        "command": std::env::args().skip(1).collect::<Vec<_>>(),
    })
}

/// What programs the last step of a run was measured with. One of a lab that did not keep that with each step has what was said of the run when it began.
fn programs_then(run: &Record) -> Option<String> {
    let last = run.ended.iter().rfind(|ended| ended.skipped.is_none())?;
    Some(last.under.as_ref().map_or_else(
        || {
            let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
            let (version, commit) = (&run.circumstances["lab"], &run.circumstances["machine"]["commit"]);
            format!("lab {} ({})", text(version), text(commit))
        },
        Circumstances::programs,
    ))
}

/// Fails where what is measured now would stand beside what other programs have brought, and nobody has asked for that; warns where else something differs from before.
fn must_go_on_alike(run: &Record, now: &Circumstances, is_any_build: bool) -> Result<()> {
    if let Some(then) = programs_then(run).filter(|then| *then != now.programs()) {
        let both = format!("what is there was measured by {then}, and this is {}", now.programs());
        if !is_any_build {
            bail!(
                "{both}: their figures would stand beside each other. Begin a new run, or go on all the same by --any-build, which the report tells"
            );
        }
        eprintln!("{both}: the report tells how many steps are whose");
    }
    if let Some(then) = run.circumstances_of_steps().last() {
        for difference in now.differences(then) {
            eprintln!("since the last step something has changed, which the report tells: {difference}");
        }
    }
    Ok(())
}

/// Which version of its rival a step has measured: what its program has printed, or what is installed.
fn rival_of(experiment: &dyn Experiment, step: &Step, ended: &Ended) -> Option<(String, String)> {
    let rival = experiment.rivals().iter().find(|rival| Some(rival.name) == step.rival)?;
    let printed = || ended.output.iter().find_map(|line| line["driver"].as_str().map(str::to_owned));
    Some((rival.name.to_owned(), (rival.version)().or_else(printed)?))
}

/// Where the databases were when this command was run, if it is the one that is due, but for that: the run may have been moved since.
fn place_then(then: &[String], now: &[String], data: &str) -> Option<String> {
    let differs = then.iter().zip(now).find(|(then, now)| then != now);
    let place = match differs {
        Some((then, now)) => {
            let (before, behind) = now.split_once(data)?;
            then.strip_prefix(before)?.strip_suffix(behind)?
        }
        None => data,
    };
    let moved = now.iter().map(|word| word.replace(data, place));
    then.iter().eq(moved.collect::<Vec<_>>().iter()).then(|| place.to_owned())
}

/// Whether a step has not been done yet, or was left out.
fn is_due(step: &Step, run: &Record, data: &str) -> Result<bool> {
    let Some(ended) = run.tried(&step.id) else { return Ok(true) };
    if place_then(&ended.command, &step.command, data).is_none() {
        bail!(
            "{:?} was run another way by the lab that began this run ({}): begin a new one",
            step.id,
            typed(&ended.command)
        );
    }
    Ok(ended.skipped.is_some())
}

/// What is to be done, in the order of the steps: what is due, and what was done but whose product is not there any more, where somebody of these needs it.
fn to_do<'s>(steps: &'s [Step], is_due: &[bool], is_there: impl Fn(&Path) -> bool) -> Vec<&'s Step> {
    let mut wanted = is_due.to_vec();
    for index in (0..steps.len()).rev() {
        if !wanted[index] {
            continue;
        }
        let mut seen: Vec<&Path> = Vec::new();
        for before in (0..index).rev() {
            let Some(made) = steps[before].makes.as_deref() else { continue };
            if steps[index].uses(made) && !seen.contains(&made) {
                // Who made it last before.
                seen.push(made);
                wanted[before] |= !is_there(made);
            }
        }
    }
    steps.iter().zip(wanted).filter_map(|(step, is_wanted)| is_wanted.then_some(step)).collect()
}

/// Runs a step, and lifts the limit of the device behind it where it sets one, however it has ended.
fn limited(step: &Step, run: &Record, stop: &AtomicBool) -> Result<Option<Ended>> {
    let _noted = step.limits_device.then(|| Noted::take(run.folder())).transpose()?;
    confine::run(step, run.lock(), stop)
}

/// Runs a step; `None` when `stop` was set before. A rival's failure is what the step has brought, and so is that of what he needs.
fn attempt(
    step: &Step,
    broken: &mut Vec<(PathBuf, String)>,
    run: &Record,
    stop: &AtomicBool,
) -> Result<Option<Ended>> {
    let ended = match broken.iter().find(|(place, _)| step.uses(place)) {
        Some((_, maker)) if step.rival.is_some() => {
            step.left_out(format!("it needs what {maker:?} was to make, which failed"))
        }
        _ => match limited(step, run, stop) {
            Ok(None) => return Ok(None),
            Ok(Some(ended)) => ended,
            Err(error) if step.rival.is_some() => {
                // The step itself is known.
                let why: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
                step.left_out(why.join(": "))
            }
            Err(error) => return Err(error),
        },
    };
    if let Some(made) = &step.makes {
        broken.retain(|(place, _)| place != made);
        if ended.skipped.is_some() {
            broken.push((made.clone(), step.id.clone()));
        }
    }
    if let Some(why) = &ended.skipped {
        eprintln!("left out: {why}");
    }
    Ok(Some(ended))
}

/// How long it all takes, of what was estimated.
#[derive(Clone, Copy, Default, Debug)]
struct Pace {
    /// What the steps that are still to be done were estimated at.
    left: Duration,
    /// What those were estimated at that are done.
    estimated: Duration,
    /// What these have taken.
    taken: Duration,
}

impl Pace {
    /// A step has ended, which was estimated at that and has taken this; one that was left out says nothing of the others.
    fn done(&mut self, estimate: Duration, taken: Duration, is_left_out: bool) {
        self.left = self.left.saturating_sub(estimate);
        if !is_left_out {
            self.estimated += estimate;
            self.taken += taken;
        }
    }

    /// What is left, where it goes on as it went.
    fn time_left(self) -> Duration {
        match self.estimated.is_zero() {
            true => self.left,
            false => self.left.mul_f64(self.taken.as_secs_f64() / self.estimated.as_secs_f64()),
        }
    }
}

/// Does what is left to do, and makes the report.
fn go_on(
    experiment: &dyn Experiment,
    mut run: Record,
    arguments: &Arguments,
    stop: &AtomicBool,
) -> Result<()> {
    let data = fs::canonicalize(run.folder())?.join("data");
    let steps = experiment.steps(&run.order, &data);
    let is_due = |step| is_due(step, &run, &data.to_string_lossy());
    let due = steps.iter().map(is_due).collect::<Result<Vec<bool>>>()?;
    fs::create_dir_all(&data).with_context(|| format!("cannot make the folder {data:?}"))?;
    let to_do = to_do(&steps, &due, confine::is_made);
    let mut pace = Pace { left: to_do.iter().map(|step| step.estimate).sum(), ..Pace::default() };
    let mut broken = Vec::new();
    let under = Circumstances::now();
    for (number, step) in to_do.iter().enumerate() {
        let left = format_duration(Duration::from_secs(pace.time_left().as_secs_f64().round() as u64));
        eprintln!("{}/{}, about {left} left: {}", number + 1, to_do.len(), step.what);
        let began = Instant::now();
        let Some(mut ended) = attempt(step, &mut broken, &run, stop)? else {
            eprintln!("interrupted; to go on: gannet lab run --resume {}", run.folder().display());
            // Its lock goes with it.
            drop(run);
            std::process::exit(130);
        };
        pace.done(step.estimate, began.elapsed(), ended.skipped.is_some());
        // What was made again brings nothing new.
        if run.find(&step.id).is_none() {
            let rival = rival_of(experiment, step, &ended);
            ended.under = Some(Circumstances { rival, ..under.clone() });
            run.add(ended)?;
        }
    }
    if !arguments.keeps_data {
        folders::remove(&data)?;
    }
    if run.ended.iter().any(|ended| ended.skipped.is_some()) {
        eprintln!(
            "some of it failed, see the report; to try that again: gannet lab run --resume {}",
            run.folder().display()
        );
    }
    let document = complete(document(&run)?, std::slice::from_ref(&run));
    write(&document, run.folder())?;
    output::line(run.folder().join("report.html").display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: &str, words: &[&str], makes: Option<&str>) -> Step {
        Step {
            id: id.to_owned(),
            command: words.iter().map(|&word| word.to_owned()).collect(),
            makes: makes.map(PathBuf::from),
            ..Step::default()
        }
    }

    #[test]
    fn what_is_missing_is_made_again_where_somebody_needs_it() {
        let steps = [
            step("load a", &["load", "data/a"], Some("data/a")),
            step("load b", &["load", "data/b"], Some("data/b")),
            step("crash 1", &["crash", "data/a", "data/a-k"], Some("data/a-k")),
            step("start 1", &["start", "data/a-k"], None),
            step("crash 2", &["crash", "data/a", "data/a-k"], Some("data/a-k")),
            step("start 2", &["start", "data/a-k"], None),
        ];
        let of = |due: &[&str], there: &[&str]| {
            let due: Vec<bool> = steps.iter().map(|step| due.contains(&&*step.id)).collect();
            let is_there = |place: &Path| there.iter().any(|one| Path::new(one) == place);
            to_do(&steps, &due, is_there).into_iter().map(|step| step.id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(of(&["start 2"], &[]), ["load a", "crash 2", "start 2"]);
        assert_eq!(of(&["start 2"], &["data/a"]), ["crash 2", "start 2"]);
        assert_eq!(of(&["start 1"], &["data/a-k"]), ["start 1"]);
        assert!(of(&[], &[]).is_empty());
    }

    #[test]
    fn a_run_is_not_gone_on_with_by_another_build_unless_that_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let order = usual(find("X4").unwrap(), Size::Quick);
        let begun = json!({ "lab": "0.0.9", "machine": { "commit": "abc" } });
        let mut run = Record::create(&folder.path().join("run"), &order, 2, begun).unwrap();
        let now = Circumstances { lab: "0.1.0 (def)".to_owned(), ..Circumstances::default() };
        // What has measured nothing yet is nobody's.
        must_go_on_alike(&run, &now, false).unwrap();
        let ended = Ended { skipped: None, ..step("one", &["sh"], None).left_out(String::new()) };
        run.add(ended.clone()).unwrap();
        let error = must_go_on_alike(&run, &now, false).unwrap_err().to_string();
        assert!(error.contains("lab 0.0.9 (abc)") && error.contains("lab 0.1.0 (def)"), "{error}");
        assert!(error.contains("--any-build"), "{error}");
        must_go_on_alike(&run, &now, true).unwrap();
        run.add(Ended { id: "two".to_owned(), under: Some(now.clone()), ..ended }).unwrap();
        // A swap that was switched off is no other build.
        must_go_on_alike(&run, &Circumstances { has_swap: true, ..now }, false).unwrap();
    }

    #[test]
    fn a_rivals_version_is_what_its_program_prints() {
        let step = Step { rival: Some("lmdb"), ..step("look-ups", &["lmdb"], None) };
        let ended =
            Ended { output: vec![json!({ "driver": "lmdb 0.9.24" })], ..step.left_out(String::new()) };
        let of = rival_of(find("X4").unwrap(), &step, &ended);
        assert_eq!(of, Some(("lmdb".to_owned(), "lmdb 0.9.24".to_owned())));
        assert_eq!(rival_of(find("X4").unwrap(), &Step { rival: None, ..step }, &ended), None);
    }

    #[test]
    fn what_is_left_is_told_by_the_pace_so_far() {
        let seconds = Duration::from_secs;
        let mut pace = Pace { left: seconds(100), ..Pace::default() };
        assert_eq!(pace.time_left(), seconds(100));
        pace.done(seconds(10), seconds(25), false);
        assert_eq!(pace.time_left(), seconds(225));
        pace.done(seconds(40), seconds(1), true);
        assert_eq!(pace.time_left(), seconds(125));
        pace.done(seconds(10), seconds(15), false);
        assert_eq!(pace.time_left(), seconds(80));
    }

    #[test]
    fn a_rivals_failure_is_told_and_ends_no_run() {
        let folder = tempfile::tempdir().unwrap();
        let order = Order {
            experiment: "squeeze".to_owned(),
            size: Size::Quick,
            rivals: Vec::new(),
            modes: Vec::new(),
            profiles: Vec::new(),
            repeat: 1,
            seed: 1,
        };
        let mut run = Record::create(&folder.path().join("run"), &order, 3, Value::Null).unwrap();
        let made = folder.path().join("made").display().to_string();
        let fails = ["sh", "-c", "echo 'the disk is full' >&2; exit 3"];
        let load = Step { rival: Some("other"), ..step("load", &fails, Some(&made)) };
        let look = Step { rival: Some("other"), ..step("look", &["sh", "-c", "echo 1", "sh", &made], None) };
        let (mut broken, go_on) = (Vec::new(), AtomicBool::new(false));
        let ended = attempt(&load, &mut broken, &run, &go_on).unwrap().unwrap();
        assert!(ended.skipped.as_ref().is_some_and(|why| why.contains("exit status: 3: the disk is full")));
        run.add(ended).unwrap();
        let ended = attempt(&look, &mut broken, &run, &go_on).unwrap().unwrap();
        assert!(ended.skipped.as_ref().is_some_and(|why| why.contains("needs what \"load\"")), "{ended:?}");
        run.add(ended).unwrap();
        assert!(is_due(&load, &run, "data").unwrap());
        let text = document(&run).unwrap().markdown();
        assert!(text.contains("2 of the steps failed") && text.contains("| load |"), "{text}");
        // What is ours has to work.
        let ours = Step { rival: None, ..load };
        assert!(attempt(&ours, &mut broken, &run, &go_on).is_err());
    }

    #[test]
    fn a_command_is_the_same_where_the_run_was_moved_and_in_nothing_else() {
        let words = |data: &str, rows: &str| {
            [
                "gannet-lab",
                "store",
                "--dir",
                &format!("{data}/gannet-1x"),
                &format!("from={data}/x"),
                "--rows",
                rows,
            ]
            .map(str::to_owned)
        };
        let now = words("/there/data", "5");
        assert_eq!(place_then(&now, &now, "/there/data").as_deref(), Some("/there/data"));
        let then = words("/here/run/data", "5");
        assert_eq!(place_then(&then, &now, "/there/data").as_deref(), Some("/here/run/data"));
        assert_eq!(place_then(&words("/there/data", "6"), &now, "/there/data"), None);
        assert_eq!(place_then(&words("/here/run/data", "6"), &now, "/there/data"), None);
        assert_eq!(place_then(&then[..6], &now, "/there/data"), None);
    }

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
