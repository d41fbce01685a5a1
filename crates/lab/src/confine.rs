//! Programs that are measured: each in a process of its own, with a limit on its memory where the system lets us, and looked at while it runs.
//!
//! The limit is a memory cgroup, page cache included (v1, or v2 where its parent hands memory down). Where there can be none the program runs without,
//! and what it says of its group is null: a report says so.
//!
//! Whoever is ended is asked to first (SIGTERM), so that he can end whom he has started, and put right what he has changed.
//!
//! Nobody outlives who has started him by much, however that has ended (`kill -9`). A step of our own looks whether its lab is still there, and comes to its end where it
//! is not ([`end_with_lab`]); of all other programs the system takes care, where there is `setpriv` (util-linux): see `tied`.
//!
//! What a step makes is whole or it is not there: it is removed before the step begins, and when it has not come to a good end. Beside it there is a mark meanwhile, so
//! that what a lab has left that was killed counts as none ([`is_made`]).

use crate::document::typed;
use crate::folders;
use crate::lock::Lock;
use crate::record::Ended;
use crate::servers::SHUTDOWN;
use crate::throttle;
use anyhow::{Context, Result, bail};
use gannet_base::units::format_size;
use gannet_io::residency;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant, SystemTime};

/// How often a program is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often it is looked whether somebody has ended who was asked to.
const LOOK_CLOSELY: Duration = Duration::from_millis(2);
/// How often what was seen is kept.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// How long a step may take to end when its lab has ended.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take when its lab asks it to: a server that it is just ending in good order is to be gone, too, before somebody goes on with the run.
const STEP_PATIENCE: Duration = SHUTDOWN.saturating_add(PATIENCE);
/// Where memory cgroups are: the file of their limit, and whether it is version 1.
const GROUPS: [(&str, &str, bool); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes", true), ("/sys/fs/cgroup", "memory.max", false)];
/// What the names of ours begin with; the number of the process that has made it follows, and a number.
const GROUP: &str = "gannet-lab-";
/// How often a step looks whether its lab is still there.
const LOOK_FOR_LAB: Duration = Duration::from_millis(100);
/// The variable that tells a step the number of its lab's process.
const STEP_OF: &str = "LAB_STEP_OF";
/// What [`Step::command`] begins with where it is this very program.
pub const OURSELVES: &str = "gannet-lab";

/// Something to be measured.
#[derive(Clone, Default, Debug)]
pub struct Step {
    /// Unique within the run.
    pub id: String,
    /// For people.
    pub what: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Bytes of memory it may have, page cache included.
    pub limit: Option<u64>,
    /// Of what files nothing is to be in the page cache when it begins; each is read once before, so that what has a cache beneath the device, as a
    /// virtual machine's host does, has seen it, whoever's it is.
    pub cold: Vec<PathBuf>,
    /// How long it takes, about.
    pub estimate: Duration,
    /// What it makes, which is to be there for later ones: where it is not, the step is done again.
    pub makes: Option<PathBuf>,
    /// A folder that it works in and nobody needs behind it: it is removed before it begins, and where it has not come to a good end.
    pub works_in: Option<PathBuf>,
    /// Whether it limits the device.
    pub limits_device: bool,
    /// Which rival it is about: where it fails it is left out, and so is what needs what it makes. Without what is about ourselves, or for all, there is no run.
    pub rival: Option<&'static str>,
}

impl Step {
    /// Whether it works on what somebody else makes at this place.
    pub fn uses(&self, place: &Path) -> bool {
        let words = self.command.iter().map(Path::new).chain(self.cold.iter().map(PathBuf::as_path));
        self.makes.as_deref() != Some(place) && words.into_iter().any(|word| word.starts_with(place))
    }

    /// What is kept of it where it is left out.
    pub fn left_out(&self, why: String) -> Ended {
        Ended {
            id: self.id.clone(),
            command: self.command.clone(),
            began_unix: now(),
            seconds: 0.0,
            output: Vec::new(),
            group: Value::Null,
            skipped: Some(why),
            under: None,
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A memory cgroup, as long as this lives.
#[derive(Debug)]
pub struct Group {
    folder: PathBuf,
    is_v1: bool,
}

impl Group {
    /// With a limit of so many bytes, page cache included; `None` where the system does not let us.
    pub fn new(limit: u64) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| GROUPS.iter().for_each(|(base, ..)| sweep(Path::new(base))));
        let name = format!("{GROUP}{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        for (base, file, is_v1) in GROUPS {
            let folder = Path::new(base).join(&name);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let group = Group { folder, is_v1 };
            if fs::write(group.folder.join(file), limit.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// Has this process in it, with all its threads, until what this gives is dropped.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn enter(&self) -> Result<Inside> {
        let told = fs::read_to_string("/proc/self/cgroup")?;
        let base = self.folder.parent().context("a group is in a folder")?;
        let own = told.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_ours = if self.is_v1 {
                controllers.split(',').any(|one| one == "memory")
            } else {
                controllers.is_empty()
            };
            is_ours.then(|| base.join(path.trim_start_matches('/')))
        });
        let back = own.filter(|folder| folder.is_dir()).unwrap_or_else(|| base.to_owned());
        move_to(&self.folder).with_context(|| format!("cannot enter {:?}", self.folder))?;
        Ok(Inside { back })
    }

    /// Lets it have what there is, as nothing is measured any more.
    pub fn lift(&self) {
        let (file, none) = if self.is_v1 { ("memory.limit_in_bytes", "-1") } else { ("memory.max", "max") };
        // Where it cannot be lifted, everything takes longer.
        let _ = fs::write(self.folder.join(file), none);
    }

    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }

    fn stat(&self, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// Bytes of files that are cached on its account. Memory that processes share is counted there by the system, but is none.
    pub fn cached(&self) -> Option<u64> {
        let (cached, shared) = if self.is_v1 { ("total_cache", "total_shmem") } else { ("file", "shmem") };
        Some(self.stat(cached)?.saturating_sub(self.stat(shared).unwrap_or(0)))
    }

    /// Bytes in memory on its account that are no file's.
    pub fn resident(&self) -> Option<u64> {
        self.stat(if self.is_v1 { "total_rss" } else { "anon" })
    }

    /// Processes that the system has ended as there was no memory for them.
    pub fn killed(&self) -> Option<u64> {
        let told = fs::read_to_string(self.folder.join(match self.is_v1 {
            true => "memory.oom_control",
            false => "memory.events",
        }));
        told.ok()?.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
    }

    /// Its limit, and what was reached.
    pub fn report(&self) -> Value {
        let (limit, peak) = match self.is_v1 {
            true => ("memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            false => ("memory.max", "memory.peak"),
        };
        json!({
            "limit_bytes": self.number(limit),
            "peak_bytes": self.number(peak),
            "major_faults": self.stat(if self.is_v1 { "total_pgmajfault" } else { "pgmajfault" }),
            "out_of_memory": self.killed(),
        })
    }
}

/// Removes the groups that processes have left which are gone (`kill -9`). One that has somebody in it still is not removed by the system.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker =
            name.to_str().and_then(|name| name.strip_prefix(GROUP)?.split_once('-')?.0.parse::<u32>().ok());
        if maker.is_some_and(|maker| !Path::new(&format!("/proc/{maker}")).exists()) {
            // Where it stays, nothing is worse than it was.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// This process in a group.
#[derive(Debug)]
pub struct Inside {
    back: PathBuf,
}

impl Drop for Inside {
    fn drop(&mut self) {
        // Where it cannot go back it has the limit for the little time that is left to it.
        let _ = move_to(&self.back);
    }
}

fn move_to(group: &Path) -> std::io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever was in it may take a moment to be gone.
        for _ in 0..50 {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => std::thread::sleep(LOOK_EVERY),
                _ => return,
            }
        }
    }
}

/// A command that runs a program in a group. A shell enters it and becomes the program: so nothing of that is charged to anybody else.
pub fn within(group: Option<&Group>, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg("[ -z \"$1\" ] || echo $$ >\"$1/cgroup.procs\" || exit 125; shift; exec \"$@\"")
        .arg("sh")
        .arg(group.map_or(Path::new(""), |group| &group.folder))
        .arg(program);
    command
}

/// A command that runs a program in a group, and is asked to end by this signal when we do, however that happens. Without `setpriv` it is not asked.
pub(crate) fn tied(group: Option<&Group>, program: &Path, signal: &str) -> Command {
    tied_as(None, group, program, signal)
}

/// The same, as somebody else.
pub(crate) fn tied_as(account: Option<&str>, group: Option<&Group>, program: &Path, signal: &str) -> Command {
    let Some(setpriv) = installed("setpriv") else { return within(group, program) };
    let mut command = within(group, setpriv);
    if let Some(account) = account {
        command.args(["--reuid", account, "--regid", account, "--init-groups"]);
        command.current_dir("/");
    }
    command.args(["--pdeathsig", signal, "--"]);
    // We may have ended before the system was told: it would never ask.
    command.args(["/bin/sh", "-c", "[ \"$PPID\" = \"$1\" ] || exit 125; shift; exec \"$@\"", "sh"]);
    command.arg(std::process::id().to_string()).arg(program);
    command
}

/// Sets `stop` once the lab has ended whose step this process is, if it is one, and ends the process where it does not end by itself then.
///
/// The system could send a signal instead, but sends it again for each thread of the lab that ends after the one that has started the step, and a second one means haste.
pub fn end_with_lab(stop: &Arc<AtomicBool>) {
    let lab = std::env::var(STEP_OF).ok().and_then(|pid| pid.parse().ok());
    // Whoever a step starts has the variable, too, but another parent.
    let Some(lab) = lab.filter(|&lab: &u32| lab == parent_id()) else { return };
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        while parent_id() == lab {
            std::thread::sleep(LOOK_FOR_LAB);
        }
        stop.store(true, Ordering::Relaxed);
        std::thread::sleep(PATIENCE);
        // Nothing is dropped then.
        throttle::lift_own();
        std::process::exit(130);
    });
}

/// Asks a process to end by this signal, and kills it where it has not done so in time.
///
/// # Errors
/// The system's, if it cannot be waited for.
pub fn end(child: &mut Child, signal: Signal, patience: Duration) -> Result<ExitStatus> {
    let asked = Instant::now();
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
    while asked.elapsed() < patience {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(LOOK_CLOSELY);
    }
    child.kill()?;
    Ok(child.wait()?)
}

/// What a process has, by a line of its status, in bytes.
pub fn status(pid: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Whether there is any swap.
pub fn has_swap() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

/// Where a program is, if it is installed.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// These files, and those in these folders, however deep.
fn files_of(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let inside: Vec<PathBuf> =
                fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
            files.extend(files_of(&inside)?);
        } else if path.is_file() {
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// Drops what is cached of these files, and of those in these folders.
///
/// # Errors
/// A file cannot be opened or synced; or some of it stays, which others may be using.
pub fn chill(paths: &[PathBuf]) -> Result<()> {
    let files = files_of(paths)?;
    for path in &files {
        let file = fs::File::open(path).with_context(|| format!("cannot open {path:?}"))?;
        // What has not been written home stays.
        file.sync_all().with_context(|| format!("cannot sync {path:?}"))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .with_context(|| format!("cannot drop what is cached of {path:?}"))?;
    }
    // Where the system does not tell, nobody knows.
    match residency(&files).cached_bytes() {
        Some(left) if left > LEFT_AT_MOST => bail!(
            "{} of {paths:?} stay in the page cache, though they were to be read from the device: does another program use them?",
            format_size(left)
        ),
        _ => Ok(()),
    }
}

/// Bytes of files that may stay in the page cache where they were to leave it: pages that somebody looks at at this moment.
const LEFT_AT_MOST: u64 = 4 << 20;

/// Reads these files, and those in these folders, from their beginning to their end; false where `stop` was set before.
///
/// # Errors
/// One cannot be read.
fn read_through(paths: &[PathBuf], stop: &AtomicBool) -> Result<bool> {
    let mut block = vec![0; 1 << 20];
    for path in files_of(paths)? {
        let failed = || format!("cannot read {path:?}");
        let mut file = fs::File::open(&path).with_context(failed)?;
        while file.read(&mut block).with_context(failed)? > 0 {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The mark beside what is being made.
fn mark_of(made: &Path) -> PathBuf {
    let mut name = made.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// Whether what a step makes is there, and whole.
pub fn is_made(made: &Path) -> bool {
    made.exists() && !mark_of(made).exists()
}

/// Removes what is left of a step, and of its mark last.
fn unmake(made: &Path) -> Result<()> {
    folders::remove(made)?;
    unmark(made)
}

fn unmark(made: &Path) -> Result<()> {
    let mark = mark_of(made);
    match fs::remove_file(&mark) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {mark:?}"))
        }
        _ => Ok(()),
    }
}

/// Marks what is going to be made, of which nothing is left from before.
fn mark(made: &Path) -> Result<()> {
    let mark = mark_of(made);
    fs::write(&mark, "").with_context(|| format!("cannot write {mark:?}"))?;
    folders::remove(made)
}

/// Runs a step to its end; `None` when `stop` was set before. It holds the run's lock as long as it lives.
///
/// # Errors
/// The program cannot be started, fails, or prints something else than JSON: the step, and behind that why.
pub fn run(step: &Step, lock: Option<&Lock>, stop: &AtomicBool) -> Result<Option<Ended>> {
    let attempt = || {
        step.works_in.as_deref().map_or(Ok(()), folders::remove)?;
        let ended = attempt(step, lock, stop);
        if let (Some(folder), Err(_) | Ok(None)) = (&step.works_in, &ended) {
            // Where it cannot be removed now, it is when the step is tried again.
            let _ = folders::remove(folder);
        }
        ended
    };
    let run = || {
        let Some(made) = &step.makes else { return attempt() };
        mark(made)?;
        let ended = attempt();
        match ended {
            Ok(Some(_)) => unmark(made)?,
            // Where it cannot be removed, its mark stays.
            _ => drop(unmake(made)),
        }
        ended
    };
    run().with_context(|| format!("{}: {}", step.id, typed(&step.command)))
}

/// Why a program has failed: how it ended, whether there was no memory for it, and what it said last.
fn failure(status: ExitStatus, group: Option<&Group>, complaint: &str) -> String {
    let last = complaint.trim().lines().last().unwrap_or("it says nothing");
    let memory = match group.and_then(Group::killed) {
        Some(1..) => ", as there was no memory for it within its limit",
        _ => "",
    };
    format!("it ended with {status}{memory}: {last}")
}

fn attempt(step: &Step, lock: Option<&Lock>, stop: &AtomicBool) -> Result<Option<Ended>> {
    if !read_through(&step.cold, stop)? {
        return Ok(None);
    }
    chill(&step.cold)?;
    let group = step.limit.and_then(Group::new);
    let [program, arguments @ ..] = step.command.as_slice() else { bail!("nothing to run") };
    let mut command = match program.as_str() {
        OURSELVES => {
            let mut command = within(group.as_ref(), std::env::current_exe()?);
            command.env(STEP_OF, std::process::id().to_string());
            command
        }
        other => {
            let program = installed(other).with_context(|| format!("{other} is not installed"))?;
            tied(group.as_ref(), &program, "KILL")
        }
    };
    command.args(arguments);
    let input = lock.map_or(Ok(Stdio::null()), |lock| lock.shared().map(Stdio::from))?;
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C is for us: whoever gets it besides being asked by us takes that for the second time, and ends as he stands.
    command.process_group(0);
    let (began_unix, began) = (now(), Instant::now());
    let mut child = command.spawn().context("cannot start /bin/sh")?;
    let (out, complaint) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let Some((status, samples)) = watch(&mut child, group.as_ref(), began, stop)? else { return Ok(None) };
    let seconds = began.elapsed().as_secs_f64();
    let [out, complaint] = [out, complaint].map(|thread| thread.join().unwrap_or_default());
    if stop.load(Ordering::Relaxed) {
        // What it has printed may be a part of what it was to.
        return Ok(None);
    }
    let mut report = group.as_ref().map_or(Value::Null, Group::report);
    if !status.success() {
        bail!(failure(status, group.as_ref(), &complaint));
    }
    let output = json_of(&out).context("what it printed")?;
    if let Value::Object(report) = &mut report {
        report.insert("samples".to_owned(), samples);
    } else {
        report = json!({ "samples": samples });
    }
    let (id, command) = (step.id.clone(), step.command.clone());
    Ok(Some(Ended { id, command, began_unix, seconds, output, group: report, skipped: None, under: None }))
}

/// Runs a program to its end, and gives what it has printed. It is ended when `stop` is set, and when we end.
///
/// # Errors
/// It cannot be started; it fails, and what it said last; or `stop` was set.
pub fn to_end(program: &Path, words: &[&OsStr], stop: &AtomicBool) -> Result<String> {
    let mut command = tied(None, program, "TERM");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start /bin/sh")?;
    let (out, complaint) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            end(&mut child, Signal::TERM, PATIENCE / 4)?;
            bail!("interrupted");
        }
        std::thread::sleep(LOOK_CLOSELY * 5);
    };
    let [out, complaint] = [out, complaint].map(|thread| thread.join().unwrap_or_default());
    if !status.success() {
        bail!("{}: {}", program.display(), failure(status, None, &complaint));
    }
    Ok(out)
}

/// One object a line, or one over many lines.
fn json_of(text: &str) -> Result<Vec<Value>> {
    Ok(serde_json::Deserializer::from_str(text)
        .into_iter::<Value>()
        .collect::<std::result::Result<_, _>>()?)
}

fn reader(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut from) = from {
            // What can be read counts.
            let _ = from.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Waits for a program, and keeps what it has: seconds, bytes that are resident, swapped out, and cached in its group. `None` where it was ended, as
/// `stop` is set.
fn watch(
    child: &mut Child,
    group: Option<&Group>,
    began: Instant,
    stop: &AtomicBool,
) -> Result<Option<(ExitStatus, Value)>> {
    let mut samples = Vec::new();
    let mut next = Duration::ZERO;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some((status, Value::Array(samples))));
        }
        if stop.load(Ordering::Relaxed) {
            // What is being made is made anew.
            end(child, Signal::TERM, STEP_PATIENCE)?;
            return Ok(None);
        }
        if began.elapsed() >= next {
            next = began.elapsed() + SAMPLE_EVERY;
            let pid = child.id();
            samples.push(json!([
                began.elapsed().as_secs_f64(),
                status(pid, "VmRSS"),
                status(pid, "VmSwap"),
                group.and_then(Group::cached)
            ]));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(script: &str) -> Step {
        Step {
            id: "test".to_owned(),
            what: String::new(),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            limit: Some(64 << 20),
            ..Step::default()
        }
    }

    #[test]
    fn what_a_program_prints_is_kept_and_its_failure_named() {
        let go_on = AtomicBool::new(false);
        let ended = run(&step("echo '{\"a\": 1}'; echo '{\"b\": 2}'"), None, &go_on).unwrap().unwrap();
        assert_eq!(ended.output, [json!({"a": 1}), json!({"b": 2})]);
        let error = run(&step("echo 'the disk is full' >&2; exit 3"), None, &go_on).unwrap_err();
        assert!(format!("{error:#}").contains("the disk is full"), "{error:#}");
        assert!(run(&step("echo no json"), None, &go_on).is_err());
        let missing = Step { command: vec!["no-such-program".to_owned()], ..step("") };
        assert!(
            format!("{:#}", run(&missing, None, &go_on).unwrap_err())
                .contains("no-such-program is not installed")
        );
    }

    #[test]
    fn a_step_uses_what_is_below_a_place_that_another_one_makes() {
        let of = |words: &[&str]| Step {
            command: words.iter().map(|&word| word.to_owned()).collect(),
            ..Step::default()
        };
        let place = Path::new("data/sqlite-1x");
        assert!(of(&["x", "--dir", "data/sqlite-1x"]).uses(place));
        assert!(of(&["data/sqlite-1x/program", "load"]).uses(place));
        assert!(!of(&["x", "--dir", "data/sqlite-1x-k"]).uses(place));
        assert!(!Step { makes: Some(place.to_owned()), ..of(&["x", "data/sqlite-1x"]) }.uses(place));
        assert!(Step { cold: vec![place.to_owned()], ..Step::default() }.uses(place));
    }

    #[test]
    fn groups_of_those_who_are_gone_are_removed_and_no_others() {
        let base = tempfile::tempdir().unwrap();
        let own = format!("{GROUP}{}-0", std::process::id());
        for name in
            ["gannet-lab-999999999-0", "gannet-lab-999999999-7", &own, "gannet-lab-x", "user-999999999-0"]
        {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        // Somebody is in it still.
        fs::create_dir(base.path().join("gannet-lab-999999999-7/inside")).unwrap();
        sweep(base.path());
        let mut left: Vec<String> = fs::read_dir(base.path())
            .unwrap()
            .map(|one| one.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = vec![
            "gannet-lab-999999999-7".to_owned(),
            own,
            "gannet-lab-x".to_owned(),
            "user-999999999-0".to_owned(),
        ];
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn who_is_tied_to_another_process_than_ours_does_not_begin() {
        let of = |mut command: Command| command.arg("-c").arg("echo begun").output().unwrap().stdout;
        assert_eq!(of(tied(None, Path::new("/bin/sh"), "TERM")), b"begun\n");
        if installed("setpriv").is_none() {
            return;
        }
        // Its parent is a shell, which stands for whoever has inherited it.
        let command = tied(None, Path::new("/bin/sh"), "TERM");
        let mut orphan = Command::new("/bin/sh");
        orphan.args(["-c", "\"$@\"; exit 0", "sh"]).arg(command.get_program()).args(command.get_args());
        assert_eq!(of(orphan), b"");
    }

    #[test]
    fn a_program_is_run_to_its_end_or_ended() {
        let shell = Path::new("/bin/sh");
        let words = |script: &'static str| ["-c", script].map(OsStr::new);
        let go_on = AtomicBool::new(false);
        assert_eq!(to_end(shell, &words("echo done"), &go_on).unwrap(), "done\n");
        let error = to_end(shell, &words("echo 'no room' >&2; exit 3"), &go_on).unwrap_err().to_string();
        assert!(error.contains("exit status: 3: no room"), "{error}");
        let begun = Instant::now();
        let error = to_end(shell, &words("exec sleep 60"), &AtomicBool::new(true)).unwrap_err().to_string();
        assert!(error.contains("interrupted") && begun.elapsed() < Duration::from_secs(30), "{error}");
    }

    #[test]
    fn what_is_to_be_cold_is_read_through_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("file"), vec![1; 3 << 20]).unwrap();
        let paths = [folder.path().to_owned(), folder.path().join("is not there")];
        let read = || {
            std::fs::read_to_string("/proc/thread-self/io").ok().and_then(|text| {
                text.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse::<u64>().ok())
            })
        };
        let before = read();
        assert!(read_through(&paths, &AtomicBool::new(false)).unwrap());
        if let (Some(before), Some(after)) = (before, read()) {
            assert!(after - before >= 3 << 20, "{}", after - before);
        }
        assert!(!read_through(&paths, &AtomicBool::new(true)).unwrap());
    }

    #[test]
    fn the_folder_that_a_step_works_in_is_new_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        fs::create_dir(&work).unwrap();
        fs::write(work.join("left"), "by one that was killed").unwrap();
        let mut step = Step { works_in: Some(work.clone()), ..step("mkdir \"$0\" && exit 3") };
        step.command.push(work.display().to_string());
        let error = format!("{:#}", run(&step, None, &AtomicBool::new(false)).unwrap_err());
        assert!(error.contains("exit status: 3") && !work.exists(), "{error}");
    }

    #[test]
    fn a_step_that_is_stopped_brings_nothing() {
        assert_eq!(run(&step("echo 1; exec sleep 60"), None, &AtomicBool::new(true)).unwrap(), None);
    }

    #[test]
    fn what_half_a_step_has_left_is_gone_when_it_is_done_again() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        fs::create_dir(&made).unwrap();
        fs::write(made.join("half"), "x").unwrap();
        let step = Step { makes: Some(made.clone()), ..step("echo 1") };
        run(&step, None, &AtomicBool::new(false)).unwrap().unwrap();
        assert!(!made.exists());
    }

    #[test]
    fn what_is_made_is_there_when_it_is_whole_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        let making = |script: &str| {
            let script = format!("mkdir \"$0\"; touch \"$0/half\"; [ -e \"$0.part\" ] || exit 9; {script}");
            let mut step = Step { makes: Some(made.clone()), ..step(&script) };
            step.command.push(made.display().to_string());
            step
        };
        let go_on = AtomicBool::new(false);
        run(&making("echo 1"), None, &go_on).unwrap().unwrap();
        assert!(is_made(&made));
        // Who fails, or is stopped, leaves nothing.
        let error = format!("{:#}", run(&making("exit 3"), None, &go_on).unwrap_err());
        assert!(error.contains("exit status: 3") && !made.exists() && !mark_of(&made).exists(), "{error}");
        assert_eq!(run(&making("echo 1; exec sleep 60"), None, &AtomicBool::new(true)).unwrap(), None);
        assert!(!made.exists() && !mark_of(&made).exists());
        // What a killed lab leaves.
        mark(&made).unwrap();
        fs::create_dir(&made).unwrap();
        assert!(made.exists() && !is_made(&made));
        run(&making("echo 1"), None, &go_on).unwrap().unwrap();
        assert!(is_made(&made));
    }
}
