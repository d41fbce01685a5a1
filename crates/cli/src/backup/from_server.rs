//! Backups that a server sends: to standard output, or kept here, where the server need not know of.

use super::{Done, place, since, since_of_stream, told_by_server};
use crate::arguments::Backup;
use crate::interrupt;
use crate::job::{self, Product, ToStdout};
use crate::standard_output::StandardOutput;
use anyhow::{Context, Result, anyhow, bail};
use gannet_server::frontend::Connection;
use gannet_store::{JobOrder, JobReport, Lineage, Manifest, Reception, Taken};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Messages of the server that wait to be kept.
const PIECES: usize = 64;
/// How often it is looked for Ctrl-C while the server says nothing.
const LISTEN_EVERY: Duration = Duration::from_millis(50);

/// The statement by which a server sends a backup that adds to another one, or to none.
fn statement(arguments: &Backup, since: Option<&Manifest>) -> String {
    let mut text = "BACKUP DATABASE TO STDOUT".to_owned();
    if let Some(since) = since {
        text += &format!(" SINCE MANIFEST {}", job::quoted(&since.to_line()));
    }
    if let Some(level) = arguments.compress {
        text += &format!(" COMPRESS {level}");
    }
    if arguments.statistics {
        text += " STATISTICS";
    }
    text + " VERBOSE"
}

/// Hands a backup on to standard output.
pub(super) fn to_stdout(mut connection: Connection, arguments: &Backup) -> Result<Done> {
    let since = since_of_stream(&arguments.opening.engine()?, arguments)?;
    let mut product = ToStdout(StandardOutput::new()?);
    let statement = statement(arguments, since.as_ref());
    let told = job::product_of_server(&mut connection, &statement, &mut product, true)?;
    product.0.flush()?;
    told_by_server(told)
}

/// Keeps a backup among others, in a folder of this machine or an object store.
pub(super) fn to_place(connection: Connection, arguments: &Backup, order: JobOrder) -> Result<Done> {
    if arguments.archive.is_some() {
        bail!("--archive removes log from an archive of the server's machine: BACKUP DATABASE does so there");
    }
    let engine = arguments.opening.engine()?;
    let mut connection = Some(connection);
    let lineage = lineage(connection.as_mut().expect("it is there"))?;
    let reception = Reception {
        folder: place(&engine, &arguments.destination)?,
        since: since(&engine, arguments)?,
        keep: arguments.keep,
        lineage,
        compressed: arguments.compress.is_some(),
        mode: arguments.opening.io,
    };
    let mut sender: Option<JoinHandle<Result<job::Told>>> = None;
    let hung_up = Arc::new(AtomicBool::new(false));
    let mut ask = |since: Option<&Manifest>| -> gannet_store::Result<Box<dyn Read + Send>> {
        let connection = connection.take().expect("a backup is asked for once");
        let (stream, thread) = ask_for(connection, statement(arguments, since), &hung_up);
        sender = Some(thread);
        Ok(Box::new(stream))
    };
    let received =
        job::here(&engine.jobs(), order, |watch| engine.receive_backup(&reception, &mut ask, watch));
    let told = sender
        .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the backup has failed"))));
    match (received, told) {
        // What the server could not do explains what did not come.
        (Err(_), Some(Err(error))) if !hung_up.load(Ordering::Relaxed) => Err(error),
        (Err(error), _) => Err(error),
        // It is whole, whatever the server has to say of it.
        (Ok((taken, job)), told) => {
            Ok(done(taken, job, told.context("nothing was asked for")?.and_then(told_by_server)))
        }
    }
}

/// A backup that is kept here, and what the server says of it.
fn done(taken: Taken, job: JobReport, told: Result<Done>) -> Done {
    let mut complaint = taken.complaint;
    let statistics = match told {
        Ok(told) => told.statistics,
        Err(error) => {
            complaint.get_or_insert(format!("the server did not say how it went: {error:#}"));
            None
        }
    };
    Done {
        name: Some(taken.backup.name),
        removed: taken.removed,
        removed_parts: 0,
        complaint,
        manifest: taken.backup.manifest,
        statistics,
        job,
    }
}

fn lineage(connection: &mut Connection) -> Result<Lineage> {
    let answer = job::ask(connection, "SELECT pg_catalog.gannet_lineage()")
        .context("the server does not say which database it has: it is no Gannet of this release")?;
    serde_json::from_str(&answer).context("it says in another form which database it has")
}

/// What a thread of its own takes from the server.
fn ask_for(
    mut connection: Connection,
    statement: String,
    hung_up: &Arc<AtomicBool>,
) -> (Stream, JoinHandle<Result<job::Told>>) {
    let (sender, pieces) = sync_channel::<Vec<u8>>(PIECES);
    let hung_up = Arc::clone(hung_up);
    let thread = std::thread::spawn(move || {
        job::product_of_server(&mut connection, &statement, &mut HandOn { sender, hung_up }, false)
    });
    (Stream { pieces, at_hand: Vec::new(), taken: 0 }, thread)
}

/// Hands on what comes to whoever keeps it.
struct HandOn {
    sender: SyncSender<Vec<u8>>,
    /// Nobody keeps it any more.
    hung_up: Arc<AtomicBool>,
}

impl Product for HandOn {
    fn data(&mut self, data: &[u8]) -> io::Result<()> {
        self.sender.send(data.to_vec()).map_err(|_| {
            self.hung_up.store(true, Ordering::Relaxed);
            io::Error::new(io::ErrorKind::BrokenPipe, "nobody takes it any more")
        })
    }
}

/// What comes from the server.
struct Stream {
    pieces: Receiver<Vec<u8>>,
    at_hand: Vec<u8>,
    /// Of what is at hand.
    taken: usize,
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.at_hand.len() {
            match self.pieces.recv_timeout(LISTEN_EVERY) {
                Ok(piece) => (self.at_hand, self.taken) = (piece, 0),
                Err(RecvTimeoutError::Timeout) => {
                    interrupt::check().map_err(io::Error::other)?;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        let len = bytes.len().min(self.at_hand.len() - self.taken);
        bytes[..len].copy_from_slice(&self.at_hand[self.taken..self.taken + len]);
        self.taken += len;
        Ok(len)
    }
}
