//! Simpler expressions of the same meaning: constants computed, AND and OR flattened, NOT pushed down to the comparisons.
//!
//! An expression that fails is left as it is: it may never be run.

use super::Estimator;
use super::compile::compile_constant;
use super::scalar::{constant, literal_bool, mirrored, negated, null, same_value, strip_mut};
use crate::functions::Volatility;
use crate::logical::walk::parts_mut;
use crate::logical::{Columns, Comparison, Scalar, is_volatile, type_of};
use crate::types::{Type, Value};
use crate::{Error, Result, SqlState, effort};
use std::cmp::Ordering;

/// How deep expressions and queries may be nested: what is planned also has to be run, on two megabytes of stack.
const MAX_DEPTH: usize = 500;

/// Simplifies expressions.
pub(super) struct Simplifier<'a> {
    pub(super) columns: &'a Columns,
    pub(super) estimator: &'a dyn Estimator,
    pub(super) depth: usize,
}

impl Simplifier<'_> {
    /// One step deeper into the statement.
    pub(super) fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded"));
        }
        Ok(())
    }

    /// One step out again.
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Simplifies an expression. Queries within subqueries are not touched.
    pub(super) fn simplify(&mut self, scalar: &mut Scalar) -> Result<()> {
        match scalar {
            Scalar::Literal { .. } | Scalar::Column(_) | Scalar::Parameter { .. } | Scalar::Held { .. } => {
                return Ok(());
            }
            _ => {}
        }
        self.enter()?;
        let mut result = Ok(());
        parts_mut(scalar, &mut |part| {
            if result.is_ok() {
                result = self.simplify(part);
            }
        });
        result?;
        if let Some(simpler) = self.step(scalar)? {
            *scalar = simpler;
        }
        self.leave();
        Ok(())
    }

    /// A simpler expression, if there is one; the parts are simple already.
    fn step(&mut self, scalar: &mut Scalar) -> Result<Option<Scalar>> {
        Ok(match scalar {
            Scalar::And(list) => simplify_list(std::mem::take(list), true),
            Scalar::Or(list) => simplify_list(std::mem::take(list), false),
            Scalar::Not(inner) => self.not(std::mem::replace(inner, null(Type::Bool)))?,
            Scalar::Compare { op, left, right } => {
                strip_mut(left, self.columns);
                strip_mut(right, self.columns);
                if constant(left).is_some() && constant(right).is_none() {
                    std::mem::swap(left, right);
                    *op = mirrored(*op);
                }
                compare(*op, left, right)
            }
            Scalar::InList { argument, list } => {
                strip_mut(argument, self.columns);
                list.iter_mut().for_each(|item| strip_mut(item, self.columns));
                in_list(argument, list)
            }
            Scalar::Quantified { argument, .. } => {
                if argument_is_stripped(argument) {
                    strip_mut(argument, self.columns);
                }
                None
            }
            Scalar::IsNull(argument) => constant(argument).map(|value| literal_bool(value.is_null())),
            Scalar::IsBool { argument, value } => {
                constant(argument).map(|constant| literal_bool(constant.as_bool() == Some(*value)))
            }
            Scalar::Case { branches, otherwise, .. } => simplify_case(branches, otherwise),
            Scalar::Coalesce { arguments, ty } => coalesce(arguments, *ty),
            Scalar::Call { function, arguments, ty } => {
                if function.strict && arguments.iter().any(|part| constant(part).is_some_and(Value::is_null))
                {
                    Some(null(*ty))
                } else if function.volatility == Volatility::Immutable && all_constant(arguments) {
                    self.compute(scalar)?
                } else {
                    None
                }
            }
            Scalar::Cast { argument, ty, modifier, explicit } => match constant(argument) {
                Some(Value::Null) => Some(null(*ty)),
                Some(value) if cast_is_immutable(type_of(argument, self.columns), *ty) => {
                    let from = type_of(argument, self.columns);
                    let style = crate::types::text::TextStyle::default();
                    crate::types::cast::cast(value.clone(), from, *ty, *modifier, *explicit, &style)
                        .ok()
                        .map(|value| Scalar::Literal { value, ty: *ty })
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// Has a function of constants computed.
    fn compute(&self, scalar: &Scalar) -> Result<Option<Scalar>> {
        let Some(expr) = compile_constant(scalar, self.columns) else { return Ok(None) };
        let value = self.estimator.constant(&expr);
        // It may have failed because the statement is to end.
        effort::look()?;
        Ok(value.map(|value| Scalar::Literal { value, ty: type_of(scalar, self.columns) }))
    }

    fn not(&mut self, inner: Scalar) -> Result<Option<Scalar>> {
        Ok(Some(match inner {
            Scalar::Not(inner) => *inner,
            Scalar::Literal { value: Value::Bool(value), .. } => literal_bool(!value),
            Scalar::Literal { value: Value::Null, .. } => null(Type::Bool),
            Scalar::Compare { op, left, right } => Scalar::Compare { op: negated(op), left, right },
            Scalar::And(list) => {
                simplify_list(self.not_all(list)?, false).unwrap_or_else(|| literal_bool(false))
            }
            Scalar::Or(list) => {
                simplify_list(self.not_all(list)?, true).unwrap_or_else(|| literal_bool(true))
            }
            Scalar::Quantified { argument, op, array, all } if !is_never_null(op) => {
                Scalar::Quantified { argument, op: negated(op), array, all: !all }
            }
            other => Scalar::Not(Box::new(other)),
        }))
    }

    fn not_all(&mut self, list: Vec<Scalar>) -> Result<Vec<Scalar>> {
        self.enter()?;
        let list = list
            .into_iter()
            .map(|part| Ok(self.not(part)?.unwrap_or_else(|| null(Type::Bool))))
            .collect::<Result<_>>();
        self.leave();
        list
    }
}

/// Elements of an array keep their type, so only casts that leave the variant alone may go; all that [`strip_mut`] drops do.
fn argument_is_stripped(argument: &Scalar) -> bool {
    matches!(argument, Scalar::Cast { .. })
}

fn is_never_null(op: Comparison) -> bool {
    matches!(op, Comparison::Distinct | Comparison::NotDistinct)
}

fn all_constant(list: &[Scalar]) -> bool {
    list.iter().all(|part| constant(part).is_some())
}

/// AND (`and`) or OR of simple conditions.
fn simplify_list(list: Vec<Scalar>, and: bool) -> Option<Scalar> {
    let mut flat = Vec::with_capacity(list.len());
    let mut unknown = false;
    for part in list {
        match part {
            Scalar::And(inner) if and => flat.extend(inner),
            Scalar::Or(inner) if !and => flat.extend(inner),
            Scalar::Literal { value: Value::Bool(value), .. } if value == and => {}
            // One FALSE decides an AND, one TRUE an OR; what stands beside it may fail only if it were computed first.
            Scalar::Literal { value: Value::Bool(value), .. } => return Some(literal_bool(value)),
            Scalar::Literal { value: Value::Null, .. } => unknown = true,
            other => flat.push(other),
        }
    }
    if unknown {
        flat.push(null(Type::Bool));
    }
    if !and {
        join_equalities(&mut flat);
    }
    Some(match flat.len() {
        0 => literal_bool(and),
        1 => flat.pop().unwrap_or_else(|| literal_bool(and)),
        _ if and => Scalar::And(flat),
        _ => factor(flat),
    })
}

/// `a = 1 OR a = 2` is `a IN (1, 2)`.
fn join_equalities(list: &mut Vec<Scalar>) {
    if list.len() < 2 {
        return;
    }
    let mut result: Vec<Scalar> = Vec::with_capacity(list.len());
    for part in list.drain(..) {
        let (column, mut values) = match part {
            Scalar::Compare { op: Comparison::Equal, left, right }
                if matches!(*left, Scalar::Column(_)) && is_value(&right) =>
            {
                (left, vec![*right])
            }
            Scalar::InList { argument, list }
                if matches!(*argument, Scalar::Column(_)) && list.iter().all(is_value) =>
            {
                (argument, list)
            }
            other => {
                result.push(other);
                continue;
            }
        };
        let known = result.iter_mut().find_map(|other| match other {
            Scalar::InList { argument, list } if same_value(argument, &column) => Some(list),
            _ => None,
        });
        match known {
            Some(list) => list.append(&mut values),
            None => result.push(Scalar::InList { argument: column, list: values }),
        }
    }
    for part in &mut result {
        if let Scalar::InList { argument, list } = part
            && list.len() == 1
            && let Some(only) = list.pop()
        {
            let left = std::mem::replace(argument, Box::new(null(Type::Unknown)));
            *part = Scalar::Compare { op: Comparison::Equal, left, right: Box::new(only) };
        }
    }
    *list = result;
}

fn is_value(scalar: &Scalar) -> bool {
    matches!(scalar, Scalar::Literal { .. } | Scalar::Parameter { .. })
}

/// `(a AND x) OR (a AND y)` is `a AND (x OR y)`: conditions common to all branches come out, where they may bound an index or join tables.
fn factor(branches: Vec<Scalar>) -> Scalar {
    let Some(Scalar::And(first)) = branches.first() else { return Scalar::Or(branches) };
    let common: Vec<Scalar> = first
        .iter()
        .filter(|part| {
            !is_volatile(part)
                && branches[1..].iter().all(|branch| match branch {
                    Scalar::And(list) => list.iter().any(|other| same_value(part, other)),
                    other => same_value(part, other),
                })
        })
        .cloned()
        .collect();
    if common.is_empty() {
        return Scalar::Or(branches);
    }
    let mut rest = Vec::with_capacity(branches.len());
    for branch in branches {
        let Scalar::And(mut list) = branch else { return Scalar::And(common) };
        list.retain(|part| !common.iter().any(|other| same_value(part, other)));
        match list.len() {
            0 => return Scalar::And(common),
            1 => rest.extend(list),
            _ => rest.push(Scalar::And(list)),
        }
    }
    let mut all = common;
    match simplify_list(rest, false) {
        Some(Scalar::And(more)) => all.extend(more),
        Some(other) => all.push(other),
        None => {}
    }
    Scalar::And(all)
}

/// A comparison of constants.
fn compare(op: Comparison, left: &Scalar, right: &Scalar) -> Option<Scalar> {
    let (a, b) = (constant(left), constant(right));
    let null_side = a.is_some_and(Value::is_null) || b.is_some_and(Value::is_null);
    if null_side && !is_never_null(op) {
        return Some(null(Type::Bool));
    }
    let (a, b) = (a?, b?);
    // What cannot be compared fails when it is run.
    Some(literal_bool(holds(op, a.compare(b).ok()?)))
}

/// Whether a comparison with this outcome is true.
pub(super) fn holds(op: Comparison, order: Ordering) -> bool {
    match op {
        Comparison::Equal | Comparison::NotDistinct => order.is_eq(),
        Comparison::NotEqual | Comparison::Distinct => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

fn in_list(argument: &mut Scalar, list: &mut Vec<Scalar>) -> Option<Scalar> {
    // What is computed for the list may fail, or be there for what it does.
    if constant(argument).is_some_and(Value::is_null) && !list.is_empty() && all_constant(list) {
        return Some(null(Type::Bool));
    }
    if list.len() == 1 {
        let only = list.pop()?;
        let left = std::mem::replace(argument, null(Type::Unknown));
        let folded = compare(Comparison::Equal, &left, &only);
        return Some(folded.unwrap_or_else(|| Scalar::Compare {
            op: Comparison::Equal,
            left: Box::new(left),
            right: Box::new(only),
        }));
    }
    let value = constant(argument)?;
    if !all_constant(list) {
        return None;
    }
    let values: Vec<&Value> = list.iter().filter_map(constant).collect();
    Some(if values.iter().any(|item| !item.is_null() && *item == value) {
        literal_bool(true)
    } else if values.iter().any(|item| item.is_null()) {
        null(Type::Bool)
    } else {
        literal_bool(false)
    })
}

fn simplify_case(branches: &mut Vec<(Scalar, Scalar)>, otherwise: &mut Scalar) -> Option<Scalar> {
    branches.retain(|(condition, _)| constant(condition).is_none_or(|value| value.as_bool() == Some(true)));
    if let Some(sure) = branches.iter().position(|(condition, _)| constant(condition).is_some()) {
        branches.truncate(sure + 1);
        if let Some((_, value)) = branches.pop() {
            *otherwise = value;
        }
    }
    branches.is_empty().then(|| std::mem::replace(otherwise, null(Type::Unknown)))
}

fn coalesce(arguments: &mut Vec<Scalar>, ty: Type) -> Option<Scalar> {
    arguments.retain(|part| !constant(part).is_some_and(Value::is_null));
    if let Some(sure) = arguments.iter().position(|part| constant(part).is_some()) {
        arguments.truncate(sure + 1);
    }
    match arguments.len() {
        0 => Some(null(ty)),
        1 => arguments.pop(),
        _ => None,
    }
}

/// Whether a conversion depends on no setting: dates, byte strings, floating point and names of objects do.
fn cast_is_immutable(from: Type, to: Type) -> bool {
    let plain = |ty: Type| {
        ty.is_integer()
            || matches!(
                ty,
                Type::Bool | Type::Numeric | Type::Text | Type::Varchar | Type::Bpchar | Type::Name
            )
    };
    let number = |ty: Type| ty.is_integer() || matches!(ty, Type::Numeric | Type::Float4 | Type::Float8);
    from == to && (plain(from) || number(from))
        || plain(from) && plain(to)
        || number(from) && number(to)
        || from.is_string() && number(to)
        || from == Type::Date && to == Type::Timestamp
}
