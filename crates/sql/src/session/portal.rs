//! Portals of the extended protocol: bound, and run piece by piece.

use super::client::{Client, CommandTag, CopyFormat, Notice, OutputColumn};
use super::prepared::{Formats, Made, Parameters, Portal, Prepared, Progress};
use super::transaction::{self, Open};
use super::{Execution, Session, Standing, TransactionStatus, utility};
use crate::types::text::TextStyle;
use crate::{Error, Result, SqlState, Value};
use std::collections::VecDeque;
use std::sync::Arc;

impl Session {
    /// Whether a portal can be made of a prepared statement, whose name errors tell, with so many values, before these are read: their number is
    /// right, the transaction has not failed, and the portal's name is free.
    pub fn may_bind(&self, portal: &str, statement: &str, prepared: &Prepared, values: usize) -> Result<()> {
        if values != prepared.parameters.len() {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {values} parameters, but prepared statement \"{statement}\" requires {}",
                    prepared.parameters.len()
                ),
            ));
        }
        // No values are read where definitions cannot be.
        let ends = prepared.parsed.as_ref().is_some_and(|parsed| utility::ends_transaction(parsed));
        if self.status() == TransactionStatus::Failed && (!ends || values > 0) {
            return Err(transaction::failed());
        }
        if !portal.is_empty() && self.portals.contains(portal) {
            return Err(Error::new(
                SqlState::DUPLICATE_CURSOR,
                format!("cursor \"{portal}\" already exists"),
            ));
        }
        Ok(())
    }

    /// Makes a portal of a prepared statement, whose name errors tell, values for its parameters, and the formats that its columns are to be
    /// given in. Portal "" is replaced silently.
    pub fn bind(
        &mut self,
        portal: &str,
        statement: &str,
        prepared: Arc<Prepared>,
        parameters: Vec<Value>,
        formats: Formats,
    ) -> Result<()> {
        self.extended("", |session| {
            session.may_bind(portal, statement, &prepared, parameters.len())?;
            let savepoints = session.transaction.as_ref().map_or(0, Open::savepoints);
            let progress = Progress::Ready;
            let made = Portal { prepared, parameters, formats, progress, savepoints, waiting_bytes: 0 };
            session.portals.put(&session.state.engine, portal, made)
        })
    }

    fn no_portal(name: &str) -> Error {
        Error::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
    }

    /// The columns of a portal; `None` where it gives no rows.
    pub fn portal_columns(&self, portal: &str) -> Result<Option<&[OutputColumn]>> {
        let portal = self.portals.get(portal).ok_or_else(|| Self::no_portal(portal))?;
        Ok(portal.prepared.columns())
    }

    /// The formats that a portal's columns are to be given in.
    pub fn portal_formats(&self, portal: &str) -> Formats {
        self.portals.get(portal).map(|portal| portal.formats.clone()).unwrap_or_default()
    }

    /// Runs a portal, or goes on with it, for at most `limit` rows (0: all).
    pub fn execute(&mut self, portal: &str, limit: u64, client: &mut dyn Client) -> Result<Execution> {
        let alarm = {
            let found = self.portals.get(portal).ok_or_else(|| Self::no_portal(portal))?;
            let prepared = Arc::clone(&found.prepared);
            self.begin_planned(&prepared)
        };
        self.fetch_wanted();
        let mut execution = Execution::Complete;
        let done = self.execute_portal(portal, limit, client).map(|end| execution = end);
        let has_failed = |portal: &Portal| matches!(portal.progress, Progress::Done(None));
        if done.is_err() && self.portals.get(portal).is_some_and(has_failed) {
            // It has failed itself: nobody is to take what it has not given for its end.
            self.portals.remove(portal);
        }
        self.pause_work(alarm, done, client).map(|()| execution)
    }

    fn execute_portal(&mut self, name: &str, limit: u64, client: &mut dyn Client) -> Result<Execution> {
        let prepared = match self.portals.get(name) {
            Some(portal) => Arc::clone(&portal.prepared),
            None => return Err(Self::no_portal(name)),
        };
        let Some(parsed) = &prepared.parsed else {
            client.empty()?;
            return Ok(Execution::Complete);
        };
        self.refuse_in_failed(parsed)?;
        let portal = self.portals.get_mut(name).ok_or_else(|| Self::no_portal(name))?;
        let progress = std::mem::replace(&mut portal.progress, Progress::Done(None));
        let parsed = Arc::clone(parsed);
        let mut running = match progress {
            Progress::Done(None) => {
                return Err(Error::new(
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("portal \"{name}\" cannot be run"),
                ));
            }
            Progress::Done(Some(tag)) => {
                // As in PostgreSQL, a portal at its end gives no more rows.
                client.complete(&tag)?;
                return Ok(self.end_portal(name, &tag));
            }
            Progress::Running(running) => *running,
            Progress::Made(made) => return self.give_made(name, made, limit, client),
            Progress::Ready => {
                let values = std::mem::take(&mut portal.parameters);
                let mut running = if let Some(running) = self.start_executed(&parsed)? {
                    running
                } else if prepared.plan.is_none() {
                    let parameters = Parameters { types: &prepared.parameters, values: &values };
                    if limit > 0 && prepared.columns.is_some() {
                        let mut maker = Maker { client, columns: Vec::new(), rows: VecDeque::new() };
                        let done = self.utility(&parsed, parameters, Standing::InSeries, &mut maker)?;
                        let Maker { columns, rows, .. } = maker;
                        let tag = done.ok_or_else(|| Error::internal("a utility without an end"))?;
                        return self.give_made(name, Made { columns, rows, tag }, limit, client);
                    }
                    let done = self.utility(&parsed, parameters, Standing::InSeries, client)?;
                    let tag = done.ok_or_else(|| {
                        Error::internal("a statement that is neither planned nor a utility")
                    })?;
                    return Ok(self.end_portal(name, &tag));
                } else {
                    self.ensure_transaction()?;
                    if let Some(rows) = self.select_point(&prepared, &values, false, client)? {
                        return self.end_point(name, rows, limit, client);
                    }
                    self.start(&prepared, values, false)?
                };
                if limit > 0 {
                    self.settle(&mut running)?;
                }
                running
            }
        };
        if !self.advance(&mut running, limit, client)? {
            running.wait();
            if let Some(portal) = self.portals.get_mut(name) {
                portal.progress = Progress::Running(Box::new(running));
            }
            self.charge_waiting(name)?;
            self.tell(client);
            return Ok(Execution::Suspended);
        }
        let tag = running.tag();
        self.complete(&tag, client)?;
        Ok(self.end_portal(name, &tag))
    }

    /// Gives rows that are there, so many at most.
    fn give_made(
        &mut self,
        name: &str,
        mut made: Made,
        limit: u64,
        client: &mut dyn Client,
    ) -> Result<Execution> {
        // A job ends its transaction, and that its portals: nobody could go on with it.
        let limit = if self.portals.contains(name) { limit } else { 0 };
        let most = if limit == 0 { made.rows.len() } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        let now = most.min(made.rows.len());
        for row in made.rows.drain(..now) {
            client.row(&row, &made.columns, &self.state.style)?;
        }
        if limit > 0 && now == most {
            if let Some(portal) = self.portals.get_mut(name) {
                portal.progress = Progress::Made(made);
            }
            self.charge_waiting(name)?;
            self.tell(client);
            return Ok(Execution::Suspended);
        }
        self.complete(&made.tag, client)?;
        Ok(self.end_portal(name, &made.tag))
    }

    /// The short way has given a portal's rows, one at most. Whether there are more is not asked where that is as many as are wanted.
    fn end_point(&mut self, name: &str, rows: u64, limit: u64, client: &mut dyn Client) -> Result<Execution> {
        let tag = CommandTag { command: "SELECT", rows: Some(rows) };
        if limit > 0 && rows >= limit {
            self.end_portal(name, &tag);
            self.tell(client);
            return Ok(Execution::Suspended);
        }
        self.complete(&tag, client)?;
        Ok(self.end_portal(name, &tag))
    }

    /// Notes how a portal has ended, where its end was not that of its transaction, too.
    fn end_portal(&mut self, name: &str, tag: &CommandTag) -> Execution {
        if let Some(portal) = self.portals.get_mut(name) {
            portal.end(tag);
            self.portals.release_waiting(name);
        }
        Execution::Complete
    }

    /// Charges a portal as what it keeps while it waits; where there is no memory for that, there is no such portal any more.
    fn charge_waiting(&mut self, name: &str) -> Result<()> {
        let charged = self.portals.charge_waiting(&self.state.engine, name);
        if charged.is_err() {
            self.portals.remove(name);
        }
        charged
    }

    /// Forgets a portal; nothing happens when there is none.
    pub fn close_portal(&mut self, portal: &str) {
        self.portals.remove(portal);
        self.prepared.settle(&self.portals);
    }

    pub(super) fn close_portals(&mut self) {
        self.portals.clear();
        self.prepared.settle(&self.portals);
    }
}

/// Keeps the rows of a statement that makes all of them at once, for a client that takes some at a time. The end is told with the last of them.
struct Maker<'c> {
    client: &'c mut dyn Client,
    columns: Vec<OutputColumn>,
    rows: VecDeque<Vec<Value>>,
}

impl Client for Maker<'_> {
    fn columns(&mut self, columns: &[OutputColumn], style: &TextStyle) -> Result<()> {
        self.columns = columns.to_vec();
        self.client.columns(columns, style)
    }

    fn row(&mut self, values: &[Value], _columns: &[OutputColumn], _style: &TextStyle) -> Result<()> {
        self.rows.push_back(values.to_vec());
        Ok(())
    }

    fn complete(&mut self, _tag: &CommandTag) -> Result<()> {
        Ok(())
    }

    fn empty(&mut self) -> Result<()> {
        self.client.empty()
    }

    fn notice(&mut self, notice: &Notice) {
        self.client.notice(notice);
    }

    fn progress(&mut self, notice: &Notice) {
        self.client.progress(notice);
    }

    fn setting_changed(&mut self, name: &str, value: &str) {
        self.client.setting_changed(name, value);
    }

    fn copy_in(&mut self, format: &CopyFormat) -> Result<()> {
        self.client.copy_in(format)
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> Result<bool> {
        self.client.copy_read(data)
    }

    fn copy_out(&mut self, format: &CopyFormat) -> Result<()> {
        self.client.copy_out(format)
    }

    fn copy_write(&mut self, data: &[u8]) -> Result<()> {
        self.client.copy_write(data)
    }

    fn copy_out_end(&mut self) -> Result<()> {
        self.client.copy_out_end()
    }
}
