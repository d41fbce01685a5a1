//! Statements that run a job ([`gannet_store::Job`]): BACKUP, CHECK, COMPACT, DUMP, STAT and SWEEP DATABASE. Findings and the like are
//! rows; with VERBOSE, how far it has come and how it went are INFO messages, whose detail is JSON: `progress` many times, then `job` once, both a
//! [`JobReport`], and beside `job` what else the job has to say.

use super::client::{Client, CommandTag, Notice, OutputColumn};
use super::utility::give;
use super::{Database, Session, SessionInfo};
use crate::bind::utility::{BackupDatabase, CopyRelation, DumpDatabase};
use crate::catalog::Sequence;
use crate::check::check;
use crate::dump::{self, dump_with};
use crate::stat::{Holder, Object, ObjectKind, Prepared, StatRequest, Statistics, statistics};
use crate::sweep::{Swept, sweep};
use crate::types::NO_MODIFIER;
use crate::{Error, Result, SqlState, Type, Value};
use gannet_base::clock;
use gannet_base::units::format_size;
use gannet_store::{
    BackupPlace, BackupPlan, Ending, Figure, JobKind, JobOrder, JobReport, Since, TreeContents, Unit, View,
    Watch,
};
use serde_json::json;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How often a client is told of the progress.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// Threads that make text of rows, where nobody says how many, and however many are asked for.
const USUAL_DUMP_JOBS: usize = 8;
const MOST_DUMP_JOBS: u32 = 64;

/// The columns of a result.
pub(super) fn columns(columns: &[(&str, Type)]) -> Vec<OutputColumn> {
    let column = |&(name, ty): &(&str, Type)| OutputColumn {
        name: name.to_owned(),
        ty,
        modifier: NO_MODIFIER,
        origin: None,
    };
    columns.iter().map(column).collect()
}

/// The columns of what CHECK DATABASE finds.
pub(super) fn check_columns() -> Vec<OutputColumn> {
    let text = |name| (name, Type::Text);
    columns(&[text("object"), ("page", Type::Int8), text("finding"), text("at_stake")])
}

/// The columns of what COMPACT DATABASE did.
pub(super) fn compact_columns() -> Vec<OutputColumn> {
    let number = |name| (name, Type::Int8);
    columns(&[
        number("file_bytes_before"),
        number("file_bytes"),
        number("free_bytes"),
        number("pages_merged"),
        number("pages_moved"),
        ("held", Type::Text),
    ])
}

/// The columns of what STAT DATABASE says: a row for each table and index.
pub(super) fn stat_columns() -> Vec<OutputColumn> {
    let text = |name| (name, Type::Text);
    let (count, float) = (|name| (name, Type::Int8), |name| (name, Type::Float8));
    columns(&[
        text("name"),
        text("kind"),
        text("on_table"),
        count("rows"),
        count("rows_error"),
        count("dead_rows"),
        count("old_versions"),
        count("pages"),
        count("bytes"),
        count("free_bytes"),
        count("depth"),
        float("fill_percent"),
        float("average_bytes"),
        count("long_values"),
        count("duplicates"),
        float("scattered_percent"),
    ])
}

/// The columns of what BACKUP DATABASE has made.
pub(super) fn backup_columns() -> Vec<OutputColumn> {
    let (text, number) = (|name| (name, Type::Text), |name| (name, Type::Int8));
    columns(&[
        text("name"),
        text("kind"),
        text("backup_id"),
        number("pages"),
        number("log_bytes"),
        number("bytes"),
        text("removed"),
    ])
}

/// The columns of what DUMP DATABASE has written.
pub(super) fn dump_columns() -> Vec<OutputColumn> {
    columns(&[("tables", Type::Int8), ("rows", Type::Int8), ("bytes", Type::Int8)])
}

/// The columns of what SWEEP DATABASE has done.
pub(super) fn sweep_columns() -> Vec<OutputColumn> {
    let number = |name| (name, Type::Int8);
    columns(&[
        ("what", Type::Text),
        ("unit", Type::Text),
        number("before"),
        number("after"),
        number("removed"),
        ("detail", Type::Text),
    ])
}

/// How a statement runs that is a job.
pub(super) struct Running<'c> {
    /// The statement's name.
    pub(super) statement: &'static str,
    /// The client is told of the progress.
    pub(super) verbose: bool,
    /// It is the only statement of its message.
    pub(super) alone: bool,
    pub(super) client: &'c mut dyn Client,
}

impl Session {
    /// Runs a job, and tells of it.
    pub(super) fn run_job<T>(
        &mut self,
        running: &mut Running<'_>,
        mut order: JobOrder,
        work: impl FnOnce(&Database, &mut Watch<'_>) -> Result<T>,
    ) -> Result<(T, JobReport)> {
        self.check_superuser(running.statement)?;
        let statement = running.statement;
        if !running.alone || self.transaction.as_ref().is_some_and(|open| open.explicit) {
            let message = format!("{statement} cannot run inside a transaction block");
            return Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        // It takes views of its own.
        self.rollback()?;
        let (interrupt, database) = (self.interrupt(), self.database.clone());
        order.owner = u64::try_from(self.state.pid).ok();
        order.reason = format!("{statement} by {}", self.state.user);
        let job = database.store().jobs().begin(order);
        let mut told = clock::now();
        let mut tell = |report: &JobReport| {
            // The statement's error says why.
            interrupt.check().map_err(|_| gannet_store::Error::Cancelled)?;
            if running.verbose && told.elapsed() >= TELL_EVERY {
                told = clock::now();
                running.client.notice(&info(message(report), &json!({ "progress": report })));
            }
            Ok(())
        };
        let outcome = job.end(work(&database, &mut Watch::new(&job, &mut tell)));
        if let Err(error) = &outcome {
            // What an interrupt has broken off fails in words of its own.
            interrupt.check().map_err(|why| match error.state() {
                SqlState::QUERY_CANCELED => why,
                _ => why.detail(error.fields().message.to_string()),
            })?;
        }
        Ok((outcome?, job.report()))
    }

    fn check_superuser(&self, statement: &str) -> Result<()> {
        if self.is_superuser() {
            return Ok(());
        }
        let message = format!("must be superuser to do {statement}");
        Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message))
    }

    pub(super) fn check_database(
        &mut self,
        verbose: bool,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let mut running = Running { statement: "CHECK DATABASE", verbose, alone, client };
        let order = JobOrder::new(JobKind::Check);
        let (outcome, job) =
            self.run_job(&mut running, order, |database, watch| check(database.store(), watch))?;
        let row = |finding: &crate::check::Finding| {
            let page = finding.page.map_or(Value::Null, |page| Value::Int(page.cast_signed()));
            vec![
                Value::text(&finding.object),
                page,
                Value::text(&finding.finding),
                Value::text(&finding.at_stake),
            ]
        };
        let rows: Vec<Vec<Value>> = outcome.findings.iter().map(row).collect();
        give(&check_columns(), &rows, self, running.client)?;
        if verbose {
            let figures = &outcome.figures;
            let message = format!(
                "{} pages in use, {} indexes compared, {} findings in {:.1} s",
                figures.pages, figures.indexes, figures.findings, figures.seconds
            );
            running.client.notice(&info(message, &json!({ "job": job, "figures": figures })));
        }
        Ok(CommandTag { command: "CHECK DATABASE", rows: Some(outcome.findings.len() as u64) })
    }

    pub(super) fn backup_database(
        &mut self,
        backup: &BackupDatabase,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let verbose = backup.verbose;
        let mut running = Running { statement: "BACKUP DATABASE", verbose, alone, client };
        // Before anything is looked for at its word.
        self.check_superuser(running.statement)?;
        let is_url = gannet_object::is_url(&backup.folder);
        if !is_url && !PathBuf::from(&backup.folder).is_absolute() {
            let message = "relative path not allowed for BACKUP DATABASE to a folder of the server";
            return Err(Error::new(SqlState::INVALID_NAME, message));
        }
        let ending = Arc::default();
        let folder = self.backup_place(&backup.folder, &ending)?;
        let compress = backup.compress.map(|level| i32::try_from(level).unwrap_or(i32::MAX));
        let since = match &backup.since {
            None => None,
            Some(None) => Some(Since::Latest),
            Some(Some(path)) => Some(Since::Path(self.backup_place(path, &ending)?)),
        };
        let mut order = JobOrder::new(JobKind::Backup);
        order.about = format!("to {}", backup.folder);
        let archive = match &backup.archive {
            None => None,
            Some(Some(folder)) => {
                let folder = PathBuf::from(folder);
                if !folder.is_absolute() {
                    let message = "relative path not allowed for the ARCHIVE of BACKUP DATABASE";
                    return Err(Error::new(SqlState::INVALID_NAME, message));
                }
                Some(folder)
            }
            Some(None) => {
                let report = self.database.store().archive_report().ok_or_else(|| {
                    let message = "the database is not archived: there is no log to be removed";
                    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                })?;
                Some(report.destination)
            }
        };
        let mut plan = BackupPlan { folder, since, compress, keep: backup.keep, archive, statistics: None };
        let with_statistics = backup.statistics;
        let ((taken, mut statistics), job) = self.run_job(&mut running, order, |database, watch| {
            ending.get_or_init(|| watch.job().ending());
            let request = StatRequest { records: true, table: None };
            let prepared = with_statistics.then(|| Prepared::new(database.store(), &request)).transpose()?;
            plan.statistics = prepared.as_ref().map(|prepared| prepared.options().clone());
            let mut taken = database.store().backup_into(&plan, watch)?;
            let report = taken.statistics.take();
            let statistics = prepared.zip(report).map(|(prepared, report)| prepared.in_words(report));
            Ok((taken, statistics))
        })?;
        if let Some(statistics) = &mut statistics {
            self.name_holders(statistics);
        }
        let manifest = &taken.backup.manifest;
        let count = |number: u64| Value::Int(number.cast_signed());
        let row = vec![
            Value::text(&taken.backup.name),
            Value::text(if manifest.is_incremental() { "incremental" } else { "full" }),
            Value::text(format!("{:016x}", manifest.begin.backup_id)),
            count(manifest.pages),
            count(manifest.log_bytes),
            count(manifest.bytes),
            Value::text(taken.removed.join(" ")),
        ];
        give(&backup_columns(), &[row], self, running.client)?;
        if let Some(complaint) = &taken.complaint {
            let message = format!("the backup is complete, but {complaint}");
            running.client.notice(&Notice::warning(SqlState::WARNING, message));
        }
        if verbose {
            let message = format!("{} pages in {:.1} s", manifest.pages, job.seconds);
            let detail = json!({
                "job": job,
                "name": taken.backup.name,
                "removed": taken.removed,
                "removed_parts": taken.removed_parts,
                "complaint": taken.complaint,
                "manifest": manifest,
                "statistics": statistics,
            });
            running.client.notice(&info(message, &detail));
        }
        Ok(CommandTag { command: "BACKUP DATABASE", rows: Some(1) })
    }

    /// Where backups are: a folder of the server, or what a URL says. What is asked of a store ends with the statement, or with its job, once
    /// there is one.
    fn backup_place(&self, text: &str, ending: &Arc<OnceLock<Ending>>) -> Result<BackupPlace> {
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

    pub(super) fn compact_database(
        &mut self,
        verbose: bool,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let mut running = Running { statement: "COMPACT DATABASE", verbose, alone, client };
        let order = JobOrder::new(JobKind::Compact);
        let (report, job) = self
            .run_job(&mut running, order, |database, watch| Ok(database.store().compact_watched(watch)?))?;
        let count = |number: u64| Value::Int(number.cast_signed());
        let held: Vec<&str> = report.held.iter().map(|held| held.what.as_str()).collect();
        let row = vec![
            count(report.file_bytes_before),
            count(report.file_bytes),
            count(report.free_bytes),
            count(report.pages_merged),
            count(report.pages_moved),
            Value::text(held.join("; ")),
        ];
        give(&compact_columns(), &[row], self, running.client)?;
        if verbose {
            let back = report.file_bytes_before.saturating_sub(report.file_bytes);
            let message = format!("{} given back in {:.1} s", format_size(back), job.seconds);
            running.client.notice(&info(message, &json!({ "job": job, "compaction": report })));
        }
        Ok(CommandTag { command: "COMPACT DATABASE", rows: Some(1) })
    }

    pub(super) fn dump_database(
        &mut self,
        dump: &DumpDatabase,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let verbose = dump.verbose;
        let mut running = Running { statement: "DUMP DATABASE", verbose, alone, client };
        let path = PathBuf::from(&dump.path);
        if !path.is_absolute() {
            let message = "relative path not allowed for DUMP DATABASE to a file of the server";
            return Err(Error::new(SqlState::INVALID_NAME, message));
        }
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let jobs =
            dump.jobs.map_or(processors.min(USUAL_DUMP_JOBS), |jobs| jobs.min(MOST_DUMP_JOBS) as usize);
        let options = dump::Options {
            format: if dump.csv { dump::Format::Csv } else { dump::Format::Sql },
            schema: dump.schema,
            data: dump.data,
            tables: dump.tables.clone(),
            jobs,
            snapshot_limit: Some(self.state.settings().snapshot_limit.unwrap_or_default()),
            ..dump::Options::default()
        };
        let mut order = JobOrder::new(JobKind::Dump);
        order.about = format!("to {}", dump.path);
        let (figures, job) = self.run_job(&mut running, order, |database, watch| {
            let numbers = &database.0.numbers;
            let mut position = |_: &View, sequence: &Sequence| {
                let at = numbers.current(sequence)?;
                Ok((at.value, at.called))
            };
            dump_with(database.store(), &options, dump::Target::Path(path), &mut position, watch)
        })?;
        let row = [figures.tables, figures.rows, figures.bytes].map(|count| Value::Int(count.cast_signed()));
        give(&dump_columns(), &[row.to_vec()], self, running.client)?;
        if verbose {
            let message = format!("{} rows in {:.1} s", figures.rows, job.seconds);
            running.client.notice(&info(message, &json!({ "job": job, "figures": figures })));
        }
        Ok(CommandTag { command: "DUMP DATABASE", rows: Some(1) })
    }

    pub(super) fn stat_database(
        &mut self,
        table: Option<&CopyRelation>,
        records: bool,
        verbose: bool,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let mut running = Running { statement: "STAT DATABASE", verbose, alone, client };
        if let Some(schema) =
            table.and_then(|table| table.schema.as_ref()).filter(|schema| *schema != "public")
        {
            let message = format!("schema \"{schema}\" does not exist, or has no tables with pages");
            return Err(Error::new(SqlState::INVALID_SCHEMA_NAME, message));
        }
        let request = StatRequest { records, table: table.map(|table| table.name.clone()) };
        let mut order = JobOrder::new(JobKind::Stat);
        order.about = request.table.clone().unwrap_or_default();
        let (mut outcome, job) = self
            .run_job(&mut running, order, |database, watch| statistics(database.store(), &request, watch))?;
        self.name_holders(&mut outcome);
        let shown = outcome.objects.iter().filter(|object| object.kind != ObjectKind::System);
        let rows: Vec<Vec<Value>> = shown.map(stat_row).collect();
        give(&stat_columns(), &rows, self, running.client)?;
        if verbose {
            let how = if records { "every entry counted" } else { "from a sample" };
            let message = format!("{} tables and indexes, {how}, in {:.3} s", rows.len(), outcome.seconds);
            running.client.notice(&info(message, &json!({ "job": job, "statistics": outcome })));
        }
        Ok(CommandTag { command: "STAT DATABASE", rows: Some(rows.len() as u64) })
    }

    /// Which sessions hold the oldest snapshot, and have written.
    fn name_holders(&self, statistics: &mut Statistics) {
        let oldest = statistics.transactions.oldest_holder.as_ref().map(|snapshot| snapshot.number);
        for session in self.database.sessions() {
            let holder = holder_of(&session);
            if oldest.is_some() && session.interrupt.transaction_number() == oldest {
                statistics.oldest_holder = Some(holder.clone());
            }
            if holder.transaction.is_some() {
                statistics.writers.push(holder);
            }
        }
        statistics.writers.sort_by_key(|holder| holder.transaction);
    }

    pub(super) fn sweep_database(
        &mut self,
        show: bool,
        verbose: bool,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let mut running = Running { statement: "SWEEP DATABASE", verbose, alone, client };
        let order = JobOrder::new(JobKind::Sweep);
        let (mut swept, job) =
            self.run_job(&mut running, order, |database, watch| sweep(database.store(), show, watch))?;
        for held in &mut swept.holders {
            held.session = self.database.session_of(held.holder.number).as_ref().map(holder_of);
        }
        let rows = sweep_rows(&swept);
        give(&sweep_columns(), &rows, self, running.client)?;
        if verbose {
            let cleaned = &swept.report.cleaned;
            let message = if show {
                format!("{} can be freed", format_size(swept.report.before.free_bytes()))
            } else {
                format!("{} freed in {:.1} s", format_size(cleaned.undo_bytes), swept.report.seconds)
            };
            running.client.notice(&info(message, &json!({ "job": job, "swept": swept })));
        }
        Ok(CommandTag { command: "SWEEP DATABASE", rows: Some(rows.len() as u64) })
    }
}

/// A session, as far as it matters to who is held back by it.
fn holder_of(session: &SessionInfo) -> Holder {
    let activity = session.activity.look();
    Holder {
        pid: session.pid,
        user: session.user.clone(),
        application: activity.application,
        state: activity.state.to_owned(),
        transaction: session.interrupt.transaction().map(|id| id.0),
    }
}

/// Rows of SWEEP DATABASE.
fn sweep_rows(swept: &Swept) -> Vec<Vec<Value>> {
    let (report, cleaned) = (&swept.report, &swept.report.cleaned);
    let count = |number: u64| Value::Int(number.cast_signed());
    let row = |what: &str, unit: &str, [before, after, removed]: [Value; 3], detail: Value| {
        vec![Value::text(what), Value::text(unit), before, after, removed, detail]
    };
    let forecast = report.forecast.as_ref().map_or(Value::Null, |forecast| {
        let time = forecast.seconds.map_or_else(String::new, |seconds| format!(", about {seconds:.1} s"));
        Value::text(format!(
            "to be read, as far as not in memory: {} pages of undo, at most {:.0} leaves{time}",
            forecast.undo_pages, forecast.leaf_pages_most
        ))
    });
    let (before, after) = (&report.before, &report.after);
    let free = [count(before.free_bytes()), count(after.free_bytes()), count(cleaned.undo_bytes)];
    let held = [count(before.held_bytes()), count(after.held_bytes()), Value::Null];
    let mut rows = vec![
        row("undo that nobody can see", "bytes", free, forecast),
        row("undo held back", "bytes", held, Value::Null),
    ];
    for held in &swept.holders {
        let detail =
            format!("{}; {} could go without it", held.describe(), format_size(held.holder.alone_bytes));
        let values = [Value::Null, count(held.holder.held_bytes), Value::Null];
        rows.push(row("held back by", "bytes", values, Value::text(detail)));
    }
    for object in &swept.objects {
        for (figure, what) in [(object.dead_entries, "dead entries"), (object.long_values, "long values")] {
            let about = Value::Int(figure.value.round() as i64);
            let detail = if figure.is_exact() {
                Value::Null
            } else {
                Value::text(format!(
                    "an estimate, off by {:.0} at most in 95 of 100 cases",
                    figure.error.ceil()
                ))
            };
            if figure.value > 0.0 {
                let (before, removed) =
                    if report.shown_only { (about, Value::Null) } else { (Value::Null, about) };
                rows.push(row(&object.object, what, [before, Value::Null, removed], detail));
            }
        }
    }
    if let Some(damage) = &cleaned.damage {
        let values = [Value::Null, count(cleaned.damaged_segments), Value::Null];
        rows.push(row("damaged", "undo segments", values, Value::text(damage)));
    }
    rows
}

/// A row of STAT DATABASE; what was not looked at is NULL.
fn stat_row(object: &Object) -> Vec<Value> {
    let count = |figure: f64| Value::Int(figure.round() as i64);
    let contents = object.contents.as_ref();
    let of = |of: fn(&TreeContents) -> Value| contents.map_or(Value::Null, of);
    let figure = |of: fn(&TreeContents) -> Option<Figure>| {
        contents.and_then(of).map_or(Value::Null, |figure| count(figure.value))
    };
    vec![
        Value::text(&object.name),
        Value::text(object.kind.name()),
        object.table.as_ref().map_or(Value::Null, Value::text),
        figure(|c| Some(c.rows)),
        of(|c| Value::Int(c.rows.error.ceil() as i64)),
        figure(|c| Some(c.dead_entries)),
        figure(|c| c.old_versions),
        count(object.pages.value),
        count(object.bytes),
        figure(|c| Some(c.free_bytes)),
        of(|c| Value::Int(i64::from(c.depth))),
        of(|c| Value::Float(c.fill_percent.value)),
        of(|c| Value::Float(c.average_row_bytes.value)),
        figure(|c| Some(c.long_values)),
        figure(|c| c.duplicates.map(|duplicates| duplicates.total)),
        of(|c| Value::Float(c.order.scattered_percent.value)),
    ]
}

/// How far a job is, for people.
fn message(report: &JobReport) -> String {
    let amount = |units| match report.unit {
        Unit::Bytes => format_size(units),
        unit => format!("{units} {}", unit.name()),
    };
    let mut message = format!("{}: {}", report.phase, amount(report.done));
    if report.total > 0 {
        message += &format!(" of {}", amount(report.total));
    }
    if let Some(left) = report.seconds_left {
        message += &format!(", {left:.0} s left");
    }
    if !report.note.is_empty() {
        message += &format!(", {}", report.note);
    }
    message
}

pub(super) fn info(message: String, detail: &serde_json::Value) -> Notice {
    Notice {
        severity: "INFO",
        error: Error::new(SqlState::SUCCESSFUL_COMPLETION, message).detail(detail.to_string()),
    }
}
