//! ANALYZE.
use super::DdlContext;
use crate::{Error, Result};
use sqlparser::ast;
pub(super) fn analyze(context: &mut DdlContext<'_>, statement: &ast::Analyze) -> Result<&'static str> {
    let _ = (context, statement);
    Err(Error::unsupported("ANALYZE"))
}
