//! `gannet serve`: databases over PostgreSQL's protocol, until a signal ends it.

use crate::arguments::Serve;
use crate::interrupt;
use crate::output::shell_word;
use anyhow::{Context, Result, bail};
use gannet_base::units::format_size;
use gannet_io::{Disk, RealDisk, RealOptions, RecordedDisk};
use gannet_server::settings::Settings;
use gannet_server::window::Windows;
use gannet_server::{Server, ServerOptions};
use gannet_store::{Alarm, Engine, EngineOptions, OpenOptions, Pace, RestartPhase, Severity};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked whether a signal has come, or a database has failed.
const PERIOD: Duration = Duration::from_millis(50);
/// How often it is looked for alarms, and how often at most a line tells of one.
const ALARMS_EVERY: Duration = Duration::from_secs(5);
const ALARM_LINES: Duration = Duration::from_secs(60);
/// How often it is looked whether the time has come for long sweeps.
const WINDOW_EVERY: Duration = Duration::from_secs(1);
/// Open files that are neither a connection's nor a database's: temporary ones, the queues of the devices, those of jobs.
const FILES_BESIDE: u64 = 256;
/// How often it is said how far a restart is.
const RESTART_LINES: Duration = Duration::from_secs(5);

pub(crate) fn run(arguments: &Serve) -> Result<()> {
    let settings = Settings::gather(arguments.config.as_deref(), environment()?, flags(arguments))?;
    let open = OpenOptions {
        wal_limit: settings.size("wal_limit")?,
        mode: settings.io()?,
        max_delay: settings.duration("max_delay")?,
        shutdown_limit: settings.duration("shutdown_limit")?,
        archive: settings.path("archive"),
        snapshot_limit: settings.snapshot_limit()?,
        ..OpenOptions::default()
    };
    let limit = open.shutdown_limit;
    let options = ServerOptions {
        paths: arguments.paths.clone(),
        listen: settings.listen()?,
        sockets: settings.path("socket").into_iter().collect(),
        port: settings.port()?,
        insecure_trust: settings.switch("insecure_trust")?,
        tls: settings.tls()?,
        max_connections: settings.max_connections()?,
        open,
        owner: owner(),
    };
    options.check()?;
    have_files(&options, &settings)?;
    let memory = settings.size("memory")?;
    let engine = EngineOptions { memory, temp_folder: settings.temp_folder()? };
    // What these refuse is a budget that cannot be.
    engine.check_machine().map_err(|error| settings.refuse("memory", error))?;
    let disk = open_disk(settings.path("io_record").as_deref())?;
    let engine = Engine::with_disk(disk, &engine).map_err(|error| settings.refuse("memory", error))?;
    engine.set_job_pace(Pace::with_target(settings.duration("job_latency_target")?));
    let mut window = SweepWindow { windows: settings.sweep_window()?, looked: None };
    window.follow(&engine);
    interrupt::listen()?;
    create_missing(&engine, &options)?;
    let server = Server::start(&engine, &options)?;
    server.publish_settings(&settings.report(&effective(&server, &settings)));
    announce(&server, &options, memory);
    let mut restarts = Restarts::announce(&server);
    let mut told = BTreeSet::new();
    let mut alarms = Alarms::default();
    while interrupt::check().is_ok() {
        for (name, failure) in server.failed() {
            if told.insert(name.clone()) {
                say(&format!("database \"{name}\" has failed; restart once the cause is gone: {failure}"));
            }
        }
        gannet_base::clock::sleep(PERIOD);
        restarts.follow(&server);
        alarms.follow(&server);
        window.follow(&engine);
    }
    say("shutting down");
    let paths = server.paths();
    server.stop(limit)?;
    let left: Vec<_> = paths.iter().filter(|path| !engine.is_whole(path).unwrap_or(false)).collect();
    for path in &left {
        say(&format!(
            "{}: pages are left to the next start: whoever copies the file takes the folder {0}-wal along",
            path.display()
        ));
    }
    say("closed");
    Ok(())
}

/// Has the system permit as many open files as it lets this process have, and refuses connections for which there would be none.
fn have_files(options: &ServerOptions, settings: &Settings) -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // Where it may not be raised, what is permitted has to do.
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = raised;
        }
    }
    let connections = options.max_connections;
    let needed = options.open_files() as u64 + FILES_BESIDE;
    match limit.current {
        Some(most) if most < needed => bail!(settings.refuse(
            "max_connections",
            format!("{connections} connections and the databases need {needed} open files, and the system permits {most} (ulimit -n)"),
        )),
        _ => Ok(()),
    }
}

/// When long sweeps may begin by themselves.
struct SweepWindow {
    windows: Option<Windows>,
    looked: Option<Instant>,
}

impl SweepWindow {
    /// Tells the engine, where it is time to look.
    fn follow(&mut self, engine: &Engine) {
        let Some(windows) = &self.windows else { return };
        if self.looked.is_some_and(|looked| looked.elapsed() < WINDOW_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let now = jiff::Zoned::now();
        let minute = u16::from(now.hour().unsigned_abs()) * 60 + u16::from(now.minute().unsigned_abs());
        engine.allow_long_sweeps(windows.contains(minute));
    }
}

/// The real disk; recorded, where that was asked for.
fn open_disk(record: Option<&Path>) -> Result<Arc<dyn Disk>> {
    let real = Arc::new(RealDisk::new(RealOptions::default()));
    let Some(record) = record else { return Ok(real) };
    let disk = RecordedDisk::new(real, record)?;
    say(&format!("recording every write and sync in {}", record.display()));
    Ok(Arc::new(disk))
}

/// The user that runs the server: owner of databases that it creates. The name is the operating system's, which is also
/// the one that clients take when they are told none.
pub(crate) fn owner() -> String {
    let name = whoami::username().ok().filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "gannet".to_owned())
}

/// Variables that are settings. Those of single commands are not ours to judge.
fn environment() -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for (name, value) in std::env::vars_os() {
        // What cannot be read in a name makes it one that no setting has.
        let name = name.to_string_lossy().into_owned();
        let Some(setting) = name.strip_prefix("GANNET_").map(str::to_ascii_lowercase) else { continue };
        if setting == "config" || setting == "lab" {
            continue;
        }
        let Ok(value) = value.into_string() else { bail!("the environment's {name} is not valid UTF-8") };
        found.push((name, value));
    }
    Ok(found)
}

fn flags(arguments: &Serve) -> Vec<(String, String)> {
    let Serve {
        paths: _,
        config: _,
        memory,
        io,
        archive,
        listen,
        socket,
        port,
        max_connections,
        insecure_trust,
        tls_certificate,
        tls_key,
    } = arguments;
    let mut flags: Vec<(String, String)> = [
        ("memory", memory),
        ("io", io),
        ("archive", archive),
        ("listen", listen),
        ("socket", socket),
        ("port", port),
        ("max_connections", max_connections),
        ("tls_certificate", tls_certificate),
        ("tls_key", tls_key),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)))
    .collect();
    if *insecure_trust {
        flags.push(("insecure_trust".to_owned(), "on".to_owned()));
    }
    flags
}

/// A file that does not exist, or is what an interrupted creation has left, becomes a database; a folder has to be there.
fn create_missing(engine: &Engine, options: &ServerOptions) -> Result<()> {
    for path in &options.paths {
        if !engine.is_missing(path)? {
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "gnt") {
            bail!("{}: there is no such file or folder (a new database's name ends in .gnt)", path.display());
        }
        let create = crate::kv::create_options(engine.budget().limit(), None);
        gannet_sql::Database::create(engine, path, &create, &options.opening(path), &options.owner)
            .and_then(gannet_sql::Database::close)
            .with_context(|| format!("cannot create {}", path.display()))?;
        say(&format!("created {}", path.display()));
    }
    Ok(())
}

/// Settings whose effective value is known only once files are open.
fn effective(server: &Server, settings: &Settings) -> Vec<(&'static str, String, String)> {
    let mut effective: Vec<_> = default_temp_folder(settings).into_iter().collect();
    let addresses: Vec<String> = server.addresses().iter().map(ToString::to_string).collect();
    effective.push(("listen", addresses.join(","), String::new()));
    let sockets: Vec<String> = server.sockets().iter().map(|path| path.display().to_string()).collect();
    effective.push((
        "socket",
        sockets.join(","),
        "one beside each database, and the one asked for".to_owned(),
    ));
    effective
}

/// Where temporary files go when nobody has said.
fn default_temp_folder(settings: &Settings) -> Option<(&'static str, String, String)> {
    if settings.path("temp_folder").is_some() {
        return None;
    }
    let folder = std::env::temp_dir();
    let mut reason = "the system's".to_owned();
    if gannet_io::is_in_memory(&folder) {
        reason.push_str(", which is kept in memory: what spills there is not inside the budget");
    }
    Some(("temp_folder", folder.display().to_string(), reason))
}

fn announce(server: &Server, options: &ServerOptions, memory: u64) {
    say(&format!("databases: {}", server.databases().join(", ")));
    let way_in = if options.insecure_trust { "without password: insecure_trust" } else { "password" };
    let tls = if options.tls.is_some() { "TLS for clients that ask for it" } else { "no TLS" };
    for address in server.addresses() {
        say(&format!("listening on {address} ({way_in}; {tls})"));
    }
    for socket in server.sockets() {
        say(&format!("listening on {} (same user)", socket.display()));
    }
    let first = server.databases().into_iter().next().unwrap_or_default();
    // To psql a folder that does not begin with a slash is the name of a host.
    let absolute = |socket: &PathBuf| std::path::absolute(socket).unwrap_or_else(|_| socket.clone());
    let fits = |socket: &PathBuf| socket.as_os_str().len() <= gannet_server::LONGEST_SOCKET_PATH;
    let socket = server.sockets().iter().map(absolute).find(fits);
    if let Some(folder) = socket.as_deref().and_then(Path::parent) {
        let port = socket.as_deref().and_then(Path::extension).unwrap_or_default().to_string_lossy();
        let (folder, first) = (shell_word(&folder.to_string_lossy()), shell_word(&first));
        say(&format!("connect with: psql -h {folder} -p {port} {first}"));
    } else if let Some(file) = server.paths().first() {
        say(&format!("connect with: gannet sql {}", shell_word(&file.to_string_lossy())));
    }
    say(&format!("memory: {}; Ctrl-C ends it", format_size(memory)));
}

/// Databases that a crash has left work for, as long as there is some.
struct Restarts {
    names: BTreeSet<String>,
    told: Instant,
}

impl Restarts {
    fn announce(server: &Server) -> Self {
        let mut names = BTreeSet::new();
        for (name, report) in server.restarts().into_iter().filter(|(_, report)| report.crashed) {
            say(&format!(
                "{name} was not closed: opened within {:.3} s, with {} of log; in the background {} pages are looked at and {} \
                 transactions reverted",
                report.duration.as_secs_f64(),
                format_size(report.log_bytes),
                report.pages,
                report.losers
            ));
            names.insert(name);
        }
        Restarts { names, told: Instant::now() }
    }

    /// Says now and then how far it is, and when it is over.
    fn follow(&mut self, server: &Server) {
        if self.names.is_empty() {
            return;
        }
        let due = self.told.elapsed() >= RESTART_LINES;
        for (name, report) in server.restarts() {
            let at_work = matches!(report.phase, RestartPhase::Redo | RestartPhase::Revert);
            if self.names.contains(&name) && (due || !at_work) {
                say(&format!("restart of {name}: {report}"));
            }
            if !at_work {
                self.names.remove(&name);
            }
        }
        if due {
            self.told = Instant::now();
        }
    }
}

/// Alarms that were told of, and not yet of their end.
#[derive(Default)]
struct Alarms {
    looked: Option<Instant>,
    /// By database and name.
    told: BTreeMap<(String, String), Told>,
}

/// What was told last of an alarm.
struct Told {
    /// How bad it was; `None`: it is over.
    severity: Option<Severity>,
    at: Instant,
}

impl Alarms {
    /// Tells of alarms that have begun, become worse, or ended.
    fn follow(&mut self, server: &Server) {
        if self.looked.is_some_and(|looked| looked.elapsed() < ALARMS_EVERY) {
            return;
        }
        let now = Instant::now();
        self.looked = Some(now);
        self.changes(&server.alarms(), now).iter().for_each(|line| say(line));
    }

    /// Lines about what has changed: of each alarm no more than one a minute, and one when it becomes worse.
    fn changes(&mut self, found: &[(String, Alarm)], now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        for (database, alarm) in found {
            let key = (database.clone(), alarm.name.clone());
            // A failure has a line of its own.
            if alarm.name != "failure" && self.may_tell(&key, Some(alarm.severity), now) {
                let (severity, what, advice) = (alarm.severity.name(), &alarm.what, &alarm.advice);
                lines.push(format!("{database}: {severity}, {}: {what}; {advice}", alarm.name));
                self.told.insert(key, Told { severity: Some(alarm.severity), at: now });
            }
        }
        let over = |(database, name): &(String, String)| {
            !found.iter().any(|(other, alarm)| other == database && alarm.name == *name)
        };
        let ended: Vec<(String, String)> = self.told.keys().filter(|key| over(key)).cloned().collect();
        for key in ended {
            if self.may_tell(&key, None, now) {
                lines.push(format!("{}: {} is over", key.0, key.1));
                self.told.insert(key, Told { severity: None, at: now });
            }
        }
        lines
    }

    /// Of an alarm that is there with that severity, or over.
    fn may_tell(&self, key: &(String, String), severity: Option<Severity>, now: Instant) -> bool {
        let Some(told) = self.told.get(key) else { return severity.is_some() };
        // It is told once that it has become worse: one that goes up and down is as bad as it was at its worst.
        let is_worse = told.severity.is_some() && severity > told.severity;
        let has_turned = told.severity.is_some() != severity.is_some();
        is_worse || has_turned && now.duration_since(told.at) >= ALARM_LINES
    }
}

/// A line for whoever watches; nobody is no reason to stop.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "gannet: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(name: &str, severity: Severity) -> (String, Alarm) {
        let alarm = Alarm {
            name: name.to_owned(),
            severity,
            since_unix_us: 0,
            what: "it is so".to_owned(),
            figure: None,
            threshold: None,
            unit: String::new(),
            advice: "do something".to_owned(),
        };
        ("shop".to_owned(), alarm)
    }

    #[test]
    fn an_alarm_that_becomes_worse_is_told_at_once_and_once() {
        let (warning, critical) = ([alarm("space", Severity::Warning)], [alarm("space", Severity::Critical)]);
        let (mut alarms, start) = (Alarms::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(alarms.changes(&warning, at(0)), ["shop: warning, space: it is so; do something"]);
        assert_eq!(alarms.changes(&critical, at(5)), ["shop: critical, space: it is so; do something"]);
        assert!(alarms.changes(&warning, at(100)).is_empty());
        assert!(alarms.changes(&critical, at(200)).is_empty());
        assert_eq!(alarms.changes(&[], at(205)), ["shop: space is over"]);
        // The next time is a beginning again.
        assert!(alarms.changes(&critical, at(210)).is_empty());
        assert_eq!(alarms.changes(&warning, at(300)).len(), 1);
        assert_eq!(alarms.changes(&critical, at(305)).len(), 1);
    }

    #[test]
    fn an_alarm_is_told_when_it_begins_and_ends_and_no_more_than_once_a_minute() {
        let alarm = |name: &str| alarm(name, Severity::Warning);
        let (mut alarms, start) = (Alarms::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(alarms.changes(&[], at(0)).is_empty());
        let found = [alarm("log"), alarm("failure")];
        assert_eq!(alarms.changes(&found, at(5)), ["shop: warning, log: it is so; do something"]);
        assert!(alarms.changes(&found, at(10)).is_empty());
        // It comes and goes: that is told when it has lasted.
        assert!(alarms.changes(&[], at(15)).is_empty());
        assert!(alarms.changes(&found, at(20)).is_empty());
        assert_eq!(alarms.changes(&[], at(70)), ["shop: log is over"]);
        assert!(alarms.changes(&[], at(200)).is_empty());
        assert_eq!(alarms.changes(&found, at(205)).len(), 1);
    }
}
