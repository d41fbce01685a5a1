//! What lies ahead: how fast the file and garbage grow, how full the log is, and alarms before users stall.
//!
//! # What it guarantees
//! 1. Every figure was counted or measured. A rate is that of at least a minute, of the last hour at most; where it was not looked for so
//!    long, or it does not grow, nothing is foretold.
//! 2. An alarm is there as long as its condition holds, and says since when that was seen.

use crate::archive::{ArchiveReport, ArchiveState};
use crate::core::SLOW_FROM;
use crate::database::{Database, RestartPhase};
use crate::shared::Shared;
use gannet_base::clock::{self, Instant};
use gannet_base::sync::Mutex;
use gannet_base::units::format_size;
use gannet_io::{Mode, Pressure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How often figures are noted, and how many of them are kept.
const NOTE_EVERY: Duration = Duration::from_secs(10);
const NOTES: usize = 360;
/// What it is looked at for at least before a rate is told.
const RATE_AFTER: Duration = Duration::from_secs(60);
/// A device that is full within this time is worth a warning, or more than that.
const FULL_SOON_SECONDS: f64 = 86_400.0;
const FULL_NOW_SECONDS: f64 = 3_600.0;
/// The same for a part of the file's size that is free, one in this many.
const FREE_LITTLE: u64 = 20;
const FREE_NEXT_TO_NOTHING: u64 = 64 << 20;
/// Garbage that is held back is worth a warning from this part of the file on, one in so many, and no less than so many bytes; and more than
/// a warning.
const HELD_MUCH: u64 = 10;
const HELD_MUCH_BYTES: u64 = 64 << 20;
const HELD_VERY_MUCH: u64 = 2;
/// The OS caches more of the files than anybody does by looking at them: one part in this many, and so many bytes.
const CACHED_MUCH: u64 = 100;
const CACHED_MUCH_BYTES: u64 = 16 << 20;
/// How often it is looked what the OS caches.
const CACHED_EVERY: Duration = Duration::from_secs(60);
/// Time in which something waited for memory, in percent of the last ten seconds.
const PRESSURE_SOME: f64 = 10.0;
const PRESSURE_FULL: f64 = 5.0;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It will be bad if it goes on.
    Warning,
    /// It is bad.
    Critical,
}

impl Severity {
    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// Something that is to be seen to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// What it is about: `space`, `log`, `horizon`, `memory`, `swap`, `io`, `cache`, `archive`, `archive gap`, `restart`, `failure`.
    pub name: String,
    /// How bad it is.
    pub severity: Severity,
    /// When it was first seen, in microseconds since 1970-01-01 UTC.
    pub since_unix_us: u64,
    /// What is wrong, in words.
    pub what: String,
    /// The figure it goes by, and from where on it is an alarm; `None` where it is no figure.
    pub figure: Option<f64>,
    /// See `figure`.
    pub threshold: Option<f64>,
    /// What both are counted in.
    pub unit: String,
    /// What to do.
    pub advice: String,
}

/// A figure that may come to its limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gauge {
    /// What it is about: `space`, `log`, `horizon`.
    pub name: String,
    /// The figure, in bytes.
    pub value: f64,
    /// What it may come to: of `space`, how large the file can get on its device; of the others, where their alarm begins.
    pub limit: Option<f64>,
    /// How fast it grows, in bytes a second; `None` where it was not looked at for long enough.
    pub per_second: Option<f64>,
    /// When it comes to its limit, if it goes on so, 0 where it is there; `None` where it does not grow, or nothing can be told.
    pub seconds_left: Option<f64>,
    /// For how many seconds it was looked at.
    pub looked_seconds: f64,
    /// In words.
    pub note: String,
}

/// What lies ahead of a database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outlook {
    /// What grows.
    pub gauges: Vec<Gauge>,
    /// What is to be seen to, the worst first.
    pub alarms: Vec<Alarm>,
}

/// Figures at one time.
#[derive(Clone, Copy, Debug)]
struct Note {
    at: Instant,
    file_bytes: u64,
    /// As of [`Core::log_share`](crate::core::Core::log_share): of another limit, it counts other log.
    log: (u64, u64),
    held_bytes: u64,
}

/// Figures of the last hour.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<VecDeque<Note>>);

impl Shared {
    /// Notes figures, where it is time.
    pub(crate) fn note_figures(&self) {
        let at = clock::now();
        if self.notes.0.lock().back().is_some_and(|last| at - last.at < NOTE_EVERY) {
            return;
        }
        let note = Note {
            at,
            file_bytes: self.core.space.capacity() * self.core.page_size as u64,
            log: self.core.log_share(),
            held_bytes: self.garbage().held_bytes(),
        };
        let mut notes = self.notes.0.lock();
        if notes.len() == NOTES {
            notes.pop_front();
        }
        notes.push_back(note);
    }
}

impl Notes {
    /// How something grows that is `value` at `at`, since the first note that has it.
    fn growth(&self, of: impl Fn(&Note) -> Option<u64>, value: u64, at: Instant) -> Growth {
        let notes = self.0.lock();
        // Nobody notes anything while the thread that does is held up.
        let mut recent = notes.iter().skip_while(|note| at - note.at > NOTE_EVERY * NOTES as u32);
        let first = recent.find_map(|note| of(note).map(|value| (note.at, value)));
        let Some((since, before)) = first else { return Growth::default() };
        let looked = at - since;
        let seconds = looked.as_secs_f64();
        let grown = value as f64 - before as f64;
        let per_second = (looked >= RATE_AFTER).then(|| grown / seconds);
        Growth { looked_seconds: seconds, per_second }
    }
}

/// For how many seconds something was looked at, and by how many bytes a second it has grown.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    looked_seconds: f64,
    per_second: Option<f64>,
}

impl Gauge {
    fn new(name: &str, value: f64, limit: Option<f64>, growth: Growth, note: String) -> Self {
        let Growth { looked_seconds, per_second } = growth;
        let rate = per_second.filter(|rate| *rate > 0.0);
        let seconds_left = limit.zip(rate).map(|(limit, rate)| (limit - value).max(0.0) / rate);
        Gauge { name: name.to_owned(), value, limit, per_second, seconds_left, looked_seconds, note }
    }
}

/// The log that no checkpoint has let go of. Pages that come home make it less: the rate is what is left of the two together.
fn log_gauge(notes: &Notes, (used, limit): (u64, u64), at: Instant) -> Gauge {
    let growth = notes.growth(|note| (note.log.1 == limit).then_some(note.log.0), used, at);
    let slow_from = limit as f64 * SLOW_FROM as f64 / 100.0;
    let note = format!("{} of log are not in the file yet, of {}", format_size(used), format_size(limit));
    Gauge::new("log", used as f64, Some(slow_from), growth, note)
}

/// Garbage that is held back, beside a file of so many bytes.
fn horizon_gauge(notes: &Notes, held: u64, file: u64, at: Instant, note: String) -> Gauge {
    let growth = notes.growth(|note| Some(note.held_bytes), held, at);
    Gauge::new("horizon", held as f64, Some(held_much(file)), growth, note)
}

/// From how many bytes on garbage that is held back is worth a warning, beside a file of so many.
fn held_much(file: u64) -> f64 {
    (file / HELD_MUCH).max(HELD_MUCH_BYTES) as f64
}

/// What an alarm goes by, from where on it is one of that severity, and what both are counted in.
type Figure<'a> = (f64, f64, &'a str);

/// What is found while an outlook is made.
#[derive(Default)]
struct Found {
    gauges: Vec<Gauge>,
    alarms: Vec<Alarm>,
}

impl Found {
    fn alarm(
        &mut self,
        name: &str,
        severity: Severity,
        what: String,
        figure: Option<Figure<'_>>,
        advice: &str,
    ) {
        self.alarms.push(Alarm {
            name: name.to_owned(),
            severity,
            since_unix_us: clock::unix_micros(),
            what,
            figure: figure.map(|(figure, _, _)| figure),
            threshold: figure.map(|(_, threshold, _)| threshold),
            unit: figure.map_or("", |(_, _, unit)| unit).to_owned(),
            advice: advice.to_owned(),
        });
    }

    /// `critical` counts where it is reached, `warning` where that is.
    fn beyond(
        &mut self,
        name: &str,
        (figure, warning, critical, unit): (f64, f64, f64, &str),
        what: impl FnOnce() -> String,
        advice: &str,
    ) {
        let (severity, threshold) = if figure >= critical {
            (Severity::Critical, critical)
        } else if figure >= warning {
            (Severity::Warning, warning)
        } else {
            return;
        };
        self.alarm(name, severity, what(), Some((figure, threshold, unit)), advice);
    }
}

/// What to do where there is little space.
pub const SPACE_ADVICE: &str = "make room on the device, or move the database to a larger one";

/// How bad it is that a device has so many bytes left, on which a database has a file of so many; and below how many it is that bad. `None` where
/// that is enough for now.
pub fn little_space(free: u64, file: u64) -> Option<(Severity, u64)> {
    let little = file / FREE_LITTLE;
    if free < FREE_NEXT_TO_NOTHING {
        Some((Severity::Critical, FREE_NEXT_TO_NOTHING))
    } else {
        (free < little).then_some((Severity::Warning, little))
    }
}

/// The worse of what a device with so many bytes left comes to as the file grows, and of what it has left by now: a slow growth makes
/// nothing less of a full one. `growth`: in how many seconds it is full, and for how many the file was looked at.
fn shortage(free: u64, file: u64, growth: Option<(f64, f64)>) -> Option<(Severity, String, Figure<'static>)> {
    let ahead = growth.filter(|(left, _)| *left < FULL_SOON_SECONDS).map(|(left, looked_seconds)| {
        let (severity, threshold) = match left < FULL_NOW_SECONDS {
            true => (Severity::Critical, FULL_NOW_SECONDS),
            false => (Severity::Warning, FULL_SOON_SECONDS),
        };
        let what = format!(
            "the device is full in {:.1} hours if the file grows on as in the last {:.0} minutes",
            left / 3600.0,
            looked_seconds / 60.0
        );
        (severity, what, (left, threshold, "seconds"))
    });
    let now = little_space(free, file).map(|(severity, threshold)| {
        let what = format!("{} are free on the device of {}", format_size(free), format_size(file));
        (severity, what, (free as f64, threshold as f64, "bytes"))
    });
    // Of two that are as bad, the one that says when.
    now.into_iter().chain(ahead).max_by_key(|(severity, ..)| *severity)
}

impl Database {
    /// What lies ahead, and what is to be seen to.
    pub fn outlook(&self) -> Outlook {
        let mut found = Found::default();
        self.look_at_failures(&mut found);
        self.look_at_space(&mut found);
        self.look_at_log(&mut found);
        self.look_at_horizon(&mut found);
        self.look_at_files(&mut found);
        self.look_at_archive(&mut found);
        look_at_memory(&mut found, &Pressure::of_this_machine());
        let Found { gauges, mut alarms } = found;
        let mut since = self.seen.since.lock();
        since.retain(|name, _| alarms.iter().any(|alarm| alarm.name == *name));
        for alarm in &mut alarms {
            alarm.since_unix_us = *since.entry(alarm.name.clone()).or_insert(alarm.since_unix_us);
        }
        alarms.sort_by_key(|alarm| std::cmp::Reverse(alarm.severity));
        Outlook { gauges, alarms }
    }

    fn look_at_failures(&self, found: &mut Found) {
        let core = &self.shared.core;
        if let Some(failure) = self.failure() {
            let advice =
                "see to the cause, then open the database anew: nothing that was acknowledged is lost";
            found.alarm("failure", Severity::Critical, failure, None, advice);
        } else if let Some(why) = core.why_read_only() {
            let what = format!("the database takes no changes: {why}");
            found.alarm(
                "failure",
                Severity::Critical,
                what,
                None,
                "save what can be read, and restore a backup",
            );
        }
        let restart = self.restart_report();
        if restart.phase == RestartPhase::Stopped && !restart.damaged_pages.is_empty() {
            let advice = "run gannet check to see what is at stake; restore a backup";
            found.alarm("restart", Severity::Critical, restart.to_string(), None, advice);
        }
    }

    fn look_at_space(&self, found: &mut Found) {
        let file = self.shared.core.space.capacity() * self.page_size() as u64;
        let growth = self.shared.notes.growth(|note| Some(note.file_bytes), file, clock::now());
        let free = self.free_bytes();
        let note = match free {
            Some(free) => format!("{} of file, {} free on its device", format_size(file), format_size(free)),
            None => format!("{} of file; what is free on its device is not known", format_size(file)),
        };
        let gauge = Gauge::new("space", file as f64, free.map(|free| (file + free) as f64), growth, note);
        let left = gauge.seconds_left.map(|left| (left, gauge.looked_seconds));
        found.gauges.push(gauge);
        let Some(free) = free else { return };
        if let Some(shortage) = shortage(free, file, left) {
            let (severity, what, figure) = shortage;
            found.alarm("space", severity, what, Some(figure), SPACE_ADVICE);
        }
    }

    fn look_at_log(&self, found: &mut Found) {
        let (used, limit) = self.shared.core.log_share();
        found.gauges.push(log_gauge(&self.shared.notes, (used, limit), clock::now()));
        let percent = 100.0 * used as f64 / limit.max(1) as f64;
        let what =
            || format!("the log has {percent:.0} % of what it may: writers are slowed until pages come home");
        let advice = "the device does not keep up with what is changed: a faster one, or a larger wal_limit for bursts";
        found.beyond("log", (percent, SLOW_FROM as f64, 100.0, "percent"), what, advice);
    }

    fn look_at_horizon(&self, found: &mut Found) {
        let garbage = self.shared.garbage();
        let held = garbage.held_bytes();
        let oldest = garbage.holders.first();
        let note = match oldest {
            Some(oldest) => format!(
                "{} of undo are held back, the longest by a {} that is {:.0} s old",
                format_size(held),
                oldest.kind.name(),
                oldest.age_seconds
            ),
            None => "nothing is held back".to_owned(),
        };
        let file = self.shared.core.space.capacity() * self.page_size() as u64;
        found.gauges.push(horizon_gauge(&self.shared.notes, held, file, clock::now(), note.clone()));
        let much = held_much(file);
        let very_much = (file / HELD_VERY_MUCH).max(4 * HELD_MUCH_BYTES) as f64;
        let advice = "end who holds it (gannet_snapshots, pg_terminate_backend), or set snapshot_limit";
        found.beyond("horizon", (held as f64, much, very_much, "bytes"), || note, advice);
    }

    fn look_at_archive(&self, found: &mut Found) {
        let Some(report) = self.archive_report() else { return };
        let held = format_size(self.shared.core.wal_limit);
        let advice = format!(
            "see to the folder of the archive: log that it lacks is kept up to {held}, and then let go of, which leaves a gap"
        );
        let limit = ArchiveReport::late_after_seconds();
        if report.failing_since_unix_us > 0 {
            let is_near = report.behind_bytes > self.shared.core.wal_limit / 2;
            let is_bad = report.fails_for_long() || is_near || report.state == ArchiveState::Refused;
            let severity = if is_bad { Severity::Critical } else { Severity::Warning };
            found.alarm("archive", severity, report.to_string(), None, &advice);
        } else if let Some(is_very_late) = report.is_late() {
            let severity = if is_very_late { Severity::Critical } else { Severity::Warning };
            let figure = Some((report.behind_seconds, limit, "seconds"));
            found.alarm("archive", severity, report.to_string(), figure, &advice);
        }
        if let Some((from, to)) = report.gap.filter(|_| report.gap_is_open) {
            let archive = &report.destination;
            let what = if from == to {
                format!(
                    "the archive {archive:?} begins at lsn {to}, with a log that follows none of before: that was gone"
                )
            } else {
                format!(
                    "the archive {archive:?} lacks the log from lsn {from} to {to}, which was let go of before it could be archived, or is from before it was begun"
                )
            };
            let advice = "take a backup: what is archived from now on can be added to that one, and not to those from before";
            found.alarm("archive gap", Severity::Critical, what, None, advice);
        }
    }

    fn look_at_files(&self, found: &mut Found) {
        let mode = self.io_mode();
        if mode.effective == Mode::Buffered {
            let what =
                format!("buffered I/O: what is read is cached a second time by the OS ({})", mode.reason);
            let advice = "put the files on a file system that takes direct I/O";
            found.alarm("io", Severity::Warning, what, None, advice);
        }
        let (cached, all) = self.cached_bytes();
        let much = (all / CACHED_MUCH).max(CACHED_MUCH_BYTES) as f64;
        let what = || format!("the OS caches {} of the database's files", format_size(cached));
        let advice = "somebody else reads the files through the OS cache, as a copy of them does";
        found.beyond("cache", (cached as f64, much, f64::INFINITY, "bytes"), what, advice);
    }
}

impl Database {
    /// Bytes of the files that the OS caches, and of all of them. Where the kernel has no call for it, that takes a look at each page.
    fn cached_bytes(&self) -> (u64, u64) {
        let mut known = self.seen.cached.lock();
        if let Some((at, cached, all)) = *known
            && at.elapsed() < CACHED_EVERY
        {
            return (cached, all);
        }
        let files = gannet_io::residency(self.files()).files;
        let bytes = |of: fn(&gannet_io::Cached) -> u64| -> u64 {
            files.iter().filter_map(|(_, cached)| cached.as_ref().map(of)).sum()
        };
        let (cached, all) = (bytes(|cached| cached.cached_bytes), bytes(|cached| cached.len_bytes));
        *known = Some((clock::now(), cached, all));
        (cached, all)
    }
}

fn look_at_memory(found: &mut Found, pressure: &Pressure) {
    let advice = "give the machine to fewer, or the database a smaller budget (memory)";
    if let Some(swapped) = pressure.swapped_bytes.filter(|swapped| *swapped > 0) {
        let what = format!("{} of this process are swapped out", format_size(swapped));
        found.alarm("swap", Severity::Warning, what, Some((swapped as f64, 1.0, "bytes")), advice);
    }
    if let Some((some, full)) = pressure.memory {
        let what = format!(
            "somebody waited for memory in {some:.1} % of the last ten seconds, everybody in {full:.1} %"
        );
        if full >= PRESSURE_FULL {
            found.alarm("memory", Severity::Critical, what, Some((full, PRESSURE_FULL, "percent")), advice);
        } else if some >= PRESSURE_SOME {
            found.alarm("memory", Severity::Warning, what, Some((some, PRESSURE_SOME, "percent")), advice);
        }
    }
}

/// What was seen when an outlook was made before.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When alarms were first seen, by their names.
    since: Mutex<BTreeMap<String, u64>>,
    /// When it was looked what the OS caches, and how much that was of how much.
    cached: Mutex<Option<(Instant, u64, u64)>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, Engine, EngineOptions, Isolation, OpenOptions, TransactionOptions};
    use gannet_io::sim::SimDisk;
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn pressure_and_swap_are_alarms_from_their_thresholds_on() {
        let of = |memory, swapped| {
            let mut found = Found::default();
            let pressure = Pressure { memory, swapped_bytes: swapped, ..Pressure::default() };
            look_at_memory(&mut found, &pressure);
            found.alarms.iter().map(|alarm| (alarm.name.clone(), alarm.severity)).collect::<Vec<_>>()
        };
        assert_eq!(of(None, None), []);
        assert_eq!(of(Some((9.9, 4.9)), Some(0)), []);
        assert_eq!(of(Some((10.0, 0.0)), None), [("memory".to_owned(), Severity::Warning)]);
        assert_eq!(of(Some((10.0, 5.0)), None), [("memory".to_owned(), Severity::Critical)]);
        assert_eq!(of(None, Some(4096)), [("swap".to_owned(), Severity::Warning)]);
    }

    #[test]
    fn little_space_is_a_part_of_the_file_or_next_to_nothing() {
        let (mib, gib) = (1 << 20, 1 << 30);
        assert_eq!(little_space(64 * mib, gib), None);
        assert_eq!(little_space(64 * mib - 1, 0), Some((Severity::Critical, 64 * mib)));
        assert_eq!(little_space(5 * gib, 100 * gib), None);
        assert_eq!(little_space(5 * gib - 1, 100 * gib), Some((Severity::Warning, 5 * gib)));
    }

    #[test]
    fn a_forecast_hides_no_shortage_and_has_the_threshold_of_its_severity() {
        let (mib, gib) = (1 << 20, 1 << 30);
        let of = |free, file, left| {
            let found = shortage(free, file, left);
            found.map(|(severity, _, (figure, threshold, unit))| (severity, figure, threshold, unit))
        };
        let hours = |hours: f64| Some((hours * 3600.0, 600.0));
        assert_eq!(of(gib, gib, None), None);
        assert_eq!(of(gib, gib, hours(24.0)), None);
        let little = (10 * mib) as f64;
        let full = Some((Severity::Critical, little, (64 * mib) as f64, "bytes"));
        assert_eq!(of(10 * mib, gib, None), full);
        assert_eq!(of(10 * mib, gib, hours(2.8)), full);
        assert_eq!(of(gib, gib, hours(2.0)), Some((Severity::Warning, 7200.0, 86_400.0, "seconds")));
        assert_eq!(of(gib, gib, hours(0.5)), Some((Severity::Critical, 1800.0, 3600.0, "seconds")));
        assert_eq!(of(gib, 100 * gib, hours(0.5)).unwrap().3, "seconds");
        assert_eq!(of(gib, 100 * gib, hours(2.0)).unwrap().3, "seconds");
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// Notes, each of a time in seconds, the log, its limit, and garbage that was held back.
    fn notes(of: &[(u64, u64, u64, u64)]) -> Notes {
        let note = |&(seconds, used, limit, held_bytes): &(u64, u64, u64, u64)| Note {
            at: at(seconds),
            file_bytes: 0,
            log: (used, limit),
            held_bytes,
        };
        Notes(Mutex::new(of.iter().map(note).collect()))
    }

    #[test]
    fn the_log_is_foretold_by_what_no_checkpoint_has_let_go_of() {
        let told = |notes: &Notes, share, seconds| {
            let gauge = log_gauge(notes, share, at(seconds));
            (gauge.per_second, gauge.seconds_left, gauge.looked_seconds)
        };
        assert_eq!(log_gauge(&notes(&[]), (100, 1000), at(1)).limit, Some(750.0));
        assert_eq!(told(&notes(&[]), (100, 1000), 100), (None, None, 0.0));
        let seen = notes(&[(10, 100, 1000, 0), (20, 900, 1000, 0)]);
        assert_eq!(told(&seen, (250, 1000), 69), (None, None, 59.0), "too little was seen");
        // 150 bytes more in 100 seconds; 500 of those before the alarm are left.
        assert_eq!(told(&seen, (250, 1000), 110), (Some(1.5), Some(500.0 / 1.5), 100.0));
        assert_eq!(told(&seen, (800, 1000), 110), (Some(7.0), Some(0.0), 100.0), "it is there");
        // Much was written, and its pages have come home.
        assert_eq!(told(&seen, (100, 1000), 110), (Some(0.0), None, 100.0));
        assert_eq!(told(&seen, (50, 1000), 110), (Some(-0.5), None, 100.0));
        // What was noted more than an hour ago says nothing, however long nobody noted anything.
        assert_eq!(told(&seen, (250, 1000), 3615), (Some(-650.0 / 3595.0), None, 3595.0));
        assert_eq!(told(&seen, (250, 1000), 3621), (None, None, 0.0));
    }

    #[test]
    fn log_that_a_crash_has_left_is_not_compared_with_that_of_after() {
        let seen = notes(&[(10, 100, 500, 0), (20, 120, 500, 0), (30, 700, 1000, 0)]);
        let gauge = log_gauge(&seen, (710, 1000), at(80));
        assert_eq!((gauge.per_second, gauge.looked_seconds), (None, 50.0));
        let gauge = log_gauge(&seen, (740, 1000), at(110));
        assert_eq!((gauge.per_second, gauge.seconds_left), (Some(0.5), Some(20.0)));
        let gauge = log_gauge(&seen, (300, 500), at(110));
        assert_eq!((gauge.per_second, gauge.seconds_left), (Some(2.0), Some(37.5)));
    }

    #[test]
    fn garbage_that_is_held_back_is_foretold_until_its_alarm() {
        let (mib, gib) = (1 << 20, 1 << 30);
        let seen = notes(&[(10, 0, 0, 4 * mib)]);
        let of = |held, file, seconds| horizon_gauge(&seen, held, file, at(seconds), String::new());
        let gauge = of(24 * mib, gib, 50);
        assert_eq!((gauge.limit, gauge.seconds_left), (Some((gib / 10) as f64), None), "too little was seen");
        // A MiB every five seconds.
        let gauge = of(24 * mib, 0, 110);
        assert_eq!(gauge.per_second, Some(mib as f64 / 5.0));
        assert_eq!((gauge.limit, gauge.seconds_left), (Some((64 * mib) as f64), Some(200.0)));
        assert_eq!(of(24 * mib, 1280 * mib, 110).seconds_left, Some(520.0), "beside a larger file");
        assert_eq!(of(94 * mib, 0, 110).seconds_left, Some(0.0), "it is there");
        assert_eq!(of(4 * mib, 0, 110).seconds_left, None);
        assert_eq!(of(0, 0, 110).seconds_left, None);
    }

    #[test]
    fn alarms_say_since_when_and_end() {
        let options = EngineOptions { memory: 16 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
        let open = OpenOptions { sweep: false, ..OpenOptions::default() };
        let db = engine.create(Path::new("o.gnt"), &create, &open).unwrap();
        let about = |name: &str| {
            let outlook = db.outlook();
            let gauge = outlook.gauges.iter().find(|gauge| gauge.name == name).unwrap().clone();
            (gauge, outlook.alarms.into_iter().find(|alarm| alarm.name == name))
        };
        let (gauge, alarm) = about("horizon");
        assert!(alarm.is_none() && gauge.value == 0.0, "{gauge:?}");
        // Nobody has looked for a minute: no rate is made up.
        assert!(about("space").0.per_second.is_none() && about("space").0.seconds_left.is_none());
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree("t").unwrap();
        (0..1000u64).for_each(|i| txn.insert(&tree, &i.to_be_bytes(), &[1; 100]).unwrap());
        txn.commit().unwrap();
        let isolation = Isolation::RepeatableRead;
        let mut old = db.begin(TransactionOptions { isolation, ..TransactionOptions::default() });
        old.get(&tree, b"").unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        (0..1000u64).for_each(|i| assert!(txn.delete(&tree, &i.to_be_bytes()).unwrap()));
        txn.commit().unwrap();
        let (gauge, alarm) = about("horizon");
        assert!(gauge.value > 0.0 && gauge.note.contains("by a snapshot"), "{gauge:?}");
        assert!(alarm.is_none(), "so little is no alarm");
        let core = &db.shared.core;
        let opened_at = gannet_base::Lsn(core.log.end().0 - 1000);
        core.backlog.begin(opened_at, opened_at, 1000);
        let first = about("log").1.unwrap();
        assert_eq!(first.severity, Severity::Critical);
        assert!(first.figure >= first.threshold);
        assert_eq!(about("log").1.unwrap().since_unix_us, first.since_unix_us);
        core.backlog.end_redo();
        assert!(about("log").1.is_none());
    }
}
