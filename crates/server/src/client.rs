//! Results on their way to the client.

use crate::connection::Connection;
use crate::message::{Codes, Output};
use gannet_base::memory::Purpose;
use gannet_sql::session::{CopyFormat, Formats};
use gannet_sql::types::binary;
use gannet_sql::types::text::{self, TextStyle};
use gannet_sql::{Client, CommandTag, Error, Notice, OutputColumn, Result, SqlState, Type, Value};

/// Bytes that are gathered before they are sent.
const SEND_AT: usize = 64 << 10;

/// Bytes of values from which on a row's message is charged to the memory budget as long as it is there.
const LARGE_ROW: usize = 256 << 10;

/// Bytes of text that are kept for the next value.
const KEPT_TEXT: usize = 64 << 10;

/// Bytes that a value takes in its row's message, and what is made of it before, where they may be many; a few more than there will be.
fn large_bytes(value: &Value, ty: Type, is_binary: bool, style: &TextStyle) -> (usize, usize) {
    match value {
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => (0, 0),
        Value::Text(text) | Value::Padded(text) => (text.len(), 0),
        Value::Bytes(bytes) if is_binary => (bytes.len(), 0),
        // The digits of a number are a fifth longer than in memory, all else is shorter.
        Value::Numeric(_) | Value::Array(_) | Value::Record(_) if is_binary => {
            (value.heap_bytes() / 4 * 5, 0)
        }
        Value::Numeric(_) | Value::Bytes(_) | Value::Array(_) | Value::Record(_) => {
            let size = text::text_size(value, ty, style);
            (size.text, size.all())
        }
    }
}

/// Formats as Bind gives them: none (all text), one for all, or one for each.
///
/// # Errors
/// 22023: there are no such formats.
pub(crate) fn read_formats(codes: Codes<'_>) -> Result<Formats> {
    if let Some(code) = codes.iter().find(|code| !(0..=1).contains(code)) {
        return Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("unsupported format code: {code}"),
        ));
    }
    Ok(if codes.iter().all(|code| code == 0) {
        Formats::Text
    } else if codes.iter().all(|code| code == 1) {
        Formats::Binary
    } else {
        Formats::Each(codes.iter().map(|code| code == 1).collect())
    })
}

/// Gives results to the client of a connection.
pub(crate) struct Wire<'c> {
    connection: &'c mut Connection,
    formats: Formats,
    /// Simple protocol: columns are described before rows.
    simple: bool,
    /// The client sends data of COPY FROM STDIN.
    copying: bool,
    text: String,
}

impl<'c> Wire<'c> {
    pub(crate) fn new(connection: &'c mut Connection, formats: Formats, simple: bool) -> Self {
        Wire { connection, formats, simple, copying: false, text: String::new() }
    }

    fn out(&mut self) -> &mut Output {
        &mut self.connection.out
    }

    fn sent(&mut self) -> Result<()> {
        if self.out().bytes().len() >= SEND_AT { self.connection.flush() } else { Ok(()) }
    }

    /// `RowDescription`, or `NoData`.
    pub(crate) fn describe(&mut self, columns: Option<&[OutputColumn]>) {
        let Some(columns) = columns else {
            self.out().plain(b'n');
            return;
        };
        let formats = self.formats.clone();
        self.out().begin(b'T').count(columns.len());
        for (index, column) in columns.iter().enumerate() {
            let (table, number) = column.origin.unwrap_or((0, 0));
            // To a client, a literal whose type nobody asked for is text.
            let ty = if column.ty == Type::Unknown { Type::Text } else { column.ty };
            self.out().str(&column.name).u32(table).i16(number as i16).u32(ty.oid()).i16(ty.len());
            self.out().i32(column.modifier).i16(i16::from(formats.is_binary(index)));
        }
        self.out().end();
    }

    fn copy_response(&mut self, kind: u8, format: &CopyFormat) {
        self.out().begin(kind).u8(0).count(format.columns);
        for _ in 0..format.columns {
            self.out().i16(0);
        }
        self.out().end();
    }
}

/// What does not fit into a message is not left out.
fn too_long(what: &str) -> Error {
    let message = format!("{what} is longer than a message of the protocol can be");
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
}

impl Client for Wire<'_> {
    fn columns(&mut self, columns: &[OutputColumn], _style: &TextStyle) -> Result<()> {
        if self.simple {
            self.describe(Some(columns));
        }
        Ok(())
    }

    fn row(&mut self, values: &[Value], columns: &[OutputColumn], style: &TextStyle) -> Result<()> {
        let Wire { connection, formats, text, .. } = self;
        let (mut large, mut beside) = (0, 0);
        for (index, (value, column)) in values.iter().zip(columns).enumerate() {
            let bytes = large_bytes(value, column.ty, formats.is_binary(index), style);
            // What is made of one value goes before the next one.
            (large, beside) = (large + bytes.0, bytes.1.max(beside));
        }
        let mut charged = None;
        if large + beside > LARGE_ROW {
            charged = Some(connection.shared.engine.memory(Purpose::Work, (large + beside) as u64)?);
            connection.out.expect(large);
        }
        let out = &mut connection.out;
        out.begin(b'D').count(values.len());
        for (index, (value, column)) in values.iter().zip(columns).enumerate() {
            if value.is_null() {
                out.i32(-1);
            } else if formats.is_binary(index) {
                out.value(|bytes| binary::write(value, column.ty, bytes));
            } else if let Value::Text(value) | Value::Padded(value) = value {
                // As it is, without a copy in between.
                out.value(|bytes| bytes.extend_from_slice(value.as_bytes()));
            } else {
                text::write(value, column.ty, style, text);
                out.value(|bytes| bytes.extend_from_slice(text.as_bytes()));
                text.clear();
                text.shrink_to(KEPT_TEXT);
            }
        }
        if !out.end() {
            return Err(too_long("a row"));
        }
        let sent = self.sent();
        drop(charged);
        sent
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        self.out().begin(b'C').display(tag).end();
        Ok(())
    }

    fn empty(&mut self) -> Result<()> {
        self.out().plain(b'I');
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) {
        self.out().report(b'N', notice.severity, &notice.error);
        // It tells what is going on now. A client that is gone is noticed elsewhere.
        if notice.severity == "INFO" {
            let _ = self.connection.flush();
        }
    }

    fn progress(&mut self, notice: &Notice) {
        // What the client has not taken yet goes first, and the next one is told it in place of this.
        if self.connection.send_now() {
            self.out().report(b'N', notice.severity, &notice.error);
            self.connection.send_now();
        }
    }

    fn setting_changed(&mut self, name: &str, value: &str) {
        self.out().begin(b'S').str(name).str(value).end();
    }

    fn copy_in(&mut self, format: &CopyFormat) -> Result<()> {
        self.copying = true;
        self.copy_response(b'G', format);
        self.connection.flush()
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> Result<bool> {
        // Behind the end there is the client's next message, which is no data.
        if !self.copying {
            return Ok(false);
        }
        let there = self.connection.read_copy(data);
        self.copying = matches!(there, Ok(true));
        there
    }

    fn copy_out(&mut self, format: &CopyFormat) -> Result<()> {
        self.copy_response(b'H', format);
        Ok(())
    }

    fn copy_write(&mut self, data: &[u8]) -> Result<()> {
        if !self.out().begin(b'd').raw(data).end() {
            return Err(too_long("a line of COPY"));
        }
        self.sent()
    }

    fn copy_out_end(&mut self) -> Result<()> {
        self.out().plain(b'c');
        Ok(())
    }
}
