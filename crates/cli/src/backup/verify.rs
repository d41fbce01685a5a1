//! `gannet verify`: backups, and archives of the log; here, or by a server (`VERIFY BACKUP`, `VERIFY ARCHIVE`).

use super::by_server::{ByServer, OTHER_FORM};
use super::{about, source};
use crate::arguments::Verify;
use crate::interrupt::{self, Interrupted};
use crate::job::{self, CachedBefore};
use crate::output::{self, instant, printable};
use anyhow::{Context, Result, bail};
use gannet_base::units::format_size;
use gannet_store::{ArchiveVerifyReport, Engine, JobKind, JobOrder, JobReport, VerifyReport};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub(crate) fn verify(arguments: &Verify) -> Result<()> {
    interrupt::listen()?;
    let mut who = Who::find(arguments)?;
    if arguments.archive { archives(arguments, &mut who) } else { backups(arguments, &mut who) }
}

// ---- who does it -----------------------------------------------------------------------------------------------------

/// Who looks.
enum Who {
    Here(Engine),
    Server(ByServer),
}

impl Who {
    fn find(arguments: &Verify) -> Result<Self> {
        Ok(match &arguments.server {
            None => {
                let engine = arguments.opening.engine()?;
                arguments.pacing.set_here(&engine)?;
                Who::Here(engine)
            }
            Some(server) => Who::Server(ByServer::find(server, arguments.pacing, "verify")?),
        })
    }

    fn is_server(&self) -> bool {
        matches!(self, Who::Server(_))
    }
}

/// Has a server run a statement; what was proven, unless something is wrong.
fn by_server(server: &mut ByServer, statement: &str) -> Result<(Value, JobReport)> {
    let mut told = server.run(statement)?;
    match told.detail["finding"].as_str() {
        Some(finding) => bail!("{finding}"),
        None => Ok((told.detail["report"].take(), told.job)),
    }
}

/// What is cached before of what is looked at, where that is on this machine.
fn cached_before(paths: &[PathBuf], who: &Who, is_archive: bool) -> CachedBefore {
    let before = CachedBefore::default();
    match (who, is_archive) {
        (Who::Server(server), _) if server.is_elsewhere => before,
        (_, true) => paths.iter().fold(before, |before, path| before.and(path)),
        (_, false) => before.and_backups(paths),
    }
}

// ---- backups ---------------------------------------------------------------------------------------------------------

fn backups(arguments: &Verify, who: &mut Who) -> Result<()> {
    let verified = match look_at_backups(arguments, who) {
        Err(error) if error.is::<Interrupted>() => return Err(error),
        verified => verified,
    };
    let mut out = io::stdout().lock();
    let told = match &verified {
        verified if arguments.json => {
            writeln!(out, "{:#}", backups_json(who.is_server(), verified)).map_err(Into::into)
        }
        Ok((report, job, cached)) => tell_backups(&mut out, who.is_server(), report, job, *cached),
        Err(_) => Ok(()),
    };
    let sound =
        if verified.is_ok() { "the backups are whole" } else { "the backups were not proven to be whole" };
    crate::unless_broken_pipe(output::said(told.and_then(|()| Ok(out.flush()?)), sound))?;
    verified.map(drop)
}

fn look_at_backups(arguments: &Verify, who: &mut Who) -> Result<(VerifyReport, JobReport, Option<u64>)> {
    let cached = cached_before(&arguments.sources, who, false);
    let (report, job) = match who {
        Who::Here(engine) => {
            let source = source(engine, &arguments.sources)?;
            let order = JobOrder { about: about(&arguments.sources), ..JobOrder::new(JobKind::Verify) };
            job::here(&engine.jobs(), order, |watch| engine.verify(source, arguments.opening.io, watch))?
        }
        Who::Server(server) => {
            let places = server.places(arguments.sources.iter().map(PathBuf::as_path))?;
            let (mut report, job) = by_server(server, &format!("VERIFY BACKUP {places} VERBOSE"))?;
            let backups = report.get_mut("backups").map(Value::take).context(OTHER_FORM)?;
            let manifests = serde_json::from_value(backups).context(OTHER_FORM)?;
            let count = |name: &str| report[name].as_u64().context(OTHER_FORM);
            let (pages, log_records) = (count("pages")?, count("log_records")?);
            (VerifyReport { manifests, pages, log_records }, job)
        }
    };
    Ok((report, job, cached.left_behind()))
}

fn backups_json(by_server: bool, verified: &Result<(VerifyReport, JobReport, Option<u64>)>) -> Value {
    match verified {
        Ok((report, job, cached)) => json!({
            "by_server": by_server,
            "sound": true,
            "backups": report.manifests,
            "pages": report.pages,
            "log_records": report.log_records,
            "job": job::as_json(job, *cached),
        }),
        Err(error) => json!({ "by_server": by_server, "sound": false, "error": format!("{error:#}") }),
    }
}

fn tell_backups(
    out: &mut dyn Write,
    by_server: bool,
    report: &VerifyReport,
    job: &JobReport,
    cached: Option<u64>,
) -> Result<()> {
    for manifest in &report.manifests {
        writeln!(out, "{} is whole", printable(&manifest.to_string()))?;
    }
    let place = if by_server { ", verified by the server" } else { "" };
    writeln!(out, "  {} pages, {} log records{place}", report.pages, report.log_records)?;
    job::tell(out, job, cached)
}

// ---- archives --------------------------------------------------------------------------------------------------------

/// An archive that is whole.
struct Verified {
    report: ArchiveVerifyReport,
    job: JobReport,
    cached: Option<u64>,
}

/// Each is looked at, whatever is wrong with those before.
fn archives(arguments: &Verify, who: &mut Who) -> Result<()> {
    let mut out = io::stdout().lock();
    let (mut documents, mut failures) = (Vec::new(), Vec::new());
    let is_one = arguments.sources.len() == 1;
    for path in &arguments.sources {
        let verified = match archive(who, path, arguments) {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            verified => verified,
        };
        if arguments.json {
            documents.push(archive_json(path, who.is_server(), &verified));
        }
        match verified {
            Ok(verified) if !arguments.json => {
                // Whoever reads of one may have seen enough; the others are looked at all the same.
                let told = tell_archive(&mut out, path, &verified);
                crate::unless_broken_pipe(output::said(told.and_then(|()| Ok(out.flush()?)), ""))?;
            }
            Ok(_) => {}
            Err(error) => {
                if !is_one {
                    crate::complain(&format!("{error:#}"));
                }
                failures.push(error);
            }
        }
    }
    let told = match (&documents[..], is_one) {
        ([], _) => Ok(()),
        ([one], true) => writeln!(out, "{one:#}"),
        (several, _) => writeln!(out, "{:#}", json!(several)),
    };
    crate::unless_broken_pipe(output::said(told.and_then(|()| out.flush()).map_err(Into::into), ""))?;
    match failures.len() {
        0 => Ok(()),
        1 if is_one => Err(failures.remove(0)),
        failed => bail!("{failed} of {} archives could not be proven to be whole", arguments.sources.len()),
    }
}

fn archive(who: &mut Who, path: &PathBuf, arguments: &Verify) -> Result<Verified> {
    let cached = cached_before(std::slice::from_ref(path), who, true);
    let (report, job) = match who {
        Who::Here(engine) => {
            let order =
                JobOrder { about: about(std::slice::from_ref(path)), ..JobOrder::new(JobKind::Verify) };
            let mode = arguments.opening.io;
            job::here(&engine.jobs(), order, |watch| engine.verify_archive(path, mode, watch))?
        }
        Who::Server(server) => {
            let place = server.place(path)?;
            let (report, job) = by_server(server, &format!("VERIFY ARCHIVE {place} VERBOSE"))?;
            (serde_json::from_value(report).context(OTHER_FORM)?, job)
        }
    };
    Ok(Verified { report, job, cached: cached.left_behind() })
}

fn archive_json(path: &Path, by_server: bool, verified: &Result<Verified>) -> Value {
    let archive = path.to_string_lossy();
    match verified {
        Ok(Verified { report, job, cached }) => json!({
            "by_server": by_server,
            "sound": true,
            "archive": archive,
            "report": report,
            "job": job::as_json(job, *cached),
        }),
        Err(error) => json!({
            "by_server": by_server,
            "sound": false,
            "archive": archive,
            "error": format!("{error:#}"),
        }),
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
    writeln!(out, "  every commit up to {}", instant(report.until_unix_us))?;
    for (name, lsn, unix_us) in &report.points {
        writeln!(out, "  point {:?}: lsn {lsn}, {}", printable(name), instant(*unix_us))?;
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
