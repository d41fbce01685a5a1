//! A run of an experiment, as a folder: what was asked for, and what each step has brought, raw.
//!
//! - `run.json`: the experiment, what was asked for, machine, kernel, versions, seed, commit. Written once.
//! - `steps.jsonl`: one line for each step that has ended, appended and synced when it has. A run that was interrupted goes on behind the last whole
//!   line; half a line, which a crash has left, counts as none.
//! - `data/`: the databases, removed when the run is complete, unless they are to be kept.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The layout that this code writes, and reads.
const FORMAT: u32 = 1;
const RUN: &str = "run.json";
const STEPS: &str = "steps.jsonl";

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
    /// How often each measurement is repeated.
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
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    order: Order,
    circumstances: Value,
}

/// A run's folder.
#[derive(Debug)]
pub struct Record {
    folder: PathBuf,
    /// What was asked for.
    pub order: Order,
    /// Machine, kernel, versions.
    pub circumstances: Value,
    /// What has ended, in the order in which it did.
    pub ended: Vec<Ended>,
}

impl Record {
    /// A new run in a folder that is not there yet, or empty.
    pub fn create(folder: &Path, order: &Order, circumstances: Value) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {folder:?}"))?;
        if fs::read_dir(folder)?.next().is_some() {
            bail!(
                "{folder:?} is not empty: give the run another folder, or go on with what is there by --resume {}",
                folder.display()
            );
        }
        let head = Head { format: FORMAT, order: order.clone(), circumstances };
        let mut file = File::create(folder.join(RUN))?;
        file.write_all(serde_json::to_string_pretty(&head)?.as_bytes())?;
        file.sync_all()?;
        File::create(folder.join(STEPS))?.sync_all()?;
        File::open(folder)?.sync_all()?;
        Record::open(folder)
    }

    /// A run that is there.
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
        let steps = folder.join(STEPS);
        let text = fs::read(&steps).with_context(|| format!("{steps:?}"))?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let mut ended = Vec::new();
        for (number, line) in
            text[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty())
        {
            ended.push(
                serde_json::from_slice(line).with_context(|| format!("{steps:?}, line {}", number + 1))?,
            );
        }
        let Head { order, circumstances, .. } = head;
        Ok(Record { folder: folder.to_owned(), order, circumstances, ended })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where its databases are.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// What a step has brought, if it has ended.
    pub fn find(&self, id: &str) -> Option<&Ended> {
        self.ended.iter().find(|ended| ended.id == id)
    }

    /// Adds a step that has ended, durably.
    pub fn add(&mut self, ended: Ended) -> Result<()> {
        let path = self.folder.join(STEPS);
        let mut file =
            OpenOptions::new().append(true).read(true).open(&path).with_context(|| format!("{path:?}"))?;
        let mut line = serde_json::to_vec(&ended)?;
        line.push(b'\n');
        let len = fs::metadata(&path)?.len();
        let text = fs::read(&path)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        if (whole as u64) < len {
            // A crash has left half a line.
            file.set_len(whole as u64)?;
        }
        file.write_all(&line)?;
        file.sync_all()?;
        self.ended.push(ended);
        Ok(())
    }
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
        }
    }

    #[test]
    fn a_run_is_found_again_with_all_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("run");
        let mut run = Record::create(&folder, &order(), json!({"cpus": 2})).unwrap();
        run.add(step("one")).unwrap();
        run.add(step("two")).unwrap();
        assert!(Record::create(&folder, &order(), Value::Null).unwrap_err().to_string().contains("--resume"));
        let mut file = OpenOptions::new().append(true).open(folder.join(STEPS)).unwrap();
        file.write_all(b"{\"id\":\"thr").unwrap();
        let mut again = Record::open(&folder).unwrap();
        assert_eq!((again.ended.len(), &again.order, again.find("two")), (2, &order(), Some(&step("two"))));
        again.add(step("three")).unwrap();
        assert_eq!(Record::open(&folder).unwrap().ended, [step("one"), step("two"), step("three")]);
    }

    #[test]
    fn a_run_of_before_there_were_profiles_is_read() {
        let folder = tempfile::tempdir().unwrap();
        drop(Record::create(folder.path(), &order(), Value::Null).unwrap());
        let file = folder.path().join(RUN);
        let mut head: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        head["order"].as_object_mut().unwrap().remove("profiles").unwrap();
        fs::write(&file, head.to_string()).unwrap();
        let run = Record::open(folder.path()).unwrap();
        assert_eq!(run.order, Order { profiles: Vec::new(), ..order() });
    }

    #[test]
    fn what_is_no_run_or_a_broken_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(format!("{:#}", Record::open(folder.path()).unwrap_err()).contains("holds no run"));
        let run = folder.path().join("run");
        drop(Record::create(&run, &order(), Value::Null).unwrap());
        fs::write(run.join(STEPS), "{\"id\":1}\n").unwrap();
        assert!(format!("{:#}", Record::open(&run).unwrap_err()).contains("line 1"));
        fs::write(run.join(RUN), "{\"format\": 99}").unwrap();
        assert!(format!("{:#}", Record::open(&run).unwrap_err()).contains("format 99"));
    }
}
