//! LOAD DATABASE: a dump that lies on the server's machine, or that the client has, loaded as a job, by a thread and a session of its own.

use super::client::{Client, CommandTag, Notice, OutputColumn};
use super::given::By;
use super::interrupt::{Interrupt, Reason};
use super::jobs::{self, Running, info, threads};
use super::utility::give;
use super::{Database, Session};
use crate::bind::utility::{LoadDatabase, LoadSource};
use crate::load::{self, Embedded, Options, Origin, Outcome, listening};
use crate::{Error, Result, SqlState, Type, Value};
use gannet_base::thread;
use gannet_store::{JobKind, JobOrder, Watch};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The columns of what LOAD DATABASE has done. What comes from the client is told by the command's tag alone, which clients of COPY expect.
pub(super) fn columns_of(load: &LoadDatabase) -> Option<Vec<OutputColumn>> {
    matches!(load.source, LoadSource::Path(_)).then(columns)
}

fn columns() -> Vec<OutputColumn> {
    let number = |name| (name, Type::Int8);
    jobs::columns(&[
        number("tables"),
        number("rows"),
        number("statements"),
        number("bytes"),
        number("bad_rows"),
        number("bad_statements"),
    ])
}

impl Session {
    pub(super) fn load_database(
        &mut self,
        wanted: &LoadDatabase,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let verbose = wanted.verbose;
        let mut running = Running { statement: "LOAD DATABASE", for_all: false, verbose, alone, client };
        // Before anything is looked for at its word.
        self.check_superuser(running.statement)?;
        // Its own session would begin other transactions.
        let statement = running.statement;
        self.refuse_in_read_only(|| format!("cannot execute {statement} in a read-only transaction"))?;
        let options =
            Options { jobs: threads(wanted.jobs), skip: wanted.skip, alone: false, ..Options::default() };
        let mut order = JobOrder::new(JobKind::Load);
        order.about = match &wanted.source {
            LoadSource::Path(path) => format!("from {path}"),
            _ => "from the client".to_owned(),
        };
        let (role, user, interrupt) = (self.state.role, self.state.user.clone(), self.interrupt());
        // What the caller has set decides how data is read, and what was granted to the caller is granted to the load.
        let settings = self.state.settings().for_helper();
        let work = move |database: &Database, origin: Origin, watch: &mut Watch<'_>| {
            database.0.timer.start();
            // It builds trees, and holds their tables.
            if !watch.job().is_at_full_pace() {
                thread::step_back();
            }
            let session = database.session_as(role, &user)?;
            session.adopt(settings);
            load_by(session, &interrupt, origin, &options, watch)
        };
        let (outcome, job) = match wanted.source.clone() {
            LoadSource::Path(path) => {
                let origin = origin(Path::new(&path))?;
                self.run_job_apart(&mut running, order, move |database, _, watch| {
                    work(database, origin, watch)
                })?
            }
            LoadSource::Stream(name) => {
                self.run_job_given(&mut running, order, By::Stream, move |database, from, watch| {
                    work(database, Origin::Stream(Box::new(from), name), watch)
                })?
            }
            LoadSource::File(name) => {
                self.run_job_given(&mut running, order, By::Answers, move |database, from, watch| {
                    let client = load::Offered::new(Box::new(from), false);
                    work(database, Origin::OfClient(client, PathBuf::from(name)), watch)
                })?
            }
            LoadSource::Folder(name) => {
                self.run_job_given(&mut running, order, By::Answers, move |database, from, watch| {
                    let client = load::Offered::new(Box::new(from), true);
                    work(database, Origin::FolderOfClient(client, PathBuf::from(name)), watch)
                })?
            }
        };
        let rows = columns_of(wanted).map_or(outcome.rows, |_| 1);
        if columns_of(wanted).is_some() {
            let counts = [
                outcome.tables,
                outcome.rows,
                outcome.statements,
                outcome.bytes,
                outcome.bad_rows,
                outcome.bad_statements,
            ];
            let row = counts.map(|count| Value::Int(count.cast_signed()));
            give(&columns(), &[row.to_vec()], self, running.client)?;
        }
        for problem in &outcome.problems {
            let notice = Notice::warning(SqlState::WARNING, format!("skipped: {problem}"));
            running.client.notice(&notice);
        }
        if verbose {
            let message = format!("{} rows in {:.1} s", outcome.rows, job.seconds);
            running.client.notice(&info(message, &json!({ "job": job, "outcome": outcome })));
        }
        Ok(CommandTag { command: "LOAD DATABASE", rows: Some(rows) })
    }
}

/// What lies there.
fn origin(path: &Path) -> Result<Origin> {
    if !path.is_absolute() {
        let message = "relative path not allowed for LOAD DATABASE from a file of the server";
        return Err(Error::new(SqlState::INVALID_NAME, message));
    }
    let kind = std::fs::metadata(path).map_err(|error| {
        Error::new(SqlState::UNDEFINED_FILE, format!("the server cannot read {path:?}: {error}"))
    })?;
    let path = PathBuf::from(path);
    match (kind.is_dir(), kind.is_file()) {
        (true, _) => Ok(Origin::Folder(path)),
        (_, true) => Ok(Origin::File(path)),
        _ => Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("{path:?} is no file, and no folder"))),
    }
}

/// Loads by a session of its own, whose statements end with that of `interrupt`, and with the job.
fn load_by(
    session: Session,
    interrupt: &Interrupt,
    origin: Origin,
    options: &Options,
    watch: &mut Watch<'_>,
) -> Result<Outcome> {
    let disk = Arc::clone(session.state.engine.disk());
    let mut destination = Embedded(session);
    let (own, ending) = (destination.0.interrupt(), watch.job().ending());
    let is_to_end = || interrupt.check().is_err() || ending.is_asked_for();
    let outcome = listening(&is_to_end, &|| own.interrupt(Reason::User), || {
        load::load(origin, &disk, &mut destination, options, watch)
    })?;
    watch.job().count_read(outcome.bytes);
    Ok(outcome)
}
