//! What every layer of one open database shares.

use crate::log::{CLOCK_EVERY_US, Log, LogOptions, Note};
use crate::pool::{Pool, Volume};
use crate::space::Space;
use crate::{Error, Result};
use gannet_base::memory::Budget;
use gannet_base::sync::{Mutex, RwLock, RwLockReadGuard};
use gannet_base::{Lsn, clock};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Share of `wal_limit`, in percent, from which on writers are slowed.
pub(crate) const SLOW_FROM: u64 = 75;
/// The log that a crash has left and what is added to it are about so many times `wal_limit` at most, however often crashes come
/// before it was redone, but for an eighth of it each time.
const BACKLOG_MOST: u64 = 3;
/// Pause of a writer just below `wal_limit`.
const PAUSE_AT_LIMIT: Duration = Duration::from_millis(4);
/// Behind it the pause doubles with every such part of the limit, so many times at most: that is four minutes.
const DOUBLES_WITH: u64 = 64;
const DOUBLES_MOST: f64 = 16.0;
/// How often somebody who pauses looks whether there is still reason to.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often, and after what pause, a writer looks whether a checkpoint has freed log segments on a full disk.
const FULL_DISK_ATTEMPTS: usize = 100;
const FULL_DISK_PAUSE: Duration = Duration::from_millis(25);

/// The switch that ends all changes after a failure that cannot be undone.
#[derive(Default)]
pub(crate) struct Poison {
    set: AtomicBool,
    cause: Mutex<Option<String>>,
    alarm: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poison").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl Poison {
    /// Ends all changes; the first cause is kept.
    pub(crate) fn set(&self, cause: String) {
        self.cause.lock().get_or_insert(cause);
        self.set.store(true, Ordering::SeqCst);
        if let Some(alarm) = self.alarm.get() {
            alarm();
        }
    }

    /// The same for an error; one that says that the switch was thrown is nothing new.
    pub(crate) fn set_by(&self, error: &Error) {
        let cause = match error {
            Error::Poisoned(cause) => cause.clone(),
            error => error.to_string(),
        };
        self.set(cause);
    }

    /// Has `alarm` wake those who wait for something that will never happen now. It is called under any latches and
    /// locks, each time the switch is thrown. Once, before the database is used.
    pub(crate) fn on_set(&self, alarm: impl Fn() + Send + Sync + 'static) {
        let first = self.alarm.set(Box::new(alarm)).is_ok();
        assert!(first, "there is one alarm");
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    /// Fails once the switch was thrown.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_set() {
            return Ok(());
        }
        Err(Error::Poisoned(self.cause.lock().clone().unwrap_or_default()))
    }
}

/// Log that a crash has left, and that cannot go before it was redone: it does not count for those who write meanwhile. They
/// have a part of `wal_limit` for themselves, and are slowed as they use it up.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Where the log ended when the database was opened; 0 when there is no backlog.
    opened_at: AtomicU64,
    /// Bytes that writers may add.
    room: AtomicU64,
    redoing: AtomicBool,
}

impl Backlog {
    /// The log from `redo_from` to `opened_at` is to be redone.
    pub(crate) fn begin(&self, redo_from: Lsn, opened_at: Lsn, wal_limit: u64) {
        let left = (BACKLOG_MOST * wal_limit).saturating_sub(opened_at.0 - redo_from.0);
        self.room.store(left.clamp(wal_limit / 8, wal_limit / 2), Ordering::Relaxed);
        self.redoing.store(true, Ordering::Relaxed);
        self.opened_at.store(opened_at.0, Ordering::Relaxed);
    }

    /// All of it was redone: it is over as soon as pages that came home let the log go.
    pub(crate) fn end_redo(&self) {
        self.redoing.store(false, Ordering::Relaxed);
    }

    /// Bytes of log that count, and how many may be; `None` when there is no backlog.
    fn share(&self, log: &Log, wal_limit: u64) -> Option<(u64, u64)> {
        let opened_at = self.opened_at.load(Ordering::Relaxed);
        if opened_at == 0 {
            return None;
        }
        if !self.redoing.load(Ordering::Relaxed) && log.used_bytes() <= wal_limit * SLOW_FROM / 100 {
            self.opened_at.store(0, Ordering::Relaxed);
            return None;
        }
        Some((log.end().0.saturating_sub(opened_at), self.room.load(Ordering::Relaxed)))
    }
}

/// How long a writer pauses before each change: not at all below [`SLOW_FROM`], and more and more from there on. Behind the limit
/// it goes on, slower and slower, however late the checkpoint is. A quarter behind it a thousand writers at a time, each with the
/// largest change there is (256 KiB of a long value), add a MiB a second: the log ends about there.
fn pause(used: u64, limit: u64) -> Duration {
    let slow_from = limit * SLOW_FROM / 100;
    if used <= slow_from {
        return Duration::ZERO;
    }
    let share = (used - slow_from) as f64 / (limit - slow_from).max(1) as f64;
    let doubled = used.saturating_sub(limit) as f64 / (limit as f64 / DOUBLES_WITH as f64).max(1.0);
    PAUSE_AT_LIMIT.mul_f64(share.min(1.0).powi(2) * doubled.min(DOUBLES_MOST).exp2())
}

/// Whether somebody takes the log for all that happens to pages: a backup that is being taken, or an archive that there is or was. Otherwise
/// new trees are filled beside it.
#[derive(Debug, Default)]
pub(crate) struct WholeLog(RwLock<usize>);

impl WholeLog {
    /// From now on, until [`WholeLog::release`], the log has the contents of every page that changes behind its end.
    pub(crate) fn require(&self) {
        // Who fills a page beside it is through with that.
        *self.0.write() += 1;
    }

    pub(crate) fn release(&self) {
        *self.0.write() -= 1;
    }

    /// While this is held, pages may be filled beside the log; `None` where they may not. Whoever has it waits for nothing but the log, so it may
    /// be taken with pages latched.
    pub(crate) fn beside(&self) -> Option<RwLockReadGuard<'_, usize>> {
        Some(self.0.read()).filter(|required| **required == 0)
    }
}

/// See the module's head.
pub(crate) struct Core {
    pub(crate) pool: Arc<Pool>,
    pub(crate) volume: Arc<Volume>,
    pub(crate) log: Log,
    pub(crate) space: Space,
    pub(crate) budget: Budget,
    pub(crate) poison: Arc<Poison>,
    pub(crate) page_size: usize,
    /// Counts nodes that were moved, split, merged or settled, though nobody has changed a row: before they are seen so. Whoever counts rows
    /// meanwhile may have missed some, or seen them twice.
    pub(crate) nodes_moved: AtomicU64,
    /// The longest log record in bytes: at least four page images, which a root split needs.
    pub(crate) max_record_len: usize,
    /// Writing transactions at one time; the log's limit, less a few for those that are about to begin.
    pub(crate) max_open_transactions: usize,
    /// Bytes of log that redo may have to go through after a crash.
    pub(crate) wal_limit: u64,
    /// Why the database takes no changes, although nothing failed since it was opened.
    read_only: OnceLock<String>,
    /// Wakes those who wait for what will not happen then.
    read_only_alarm: OnceLock<Box<dyn Fn() + Send + Sync>>,
    closed: AtomicBool,
    stopping: AtomicBool,
    pub(crate) backlog: Backlog,
    pub(crate) whole_log: WholeLog,
    /// Bytes of log that were left when [`Core::await_log_room`] last waited in vain.
    waited_at_room: AtomicU64,
    /// The time that was noted in the log last.
    time_noted: AtomicU64,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Core { volume, log, poison, read_only, .. } = self;
        f.debug_struct("Core")
            .field("volume", volume)
            .field("log", log)
            .field("poison", poison)
            .field("read_only", read_only)
            .finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn new(
        pool: Arc<Pool>,
        volume: Arc<Volume>,
        log: Log,
        space: Space,
        budget: Budget,
        log_options: &LogOptions,
        wal_limit: u64,
    ) -> Self {
        let max_record_len = log_options.max_record_len();
        let page_size = pool.page_size();
        assert!(max_record_len >= 4 * page_size, "checked when the database was created");
        Core {
            pool,
            volume,
            log,
            space,
            budget,
            poison: Arc::default(),
            page_size,
            max_record_len,
            nodes_moved: AtomicU64::new(0),
            max_open_transactions: log_options.max_open_transactions() * 3 / 4,
            wal_limit,
            read_only: OnceLock::new(),
            read_only_alarm: OnceLock::new(),
            closed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            backlog: Backlog::default(),
            whole_log: WholeLog::default(),
            waited_at_room: AtomicU64::new(u64::MAX),
            time_noted: AtomicU64::new(0),
        }
    }

    /// Notes the time in the log before a commit, where that was not done shortly before: see [`CLOCK_EVERY_US`]. One at a time.
    pub(crate) fn note_time(&self) -> Result<()> {
        let (unix_us, noted) = (clock::unix_micros(), self.time_noted.load(Ordering::Relaxed));
        // Where the clock was set back it counts as it is.
        if (noted..noted + CLOCK_EVERY_US).contains(&unix_us) {
            return Ok(());
        }
        let pages = self.space.capacity();
        self.log.append_note(&Note::Clock { unix_us, pages }.encode())?;
        self.time_noted.store(unix_us, Ordering::Relaxed);
        Ok(())
    }

    /// From now on the database takes no changes.
    pub(crate) fn set_read_only(&self, why: String) {
        let _ = self.read_only.set(why);
        if let Some(alarm) = self.read_only_alarm.get() {
            alarm();
        }
    }

    /// Has `alarm` called as soon as the database takes no changes. Once, before the database is used.
    pub(crate) fn on_read_only(&self, alarm: impl Fn() + Send + Sync + 'static) {
        let first = self.read_only_alarm.set(Box::new(alarm)).is_ok();
        assert!(first, "there is one alarm");
        // Whoever says it now calls it, or has said it before.
        if let (true, Some(alarm)) = (self.is_read_only(), self.read_only_alarm.get()) {
            alarm();
        }
    }

    /// From now on every operation is refused.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.poison.set("it was closed".to_owned());
    }

    /// Fails once the database was closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Invalid("the database was closed".to_owned()));
        }
        Ok(())
    }

    /// Why the database takes no changes, if it does not.
    pub(crate) fn why_read_only(&self) -> Option<&str> {
        self.read_only.get().map(String::as_str)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.get().is_some()
    }

    /// Makes segments of the log ready ahead of their use. A failure other than a want of room is one of files that are written to, and ends
    /// all changes.
    pub(crate) fn prepare_log(&self) -> Result<()> {
        self.log.prepare().inspect_err(|error| {
            if error.is_fatal() {
                self.poison.set_by(error);
            }
        })
    }

    /// Makes the next segment ready; where the disk is full, by a checkpoint that sets old ones free. Where too many files are open that would
    /// take from archive and backups what they need, and help nobody: somebody may close some meanwhile.
    fn make_log_room(&self) -> Result<()> {
        let mut result = self.prepare_log();
        for _ in 0..FULL_DISK_ATTEMPTS {
            let is_full = match &result {
                Err(Error::NoSpace(_)) => true,
                Err(Error::TooManyFiles(_)) => false,
                _ => break,
            };
            // For the next segment there may be room where there is none for all the reserves.
            if self.log.room() >= self.log.segment_size() {
                return Ok(());
            }
            self.poison.check()?;
            if is_full {
                self.log.give_up_holds();
                self.volume.shorten_log();
            }
            clock::sleep(FULL_DISK_PAUSE);
            result = self.prepare_log();
        }
        result
    }

    /// Called without latches between the steps of what cannot be refused, such as a rollback: all of them may take more
    /// log than is left on a full disk. Where a wait was in vain, there is another one once a sixteenth of a segment more
    /// was taken.
    pub(crate) fn await_log_room(&self) {
        let (room, segment) = (self.log.room(), self.log.segment_size());
        let waited = self.waited_at_room.load(Ordering::Relaxed);
        let left = if room >= segment {
            u64::MAX
        } else if room.saturating_add(segment / 16) > waited || self.make_log_room().is_ok() {
            return;
        } else {
            room
        };
        if left != waited {
            self.waited_at_room.store(left, Ordering::Relaxed);
        }
    }

    /// Fails where no change can be carried through.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.poison.check()?;
        match self.read_only.get() {
            Some(why) => Err(Error::Damaged(format!("the database is open for reading only: {why}"))),
            None => Ok(()),
        }
    }

    /// Called by writers before a change, without latches: refuses what cannot be carried through, and slows writers as
    /// the log nears its limit, so that the checkpoint keeps up and nobody is ever stopped: see [`pause`]. Fails with
    /// [`Error::Cancelled`] when the writer is `cancelled` during a pause.
    pub(crate) fn throttle(&self, cancelled: &dyn Fn() -> bool) -> Result<()> {
        self.check_writable()?;
        // Where no segment can be made ready (a full disk), at least a segment's worth of log is left to commits,
        // rollbacks and changes that have begun: they must not fail half-way.
        if self.log.room() < self.log.segment_size() {
            self.make_log_room()?;
        }
        let begun = clock::now();
        while !self.stopping.load(Ordering::Relaxed) {
            let (used, limit) = self.log_share();
            let left = pause(used, limit).saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            if cancelled() {
                return Err(Error::Cancelled);
            }
            clock::sleep(left.min(LOOK_EVERY));
            self.check_writable()?;
        }
        Ok(())
    }

    /// The database is being closed: nobody waits any more for a checkpoint that may not come.
    pub(crate) fn stop_waiting(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the log has grown beyond its limit, where pauses get long.
    pub(crate) fn is_behind_limit(&self) -> bool {
        let (used, limit) = self.log_share();
        used > limit
    }

    /// Bytes of log that a checkpoint is due for, and how many may be.
    pub(crate) fn log_share(&self) -> (u64, u64) {
        let share = self.backlog.share(&self.log, self.wal_limit);
        share.unwrap_or_else(|| (self.log.used_bytes(), self.wal_limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_log() {
        let pauses: Vec<_> = [0, 750, 875, 1000, 1016, 1032, 1125, 9000].map(|used| pause(used, 1000)).into();
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert_eq!(pauses[..2], [Duration::ZERO; 2]);
        assert_eq!(pauses[3], PAUSE_AT_LIMIT);
        assert!(pauses[4] > PAUSE_AT_LIMIT && pauses[4] < 3 * PAUSE_AT_LIMIT);
        assert!(pauses[6] > Duration::from_millis(900) && pauses[7] < Duration::from_secs(300));
    }
}
