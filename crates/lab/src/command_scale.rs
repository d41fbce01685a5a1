//! `gannet-lab scale`: TPC-C on a server with less memory than data. `load` fills a folder; `run` copies it, starts a server on the copy with a limit of its
//! memory, lets sessions work, checks what they have left, and removes the copy.

use anyhow::{Context, Result, bail};
use gannet_base::units::parse_size;
use gannet_lab::device::{Counters, number_of};
use gannet_lab::folders;
use gannet_lab::gannet::forget_hot;
use gannet_lab::servers::DATABASE;
use gannet_lab::sides::{Options, POSTGRESQL, Server, Side};
use gannet_lab::throttle::{self, Throttle};
use gannet_lab::tpcc::connection::Connect;
use gannet_lab::tpcc::run::{Outcome, Plan, SampleLatencies, run};
use gannet_lab::tpcc::{Size, check, load, whole};
use lexopt::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often it is looked whether a step is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often figures are kept.
const SAMPLE: Duration = Duration::from_secs(1);
/// Brings all tables and indexes into PostgreSQL's memory, the parts besides that nobody asks for with them.
const PREWARM: &str = "create extension if not exists pg_prewarm; \
    select count(pg_prewarm(oid)) from pg_class where relkind in ('r', 'i') and relnamespace = 'public'::regnamespace";
/// What a sample says, in this order.
const COLUMNS: [&str; 13] = [
    "seconds",
    "transactions",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "longest_ms",
    "device_reads",
    "device_read_bytes",
    "device_writes",
    "device_written_bytes",
    "server_resident_bytes",
    "group_resident_bytes",
    "group_cached_bytes",
];

struct Arguments {
    step: String,
    side: Option<Side>,
    /// Where the database is, for `run`.
    from: PathBuf,
    /// Where it is made, or copied to.
    to: PathBuf,
    memory: u64,
    io: String,
    settings: Vec<String>,
    /// Whether statements that do not need each other's rows are asked at once.
    pipelined: bool,
    size: Size,
    sessions: u32,
    warm_up: Duration,
    settle: Duration,
    time: Duration,
    profile: String,
    /// Whether the database fits into the memory: rivals' caches are set for that.
    fits: bool,
    seed: u64,
}

fn seconds(parser: &mut lexopt::Parser) -> Result<Duration> {
    Ok(Duration::from_secs(parser.value()?.parse()?))
}

fn parse(parser: &mut lexopt::Parser) -> Result<Arguments> {
    let mut arguments = Arguments {
        step: String::new(),
        side: None,
        from: PathBuf::new(),
        to: PathBuf::new(),
        memory: 0,
        io: "auto".to_owned(),
        settings: Vec::new(),
        pipelined: false,
        size: Size::new(1),
        sessions: 25,
        warm_up: Duration::ZERO,
        settle: Duration::ZERO,
        time: Duration::from_secs(10),
        profile: throttle::AS_IS.to_owned(),
        fits: false,
        seed: 1,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Value(word) if arguments.step.is_empty() => arguments.step = word.string()?,
            Long("server") => {
                let name = parser.value()?.string()?;
                let side = Side::named(&name).filter(|&side| side != Side::Sqlite);
                arguments.side =
                    Some(side.with_context(|| {
                        format!("--server is gannet, postgresql or firebird, not {name:?}")
                    })?);
            }
            Long("from") => arguments.from = parser.value()?.into(),
            Long("to") => arguments.to = parser.value()?.into(),
            Long("memory") => arguments.memory = parse_size(&parser.value()?.string()?)?,
            Long("io") => arguments.io = parser.value()?.string()?,
            Long("setting") => arguments.settings.push(parser.value()?.string()?),
            Long("pipelined") => arguments.pipelined = true,
            Long("warehouses") => arguments.size = Size::new(parser.value()?.parse()?),
            Long("sessions") => arguments.sessions = parser.value()?.parse()?,
            Long("warm-up") => arguments.warm_up = seconds(parser)?,
            Long("settle") => arguments.settle = seconds(parser)?,
            Long("seconds") => arguments.time = seconds(parser)?,
            Long("fits") => arguments.fits = true,
            Long("profile") => arguments.profile = parser.value()?.string()?,
            Long("seed") => arguments.seed = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let runs = match arguments.step.as_str() {
        "load" => false,
        "run" => true,
        other => bail!("scale is load or run, not {other:?}"),
    };
    if arguments.side.is_none() {
        bail!("--server says whom to start: gannet, postgresql or firebird");
    }
    if arguments.to.as_os_str().is_empty() || arguments.from.as_os_str().is_empty() == runs {
        bail!(
            "load takes --to, a folder to be made; run takes --from, what load has made, and --to, where a copy of it goes"
        );
    }
    if runs && arguments.memory == 0 {
        bail!("--memory is what the server may have, page cache included");
    }
    if arguments.size.warehouses == 0 || arguments.sessions == 0 || arguments.time.is_zero() {
        bail!("--warehouses, --sessions and --seconds are 1 or more");
    }
    if arguments.pipelined && (!runs || arguments.side == Some(Side::Firebird)) {
        bail!("--pipelined goes with run, and with gannet and postgresql");
    }
    if arguments.profile != throttle::AS_IS && throttle::profile(&arguments.profile).is_none() {
        bail!("--profile is as-is, cloud or raid10, not {:?}", arguments.profile);
    }
    Ok(arguments)
}

/// Runs the command; one JSON object on standard output.
pub(crate) fn work(parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    let arguments = parse(parser)?;
    let side = arguments.side.context("--server says whom to start")?;
    let result = match arguments.step.as_str() {
        "load" => fill(&arguments, side, stop),
        _ => measured_copy(&arguments, side, stop),
    };
    match result {
        // What went wrong besides is what ending brings.
        _ if stop.load(Ordering::Relaxed) => bail!("interrupted"),
        Ok(figures) => crate::output::line(figures),
        Err(error) => Err(error),
    }
}

/// Does something with a server, which is asked to end when `stop` is set: whoever waits for it fails then.
fn beside<T>(server: &Server, stop: &AtomicBool, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    server.ask_to_end();
                    return;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        let _done = Done(&done);
        work()
    })
}

/// Says that something has ended, in whatever way.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn start(arguments: &Arguments, side: Side, memory: Option<u64>, settings: Vec<String>) -> Result<Server> {
    Options { side, folder: arguments.to.clone(), memory, io: arguments.io.clone(), settings }.start()
}

fn fill(arguments: &Arguments, side: Side, stop: &AtomicBool) -> Result<Value> {
    let folder = &arguments.to;
    side.make(folder)?;
    let settings: &[&str] = match side {
        // What the log has grown to is copied with the database each time.
        POSTGRESQL => &["max_wal_size=512MB", "maintenance_work_mem=256MB"],
        _ => &[],
    };
    let settings = settings.iter().map(|&word| word.to_owned()).collect();
    let server = start(arguments, side, None, settings)?;
    let began = Instant::now();
    let (rows, database_bytes) = beside(&server, stop, || {
        if let (Server::Wire(server), POSTGRESQL) = (&server, side) {
            server.client("postgres")?.run(&format!("create database {DATABASE}"))?;
        }
        let to = server.connect()?;
        let plan = load::Load { size: arguments.size, seed: arguments.seed, loaders: 2 };
        let rows = load::tables(&*to, &plan, |_| !stop.load(Ordering::Relaxed))?;
        let mut connection = to.connect()?;
        load::finish(&mut *connection, || !stop.load(Ordering::Relaxed))?;
        if side == POSTGRESQL {
            connection.batch("vacuum analyze")?;
        }
        connection.batch("checkpoint")?;
        Ok((rows, server.database_bytes()?))
    })?;
    let time = began.elapsed();
    let described = server.describe();
    server.stop()?;
    side.loaded(folder)?;
    // Nobody is to begin with what was in memory the last time.
    forget_hot(folder)?;
    Ok(json!({
        "workload": "scale load", "server": described, "warehouses": arguments.size.warehouses, "seed": arguments.seed,
        "seconds": time.as_secs_f64(), "rows": rows, "database_bytes": database_bytes, "folder_bytes": folders::bytes(folder)?,
    }))
}

fn measured_copy(arguments: &Arguments, side: Side, stop: &AtomicBool) -> Result<Value> {
    let began = Instant::now();
    folders::copy(&arguments.from, &arguments.to, stop)?;
    let copied = began.elapsed();
    let measured = measure(arguments, side, stop);
    let removed = folders::remove(&arguments.to);
    let mut measured = measured?;
    removed?;
    measured["copy_seconds"] = copied.as_secs_f64().into();
    Ok(measured)
}

fn measure(arguments: &Arguments, side: Side, stop: &AtomicBool) -> Result<Value> {
    let disk = Disk::of(&arguments.to)?;
    let began = Instant::now();
    let mut settings =
        if arguments.fits { side.fitting(&arguments.to, arguments.memory)? } else { Vec::new() };
    settings.extend(arguments.settings.iter().cloned());
    let server = start(arguments, side, Some(arguments.memory), settings)?;
    let started = began.elapsed();
    let mut figures = beside(&server, stop, || load_and_check(arguments, &server, &disk, stop))?;
    let after = server.database_bytes()?;
    let ended = server.stop()?;
    let more = json!({ "start_seconds": started.as_secs_f64(), "end_seconds": ended.map(|ended| ended.as_secs_f64()), "database_bytes_after": after });
    if let (Value::Object(figures), Value::Object(more)) = (&mut figures, more) {
        figures.extend(more);
    }
    Ok(figures)
}

/// The disk that everything is on.
struct Disk(String);

impl Disk {
    fn of(folder: &Path) -> Result<Self> {
        Ok(Disk(number_of(folder)?))
    }

    /// What it has done; nothing where the system does not say.
    fn counters(&self) -> Option<Counters> {
        Counters::of(&self.0)
    }
}

fn per(counters: Option<Counters>, unit: f64) -> Value {
    let Some(counters) = counters else { return Value::Null };
    let each = |count: u64| count as f64 / unit;
    json!({
        "reads": each(counters.reads), "read_bytes": each(counters.read_bytes),
        "writes": each(counters.writes), "written_bytes": each(counters.written_bytes),
    })
}

fn load_and_check(arguments: &Arguments, server: &Server, disk: &Disk, stop: &AtomicBool) -> Result<Value> {
    let to = if arguments.pipelined { server.connect_pipelined()? } else { server.connect()? };
    let plan = |time, phase: u64| Plan {
        size: arguments.size,
        terminals: arguments.sessions,
        time,
        seed: arguments.seed + phase * 1_000_003,
        rate: None,
        think: None,
        each: false,
        sample: SAMPLE,
    };
    let read = if arguments.fits { Some(read_all(arguments, &*to, stop)?) } else { None };
    let first = disk.counters();
    let before = server.database_bytes()?;
    // Without a limit, so that what is warm does not depend on it.
    let warm_up = unmeasured(&*to, &plan(arguments.warm_up, 1), stop)?;
    let limit = throttle::profile(&arguments.profile);
    let throttle = limit.map(|iops| Throttle::begin(&arguments.to, iops)).transpose()?;
    let settled = unmeasured(&*to, &plan(arguments.settle, 2), stop)?;
    let (outcome, sampled, device) = sampled(&*to, &plan(arguments.time, 0), server, disk, stop)?;
    let worked = warm_up + settled + outcome.transactions();
    let group = server.group();
    drop(throttle);
    let began = Instant::now();
    let mut connection = to.connect()?;
    connection.batch("checkpoint")?;
    let whole = disk.counters().zip(first).map(|(now, first)| now.since(first));
    let checkpoint = began.elapsed();
    let began = Instant::now();
    server.lift_limit();
    if arguments.side == Some(POSTGRESQL) {
        connection.batch("set work_mem = '64MB'")?;
    }
    let mut conditions = Vec::new();
    for condition in check::CONDITIONS {
        let found = check::violations(&mut *connection, condition)
            .with_context(|| format!("condition {}", condition.number))?;
        conditions.push(json!({ "number": condition.number, "says": condition.says, "violations": found }));
    }
    let checked = began.elapsed();
    let mut measured = outcome.to_json();
    let seconds = outcome.elapsed.as_secs_f64();
    measured["samples"] = json!({ "columns": COLUMNS, "rows": sampled });
    measured["device_per_second"] = per(device, seconds);
    measured["device_per_transaction"] = per(device, outcome.transactions().max(1) as f64);
    Ok(json!({
        "workload": "scale run", "server": server.describe(), "memory_bytes": arguments.memory, "io": arguments.io,
        "warehouses": arguments.size.warehouses, "sessions": arguments.sessions, "seed": arguments.seed,
        "pipelined": arguments.pipelined, "profile": arguments.profile, "iops_limit": limit, "database_bytes": before,
        "read_first": read,
        "warm_up": { "seconds": arguments.warm_up.as_secs(), "transactions": warm_up },
        "settled": { "seconds": arguments.settle.as_secs(), "transactions": settled }, "measured": measured, "group": group,
        // From the warm-up to the checkpoint behind the load: nothing that was changed is left to be written.
        "whole": { "transactions": worked, "device_per_transaction": per(whole, worked.max(1) as f64), "checkpoint_seconds": checkpoint.as_secs_f64() },
        "conditions": conditions, "check_seconds": checked.as_secs_f64(),
    }))
}

/// Has the server read all of its database, which fits into its memory.
fn read_all(arguments: &Arguments, to: &dyn Connect, stop: &AtomicBool) -> Result<Value> {
    let began = Instant::now();
    let mut connection = to.connect()?;
    let rows = whole::all(&mut *connection, arguments.size, stop)?;
    // What PostgreSQL can do besides, where it has the extension for that.
    let is_prewarmed = arguments.side == Some(POSTGRESQL) && connection.batch(PREWARM).is_ok();
    Ok(json!({ "rows": rows, "seconds": began.elapsed().as_secs_f64(), "pg_prewarm": is_prewarmed }))
}

/// Lets sessions work, for nothing but the effect; gives the number of transactions.
fn unmeasured(to: &dyn Connect, plan: &Plan, stop: &AtomicBool) -> Result<u64> {
    if plan.time.is_zero() {
        return Ok(0);
    }
    Ok(run(to, plan, |_| !stop.load(Ordering::Relaxed))?.transactions())
}

/// Lets sessions work. Gives what came of it, by the second, and what the device did meanwhile.
fn sampled(
    to: &dyn Connect,
    plan: &Plan,
    server: &Server,
    disk: &Disk,
    stop: &AtomicBool,
) -> Result<(Outcome, Vec<Vec<Value>>, Option<Counters>)> {
    let first = disk.counters();
    let (mut last, mut seen) = (first, Vec::new());
    let outcome = run(to, plan, |moment| {
        // With each sample of the transactions, as it ends.
        if moment.samples > seen.len() {
            let now = disk.counters();
            let done = now.zip(last).map(|(now, last)| now.since(last));
            last = now;
            let (resident, cached) = server.memory();
            let count = |of: fn(Counters) -> u64| json!(done.map(of));
            seen.push(vec![
                count(|done| done.reads),
                count(|done| done.read_bytes),
                count(|done| done.writes),
                count(|done| done.written_bytes),
                json!(resident),
                json!(server.resident()),
                json!(cached),
            ]);
        }
        !stop.load(Ordering::Relaxed)
    })?;
    let device = disk.counters().zip(first).map(|(now, first)| now.since(first));
    let samples = outcome.samples.iter().zip(seen).map(|(sample, seen)| {
        let of = |figure: fn(SampleLatencies) -> f64| json!(sample.latencies.map(figure));
        let mut row = vec![
            json!(sample.at.as_secs_f64()),
            json!(sample.transactions),
            of(|latencies| latencies.p50_ms),
            of(|latencies| latencies.p95_ms),
            of(|latencies| latencies.p99_ms),
            of(|latencies| latencies.longest_ms),
        ];
        row.extend(seen);
        row
    });
    let samples = samples.collect();
    Ok((outcome, samples, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Arguments> {
        parse(&mut lexopt::Parser::from_args(words))
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let right = ["run", "--server", "gannet", "--from", "a", "--to", "b", "--memory", "64MiB"];
        let arguments = parsed(&right).unwrap();
        assert_eq!((arguments.memory, arguments.sessions, &*arguments.profile), (64 << 20, 25, "as-is"));
        for (more, names) in [
            (&["--server", "oracle"][..], "oracle"),
            (&["--profile", "floppy"], "floppy"),
            (&["--warehouses", "0"], "--warehouses"),
            (&["--memory", "0"], "--memory"),
            (&["--colour", "red"], "--colour"),
        ] {
            let error = parsed(&[&right[..], more].concat()).err().unwrap();
            assert!(error.to_string().contains(names), "{error}");
        }
        for words in [&["walk"][..], &["load", "--to", "b"], &["load", "--server", "gannet"]] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
        assert!(parsed(&["load", "--server", "gannet", "--to", "b", "--from", "a"]).is_err());
    }
}
