//! Rows as COPY text, from their stored bytes.
//!
//! Nothing is allocated for a row: strings are taken from the stored bytes as they are, other values are written into the buffer that
//! takes the rows.

use crate::Result;
use crate::catalog::Table;
use crate::codec::row::Field;
use crate::types::text::{self, TextStyle};
use crate::types::{Type, Value};

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowFormat {
    /// As COPY's format `text`: what stands between `COPY ... FROM stdin` and `\.`.
    Text,
    /// As COPY's format `csv`: NULL is nothing, an empty string is `""`.
    Csv,
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
    pub(super) fn write(&self, key: &[u8], row: &[u8], out: &mut String) -> Result<()> {
        self.table.codec().visit_row(key, row, |place, field| {
            if place > 0 {
                out.push(if self.format == RowFormat::Text { '\t' } else { ',' });
            }
            match field {
                Field::Null if self.format == RowFormat::Csv => {}
                Field::Null => out.push_str("\\N"),
                Field::Text(string) => self.string(string, out),
                Field::Padded(string, 0) => self.string(string, out),
                Field::Padded(string, blanks) => self.padded(string, blanks, out),
                Field::Value(Value::Text(string) | Value::Padded(string)) => self.string(&string, out),
                Field::Bytes(bytes) => self.bytes(bytes, out),
                Field::Int(value) => text::write_whole(value, self.types[place], self.style, out),
                Field::Numeric(value) => value.write(out),
                Field::Value(Value::Bytes(bytes)) => self.bytes(&bytes, out),
                // Numbers, truth values and times have nothing in their text that is to be escaped.
                Field::Value(value) => text::write(&value, self.types[place], self.style, out),
            }
        })?;
        out.push('\n');
        Ok(())
    }

    fn string(&self, string: &str, out: &mut String) {
        match self.format {
            RowFormat::Text => write_text(string, out),
            RowFormat::Csv => write_csv(string, self.types.len() == 1, out),
        }
    }

    fn padded(&self, string: &str, blanks: usize, out: &mut String) {
        const BLANKS: &str = "                                                                ";
        // What ends with a blank is none of the strings that csv quotes for what they are as a whole.
        match self.format {
            RowFormat::Csv if string.is_empty() => {}
            _ => self.string(string, out),
        }
        let quoted = self.format == RowFormat::Csv && out.ends_with('"');
        if quoted {
            out.pop();
        }
        for at in (0..blanks).step_by(BLANKS.len()) {
            out.push_str(&BLANKS[..BLANKS.len().min(blanks - at)]);
        }
        if quoted {
            out.push('"');
        }
    }

    fn bytes(&self, bytes: &[u8], out: &mut String) {
        if self.format == RowFormat::Text {
            out.push('\\');
        }
        text::write_bytes(bytes, true, out);
    }
}

/// Where the first byte of a kind is, of which there are few: many bytes are looked at at a time.
#[inline]
fn position(bytes: &[u8], of_kind: impl Fn(u8) -> bool) -> Option<usize> {
    // Without a way out in between, the compiler makes vector instructions of the loop.
    let is_among = |chunk: &[u8; 16]| chunk.iter().fold(false, |found, byte| found | of_kind(*byte));
    let (chunks, _) = bytes.as_chunks();
    let plain = 16 * chunks.iter().position(is_among).unwrap_or(chunks.len());
    bytes[plain..].iter().position(|byte| of_kind(*byte)).map(|at| plain + at)
}

/// Appends a string as format `text` has it.
fn write_text(string: &str, out: &mut String) {
    let mut rest = string;
    // The eight bytes that have a form of their own are all ASCII.
    while let Some(at) = position(rest.as_bytes(), |byte| byte == b'\\' || (8..=13).contains(&byte)) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            8 => "\\b",
            b'\t' => "\\t",
            b'\n' => "\\n",
            11 => "\\v",
            12 => "\\f",
            b'\r' => "\\r",
            _ => "\\\\",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

/// Appends a string as format `csv` has it.
fn write_csv(string: &str, alone: bool, out: &mut String) {
    let special = |byte: u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if !(string.is_empty() || alone && string == "\\." || position(string.as_bytes(), special).is_some()) {
        out.push_str(string);
        return;
    }
    out.push('"');
    for (place, piece) in string.split('"').enumerate() {
        if place > 0 {
            out.push_str("\"\"");
        }
        out.push_str(piece);
    }
    out.push('"');
}

/// Appends the line of csv that has the columns' names.
pub(super) fn write_header(names: &[String], out: &mut String) {
    for (place, name) in names.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        write_csv(name, names.len() == 1, out);
    }
    out.push('\n');
}
