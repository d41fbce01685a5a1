//! `gannet check`: whether a database is sound; on a file that nobody has open, on one that a server has open, or at an address.
//!
//! # Exit status
//! 0: sound. 1: there are findings. 2: it could not be checked. 130: stopped by Ctrl-C.

use crate::arguments::Check;
use crate::interrupt::{self, Interrupted};
use crate::output::printable;
use crate::progress::Progress;
use crate::{doctor, serve, sql};
use anyhow::{Context, Result, anyhow, bail};
use gannet_base::units::format_size;
use gannet_server::frontend::{Address, Column, Connection, Failure, Receiver, Report};
use gannet_sql::check::{Figures, Finding, Outcome, check};
use gannet_sql::{Error, SqlState};
use gannet_store::{Engine, EngineOptions, OpenOptions};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FOUND: u8 = 1;
const NOT_CHECKED: u8 = 2;
/// How often it is looked for Ctrl-C while a server works.
const LISTEN_EVERY: Duration = Duration::from_millis(50);

/// Checks; what goes wrong has been told when it returns.
pub(crate) fn run(options: &Check) -> ExitCode {
    match checked(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FOUND),
        Err(error) if error.is::<Interrupted>() => {
            crate::complain("interrupted");
            ExitCode::from(crate::INTERRUPTED)
        }
        // Whoever read our output has seen enough.
        Err(error) if crate::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            crate::complain(&printable(&format!("{error:#}")));
            ExitCode::from(NOT_CHECKED)
        }
    }
}

/// Whether the database is sound.
fn checked(options: &Check) -> Result<bool> {
    interrupt::listen()?;
    let path = Path::new(&options.database);
    let address = options.database.to_str().filter(|text| Address::is_address(text));
    let (outcome, by_server) = match address {
        Some(text) => {
            let variable = |name: &str| std::env::var(name).ok();
            let address = Address::parse(text, &variable, &serve::owner()).map_err(|error| anyhow!(error))?;
            (on_server(&address)?, true)
        }
        None => match on_file(path, options)? {
            Found::Outcome(outcome) => (outcome, false),
            Found::InUse(why) => {
                let Some(address) = sql::server_address(path, &serve::owner()) else {
                    bail!("{why}, and no server has a socket in {:?}", gannet_server::socket_folder(path));
                };
                (on_server(&address).context(why)?, true)
            }
        },
    };
    let cached = if address.is_none() { doctor::cached(path)?["cached_bytes"].take() } else { Value::Null };
    let name = options.database.to_string_lossy();
    let mut out = io::stdout().lock();
    match options.json {
        true => writeln!(out, "{:#}", as_json(&name, by_server, &outcome, &cached))?,
        false => tell(&mut out, &name, by_server, &outcome, &cached)?,
    }
    out.flush()?;
    Ok(outcome.findings.is_empty())
}

// ---- a file ----------------------------------------------------------------------------------------------------------

enum Found {
    Outcome(Outcome),
    /// Another process has it open.
    InUse(String),
}

fn on_file(path: &Path, options: &Check) -> Result<Found> {
    if !path.try_exists().with_context(|| format!("cannot look at {path:?}"))? {
        bail!("{path:?} does not exist");
    }
    let engine = Engine::new(&EngineOptions { memory: options.memory, ..EngineOptions::default() })?;
    let open = OpenOptions { mode: options.io, ..OpenOptions::default() };
    let store = match engine.open(path, &open) {
        Err(gannet_store::Error::InUse(why)) => return Ok(Found::InUse(why)),
        other => other.with_context(|| format!("cannot open {path:?}"))?,
    };
    let mut shown = Shown::default();
    let outcome = check(&store, &mut |progress| {
        shown.say(progress);
        interrupt::check().map_err(|_| Error::new(SqlState::QUERY_CANCELED, "interrupted"))
    });
    drop(shown);
    let closed = store.close();
    interrupt::check()?;
    let outcome = outcome.with_context(|| format!("cannot check {path:?}"))?;
    closed.with_context(|| format!("cannot close {path:?}"))?;
    Ok(Found::Outcome(outcome))
}

// ---- a server --------------------------------------------------------------------------------------------------------

fn on_server(address: &Address) -> Result<Outcome> {
    let mut connection = Connection::open(address, "gannet check").map_err(|failure| match failure {
        Failure::Connection(error)
            if error.kind() == io::ErrorKind::PermissionDenied && address.password.is_none() =>
        {
            anyhow!("{error}; give the password in the address, or as PGPASSWORD")
        }
        failure => anyhow!("cannot connect: {failure}"),
    })?;
    let ended = Arc::new(AtomicBool::new(false));
    let (canceller, ended_too) = (connection.canceller(), Arc::clone(&ended));
    let listener = std::thread::spawn(move || {
        while !ended_too.load(Ordering::Relaxed) {
            if interrupt::check().is_err() {
                // A server that takes no request now is asked again.
                let _ = canceller.cancel();
            }
            std::thread::sleep(LISTEN_EVERY);
        }
    });
    let mut told = Told::default();
    let done = connection.query("CHECK DATABASE VERBOSE", &mut told);
    ended.store(true, Ordering::Relaxed);
    let _ = listener.join();
    interrupt::check()?;
    done.map_err(|failure| anyhow!("the server could not check the database: {failure}"))?;
    let figures = told.figures.context("the server said nothing of what it has checked")?;
    Ok(Outcome { findings: told.findings, figures })
}

/// What a server tells.
#[derive(Default)]
struct Told {
    findings: Vec<Finding>,
    figures: Option<Figures>,
    shown: Shown,
}

impl Receiver for Told {
    fn columns(&mut self, _columns: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, values: &[Option<&str>]) -> io::Result<()> {
        let [object, page, finding, at_stake] = values else {
            return Err(io::Error::other("a finding of another form"));
        };
        let text = |value: &Option<&str>| value.unwrap_or_default().to_owned();
        self.findings.push(Finding {
            object: text(object),
            page: page.and_then(|page| page.parse().ok()),
            finding: text(finding),
            at_stake: text(at_stake),
        });
        Ok(())
    }

    fn complete(&mut self, _tag: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, notice: &Report) {
        let detail = notice.detail.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let Some(mut detail) = detail else { return };
        if let Ok(progress) = serde_json::from_value(detail["progress"].take()) {
            self.shown.say(&progress);
        } else if let Ok(figures) = serde_json::from_value(detail["figures"].take()) {
            self.figures = Some(figures);
        }
    }
}

// ---- what is shown ---------------------------------------------------------------------------------------------------

/// The line of progress: of pages, then of indexes.
#[derive(Default)]
struct Shown {
    pages: Option<Progress>,
    indexes: Option<Progress>,
}

impl Shown {
    fn say(&mut self, progress: &gannet_sql::check::Progress) {
        let share = progress.done as f64 / progress.total.max(1) as f64;
        let findings = match progress.findings {
            0 => String::new(),
            count => format!(", {count} findings"),
        };
        if progress.comparing {
            self.pages = None;
            let line = self.indexes.get_or_insert_with(|| Progress::new("comparing indexes with tables"));
            return line
                .say(Some(share), || format!("{} of {} done{findings}", progress.done, progress.total));
        }
        let line = self.pages.get_or_insert_with(|| Progress::new("checking pages"));
        let rate = progress.done as f64 / line.elapsed().as_secs_f64().max(1e-3);
        line.say(Some(share), || {
            format!("{} at {:.0} MB/s{findings}", format_size(progress.done), rate / 1e6)
        });
    }
}

fn rate(figures: &Figures) -> f64 {
    figures.bytes_read as f64 / figures.pages_seconds.max(1e-6)
}

fn as_json(name: &str, by_server: bool, outcome: &Outcome, cached: &Value) -> Value {
    let findings: Vec<Value> = outcome
        .findings
        .iter()
        .map(|finding| {
            json!({
                "object": finding.object,
                "page": finding.page,
                "finding": finding.finding,
                "at_stake": finding.at_stake,
            })
        })
        .collect();
    json!({
        "database": name,
        "by_server": by_server,
        "sound": outcome.findings.is_empty(),
        "findings": findings,
        "figures": outcome.figures,
        "bytes_per_second": rate(&outcome.figures).round(),
        "cached_bytes": cached,
    })
}

fn tell(out: &mut dyn Write, name: &str, by_server: bool, outcome: &Outcome, cached: &Value) -> Result<()> {
    for finding in &outcome.findings {
        writeln!(out, "{}: {}", printable(&finding.object), printable(&finding.finding))?;
        writeln!(out, "  at stake: {}", printable(&finding.at_stake))?;
    }
    let figures = &outcome.figures;
    let verdict = match outcome.findings.len() {
        0 => "is sound".to_owned(),
        1 => "has 1 finding".to_owned(),
        count => format!("has {count} findings"),
    };
    let place = if by_server { ", checked by its server" } else { "" };
    writeln!(out, "{} {verdict}{place}", printable(name))?;
    writeln!(
        out,
        "  {} pages in use, {} trees, {} entries, {} undo records; {} pages compared with the log",
        figures.pages, figures.trees, figures.entries, figures.undo_records, figures.compared_with_log
    )?;
    writeln!(
        out,
        "  read {} in {:.1} s: {:.0} MB/s",
        format_size(figures.bytes_read),
        figures.pages_seconds,
        rate(figures) / 1e6
    )?;
    writeln!(
        out,
        "  compared {} indexes with their tables: {} rows and entries",
        figures.indexes, figures.compared
    )?;
    write!(out, "  {:.1} s in all", figures.seconds)?;
    match cached.as_u64() {
        Some(bytes) => writeln!(out, "; cached pages left behind: {}", format_size(bytes))?,
        None => writeln!(out)?,
    }
    Ok(())
}
