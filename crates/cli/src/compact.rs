//! `gannet compact`: gives space back to the file system; of a file that nobody has open, of one that a server has open, or of a
//! database at an address.

use crate::arguments::Compact;
use crate::interrupt;
use crate::job::{self, CachedBefore, Place};
use crate::output::{self, printable};
use anyhow::{Context, Result};
use gannet_base::units::format_size;
use gannet_store::{CompactReport, JobKind, JobOrder, JobReport};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Compacts, and says what came of it.
pub(crate) fn run(options: &Compact) -> Result<()> {
    interrupt::listen()?;
    let cached = CachedBefore::look(&options.database);
    let place = Place::find(&options.database, (options.opening, &options.log, options.pacing), "compact")?;
    let by_server = place.is_server();
    let name = job::shown(&options.database);
    let (report, job) = match place {
        Place::File(store) => {
            let order = JobOrder::new(JobKind::Compact);
            let done = job::here(store.jobs(), order, |watch| store.compact_watched(watch));
            let closed = job::close(store);
            job::behind_closing(done.with_context(|| format!("cannot compact {name:?}")), closed, &name)?
        }
        Place::Beside(mut connection) | Place::Address(mut connection) => {
            let mut told = job::by_server(&mut connection, "COMPACT DATABASE VERBOSE", &mut |_| Ok(()))
                .context("the server could not compact the database")?;
            let report = serde_json::from_value(told.detail["compaction"].take())
                .context("the server said nothing of what it has compacted")?;
            (report, told.job)
        }
    };
    let cached = cached.left_behind();
    let mut out = io::stdout().lock();
    let said = match options.json {
        true => writeln!(out, "{:#}", as_json(&name, by_server, &report, &job, cached)).map_err(Into::into),
        false => tell(&mut out, &name, by_server, &report, &job, cached),
    };
    output::said(said.and_then(|()| Ok(out.flush()?)), "the compaction is done")
}

fn as_json(
    name: &str,
    by_server: bool,
    report: &CompactReport,
    job: &JobReport,
    cached: Option<u64>,
) -> Value {
    json!({
        "database": name,
        "by_server": by_server,
        "compaction": report,
        "cached_bytes": cached,
        "job": job::as_json(job, cached),
    })
}

fn tell(
    out: &mut dyn Write,
    name: &str,
    by_server: bool,
    report: &CompactReport,
    job: &JobReport,
    cached: Option<u64>,
) -> Result<()> {
    let place = if by_server { " by its server" } else { "" };
    writeln!(
        out,
        "{} was compacted{place}: {} before, {} now, {} of that free",
        printable(name),
        format_size(report.file_bytes_before),
        format_size(report.file_bytes),
        format_size(report.free_bytes)
    )?;
    writeln!(
        out,
        "  {} pages were merged into others, {} moved, {} of them of long values",
        report.pages_merged, report.pages_moved, report.value_pages_moved
    )?;
    for what in &report.unreadable {
        writeln!(out, "  cannot be read: {}", printable(what))?;
    }
    for held in &report.held {
        writeln!(out, "  kept: {}, {}", format_size(held.bytes), printable(&held.what))?;
    }
    job::tell(out, job, cached)
}
