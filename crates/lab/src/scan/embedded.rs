//! Gannet within this process.

use super::{Base, Plan, Rows, Session, Take, by_tag_with_switches};
use crate::gannet;
use crate::machine;
use crate::sql::Taker;
use anyhow::{Context, Result, bail};
use gannet_io::ModeRequest;
use gannet_sql::{Database, Error, OutputColumn};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::path::{Path, PathBuf};

/// What of the memory that a process may have its budget leaves to the process around it.
const AROUND_BUDGET: u64 = 24 << 20;
/// Rows that are handed over at a time while loading.
const LINES_AT_ONCE: u64 = 200;

/// An open database.
#[derive(Debug)]
pub struct Embedded {
    database: Database,
    options: gannet::Options,
}

/// Who owns databases: whom a server of this account takes for its user, too.
fn owner() -> String {
    whoami::username().unwrap_or_else(|_| "gannet".to_owned())
}

impl Embedded {
    /// Opens the database in a folder, or creates it, in a process that may have so much memory in all.
    ///
    /// # Errors
    /// As the engine.
    pub fn open(folder: &Path, limit: u64, mode: ModeRequest, create: bool) -> Result<Self> {
        let memory = limit.saturating_sub(AROUND_BUDGET);
        let options =
            gannet::Options { folder: folder.to_owned(), memory, mode, ..gannet::Options::default() };
        let temp_folder = Some(folder.to_owned());
        let path = gannet::path(folder);
        let open = OpenOptions { mode, wal_limit: options.wal_limit, ..OpenOptions::default() };
        if create {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {folder:?}"))?;
        }
        let engine = Engine::new(&EngineOptions { memory, temp_folder })?;
        let database = match create {
            true => Database::create(&engine, &path, &CreateOptions::default(), &open, &owner()),
            false => Database::open(&engine, &path, &open, &owner()),
        };
        Ok(Embedded { database: database.with_context(|| format!("cannot open {path:?}"))?, options })
    }
}

impl Base for Embedded {
    fn name(&self) -> String {
        format!("gannet {}", env!("CARGO_PKG_VERSION"))
    }

    fn settings(&self) -> Result<serde_json::Value> {
        Ok(gannet::settings(self.database.store(), &self.options))
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(EmbeddedSession(self.database.session(&self.database.owner())?)))
    }

    fn folder(&self) -> PathBuf {
        self.options.folder.clone()
    }

    fn data(&self) -> PathBuf {
        gannet::path(&self.options.folder)
    }

    fn by_tag(&self, plan: Plan) -> (&'static str, String) {
        by_tag_with_switches(plan)
    }

    fn settle(&self) -> &'static [&'static str] {
        &["analyze rows", "checkpoint"]
    }

    fn memory(&self) -> (Option<u64>, Option<u64>) {
        (crate::confine::status(std::process::id(), "VmRSS"), machine::group_cached())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}

struct EmbeddedSession(gannet_sql::Session);

fn text(value: &gannet_sql::Value) -> String {
    match value {
        gannet_sql::Value::Text(text) => text.to_string(),
        gannet_sql::Value::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

impl Session for EmbeddedSession {
    fn run(&mut self, sql: &str, take: Take<'_>) -> Result<bool> {
        let (mut goes_on, mut strange) = (true, None);
        let ran = self.0.run(
            sql,
            &mut Taker::new(|values: &[gannet_sql::Value], _: &[OutputColumn]| {
                goes_on = match values {
                    [gannet_sql::Value::Int(k), gannet_sql::Value::Int(tag), gannet_sql::Value::Text(v)] => {
                        take(*k, *tag, v)
                    }
                    other => {
                        strange = Some(format!("{other:?}"));
                        false
                    }
                };
                if goes_on { Ok(()) } else { Err(Error::unsupported("more rows than are wanted")) }
            }),
        );
        match (strange, goes_on) {
            (Some(row), _) => bail!("{sql:?} gave a row that was not expected: {row}"),
            (None, false) => Ok(false),
            (None, true) => Ok(ran.map(|()| true)?),
        }
    }

    fn text(&mut self, sql: &str) -> Result<Vec<Vec<String>>> {
        let mut rows = Vec::new();
        let mut taker = Taker::new(|values: &[gannet_sql::Value], _: &[OutputColumn]| {
            rows.push(values.iter().map(text).collect());
            Ok(())
        });
        self.0.run(sql, &mut taker)?;
        Ok(rows)
    }

    fn load(&mut self, rows: &Rows) -> Result<()> {
        let mut k = 0;
        let mut more = |data: &mut Vec<u8>| {
            let end = (k + LINES_AT_ONCE).min(rows.count);
            (k..end).for_each(|k| rows.line(k, data));
            k = end;
            k < rows.count
        };
        let taker = Taker::new(crate::sql::ignore);
        Ok(self.0.run("copy rows from stdin", &mut Taker { more: Some(&mut more), ..taker })?)
    }
}
