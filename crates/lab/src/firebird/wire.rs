//! Connections to Firebird's server, for SQL workloads.
//!
//! Transactions are read committed with record versions and wait for who has changed a row, as PostgreSQL's do; those that only read see a snapshot. Where a row
//! that a statement is to change was changed meanwhile, PostgreSQL goes on with the new one, and Firebird 3 fails: the statement is run again then, within its
//! transaction, unless it has waited for so long that it may be a deadlock.
//!
//! A statement that gives one row is executed and answered in one message each way. Who gives more at some time is fetched by a cursor from then on.

use super::dialect::{self, Complaint, Translated};
use super::server::{DEADLOCK_TIMEOUT, Server, USER, installation};
use crate::tpcc::connection::{Conflict, Connect, Connection, Datum, Statement};
use anyhow::{Context, Result, anyhow, bail};
use rsfbclient_core::{
    Column, Dialect, FbError, FirebirdClientDbOps, FirebirdClientSqlOps, FreeStmtOp, SqlType,
    TrDataAccessMode, TrIsolationLevel, TrLockResolution, TrOp, TrRecordVersion, TransactionConfiguration,
    charset::UTF_8,
};
use rsfbclient_native::{DynLoad, NativeFbAttachmentConfig, NativeFbClient, RemoteConfig};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Instant;

type Native = NativeFbClient<DynLoad>;
type Attachment = <Native as FirebirdClientDbOps>::DbHandle;
type Transaction = <Native as FirebirdClientSqlOps>::TrHandle;
type Handle = <Native as FirebirdClientSqlOps>::StmtHandle;

/// How often a statement is run again whose row somebody else has changed.
const MOST_TRIES: usize = 100;
/// Microseconds from 1970 to 2000, where workloads' times begin.
const UNTIL_2000: i64 = 946_684_800_000_000;

/// A server's database.
#[derive(Clone, Debug)]
pub struct Target {
    library: String,
    port: u16,
    database: String,
    password: String,
}

impl Target {
    /// Of a server that runs.
    ///
    /// # Errors
    /// Its folder is not complete.
    pub fn of(server: &Server) -> Result<Self> {
        let installed = installation().context("Firebird 3 is not installed")?;
        Ok(Target {
            library: installed.library.display().to_string(),
            port: server.port(),
            database: server.database().display().to_string(),
            password: server.password()?,
        })
    }

    /// A connection.
    ///
    /// # Errors
    /// The server cannot be reached, or does not let us in.
    pub fn attach(&self) -> Result<Attached> {
        let mut client = DynLoad { charset: UTF_8, lib_path: self.library.clone() }.try_to_client()?;
        let remote =
            RemoteConfig { host: "127.0.0.1".to_owned(), port: self.port, pass: self.password.clone() };
        let config = NativeFbAttachmentConfig {
            db_name: self.database.clone(),
            user: USER.to_owned(),
            role_name: None,
            remote: Some(remote),
        };
        let database = client
            .attach_database(&config, Dialect::D3, false)
            .map_err(|error| judged("connecting", error))?;
        Ok(Attached { client, database, transaction: None, prepared: Vec::new(), blocks: None })
    }
}

impl Connect for Target {
    fn connect(&self) -> Result<Box<dyn Connection>> {
        Ok(Box::new(self.attach()?))
    }
}

/// A connection.
pub struct Attached {
    client: Native,
    database: Attachment,
    transaction: Option<Transaction>,
    prepared: Vec<Prepared>,
    /// Statements that insert so many rows.
    blocks: Option<Blocks>,
}

/// See [`Attached::insert`].
struct Blocks {
    table: String,
    columns: Vec<String>,
    /// Rows that can be inserted at once.
    most: usize,
    by_rows: HashMap<usize, Handle>,
}

/// What a statement is to the driver.
enum Prepared {
    Begin { read_only: bool },
    Commit,
    Rollback,
    Sql(Sql),
}

struct Sql {
    /// The text as the workload has it, for errors and for preparing it once more.
    text: String,
    translated: Translated,
    handle: Handle,
    gives: Gives,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gives {
    /// One row, or none, as far as was seen.
    Row,
    /// Rows.
    Rows,
    /// A row that nobody has asked for, see [`dialect::with_answer`].
    Answer,
    /// Nothing.
    Nothing,
}

/// A transaction that changes what it reads, or only reads.
fn parameters(read_only: bool) -> TransactionConfiguration {
    TransactionConfiguration {
        data_access: if read_only { TrDataAccessMode::ReadOnly } else { TrDataAccessMode::ReadWrite },
        isolation: match read_only {
            true => TrIsolationLevel::Concurrency,
            false => TrIsolationLevel::ReadCommited(TrRecordVersion::RecordVersion),
        },
        lock_resolution: TrLockResolution::Wait(None),
    }
}

fn complaint(error: &FbError) -> Complaint {
    match error {
        FbError::Sql { msg, .. } => dialect::complaint(msg),
        FbError::Io(_) | FbError::Other(_) => Complaint::Other,
    }
}

/// An error as a workload sees it.
fn judged(what: &str, error: FbError) -> anyhow::Error {
    let mut start = what.to_owned();
    start.truncate(start.char_indices().nth(120).map_or(start.len(), |(at, _)| at));
    match (complaint(&error), error) {
        (Complaint::Changed | Complaint::Conflict, error) => Conflict(error.to_string()).into(),
        (_, FbError::Sql { msg, code }) => anyhow!("{start:?}: {code}: {}", msg.replace('\n', " ")),
        (_, error) => anyhow!("{start:?}: {error}"),
    }
}

/// A value as the client library takes it. Exact numbers go as text, which the server makes exact numbers of.
fn sent(datum: &Datum) -> Result<SqlType> {
    Ok(match datum {
        Datum::Null => SqlType::Null,
        Datum::Int(value) => SqlType::Integer(*value),
        Datum::Decimal(digits, scale) => {
            let (sign, digits) = (if *digits < 0 { "-" } else { "" }, digits.unsigned_abs());
            let unit = 10_u64.pow(u32::from(*scale));
            let width = usize::from(*scale);
            SqlType::Text(format!("{sign}{}.{:0width$}", digits / unit, digits % unit))
        }
        Datum::Text(text) => SqlType::Text(text.clone()),
        Datum::Timestamp(_) => bail!("a workload that sends times"),
    })
}

fn received(value: SqlType) -> Result<Datum> {
    Ok(match value {
        SqlType::Null => Datum::Null,
        SqlType::Text(text) => Datum::Text(text),
        SqlType::Integer(value) => Datum::Int(value),
        SqlType::Floating(value) => dialect::decimal(value),
        SqlType::Timestamp(time) => Datum::Timestamp(time.and_utc().timestamp_micros() - UNTIL_2000),
        SqlType::Binary(_) | SqlType::Boolean(_) | SqlType::Int128(_) => bail!("a workload with {value:?}"),
    })
}

fn row(columns: Vec<Column>) -> Result<Vec<Datum>> {
    columns.into_iter().map(|column| received(column.value)).collect()
}

impl Attached {
    fn begin(&mut self, read_only: bool) -> Result<Transaction> {
        let begun = self.client.begin_transaction(&mut self.database, parameters(read_only));
        begun.map_err(|error| judged("begin", error))
    }

    fn end(&mut self, mut transaction: Transaction, how: TrOp) -> Result<()> {
        self.client.transaction_operation(&mut transaction, how).map_err(|error| judged("end", error))
    }

    /// Does something in the transaction that there is, else in one of its own, which is committed.
    fn within<T>(&mut self, body: impl FnOnce(&mut Self, &mut Transaction) -> Result<T>) -> Result<T> {
        if let Some(mut open) = self.transaction {
            return body(self, &mut open);
        }
        let mut own = self.begin(false)?;
        match body(self, &mut own) {
            Ok(done) => self.end(own, TrOp::Commit).map(|()| done),
            Err(error) => {
                // What went wrong is told, whatever becomes of the rest.
                let _ = self.end(own, TrOp::Rollback);
                Err(error)
            }
        }
    }

    fn prepared_as(&mut self, text: &str, sql: &str) -> Result<(Translated, Handle)> {
        let translated = dialect::translate(sql);
        let handle = self.within(|this, transaction| {
            let prepared =
                this.client.prepare_statement(&mut this.database, transaction, Dialect::D3, &translated.sql);
            prepared.map(|(_, handle)| handle).map_err(|error| judged(text, error))
        })?;
        Ok((translated, handle))
    }

    fn sql(&mut self, text: &str) -> Result<Sql> {
        let start = text.trim_start().to_ascii_lowercase();
        let answering = dialect::with_answer(text);
        let gives = match () {
            () if answering.is_some() => Gives::Answer,
            () if start.starts_with("select") || start.contains(" returning ") => Gives::Row,
            () => Gives::Nothing,
        };
        let (translated, handle) = self.prepared_as(text, answering.as_deref().unwrap_or(text))?;
        Ok(Sql { text: text.to_owned(), translated, handle, gives })
    }

    /// Runs a statement once: its rows, and how many rows it has changed.
    fn once(
        &mut self,
        sql: &mut Sql,
        transaction: &mut Transaction,
        values: Vec<SqlType>,
    ) -> Result<(Vec<Vec<Column>>, usize), FbError> {
        let Attached { client, database, .. } = self;
        match sql.gives {
            Gives::Row => match client.execute2(database, transaction, &mut sql.handle, values) {
                Ok(columns) => Ok((vec![columns], 1)),
                Err(error) if complaint(&error) == Complaint::NoRow => Ok((Vec::new(), 0)),
                Err(error) => Err(error),
            },
            Gives::Answer => {
                let columns = client.execute2(database, transaction, &mut sql.handle, values)?;
                Ok((Vec::new(), usize::from(columns.iter().any(|column| !column.value.is_null()))))
            }
            Gives::Nothing => {
                let changed = client.execute(database, transaction, &mut sql.handle, values)?;
                Ok((Vec::new(), changed))
            }
            Gives::Rows => {
                client.execute(database, transaction, &mut sql.handle, values)?;
                let mut rows = Vec::new();
                let fetched = loop {
                    match client.fetch(database, transaction, &mut sql.handle) {
                        Ok(Some(columns)) => rows.push(columns),
                        Ok(None) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                };
                let closed = client.free_statement(&mut sql.handle, FreeStmtOp::Close);
                fetched.and(closed)?;
                let count = rows.len();
                Ok((rows, count))
            }
        }
    }

    fn run(&mut self, sql: &mut Sql, given: &[Datum]) -> Result<(Vec<Vec<Datum>>, u64)> {
        let mut tries = 0;
        loop {
            let values = sql.translated.values(given)?.into_iter().map(sent).collect::<Result<_>>()?;
            let began = Instant::now();
            let ran = self.within(|this, transaction| Ok(this.once(sql, transaction, values)))?;
            match ran {
                Ok((rows, changed)) => {
                    return Ok((rows.into_iter().map(row).collect::<Result<_>>()?, changed as u64));
                }
                Err(error) => match (complaint(&error), sql.gives) {
                    // Nothing was done: it was more than one row.
                    (Complaint::ManyRows, Gives::Row) => sql.gives = Gives::Rows,
                    (Complaint::ManyRows, Gives::Answer) => {
                        let text = sql.text.clone();
                        (sql.translated, sql.handle) = self.prepared_as(&text, &text)?;
                        sql.gives = Gives::Nothing;
                    }
                    // Whoever has waited for longer may have been in a deadlock, which is said in the same words.
                    (Complaint::Changed, _) if tries < MOST_TRIES && began.elapsed() < DEADLOCK_TIMEOUT => {
                        tries += 1;
                    }
                    _ => return Err(judged(&sql.text, error)),
                },
            }
        }
    }

    fn dispatch(&mut self, statement: Statement, given: &[Datum]) -> Result<(Vec<Vec<Datum>>, u64)> {
        let place = self.prepared.get_mut(statement.0).context("a statement of another connection")?;
        match std::mem::replace(place, Prepared::Commit) {
            Prepared::Sql(mut sql) => {
                let ran = self.run(&mut sql, given);
                self.prepared[statement.0] = Prepared::Sql(sql);
                return ran;
            }
            Prepared::Begin { read_only } => {
                self.prepared[statement.0] = Prepared::Begin { read_only };
                self.transaction = Some(self.begin(read_only)?);
            }
            Prepared::Commit => {
                if let Some(transaction) = self.transaction.take() {
                    self.end(transaction, TrOp::Commit)?;
                }
            }
            Prepared::Rollback => {
                self.prepared[statement.0] = Prepared::Rollback;
                if let Some(transaction) = self.transaction.take() {
                    self.end(transaction, TrOp::Rollback)?;
                }
            }
        }
        Ok((Vec::new(), 0))
    }

    /// Inserts rows, as lines of COPY, in the transaction that there is, else in one of their own: by blocks of many each, which are kept prepared. So
    /// nobody changes the table's definition afterwards.
    ///
    /// # Errors
    /// The server's; or there is no such table.
    pub fn insert(&mut self, table: &str, data: &[u8]) -> Result<()> {
        let name = dialect::stored(table);
        let mut blocks = match self.blocks.take() {
            Some(known) if known.table == name => known,
            Some(other) => bail!("rows of {name} behind rows of {}", other.table),
            None => {
                let columns = self.columns(&name)?;
                if columns.is_empty() {
                    bail!("there is no table {table}");
                }
                let (_, most) = dialect::insert_block(&name, &columns, usize::MAX);
                Blocks { table: name, columns, most, by_rows: HashMap::new() }
            }
        };
        let lines: Vec<&str> = std::str::from_utf8(data)?.lines().collect();
        let done = self.within(|this, transaction| {
            let Blocks { table: name, columns, most, by_rows } = &mut blocks;
            for lines in lines.chunks(*most) {
                let handle = match by_rows.entry(lines.len()) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => {
                        let (sql, _) = dialect::insert_block(name, columns, lines.len());
                        let prepared =
                            this.client.prepare_statement(&mut this.database, transaction, Dialect::D3, &sql);
                        place.insert(prepared.map_err(|error| judged(table, error))?.1)
                    }
                };
                let value =
                    |text: Option<&str>| text.map_or(SqlType::Null, |text| SqlType::Text(text.to_owned()));
                let values = lines.iter().flat_map(|line| dialect::line_values(line)).map(value).collect();
                let done = this.client.execute(&mut this.database, transaction, handle, values);
                done.map_err(|error| judged(table, error))?;
            }
            Ok(())
        });
        self.blocks = Some(blocks);
        done
    }

    /// Rows of a statement without parameters, as text.
    ///
    /// # Errors
    /// The server's.
    pub fn rows(&mut self, sql: &str) -> Result<Vec<Vec<Datum>>> {
        let mut sql = self.sql(sql)?;
        let ran = self.run(&mut sql, &[]);
        self.drop_statement(sql);
        Ok(ran?.0)
    }

    /// Runs a query on a snapshot, and hands its rows on one by one as they come, until `take` wants no more; false where it has ended it.
    ///
    /// # Errors
    /// The server's, or what `take` fails with.
    pub fn each(&mut self, text: &str, take: &mut dyn FnMut(&[Datum]) -> Result<bool>) -> Result<bool> {
        let mut sql = self.sql(text)?;
        let mut transaction = self.begin(true)?;
        let ran = self.fetched(&mut sql, &mut transaction, take);
        self.drop_statement(sql);
        let ended = self.end(transaction, TrOp::Commit);
        ran.and_then(|whole| ended.map(|()| whole))
    }

    fn fetched(
        &mut self,
        sql: &mut Sql,
        transaction: &mut Transaction,
        take: &mut dyn FnMut(&[Datum]) -> Result<bool>,
    ) -> Result<bool> {
        let Attached { client, database, .. } = self;
        let complain = |error| judged(&sql.text, error);
        client.execute(database, transaction, &mut sql.handle, Vec::new()).map_err(complain)?;
        while let Some(columns) = client.fetch(database, transaction, &mut sql.handle).map_err(complain)? {
            if !take(&row(columns)?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The plan of a query, as Firebird tells it of statements that are prepared.
    ///
    /// # Errors
    /// The server's.
    pub fn plan(&mut self, text: &str) -> Result<String> {
        let sql = self.sql(text)?;
        let told = self.rows(
            "select mon$sql_text, mon$explained_plan from mon$statements where mon$attachment_id = current_connection",
        );
        let wanted = sql.translated.sql.clone();
        self.drop_statement(sql);
        for row in told? {
            if let [Datum::Text(of), Datum::Text(plan)] = row.as_slice()
                && *of == wanted
            {
                return Ok(plan.clone());
            }
        }
        bail!("the server does not tell the plan of {wanted:?}")
    }

    fn drop_statement(&mut self, mut sql: Sql) {
        // A statement that cannot be given back is gone with the connection.
        let _ = self.client.free_statement(&mut sql.handle, FreeStmtOp::Drop);
    }

    /// The columns of a table, by the names that are stored.
    fn columns(&mut self, table: &str) -> Result<Vec<String>> {
        let rows = self.rows(&format!(
            "select trim(rdb$field_name) from rdb$relation_fields where rdb$relation_name = '{table}' order by rdb$field_position"
        ))?;
        rows.iter().map(|row| Ok(row[0].text()?.to_owned())).collect()
    }

    /// Makes the planner's figures of all indexes anew.
    fn analyze(&mut self) -> Result<()> {
        let names =
            self.rows("select trim(rdb$index_name) from rdb$indices where coalesce(rdb$system_flag, 0) = 0")?;
        for name in &names {
            self.immediate(&format!("set statistics index \"{}\"", name[0].text()?))?;
        }
        Ok(())
    }

    fn immediate(&mut self, sql: &str) -> Result<()> {
        self.within(|this, transaction| {
            let done = this.client.exec_immediate(&mut this.database, transaction, Dialect::D3, sql);
            done.map_err(|error| judged(sql, error))
        })
    }
}

impl Connection for Attached {
    fn batch(&mut self, sql: &str) -> Result<()> {
        match sql {
            // With forced writes all that is committed is where it belongs.
            "checkpoint" => Ok(()),
            _ if sql.starts_with("analyze") => self.analyze(),
            _ => self.immediate(&dialect::translate(sql).sql),
        }
    }

    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        let prepared = match sql {
            "commit" => Prepared::Commit,
            "rollback" => Prepared::Rollback,
            _ if sql.starts_with("begin") => Prepared::Begin { read_only: sql.ends_with("read only") },
            _ => Prepared::Sql(self.sql(sql)?),
        };
        self.prepared.push(prepared);
        Ok(Statement(self.prepared.len() - 1))
    }

    fn query(&mut self, statement: Statement, parameters: &[Datum]) -> Result<Vec<Vec<Datum>>> {
        Ok(self.dispatch(statement, parameters)?.0)
    }

    fn execute(&mut self, statement: Statement, parameters: &[Datum]) -> Result<u64> {
        Ok(self.dispatch(statement, parameters)?.1)
    }

    fn joins_by_keys(&self) -> bool {
        true
    }

    /// By blocks of many rows each, in one transaction.
    fn load(&mut self, table: &str, more: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> Result<u64> {
        let name = dialect::stored(table);
        let columns = self.columns(&name)?;
        if columns.is_empty() {
            bail!("there is no table {table}");
        }
        let mut transaction = self.begin(false)?;
        let loaded = self.load_within(&mut transaction, &name, &columns, more);
        // One that is left open would keep the connection from being closed.
        let ended = self.end(transaction, if loaded.is_ok() { TrOp::Commit } else { TrOp::Rollback });
        let rows = loaded?;
        ended.map(|()| rows)
    }
}

impl Attached {
    /// See [`Connection::load`]: in a transaction, into a table by the names that are stored.
    fn load_within(
        &mut self,
        transaction: &mut Transaction,
        table: &str,
        columns: &[String],
        more: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<u64> {
        let (many, size) = dialect::insert_block(table, columns, usize::MAX);
        let (one, _) = dialect::insert_block(table, columns, 1);
        let prepare = |this: &mut Self, transaction: &mut Transaction, sql: &str| {
            let prepared = this.client.prepare_statement(&mut this.database, transaction, Dialect::D3, sql);
            prepared.map(|(_, handle)| handle).map_err(|error| judged(sql, error))
        };
        let mut handles = [prepare(self, transaction, &many)?, prepare(self, transaction, &one)?];
        let (mut data, mut values, mut rows) = (Vec::new(), Vec::new(), 0);
        loop {
            data.clear();
            let goes_on = more(&mut data);
            for line in std::str::from_utf8(&data)?.lines() {
                let line = dialect::line_values(line);
                values.extend(
                    line.map(|value| value.map_or(SqlType::Null, |text| SqlType::Text(text.to_owned()))),
                );
                rows += 1;
                if values.len() >= size * columns.len() {
                    let values = std::mem::take(&mut values);
                    let done = self.client.execute(&mut self.database, transaction, &mut handles[0], values);
                    done.map_err(|error| judged(table, error))?;
                }
            }
            if !goes_on {
                break;
            }
        }
        for row in values.chunks(columns.len()) {
            let done = self.client.execute(&mut self.database, transaction, &mut handles[1], row.to_vec());
            done.map_err(|error| judged(table, error))?;
        }
        for handle in &mut handles {
            self.client.free_statement(handle, FreeStmtOp::Drop).map_err(|error| judged(table, error))?;
        }
        Ok(rows)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // A server that is gone has nothing left of it.
        if let Some(transaction) = self.transaction.take() {
            let _ = self.end(transaction, TrOp::Rollback);
        }
        let _ = self.client.detach_database(&mut self.database);
    }
}

#[cfg(test)]
mod tests {
    use super::super::server::{Options, make};
    use super::*;

    /// Where Firebird is installed.
    #[test]
    fn a_load_that_fails_leaves_neither_a_transaction_nor_a_connection() {
        if installation().is_none() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("database");
        make(&folder).unwrap();
        let server = Options { folder, memory: None, settings: Vec::new() }.start().unwrap();
        let target = Target::of(&server).unwrap();
        let mut own = target.attach().unwrap();
        own.batch("create table t (a integer)").unwrap();
        let mut other = target.attach().unwrap();
        let loaded = other.load("t", &mut |out| {
            out.extend_from_slice(b"1\nno number\n");
            false
        });
        assert!(loaded.is_err());
        let mut there = |sql: &str| own.rows(sql).unwrap()[0][0].int().unwrap();
        assert_eq!(
            there(
                "select count(*) from mon$transactions where mon$attachment_id <> current_connection and mon$state = 1"
            ),
            0
        );
        drop(other);
        assert_eq!(there("select count(*) from mon$attachments where mon$system_flag = 0"), 1);
        drop(own);
        server.stop().unwrap();
    }
}
