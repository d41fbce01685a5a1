//! `gannet dump`: a database as text; from a file that nobody has open, from one that a server has open, or from an address.

use crate::arguments::{Dump, DumpFormat};
use crate::interrupt;
use crate::job::{self, CachedBefore, Place, Product, ToStdout, Told};
use crate::output::{self, printable};
use crate::standard_output::StandardOutput;
use anyhow::{Context, Result, bail};
use gannet_base::units::format_size;
use gannet_server::frontend::Connection;
use gannet_sql::TableName;
use gannet_sql::dump::{Figures, Format, Keeper, Options, Target, dump};
use gannet_store::{JobKind, JobOrder, JobReport};
use serde_json::json;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

pub(crate) fn run(arguments: &Dump) -> Result<()> {
    interrupt::listen()?;
    let to_stream = arguments.destination == Path::new("-");
    if !to_stream {
        no_link(&arguments.destination)?;
    }
    let cached = CachedBefore::look(&arguments.database).and(&arguments.destination);
    let place =
        Place::find(&arguments.database, (arguments.opening, &arguments.log, arguments.pacing), "dump")?;
    let by_server = place.is_server();
    let name = job::shown(&arguments.database);
    let options = options(arguments);
    let mut stdout = to_stream.then(StandardOutput::new).transpose()?;
    let target = match &mut stdout {
        Some(stdout) => Target::Stream(stdout),
        None => Target::Path(arguments.destination.clone()),
    };
    let order =
        JobOrder { about: format!("to {}", arguments.destination.display()), ..JobOrder::new(JobKind::Dump) };
    let failed = || format!("cannot dump {name:?}");
    let (figures, job) = match place {
        Place::File(store) => {
            let done = job::here(store.jobs(), order, |watch| dump(&store, &options, target, watch));
            let closed = job::close(store);
            let done = done.with_context(failed)?;
            closed.with_context(|| format!("cannot close {name:?}"))?;
            done
        }
        Place::Beside(mut connection) if !to_stream => {
            // As a file of its own.
            let path = job::absolute(&arguments.destination)?;
            let told = job::by_server(&mut connection, &statement(&path, arguments), &mut |_| Ok(()));
            figures(told.with_context(failed)?)?
        }
        Place::Beside(connection) | Place::Address(connection) => {
            let told = match to_stream {
                true => to_stdout(connection, arguments),
                false => to_path(connection, arguments, &options),
            };
            figures(told.with_context(failed)?)?
        }
    };
    let cached = cached.left_behind();
    // Standard output has the dump.
    let mut out: Box<dyn Write> =
        if to_stream { Box::new(io::stderr()) } else { Box::new(io::stdout().lock()) };
    let said = if arguments.json {
        let report = json!({
            "database": name,
            "destination": arguments.destination.to_string_lossy(),
            "by_server": by_server,
            "tables": figures.tables,
            "rows": figures.rows,
            "bytes": figures.bytes,
            "warning": figures.warning,
            "job": job::as_json(&job, cached),
        });
        writeln!(out, "{report:#}").map_err(Into::into)
    } else {
        tell(&mut *out, arguments, by_server, figures, &job, cached)
    };
    match to_stream {
        // Without a standard error there is nobody to tell.
        true => Ok(()),
        false => output::said(said.and_then(|()| Ok(out.flush()?)), "the dump is complete"),
    }
}

/// Refuses a symbolic link, also one that leads nowhere: at the end the dump could not get its name.
fn no_link(path: &Path) -> Result<()> {
    match std::fs::read_link(path) {
        Ok(target) => bail!("{path:?} is a symbolic link to {target:?}: name the file or folder itself"),
        Err(_) => Ok(()),
    }
}

fn options(arguments: &Dump) -> Options {
    Options {
        format: match arguments.format {
            DumpFormat::Sql => Format::Sql,
            DumpFormat::Csv => Format::Csv,
        },
        schema: !arguments.data_only,
        data: !arguments.schema_only,
        tables: arguments.tables.iter().map(|table| TableName::parse(table)).collect(),
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
        printable(&job::shown(&arguments.database)),
        printable(&arguments.destination.to_string_lossy()),
        figures.tables,
        figures.rows,
        format_size(figures.bytes)
    )?;
    if let Some(warning) = figures.warning {
        writeln!(out, "  warning: {}", printable(&warning))?;
    }
    job::tell(out, job, cached)
}

// ---- by a server -----------------------------------------------------------------------------------------------------

/// The statement by which a server does it, to a file of its machine or to the client.
fn statement(target: &str, arguments: &Dump) -> String {
    let mut text = format!("DUMP DATABASE TO {target}");
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
        text += &TableName::parse(table).to_string();
    }
    if let Some(jobs) = arguments.jobs {
        text += &format!(" JOBS {jobs}");
    }
    text + " VERBOSE"
}

fn figures(told: Told) -> Result<(Figures, JobReport)> {
    let figures = serde_json::from_value(told.detail["figures"].clone())
        .context("the server said nothing of the dump")?;
    Ok((figures, told.job))
}

fn to_stdout(mut connection: Connection, arguments: &Dump) -> Result<Told> {
    if arguments.format == DumpFormat::Csv {
        bail!("csv has a file for each table: it needs a folder, or --format sql");
    }
    let mut product = ToStdout(StandardOutput::new()?);
    let told = job::product_of_server(&mut connection, &statement("STDOUT", arguments), &mut product, true)?;
    product.0.flush()?;
    Ok(told)
}

/// Keeps what a server sends, in a file or a folder of this machine.
fn to_path(mut connection: Connection, arguments: &Dump, options: &Options) -> Result<Told> {
    let engine = arguments.opening.engine()?;
    let disk = Arc::clone(engine.disk());
    let path = arguments.destination.clone();
    let mut kept = Kept(Keeper::begin(disk, path, options.format, options.mode)?);
    let told = job::product_of_server(&mut connection, &statement("STDOUT", arguments), &mut kept, true)?;
    kept.0.finish()?;
    Ok(told)
}

struct Kept(Keeper);

impl Product for Kept {
    fn file(&mut self, name: &str) -> io::Result<()> {
        self.0.begin_file(name).map_err(io::Error::other)
    }

    fn data(&mut self, data: &[u8]) -> io::Result<()> {
        self.0.put(data).map_err(io::Error::other)
    }
}
