//! What a kill at full load costs: how soon the first commit is there, how soon as much is done as before, and that nothing that was acknowledged is gone.
//!
//! Each trial begins with a copy of what one kill has left, so that all of them have the same to do, and with nothing of it in the page cache. A database lies in the
//! folder `db` of such a folder; beside it stands what its clients were told ([`Told`]), which is compared with what is there after each start.
//!
//! [`embedded`] leads a process that has its database in itself ([`life`]), [`wire`] a server and its sessions.

pub mod embedded;
pub mod life;
pub mod log;
pub mod wire;

use crate::folders::copy;
use crate::tpcb::check::Told;
use anyhow::{Context, Result, bail};
use gannet_io::Profile;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often operations are counted.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// How often whoever waits for something looks for it.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long a log may take to grow in all, and to grow at all.
const LONGEST_LOAD: Duration = Duration::from_secs(1800);
const LONGEST_STALL: Duration = Duration::from_secs(30);
/// What of its memory Gannet's budget leaves to the process around it.
const AROUND_BUDGET: u64 = 16 << 20;
/// The file beside a database.
const TOLD: &str = "told.json";

/// Who is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Gannet's server.
    WireGannet,
    /// PostgreSQL's.
    WirePostgres,
    /// Gannet, embedded.
    Gannet,
    /// SQLite.
    Sqlite,
    /// Berkeley DB.
    BerkeleyDb,
}

impl Side {
    /// All of them.
    pub const ALL: [Side; 5] =
        [Side::WireGannet, Side::WirePostgres, Side::Gannet, Side::Sqlite, Side::BerkeleyDb];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Side::WireGannet => "wire-gannet",
            Side::WirePostgres => "wire-postgresql",
            Side::Gannet => "gannet",
            Side::Sqlite => "sqlite",
            Side::BerkeleyDb => "berkeley-db",
        }
    }

    /// Whether it is a server.
    pub fn is_wire(self) -> bool {
        matches!(self, Side::WireGannet | Side::WirePostgres)
    }
}

/// What is done to whom.
#[derive(Clone, Debug)]
pub struct Setup {
    /// To whom.
    pub side: Side,
    /// Bytes of memory in all, page cache included.
    pub memory: u64,
    /// Gannet's I/O mode.
    pub io: String,
    /// Bytes of log at which it is killed. Gannet's `wal_limit` is twice that: its page writer keeps it at about half of the limit.
    pub log: u64,
    /// Sessions, or threads, that work at one time.
    pub sessions: usize,
    /// Rows of an embedded database.
    pub rows: u64,
    /// Branches of a server's bank.
    pub branches: u64,
    /// The modelled device of an embedded Gannet: a profile, as changed by `--width` and `--write-rate`.
    pub profile: Option<(String, Profile)>,
    /// Berkeley DB's program, see [`crate::rivals`].
    pub program: Option<PathBuf>,
    /// How long it is loaded, or watched at most.
    pub time: Duration,
    /// Seed of what is random.
    pub seed: u64,
}

impl Setup {
    /// Gannet's memory budget.
    fn budget(&self) -> u64 {
        self.memory.saturating_sub(AROUND_BUDGET)
    }

    /// Bytes of log that Gannet may have.
    fn wal_limit(&self) -> u64 {
        2 * self.log
    }
}

/// The folder of a database.
fn database(folder: &Path) -> PathBuf {
    folder.join("db")
}

/// Fails where somebody wants an end.
fn go_on(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

/// Sleeps until then, or until somebody wants an end.
fn sleep_until(until: Instant, stop: &AtomicBool) -> Result<()> {
    loop {
        go_on(stop)?;
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Ok(());
        }
        std::thread::sleep(rest.min(Duration::from_millis(50)));
    }
}

/// A copy that is worked on, and removed in the end.
struct Work(PathBuf);

impl Work {
    fn copy_of(from: &Path, to: &Path, stop: &AtomicBool) -> Result<Self> {
        let work = Work(to.to_owned());
        copy(from, to, stop)?;
        Ok(work)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // A run removes all of its data in the end.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes down beside a database what its clients were told.
fn keep_told(folder: &Path, told: &[Told]) -> Result<()> {
    let path = folder.join(TOLD);
    fs::write(&path, serde_json::to_vec(told)?).with_context(|| format!("cannot write {path:?}"))
}

/// Reads it.
fn read_told(folder: &Path) -> Result<Vec<Told>> {
    let path = folder.join(TOLD);
    let text =
        fs::read(&path).with_context(|| format!("{path:?}: the folder is none that a crash has left"))?;
    serde_json::from_slice(&text).with_context(|| format!("{path:?}"))
}

/// What was counted: at each of these seconds, how many operations since the one before.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    at: Vec<(f64, u64)>,
    counted: u64,
}

impl Samples {
    /// So many seconds from the beginning there were so many in all.
    pub fn add(&mut self, seconds: f64, total: u64) {
        self.at.push((seconds, total.saturating_sub(self.counted)));
        self.counted = total;
    }

    /// `[seconds, operations]` each.
    pub fn to_json(&self) -> Value {
        json!(self.at)
    }
}

/// Whether a log has grown as far as it is to, or grows no more.
struct Growth {
    wanted: u64,
    most: u64,
    at: Instant,
    begun: Instant,
    least: Duration,
}

impl Growth {
    /// The load is to take this long at least, so that one knows what is done in a second.
    fn new(wanted: u64, least: Duration) -> Self {
        let now = Instant::now();
        Growth { wanted, most: 0, at: now, begun: now, least }
    }

    /// It has so many bytes now. True: it is time.
    fn is_over(&mut self, bytes: u64) -> Result<bool> {
        if bytes > self.most {
            (self.most, self.at) = (bytes, Instant::now());
        }
        if self.begun.elapsed() > LONGEST_LOAD {
            bail!("the log has {} bytes after {LONGEST_LOAD:?}, and was to have {}", self.most, self.wanted);
        }
        let has_grown = bytes >= self.wanted || self.at.elapsed() > LONGEST_STALL;
        Ok(has_grown && self.begun.elapsed() >= self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_told_by_its_differences() {
        let mut samples = Samples::default();
        for (at, total) in [(0.1, 5), (0.2, 5), (0.35, 12)] {
            samples.add(at, total);
        }
        assert_eq!(samples.to_json(), json!([[0.1, 5], [0.2, 0], [0.35, 7]]));
    }

    #[test]
    fn a_load_takes_its_time_and_ends_with_the_log() {
        let mut growth = Growth::new(100, Duration::from_secs(3600));
        assert!(!growth.is_over(200).unwrap());
        let mut growth = Growth::new(100, Duration::ZERO);
        assert!(!growth.is_over(99).unwrap() && growth.is_over(100).unwrap());
    }

    #[test]
    fn a_copy_replaces_what_was_there_and_is_gone_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(database(&from)).unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(database(&from).join("file"), "x").unwrap();
        fs::write(to.join("older"), "x").unwrap();
        let told = [Told { acknowledged: 3, unknown: 1 }];
        keep_told(&from, &told).unwrap();
        let work = Work::copy_of(&from, &to, &AtomicBool::new(false)).unwrap();
        assert!(database(&to).join("file").exists() && !to.join("older").exists());
        assert_eq!(read_told(&to).unwrap(), told);
        drop(work);
        assert!(!to.exists());
        assert!(format!("{:#}", read_told(&to).unwrap_err()).contains("none that a crash has left"));
    }
}
