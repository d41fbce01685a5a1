//! `gannet backup`, `gannet restore`, `gannet verify`: physical backups.

mod by_server;
mod from_server;
mod verify;

pub(crate) use verify::verify;

use crate::arguments::{Backup, Restore};
use crate::interrupt;
use crate::job::{self, CachedBefore, Place};
use crate::load::Stream;
use crate::output::{self, instant, printable};
use crate::standard_output::StandardOutput;
use crate::stat;
use anyhow::{Context, Result, bail};
use by_server::{ByServer, OTHER_FORM};
use gannet_base::units::format_size;
use gannet_server::frontend::{Address, Failure};
use gannet_sql::stat::{Prepared, StatRequest, Statistics};
use gannet_store::{
    BackupFile, BackupOptions, BackupPlace, BackupPlan, Database, Destination, Engine, JobKind, JobOrder,
    JobReport, Manifest, OpenOptions, RecoveryTarget, Since, Source,
};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

// ---- backup ----------------------------------------------------------------------------------------------------------

/// A backup that was taken, here or by a server.
struct Done {
    /// `None` for a stream.
    name: Option<String>,
    removed: Vec<String>,
    /// Parts of an archive.
    removed_parts: u64,
    complaint: Option<String>,
    manifest: Manifest,
    statistics: Option<Statistics>,
    job: JobReport,
}

pub(crate) fn backup(arguments: &Backup) -> Result<()> {
    interrupt::listen()?;
    let to_stream = arguments.destination == Path::new("-");
    if to_stream && arguments.keep.is_some() {
        bail!("--keep removes older backups of a folder; a stream has none");
    }
    let mut cached = CachedBefore::look(&arguments.database).and(&arguments.destination);
    if let Some(archive) = &arguments.archive {
        cached = cached.and(archive);
    }
    let place =
        Place::find(&arguments.database, (arguments.opening, &arguments.log, arguments.pacing), "backup")?;
    let by_server = place.is_server();
    let name = job::shown(&arguments.database);
    let order = JobOrder {
        about: format!("to {}", arguments.destination.display()),
        ..JobOrder::new(JobKind::Backup)
    };
    let done = match place {
        Place::File(store) => {
            let done =
                if to_stream { to_stdout(&store, arguments, order) } else { here(&store, arguments, order) };
            let closed = job::close(store);
            job::behind_closing(done.with_context(|| format!("cannot back {name:?} up")), closed, &name)?
        }
        Place::Beside(connection) | Place::Address(connection) if to_stream => {
            from_server::to_stdout(connection, arguments).map_err(|error| failed(error, &name))?
        }
        Place::Address(connection) => {
            from_server::to_place(connection, arguments, order).map_err(|error| failed(error, &name))?
        }
        Place::Beside(mut connection) => {
            let statement = statement(arguments)?;
            let told = job::by_server(&mut connection, &statement, &mut |_| Ok(()))
                .map_err(|error| failed(error, &name))?;
            told_by_server(told)?
        }
    };
    let cached = cached.left_behind();
    // Standard output has the backup.
    let mut out: Box<dyn Write> =
        if to_stream { Box::new(io::stderr()) } else { Box::new(io::stdout().lock()) };
    let mut tell = || -> Result<()> {
        match arguments.json {
            true => writeln!(out, "{:#}", backup_json(&name, by_server, &done, cached))?,
            false => {
                tell_backup(&mut *out, &name, by_server, &done, cached)?;
                if let Some(statistics) = &done.statistics {
                    writeln!(out)?;
                    stat::text::write(&mut *out, &name, by_server, statistics)?;
                }
            }
        }
        Ok(out.flush()?)
    };
    let told = tell();
    if !to_stream {
        crate::unless_broken_pipe(output::said(told, "the backup is complete"))?;
    }
    match done.complaint {
        Some(complaint) => {
            let told = format!("the backup is complete, but {complaint}");
            // Ctrl-C came while older ones were removed.
            interrupt::check().inspect_err(|_| crate::complain(&told))?;
            bail!(told)
        }
        None => Ok(()),
    }
}

/// A failure beside a server, which is to blame for what it has said itself.
fn failed(error: anyhow::Error, name: &str) -> anyhow::Error {
    match error.downcast_ref() {
        Some(Failure::Server(_)) => error.context(format!("the server could not back {name:?} up")),
        _ => error.context(format!("cannot back {name:?} up")),
    }
}

/// What a server has told of a backup.
fn told_by_server(mut told: job::Told) -> Result<Done> {
    Ok(Done {
        name: told.detail["name"].as_str().map(str::to_owned),
        removed: serde_json::from_value(told.detail["removed"].take()).unwrap_or_default(),
        removed_parts: told.detail["removed_parts"].as_u64().unwrap_or_default(),
        complaint: told.detail["complaint"].as_str().map(str::to_owned),
        manifest: serde_json::from_value(told.detail["manifest"].take())
            .context("the server said nothing of the backup")?,
        statistics: serde_json::from_value(told.detail["statistics"].take())
            .context("the server's statistics have another form: is it of another release?")?,
        job: told.job,
    })
}

/// Where a path is, or what a URL says. What is asked of a store ends when this process is asked to.
fn place(engine: &Engine, path: &Path) -> Result<BackupPlace> {
    let Some(url) = path.to_str().filter(|text| gannet_object::is_url(text)) else {
        return Ok(BackupPlace::new(Arc::clone(engine.disk()), path));
    };
    let settings = gannet_object::Settings::new(Arc::new(|| interrupt::check().is_err()));
    let (disk, path) = gannet_object::open(url, settings)?;
    Ok(BackupPlace::new(disk, path))
}

fn since(engine: &Engine, arguments: &Backup) -> Result<Option<Since>> {
    let Some(path) = &arguments.since else { return Ok(None) };
    let is_latest = path == Path::new("latest");
    Ok(Some(if is_latest { Since::Latest } else { Since::Path(place(engine, path)?) }))
}

fn here(store: &Database, arguments: &Backup, order: JobOrder) -> Result<Done> {
    let prepared = prepared(store, arguments)?;
    let plan = BackupPlan {
        folder: place(store.engine(), &arguments.destination)?,
        since: since(store.engine(), arguments)?,
        compress: arguments.compress,
        keep: arguments.keep,
        archive: arguments.archive.clone(),
        statistics: prepared.as_ref().map(|prepared| prepared.options().clone()),
    };
    let (taken, job) = job::here(store.jobs(), order, |watch| store.backup_into(&plan, watch))?;
    let (name, manifest) = (Some(taken.backup.name), taken.backup.manifest);
    let (removed, removed_parts) = (taken.removed, taken.removed_parts);
    let statistics = prepared.zip(taken.statistics).map(|(prepared, report)| prepared.in_words(report));
    Ok(Done { name, removed, removed_parts, complaint: taken.complaint, manifest, statistics, job })
}

/// What is to be known for statistics, where they are wanted.
fn prepared(store: &Database, arguments: &Backup) -> Result<Option<Prepared>> {
    let request = StatRequest { records: true, table: None };
    let prepared = arguments.statistics.then(|| Prepared::new(store, &request));
    Ok(prepared.transpose()?)
}

/// The backup that a stream is to add to.
fn since_of_stream(engine: &Engine, arguments: &Backup) -> Result<Option<Manifest>> {
    match since(engine, arguments)? {
        None => Ok(None),
        Some(Since::Latest) => bail!("for a stream, say by its path which backup it adds to"),
        Some(Since::Path(place)) => Ok(Some(BackupFile::find(&place)?.manifest)),
    }
}

fn to_stdout(store: &Database, arguments: &Backup, order: JobOrder) -> Result<Done> {
    let since = since_of_stream(store.engine(), arguments)?;
    let destination = Destination::Stream(Box::new(StandardOutput::new()?));
    let options = BackupOptions { destination, since, compress: arguments.compress };
    let prepared = prepared(store, arguments)?;
    let wanted = prepared.as_ref().map(Prepared::options);
    let ((manifest, report), job) =
        job::here(store.jobs(), order, |watch| store.backup_counted(options, wanted, watch))?;
    let statistics = prepared.zip(report).map(|(prepared, report)| prepared.in_words(report));
    let (removed, removed_parts) = (Vec::new(), 0);
    Ok(Done { name: None, removed, removed_parts, complaint: None, manifest, statistics, job })
}

/// The statement by which a server does it.
fn statement(arguments: &Backup) -> Result<String> {
    let mut text = format!("BACKUP DATABASE TO {}", job::absolute(&arguments.destination)?);
    match &arguments.since {
        None => {}
        Some(path) if path == Path::new("latest") => text += " SINCE LATEST",
        Some(path) if path.components().count() == 1 => {
            text += &format!(" SINCE {}", job::quoted(&path.to_string_lossy()));
        }
        Some(path) => text += &format!(" SINCE {}", job::absolute(path)?),
    }
    if let Some(level) = arguments.compress {
        text += &format!(" COMPRESS {level}");
    }
    if let Some(keep) = arguments.keep {
        text += &format!(" KEEP {keep}");
    }
    if let Some(archive) = &arguments.archive {
        text += &format!(" ARCHIVE {}", job::absolute(archive)?);
    }
    if arguments.statistics {
        text += " STATISTICS";
    }
    Ok(text + " VERBOSE")
}

fn backup_json(name: &str, by_server: bool, done: &Done, cached: Option<u64>) -> Value {
    json!({
        "database": name,
        "by_server": by_server,
        "name": done.name,
        "removed": done.removed,
        "removed_parts": done.removed_parts,
        "complaint": done.complaint,
        "manifest": done.manifest,
        "statistics": done.statistics,
        "job": job::as_json(&done.job, cached),
    })
}

fn tell_backup(
    out: &mut dyn Write,
    name: &str,
    by_server: bool,
    done: &Done,
    cached: Option<u64>,
) -> Result<()> {
    let manifest = &done.manifest;
    let kind = if manifest.is_incremental() { "incremental" } else { "full" };
    let place = match (&done.name, by_server) {
        (Some(backup), false) => format!(": {backup}"),
        (Some(backup), true) => format!(", taken by its server: {backup}"),
        (None, _) => String::new(),
    };
    writeln!(out, "{} backup of {}{}", kind, printable(name), printable(&place))?;
    writeln!(
        out,
        "  {} pages and {} of log, {} in all{}",
        manifest.pages,
        format_size(manifest.log_bytes),
        format_size(manifest.bytes),
        if manifest.compressed { ", compressed" } else { "" }
    )?;
    if let Some(why) = &manifest.all_read {
        writeln!(out, "  all pages were read: {}", printable(why))?;
    }
    if !done.removed.is_empty() {
        writeln!(out, "  removed: {}", printable(&done.removed.join(", ")))?;
    }
    if done.removed_parts > 0 {
        writeln!(out, "  {} parts of the archive were removed", done.removed_parts)?;
    }
    job::tell(out, &done.job, cached)
}

// ---- restore -----------------------------------------------------------------------------------------------------------

fn source(engine: &Engine, paths: &[PathBuf]) -> Result<Source> {
    if paths.iter().any(|path| path == Path::new("-")) {
        if paths.len() > 1 {
            bail!("standard input is a source of its own: it may have several backups, one behind the other");
        }
        return Ok(Source::Stream(Box::new(Stream::begin(io::stdin()))));
    }
    let places = paths.iter().map(|path| place(engine, path)).collect::<Result<Vec<_>>>()?;
    Source::find(&places).map_err(|error| match interrupt::check() {
        Ok(()) => error.into(),
        Err(interrupted) => interrupted,
    })
}

fn about(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    format!("from {}", names.join(" "))
}

/// What was restored, and by whom.
struct Restored {
    by_server: bool,
    manifest: Manifest,
    end_lsn: u64,
    redone_pages: u64,
    reverted_transactions: u64,
    job: JobReport,
}

pub(crate) fn restore(arguments: &Restore) -> Result<()> {
    interrupt::listen()?;
    let (sources, target) = arguments.paths.split_at(arguments.paths.len() - 1);
    let target = &target[0];
    let is_elsewhere = |text: &str| Address::is_address(text) || gannet_object::is_url(text);
    if target.to_str().is_some_and(is_elsewhere) {
        bail!(
            "{target:?} is no file: a restore makes a database file, which `gannet serve FILE` serves afterwards; a server makes one on its \
             machine with --server"
        );
    }
    let mut server = match &arguments.server {
        Some(server) => Some(ByServer::find(server, arguments.pacing, "restore")?),
        None => None,
    };
    let mut cached = CachedBefore::default();
    if server.as_ref().is_none_or(|server| !server.is_elsewhere) {
        cached = CachedBefore::look(target.as_os_str()).and_backups(sources);
        if let Some(archive) = &arguments.archive {
            cached = cached.and(archive);
        }
    }
    let restored = match &mut server {
        Some(server) => restore_by(server, sources, target, arguments),
        None => restore_here(sources, target, arguments),
    };
    let restored = restored.with_context(|| format!("cannot restore {target:?}"))?;
    let told = tell_restored(arguments, target, &restored, cached.left_behind());
    output::said(told, "the database is restored")
}

fn restore_here(sources: &[PathBuf], target: &Path, arguments: &Restore) -> Result<Restored> {
    let engine = arguments.opening.engine()?;
    arguments.pacing.set_here(&engine)?;
    let source = source(&engine, sources)?;
    let order = JobOrder { about: about(sources), ..JobOrder::new(JobKind::Restore) };
    let open = OpenOptions {
        wal_limit: arguments.wal_limit,
        mode: arguments.opening.io,
        warm: false,
        ..OpenOptions::default()
    };
    let (report, job) = job::here(&engine.jobs(), order, |watch| match &arguments.archive {
        Some(archive) => {
            let goal = arguments.to.clone().unwrap_or_default();
            engine.restore_to(source, (archive, goal), target, &open, watch)
        }
        None => engine.restore(source, target, &open, watch),
    })?;
    Ok(Restored {
        by_server: false,
        manifest: report.manifest,
        end_lsn: report.end_lsn,
        redone_pages: report.restart.redone_pages,
        reverted_transactions: report.restart.reverted_losers,
        job,
    })
}

/// The same by a server, as a job of it.
fn restore_by(
    server: &mut ByServer,
    sources: &[PathBuf],
    target: &Path,
    arguments: &Restore,
) -> Result<Restored> {
    let places = server.places(sources.iter().map(PathBuf::as_path))?;
    let mut statement = format!("RESTORE DATABASE FROM {places} TO {}", server.place(target)?);
    if let Some(archive) = &arguments.archive {
        statement += &format!(" ARCHIVE {}", server.place(archive)?);
    }
    statement += &match arguments.to.clone().unwrap_or_default() {
        RecoveryTarget::End => String::new(),
        RecoveryTarget::Lsn(lsn) => format!(" UNTIL LSN {lsn}"),
        RecoveryTarget::Time(unix_us) => format!(" UNTIL TIME '{}'", instant(unix_us)),
        RecoveryTarget::Point(name) => format!(" UNTIL POINT {}", job::quoted(&name)),
    };
    let mut told = server.run(&(statement + " VERBOSE"))?;
    let report = &mut told.detail["report"];
    let manifest = serde_json::from_value(report["manifest"].take()).context(OTHER_FORM)?;
    let count = |name: &str| report[name].as_u64().context(OTHER_FORM);
    Ok(Restored {
        by_server: true,
        manifest,
        end_lsn: count("end_lsn")?,
        redone_pages: count("redone_pages")?,
        reverted_transactions: count("reverted_transactions")?,
        job: told.job,
    })
}

fn tell_restored(arguments: &Restore, target: &Path, restored: &Restored, cached: Option<u64>) -> Result<()> {
    let mut out = io::stdout().lock();
    let manifest = &restored.manifest;
    if arguments.json {
        let told = json!({
            "database": target.to_string_lossy(),
            "by_server": restored.by_server,
            "manifest": manifest,
            "end_lsn": restored.end_lsn,
            "redone_pages": restored.redone_pages,
            "reverted_transactions": restored.reverted_transactions,
            "job": job::as_json(&restored.job, cached),
        });
        writeln!(out, "{told:#}")?;
        return Ok(out.flush()?);
    }
    writeln!(
        out,
        "{} restored{} as it was at lsn {}, from {}",
        printable(&target.to_string_lossy()),
        if restored.by_server { " by the server" } else { "" },
        restored.end_lsn,
        printable(&manifest.to_string())
    )?;
    if let Some(archive) = &arguments.archive {
        let added = format_size(restored.end_lsn.saturating_sub(manifest.end_lsn));
        let goal = arguments.to.clone().unwrap_or_default().to_string();
        let archive = archive.display().to_string();
        writeln!(out, "  up to {} by {added} of log from {}", printable(&goal), printable(&archive))?;
    }
    writeln!(
        out,
        "  {} of file; {} pages brought up to date by the log, {} open transactions reverted",
        format_size(manifest.file_bytes),
        restored.redone_pages,
        restored.reverted_transactions
    )?;
    job::tell(&mut out, &restored.job, cached)?;
    Ok(out.flush()?)
}
