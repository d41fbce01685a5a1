//! Rows kept to be read many times, in memory or in a temporary file.

use crate::Result;
use crate::exec::memory::Memory;
use crate::exec::spill::{SpillReader, SpillWriter, Spilled};
use crate::exec::{BATCH_ROWS, Batch, Context, Operator, row_bytes};
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
}

impl RowBuffer {
    /// Reads all rows of an operator, which has rows of `width` values; `node` is charged with what is spilled.
    pub(in crate::exec) fn read(
        input: &mut dyn Operator,
        width: usize,
        node: usize,
        context: &Context<'_>,
    ) -> Result<Self> {
        let mut buffer = RowBuffer { width, ..RowBuffer::default() };
        let mut writer = None;
        let mut batch = Batch::new();
        while input.next(context, BATCH_ROWS, &mut batch)? {
            context.check()?;
            for index in 0..batch.len() {
                let row = batch.row_mut(index);
                if writer.is_none() && buffer.has_room(row, context)? {
                    buffer.values.extend(row.iter_mut().map(std::mem::take));
                    buffer.rows += 1;
                    continue;
                }
                let writer = match &mut writer {
                    Some(writer) => writer,
                    none => none.insert(buffer.spill(context)?),
                };
                writer.push(&*row)?;
            }
        }
        if let Some(writer) = writer {
            let file = writer.finish(context, node)?;
            buffer.rows = file.rows as usize;
            buffer.file = Some(file);
        }
        let peak = buffer.memory.peak();
        context.note(node, |profile| profile.memory_bytes = profile.memory_bytes.max(peak));
        Ok(buffer)
    }

    fn has_room(&mut self, row: &[Value], context: &Context<'_>) -> Result<bool> {
        self.heap_bytes += row_bytes(row) - size_of_val(row);
        let mut capacity = self.values.capacity();
        if self.values.len() + row.len() > capacity {
            // While they move, there are two of them.
            capacity += (capacity * 2).max(row.len()).max(4);
        }
        self.memory.reserve(context, capacity * size_of::<Value>() + self.heap_bytes)
    }

    /// Moves the rows into a file.
    fn spill(&mut self, context: &Context<'_>) -> Result<SpillWriter> {
        let mut writer = SpillWriter::new(context)?;
        for index in 0..self.rows {
            writer.push(&self.values[index * self.width..][..self.width])?;
        }
        self.values = Vec::new();
        self.memory.release();
        Ok(writer)
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
            row: Vec::new(),
        })
    }
}

/// Where somebody who reads a buffer stands.
#[derive(Debug)]
pub(in crate::exec) struct RowCursor {
    next: usize,
    reader: Option<SpillReader>,
    row: Vec<Value>,
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
            return Ok(None);
        }
        self.next += 1;
        match &mut self.reader {
            None => Ok(Some((number, &buffer.values[number * buffer.width..][..buffer.width]))),
            Some(reader) => {
                self.row.clear();
                let more = reader.next_into(&mut self.row)?;
                Ok(more.then_some((number, self.row.as_slice())))
            }
        }
    }
}
