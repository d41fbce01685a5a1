//! What functions and operators see of a session.

use super::Notice;
use super::database::{Database, Shared, no_role, now, now_coarse};
use super::interrupt::Interrupt;
use super::prepared::Prepared;
use super::rights::Rights;
use super::settings::{self, DEFINITIONS, KEYS, Key, Settings, severity_rank};
use super::turn::SessionTurn;
use super::undo::{Stays, Undo, UndoList};
use crate::catalog::sequences::Position;
use crate::catalog::{Catalog, Oid, Role, Sequence, Table};
use crate::functions::Patterns;
use crate::types::text::TextStyle;
use crate::{Error, Result, SqlState, Type};
use gannet_base::Lsn;
use gannet_store::{Engine, View};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Rows of a COPY FROM.
type CopySource = std::sync::mpsc::Receiver<super::copy::Batch>;

/// Notices of a statement that are told; of more there is only the number.
const NOTICES_MOST: usize = 200;
/// Characters of a name that is too long which a notice shows.
const SHOWN_NAME: usize = 256;
/// The severity below which no notice is.
const LEAST_SEVERE: &str = "NOTICE";

/// A prepared statement of a session, for views.
#[derive(Clone, Debug)]
pub struct PreparedInfo {
    /// Its text.
    pub text: Arc<str>,
    /// When it was prepared, in microseconds since 2000-01-01 UTC.
    pub prepared_at: i64,
    /// Types of its parameters.
    pub parameters: Vec<Type>,
    /// Whether PREPARE made it, not the protocol.
    pub from_sql: bool,
}

/// How many notices there were at some moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    told: usize,
    untold: (u64, &'static str),
}

/// What functions and operators see of a session.
#[derive(Debug)]
pub struct SessionState {
    /// How values are read and written.
    pub style: TextStyle,
    /// When the transaction began, in microseconds since 2000-01-01 UTC: `now()`.
    pub transaction_start: i64,
    /// When the statement began: `statement_timestamp()`.
    pub statement_start: i64,
    /// Name of the role.
    pub user: String,
    /// Its number: the name may be another one's by now.
    pub role: Oid,
    /// Name of the database.
    pub database: String,
    /// Number of the session, as `pg_backend_pid()` gives it.
    pub pid: i32,
    /// Memory and temporary files.
    pub engine: Engine,
    pub(super) handle: Database,
    pub(super) interrupt: Interrupt,
    /// Of the statement that runs.
    pub(crate) turn: Arc<SessionTurn>,
    settings: RefCell<Settings>,
    undo: RefCell<UndoList>,
    style_changed: Cell<bool>,
    /// Names and new texts of settings that the client is told of.
    reports: RefCell<Vec<(&'static str, String)>>,
    notices: RefCell<Vec<Notice>>,
    /// Those beyond what is kept: how many, and the most severe of their severities.
    untold: Cell<(u64, &'static str)>,
    /// Prepared statements that have a name.
    prepared: RefCell<BTreeMap<String, PreparedInfo>>,
    /// Rows of a COPY FROM, for its INSERT.
    copy_source: RefCell<Option<CopySource>>,
    /// What nextval gave, by sequence.
    current: RefCell<HashMap<u32, i64>>,
    /// The sequence of which nextval gave last.
    last: Cell<Option<u32>>,
    /// The log up to here has what sequences have given, or were set to, since the last commit.
    given: Cell<Lsn>,
    /// Regular expressions, compiled.
    pub(crate) patterns: RefCell<Patterns>,
    /// Where `random()` stands, once `setseed()` was called.
    pub seed: Cell<Option<u64>>,
}

impl SessionState {
    pub(crate) fn new(handle: Database, role: &Role, pid: i32, interrupt: Interrupt) -> Self {
        let (planner, snapshot_limit) = (handle.0.planner_settings(), handle.store().snapshot_limit());
        let settings = Settings::new(&role.name, role.superuser, planner, snapshot_limit);
        SessionState {
            style: settings.style.clone(),
            transaction_start: now(),
            statement_start: now(),
            user: role.name.clone(),
            role: role.oid,
            database: handle.name().to_owned(),
            pid,
            turn: Arc::new(SessionTurn::new(handle.store().engine().clone(), interrupt.clone())),
            engine: handle.store().engine().clone(),
            handle,
            interrupt,
            settings: RefCell::new(settings),
            undo: RefCell::default(),
            style_changed: Cell::new(false),
            reports: RefCell::default(),
            notices: RefCell::default(),
            untold: Cell::new((0, LEAST_SEVERE)),
            prepared: RefCell::default(),
            copy_source: RefCell::default(),
            current: RefCell::default(),
            last: Cell::new(None),
            given: Cell::new(Lsn::ZERO),
            patterns: RefCell::default(),
            seed: Cell::new(None),
        }
    }

    /// Why the statement was cancelled: at the user's request, for its time-out, or because the server goes down.
    pub fn cancel_reason(&self) -> Error {
        self.interrupt.error()
    }

    /// The open database.
    pub fn database(&self) -> &Database {
        &self.handle
    }

    /// What the role may do: 28000 where it was dropped. `seen`: the definitions of the statement that asks.
    pub fn rights(&self, seen: Option<&Catalog>) -> Result<Rights> {
        Rights::of(&self.handle, self.role, seen).ok_or_else(|| no_role(&self.user))
    }

    /// Whether the role may do everything; see [`rights`](Self::rights).
    pub fn is_superuser(&self, seen: Option<&Catalog>) -> bool {
        self.rights(seen).is_ok_and(|rights| rights.superuser)
    }

    /// A statement begins. `timeless`: it does not ask when; within a transaction some milliseconds do not matter then.
    pub(super) fn begin_statement(&mut self, in_transaction: bool, timeless: bool) {
        self.statement_start = if in_transaction && timeless {
            // Never before what came before it by the exact clock.
            now_coarse().max(self.statement_start)
        } else {
            now()
        };
        if !in_transaction {
            self.transaction_start = self.statement_start;
        }
        self.settle_style();
        self.style.now = self.transaction_start;
    }

    /// A transaction begins within the statement that has ended the one before.
    pub(super) fn begin_chained(&mut self) {
        self.transaction_start = self.statement_start;
        self.style.now = self.transaction_start;
    }

    /// Whatever settings have changed is in force from here on: for the binder, for values that are read and written.
    #[inline]
    pub(super) fn settle_style(&mut self) {
        if self.style_changed.get() {
            self.take_style();
        }
    }

    #[cold]
    fn take_style(&mut self) {
        self.style_changed.set(false);
        let catalog = self.style.catalog.take();
        self.style = TextStyle { now: self.style.now, catalog, ..self.settings.borrow().style.clone() };
    }

    /// The same from the definitions in force.
    pub(super) fn follow_catalog(&mut self, shared: &Shared) {
        if !self.style.catalog.as_ref().is_some_and(|known| shared.is_current(known)) {
            self.style.catalog = Some(shared.catalog());
        }
    }

    /// Names of regclass and its kin are taken from here.
    pub(super) fn set_catalog(&mut self, catalog: &Arc<Catalog>) {
        match &self.style.catalog {
            Some(known) if Arc::ptr_eq(known, catalog) => {}
            _ => self.style.catalog = Some(Arc::clone(catalog)),
        }
    }

    // ---- settings ---------------------------------------------------------------------------------------------

    /// The settings.
    pub fn settings(&self) -> std::cell::Ref<'_, Settings> {
        self.settings.borrow()
    }

    /// The text of a setting, as SHOW and `current_setting()` give it; 42704 when there is none.
    pub fn setting(&self, name: &str) -> Result<String> {
        let index = settings::find(name)?;
        Ok(self.settings.borrow().text(index).to_owned())
    }

    /// Changes a setting, as `set_config()` does within a statement (`local`: for its transaction; no value: to its default); gives its
    /// new text. Modes of the transaction that are to be set before any query are refused, for this is one.
    pub fn set_setting(&self, name: &str, value: Option<&str>, local: bool) -> Result<String> {
        let index = settings::find(name)?;
        let mode = match KEYS[index] {
            Key::TransactionIsolation => Some("SET TRANSACTION ISOLATION LEVEL must be called"),
            Key::TransactionReadOnly => Some("transaction read-write mode must be set"),
            _ => None,
        };
        let Some(mode) = mode else { return self.change_setting(index, value, local) };
        let before = self.setting(name)?;
        let now = self.change_setting(index, value, local)?;
        // The next statement finds the transaction read-only, see `Open::follow_settings`.
        let may = now == before || KEYS[index] == Key::TransactionReadOnly && now == "on";
        if may {
            return Ok(now);
        }
        Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, format!("{mode} before any query")))
    }

    /// The same by number; `None`: to its default.
    pub(super) fn change_setting(&self, index: usize, value: Option<&str>, local: bool) -> Result<String> {
        self.follow_role();
        let mut settings = self.settings.borrow_mut();
        let before = settings.set(index, value)?;
        let stays = if local { Stays::Before } else { Stays::Now };
        self.undo.borrow_mut().note(Undo { index, before, stays });
        self.changed(&settings, index);
        let text = settings.text(index).to_owned();
        // A notice looks at settings, too.
        drop(settings);
        if let Some(value) = value {
            self.tell_of_cut(index, value);
        }
        Ok(text)
    }

    /// Some settings are for superusers, which the role may have become or ceased to be since the session began.
    fn follow_role(&self) {
        let index = Key::IsSuperuser as usize;
        let text = if self.is_superuser(None) { "on" } else { "off" };
        let mut settings = self.settings.borrow_mut();
        if settings.text(index) != text {
            settings.restore(index, text.to_owned());
            self.changed(&settings, index);
        }
    }

    /// Tells the client where a value was longer than a name.
    fn tell_of_cut(&self, index: usize, value: &str) {
        if let Some(cut) = settings::cut(index, value) {
            let shown: String = value.chars().take(SHOWN_NAME).collect();
            let message = format!("identifier \"{shown}\" will be truncated to \"{cut}\"");
            self.notice(Notice { severity: "NOTICE", error: Error::new(SqlState::NAME_TOO_LONG, message) });
        }
    }

    /// Changes a setting as a connection's first message asks: RESET goes back to that.
    pub fn set_at_start(&self, name: &str, value: &str) -> Result<()> {
        let index = settings::find(name)?;
        self.settings.borrow_mut().set_at_start(index, value)?;
        self.style_changed.set(true);
        Ok(())
    }

    /// Takes over the settings of another session of the same role.
    pub(super) fn adopt(&self, settings: Settings) {
        *self.settings.borrow_mut() = settings;
        self.style_changed.set(true);
    }

    /// Names and texts of the settings that a client is told of.
    pub fn reported_settings(&self) -> Vec<(&'static str, String)> {
        let settings = self.settings.borrow();
        let text = |(index, definition): (usize, &settings::Definition)| {
            definition.reported.then(|| (definition.name, settings.text(index).to_owned()))
        };
        DEFINITIONS.iter().enumerate().filter_map(text).collect()
    }

    /// Sets a setting without asking whether that is permitted or a transaction could undo it.
    pub(super) fn note_setting(&self, key: Key, text: &str) {
        let mut settings = self.settings.borrow_mut();
        if settings.text(key as usize) != text {
            settings.restore(key as usize, text.to_owned());
        }
    }

    fn changed(&self, settings: &Settings, index: usize) {
        self.style_changed.set(true);
        let definition = &DEFINITIONS[index];
        if definition.reported {
            let mut reports = self.reports.borrow_mut();
            reports.retain(|(name, _)| *name != definition.name);
            reports.push((definition.name, settings.text(index).to_owned()));
        }
    }

    /// Where the changes of settings stand that a transaction, or savepoint, which begins now will make.
    pub(super) fn settings_mark(&self) -> usize {
        self.undo.borrow_mut().mark()
    }

    /// Whether settings were changed since a mark.
    pub(super) fn has_set(&self, mark: usize) -> bool {
        self.undo.borrow().len() > mark
    }

    /// Bytes that the changes of settings since the last mark take.
    pub(super) fn undo_bytes(&self) -> usize {
        self.undo.borrow().bytes_behind_mark()
    }

    /// The savepoint of a mark is released: its changes are those of what begins at the mark `before`.
    pub(super) fn release_settings(&self, mark: usize, before: usize) {
        self.undo.borrow_mut().merge(mark, before);
    }

    /// Undoes changes of settings since a mark; all of them, or, at a commit, the local ones.
    pub(super) fn undo_settings(&self, mark: usize, committed: bool) {
        let changes = self.undo.borrow_mut().take(mark);
        let mut settings = self.settings.borrow_mut();
        for change in changes {
            let index = change.index;
            if let Some(text) = change.outcome(committed) {
                settings.restore(index, text);
                self.changed(&settings, index);
            }
        }
    }

    /// All settings to what they are where the session does not say.
    pub(super) fn reset_settings(&self) {
        for (index, definition) in DEFINITIONS.iter().enumerate() {
            let transaction =
                index == Key::TransactionIsolation as usize || index == Key::TransactionReadOnly as usize;
            let is_other = |settings: &Settings| settings.text(index) != settings.default_text(index);
            if definition.scope != settings::Scope::Fixed && !transaction && is_other(&self.settings.borrow())
            {
                // It was in force when the session began, so it is valid.
                let _ = self.change_setting(index, None, false);
            }
        }
    }

    /// Whether there is something to tell the client: notices, or changed settings.
    pub(super) fn has_news(&self) -> bool {
        !self.notices.borrow().is_empty() || !self.reports.borrow().is_empty()
    }

    pub(super) fn take_reports(&self) -> Vec<(&'static str, String)> {
        self.reports.take()
    }

    // ---- sequences --------------------------------------------------------------------------------------------

    /// The next value of a sequence, which a rollback does not take back; `None`: to be asked for again, once the definition that is in force was
    /// looked at, and [confirmed](Self::confirm_sequence).
    pub fn nextval(&self, sequence: &Sequence) -> Result<Option<i64>> {
        let Some(value) = self.handle.0.numbers.nextval(sequence)? else { return Ok(None) };
        self.given.set(self.handle.0.numbers.raised());
        self.current.borrow_mut().insert(sequence.oid, value);
        self.last.set(Some(sequence.oid));
        Ok(Some(value))
    }

    /// A sequence's definition is in force: for who holds its entry.
    pub fn confirm_sequence(&self, sequence: &Sequence) -> Result<()> {
        self.handle.0.numbers.confirm(sequence)
    }

    /// Up to where the log has to be durable before anybody hears that what sequences have given is his; asked once.
    pub(super) fn take_given(&self) -> Lsn {
        self.given.replace(Lsn::ZERO)
    }

    /// The value nextval gave last in this session; 55000 when none.
    pub fn currval(&self, sequence: &Sequence) -> Result<i64> {
        self.current.borrow().get(&sequence.oid).copied().ok_or_else(|| {
            Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name),
            )
        })
    }

    /// What nextval gave last, of whatever sequence, which has to be there still.
    pub fn lastval(&self, catalog: &Catalog) -> Result<i64> {
        let last = self.last.get().filter(|sequence| catalog.sequences.contains_key(sequence));
        last.and_then(|sequence| self.current.borrow().get(&sequence).copied()).ok_or_else(|| {
            Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "lastval is not yet defined in this session",
            )
        })
    }

    /// Sets a sequence's position; `called`: the next value is the one behind it. False: nothing is done yet, as in
    /// [`nextval`](Self::nextval).
    pub fn setval(&self, sequence: &Sequence, value: i64, called: bool) -> Result<bool> {
        if !self.handle.0.numbers.setval(sequence, value, called)? {
            return Ok(false);
        }
        self.given.set(self.handle.0.numbers.raised());
        if called {
            self.current.borrow_mut().insert(sequence.oid, value);
        }
        Ok(true)
    }

    /// Where a sequence stands, for system views.
    pub fn sequence_position(&self, view: &View, sequence: &Sequence) -> Result<Position> {
        self.handle.0.numbers.current(view, sequence)
    }

    /// See [`Numbers::trim`](crate::catalog::Numbers::trim): for who does not commit the definitions that he has changed.
    pub(super) fn trim_numbers(&self) {
        self.handle.0.trim_numbers();
    }

    /// A number for a new row of a table without primary key: never given before, whatever crashed or was rolled back.
    pub fn next_row_id(&self, table: &Table) -> Result<u64> {
        self.handle.0.numbers.row_id(table)
    }

    /// Forgets what nextval gave.
    pub(super) fn forget_sequences(&self) {
        self.current.borrow_mut().clear();
        self.last.set(None);
    }

    // ---- prepared statements ----------------------------------------------------------------------------------

    /// Prepared statements that have a name.
    pub fn prepared_statements(&self) -> BTreeMap<String, PreparedInfo> {
        self.prepared.borrow().clone()
    }

    pub(super) fn note_prepared(&self, name: &str, prepared: &Prepared, from_sql: bool) {
        if name.is_empty() {
            return;
        }
        let info = PreparedInfo {
            text: prepared.parsed.as_ref().map_or("", |parsed| parsed.text.as_str()).into(),
            prepared_at: now(),
            parameters: prepared.parameters.clone(),
            from_sql,
        };
        self.prepared.borrow_mut().insert(name.to_owned(), info);
    }

    /// One is gone, or all of them are.
    pub(super) fn forget_prepared(&self, name: Option<&str>) {
        let mut prepared = self.prepared.borrow_mut();
        match name {
            Some(name) => drop(prepared.remove(name)),
            None => prepared.clear(),
        }
    }

    // ---- notices ----------------------------------------------------------------------------------------------

    /// Something to tell the client at the statement's end. A statement may have one for each of its rows: the first ones are told, others counted.
    pub fn notice(&self, notice: Notice) {
        if severity_rank(notice.severity) < self.settings.borrow().least_severity {
            return;
        }
        let mut notices = self.notices.borrow_mut();
        if notices.len() < NOTICES_MOST {
            notices.push(notice);
            return;
        }
        let (count, severity) = self.untold.get();
        let is_worse = severity_rank(notice.severity) > severity_rank(severity);
        self.untold.set((count + 1, if is_worse { notice.severity } else { severity }));
    }

    /// How much there is to tell, for [`take_back_notices`](Self::take_back_notices).
    pub(super) fn noted(&self) -> Noted {
        Noted { told: self.notices.borrow().len(), untold: self.untold.get() }
    }

    /// Forgets what there has come to tell since.
    pub(super) fn take_back_notices(&self, since: Noted) {
        self.notices.borrow_mut().truncate(since.told);
        self.untold.set(since.untold);
    }

    /// Rows of a COPY FROM are about to come from here.
    pub(super) fn give_copy_source(&self, source: CopySource) {
        *self.copy_source.borrow_mut() = Some(source);
    }

    pub(super) fn take_copy_source(&self) -> Option<CopySource> {
        self.copy_source.take()
    }

    pub(super) fn take_notices(&self) -> Vec<Notice> {
        let mut notices = self.notices.take();
        let (count, severity) = self.untold.replace((0, LEAST_SEVERE));
        if count > 0 {
            let state =
                if severity == "WARNING" { SqlState::WARNING } else { SqlState::SUCCESSFUL_COMPLETION };
            let message = format!("there were {count} more messages, which are not shown");
            notices.push(Notice { severity, error: Error::new(state, message) });
        }
        notices
    }
}
