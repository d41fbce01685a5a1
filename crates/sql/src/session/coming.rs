//! Statements that a client has sent already, behind the one that runs.

use super::prepared::Prepared;
use super::{Session, TransactionStatus};
use crate::exec::Coming;
use crate::{Result, Value};
use std::sync::Arc;

impl Session {
    /// Whether it is to be looked at what statements to come will ask for: a statement has run in the open transaction, so that nothing depends on none
    /// having run, it goes by the definitions that all see, and `gannet_look_ahead` is on.
    pub fn can_look_ahead(&self) -> bool {
        let has_begun = |open: &super::transaction::Open| open.used && open.private.is_none();
        self.state.settings().planner.look_ahead
            && self.status() != TransactionStatus::Failed
            && self.transaction.as_ref().is_some_and(has_begun)
    }

    /// Has pages fetched that statements to come will ask for, given these in their order and `value`, which gives a parameter of one of them, where it
    /// can be had: from the device together, in place of one by one as each of them gets there. A hint: whatever is wrong with a statement is told by the
    /// statement. Where [`Session::can_look_ahead`] says no, nothing is done.
    pub fn look_ahead(
        &mut self,
        statements: &[Arc<Prepared>],
        value: &mut dyn FnMut(usize, usize) -> Option<Value>,
    ) {
        if self.can_look_ahead() {
            let _ = self.try_look_ahead(statements, value);
        }
    }

    fn try_look_ahead(
        &mut self,
        statements: &[Arc<Prepared>],
        value: &mut dyn FnMut(usize, usize) -> Option<Value>,
    ) -> Result<()> {
        let Some(open) = self.transaction.as_mut() else { return Ok(()) };
        let shared = &self.database.0;
        let plans = || {
            let all = statements.iter().enumerate();
            all.filter_map(|(number, prepared)| Some((number, prepared.plan.as_ref()?)))
        };
        let Some((_, first)) = plans().next() else { return Ok(()) };
        let catalog = &first.catalog;
        if !open.sees(shared, catalog) {
            return Ok(());
        }
        let Some(view) = open.view(shared, catalog)? else { return Ok(()) };
        let mut coming = Coming::new(&view);
        // Those of other definitions are planned anew first.
        let added = plans().filter(|(_, planned)| Arc::ptr_eq(&planned.catalog, catalog)).try_for_each(
            |(number, planned)| {
                coming.add(&planned.statement.root, &mut |parameter| value(number, parameter))
            },
        );
        let fetched = added.and_then(|()| coming.fetch());
        open.keep(view);
        fetched
    }
}
