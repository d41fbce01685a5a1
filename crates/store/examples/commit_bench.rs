//! How fast can one writer, and how fast can sixteen, commit, against the bare device in the same run?
//!
//! `cargo run --release -p gannet-store --example commit_bench -- FOLDER [SECONDS [ROUNDS [IN_FLIGHT]]]`
//!
//! A commit is one group with one 150-byte change, appended and flushed. The bare loop writes 4 KiB blocks one behind the
//! other into a file filled before, opened with `O_DIRECT | O_DSYNC`. Rounds of every kind alternate.

use gannet_base::memory::Budget;
use gannet_base::{Lsn, PageId, TxnId, clock, thread};
use gannet_io::{AlignedBuffer, Class, Disk, RealDisk, RealOptions, stats};
use gannet_store::log::{GroupBuilder, Log, LogOptions, TxnEvent};
use std::error::Error;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const WRITERS: [usize; 4] = [1, 2, 4, 16];
const BARE_BYTES: u64 = 64 << 20;

/// Latencies of one kind of commit, in nanoseconds, and the time they took together.
#[derive(Default)]
struct Figures {
    latencies: Vec<u64>,
    elapsed: Duration,
    writes: u64,
    appended: u64,
}

impl Figures {
    fn add(&mut self, mut latencies: Vec<u64>, elapsed: Duration) {
        self.latencies.append(&mut latencies);
        self.elapsed += elapsed;
    }

    fn quantile_us(&self, share: f64) -> f64 {
        let index = ((self.latencies.len() - 1) as f64 * share) as usize;
        self.latencies[index] as f64 / 1000.0
    }

    fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    fn print(&mut self, name: &str, bare_rate: f64) {
        self.latencies.sort_unstable();
        println!(
            "{name:<12} {:>9.0}/s {:>6.2}x   p50 {:>7.1} µs   p99 {:>8.1} µs   {:>5.2} commits a write   {:>6.0} bytes a commit",
            self.rate(),
            self.rate() / bare_rate,
            self.quantile_us(0.5),
            self.quantile_us(0.99),
            if self.writes == 0 { 1.0 } else { self.latencies.len() as f64 / self.writes as f64 },
            if self.appended == 0 { 4096.0 } else { self.appended as f64 / self.latencies.len() as f64 },
        );
    }
}

fn bare_file(folder: &Path) -> Result<std::fs::File, Box<dyn Error>> {
    let path = folder.join("bare");
    std::fs::write(&path, vec![0; BARE_BYTES as usize])?;
    std::fs::File::open(&path)?.sync_all()?;
    let flags = libc::O_DIRECT | libc::O_DSYNC;
    Ok(std::fs::OpenOptions::new().write(true).custom_flags(flags).open(&path)?)
}

fn bare_round(file: &std::fs::File, time: Duration, at: &mut u64) -> Result<Vec<u64>, Box<dyn Error>> {
    let mut block = AlignedBuffer::zeroed(4096);
    let mut latencies = Vec::new();
    let start = clock::now();
    while start.elapsed() < time {
        block[0] = block[0].wrapping_add(1);
        let begin = clock::now();
        file.write_all_at(&block, *at)?;
        latencies.push(begin.elapsed().as_nanos() as u64);
        *at = (*at + 4096) % BARE_BYTES;
    }
    Ok(latencies)
}

fn log_round(log: &Log, writers: usize, time: Duration) -> Result<Vec<u64>, Box<dyn Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let (log, stop) = (log.clone(), Arc::clone(&stop));
            thread::spawn(&format!("writer {writer}"), move || {
                let mut group = GroupBuilder::new();
                let mut latencies = Vec::new();
                let mut txn = writer as u64 + 1;
                while !stop.load(Relaxed) {
                    let begin = clock::now();
                    group.clear();
                    group.set_txn(TxnId(txn), TxnEvent::Commit);
                    group.change_bytes(PageId(writer as u64 + 1), Lsn(0), 1, false, &[7; 150]);
                    log.flush_commit(log.append(&group)?)?;
                    latencies.push(begin.elapsed().as_nanos() as u64);
                    txn += 16;
                }
                Ok::<_, gannet_store::Error>(latencies)
            })
        })
        .collect();
    clock::sleep(time);
    stop.store(true, Relaxed);
    let mut latencies = Vec::new();
    for thread in threads {
        latencies.append(&mut thread.join()??);
    }
    Ok(latencies)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder =
        PathBuf::from(arguments.next().ok_or("usage: commit_bench FOLDER [SECONDS [ROUNDS [IN_FLIGHT]]]")?);
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let mut options = LogOptions::new(1);
    options.max_in_flight = arguments.next().map_or(Ok(options.max_in_flight), |text| text.parse())?;
    let time = Duration::from_secs_f64(seconds);

    let real = Arc::new(RealDisk::new(RealOptions::default()));
    let disk: Arc<dyn Disk> = real.clone();
    let wal = folder.join("bench.gnt-wal");
    let log = Log::create(&disk, &wal, &options, Lsn::ZERO, 1, &Budget::new(256 << 20))?;
    let stop = Arc::new(AtomicBool::new(false));
    let maintainer = {
        let (log, stop) = (log.clone(), Arc::clone(&stop));
        thread::spawn("maintainer", move || {
            while !stop.load(Relaxed) {
                log.set_keep_from(log.durable());
                log.prepare()?;
                clock::sleep(Duration::from_millis(20));
            }
            Ok::<_, gannet_store::Error>(())
        })
    };
    let bare = bare_file(&folder)?;
    let mut bare_at = 0;
    let mut bare_figures = Figures::default();
    let mut figures: Vec<Figures> = WRITERS.iter().map(|_| Figures::default()).collect();
    let writes = || real.stats().counter(Class::Commit, stats::Operation::Write).requests.load(Relaxed);
    for _ in 0..rounds {
        let start = clock::now();
        let latencies = bare_round(&bare, time, &mut bare_at)?;
        bare_figures.add(latencies, start.elapsed());
        for (writers, figures) in WRITERS.iter().zip(&mut figures) {
            let (start, writes_before, end_before) = (clock::now(), writes(), log.end());
            let latencies = log_round(&log, *writers, time)?;
            figures.add(latencies, start.elapsed());
            figures.writes += writes() - writes_before;
            figures.appended += log.end().0 - end_before.0;
        }
    }
    stop.store(true, Relaxed);
    maintainer.join()??;
    let bare_rate = bare_figures.rate();
    bare_figures.print("bare device", bare_rate);
    for (writers, figures) in WRITERS.iter().zip(&mut figures) {
        figures.print(&format!("{writers} writers"), bare_rate);
    }
    log.close()?;
    Log::remove_all(&disk, &wal)?;
    std::fs::remove_dir(&wal)?;
    std::fs::remove_file(folder.join("bare"))?;
    Ok(())
}
