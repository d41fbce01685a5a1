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
    /// How long they took; `None` where none ended: nothing is known of that then.
    pub latencies: Option<SampleLatencies>,
}

/// How long the transactions of a sample took.
#[derive(Clone, Copy, Debug)]
pub struct SampleLatencies {
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
        let transactions = latencies.count();
        let latencies = (transactions > 0).then(|| SampleLatencies {
            p50_ms: millis(0.5),
            p95_ms: millis(0.95),
            p99_ms: millis(0.99),
            longest_ms: latencies.max_us() / 1e3,
        });
        Sample { at, transactions, latencies }
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
    /// Of an open loop: how long those had waited that had come in by its end and that no terminal had taken. What they would have taken is more, so these are
    /// lower bounds; without them a stall that lasts until the end would count no more than the transactions that were under way.
    pub unserved: Option<Histogram>,
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

    /// Transactions that came in, of an open loop: those that were served and those that were not.
    pub fn offered(&self) -> Option<u64> {
        self.unserved.as_ref().map(|unserved| self.transactions() + unserved.count())
    }

    /// Latencies of all kinds together; of an open loop with the time that those had waited that were not served.
    pub fn all_latencies(&self) -> Histogram {
        let mut all = Histogram::default();
        self.latencies.iter().chain(&self.unserved).for_each(|latency| all.merge(latency));
        all
    }

    /// New orders a minute. Without the specification's times to type and think it is no tpmC.
    pub fn new_orders_per_minute(&self) -> f64 {
        let orders = self.latencies[0].count() - self.rolled_back;
        orders as f64 * 60.0 / self.elapsed.as_secs_f64()
    }
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Since it began.
    pub elapsed: Duration,
    /// Transactions that have ended.
    pub transactions: u64,
    /// Samples that have ended; each is told of at once.
    pub samples: usize,
}

/// Lets terminals work. `watch` is told now and then how far it has come, and may end the run early by giving false.
pub fn run(connect: &dyn Connect, plan: &Plan, mut watch: impl FnMut(Moment) -> bool) -> Result<Outcome> {
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
    let (results, stopped) = std::thread::scope(|scope| {
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
            let transactions = progress.done.load(Ordering::Relaxed);
            if !watch(Moment { elapsed: began.elapsed(), transactions, samples: samples.len() }) {
                break;
            }
        }
        let stopped = Instant::now();
        progress.stop.store(true, Ordering::Relaxed);
        let results: Vec<Result<Worked>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a terminal panicked"))))
            .collect();
        (results, stopped)
    });
    let elapsed = began.elapsed();
    let (latencies, reads) = Default::default();
    let mut outcome = Outcome {
        latencies,
        unserved: arrivals.map(|arrivals| arrivals.unserved(stopped)),
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
    /// Those that somebody had waited for when the end came.
    given_back: Mutex<Vec<Instant>>,
}

impl Arrivals {
    fn new(rate: f64, first: Instant, seed: u64) -> Self {
        let next = Mutex::new((first, Random::new(!seed)));
        Arrivals { apart: 1.0 / rate, next, given_back: Mutex::default() }
    }

    /// Takes the next one that nobody has taken.
    fn take(&self) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let came = next.0;
        next.0 = came + Duration::from_secs_f64(think::exponential(&mut next.1) * self.apart);
        came
    }

    /// Waits for the next transaction that nobody has taken, and says when it came in; `None` when the end came before it.
    fn next(&self, stop: &AtomicBool) -> Option<Instant> {
        let came = self.take();
        let is_due = think::until(came, stop);
        if !is_due {
            self.given_back.lock().unwrap_or_else(PoisonError::into_inner).push(came);
        }
        is_due.then_some(came)
    }

    /// How long those had waited at the end that had come in by then and that nobody has served.
    fn unserved(self, stopped: Instant) -> Histogram {
        let mut waited = Histogram::default();
        // Nobody takes any more, so what was given back is all there is, and the rest comes in its order.
        let given_back = self.given_back.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let rest = std::iter::from_fn(|| Some(self.take())).take_while(|&came| came <= stopped);
        for came in given_back.into_iter().filter(|&came| came <= stopped).chain(rest) {
            waited.record(stopped.duration_since(came), 1);
        }
        waited
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

#[cfg(test)]
mod tests {
    use super::super::connection::{Datum, Statement};
    use super::*;
    use std::sync::{Arc, OnceLock};

    /// A database that answers at once; when it is stalled, not before it is released, and slowly from then on.
    #[derive(Default)]
    struct Stalling {
        since: OnceLock<Instant>,
        is_released: AtomicBool,
    }

    struct Session {
        database: Arc<Stalling>,
        prepared: Vec<String>,
    }

    impl Session {
        fn wait(&self) {
            if self.database.since.get().is_none() {
                return;
            }
            while !self.database.is_released.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Less is served than comes in: however late the run's end is behind the release, nobody makes good for what has piled up.
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    impl Connect for Arc<Stalling> {
        fn connect(&self) -> Result<Box<dyn Connection>> {
            Ok(Box::new(Session { database: self.clone(), prepared: Vec::new() }))
        }
    }

    impl Connection for Session {
        fn batch(&mut self, _: &str) -> Result<()> {
            Ok(())
        }

        fn prepare(&mut self, sql: &str) -> Result<Statement> {
            self.prepared.push(sql.to_owned());
            Ok(Statement(self.prepared.len() - 1))
        }

        /// A row that is as good as any other: names where there are some, else numbers.
        fn query(&mut self, statement: Statement, _: &[Datum]) -> Result<Vec<Vec<Datum>>> {
            self.wait();
            let has_names = ["w_name", "d_name", "c_credit_lim"]
                .iter()
                .any(|name| self.prepared[statement.0].contains(name));
            let value = if has_names { Datum::Text("GC".to_owned()) } else { Datum::Int(1) };
            Ok(vec![vec![value; 14]])
        }

        fn execute(&mut self, _: Statement, _: &[Datum]) -> Result<u64> {
            self.wait();
            Ok(1)
        }

        fn load(&mut self, _: &str, _: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> Result<u64> {
            Ok(0)
        }
    }

    fn plan(rate: Option<f64>) -> Plan {
        Plan {
            size: Size::new(1),
            terminals: 2,
            time: Duration::MAX,
            seed: 1,
            rate,
            think: None,
            sample: Duration::from_millis(100),
            each: false,
        }
    }

    #[test]
    fn a_stall_that_lasts_until_the_end_counts_by_all_that_came_in_meanwhile() {
        let database = Arc::new(Stalling::default());
        let (mut before, mut stall, mut ended) = Default::default();
        let outcome = run(&database, &plan(Some(500.0)), |moment| {
            let (elapsed, done) = (moment.elapsed, moment.transactions);
            if done >= 100 && database.since.get().is_none() {
                before = elapsed;
                database.since.set(Instant::now()).unwrap();
            }
            (stall, ended) = (database.since.get().map_or(Duration::ZERO, Instant::elapsed), elapsed);
            // Two thirds of the time.
            let is_over = database.since.get().is_some() && stall >= before * 2;
            database.is_released.store(is_over, Ordering::Relaxed);
            !is_over
        })
        .unwrap();
        let (served, offered) = (outcome.transactions(), outcome.offered().unwrap());
        // It has stopped somewhere in between.
        let (least, most) = (0.7 * 500.0 * ended.as_secs_f64(), 1.3 * 500.0 * outcome.elapsed.as_secs_f64());
        assert!((least..most).contains(&(offered as f64)), "{offered}, not between {least} and {most}");
        assert!(served < offered, "{served} of {offered}");
        let all = outcome.all_latencies();
        assert_eq!(all.count(), offered);
        // A third of all came in within the first half of the stall.
        let stall = stall.as_secs_f64();
        assert!(all.quantile_us(0.99) / 1e6 >= stall / 2.0, "{} µs of {stall} s", all.quantile_us(0.99));
        // What had not ended in a sample has no latency in it.
        assert!(outcome.samples.iter().all(|sample| sample.latencies.is_some() == (sample.transactions > 0)));
    }

    #[test]
    fn each_sample_is_told_of_as_it_ends() {
        let mut told = Vec::new();
        let plan = Plan { sample: Duration::from_millis(50), ..plan(None) };
        let outcome = run(&Arc::new(Stalling::default()), &plan, |moment| {
            if moment.samples > told.len() {
                assert_eq!(moment.samples, told.len() + 1);
                told.push(moment.elapsed);
            }
            told.len() < 5
        })
        .unwrap();
        assert_eq!(outcome.samples.len(), told.len());
        // Between a sample's end and what is told of it no other one ends.
        for (place, (sample, told)) in outcome.samples.iter().zip(told).enumerate() {
            assert!(sample.at <= told, "{sample:?} {told:?}");
            assert!(outcome.samples.get(place + 1).is_none_or(|next| told < next.at), "{place}: {told:?}");
        }
    }

    #[test]
    fn a_closed_loop_leaves_nothing_unserved() {
        let outcome =
            run(&Arc::new(Stalling::default()), &plan(None), |moment| moment.transactions < 10).unwrap();
        assert_eq!((outcome.offered(), outcome.all_latencies().count()), (None, outcome.transactions()));
    }

    #[test]
    fn whoever_waits_for_an_arrival_at_the_end_gives_it_back() {
        let first = Instant::now() + Duration::from_secs(3600);
        let arrivals = || Arrivals::new(100.0, first, 7);
        let stop = AtomicBool::new(true);
        let waited = arrivals();
        assert_eq!((waited.next(&stop), waited.next(&stop)), (None, None));
        let end = first + Duration::from_secs(1);
        let (waited, all) = (waited.unserved(end), arrivals().unserved(end));
        assert_eq!(waited.count(), all.count());
        assert!((60..140).contains(&all.count()), "{}", all.count());
        assert!(all.max_us() >= 999_000.0, "{}", all.max_us());
        // What comes later is not counted.
        assert_eq!(arrivals().unserved(first - Duration::from_secs(1)).count(), 0);
    }
}
