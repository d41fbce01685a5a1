//! `gannet stat`: statistics of header, transactions, tables and indexes; of a file that nobody has open, of one that a server has open,
//! or of a database at an address.
//!
//! Pages that cannot be read are no failure of the command: they are counted and named, with the advice to run `gannet check`.

pub(crate) mod text;

use crate::arguments::Stat;
use crate::interrupt;
use crate::job::{self, CachedBefore, Place};
use crate::output;
use anyhow::{Context, Result};
use gannet_sql::TableName;
use gannet_sql::stat::{StatRequest, Statistics, statistics};
use gannet_store::{JobKind, JobOrder, JobReport};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Makes statistics, and writes them.
pub(crate) fn run(options: &Stat) -> Result<()> {
    interrupt::listen()?;
    let cached = CachedBefore::look(&options.database);
    let place = Place::find(&options.database, (options.opening, &options.log, options.pacing), "stat")?;
    let by_server = place.is_server();
    let name = job::shown(&options.database);
    let (found, job) = match place {
        Place::File(store) => {
            let request = StatRequest {
                records: options.records,
                table: options.table.as_deref().map(TableName::parse),
            };
            let mut order = JobOrder::new(JobKind::Stat);
            order.about = options.table.clone().unwrap_or_default();
            let done = job::here(store.jobs(), order, |watch| statistics(&store, &request, watch));
            let closed = job::close(store);
            job::behind_closing(done.with_context(|| format!("no statistics of {name:?}")), closed, &name)?
        }
        Place::Beside(mut connection) | Place::Address(mut connection) => {
            let mut told = job::by_server(&mut connection, &statement(options), &mut |_| Ok(()))
                .context("the server gives no statistics")?;
            let found = serde_json::from_value(told.detail["statistics"].take())
                .context("the server's statistics have another form: is it of another release?")?;
            (found, told.job)
        }
    };
    let cached = cached.left_behind();
    let mut out = io::stdout().lock();
    let said = match options.json {
        true => writeln!(out, "{:#}", as_json(&name, by_server, &found, &job, cached)).map_err(Into::into),
        false => {
            text::write(&mut out, &name, by_server, &found).and_then(|()| job::tell(&mut out, &job, cached))
        }
    };
    output::said(said.and_then(|()| Ok(out.flush()?)), "")
}

/// What a server is asked for.
fn statement(options: &Stat) -> String {
    let mut statement = "STAT DATABASE".to_owned();
    if let Some(table) = &options.table {
        statement += &format!(" TABLE {}", TableName::parse(table));
    }
    if options.records {
        statement += " RECORDS";
    }
    statement + " VERBOSE"
}

fn as_json(name: &str, by_server: bool, found: &Statistics, job: &JobReport, cached: Option<u64>) -> Value {
    json!({
        "database": name,
        "by_server": by_server,
        "statistics": found,
        "cached_bytes": cached,
        "job": job::as_json(job, cached),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    #[test]
    fn a_server_is_asked_for_what_the_command_line_says() {
        let asked = |words: &[&str]| {
            let arguments = Arguments::parse_from([&["gannet", "stat", "shop.gnt"], words].concat());
            let Command::Stat(options) = arguments.command else { panic!() };
            statement(&options)
        };
        assert_eq!(asked(&[]), "STAT DATABASE VERBOSE");
        assert_eq!(
            asked(&["--records", "--table", "a \"b\""]),
            "STAT DATABASE TABLE \"a \"\"b\"\"\" RECORDS VERBOSE"
        );
        assert_eq!(asked(&["--table", "public.orders"]), "STAT DATABASE TABLE \"public\".\"orders\" VERBOSE");
    }
}
