//! `gannet verify`: backups, and archives of the log.

use super::{about, source};
use crate::arguments::Verify;
use crate::interrupt::{self, Interrupted};
use crate::job::{self, CachedBefore};
use crate::output::printable;
use anyhow::{Result, bail};
use gannet_base::units::format_size;
use gannet_store::{ArchiveVerifyReport, Engine, JobKind, JobOrder, JobReport};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

pub(crate) fn verify(arguments: &Verify) -> Result<()> {
    interrupt::listen()?;
    if arguments.archive { archives(arguments) } else { backups(arguments) }
}

fn backups(arguments: &Verify) -> Result<()> {
    let engine = arguments.opening.engine()?;
    let cached = CachedBefore::default().and_backups(&arguments.sources)?;
    let source = source(&engine, &arguments.sources)?;
    let order = JobOrder { about: about(&arguments.sources), ..JobOrder::new(JobKind::Verify) };
    let (report, job) =
        job::here(&engine.jobs(), order, |watch| engine.verify(source, arguments.opening.io, watch))?;
    let cached = cached.left_behind()?;
    let mut out = io::stdout().lock();
    if arguments.json {
        let told = json!({
            "sound": true,
            "backups": report.manifests,
            "pages": report.pages,
            "log_records": report.log_records,
            "job": job::as_json(&job, cached),
        });
        writeln!(out, "{told:#}")?;
        return Ok(out.flush()?);
    }
    for manifest in &report.manifests {
        writeln!(out, "{} is whole", printable(&manifest.to_string()))?;
    }
    writeln!(out, "  {} pages, {} log records", report.pages, report.log_records)?;
    job::tell(&mut out, &job, cached)?;
    Ok(out.flush()?)
}

// ---- archives --------------------------------------------------------------------------------------------------------

/// An archive that is whole.
struct Verified {
    report: ArchiveVerifyReport,
    job: JobReport,
    cached: Option<u64>,
}

/// Each is looked at, whatever is wrong with those before.
fn archives(arguments: &Verify) -> Result<()> {
    let engine = arguments.opening.engine()?;
    let mut out = io::stdout().lock();
    let (mut documents, mut failures) = (Vec::new(), Vec::new());
    let is_one = arguments.sources.len() == 1;
    for path in &arguments.sources {
        let verified = match archive(&engine, path, arguments) {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            verified => verified,
        };
        if arguments.json {
            documents.push(archive_json(path, &verified));
        }
        match verified {
            Ok(verified) if !arguments.json => tell_archive(&mut out, path, &verified)?,
            Ok(_) => {}
            Err(error) => {
                if !is_one {
                    crate::complain(&format!("{error:#}"));
                }
                failures.push(error);
            }
        }
        out.flush()?;
    }
    match (&documents[..], is_one) {
        ([], _) => {}
        ([one], true) => writeln!(out, "{one:#}")?,
        (several, _) => writeln!(out, "{:#}", json!(several))?,
    }
    out.flush()?;
    match failures.len() {
        0 => Ok(()),
        1 if is_one => Err(failures.remove(0)),
        failed => bail!("{failed} of {} archives could not be proven to be whole", arguments.sources.len()),
    }
}

fn archive(engine: &Engine, path: &Path, arguments: &Verify) -> Result<Verified> {
    let order = JobOrder { about: about(&[path.to_owned()]), ..JobOrder::new(JobKind::Verify) };
    let cached = CachedBefore::default().and(path)?;
    let (report, job) = job::here(&engine.jobs(), order, |watch| {
        engine.verify_archive(path, arguments.opening.io, watch)
    })?;
    Ok(Verified { report, job, cached: cached.left_behind()? })
}

fn archive_json(path: &Path, verified: &Result<Verified>) -> Value {
    let archive = path.to_string_lossy();
    match verified {
        Ok(Verified { report, job, cached }) => json!({
            "sound": true,
            "archive": archive,
            "report": report,
            "job": job::as_json(job, *cached),
        }),
        Err(error) => json!({ "sound": false, "archive": archive, "error": format!("{error:#}") }),
    }
}

fn tell_archive(out: &mut dyn Write, path: &Path, verified: &Verified) -> Result<()> {
    let Verified { report, job, cached } = verified;
    let (name, path) = (printable(&report.database), path.display().to_string());
    writeln!(
        out,
        "{}, the archive of {name}, is whole from lsn {} to {}{}",
        printable(&path),
        report.from,
        report.to,
        if report.gaps.is_empty() { "" } else { ", but for gaps" }
    )?;
    for gap in &report.gaps {
        writeln!(out, "  gap: lsn {} to {}", gap.from, gap.to)?;
    }
    writeln!(out, "  every commit up to {}", time(report.until_unix_us))?;
    for (name, lsn, unix_us) in &report.points {
        writeln!(out, "  point {:?}: lsn {lsn}, {}", printable(name), time(*unix_us))?;
    }
    writeln!(
        out,
        "  {} parts with {}, {} log records",
        report.parts,
        format_size(report.bytes),
        report.records
    )?;
    job::tell(out, job, *cached)
}

/// A time as `--to` takes it.
fn time(unix_us: u64) -> String {
    let micros = i64::try_from(unix_us).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| "never".to_owned(), |time| time.to_string())
}
