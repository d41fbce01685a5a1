//! What the planner tells of an expression without running it, such as whether it is NULL when a column is, and what it makes of it.

use super::columns::{ColumnSet, add_columns};
use crate::effort;
use crate::logical::walk::{any, inputs_mut, parts, parts_mut, scalars_mut, size};
use crate::logical::{ColumnId, Columns, Comparison, Query, Rel, Scalar, is_volatile, same, type_of};
use crate::types::{NO_MODIFIER, Type, Value};
use std::collections::HashMap;

/// A truth value.
pub(super) fn literal_bool(value: bool) -> Scalar {
    Scalar::Literal { value: Value::Bool(value), ty: Type::Bool }
}

/// NULL of a type.
pub(super) fn null(ty: Type) -> Scalar {
    Scalar::Literal { value: Value::Null, ty }
}

/// AND of conditions; `None` of none.
pub(super) fn conjunction(mut conditions: Vec<Scalar>) -> Option<Scalar> {
    match conditions.len() {
        0 => None,
        1 => conditions.pop(),
        _ => Some(Scalar::And(conditions)),
    }
}

/// Takes a condition apart at its ANDs.
pub(super) fn conjuncts(scalar: Scalar, out: &mut Vec<Scalar>) {
    match scalar {
        Scalar::And(list) => list.into_iter().for_each(|part| conjuncts(part, out)),
        other => out.push(other),
    }
}

/// The value, if the expression is a constant.
pub(super) fn constant(scalar: &Scalar) -> Option<&Value> {
    match scalar {
        Scalar::Literal { value, .. } => Some(value),
        _ => None,
    }
}

/// Whether an expression has a subquery.
pub(super) fn has_subquery(scalar: &Scalar) -> bool {
    any(scalar, &|part| matches!(part, Scalar::Subquery(_)))
}

/// Whether two expressions are sure to have one value: they are written alike, and nothing in them is volatile.
pub(super) fn same_value(a: &Scalar, b: &Scalar) -> bool {
    same(a, b) && !is_volatile(a)
}

/// A cast that changes no value, only its type: between strings without length, to wider integers, from any of the oid types to oid.
fn changes_nothing(from: Type, to: Type, modifier: i32) -> bool {
    use Type::{Int2, Int4, Int8, Name, Oid, Regclass, Regnamespace, Regproc, Regtype, Text, Varchar};
    modifier == NO_MODIFIER
        && match to {
            Text | Varchar => matches!(from, Text | Varchar | Name),
            Int4 => matches!(from, Int2 | Int4),
            Int8 => matches!(from, Int2 | Int4 | Int8 | Oid),
            Oid => matches!(from, Oid | Regclass | Regtype | Regnamespace | Regproc),
            _ => from == to,
        }
}

/// The expression without casts that change no value: what a comparison sees, and what an index may have.
pub(super) fn strip<'a>(scalar: &'a Scalar, columns: &Columns) -> &'a Scalar {
    match scalar {
        Scalar::Cast { argument, ty, modifier, .. }
            if changes_nothing(type_of(argument, columns), *ty, *modifier) =>
        {
            strip(argument, columns)
        }
        other => other,
    }
}

/// [`strip`], in place.
pub(super) fn strip_mut(scalar: &mut Scalar, columns: &Columns) {
    while let Scalar::Cast { argument, ty, modifier, .. } = scalar
        && changes_nothing(type_of(argument, columns), *ty, *modifier)
    {
        *scalar = std::mem::replace(argument, null(Type::Unknown));
    }
}

/// Whether the expression is NULL (or, where a truth value, not true) whenever all of `columns` are NULL.
pub(super) fn rejects_null(scalar: &Scalar, columns: &ColumnSet) -> bool {
    match scalar {
        Scalar::And(list) => list.iter().any(|part| rejects_null(part, columns)),
        Scalar::Or(list) => !list.is_empty() && list.iter().all(|part| rejects_null(part, columns)),
        Scalar::Not(inner) => match &**inner {
            Scalar::IsNull(argument) => is_null_with(argument, columns),
            other => is_null_with(other, columns),
        },
        Scalar::IsBool { argument, .. } => is_null_with(argument, columns),
        Scalar::Literal { value, .. } => value.as_bool() != Some(true),
        other => is_null_with(other, columns),
    }
}

/// Whether the expression is surely NULL when all of `columns` are.
pub(super) fn is_null_with(scalar: &Scalar, columns: &ColumnSet) -> bool {
    match scalar {
        Scalar::Literal { value, .. } => value.is_null(),
        Scalar::Column(id) => columns.contains(*id),
        Scalar::Call { function, arguments, .. } => {
            function.strict && arguments.iter().any(|part| is_null_with(part, columns))
        }
        Scalar::Cast { argument, .. } => is_null_with(argument, columns),
        Scalar::Not(argument) => is_null_with(argument, columns),
        Scalar::And(list) | Scalar::Or(list) => {
            !list.is_empty() && list.iter().all(|part| is_null_with(part, columns))
        }
        Scalar::Compare { op: Comparison::Distinct | Comparison::NotDistinct, .. } => false,
        Scalar::Compare { left, right, .. } => is_null_with(left, columns) || is_null_with(right, columns),
        Scalar::Coalesce { arguments, .. } | Scalar::Extreme { arguments, .. } => {
            arguments.iter().all(|part| is_null_with(part, columns))
        }
        Scalar::InList { argument, .. } => is_null_with(argument, columns),
        Scalar::Quantified { array, .. } => is_null_with(array, columns),
        Scalar::Subscript { array, index, .. } => {
            is_null_with(array, columns) || is_null_with(index, columns)
        }
        _ => false,
    }
}

/// Counts a definition that comes into the place of a column. The planner's next step passes an error on.
fn copied(definition: &Scalar) {
    let _ = effort::made(size(definition));
}

/// Columns put in the place of others throughout a statement.
#[derive(Debug, Default)]
pub(super) struct Substitution(pub(super) HashMap<ColumnId, Scalar>);

impl Substitution {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In an expression, subqueries included.
    pub(super) fn scalar(&self, scalar: &mut Scalar) {
        if let Scalar::Column(id) = scalar {
            if let Some(other) = self.0.get(id) {
                copied(other);
                *scalar = other.clone();
                // What was put in may have been defined by columns that were replaced too.
                self.scalar(scalar);
            }
            return;
        }
        parts_mut(scalar, &mut |part| self.scalar(part));
        if let Scalar::Subquery(subquery) = scalar {
            self.query(&mut subquery.query);
        }
    }

    /// In a query.
    pub(super) fn query(&self, query: &mut Query) {
        self.rel(&mut query.rel);
    }

    /// In a relation. Columns named in lists rather than in expressions stay as they are.
    pub(super) fn rel(&self, rel: &mut Rel) {
        scalars_mut(rel, &mut |scalar| self.scalar(scalar));
        inputs_mut(rel, &mut |input| self.rel(input));
    }
}

/// Puts the definitions of computed columns in their place. Only for columns of `definitions` themselves, not for what these refer to.
pub(super) fn inline(scalar: &mut Scalar, definitions: &[(ColumnId, Scalar)]) {
    if let Scalar::Column(id) = scalar {
        if let Some((_, definition)) = definitions.iter().find(|(column, _)| column == id) {
            copied(definition);
            *scalar = definition.clone();
        }
        return;
    }
    parts_mut(scalar, &mut |part| inline(part, definitions));
    if let Scalar::Subquery(subquery) = scalar {
        inline_rel(&mut subquery.query.rel, definitions);
    }
}

fn inline_rel(rel: &mut Rel, definitions: &[(ColumnId, Scalar)]) {
    scalars_mut(rel, &mut |scalar| inline(scalar, definitions));
    inputs_mut(rel, &mut |input| inline_rel(input, definitions));
}

/// The comparison with its sides exchanged.
pub(super) fn mirrored(op: Comparison) -> Comparison {
    match op {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        other => other,
    }
}

/// The comparison that holds when this one does not (NULL for NULL).
pub(super) fn negated(op: Comparison) -> Comparison {
    match op {
        Comparison::Equal => Comparison::NotEqual,
        Comparison::NotEqual => Comparison::Equal,
        Comparison::Less => Comparison::GreaterOrEqual,
        Comparison::LessOrEqual => Comparison::Greater,
        Comparison::Greater => Comparison::LessOrEqual,
        Comparison::GreaterOrEqual => Comparison::Less,
        Comparison::Distinct => Comparison::NotDistinct,
        Comparison::NotDistinct => Comparison::Distinct,
    }
}

/// A rough count of the work an expression is, in simple operations.
pub(super) fn work(scalar: &Scalar) -> f64 {
    let mut sum = match scalar {
        Scalar::Literal { .. }
        | Scalar::Column(_)
        | Scalar::Parameter { .. }
        | Scalar::Held { .. }
        | Scalar::And(_)
        | Scalar::Or(_) => 0.0,
        Scalar::Subquery(_) => 1000.0,
        Scalar::InList { argument, list } => {
            // A list of constants is searched, not gone through.
            let cost = if list.iter().all(|item| constant(item).is_some()) { 2.0 } else { list.len() as f64 };
            return cost + work(argument);
        }
        _ => 1.0,
    };
    parts(scalar, &mut |part| sum += work(part));
    sum
}

/// Whether an expression refers to any of these columns.
pub(super) fn refers_to(scalar: &Scalar, columns: &ColumnSet) -> bool {
    let mut set = ColumnSet::new();
    add_columns(scalar, &mut set);
    set.intersects(columns)
}
