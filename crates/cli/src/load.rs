//! `gannet load`: a dump into a database; into a file that nobody has open, into one that a server has open, or at an address.

use crate::arguments::{Load, OnError};
use crate::dump::threads;
use crate::interrupt;
use crate::job::{self, CachedBefore, Place};
use crate::kv::create_options;
use crate::output::printable;
use crate::serve;
use anyhow::{Context, Result, anyhow, bail};
use gannet_base::units::format_size;
use gannet_server::frontend::{Column, Connection, Failure, Receiver, Report};
use gannet_sql::load::{Destination, Embedded, More, Options, Origin, Outcome, listening, load};
use gannet_sql::session::{Reason, TransactionStatus};
use gannet_sql::{Database, Error, SqlState};
use gannet_store::{JobKind, JobOrder, JobReport, OpenOptions, Watch};
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How often it is looked for Ctrl-C while nothing comes of a stream.
const LISTEN_EVERY: Duration = Duration::from_millis(20);

pub(crate) fn run(arguments: &Load) -> Result<()> {
    interrupt::listen()?;
    let origin = origin(&arguments.source)?;
    let options = Options {
        jobs: threads(arguments.jobs),
        skip: arguments.on_error == OnError::Skip,
        mode: arguments.opening.io,
        alone: true,
    };
    let name = arguments.database.to_string_lossy();
    let order =
        JobOrder { about: format!("from {}", arguments.source.display()), ..JobOrder::new(JobKind::Load) };
    let partial = if arguments.create { Some(create(arguments)?) } else { None };
    let cached = CachedBefore::look(&arguments.database)?.and(&arguments.source)?;
    let place = Place::find(partial.as_ref().unwrap_or(&arguments.database), arguments.opening, "load")?;
    let by_server = place.is_server();
    let failed = || match &partial {
        Some(partial) => format!(
            "cannot load {:?} into {name:?}; what was loaded until then, if anything, is in {partial:?}, which the next load --create replaces",
            arguments.source
        ),
        None => format!("cannot load {:?} into {name:?}", arguments.source),
    };
    let (outcome, job) = match place {
        Place::File(store) => {
            let database = Database::with(store, Path::new(&arguments.database), &serve::owner())?;
            let engine = database.store().engine().clone();
            let done = into_file(&database, order, origin, &options);
            // A close takes only so long: it is to find little that is not written yet, for what gets its name was closed in good order.
            let written =
                if partial.is_some() && done.is_ok() { database.store().checkpoint() } else { Ok(()) };
            let closed = database.close();
            let done = done.with_context(failed)?;
            written.with_context(failed)?;
            closed.with_context(|| format!("cannot close {name:?}"))?;
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
        Place::Beside(mut connection) if !matches!(origin, Origin::Stream(..)) => {
            let told = job::by_server(&mut connection, &statement(arguments)?, &mut |_| Ok(()));
            let told = told.with_context(failed)?;
            let outcome = serde_json::from_value(told.detail["outcome"].clone())
                .context("the server said nothing of the load")?;
            (outcome, told.job)
        }
        Place::Beside(connection) | Place::Address(connection) => {
            let engine = arguments.opening.engine()?;
            let disk = Arc::clone(engine.disk());
            let mut destination = Remote(connection);
            let canceller = destination.0.canceller();
            // A server that takes no request now is asked again.
            let cancel = move || drop(canceller.cancel());
            let work = |watch: &mut Watch<'_>| {
                listening(&asked, &cancel, || load(origin, &disk, &mut destination, &options, watch))
            };
            job::here(&engine.jobs(), order, work).with_context(failed)?
        }
    };
    let cached = cached.left_behind()?;
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{:#}", as_json(arguments, by_server, &outcome, &job, cached))?;
    } else {
        tell(&mut out, arguments, by_server, &outcome, &job, cached)?;
    }
    out.flush()?;
    match outcome.bad_rows + outcome.bad_statements {
        0 => Ok(()),
        _ => bail!("{} bad rows and {} statements were skipped", outcome.bad_rows, outcome.bad_statements),
    }
}

fn origin(source: &Path) -> Result<Origin> {
    if source == Path::new("-") {
        return Ok(Origin::Stream(Box::new(Stream::begin(io::stdin())), "standard input".to_owned()));
    }
    let kind = std::fs::metadata(source).with_context(|| format!("cannot read {source:?}"))?;
    Ok(if kind.is_dir() {
        Origin::Folder(source.to_owned())
    } else if kind.is_file() {
        Origin::File(source.to_owned())
    } else {
        // A pipe with a name.
        let stream = std::fs::File::open(source).with_context(|| format!("cannot read {source:?}"))?;
        Origin::Stream(Box::new(Stream::begin(stream)), source.display().to_string())
    })
}

/// Bytes of a stream that are read at a time.
const STREAM_BLOCK: usize = 256 << 10;

/// A stream that a thread of its own reads: Ctrl-C ends the waiting for it, however long nothing comes.
struct Stream {
    blocks: mpsc::Receiver<io::Result<Vec<u8>>>,
    block: io::Cursor<Vec<u8>>,
}

impl Stream {
    fn begin(mut source: impl io::Read + Send + 'static) -> Self {
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

impl io::Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.block.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            match self.blocks.recv_timeout(LISTEN_EVERY) {
                Ok(block) => {
                    let block = block?;
                    if block.is_empty() {
                        return Ok(0);
                    }
                    self.block = io::Cursor::new(block);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => interrupt::check().map_err(io::Error::other)?,
                // It was read to its end.
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
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
    let open = OpenOptions { mode: arguments.opening.io, ..OpenOptions::default() };
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

fn as_json(
    arguments: &Load,
    by_server: bool,
    outcome: &Outcome,
    job: &JobReport,
    cached: Option<u64>,
) -> serde_json::Value {
    json!({
        "source": arguments.source.to_string_lossy(),
        "database": arguments.database.to_string_lossy(),
        "by_server": by_server,
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
    by_server: bool,
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
    let place = if by_server { ", through its server" } else { "" };
    writeln!(
        out,
        "{} is loaded into {}{place}: {} tables, {} rows, {} statements, {}",
        printable(&arguments.source.to_string_lossy()),
        printable(&arguments.database.to_string_lossy()),
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

// ---- on a server -----------------------------------------------------------------------------------------------------

/// The statement by which a server of this machine does it, as a job of its own.
fn statement(arguments: &Load) -> Result<String> {
    let mut text = format!("LOAD DATABASE FROM {}", job::absolute(&arguments.source)?);
    if arguments.on_error == OnError::Skip {
        text += " ON ERROR SKIP";
    }
    if let Some(jobs) = arguments.jobs {
        text += &format!(" JOBS {jobs}");
    }
    Ok(text + " VERBOSE")
}

struct Remote(Connection);

impl Destination for Remote {
    fn run(&mut self, sql: &str) -> gannet_sql::Result<()> {
        self.0.query(sql, &mut Sender { more: None, rows: 0, failure: None }).map_err(failure)
    }

    fn copy(&mut self, sql: &str, more: More<'_>) -> gannet_sql::Result<u64> {
        let mut sender = Sender { more: Some(more), rows: 0, failure: None };
        let done = self.0.query(sql, &mut sender);
        match sender.failure {
            Some(error) => Err(error),
            None => done.map(|()| sender.rows).map_err(failure),
        }
    }

    fn is_idle(&self) -> bool {
        self.0.status() == TransactionStatus::Idle
    }
}

/// What the server says, as far as it knows the state; whether the load can go on is a matter of its class.
fn failure(failure: Failure) -> Error {
    match failure {
        Failure::Server(report) => {
            let state = SqlState::of(&report.state).unwrap_or(SqlState::INTERNAL_ERROR);
            let mut error = Error::new(state, report.message.clone());
            if let Some(detail) = report.detail.clone() {
                error = error.detail(detail);
            }
            if let Some(context) = report.context.clone() {
                error = error.context(context);
            }
            error
        }
        other => Error::new(SqlState::IO_ERROR, anyhow!("{other}").to_string()),
    }
}

struct Sender<'m> {
    more: Option<More<'m>>,
    rows: u64,
    failure: Option<Error>,
}

impl Receiver for Sender<'_> {
    fn columns(&mut self, _columns: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _values: &[Option<&str>]) -> io::Result<()> {
        Ok(())
    }

    fn complete(&mut self, tag: &str) -> io::Result<()> {
        self.rows = tag.rsplit(' ').next().and_then(|rows| rows.parse().ok()).unwrap_or(0);
        Ok(())
    }

    fn notice(&mut self, _notice: &Report) {}

    fn copy_in(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> io::Result<bool> {
        let Some(more) = &mut self.more else { return Ok(false) };
        more(data).map_err(|error| {
            let told = io::Error::other(error.to_string());
            self.failure = Some(error);
            told
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_at_the_server_is_no_bad_row() {
        let state = |code: &str| {
            let report = Report { state: code.to_owned(), ..Report::default() };
            failure(Failure::Server(Box::new(report))).state()
        };
        assert_eq!(state("53100"), SqlState::DISK_FULL);
        assert_eq!(state("23505"), SqlState::UNIQUE_VIOLATION);
        // Those that are not known have a class.
        assert!(state("53400").0.starts_with("53"));
        assert!(state("22P06").0.starts_with("22"));
        assert_eq!(state("?"), SqlState::INTERNAL_ERROR);
    }
}
