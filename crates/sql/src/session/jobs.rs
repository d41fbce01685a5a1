//! Statements that run a job ([`gannet_store::Job`]): CHECK, COMPACT, DUMP, STAT and SWEEP DATABASE, and what
//! BACKUP and LOAD DATABASE and VERIFY ([`super::backup`], [`super::load`], [`super::verify`]) share with them. Findings and the like are
//! rows; with VERBOSE, how far it has come and how it went are INFO messages, whose detail is JSON: `progress` many times, then `job` once, both a
//! [`JobReport`], and beside `job` what else the job has to say.

use super::client::{Client, CommandTag, Notice, OutputColumn};
use super::interrupt::Interrupt;
use super::utility::give;
use super::{Database, Session, SessionInfo};
use crate::bind::utility::{CopyRelation, DumpDatabase};
use crate::catalog::Sequence;
use crate::check::check;
use crate::dump::{self, dump_with};
use crate::stat::{Holder, Object, ObjectKind, StatRequest, Statistics, statistics};
use crate::sweep::{Swept, sweep};
use crate::types::NO_MODIFIER;
use crate::{Error, Result, SqlState, TableName, Type, Value};
use gannet_base::clock;
use gannet_base::units::format_size;
use gannet_store::{Figure, Job, JobKind, JobOrder, JobReport, TreeContents, Unit, View, Watch};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// How often a client is told of the progress.
pub(super) const TELL_EVERY: Duration = Duration::from_millis(500);
/// Threads that make text of rows, or rows of text, where nobody says how many, and however many are asked for.
const USUAL_JOBS: usize = 8;

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
        count("dead_rows_error"),
        count("old_versions_error"),
        count("pages_error"),
        count("free_bytes_error"),
        float("fill_percent_error"),
        float("average_bytes_error"),
        count("long_values_error"),
        count("duplicates_error"),
        float("scattered_percent_error"),
    ])
}

/// The columns of what DUMP DATABASE has written to a file; to the client it is data instead.
pub(super) fn columns_of_dump(dump: &DumpDatabase) -> Option<Vec<OutputColumn>> {
    dump.path.is_some().then(dump_columns)
}

fn dump_columns() -> Vec<OutputColumn> {
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
    /// Every role may; else superusers only.
    pub(super) for_all: bool,
    /// The client is told of the progress.
    pub(super) verbose: bool,
    /// It is the only statement of its message.
    pub(super) alone: bool,
    pub(super) client: &'c mut dyn Client,
}

/// A job that a statement has begun.
pub(super) struct Begun {
    pub(super) job: Job,
    pub(super) database: Database,
    interrupt: Interrupt,
}

impl Begun {
    /// Ends the job when the statement is to end, whose error says why.
    pub(super) fn check(&self) -> gannet_store::Result<()> {
        self.interrupt.check().map_err(|_| gannet_store::Error::Cancelled)
    }

    /// Tells the job what came of it.
    pub(super) fn end<T>(&self, outcome: Result<T>) -> Result<(T, JobReport)> {
        let outcome = outcome.map_err(|error| {
            // What an interrupt has broken off fails in words of its own, wherever that was heard.
            let Err(why) = self.interrupt.check() else { return error };
            self.job.cancel();
            match error.state() {
                SqlState::QUERY_CANCELED => why,
                _ => why.detail(error.fields().message.to_string()),
            }
        });
        Ok((self.job.end(outcome)?, self.job.report()))
    }
}

impl Session {
    /// Runs a job, and tells of it.
    pub(super) fn run_job<T>(
        &mut self,
        running: &mut Running<'_>,
        order: JobOrder,
        work: impl FnOnce(&Database, &mut Watch<'_>) -> Result<T>,
    ) -> Result<(T, JobReport)> {
        let begun = self.begin_job(running, order)?;
        let mut told = clock::now();
        let mut tell = |report: &JobReport| {
            begun.check()?;
            if running.verbose && told.elapsed() >= TELL_EVERY {
                told = clock::now();
                running.client.progress(&progress(report));
            }
            Ok(())
        };
        let outcome = work(&begun.database, &mut Watch::new(&begun.job, &mut tell));
        begun.end(outcome)
    }

    /// Begins a job where one may begin.
    pub(super) fn begin_job(&mut self, running: &Running<'_>, mut order: JobOrder) -> Result<Begun> {
        if !running.for_all {
            self.check_superuser(running.statement)?;
        }
        let statement = running.statement;
        // It takes views of its own.
        self.leave_transaction(statement, running.alone)?;
        order.owner = u64::try_from(self.state.pid).ok();
        order.reason = format!("{statement} by {}", self.state.user);
        order.pace = self.state.settings().job_pace;
        let (interrupt, database) = (self.interrupt(), self.database.clone());
        let job = database.store().jobs().begin(order);
        Ok(Begun { job, database, interrupt })
    }

    pub(super) fn check_superuser(&self, statement: &str) -> Result<()> {
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
        let mut running = Running { statement: "CHECK DATABASE", for_all: false, verbose, alone, client };
        let order = JobOrder::new(JobKind::Check);
        let limit = Some(self.state.settings().snapshot_limit.unwrap_or_default());
        let (outcome, job) =
            self.run_job(&mut running, order, |database, watch| check(database.store(), limit, watch))?;
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

    pub(super) fn compact_database(
        &mut self,
        verbose: bool,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let mut running = Running { statement: "COMPACT DATABASE", for_all: false, verbose, alone, client };
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
        // What goes to the client is what it may read anyway.
        let (verbose, for_all) = (dump.verbose, dump.path.is_none());
        let mut running = Running { statement: "DUMP DATABASE", for_all, verbose, alone, client };
        let options = self.dump_options(dump)?;
        let mut order = JobOrder::new(JobKind::Dump);
        order.about = dump.path.as_ref().map_or("to the client".to_owned(), |path| format!("to {path}"));
        let (figures, job) = match &dump.path {
            Some(path) => {
                let path = PathBuf::from(path);
                if !path.is_absolute() {
                    let message = "relative path not allowed for DUMP DATABASE to a file of the server";
                    return Err(Error::new(SqlState::INVALID_NAME, message));
                }
                self.run_job(&mut running, order, |database, watch| {
                    dump_database(database, &options, dump::Target::Path(path), watch)
                })?
            }
            None => {
                if dump.csv && !verbose {
                    let message = "csv has a file for each table: VERBOSE tells the client where each begins";
                    return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
                }
                self.run_job_apart(&mut running, order, move |database, mut to, watch| {
                    dump_database(database, &options, dump::Target::Files(&mut to), watch)
                })?
            }
        };
        if dump.path.is_some() {
            let row =
                [figures.tables, figures.rows, figures.bytes].map(|count| Value::Int(count.cast_signed()));
            give(&dump_columns(), &[row.to_vec()], self, running.client)?;
        }
        if let Some(warning) = &figures.warning {
            running.client.notice(&Notice::warning(SqlState::WARNING, warning.clone()));
        }
        if verbose {
            let message = format!("{} rows in {:.1} s", figures.rows, job.seconds);
            running.client.notice(&info(message, &json!({ "job": job, "figures": figures })));
        }
        Ok(CommandTag { command: "DUMP DATABASE", rows: Some(1) })
    }

    fn dump_options(&self, dump: &DumpDatabase) -> Result<dump::Options> {
        Ok(dump::Options {
            format: if dump.csv { dump::Format::Csv } else { dump::Format::Sql },
            schema: dump.schema,
            data: dump.data,
            tables: dump.tables.iter().map(table_name).collect::<Result<_>>()?,
            jobs: threads(dump.jobs),
            snapshot_limit: Some(self.state.settings().snapshot_limit.unwrap_or_default()),
            ..dump::Options::default()
        })
    }

    pub(super) fn stat_database(
        &mut self,
        table: Option<&CopyRelation>,
        records: bool,
        verbose: bool,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let mut running = Running { statement: "STAT DATABASE", for_all: false, verbose, alone, client };
        let table = table.map(table_name).transpose()?;
        let mut order = JobOrder::new(JobKind::Stat);
        order.about = table.as_ref().map(|table| table.text().to_owned()).unwrap_or_default();
        let request = StatRequest { records, table };
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
    pub(super) fn name_holders(&self, statistics: &mut Statistics) {
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
        let mut running = Running { statement: "SWEEP DATABASE", for_all: false, verbose, alone, client };
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

/// A table that a statement names, in the schema that tables are in.
fn table_name(relation: &CopyRelation) -> Result<TableName> {
    let table = TableName::from(relation);
    table.in_public().map_err(|error| error.at(relation.position))?;
    Ok(table)
}

/// Threads that make text of rows, or rows of text.
pub(super) fn threads(asked: Option<u32>) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    asked.map_or(processors.min(USUAL_JOBS), |jobs| jobs as usize)
}

fn dump_database(
    database: &Database,
    options: &dump::Options,
    target: dump::Target<'_>,
    watch: &mut Watch<'_>,
) -> Result<dump::Figures> {
    if let dump::Target::Path(path) = &target {
        // A link that leads nowhere is there all the same: at the end the dump could not get its name.
        let to = database.store().engine().disk().resolve(path).map_err(gannet_store::Error::from)?;
        if to != *path {
            let message = format!("{path:?} is a symbolic link to {to:?}: name the file or folder itself");
            return Err(Error::new(SqlState::DUPLICATE_OBJECT, message));
        }
    }
    let numbers = &database.0.numbers;
    let mut position = |view: &View, sequence: &Sequence| {
        let at = numbers.current(view, sequence)?;
        Ok((at.value, at.called))
    };
    dump_with(database.store(), options, target, &mut position, watch)
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
            "to be read, as far as not in memory: at most {} pages of undo, {:.0} leaves, {:.0} lists of long values{time}",
            forecast.undo_pages, forecast.leaf_pages_most, forecast.list_pages_most
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
    let figures = |of: &str, what: &str, figure: Figure| {
        let about = Value::Int(figure.value.round() as i64);
        let detail = if figure.is_exact() {
            Value::Null
        } else {
            Value::text(format!("an estimate, off by {:.0} at most in 95 of 100 cases", figure.error.ceil()))
        };
        let (before, removed) = if report.shown_only { (about, Value::Null) } else { (Value::Null, about) };
        row(of, what, [before, Value::Null, removed], detail)
    };
    for object in &swept.objects {
        for (figure, what) in [(object.dead_entries, "dead entries"), (object.long_values, "long values")] {
            if figure.value > 0.0 {
                rows.push(figures(&object.object, what, figure));
            }
        }
    }
    let dropped =
        report.forecast.as_ref().map_or(Figure::exact(cleaned.trees), |forecast| forecast.dropped_trees);
    if dropped != Figure::exact(0) {
        rows.push(figures("dropped trees", "trees", dropped));
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
    // Rounded up: 0 is exact.
    let off = |figure: Figure| Value::Int(figure.error.ceil() as i64);
    let error = |of: fn(&TreeContents) -> Option<Figure>| contents.and_then(of).map_or(Value::Null, off);
    vec![
        Value::text(&object.name),
        Value::text(object.kind.name()),
        object.table.as_ref().map_or(Value::Null, Value::text),
        figure(|c| Some(c.rows)),
        error(|c| Some(c.rows)),
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
        error(|c| Some(c.dead_entries)),
        error(|c| c.old_versions),
        off(object.pages),
        error(|c| Some(c.free_bytes)),
        of(|c| Value::Float(c.fill_percent.error)),
        of(|c| Value::Float(c.average_row_bytes.error)),
        error(|c| Some(c.long_values)),
        error(|c| c.duplicates.map(|duplicates| duplicates.total)),
        of(|c| Value::Float(c.order.scattered_percent.error)),
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

/// How far a job is, for the client.
pub(super) fn progress(report: &JobReport) -> Notice {
    info(message(report), &json!({ "progress": report }))
}

pub(super) fn info(message: String, detail: &serde_json::Value) -> Notice {
    Notice {
        severity: "INFO",
        error: Error::new(SqlState::SUCCESSFUL_COMPLETION, message).detail(detail.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_store::{Cleaned, Forecast, SweepReport};

    /// Nothing was said of dropped trees, and what the sample had none of looked like none.
    #[test]
    fn dropped_trees_have_a_row_unless_there_are_surely_none() {
        let of = |forecast: Option<Figure>, trees: u64| {
            let forecast = forecast.map(|dropped_trees| Forecast { dropped_trees, ..Forecast::default() });
            let cleaned = Cleaned { trees, ..Cleaned::default() };
            let report =
                SweepReport { shown_only: forecast.is_some(), forecast, cleaned, ..SweepReport::default() };
            let rows = sweep_rows(&Swept { report, ..Swept::default() });
            rows.into_iter().find(|row| row[0] == Value::text("dropped trees"))
        };
        assert_eq!((of(None, 0), of(Some(Figure::exact(0)), 0)), (None, None));
        assert_eq!(of(None, 3).unwrap()[2..5], [Value::Null, Value::Null, Value::Int(3)]);
        let unsure = of(Some(Figure { value: 0.0, error: 2.5 }), 0).unwrap();
        assert_eq!(unsure[2..5], [Value::Int(0), Value::Null, Value::Null]);
        assert_eq!(unsure[5], Value::text("an estimate, off by 3 at most in 95 of 100 cases"));
    }
}
