//! Join by a hash table of the right side.
//!
//! # How memory ends
//! Where the right side has no room, the rows of both sides are divided by the hash of their keys into parts, which are
//! joined one after the other. A part that has no room is divided again. Where that does not help, as most of its rows have
//! one key, its right side is taken piece by piece, and all of its left side is read for each piece; which rows on the left
//! had a partner in an earlier piece is kept in a bit for each.

use super::nulls;
use super::table::{KeyHash, Table};
use crate::Result;
use crate::exec::arena::RowRef;
use crate::exec::hash::{hash_key, is_exact};
use crate::exec::keys::{KeyExprs, MadeKey};
use crate::exec::memory::Memory;
use crate::exec::partition::{Parted, Partitions};
use crate::exec::spill::{Fields, ROW_HEADER, RowValues, SpillReader, Spilled, row_room};
use crate::exec::{BATCH_ROWS, Batch, Context, Operator, row_bytes};
use crate::logical::JoinKind;
use crate::physical::Expr;
use crate::types::Value;
use gannet_base::memory::Purpose;
use std::mem;

/// Rows looked at between two looks at the cancellation flag.
const CHECK_EVERY: u32 = 1 << 10;

/// What a join is made of.
#[derive(Debug)]
pub(in crate::exec) struct Sides {
    pub(in crate::exec) kind: JoinKind,
    pub(in crate::exec) left: Box<dyn Operator>,
    pub(in crate::exec) right: Box<dyn Operator>,
    pub(in crate::exec) left_width: usize,
    pub(in crate::exec) right_width: usize,
    /// The right side gives the same rows each time it is run.
    pub(in crate::exec) right_fixed: bool,
}

/// See the module's head.
#[derive(Debug)]
pub(in crate::exec) struct HashJoin {
    node: usize,
    sides: Sides,
    left_keys: KeyExprs,
    right_keys: KeyExprs,
    residual: Option<Expr>,
    table: Table,
    parts: Vec<Part>,
    /// The part that is joined; none while both sides have room.
    part: Option<Pass>,
    stage: Stage,
    batch: Batch,
    /// The row of the batch that is joined, and how far it has come.
    current: usize,
    probe: Probe,
    key: MadeKey,
    scratch: RowValues,
    steps: u32,
    /// It was run more than once, and may be once more.
    rewound: bool,
}

/// Rows of both sides that belong together.
#[derive(Debug)]
struct Part {
    left: Option<Spilled>,
    right: Option<Spilled>,
    /// How often the rows were divided.
    level: u32,
    /// Dividing them once more would not help.
    stubborn: bool,
}

/// A part, or a piece of it, on its way.
#[derive(Debug)]
struct Pass {
    part: Part,
    left: Option<SpillReader>,
    /// What is left of the right side; none when that is in the table to its last row.
    right: Option<SpillReader>,
    /// Which rows of the left side had partners in earlier pieces; by their numbers.
    matched: Vec<u64>,
    matched_memory: Memory,
    /// Number of the left row at hand.
    number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Start,
    /// Rows of the left side look for partners.
    Probe,
    /// Rows of the right side that had none are given, those behind this one.
    Unmatched(Option<RowRef>),
    NextPart,
    Done,
}

/// How far a row of the left side has come.
#[derive(Clone, Copy, Debug)]
enum Probe {
    /// Not looked up yet.
    New,
    /// The next row that may be a partner, whether it is one for certain, and whether there was one before.
    Chain(Option<RowRef>, bool, bool),
}

impl HashJoin {
    pub(in crate::exec) fn new(
        node: usize,
        sides: Sides,
        left_keys: &[Expr],
        right_keys: &[Expr],
        residual: Option<&Expr>,
    ) -> Self {
        HashJoin {
            node,
            sides,
            left_keys: KeyExprs::new(left_keys),
            right_keys: KeyExprs::new(right_keys),
            residual: residual.cloned(),
            table: Table::new(),
            parts: Vec::new(),
            part: None,
            stage: Stage::Start,
            batch: Batch::new(),
            current: 0,
            probe: Probe::New,
            key: MadeKey::default(),
            scratch: RowValues::default(),
            steps: 0,
            rewound: false,
        }
    }

    fn full(&self) -> bool {
        self.sides.kind == JoinKind::Full
    }

    /// Whether a row of the left side without partner matters.
    fn keeps_left(&self) -> bool {
        matches!(self.sides.kind, JoinKind::Left | JoinKind::Full | JoinKind::Anti)
    }

    fn width(&self) -> usize {
        match self.sides.kind {
            JoinKind::Semi | JoinKind::Anti => self.sides.left_width,
            JoinKind::Inner | JoinKind::Left | JoinKind::Full => {
                self.sides.left_width + self.sides.right_width
            }
        }
    }

    // ---- filling the table ------------------------------------------------------------------------------------

    /// Reads the right side, and the left one too if they have to be divided.
    fn start(&mut self, context: &Context<'_>) -> Result<()> {
        let mut batch = mem::take(&mut self.batch);
        let mut rights = None;
        while self.sides.right.next(context, BATCH_ROWS, &mut batch)? {
            context.check()?;
            for row in batch.iter() {
                let key = key_hash(&self.right_keys, row, context, &mut self.key)?;
                if key.is_none() && !self.full() {
                    continue;
                }
                let room = if batch.is_charged() { row_room(row) } else { 0 };
                if rights.is_none() && self.table.add(key, row, room, context)? {
                    continue;
                }
                let parts = match &mut rights {
                    Some(parts) => parts,
                    none => none.insert(self.divide_table(0, context)?),
                };
                parts.push(place(parts, key), row, context)?;
            }
        }
        self.batch = batch;
        match rights {
            None => self.begin_probe(context)?,
            Some(rights) => {
                // Their writers' memory is not held while the left side is read.
                let rights = rights.finish(context, self.node)?;
                self.divide_input(rights, context)?;
            }
        }
        Ok(())
    }

    fn begin_probe(&mut self, context: &Context<'_>) -> Result<()> {
        self.key.clear();
        self.table.index(context)?;
        let nothing = self.table.is_empty() && matches!(self.sides.kind, JoinKind::Inner | JoinKind::Semi);
        self.stage = if nothing { Stage::Unmatched(None) } else { Stage::Probe };
        self.batch.reset(self.sides.left_width);
        self.current = 0;
        self.probe = Probe::New;
        Ok(())
    }

    /// Moves what the table has into parts.
    fn divide_table(&mut self, level: u32, context: &Context<'_>) -> Result<Partitions> {
        let mut parts = Partitions::new(context, level);
        self.table.begin_writer();
        for (number, (hash, row)) in self.table.rows().enumerate() {
            if number.is_multiple_of(CHECK_EVERY as usize) {
                context.check()?;
            }
            let part = hash.map_or(0, |hash| parts.of(hash));
            parts.push_encoded(part, row, context)?;
        }
        let peak = self.table.peak();
        context.note(self.node, |profile| profile.memory_bytes = profile.memory_bytes.max(peak));
        self.table.close();
        Ok(parts)
    }

    /// The right side was divided: so is the left input.
    fn divide_input(&mut self, rights: Parted, context: &Context<'_>) -> Result<()> {
        let mut lefts = rights.others();
        let mut batch = mem::take(&mut self.batch);
        while self.sides.left.next(context, BATCH_ROWS, &mut batch)? {
            context.check()?;
            for row in batch.iter() {
                let key = key_hash(&self.left_keys, row, context, &mut self.key)?;
                if key.is_some() || self.keeps_left() {
                    lefts.push(place(&lefts, key), row, context)?;
                }
            }
        }
        self.batch = batch;
        self.add_parts(lefts, rights, u64::MAX, context)
    }

    fn add_parts(
        &mut self,
        lefts: Partitions,
        rights: Parted,
        rows: u64,
        context: &Context<'_>,
    ) -> Result<()> {
        let level = rights.level;
        let lefts = lefts.finish(context, self.node)?;
        for (left, right) in lefts.parts.into_iter().zip(rights.parts) {
            let matters = match (&left, &right) {
                (Some(_), Some(_)) => true,
                (Some(_), None) => self.keeps_left(),
                (None, Some(_)) => self.full(),
                (None, None) => false,
            };
            let stubborn = right.as_ref().is_some_and(|right| right.rows > rows / 8 * 7);
            if matters {
                self.parts.push(Part { left, right, level, stubborn });
            }
        }
        self.stage = Stage::NextPart;
        Ok(())
    }

    /// Begins with the next part; false when there is none.
    fn next_part(&mut self, context: &Context<'_>) -> Result<bool> {
        self.table.clear();
        self.table.give_back(context);
        let Some(part) = self.parts.pop() else { return Ok(false) };
        let mut right = part.right.as_ref().map(Spilled::reader).transpose()?;
        if !self.fill(&mut right, context)? && !part.stubborn && !self.table.has_one_hash() {
            self.divide_part(&part, right, context)?;
            return Ok(true);
        }
        let left = part.left.as_ref().map(Spilled::reader).transpose()?;
        let (matched, matched_memory) = (Vec::new(), Memory::default());
        self.part = Some(Pass { part, left, right, matched, matched_memory, number: 0 });
        self.begin_probe(context)?;
        Ok(true)
    }

    /// Fills the table from a part's right side, whose reader goes with the last row; false when it has more.
    fn fill(&mut self, right: &mut Option<SpillReader>, context: &Context<'_>) -> Result<bool> {
        let Some(reader) = right else { return Ok(true) };
        loop {
            // A row that had no room last time is still there.
            if reader.current().is_empty() && !reader.advance()? {
                break;
            }
            let row = reader.current();
            let key = self.right_key_hash(row, context)?;
            if !self.table.add_encoded(key, row, context)? {
                return Ok(false);
            }
            reader.taken();
            self.steps = self.steps.wrapping_add(1);
            if self.steps.is_multiple_of(CHECK_EVERY) {
                context.check()?;
            }
        }
        *right = None;
        Ok(true)
    }

    /// The hash of the join key of an encoded row of the right side.
    fn right_key_hash(&mut self, row: &[u8], context: &Context<'_>) -> Result<Option<KeyHash>> {
        let charge = |bytes| context.session.engine.memory(Purpose::Work, bytes);
        let values = self.scratch.decode(Fields(&row[ROW_HEADER..]), charge)?;
        let hash = key_hash(&self.right_keys, values, context, &mut self.key);
        self.scratch.forget_long();
        hash
    }

    /// Divides a part of which the table has some rows and `right` the others.
    fn divide_part(&mut self, part: &Part, right: Option<SpillReader>, context: &Context<'_>) -> Result<()> {
        let mut rights = self.divide_table(part.level + 1, context)?;
        if let Some(mut reader) = right {
            let mut moved = 0_u32;
            while !reader.current().is_empty() || reader.advance()? {
                moved += 1;
                if moved.is_multiple_of(CHECK_EVERY) {
                    context.check()?;
                }
                let row = reader.current();
                let key = self.right_key_hash(row, context)?;
                rights.push_encoded(place(&rights, key), row, context)?;
                reader.taken();
            }
        }
        let rights = rights.finish(context, self.node)?;
        let mut lefts = rights.others();
        if let Some(left) = &part.left {
            let mut reader = left.reader()?;
            let mut batch = mem::take(&mut self.batch);
            batch.reset(self.sides.left_width);
            while reader.fill(&mut batch, context)? {
                context.check()?;
                for row in batch.iter() {
                    let key = key_hash(&self.left_keys, row, context, &mut self.key)?;
                    lefts.push(place(&lefts, key), row, context)?;
                }
            }
            self.batch = batch;
        }
        let rows = part.right.as_ref().map_or(0, |right| right.rows);
        self.add_parts(lefts, rights, rows, context)
    }

    // ---- looking up -------------------------------------------------------------------------------------------

    /// Gets the next rows of the left side; false at its end.
    fn next_batch(&mut self, context: &Context<'_>) -> Result<bool> {
        self.current = 0;
        match &mut self.part {
            None => {
                context.check()?;
                self.sides.left.next(context, BATCH_ROWS, &mut self.batch)
            }
            Some(Pass { left: Some(left), .. }) => left.fill(&mut self.batch, context),
            Some(_) => Ok(false),
        }
    }

    /// Looks for partners of the left side's rows until there are so many rows; false when the left side has ended.
    fn probe(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        while out.has_room(context, limit)? {
            if self.current >= self.batch.len() {
                if !self.next_batch(context)? {
                    self.batch.reset(self.sides.left_width);
                    return Ok(false);
                }
                continue;
            }
            let (mut next, certain, mut matched) = match self.probe {
                Probe::Chain(next, certain, matched) => (next, certain, matched),
                Probe::New => self.look_up(context)?,
            };
            let one = matches!(self.sides.kind, JoinKind::Semi | JoinKind::Anti);
            while let Some(row) = next {
                next = self.table.next_match(row);
                if self.join(row, certain, context, out)? {
                    matched = true;
                    if one {
                        break;
                    }
                    if !out.has_room(context, limit)? {
                        self.probe = Probe::Chain(next, certain, matched);
                        return Ok(true);
                    }
                }
                self.steps = self.steps.wrapping_add(1);
                if self.steps.is_multiple_of(CHECK_EVERY) {
                    context.check()?;
                }
            }
            self.finish_row(matched, out);
            self.current += 1;
            self.probe = Probe::New;
        }
        Ok(true)
    }

    /// Looks up the row at hand.
    fn look_up(&mut self, context: &Context<'_>) -> Result<(Option<RowRef>, bool, bool)> {
        let row = self.batch.row(self.current);
        let mut had_partner = false;
        if let Some(pass) = &self.part {
            had_partner = pass.had_partner();
            if had_partner && matches!(self.sides.kind, JoinKind::Semi | JoinKind::Anti) {
                return Ok((None, true, true));
            }
        }
        let Some(key) = key_hash(&self.left_keys, row, context, &mut self.key)? else {
            return Ok((None, true, had_partner));
        };
        Ok(match self.table.find(key) {
            Some((first, certain)) => (Some(first), certain, had_partner),
            None => (None, true, had_partner),
        })
    }

    /// Joins the left row at hand with a right one, if they belong together.
    fn join(&mut self, right: RowRef, certain: bool, context: &Context<'_>, out: &mut Batch) -> Result<bool> {
        let left = self.batch.row(self.current);
        let HashJoin { table, left_keys, right_keys, residual, scratch, .. } = self;
        let fits = |joined: &[Value]| -> Result<bool> {
            let (left, right) = joined.split_at(left.len());
            if !certain && !left_keys.agree(left, right_keys, right, context)? {
                return Ok(false);
            }
            residual.as_ref().map_or(Ok(true), |residual| residual.is_true(joined, context))
        };
        if matches!(self.sides.kind, JoinKind::Semi | JoinKind::Anti) {
            if certain && residual.is_none() {
                return Ok(true);
            }
            let right = table.fields(right);
            let left_bytes = if self.batch.is_charged() { row_bytes(left) } else { 0 };
            let charge = |bytes| context.session.engine.memory(Purpose::Work, bytes);
            let joined = scratch.begin(left_bytes + right.0.len(), charge)?;
            joined.extend_from_slice(left);
            right.values(joined)?;
            scratch.settle()?;
            let fits = fits(scratch);
            scratch.forget_long();
            return fits;
        }
        let joined = out.push_with(|values| {
            let start = values.len();
            values.extend_from_slice(left);
            table.fields(right).values(values)?;
            fits(&values[start..])
        })?;
        if joined && self.sides.kind == JoinKind::Full {
            self.table.set_matched(right);
        }
        Ok(joined)
    }

    /// All partners of the row at hand were found. There is room for one more row.
    fn finish_row(&mut self, matched: bool, out: &mut Batch) {
        let mut last = true;
        let mut first_match = matched;
        if let Some(pass) = &mut self.part {
            last = pass.right.is_none();
            first_match = matched && !pass.had_partner();
            if matched {
                pass.set_partner();
            }
            pass.number += 1;
        }
        let left = self.batch.row(self.current).iter().cloned();
        match self.sides.kind {
            JoinKind::Inner => {}
            JoinKind::Left | JoinKind::Full if !matched && last => {
                out.push(left.chain(nulls(self.sides.right_width)));
            }
            JoinKind::Semi if first_match => out.push(left),
            JoinKind::Anti if !matched && last => out.push(left),
            JoinKind::Left | JoinKind::Full | JoinKind::Semi | JoinKind::Anti => {}
        }
    }

    // ---- the ends ---------------------------------------------------------------------------------------------

    /// Gives rows of the right side that had no partner; false when there are no more.
    fn give_unmatched(
        &mut self,
        context: &Context<'_>,
        mut last: Option<RowRef>,
        limit: usize,
        out: &mut Batch,
    ) -> Result<bool> {
        if self.full() {
            while let Some(row) = self.table.next_unmatched(last) {
                if !out.has_room(context, limit)? {
                    return Ok(true);
                }
                out.push_with(|values| {
                    values.extend(nulls(self.sides.left_width));
                    self.table.fields(row).values(values)?;
                    Ok(true)
                })?;
                last = Some(row);
                self.stage = Stage::Unmatched(last);
            }
        }
        Ok(false)
    }

    /// Whether the table, with all rows of the right side in it, serves the next run too.
    fn serves_again(&self) -> bool {
        self.sides.right_fixed && self.rewound && !self.full() && self.part.is_none() && self.parts.is_empty()
    }

    /// A table is done with: goes on with the next piece of the part, or the next part.
    fn next_piece(&mut self, context: &Context<'_>) -> Result<()> {
        self.stage = Stage::NextPart;
        let Some(mut pass) = self.part.take() else { return Ok(()) };
        if pass.right.is_none() {
            return Ok(());
        }
        self.table.clear();
        self.fill(&mut pass.right, context)?;
        pass.left = pass.part.left.as_ref().map(Spilled::reader).transpose()?;
        pass.number = 0;
        self.part = Some(pass);
        self.begin_probe(context)?;
        Ok(())
    }
}

impl Pass {
    /// Whether the left row at hand had a partner in an earlier piece.
    fn had_partner(&self) -> bool {
        let word = self.matched.get((self.number / 64) as usize);
        word.is_some_and(|word| word >> (self.number % 64) & 1 == 1)
    }

    fn set_partner(&mut self) {
        let index = (self.number / 64) as usize;
        if let Some(word) = self.matched.get_mut(index) {
            *word |= 1 << (self.number % 64);
        }
    }

    /// Makes room for the bits, where there will be another piece.
    fn keep_partners(&mut self, context: &Context<'_>) -> Result<()> {
        if self.right.is_some() && self.matched.is_empty() {
            let rows = self.part.left.as_ref().map_or(0, |left| left.rows);
            let words = rows.div_ceil(64) as usize;
            self.matched_memory.demand(context, words * size_of::<u64>())?;
            self.matched = vec![0; words];
        }
        Ok(())
    }
}

/// The hash of a row's join key; none where a part of it is NULL, which equals nothing.
fn key_hash(
    keys: &KeyExprs,
    row: &[Value],
    context: &Context<'_>,
    made: &mut MadeKey,
) -> Result<Option<KeyHash>> {
    let key = keys.of(row, context, made)?;
    if key.iter().any(Value::is_null) {
        return Ok(None);
    }
    Ok(Some(KeyHash { hash: hash_key(key.iter()), exact: is_exact(key) }))
}

/// To which part a row goes. Rows without key have no partner: any part will do.
fn place(parts: &Partitions, key: Option<KeyHash>) -> usize {
    key.map_or(0, |key| parts.of(key.hash))
}

impl Operator for HashJoin {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.width());
        loop {
            match self.stage {
                Stage::Start => self.start(context)?,
                Stage::Probe => {
                    if let Some(pass) = &mut self.part {
                        pass.keep_partners(context)?;
                    }
                    if self.probe(context, limit, out)? {
                        return Ok(true);
                    }
                    if self.serves_again() {
                        return Ok(!out.is_empty());
                    }
                    self.stage = Stage::Unmatched(None);
                }
                Stage::Unmatched(last) => {
                    if self.give_unmatched(context, last, limit, out)? {
                        return Ok(true);
                    }
                    self.next_piece(context)?;
                }
                Stage::NextPart => {
                    if !out.is_empty() {
                        return Ok(true);
                    }
                    if !self.next_part(context)? {
                        let peak = self.table.peak();
                        context
                            .note(self.node, |profile| profile.memory_bytes = profile.memory_bytes.max(peak));
                        self.table.close();
                        self.key.clear();
                        self.stage = Stage::Done;
                    }
                }
                Stage::Done => return Ok(false),
            }
        }
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        let keep = self.serves_again() && self.stage == Stage::Probe;
        self.rewound = true;
        self.key.clear();
        self.parts.clear();
        self.part = None;
        if keep {
            // The table is still good.
            self.batch.reset(self.sides.left_width);
            self.current = 0;
            self.probe = Probe::New;
        } else {
            self.table.close();
            self.stage = Stage::Start;
            self.sides.right.rewind(context)?;
        }
        self.sides.left.rewind(context)
    }
}
