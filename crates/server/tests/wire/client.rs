//! A client that says what it is told to, and shows what comes back. It knows the protocol's frames, and little more.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// No test waits longer for an answer: it fails then.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes both ways.
pub(crate) trait Duplex: Read + Write + Send {
    /// Ends it, for a client that vanishes.
    fn vanish(&self);
    /// Says that nothing more comes.
    fn finish(&mut self);
}

impl Duplex for UnixStream {
    fn vanish(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }

    fn finish(&mut self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Duplex for TcpStream {
    fn vanish(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }

    fn finish(&mut self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Duplex for rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    fn vanish(&self) {
        let _ = self.sock.shutdown(Shutdown::Both);
    }

    fn finish(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
        let _ = self.sock.shutdown(Shutdown::Write);
    }
}

/// A message's body, put together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body(pub(crate) Vec<u8>);

impl Body {
    pub(crate) fn new() -> Self {
        Body::default()
    }

    pub(crate) fn str(mut self, text: &str) -> Self {
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        self
    }

    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn i16(mut self, value: i16) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn i32(mut self, value: i32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A value with its length, or NULL.
    pub(crate) fn value(self, value: Option<&[u8]>) -> Self {
        match value {
            None => self.i32(-1),
            Some(bytes) => self.i32(bytes.len() as i32).raw(bytes),
        }
    }
}

/// A message with its frame.
pub(crate) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The first message of a connection: protocol version (or request code) and parameters.
pub(crate) fn first(code: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Body::new().raw(&code.to_be_bytes());
    for (name, value) in parameters {
        body = body.str(name).str(value);
    }
    if !parameters.is_empty() {
        body = body.u8(0);
    }
    let mut bytes = (body.0.len() as i32 + 4).to_be_bytes().to_vec();
    bytes.extend_from_slice(&body.0);
    bytes
}

/// `Bind` with parameters of one format and results of one format.
pub(crate) fn bind(
    portal: &str,
    statement: &str,
    format: i16,
    values: &[Option<&[u8]>],
    results: i16,
) -> Vec<u8> {
    bind_each(portal, statement, &[format], values, &[results])
}

/// The same with formats as they are given.
pub(crate) fn bind_each(
    portal: &str,
    statement: &str,
    formats: &[i16],
    values: &[Option<&[u8]>],
    results: &[i16],
) -> Vec<u8> {
    let counted = |body: Body, codes: &[i16]| {
        codes.iter().fold(body.i16(codes.len() as u16 as i16), |body, code| body.i16(*code))
    };
    let mut body = counted(Body::new().str(portal).str(statement), formats).i16(values.len() as u16 as i16);
    for value in values {
        body = body.value(*value);
    }
    frame(b'B', &counted(body, results).0)
}

/// `Parse`, with the parameters' types.
pub(crate) fn parse(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = Body::new().str(name).str(sql).i16(types.len() as u16 as i16);
    for oid in types {
        body = body.i32(*oid as i32);
    }
    frame(b'P', &body.0)
}

/// `Describe` (`D`) or `Close` (`C`) of a statement (`S`) or portal (`P`).
pub(crate) fn target(kind: u8, what: u8, name: &str) -> Vec<u8> {
    frame(kind, &Body::new().u8(what).str(name).0)
}

/// `Execute`.
pub(crate) fn execute(portal: &str, limit: i32) -> Vec<u8> {
    frame(b'E', &Body::new().str(portal).i32(limit).0)
}

/// `Query`.
pub(crate) fn query(sql: &str) -> Vec<u8> {
    frame(b'Q', &Body::new().str(sql).0)
}

/// `Sync`.
pub(crate) fn sync() -> Vec<u8> {
    frame(b'S', b"")
}

/// A message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) kind: u8,
    pub(crate) body: Vec<u8>,
}

/// An error or notice by field codes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report(pub(crate) BTreeMap<char, String>);

impl Report {
    pub(crate) fn get(&self, code: char) -> &str {
        self.0.get(&code).map_or("", String::as_str)
    }

    pub(crate) fn state(&self) -> &str {
        self.get('C')
    }

    pub(crate) fn message(&self) -> &str {
        self.get('M')
    }
}

/// What came back up to ReadyForQuery, or the end of the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Types of the messages in their order; `D` once for all rows that follow each other.
    pub(crate) kinds: String,
    pub(crate) rows: Vec<Vec<Option<Vec<u8>>>>,
    pub(crate) tags: Vec<String>,
    pub(crate) errors: Vec<Report>,
    pub(crate) notices: Vec<Report>,
    /// `I`, `T`, `E`; blank where the connection has ended.
    pub(crate) status: char,
    /// Columns of the last RowDescription: name, type, format.
    pub(crate) columns: Vec<(String, u32, i16)>,
    /// Types of the last ParameterDescription.
    pub(crate) parameters: Vec<u32>,
    pub(crate) settings: Vec<(String, String)>,
    /// Data of COPY OUT.
    pub(crate) copied: Vec<u8>,
}

impl Outcome {
    /// The rows as text, NULL as `-`.
    pub(crate) fn text(&self) -> Vec<Vec<String>> {
        let text = |value: &Option<Vec<u8>>| {
            value.as_ref().map_or_else(|| "-".to_owned(), |bytes| String::from_utf8(bytes.clone()).unwrap())
        };
        self.rows.iter().map(|row| row.iter().map(text).collect()).collect()
    }

    /// The only value, as text.
    pub(crate) fn one(&self) -> String {
        let rows = self.text();
        assert!(rows.len() == 1 && rows[0].len() == 1, "{self:?}");
        rows[0][0].clone()
    }

    /// The only error's SQLSTATE.
    pub(crate) fn state(&self) -> &str {
        assert_eq!(self.errors.len(), 1, "{self:?}");
        self.errors[0].state()
    }

    /// No error.
    #[track_caller]
    pub(crate) fn good(self) -> Self {
        assert!(self.errors.is_empty() && self.status != ' ', "{self:?}");
        self
    }

    fn take(&mut self, reply: &Reply) {
        if !(reply.kind == b'D' && self.kinds.ends_with('D')) {
            self.kinds.push(char::from(reply.kind));
        }
        let mut read = Reader(&reply.body);
        match reply.kind {
            b'D' => {
                let count = read.u16();
                self.rows.push((0..count).map(|_| read.value()).collect());
            }
            b'C' => self.tags.push(read.str()),
            b'E' => self.errors.push(read.report()),
            b'N' => self.notices.push(read.report()),
            b'Z' => self.status = char::from(reply.body[0]),
            b'S' => self.settings.push((read.str(), read.str())),
            b't' => {
                let count = read.u16();
                self.parameters = (0..count).map(|_| read.u32()).collect();
            }
            b'T' => {
                let count = read.u16();
                let mut column = || {
                    let name = read.str();
                    let _origin = (read.u32(), read.u16());
                    let oid = read.u32();
                    let _len_and_modifier = (read.u16(), read.u32());
                    (name, oid, read.u16() as i16)
                };
                self.columns = (0..count).map(|_| column()).collect();
            }
            b'd' => self.copied.extend_from_slice(&reply.body),
            _ => return,
        }
        assert!(reply.kind == b'd' || reply.kind == b'Z' || read.0.is_empty(), "{reply:?}");
    }
}

struct Reader<'r>(&'r [u8]);

impl Reader<'_> {
    fn bytes(&mut self, len: usize) -> &[u8] {
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes(2).try_into().unwrap())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().unwrap())
    }

    fn str(&mut self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap();
        let text = String::from_utf8(self.bytes(end).to_vec()).unwrap();
        self.bytes(1);
        text
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let len = self.u32() as i32;
        (len >= 0).then(|| self.bytes(len as usize).to_vec())
    }

    fn report(&mut self) -> Report {
        let mut fields = BTreeMap::new();
        loop {
            let code = self.bytes(1)[0];
            if code == 0 {
                return Report(fields);
            }
            fields.insert(char::from(code), self.str());
        }
    }
}

/// A connection.
pub(crate) struct Wire {
    pub(crate) stream: Box<dyn Duplex>,
    pub(crate) pid: i32,
    pub(crate) secret: i32,
    /// What the server told at the start.
    pub(crate) settings: BTreeMap<String, String>,
}

impl Wire {
    /// Connects and says nothing yet.
    pub(crate) fn unix(socket: &Path) -> Wire {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Wire::over(Box::new(stream))
    }

    /// Connects over TCP and says nothing yet.
    pub(crate) fn tcp(address: std::net::SocketAddr) -> Wire {
        Wire::over(Box::new(tcp(address)))
    }

    pub(crate) fn over(stream: Box<dyn Duplex>) -> Wire {
        Wire { stream, pid: 0, secret: 0, settings: BTreeMap::new() }
    }

    /// Sends bytes. A server that has closed the connection is no error: what it has said can be read.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
        let _ = self.stream.flush();
    }

    /// The next message; `None` at the connection's end.
    pub(crate) fn read(&mut self) -> Option<Reply> {
        let mut head = [0; 5];
        self.fill(&mut head)?;
        let len = i32::from_be_bytes(head[1..].try_into().unwrap());
        assert!((4..1 << 30).contains(&len), "length {len} of message {}", head[0]);
        let mut body = vec![0; len as usize - 4];
        self.fill(&mut body)?;
        Some(Reply { kind: head[0], body })
    }

    fn fill(&mut self, into: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(into) {
            Ok(()) => Some(()),
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
            {
                panic!("the server does not answer")
            }
            Err(_) => None,
        }
    }

    /// The answer, up to ReadyForQuery, the request for COPY data, or the connection's end.
    pub(crate) fn outcome(&mut self) -> Outcome {
        self.outcome_until(b"ZG")
    }

    /// The same, up to a message of one of these kinds.
    pub(crate) fn outcome_until(&mut self, kinds: &[u8]) -> Outcome {
        let mut outcome = Outcome { status: ' ', ..Outcome::default() };
        while let Some(reply) = self.read() {
            outcome.take(&reply);
            if kinds.contains(&reply.kind) {
                break;
            }
        }
        outcome
    }

    /// Sends and gives the answer.
    pub(crate) fn ask(&mut self, bytes: &[u8]) -> Outcome {
        self.send(bytes);
        self.outcome()
    }

    /// A simple query.
    pub(crate) fn query(&mut self, sql: &str) -> Outcome {
        self.ask(&query(sql))
    }

    /// A simple query that has to succeed.
    #[track_caller]
    pub(crate) fn run(&mut self, sql: &str) -> Outcome {
        self.query(sql).good()
    }

    /// Several messages, then Sync.
    pub(crate) fn series(&mut self, messages: &[Vec<u8>]) -> Outcome {
        let mut bytes = messages.concat();
        bytes.extend(sync());
        self.ask(&bytes)
    }

    /// The start-up message of a client that needs no password.
    pub(crate) fn start(&mut self, parameters: &[(&str, &str)]) -> Outcome {
        self.start_as(3 << 16, parameters)
    }

    pub(crate) fn start_as(&mut self, version: u32, parameters: &[(&str, &str)]) -> Outcome {
        self.send(&first(version, parameters));
        self.started()
    }

    /// The answer to the start-up message: keys and settings are noted.
    pub(crate) fn started(&mut self) -> Outcome {
        let mut outcome = Outcome { status: ' ', ..Outcome::default() };
        while let Some(reply) = self.read() {
            outcome.take(&reply);
            match reply.kind {
                b'K' => {
                    self.pid = i32::from_be_bytes(reply.body[..4].try_into().unwrap());
                    self.secret = i32::from_be_bytes(reply.body[4..8].try_into().unwrap());
                }
                // The server waits for a word of authentication.
                b'R' if !matches!(reply.body[3], 0 | 12) => break,
                b'Z' => break,
                _ => {}
            }
        }
        self.settings.extend(outcome.settings.iter().cloned());
        outcome
    }

    /// Vanishes without goodbye.
    pub(crate) fn vanish(self) {
        self.stream.vanish();
    }
}

pub(crate) fn tcp(address: std::net::SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}
