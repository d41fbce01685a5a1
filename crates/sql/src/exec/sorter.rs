//! Sorting rows, within memory or through temporary files.
//!
//! # How
//! Rows are kept encoded, the sort keys first. What is sorted are 16 bytes for each row: a number that orders most rows by
//! their first key, and where the row stands. Where memory ends, the sorted rows become a *run* in a temporary file; at the end
//! the runs are merged, so many at a time as memory has room for their blocks. Rows with equal keys stay in their order.
//!
//! Once there is a run, more are to be expected: half of the memory takes rows then, while a thread sorts and writes those in
//! the other half, see [`super::behind`]. Rows of one sorter are in runs in the order in which they came, as ties are decided by that.
//!
//! The rows that came last stay in memory where that has room for them beside the blocks of all runs, and are merged with these.
//! The last merge of many rows is a thread's as well, see [`super::merged`]: who takes them has other work with each.
//!
//! When only the first rows are wanted, the others are thrown away from time to time, and rows behind what is kept are not
//! even taken.

use super::arena::{Arena, CHUNK_MOST};
use super::behind::{Behind, Entry, Made, Work, sorted};
use super::helpers;
use super::keys::Shapes;
use super::memory::Memory;
use super::merged::{self, Merged};
use super::runs::{InMemory, Merge, Runs, fan_in, fits_beside};
use super::spill::{Fields, ROW_HEADER, Raw, RowBytes, encode, row_room, unpadded};
use super::{Context, LARGE_BYTES};
use crate::physical::{Expr, OrderBy};
use crate::types::Value;
use crate::{Error, Result, SqlState};
use gannet_base::memory::Purpose;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// Rows compared between two looks at the cancellation flag.
const CHECK_EVERY: usize = 1 << 12;
/// How often who waits for a run looks whether the statement is to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Less memory than this is not halved: runs would be short, and many.
const HALVED_LEAST: usize = if cfg!(test) { 8 << 10 } else { 16 << 20 };
/// What each half leaves of its half, for what the other may have too much.
const HALF_LEAVES: usize = if cfg!(test) { 1 << 10 } else { 2 * CHUNK_MOST };
/// Bytes of rows whose last merge is worth a thread.
const MERGED_LEAST: u64 = if cfg!(test) { 16 << 10 } else { 4 << 20 };
/// Rows kept before the first look for those that are not among the first.
const PRUNE_LEAST: usize = 1024;

/// What is sorted by, and how rows are laid out for it.
#[derive(Debug)]
pub(super) struct SortOrder {
    keys: Vec<Key>,
    /// The columns stored behind the keys.
    rest: Vec<usize>,
    /// Of each stored value the column of the row that it is, if any.
    columns: Vec<Option<usize>>,
}

#[derive(Debug)]
struct Key {
    expr: Expr,
    descending: bool,
    nulls_first: bool,
}

impl SortOrder {
    /// For rows of `width` values.
    pub(super) fn new(order: &[OrderBy], width: usize) -> Self {
        let mut keys: Vec<Key> = Vec::new();
        let mut columns: Vec<Option<usize>> = Vec::new();
        for by in order {
            let column = match &by.expr {
                // What stands there already, or is the same for all rows, decides nothing.
                Expr::Column(column) if columns.contains(&Some(*column)) => continue,
                Expr::Literal(_) | Expr::Parameter(_) => continue,
                Expr::Column(column) => Some(*column),
                _ => None,
            };
            let &OrderBy { descending, nulls_first, .. } = by;
            keys.push(Key { expr: by.expr.clone(), descending, nulls_first });
            columns.push(column);
        }
        let rest: Vec<usize> = (0..width).filter(|&column| !columns.contains(&Some(column))).collect();
        columns.extend(rest.iter().copied().map(Some));
        SortOrder { keys, rest, columns }
    }

    fn encode(
        &self,
        row: &[Value],
        context: &Context<'_>,
        shapes: &mut Shapes,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.clear();
        out.extend_from_slice(&[0; ROW_HEADER]);
        for (index, key) in self.keys.iter().enumerate() {
            let value = key.expr.eval(row, context)?;
            shapes.admit(index, &value)?;
            encode(&value, out);
        }
        for &column in &self.rest {
            encode(&row[column], out);
        }
        let Ok(len) = u32::try_from(out.len() - ROW_HEADER) else {
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row is larger than 4 GiB"));
        };
        out[..ROW_HEADER].copy_from_slice(&len.to_le_bytes());
        Ok(())
    }

    /// Puts the columns of an encoded row into their places.
    #[inline]
    fn decode(&self, row: &[u8], out: &mut [Value]) -> Result<()> {
        Fields(&row[ROW_HEADER..]).put(self.columns.iter().copied(), out)
    }

    /// The order of two encoded rows.
    pub(super) fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        self.compare_fields(left, right).unwrap_or(Ordering::Equal)
    }

    fn compare_fields(&self, left: &[u8], right: &[u8]) -> Result<Ordering> {
        let (mut left, mut right) = (Fields(&left[ROW_HEADER..]), Fields(&right[ROW_HEADER..]));
        for key in &self.keys {
            let order = key.compare(&left.raw()?, &right.raw()?);
            if order != Ordering::Equal {
                return Ok(order);
            }
        }
        Ok(Ordering::Equal)
    }

    /// A number that is less only where the row is less, and whether it alone tells rows apart.
    pub(super) fn prefix(&self, row: &[u8]) -> (u64, bool) {
        let Some(key) = self.keys.first() else { return (0, true) };
        match Fields(&row[ROW_HEADER..]).raw() {
            Ok(raw) => {
                let (prefix, exact) = key.prefix(&raw);
                (prefix, exact && self.keys.len() == 1)
            }
            Err(_) => (0, false),
        }
    }
}

impl Key {
    fn compare(&self, left: &Raw<'_>, right: &Raw<'_>) -> Ordering {
        match (left.is_null(), right.is_null()) {
            (false, false) if self.descending => right.total_cmp(left),
            (false, false) => left.total_cmp(right),
            (true, true) => Ordering::Equal,
            (true, false) if self.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if self.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
        }
    }

    fn prefix(&self, raw: &Raw<'_>) -> (u64, bool) {
        let (ascending, exact) = match raw {
            Raw::Other(Value::Null) => return (if self.nulls_first { 0 } else { u64::MAX }, true),
            Raw::Int(value) => (*value as u64 ^ 1 << 63, true),
            Raw::Text(bytes) | Raw::Bytes(bytes) => (leading(bytes), false),
            Raw::Padded(bytes) => (leading(unpadded(bytes)), false),
            Raw::Other(Value::Bool(value)) => (1 + u64::from(*value), true),
            Raw::Other(Value::Float(value)) => (float_order(*value), false),
            Raw::Other(Value::Numeric(value)) => (float_order(value.to_f64_lossy()), false),
            Raw::Other(_) => (1 << 63, false),
        };
        let directed = if self.descending { !ascending } else { ascending };
        // The ends are for NULLs.
        let inner = directed.clamp(1, u64::MAX - 1);
        (inner, exact && inner == directed)
    }
}

/// The first bytes, as a number that orders like them.
fn leading(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(word)
}

/// A number that orders like the float, all NaN behind everything.
fn float_order(value: f64) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Takes rows in any order and gives them back sorted.
#[derive(Debug)]
pub(super) struct Sorter {
    /// The last run, while a thread makes it. It goes first: what it has is charged to `memory`, which goes last.
    behind: Option<Behind>,
    order: Arc<SortOrder>,
    shapes: Shapes,
    node: usize,
    /// Only so many rows are wanted.
    top: usize,
    /// Rows that were given.
    given: usize,
    arena: Arena,
    runs: Runs,
    /// Bytes of the longest run's rows that all of the memory had; 0: there is none yet.
    run_bytes: usize,
    /// The memory of the run before.
    spare: Option<Arena>,
    encoded: RowBytes,
    /// Bytes of the longest row.
    longest: usize,
    /// The last of the rows wanted, so far: rows behind it need not be taken.
    cutoff: Option<Vec<u8>>,
    output: Output,
    memory: Memory,
}

/// How a run is made: while more rows are taken, or before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Behind,
    Here,
}

#[derive(Debug)]
enum Output {
    /// Rows are still taken.
    Taking,
    Memory(InMemory),
    Merge(Merge),
    Merged(Merged),
}

impl Sorter {
    /// For `node`; `top`: only so many rows are wanted.
    pub(super) fn new(order: SortOrder, node: usize, top: Option<usize>) -> Self {
        Sorter {
            order: Arc::new(order),
            shapes: Shapes::default(),
            node,
            top: top.unwrap_or(usize::MAX),
            given: 0,
            arena: Arena::new(0),
            memory: Memory::default(),
            runs: Runs::default(),
            run_bytes: 0,
            behind: None,
            spare: None,
            encoded: RowBytes::default(),
            longest: 0,
            cutoff: None,
            output: Output::Taking,
        }
    }

    /// Becomes empty, for the next rows.
    pub(super) fn reset(&mut self, top: Option<usize>) {
        if let Output::Memory(rows) = std::mem::replace(&mut self.output, Output::Taking) {
            self.arena = rows.into_arena();
        }
        self.top = top.unwrap_or(usize::MAX);
        self.given = 0;
        self.shapes = Shapes::default();
        (self.behind, self.spare, self.run_bytes) = (None, None, 0);
        self.arena.clear();
        self.memory.shrink(self.arena.bytes());
        self.runs = Runs::default();
        self.cutoff = None;
        self.longest = 0;
    }

    /// Gives everything back.
    pub(super) fn close(&mut self) {
        self.reset(None);
        self.arena = Arena::new(0);
        self.memory.release();
    }

    /// Takes a row.
    pub(super) fn add(&mut self, row: &[Value], context: &Context<'_>) -> Result<()> {
        if self.top == 0 {
            return Ok(());
        }
        let charge = |bytes| context.session.engine.memory(Purpose::Work, bytes);
        let encoded = self.encoded.begin(row_room(row), charge)?;
        self.order.encode(row, context, &mut self.shapes, encoded)?;
        self.encoded.settle(charge)?;
        self.longest = self.longest.max(self.encoded.len());
        let behind = |cutoff: &Vec<u8>| self.order.compare(&self.encoded, cutoff) != Ordering::Less;
        if self.cutoff.as_ref().is_some_and(behind) {
            return Ok(());
        }
        if self.arena.len() >= self.top.saturating_mul(2).max(PRUNE_LEAST) && self.top < usize::MAX {
            self.prune();
        }
        if self.run_bytes >= HALVED_LEAST && self.own_bytes() > self.run_bytes / 2 - HALF_LEAVES {
            self.spill(context, Way::Behind)?;
        }
        if !self.memory.reserve(context, self.needed())? {
            self.make_room(context)?;
        }
        self.arena.push(&self.encoded);
        self.encoded.forget_long();
        Ok(())
    }

    /// The memory ends before the next row: has it that the row can be taken.
    #[cold]
    fn make_room(&mut self, context: &Context<'_>) -> Result<()> {
        self.spare = None;
        self.arena.drop_spare();
        if self.memory.reserve(context, self.needed())? {
            return Ok(());
        }
        self.settle(context)?;
        self.spare = None;
        if self.arena.len() > self.top {
            self.prune();
        }
        if !self.memory.reserve(context, self.needed())? && !self.arena.is_empty() {
            self.spill(context, Way::Here)?;
        }
        self.memory.demand(context, self.needed())
    }

    /// Bytes of the rows that are being taken.
    fn own_bytes(&self) -> usize {
        self.arena.used() + self.arena.len() * size_of::<Entry>()
    }

    /// Bytes needed with one more row, and for the run that is made behind.
    fn needed(&self) -> usize {
        let others =
            self.behind.as_ref().map_or(0, Behind::bytes) + self.spare.as_ref().map_or(0, Arena::bytes);
        self.arena.bytes_with(self.encoded.len()) + (self.arena.len() + 1) * size_of::<Entry>() + others
    }

    /// Throws away what is not among the first rows.
    fn prune(&mut self) {
        let mut entries = sorted(&self.order, &self.arena, self.top);
        let last = entries.last().map(|last| self.arena.row(last.row).to_vec());
        self.cut_off_at(last);
        entries.sort_unstable_by_key(|entry| entry.row);
        self.arena.keep(entries.iter().map(|entry| entry.row));
    }

    /// The rows in memory become a run.
    fn spill(&mut self, context: &Context<'_>, way: Way) -> Result<()> {
        context.check()?;
        self.settle(context)?;
        let writer = self.runs.writer(context)?;
        if way == Way::Here {
            self.run_bytes = self.run_bytes.max(self.own_bytes());
        }
        let next = self.spare.take().unwrap_or_else(|| Arena::new(0));
        let arena = std::mem::replace(&mut self.arena, next);
        let work = Work::new(&self.order, arena, writer, self.top);
        match way {
            Way::Behind => self.behind = Some(Behind::begin(work)),
            Way::Here => {
                self.take(work.make(&|| context.check())?, context)?;
                self.spare = None;
            }
        }
        context.check()
    }

    /// Waits for the run that is made behind.
    fn settle(&mut self, context: &Context<'_>) -> Result<()> {
        while let Some(behind) = &self.behind
            && !behind.is_done_within(LOOK_EVERY)
        {
            context.check()?;
        }
        let Some(behind) = self.behind.take() else { return Ok(()) };
        self.take(behind.end()?, context)?;
        context.check()
    }

    /// As many rows as are wanted come no later than this one.
    fn cut_off_at(&mut self, row: Option<Vec<u8>>) {
        let is_less = |row: &Vec<u8>, known: &Vec<u8>| self.order.compare(row, known) == Ordering::Less;
        match (row, &self.cutoff) {
            (Some(row), Some(known)) if !is_less(&row, known) => {}
            (Some(row), _) => self.cutoff = Some(row),
            (None, _) => {}
        }
    }

    fn take(&mut self, made: Made, context: &Context<'_>) -> Result<()> {
        self.cut_off_at(made.cutoff);
        self.runs.push(made.writer.finish(context, self.node)?);
        self.spare = Some(made.arena);
        Ok(())
    }

    /// No more rows come: from now on they are given by [`Sorter::next`].
    pub(super) fn finish(&mut self, context: &Context<'_>) -> Result<()> {
        context.check()?;
        self.encoded.forget_long();
        let peak = self.memory.peak();
        context.note(self.node, |profile| profile.memory_bytes = profile.memory_bytes.max(peak));
        if self.runs.places.is_empty() && self.behind.is_none() {
            let entries = sorted(&self.order, &self.arena, self.top);
            self.output = Output::Memory(self.take_sorted(entries));
            return Ok(());
        }
        let (merge, held) = match self.merge_beside_last(context)? {
            Some(merge) => merge,
            None => (self.merge_written(context)?, 0),
        };
        self.output = if self.merges_ahead(context, held)? {
            Merged::begin(&self.order, merge).map_or_else(|merge| Output::Merge(*merge), Output::Merged)
        } else {
            Output::Merge(merge)
        };
        Ok(())
    }

    /// A merge of all runs with the rows that are in memory, which need not be written and read then, and the bytes these have; `None` where memory
    /// has no room for both.
    fn merge_beside_last(&mut self, context: &Context<'_>) -> Result<Option<(Merge, usize)>> {
        self.spare = None;
        self.arena.drop_spare();
        let runs = self.runs.places.len() + usize::from(self.behind.is_some());
        let held = self.arena.bytes() + self.arena.len() * size_of::<Entry>();
        // Long rows are charged one by one as they are read.
        let is_much = held as u64 > context.work_limit() / 2 || self.longest > LARGE_BYTES;
        if is_much || !fits_beside(context, self.longest, held + merged::BYTES, runs) {
            return Ok(None);
        }
        // While the run before is still made.
        let entries = sorted(&self.order, &self.arena, self.top);
        self.settle(context)?;
        self.spare = None;
        let last = self.take_sorted(entries);
        match Merge::new(&self.order, &self.runs, 0..runs) {
            Ok(mut merge) => {
                merge.add(&self.order, last);
                Ok(Some((merge, held)))
            }
            // Others have what is left of the budget.
            Err(error) if error.state() == SqlState::OUT_OF_MEMORY => {
                self.arena = last.into_arena();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A merge of all rows, those in memory written as well.
    fn merge_written(&mut self, context: &Context<'_>) -> Result<Merge> {
        self.settle(context)?;
        if !self.arena.is_empty() {
            self.spill(context, Way::Here)?;
        }
        (self.arena, self.spare) = (Arena::new(0), None);
        self.memory.release();
        let fan_in = fan_in(context, self.longest);
        while self.runs.places.len() > fan_in {
            self.runs = self.merge_some(&self.runs, fan_in, context)?;
        }
        Merge::new(&self.order, &self.runs, 0..self.runs.places.len())
    }

    /// The rows in memory, sorted; what they need is still charged, and nothing else.
    fn take_sorted(&mut self, entries: Vec<Entry>) -> InMemory {
        self.memory.shrink(self.arena.bytes() + entries.capacity() * size_of::<Entry>());
        InMemory::new(std::mem::replace(&mut self.arena, Arena::new(0)), entries)
    }

    /// Whether a thread is to merge them: there are many rows, none of them long, and memory to hand them over beside what is held.
    fn merges_ahead(&mut self, context: &Context<'_>, held: usize) -> Result<bool> {
        let wanted = helpers::threads(context.session.settings().helpers).is_some()
            && self.runs.bytes() >= MERGED_LEAST
            && self.longest <= merged::ROW_MOST
            && merged::BYTES as u64 <= context.work_limit() / 8;
        Ok(wanted && self.memory.reserve(context, held + merged::BYTES)?)
    }

    /// Makes fewer runs of many, in a new file.
    fn merge_some(&self, runs: &Runs, fan_in: usize, context: &Context<'_>) -> Result<Runs> {
        let count = runs.places.len();
        let mut merged = Runs::default();
        for start in (0..count).step_by(fan_in) {
            let mut merge = Merge::new(&self.order, runs, start..count.min(start + fan_in))?;
            let mut writer = merged.writer(context)?;
            let mut rows = 0;
            while rows < self.top {
                let Some(row) = merge.next(&self.order)? else { break };
                writer.push_encoded(row)?;
                rows += 1;
                if rows % CHECK_EVERY == 0 {
                    context.check()?;
                }
            }
            merged.push(writer.finish(context, self.node)?);
        }
        Ok(merged)
    }

    /// Puts the values of the next row into their places, where there may be others of the kind; false behind the last row.
    pub(super) fn next(&mut self, out: &mut [Value]) -> Result<bool> {
        if self.given >= self.top {
            return Ok(false);
        }
        self.given += 1;
        let row = match &mut self.output {
            Output::Taking => return Err(Error::internal("a sort was not finished")),
            Output::Memory(rows) => {
                if !rows.advance() {
                    return Ok(false);
                }
                rows.current()
            }
            Output::Merge(merge) => match merge.next(&self.order)? {
                Some(row) => row,
                None => return Ok(false),
            },
            Output::Merged(merged) => match merged.next()? {
                Some(row) => row,
                None => return Ok(false),
            },
        };
        self.order.decode(row, out)?;
        Ok(true)
    }
}
