//! A load by statements of its own, one after the other: into servers that do not load by themselves, or not for everybody.

use anyhow::anyhow;
use gannet_server::frontend::{Column, Connection, Failure, Receiver, Report};
use gannet_sql::load::{Destination, More};
use gannet_sql::session::TransactionStatus;
use gannet_sql::{Error, SqlState};
use std::io;

/// A server that is given statements.
pub(super) struct Remote(pub(super) Connection);

impl Destination for Remote {
    fn run(&mut self, sql: &str) -> gannet_sql::Result<()> {
        self.0.query(sql, &mut Sender { more: None, rows: 0, failure: None }).map_err(failure)
    }

    fn copy(&mut self, sql: &str, more: More<'_>) -> gannet_sql::Result<u64> {
        let mut sender = Sender { more: Some(more), rows: 0, failure: None };
        let done = self.0.query(sql, &mut sender);
        match sender.failure {
            Some(error) => Err(error),
            None => done.map(|()| sender.rows).map_err(failure),
        }
    }

    fn is_idle(&self) -> bool {
        self.0.status() == TransactionStatus::Idle
    }
}

/// What the server says, as far as it knows the state; whether the load can go on is a matter of its class.
fn failure(failure: Failure) -> Error {
    match failure {
        Failure::Server(report) => {
            let state = SqlState::of(&report.state).unwrap_or(SqlState::INTERNAL_ERROR);
            let mut error = Error::new(state, report.message.clone());
            if let Some(detail) = report.detail.clone() {
                error = error.detail(detail);
            }
            if let Some(context) = report.context.clone() {
                error = error.context(context);
            }
            error
        }
        other => Error::new(SqlState::IO_ERROR, anyhow!("{other}").to_string()),
    }
}

struct Sender<'m> {
    more: Option<More<'m>>,
    rows: u64,
    failure: Option<Error>,
}

impl Receiver for Sender<'_> {
    fn columns(&mut self, _columns: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _values: &[Option<&str>]) -> io::Result<()> {
        Ok(())
    }

    fn complete(&mut self, tag: &str) -> io::Result<()> {
        self.rows = tag.rsplit(' ').next().and_then(|rows| rows.parse().ok()).unwrap_or(0);
        Ok(())
    }

    fn notice(&mut self, _notice: &Report) {}

    fn copy_in(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> io::Result<bool> {
        let Some(more) = &mut self.more else { return Ok(false) };
        more(data).map_err(|error| {
            let told = io::Error::other(error.to_string());
            self.failure = Some(error);
            told
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_at_the_server_is_no_bad_row() {
        let state = |code: &str| {
            let report = Report { state: code.to_owned(), ..Report::default() };
            failure(Failure::Server(Box::new(report))).state()
        };
        assert_eq!(state("53100"), SqlState::DISK_FULL);
        assert_eq!(state("23505"), SqlState::UNIQUE_VIOLATION);
        // Those that are not known have a class.
        assert!(state("53400").0.starts_with("53"));
        assert!(state("22P06").0.starts_with("22"));
        assert_eq!(state("?"), SqlState::INTERNAL_ERROR);
    }
}
