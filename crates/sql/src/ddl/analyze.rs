//! ANALYZE: what the planner wants to know about tables, from a sample of their rows.
//!
//! # Sampling
//! As in PostgreSQL in two stages, with bounded cost: leaves are chosen, each with the same chance and spread over the whole table
//! ([`gannet_store::Sample`]), at most as many as rows are wanted; of the rows on them, each draws a random number, and those with
//! the smallest numbers stay: a fair sample, which can be made smaller at any time, when memory asks for it. Small
//! tables are read as a whole. Leaves are read as maintenance, through frames of their own, and between two of them the
//! statement can be cancelled. Rows are kept as they are stored, and decoded once, at the end.
//!
//! # Estimators
//! Those of PostgreSQL's `analyze.c`: 300 rows for each of 100 parts of a histogram (Chaudhuri, Motwani and Narasayya, 1998); the
//! number of distinct values by Haas and Stokes' Duj1 (1998), `n d / (n - f1 + f1 n / N)`, with `f1` of `d` values in the sample of `n`
//! rows seen once; a value is common when it is in the sample more often, by two standard deviations of the
//! hypergeometric distribution, than the values that are not in the list would be on average.

use super::column::no_column;
use super::{DdlContext, object_name};
use crate::bind::utility::Maintenance;
use crate::catalog::{
    Column, ColumnNumber, ColumnStatistics, Oid, Relation, Table, TableStatistics, storage,
};
use crate::types::text::{self, TextStyle};
use crate::types::{Type, Value};
use crate::{Result, SqlState};
use gannet_base::random;
use gannet_store::{Engine, WorkMemory};
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Most common values, and parts of a histogram: PostgreSQL's `default_statistics_target`.
const TARGET: usize = 100;
/// Rows of a sample: what that many parts of a histogram need. No more leaves are read than rows are wanted.
const SAMPLE: usize = 300 * TARGET;
/// Values that are longer are counted, but not compared or kept.
const WIDEST: usize = 1024;
/// Bytes of memory that a kept row takes besides key and value.
const ROW_OVERHEAD: u64 = 96;
const MEMORY_STEP: u64 = 1 << 20;

pub(super) fn analyze(context: &mut DdlContext<'_>, statement: &Maintenance) -> Result<()> {
    for option in &statement.passed_over {
        let message = format!("{option} has no effect: ANALYZE keeps nobody from his work");
        context.notice("WARNING", SqlState::FEATURE_NOT_SUPPORTED, message);
    }
    let mut targets: Vec<(Oid, Vec<String>)> = Vec::new();
    for (relation, columns) in &statement.tables {
        let (name, found) = context.find(&object_name(relation))?;
        match found {
            Some(Relation::Table(oid)) => targets.push((oid, columns.clone())),
            Some(_) => {
                let message =
                    format!("skipping \"{name}\" --- cannot analyze non-tables or special system tables");
                context.notice("WARNING", SqlState::SUCCESSFUL_COMPLETION, message);
            }
            None => return Err(super::no_relation(&name)),
        }
    }
    if statement.tables.is_empty() {
        targets.extend(context.catalog.tables.keys().map(|&oid| (oid, Vec::new())));
    }
    for (oid, columns) in targets {
        if let Some(table) = hold(context, oid)? {
            if context.check_owner(table.owner, "table", &table.name).is_err() {
                let message =
                    format!("skipping \"{}\" --- only table or database owner can analyze it", table.name);
                context.notice("WARNING", SqlState::SUCCESSFUL_COMPLETION, message);
                continue;
            }
            analyze_table(context, &table, &columns, statement.verbose)?;
        }
    }
    Ok(())
}

/// The table, held against a change of its definition; `None` when it is gone.
fn hold(context: &DdlContext<'_>, oid: Oid) -> Result<Option<Arc<Table>>> {
    storage::hold_table(&mut context.transaction.borrow_mut(), context.catalog, oid)
}

fn analyze_table(
    context: &mut DdlContext<'_>,
    table: &Arc<Table>,
    only: &[String],
    verbose: bool,
) -> Result<()> {
    let mut numbers: Vec<ColumnNumber> = Vec::new();
    for name in only {
        let position = table.find_column(name).ok_or_else(|| no_column(name, &table.name))?;
        numbers.push(table.columns[position].number);
    }
    let sample = Sample::take(context, table)?;
    if verbose {
        let message = format!(
            "\"{}\": scanned {} of {:.0} pages, containing {} rows; {} rows in sample, {} estimated total rows",
            table.name,
            sample.leaves_read,
            sample.pages,
            sample.seen,
            sample.rows.len(),
            sample.total
        );
        context.notice("INFO", SqlState::SUCCESSFUL_COMPLETION, message);
    }
    let before = context.catalog.statistics.get(&table.oid);
    let mut columns = match before {
        Some(before) if !only.is_empty() => before.columns.clone(),
        _ => std::collections::BTreeMap::new(),
    };
    for (position, column) in table.columns.iter().enumerate() {
        if only.is_empty() || numbers.contains(&column.number) {
            context.check()?;
            let values = sample.values(table, position)?;
            columns.insert(column.number, column_statistics(column, values, sample.total));
        }
    }
    let statistics = TableStatistics {
        rows: sample.total as f64,
        pages: sample.pages,
        columns,
        analyzed_at: context.session.statement_start,
        revision: 0,
    };
    let catalog = Arc::make_mut(context.catalog);
    storage::put_statistics(&mut context.transaction.borrow_mut(), catalog, table.oid, statistics)
}

/// A row of the sample. The order is that of the numbers drawn.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sampled {
    drawn: u64,
    place: u64,
    key: Vec<u8>,
    row: Vec<u8>,
}

#[derive(Debug)]
struct Sample {
    /// In the order of the table.
    rows: Vec<Sampled>,
    /// Rows that were on the leaves read.
    seen: u64,
    /// Rows of the table, estimated unless all leaves were read.
    total: u64,
    leaves_read: u64,
    /// Leaves of the table.
    pages: f64,
    _memory: WorkMemory,
}

/// Rows with the smallest numbers of those that came by.
struct Reservoir<'e> {
    heap: BinaryHeap<Sampled>,
    target: usize,
    held: u64,
    memory: WorkMemory,
    engine: &'e Engine,
}

impl Reservoir<'_> {
    fn offer(&mut self, place: u64, key: &[u8], row: &[u8]) -> Result<()> {
        let drawn = random::next_u64();
        if self.heap.len() >= self.target && self.heap.peek().is_some_and(|largest| drawn > largest.drawn) {
            return Ok(());
        }
        let size = |sampled: &Sampled| (sampled.key.len() + sampled.row.len()) as u64 + ROW_OVERHEAD;
        let sampled = Sampled { drawn, place, key: key.to_vec(), row: row.to_vec() };
        self.held += size(&sampled);
        self.heap.push(sampled);
        // Where memory ends, the sample is made smaller.
        if self.held > self.memory.bytes() {
            let step = (self.held - self.memory.bytes()).next_multiple_of(MEMORY_STEP);
            let allowed = self.memory.bytes() + step <= self.engine.work_limit();
            if !allowed || self.memory.grow(step).is_err() {
                if self.heap.len() < 2 {
                    self.memory.grow(step)?;
                }
                self.target = (self.heap.len() / 2).max(1);
            }
        }
        while self.heap.len() > self.target {
            self.held -= self.heap.pop().map_or(0, |largest| size(&largest));
        }
        Ok(())
    }
}

impl Sample {
    fn take(context: &DdlContext<'_>, table: &Table) -> Result<Self> {
        let tree = context.tree(&table.storage)?;
        let engine = &context.session.engine;
        let (heap, memory) = (BinaryHeap::new(), engine.work_memory(0)?);
        let mut reservoir = Reservoir { heap, target: SAMPLE, held: 0, memory, engine };
        let mut source = context.latest_view().sample(&tree, SAMPLE)?;
        let (mut seen, mut failed) = (0_u64, Ok(()));
        while source.read_leaf(&mut |key, row| {
            if failed.is_ok() {
                failed = reservoir.offer(seen, key, row);
            }
            seen += 1;
        })? {
            context.check()?;
            std::mem::replace(&mut failed, Ok(()))?;
        }
        let (leaves_read, pages) = (source.leaves_read(), source.leaf_pages());
        let total = if leaves_read as f64 >= pages {
            seen
        } else {
            (seen as f64 / leaves_read.max(1) as f64 * pages).round() as u64
        };
        let mut rows = reservoir.heap.into_vec();
        rows.sort_unstable_by_key(|sampled| sampled.place);
        Ok(Sample { rows, seen, total, leaves_read, pages, _memory: reservoir.memory })
    }

    fn values(&self, table: &Table, position: usize) -> Result<Vec<Value>> {
        let mut values = Vec::with_capacity(self.rows.len());
        for sampled in &self.rows {
            table.codec().decode_row(&sampled.key, &sampled.row, &[position], &mut values)?;
        }
        Ok(values)
    }
}

/// Bytes of a value as it is stored, about.
fn width(value: &Value, ty: Type) -> usize {
    match value {
        Value::Text(text) | Value::Padded(text) => text.len() + 1,
        Value::Bytes(bytes) => bytes.len() + 1,
        Value::Numeric(numeric) => numeric.heap_bytes().clamp(5, 64),
        _ => usize::try_from(ty.len()).unwrap_or(8),
    }
}

fn show(value: &Value, ty: Type) -> String {
    let mut out = String::new();
    text::write(value, ty, &TextStyle::default(), &mut out);
    out
}

/// A value and how often it is there.
#[derive(Clone, Copy)]
struct Run {
    first: usize,
    count: usize,
}

fn column_statistics(column: &Column, values: Vec<Value>, total: u64) -> ColumnStatistics {
    let sampled = values.len();
    if sampled == 0 {
        return ColumnStatistics::default();
    }
    let mut nulls = 0_usize;
    let mut wide = 0_usize;
    let mut bytes = 0_usize;
    let mut sorted: Vec<(Value, usize)> = Vec::with_capacity(sampled);
    for value in values {
        if value.is_null() {
            nulls += 1;
            continue;
        }
        let width = width(&value, column.ty);
        bytes += width;
        if width > WIDEST {
            wide += 1;
        } else {
            let place = sorted.len();
            sorted.push((value, place));
        }
    }
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let runs = runs(&sorted);
    let filled = sampled - nulls;
    let null_fraction = nulls as f64 / sampled as f64;
    let distinct = distinct(&runs, filled, wide, sampled, total, null_fraction);
    let (common, rest) = common(&runs, distinct, (sampled, nulls), wide, total);
    ColumnStatistics {
        null_fraction,
        width: if filled == 0 { 0.0 } else { bytes as f64 / filled as f64 },
        distinct,
        common: common
            .iter()
            .map(|run| (show(&sorted[run.first].0, column.ty), run.count as f64 / sampled as f64))
            .collect(),
        histogram: histogram(&sorted, &rest, column.ty),
        correlation: correlation(&sorted),
    }
}

fn runs(sorted: &[(Value, usize)]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (place, (value, _)) in sorted.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if sorted[run.first].0 == *value => run.count += 1,
            _ => runs.push(Run { first: place, count: 1 }),
        }
    }
    runs
}

/// The number of distinct values: as it is, or negative, as a share of the rows.
fn distinct(runs: &[Run], filled: usize, wide: usize, sampled: usize, total: u64, null_fraction: f64) -> f64 {
    if filled == 0 {
        return 0.0;
    }
    let repeated = runs.iter().filter(|run| run.count > 1).count();
    let distinct = if repeated == 0 {
        // No value came twice: they are taken for unique.
        return -(1.0 - null_fraction);
    } else if wide == 0 && repeated == runs.len() {
        // Every value came more than once: there are no others.
        runs.len() as f64
    } else {
        // The estimator of Haas and Stokes (Duj1), with long values taken for unique.
        let once = (runs.len() - repeated + wide) as f64;
        let found = once + repeated as f64;
        let rows = sampled as f64;
        let all = total as f64 * (1.0 - null_fraction);
        let seen = rows - (sampled - filled) as f64;
        let estimate = if all > 0.0 { seen * found / ((seen - once) + once * seen / all) } else { 0.0 };
        estimate.clamp(found, all.max(found)).round()
    };
    if distinct > 0.1 * total as f64 { -(distinct / total as f64) } else { distinct }
}

/// The most common values, most common first, and the runs that are left, in order.
fn common(
    runs: &[Run],
    distinct: f64,
    (sampled, nulls): (usize, usize),
    wide: usize,
    total: u64,
) -> (Vec<Run>, Vec<Run>) {
    let complete = wide == 0 && distinct > 0.0 && runs.len() <= TARGET;
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|&run| std::cmp::Reverse(runs[run].count));
    let keep = if complete {
        runs.len()
    } else {
        let repeated = order.iter().take(TARGET).take_while(|&&run| runs[run].count > 1).count();
        let counts: Vec<f64> = order[..repeated].iter().map(|&run| runs[run].count as f64).collect();
        let distinct = if distinct < 0.0 { -distinct * total as f64 } else { distinct };
        outstanding(&counts, distinct, nulls, sampled as f64, total as f64)
    };
    let mut chosen = vec![false; runs.len()];
    order[..keep].iter().for_each(|&run| chosen[run] = true);
    let common = order[..keep].iter().map(|&run| runs[run]).collect();
    let rest = runs.iter().zip(&chosen).filter(|(_, chosen)| !**chosen).map(|(run, _)| *run).collect();
    (common, rest)
}

/// How many of the most common values are worth a place in the list: those that are in the sample clearly more often than the
/// others would be, if they were all alike (`analyze_mcv_list` in PostgreSQL). `counts`: descending.
fn outstanding(counts: &[f64], distinct: f64, nulls: usize, sampled: f64, total: f64) -> usize {
    let mut keep = counts.len();
    if sampled >= total || total <= 1.0 {
        return keep;
    }
    let mut before: f64 = counts.iter().take(keep.saturating_sub(1)).sum();
    while keep > 0 {
        let count = counts[keep - 1];
        let others = (distinct - (keep as f64 - 1.0)).max(1.0);
        let share = (1.0 - before / sampled - nulls as f64 / sampled).clamp(0.0, 1.0) / others;
        let expected_in_table = total * count / sampled;
        let variance = sampled * expected_in_table * (total - expected_in_table) * (total - sampled)
            / (total * total * (total - 1.0));
        if count > share * sampled + 2.0 * variance.max(0.0).sqrt() + 0.5 {
            break;
        }
        keep -= 1;
        if keep > 0 {
            before -= counts[keep - 1];
        }
    }
    keep
}

/// Values that divide those that are not among the most common ones into equal parts.
fn histogram(sorted: &[(Value, usize)], rest: &[Run], ty: Type) -> Vec<String> {
    if rest.len() < 2 {
        return Vec::new();
    }
    let places: Vec<usize> = rest.iter().flat_map(|run| run.first..run.first + run.count).collect();
    let bounds = rest.len().min(TARGET + 1);
    (0..bounds)
        .map(|bound| {
            let place = bound * (places.len() - 1) / (bounds - 1);
            show(&sorted[places[place]].0, ty)
        })
        .collect()
}

/// Between the order of the rows and that of the values.
fn correlation(sorted: &[(Value, usize)]) -> f64 {
    let n = sorted.len() as f64;
    if sorted.len() < 2 {
        return if sorted.is_empty() { 0.0 } else { 1.0 };
    }
    let products: f64 = sorted.iter().enumerate().map(|(rank, (_, place))| rank as f64 * *place as f64).sum();
    let sum = (n - 1.0) * n / 2.0;
    let squares = (n - 1.0) * n * (2.0 * n - 1.0) / 6.0;
    (n * products - sum * sum) / (n * squares - sum * sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: Vec<Value>, total: u64) -> ColumnStatistics {
        let column = Column {
            number: 1,
            name: "a".to_owned(),
            ty: Type::Int4,
            modifier: -1,
            not_null: false,
            default: None,
            missing: None,
        };
        column_statistics(&column, values, total)
    }

    #[test]
    fn a_unique_column_in_order() {
        let found = of((0..1000).map(Value::Int).collect(), 1000);
        assert_eq!((found.distinct, found.null_fraction, found.width), (-1.0, 0.0, 4.0));
        assert!(found.common.is_empty() && found.histogram.len() == 101);
        assert!((found.correlation - 1.0).abs() < 1e-9);
        assert_eq!((found.histogram[0].as_str(), found.histogram[100].as_str()), ("0", "999"));
    }

    #[test]
    fn few_values_are_all_common() {
        let values = (0..1000).map(|n| if n % 4 == 0 { Value::Null } else { Value::Int(n % 4) });
        let found = of(values.collect(), 1000);
        assert_eq!(found.distinct, 3.0);
        assert_eq!(found.null_fraction, 0.25);
        assert!(found.histogram.is_empty());
        assert_eq!(found.common.len(), 3);
        assert!((found.common[0].1 - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_sample_of_many_repeats_is_scaled() {
        // Of 1,000,000 rows with about 50,000 values, 30,000 were seen.
        let values = (0..30_000_i64).map(|n| Value::Int(n * 7919 % 50_000 / 2 * 2)).collect();
        let found = of(values, 1_000_000);
        assert!(found.distinct > 15_000.0, "{}", found.distinct);
    }

    #[test]
    fn values_that_stand_out_are_common() {
        // One value is in a tenth of the rows, the others come about as often as each other.
        let values = (0..30_000_i64).map(|n| Value::Int(if n % 10 == 0 { -1 } else { n % 9000 }));
        let found = of(values.collect(), 3_000_000);
        assert_eq!(found.common.len(), 1, "{:?}", found.common);
        assert!(found.common[0].0 == "-1" && (found.common[0].1 - 0.1).abs() < 1e-9);
        assert_eq!(found.histogram.len(), 101);
    }

    #[test]
    fn nothing_comes_of_nothing() {
        assert_eq!(of(Vec::new(), 0).distinct, 0.0);
        let found = of(vec![Value::Null; 5], 5);
        assert_eq!((found.null_fraction, found.distinct), (1.0, 0.0));
        assert!(of(vec![Value::Int(1)], 1).histogram.is_empty());
    }
}
