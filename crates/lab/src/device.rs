//! What the device does for threads that each read one block after the other, directly: what a store's look-ups that miss, its scans and its recovery are measured by.
//! It is what `fio` does with its engine psync, for where that is not installed.

use crate::histogram::Histogram;
use crate::random::Random;
use anyhow::{Result, bail};
use gannet_io::{
    AlignedBuffer, Class, Disk, Durability, Mode, ModeRequest, OpenOptions, Profile, RealDisk, RealOptions,
    ThrottledDisk,
};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Random reads of `block` bytes of a file by `threads` threads, for so long.
pub fn random_reads(
    file: &Path,
    block: usize,
    threads: usize,
    time: Duration,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Value> {
    let disk = RealDisk::new(RealOptions::default());
    let options = OpenOptions::read().mode(ModeRequest::Only(Mode::Direct));
    let file = disk.open(file, &options)?;
    let blocks = file.len()? / block as u64;
    if blocks == 0 || threads == 0 || !block.is_multiple_of(file.alignment()) {
        bail!("{:?} cannot be read in blocks of {block} bytes by {threads} threads", file.path());
    }
    let (reads, began) = (AtomicU64::new(0), Instant::now());
    let results: Vec<Result<Histogram>> = std::thread::scope(|scope| {
        let body = |number: usize| {
            let mut random = Random::new(seed.wrapping_mul(1_000_003) + number as u64);
            let (mut buffer, mut latencies) = (AlignedBuffer::zeroed(block), Histogram::default());
            while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                file.read_at(Class::Foreground, random.below(blocks) * block as u64, &mut buffer)?;
                latencies.record(begun.elapsed(), 1);
                reads.fetch_add(1, Ordering::Relaxed);
            }
            Ok(latencies)
        };
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || body(number))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut latency = Histogram::default();
    for result in results {
        latency.merge(&result?);
    }
    Ok(json!({
        "threads": threads,
        "block_bytes": block,
        "seconds": seconds,
        "reads": reads.load(Ordering::Relaxed),
        "reads_per_second": reads.load(Ordering::Relaxed) as f64 / seconds,
        "latency_us": latency.to_json(),
    }))
}

/// Reads of `block` bytes of a file, in their order and from the beginning again behind the end, by `threads` threads that take turns, for so long; where there is a `profile`, on
/// a device that is slowed down to it.
pub fn sequential_reads(
    file: &Path,
    block: usize,
    threads: usize,
    time: Duration,
    profile: Option<Profile>,
    stop: &AtomicBool,
) -> Result<Value> {
    let real = RealDisk::new(RealOptions::default());
    let disk: Arc<dyn Disk> = match profile {
        Some(profile) => Arc::new(ThrottledDisk::new(Arc::new(real), profile)),
        None => Arc::new(real),
    };
    let options = OpenOptions::read().mode(ModeRequest::Only(Mode::Direct));
    let file = disk.open(file, &options)?;
    let blocks = file.len()? / block as u64;
    if blocks == 0 || threads == 0 || !block.is_multiple_of(file.alignment()) {
        bail!("{:?} cannot be read in blocks of {block} bytes by {threads} threads", file.path());
    }
    let (next, read, began) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        let body = || -> Result<()> {
            let mut buffer = AlignedBuffer::zeroed(block);
            while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
                let place = next.fetch_add(1, Ordering::Relaxed) % blocks;
                file.read_at(Class::Foreground, place * block as u64, &mut buffer)?;
                read.fetch_add(block as u64, Ordering::Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(body)).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.collect::<Result<()>>()
    })?;
    let (seconds, bytes) = (began.elapsed().as_secs_f64(), read.load(Ordering::Relaxed));
    Ok(json!({
        "threads": threads,
        "block_bytes": block,
        "slower_device": profile.map(|profile| format!("{profile:?}")),
        "seconds": seconds,
        "bytes": bytes,
        "bytes_per_second": bytes as f64 / seconds,
    }))
}

/// The same for each of these numbers of threads, one after the other, which share the time: what the fastest of them has done, and what each has. How many requests at one time a device
/// needs differs from one to the other.
///
/// # Errors
/// As [`sequential_reads`].
pub fn best_sequential_reads(
    file: &Path,
    block: usize,
    threads: &[usize],
    time: Duration,
    profile: Option<Profile>,
    stop: &AtomicBool,
) -> Result<Value> {
    let share = time / threads.len().max(1) as u32;
    let each = threads.iter().map(|&threads| sequential_reads(file, block, threads, share, profile, stop));
    let each = each.collect::<Result<Vec<Value>>>()?;
    let rate = |told: &Value| told["bytes_per_second"].as_f64().unwrap_or(0.0);
    let Some(best) = each.iter().max_by(|one, other| rate(one).total_cmp(&rate(other))) else {
        bail!("by how many threads it is to be read is not said");
    };
    let mut best = best.clone();
    if each.len() > 1 {
        best["tried"] = each.iter().map(|told| json!([told["threads"], told["bytes_per_second"]])).collect();
    }
    Ok(best)
}

/// Writes of 4 KiB to a new file beside `file`, one after the other, each durable when it returns: what statements that each commit are measured by. The
/// file is written beforehand, as a log is.
pub fn synchronous_writes(file: &Path, time: Duration, stop: &AtomicBool) -> Result<Value> {
    const BLOCK: usize = 4096;
    const BLOCKS: u64 = 4096;
    let path = file.with_extension("sync-writes");
    let disk = RealDisk::new(RealOptions::default());
    if path.exists() {
        fs::remove_file(&path)?;
    }
    let written = disk.open(&path, &OpenOptions::create_new().mode(ModeRequest::Only(Mode::Direct)))?;
    let zeros = AlignedBuffer::zeroed(1 << 20);
    for megabyte in 0..(BLOCKS * BLOCK as u64) >> 20 {
        written.write_at(Class::Foreground, megabyte << 20, &zeros, Durability::Cached)?;
    }
    written.sync(Class::Foreground)?;
    let (block, mut latency, began) = (AlignedBuffer::zeroed(BLOCK), Histogram::default(), Instant::now());
    while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let place = latency.count() % BLOCKS * BLOCK as u64;
        written.write_at(Class::Commit, place, &block, Durability::Durable)?;
        latency.record(begun.elapsed(), 1);
    }
    let seconds = began.elapsed().as_secs_f64();
    fs::remove_file(&path)?;
    let cache = fs::read_to_string(format!("/sys/dev/block/{}/queue/write_cache", number_of(file)?));
    Ok(json!({
        "block_bytes": BLOCK,
        "seconds": seconds,
        "writes": latency.count(),
        "writes_per_second": latency.count() as f64 / seconds,
        "latency_us": latency.to_json(),
        "write_cache": cache.ok().map(|text| text.trim().to_owned()),
    }))
}

/// The whole disk that a file or folder is on, as the system numbers it: `MAJOR:MINOR`.
///
/// # Errors
/// It cannot be seen.
pub fn number_of(path: &Path) -> Result<String> {
    let device = fs::metadata(path)?.dev();
    let number = format!("{}:{}", (device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & !0xff));
    // Of a partition, the disk is above it.
    let above = PathBuf::from(format!("/sys/dev/block/{number}/../dev"));
    Ok(fs::read_to_string(above).map_or(number, |text| text.trim().to_owned()))
}

/// How long the disk with this number has had something to do since the machine was started; `None` where the system does not say.
pub fn busy(number: &str) -> Option<Duration> {
    let text = fs::read_to_string(format!("/sys/dev/block/{number}/stat")).ok()?;
    text.split_whitespace().nth(9)?.parse().ok().map(Duration::from_millis)
}

/// What a disk has done since the machine was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Reads that have ended, and bytes read.
    pub reads: u64,
    /// See there.
    pub read_bytes: u64,
    /// Writes that have ended, and bytes written.
    pub writes: u64,
    /// See there.
    pub written_bytes: u64,
}

impl Counters {
    /// Of the disk with this number; `None` where the system does not say.
    pub fn of(number: &str) -> Option<Self> {
        let text = fs::read_to_string(format!("/sys/dev/block/{number}/stat")).ok()?;
        let fields: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // Requests, merges, sectors of 512 bytes, milliseconds; of reads, then of writes.
        let &[reads, _, read, _, writes, _, written, ..] = fields.as_slice() else { return None };
        Some(Counters { reads, read_bytes: read * 512, writes, written_bytes: written * 512 })
    }

    /// What it has done since then.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Counters {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_of_several_depths_counts_and_all_are_told() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let file = folder.path().join("file");
        fs::write(&file, vec![7; 4 << 20]).unwrap();
        let go_on = AtomicBool::new(false);
        let read = |threads: &[usize]| {
            best_sequential_reads(&file, 64 << 10, threads, Duration::from_millis(60), None, &go_on)
        };
        let best = read(&[1, 4]).unwrap();
        let tried: Vec<f64> =
            best["tried"].as_array().unwrap().iter().filter_map(|one| one[1].as_f64()).collect();
        assert_eq!(tried.len(), 2);
        assert_eq!(best["bytes_per_second"].as_f64(), tried.into_iter().reduce(f64::max));
        assert!(read(&[2]).unwrap()["tried"].is_null());
        assert!(read(&[]).is_err());
    }
}
