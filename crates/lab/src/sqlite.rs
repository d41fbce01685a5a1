//! SQLite, linked in: one connection per session, write-ahead log, prepared statements kept for the session's life. A connection has a cache of its own, which
//! no other one sees, and behind all of them is the OS cache.

pub mod sql;

use crate::driver::{Counters, Driver, Key, LoadOrder, Rows, Scanned, Session};
use anyhow::{Context, Result};
use rusqlite::{Connection, Statement};
use serde_json::{Value, json};
use std::path::PathBuf;

/// How SQLite is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder that holds, or will hold, the database.
    pub folder: PathBuf,
    /// Bytes of a connection's page cache: each has one of its own.
    pub cache: u64,
    /// Connections at one time.
    pub connections: usize,
    /// Bytes of a page, for a new database.
    pub page_size: usize,
}

/// A folder with an SQLite database.
#[derive(Debug)]
pub struct Sqlite {
    options: Options,
    keeps_log: bool,
}

impl Sqlite {
    /// Opens the database in the folder; creates it first when `create`.
    pub fn open(options: &Options, create: bool) -> Result<Self> {
        std::fs::create_dir_all(&options.folder)?;
        let sqlite = Sqlite { options: options.clone(), keeps_log: false };
        if create {
            let connection = sqlite.connect()?;
            connection.execute_batch("CREATE TABLE rows (k INTEGER PRIMARY KEY, v BLOB NOT NULL)")?;
        }
        Ok(sqlite)
    }

    /// The same, which copies nothing of its log home as long as it is open. By default it does so at each 1,000 pages.
    #[must_use]
    pub fn keeping_log(self) -> Self {
        Sqlite { keeps_log: true, ..self }
    }

    fn path(&self) -> PathBuf {
        self.options.folder.join("lab.sqlite")
    }

    fn connect(&self) -> Result<Connection> {
        let connection =
            Connection::open(self.path()).with_context(|| format!("cannot open {:?}", self.path()))?;
        connection.execute_batch(&format!(
            "PRAGMA page_size = {};
             PRAGMA journal_mode = WAL;
             PRAGMA synchronous = FULL;
             PRAGMA cache_size = -{};
             PRAGMA busy_timeout = 60000;",
            self.options.page_size,
            self.options.cache.div_ceil(1024)
        ))?;
        if self.keeps_log {
            connection.execute_batch("PRAGMA wal_autocheckpoint = 0")?;
        }
        Ok(connection)
    }
}

impl Driver for Sqlite {
    fn name(&self) -> String {
        format!("sqlite {}", rusqlite::version())
    }

    fn settings(&self) -> Value {
        json!({
            "memory_bytes": self.options.cache * self.options.connections as u64,
            "cache_bytes_per_connection": self.options.cache,
            "connections": self.options.connections,
            "page_size": self.options.page_size,
            "journal_mode": "wal",
            "synchronous": "full",
            "mmap_size": 0,
            "wal_autocheckpoint": if self.keeps_log { 0 } else { 1000 },
        })
    }

    fn load(&self, rows: &Rows, order: LoadOrder) -> Result<()> {
        let mut connection = self.connect()?;
        let transaction = connection.transaction()?;
        let mut value = Vec::new();
        let mut insert = transaction.prepare("INSERT INTO rows VALUES (?, ?)")?;
        for place in 0..rows.count {
            let number = order.row(place, rows);
            rows.value(number, 0, &mut value);
            insert.execute((number as i64, &value))?;
        }
        drop(insert);
        Ok(transaction.commit()?)
    }

    fn session(&self, body: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        let connection = self.connect()?;
        let mut session = SqliteSession {
            connection: &connection,
            get: connection.prepare("SELECT v FROM rows WHERE k = ?")?,
            scan: connection.prepare("SELECT v FROM rows ORDER BY k")?,
            put: connection.prepare("INSERT OR REPLACE INTO rows VALUES (?, ?)")?,
            update: connection.prepare("UPDATE rows SET v = ? WHERE k = ?")?,
        };
        body(&mut session)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn log_bytes(&self) -> Option<u64> {
        std::fs::metadata(self.options.folder.join("lab.sqlite-wal")).ok().map(|found| found.len())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path(), self.options.folder.join("lab.sqlite-wal")]
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct SqliteSession<'c> {
    connection: &'c Connection,
    get: Statement<'c>,
    scan: Statement<'c>,
    put: Statement<'c>,
    update: Statement<'c>,
}

fn number(key: &Key) -> i64 {
    i64::from_be_bytes(*key)
}

impl Session for SqliteSession<'_> {
    fn begin_reading(&mut self) -> Result<()> {
        Ok(self.connection.execute_batch("BEGIN")?)
    }

    fn end_reading(&mut self) -> Result<()> {
        Ok(self.connection.execute_batch("COMMIT")?)
    }

    fn get(&mut self, key: &Key) -> Result<bool> {
        let mut rows = self.get.query([number(key)])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        std::hint::black_box(row.get_ref(0)?.as_blob()?.to_vec());
        Ok(true)
    }

    fn value(&mut self, key: &Key) -> Result<Option<Vec<u8>>> {
        let mut rows = self.get.query([number(key)])?;
        Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
    }

    fn multi_get(&mut self, keys: &[Key]) -> Result<usize> {
        keys.iter().try_fold(0, |found, key| Ok(found + usize::from(self.get(key)?)))
    }

    fn scan(&mut self) -> Result<Scanned> {
        let mut scanned = Scanned::default();
        let mut rows = self.scan.query(())?;
        while let Some(row) = rows.next()? {
            scanned.count += 1;
            if let Some(first) = row.get_ref(0)?.as_blob()?.first_chunk() {
                scanned.sum = scanned.sum.wrapping_add(u64::from_le_bytes(*first));
            }
        }
        Ok(scanned)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.put.execute((number(key), value))?;
        Ok(())
    }

    fn update(&mut self, key: &Key, value: &[u8]) -> Result<bool> {
        Ok(self.update.execute((value, number(key)))? > 0)
    }
}
