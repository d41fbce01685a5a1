//! One connection, from its first byte to its last: start-up, authentication, and the loop of messages.
//!
//! # Guarantees
//! 1. Nobody gets a session without having been let in: by the Unix socket's peer being the server's own user, by SCRAM, or by
//!    `--insecure-trust` on loopback.
//! 2. After an error in the extended protocol everything up to the next Sync is passed over, as the protocol says.
//! 3. A message is read only when there is memory for it in the budget; one that does not fit is read past and refused.
//! 4. However the connection ends, its session is dropped, which rolls back.

use crate::client::{Formats, Wire};
use crate::message::{self, First, Message, Output, Target};
use crate::scram;
use crate::server::Shared;
use crate::stream::{Socket, Stream};
use gannet_sql::session::{Interrupt, Session, TransactionStatus};
use gannet_sql::types::{binary, text};
use gannet_sql::{Database, Error, Execution, Result, SqlState, Type, Value};
use gannet_store::WorkMemory;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Longest first message, in bytes.
const FIRST_MAX: usize = 10_000;
/// Longest message before authentication, in bytes.
const PASSWORD_MAX: usize = 65_536;
/// Longest message, in bytes: PostgreSQL's limit for what it allocates at once.
const MESSAGE_MAX: usize = (1 << 30) - 1;
/// A message up to this size is read into memory that every connection has anyway.
const SMALL_MESSAGE: usize = 32 << 10;
/// How long start-up and authentication may take.
const AUTHENTICATION_LIMIT: Duration = Duration::from_secs(60);

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The client said goodbye, or went away.
    Client,
    /// The server ends it, after telling the client why.
    Told,
}

type Step<T> = std::result::Result<T, End>;

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        // Whoever cannot be reached cannot be told.
        End::Client
    }
}

/// What is needed of a connection before it has a session.
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stream: Stream,
    /// The socket, for those who watch it.
    pub(crate) socket: Arc<Socket>,
    /// Came over a Unix socket from the server's own user, or is trusted without asking.
    pub(crate) trusted: bool,
    pub(crate) out: Output,
}

/// A body that was read, and the memory it was charged as.
struct Body {
    bytes: Vec<u8>,
    _memory: Option<WorkMemory>,
}

impl Connection {
    /// Serves the connection to its end.
    pub(crate) fn serve(mut self) {
        if let Ok(mut session) = self.start_up() {
            let number = self.shared.enter(session.session.interrupt(), &self.socket);
            let _ = session.run(&mut self);
            drop(session);
            self.shared.leave(number);
        }
        let _ = self.send();
        self.socket.close();
    }

    fn send(&mut self) -> Step<()> {
        let sent = self.stream.write_all(self.out.bytes());
        self.out.clear();
        Ok(sent?)
    }

    /// Tells the client that the connection ends, and why.
    fn fatal(&mut self, error: &Error) -> End {
        self.out.report(b'E', "FATAL", error);
        let _ = self.send();
        End::Told
    }

    // ---- start-up ---------------------------------------------------------------------------------------------

    fn start_up(&mut self) -> Step<Connected> {
        self.stream.set_read_timeout(Some(AUTHENTICATION_LIMIT))?;
        loop {
            let mut len = [0; 4];
            if !self.stream.read_exact(&mut len)? {
                return Err(End::Client);
            }
            let len = usize::try_from(i32::from_be_bytes(len)).unwrap_or(0);
            if !(8..=FIRST_MAX).contains(&len) {
                let error = Error::new(SqlState::PROTOCOL_VIOLATION, "invalid length of startup packet");
                return Err(self.fatal(&error));
            }
            let mut body = vec![0; len - 4];
            if !self.stream.read_exact(&mut body)? {
                return Err(End::Client);
            }
            match message::parse_first(&body) {
                Ok(First::Ssl) => self.answer_ssl()?,
                Ok(First::Gss) => self.stream.write_all(b"N")?,
                Ok(First::Cancel { pid, secret }) => {
                    self.shared.cancel(pid, secret);
                    return Err(End::Client);
                }
                Ok(First::Startup { minor, parameters }) => return self.begin(minor, &parameters),
                Err(error) => return Err(self.fatal(&error)),
            }
        }
    }

    fn answer_ssl(&mut self) -> Step<()> {
        match (&self.shared.tls, self.stream.is_encrypted()) {
            (Some(tls), false) => {
                let tls = Arc::clone(tls);
                self.stream.write_all(b"S")?;
                Ok(self.stream.encrypt(tls)?)
            }
            _ => Ok(self.stream.write_all(b"N")?),
        }
    }

    fn begin(&mut self, minor: u16, parameters: &[(String, String)]) -> Step<Connected> {
        let find = |name: &str| parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let unknown: Vec<&str> = parameters
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| name.starts_with("_pq_."))
            .collect();
        if minor > 0 || !unknown.is_empty() {
            self.out.begin(b'v').i32(0).i32(unknown.len() as i32);
            for name in unknown {
                self.out.str(name);
            }
            self.out.end();
        }
        let Some(user) = find("user").filter(|user| !user.is_empty()) else {
            let error = Error::new(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                "no PostgreSQL user name specified in startup packet",
            );
            return Err(self.fatal(&error));
        };
        if find("replication").is_some_and(|value| !matches!(value, "false" | "off" | "no" | "0")) {
            return Err(self.fatal(&Error::unsupported("a replication connection")));
        }
        let name = find("database").filter(|name| !name.is_empty()).unwrap_or(user);
        let database = self.shared.database(name);
        self.authenticate(user, database.as_ref())?;
        let Some(database) = database else {
            let error =
                Error::new(SqlState::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist"));
            return Err(self.fatal(&error));
        };
        // Who owns the file may work in it, also where it was made by somebody else.
        let owner = database.owner();
        let is_owner = self.trusted && user == self.shared.owner && database.role(user).is_none();
        self.open_session(&database, if is_owner { &owner } else { user }, parameters)
    }

    fn authenticate(&mut self, user: &str, database: Option<&Database>) -> Step<()> {
        if !self.trusted {
            let stored = database.and_then(|database| database.role(user)).and_then(|role| {
                role.password.as_deref().filter(|_| role.login).and_then(scram::Verifier::parse)
            });
            let verifier =
                stored.unwrap_or_else(|| scram::Verifier::made_up(&self.shared.made_up_secret, user));
            self.out.begin(b'R').i32(10).str(scram::MECHANISM).u8(0).end();
            self.send()?;
            if let Err(error) = self.scram(verifier, user)? {
                return Err(self.fatal(&error));
            }
        }
        self.out.begin(b'R').i32(0).end();
        Ok(())
    }

    /// The exchange of SCRAM.
    fn scram(&mut self, verifier: scram::Verifier, user: &str) -> Step<Result<()>> {
        let wrong = || {
            Error::new(
                SqlState::INVALID_PASSWORD,
                format!("password authentication failed for user \"{user}\""),
            )
        };
        let first = match self.password_message()? {
            Ok(body) => body,
            Err(error) => return Ok(Err(error)),
        };
        let first = match initial_response(&first) {
            Ok(first) => first,
            Err(error) => return Ok(Err(error)),
        };
        let random = match self.shared.random() {
            Ok(random) => random,
            Err(error) => return Ok(Err(error)),
        };
        let (exchange, reply) = match scram::begin(verifier, first, &random) {
            Ok(begun) => begun,
            Err(error) => return Ok(Err(error)),
        };
        self.out.begin(b'R').i32(11).raw(reply.as_bytes()).end();
        self.send()?;
        let last = match self.password_message()? {
            Ok(body) => body,
            Err(error) => return Ok(Err(error)),
        };
        let answer = match message::utf8(&last).and_then(|last| exchange.finish(last)) {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        match answer {
            Some(answer) => {
                self.out.begin(b'R').i32(12).raw(answer.as_bytes()).end();
                Ok(Ok(()))
            }
            None => Ok(Err(wrong())),
        }
    }

    /// The contents of the client's next message, which has to be one of authentication.
    fn password_message(&mut self) -> Step<Result<Vec<u8>>> {
        let mut head = [0; 5];
        if !self.stream.read_exact(&mut head)? {
            return Err(End::Client);
        }
        let len = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let len = usize::try_from(len).unwrap_or(0);
        if head[0] != b'p' || !(4..=PASSWORD_MAX).contains(&len) {
            let message = format!("expected a password response, got message type {}", head[0]);
            return Ok(Err(Error::new(SqlState::PROTOCOL_VIOLATION, message)));
        }
        let mut body = vec![0; len - 4];
        if !body.is_empty() && !self.stream.read_exact(&mut body)? {
            return Err(End::Client);
        }
        Ok(Ok(body))
    }

    fn open_session(
        &mut self,
        database: &Database,
        user: &str,
        parameters: &[(String, String)],
    ) -> Step<Connected> {
        let session = match database.session(user) {
            Ok(session) => session,
            Err(error) => return Err(self.fatal(&error)),
        };
        for (name, value) in start_settings(parameters) {
            if let Err(error) = session.state().set_at_start(&name, &value) {
                return Err(self.fatal(&error));
            }
        }
        session.note_client(self.socket.peer());
        for (name, value) in session.state().reported_settings() {
            self.out.begin(b'S').str(name).str(&value).end();
        }
        let secret = match self.shared.random::<4>() {
            Ok(random) => u32::from_be_bytes(random),
            Err(error) => return Err(self.fatal(&error)),
        };
        let pid = session.state().pid;
        self.out.begin(b'K').i32(pid).u32(secret).end();
        self.shared.add_key(pid, secret, session.interrupt());
        Ok(Connected {
            shared: Arc::clone(&self.shared),
            interrupt: session.interrupt(),
            session,
            formats: HashMap::new(),
            skipping: false,
        })
    }

    // ---- messages ---------------------------------------------------------------------------------------------

    /// The next message: its type and body. `None` when the client went away.
    fn read(&mut self) -> Step<Option<(u8, Result<Body>)>> {
        let mut head = [0; 5];
        if !self.stream.read_exact(&mut head)? {
            return Ok(None);
        }
        let len = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let len = usize::try_from(len).unwrap_or(0);
        if !(4..=MESSAGE_MAX).contains(&len) {
            let error = Error::new(SqlState::PROTOCOL_VIOLATION, "invalid message length");
            return Err(self.fatal(&error));
        }
        let len = len - 4;
        let memory = if len <= SMALL_MESSAGE {
            None
        } else {
            // Twice: what is made of it is about as large.
            match self.shared.engine.work_memory(2 * len as u64) {
                Ok(memory) => Some(memory),
                Err(error) => {
                    self.pass_over(len)?;
                    return Ok(Some((head[0], Err(error.into()))));
                }
            }
        };
        let mut bytes = vec![0; len];
        if len > 0 && !self.stream.read_exact(&mut bytes)? {
            return Ok(None);
        }
        Ok(Some((head[0], Ok(Body { bytes, _memory: memory }))))
    }

    fn pass_over(&mut self, mut len: usize) -> Step<()> {
        let mut buffer = vec![0; len.min(SMALL_MESSAGE)];
        while len > 0 {
            let part = len.min(buffer.len());
            if !self.stream.read_exact(&mut buffer[..part])? {
                return Err(End::Client);
            }
            len -= part;
        }
        Ok(())
    }

    /// For COPY FROM STDIN: the next piece of data; false at its end.
    pub(crate) fn read_copy(&mut self, data: &mut Vec<u8>) -> Result<bool> {
        let gone =
            || Error::new(SqlState("08006"), "unexpected EOF on client connection with an open transaction");
        loop {
            let (kind, body) = match self.read() {
                Ok(Some((kind, body))) => (kind, body?),
                _ => return Err(gone()),
            };
            match message::parse(kind, &body.bytes)? {
                Message::CopyData(bytes) => {
                    data.extend_from_slice(bytes);
                    return Ok(true);
                }
                Message::CopyDone => return Ok(false),
                Message::CopyFail(why) => {
                    return Err(Error::new(
                        SqlState::QUERY_CANCELED,
                        format!("COPY from stdin failed: {why}"),
                    ));
                }
                Message::Flush | Message::Sync => {}
                _ => {
                    return Err(Error::new(
                        SqlState::PROTOCOL_VIOLATION,
                        format!("unexpected message type 0x{kind:02X} during COPY from stdin"),
                    ));
                }
            }
        }
    }

    /// Sends what there is, for a statement under way.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.send().map_err(|_| Error::new(SqlState("08006"), "the client has gone away"))
    }
}

/// The settings that a client's first message asks for: `options=-c name=value` and parameters that are settings.
fn start_settings(parameters: &[(String, String)]) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    for (name, value) in parameters {
        match name.as_str() {
            "user" | "database" | "replication" => {}
            "options" => {
                let mut words = option_words(value).into_iter();
                while let Some(word) = words.next() {
                    let assignment = match word.as_str() {
                        "-c" => words.next().unwrap_or_default(),
                        other => other
                            .strip_prefix("-c")
                            .or_else(|| other.strip_prefix("--"))
                            .unwrap_or(other)
                            .to_owned(),
                    };
                    let (name, value) = assignment.split_once('=').unwrap_or((&assignment, ""));
                    settings.push((name.replace('-', "_"), value.to_owned()));
                }
            }
            name if name.starts_with("_pq_.") => {}
            name => settings.push((name.to_owned(), value.clone())),
        }
    }
    settings
}

/// Words separated by blanks; a backslash takes the next character as it is.
fn option_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => word.extend(characters.next()),
            ' ' => words.extend((!word.is_empty()).then(|| std::mem::take(&mut word))),
            other => word.push(other),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// The client's first message of SCRAM within `SASLInitialResponse`.
fn initial_response(body: &[u8]) -> Result<&str> {
    let bad = || Error::new(SqlState::PROTOCOL_VIOLATION, "malformed SASL initial response");
    let end = body.iter().position(|&byte| byte == 0).ok_or_else(bad)?;
    if &body[..end] != scram::MECHANISM.as_bytes() {
        return Err(Error::new(
            SqlState::PROTOCOL_VIOLATION,
            "client selected an invalid SASL authentication mechanism",
        ));
    }
    let rest = &body[end + 1..];
    let (len, data) = rest.split_at_checked(4).ok_or_else(bad)?;
    let len = i32::from_be_bytes([len[0], len[1], len[2], len[3]]);
    if usize::try_from(len).ok() != Some(data.len()) {
        return Err(bad());
    }
    message::utf8(data)
}

/// A connection that was let in.
struct Connected {
    shared: Arc<Shared>,
    session: Session,
    interrupt: Interrupt,
    /// Result formats by portal.
    formats: HashMap<String, Formats>,
    /// After an error: until Sync.
    skipping: bool,
}

impl Connected {
    fn run(&mut self, connection: &mut Connection) -> Step<()> {
        self.ready(connection)?;
        let watching = connection.shared.watch.watch(&connection.socket, &self.interrupt);
        loop {
            self.wait_for_message(connection)?;
            let Some((kind, body)) = connection.read()? else { return Err(End::Client) };
            let _working = watching.work();
            let result = match &body {
                Err(error) => Err(error.clone()),
                Ok(body) => match message::parse(kind, &body.bytes) {
                    Ok(Message::Terminate) => return Err(End::Client),
                    Ok(Message::Sync) => {
                        self.sync(connection)?;
                        continue;
                    }
                    Ok(Message::Query(sql)) => {
                        self.query(sql, connection)?;
                        continue;
                    }
                    Ok(_) if self.skipping => continue,
                    Ok(message) => self.extended(message, connection),
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = result {
                self.report(&error, connection)?;
                if kind == b'Q' {
                    self.ready(connection)?;
                } else {
                    self.skipping = true;
                }
            }
            if connection.out.bytes().len() > SMALL_MESSAGE {
                connection.send()?;
            }
        }
    }

    /// Waits, as long as the settings for idle sessions permit.
    fn wait_for_message(&mut self, connection: &mut Connection) -> Step<()> {
        if connection.stream.has_buffered() {
            return Ok(());
        }
        let idle = matches!(self.session.status(), TransactionStatus::Idle);
        let limit = {
            let settings = self.session.state().settings();
            if idle { settings.idle_timeout } else { settings.idle_in_transaction_timeout }
        };
        connection.stream.set_read_timeout(limit)?;
        match connection.stream.peek() {
            Ok(()) => {}
            Err(late) if matches!(late.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                let (state, what) = if idle {
                    (SqlState("57P05"), "idle-session")
                } else {
                    (SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, "idle-in-transaction")
                };
                let error = Error::new(state, format!("terminating connection due to {what} timeout"));
                return Err(connection.fatal(&error));
            }
            Err(other) => return Err(other.into()),
        }
        // Within a message there is no limit.
        connection.stream.set_read_timeout(None)?;
        if self.shared.is_stopping() {
            let error =
                Error::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command");
            return Err(connection.fatal(&error));
        }
        Ok(())
    }

    /// Tells the client of an error. One that ends the session ends the connection.
    fn report(&mut self, error: &Error, connection: &mut Connection) -> Step<()> {
        if error.state() == SqlState::ADMIN_SHUTDOWN {
            return Err(connection.fatal(error));
        }
        connection.out.report(b'E', "ERROR", error);
        Ok(())
    }

    fn ready(&mut self, connection: &mut Connection) -> Step<()> {
        let status = match self.session.status() {
            TransactionStatus::Idle => b'I',
            TransactionStatus::Active => b'T',
            TransactionStatus::Failed => b'E',
        };
        connection.out.begin(b'Z').u8(status).end();
        connection.send()
    }

    fn query(&mut self, sql: &str, connection: &mut Connection) -> Step<()> {
        self.skipping = false;
        let mut wire = Wire::new(connection, Formats::default(), true);
        if let Err(error) = self.session.run(sql, &mut wire) {
            self.report(&error, connection)?;
        }
        self.ready(connection)
    }

    fn sync(&mut self, connection: &mut Connection) -> Step<()> {
        self.skipping = false;
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
                self.bind(portal, statement, &formats, &values, results)?;
                connection.out.plain(b'2');
            }
            Message::Describe(Target::Statement, name) => {
                let prepared = self.session.prepared(name)?;
                connection.out.begin(b't').count(prepared.parameters().len());
                for ty in prepared.parameters() {
                    connection.out.u32(ty.oid());
                }
                connection.out.end();
                Wire::new(connection, Formats::default(), false).describe(prepared.columns());
            }
            Message::Describe(Target::Portal, name) => {
                let formats = self.formats.get(name).cloned().unwrap_or_default();
                let columns = self.session.portal_columns(name)?;
                Wire::new(connection, formats, false).describe(columns);
            }
            Message::Execute { portal, limit } => {
                let formats = self.formats.get(portal).cloned().unwrap_or_default();
                let mut wire = Wire::new(connection, formats, false);
                let limit = u64::try_from(limit).unwrap_or(0);
                if self.session.execute(portal, limit, &mut wire)? == Execution::Suspended {
                    connection.out.plain(b's');
                }
            }
            Message::Close(target, name) => {
                match target {
                    Target::Statement => self.session.close_prepared(name),
                    Target::Portal => {
                        self.session.close_portal(name);
                        self.formats.remove(name);
                    }
                }
                connection.out.plain(b'3');
            }
            Message::Flush => connection.flush()?,
            // Left over from a COPY that has failed.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => {}
            Message::FunctionCall => return Err(Error::unsupported("the function call protocol")),
            Message::Password(_) => {
                return Err(Error::new(SqlState::PROTOCOL_VIOLATION, "unexpected password message"));
            }
            Message::Query(_) | Message::Sync | Message::Terminate => {
                return Err(Error::internal("a message was dispatched twice"));
            }
        }
        Ok(())
    }

    fn bind(
        &mut self,
        portal: &str,
        statement: &str,
        formats: &[i16],
        values: &[Option<&[u8]>],
        results: Vec<i16>,
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
        for format in formats.iter().chain(&results) {
            if !(0..=1).contains(format) {
                return Err(Error::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("unsupported format code: {format}"),
                ));
            }
        }
        let mut parameters = Vec::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            let ty = prepared.parameters().get(index).copied().unwrap_or(Type::Text);
            let binary = match formats {
                [] => false,
                [all] => *all == 1,
                each => each[index] == 1,
            };
            let read = match value {
                None => Ok(Value::Null),
                Some(bytes) if binary => binary::read(bytes, ty, -1),
                Some(bytes) => message::utf8(bytes)
                    .and_then(|value| text::read(value, ty, -1, &self.session.state().style)),
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
        let columns = prepared.columns().map_or(0, <[_]>::len);
        if results.len() > 1 && results.len() != columns {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                format!("bind message has {} result formats but query has {columns} columns", results.len()),
            ));
        }
        if portal.is_empty() {
            self.session.close_portal("");
        }
        self.session.bind(portal, statement, parameters)?;
        self.formats.insert(portal.to_owned(), Formats(results));
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_first_message() {
        let parameters = [
            ("user".to_owned(), "me".to_owned()),
            ("application_name".to_owned(), "psql".to_owned()),
            ("options".to_owned(), "-c statement_timeout=5s --lock-timeout=1\\ s -cDateStyle=ISO".to_owned()),
        ];
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            start_settings(&parameters),
            [
                pair("application_name", "psql"),
                pair("statement_timeout", "5s"),
                pair("lock_timeout", "1 s"),
                pair("DateStyle", "ISO")
            ]
        );
    }
}
