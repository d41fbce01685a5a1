//! Gannet's server, and PostgreSQL's, by one client that speaks their protocol: rows come as text, and each is looked at and thrown away.

use super::{Base, Canceller, Host, Plan, Rows, Session, Take, by_tag_with_switches, finish};
use crate::isolation::client::{Answer, Supply};
use crate::servers::{Kind, Options, Server, database, fitting, postgres};
use anyhow::{Context, Result, anyhow};
use gannet_server::frontend::{Address, Column, Connection, Failure, Receiver, Report};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// The database in PostgreSQL.
const THEIR_DATABASE: &str = "lab";
/// Bytes of COPY data that are made at a time.
const LINES_AT_ONCE: u64 = 200;

/// A server with a database of ours in it.
#[derive(Debug)]
pub struct Served {
    server: Server,
    kind: Kind,
    folder: PathBuf,
    limit: Option<u64>,
}

impl Served {
    /// How a server is started whose group may have so much memory (`None`: as much as it wants), where the database `fits` or not.
    ///
    /// # Errors
    /// It is to fit and cannot be looked at.
    pub fn options(kind: Kind, folder: &Path, limit: Option<u64>, io: &str, fits: bool) -> Result<Options> {
        let mut settings = match limit.filter(|_| fits) {
            Some(limit) => fitting(kind, folder, limit)?,
            None => Vec::new(),
        };
        if let (Kind::PostgreSql, Some(limit)) = (kind, limit) {
            // An eighth for each of the processes that sort.
            settings.push(format!("work_mem={}kB", (limit / 8) >> 10));
        }
        if kind == Kind::PostgreSql && limit.is_none() {
            settings.push("maintenance_work_mem=512MB".to_owned());
        }
        Ok(Options { kind, folder: folder.to_owned(), memory: limit, io: io.to_owned(), settings })
    }

    /// Starts it, and makes PostgreSQL's database where it is not there.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(options: &Options) -> Result<Self> {
        let server = options.start()?;
        if options.kind == Kind::PostgreSql {
            let mut client = server.client("postgres")?;
            let asked = format!("select 1 from pg_database where datname = '{THEIR_DATABASE}'");
            if client.run(&asked)?.rows.is_empty() {
                client.run(&format!("create database {THEIR_DATABASE}"))?;
            }
        }
        let (kind, folder, limit) = (options.kind, options.folder.clone(), options.memory);
        Ok(Served { server, kind, folder, limit })
    }

    /// Where one of its databases is; the one with the table where none is named.
    pub fn address(&self, database: Option<&str>) -> Address {
        self.server.address(database.unwrap_or(THEIR_DATABASE))
    }

    /// A connection to one of its databases.
    ///
    /// # Errors
    /// It cannot be reached, or does not let us in.
    pub fn connect(&self, database: Option<&str>) -> Result<Box<dyn Session>> {
        let address = self.address(database);
        let opened = Connection::open(&address, "gannet-lab");
        Ok(Box::new(Wire(opened.map_err(|error| anyhow!("cannot connect to {address:?}: {error}"))?)))
    }
}

impl Base for Served {
    fn name(&self) -> String {
        format!("{} by its server", self.kind.title())
    }

    fn settings(&self) -> Result<Value> {
        let mut settings = self.server.describe();
        settings["limit_bytes"] = json!(self.limit);
        if self.kind == Kind::Gannet {
            let asked = "select effective, reason from gannet_settings where name = 'io'";
            let told = self.server.client(THEIR_DATABASE)?.run(asked)?.rows;
            let row = told.first().context("the server does not tell its I/O mode")?;
            settings["io_mode"] = json!(row[0]);
            settings["io_mode_reason"] = json!(row[1]);
        }
        Ok(settings)
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        self.connect(None)
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    fn data(&self) -> PathBuf {
        match self.kind {
            Kind::Gannet => database(&self.folder),
            Kind::PostgreSql => self.folder.join("base"),
        }
    }

    fn by_tag(&self, plan: Plan) -> (&'static str, String) {
        by_tag_with_switches(plan)
    }

    fn settle(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Gannet => &["analyze rows", "checkpoint"],
            Kind::PostgreSql => &["vacuum analyze rows", "checkpoint"],
        }
    }

    fn memory(&self) -> (Option<u64>, Option<u64>) {
        self.server.memory()
    }

    fn group(&self) -> Value {
        self.server.group()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.server.stop().map(drop)
    }
}

impl Host for Served {
    fn beside(&self, program: &Path) -> Result<Command> {
        Ok(self.server.beside(program))
    }

    fn back_up(&self, to: &Path, over: &AtomicBool) -> Result<bool> {
        match self.kind {
            Kind::Gannet => {
                let told = to.display().to_string().replace('\'', "''");
                self.session()?.batch(&format!("backup database to '{told}'"))?;
                Ok(true)
            }
            Kind::PostgreSql => {
                let (_, programs) = postgres().context("PostgreSQL is not installed")?;
                let mut command = self.server.beside(programs.join("pg_basebackup"));
                command.arg("-D").arg(to).args(["-c", "fast", "-d", &self.server.target("postgres")]);
                finish(command, "pg_basebackup", over)
            }
        }
    }
}

/// A connection.
struct Wire(Connection);

fn said(sql: &str, failure: Failure) -> anyhow::Error {
    let mut start = sql.to_owned();
    start.truncate(start.char_indices().nth(80).map_or(start.len(), |(at, _)| at));
    anyhow!("{start:?}: {failure}")
}

/// Hands rows on.
struct Rest<'t> {
    take: Take<'t>,
    enough: bool,
}

fn whole(value: Option<&str>) -> io::Result<i64> {
    let number = value.and_then(|text| text.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("{value:?} is no whole number")))
}

impl Receiver for Rest<'_> {
    fn columns(&mut self, _: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, values: &[Option<&str>]) -> io::Result<()> {
        let [k, tag, Some(v)] = *values else {
            return Err(io::Error::other(format!("a row of {} values", values.len())));
        };
        if !(self.take)(whole(k)?, whole(tag)?, v) {
            self.enough = true;
            return Err(io::Error::other("more rows than are wanted"));
        }
        Ok(())
    }

    fn complete(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _: &Report) {}
}

impl Session for Wire {
    fn run(&mut self, sql: &str, take: Take<'_>) -> Result<bool> {
        let mut rest = Rest { take, enough: false };
        match self.0.query(sql, &mut rest) {
            Err(Failure::Receiver(_)) if rest.enough => Ok(false),
            done => done.map(|()| true).map_err(|failure| said(sql, failure)),
        }
    }

    fn text(&mut self, sql: &str) -> Result<Vec<Vec<String>>> {
        let mut answer = Answer::default();
        self.0.query(sql, &mut answer).map_err(|failure| said(sql, failure))?;
        let text = |row: Vec<Option<String>>| row.into_iter().map(Option::unwrap_or_default).collect();
        Ok(answer.rows.into_iter().map(text).collect())
    }

    fn load(&mut self, rows: &Rows) -> Result<()> {
        let sql = "copy rows from stdin";
        let mut next = 0;
        let mut lines = Supply(|data: &mut Vec<u8>| {
            let end = (next + LINES_AT_ONCE).min(rows.count);
            (next..end).for_each(|k| rows.line(k, data));
            next = end;
            next < rows.count
        });
        self.0.query(sql, &mut lines).map_err(|failure| said(sql, failure))
    }

    fn canceller(&self) -> Option<Canceller> {
        let canceller = self.0.canceller();
        Some(Box::new(move || {
            // A server that cannot be reached has nothing to be ended.
            let _ = canceller.cancel();
        }))
    }
}
