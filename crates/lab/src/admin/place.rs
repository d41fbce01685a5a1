//! A server on a copy of the data, and a task run beside it to its end.

use super::files;
use super::garbage::{self, Sweeper};
use super::task::{self, Haste, Task};
use crate::confine::end;
use crate::firebird;
use crate::gannet::forget_hot;
use crate::servers;
use crate::sides::{GANNET, Options, POSTGRESQL, Server, Side};
use crate::tpcc::connection::{Connect, Connection};
use crate::tpcc::{Size, check};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often it is looked whether a task has ended.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How often it is looked what a task takes of the device, where that is asked for.
const WEIGH_EVERY: Duration = Duration::from_millis(250);
/// How long a task may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a task's own memory from which on PostgreSQL loads with what it has by default.
const AMPLE: u64 = 128 << 20;

/// What is measured: where the data is, and who uses it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Who serves.
    pub side: Side,
    /// The loaded data, which is left as it is.
    pub base: PathBuf,
    /// A folder for the copy and for what tasks make, removed afterwards.
    pub scratch: PathBuf,
    /// Bytes of memory for server and tasks together, page cache included.
    pub memory: u64,
    /// The task that is measured, where it is one.
    pub task: Option<Task>,
    /// What was loaded.
    pub size: Size,
    /// Users.
    pub sessions: u32,
    /// Seed of what they want.
    pub seed: u64,
}

impl Setup {
    /// Settings of a server beside which, or by which, another database is made in `out`: the task's memory is not the server's.
    fn settings_beside(&self, folder: &Path, out: &Path) -> Vec<String> {
        let own = task::own_memory(self.memory);
        match (self.side, self.task) {
            (GANNET, Some(Task::Load)) => {
                // Its process takes as much around its budget as the server's.
                let budget = servers::budget(servers::budget(self.memory)).saturating_sub(own);
                vec!["--memory".to_owned(), budget.to_string()]
            }
            // Its two jobs are as many as there are processors. Where there is little it gets by with a half of its cache and less than that for sorts: otherwise the
            // system ends the server.
            (POSTGRESQL, Some(Task::Load)) if own < AMPLE => vec![
                format!("shared_buffers={}kB", own / 2 / 1024),
                format!("maintenance_work_mem={}kB", own / 8 / 1024),
                "max_parallel_maintenance_workers=0".to_owned(),
            ],
            // Its default.
            (POSTGRESQL, Some(Task::Load)) => vec!["maintenance_work_mem=64MB".to_owned()],
            // Each of its databases has a cache of its own.
            (Side::Firebird, Some(Task::Load)) => {
                vec![firebird::server::within(&[folder, out]), firebird::server::cache_of(own / 2)]
            }
            _ => Vec::new(),
        }
    }
}

/// What a run of a task came to.
#[derive(Clone, Debug)]
pub struct Ran {
    /// How long it took.
    pub time: Duration,
    /// Whether it came to its end, or was ended as it took too long.
    pub is_complete: bool,
    /// What it said of itself; null where nothing.
    pub said: Value,
    /// Bytes at most that the database took more than at the begin, and bytes that came to the destination, where that was asked for.
    pub room: Option<(u64, u64)>,
}

impl Ran {
    /// For the record.
    pub fn to_json(&self) -> Value {
        json!({ "seconds": self.time.as_secs_f64(), "is_complete": self.is_complete, "said": self.said })
    }
}

/// A server on a copy of the data, until this is dropped.
pub struct Place {
    setup: Setup,
    sweeper: Sweeper,
    settings: Vec<String>,
    /// A session that does nothing, until the server is stopped: Firebird closes a database, with its cache, that nobody is
    /// connected to, and SQLite brings home and removes its log.
    keeper: Mutex<Option<Box<dyn Connection>>>,
    server: Option<Server>,
}

/// An error where somebody has asked to stop.
///
/// # Errors
/// Somebody has.
pub fn go_on(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

/// Has a file on the device, with its name.
fn sync(file: &Path) -> Result<()> {
    let sync = |path: &Path| File::open(path).and_then(|file| file.sync_all());
    sync(file)
        .and_then(|()| file.parent().map_or(Ok(()), sync))
        .with_context(|| format!("cannot sync {file:?}"))
}

impl Place {
    /// Makes the copy and starts a server on it.
    ///
    /// # Errors
    /// What can happen to either.
    pub fn begin(setup: &Setup, sweeper: Sweeper) -> Result<Self> {
        files::remove(&setup.scratch)?;
        let mut setup = setup.clone();
        if setup.side == Side::Firebird {
            // As the server itself knows it.
            fs::create_dir_all(&setup.scratch)?;
            setup.scratch = setup.scratch.canonicalize()?;
        }
        let setup = &setup;
        let mut place = Place {
            setup: setup.clone(),
            sweeper,
            settings: Vec::new(),
            keeper: Mutex::default(),
            server: None,
        };
        files::duplicate(&setup.base, &place.folder())?;
        fs::create_dir(place.out())?;
        place.settings = garbage::settings(setup, sweeper)?;
        place.settings.extend(setup.settings_beside(&place.folder(), &place.out()));
        place.start()?;
        Ok(place)
    }

    fn start(&mut self) -> Result<()> {
        // Others begin cold as well.
        forget_hot(&self.folder())?;
        self.server = Some(self.options().start()?);
        if matches!(self.setup.side, Side::Firebird | Side::Sqlite) {
            self.keeper = Mutex::new(Some(self.session()?));
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        self.keeper = Mutex::default();
        match self.server.take() {
            Some(server) => server.stop().map(|_| ()),
            None => Ok(()),
        }
    }

    fn folder(&self) -> PathBuf {
        self.setup.scratch.join("db")
    }

    /// Where tasks put what they make.
    pub fn out(&self) -> PathBuf {
        self.setup.scratch.join("out")
    }

    fn options(&self) -> Options {
        Options {
            side: self.setup.side,
            folder: self.folder(),
            memory: Some(self.setup.memory),
            io: "auto".to_owned(),
            settings: self.settings.clone(),
        }
    }

    /// Another place: a copy of this one's database, whose server is stopped for it and started again.
    ///
    /// # Errors
    /// What can happen to either.
    pub fn aside(&mut self) -> Result<Self> {
        self.stop()?;
        let setup = Setup {
            base: self.folder(),
            // Short, as a Unix socket's name has to have room behind it.
            scratch: self.setup.scratch.with_extension("2"),
            ..self.setup.clone()
        };
        let aside = Place::begin(&setup, self.sweeper)?;
        Ok(aside)
    }

    /// Starts the server again after [`Place::aside`].
    ///
    /// # Errors
    /// As [`Options::start`].
    pub fn resume(&mut self) -> Result<()> {
        self.start()
    }

    /// The server.
    ///
    /// # Errors
    /// It is stopped.
    pub fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("the server is stopped")
    }

    /// A session.
    ///
    /// # Errors
    /// The server does not let us in.
    pub fn session(&self) -> Result<Box<dyn Connection>> {
        self.server()?.connect()?.connect()
    }

    /// The data files, and how long they are.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn data_bytes(&self) -> Result<u64> {
        Ok(files::bytes(&files::data(&self.folder())?))
    }

    /// Bytes of what is in the folder besides the data files: the log.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn log_bytes(&self) -> Result<u64> {
        Ok(files::bytes(&files::all(&self.folder())?).saturating_sub(self.data_bytes()?))
    }

    /// Bytes that the system has cached of the database and its log, and of what tasks have made; `None` where it does not say.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn cached(&self) -> Result<(Option<u64>, Option<u64>)> {
        Ok((files::cached(&files::all(&self.folder())?), files::cached(&files::all(&self.out())?)))
    }

    /// Removes what tasks have made, but for what the next ones begin with.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn clean(&self) -> Result<()> {
        task::clear(self.server()?)?;
        let kept = [task::chain(&self.out()), task::source(&self.out())];
        for entry in fs::read_dir(self.out())? {
            let path = entry?.path();
            if !kept.contains(&path) {
                files::remove(&path)?;
            }
        }
        // What is left to do of the removal is not to be done beside users.
        File::open(self.out())?.sync_all()?;
        Ok(())
    }

    /// What is needed before a task can be measured.
    ///
    /// # Errors
    /// As [`Place::run`].
    pub fn prepare(&self, task: Task, stop: &AtomicBool) -> Result<()> {
        let Some(wanted) = task::preparation(task, self.server()?, &self.out())? else { return Ok(()) };
        let stops = || stop.load(Ordering::Relaxed);
        self.finish(wanted.name, wanted.command, Duration::MAX, false, &stops, None)?;
        // Nothing of it is to be written while others are measured.
        files::all(&wanted.made)?.iter().try_for_each(|file| sync(file))
    }

    /// Runs a task once. `number` is one that it was not given yet since the place was cleaned.
    ///
    /// # Errors
    /// It fails, or `ends_early` says that it is to end.
    pub fn run(
        &self,
        (task, haste): (Task, Haste),
        number: u32,
        limit: Duration,
        weighs: bool,
        ends_early: &dyn Fn() -> bool,
    ) -> Result<Ran> {
        let (server, out) = (self.server()?, self.out());
        let command = task.command(server, &out, number, haste)?;
        let unsynced = task.unsynced(server, &out, number);
        if task.makes_database() {
            // Who restores or loads does not find in the page cache what was made just now: it was made long ago, or elsewhere.
            crate::confine::chill(&[task::source(&out)])?;
        }
        let (mut ran, text, complaint) =
            self.finish(task.name(), command, limit, weighs, ends_early, unsynced.as_deref())?;
        ran.said = match ran.is_complete {
            true => task.heard(server, &out, number, &text, &complaint)?,
            false => Value::Null,
        };
        if !ran.is_complete {
            task.abandon(server, &out, number, limit)?;
        }
        Ok(ran)
    }

    /// Proves that what a task has made is whole. Gives the program that has; `None` where there is none.
    ///
    /// # Errors
    /// It is not.
    pub fn prove(&self, task: Task, number: u32, stop: &AtomicBool) -> Result<Option<&'static str>> {
        let Some((name, command)) = task.proof(self.server()?, &self.out(), number)? else {
            return Ok(None);
        };
        self.finish(name, command, Duration::MAX, false, &|| stop.load(Ordering::Relaxed), None)?;
        Ok(Some(name))
    }

    /// Runs a program to its end, which is when the file `unsynced` is durable too; gives what came of it, what it has said, and what it has complained of.
    fn finish(
        &self,
        name: &str,
        mut command: Command,
        limit: Duration,
        weighs: bool,
        ends_early: &dyn Fn() -> bool,
        unsynced: Option<&Path>,
    ) -> Result<(Ran, String, String)> {
        let [said, complaint] =
            ["said", "complaint"].map(|kind| self.setup.scratch.join(format!("task.{kind}")));
        command.stdin(Stdio::null()).stdout(File::create(&said)?).stderr(File::create(&complaint)?);
        let weigh = |path: &Path| -> Result<u64> { Ok(files::allocated(&files::all(path)?)) };
        let (folder, out) = (self.folder(), self.out());
        let before = if weighs { (weigh(&folder)?, weigh(&out)?) } else { (0, 0) };
        let (mut most, mut next) = (before.0, WEIGH_EVERY);
        let began = Instant::now();
        let mut child = command.spawn().context("cannot start /bin/sh")?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            let is_unwanted = ends_early();
            if is_unwanted || began.elapsed() > limit {
                end(&mut child, Signal::INT, PATIENCE)?;
                if is_unwanted {
                    bail!("interrupted");
                }
                break None;
            }
            if weighs && began.elapsed() > next {
                next = began.elapsed() + WEIGH_EVERY;
                most = most.max(weigh(&folder)?);
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let is_complete = status.is_some();
        if let (Some(made), Some(true)) = (unsynced, status.map(|status| status.success())) {
            sync(made)?;
        }
        let time = began.elapsed();
        let complaint = String::from_utf8_lossy(&fs::read(&complaint)?).into_owned();
        if let Some(status) = status.filter(|status| !status.success()) {
            let last = complaint.trim().lines().last().unwrap_or("it says nothing").to_owned();
            bail!("{name} of {} ended with {status}: {last}", self.setup.side.title());
        }
        let room = match weighs {
            true => Some((most.max(weigh(&folder)?) - before.0, weigh(&out)?.saturating_sub(before.1))),
            false => None,
        };
        let text = String::from_utf8_lossy(&fs::read(&said)?).into_owned();
        Ok((Ran { time, is_complete, said: Value::Null, room }, text, complaint))
    }

    /// Looks whether the consistency conditions of TPC-C hold; gives their number.
    ///
    /// # Errors
    /// One does not.
    pub fn conditions(&self, connect: &dyn Connect) -> Result<usize> {
        let mut connection = connect.connect()?;
        for condition in check::CONDITIONS {
            let found = check::violations(&mut *connection, condition)
                .with_context(|| format!("condition {}", condition.number))?;
            if found > 0 {
                bail!("condition {} is violated {found} times: {}", condition.number, condition.says);
            }
        }
        Ok(check::CONDITIONS.len())
    }

    /// Stops the server and removes the copy.
    ///
    /// # Errors
    /// What can happen to either.
    pub fn end(mut self) -> Result<()> {
        self.stop()?;
        files::remove(&self.setup.scratch)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Where something failed: the server first, and before that who is connected to it. What cannot be removed goes with the run's data.
        self.keeper = Mutex::default();
        drop(self.server.take());
        let _ = files::remove(&self.setup.scratch);
    }
}

/// The one number that a query gives.
pub(super) fn one(session: &mut dyn Connection, sql: &str) -> Result<i64> {
    let statement = session.prepare(sql)?;
    let rows = session.query(statement, &[])?;
    rows.first().and_then(|row| row.first()).with_context(|| format!("{sql}: no row"))?.int()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_makes_a_database_beside_another_one_leaves_memory_for_it() {
        let (folder, out) = (Path::new("w/db"), Path::new("w/out"));
        let settings = |side, task, memory| {
            let setup = Setup {
                side,
                base: PathBuf::new(),
                scratch: PathBuf::new(),
                memory,
                task,
                size: Size::new(1),
                sessions: 1,
                seed: 1,
            };
            setup.settings_beside(folder, out).join(" ")
        };
        let little = 112 << 20;
        for side in [GANNET, POSTGRESQL, Side::Firebird, Side::Sqlite] {
            assert_eq!(settings(side, None, little), "");
            assert_eq!(settings(side, Some(Task::Dump), little), "");
        }
        let ours = (112 - 16 - 16 - 28) << 20;
        assert_eq!(settings(GANNET, Some(Task::Load), little), format!("--memory {ours}"));
        // The server does it.
        assert_eq!(settings(GANNET, Some(Task::Restore), little), "");
        // A restore of theirs is a program that has nothing to do with the server.
        assert_eq!(settings(Side::Firebird, Some(Task::Restore), little), "");
        assert_eq!(
            settings(Side::Firebird, Some(Task::Load), little),
            "DatabaseAccess=Restrict w/db;w/out DefaultDbCachePages=1792"
        );
        assert!(settings(POSTGRESQL, Some(Task::Load), little).starts_with("shared_buffers=14336kB "));
        assert_eq!(settings(POSTGRESQL, Some(Task::Load), 1 << 30), "maintenance_work_mem=64MB");
    }
}
