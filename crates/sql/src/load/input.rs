//! A dump as it is read: a file by large requests, or a stream; its lines, and the data of COPY in pieces of whole rows.

use super::files::{Blocks, Place, REQUEST};
use super::{described, placed};
use crate::bind::MAX_STATEMENT;
use crate::room::{Room, Taken};
use crate::session::CopyOptions;
use crate::{Error, Result, SqlState};
use gannet_io::AlignedBuffer;
use gannet_store::WorkMemory;
use memchr::{memchr, memchr_iter, memchr3, memmem};
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a piece of data, about.
const PIECE: usize = 512 << 10;
/// Rows of a piece, at most: what is made of each takes some bytes however short it is.
pub(super) const PIECE_ROWS: usize = 16 << 10;
/// Longest row, in bytes.
const LONGEST: usize = 1 << 30;
/// Longest line that is no row: no statement may have more.
const LONGEST_LINE: usize = MAX_STATEMENT;
/// How far from the end of a file it is looked for the end of the last rows, and for the last line.
const END_WITHIN: u64 = 64 << 20;
/// Longest text that is taken as what stands behind the last rows.
const LONGEST_END: u64 = 16 << 20;
/// What some editors put at the beginning of a file, and is no part of its text.
const BYTE_ORDER_MARK: &str = "\u{feff}";
/// What ends the rows of a COPY.
const MARKS: [&[u8]; 2] = [b"\n\\.\n", b"\n\\.\r\n"];
/// Bytes of a buffer, and of a piece, that are small: nothing is charged for them alone.
const SMALL: usize = 4 << 20;
/// Bytes that a long piece takes for each of its own: as text, in the reader, as fields, and as rows.
pub(super) const LONG_PIECE: u64 = 4;

enum Source {
    File { file: Box<dyn Blocks>, at: u64, block: AlignedBuffer },
    Stream(Box<dyn Read + Send>),
}

/// Whole rows of COPY data.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// The line that it begins on, from 1.
    pub(super) line: u64,
    /// What a long one is charged as, with what is made of it.
    pub(super) memory: Option<Taken>,
}

/// What comes of COPY data.
#[derive(Debug)]
pub(super) enum Next {
    Piece(Piece),
    /// It has ended.
    End,
    /// Nothing, for a while; more may come.
    Nothing,
}

/// A place to come back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    offset: u64,
    line: u64,
}

/// A dump, from its beginning to its end.
pub(super) struct Input {
    name: String,
    source: Source,
    buffer: Vec<u8>,
    /// Up to where the buffer was taken.
    start: usize,
    /// Lines taken.
    line: u64,
    /// Bytes read.
    read: u64,
    complete: bool,
    /// Bytes that the next piece of data is looked for in, and how many were, in vain, while no more came.
    wanted: usize,
    looked: usize,
    /// It may be something else than what is read: its beginning is looked at.
    may_be_foreign: bool,
    /// Where memory for what is long is charged, if it is, and what the buffer is charged as.
    room: Option<Arc<Room>>,
    memory: Option<WorkMemory>,
}

/// What a file is that begins so, and what to do with it, where it is none that is read.
pub fn foreign(begin: &[u8]) -> Option<&'static str> {
    const FORMATS: [(usize, &[u8], &str); 9] = [
        (
            0,
            b"PGDMP\x01",
            "an archive of pg_dump in its custom format: dump as plain text (pg_dump -Fp), or turn it into that (pg_restore -f FILE)",
        ),
        (
            0,
            b"toc.dat\0",
            "an archive of pg_dump in its tar format: dump as plain text (pg_dump -Fp), or turn it into that (pg_restore -f FILE)",
        ),
        (0, b"\x1f\x8b", "compressed with gzip: load what it holds (gunzip -c FILE | gannet load - DB)"),
        (
            0,
            b"\x28\xb5\x2f\xfd",
            "compressed with zstd: load what it holds (zstd -dc FILE | gannet load - DB)",
        ),
        (0, b"\xfd7zXZ\0", "compressed with xz: load what it holds (xz -dc FILE | gannet load - DB)"),
        (0, b"\xff\xfe", "in UTF-16: turn it into UTF-8 (iconv -f UTF-16 -t UTF-8)"),
        (0, b"\xfe\xff", "in UTF-16: turn it into UTF-8 (iconv -f UTF-16 -t UTF-8)"),
        // Their words stand behind the checksum of the first page, or frame.
        (
            24,
            b"GANNETDB",
            "a database, which can be opened as it is; gannet dump makes what can be loaded of it",
        ),
        (8, b"GNTFRAME", "a backup, of which gannet restore makes a database"),
    ];
    let is_it = |at: usize, magic: &[u8]| begin.get(at..).is_some_and(|begin| begin.starts_with(magic));
    FORMATS.iter().find(|(at, magic, _)| is_it(*at, magic)).map(|(_, _, what)| *what)
}

impl Input {
    /// A file.
    pub(super) fn open(place: &Place, path: &Path) -> Result<Self> {
        let source = Source::File { file: place.open(path)?, at: 0, block: AlignedBuffer::zeroed(REQUEST) };
        Ok(Input::new(path.display().to_string(), source))
    }

    /// Something that is read once; a read of it that gives [`ErrorKind::WouldBlock`] is one for which nothing has come yet.
    pub(super) fn stream(name: &str, stream: Box<dyn Read + Send>) -> Self {
        Input::new(name.to_owned(), Source::Stream(stream))
    }

    fn new(name: String, source: Source) -> Self {
        Input {
            name,
            source,
            buffer: Vec::new(),
            start: 0,
            line: 0,
            read: 0,
            complete: false,
            wanted: PIECE,
            looked: 0,
            may_be_foreign: true,
            room: None,
            memory: None,
        }
    }

    /// It is known to be what is read, however it begins.
    pub(super) fn known(self) -> Self {
        Input { may_be_foreign: false, ..self }
    }

    /// From now on what is long is charged, and waits for others under way where there is no room.
    pub(super) fn charge_to(&mut self, room: Option<&Arc<Room>>) {
        self.room = room.cloned();
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its bytes, where they are known.
    pub(super) fn len(&self) -> Option<u64> {
        match &self.source {
            Source::File { file, .. } => Some(file.len()),
            Source::Stream(_) => None,
        }
    }

    /// Whether more of it may be a client's, who takes his time.
    pub(super) fn waits_for_client(&self) -> bool {
        match &self.source {
            Source::File { file, .. } => file.is_of_client(),
            Source::Stream(_) => true,
        }
    }

    /// Bytes taken.
    pub(super) fn taken(&self) -> u64 {
        self.read - (self.buffer.len() - self.start) as u64
    }

    /// Lines taken.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Where it is; `None`: there is no way back.
    pub(super) fn mark(&self) -> Option<Mark> {
        self.len().map(|_| Mark { offset: self.taken(), line: self.line })
    }

    /// Goes back.
    pub(super) fn go_back(&mut self, mark: Mark) -> Result<()> {
        let Source::File { file, at, .. } = &mut self.source else {
            return Err(Error::internal("a stream is read again"));
        };
        let block = mark.offset / file.alignment() as u64 * file.alignment() as u64;
        (*at, self.read, self.complete) = (block, block, false);
        self.buffer.clear();
        (self.start, self.line) = (0, mark.line);
        (self.wanted, self.looked) = (PIECE, 0);
        let skipped = (mark.offset - block) as usize;
        while self.buffer.len() < skipped && self.wait_for_more()? {}
        self.start = skipped.min(self.buffer.len());
        Ok(())
    }

    /// Reads more behind what is there, however long it takes to come; false at the end.
    fn wait_for_more(&mut self) -> Result<bool> {
        loop {
            if let Some(there) = self.more()? {
                return Ok(there);
            }
        }
    }

    /// Reads more behind what is there; false at the end. `None`: nothing has come for a while.
    fn more(&mut self) -> Result<Option<bool>> {
        if self.complete {
            return Ok(Some(false));
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        if self.buffer.len() > LONGEST {
            return Err(self.too_long(LONGEST));
        }
        self.make_room()?;
        let count = match &mut self.source {
            Source::File { file, at, block } => {
                let Some(count) = file.read(*at, block)? else { return Ok(None) };
                self.buffer.extend_from_slice(&block[..count]);
                *at += count as u64;
                count
            }
            Source::Stream(stream) => {
                let before = self.buffer.len();
                let done = stream.take(REQUEST as u64).read_to_end(&mut self.buffer);
                let count = self.buffer.len() - before;
                match done {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.read += count as u64;
                        return Ok((count > 0).then_some(true));
                    }
                    done => done.map_err(|error| {
                        Error::new(SqlState::IO_ERROR, format!("cannot read {}: {error}", self.name))
                    })?,
                }
            }
        };
        self.read += count as u64;
        self.complete = count == 0;
        Ok(Some(count > 0))
    }

    fn too_long(&self, most: usize) -> Error {
        let message = format!("a line of more than {most} bytes");
        Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, self.at_line(self.line + 1, &message))
    }

    /// Makes the buffer longer, if need be; a long one is charged.
    fn make_room(&mut self) -> Result<()> {
        let wanted = self.buffer.len() + REQUEST;
        if wanted <= self.buffer.capacity() {
            return Ok(());
        }
        let capacity = wanted.max(self.buffer.capacity() / 2 * 3);
        if let Some(room) = self.room.as_ref().filter(|_| capacity > SMALL) {
            let held = self.memory.as_ref().map_or(0, WorkMemory::bytes);
            room.grow(&mut self.memory, (capacity as u64).saturating_sub(held))?;
        }
        self.buffer.reserve_exact(capacity - self.buffer.len());
        Ok(())
    }

    /// Gives back the memory of a long buffer.
    fn forget_long(&mut self) {
        if self.memory.is_some() && self.buffer.len() - self.start <= SMALL / 2 {
            self.buffer = self.buffer.split_off(self.start);
            self.start = 0;
            self.memory = None;
        }
    }

    /// The next line, with its line feed; `None` at the end. A byte order mark before the first one is passed over.
    pub(super) fn next_line(&mut self) -> Result<Option<&str>> {
        let mut looked = 0;
        let end = loop {
            let rest = &self.buffer[self.start..];
            match memchr(b'\n', &rest[looked..]) {
                Some(at) => break self.start + looked + at + 1,
                None => looked = rest.len(),
            }
            if looked > LONGEST_LINE {
                return Err(self.too_long(LONGEST_LINE));
            }
            let more = self.wait_for_more();
            // Before there is a statement it is a matter of the line.
            let more = more.map_err(|error| match error.state() {
                SqlState::OUT_OF_MEMORY => placed(self.at_line(self.line + 1, &described(&error)), &error),
                _ => error,
            });
            if !more? {
                break self.buffer.len();
            }
        };
        if end == self.start {
            return Ok(None);
        }
        if self.line == 0 {
            if self.may_be_foreign
                && let Some(what) = foreign(&self.buffer[self.start..])
            {
                let message = format!("{} is {what}", self.name);
                return Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message));
            }
            if self.buffer[self.start..end].starts_with(BYTE_ORDER_MARK.as_bytes()) {
                self.start += BYTE_ORDER_MARK.len();
            }
        }
        let line = self.start..end;
        self.start = end;
        self.line += 1;
        match std::str::from_utf8(&self.buffer[line]) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Error::new(
                SqlState::CHARACTER_NOT_IN_REPERTOIRE,
                self.at_line(self.line, "it is no UTF-8"),
            )),
        }
    }

    /// A message with file and line.
    pub(super) fn at_line(&self, line: u64, message: &str) -> String {
        format!("{}:{line}: {message}", self.name)
    }

    /// The next piece of COPY data. In a script the data ends with a line `\.`, which is taken as well. `bytes` is the buffer that it goes to.
    pub(super) fn data(
        &mut self,
        options: &CopyOptions,
        in_script: bool,
        mut bytes: Vec<u8>,
    ) -> Result<Next> {
        loop {
            while self.buffer.len() - self.start < self.wanted {
                match self.more()? {
                    Some(true) => {}
                    Some(false) => break,
                    // What has come is handed on meanwhile. A long row is not looked through for each little that comes.
                    None if self.buffer.len() - self.start
                        > self.looked + self.looked / PIECE * PIECE / 4 =>
                    {
                        break;
                    }
                    None => return Ok(Next::Nothing),
                }
            }
            let there = self.buffer.len() - self.start;
            let rest = &self.buffer[self.start..][..there.min(self.wanted)];
            let is_last = self.complete && rest.len() == there;
            let cut = cut(rest, options, in_script, is_last);
            let (len, marked) = match cut {
                Cut::Rows(len) => (len, 0),
                Cut::End { rows, end } => (rows, end - rows),
                Cut::Open if is_last && in_script => {
                    let message = "the data of COPY has no end: the file is truncated";
                    return Err(Error::new(
                        SqlState::BAD_COPY_FILE_FORMAT,
                        self.at_line(self.line + 1, message),
                    ));
                }
                Cut::Open if is_last => (rest.len(), 0),
                Cut::Open => {
                    match there < self.wanted {
                        true => self.looked = there,
                        false => self.wanted *= 2,
                    }
                    continue;
                }
            };
            (self.wanted, self.looked) = (PIECE, 0);
            if len == 0 {
                self.start += marked;
                self.line += u64::from(marked > 0);
                self.forget_long();
                return Ok(Next::End);
            }
            let memory = match &self.room {
                Some(room) if len > PIECE + PIECE / 2 => Some(room.take(LONG_PIECE * len as u64)?),
                _ => None,
            };
            bytes.clear();
            bytes.extend_from_slice(&rest[..len]);
            let line = self.line + 1;
            self.line += memchr_iter(b'\n', &bytes).count() as u64;
            self.start += len;
            return Ok(Next::Piece(Piece { bytes, line, memory }));
        }
    }

    /// Passes over the COPY data that is left.
    pub(super) fn pass_over_data(&mut self, options: &CopyOptions, in_script: bool) -> Result<()> {
        while !matches!(self.data(options, in_script, Vec::new())?, Next::End) {}
        Ok(())
    }

    /// What stands behind the last rows of the file. `None`: it has no rows, none were found near its end, or it is no UTF-8.
    pub(super) fn end_of_file(&self) -> Result<Option<String>> {
        match self.last_of(&MARKS)? {
            Some((found, mark)) => self.text_from(found + MARKS[mark].len() as u64),
            None => Ok(None),
        }
    }

    /// All of the file, unless it is long, or no UTF-8.
    pub(super) fn all(&self) -> Result<Option<String>> {
        let text = self.text_from(0)?;
        Ok(text.map(|text| text.strip_prefix(BYTE_ORDER_MARK).map(str::to_owned).unwrap_or(text)))
    }

    /// Whether a line that begins so stands behind what was taken, near the end of the file.
    pub(super) fn has_line_ahead(&self, beginning: &str) -> Result<bool> {
        let line = format!("\n{beginning}");
        // Of what was taken, the line feed may be that before it.
        Ok(self.last_of(&[line.as_bytes()])?.is_some_and(|(found, _)| found + 1 >= self.taken()))
    }

    /// Which of these texts, none of which is longer than a few hundred bytes, comes last near the end of the file, and where.
    fn last_of(&self, texts: &[&[u8]]) -> Result<Option<(u64, usize)>> {
        let Some(len) = self.len() else { return Ok(None) };
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let mut block = AlignedBuffer::zeroed(REQUEST);
        let mut bytes = Vec::new();
        let mut at = len / REQUEST as u64 * REQUEST as u64;
        loop {
            // What is looked for may lie on both sides of the place between two requests.
            bytes.truncate(longest);
            let behind = std::mem::take(&mut bytes);
            self.read_request(at, &mut block, &mut bytes)?;
            bytes.extend_from_slice(&behind);
            let found = texts.iter().enumerate().filter_map(|(number, text)| {
                memmem::rfind(&bytes, text).map(|found| (at + found as u64, number))
            });
            let found = found.max();
            if found.is_some() || at == 0 || len - at > END_WITHIN {
                return Ok(found);
            }
            at -= REQUEST as u64;
        }
    }

    /// The file from here on.
    fn text_from(&self, offset: u64) -> Result<Option<String>> {
        let Some(len) = self.len() else { return Ok(None) };
        if len - offset > LONGEST_END {
            return Ok(None);
        }
        let mut block = AlignedBuffer::zeroed(REQUEST);
        let mut bytes = Vec::new();
        let mut at = offset / REQUEST as u64 * REQUEST as u64;
        let skipped = (offset - at) as usize;
        while at < len {
            self.read_request(at, &mut block, &mut bytes)?;
            at += REQUEST as u64;
        }
        bytes.drain(..skipped);
        Ok(String::from_utf8(bytes).ok())
    }

    /// Appends what the file has at an offset, which is a multiple of a request's bytes: so many, or up to its end.
    fn read_request(&self, at: u64, block: &mut AlignedBuffer, bytes: &mut Vec<u8>) -> Result<()> {
        let Source::File { file, .. } = &self.source else { return Ok(()) };
        let mut done = 0;
        while done < REQUEST {
            let Some(count) = file.read(at + done as u64, block)? else { continue };
            let count = count.min(REQUEST - done);
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&block[..count]);
            done += count;
        }
        Ok(())
    }
}

/// Where a piece ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    /// Behind these bytes, which are rows.
    Rows(usize),
    /// The data ends: so many bytes are rows, and behind the mark comes something else.
    End { rows: usize, end: usize },
    /// The first row has no end yet.
    Open,
}

/// Finds the last end of a row, or of as many as a piece has, or the end of the data. A row that is open there ends with it.
fn cut(bytes: &[u8], options: &CopyOptions, in_script: bool, complete: bool) -> Cut {
    let mark = if in_script { find_mark(bytes, complete) } else { None };
    let rows = mark.as_ref().map_or(bytes.len(), |mark| mark.start);
    let mut last = 0;
    for (count, end) in RowEnds::new(&bytes[..rows], options).enumerate() {
        if count == PIECE_ROWS {
            return Cut::Rows(last);
        }
        last = end;
    }
    match (mark, last) {
        (Some(mark), _) => Cut::End { rows, end: mark.end },
        (None, 0) if bytes.is_empty() && complete && !in_script => Cut::Rows(0),
        (None, 0) => Cut::Open,
        (None, _) => Cut::Rows(last),
    }
}

/// The line that ends the data of a COPY in a script: as with psql, the first one that is `\.` and nothing else, also where quotes are open.
fn find_mark(bytes: &[u8], complete: bool) -> Option<Range<usize>> {
    let behind = memmem::find_iter(bytes, b"\n\\.").map(|found| found + 1);
    let first = bytes.starts_with(b"\\.").then_some(0);
    first.into_iter().chain(behind).find_map(|start| {
        let end = match &bytes[start + 2..] {
            [b'\n', ..] => start + 3,
            [b'\r', b'\n', ..] => start + 4,
            [] if complete => start + 2,
            _ => return None,
        };
        Some(start..end)
    })
}

/// Where rows end: behind line feeds, but for those that a backslash or quotes make data.
pub(super) struct RowEnds<'b> {
    bytes: &'b [u8],
    at: usize,
    /// For csv, what is put around fields, and before a quote within them.
    quotes: Option<(u8, u8)>,
}

impl<'b> RowEnds<'b> {
    pub(super) fn new(bytes: &'b [u8], options: &CopyOptions) -> Self {
        let quotes = options.csv.then_some((options.quote, options.escape));
        RowEnds { bytes, at: 0, quotes }
    }

    /// The end of a row of csv.
    fn quoted(&mut self, quote: u8, escape: u8) -> Option<usize> {
        let mut is_quoted = false;
        loop {
            let found = self.at + memchr3(b'\n', quote, escape, &self.bytes[self.at..])?;
            let byte = self.bytes[found];
            self.at = found + 1;
            if is_quoted && byte == escape && escape != quote {
                let following = self.bytes.get(self.at);
                self.at += usize::from(following.is_some_and(|next| *next == quote || *next == escape));
            } else if byte == quote {
                // A doubled one ends and begins quotes again, which comes to the same.
                is_quoted = !is_quoted;
            } else if byte == b'\n' && !is_quoted {
                return Some(self.at);
            }
        }
    }
}

impl Iterator for RowEnds<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if let Some((quote, escape)) = self.quotes {
            return self.quoted(quote, escape);
        }
        let start = self.at;
        loop {
            self.at += memchr(b'\n', &self.bytes[self.at..])? + 1;
            let line = &self.bytes[start..self.at - 1];
            let backslashes = line.iter().rev().take_while(|byte| **byte == b'\\').count();
            if backslashes.is_multiple_of(2) {
                return Some(self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_at_line_feeds_that_are_no_data() {
        let ends =
            |text: &str, csv| RowEnds::new(text.as_bytes(), &CopyOptions::new(csv)).collect::<Vec<_>>();
        assert_eq!(ends("a\nb\\\nc\nd\\\\\ne", false), [2, 7, 11]);
        assert_eq!(ends("a,\"b\nc\"\"\n\"\nd\ne", true), [11, 13]);
        assert!(ends("a\\\nb", false).is_empty());
        // Quotes and escapes as they were asked for.
        let options = CopyOptions { quote: b'\'', escape: b'^', ..CopyOptions::new(true) };
        let ends: Vec<_> = RowEnds::new(b"a\"\n'^'\n'\n'^^'\nb", &options).collect();
        assert_eq!(ends, [3, 9, 14]);
    }

    #[test]
    fn short_rows_come_in_pieces_of_few_enough() {
        let text = "1\n".repeat(2 * PIECE_ROWS + 3) + "\\.\nselect 1;\n";
        let mut input = Input::stream("x", Box::new(std::io::Cursor::new(text)));
        let mut pieces = Vec::new();
        while let Next::Piece(piece) = input.data(&CopyOptions::new(false), true, Vec::new()).unwrap() {
            pieces.push((piece.line as usize, piece.bytes.len() / 2));
        }
        assert_eq!(pieces, [(1, PIECE_ROWS), (PIECE_ROWS + 1, PIECE_ROWS), (2 * PIECE_ROWS + 1, 3)]);
        assert_eq!(input.next_line().unwrap(), Some("select 1;\n"));
    }

    #[test]
    fn a_byte_order_mark_is_passed_over_at_the_beginning_only() {
        let text = "\u{feff}select 1;\n\u{feff}select 2;\n";
        let mut input = Input::stream("x", Box::new(text.as_bytes()));
        assert_eq!(input.next_line().unwrap(), Some("select 1;\n"));
        assert_eq!(input.next_line().unwrap(), Some("\u{feff}select 2;\n"));
        assert_eq!((input.taken(), input.line()), (text.len() as u64, 2));
        let mut nothing = Input::stream("x", Box::new("\u{feff}".as_bytes()));
        assert_eq!(nothing.next_line().unwrap(), Some(""));
        assert_eq!(nothing.next_line().unwrap(), None);
    }

    #[test]
    fn a_line_longer_than_any_statement_was_read_to_its_end() {
        let mut input = Input::stream("x", Box::new("select 1;\n".as_bytes().chain(std::io::repeat(b'x'))));
        assert_eq!(input.next_line().unwrap(), Some("select 1;\n"));
        let error = input.next_line().unwrap_err();
        assert_eq!(error.to_string(), format!("x:2: a line of more than {MAX_STATEMENT} bytes"));
        assert!(input.read < 2 * MAX_STATEMENT as u64, "{}", input.read);
    }

    #[test]
    fn data_ends_at_its_mark() {
        let read = |text: &'static str, in_script| {
            let mut input = Input::stream("x", Box::new(text.as_bytes()));
            let mut rows = String::new();
            while let Next::Piece(piece) = input.data(&CopyOptions::new(false), in_script, Vec::new())? {
                rows.push_str(&String::from_utf8(piece.bytes).unwrap());
            }
            let line = input.line();
            let next = input.next_line()?.unwrap_or_default().to_owned();
            Ok::<_, Error>((rows, line, next))
        };
        assert_eq!(
            read("1\n\\\\.\n\\.\nselect 1;\n", true).unwrap(),
            ("1\n\\\\.\n".into(), 3, "select 1;\n".into())
        );
        assert_eq!(read("\\.\n", true).unwrap(), (String::new(), 1, String::new()));
        assert_eq!(read("1\n2", false).unwrap().0, "1\n2");
        let error = read("1\n2\n", true).unwrap_err().to_string();
        assert!(error.contains("x:3: the data of COPY has no end"), "{error}");
    }

    #[test]
    fn the_mark_within_open_quotes_was_taken_for_data() {
        let cut = |text: &str, csv, in_script, complete| {
            cut(text.as_bytes(), &CopyOptions::new(csv), in_script, complete)
        };
        for (text, csv, rows, end) in [
            ("1,\"a\n\\.\nselect 1;\n", true, 5, 8),
            ("1,\"a\r\n\\.\r\nselect 1;\n", true, 6, 10),
            ("\\.\nb\"\n\\.\n", true, 0, 3),
            // A backslash keeps a row open, too.
            ("1\\\n\\.\n2\n", false, 3, 6),
        ] {
            assert_eq!(cut(text, csv, true, false), Cut::End { rows, end }, "{text}");
        }
        assert_eq!(cut("1,\"a\n\\.", true, true, true), Cut::End { rows: 5, end: 7 });
        // What follows decides, or it is no such line; and in a file of its own it is data.
        assert_eq!(cut("1\n2,\"a\n\\.", true, true, false), Cut::Rows(2));
        assert_eq!(cut("1\n2,\"a\n\\.\"\n", true, true, false), Cut::Rows(11));
        assert_eq!(cut("1,\"a\n\\.\nb\"\n2\n", true, false, false), Cut::Rows(13));
    }

    #[test]
    fn what_comes_after_a_while_is_read_on_from_there() {
        // Each piece is one read; between them nothing comes for some more.
        struct Slow(Vec<&'static str>, u32);

        impl Read for Slow {
            fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
                self.1 += 1;
                if !self.1.is_multiple_of(5) {
                    return Err(ErrorKind::WouldBlock.into());
                }
                let Some(text) = self.0.pop() else { return Ok(0) };
                out[..text.len()].copy_from_slice(text.as_bytes());
                Ok(text.len())
            }
        }

        let stream = Slow(vec!["ct 2;\n", "2\n\\.\nsele", "\n1\n", "select 1;"], 0);
        let mut input = Input::stream("x", Box::new(stream));
        assert_eq!(input.next_line().unwrap(), Some("select 1;\n"));
        let mut came = Vec::new();
        loop {
            match input.data(&CopyOptions::new(false), true, Vec::new()).unwrap() {
                Next::Piece(piece) => came.push(String::from_utf8(piece.bytes).unwrap()),
                Next::Nothing => came.push("nothing".to_owned()),
                Next::End => break,
            }
        }
        came.dedup();
        assert_eq!(came, ["1\n", "nothing", "2\n"]);
        assert_eq!(input.next_line().unwrap(), Some("select 2;\n"));
        assert_eq!(input.line(), 5);
    }
}
