//! Rows as COPY text, from their stored bytes.
//!
//! Nothing is allocated for a row: strings are taken from the stored bytes as they are, other values are written into the buffer that
//! takes the rows. That strings are UTF-8 is looked at for many rows at once ([`RowWriter::check`]): what stands between them is ASCII, and
//! makes no character of two halves.

use super::Format;
use super::bytes::ByteBuffer;
use crate::Result;
use crate::catalog::{Column, Table};
use crate::codec::corrupted;
use crate::codec::row::RowVisitor;
use crate::escape::position;
use crate::types::datetime::Day;
use crate::types::numeric::Parts;
use crate::types::text::{self, TextStyle};
use crate::types::{Numeric, Type, Value};

/// A row of a table whose rows have no more text than this that is not stored is not looked at for it.
const MUCH: usize = 256 << 10;
/// Characters of a number, at most: of one whose precision is not limited, and of one whose is.
const LONGEST_NUMBER: (usize, usize) = (150_000, 2_100);
/// Characters of a value of another type that takes less than one byte for each, at most.
const SHORT: usize = 64;

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

/// How whole numbers of a column are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whole {
    /// As numbers.
    Number,
    /// As a timestamp without time zone.
    Timestamp,
    /// As their type has it.
    Other,
}

impl From<Type> for Whole {
    fn from(ty: Type) -> Self {
        match ty {
            Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid => Whole::Number,
            Type::Timestamp => Whole::Timestamp,
            _ => Whole::Other,
        }
    }
}

/// Writes the rows of a table.
#[derive(Debug)]
pub(super) struct RowWriter<'t> {
    table: &'t Table,
    columns: Vec<(Type, Whole)>,
    style: &'t TextStyle,
    format: RowFormat,
    /// A row may have much text that is not stored.
    outgrows: bool,
}

/// Characters of a column's values that are not stored, at most.
fn most_outgrown(column: &Column) -> usize {
    // Each of its characters may be one that is escaped.
    let missing = column.missing.as_ref().map_or(0, |missing| 2 * missing.len());
    let of_type = match (column.ty, column.modifier) {
        (Type::Numeric, ..0) => LONGEST_NUMBER.0,
        (Type::Numeric, _) => LONGEST_NUMBER.1,
        (Type::Bpchar, modifier) => usize::try_from(modifier).unwrap_or(0),
        _ => SHORT,
    };
    missing.max(of_type)
}

impl<'t> RowWriter<'t> {
    pub(super) fn new(table: &'t Table, style: &'t TextStyle, format: RowFormat) -> Self {
        let columns = table.columns.iter().map(|column| (column.ty, column.ty.into())).collect();
        let outgrows = table.columns.iter().map(most_outgrown).sum::<usize>() > MUCH;
        RowWriter { table, columns, style, format, outgrows }
    }

    /// Bytes of a row's text that are not stored, about: blanks, zeros of numbers, and what rows do not have that are older than their column. None
    /// where they are few.
    #[inline]
    pub(super) fn outgrown(&self, key: &[u8], row: &[u8]) -> usize {
        if !self.outgrows {
            return 0;
        }
        let mut outgrown = Outgrown { writer: self, bytes: 0 };
        // Of a row that cannot be read whoever writes it will tell.
        let _ = self.table.codec().show_row(key, row, &mut outgrown);
        outgrown.bytes
    }

    /// Appends a stored row.
    pub(super) fn write(
        &self,
        key: &[u8],
        row: &[u8],
        scratch: &mut Scratch,
        out: &mut ByteBuffer,
    ) -> Result<()> {
        let codec = self.table.codec();
        match self.format {
            RowFormat::Text => {
                codec.show_row(key, row, &mut RowLine::<false> { writer: self, scratch, out })?
            }
            RowFormat::Csv => {
                codec.show_row(key, row, &mut RowLine::<true> { writer: self, scratch, out })?
            }
        }
        out.byte(b'\n');
        Ok(())
    }

    /// Whether the rows that were written are text.
    pub(super) fn check(&self, written: &ByteBuffer) -> Result<()> {
        if self.format == RowFormat::Text && written.strings_are_ascii() {
            return Ok(());
        }
        match std::str::from_utf8(written.as_bytes()) {
            Ok(_) => Ok(()),
            Err(_) => Err(corrupted(&format!("a string that is no UTF-8 (table \"{}\")", self.table.name))),
        }
    }
}

/// Counts what is not stored of a row's text.
struct Outgrown<'w, 't> {
    writer: &'w RowWriter<'t>,
    bytes: usize,
}

impl RowVisitor for Outgrown<'_, '_> {
    fn null(&mut self, _column: usize) {}

    fn text(&mut self, _column: usize, _bytes: &[u8]) {}

    fn padded(&mut self, _column: usize, _bytes: &[u8], blanks: usize) {
        self.bytes += blanks;
    }

    fn bytes(&mut self, _column: usize, _bytes: &[u8]) {}

    fn whole(&mut self, _column: usize, _value: i64) {}

    fn numeric(&mut self, _column: usize, value: &Numeric) {
        // A byte has less than three digits.
        self.bytes += 3 * value.heap_bytes() + usize::from(value.scale().unwrap_or(0));
    }

    fn value(&mut self, column: usize, value: &Value) {
        self.bytes += 2 * text::text_size(value, self.writer.columns[column].0, self.writer.style).text;
    }
}

/// What is of use to the rows behind as well.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Where values are written that can be written into a string only.
    text: String,
    /// Rows that stand together are of one day, mostly.
    day: Day,
}

/// A row that is written, as format `csv` has it or as `text` has it.
struct RowLine<'w, 't, const CSV: bool> {
    writer: &'w RowWriter<'t>,
    scratch: &'w mut Scratch,
    out: &'w mut ByteBuffer,
}

impl<const CSV: bool> RowLine<'_, '_, CSV> {
    /// What stands in front of a column.
    #[inline]
    fn begin(&mut self, column: usize) {
        if column > 0 {
            self.out.byte(if CSV { b',' } else { b'\t' });
        }
    }

    /// What was written to the scratch.
    fn take_scratch(&mut self) {
        self.out.bytes(self.scratch.text.as_bytes());
        self.scratch.text.clear();
    }

    #[inline]
    fn string(&mut self, bytes: &[u8]) {
        if CSV {
            write_csv(bytes, self.writer.columns.len() == 1, self.out);
        } else {
            self.out.text(bytes);
        }
    }

    fn bytea(&mut self, bytes: &[u8]) {
        self.out.bytes(if CSV { b"\\x" } else { b"\\\\x" });
        self.out.hex(bytes);
    }
}

impl<const CSV: bool> RowVisitor for RowLine<'_, '_, CSV> {
    #[inline]
    fn null(&mut self, column: usize) {
        self.begin(column);
        if !CSV {
            self.out.bytes(b"\\N");
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
        if !(CSV && bytes.is_empty() && blanks > 0) {
            self.string(bytes);
        }
        if blanks == 0 {
            return;
        }
        let quoted = CSV && !bytes.is_empty() && self.out.last() == Some(b'"');
        if quoted {
            self.out.pop();
        }
        self.out.repeat(b' ', blanks);
        if quoted {
            self.out.byte(b'"');
        }
    }

    fn bytes(&mut self, column: usize, bytes: &[u8]) {
        self.begin(column);
        self.bytea(bytes);
    }

    #[inline]
    fn whole(&mut self, column: usize, value: i64) {
        self.begin(column);
        match self.writer.columns[column] {
            (_, Whole::Number) => self.out.whole(value),
            (_, Whole::Timestamp) => self.out.bytes(self.scratch.day.timestamp(value).as_bytes()),
            (ty, Whole::Other) => {
                text::write_whole(value, ty, self.writer.style, &mut self.scratch.text);
                self.take_scratch();
            }
        }
    }

    #[inline]
    fn numeric(&mut self, column: usize, value: &Numeric) {
        self.begin(column);
        let written =
            matches!(value.parts(), Parts::Small { digits, scale } if self.out.decimal(digits, scale));
        if !written {
            value.write(&mut self.scratch.text);
            self.take_scratch();
        }
    }

    fn value(&mut self, column: usize, value: &Value) {
        self.begin(column);
        match value {
            Value::Text(string) | Value::Padded(string) => self.string(string.as_bytes()),
            Value::Bytes(bytes) => self.bytea(bytes),
            // Numbers, truth values and times have nothing in their text that is to be escaped.
            value => {
                text::write(value, self.writer.columns[column].0, self.writer.style, &mut self.scratch.text);
                self.take_scratch();
            }
        }
    }
}

/// Appends a string as format `csv` has it.
fn write_csv(string: &[u8], alone: bool, out: &mut ByteBuffer) {
    let special = |byte: u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if !(string.is_empty() || alone && string == b"\\." || position(string, special).is_some()) {
        out.bytes(string);
        return;
    }
    write_quoted(string, out);
}

fn write_quoted(string: &[u8], out: &mut ByteBuffer) {
    out.byte(b'"');
    for (place, piece) in string.split(|byte| *byte == b'"').enumerate() {
        if place > 0 {
            out.bytes(b"\"\"");
        }
        out.bytes(piece);
    }
    out.byte(b'"');
}

/// Appends the line of csv that has the columns' names.
pub(super) fn write_header(names: &[String], out: &mut ByteBuffer) {
    for (place, name) in names.iter().enumerate() {
        if place > 0 {
            out.byte(b',');
        }
        // Bare at the beginning of a file it would be a byte order mark.
        match place == 0 && name.starts_with('\u{feff}') {
            true => write_quoted(name.as_bytes(), out),
            false => write_csv(name.as_bytes(), names.len() == 1, out),
        }
    }
    out.byte(b'\n');
}
