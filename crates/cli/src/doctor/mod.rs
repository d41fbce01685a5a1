//! `gannet doctor`: what this machine gives a database, and what it withholds; what a running server says of itself, and what is to be seen
//! to.
//!
//! # Exit status
//! 0: nothing is to be seen to. 1: something is, or a server beside the file could not be asked. 2: something is, now. 3: it could not be looked, or
//! the command line is wrong. 130: stopped by Ctrl-C. (As monitoring plug-ins have it.)

mod machine;
mod running;

use crate::arguments::{Doctor, Format};
use crate::interrupt::Interrupted;
use crate::progress::Progress;
use crate::{interrupt, job, output, serve, sql};
use anyhow::{Context, Result, anyhow, bail};
use gannet_base::units::format_size;
use gannet_io::{
    Backend, Calibration, CalibrationPlan, Disk, ErrorKind, Memory, Mode, ModeRequest, OpenOptions, Pressure,
    RealDisk, calibrate, residency,
};
use gannet_server::frontend::Address;
use gannet_store::{Database, EngineOptions, SPACE_ADVICE, Severity, little_space};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

const WARNING: u8 = 1;
const CRITICAL: u8 = 2;
pub(crate) const NOT_LOOKED: u8 = 3;
/// How long a device is measured when nobody says.
const MEASURE: Duration = Duration::from_secs(3);
/// Bytes of the file by which it is measured when nobody says.
const SCRATCH_BYTES: u64 = 256 << 20;
/// Bytes of a database's files in the OS cache that are worth a remark.
const CACHED_MUCH: u64 = 16 << 20;

/// How much a remark weighs; the heaviest one decides the exit status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Weight {
    /// Worth knowing.
    Note,
    /// To be seen to.
    Warning,
    /// To be seen to now.
    Critical,
}

impl Weight {
    fn name(self) -> &'static str {
        match self {
            Weight::Note => "note",
            Weight::Warning => "warning",
            Weight::Critical => "critical",
        }
    }
}

/// What is remarked.
#[derive(Default)]
pub(crate) struct Remarks(Vec<(Weight, String)>);

impl Remarks {
    fn add(&mut self, weight: Weight, remark: impl Into<String>) {
        self.0.push((weight, remark.into()));
    }

    fn heaviest(&self) -> Weight {
        self.0.iter().map(|(weight, _)| *weight).max().unwrap_or(Weight::Note)
    }

    fn as_json(&self) -> Value {
        self.0.iter().map(|(weight, remark)| json!({ "weight": weight.name(), "remark": remark })).collect()
    }
}

/// Looks; what goes wrong has been told when it returns.
pub(crate) fn run(options: &Doctor) -> ExitCode {
    match look(options) {
        Ok(Weight::Note) => ExitCode::SUCCESS,
        Ok(Weight::Warning) => ExitCode::from(WARNING),
        Ok(Weight::Critical) => ExitCode::from(CRITICAL),
        Err(error) if error.is::<Interrupted>() => {
            crate::complain("interrupted");
            ExitCode::from(crate::INTERRUPTED)
        }
        Err(error) => {
            crate::complain(&output::printable(&format!("{error:#}")));
            ExitCode::from(NOT_LOOKED)
        }
    }
}

fn look(options: &Doctor) -> Result<Weight> {
    interrupt::listen()?;
    let mut remarks = Remarks::default();
    let mut report = json!({ "version": env!("CARGO_PKG_VERSION") });
    match options.path.to_str().filter(|text| Address::is_address(text)) {
        Some(text) => {
            refuse_what_is_for_this_machine(options)?;
            let variable = |name: &str| std::env::var(name).ok();
            let address = Address::parse(text, &variable, &serve::owner()).map_err(|error| anyhow!(error))?;
            let mut connection = job::connect(&address, "doctor")?;
            let machine = running::machine(&mut connection);
            report["server"] = running::look(&mut connection, machine, &mut remarks)?;
        }
        None => look_here(options, &mut report, &mut remarks)?,
    }
    report["remarks"] = remarks.as_json();
    report["status"] = json!(match remarks.heaviest() {
        Weight::Note => "fine",
        weight => weight.name(),
    });
    let format = if options.json { Format::Json } else { Format::Table };
    let said = output::said(output::report(&mut io::stdout().lock(), format, &report), "");
    crate::unless_broken_pipe(said)?;
    Ok(remarks.heaviest())
}

/// What a server elsewhere is not asked for.
fn refuse_what_is_for_this_machine(options: &Doctor) -> Result<()> {
    let given = [
        ("--time", options.time.is_some(), "measures the device of this machine, and not the server's"),
        (
            "--scratch",
            options.scratch.is_some(),
            "is of the file by which the device of this machine is measured",
        ),
        (
            "--io",
            options.is_io_given,
            "is how this process opens files; the server says itself how it has opened its own",
        ),
    ];
    match given.iter().find(|(_, is_given, _)| *is_given) {
        Some((option, _, why)) => bail!("{option} {why}: leave it out with an address"),
        None => Ok(()),
    }
}

/// This machine, and a database of it.
fn look_here(options: &Doctor, report: &mut Value, remarks: &mut Remarks) -> Result<()> {
    let place = Place::find(&options.path)?;
    // A server has its socket beside the name that it was given.
    let server = place.database.as_ref().and_then(|_| sql::server_address(&options.path, &serve::owner()));
    let disk = Arc::new(RealDisk::default());
    let (mut connection, mut refused) = (None, None);
    if let Some(address) = server {
        match job::connect(&address, "doctor") {
            Ok(connected) => connection = Some(connected),
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) if sql::has_server(&address) => refused = Some(error),
            // A server that ended at once has left its socket.
            Err(error) => remarks.add(Weight::Note, format!("no server answers beside the file: {error:#}")),
        }
    } else if let Some(database) = &place.database {
        // That of another user cannot be looked into.
        refused = [&options.path, database].into_iter().find_map(|path| closed_folder(path));
    }
    if let Some(error) = &refused {
        let remark = format!("a server has the file, and could not be asked how it is: {error:#}");
        remarks.add(Weight::Warning, remark);
    }
    let is_served = connection.is_some() || refused.is_some();
    // Before a measurement keeps the device busy.
    let pressed = Pressure::of_this_machine();
    let its_machine = connection.as_mut().and_then(running::machine);
    report["folder"] = json!(text(&place.folder));
    let (mut may_write, mut is_full) = (true, false);
    report["io"] = match probe_mode(&disk, &Scratch::new(&place.folder).0, options.io, remarks) {
        Err(error) if is_closed(&error) => {
            (may_write, is_full) = (false, weight_of(&error) == Weight::Warning);
            let remark = format!("the device is not measured, as nothing can be written here: {error:#}");
            remarks.add(weight_of(&error), remark);
            // What is there already says how it can be opened.
            let database = place.database.as_deref();
            match database.map_or(Ok(Value::Null), |path| probe_mode(&disk, path, options.io, remarks)) {
                Err(error) if is_closed(&error) => Value::Null,
                found => found?,
            }
        }
        other => other?,
    };
    let time = options.time.unwrap_or(if is_served { Duration::ZERO } else { MEASURE });
    if options.time.is_none() && is_served {
        let remark =
            "the device is not measured, as a server works on it: --time says for how long it may be";
        remarks.add(Weight::Note, remark);
    }
    if may_write && !time.is_zero() {
        match measure(&disk, &place.folder, time, options.scratch.unwrap_or(SCRATCH_BYTES), remarks) {
            Err(error) if is_closed(&error) => {
                remarks.add(weight_of(&error), format!("the device is not measured: {error:#}"));
            }
            measured => report["device"] = measured?,
        }
    }
    // The queue that the device was measured by, where it was, is one of them.
    if let Some(queues) = disk.queue_backend() {
        report["queue"] = json!({ "effective": queues.effective.name(), "reason": queues.reason });
        if queues.effective == Backend::Threads {
            remarks
                .add(Weight::Note, "without io_uring deep queues cost a thread for each request in flight");
        }
    }
    let memory = Memory::of_this_machine();
    report["memory"] = memory_report(&memory);
    report["pressure"] = pressure_report(&pressed);
    let free = disk.free_bytes(&place.folder).ok().flatten();
    report["free_bytes"] = json!(free);
    let mut paths = Vec::new();
    if let Some(database) = &place.database {
        let shared: Arc<dyn Disk> = Arc::clone(&disk) as _;
        let mut looked = Database::look(&shared, database, options.io);
        if looked.is_ok() && !is_served {
            looked = match Database::look_for_log(&shared, database, options.io) {
                // It may not be ours to open, or be somebody else's who has the file open and lets go of segments.
                Err(gannet_store::Error::Io(error)) => {
                    let remark = format!("whether its log is there could not be looked at: {error}");
                    remarks.add(Weight::Note, remark);
                    Ok(())
                }
                looked => looked,
            };
        }
        match looked {
            Err(
                error @ (gannet_store::Error::Format(_)
                | gannet_store::Error::Damaged(_)
                | gannet_store::Error::Invalid(_)),
            ) => {
                remarks.add(Weight::Critical, error.to_string());
            }
            Err(gannet_store::Error::Io(error)) if error.kind() == ErrorKind::PermissionDenied => {
                let remark =
                    format!("{database:?} could not be looked at, as another user's may not be: {error}");
                remarks.add(Weight::Warning, remark);
            }
            looked => looked.with_context(|| format!("cannot look at {database:?}"))?,
        }
        let (files, unlisted) = files_of(database);
        paths = files;
        if let Some(error) = unlisted {
            // That of a server which could not be asked is said above.
            let weight = if refused.is_some() { Weight::Note } else { Weight::Warning };
            remarks.add(weight, format!("the files of its log could not be looked at: {error:#}"));
        }
        report["database"] = cached_of(&paths);
        note_cached(&report["database"], remarks);
    }
    // One of an earlier release does not say what it sees of its machine.
    if its_machine.is_none() {
        machine::note_machine(&memory, &pressed, remarks);
    }
    if let Some(connection) = &mut connection {
        report["server"] = running::look(connection, its_machine, remarks)?;
    }
    machine::note_budget(&memory, EngineOptions::default().memory, is_served, remarks);
    if report["server"].is_object() {
        return Ok(());
    }
    // What a server says itself otherwise.
    let all_buffered = report["io"]["effective"] == Mode::Buffered.name();
    if let Some(files) = report.pointer_mut("/database/files").and_then(Value::as_array_mut) {
        note_modes(&disk, &paths, files, options.io);
        if !all_buffered {
            note_buffered(files, remarks);
        }
    }
    if may_write || is_full {
        note_free(free, &report["database"], remarks);
    }
    Ok(())
}

/// Why the folder of a server's socket beside a database cannot be looked into, where it is there.
fn closed_folder(database: &Path) -> Option<anyhow::Error> {
    let folder = gannet_server::socket_folder(database);
    let error = std::fs::read_dir(&folder).err()?;
    let is_closed = error.kind() == io::ErrorKind::PermissionDenied;
    is_closed.then(|| anyhow!("{}: {error}", folder.display()))
}

/// How each file of a database can be opened: they need not all lie on one file system.
fn note_modes(disk: &RealDisk, paths: &[PathBuf], files: &mut [Value], requested: ModeRequest) {
    for (path, file) in paths.iter().zip(files) {
        let (mode, reason) = match disk.open(path, &OpenOptions::read().mode(requested)) {
            Ok(opened) => (Some(opened.mode().effective.name()), opened.mode().reason.clone()),
            Err(error) => (None, error.to_string()),
        };
        (file["mode"], file["reason"]) = (json!(mode), json!(reason));
    }
}

/// Files that are read through the OS cache, where that was not said of all of them.
fn note_buffered(files: &[Value], remarks: &mut Remarks) {
    let mut buffered = files.iter().filter(|file| file["mode"] == Mode::Buffered.name());
    let Some(first) = buffered.next() else { return };
    // A server tells superusers only where its files are.
    let path = first["path"].as_str().unwrap_or("a file of the database");
    let reason = first["reason"].as_str().unwrap_or_default();
    let others = match buffered.count() {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    };
    remarks.add(Weight::Warning, format!("{path}{others} is read through the OS cache: {reason}"));
}

/// Little room for a database, as a server would say so by its alarm; of a folder it is not known how large a database in it is to be.
fn note_free(free: Option<u64>, database: &Value, remarks: &mut Remarks) {
    let file = database["files"][0]["len_bytes"].as_u64().unwrap_or_default();
    let Some(free) = free else { return };
    let Some((severity, threshold)) = little_space(free, file) else { return };
    let weight = match severity {
        Severity::Warning => Weight::Warning,
        Severity::Critical => Weight::Critical,
    };
    let (free, threshold) = (format_size(free), format_size(threshold));
    remarks.add(weight, format!("space: {free} are free, less than {threshold}; {SPACE_ADVICE}"));
}

/// Files of ours that the OS caches are there twice.
fn note_cached(database: &Value, remarks: &mut Remarks) {
    let bytes = |file: &Value, name: &str| file[name].as_u64().unwrap_or_default();
    let files = database["files"].as_array().map_or(&[][..], Vec::as_slice);
    let all: u64 = files.iter().map(|file| bytes(file, "len_bytes")).sum();
    let cached = database["cached_bytes"].as_u64().unwrap_or_default();
    if cached >= (all / 100).max(CACHED_MUCH) {
        let remark = format!(
            "the OS caches {} of the database's files: somebody else reads them, as a copy of them does",
            format_size(cached)
        );
        remarks.add(Weight::Warning, remark);
    }
}

fn memory_report(memory: &Memory) -> Value {
    // A server tells of the tightest group only, around which there may be a lower limit.
    let all_is_known = memory.cgroup_least.is_some() || memory.cgroup_limit.is_none();
    json!({
        "total_bytes": memory.total,
        "available_bytes": memory.available,
        "swap_total_bytes": memory.swap_total,
        "swap_free_bytes": memory.swap_free,
        "cgroup_limit_bytes": memory.cgroup_limit,
        "cgroup_used_bytes": memory.cgroup_used,
        "cgroup_cached_bytes": memory.cgroup_cached,
        "cgroup_swap_limit_bytes": memory.cgroup_swap_limit,
        "limit_bytes": memory.limit().filter(|_| all_is_known),
    })
}

fn pressure_report(pressure: &Pressure) -> Value {
    let stalled = |stalls: Option<(f64, f64)>| match stalls {
        Some((some, full)) => json!({ "some_percent": some, "full_percent": full }),
        None => Value::Null,
    };
    json!({
        "memory": stalled(pressure.memory),
        "io": stalled(pressure.io),
        "swappiness": pressure.swappiness,
    })
}

/// Where to look.
struct Place {
    folder: PathBuf,
    database: Option<PathBuf>,
}

impl Place {
    /// A symbolic link stands for the file it leads to: there is its log, and there is its device.
    fn find(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).with_context(|| format!("cannot look at {path:?}"))?;
        if metadata.is_dir() {
            return Ok(Place { folder: path.to_owned(), database: None });
        }
        if !metadata.is_file() {
            bail!("{path:?} is neither a folder nor a file");
        }
        let path = RealDisk::default().resolve(path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Place { folder: folder.to_owned(), database: Some(path) })
    }
}

/// A file of our own that goes when this value does.
struct Scratch(PathBuf);

impl Scratch {
    fn new(folder: &Path) -> Self {
        let random = gannet_base::random::next_u64();
        Scratch(folder.join(format!(".gannet-doctor-{}-{random:016x}.tmp", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Usually it is gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether the place, not the device, is why nothing can be written: that is worth a remark, and the rest a report.
fn is_closed(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<gannet_io::Error>().map(gannet_io::Error::kind);
    matches!(kind, Some(ErrorKind::NoSpace | ErrorKind::ReadOnly | ErrorKind::PermissionDenied))
}

/// How much it weighs that nothing can be written.
fn weight_of(error: &anyhow::Error) -> Weight {
    let kind = error.downcast_ref::<gannet_io::Error>().map(gannet_io::Error::kind);
    // A place may be closed by intention; nobody wants a full one.
    if matches!(kind, Some(ErrorKind::NoSpace)) { Weight::Warning } else { Weight::Note }
}

/// How a file is opened: one that is there, or a new one, which the caller removes.
fn probe_mode(disk: &RealDisk, path: &Path, requested: ModeRequest, remarks: &mut Remarks) -> Result<Value> {
    let options = if path.exists() { OpenOptions::read() } else { OpenOptions::create_new() };
    let file = disk.open(path, &options.mode(requested))?;
    let mode = file.mode();
    if let ModeRequest::Only(wanted) = requested
        && wanted != mode.effective
    {
        let remark = format!("{} I/O was asked for and is not possible here", wanted.name());
        remarks.add(Weight::Warning, remark);
    }
    if mode.effective == Mode::Buffered {
        let remark = "buffered I/O: what the database reads is cached a second time by the OS";
        remarks.add(Weight::Warning, remark);
    }
    Ok(json!({
        "requested": requested.name(),
        "effective": mode.effective.name(),
        "reason": mode.reason,
        "alignment_bytes": file.alignment(),
        "atomic_write_bytes": file.atomic_writes().max,
    }))
}

fn measure(
    disk: &Arc<RealDisk>,
    folder: &Path,
    time: Duration,
    scratch_bytes: u64,
    remarks: &mut Remarks,
) -> Result<Value> {
    let plan = CalibrationPlan { time_limit: time, file_bytes: scratch_bytes, ..CalibrationPlan::default() };
    let scratch = Scratch::new(folder);
    let calibration = measure_showing_progress(Arc::clone(disk), &scratch, plan)?;
    if report_mode_is_cached(disk, folder)? {
        let remark = "the device was measured through the OS cache: its figures are too good";
        remarks.add(Weight::Warning, remark);
    }
    if let Some(latency) = calibration.sync_write_latency {
        machine::note_durable_write(latency, remarks);
    }
    let micros = |time: Option<Duration>| time.map(|time| (time.as_nanos() as f64 / 100.0).round() / 10.0);
    Ok(json!({
        "read_latency_us": micros(calibration.read_latency),
        "useful_depth": calibration.depth,
        "sync_write_latency_us": micros(calibration.sync_write_latency),
        "request_bytes": plan.request_bytes,
        "read_megabytes_per_second": calibration.read_bytes_per_second.map(|rate| rate / 1_000_000),
        "write_megabytes_per_second": calibration.write_bytes_per_second.map(|rate| rate / 1_000_000),
    }))
}

/// Whether files here are read through the OS cache when nobody asks for anything else.
fn report_mode_is_cached(disk: &RealDisk, folder: &Path) -> Result<bool> {
    let scratch = Scratch::new(folder);
    let file = disk.open(&scratch.0, &OpenOptions::create_new())?;
    Ok(file.mode().effective != Mode::Direct)
}

fn measure_showing_progress(
    disk: Arc<RealDisk>,
    scratch: &Scratch,
    plan: CalibrationPlan,
) -> Result<Calibration> {
    let path = scratch.0.clone();
    let (sender, receiver) = mpsc::channel();
    // Not joined: when the user has had enough, the process ends while a measurement runs, and `scratch` tidies up.
    std::thread::spawn(move || sender.send(calibrate(&*disk, &path, &plan)));
    let mut progress = Progress::new("measuring the device");
    loop {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(calibration) => return Ok(calibration?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("the measurement broke off")),
        }
        interrupt::check()?;
        let share = progress.elapsed().as_secs_f64() / plan.time_limit.as_secs_f64();
        progress.say(Some(share), String::new);
    }
}

/// The files of a database, its data file first. Where it is called by a symbolic link, its log is beside what that leads to.
///
/// Where the folder of its log cannot be listed, as that of another user, it says so in place of the files there.
fn files_of(database: &Path) -> (Vec<PathBuf>, Option<anyhow::Error>) {
    // One that cannot be followed cannot be looked at either.
    let database = RealDisk::default().resolve(database).unwrap_or_else(|_| database.to_owned());
    let mut folder = database.as_os_str().to_owned();
    folder.push("-wal");
    let folder = PathBuf::from(folder);
    let mut paths = vec![database];
    let listed = std::fs::read_dir(&folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    match listed {
        Ok(files) => paths.extend(files),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            return (paths, Some(anyhow::Error::new(error).context(format!("cannot list {folder:?}"))));
        }
    }
    paths[1..].sort();
    (paths, None)
}

/// The files of a database and what the OS caches of them; of how much of all, nobody can say where they cannot be listed.
pub(crate) fn cached(database: &Path) -> Value {
    let (paths, unlisted) = files_of(database);
    let mut cached = cached_of(&paths);
    if unlisted.is_some() {
        cached["cached_bytes"] = Value::Null;
    }
    cached
}

fn cached_of(paths: &[PathBuf]) -> Value {
    let found = residency(paths);
    let file = |(path, cached): &(PathBuf, Option<gannet_io::Cached>)| {
        json!({
            "path": text(path),
            "len_bytes": cached.map(|c| c.len_bytes),
            "cached_bytes": cached.map(|c| c.cached_bytes),
        })
    };
    let files: Vec<Value> = found.files.iter().map(file).collect();
    json!({ "cached_bytes": found.cached_bytes(), "files": files })
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
