//! Statistics as text, in sections as `gstat` has them, under names that its users and those of `pgstattuple` know.

use crate::output::{instant, printable};
use anyhow::Result;
use gannet_base::units::format_size;
use gannet_sql::stat::{Holder, Object, ObjectKind, Statistics};
use gannet_store::{FILL_STEPS, Figure, StatMode, TreeContents};
use std::io::Write;

/// Columns that labels take.
const LABEL: usize = 24;
/// Transactions and pages that are named.
const NAMED: usize = 10;

/// Writes a section's lines.
struct Section<'w> {
    out: &'w mut dyn Write,
}

impl<'w> Section<'w> {
    fn begin(out: &'w mut dyn Write, title: &str) -> Result<Self> {
        writeln!(out, "\n{}", printable(title))?;
        Ok(Section { out })
    }

    fn line(&mut self, label: &str, what: impl std::fmt::Display) -> Result<()> {
        Ok(writeln!(self.out, "  {label:LABEL$}{}", printable(&what.to_string()))?)
    }
}

/// A figure: as it is where it was counted, else with its error.
fn number(figure: Figure) -> String {
    if figure.is_exact() {
        return format!("{:.0}", figure.value);
    }
    format!("~{:.0} ±{:.0}", figure.value, figure.error.ceil())
}

fn size(figure: Figure) -> String {
    let bytes = |value: f64| format_size(value.max(0.0) as u64);
    if figure.is_exact() {
        return bytes(figure.value);
    }
    format!("~{} ±{}", bytes(figure.value), bytes(figure.error.ceil()))
}

fn decimal(figure: Figure) -> String {
    if figure.is_exact() {
        return format!("{:.1}", figure.value);
    }
    format!("~{:.1} ±{:.1}", figure.value, figure.error)
}

fn percent(figure: Figure) -> String {
    format!("{} %", decimal(figure))
}

/// Writes all of it.
pub(crate) fn write(out: &mut dyn Write, name: &str, by_server: bool, found: &Statistics) -> Result<()> {
    let whose = if by_server { ", by its server" } else { "" };
    let how = match found.mode {
        StatMode::Instant => "from a sample; figures with ~ are estimates, true within ± in 95 of 100 cases",
        StatMode::Records if !found.changed_meanwhile => "every entry counted; nobody wrote meanwhile",
        StatMode::Records => {
            "every entry counted, pages at different moments, as something changed (exact when nobody writes)"
        }
    };
    writeln!(out, "Statistics of {}{whose}: {how}", printable(name))?;
    header(out, found)?;
    transactions(out, found)?;
    space(out, found)?;
    for object in found.objects.iter().filter(|object| object.kind != ObjectKind::System) {
        write_object(out, object, found.header.page_bytes)?;
    }
    if found.table.is_none() {
        own(out, found)?;
    }
    writeln!(out)?;
    troubles(out, found)
}

fn header(out: &mut dyn Write, found: &Statistics) -> Result<()> {
    let (header, mut section) = (&found.header, Section::begin(out, "Database header")?);
    section.line("Page size", format_size(header.page_bytes))?;
    section.line("Format version", header.format_version)?;
    section.line("Database id", &header.database_id)?;
    section.line("File size", format_size(header.file_bytes))?;
    section.line("Log segment size", format_size(header.segment_bytes))?;
    let closed = if header.closed_cleanly {
        "clean".to_owned()
    } else {
        format!("none: it had crashed; restart: {}", header.restart)
    };
    section.line("Last shutdown", closed)?;
    section.line("Log position", format_args!("{}; redo begins at {}", header.log_end, header.redo_from))?;
    let (log, limit) = (format_size(header.restart_log_bytes), format_size(header.wal_limit_bytes));
    section.line("Log for a restart", format_args!("{log}, at most {limit} (wal_limit)"))?;
    let (effective, asked, why) = (&header.io_effective, &header.io_requested, &header.io_reason);
    section.line("I/O mode", format_args!("{effective} (asked for {asked}): {why}"))?;
    let (memory, used) = (format_size(header.memory_bytes), format_size(header.memory_used_bytes));
    section.line("Memory", format_args!("{memory} for the process (memory), {used} taken"))?;
    let limit =
        header.snapshot_limit_ms.map_or("none".to_owned(), |limit| format!("{} s", limit as f64 / 1000.0));
    section.line("Snapshot limit", limit)?;
    let long = if header.long_sweeps { "may begin by themselves" } else { "wait for sweep_window" };
    section.line("Long sweeps", long)?;
    let archive = match (&header.archive, &header.archive_state) {
        (Some(folder), Some(state)) => {
            let behind = format_size(header.archive_behind_bytes);
            format!("{folder}: {state}, {behind} of log to go")
        }
        _ => "none".to_owned(),
    };
    section.line("Archive", archive)
}

fn transactions(out: &mut dyn Write, found: &Statistics) -> Result<()> {
    let (marks, mut section) = (&found.transactions, Section::begin(out, "Transactions")?);
    section.line("Oldest transaction", format_args!("{} (the horizon)", marks.oldest_transaction))?;
    section.line("Oldest active", marks.oldest_active)?;
    section.line("Oldest snapshot", marks.oldest_snapshot)?;
    section.line("Next transaction", marks.next_transaction)?;
    section.line("Snapshots", marks.snapshots)?;
    if let Some(oldest) = &marks.oldest_holder {
        let holder = found.oldest_holder.as_ref().map_or_else(|| "not by a session".to_owned(), session);
        let since = instant(oldest.since_unix_us);
        section.line(
            "  the oldest is held",
            format_args!("for {:.1} s, since {since}, {holder}", oldest.age_seconds),
        )?;
    }
    section.line("Writing transactions", marks.writers_count)?;
    for writer in marks.writers.iter().take(NAMED) {
        let holder = found.writers.iter().find(|holder| holder.transaction == Some(writer.id));
        let holder = holder.map(|holder| format!(", {}", session(holder))).unwrap_or_default();
        let waits = match writer.waits_for.as_slice() {
            [] => String::new(),
            ids => format!(", waits for {ids:?}"),
        };
        let label = format!("  {}", writer.id);
        section.line(&label, format_args!("for {:.1} s{holder}{waits}", writer.age_seconds))?;
    }
    let garbage = &marks.garbage;
    let segments = |count: u64| {
        let size = format_size(count * garbage.segment_bytes);
        format!("{count} undo segment{}, {size}", if count == 1 { "" } else { "s" })
    };
    section.line("Garbage, free to sweep", segments(garbage.free_segments))?;
    section.line("Garbage held back", segments(garbage.held_segments))?;
    if garbage.held_segments > 0 {
        section.line(
            "  by oldest snapshot",
            format_args!("alone {}", segments(garbage.held_by_oldest_snapshot)),
        )?;
        section.line("  by open writers", segments(garbage.held_by_writers))?;
    }
    Ok(())
}

fn session(holder: &Holder) -> String {
    let application =
        if holder.application.is_empty() { String::new() } else { format!(", {}", holder.application) };
    format!("by pid {} ({}{application}, {})", holder.pid, holder.user, holder.state)
}

fn space(out: &mut dyn Write, found: &Statistics) -> Result<()> {
    let (space, mut section) = (&found.space, Section::begin(out, "Pages of the file")?);
    section.line("All", space.file_pages)?;
    section.line("Free", number(space.free_pages))?;
    section.line("Undo", number(space.undo_pages))?;
    section.line("Header, space maps", number(space.system_pages))?;
    if space.passing_pages != Figure::exact(0) {
        section.line("Of passing trees", number(space.passing_pages))?;
    }
    Ok(())
}

fn write_object(out: &mut dyn Write, object: &Object, page_bytes: u64) -> Result<()> {
    let title = match (object.kind, &object.table) {
        (ObjectKind::Index, Some(table)) => {
            let kind = if object.unique { "Unique index" } else { "Index" };
            format!("{kind} {} of table {table}", object.name)
        }
        (ObjectKind::Table, _) => format!("Table {}", object.name),
        _ => format!("Tree {}", object.name),
    };
    let mut section = Section::begin(out, &title)?;
    let scale = page_bytes as f64;
    let bytes = Figure { value: object.pages.value * scale, error: object.pages.error * scale };
    let total = format!("{} pages, {}", number(object.pages), size(bytes));
    if object.unreadable_pages > 0 {
        section.line("Unreadable pages", object.unreadable_pages)?;
    }
    let Some(contents) = &object.contents else {
        section.line("Size", total)?;
        return section.line("Contents", "not looked at");
    };
    section.line("Size", total)?;
    section.line("  leaf pages", number(contents.leaf_pages))?;
    section.line("  inner pages", number(contents.inner_pages))?;
    section.line("  long value pages", number(contents.long_value_pages))?;
    if let Some(unwritten) = contents.unwritten_pages.filter(|pages| pages.value > 0.0) {
        section.line("  unwritten pages", number(unwritten))?;
    }
    section.line("Depth", contents.depth)?;
    rows(&mut section, object.kind, contents)?;
    fill(&mut section, contents)
}

/// Entries and versions.
fn rows(section: &mut Section<'_>, kind: ObjectKind, contents: &TreeContents) -> Result<()> {
    let (what, dead) = match kind {
        ObjectKind::Index => ("Entries", "Dead entries"),
        _ => ("Total records", "Dead records"),
    };
    section.line(what, number(contents.rows))?;
    let bytes =
        format_args!("{} of keys, {} of values", size(contents.key_bytes), size(contents.value_bytes));
    section.line("  data", bytes)?;
    section.line("  average length", format_args!("{} bytes", decimal(contents.average_row_bytes)))?;
    section.line(dead, format_args!("{}, {}", number(contents.dead_entries), size(contents.dead_bytes)))?;
    let (unsettled, open) = (number(contents.unsettled_entries), number(contents.uncommitted_entries));
    section.line("Recent versions", format_args!("{unsettled}, uncommitted {open}"))?;
    match (contents.old_versions, contents.old_version_bytes) {
        (Some(versions), Some(bytes)) => {
            section.line("Old versions in undo", format_args!("{}, {}", number(versions), size(bytes)))?;
        }
        _ => section.line("Old versions in undo", "not counted (--records)")?,
    }
    if kind != ObjectKind::Index {
        let (values, bytes) = (number(contents.long_values), size(contents.long_value_bytes));
        section.line("Long values", format_args!("{values}, {bytes}"))?;
    }
    if let Some(duplicates) = &contents.duplicates {
        section.line("Total dup", number(duplicates.total))?;
        let or_more = if duplicates.longest_is_exact { "" } else { " or more" };
        section.line("Max dup", format_args!("{}{or_more}", duplicates.longest.saturating_sub(1)))?;
    }
    Ok(())
}

/// How full leaves are, and how they lie.
fn fill(section: &mut Section<'_>, contents: &TreeContents) -> Result<()> {
    section.line("Average fill", percent(contents.fill_percent))?;
    let free = format_args!("{}, {}", size(contents.free_bytes), percent(contents.free_percent));
    section.line("Free inside leaves", free)?;
    section.line("Fill distribution", "")?;
    let width = 100 / FILL_STEPS;
    for (step, leaves) in contents.fill_leaves.iter().enumerate() {
        let label = format!("  {:3} - {:2}%", step * width, (step + 1) * width - 1);
        section.line(&label, format_args!("= {}", number(*leaves)))?;
    }
    let order = &contents.order;
    let scattered = percent(order.scattered_percent);
    section.line("Fragmentation", format_args!("{scattered} of steps to the next leaf go elsewhere"))?;
    section.line("  backward", percent(order.backward_percent))
}

/// What Gannet needs for itself, added up.
fn own(out: &mut dyn Write, found: &Statistics) -> Result<()> {
    let mut section = Section::begin(out, "Gannet's own trees")?;
    let own = || found.objects.iter().filter(|object| object.kind == ObjectKind::System);
    let sum = |figures: &mut dyn Iterator<Item = Figure>| {
        figures.fold(Figure::default(), |sum, more| Figure {
            value: sum.value + more.value,
            error: sum.error + more.error,
        })
    };
    let contents = || own().filter_map(|object| object.contents.as_ref());
    section.line("Trees", own().count())?;
    section.line("Pages", number(sum(&mut own().map(|object| object.pages))))?;
    section.line("Entries", number(sum(&mut contents().map(|contents| contents.entries))))
}

fn troubles(out: &mut dyn Write, found: &Statistics) -> Result<()> {
    if let Some(why) = &found.definitions_missing {
        writeln!(
            out,
            "Definitions cannot be read, tables have the names of their trees: {}",
            printable(why)
        )?;
    }
    if found.trees_missing {
        writeln!(out, "The list of trees cannot be read as a whole: some trees are missing above")?;
    }
    if found.unreadable_pages > 0 {
        let (pages, they) =
            if found.unreadable_pages == 1 { ("page", "it holds") } else { ("pages", "they hold") };
        let count = found.unreadable_pages;
        writeln!(out, "{count} {pages} could not be read, what {they} is not counted: run gannet check")?;
    }
    for page in found.unreadable.iter().take(NAMED) {
        writeln!(out, "  page {} of {}: {}", page.page, printable(&page.object), printable(&page.why))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(found: &Statistics) -> String {
        let mut out = Vec::new();
        write(&mut out, "s.gnt", false, found).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The bytes of a table looked counted where its pages were estimated, and what the sample had none of looked like none.
    #[test]
    fn an_estimate_shows_its_error_wherever_it_stands() {
        let mut found = Statistics::default();
        found.header.page_bytes = 1024;
        found.objects.push(Object {
            name: "t".to_owned(),
            kind: ObjectKind::Table,
            table: None,
            unique: false,
            bytes: 10240.0,
            tree: 20,
            tree_name: None,
            pages: Figure { value: 10.0, error: 2.0 },
            unreadable_pages: 0,
            contents: None,
        });
        found.space.passing_pages = Figure { value: 0.0, error: 4.0 };
        let text = written(&found);
        assert!(text.contains("~10 ±2 pages, ~10KiB ±2KiB"), "{text}");
        assert!(text.contains("Of passing trees        ~0 ±4"), "{text}");
        found.objects[0].pages = Figure::exact(10);
        found.space.passing_pages = Figure::exact(0);
        let text = written(&found);
        assert!(text.contains("10 pages, 10KiB\n") && !text.contains("passing"), "{text}");
    }
}
