//! Rows and reports, as table, CSV or JSON.

use crate::arguments::Format;
use anyhow::{Context, Result, bail};
use gannet_base::units::format_size;
use serde_json::{Map, Value};
use std::io::{self, Write};

/// Rows that decide the widths of a table's columns; later ones are aligned where they fit.
const ROWS_MEASURED: usize = 200;
/// Fewer of them where they have that many bytes: they are held in memory meanwhile.
const BYTES_MEASURED: usize = 256 << 10;

/// The same error of standard output, which it names.
pub(crate) fn cannot_write(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// What came of writing to standard output what is to be said of work; where that fails, `done` says that the work is done all the same.
pub(crate) fn said(said: Result<()>, done: &str) -> Result<()> {
    said.map_err(|error| match error.downcast::<io::Error>() {
        Ok(error) => {
            let (kind, error) = (error.kind(), cannot_write(error));
            let done = if done.is_empty() { String::new() } else { format!("; {done}") };
            io::Error::new(kind, format!("{error}{done}")).into()
        }
        Err(other) => other,
    })
}

/// How keys and values are written and read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encoding {
    Text,
    Hex,
}

impl Encoding {
    /// The bytes that a user wrote.
    pub(crate) fn read(self, text: &str) -> Result<Vec<u8>> {
        match self {
            Encoding::Text => Ok(text.as_bytes().to_vec()),
            Encoding::Hex => {
                let digits = text.as_bytes();
                let pair = |pair: &[u8]| Some(hex_digit(pair[0])? << 4 | hex_digit(*pair.get(1)?)?);
                let bytes = digits.chunks(2).map(pair).collect::<Option<Vec<u8>>>();
                bytes.with_context(|| format!("{text:?} is not hexadecimal: write two digits for each byte"))
            }
        }
    }

    /// Writes a value by itself: its very bytes, or their digits.
    pub(crate) fn write_bytes(self, out: &mut dyn Write, bytes: &[u8]) -> Result<()> {
        match self {
            Encoding::Text => out.write_all(bytes)?,
            Encoding::Hex => out.write_all(self.write(bytes).unwrap_or_default().as_bytes())?,
        }
        Ok(())
    }

    /// The text a user reads; `None` when the bytes are no text.
    fn write(self, bytes: &[u8]) -> Option<String> {
        match self {
            Encoding::Text => std::str::from_utf8(bytes).ok().map(str::to_owned),
            Encoding::Hex => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Writes rows of bytes one by one; nothing but the first few is held in memory.
pub(crate) struct Rows<'w> {
    out: &'w mut dyn Write,
    format: Format,
    encoding: Encoding,
    columns: &'static [&'static str],
    waiting: Vec<Vec<String>>,
    waiting_bytes: usize,
    widths: Option<Vec<usize>>,
    begun: bool,
}

impl<'w> Rows<'w> {
    pub(crate) fn new(
        out: &'w mut dyn Write,
        format: Format,
        encoding: Encoding,
        columns: &'static [&'static str],
    ) -> Self {
        Rows {
            out,
            format,
            encoding,
            columns,
            waiting: Vec::new(),
            waiting_bytes: 0,
            widths: None,
            begun: false,
        }
    }

    pub(crate) fn push(&mut self, row: &[&[u8]]) -> Result<()> {
        let cells = row.iter().map(|bytes| self.cell(bytes)).collect::<Result<Vec<_>>>()?;
        match self.format {
            Format::Csv => {
                self.begin_csv()?;
                self.csv_line(cells.iter().map(String::as_str))?;
            }
            Format::Json => {
                let names = self.columns.iter().map(ToString::to_string);
                let object: Map<String, Value> = names.zip(cells.into_iter().map(Value::String)).collect();
                writeln!(self.out, "{}", Value::Object(object))?;
            }
            Format::Table if self.widths.is_some() => self.table_line(&cells)?,
            Format::Table => {
                self.waiting_bytes += cells.iter().map(String::len).sum::<usize>();
                self.waiting.push(cells);
                if self.waiting.len() == ROWS_MEASURED || self.waiting_bytes >= BYTES_MEASURED {
                    self.begin_table()?;
                }
            }
        }
        Ok(())
    }

    /// Writes what is still held back.
    pub(crate) fn finish(mut self) -> Result<()> {
        match self.format {
            Format::Csv => self.begin_csv()?,
            Format::Json => {}
            Format::Table => self.begin_table()?,
        }
        Ok(self.out.flush()?)
    }

    fn cell(&self, bytes: &[u8]) -> Result<String> {
        match (self.encoding.write(bytes), self.format) {
            (Some(text), Format::Table) => Ok(printable(&text)),
            (Some(text), _) => Ok(text),
            (None, Format::Table) => Ok(bytes.escape_ascii().to_string()),
            (None, _) => bail!("{:?} is not text: use --hex", bytes.escape_ascii().to_string()),
        }
    }

    fn begin_csv(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.begun, true) {
            self.csv_line(self.columns.iter().copied())?;
        }
        Ok(())
    }

    fn csv_line<'a>(&mut self, cells: impl Iterator<Item = &'a str>) -> Result<()> {
        let mut line = String::new();
        for cell in cells {
            if !line.is_empty() {
                line.push(',');
            }
            line.push_str(&csv_cell(cell));
        }
        Ok(writeln!(self.out, "{line}")?)
    }

    fn begin_table(&mut self) -> Result<()> {
        if self.widths.is_some() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.waiting);
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.columns[column].len()]).max().unwrap_or(0)
        };
        self.widths = Some((0..self.columns.len()).map(width).collect());
        let head: Vec<String> = self.columns.iter().map(ToString::to_string).collect();
        self.table_line(&head)?;
        rows.iter().try_for_each(|row| self.table_line(row))
    }

    fn table_line(&mut self, cells: &[String]) -> Result<()> {
        let widths = self.widths.as_deref().unwrap_or_default();
        let last = cells.len() - 1;
        for (cell, width) in cells[..last].iter().zip(widths) {
            write!(self.out, "{cell:width$}  ")?;
        }
        Ok(writeln!(self.out, "{}", cells[last])?)
    }
}

/// An empty first cell is quoted, too: an empty line would be no row.
fn csv_cell(cell: &str) -> String {
    if cell.is_empty() || cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// Text in which nothing moves a terminal's cursor.
pub(crate) fn printable(text: &str) -> String {
    let escape = |c: char| -> String { if c.is_control() { c.escape_default().collect() } else { c.into() } };
    text.chars().map(escape).collect()
}

/// A word as a shell takes it.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A time, in microseconds since 1970-01-01 UTC, as `restore --to` takes it.
pub(crate) fn instant(unix_us: u64) -> String {
    let micros = i64::try_from(unix_us).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| "never".to_owned(), |time| time.to_string())
}

/// Writes a report: JSON as it is; a table with units, or CSV, for which groups are flattened to dotted names.
pub(crate) fn report(out: &mut dyn Write, format: Format, report: &Value) -> Result<()> {
    match format {
        Format::Json => writeln!(out, "{report:#}")?,
        Format::Table => write_group(out, report, 0)?,
        Format::Csv => {
            writeln!(out, "name,value")?;
            write_flat(out, "", report)?;
        }
    }
    Ok(out.flush()?)
}

fn write_group(out: &mut dyn Write, value: &Value, depth: usize) -> Result<()> {
    let Value::Object(group) = value else { return Ok(()) };
    let indent = "  ".repeat(depth);
    let is_plain = |value: &Value| !matches!(value, Value::Object(_) | Value::Array(_));
    let names =
        group.iter().filter(|(_, value)| is_plain(value)).map(|(name, _)| title(name).chars().count());
    let width = names.max().unwrap_or(0);
    for (name, value) in group {
        match value {
            Value::Object(_) => {
                writeln!(out, "{indent}{}", title(name))?;
                write_group(out, value, depth + 1)?;
            }
            Value::Array(items) if items.is_empty() => writeln!(out, "{indent}{}: none", title(name))?,
            Value::Array(items) => {
                writeln!(out, "{indent}{}", title(name))?;
                for item in items {
                    writeln!(out, "{indent}  {}", one_line(item))?;
                }
            }
            plain => writeln!(out, "{indent}{:width$}  {}", title(name), for_people(name, plain))?,
        }
    }
    Ok(())
}

/// An object in one line: its first field, then the others with their names.
fn one_line(value: &Value) -> String {
    let Value::Object(fields) = value else { return for_people("", value) };
    let mut line = String::new();
    for (index, (name, value)) in fields.iter().enumerate() {
        match index {
            0 => line.push_str(&for_people(name, value)),
            1 => line.push_str(&format!(": {} {}", title(name), for_people(name, value))),
            _ => line.push_str(&format!(", {} {}", title(name), for_people(name, value))),
        }
    }
    line
}

fn title(name: &str) -> String {
    let name = name.strip_suffix("_bytes").or_else(|| name.strip_suffix("_us")).unwrap_or(name);
    name.replace('_', " ")
}

fn for_people(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "none known".to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Number(number) if name.ends_with("_bytes") => {
            number.as_u64().map_or_else(|| number.to_string(), format_size)
        }
        Value::Number(number) if name.ends_with("_us") => match number.as_f64().unwrap_or(0.0) {
            us if us < 1e3 => format!("{us:.0} µs"),
            us if us < 1e6 => format!("{:.1} ms", us / 1e3),
            us => format!("{:.1} s", us / 1e6),
        },
        Value::Number(number) => number.to_string(),
        Value::String(text) => printable(text),
        other => other.to_string(),
    }
}

fn write_flat(out: &mut dyn Write, prefix: &str, value: &Value) -> Result<()> {
    let named = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
    match value {
        Value::Object(group) => {
            group.iter().try_for_each(|(name, value)| write_flat(out, &named(name), value))
        }
        Value::Array(items) => {
            let mut numbered = items.iter().enumerate();
            numbered.try_for_each(|(index, item)| write_flat(out, &named(&index.to_string()), item))
        }
        Value::String(text) => Ok(writeln!(out, "{},{}", csv_cell(prefix), csv_cell(text))?),
        Value::Null => Ok(writeln!(out, "{},", csv_cell(prefix))?),
        other => Ok(writeln!(out, "{},{other}", csv_cell(prefix))?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(format: Format, encoding: Encoding, rows: &[[&[u8]; 2]]) -> Result<String> {
        let mut out = Vec::new();
        let mut writer = Rows::new(&mut out, format, encoding, &["key", "value"]);
        rows.iter().try_for_each(|row| writer.push(row))?;
        writer.finish()?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn cells_are_quoted_where_a_reader_needs_it() {
        let got = rows(Format::Csv, Encoding::Text, &[[b"a,\"b", b"x\ny"], [b"", b""]]).unwrap();
        assert_eq!(got, "key,value\n\"a,\"\"b\",\"x\ny\"\n\"\",\"\"\n");
        assert_eq!(rows(Format::Csv, Encoding::Text, &[]).unwrap(), "key,value\n");
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_or_escaped() {
        assert!(rows(Format::Csv, Encoding::Text, &[[b"\xff", b""]]).is_err());
        assert!(rows(Format::Table, Encoding::Text, &[[b"\xff", b"\x1b[2J"]]).unwrap().contains("\\xff"));
        assert_eq!(
            rows(Format::Json, Encoding::Hex, &[[b"\xff", b""]]).unwrap(),
            "{\"key\":\"ff\",\"value\":\"\"}\n"
        );
        assert_eq!(Encoding::Hex.read("00Ff").unwrap(), [0, 255]);
        for wrong in ["0", "0g", "é"] {
            assert!(Encoding::Hex.read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_held_long_rows_back() {
        let (mut out, value) = (Vec::new(), vec![b'v'; 100 << 10]);
        let mut writer = Rows::new(&mut out, Format::Table, Encoding::Text, &["key", "value"]);
        (0..4).for_each(|_| writer.push(&[b"k", &value]).unwrap());
        drop(writer);
        assert!(out.len() > 3 * value.len(), "{}", out.len());
    }

    #[test]
    fn a_long_table_is_written_as_it_comes() {
        let key = [b'k'; 5];
        let many: Vec<[&[u8]; 2]> = (0..ROWS_MEASURED * 2).map(|_| [&key[..], &b"v"[..]]).collect();
        let text = rows(Format::Table, Encoding::Text, &many).unwrap();
        assert_eq!(text.lines().count(), many.len() + 1);
        assert!(text.lines().skip(1).all(|line| line == "kkkkk  v"));
    }
}
