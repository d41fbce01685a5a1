//! `run`: what an experiment has to do is done step by step, and goes on where it was interrupted.

use super::{Arguments, chosen, complete, find, write};
use crate::output;
use anyhow::{Context, Result, bail};
use gannet_base::units::format_duration;
use gannet_lab::confine::{self, Step};
use gannet_lab::experiments::Experiment;
use gannet_lab::folders;
use gannet_lab::machine;
use gannet_lab::record::{Order, Record, Size};
use gannet_lab::throttle::{self, AS_IS};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

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
    let steps = experiment.steps(&order, &folder).len();
    go_on(experiment, Record::create(&folder, &order, steps, circumstances())?, arguments, stop)
}

pub(super) fn resume(arguments: &Arguments, stop: &AtomicBool) -> Result<()> {
    let folder = arguments.resume.as_deref().unwrap_or(Path::new(""));
    let run = Record::take(folder)?;
    go_on(find(&run.order.experiment.clone())?, run, arguments, stop)
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

/// Whether a step has not been done yet.
fn is_due(step: &Step, run: &Record, data: &str) -> Result<bool> {
    let Some(ended) = run.find(&step.id) else { return Ok(true) };
    if place_then(&ended.command, &step.command, data).is_none() {
        bail!(
            "{:?} was run another way by the lab that began this run ({}): begin a new one",
            step.id,
            ended.command.join(" ")
        );
    }
    Ok(false)
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
    let mut due = Vec::new();
    for step in &steps {
        if is_due(step, &run, &data.to_string_lossy())? {
            due.push(step);
        }
    }
    fs::create_dir_all(&data).with_context(|| format!("cannot make the folder {data:?}"))?;
    // What is still to be measured needs what was made for it.
    let missing =
        |step: &&Step| step.makes.as_ref().is_some_and(|made| !made.exists()) && run.find(&step.id).is_some();
    let again: Vec<&Step> = if due.is_empty() { Vec::new() } else { steps.iter().filter(missing).collect() };
    let mut left: Duration = again.iter().chain(&due).map(|step| step.estimate).sum();
    let all = again.len() + due.len();
    for (number, step) in again.iter().chain(&due).enumerate() {
        let seconds = Duration::from_secs(left.as_secs_f64().round() as u64);
        eprintln!("{}/{all}, about {} left: {}", number + 1, format_duration(seconds), step.what);
        let Some(ended) = confine::run(step, run.lock(), stop)? else {
            eprintln!("interrupted; to go on: gannet lab run --resume {}", run.folder().display());
            // Its lock goes with it.
            drop(run);
            std::process::exit(130);
        };
        left = left.saturating_sub(step.estimate);
        if run.find(&step.id).is_none() {
            run.add(ended)?;
        }
    }
    if !arguments.keeps_data {
        folders::remove(&data)?;
    }
    let document = complete(experiment.report(&run), std::slice::from_ref(&run));
    write(&document, run.folder())?;
    output::line(run.folder().join("report.html").display())
}

#[cfg(test)]
mod tests {
    use super::*;

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
