//! Connections that run scripts for a while, over the wire, each as soon as the one before has ended.

use super::script::Script;
use crate::histogram::Histogram;
use crate::isolation::client::Client;
use crate::random::Random;
use anyhow::{Context, Result, anyhow, bail};
use gannet_server::frontend::Failure;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked at.
const TICK: Duration = Duration::from_millis(25);
/// Bytes of a connection's thread.
const STACK: usize = 256 << 10;
/// What a transaction is told that is to be run again: a serialisation failure, a deadlock.
const AGAIN: [&str; 2] = ["40001", "40P01"];

/// Scripts, and how often each is run in relation to the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Script and weight.
    pub scripts: Vec<(Script, u32)>,
}

impl Mix {
    /// Whether any of it writes.
    pub fn writes(&self) -> bool {
        self.scripts.iter().any(|(script, weight)| *weight > 0 && script.writes())
    }

    fn draw(&self, random: &mut Random) -> usize {
        let all: u64 = self.scripts.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut drawn = random.below(all.max(1));
        let found = self.scripts.iter().position(|(_, weight)| {
            let is_here = drawn < u64::from(*weight);
            drawn = drawn.saturating_sub(u64::from(*weight));
            is_here
        });
        found.unwrap_or(0)
    }
}

/// How a load runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Connections.
    pub connections: usize,
    /// Time before anything is measured.
    pub warm_up: Duration,
    /// Measured time.
    pub measure: Duration,
    /// How often transactions are counted.
    pub interval: Duration,
    /// What each connection says first.
    pub setup: Vec<String>,
    /// Seed of random numbers.
    pub seed: u64,
}

/// When the load is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// The measured time begins.
    Begin,
    /// It goes on; some 40 times a second.
    Tick,
    /// It is over.
    End,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Scripts that were run within the measured time.
    pub transactions: u64,
    /// The measured time.
    pub elapsed: Duration,
    /// Those of each interval.
    pub per_interval: Vec<u64>,
    /// The interval.
    pub interval: Duration,
    /// Their latencies.
    pub latency: Histogram,
    /// Share of the connections' time that was in COMMIT; `None` where no script has one.
    pub commit_share: Option<f64>,
    /// How often a transaction was to be run again.
    pub conflicts: u64,
    /// How often each script was run from the first moment to the last.
    pub done: Vec<u64>,
}

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const ENDED: u8 = 2;

struct Stage<'a> {
    mix: &'a Mix,
    phase: AtomicU8,
    transactions: AtomicU64,
    conflicts: AtomicU64,
    done: Vec<AtomicU64>,
    told: Mutex<Told>,
}

/// What connections tell at their end.
#[derive(Default)]
struct Told {
    latency: Histogram,
    in_commits: Duration,
    in_all: Duration,
}

/// Lets connections run scripts as `plan` says, or until `stop` is set; `watch` is called from the first measured moment to the last.
///
/// # Errors
/// A statement fails, other than by a conflict; a script ends inside a transaction; a connection is lost; or "interrupted".
pub fn run(
    connect: &dyn Fn() -> Result<Client>,
    mix: &Mix,
    plan: &Plan,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Moment) -> Result<()>,
) -> Result<Outcome> {
    let mut clients = Vec::new();
    for _ in 0..plan.connections {
        let mut client = connect()?;
        let prepared =
            mix.scripts.iter().enumerate().flat_map(|(number, (script, _))| script.prepare(number));
        for statement in plan.setup.iter().cloned().chain(prepared) {
            client.run(&statement).map_err(|failure| told(&statement, &failure))?;
        }
        clients.push(client);
    }
    let stage = Stage {
        mix,
        phase: AtomicU8::new(WARMING),
        transactions: AtomicU64::new(0),
        conflicts: AtomicU64::new(0),
        done: mix.scripts.iter().map(|_| AtomicU64::new(0)).collect(),
        told: Mutex::default(),
    };
    let mut outcome = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, client) in clients.into_iter().enumerate() {
            let random = Random::new(plan.seed.wrapping_mul(1_000_003) + number as u64);
            let stage = &stage;
            let body = move || {
                let result = work(client, stage, random);
                if result.is_err() {
                    stage.phase.store(ENDED, Ordering::Relaxed);
                }
                result
            };
            match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stage.phase.store(ENDED, Ordering::Relaxed);
                    return Err(error).context("a thread for each connection");
                }
            }
        }
        let outcome = supervise(&stage, plan, stop, watch);
        stage.phase.store(ENDED, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        outcome
    })?;
    let told = std::mem::take(&mut *stage.told.lock().unwrap_or_else(PoisonError::into_inner));
    outcome.latency = told.latency;
    let has_commits = mix.scripts.iter().any(|(script, _)| script.has_commit());
    outcome.commit_share =
        has_commits.then(|| told.in_commits.as_secs_f64() / told.in_all.as_secs_f64().max(1e-9));
    outcome.conflicts = stage.conflicts.load(Ordering::Relaxed);
    outcome.done = stage.done.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    Ok(outcome)
}

fn told(statement: &str, failure: &Failure) -> anyhow::Error {
    // It becomes a part of a line.
    let line = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    anyhow!("{}: {failure}", line.chars().take(80).collect::<String>())
}

/// Leads through the phases and counts.
fn supervise(
    stage: &Stage<'_>,
    plan: &Plan,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Moment) -> Result<()>,
) -> Result<Outcome> {
    let sleep_until = |until: Instant| -> Result<bool> {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        std::thread::sleep(TICK.min(until.saturating_duration_since(Instant::now())));
        // Who has failed says why itself.
        Ok(Instant::now() < until && stage.phase.load(Ordering::Relaxed) != ENDED)
    };
    let warm = Instant::now() + plan.warm_up;
    while sleep_until(warm)? {}
    let begun = Instant::now();
    // Not over an end that a failed one has called.
    let _ = stage.phase.compare_exchange(WARMING, MEASURING, Ordering::Relaxed, Ordering::Relaxed);
    watch(Moment::Begin)?;
    let mut per_interval = Vec::new();
    let (mut before, end) = (0, begun + plan.measure);
    let mut next = begun + plan.interval;
    while sleep_until(end.min(next))?
        || (Instant::now() < end && stage.phase.load(Ordering::Relaxed) != ENDED)
    {
        watch(Moment::Tick)?;
        if Instant::now() >= next {
            let now = stage.transactions.load(Ordering::Relaxed);
            per_interval.push(now - before);
            before = now;
            next += plan.interval;
        }
    }
    let transactions = stage.transactions.load(Ordering::Relaxed);
    let elapsed = begun.elapsed();
    if begun + elapsed >= next {
        per_interval.push(transactions - before);
    }
    watch(Moment::End)?;
    Ok(Outcome { transactions, elapsed, per_interval, interval: plan.interval, ..Outcome::default() })
}

fn work(mut client: Client, stage: &Stage<'_>, mut random: Random) -> Result<()> {
    let mut own = Told::default();
    loop {
        let phase = stage.phase.load(Ordering::Relaxed);
        if phase == ENDED {
            break;
        }
        let number = stage.mix.draw(&mut random);
        let begun = Instant::now();
        let mut in_commits = Duration::ZERO;
        while !once(&mut client, stage, number, &mut random, &mut in_commits)? {
            stage.conflicts.fetch_add(1, Ordering::Relaxed);
        }
        if client.is_in_transaction() {
            bail!(
                "the load: script {} ends inside a transaction that it has begun, so it would never be durable: end it with commit; or rollback;",
                number + 1
            );
        }
        stage.done[number].fetch_add(1, Ordering::Relaxed);
        // It may have begun before the measured time, as another one ends behind it.
        if stage.phase.load(Ordering::Relaxed) == MEASURING {
            stage.transactions.fetch_add(1, Ordering::Relaxed);
        }
        if phase == MEASURING {
            own.latency.record(begun.elapsed(), 1);
            own.in_commits += in_commits;
            own.in_all += begun.elapsed();
        }
    }
    let mut told = stage.told.lock().unwrap_or_else(PoisonError::into_inner);
    told.latency.merge(&own.latency);
    told.in_commits += own.in_commits;
    told.in_all += own.in_all;
    Ok(())
}

/// Runs a script once; false where somebody else was in the way.
fn once(
    client: &mut Client,
    stage: &Stage<'_>,
    number: usize,
    random: &mut Random,
    in_commits: &mut Duration,
) -> Result<bool> {
    for sent in stage.mix.scripts[number].0.draw(number, random) {
        let begun = Instant::now();
        match client.run(&sent.text) {
            Ok(_) => {}
            Err(Failure::Server(report)) if AGAIN.contains(&&*report.state) => {
                client.run("rollback").map_err(|failure| told("rollback", &failure))?;
                return Ok(false);
            }
            Err(failure) => return Err(told(&sent.text, &failure)).context("the load"),
        }
        if sent.is_commit {
            *in_commits += begun.elapsed();
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_fails_is_told_on_one_line() {
        let failure = Failure::Receiver(std::io::Error::other("no"));
        assert_eq!(told("select 1,\n\t2", &failure).to_string(), "select 1, 2: no");
    }

    #[test]
    fn scripts_are_drawn_by_their_weights() {
        let script = Script::parse("select 1;").unwrap();
        let mix = Mix { scripts: vec![(script.clone(), 3), (script.clone(), 0), (script, 1)] };
        let (mut random, mut counts) = (Random::new(1), [0; 3]);
        for _ in 0..4000 {
            counts[mix.draw(&mut random)] += 1;
        }
        assert!((2850..3150).contains(&counts[0]) && counts[1] == 0, "{counts:?}");
    }
}
