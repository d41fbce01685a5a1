//! PostgreSQL's protocol 3: messages of the client are taken apart, messages of the server put together.
//!
//! # Guarantees
//! 1. Nothing a client sends makes this panic or allocate more than a small multiple of the message: every count is checked against the
//!    bytes that are there.
//! 2. Text is UTF-8, or the message is refused (22021); nothing is silently replaced.
//!
//! Source: "Message Formats" in PostgreSQL's documentation of its protocol.

use gannet_sql::types::text::check_utf8;
use gannet_sql::{Error, Result, SqlState};
use std::io::Write;

/// `SSLRequest`
const SSL_REQUEST: u32 = 80_877_103;
/// `GSSENCRequest`
const GSS_REQUEST: u32 = 80_877_104;
/// `CancelRequest`
const CANCEL_REQUEST: u32 = 80_877_102;
/// Bytes of memory that are kept for what is to be sent next.
const KEPT: usize = 128 << 10;

/// The first message of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// May we encrypt?
    Ssl,
    /// May we encrypt by GSSAPI?
    Gss,
    /// End somebody's statement.
    Cancel {
        /// Number of the session.
        pid: i32,
        /// What only its client knows.
        secret: u32,
    },
    /// Let us begin.
    Startup {
        /// Minor version of protocol 3 that the client would like.
        minor: u16,
        /// `user`, `database`, `options`, settings.
        parameters: Vec<(String, String)>,
    },
}

/// A statement or a portal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

/// A message of the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message<'m> {
    /// `Query`
    Query(&'m str),
    /// `Parse`
    Parse { name: &'m str, sql: &'m str, types: Vec<u32> },
    /// `Bind`
    Bind {
        portal: &'m str,
        statement: &'m str,
        formats: Codes<'m>,
        values: Vec<Option<&'m [u8]>>,
        results: Codes<'m>,
    },
    /// `Describe`
    Describe(Target, &'m str),
    /// `Execute`
    Execute { portal: &'m str, limit: i32 },
    /// `Close`
    Close(Target, &'m str),
    /// `Flush`
    Flush,
    /// `Sync`
    Sync,
    /// `CopyData`
    CopyData(&'m [u8]),
    /// `CopyDone`
    CopyDone,
    /// `CopyFail`
    CopyFail(&'m str),
    /// `FunctionCall`
    FunctionCall,
    /// `Terminate`
    Terminate,
}

/// Format codes as they stand in a message: 0 is text, 1 is binary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Codes<'m>(pub(crate) &'m [[u8; 2]]);

impl<'m> Codes<'m> {
    fn read(body: &mut Body<'m>) -> Result<Self> {
        let count = body.count(2)?;
        let (codes, _) = body.bytes(2 * count)?.as_chunks();
        Ok(Codes(codes))
    }

    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = i16> + 'm {
        self.0.iter().map(|code| i16::from_be_bytes(*code))
    }
}

fn malformed(what: &str) -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, format!("invalid message format: {what}"))
}

/// Takes a message's body apart.
pub(crate) struct Body<'m> {
    rest: &'m [u8],
}

impl<'m> Body<'m> {
    pub(crate) fn new(body: &'m [u8]) -> Self {
        Body { rest: body }
    }

    /// All that was not taken yet.
    pub(crate) fn rest(&self) -> &'m [u8] {
        self.rest
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'m [u8]> {
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            return Err(malformed("it ends too early"));
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| malformed("it ends too early"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// A count of things: as PostgreSQL reads it, without a sign.
    pub(crate) fn count(&mut self, bytes_each: usize) -> Result<usize> {
        let count = usize::from(u16::from_be_bytes(self.array()?));
        if count * bytes_each > self.rest.len() {
            return Err(malformed("a count is larger than the message"));
        }
        Ok(count)
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn str(&mut self) -> Result<&'m str> {
        let Some(end) = self.rest.iter().position(|&byte| byte == 0) else {
            return Err(malformed("a string has no end"));
        };
        let text = check_utf8(&self.rest[..end])?;
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    fn end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(malformed("it is longer than its contents")) }
    }
}

/// Reads the body of a connection's first message (everything behind its length).
pub(crate) fn parse_first(body: &[u8]) -> Result<First> {
    let mut body = Body { rest: body };
    let code = body.u32()?;
    match code {
        SSL_REQUEST => Ok(First::Ssl),
        GSS_REQUEST => Ok(First::Gss),
        CANCEL_REQUEST => Ok(First::Cancel { pid: body.i32()?, secret: body.u32()? }),
        _ if code >> 16 == 3 => {
            let mut parameters = Vec::new();
            loop {
                let name = body.str()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name.to_owned(), body.str()?.to_owned()));
            }
            Ok(First::Startup { minor: (code & 0xffff) as u16, parameters })
        }
        _ => Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("unsupported frontend protocol {}.{}: server supports 3.0", code >> 16, code & 0xffff),
        )),
    }
}

/// Whether a client that was let in may send messages of this type.
pub(crate) fn is_known(kind: u8) -> bool {
    matches!(kind, b'Q' | b'P' | b'B' | b'D' | b'E' | b'C' | b'H' | b'S' | b'd' | b'c' | b'f' | b'F' | b'X')
}

/// Reads a message of this type.
pub(crate) fn parse(kind: u8, body: &[u8]) -> Result<Message<'_>> {
    let mut body = Body { rest: body };
    let message = match kind {
        b'Q' => Message::Query(body.str()?),
        b'P' => {
            let (name, sql) = (body.str()?, body.str()?);
            let count = body.count(4)?;
            let types = (0..count).map(|_| body.u32()).collect::<Result<_>>()?;
            Message::Parse { name, sql, types }
        }
        b'B' => parse_bind(&mut body)?,
        b'D' | b'C' => {
            let target = match body.u8()? {
                b'S' => Target::Statement,
                b'P' => Target::Portal,
                other => return Err(malformed(&format!("subtype {other} is unknown"))),
            };
            let name = body.str()?;
            if kind == b'D' { Message::Describe(target, name) } else { Message::Close(target, name) }
        }
        b'E' => Message::Execute { portal: body.str()?, limit: body.i32()? },
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'd' => Message::CopyData(body.bytes(body.rest.len())?),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(body.str()?),
        b'F' => {
            body.rest = &[];
            Message::FunctionCall
        }
        b'X' => Message::Terminate,
        other => {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                format!("invalid frontend message type {other}"),
            ));
        }
    };
    body.end()?;
    Ok(message)
}

fn parse_bind<'m>(body: &mut Body<'m>) -> Result<Message<'m>> {
    let (portal, statement) = (body.str()?, body.str()?);
    let formats = Codes::read(body)?;
    let count = body.count(4)?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let len = body.i32()?;
        values.push(match len {
            -1 => None,
            _ => Some(body.bytes(usize::try_from(len).map_err(|_| malformed("a length is negative"))?)?),
        });
    }
    let results = Codes::read(body)?;
    Ok(Message::Bind { portal, statement, formats, values, results })
}

/// Messages of the server, one after the other, until they are sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Where the length of the message under way stands.
    length_at: usize,
    /// So many bytes at the front are to follow a part of a message that was sent.
    owed: usize,
}

impl Output {
    /// What is to be sent.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// It was sent.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.owed = 0;
        // One large row is no reason to keep its memory, which is part of what is charged for a session.
        self.bytes.shrink_to(KEPT);
    }

    /// So many bytes of it were sent, of whole messages.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if bytes == self.bytes.len() {
            self.clear();
        } else if bytes > 0 {
            self.bytes.drain(..bytes);
            self.owed = self.bytes.len();
        }
    }

    /// What follows the first so many bytes, which are whole messages: it is to be sent later.
    pub(crate) fn split_off(&mut self, at: usize) -> Output {
        Output { bytes: self.bytes.split_off(at), ..Output::default() }
    }

    /// Leaves out what need not be sent: what follows would else be taken for the rest of a message that was sent in part.
    pub(crate) fn forget(&mut self) {
        self.bytes.truncate(self.owed);
    }

    /// Makes room for so many bytes more, so that it does not grow to twice that.
    pub(crate) fn expect(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes);
    }

    pub(crate) fn begin(&mut self, kind: u8) -> &mut Self {
        self.bytes.push(kind);
        self.length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self
    }

    /// Ends the message; false, without the message, when it is longer than the protocol can say.
    pub(crate) fn end(&mut self) -> bool {
        let len = self.bytes.len() - self.length_at;
        let Ok(len) = i32::try_from(len) else {
            self.bytes.truncate(self.length_at - 1);
            return false;
        };
        self.bytes[self.length_at..][..4].copy_from_slice(&len.to_be_bytes());
        true
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    pub(crate) fn i16(&mut self, value: i16) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A count of at most 65,535 things.
    pub(crate) fn count(&mut self, value: usize) -> &mut Self {
        self.bytes.extend_from_slice(&u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes());
        self
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Text with its end. A NUL within, which the protocol cannot say, ends it.
    pub(crate) fn str(&mut self, text: &str) -> &mut Self {
        let text = text.split('\0').next().unwrap_or_default();
        self.bytes.extend_from_slice(text.as_bytes());
        self.u8(0)
    }

    /// The same of what has no NUL when it is written.
    pub(crate) fn display(&mut self, text: impl std::fmt::Display) -> &mut Self {
        // Memory can be written to.
        let _ = write!(self.bytes, "{text}");
        self.u8(0)
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// A value with its length before it, which `write` appends.
    pub(crate) fn value(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        write(&mut self.bytes);
        // A value that is too long makes its message too long, which `end` sees.
        let len = i32::try_from(self.bytes.len() - at - 4).unwrap_or(i32::MAX);
        self.bytes[at..][..4].copy_from_slice(&len.to_be_bytes());
        self
    }

    /// A message without contents.
    pub(crate) fn plain(&mut self, kind: u8) {
        self.begin(kind).end();
    }

    /// `ErrorResponse` or `NoticeResponse`.
    pub(crate) fn report(&mut self, kind: u8, severity: &str, error: &Error) {
        let fields = error.fields();
        self.begin(kind);
        self.u8(b'S').str(severity).u8(b'V').str(severity);
        self.u8(b'C').str(fields.state.0).u8(b'M').str(&fields.message);
        let position = fields.position.map(|position| position.to_string());
        for (code, text) in [
            (b'D', &fields.detail),
            (b'H', &fields.hint),
            (b'P', &position),
            (b'W', &fields.context),
            (b's', &fields.schema),
            (b't', &fields.table),
            (b'c', &fields.column),
            (b'n', &fields.constraint),
        ] {
            if let Some(text) = text {
                self.u8(code).str(text);
            }
        }
        if let Some(routine) = fields.routine {
            self.u8(b'R').str(routine);
        }
        self.u8(0).end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_is_taken_apart() {
        let mut out = Output::default();
        out.begin(b'B').str("p").str("s").count(1).i16(1).count(2).i32(-1);
        out.value(|bytes| bytes.extend_from_slice(b"abc")).count(0).end();
        let message = parse(b'B', &out.bytes()[5..]).unwrap();
        assert_eq!(
            message,
            Message::Bind {
                portal: "p",
                statement: "s",
                formats: Codes(&[[0, 1]]),
                values: vec![None, Some(b"abc")],
                results: Codes(&[])
            }
        );
    }

    #[test]
    fn whatever_is_cut_or_changed_is_refused_or_read_but_never_panics() {
        let mut out = Output::default();
        out.begin(b'B').str("portal").str("st").count(2).i16(1).i16(0).count(3).i32(-1);
        out.value(|b| b.extend_from_slice(b"abc")).value(|_| {}).count(1).i16(1).end();
        let whole = out.bytes()[5..].to_vec();
        for kind in 0..=255 {
            for len in 0..whole.len() {
                let _ = parse(kind, &whole[..len]);
                for byte in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut changed = whole.clone();
                    changed[len] = byte;
                    let _ = parse(kind, &changed);
                    let _ = parse_first(&changed);
                }
            }
        }
        for len in 0..whole.len() {
            assert_eq!(parse(b'B', &whole[..len]).unwrap_err().state(), SqlState::PROTOCOL_VIOLATION);
        }
        let error = parse(b'Q', b"select '\xff'\0").unwrap_err();
        assert_eq!(error.state(), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
    }

    #[test]
    fn the_first_message_is_known_by_its_number() {
        let first = |code: u32, rest: &[u8]| {
            let mut body = code.to_be_bytes().to_vec();
            body.extend_from_slice(rest);
            parse_first(&body)
        };
        assert_eq!(first(SSL_REQUEST, b"").unwrap(), First::Ssl);
        assert_eq!(
            first(CANCEL_REQUEST, &[0, 0, 0, 7, 0, 0, 0, 9]).unwrap(),
            First::Cancel { pid: 7, secret: 9 }
        );
        let parameters = vec![("user".to_owned(), "me".to_owned())];
        assert_eq!(first(3 << 16, b"user\0me\0\0").unwrap(), First::Startup { minor: 0, parameters });
        assert!(first(2 << 16, b"").unwrap_err().to_string().contains("protocol 2.0"));
        assert!(first(3 << 16, b"user\0me").is_err());
    }
}
