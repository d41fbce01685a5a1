//! Aggregates over groups that come in any order.
//!
//! # How memory ends
//! Groups that are in the table when it is full stay there until the end of the input, and take further rows. Rows of other
//! groups are divided by the hash of their group into temporary files. When the groups of the table were given, each file is
//! treated like an input of its own, and may have to be divided again.

use super::{accumulate, counts};
use crate::Result;
use crate::exec::keys::{KeyExprs, KeyTable, MadeKey, encoded_bytes};
use crate::exec::memory::Memory;
use crate::exec::partition::Partitions;
use crate::exec::spill::Spilled;
use crate::exec::{BATCH_ROWS, Batch, Context, LARGE_BYTES, Operator};
use crate::functions::Accumulator;
use crate::physical::{AggregateExpr, Expr};
use crate::types::Value;
use std::sync::Arc;

/// Groups that are taken however little memory there is, unless they are long.
const GROUPS_LEAST: usize = 16;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Hashed {
    node: usize,
    input: Box<dyn Operator>,
    groups: Arc<KeyExprs>,
    aggregates: Vec<AggregateExpr>,
    /// Whether an aggregate's state may have memory of its own, and more of it with each row.
    grows: Vec<bool>,
    table: KeyTable,
    /// States of the aggregates, group by group.
    accumulators: Vec<Accumulator>,
    /// Memory of the states.
    heap_bytes: usize,
    memory: Memory,
    overflow: Option<Partitions>,
    /// Parts that wait, and how often their rows were divided.
    parts: Vec<(Spilled, u32)>,
    stage: Stage,
    batch: Batch,
    scratch: Vec<Value>,
}

#[derive(Debug)]
enum Stage {
    Start,
    /// The groups of the table are given, from this one on.
    Give(usize, std::vec::IntoIter<Accumulator>),
    Done,
}

impl Hashed {
    pub(super) fn new(
        node: usize,
        input: Box<dyn Operator>,
        groups: &[Expr],
        aggregates: &[AggregateExpr],
    ) -> Self {
        Hashed {
            node,
            input,
            groups: Arc::new(KeyExprs::new(groups)),
            aggregates: aggregates.to_vec(),
            grows: aggregates
                .iter()
                .map(|call| (call.aggregate.start)(&call.types).grows(&call.types))
                .collect(),
            table: KeyTable::new(),
            accumulators: Vec::new(),
            heap_bytes: 0,
            memory: Memory::default(),
            overflow: None,
            parts: Vec::new(),
            stage: Stage::Start,
            batch: Batch::new(),
            scratch: Vec::new(),
        }
    }

    /// Reads the input, or a part.
    fn read(&mut self, context: &Context<'_>, part: Option<&(Spilled, u32)>) -> Result<()> {
        let level = part.map_or(0, |(_, level)| level + 1);
        let mut batch = std::mem::take(&mut self.batch);
        let groups = Arc::clone(&self.groups);
        let mut key = MadeKey::default();
        match part {
            None => {
                while self.input.next(context, BATCH_ROWS, &mut batch)? {
                    context.check()?;
                    for row in batch.iter() {
                        self.take(row, groups.of(row, context, &mut key)?, level, context)?;
                    }
                    self.settle(context)?;
                }
            }
            Some((part, _)) => {
                let mut reader = part.reader()?;
                while reader.fill(&mut batch, context)? {
                    for row in batch.iter() {
                        self.take(row, groups.of(row, context, &mut key)?, level, context)?;
                    }
                    self.settle(context)?;
                }
            }
        }
        self.batch = batch;
        if let Some(overflow) = self.overflow.take() {
            let parts = overflow.finish(context, self.node)?;
            self.parts.extend(parts.parts.into_iter().flatten().map(|part| (part, level)));
        }
        let peak = self.memory.peak();
        context.note(self.node, |profile| profile.memory_bytes = profile.memory_bytes.max(peak));
        let accumulators = std::mem::take(&mut self.accumulators);
        self.stage = Stage::Give(0, accumulators.into_iter());
        Ok(())
    }

    /// The states have grown: their memory is charged. They cannot be spilled, but no new groups come while there is too little.
    fn settle(&mut self, context: &Context<'_>) -> Result<()> {
        if self.heap_bytes > 0 {
            self.memory.demand(context, self.bytes())?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.accumulators.capacity() * size_of::<Accumulator>() + self.heap_bytes + self.table.bytes_with(0)
    }

    /// Takes a row, whose group has this key.
    fn take(&mut self, row: &[Value], key: &[Value], level: u32, context: &Context<'_>) -> Result<()> {
        let hash = KeyTable::hash(key);
        let group = match self.table.find(hash, key) {
            Some(group) => group,
            None => match self.begin(hash, key, context)? {
                Some(group) => group,
                None => {
                    let memory = &mut self.memory;
                    let overflow = self.overflow.get_or_insert_with(|| {
                        memory.begin_writer();
                        Partitions::new(context, level)
                    });
                    return overflow.push(overflow.of(hash), row, context);
                }
            },
        };
        let count = self.aggregates.len();
        let bytes = if self.grows.contains(&true) { self.bytes() } else { 0 };
        let states = &mut self.accumulators[group * count..][..count];
        for ((call, state), grows) in self.aggregates.iter().zip(states).zip(&self.grows) {
            if !counts(call, row, context)? {
                continue;
            }
            let before = if *grows { state.heap_bytes() } else { 0 };
            let room = (&mut self.memory, || bytes.saturating_sub(before));
            accumulate(call, state, row, context, &mut self.scratch, room)?;
            if *grows {
                self.heap_bytes = (self.heap_bytes + state.heap_bytes()).saturating_sub(before);
            }
        }
        Ok(())
    }

    /// Whether there is room for another group, whose key takes so many encoded bytes.
    fn has_room(&mut self, encoded: usize, context: &Context<'_>) -> Result<bool> {
        let mut states = self.accumulators.capacity();
        if self.accumulators.len() + self.aggregates.len() > states {
            // While they move, there are two of them.
            states += (states * 2).max(self.aggregates.len() * 4);
        }
        let bytes = states * size_of::<Accumulator>() + self.heap_bytes + self.table.bytes_with(encoded);
        if self.memory.reserve(context, bytes)? {
            return Ok(true);
        }
        let least = if encoded > LARGE_BYTES { 1 } else { GROUPS_LEAST };
        if self.table.len() < least {
            self.memory.demand(context, bytes)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Begins a group; `None` where there is no room for another one.
    fn begin(&mut self, hash: u64, key: &[Value], context: &Context<'_>) -> Result<Option<usize>> {
        if self.overflow.is_some() {
            return Ok(None);
        }
        let encoded = encoded_bytes(key);
        if !self.has_room(encoded, context)? {
            return Ok(None);
        }
        for call in &self.aggregates {
            let state = (call.aggregate.start)(&call.types);
            self.heap_bytes += state.heap_bytes();
            self.accumulators.push(state);
        }
        self.table.insert(hash, key, encoded).map(Some)
    }

    fn clear(&mut self) {
        self.table.clear();
        self.accumulators = Vec::new();
        self.heap_bytes = 0;
    }
}

impl Operator for Hashed {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.groups.len() + self.aggregates.len());
        loop {
            match &mut self.stage {
                Stage::Start => self.read(context, None)?,
                Stage::Give(next, states) => {
                    while out.has_room(context, limit)? && *next < self.table.len() {
                        let key = self.table.key(*next);
                        *next += 1;
                        let mut bytes = 0;
                        out.push_with(|values| {
                            key.values(values)?;
                            for state in states.by_ref().take(self.aggregates.len()) {
                                let before = state.heap_bytes();
                                let moved = state.finish_bytes() - before;
                                if moved > LARGE_BYTES {
                                    self.memory.add(context, moved)?;
                                    bytes += moved;
                                }
                                bytes += before;
                                values.push(state.finish()?);
                            }
                            Ok(true)
                        })?;
                        if bytes > LARGE_BYTES {
                            // It is the batch's.
                            self.memory.give_back(bytes);
                        }
                    }
                    if !out.is_empty() {
                        return Ok(true);
                    }
                    self.stage = Stage::Done;
                    self.clear();
                    self.memory.shrink_to_share(context, self.bytes());
                    match self.parts.pop() {
                        Some(part) => self.read(context, Some(&part))?,
                        None => self.memory.release(),
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
        self.parts.clear();
        self.stage = Stage::Start;
        self.input.rewind(context)
    }
}
