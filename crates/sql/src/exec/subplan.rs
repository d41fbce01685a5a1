//! Subqueries within expressions.

use super::Context;
use crate::physical::{Expr, SubplanKind};
use crate::types::Value;
use crate::{Error, Result};

/// State of a statement's subqueries: their operators, and the results of those that are run only once.
#[derive(Debug, Default)]
pub struct Subplans(());

impl Subplans {
    /// The value of a subquery for a row.
    pub(super) fn value(
        &self,
        subplan: usize,
        bind: &[(usize, Expr)],
        kind: &SubplanKind,
        row: &[Value],
        context: &Context<'_>,
    ) -> Result<Value> {
        let _ = (subplan, bind, kind, row, context);
        Err(Error::unsupported("a subquery"))
    }
}
