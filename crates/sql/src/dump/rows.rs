//! Rows as COPY text, from their stored bytes.
//!
//! Nothing is allocated for a row: strings are taken from the stored bytes as they are, other values are written into the buffer that
//! takes the rows. That strings are UTF-8 is looked at for many rows at once ([`RowWriter::check`]): what stands between them is ASCII, and
//! makes no character of two halves.

use crate::Result;
use crate::catalog::Table;
use crate::codec::corrupted;
use crate::codec::row::RowVisitor;
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
            write_text(bytes, self.out);
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

/// Where the first byte of a kind is, of which there are few: many bytes are looked at at a time.
#[inline]
fn position(bytes: &[u8], of_kind: impl Fn(u8) -> bool) -> Option<usize> {
    // Without a way out in between, the compiler makes vector instructions of the loop.
    let is_among = |chunk: &[u8; 16]| chunk.iter().fold(false, |found, byte| found | of_kind(*byte));
    let (chunks, _) = bytes.as_chunks();
    let plain = 16 * chunks.iter().position(is_among).unwrap_or(chunks.len());
    bytes[plain..].iter().position(|byte| of_kind(*byte)).map(|at| plain + at)
}

/// Whether format `text` has none of these bytes in a form of their own: 8 to 13, and the backslash. Says no of others below 14 as well.
#[inline]
fn is_plain(bytes: &[u8]) -> bool {
    // Eight bytes at a time: see "Hacker's Delight", 6-1, on how to find a byte of a word.
    const EACH: u64 = u64::MAX / 255;
    let below = |word: u64, least: u64| word.wrapping_sub(EACH * least) & !word & (EACH << 7) != 0;
    let special = |word: u64| below(word, 14) || below(word ^ (EACH * u64::from(b'\\')), 1);
    let (words, rest) = bytes.as_chunks();
    if words.iter().any(|word| special(u64::from_le_bytes(*word))) {
        return false;
    }
    // The rest: with some of what stands before it, or twice.
    match (bytes.last_chunk(), rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        (Some(last), ..) => !special(u64::from_le_bytes(*last)),
        (None, Some(first), Some(last)) => {
            let word = u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32;
            !special(word)
        }
        _ => rest.iter().all(|byte| *byte >= 14 && *byte != b'\\'),
    }
}

/// Appends a string as format `text` has it.
#[inline]
fn write_text(string: &[u8], out: &mut Vec<u8>) {
    if is_plain(string) {
        out.extend_from_slice(string);
    } else {
        write_escaped(string, out);
    }
}

#[cold]
fn write_escaped(string: &[u8], out: &mut Vec<u8>) {
    let mut rest = string;
    // The eight bytes that have a form of their own are all ASCII.
    while let Some(at) = position(rest, |byte| byte == b'\\' || (8..=13).contains(&byte)) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(match rest[at] {
            8 => b"\\b",
            b'\t' => b"\\t",
            b'\n' => b"\\n",
            11 => b"\\v",
            12 => b"\\f",
            b'\r' => b"\\r",
            _ => b"\\\\",
        });
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_a_form_of_their_own_are_found_wherever_they_are() {
        for length in 0..40 {
            let mut bytes = vec![b'x'; length];
            assert!(is_plain(&bytes));
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    bytes[at] = byte;
                    assert_eq!(is_plain(&bytes), byte >= 14 && byte != b'\\', "{byte} at {at} of {length}");
                    let mut written = Vec::new();
                    write_text(&bytes, &mut written);
                    let escaped = matches!(byte, 8..=13 | b'\\');
                    assert_eq!(written.len(), length + usize::from(escaped), "{byte} at {at} of {length}");
                }
                bytes[at] = b'x';
            }
        }
    }
}
