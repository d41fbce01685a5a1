//! `gannet load`: a dump into a database; into a file that nobody has open, into one that a server has open, or at an address.

mod server;
mod statements;

use crate::arguments::{Load, OnError, OwnLog};
use crate::dump::threads;
use crate::interrupt;
use crate::job::{self, CachedBefore, Place};
use crate::kv::create_options;
use crate::output::{self, printable};
use crate::serve;
use anyhow::{Context, Result, bail};
use gannet_base::thread;
use gannet_base::units::format_size;
use gannet_io::{AlignedBuffer, Class, Disk, RealDisk};
use gannet_sql::load::{Embedded, Options, Origin, Outcome, foreign, listening, load};
use gannet_sql::session::Reason;
use gannet_sql::{Database, Error};
use gannet_store::{JobKind, JobOrder, JobReport, OpenOptions};
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How often it is looked for Ctrl-C while nothing comes of a stream.
const LISTEN_EVERY: Duration = Duration::from_millis(20);

pub(crate) fn run(arguments: &Load) -> Result<()> {
    interrupt::listen()?;
    let source = Source::find(&arguments.source)?;
    let options = Options {
        jobs: threads(arguments.jobs),
        skip: arguments.on_error == OnError::Skip,
        mode: arguments.opening.io,
        alone: true,
    };
    let name = job::shown(&arguments.database);
    let order =
        JobOrder { about: format!("from {}", arguments.source.display()), ..JobOrder::new(JobKind::Load) };
    let partial = if arguments.create { Some(create(arguments)?) } else { None };
    let cached = CachedBefore::look(&arguments.database).and(&arguments.source);
    // What is still to be made has no name to be archived under; its archive begins with its next opening.
    let archive_to = arguments.log.archive_to.clone().filter(|_| partial.is_none());
    let log = OwnLog { archive_to, ..arguments.log };
    let terms = (arguments.opening, &log, arguments.pacing);
    let place = Place::find(partial.as_ref().unwrap_or(&arguments.database), terms, "load")?;
    let by_server = place.is_server();
    let failed = || match &partial {
        Some(partial) => format!(
            "cannot load {:?} into {name:?}; what was loaded until then, if anything, is in {partial:?}, which the next load --create replaces",
            arguments.source
        ),
        None => format!("cannot load {:?} into {name:?}", arguments.source),
    };
    let mut by_statements = None;
    let (outcome, job) = match place {
        Place::File(store) => {
            // Others may wait for the machine: beside a full server it took half of the processors. Nobody waits for a database that is not complete yet.
            match partial {
                _ if arguments.pacing.is_full() => {}
                Some(_) => thread::stand_by(),
                None => thread::step_back(),
            }
            let database = Database::with(store, Path::new(&arguments.database), &serve::owner())?;
            let engine = database.store().engine().clone();
            let done = into_file(&database, order, source.origin(), &options);
            // A close takes only so long: it is to find little that is not written yet, for what gets its name was closed in good order.
            let written =
                if partial.is_some() && done.is_ok() { database.store().checkpoint() } else { Ok(()) };
            let closed = database.close_reporting();
            let done = done.with_context(failed)?;
            written.with_context(failed)?;
            let archive = closed.with_context(|| format!("cannot close {name:?}"))?;
            job::tell_of_archive(archive.as_ref());
            if let Some(partial) = &partial {
                // Now it is complete.
                engine.rename(Path::new(partial), Path::new(&arguments.database)).with_context(|| {
                    format!(
                        "all of {:?} is loaded into {partial:?}, and is complete, but could not get its name: rename that file when it was opened \
                         and closed once",
                        arguments.source
                    )
                })?;
            }
            done
        }
        Place::Beside(_) if partial.is_some() => bail!("a server has opened {partial:?} meanwhile"),
        Place::Beside(mut connection) if !matches!(source, Source::Stream(..)) => {
            server::load_there(&mut connection, arguments).with_context(failed)?
        }
        Place::Beside(connection) | Place::Address(connection) => {
            let loaded = server::load_from_here(connection, arguments, source, order, &options);
            let loaded = loaded.with_context(failed)?;
            by_statements = loaded.by_statements;
            (loaded.outcome, loaded.job)
        }
    };
    let cached = cached.left_behind();
    let how = How { by_server, by_statements };
    let mut out = io::stdout().lock();
    let told = match arguments.json {
        true => writeln!(out, "{:#}", as_json(arguments, &how, &outcome, &job, cached)).map_err(Into::into),
        false => tell(&mut out, arguments, &how, &outcome, &job, cached),
    };
    let told = output::said(told.and_then(|()| Ok(out.flush()?)), "the load is done");
    crate::unless_broken_pipe(told)?;
    match outcome.bad_rows + outcome.bad_statements {
        0 => Ok(()),
        _ => bail!("{} bad rows and {} statements were skipped", outcome.bad_rows, outcome.bad_statements),
    }
}

/// What is loaded.
enum Source {
    File(PathBuf),
    Folder(PathBuf),
    /// And how messages call it.
    Stream(Stream, String),
}

impl Source {
    fn find(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Source::Stream(Stream::begin(io::stdin()), "standard input".to_owned()));
        }
        let kind = std::fs::metadata(path).with_context(|| format!("cannot read {path:?}"))?;
        Ok(if kind.is_dir() {
            if holds_backups(path) {
                bail!("{path:?} is a folder of backups: gannet restore makes a database of one");
            }
            Source::Folder(path.to_owned())
        } else if kind.is_file() {
            if let Some(what) = foreign_file(path) {
                bail!("{path:?} is {what}");
            }
            Source::File(path.to_owned())
        } else {
            // A pipe with a name.
            Source::Stream(Stream::begin(open_pipe(path)?), path.display().to_string())
        })
    }

    /// As it is read here.
    fn origin(self) -> Origin {
        match self {
            Source::File(path) => Origin::File(path),
            Source::Folder(path) => Origin::Folder(path),
            Source::Stream(stream, name) => Origin::Stream(Box::new(Listening(stream)), name),
        }
    }
}

/// Whether there are backups in a folder, and no dump.
fn holds_backups(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
    let is_backup = |name: &OsString| Path::new(name).extension().is_some_and(|end| end == "gntbackup");
    names.iter().any(is_backup) && !names.iter().any(|name| name == "manifest.json")
}

/// What a file is that is no dump, to be known before anything is made for it; one that is short, or cannot be read here, is left to the load.
fn foreign_file(path: &Path) -> Option<&'static str> {
    let file = RealDisk::default().open(path, &gannet_io::OpenOptions::read()).ok()?;
    let mut begin = AlignedBuffer::zeroed(file.alignment().max(4096));
    file.read_at(Class::Maintenance, 0, &mut begin).ok()?;
    foreign(&begin)
}

/// Opens a pipe, which waits until somebody writes to it, or Ctrl-C comes.
fn open_pipe(path: &Path) -> Result<std::fs::File> {
    let (send, opened) = mpsc::sync_channel(1);
    let name = path.to_owned();
    // It is not waited for: nobody may ever come.
    std::thread::spawn(move || send.send(std::fs::File::open(name)));
    loop {
        match opened.recv_timeout(LISTEN_EVERY) {
            Ok(opened) => return opened.with_context(|| format!("cannot read {path:?}")),
            Err(mpsc::RecvTimeoutError::Timeout) => interrupt::check()?,
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("cannot read {path:?}: its thread has ended"),
        }
    }
}

/// Bytes of a stream that are read at a time.
const STREAM_BLOCK: usize = 256 << 10;

/// A stream that a thread of its own reads: Ctrl-C ends the waiting for it, however long nothing comes.
pub(crate) struct Stream {
    blocks: mpsc::Receiver<io::Result<Vec<u8>>>,
    block: io::Cursor<Vec<u8>>,
}

impl Stream {
    pub(crate) fn begin(mut source: impl io::Read + Send + 'static) -> Self {
        // One is read while another one is taken.
        let (send, blocks) = mpsc::sync_channel(1);
        // It is not waited for: it may never come back.
        std::thread::spawn(move || {
            loop {
                let mut block = vec![0; STREAM_BLOCK];
                let read = match source.read(&mut block) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read,
                };
                let is_last = !matches!(read, Ok(1..));
                let read = read.map(|count| {
                    block.truncate(count);
                    block
                });
                if send.send(read).is_err() || is_last {
                    return;
                }
            }
        });
        Stream { blocks, block: io::Cursor::default() }
    }
}

impl Stream {
    /// The same as a read; `None` where nothing comes for a while.
    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let count = self.block.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(Some(count));
            }
            match self.blocks.recv_timeout(LISTEN_EVERY) {
                Ok(block) => {
                    let block = block?;
                    if block.is_empty() {
                        return Ok(Some(0));
                    }
                    self.block = io::Cursor::new(block);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    interrupt::check().map_err(io::Error::other)?;
                    return Ok(None);
                }
                // It was read to its end.
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(Some(0)),
            }
        }
    }
}

impl io::Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(count) = self.try_read(buffer)? {
                return Ok(count);
            }
        }
    }
}

/// A stream that says so where nothing comes for a while, so that a load that has failed does not wait for more.
struct Listening(Stream);

impl io::Read for Listening {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

/// Makes the database that is loaded into, by the name that it has until the load is complete.
fn create(arguments: &Load) -> Result<OsString> {
    let path = Path::new(&arguments.database);
    if arguments.database.to_str().is_some_and(gannet_server::frontend::Address::is_address) {
        bail!("--create makes a database file, not one on a server");
    }
    let engine = arguments.opening.engine()?;
    if !engine.is_missing(path)? {
        bail!("{path:?} exists: without --create it is loaded into");
    }
    engine.clear_name(path)?;
    let mut name = arguments.database.clone();
    name.push(".partial");
    let partial = Path::new(&name);
    if !engine.is_missing(partial)? {
        engine.remove(partial).with_context(|| {
            format!("cannot replace {partial:?}, as the load would be called until it is complete")
        })?;
    }
    let create = create_options(engine.budget().limit(), arguments.page_size);
    let open = OpenOptions {
        wal_limit: arguments.log.wal_limit,
        mode: arguments.opening.io,
        ..OpenOptions::default()
    };
    Database::create(&engine, partial, &create, &open, &serve::owner())
        .and_then(Database::close)
        .with_context(|| format!("cannot create {partial:?}"))?;
    Ok(name)
}

/// Whether Ctrl-C came.
fn asked() -> bool {
    interrupt::check().is_err()
}

fn into_file(
    database: &Database,
    order: JobOrder,
    origin: Origin,
    options: &Options,
) -> Result<(Outcome, JobReport)> {
    let disk = Arc::clone(database.store().engine().disk());
    let mut destination = Embedded(database.session(&database.owner())?);
    let interrupt = destination.0.interrupt();
    let cancel = move || interrupt.interrupt(Reason::User);
    job::here(database.store().jobs(), order, |watch| {
        let outcome = listening(&asked, &cancel, || load(origin, &disk, &mut destination, options, watch))?;
        watch.job().count_read(outcome.bytes);
        Ok::<_, Error>(outcome)
    })
}

// ---- what is said ----------------------------------------------------------------------------------------------------

/// Who has loaded it.
struct How {
    by_server: bool,
    /// A server that did not do it by itself was given statements: why so.
    by_statements: Option<String>,
}

fn as_json(
    arguments: &Load,
    how: &How,
    outcome: &Outcome,
    job: &JobReport,
    cached: Option<u64>,
) -> serde_json::Value {
    json!({
        "source": arguments.source.to_string_lossy(),
        "database": job::shown(&arguments.database),
        "by_server": how.by_server,
        "by_statements": how.by_statements,
        "tables": outcome.tables,
        "built": outcome.built,
        "rows": outcome.rows,
        "statements": outcome.statements,
        "bytes": outcome.bytes,
        "bad_rows": outcome.bad_rows,
        "bad_statements": outcome.bad_statements,
        "problems": outcome.problems,
        "passed_over": outcome.passed_over,
        "job": job::as_json(job, cached),
    })
}

fn tell(
    out: &mut dyn Write,
    arguments: &Load,
    how: &How,
    outcome: &Outcome,
    job: &JobReport,
    cached: Option<u64>,
) -> Result<()> {
    for problem in &outcome.problems {
        writeln!(out, "skipped: {}", printable(problem))?;
    }
    let unlisted = outcome.bad_rows + outcome.bad_statements - outcome.problems.len() as u64;
    if unlisted > 0 {
        writeln!(out, "skipped: {unlisted} more")?;
    }
    let place = match &how.by_statements {
        Some(why) => format!(", by statements ({})", printable(why)),
        None if how.by_server => ", through its server".to_owned(),
        None => String::new(),
    };
    writeln!(
        out,
        "{} is loaded into {}{place}: {} tables, {} rows, {} statements, {}",
        printable(&arguments.source.to_string_lossy()),
        printable(&job::shown(&arguments.database)),
        outcome.tables,
        outcome.rows,
        outcome.statements,
        format_size(outcome.bytes)
    )?;
    if !outcome.passed_over.is_empty() {
        let kinds = outcome.passed_over.iter().map(|(kind, count)| format!("{kind} ({count})"));
        writeln!(
            out,
            "  passed over, or taken as the nearest there is: {}",
            kinds.collect::<Vec<_>>().join(", ")
        )?;
    }
    job::tell(out, job, cached)
}
