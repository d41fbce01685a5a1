//! The workloads of the storage layer.

use crate::driver::{Driver, Key, LoadOrder, Rows};
use crate::random::Random;
use crate::run::{Outcome, Plan, run};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn random_key(rows: &Rows, random: &mut Random) -> Key {
    Rows::key(random.below(rows.count))
}

fn must_be_there(found: bool) -> Result<()> {
    if !found {
        bail!("a row that was loaded is not there");
    }
    Ok(())
}

/// Fills a store; gives the seconds it took.
pub fn load(driver: &dyn Driver, rows: &Rows, order: LoadOrder) -> Result<Value> {
    let start = Instant::now();
    driver.load(rows, order)?;
    Ok(json!({ "order": order.name(), "seconds": start.elapsed().as_secs_f64() }))
}

/// Uniform point look-ups.
pub fn lookups(driver: &dyn Driver, rows: &Rows, plan: &Plan, stop: &AtomicBool) -> Result<Outcome> {
    run(driver, plan, stop, |session, random, _| must_be_there(session.get(&random_key(rows, random))?))
}

/// Uniform look-ups in batches; an operation is a batch.
pub fn multi_gets(
    driver: &dyn Driver,
    rows: &Rows,
    plan: &Plan,
    batch: usize,
    stop: &AtomicBool,
) -> Result<Outcome> {
    run(driver, plan, stop, |session, random, _| {
        let keys: Vec<Key> = (0..batch).map(|_| random_key(rows, random)).collect();
        must_be_there(session.multi_get(&keys)? == batch)
    })
}

/// Device reads of look-ups that missed, one look-up at a time, so that each read belongs to one look-up. As many
/// look-ups go before, uncounted: a store that was just opened has to find its inner nodes.
pub fn reads_per_miss(driver: &dyn Driver, rows: &Rows, count: u64, stop: &AtomicBool) -> Result<Value> {
    let (mut misses, mut reads) = (0, 0);
    driver.session(&mut |session| {
        let mut random = Random::new(99);
        for _ in 0..count {
            must_be_there(session.get(&random_key(rows, &mut random))?)?;
        }
        for _ in 0..count {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let before = driver.counters().device_reads;
            must_be_there(session.get(&random_key(rows, &mut random))?)?;
            let added = driver.counters().device_reads - before;
            misses += u64::from(added > 0);
            reads += added;
        }
        Ok(())
    })?;
    let each = if misses == 0 { 0.0 } else { reads as f64 / misses as f64 };
    Ok(json!({ "lookups": count, "misses": misses, "reads": reads, "reads_per_miss": each }))
}

/// Full scans in key order, one after the other.
pub fn scans(driver: &dyn Driver, rows: &Rows, times: usize, stop: &AtomicBool) -> Result<Value> {
    let mut runs = Vec::new();
    driver.session(&mut |session| {
        for _ in 0..times {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let (before, cpu) = (driver.counters(), crate::machine::cpu_time());
            let start = Instant::now();
            let scanned = session.scan()?;
            let seconds = start.elapsed().as_secs_f64();
            let counters = driver.counters().since(&before);
            if scanned.count != rows.count {
                bail!("the scan found {} rows of {}", scanned.count, rows.count);
            }
            runs.push(json!({
                "seconds": seconds,
                "rows_per_second": scanned.count as f64 / seconds,
                "sum": scanned.sum,
                "cpu_seconds": (crate::machine::cpu_time() - cpu).as_secs_f64(),
                "read_bytes": counters.device_read_bytes,
                "read_bytes_per_second": counters.device_read_bytes as f64 / seconds,
                "reads": counters.device_reads,
                "page_misses": counters.page_misses,
                "pages_prefetched": counters.pages_prefetched,
            }));
        }
        Ok(())
    })?;
    Ok(json!({ "scans": runs }))
}

/// New rows behind all others, each in a transaction of its own.
pub fn commits(driver: &dyn Driver, rows: &Rows, plan: &Plan, stop: &AtomicBool) -> Result<Outcome> {
    // Above what was loaded, and above what earlier runs have added.
    let epoch = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO);
    let next = AtomicU64::new(rows.count + ((epoch.as_secs() & 0xFFFF_FFFF) << 24));
    run(driver, plan, stop, |session, _, _| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let mut value = Vec::with_capacity(rows.value_len);
        rows.value(number, 0, &mut value);
        session.put(&Rows::key(number), &value)
    })
}

/// Random rows written anew, each in a transaction of its own.
pub fn updates(driver: &dyn Driver, rows: &Rows, plan: &Plan, stop: &AtomicBool) -> Result<Outcome> {
    run(driver, plan, stop, |session, random, call| {
        let number = random.below(rows.count);
        let mut value = Vec::with_capacity(rows.value_len);
        rows.value(number, call + 1, &mut value);
        must_be_there(session.update(&Rows::key(number), &value)?)
    })
}

/// The first update after a store was opened, counted from the process's start, `begun`; then updates, or with `reading`
/// look-ups, from the first moment on. Without time for those, the end of what the start has left to be done.
pub fn restart(
    driver: &dyn Driver,
    rows: &Rows,
    plan: &Plan,
    reading: bool,
    begun: Instant,
    stop: &AtomicBool,
) -> Result<Value> {
    let opened = begun.elapsed();
    driver.session(&mut |session| {
        let number = Random::new(plan.seed).below(rows.count);
        let mut value = Vec::with_capacity(rows.value_len);
        rows.value(number, 1, &mut value);
        must_be_there(session.update(&Rows::key(number), &value)?)
    })?;
    let committed = begun.elapsed();
    let plan = Plan { warm_up: Duration::ZERO, ..plan.clone() };
    let mut measured = match (plan.measure.is_zero(), reading) {
        (true, _) => json!({}),
        (false, true) => lookups(driver, rows, &plan, stop)?.to_json(),
        (false, false) => updates(driver, rows, &plan, stop)?.to_json(),
    };
    if plan.measure.is_zero() {
        driver.await_restart();
    }
    measured["open_seconds"] = json!(opened.as_secs_f64());
    measured["first_commit_seconds"] = json!(committed.as_secs_f64());
    measured["restart"] = json!(driver.restart());
    Ok(measured)
}
