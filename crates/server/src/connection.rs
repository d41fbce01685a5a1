//! One connection, once it was let in: the loop of messages.
//!
//! # Guarantees
//! 1. After an error in the extended protocol, which the client is told at once, everything up to the next Sync is passed over, as the
//!    protocol says. Whatever the error came from, the transaction has failed.
//! 2. Memory for a message is taken from the budget as its bytes arrive, not as its length claims; one that does not fit is read past
//!    and refused.
//! 3. However the connection ends, by a panic as well, its session is dropped, which rolls back, and the socket closed: within
//!    [`LAST_WORDS_LIMIT`], whether the client reads what it is told last or not.
//! 4. Where message boundaries may have been lost, the connection ends: nothing is run that was not sent as a statement.
//! 5. A statement that takes data can be ended wherever its client has stopped sending, in the middle of a message as well: what has come of that is
//!    kept, and its rest passed over before the next one.

use crate::ahead::Ahead;
use crate::client::{Wire, read_formats};
use crate::message::{self, Codes, Message, Output, Target};
use crate::server::{Place, Shared};
use crate::stream::{Socket, Stream};
use gannet_base::memory::Purpose;
use gannet_sql::session::{Formats, Interrupt, Session, TransactionStatus};
use gannet_sql::types::{binary, cast, text};
use gannet_sql::{Error, Execution, Result, SqlState, Type, Value};
use gannet_store::{Engine, WorkMemory};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Longest message, in bytes: PostgreSQL's limit for what it allocates at once.
const MESSAGE_MAX: usize = (1 << 30) - 1;
/// Bytes in front of a message's body: its type, and its length.
const HEAD: usize = 5;
/// A message up to this size is read into memory that every connection has anyway.
const SMALL_MESSAGE: usize = 32 << 10;
/// Memory of a message up to this size is kept for the next one.
const SPARE_MAX: usize = 4 << 10;
/// The first piece of a longer one, in bytes; the next ones double it.
const FIRST_PIECE: usize = 256 << 10;

/// How often a statement that waits for COPY data can find that it is to end.
const COPY_PERIOD: Duration = Duration::from_millis(100);
/// How long it is waited for a client to take what it is told last.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(3);

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The client said goodbye, or went away.
    Client,
    /// The client took too long.
    Late,
    /// The server ends it: what is still to be sent tells the client why.
    Told,
}

pub(crate) type Step<T> = std::result::Result<T, End>;

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => End::Late,
            // Whoever cannot be reached cannot be told.
            _ => End::Client,
        }
    }
}

/// What is needed of a connection before it has a session.
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stream: Stream,
    /// The socket, for those who watch it.
    pub(crate) socket: Arc<Socket>,
    /// Its place among the server's connections.
    pub(crate) place: Place,
    /// Came over a Unix socket from the server's own user, or is trusted without asking.
    pub(crate) trusted: bool,
    pub(crate) out: Output,
    /// Set within a COPY: the connection cannot go on.
    pub(crate) over: Option<Over>,
    /// Memory of a short message that was dealt with, for the next one.
    pub(crate) spare: Vec<u8>,
    /// What has come of the next message.
    pub(crate) incoming: Incoming,
}

/// A message on its way, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    head: [u8; HEAD],
    head_filled: usize,
    /// Bytes of its body, once the head is there, and how many of them have come.
    len: usize,
    filled: usize,
    /// The body, with room for the next piece of it.
    bytes: Vec<u8>,
    memory: Option<WorkMemory>,
    /// It is passed over: why.
    refused: Option<Error>,
}

impl Incoming {
    /// Makes room for the body's next piece.
    fn make_room(&mut self, engine: &Engine) -> Result<()> {
        let want = self.len.min(FIRST_PIECE.max(2 * self.filled));
        let more = want - self.filled;
        if self.len > SMALL_MESSAGE {
            // Twice: what is made of it is about as large; and while it grows, both are there.
            match &mut self.memory {
                Some(memory) => memory.grow(2 * more as u64)?,
                None => self.memory = Some(engine.work_memory(2 * more as u64)?),
            }
        }
        self.bytes.reserve_exact(more);
        self.bytes.resize(want, 0);
        Ok(())
    }

    /// Nothing of it is kept, be it what has come or what comes.
    fn refuse(&mut self, error: Error) {
        (self.bytes, self.memory, self.refused) = (Vec::new(), None, Some(error));
    }

    fn body(self) -> Result<Body> {
        self.refused.map_or(Ok(Body { bytes: self.bytes, _memory: self.memory }), Err)
    }
}

/// Why a connection cannot go on, found within a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// The client has gone, or was told already.
    Ended,
    /// A message came that cannot come there.
    OutOfStep,
}

/// A body that was read, and the memory it was charged as.
#[derive(Debug)]
pub(crate) struct Body {
    bytes: Vec<u8>,
    _memory: Option<WorkMemory>,
}

impl Connection {
    /// Serves the connection to its end.
    pub(crate) fn serve(mut self) {
        let served = catch_unwind(AssertUnwindSafe(|| self.converse()));
        let ended = served.unwrap_or_else(|_| {
            // The panic's message is on the server's standard error.
            self.out.forget();
            Err(self.fatal(&Error::internal("the session has panicked")))
        });
        // The session was dropped, which has rolled back: nobody else waits for a client that does not read. Who has sent his goodbye behind his last
        // statement may still read what that gave.
        if let Err(End::Told | End::Client) = ended {
            self.stream.set_deadline(Some(LAST_WORDS_LIMIT));
            let _ = self.send();
        }
        self.stream.say_goodbye();
        self.socket.close();
    }

    /// Lets the client in, and does what it says until its session ends.
    fn converse(&mut self) -> Step<()> {
        match self.start_up() {
            Ok(mut session) => session.run(self),
            Err(End::Late) => {
                let message = "canceling authentication due to timeout";
                Err(self.fatal(&Error::new(SqlState::QUERY_CANCELED, message)))
            }
            Err(end) => Err(end),
        }
    }

    pub(crate) fn send(&mut self) -> Step<()> {
        let sent = self.stream.write_all(self.out.bytes());
        self.out.clear();
        Ok(sent?)
    }

    /// Sends what there is room for now, of whole messages: nobody waits for the client. Whether nothing is left.
    pub(crate) fn send_now(&mut self) -> bool {
        self.stream.send_now(&mut self.out)
    }

    /// The client is to be told that the connection ends, and why: once its session has ended.
    pub(crate) fn fatal(&mut self, error: &Error) -> End {
        self.out.report(b'E', "FATAL", error);
        End::Told
    }

    /// The next message: its type and body. `None` when the client went away. Where nothing more comes in time, what has come of it is kept: whoever
    /// reads next goes on with it.
    fn read(&mut self) -> Step<Option<(u8, Result<Body>)>> {
        let mut incoming = std::mem::take(&mut self.incoming);
        match self.read_on(&mut incoming) {
            Ok(true) => Ok(Some((incoming.head[0], incoming.body()))),
            Ok(false) => Ok(None),
            Err(end) => {
                self.incoming = incoming;
                Err(end)
            }
        }
    }

    /// Reads a message to its end; false when the client went away.
    fn read_on(&mut self, incoming: &mut Incoming) -> Step<bool> {
        if incoming.head_filled < HEAD {
            if !self.stream.read_on(&mut incoming.head, &mut incoming.head_filled)? {
                return Ok(false);
            }
            incoming.len = self.judge_head(incoming.head)?;
            if incoming.len <= SPARE_MAX {
                incoming.bytes = std::mem::take(&mut self.spare);
                incoming.bytes.clear();
            }
        }
        while incoming.filled < incoming.len {
            if incoming.refused.is_some() {
                return self.pass_over(incoming);
            }
            if incoming.filled == incoming.bytes.len()
                && let Err(error) = incoming.make_room(&self.shared.engine)
            {
                incoming.refuse(error);
                continue;
            }
            if !self.stream.read_on(&mut incoming.bytes, &mut incoming.filled)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The length of a message's body.
    fn judge_head(&mut self, head: [u8; HEAD]) -> Step<usize> {
        let [kind, len @ ..] = head;
        if !message::is_known(kind) {
            let message = format!("invalid frontend message type {kind}");
            return Err(self.fatal(&Error::new(SqlState::PROTOCOL_VIOLATION, message)));
        }
        let len = usize::try_from(i32::from_be_bytes(len)).unwrap_or(0);
        if !(4..=MESSAGE_MAX).contains(&len) {
            let error = Error::new(SqlState::PROTOCOL_VIOLATION, "invalid message length");
            return Err(self.fatal(&error));
        }
        Ok(len - 4)
    }

    /// A message was dealt with: what is left of it may do for the next one.
    fn recycle(&mut self, body: Body) {
        if body.bytes.capacity() <= SPARE_MAX {
            self.spare = body.bytes;
        }
    }

    /// Reads the rest of a message that is refused; false when the client went away.
    fn pass_over(&mut self, incoming: &mut Incoming) -> Step<bool> {
        let mut buffer = vec![0; (incoming.len - incoming.filled).min(SMALL_MESSAGE)];
        while incoming.filled < incoming.len {
            let part = (incoming.len - incoming.filled).min(buffer.len());
            let mut read = 0;
            let is_there = self.stream.read_on(&mut buffer[..part], &mut read);
            incoming.filled += read;
            if !is_there? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A COPY has ended, however: of its data that is still under way nothing is kept.
    fn forget_copy_data(&mut self) {
        if self.incoming.head_filled == HEAD && self.incoming.head[0] == b'd' {
            let message = "data of a COPY that has ended";
            self.incoming.refuse(Error::new(SqlState::PROTOCOL_VIOLATION, message));
        }
    }

    /// For COPY FROM STDIN: the next piece of data, or nothing when no message comes to its end for a while; false at the end.
    pub(crate) fn read_copy(&mut self, data: &mut Vec<u8>) -> Result<bool> {
        loop {
            self.stream.set_deadline(Some(COPY_PERIOD));
            let read = self.read();
            self.stream.set_deadline(None);
            let (kind, body) = match read {
                Ok(Some(read)) => read,
                Err(End::Late) => return Ok(true),
                Ok(None) | Err(_) => {
                    self.over = Some(Over::Ended);
                    return Err(Error::new(
                        SqlState("08006"),
                        "unexpected EOF on client connection with an open transaction",
                    ));
                }
            };
            // Before its body is looked at, which may have been refused: nothing that is no data vanishes as if it were some.
            if !matches!(kind, b'd' | b'c' | b'f' | b'H' | b'S') {
                self.over = Some(Over::OutOfStep);
                return Err(Error::new(
                    SqlState::PROTOCOL_VIOLATION,
                    format!("unexpected message type 0x{kind:02X} during COPY from stdin"),
                ));
            }
            let body = body?;
            match message::parse(kind, &body.bytes)? {
                Message::CopyData(bytes) => {
                    data.extend_from_slice(bytes);
                    self.recycle(body);
                    return Ok(true);
                }
                Message::CopyDone => return Ok(false),
                Message::CopyFail(why) => {
                    return Err(Error::new(
                        SqlState::QUERY_CANCELED,
                        format!("COPY from stdin failed: {why}"),
                    ));
                }
                // Flush and Sync.
                _ => {}
            }
        }
    }

    /// Sends what there is, for a statement under way.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.send().map_err(|_| {
            self.over = Some(Over::Ended);
            Error::new(SqlState("08006"), "the client has gone away")
        })
    }
}

/// A connection that was let in.
pub(crate) struct Connected {
    session: Session,
    interrupt: Interrupt,
    /// After an error: until Sync.
    skipping: bool,
    ahead: Ahead,
    /// The client was told that all is done, and has sent nothing since: from then on its idle time counts.
    is_idle: bool,
}

impl Connected {
    pub(crate) fn new(session: Session) -> Self {
        Connected {
            interrupt: session.interrupt(),
            session,
            skipping: false,
            ahead: Ahead::default(),
            is_idle: false,
        }
    }

    fn run(&mut self, connection: &mut Connection) -> Step<()> {
        self.ready(connection)?;
        let watching = connection.shared.watch.watch(&connection.socket, &self.interrupt);
        loop {
            let Some((kind, body)) = self.next_message(connection)? else { return Err(End::Client) };
            if self.skipping && !matches!(kind, b'S' | b'X') {
                continue;
            }
            let _working = watching.work();
            if let Ok(body) = &body {
                self.ahead.look(kind, &body.bytes, &connection.stream, &mut self.session);
            }
            self.handle(kind, &body, connection)?;
            if let Ok(body) = body {
                connection.recycle(body);
            }
            if connection.out.bytes().len() > SMALL_MESSAGE {
                connection.send()?;
            }
        }
    }

    fn handle(&mut self, kind: u8, body: &Result<Body>, connection: &mut Connection) -> Step<()> {
        // Left over from a COPY that has failed.
        if matches!(kind, b'd' | b'c' | b'f') {
            return Ok(());
        }
        let result = match body {
            Err(error) => Err(error.clone()),
            Ok(body) => match message::parse(kind, &body.bytes) {
                Ok(Message::Terminate) => return Err(End::Client),
                Ok(Message::Sync) => return self.sync(connection),
                Ok(Message::Query(sql)) => return self.query(sql, connection),
                Ok(message) => self.extended(message, connection),
                Err(error) => Err(error),
            },
        };
        let Err(error) = result else { return Ok(()) };
        // It may have been found outside of the session, which is to know of it.
        let error = self.session.fail(error);
        self.report(&error, connection)?;
        self.skipping = matches!(kind, b'P' | b'B' | b'D' | b'E' | b'C' | b'H');
        // The client may wait for the outcome, that of COPY data included, before it sends Sync.
        if self.skipping { connection.send() } else { self.ready(connection) }
    }

    /// The next message, waited for as long as the settings for idle sessions permit.
    fn next_message(&mut self, connection: &mut Connection) -> Step<Option<(u8, Result<Body>)>> {
        let status = self.session.status();
        let limit = {
            let settings = self.session.state().settings();
            match status {
                TransactionStatus::Idle => settings.idle_timeout,
                _ => settings.idle_in_transaction_timeout,
            }
        };
        // Whatever COPY there was, none is under way.
        connection.forget_copy_data();
        let is_idle = std::mem::take(&mut self.is_idle);
        connection.stream.set_deadline(limit.filter(|_| is_idle));
        let read = connection.read();
        connection.stream.set_deadline(None);
        if self.interrupt.is_shut_down() && !matches!(read, Err(End::Told)) {
            return Err(connection.fatal(&self.interrupt.farewell()));
        }
        if let Err(End::Late) = read {
            return Err(connection.fatal(&idle_for_too_long(status)));
        }
        read
    }

    /// Tells the client of an error. One that ends the session ends the connection.
    fn report(&mut self, error: &Error, connection: &mut Connection) -> Step<()> {
        if error.state() == SqlState::ADMIN_SHUTDOWN {
            return Err(connection.fatal(error));
        }
        if self.interrupt.is_shut_down() {
            return Err(connection.fatal(&self.interrupt.farewell()));
        }
        if connection.over == Some(Over::Ended) {
            return Err(End::Told);
        }
        connection.out.report(b'E', "ERROR", error);
        if connection.over == Some(Over::OutOfStep) {
            let message = "terminating connection because protocol synchronization was lost";
            return Err(connection.fatal(&Error::new(SqlState::PROTOCOL_VIOLATION, message)));
        }
        Ok(())
    }

    fn ready(&mut self, connection: &mut Connection) -> Step<()> {
        let status = match self.session.status() {
            TransactionStatus::Idle => b'I',
            TransactionStatus::Active => b'T',
            TransactionStatus::Failed => b'E',
        };
        connection.out.begin(b'Z').u8(status).end();
        self.is_idle = true;
        connection.send()
    }

    fn query(&mut self, sql: &str, connection: &mut Connection) -> Step<()> {
        let mut wire = Wire::new(connection, Formats::default(), true);
        if let Err(error) = self.session.run(sql, &mut wire) {
            self.report(&error, connection)?;
        }
        self.ready(connection)
    }

    fn sync(&mut self, connection: &mut Connection) -> Step<()> {
        self.skipping = false;
        self.ahead.settle();
        let mut wire = Wire::new(connection, Formats::default(), false);
        if let Err(error) = self.session.sync(&mut wire) {
            self.report(&error, connection)?;
        }
        self.ready(connection)
    }

    fn extended(&mut self, message: Message<'_>, connection: &mut Connection) -> Result<()> {
        match message {
            Message::Parse { name, sql, types } => {
                let types = types.iter().map(|oid| parameter_type(*oid)).collect::<Result<Vec<_>>>()?;
                if name.is_empty() {
                    self.session.close_prepared("");
                }
                self.session.prepare(name, sql, &types)?;
                connection.out.plain(b'1');
            }
            Message::Bind { portal, statement, formats, values, results } => {
                self.bind(portal, statement, formats, &values, results)?;
                connection.out.plain(b'2');
            }
            Message::Describe(Target::Statement, name) => {
                let prepared = self.session.describe(name)?;
                connection.out.begin(b't').count(prepared.parameters().len());
                for ty in prepared.parameters() {
                    connection.out.u32(ty.oid());
                }
                connection.out.end();
                Wire::new(connection, Formats::default(), false).describe(prepared.columns());
            }
            Message::Describe(Target::Portal, name) => {
                let formats = self.session.portal_formats(name);
                let columns = self.session.portal_columns(name)?;
                Wire::new(connection, formats, false).describe(columns);
            }
            Message::Execute { portal, limit } => {
                let formats = self.session.portal_formats(portal);
                let mut wire = Wire::new(connection, formats, false);
                let limit = u64::try_from(limit).unwrap_or(0);
                if self.session.execute(portal, limit, &mut wire)? == Execution::Suspended {
                    connection.out.plain(b's');
                }
            }
            Message::Close(target, name) => {
                match target {
                    Target::Statement => self.session.close_prepared(name),
                    Target::Portal => self.session.close_portal(name),
                }
                connection.out.plain(b'3');
            }
            Message::Flush => connection.flush()?,
            Message::FunctionCall => return Err(Error::unsupported("the function call protocol")),
            Message::Query(_)
            | Message::Sync
            | Message::Terminate
            | Message::CopyData(_)
            | Message::CopyDone
            | Message::CopyFail(_) => {
                return Err(Error::internal("a message was dispatched twice"));
            }
        }
        Ok(())
    }

    fn bind(
        &mut self,
        portal: &str,
        statement: &str,
        formats: Codes<'_>,
        values: &[Option<&[u8]>],
        results: Codes<'_>,
    ) -> Result<()> {
        let prepared = self.session.prepared(statement)?;
        if formats.len() > 1 && formats.len() != values.len() {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                format!(
                    "bind message has {} parameter formats but {} parameters",
                    formats.len(),
                    values.len()
                ),
            ));
        }
        self.session.may_bind(portal, statement, &prepared, values.len())?;
        let (given, mut wanted) = (read_formats(formats)?, read_formats(results)?);
        let engine = self.session.state().engine.clone();
        let style = self.session.input_style();
        // The message is charged as what is made of it, where that is not much more. The portal is charged for it once it is there.
        let (mut beyond, mut room) = (0, None);
        let mut parameters = Vec::with_capacity(values.len());
        for (index, (value, ty)) in values.iter().zip(prepared.parameters().iter().copied()).enumerate() {
            let mut expect = |bytes: usize, of: usize| {
                beyond += bytes.saturating_sub(of);
                charge_parameters(&engine, &mut room, beyond)
            };
            let read = match value {
                None => Ok(Value::Null),
                Some(bytes) if given.is_binary(index) => expect(cast::binary_bytes(bytes, ty), bytes.len())
                    .and_then(|()| binary::read(bytes, ty, -1)),
                Some(bytes) => text::check_utf8(bytes).and_then(|value| {
                    expect(cast::text_bytes(value, ty, -1), bytes.len())?;
                    text::read(value, ty, -1, style)
                }),
            };
            parameters.push(read.map_err(|error| {
                let name = if portal.is_empty() {
                    "unnamed portal".to_owned()
                } else {
                    format!("portal \"{portal}\"")
                };
                error.context(format!("{name} parameter ${}", index + 1))
            })?);
        }
        match prepared.columns().map(<[_]>::len) {
            Some(columns) if results.len() > 1 && results.len() != columns => {
                let message = format!(
                    "bind message has {} result formats but query has {columns} columns",
                    results.len()
                );
                return Err(Error::new(SqlState::PROTOCOL_VIOLATION, message));
            }
            Some(_) => {}
            // As in PostgreSQL, any number of them will do: none is kept.
            None => wanted = Formats::default(),
        }
        if portal.is_empty() {
            self.session.close_portal("");
        }
        self.session.bind(portal, statement, prepared, parameters, wanted)
    }
}

/// Sees to it that so many bytes, by which parameters are longer than their message, are charged, where they are many.
fn charge_parameters(engine: &Engine, room: &mut Option<WorkMemory>, bytes: usize) -> Result<()> {
    let held = room.as_ref().map_or(0, WorkMemory::bytes);
    if bytes <= SMALL_MESSAGE || bytes as u64 <= held {
        return Ok(());
    }
    match room {
        Some(memory) => memory.grow(bytes as u64 - held)?,
        None => *room = Some(engine.memory(Purpose::Work, bytes as u64)?),
    }
    Ok(())
}

fn idle_for_too_long(status: TransactionStatus) -> Error {
    match status {
        TransactionStatus::Idle => {
            Error::new(SqlState("57P05"), "terminating connection due to idle-session timeout")
        }
        TransactionStatus::Active | TransactionStatus::Failed => Error::new(
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            "terminating connection due to idle-in-transaction timeout",
        ),
    }
}

/// The type a client gives a parameter.
fn parameter_type(oid: u32) -> Result<Type> {
    match oid {
        0 => Ok(Type::Unknown),
        _ => Type::from_oid(oid).ok_or_else(|| {
            Error::new(SqlState::UNDEFINED_OBJECT, format!("type with OID {oid} does not exist"))
        }),
    }
}
