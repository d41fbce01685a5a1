//! What a running server says of itself: settings, memory, forecasts, alarms, files.

use super::{Remarks, Weight};
use crate::job;
use anyhow::{Result, anyhow};
use gannet_io::{Memory, Pressure};
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
    job::unless_interrupted(connection, |connection| connection.query(sql, &mut taken))?
        .map_err(|failure| anyhow!("the server does not say: {failure}"))?;
    Ok(taken.rows)
}

/// What a row of `gannet_machine` says.
fn machine_of(row: &Value) -> (Memory, Pressure) {
    let bytes = |name: &str| row[name].as_u64();
    let stalls = |of: &str| {
        let share = |whose: &str| row[format!("{of}_{whose}_percent")].as_f64();
        share("some").zip(share("full"))
    };
    let memory = Memory {
        total: bytes("memory_bytes"),
        available: bytes("available_bytes"),
        swap_total: bytes("swap_bytes"),
        swap_free: bytes("swap_free_bytes"),
        cgroup_limit: bytes("cgroup_limit_bytes"),
        cgroup_used: bytes("cgroup_used_bytes"),
        cgroup_cached: bytes("cgroup_cached_bytes"),
        // The view tells of the tightest group only.
        cgroup_least: None,
        cgroup_swap_limit: bytes("cgroup_swap_limit_bytes"),
    };
    let pressure = Pressure {
        memory: stalls("memory"),
        io: stalls("io"),
        swapped_bytes: bytes("swapped_bytes"),
        swappiness: bytes("swappiness"),
    };
    (memory, pressure)
}

/// What a server sees of its machine and its control group: a row of `gannet_machine`; `None` where it does not say.
pub(super) fn machine(connection: &mut Connection) -> Option<Value> {
    ask(connection, "select * from gannet_machine").ok()?.into_iter().next()
}

/// Asks a server what it says of itself; `machine` is what it sees of that. Its alarms are remarks.
pub(super) fn look(
    connection: &mut Connection,
    machine: Option<Value>,
    remarks: &mut Remarks,
) -> Result<Value> {
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
    if let Some(machine) = &machine {
        let (group, mut pressure) = machine_of(machine);
        // Of these there are alarms.
        pressure.memory = None;
        super::machine::note_machine(&group, &pressure, remarks);
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
        "machine": machine,
        "memory": memory.first(),
        "settings": settings,
        "files": files,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_machine_is_read_from_its_view() {
        let row = json!({
            "memory_bytes": 2000, "available_bytes": 900, "swap_bytes": 0, "swap_free_bytes": 0, "cgroup_limit_bytes": 1000,
            "cgroup_used_bytes": 950, "cgroup_cached_bytes": null, "cgroup_swap_limit_bytes": null, "memory_some_percent": 1.5,
            "memory_full_percent": 0.5, "io_some_percent": 3, "io_full_percent": null, "swapped_bytes": 0, "swappiness": 60,
        });
        let (memory, pressure) = machine_of(&row);
        assert_eq!((memory.limit(), memory.cgroup_used, memory.cgroup_cached), (Some(1000), Some(950), None));
        assert_eq!((pressure.memory, pressure.io, pressure.swappiness), (Some((1.5, 0.5)), None, Some(60)));
        let mut remarks = Remarks::default();
        super::super::machine::note_machine(&memory, &pressure, &mut remarks);
        let [(Weight::Warning, remark)] = &remarks.0[..] else { panic!("{:?}", remarks.0) };
        assert!(remark.contains("the control group uses"), "{remark}");
    }
}
