//! BACKUP DATABASE: into a folder of the server or an object store, or to the client.
//!
//! To the client a backup goes as the data of a COPY, frames as in a file ([`super::apart`]). Where the client does not take it, it fails when
//! the log has grown too much meanwhile.

use super::Session;
use super::apart::ToClient;
use super::client::{Client, CommandTag, Notice, OutputColumn};
use super::jobs::{self, Running, info};
use super::utility::give;
use crate::bind::utility::{BackupDatabase, BackupSince, BackupTarget};
use crate::stat::{Prepared, StatRequest, Statistics};
use crate::{Error, Result, SqlState, Type, Value};
use gannet_store::{
    BackupOptions, BackupPlace, BackupPlan, Destination, Ending, JobKind, JobOrder, JobReport, Manifest,
    Since, Watch,
};
use serde_json::json;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

const STATEMENT: &str = "BACKUP DATABASE";
/// The columns of what BACKUP DATABASE has made; to the client it is data instead.
pub(super) fn columns(backup: &BackupDatabase) -> Option<Vec<OutputColumn>> {
    matches!(backup.target, BackupTarget::Place(_)).then(place_columns)
}

fn place_columns() -> Vec<OutputColumn> {
    let (text, number) = (|name| (name, Type::Text), |name| (name, Type::Int8));
    jobs::columns(&[
        text("name"),
        text("kind"),
        text("backup_id"),
        number("pages"),
        number("log_bytes"),
        number("bytes"),
        text("removed"),
    ])
}

/// A backup that was taken.
struct Done {
    manifest: Manifest,
    /// `None` where it went to the client, who gives it one.
    name: Option<String>,
    removed: Vec<String>,
    removed_parts: u64,
    complaint: Option<String>,
    statistics: Option<Statistics>,
}

impl Session {
    pub(super) fn backup_database(
        &mut self,
        backup: &BackupDatabase,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let mut running =
            Running { statement: STATEMENT, for_all: false, verbose: backup.verbose, alone, client };
        // Before anything is looked for at its word.
        self.check_superuser(running.statement)?;
        let (mut done, job) = match &backup.target {
            BackupTarget::Place(place) => self.backup_to_place(backup, place, &mut running)?,
            BackupTarget::Client => self.backup_to_client(backup, &mut running)?,
        };
        if let Some(statistics) = &mut done.statistics {
            self.name_holders(statistics);
        }
        if let Some(name) = &done.name {
            let manifest = &done.manifest;
            let count = |number: u64| Value::Int(number.cast_signed());
            let row = vec![
                Value::text(name),
                Value::text(if manifest.is_incremental() { "incremental" } else { "full" }),
                Value::text(format!("{:016x}", manifest.begin.backup_id)),
                count(manifest.pages),
                count(manifest.log_bytes),
                count(manifest.bytes),
                Value::text(done.removed.join(" ")),
            ];
            give(&place_columns(), &[row], self, running.client)?;
        }
        if let Some(complaint) = &done.complaint {
            let message = format!("the backup is complete, but {complaint}");
            running.client.notice(&Notice::warning(SqlState::WARNING, message));
        }
        if running.verbose {
            running.client.notice(&tell(&done, &job));
        }
        Ok(CommandTag { command: STATEMENT, rows: Some(1) })
    }

    fn backup_to_place(
        &mut self,
        backup: &BackupDatabase,
        place: &str,
        running: &mut Running<'_>,
    ) -> Result<(Done, JobReport)> {
        let is_url = gannet_object::is_url(place);
        if !is_url && !PathBuf::from(place).is_absolute() {
            let message = "relative path not allowed for BACKUP DATABASE to a folder of the server";
            return Err(Error::new(SqlState::INVALID_NAME, message));
        }
        let ending = Arc::default();
        let since = match &backup.since {
            None => None,
            Some(BackupSince::Latest) => Some(Since::Latest),
            Some(BackupSince::Named(path)) => Some(Since::Path(self.backup_place(path, &ending)?)),
            Some(BackupSince::Manifest(_)) => return Err(Error::internal("a manifest for a folder")),
        };
        let mut plan = BackupPlan {
            folder: self.backup_place(place, &ending)?,
            since,
            compress: level(backup),
            keep: backup.keep,
            archive: self.archive_to_prune(backup)?,
            statistics: None,
        };
        let mut order = JobOrder::new(JobKind::Backup);
        order.about = format!("to {place}");
        self.run_job(running, order, |database, watch| {
            ending.get_or_init(|| watch.job().ending());
            let prepared = prepared(database, backup)?;
            plan.statistics = prepared.as_ref().map(|prepared| prepared.options().clone());
            let taken = database.store().backup_into(&plan, watch)?;
            let statistics = prepared.zip(taken.statistics);
            Ok(Done {
                manifest: taken.backup.manifest,
                name: Some(taken.backup.name),
                removed: taken.removed,
                removed_parts: taken.removed_parts,
                complaint: taken.complaint,
                statistics: statistics.map(|(prepared, report)| prepared.in_words(report)),
            })
        })
    }

    /// The archive from which log is to be removed that no backup needs any more.
    fn archive_to_prune(&self, backup: &BackupDatabase) -> Result<Option<PathBuf>> {
        match &backup.archive {
            None => Ok(None),
            Some(Some(folder)) => {
                let folder = PathBuf::from(folder);
                if !folder.is_absolute() {
                    let message = "relative path not allowed for the ARCHIVE of BACKUP DATABASE";
                    return Err(Error::new(SqlState::INVALID_NAME, message));
                }
                Ok(Some(folder))
            }
            Some(None) => {
                let report = self.database.store().archive_report().ok_or_else(|| {
                    let message = "the database is not archived: there is no log to be removed";
                    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                })?;
                Ok(Some(report.destination))
            }
        }
    }

    /// Where backups are: a folder of the server, or what a URL says. What is asked of a store ends with the statement, or with its job, once
    /// there is one.
    pub(super) fn backup_place(&self, text: &str, ending: &Arc<OnceLock<Ending>>) -> Result<BackupPlace> {
        if !gannet_object::is_url(text) {
            return Ok(BackupPlace::new(Arc::clone(self.database.store().engine().disk()), text));
        }
        let (interrupt, ending) = (self.interrupt(), Arc::clone(ending));
        let is_ending = move || interrupt.check().is_err() || ending.get().is_some_and(Ending::is_asked_for);
        let settings = gannet_object::Settings::new(Arc::new(is_ending));
        let (disk, path) = gannet_object::open(text, settings)
            .map_err(|error| Error::new(SqlState::INVALID_PARAMETER_VALUE, error.to_string()))?;
        Ok(BackupPlace::new(disk, path))
    }

    fn backup_to_client(
        &mut self,
        backup: &BackupDatabase,
        running: &mut Running<'_>,
    ) -> Result<(Done, JobReport)> {
        let since = match &backup.since {
            Some(BackupSince::Manifest(line)) => {
                let refused = |error: gannet_store::Error| {
                    Error::new(SqlState::INVALID_PARAMETER_VALUE, error.to_string())
                };
                Some(Manifest::from_line(line).map_err(refused)?)
            }
            _ => None,
        };
        let mut order = JobOrder::new(JobKind::Backup);
        order.about = "to the client".to_owned();
        let backup = backup.clone();
        self.run_job_apart(running, order, move |database, to, watch| {
            take(database, &backup, since, to, watch)
        })
    }
}

fn level(backup: &BackupDatabase) -> Option<i32> {
    backup.compress.map(|level| i32::try_from(level).unwrap_or(i32::MAX))
}

/// What is to be known for statistics, where they are wanted.
fn prepared(database: &super::Database, backup: &BackupDatabase) -> Result<Option<Prepared>> {
    let request = StatRequest { records: true, table: None };
    backup.statistics.then(|| Prepared::new(database.store(), &request)).transpose()
}

fn take(
    database: &super::Database,
    backup: &BackupDatabase,
    since: Option<Manifest>,
    to: ToClient,
    watch: &mut Watch<'_>,
) -> Result<Done> {
    let prepared = prepared(database, backup)?;
    let destination = Destination::Stream(Box::new(to));
    let options = BackupOptions { destination, since, compress: level(backup) };
    let wanted = prepared.as_ref().map(Prepared::options);
    let (manifest, report) = database.store().backup_counted(options, wanted, watch)?;
    let statistics = prepared.zip(report).map(|(prepared, report)| prepared.in_words(report));
    Ok(Done { manifest, name: None, removed: Vec::new(), removed_parts: 0, complaint: None, statistics })
}

/// What is told of a backup at its end.
fn tell(done: &Done, job: &JobReport) -> Notice {
    let detail = json!({
        "job": job,
        "name": done.name,
        "removed": done.removed,
        "removed_parts": done.removed_parts,
        "complaint": done.complaint,
        "manifest": done.manifest,
        "statistics": done.statistics,
    });
    info(format!("{} pages in {:.1} s", done.manifest.pages, job.seconds), &detail)
}
