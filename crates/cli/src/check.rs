//! `gannet check`: whether a database is sound; on a file that nobody has open, on one that a server has open, or at an address.
//!
//! # Exit status
//! 0: sound. 1: there are findings; a table that was not compared with its indexes is one. 2: it could not be checked. 130: stopped by Ctrl-C.

use crate::arguments::Check;
use crate::interrupt::{self, Interrupted};
use crate::job::{self, CachedBefore, Place};
use crate::output::{self, printable};
use anyhow::{Context, Result};
use gannet_base::units::format_size;
use gannet_sql::check::{Figures, Finding, Outcome, check};
use gannet_store::{JobKind, JobOrder, JobReport};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;

const FOUND: u8 = 1;
const NOT_CHECKED: u8 = 2;

/// Checks; what goes wrong has been told when it returns.
pub(crate) fn run(options: &Check) -> ExitCode {
    match checked(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FOUND),
        Err(error) if error.is::<Interrupted>() => {
            crate::complain("interrupted");
            ExitCode::from(crate::INTERRUPTED)
        }
        Err(error) => {
            crate::complain(&printable(&format!("{error:#}")));
            ExitCode::from(NOT_CHECKED)
        }
    }
}

/// Whether the database is sound.
fn checked(options: &Check) -> Result<bool> {
    interrupt::listen()?;
    let cached = CachedBefore::look(&options.database);
    let place = Place::find(&options.database, (options.opening, &options.log, options.pacing), "check")?;
    let by_server = place.is_server();
    let name = job::shown(&options.database);
    let (outcome, job) = match place {
        Place::File(store) => {
            let done =
                job::here(store.jobs(), JobOrder::new(JobKind::Check), |watch| check(&store, None, watch));
            let closed = job::close(store);
            job::behind_closing(done.with_context(|| format!("cannot check {name:?}")), closed, &name)?
        }
        Place::Beside(mut connection) | Place::Address(mut connection) => {
            let mut findings = Vec::new();
            let mut take = |values: &[Option<&str>]| {
                findings.push(finding(values)?);
                Ok(())
            };
            let mut told = job::by_server(&mut connection, "CHECK DATABASE VERBOSE", &mut take)
                .context("the server could not check the database")?;
            let figures = serde_json::from_value(told.detail["figures"].take())
                .context("the server said nothing of what it has checked")?;
            (Outcome { findings, figures }, told.job)
        }
    };
    let cached = cached.left_behind();
    let mut out = io::stdout().lock();
    let told = match options.json {
        true => writeln!(out, "{:#}", as_json(&name, by_server, &outcome, &job, cached)).map_err(Into::into),
        false => tell(&mut out, &name, by_server, &outcome, &job, cached),
    };
    let found = format!("the check is done: {name} {}", verdict(&outcome));
    crate::unless_broken_pipe(output::said(told.and_then(|()| Ok(out.flush()?)), &found))?;
    Ok(outcome.findings.is_empty())
}

/// A row of what a server has found.
fn finding(values: &[Option<&str>]) -> io::Result<Finding> {
    let [object, page, finding, at_stake] = values else {
        return Err(io::Error::other("a finding of another form"));
    };
    let text = |value: &Option<&str>| value.unwrap_or_default().to_owned();
    Ok(Finding {
        object: text(object),
        page: page.and_then(|page| page.parse().ok()),
        finding: text(finding),
        at_stake: text(at_stake),
    })
}

fn rate(figures: &Figures) -> f64 {
    figures.bytes_read as f64 / figures.pages_seconds.max(1e-6)
}

fn verdict(outcome: &Outcome) -> String {
    match outcome.findings.len() {
        0 => "is sound".to_owned(),
        1 => "has 1 finding".to_owned(),
        count => format!("has {count} findings"),
    }
}

fn as_json(name: &str, by_server: bool, outcome: &Outcome, job: &JobReport, cached: Option<u64>) -> Value {
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
        "job": job::as_json(job, cached),
    })
}

fn tell(
    out: &mut dyn Write,
    name: &str,
    by_server: bool,
    outcome: &Outcome,
    job: &JobReport,
    cached: Option<u64>,
) -> Result<()> {
    for finding in &outcome.findings {
        writeln!(out, "{}: {}", printable(&finding.object), printable(&finding.finding))?;
        writeln!(out, "  at stake: {}", printable(&finding.at_stake))?;
    }
    let figures = &outcome.figures;
    let place = if by_server { ", checked by its server" } else { "" };
    writeln!(out, "{} {}{place}", printable(name), verdict(outcome))?;
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
    job::tell(out, job, cached)
}
