//! Walking over logical trees: the parts of expressions and relations.

use super::{AggregateCall, ColumnId, JoinKind, Rel, Scalar, SortKey, SubqueryKind};

/// Bytes of a literal that are as much as a node.
const LITERAL_BYTES: usize = 256;

/// Calls `f` with the parts of an expression. The query within a subquery is no part; the left side of IN is.
pub(crate) fn parts<'a>(scalar: &'a Scalar, f: &mut dyn FnMut(&'a Scalar)) {
    match scalar {
        Scalar::Literal { .. } | Scalar::Column(_) | Scalar::Parameter { .. } | Scalar::Held { .. } => {}
        Scalar::Call { arguments, .. }
        | Scalar::Coalesce { arguments, .. }
        | Scalar::Extreme { arguments, .. } => {
            arguments.iter().for_each(f);
        }
        Scalar::Cast { argument, .. } | Scalar::IsBool { argument, .. } => f(argument),
        Scalar::Not(argument) | Scalar::IsNull(argument) => f(argument),
        Scalar::And(list) | Scalar::Or(list) | Scalar::Row(list) => list.iter().for_each(f),
        Scalar::Compare { left, right, .. } => {
            f(left);
            f(right);
        }
        Scalar::Hold { value, body } => {
            f(value);
            f(body);
        }
        Scalar::CompareRows { left, right, .. } => left.iter().chain(right).for_each(f),
        Scalar::Case { branches, otherwise, .. } => {
            for (condition, value) in branches {
                f(condition);
                f(value);
            }
            f(otherwise);
        }
        Scalar::InList { argument, list } => {
            f(argument);
            list.iter().for_each(f);
        }
        Scalar::Quantified { argument, array, .. } => {
            f(argument);
            f(array);
        }
        Scalar::Array { elements, .. } => elements.iter().for_each(f),
        Scalar::Subscript { array, index, .. } => {
            f(array);
            f(index);
        }
        Scalar::Subquery(subquery) => {
            if let SubqueryKind::Quantified { arguments, .. } = &subquery.kind {
                arguments.iter().for_each(f);
            }
        }
    }
}

/// [`parts`], to be changed.
pub(crate) fn parts_mut(scalar: &mut Scalar, f: &mut dyn FnMut(&mut Scalar)) {
    match scalar {
        Scalar::Literal { .. } | Scalar::Column(_) | Scalar::Parameter { .. } | Scalar::Held { .. } => {}
        Scalar::Call { arguments, .. }
        | Scalar::Coalesce { arguments, .. }
        | Scalar::Extreme { arguments, .. } => {
            arguments.iter_mut().for_each(f);
        }
        Scalar::Cast { argument, .. } | Scalar::IsBool { argument, .. } => f(argument),
        Scalar::Not(argument) | Scalar::IsNull(argument) => f(argument),
        Scalar::And(list) | Scalar::Or(list) | Scalar::Row(list) => list.iter_mut().for_each(f),
        Scalar::Compare { left, right, .. } => {
            f(left);
            f(right);
        }
        Scalar::Hold { value, body } => {
            f(value);
            f(body);
        }
        Scalar::CompareRows { left, right, .. } => left.iter_mut().chain(right).for_each(f),
        Scalar::Case { branches, otherwise, .. } => {
            for (condition, value) in branches {
                f(condition);
                f(value);
            }
            f(otherwise);
        }
        Scalar::InList { argument, list } => {
            f(argument);
            list.iter_mut().for_each(f);
        }
        Scalar::Quantified { argument, array, .. } => {
            f(argument);
            f(array);
        }
        Scalar::Array { elements, .. } => elements.iter_mut().for_each(f),
        Scalar::Subscript { array, index, .. } => {
            f(array);
            f(index);
        }
        Scalar::Subquery(subquery) => {
            if let SubqueryKind::Quantified { arguments, .. } = &mut subquery.kind {
                arguments.iter_mut().for_each(f);
            }
        }
    }
}

/// Whether `test` holds for the expression or any part of it, queries within subqueries left out.
pub(crate) fn any(scalar: &Scalar, test: &dyn Fn(&Scalar) -> bool) -> bool {
    if test(scalar) {
        return true;
    }
    let mut found = false;
    parts(scalar, &mut |part| found = found || any(part, test));
    found
}

/// How large an expression is, in nodes, those of queries within subqueries included. A long literal counts as several.
pub(crate) fn size(scalar: &Scalar) -> usize {
    let mut size = match scalar {
        Scalar::Literal { value, .. } => 1 + value.heap_bytes() / LITERAL_BYTES,
        Scalar::Subquery(subquery) => 1 + rel_size(&subquery.query.rel),
        _ => 1,
    };
    parts(scalar, &mut |part| size += self::size(part));
    size
}

fn rel_size(rel: &Rel) -> usize {
    let mut size = 1;
    scalars(rel, &mut |scalar| size += self::size(scalar));
    inputs(rel, &mut |input| size += rel_size(input));
    size
}

/// Calls `f` with the inputs of a relation.
pub(crate) fn inputs<'a>(rel: &'a Rel, f: &mut dyn FnMut(&'a Rel)) {
    match rel {
        Rel::Table { .. }
        | Rel::System { .. }
        | Rel::Values { .. }
        | Rel::Function { .. }
        | Rel::Common { .. } => {}
        Rel::Join { left, right, .. } => {
            f(left);
            f(right);
        }
        Rel::Set { left, right, .. } => {
            f(&left.0);
            f(&right.0);
        }
        Rel::Filter { input, .. }
        | Rel::Project { input, .. }
        | Rel::Aggregate { input, .. }
        | Rel::Distinct { input, .. }
        | Rel::Sort { input, .. }
        | Rel::Limit { input, .. }
        | Rel::Lock { input, .. } => f(input),
    }
}

/// [`inputs`], to be changed.
pub(crate) fn inputs_mut(rel: &mut Rel, f: &mut dyn FnMut(&mut Rel)) {
    match rel {
        Rel::Table { .. }
        | Rel::System { .. }
        | Rel::Values { .. }
        | Rel::Function { .. }
        | Rel::Common { .. } => {}
        Rel::Join { left, right, .. } => {
            f(left);
            f(right);
        }
        Rel::Set { left, right, .. } => {
            f(&mut left.0);
            f(&mut right.0);
        }
        Rel::Filter { input, .. }
        | Rel::Project { input, .. }
        | Rel::Aggregate { input, .. }
        | Rel::Distinct { input, .. }
        | Rel::Sort { input, .. }
        | Rel::Limit { input, .. }
        | Rel::Lock { input, .. } => f(input),
    }
}

/// Calls `f` with the expressions of a relation, its inputs' left out.
pub(crate) fn scalars<'a>(rel: &'a Rel, f: &mut dyn FnMut(&'a Scalar)) {
    match rel {
        Rel::Table { .. } | Rel::System { .. } | Rel::Common { .. } | Rel::Set { .. } => {}
        Rel::Values { rows, .. } => rows.iter().flatten().for_each(f),
        Rel::Function { arguments, .. } => arguments.iter().for_each(f),
        Rel::Join { on, .. } => on.iter().for_each(f),
        Rel::Filter { predicate, .. } => f(predicate),
        Rel::Project { columns, .. } => columns.iter().for_each(|(_, scalar)| f(scalar)),
        Rel::Aggregate { groups, aggregates, .. } => {
            groups.iter().for_each(|(_, scalar)| f(scalar));
            aggregates.iter().for_each(|(_, call)| call_scalars(call, f));
        }
        Rel::Distinct { on, .. } => on.iter().flatten().for_each(f),
        Rel::Sort { keys, .. } => keys.iter().for_each(|key| f(&key.scalar)),
        Rel::Limit { limit, offset, .. } => limit.iter().chain(offset).for_each(f),
        Rel::Lock { recheck, .. } => recheck.scalars().for_each(f),
    }
}

/// Calls `f` with the expressions of an aggregate.
pub(crate) fn call_scalars<'a>(call: &'a AggregateCall, f: &mut dyn FnMut(&'a Scalar)) {
    for argument in &call.arguments {
        f(argument);
    }
    if let Some(filter) = &call.filter {
        f(filter);
    }
    for key in &call.order {
        f(&key.scalar);
    }
}

/// [`scalars`], to be changed.
pub(crate) fn scalars_mut(rel: &mut Rel, f: &mut dyn FnMut(&mut Scalar)) {
    match rel {
        Rel::Table { .. } | Rel::System { .. } | Rel::Common { .. } | Rel::Set { .. } => {}
        Rel::Values { rows, .. } => rows.iter_mut().flatten().for_each(f),
        Rel::Function { arguments, .. } => arguments.iter_mut().for_each(f),
        Rel::Join { on, .. } => on.iter_mut().for_each(f),
        Rel::Filter { predicate, .. } => f(predicate),
        Rel::Project { columns, .. } => columns.iter_mut().for_each(|(_, scalar)| f(scalar)),
        Rel::Aggregate { groups, aggregates, .. } => {
            groups.iter_mut().for_each(|(_, scalar)| f(scalar));
            for (_, call) in aggregates {
                call.arguments.iter_mut().for_each(&mut *f);
                call.filter.iter_mut().for_each(&mut *f);
                call.order.iter_mut().for_each(|key: &mut SortKey| f(&mut key.scalar));
            }
        }
        Rel::Distinct { on, .. } => on.iter_mut().flatten().for_each(f),
        Rel::Sort { keys, .. } => keys.iter_mut().for_each(|key| f(&mut key.scalar)),
        Rel::Limit { limit, offset, .. } => limit.iter_mut().chain(offset).for_each(f),
        Rel::Lock { recheck, .. } => recheck.scalars_mut().for_each(f),
    }
}

/// The columns a relation gives, in order.
pub(crate) fn output(rel: &Rel, out: &mut Vec<ColumnId>) {
    match rel {
        Rel::Table { columns, .. }
        | Rel::System { columns, .. }
        | Rel::Common { columns, .. }
        | Rel::Values { columns, .. }
        | Rel::Set { columns, .. } => out.extend(columns),
        Rel::Function { columns, ordinality, .. } => {
            out.extend(columns);
            out.extend(ordinality);
        }
        Rel::Join { kind: JoinKind::Semi | JoinKind::Anti, left, .. } => output(left, out),
        Rel::Join { left, right, .. } => {
            output(left, out);
            output(right, out);
        }
        Rel::Project { columns, .. } => out.extend(columns.iter().map(|(id, _)| *id)),
        Rel::Aggregate { groups, aggregates, .. } => {
            out.extend(groups.iter().map(|(id, _)| *id));
            out.extend(aggregates.iter().map(|(id, _)| *id));
        }
        Rel::Filter { input, .. }
        | Rel::Distinct { input, .. }
        | Rel::Sort { input, .. }
        | Rel::Limit { input, .. }
        | Rel::Lock { input, .. } => output(input, out),
    }
}

/// The columns that a relation and those below it give.
pub(crate) fn all_outputs(rel: &Rel, out: &mut Vec<ColumnId>) {
    inputs(rel, &mut |input| all_outputs(input, out));
    output(rel, out);
}

/// Calls `f` with the expressions of a relation and of those below it; the queries within subqueries are left out.
pub(crate) fn all_scalars<'a>(rel: &'a Rel, f: &mut dyn FnMut(&'a Scalar)) {
    inputs(rel, &mut |input| all_scalars(input, f));
    scalars(rel, f);
}

/// [`all_scalars`], to be changed.
pub(crate) fn all_scalars_mut(rel: &mut Rel, f: &mut dyn FnMut(&mut Scalar)) {
    inputs_mut(rel, &mut |input| all_scalars_mut(input, f));
    scalars_mut(rel, f);
}

/// Calls `f` for every column an expression refers to, those within subqueries included.
pub(crate) fn for_each_column(scalar: &Scalar, f: &mut dyn FnMut(ColumnId)) {
    if let Scalar::Column(id) = scalar {
        f(*id);
    }
    if let Scalar::Subquery(subquery) = scalar {
        all_scalars(&subquery.query.rel, &mut |scalar| for_each_column(scalar, f));
    }
    parts(scalar, &mut |child| for_each_column(child, f));
}
