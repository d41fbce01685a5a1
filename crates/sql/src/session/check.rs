//! CHECK DATABASE: findings as rows; with VERBOSE, how far it has come and what was looked at as INFO messages, whose detail is JSON.

use super::Session;
use super::client::{Client, CommandTag, Notice, OutputColumn};
use super::utility::give;
use crate::check::{Progress, check};
use crate::types::NO_MODIFIER;
use crate::{Error, Result, SqlState, Type, Value};
use gannet_base::clock;
use serde_json::json;
use std::time::Duration;

/// How often a client is told of the progress.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The columns of the result.
pub(super) fn columns() -> Vec<OutputColumn> {
    let column = |(name, ty): (&str, Type)| OutputColumn {
        name: name.to_owned(),
        ty,
        modifier: NO_MODIFIER,
        origin: None,
    };
    let text = |name| (name, Type::Text);
    [text("object"), ("page", Type::Int8), text("finding"), text("at_stake")].map(column).to_vec()
}

impl Session {
    pub(super) fn check_database(
        &mut self,
        verbose: bool,
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        if !self.is_superuser() {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "must be superuser to do CHECK DATABASE",
            ));
        }
        if !alone || self.transaction.as_ref().is_some_and(|open| open.explicit) {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "CHECK DATABASE cannot run inside a transaction block",
            ));
        }
        // It takes views of its own.
        self.rollback()?;
        let (interrupt, database) = (self.interrupt(), self.database.clone());
        let mut told = clock::now();
        let outcome = check(database.store(), &mut |progress| {
            interrupt.check()?;
            if verbose && told.elapsed() >= TELL_EVERY {
                told = clock::now();
                client.notice(&info(message(progress), &json!({ "progress": progress })));
            }
            Ok(())
        })?;
        let columns = columns();
        let row = |finding: &crate::check::Finding| {
            let page = finding.page.map_or(Value::Null, |page| Value::Int(page.cast_signed()));
            vec![
                Value::text(&finding.object),
                page,
                Value::text(&finding.finding),
                Value::text(&finding.at_stake),
            ]
        };
        let rows: Vec<Vec<Value>> = outcome.findings.iter().map(row).collect();
        give(&columns, &rows, self, client)?;
        if verbose {
            let figures = &outcome.figures;
            let message = format!(
                "{} pages in use, {} indexes compared, {} findings in {:.1} s",
                figures.pages, figures.indexes, figures.findings, figures.seconds
            );
            client.notice(&info(message, &json!({ "figures": figures })));
        }
        Ok(CommandTag { command: "CHECK DATABASE", rows: Some(outcome.findings.len() as u64) })
    }
}

fn message(progress: &Progress) -> String {
    let Progress { comparing, done, total, findings } = *progress;
    let what = if comparing { "tables and indexes compared" } else { "bytes of the file checked" };
    format!("{done} of {total} {what}, {findings} findings")
}

fn info(message: String, detail: &serde_json::Value) -> Notice {
    Notice {
        severity: "INFO",
        error: Error::new(SqlState::SUCCESSFUL_COMPLETION, message).detail(detail.to_string()),
    }
}
