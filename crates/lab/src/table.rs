//! Gannet's SQL, embedded: the same rows as a table, through prepared statements.

use crate::driver::{Counters, Driver, Key, LoadOrder, Rows, Scanned, Session};
use crate::gannet;
use anyhow::{Context, Result};
use gannet_sql::session::CopyFormat;
use gannet_sql::types::text::TextStyle;
use gannet_sql::{Client, CommandTag, Database, Notice, OutputColumn, Prepared, Type, Value};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
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
        let engine = Engine::new(&EngineOptions { memory: options.memory, ..EngineOptions::default() })?;
        let path = gannet::path(&options.folder);
        let open = OpenOptions { mode: options.mode, wal_limit: options.wal_limit, ..OpenOptions::default() };
        let database = if create {
            let create = CreateOptions { page_size: options.page_size, ..CreateOptions::default() };
            Database::create(&engine, &path, &create, &open, ROLE)
        } else {
            Database::open(&engine, &path, &open, ROLE)
        };
        let database = database.with_context(|| format!("cannot open {path:?}"))?;
        Ok(Table { database, options: options.clone() })
    }

    /// Runs one text, throwing its rows away; gives how many they were, or how many rows it changed.
    pub fn run(&self, sql: &str) -> Result<u64> {
        let mut sink = Sink::default();
        self.connect()?.run(sql, &mut sink)?;
        Ok(sink.rows.max(sink.affected))
    }

    fn connect(&self) -> Result<gannet_sql::session::Session> {
        Ok(self.database.session(&self.database.owner())?)
    }
}

/// Gives more data of a COPY; false: there is none.
type More<'m> = &'m mut dyn FnMut(&mut Vec<u8>) -> bool;

/// Takes hold of what a statement gives, and throws it away.
#[derive(Default)]
struct Sink<'m> {
    rows: u64,
    affected: u64,
    scanned: Scanned,
    more: Option<More<'m>>,
}

impl Client for Sink<'_> {
    fn columns(&mut self, _columns: &[OutputColumn], _style: &TextStyle) -> gannet_sql::Result<()> {
        Ok(())
    }

    fn row(
        &mut self,
        values: &[Value],
        _columns: &[OutputColumn],
        _style: &TextStyle,
    ) -> gannet_sql::Result<()> {
        self.rows += 1;
        if let Some(Value::Bytes(bytes)) = values.first() {
            self.scanned.count += 1;
            let first = bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
            self.scanned.sum = self.scanned.sum.wrapping_add(first);
        }
        std::hint::black_box(values);
        Ok(())
    }

    fn complete(&mut self, tag: &CommandTag) -> gannet_sql::Result<()> {
        self.affected = tag.rows.unwrap_or(0);
        Ok(())
    }

    fn empty(&mut self) -> gannet_sql::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _notice: &Notice) {}

    fn setting_changed(&mut self, _name: &str, _value: &str) {}

    fn copy_in(&mut self, _format: &CopyFormat) -> gannet_sql::Result<()> {
        Ok(())
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> gannet_sql::Result<bool> {
        Ok(self.more.as_mut().is_some_and(|more| more(data)))
    }

    fn copy_out(&mut self, _format: &CopyFormat) -> gannet_sql::Result<()> {
        Ok(())
    }

    fn copy_write(&mut self, data: &[u8]) -> gannet_sql::Result<()> {
        std::hint::black_box(data);
        Ok(())
    }

    fn copy_out_end(&mut self) -> gannet_sql::Result<()> {
        Ok(())
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
        session.run("create table rows (k bigint primary key, v bytea not null)", &mut Sink::default())?;
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
        session.run("copy rows from stdin", &mut Sink { more: Some(&mut more), ..Sink::default() })?;
        session.run("analyze rows", &mut Sink::default())?;
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
        body(&mut TableSession { session, get, scan, put, update, sink: Sink::default() })
    }

    fn counters(&self) -> Counters {
        gannet::counters(self.database.store())
    }

    fn files(&self) -> Vec<PathBuf> {
        gannet::files(&self.options.folder)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
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
    sink: Sink<'static>,
}

impl TableSession {
    fn execute(&mut self, which: fn(&Self) -> &Arc<Prepared>, values: &[Value]) -> Result<()> {
        let prepared = Arc::clone(which(self));
        self.sink.rows = 0;
        Ok(self.session.execute_prepared(&prepared, values, &mut self.sink)?)
    }
}

fn number(key: &Key) -> Value {
    Value::Int(i64::from_be_bytes(*key))
}

impl Session for TableSession {
    fn begin_reading(&mut self) -> Result<()> {
        Ok(self.session.run("begin isolation level repeatable read read only", &mut self.sink)?)
    }

    fn end_reading(&mut self) -> Result<()> {
        Ok(self.session.run("commit", &mut self.sink)?)
    }

    fn get(&mut self, key: &Key) -> Result<bool> {
        self.execute(|own| &own.get, &[number(key)])?;
        Ok(self.sink.rows == 1)
    }

    fn multi_get(&mut self, keys: &[Key]) -> Result<usize> {
        keys.iter().try_fold(0, |found, key| Ok(found + usize::from(self.get(key)?)))
    }

    fn scan(&mut self) -> Result<Scanned> {
        self.sink.scanned = Scanned::default();
        self.execute(|own| &own.scan, &[])?;
        Ok(self.sink.scanned)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.execute(|own| &own.put, &[number(key), Value::Bytes(value.into())])
    }

    fn update(&mut self, key: &Key, value: &[u8]) -> Result<bool> {
        self.execute(|own| &own.update, &[number(key), Value::Bytes(value.into())])?;
        Ok(self.sink.affected > 0)
    }
}
