//! `gannet dump`: a database as text; from a file that nobody has open, from one that a server has open, or from an address.

use crate::arguments::{Dump, DumpFormat};
use crate::interrupt;
use crate::job::{self, Place};
use crate::output::printable;
use anyhow::{Context, Result, anyhow};
use gannet_base::units::format_size;
use gannet_server::frontend::{Column, Connection, Receiver, Report};
use gannet_sql::dump::{Figures, Format, Options, Script, Target, Writer, dump};
use gannet_store::{JobKind, JobOrder, JobReport, Unit, Watch};
use serde_json::json;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// How a session writes values, so that they are read as the same ones everywhere; then what it sees is held.
const SESSION: [&str; 6] = [
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, MDY'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 1",
    "SET statement_timeout = 0",
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
];

pub(crate) fn run(arguments: &Dump) -> Result<()> {
    interrupt::listen()?;
    let to_stream = arguments.destination == Path::new("-");
    let place = Place::find(&arguments.database, arguments.opening, "dump")?;
    let by_server = place.is_server();
    let name = arguments.database.to_string_lossy();
    let options = options(arguments);
    let mut stdout = io::stdout();
    let target = match to_stream {
        true => Target::Stream(&mut stdout),
        false => Target::Path(arguments.destination.clone()),
    };
    let order =
        JobOrder { about: format!("to {}", arguments.destination.display()), ..JobOrder::new(JobKind::Dump) };
    let failed = || format!("cannot dump {name:?}");
    let (figures, job) = match place {
        Place::File(store) => {
            let done = job::here(store.jobs(), order, |watch| dump(&store, &options, target, watch));
            let closed = store.close();
            let done = done.with_context(failed)?;
            closed.with_context(|| format!("cannot close {name:?}"))?;
            done
        }
        Place::Beside(mut connection) if !to_stream => {
            let told = job::by_server(&mut connection, &statement(arguments)?, &mut |_| Ok(()))
                .with_context(|| format!("the server could not dump {name:?}"))?;
            let figures = serde_json::from_value(told.detail["figures"].clone())
                .context("the server said nothing of the dump")?;
            (figures, told.job)
        }
        Place::Beside(connection) | Place::Address(connection) => {
            let engine = arguments.opening.engine()?;
            let disk = Arc::clone(engine.disk());
            let work = |watch: &mut Watch<'_>| -> Result<Figures> {
                let writer = Writer::begin(disk, target, options.format, options.mode)?;
                by_connection(connection, &options, writer, watch)
            };
            job::here(&engine.jobs(), order, work).with_context(failed)?
        }
    };
    let cached = job::cached(&arguments.database)?.map(|bytes| bytes + cached(&arguments.destination));
    // Standard output has the dump.
    let mut out: Box<dyn Write> =
        if to_stream { Box::new(io::stderr()) } else { Box::new(io::stdout().lock()) };
    if arguments.json {
        let report = json!({
            "database": name,
            "destination": arguments.destination.to_string_lossy(),
            "by_server": by_server,
            "tables": figures.tables,
            "rows": figures.rows,
            "bytes": figures.bytes,
            "job": job::as_json(&job, cached),
        });
        writeln!(out, "{report:#}")?;
    } else {
        tell(&mut *out, arguments, by_server, figures, &job, cached)?;
    }
    out.flush()?;
    Ok(())
}

/// Bytes that the OS has cached of a dump.
fn cached(destination: &Path) -> u64 {
    let files = std::fs::read_dir(destination).map_or_else(
        |_| vec![destination.to_owned()],
        |entries| entries.flatten().map(|entry| entry.path()).collect(),
    );
    gannet_io::residency(&files).cached_bytes().unwrap_or(0)
}

fn options(arguments: &Dump) -> Options {
    Options {
        format: match arguments.format {
            DumpFormat::Sql => Format::Sql,
            DumpFormat::Csv => Format::Csv,
        },
        schema: !arguments.data_only,
        data: !arguments.schema_only,
        tables: arguments.tables.clone(),
        jobs: threads(arguments.jobs),
        mode: arguments.opening.io,
        snapshot_limit: None,
    }
}

/// Threads that work on text.
pub(crate) fn threads(asked: Option<u32>) -> usize {
    let usual = || std::thread::available_parallelism().map_or(1, |count| count.get().min(8));
    asked.map_or_else(usual, |count| count as usize)
}

fn tell(
    out: &mut dyn Write,
    arguments: &Dump,
    by_server: bool,
    figures: Figures,
    job: &JobReport,
    cached: Option<u64>,
) -> Result<()> {
    let place = if by_server { ", through its server" } else { "" };
    writeln!(
        out,
        "{} is dumped to {}{place}: {} tables, {} rows, {}",
        printable(&arguments.database.to_string_lossy()),
        printable(&arguments.destination.to_string_lossy()),
        figures.tables,
        figures.rows,
        format_size(figures.bytes)
    )?;
    job::tell(out, job, cached)
}

// ---- by a server -----------------------------------------------------------------------------------------------------

/// The statement by which a server of this machine does it, as a job of its own that gives way to its users.
fn statement(arguments: &Dump) -> Result<String> {
    let mut text = format!("DUMP DATABASE TO {}", job::absolute(&arguments.destination)?);
    if arguments.format == DumpFormat::Csv {
        text += " CSV";
    }
    if arguments.schema_only {
        text += " SCHEMA ONLY";
    } else if arguments.data_only {
        text += " DATA ONLY";
    }
    for (place, table) in arguments.tables.iter().enumerate() {
        text += if place == 0 { " TABLE " } else { ", " };
        text += &format!("\"{}\"", table.replace('"', "\"\""));
    }
    if let Some(jobs) = arguments.jobs {
        text += &format!(" JOBS {jobs}");
    }
    Ok(text + " VERBOSE")
}

/// Takes everything from one session, in one transaction that sees one moment.
fn by_connection(
    mut connection: Connection,
    options: &Options,
    mut writer: Writer<'_>,
    watch: &mut Watch<'_>,
) -> Result<Figures> {
    for statement in SESSION {
        query(&mut connection, statement, &mut Answer::default())?;
    }
    let mut answer = Answer::default();
    query(&mut connection, "SELECT pg_catalog.gannet_definitions()", &mut answer)
        .context("the server does not say what is defined: it is no Gannet of this release")?;
    let script: Script = serde_json::from_str(&answer.0).context("definitions of another form")?;
    let script = script.only(&options.tables)?;
    if options.schema {
        writer.before(&script)?;
    }
    if options.data {
        let total = script.tables.iter().map(|table| table.bytes).sum();
        watch.job().phase("writes rows", Unit::Bytes, total);
        let format = if options.format == Format::Csv { " WITH (FORMAT csv)" } else { "" };
        let mut before = 0;
        for table in &script.tables {
            watch.job().note(&table.name);
            writer.begin_table(table)?;
            let statement = format!("COPY {} TO STDOUT{format}", table.copy_target());
            let mut taking =
                Taking { writer: &mut writer, watch, gathered: Vec::new(), rows: 0, failure: None };
            let done = connection.query(&statement, &mut taking);
            taking.hand_on();
            if let Some(failure) = taking.failure {
                return Err(failure);
            }
            done.map_err(|failure| anyhow!("{failure}"))?;
            before += table.bytes;
            watch.job().set_done(before);
            writer.end_table()?;
        }
    }
    writer.after(&script, options.data, options.schema)?;
    query(&mut connection, "COMMIT", &mut Answer::default())?;
    watch.look()?;
    Ok(writer.finish()?)
}

pub(crate) fn query(connection: &mut Connection, sql: &str, answer: &mut Answer) -> Result<()> {
    connection.query(sql, answer).map_err(|failure| anyhow!("{failure}"))
}

/// The last value of the last row.
#[derive(Default)]
pub(crate) struct Answer(pub(crate) String);

impl Receiver for Answer {
    fn columns(&mut self, _columns: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, values: &[Option<&str>]) -> io::Result<()> {
        self.0 = values.last().copied().flatten().unwrap_or_default().to_owned();
        Ok(())
    }

    fn complete(&mut self, _tag: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _notice: &Report) {}
}

/// Lines that are handed on together.
const GATHERED: usize = 256 << 10;

/// Takes the rows of a table.
struct Taking<'a, 'w, 't, 'j> {
    writer: &'a mut Writer<'w>,
    watch: &'t mut Watch<'j>,
    gathered: Vec<u8>,
    rows: u64,
    failure: Option<anyhow::Error>,
}

impl Taking<'_, '_, '_, '_> {
    fn hand_on(&mut self) {
        if self.failure.is_none() {
            self.failure = self.try_hand_on().err();
        }
    }

    fn try_hand_on(&mut self) -> Result<()> {
        self.watch.look()?;
        self.writer.rows(&self.gathered, self.rows)?;
        self.watch.job().count_written(self.gathered.len() as u64);
        self.watch.job().advance(self.gathered.len() as u64);
        self.gathered.clear();
        self.rows = 0;
        Ok(())
    }
}

impl Receiver for Taking<'_, '_, '_, '_> {
    fn columns(&mut self, _columns: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _values: &[Option<&str>]) -> io::Result<()> {
        Ok(())
    }

    fn complete(&mut self, _tag: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _notice: &Report) {}

    fn copy_write(&mut self, data: &[u8]) -> io::Result<()> {
        self.gathered.extend_from_slice(data);
        // A message is a line: our server sends them so, as PostgreSQL does.
        self.rows += 1;
        if self.gathered.len() >= GATHERED {
            self.hand_on();
        }
        match &self.failure {
            Some(failure) => Err(io::Error::other(failure.to_string())),
            None => Ok(()),
        }
    }

    fn copy_out(&mut self) -> io::Result<()> {
        Ok(())
    }
}
