//! RESTORE DATABASE: a new database, made of backups and perhaps of an archive's log, as a job of the server beside its users. It is a file that
//! nobody has open; a server serves it once it is started with it.

use super::Session;
use super::client::{Client, CommandTag, OutputColumn};
use super::database::to_unix;
use super::jobs::{self, Running, info};
use super::utility::give;
use super::verify::{check_absolute, check_archive};
use crate::bind::utility::{RestoreDatabase, RestoreUntil};
use crate::types::datetime::read_timestamptz;
use crate::{Error, Result, SqlState, Type, Value};
use gannet_base::units::format_size;
use gannet_store::{JobKind, JobOrder, OpenOptions, RecoveryTarget, Source};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

const STATEMENT: &str = "RESTORE DATABASE";

/// The columns of what was restored.
pub(super) fn columns() -> Vec<OutputColumn> {
    let number = |name| (name, Type::Int8);
    jobs::columns(&[
        ("database", Type::Text),
        number("end_lsn"),
        number("file_bytes"),
        number("redone_pages"),
        number("reverted_transactions"),
    ])
}

impl Session {
    pub(super) fn restore_database(
        &mut self,
        restore: &RestoreDatabase,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let verbose = restore.verbose;
        let mut running = Running { statement: STATEMENT, for_all: false, verbose, alone, client };
        // Before anything is looked for at its word.
        self.check_superuser(STATEMENT)?;
        if gannet_object::is_url(&restore.path) {
            let message =
                format!("{:?} is no file: a restore makes a database file of the server", restore.path);
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        check_absolute(&restore.path, STATEMENT)?;
        let (ending, path) = (Arc::default(), PathBuf::from(&restore.path));
        let mut found = Vec::new();
        for place in &restore.places {
            if !gannet_object::is_url(place) {
                check_absolute(place, STATEMENT)?;
            }
            found.push(self.backup_place(place, &ending)?);
        }
        let archive = restore.archive.as_ref().map(|(folder, until)| {
            check_archive(folder, STATEMENT)?;
            Ok::<_, Error>((PathBuf::from(folder), self.recovery_target(until.as_ref())?))
        });
        let archive = archive.transpose()?;
        let mut order = JobOrder::new(JobKind::Restore);
        order.about = format!("from {} to {}", restore.places.join(" "), restore.path);
        let (report, job) = self.run_job(&mut running, order, |database, watch| {
            ending.get_or_init(|| watch.job().ending());
            let (store, source) = (database.store(), Source::find(&found)?);
            let (mode, wal_limit) = (store.io_mode().requested, store.wal_limit());
            let open = OpenOptions { mode, wal_limit, warm: false, ..OpenOptions::default() };
            let archive = archive.as_ref().map(|(folder, target)| (folder.as_path(), target.clone()));
            Ok(store.engine().restore_beside(source, archive, &path, &open, watch)?)
        })?;
        let count = |number: u64| Value::Int(number.cast_signed());
        let row = vec![
            Value::text(&restore.path),
            count(report.end_lsn),
            count(report.manifest.file_bytes),
            count(report.restart.redone_pages),
            count(report.restart.reverted_losers),
        ];
        give(&columns(), &[row], self, running.client)?;
        if verbose {
            let message = format!(
                "{} restored as it was at lsn {}, in {:.1} s",
                format_size(report.manifest.file_bytes),
                report.end_lsn,
                job.seconds
            );
            let report = json!({
                "manifest": report.manifest,
                "end_lsn": report.end_lsn,
                "redone_pages": report.restart.redone_pages,
                "reverted_transactions": report.restart.reverted_losers,
            });
            running.client.notice(&info(message, &json!({ "job": job, "report": report })));
        }
        Ok(CommandTag { command: STATEMENT, rows: Some(1) })
    }

    fn recovery_target(&self, until: Option<&RestoreUntil>) -> Result<RecoveryTarget> {
        Ok(match until {
            None => RecoveryTarget::End,
            Some(RestoreUntil::Lsn(lsn)) => RecoveryTarget::Lsn(*lsn),
            Some(RestoreUntil::Point(name)) => RecoveryTarget::Point(name.clone()),
            Some(RestoreUntil::Time(text)) => {
                let time = to_unix(read_timestamptz(text, &self.state.style)?);
                RecoveryTarget::Time(time.ok_or_else(|| {
                    let message = format!("{text:?} is no time of this age");
                    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
                })?)
            }
        })
    }
}
