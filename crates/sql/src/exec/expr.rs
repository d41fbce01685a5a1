//! Computing expressions.
//!
//! # Guarantees
//! 1. NULL goes by SQL's rules: AND, OR, NOT and comparisons know three truth values, a strict function is not called with NULL,
//!    but all its arguments are computed: one of them may fail, or draw a number.
//! 2. What does not decide the result is not computed: AND and OR stop at the first operand that settles them, CASE and COALESCE at the first
//!    that applies.
//! 3. Columns, constants and parameters are borrowed, and conditions on them are decided without making values: a comparison
//!    of integers costs a few instructions.
//! 4. A large value that is made is charged to the budget, whatever made it: see [`Computed`].

use super::computed::{Charge, Computed, LARGE_BYTES, Made, RowCharges};
use super::{Context, memory};
use crate::functions::{Call, Function};
use crate::logical::Comparison;
use crate::physical::Expr;
use crate::types::{Array, Record, Type, Value, cast};
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use std::cmp::Ordering;
use std::sync::Arc;

/// Elements of an array after which it is looked whether the statement was cancelled.
const ELEMENTS: usize = 4096;

impl Expr {
    /// The value of the expression for a row.
    #[inline]
    pub fn eval<'a>(&'a self, row: &'a [Value], context: &'a Context<'_>) -> Result<Computed<'a>> {
        match self.direct(row, context) {
            Some(value) => Ok(Computed::There(value)),
            None => self.compute(row, context),
        }
    }

    /// Whether a condition is true: neither false nor NULL.
    #[inline]
    pub fn is_true(&self, row: &[Value], context: &Context<'_>) -> Result<bool> {
        Ok(self.truth(row, context)? == Some(true))
    }

    /// The truth value of a condition; `None` for NULL.
    #[inline(never)]
    pub(super) fn truth(&self, row: &[Value], context: &Context<'_>) -> Result<Option<bool>> {
        match self {
            Expr::Compare { op, left, right } => {
                if let (Some(left), Some(right)) = (left.direct(row, context), right.direct(row, context)) {
                    return compare(*op, left, right);
                }
                compare_computed(*op, left, right, row, context)
            }
            Expr::And(operands) => decide(operands, false, row, context),
            Expr::Or(operands) => decide(operands, true, row, context),
            Expr::Not(operand) => Ok(operand.truth(row, context)?.map(|value| !value)),
            Expr::IsNull(operand) => is_null(operand, row, context).map(Some),
            Expr::IsBool { argument, value } => Ok(Some(argument.truth(row, context)? == Some(*value))),
            Expr::CompareRows { op, left, right } => compare_rows(*op, left, right, row, context),
            Expr::InSet { argument, set, null } => in_set(argument, set, *null, row, context),
            Expr::InList { argument, list } => in_list(argument, list, row, context),
            Expr::Quantified { argument, op, array, all } => {
                quantified(argument, *op, array, *all, row, context)
            }
            other => other.boolean(row, context),
        }
    }

    #[inline(never)]
    fn boolean(&self, row: &[Value], context: &Context<'_>) -> Result<Option<bool>> {
        Ok(self.eval(row, context)?.as_bool())
    }

    /// The value where it is there already.
    #[inline]
    fn direct<'a>(&'a self, row: &'a [Value], context: &'a Context<'_>) -> Option<&'a Value> {
        match self {
            Expr::Column(column) => Some(&row[*column]),
            Expr::Literal(value) => Some(value),
            Expr::Parameter(index) => Some(&context.parameters[*index]),
            _ => None,
        }
    }

    /// Whether there is nothing to be computed.
    fn is_there(&self) -> bool {
        matches!(self, Expr::Column(_) | Expr::Literal(_) | Expr::Parameter(_) | Expr::Slot(_))
    }

    /// What is not there already. Each kind that needs memory of its own on the stack has a function of its own: expressions nest deeply.
    #[inline(never)]
    fn compute<'a>(&'a self, row: &'a [Value], context: &'a Context<'_>) -> Result<Computed<'a>> {
        match self {
            Expr::Literal(_) | Expr::Column(_) | Expr::Parameter(_) => {
                self.direct(row, context).map(Computed::There).ok_or_else(|| Error::internal("no value"))
            }
            Expr::Slot(_) | Expr::Held => self.kept(context),
            Expr::Call { function, arguments, types, ty } => {
                call(function, arguments, types, *ty, row, context)
            }
            Expr::Cast { .. } => self.convert(row, context),
            Expr::Hold { value, body } => hold(value, body, row, context),
            Expr::Case { branches, otherwise } => {
                for (condition, value) in branches {
                    if condition.is_true(row, context)? {
                        return value.eval(row, context);
                    }
                }
                otherwise.eval(row, context)
            }
            Expr::Coalesce(arguments) => coalesce(arguments, row, context),
            Expr::Extreme { arguments, greatest } => extreme(arguments, *greatest, row, context),
            Expr::Array { elements, element } => array(elements, *element, row, context),
            Expr::Subscript { array, index } => subscript(array, index, row, context),
            Expr::Row { elements, types } => record(elements, types, row, context),
            Expr::Subquery { .. } => self.subquery(row, context),
            Expr::And(_)
            | Expr::Or(_)
            | Expr::Not(_)
            | Expr::Compare { .. }
            | Expr::CompareRows { .. }
            | Expr::IsNull(_)
            | Expr::IsBool { .. }
            | Expr::InList { .. }
            | Expr::InSet { .. }
            | Expr::Quantified { .. } => self.decided(row, context),
        }
    }

    #[inline(never)]
    fn decided<'a>(&'a self, row: &'a [Value], context: &'a Context<'_>) -> Result<Computed<'a>> {
        Ok(boolean(self.truth(row, context)?).into())
    }

    /// A value that the context keeps.
    #[inline(never)]
    fn kept<'a>(&'a self, context: &'a Context<'_>) -> Result<Computed<'a>> {
        let kept = match self {
            Expr::Slot(slot) => Made::copy(&context.slots.borrow()[*slot], context),
            _ => Made::copy(&context.held.borrow(), context),
        };
        kept.map(Computed::Made)
    }

    #[inline(never)]
    fn convert(&self, row: &[Value], context: &Context<'_>) -> Result<Computed<'static>> {
        match self {
            Expr::Cast { argument, .. } => self.converted(argument.eval(row, context)?, context),
            _ => Err(Error::internal("not a cast")),
        }
    }

    #[inline(never)]
    fn converted(&self, value: Computed<'_>, context: &Context<'_>) -> Result<Computed<'static>> {
        let Expr::Cast { from, to, modifier, explicit, .. } = self else {
            return Err(Error::internal("not a cast"));
        };
        if value.is_null() {
            return Ok(Value::Null.into());
        }
        let (value, charge) = value.keep(context)?.into_parts();
        let style = &context.session.style;
        let fresh = cast::fresh_bytes(&value, *to, *modifier, style);
        let convert = || cast::cast(value, *from, *to, *modifier, *explicit, style);
        if fresh <= LARGE_BYTES {
            // What is large stays the same memory, and its charge is the result's.
            return Made::with_room(convert()?, charge, context).map(Computed::Made);
        }
        memory::await_room(context, fresh)?;
        let room = context.session.engine.memory(Purpose::Work, fresh as u64)?;
        Made::with_room(convert()?, Some(Box::new(room)), context).map(Computed::Made)
    }

    #[inline(never)]
    fn subquery(&self, row: &[Value], context: &Context<'_>) -> Result<Computed<'static>> {
        match self {
            Expr::Subquery { subplan, bind, kind } => {
                context.subplans.value(*subplan, bind, kind, row, context).map(Computed::Made)
            }
            _ => Err(Error::internal("not a subquery")),
        }
    }
}

/// The values of some expressions, and what they are charged as.
#[inline(never)]
pub(super) fn eval_all(
    exprs: &[Expr],
    row: &[Value],
    context: &Context<'_>,
) -> Result<(Vec<Value>, RowCharges)> {
    let mut values = Vec::with_capacity(exprs.len());
    let charges = eval_into(exprs, row, context, &mut values)?;
    Ok((values, charges))
}

/// Appends the values of some expressions. Gives what they are charged as, until somebody else has charged them.
#[inline(never)]
pub(super) fn eval_into(
    exprs: &[Expr],
    row: &[Value],
    context: &Context<'_>,
    out: &mut Vec<Value>,
) -> Result<RowCharges> {
    let mut charges = RowCharges::default();
    for expr in exprs {
        out.push(expr.eval(row, context)?.into_row(context, &mut charges)?);
    }
    Ok(charges)
}

/// A truth value as a value.
pub(super) fn boolean(value: Option<bool>) -> Value {
    value.map_or(Value::Null, Value::Bool)
}

/// How two values compare; `None` for NULL.
#[inline]
pub(super) fn compare(op: Comparison, left: &Value, right: &Value) -> Result<Option<bool>> {
    if let (Value::Int(left), Value::Int(right)) = (left, right) {
        return Ok(Some(holds(op, left.cmp(right))));
    }
    let null = left.is_null() || right.is_null();
    if null && !matches!(op, Comparison::Distinct | Comparison::NotDistinct) {
        return Ok(None);
    }
    Ok(Some(holds(op, left.compare(right)?)))
}

#[inline]
fn holds(op: Comparison, order: Ordering) -> bool {
    match op {
        Comparison::Equal | Comparison::NotDistinct => order == Ordering::Equal,
        Comparison::NotEqual | Comparison::Distinct => order != Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterOrEqual => order != Ordering::Less,
    }
}

/// Computes the value, then the body over it. Whatever the body of an outer one holds is there again afterwards.
#[inline(never)]
fn hold<'a>(
    value: &'a Expr,
    body: &'a Expr,
    row: &'a [Value],
    context: &'a Context<'_>,
) -> Result<Computed<'a>> {
    let outer = begin_hold(value, row, context)?;
    let result = body.eval(row, context);
    context.held.replace(outer);
    result
}

#[inline(never)]
fn begin_hold(value: &Expr, row: &[Value], context: &Context<'_>) -> Result<Made> {
    Ok(context.held.replace(value.eval(row, context)?.keep(context)?))
}

/// AND (`decisive`: false) or OR (`decisive`: true).
fn decide(operands: &[Expr], decisive: bool, row: &[Value], context: &Context<'_>) -> Result<Option<bool>> {
    let mut result = Some(!decisive);
    for operand in operands {
        match operand.truth(row, context)? {
            Some(value) if value == decisive => return Ok(Some(decisive)),
            Some(_) => {}
            None => result = None,
        }
    }
    Ok(result)
}

#[inline(never)]
fn compare_rows(
    op: Comparison,
    left: &[Expr],
    right: &[Expr],
    row: &[Value],
    context: &Context<'_>,
) -> Result<Option<bool>> {
    if left.len() != right.len() {
        return Err(Error::internal("rows of unequal length"));
    }
    let mut comparison = RowComparison::new(op);
    for (left, right) in left.iter().zip(right) {
        let left = left.eval(row, context)?;
        let right = right.eval(row, context)?;
        if comparison.next(&left, &right)? {
            break;
        }
    }
    Ok(comparison.result())
}

/// A comparison of two rows, pair by pair.
pub(super) struct RowComparison {
    op: Comparison,
    null: bool,
    order: Ordering,
}

impl RowComparison {
    pub(super) fn new(op: Comparison) -> Self {
        RowComparison { op, null: false, order: Ordering::Equal }
    }

    /// Takes the next pair; true when no further one matters.
    pub(super) fn next(&mut self, left: &Value, right: &Value) -> Result<bool> {
        let null = left.is_null() || right.is_null();
        match self.op {
            Comparison::Equal | Comparison::NotEqual if null => self.null = true,
            Comparison::Less | Comparison::LessOrEqual | Comparison::Greater | Comparison::GreaterOrEqual
                if null =>
            {
                // What would decide is unknown.
                self.null = true;
                return Ok(true);
            }
            _ => self.order = left.compare(right)?,
        }
        Ok(self.order != Ordering::Equal)
    }

    pub(super) fn result(&self) -> Option<bool> {
        // A pair that differs decides equality, whatever the others are; of an order, an unknown pair before it does.
        if self.null && self.order == Ordering::Equal {
            return None;
        }
        Some(holds(self.op, self.order))
    }
}

#[inline(never)]
fn compare_computed(
    op: Comparison,
    left: &Expr,
    right: &Expr,
    row: &[Value],
    context: &Context<'_>,
) -> Result<Option<bool>> {
    compare(op, &*left.eval(row, context)?, &*right.eval(row, context)?)
}

#[inline(never)]
fn is_null(operand: &Expr, row: &[Value], context: &Context<'_>) -> Result<bool> {
    Ok(operand.eval(row, context)?.is_null())
}

#[inline(never)]
fn in_set(
    argument: &Expr,
    set: &[Value],
    null: bool,
    row: &[Value],
    context: &Context<'_>,
) -> Result<Option<bool>> {
    let argument = &*argument.eval(row, context)?;
    let found = match argument {
        Value::Null => return Ok(None),
        Value::Int(wanted) => set
            .binary_search_by(|value| match value {
                Value::Int(value) => value.cmp(wanted),
                other => other.total_cmp(argument),
            })
            .is_ok(),
        _ => set.binary_search_by(|value| value.total_cmp(argument)).is_ok(),
    };
    Ok(if !found && null { None } else { Some(found) })
}

#[inline(never)]
fn in_list(argument: &Expr, list: &[Expr], row: &[Value], context: &Context<'_>) -> Result<Option<bool>> {
    let argument = argument.eval(row, context)?;
    // NULL equals none of them, but they are computed as by any strict function.
    let mut result = if argument.is_null() { None } else { Some(false) };
    for candidate in list {
        // PostgreSQL makes an array of them first: those behind the one that is found are computed as well.
        if result == Some(true) {
            if !candidate.is_there() {
                candidate.eval(row, context)?;
            }
            continue;
        }
        match compare(Comparison::Equal, &argument, &*candidate.eval(row, context)?)? {
            Some(false) => {}
            other => result = other,
        }
    }
    Ok(result)
}

#[inline(never)]
fn quantified(
    argument: &Expr,
    op: Comparison,
    array: &Expr,
    all: bool,
    row: &[Value],
    context: &Context<'_>,
) -> Result<Option<bool>> {
    let array = array.eval(row, context)?;
    let argument = argument.eval(row, context)?;
    let array = match &*array {
        Value::Array(array) => array,
        Value::Null => return Ok(None),
        _ => return Err(Error::internal("ANY of what is no array")),
    };
    let mut result = Some(all);
    for elements in array.values.chunks(ELEMENTS) {
        context.check()?;
        for element in elements {
            match compare(op, &argument, element)? {
                Some(value) if value != all => return Ok(Some(value)),
                Some(_) => {}
                None => result = None,
            }
        }
    }
    Ok(result)
}

#[inline(never)]
fn subscript(array: &Expr, index: &Expr, row: &[Value], context: &Context<'_>) -> Result<Computed<'static>> {
    let array = array.eval(row, context)?;
    let index = index.eval(row, context)?;
    let (Value::Array(array), Value::Int(index)) = (&*array, &*index) else { return Ok(Value::Null.into()) };
    let element = index
        .checked_sub(i64::from(array.lower))
        .and_then(|offset| usize::try_from(offset).ok())
        .and_then(|offset| array.values.get(offset));
    element.map_or(Ok(Value::Null.into()), |element| Made::copy(element, context).map(Computed::Made))
}

#[inline(never)]
fn array(
    elements: &[Expr],
    element: Type,
    row: &[Value],
    context: &Context<'_>,
) -> Result<Computed<'static>> {
    let (values, mut charges) = eval_all(elements, row, context)?;
    charges.clear();
    Made::new(Value::Array(Arc::new(Array { element, values, lower: 1 })), context).map(Computed::Made)
}

#[inline(never)]
fn record(
    elements: &[Expr],
    types: &Arc<[Type]>,
    row: &[Value],
    context: &Context<'_>,
) -> Result<Computed<'static>> {
    let (values, mut charges) = eval_all(elements, row, context)?;
    charges.clear();
    Made::new(Value::Record(Arc::new(Record { types: Arc::clone(types), values })), context)
        .map(Computed::Made)
}

#[inline(never)]
fn coalesce<'a>(arguments: &'a [Expr], row: &'a [Value], context: &'a Context<'_>) -> Result<Computed<'a>> {
    for argument in arguments {
        let value = argument.eval(row, context)?;
        if !value.is_null() {
            return Ok(value);
        }
    }
    Ok(Value::Null.into())
}

#[inline(never)]
fn extreme<'a>(
    arguments: &'a [Expr],
    greatest: bool,
    row: &'a [Value],
    context: &'a Context<'_>,
) -> Result<Computed<'a>> {
    let beaten = if greatest { Ordering::Less } else { Ordering::Greater };
    let mut best: Computed<'a> = Value::Null.into();
    for argument in arguments {
        let value = argument.eval(row, context)?;
        if !value.is_null() && (best.is_null() || best.compare(&value)? == beaten) {
            best = value;
        }
    }
    Ok(best)
}

/// Calls a function. The arguments of the usual ones stand on the stack.
#[inline(never)]
fn call(
    function: &Function,
    arguments: &[Expr],
    types: &[Type],
    ty: Type,
    row: &[Value],
    context: &Context<'_>,
) -> Result<Computed<'static>> {
    let call = Call { context, types, ty };
    match arguments {
        [] => apply(function, &call, &[]),
        [one] => {
            let one = one.eval(row, context)?;
            if function.strict && one.is_null() {
                return Ok(Value::Null.into());
            }
            apply(function, &call, std::slice::from_ref(&*one))
        }
        [one, two] => {
            let one = one.eval(row, context)?;
            if function.strict && one.is_null() {
                if !two.is_there() {
                    two.eval(row, context)?;
                }
                return Ok(Value::Null.into());
            }
            let two = two.eval(row, context)?;
            if function.strict && two.is_null() {
                return Ok(Value::Null.into());
            }
            apply_to_two(function, &call, one, two)
        }
        _ => call_with_many(function, &call, arguments, row, context),
    }
}

/// What a function makes of two arguments.
#[inline(never)]
fn apply_to_two(
    function: &Function,
    call: &Call<'_, '_>,
    one: Computed<'_>,
    two: Computed<'_>,
) -> Result<Computed<'static>> {
    let (one, _one_charge) = one.keep(call.context)?.into_parts();
    let (two, _two_charge) = two.keep(call.context)?.into_parts();
    apply(function, call, &[one, two])
}

/// What a function makes of its arguments. The room that it asked for is its result's.
#[inline(never)]
fn apply(function: &Function, call: &Call<'_, '_>, arguments: &[Value]) -> Result<Computed<'static>> {
    // A function may take long, and a batch is hundreds of rows.
    call.context.check()?;
    let result = (function.body)(call, arguments);
    let room: Charge = call.context.room.take();
    Made::with_room(result?, room, call.context).map(Computed::Made)
}

#[inline(never)]
fn call_with_many(
    function: &Function,
    call: &Call<'_, '_>,
    arguments: &[Expr],
    row: &[Value],
    context: &Context<'_>,
) -> Result<Computed<'static>> {
    let mut values = Vec::with_capacity(arguments.len());
    let mut charges = RowCharges::default();
    let mut null = false;
    for argument in arguments {
        if null && argument.is_there() {
            continue;
        }
        let value = argument.eval(row, context)?.into_row(context, &mut charges)?;
        null |= function.strict && value.is_null();
        values.push(value);
    }
    if null { Ok(Value::Null.into()) } else { apply(function, call, &values) }
}
