//! Subqueries within expressions.
//!
//! # Guarantees
//! 1. A subquery that takes nothing from outside is run at most once; its result is kept for the statement.
//! 2. One that does is run anew for each row, with its slots filled; its operators are made once, and what of it takes nothing from
//!    outside keeps its rows.
//! 3. A WITH query that is read several times is run once, before its first row is given, and its rows are kept: in memory, or in a
//!    temporary file where that ends.
//! 4. `= ANY` of a subquery that takes nothing from outside is looked up in a hash table, and is NULL where SQL says so: when
//!    there is no match but a comparison with NULL.

use super::Made;
use super::expr::{RowComparison, boolean, eval_all};
use super::join::buffer::{RowBuffer, RowCursor};
use super::keys::{KeyTable, encoded_bytes};
use super::memory::Memory;
use super::{BATCH_ROWS, Batch, CHECK_EVERY, Context, Operator, open, open_as, row_bytes, walk};
use crate::logical::Comparison;
use crate::physical::{Expr, Plan, Statement, SubplanKind};
use crate::types::{Array, Type, Value};
use crate::{Error, Result, SqlState};
use std::cell::{Ref, RefCell};
use std::sync::Arc;

/// State of a statement's subqueries: their operators, and the results of those that are run only once.
#[derive(Debug, Default)]
pub struct Subplans {
    statement: Option<Arc<Statement>>,
    states: Vec<RefCell<State>>,
}

#[derive(Debug, Default)]
struct State {
    operator: Option<Box<dyn Operator>>,
    /// Whether it takes something from outside that its expression does not bind, once that is known.
    depends: Option<bool>,
    kept: Kept,
    memory: Memory,
    batch: Batch,
}

/// The result of a subquery that is run once.
#[derive(Debug, Default)]
enum Kept {
    #[default]
    Nothing,
    Value(Made),
    Keys(Keys),
    Rows(RowBuffer),
}

/// The rows of an IN, to be looked up.
#[derive(Debug)]
struct Keys {
    /// Rows without NULL.
    whole: KeyTable,
    /// Rows with NULL.
    partial: KeyTable,
}

impl Subplans {
    /// For a statement.
    pub(super) fn new(statement: &Arc<Statement>) -> Self {
        if statement.subplans.is_empty() {
            return Subplans::default();
        }
        let states = statement.subplans.iter().map(|_| RefCell::default()).collect();
        Subplans { statement: Some(Arc::clone(statement)), states }
    }

    /// The value of a subquery for a row.
    pub(super) fn value(
        &self,
        subplan: usize,
        bind: &[(usize, Expr)],
        kind: &SubplanKind,
        row: &[Value],
        context: &Context<'_>,
    ) -> Result<Made> {
        let (Some(statement), Some(state)) = (&self.statement, self.states.get(subplan)) else {
            return Err(Error::internal("a subquery where none may stand"));
        };
        let mut state = state.try_borrow_mut().map_err(|_| Error::internal("a subquery within itself"))?;
        let plan = &statement.subplans[subplan];
        for (slot, expr) in bind {
            let value = expr.eval(row, context)?.keep(context)?;
            context.slots.borrow_mut()[*slot] = value;
        }
        let depends = *state.depends.get_or_insert_with(|| !walk::free_slots(plan, statement).is_empty());
        let fixed = bind.is_empty() && !depends;
        match kind {
            SubplanKind::Quantified { arguments, op, all } => {
                let (arguments, _charges) = eval_all(arguments, row, context)?;
                let result = if fixed {
                    state.kept_quantified(plan, &arguments, *op, *all, context)?
                } else {
                    state.begin(plan, context)?;
                    state.quantified(&arguments, *op, *all, context)?
                };
                Made::new(boolean(result), context)
            }
            SubplanKind::Scalar | SubplanKind::Exists | SubplanKind::Array(_) if fixed => {
                if let Kept::Value(value) = &state.kept {
                    return Made::copy(value, context);
                }
                state.begin(plan, context)?;
                let value = state.run(kind, context)?;
                // It will not be run again.
                state.operator = None;
                state.batch = Batch::new();
                let given = Made::copy(&value, context);
                state.kept = Kept::Value(value);
                given
            }
            SubplanKind::Scalar | SubplanKind::Exists | SubplanKind::Array(_) => {
                state.begin(plan, context)?;
                state.run(kind, context)
            }
        }
    }
}

impl Subplans {
    /// The rows of a WITH query.
    fn rows(&self, subplan: usize, context: &Context<'_>) -> Result<Ref<'_, RowBuffer>> {
        let (Some(statement), Some(state)) = (&self.statement, self.states.get(subplan)) else {
            return Err(Error::internal("a WITH query where none may be used"));
        };
        let plan = &statement.subplans[subplan];
        if matches!(state.borrow().kept, Kept::Nothing) {
            let mut operator = open(plan, context)?;
            let rows = RowBuffer::read(&mut *operator, plan.columns.len(), plan.id, context)?;
            state.borrow_mut().kept = Kept::Rows(rows);
        }
        Ref::filter_map(state.borrow(), |state| match &state.kept {
            Kept::Rows(rows) => Some(rows),
            _ => None,
        })
        .map_err(|_| Error::internal("a WITH query that is a subquery"))
    }
}

/// Reads the rows of a WITH query.
#[derive(Debug)]
pub(super) struct CommonScan {
    subplan: usize,
    width: usize,
    /// Where it stands, once it has begun.
    cursor: Option<RowCursor>,
}

impl CommonScan {
    pub(super) fn new(subplan: usize, width: usize) -> Self {
        CommonScan { subplan, width, cursor: None }
    }
}

impl Operator for CommonScan {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.width);
        context.check()?;
        let rows = context.subplans.rows(self.subplan, context)?;
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            none => none.insert(rows.cursor()?),
        };
        while out.has_room(context, limit)?
            && let Some((_, row)) = cursor.next(&rows)?
        {
            out.push(row.iter().cloned());
        }
        Ok(!out.is_empty())
    }

    fn rewind(&mut self, _: &Context<'_>) -> Result<()> {
        self.cursor = None;
        Ok(())
    }
}

impl State {
    /// The operators, ready to begin.
    fn begin(&mut self, plan: &Plan, context: &Context<'_>) -> Result<()> {
        match &mut self.operator {
            Some(operator) => operator.rewind(context),
            none => {
                // One that is run but once keeps nothing: that begins with the second run.
                *none = Some(open_as(plan, context, true)?);
                Ok(())
            }
        }
    }

    /// The next rows.
    fn next(&mut self, context: &Context<'_>, limit: usize) -> Result<bool> {
        context.check()?;
        match &mut self.operator {
            Some(operator) => operator.next(context, limit, &mut self.batch),
            None => Err(Error::internal("a subquery was not begun")),
        }
    }

    fn run(&mut self, kind: &SubplanKind, context: &Context<'_>) -> Result<Made> {
        match kind {
            SubplanKind::Scalar => self.scalar(context),
            SubplanKind::Exists => Made::new(Value::Bool(self.next(context, 1)?), context),
            SubplanKind::Array(element) => self.array(*element, context),
            SubplanKind::Quantified { .. } => Err(Error::internal("a comparison without its left side")),
        }
    }

    fn scalar(&mut self, context: &Context<'_>) -> Result<Made> {
        if !self.next(context, 2)? {
            return Ok(Made::default());
        }
        let too_many = self.batch.len() > 1;
        let value = self.batch.row_mut(0).first_mut().map(std::mem::take).unwrap_or_default();
        self.batch.give_back();
        let value = Made::new(value, context)?;
        if too_many || self.next(context, 1)? {
            let message = "more than one row returned by a subquery used as an expression";
            return Err(Error::new(SqlState::CARDINALITY_VIOLATION, message));
        }
        Ok(value)
    }

    fn array(&mut self, element: Type, context: &Context<'_>) -> Result<Made> {
        let mut values = Vec::new();
        let mut bytes = 0;
        while self.next(context, BATCH_ROWS)? {
            for index in 0..self.batch.len() {
                let row = self.batch.row_mut(index);
                bytes += row_bytes(row);
                values.extend(row.first_mut().map(std::mem::take));
            }
            self.memory.demand(context, bytes * 2)?;
        }
        values.shrink_to_fit();
        let array = Value::Array(Arc::new(Array { element, values, lower: 1 }));
        Made::with_room(array, self.memory.hand_over(), context)
    }

    /// ANY or ALL of the rows to come.
    fn quantified(
        &mut self,
        arguments: &[Value],
        op: Comparison,
        all: bool,
        context: &Context<'_>,
    ) -> Result<Option<bool>> {
        let mut result = Some(all);
        while self.next(context, BATCH_ROWS)? {
            for row in self.batch.iter() {
                match compare(op, arguments, row)? {
                    Some(value) if value != all => return Ok(Some(value)),
                    Some(_) => {}
                    None => result = None,
                }
            }
        }
        Ok(result)
    }

    /// The same of rows that are kept.
    fn kept_quantified(
        &mut self,
        plan: &Plan,
        arguments: &[Value],
        op: Comparison,
        all: bool,
        context: &Context<'_>,
    ) -> Result<Option<bool>> {
        let by_hash = matches!((op, all), (Comparison::Equal, false) | (Comparison::NotEqual, true));
        if matches!(self.kept, Kept::Nothing) {
            self.begin(plan, context)?;
            self.kept = if by_hash {
                Kept::Keys(self.read_keys(context)?)
            } else {
                let operator = self.operator.as_mut().ok_or_else(|| Error::internal("no subquery"))?;
                Kept::Rows(RowBuffer::read(&mut **operator, plan.columns.len(), plan.id, context)?)
            };
            self.operator = None;
            self.batch = Batch::new();
        }
        match &mut self.kept {
            Kept::Keys(keys) => {
                let any = keys.contain(arguments, context)?;
                // <> ALL is NOT = ANY.
                Ok(if all { any.map(|any| !any) } else { any })
            }
            Kept::Rows(rows) => {
                let mut result = Some(all);
                let mut cursor = rows.cursor()?;
                let mut seen = 0_usize;
                while let Some((_, row)) = cursor.next(rows)? {
                    seen += 1;
                    if seen.is_multiple_of(CHECK_EVERY) {
                        context.check()?;
                    }
                    match compare(op, arguments, row)? {
                        Some(value) if value != all => return Ok(Some(value)),
                        Some(_) => {}
                        None => result = None,
                    }
                }
                Ok(result)
            }
            Kept::Nothing | Kept::Value(_) => Err(Error::internal("a subquery of two kinds")),
        }
    }

    fn read_keys(&mut self, context: &Context<'_>) -> Result<Keys> {
        let mut keys = Keys { whole: KeyTable::new(), partial: KeyTable::new() };
        while self.next(context, BATCH_ROWS)? {
            for row in self.batch.iter() {
                let hash = KeyTable::hash(row);
                let Keys { whole, partial } = &mut keys;
                let (table, other) =
                    if row.iter().any(Value::is_null) { (partial, whole) } else { (whole, partial) };
                if table.find(hash, row).is_none() {
                    // All of them are needed at once, so there is nothing to spill.
                    let encoded = encoded_bytes(row);
                    self.memory.demand(context, table.bytes_with(encoded) + other.bytes_with(0))?;
                    table.insert(hash, row, encoded)?;
                }
            }
        }
        Ok(keys)
    }
}

impl Keys {
    /// = ANY of the rows.
    fn contain(&mut self, arguments: &[Value], context: &Context<'_>) -> Result<Option<bool>> {
        if self.whole.len() + self.partial.len() == 0 {
            return Ok(Some(false));
        }
        if !arguments.iter().any(Value::is_null) {
            if self.whole.find(KeyTable::hash(arguments), arguments).is_some() {
                return Ok(Some(true));
            }
            if self.whole.len() > 0 {
                self.whole.admit(arguments)?;
            }
            return Ok(if unknown(&self.partial, arguments, context)? { None } else { Some(false) });
        }
        let unknown = arguments.len() == 1
            || unknown(&self.whole, arguments, context)?
            || unknown(&self.partial, arguments, context)?;
        Ok(if unknown { None } else { Some(false) })
    }
}

/// Whether it is unknown of some row whether it equals the arguments.
fn unknown(rows: &KeyTable, arguments: &[Value], context: &Context<'_>) -> Result<bool> {
    let mut row = Vec::new();
    for number in 0..rows.len() {
        if number % CHECK_EVERY == CHECK_EVERY - 1 {
            context.check()?;
        }
        row.clear();
        rows.key(number).values(&mut row)?;
        if compare(Comparison::Equal, arguments, &row)?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn compare(op: Comparison, arguments: &[Value], row: &[Value]) -> Result<Option<bool>> {
    if let ([argument], [value, ..]) = (arguments, row) {
        return super::expr::compare(op, argument, value);
    }
    let mut comparison = RowComparison::new(op);
    for (argument, value) in arguments.iter().zip(row) {
        if comparison.next(argument, value)? {
            break;
        }
    }
    Ok(comparison.result())
}
