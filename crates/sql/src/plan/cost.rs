//! What operations cost, in units of one page read in sequence from the device, as in PostgreSQL.
//!
//! The model knows three ways to read a page: in sequence, one by one (each waited for), and one of a deep batch, which costs little more than
//! in sequence on a wide device however slow a single read is. Which part of a tree is in memory is guessed from the sizes of both.

use super::path::Conditions;
use crate::session::PlannerSettings;

/// A page read in sequence.
const SEQUENTIAL: f64 = 1.0;
/// A page read alone, and waited for.
const SERIAL: f64 = 12.0;
/// A page read as one of many.
const BATCHED: f64 = 1.6;
/// A page found in memory.
const HIT: f64 = 0.02;
/// Bytes of a page, about.
const PAGE_BYTES: f64 = 8192.0;

/// A row that is decoded and handed on.
pub(super) const ROW: f64 = 0.01;
/// An entry of an index that is gone over.
pub(super) const ENTRY: f64 = 0.005;
/// A simple operation.
pub(super) const OPERATION: f64 = 0.0025;
/// Finding a place in a tree, all in memory.
pub(super) const DESCENT: f64 = 0.03;
/// Added to what is switched off, so that a plan is found all the same.
pub(super) const DISABLED: f64 = 1.0e10;

/// How pages are come by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    Sequential,
    Serial,
    Batched,
}

/// The part of a tree that is in memory, by guess.
fn resident(tree_pages: f64, settings: &PlannerSettings) -> f64 {
    let bytes = tree_pages.max(1.0) * PAGE_BYTES;
    (settings.cache_bytes as f64 * 0.75 / bytes).min(1.0)
}

/// The cost of reading `pages` of a tree.
pub(super) fn pages(pages: f64, tree_pages: f64, reading: Reading, settings: &PlannerSettings) -> f64 {
    let device = match reading {
        Reading::Sequential => SEQUENTIAL,
        Reading::Serial => SERIAL,
        Reading::Batched => BATCHED,
    };
    let memory = resident(tree_pages, settings);
    pages * (memory * HIT + (1.0 - memory) * device)
}

/// How many different pages `rows` random rows of a tree stand on (those that memory forgets meanwhile count again).
pub(super) fn distinct_pages(rows: f64, tree_pages: f64) -> f64 {
    let pages = tree_pages.max(1.0);
    let different = pages * (1.0 - (-rows / pages).exp());
    different.min(rows).max(if rows > 0.0 { 1.0_f64.min(rows) } else { 0.0 })
}

/// The work of conditions for one row.
pub(super) fn conditions(conditions: &Conditions) -> f64 {
    conditions.iter().map(|condition| condition.cost).sum()
}

/// The cost of sorting: until the first row. `kept`: how many rows are wanted.
pub(super) fn sort(rows: f64, width: f64, keys: usize, kept: Option<f64>, settings: &PlannerSettings) -> f64 {
    let rows = rows.max(2.0);
    let comparison = 2.0 * OPERATION * (1.0 + 0.1 * keys as f64);
    let kept = kept.map_or(rows, |kept| kept.clamp(1.0, rows));
    let bytes = kept * (width + 48.0);
    let compare = if kept < rows {
        comparison * (rows + kept * kept.max(2.0).log2() * 2.0)
    } else {
        comparison * rows * rows.log2()
    };
    compare + spill(bytes, settings)
}

/// The cost of what does not fit into an operator's memory: written once and read once.
pub(super) fn spill(bytes: f64, settings: &PlannerSettings) -> f64 {
    if bytes <= settings.work_bytes as f64 { 0.0 } else { 2.0 * bytes / PAGE_BYTES * SEQUENTIAL }
}
