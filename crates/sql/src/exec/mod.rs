//! Running plans: operators that pull batches of rows, within the memory budget.
//!
//! # Guarantees
//! 1. An operator keeps at most what it has charged to the engine's budget; where that ends it spills through the store's
//!    temporary files, or fails with 53200 where it cannot.
//! 2. A statement does not see its own changes: it reads through one [`View`] taken at its start.
//! 3. A batch ends after a MiB, see `Batch::has_room`: what operators hand to each other is bounded however long the rows are.
//! 4. Between batches, and in long loops within one, [`Context::check`] ends a cancelled statement.

use crate::catalog::Catalog;
use crate::codec::row::StoredRow;
use crate::logical::JoinKind;
use crate::physical::{Expr, Node, Plan};
use crate::session::SessionState;
use crate::types::Value;
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use gannet_store::{ThreadReads, Transaction, View, WorkMemory};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Steps of a loop within one batch, or within one expression, after which it looks whether the statement was cancelled.
pub(crate) const CHECK_EVERY: usize = 1 << 12;
/// Rows of a batch, at most, where nothing asks for fewer.
pub const BATCH_ROWS: usize = 256;
/// Bytes after which a batch ends, however few rows it has: long ones are not to be gathered by the hundred.
const BATCH_BYTES: usize = 1 << 20;
/// If so few rows had to be charged, they are long, and the next batch's are as well: there has to be room to read one of them first.
const FEW_ROWS: usize = 16;
/// Bytes that a batch takes without being charged for them.
const FREE_BYTES: usize = 128 << 10;

/// Bytes that a value of a row that was left out, or is looked at no more, may keep.
const LEFT_BYTES: usize = 4 << 10;

/// Rows on their way between operators, one after the other in one vector.
#[derive(Debug, Default)]
pub struct Batch {
    width: usize,
    rows: usize,
    /// Behind those of its rows there may be values of the batch before, for the memory they have: see [`Batch::push_over`].
    values: Vec<Value>,
    /// How many are its rows'.
    filled: usize,
    /// Whether rows were put over others.
    keeps: bool,
    /// Values that were measured, and what they have beyond themselves.
    measured: usize,
    heap_bytes: usize,
    /// What it was charged as, once it had more than is free. Kept, as its memory is.
    memory: Option<WorkMemory>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Empties the batch, for rows of `width` values; keeps its memory, but for that of long rows.
    pub fn reset(&mut self, width: usize) {
        if !std::mem::take(&mut self.keeps) || self.bytes() > FREE_BYTES {
            self.values.clear();
        }
        self.filled = 0;
        if (1..FEW_ROWS).contains(&self.rows) {
            self.memory = None;
        }
        self.width = width;
        self.rows = 0;
        self.measured = 0;
        self.heap_bytes = 0;
        if let Some(memory) = &mut self.memory {
            memory.shrink_to(BATCH_BYTES as u64);
        }
    }

    /// Empties the batch and gives back what it was charged as: who keeps it does not need it for a while.
    pub(crate) fn release(&mut self) {
        self.reset(0);
        self.values.clear();
        self.memory = None;
    }

    /// Whether another row may come: there are fewer than `limit`, and less than a MiB of them. More than a few bytes are charged to the
    /// budget, and the batch ends where that has no room for them. One row there may always be, but where it is a long one that the budget
    /// has no room for, that is an error.
    #[inline]
    pub(crate) fn has_room(&mut self, context: &Context<'_>, limit: usize) -> Result<bool> {
        let measured = self.values.get(self.measured..self.filled).unwrap_or_default();
        self.heap_bytes += measured.iter().map(Value::heap_bytes).sum::<usize>();
        self.measured = self.filled;
        self.has_room_beyond(context, limit, self.heap_bytes)
    }

    /// The same for who knows what the values have beyond themselves, about.
    #[inline]
    pub(crate) fn has_room_beyond(
        &mut self,
        context: &Context<'_>,
        limit: usize,
        heap_bytes: usize,
    ) -> Result<bool> {
        let bytes = self.filled * size_of::<Value>() + heap_bytes;
        let more = self.rows < limit.min(BATCH_ROWS);
        if self.rows == 0 || bytes <= FREE_BYTES {
            return Ok(more);
        }
        Ok(self.charge(context, bytes)? && more)
    }

    #[cold]
    fn charge(&mut self, context: &Context<'_>, bytes: usize) -> Result<bool> {
        if bytes < BATCH_BYTES {
            return match self.hold(context, BATCH_BYTES, WorkMemory::grow_leaving) {
                Ok(()) => Ok(true),
                Err(gannet_store::Error::Memory(_)) => Ok(false),
                Err(error) => Err(error.into()),
            };
        }
        let bytes = self.bytes();
        memory::await_room(context, bytes / self.rows)?;
        self.hold(context, bytes, WorkMemory::grow)?;
        Ok(false)
    }

    /// Bytes that it has and that are charged to nobody.
    pub(crate) fn uncharged_bytes(&self) -> usize {
        if self.is_charged() { 0 } else { self.bytes() }
    }

    /// Bytes of all its rows.
    fn bytes(&self) -> usize {
        let values = &self.values[..self.filled];
        size_of_val(values) + values.iter().map(Value::heap_bytes).sum::<usize>()
    }

    fn hold(
        &mut self,
        context: &Context<'_>,
        bytes: usize,
        grow: impl FnOnce(&mut WorkMemory, u64) -> gannet_store::Result<()>,
    ) -> gannet_store::Result<()> {
        if let Some(memory) = &mut self.memory {
            let more = (bytes as u64).saturating_sub(memory.bytes());
            return if more > 0 { grow(memory, more) } else { Ok(()) };
        }
        let mut memory = context.session.engine.memory(Purpose::Work, 0)?;
        grow(&mut memory, bytes as u64)?;
        self.memory = Some(memory);
        Ok(())
    }

    /// Values were taken out of its rows: what long ones were charged as is given back.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        if self.memory.as_ref().is_some_and(|memory| memory.bytes() > BATCH_BYTES as u64) {
            let bytes = self.bytes().max(BATCH_BYTES) as u64;
            self.memory.iter_mut().for_each(|memory| memory.shrink_to(bytes));
        }
    }

    /// Whether it had to be charged: there may be long rows in it.
    #[inline]
    pub(crate) fn is_charged(&self) -> bool {
        self.memory.is_some()
    }

    /// Rows in it.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Values of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// A row.
    pub fn row(&self, index: usize) -> &[Value] {
        &self.values[index * self.width..][..self.width]
    }

    /// A row, to be changed or taken from.
    pub fn row_mut(&mut self, index: usize) -> &mut [Value] {
        &mut self.values[index * self.width..][..self.width]
    }

    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = &[Value]> {
        (0..self.rows).map(|index| self.row(index))
    }

    /// Adds a row.
    pub fn push(&mut self, row: impl IntoIterator<Item = Value>) {
        let before = self.filled;
        self.values.truncate(before);
        self.values.extend(row);
        debug_assert_eq!(self.values.len() - before, self.width, "a row of another width");
        self.filled = self.values.len();
        self.rows += 1;
    }

    /// Adds a row that `fill` appends to the vector of values; it may leave it out again by returning false.
    pub fn push_with(&mut self, fill: impl FnOnce(&mut Vec<Value>) -> Result<bool>) -> Result<bool> {
        let before = self.filled;
        self.values.truncate(before);
        let kept = fill(&mut self.values)?;
        if kept {
            debug_assert_eq!(self.values.len() - before, self.width, "a row of another width");
            self.filled = self.values.len();
            self.rows += 1;
        } else {
            self.values.truncate(before);
        }
        Ok(kept)
    }

    /// Adds a row whose values `fill` puts into their places; it may leave it out again by returning false. There may be
    /// anything in them: what was in these places of the batch before, as strings of about the same length come where others were, and memory
    /// for each of them costs more than all else that is done with a row. Batches of more than is free keep nothing.
    #[inline]
    pub(crate) fn push_over(&mut self, fill: impl FnOnce(&mut [Value]) -> Result<bool>) -> Result<bool> {
        let (start, end) = (self.filled, self.filled + self.width);
        if self.values.len() < end {
            self.values.resize(end, Value::Null);
        }
        self.keeps = true;
        let row = &mut self.values[start..end];
        let kept = fill(row)?;
        if kept {
            self.filled = end;
            self.rows += 1;
        } else {
            leave(row);
        }
        Ok(kept)
    }

    /// Keeps the rows for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&[Value]) -> Result<bool>) -> Result<()> {
        let mut kept = 0;
        for index in 0..self.rows {
            if keep(self.row(index))? {
                if kept < index {
                    let (before, row) = self.values.split_at_mut(index * self.width);
                    before[kept * self.width..][..self.width].swap_with_slice(&mut row[..self.width]);
                }
                kept += 1;
            }
        }
        self.truncate(kept);
        Ok(())
    }

    /// Removes the first rows.
    pub fn drop_first(&mut self, rows: usize) {
        let rows = rows.min(self.rows);
        self.values.drain(..rows * self.width);
        self.filled -= rows * self.width;
        self.rows -= rows;
        self.measured = self.measured.saturating_sub(rows * self.width);
    }

    /// Keeps the first rows only.
    pub fn truncate(&mut self, rows: usize) {
        if rows < self.rows {
            self.rows = rows;
            self.filled = rows * self.width;
            self.values.truncate(self.filled);
            self.measured = self.measured.min(self.filled);
        }
    }
}

/// Gives back the memory of values that will be written over, but for that of short ones, which the next may have.
#[inline]
fn leave(values: &mut [Value]) {
    values.iter_mut().filter(|value| value.heap_bytes() > LEFT_BYTES).for_each(|value| *value = Value::Null);
}

/// What a statement runs with. One thread runs one statement, so what changes stands in cells.
pub struct Context<'c> {
    /// The definitions.
    pub catalog: &'c Arc<Catalog>,
    /// What the statement sees.
    pub view: &'c View,
    /// The session's transaction, for those who write.
    pub transaction: &'c RefCell<Transaction>,
    /// The session: settings, clock, sequences, the database and its engine.
    pub session: &'c SessionState,
    /// Parameters of the statement.
    pub parameters: &'c [Value],
    /// See [`crate::physical`], invariant 3.
    pub slots: &'c RefCell<Vec<Made>>,
    /// The value of [`Expr::Hold`] whose body is being computed.
    pub held: RefCell<Made>,
    /// What the function that is being called has reserved for its result.
    room: Cell<Charge>,
    /// Set when the statement shall end.
    pub cancel: &'c AtomicBool,
    /// State of the statement's subqueries.
    pub subplans: &'c Subplans,
    /// Counters of EXPLAIN ANALYZE, by node; empty when nobody asked.
    pub profile: &'c RefCell<Vec<NodeProfile>>,
    /// Rows that the statement has inserted, changed or removed, counted by those who do it.
    pub affected: &'c Cell<u64>,
    /// Bytes an operator may take before it spills, whatever [`Engine::work_limit`](gannet_store::Engine::work_limit) says.
    pub work_bytes: u64,
    /// Whether the transaction is read-only. Statements that change rows are refused before; functions that change something ask.
    pub read_only: bool,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("view", &self.view).finish_non_exhaustive()
    }
}

impl Context<'_> {
    /// Fails when the statement was cancelled.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(self.session.cancel_reason());
        }
        Ok(())
    }

    /// Bytes an operator may take before it spills.
    fn work_limit(&self) -> u64 {
        self.session.engine.work_limit().min(self.work_bytes)
    }

    /// Counts something for EXPLAIN ANALYZE, if that is wanted.
    #[inline]
    pub(crate) fn note(&self, node: usize, count: impl FnOnce(&mut NodeProfile)) {
        if let Some(profile) = self.profile.borrow_mut().get_mut(node) {
            count(profile);
        }
    }
}

/// What EXPLAIN ANALYZE shows of a node, its inputs included.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeProfile {
    /// How often it was started.
    pub loops: u64,
    /// Rows it gave.
    pub rows: u64,
    /// Nanoseconds until its first row, over all loops.
    pub first_row_ns: u64,
    /// Nanoseconds in all.
    pub total_ns: u64,
    /// Pages found in memory.
    pub hits: u64,
    /// Pages waited for one by one.
    pub serial_reads: u64,
    /// Pages asked for ahead, in batches.
    pub batched_reads: u64,
    /// Bytes written to temporary files.
    pub spilled_bytes: u64,
    /// Most memory held, in bytes.
    pub memory_bytes: u64,
    /// Rows a filter took away.
    pub rows_removed: u64,
    /// Threads beside the statement's own that worked on it, over all loops.
    pub helpers: u64,
}

/// A row that is shown.
#[derive(Clone, Copy)]
pub enum ShownRow<'r> {
    /// As it is stored. It is no longer than `SHORT_BYTES`.
    Stored(&'r StoredRow<'r>),
    /// Its columns.
    Values(&'r [Value]),
}

/// A running node of a plan.
pub trait Operator: fmt::Debug + Send {
    /// Puts the next rows into `out` (which the operator resets): at least one and at most `limit`; false when there are no more.
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool>;

    /// Starts anew, as if it had just been made: slots it reads may have changed.
    fn rewind(&mut self, context: &Context<'_>) -> Result<()>;

    /// Passes over the next rows, of which only the number is wanted, and gives that: 0 when there are no more. `None` where rows have to be made
    /// for that, by [`Operator::next`]; it is one or the other until it starts anew.
    fn pass_over(&mut self, _context: &Context<'_>) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Shows some of the next rows, for those who need no values of what is short, and says how many: 0 when there are no more. `None` as above,
    /// and whoever was told so by one of both may still try the other.
    fn show(
        &mut self,
        _context: &Context<'_>,
        _each: &mut dyn FnMut(ShownRow<'_>) -> Result<()>,
    ) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Gives all of its rows, of which none was given yet, away in so many parts that lie one behind the other, for threads that look at them at
    /// the same time: it has none left then. `None` where that is not possible, or not worth it.
    fn share(&mut self, _context: &Context<'_>, _parts: usize) -> Result<Option<Parts>> {
        Ok(None)
    }

    /// What was given away was looked at, for EXPLAIN ANALYZE.
    fn was_shared(&mut self, _context: &Context<'_>, _looked: &Looked) {}
}

/// What it took to look at a plan's rows, given away by [`Operator::share`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Looked {
    /// How many there were.
    pub rows: u64,
    /// Nanoseconds that passed.
    pub nanos: u64,
    /// Pages that were asked for.
    pub reads: ThreadReads,
}

/// Rows made one at a time, by a table function.
pub trait RowSource: fmt::Debug + Send {
    /// Appends the next row's values; false when there are no more.
    fn next(&mut self, context: &Context<'_>, out: &mut Vec<Value>) -> Result<bool>;
}

mod aggregate;
mod arena;
mod computed;
mod expr;
mod hash;
mod helpers;
mod join;
mod keep;
mod keys;
mod memory;
mod partition;
mod point;
mod profile;
mod run;
mod set;
mod simple;
mod sort;
mod spill;
mod store;
mod subplan;
mod walk;

pub(crate) use computed::{Charge, LARGE_BYTES};
pub use computed::{Computed, Made};
use helpers::Helpers;
pub(crate) use run::select_point;
pub use run::{Environment, Point, Running, as_point};
pub(crate) use spill::{RowBytes, readers_within};
pub(crate) use store::Coming;
use store::Parts;
pub use subplan::Subplans;

/// Bytes that a row takes as values.
fn row_bytes(row: &[Value]) -> usize {
    row.iter().map(|value| size_of::<Value>() + value.heap_bytes()).sum()
}

/// Makes the operators of a plan.
pub fn open(plan: &Plan, context: &Context<'_>) -> Result<Box<dyn Operator>> {
    open_as(plan, context, false)
}

/// Makes the operators of a plan that is `repeated`: run again and again with other slots. What of it gives the same rows each time, and
/// takes more than reading them, keeps them.
fn open_as(plan: &Plan, context: &Context<'_>, repeated: bool) -> Result<Box<dyn Operator>> {
    let keep = repeated && walk::is_laborious(plan) && walk::is_fixed(plan);
    let repeated = repeated && !keep;
    let mut operator = match store::open(plan, context, repeated)? {
        Some(operator) => operator,
        None => open_node(plan, context, repeated)?,
    };
    if !context.profile.borrow().is_empty() {
        operator = Box::new(profile::Profiled::new(plan.id, operator));
    }
    if keep {
        operator = Box::new(keep::Keep::new(plan.id, operator, plan.columns.len()));
    }
    Ok(operator)
}

/// Whether a plan never gives more than one row.
fn gives_one_row(plan: &Plan) -> bool {
    match &plan.node {
        Node::One => true,
        Node::Values(rows) => rows.len() <= 1,
        Node::Aggregate { groups, .. } => groups.is_empty(),
        Node::Project { input, .. } | Node::Filter { input, .. } | Node::Limit { input, .. } => {
            gives_one_row(input)
        }
        _ => false,
    }
}

fn open_node(plan: &Plan, context: &Context<'_>, repeated: bool) -> Result<Box<dyn Operator>> {
    let node = plan.id;
    let width = plan.columns.len();
    let input_of = |input: &Plan| open_as(input, context, repeated);
    Ok(match &plan.node {
        Node::One => Box::new(simple::One::default()),
        Node::Values(rows) => Box::new(simple::Values::new(rows, width)),
        Node::Filter { input, predicate } => Box::new(simple::Filter::new(node, input_of(input)?, predicate)),
        Node::Project { input, exprs } => Box::new(simple::Project::new(input_of(input)?, exprs)),
        Node::Limit { input, limit, offset } => {
            Box::new(simple::Limit::new(input_of(input)?, limit.as_ref(), offset.as_ref(), width))
        }
        Node::Append(inputs) => {
            let inputs = inputs.iter().map(input_of).collect::<Result<_>>()?;
            Box::new(simple::Append::new(inputs, width))
        }
        Node::Unique { input, keys } => Box::new(simple::Unique::new(input_of(input)?, keys, width)),
        Node::FunctionScan { function, arguments, types, ordinality } => {
            Box::new(simple::FunctionScan::new(function, arguments, types, *ordinality, width))
        }
        Node::CommonScan { subplan, .. } => Box::new(subplan::CommonScan::new(*subplan, width)),
        Node::SystemScan { table, columns, filter, .. } => {
            Box::new(simple::SystemScan::new(node, table, columns, filter.as_ref()))
        }
        Node::Sort { input, keys, presorted, top } => {
            let input = input_of(input)?;
            Box::new(sort::Sort::new(node, input, keys, *presorted, top.as_ref(), width))
        }
        Node::HashJoin { kind, left, right, left_keys, right_keys, residual } => {
            let sides = sides(*kind, left, (right, right_keys), false, context, repeated)?;
            Box::new(join::hash::HashJoin::new(node, sides, left_keys, right_keys, residual.as_ref()))
        }
        Node::NestedLoop { kind, left, right, bind, condition } => {
            let sides = sides(*kind, left, (right, &[]), !bind.is_empty(), context, repeated)?;
            let one_left = gives_one_row(left);
            Box::new(join::nested::NestedLoop::new(node, sides, one_left, bind, condition.as_ref()))
        }
        Node::Aggregate { input, grouping, groups, aggregates } => {
            let size = (input.columns.len(), input.estimate.rows);
            aggregate::open(node, input_of(input)?, *grouping, groups, aggregates, size)
        }
        Node::Set { operation, all, left, right } => {
            Box::new(set::Set::new(node, *operation, *all, input_of(left)?, input_of(right)?, width))
        }
        Node::TableScan { .. }
        | Node::IndexScan { .. }
        | Node::IndexJoin { .. }
        | Node::LockRows { .. }
        | Node::Insert { .. }
        | Node::Update { .. }
        | Node::Delete { .. } => return Err(Error::internal("a node of the store has no operator")),
    })
}

/// The sides of a join, and what the right one's rows are found by, if by anything. `bound`: it is run for each row of the left one.
fn sides(
    kind: JoinKind,
    left: &Plan,
    (right, right_keys): (&Plan, &[Expr]),
    bound: bool,
    context: &Context<'_>,
    repeated: bool,
) -> Result<join::hash::Sides> {
    let right_fixed = walk::is_fixed(right) && right_keys.iter().all(walk::is_fixed_expression);
    // What the join keeps itself needs not be kept below.
    let again = bound || repeated && !right_fixed;
    Ok(join::hash::Sides {
        kind,
        left: open_as(left, context, repeated)?,
        right: open_as(right, context, again)?,
        left_width: left.columns.len(),
        right_width: right.columns.len(),
        right_fixed,
    })
}

#[cfg(test)]
mod tests;
