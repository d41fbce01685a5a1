//! The built-in load against PostgreSQL: the same transactions by the same client, in as much memory as Gannet's server would have in all.

use super::builtin;
use super::load;
use super::observer::Bystander;
use super::trial::{Config, Impossible, OURS, Setup, plan};
use crate::folders;
use crate::servers::{self, DATABASE, Kind, Options, Server};
use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Connections that PostgreSQL keeps for its superuser.
const RESERVED: usize = 3;

/// Makes a folder of PostgreSQL's with the load's tables, filled and written home.
///
/// # Errors
/// The folder is there; PostgreSQL is not installed, or fails.
pub fn make(folder: &Path, size: builtin::Size, seed: u64) -> Result<()> {
    servers::make(Kind::PostgreSql, folder)?;
    let server = options(folder, None, Vec::new()).start()?;
    let run = |database: &str, sql: &str| {
        let answer = server.client(database)?.run(sql);
        answer.map(drop).map_err(|failure| anyhow!("{sql}: {failure}"))
    };
    run("postgres", &format!("create database {DATABASE}"))?;
    builtin::fill(&server.address(DATABASE), size, seed)?;
    // What rows need that were just loaded is behind it, as with Gannet.
    run(DATABASE, "vacuum")?;
    server.stop().map(drop)
}

fn options(folder: &Path, memory: Option<u64>, settings: Vec<String>) -> Options {
    Options { kind: Kind::PostgreSql, folder: folder.to_owned(), memory, io: String::new(), settings }
}

/// Tries a configuration on a copy of such a folder, which is the setup's template; gives what was measured, as JSON. Sizes of pages and I/O modes are none of PostgreSQL's.
///
/// # Errors
/// [`Impossible`], where the server cannot start with so little memory, or ends under the load; else what went wrong, or "interrupted".
pub fn run(setup: &Setup, config: &Config, stop: &AtomicBool) -> Result<Value> {
    folders::copy(&setup.template, &setup.folder, stop)?;
    let done = in_folder(setup, config, stop);
    folders::remove(&setup.folder)?;
    let log = setup.folder.with_extension("log");
    if done.is_ok() && log.exists() {
        fs::remove_file(&log)?;
    }
    if stop.load(Ordering::Relaxed) {
        return Err(anyhow!("interrupted"));
    }
    done
}

fn in_folder(setup: &Setup, config: &Config, stop: &AtomicBool) -> Result<Value> {
    let impossible = |error: anyhow::Error| anyhow::Error::from(Impossible(format!("{error:#}")));
    let connections = format!("max_connections={}", config.connections + OURS + RESERVED);
    let memory = setup.is_confined.then(|| config.limit());
    let server: Server = options(&setup.folder, memory, vec![connections]).start().map_err(impossible)?;
    let mut observer = Bystander::new(&setup.folder)?;
    let mut look = |moment| {
        observer.look(moment);
        Ok(())
    };
    let outcome = load::run(&|| server.client(DATABASE), &setup.mix, &plan(setup, config), stop, &mut look)
        .map_err(impossible)?;
    if let Some(size) = setup.size {
        builtin::check(&mut server.client(DATABASE)?, size, outcome.done[0])?;
    }
    let mut measured = observer.report(&outcome, config)?;
    measured["writes"] = json!(setup.mix.writes());
    measured["server"] = server.describe();
    measured["group"] = server.group();
    measured["file_bytes"] = json!(server.database_bytes()?);
    measured["shutdown_seconds"] = json!(server.stop()?.as_secs_f64());
    Ok(measured)
}
