//! VERIFY BACKUP and VERIFY ARCHIVE: what lies in folders of the server, or in an object store, proven without restoring it.
//!
//! What is wrong with a backup or an archive is a row, also that there is none; an error is what keeps it from being looked at.

use super::Session;
use super::client::{Client, CommandTag, OutputColumn};
use super::jobs::{self, Running, info};
use super::utility::give;
use crate::bind::utility::{Verify, VerifySource};
use crate::{Error, Result, SqlState, Type, Value};
use gannet_store::{ArchiveVerifyReport, JobKind, JobOrder, JobReport, Source, VerifyReport};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

const BACKUP: &str = "VERIFY BACKUP";
const ARCHIVE: &str = "VERIFY ARCHIVE";

/// The columns of what is wrong.
pub(super) fn columns() -> Vec<OutputColumn> {
    jobs::columns(&["object", "finding", "at_stake"].map(|name| (name, Type::Text)))
}

/// What was proven, or what is wrong.
type Outcome<T> = std::result::Result<T, String>;

/// What is told of it.
struct Told {
    rows: Vec<Vec<Value>>,
    message: String,
    detail: serde_json::Value,
}

impl Session {
    pub(super) fn verify(
        &mut self,
        verify: &Verify,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let statement = match &verify.source {
            VerifySource::Backup(_) => BACKUP,
            VerifySource::Archive(_) => ARCHIVE,
        };
        let mut running = Running { statement, for_all: false, verbose: verify.verbose, alone, client };
        // Before anything is looked for at its word.
        self.check_superuser(statement)?;
        let told = match &verify.source {
            VerifySource::Backup(places) => {
                let (outcome, job) = self.verify_backup(places, &mut running)?;
                tell_backup(places, &outcome, &job)
            }
            VerifySource::Archive(folder) => {
                let (outcome, job) = self.verify_archive(folder, &mut running)?;
                tell_archive(folder, &outcome, &job)
            }
        };
        give(&columns(), &told.rows, self, running.client)?;
        if verify.verbose {
            running.client.notice(&info(told.message, &told.detail));
        }
        Ok(CommandTag { command: statement, rows: Some(told.rows.len() as u64) })
    }

    fn verify_backup(
        &mut self,
        places: &[String],
        running: &mut Running<'_>,
    ) -> Result<(Outcome<VerifyReport>, JobReport)> {
        let ending = Arc::default();
        let mut found = Vec::new();
        for place in places {
            if !gannet_object::is_url(place) {
                check_absolute(place, BACKUP)?;
            }
            found.push(self.backup_place(place, &ending)?);
        }
        let mut order = JobOrder::new(JobKind::Verify);
        order.about = format!("of {}", places.join(" "));
        self.run_job(running, order, |database, watch| {
            ending.get_or_init(|| watch.job().ending());
            let (store, mode) = (database.store(), database.store().io_mode().requested);
            judged(Source::find(&found).and_then(|source| store.engine().verify(source, mode, watch)))
        })
    }

    fn verify_archive(
        &mut self,
        folder: &str,
        running: &mut Running<'_>,
    ) -> Result<(Outcome<ArchiveVerifyReport>, JobReport)> {
        check_archive(folder, ARCHIVE)?;
        let mut order = JobOrder::new(JobKind::Verify);
        order.about = format!("of {folder}");
        self.run_job(running, order, |database, watch| {
            let (store, mode) = (database.store(), database.store().io_mode().requested);
            judged(store.engine().verify_archive(Path::new(folder), mode, watch))
        })
    }
}

/// That a path of a folder or file of the server does not depend on where that was started.
pub(super) fn check_absolute(place: &str, statement: &str) -> Result<()> {
    if Path::new(place).is_absolute() {
        return Ok(());
    }
    let message = format!("relative path not allowed for {statement}: give an absolute one of the server");
    Err(Error::new(SqlState::INVALID_NAME, message))
}

/// The same of an archive's, which is no URL.
pub(super) fn check_archive(folder: &str, statement: &str) -> Result<()> {
    if gannet_object::is_url(folder) {
        let message = format!("an archive of the log is a folder, and {folder:?} is none");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    check_absolute(folder, statement)
}

/// What is wrong with a backup or an archive is what was asked for.
fn judged<T>(verified: gannet_store::Result<T>) -> Result<Outcome<T>> {
    match verified {
        Ok(report) => Ok(Ok(report)),
        Err(gannet_store::Error::Backup(what)) => Ok(Err(what)),
        Err(error) => Err(error.into()),
    }
}

fn finding(object: &str, finding: &str, at_stake: &str) -> Vec<Value> {
    [object, finding, at_stake].map(Value::text).to_vec()
}

fn tell_backup(places: &[String], outcome: &Outcome<VerifyReport>, job: &JobReport) -> Told {
    let at_stake = "whatever is to be restored from it";
    let (rows, message, report) = match outcome {
        Ok(report) => {
            let message = format!("{} pages, {} log records", report.pages, report.log_records);
            let VerifyReport { manifests, pages, log_records } = report;
            (Vec::new(), message, json!({ "backups": manifests, "pages": pages, "log_records": log_records }))
        }
        Err(what) => (vec![finding(&places.join(" "), what, at_stake)], what.clone(), json!(null)),
    };
    let message = format!("{message}, in {:.1} s", job.seconds);
    let detail = json!({ "job": job, "report": report, "finding": outcome.as_ref().err() });
    Told { rows, message, detail }
}

fn tell_archive(folder: &str, outcome: &Outcome<ArchiveVerifyReport>, job: &JobReport) -> Told {
    let (rows, message) = match outcome {
        Ok(report) => {
            let gap = |gap: &gannet_store::ArchiveGap| {
                let what = format!(
                    "log from lsn {} to {} is missing: a gap that the archive names",
                    gap.from, gap.to
                );
                finding(
                    folder,
                    &what,
                    "restores that would have to cross it: they need a backup from behind it",
                )
            };
            let message = format!("{} parts, {} log records", report.parts, report.records);
            (report.gaps.iter().map(gap).collect(), message)
        }
        Err(what) => {
            let at_stake = "restores that need the log from there on";
            (vec![finding(folder, what, at_stake)], what.clone())
        }
    };
    let message = format!("{message}, in {:.1} s", job.seconds);
    let report = outcome.as_ref().ok();
    let detail = json!({ "job": job, "report": report, "finding": outcome.as_ref().err() });
    Told { rows, message, detail }
}
