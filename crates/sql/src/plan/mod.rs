//! Planning: from what a statement means to how it is run, by cost.

pub mod explain;

use crate::Result;
use crate::bind::Bound;
use crate::catalog::Catalog;
use crate::physical::Statement;
use crate::session::PlannerSettings;
use crate::{Error, SqlState};
use std::sync::Arc;

/// What the planner asks about the data.
pub trait Estimator {
    /// About how many rows a table has.
    fn rows(&self, table: &crate::catalog::Table) -> f64;
    /// About how many leaf pages a tree has, by the name of its storage.
    fn pages(&self, storage: &crate::catalog::Storage) -> f64;
}

/// Plans a bound statement.
pub fn plan(
    bound: Bound,
    catalog: &Arc<Catalog>,
    settings: &PlannerSettings,
    estimator: &dyn Estimator,
) -> Result<Statement> {
    let _ = (bound, catalog, settings, estimator);
    Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "no planner yet"))
}
