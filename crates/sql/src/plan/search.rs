//! What conditions say about single columns, and comparisons of rows about several: the bounds of ranges.

use super::Planner;
use super::access::KeyColumn;
use super::columns::{ColumnSet, columns_of, free_of_query};
use super::path::Condition;
use super::scalar::{constant, mirrored, strip};
use crate::functions::like::{behind, fixed_part};
use crate::functions::{Function, Volatility};
use crate::logical::walk::parts;
use crate::logical::{ColumnId, Comparison, Scalar, SubqueryKind, is_volatile, type_of};
use crate::types::{Type, Value};
use std::rc::Rc;

/// What a condition says about a column.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    Equal(Scalar),
    Lower(Scalar, bool),
    Upper(Scalar, bool),
    /// It begins as whatever matches this pattern of LIKE does.
    Like(Scalar),
    IsNull,
    NotNull,
    OneOf(Vec<Scalar>),
    OneOfArray(Scalar),
}

/// A condition that may bound an index.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// Which of the conditions.
    pub(super) condition: usize,
    pub(super) column: ColumnId,
    pub(super) bound: Bound,
    /// Whether the bound is all that the condition says.
    pub(super) exact: bool,
    /// Of a comparison of rows, whose bound says what it does of this column alone.
    pub(super) row: Option<Row>,
}

/// What a comparison of rows says besides of columns behind the first one: so far as they follow in a key in one direction, the rows are
/// compared as the key is.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The columns behind the first one, and what they are compared with.
    behind: Vec<(ColumnId, Scalar)>,
    /// Whether an equal row fulfils it.
    included: bool,
    /// Whether these are all the columns that are compared.
    is_all: bool,
}

/// A bound of the first columns of a key.
pub(super) struct RowBound {
    /// Values of as many columns.
    pub(super) values: Vec<Scalar>,
    pub(super) included: bool,
    /// Whether it is all that the condition says, of keys without NULLs.
    pub(super) exact: bool,
}

impl Search {
    /// How many columns behind the first one a key that begins with this column bounds.
    pub(super) fn reach(&self, key: &[KeyColumn]) -> usize {
        let follows = |((column, _), part): &(&(ColumnId, Scalar), &KeyColumn)| {
            *column == part.column && part.descending == key[0].descending
        };
        self.row.as_ref().map_or(0, |row| row.behind.iter().zip(&key[1..]).take_while(follows).count())
    }

    /// The bound of a key whose next columns it reaches so far over, of which the first one's is given.
    pub(super) fn bound(&self, first: &Scalar, included: bool, reach: usize) -> RowBound {
        let mut values = vec![first.clone()];
        match self.row.as_ref().filter(|_| reach > 0) {
            None => RowBound { values, included, exact: self.exact },
            Some(row) => {
                values.extend(row.behind[..reach].iter().map(|(_, value)| value.clone()));
                let exact = row.is_all && reach == row.behind.len();
                // Of rows that are equal so far the rest decides.
                RowBound { values, included: row.included || !exact, exact }
            }
        }
    }
}

/// LIKE, with its pattern in the second argument.
pub(super) fn is_like(function: &Function) -> bool {
    matches!(function.name, "textlike" | "like" | "namelike")
}

/// The expression is a constant for rows of these columns: it may bound a range.
fn is_constant_for(scalar: &Scalar, local: &ColumnSet) -> bool {
    match scalar {
        Scalar::Literal { .. } | Scalar::Parameter { .. } => true,
        Scalar::Column(id) => !local.contains(*id),
        other => !columns_of(other).intersects(local) && !is_volatile(other),
    }
}

/// Whether an expression for which [`is_constant_for`] holds but for what is volatile is so all the same, if it is compiled once: what is volatile
/// stands in subqueries that take nothing from outside, which are run at most once.
fn is_run_once(scalar: &Scalar, local: &ColumnSet) -> bool {
    fn is_fixed(scalar: &Scalar) -> bool {
        match scalar {
            Scalar::Subquery(subquery) => match subquery.kind {
                SubqueryKind::Quantified { .. } => !is_volatile(scalar),
                SubqueryKind::Scalar | SubqueryKind::Exists | SubqueryKind::Array(_) => {
                    free_of_query(&subquery.query).is_empty() || !is_volatile(scalar)
                }
            },
            Scalar::Call { function, .. } if function.volatility == Volatility::Volatile => false,
            _ => {
                let mut fixed = true;
                parts(scalar, &mut |part| fixed = fixed && is_fixed(part));
                fixed
            }
        }
    }
    !columns_of(scalar).intersects(local) && is_fixed(scalar)
}

/// Whether values of these types may be compared as they are, byte by byte of a key.
fn comparable(column: Type, other: Type) -> bool {
    let class = |ty: Type| match ty {
        ty if ty.is_integer() => 0,
        Type::Text | Type::Varchar | Type::Name | Type::Unknown => 1,
        Type::Float4 | Type::Float8 => 2,
        ty => 16 + ty.oid(),
    };
    class(column) == class(other)
}

impl Planner<'_> {
    /// What conditions say about columns of `local`.
    pub(super) fn searches(&self, conditions: &[Rc<Condition>], local: &ColumnSet) -> Vec<Search> {
        let mut out = Vec::new();
        for (position, condition) in conditions.iter().enumerate() {
            self.search(position, &condition.scalar, local, &mut out);
        }
        out
    }

    fn local_column(&self, scalar: &Scalar, local: &ColumnSet) -> Option<ColumnId> {
        match strip(scalar, &self.columns) {
            Scalar::Column(id) if local.contains(*id) => Some(*id),
            _ => None,
        }
    }

    fn search(&self, condition: usize, scalar: &Scalar, local: &ColumnSet, out: &mut Vec<Search>) {
        let mut push = |column, bound, exact| out.push(Search { condition, column, bound, exact, row: None });
        match scalar {
            Scalar::Column(id) if local.contains(*id) => {
                push(*id, Bound::Equal(super::scalar::literal_bool(true)), true);
            }
            Scalar::Not(inner) => match &**inner {
                Scalar::Column(id) if local.contains(*id) => {
                    push(*id, Bound::Equal(super::scalar::literal_bool(false)), true);
                }
                Scalar::IsNull(argument) => {
                    if let Some(id) = self.local_column(argument, local) {
                        push(id, Bound::NotNull, true);
                    }
                }
                _ => {}
            },
            Scalar::IsBool { argument, value } => {
                if let Some(id) = self.local_column(argument, local) {
                    push(id, Bound::Equal(super::scalar::literal_bool(*value)), true);
                }
            }
            Scalar::IsNull(argument) => {
                if let Some(id) = self.local_column(argument, local) {
                    push(id, Bound::IsNull, true);
                }
            }
            Scalar::Compare { op, left, right } => {
                for (side, other, op) in [(left, right, *op), (right, left, mirrored(*op))] {
                    // Of an exact bound nothing is left that would be compiled as well.
                    let fixed = is_constant_for(other, local) || is_run_once(other, local);
                    if let Some((id, bound)) = self.compared(op, side, other, local).filter(|_| fixed) {
                        push(id, bound, true);
                        break;
                    }
                }
            }
            Scalar::CompareRows { op, left, right } => {
                for (side, other, op) in [(left, right, *op), (right, left, mirrored(*op))] {
                    if let Some((column, bound, row)) = self.compared_rows(op, side, other, local) {
                        out.push(Search { condition, column, bound, exact: false, row: Some(row) });
                        break;
                    }
                }
            }
            Scalar::InList { argument, list } => {
                let Some(id) = self.local_column(argument, local) else { return };
                let ty = self.columns.get(id).ty;
                if list
                    .iter()
                    .all(|item| is_constant_for(item, local) && comparable(ty, type_of(item, &self.columns)))
                {
                    push(id, Bound::OneOf(list.clone()), true);
                }
            }
            Scalar::Quantified { argument, op: Comparison::Equal, array, all: false } => {
                let Some(id) = self.local_column(argument, local) else { return };
                let element = type_of(array, &self.columns).element();
                if is_constant_for(array, local)
                    && element.is_some_and(|element| comparable(self.columns.get(id).ty, element))
                {
                    push(id, Bound::OneOfArray((**array).clone()), true);
                }
            }
            Scalar::Call { function, arguments, .. } if is_like(function) && arguments.len() == 2 => {
                let Some(id) = self.local_column(&arguments[0], local) else { return };
                if !matches!(self.columns.get(id).ty, Type::Text | Type::Varchar | Type::Name) {
                    return;
                }
                match constant(&arguments[1]) {
                    Some(pattern) => {
                        if let Some(pattern) = pattern.as_str() {
                            prefix_bounds(pattern, |bound, exact| push(id, bound, exact));
                        }
                    }
                    None if is_constant_for(&arguments[1], local) => {
                        push(id, Bound::Like(arguments[1].clone()), false);
                    }
                    None => {}
                }
            }
            _ => {}
        }
    }

    /// What a comparison of rows says of its first column, and of those behind it.
    fn compared_rows(
        &self,
        op: Comparison,
        side: &[Scalar],
        other: &[Scalar],
        local: &ColumnSet,
    ) -> Option<(ColumnId, Bound, Row)> {
        // The first columns say at least this.
        let (weaker, included) = match op {
            Comparison::Less => (Comparison::LessOrEqual, false),
            Comparison::Greater => (Comparison::GreaterOrEqual, false),
            Comparison::LessOrEqual | Comparison::GreaterOrEqual => (op, true),
            _ => return None,
        };
        // What is not bounded is a filter, and nothing may be run twice.
        let mut pairs = side.iter().zip(other).map_while(|(side, other)| {
            is_constant_for(other, local).then(|| self.compared(weaker, side, other, local)).flatten()
        });
        let (column, bound) = pairs.next()?;
        let value_of = |(column, bound)| match bound {
            Bound::Lower(value, _) | Bound::Upper(value, _) => Some((column, value)),
            _ => None,
        };
        let behind: Vec<_> = pairs.map_while(value_of).collect();
        let is_all = behind.len() + 1 == side.len();
        Some((column, bound, Row { behind, included, is_all }))
    }

    /// What a comparison with something that is the same for all rows says.
    fn compared(
        &self,
        op: Comparison,
        side: &Scalar,
        other: &Scalar,
        local: &ColumnSet,
    ) -> Option<(ColumnId, Bound)> {
        let id = self.local_column(side, local)?;
        let other = strip(other, &self.columns);
        if !comparable(self.columns.get(id).ty, type_of(other, &self.columns)) {
            return None;
        }
        let value = || other.clone();
        Some((
            id,
            match op {
                Comparison::Equal => Bound::Equal(value()),
                Comparison::NotDistinct if constant(other).is_some_and(|value| !value.is_null()) => {
                    Bound::Equal(value())
                }
                Comparison::Less => Bound::Upper(value(), false),
                Comparison::LessOrEqual => Bound::Upper(value(), true),
                Comparison::Greater => Bound::Lower(value(), false),
                Comparison::GreaterOrEqual => Bound::Lower(value(), true),
                _ => return None,
            },
        ))
    }
}

/// The range that a LIKE pattern's fixed beginning is.
fn prefix_bounds(pattern: &str, mut push: impl FnMut(Bound, bool)) {
    let text = |text: String| Scalar::Literal { value: Value::text(text), ty: Type::Text };
    match fixed_part(pattern) {
        Some((fixed, true)) => push(Bound::Equal(text(fixed)), true),
        Some((fixed, false)) if !fixed.is_empty() => {
            let end = behind(&fixed);
            push(Bound::Lower(text(fixed), true), false);
            if let Some(end) = end {
                push(Bound::Upper(text(end), false), false);
            }
        }
        _ => {}
    }
}
