//! What goes on: memory, devices, background work, locks, snapshots. Every figure is one that the engine counts anyway; of what nobody
//! counts there is no column. Where something lies on the server's machine is for superusers, as in PostgreSQL: others see no setting
//! that says it, NULL in place of a path, and no text that may have one.

use super::activity::{HIDDEN, is_superuser};
use super::{NULL, Rows, float, int, optional, text};
use crate::catalog::{Catalog, Oid};
use crate::exec::Context;
use crate::session::SessionInfo;
use crate::session::settings::{DEFINITIONS, Scope};
use crate::types::{Array, NO_MODIFIER, Type, Value};
use gannet_base::memory::Purpose;
use gannet_base::units::format_size;
use gannet_io::stats::Operation;
use gannet_io::{Class, Memory, Pressure};
use gannet_store::{Alarm, JobKind, JobReport, JobState, RestartReport, TransactionReport};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Shared locks that `pg_locks` shows at most: a statement may hold millions.
const LOCKS_SHOWN: usize = 10_000;

fn count(value: u64) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn micros(time: Duration) -> Value {
    float(time.as_nanos() as f64 / 1000.0)
}

fn millis(nanos: u64) -> Value {
    float(nanos as f64 / 1e6)
}

/// When something began that has taken this long, as a timestamp.
pub(super) fn since(age: Duration) -> Value {
    int(crate::session::now() - age.as_micros() as i64)
}

/// Settings of the process, then those of the session: what was asked for, what holds, and why.
pub(super) fn settings(context: &Context<'_>) -> Rows {
    let database = context.session.database();
    let mut reports = database.process_settings();
    if !is_superuser(context) {
        reports.retain(|report| !report.is_place);
    }
    let mut rows = Vec::new();
    for report in &reports {
        let reason = if report.reason.is_empty() { NULL } else { text(&report.reason) };
        let requested = if report.requested.is_empty() { NULL } else { text(&report.requested) };
        rows.push(vec![text(&report.name), requested, text(&report.effective), text(&report.source), reason]);
    }
    // A program that embeds the database publishes nothing: what it has opened it with is known all the same.
    let mode = database.store().io_mode();
    let page_size = format_size(database.store().page_size() as u64);
    let limit = format_size(context.session.engine.budget().limit());
    let queues = context.session.engine.disk().queue_backend();
    let opened = [
        ("io", mode.requested.name().to_owned(), mode.effective.name(), mode.reason.as_str()),
        ("page_size", page_size.clone(), &page_size, "chosen when the database was created"),
        ("memory", limit.clone(), &limit, "of all databases of the process"),
    ];
    let queues = queues.as_ref().map(|report| {
        ("queues", report.requested.name().to_owned(), report.effective.name(), report.reason.as_str())
    });
    for (name, requested, effective, reason) in opened.into_iter().chain(queues) {
        if reports.iter().all(|report| report.name != name) {
            rows.push(vec![text(name), text(requested), text(effective), text("open"), text(reason)]);
        }
    }
    let settings = context.session.settings();
    for (index, definition) in DEFINITIONS.iter().enumerate() {
        let value = settings.text(index);
        let source = if definition.scope == Scope::Fixed { "built in" } else { settings.source(index) };
        rows.push(vec![
            text(definition.name),
            text(value),
            text(value),
            text(source),
            text(definition.description),
        ]);
    }
    Ok(rows)
}

/// The budget, by purpose, and as a whole.
pub(super) fn memory(context: &Context<'_>) -> Rows {
    let budget = context.session.engine.budget();
    let mut rows: Vec<Vec<Value>> = Purpose::ALL
        .iter()
        .map(|&purpose| {
            let (used, peak) = (budget.used_for(purpose), budget.peak_for(purpose));
            vec![text(purpose.name()), count(used), count(peak), NULL]
        })
        .collect();
    rows.push(vec![text("total"), count(budget.used()), count(budget.peak()), count(budget.limit())]);
    Ok(rows)
}

/// What the machine, and the control group of this process, have of memory, and how short they are of it and of devices.
pub(super) fn machine(_: &Context<'_>) -> Rows {
    let (memory, pressure) = (Memory::of_this_machine(), Pressure::of_this_machine());
    let bytes = |known: Option<u64>| optional(known, count);
    let share = |known: Option<f64>| optional(known, float);
    Ok(vec![vec![
        bytes(memory.total),
        bytes(memory.available),
        bytes(memory.swap_total),
        bytes(memory.swap_free),
        bytes(memory.cgroup_limit),
        bytes(memory.cgroup_used),
        bytes(memory.cgroup_cached),
        bytes(memory.cgroup_swap_limit),
        share(pressure.memory.map(|(some, _)| some)),
        share(pressure.memory.map(|(_, full)| full)),
        share(pressure.io.map(|(some, _)| some)),
        share(pressure.io.map(|(_, full)| full)),
        bytes(pressure.swapped_bytes),
        optional(pressure.swappiness, count),
    ]])
}

/// Requests to the device since the process began, by class and kind.
pub(super) fn io(context: &Context<'_>) -> Rows {
    let stats = context.session.engine.disk().stats();
    let mut rows = Vec::new();
    for class in Class::ALL {
        for (operation, name) in
            [(Operation::Read, "read"), (Operation::Write, "write"), (Operation::Sync, "sync")]
        {
            let counter = stats.counter(class, operation);
            let requests = counter.requests.load(Ordering::Relaxed);
            let quantile = |share| if requests == 0 { NULL } else { micros(counter.latency.quantile(share)) };
            rows.push(vec![
                text(class.name()),
                text(name),
                count(requests),
                count(counter.bytes.load(Ordering::Relaxed)),
                count(counter.errors.load(Ordering::Relaxed)),
                millis(counter.nanos.load(Ordering::Relaxed)),
                quantile(0.5),
                quantile(0.95),
                quantile(0.99),
                quantile(1.0),
            ]);
        }
    }
    Ok(rows)
}

/// The database's files, what the OS cache holds of them, and how they are open.
pub(super) fn files(context: &Context<'_>) -> Rows {
    let store = context.session.database().store();
    let (files, disk) = (store.files(), store.engine().disk());
    let shows_all = is_superuser(context);
    let row = |(path, cached): (std::path::PathBuf, Option<gannet_io::Cached>)| {
        let mode = disk.mode_of(&path);
        vec![
            if shows_all { text(path.to_string_lossy()) } else { NULL },
            super::optional(cached, |cached| count(cached.len_bytes)),
            super::optional(cached, |cached| count(cached.cached_bytes)),
            super::optional(mode.as_ref(), |mode| text(mode.effective.name())),
            super::optional(mode.as_ref(), |mode| text(&mode.reason)),
        ]
    };
    Ok(gannet_io::residency(files).files.into_iter().map(row).collect())
}

/// What the database does of its own accord, then the jobs that ended last, then those under way.
pub(super) fn jobs(context: &Context<'_>) -> Rows {
    let store = context.session.database().store();
    let shows_all = is_superuser(context);
    let mut rows = background(store, shows_all);
    rows.extend(store.jobs().reports().iter().map(|report| {
        // The text of an error may have some of what was loaded.
        let hidden = report.state == JobState::Failed && !shows_all;
        // Where these read or write; others are about tables.
        let at_a_place = matches!(
            report.kind,
            JobKind::Backup | JobKind::Dump | JobKind::Load | JobKind::Restore | JobKind::Verify
        );
        let about = if at_a_place && !shows_all { NULL } else { text(&report.about) };
        job(report, about, if hidden { HIDDEN } else { &report.note })
    }));
    Ok(rows)
}

fn job(report: &JobReport, about: Value, detail: &str) -> Vec<Value> {
    let seconds = float;
    vec![
        count(report.id),
        text(report.kind.name()),
        about,
        text(report.state.name()),
        text(&report.phase),
        text(report.unit.name()),
        count(report.done),
        if report.total > 0 { count(report.total) } else { NULL },
        if report.total > 0 { count(report.total.saturating_sub(report.done)) } else { NULL },
        float(report.rate),
        seconds(report.seconds),
        super::optional(report.seconds_left, seconds),
        seconds(report.paced_seconds),
        count(report.bytes_read),
        count(report.bytes_written),
        int(crate::session::from_unix(report.started_unix_us)),
        super::optional(report.owner, count),
        text(&report.reason),
        text(detail),
    ]
}

/// A row of what runs all the time, as far as there is something to do.
struct Standing {
    name: &'static str,
    state: &'static str,
    unit: &'static str,
    done: u64,
    left: u64,
    reason: &'static str,
    detail: Option<String>,
}

impl Standing {
    fn row(self) -> Vec<Value> {
        let mut row = vec![NULL; 19];
        (row[1], row[3], row[5]) = (text(self.name), text(self.state), text(self.unit));
        (row[6], row[8]) = (count(self.done), count(self.left));
        (row[17], row[18]) = (text(self.reason), super::optional(self.detail, text));
        row
    }
}

/// How a restart went. What is damaged is told with its file.
fn restart_text(report: &RestartReport, shows_all: bool) -> String {
    if shows_all || report.damaged_pages.is_empty() && report.lost.is_none() {
        return report.to_string();
    }
    HIDDEN.to_owned()
}

fn background(store: &gannet_store::Database, shows_all: bool) -> Vec<Vec<Value>> {
    let work = store.background_work();
    let redo = work.log_end.0.saturating_sub(work.redo_from.0);
    let checkpoint = Standing {
        name: "checkpoint",
        state: if work.dirty_pages > 0 { "pending" } else { "idle" },
        unit: "pages",
        done: work.pages_written,
        left: work.dirty_pages,
        reason: "always: a restart after a crash is to be short",
        detail: Some(format!(
            "a restart now would go through {} of log, of at most {}",
            format_size(redo),
            format_size(work.wal_limit)
        )),
    };
    let held = store.snapshots().first().map(|oldest| {
        format!("the oldest snapshot is {:.1} s old: what it may see is kept", oldest.age.as_secs_f64())
    });
    let sweep = Standing {
        name: "sweep",
        state: match (work.sweeping, work.segments_left) {
            (true, _) => "running",
            (false, 0) => "idle",
            (false, _) => "pending",
        },
        unit: "undo segments",
        done: work.segments_swept,
        left: work.segments_left,
        reason: "always: what nobody can see any more goes",
        detail: held.filter(|_| work.segments_left > 0),
    };
    let report = store.restart_report();
    let restart = Standing {
        name: "restart",
        state: report.phase.name(),
        unit: "pages",
        done: report.examined_pages,
        left: report.pages_left,
        reason: if report.crashed {
            "after a crash"
        } else {
            "at each start: it was closed, and nothing was left to do"
        },
        detail: Some(restart_text(&report, shows_all)),
    };
    let cold = (work.pages_left_cold > 0)
        .then(|| format!("{} more were left out, as no memory was free for them", work.pages_left_cold));
    let warm_up = Standing {
        name: "warm-up",
        state: match (work.warming_up, work.pages_to_warm) {
            (true, _) => "running",
            (false, 0) => "idle",
            (false, _) => "pending",
        },
        unit: "pages",
        done: work.pages_warmed,
        left: work.pages_to_warm,
        reason: "pages that were in memory at the last close",
        detail: cold,
    };
    [checkpoint, sweep, restart, warm_up].map(Standing::row).into()
}

/// What the start of the database had to do, and what of that is left.
pub(super) fn restart(context: &Context<'_>) -> Rows {
    let report = context.session.database().store().restart_report();
    Ok(vec![vec![
        text(report.phase.name()),
        Value::Bool(report.crashed),
        float(report.duration.as_secs_f64()),
        float(report.background.as_secs_f64()),
        super::optional(report.time_left, |left| float(left.as_secs_f64())),
        count(report.log_bytes),
        count(report.healed_pages),
        count(report.pages),
        count(report.pages_left),
        count(report.bytes_left),
        count(report.redone_pages),
        count(report.applied_changes),
        count(report.losers),
        count(report.losers - report.reverted_losers),
        text(restart_text(&report, is_superuser(context))),
    ]])
}

/// Snapshots that are held, and transactions that have written, the oldest first: they keep old versions from being removed.
pub(super) fn snapshots(context: &Context<'_>) -> Rows {
    let database = context.session.database();
    let sessions = database.sessions();
    let holder =
        |number| sessions.iter().find(|session| session.interrupt.transaction_number() == Some(number));
    let row = |held: gannet_store::GarbageHolder| {
        vec![
            super::optional(holder(held.number), |session| int(session.pid)),
            count(held.from),
            int(crate::session::from_unix(held.since_unix_us)),
            float(held.age_seconds),
            text(held.kind.name()),
            count(held.held_bytes),
            count(held.alone_bytes),
            super::optional(held.limit_seconds, float),
        ]
    };
    Ok(database.store().holders().into_iter().map(row).collect())
}

/// What is to be seen to.
pub(super) fn alarms(context: &Context<'_>) -> Rows {
    let shows_all = is_superuser(context);
    // These tell of a folder or file, or of an error of one.
    let has_place = |alarm: &Alarm| matches!(&*alarm.name, "archive" | "archive gap" | "failure" | "restart");
    let row = |alarm: &Alarm| {
        vec![
            text(&alarm.name),
            text(alarm.severity.name()),
            int(crate::session::from_unix(alarm.since_unix_us)),
            text(if shows_all || !has_place(alarm) { &alarm.what } else { HIDDEN }),
            super::optional(alarm.figure, float),
            super::optional(alarm.threshold, float),
            text(&alarm.unit),
            text(&alarm.advice),
        ]
    };
    Ok(context.session.database().store().outlook().alarms.iter().map(row).collect())
}

/// How the archive is doing: a row where there is one.
pub(super) fn archive(context: &Context<'_>) -> Rows {
    let Some(report) = context.session.database().store().archive_report() else { return Ok(Vec::new()) };
    let time = |unix_us: u64| if unix_us == 0 { NULL } else { int(crate::session::from_unix(unix_us)) };
    let shows_all = is_superuser(context);
    let error = report.error.as_deref().filter(|_| report.failing_since_unix_us > 0);
    let error = error.map(|error| if shows_all { error } else { HIDDEN });
    Ok(vec![vec![
        if shows_all { text(report.destination.display().to_string()) } else { NULL },
        text(report.state.name()),
        count(report.archived_lsn),
        time(report.archived_unix_us),
        count(report.behind_bytes),
        float(report.behind_seconds),
        count(report.written_bytes),
        time(report.failing_since_unix_us),
        super::optional(error, text),
        super::optional(report.gap.map(|gap| gap.0), count),
        super::optional(report.gap.map(|gap| gap.1), count),
    ]])
}

/// What grows, and when it comes to its limit.
pub(super) fn forecasts(context: &Context<'_>) -> Rows {
    let row = |gauge: &gannet_store::Gauge| {
        vec![
            text(&gauge.name),
            float(gauge.value),
            super::optional(gauge.limit, float),
            super::optional(gauge.per_second, float),
            super::optional(gauge.seconds_left, float),
            float(gauge.looked_seconds),
            text(&gauge.note),
        ]
    };
    Ok(context.session.database().store().outlook().gauges.iter().map(row).collect())
}

// ---- locks ----------------------------------------------------------------------------------------------------------

/// Sessions by the transaction that they are in.
fn by_transaction(sessions: &[SessionInfo]) -> HashMap<u64, i32> {
    let of = |session: &SessionInfo| Some((session.interrupt.transaction()?.0, session.pid));
    sessions.iter().filter_map(of).collect()
}

/// Relations by the name of their tree, and tables by its number.
struct Trees {
    names: HashMap<Vec<u8>, Oid>,
    tables: HashMap<u32, Oid>,
}

impl Trees {
    fn of(catalog: &Catalog, context: &Context<'_>) -> Self {
        let (mut names, mut tables) = (HashMap::new(), HashMap::new());
        for table in catalog.tables.values() {
            names.insert(table.storage.name.clone().into_bytes(), table.oid);
            for index in table.indexes.iter().filter(|index| !index.primary) {
                names.insert(index.storage.name.clone().into_bytes(), index.oid);
            }
            let open = |name: &str| {
                context.view.tree(name)?.ok_or_else(|| crate::Error::internal("a tree that is not there"))
            };
            if let Ok(tree) = table.storage.tree(open) {
                tables.insert(tree.id().0, table.oid);
            }
        }
        Trees { names, tables }
    }
}

/// A row of `pg_locks`.
struct Lock {
    kind: &'static str,
    relation: Option<Oid>,
    transaction: Option<u64>,
    holder: u64,
    mode: &'static str,
    waiting: Option<Duration>,
}

impl Lock {
    fn row(&self, database: i64, pids: &HashMap<u64, i32>) -> Vec<Value> {
        let pid = super::optional(pids.get(&self.holder), |pid| int(*pid));
        vec![
            text(self.kind),
            if self.relation.is_some() { int(database) } else { NULL },
            super::optional(self.relation, int),
            super::optional(self.transaction, count),
            text(format!("0/{}", self.holder)),
            pid,
            text(self.mode),
            Value::Bool(self.waiting.is_none()),
            super::optional(self.waiting, since),
        ]
    }
}

/// Transactions, each of which holds itself; who waits for them; shared locks. An exclusive lock of a row stands in the row, and is seen
/// here by those who wait for its holder.
pub(super) fn locks(context: &Context<'_>) -> Rows {
    let database = context.session.database();
    let pids = by_transaction(&database.sessions());
    let mut locks = Vec::new();
    for TransactionReport { id, waits_for, waiting, .. } in database.store().transactions() {
        let own = |transaction: u64, mode, waiting| Lock {
            kind: "transactionid",
            relation: None,
            transaction: Some(transaction),
            holder: id.0,
            mode,
            waiting,
        };
        locks.push(own(id.0, "ExclusiveLock", None));
        locks.extend(waits_for.iter().map(|other| own(other.0, "ShareLock", waiting)));
    }
    let trees = Trees::of(context.catalog, context);
    for lock in database.store().shared_row_locks(LOCKS_SHOWN) {
        let (kind, relation, mode) = match lock.tree {
            None => ("relation", trees.names.get(&*lock.key), "RowExclusiveLock"),
            Some(tree) => {
                let mode = if lock.whole_row { "ForShare" } else { "ForKeyShare" };
                ("tuple", trees.tables.get(&tree.0), mode)
            }
        };
        // Others are entries of the catalog itself.
        if let Some(&relation) = relation {
            let relation = Some(relation);
            locks.push(Lock {
                kind,
                relation,
                transaction: None,
                holder: lock.holder.0,
                mode,
                waiting: None,
            });
        }
    }
    let oid = super::activity::database_oid(context, &context.session.database);
    Ok(locks.iter().map(|lock| lock.row(oid, &pids)).collect())
}

// ---- this session, and tables -----------------------------------------------------------------------------------------

pub(super) fn prepared(context: &Context<'_>) -> Rows {
    let row = |(name, known): (String, crate::session::PreparedInfo)| {
        let types = known.parameters.iter().map(|ty| text(ty.display(NO_MODIFIER))).collect();
        let types = Array { element: Type::Text, values: types, lower: 1 };
        vec![
            text(name),
            text(&*known.text),
            int(known.prepared_at),
            Value::Array(Arc::new(types)),
            Value::Bool(known.from_sql),
        ]
    };
    Ok(context.session.prepared_statements().into_iter().map(row).collect())
}

/// What is known of each table: its rows as they are now, about, and when it was analysed.
pub(super) fn tables(context: &Context<'_>) -> Rows {
    let mut rows = Vec::new();
    for table in context.catalog.tables.values() {
        let analyzed = context.catalog.statistics.get(&table.oid).map(|found| found.analyzed_at);
        let live = crate::session::rows_now(context.catalog, context.view, table);
        rows.push(vec![
            int(table.oid),
            text("public"),
            text(&table.name),
            super::optional(live, |rows| int(rows.round() as i64)),
            super::optional(analyzed, int),
        ]);
    }
    Ok(rows)
}
