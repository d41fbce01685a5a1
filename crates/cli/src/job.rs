//! Running a job: on a file that nobody has open, on one that a server has open, or at an address; with its progress, Ctrl-C, and what
//! is said of it at the end.

use crate::arguments::{JobPace, Opening, OwnLog, Pacing};
use crate::interrupt;
use crate::output::printable;
use crate::progress::Progress;
use crate::standard_output::StandardOutput;
use crate::{doctor, serve, sql};
use anyhow::{Context, Result, anyhow, bail};
use gannet_base::units::format_size;
use gannet_io::residency;
use gannet_server::frontend::{Address, Column, Connection, Failure, GiveUp, Receiver, Report};
use gannet_sql::load::Request;
use gannet_store::{
    ArchiveReport, ArchiveState, Database, Engine, EngineOptions, JobKind, JobOrder, JobReport, Jobs,
    OpenOptions, Pace, Unit, Watch,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often it is looked for Ctrl-C while a server works.
const LISTEN_EVERY: Duration = Duration::from_millis(50);

/// More bytes of log than closing a database writes behind the last commit.
const CLOSING_LOG: u64 = 64 << 10;

/// Where a job runs.
pub(crate) enum Place {
    /// On a file, here.
    File(Database),
    /// By the server that has the file open.
    Beside(Connection),
    /// By the server at an address.
    Address(Connection),
}

impl Opening {
    pub(crate) fn engine(self) -> Result<Engine> {
        Ok(Engine::new(&EngineOptions { memory: self.memory, ..EngineOptions::default() })?)
    }
}

impl Pacing {
    pub(crate) fn is_full(self) -> bool {
        self.job_pace == Some(JobPace::Full)
    }

    /// Has jobs of this process go so, where no server does the work. Refuses what has no effect there, as nobody is there whose requests could be
    /// heeded.
    pub(crate) fn set_here(self, engine: &Engine) -> Result<()> {
        if self.job_latency_target.is_some() {
            bail!("--job-latency-target is for what a server does: give --server, too");
        }
        engine.set_job_pace(self.here());
        Ok(())
    }

    fn here(self) -> Pace {
        if self.is_full() { Pace::Full } else { Pace::default() }
    }

    /// Has a server pace the jobs of this connection so.
    pub(crate) fn ask_for(self, connection: &mut Connection) -> Result<()> {
        if let Some(target) = self.job_latency_target {
            let micros = target.as_nanos().div_ceil(1000);
            let statement = format!("SET job_latency_target = '{micros}us'");
            ask(connection, &statement).context("the server does not take --job-latency-target")?;
        }
        let pace = match self.job_pace {
            Some(JobPace::Auto) => "auto",
            Some(JobPace::Full) => "full",
            None => return Ok(()),
        };
        ask(connection, &format!("SET job_pace = {pace}"))
            .context("the server does not take --job-pace")
            .map(drop)
    }
}

impl Place {
    /// Opens the file, or connects to who has it open, or to the address.
    pub(crate) fn find(database: &OsStr, terms: (Opening, &OwnLog, Pacing), command: &str) -> Result<Place> {
        match Place::look(database, terms, command) {
            Err(error) if error.is::<StillInUse>() && sql::is_ending(&error) => {
                std::thread::sleep(sql::ENDING);
                Place::look(database, terms, command)
            }
            found => found,
        }
    }

    fn look(
        database: &OsStr,
        (opening, log, pacing): (Opening, &OwnLog, Pacing),
        command: &str,
    ) -> Result<Place> {
        let connect = |address: &Address| {
            let mut connection = connect(address, command)?;
            pacing.ask_for(&mut connection)?;
            Ok::<_, anyhow::Error>(connection)
        };
        if let Some(text) = database.to_str().filter(|text| Address::is_address(text)) {
            let variable = |name: &str| std::env::var(name).ok();
            let address = Address::parse(text, &variable, &serve::owner()).map_err(|error| anyhow!(error))?;
            return Ok(Place::Address(connect(&address)?));
        }
        let path = Path::new(database);
        if !path.try_exists().with_context(|| format!("cannot look at {path:?}"))? {
            bail!("{path:?} does not exist");
        }
        // Who only looks, or sweeps itself, leaves garbage as it is; who writes makes some.
        let sweep = command == "load";
        let open = OpenOptions { warm: false, sweep, ..log.opening(path, opening.io) };
        let server = || sql::server_address(path, &serve::owner());
        let engine = match opening.engine() {
            Ok(engine) => engine,
            // Where a server does the work, no memory is needed here.
            Err(error) => {
                let connection = server().and_then(|address| connect(&address).ok());
                return connection.map(Place::Beside).ok_or(error);
            }
        };
        match engine.open(path, &open) {
            Err(gannet_store::Error::InUse(why)) => {
                let Some(address) = server() else {
                    bail!("{why}, and no server has a socket in {:?}", gannet_server::socket_folder(path));
                };
                Ok(Place::Beside(connect(&address).context(StillInUse(why))?))
            }
            other => {
                let database = other.with_context(|| format!("cannot open {path:?}"))?;
                if pacing.job_latency_target.is_some() {
                    close(database).with_context(|| format!("cannot close {path:?}"))?;
                    bail!("--job-latency-target is for what a server does, and none has {path:?} open");
                }
                // Nobody else is here; should somebody be some day, it is for them.
                engine.set_job_pace(pacing.here());
                Ok(Place::File(database))
            }
        }
    }

    /// Whether a server does the work.
    pub(crate) fn is_server(&self) -> bool {
        !matches!(self, Place::File(_))
    }
}

/// Who has a file open, as its opening says, where he could not be asked.
#[derive(Debug)]
struct StillInUse(String);

impl std::fmt::Display for StillInUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the OS has cached, before a job begins, of the files that it is to read and to write.
#[derive(Default)]
pub(crate) struct CachedBefore(Vec<(Files, Option<CachedBytes>)>);

/// By files, as some come and go meanwhile; a database's together, whose log changes its files' names.
type CachedBytes = BTreeMap<PathBuf, u64>;

/// Files of this machine.
enum Files {
    /// Of a database.
    Database(OsString),
    /// One, or all of a folder.
    Path(PathBuf),
}

impl Files {
    /// Bytes of them in the OS cache; `None` where nobody can say.
    fn cached(&self) -> Option<CachedBytes> {
        match self {
            Files::Database(path) => {
                let path = PathBuf::from(path);
                // Of one that is still to be made nothing is cached.
                let bytes = match path.exists() {
                    true => doctor::cached(&path)["cached_bytes"].as_u64(),
                    false => Some(0),
                };
                bytes.map(|bytes| BTreeMap::from([(path, bytes)]))
            }
            Files::Path(path) => {
                let files = match std::fs::read_dir(path) {
                    Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
                    Err(_) => vec![path.clone()],
                };
                let of = |path: PathBuf| residency([&path]).cached_bytes().map(|bytes| (path, bytes));
                // One that is gone meanwhile is not cached.
                files.into_iter().filter(|path| path.is_file()).map(of).collect()
            }
        }
    }
}

impl CachedBefore {
    /// Looks at a database's; of one of another machine there is nothing to be seen.
    pub(crate) fn look(database: &OsStr) -> Self {
        let is_elsewhere = database.to_str().is_some_and(Address::is_address);
        let nothing = CachedBefore::default();
        if is_elsewhere { nothing } else { nothing.add(Files::Database(database.to_owned())) }
    }

    /// And at a file, or at those of a folder; at nothing where it is a stream, or a store of another machine.
    pub(crate) fn and(self, path: &Path) -> Self {
        if path == Path::new("-") {
            return self;
        }
        let url = path.to_str().filter(|text| gannet_object::is_url(text));
        match url.map_or_else(|| Some(path.to_owned()), gannet_object::local_path) {
            Some(path) => self.add(Files::Path(path)),
            None => self,
        }
    }

    /// And at backups: a folder of them, or the one that a path means, with whatever lies beside it, as it may add to that.
    pub(crate) fn and_backups(self, paths: &[PathBuf]) -> Self {
        let url = |path: &Path| path.to_str().and_then(gannet_object::local_path);
        let mut folders: Vec<PathBuf> = Vec::new();
        for path in paths {
            let folder = match url(path).as_deref().unwrap_or(path) {
                folder if folder.is_dir() || path == Path::new("-") => path.clone(),
                one => match one.parent() {
                    Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
                    parent => parent.unwrap_or(one).to_owned(),
                },
            };
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        folders.iter().fold(self, |before, folder| before.and(folder))
    }

    fn add(mut self, files: Files) -> Self {
        let bytes = files.cached();
        self.0.push((files, bytes));
        self
    }

    /// Bytes of what is cached now that were not before; `None` where nobody can say.
    pub(crate) fn left_behind(&self) -> Option<u64> {
        let mut all = (!self.0.is_empty()).then_some(0);
        for (files, before) in &self.0 {
            let more = files.cached().zip(before.as_ref()).map(|(now, before)| {
                let before = |path| before.get(path).copied().unwrap_or(0);
                now.iter().map(|(path, bytes)| bytes.saturating_sub(before(path))).sum::<u64>()
            });
            all = all.zip(more).map(|(all, more)| all + more);
        }
        all
    }
}

/// The name of a database for people and reports: a path, or an address without its password.
pub(crate) fn shown(database: &OsStr) -> Cow<'_, str> {
    match database.to_str().filter(|text| Address::is_address(text)) {
        Some(address) => Cow::Owned(without_password(address)),
        None => database.to_string_lossy(),
    }
}

const HIDDEN: &str = "***";

/// An address with its password hidden, in whichever form it is; see [`Address::parse`].
fn without_password(address: &str) -> String {
    let scheme = ["postgres://", "postgresql://"].into_iter().find(|scheme| address.starts_with(scheme));
    let Some(scheme) = scheme else { return words_without_password(address) };
    let rest = &address[scheme.len()..];
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, database) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let mut shown = scheme.to_owned();
    match authority.rsplit_once('@') {
        Some((login, place)) => match login.split_once(':') {
            Some((user, _)) => shown += &format!("{user}:{HIDDEN}@{place}"),
            None => shown += authority,
        },
        None => shown += authority,
    }
    shown += database;
    let Some(query) = query else { return shown };
    let pair = |pair: &str| match pair.split_once('=') {
        // A key with `%` in it may be any.
        Some((key, _)) if key == "password" || key.contains('%') => format!("{key}={HIDDEN}"),
        _ => pair.to_owned(),
    };
    shown + "?" + &query.split('&').map(pair).collect::<Vec<_>>().join("&")
}

/// The same of `key=value` words, whose values may stand in quotes and have `\\` before what means nothing.
fn words_without_password(words: &str) -> String {
    let (mut shown, mut rest) = (String::new(), words);
    while let Some((key, behind)) = rest.split_once('=') {
        let value = behind.trim_start();
        let quoted = value.starts_with('\'');
        let (mut escaped, mut end) = (false, value.len());
        for (at, character) in value.char_indices().skip(usize::from(quoted)) {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '\'' if quoted => end = at + 1,
                blank if blank.is_whitespace() && !quoted => end = at,
                _ => {}
            }
            if end < value.len() {
                break;
            }
        }
        let (value, behind) = value.split_at(end);
        let value = if key.trim() == "password" { HIDDEN } else { value };
        shown += &format!("{key}={value}");
        rest = behind;
    }
    shown + rest
}

/// Closes a database that was opened here, and tells of an archive that did not take its log.
pub(crate) fn close(database: Database) -> gannet_store::Result<()> {
    database.close_reporting().map(|archive| tell_of_archive(archive.as_ref()))
}

/// Says that the archive of a database that was closed did not take all of its log.
pub(crate) fn tell_of_archive(archive: Option<&ArchiveReport>) {
    // An archive that keeps up has all but what the closing itself goes on to write.
    let least =
        if archive.is_some_and(|archive| archive.state == ArchiveState::Archiving) { CLOSING_LOG } else { 1 };
    let Some(archive) = archive.filter(|archive| archive.behind_bytes >= least) else { return };
    let kept = match archive.state {
        ArchiveState::Refused => "it is to have a folder of its own",
        _ => "what the archive lacks is kept beside the database as far as --wal-limit reaches",
    };
    crate::complain(&format!(
        "{} of log are not archived in {:?}: {}; {kept}",
        format_size(archive.behind_bytes),
        archive.destination,
        archive.error.as_deref().unwrap_or("there was no time for it")
    ));
}

/// What came of work on a database that was closed behind it. Where both have failed both are told; that nobody reads any more
/// does not hide that it could not be closed.
pub(crate) fn behind_closing<T>(done: Result<T>, closed: gannet_store::Result<()>, name: &str) -> Result<T> {
    match (done, closed.with_context(|| format!("cannot close {name:?}"))) {
        (done, Ok(())) => done,
        (Ok(_), Err(closing)) => Err(closing),
        (Err(error), Err(closing)) if crate::is_broken_pipe(&error) => Err(closing),
        (Err(error), Err(closing)) => {
            crate::complain(&format!("{closing:#}"));
            Err(error)
        }
    }
}

// ---- here ------------------------------------------------------------------------------------------------------------

/// Runs a job here.
pub(crate) fn here<T, E>(
    jobs: &Jobs,
    order: JobOrder,
    work: impl FnOnce(&mut Watch<'_>) -> std::result::Result<T, E>,
) -> Result<(T, JobReport)>
where
    E: std::fmt::Display + Into<anyhow::Error>,
{
    let job = jobs.begin(order);
    let mut shown = Shown::default();
    let mut tell = |report: &JobReport| {
        shown.say(report);
        interrupt::check().map_err(|_| gannet_store::Error::Cancelled)
    };
    let outcome = job.end(work(&mut Watch::new(&job, &mut tell)));
    drop(shown);
    match outcome {
        // Ctrl-C that came too late for it changes nothing.
        Ok(done) => Ok((done, job.report())),
        Err(error) => {
            let error = error.into();
            if let (Err(_), Some(gannet_store::Error::Backup(said))) =
                (interrupt::check(), error.downcast_ref())
            {
                // What may be left somewhere, for one.
                crate::complain(said);
            }
            interrupt::check()?;
            Err(error)
        }
    }
}

// ---- by a server -----------------------------------------------------------------------------------------------------

/// Whether whoever waits for a server is to give up.
fn give_up() -> GiveUp {
    Arc::new(|| interrupt::check().is_err())
}

pub(crate) fn connect(address: &Address, command: &str) -> Result<Connection> {
    let opened = Connection::open_unless(address, &format!("gannet {command}"), give_up());
    // Whatever it failed with: it is known why.
    interrupt::check()?;
    opened.map_err(|failure| match failure {
        Failure::Connection(error)
            if error.kind() == io::ErrorKind::PermissionDenied && address.password.is_none() =>
        {
            anyhow!("{error}; give the password in the address, or as PGPASSWORD")
        }
        failure => sql::not_connected(failure),
    })
}

/// A path as a server of this machine understands it: absolute, and quoted for a statement. A URL is as it is.
pub(crate) fn absolute(path: &Path) -> Result<String> {
    if let Some(url) = path.to_str().filter(|text| gannet_object::is_url(text)) {
        return Ok(quoted(url));
    }
    let path = std::path::absolute(path).with_context(|| format!("cannot find {path:?}"))?;
    let text = path.to_str().with_context(|| format!("{path:?} is no UTF-8, which a server needs"))?;
    Ok(quoted(text))
}

/// A string as SQL writes it.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// What a server says at the end of a job.
pub(crate) struct Told {
    pub(crate) job: JobReport,
    /// What else it has to say.
    pub(crate) detail: Value,
}

/// Has a server run a statement that is a job, with VERBOSE; its rows are given to `row`.
pub(crate) fn by_server(
    connection: &mut Connection,
    statement: &str,
    row: &mut dyn FnMut(&[Option<&str>]) -> io::Result<()>,
) -> Result<Told> {
    let mut shown = Shown::default();
    listen(connection, statement, &mut Listening::new(row, Some(&mut shown)))
}

/// Takes what a job of a server makes.
pub(crate) trait Product {
    /// What comes from now on belongs to the file of this name.
    fn file(&mut self, name: &str) -> io::Result<()> {
        Err(io::Error::other(format!("the server sends a file {name:?} that nobody asked for")))
    }

    /// Some of it.
    fn data(&mut self, data: &[u8]) -> io::Result<()>;
}

/// To standard output.
pub(crate) struct ToStdout(pub(crate) StandardOutput);

impl Product for ToStdout {
    fn data(&mut self, data: &[u8]) -> io::Result<()> {
        self.0.write_all(data)
    }
}

/// The same of a statement that sends what it makes instead of rows. Where `shown` is false, somebody else says how far it is.
pub(crate) fn product_of_server(
    connection: &mut Connection,
    statement: &str,
    product: &mut dyn Product,
    shown: bool,
) -> Result<Told> {
    let mut shown = shown.then(Shown::default);
    let row = &mut |_: &[Option<&str>]| Ok(());
    let mut listening = Listening::new(row, shown.as_mut());
    listening.product = Some(product);
    listen(connection, statement, &mut listening)
}

/// Gives a job of a server its data.
pub(crate) trait Supply {
    /// The server takes data from now on.
    fn begin(&mut self);

    /// Whether the data is answers to what the server asks.
    fn answers(&self) -> bool;

    /// The server asks for something.
    fn ask(&mut self, request: Request);

    /// Appends some; false at the end.
    fn read(&mut self, data: &mut Vec<u8>) -> io::Result<bool>;
}

/// Has a server run a statement that is a job, with VERBOSE, and whose data comes from here.
pub(crate) fn supplied_to_server(
    connection: &mut Connection,
    statement: &str,
    supply: &mut dyn Supply,
) -> Result<Told> {
    let mut shown = Shown::default();
    let row = &mut |_: &[Option<&str>]| Ok(());
    let mut listening = Listening::new(row, Some(&mut shown));
    listening.supply = Some(supply);
    listen(connection, statement, &mut listening)
}

/// What a server answers to a query of one value.
pub(crate) fn ask(connection: &mut Connection, query: &str) -> Result<String> {
    let mut answer = String::new();
    let row = &mut |values: &[Option<&str>]| {
        answer = values.last().copied().flatten().unwrap_or_default().to_owned();
        Ok(())
    };
    unless_interrupted(connection, |connection| connection.query(query, &mut Listening::new(row, None)))?
        .map_err(|failure| anyhow!("{failure}"))?;
    Ok(answer)
}

/// Asks a server what takes no time, and gives up with Ctrl-C whether or not it answers.
pub(crate) fn unless_interrupted<T>(
    connection: &mut Connection,
    ask: impl FnOnce(&mut Connection) -> T,
) -> Result<T> {
    connection.wait_unless(Some(give_up()));
    let answer = ask(connection);
    connection.wait_unless(None);
    interrupt::check()?;
    Ok(answer)
}

fn listen(connection: &mut Connection, statement: &str, listening: &mut Listening<'_>) -> Result<Told> {
    let ended = Arc::new(AtomicBool::new(false));
    let (canceller, ended_too) = (connection.canceller(), Arc::clone(&ended));
    let listener = std::thread::spawn(move || {
        while !ended_too.load(Ordering::Relaxed) {
            if interrupt::check().is_err() {
                // A server that takes no request now is asked again.
                let _ = canceller.cancel();
            }
            std::thread::park_timeout(LISTEN_EVERY);
        }
    });
    let done = connection.query(statement, listening);
    let told = listening.told.take();
    // The line of progress ends before anything else is said.
    if let Some(shown) = listening.shown.take() {
        *shown = Shown::default();
    }
    ended.store(true, Ordering::Relaxed);
    listener.thread().unpark();
    let _ = listener.join();
    match done {
        // Ctrl-C that came too late for it changes nothing.
        Ok(()) => told.context("the server did not say how it went"),
        Err(failure) => {
            interrupt::check()?;
            Err(failure.into())
        }
    }
}

struct Listening<'r> {
    row: &'r mut dyn FnMut(&[Option<&str>]) -> io::Result<()>,
    product: Option<&'r mut dyn Product>,
    supply: Option<&'r mut dyn Supply>,
    /// What could not be begun; a notice cannot say so.
    failure: Option<io::Error>,
    told: Option<Told>,
    shown: Option<&'r mut Shown>,
}

impl<'r> Listening<'r> {
    fn new(row: &'r mut dyn FnMut(&[Option<&str>]) -> io::Result<()>, shown: Option<&'r mut Shown>) -> Self {
        Listening { row, product: None, supply: None, failure: None, told: None, shown }
    }
}

impl Receiver for Listening<'_> {
    fn columns(&mut self, _columns: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, values: &[Option<&str>]) -> io::Result<()> {
        (self.row)(values)
    }

    fn complete(&mut self, _tag: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, notice: &Report) {
        let detail = notice.detail.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
        // Whatever else a server says there is not for us.
        let Some(mut detail @ Value::Object(_)) = detail else { return };
        if let (Some(supply), Ok(request)) = (&mut self.supply, serde_json::from_value(detail.clone())) {
            supply.ask(request);
        } else if let Ok(progress) = serde_json::from_value(detail["progress"].take()) {
            if let Some(shown) = &mut self.shown {
                shown.say(&progress);
            }
        } else if let (Some(file), Some(product)) = (detail["file"].as_str(), &mut self.product) {
            self.failure = self.failure.take().or(product.file(file).err());
        } else if let Ok(job) = serde_json::from_value(detail["job"].take()) {
            self.told = Some(Told { job, detail });
        }
    }

    fn copy_in(&mut self) -> io::Result<()> {
        if let Some(supply) = &mut self.supply {
            supply.begin();
        }
        Ok(())
    }

    fn answers(&self) -> bool {
        self.supply.as_ref().is_some_and(|supply| supply.answers())
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> io::Result<bool> {
        self.supply.as_mut().map_or(Ok(false), |supply| supply.read(data))
    }

    fn copy_write(&mut self, data: &[u8]) -> io::Result<()> {
        match (self.failure.take(), &mut self.product) {
            (Some(failure), _) => Err(failure),
            (None, Some(product)) => product.data(data),
            (None, None) => Ok(()),
        }
    }
}

// ---- what is shown ---------------------------------------------------------------------------------------------------

/// The line of progress of each phase.
#[derive(Default)]
pub(crate) struct Shown {
    phase: String,
    line: Option<Progress>,
}

impl Shown {
    pub(crate) fn say(&mut self, report: &JobReport) {
        if self.phase != report.phase {
            self.line = None;
            self.phase.clone_from(&report.phase);
        }
        let line = self.line.get_or_insert_with(|| Progress::new(&report.phase));
        let share = (report.total > 0).then(|| report.done as f64 / report.total as f64);
        let note = if report.note.is_empty() { String::new() } else { format!(", {}", report.note) };
        line.say(share, || match report.unit {
            Unit::Bytes => {
                format!("{} at {:.0} MB/s{note}", format_size(report.done), report.rate / 1e6)
            }
            unit => format!("{} {} at {:.0}/s{note}", report.done, unit.name(), report.rate),
        });
    }
}

/// What the device can do, as far as that was seen, and which share of it a job had.
struct Share {
    what: &'static str,
    rate: u64,
    share: f64,
}

/// By whatever there was more of, reading or writing; `None` where nothing is known.
fn share(job: &JobReport) -> Option<Share> {
    let read = job.bytes_read >= job.bytes_written;
    let (what, rate) = if read { ("read", job.device_read_rate) } else { ("write", job.device_write_rate) };
    let bytes = job.bytes_read.max(job.bytes_written);
    let own = bytes as f64 / job.seconds.max(1e-6);
    // What was seen is by quarters of a second, which a short job does not fill, and of the device, which a compressed backup asks for less.
    let rate = rate.filter(|_| bytes > 0)?.max(own.ceil() as u64);
    Some(Share { what, rate, share: own / rate as f64 })
}

/// Figures of a job for `--json`.
pub(crate) fn as_json(job: &JobReport, cached: Option<u64>) -> Value {
    let bytes = job.bytes_read.max(job.bytes_written);
    json!({
        "seconds": job.seconds,
        "paced_seconds": job.paced_seconds,
        "bytes_read": job.bytes_read,
        "bytes_written": job.bytes_written,
        "bytes_per_second": (bytes as f64 / job.seconds.max(1e-6)).round(),
        "device_bytes_per_second": share(job).map(|share| share.rate),
        "share_of_device": share(job).map(|share| (share.share * 1000.0).round() / 1000.0),
        "by_class": job.by_class,
        "cached_bytes": cached,
    })
}

/// The last lines that a job leaves: time, rate, bytes, cached pages.
pub(crate) fn tell(out: &mut dyn Write, job: &JobReport, cached: Option<u64>) -> Result<()> {
    let bytes = job.bytes_read.max(job.bytes_written);
    write!(
        out,
        "  {:.1} s, {:.0} MB/s: read {}",
        job.seconds,
        bytes as f64 / 1e6 / job.seconds.max(1e-6),
        format_size(job.bytes_read)
    )?;
    // What a load has made is written by the database as anything else: that is seen below, by class.
    if job.kind != JobKind::Load {
        write!(out, ", wrote {}", format_size(job.bytes_written))?;
    }
    if job.paced_seconds > 0.05 {
        write!(out, "; held back for others {:.1} s", job.paced_seconds)?;
    }
    writeln!(out)?;
    match share(job) {
        Some(Share { what, rate, share }) => writeln!(
            out,
            "  {:.0} % of the most that the device was seen to {what}, {:.0} MB/s",
            share * 100.0,
            rate as f64 / 1e6
        )?,
        None if bytes > 0 => {
            writeln!(out, "  what share of the device that is, is not known: nobody has seen its rate")?
        }
        None => {}
    }
    let moved: Vec<String> = job
        .by_class
        .iter()
        .filter(|class| class.read + class.written > 0)
        .map(|class| format!("{} {} + {}", class.class, format_size(class.read), format_size(class.written)))
        .collect();
    if !moved.is_empty() {
        writeln!(out, "  read + written meanwhile, by class: {}", printable(&moved.join(", ")))?;
    }
    if let Some(bytes) = cached {
        writeln!(out, "  cached pages left behind: {}", format_size(bytes))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_with_a_detail_that_is_no_object_ended_the_client() {
        let mut row = |_: &[Option<&str>]| Ok(());
        let mut listening = Listening::new(&mut row, None);
        for detail in ["1", "\"text\"", "[]", "true", "null", "{}", "{\"job\": 1}"] {
            listening.notice(&Report { detail: Some(detail.to_owned()), ..Report::default() });
        }
        assert!(listening.told.is_none() && listening.failure.is_none());
    }

    #[test]
    fn passwords_of_addresses_were_shown() {
        let shown = |text: &str| shown(OsStr::new(text)).into_owned();
        assert_eq!(
            shown("postgres://a:s3:c@ret@h:5/d?sslmode=require"),
            "postgres://a:***@h:5/d?sslmode=require"
        );
        assert_eq!(shown("postgresql://h/d?password=s3&user=a"), "postgresql://h/d?password=***&user=a");
        assert_eq!(shown("postgres://h/d?pass%77ord=s3"), "postgres://h/d?pass%77ord=***");
        assert_eq!(shown("postgres://a@h/d"), "postgres://a@h/d");
        assert_eq!(shown("host=h password = 's3 \\' c' dbname=d"), "host=h password =*** dbname=d");
        assert_eq!(shown("user='a b' password=s3\\ c"), "user='a b' password=***");
        assert_eq!(shown("shop:x@y.gnt"), "shop:x@y.gnt");
    }

    #[test]
    fn an_error_of_closing_was_lost_behind_a_pipe_that_nobody_reads() {
        let closing = || Err(gannet_store::Error::Poisoned("a sync failed".into()));
        let done = behind_closing(Ok(1), closing(), "a.gnt").unwrap_err();
        assert!(format!("{done:#}").contains("a sync failed"));
        let failed = behind_closing(Err::<(), _>(anyhow!("why")), closing(), "a.gnt").unwrap_err();
        assert_eq!(failed.to_string(), "why");
        assert_eq!(behind_closing(Ok(1), Ok(()), "a.gnt").unwrap(), 1);
    }
}
