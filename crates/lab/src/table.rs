//! Gannet's SQL, embedded: the same rows as a table, through prepared statements.

use crate::driver::{Counters, Driver, Key, LoadOrder, Rows, Scanned, Session};
use crate::gannet;
use crate::sql::{Embedded, Taker, ignore};
use anyhow::{Context, Result};
use gannet_sql::{Database, OutputColumn, Prepared, Type, Value};
use gannet_store::{CreateOptions, OpenOptions};
use serde_json::Value as Json;
use std::path::PathBuf;
use std::sync::Arc;

/// The role that owns databases of the laboratory.
const ROLE: &str = "lab";

/// An open Gannet database, as SQL sees it.
#[derive(Debug)]
pub struct Table {
    database: Database,
    options: gannet::Options,
}

impl Table {
    /// Opens the database in the folder; creates it first when `create`.
    pub fn open(options: &gannet::Options, create: bool) -> Result<Self> {
        std::fs::create_dir_all(&options.folder)
            .with_context(|| format!("cannot make the folder {:?}", options.folder))?;
        let engine = options.engine()?;
        let path = gannet::path(&options.folder);
        let open = OpenOptions { mode: options.mode, wal_limit: options.wal_limit, ..OpenOptions::default() };
        let database = if create {
            let create = CreateOptions::for_memory(options.memory, options.page_size);
            Database::create(&engine, &path, &create, &open, ROLE)
        } else {
            Database::open(&engine, &path, &open, ROLE)
        };
        let database = database.with_context(|| format!("cannot open {path:?}"))?;
        Ok(Table { database, options: options.clone() })
    }

    /// Runs one text, throwing its rows away; gives how many they were, or how many rows it changed.
    pub fn run(&self, sql: &str) -> Result<u64> {
        let mut taker = Taker::new(ignore);
        self.connect()?.run(sql, &mut taker)?;
        Ok(taker.affected)
    }

    /// For workloads that connect on their own.
    pub fn embedded(&self) -> Embedded {
        Embedded { database: self.database.clone(), user: self.database.owner() }
    }

    /// Closes the database.
    pub fn close(self) -> Result<()> {
        Ok(self.database.close()?)
    }

    fn connect(&self) -> Result<gannet_sql::session::Session> {
        Ok(self.database.session(&self.database.owner())?)
    }
}

impl Driver for Table {
    fn name(&self) -> String {
        format!("gannet {} by SQL", env!("CARGO_PKG_VERSION"))
    }

    fn settings(&self) -> Json {
        gannet::settings(self.database.store(), &self.options)
    }

    fn load(&self, rows: &Rows, order: LoadOrder) -> Result<()> {
        let mut session = self.connect()?;
        session.run("create table rows (k bigint primary key, v bytea not null)", &mut Taker::new(ignore))?;
        let (mut place, mut value) = (0, Vec::new());
        let mut more = |data: &mut Vec<u8>| {
            for _ in 0..100.min(rows.count - place) {
                let number = order.row(place, rows);
                rows.value(number, 0, &mut value);
                data.extend_from_slice(format!("{number}\t\\\\x").as_bytes());
                data.extend(value.iter().flat_map(|byte| [hex(byte >> 4), hex(byte & 15)]));
                data.push(b'\n');
                place += 1;
            }
            place < rows.count
        };
        session.run("copy rows from stdin", &mut Taker { more: Some(&mut more), ..Taker::new(ignore) })?;
        session.run("analyze rows", &mut Taker::new(ignore))?;
        Ok(self.database.store().checkpoint()?)
    }

    fn session(&self, body: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        let mut session = self.connect()?;
        let mut prepare = |sql: &str, types: &[Type]| session.prepare_unnamed(sql, types);
        let (number, bytes) = (Type::Int8, Type::Bytea);
        let get = prepare("select v from rows where k = $1", &[number])?;
        let scan = prepare("select v from rows order by k", &[])?;
        let put = prepare("insert into rows values ($1, $2)", &[number, bytes])?;
        let update = prepare("update rows set v = $2 where k = $1", &[number, bytes])?;
        body(&mut TableSession { session, get, scan, put, update })
    }

    fn counters(&self) -> Counters {
        gannet::counters(self.database.store())
    }

    fn memory(&self) -> Option<Json> {
        Some(gannet::memory(self.database.store()))
    }

    fn log_bytes(&self) -> Option<u64> {
        Some(gannet::log_bytes(self.database.store()))
    }

    fn files(&self) -> Vec<PathBuf> {
        gannet::files(&self.options.folder)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Table::close(*self)
    }
}

fn hex(digit: u8) -> u8 {
    b"0123456789abcdef"[usize::from(digit)]
}

struct TableSession {
    session: gannet_sql::session::Session,
    get: Arc<Prepared>,
    scan: Arc<Prepared>,
    put: Arc<Prepared>,
    update: Arc<Prepared>,
}

impl TableSession {
    /// Runs a statement; gives how many rows it gave or changed.
    fn execute(
        session: &mut gannet_sql::session::Session,
        prepared: &Arc<Prepared>,
        values: &[Value],
    ) -> Result<u64> {
        let mut taker = Taker::new(ignore);
        session.execute_prepared(prepared, values, &mut taker)?;
        Ok(taker.affected)
    }
}

fn number(key: &Key) -> Value {
    Value::Int(i64::from_be_bytes(*key))
}

impl Session for TableSession {
    fn begin_reading(&mut self) -> Result<()> {
        Ok(self.session.run("begin isolation level repeatable read read only", &mut Taker::new(ignore))?)
    }

    fn end_reading(&mut self) -> Result<()> {
        Ok(self.session.run("commit", &mut Taker::new(ignore))?)
    }

    fn get(&mut self, key: &Key) -> Result<bool> {
        Ok(Self::execute(&mut self.session, &self.get, &[number(key)])? == 1)
    }

    fn value(&mut self, key: &Key) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        let mut taker = Taker::new(|values: &[Value], _: &[OutputColumn]| {
            if let Some(Value::Bytes(bytes)) = values.first() {
                found = Some(bytes.to_vec());
            }
            Ok(())
        });
        self.session.execute_prepared(&self.get, &[number(key)], &mut taker)?;
        Ok(found)
    }

    fn multi_get(&mut self, keys: &[Key]) -> Result<usize> {
        keys.iter().try_fold(0, |found, key| Ok(found + usize::from(self.get(key)?)))
    }

    fn scan(&mut self) -> Result<Scanned> {
        let mut scanned = Scanned::default();
        let mut taker = Taker::new(|values: &[Value], _: &[OutputColumn]| {
            if let Some(Value::Bytes(bytes)) = values.first() {
                scanned.count += 1;
                let first = bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
                scanned.sum = scanned.sum.wrapping_add(first);
            }
            Ok(())
        });
        self.session.execute_prepared(&Arc::clone(&self.scan), &[], &mut taker)?;
        Ok(scanned)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        Self::execute(&mut self.session, &self.put, &[number(key), Value::Bytes(value.into())]).map(drop)
    }

    fn update(&mut self, key: &Key, value: &[u8]) -> Result<bool> {
        Ok(Self::execute(&mut self.session, &self.update, &[number(key), Value::Bytes(value.into())])? > 0)
    }
}
