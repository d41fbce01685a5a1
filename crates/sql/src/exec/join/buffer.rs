//! Rows kept to be read many times, in memory or in a temporary file.

use crate::Result;
use crate::exec::memory::Memory;
use crate::exec::spill::{RowValues, SpillReader, SpillWriter, Spilled};
use crate::exec::{BATCH_ROWS, Batch, CHECK_EVERY, Context, LARGE_BYTES, Operator, row_bytes};
use crate::types::Value;

/// All rows of an operator.
#[derive(Debug, Default)]
pub(in crate::exec) struct RowBuffer {
    width: usize,
    rows: usize,
    /// The rows one after the other, where they have room.
    values: Vec<Value>,
    heap_bytes: usize,
    memory: Memory,
    file: Option<Spilled>,
    /// Bytes of the longest row.
    longest: usize,
}

impl RowBuffer {
    /// Reads all rows of an operator, which has rows of `width` values; `node` is charged with what is spilled.
    pub(in crate::exec) fn read(
        input: &mut dyn Operator,
        width: usize,
        node: usize,
        context: &Context<'_>,
    ) -> Result<Self> {
        let mut gathered = RowGatherer::new(width);
        let mut batch = Batch::new();
        while input.next(context, BATCH_ROWS, &mut batch)? {
            context.check()?;
            for index in 0..batch.len() {
                gathered.push(batch.row_mut(index), context)?;
            }
        }
        gathered.finish(node, context)
    }

    fn has_room(&mut self, row: &[Value], context: &Context<'_>) -> Result<bool> {
        let bytes = row_bytes(row);
        self.longest = self.longest.max(bytes);
        self.heap_bytes += bytes - size_of_val(row);
        let mut capacity = self.values.capacity();
        if self.values.len() + row.len() > capacity {
            // While they move, there are two of them.
            capacity += (capacity * 2).max(row.len()).max(4);
        }
        self.memory.reserve(context, capacity * size_of::<Value>() + self.heap_bytes)
    }

    /// Moves the rows into a file.
    fn spill(&mut self, context: &Context<'_>) -> Result<SpillWriter> {
        self.memory.begin_writer();
        let mut writer = SpillWriter::new(context)?;
        for index in 0..self.rows {
            if index % CHECK_EVERY == 0 {
                context.check()?;
            }
            writer.push(&self.values[index * self.width..][..self.width])?;
        }
        self.values = Vec::new();
        self.memory.release();
        Ok(writer)
    }

    /// Whether there may be long rows among them.
    pub(in crate::exec) fn has_long(&self) -> bool {
        self.longest > LARGE_BYTES || self.file.is_some()
    }

    /// How many rows there are.
    pub(in crate::exec) fn len(&self) -> usize {
        self.rows
    }

    /// Begins to read.
    pub(in crate::exec) fn cursor(&self) -> Result<RowCursor> {
        Ok(RowCursor {
            next: 0,
            reader: self.file.as_ref().map(Spilled::reader).transpose()?,
            row: RowValues::default(),
        })
    }
}

/// Rows on their way into a buffer.
#[derive(Debug)]
pub(in crate::exec) struct RowGatherer {
    buffer: RowBuffer,
    /// The file, once there was no more room.
    writer: Option<SpillWriter>,
}

impl RowGatherer {
    /// For rows of `width` values.
    pub(in crate::exec) fn new(width: usize) -> Self {
        RowGatherer { buffer: RowBuffer { width, ..RowBuffer::default() }, writer: None }
    }

    /// Takes the values of a row.
    pub(in crate::exec) fn push(&mut self, row: &mut [Value], context: &Context<'_>) -> Result<()> {
        if self.writer.is_none() && self.buffer.has_room(row, context)? {
            self.buffer.values.extend(row.iter_mut().map(std::mem::take));
            self.buffer.rows += 1;
            return Ok(());
        }
        self.write(row, context)
    }

    /// Takes a copy of a row.
    pub(in crate::exec) fn push_copy(&mut self, row: &[Value], context: &Context<'_>) -> Result<()> {
        if self.writer.is_none() && self.buffer.has_room(row, context)? {
            self.buffer.values.extend_from_slice(row);
            self.buffer.rows += 1;
            return Ok(());
        }
        self.write(row, context)
    }

    fn write(&mut self, row: &[Value], context: &Context<'_>) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(self.buffer.spill(context)?),
        };
        writer.push(row)
    }

    /// Whether rows were written to a file.
    pub(in crate::exec) fn spilled(&self) -> bool {
        self.writer.is_some()
    }

    /// There are no more rows; `node` is charged with what was spilled.
    pub(in crate::exec) fn finish(self, node: usize, context: &Context<'_>) -> Result<RowBuffer> {
        let RowGatherer { mut buffer, writer } = self;
        if let Some(writer) = writer {
            let file = writer.finish(context, node)?;
            buffer.rows = file.rows as usize;
            buffer.file = Some(file);
        }
        let peak = buffer.memory.peak();
        context.note(node, |profile| profile.memory_bytes = profile.memory_bytes.max(peak));
        Ok(buffer)
    }
}

/// Where somebody who reads a buffer stands.
#[derive(Debug)]
pub(in crate::exec) struct RowCursor {
    next: usize,
    reader: Option<SpillReader>,
    row: RowValues,
}

impl RowCursor {
    /// The next row, and its number.
    #[inline]
    pub(in crate::exec) fn next<'a>(
        &'a mut self,
        buffer: &'a RowBuffer,
    ) -> Result<Option<(usize, &'a [Value])>> {
        let number = self.next;
        if number >= buffer.rows {
            self.row.forget_long();
            return Ok(None);
        }
        self.next += 1;
        match &mut self.reader {
            None => Ok(Some((number, &buffer.values[number * buffer.width..][..buffer.width]))),
            Some(reader) => {
                let more = reader.next_values(&mut self.row)?;
                Ok(more.then_some((number, &*self.row)))
            }
        }
    }
}
