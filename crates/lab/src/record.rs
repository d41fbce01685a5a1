//! A run of an experiment, as a folder: what was asked for, and what each step has brought, raw.
//!
//! - `run.json`: the experiment, what was asked for, machine, kernel, versions, seed, commit. Written once, under another name first: where there is one, it
//!   is whole, and what is there without one is no run yet.
//! - `steps.jsonl`: one line for each step that has ended, appended and synced when it has, with the circumstances under which it was run. A run that was interrupted goes on behind the last whole
//!   line; half a line, which a crash has left, counts as none. A step that was left out, and is tried again, has a line for each time, of which the last counts.
//! - `data/`: the databases, removed when the run is complete, unless they are to be kept.
//! - `lock`: there as long as a lab works on it ([`crate::lock`]); `limited`: as long as it may have limited the disk ([`crate::throttle`]).

use crate::circumstances::Circumstances;
use crate::lock::{self, Lock};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The layout that this code writes, and reads.
const FORMAT: u32 = 1;
const RUN: &str = "run.json";
const STEPS: &str = "steps.jsonl";
/// What [`RUN`] is called until it is whole.
const HALF: &str = "run.json.new";
/// How often a measurement can be repeated at most.
pub const REPEAT_MOST: u32 = 100;
/// How long what a killed lab has left may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How large an experiment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// A few minutes; figures are rough.
    Quick,
    /// What is published.
    Standard,
    /// As large as the device allows.
    Large,
}

impl Size {
    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "quick" => Size::Quick,
            "standard" => Size::Standard,
            "large" => Size::Large,
            _ => return None,
        })
    }
}

/// What was asked for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The experiment.
    pub experiment: String,
    /// How large.
    pub size: Size,
    /// Rivals that are wanted.
    pub rivals: Vec<String>,
    /// I/O modes of our own.
    pub modes: Vec<String>,
    /// What the device is limited to, by the names of its profiles; runs of before there were any have none.
    #[serde(default)]
    pub profiles: Vec<String>,
    /// How often each measurement is repeated: 1 to [`REPEAT_MOST`].
    pub repeat: u32,
    /// Seed of random keys.
    pub seed: u64,
}

/// What a step has brought.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ended {
    /// The step.
    pub id: String,
    /// What was run.
    pub command: Vec<String>,
    /// When it began, in seconds since 1970.
    pub began_unix: u64,
    /// How long it took.
    pub seconds: f64,
    /// What it has printed: one JSON object a line.
    pub output: Vec<Value>,
    /// What its memory cgroup says, where it had one.
    pub group: Value,
    /// Why it was left out, where it was.
    pub skipped: Option<String>,
    /// Under what it was measured; steps of before this was kept have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<Circumstances>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    order: Order,
    /// How many there are to be; runs of before this was kept have none.
    #[serde(default)]
    steps: Option<usize>,
    circumstances: Value,
}

/// A run's folder.
#[derive(Debug)]
pub struct Record {
    folder: PathBuf,
    lock: Option<Lock>,
    /// What was asked for.
    pub order: Order,
    /// How many steps it has, those that are still to be done with them; `None`: it was begun by a lab that did not keep that.
    pub steps: Option<usize>,
    /// Machine, kernel, versions.
    pub circumstances: Value,
    /// What has ended, in the order in which it did.
    pub ended: Vec<Ended>,
}

impl Record {
    /// A new run of so many steps, in a folder that is not there yet, or empty. It is locked until this is dropped.
    ///
    /// # Errors
    /// There is something in the folder, somebody works there, or it cannot be written.
    pub fn create(folder: &Path, order: &Order, steps: usize, circumstances: Value) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {folder:?}"))?;
        must_be_empty(folder)?;
        let lock = Lock::take(folder, Duration::ZERO)?;
        // Somebody else may have made one before it was locked.
        must_be_empty(folder)?;
        let head = Head { format: FORMAT, order: order.clone(), steps: Some(steps), circumstances };
        put(&folder.join(STEPS), b"")?;
        put(&folder.join(HALF), serde_json::to_string_pretty(&head)?.as_bytes())?;
        fs::rename(folder.join(HALF), folder.join(RUN))
            .and_then(|()| File::open(folder)?.sync_all())
            .with_context(|| format!("cannot write {:?}", folder.join(RUN)))?;
        Ok(Record { lock: Some(lock), ..Record::open(folder)? })
    }

    /// A run that is there, to go on with it: it is locked until this is dropped.
    ///
    /// # Errors
    /// As [`Record::open`]; or somebody works on it.
    pub fn take(folder: &Path) -> Result<Self> {
        // There is no lock in what is no run.
        Record::open(folder)?;
        let lock = Lock::take(folder, PATIENCE)?;
        Ok(Record { lock: Some(lock), ..Record::open(folder)? })
    }

    /// A run that is there, to read it.
    ///
    /// # Errors
    /// It is none, or none that this lab can read.
    pub fn open(folder: &Path) -> Result<Self> {
        let text = fs::read_to_string(folder.join(RUN))
            .with_context(|| format!("{folder:?} holds no run of an experiment: no {RUN}"))?;
        let version: Value =
            serde_json::from_str(&text).with_context(|| format!("{:?}", folder.join(RUN)))?;
        if version["format"] != FORMAT {
            bail!(
                "{folder:?} was written by another version of the lab: format {}, not {FORMAT}",
                version["format"]
            );
        }
        let head: Head =
            serde_json::from_value(version).with_context(|| format!("{:?}", folder.join(RUN)))?;
        if !(1..=REPEAT_MOST).contains(&head.order.repeat) {
            bail!(
                "{:?}: each measurement is repeated 1 to {REPEAT_MOST} times, not {}",
                folder.join(RUN),
                head.order.repeat
            );
        }
        let steps = folder.join(STEPS);
        let text = fs::read(&steps).with_context(|| format!("{steps:?}"))?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let mut ended = Vec::new();
        for (number, line) in
            text[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty())
        {
            let one: Ended =
                serde_json::from_slice(line).with_context(|| format!("{steps:?}, line {}", number + 1))?;
            put_last(&mut ended, one);
        }
        let Head { order, steps, circumstances, .. } = head;
        Ok(Record { folder: folder.to_owned(), lock: None, order, steps, circumstances, ended })
    }

    /// The lock, where it was taken.
    pub fn lock(&self) -> Option<&Lock> {
        self.lock.as_ref()
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where its databases are.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// What a step has brought, if it has ended and was not left out.
    pub fn find(&self, id: &str) -> Option<&Ended> {
        self.tried(id).filter(|ended| ended.skipped.is_none())
    }

    /// The same, also where it was left out.
    pub fn tried(&self, id: &str) -> Option<&Ended> {
        self.ended.iter().find(|ended| ended.id == id)
    }

    /// Under what those steps were measured that were not left out, as far as it was kept.
    pub fn circumstances_of_steps(&self) -> impl Iterator<Item = &Circumstances> {
        self.ended.iter().filter(|ended| ended.skipped.is_none()).filter_map(|ended| ended.under.as_ref())
    }

    /// Whether a step was left out, as it failed or needs what another one was to make.
    pub fn is_left_out(&self, id: &str) -> bool {
        self.tried(id).is_some_and(|ended| ended.skipped.is_some())
    }

    /// Adds a step that has ended, durably.
    pub fn add(&mut self, ended: Ended) -> Result<()> {
        let path = self.folder.join(STEPS);
        let mut file =
            OpenOptions::new().append(true).read(true).open(&path).with_context(|| format!("{path:?}"))?;
        let mut line = serde_json::to_vec(&ended)?;
        line.push(b'\n');
        let text = fs::read(&path).with_context(|| format!("{path:?}"))?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        // A crash has left half a line.
        let cut = if whole < text.len() { file.set_len(whole as u64) } else { Ok(()) };
        cut.and_then(|()| file.write_all(&line))
            .and_then(|()| file.sync_all())
            .with_context(|| format!("cannot write {path:?}"))?;
        put_last(&mut self.ended, ended);
        Ok(())
    }
}

/// Adds what a step has brought, in place of its being left out before.
fn put_last(all: &mut Vec<Ended>, ended: Ended) {
    all.retain(|before| before.id != ended.id || before.skipped.is_none());
    all.push(ended);
}

/// Fails where there is anything in a folder but what a run leaves that could not be created.
fn must_be_empty(folder: &Path) -> Result<()> {
    let is_left = |name: &str| {
        let is_empty = || fs::metadata(folder.join(STEPS)).is_ok_and(|steps| steps.len() == 0);
        [HALF, lock::NAME].contains(&name) || (name == STEPS && is_empty())
    };
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read the folder {folder:?}"))?;
    for entry in entries {
        if !entry?.file_name().to_str().is_some_and(is_left) {
            bail!(
                "{folder:?} is not empty: give the run another folder, or go on with what is there by --resume {}",
                folder.display()
            );
        }
    }
    Ok(())
}

/// Writes a file, durably.
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.with_context(|| format!("cannot write {path:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn order() -> Order {
        Order {
            experiment: "squeeze".to_owned(),
            size: Size::Quick,
            rivals: vec!["sqlite".to_owned()],
            modes: vec!["direct".to_owned()],
            profiles: vec!["as-is".to_owned()],
            repeat: 2,
            seed: 7,
        }
    }

    fn step(id: &str) -> Ended {
        Ended {
            id: id.to_owned(),
            command: vec!["x".to_owned()],
            began_unix: 1,
            seconds: 0.5,
            output: vec![json!({"a": 1})],
            group: Value::Null,
            skipped: None,
            under: None,
        }
    }

    #[test]
    fn a_run_is_found_again_with_all_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("run");
        let mut run = Record::create(&folder, &order(), 3, json!({"cpus": 2})).unwrap();
        run.add(step("one")).unwrap();
        run.add(step("two")).unwrap();
        assert!(
            Record::create(&folder, &order(), 1, Value::Null).unwrap_err().to_string().contains("--resume")
        );
        let mut file = OpenOptions::new().append(true).open(folder.join(STEPS)).unwrap();
        file.write_all(b"{\"id\":\"thr").unwrap();
        let mut again = Record::open(&folder).unwrap();
        assert_eq!((again.ended.len(), &again.order, again.find("two")), (2, &order(), Some(&step("two"))));
        again.add(step("three")).unwrap();
        assert_eq!(Record::open(&folder).unwrap().ended, [step("one"), step("two"), step("three")]);
    }

    #[test]
    fn what_was_left_out_counts_as_tried_until_it_has_brought_something() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Record::create(folder.path(), &order(), 2, Value::Null).unwrap();
        run.add(Ended { skipped: Some("no memory".to_owned()), output: Vec::new(), ..step("one") }).unwrap();
        run.add(step("two")).unwrap();
        assert_eq!((run.find("one"), run.is_left_out("one"), run.is_left_out("two")), (None, true, false));
        run.add(step("one")).unwrap();
        for run in [&run, &Record::open(folder.path()).unwrap()] {
            assert_eq!(run.ended, [step("two"), step("one")]);
            assert!(!run.is_left_out("one"));
        }
    }

    #[test]
    fn a_run_of_before_there_were_profiles_is_read() {
        let folder = tempfile::tempdir().unwrap();
        drop(Record::create(folder.path(), &order(), 1, Value::Null).unwrap());
        let file = folder.path().join(RUN);
        let mut head: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        head["order"].as_object_mut().unwrap().remove("profiles").unwrap();
        fs::write(&file, head.to_string()).unwrap();
        let run = Record::open(folder.path()).unwrap();
        assert_eq!(run.order, Order { profiles: Vec::new(), ..order() });
    }

    #[test]
    fn two_labs_do_not_work_on_one_run_but_it_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let run = Record::create(folder.path(), &order(), 7, Value::Null).unwrap();
        let error = Record::take(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is being worked on by process"), "{error}");
        assert_eq!(Record::open(folder.path()).unwrap().steps, Some(7));
        drop(run);
        assert!(Record::take(folder.path()).unwrap().lock().is_some());
    }

    #[test]
    fn a_run_that_could_not_be_created_is_created_the_next_time() {
        let folder = tempfile::tempdir().unwrap();
        // The device was full before `run.json` was whole.
        fs::write(folder.path().join(HALF), "{").unwrap();
        fs::write(folder.path().join(STEPS), "").unwrap();
        assert!(Record::take(folder.path()).unwrap_err().to_string().contains("holds no run"));
        assert!(!folder.path().join(lock::NAME).exists());
        drop(Record::create(folder.path(), &order(), 1, Value::Null).unwrap());
        assert!(!folder.path().join(HALF).exists());
        // Steps that have lost their run are not overwritten.
        fs::remove_file(folder.path().join(RUN)).unwrap();
        fs::write(folder.path().join(STEPS), "{}\n").unwrap();
        assert!(Record::create(folder.path(), &order(), 1, Value::Null).is_err());
    }

    #[test]
    fn a_run_with_more_repetitions_than_there_can_be_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for wrong in [0, REPEAT_MOST + 1, 4_000_000_000] {
            let run = folder.path().join(wrong.to_string());
            let created = Record::create(&run, &Order { repeat: wrong, ..order() }, 1, Value::Null);
            let error = created.unwrap_err().to_string();
            assert!(error.contains("run.json") && error.contains(&format!("not {wrong}")), "{error}");
        }
    }

    #[test]
    fn what_is_no_run_or_a_broken_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(format!("{:#}", Record::open(folder.path()).unwrap_err()).contains("holds no run"));
        let run = folder.path().join("run");
        drop(Record::create(&run, &order(), 1, Value::Null).unwrap());
        fs::write(run.join(STEPS), "{\"id\":1}\n").unwrap();
        assert!(format!("{:#}", Record::open(&run).unwrap_err()).contains("line 1"));
        fs::write(run.join(RUN), "{\"format\": 99}").unwrap();
        assert!(format!("{:#}", Record::open(&run).unwrap_err()).contains("format 99"));
    }
}
