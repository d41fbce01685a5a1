//! Trials of embedded databases: lives ([`super::life`]) that are begun, watched, and killed by the process that measures them.

use super::life::{self, Purpose};
use super::{Setup, Side, Work, copy, database, go_on, keep_told, read_told};
use crate::confine::{Group, chill, tied, to_end};
use crate::tpcb::check::Told;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A life that goes on until it ends, or this is dropped.
struct Life {
    child: Child,
    began: Instant,
    lines: Receiver<Value>,
    complaint: Option<JoinHandle<String>>,
    group: Option<Group>,
}

/// The program of a life, and its words.
fn command(setup: &Setup, folder: &Path, purpose: Purpose) -> Result<(PathBuf, Vec<String>)> {
    Ok(match setup.side {
        Side::BerkeleyDb => (program(setup)?, program_arguments(setup, folder, purpose)),
        _ => (std::env::current_exe()?, arguments(setup, folder, purpose)),
    })
}

fn program(setup: &Setup) -> Result<PathBuf> {
    setup.program.clone().context("--program is missing: what `gannet-lab rival` has built")
}

/// Of a budget, what Berkeley DB's cache has: what it keeps for transactions as it recovers comes on top.
const PROGRAM_PERCENT: u64 = 75;

/// The options of a rival's program, which is given whole seconds.
fn program_arguments(setup: &Setup, folder: &Path, purpose: Purpose) -> Vec<String> {
    let numbers = [
        ("--memory", setup.budget() / 100 * PROGRAM_PERCENT),
        ("--log", setup.log),
        ("--threads", setup.sessions as u64),
        ("--rows", setup.rows),
        ("--seconds", setup.time.as_secs_f64().ceil() as u64),
        ("--seed", setup.seed),
    ];
    let mut words = ["live", "--purpose", purpose.name(), "--dir"].map(str::to_owned).to_vec();
    words.push(database(folder).display().to_string());
    words.extend(shape());
    words.extend(numbers.into_iter().flat_map(|(name, number)| [name.to_owned(), number.to_string()]));
    words
}

/// What rows and pages are like, in a rival's options.
fn shape() -> [String; 4] {
    let [value, page] = [life::VALUE_LEN, life::PAGE_SIZE].map(|bytes| bytes.to_string());
    ["--value-size".to_owned(), value, "--page-size".to_owned(), page]
}

/// The options of a life's command.
fn arguments(setup: &Setup, folder: &Path, purpose: Purpose) -> Vec<String> {
    let mut words = vec!["restart".to_owned(), "life".to_owned()];
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    add("--side", setup.side.name().to_owned());
    add("--from", folder.display().to_string());
    add("--purpose", purpose.name().to_owned());
    add("--memory", setup.memory.to_string());
    add("--io", setup.io.clone());
    add("--log", setup.log.to_string());
    add("--sessions", setup.sessions.to_string());
    add("--rows", setup.rows.to_string());
    add("--seconds", setup.time.as_secs_f64().to_string());
    add("--seed", setup.seed.to_string());
    if let Some((name, profile)) = &setup.profile {
        add("--profile", name.clone());
        add("--width", profile.width.to_string());
        add("--write-rate", profile.write_bytes_per_second.to_string());
    }
    words
}

impl Life {
    /// Begins one, with nothing of its files in the page cache.
    fn begin(setup: &Setup, folder: &Path, purpose: Purpose) -> Result<Self> {
        chill(&[database(folder)])?;
        let group = Group::new(setup.memory);
        let (program, words) = command(setup, folder, purpose)?;
        // It does not outlive us, however we end.
        let mut command = tied(group.as_ref(), &program, "KILL");
        command.args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let began = Instant::now();
        let mut child = command.spawn().context("cannot start /bin/sh")?;
        let (out, complaint) = (child.stdout.take(), child.stderr.take());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or_else(|_| json!({ "event": line }));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        let complaint = complaint.map(|mut from| {
            std::thread::spawn(move || {
                let mut text = String::new();
                // What can be read counts.
                let _ = from.read_to_string(&mut text);
                text
            })
        });
        Ok(Life { child, began, lines, complaint, group })
    }

    /// Waits for this event.
    fn event(&mut self, name: &str, stop: &AtomicBool) -> Result<Value> {
        loop {
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(event) if event["event"] == name => return Ok(event),
                Ok(event) => bail!("a life says {event} instead of {name}"),
                Err(RecvTimeoutError::Timeout) => go_on(stop)?,
                Err(RecvTimeoutError::Disconnected) => {
                    let said = self.complaint.take().and_then(|thread| thread.join().ok());
                    let said = said.unwrap_or_default();
                    if self.group.as_ref().and_then(Group::killed).is_some_and(|killed| killed > 0) {
                        bail!("a life has ended before {name}: its memory cgroup had none left");
                    }
                    let last = said.trim().lines().last().unwrap_or("it says nothing");
                    bail!("a life has ended before {name}: {last}");
                }
            }
        }
    }

    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn group(&self) -> Value {
        self.group.as_ref().map_or(Value::Null, Group::report)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.kill();
    }
}

/// Compares what a life has found with what threads were told before.
fn check(open: &Value, told: &[Told], is_exact: bool) -> Result<()> {
    let found: Vec<u64> = serde_json::from_value(open["counted"].clone())?;
    for (thread, told) in told.iter().enumerate() {
        let found = *found.get(thread).context("a thread's counter is missing")?;
        if found < told.acknowledged {
            bail!(
                "commits are lost: thread {thread} was told of {} and {found} are there",
                told.acknowledged
            );
        }
        // Those that were told between the count and the kill are not known.
        if is_exact && found > told.acknowledged {
            bail!("thread {thread} was told of {}, and {found} are there", told.acknowledged);
        }
    }
    Ok(())
}

fn told(end: &Value) -> Result<Vec<Told>> {
    let told: Vec<u64> = serde_json::from_value(end["told"].clone())?;
    Ok(told.into_iter().map(|acknowledged| Told { acknowledged, unknown: 0 }).collect())
}

/// Makes a database.
///
/// # Errors
/// The database's.
pub fn load(setup: &Setup, to: &Path, stop: &AtomicBool) -> Result<Value> {
    let begun = Instant::now();
    let settings = match setup.side {
        Side::BerkeleyDb => load_by_program(setup, &database(to), stop)?,
        _ => life::load(setup, &database(to))?,
    };
    Ok(
        json!({ "step": "load", "side": setup.side.name(), "settings": settings, "seconds": begun.elapsed().as_secs_f64() }),
    )
}

/// Has a rival's program make a database; gives its settings.
fn load_by_program(setup: &Setup, folder: &Path, stop: &AtomicBool) -> Result<Value> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {folder:?}"))?;
    let rows = life::rows(setup).count.to_string();
    let mut words = vec![OsStr::new("load"), OsStr::new("--dir"), folder.as_os_str()];
    let shape = shape();
    words.extend(shape.iter().map(OsStr::new));
    words.extend(["--rows", &rows].map(OsStr::new));
    let mut said: Value = serde_json::from_str(&to_end(&program(setup)?, &words, stop)?)?;
    Ok(said["settings"].take())
}

/// Loads a copy, and lets it die at full load.
///
/// # Errors
/// The database's, or that somebody wants an end.
pub fn crash(setup: &Setup, from: &Path, to: &Path, stop: &AtomicBool) -> Result<Value> {
    copy(from, to, stop)?;
    let mut life = Life::begin(setup, to, Purpose::Die)?;
    let open = life.event("open", stop)?;
    let mut end = life.event("end", stop)?;
    life.child.wait()?;
    let told = told(&end)?;
    keep_told(to, &told)?;
    let counted: Vec<u64> = serde_json::from_value(open["counted"].clone())?;
    let acknowledged =
        told.iter().map(|told| told.acknowledged).sum::<u64>().saturating_sub(counted.iter().sum());
    let samples = end["samples"].take();
    Ok(json!({
        "step": "crash", "side": setup.side.name(), "driver": open["driver"], "settings": open["settings"],
        "log_bytes": end["log_bytes"], "samples": samples, "acknowledged_counts": acknowledged, "group": life.group(),
    }))
}

/// How fast it is while nothing is the matter: a copy of what was loaded, under load.
///
/// # Errors
/// As [`crash`].
pub fn steady(setup: &Setup, from: &Path, work: &Path, stop: &AtomicBool) -> Result<Value> {
    let work = Work::copy_of(from, work, stop)?;
    let mut life = Life::begin(setup, &work.0, Purpose::Work)?;
    let open = life.event("open", stop)?;
    let mut end = life.event("end", stop)?;
    // How it ends is of no interest.
    life.kill()?;
    Ok(
        json!({ "step": "steady", "side": setup.side.name(), "settings": open["settings"], "samples": end["samples"].take(), "latency_us": end["latency_us"].take() }),
    )
}

/// Starts a copy of what a crash has left, works on it from the first commit on, closes it under load, and looks what is there.
///
/// # Errors
/// As [`crash`]; or something is lost.
pub fn loaded(setup: &Setup, from: &Path, work: &Path, stop: &AtomicBool) -> Result<Value> {
    let before = read_told(from)?;
    let work = Work::copy_of(from, work, stop)?;
    let mut life = Life::begin(setup, &work.0, Purpose::Work)?;
    let open = life.event("open", stop)?;
    check(&open, &before, false)?;
    let mut end = life.event("end", stop)?;
    let closed = life.event("closed", stop)?;
    life.child.wait()?;
    let group = life.group();
    drop(life);
    // Once more: what was done since is to be there, too.
    let after = told(&end)?;
    let rest = Setup { time: Duration::ZERO, ..setup.clone() };
    let mut life = Life::begin(&rest, &work.0, Purpose::Rest)?;
    check(&life.event("open", stop)?, &after, true)?;
    Ok(json!({
        "step": "loaded", "side": setup.side.name(), "settings": open["settings"],
        "first_commit_seconds": open["first_commit_seconds"], "samples": end["samples"].take(), "latency_us": end["latency_us"].take(),
        "redo_seconds": end["redo_seconds"], "restart": end["restart"].take(), "shutdown_loaded_seconds": closed["seconds"],
        "checked_counters": after.len(), "group": group,
    }))
}

/// Starts a copy of what a crash has left, leaves it in peace until everything is redone, and closes it; and another copy, which is killed in the middle of that.
///
/// # Errors
/// As [`loaded`].
pub fn rest(setup: &Setup, from: &Path, work: &Path, again: bool, stop: &AtomicBool) -> Result<Value> {
    let told = read_told(from)?;
    let copy = Work::copy_of(from, work, stop)?;
    let mut life = Life::begin(setup, &copy.0, Purpose::Rest)?;
    let open = life.event("open", stop)?;
    check(&open, &told, false)?;
    let mut end = life.event("end", stop)?;
    let closed = life.event("closed", stop)?;
    drop((life, copy));
    let mut result = json!({
        "step": "rest", "side": setup.side.name(), "settings": open["settings"], "first_commit_seconds": open["first_commit_seconds"],
        "log_bytes": end["log_bytes"], "redo_seconds": end["redo_seconds"], "watched_seconds": end["watched_seconds"], "restart": end["restart"].take(),
        "shutdown_idle_seconds": closed["seconds"], "checked_counters": told.len(),
    });
    if again {
        let redone = end["redo_seconds"].as_f64().or(end["watched_seconds"].as_f64());
        // Who has nothing left to do behind the first commit is killed before it.
        let whole = if setup.side == Side::Gannet { redone } else { open["first_commit_seconds"].as_f64() };
        let after = Duration::from_secs_f64(whole.unwrap_or(0.0) / 2.0);
        result["again"] = killed_again(setup, &Work::copy_of(from, work, stop)?, after, &told, stop)?;
    }
    Ok(result)
}

/// Starts it, kills it after so long, and starts it once more.
fn killed_again(
    setup: &Setup,
    work: &Work,
    after: Duration,
    told: &[Told],
    stop: &AtomicBool,
) -> Result<Value> {
    let mut life = Life::begin(setup, &work.0, Purpose::Rest)?;
    super::sleep_until(life.began + after, stop)?;
    life.kill()?;
    // What it has said is still to be read, to its end.
    let mut said = Vec::new();
    while let Ok(event) = life.lines.recv() {
        said.push(event);
    }
    let has_said = |name: &str| said.iter().any(|event| event["event"] == name);
    let (was_open, was_done) = (has_said("open"), has_said("end"));
    drop(life);
    let mut life = Life::begin(setup, &work.0, Purpose::Rest)?;
    let open = life.event("open", stop)?;
    check(&open, told, false)?;
    let mut end = life.event("end", stop)?;
    Ok(json!({
        "killed_after_seconds": after.as_secs_f64(), "was_open": was_open, "was_done": was_done,
        "first_commit_seconds": open["first_commit_seconds"], "redo_seconds": end["redo_seconds"], "restart": end["restart"].take(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_behind_is_a_loss() {
        let told = [Told { acknowledged: 5, unknown: 0 }];
        let open = |found: u64| json!({ "counted": [found] });
        check(&open(5), &told, true).unwrap();
        check(&open(6), &told, false).unwrap();
        assert!(check(&open(6), &told, true).is_err());
        assert!(check(&open(4), &told, false).unwrap_err().to_string().contains("lost"));
        assert!(check(&json!({ "counted": [] }), &told, false).is_err());
    }
}
