//! Going through expressions and relations.

use crate::logical::{AggregateCall, ColumnId, Query, Rel, Scalar, SortKey, SubqueryKind};

/// Calls `visit` for every expression that stands directly in `scalar`, those in subqueries left out.
pub(super) fn children<'s>(scalar: &'s Scalar, visit: &mut dyn FnMut(&'s Scalar)) {
    match scalar {
        Scalar::Literal { .. } | Scalar::Column(_) | Scalar::Parameter { .. } | Scalar::Held { .. } => {}
        Scalar::Call { arguments, .. }
        | Scalar::Coalesce { arguments, .. }
        | Scalar::Extreme { arguments, .. } => {
            arguments.iter().for_each(visit);
        }
        Scalar::Cast { argument, .. } | Scalar::IsBool { argument, .. } => visit(argument),
        Scalar::And(terms) | Scalar::Or(terms) | Scalar::Row(terms) => terms.iter().for_each(visit),
        Scalar::Array { elements, .. } => elements.iter().for_each(visit),
        Scalar::Not(argument) | Scalar::IsNull(argument) => visit(argument),
        Scalar::Compare { left, right, .. } => {
            visit(left);
            visit(right);
        }
        Scalar::Hold { value, body } => {
            visit(value);
            visit(body);
        }
        Scalar::CompareRows { left, right, .. } => left.iter().chain(right).for_each(visit),
        Scalar::Case { branches, otherwise, .. } => {
            for (condition, value) in branches {
                visit(condition);
                visit(value);
            }
            visit(otherwise);
        }
        Scalar::InList { argument, list } => {
            visit(argument);
            list.iter().for_each(visit);
        }
        Scalar::Quantified { argument, array, .. } => {
            visit(argument);
            visit(array);
        }
        Scalar::Subscript { array, index, .. } => {
            visit(array);
            visit(index);
        }
        Scalar::Subquery(subquery) => {
            if let SubqueryKind::Quantified { arguments, .. } = &subquery.kind {
                arguments.iter().for_each(visit);
            }
        }
    }
}

/// The same, for changing them.
pub(super) fn children_mut(scalar: &mut Scalar, visit: &mut dyn FnMut(&mut Scalar)) {
    match scalar {
        Scalar::Literal { .. } | Scalar::Column(_) | Scalar::Parameter { .. } | Scalar::Held { .. } => {}
        Scalar::Call { arguments, .. }
        | Scalar::Coalesce { arguments, .. }
        | Scalar::Extreme { arguments, .. } => {
            arguments.iter_mut().for_each(visit);
        }
        Scalar::Cast { argument, .. } | Scalar::IsBool { argument, .. } => visit(argument),
        Scalar::And(terms) | Scalar::Or(terms) | Scalar::Row(terms) => terms.iter_mut().for_each(visit),
        Scalar::Array { elements, .. } => elements.iter_mut().for_each(visit),
        Scalar::Not(argument) | Scalar::IsNull(argument) => visit(argument),
        Scalar::Compare { left, right, .. } => {
            visit(left);
            visit(right);
        }
        Scalar::Hold { value, body } => {
            visit(value);
            visit(body);
        }
        Scalar::CompareRows { left, right, .. } => left.iter_mut().chain(right).for_each(visit),
        Scalar::Case { branches, otherwise, .. } => {
            for (condition, value) in branches {
                visit(condition);
                visit(value);
            }
            visit(otherwise);
        }
        Scalar::InList { argument, list } => {
            visit(argument);
            list.iter_mut().for_each(visit);
        }
        Scalar::Quantified { argument, array, .. } => {
            visit(argument);
            visit(array);
        }
        Scalar::Subscript { array, index, .. } => {
            visit(array);
            visit(index);
        }
        Scalar::Subquery(subquery) => {
            if let SubqueryKind::Quantified { arguments, .. } = &mut subquery.kind {
                arguments.iter_mut().for_each(visit);
            }
        }
    }
}

/// Calls `visit` for every expression of a query's relations, those of relations below included, those in subqueries of
/// expressions left out.
pub(super) fn rel_scalars(rel: &Rel, visit: &mut dyn FnMut(&Scalar)) {
    match rel {
        Rel::Table { .. } | Rel::System { .. } => {}
        Rel::Values { rows, .. } => rows.iter().flatten().for_each(visit),
        Rel::Function { arguments, .. } => arguments.iter().for_each(visit),
        Rel::Join { left, right, on, .. } => {
            rel_scalars(left, visit);
            rel_scalars(right, visit);
            on.iter().for_each(visit);
        }
        Rel::Filter { input, predicate } => {
            rel_scalars(input, visit);
            visit(predicate);
        }
        Rel::Project { input, columns } => {
            rel_scalars(input, visit);
            columns.iter().for_each(|(_, scalar)| visit(scalar));
        }
        Rel::Aggregate { input, groups, aggregates } => {
            rel_scalars(input, visit);
            groups.iter().for_each(|(_, scalar)| visit(scalar));
            for (_, call) in aggregates {
                call.arguments.iter().chain(&call.filter).for_each(&mut *visit);
                call.order.iter().for_each(|key| visit(&key.scalar));
            }
        }
        Rel::Distinct { input, on } => {
            rel_scalars(input, visit);
            on.iter().flatten().for_each(visit);
        }
        Rel::Sort { input, keys } => {
            rel_scalars(input, visit);
            keys.iter().for_each(|key| visit(&key.scalar));
        }
        Rel::Limit { input, limit, offset } => {
            rel_scalars(input, visit);
            limit.iter().chain(offset).for_each(visit);
        }
        Rel::Set { left, right, .. } => {
            rel_scalars(&left.0, visit);
            rel_scalars(&right.0, visit);
        }
        Rel::Lock { input, recheck, .. } => {
            rel_scalars(input, visit);
            recheck.iter().for_each(visit);
        }
    }
}

/// The same, for changing them.
pub(super) fn rel_scalars_mut(rel: &mut Rel, visit: &mut dyn FnMut(&mut Scalar)) {
    match rel {
        Rel::Table { .. } | Rel::System { .. } => {}
        Rel::Values { rows, .. } => rows.iter_mut().flatten().for_each(visit),
        Rel::Function { arguments, .. } => arguments.iter_mut().for_each(visit),
        Rel::Join { left, right, on, .. } => {
            rel_scalars_mut(left, visit);
            rel_scalars_mut(right, visit);
            on.iter_mut().for_each(visit);
        }
        Rel::Filter { input, predicate } => {
            rel_scalars_mut(input, visit);
            visit(predicate);
        }
        Rel::Project { input, columns } => {
            rel_scalars_mut(input, visit);
            columns.iter_mut().for_each(|(_, scalar)| visit(scalar));
        }
        Rel::Aggregate { input, groups, aggregates } => {
            rel_scalars_mut(input, visit);
            groups.iter_mut().for_each(|(_, scalar)| visit(scalar));
            for (_, call) in aggregates {
                call.arguments.iter_mut().chain(&mut call.filter).for_each(&mut *visit);
                call.order.iter_mut().for_each(|key| visit(&mut key.scalar));
            }
        }
        Rel::Distinct { input, on } => {
            rel_scalars_mut(input, visit);
            on.iter_mut().flatten().for_each(visit);
        }
        Rel::Sort { input, keys } => {
            rel_scalars_mut(input, visit);
            keys.iter_mut().for_each(|key| visit(&mut key.scalar));
        }
        Rel::Limit { input, limit, offset } => {
            rel_scalars_mut(input, visit);
            limit.iter_mut().chain(offset).for_each(visit);
        }
        Rel::Set { left, right, .. } => {
            rel_scalars_mut(&mut left.0, visit);
            rel_scalars_mut(&mut right.0, visit);
        }
        Rel::Lock { input, recheck, .. } => {
            rel_scalars_mut(input, visit);
            recheck.iter_mut().for_each(visit);
        }
    }
}

/// Calls `visit` for every column an expression refers to, those within subqueries included.
pub(super) fn for_each_column(scalar: &Scalar, visit: &mut dyn FnMut(ColumnId)) {
    if let Scalar::Column(id) = scalar {
        visit(*id);
    }
    if let Scalar::Subquery(subquery) = scalar {
        rel_scalars(&subquery.query.rel, &mut |scalar| for_each_column(scalar, visit));
    }
    children(scalar, &mut |child| for_each_column(child, visit));
}

/// Whether two expressions are the same. A subquery is equal to its copies alone: every other one has columns of its own.
pub(super) fn same(a: &Scalar, b: &Scalar) -> bool {
    use Scalar as S;
    match (a, b) {
        (S::Literal { value: x, ty: t }, S::Literal { value: y, ty: u }) => t == u && x.is_identical(y),
        (S::Column(x), S::Column(y)) => x == y,
        (S::Parameter { index: x, ty: t }, S::Parameter { index: y, ty: u }) => x == y && t == u,
        (S::Call { function: f, arguments: x, ty: t }, S::Call { function: g, arguments: y, ty: u }) => {
            std::ptr::eq(*f, *g) && t == u && all_same(x, y)
        }
        (
            S::Cast { argument: x, ty: t, modifier: m, explicit: e },
            S::Cast { argument: y, ty: u, modifier: n, explicit: f },
        ) => t == u && m == n && e == f && same(x, y),
        (S::And(x), S::And(y)) | (S::Or(x), S::Or(y)) | (S::Row(x), S::Row(y)) => all_same(x, y),
        (S::Not(x), S::Not(y)) | (S::IsNull(x), S::IsNull(y)) => same(x, y),
        (S::Compare { op: o, left: l, right: r }, S::Compare { op: p, left: m, right: s }) => {
            o == p && same(l, m) && same(r, s)
        }
        (S::CompareRows { op: o, left: l, right: r }, S::CompareRows { op: p, left: m, right: s }) => {
            o == p && all_same(l, m) && all_same(r, s)
        }
        (S::IsBool { argument: x, value: v }, S::IsBool { argument: y, value: w }) => v == w && same(x, y),
        (S::Hold { value: x, body: b }, S::Hold { value: y, body: c }) => same(x, y) && same(b, c),
        (S::Held { ty: t }, S::Held { ty: u }) => t == u,
        (S::Case { branches: x, otherwise: o, ty: t }, S::Case { branches: y, otherwise: p, ty: u }) => {
            t == u
                && x.len() == y.len()
                && x.iter().zip(y).all(|(x, y)| same(&x.0, &y.0) && same(&x.1, &y.1))
                && same(o, p)
        }
        (S::Coalesce { arguments: x, ty: t }, S::Coalesce { arguments: y, ty: u }) => {
            t == u && all_same(x, y)
        }
        (
            S::Extreme { arguments: x, greatest: g, ty: t },
            S::Extreme { arguments: y, greatest: h, ty: u },
        ) => g == h && t == u && all_same(x, y),
        (S::InList { argument: x, list: l }, S::InList { argument: y, list: m }) => {
            same(x, y) && all_same(l, m)
        }
        (
            S::Quantified { argument: x, op: o, array: v, all: l },
            S::Quantified { argument: y, op: p, array: w, all: m },
        ) => o == p && l == m && same(x, y) && same(v, w),
        (S::Array { elements: x, ty: t }, S::Array { elements: y, ty: u }) => t == u && all_same(x, y),
        (S::Subscript { array: x, index: i, ty: t }, S::Subscript { array: y, index: j, ty: u }) => {
            t == u && same(x, y) && same(i, j)
        }
        (S::Subquery(x), S::Subquery(y)) => {
            let columns = |query: &Query| query.output.iter().map(|output| output.column).collect::<Vec<_>>();
            columns(&x.query) == columns(&y.query) && format!("{x:?}") == format!("{y:?}")
        }
        _ => false,
    }
}

fn all_same(a: &[Scalar], b: &[Scalar]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

/// Whether `scalar` is `inner`, converted.
pub(super) fn is_cast_of(scalar: &Scalar, inner: &Scalar) -> bool {
    matches!(scalar, Scalar::Cast { argument, .. } if same(argument, inner))
}

/// Whether two calls of aggregates are the same.
pub(super) fn same_call(a: &AggregateCall, b: &AggregateCall) -> bool {
    let same_key = |(a, b): (&SortKey, &SortKey)| {
        a.descending == b.descending && a.nulls_first == b.nulls_first && same(&a.scalar, &b.scalar)
    };
    std::ptr::eq(a.aggregate, b.aggregate)
        && a.distinct == b.distinct
        && a.ty == b.ty
        && all_same(&a.arguments, &b.arguments)
        && match (&a.filter, &b.filter) {
            (None, None) => true,
            (Some(a), Some(b)) => same(a, b),
            _ => false,
        }
        && a.order.len() == b.order.len()
        && a.order.iter().zip(&b.order).all(same_key)
}
