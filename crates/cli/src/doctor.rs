//! `gannet doctor`: what this machine gives a database, and what it withholds.

use crate::arguments::{Doctor, Format, request_name};
use crate::progress::Progress;
use crate::{interrupt, output};
use anyhow::{Context, Result, anyhow, bail};
use gannet_base::units::format_size;
use gannet_io::{
    Backend, Calibration, CalibrationPlan, Disk, ErrorKind, Memory, Mode, ModeRequest, OpenOptions, RealDisk,
    calibrate, residency,
};
use gannet_store::EngineOptions;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

pub(crate) fn run(options: &Doctor) -> Result<()> {
    let place = Place::find(&options.path)?;
    interrupt::listen()?;
    let disk = Arc::new(RealDisk::default());
    let mut remarks = Vec::new();
    let mut report = json!({ "version": env!("CARGO_PKG_VERSION"), "folder": text(&place.folder) });
    let mut may_write = true;
    report["io"] = match probe_mode(&disk, &Scratch::new(&place.folder).0, options.io, &mut remarks) {
        Err(error) if is_closed(&error) => {
            may_write = false;
            remarks.push(format!("the device is not measured, as nothing can be written here: {error:#}"));
            // What is there already says how it can be opened.
            let database = place.database.as_deref();
            database.map_or(Ok(Value::Null), |path| probe_mode(&disk, path, options.io, &mut remarks))?
        }
        other => other?,
    };
    let backend = disk.queue_backend();
    report["queue"] = json!({ "effective": backend_name(backend.effective), "reason": backend.reason });
    if backend.effective == Backend::Threads {
        remarks.push("without io_uring deep queues cost a thread for each request in flight".to_owned());
    }
    if may_write && !options.time.is_zero() {
        match measure(&disk, &place.folder, options, &mut remarks) {
            Err(error) if is_closed(&error) => remarks.push(format!("the device is not measured: {error:#}")),
            measured => report["device"] = measured?,
        }
    }
    let memory = Memory::of_this_machine();
    let default_budget = EngineOptions::default().memory;
    if let Some(limit) = memory.limit().filter(|limit| *limit < 2 * default_budget) {
        remarks.push(format!(
            "the default budget of {} is more than half of the {} there are: give --memory",
            format_size(default_budget),
            format_size(limit)
        ));
    }
    report["memory"] = memory_report(&memory);
    if let Some(database) = &place.database {
        report["database"] = cached(database)?;
    }
    report["remarks"] = json!(remarks);
    let format = if options.json { Format::Json } else { Format::Table };
    output::report(&mut io::stdout().lock(), format, &report)
}

fn memory_report(memory: &Memory) -> Value {
    json!({
        "total_bytes": memory.total,
        "available_bytes": memory.available,
        "swap_total_bytes": memory.swap_total,
        "swap_free_bytes": memory.swap_free,
        "cgroup_limit_bytes": memory.cgroup_limit,
        "cgroup_used_bytes": memory.cgroup_used,
        "cgroup_swap_limit_bytes": memory.cgroup_swap_limit,
        "limit_bytes": memory.limit(),
    })
}

fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::Auto => "auto",
        Backend::Uring => "io_uring",
        Backend::Threads => "threads",
    }
}

/// Where to look.
struct Place {
    folder: PathBuf,
    database: Option<PathBuf>,
}

impl Place {
    fn find(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).with_context(|| format!("cannot look at {path:?}"))?;
        if metadata.is_dir() {
            return Ok(Place { folder: path.to_owned(), database: None });
        }
        if !metadata.is_file() {
            bail!("{path:?} is neither a folder nor a file");
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Place { folder: folder.to_owned(), database: Some(path.to_owned()) })
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

/// How a file is opened: one that is there, or a new one, which the caller removes.
fn probe_mode(
    disk: &RealDisk,
    path: &Path,
    requested: ModeRequest,
    remarks: &mut Vec<String>,
) -> Result<Value> {
    let options = if path.exists() { OpenOptions::read() } else { OpenOptions::create_new() };
    let file = disk.open(path, &options.mode(requested))?;
    let mode = file.mode();
    if let ModeRequest::Only(wanted) = requested
        && wanted != mode.effective
    {
        remarks.push(format!("{} I/O was asked for and is not possible here", wanted.name()));
    }
    if mode.effective == Mode::Buffered {
        remarks.push("buffered I/O: what the database reads is cached a second time by the OS".to_owned());
    }
    Ok(json!({
        "requested": request_name(requested),
        "effective": mode.effective.name(),
        "reason": mode.reason,
        "alignment_bytes": file.alignment(),
        "atomic_write_bytes": file.atomic_write_max(),
    }))
}

fn measure(
    disk: &Arc<RealDisk>,
    folder: &Path,
    options: &Doctor,
    remarks: &mut Vec<String>,
) -> Result<Value> {
    let plan = CalibrationPlan {
        time_limit: options.time,
        file_bytes: options.scratch,
        ..CalibrationPlan::default()
    };
    let scratch = Scratch::new(folder);
    let calibration = measure_showing_progress(Arc::clone(disk), &scratch, plan)?;
    if report_mode_is_cached(disk, folder)? {
        remarks.push("the device was measured through the OS cache: its figures are too good".to_owned());
    }
    let micros = |time: Option<Duration>| time.map(|time| (time.as_nanos() as f64 / 100.0).round() / 10.0);
    Ok(json!({
        "read_latency_us": micros(calibration.read_latency),
        "useful_depth": calibration.depth,
        "sync_write_latency_us": micros(calibration.sync_write_latency),
        "request_bytes": plan.request_bytes,
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

/// The files of a database and what the OS caches of them.
pub(crate) fn cached(database: &Path) -> Result<Value> {
    let mut paths = vec![database.to_owned()];
    let mut folder = database.as_os_str().to_owned();
    folder.push("-wal");
    let folder = PathBuf::from(folder);
    if folder.is_dir() {
        let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot list {folder:?}"))?;
        for entry in entries {
            paths.push(entry.with_context(|| format!("cannot list {folder:?}"))?.path());
        }
        paths[1..].sort();
    }
    let found = residency(&paths);
    let file = |(path, cached): &(PathBuf, Option<gannet_io::Cached>)| {
        json!({
            "path": text(path),
            "len_bytes": cached.map(|c| c.len_bytes),
            "cached_bytes": cached.map(|c| c.cached_bytes),
        })
    };
    let files: Vec<Value> = found.files.iter().map(file).collect();
    Ok(json!({ "cached_bytes": found.cached_bytes(), "files": files }))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
