//! SQLite's counterparts of each task: there is no program for them beside users, so each is a process of our own that calls the library.
//!
//! In a database with a write-ahead log each of them but `VACUUM` sees a snapshot, and lets everybody work; what is written meanwhile stays in the log until it has ended. `VACUUM`
//! is the writer while it works, so that nobody else is.

use super::task::Task;
use super::users::Sets;
use crate::sqlite::sql::{open_for_task, set_for_task};
use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::types::ValueRef;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pages of a step of a backup. Its snapshot is held over all of them: without, it would begin anew each time that somebody writes.
const STEP: i32 = 1024;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long it is tried to bring home the whole log, and how long each time.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(20);
const CHECKPOINT_TRY: Duration = Duration::from_secs(1);

/// Does a task on the database, with what it makes as `to`, until it has ended or `stop` is set. A load is of the text `database`, and has a cache of so many
/// bytes of `memory`.
///
/// # Errors
/// SQLite's; the database is damaged; or it was to stop.
pub fn perform(task: Task, database: &Path, to: &Path, memory: u64, stop: &AtomicBool) -> Result<Value> {
    // Before anything is opened.
    ensure!(task.is_within(), "SQLite has no {} of its own", task.name());
    let connection = if task == Task::Load { new_database(to, memory)? } else { open_for_task(database)? };
    let interrupt = connection.get_interrupt_handle();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                if stop.load(Ordering::Relaxed) {
                    interrupt.interrupt();
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        // Also where there is a panic: whoever looks is waited for.
        let _done = Sets(&is_done);
        let told = match task {
            Task::Backup => backup(&connection, to, stop),
            Task::Stat => statistics(&connection),
            Task::Check => check(&connection),
            Task::Dump => dump(&connection, to, stop),
            Task::Compact => vacuum(&connection, stop),
            Task::Load => load(&connection, database, stop),
            Task::Copy | Task::DirectBackup | Task::Incremental | Task::Restore | Task::Sweep => {
                Err(anyhow::anyhow!("there is none"))
            }
        };
        told.with_context(|| format!("{} of {database:?}", task.name()))
    })
}

/// By the online backup, durably.
fn backup(from: &Connection, to: &Path, stop: &AtomicBool) -> Result<Value> {
    ensure!(!to.exists(), "{to:?} is there");
    let mut target = Connection::open(to).with_context(|| format!("cannot make {to:?}"))?;
    set_for_task(&target)?;
    from.execute_batch("begin")?;
    from.query_row("select count(*) from sqlite_schema", (), |_| Ok(()))?;
    let backup = Backup::new(from, &mut target)?;
    loop {
        let step = backup.step(STEP)?;
        if step == StepResult::Done {
            break;
        }
        ensure!(!stop.load(Ordering::Relaxed), "interrupted");
        if step != StepResult::More {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    let pages = backup.progress().pagecount;
    drop(backup);
    from.execute_batch("commit")?;
    Ok(json!({ "pages": pages }))
}

/// Sums over all pages, with the bytes of rows and what is free.
fn statistics(connection: &Connection) -> Result<Value> {
    let mut statement = connection.prepare(
        "select name, sum(ncell), sum(payload), sum(unused), sum(pgsize) from dbstat group by name",
    )?;
    let trees = statement.query_map((), |row| {
        Ok(json!([
            row.get::<_, String>(0)?,
            row.get::<_, i64>(1)?,
            row.get::<_, i64>(2)?,
            row.get::<_, i64>(3)?,
            row.get::<_, i64>(4)?
        ]))
    })?;
    Ok(json!({ "trees": trees.collect::<rusqlite::Result<Vec<_>>>()? }))
}

/// Of pages and rows, and of each index against its table.
fn check(connection: &Connection) -> Result<Value> {
    let mut statement = connection.prepare("pragma integrity_check")?;
    let found = statement.query_map((), |row| row.get::<_, String>(0))?;
    let found = found.collect::<rusqlite::Result<Vec<_>>>()?;
    ensure!(found == ["ok"], "it is damaged: {}", found.join("; "));
    Ok(json!({ "found": found }))
}

/// What `.dump` of the shell writes, durably: what makes tables and indexes, and a statement for each row.
fn dump(connection: &Connection, to: &Path, stop: &AtomicBool) -> Result<Value> {
    let file = File::create_new(to).with_context(|| format!("cannot make {to:?}"))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    connection.execute_batch("begin")?;
    let mut schema = connection.prepare(
        "select type, name, sql from sqlite_schema where sql is not null and name not like 'sqlite_%'",
    )?;
    let objects = schema.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let objects: Vec<(String, String, String)> = objects.collect::<rusqlite::Result<_>>()?;
    writeln!(out, "BEGIN TRANSACTION;")?;
    let mut rows = 0_u64;
    for (_, name, sql) in objects.iter().filter(|(kind, ..)| kind == "table") {
        writeln!(out, "{sql};")?;
        rows += dump_table(connection, name, &mut out, stop)?;
    }
    for (_, _, sql) in objects.iter().filter(|(kind, ..)| kind != "table") {
        writeln!(out, "{sql};")?;
    }
    writeln!(out, "COMMIT;")?;
    out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    connection.execute_batch("commit")?;
    Ok(json!({ "rows": rows }))
}

fn dump_table(connection: &Connection, name: &str, out: &mut impl Write, stop: &AtomicBool) -> Result<u64> {
    let mut statement = connection.prepare(&format!("select * from \"{name}\""))?;
    let columns = statement.column_count();
    let (mut rows, mut count) = (statement.query(())?, 0);
    while let Some(row) = rows.next()? {
        ensure!(!stop.load(Ordering::Relaxed), "interrupted");
        write!(out, "INSERT INTO {name} VALUES(")?;
        for column in 0..columns {
            if column > 0 {
                out.write_all(b",")?;
            }
            match row.get_ref(column)? {
                ValueRef::Null => out.write_all(b"NULL")?,
                ValueRef::Integer(value) => write!(out, "{value}")?,
                ValueRef::Text(text) => write!(out, "'{}'", std::str::from_utf8(text)?.replace('\'', "''"))?,
                other => bail!("{name} has {other:?}, which is nowhere in these tables"),
            }
        }
        out.write_all(b");\n")?;
        count += 1;
    }
    Ok(count)
}

/// A database that is not there yet, with a cache of so many bytes.
fn new_database(to: &Path, cache: u64) -> Result<Connection> {
    ensure!(!to.exists(), "{to:?} is there");
    let connection = Connection::open(to).with_context(|| format!("cannot make {to:?}"))?;
    set_for_task(&connection)?;
    connection.execute_batch(&format!("pragma cache_size = -{}", cache >> 10))?;
    Ok(connection)
}

/// What [`dump`] has written, durably: a statement for each line, and all of them one transaction. Its journal is the default one, which keeps nothing of a
/// database that was empty; that of the database it comes from would write all twice, and is set behind.
fn load(target: &Connection, from: &Path, stop: &AtomicBool) -> Result<Value> {
    let text = File::open(from).with_context(|| format!("cannot open {from:?}"))?;
    let (mut statement, mut count) = (String::new(), 0_u64);
    for line in BufReader::with_capacity(1 << 20, text).lines() {
        ensure!(!stop.load(Ordering::Relaxed), "interrupted");
        statement.push_str(&line?);
        // A definition may be of several lines.
        if !statement.ends_with(';') {
            statement.push('\n');
            continue;
        }
        target.execute_batch(&statement).with_context(|| statement.chars().take(100).collect::<String>())?;
        statement.clear();
        count += 1;
    }
    ensure!(statement.trim().is_empty(), "{from:?} ends within a statement");
    ensure!(target.is_autocommit(), "{from:?} ends within a transaction");
    target.execute_batch("pragma journal_mode = wal")?;
    Ok(json!({ "statements": count }))
}

/// The file is shorter when the log has been brought home: it is not, as long as somebody reads what is only there.
fn vacuum(connection: &Connection, stop: &AtomicBool) -> Result<Value> {
    connection.execute_batch("vacuum")?;
    connection.busy_timeout(CHECKPOINT_TRY)?;
    let (began, mut tries) = (Instant::now(), 0);
    loop {
        tries += 1;
        let busy: i64 = connection.query_row("pragma wal_checkpoint(truncate)", (), |row| row.get(0))?;
        if busy == 0 {
            return Ok(json!({ "checkpoints": tries }));
        }
        ensure!(!stop.load(Ordering::Relaxed), "interrupted");
        ensure!(
            began.elapsed() < CHECKPOINT_PATIENCE,
            "somebody reads the log, so that it cannot be brought home"
        );
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::sql::Target;
    use crate::tpcc::connection::Connect;

    #[test]
    fn each_task_does_what_it_says_beside_one_who_writes() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("lab.sqlite");
        let go_on = AtomicBool::new(false);
        let target = Target { path: database.clone(), is_durable: false };
        let mut writer = target.connect().unwrap();
        writer.batch("create table t (a integer primary key, b text); create index t_b on t (b)").unwrap();
        writer.batch("insert into t values (1, 'it''s'), (2, null)").unwrap();
        writer.batch("begin immediate; insert into t values (3, 'not yet')").unwrap();
        let to = folder.path().join("to");
        let told = perform(Task::Backup, &database, &to, 1 << 20, &go_on).unwrap();
        assert!(told["pages"].as_i64().unwrap() >= 3, "{told}");
        let copy = Connection::open(&to).unwrap();
        assert_eq!(copy.query_row("select count(*) from t", (), |row| row.get::<_, i64>(0)).unwrap(), 2);
        assert!(perform(Task::Backup, &database, &to, 1 << 20, &go_on).is_err());
        let trees = perform(Task::Stat, &database, &to, 1 << 20, &go_on).unwrap();
        assert!(trees.to_string().contains("\"t_b\",2,"), "{trees}");
        perform(Task::Check, &database, &to, 1 << 20, &go_on).unwrap();
        let text = folder.path().join("dump");
        assert_eq!(perform(Task::Dump, &database, &text, 1 << 20, &go_on).unwrap(), json!({ "rows": 2 }));
        let text = std::fs::read_to_string(text).unwrap();
        let again = Connection::open_in_memory().unwrap();
        again.execute_batch(&text).unwrap();
        let same = "select a from t where b = 'it''s' or b is null";
        assert_eq!(
            again.prepare(same).unwrap().query_map((), |row| row.get::<_, i64>(0)).unwrap().count(),
            2
        );
        let loaded = folder.path().join("loaded");
        perform(Task::Load, &folder.path().join("dump"), &loaded, 1 << 20, &go_on).unwrap();
        let again = Connection::open(&loaded).unwrap();
        assert_eq!(
            again.prepare(same).unwrap().query_map((), |row| row.get::<_, i64>(0)).unwrap().count(),
            2
        );
        let journal: String = again.query_row("pragma journal_mode", (), |row| row.get(0)).unwrap();
        assert_eq!(journal, "wal");
        assert!(perform(Task::Load, &folder.path().join("dump"), &loaded, 1 << 20, &go_on).is_err());
        let half = folder.path().join("half");
        std::fs::write(&half, text.trim_end().strip_suffix("COMMIT;").unwrap()).unwrap();
        let error = perform(Task::Load, &half, &folder.path().join("other"), 1 << 20, &go_on).unwrap_err();
        assert!(format!("{error:#}").contains("within a transaction"), "{error:#}");
        writer.batch("rollback").unwrap();
        perform(Task::Compact, &database, &to, 1 << 20, &go_on).unwrap();
        assert!(perform(Task::Sweep, &database, &to, 1 << 20, &go_on).is_err());
        let missing = folder.path().join("missing");
        let error = perform(Task::Check, &missing, &to, 1 << 20, &go_on).unwrap_err();
        assert!(error.to_string().contains("no database") && !missing.exists(), "{error:#}");
    }

    #[test]
    fn damage_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("lab.sqlite");
        let target = Target { path: database.clone(), is_durable: true };
        let mut session = target.connect().unwrap();
        session.batch("create table t (a integer primary key, b text); create index t_b on t (b)").unwrap();
        session.batch("insert into t values (1, 'x'), (2, 'y')").unwrap();
        session.batch("pragma writable_schema = on; delete from sqlite_schema where name = 't_b'").unwrap();
        drop(session);
        let error = perform(Task::Check, &database, folder.path(), 0, &AtomicBool::new(false)).unwrap_err();
        assert!(format!("{error:#}").contains("damaged"), "{error:#}");
    }
}
