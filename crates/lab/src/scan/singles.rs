//! The readers' test: single rows inserted, selected, updated and deleted, each by a statement, and a transaction, of its own, durable when it returns.

use super::{Base, Rows, TABLE};
use crate::histogram::Histogram;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Inserts, selects, updates and deletes so many rows in a new database, by one connection.
///
/// # Errors
/// The database's; or a row is not as it was written; or `stop` was set.
pub fn singles(base: &dyn Base, rows: &Rows, stop: &AtomicBool) -> Result<Value> {
    let mut session = base.session()?;
    session.batch(TABLE)?;
    let mut phases = Vec::new();
    for phase in ["insert", "select", "update", "select again", "delete"] {
        let (began, mut latency) = (Instant::now(), Histogram::default());
        if phase.starts_with("select") {
            let (mut count, mut sum) = (0, 0);
            session.run("select k, tag, v from rows", &mut |_, tag, _| {
                (count, sum) = (count + 1, sum + tag);
                true
            })?;
            let added = if phase == "select" { 0 } else { rows.count as i64 };
            if count != rows.count || sum != (rows.count as i64 - 1) * rows.count as i64 / 2 + added {
                bail!("{phase}: {count} rows with a sum of {sum} are not what was written");
            }
        } else {
            for k in 0..rows.count {
                if stop.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                let statement = match phase {
                    "insert" => {
                        format!("insert into rows values ({k}, {}, '{}')", rows.tag(k), Rows::value(k))
                    }
                    "update" => format!("update rows set tag = tag + 1 where k = {k}"),
                    _ => format!("delete from rows where k = {k}"),
                };
                let begun = Instant::now();
                session.batch(&statement)?;
                latency.record(begun.elapsed(), 1);
            }
        }
        phases.push(json!({
            "phase": phase,
            "seconds": began.elapsed().as_secs_f64(),
            "latency_us": latency.to_json(),
        }));
    }
    let mut left = 0;
    session.run("select k, tag, v from rows", &mut |_, _, _| {
        left += 1;
        true
    })?;
    if left > 0 {
        bail!("{left} rows are left that were deleted");
    }
    let seconds: f64 = phases.iter().filter_map(|phase| phase["seconds"].as_f64()).sum();
    Ok(json!({
        "database": base.name(),
        "settings": base.settings()?,
        "rows": rows.count,
        "seconds": seconds,
        "phases": phases,
        "group": base.group(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::embedded::Embedded;
    use gannet_io::ModeRequest;

    #[test]
    fn rows_come_go_and_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let base = Embedded::open(&folder.path().join("db"), 96 << 20, ModeRequest::Auto, true).unwrap();
        let outcome = singles(&base, &Rows::new(50, 1), &AtomicBool::new(false)).unwrap();
        assert_eq!(outcome["phases"].as_array().map(Vec::len), Some(5));
        assert_eq!(outcome["phases"][0]["latency_us"]["count"], 50);
    }
}
