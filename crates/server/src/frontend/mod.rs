//! The client's side of the protocol: for the shell, and for commands that run inside a server which has a file open.
//!
//! Simple queries, prepared statements, COPY both ways, notices, cancelling; passwords by SCRAM-SHA-256; TLS.
//!
//! # Guarantees
//! 1. After [`Connection::query`], [`Connection::prepare`] and [`Connection::run`] the connection is ready for the next one, or [`Connection::is_alive`] is false: results that
//!    nobody takes any more are cancelled and read past.
//! 2. Nothing a server sends makes this panic, or take memory for more than it has sent.
//! 3. A password leaves as SCRAM proof only; in clear it goes to a server that asks for it over TLS or a Unix socket.

mod address;
mod layer;
mod prepared;
mod scram;
mod tls;

pub use address::{Address, Host, SslMode};
pub use prepared::{Give, Prepared, Take};

use self::layer::{Layer, open};
use crate::message::{Body, Output};
pub use crate::stream::GiveUp;
use crate::stream::Patience;
use gannet_sql::session::TransactionStatus;
use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes read at once.
const READ_SIZE: usize = 64 << 10;
/// Bytes of COPY data that are gathered before they are sent.
const SEND_AT: usize = 64 << 10;
/// How long a cancel request may take.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);
/// How long it is listened to a server that takes nothing any more: whether it has said why.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(2);
/// Longest message of a server, in bytes.
const MESSAGE_MAX: usize = (1 << 30) + (1 << 20);

/// An error or a notice, as the server says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// `ERROR`, `FATAL`, `WARNING`, ...
    pub severity: String,
    /// The SQLSTATE.
    pub state: String,
    /// One line: what is wrong.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// The way out.
    pub hint: Option<String>,
    /// Where in the statement, in characters from 1.
    pub position: Option<usize>,
    /// Where it happened.
    pub context: Option<String>,
}

impl Report {
    fn parse(mut body: Body<'_>) -> io::Result<Report> {
        let mut report = Report::default();
        loop {
            let code = body.u8().map_err(malformed)?;
            if code == 0 {
                return Ok(report);
            }
            let text = body.str().map_err(malformed)?;
            match code {
                // The second one is not translated.
                b'S' if report.severity.is_empty() => text.clone_into(&mut report.severity),
                b'V' => text.clone_into(&mut report.severity),
                b'C' => text.clone_into(&mut report.state),
                b'M' => text.clone_into(&mut report.message),
                b'D' => report.detail = Some(text.to_owned()),
                b'H' => report.hint = Some(text.to_owned()),
                b'P' => report.position = text.parse().ok(),
                b'W' => report.context = Some(text.to_owned()),
                _ => {}
            }
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:  {}", self.severity, self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, " ({detail})")?;
        }
        Ok(())
    }
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type's number in `pg_type`.
    pub type_oid: u32,
}

/// Who takes the results of a query. An error ends the query: it is cancelled, and the error handed back.
pub trait Receiver {
    /// A result with these columns begins.
    fn columns(&mut self, columns: &[Column]) -> io::Result<()>;
    /// A row of it, values as text.
    fn row(&mut self, values: &[Option<&str>]) -> io::Result<()>;
    /// A statement ended well, with this tag.
    fn complete(&mut self, tag: &str) -> io::Result<()>;
    /// Something to be told.
    fn notice(&mut self, notice: &Report);
    /// COPY FROM STDIN begins. Who has no data for it need not say so: this and the three below do nothing then.
    fn copy_in(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Appends the next piece of data for it; false at the end. Where none comes for a while, nothing is appended: it is looked whether the server
    /// wants any more, and asked again.
    fn copy_read(&mut self, _data: &mut Vec<u8>) -> io::Result<bool> {
        Ok(false)
    }
    /// Whether that data is answers to what the server's notices ask: what there is of it is sent at once, and where there is none, the next
    /// notice is waited for.
    fn answers(&self) -> bool {
        false
    }
    /// COPY TO STDOUT begins.
    fn copy_out(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// A piece of its data, whole lines.
    fn copy_write(&mut self, _data: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// Why a query, or a connection, came to nothing.
#[derive(Debug)]
pub enum Failure {
    /// The server says so.
    Server(Box<Report>),
    /// Whoever took the results.
    Receiver(io::Error),
    /// The connection could not be made, or was lost.
    Connection(io::Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Server(report) => report.fmt(f),
            Failure::Receiver(error) | Failure::Connection(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

fn malformed(error: gannet_sql::Error) -> io::Error {
    invalid(format!("the server sent what the protocol does not allow: {error}"))
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// Ends the running statement of a connection, from any thread.
#[derive(Clone, Debug)]
pub struct Canceller {
    address: Address,
    pid: i32,
    secret: Vec<u8>,
}

impl Canceller {
    /// Asks the server to end the statement; that it does so is seen by the statement's error.
    pub fn cancel(&self) -> io::Result<()> {
        let mut layer = open(&self.address, &Patience::within(Some(CANCEL_LIMIT)))?;
        let mut request = Vec::with_capacity(12 + self.secret.len());
        request.extend_from_slice(&(12 + self.secret.len() as i32).to_be_bytes());
        request.extend_from_slice(&80_877_102_i32.to_be_bytes());
        request.extend_from_slice(&self.pid.to_be_bytes());
        request.extend_from_slice(&self.secret);
        layer.write_all(&request)?;
        layer.flush()?;
        // The server closes when it is done; what else it does is no concern of ours.
        let _ = layer.read(&mut [0]);
        Ok(())
    }
}

/// Numbers of connections.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    address: Address,
    layer: BufReader<Layer>,
    out: Output,
    body: Vec<u8>,
    pid: i32,
    secret: Vec<u8>,
    status: TransactionStatus,
    settings: BTreeMap<String, String>,
    /// Of all connections of this process.
    number: u64,
    /// Statements that were prepared, for their names.
    prepared: u64,
    alive: bool,
}

impl Connection {
    /// Connects and gets let in, within the address's `connect_timeout`.
    pub fn open(address: &Address, application: &str) -> Result<Self, Failure> {
        Connection::log_in(address, application, Patience::within(address.connect_timeout))
    }

    /// The same, unless somebody gives up meanwhile, which is looked at ten times a second.
    pub fn open_unless(address: &Address, application: &str, give_up: GiveUp) -> Result<Self, Failure> {
        Connection::log_in(address, application, Patience::within(address.connect_timeout).unless(give_up))
    }

    fn log_in(address: &Address, application: &str, patience: Patience) -> Result<Self, Failure> {
        let mut opened = Connection::begin(address, application, &patience);
        if let (Err(Failure::Connection(error)), Some(limit)) = (&mut opened, address.connect_timeout)
            && error.kind() == io::ErrorKind::TimedOut
            && patience.is_over()
        {
            let message =
                format!("the server has let nobody in within {} s (connect_timeout)", limit.as_secs());
            *error = io::Error::new(io::ErrorKind::TimedOut, message);
        }
        opened
    }

    fn begin(address: &Address, application: &str, patience: &Patience) -> Result<Self, Failure> {
        let layer = open(address, patience).map_err(Failure::Connection)?;
        let mut connection = Connection {
            address: address.clone(),
            layer: BufReader::with_capacity(READ_SIZE, layer),
            out: Output::default(),
            body: Vec::new(),
            pid: 0,
            secret: Vec::new(),
            status: TransactionStatus::Idle,
            settings: BTreeMap::new(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            prepared: 0,
            alive: true,
        };
        connection.start(application)?;
        // A statement takes as long as it takes.
        connection.layer.get_mut().socket().set_patience(Patience::default());
        Ok(connection)
    }

    /// From now on the server is waited for unless somebody gives up, which is looked at ten times a second; `None`: as long as it takes. The connection
    /// of whoever gives up is of no use any more.
    pub fn wait_unless(&mut self, give_up: Option<GiveUp>) {
        let patience = Patience::default();
        let patience = match give_up {
            Some(give_up) => patience.unless(give_up),
            None => patience,
        };
        self.layer.get_mut().socket().set_patience(patience);
    }

    /// Where it leads.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.layer.get_ref(), Layer::Tls(_))
    }

    /// Whether it can be used still.
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// Where its session stands.
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// A setting that the server has told, such as `server_version`.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Number of the session.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Ends statements of this connection.
    pub fn canceller(&self) -> Canceller {
        Canceller { address: self.address.clone(), pid: self.pid, secret: self.secret.clone() }
    }

    fn start(&mut self, application: &str) -> Result<(), Failure> {
        let mut startup = 196_608_i32.to_be_bytes().to_vec();
        let mut parameters = vec![
            ("user", self.address.user.as_str()),
            ("database", &self.address.database),
            ("client_encoding", "UTF8"),
            ("application_name", self.address.application.as_deref().unwrap_or(application)),
        ];
        parameters.extend(self.address.options.as_deref().map(|options| ("options", options)));
        for (name, value) in parameters {
            if value.contains('\0') {
                return Err(Failure::Connection(invalid(format!("{name} contains a NUL"))));
            }
            startup.extend_from_slice(name.as_bytes());
            startup.push(0);
            startup.extend_from_slice(value.as_bytes());
            startup.push(0);
        }
        startup.push(0);
        let mut message = (startup.len() as i32 + 4).to_be_bytes().to_vec();
        message.append(&mut startup);
        self.layer.get_mut().write_all(&message).map_err(Failure::Connection)?;
        self.layer.get_mut().flush().map_err(Failure::Connection)?;
        let mut exchange = None;
        loop {
            let kind = self.read().map_err(Failure::Connection)?;
            match kind {
                b'R' => self.authenticate(&mut exchange).map_err(Failure::Connection)?,
                b'K' => {
                    let mut body = self.body();
                    let pid = body.i32().map_err(|error| Failure::Connection(malformed(error)))?;
                    let secret = body.rest().to_vec();
                    (self.pid, self.secret) = (pid, secret);
                }
                b'E' => {
                    let report = Report::parse(self.body()).map_err(Failure::Connection)?;
                    return Err(Failure::Server(Box::new(report)));
                }
                b'Z' => return self.ready().map_err(Failure::Connection),
                b'S' => self.told().map_err(Failure::Connection)?,
                b'N' | b'v' => {}
                other => return Err(Failure::Connection(unexpected(other))),
            }
        }
    }

    /// Answers a request for authentication.
    fn authenticate(&mut self, exchange: &mut Option<scram::Exchange>) -> io::Result<()> {
        let mut body = self.body();
        let method = body.i32().map_err(malformed)?;
        let rest = body.rest().to_vec();
        match method {
            0 if exchange.as_ref().is_some_and(|exchange| !exchange.is_proven()) => {
                Err(invalid("the server did not prove that it knows the password"))
            }
            0 => Ok(()),
            3 => {
                let safe = self.is_encrypted() || matches!(self.address.host, Host::Unix(_));
                if !safe {
                    return Err(invalid("the server wants the password in clear, and there is no TLS"));
                }
                let password = self.password()?;
                self.out.begin(b'p').str(&password).end();
                self.send()
            }
            10 => {
                let offered =
                    rest.split(|byte| *byte == 0).any(|name| name == crate::scram::MECHANISM.as_bytes());
                if !offered {
                    return Err(invalid("the server offers no mechanism that is implemented: SCRAM-SHA-256"));
                }
                let (begun, first) = scram::begin(&self.password()?)?;
                *exchange = Some(begun);
                self.out.begin(b'p').str(crate::scram::MECHANISM).i32(first.len() as i32);
                self.out.raw(first.as_bytes()).end();
                self.send()
            }
            11 | 12 => {
                let exchange = exchange.as_mut().ok_or_else(|| unexpected(b'R'))?;
                let text = std::str::from_utf8(&rest).map_err(|_| invalid("SCRAM: not UTF-8"))?;
                if method == 12 {
                    return exchange.check(text);
                }
                let answer = exchange.prove(text)?;
                self.out.begin(b'p').raw(answer.as_bytes()).end();
                self.send()
            }
            5 => {
                Err(invalid("the server wants an MD5 password, which is not implemented: use scram-sha-256"))
            }
            other => {
                Err(invalid(format!("the server wants authentication {other}, which is not implemented")))
            }
        }
    }

    fn password(&self) -> io::Result<String> {
        self.address.password.clone().ok_or_else(|| {
            let message = format!("the server wants a password of \"{}\"", self.address.user);
            io::Error::new(io::ErrorKind::PermissionDenied, message)
        })
    }

    // ---- messages ---------------------------------------------------------------------------------------------

    fn body(&self) -> Body<'_> {
        Body::new(&self.body)
    }

    fn send(&mut self) -> io::Result<()> {
        let layer = self.layer.get_mut();
        let sent = layer.write_all(self.out.bytes()).and_then(|()| layer.flush());
        self.out.clear();
        sent
    }

    /// Reads the next message: its type; its body is in `self.body`.
    fn read(&mut self) -> io::Result<u8> {
        let mut head = [0; 5];
        self.layer.read_exact(&mut head).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "server closed the connection unexpectedly")
            }
            _ => error,
        })?;
        let len = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let len = usize::try_from(len).ok().and_then(|len| len.checked_sub(4));
        let len =
            len.filter(|len| *len <= MESSAGE_MAX).ok_or_else(|| invalid("a message has no valid length"))?;
        self.body.clear();
        self.body.shrink_to(1 << 20);
        // By what arrives, not by what is announced.
        let read = (&mut self.layer).take(len as u64).read_to_end(&mut self.body)?;
        if read < len {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended within a message",
            ));
        }
        Ok(head[0])
    }

    fn ready(&mut self) -> io::Result<()> {
        self.status = match self.body().u8().map_err(malformed)? {
            b'I' => TransactionStatus::Idle,
            b'T' => TransactionStatus::Active,
            b'E' => TransactionStatus::Failed,
            _ => return Err(invalid("the server stands somewhere unknown")),
        };
        Ok(())
    }

    fn told(&mut self) -> io::Result<()> {
        let mut body = self.body();
        let name = body.str().map_err(malformed)?.to_owned();
        let value = body.str().map_err(malformed)?.to_owned();
        self.settings.insert(name, value);
        Ok(())
    }

    // ---- queries ----------------------------------------------------------------------------------------------

    /// What was lost in the middle of an answer would take the rest of it for the next one.
    fn must_live(&self) -> Result<(), Failure> {
        match self.alive {
            true => Ok(()),
            false => Err(Failure::Connection(io::Error::new(
                io::ErrorKind::NotConnected,
                "the connection was lost before",
            ))),
        }
    }

    /// Runs a text of statements by the simple protocol.
    pub fn query(&mut self, sql: &str, receiver: &mut dyn Receiver) -> Result<(), Failure> {
        self.must_live()?;
        if sql.contains('\0') {
            // The protocol would end the text there.
            return Err(Failure::Receiver(invalid("a statement cannot hold a NUL character")));
        }
        if !self.out.begin(b'Q').str(sql).end() {
            return Err(Failure::Receiver(invalid(
                "a statement is longer than a message of the protocol can be",
            )));
        }
        let mut taking = Taking { receiver, failed: None, columns: 0 };
        let done = match self.send() {
            Ok(()) => self.results(&mut taking),
            Err(lost) => self.last_words().map(Some).ok_or(lost),
        };
        let failed = taking.failed.take();
        match done {
            Err(error) => {
                self.alive = false;
                Err(Failure::Connection(error))
            }
            Ok(_) if failed.is_some() => Err(Failure::Receiver(failed.unwrap_or_else(|| invalid("")))),
            Ok(Some(report)) => Err(Failure::Server(Box::new(report))),
            Ok(None) => Ok(()),
        }
    }

    /// Reads results up to the point where the next query can be sent.
    fn results(&mut self, taking: &mut Taking<'_>) -> io::Result<Option<Report>> {
        let mut error = None;
        loop {
            let kind = match self.read() {
                Ok(kind) => kind,
                // What the server said last says more than that it is gone.
                Err(_) if error.is_some() => {
                    self.alive = false;
                    return Ok(error);
                }
                Err(lost) => return Err(lost),
            };
            match kind {
                b'Z' => {
                    self.ready()?;
                    return Ok(error);
                }
                b'E' => error = Some(Report::parse(self.body())?),
                b'N' => taking.receiver.notice(&Report::parse(self.body())?),
                b'S' => self.told()?,
                b'G' => match self.copy_in(taking) {
                    Ok(refused) => error = refused.or(error),
                    Err(lost) => return self.last_words().map(Some).ok_or(lost),
                },
                b'A' | b'I' | b'c' => {}
                _ if taking.failed.is_some() => {}
                b'T' | b'D' | b'C' | b'H' | b'd' => {
                    let body = Body::new(&self.body);
                    if let Err(failed) = taking.take(kind, body)? {
                        taking.failed = Some(failed);
                        // Nobody wants the rest. Where the server cannot be asked, the rest is read past.
                        let _ = self.canceller().cancel();
                    }
                }
                other => return Err(unexpected(other)),
            }
        }
    }

    /// What a server has said before it stopped taking anything: that says more than that it is gone.
    fn last_words(&mut self) -> Option<Report> {
        self.alive = false;
        self.layer.get_mut().socket().set_deadline(Some(LAST_WORDS_LIMIT));
        let mut said = None;
        while let Ok(kind) = self.read() {
            if kind == b'E' {
                said = Report::parse(self.body()).ok().or(said);
            }
        }
        said
    }

    /// Sends the data of COPY FROM STDIN, unless the server says that it does not want it, and why. What fails is the connection.
    fn copy_in(&mut self, taking: &mut Taking<'_>) -> io::Result<Option<Report>> {
        let mut data = Vec::new();
        let mut more = taking.receiver.copy_in().map(|()| true);
        while let Ok(true) = more {
            let before = data.len();
            more = taking.receiver.copy_read(&mut data);
            let goes_on = matches!(more, Ok(true));
            let is_idle = goes_on && data.len() == before;
            if is_idle && data.is_empty() && taking.receiver.answers() {
                if let Some(refused) = self.word(taking)? {
                    return Ok(Some(refused));
                }
            } else if data.len() >= SEND_AT || is_idle || !goes_on || taking.receiver.answers() {
                // At its end it is told anyway.
                if goes_on && let Some(refused) = self.refusal(taking)? {
                    return Ok(Some(refused));
                }
                if !data.is_empty() {
                    self.out.begin(b'd').raw(&data).end();
                    data.clear();
                    self.send()?;
                }
            }
        }
        match more {
            Ok(_) => self.out.plain(b'c'),
            Err(error) => {
                self.out.begin(b'f').str(&error.to_string()).end();
                taking.failed = Some(error);
            }
        }
        self.send()?;
        Ok(None)
    }

    /// Looks, without waiting, whether the server has said meanwhile that it takes no more data.
    fn refusal(&mut self, taking: &mut Taking<'_>) -> io::Result<Option<Report>> {
        while !self.layer.buffer().is_empty() || self.layer.get_mut().has_something()? {
            if let Some(refused) = self.word(taking)? {
                return Ok(Some(refused));
            }
        }
        Ok(None)
    }

    /// Waits for the next thing that the server says while it takes data: an error, or something to be told.
    fn word(&mut self, taking: &mut Taking<'_>) -> io::Result<Option<Report>> {
        match self.read()? {
            b'E' => return Report::parse(self.body()).map(Some),
            b'N' => taking.receiver.notice(&Report::parse(self.body())?),
            b'S' => self.told()?,
            b'A' => {}
            other => return Err(unexpected(other)),
        }
        Ok(None)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.alive {
            self.out.plain(b'X');
            // Whoever is gone needs no goodbye.
            let _ = self.send();
        }
    }
}

fn unexpected(kind: u8) -> io::Error {
    invalid(format!("the server sent message {:?}, which does not belong here", char::from(kind)))
}

/// Results on their way to the receiver.
struct Taking<'r> {
    receiver: &'r mut dyn Receiver,
    failed: Option<io::Error>,
    columns: usize,
}

impl Taking<'_> {
    fn columns(mut body: Body<'_>) -> io::Result<Vec<Column>> {
        let count = body.count(19).map_err(malformed)?;
        let mut columns = Vec::with_capacity(count);
        for _ in 0..count {
            let name = body.str().map_err(malformed)?.to_owned();
            body.bytes(6).map_err(malformed)?;
            let type_oid = body.u32().map_err(malformed)?;
            body.bytes(8).map_err(malformed)?;
            columns.push(Column { name, type_oid });
        }
        Ok(columns)
    }

    /// Hands a message on. The outer error is the server's fault, the inner one the receiver's.
    fn take(&mut self, kind: u8, mut body: Body<'_>) -> io::Result<io::Result<()>> {
        Ok(match kind {
            b'T' => {
                let columns = Taking::columns(body)?;
                self.columns = columns.len();
                self.receiver.columns(&columns)
            }
            b'D' => {
                let count = body.count(4).map_err(malformed)?;
                if count != self.columns {
                    return Err(invalid("a row is not as long as its header"));
                }
                let mut values = Vec::with_capacity(count);
                for _ in 0..count {
                    let len = body.i32().map_err(malformed)?;
                    values.push(match usize::try_from(len) {
                        Err(_) => None,
                        Ok(len) => {
                            let bytes = body.bytes(len).map_err(malformed)?;
                            let text = std::str::from_utf8(bytes);
                            Some(text.map_err(|_| invalid("the server sent text that is not UTF-8"))?)
                        }
                    });
                }
                self.receiver.row(&values)
            }
            b'C' => self.receiver.complete(body.str().map_err(malformed)?),
            b'H' => self.receiver.copy_out(),
            _ => self.receiver.copy_write(body.rest()),
        })
    }
}

#[cfg(test)]
mod tests;
