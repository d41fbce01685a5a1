//! The patterns, measured: each row that comes is looked at, counted and checked, and thrown away.

use super::{Base, Plan, ROW_LEN, Rows, Session, Take, watch};
use crate::device::{Counters, number_of};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rows after which it is looked whether the time is over.
const LOOK_EACH: u64 = 256;
/// How long the index is read for warming up, at most.
const WARM_UP: Duration = Duration::from_secs(60);

/// A way of reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// The table in its natural order; rows are counted, and the largest tag and text found, where they are.
    Scan,
    /// The same, all rows to the client.
    Rows,
    /// All rows to the client in the order of their texts, for which there is no index.
    Sort,
    /// All rows to the client in the order of their tags, which have an index.
    Tag,
}

impl Pattern {
    /// By its name on the command line.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "scan" => Pattern::Scan,
            "rows" => Pattern::Rows,
            "sort" => Pattern::Sort,
            "tag" => Pattern::Tag,
            other => bail!("--pattern is scan, rows, sort or tag, not {other:?}"),
        })
    }

    /// That name.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Scan => "scan",
            Pattern::Rows => "rows",
            Pattern::Sort => "sort",
            Pattern::Tag => "tag",
        }
    }

    /// What is run before, and the query. What was forced before is undone.
    fn query(self, base: &dyn Base, plan: Plan) -> (&'static str, String) {
        let query = match self {
            Pattern::Scan => "select count(*), max(tag), max(v) from rows",
            Pattern::Rows => "select k, tag, v from rows",
            Pattern::Sort => "select k, tag, v from rows order by v",
            Pattern::Tag => return base.by_tag(plan),
        };
        (base.by_tag(Plan::Chosen).0, query.to_owned())
    }
}

/// All that is measured: each pattern, and whose plan it takes.
pub const ALL: [(Pattern, Plan); 6] = [
    (Pattern::Scan, Plan::Chosen),
    (Pattern::Rows, Plan::Chosen),
    (Pattern::Sort, Plan::Chosen),
    (Pattern::Tag, Plan::Index),
    (Pattern::Tag, Plan::Sort),
    (Pattern::Tag, Plan::Chosen),
];

/// What is to be measured, and how.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The way of reading.
    pub pattern: Pattern,
    /// Whose plan, for [`Pattern::Tag`].
    pub plan: Plan,
    /// Whoever takes longer from the first row to the last is ended then: what comes before the first, such as a sort, is always measured whole.
    pub most: Duration,
}

/// Checks that rows come whole, each once, and in their order.
#[derive(Default)]
struct Checked {
    rows: u64,
    keys: i64,
    tags: i64,
    last_tag: i64,
    last_text: String,
    is_wrong: bool,
}

impl Checked {
    fn row(&mut self, pattern: Pattern, k: i64, tag: i64, v: &str) {
        self.rows += 1;
        self.keys = self.keys.wrapping_add(k);
        self.tags = self.tags.wrapping_add(tag);
        match pattern {
            Pattern::Sort => {
                self.is_wrong |= self.last_text.as_str() > v;
                self.last_text.clear();
                self.last_text.push_str(v);
            }
            Pattern::Tag => {
                self.is_wrong |= self.last_tag > tag;
                self.last_tag = tag;
            }
            Pattern::Scan | Pattern::Rows => {}
        }
        self.is_wrong |= v.is_empty();
    }

    /// Whether that is the whole table.
    fn judge(&self, wanted: &Rows) -> Result<()> {
        let sum = (wanted.count as i64 - 1) * wanted.count as i64 / 2;
        if self.rows != wanted.count || self.keys != sum || self.tags != sum {
            bail!("{} rows came, of {}, or others than were loaded", self.rows, wanted.count);
        }
        Ok(())
    }
}

/// What has to be run before a query.
fn prepare(session: &mut dyn Session, before: &str) -> Result<()> {
    if before.is_empty() { Ok(()) } else { session.batch(before) }
}

/// The plan, as the database tells it.
fn plan_of(base: &dyn Base, session: &mut dyn Session, query: &str) -> Result<String> {
    let told = session.text(&format!("{} {query}", base.explain()))?;
    let lines: Vec<String> = told.into_iter().filter_map(|mut row| row.pop()).collect();
    Ok(lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; "))
}

/// Whether the plan is one that is forced as well, and then measured as such.
fn is_forced_too(base: &dyn Base, session: &mut dyn Session, plan: &str) -> Result<Option<Plan>> {
    for forced in [Plan::Index, Plan::Sort] {
        let (before, query) = base.by_tag(forced);
        prepare(session, before)?;
        if plan_of(base, session, &query)? == plan {
            return Ok(Some(forced));
        }
    }
    Ok(None)
}

/// Which forced plan the planner's choice is, where it is one.
fn same_as(base: &dyn Base, session: &mut dyn Session, task: Task) -> Result<Option<Value>> {
    let (Pattern::Tag, Plan::Chosen) = (task.pattern, task.plan) else { return Ok(None) };
    let (before, query) = base.by_tag(Plan::Chosen);
    prepare(session, before)?;
    let plan = plan_of(base, session, &query)?;
    let same = is_forced_too(base, session, &plan)?;
    Ok(same.map(|same| json!({ "same_as": same.name(), "plan": plan })))
}

/// One measurement, through a connection.
fn measure(
    base: &dyn Base,
    session: &mut dyn Session,
    task: Task,
    rows: &Rows,
    stop: &AtomicBool,
) -> Result<Value> {
    let (before, query) = task.pattern.query(base, task.plan);
    prepare(session, before)?;
    let plan = plan_of(base, session, &query)?;
    let disk = number_of(&base.folder())?;
    let counted = Counters::of(&disk);
    let began = Instant::now();
    let (mut checked, mut first) = (Checked::default(), None);
    let canceller = session.canceller();
    let (ran, seen) = watch::during(base, canceller, stop, || {
        let mut take = |k: i64, tag: i64, v: &str| {
            first = first.or_else(|| Some(began.elapsed()));
            checked.row(task.pattern, k, tag, v);
            let looks = checked.rows.is_multiple_of(LOOK_EACH);
            let since_first = || began.elapsed().saturating_sub(first.unwrap_or_default());
            !(looks && (since_first() > task.most || stop.load(Ordering::Relaxed)))
        };
        let take: Take<'_> = &mut take;
        let whole = session.run(&query, take);
        whole.map(|whole| (whole, began.elapsed().as_secs_f64()))
    });
    let device = counted.and_then(|before| Some(Counters::of(&disk)?.since(before)));
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    let (whole, seconds) = ran?;
    if checked.is_wrong {
        bail!("{query:?}: rows came in another order than was asked for");
    }
    let came = match task.pattern {
        // One row has come, with the number of all of them.
        Pattern::Scan if checked.keys as u64 == rows.count && checked.tags as u64 + 1 == rows.count => {
            rows.count
        }
        Pattern::Scan => bail!("{query:?}: {} rows were counted, of {}", checked.keys, rows.count),
        _ => checked.rows,
    };
    if whole && task.pattern != Pattern::Scan {
        checked.judge(rows).with_context(|| query.clone())?;
    }
    Ok(json!({
        "query": query,
        "before": before,
        "plan": plan,
        "whole": whole,
        "rows": came,
        "seconds": seconds,
        "seconds_to_first_row": first.map(|first: Duration| first.as_secs_f64()),
        "rows_per_second": came as f64 / seconds,
        "row_bytes_per_second": (came * ROW_LEN) as f64 / seconds,
        "device_reads_per_second": device.map(|device| device.reads as f64 / seconds),
        "device_read_bytes_per_second": device.map(|device| device.read_bytes as f64 / seconds),
        "device_written_bytes": device.map(|device| device.written_bytes),
        "watched": watch::report(&seen),
        "cached_behind_bytes": watch::cached(&base.folder()),
    }))
}

/// One measurement of a database that was just opened. The planner's own choice is not measured where it is a plan that is forced as well: then it is
/// said which.
///
/// # Errors
/// The database's; or rows that are not those that were loaded; or `stop` was set.
pub fn cold(base: &dyn Base, task: Task, rows: &Rows, stop: &AtomicBool) -> Result<Value> {
    let mut session = base.session()?;
    let mut outcome = json!({ "database": base.name(), "settings": base.settings()? });
    outcome["pattern"] = json!(task.pattern.name());
    outcome["plan"] = json!(task.plan.name());
    outcome["size_bytes"] = json!(watch::size(&base.data()));
    if let Some(same) = same_as(base, &mut *session, task)? {
        outcome["measured"] = same;
        return Ok(outcome);
    }
    outcome["measured"] = measure(base, &mut *session, task, rows, stop)?;
    outcome["group"] = base.group();
    Ok(outcome)
}

/// All patterns, `times` each, with everything in memory; the planner's choice as [`cold`] has it.
///
/// # Errors
/// As [`cold`].
pub fn warm(base: &dyn Base, tasks: &[Task], times: u32, rows: &Rows, stop: &AtomicBool) -> Result<Value> {
    let mut session = base.session()?;
    let mut all = Vec::new();
    for (pattern, plan) in [(Pattern::Scan, Plan::Chosen), (Pattern::Tag, Plan::Index)] {
        measure(base, &mut *session, Task { pattern, plan, most: WARM_UP }, rows, stop)?;
    }
    for time in 1..=times {
        for &task in tasks {
            let mut one = match same_as(base, &mut *session, task)? {
                Some(same) => same,
                None => measure(base, &mut *session, task, rows, stop)?,
            };
            one["pattern"] = json!(task.pattern.name());
            one["forced"] = json!(task.plan.name());
            one["time"] = json!(time);
            all.push(one);
        }
    }
    let mut outcome = json!({ "database": base.name(), "settings": base.settings()?, "measured": all });
    outcome["size_bytes"] = json!(watch::size(&base.data()));
    outcome["group"] = base.group();
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::embedded::Embedded;
    use gannet_io::ModeRequest;

    #[test]
    fn patterns_are_read_checked_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("db");
        let rows = Rows::new(3000, 1);
        let base = Embedded::open(&folder, 96 << 20, ModeRequest::Auto, true).unwrap();
        crate::scan::load(&base, &rows).unwrap();
        let go_on = AtomicBool::new(false);
        let most = Duration::from_secs(60);
        for (pattern, plan) in [
            (Pattern::Scan, Plan::Chosen),
            (Pattern::Rows, Plan::Chosen),
            (Pattern::Sort, Plan::Chosen),
            (Pattern::Tag, Plan::Index),
            (Pattern::Tag, Plan::Sort),
        ] {
            let outcome = cold(&base, Task { pattern, plan, most }, &rows, &go_on).unwrap();
            assert_eq!(
                (&outcome["measured"]["rows"], &outcome["measured"]["whole"]),
                (&json!(3000), &json!(true))
            );
            let told = outcome["measured"]["plan"].as_str().unwrap();
            assert_eq!(told.contains("Sort"), pattern == Pattern::Sort || plan == Plan::Sort, "{told}");
        }
        // The planner takes one of the plans that are forced as well.
        let task = Task { pattern: Pattern::Tag, plan: Plan::Chosen, most };
        let outcome = cold(&base, task, &rows, &go_on).unwrap();
        assert!(outcome["measured"]["same_as"].is_string(), "{outcome}");
        let tasks = ALL.map(|(pattern, plan)| Task { pattern, plan, most });
        let outcome = warm(&base, &tasks, 2, &rows, &go_on).unwrap();
        let measured = outcome["measured"].as_array().unwrap();
        // What was forced for one query is not for the next.
        assert!(measured.iter().filter(|one| one["pattern"] == "sort").all(|one| {
            one["before"].as_str().is_some_and(|before| before.contains("reset enable_sort"))
        }));
        assert_eq!(measured.iter().filter(|one| one["seconds"].is_f64()).count(), 2 * (ALL.len() - 1));
        // Whoever takes too long is ended; what is not there is noticed.
        let task = Task { pattern: Pattern::Tag, plan: Plan::Index, most: Duration::ZERO };
        let outcome = cold(&base, task, &rows, &go_on).unwrap();
        assert_eq!(
            (&outcome["measured"]["rows"], &outcome["measured"]["whole"]),
            (&json!(256), &json!(false))
        );
        let task = Task { pattern: Pattern::Rows, plan: Plan::Chosen, most };
        assert!(cold(&base, task, &Rows::new(3001, 1), &go_on).is_err());
        go_on.store(true, Ordering::Relaxed);
        assert!(cold(&base, task, &rows, &go_on).unwrap_err().to_string().contains("interrupted"));
        Box::new(base).close().unwrap();
    }
}
