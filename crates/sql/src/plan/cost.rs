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

/// The cost of a page that is not in memory.
fn device(reading: Reading) -> f64 {
    match reading {
        Reading::Sequential => SEQUENTIAL,
        Reading::Serial => SERIAL,
        Reading::Batched => BATCHED,
    }
}

/// The cost of reading `pages` of a tree.
pub(super) fn pages(pages: f64, tree_pages: f64, reading: Reading, settings: &PlannerSettings) -> f64 {
    let memory = resident(tree_pages, settings);
    pages * (memory * HIT + (1.0 - memory) * device(reading))
}

/// The cost of reading the pages of a tree on which `rows` of its rows stand, one row after the other in random order: each different page, and each
/// one again that memory has forgotten until another of its rows is wanted. (After L. F. Mackert and G. M. Lohman, "Index scans using a finite LRU buffer", 1989,
/// with a memory that is full from the beginning.)
pub(super) fn scattered(rows: f64, tree_pages: f64, reading: Reading, settings: &PlannerSettings) -> f64 {
    let different = distinct_pages(rows, tree_pages);
    let again = (rows - different).max(0.0) * (1.0 - resident(tree_pages, settings));
    pages(different, tree_pages, reading, settings) + again * device(reading)
}

/// How many different pages `rows` random rows of a tree stand on.
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
    // A million rows take 0.04 of these units each where they are sorted in memory by a whole number, twice as much by a text.
    let comparison = OPERATION * (0.7 + 0.1 * keys as f64);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_memory_forgets_are_read_again_for_each_row() {
        let pages = 10_000.0;
        let settings = |share: f64| PlannerSettings::new((pages * PAGE_BYTES * share / 0.75) as u64, 1 << 20);
        let cost = |rows: f64, share: f64| scattered(rows, pages, Reading::Batched, &settings(share));
        // All in memory, or few rows: each page once.
        let once = |rows: f64, share: f64| {
            super::pages(distinct_pages(rows, pages), pages, Reading::Batched, &settings(share))
        };
        assert_eq!(cost(400_000.0, 1.5), once(400_000.0, 1.5));
        assert!(cost(100.0, 0.5) < 1.01 * once(100.0, 0.5));
        // With half of it in memory every other row waits for a page.
        let misses = cost(400_000.0, 0.5) / BATCHED;
        assert!((190_000.0..210_000.0).contains(&misses), "{misses}");
        let by_sort = super::pages(pages, pages, Reading::Sequential, &settings(0.5))
            + sort(400_000.0, 200.0, 1, None, &settings(0.5));
        assert!(cost(400_000.0, 0.5) > 2.0 * by_sort, "{by_sort}");
    }
}
