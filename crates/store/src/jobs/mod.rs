//! Jobs: work of an administrator, or of the database itself, that can be seen, is paced, and can be ended.
//!
//! # What it guarantees
//! 1. Whatever runs for long and was not asked for as an ordinary statement is a [`Job`]: seen in [`Jobs::reports`] from its begin
//!    to its end with what it does, how far it is, who asked for it and why, and for a while afterwards with how it ended.
//! 2. A job that is cancelled ends at its next [`Job::check`], [`Job::permit`] or [`Watch::look`], and leaves nothing that counts.
//! 3. A job is paced by what others get from the device and of processors meanwhile, and never slower than its floor: see [`Pace`] and [`Reserve`].
//!
//! A job says what it does in phases, each with a total in bytes, pages or the like, as far as it is known; rate and time left are those
//! of the phase.

mod crew;
mod gate;
mod pacer;
mod reserve;
mod saturation;
mod users;
mod window;

use crate::pool::reads::Background;
use crate::{Error, Result};
pub(crate) use crew::{Crew, Stop, no_thread, run_crew};
use gannet_base::clock::{self, Instant};
use gannet_base::sync::Mutex;
use gannet_io::stats::{Operation, Snapshot};
use gannet_io::{Class, Disk};
pub(crate) use pacer::Pacer;
use pacer::Work;
pub use pacer::{Pace, Permit};
pub use reserve::Reserve;
pub(crate) use reserve::ask_for_processors;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
pub(crate) use users::Users;

/// Jobs that have ended and are remembered.
const REMEMBERED: usize = 32;
/// How often whoever waits for a job is told how it goes.
const TELL_EVERY: Duration = Duration::from_millis(50);

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum JobKind {
    /// Copies the database, or what has changed in it, to another place.
    Backup,
    /// Looks whether everything that is stored is whole.
    Check,
    /// Gives space back to the file system.
    Compact,
    /// Writes rows out as text.
    Dump,
    /// Reads rows from text.
    Load,
    /// Makes a database from backups.
    Restore,
    /// Counts what is stored.
    Stat,
    /// Removes what nobody can see any more.
    Sweep,
    /// Proves a backup.
    Verify,
}

impl JobKind {
    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Backup => "backup",
            JobKind::Check => "check",
            JobKind::Compact => "compact",
            JobKind::Dump => "dump",
            JobKind::Load => "load",
            JobKind::Restore => "restore",
            JobKind::Stat => "stat",
            JobKind::Sweep => "sweep",
            JobKind::Verify => "verify",
        }
    }
}

/// How far a job has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It is under way.
    Running,
    /// It came to its end.
    Done,
    /// It came to an end because it was asked to.
    Cancelled,
    /// It could not be done.
    Failed,
}

impl JobState {
    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Cancelled => "cancelled",
            JobState::Failed => "failed",
        }
    }
}

/// What a phase is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bytes.
    #[default]
    Bytes,
    /// Pages of the database.
    Pages,
    /// Rows.
    Rows,
    /// Tables and indexes.
    Trees,
    /// Undo segments.
    Segments,
}

impl Unit {
    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Pages => "pages",
            Unit::Rows => "rows",
            Unit::Trees => "trees",
            Unit::Segments => "undo segments",
        }
    }
}

/// What is asked for, by whom, and why.
#[derive(Clone, Debug)]
pub struct JobOrder {
    /// What is to be done.
    pub kind: JobKind,
    /// More about that, for people: the destination, the table.
    pub about: String,
    /// Why it runs: who asked for it, or what made the database begin it.
    pub reason: String,
    /// A number that means something to the layer above: the session that waits for it.
    pub owner: Option<u64>,
    /// How it is paced.
    pub pace: Pace,
    /// The database began it by itself. When it is done, it is remembered only until the next one of its kind.
    pub automatic: bool,
}

impl JobOrder {
    /// Asked for by whoever calls, paced as usual.
    pub fn new(kind: JobKind) -> Self {
        JobOrder {
            kind,
            about: String::new(),
            reason: "asked for".to_owned(),
            owner: None,
            pace: Pace::default(),
            automatic: false,
        }
    }
}

/// A job as it is at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// Its number, which no other job of this process has.
    pub id: u64,
    /// What it does.
    pub kind: JobKind,
    /// More about that.
    pub about: String,
    /// Why it runs.
    pub reason: String,
    /// See [`JobOrder::owner`].
    pub owner: Option<u64>,
    /// Whether it runs, or how it ended.
    pub state: JobState,
    /// What it is at.
    pub phase: String,
    /// What that is counted in.
    pub unit: Unit,
    /// How much of the phase is done.
    pub done: u64,
    /// How much there is to do, as far as is known; 0 for unknown.
    pub total: u64,
    /// Units a second, in this phase.
    pub rate: f64,
    /// Seconds until the phase ends, at this rate.
    pub seconds_left: Option<f64>,
    /// When it began, in microseconds since 1970-01-01 UTC.
    pub started_unix_us: u64,
    /// How long it has run, or ran.
    pub seconds: f64,
    /// Seconds of that in which one of its threads at least was held back for others.
    pub paced_seconds: f64,
    /// Bytes that it read from devices.
    pub bytes_read: u64,
    /// Bytes that it wrote to devices.
    pub bytes_written: u64,
    /// The most bytes that the device has been seen to read, and to write, in a second: measured on purpose, or by the load of this process
    /// within a quarter of a second, that of this job included. `None` where nothing is known.
    pub device_read_rate: Option<u64>,
    /// See `device_read_rate`.
    pub device_write_rate: Option<u64>,
    /// Bytes that everybody has read and written meanwhile, by class of requests.
    pub by_class: Vec<ClassBytes>,
    /// What else is to be said, or how it ended.
    pub note: String,
}

/// Bytes transferred for one class of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassBytes {
    /// The class's name.
    pub class: String,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// How a job goes, and what others are told of it.
#[derive(Debug)]
struct Inner {
    id: u64,
    order: JobOrder,
    started: Instant,
    started_unix_us: u64,
    io_before: Snapshot,
    cancelled: AtomicBool,
    /// Its threads are to end, as it has failed.
    broken_off: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    held_back: Mutex<HeldBack>,
    phase: Mutex<Phase>,
}

/// How long one of a job's threads at least was held back for others.
#[derive(Debug, Default)]
struct HeldBack {
    threads: usize,
    since: Option<Instant>,
    before: Duration,
}

impl HeldBack {
    fn begin(&mut self, now: Instant) {
        self.threads += 1;
        self.since.get_or_insert(now);
    }

    fn end(&mut self, now: Instant) {
        self.threads -= 1;
        if self.threads == 0 {
            self.before = self.until(now);
            self.since = None;
        }
    }

    fn until(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now.max(since) - since)
    }
}

#[derive(Debug)]
struct Phase {
    name: &'static str,
    unit: Unit,
    began: Instant,
    /// What was done of it before it began to be seen.
    before: u64,
    note: String,
    /// What the longest of the phases before came to.
    longest: Option<Came>,
}

/// What a phase came to.
#[derive(Clone, Copy, Debug)]
struct Came {
    name: &'static str,
    unit: Unit,
    done: u64,
    total: u64,
    rate: f64,
    lasted: Duration,
}

impl Inner {
    fn report(&self, disk: &dyn Disk, state: JobState) -> JobReport {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let phase = self.phase.lock();
        let now = self.came(&phase);
        // Of a job that is done it is of interest what it has done, and not which phase was the last.
        let longest = phase.longest.filter(|longest| state == JobState::Done && longest.lasted > now.lasted);
        let Came { name, unit, done, total, rate, .. } = longest.unwrap_or(now);
        let left = (total > done && rate > 0.0).then(|| (total - done) as f64 / rate);
        let io = disk.stats().snapshot().since(&self.io_before);
        let bytes = |class: Class, operation: Operation| io.counts[class as usize][operation as usize].1;
        let by_class = |class: Class| ClassBytes {
            class: class.name().to_owned(),
            read: bytes(class, Operation::Read),
            written: bytes(class, Operation::Write),
        };
        let device = disk.calibration();
        JobReport {
            id: self.id,
            kind: self.order.kind,
            about: self.order.about.clone(),
            reason: self.order.reason.clone(),
            owner: self.order.owner,
            state,
            phase: name.to_owned(),
            unit,
            done,
            total,
            rate,
            seconds_left: left.filter(|_| state == JobState::Running),
            started_unix_us: self.started_unix_us,
            seconds: self.started.elapsed().as_secs_f64(),
            paced_seconds: self.held_back.lock().until(clock::now()).as_secs_f64(),
            bytes_read: load(&self.bytes_read),
            bytes_written: load(&self.bytes_written),
            device_read_rate: device.read_bytes_per_second,
            device_write_rate: device.write_bytes_per_second,
            by_class: Class::ALL.map(by_class).into(),
            note: phase.note.clone(),
        }
    }
}

#[derive(Debug)]
struct Registry {
    disk: Arc<dyn Disk>,
    running: Mutex<Vec<Arc<Inner>>>,
    /// Each with whether it was automatic, and is done.
    ended: Mutex<VecDeque<(JobReport, bool)>>,
}

/// The jobs of one database, or of nobody's. Clones are the same.
#[derive(Clone, Debug)]
pub struct Jobs {
    registry: Arc<Registry>,
    pacer: Arc<Pacer>,
}

impl Jobs {
    pub(crate) fn new(disk: &Arc<dyn Disk>, pacer: &Arc<Pacer>) -> Self {
        let registry =
            Registry { disk: Arc::clone(disk), running: Mutex::default(), ended: Mutex::default() };
        Jobs { registry: Arc::new(registry), pacer: Arc::clone(pacer) }
    }

    /// Whether long sweeps may begin by themselves now.
    pub(crate) fn are_long_sweeps_allowed(&self) -> bool {
        self.pacer.are_long_sweeps_allowed()
    }

    /// Begins a job: it is seen from now on, until it is dropped.
    pub fn begin(&self, order: JobOrder) -> Job {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let started = clock::now();
        let inner = Arc::new(Inner {
            id: NUMBERS.fetch_add(1, Ordering::Relaxed),
            order,
            started,
            started_unix_us: clock::unix_micros(),
            io_before: self.registry.disk.stats().snapshot(),
            cancelled: AtomicBool::new(false),
            broken_off: AtomicBool::new(false),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            held_back: Mutex::new(HeldBack::default()),
            phase: Mutex::new(Phase {
                name: "begins",
                unit: Unit::Bytes,
                began: started,
                before: 0,
                note: String::new(),
                longest: None,
            }),
        });
        self.registry.running.lock().push(Arc::clone(&inner));
        self.pacer.enter();
        Job { inner, jobs: self.clone(), ended: Mutex::new(None) }
    }

    /// The jobs under way, oldest first, and before them those that ended last.
    pub fn reports(&self) -> Vec<JobReport> {
        let (mut reports, running) = {
            // Both at one time: who ends moves from one to the other.
            let running = self.registry.running.lock();
            let ended = self.registry.ended.lock();
            (ended.iter().map(|(report, _)| report.clone()).collect::<Vec<_>>(), running.clone())
        };
        reports.extend(running.iter().map(|job| job.report(&*self.registry.disk, JobState::Running)));
        reports
    }

    /// Cancels the job of this number; false when none is running.
    pub fn cancel(&self, id: u64) -> bool {
        let running = self.registry.running.lock();
        let found = running.iter().find(|job| job.id == id);
        found.is_some_and(|job| {
            job.cancelled.store(true, Ordering::Relaxed);
            true
        })
    }
}

/// Work that is under way. It ends when it is dropped: as failed, unless [`Job::end`] was told better.
#[derive(Debug)]
pub struct Job {
    inner: Arc<Inner>,
    jobs: Jobs,
    ended: Mutex<Option<(JobState, String)>>,
}

impl Job {
    /// A handle for a thread that works on the job.
    pub(crate) fn worker(&self) -> Worker {
        Worker { inner: Arc::clone(&self.inner), pacer: Arc::clone(&self.jobs.pacer) }
    }

    /// Fails with [`Error::Cancelled`] once the job was cancelled, or broken off.
    pub fn check(&self) -> Result<()> {
        self.inner.check()
    }

    /// Tells whoever waits for something outside of the store whether the job was cancelled, or broken off.
    pub fn ending(&self) -> Ending {
        Ending(Arc::clone(&self.inner))
    }

    /// Ends the job as soon as possible.
    pub fn cancel(&self) {
        self.inner.cancelled.store(true, Ordering::Relaxed);
    }

    /// Ends the job's threads as [`Job::cancel`] does, where it has failed: it is `failed` then, with what [`Job::end`] is told.
    pub fn break_off(&self) {
        self.inner.broken_off.store(true, Ordering::Relaxed);
    }

    /// A new phase begins, of `total` units; 0 where that is not known.
    pub fn phase(&self, name: &'static str, unit: Unit, total: u64) {
        self.inner.begin_phase(name, unit, total, 0);
    }

    /// The total of the phase is known better now.
    pub fn set_total(&self, total: u64) {
        self.inner.total.store(total, Ordering::Relaxed);
    }

    /// A phase of which a part was done before anybody saw it.
    pub(crate) fn phase_under_way(&self, name: &'static str, unit: Unit, total: u64, done: u64) {
        self.inner.begin_phase(name, unit, total, done);
    }

    /// Of the phase so much is done.
    pub fn set_done(&self, done: u64) {
        self.inner.done.store(done, Ordering::Relaxed);
    }

    /// So much more of the phase is done.
    pub fn advance(&self, units: u64) {
        self.inner.done.fetch_add(units, Ordering::Relaxed);
    }

    /// Something for people, in place of what was noted before.
    pub fn note(&self, note: impl fmt::Display) {
        self.inner.phase.lock().note = note.to_string();
    }

    /// Leave to do a piece of work, as short as a request of the device: waits as long as others are to go first. Fails with
    /// [`Error::Cancelled`] once the job was cancelled.
    pub fn permit(&self) -> Result<Permit> {
        self.inner.permit(&self.jobs.pacer, Work::Device)
    }

    /// The same without waiting: `None` when others are to go first.
    pub fn try_permit(&self) -> Result<Option<Permit>> {
        self.worker().try_permit()
    }

    /// The same for a piece of work that asks nothing of the device: only the processors' other users go first.
    pub fn processor_permit(&self) -> Result<Permit> {
        self.inner.permit(&self.jobs.pacer, Work::Processor)
    }

    /// Whether the job goes as fast as it can ([`Pace::Full`]).
    pub fn is_at_full_pace(&self) -> bool {
        self.jobs.pacer.in_force(self.inner.order.pace) == Pace::Full
    }

    /// Bytes to be asked of the device by one request, at most.
    pub fn request_bytes(&self) -> u64 {
        self.jobs.pacer.request_bytes(self.inner.order.pace)
    }

    /// The job read so many bytes from a device.
    pub fn count_read(&self, bytes: u64) {
        self.inner.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The job wrote so many bytes to a device.
    pub fn count_written(&self, bytes: u64) {
        self.inner.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The job as it is now.
    pub fn report(&self) -> JobReport {
        let ended = self.ended.lock();
        let state = ended.as_ref().map_or(JobState::Running, |(state, _)| *state);
        let mut report = self.inner.report(&*self.jobs.registry.disk, state);
        if let Some((_, note)) = ended.as_ref().filter(|(_, note)| !note.is_empty()) {
            report.note.clone_from(note);
        }
        report
    }

    /// Says how the job has ended; gives back what it was told.
    pub fn end<T, E: fmt::Display>(&self, outcome: std::result::Result<T, E>) -> std::result::Result<T, E> {
        let cancelled = self.inner.cancelled.load(Ordering::Relaxed);
        *self.ended.lock() = Some(match &outcome {
            Ok(_) => (JobState::Done, String::new()),
            Err(error) if cancelled => (JobState::Cancelled, error.to_string()),
            Err(error) => (JobState::Failed, error.to_string()),
        });
        outcome
    }
}

/// Whether a job was cancelled, by whomever, or broken off. Clones are the same.
#[derive(Clone, Debug)]
pub struct Ending(Arc<Inner>);

impl Ending {
    /// Whether the job is to end.
    pub fn is_asked_for(&self) -> bool {
        self.0.is_to_end()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.ended.lock().get_or_insert_with(|| (JobState::Failed, "it broke off".to_owned()));
        let report = self.report();
        let mut running = self.jobs.registry.running.lock();
        running.retain(|job| job.id != report.id);
        let mut ended = self.jobs.registry.ended.lock();
        let routine = self.inner.order.automatic && report.state == JobState::Done;
        if routine {
            ended.retain(|(other, routine)| !(*routine && other.kind == report.kind));
        }
        ended.push_back((report, routine));
        while ended.len() > REMEMBERED {
            ended.pop_front();
        }
        drop((ended, running));
        self.jobs.pacer.leave();
    }
}

impl Inner {
    /// What the phase has come to, which is locked: it begins with the figures.
    fn came(&self, phase: &Phase) -> Came {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        let lasted = phase.began.elapsed();
        let rate = done.saturating_sub(phase.before) as f64 / lasted.as_secs_f64().max(1e-6);
        Came { name: phase.name, unit: phase.unit, done, total, rate, lasted }
    }

    /// `done`: what is done of it already.
    fn begin_phase(&self, name: &'static str, unit: Unit, total: u64, done: u64) {
        let mut phase = self.phase.lock();
        let came = self.came(&phase);
        if phase.longest.is_none_or(|longest| longest.lasted < came.lasted) {
            phase.longest = Some(came);
        }
        (phase.name, phase.unit, phase.began, phase.before) = (name, unit, clock::now(), done);
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    fn is_to_end(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.broken_off.load(Ordering::Relaxed)
    }

    fn check(&self) -> Result<()> {
        if self.is_to_end() { Err(Error::Cancelled) } else { Ok(()) }
    }

    fn permit(&self, pacer: &Arc<Pacer>, work: Work) -> Result<Permit> {
        self.check()?;
        let take = || pacer.take(self.order.pace, work, true, &|| self.is_to_end());
        // A reserve waits for being needed.
        let permit = if reserve::is_reserve() {
            take()
        } else {
            self.held_back.lock().begin(clock::now());
            let permit = take();
            self.held_back.lock().end(clock::now());
            permit
        };
        permit.ok_or(Error::Cancelled)
    }
}

/// A thread's hold on the job that it works on.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    inner: Arc<Inner>,
    pacer: Arc<Pacer>,
}

impl Worker {
    /// Fails with [`Error::Cancelled`] once the job was cancelled.
    pub(crate) fn check(&self) -> Result<()> {
        self.inner.check()
    }

    /// See [`Job::permit`]. Nobody may wait for a permit who has one.
    pub(crate) fn permit(&self) -> Result<Permit> {
        self.inner.permit(&self.pacer, Work::Device)
    }

    /// The same without waiting: `None` when others are to go first.
    pub(crate) fn try_permit(&self) -> Result<Option<Permit>> {
        self.inner.check()?;
        Ok(self.pacer.take(self.inner.order.pace, Work::Device, false, &|| false))
    }

    /// What a thread of [`Crew::AsksFirst`] calls between two pieces of work that need no permit, with nothing in hand that others wait for: it waits
    /// for a processor. Fails as [`Worker::check`].
    pub(crate) fn breathe(&self) -> Result<()> {
        if let reserve::Role::Asks(gate) = reserve::role() {
            gate.pass(!self.pacer.is_crowded(), &|| self.inner.is_to_end());
        }
        self.check()
    }

    /// Bytes to be asked of the device by one request, at most.
    pub(crate) fn request_bytes(&self) -> u64 {
        self.pacer.request_bytes(self.inner.order.pace)
    }

    /// Whether jobs rest after what they ask of the device.
    pub(crate) fn rests(&self) -> bool {
        self.pacer.rests(self.inner.order.pace)
    }

    /// See [`Job::phase`].
    pub(crate) fn phase(&self, name: &'static str, unit: Unit, total: u64) {
        self.inner.begin_phase(name, unit, total, 0);
    }

    /// Of the phase so much is done.
    pub(crate) fn set_done(&self, done: u64) {
        self.inner.done.store(done, Ordering::Relaxed);
    }

    /// So much more of the phase is done.
    pub(crate) fn advance(&self, units: u64) {
        self.inner.done.fetch_add(units, Ordering::Relaxed);
    }

    /// See [`Job::note`].
    pub(crate) fn note(&self, note: impl fmt::Display) {
        self.inner.phase.lock().note = note.to_string();
    }

    /// The job read so many bytes from a device.
    pub(crate) fn count_read(&self, bytes: u64) {
        self.inner.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The job wrote so many bytes to a device.
    pub(crate) fn count_written(&self, bytes: u64) {
        self.inner.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Whoever is told how a job goes, many times a second; an error ends it.
pub type Tell<'t> = &'t mut dyn FnMut(&JobReport) -> Result<()>;

/// The thread that waits for a job, or works on it, and whoever it tells of it. What it reads meanwhile is read for the job.
pub struct Watch<'w> {
    job: &'w Job,
    _background: Background,
    tell: Tell<'w>,
    /// When it was told last, and of which phase.
    told: Option<(Instant, &'static str)>,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("job", &self.job).finish_non_exhaustive()
    }
}

impl<'w> Watch<'w> {
    /// Tells of `job`.
    pub fn new(job: &'w Job, tell: Tell<'w>) -> Self {
        Watch { job, _background: Background::begin(), tell, told: None }
    }

    /// The job.
    pub fn job(&self) -> &'w Job {
        self.job
    }

    /// Called again and again: tells, where it is time, and fails when the job is to end.
    pub fn look(&mut self) -> Result<()> {
        let phase = self.job.inner.phase.lock().name;
        if self.told.is_none_or(|(told, of)| of != phase || told.elapsed() >= TELL_EVERY) {
            self.told = Some((clock::now(), phase));
            if let Err(error) = (self.tell)(&self.job.report()) {
                self.job.cancel();
                return Err(error);
            }
        }
        self.job.check()
    }
}
