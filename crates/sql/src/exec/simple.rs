//! Operators that keep nothing, or next to nothing.

use super::computed::RowCharges;
use super::expr::{eval_all, eval_into};
use super::{BATCH_ROWS, Batch, Charge, Context, Made, Operator, RowSource};
use crate::functions::{Call, TableFunction};
use crate::physical::Expr;
use crate::system::SystemTable;
use crate::types::{Type, Value};
use crate::{Error, Result, SqlState};
use std::mem;
use std::sync::Arc;

/// One row without columns.
#[derive(Debug, Default)]
pub(super) struct One {
    given: bool,
}

impl Operator for One {
    fn next(&mut self, _: &Context<'_>, _: usize, out: &mut Batch) -> Result<bool> {
        out.reset(0);
        if mem::replace(&mut self.given, true) {
            return Ok(false);
        }
        out.push([]);
        Ok(true)
    }

    fn rewind(&mut self, _: &Context<'_>) -> Result<()> {
        self.given = false;
        Ok(())
    }
}

/// Rows of expressions.
#[derive(Debug)]
pub(super) struct Values {
    rows: Arc<[Vec<Expr>]>,
    width: usize,
    next: usize,
}

impl Values {
    pub(super) fn new(rows: &Arc<[Vec<Expr>]>, width: usize) -> Self {
        Values { rows: Arc::clone(rows), width, next: 0 }
    }
}

impl Operator for Values {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.width);
        while out.has_room(context, limit)?
            && let Some(exprs) = self.rows.get(self.next)
        {
            out.push_with(|values| eval_into(exprs, &[], context, values).map(|_| true))?;
            self.next += 1;
        }
        Ok(!out.is_empty())
    }

    fn rewind(&mut self, _: &Context<'_>) -> Result<()> {
        self.next = 0;
        Ok(())
    }
}

/// Rows that fulfil a condition.
#[derive(Debug)]
pub(super) struct Filter {
    node: usize,
    input: Box<dyn Operator>,
    predicate: Expr,
}

impl Filter {
    pub(super) fn new(node: usize, input: Box<dyn Operator>, predicate: &Expr) -> Self {
        Filter { node, input, predicate: predicate.clone() }
    }
}

impl Operator for Filter {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        // A few rows more than asked for would do no harm to the result, but the next batch could not give them: so never more.
        while self.input.next(context, limit, out)? {
            context.check()?;
            let before = out.len();
            out.retain(|row| self.predicate.is_true(row, context))?;
            let removed = (before - out.len()) as u64;
            context.note(self.node, |profile| profile.rows_removed += removed);
            if !out.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.input.rewind(context)
    }
}

/// Computed columns.
#[derive(Debug)]
pub(super) struct Project {
    input: Box<dyn Operator>,
    exprs: Vec<Expr>,
    /// Columns of the input that are passed on and used nowhere else: they are moved, not copied.
    moved: Vec<bool>,
    /// Rows of the input that were not taken yet, from `next_row` on.
    batch: Batch,
    next_row: usize,
}

impl Project {
    pub(super) fn new(input: Box<dyn Operator>, exprs: &[Expr]) -> Self {
        let mut uses = Vec::new();
        for expr in exprs {
            count_columns(expr, &mut uses);
        }
        let moved =
            exprs.iter().map(|expr| matches!(expr, Expr::Column(column) if uses[*column] == 1)).collect();
        Project { input, exprs: exprs.to_vec(), moved, batch: Batch::new(), next_row: 0 }
    }
}

/// Counts for each column how often an expression reads it.
fn count_columns(expr: &Expr, uses: &mut Vec<usize>) {
    super::walk::expressions(expr, &mut |expr| {
        if let Expr::Column(column) = expr {
            if uses.len() <= *column {
                uses.resize(*column + 1, 0);
            }
            uses[*column] += 1;
        }
    });
}

impl Operator for Project {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.exprs.len());
        if self.next_row >= self.batch.len() {
            self.next_row = 0;
            if !self.input.next(context, limit, &mut self.batch)? {
                self.batch.reset(0);
                return Ok(false);
            }
        }
        while out.has_room(context, limit)? && self.next_row < self.batch.len() {
            let row = self.batch.row_mut(self.next_row);
            self.next_row += 1;
            let mut charges = RowCharges::default();
            out.push_with(|values| {
                for (expr, moved) in self.exprs.iter().zip(&self.moved) {
                    let value = match expr {
                        Expr::Column(column) if *moved => mem::take(&mut row[*column]),
                        _ => expr.eval(row, context)?.into_row(context, &mut charges)?,
                    };
                    values.push(value);
                }
                Ok(true)
            })?;
            self.batch.give_back();
        }
        Ok(true)
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.batch.reset(0);
        self.next_row = 0;
        self.input.rewind(context)
    }
}

/// LIMIT and OFFSET.
#[derive(Debug)]
pub(super) struct Limit {
    input: Box<dyn Operator>,
    limit: Option<Expr>,
    offset: Option<Expr>,
    width: usize,
    /// Rows to be left out, and rows to be given then, once they are known.
    left: Option<(u64, u64)>,
}

impl Limit {
    pub(super) fn new(
        input: Box<dyn Operator>,
        limit: Option<&Expr>,
        offset: Option<&Expr>,
        width: usize,
    ) -> Self {
        Limit { input, limit: limit.cloned(), offset: offset.cloned(), width, left: None }
    }

    fn bounds(&self, context: &Context<'_>) -> Result<(u64, u64)> {
        let offset = count(self.offset.as_ref(), context)?.map(u64::try_from).unwrap_or(Ok(0));
        let offset = offset
            .map_err(|_| Error::new(SqlState::INVALID_ROW_COUNT_IN_OFFSET, "OFFSET must not be negative"))?;
        let limit = count(self.limit.as_ref(), context)?.map(u64::try_from).unwrap_or(Ok(u64::MAX));
        let limit = limit
            .map_err(|_| Error::new(SqlState::INVALID_ROW_COUNT_IN_LIMIT, "LIMIT must not be negative"))?;
        Ok((offset, limit))
    }
}

/// A number of rows; `None` for none and NULL.
pub(super) fn count(expr: Option<&Expr>, context: &Context<'_>) -> Result<Option<i64>> {
    match expr {
        Some(expr) => Ok(expr.eval(&[], context)?.as_int()),
        None => Ok(None),
    }
}

impl Operator for Limit {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        let (mut skip, mut left) = match self.left {
            Some(left) => left,
            None => self.bounds(context)?,
        };
        self.left = Some((skip, left));
        loop {
            if left == 0 {
                out.reset(self.width);
                return Ok(false);
            }
            // What is skipped need not come one batch of the wanted size at a time.
            let wanted = if skip > 0 { BATCH_ROWS } else { limit } as u64;
            let wanted = wanted.min(skip.saturating_add(left).min(skip.saturating_add(limit as u64)));
            if !self.input.next(context, wanted as usize, out)? {
                self.left = Some((0, 0));
                return Ok(false);
            }
            let skipped = skip.min(out.len() as u64);
            skip -= skipped;
            out.drop_first(skipped as usize);
            left -= out.len() as u64;
            self.left = Some((skip, left));
            if !out.is_empty() {
                return Ok(true);
            }
            context.check()?;
        }
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.left = None;
        self.input.rewind(context)
    }
}

/// One input after the other.
#[derive(Debug)]
pub(super) struct Append {
    inputs: Vec<Box<dyn Operator>>,
    width: usize,
    current: usize,
}

impl Append {
    pub(super) fn new(inputs: Vec<Box<dyn Operator>>, width: usize) -> Self {
        Append { inputs, width, current: 0 }
    }
}

impl Operator for Append {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        while let Some(input) = self.inputs.get_mut(self.current) {
            if input.next(context, limit, out)? {
                return Ok(true);
            }
            self.current += 1;
        }
        out.reset(self.width);
        Ok(false)
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.current = 0;
        self.inputs.iter_mut().try_for_each(|input| input.rewind(context))
    }
}

/// Of rows that agree and stand together, the first.
#[derive(Debug)]
pub(super) struct Unique {
    input: Box<dyn Operator>,
    keys: Vec<Expr>,
    /// Keys of the last row that was given.
    last: Option<Vec<Made>>,
}

impl Unique {
    /// `width`: of the input's rows.
    pub(super) fn new(input: Box<dyn Operator>, keys: &[Expr], width: usize) -> Self {
        let keys = if keys.is_empty() { (0..width).map(Expr::Column).collect() } else { keys.to_vec() };
        Unique { input, keys, last: None }
    }
}

impl Operator for Unique {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        while self.input.next(context, limit, out)? {
            context.check()?;
            let Unique { keys, last, .. } = self;
            out.retain(|row| differs(keys, last, row, context))?;
            if !out.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.last = None;
        self.input.rewind(context)
    }
}

/// Whether a row differs from the last one; if so it takes that one's place.
fn differs(
    keys: &[Expr],
    last: &mut Option<Vec<Made>>,
    row: &[Value],
    context: &Context<'_>,
) -> Result<bool> {
    let Some(known) = last else {
        let keep = |key: &Expr| key.eval(row, context)?.keep(context);
        *last = Some(keys.iter().map(keep).collect::<Result<_>>()?);
        return Ok(true);
    };
    let mut different = false;
    for (key, known) in keys.iter().zip(known) {
        let value = key.eval(row, context)?;
        if different || *value != **known {
            *known = value.keep(context)?;
            different = true;
        }
    }
    Ok(different)
}

/// Rows of a function.
#[derive(Debug)]
pub(super) struct FunctionScan {
    function: &'static TableFunction,
    arguments: Vec<Expr>,
    types: Vec<Type>,
    /// The last column counts the rows.
    ordinality: bool,
    width: usize,
    rows: Option<Box<dyn RowSource>>,
    /// What the arguments are charged as, and what the function has reserved for its rows.
    charges: Option<(RowCharges, Charge)>,
    count: i64,
    done: bool,
}

impl FunctionScan {
    pub(super) fn new(
        function: &'static TableFunction,
        arguments: &[Expr],
        types: &[Type],
        ordinality: bool,
        width: usize,
    ) -> Self {
        let (arguments, types) = (arguments.to_vec(), types.to_vec());
        FunctionScan {
            function,
            arguments,
            types,
            ordinality,
            width,
            rows: None,
            charges: None,
            count: 0,
            done: false,
        }
    }
}

impl Operator for FunctionScan {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.width);
        if self.done {
            return Ok(false);
        }
        context.check()?;
        let rows = match &mut self.rows {
            Some(rows) => rows,
            none => {
                let call = Call { context, types: &self.types, ty: Type::Record };
                let (arguments, charges) = eval_all(&self.arguments, &[], context)?;
                let rows = (self.function.open)(&call, arguments);
                self.charges = Some((charges, context.room.take()));
                none.insert(rows?)
            }
        };
        while out.has_room(context, limit)? {
            let more = out.push_with(|values| {
                let more = rows.next(context, values)?;
                if more && self.ordinality {
                    self.count += 1;
                    values.push(Value::Int(self.count));
                }
                Ok(more)
            })?;
            if !more {
                self.done = true;
                self.rows = None;
                self.charges = None;
                break;
            }
        }
        Ok(!out.is_empty())
    }

    fn rewind(&mut self, _: &Context<'_>) -> Result<()> {
        self.rows = None;
        self.charges = None;
        self.count = 0;
        self.done = false;
        Ok(())
    }
}

/// Rows of a table of the system.
#[derive(Debug)]
pub(super) struct SystemScan {
    node: usize,
    table: &'static SystemTable,
    columns: Vec<usize>,
    filter: Option<Expr>,
    /// What is wanted of all rows, one behind the other, once they were computed. It stays through rewinds: a statement sees one catalog.
    values: Option<Vec<Value>>,
    /// How many rows there are.
    rows: usize,
    next: usize,
    memory: super::memory::Memory,
}

impl SystemScan {
    pub(super) fn new(
        node: usize,
        table: &'static SystemTable,
        columns: &[usize],
        filter: Option<&Expr>,
    ) -> Self {
        SystemScan {
            node,
            table,
            columns: columns.to_vec(),
            filter: filter.cloned(),
            values: None,
            rows: 0,
            next: 0,
            memory: super::memory::Memory::default(),
        }
    }

    /// Computes all rows, and charges what is kept of them as they come.
    fn compute(&mut self, context: &Context<'_>) -> Result<Vec<Value>> {
        let SystemScan { table, columns, rows, memory, .. } = self;
        let (mut values, mut held) = (Vec::new(), 0);
        *rows = 0;
        (table.rows)(context, &mut |mut row| {
            let start = values.len();
            values.extend(columns.iter().map(|&column| std::mem::take(&mut row[column])));
            held += super::row_bytes(&values[start..]) - size_of_val(&values[start..]);
            *rows += 1;
            if rows.is_multiple_of(super::CHECK_EVERY) {
                context.check()?;
            }
            memory.demand(context, held + values.capacity() * size_of::<Value>())
        })?;
        Ok(values)
    }
}

impl Operator for SystemScan {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.columns.len());
        context.check()?;
        let computed = match self.values.take() {
            Some(values) => values,
            None => self.compute(context)?,
        };
        let (all, width) = (self.values.insert(computed), self.columns.len());
        let mut removed = 0;
        while self.next < self.rows && out.has_room(context, limit)? {
            let row = &all[self.next * width..][..width];
            self.next += 1;
            let kept = out.push_with(|values| {
                let start = values.len();
                values.extend_from_slice(row);
                match &self.filter {
                    Some(filter) => filter.is_true(&values[start..], context),
                    None => Ok(true),
                }
            })?;
            removed += u64::from(!kept);
        }
        context.note(self.node, |profile| profile.rows_removed += removed);
        Ok(!out.is_empty())
    }

    fn rewind(&mut self, _: &Context<'_>) -> Result<()> {
        self.next = 0;
        Ok(())
    }
}
