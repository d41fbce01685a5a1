//! Servers that are measured: started for one measurement, on a Unix socket of their own, in a memory cgroup where the system lets us, and ended with it.
//!
//! A server never outlives whoever has started it: where there is `setpriv` (util-linux), the system asks it to end when its parent does, however that ends.
//! Gannet and PostgreSQL are spoken to with the same protocol, by the same client. Firebird has one of its own: [`crate::firebird`].

use crate::confine::{Group, chill, end, installed, status, tied, tied_as};
use crate::folders::{bytes, cache_for};
use crate::isolation::client::Client;
use anyhow::{Context, Result, anyhow, bail};
use gannet_server::frontend::{Address, Host, SslMode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it lets somebody in: it may have to redo a log.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long it may take to end.
pub(crate) const SHUTDOWN: Duration = Duration::from_secs(120);
/// How long it may take where nothing of it is wanted any more: less than a step has that is asked to end, so that it leaves nobody behind.
const HASTE: Duration = Duration::from_secs(10);
/// How often it is looked whether it is there.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Gannet's limit of a shutdown where nothing is to be left to the next start, on a slow disk neither: less than [`SHUTDOWN`].
const WHOLE_SHUTDOWN: &str = "GANNET_SHUTDOWN_LIMIT=100s";
/// Numbers in the sockets' names.
const OUR_PORT: u16 = 5433;
const THEIR_PORT: u16 = 5434;
/// The role in PostgreSQL, which is its superuser.
const THEIR_ROLE: &str = "bench";
/// What PostgreSQL runs as where we are root, which it refuses to be.
const THEIR_ACCOUNT: &str = "postgres";
/// A Unix socket's path has 107 bytes at most, of which the names behind the folder take this much.
const LONGEST_FOLDER: usize = 107 - "/lab.gnt-socket/.s.PGSQL.5433".len();
/// What of its memory Gannet's budget leaves to the process around it.
const AROUND_BUDGET: u64 = 16 << 20;

/// Who serves by PostgreSQL's protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Gannet.
    Gannet,
    /// PostgreSQL, the newest that is installed.
    PostgreSql,
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who it is.
    pub kind: Kind,
    /// The folder of its database, see [`make`].
    pub folder: PathBuf,
    /// Bytes of memory it may have in all, page cache included; `None`: no group, and memory enough for loading.
    pub memory: Option<u64>,
    /// Gannet's I/O mode.
    pub io: String,
    /// More settings: `--name value` of Gannet, also files of more databases, and `GANNET_NAME=value` of what has no such option; `name=value` of PostgreSQL. They go before those that are set here anyway.
    pub settings: Vec<String>,
}

/// A server that runs, until it is stopped or this is dropped.
#[derive(Debug)]
pub struct Server {
    options: Options,
    process: Process,
}

/// The process of a server, whoever it is; it is ended when this is dropped.
#[derive(Debug)]
pub struct Process {
    /// Who it is, as errors name it.
    name: String,
    /// What it says goes there.
    log: PathBuf,
    /// What it ends by, without waiting for its sessions to leave; and, where nothing of it is wanted any more, without bringing anything home.
    signal: Signal,
    haste: Signal,
    child: Child,
    began: Instant,
    group: Option<Group>,
}

impl Kind {
    /// By its name on the command line.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gannet" => Kind::Gannet,
            "postgresql" => Kind::PostgreSql,
            _ => return None,
        })
    }

    /// As reports name it.
    pub fn title(self) -> String {
        match self {
            Kind::Gannet => "Gannet".to_owned(),
            Kind::PostgreSql => {
                format!(
                    "PostgreSQL {}",
                    postgres().map_or_else(|| "?".to_owned(), |(version, _)| version.to_string())
                )
            }
        }
    }
}

/// The newest PostgreSQL that is installed: its version, and the folder of its programs.
pub fn postgres() -> Option<(u32, PathBuf)> {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = debian.filter_map(|entry| {
        let (version, programs) = (entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"));
        programs.join("initdb").is_file().then_some((version, programs))
    });
    found.max_by_key(|(version, _)| *version)
}

/// Gannet's program: `GANNET` says which, else the one beside this, else the one that is installed.
///
/// # Errors
/// There is none.
pub fn gannet() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("GANNET") {
        return Ok(path.into());
    }
    let beside = std::env::current_exe()?.with_file_name("gannet");
    if beside.is_file() {
        return Ok(beside);
    }
    installed("gannet").context("the program gannet is missing: cargo build --release -p gannet")
}

/// What Gannet's program says of its version and commit; `None` where there is none.
pub fn gannet_version() -> Option<String> {
    let mut command = Command::new(gannet().ok()?);
    forget_settings(&mut command);
    version_of(command)
}

/// What PostgreSQL says of its version, the package's with it; `None` where it is not installed.
pub fn postgres_version() -> Option<String> {
    let (_, programs) = postgres()?;
    version_of(Command::new(programs.join("postgres")))
}

fn version_of(mut command: Command) -> Option<String> {
    let output = command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Gannet with a budget for filling a database whose file is to be copied without its log afterwards: see [`end_whole`].
pub fn whole(folder: &Path, budget: u64) -> Options {
    Options {
        kind: Kind::Gannet,
        folder: folder.to_owned(),
        memory: None,
        io: "auto".to_owned(),
        settings: vec!["--memory".to_owned(), budget.to_string(), WHOLE_SHUTDOWN.to_owned()],
    }
}

/// Ends a server of [`whole`] so that its file is all of the database: what is dirty is home before it is asked to end, however long that takes.
///
/// # Errors
/// It cannot be written, or the server does not end.
pub fn end_whole(server: Server) -> Result<()> {
    let brought = server.client(DATABASE)?.run("checkpoint");
    brought.map_err(|failure| anyhow!("checkpoint: {failure}"))?;
    server.stop().map(drop)
}

/// Who has started a process, or has inherited it; `None` where it has ended.
fn parent(pid: i32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which is in brackets and may hold anything: its state, and its parent.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    fields.next()?.parse().ok().filter(|_| state != "Z")
}

/// The processes that a process has started, and that are still there.
fn children(of: u32) -> Vec<Pid> {
    let found = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        if parent(pid)? == of { Pid::from_raw(pid) } else { None }
    });
    found.collect()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command that runs a server's program in a group, tied to us, as whoever PostgreSQL may be.
fn command(kind: Kind, group: Option<&Group>, program: &Path, signal: &str) -> Command {
    let account = (kind == Kind::PostgreSql && is_root()).then_some(THEIR_ACCOUNT);
    tied_as(account, group, program, signal)
}

/// What names of variables begin with that are settings of Gannet.
const VARIABLE: &str = "GANNET_";

/// Variables are settings to Gannet's programs, which are given theirs by us.
fn forget_settings(command: &mut Command) {
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_string_lossy().starts_with(VARIABLE)) {
        command.env_remove(name);
    }
}

/// Whether somebody else can get there.
fn is_open_to_others(folder: &Path) -> bool {
    folder.ancestors().all(|above| fs::metadata(above).is_ok_and(|found| found.mode() & 0o001 != 0))
}

/// Makes a folder that a server of this kind can be started on.
///
/// # Errors
/// The folder is there, or cannot be made; or PostgreSQL could not get there.
pub fn make(kind: Kind, folder: &Path) -> Result<()> {
    if folder.as_os_str().len() > LONGEST_FOLDER {
        bail!(
            "{folder:?} is too long for a Unix socket in it: let the run be in a folder with a shorter name, by --to"
        );
    }
    fs::create_dir_all(folder.parent().unwrap_or(folder))?;
    fs::create_dir(folder).with_context(|| format!("cannot make {folder:?}"))?;
    let Kind::PostgreSql = kind else { return Ok(()) };
    let (_, programs) = postgres().context("PostgreSQL is not installed: apt-get install postgresql-15")?;
    if is_root() {
        if !is_open_to_others(folder.parent().unwrap_or(folder)) {
            bail!(
                "PostgreSQL does not run as root, and its account {THEIR_ACCOUNT} cannot enter {folder:?}: let the run be in a folder that it can enter, by --to"
            );
        }
        let done = Command::new("chown").arg(THEIR_ACCOUNT).arg(folder).status()?;
        if !done.success() {
            bail!("cannot give {folder:?} to {THEIR_ACCOUNT}");
        }
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    let mut initdb = command(kind, None, &programs.join("initdb"), "KILL");
    initdb.arg("-D").arg(folder).args(["-U", THEIR_ROLE, "-A", "trust", "-E", "UTF8", "--locale=C"]);
    let done = initdb.stdin(Stdio::null()).output()?;
    if !done.status.success() {
        bail!("initdb: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}

/// The name of a database that is there on either side: Gannet's has its file's, see [`database`].
pub const DATABASE: &str = "lab";

/// The file of Gannet's database in a folder.
pub fn database(folder: &Path) -> PathBuf {
    folder.join("lab.gnt")
}

/// Settings of a server whose database fits into so much memory: with a cache of its own that has room for all of it.
///
/// # Errors
/// The database in the folder cannot be looked at.
pub fn fitting(kind: Kind, folder: &Path, memory: u64) -> Result<Vec<String>> {
    Ok(match kind {
        // All of its budget is for whatever it needs most.
        Kind::Gannet => Vec::new(),
        Kind::PostgreSql => {
            vec![format!("shared_buffers={}MB", cache_for(bytes(&folder.join("base"))?, memory) >> 20)]
        }
    })
}

/// Gannet's budget where it has so much memory in all.
pub fn budget(memory: u64) -> u64 {
    memory.saturating_sub(AROUND_BUDGET)
}

impl Options {
    /// Of Gannet: its memory, and otherwise what it has by itself.
    fn gannet_settings(&self) -> Vec<String> {
        let budget = self.memory.map_or(2 << 30, budget);
        let ours = [("--memory", &*budget.to_string()), ("--io", &self.io), ("--max-connections", "200")];
        let mut settings: Vec<String> = Vec::new();
        for (name, value) in ours {
            if !self.settings.iter().any(|given| given == name) {
                settings.extend([name.to_owned(), value.to_owned()]);
            }
        }
        settings.extend(self.settings.iter().cloned());
        settings
    }

    /// Of PostgreSQL: durable as it is, and set for a machine with so much memory and a fast disk.
    fn postgres_settings(&self) -> Vec<String> {
        let memory = self.memory.unwrap_or(4 << 30) >> 20;
        let mut settings: Vec<String> = [
            "fsync=on",
            "synchronous_commit=on",
            "full_page_writes=on",
            "listen_addresses=",
            "max_wal_size=8GB",
            "checkpoint_timeout=5min",
            "random_page_cost=1.1",
            "effective_io_concurrency=64",
            "max_connections=200",
        ]
        .map(str::to_owned)
        .to_vec();
        // With half of it the OOM killer comes where there is little: what is left is for its processes, and its page cache. Where all fits, see `fitting`.
        settings.push(format!("shared_buffers={}MB", memory / 4));
        settings.push(format!("effective_cache_size={}MB", memory / 4 * 3));
        settings.push(format!("port={THEIR_PORT}"));
        settings.push(format!("unix_socket_directories={}", self.folder.display()));
        settings.extend(self.settings.iter().cloned());
        settings
    }

    fn command(&self, group: Option<&Group>) -> Result<Command> {
        match self.kind {
            Kind::Gannet => {
                let mut command = command(self.kind, group, &gannet()?, "TERM");
                command.arg("serve").arg(database(&self.folder)).args(["--listen", "none"]);
                command.args(["--port", &OUR_PORT.to_string()]);
                forget_settings(&mut command);
                for setting in self.gannet_settings() {
                    match setting.split_once('=').filter(|(name, _)| name.starts_with(VARIABLE)) {
                        Some((name, value)) => command.env(name, value),
                        None => command.arg(setting),
                    };
                }
                Ok(command)
            }
            Kind::PostgreSql => {
                let (_, programs) =
                    postgres().context("PostgreSQL is not installed: apt-get install postgresql-15")?;
                let mut command = command(self.kind, group, &programs.join("postgres"), "INT");
                command.arg("-D").arg(&self.folder);
                for setting in self.postgres_settings() {
                    command.args(["-c", &setting]);
                }
                Ok(command)
            }
        }
    }

    /// Starts it, with nothing of its files in the page cache, without waiting until it lets somebody in.
    ///
    /// # Errors
    /// Its program is missing, or the folder is none of its kind.
    pub fn launch(&self) -> Result<Server> {
        let signals = match self.kind {
            // Of PostgreSQL: its shutdowns "fast", which writes a checkpoint, and "immediate".
            Kind::PostgreSql => [Signal::INT, Signal::QUIT],
            Kind::Gannet => [Signal::TERM; 2],
        };
        let process = Process::launch(&self.kind.title(), &self.folder, self.memory, signals, |group| {
            self.command(group)
        })?;
        Ok(Server { options: self.clone(), process })
    }

    /// Starts it and waits until it lets somebody in.
    ///
    /// # Errors
    /// As [`Options::launch`]; or it ends, and what it said last.
    pub fn start(&self) -> Result<Server> {
        let mut server = self.launch()?;
        server.await_ready(PATIENCE)?;
        Ok(server)
    }
}

impl Server {
    /// Waits until it lets somebody in.
    ///
    /// # Errors
    /// It has ended, or takes longer than that.
    pub fn await_ready(&mut self, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let name = if self.options.kind == Kind::PostgreSql { "postgres" } else { "lab" };
            match Client::connect(&self.address(name)) {
                Ok(_) => return Ok(()),
                Err(error) if begun.elapsed() > patience => return Err(error),
                Err(_) => {}
            }
            self.must_run()?;
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn host(&self) -> PathBuf {
        match self.options.kind {
            Kind::Gannet => gannet_server::socket_folder(&database(&self.options.folder)),
            Kind::PostgreSql => self.options.folder.clone(),
        }
    }

    fn port_and_user(&self) -> (u16, String) {
        match self.options.kind {
            Kind::Gannet => (OUR_PORT, whoami::username().unwrap_or_else(|_| "gannet".to_owned())),
            Kind::PostgreSql => (THEIR_PORT, THEIR_ROLE.to_owned()),
        }
    }

    /// Where one of its databases is. Gannet's has its file's name.
    pub fn address(&self, database: &str) -> Address {
        let (port, user) = self.port_and_user();
        Address {
            host: Host::Unix(self.host()),
            port,
            user,
            password: None,
            database: database.to_owned(),
            ssl: SslMode::Disable,
            root_certificate: None,
            application: None,
            options: None,
            connect_timeout: None,
        }
    }

    /// The same in libpq's words.
    pub fn target(&self, database: &str) -> String {
        let (port, user) = self.port_and_user();
        let quoted = self.host().display().to_string().replace('\\', "\\\\").replace('\'', "\\'");
        format!("host='{quoted}' port={port} user={user} dbname={database}")
    }

    /// A session.
    ///
    /// # Errors
    /// It cannot be reached, or does not let us in.
    pub fn client(&self, database: &str) -> Result<Client> {
        Client::connect(&self.address(database))
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Bytes that are resident in its process (of PostgreSQL: the first of them), and those of files that are cached on its group's account.
    pub fn memory(&self) -> (Option<u64>, Option<u64>) {
        self.process.memory()
    }

    /// When its process was started.
    pub fn began(&self) -> Instant {
        self.process.began
    }

    /// What it has written to its log since it was started.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn said(&self) -> Result<String> {
        self.process.said()
    }

    /// Fails if it has ended, with what it said last.
    ///
    /// # Errors
    /// That.
    pub fn must_run(&mut self) -> Result<()> {
        self.process.must_run()
    }

    /// Its process, by number.
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// What its group has had; null where it has none.
    pub fn group(&self) -> Value {
        self.process.group()
    }

    /// How it was asked to be started.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// A command that runs a program beside it: in its group, and asked to end when we do.
    pub fn beside(&self, program: impl AsRef<Path>) -> Command {
        // A client may be anybody, whoever the server is.
        let mut command = self.process.beside(program.as_ref());
        forget_settings(&mut command);
        command
    }

    /// How it was started.
    pub fn describe(&self) -> Value {
        let settings = match self.options.kind {
            Kind::Gannet => self.options.gannet_settings(),
            Kind::PostgreSql => self.options.postgres_settings(),
        };
        let version = match self.options.kind {
            Kind::Gannet => gannet_version(),
            Kind::PostgreSql => postgres_version(),
        };
        json!({
            "server": self.options.kind.title(), "version": version, "memory": self.options.memory, "settings": settings,
        })
    }

    /// Bytes of the database on the device, without its log.
    ///
    /// # Errors
    /// The system's.
    pub fn database_bytes(&self) -> Result<u64> {
        bytes(&match self.options.kind {
            Kind::Gannet => database(&self.options.folder),
            Kind::PostgreSql => self.options.folder.join("base"),
        })
    }

    /// Ends it in good order: what is left to do is done. Gives how long that took.
    ///
    /// # Errors
    /// It had to be killed, or failed.
    pub fn stop(self) -> Result<Duration> {
        self.process.stop()
    }

    /// Kills it and the processes that it has started, as a crash does; on return they are gone.
    ///
    /// # Errors
    /// The system's; or one of them does not go.
    pub fn kill(self) -> Result<()> {
        self.process.kill()
    }
}

impl Process {
    /// Starts a server, with nothing of its files in the page cache, in a group with so much memory. It ends in good order by the first signal, in haste by the second.
    ///
    /// # Errors
    /// Its command cannot be made, or run.
    pub(crate) fn launch(
        name: &str,
        folder: &Path,
        memory: Option<u64>,
        [signal, haste]: [Signal; 2],
        command: impl FnOnce(Option<&Group>) -> Result<Command>,
    ) -> Result<Self> {
        chill(&[folder.to_owned()])?;
        let group = memory.and_then(Group::new);
        let mut command = command(group.as_ref())?;
        // Beside the folder, which is to have nothing in it that is not the server's.
        let path = folder.with_extension("log");
        let log = File::create(&path).with_context(|| format!("cannot write {path:?}"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let began = Instant::now();
        let child = command.spawn().context("cannot start /bin/sh")?;
        Ok(Process { name: name.to_owned(), log: path, signal, haste, child, began, group })
    }

    /// A command that runs a program beside it: in its group, and asked to end when we do.
    pub(crate) fn beside(&self, program: &Path) -> Command {
        tied(self.group.as_ref(), program, "INT")
    }

    /// Bytes that are resident in it, and those of files that are cached on its group's account.
    pub fn memory(&self) -> (Option<u64>, Option<u64>) {
        (status(self.child.id(), "VmRSS"), self.group.as_ref().and_then(Group::cached))
    }

    /// Bytes in memory on its group's account that are no file's.
    pub fn resident(&self) -> Option<u64> {
        self.group.as_ref().and_then(Group::resident)
    }

    /// Lifts the limit of its memory, for what is done when nothing is measured any more.
    pub fn lift_limit(&self) {
        if let Some(group) = &self.group {
            group.lift();
        }
    }

    /// What its group has had; null where it has none.
    pub fn group(&self) -> Value {
        self.group.as_ref().map_or(Value::Null, Group::report)
    }

    fn said(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("cannot read {:?}", self.log))
    }

    /// Fails if it has ended, with what it said last.
    ///
    /// # Errors
    /// That.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let said = self.said().unwrap_or_default();
        let last = said.trim().lines().last().unwrap_or("it says nothing");
        bail!("{} ended with {status}: {last}", self.name)
    }

    /// Asks it to end, without waiting: whoever waits for an answer of it gets an error.
    pub fn ask_to_end(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process(pid, self.signal);
        }
    }

    /// Ends it in good order, see [`Server::stop`].
    pub(crate) fn stop(mut self) -> Result<Duration> {
        let asked = Instant::now();
        let status = end(&mut self.child, self.signal, SHUTDOWN)?;
        if !status.success() {
            bail!("{} ended with {status}", self.name);
        }
        Ok(asked.elapsed())
    }

    /// Ends it in good order, or by force once that takes longer than `patience`: for who knows that everything is durable. Gives how long it
    /// took; `None`: it had to be forced.
    pub(crate) fn stop_within(mut self, patience: Duration) -> Result<Option<Duration>> {
        let asked = Instant::now();
        let status = end(&mut self.child, self.signal, patience)?;
        let took = asked.elapsed();
        if !status.success() && took < patience {
            bail!("{} ended with {status}", self.name);
        }
        Ok(status.success().then_some(took))
    }

    fn kill(mut self) -> Result<()> {
        let others = children(self.child.id());
        // The first one first: it would take notice of the others' end, and start anew.
        self.child.kill()?;
        for &pid in &others {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        self.child.wait()?;
        let begun = Instant::now();
        for pid in others {
            while parent(pid.as_raw_nonzero().get()).is_some() {
                if begun.elapsed() > SHUTDOWN {
                    bail!("{}: its process {pid:?} does not end", self.name);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // Nothing of it is wanted any more.
            let _ = end(&mut self.child, self.haste, HASTE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_is_no_option_of_the_server_is_given_as_a_variable() {
        let options = whole(Path::new("/a/db"), 1 << 20);
        let Ok(command) = options.command(None) else { return };
        let limit = command.get_envs().find(|(name, _)| *name == "GANNET_SHUTDOWN_LIMIT");
        assert_eq!(limit.and_then(|(_, value)| value?.to_str()), Some("100s"));
        let words: Vec<_> = command.get_args().filter_map(|word| word.to_str()).collect();
        assert!(words.windows(2).any(|two| two == ["--memory", "1048576"]), "{words:?}");
        assert!(!words.iter().any(|word| word.contains("SHUTDOWN")), "{words:?}");
        let settings = gannet_server::settings::Settings::gather(
            None,
            [("GANNET_SHUTDOWN_LIMIT".to_owned(), "100s".to_owned())],
            [],
        );
        assert!(settings.unwrap().duration("shutdown_limit").unwrap() < SHUTDOWN);
    }

    #[test]
    fn a_server_that_nobody_wants_any_more_ends_in_haste() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("db");
        fs::create_dir(&folder).unwrap();
        // A shell may miss a signal that comes as it starts a program: it has started the only one by then. One that was begun in the background
        // hears no SIGINT and no SIGQUIT.
        let script = "sleep 60 & trap 'kill $!; echo in good order; exit 0' TERM; trap 'kill $!; echo in haste; exit 0' USR1; echo begun; wait";
        let launch = || {
            let mut process =
                Process::launch("a server", &folder, None, [Signal::TERM, Signal::USR1], |group| {
                    let mut command = tied(group, Path::new("/bin/sh"), "INT");
                    command.args(["-c", script]);
                    Ok(command)
                })
                .unwrap();
            while !process.said().unwrap().contains("begun") {
                process.must_run().unwrap();
                std::thread::sleep(LOOK_EVERY);
            }
            process
        };
        let said = || fs::read_to_string(folder.with_extension("log")).unwrap();
        drop(launch());
        assert_eq!(said(), "begun\nin haste\n");
        launch().stop().unwrap();
        assert_eq!(said(), "begun\nin good order\n");
        assert!(HASTE < crate::confine::PATIENCE);
    }
}
