//! Terminals that work for a while.

use super::Size;
use super::connection::{Conflict, Connect, Connection};
use super::think;
use super::transactions::{Kind, Request, Terminal};
use crate::histogram::Histogram;
use crate::random::Random;
use anyhow::Result;
use gannet_store::{ThreadReads, thread_reads};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How terminals work.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What the database holds.
    pub size: Size,
    /// Terminals, spread over the warehouses.
    pub terminals: u32,
    /// For how long.
    pub time: Duration,
    /// Seed of the requests.
    pub seed: u64,
    /// Transactions a second that come in whether or not those before them have ended (open loop): at random times, as a Poisson
    /// process, taken by the first terminal that is free. `None`: each terminal asks for the next one as soon as it has an answer.
    pub rate: Option<f64>,
    /// How long users type and think, as a share of what the specification says; `None`: not at all. It goes with a closed loop.
    pub think: Option<f64>,
    /// How long a sample is.
    pub sample: Duration,
    /// Whether each transaction is kept.
    pub each: bool,
}

/// What came of a short time of it.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When it ended, from the begin on.
    pub at: Duration,
    /// Transactions of all kinds that ended in it.
    pub transactions: u64,
    /// Half of them took no longer.
    pub p50_ms: f64,
    /// 95 of 100 took no longer.
    pub p95_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
    /// The longest one.
    pub longest_ms: f64,
}

impl Sample {
    fn of(latencies: &Histogram, at: Duration) -> Self {
        let millis = |share: f64| latencies.quantile_us(share) / 1e3;
        Sample {
            at,
            transactions: latencies.count(),
            p50_ms: millis(0.5),
            p95_ms: millis(0.95),
            p99_ms: millis(0.99),
            longest_ms: latencies.max_us() / 1e3,
        }
    }
}

/// One transaction.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    /// When it came in, from the begin on.
    pub came: Duration,
    /// From then until it ended.
    pub latency: Duration,
    /// Its kind.
    pub kind: Kind,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Latencies by kind, in the order of [`Kind::ALL`]; those that were rolled back on purpose included. In an open loop they count
    /// from the time that the transaction came in, so waiting for a terminal is part of them.
    pub latencies: [Histogram; 5],
    /// New orders rolled back on purpose.
    pub rolled_back: u64,
    /// What the terminals' own threads read from the device, by kind: of a database within this process. Elsewhere the server's
    /// threads read.
    pub reads: [Reads; 5],
    /// Attempts, by kind, that somebody else was in the way of and that were made again.
    pub conflicts: [u64; 5],
    /// How long it took.
    pub elapsed: Duration,
    /// How they fared over time.
    pub samples: Vec<Sample>,
    /// When it began.
    pub began: SystemTime,
    /// Each transaction in the order in which they came in, if the plan says so.
    pub each: Vec<Transaction>,
}

/// Reads from the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads {
    /// Pages read one by one, each waited for.
    pub serial: u64,
    /// How often pages were read ahead, many at a time.
    pub batches: u64,
    /// Pages in these.
    pub batched: u64,
}

impl Reads {
    fn add(&mut self, more: Reads) {
        self.serial += more.serial;
        self.batches += more.batches;
        self.batched += more.batched;
    }
}

impl From<ThreadReads> for Reads {
    fn from(reads: ThreadReads) -> Self {
        Reads { serial: reads.serial_reads, batches: reads.batches, batched: reads.batched_reads }
    }
}

impl Outcome {
    /// Transactions of all kinds.
    pub fn transactions(&self) -> u64 {
        self.latencies.iter().map(Histogram::count).sum()
    }

    /// New orders a minute. Without the specification's times to type and think it is no tpmC.
    pub fn new_orders_per_minute(&self) -> f64 {
        let orders = self.latencies[0].count() - self.rolled_back;
        orders as f64 * 60.0 / self.elapsed.as_secs_f64()
    }
}

/// Lets terminals work. `watch` is called now and then with the number of transactions so far, and may end the run early by giving false.
pub fn run(
    connect: &dyn Connect,
    plan: &Plan,
    mut watch: impl FnMut(Duration, u64) -> bool,
) -> Result<Outcome> {
    let mut terminals = Vec::new();
    for number in 0..plan.terminals {
        let mut connection = connect.connect()?;
        let warehouse = number % plan.size.warehouses + 1;
        let terminal = Terminal::new(&mut *connection, warehouse)?;
        terminals.push((connection, terminal, warehouse, Random::new(plan.seed ^ u64::from(number) << 40)));
    }
    let (progress, clock) = (Progress::new(), SystemTime::now());
    let began = progress.began;
    let mut samples = Vec::new();
    let arrivals = plan.rate.map(|rate| Arrivals::new(rate, began, plan.seed));
    let results: Vec<Result<Worked>> = std::thread::scope(|scope| {
        let (progress, arrivals) = (&progress, arrivals.as_ref());
        let threads: Vec<_> = terminals
            .into_iter()
            .map(|(connection, terminal, warehouse, random)| {
                scope.spawn(move || {
                    let result = work(connection, &terminal, warehouse, plan, random, arrivals, progress);
                    if result.is_err() {
                        progress.stop.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        while began.elapsed() < plan.time && !progress.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50).min(plan.time.saturating_sub(began.elapsed())));
            if began.elapsed() >= plan.sample * (samples.len() as u32 + 1) {
                samples.push(Sample::of(&progress.take_sample(), began.elapsed()));
            }
            if !watch(began.elapsed(), progress.done.load(Ordering::Relaxed)) {
                break;
            }
        }
        progress.stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a terminal panicked"))))
            .collect()
    });
    let elapsed = began.elapsed();
    let (latencies, reads) = Default::default();
    let mut outcome = Outcome {
        latencies,
        rolled_back: 0,
        reads,
        conflicts: [0; 5],
        elapsed,
        samples,
        began: clock,
        each: Vec::new(),
    };
    for result in results {
        let worked = result?;
        outcome.latencies.iter_mut().zip(&worked.latencies).for_each(|(into, from)| into.merge(from));
        outcome.reads.iter_mut().zip(worked.reads).for_each(|(into, from)| into.add(from));
        outcome.rolled_back += worked.rolled_back;
        outcome.each.extend(worked.each);
        outcome.conflicts.iter_mut().zip(worked.conflicts).for_each(|(into, from)| *into += from);
    }
    outcome.each.sort_unstable_by_key(|transaction| transaction.came);
    Ok(outcome)
}

/// What the terminals share.
struct Progress {
    began: Instant,
    stop: AtomicBool,
    /// Transactions so far.
    done: AtomicU64,
    /// Latencies since the last sample.
    sample: Mutex<Histogram>,
}

impl Progress {
    fn new() -> Self {
        Progress { began: Instant::now(), stop: false.into(), done: 0.into(), sample: Mutex::default() }
    }

    fn take_sample(&self) -> Histogram {
        std::mem::take(&mut *self.sample.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ended(&self, latency: Duration) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.sample.lock().unwrap_or_else(PoisonError::into_inner).record(latency, 1);
    }
}

/// When transactions of an open loop come in.
struct Arrivals {
    /// Seconds between two, on average.
    apart: f64,
    next: Mutex<(Instant, Random)>,
}

impl Arrivals {
    fn new(rate: f64, first: Instant, seed: u64) -> Self {
        Arrivals { apart: 1.0 / rate, next: Mutex::new((first, Random::new(!seed))) }
    }

    /// Waits for the next transaction that nobody has taken, and says when it came in; `None` when the end came before it.
    fn next(&self, stop: &AtomicBool) -> Option<Instant> {
        let came = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let came = next.0;
            next.0 = came + Duration::from_secs_f64(think::exponential(&mut next.1) * self.apart);
            came
        };
        think::until(came, stop).then_some(came)
    }
}

#[derive(Default)]
struct Worked {
    latencies: [Histogram; 5],
    rolled_back: u64,
    reads: [Reads; 5],
    conflicts: [u64; 5],
    each: Vec<Transaction>,
}

fn work(
    mut connection: Box<dyn Connection>,
    terminal: &Terminal,
    warehouse: u32,
    plan: &Plan,
    mut random: Random,
    arrivals: Option<&Arrivals>,
    progress: &Progress,
) -> Result<Worked> {
    let mut worked = Worked::default();
    while !progress.stop.load(Ordering::Relaxed) {
        let kind = Kind::draw(&mut random);
        let request = Request::draw(kind, warehouse, plan.size, &mut random);
        if let Some(scale) = plan.think
            && !think::until(Instant::now() + think::keying(kind, scale), &progress.stop)
        {
            break;
        }
        let began = match arrivals.map(|arrivals| arrivals.next(&progress.stop)) {
            None => Instant::now(),
            Some(Some(came)) => came,
            Some(None) => break,
        };
        let before = thread_reads();
        let committed = loop {
            match terminal.run(&mut *connection, &request) {
                Ok(committed) => break committed,
                // Latency counts from the first attempt.
                Err(error) if error.is::<Conflict>() => worked.conflicts[kind as usize] += 1,
                Err(error) => return Err(error.context(format!("{} failed", kind.name()))),
            }
        };
        let latency = began.elapsed();
        worked.latencies[kind as usize].record(latency, 1);
        if plan.each {
            worked.each.push(Transaction {
                came: began.saturating_duration_since(progress.began),
                latency,
                kind,
            });
        }
        worked.reads[kind as usize].add(thread_reads().since(before).into());
        worked.rolled_back += u64::from(!committed);
        progress.ended(latency);
        if let Some(scale) = plan.think {
            let time = think::thinking(kind, scale, &mut random);
            if !think::until(Instant::now() + time, &progress.stop) {
                break;
            }
        }
    }
    Ok(worked)
}
