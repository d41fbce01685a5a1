//! Computing expressions.

use super::Context;
use crate::physical::Expr;
use crate::types::Value;
use crate::{Error, Result};
use std::borrow::Cow;

impl Expr {
    /// The value of the expression for a row.
    pub fn eval<'a>(&'a self, row: &'a [Value], context: &'a Context<'_>) -> Result<Cow<'a, Value>> {
        let _ = (row, context);
        Err(Error::unsupported("an expression"))
    }

    /// Whether a condition is true: neither false nor NULL.
    pub fn is_true(&self, row: &[Value], context: &Context<'_>) -> Result<bool> {
        Ok(self.eval(row, context)?.as_bool() == Some(true))
    }
}
