//! Sessions: who runs statements, in which transaction, with which settings.
//!
//! | module | job |
//! |---|---|
//! | `database` | the open database that sessions share |
//! | `transaction` | BEGIN to COMMIT, savepoints, definitions not yet committed |
//! | `sizes` | what the planner is told of sizes, and when a plan has to be made anew |
//! | `prepared`, `portal` | prepared statements and portals, by name and charged; portals as they are bound and run |
//! | `coming` | what statements will ask for that a client has sent already |
//! | `statement` | planning through the cache, running, giving out rows |
//! | `utility` | statements without a plan: SET, SHOW, EXPLAIN, PREPARE and their kin |
//! | `copy`, `bulk` | COPY; filling an empty table from the bottom up |
//! | `settings`, `undo`, `state` | settings; what they were before a transaction; what functions and operators see of a session |
//! | `rights` | what a session's role may do |
//! | `jobs` | statements that run a job: CHECK, COMPACT, DUMP, STAT and SWEEP DATABASE; `backup`, `load`, `restore` and `verify` are of those that have more to do |
//! | `interrupt` | cancelling, time-outs |
//! | `turn` | who takes much memory, and when; long values |

mod activity;
mod apart;
mod backup;
mod bulk;
mod cache;
mod client;
mod coming;
mod copy;
mod database;
mod given;
mod interrupt;
mod jobs;
mod load;
mod portal;
mod prepared;
mod restore;
mod rights;
pub mod settings;
mod sizes;
mod state;
mod statement;
mod transaction;
mod turn;
mod undo;
mod utility;
mod verify;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use copy::fuzzing;
pub(crate) use copy::{CopyOptions, Fields, Header, Reader, read_options};

pub use activity::{Activity, Live};
pub use client::{Client, CommandTag, CopyFormat, Notice, OutputColumn, Rows};
pub use database::{Database, SessionInfo, SettingReport};
pub(crate) use database::{from_unix, now};
pub use interrupt::{Interrupt, Reason};
pub use prepared::{Formats, Prepared};
pub use rights::Rights;
pub use settings::Settings;
pub(crate) use sizes::rows_now;
pub use state::{PreparedInfo, SessionState};

use crate::bind::{self, Parsed};
use crate::catalog::Role;
use crate::exec::Batch;
use crate::types::text::TextStyle;
use crate::{Error, Result, SqlState, Type, Value};
use activity::State;
use gannet_base::memory::Purpose;
use gannet_store::WorkMemory;
use interrupt::Alarm;
use prepared::{Named, Parameters, Portal};
use settings::Key;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use transaction::Open;
pub(crate) use turn::{StatementTurn, without_long_values};

/// Bytes of stack of a session's thread; what is not touched is not taken. Statements are limited in depth to what two megabytes
/// hold; the rest is for code that was not optimised.
pub const SESSION_STACK: usize = 8 << 20;
/// Bytes that a session takes of the budget, about.
const SESSION_BYTES: u64 = 64 << 10;
/// Longest part of a statement that views show.
const SHOWN_QUERY: usize = 1024;

/// Switches of the planner, by PostgreSQL's names; an experiment forces a plan with them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "they are the settings users know")]
pub struct PlannerSettings {
    /// `enable_seqscan`
    pub seqscan: bool,
    /// `enable_indexscan`
    pub indexscan: bool,
    /// `enable_indexonlyscan`
    pub indexonlyscan: bool,
    /// `enable_sort`
    pub sort: bool,
    /// `enable_hashagg`
    pub hashagg: bool,
    /// `enable_hashjoin`
    pub hashjoin: bool,
    /// `enable_nestloop`, index joins included
    pub nestloop: bool,
    /// `gannet_look_ahead`: index order and index joins fetch rows in batches, and so do statements that a client has sent at once.
    pub look_ahead: bool,
    /// Bytes of page frames, the planner's idea of what is in memory.
    pub cache_bytes: u64,
    /// Bytes an operator may take before it spills.
    pub work_bytes: u64,
}

/// How a statement stands among others, which says when what it has done is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// The only one of its text: with it, before success is reported.
    Alone,
    /// One of several of a text, and not the last: with that.
    OneOfSeveral,
    /// The last of them: with it, before its success is reported.
    LastOfSeveral,
    /// One of a series of messages, which may be the only one: with their end.
    InSeries,
}

impl Standing {
    /// There are others of the same text.
    fn is_of_several(self) -> bool {
        matches!(self, Standing::OneOfSeveral | Standing::LastOfSeveral)
    }

    /// The text ends with it, and with that a transaction that nobody has begun.
    fn ends_text(self) -> bool {
        matches!(self, Standing::Alone | Standing::LastOfSeveral)
    }
}

/// How far [`Session::execute`] came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Execution {
    /// To the end.
    Complete,
    /// The row limit was reached; there may be more.
    Suspended,
}

/// Where a session stands, as `ReadyForQuery` says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionStatus {
    /// Not in a transaction: `I`.
    Idle,
    /// In one: `T`.
    Active,
    /// In one that has failed: `E`.
    Failed,
}

/// A session on a database. Dropped, it rolls back.
#[derive(Debug)]
pub struct Session {
    database: Database,
    state: SessionState,
    interrupt: Interrupt,
    activity: Arc<Live>,
    /// Of the statement that runs, where jobs want to know when it ends.
    watched: Option<Duration>,
    transaction: Option<Open>,
    prepared: Named<Arc<Prepared>>,
    portals: Named<Portal>,
    /// The statement that `activity` shows, where it is a prepared one.
    shown: Option<Arc<Parsed>>,
    /// What statements to come will ask for.
    wanted: Option<Box<coming::Wanted>>,
    /// For rows of statements that take the short way.
    batch: Batch,
    _memory: WorkMemory,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.portals.clear();
        if let Some(open) = self.transaction.take() {
            // Whoever went away cannot be told; what was not reverted now is reverted by the next start.
            let _ = open.rollback(&self.state);
        }
        self.database.0.leave(self.state.pid);
    }
}

impl Session {
    fn new(database: Database, role: &Role) -> Result<Self> {
        // Page frames make room where the budget has none.
        let memory = database.store().engine().memory(Purpose::Sessions, SESSION_BYTES)?;
        let interrupt = Interrupt::default();
        let activity = Arc::new(Live::new());
        let pid = database.0.enter(role, &activity, &interrupt);
        Ok(Session {
            state: SessionState::new(database.clone(), role, pid, interrupt.clone()),
            database,
            interrupt,
            activity,
            watched: None,
            transaction: None,
            prepared: Named::statements(),
            portals: Named::portals(),
            shown: None,
            wanted: None,
            batch: Batch::new(),
            _memory: memory,
        })
    }

    /// Who the session's client is, for views: at an address, or (`None`) on this machine, with the name it has given itself.
    pub fn note_client(&self, address: Option<SocketAddr>) {
        self.activity.set_client(address, self.state.settings().get(Key::ApplicationName));
    }

    /// Stands as another session of the same role does, with its settings.
    fn adopt(&self, settings: Settings) {
        self.activity.set_application(settings.get(Key::ApplicationName));
        self.state.adopt(settings);
    }

    /// What functions see of the session: settings, user, number.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Ends the running statement, from any thread.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// Where the session stands.
    pub fn status(&self) -> TransactionStatus {
        match &self.transaction {
            Some(open) if open.failed => TransactionStatus::Failed,
            Some(open) if open.explicit => TransactionStatus::Active,
            _ => TransactionStatus::Idle,
        }
    }

    // ---- simple query -----------------------------------------------------------------------------------------

    /// Runs all statements of a text, as the simple query protocol does: those not within BEGIN and COMMIT are one
    /// transaction. The first error ends it, and is returned.
    pub fn run(&mut self, sql: &str, client: &mut dyn Client) -> Result<()> {
        let mut alarm = self.begin_work(Some(sql), false);
        let done = self.run_all(sql, &mut alarm, client);
        self.end_work(alarm, done, client)
    }

    fn run_all(&mut self, sql: &str, alarm: &mut Option<Alarm>, client: &mut dyn Client) -> Result<()> {
        // As PostgreSQL does.
        self.portals.remove("");
        self.prepared.close("", &self.portals);
        let _room = self.room_for(sql)?;
        let mut statements = bind::Statements::read(sql)?;
        if statements.count() == 0 {
            self.end_implicit()?;
            return client.empty();
        }
        let (count, mut taken) = (statements.count(), 0);
        while let Some(parsed) = statements.take()? {
            taken += 1;
            if taken > 1 {
                // Each has the time-out that is in effect when it begins, and no other.
                *alarm = None;
                self.interrupt.forget_timeout();
                *alarm = self.set_alarm();
            }
            let standing = match count {
                1 => Standing::Alone,
                count if taken == count => Standing::LastOfSeveral,
                _ => Standing::OneOfSeveral,
            };
            self.run_statement(&Arc::new(parsed), standing, client)?;
        }
        self.end_implicit()
    }

    /// Memory for what a long text becomes when it is read.
    fn room_for(&self, sql: &str) -> Result<Option<gannet_store::WorkMemory>> {
        let bytes = bind::weight(sql);
        if bytes == 0 {
            return Ok(None);
        }
        self.state.engine.memory(Purpose::Work, bytes).map(Some).map_err(|error| {
            Error::from(error)
                .detail(format!("To read this text of {} bytes may take {bytes} bytes of memory.", sql.len()))
        })
    }

    /// Runs one statement of a text.
    fn run_statement(
        &mut self,
        parsed: &Arc<Parsed>,
        standing: Standing,
        client: &mut dyn Client,
    ) -> Result<()> {
        if self.utility(parsed, Parameters::default(), standing, client)?.is_some() {
            return Ok(());
        }
        self.ensure_transaction()?;
        let prepared = self.plan_closed(parsed)?;
        let mut running = self.start_untold(&prepared)?;
        if prepared.columns.is_some() {
            client.columns(running.columns(), &self.state.style)?;
        }
        self.advance(&mut running, 0, client)?;
        if standing.ends_text() {
            // What may fail at the end has to fail before success is reported.
            let tag = running.tag();
            drop(running);
            self.end_implicit()?;
            return self.complete(&tag, client);
        }
        self.complete(&running.tag(), client)
    }

    /// Reports success, after whatever was to be told.
    fn complete(&mut self, tag: &CommandTag, client: &mut dyn Client) -> Result<()> {
        self.tell(client);
        client.complete(tag)
    }

    // ---- extended query ---------------------------------------------------------------------------------------

    /// Prepares a statement under a name ("" is replaced silently, others must be new: 42P05). Types the client leaves open
    /// are [`Type::Unknown`], or beyond the end of the list.
    pub fn prepare(&mut self, name: &str, sql: &str, parameters: &[Type]) -> Result<Arc<Prepared>> {
        self.extended(sql, |session| session.prepare_statement(name, sql, parameters))
    }

    fn prepare_statement(&mut self, name: &str, sql: &str, parameters: &[Type]) -> Result<Arc<Prepared>> {
        let _room = self.room_for(sql)?;
        let mut statements = bind::parse(sql)?;
        if statements.len() > 1 {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "cannot insert multiple commands into a prepared statement",
            ));
        }
        let prepared = match statements.pop() {
            // As in PostgreSQL, types are taken that nothing has.
            None => Arc::new(Prepared {
                parsed: None,
                parameters: parameters.to_vec(),
                columns: None,
                plan: None,
            }),
            Some(parsed) => self.prepare_parsed(&Arc::new(parsed), parameters)?,
        };
        self.keep_prepared(name, Arc::clone(&prepared), false)?;
        Ok(prepared)
    }

    fn prepare_parsed(&mut self, parsed: &Arc<Parsed>, parameters: &[Type]) -> Result<Arc<Prepared>> {
        self.refuse_in_failed(parsed)?;
        let Some(columns) = self.utility_columns(parsed)? else { return self.plan(parsed, parameters) };
        let parameters = match utility::explained(parsed) {
            Some(explained) => self.plan(&Arc::new(explained.clone()), parameters)?.parameters.clone(),
            None => bind::known(parameters)?.to_vec(),
        };
        Ok(Arc::new(Prepared {
            parsed: Some(Arc::clone(parsed)),
            parameters,
            columns: columns.map(Arc::from),
            plan: None,
        }))
    }

    fn keep_prepared(&mut self, name: &str, prepared: Arc<Prepared>, from_sql: bool) -> Result<()> {
        if !name.is_empty() && self.prepared.contains(name) {
            return Err(Error::new(
                SqlState::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        self.prepared.close(name, &self.portals);
        self.prepared.put(&self.state.engine, name, Arc::clone(&prepared))?;
        self.state.note_prepared(name, &prepared, from_sql);
        Ok(())
    }

    /// The prepared statement of this name.
    pub fn prepared(&self, name: &str) -> Result<Arc<Prepared>> {
        self.prepared.get(name).cloned().ok_or_else(|| {
            let message = if name.is_empty() {
                "unnamed prepared statement does not exist".to_owned()
            } else {
                format!("prepared statement \"{name}\" does not exist")
            };
            Error::new(SqlState::INVALID_SQL_STATEMENT_NAME, message).routine("FetchPreparedStatement")
        })
    }

    /// The same, for one whose result is to be described: a failed transaction has none.
    pub fn describe(&self, name: &str) -> Result<Arc<Prepared>> {
        let prepared = self.prepared(name)?;
        match &self.transaction {
            Some(open) if open.failed && prepared.columns.is_some() => Err(transaction::failed()),
            _ => Ok(prepared),
        }
    }

    /// An error that was found by whoever speaks with the client, such as a message that makes no sense: it ends the
    /// transaction as the error of a statement does. Gives the error to be reported.
    pub fn fail(&mut self, error: Error) -> Error {
        match &self.transaction {
            // The session has found it itself.
            Some(open) if open.failed => error,
            _ => match self.judge(Err(error)) {
                Err(error) => error,
                Ok(()) => Error::internal("an error vanished"),
            },
        }
    }

    /// Forgets a prepared statement; nothing happens when there is none.
    pub fn close_prepared(&mut self, name: &str) {
        self.prepared.close(name, &self.portals);
        self.state.forget_prepared(Some(name));
    }

    /// How the parameters that [`Session::bind`] takes are read from text: by the settings and the clock of this moment.
    pub fn input_style(&mut self) -> &TextStyle {
        self.state.begin_statement(self.transaction.is_some(), false);
        // Names of regclass are those of this moment, too.
        match &mut self.transaction {
            None => self.state.follow_catalog(&self.database.0),
            Some(open) if !open.failed => {
                let catalog = open.catalog(&self.database.0);
                self.state.set_catalog(&catalog);
            }
            Some(_) => {}
        }
        &self.state.style
    }

    /// Prepares a statement for a program that keeps it itself, to be run with [`Session::execute_prepared`].
    pub fn prepare_unnamed(&mut self, sql: &str, parameters: &[Type]) -> Result<Arc<Prepared>> {
        let prepared = self.extended(sql, |session| {
            let _room = session.room_for(sql)?;
            let mut statements = bind::parse(sql)?;
            match (statements.pop(), statements.is_empty()) {
                (Some(parsed), true) => session.prepare_parsed(&Arc::new(parsed), parameters),
                _ => Err(Error::new(SqlState::SYNTAX_ERROR, "exactly one statement can be prepared")),
            }
        })?;
        self.extended("", Self::end_implicit)?;
        Ok(prepared)
    }

    /// Runs a prepared statement to its end, in a transaction of its own unless one was begun: the shortest way for a program
    /// that embeds the database.
    pub fn execute_prepared(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[Value],
        client: &mut dyn Client,
    ) -> Result<()> {
        let alarm = self.begin_planned(prepared);
        let done = self.run_prepared(prepared, parameters, client);
        self.end_work(alarm, done, client)
    }

    fn run_prepared(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[Value],
        client: &mut dyn Client,
    ) -> Result<()> {
        let Some(parsed) = &prepared.parsed else { return client.empty() };
        if parameters.len() != prepared.parameters.len() {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                format!(
                    "{} parameters were given, {} are needed",
                    parameters.len(),
                    prepared.parameters.len()
                ),
            ));
        }
        if prepared.plan.is_none() {
            let parameters = Parameters { types: &prepared.parameters, values: parameters };
            return self.utility(parsed, parameters, Standing::Alone, client).map(drop);
        }
        self.refuse_in_failed(parsed)?;
        self.ensure_transaction()?;
        if let Some(rows) = self.select_point(prepared, parameters, true, client)? {
            self.end_implicit()?;
            return self.complete(&CommandTag { command: "SELECT", rows: Some(rows) }, client);
        }
        let mut running = self.start(prepared, parameters.to_vec(), false)?;
        if prepared.columns.is_some() {
            client.columns(running.columns(), &self.state.style)?;
        }
        self.advance(&mut running, 0, client)?;
        let tag = running.tag();
        drop(running);
        self.end_implicit()?;
        self.complete(&tag, client)
    }

    /// The end of a series of extended-protocol messages: ends the transaction that was begun for them, if there was no BEGIN.
    /// After an error in the series it was rolled back.
    pub fn sync(&mut self, client: &mut dyn Client) -> Result<()> {
        self.watched = self.state.engine.statement_begins();
        self.wanted = None;
        let done = self.end_implicit();
        let done = self.judge(done);
        if self.transaction.is_none() {
            // Nor do portals live longer that were never run.
            self.close_portals();
        }
        self.tell(client);
        self.interrupt.end();
        self.show_state();
        done
    }

    // ---- around statements ------------------------------------------------------------------------------------

    /// As [`Session::begin_work`]; a statement that runs again and again is not shown anew each time.
    fn begin_planned(&mut self, prepared: &Prepared) -> Option<Alarm> {
        match (&prepared.parsed, &self.shown) {
            (Some(parsed), Some(shown)) if Arc::ptr_eq(parsed, shown) => {
                let timeless = prepared.plan.as_ref().and_then(|plan| plan.point).is_some_and(|p| p.plain);
                self.begin_work(None, timeless)
            }
            (parsed, _) => {
                let text = parsed.as_ref().map_or("", |parsed| &parsed.text);
                let alarm = self.begin_work(Some(text), false);
                self.shown.clone_from(parsed);
                alarm
            }
        }
    }

    /// Work begins, for a statement with this text (`None`: that of the last one): it can be cancelled, and has a time-out.
    /// `timeless`: it does not ask for the time.
    fn begin_work(&mut self, sql: Option<&str>, timeless: bool) -> Option<Alarm> {
        self.interrupt.begin();
        self.state.begin_statement(self.transaction.is_some(), timeless);
        if let Some(sql) = sql {
            let shown = (0..=SHOWN_QUERY.min(sql.len())).rev().find(|at| sql.is_char_boundary(*at));
            self.activity.set_query(&sql[..shown.unwrap_or(0)]);
            self.shown = None;
        }
        self.activity.begin(self.state.statement_start, self.state.transaction_start);
        self.watched = self.state.engine.statement_begins();
        self.set_alarm()
    }

    fn set_alarm(&self) -> Option<Alarm> {
        let limit = self.state.settings().statement_timeout?;
        Some(self.database.0.timer.set(limit, self.interrupt.clone()))
    }

    /// Work has ended for now; a transaction begun for it may go on.
    fn pause_work(&mut self, alarm: Option<Alarm>, done: Result<()>, client: &mut dyn Client) -> Result<()> {
        drop(alarm);
        let done = self.judge(done);
        self.tell(client);
        self.interrupt.end();
        self.show_state();
        done
    }

    fn end_work(&mut self, alarm: Option<Alarm>, done: Result<()>, client: &mut dyn Client) -> Result<()> {
        self.pause_work(alarm, done, client)
    }

    /// Steps of the extended protocol that run nothing: errors count all the same. One with a text reads and plans it, which can be cancelled, and has a time-out.
    fn extended<T>(&mut self, sql: &str, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut alarm = None;
        if !sql.is_empty() {
            self.interrupt.begin();
            self.state.begin_statement(self.transaction.is_some(), false);
            alarm = self.set_alarm();
        }
        let mut made = None;
        let done = step(self).map(|value| made = Some(value));
        drop(alarm);
        let done = self.judge(done);
        if !sql.is_empty() {
            self.interrupt.end();
        }
        done?;
        made.ok_or_else(|| Error::internal("a step without result"))
    }

    /// After an error: what was begun implicitly is rolled back, what BEGIN began has failed.
    fn judge(&mut self, done: Result<()>) -> Result<()> {
        let Err(error) = done else { return Ok(()) };
        let error = self.interrupt.explain(error);
        match self.transaction.take() {
            Some(mut open) if open.explicit => {
                // It is back at its newest savepoint, where there is one.
                self.portals.forget_behind(open.savepoints().checked_sub(1));
                self.prepared.settle(&self.portals);
                let undone = open.fail(&self.state);
                self.transaction = Some(open);
                undone?;
            }
            Some(open) => {
                self.close_portals();
                open.rollback(&self.state)?;
            }
            None => self.close_portals(),
        }
        Err(error)
    }

    /// Refuses a statement that writes, by this error, where the transaction, or the one that would begin for it, is read-only.
    fn refuse_in_read_only(&mut self, message: impl FnOnce() -> String) -> Result<()> {
        self.ensure_transaction()?;
        match &self.transaction {
            Some(open) if open.read_only => Err(Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message())),
            _ => Ok(()),
        }
    }

    fn ensure_transaction(&mut self) -> Result<()> {
        match &mut self.transaction {
            Some(open) if open.failed => Err(transaction::failed()),
            Some(open) => {
                open.follow_settings(&self.state);
                Ok(())
            }
            None => {
                self.transaction = Some(Open::new(&self.database.0, &self.state, false));
                // The defaults may have changed since the one before.
                self.note_open();
                Ok(())
            }
        }
    }

    /// A failed transaction takes only its end.
    fn refuse_in_failed(&self, parsed: &Parsed) -> Result<()> {
        match &self.transaction {
            Some(open) if open.failed && !utility::ends_transaction(parsed) => Err(transaction::failed()),
            _ => Ok(()),
        }
    }

    /// Commits a transaction that was begun for a statement.
    fn end_implicit(&mut self) -> Result<()> {
        match &self.transaction {
            Some(open) if !open.explicit => self.commit().map(drop),
            _ => Ok(()),
        }
    }

    /// Commits; false when the transaction had failed and was rolled back.
    fn commit(&mut self) -> Result<bool> {
        self.close_portals();
        let Some(open) = self.transaction.take() else { return Ok(true) };
        open.commit(&self.database.0, &self.state)
    }

    fn rollback(&mut self) -> Result<()> {
        self.close_portals();
        match self.transaction.take() {
            Some(open) => open.rollback(&self.state),
            None => Ok(()),
        }
    }

    /// Tells the client of notices and changed settings, which are in force from here on.
    fn tell(&mut self, client: &mut dyn Client) {
        self.state.settle_style();
        if self.state.has_news() {
            self.tell_news(client);
        }
    }

    #[cold]
    fn tell_news(&mut self, client: &mut dyn Client) {
        for notice in self.state.take_notices() {
            client.notice(&notice);
        }
        for (name, value) in self.state.take_reports() {
            if name == settings::DEFINITIONS[Key::ApplicationName as usize].name {
                self.activity.set_application(&value);
            }
            client.setting_changed(name, &value);
        }
    }

    fn show_state(&mut self) {
        if let Some(watched) = self.watched.take() {
            self.state.engine.statement_ends(watched);
        }
        let state = match self.status() {
            TransactionStatus::Idle => State::Idle,
            TransactionStatus::Active => State::InTransaction,
            TransactionStatus::Failed => State::Failed,
        };
        self.activity.end(state, self.transaction.is_some().then_some(self.state.transaction_start));
    }
}
