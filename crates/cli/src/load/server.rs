//! A load by a server, as a job of its own: of what lies on its machine, or of what this command has and sends. Where it cannot do that, it is given
//! statements.

use super::statements::Remote;
use super::{Source, Stream, asked};
use crate::arguments::{Load, OnError};
use crate::job::{self, Supply};
use anyhow::{Context, Result};
use gannet_server::frontend::{Connection, Failure};
use gannet_sql::load::{Offer, Options, Outcome, Request, listening, load};
use gannet_store::{JobOrder, JobReport, Watch};
use std::io;
use std::sync::Arc;

/// Bytes of a stream that are sent at a time.
const PIECE: usize = 64 << 10;

/// What came of it.
pub(super) struct Loaded {
    pub(super) outcome: Outcome,
    pub(super) job: JobReport,
    /// It was done by statements: why.
    pub(super) by_statements: Option<String>,
}

/// Has a server of this machine load what lies there.
pub(super) fn load_there(connection: &mut Connection, arguments: &Load) -> Result<(Outcome, JobReport)> {
    let statement = statement(arguments, &job::absolute(&arguments.source)?);
    outcome_of(job::by_server(connection, &statement, &mut |_| Ok(()))?)
}

/// Has a server load what lies here.
pub(super) fn load_from_here(
    mut connection: Connection,
    arguments: &Load,
    mut source: Source,
    order: JobOrder,
    options: &Options,
) -> Result<Loaded> {
    let engine = arguments.opening.engine()?;
    let disk = Arc::clone(engine.disk());
    let name = arguments.source.to_string_lossy();
    let mode = arguments.opening.io;
    let (kind, name, data) = match &mut source {
        Source::File(path) => {
            ("FILE", &*name, Data::Answers(Box::new(Offer::file(path, &name, &disk, mode))))
        }
        Source::Folder(path) => {
            ("FOLDER", &*name, Data::Answers(Box::new(Offer::folder(path, &name, &disk, mode))))
        }
        Source::Stream(stream, name) => ("STREAM", &**name, Data::Stream(stream)),
    };
    let statement = statement(arguments, &format!("STDIN {kind} {}", job::quoted(name)));
    let mut sending = Sending { data, is_begun: false };
    let done = job::supplied_to_server(&mut connection, &statement, &mut sending);
    let is_begun = sending.is_begun;
    let why = match done {
        Ok(told) => {
            let (outcome, job) = outcome_of(told)?;
            return Ok(Loaded { outcome, job, by_statements: None });
        }
        // Nothing was taken of a stream yet.
        Err(error) => match why_not(&error).filter(|_| !is_begun) {
            Some(why) => why,
            None => return Err(error),
        },
    };
    let mut destination = Remote(connection);
    let canceller = destination.0.canceller();
    // A server that takes no request now is asked again.
    let cancel = move || drop(canceller.cancel());
    let work = |watch: &mut Watch<'_>| {
        listening(&asked, &cancel, || load(source.origin(), &disk, &mut destination, options, watch))
    };
    let (outcome, job) = job::here(&engine.jobs(), order, work)?;
    Ok(Loaded { outcome, job, by_statements: Some(why) })
}

/// The statement by which a server does it, as a job of its own.
fn statement(arguments: &Load, source: &str) -> String {
    let mut text = format!("LOAD DATABASE FROM {source}");
    if arguments.on_error == OnError::Skip {
        text += " ON ERROR SKIP";
    }
    if let Some(jobs) = arguments.jobs {
        text += &format!(" JOBS {jobs}");
    }
    text + " VERBOSE"
}

fn outcome_of(told: job::Told) -> Result<(Outcome, JobReport)> {
    let outcome = serde_json::from_value(told.detail["outcome"].clone())
        .context("the server said nothing of the load")?;
    Ok((outcome, told.job))
}

/// Why a server does not do it by itself, if that is what it says: it is another one, or an older one, or this role may not.
fn why_not(error: &anyhow::Error) -> Option<String> {
    let Some(Failure::Server(report)) = error.downcast_ref() else { return None };
    match &*report.state {
        "42601" | "0A000" => Some("the server has no LOAD DATABASE FROM STDIN".to_owned()),
        "42501" => Some(report.message.clone()),
        _ => None,
    }
}

enum Data<'o> {
    Stream(&'o mut Stream),
    Answers(Box<Offer>),
}

/// What is sent to a server.
struct Sending<'o> {
    data: Data<'o>,
    is_begun: bool,
}

impl Supply for Sending<'_> {
    fn begin(&mut self) {
        self.is_begun = true;
    }

    fn answers(&self) -> bool {
        matches!(self.data, Data::Answers(_))
    }

    fn ask(&mut self, request: Request) {
        if let Data::Answers(offer) = &mut self.data {
            offer.ask(request);
        }
    }

    fn read(&mut self, data: &mut Vec<u8>) -> io::Result<bool> {
        match &mut self.data {
            Data::Stream(stream) => {
                let before = data.len();
                data.resize(before + PIECE, 0);
                let read = stream.try_read(&mut data[before..]);
                data.truncate(before + read.as_ref().map_or(0, |read| read.unwrap_or(0)));
                Ok(read? != Some(0))
            }
            Data::Answers(offer) => Ok(offer.read(data)),
        }
    }
}
