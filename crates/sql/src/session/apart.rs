//! Jobs that a thread of its own runs, which may be nice, and whose product may go to the session's client, as the data of a COPY: the session's
//! thread hands on what that has made, as the client takes it. Who does not take it holds nobody up but the job. (What comes from the client
//! instead goes by [`super::given`].)

use super::client::CopyFormat;
use super::interrupt::Interrupt;
use super::jobs::{self, Begun, Running, TELL_EVERY, info};
use super::{SESSION_STACK, Session};
use crate::dump::Files;
use crate::{Error, Result, SqlState};
use gannet_base::clock;
use gannet_base::memory::Purpose;
use gannet_store::{Ending, JobOrder, JobReport, Watch};
use serde_json::json;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pieces between the job and the client, and their bytes at most.
const PIECES: usize = 3;
const PIECE: usize = 64 << 10;
/// What they take, with one in the hands of each side.
const MEMORY: u64 = (PIECES as u64 + 2) * PIECE as u64;
/// How often it is looked whether the client has taken one.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// On its way to the client.
enum Piece {
    /// A file begins, of a product that has several.
    File(String),
    Data(Vec<u8>),
    Progress(Box<JobReport>),
}

/// Where the job's threads write.
pub(super) struct ToClient {
    pieces: SyncSender<Piece>,
    ending: Ending,
    interrupt: Interrupt,
    /// Nothing more was sent, as the job is to end.
    stopped: Arc<AtomicBool>,
}

impl ToClient {
    fn send(&self, mut piece: Piece) -> io::Result<()> {
        loop {
            match self.pieces.try_send(piece) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => {
                    return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone"));
                }
                Err(TrySendError::Full(back)) => piece = back,
            }
            if self.ending.is_asked_for() || self.interrupt.check().is_err() {
                self.stopped.store(true, Ordering::Relaxed);
                return Err(io::Error::other("the job is to end"));
            }
            clock::sleep(LOOK_EVERY);
        }
    }
}

impl Files for ToClient {
    /// The client is told so between the data.
    fn begin_file(&mut self, name: &str) -> io::Result<()> {
        self.send(Piece::File(name.to_owned()))
    }
}

impl Write for ToClient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(PIECE);
        self.send(Piece::Data(bytes[..len].to_vec())).map(|()| len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts a job's thread, which says by `tell` how far it is. `stopped` was set where it could not go on with the client, as it was to end.
pub(super) fn start<T: Send + 'static>(
    begun: Begun,
    tell: Option<impl Fn(&JobReport) + Send + 'static>,
    stopped: Arc<AtomicBool>,
    work: impl FnOnce(&super::Database, &mut Watch<'_>) -> Result<T> + Send + 'static,
) -> Result<JoinHandle<Result<(T, JobReport)>>> {
    // Statements may run there as in a session.
    let thread = std::thread::Builder::new().name("gannet-job".to_owned()).stack_size(SESSION_STACK);
    let worker = thread.spawn(move || {
        let mut told = clock::now();
        let mut look = |report: &JobReport| {
            begun.check()?;
            if let Some(tell) = &tell
                && told.elapsed() >= TELL_EVERY
            {
                told = clock::now();
                tell(report);
            }
            Ok(())
        };
        let outcome = work(&begun.database, &mut Watch::new(&begun.job, &mut look));
        // What could not be sent as the job was to end is no failure of the client's.
        let was_stopped = stopped.load(Ordering::Relaxed);
        let outcome = outcome.map_err(|error| match was_stopped && error.state() == SqlState::IO_ERROR {
            true => gannet_store::Error::Cancelled.into(),
            false => error,
        });
        begun.end(outcome)
    });
    worker.map_err(|error| {
        Error::new(SqlState::INSUFFICIENT_RESOURCES, format!("cannot start a thread: {error}"))
    })
}

impl Session {
    /// Runs a job by a thread of its own; what it writes goes to the client.
    pub(super) fn run_job_apart<T: Send + 'static>(
        &mut self,
        running: &mut Running<'_>,
        order: JobOrder,
        work: impl FnOnce(&super::Database, ToClient, &mut Watch<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(T, JobReport)> {
        let begun = self.begin_job(running, order)?;
        let _memory = begun.database.store().engine().memory(Purpose::Io, MEMORY)?;
        let (database, ending) = (begun.database.clone(), begun.job.ending());
        let id = begun.job.report().id;
        let (sender, pieces) = sync_channel(PIECES);
        let stopped = Arc::new(AtomicBool::new(false));
        let to = ToClient {
            pieces: sender.clone(),
            ending,
            interrupt: self.interrupt(),
            stopped: Arc::clone(&stopped),
        };
        let tell = move |report: &JobReport| {
            // Whoever has not taken what came before need not know.
            let _ = sender.try_send(Piece::Progress(Box::new(report.clone())));
        };
        let worker = start(begun, running.verbose.then_some(tell), stopped, |database, watch| {
            work(database, to, watch)
        })?;
        let mut is_begun = false;
        let mut delivered = Ok(());
        for piece in &pieces {
            delivered = deliver(piece, &mut is_begun, running);
            if delivered.is_err() {
                // Nobody takes any more: it need not find out.
                database.store().jobs().cancel(id);
                break;
            }
        }
        drop(pieces);
        let outcome = worker.join().map_err(|_| Error::internal("a job has ended by itself"))?;
        delivered?;
        let done = outcome?;
        if is_begun {
            running.client.copy_out_end()?;
        }
        Ok(done)
    }
}

fn deliver(piece: Piece, is_begun: &mut bool, running: &mut Running<'_>) -> Result<()> {
    match piece {
        Piece::Progress(report) => running.client.progress(&jobs::progress(&report)),
        Piece::File(name) => {
            let detail = json!({ "file": name });
            running.client.notice(&info(name, &detail));
        }
        Piece::Data(data) => {
            // What fails before is an error like that of any statement.
            if !std::mem::replace(is_begun, true) {
                running.client.copy_out(&CopyFormat { columns: 0 })?;
            }
            running.client.copy_write(&data)?;
        }
    }
    Ok(())
}
