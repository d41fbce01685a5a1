//! UNION, EXCEPT and INTERSECT, by a hash table.
//!
//! # How
//! The table is filled with the right side and counts its rows; the left side's rows are looked up. UNION is EXCEPT of both sides, one after
//! the other, and nothing. Where the right side has no room, both are divided into parts by the hash of their rows; where it has room, but new
//! rows of the left side do not, only those are divided, as nothing on the right equals them. Of rows that are equal, and counted (ALL), one goes to
//! a part with how many they are.

use super::keys::{KeyTable, encoded_bytes};
use super::memory::Memory;
use super::partition::{Parted, Partitions};
use super::simple::Append;
use super::spill::{RowValues, SpillReader, Spilled};
use super::{BATCH_ROWS, Batch, CHECK_EVERY, Context, LARGE_BYTES, Operator};
use crate::logical::SetOperation;
use crate::types::Value;
use crate::{Error, Result, SqlState};
use gannet_base::memory::Purpose;

/// Rows that are taken into the table however little memory there is, unless they are long.
const ROWS_LEAST: usize = 16;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Set {
    node: usize,
    operation: SetOperation,
    all: bool,
    left: Box<dyn Operator>,
    right: Option<Box<dyn Operator>>,
    width: usize,
    table: KeyTable,
    /// Rows of the right side that are left, by number; [`GIVEN`] when the row was given.
    counts: Vec<u64>,
    memory: Memory,
    /// Rows that are taken have to have room: see [`Part`].
    cannot_divide: bool,
    overflow: Option<Partitions>,
    parts: Vec<Part>,
    stage: Stage,
    batch: Batch,
    next_row: usize,
}

/// Of a row that was given once and is not to be given again.
const GIVEN: u64 = u64::MAX;

/// Rows of both sides that belong together.
#[derive(Debug)]
struct Part {
    left: Option<Spilled>,
    right: Option<Spilled>,
    level: u32,
    /// The right side's rows have one hash: dividing them changes nothing, and they have to have room.
    has_one_hash: bool,
}

#[derive(Debug)]
enum Stage {
    Start,
    /// Rows of the left side are looked up: of the input, or of a part that was divided so often.
    Look(Option<Box<(SpillReader, u32)>>),
    NextPart,
    Done,
}

impl Set {
    pub(super) fn new(
        node: usize,
        operation: SetOperation,
        all: bool,
        left: Box<dyn Operator>,
        right: Box<dyn Operator>,
        width: usize,
    ) -> Self {
        let (left, right): (Box<dyn Operator>, _) = match operation {
            SetOperation::Union => (Box::new(Append::new(vec![left, right], width)), None),
            SetOperation::Except | SetOperation::Intersect => (left, Some(right)),
        };
        Set {
            node,
            operation,
            all,
            left,
            right,
            width,
            table: KeyTable::new(),
            counts: Vec::new(),
            memory: Memory::default(),
            cannot_divide: false,
            overflow: None,
            parts: Vec::new(),
            stage: Stage::Start,
            batch: Batch::new(),
            next_row: 0,
        }
    }

    /// Whether a row of the left side is a row of the result.
    fn wanted(&mut self, row: &[Value], level: u32, context: &Context<'_>) -> Result<bool> {
        let hash = KeyTable::hash(row);
        let found = self.table.find(hash, row);
        if found.is_none() {
            self.table.admit(row)?;
        }
        let found = found.map(|number| &mut self.counts[number]);
        Ok(match (self.operation, self.all, found) {
            (SetOperation::Union, true, _) => true,
            (SetOperation::Intersect, _, None) => false,
            (SetOperation::Intersect, _, Some(0 | &mut GIVEN)) => false,
            (SetOperation::Intersect, true, Some(count)) => {
                *count -= 1;
                true
            }
            (SetOperation::Intersect, false, Some(count)) => {
                *count = GIVEN;
                true
            }
            (SetOperation::Except, true, None) => true,
            (SetOperation::Except, true, Some(count)) => {
                let spare = *count == 0;
                *count = count.saturating_sub(1);
                spare
            }
            (SetOperation::Union | SetOperation::Except, false, Some(_)) => false,
            (SetOperation::Union | SetOperation::Except, false, None) => {
                if self.insert(hash, row, GIVEN, context)? {
                    return Ok(true);
                }
                let memory = &mut self.memory;
                let overflow = self.overflow.get_or_insert_with(|| {
                    memory.begin_writer();
                    Partitions::new(context, level)
                });
                overflow.push(overflow.of(hash), row, context)?;
                false
            }
        })
    }

    /// Takes a row that is new into the table; false when there is no room for it.
    fn insert(&mut self, hash: u64, row: &[Value], count: u64, context: &Context<'_>) -> Result<bool> {
        if self.overflow.is_some() {
            return Ok(false);
        }
        let encoded = encoded_bytes(row);
        if !self.has_room(encoded, context)? {
            return Ok(false);
        }
        self.table.insert(hash, row, encoded)?;
        self.counts.push(count);
        Ok(true)
    }

    /// Whether there is room for a row of so many encoded bytes.
    fn has_room(&mut self, encoded: usize, context: &Context<'_>) -> Result<bool> {
        let mut counts = self.counts.capacity();
        if self.counts.len() == counts {
            counts += counts.max(4) * 2;
        }
        let bytes = counts * size_of::<u64>() + self.table.bytes_with(encoded);
        if self.memory.reserve(context, bytes)? {
            return Ok(true);
        }
        let least = if encoded > LARGE_BYTES { 1 } else { ROWS_LEAST };
        if self.table.len() < least || self.cannot_divide {
            self.memory.demand(context, bytes)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Takes a row of the right side, which is there so often; false when there is no room for it.
    fn count(&mut self, row: &[Value], copies: u64, context: &Context<'_>) -> Result<bool> {
        let hash = KeyTable::hash(row);
        match self.table.find(hash, row) {
            Some(number) => self.counts[number] += copies,
            None => return self.insert(hash, row, copies, context),
        }
        Ok(true)
    }

    /// Reads the sides' input up to where the left side's rows are looked up, or divides them.
    fn start(&mut self, context: &Context<'_>) -> Result<()> {
        self.batch.reset(self.width);
        self.next_row = 0;
        self.stage = Stage::Look(None);
        let Some(mut right) = self.right.take() else { return Ok(()) };
        let mut divided = None;
        let mut batch = Batch::new();
        while right.next(context, BATCH_ROWS, &mut batch)? {
            context.check()?;
            for row in batch.iter() {
                self.take_right(row, 1, 0, &mut divided, context)?;
            }
        }
        self.right = Some(right);
        let Some(divided) = divided else { return Ok(()) };
        // Their writers' memory is not held while the left side is read.
        let divided = divided.finish(context, self.node)?;
        let mut lefts = divided.others();
        while self.left.next(context, BATCH_ROWS, &mut batch)? {
            context.check()?;
            for row in batch.iter() {
                lefts.push(lefts.of(KeyTable::hash(row)), row, context)?;
            }
        }
        self.add_parts(lefts, Some(divided), false, context)
    }

    /// Takes a row of the right side into the table or, when that is full, divides all of them.
    fn take_right(
        &mut self,
        row: &[Value],
        copies: u64,
        level: u32,
        divided: &mut Option<Partitions>,
        context: &Context<'_>,
    ) -> Result<()> {
        if divided.is_none() && self.count(row, copies, context)? {
            return Ok(());
        }
        let parts = match divided {
            Some(parts) => parts,
            none => {
                let parts = none.insert(Partitions::new(context, level));
                self.memory.begin_writer();
                self.empty_into(parts, context)?;
                parts
            }
        };
        self.push_right(parts, row, copies, context)
    }

    /// Moves a row of the right side into its part: with how often it is there, where that counts.
    fn push_right(
        &self,
        parts: &mut Partitions,
        row: &[Value],
        copies: u64,
        context: &Context<'_>,
    ) -> Result<()> {
        let part = parts.of(KeyTable::hash(row));
        if !self.all {
            return parts.push(part, row, context);
        }
        let copies = Value::Int(copies as i64);
        parts.push(part, row.iter().chain([&copies]), context)
    }

    /// Divides what the table has.
    fn empty_into(&mut self, parts: &mut Partitions, context: &Context<'_>) -> Result<()> {
        let mut values = RowValues::default();
        for number in 0..self.table.len() {
            let charge = |bytes| context.session.engine.memory(Purpose::Work, bytes);
            let row = values.decode(self.table.key(number), charge)?;
            self.push_right(parts, row, self.counts[number], context)?;
            if number % CHECK_EVERY == 0 {
                context.check()?;
            }
        }
        self.clear();
        self.memory.release();
        Ok(())
    }

    fn add_parts(
        &mut self,
        lefts: Partitions,
        rights: Option<Parted>,
        has_one_hash: bool,
        context: &Context<'_>,
    ) -> Result<()> {
        let Parted { parts: lefts, level } = lefts.finish(context, self.node)?;
        let rights = rights.map_or_else(|| lefts.iter().map(|_| None).collect(), |rights| rights.parts);
        let parts =
            lefts.into_iter().zip(rights).map(|(left, right)| Part { left, right, level, has_one_hash });
        // Without rows on the left there is no result.
        self.parts.extend(parts.filter(|part| part.left.is_some()));
        self.stage = Stage::NextPart;
        Ok(())
    }

    /// Begins with the next part; false when there is none.
    fn next_part(&mut self, context: &Context<'_>) -> Result<bool> {
        self.clear();
        self.memory.shrink_to_share(context, self.table.bytes_with(0));
        let Some(Part { left: Some(left), right, level, has_one_hash }) = self.parts.pop() else {
            return Ok(false);
        };
        let mut divided = None;
        let (mut first, mut is_one) = (None, true);
        self.cannot_divide = has_one_hash;
        if let Some(right) = right {
            let mut reader = right.reader()?;
            let mut row = RowValues::default();
            let mut rows = 0_u64;
            while reader.next_values(&mut row)? {
                let (row, copies) = match &row[..] {
                    [row @ .., Value::Int(copies)] if self.all => (row, *copies as u64),
                    row => (row, 1),
                };
                let hash = KeyTable::hash(row);
                is_one &= *first.get_or_insert(hash) == hash;
                self.take_right(row, copies, level + 1, &mut divided, context)?;
                rows += 1;
                if rows.is_multiple_of(BATCH_ROWS as u64) {
                    context.check()?;
                }
            }
        }
        self.cannot_divide = false;
        let mut reader = left.reader()?;
        let Some(divided) = divided else {
            self.stage = Stage::Look(Some(Box::new((reader, level + 1))));
            return Ok(true);
        };
        let divided = divided.finish(context, self.node)?;
        let mut lefts = divided.others();
        let mut batch = Batch::new();
        batch.reset(self.width);
        while reader.fill(&mut batch, context)? {
            for row in batch.iter() {
                lefts.push(lefts.of(KeyTable::hash(row)), row, context)?;
            }
        }
        self.add_parts(lefts, Some(divided), is_one, context)?;
        Ok(true)
    }

    /// Gets the next rows of the left side; false at its end.
    fn next_batch(&mut self, context: &Context<'_>) -> Result<bool> {
        self.next_row = 0;
        match &mut self.stage {
            Stage::Look(None) => {
                context.check()?;
                self.left.next(context, BATCH_ROWS, &mut self.batch)
            }
            Stage::Look(Some(part)) => part.0.fill(&mut self.batch, context),
            _ => Ok(false),
        }
    }

    fn clear(&mut self) {
        self.table.clear();
        self.counts = Vec::new();
        self.batch.reset(self.width);
        self.next_row = 0;
    }

    /// Gives the result's rows among those of the left side, up to so many.
    fn look(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<()> {
        let level = match &self.stage {
            Stage::Look(Some(part)) => part.1,
            _ => 0,
        };
        let mut batch = std::mem::take(&mut self.batch);
        while out.has_room(context, limit)? && self.next_row < batch.len() {
            let row = batch.row_mut(self.next_row);
            self.next_row += 1;
            if self.wanted(row, level, context)? {
                out.push(row.iter_mut().map(std::mem::take));
                batch.give_back();
            }
        }
        self.batch = batch;
        Ok(())
    }
}

impl Operator for Set {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.width);
        loop {
            match self.stage {
                Stage::Start => self.start(context)?,
                Stage::Look(_) => {
                    self.look(context, limit, out)?;
                    if self.next_row < self.batch.len() || !out.has_room(context, limit)? {
                        return Ok(true);
                    }
                    if self.next_batch(context)? {
                        continue;
                    }
                    self.batch.reset(self.width);
                    self.stage = Stage::NextPart;
                    if let Some(overflow) = self.overflow.take() {
                        self.add_parts(overflow, None, false, context)?;
                    }
                }
                Stage::NextPart => {
                    if !out.is_empty() {
                        return Ok(true);
                    }
                    if !self.next_part(context)? {
                        let peak = self.memory.peak();
                        context
                            .note(self.node, |profile| profile.memory_bytes = profile.memory_bytes.max(peak));
                        self.memory.release();
                        self.stage = Stage::Done;
                    }
                }
                Stage::Done => return Ok(false),
            }
        }
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.clear();
        self.table = KeyTable::new();
        self.memory.release();
        self.overflow = None;
        self.cannot_divide = false;
        self.parts.clear();
        self.stage = Stage::Start;
        self.left.rewind(context)?;
        match &mut self.right {
            Some(right) => right.rewind(context),
            None if self.operation == SetOperation::Union => Ok(()),
            // Lost by an error in the middle of reading it.
            None => {
                Err(Error::new(SqlState::INTERNAL_ERROR, "internal error: a set operation has no right side"))
            }
        }
    }
}
