//! A neighbour: another program with a working set of its own, in the memory cgroup of a server that scans and is backed up.
//!
//! The neighbour ([`live`]) reads random blocks of a file that fits into its part of the memory, through the OS cache, at a steady rate: what many programs
//! live on. What it has to read from the device again ([`Interval::read_again`], as the system accounts for it) somebody else has pushed out. It maps
//! nothing, as that would take unsafe code here: what a mapping would show as major faults is counted as reads, its program's own pages included.

use super::{Host, Session};
use crate::confine::{chill, end};
use crate::histogram::Histogram;
use crate::machine;
use crate::random::Random;
use anyhow::{Context, Result, bail};
use gannet_io::residency;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What it reads at a time.
const BLOCK: u64 = 4096;
/// In what time it reads as many blocks as it has.
const ROUND: Duration = Duration::from_secs(2);
/// How often it reads some.
const TURN: Duration = Duration::from_millis(2);
/// How often it tells.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long it may take until it has its working set.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a neighbour tells of a part of its time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Interval {
    /// Its end, in seconds since it was ready.
    pub seconds: f64,
    /// Blocks that it has asked for.
    pub touches: u64,
    /// Blocks that had to be read from the device.
    pub read_again: u64,
    /// The process's major faults: its program's own pages.
    pub major_faults: u64,
    /// Microseconds that 99 of 100 reads did not exceed.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Bytes of its file that the OS has cached.
    pub cached_bytes: Option<u64>,
}

/// Makes its file; nothing of it is cached then.
///
/// # Errors
/// It cannot be written.
pub fn make(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path).with_context(|| format!("cannot make {path:?}"))?;
    let (mut random, mut block) = (Random::new(bytes), vec![0; 1 << 20]);
    for _ in 0..bytes.div_ceil(1 << 20) {
        block.chunks_exact_mut(8).for_each(|eight| eight.copy_from_slice(&random.next_u64().to_le_bytes()));
        file.write_all(&block)?;
    }
    file.set_len(bytes)?;
    file.sync_all()?;
    chill(&[path.to_owned()])
}

/// Bytes that this process has had the device read.
fn read_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// The neighbour's life, until `stop` is set or nobody listens.
///
/// # Errors
/// Its file is missing.
pub fn live(path: &Path, out: &mut dyn Write, seed: u64, stop: &AtomicBool) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot open {path:?}"))?;
    let blocks = file.metadata()?.len() / BLOCK;
    if blocks == 0 {
        bail!("{path:?} is too short for a working set");
    }
    let mut buffer = [0; BLOCK as usize];
    // What was used twice is what a system tries to keep.
    for block in (0..blocks).chain(0..blocks) {
        file.read_exact_at(&mut buffer, block * BLOCK)?;
    }
    writeln!(out, "{}", json!({ "ready": true }))?;
    out.flush()?;
    let (mut random, began) = (Random::new(seed), Instant::now());
    let mut due = 0.0;
    let each_turn = blocks as f64 * TURN.as_secs_f64() / ROUND.as_secs_f64();
    let mut told = began;
    let (mut latency, mut bytes, mut faults) = (Histogram::default(), read_bytes(), machine::major_faults());
    let mut turns = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        due += each_turn;
        while due >= 1.0 {
            let begun = Instant::now();
            file.read_exact_at(&mut buffer, random.below(blocks) * BLOCK)?;
            latency.record(begun.elapsed(), 1);
            due -= 1.0;
        }
        std::hint::black_box(&buffer);
        if told.elapsed() >= INTERVAL {
            let (now, faulted) = (read_bytes(), machine::major_faults());
            let interval = Interval {
                seconds: began.elapsed().as_secs_f64(),
                touches: latency.count(),
                read_again: (now - bytes) / BLOCK,
                major_faults: faulted - faults,
                p99_us: latency.quantile_us(0.99),
                max_us: latency.max_us(),
                cached_bytes: residency([path]).cached_bytes(),
            };
            writeln!(out, "{}", serde_json::to_string(&interval)?)?;
            out.flush()?;
            (latency, bytes, faults, told) = (Histogram::default(), now, faulted, Instant::now());
        }
        turns += 1;
        // Who is late does not catch up by rushing: a program that waits for its pages serves fewer.
        let next = began + TURN * turns;
        match next.checked_duration_since(Instant::now()) {
            Some(rest) => std::thread::sleep(rest),
            None => turns = (began.elapsed().as_nanos() / TURN.as_nanos()) as u32,
        }
    }
    Ok(())
}

/// A neighbour that runs, until this is dropped.
struct Neighbour {
    child: Child,
    told: BufReader<std::process::ChildStdout>,
}

impl Neighbour {
    fn begin(host: &dyn Host, file: &Path, seed: u64) -> Result<Self> {
        let mut command = host.beside(&std::env::current_exe()?)?;
        command.args(["scan", "neighbour-program", "--file"]).arg(file).args(["--seed", &seed.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let told = BufReader::new(child.stdout.take().context("the neighbour has no output")?);
        Ok(Neighbour { child, told })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // Nothing of it is wanted any more.
        let _ = end(&mut self.child, Signal::TERM, Duration::from_secs(5));
    }
}

/// How long each part takes.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// The neighbour beside a server that has nothing to do.
    pub alone: Duration,
    /// Beside scans and backups.
    pub beside: Duration,
    /// Afterwards.
    pub after: Duration,
}

/// Scans, one after the other, until `over`; seconds of each.
fn scan(session: &mut dyn Session, each: &mut Vec<f64>, over: &AtomicBool) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        session.run("select count(*), max(tag), max(v) from rows", &mut |_, _, _| true)?;
        each.push(began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Backups into a folder, one after the other, until `over`. Seconds of each that was complete.
fn back_up(host: &dyn Host, to: &Path, each: &mut Vec<f64>, over: &AtomicBool) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        if to.exists() {
            fs::remove_dir_all(to)?;
        }
        fs::create_dir_all(to)?;
        let began = Instant::now();
        if host.back_up(to, over)? {
            each.push(began.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// What was done again and again, and why it ended before it was to: in a group that is full somebody may find no memory, and that is a result.
fn repeated(body: impl FnOnce(&mut Vec<f64>) -> Result<()>) -> (Vec<f64>, Option<String>) {
    let mut each = Vec::new();
    let ended = body(&mut each);
    (each, ended.err().map(|error| format!("{error:#}")))
}

/// What the neighbour loses beside a server that scans and is backed up. Where a scan or a backup fails, or the neighbour itself was ended by the system, that is told.
///
/// # Errors
/// The neighbour fails, or the server does not answer; or `stop` was set.
pub fn measure(host: &dyn Host, file: &Path, parts: Parts, seed: u64, stop: &AtomicBool) -> Result<Value> {
    let to: PathBuf = file.with_extension("backup");
    let settings = host.settings()?;
    let mut neighbour = Neighbour::begin(host, file, seed)?;
    let intervals: Mutex<Vec<Interval>> = Mutex::new(Vec::new());
    let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let outcome = std::thread::scope(|scope| {
        let (intervals, ready, over) = (&intervals, &ready, &over);
        let told = &mut neighbour.told;
        scope.spawn(move || {
            for line in told.lines().map_while(std::result::Result::ok) {
                match serde_json::from_str::<Interval>(&line) {
                    Ok(one) => intervals.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(one),
                    Err(_) => ready.store(true, Ordering::Release),
                }
            }
        });
        let child = &mut neighbour.child;
        let result = (|| {
            let begun = Instant::now();
            while !ready.load(Ordering::Acquire) {
                if let Some(status) = child.try_wait()? {
                    bail!("the neighbour ended with {status}");
                }
                if begun.elapsed() > PATIENCE {
                    bail!("the neighbour did not get its working set within {PATIENCE:?}");
                }
                rest(Duration::from_millis(10), stop)?;
            }
            let began = Instant::now();
            rest(parts.alone, stop)?;
            let from = began.elapsed().as_secs_f64();
            let mut session = host.session()?;
            let scans = scope.spawn(move || repeated(|each| scan(&mut *session, each, over)));
            let to = &to;
            let backups = scope.spawn(move || repeated(|each| back_up(host, to, each, over)));
            let waited = rest(parts.beside, stop);
            over.store(true, Ordering::Relaxed);
            let until = began.elapsed().as_secs_f64();
            let join = |thread: std::thread::ScopedJoinHandle<'_, (Vec<f64>, Option<String>)>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let ((scans, failed), (backups, too)) = (join(scans), join(backups));
            let ended = began.elapsed().as_secs_f64();
            waited?;
            rest(parts.after, stop)?;
            // Who is first to be ended where memory is short is the system's choice.
            let died = child.try_wait()?.map(|status| status.to_string());
            let failures: Vec<String> = failed.into_iter().chain(too).collect();
            Ok(json!({
                "from": from,
                "until": until,
                "ended": ended,
                "scan_seconds": scans,
                "backup_seconds": backups,
                "failures": failures,
                "neighbour_ended": died,
            }))
        })();
        over.store(true, Ordering::Relaxed);
        // Its output ends with it, and with that the thread that reads it.
        let ended = end(child, Signal::TERM, Duration::from_secs(5));
        result.and_then(|outcome| ended.map(|_| outcome))
    });
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    let mut outcome = outcome?;
    let intervals = intervals.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (from, until) = (outcome["from"].as_f64().unwrap_or(0.0), outcome["until"].as_f64().unwrap_or(0.0));
    outcome["alone"] = sum(&intervals, 0.0, from);
    outcome["beside"] = sum(&intervals, from, until);
    outcome["intervals"] = serde_json::to_value(&intervals)?;
    outcome["database"] = json!(host.name());
    outcome["settings"] = settings;
    outcome["working_set_bytes"] = json!(fs::metadata(file)?.len());
    outcome["group"] = host.group();
    Ok(outcome)
}

/// Waits, unless `stop` is set.
fn rest(time: Duration, stop: &AtomicBool) -> Result<()> {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
    Ok(())
}

/// What intervals that lie within a time have together.
fn sum(intervals: &[Interval], from: f64, until: f64) -> Value {
    let within: Vec<&Interval> = intervals
        .iter()
        .filter(|one| one.seconds - INTERVAL.as_secs_f64() >= from - 0.05 && one.seconds <= until + 0.05)
        .collect();
    let seconds = within.len() as f64 * INTERVAL.as_secs_f64();
    let total = |of: fn(&Interval) -> u64| within.iter().map(|one| of(one)).sum::<u64>();
    let most = |of: fn(&Interval) -> f64| within.iter().map(|one| of(one)).fold(0.0, f64::max);
    json!({
        "seconds": seconds,
        "touches": total(|one| one.touches),
        "read_again": total(|one| one.read_again),
        "major_faults": total(|one| one.major_faults),
        "worst_p99_us": most(|one| one.p99_us),
        "max_us": most(|one| one.max_us),
        "least_cached_bytes": within.iter().filter_map(|one| one.cached_bytes).min(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_time_has_what_lies_within() {
        let one = |seconds: f64, read_again| Interval {
            seconds,
            touches: 10,
            read_again,
            major_faults: 0,
            p99_us: seconds,
            max_us: 9.0,
            cached_bytes: Some(100 - read_again),
        };
        let all = [one(0.25, 0), one(0.5, 0), one(0.75, 7), one(1.0, 5), one(1.25, 3)];
        assert_eq!(sum(&all, 0.0, 0.5)["read_again"], 0);
        let beside = sum(&all, 0.5, 1.0);
        assert_eq!((&beside["read_again"], &beside["touches"]), (&json!(12), &json!(20)));
        assert_eq!((&beside["worst_p99_us"], &beside["least_cached_bytes"]), (&json!(1.0), &json!(93)));
    }

    /// What a neighbour tells; it is stopped as soon as it has told of touches.
    struct Heard<'a> {
        lines: Vec<u8>,
        stop: &'a AtomicBool,
    }

    impl Write for Heard<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.lines.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            let touched = |one: &Interval| one.touches > 0;
            if self.intervals().iter().any(touched) {
                self.stop.store(true, Ordering::Relaxed);
            }
            Ok(())
        }
    }

    impl Heard<'_> {
        fn intervals(&self) -> Vec<Interval> {
            let text = std::str::from_utf8(&self.lines).unwrap();
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
        }
    }

    #[test]
    fn a_neighbour_reads_its_file_until_it_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("working-set");
        make(&path, 64 * BLOCK).unwrap();
        let stop = AtomicBool::new(false);
        let mut heard = Heard { lines: Vec::new(), stop: &stop };
        live(&path, &mut heard, 1, &stop).unwrap();
        let told = heard.intervals();
        let (last, before) = told.split_last().unwrap();
        assert!(last.touches > 0 && before.iter().all(|one| one.touches == 0), "{told:?}");
        assert!(heard.lines.starts_with(b"{\"ready\":true}\n"));
        assert!(live(&folder.path().join("none"), &mut Vec::new(), 1, &stop).is_err());
    }
}
