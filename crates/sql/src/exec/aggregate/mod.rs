//! Groups and aggregates.
//!
//! | module | job |
//! |---|---|
//! | here | the state of one aggregate over one group, DISTINCT and ORDER BY included |
//! | `ordered` | one group, or groups that come one after the other |
//! | `parallel` | one group of all rows of a table, by several threads |
//! | `hashed` | groups in any order, by a hash table; rows of groups it has no room for go to temporary files |

mod hashed;
mod ordered;
mod parallel;

use super::expr::eval_into;
use super::memory::Memory;
use super::sort::{Sort, SortOrder, Sorter};
use super::{Context, LARGE_BYTES, Operator, row_bytes};
use crate::Result;
use crate::codec::row::StoredRow;
use crate::functions::Accumulator;
use crate::functions::SHORT_BYTES;
use crate::physical::{AggregateExpr, Expr, Grouping, OrderBy};
use crate::types::Value;

/// Rows of the smallest input that several threads may take.
const DIVIDED_LEAST: f64 = 10_000.0;

/// Makes the operator. `width`, `rows`: of the input, the number as the planner expects it.
pub(super) fn open(
    node: usize,
    input: Box<dyn Operator>,
    grouping: Grouping,
    groups: &[Expr],
    aggregates: &[AggregateExpr],
    (width, rows): (usize, f64),
) -> Box<dyn Operator> {
    let sorts = aggregates.iter().any(|aggregate| aggregate.distinct || !aggregate.order.is_empty());
    match grouping {
        // What sorts does so group by group, or it would take memory for each of them.
        Grouping::Hash if sorts => {
            let order = |expr: &Expr| OrderBy { expr: expr.clone(), descending: false, nulls_first: false };
            let keys: Vec<OrderBy> = groups.iter().map(order).collect();
            let sorted = Sort::new(node, input, &keys, 0, None, width);
            Box::new(ordered::Ordered::new(node, Box::new(sorted), Some(groups), aggregates))
        }
        Grouping::Hash => Box::new(hashed::Hashed::new(node, input, groups, aggregates)),
        Grouping::Sorted => Box::new(ordered::Ordered::new(node, input, Some(groups), aggregates)),
        Grouping::Single => {
            let single = ordered::Ordered::new(node, input, None, aggregates);
            Box::new(if rows >= DIVIDED_LEAST { single.dividing() } else { single })
        }
    }
}

/// Whether a row counts for an aggregate.
#[inline]
fn counts(call: &AggregateExpr, row: &[Value], context: &Context<'_>) -> Result<bool> {
    match &call.filter {
        Some(filter) => filter.is_true(row, context),
        None => Ok(true),
    }
}

/// Gives a row's arguments to an accumulator. Where that takes much memory, it is charged first: to `memory`, which holds as much
/// besides as `others` says.
#[inline]
fn accumulate(
    call: &AggregateExpr,
    accumulator: &mut Accumulator,
    row: &[Value],
    context: &Context<'_>,
    scratch: &mut Vec<Value>,
    (memory, others): (&mut Memory, impl Fn() -> usize),
) -> Result<()> {
    match call.arguments.as_slice() {
        [] => accumulator.add(&[]),
        [argument] => {
            let argument = argument.eval(row, context)?;
            let arguments = std::slice::from_ref(&*argument);
            grow(accumulator, arguments, context, memory, others)?;
            accumulator.add(arguments)
        }
        arguments => {
            let _charges = eval_into(arguments, row, context, scratch)?;
            grow(accumulator, scratch, context, memory, others)?;
            accumulator.add(scratch)?;
            scratch.clear();
            Ok(())
        }
    }
}

/// Charges what an accumulator will have, where that is much.
#[inline]
fn grow(
    accumulator: &Accumulator,
    arguments: &[Value],
    context: &Context<'_>,
    memory: &mut Memory,
    others: impl Fn() -> usize,
) -> Result<()> {
    // What is short is charged from batch to batch.
    let bytes = accumulator.gathered_with(arguments);
    if bytes > SHORT_BYTES { memory.demand(context, others() + bytes) } else { Ok(()) }
}

/// An aggregate over one group at a time.
#[derive(Debug)]
struct State {
    call: AggregateExpr,
    accumulator: Accumulator,
    /// For DISTINCT and ORDER BY: the arguments, followed by what is sorted by.
    sorter: Option<Sorter>,
    scratch: Vec<Value>,
}

impl State {
    fn new(node: usize, call: &AggregateExpr) -> Self {
        let arguments = call.arguments.len();
        let by = |column: usize, order: Option<&OrderBy>| OrderBy {
            expr: Expr::Column(column),
            descending: order.is_some_and(|order| order.descending),
            nulls_first: order.is_some_and(|order| order.nulls_first),
        };
        let sorts = call.distinct || !call.order.is_empty();
        let sorter = sorts.then(|| {
            let mut keys: Vec<OrderBy> = call
                .order
                .iter()
                .enumerate()
                .map(|(index, order)| by(arguments + index, Some(order)))
                .collect();
            if call.distinct {
                keys.extend((0..arguments).map(|index| by(index, None)));
            }
            Sorter::new(SortOrder::new(&keys, arguments + call.order.len()), node, None)
        });
        let accumulator = (call.aggregate.start)(&call.types);
        State { call: call.clone(), accumulator, sorter, scratch: Vec::new() }
    }

    /// Takes a row. `others`: tells the bytes that the memory holds for others.
    fn add(
        &mut self,
        row: &[Value],
        context: &Context<'_>,
        memory: &mut Memory,
        others: impl Fn() -> usize,
    ) -> Result<()> {
        if !counts(&self.call, row, context)? {
            return Ok(());
        }
        let State { call, accumulator, sorter, scratch } = self;
        match sorter {
            None => accumulate(call, accumulator, row, context, scratch, (memory, others)),
            Some(sorter) => {
                let mut charges = eval_into(&call.arguments, row, context, scratch)?;
                for order in &call.order {
                    scratch.push(order.expr.eval(row, context)?.into_row(context, &mut charges)?);
                }
                sorter.add(scratch, context)?;
                scratch.clear();
                Ok(())
            }
        }
    }

    /// Whether stored rows do for [`State::add_stored`]: each counts, for the aggregate of a column or of none.
    fn takes_stored(&self) -> bool {
        let of_columns = matches!(self.call.arguments.as_slice(), [] | [Expr::Column(_)]);
        of_columns && self.sorter.is_none() && self.call.filter.is_none()
    }

    /// Whether it can be made of states of parts of the rows; stored ones do.
    fn merges(&self) -> bool {
        self.takes_stored() && self.accumulator.merges()
    }

    /// The column that it is the aggregate of, if there is one.
    fn column(&self) -> Option<usize> {
        match self.call.arguments.first() {
            Some(Expr::Column(place)) => Some(*place),
            _ => None,
        }
    }

    /// Takes a stored row. `others`: as above.
    #[inline]
    fn add_stored(
        &mut self,
        row: &StoredRow<'_>,
        context: &Context<'_>,
        memory: &mut Memory,
        others: impl Fn() -> usize,
    ) -> Result<()> {
        let Some(place) = self.column() else { return self.accumulator.add(&[]) };
        if let Some(field) = self.accumulator.add_field(row.field(place)?)? {
            let value = [row.value_of(place, field)?];
            grow(&self.accumulator, &value, context, memory, others)?;
            self.accumulator.add(&value)?;
        }
        Ok(())
    }

    /// Whether only the number of rows counts.
    fn counts_rows(&self) -> bool {
        self.accumulator.counts_rows() && self.sorter.is_none() && self.call.filter.is_none()
    }

    /// Takes so many rows, of which only the number counts.
    fn add_rows(&mut self, rows: u64) {
        self.accumulator.add_rows(rows);
    }

    fn heap_bytes(&self) -> usize {
        self.accumulator.heap_bytes()
    }

    /// The result for the group; the next one begins. What it takes is charged to `memory`, beyond `others` bytes.
    fn finish(&mut self, context: &Context<'_>, memory: &mut Memory, others: usize) -> Result<Value> {
        let fresh = (self.call.aggregate.start)(&self.call.types);
        let mut accumulator = std::mem::replace(&mut self.accumulator, fresh);
        if let Some(sorter) = &mut self.sorter {
            let arguments = self.call.arguments.len();
            sorter.finish(context)?;
            let mut last: Option<Vec<Value>> = None;
            let mut rows = 0_u32;
            let width = arguments + self.call.order.len();
            // A long row is charged as it comes from the sorter, and as the one before.
            let is_long = sorter.longest() > LARGE_BYTES;
            let copies = if self.call.distinct { 2 } else { 1 };
            let mut beside = if is_long { copies * sorter.longest() } else { 0 };
            memory.demand(context, others + accumulator.heap_bytes() + beside)?;
            loop {
                self.scratch.resize(width, Value::Null);
                if !sorter.next(&mut self.scratch)? {
                    break;
                }
                if is_long && copies * row_bytes(&self.scratch) > beside {
                    beside = copies * row_bytes(&self.scratch);
                    memory.demand(context, others + accumulator.heap_bytes() + beside)?;
                }
                self.scratch.truncate(arguments);
                rows = rows.wrapping_add(1);
                if rows.is_multiple_of(4096) {
                    context.check()?;
                }
                if self.call.distinct && last.as_ref() == Some(&self.scratch) {
                    continue;
                }
                grow(&accumulator, &self.scratch, context, memory, || others + beside)?;
                accumulator.add(&self.scratch)?;
                if self.call.distinct {
                    std::mem::swap(last.get_or_insert_default(), &mut self.scratch);
                }
            }
            self.scratch.clear();
            sorter.reset(None);
            if is_long {
                memory.shrink(others + accumulator.heap_bytes());
            }
        }
        memory.demand(context, others + accumulator.finish_bytes())?;
        accumulator.finish()
    }

    /// Forgets the group and gives everything back.
    fn close(&mut self) {
        self.accumulator = (self.call.aggregate.start)(&self.call.types);
        if let Some(sorter) = &mut self.sorter {
            sorter.close();
        }
    }
}
