//! Looks at a server while a load runs: at what it counts itself, at the disk, and at its threads.

use super::load::{self, Mix, Moment};
use super::trial::Config;
use super::waits::{self, Watch};
use crate::device::{self, Counters};
use crate::isolation::client::Client;
use crate::random::Random;
use crate::servers::Server;
use anyhow::{Result, anyhow};
use gannet_server::frontend::Failure;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many ticks of a load pass between two looks at who waits for whom.
const WAITERS_EVERY: u32 = 8;
const WAITERS: &str = "select wait_event, count(*) from pg_stat_activity where wait_event_type = 'Lock' or wait_event = 'MemoryTurn' group by wait_event";
/// How often each script is explained.
const EXPLAINED: u32 = 6;

/// Pages that each script looks at when it is run once, by EXPLAIN, weighted; in a transaction that is rolled back. What begin and commit look at is not among them.
/// `None` where a statement fails.
fn accesses(client: &mut Client, mix: &Mix, seed: u64) -> Result<Option<f64>> {
    let mut random = Random::new(!seed);
    let all: u32 = mix.scripts.iter().map(|(_, weight)| weight).sum();
    let mut pages = 0.0;
    for (number, (script, weight)) in mix.scripts.iter().enumerate() {
        for statement in script.prepare(number) {
            client.run(&statement).map_err(|failure| anyhow!("{statement}: {failure}"))?;
        }
        for _ in 0..EXPLAINED {
            let mut told = Ok(0.0);
            client.run("begin").map_err(|failure| anyhow!("begin: {failure}"))?;
            for sent in script.draw_explained(number, &mut random) {
                told = client.run(&sent.text).and_then(|answer| {
                    let text =
                        answer.rows.first().and_then(|row| row.first()?.as_deref()).unwrap_or_default();
                    told.map(|told| told + looked_at(text))
                });
                if told.is_err() {
                    break;
                }
            }
            client.run("rollback").map_err(|failure| anyhow!("rollback: {failure}"))?;
            match told {
                Ok(told) => pages += told * f64::from(*weight) / f64::from(all * EXPLAINED),
                // A key that is there already, for example: the load is measured all the same.
                Err(Failure::Server(_)) => return Ok(None),
                Err(failure) => return Err(anyhow!("what pages are looked at: {failure}")),
            }
        }
    }
    Ok(Some(pages))
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
    /// Bytes of the budget by purpose.
    memory: Vec<(String, u64)>,
    /// Jiffies of the machine's processors: all, idle, and taken by others than this machine.
    processors: Option<[u64; 3]>,
    /// Of the whole disk.
    disk: Option<Counters>,
    busy: Option<Duration>,
    /// Seconds of processors.
    server: Option<f64>,
    client: Option<f64>,
}

/// Looks at server, device and threads while a load runs.
pub(super) struct Observer {
    /// Its session.
    pub(super) client: Client,
    pid: u32,
    disk: String,
    began: Option<Counted>,
    ended: Option<Counted>,
    watch: Option<Watch>,
    ticks: u32,
    looks: u32,
    /// Sessions that were seen to wait for a row, and for their turn at memory.
    row_waiters: u64,
    turn_waiters: u64,
    waits: Value,
    begun: Option<Instant>,
}

impl Observer {
    /// Of a server whose database is in this folder. It has a session of its own, which is to be the first.
    ///
    /// # Errors
    /// It cannot be reached, or the disk cannot be seen.
    pub(super) fn new(server: &Server, folder: &Path) -> Result<Self> {
        Ok(Observer {
            client: server.client("lab")?,
            pid: server.pid(),
            disk: device::number_of(folder)?,
            began: None,
            ended: None,
            watch: None,
            ticks: 0,
            looks: 0,
            row_waiters: 0,
            turn_waiters: 0,
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
        let io = io.collect();
        let memory = self.rows("select purpose, used_bytes from gannet_memory")?;
        let memory = memory.iter().filter_map(|row| match row.as_slice() {
            [Some(purpose), used] => Some((purpose.clone(), number(used))),
            _ => None,
        });
        let server = waits::processor_seconds(self.pid);
        Ok(Counted { io, memory: memory.collect(), server, ..Counted::outside(&self.disk) })
    }

    /// Looks at everything that is to be seen at this moment.
    ///
    /// # Errors
    /// The server does not answer.
    pub(super) fn look(&mut self, moment: Moment) -> Result<()> {
        match moment {
            Moment::Begin => {
                self.began = Some(self.count()?);
                // Our own session came first.
                self.watch = Some(Watch::begin(self.pid, 1));
                self.begun = Some(Instant::now());
            }
            Moment::Tick => {
                if let Some(watch) = &mut self.watch {
                    watch.look();
                }
                self.ticks += 1;
                if self.ticks.is_multiple_of(WAITERS_EVERY) {
                    let waiting = self.rows(WAITERS)?;
                    self.looks += 1;
                    for row in waiting {
                        let [Some(event), Some(count)] = row.as_slice() else { continue };
                        let count: u64 = count.parse().unwrap_or(0);
                        match &**event {
                            "MemoryTurn" => self.turn_waiters += count,
                            _ => self.row_waiters += count,
                        }
                    }
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

    /// Everything, as JSON.
    ///
    /// # Errors
    /// The server does not answer, or the load ended too early.
    pub(super) fn report(
        &mut self,
        outcome: &load::Outcome,
        config: &Config,
        mix: &Mix,
        seed: u64,
    ) -> Result<Value> {
        let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
        let mode = self.rows("select effective, reason from gannet_settings where name = 'io'")?;
        let mode = mode.first().cloned().unwrap_or_default();
        let accesses = accesses(&mut self.client, mix, seed)?;
        let (Some(began), Some(ended)) = (&self.began, &self.ended) else {
            return Err(anyhow!("the load ended before it was measured"));
        };
        let pages = (ended.since(began, "foreground read").1 + ended.since(began, "prefetch read").1) as f64
            / config.page_size as f64;
        let reads = pages / outcome.transactions.max(1) as f64;
        let hit_rate = accesses.filter(|&all| all > 0.0).map(|all| (1.0 - reads / all).max(0.0));
        let waiters = |count: u64| {
            (self.looks > 0).then(|| count as f64 / f64::from(self.looks) / config.connections.max(1) as f64)
        };
        let (log_writes, log_bytes) = ended.since(began, "commit write");
        let more = json!({
            "io": { "effective": mode.first(), "reason": mode.get(1) },
            "row_wait_share": waiters(self.row_waiters),
            "turn_wait_share": waiters(self.turn_waiters),
            "waits": self.waits,
            "accesses_per_transaction": accesses,
            "reads_per_transaction": reads,
            "hit_rate": hit_rate,
            "writes": mix.writes(),
            "log_writes": log_writes,
            "log_bytes": log_bytes,
            "page_bytes_written": ended.since(began, "deadline write").1 + ended.since(began, "maintenance write").1,
            "memory": ended.memory.iter().cloned().collect::<BTreeMap<_, _>>(),
        });
        let mut told = told_by_clients(outcome, config);
        if let (Some(told), Value::Object(more)) = (told.as_object_mut(), more) {
            told.extend(more);
        }
        ended.tell_machine(began, seconds, &mut told);
        Ok(told)
    }
}

/// What a load's clients saw.
fn told_by_clients(outcome: &load::Outcome, config: &Config) -> Value {
    let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
    let per_second: Vec<f64> =
        outcome.per_interval.iter().map(|count| *count as f64 / outcome.interval.as_secs_f64()).collect();
    json!({
        "config": config,
        "transactions": outcome.transactions,
        "seconds": seconds,
        "per_second_mean": outcome.transactions as f64 / seconds,
        "per_second": per_second,
        "interval_seconds": outcome.interval.as_secs_f64(),
        "latency_us": outcome.latency.to_json(),
        "conflicts": outcome.conflicts,
        "commit_share": outcome.commit_share,
    })
}

/// Looks at the machine only, while a load runs against somebody who counts otherwise.
pub(super) struct Bystander {
    disk: String,
    began: Option<Counted>,
    ended: Option<Counted>,
}

impl Bystander {
    /// Of a server whose database is in this folder.
    ///
    /// # Errors
    /// The disk cannot be seen.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        Ok(Bystander { disk: device::number_of(folder)?, began: None, ended: None })
    }

    pub(super) fn look(&mut self, moment: Moment) {
        match moment {
            Moment::Begin => self.began = Some(Counted::outside(&self.disk)),
            Moment::Tick => {}
            Moment::End => self.ended = Some(Counted::outside(&self.disk)),
        }
    }

    /// Everything, as JSON.
    ///
    /// # Errors
    /// The load ended too early.
    pub(super) fn report(&self, outcome: &load::Outcome, config: &Config) -> Result<Value> {
        let (Some(began), Some(ended)) = (&self.began, &self.ended) else {
            return Err(anyhow!("the load ended before it was measured"));
        };
        let mut told = told_by_clients(outcome, config);
        ended.tell_machine(began, outcome.elapsed.as_secs_f64().max(1e-9), &mut told);
        Ok(told)
    }
}

impl Counted {
    /// What can be seen without asking the server.
    fn outside(disk: &str) -> Self {
        Counted {
            io: Vec::new(),
            memory: Vec::new(),
            processors: waits::processors(),
            disk: Counters::of(disk),
            busy: device::busy(disk),
            server: None,
            client: waits::processor_seconds(std::process::id()),
        }
    }

    /// Requests and bytes since then.
    fn since(&self, before: &Counted, name: &str) -> (u64, u64) {
        let of = |counted: &Counted| {
            let found = counted.io.iter().find(|(other, ..)| other == name);
            found.map_or((0, 0), |(_, requests, bytes)| (*requests, *bytes))
        };
        let (before, after) = (of(before), of(self));
        (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1))
    }

    /// What disk and processors have done since then.
    fn tell_machine(&self, before: &Counted, seconds: f64, told: &mut Value) {
        let disk = self.disk.zip(before.disk).map(|(after, before)| after.since(before));
        told["device"] = disk.map_or(Value::Null, |disk| {
            json!({
                "reads": disk.reads, "read_bytes": disk.read_bytes, "writes": disk.writes, "written_bytes": disk.written_bytes,
            })
        });
        let busy = self.busy.zip(before.busy);
        told["device_busy_share"] =
            json!(busy.map(|(after, before)| after.saturating_sub(before).as_secs_f64() / seconds));
        let taken = |after: Option<f64>, before: Option<f64>| {
            after.zip(before).map(|(after, before)| (after - before) / seconds)
        };
        // Of the machine's time, how much its processors had something to do, and how much its host took for others.
        let machine = self
            .processors
            .zip(before.processors)
            .map(|(after, before)| [0, 1, 2].map(|place| after[place].saturating_sub(before[place]) as f64));
        let machine = machine.filter(|[all, ..]| *all > 0.0);
        told["processors"] = json!({
            "server": taken(self.server, before.server),
            "load": taken(self.client, before.client),
            "busy_share": machine.map(|[all, idle, _]| 1.0 - idle / all),
            "stolen_share": machine.map(|[all, _, stolen]| stolen / all),
        });
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
}
