//! The archive: the log, copied into a folder as it becomes durable, so that a backup can be brought to any moment since.
//!
//! # What it guarantees
//! 1. What is called archived is durable in the archive: all of the log from the archive's beginning, or from its last gap, up to there.
//! 2. Nobody waits for an archive. Log that was not archived is kept as long as what redo does not need of it is no more than `wal_limit`,
//!    also while the database is closed, and by whoever opens it with the same archive. What is farther behind is let go of.
//! 3. Log that was let go of is a *gap*: the archive names it, it is an alarm until a backup was taken behind it, and a restore that would
//!    have to cross it is refused.
//! 4. Every record in it was verified when it was copied, and follows the one before.
//! 5. An archive is of one copy of one database. Whoever is another one is refused before he writes anything.
//! 6. Whatever goes wrong with the folder is tried again, with pauses that grow, and the database goes on as if nothing was.
//! 7. An archive that has gone from its folder (a file system that is not mounted any more) is not begun anew as long as the database is open:
//!    log is kept for it, as 2 says. Where another one is begun at an opening, what it lacks is a gap, also where nobody knows what that is.
//!
//! # How
//! A thread follows the log ([`follow`]). It adds what is durable to the *part* of the segment, a file of frames, and syncs it every
//! [`SYNC_EVERY`], or earlier where much came. Where it goes on after a restart or a failure the folder says, not the memory: with the last
//! record that is whole there, in a new part. So no file is ever changed that somebody may rely on.
//!
//! A restore puts the log that the archive has behind that of the backup ([`restore`]), up to the target, and opens the database as after
//! a crash there: transactions that are open at the target are reverted. Which moment a record is of is told by notes of the time in the
//! log, which are there whether or not it is archived (`log::note`).

mod folder;
mod follow;
mod format;
mod plan;
mod reader;
mod restore;
mod verify;
mod writer;

use crate::log::LogHold;
use gannet_base::Lsn;
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use follow::{Follower, Reach, check_new, look};
pub(crate) use plan::Plan;
pub use plan::RecoveryTarget;
pub(crate) use restore::{Added, Extension, Place};
pub use verify::{ArchiveGap, ArchiveVerifyReport};
pub(crate) use verify::{prune, run as verify};

/// How often the archive is made durable while log comes: how far it is behind, at most, where the folder keeps up.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// So much log is made durable at once, even if it comes faster than that, in bytes.
const SYNC_BYTES: u64 = 64 << 20;
/// Being behind for so long is an alarm where nothing has failed; and a worse one.
const LATE: Duration = Duration::from_secs(60);
const VERY_LATE: Duration = Duration::from_secs(600);

/// What the archive is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArchiveState {
    /// It was not looked at yet, or does not answer.
    #[default]
    Starting,
    /// The log is being archived.
    Archiving,
    /// It cannot be written to, and is tried again and again.
    Failing,
    /// It is of another database, or of another copy of this one: nothing is archived.
    Refused,
}

impl ArchiveState {
    /// As views show it.
    pub fn name(self) -> &'static str {
        match self {
            ArchiveState::Starting => "starting",
            ArchiveState::Archiving => "archiving",
            ArchiveState::Failing => "failing",
            ArchiveState::Refused => "refused",
        }
    }
}

/// How the archive of an open database is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArchiveReport {
    /// The folder.
    pub destination: PathBuf,
    /// What it is doing.
    pub state: ArchiveState,
    /// All of the log below this LSN is archived, but for gaps.
    pub archived_lsn: u64,
    /// Every commit up to this time is archived, and a restore can have it as its target, in microseconds since 1970-01-01 UTC; 0 where that is
    /// not known yet. It is noted in the folder every 5 s.
    pub archived_unix_us: u64,
    /// Bytes of log that are durable and not archived.
    pub behind_bytes: u64,
    /// For how long commits have waited to be archived; 0 where all of them are.
    pub behind_seconds: f64,
    /// Bytes written to the folder since the database was opened.
    pub written_bytes: u64,
    /// Since when it fails, in microseconds since 1970-01-01 UTC; 0 where it does not.
    pub failing_since_unix_us: u64,
    /// For how long, in seconds, whatever the clock showed meanwhile; 0 where it does not fail.
    pub failing_seconds: f64,
    /// Why it failed last.
    pub error: Option<String>,
    /// The newest gap: log from the one LSN to the other is not in the archive.
    pub gap: Option<(u64, u64)>,
    /// No backup was taken behind that gap.
    pub gap_is_open: bool,
}

/// What is known of the archive of an open database.
#[derive(Debug)]
pub(crate) struct Status {
    destination: PathBuf,
    /// Somebody has archived the database before: a folder without log of it is not the one that he has used.
    was_archived: bool,
    inner: Mutex<Inner>,
    /// Tells that nobody follows the log any more.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    state: ArchiveState,
    archived: u64,
    /// Everything that was durable then is archived.
    caught_up: Option<Instant>,
    /// The time that the folder's own note says: a restore reaches as far as that.
    noted_unix_us: u64,
    began: Instant,
    written: u64,
    failing: Option<(Instant, u64)>,
    error: Option<String>,
    gap: (u64, u64),
    backup_end: u64,
    is_over: bool,
    /// Keeps what was not archived until the database is closed, when nobody follows the log any more.
    kept: Option<LogHold>,
}

impl Status {
    /// Of an archive that has the log up to `archived`, or is to have it from there on, of a database that was archived before, or was not.
    pub(crate) fn new(destination: &Path, archived: Lsn, was_archived: bool) -> Self {
        let inner = Mutex::new(Inner { began: clock::now(), archived: archived.0, ..Inner::default() });
        Status { destination: destination.to_owned(), was_archived, inner, ended: Condvar::new() }
    }

    fn end(&self) {
        self.inner.lock().is_over = true;
        self.ended.notify_all();
    }

    /// Waits until nobody follows the log any more; false where that takes longer, as with a folder that does not answer.
    pub(crate) fn await_end(&self, limit: Duration) -> bool {
        let deadline = clock::now() + limit;
        let mut inner = self.inner.lock();
        while !inner.is_over && clock::now() < deadline {
            self.ended.wait_for(&mut inner, deadline - clock::now());
        }
        inner.is_over
    }

    /// The report, of a log that is durable so far.
    pub(crate) fn report(&self, durable: Lsn) -> ArchiveReport {
        let inner = self.inner.lock();
        let behind_bytes = durable.0.saturating_sub(inner.archived);
        let waits_since = inner.caught_up.unwrap_or(inner.began);
        ArchiveReport {
            destination: self.destination.clone(),
            state: inner.state,
            archived_lsn: inner.archived,
            archived_unix_us: inner.noted_unix_us,
            behind_bytes,
            behind_seconds: match behind_bytes {
                0 => 0.0,
                _ => waits_since.elapsed().as_secs_f64(),
            },
            written_bytes: inner.written,
            failing_since_unix_us: inner.failing.map_or(0, |(_, unix_us)| unix_us),
            failing_seconds: inner.failing.map_or(0.0, |(since, _)| since.elapsed().as_secs_f64()),
            error: inner.error.clone(),
            gap: (inner.gap != (0, 0)).then_some(inner.gap),
            gap_is_open: inner.gap.1 > inner.backup_end,
        }
    }

    /// A backup was taken, which ends there: what lies behind can be added to it.
    pub(crate) fn note_backup(&self, end: Lsn) {
        let mut inner = self.inner.lock();
        inner.backup_end = inner.backup_end.max(end.0);
    }

    fn failed(&self, state: ArchiveState, error: String) {
        let mut inner = self.inner.lock();
        inner.state = state;
        inner.failing.get_or_insert((clock::now(), clock::unix_micros()));
        inner.error = Some(error);
    }

    fn succeeded(&self) {
        let mut inner = self.inner.lock();
        inner.state = ArchiveState::Archiving;
        inner.failing = None;
    }
}

impl ArchiveReport {
    /// Whether it is late without having failed, and whether that is bad.
    pub(crate) fn is_late(&self) -> Option<bool> {
        let late = self.behind_seconds > LATE.as_secs_f64();
        late.then_some(self.behind_seconds > VERY_LATE.as_secs_f64())
    }

    /// Whether it has failed for long.
    pub(crate) fn fails_for_long(&self) -> bool {
        self.failing_seconds > VERY_LATE.as_secs_f64()
    }

    /// How long an archive may be behind before it is an alarm, in seconds.
    pub(crate) fn late_after_seconds() -> f64 {
        LATE.as_secs_f64()
    }
}

impl fmt::Display for ArchiveReport {
    /// In words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = gannet_base::units::format_size(self.behind_bytes);
        write!(f, "{:?} is {}", self.destination, self.state.name())?;
        if self.behind_bytes > 0 {
            write!(f, ", {size} and {:.0} s behind", self.behind_seconds)?;
        }
        match &self.error {
            Some(error) if self.failing_since_unix_us > 0 => write!(f, ": {error}"),
            _ => Ok(()),
        }
    }
}
