//! One life of an embedded database: a process of its own that opens it, works on it, and closes it, or dies.
//!
//! Every fourth operation of a thread counts in a row of the thread's own, behind all others. What a thread has counted, and was told is committed, has to be there in
//! every later life.
//!
//! It prints a line of JSON for each event: `open` when the first commit is there, `end` when the work is done, `closed`. One that is to die does so behind `end`, while its
//! threads go on. Berkeley DB's lives are led by its program, which prints the same.

use super::{INTERVAL, LOOK_EVERY, Samples, Setup, Side, go_on};
use crate::driver::{Driver, Rows, Session};
use crate::gannet::{self, Gannet};
use crate::histogram::Histogram;
use crate::random::Random;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a value; keys have 8.
pub const VALUE_LEN: usize = 192;
pub(super) const PAGE_SIZE: usize = 8192;
/// Of so many operations, one counts.
const COUNTS_EACH: u64 = 4;
/// SQLite has a cache for each connection, and the OS cache besides, which does better with most of the memory.
#[cfg(feature = "rivals")]
const SQLITE_CACHE: u64 = 4 << 20;

/// What a life is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Updates, for the time that was set up.
    Work,
    /// Updates until there is as much log as was set up, and for the time at least; then it dies.
    Die,
    /// Nothing but what the start has left to be done, for the time at most.
    Rest,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Purpose; 3] = [Purpose::Work, Purpose::Die, Purpose::Rest];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Work => "work",
            Purpose::Die => "die",
            Purpose::Rest => "rest",
        }
    }
}

fn open(setup: &Setup, folder: &Path, create: bool) -> Result<Box<dyn Driver>> {
    match setup.side {
        Side::Gannet => {
            let options = gannet::Options {
                folder: folder.to_owned(),
                memory: setup.budget(),
                page_size: PAGE_SIZE,
                mode: gannet::mode(&setup.io)?,
                wal_limit: setup.wal_limit(),
                profile: setup.profile.as_ref().map(|(_, profile)| *profile),
            };
            Ok(Box::new(Gannet::open(&options, create)?))
        }
        #[cfg(feature = "rivals")]
        Side::Sqlite => {
            let options = crate::sqlite::Options {
                folder: folder.to_owned(),
                cache: SQLITE_CACHE,
                connections: setup.sessions,
                page_size: PAGE_SIZE,
            };
            // What a load leaves in its log is to be home.
            let sqlite = crate::sqlite::Sqlite::open(&options, create)?;
            Ok(Box::new(if create { sqlite } else { sqlite.keeping_log() }))
        }
        other => bail!("{} cannot be embedded by this build", other.name()),
    }
}

pub(super) fn rows(setup: &Setup) -> Rows {
    Rows { count: setup.rows + setup.sessions as u64, value_len: VALUE_LEN }
}

/// Makes a database and fills it.
pub(super) fn load(setup: &Setup, folder: &Path) -> Result<Value> {
    let driver = open(setup, folder, true)?;
    driver.load(&rows(setup), crate::driver::LoadOrder::Sorted)?;
    let settings = driver.settings();
    driver.close()?;
    Ok(settings)
}

/// What the threads of a life share.
struct Crew {
    is_over: AtomicBool,
    done: AtomicU64,
    /// What each thread has counted and was told is committed.
    told: Vec<AtomicU64>,
    latency: Mutex<Histogram>,
    failed: AtomicBool,
}

/// The number that a counter's value has.
fn number(value: &[u8]) -> Result<u64> {
    Ok(u64::from_le_bytes(*value.first_chunk().context("a counter of less than 8 bytes")?))
}

fn counter(setup: &Setup, thread: usize) -> crate::driver::Key {
    Rows::key(setup.rows + thread as u64)
}

fn update(session: &mut dyn Session, key: &crate::driver::Key, value: &[u8]) -> Result<()> {
    match session.update(key, value)? {
        true => Ok(()),
        false => bail!("a row that was loaded is not there"),
    }
}

/// One thread's work.
fn worker(setup: &Setup, driver: &dyn Driver, crew: &Crew, thread: usize) -> Result<()> {
    let rows = rows(setup);
    driver.session(&mut |session| {
        let mut random = Random::new(setup.seed.wrapping_mul(1_000_003) + thread as u64);
        let (mut latency, mut value, mut call) = (Histogram::default(), Vec::new(), 0_u64);
        while !crew.is_over.load(Ordering::Relaxed) {
            call += 1;
            let begun = Instant::now();
            if call.is_multiple_of(COUNTS_EACH) {
                let next = crew.told[thread].load(Ordering::Relaxed) + 1;
                rows.value(next, call, &mut value);
                update(session, &counter(setup, thread), &value)?;
                crew.told[thread].store(next, Ordering::Relaxed);
            } else {
                let row = random.below(setup.rows);
                rows.value(row, call, &mut value);
                update(session, &Rows::key(row), &value)?;
            }
            latency.record(begun.elapsed(), 1);
            crew.done.fetch_add(1, Ordering::Relaxed);
        }
        crew.latency.lock().unwrap_or_else(PoisonError::into_inner).merge(&latency);
        Ok(())
    })
}

fn say(event: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{event}")?;
    Ok(out.flush()?)
}

fn is_redoing(driver: &dyn Driver) -> bool {
    driver.restart().is_some_and(|report| report["phase"] == "redo")
}

/// Lives. `begun` is when the process was started.
pub fn live(setup: &Setup, folder: &Path, purpose: Purpose, begun: Instant, stop: &AtomicBool) -> Result<()> {
    let driver = open(setup, &super::database(folder), false)?;
    let mut closing = Instant::now();
    // SQLite copies its log home when the last session ends: this one, so that it counts as closing.
    driver.session(&mut |session| {
        let rows = rows(setup);
        let row = Random::new(setup.seed).below(setup.rows);
        let mut value = Vec::new();
        rows.value(row, 1, &mut value);
        update(session, &Rows::key(row), &value)?;
        let first_commit = begun.elapsed();
        let counted: Vec<u64> = (0..setup.sessions)
            .map(|thread| number(&session.value(&counter(setup, thread))?.context("a counter is gone")?))
            .collect::<Result<_>>()?;
        say(&json!({
            "event": "open", "first_commit_seconds": first_commit.as_secs_f64(), "counted": counted,
            "settings": driver.settings(), "driver": driver.name(),
        }))?;
        match purpose {
            Purpose::Rest => rest(setup, &*driver, begun, stop)?,
            Purpose::Work | Purpose::Die => work(setup, &*driver, purpose, counted, begun, stop)?,
        }
        closing = Instant::now();
        Ok(())
    })?;
    driver.close()?;
    say(&json!({ "event": "closed", "seconds": closing.elapsed().as_secs_f64() }))
}

/// Watches what the start has left to be done.
fn rest(setup: &Setup, driver: &dyn Driver, begun: Instant, stop: &AtomicBool) -> Result<()> {
    let until = Instant::now() + setup.time;
    while is_redoing(driver) && Instant::now() < until {
        go_on(stop)?;
        std::thread::sleep(LOOK_EVERY);
    }
    let redone = (!is_redoing(driver)).then(|| begun.elapsed().as_secs_f64());
    say(&json!({
        "event": "end", "redo_seconds": redone, "watched_seconds": begun.elapsed().as_secs_f64(), "restart": driver.restart(),
        // Who does not say what there was to be redone has it all still.
        "log_bytes": driver.restart().map_or(json!(driver.log_bytes()), |mut report| report["log_bytes"].take()),
    }))
}

fn work(
    setup: &Setup,
    driver: &dyn Driver,
    purpose: Purpose,
    counted: Vec<u64>,
    begun: Instant,
    stop: &AtomicBool,
) -> Result<()> {
    let crew = Crew {
        is_over: AtomicBool::new(false),
        done: AtomicU64::new(0),
        told: counted.into_iter().map(AtomicU64::new).collect(),
        latency: Mutex::default(),
        failed: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..setup.sessions)
            .map(|thread| {
                let crew = &crew;
                scope.spawn(move || {
                    let result = worker(setup, driver, crew, thread);
                    crew.failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    result
                })
            })
            .collect();
        let watched = watch(setup, driver, purpose, &crew, begun, stop);
        crew.is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        let mut end = watched?;
        end["told"] = json!(told(&crew));
        end["latency_us"] = crew.latency.lock().unwrap_or_else(PoisonError::into_inner).to_json();
        say(&end)
    })
}

fn told(crew: &Crew) -> Vec<u64> {
    crew.told.iter().map(|counter| counter.load(Ordering::Relaxed)).collect()
}

/// Counts until it is time for an end, or to die.
fn watch(
    setup: &Setup,
    driver: &dyn Driver,
    purpose: Purpose,
    crew: &Crew,
    begun: Instant,
    stop: &AtomicBool,
) -> Result<Value> {
    let (loaded, mut samples) = (Instant::now(), Samples::default());
    samples.add(begun.elapsed().as_secs_f64(), 0);
    let mut growth = super::Growth::new(setup.log, setup.time);
    let mut redone = (!is_redoing(driver)).then(|| begun.elapsed());
    let mut next = loaded;
    loop {
        next += INTERVAL;
        while Instant::now() < next {
            if redone.is_none() && !is_redoing(driver) {
                redone = Some(begun.elapsed());
            }
            std::thread::sleep(LOOK_EVERY.min(next.saturating_duration_since(Instant::now())));
        }
        go_on(stop)?;
        samples.add(begun.elapsed().as_secs_f64(), crew.done.load(Ordering::Relaxed));
        if crew.failed.load(Ordering::Relaxed) {
            // The thread's own error follows.
            return Ok(Value::Null);
        }
        let is_over = match purpose {
            Purpose::Die => growth.is_over(driver.log_bytes().unwrap_or(0))?,
            Purpose::Work | Purpose::Rest => loaded.elapsed() >= setup.time,
        };
        if !is_over {
            continue;
        }
        let mut end = json!({
            "event": "end", "samples": samples.to_json(), "log_bytes": driver.log_bytes(),
            "redo_seconds": redone.as_ref().map(Duration::as_secs_f64), "restart": driver.restart(),
        });
        if purpose == Purpose::Die {
            end["told"] = json!(told(crew));
            say(&end)?;
            // Its threads are at work: what a crash is.
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
            bail!("it did not die of being killed");
        }
        return Ok(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(rows: u64) -> Setup {
        Setup {
            side: Side::Gannet,
            memory: 80 << 20,
            io: "auto".to_owned(),
            log: 32 << 20,
            sessions: 3,
            rows,
            branches: 0,
            profile: None,
            program: None,
            time: Duration::ZERO,
            seed: 1,
        }
    }

    #[test]
    fn what_the_threads_were_told_is_there_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let setup = setup(1000);
        load(&setup, &super::super::database(folder.path())).unwrap();
        let driver = open(&setup, &super::super::database(folder.path()), false).unwrap();
        let crew = Crew {
            is_over: AtomicBool::new(false),
            done: AtomicU64::new(0),
            told: [0, 0, 0].map(AtomicU64::new).into(),
            latency: Mutex::default(),
            failed: AtomicBool::new(false),
        };
        std::thread::scope(|scope| {
            let (driver, crew, setup) = (&*driver, &crew, &setup);
            let threads: Vec<_> =
                (0..3).map(|thread| scope.spawn(move || worker(setup, driver, crew, thread))).collect();
            while crew.told.iter().any(|told| told.load(Ordering::Relaxed) < 2) {
                std::thread::sleep(LOOK_EVERY);
            }
            crew.is_over.store(true, Ordering::Relaxed);
            threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
        driver
            .session(&mut |session| {
                for (thread, told) in told(&crew).into_iter().enumerate() {
                    let value = session.value(&counter(&setup, thread))?.unwrap();
                    assert_eq!(number(&value)?, told);
                }
                Ok(())
            })
            .unwrap();
        driver.close().unwrap();
    }

    #[test]
    fn who_cannot_be_embedded_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup { side: Side::WirePostgres, ..setup(1) };
        let error = load(&setup, folder.path()).unwrap_err();
        assert!(error.to_string().contains("wire-postgresql"), "{error}");
    }
}
