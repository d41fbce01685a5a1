//! `gannet sweep`: removes what nobody can see any more, and says what is held back and by whom; of a file that nobody has open, of one that
//! a server has open, or of a database at an address.

use crate::arguments::Sweep;
use crate::interrupt;
use crate::job::{self, CachedBefore, Place};
use crate::output::{self, printable};
use anyhow::{Context, Result};
use gannet_base::units::format_size;
use gannet_sql::sweep::{Swept, sweep};
use gannet_store::{Cleaned, Figure, Forecast, Garbage, JobKind, JobOrder, JobReport};
use serde_json::{Value, json};
use std::io::{self, Write};

pub(crate) fn run(options: &Sweep) -> Result<()> {
    interrupt::listen()?;
    let cached = CachedBefore::look(&options.database);
    let place = Place::find(&options.database, (options.opening, &options.log, options.pacing), "sweep")?;
    let by_server = place.is_server();
    let name = job::shown(&options.database);
    let (swept, job) = match place {
        Place::File(store) => {
            let order = JobOrder::new(JobKind::Sweep);
            let done = job::here(store.jobs(), order, |watch| sweep(&store, options.show, watch));
            let closed = job::close(store);
            job::behind_closing(done.with_context(|| format!("cannot sweep {name:?}")), closed, &name)?
        }
        Place::Beside(mut connection) | Place::Address(mut connection) => {
            let show = if options.show { " SHOW" } else { "" };
            let statement = format!("SWEEP DATABASE{show} VERBOSE");
            let mut told = job::by_server(&mut connection, &statement, &mut |_| Ok(()))
                .context("the server could not sweep the database")?;
            let swept = serde_json::from_value(told.detail["swept"].take())
                .context("the server's report has another form: is it of another release?")?;
            (swept, told.job)
        }
    };
    let cached = cached.left_behind();
    let mut out = io::stdout().lock();
    let said = match options.json {
        true => writeln!(out, "{:#}", as_json(&name, by_server, &swept, &job, cached)).map_err(Into::into),
        false => tell(&mut out, &name, by_server, &swept, &job, cached),
    };
    output::said(said.and_then(|()| Ok(out.flush()?)), if options.show { "" } else { "the sweep is done" })
}

fn as_json(name: &str, by_server: bool, swept: &Swept, job: &JobReport, cached: Option<u64>) -> Value {
    json!({
        "database": name,
        "by_server": by_server,
        "swept": swept,
        "cached_bytes": cached,
        "job": job::as_json(job, cached),
    })
}

fn tell(
    out: &mut dyn Write,
    name: &str,
    by_server: bool,
    swept: &Swept,
    job: &JobReport,
    cached: Option<u64>,
) -> Result<()> {
    let report = &swept.report;
    let place = if by_server { ", by its server" } else { "" };
    match &report.forecast {
        Some(forecast) => {
            writeln!(out, "garbage of {}{place}: {}", printable(name), free(&report.before))?;
            foretell(out, forecast)?;
        }
        None => {
            writeln!(out, "{} swept{place}: {}", printable(name), free(&report.before))?;
            cleaned(out, &report.cleaned)?;
        }
    }
    for object in &swept.objects {
        let (dead, long) = (number(object.dead_entries), number(object.long_values));
        writeln!(out, "  {}: {dead} dead entries, {long} long values", printable(&object.object))?;
    }
    let left = &report.after;
    if report.forecast.is_none() && left.free_segments > 0 {
        writeln!(out, "  left for the next sweep: {}", segments(left.free_segments, left))?;
    }
    writeln!(out, "  held back: {}", segments(left.held_segments, left))?;
    for held in &swept.holders {
        let (all, alone) = (held.holder.held_bytes, held.holder.alone_bytes);
        writeln!(
            out,
            "    {} by the {}; {} could go without it",
            format_size(all),
            printable(&held.describe()),
            format_size(alone)
        )?;
    }
    job::tell(out, job, cached)
}

fn segments(count: u64, of: &Garbage) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} in {count} undo segment{plural}", format_size(count * of.segment_bytes))
}

fn free(garbage: &Garbage) -> String {
    match garbage.free_segments {
        0 => "nothing that could go".to_owned(),
        count => format!("nobody can see {} any more", segments(count, garbage)),
    }
}

/// A figure: as it is where it was counted, else with its error.
fn number(figure: Figure) -> String {
    if figure.is_exact() {
        return format!("{:.0}", figure.value);
    }
    format!("~{:.0} ±{:.0}", figure.value, figure.error.ceil())
}

fn foretell(out: &mut dyn Write, forecast: &Forecast) -> Result<()> {
    writeln!(
        out,
        "  they list {} changes: {} dead entries, {} long values, {} dropped trees (seen in {} segments)",
        number(forecast.records),
        number(forecast.dead_entries),
        number(forecast.long_values),
        number(forecast.dropped_trees),
        forecast.sampled_segments
    )?;
    writeln!(
        out,
        "  a sweep reads, as far as they are not in memory, at most {} pages of undo, {:.0} leaves, {:.0} lists of long values",
        forecast.undo_pages, forecast.leaf_pages_most, forecast.list_pages_most
    )?;
    let time = match forecast.seconds {
        Some(seconds) => format!("about {seconds:.1} s from the device"),
        None => "no time can be told".to_owned(),
    };
    Ok(writeln!(out, "  {time}: {}", printable(&forecast.seconds_from))?)
}

fn cleaned(out: &mut dyn Write, cleaned: &Cleaned) -> Result<()> {
    writeln!(
        out,
        "  {} segments freed, {}; {} changes seen to: {} dead entries, {} long values, {} dropped trees",
        cleaned.segments,
        format_size(cleaned.undo_bytes),
        cleaned.records,
        cleaned.dead_entries,
        cleaned.long_values,
        cleaned.trees
    )?;
    if let Some(damage) = &cleaned.damage {
        writeln!(
            out,
            "  {} segments stay, as something is damaged: {}; see gannet check",
            cleaned.damaged_segments,
            printable(damage)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_sample_had_none_of_is_not_said_to_be_none() {
        let figures = [(0.0, 0.0), (0.0, 2.5), (7.0, 0.0), (7.0, 0.5)];
        let said = figures.map(|(value, error)| number(Figure { value, error }));
        assert_eq!(said, ["0", "~0 ±3", "7", "~7 ±1"]);
    }
}
