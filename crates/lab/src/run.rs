//! Lets threads work on sessions for a while, and writes down how it went.

use crate::driver::{Counters, Driver, Session};
use crate::histogram::Histogram;
use crate::random::Random;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// How a workload runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Threads, each with a session of its own.
    pub threads: usize,
    /// Time before anything is measured.
    pub warm_up: Duration,
    /// Threads that work in that time, where they are to be more: caches are full sooner.
    pub warm_up_threads: usize,
    /// Measured time.
    pub measure: Duration,
    /// How often operations are counted.
    pub interval: Duration,
    /// Operations timed together, where one alone is too short for a clock; the histogram gets their mean.
    pub ops_per_sample: u64,
    /// All look-ups of a session happen in one read transaction.
    pub one_transaction: bool,
    /// Seed of the threads' random numbers.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            threads: 1,
            warm_up: Duration::from_secs(2),
            warm_up_threads: 0,
            measure: Duration::from_secs(10),
            interval: Duration::from_secs(1),
            ops_per_sample: 1,
            one_transaction: false,
            seed: 1,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Operations within the measured time.
    pub operations: u64,
    /// The measured time.
    pub elapsed: Duration,
    /// Operations of each interval: of each second, where nothing else was planned.
    pub per_interval: Vec<u64>,
    /// The interval.
    pub interval: Duration,
    /// Their latencies.
    pub latency: Histogram,
    /// What the store counted in the measured time.
    pub counters: Counters,
    /// CPU time of the whole process in the measured time.
    pub cpu: Duration,
    /// The run was ended before its time.
    pub interrupted: bool,
}

impl Outcome {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Everything, with raw data.
    pub fn to_json(&self) -> Value {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        json!({
            "operations": self.operations,
            "seconds": seconds,
            "per_second_mean": self.rate(),
            "per_interval": self.per_interval,
            "interval_seconds": self.interval.as_secs_f64(),
            "latency_us": self.latency.to_json(),
            "cpu_seconds": self.cpu.as_secs_f64(),
            "interrupted": self.interrupted,
            "device": self.counters.device_json(seconds),
            "pool": self.counters.pool_json(),
        })
    }
}

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const ENDED: u8 = 2;

/// What the threads of a run share.
struct Stage<'a> {
    phase: AtomicU8,
    operations: AtomicU64,
    latency: Mutex<Histogram>,
    plan: &'a Plan,
}

/// Calls `operation` on sessions of `driver` as `plan` says, until the time is over or `stop` is set. `operation` is
/// given the session, the thread's random numbers, and how often it was called in this thread.
pub fn run<O>(driver: &dyn Driver, plan: &Plan, stop: &AtomicBool, operation: O) -> Result<Outcome>
where
    O: Fn(&mut dyn Session, &mut Random, u64) -> Result<()> + Sync,
{
    if plan.threads == 0 || plan.ops_per_sample == 0 {
        bail!("a run needs at least one thread and one operation per sample");
    }
    let stage = Stage {
        phase: AtomicU8::new(WARMING),
        operations: AtomicU64::new(0),
        latency: Mutex::default(),
        plan,
    };
    let threads = plan.threads.max(plan.warm_up_threads);
    let ready = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (stage, ready, operation) = (&stage, &ready, &operation);
                scope.spawn(move || worker(driver, stage, ready, number, operation))
            })
            .collect();
        ready.wait();
        let mut outcome = supervise(driver, &stage, stop);
        for worker in workers {
            match worker.join() {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome.latency = std::mem::take(&mut *stage.latency.lock().unwrap_or_else(|e| e.into_inner()));
        Ok(outcome)
    })
}

fn worker(
    driver: &dyn Driver,
    stage: &Stage<'_>,
    ready: &Barrier,
    number: usize,
    operation: &(dyn Fn(&mut dyn Session, &mut Random, u64) -> Result<()> + Sync),
) -> Result<()> {
    let mut waited = false;
    let result = driver.session(&mut |session| {
        if stage.plan.one_transaction {
            session.begin_reading()?;
        }
        waited = true;
        ready.wait();
        let mut random = Random::new(stage.plan.seed.wrapping_mul(1_000_003) + number as u64);
        let mut latency = Histogram::default();
        let mut calls = 0;
        loop {
            let phase = stage.phase.load(Ordering::Relaxed);
            if phase == ENDED || (phase == MEASURING && number >= stage.plan.threads) {
                break;
            }
            let start = Instant::now();
            for _ in 0..stage.plan.ops_per_sample {
                operation(session, &mut random, calls)?;
                calls += 1;
            }
            if phase == MEASURING {
                let each = start.elapsed() / stage.plan.ops_per_sample as u32;
                latency.record(each, stage.plan.ops_per_sample);
                stage.operations.fetch_add(stage.plan.ops_per_sample, Ordering::Relaxed);
            }
        }
        stage.latency.lock().unwrap_or_else(|e| e.into_inner()).merge(&latency);
        if stage.plan.one_transaction {
            session.end_reading()?;
        }
        Ok(())
    });
    if !waited {
        ready.wait();
    }
    if result.is_err() {
        stage.phase.store(ENDED, Ordering::Relaxed);
    }
    result
}

/// Leads through the phases and takes the figures of every second.
fn supervise(driver: &dyn Driver, stage: &Stage<'_>, stop: &AtomicBool) -> Outcome {
    let go_on = |until: Instant| {
        while Instant::now() < until {
            if stop.load(Ordering::Relaxed) || stage.phase.load(Ordering::Relaxed) == ENDED {
                return false;
            }
            let rest = until.saturating_duration_since(Instant::now());
            std::thread::sleep(rest.min(Duration::from_millis(50)));
        }
        true
    };
    let mut interrupted = !go_on(Instant::now() + stage.plan.warm_up);
    let (counters, cpu) = (driver.counters(), crate::machine::cpu_time());
    let start = Instant::now();
    // Who is interrupted before it measures nothing at all; and not over an end that a failed worker has called.
    let next = if interrupted { ENDED } else { MEASURING };
    let _ = stage.phase.compare_exchange(WARMING, next, Ordering::Relaxed, Ordering::Relaxed);
    let interval = stage.plan.interval;
    let mut per_interval = Vec::new();
    let mut before = 0;
    let end = start + stage.plan.measure;
    while !interrupted && Instant::now() < end {
        interrupted = !go_on((Instant::now() + interval).min(end));
        let now = stage.operations.load(Ordering::Relaxed);
        per_interval.push(now - before);
        before = now;
    }
    let operations = stage.operations.load(Ordering::Relaxed);
    let elapsed = start.elapsed();
    let counters = driver.counters().since(&counters);
    let cpu = crate::machine::cpu_time().saturating_sub(cpu);
    stage.phase.store(ENDED, Ordering::Relaxed);
    Outcome { operations, elapsed, per_interval, interval, counters, cpu, interrupted, ..Outcome::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Counters, Key, LoadOrder, Rows, Scanned};
    use serde_json::Value;
    use std::path::PathBuf;
    use std::sync::atomic::AtomicUsize;

    /// A store of nothing that counts its sessions.
    #[derive(Default)]
    struct Nothing {
        begun: AtomicUsize,
        ended: AtomicUsize,
    }

    impl Driver for Nothing {
        fn name(&self) -> String {
            "nothing".to_owned()
        }
        fn settings(&self) -> Value {
            Value::Null
        }
        fn load(&self, _rows: &Rows, _order: LoadOrder) -> Result<()> {
            Ok(())
        }
        fn session(&self, body: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
            self.begun.fetch_add(1, Ordering::SeqCst);
            let result = body(&mut NoSession);
            self.ended.fetch_add(1, Ordering::SeqCst);
            result
        }
        fn counters(&self) -> Counters {
            Counters::default()
        }
        fn files(&self) -> Vec<PathBuf> {
            Vec::new()
        }
        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    struct NoSession;

    impl Session for NoSession {
        fn begin_reading(&mut self) -> Result<()> {
            Ok(())
        }
        fn end_reading(&mut self) -> Result<()> {
            Ok(())
        }
        fn get(&mut self, _key: &Key) -> Result<bool> {
            Ok(false)
        }
        fn value(&mut self, _key: &Key) -> Result<Option<Vec<u8>>> {
            Ok(None)
        }
        fn multi_get(&mut self, _keys: &[Key]) -> Result<usize> {
            Ok(0)
        }
        fn scan(&mut self) -> Result<Scanned> {
            bail!("there is nothing")
        }
        fn put(&mut self, _key: &Key, _value: &[u8]) -> Result<()> {
            Ok(())
        }
        fn update(&mut self, _key: &Key, _value: &[u8]) -> Result<bool> {
            Ok(false)
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn more_threads_fill_the_caches_than_are_measured() {
        let (store, stop) = (Nothing::default(), AtomicBool::new(false));
        let plan = Plan { warm_up: LONG, warm_up_threads: 4, ..Plan::default() };
        let at_work = AtomicUsize::new(0);
        let outcome = run(&store, &plan, &stop, |_, _, calls| {
            if calls == 0 && at_work.fetch_add(1, Ordering::SeqCst) == 3 {
                stop.store(true, Ordering::SeqCst);
            }
            Ok(())
        });
        let outcome = outcome.unwrap();
        assert_eq!((at_work.into_inner(), outcome.operations), (4, 0), "nothing of it is measured");
        assert!(outcome.interrupted);
    }

    #[test]
    fn who_only_filled_the_caches_has_left_when_it_is_measured() {
        let (store, stop) = (Nothing::default(), AtomicBool::new(false));
        let plan = Plan { warm_up: Duration::ZERO, warm_up_threads: 4, measure: LONG, ..Plan::default() };
        let (begun, alone) = (Instant::now(), AtomicUsize::new(0));
        let outcome = run(&store, &plan, &stop, |_, _, _| {
            std::thread::yield_now();
            // The second one that was begun alone was counted when the third one is.
            let has_left = store.ended.load(Ordering::SeqCst) == 3;
            if has_left && alone.fetch_add(1, Ordering::SeqCst) == 2 || begun.elapsed() > LONG / 2 {
                stop.store(true, Ordering::SeqCst);
            }
            Ok(())
        });
        assert!(outcome.unwrap().operations > 0);
        assert_eq!(store.begun.into_inner(), 4);
        assert!(begun.elapsed() < LONG / 2, "three have left while one was measured");
    }
}
