//! What a running server says of itself: settings, memory, forecasts, alarms, files.

use super::{Remarks, Weight};
use anyhow::{Result, anyhow};
use gannet_server::frontend::{Column, Connection, Receiver, Report};
use serde_json::{Map, Value, json};
use std::io;

/// Rows of a query, each by its columns' names.
#[derive(Default)]
struct Taken {
    columns: Vec<(String, u32)>,
    rows: Vec<Value>,
}

/// Numbers of types whose text is a number in JSON: int8, int2, int4, float8.
const NUMBERS: [u32; 4] = [20, 21, 23, 701];

impl Receiver for Taken {
    fn columns(&mut self, columns: &[Column]) -> io::Result<()> {
        self.columns = columns.iter().map(|column| (column.name.clone(), column.type_oid)).collect();
        Ok(())
    }

    fn row(&mut self, values: &[Option<&str>]) -> io::Result<()> {
        let mut row = Map::new();
        for ((name, type_oid), value) in self.columns.iter().zip(values) {
            let value = match value {
                None => Value::Null,
                Some(text) if NUMBERS.contains(type_oid) => {
                    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
                }
                Some(text) => json!(text),
            };
            row.insert(name.clone(), value);
        }
        self.rows.push(Value::Object(row));
        Ok(())
    }

    fn complete(&mut self, _tag: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _notice: &Report) {}
}

fn ask(connection: &mut Connection, sql: &str) -> Result<Vec<Value>> {
    let mut taken = Taken::default();
    connection.query(sql, &mut taken).map_err(|failure| anyhow!("the server does not say: {failure}"))?;
    Ok(taken.rows)
}

/// Asks a server what it says of itself. Its alarms are remarks.
pub(super) fn look(connection: &mut Connection, remarks: &mut Remarks) -> Result<Value> {
    let mut of = |sql: &str| ask(connection, sql);
    // Settings of sessions are those of this very session.
    let settings = of("select name, requested, effective, source, reason from gannet_settings \
                       where reason is null or reason not in (select short_desc from pg_settings) order by name")?;
    let memory = of("select used_bytes, peak_bytes, limit_bytes from gannet_memory where purpose = 'total'")?;
    let forecasts =
        of("select name, detail, bytes, limit_bytes, bytes_per_second, seconds_left, looked_seconds \
                        from gannet_forecasts order by name")?;
    let alarms = of(
        "select name, severity, since::text as since, what, figure, threshold, unit, advice from gannet_alarms",
    )?;
    let archive = of(
        "select destination, state, archived_lsn, archived_until::text as archived_until, behind_bytes, behind_seconds, error, \
            gap_from, gap_to from gannet_archive",
    )?;
    let holders =
        of("select kind, pid, age_seconds, held_bytes, alone_bytes, limit_seconds from gannet_snapshots \
                      where held_bytes > 0 order by age_seconds desc limit 10")?;
    let files = of("select path, bytes, os_cached_bytes, mode, reason from gannet_files")?;
    // That is an alarm of the data file's, and says it of all.
    if !alarms.iter().any(|alarm| alarm["name"] == "io") {
        super::note_buffered(&files, remarks);
    }
    for alarm in &alarms {
        let text = |name: &str| alarm[name].as_str().unwrap_or_default().to_owned();
        let weight = if alarm["severity"] == "critical" { Weight::Critical } else { Weight::Warning };
        remarks.add(weight, format!("{}: {}; {}", text("name"), text("what"), text("advice")));
    }
    Ok(json!({
        "alarms": alarms,
        "archive": archive.first(),
        "forecasts": forecasts,
        "holders_of_garbage": holders,
        "memory": memory.first(),
        "settings": settings,
        "files": files,
    }))
}
