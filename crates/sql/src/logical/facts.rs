//! What can be told of an expression or relation by looking at it.

use super::walk::{any, call_scalars, inputs, scalars};
use super::{AggregateCall, Columns, Rel, Scalar, SubqueryKind};
use crate::functions::Volatility;
use crate::types::Type;

/// The type of an expression.
pub(crate) fn type_of(scalar: &Scalar, columns: &Columns) -> Type {
    match scalar {
        Scalar::Literal { ty, .. }
        | Scalar::Parameter { ty, .. }
        | Scalar::Call { ty, .. }
        | Scalar::Cast { ty, .. }
        | Scalar::Case { ty, .. }
        | Scalar::Coalesce { ty, .. }
        | Scalar::Extreme { ty, .. }
        | Scalar::Array { ty, .. }
        | Scalar::Subscript { ty, .. }
        | Scalar::Held { ty } => *ty,
        Scalar::Hold { body, .. } => type_of(body, columns),
        Scalar::Column(id) => columns.get(*id).ty,
        Scalar::Row(_) => Type::Record,
        Scalar::And(_)
        | Scalar::Or(_)
        | Scalar::Not(_)
        | Scalar::Compare { .. }
        | Scalar::CompareRows { .. }
        | Scalar::IsNull(_)
        | Scalar::IsBool { .. }
        | Scalar::InList { .. }
        | Scalar::Quantified { .. } => Type::Bool,
        Scalar::Subquery(subquery) => match &subquery.kind {
            SubqueryKind::Scalar => {
                subquery.query.output.first().map_or(Type::Unknown, |output| columns.get(output.column).ty)
            }
            SubqueryKind::Exists | SubqueryKind::Quantified { .. } => Type::Bool,
            SubqueryKind::Array(ty) => *ty,
        },
    }
}

/// Whether an expression gives different results for the same input, or has effects: it must be computed just as often as the
/// query says.
pub(crate) fn is_volatile(scalar: &Scalar) -> bool {
    any(scalar, &|part| match part {
        Scalar::Call { function, .. } => function.volatility == Volatility::Volatile,
        Scalar::Subquery(subquery) => rel_is_volatile(&subquery.query.rel),
        _ => false,
    })
}

/// Whether anything in a call of an aggregate is volatile.
pub(crate) fn call_is_volatile(call: &AggregateCall) -> bool {
    let mut found = false;
    call_scalars(call, &mut |scalar| found = found || is_volatile(scalar));
    found
}

/// Whether anything in a relation is volatile.
pub(crate) fn rel_is_volatile(rel: &Rel) -> bool {
    let mut found = false;
    scalars(rel, &mut |scalar| found = found || is_volatile(scalar));
    inputs(rel, &mut |input| found = found || rel_is_volatile(input));
    // Locks have effects.
    found || matches!(rel, Rel::Lock { .. })
}

/// Whether it may be up to the plan which rows a relation has: those that a limit lets through, or that DISTINCT ON takes of each group.
/// Two plans of it may give different rows.
pub(crate) fn rel_is_open(rel: &Rel) -> bool {
    let mut found = matches!(rel, Rel::Limit { .. } | Rel::Distinct { on: Some(_), .. });
    scalars(rel, &mut |scalar| {
        found = found
            || any(scalar, &|part| match part {
                Scalar::Subquery(subquery) => rel_is_open(&subquery.query.rel),
                _ => false,
            });
    });
    inputs(rel, &mut |input| found = found || rel_is_open(input));
    found
}
