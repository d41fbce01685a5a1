//! ANALYZE.
use super::DdlContext;
use crate::bind::utility::Maintenance;
use crate::{Error, Result};
pub(super) fn analyze(context: &mut DdlContext<'_>, statement: &Maintenance) -> Result<()> {
    let _ = (context, statement);
    Err(Error::unsupported("ANALYZE"))
}
