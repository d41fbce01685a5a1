//! Rows as bytes: in memory, where they are to take little room, and in temporary files.
//!
//! # The encoding
//! A row is its length (4 bytes, little-endian) and its values one after the other. A value is a tag and what the tag says. Nothing of it
//! outlives the statement, so it has no version.
//!
//! | tag | follows |
//! |---|---|
//! | 0, 1, 2 | nothing: NULL, false, true |
//! | 3 to 6 | a whole number of 1, 2, 4 or 8 bytes |
//! | 7 | a float, 8 bytes |
//! | 8, 9, 10 | length, then text, padded text, bytes |
//! | 11 | an array: number of the element type, lower bound, count, elements |
//! | 12 | a record: count, values |
//! | 13, 14 | a numeric: scale (2 bytes), then its digits: 8 bytes, or length and bytes |
//! | 15, 16, 17 | nothing: the numerics NaN, infinity, -infinity |
//! | from 128 | text of (tag - 128) bytes |
//!
//! Lengths, counts and type numbers are 4 bytes.

use super::{BATCH_ROWS, Batch, Context, LARGE_BYTES, row_bytes};
use crate::codec::row::{Field, as_text};
use crate::types::numeric::{MAX_SCALE, Parts};
use crate::types::{Array, Numeric, Record, Type, Value};
use crate::{Error, Result, SqlState};
use compact_str::CompactString;
use gannet_store::{Engine, TempFile, TempReader, TempWriter, WorkMemory};
use num_bigint::BigInt;
use std::cmp::Ordering;
use std::sync::Arc;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT1: u8 = 3;
const INT2: u8 = 4;
const INT4: u8 = 5;
const INT8: u8 = 6;
const FLOAT: u8 = 7;
const TEXT: u8 = 8;
const PADDED: u8 = 9;
const BYTES: u8 = 10;
const ARRAY: u8 = 11;
const RECORD: u8 = 12;
const NUMERIC: u8 = 13;
const LONG_NUMERIC: u8 = 14;
const NUMERIC_NAN: u8 = 15;
const NUMERIC_INFINITY: u8 = 16;
const NUMERIC_NEG_INFINITY: u8 = 17;
const SHORT_TEXT: u8 = 128;

/// Bytes before the values of a row: its length.
pub(super) const ROW_HEADER: usize = 4;

/// Bytes of a row that begins here, its length included.
#[inline]
pub(super) fn row_len(bytes: &[u8]) -> usize {
    let len: [u8; ROW_HEADER] = bytes[..ROW_HEADER].try_into().expect("the length of a row");
    ROW_HEADER + u32::from_le_bytes(len) as usize
}

pub(super) fn damaged() -> Error {
    Error::new(SqlState::DATA_CORRUPTED, "a row in a temporary file makes no sense")
}

/// Appends a value.
pub(super) fn encode(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        Value::Int(value) => encode_int(*value, out),
        Value::Float(value) => {
            out.push(FLOAT);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Value::Text(text) => encode_text(text.as_bytes(), out),
        Value::Padded(text) => encode_bytes(PADDED, text.as_bytes(), out),
        Value::Bytes(bytes) => encode_bytes(BYTES, bytes, out),
        Value::Array(array) => {
            out.push(ARRAY);
            out.extend_from_slice(&array.element.oid().to_le_bytes());
            out.extend_from_slice(&array.lower.to_le_bytes());
            encode_all(&array.values, out);
        }
        Value::Record(record) => {
            out.push(RECORD);
            encode_all(&record.values, out);
            record.types.iter().for_each(|ty| out.extend_from_slice(&ty.oid().to_le_bytes()));
        }
        Value::Numeric(number) => encode_numeric(number, out),
    }
}

/// Appends a column of a stored row. That strings are UTF-8 is looked at by whoever reads them.
#[inline]
pub(super) fn encode_field(field: &Field<'_>, out: &mut Vec<u8>) {
    match field {
        Field::Null => out.push(NULL),
        Field::Text(text) => encode_text(text, out),
        Field::Padded(text, blanks) => {
            out.push(PADDED);
            out.extend_from_slice(&((text.len() + blanks) as u32).to_le_bytes());
            out.extend_from_slice(text);
            out.resize(out.len() + blanks, b' ');
        }
        Field::Bytes(bytes) => encode_bytes(BYTES, bytes, out),
        Field::Int(value) => encode_int(*value, out),
        Field::Numeric(number) => encode_numeric(number, out),
        Field::Value(value) => encode(value, out),
    }
}

/// Bytes that a column of a stored row takes encoded, or a few more.
pub(super) fn field_room(field: &Field<'_>) -> usize {
    size_of::<Value>()
        + 8
        + match field {
            Field::Null | Field::Int(_) => 0,
            Field::Text(text) => text.len(),
            Field::Padded(text, blanks) => text.len() + blanks,
            Field::Bytes(bytes) => bytes.len(),
            Field::Numeric(number) => number.heap_bytes(),
            Field::Value(value) => value.heap_bytes(),
        }
}

#[inline]
fn encode_text(text: &[u8], out: &mut Vec<u8>) {
    if text.len() < usize::from(SHORT_TEXT) {
        out.push(SHORT_TEXT + text.len() as u8);
        out.extend_from_slice(text);
    } else {
        encode_bytes(TEXT, text, out);
    }
}

fn encode_numeric(number: &Numeric, out: &mut Vec<u8>) {
    match number.parts() {
        Parts::Small { digits, scale } => {
            out.push(NUMERIC);
            out.extend_from_slice(&scale.to_le_bytes());
            out.extend_from_slice(&digits.to_le_bytes());
        }
        Parts::Big { digits, scale } => {
            out.push(LONG_NUMERIC);
            out.extend_from_slice(&scale.to_le_bytes());
            let bytes = digits.to_signed_bytes_le();
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(&bytes);
        }
        Parts::NaN => out.push(NUMERIC_NAN),
        Parts::Infinity => out.push(NUMERIC_INFINITY),
        Parts::NegInfinity => out.push(NUMERIC_NEG_INFINITY),
    }
}

#[inline]
fn encode_int(value: i64, out: &mut Vec<u8>) {
    if let Ok(value) = i8::try_from(value) {
        out.extend_from_slice(&[INT1, value as u8]);
    } else if let Ok(value) = i16::try_from(value) {
        out.push(INT2);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(INT4);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        out.push(INT8);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn encode_bytes(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn encode_all(values: &[Value], out: &mut Vec<u8>) {
    out.extend_from_slice(&(values.len() as u32).to_le_bytes());
    for value in values {
        encode(value, out);
    }
}

/// A value as it stands among bytes.
#[derive(Debug)]
pub(super) enum Raw<'a> {
    Int(i64),
    Text(&'a [u8]),
    Padded(&'a [u8]),
    Bytes(&'a [u8]),
    /// Any other, NULL included.
    Other(Value),
}

impl Raw<'_> {
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Raw::Other(Value::Null))
    }

    /// The order of [`Value::total_cmp`].
    pub(super) fn total_cmp(&self, other: &Raw<'_>) -> Ordering {
        match (self, other) {
            (Raw::Int(a), Raw::Int(b)) => a.cmp(b),
            (Raw::Text(a), Raw::Text(b)) | (Raw::Bytes(a), Raw::Bytes(b)) => a.cmp(b),
            (Raw::Padded(a), Raw::Padded(b)) => unpadded(a).cmp(unpadded(b)),
            (Raw::Other(a), Raw::Other(b)) => a.total_cmp(b),
            (_, Raw::Other(Value::Null)) => Ordering::Less,
            (Raw::Other(Value::Null), _) => Ordering::Greater,
            // Values of two types do not meet.
            _ => Ordering::Equal,
        }
    }

    /// Equality as DISTINCT and GROUP BY have it.
    #[inline]
    pub(super) fn equals(&self, value: &Value) -> bool {
        match (self, value) {
            (Raw::Int(a), Value::Int(b)) => a == b,
            (Raw::Text(a), Value::Text(b)) => *a == b.as_bytes(),
            (Raw::Padded(a), Value::Padded(b)) => unpadded(a) == unpadded(b.as_bytes()),
            (Raw::Bytes(a), Value::Bytes(b)) => **a == **b,
            (Raw::Other(a), b) => a == b,
            _ => false,
        }
    }

    /// Puts it where there may be a string with memory of its own.
    #[inline]
    fn put(self, place: &mut Value) -> Result<()> {
        match self {
            Raw::Text(bytes) => place.become_text(as_text(bytes)?),
            other => *place = other.into_value()?,
        }
        Ok(())
    }

    fn into_value(self) -> Result<Value> {
        let text = |bytes| as_text(bytes).map(CompactString::from);
        Ok(match self {
            Raw::Int(value) => Value::Int(value),
            Raw::Text(bytes) => Value::Text(text(bytes)?),
            Raw::Padded(bytes) => Value::Padded(text(bytes)?),
            Raw::Bytes(bytes) => Value::Bytes(bytes.into()),
            Raw::Other(value) => value,
        })
    }
}

pub(super) fn unpadded(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    &bytes[..end]
}

/// Values as they stand among bytes, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// Whether there are no more.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn count(&mut self) -> Result<usize> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn sized(&mut self) -> Result<&'a [u8]> {
        let count = self.count()?;
        self.take(count)
    }

    /// The next value, as it stands.
    #[inline]
    pub(super) fn raw(&mut self) -> Result<Raw<'a>> {
        let [tag] = self.array()?;
        Ok(match tag {
            INT1 => Raw::Int(i64::from(i8::from_le_bytes(self.array()?))),
            INT2 => Raw::Int(i64::from(i16::from_le_bytes(self.array()?))),
            INT4 => Raw::Int(i64::from(i32::from_le_bytes(self.array()?))),
            INT8 => Raw::Int(i64::from_le_bytes(self.array()?)),
            SHORT_TEXT.. => Raw::Text(self.take(usize::from(tag - SHORT_TEXT))?),
            TEXT => Raw::Text(self.sized()?),
            PADDED => Raw::Padded(self.sized()?),
            BYTES => Raw::Bytes(self.sized()?),
            NULL => Raw::Other(Value::Null),
            FALSE => Raw::Other(Value::Bool(false)),
            TRUE => Raw::Other(Value::Bool(true)),
            FLOAT => Raw::Other(Value::Float(f64::from_le_bytes(self.array()?))),
            _ => Raw::Other(self.compound(tag)?),
        })
    }

    fn compound(&mut self, tag: u8) -> Result<Value> {
        match tag {
            ARRAY => {
                let element = Type::from_oid(u32::from_le_bytes(self.array()?)).ok_or_else(damaged)?;
                let lower = i32::from_le_bytes(self.array()?);
                let values = self.all()?;
                Ok(Value::Array(Arc::new(Array { element, values, lower })))
            }
            RECORD => {
                let values = self.all()?;
                let mut ty = || Type::from_oid(u32::from_le_bytes(self.array()?)).ok_or_else(damaged);
                let types = values.iter().map(|_| ty()).collect::<Result<_>>()?;
                Ok(Value::Record(Arc::new(Record { types, values })))
            }
            _ => Ok(Value::Numeric(self.numeric(tag)?)),
        }
    }

    fn numeric(&mut self, tag: u8) -> Result<Numeric> {
        if !(NUMERIC..=LONG_NUMERIC).contains(&tag) {
            return match tag {
                NUMERIC_NAN => Ok(Numeric::NAN),
                NUMERIC_INFINITY => Ok(Numeric::INFINITY),
                NUMERIC_NEG_INFINITY => Ok(Numeric::NEG_INFINITY),
                _ => Err(damaged()),
            };
        }
        let scale = u16::from_le_bytes(self.array()?);
        if scale > MAX_SCALE {
            return Err(damaged());
        }
        if tag == NUMERIC {
            return Ok(Numeric::new(i64::from_le_bytes(self.array()?), scale));
        }
        Numeric::from_big(BigInt::from_signed_bytes_le(self.sized()?), u32::from(scale))
    }

    fn all(&mut self) -> Result<Vec<Value>> {
        let count = self.count()?;
        // Each takes a byte at least.
        let mut values = Vec::with_capacity(count.min(self.0.len()));
        for _ in 0..count {
            values.push(self.value()?);
        }
        Ok(values)
    }

    /// The next value.
    #[inline]
    pub(super) fn value(&mut self) -> Result<Value> {
        self.raw()?.into_value()
    }

    /// Whether they are all the values of a row, as DISTINCT and GROUP BY compare.
    pub(super) fn equal(mut self, row: &[Value]) -> bool {
        row.iter().all(|value| self.raw().is_ok_and(|raw| raw.equals(value))) && self.is_empty()
    }

    /// Puts the values into their places, one for each, or none.
    #[inline]
    pub(super) fn put(
        mut self,
        places: impl IntoIterator<Item = Option<usize>>,
        out: &mut [Value],
    ) -> Result<()> {
        for place in places {
            let raw = self.raw()?;
            if let Some(place) = place {
                raw.put(&mut out[place])?;
            }
        }
        if self.is_empty() { Ok(()) } else { Err(damaged()) }
    }

    /// Appends all values.
    pub(super) fn values(mut self, out: &mut Vec<Value>) -> Result<()> {
        while !self.is_empty() {
            out.push(self.value()?);
        }
        Ok(())
    }
}

/// Encodes a row, its length first.
pub(super) fn encode_row<'v>(row: impl IntoIterator<Item = &'v Value>, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; ROW_HEADER]);
    for value in row {
        encode(value, out);
    }
    let Ok(len) = u32::try_from(out.len() - start - ROW_HEADER) else {
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row is larger than 4 GiB"));
    };
    out[start..start + ROW_HEADER].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

/// Bytes of one row. Those of a long one are charged to the budget, and not kept for the next one where it is short.
#[derive(Debug, Default)]
pub(crate) struct RowBytes {
    bytes: Vec<u8>,
    memory: Option<WorkMemory>,
}

impl RowBytes {
    /// Becomes empty, with room for a row of `len` bytes, for which `charge` gives memory if it is long.
    pub(crate) fn begin(
        &mut self,
        len: usize,
        charge: impl FnOnce(u64) -> gannet_store::Result<WorkMemory>,
    ) -> Result<&mut Vec<u8>> {
        let held = self.memory.as_ref().map_or(0, WorkMemory::bytes);
        if len <= LARGE_BYTES {
            self.forget_long();
        } else if (len as u64) > held {
            self.forget_long();
            self.memory = Some(charge(len as u64)?);
            self.bytes = Vec::with_capacity(len);
        }
        self.bytes.clear();
        Ok(&mut self.bytes)
    }

    /// A row was put into it that may have become longer than was thought: what it has taken is charged.
    pub(super) fn settle(
        &mut self,
        charge: impl FnOnce(u64) -> gannet_store::Result<WorkMemory>,
    ) -> Result<()> {
        let bytes = self.bytes.capacity() as u64;
        match &mut self.memory {
            _ if bytes <= LARGE_BYTES as u64 => {}
            Some(memory) if memory.bytes() >= bytes => {}
            Some(memory) => memory.grow(bytes - memory.bytes())?,
            none => *none = Some(charge(bytes)?),
        }
        Ok(())
    }

    /// Gives the memory of a long row back.
    pub(crate) fn forget_long(&mut self) {
        if self.memory.is_some() || self.bytes.capacity() > LARGE_BYTES {
            *self = RowBytes::default();
        }
    }
}

impl std::ops::Deref for RowBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Values of one row. Those of a long one are charged to the budget, and not kept for the next one.
#[derive(Debug, Default)]
pub(super) struct RowValues {
    values: Vec<Value>,
    memory: Option<WorkMemory>,
}

impl RowValues {
    /// Becomes empty, for values that take about `len` bytes, for which `charge` gives memory if that is much.
    #[inline]
    pub(super) fn begin(
        &mut self,
        len: usize,
        charge: impl FnOnce(u64) -> gannet_store::Result<WorkMemory>,
    ) -> Result<&mut Vec<Value>> {
        self.forget_long();
        self.values.clear();
        if len > LARGE_BYTES {
            self.memory = Some(charge(len as u64)?);
        }
        Ok(&mut self.values)
    }

    /// Values of a long row were put into it: what they have taken beyond what was thought is charged.
    #[inline]
    pub(super) fn settle(&mut self) -> Result<()> {
        if let Some(memory) = &mut self.memory {
            let bytes = row_bytes(&self.values) as u64;
            memory.grow(bytes.saturating_sub(memory.bytes()))?;
        }
        Ok(())
    }

    /// Becomes the values of an encoded row.
    #[inline]
    pub(super) fn decode(
        &mut self,
        row: Fields<'_>,
        charge: impl FnOnce(u64) -> gannet_store::Result<WorkMemory>,
    ) -> Result<&[Value]> {
        row.values(self.begin(row.0.len(), charge)?)?;
        self.settle()?;
        Ok(&self.values)
    }

    /// Gives the values of a long row back.
    #[inline]
    pub(super) fn forget_long(&mut self) {
        if self.memory.is_some() {
            *self = RowValues::default();
        }
    }

    /// Becomes empty.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.forget_long();
        self.values.clear();
    }
}

impl std::ops::Deref for RowValues {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.values
    }
}

/// Bytes that a row takes encoded, or a few more.
pub(super) fn row_room<'v>(row: impl IntoIterator<Item = &'v Value>) -> usize {
    // What stands in the value itself, with tag and length, is no longer than the value.
    ROW_HEADER + row.into_iter().map(|value| size_of::<Value>() + 8 + value.heap_bytes()).sum::<usize>()
}

/// How many readers of temporary files have room within `limit` beside what is `held`: each has three blocks of so many bytes, see
/// `gannet_store::TempFile`, and a row where the longest one is charged.
pub(crate) fn readers_within(limit: u64, held: u64, longest: usize, block: u64) -> u64 {
    let row = if longest > LARGE_BYTES { longest as u64 } else { 0 };
    limit.saturating_sub(held) / (3 * block + row)
}

/// Rows in a temporary file.
#[derive(Debug)]
pub(super) struct Spilled {
    pub(super) file: TempFile,
    /// Where the rows begin.
    pub(super) from: u64,
    /// How many.
    pub(super) rows: u64,
}

impl Spilled {
    /// Reads the rows, in the order in which they were written.
    pub(super) fn reader(&self) -> Result<SpillReader> {
        SpillReader::new(&self.file, self.from, self.file.len())
    }

    /// Bytes of all rows.
    pub(super) fn bytes(&self) -> u64 {
        self.file.len() - self.from
    }
}

/// Writes rows to a temporary file.
#[derive(Debug)]
pub(super) struct SpillWriter {
    writer: TempWriter,
    from: u64,
    scratch: RowBytes,
    rows: u64,
}

impl SpillWriter {
    /// To a file of its own.
    pub(super) fn new(context: &Context<'_>) -> Result<Self> {
        Self::within(&context.session.engine, context.work_limit())
    }

    /// The same for who has no context, and may take so many bytes.
    pub(super) fn within(engine: &Engine, limit: u64) -> Result<Self> {
        Self::append(engine.temp_file_within(limit)?).map_err(|(_, error)| error)
    }

    /// Behind what a file has already, which comes back where there is no memory for a block.
    pub(super) fn append(file: TempFile) -> std::result::Result<Self, (TempFile, Error)> {
        match file.writer_or_file() {
            Ok(writer) => {
                Ok(SpillWriter { from: writer.position(), writer, scratch: RowBytes::default(), rows: 0 })
            }
            Err((file, error)) => Err((file, error.into())),
        }
    }

    /// Adds a row.
    pub(super) fn push<'v>(&mut self, row: impl IntoIterator<Item = &'v Value> + Clone) -> Result<()> {
        let encoded = self.scratch.begin(row_room(row.clone()), |bytes| self.writer.memory(bytes))?;
        encode_row(row, encoded)?;
        self.scratch.settle(|bytes| self.writer.memory(bytes))?;
        self.rows += 1;
        self.writer.write_all(&self.scratch)?;
        self.scratch.forget_long();
        Ok(())
    }

    /// Adds a row that is encoded already, with its length.
    pub(super) fn push_encoded(&mut self, row: &[u8]) -> Result<()> {
        self.rows += 1;
        Ok(self.writer.write_all(row)?)
    }

    /// The file, to be read.
    pub(super) fn finish(self, context: &Context<'_>, node: usize) -> Result<Spilled> {
        let spilled = self.end()?;
        context.note(node, |profile| profile.spilled_bytes += spilled.bytes());
        Ok(spilled)
    }

    /// The same for who has no context: nothing is noted.
    pub(super) fn end(self) -> Result<Spilled> {
        Ok(Spilled { file: self.writer.finish()?, from: self.from, rows: self.rows })
    }
}

/// Reads rows from a temporary file.
#[derive(Debug)]
pub(super) struct SpillReader {
    reader: TempReader,
    /// Bytes of the current row that lie together in the reader's memory; 0: it is in `row`.
    here: usize,
    row: RowBytes,
}

impl SpillReader {
    /// The rows in a part of a file.
    pub(super) fn new(file: &TempFile, from: u64, to: u64) -> Result<Self> {
        Ok(SpillReader { reader: file.reader(from, to)?, here: 0, row: RowBytes::default() })
    }

    /// The next row, as it stands: its length, then its values.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        Ok(if self.advance()? { Some(self.current()) } else { None })
    }

    /// Goes to the next row; see [`SpillReader::current`].
    pub(super) fn advance(&mut self) -> Result<bool> {
        if self.reader.remaining() == 0 {
            self.taken();
            return Ok(false);
        }
        self.here = 0;
        if let Some(header) = self.reader.peek(ROW_HEADER)? {
            let bytes = row_len(header);
            if self.reader.peek(bytes)?.is_some() {
                self.reader.pass(bytes);
                self.here = bytes;
                self.row.forget_long();
                return Ok(true);
            }
        }
        let mut len = [0; ROW_HEADER];
        self.reader.read_exact(&mut len)?;
        let bytes = u32::from_le_bytes(len) as usize;
        if bytes as u64 > self.reader.remaining() {
            return Err(damaged());
        }
        let row = self.row.begin(ROW_HEADER + bytes, |bytes| self.reader.memory(bytes))?;
        row.extend_from_slice(&len);
        row.resize(ROW_HEADER + bytes, 0);
        self.reader.read_exact(&mut row[ROW_HEADER..])?;
        Ok(true)
    }

    /// The row that was read last, as it stands; nothing when it was taken.
    #[inline]
    pub(super) fn current(&self) -> &[u8] {
        if self.here > 0 { self.reader.passed(self.here) } else { &self.row }
    }

    /// The row that was read last was taken: there is no current one.
    pub(super) fn taken(&mut self) {
        self.here = 0;
        self.row.bytes.clear();
        self.row.forget_long();
    }

    /// Puts the next rows into a batch, whose width is known; false at the end.
    pub(super) fn fill(&mut self, batch: &mut Batch, context: &Context<'_>) -> Result<bool> {
        context.check()?;
        batch.reset(batch.width());
        while batch.has_room(context, BATCH_ROWS)? && batch.push_with(|values| self.next_into(values))? {}
        Ok(!batch.is_empty())
    }

    /// Has the next row's values in `out`; false behind the last one, and there are none then.
    pub(super) fn next_values(&mut self, out: &mut RowValues) -> Result<bool> {
        if !self.advance()? {
            *out = RowValues::default();
            return Ok(false);
        }
        out.decode(Fields(&self.current()[ROW_HEADER..]), |bytes| self.reader.memory(bytes))?;
        self.row.forget_long();
        Ok(true)
    }

    /// Appends the next row's values; false behind the last one.
    pub(super) fn next_into(&mut self, out: &mut Vec<Value>) -> Result<bool> {
        match self.next()? {
            Some(row) => {
                Fields(&row[ROW_HEADER..]).values(out)?;
                self.row.forget_long();
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Value> {
        let mut values = vec![
            Value::Null,
            Value::Bool(true),
            Value::Bool(false),
            Value::Float(-0.5),
            Value::Float(f64::NAN),
            Value::text(""),
            Value::text("short"),
            Value::text("ü".repeat(63) + "x"),
            Value::text("ü".repeat(64)),
            Value::text("long ".repeat(1000)),
            Value::Padded("ab  ".into()),
            Value::Bytes([0, 1, 255].as_slice().into()),
            Value::Record(Arc::new(Record {
                types: [Type::Date, Type::Text].into(),
                values: vec![Value::Int(1), Value::Null],
            })),
            Value::Numeric(Numeric::new(-150, 2)),
            Value::Numeric(Numeric::parse("123456789012345678901234567890.5").unwrap()),
            Value::Numeric(Numeric::parse("-98765432109876543210").unwrap()),
            Value::Numeric(Numeric::NAN),
            Value::Numeric(Numeric::INFINITY),
            Value::Numeric(Numeric::NEG_INFINITY),
            Value::Array(Arc::new(Array {
                element: Type::Text,
                values: vec![Value::text("a"), Value::Null],
                lower: 0,
            })),
        ];
        for bits in 0..64 {
            values.push(Value::Int(1 << bits));
            values.push(Value::Int((1_i64 << bits).wrapping_neg().wrapping_sub(1)));
        }
        values
    }

    #[test]
    fn values_come_back_as_they_were() {
        let values = samples();
        let mut bytes = Vec::new();
        encode_row(&values, &mut bytes).unwrap();
        let mut back = Vec::new();
        Fields(&bytes[ROW_HEADER..]).values(&mut back).unwrap();
        assert_eq!(format!("{values:?}"), format!("{back:?}"));
    }

    #[test]
    fn values_are_ordered_among_bytes_as_they_are_themselves() {
        let strings: Vec<Value> = ["", " ", "a", "a ", "b"].iter().map(Value::text).collect();
        let padded: Vec<Value> = ["", " ", "a", "a ", "b"].map(|text| Value::Padded(text.into())).into();
        let numbers: Vec<Value> = [i64::MIN, -1, 0, 300, i64::MAX].map(Value::Int).into();
        let numerics: Vec<Value> = ["-Infinity", "-1.5", "0.00", "1e30", "NaN"]
            .map(|text| Value::Numeric(Numeric::parse(text).unwrap()))
            .into();
        for mut group in [strings, padded, numbers, numerics] {
            group.push(Value::Null);
            for a in &group {
                for b in &group {
                    let (mut left, mut right) = (Vec::new(), Vec::new());
                    encode(a, &mut left);
                    encode(b, &mut right);
                    let order = Fields(&left).raw().unwrap().total_cmp(&Fields(&right).raw().unwrap());
                    assert_eq!(order, a.total_cmp(b), "{a:?} {b:?}");
                    assert_eq!(Fields(&left).raw().unwrap().equals(b), a == b, "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_no_row_are_refused() {
        let mut bytes = Vec::new();
        for value in samples() {
            bytes.clear();
            encode(&value, &mut bytes);
            for len in 0..bytes.len().min(40) {
                assert!(Fields(&bytes[..len]).value().is_err(), "{value:?} cut to {len}");
            }
        }
        assert!(Fields(&[SHORT_TEXT + 1, 0xff]).value().is_err());
        assert!(Fields(&[RECORD, 255, 255, 255, 255, 0]).value().is_err());
        assert!(Fields(&[99]).value().is_err());
    }
}
