//! A database that outgrows the memory while somebody is connected, and two databases of one server that share it.

use super::served::Served;
use super::{Base, INDEX, Rows, TABLE, watch};
use crate::histogram::Histogram;
use crate::random::Random;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rows of a transaction.
const ROWS_AT_ONCE: u64 = 500;
/// Look-ups by key after each part.
const LOOKUPS: u64 = 200;

/// Inserts rows by one connection, which stays, until there are so many or the time is over; after each of `parts` parts it looks random ones up.
///
/// # Errors
/// The server's; or a row is not there; or `stop` was set.
pub fn grow(
    base: &dyn Base,
    rows: &Rows,
    parts: u64,
    most: Duration,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Value> {
    let mut session = base.session()?;
    session.batch(TABLE)?;
    session.batch(INDEX)?;
    let (began, mut done, mut random) = (Instant::now(), 0, Random::new(seed));
    let mut points = Vec::new();
    let mut inserting = Duration::ZERO;
    for part in 1..=parts {
        let (until, begun, before) = (rows.count * part / parts, Instant::now(), done);
        while done < until {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            let end = (done + ROWS_AT_ONCE).min(until);
            session.insert(rows, done..end)?;
            done = end;
        }
        let seconds = begun.elapsed();
        inserting += seconds;
        let mut latency = Histogram::default();
        for _ in 0..LOOKUPS {
            let (k, mut found) = (random.below(done), 0);
            let begun = Instant::now();
            session.run(&format!("select k, tag, v from rows where k = {k}"), &mut |_, tag, _| {
                found += u64::from(tag as u64 == rows.tag(k));
                true
            })?;
            latency.record(begun.elapsed(), 1);
            if found != 1 {
                bail!("row {k} was inserted and is not there");
            }
        }
        let seen = watch::look(base, began);
        points.push(json!({
            "rows": done,
            "size_bytes": watch::size(&base.data()),
            "rows_per_second": (done - before) as f64 / seconds.as_secs_f64(),
            "lookup_us_mean": latency.to_json()["mean"],
            "lookup_us_p99": latency.quantile_us(0.99),
            "resident_bytes": seen.resident,
            "group_cached_bytes": seen.group_cached,
            "files_cached_bytes": seen.files_cached,
        }));
        if began.elapsed() > most {
            break;
        }
    }
    let counted = session.text("select count(*) from rows")?;
    if counted != [[done.to_string()]] {
        bail!("{done} rows were inserted, {counted:?} are there");
    }
    Ok(json!({
        "database": base.name(),
        "settings": base.settings()?,
        "rows": done,
        "wanted": rows.count,
        "inserting_seconds": inserting.as_secs_f64(),
        "points": points,
        "group": base.group(),
    }))
}

/// Scans two databases of one server, each alone and both at one time, again and again for so long.
///
/// # Errors
/// The server's; or `stop` was set.
pub fn share(
    served: &Served,
    names: [&str; 2],
    rows: &Rows,
    time: Duration,
    stop: &AtomicBool,
) -> Result<Value> {
    let scans = |name: &str| -> Result<u64> {
        let mut session = served.connect(Some(name))?;
        let (began, mut scans) = (Instant::now(), 0);
        while began.elapsed() < time {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            let mut counted = 0;
            session.run("select count(*), max(tag), max(v) from rows", &mut |count, _, _| {
                counted = count;
                true
            })?;
            if counted as u64 != rows.count {
                bail!("{name}: {counted} rows, not {}", rows.count);
            }
            scans += 1;
        }
        Ok(scans)
    };
    let rate = |scans: u64, began: Instant| (scans * rows.count) as f64 / began.elapsed().as_secs_f64();
    let mut alone = Vec::new();
    for name in names {
        let began = Instant::now();
        alone.push(rate(scans(name)?, began));
    }
    let began = Instant::now();
    let ((first, second), seen) = watch::during(served, None, &AtomicBool::new(false), || {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| scans(names[1]).map(|scans| rate(scans, began)));
            let first = scans(names[0]).map(|scans| rate(scans, began));
            (first, other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    });
    let asked = "select used_bytes, peak_bytes, limit_bytes from gannet_memory where purpose = 'total'";
    let told = served.connect(Some(names[0]))?.text(asked)?;
    let budget: Vec<Option<u64>> = told.first().into_iter().flatten().map(|text| text.parse().ok()).collect();
    Ok(json!({
        "database": served.name(),
        "settings": served.settings()?,
        "databases": names,
        "rows": rows.count,
        "alone_rows_per_second": alone,
        "together_rows_per_second": [first?, second?],
        "budget": { "used_bytes": budget.first(), "peak_bytes": budget.get(1), "limit_bytes": budget.get(2) },
        "watched": watch::report(&seen),
        "group": served.group(),
    }))
}
