//! What a device can do: measured on purpose ([`calibrate`], for `doctor`), or learned from the load that runs anyway.
//! What the kernel says of a device (`rotational`) is not asked: virtual disks lie.

use crate::{AlignedBuffer, Class, Completion, Direction, Disk, Durability, File, IoSlice, OpenOptions};
use crate::{Queue, Request, Result};
use gannet_base::clock::{self, Instant};
use gannet_base::random;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Depths looked at: 1, 2, 4 … 512.
const STEPS: usize = 10;
/// A doubling of the depth has to bring this factor in throughput to count.
const WORTHWHILE: f64 = 1.1;
/// A large request, and how many of them are at the device at a time.
const LARGE_BYTES: usize = 1 << 20;
const LARGE_DEPTH: usize = 8;
/// Reads above this size say more about bandwidth than about latency.
const SMALL_BYTES: usize = 16 << 10;

/// What is known of a device; `None` where nothing is known yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Calibration {
    /// Latency of a single small read with nothing else at the device.
    pub read_latency: Option<Duration>,
    /// Requests at the device at one time beyond which more bring less than 10 % for each doubling.
    pub depth: Option<usize>,
    /// Latency of a small durable write.
    pub sync_write_latency: Option<Duration>,
    /// Bytes that were read in a second: measured with large requests, or the most that the load has got within [`PEAK_WINDOW`].
    pub read_bytes_per_second: Option<u64>,
    /// The same for bytes written.
    pub write_bytes_per_second: Option<u64>,
}

/// The load's highest rate is that of so long a time.
pub const PEAK_WINDOW: Duration = Duration::from_millis(250);

/// The highest rate there was within [`PEAK_WINDOW`].
#[derive(Debug, Default)]
struct Peak {
    /// When the window began, in nanoseconds, and the bytes since.
    since: AtomicU64,
    bytes: AtomicU64,
    most: AtomicU64,
}

impl Peak {
    fn add(&self, bytes: u64, now: Instant) {
        let (since, now) = (self.since.load(Relaxed), now.as_nanos());
        self.bytes.fetch_add(bytes, Relaxed);
        let nanos = now.saturating_sub(since);
        // One of those who find the window over closes it.
        if nanos < PEAK_WINDOW.as_nanos() as u64
            || self.since.compare_exchange(since, now, Relaxed, Relaxed).is_err()
        {
            return;
        }
        let seen = self.bytes.swap(0, Relaxed);
        // Nobody knows when the first window began.
        if since > 0 {
            let rate = u128::from(seen) * 1_000_000_000 / u128::from(nanos);
            self.most.fetch_max(u64::try_from(rate).unwrap_or(u64::MAX), Relaxed);
        }
    }

    fn most(&self) -> Option<u64> {
        Some(self.most.load(Relaxed)).filter(|rate| *rate > 0)
    }
}

/// Running averages from the load; a few relaxed loads and stores for each request. Racing updates may lose a sample,
/// which does no harm.
#[derive(Debug, Default)]
pub(crate) struct Learner {
    /// Nanoseconds by depth (powers of two); 0 for unknown.
    by_depth: [AtomicU64; STEPS],
    sync_write: AtomicU64,
    foreground: AtomicU64,
    foreground_at: AtomicU64,
    measured_depth: AtomicUsize,
    read: Peak,
    written: Peak,
}

fn mix(average: &AtomicU64, sample: Duration) {
    let (old, new) = (average.load(Relaxed), (sample.as_nanos() as u64).max(1));
    let mixed = if old == 0 { new } else { old - old / 8 + new / 8 };
    average.store(mixed.max(1), Relaxed);
}

fn duration(nanos: u64) -> Option<Duration> {
    (nanos > 0).then(|| Duration::from_nanos(nanos))
}

impl Learner {
    /// Takes in one request that ended well.
    pub(crate) fn learn(
        &self,
        class: Class,
        written: Option<Durability>,
        bytes: usize,
        latency: Duration,
        depth: usize,
        now: Instant,
    ) {
        if class <= Class::Foreground {
            mix(&self.foreground, latency);
            self.foreground_at.store(now.as_nanos(), Relaxed);
        }
        let peak = if written.is_none() { &self.read } else { &self.written };
        peak.add(bytes as u64, now);
        if bytes > SMALL_BYTES {
            return;
        }
        match written {
            None => mix(&self.by_depth[step(depth)], latency),
            Some(Durability::Durable) if depth == 1 => mix(&self.sync_write, latency),
            Some(_) => {}
        }
    }

    /// Average latency of the two strongest classes, when there was such a request within `memory`.
    pub(crate) fn foreground_since(&self, now: Instant, memory: Duration) -> Option<Duration> {
        let last = Instant::from_nanos(self.foreground_at.load(Relaxed));
        duration(self.foreground.load(Relaxed)).filter(|_| now - last <= memory)
    }

    pub(crate) fn calibration(&self) -> Calibration {
        let measured = self.measured_depth.load(Relaxed);
        Calibration {
            read_latency: duration(self.by_depth[0].load(Relaxed)),
            depth: if measured > 0 { Some(measured) } else { self.learned_depth() },
            sync_write_latency: duration(self.sync_write.load(Relaxed)),
            read_bytes_per_second: self.read.most(),
            write_bytes_per_second: self.written.most(),
        }
    }

    /// By Little's law the throughput at a depth is the depth divided by the latency there.
    fn learned_depth(&self) -> Option<usize> {
        let seen: Vec<(usize, f64)> = (0..STEPS)
            .filter_map(|s| duration(self.by_depth[s].load(Relaxed)).map(|l| (s, l.as_secs_f64())))
            .map(|(s, latency)| (1 << s, (1 << s) as f64 / latency))
            .collect();
        // One depth alone says nothing of the others.
        (seen.len() >= 3).then(|| flattens_at(&seen))
    }

    pub(crate) fn set(&self, calibration: &Calibration) {
        let put = |place: &AtomicU64, value: Option<Duration>| {
            if let Some(value) = value {
                place.store((value.as_nanos() as u64).max(1), Relaxed);
            }
        };
        put(&self.by_depth[0], calibration.read_latency);
        put(&self.sync_write, calibration.sync_write_latency);
        if let Some(depth) = calibration.depth {
            self.measured_depth.store(depth, Relaxed);
        }
        for (peak, rate) in [
            (&self.read, calibration.read_bytes_per_second),
            (&self.written, calibration.write_bytes_per_second),
        ] {
            peak.most.fetch_max(rate.unwrap_or(0), Relaxed);
        }
    }
}

/// Index of the power of two at or below `depth`.
fn step(depth: usize) -> usize {
    (depth.max(1).ilog2() as usize).min(STEPS - 1)
}

/// The depth at which throughput flattens: the smallest from which no deeper one brings [`WORTHWHILE`] for each
/// doubling up to it. `seen` is `(depth, throughput)` by ascending depth and not empty.
fn flattens_at(seen: &[(usize, f64)]) -> usize {
    let mut best = seen[0];
    for &(depth, throughput) in &seen[1..] {
        let doublings = (depth as f64 / best.0 as f64).log2();
        if throughput >= best.1 * WORTHWHILE.powf(doublings) {
            best = (depth, throughput);
        }
    }
    best.0
}

/// How [`calibrate`] goes about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CalibrationPlan {
    /// No new measurement begins after this time. Default 3 s.
    pub time_limit: Duration,
    /// Size of the scratch file in bytes. Default 256 MiB.
    pub file_bytes: u64,
    /// Size of a request in bytes, a multiple of 4096. Default 8 KiB.
    pub request_bytes: usize,
    /// The deepest depth tried, at most 512. Default 256.
    pub depth_max: usize,
}

impl Default for CalibrationPlan {
    fn default() -> Self {
        CalibrationPlan {
            time_limit: Duration::from_secs(3),
            file_bytes: 256 << 20,
            request_bytes: 8 << 10,
            depth_max: 256,
        }
    }
}

/// Measures the device under `scratch`, a file that must not be there yet. A third of the time goes to writing the file, the rest to reads at
/// growing depth and to durable writes. It has lost its name before anything is in it: whoever is killed meanwhile leaves nothing.
pub fn calibrate(disk: &dyn Disk, scratch: &Path, plan: &CalibrationPlan) -> Result<Calibration> {
    let file = disk.open(scratch, &OpenOptions::create_new())?;
    disk.remove(scratch)?;
    measure(disk, &file, plan)
}

fn measure(disk: &dyn Disk, file: &Arc<dyn File>, plan: &CalibrationPlan) -> Result<Calibration> {
    let start = clock::now();
    let request = plan.request_bytes.next_multiple_of(file.alignment());
    let (len, write_rate) = fill(file, plan, start + plan.time_limit / 3)?;
    let blocks = len / request as u64;
    let sync_write_latency = sync_writes(file, request, blocks, start + plan.time_limit / 2)?;
    let large = LARGE_BYTES.next_multiple_of(file.alignment()).min(len as usize);
    let tenth = plan.time_limit / 10;
    let read_rate = reads(disk, file, large, len / large as u64, LARGE_DEPTH, tenth)? * large as f64;
    let mut seen = Vec::new();
    let depths: Vec<usize> = (0..STEPS).map(|s| 1 << s).filter(|d| *d <= plan.depth_max.max(1)).collect();
    for (done, &depth) in depths.iter().enumerate() {
        let left = (start + plan.time_limit) - clock::now();
        let slice = left / (depths.len() - done) as u32;
        if slice.is_zero() && !seen.is_empty() {
            break;
        }
        seen.push((depth, reads(disk, file, request, blocks, depth, slice)?));
        let best = flattens_at(&seen);
        if depth >= best * 4 {
            break;
        }
    }
    Ok(Calibration {
        read_latency: Some(Duration::from_secs_f64(1.0 / seen[0].1)),
        depth: Some(flattens_at(&seen)),
        sync_write_latency: Some(sync_write_latency),
        read_bytes_per_second: Some(read_rate as u64),
        write_bytes_per_second: Some(write_rate as u64),
    })
}

/// Writes the scratch file until it is long enough or the time is up; gives its length, and bytes a second.
fn fill(file: &Arc<dyn File>, plan: &CalibrationPlan, until: Instant) -> Result<(u64, f64)> {
    let start = clock::now();
    let mut chunk =
        AlignedBuffer::zeroed((1 << 20).max(plan.request_bytes.next_multiple_of(file.alignment())));
    let mut len = 0;
    while len == 0 || (len < plan.file_bytes && clock::now() < until) {
        // Random bytes, so that no device gains by compressing or by leaving out zeros.
        chunk.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&random::next_u64().to_le_bytes()));
        file.write_at(Class::Maintenance, len, &chunk, Durability::Cached)?;
        len += chunk.len() as u64;
    }
    file.sync(Class::Maintenance)?;
    let rate = len as f64 / start.elapsed().as_secs_f64().max(1e-9);
    file.drop_cache();
    Ok((len, rate))
}

fn sync_writes(file: &Arc<dyn File>, request: usize, blocks: u64, until: Instant) -> Result<Duration> {
    let buffer = AlignedBuffer::zeroed(request);
    let mut latencies = Vec::new();
    while latencies.is_empty() || (latencies.len() < 64 && clock::now() < until) {
        let start = clock::now();
        let offset = random::below(blocks) * request as u64;
        file.write_at(Class::Commit, offset, &buffer, Durability::Durable)?;
        latencies.push(start.elapsed());
    }
    latencies.sort_unstable();
    Ok(latencies[latencies.len() / 2])
}

/// Completions counted, with the tokens that are free again.
#[derive(Default)]
struct Ended {
    tokens: gannet_base::sync::Mutex<Vec<u64>>,
    error: gannet_base::sync::Mutex<Option<crate::Error>>,
}

impl Completion for Ended {
    fn complete(&self, token: u64, result: Result<()>) {
        if let Err(error) = result {
            self.error.lock().get_or_insert(error);
        }
        self.tokens.lock().push(token);
    }
}

/// Random reads with `depth` always in flight for about `time`; gives reads per second.
fn reads(
    disk: &dyn Disk,
    file: &Arc<dyn File>,
    request: usize,
    blocks: u64,
    depth: usize,
    time: Duration,
) -> Result<f64> {
    let queue = disk.queue(depth)?;
    let mut memory = AlignedBuffer::zeroed(request * depth);
    let base = memory.as_mut_ptr();
    let ended = Arc::new(Ended::default());
    let completion: Arc<dyn Completion> = ended.clone();
    let start = clock::now();
    let (mut free, mut count) = ((0..depth as u64).collect::<Vec<_>>(), 0u64);
    while clock::now() - start < time || count == 0 {
        let requests = free.drain(..).map(|token| Request {
            file: Arc::clone(file),
            direction: Direction::Read,
            // A class without a cap of its own: what is measured is the device.
            class: Class::Deadline,
            offset: random::below(blocks) * request as u64,
            slices: vec![IoSlice { address: base.wrapping_add(token as usize * request), len: request }],
            token,
        });
        submit(&*queue, requests.collect(), &completion);
        queue.wait_until(&mut || !ended.tokens.lock().is_empty());
        free.append(&mut ended.tokens.lock());
        count += free.len() as u64;
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    queue.wait_until(&mut || queue.in_flight() == 0);
    drop(memory);
    let error = ended.error.lock().take();
    error.map_or(Ok(rate), Err)
}

#[expect(unsafe_code, reason = "the queue works on memory of this module")]
fn submit(queue: &dyn Queue, requests: Vec<Request>, completion: &Arc<dyn Completion>) {
    // SAFETY: each token has its own part of the memory, is given out again only when it has ended, and the memory is
    // freed after the queue is empty.
    unsafe { queue.submit(requests, completion) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_flattens_where_doubling_brings_less_than_a_tenth() {
        let seen = [(1, 10.0), (2, 19.0), (4, 35.0), (8, 60.0), (16, 63.0), (32, 64.0)];
        assert_eq!(flattens_at(&seen), 8);
        assert_eq!(flattens_at(&[(1, 10.0)]), 1);
    }

    #[test]
    fn the_highest_rate_is_that_of_a_whole_window() {
        let learner = Learner::default();
        let read = |at_ms: u64, bytes: usize| {
            let now = Instant::from_nanos(at_ms * 1_000_000);
            learner.learn(Class::Maintenance, None, bytes, Duration::from_millis(1), 1, now);
        };
        // The first window has no beginning.
        read(10_000, 1 << 30);
        assert_eq!(learner.calibration().read_bytes_per_second, None);
        (1..=10).for_each(|i| read(10_000 + i * 100, 10 << 20));
        let most = learner.calibration().read_bytes_per_second.unwrap();
        assert_eq!(most, 100 << 20, "of 300 ms each");
        // A slow time changes nothing, nor does a burst shorter than a window.
        read(20_000, 1);
        read(20_100, 20 << 20);
        read(20_400, 1);
        assert_eq!(learner.calibration().read_bytes_per_second, Some(100 << 20));
        assert_eq!(learner.calibration().write_bytes_per_second, None);
        learner.set(&Calibration { write_bytes_per_second: Some(7), ..Calibration::default() });
        assert_eq!(learner.calibration().write_bytes_per_second, Some(7));
    }

    #[test]
    fn the_depth_is_learned_from_latencies_at_several_depths() {
        let learner = Learner::default();
        let now = clock::now();
        // Eight wide: latency is flat up to there, then grows with the depth.
        for (depth, us) in [(1, 100), (2, 100), (4, 100), (8, 100), (16, 200), (32, 400)] {
            assert!(learner.calibration().depth.is_none_or(|d| d <= depth));
            learner.learn(Class::Prefetch, None, 8192, Duration::from_micros(us), depth, now);
        }
        let learned = learner.calibration();
        assert_eq!((learned.depth, learned.read_latency), (Some(8), Some(Duration::from_micros(100))));
        assert_eq!(learner.foreground_since(now, Duration::from_secs(1)), None);
    }
}
