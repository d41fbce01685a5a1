//! Users who work for a while, beside a task or without one.

use crate::histogram::Histogram;
use crate::tpcc::Size;
use crate::tpcc::connection::Connect;
use crate::tpcc::run::{self, Outcome};
use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::place::go_on;

/// How often somebody who waits looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Users, and how they work.
pub struct Users<'a> {
    /// To whom they connect.
    pub connect: &'a dyn Connect,
    /// What the database holds.
    pub size: Size,
    /// Their number.
    pub sessions: u32,
    /// Seed of what they want.
    pub seed: u64,
    /// How long a sample is.
    pub sample: Duration,
}

/// What is done beside the users, once they work. It gets told by `true` that it is to end early.
pub type Beside<'a> = &'a (dyn Fn(&(dyn Fn() -> bool + Sync), Instant) -> Result<Value> + Sync);

/// What came of a phase.
#[derive(Debug)]
pub struct Phase {
    /// Transactions of all kinds a second.
    pub per_second: f64,
    /// For the record.
    pub json: Value,
}

/// Sets a flag however the scope is left.
pub(super) struct Sets<'a>(pub(super) &'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Users<'_> {
    /// Lets them work: for so long, or beside something until that has ended. With a `rate` transactions come in at that many a second, whether or not those before
    /// them have ended.
    ///
    /// # Errors
    /// A transaction fails, or what is beside them does; or `stop` is set.
    pub fn work(
        &self,
        number: u64,
        rate: Option<f64>,
        time: Duration,
        beside: Option<Beside<'_>>,
        stop: &AtomicBool,
    ) -> Result<Phase> {
        let plan = run::Plan {
            size: self.size,
            terminals: self.sessions,
            time: if beside.is_some() { Duration::MAX } else { time },
            seed: self.seed.wrapping_mul(1000) + number,
            rate,
            think: None,
            each: false,
            sample: self.sample,
        };
        let (works, is_done, has_failed) = <(AtomicBool, AtomicBool, AtomicBool)>::default();
        let (outcome, said) = std::thread::scope(|scope| {
            let ends_early = || stop.load(Ordering::Relaxed) || has_failed.load(Ordering::Acquire);
            let (works, is_done) = (&works, &is_done);
            let other = beside.map(|beside| {
                scope.spawn(move || {
                    let _done = Sets(is_done);
                    while !works.load(Ordering::Acquire) {
                        if ends_early() {
                            return Ok(Value::Null);
                        }
                        std::thread::sleep(LOOK_EVERY);
                    }
                    beside(&ends_early, Instant::now())
                })
            });
            let outcome = run::run(self.connect, &plan, |_| {
                works.store(true, Ordering::Release);
                !stop.load(Ordering::Relaxed) && !is_done.load(Ordering::Acquire)
            });
            if outcome.is_err() {
                has_failed.store(true, Ordering::Release);
            }
            let said = other.map(|thread| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("what is beside the users panicked")))
            });
            (outcome, said)
        });
        let outcome = outcome.context("the users failed")?;
        go_on(stop)?;
        let said = said.transpose()?;
        let per_second = outcome.transactions() as f64 / outcome.elapsed.as_secs_f64();
        let mut json = figures(&outcome, rate);
        json["transactions_per_second"] = per_second.into();
        json["beside"] = said.unwrap_or_default();
        Ok(Phase { per_second, json })
    }
}

fn figures(outcome: &Outcome, rate: Option<f64>) -> Value {
    let all = outcome.all_latencies();
    let millis = |share: f64| all.quantile_us(share) / 1e3;
    json!({
        "rate": rate,
        "seconds": outcome.elapsed.as_secs_f64(),
        "offered": outcome.offered(),
        "unserved": outcome.unserved.as_ref().map(Histogram::count),
        "new_orders_per_minute": outcome.new_orders_per_minute(),
        "p50_ms": millis(0.5), "p95_ms": millis(0.95), "p99_ms": millis(0.99), "longest_ms": all.max_us() / 1e3,
        "latency_buckets_us": all.buckets_json(),
        "conflicts": outcome.conflicts.iter().sum::<u64>(),
        "samples": outcome.samples.iter().map(|sample| {
            json!([sample.at.as_secs_f64(), sample.transactions, sample.latencies.map(|latencies| latencies.p99_ms)])
        }).collect::<Vec<_>>(),
    })
}
