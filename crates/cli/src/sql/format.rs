//! Results as table, records, CSV or JSON.
//!
//! CSV and JSON go out row by row. A table is written in windows of [`WINDOW_ROWS`] rows, or [`WINDOW_BYTES`] bytes where that is less: the
//! first one decides how wide columns are, later ones can only widen them. So a result of any size takes little memory.

use super::text::{escape, is_hidden, width};
use crate::arguments::Format;
use gannet_server::frontend::Column;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Rows of a table that are aligned together.
pub(super) const WINDOW_ROWS: usize = 1000;
/// Bytes of a table that are held back to be aligned.
const WINDOW_BYTES: usize = 4 << 20;

/// When rows are shown as records, a line for each column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expanded {
    Off,
    On,
    /// Where a table would be wider than the terminal.
    Auto,
}

impl Expanded {
    pub(super) fn name(self) -> &'static str {
        match self {
            Expanded::Off => "off",
            Expanded::On => "on",
            Expanded::Auto => "auto",
        }
    }
}

/// How results are written.
#[derive(Clone, Debug)]
pub(super) struct Style {
    pub(super) format: Format,
    pub(super) expanded: Expanded,
    /// What stands for NULL in tables and CSV.
    pub(super) null: String,
    /// Rows only: neither header nor number of rows.
    pub(super) tuples_only: bool,
    /// Columns of the terminal; `None`: it is none.
    pub(super) terminal_columns: Option<usize>,
}

/// A result on its way out.
#[derive(Debug)]
pub(super) struct Writer {
    style: Style,
    columns: Vec<Column>,
    title: Option<String>,
    /// Instead of the number of rows.
    footers: Option<Vec<String>>,
    /// Rows held back, and their bytes.
    window: Vec<Vec<Cell>>,
    window_bytes: usize,
    widths: Vec<usize>,
    /// The first window was written.
    begun: bool,
    expanded: bool,
    rows: u64,
    /// Names for JSON, each quoted and different.
    names: Vec<String>,
}

/// The lines of a value, escaped; `None`: there is no value.
type Cell = Vec<String>;

impl Writer {
    pub(super) fn new(style: Style, columns: &[Column]) -> Self {
        let columns = columns.to_vec();
        let mut names: Vec<String> = Vec::with_capacity(columns.len());
        for column in &columns {
            let mut name = column.name.clone();
            let mut number = 2;
            while names.contains(&name) {
                name = format!("{}_{number}", column.name);
                number += 1;
            }
            names.push(name);
        }
        let names = names.iter().map(|name| json_text(name)).collect();
        Writer {
            columns,
            title: None,
            footers: None,
            window: Vec::new(),
            window_bytes: 0,
            widths: Vec::new(),
            begun: false,
            expanded: style.expanded == Expanded::On,
            rows: 0,
            names,
            style,
        }
    }

    /// A table with a title above and lines below it, as descriptions have them.
    pub(super) fn with_title(mut self, title: Option<String>, footers: Option<Vec<String>>) -> Self {
        self.title = title;
        self.footers = footers;
        self
    }

    /// Takes a row.
    pub(super) fn row(&mut self, values: &[Option<&str>], out: &mut dyn Write) -> io::Result<()> {
        self.rows += 1;
        match self.style.format {
            Format::Csv => {
                self.begin_csv(out)?;
                self.csv_row(values, out)
            }
            Format::Json => self.json_row(values, out),
            Format::Table => {
                let cells: Vec<Cell> =
                    values.iter().map(|value| lines(value.unwrap_or(&self.style.null))).collect();
                self.window_bytes += cells.iter().flatten().map(|line| line.len() + 24).sum::<usize>();
                self.window.push(cells);
                if self.window.len() == WINDOW_ROWS || self.window_bytes >= WINDOW_BYTES {
                    self.flush_window(out)?;
                }
                Ok(())
            }
        }
    }

    /// Writes what is still held back, and the end.
    pub(super) fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match self.style.format {
            Format::Csv => self.begin_csv(out),
            Format::Json if self.rows == 0 => out.write_all(b"[]\n"),
            Format::Json => out.write_all(b"\n]\n"),
            Format::Table => {
                self.flush_window(out)?;
                self.table_end(out)
            }
        }
    }

    // ---- CSV and JSON -----------------------------------------------------------------------------------------

    fn begin_csv(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) || self.style.tuples_only {
            return Ok(());
        }
        let mut line = String::new();
        for (index, column) in self.columns.iter().enumerate() {
            self.csv_cell(index, &column.name, &mut line);
        }
        line.push('\n');
        out.write_all(line.as_bytes())
    }

    fn csv_row(&self, values: &[Option<&str>], out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        for (index, value) in values.iter().enumerate() {
            self.csv_cell(index, value.unwrap_or(&self.style.null), &mut line);
        }
        line.push('\n');
        out.write_all(line.as_bytes())
    }

    /// A cell as psql writes it. A file gets every byte; a terminal gets nothing that moves its cursor.
    fn csv_cell(&self, index: usize, cell: &str, line: &mut String) {
        if index > 0 {
            line.push(',');
        }
        let shown = match self.style.terminal_columns {
            Some(_) => super::text::escape_lines(cell),
            None => cell.to_owned(),
        };
        // A lone \. would end COPY FROM.
        if shown.contains([',', '"', '\n', '\r']) || shown == "\\." {
            let _ = write!(line, "\"{}\"", shown.replace('"', "\"\""));
        } else {
            line.push_str(&shown);
        }
    }

    fn json_row(&mut self, values: &[Option<&str>], out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::from(if self.rows == 1 { "[\n{" } else { ",\n{" });
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                line.push(',');
            }
            line.push_str(self.names.get(index).map_or("\"\"", String::as_str));
            line.push(':');
            let ty = self.columns.get(index).map_or(0, |column| column.type_oid);
            match value {
                None => line.push_str("null"),
                Some(value) => json_value(value, ty, &mut line),
            }
        }
        line.push('}');
        out.write_all(line.as_bytes())
    }

    // ---- tables -----------------------------------------------------------------------------------------------

    fn flush_window(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let rows = std::mem::take(&mut self.window);
        self.window_bytes = 0;
        let first = !std::mem::replace(&mut self.begun, true);
        let mut headers: Vec<String> = Vec::new();
        for column in &self.columns {
            let mut name = String::new();
            escape(&column.name, &mut name);
            headers.push(name);
        }
        if first {
            self.widths = headers.iter().map(|name| width(name)).collect();
        }
        let mut data_width = 0;
        for row in &rows {
            for (cell, known) in row.iter().zip(&mut self.widths) {
                let wide = cell.iter().map(|line| width(line)).max().unwrap_or(0);
                data_width = data_width.max(wide);
                *known = (*known).max(wide);
            }
        }
        if first {
            let needed = self.widths.iter().map(|width| width + 3).sum::<usize>();
            let too_wide = self.style.terminal_columns.is_some_and(|columns| needed > columns);
            // Without rows there is nothing to expand.
            self.expanded = (self.expanded || (self.style.expanded == Expanded::Auto && too_wide))
                && !(rows.is_empty() && self.footers.is_some());
        }
        let mut text = String::new();
        if self.expanded {
            let start = self.rows - rows.len() as u64;
            self.records(&rows, start, &headers, data_width, first, &mut text);
        } else {
            if first {
                self.table_head(&headers, &mut text);
            }
            for row in &rows {
                self.table_row(row, &mut text);
                if text.len() > 1 << 20 {
                    out.write_all(text.as_bytes())?;
                    text.clear();
                }
            }
        }
        out.write_all(text.as_bytes())
    }

    fn table_head(&self, headers: &[String], text: &mut String) {
        if self.style.tuples_only {
            return;
        }
        if let Some(title) = &self.title {
            let total = (self.widths.iter().map(|width| width + 3).sum::<usize>()).saturating_sub(1);
            let left = total.saturating_sub(width(title)) / 2;
            let _ = writeln!(text, "{:left$}{title}", "");
        }
        if headers.is_empty() {
            text.push_str("--\n");
            return;
        }
        let rule = |text: &mut String, mark: &str, piece: &dyn Fn(usize, &mut String)| {
            for index in 0..headers.len() {
                if index > 0 {
                    text.push_str(mark);
                }
                piece(index, text);
            }
            text.push('\n');
        };
        rule(text, "|", &|index, text| {
            let room = self.widths[index] - width(&headers[index]);
            let (left, right) = (room / 2, room.div_ceil(2));
            let _ = write!(text, " {:left$}{}{:right$} ", "", headers[index], "");
        });
        rule(text, "+", &|index, text| text.extend(std::iter::repeat_n('-', self.widths[index] + 2)));
    }

    /// A row; a value of several lines goes on below itself, marked by `+`.
    fn table_row(&self, row: &[Cell], text: &mut String) {
        // A row without columns takes no line.
        let height = row.iter().map(Vec::len).max().unwrap_or(0);
        let last = row.len().saturating_sub(1);
        for line in 0..height {
            for (index, cell) in row.iter().enumerate() {
                let shown = cell.get(line).map_or("", String::as_str);
                let more = line + 1 < cell.len();
                let room = self.widths[index].saturating_sub(width(shown));
                text.push(' ');
                if is_number(self.columns[index].type_oid) {
                    if line < cell.len() || index < last {
                        text.extend(std::iter::repeat_n(' ', room));
                    }
                    text.push_str(shown);
                } else {
                    text.push_str(shown);
                    if index < last || more {
                        text.extend(std::iter::repeat_n(' ', room));
                    }
                }
                if more {
                    text.push('+');
                } else if index < last {
                    text.push(' ');
                }
                if index < last {
                    text.push('|');
                }
            }
            text.push('\n');
        }
    }

    fn records(
        &self,
        rows: &[Vec<Cell>],
        start: u64,
        headers: &[String],
        data_width: usize,
        first: bool,
        text: &mut String,
    ) {
        if let (Some(title), true, false) = (&self.title, first, self.style.tuples_only) {
            let _ = writeln!(text, "{title}");
        }
        let header_width = headers.iter().map(|name| width(name)).max().unwrap_or(0);
        for (number, row) in rows.iter().enumerate() {
            if self.style.tuples_only {
                if start > 0 || number > 0 {
                    text.push('\n');
                }
            } else {
                record_line(start + number as u64 + 1, header_width, data_width, text);
            }
            for (name, cell) in headers.iter().zip(row) {
                for (line, shown) in cell.iter().enumerate() {
                    let name = if line == 0 { name.as_str() } else { "" };
                    let room = header_width - width(name);
                    let _ = write!(text, "{name}{:room$} | {shown}", "");
                    if line + 1 < cell.len() {
                        let room = data_width - width(shown);
                        let _ = write!(text, "{:room$}+", "");
                    }
                    text.push('\n');
                }
            }
        }
    }

    fn table_end(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.footers {
            _ if self.style.tuples_only => {}
            Some(footers) => {
                for footer in footers {
                    let mut line = String::new();
                    escape(footer, &mut line);
                    writeln!(out, "{line}")?;
                }
            }
            None if self.expanded && self.rows > 0 => {}
            None if self.rows == 1 => writeln!(out, "(1 row)")?,
            None => writeln!(out, "({} rows)", self.rows)?,
        }
        out.write_all(b"\n")
    }
}

/// `-[ RECORD 1 ]-+----`
fn record_line(number: u64, header_width: usize, data_width: usize, text: &mut String) {
    let mark = format!("-[ RECORD {number} ]");
    let mut line = mark.clone();
    let mut dashes = |count: usize| line.extend(std::iter::repeat_n('-', count));
    if mark.len() <= header_width {
        dashes(header_width - mark.len());
        line.push_str("-+-");
        line.extend(std::iter::repeat_n('-', data_width));
    } else {
        // The mark hides the rule below it.
        let rule: String = std::iter::repeat_n('-', header_width + 1)
            .chain(['+', '-'])
            .chain(std::iter::repeat_n('-', data_width))
            .collect();
        line.push_str(rule.get(mark.len()..).unwrap_or_default());
    }
    line.push('\n');
    text.push_str(&line);
}

/// The lines of a value, escaped.
fn lines(text: &str) -> Cell {
    text.split('\n')
        .map(|line| {
            let mut shown = String::with_capacity(line.len());
            escape(line, &mut shown);
            shown
        })
        .collect()
}

/// Whether values of a type are aligned at the right: numbers, as psql has it.
fn is_number(oid: u32) -> bool {
    matches!(oid, 20 | 21 | 23 | 26 | 28 | 29 | 700 | 701 | 790 | 1700 | 5069)
}

/// Largest integer below which a double holds all of them.
const EXACT_INTEGER: i64 = 1 << 53;
/// Decimal digits that a double keeps.
const EXACT_DIGITS: usize = 15;

fn json_value(value: &str, oid: u32, out: &mut String) {
    match oid {
        16 => out.push_str(if value == "t" { "true" } else { "false" }),
        20 | 21 | 23 | 26
            if value.parse::<i64>().is_ok_and(|number| number.unsigned_abs() <= EXACT_INTEGER as u64) =>
        {
            out.push_str(value);
        }
        700 | 701 if value.parse::<f64>().is_ok_and(f64::is_finite) => out.push_str(value),
        1700 if is_exact_decimal(value) => out.push_str(value),
        114 | 3802 if serde_json::from_str::<serde_json::Value>(value).is_ok() => {
            for character in value.chars() {
                // Outside of strings a JSON text has no other character that would need it.
                match character {
                    '\n' | '\r' | '\t' => out.push(' '),
                    other => json_character(other, out),
                }
            }
        }
        _ => out.push_str(&json_text(value)),
    }
}

/// Whether a number written like this comes out of a double as it went in.
fn is_exact_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().filter(u8::is_ascii_digit).count() <= EXACT_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && digits.starts_with(|first: char| first.is_ascii_digit())
}

fn json_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other => json_character(other, &mut out),
        }
    }
    out.push('"');
    out
}

fn json_character(character: char, out: &mut String) {
    if is_hidden(character) {
        let _ = write!(out, "\\u{:04x}", u32::from(character));
    } else {
        out.push(character);
    }
}

#[cfg(test)]
mod tests;
