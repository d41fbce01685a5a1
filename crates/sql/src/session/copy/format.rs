//! The text and csv formats of COPY: splitting incoming data into rows and fields, and writing rows.
//!
//! Data comes in pieces cut anywhere. A row is handed out when its end was seen, so no more than one row and one piece is
//! kept in memory.

use crate::escape::{position, write_text};
use crate::types::text::check_utf8;
use crate::{Error, Result, SqlState};
use std::ops::Range;

/// Longest row, in bytes.
const MAX_ROW: usize = 1 << 30;

/// How COPY reads or writes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CopyOptions {
    /// csv; else text.
    pub(crate) csv: bool,
    /// Between fields.
    pub(crate) delimiter: u8,
    /// What NULL looks like.
    pub(crate) null: String,
    /// Whether the first line has the columns' names.
    pub(crate) header: Header,
    /// FREEZE was asked for.
    pub(crate) freeze: bool,
    /// csv: around fields.
    pub(crate) quote: u8,
    /// csv: before a quote within quotes.
    pub(crate) escape: u8,
    /// csv out: which columns are always quoted, by position.
    pub(crate) force_quote: Vec<bool>,
    /// csv in: columns whose unquoted NULL text is no NULL, by position.
    pub(crate) force_not_null: Vec<bool>,
    /// csv in: columns whose quoted NULL text is NULL, by position.
    pub(crate) force_null: Vec<bool>,
}

/// The first line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Header {
    /// Is data.
    No,
    /// Has names, which are passed over on input.
    Yes,
    /// Has names, which have to be the columns'.
    Match,
}

impl CopyOptions {
    /// The defaults of text or csv.
    pub(crate) fn new(csv: bool) -> Self {
        CopyOptions {
            csv,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".to_owned() },
            header: Header::No,
            freeze: false,
            quote: b'"',
            escape: b'"',
            force_quote: Vec::new(),
            force_not_null: Vec::new(),
            force_null: Vec::new(),
        }
    }
}

/// The fields of a row, as text.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    text: Vec<u8>,
    fields: Vec<Option<Range<usize>>>,
}

impl Fields {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Bytes of text in them.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// A field; `None` for NULL.
    pub(crate) fn get(&self, index: usize) -> Result<Option<&str>> {
        let Some(range) = &self.fields[index] else { return Ok(None) };
        let bytes = &self.text[range.clone()];
        // The character numbered 0 is found by whoever reads the value.
        std::str::from_utf8(bytes).or_else(|_| check_utf8(bytes)).map(Some)
    }

    fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
    }
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(SqlState::BAD_COPY_FILE_FORMAT, message.into())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LineEnd {
    Newline,
    Return,
    Both,
}

/// Splits incoming data into rows.
#[derive(Debug)]
pub(crate) struct Reader {
    options: CopyOptions,
    buffer: Vec<u8>,
    /// Where the next row begins in the buffer.
    start: usize,
    /// Up to where the row's end was looked for.
    scanned: usize,
    /// Whether that place is within quotes.
    quoted: bool,
    line_end: Option<LineEnd>,
    /// Lines begun, those within quotes counted.
    line: u64,
    /// Where the last one stands in the buffer, once it was read.
    last: Option<Range<usize>>,
    /// All rows were handed out.
    ended: bool,
    /// The sender has said that it has no more data, and is not asked again.
    complete: bool,
}

/// What was found behind a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RowEnd {
    /// The end of its line, which begins and ends here.
    Line(usize, usize),
    /// The end mark, which begins here.
    Mark(usize),
}

/// What a backslash begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Backslash {
    /// Data.
    Data,
    /// The end mark.
    Mark,
    /// What comes next will tell.
    Open,
}

impl Reader {
    /// A reader of data in this format.
    pub(crate) fn new(options: CopyOptions) -> Self {
        Reader {
            options,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            quoted: false,
            line_end: None,
            line: 0,
            last: None,
            ended: false,
            complete: false,
        }
    }

    /// Number of the line begun last, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The text of that line, once it was read.
    pub(crate) fn text(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.buffer.get(self.last.clone()?).map(String::from_utf8_lossy)
    }

    /// The next row; false at the end of the data. `more` appends a piece of data, or gives false: then it is not asked again.
    pub(crate) fn next(
        &mut self,
        more: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
        fields: &mut Fields,
    ) -> Result<bool> {
        fields.clear();
        self.line += 1;
        self.last = None;
        let Some(row) = self.next_line(more)? else {
            self.pass_over(more)?;
            return Ok(false);
        };
        self.last = Some(row.clone());
        // Taken out for the moment, so that it can be read while fields are written.
        let buffer = std::mem::take(&mut self.buffer);
        let line = &buffer[row];
        let done =
            if self.options.csv { self.split_csv(line, fields) } else { self.split_text(line, fields) };
        self.buffer = buffer;
        done.map(|()| true)
    }

    /// Appends a piece of data to the buffer; false when there is none any more.
    fn read(&mut self, more: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>) -> Result<bool> {
        if !self.complete {
            self.complete = !more(&mut self.buffer)?;
        }
        Ok(!self.complete)
    }

    /// Reads what follows the end mark, so that the sender can finish.
    fn pass_over(&mut self, more: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>) -> Result<()> {
        self.buffer.clear();
        while self.read(more)? {
            self.buffer.clear();
        }
        Ok(())
    }

    /// The range of the next row in the buffer, without its line end.
    fn next_line(
        &mut self,
        more: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<Option<Range<usize>>> {
        if self.ended {
            return Ok(None);
        }
        loop {
            match self.find_row_end()? {
                Some(RowEnd::Line(end, next)) => return Ok(Some(self.take(end, next))),
                Some(RowEnd::Mark(end)) => return Ok(self.take_last(end)),
                None if self.complete => break,
                None => {}
            }
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.scanned -= self.start;
                self.start = 0;
            }
            if self.buffer.len() > MAX_ROW {
                return Err(Error::new(
                    SqlState::PROGRAM_LIMIT_EXCEEDED,
                    format!("a row of COPY data has more than {MAX_ROW} bytes"),
                ));
            }
            // Where there is nothing more, the row's end may show by that.
            self.read(more)?;
        }
        Ok(self.take_last(self.buffer.len()))
    }

    fn take(&mut self, end: usize, next: usize) -> Range<usize> {
        let row = self.start..end;
        self.start = next;
        self.scanned = next;
        row
    }

    /// What stands before the end of all data is a row, too.
    fn take_last(&mut self, end: usize) -> Option<Range<usize>> {
        self.ended = true;
        (self.start < end).then(|| self.take(end, end))
    }

    /// Where the row ends; `None`: not in what there is.
    fn find_row_end(&mut self) -> Result<Option<RowEnd>> {
        let CopyOptions { csv, quote, escape, .. } = self.options;
        let matters =
            |byte: &u8| matches!(byte, b'\\' | b'\n' | b'\r') || csv && (*byte == quote || *byte == escape);
        loop {
            // Most bytes are nothing but data.
            let rest = self.buffer.get(self.scanned..).unwrap_or_default();
            self.scanned += rest.iter().position(matters).unwrap_or(rest.len());
            let Some(&byte) = self.buffer.get(self.scanned) else { return Ok(None) };
            let at = self.scanned;
            if byte == b'\\' && (!self.options.csv || at == self.start) {
                match self.judge_backslash(at)? {
                    Backslash::Mark => return Ok(Some(RowEnd::Mark(at))),
                    Backslash::Open => return Ok(None),
                    Backslash::Data => {}
                }
            }
            self.scanned += match byte {
                b'\n' | b'\r' if !self.quoted => {
                    let following = self.buffer.get(at + 1).copied();
                    if byte == b'\r' && following.is_none() && !self.complete {
                        return Ok(None);
                    }
                    return self.judge_line_end(byte, following, at).map(Some);
                }
                // One of those within quotes, of which a CR LF is one. (Within the first row it is not known yet how lines end: a CR
                // alone does not count there.)
                b'\n' | b'\r' if (byte == b'\r') == (self.line_end == Some(LineEnd::Return)) => {
                    self.line += 1;
                    1
                }
                b'\\' if !self.options.csv => 2,
                _ if self.options.csv => match self.csv_step(byte, at) {
                    Some(step) => step,
                    None => return Ok(None),
                },
                _ => 1,
            };
        }
    }

    /// The end mark is `\.` and a line end. In csv what only looks like it is data.
    fn judge_backslash(&self, at: usize) -> Result<Backslash> {
        let following = self.buffer.get(at + 1..).unwrap_or_default();
        match following {
            [] if !self.complete => return Ok(Backslash::Open),
            [b'.', ..] => {}
            _ => return Ok(Backslash::Data),
        }
        match (self.line_end, &following[1..]) {
            (_, []) | (Some(LineEnd::Both), [b'\r']) if !self.complete => Ok(Backslash::Open),
            (Some(LineEnd::Both), [b'\r', b'\n', ..])
            | (Some(LineEnd::Newline) | None, [b'\n', ..])
            | (Some(LineEnd::Return) | None, [b'\r', ..]) => Ok(Backslash::Mark),
            (Some(LineEnd::Both), [b'\n', ..] | [b'\r', b'\r', ..])
            | (Some(LineEnd::Newline), [b'\r', ..])
            | (Some(LineEnd::Return), [b'\n', ..]) => {
                Err(bad("end-of-copy marker does not match previous newline style"))
            }
            _ if self.options.csv => Ok(Backslash::Data),
            _ => Err(bad("end-of-copy marker corrupt")),
        }
    }

    /// Follows quotes; `None` where the next byte decides and is not there yet.
    fn csv_step(&mut self, byte: u8, at: usize) -> Option<usize> {
        let CopyOptions { quote, escape, .. } = self.options;
        if self.quoted && byte == escape && escape != quote {
            return match self.buffer.get(at + 1) {
                None if !self.complete => None,
                Some(&escaped) if escaped == quote || escaped == escape => Some(2),
                _ => Some(1),
            };
        }
        if byte == quote {
            // A doubled quote ends and begins quotes again, which comes to the same.
            self.quoted = !self.quoted;
        }
        Some(1)
    }

    /// A line ends as the first one did.
    fn judge_line_end(&mut self, byte: u8, following: Option<u8>, at: usize) -> Result<RowEnd> {
        // Where lines end by a carriage return alone, a newline behind one is of the next line.
        let found = match (byte, following) {
            (b'\r', Some(b'\n')) if self.line_end != Some(LineEnd::Return) => LineEnd::Both,
            (b'\r', _) => LineEnd::Return,
            _ => LineEnd::Newline,
        };
        let expected = *self.line_end.get_or_insert(found);
        if found == expected {
            return Ok(RowEnd::Line(at, at + if found == LineEnd::Both { 2 } else { 1 }));
        }
        let kind = if self.options.csv { "unquoted" } else { "literal" };
        let what = if byte == b'\r' { "carriage return" } else { "newline" };
        let hint = if self.options.csv {
            format!("Use quoted CSV field to represent {what}.")
        } else {
            format!("Use \"\\{}\" to represent {what}.", if byte == b'\r' { 'r' } else { 'n' })
        };
        Err(bad(format!("{kind} {what} found in data")).hint(hint))
    }

    fn split_text(&self, line: &[u8], fields: &mut Fields) -> Result<()> {
        let delimiter = self.options.delimiter;
        let mut rest = line;
        loop {
            let start = fields.text.len();
            let mut raw_len = 0;
            let mut ended = true;
            while let Some(plain) =
                rest[raw_len..].iter().position(|byte| *byte == delimiter || *byte == b'\\')
            {
                raw_len += plain;
                if rest[raw_len] == delimiter {
                    ended = false;
                    break;
                }
                raw_len += if raw_len + 1 < rest.len() { 2 } else { 1 };
            }
            if ended {
                raw_len = rest.len();
            }
            let raw = &rest[..raw_len];
            if raw == self.options.null.as_bytes() {
                fields.fields.push(None);
            } else {
                unescape(raw, &mut fields.text);
                fields.fields.push(Some(start..fields.text.len()));
            }
            if ended {
                return Ok(());
            }
            rest = &rest[raw_len + 1..];
        }
    }

    fn split_csv(&self, line: &[u8], fields: &mut Fields) -> Result<()> {
        let CopyOptions { delimiter, quote, escape, .. } = self.options;
        let mut at = 0;
        loop {
            let start = fields.text.len();
            let mut was_quoted = false;
            let mut quoted = false;
            let mut ended = true;
            while let Some(&byte) = line.get(at) {
                let following = line.get(at + 1).copied();
                if quoted {
                    if byte == escape && following.is_some_and(|next| next == quote || next == escape) {
                        fields.text.extend(following);
                        at += 1;
                    } else if byte == quote {
                        quoted = false;
                    } else {
                        fields.text.push(byte);
                    }
                } else if byte == quote {
                    quoted = true;
                    was_quoted = true;
                } else if byte == delimiter {
                    ended = false;
                    break;
                } else {
                    fields.text.push(byte);
                }
                at += 1;
            }
            if quoted {
                return Err(bad("unterminated CSV quoted field"));
            }
            let position = fields.fields.len();
            let is_null_text = &fields.text[start..] == self.options.null.as_bytes();
            let flag = |flags: &[bool]| flags.get(position) == Some(&true);
            let null = is_null_text
                && if was_quoted {
                    flag(&self.options.force_null)
                } else {
                    !flag(&self.options.force_not_null)
                };
            fields.fields.push(if null { None } else { Some(start..fields.text.len()) });
            if ended {
                return Ok(());
            }
            at += 1;
        }
    }
}

/// Undoes the backslashes of the text format.
fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        // One that nothing follows is passed over.
        let Some(&kind) = rest.get(at + 1) else { return };
        rest = &rest[at + 2..];
        match kind {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                let more = rest.iter().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
                let digits =
                    rest[..more].iter().fold(u32::from(kind - b'0'), |n, b| n * 8 + u32::from(b - b'0'));
                out.push(digits as u8);
                rest = &rest[more..];
            }
            b'x' if rest.first().is_some_and(u8::is_ascii_hexdigit) => {
                let more = rest.iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count();
                let value =
                    rest[..more].iter().fold(0u32, |n, &b| n * 16 + char::from(b).to_digit(16).unwrap_or(0));
                out.push(value as u8);
                rest = &rest[more..];
            }
            other => out.push(other),
        }
    }
    out.extend_from_slice(rest);
}

/// A line that is written, field by field.
#[derive(Debug)]
pub(super) struct Line<'l> {
    options: &'l CopyOptions,
    columns: usize,
    written: usize,
    out: &'l mut Vec<u8>,
}

impl<'l> Line<'l> {
    /// Begins one of so many fields, behind what stands there.
    pub(super) fn new(options: &'l CopyOptions, columns: usize, out: &'l mut Vec<u8>) -> Self {
        Line { options, columns, written: 0, out }
    }

    /// Appends the next field; `None`: NULL.
    #[inline]
    pub(super) fn field(&mut self, text: Option<&str>) {
        let options = self.options;
        if self.written > 0 {
            self.out.push(options.delimiter);
        }
        match text {
            None => self.out.extend_from_slice(options.null.as_bytes()),
            Some(text) if options.csv => {
                let forced = options.force_quote.get(self.written) == Some(&true);
                write_csv(options, text, forced, self.columns == 1, self.out);
            }
            Some(text) => write_text(text.as_bytes(), options.delimiter, self.out),
        }
        self.written += 1;
    }

    /// The line ends.
    pub(super) fn end(self) {
        debug_assert_eq!(self.written, self.columns, "a line of another number of fields");
        self.out.push(b'\n');
    }
}

fn write_csv(options: &CopyOptions, text: &str, forced: bool, alone: bool, out: &mut Vec<u8>) {
    let CopyOptions { delimiter, quote, escape, .. } = *options;
    let special = |byte: u8| byte == delimiter || byte == quote || byte == b'\n' || byte == b'\r';
    if !(forced
        || text == options.null
        || alone && text == "\\."
        || position(text.as_bytes(), special).is_some())
    {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(quote);
    for byte in text.bytes() {
        if byte == quote || byte == escape {
            out.push(escape);
        }
        out.push(byte);
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rows, the data cut into pieces of `piece` bytes.
    fn read(options: &CopyOptions, data: &[u8], piece: usize) -> Result<Vec<Vec<Option<String>>>> {
        let mut pieces = data.chunks(piece);
        let mut ended = false;
        let mut more = |out: &mut Vec<u8>| {
            assert!(!ended, "asked again");
            let next = pieces.next();
            ended = next.is_none();
            out.extend_from_slice(next.unwrap_or_default());
            Ok(next.is_some())
        };
        let mut reader = Reader::new(options.clone());
        let mut fields = Fields::default();
        let mut rows = Vec::new();
        while reader.next(&mut more, &mut fields)? {
            let row: Result<Vec<_>> =
                (0..fields.len()).map(|i| Ok(fields.get(i)?.map(str::to_owned))).collect();
            rows.push(row?);
        }
        assert!(!reader.next(&mut more, &mut fields)?);
        assert!(ended, "not read to its end");
        Ok(rows)
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn text_is_unescaped_however_it_is_cut() {
        let data = b"1\ta\\tb\\\\\\x41\\101\t\\N\n2\t\\\n\t\n\\.\nrubbish";
        for piece in 1..data.len() + 1 {
            let rows = read(&CopyOptions::new(false), data, piece).unwrap();
            assert_eq!(
                rows,
                [vec![some("1"), some("a\tb\\AA"), None], vec![some("2"), some("\n"), some("")]],
                "in pieces of {piece}"
            );
        }
    }

    #[test]
    fn csv_keeps_lines_within_quotes() {
        let data = b"a,\"b\r\n\"\"c\"\"\",\r\n\"\",x y,z\r\n";
        for piece in 1..data.len() + 1 {
            let rows = read(&CopyOptions::new(true), data, piece).unwrap();
            assert_eq!(
                rows,
                [vec![some("a"), some("b\r\n\"c\""), None], vec![some(""), some("x y"), some("z")]],
                "in pieces of {piece}"
            );
        }
    }

    #[test]
    fn what_ends_without_a_newline_has_an_end() {
        for csv in [false, true] {
            let options = CopyOptions::new(csv);
            for (data, expected) in [
                ("a\r", "a"),
                ("a\rb\r", "a b"),
                ("a\r\nb\r\n", "a b"),
                ("a\nb", "a b"),
                ("\r", ""),
                ("a\r\\.\r", "a"),
                ("a\r\n\\.\r\nrubbish", "a"),
                ("a\n\\.\n", "a"),
                ("a\n\\", if csv { "a \\" } else { "a " }),
            ] {
                for piece in 1..data.len() + 1 {
                    let rows = read(&options, data.as_bytes(), piece).unwrap();
                    let fields: Vec<_> = rows.into_iter().flatten().map(Option::unwrap_or_default).collect();
                    assert_eq!(fields.join(" "), expected, "{data:?}, csv {csv}, in pieces of {piece}");
                }
            }
        }
        assert!(read(&CopyOptions::new(false), b"", 1).unwrap().is_empty());
    }

    #[test]
    fn the_end_mark_is_a_line_of_its_own_only_in_csv() {
        let (text, csv) = (CopyOptions::new(false), CopyOptions::new(true));
        let corrupt = "end-of-copy marker corrupt";
        let unlike = "end-of-copy marker does not match previous newline style";
        for (data, as_text, as_csv) in [
            ("a\\.\nb\n", Ok("a"), Ok("a\\. b")),
            ("a\\.b\n", Err(corrupt), Ok("a\\.b")),
            ("a\n\\.", Err(corrupt), Ok("a \\.")),
            ("\\.b\n", Err(corrupt), Ok("\\.b")),
            ("a\r\n\\.\r\r\n", Err(unlike), Err(unlike)),
            ("a\n\\.\r\n", Err(unlike), Err(unlike)),
            ("a\r\\.\n", Err(unlike), Err(unlike)),
        ] {
            for (options, expected) in [(&text, as_text), (&csv, as_csv)] {
                for piece in 1..data.len() + 1 {
                    match (read(options, data.as_bytes(), piece), expected) {
                        (Ok(rows), Ok(expected)) => {
                            let fields: Vec<_> = rows.into_iter().flatten().flatten().collect();
                            assert_eq!(fields.join(" "), expected, "{data:?} in pieces of {piece}");
                        }
                        (Err(error), Err(words)) => assert_eq!(error.to_string(), words, "{data:?}"),
                        (read, _) => panic!("{data:?} in pieces of {piece}: {read:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn damage_is_named() {
        let text = CopyOptions::new(false);
        let csv = CopyOptions::new(true);
        for (options, data, words) in [
            (&csv, &b"a,\"b\n"[..], "unterminated CSV quoted field"),
            (&text, b"a\nb\r\n", "literal carriage return found in data"),
            (&text, b"a\rb\r\nc\r", "literal newline found in data"),
            (&csv, b"a\rb\r\nc\r", "unquoted newline found in data"),
            (&text, b"a\xff\n", "invalid byte sequence for encoding \"UTF8\": 0xff"),
        ] {
            let error = read(options, data, 3).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let rows = [
            vec![some("a\tb\n\\"), None, some("\\N")],
            vec![some(""), some("\"q\","), some("\r\u{8}x")],
            vec![some("\\."), some(" "), some("NULL")],
        ];
        let mut own = CopyOptions::new(true);
        (own.delimiter, own.quote, own.escape, own.null) = (b';', b'\'', b'\\', "NULL".to_owned());
        for options in [CopyOptions::new(false), CopyOptions::new(true), own] {
            let mut data = Vec::new();
            for row in &rows {
                let mut line = Line::new(&options, row.len(), &mut data);
                row.iter().for_each(|field| line.field(field.as_deref()));
                line.end();
            }
            assert_eq!(read(&options, &data, 7).unwrap(), rows, "{options:?}");
        }
    }
}
