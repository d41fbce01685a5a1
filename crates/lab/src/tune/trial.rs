//! A trial: one configuration, tried once.
//!
//! It works on a fresh copy of a database, cold, with a server of its own; what was there before stays as it is. When the load is over, it is checked that what was
//! acknowledged is there, and the copy goes.

use super::builtin;
use super::load::{self, Mix, Moment};
use super::waits::{self, Watch};
use crate::confine::chill;
use crate::device::{self, Counters};
use crate::isolation::client::Client;
use crate::random::Random;
use crate::servers::{self, Kind, Options, Server};
use anyhow::{Context, Result, anyhow};
use gannet_base::units::format_size;
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often transactions are counted.
const INTERVAL: Duration = Duration::from_millis(100);
/// How many of these pass between two looks at who waits for rows.
const LOCKS_EVERY: u32 = 8;
/// How often each script is explained.
const EXPLAINED: u32 = 6;
/// Budget in which a database is created.
const CREATE_MEMORY: u64 = 64 << 20;
/// Segments of its log: a restart needs memory for one of them.
const SEGMENT: u64 = 2 << 20;
/// Bytes of memory that are outside of the budget: for the process, and for each connection.
const PROCESS: u64 = 64 << 20;
const CONNECTION: u64 = 512 << 10;
/// Connections of our own, beside the load's.
const OURS: usize = 4;

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
            bytes => format!(", sorts {}", format_size(bytes)),
        };
        let commits = if self.is_synchronous { "" } else { ", asynchronous commits" };
        format!(
            "memory {}, pages {}, {} connections, io {}{sorts}{commits}",
            format_size(self.memory),
            format_size(self.page_size),
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

/// Copies a file of a database that nobody has open, durably, so that the page cache can let it go.
///
/// # Errors
/// The system's.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {from:?} to {to:?}"))?;
    File::open(to)?.sync_all()?;
    // The next trial is to find memory as this one does.
    chill(&[from.to_owned()])
}

/// Creates an empty database with pages of this size.
///
/// # Errors
/// The size is none that pages can have, or the file is there.
pub fn create(file: &Path, page_size: u64) -> Result<()> {
    let options = EngineOptions { memory: CREATE_MEMORY, ..EngineOptions::default() };
    let engine = Engine::new(&options)?;
    // So small that the least memory can open it.
    let page_size = usize::try_from(page_size)?;
    let create = CreateOptions { page_size, segment_size: SEGMENT.max(64 * page_size as u64) };
    let owner = whoami::username().unwrap_or_else(|_| "gannet".to_owned());
    let made = gannet_sql::Database::create(&engine, file, &create, &OpenOptions::default(), &owner);
    made.and_then(gannet_sql::Database::close).with_context(|| format!("cannot create {file:?}"))
}

/// Tries a configuration; gives what was measured, as JSON.
///
/// # Errors
/// [`Impossible`], where the server refuses the configuration; else what went wrong, or "interrupted".
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
    let server = options.start().map_err(|error| {
        if stop.load(Ordering::Relaxed) {
            anyhow!("interrupted")
        } else {
            Impossible(format!("{error:#}")).into()
        }
    })?;
    let mut observer = Observer::new(&server, setup)?;
    let plan = load::Plan {
        connections: config.connections,
        warm_up: setup.warm_up,
        measure: setup.measure,
        interval: INTERVAL,
        setup: session_settings(config),
        seed: setup.seed,
    };
    let outcome = load::run(&|| server.client("lab"), &setup.mix, &plan, stop, &mut |moment| {
        observer.look(moment, &server)
    })?;
    if let Some(size) = setup.size {
        // The report is the second script.
        builtin::check(&mut observer.client, size, outcome.done[0])?;
    }
    let accesses = accesses(&mut observer.client, &setup.mix, setup.seed)?;
    let mut measured = observer.report(&outcome, config, accesses)?;
    measured["server"] = server.describe();
    let group = server.group();
    drop(observer);
    measured["group"] = group;
    measured["file_bytes"] = json!(fs::metadata(servers::database(&setup.folder))?.len());
    measured["shutdown_seconds"] = json!(server.stop()?.as_secs_f64());
    Ok(measured)
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

/// Pages that each script looks at when it is run once, by EXPLAIN, weighted; in a transaction that is rolled back. What begin and commit look at is not among them.
fn accesses(client: &mut Client, mix: &Mix, seed: u64) -> Result<f64> {
    let mut random = Random::new(!seed);
    let all: u32 = mix.scripts.iter().map(|(_, weight)| weight).sum();
    let mut pages = 0.0;
    for (number, (script, weight)) in mix.scripts.iter().enumerate() {
        let run = |client: &mut Client, sql: &str| {
            client
                .run(sql)
                .map_err(|failure| anyhow!("{}: {failure}", sql.chars().take(80).collect::<String>()))
        };
        for statement in script.prepare(number) {
            run(client, &statement)?;
        }
        for _ in 0..EXPLAINED {
            run(client, "begin")?;
            for sent in script.draw_explained(number, &mut random) {
                let answer = run(client, &sent.text)?;
                let told = answer.rows.first().and_then(|row| row.first()?.as_deref()).unwrap_or_default();
                pages += looked_at(told) * f64::from(*weight) / f64::from(all * EXPLAINED);
            }
            run(client, "rollback")?;
        }
    }
    Ok(pages)
}

/// Pages that a statement has looked at, by what EXPLAIN says of it as JSON; 0 where it says nothing of the kind.
fn looked_at(text: &str) -> f64 {
    let Ok(told) = serde_json::from_str::<Value>(text) else { return 0.0 };
    let plan = &told[0]["Plan"];
    ["Hits", "Serial Reads", "Batched Reads"].iter().filter_map(|name| plan[*name].as_f64()).sum()
}

/// What is counted at one time.
struct Counted {
    /// Requests and bytes by `CLASS OPERATION`, of Gannet.
    io: Vec<(String, u64, u64)>,
    /// Of the whole disk.
    disk: Option<Counters>,
    busy: Option<Duration>,
    /// Seconds of processors.
    server: Option<f64>,
    client: Option<f64>,
}

/// Looks at server, device and threads while a load runs.
struct Observer {
    client: Client,
    pid: u32,
    disk: String,
    began: Option<Counted>,
    ended: Option<Counted>,
    watch: Option<Watch>,
    ticks: u32,
    lock_looks: u32,
    lock_waiters: u64,
    waits: Value,
    begun: Option<std::time::Instant>,
}

impl Observer {
    fn new(server: &Server, setup: &Setup) -> Result<Self> {
        Ok(Observer {
            client: server.client("lab")?,
            pid: server.pid(),
            disk: device::number_of(&setup.folder)?,
            began: None,
            ended: None,
            watch: None,
            ticks: 0,
            lock_looks: 0,
            lock_waiters: 0,
            waits: Value::Null,
            begun: None,
        })
    }

    fn rows(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        Ok(self.client.run(sql).map_err(|failure| anyhow!("{sql}: {failure}"))?.rows)
    }

    fn count(&mut self) -> Result<Counted> {
        let rows = self.rows("select class || ' ' || operation, requests, bytes from gannet_io")?;
        let number =
            |value: &Option<String>| value.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let io = rows.iter().filter_map(|row| match row.as_slice() {
            [Some(name), requests, bytes] => Some((name.clone(), number(requests), number(bytes))),
            _ => None,
        });
        Ok(Counted {
            io: io.collect(),
            disk: Counters::of(&self.disk),
            busy: device::busy(&self.disk),
            server: waits::processor_seconds(self.pid),
            client: waits::processor_seconds(std::process::id()),
        })
    }

    fn look(&mut self, moment: Moment, _: &Server) -> Result<()> {
        match moment {
            Moment::Begin => {
                self.began = Some(self.count()?);
                // Our own session came first.
                self.watch = Some(Watch::begin(self.pid, 1));
                self.begun = Some(std::time::Instant::now());
            }
            Moment::Tick => {
                if let Some(watch) = &mut self.watch {
                    watch.look();
                }
                self.ticks += 1;
                if self.ticks.is_multiple_of(LOCKS_EVERY) {
                    let waiting =
                        self.rows("select count(*) from pg_stat_activity where wait_event_type = 'Lock'")?;
                    self.lock_looks += 1;
                    let found = waiting.first().and_then(|row| row.first()?.as_deref()?.parse().ok());
                    self.lock_waiters += found.unwrap_or(0);
                }
            }
            Moment::End => {
                let seconds = self.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
                self.waits = self.watch.take().map_or(Value::Null, |watch| watch.end(seconds));
                self.ended = Some(self.count()?);
            }
        }
        Ok(())
    }

    fn report(&mut self, outcome: &load::Outcome, config: &Config, accesses: f64) -> Result<Value> {
        let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
        let rate = outcome.transactions as f64 / seconds;
        let per_second: Vec<f64> =
            outcome.per_interval.iter().map(|count| *count as f64 / outcome.interval.as_secs_f64()).collect();
        let settings = self.rows(
            "select name, effective, reason from gannet_settings where name in ('io', 'memory', 'page_size')",
        )?;
        let setting = |name: &str, column: usize| {
            let row = settings.iter().find(|row| row.first().and_then(Option::as_deref) == Some(name));
            row.and_then(|row| row.get(column)?.clone())
        };
        let memory = self.rows("select purpose, used_bytes, peak_bytes from gannet_memory")?;
        let memory: Vec<Value> = memory.iter().map(|row| json!(row)).collect();
        let (Some(began), Some(ended)) = (&self.began, &self.ended) else {
            return Err(anyhow!("the load ended before it was measured"));
        };
        let of_io = |name: &str| -> (u64, u64) {
            let find = |counted: &Counted| {
                counted
                    .io
                    .iter()
                    .find(|(other, ..)| other == name)
                    .map_or((0, 0), |(_, requests, bytes)| (*requests, *bytes))
            };
            let (before, after) = (find(began), find(ended));
            (after.0 - before.0, after.1 - before.1)
        };
        let transactions = outcome.transactions.max(1) as f64;
        let pages = (of_io("foreground read").1 + of_io("prefetch read").1) as f64 / config.page_size as f64;
        let reads = pages / transactions;
        let seen = (accesses > 0.0).then(|| (1.0 - reads / accesses).max(0.0));
        let disk = ended.disk.zip(began.disk).map(|(after, before)| after.since(before));
        let busy = ended
            .busy
            .zip(began.busy)
            .map(|(after, before)| after.saturating_sub(before).as_secs_f64() / seconds);
        let apart = |after: Option<f64>, before: Option<f64>| {
            after.zip(before).map(|(after, before)| (after - before) / seconds)
        };
        let waiters = (self.lock_looks > 0).then(|| {
            self.lock_waiters as f64 / f64::from(self.lock_looks) / config.connections.max(1) as f64
        });
        Ok(json!({
            "config": config,
            "io": { "effective": setting("io", 1), "reason": setting("io", 2) },
            "transactions": outcome.transactions,
            "seconds": seconds,
            "per_second_mean": rate,
            "per_second": per_second,
            "interval_seconds": outcome.interval.as_secs_f64(),
            "latency_us": outcome.latency.to_json(),
            "conflicts": outcome.conflicts,
            "commit_share": outcome.commit_share,
            "row_wait_share": waiters,
            "waits": self.waits,
            "accesses_per_transaction": accesses,
            "reads_per_transaction": reads,
            "hit_rate": seen,
            "log_writes": of_io("commit write").0,
            "log_bytes": of_io("commit write").1,
            "page_bytes_written": of_io("deadline write").1 + of_io("maintenance write").1,
            "device": disk.map(|disk| json!({
                "reads": disk.reads, "read_bytes": disk.read_bytes, "writes": disk.writes, "written_bytes": disk.written_bytes,
            })),
            "device_busy_share": busy,
            "processors": { "server": apart(ended.server, began.server), "load": apart(ended.client, began.client) },
            "memory": memory,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_a_statement_looked_at_are_those_of_its_whole_plan() {
        let text = r#"[{"Plan": {"Node Type": "Insert", "Hits": 7, "Serial Reads": 1, "Batched Reads": 2, "Plans": [{"Hits": 3}]}}]"#;
        assert_eq!((looked_at(text), looked_at("SET"), looked_at("")), (10.0, 0.0, 0.0));
    }

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
