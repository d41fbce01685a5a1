//! Rows to load: CSV with the columns `key` and `value`, or JSON objects, one in each line.

use crate::arguments::Input;
use crate::interrupt;
use crate::output::Encoding;
use anyhow::{Context, Result, bail};
use gannet_store::MAX_VALUE;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

const CHUNK: usize = 64 << 10;

/// Bytes of input of the longest row there can be: each byte of a value may be written as `\\u0000`. Of more nothing is kept.
const LONGEST_ROW: u64 = 6 * MAX_VALUE + (1 << 20);

/// The first key behind all keys with a prefix; `None` when there is none.
pub(crate) fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

enum Lines {
    Csv(csv::Reader<Source>, csv::ByteRecord),
    Json(BufReader<Source>, Vec<u8>),
}

/// Reads rows one by one.
pub(crate) struct InputRows {
    lines: Lines,
    encoding: Encoding,
    len: Option<u64>,
    read: Rc<Cell<u64>>,
    row_began: Rc<Cell<u64>>,
    row: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl InputRows {
    pub(crate) fn open(path: &Path, input: Input, encoding: Encoding) -> Result<Self> {
        let read = Rc::new(Cell::new(0));
        let (inner, len): (Box<dyn Read>, _) = match path.to_str() {
            Some("-") => (Box::new(MayBeSilent::new(standard_input_chunks())), None),
            _ => {
                let metadata = path.metadata().with_context(|| format!("cannot open {path:?}"))?;
                if metadata.is_file() {
                    let file = File::open(path).with_context(|| format!("cannot open {path:?}"))?;
                    (Box::new(file), Some(metadata.len()).filter(|len| *len > 0))
                } else {
                    // To open a pipe waits until somebody writes to it.
                    let path = path.to_owned();
                    let open = move || {
                        let named = |error: io::Error| {
                            io::Error::new(error.kind(), format!("cannot open {path:?}: {error}"))
                        };
                        File::open(&path).map_err(named)
                    };
                    (Box::new(MayBeSilent::new(chunks_of(open))), None)
                }
            }
        };
        let row_began = Rc::new(Cell::new(0));
        let source = Source {
            inner,
            read: Rc::clone(&read),
            row_began: Rc::clone(&row_began),
            longest_row: LONGEST_ROW,
        };
        let lines = match input {
            Input::Csv => {
                let mut reader = csv::Reader::from_reader(source);
                let header = reader.byte_headers().context("cannot read the header line")?;
                // A source that was told to stop just ends.
                interrupt::check()?;
                if header != ["key", "value"].as_slice() {
                    bail!("{path:?} does not begin with the header line `key,value`");
                }
                Lines::Csv(reader, csv::ByteRecord::new())
            }
            Input::Json => Lines::Json(BufReader::with_capacity(CHUNK, source), Vec::new()),
        };
        Ok(InputRows { lines, encoding, len, read, row_began, row: 0, key: Vec::new(), value: Vec::new() })
    }

    /// Goes to the next row; false behind the last one.
    pub(crate) fn next(&mut self) -> Result<bool> {
        self.row += 1;
        self.row_began.set(self.read.get());
        let found = self.advance().with_context(|| self.place())?;
        // A source that was told to stop just ends, perhaps within a row.
        interrupt::check()?;
        Ok(found)
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }

    fn advance(&mut self) -> Result<bool> {
        match &mut self.lines {
            Lines::Csv(reader, record) => {
                if !reader.read_byte_record(record)? {
                    return Ok(false);
                }
                decode(self.encoding, &record[0], &mut self.key)?;
                decode(self.encoding, &record[1], &mut self.value)?;
            }
            Lines::Json(reader, line) => {
                line.clear();
                if reader.read_until(b'\n', line)? == 0 {
                    return Ok(false);
                }
                let (key, value) = members(line)?;
                decode(self.encoding, key.as_bytes(), &mut self.key)?;
                decode(self.encoding, value.as_bytes(), &mut self.value)?;
            }
        }
        Ok(true)
    }

    /// The row given last, for messages.
    pub(crate) fn place(&self) -> String {
        format!("row {}", self.row)
    }

    /// The share of the input that was read, if its length is known.
    pub(crate) fn share(&self) -> Option<f64> {
        self.len.map(|len| self.read.get() as f64 / len as f64)
    }
}

/// A row in JSON: its members, each once, and no others.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    key: String,
    value: String,
}

fn members(line: &[u8]) -> Result<(String, String)> {
    // A structure can also be written as an array, without names.
    if line.trim_ascii_start().first() != Some(&b'{') {
        bail!("not a JSON object");
    }
    let row: Row = serde_json::from_slice(line)
        .context("not a JSON object in one line with the strings \"key\" and \"value\", and nothing else")?;
    Ok((row.key, row.value))
}

fn decode(encoding: Encoding, cell: &[u8], out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    match encoding {
        Encoding::Text => out.extend_from_slice(cell),
        Encoding::Hex => *out = encoding.read(&String::from_utf8_lossy(cell))?,
    }
    Ok(())
}

/// Counts what is read, and refuses a row that has no end.
struct Source {
    inner: Box<dyn Read>,
    read: Rc<Cell<u64>>,
    /// What was read when the row began that is read now.
    row_began: Rc<Cell<u64>>,
    longest_row: u64,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if interrupt::check().is_err() {
            return Ok(0);
        }
        if self.read.get() - self.row_began.get() > self.longest_row {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than any row can be"));
        }
        let len = self.inner.read(buffer)?;
        self.read.set(self.read.get() + len as u64);
        Ok(len)
    }
}

/// What standard input gives, read by a thread of its own. Empty: the end.
pub(crate) fn standard_input_chunks() -> Receiver<io::Result<Vec<u8>>> {
    chunks_of(|| Ok(io::stdin()))
}

/// What this gives once it is open, opened and read by a thread of its own. Empty: the end.
fn chunks_of<R: Read>(
    open: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, chunks) = mpsc::sync_channel(4);
    // Not joined: it may hang in a call when the process ends.
    std::thread::spawn(move || {
        let mut source = match open() {
            Ok(source) => source,
            // Nobody may be there any more who wants to know.
            Err(error) => return drop(sender.send(Err(error))),
        };
        loop {
            let mut chunk = vec![0; CHUNK];
            let read = source.read(&mut chunk);
            let ended = !matches!(read, Ok(1..));
            chunk.truncate(*read.as_ref().unwrap_or(&0));
            if sender.send(read.map(|_| chunk)).is_err() || ended {
                return;
            }
        }
    });
    chunks
}

/// Standard input or a pipe, read by a thread of its own: it may stay silent for ever, and Ctrl-C has to be heard.
struct MayBeSilent {
    chunks: Receiver<io::Result<Vec<u8>>>,
    current: Vec<u8>,
    at: usize,
}

impl MayBeSilent {
    fn new(chunks: Receiver<io::Result<Vec<u8>>>) -> Self {
        MayBeSilent { chunks, current: Vec::new(), at: 0 }
    }
}

impl Read for MayBeSilent {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.current.len() {
            match self.chunks.recv_timeout(Duration::from_millis(50)) {
                Ok(chunk) => {
                    self.current = chunk?;
                    self.at = 0;
                    if self.current.is_empty() {
                        return Ok(0);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
                Err(RecvTimeoutError::Timeout) if interrupt::check().is_err() => return Ok(0),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let len = buffer.len().min(self.current.len() - self.at);
        buffer[..len].copy_from_slice(&self.current[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_just_behind_it() {
        assert_eq!(behind_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(behind_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(behind_prefix(b"\xff"), None);
        assert_eq!(behind_prefix(b""), None);
    }

    #[test]
    fn a_row_without_an_end_was_taken_into_memory() {
        let (read, row_began) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let inner = Box::new(io::repeat(b'x'));
        let source = Source { inner, read, row_began: Rc::clone(&row_began), longest_row: 1 << 20 };
        let mut reader = BufReader::with_capacity(CHUNK, source);
        let mut line = Vec::new();
        let error = reader.read_until(b'\n', &mut line).unwrap_err();
        assert!(error.to_string().contains("longer than any row"), "{error}");
        assert!(line.len() <= (1 << 20) + CHUNK);
    }

    #[test]
    fn a_row_of_json_has_a_key_and_a_value() {
        assert_eq!(members(br#"{"key":"a","value":"b"}"#).unwrap(), ("a".to_owned(), "b".to_owned()));
        for wrong in [
            "[]",
            "{",
            r#"{"key":"a"}"#,
            r#"{"key":1,"value":""}"#,
            r#"{"key":"","value":"","x":1}"#,
            r#"["a","b"]"#,
            r#"{"key":"a","key":"b","value":""}"#,
        ] {
            assert!(members(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
