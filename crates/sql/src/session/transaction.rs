//! The session's transaction: begun by BEGIN, or for a statement; savepoints; definitions and settings that it has changed.
//!
//! # States
//! A session has no [`Open`] transaction (idle), or one that is explicit (BEGIN) or implicit (ends with its statement, simple
//! query, or series of extended-protocol messages). After an error an explicit one is failed: what it holds has been
//! given back, as far as savepoints allow, and it takes nothing but its end or ROLLBACK TO.

use super::client::CommandTag;
use super::database::Shared;
use super::interrupt::Interrupt;
use super::settings::{Key, Level, Settings};
use super::state::SessionState;
use super::turn::StatementTurn;
use crate::bind::Parsed;
use crate::catalog::{Catalog, Oid, storage};
use crate::ddl::{self, DdlContext};
use crate::{Error, Result, SqlState, effort};
use gannet_base::memory::Purpose;
use gannet_store::{Isolation, Savepoint, Transaction, TransactionOptions, View, WorkMemory};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How often a statement that changes definitions is begun, as others change them, too.
const DEFINED_ANEW: u32 = 20;

/// Definitions that a transaction has changed and not committed.
#[derive(Clone, Debug)]
pub(super) struct Private {
    /// What they were made from.
    pub(super) base: Arc<Catalog>,
    /// What the transaction sees.
    pub(super) catalog: Arc<Catalog>,
}

#[derive(Debug)]
struct Mark {
    name: String,
    savepoint: Savepoint,
    private: Option<Private>,
    settings: usize,
    read_only: bool,
    /// Memory that it takes.
    bytes: u64,
}

/// Bytes of a savepoint, about, and of each object in definitions that it keeps.
const SAVEPOINT_BYTES: u64 = 256;
const DEFINITION_BYTES: u64 = 160;

/// A transaction of a session.
#[derive(Debug)]
pub(super) struct Open {
    /// The store's side of it. `None` once it has failed without a savepoint to go back to.
    transaction: Option<RefCell<Transaction>>,
    pub(super) explicit: bool,
    pub(super) failed: bool,
    pub(super) read_only: bool,
    pub(super) level: Level,
    /// Whether a statement has run: isolation can no longer be changed.
    pub(super) used: bool,
    /// REPEATABLE READ: what all statements see.
    snapshot: Option<Arc<Catalog>>,
    /// The view of the last statement that gave it back: the next may see the same.
    kept: Option<View>,
    pub(super) private: Option<Private>,
    savepoints: Vec<Mark>,
    /// That of the savepoints.
    memory: Option<WorkMemory>,
    /// Tables that are held against changes of their definition.
    held: BTreeSet<Oid>,
    settings: usize,
}

impl Open {
    pub(super) fn new(shared: &Shared, state: &SessionState, explicit: bool) -> Self {
        let settings = state.settings();
        let options = options(&settings, settings.level);
        let transaction = shared.store.begin_watched(options, state.turn.clone());
        state.interrupt.set_canceller(Some(transaction.canceller()));
        Open {
            transaction: Some(RefCell::new(transaction)),
            explicit,
            failed: false,
            read_only: settings.read_only,
            level: settings.level,
            used: false,
            snapshot: None,
            kept: None,
            private: None,
            savepoints: Vec::new(),
            memory: None,
            held: BTreeSet::new(),
            settings: state.settings_mark(),
        }
    }

    /// A statement is about to run: settings that were changed since the one before are in force.
    pub(super) fn follow_settings(&mut self, state: &SessionState) {
        let settings = state.settings();
        if let Some(transaction) = &self.transaction {
            let mut transaction = transaction.borrow_mut();
            transaction.set_lock_timeout(settings.lock_timeout);
            transaction.set_snapshot_limit(Some(settings.snapshot_limit.unwrap_or_default()));
        }
        // Turned on by set_config(): SET has done so itself. Nothing turns it off behind the first statement.
        self.read_only |= settings.get(Key::TransactionReadOnly) == "on";
    }

    /// Whether anything was done in it.
    pub(super) fn has_work(&self, state: &SessionState) -> bool {
        self.used || state.has_set(self.settings) || self.private.is_some() || !self.savepoints.is_empty()
    }

    /// The store's transaction.
    pub(super) fn store(&self) -> Result<&RefCell<Transaction>> {
        self.transaction.as_ref().ok_or_else(failed)
    }

    /// Begins the store's transaction anew with another isolation: nothing has been done yet.
    pub(super) fn set_level(&mut self, shared: &Shared, state: &SessionState, level: Level) -> Result<()> {
        if level == self.level {
            return Ok(());
        }
        if self.used || !self.savepoints.is_empty() {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            ));
        }
        let options = options(&state.settings(), level);
        let transaction = shared.store.begin_watched(options, state.turn.clone());
        state.interrupt.set_canceller(Some(transaction.canceller()));
        self.transaction = Some(RefCell::new(transaction));
        self.level = level;
        // What planning has taken was the other transaction's.
        (self.snapshot, self.kept) = (None, None);
        Ok(())
    }

    // ---- what a statement sees --------------------------------------------------------------------------------

    /// Under REPEATABLE READ definitions are taken once, together with what the transaction sees of rows, before anything is
    /// locked or written: a lock may wait for a change of definitions, and rows as of before it must not be read by definitions
    /// from after it. Whoever asks for either comes here first.
    fn take_snapshot(&mut self, shared: &Shared) {
        if self.level.isolation == Isolation::RepeatableRead
            && self.snapshot.is_none()
            && let Some(transaction) = &self.transaction
        {
            let (view, catalog) = shared.snapshot(&mut transaction.borrow_mut());
            (self.kept, self.snapshot) = (Some(view), Some(catalog));
        }
    }

    /// The definitions for the next statement.
    pub(super) fn catalog(&mut self, shared: &Shared) -> Arc<Catalog> {
        self.take_snapshot(shared);
        if let Some(catalog) = &self.snapshot {
            if let Some(private) = &self.private {
                return Arc::clone(&private.catalog);
            }
            return Arc::clone(catalog);
        }
        let committed = shared.catalog();
        let Some(private) = &mut self.private else { return committed };
        if private.base.version != committed.version {
            // Others have committed changes: ours are put on top of them.
            let mut merged = (*committed).clone();
            merged.adopt(&private.base, &private.catalog);
            *private = Private { base: committed, catalog: Arc::new(merged) };
        }
        Arc::clone(&private.catalog)
    }

    /// Whether the next statement goes by these definitions, where the transaction has none of its own.
    pub(super) fn sees(&mut self, shared: &Shared, planned: &Arc<Catalog>) -> bool {
        self.take_snapshot(shared);
        match &self.snapshot {
            Some(catalog) => Arc::ptr_eq(catalog, planned),
            None => shared.is_current(planned),
        }
    }

    /// Takes the view of a statement that was planned with `planned`; `None` when definitions have changed since.
    pub(super) fn view(&mut self, shared: &Shared, planned: &Arc<Catalog>) -> Result<Option<View>> {
        self.used = true;
        self.take_snapshot(shared);
        let transaction = self.transaction.as_ref().ok_or_else(failed)?;
        if self.snapshot.is_some() {
            let kept = self.kept.take().filter(|view| transaction.borrow().is_current(view));
            return Ok(Some(kept.unwrap_or_else(|| transaction.borrow_mut().view())));
        }
        let (view, committed) = shared.snapshot(&mut transaction.borrow_mut());
        let base = self.private.as_ref().map_or(planned, |private| &private.base);
        Ok((base.version == committed.version).then_some(view))
    }

    /// Takes a view back that was used and is of no more use.
    pub(super) fn keep(&mut self, view: View) {
        if self.snapshot.is_some() {
            self.kept = Some(view);
        }
    }

    /// Holds tables against changes of their definition, for one that writes to them. False when a definition has changed
    /// meanwhile: the statement has to be planned anew.
    pub(super) fn hold(&mut self, shared: &Shared, planned: &Catalog, tables: &[Oid]) -> Result<bool> {
        let mut current = true;
        for oid in tables {
            if self.held.contains(oid) {
                continue;
            }
            let transaction = self.transaction.as_ref().ok_or_else(failed)?;
            let Some(table) = planned.tables.get(oid) else { continue };
            if !storage::lock_for_write(&mut transaction.borrow_mut(), planned, table)? {
                if self.snapshot.is_some() {
                    return Err(Error::new(
                        SqlState::SERIALIZATION_FAILURE,
                        format!(
                            "could not serialize access: the definition of table \"{}\" has changed",
                            table.name
                        ),
                    ));
                }
                current = false;
                continue;
            }
            self.held.insert(*oid);
        }
        if !current {
            // The change may be committed but not yet in place: its session publishes it right after.
            drop(shared.catalog());
        }
        Ok(current)
    }

    // ---- savepoints -------------------------------------------------------------------------------------------

    /// How many there are.
    pub(super) fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    pub(super) fn savepoint(&mut self, name: String, state: &SessionState) -> Result<()> {
        let bytes = SAVEPOINT_BYTES + 2 * name.len() as u64 + self.kept_bytes() + state.undo_bytes() as u64;
        match &mut self.memory {
            Some(memory) => memory.grow(bytes)?,
            None => self.memory = Some(state.engine.memory(Purpose::Sessions, bytes)?),
        }
        let savepoint = self.store()?.borrow_mut().savepoint();
        self.savepoints.push(Mark {
            name,
            savepoint,
            private: self.private.clone(),
            settings: state.settings_mark(),
            read_only: self.read_only,
            bytes,
        });
        Ok(())
    }

    /// Bytes of the definitions that a savepoint keeps now and the one before does not: of what is changed, the next change makes another copy.
    fn kept_bytes(&self) -> u64 {
        let Some(private) = &self.private else { return 0 };
        let before = self.savepoints.last().and_then(|mark| mark.private.as_ref());
        if before.is_some_and(|before| Arc::ptr_eq(&before.catalog, &private.catalog)) {
            return 0;
        }
        let Catalog { tables, sequences, roles, statistics, names, .. } = &*private.catalog;
        let count = tables.len() + sequences.len() + roles.len() + statistics.len() + names.len();
        count as u64 * DEFINITION_BYTES
    }

    /// Forgets the savepoints from this one on.
    fn forget_savepoints(&mut self, from: usize) {
        self.savepoints.truncate(from);
        if let Some(memory) = &mut self.memory {
            memory.shrink_to(self.savepoints.iter().map(|mark| mark.bytes).sum());
        }
    }

    fn find(&self, name: &str) -> Result<usize> {
        self.savepoints.iter().rposition(|mark| mark.name == name).ok_or_else(|| {
            Error::new(SqlState::SAVEPOINT_EXCEPTION, format!("savepoint \"{name}\" does not exist"))
        })
    }

    /// Gives how many savepoints are left.
    pub(super) fn release(&mut self, name: &str, state: &SessionState) -> Result<usize> {
        let place = self.find(name)?;
        // As in PostgreSQL: SET TRANSACTION READ ONLY lasts until the end of the savepoint.
        self.read_only = self.savepoints[place].read_only;
        let before = place.checked_sub(1).map_or(self.settings, |place| self.savepoints[place].settings);
        state.release_settings(self.savepoints[place].settings, before);
        self.forget_savepoints(place);
        Ok(place)
    }

    /// Gives how many savepoints there were when that one was made.
    pub(super) fn rollback_to(&mut self, name: &str, state: &SessionState) -> Result<usize> {
        let place = self.find(name)?;
        self.forget_savepoints(place + 1);
        self.go_back(state)?;
        self.failed = false;
        Ok(place)
    }

    /// To the newest savepoint.
    fn go_back(&mut self, state: &SessionState) -> Result<()> {
        let Some(mark) = self.savepoints.last() else { return Ok(()) };
        if let Some(transaction) = &self.transaction {
            transaction.borrow_mut().rollback_to(mark.savepoint)?;
        }
        self.private.clone_from(&mark.private);
        state.undo_settings(mark.settings, false);
        self.read_only = mark.read_only;
        self.held.clear();
        Ok(())
    }

    // ---- the end ----------------------------------------------------------------------------------------------

    /// A statement has failed: gives back what it and all since the last savepoint have taken.
    pub(super) fn fail(&mut self, state: &SessionState) -> Result<()> {
        self.kept = None;
        self.failed = true;
        if !self.savepoints.is_empty() {
            return self.go_back(state);
        }
        if self.private.take().is_some() {
            state.trim_numbers();
        }
        self.held.clear();
        state.undo_settings(self.settings, false);
        state.interrupt.set_canceller(None);
        match self.transaction.take() {
            Some(transaction) => Ok(transaction.into_inner().rollback()?),
            None => Ok(()),
        }
    }

    /// Commits; a failed transaction is rolled back instead, and false given.
    pub(super) fn commit(mut self, shared: &Shared, state: &SessionState) -> Result<bool> {
        let Some(transaction) = self.transaction.take().filter(|_| !self.failed) else {
            self.rollback(state)?;
            return Ok(false);
        };
        state.interrupt.set_canceller(None);
        let mut transaction = transaction.into_inner();
        // As it is set now: SET LOCAL is undone below.
        transaction.set_durability(state.settings().durability);
        transaction.wait_for_log(state.take_given());
        let done = match &self.private {
            Some(private) => shared.commit_definitions(transaction, &private.base, &private.catalog),
            None => transaction.commit().map_err(Error::from),
        };
        state.undo_settings(self.settings, done.is_ok());
        done.map(|()| true)
    }

    /// Rolls back.
    pub(super) fn rollback(mut self, state: &SessionState) -> Result<()> {
        if self.private.is_some() {
            state.trim_numbers();
        }
        state.interrupt.set_canceller(None);
        state.undo_settings(self.settings, false);
        match self.transaction.take() {
            Some(transaction) => Ok(transaction.into_inner().rollback()?),
            None => Ok(()),
        }
    }

    /// The definitions that a statement may change, and what the transaction's changes of them are made from.
    pub(super) fn changeable(&mut self, shared: &Shared) -> Private {
        let catalog = self.catalog(shared);
        match &self.private {
            Some(private) => private.clone(),
            None => Private { base: Arc::clone(&catalog), catalog },
        }
    }

    /// What has become of [`changeable`](Self::changeable) definitions. On the base that the statement began with: what others have committed
    /// meanwhile is told from it. Where they are as they were, the transaction has changed none by it: the plans of all sessions stay.
    pub(super) fn changed(&mut self, before: Private, catalog: Arc<Catalog>) {
        if !Arc::ptr_eq(&before.catalog, &catalog) {
            self.private = Some(Private { catalog, ..before });
        }
    }

    /// Runs a statement that changes definitions. Where it comes to wait for somebody who changes what it is about, it begins anew with what
    /// that one has left: other tables, sequences and names may have changed along.
    pub(super) fn define(
        &mut self,
        shared: &Shared,
        state: &SessionState,
        interrupt: &Interrupt,
        statement: &Parsed,
    ) -> Result<CommandTag> {
        let planner = state.settings().planner.clone();
        let mut attempts = 0;
        let noted = state.noted();
        loop {
            attempts += 1;
            let before = self.changeable(shared);
            let mut catalog = Arc::clone(&before.catalog);
            let transaction = self.store()?;
            let begun = transaction.borrow_mut().savepoint();
            let mut context = DdlContext {
                transaction,
                catalog: &mut catalog,
                numbers: &shared.numbers,
                session: state,
                planner: &planner,
                cancel: interrupt.flag(),
                is_stale: Cell::new(false),
            };
            let _counting = effort::begin(&state.engine, interrupt, None);
            let done =
                state.turn.run(&mut StatementTurn::new(true), || ddl::execute(&mut context, statement));
            if context.is_stale.get() && done.is_err() && attempts < DEFINED_ANEW {
                transaction.borrow_mut().rollback_to(begun)?;
                state.take_back_notices(noted);
                continue;
            }
            let tag = done?;
            self.changed(before, catalog);
            return Ok(tag);
        }
    }
}

/// What the store is told of a transaction that begins.
fn options(settings: &Settings, level: Level) -> TransactionOptions {
    TransactionOptions {
        isolation: level.isolation,
        durability: settings.durability,
        lock_timeout: settings.lock_timeout,
        snapshot_limit: Some(settings.snapshot_limit.unwrap_or_default()),
    }
}

pub(super) fn failed() -> Error {
    Error::new(
        SqlState::IN_FAILED_SQL_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}
