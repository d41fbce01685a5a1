//! Terminals that work for a while.

use super::Size;
use super::connection::{Conflict, Connect, Connection};
use super::transactions::{Kind, Request, Terminal};
use crate::histogram::Histogram;
use crate::random::Random;
use anyhow::Result;
use gannet_store::{ThreadReads, thread_reads};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Latencies by kind, in the order of [`Kind::ALL`]; those that were rolled back on purpose included.
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

    /// New orders a minute. Without the think times of the specification it is no tpmC.
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
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let mut terminals = Vec::new();
    for number in 0..plan.terminals {
        let mut connection = connect.connect()?;
        let warehouse = number % plan.size.warehouses + 1;
        let terminal = Terminal::new(&mut *connection, warehouse)?;
        terminals.push((connection, terminal, warehouse, Random::new(plan.seed ^ u64::from(number) << 40)));
    }
    let began = Instant::now();
    let results: Vec<Result<Worked>> = std::thread::scope(|scope| {
        let (stop, done) = (&stop, &done);
        let threads: Vec<_> = terminals
            .into_iter()
            .map(|(connection, terminal, warehouse, random)| {
                scope.spawn(move || {
                    let result = work(connection, &terminal, warehouse, plan.size, random, stop, done);
                    if result.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        while began.elapsed() < plan.time && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50).min(plan.time.saturating_sub(began.elapsed())));
            if !watch(began.elapsed(), done.load(Ordering::Relaxed)) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a terminal panicked"))))
            .collect()
    });
    let elapsed = began.elapsed();
    let (latencies, reads) = Default::default();
    let mut outcome = Outcome { latencies, rolled_back: 0, reads, conflicts: [0; 5], elapsed };
    for result in results {
        let worked = result?;
        outcome.latencies.iter_mut().zip(&worked.latencies).for_each(|(into, from)| into.merge(from));
        outcome.reads.iter_mut().zip(worked.reads).for_each(|(into, from)| into.add(from));
        outcome.rolled_back += worked.rolled_back;
        outcome.conflicts.iter_mut().zip(worked.conflicts).for_each(|(into, from)| *into += from);
    }
    Ok(outcome)
}

#[derive(Default)]
struct Worked {
    latencies: [Histogram; 5],
    rolled_back: u64,
    reads: [Reads; 5],
    conflicts: [u64; 5],
}

fn work(
    mut connection: Box<dyn Connection>,
    terminal: &Terminal,
    warehouse: u32,
    size: Size,
    mut random: Random,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Result<Worked> {
    let mut worked = Worked::default();
    while !stop.load(Ordering::Relaxed) {
        let kind = Kind::draw(&mut random);
        let request = Request::draw(kind, warehouse, size, &mut random);
        let (began, before) = (Instant::now(), thread_reads());
        let committed = loop {
            match terminal.run(&mut *connection, &request) {
                Ok(committed) => break committed,
                // Latency counts from the first attempt.
                Err(error) if error.is::<Conflict>() => worked.conflicts[kind as usize] += 1,
                Err(error) => return Err(error.context(format!("{} failed", kind.name()))),
            }
        };
        worked.latencies[kind as usize].record(began.elapsed(), 1);
        worked.reads[kind as usize].add(thread_reads().since(before).into());
        worked.rolled_back += u64::from(!committed);
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(worked)
}
