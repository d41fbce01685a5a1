//! Firebird's server, by a client of its own, to which it gives its rows as numbers and text.

use super::{Base, Host, Plan, Rows, Session, Take, finish};
use crate::admin::firebird as nbackup;
use crate::firebird::server::{self, Options, Server};
use crate::firebird::wire::{Attached, Target};
use crate::tpcc::connection::{Connection, Datum};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Rows that are made at a time.
const ROWS_AT_ONCE: u64 = 200;

/// A server with a database of ours in it.
#[derive(Debug)]
pub struct Firebird {
    server: Server,
    target: Target,
    folder: PathBuf,
    limit: Option<u64>,
}

impl Firebird {
    /// Starts it, with so much memory (`None`: as much as it wants, to be loaded), of which `cache` bytes are for pages where that is said, and as many as the
    /// database has where it `fits`; on a new database where `create` says so.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(
        folder: &Path,
        limit: Option<u64>,
        cache: Option<u64>,
        fits: bool,
        create: bool,
    ) -> Result<Self> {
        if create {
            server::make(folder)?;
            if limit.is_some() {
                server::force_writes(folder)?;
            }
        }
        let settings = match (cache, limit.filter(|_| fits)) {
            (None, Some(limit)) => server::fitting(folder, limit)?,
            (cache, _) => cache.map(server::cache_of).into_iter().collect(),
        };
        let options = Options { folder: folder.to_owned(), memory: limit, settings };
        let server = options.start()?;
        let target = Target::of(&server)?;
        Ok(Firebird { server, target, folder: folder.to_owned(), limit })
    }
}

impl Base for Firebird {
    fn name(&self) -> String {
        format!("{} by its server", server::title())
    }

    fn settings(&self) -> Result<Value> {
        let mut settings = self.server.describe();
        settings["limit_bytes"] = json!(self.limit);
        Ok(settings)
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(FirebirdSession(self.target.attach()?)))
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    fn data(&self) -> PathBuf {
        server::database(&self.folder)
    }

    fn by_tag(&self, plan: Plan) -> (&'static str, String) {
        let how = match plan {
            Plan::Chosen => "",
            Plan::Index => "plan (rows order rows_tag) ",
            Plan::Sort => "plan (rows natural) ",
        };
        ("", format!("select k, tag, v from rows {how}order by tag"))
    }

    fn explain(&self) -> &'static str {
        EXPLAIN
    }

    fn settle(&self) -> &'static [&'static str] {
        &["analyze"]
    }

    fn memory(&self) -> (Option<u64>, Option<u64>) {
        self.server.process().memory()
    }

    fn group(&self) -> Value {
        self.server.process().group()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.server.stop()?;
        if self.limit.is_none() {
            server::force_writes(&self.folder)?;
        }
        Ok(())
    }
}

impl Host for Firebird {
    fn beside(&self, program: &Path) -> Result<Command> {
        Ok(self.server.process().beside(program))
    }

    fn back_up(&self, to: &Path, over: &AtomicBool) -> Result<bool> {
        let command = nbackup::full(&self.server, &to.join("full"))?;
        let done = finish(command, "nbackup", over);
        if !matches!(done, Ok(true)) {
            // Who has not come to the end may have left the database locked, with changes going to a file beside it.
            nbackup::unlock(&mut self.target.attach()?)?;
        }
        done
    }
}

/// No word of Firebird's: it keeps the plans of prepared statements in a table.
const EXPLAIN: &str = "explain";

struct FirebirdSession(Attached);

fn text(datum: Datum) -> String {
    match datum {
        Datum::Text(text) => text,
        Datum::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

impl Session for FirebirdSession {
    fn run(&mut self, sql: &str, take: Take<'_>) -> Result<bool> {
        self.0.each(sql, &mut |row| match row {
            [Datum::Int(k), Datum::Int(tag), Datum::Text(v)] => Ok(take(*k, *tag, v)),
            other => bail!("a row of {} values, or of others than were asked for", other.len()),
        })
    }

    fn text(&mut self, sql: &str) -> Result<Vec<Vec<String>>> {
        if let Some(sql) = sql.strip_prefix(EXPLAIN) {
            let plan = self.0.plan(sql.trim())?;
            return Ok(plan
                .lines()
                .filter(|line| !line.is_empty())
                .map(|line| vec![line.to_owned()])
                .collect());
        }
        let rows = self.0.rows(sql)?;
        Ok(rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect())
    }

    fn load(&mut self, rows: &Rows) -> Result<()> {
        let mut next = 0;
        self.0.load("rows", &mut |data| {
            let end = (next + ROWS_AT_ONCE).min(rows.count);
            (next..end).for_each(|k| rows.line(k, data));
            next = end;
            next < rows.count
        })?;
        Ok(())
    }

    fn insert(&mut self, rows: &Rows, keys: Range<u64>) -> Result<()> {
        let mut data = Vec::new();
        keys.for_each(|k| rows.line(k, &mut data));
        self.0.insert("rows", &data)
    }

    fn batch(&mut self, sql: &str) -> Result<()> {
        Connection::batch(&mut self.0, sql)
    }
}
