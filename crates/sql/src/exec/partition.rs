//! Rows divided by the hash of their keys into temporary files, so that each part has room in memory.

use super::Context;
use super::hash::partition;
use super::spill::{SpillWriter, Spilled};
use crate::Result;
use crate::types::Value;

/// Parts made at a time, least and most.
const FAN_OUT: (u64, u64) = (4, 32);

/// Rows in their parts.
#[derive(Debug)]
pub(super) struct Parted {
    /// Those that have rows.
    pub(super) parts: Vec<Option<Spilled>>,
    /// How often the rows were divided before.
    pub(super) level: u32,
}

impl Parted {
    /// For rows that belong to these: they are divided in the same way.
    pub(super) fn others(&self) -> Partitions {
        Partitions::with(self.parts.len(), self.level)
    }
}

/// Rows on their way into parts.
#[derive(Debug)]
pub(super) struct Partitions {
    /// Parts that have no rows have no file.
    writers: Vec<Option<SpillWriter>>,
    level: u32,
}

impl Partitions {
    /// As many as have room for the blocks of their files. `level`: how often the rows were divided before.
    pub(super) fn new(context: &Context<'_>, level: u32) -> Self {
        let limit = context.work_limit();
        let block = context.session.engine.temp_block_bytes(limit);
        let most = (limit / (2 * block)).clamp(FAN_OUT.0, FAN_OUT.1);
        Self::with(1 << most.ilog2(), level)
    }

    /// So many, a power of two.
    fn with(count: usize, level: u32) -> Self {
        Partitions { writers: (0..count).map(|_| None).collect(), level }
    }

    /// To which part a hash goes.
    pub(super) fn of(&self, hash: u64) -> usize {
        partition(hash, self.level, self.writers.len())
    }

    /// Adds a row to a part.
    pub(super) fn push<'v>(
        &mut self,
        part: usize,
        row: impl IntoIterator<Item = &'v Value> + Clone,
        context: &Context<'_>,
    ) -> Result<()> {
        self.writer(part, context)?.push(row)
    }

    /// Adds a row that is encoded already, with its length.
    pub(super) fn push_encoded(&mut self, part: usize, row: &[u8], context: &Context<'_>) -> Result<()> {
        self.writer(part, context)?.push_encoded(row)
    }

    fn writer(&mut self, part: usize, context: &Context<'_>) -> Result<&mut SpillWriter> {
        let writer = &mut self.writers[part];
        match writer {
            Some(writer) => Ok(writer),
            none => Ok(none.insert(SpillWriter::new(context)?)),
        }
    }

    /// The parts, to be read: their writers' blocks are given back.
    pub(super) fn finish(self, context: &Context<'_>, node: usize) -> Result<Parted> {
        let finish =
            |writer: Option<SpillWriter>| writer.map(|writer| writer.finish(context, node)).transpose();
        let parts = self.writers.into_iter().map(finish).collect::<Result<_>>()?;
        Ok(Parted { parts, level: self.level })
    }
}
