//! Statements that a client has sent already, behind the one that runs.

use super::prepared::Prepared;
use super::transaction::Open;
use super::{Session, TransactionStatus};
use crate::catalog::Catalog;
use crate::exec::Coming;
use crate::{Result, Value};
use std::sync::Arc;

/// What statements to come will ask for, by their plans, and the definitions that these go by.
#[derive(Debug)]
pub(super) struct Wanted {
    catalog: Arc<Catalog>,
    coming: Coming,
}

impl Session {
    /// Whether it is to be looked at what statements to come will ask for: a statement has run in the open transaction, so that nothing depends on none
    /// having run, it goes by the definitions that all see, and `gannet_look_ahead` is on.
    pub fn can_look_ahead(&self) -> bool {
        let has_begun = |open: &Open| open.used && open.private.is_none();
        self.state.settings().planner.look_ahead
            && self.status() != TransactionStatus::Failed
            && self.transaction.as_ref().is_some_and(has_begun)
    }

    /// Looks at what statements to come will ask for, given these in their order and `value`, which gives a parameter of one of them, where it can be had. The
    /// pages of it are fetched as the next one begins to run, from the device together, in place of one by one as each of them gets there. Gives how many were
    /// looked at: there is no room for more at one time. A hint: whatever is wrong with a statement is told by the statement. Where
    /// [`Session::can_look_ahead`] says no, nothing is done.
    pub fn look_ahead(
        &mut self,
        statements: &[Arc<Prepared>],
        value: &mut dyn FnMut(usize, usize) -> Option<Value>,
    ) -> usize {
        if !self.can_look_ahead() {
            return statements.len();
        }
        let Some(open) = &mut self.transaction else { return statements.len() };
        let catalog = open.catalog(&self.database.0);
        let mut coming = Coming::default();
        let mut looked_at = 0;
        for prepared in statements {
            if coming.is_full() {
                break;
            }
            // Those of other definitions are planned anew first.
            if let Some(planned) = prepared.plan.as_ref()
                && Arc::ptr_eq(&planned.catalog, &catalog)
            {
                let _ = coming.add(&planned.statement.root, &mut |place| value(looked_at, place));
            }
            looked_at += 1;
        }
        self.wanted = Some(Box::new(Wanted { catalog, coming }));
        looked_at
    }

    /// Has fetched what was looked at. To be called while work goes on, so that it can be cancelled and has a time-out: that is noticed by the statement.
    pub(super) fn fetch_wanted(&mut self) {
        if let Some(wanted) = self.wanted.take()
            && self.can_look_ahead()
        {
            let _ = self.try_fetch(*wanted);
        }
    }

    fn try_fetch(&mut self, Wanted { catalog, coming }: Wanted) -> Result<()> {
        let Some(open) = self.transaction.as_mut() else { return Ok(()) };
        let shared = &self.database.0;
        if !open.sees(shared, &catalog) {
            return Ok(());
        }
        let Some(view) = open.view(shared, &catalog)? else { return Ok(()) };
        let fetched = coming.fetch(&view);
        open.keep(view);
        fetched
    }
}
