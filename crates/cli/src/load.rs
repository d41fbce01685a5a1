//! `gannet load`
use crate::arguments::Load;
use anyhow::Result;
pub(crate) fn run(_: &Load) -> Result<()> {
    anyhow::bail!("not yet")
}
