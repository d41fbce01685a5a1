//! Left joins of which only those rows are wanted that found no partner: `a LEFT JOIN b ON b.x = a.x WHERE b.id IS NULL` is an anti join.
//!
//! That is so when a partner's tested column is never NULL (by its definition, or because the join's condition would not be true
//! then), and nothing else asks for the partner's columns, which are all NULL in what is left.

use super::columns::{ColumnSet, add_columns, free, output_set};
use super::scalar::{conjuncts, rejects_null};
use crate::logical::{ColumnId, JoinKind, Rel, Scalar};

/// Makes such joins below a filter into anti joins. `required`: the columns that are wanted of the filter.
pub(super) fn anti_joins(rel: &mut Rel, required: &ColumnSet) {
    let Rel::Filter { input, predicate } = rel else { return };
    let mut conditions = Vec::new();
    conjuncts(predicate.clone(), &mut conditions);
    let before = conditions.len();
    for id in conditions.iter().filter_map(tested).collect::<Vec<_>>() {
        let mut used = required.clone();
        let others = conditions.iter().filter(|condition| tested(condition).is_none());
        others.for_each(|condition| add_columns(condition, &mut used));
        if let Some(gone) = make_anti(input, id, &mut used) {
            conditions.retain(|condition| !tested(condition).is_some_and(|id| gone.contains(id)));
        }
    }
    if conditions.len() == before {
        return;
    }
    match conditions.len() {
        0 => *rel = std::mem::replace(&mut **input, super::columns::nothing()),
        1 => *predicate = conditions.remove(0),
        _ => *predicate = Scalar::And(conditions),
    }
}

/// The column that a condition wants to be NULL.
fn tested(condition: &Scalar) -> Option<ColumnId> {
    match condition {
        Scalar::IsNull(argument) => match &**argument {
            Scalar::Column(id) => Some(*id),
            _ => None,
        },
        _ => None,
    }
}

/// Makes the left join that `tested` comes from the right side of into an anti join, if it may be; gives the columns that are gone
/// with it. `used`: columns that are asked for above.
fn make_anti(rel: &mut Rel, tested: ColumnId, used: &mut ColumnSet) -> Option<ColumnSet> {
    let Rel::Join { kind, left, right, on, lateral } = rel else { return None };
    let theirs = output_set(right);
    if *kind == JoinKind::Left && theirs.contains(tested) {
        let one: ColumnSet = std::iter::once(tested).collect();
        let certain = on.as_ref().is_some_and(|on| rejects_null(on, &one)) || is_never_null(right, tested);
        if !certain || *lateral || used.intersects(&theirs) {
            return None;
        }
        *kind = JoinKind::Anti;
        return Some(theirs);
    }
    if let Some(on) = on {
        add_columns(on, used);
    }
    used.add(&free(right));
    let side = match kind {
        JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti
            if output_set(left).contains(tested) =>
        {
            left
        }
        JoinKind::Inner if theirs.contains(tested) => right,
        _ => return None,
    };
    make_anti(side, tested, used)
}

/// Whether a column of a relation is one of a table's that is never NULL, and stays so.
fn is_never_null(rel: &Rel, id: ColumnId) -> bool {
    match rel {
        Rel::Table { table, columns, .. } => {
            let place = columns.iter().position(|column| *column == id);
            place.and_then(|place| table.columns.get(place)).is_some_and(|column| column.not_null)
        }
        Rel::Filter { input, .. } => is_never_null(input, id),
        Rel::Join { kind, left, right, .. } => match kind {
            JoinKind::Inner => is_never_null(left, id) || is_never_null(right, id),
            JoinKind::Left | JoinKind::Semi | JoinKind::Anti => is_never_null(left, id),
            JoinKind::Full => false,
        },
        _ => false,
    }
}
