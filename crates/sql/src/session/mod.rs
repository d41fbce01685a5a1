//! Sessions: who runs statements, in which transaction, with which settings.

use crate::bind::Parsed;
use crate::catalog::{Sequence, Table};
use crate::types::text::TextStyle;
use crate::{Error, Result, SqlState, Type, Value};
use gannet_store::Engine;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Switches of the planner, by PostgreSQL's names; an experiment forces a plan with them.
#[derive(Clone, Debug, PartialEq)]
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
    /// `gannet_look_ahead`: index order and index joins fetch rows in batches.
    pub look_ahead: bool,
    /// Bytes of page frames, the planner's idea of what is in memory.
    pub cache_bytes: u64,
    /// Bytes an operator may take before it spills.
    pub work_bytes: u64,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The type's modifier.
    pub modifier: i32,
    /// The table and the number of the table's column it is.
    pub origin: Option<(u32, u16)>,
}

/// How a statement ended, as `CommandComplete` says it: `SELECT 3`, `INSERT 0 1`, `BEGIN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTag {
    /// The command.
    pub command: &'static str,
    /// Rows, for commands that count them.
    pub rows: Option<u64>,
}

impl std::fmt::Display for CommandTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rows {
            Some(rows) if self.command == "INSERT" => write!(f, "INSERT 0 {rows}"),
            Some(rows) => write!(f, "{} {rows}", self.command),
            None => f.write_str(self.command),
        }
    }
}

/// Something to be told that is no error.
#[derive(Clone, Debug)]
pub struct Notice {
    /// `WARNING`, `NOTICE`, `INFO`
    pub severity: &'static str,
    /// The rest.
    pub error: Error,
}

/// What a COPY statement moves.
#[derive(Clone, Debug)]
pub struct CopyFormat {
    /// Number of columns.
    pub columns: usize,
}

/// Who gets the results of statements.
pub trait Client {
    /// A result with these columns begins. (Not called by [`Session::execute`], whose caller has described the portal.)
    fn columns(&mut self, columns: &[OutputColumn]) -> Result<()>;
    /// A row of it.
    fn row(&mut self, values: &[Value]) -> Result<()>;
    /// The statement ended well.
    fn complete(&mut self, tag: &CommandTag) -> Result<()>;
    /// The text had no statement.
    fn empty(&mut self) -> Result<()>;
    /// Something to be told.
    fn notice(&mut self, notice: &Notice);
    /// A setting that clients are told of has changed (`TimeZone`, `client_encoding`, ...).
    fn setting_changed(&mut self, name: &str, value: &str);
    /// COPY FROM STDIN begins: data is asked for with [`Client::copy_read`].
    fn copy_in(&mut self, format: &CopyFormat) -> Result<()>;
    /// Appends the next piece of data; false at the end. An error ends the COPY (the client gave up: 57014).
    fn copy_read(&mut self, data: &mut Vec<u8>) -> Result<bool>;
    /// COPY TO STDOUT begins.
    fn copy_out(&mut self, format: &CopyFormat) -> Result<()>;
    /// A piece of data, whole lines.
    fn copy_write(&mut self, data: &[u8]) -> Result<()>;
    /// COPY TO STDOUT has no more data.
    fn copy_out_end(&mut self) -> Result<()>;
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

/// An open database.
#[derive(Clone, Debug)]
pub struct Database(Arc<()>);

/// A prepared statement.
#[derive(Debug)]
pub struct Prepared {
    /// The statement; `None` for an empty text.
    pub parsed: Option<Parsed>,
    /// Types of its parameters.
    pub parameters: Vec<Type>,
    /// Columns of its result; `None` where it gives no rows.
    pub columns: Option<Vec<OutputColumn>>,
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
    /// Name of the database.
    pub database: String,
    /// Number of the session, as `pg_backend_pid()` gives it.
    pub pid: i32,
    /// Memory and temporary files.
    pub engine: Engine,
    /// Where `random()` stands, once `setseed()` was called.
    pub seed: std::cell::Cell<Option<u64>>,
}

impl SessionState {
    /// The text of a setting, as SHOW and `current_setting()` give it; 42704 when there is none.
    pub fn setting(&self, name: &str) -> Result<String> {
        Err(Error::new(
            SqlState::UNDEFINED_OBJECT,
            format!("unrecognized configuration parameter \"{name}\""),
        ))
    }

    /// Changes a setting, as SET (`local`: SET LOCAL) and `set_config()` do; gives its new text.
    pub fn set_setting(&self, name: &str, value: &str, local: bool) -> Result<String> {
        let _ = (value, local);
        self.setting(name)
    }

    /// The next value of a sequence. Not taken back by a rollback.
    pub fn nextval(&self, sequence: &Sequence) -> Result<i64> {
        Err(Error::unsupported(format!("nextval of {}", sequence.name)))
    }

    /// The value nextval gave last in this session; 55000 when none.
    pub fn currval(&self, sequence: &Sequence) -> Result<i64> {
        Err(Error::unsupported(format!("currval of {}", sequence.name)))
    }

    /// What nextval gave last, of whatever sequence.
    pub fn lastval(&self) -> Result<i64> {
        Err(Error::unsupported("lastval"))
    }

    /// Sets a sequence's position; `called`: the next value is the one behind it.
    pub fn setval(&self, sequence: &Sequence, value: i64, called: bool) -> Result<()> {
        let _ = (value, called);
        Err(Error::unsupported(format!("setval of {}", sequence.name)))
    }

    /// A number for a new row of a table without primary key: never given before, whatever crashed or was rolled back.
    pub fn next_row_id(&self, table: &Table) -> Result<u64> {
        Err(Error::unsupported(format!("a row number of {}", table.name)))
    }

    /// Something to tell the client.
    pub fn notice(&self, notice: Notice) {
        let _ = notice;
    }

    /// Why the statement was cancelled: at the user's request, for its time-out, or because the server goes down.
    pub fn cancel_reason(&self) -> Error {
        Error::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
    }
}

/// Ends a session's running statement, from any thread.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

/// A session on a database. Dropped, it rolls back.
#[derive(Debug)]
pub struct Session {
    state: SessionState,
}

impl Session {
    /// Runs all statements of a text, as the simple query protocol does: those not within BEGIN and COMMIT are one transaction. The
    /// first error ends it, and is returned.
    pub fn run(&mut self, sql: &str, client: &mut dyn Client) -> Result<()> {
        let _ = (sql, client, &self.state);
        Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "no sessions yet"))
    }

    /// Prepares a statement under a name ("" is replaced silently, others must be new: 42P05). Types the client leaves open are
    /// [`Type::Unknown`], or beyond the end of the list.
    pub fn prepare(&mut self, name: &str, sql: &str, parameters: &[Type]) -> Result<Arc<Prepared>> {
        let _ = (name, sql, parameters);
        Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "no sessions yet"))
    }

    /// The prepared statement of this name.
    pub fn prepared(&self, name: &str) -> Result<Arc<Prepared>> {
        Err(Error::new(
            SqlState::INVALID_SQL_STATEMENT_NAME,
            format!("prepared statement \"{name}\" does not exist"),
        ))
    }

    /// Forgets a prepared statement; nothing happens when there is none.
    pub fn close_prepared(&mut self, name: &str) {
        let _ = name;
    }

    /// Makes a portal of a prepared statement and values for its parameters. Portal "" is replaced silently.
    pub fn bind(&mut self, portal: &str, statement: &str, parameters: Vec<Value>) -> Result<()> {
        let _ = (portal, statement, parameters);
        Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "no sessions yet"))
    }

    /// The columns of a portal; `None` where it gives no rows.
    pub fn portal_columns(&self, portal: &str) -> Result<Option<Vec<OutputColumn>>> {
        Err(Error::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{portal}\" does not exist")))
    }

    /// Runs a portal, or goes on with it, for at most `limit` rows (0: all).
    pub fn execute(&mut self, portal: &str, limit: u64, client: &mut dyn Client) -> Result<Execution> {
        let _ = (portal, limit, client);
        Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "no sessions yet"))
    }

    /// Forgets a portal; nothing happens when there is none.
    pub fn close_portal(&mut self, portal: &str) {
        let _ = portal;
    }

    /// The end of a series of extended-protocol messages: ends the transaction that was begun for them, if there was no BEGIN. After an error in
    /// the series it is rolled back.
    pub fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    /// Where the session stands.
    pub fn status(&self) -> TransactionStatus {
        TransactionStatus::Idle
    }
}
