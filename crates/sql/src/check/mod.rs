//! Check of a whole database: the store's own, and what only SQL knows of.
//!
//! # What it guarantees
//! 1. Findings of the store ([`gannet_store::CheckReport`]) are named by the table or index that they concern, with what is
//!    at stake in words of SQL.
//! 2. Every index of every table agrees with its table: it has exactly the entries that its rows make, NULL or not, unique or not.
//!    The two sides are read in their own order and compared by the number and the sum of the hashes of their entries; only
//!    where these differ it is looked for which entries they are.
//! 3. What was not compared, as its view held garbage back for longer than `snapshot_limit` permits, is a finding.
//! 4. It changes nothing. Statements of others, definitions included, go on meanwhile: each table is looked at as one view shows
//!    it and its indexes.
//!
//! Part 1 reads the file once, in its own order; part 2 reads tables that have further indexes, and those, once more each.

mod indexes;
mod names;

use crate::catalog::{Catalog, Table, storage};
use crate::crew::{Crew, take_turns};
use crate::{Error, Result, SqlState};
use gannet_base::clock;
use gannet_store::{
    CheckReport, Database, Job, LongValues, Reserve, TransactionOptions, Unit, View, Watch, WorkMemory,
};
use indexes::{Comparison, further_indexes};
use names::Names;
pub(crate) use names::part;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it concerns: a table, an index, or a part of the file.
    pub object: String,
    /// The page, if it is about one.
    pub page: Option<u64>,
    /// What is wrong.
    pub finding: String,
    /// What it means for the data, and what can be done.
    pub at_stake: String,
}

/// What a check looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Trees, the store's own included.
    pub trees: u64,
    /// Pages in use.
    pub pages: u64,
    /// Entries of trees' leaves.
    pub entries: u64,
    /// Undo records.
    pub undo_records: u64,
    /// Pages of which the log could tell that no write was lost.
    pub compared_with_log: u64,
    /// Bytes read page by page.
    pub bytes_read: u64,
    /// How long that took.
    pub pages_seconds: f64,
    /// Indexes compared with their tables.
    pub indexes: u64,
    /// Rows and index entries gone through for that.
    pub compared: u64,
    /// How long all of it took.
    pub seconds: f64,
    /// Findings.
    pub findings: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Everything that is wrong; empty when all is well.
    pub findings: Vec<Finding>,
    /// What was looked at.
    pub figures: Figures,
}

/// Long values of rows that are looked at are charged to the budget.
#[derive(Debug)]
struct Charged(gannet_store::Engine);

impl LongValues for Charged {
    fn expect(&self, bytes: u64) -> gannet_store::Result<Option<WorkMemory>> {
        self.0.work_memory(2 * bytes).map(Some)
    }
}

/// Checks a database, of SQL or not, as a job of it. `snapshot_limit`: how long the moment at which a table is compared with its indexes may
/// hold garbage back; `None`: as the database was opened with. A table for which that is too short is a finding.
///
/// # Errors
/// What keeps the check from being carried through: no memory, a database that has failed, what `watch` fails with.
pub fn check(store: &Database, snapshot_limit: Option<Duration>, watch: &mut Watch<'_>) -> Result<Outcome> {
    let start = clock::now();
    let report = store.check_watched(watch)?;
    let mut outcome = Outcome { figures: figures(&report), ..Outcome::default() };
    let level = TransactionOptions { snapshot_limit, ..TransactionOptions::default() };
    let names = match Names::load(store, level) {
        Ok(names) => names,
        Err(error) if is_damage(&error) => {
            // The page of it is among the findings.
            Names::without_definitions(&error, &mut outcome.findings)
        }
        Err(error) => return Err(error),
    };
    outcome.findings.extend(report.findings.iter().map(|finding| names.tell(finding)));
    if names.has_definitions() {
        outcome = compare((store, level), &report, outcome, watch)?;
    }
    outcome.figures.findings = outcome.findings.len() as u64;
    outcome.figures.seconds = seconds(start.elapsed());
    Ok(outcome)
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e6
}

/// Whether an error is about what is stored, not about the means to look at it.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(error.state(), SqlState::DATA_CORRUPTED | SqlState::IO_ERROR)
}

/// Whether a view has held garbage back for longer than it may.
fn is_too_old(error: &Error) -> bool {
    error.state() == SqlState::TRANSACTION_TIMEOUT
}

/// What that means for a table.
fn not_compared(table: &str, error: &Error) -> Finding {
    Finding {
        object: format!("table {table}"),
        page: None,
        finding: format!("not compared: {error}"),
        at_stake: "whether its indexes agree with it is not known; SET snapshot_limit = 0, or a longer one, for the check"
            .to_owned(),
    }
}

fn figures(report: &CheckReport) -> Figures {
    Figures {
        trees: report.trees,
        pages: report.pages,
        entries: report.entries,
        undo_records: report.undo_records,
        compared_with_log: report.compared_with_log,
        bytes_read: report.bytes_read,
        pages_seconds: seconds(report.duration),
        ..Figures::default()
    }
}

/// Tables whose indexes are compared with them, one after the other.
struct Comparing<'c> {
    store: &'c Database,
    /// Of its views.
    level: TransactionOptions,
    report: &'c CheckReport,
    catalog: Catalog,
    /// Those to come, the next one last.
    oids: Vec<u32>,
    at: Option<Comparison>,
    /// Trees that were gone through.
    done: u64,
    outcome: Outcome,
}

/// Compares the indexes of all tables, a view for each table: nobody's garbage is kept for longer.
fn compare(
    (store, level): (&Database, TransactionOptions),
    report: &CheckReport,
    outcome: Outcome,
    watch: &mut Watch<'_>,
) -> Result<Outcome> {
    let catalog = storage::load(&view(store, level))?;
    let trees = |table: &Table| match further_indexes(table).len() as u64 {
        0 => 0,
        further => 1 + further,
    };
    let total = catalog.tables.values().map(|table| trees(table)).sum();
    watch.job().phase("compares indexes with tables", Unit::Trees, total);
    let oids = catalog.tables.keys().rev().copied().collect();
    let comparing = Comparing { store, level, report, catalog, oids, at: None, done: 0, outcome };
    let crew = Crew::new("gannet-compare", Reserve::with_snapshot());
    let job = watch.job();
    let compared = take_turns(&crew, comparing, &|comparing| comparing.step(job), watch)?;
    Ok(compared.outcome)
}

fn view(store: &Database, level: TransactionOptions) -> View {
    let charged = Arc::new(Charged(store.engine().clone()));
    store.begin_watched(level, charged).view()
}

impl Comparing<'_> {
    /// Does the next piece; true when there is nothing more.
    fn step(&mut self, job: &Job) -> Result<bool> {
        let Some(comparison) = &mut self.at else { return self.begin_next() };
        let over = match comparison.step() {
            Err(error) if is_damage(&error) => {
                comparison.note_damage(&error, &self.report.findings);
                true
            }
            Err(error) if is_too_old(&error) => {
                comparison.findings.push(not_compared(&comparison.table.name, &error));
                true
            }
            other => other?,
        };
        job.set_done(self.done + comparison.passed);
        if over && let Some(comparison) = self.at.take() {
            self.done += comparison.passed;
            self.outcome.figures.indexes += comparison.compared_indexes;
            self.outcome.figures.compared += comparison.compared;
            self.outcome.findings.extend(comparison.findings);
            if !self.outcome.findings.is_empty() {
                job.note(format_args!("{} findings", self.outcome.findings.len()));
            }
        }
        Ok(false)
    }

    fn begin_next(&mut self) -> Result<bool> {
        let Some(oid) = self.oids.pop() else { return Ok(true) };
        let view = view(self.store, self.level);
        let table = match storage::reload_table(&view, &self.catalog, oid) {
            Err(error) if is_too_old(&error) => {
                let name = self.catalog.tables.get(&oid).map_or("?", |table| &table.name);
                self.outcome.findings.push(not_compared(name, &error));
                return Ok(false);
            }
            table => table?,
        };
        // Dropped meanwhile, or without an index of its own.
        self.at = table.and_then(|table| Comparison::new(view, table));
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Rows, Session};
    use gannet_store::{CreateOptions, Engine, EngineOptions, JobKind, JobOrder, OpenOptions};

    fn run(session: &mut Session, sql: &str) {
        session.run(sql, &mut Rows::default()).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Compares the tables; behind the first piece of each, garbage is made, and it is waited until a view that may not hold it is ended.
    fn compared(level: TransactionOptions) -> Outcome {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory: 32 << 20, temp_folder: Some(folder.path().join("temp")) };
        let engine = Engine::new(&options).unwrap();
        let open = OpenOptions { sweep: false, ..OpenOptions::default() };
        let path = folder.path().join("a.gnt");
        let database =
            crate::Database::create(&engine, &path, &CreateOptions::default(), &open, "owner").unwrap();
        let mut session = database.session("owner").unwrap();
        for table in ["a", "b"] {
            run(&mut session, &format!("create table {table} (x int primary key, y int)"));
            run(&mut session, &format!("create index on {table} (y)"));
            run(&mut session, &format!("insert into {table} select n, n from generate_series(1, 100) as n"));
        }
        let store = database.store();
        let report = store.check().unwrap();
        let catalog = storage::load(&view(store, level)).unwrap();
        let oids = catalog.tables.keys().rev().copied().collect();
        let outcome = Outcome::default();
        let mut comparing =
            Comparing { store, level, report: &report, catalog, oids, at: None, done: 0, outcome };
        let job = store.jobs().begin(JobOrder::new(JobKind::Check));
        let mut waits = level.snapshot_limit.is_some_and(|limit| !limit.is_zero());
        while !comparing.step(&job).unwrap() {
            // Once, so that the next table is compared.
            if let Some(comparison) = comparing.at.as_mut().filter(|_| waits) {
                comparison.step().unwrap();
                run(&mut session, "delete from a; delete from b");
                while comparison.view().check_limit().is_ok() {
                    clock::sleep(Duration::from_millis(10));
                }
                waits = false;
            }
        }
        comparing.outcome
    }

    #[test]
    fn a_table_that_takes_longer_than_the_limit_is_told_and_the_others_are_compared() {
        let limit = Some(Duration::from_millis(1));
        let outcome = compared(TransactionOptions { snapshot_limit: limit, ..TransactionOptions::default() });
        let told: Vec<_> = outcome.findings.iter().map(|found| (&*found.object, &*found.finding)).collect();
        assert!(matches!(&told[..], [("table a", why)] if why.starts_with("not compared: ")), "{told:?}");
        assert_eq!(outcome.figures.indexes, 1);
        let outcome = compared(TransactionOptions::default());
        assert_eq!((outcome.findings.len(), outcome.figures.indexes), (0, 2));
    }
}
