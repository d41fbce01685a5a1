//! Rows as COPY text, from their stored bytes.
//!
//! Nothing is allocated for a row: strings are taken from the stored bytes as they are, other values are written into the buffer that
//! takes the rows. That strings are UTF-8 is looked at for many rows at once ([`RowWriter::check`]): what stands between them is ASCII, and
//! makes no character of two halves.

use super::Format;
use crate::Result;
use crate::catalog::Table;
use crate::codec::corrupted;
use crate::codec::row::RowVisitor;
use crate::escape::{position, write_text};
use crate::types::text::{self, TextStyle};
use crate::types::{Numeric, Type, Value};

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowFormat {
    /// As COPY's format `text`: what stands between `COPY ... FROM stdin` and `\.`.
    Text,
    /// As COPY's format `csv`: NULL is nothing, an empty string is `""`.
    Csv,
}

impl From<Format> for RowFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Sql => RowFormat::Text,
            Format::Csv => RowFormat::Csv,
        }
    }
}

/// Writes the rows of a table.
#[derive(Debug)]
pub(super) struct RowWriter<'t> {
    table: &'t Table,
    types: Vec<Type>,
    style: &'t TextStyle,
    format: RowFormat,
}

impl<'t> RowWriter<'t> {
    pub(super) fn new(table: &'t Table, style: &'t TextStyle, format: RowFormat) -> Self {
        let types = table.columns.iter().map(|column| column.ty).collect();
        RowWriter { table, types, style, format }
    }

    /// Appends a stored row.
    pub(super) fn write(
        &self,
        key: &[u8],
        row: &[u8],
        scratch: &mut String,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.table.codec().show_row(key, row, &mut RowLine { writer: self, scratch, out })?;
        out.push(b'\n');
        Ok(())
    }

    /// Whether the rows that were written are text.
    pub(super) fn check(&self, written: &[u8]) -> Result<()> {
        match std::str::from_utf8(written) {
            Ok(_) => Ok(()),
            Err(_) => Err(corrupted(&format!("a string that is no UTF-8 (table \"{}\")", self.table.name))),
        }
    }
}

/// A row that is written.
struct RowLine<'w, 't> {
    writer: &'w RowWriter<'t>,
    scratch: &'w mut String,
    out: &'w mut Vec<u8>,
}

impl RowLine<'_, '_> {
    #[inline]
    fn is_csv(&self) -> bool {
        self.writer.format == RowFormat::Csv
    }

    /// What stands in front of a column.
    #[inline]
    fn begin(&mut self, column: usize) {
        if column > 0 {
            self.out.push(if self.is_csv() { b',' } else { b'\t' });
        }
    }

    /// What was written to the scratch.
    fn take_scratch(&mut self) {
        self.out.extend_from_slice(self.scratch.as_bytes());
        self.scratch.clear();
    }

    #[inline]
    fn string(&mut self, bytes: &[u8]) {
        if self.is_csv() {
            write_csv(bytes, self.writer.types.len() == 1, self.out);
        } else {
            write_text(bytes, b'\t', self.out);
        }
    }

    fn bytea(&mut self, bytes: &[u8]) {
        if !self.is_csv() {
            self.out.push(b'\\');
        }
        text::write_bytes(bytes, true, self.scratch);
        self.take_scratch();
    }
}

impl RowVisitor for RowLine<'_, '_> {
    #[inline]
    fn null(&mut self, column: usize) {
        self.begin(column);
        if !self.is_csv() {
            self.out.extend_from_slice(b"\\N");
        }
    }

    #[inline]
    fn text(&mut self, column: usize, bytes: &[u8]) {
        self.begin(column);
        self.string(bytes);
    }

    #[inline]
    fn padded(&mut self, column: usize, bytes: &[u8], blanks: usize) {
        self.begin(column);
        // What ends with a blank is none of the strings that csv quotes for what they are as a whole.
        if !(self.is_csv() && bytes.is_empty() && blanks > 0) {
            self.string(bytes);
        }
        if blanks == 0 {
            return;
        }
        let quoted = self.is_csv() && !bytes.is_empty() && self.out.last() == Some(&b'"');
        if quoted {
            self.out.pop();
        }
        self.out.resize(self.out.len() + blanks, b' ');
        if quoted {
            self.out.push(b'"');
        }
    }

    fn bytes(&mut self, column: usize, bytes: &[u8]) {
        self.begin(column);
        self.bytea(bytes);
    }

    #[inline]
    fn whole(&mut self, column: usize, value: i64) {
        self.begin(column);
        match self.writer.types[column] {
            Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid => {
                self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
            }
            ty => {
                text::write_whole(value, ty, self.writer.style, self.scratch);
                self.take_scratch();
            }
        }
    }

    fn numeric(&mut self, column: usize, value: &Numeric) {
        self.begin(column);
        value.write(self.scratch);
        self.take_scratch();
    }

    fn value(&mut self, column: usize, value: &Value) {
        self.begin(column);
        match value {
            Value::Text(string) | Value::Padded(string) => self.string(string.as_bytes()),
            Value::Bytes(bytes) => self.bytea(bytes),
            // Numbers, truth values and times have nothing in their text that is to be escaped.
            value => {
                text::write(value, self.writer.types[column], self.writer.style, self.scratch);
                self.take_scratch();
            }
        }
    }
}

/// Appends a string as format `csv` has it.
fn write_csv(string: &[u8], alone: bool, out: &mut Vec<u8>) {
    let special = |byte: u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if !(string.is_empty() || alone && string == b"\\." || position(string, special).is_some()) {
        out.extend_from_slice(string);
        return;
    }
    out.push(b'"');
    for (place, piece) in string.split(|byte| *byte == b'"').enumerate() {
        if place > 0 {
            out.extend_from_slice(b"\"\"");
        }
        out.extend_from_slice(piece);
    }
    out.push(b'"');
}

/// Appends the line of csv that has the columns' names.
pub(super) fn write_header(names: &[String], out: &mut Vec<u8>) {
    for (place, name) in names.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_csv(name.as_bytes(), names.len() == 1, out);
    }
    out.push(b'\n');
}
