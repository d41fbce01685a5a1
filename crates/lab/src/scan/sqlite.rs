//! SQLite, linked in.

use super::{Base, Plan, Rows, Session, Take};
use crate::machine;
use anyhow::{Context, Result};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::json;
use std::path::{Path, PathBuf};

/// A folder with a database.
#[derive(Debug)]
pub struct Sqlite {
    folder: PathBuf,
    cache: u64,
}

impl Sqlite {
    /// The database in a folder, or a new one, in a process that may have so much memory in all. Where `fits`, half of it is for the cache, else an
    /// eighth: each thread of a sort takes as much again, a quarter brings the OOM killer, and the OS caches in the rest.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(folder: &Path, limit: u64, fits: bool, create: bool) -> Result<Self> {
        if create {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {folder:?}"))?;
        }
        Ok(Sqlite { folder: folder.to_owned(), cache: limit / if fits { 2 } else { 8 } })
    }

    fn connect(&self) -> Result<Connection> {
        let path = self.folder.join("lab.sqlite");
        let connection = Connection::open(&path).with_context(|| format!("cannot open {path:?}"))?;
        connection.execute_batch(&format!(
            "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -{}; PRAGMA threads = 2;
             PRAGMA temp_store = FILE; PRAGMA temp_store_directory = '{}'",
            self.cache >> 10,
            self.folder.display().to_string().replace('\'', "''"),
        ))?;
        Ok(connection)
    }
}

impl Base for Sqlite {
    fn name(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    fn settings(&self) -> Result<serde_json::Value> {
        Ok(json!({
            "cache_size_bytes": self.cache,
            "page_size": 8192,
            "journal_mode": "wal",
            "synchronous": "full",
            "threads": 2,
            "mmap_size": 0,
        }))
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(SqliteSession(self.connect()?)))
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    fn data(&self) -> PathBuf {
        self.folder.join("lab.sqlite")
    }

    fn by_tag(&self, plan: Plan) -> (&'static str, String) {
        let how = match plan {
            Plan::Chosen => "",
            Plan::Index => "indexed by rows_tag",
            Plan::Sort => "not indexed",
        };
        ("", format!("select k, tag, v from rows {how} order by tag"))
    }

    fn explain(&self) -> &'static str {
        "explain query plan"
    }

    fn settle(&self) -> &'static [&'static str] {
        &["analyze", "pragma wal_checkpoint(truncate)"]
    }

    fn memory(&self) -> (Option<u64>, Option<u64>) {
        (crate::confine::status(std::process::id(), "VmRSS"), machine::group_cached())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct SqliteSession(Connection);

impl Session for SqliteSession {
    fn run(&mut self, sql: &str, take: Take<'_>) -> Result<bool> {
        let mut statement = self.0.prepare(sql)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let (k, tag, v) = (row.get_ref(0)?.as_i64()?, row.get_ref(1)?.as_i64()?, row.get_ref(2)?);
            if !take(k, tag, v.as_str()?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn text(&mut self, sql: &str) -> Result<Vec<Vec<String>>> {
        let mut statement = self.0.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query(())?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let mut texts = Vec::new();
            for column in 0..columns {
                texts.push(match row.get_ref(column)? {
                    ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    ValueRef::Integer(number) => number.to_string(),
                    other => format!("{other:?}"),
                });
            }
            all.push(texts);
        }
        Ok(all)
    }

    fn load(&mut self, rows: &Rows) -> Result<()> {
        let transaction = self.0.transaction()?;
        let mut insert = transaction.prepare("insert into rows values (?, ?, ?)")?;
        for k in 0..rows.count {
            insert.execute((k as i64, rows.tag(k) as i64, Rows::value(k)))?;
        }
        drop(insert);
        Ok(transaction.commit()?)
    }
}
