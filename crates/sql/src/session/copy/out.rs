//! COPY TO.

use super::format::{CopyOptions, Header, Line};
use super::{read_options, tell_of_freeze};
use crate::bind::Parsed;
use crate::bind::utility::CopyOption;
use crate::session::client::{Client, CommandTag, CopyFormat};
use crate::session::{Notice, OutputColumn, Session};
use crate::types::Value;
use crate::types::text::{self, TextStyle};
use crate::{Error, Result, SqlState};
use gannet_base::memory::Purpose;
use gannet_store::Engine;
use std::sync::Arc;

/// Bytes of a value's text that are kept for the next one.
const KEPT_BYTES: usize = 64 << 10;
/// Bytes of a text that is made of a value from which on it is charged to the memory budget as long as it is there.
const LARGE_TEXT: usize = 256 << 10;

/// Sends the rows of a query, and gives how many there were.
pub(super) fn copy_out(
    session: &mut Session,
    query: &Parsed,
    options: &[CopyOption],
    client: &mut dyn Client,
) -> Result<u64> {
    let prepared = session.plan_closed(&Arc::new(query.clone()))?;
    let Some(columns) = prepared.columns.clone() else {
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "COPY query must have a RETURNING clause"));
    };
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let options = read_options(options, &names, false)?;
    tell_of_freeze(session, &options);
    let mut running = session.start(&prepared, Vec::new(), false)?;
    client.copy_out(&CopyFormat { columns: columns.len() })?;
    let engine = session.state.engine.clone();
    let mut out = Out { client, engine, options: &options, data: Vec::new(), text: String::new(), rows: 0 };
    if options.header != Header::No {
        // What is said of columns' values is not said of their names.
        let plain = CopyOptions { force_quote: Vec::new(), ..options.clone() };
        let mut line = Line::new(&plain, names.len(), &mut out.data);
        names.iter().for_each(|name| line.field(Some(name)));
        line.end();
        out.send()?;
    }
    session.advance(&mut running, 0, &mut out)?;
    let rows = out.rows;
    client.copy_out_end()?;
    Ok(rows)
}

/// A client that makes COPY data of rows, for the real one.
struct Out<'a> {
    client: &'a mut dyn Client,
    engine: Engine,
    options: &'a CopyOptions,
    data: Vec<u8>,
    /// Of a value, where it is not text itself.
    text: String,
    rows: u64,
}

impl Out<'_> {
    /// Gives the line to the client. Drivers rely on one line a message, as PostgreSQL sends them.
    fn send(&mut self) -> Result<()> {
        self.client.copy_write(&self.data)?;
        self.data.clear();
        Ok(())
    }
}

impl Client for Out<'_> {
    fn columns(&mut self, _columns: &[OutputColumn], _style: &TextStyle) -> Result<()> {
        Ok(())
    }

    fn row(&mut self, values: &[Value], columns: &[OutputColumn], style: &TextStyle) -> Result<()> {
        let mut line = Line::new(self.options, columns.len(), &mut self.data);
        let mut charged = Vec::new();
        for (value, column) in values.iter().zip(columns) {
            match value {
                Value::Null => line.field(None),
                Value::Text(text) | Value::Padded(text) => line.field(Some(text)),
                other => {
                    if other.heap_bytes() > 0 {
                        let size = text::text_size(other, column.ty, style);
                        if size.text > LARGE_TEXT {
                            // The text, what is made for it, its part of the line, and of the message.
                            let bytes = (size.all() + 2 * size.text) as u64;
                            charged.push(self.engine.memory(Purpose::Work, bytes)?);
                        }
                    }
                    self.text.clear();
                    text::write(other, column.ty, style, &mut self.text);
                    line.field(Some(&self.text));
                }
            }
        }
        line.end();
        if self.text.capacity() > KEPT_BYTES {
            self.text = String::new();
        }
        self.rows += 1;
        self.send()?;
        if !charged.is_empty() {
            self.data = Vec::new();
        }
        Ok(())
    }

    fn complete(&mut self, _tag: &CommandTag) -> Result<()> {
        Ok(())
    }

    fn empty(&mut self) -> Result<()> {
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) {
        self.client.notice(notice);
    }

    fn setting_changed(&mut self, name: &str, value: &str) {
        self.client.setting_changed(name, value);
    }

    fn copy_in(&mut self, _format: &CopyFormat) -> Result<()> {
        Err(Error::internal("COPY within COPY"))
    }

    fn copy_read(&mut self, _data: &mut Vec<u8>) -> Result<bool> {
        Err(Error::internal("COPY within COPY"))
    }

    fn copy_out(&mut self, _format: &CopyFormat) -> Result<()> {
        Err(Error::internal("COPY within COPY"))
    }

    fn copy_write(&mut self, _data: &[u8]) -> Result<()> {
        Err(Error::internal("COPY within COPY"))
    }

    fn copy_out_end(&mut self) -> Result<()> {
        Err(Error::internal("COPY within COPY"))
    }
}
