//! Operators that touch the store: scans, index joins, changes, locks.

use super::{Context, Operator};
use crate::Result;
use crate::physical::Plan;

/// Makes the operator of a node that touches the store; `None` for other nodes.
pub(super) fn open(plan: &Plan, context: &Context<'_>) -> Result<Option<Box<dyn Operator>>> {
    let _ = (plan, context);
    Ok(None)
}
