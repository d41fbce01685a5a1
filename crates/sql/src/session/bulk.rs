//! Filling an empty table from the bottom up, for [`crate::load`]: as a statement that changes definitions, as it gives the table new trees.

use super::Session;
use super::turn::StatementTurn;
use crate::catalog::Table;
use crate::ddl::{self, DdlContext, Sorting, Take};
use crate::types::text::TextStyle;
use crate::{Error, Result};
use std::cell::Cell;
use std::sync::Arc;

/// Gives rows of a table, read in a style.
type Produce<'p> = dyn FnMut(&Arc<Table>, &TextStyle, Take<'_>) -> Result<()> + 'p;

impl Session {
    /// Fills a table with the rows that `produce` gives, as one transaction; false when it is not empty, or has references, or the transaction
    /// would be read-only, and nothing was done.
    pub(crate) fn fill_table(
        &mut self,
        name: &str,
        sorting: Sorting,
        mut produce: impl FnMut(&Arc<Table>, &TextStyle, Take<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.interrupt.begin();
        self.state.begin_statement(self.transaction.is_some(), false);
        let mut filled = false;
        let done = self.try_fill(name, sorting, &mut produce).map(|done| filled = done);
        let done = self.judge(done);
        self.interrupt.end();
        self.show_state();
        done.map(|()| filled)
    }

    fn try_fill(&mut self, name: &str, sorting: Sorting, produce: &mut Produce<'_>) -> Result<bool> {
        self.ensure_transaction()?;
        let shared = Arc::clone(&self.database.0);
        let open = self.transaction.as_mut().ok_or_else(|| Error::internal("no transaction"))?;
        if open.read_only {
            // As rows like any others they are refused.
            return self.end_implicit().map(|()| false);
        }
        let before = open.changeable(&shared);
        let mut catalog = Arc::clone(&before.catalog);
        let planner = self.state.settings().planner.clone();
        let mut context = DdlContext {
            transaction: open.store()?,
            catalog: &mut catalog,
            numbers: &shared.numbers,
            session: &self.state,
            planner: &planner,
            cancel: self.interrupt.flag(),
            is_stale: Cell::new(false),
        };
        let style = self.state.style.clone();
        let mut produce = |table: &Arc<Table>, take: Take<'_>| produce(table, &style, take);
        let filled = self
            .state
            .turn
            .run(&mut StatementTurn::new(true), || ddl::fill(&mut context, name, sorting, &mut produce))?;
        open.changed(before, catalog);
        self.end_implicit()?;
        Ok(filled)
    }
}
