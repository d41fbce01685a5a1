//! Connections to an SQLite database within this process, for SQL workloads.
//!
//! A transaction that may write begins as the one writer that there can be, and waits until it is (`begin immediate`); one that only reads sees a snapshot, as there is a
//! write-ahead log. Exact numbers are whole numbers of their last decimal, since SQLite's own are floating-point ones, which do not add up to the cent.

use crate::firebird::dialect::line_values;
use crate::tpcc::connection::{Conflict, Connect, Connection, Datum, Statement};
use anyhow::{Context, Result, anyhow, bail, ensure};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{ErrorCode, OpenFlags, params_from_iter};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long somebody waits to be the writer: longer than a task may take that lets nobody write.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1800);
/// The cache of a user's connection, and that of one that does a task for an administrator, in KiB.
const CACHE: u32 = 4096;
const TASKS_CACHE: u32 = 16384;
/// Statements that a session keeps prepared.
const PREPARED: usize = 100;

/// How a user's or an administrator's connection is set, for reports; what is not named is as it is by default.
pub const SETTINGS: [&str; 5] = [
    "journal_mode=wal",
    "synchronous=full",
    "wal_autocheckpoint=1000 pages, the default",
    "cache_size=-4096 for each session, -16384 for a task",
    "page_size=4096, the default",
];

/// Where the database is.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its file.
    pub path: PathBuf,
    /// Whether a commit is durable: but for loading it is.
    pub is_durable: bool,
}

impl Target {
    /// A connection of SQLite's own.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(&self) -> Result<rusqlite::Connection> {
        let connection =
            rusqlite::Connection::open(&self.path).with_context(|| format!("cannot open {:?}", self.path))?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let synchronous = if self.is_durable { "full" } else { "off" };
        connection
            .execute_batch(&format!(
                "pragma journal_mode = wal; pragma synchronous = {synchronous}; pragma cache_size = -{CACHE}"
            ))
            .with_context(|| format!("cannot use {:?}", self.path))?;
        connection.set_prepared_statement_cache_capacity(PREPARED);
        Ok(connection)
    }
}

/// A connection of SQLite's own to a database that is there and stays as it is set, for an administrator's task.
///
/// # Errors
/// It is not there; or SQLite's.
pub fn open_for_task(database: &Path) -> Result<rusqlite::Connection> {
    ensure!(database.is_file(), "there is no database {database:?}");
    let flags = OpenFlags::default().difference(OpenFlags::SQLITE_OPEN_CREATE);
    let connection = rusqlite::Connection::open_with_flags(database, flags)
        .with_context(|| format!("cannot open {database:?}"))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    set_for_task(&connection).with_context(|| format!("cannot use {database:?}"))?;
    Ok(connection)
}

/// Sets a connection for an administrator's task, or for what that makes.
///
/// # Errors
/// SQLite's.
pub fn set_for_task(connection: &rusqlite::Connection) -> Result<()> {
    connection.execute_batch(&format!("pragma synchronous = full; pragma cache_size = -{TASKS_CACHE}"))?;
    Ok(())
}

impl Connect for Target {
    fn connect(&self) -> Result<Box<dyn Connection>> {
        let mut session =
            Session { connection: self.open()?, prepared: Vec::new(), decimals: HashMap::new() };
        session.learn()?;
        Ok(Box::new(session))
    }
}

struct Session {
    connection: rusqlite::Connection,
    prepared: Vec<Prepared>,
    /// Decimals of exact columns, by their names.
    decimals: HashMap<String, u8>,
}

/// A statement that the connection keeps prepared by its text.
struct Prepared {
    sql: String,
    /// Of each column of its result, where it is an exact number.
    decimals: Vec<Option<u8>>,
}

/// A statement in SQLite's words: `?n` for `$n`, no locks of rows, as there is one writer, and a time without a zone.
fn translate(sql: &str) -> String {
    match sql {
        "begin" => return "begin immediate".to_owned(),
        "checkpoint" => return "pragma wal_checkpoint(truncate)".to_owned(),
        _ if sql.starts_with("begin") => return "begin".to_owned(),
        _ => {}
    }
    let sql = sql.strip_suffix(" for update").unwrap_or(sql);
    // Texts in quotes have neither.
    sql.replace('$', "?").replace("localtimestamp", "current_timestamp")
}

/// The decimals of a column's declared type, if it is an exact one.
fn decimals_of(declared: &str) -> Option<u8> {
    let inside = declared.strip_prefix("numeric(")?.strip_suffix(')')?;
    inside.split_once(',')?.1.trim().parse().ok()
}

/// An exact number as a whole one of its last decimal.
fn scaled(text: &str, decimals: u8) -> Result<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let width = usize::from(decimals);
    ensure!(fraction.len() <= width, "{text} has more than {decimals} decimals");
    format!("{whole}{fraction:0<width$}").parse().with_context(|| format!("{text} is no number"))
}

/// An error as a workload sees it.
fn judged(what: &str, error: rusqlite::Error) -> anyhow::Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Conflict(error.to_string()).into(),
        _ => anyhow!("{what:?}: {error}"),
    }
}

fn sent(datum: &Datum) -> Result<Value> {
    Ok(match datum {
        Datum::Null => Value::Null,
        Datum::Int(value) => Value::Integer(*value),
        // Of the workload's columns, those that it gives exact numbers for have two decimals.
        Datum::Decimal(cents, 2) => Value::Integer(*cents),
        Datum::Text(text) => Value::Text(text.clone()),
        Datum::Decimal(..) | Datum::Timestamp(_) => bail!("a workload that sends {datum:?}"),
    })
}

fn received(value: ValueRef<'_>, decimals: Option<u8>) -> Result<Datum> {
    Ok(match (value, decimals) {
        (ValueRef::Null, _) => Datum::Null,
        (ValueRef::Integer(value), Some(decimals)) => Datum::Decimal(value, decimals),
        (ValueRef::Integer(value), None) => Datum::Int(value),
        (ValueRef::Text(text), _) => Datum::Text(std::str::from_utf8(text)?.to_owned()),
        (other, _) => bail!("a workload with {other:?}"),
    })
}

impl Session {
    /// Learns which columns are exact numbers.
    fn learn(&mut self) -> Result<()> {
        let mut statement = self.connection.prepare(
            "select c.name, c.type from sqlite_schema t, pragma_table_info(t.name) c where t.type = 'table'",
        )?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            if let Some(decimals) = decimals_of(&row.get::<_, String>(1)?) {
                self.decimals.insert(row.get(0)?, decimals);
            }
        }
        Ok(())
    }

    /// The decimals of a result's column: an expression's name is its text.
    fn decimals(&self, name: &str) -> Option<u8> {
        let inside = name.strip_prefix("sum(").and_then(|rest| rest.strip_suffix(')')).unwrap_or(name);
        self.decimals.get(inside).copied()
    }

    /// Runs a statement; gives its rows, and how many it has changed.
    fn run(&mut self, statement: Statement, given: &[Datum]) -> Result<(Vec<Vec<Datum>>, u64)> {
        let Prepared { sql, decimals } =
            self.prepared.get(statement.0).context("a statement of another connection")?;
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| judged(sql, error))?;
        let values: Vec<Value> = given.iter().map(sent).collect::<Result<_>>()?;
        let mut rows = statement.query(params_from_iter(values)).map_err(|error| judged(sql, error))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(|error| judged(sql, error))? {
            let values = decimals.iter().enumerate();
            found.push(
                values.map(|(at, decimals)| received(row.get_ref(at)?, *decimals)).collect::<Result<_>>()?,
            );
        }
        drop(rows);
        Ok((found, self.connection.changes()))
    }
}

impl Connection for Session {
    fn batch(&mut self, sql: &str) -> Result<()> {
        self.connection.execute_batch(&translate(sql)).map_err(|error| judged(sql, error))
    }

    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        let translated = translate(sql);
        let statement = self.connection.prepare_cached(&translated).map_err(|error| judged(sql, error))?;
        let decimals = statement.column_names().into_iter().map(|name| self.decimals(name)).collect();
        drop(statement);
        self.prepared.push(Prepared { sql: translated, decimals });
        Ok(Statement(self.prepared.len() - 1))
    }

    fn query(&mut self, statement: Statement, parameters: &[Datum]) -> Result<Vec<Vec<Datum>>> {
        Ok(self.run(statement, parameters)?.0)
    }

    fn execute(&mut self, statement: Statement, parameters: &[Datum]) -> Result<u64> {
        Ok(self.run(statement, parameters)?.1)
    }

    /// By one statement a row, in one transaction.
    fn load(&mut self, table: &str, more: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> Result<u64> {
        let mut statement = self.connection.prepare("select type from pragma_table_info(?1) order by cid")?;
        let types: Vec<String> =
            statement.query_map([table], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        ensure!(!types.is_empty(), "there is no table {table}");
        drop(statement);
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let marks = vec!["?"; types.len()].join(",");
        let mut insert = transaction.prepare(&format!("insert into {table} values({marks})"))?;
        let (mut data, mut rows) = (Vec::new(), 0);
        loop {
            data.clear();
            let goes_on = more(&mut data);
            for line in std::str::from_utf8(&data)?.lines() {
                let values = line_values(line).zip(&types).map(|(value, declared)| loaded(value, declared));
                insert.execute(params_from_iter(values.collect::<Result<Vec<_>>>()?))?;
                rows += 1;
            }
            if !goes_on {
                break;
            }
        }
        drop(insert);
        transaction.commit()?;
        Ok(rows)
    }
}

/// A value of COPY's text.
fn loaded(value: Option<&str>, declared: &str) -> Result<Value> {
    Ok(match (value, decimals_of(declared)) {
        (None, _) => Value::Null,
        (Some(text), Some(decimals)) => Value::Integer(scaled(text, decimals)?),
        (Some(text), None) if declared == "integer" => Value::Integer(text.parse()?),
        (Some(text), None) => Value::Text(text.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::run::{Plan, run};
    use crate::tpcc::{Size, check, load};

    #[test]
    fn statements_are_put_in_its_words() {
        assert_eq!(translate("begin"), "begin immediate");
        assert_eq!(translate("begin isolation level repeatable read read only"), "begin");
        assert_eq!(
            translate("select a from t where b = $1 and c < $12 limit 1 for update"),
            "select a from t where b = ?1 and c < ?12 limit 1"
        );
    }

    #[test]
    fn connections_are_set_as_reports_say_and_a_task_makes_no_database() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab.sqlite");
        let missing = open_for_task(&path).unwrap_err().to_string();
        assert!(missing.contains("no database") && !path.exists(), "{missing}");
        let target = Target { path: path.clone(), is_durable: true };
        let (user, task) = (target.open().unwrap(), open_for_task(&path).unwrap());
        let cache = |connection: &rusqlite::Connection| -> i64 {
            connection.query_row("pragma cache_size", (), |row| row.get(0)).unwrap()
        };
        let says = format!("cache_size={} for each session, {} for a task", cache(&user), cache(&task));
        assert!(SETTINGS.contains(&&*says), "{says}");
    }

    #[test]
    fn exact_numbers_are_whole_ones() {
        assert_eq!(decimals_of("numeric(12,2)"), Some(2));
        assert_eq!((decimals_of("integer"), decimals_of("char(24)")), (None, None));
        for (text, decimals, number) in
            [("12.34", 2, 1234), ("-10.00", 2, -1000), ("0.1", 4, 1000), ("7", 2, 700), ("-0.05", 2, -5)]
        {
            assert_eq!(scaled(text, decimals).unwrap(), number, "{text}");
        }
        assert!(scaled("1.234", 2).is_err() && scaled("x", 0).is_err());
    }

    #[test]
    fn the_conditions_of_tpcc_hold_to_the_cent_after_several_sessions() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target { path: folder.path().join("lab.sqlite"), is_durable: false };
        let size = Size::new(1).shrunk(100);
        load::tables(&target, &load::Load { size, seed: 1, loaders: 2 }, |_| true).unwrap();
        load::finish(&mut *target.connect().unwrap(), || true).unwrap();
        let plan = Plan {
            size,
            terminals: 3,
            time: Duration::from_secs(3600),
            seed: 1,
            rate: None,
            think: None,
            each: false,
            sample: Duration::from_secs(1),
        };
        let outcome = run(&target, &plan, |moment| moment.transactions < 300).unwrap();
        assert!(outcome.transactions() >= 300);
        let mut session = target.connect().unwrap();
        for condition in check::CONDITIONS {
            assert_eq!(check::violations(&mut *session, condition).unwrap(), 0, "{}", condition.says);
        }
        session.batch("update warehouse set w_ytd = w_ytd + 1").unwrap();
        assert_eq!(check::violations(&mut *session, &check::CONDITIONS[0]).unwrap(), 1);
    }
}
