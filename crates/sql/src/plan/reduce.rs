//! The second and third pass: outer joins that might as well be inner ones, and columns that nobody asks for.

use super::columns::{ColumnSet, add_columns, output_set};
use super::scalar::{conjuncts, rejects_null};
use crate::logical::walk::{call_scalars, inputs_mut, output, parts_mut, scalars, scalars_mut};
use crate::logical::{ColumnId, JoinKind, Query, Rel, Scalar, SubqueryKind, is_volatile};
use std::mem::swap;

/// Turns outer joins into inner ones where a condition further up is not true of the rows that distinguish them. `above`: the
/// conditions that rows of `rel` have to fulfil.
pub(super) fn outer_joins(rel: &mut Rel, above: &[Scalar]) {
    scalars_mut(rel, &mut |scalar| within(scalar, &mut |query| outer_joins(&mut query.rel, &[])));
    match rel {
        Rel::Filter { input, predicate } => {
            let mut conditions = above.to_vec();
            conjuncts(predicate.clone(), &mut conditions);
            outer_joins(input, &conditions);
        }
        Rel::Join { .. } => join(rel, above),
        Rel::Sort { input, .. } | Rel::Distinct { input, on: None } => outer_joins(input, above),
        other => inputs_mut(other, &mut |input| outer_joins(input, &[])),
    }
}

fn join(rel: &mut Rel, above: &[Scalar]) {
    let Rel::Join { kind, left, right, on, lateral } = rel else { return };
    let rejected = |side: &Rel| {
        let columns = output_set(side);
        above.iter().any(|condition| rejects_null(condition, &columns))
    };
    match kind {
        JoinKind::Left if rejected(right) => *kind = JoinKind::Inner,
        JoinKind::Full => match (rejected(left), rejected(right)) {
            (true, true) => *kind = JoinKind::Inner,
            (true, false) => *kind = JoinKind::Left,
            (false, true) if !*lateral => {
                *kind = JoinKind::Left;
                swap(left, right);
            }
            _ => {}
        },
        _ => {}
    }
    let mut own = Vec::new();
    if let Some(on) = on {
        conjuncts(on.clone(), &mut own);
    }
    let mut both = above.to_vec();
    both.extend(own.iter().cloned());
    match kind {
        JoinKind::Inner => {
            outer_joins(left, &both);
            outer_joins(right, &both);
        }
        JoinKind::Semi => {
            outer_joins(left, &both);
            outer_joins(right, &own);
        }
        JoinKind::Left | JoinKind::Anti => {
            outer_joins(left, above);
            outer_joins(right, &own);
        }
        JoinKind::Full => {
            outer_joins(left, &[]);
            outer_joins(right, &[]);
        }
    }
}

/// Calls `f` with the queries of subqueries within an expression.
pub(super) fn within(scalar: &mut Scalar, f: &mut dyn FnMut(&mut Query)) {
    if let Scalar::Subquery(subquery) = scalar {
        f(&mut subquery.query);
    }
    parts_mut(scalar, &mut |part| within(part, f));
}

/// Takes away what is computed for nobody, and notes which columns of tables are used.
pub(super) fn prune_query(query: &mut Query, used: &mut ColumnSet) {
    let required = query.output.iter().map(|output| output.column).collect();
    prune(&mut query.rel, &required, used);
}

/// [`prune_query`] for a relation of which `required` is wanted.
pub(super) fn prune(rel: &mut Rel, required: &ColumnSet, used: &mut ColumnSet) {
    super::anti::anti_joins(rel, required);
    match rel {
        Rel::Project { columns, .. } => {
            columns.retain(|(id, scalar)| required.contains(*id) || is_volatile(scalar));
        }
        Rel::Aggregate { aggregates, .. } => {
            aggregates.retain(|(id, call)| {
                let mut volatile = false;
                call_scalars(call, &mut |scalar| volatile = volatile || is_volatile(scalar));
                required.contains(*id) || volatile
            });
        }
        Rel::Set { operation: crate::logical::SetOperation::Union, all: true, left, right, columns } => {
            for position in (0..columns.len()).rev() {
                if !required.contains(columns[position]) {
                    columns.remove(position);
                    left.1.remove(position);
                    right.1.remove(position);
                }
            }
        }
        _ => {}
    }
    scalars_mut(rel, &mut |scalar| subqueries(scalar, used));
    let mut wanted = ColumnSet::new();
    scalars(rel, &mut |scalar| add_columns(scalar, &mut wanted));
    match rel {
        Rel::Table { columns, .. } => {
            for id in columns.iter().filter(|id| required.contains(**id)) {
                used.insert(*id);
            }
        }
        Rel::System { .. } | Rel::Values { .. } | Rel::Function { .. } | Rel::Common { .. } => {}
        Rel::Project { input, .. } | Rel::Aggregate { input, .. } => prune(input, &wanted, used),
        Rel::Set { left, right, .. } => {
            for side in [left, right] {
                let columns = side.1.iter().copied().collect();
                prune(&mut side.0, &columns, used);
            }
        }
        Rel::Distinct { input, on: None } => {
            let mut all: Vec<ColumnId> = Vec::new();
            output(input, &mut all);
            prune(input, &all.into_iter().collect(), used);
        }
        Rel::Join { left, right, .. } => {
            wanted.add(required);
            // The right side may be lateral: it takes columns from the left one.
            wanted.add(&super::columns::free(right));
            prune(left, &wanted, used);
            prune(right, &wanted, used);
        }
        Rel::Filter { input, .. }
        | Rel::Distinct { input, .. }
        | Rel::Sort { input, .. }
        | Rel::Limit { input, .. }
        | Rel::Lock { input, .. } => {
            wanted.add(required);
            prune(input, &wanted, used);
        }
    }
}

/// Prunes the subqueries within an expression.
pub(super) fn subqueries(scalar: &mut Scalar, used: &mut ColumnSet) {
    if let Scalar::Subquery(subquery) = scalar {
        if matches!(subquery.kind, SubqueryKind::Exists) {
            prune(&mut subquery.query.rel, &ColumnSet::new(), used);
        } else {
            prune_query(&mut subquery.query, used);
        }
    }
    parts_mut(scalar, &mut |part| subqueries(part, used));
}
