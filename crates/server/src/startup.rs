//! How a connection begins: encryption, start-up message, authentication, the session and its settings.
//!
//! # Guarantees
//! 1. Nobody gets a session without having been let in: by the Unix socket's peer being the server's own user, by SCRAM, or by
//!    `--insecure-trust` on loopback. A password is never asked for in clear.
//! 2. All of it together takes no longer than [`AUTHENTICATION_LIMIT`], however slowly the client sends.
//! 3. A session is taken by who was let in, and by nobody before: who logs in, or never answers, keeps none from others. Cancelling a
//!    statement is possible when all sessions are taken.

use crate::connection::{Connected, Connection, End, Step};
use crate::message::{self, First};
use crate::scram;
use gannet_sql::types::text::check_utf8;
use gannet_sql::{Database, Error, Result, SqlState};
use std::sync::Arc;
use std::time::Duration;

/// Longest first message, in bytes.
const FIRST_MAX: usize = 10_000;
/// Longest message before authentication, in bytes.
const PASSWORD_MAX: usize = 65_536;
/// How long start-up and authentication may take.
pub(crate) const AUTHENTICATION_LIMIT: Duration = Duration::from_secs(60);

impl Connection {
    pub(crate) fn start_up(&mut self) -> Step<Connected> {
        self.stream.set_deadline(Some(AUTHENTICATION_LIMIT));
        let (mut may_encrypt, mut may_ask_gss) = (true, true);
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
                Ok(First::Ssl) if std::mem::take(&mut may_encrypt) => self.answer_ssl()?,
                Ok(First::Gss) if std::mem::take(&mut may_ask_gss) => self.stream.write_all(b"N")?,
                Ok(First::Ssl | First::Gss) => {
                    let error = Error::new(SqlState::PROTOCOL_VIOLATION, "encryption was asked for again");
                    return Err(self.fatal(&error));
                }
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
            self.out.begin(b'v').i32(3 << 16).i32(unknown.len() as i32);
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
        self.authenticate(user, name, database.as_ref())?;
        let Some(database) = database else {
            let error =
                Error::new(SqlState::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist"));
            return Err(self.fatal(&error));
        };
        if !self.place.admit() {
            let error = Error::new(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already");
            return Err(self.fatal(&error));
        }
        // Who owns the file may work in it, also where it was made by somebody else.
        let owner = database.owner();
        let is_owner = self.trusted && user == self.shared.owner && database.role(user).is_none();
        self.open_session(&database, if is_owner { &owner } else { user }, parameters)
    }

    fn authenticate(&mut self, user: &str, name: &str, database: Option<&Database>) -> Step<()> {
        if !self.trusted {
            // Whether the role may log in is told only to who knows its password.
            let role = database.and_then(|database| database.role(user));
            let stored = role.and_then(|role| role.password.as_deref().and_then(scram::Verifier::parse));
            let verifier = stored.unwrap_or_else(|| {
                let secret = self.shared.made_up_secret(database);
                scram::Verifier::made_up(&secret, name, user)
            });
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
        let answer = match check_utf8(&last).and_then(|last| exchange.finish(last)) {
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
        self.place.session(pid, secret, session.interrupt());
        Ok(Connected::new(session))
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
    check_utf8(data)
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
