//! Jobs that a thread of its own runs, and whose data comes from the session's client, by the protocol of COPY FROM STDIN: the session's thread reads
//! the client, and hands on what comes, as the job takes it. (What goes to the client instead goes by [`super::apart`].)
//!
//! # What it guarantees
//! 1. What a client has not sent to its end is never taken for the end: where it gives up or is gone, the job fails.
//! 2. The job ends by itself, by a request to end it or its statement, by the session's end, and by its client's; the session's thread notices each
//!    of these within some tenths of a second, whatever the client does meanwhile. What the client still sends then is passed over, as behind a COPY.
//! 3. Who sends faster than the job takes it waits; there is memory for a few pieces, charged before the job begins. A longer message is charged, too.

use super::apart::start;
use super::client::CopyFormat;
use super::interrupt::Interrupt;
use super::jobs::{self, Running, info};
use super::{Database, Session};
use crate::load::{Answer, Answers, Line, READ_MOST, Request, UNDER_WAY};
use crate::{Error, Result, SqlState};
use gannet_base::clock;
use gannet_base::memory::Purpose;
use gannet_store::{Ending, JobOrder, JobReport, Watch};
use serde_json::json;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

/// Pieces between the client and the job, and their bytes at most.
const PIECES: usize = 4;
const PIECE: usize = 64 << 10;
/// What they take, with one in the hands of each side.
const MEMORY: u64 = (PIECES as u64 + 2) * PIECE as u64;
/// The same of answers: those under way, what comes of the next one, and one in the hands of the job.
const ANSWERS_MEMORY: u64 = (UNDER_WAY as u64 + 2) * READ_MOST as u64;
/// Words from the job to the session's thread.
const WORDS: usize = 8;
/// How often it is looked whether the job has taken a piece, and whether all is to end.
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LISTEN_EVERY: Duration = Duration::from_millis(20);

/// How a client gives its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// All of it, one after the other.
    Stream,
    /// By answers to what it is asked.
    Answers,
}

/// From the job's thread to the session's.
enum Word {
    Ask(Request),
    Progress(Box<JobReport>),
}

/// What comes from the client.
enum Given {
    Data(Vec<u8>),
    Answer(Answer),
    /// There is nothing more.
    End,
}

/// Where the job's thread gets data.
pub(super) struct FromClient {
    given: Receiver<Given>,
    words: SyncSender<Word>,
    ending: Ending,
    interrupt: Interrupt,
    /// Nothing more was taken, as the job is to end.
    stopped: Arc<AtomicBool>,
    piece: io::Cursor<Vec<u8>>,
    is_over: bool,
}

impl FromClient {
    /// What comes next; `None`: nothing has come for a while.
    fn next(&mut self) -> io::Result<Option<Given>> {
        let is_to_end = || self.ending.is_asked_for() || self.interrupt.check().is_err();
        match self.given.recv_timeout(LISTEN_EVERY) {
            Ok(given) => return Ok(Some(given)),
            Err(RecvTimeoutError::Timeout) if !is_to_end() => return Ok(None),
            // Whoever reads the client knows why, and says it.
            Err(_) => {}
        }
        self.stopped.store(true, Ordering::Relaxed);
        Err(io::Error::other("the job is to end"))
    }
}

impl Read for FromClient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.piece.read(buffer)?;
            if count > 0 || buffer.is_empty() || self.is_over {
                return Ok(count);
            }
            match self.next()? {
                Some(Given::Data(data)) => self.piece = io::Cursor::new(data),
                Some(Given::End) => self.is_over = true,
                Some(Given::Answer(_)) => return Err(io::Error::other("an answer where nothing was asked")),
                // Nobody may want it any more.
                None => return Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }
}

impl Line for FromClient {
    fn ask(&mut self, request: Request) -> Result<()> {
        self.words.send(Word::Ask(request)).map_err(|_| {
            self.stopped.store(true, Ordering::Relaxed);
            Error::new(SqlState::IO_ERROR, "the client is asked nothing any more")
        })
    }

    fn answer(&mut self) -> Result<Option<Answer>> {
        match self.next() {
            Ok(Some(Given::Answer(answer))) => Ok(Some(answer)),
            Ok(None) => Ok(None),
            Ok(_) => Err(Error::internal("data where an answer was waited for")),
            Err(error) => Err(Error::new(SqlState::IO_ERROR, error.to_string())),
        }
    }
}

impl Session {
    /// Runs a job by a thread of its own; what it reads comes from the client.
    pub(super) fn run_job_given<T: Send + 'static>(
        &mut self,
        running: &mut Running<'_>,
        order: JobOrder,
        by: By,
        work: impl FnOnce(&Database, FromClient, &mut Watch<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(T, JobReport)> {
        let begun = self.begin_job(running, order)?;
        let memory = if by == By::Stream { MEMORY } else { ANSWERS_MEMORY };
        let _memory = begun.database.store().engine().memory(Purpose::Io, memory)?;
        let (database, ending) = (begun.database.clone(), begun.job.ending());
        let id = begun.job.report().id;
        let (words, told) = sync_channel(WORDS);
        let (to_job, given) = sync_channel(PIECES);
        let stopped = Arc::new(AtomicBool::new(false));
        let interrupt = self.interrupt();
        let from = FromClient {
            given,
            words: words.clone(),
            ending,
            interrupt: interrupt.clone(),
            stopped: Arc::clone(&stopped),
            piece: io::Cursor::default(),
            is_over: false,
        };
        let verbose = running.verbose;
        let tell = move |report: &JobReport| {
            if verbose {
                // Whoever has not heard what was said before need not know.
                let _ = words.try_send(Word::Progress(Box::new(report.clone())));
            }
        };
        // It has its end of the channel however little it says: by that it is known to be there.
        let worker = start(begun, Some(tell), stopped, |database, watch| work(database, from, watch))?;
        let mut giving =
            Giving { running, database: &database, interrupt: &interrupt, data: Vec::new(), has_more: true };
        let mut given = giving.begin();
        if given.is_ok() {
            given = match by {
                By::Stream => giving.stream(&told, to_job),
                By::Answers => giving.answers(&told, to_job),
            };
        }
        if given.is_err() {
            // Nothing more comes: it need not find out.
            database.store().jobs().cancel(id);
        }
        drop(told);
        let outcome = worker.join().map_err(|_| Error::internal("a job has ended by itself"))?;
        // Of a client that is gone, what ended the session says more.
        given.map_err(|error| interrupt.check().err().unwrap_or(error))?;
        let done = outcome?;
        giving.end(by)?;
        Ok(done)
    }
}

/// The session's thread, as it reads the client.
struct Giving<'g, 'r> {
    running: &'g mut Running<'r>,
    database: &'g Database,
    interrupt: &'g Interrupt,
    data: Vec<u8>,
    /// The client has not said that this is all.
    has_more: bool,
}

impl Giving<'_, '_> {
    fn begin(&mut self) -> Result<()> {
        self.running.client.copy_in(&CopyFormat { columns: 0 })
    }

    /// Reads what the client has sent, if it has: within a tenth of a second.
    fn read(&mut self) -> Result<()> {
        self.interrupt.check()?;
        self.has_more = self.running.client.copy_read(&mut self.data)?;
        Ok(())
    }

    fn say(&mut self, word: Word, answers: &mut Answers) {
        match word {
            Word::Progress(report) => self.running.client.progress(&jobs::progress(&report)),
            Word::Ask(request) => {
                answers.expect(&request);
                self.ask(&request);
            }
        }
    }

    fn ask(&mut self, request: &Request) {
        let message = match request {
            Request::Len(file) => format!("{file}: its length"),
            Request::Read { file, at, bytes } => format!("{file}: {bytes} bytes from {at} on"),
            Request::End {} => "nothing more".to_owned(),
        };
        self.running.client.notice(&info(message, &json!(request)));
    }

    /// Hands on all that the client sends, up to the job's end.
    fn stream(&mut self, told: &Receiver<Word>, to_job: SyncSender<Given>) -> Result<()> {
        let mut to_job = Some(to_job);
        loop {
            // There is a job to be waited for, and nothing else.
            if to_job.is_none() || !self.has_more {
                match told.recv_timeout(LISTEN_EVERY) {
                    Ok(word) => self.say(word, &mut Answers::default()),
                    Err(RecvTimeoutError::Timeout) => self.interrupt.check()?,
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
                continue;
            }
            // Short messages are gathered, as long as they come.
            while self.has_more && self.data.len() < PIECE {
                let before = self.data.len();
                self.read()?;
                match told.try_recv() {
                    Ok(word) => self.say(word, &mut Answers::default()),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
                if self.data.len() == before {
                    break;
                }
            }
            let data = std::mem::take(&mut self.data);
            let engine = self.database.store().engine();
            let _memory = if data.len() > 2 * PIECE {
                Some(engine.memory(Purpose::Io, data.capacity() as u64)?)
            } else {
                None
            };
            let pieces = data.chunks(PIECE).map(|piece| Given::Data(piece.to_vec()));
            let end = (!self.has_more).then_some(Given::End);
            for given in pieces.chain(end) {
                if let Some(job) = to_job.take() {
                    to_job = self.give(given, &job)?.then_some(job);
                }
            }
        }
    }

    /// Hands something on, once there is room for it; false where nobody takes it any more.
    fn give(&self, mut given: Given, to_job: &SyncSender<Given>) -> Result<bool> {
        loop {
            match to_job.try_send(given) {
                Ok(()) => return Ok(true),
                Err(TrySendError::Disconnected(_)) => return Ok(false),
                Err(TrySendError::Full(back)) => given = back,
            }
            self.interrupt.check()?;
            clock::sleep(LOOK_EVERY);
        }
    }

    /// Asks the client what the job wants to know, up to the job's end.
    fn answers(&mut self, told: &Receiver<Word>, to_job: SyncSender<Given>) -> Result<()> {
        let mut answers = Answers::default();
        loop {
            let word = if answers.are_expected() {
                told.try_recv().map_err(|none| match none {
                    TryRecvError::Empty => RecvTimeoutError::Timeout,
                    TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                })
            } else {
                told.recv_timeout(LISTEN_EVERY)
            };
            match word {
                Ok(word) => {
                    self.say(word, &mut answers);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(_) if !answers.are_expected() => {
                    self.interrupt.check()?;
                    continue;
                }
                Err(_) => {}
            }
            self.read()?;
            let data = std::mem::take(&mut self.data);
            answers.feed(&data)?;
            if !self.has_more {
                let message = "the client of a load has ended its data while it was asked for more";
                return Err(Error::new(SqlState::PROTOCOL_VIOLATION, message));
            }
            self.data = data;
            self.data.clear();
            while let Some(answer) = answers.next()? {
                // Where the job has ended, nobody takes it.
                self.give(Given::Answer(answer), &to_job)?;
            }
        }
    }

    /// The job has ended well: whatever the client has still to say, as it was asked for in advance, is read up to its end.
    fn end(&mut self, by: By) -> Result<()> {
        if by == By::Answers {
            self.ask(&Request::End {});
        }
        while self.has_more {
            self.data.clear();
            self.read()?;
        }
        Ok(())
    }
}
