//! Prepared statements: values and rows in binary. A statement is run by one question, to which there is one answer: nothing is asked in between.
//! COPY is no matter for them: it is refused, and notices are passed over.

use super::{Column, Connection, Failure, Report, Taking, invalid, malformed, unexpected};
use crate::message::Body;
use std::io;

/// The format of values and rows.
const BINARY: i16 = 1;

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

/// Appends the value of a parameter, given its place and type, in the type's binary format; false: it is NULL.
pub type Give<'g> = &'g mut dyn FnMut(usize, u32, &mut Vec<u8>) -> io::Result<bool>;
/// Takes a row, in its types' binary formats; `None` is NULL.
pub type Take<'t> = &'t mut dyn FnMut(&[Option<&[u8]>]) -> io::Result<()>;

/// What answers to a run of messages have told.
#[derive(Default)]
struct Told {
    error: Option<Report>,
    /// Of whoever takes the rows.
    failed: Option<io::Error>,
    tag: String,
    parameters: Vec<u32>,
    columns: Vec<Column>,
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
        let told = self.answered(&mut |_| Ok(()))?;
        Ok(Prepared { of: self.number, name, parameters: told.parameters, columns: told.columns })
    }

    /// Runs a prepared statement of this connection to its end; gives its tag, such as `UPDATE 1`. Rows that nobody takes any more are read past.
    pub fn run(&mut self, prepared: &Prepared, give: Give<'_>, take: Take<'_>) -> Result<String, Failure> {
        self.must_live()?;
        if prepared.of != self.number {
            return Err(Failure::Receiver(invalid("the statement was prepared by another connection")));
        }
        let count = prepared.parameters.len();
        self.out.begin(b'B').str("").str(&prepared.name).count(1).i16(BINARY).count(count);
        let mut value = Vec::new();
        for (place, &ty) in prepared.parameters.iter().enumerate() {
            value.clear();
            match give(place, ty, &mut value) {
                Ok(true) => self.out.value(|out| out.extend_from_slice(&value)),
                Ok(false) => self.out.i32(-1),
                Err(error) => {
                    self.out.clear();
                    return Err(Failure::Receiver(error));
                }
            };
        }
        if !self.out.count(1).i16(BINARY).end() {
            self.out.clear();
            return Err(too_long());
        }
        self.out.begin(b'E').str("").i32(0).end();
        let columns = prepared.columns.len();
        let mut of_columns = |row: &[Option<&[u8]>]| match row.len() == columns {
            true => take(row),
            false => Err(invalid(format!("a row has {} values, its statement {columns} columns", row.len()))),
        };
        Ok(self.answered(&mut of_columns)?.tag)
    }

    /// Sends what there is, with the request to tell when it is done, and reads the answers.
    fn answered(&mut self, take: Take<'_>) -> Result<Told, Failure> {
        self.out.plain(b'S');
        let mut told = Told::default();
        let done = match self.send() {
            Ok(()) => self.answers(take, &mut told),
            Err(lost) => self.last_words().map(|report| told.error = Some(report)).ok_or(lost),
        };
        if let Err(error) = done {
            self.alive = false;
            return Err(Failure::Connection(error));
        }
        match (told.failed.take(), told.error.take()) {
            (Some(failed), _) => Err(Failure::Receiver(failed)),
            (None, Some(report)) => Err(Failure::Server(Box::new(report))),
            (None, None) => Ok(told),
        }
    }

    fn answers(&mut self, take: Take<'_>, told: &mut Told) -> io::Result<()> {
        loop {
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
                b'D' if told.failed.is_none() => {
                    let row = values(body)?;
                    if let Err(failed) = take(&row) {
                        told.failed = Some(failed);
                        // Nobody wants the rest. Where the server cannot be asked, the rest is read past.
                        let _ = self.canceller().cancel();
                    }
                }
                b'C' => body.str().map_err(malformed)?.clone_into(&mut told.tag),
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
                    if kind == b'G' {
                        // What was sent behind it counted for nothing while data was waited for.
                        self.out.begin(b'f').str("there is no data").end();
                        self.out.plain(b'S');
                        self.send()?;
                    }
                }
                // Parsed, bound, without rows, empty, a notice, a notification; rows that nobody takes, data of a COPY.
                b'1' | b'2' | b'n' | b'I' | b'N' | b'A' | b'D' | b'd' | b'c' => {}
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
