//! Prepared statements: values and rows in binary. A statement is run by one question, to which there is one answer: nothing is asked in between. Several
//! that do not need each other's rows can be asked at once.
//! COPY is no matter for them: it is refused, which ends the connection where others were sent behind one that reads, and notices are passed over.

use super::{Column, Connection, Failure, Report, Taking, invalid, malformed, unexpected};
use crate::message::Body;
use std::io;

/// The format of values and rows.
const BINARY: i16 = 1;
/// Bytes of several statements that are sent before answers are read. A server that cannot get rid of its answers takes no more statements: with more than sockets
/// hold, each side would wait for the other.
const PIPELINE_MAX: usize = 32 << 10;

/// A statement that the server has prepared, for as long as the connection lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The connection's number.
    of: u64,
    name: String,
    parameters: Vec<u32>,
    columns: Vec<Column>,
}

impl Prepared {
    /// The types of its parameters, by their numbers in `pg_type`.
    pub fn parameters(&self) -> &[u32] {
        &self.parameters
    }

    /// The columns of its rows; none where it gives none.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }
}

/// Appends the value of a parameter, given its statement's place among those that are run, its own place and its type, in the type's binary format; false: it
/// is NULL.
pub type Give<'g> = &'g mut dyn FnMut(usize, usize, u32, &mut Vec<u8>) -> io::Result<bool>;
/// Takes a row of a statement, given that one's place, in its types' binary formats; `None` is NULL.
pub type Take<'t> = &'t mut dyn FnMut(usize, &[Option<&[u8]>]) -> io::Result<()>;

/// What answers to a run of messages have told.
#[derive(Default)]
struct Told {
    error: Option<Report>,
    /// Of whoever takes the rows.
    failed: Option<io::Error>,
    /// Statements that were asked.
    asked: usize,
    /// Of those that have ended.
    tags: Vec<String>,
    parameters: Vec<u32>,
    columns: Vec<Column>,
}

impl Told {
    /// Whether nothing has gone wrong.
    fn is_well(&self) -> bool {
        self.error.is_none() && self.failed.is_none()
    }
}

/// Up to where answers are read.
#[derive(Clone, Copy)]
enum Until {
    /// The server says that it is ready.
    Ready,
    /// So many statements have ended, or one has failed.
    Ended(usize),
}

impl Connection {
    /// Has a statement prepared. Its parameters get the types that the server finds.
    pub fn prepare(&mut self, sql: &str) -> Result<Prepared, Failure> {
        if sql.contains('\0') {
            return Err(Failure::Receiver(invalid("a statement cannot hold a NUL character")));
        }
        self.must_live()?;
        self.prepared += 1;
        let name = format!("s{}", self.prepared);
        if !self.out.begin(b'P').str(&name).str(sql).count(0).end() {
            return Err(too_long());
        }
        self.out.begin(b'D').u8(b'S').str(&name).end();
        let told = self.answered(Told::default(), &mut |_, _| Ok(()))?;
        Ok(Prepared { of: self.number, name, parameters: told.parameters, columns: told.columns })
    }

    /// Runs prepared statements of this connection, one behind the other, up to the first that fails, which is what is told then; gives their tags, such as
    /// `UPDATE 1`. They are asked before it is waited for an answer. Outside of a transaction block all of them are one transaction, but for what ends
    /// one. Rows that nobody takes any more are read past. Where a value cannot be given, statements before it may have been run; where rows cannot be taken, those
    /// behind that were asked with it may have been, too.
    pub fn run(
        &mut self,
        statements: &[&Prepared],
        give: Give<'_>,
        take: Take<'_>,
    ) -> Result<Vec<String>, Failure> {
        self.must_live()?;
        if statements.iter().any(|prepared| prepared.of != self.number) {
            return Err(Failure::Receiver(invalid("the statement was prepared by another connection")));
        }
        let mut of_columns = |number: usize, row: &[Option<&[u8]>]| {
            let columns = statements.get(number).map_or(0, |prepared| prepared.columns.len());
            match row.len() == columns {
                true => take(number, row),
                false => {
                    Err(invalid(format!("a row has {} values, its statement {columns} columns", row.len())))
                }
            }
        };
        let mut told = Told { asked: statements.len(), ..Told::default() };
        for (number, prepared) in statements.iter().enumerate() {
            let waiting = self.out.bytes().len();
            let asked = self.ask(number, prepared, give);
            if let Err(failure) = asked {
                self.out.clear();
                if number > 0 {
                    // What was sent before is to be answered, and to have no part in what comes.
                    self.answered(told, &mut of_columns)?;
                }
                return Err(failure);
            }
            if waiting > 0 && self.out.bytes().len() > PIPELINE_MAX {
                let last = self.out.split_off(waiting);
                self.out.plain(b'H');
                self.exchange(Until::Ended(number), &mut told, &mut of_columns)?;
                if !told.is_well() {
                    // What follows would be passed over.
                    break;
                }
                self.out = last;
            }
        }
        let tags = self.answered(told, &mut of_columns)?.tags;
        match tags.len() == statements.len() {
            true => Ok(tags),
            false => {
                self.alive = false;
                let message =
                    format!("{} statements were asked, and {} answered", statements.len(), tags.len());
                Err(Failure::Connection(invalid(message)))
            }
        }
    }

    /// Puts a statement to what is to be sent.
    fn ask(&mut self, number: usize, prepared: &Prepared, give: Give<'_>) -> Result<(), Failure> {
        let count = prepared.parameters.len();
        self.out.begin(b'B').str("").str(&prepared.name).count(1).i16(BINARY).count(count);
        let mut value = Vec::new();
        for (place, &ty) in prepared.parameters.iter().enumerate() {
            value.clear();
            match give(number, place, ty, &mut value).map_err(Failure::Receiver)? {
                true => self.out.value(|out| out.extend_from_slice(&value)),
                false => self.out.i32(-1),
            };
        }
        if !self.out.count(1).i16(BINARY).end() {
            return Err(too_long());
        }
        self.out.begin(b'E').str("").i32(0).end();
        Ok(())
    }

    /// Sends what there is, with the request to tell when it is done, and reads the answers.
    fn answered(&mut self, mut told: Told, take: Take<'_>) -> Result<Told, Failure> {
        self.out.plain(b'S');
        self.exchange(Until::Ready, &mut told, take)?;
        match (told.failed.take(), told.error.take()) {
            (Some(failed), _) => Err(Failure::Receiver(failed)),
            (None, Some(report)) => Err(Failure::Server(Box::new(report))),
            (None, None) => Ok(told),
        }
    }

    /// Sends what there is, and reads answers.
    fn exchange(&mut self, until: Until, told: &mut Told, take: Take<'_>) -> Result<(), Failure> {
        if !self.alive {
            // The server has gone, and said why.
            return Ok(());
        }
        let done = match self.send() {
            Ok(()) => self.answers(until, take, told),
            // What the server said last says more than that it is gone.
            Err(lost) => match self.last_words().or(told.error.take()) {
                Some(report) => {
                    told.error = Some(report);
                    Ok(())
                }
                None => Err(lost),
            },
        };
        done.map_err(|error| {
            self.alive = false;
            Failure::Connection(error)
        })
    }

    fn answers(&mut self, until: Until, take: Take<'_>, told: &mut Told) -> io::Result<()> {
        loop {
            if let Until::Ended(count) = until
                && (told.tags.len() >= count || told.error.is_some())
            {
                return Ok(());
            }
            let kind = match self.read() {
                Ok(kind) => kind,
                // What the server said last says more than that it is gone.
                Err(_) if told.error.is_some() => {
                    self.alive = false;
                    return Ok(());
                }
                Err(lost) => return Err(lost),
            };
            let mut body = self.body();
            match kind {
                b'Z' => return self.ready(),
                b'D' | b'C' | b'I' if told.tags.len() >= told.asked => return Err(unexpected(kind)),
                b'D' if told.failed.is_none() => {
                    let row = values(body)?;
                    if let Err(failed) = take(told.tags.len(), &row) {
                        told.failed = Some(failed);
                        // Nobody wants the rest. Where the server cannot be asked, the rest is read past.
                        let _ = self.canceller().cancel();
                    }
                }
                b'C' => told.tags.push(body.str().map_err(malformed)?.to_owned()),
                // The statement was an empty one.
                b'I' => told.tags.push(String::new()),
                b'E' => told.error = Some(Report::parse(body)?),
                b't' => {
                    let count = body.count(4).map_err(malformed)?;
                    told.parameters =
                        (0..count).map(|_| body.u32().map_err(malformed)).collect::<io::Result<_>>()?;
                }
                b'T' => told.columns = Taking::columns(body)?,
                b'S' => self.told()?,
                b'G' | b'H' => {
                    told.failed = Some(invalid("COPY cannot be run as a prepared statement"));
                    if kind == b'H' {
                        let _ = self.canceller().cancel();
                        continue;
                    }
                    self.out.begin(b'f').str("there is no data").end();
                    if matches!(until, Until::Ready) {
                        // What was sent behind it counted for nothing while data was waited for.
                        self.out.plain(b'S');
                    }
                    // A server that has found statements in place of data may be gone: it says so.
                    let _ = self.send();
                }
                // Parsed, bound, without rows, a notice, a notification; rows that nobody takes, data of a COPY.
                b'1' | b'2' | b'n' | b'N' | b'A' | b'D' | b'd' | b'c' => {}
                other => return Err(unexpected(other)),
            }
        }
    }
}

fn too_long() -> Failure {
    Failure::Receiver(invalid("a statement with its values is longer than a message of the protocol can be"))
}

fn values(mut body: Body<'_>) -> io::Result<Vec<Option<&[u8]>>> {
    let count = body.count(4).map_err(malformed)?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let len = body.i32().map_err(malformed)?;
        values.push(match usize::try_from(len) {
            Err(_) => None,
            Ok(len) => Some(body.bytes(len).map_err(malformed)?),
        });
    }
    Ok(values)
}
