//! Conditions moved into subqueries, to where there are fewer rows, or an index.

use super::columns::{ColumnSet, columns_of, nothing, output_set};
use super::scalar::{has_subquery, inline};
use crate::logical::walk::{for_each_column, size};
use crate::logical::{ColumnId, JoinKind, Rel, Scalar, SetOperation, is_volatile};
use std::mem::replace;

/// Nodes of the definitions that come into a condition that names one of them more than once, at most.
const PUSHED_NODES: usize = 1000;

/// Whether a condition on a relation's rows may as well be asked of some input of it.
pub(super) fn can_push(rel: &Rel, condition: &Scalar) -> bool {
    if is_volatile(condition) {
        return false;
    }
    match rel {
        Rel::Project { columns, .. } => {
            let wanted = columns_of(condition);
            !has_subquery(condition)
                && columns
                    .iter()
                    .filter(|(id, _)| wanted.contains(*id))
                    .all(|(_, scalar)| !is_volatile(scalar) && !has_subquery(scalar))
                && stays_small(condition, columns)
        }
        Rel::Aggregate { groups, aggregates, .. } => {
            let wanted = columns_of(condition);
            !groups.is_empty()
                && wanted.iter().any(|id| groups.iter().any(|(group, _)| *group == id))
                && !aggregates.iter().any(|(id, _)| wanted.contains(*id))
                && groups.iter().all(|(_, scalar)| !is_volatile(scalar) && !has_subquery(scalar))
                && stays_small(condition, groups)
        }
        Rel::Set { .. } => !has_subquery(condition),
        Rel::Distinct { on: None, .. } | Rel::Sort { .. } => true,
        Rel::Distinct { on: Some(on), input } => {
            let fixed: ColumnSet = on
                .iter()
                .filter_map(|scalar| match scalar {
                    Scalar::Column(id) => Some(*id),
                    _ => None,
                })
                .collect();
            let mut wanted = columns_of(condition);
            let mut outside = wanted.clone();
            outside.subtract(&output_set(input));
            wanted.subtract(&outside);
            wanted.is_subset(&fixed)
        }
        Rel::Table { .. } | Rel::Filter { .. } => true,
        // A join that a region has left whole is one of a region of its own.
        Rel::Join { kind, .. } => *kind != JoinKind::Full,
        _ => false,
    }
}

/// Whether a condition is no larger than it may be once the definitions of its columns are in their place. Where it names each of them once, it is as
/// large as the statement was written; else it may double with every relation that it is moved into.
fn stays_small(condition: &Scalar, definitions: &[(ColumnId, Scalar)]) -> bool {
    let (mut seen, mut is_repeated, mut nodes) = (ColumnSet::new(), false, 0);
    for_each_column(condition, &mut |id| {
        if is_repeated && nodes > PUSHED_NODES {
            return;
        }
        if let Some((_, definition)) = definitions.iter().find(|(column, _)| *column == id)
            && !matches!(definition, Scalar::Column(_))
        {
            is_repeated |= seen.contains(id);
            seen.insert(id);
            nodes += size(definition);
        }
    });
    !is_repeated || nodes <= PUSHED_NODES
}

/// Moves a condition for which [`can_push`] holds.
pub(super) fn push(rel: &mut Rel, mut condition: Scalar) {
    match rel {
        Rel::Project { input, columns } => {
            inline(&mut condition, columns);
            below(input, condition);
        }
        Rel::Aggregate { input, groups, .. } => {
            inline(&mut condition, groups);
            below(input, condition);
        }
        Rel::Set { operation, left, right, columns, .. } => {
            // Of EXCEPT rows of the right side are never given: the condition may fail on them.
            let sides = if *operation == SetOperation::Except { vec![left] } else { vec![left, right] };
            for side in sides {
                let definitions: Vec<(ColumnId, Scalar)> =
                    columns.iter().zip(&side.1).map(|(id, own)| (*id, Scalar::Column(*own))).collect();
                let mut own = condition.clone();
                inline(&mut own, &definitions);
                below(&mut side.0, own);
            }
        }
        Rel::Distinct { input, .. } | Rel::Sort { input, .. } => below(input, condition),
        _ => filter(rel, condition),
    }
}

fn below(input: &mut Rel, predicate: Scalar) {
    if can_push(input, &predicate) {
        push(input, predicate);
    } else {
        filter(input, predicate);
    }
}

/// Asks a condition of a relation's rows.
fn filter(rel: &mut Rel, predicate: Scalar) {
    if let Rel::Filter { predicate: other, .. } = rel {
        // One list, however many come: what is nested deeply takes stack.
        if let Scalar::And(parts) = other {
            parts.push(predicate);
            return;
        }
        let first = replace(other, super::scalar::literal_bool(true));
        *other = Scalar::And(vec![first, predicate]);
        return;
    }
    let input = Box::new(replace(rel, nothing()));
    *rel = Rel::Filter { input, predicate };
}
