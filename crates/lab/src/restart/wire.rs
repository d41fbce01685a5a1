//! Trials of servers: TPC-B by many sessions, whose server is killed and started anew.
//!
//! Nobody but one client looks whether a server is there again, every few milliseconds, as each attempt costs the server a little. The others come when that one has made
//! its first commit.

use super::{
    INTERVAL, LOOK_EVERY, Samples, Setup, Side, Work, copy, database, go_on, keep_told, log, read_told,
    sleep_until,
};
use crate::isolation::client::Client;
use crate::random::Random;
use crate::servers::{self, DATABASE, Kind, Options, Server};
use crate::tpcb::check::{self, Told};
use crate::tpcb::{Booking, Fate, Prepared, Size, load as bank};
use crate::tpcc::connection::{Conflict, Connect};
use crate::wire;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a server may take until its first commit.
const LONGEST_START: Duration = Duration::from_secs(1800);
/// How often a log's length is asked for.
const LOG_EVERY: Duration = Duration::from_millis(500);

fn kind(setup: &Setup) -> Kind {
    if setup.side == Side::WirePostgres { Kind::PostgreSql } else { Kind::Gannet }
}

/// The bank: each session counts in a row of its own, and so does whoever makes the first commit.
fn size(setup: &Setup) -> Size {
    Size { branches: setup.branches, sessions: setup.sessions as u64 + 1 }
}

/// How the server in a folder is started; `memory`: none while it is filled.
fn options(setup: &Setup, folder: &Path, memory: Option<u64>) -> Result<Options> {
    let settings = match kind(setup) {
        Kind::Gannet => {
            let path = folder.join("gannet.toml");
            std::fs::write(&path, format!("wal_limit = \"{}\"\n", setup.wal_limit()))
                .with_context(|| format!("cannot write {path:?}"))?;
            vec!["--config".to_owned(), path.display().to_string()]
        }
        // No checkpoint but those that are asked for, so that the log grows as far as it is to; and reads ahead in recovery as deep as its scans'.
        Kind::PostgreSql => vec![
            format!("max_wal_size={}MB", (8 * setup.log) >> 20),
            "checkpoint_timeout=1d".to_owned(),
            "maintenance_io_concurrency=64".to_owned(),
        ],
    };
    Ok(Options { kind: kind(setup), folder: database(folder), memory, io: setup.io.clone(), settings })
}

fn describe(setup: &Setup, server: &Server) -> Value {
    let mut settings = server.describe();
    if kind(setup) == Kind::Gannet {
        settings["wal_limit"] = json!(setup.wal_limit());
    }
    settings
}

fn target(server: &Server) -> wire::Server {
    wire::Server { target: server.target(DATABASE), pipelined: false }
}

/// Makes a bank.
///
/// # Errors
/// The server's, or that it is not installed.
pub fn load(setup: &Setup, to: &Path) -> Result<Value> {
    let begun = Instant::now();
    servers::make(kind(setup), &database(to))?;
    let server = options(setup, to, None)?.start()?;
    if kind(setup) == Kind::PostgreSql {
        server.client("postgres")?.run(&format!("create database {DATABASE}"))?;
    }
    bank::tables(&target(&server), size(setup))?;
    server.client(DATABASE)?.run("checkpoint")?;
    server.stop()?;
    Ok(
        json!({ "step": "load", "side": setup.side.name(), "branches": setup.branches, "seconds": begun.elapsed().as_secs_f64() }),
    )
}

/// What the sessions share.
struct Crew {
    is_over: AtomicBool,
    done: AtomicU64,
    failed: AtomicBool,
}

/// One session's work, until it is over or the server is gone.
fn session(
    target: &wire::Server,
    setup: &Setup,
    number: u64,
    seed: u64,
    crew: &Crew,
) -> (Told, Option<anyhow::Error>) {
    let mut told = Told::default();
    let mut work = || -> Result<()> {
        let mut connection = target.connect()?;
        let prepared = Prepared::new(&mut *connection)?;
        let mut random = Random::new(seed.wrapping_mul(1_000_003) + number);
        while !crew.is_over.load(Ordering::Relaxed) {
            let booking = Booking::random(size(setup), &mut random);
            match prepared.book(&mut *connection, number, booking) {
                Ok(()) => {
                    told.acknowledged += 1;
                    crew.done.fetch_add(1, Ordering::Relaxed);
                }
                Err((_, error)) if error.is::<Conflict>() => connection.batch("rollback")?,
                Err((fate, error)) => {
                    told.unknown += u64::from(fate == Fate::Unknown);
                    return Err(error);
                }
            }
        }
        Ok(())
    };
    let error = work().err();
    crew.failed.fetch_or(error.is_some(), Ordering::Relaxed);
    (told, error)
}

/// Lets all sessions work while `lead` watches, which ends the server; gives what `lead` does and what the sessions were told. It is no failure of a session that its server
/// is gone then; whatever else it ends with is one, also in the last moment, when `lead` looks no more.
fn under_load<R>(
    target: &wire::Server,
    setup: &Setup,
    seed: u64,
    lead: impl FnOnce(&Crew) -> Result<R>,
) -> Result<(R, Vec<Told>)> {
    let crew =
        Crew { is_over: AtomicBool::new(false), done: AtomicU64::new(0), failed: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let crew = &crew;
        let threads: Vec<_> = (0..setup.sessions as u64)
            .map(|number| scope.spawn(move || session(target, setup, number, seed, crew)))
            .collect();
        let led = lead(crew);
        crew.is_over.store(true, Ordering::Relaxed);
        let mut told = Vec::new();
        for thread in threads {
            let (mine, error) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            told.push(mine);
            match error {
                Some(error) if led.is_err() || !error.is::<wire::Gone>() => {
                    return Err(error.context(led.err().unwrap_or(anyhow::anyhow!("a session"))));
                }
                _ => {}
            }
        }
        Ok((led?, told))
    })
}

/// Waits for the end of an interval, and counts.
fn count(
    samples: &mut Samples,
    began: Instant,
    next: &mut Instant,
    crew: &Crew,
    stop: &AtomicBool,
) -> Result<()> {
    *next += INTERVAL;
    sleep_until(*next, stop)?;
    samples.add(began.elapsed().as_secs_f64(), crew.done.load(Ordering::Relaxed));
    if crew.failed.load(Ordering::Relaxed) {
        bail!("a session has failed");
    }
    Ok(())
}

fn one_value(client: &mut Client, sql: &str) -> Result<String> {
    let answer = client.run(sql)?;
    let value = answer.rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten();
    value.with_context(|| format!("{sql:?} gives nothing"))
}

fn log_bytes(setup: &Setup, client: &mut Client) -> Result<u64> {
    if kind(setup) == Kind::PostgreSql {
        let sql = "select (pg_current_wal_lsn() - redo_lsn)::bigint from pg_control_checkpoint()";
        return Ok(one_value(client, sql)?.parse()?);
    }
    let detail = one_value(client, "select detail from gannet_jobs where job = 'checkpoint'")?;
    log::gannet_bytes(&detail).with_context(|| format!("{detail:?} does not say how much log there is"))
}

/// Loads a copy, and kills its server at full load.
///
/// # Errors
/// The server's, or that somebody wants an end.
pub fn crash(setup: &Setup, from: &Path, to: &Path, stop: &AtomicBool) -> Result<Value> {
    copy(from, to, stop)?;
    let mut server = options(setup, to, Some(setup.memory))?.start()?;
    let settings = describe(setup, &server);
    let target = target(&server);
    let mut client = server.client(DATABASE)?;
    client.run("checkpoint")?;
    let (led, mut told) = under_load(&target, setup, setup.seed, |crew| {
        let (mut samples, began) = (Samples::default(), Instant::now());
        let mut growth = super::Growth::new(setup.log, setup.time);
        let (mut next, mut asked, mut bytes) = (began, began, 0);
        loop {
            count(&mut samples, began, &mut next, crew, stop)?;
            server.must_run()?;
            if asked.elapsed() < LOG_EVERY {
                continue;
            }
            asked = Instant::now();
            bytes = log_bytes(setup, &mut client)?.max(bytes);
            if growth.is_over(bytes)? {
                let group = server.group();
                server.kill()?;
                return Ok((samples, bytes, group));
            }
        }
    })?;
    let (samples, bytes, group) = led;
    told.push(Told::default());
    keep_told(to, &told)?;
    let acknowledged: u64 = told.iter().map(|told| told.acknowledged).sum();
    Ok(json!({
        "step": "crash", "side": setup.side.name(), "settings": settings, "log_bytes": bytes, "samples": samples.to_json(),
        "acknowledged": acknowledged, "group": group,
    }))
}

/// What a server has still to redo, as it says.
struct Redo {
    /// It is through.
    is_over: bool,
    report: Value,
}

const REPORT: &str = "select phase, open_seconds, background_seconds, pages, pages_left, redone_pages, log_bytes from gannet_restart";

fn redo(setup: &Setup, server: &Server, client: &mut Client) -> Result<Redo> {
    if kind(setup) == Kind::PostgreSql {
        // It lets nobody in before it is through.
        let redone = log::postgres_redone(&server.said()?);
        let report = redone.map_or(Value::Null, |redone| {
            json!({ "log_bytes": redone.bytes, "redo_seconds": redone.seconds, "checkpoint_seconds": redone.checkpoint_seconds })
        });
        return Ok(Redo { is_over: true, report });
    }
    let row = client.run(REPORT)?.rows.into_iter().next().context("gannet_restart has no row")?;
    let text = |index: usize| row.get(index).cloned().flatten().unwrap_or_default();
    let number = |index: usize| serde_json::from_str(&text(index)).unwrap_or(Value::Null);
    let report = json!({
        "phase": text(0), "open_seconds": number(1), "background_seconds": number(2), "pages": number(3), "pages_left": number(4),
        "redone_pages": number(5), "log_bytes": number(6),
    });
    Ok(Redo { is_over: text(0) != "redo", report })
}

/// Waits until somebody is let in, and commits a booking. Gives who did, and the seconds from the server's start.
fn first_commit(setup: &Setup, server: &mut Server, stop: &AtomicBool) -> Result<(Client, f64)> {
    let booking = Booking::random(size(setup), &mut Random::new(setup.seed));
    let session = setup.sessions as u64;
    loop {
        match server.client(DATABASE) {
            Ok(mut client) => {
                client.run(&booking.statements(session))?;
                return Ok((client, server.began().elapsed().as_secs_f64()));
            }
            Err(error) if server.began().elapsed() > LONGEST_START => return Err(error),
            Err(_) => server.must_run()?,
        }
        go_on(stop)?;
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Judges the books, and whether what was told is there.
fn judge(server: &Server, told: &[Told]) -> Result<Value> {
    let mut connection = target(server).connect()?;
    let begun = Instant::now();
    check::sums(&mut *connection)?;
    let found = check::counted(&mut *connection)?;
    check::compare(&found, told)?;
    Ok(json!({
        "conditions": check::COUNT, "sessions": told.len(), "acknowledged": told.iter().map(|told| told.acknowledged).sum::<u64>(),
        "unknown": told.iter().map(|told| told.unknown).sum::<u64>(), "found": found.iter().sum::<u64>(), "seconds": begun.elapsed().as_secs_f64(),
    }))
}

/// The first commit is one more that was told.
fn tell_first(told: &mut [Told]) {
    if let Some(first) = told.last_mut() {
        first.acknowledged += 1;
    }
}

/// Starts a copy of what a crash has left, loads it from the first commit on, has it end under load, starts it once more and judges the books.
///
/// # Errors
/// As [`crash`]; or something is lost.
pub fn loaded(setup: &Setup, from: &Path, work: &Path, stop: &AtomicBool) -> Result<Value> {
    let mut told = read_told(from)?;
    let work = Work::copy_of(from, work, stop)?;
    let options = options(setup, &work.0, Some(setup.memory))?;
    let mut server = options.launch()?;
    let (mut client, first) = first_commit(setup, &mut server, stop)?;
    tell_first(&mut told);
    let began = server.began();
    let target = target(&server);
    // Other bookings than those before the crash.
    let (led, more) = under_load(&target, setup, setup.seed + 1, |crew| {
        let mut samples = Samples::default();
        samples.add(first, 0);
        let (loaded, mut next) = (Instant::now(), Instant::now());
        let (mut redone, mut report) = (None, Value::Null);
        while loaded.elapsed() < setup.time {
            if redone.is_none() {
                let redo = redo(setup, &server, &mut client)?;
                redone = redo.is_over.then(|| began.elapsed().as_secs_f64());
                report = redo.report;
            }
            count(&mut samples, began, &mut next, crew, stop)?;
            server.must_run()?;
        }
        let group = server.group();
        let took = server.stop()?;
        Ok((samples, redone, report, group, took))
    })?;
    let (samples, redone, report, group, took) = led;
    for (before, more) in told.iter_mut().zip(more) {
        before.acknowledged += more.acknowledged;
        before.unknown += more.unknown;
    }
    let server = options.start()?;
    let judged = judge(&server, &told)?;
    server.stop()?;
    Ok(json!({
        "step": "loaded", "side": setup.side.name(), "first_commit_seconds": first, "samples": samples.to_json(), "redo_seconds": redone,
        "restart": report, "shutdown_loaded_seconds": took.as_secs_f64(), "judged": judged, "group": group,
    }))
}

/// A start that is left in peace until everything is redone; then the books are judged.
fn peaceful(setup: &Setup, server: &mut Server, told: &[Told], stop: &AtomicBool) -> Result<Value> {
    let (mut client, first) = first_commit(setup, server, stop)?;
    let began = server.began();
    let (redone, report) = loop {
        let redo = redo(setup, server, &mut client)?;
        if redo.is_over || began.elapsed() > setup.time {
            break (redo.is_over.then(|| began.elapsed().as_secs_f64()), redo.report);
        }
        sleep_until(Instant::now() + LOOK_EVERY, stop)?;
    };
    let watched = began.elapsed().as_secs_f64();
    let mut told = told.to_vec();
    tell_first(&mut told);
    Ok(json!({
        "first_commit_seconds": first, "log_bytes": report["log_bytes"], "redo_seconds": redone, "watched_seconds": watched,
        "restart": report, "judged": judge(server, &told)?,
    }))
}

/// Starts a copy of what a crash has left, leaves it in peace until everything is redone, and ends it; and another copy, which is killed in the middle of that.
///
/// # Errors
/// As [`loaded`].
pub fn rest(setup: &Setup, from: &Path, work: &Path, again: bool, stop: &AtomicBool) -> Result<Value> {
    let told = read_told(from)?;
    let copy = Work::copy_of(from, work, stop)?;
    let mut server = options(setup, &copy.0, Some(setup.memory))?.launch()?;
    let mut result = peaceful(setup, &mut server, &told, stop)?;
    let took = server.stop()?;
    drop(copy);
    result["step"] = json!("rest");
    result["side"] = json!(setup.side.name());
    result["shutdown_idle_seconds"] = json!(took.as_secs_f64());
    if again {
        // Who has nothing left to do behind the first commit is killed before it.
        let whole = match kind(setup) {
            Kind::Gannet => result["redo_seconds"].as_f64(),
            Kind::PostgreSql => result["first_commit_seconds"].as_f64(),
        };
        let after = Duration::from_secs_f64(whole.unwrap_or(setup.time.as_secs_f64()) / 2.0);
        let copy = Work::copy_of(from, work, stop)?;
        let options = options(setup, &copy.0, Some(setup.memory))?;
        let server = options.launch()?;
        sleep_until(server.began() + after, stop)?;
        let client = server.client(DATABASE);
        let (was_open, was_done) = match client {
            Ok(mut client) => (true, redo(setup, &server, &mut client)?.is_over),
            Err(_) => (false, false),
        };
        server.kill()?;
        let mut server = options.launch()?;
        let mut again = peaceful(setup, &mut server, &told, stop)?;
        server.stop()?;
        again["killed_after_seconds"] = json!(after.as_secs_f64());
        again["was_open"] = json!(was_open);
        again["was_done"] = json!(was_done);
        result["again"] = again;
    }
    Ok(result)
}
