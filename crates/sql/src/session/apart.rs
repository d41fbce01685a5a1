//! Jobs that a thread of its own runs, which may be nice, and whose product may go to the session's client, as the data of a COPY: the session's
//! thread hands on what that has made, as the client takes it. Who does not take it holds nobody up but the job.

use super::Session;
use super::client::CopyFormat;
use super::jobs::{self, Begun, Running, TELL_EVERY, info};
use crate::dump::Files;
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use gannet_base::{clock, thread};
use gannet_store::{Ending, Engine, JobOrder, JobReport, Watch, WorkMemory};
use serde_json::json;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Pieces between the job and the client.
const PIECES: usize = 3;
/// Bytes of a message to the client.
const MESSAGE: usize = 64 << 10;
/// How often it is looked whether the client has taken one.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// On its way to the client.
enum Piece {
    /// A file begins, of a product that has several.
    File(String),
    /// Bytes, and what they are charged to.
    Data(Vec<u8>, WorkMemory),
    Progress(JobReport),
}

/// Where the job's threads write.
pub(super) struct ToClient {
    pieces: SyncSender<Piece>,
    engine: Engine,
    ending: Ending,
    begun: Arc<Begun>,
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
            if self.ending.is_asked_for() || self.begun.check().is_err() {
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
        let memory = self.engine.memory(Purpose::Io, bytes.len() as u64).map_err(io::Error::other)?;
        self.send(Piece::Data(bytes.to_vec(), memory)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Session {
    /// Runs a job by a thread of its own; what it writes goes to the client.
    pub(super) fn run_job_apart<T: Send + 'static>(
        &mut self,
        running: &mut Running<'_>,
        order: JobOrder,
        work: impl FnOnce(&super::Database, ToClient, &mut Watch<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(T, JobReport)> {
        let begun = Arc::new(self.begin_job(running, order)?);
        let (sender, pieces) = sync_channel(PIECES);
        let (apart, verbose) = (Arc::clone(&begun), running.verbose);
        let worker = thread::spawn("gannet-job", move || {
            let to = ToClient {
                pieces: sender.clone(),
                engine: apart.database.store().engine().clone(),
                ending: apart.job.ending(),
                begun: Arc::clone(&apart),
            };
            let mut told = clock::now();
            let mut tell = |report: &JobReport| {
                apart.check()?;
                if verbose && told.elapsed() >= TELL_EVERY {
                    told = clock::now();
                    // Whoever has not taken what came before need not know.
                    let _ = sender.try_send(Piece::Progress(report.clone()));
                }
                Ok(())
            };
            let outcome = work(&apart.database, to, &mut Watch::new(&apart.job, &mut tell));
            apart.job.end(outcome)
        });
        let mut is_begun = false;
        let mut delivered = Ok(());
        for piece in &pieces {
            delivered = deliver(piece, &mut is_begun, running);
            if delivered.is_err() {
                break;
            }
        }
        // Nobody takes any more, if that was it.
        drop(pieces);
        let outcome = worker.join().map_err(|panic| Error::internal(panic.to_string()))?;
        delivered?;
        let done = begun.end(outcome)?;
        if is_begun {
            running.client.copy_out_end()?;
        }
        Ok(done)
    }
}

fn deliver(piece: Piece, is_begun: &mut bool, running: &mut Running<'_>) -> Result<()> {
    match piece {
        Piece::Progress(report) => running.client.notice(&jobs::progress(&report)),
        Piece::File(name) => {
            let detail = json!({ "file": name });
            running.client.notice(&info(name, &detail));
        }
        Piece::Data(data, _memory) => {
            // What fails before is an error like that of any statement.
            if !std::mem::replace(is_begun, true) {
                running.client.copy_out(&CopyFormat { columns: 0 })?;
            }
            data.chunks(MESSAGE).try_for_each(|part| running.client.copy_write(part))?;
        }
    }
    Ok(())
}
