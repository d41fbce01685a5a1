//! A trial: one configuration, tried once.
//!
//! It works on a fresh copy of a database, cold, with a server of its own; what was there before stays as it is. When the load is over, it is checked that what was
//! acknowledged is there, and the copy goes.

use super::builtin;
use super::load::{self, Mix};
use super::observer::Observer;
use super::tuner::exact_size;
use crate::confine::chill;
use crate::servers::{self, Kind, Options};
use anyhow::{Context, Result, anyhow};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often transactions are counted.
const INTERVAL: Duration = Duration::from_millis(100);
/// A trial is measured for so long at least: transactions are counted once in it.
pub const MEASURE_LEAST: Duration = INTERVAL;
/// Budget in which a database is created.
const CREATE_MEMORY: u64 = 64 << 20;
/// Bytes of memory that are outside of the budget: for the process, and for each connection.
const PROCESS: u64 = 64 << 20;
const CONNECTION: u64 = 512 << 10;
/// Connections of our own, beside the load's.
pub(super) const OURS: usize = 4;

/// What is tried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Bytes of the memory budget.
    pub memory: u64,
    /// Bytes of a page.
    pub page_size: u64,
    /// Bytes that a sort may take, `work_mem`; 0: its share of the budget.
    pub sort_memory: u64,
    /// Connections.
    pub connections: usize,
    /// Whether a commit waits until it is durable; without, it is durable a moment later (`synchronous_commit = off`, at most `max_delay`).
    pub is_synchronous: bool,
    /// I/O mode that is asked for.
    pub io: String,
}

impl Config {
    /// Bytes of memory that its server needs in all: the budget, and what is documented to be outside of it.
    pub fn limit(&self) -> u64 {
        self.memory + PROCESS + (self.connections + OURS) as u64 * CONNECTION
    }

    /// For people.
    pub fn describe(&self) -> String {
        let sorts = match self.sort_memory {
            0 => String::new(),
            bytes => format!(", sorts {}", exact_size(bytes)),
        };
        let commits = if self.is_synchronous { "" } else { ", asynchronous commits" };
        format!(
            "memory {}, pages {}, {} connections, io {}{sorts}{commits}",
            exact_size(self.memory),
            exact_size(self.page_size),
            self.connections,
            self.io
        )
    }
}

/// How everything is tried.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The file of which each trial has a copy.
    pub template: PathBuf,
    /// Where the copy goes: a folder that is not there yet.
    pub folder: PathBuf,
    /// Whether each server is held by a memory cgroup, page cache included: its budget, and what is documented to be outside of it.
    pub is_confined: bool,
    /// What connections do.
    pub mix: Mix,
    /// The built-in load's tables, which are checked afterwards.
    pub size: Option<builtin::Size>,
    /// Time before anything is measured.
    pub warm_up: Duration,
    /// Measured time.
    pub measure: Duration,
    /// Seed of random numbers.
    pub seed: u64,
}

/// A configuration that cannot be: why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Impossible(pub String);

/// Copies a file that nobody has open, durably, so that the page cache can let it go.
///
/// # Errors
/// The system's.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {from:?} to {to:?}"))?;
    File::open(to)?.sync_all()?;
    // The next trial is to find memory as this one does.
    chill(&[from.to_owned()])
}

/// The folder of a database's log.
pub fn log_of(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push("-wal");
    PathBuf::from(name)
}

/// Copies a database with its log, which has what is not at home yet: a close leaves that to the next start where it would take too long.
///
/// # Errors
/// The system's, or there is a log at the other place.
pub fn copy_with_log(from: &Path, to: &Path) -> Result<()> {
    copy(from, to)?;
    let (log, log_there) = (log_of(from), log_of(to));
    if log.is_dir() {
        fs::create_dir(&log_there).with_context(|| format!("cannot make {log_there:?}"))?;
        for entry in fs::read_dir(&log)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                copy(&entry.path(), &log_there.join(entry.file_name()))?;
            }
        }
    }
    Ok(())
}

/// Creates an empty database with pages of this size, and segments of the log, one of which has to fit into every budget that it is opened with.
///
/// # Errors
/// The size is none that pages or segments can have, or the file is there.
pub fn create(file: &Path, page_size: u64, segment_size: u64) -> Result<()> {
    let options = EngineOptions { memory: CREATE_MEMORY, ..EngineOptions::default() };
    let engine = Engine::new(&options)?;
    let create = CreateOptions { page_size: usize::try_from(page_size)?, segment_size };
    let owner = whoami::username().unwrap_or_else(|_| "gannet".to_owned());
    let made = gannet_sql::Database::create(&engine, file, &create, &OpenOptions::default(), &owner);
    made.and_then(gannet_sql::Database::close).with_context(|| format!("cannot create {file:?}"))
}

/// Tries a configuration; gives what was measured, as JSON.
///
/// # Errors
/// [`Impossible`], where the server refuses the configuration, or the load fails with it; else what went wrong, or "interrupted".
pub fn run(setup: &Setup, config: &Config, stop: &AtomicBool) -> Result<Value> {
    if setup.folder.exists() {
        fs::remove_dir_all(&setup.folder).with_context(|| format!("cannot remove {:?}", setup.folder))?;
    }
    servers::make(Kind::Gannet, &setup.folder)?;
    let done = in_folder(setup, config, stop);
    let removed =
        fs::remove_dir_all(&setup.folder).with_context(|| format!("cannot remove {:?}", setup.folder));
    let log = setup.folder.with_extension("log");
    if done.is_ok() && log.exists() {
        fs::remove_file(&log)?;
    }
    if stop.load(Ordering::Relaxed) {
        // Whatever else it says: a server that was stopped, too, refuses its clients.
        return Err(anyhow!("interrupted"));
    }
    let measured = done?;
    removed?;
    Ok(measured)
}

fn in_folder(setup: &Setup, config: &Config, stop: &AtomicBool) -> Result<Value> {
    copy(&setup.template, &servers::database(&setup.folder))?;
    let given = [
        ("--memory", config.memory.to_string()),
        ("--io", config.io.clone()),
        ("--max-connections", (config.connections + OURS).to_string()),
    ];
    let options = Options {
        kind: Kind::Gannet,
        folder: setup.folder.clone(),
        memory: setup.is_confined.then(|| config.limit()),
        io: config.io.clone(),
        settings: given.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect(),
    };
    let impossible = |error: anyhow::Error| {
        if stop.load(Ordering::Relaxed) {
            anyhow!("interrupted")
        } else {
            Impossible(format!("{error:#}")).into()
        }
    };
    let server = options.start().map_err(impossible)?;
    let mut observer = Observer::new(&server, &setup.folder)?;
    // Connections that find no memory, or a server that ends: others may still be.
    let look = &mut |moment| observer.look(moment);
    let outcome = load::run(&|| server.client("lab"), &setup.mix, &plan(setup, config), stop, look)
        .map_err(impossible)?;
    if let Some(size) = setup.size {
        // The report is the second script.
        builtin::check(&mut observer.client, size, outcome.done[0])?;
    }
    let mut measured = observer.report(&outcome, config, &setup.mix, setup.seed)?;
    measured["server"] = server.describe();
    let group = server.group();
    drop(observer);
    measured["group"] = group;
    measured["file_bytes"] = json!(fs::metadata(servers::database(&setup.folder))?.len());
    measured["shutdown_seconds"] = json!(server.stop()?.as_secs_f64());
    Ok(measured)
}

/// How the load runs.
pub(super) fn plan(setup: &Setup, config: &Config) -> load::Plan {
    load::Plan {
        connections: config.connections,
        warm_up: setup.warm_up,
        measure: setup.measure,
        interval: INTERVAL,
        setup: session_settings(config),
        seed: setup.seed,
    }
}

fn session_settings(config: &Config) -> Vec<String> {
    let mut settings = Vec::new();
    if config.sort_memory > 0 {
        settings.push(format!("set work_mem = '{}kB'", config.sort_memory >> 10));
    }
    if !config.is_synchronous {
        settings.push("set synchronous_commit = off".to_owned());
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_told_what_differs_from_the_default() {
        let config = Config {
            memory: 64 << 20,
            page_size: 8192,
            sort_memory: 1 << 20,
            connections: 20,
            is_synchronous: false,
            io: "auto".to_owned(),
        };
        assert_eq!(session_settings(&config), ["set work_mem = '1024kB'", "set synchronous_commit = off"]);
        let default = Config { sort_memory: 0, is_synchronous: true, ..config.clone() };
        assert!(session_settings(&default).is_empty());
        assert_eq!(
            config.describe(),
            "memory 64MiB, pages 8KiB, 20 connections, io auto, sorts 1MiB, asynchronous commits"
        );
    }
}
