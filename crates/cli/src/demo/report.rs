//! The figures: for people as they come, or as JSON at the end.

use super::Setup;
use crate::output::{cannot_write, shell_word};
use anyhow::Result;
use gannet_base::units::format_size;
use gannet_io::stats::{Operation, Snapshot};
use gannet_io::{Mode, ModeReport};
use gannet_lab::tpcc::check::Condition;
use gannet_lab::tpcc::run::Outcome;
use gannet_lab::tpcc::transactions::Kind;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// What the load did.
pub(super) struct Loaded {
    pub(super) rows: u64,
    pub(super) time: Duration,
    pub(super) file_bytes: u64,
    pub(super) io: Snapshot,
}

/// What the sessions did.
pub(super) struct Worked {
    pub(super) outcome: Outcome,
    pub(super) io: Snapshot,
}

/// Conditions with the number of their violations.
pub(super) struct Checked {
    pub(super) found: Vec<(Condition, i64)>,
    pub(super) time: Duration,
}

impl Checked {
    fn failed(&self) -> usize {
        self.found.iter().filter(|(_, count)| *count != 0).count()
    }
}

/// The most memory that was in use, in bytes.
#[derive(Default)]
pub(super) struct Memory {
    /// As the engine accounts for it.
    pub(super) engine_bytes: u64,
    /// Anonymous memory of the process, as the kernel sees it.
    pub(super) process_bytes: u64,
}

/// Everything that was found out.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) mode: Option<ModeReport>,
    pub(super) loaded: Option<Loaded>,
    pub(super) worked: Option<Worked>,
    pub(super) checked: Option<Checked>,
    pub(super) opening: Duration,
    pub(super) checked_again: Option<Checked>,
    pub(super) memory: Memory,
    /// What [`crate::doctor::cached`] says.
    pub(super) cached: Value,
}

impl Figures {
    pub(super) fn failed_conditions(&self) -> usize {
        [&self.checked, &self.checked_again].into_iter().flatten().map(Checked::failed).max().unwrap_or(0)
    }
}

/// Writes the figures.
pub(super) struct Report {
    json: bool,
    out: io::Stdout,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Report { json, out: io::stdout() }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<()> {
        if !self.json {
            writeln!(self.out, "{line}").map_err(cannot_write)?;
        }
        Ok(())
    }

    pub(super) fn begins(&mut self, folder: &Path, setup: &Setup) -> Result<()> {
        self.line(format_args!(
            "TPC-C in {}: {}, {}, {} of memory",
            folder.display(),
            many(u64::from(setup.size.warehouses), "warehouse"),
            many(u64::from(setup.sessions), "session"),
            format_size(setup.memory)
        ))
    }

    pub(super) fn loaded(&mut self, loaded: &Loaded, setup: &Setup) -> Result<()> {
        let seconds = loaded.time.as_secs_f64();
        self.line(format_args!(
            "\nLoaded {} rows in {seconds:.1} s ({} a second), indexes and statistics included",
            grouped(loaded.rows),
            grouped((loaded.rows as f64 / seconds) as u64)
        ))?;
        let times = loaded.file_bytes as f64 / setup.memory as f64;
        let compared = match times {
            1.0.. => format!("{times:.1} times the memory"),
            _ => "it fits into the memory, so give less --memory or more --warehouses to see more".to_owned(),
        };
        self.line(format_args!("  the database takes {}: {compared}", format_size(loaded.file_bytes)))?;
        self.io(&loaded.io)
    }

    fn io(&mut self, io: &Snapshot) -> Result<()> {
        let of = |operation| {
            let (requests, bytes) = io.total(operation);
            format!("{} ({})", grouped(requests), format_size(bytes))
        };
        let syncs = grouped(io.total(Operation::Sync).0);
        let (reads, writes) = (of(Operation::Read), of(Operation::Write));
        self.line(format_args!("  the device did {reads} reads, {writes} writes, {syncs} syncs"))
    }

    pub(super) fn worked(&mut self, worked: &Worked) -> Result<()> {
        let outcome = &worked.outcome;
        let seconds = outcome.elapsed.as_secs_f64();
        self.line(format_args!(
            "\nRan {} transactions in {seconds:.1} s; each commit waits until it is durable",
            grouped(outcome.transactions())
        ))?;
        self.line(format_args!(
            "  {} new orders a minute, {:.0} transactions of all kinds a second (no TPC result)",
            grouped(outcome.new_orders_per_minute() as u64),
            outcome.transactions() as f64 / seconds
        ))?;
        self.line(format_args!(
            "\n  {:<14}{:>8}{:>10}{:>10}{:>10}{:>10}{:>11}",
            "transaction", "count", "p50", "p90", "p99", "max", "run again"
        ))?;
        for kind in Kind::ALL {
            let latencies = &outcome.latencies[kind as usize];
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| duration(latencies.quantile_us(share)));
            self.line(format_args!(
                "  {:<14}{:>8}{p50:>10}{p90:>10}{p99:>10}{:>10}{:>11}",
                kind.name(),
                grouped(latencies.count()),
                duration(latencies.max_us()),
                grouped(outcome.conflicts[kind as usize])
            ))?;
        }
        self.line(format_args!(
            "\n  {} rolled back: the standard wants one in a hundred to ask for an item that does not exist",
            many(outcome.rolled_back, "new order")
        ))?;
        self.io(&worked.io)
    }

    pub(super) fn checked(&mut self, checked: &Checked) -> Result<()> {
        self.line(format_args!(
            "\nChecked the standard's consistency conditions in {:.1} s: {}",
            checked.time.as_secs_f64(),
            verdict(checked)
        ))?;
        let width = checked.found.iter().map(|(condition, _)| condition.says.len()).max().unwrap_or(0) + 2;
        for (condition, count) in &checked.found {
            let found = if *count == 0 { "holds".to_owned() } else { many(*count as u64, "violation") };
            self.line(format_args!("  {:>2}  {:<width$}{found}", condition.number, condition.says))?;
        }
        Ok(())
    }

    pub(super) fn checked_again(&mut self, opening: Duration, checked: &Checked) -> Result<()> {
        self.line(format_args!(
            "Closed the database, opened it in {}, and checked again in {:.1} s: {}",
            duration(opening.as_secs_f64() * 1e6),
            checked.time.as_secs_f64(),
            verdict(checked)
        ))
    }

    pub(super) fn ends(&mut self, figures: &Figures, database: &Path, setup: &Setup) -> Result<()> {
        if self.json {
            writeln!(self.out, "{:#}", figures.to_json(setup)).map_err(cannot_write)?;
            return Ok(());
        }
        self.memory(figures, setup)?;
        self.next_steps(database)
    }

    fn memory(&mut self, figures: &Figures, setup: &Setup) -> Result<()> {
        let known = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), format_size);
        let process = Some(figures.memory.process_bytes).filter(|bytes| *bytes > 0);
        let files = figures.files().filter_map(|file| file["len_bytes"].as_u64()).sum();
        let lines = [
            ("the budget", format_size(setup.memory)),
            ("taken of it, at most", format_size(figures.memory.engine_bytes)),
            ("anonymous memory of the whole process, at most", known(process)),
            ("the database's files, with the log", format_size(files)),
            ("of that in the operating system's cache", known(figures.cached["cached_bytes"].as_u64())),
        ];
        self.line(format_args!("\nMemory"))?;
        for (what, bytes) in lines {
            self.line(format_args!("  {what:<48}{bytes:>10}"))?;
        }
        match &figures.mode {
            Some(ModeReport { effective: Mode::Direct, .. }) | None => Ok(()),
            Some(ModeReport { effective, reason, .. }) => {
                self.line(format_args!("  the files are opened {}: {reason}", effective.name()))
            }
        }
    }

    fn next_steps(&mut self, database: &Path) -> Result<()> {
        let program = std::env::args().next().unwrap_or_else(|| "gannet".to_owned());
        let file = shell_word(&database.display().to_string());
        self.line(format_args!("\nThe database stays in {file}. Look around in it:"))?;
        self.line(format_args!("  {program} sql {file}"))?;
        self.line(format_args!("or serve it, and connect with psql or any PostgreSQL driver:"))?;
        self.line(format_args!("  {program} serve {file}"))?;
        let whole = std::path::absolute(database)?;
        let socket = shell_word(&gannet_server::socket_folder(&whole).display().to_string());
        self.line(format_args!("  psql -h {socket} -p {PORT} {}", super::place::NAME))?;
        self.line(format_args!("For a start:"))?;
        self.line(format_args!("  {EXAMPLE}"))
    }
}

/// Where `gannet serve` makes its sockets when nobody says otherwise.
const PORT: u16 = 5433;
const EXAMPLE: &str = "explain (analyze, buffers) select c_last, count(*) from customer group by c_last order by 2 desc limit 10;";

fn verdict(checked: &Checked) -> String {
    match checked.failed() {
        0 => format!("all {} hold", checked.found.len()),
        failed => format!("{failed} of {} DO NOT HOLD", checked.found.len()),
    }
}

impl Figures {
    fn files(&self) -> impl Iterator<Item = &Value> {
        self.cached["files"].as_array().into_iter().flatten()
    }

    fn to_json(&self, setup: &Setup) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "warehouses": setup.size.warehouses,
            "items": setup.size.items,
            "customers_per_district": setup.size.customers,
            "sessions": setup.sessions,
            "memory": {
                "limit_bytes": setup.memory,
                "engine_peak_bytes": self.memory.engine_bytes,
                "process_anonymous_peak_bytes": self.memory.process_bytes,
            },
            "io": self.mode.as_ref().map(|mode| json!({
                "requested": mode.requested.name(),
                "effective": mode.effective.name(),
                "reason": mode.reason,
            })),
            "load": self.loaded.as_ref().map(|loaded| json!({
                "rows": loaded.rows,
                "duration_us": loaded.time.as_micros() as u64,
                "file_bytes": loaded.file_bytes,
                "device": device(&loaded.io),
            })),
            "run": self.worked.as_ref().map(Worked::to_json),
            "checks": self.checked.as_ref().map(Checked::to_json),
            "reopening_us": self.opening.as_micros() as u64,
            "checks_after_reopening": self.checked_again.as_ref().map(Checked::to_json),
            "os_cache": self.cached,
        })
    }
}

impl Worked {
    fn to_json(&self) -> Value {
        let outcome = &self.outcome;
        let kind = |kind: Kind| {
            let latencies = &outcome.latencies[kind as usize];
            let figures = json!({
                "count": latencies.count(),
                "run_again": outcome.conflicts[kind as usize],
                "p50_us": latencies.quantile_us(0.5),
                "p90_us": latencies.quantile_us(0.9),
                "p99_us": latencies.quantile_us(0.99),
                "max_us": latencies.max_us(),
            });
            (kind.name().to_owned(), figures)
        };
        json!({
            "duration_us": outcome.elapsed.as_micros() as u64,
            "transactions": outcome.transactions(),
            "transactions_per_second": outcome.transactions() as f64 / outcome.elapsed.as_secs_f64(),
            "new_orders_per_minute": outcome.new_orders_per_minute(),
            "rolled_back_on_purpose": outcome.rolled_back,
            "kinds": Kind::ALL.map(kind).into_iter().collect::<serde_json::Map<_, _>>(),
            "device": device(&self.io),
        })
    }
}

impl Checked {
    fn to_json(&self) -> Value {
        let condition = |(condition, count): &(Condition, i64)| json!({ "clause": format!("3.3.2.{}", condition.number), "says": condition.says, "violations": count });
        json!({
            "duration_us": self.time.as_micros() as u64,
            "conditions": self.found.iter().map(condition).collect::<Vec<_>>(),
        })
    }
}

fn device(io: &Snapshot) -> Value {
    let [reads, writes, syncs] =
        [Operation::Read, Operation::Write, Operation::Sync].map(|operation| io.total(operation));
    json!({
        "reads": reads.0,
        "read_bytes": reads.1,
        "writes": writes.0,
        "written_bytes": writes.1,
        "syncs": syncs.0,
    })
}

/// A number with its thousands set apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn many(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

fn duration(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} µs"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([12.4, 1_500.0, 2_300_000.0].map(duration), ["12 µs", "1.5 ms", "2.3 s"]);
        assert_eq!(
            (many(1, "session"), many(2000, "session")),
            ("1 session".into(), "2,000 sessions".into())
        );
    }

    #[test]
    fn names_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(["a/b.gnt", "a b", "it's"].map(shell_word), ["a/b.gnt", "'a b'", r"'it'\''s'"]);
    }
}
