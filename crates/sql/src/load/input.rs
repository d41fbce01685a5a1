//! A dump as it is read: a file by large requests past the OS cache, or a stream; its lines, and the data of COPY in pieces of whole rows.

use crate::dump::failed;
use crate::{Error, Result, SqlState};
use gannet_io::{AlignedBuffer, Class, Disk, File, Mode, ModeRequest, OpenOptions};
use memchr::{memchr, memchr_iter, memchr2};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a request.
const REQUEST: usize = 1 << 20;
/// Bytes of a piece of data, about.
const PIECE: usize = 512 << 10;
/// Longest row, or line, in bytes.
const LONGEST: usize = 1 << 30;
/// How far from the end of a file it is looked for what stands behind the last rows.
const END_WITHIN: u64 = 64 << 20;

enum Source {
    File { file: Arc<dyn File>, disk: Arc<dyn Disk>, len: u64, at: u64, block: AlignedBuffer },
    Stream(Box<dyn Read + Send>),
}

/// Whole rows of COPY data.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// The line that it begins on, from 1.
    pub(super) line: u64,
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
}

impl Input {
    /// A file.
    pub(super) fn open(disk: &Arc<dyn Disk>, path: &Path, mode: ModeRequest) -> Result<Self> {
        let file = disk.open(path, &OpenOptions::read().mode(mode)).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        let source =
            Source::File { file, disk: Arc::clone(disk), len, at: 0, block: AlignedBuffer::zeroed(REQUEST) };
        Ok(Input::new(path.display().to_string(), source))
    }

    /// Something that is read once.
    pub(super) fn stream(name: &str, stream: Box<dyn Read + Send>) -> Self {
        Input::new(name.to_owned(), Source::Stream(stream))
    }

    fn new(name: String, source: Source) -> Self {
        Input { name, source, buffer: Vec::new(), start: 0, line: 0, read: 0, complete: false }
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its bytes, where they are known.
    pub(super) fn len(&self) -> Option<u64> {
        match &self.source {
            Source::File { len, .. } => Some(*len),
            Source::Stream(_) => None,
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
        let skipped = (mark.offset - block) as usize;
        while self.buffer.len() < skipped && self.more()? {}
        self.start = skipped.min(self.buffer.len());
        Ok(())
    }

    /// Reads more behind what is there; false at the end.
    fn more(&mut self) -> Result<bool> {
        if self.complete {
            return Ok(false);
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        if self.buffer.len() > LONGEST {
            let message = format!("a line of more than {LONGEST} bytes");
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, self.at_line(self.line + 1, &message)));
        }
        let count = match &mut self.source {
            Source::File { file, disk, len, at, block } => {
                let count = read_block(&**disk, &**file, *len, *at, block)?;
                self.buffer.extend_from_slice(&block[..count]);
                *at += count as u64;
                count
            }
            Source::Stream(stream) => {
                let before = self.buffer.len();
                stream.take(REQUEST as u64).read_to_end(&mut self.buffer).map_err(|error| {
                    Error::new(SqlState::IO_ERROR, format!("cannot read {}: {error}", self.name))
                })?;
                self.buffer.len() - before
            }
        };
        self.read += count as u64;
        self.complete = count == 0;
        Ok(count > 0)
    }

    /// The next line, with its line feed; `None` at the end.
    pub(super) fn next_line(&mut self) -> Result<Option<&str>> {
        let mut looked = 0;
        let end = loop {
            let rest = &self.buffer[self.start..];
            match memchr(b'\n', &rest[looked..]) {
                Some(at) => break self.start + looked + at + 1,
                None => looked = rest.len(),
            }
            if !self.more()? {
                break self.buffer.len();
            }
        };
        if end == self.start {
            return Ok(None);
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

    /// The next piece of COPY data; `None` at its end. In a script the data ends with a line `\.`, which is taken as well.
    pub(super) fn data(&mut self, csv: bool, in_script: bool) -> Result<Option<Piece>> {
        let mut wanted = PIECE;
        loop {
            while self.buffer.len() - self.start < wanted && self.more()? {}
            let there = self.buffer.len() - self.start;
            let rest = &self.buffer[self.start..][..there.min(wanted)];
            let is_last = self.complete && rest.len() == there;
            let cut = cut(rest, csv, in_script, is_last);
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
                    wanted *= 2;
                    continue;
                }
            };
            if len == 0 {
                self.start += marked;
                self.line += u64::from(marked > 0);
                return Ok(None);
            }
            let bytes = rest[..len].to_vec();
            let line = self.line + 1;
            self.line += memchr_iter(b'\n', &bytes).count() as u64;
            self.start += len;
            return Ok(Some(Piece { bytes, line }));
        }
    }

    /// What stands behind the last rows of the file, or its end where that is too much; nothing for a stream.
    pub(super) fn end_of_file(&self) -> Result<String> {
        const MARK: &[u8] = b"\n\\.\n";
        let Source::File { file, disk, len, .. } = &self.source else { return Ok(String::new()) };
        let mut block = AlignedBuffer::zeroed(REQUEST);
        let mut text: Vec<u8> = Vec::new();
        let mut at = *len / REQUEST as u64 * REQUEST as u64;
        loop {
            let mut longer = Vec::new();
            loop {
                let here = at + longer.len() as u64;
                let count = read_block(&**disk, &**file, *len, here, &mut block)?.min(REQUEST - longer.len());
                longer.extend_from_slice(&block[..count]);
                if count == 0 {
                    break;
                }
            }
            let count = longer.len();
            longer.extend_from_slice(&text);
            text = longer;
            // The mark may lie on both sides of the cut.
            let near = &text[..text.len().min(count + MARK.len())];
            if let Some(found) = near.windows(MARK.len()).rposition(|window| window == MARK) {
                text.drain(..found + MARK.len());
                return Ok(String::from_utf8(text).unwrap_or_default());
            }
            if at == 0 || *len - at > END_WITHIN {
                return Ok(String::from_utf8(text).unwrap_or_default());
            }
            at -= REQUEST as u64;
        }
    }
}

/// Reads up to a block at an offset, which is aligned; 0 at the end. What is left behind the last aligned place comes through the OS
/// cache, which is to forget it.
fn read_block(
    disk: &dyn Disk,
    file: &dyn File,
    len: u64,
    at: u64,
    block: &mut AlignedBuffer,
) -> Result<usize> {
    let left = len.saturating_sub(at).min(block.len() as u64) as usize;
    let aligned = left / file.alignment() * file.alignment();
    if aligned > 0 {
        file.read_at(Class::Maintenance, at, &mut block[..aligned]).map_err(failed)?;
        return Ok(aligned);
    }
    if left > 0 {
        let options = OpenOptions::read().mode(ModeRequest::Only(Mode::Buffered));
        let tail = disk.open(file.path(), &options).map_err(failed)?;
        tail.read_at(Class::Maintenance, at, &mut block[..left]).map_err(failed)?;
        tail.drop_cache();
    }
    Ok(left)
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

/// Finds the last end of a row, or the end of the data.
fn cut(bytes: &[u8], csv: bool, in_script: bool, complete: bool) -> Cut {
    let mut last = 0;
    for end in RowEnds::new(bytes, csv) {
        let line = &bytes[last..end];
        if in_script && matches!(line, b"\\.\n" | b"\\.\r\n") {
            return Cut::End { rows: last, end };
        }
        last = end;
    }
    match last {
        _ if in_script && complete && &bytes[last..] == b"\\." => Cut::End { rows: last, end: bytes.len() },
        0 if bytes.is_empty() && complete && !in_script => Cut::Rows(0),
        0 => Cut::Open,
        _ => Cut::Rows(last),
    }
}

/// Where rows end: behind line feeds, but for those that a backslash or quotes make data.
pub(super) struct RowEnds<'b> {
    bytes: &'b [u8],
    at: usize,
    csv: bool,
}

impl<'b> RowEnds<'b> {
    pub(super) fn new(bytes: &'b [u8], csv: bool) -> Self {
        RowEnds { bytes, at: 0, csv }
    }
}

impl Iterator for RowEnds<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let mut quoted = false;
        let start = self.at;
        loop {
            let rest = &self.bytes[self.at..];
            if self.csv {
                let found = memchr2(b'\n', b'"', rest)?;
                self.at += found + 1;
                if rest[found] == b'"' {
                    quoted = !quoted;
                } else if !quoted {
                    return Some(self.at);
                }
                continue;
            }
            self.at += memchr(b'\n', rest)? + 1;
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
        let ends = |text: &str, csv| RowEnds::new(text.as_bytes(), csv).collect::<Vec<_>>();
        assert_eq!(ends("a\nb\\\nc\nd\\\\\ne", false), [2, 7, 11]);
        assert_eq!(ends("a,\"b\nc\"\"\n\"\nd\ne", true), [11, 13]);
        assert!(ends("a\\\nb", false).is_empty());
    }

    #[test]
    fn data_ends_at_its_mark() {
        let read = |text: &'static str, in_script| {
            let mut input = Input::stream("x", Box::new(text.as_bytes()));
            let mut rows = String::new();
            while let Some(piece) = input.data(false, in_script)? {
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
}
