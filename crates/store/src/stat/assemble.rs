//! Figures for the report, from what was counted or sampled.

use super::across::Across;
use super::instant::Sample;
use super::leaf::{ENTRY_OVERHEAD, Leading, Leaf};
use super::maps::Owners;
use super::records::{Counted, Tally};
use super::report::{DuplicateStat, FILL_STEPS, Figure, OrderStat, SpaceStat, TreeContents, TreeStat};
use super::{Unreadable, Wanted, is_known_owner};
use crate::check::Trees;
use crate::shared::Shared;
use crate::space::SYSTEM;
use crate::undo::UNDO_PAGES;
use gannet_base::TreeId;
use std::collections::BTreeMap;

/// Leaves with long values that the sample must have, so that it tells by how much their number and bytes may be off.
const SPREAD_IS_KNOWN: usize = 30;

/// What is known of the pages.
pub(super) enum Parts {
    Counted(Counted),
    Sampled {
        /// Pages in use, by the owner of their extent.
        used: Owners,
        samples: BTreeMap<TreeId, Sample>,
        bytes_read: u64,
    },
}

impl Parts {
    pub(super) fn bytes_read(&self) -> u64 {
        match self {
            Parts::Counted(counted) => counted.bytes_read,
            Parts::Sampled { bytes_read, .. } => *bytes_read,
        }
    }

    fn used(&self) -> Owners {
        match self {
            Parts::Counted(counted) => {
                let unseen = counted.unseen as f64;
                let figure = |(&tree, &pages)| (tree, Figure { error: unseen, ..Figure::exact(pages) });
                let pages = counted.used.iter().map(figure).collect();
                Owners { pages, unseen }.with_own_roots()
            }
            Parts::Sampled { used, .. } => used.clone(),
        }
    }
}

/// Where the file's pages are.
pub(super) fn space(shared: &Shared, all: &Trees, parts: &Parts) -> SpaceStat {
    let mut space = SpaceStat { file_pages: shared.core.space.capacity(), ..SpaceStat::default() };
    let owners = parts.used();
    // Of whom nothing was seen may have some all the same.
    let unseen = Figure { value: 0.0, error: owners.unseen };
    let mut used = unseen;
    (space.undo_pages, space.passing_pages) = (owners.of(UNDO_PAGES), unseen);
    for (tree, pages) in owners.pages {
        add(&mut used, pages);
        match tree {
            SYSTEM => space.system_pages = pages,
            UNDO_PAGES => {}
            _ if !is_known_owner(tree, all) => add(&mut space.passing_pages, pages),
            _ => {}
        }
    }
    if let Parts::Counted(_) = parts {
        // Each of them is one owner's only, or free.
        used.error = unseen.error;
    }
    space.free_pages = Figure { value: (space.file_pages as f64 - used.value).max(0.0), error: used.error };
    space
}

fn add(sum: &mut Figure, more: Figure) {
    sum.value += more.value;
    sum.error += more.error;
}

/// The trees, by number.
pub(super) fn trees(
    shared: &Shared,
    wanted: &Wanted,
    leading: &BTreeMap<TreeId, Leading>,
    parts: &Parts,
    unreadable: &Unreadable,
) -> Vec<TreeStat> {
    let used = parts.used();
    let unreadable = unreadable.by_tree.lock();
    let one = |(&tree, known): (&TreeId, &super::Known)| {
        let pages = used.of(tree);
        let has_leading = leading.contains_key(&tree);
        let contents = match parts {
            Parts::Counted(counted) => {
                let tally = counted.trees.get(&tree);
                let page_size = shared.core.page_size;
                tally.map(|tally| counted_contents(tree, tally, &counted.across, page_size, has_leading))
            }
            Parts::Sampled { samples, .. } => {
                let sample = samples.get(&tree).filter(|sample| !sample.leaves.is_empty());
                sample.map(|sample| sampled_contents(sample, pages, shared.core.page_size, has_leading))
            }
        };
        TreeStat {
            tree: tree.0,
            name: known.name.clone(),
            pages,
            contents,
            unreadable_pages: unreadable.get(&tree.0).copied().unwrap_or(0),
        }
    };
    wanted.trees.iter().map(one).collect()
}

/// What is counted of leaves: it says how much of it a leaf may have.
#[derive(Clone, Copy)]
enum What {
    Entries,
    Bytes,
    Leaves,
}

/// Tells what a leaf has of something.
type Of<'o> = &'o dyn Fn(&Leaf) -> u64;

/// Sums over a tree's leaves, and ratios of such, which are so much of a leaf's own at most where none has any.
struct Sums<'s> {
    total: &'s dyn Fn(What, Of<'_>) -> Figure,
    ratio: &'s dyn Fn(Of<'_>, Of<'_>, f64) -> Figure,
    page_size: usize,
}

impl Sums<'_> {
    fn percent(&self, above: Of<'_>, below: Of<'_>) -> Figure {
        let part = (self.ratio)(above, below, 1.0);
        Figure { value: 100.0 * part.value, error: 100.0 * part.error }
    }

    /// What only leaves tell.
    fn contents(&self) -> TreeContents {
        let entries = |of: fn(&Leaf) -> u64| (self.total)(What::Entries, &of);
        let bytes = |of: fn(&Leaf) -> u64| (self.total)(What::Bytes, &of);
        let row_bytes = |leaf: &Leaf| leaf.key_bytes + leaf.value_bytes + leaf.long_bytes;
        let fill = |step: usize| (self.total)(What::Leaves, &move |leaf| leaf.fill[step]);
        TreeContents {
            entries: entries(|leaf| leaf.entries),
            rows: entries(|leaf| leaf.rows),
            dead_entries: entries(|leaf| leaf.dead),
            uncommitted_entries: entries(|leaf| leaf.uncommitted),
            unsettled_entries: entries(|leaf| leaf.unsettled),
            key_bytes: bytes(|leaf| leaf.key_bytes),
            value_bytes: bytes(|leaf| leaf.value_bytes),
            dead_bytes: bytes(|leaf| leaf.dead_bytes),
            long_values: entries(|leaf| leaf.long_values),
            long_value_bytes: bytes(|leaf| leaf.long_bytes),
            average_row_bytes: (self.ratio)(&row_bytes, &|leaf| leaf.with_bytes, self.page_size as f64),
            fill_percent: self.percent(&|leaf| leaf.used_bytes, &|leaf| leaf.page_bytes),
            fill_leaves: std::array::from_fn::<_, FILL_STEPS, _>(fill),
            free_bytes: bytes(|leaf| leaf.free_bytes),
            free_percent: self.percent(&|leaf| leaf.free_bytes, &|leaf| leaf.page_bytes),
            ..TreeContents::default()
        }
    }
}

fn counted_contents(
    tree: TreeId,
    tally: &Tally,
    across: &Across,
    page_size: usize,
    has_leading: bool,
) -> TreeContents {
    let leaf = &tally.leaf;
    let sums = Sums {
        total: &|_, of| Figure::exact(of(leaf)),
        ratio: &|above, below, _| Figure {
            value: above(leaf) as f64 / (below(leaf).max(1)) as f64,
            error: 0.0,
        },
        page_size,
    };
    let steps = tally.steps;
    let (more, longest) = across.runs_of(tree);
    // Where what goes over several leaves was not all put together: entries that may go on from the leaf before, and steps from leaf to leaf.
    let (mut apart, mut unseen) = (0, 0.0);
    if !across.is_complete() {
        apart = leaf.goes_on.saturating_sub(more);
        let all = leaf.leaves.saturating_sub(1);
        unseen = 100.0 * all.saturating_sub(steps.steps) as f64 / all.max(1) as f64;
    }
    let percent =
        |part: u64| Figure { value: 100.0 * part as f64 / steps.steps.max(1) as f64, error: unseen };
    let duplicates = DuplicateStat {
        total: Figure { error: apart as f64, ..Figure::exact(leaf.duplicates + more) },
        longest: longest.max(tally.longest),
        longest_is_exact: across.is_complete(),
    };
    let mut contents = TreeContents {
        leaves_read: leaf.leaves,
        depth: tally.level + 1,
        leaf_pages: Figure::exact(leaf.leaves),
        inner_pages: Figure::exact(tally.inner_pages),
        long_value_pages: Figure::exact(tally.long_pages),
        unwritten_pages: Some(Figure::exact(tally.unwritten_pages)),
        old_versions: Some(Figure::exact(tally.old_versions)),
        old_version_bytes: Some(Figure::exact(tally.old_version_bytes)),
        duplicates: has_leading.then_some(duplicates),
        order: OrderStat {
            steps: steps.steps,
            scattered_percent: percent(steps.scattered),
            backward_percent: percent(steps.backward),
        },
        ..sums.contents()
    };
    if leaf.with_bytes == 0 {
        length_is_unknown(&mut contents, page_size);
    }
    contents
}

/// None of the rows that were looked at has its bytes on a leaf, as somebody is deleting them: on average they are no longer than a page, and what
/// long values take.
fn length_is_unknown(contents: &mut TreeContents, page_size: usize) {
    let (rows, long) = (contents.rows, contents.long_value_pages);
    if rows != Figure::exact(0) {
        contents.average_row_bytes.error = (1.0 + long.value + long.error) * page_size as f64;
    }
}

fn sampled_contents(sample: &Sample, pages: Figure, page_size: usize, has_leading: bool) -> TreeContents {
    let mean =
        |of: fn(&Leaf) -> u64| sample.leaves.iter().map(of).sum::<u64>() as f64 / sample.leaves.len() as f64;
    let (entries, bytes) = (mean(|leaf| leaf.entries), mean(|leaf| leaf.used_bytes));
    // Where all that were looked at are empty, others need not be.
    let entries = if entries > 0.0 { entries } else { (page_size / ENTRY_OVERHEAD) as f64 };
    let most = |what: What| match what {
        What::Entries => entries,
        What::Bytes => bytes,
        What::Leaves => 1.0,
    };
    let sums = Sums {
        total: &|what, of| sample.total(of, most(what)),
        ratio: &|above, below, most| sample.ratio(above, below, most),
        page_size,
    };
    let mut contents = TreeContents {
        leaves_read: sample.leaves.len() as u64,
        depth: sample.depth,
        leaf_pages: sample.leaf_pages,
        inner_pages: sample.inner_pages,
        order: OrderStat {
            steps: sample.parents.iter().map(|steps| steps.steps).sum(),
            scattered_percent: sample.steps(|steps| steps.scattered),
            backward_percent: sample.steps(|steps| steps.backward),
        },
        ..sums.contents()
    };
    contents.duplicates = has_leading.then(|| {
        let may_go_on = sample.total(&|leaf| leaf.goes_on, 1.0);
        let mut total = sample.total(&|leaf| leaf.duplicates + leaf.goes_on, entries);
        if sample.leaf_pages.value > 1.0 {
            total.error += may_go_on.value;
        }
        let longest_is_exact = sample.leaf_pages == Figure::exact(1);
        DuplicateStat { total, longest: sample.longest, longest_is_exact }
    });
    long_values(&mut contents, sample, pages, page_size);
    if sample.leaves.iter().all(|leaf| leaf.with_bytes == 0) {
        length_is_unknown(&mut contents, page_size);
    }
    contents
}

/// A tree's pages that are no nodes are those of long values: so few long values, or such long ones, that the sample has none of them
/// are not overlooked.
fn long_values(contents: &mut TreeContents, sample: &Sample, pages: Figure, page_size: usize) {
    let nodes = Figure {
        value: sample.leaf_pages.value + sample.inner_pages.value,
        error: sample.leaf_pages.error + sample.inner_pages.error,
    };
    let rest = Figure { value: (pages.value - nodes.value).max(0.0), error: pages.error + nodes.error };
    let seen = sample.leaves.iter().filter(|leaf| leaf.long_values > 0).count();
    let most = rest.value + rest.error;
    contents.long_value_pages =
        if seen > 0 || rest.is_exact() { rest } else { Figure { value: 0.0, error: most } };
    if sample.is_whole() || seen >= SPREAD_IS_KNOWN {
        return;
    }
    // Each has a page and a list at least. What the sample says of its own error is of no use where it has none.
    let off = |figure: Figure, most: f64| Figure {
        error: if seen == 0 { most } else { figure.error.max(most) },
        ..figure
    };
    contents.long_values = off(contents.long_values, most / 2.0);
    contents.long_value_bytes = off(contents.long_value_bytes, most * page_size as f64);
    let with_bytes = sample.total(&|leaf| leaf.with_bytes, 0.0).value;
    if with_bytes > 0.0 {
        contents.average_row_bytes.error += most * page_size as f64 / with_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::super::across::Edge;
    use super::super::order::Steps;
    use super::*;
    use crate::shared::CATALOG;
    use crate::{Engine, EngineOptions};
    use gannet_io::sim::SimDisk;
    use std::sync::Arc;

    const PAGE: usize = 4096;

    /// Five leaves, three of which may go on with what the leaf before ends with, as a run over the first three of them does.
    fn contents(limit: u64) -> TreeContents {
        let options = EngineOptions { memory: 8 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        let (tree, mut across) = (TreeId(9), Across::new(&engine, limit).unwrap());
        (0..3).for_each(|_| across.add_run(tree, Edge { hash: 7, count: 4 }));
        let leaf = Leaf { leaves: 5, duplicates: 10, goes_on: 3, ..Leaf::default() };
        let steps = Steps { steps: 3, scattered: 2, backward: 0 };
        counted_contents(tree, &Tally { leaf, steps, ..Tally::default() }, &across, PAGE, true)
    }

    #[test]
    fn what_was_not_put_together_for_want_of_memory_was_called_exact() {
        let whole = contents(1 << 20);
        assert_eq!(whole.duplicates.unwrap().total, Figure::exact(12));
        assert!(whole.order.scattered_percent.is_exact() && whole.order.backward_percent.is_exact());
        let partial = contents(0);
        let duplicates = partial.duplicates.unwrap();
        assert_eq!(duplicates.total, Figure { value: 10.0, error: 3.0 });
        assert!(!duplicates.longest_is_exact);
        // The fourth step may be of either kind.
        let OrderStat { scattered_percent, backward_percent, .. } = partial.order;
        assert!(scattered_percent.covers(50.0) && scattered_percent.covers(75.0), "{scattered_percent:?}");
        assert_eq!(backward_percent, Figure { value: 0.0, error: 25.0 });
    }

    #[test]
    fn what_no_space_map_tells_may_be_anybodys() {
        let options = EngineOptions { memory: 8 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        // Two groups: the first one's map could not be read, which lists the roots.
        let used = BTreeMap::from([(SYSTEM, 2), (TreeId(20), 50)]);
        let across = Across::new(&engine, 0).unwrap();
        let counted = Counted { trees: BTreeMap::new(), used, unseen: 160, across, bytes_read: 0 };
        let owners = Parts::Counted(counted).used();
        let off = |value: f64| Figure { value, error: 160.0 };
        assert_eq!((owners.of(TreeId(20)), owners.of(TreeId(21))), (off(50.0), off(0.0)));
        assert_eq!((owners.of(CATALOG), owners.of(SYSTEM)), (off(1.0), off(0.0)));
    }

    /// Four leaves of a hundred.
    fn sampled(leaf: Leaf) -> TreeContents {
        let sample = Sample {
            leaf_pages: Figure::exact(100),
            inner_pages: Figure::exact(2),
            depth: 3,
            leaves: vec![Leaf { leaves: 1, page_bytes: PAGE as u64, used_bytes: 100, ..leaf }; 4],
            longest: 0,
            parents: vec![Steps::default()],
            parent_pages: Figure::exact(2),
        };
        sampled_contents(&sample, Figure::exact(102), PAGE, true)
    }

    #[test]
    fn of_what_the_sample_had_nothing_the_rest_was_said_to_have_exactly_none() {
        let empty = sampled(Leaf { free_bytes: 3996, ..Leaf::default() });
        // As many as a leaf with a few short rows has.
        assert!(empty.entries.covers(96.0 * 20.0) && empty.rows.covers(96.0 * 20.0), "{empty:?}");
        assert!(empty.average_row_bytes.covers(100.0), "{:?}", empty.average_row_bytes);
        assert!(!empty.duplicates.unwrap().total.is_exact());
        // The other parent may have any steps.
        assert!(empty.order.backward_percent.covers(100.0) && empty.order.scattered_percent.covers(100.0));
        let full = sampled(Leaf { entries: 40, rows: 40, with_bytes: 40, key_bytes: 40, ..Leaf::default() });
        assert!(full.free_percent.covers(50.0) && !full.free_bytes.is_exact(), "{:?}", full.free_percent);
        // Rows that somebody is deleting have no length here.
        let going = sampled(Leaf { entries: 40, rows: 40, ..Leaf::default() });
        assert!(going.rows.covers(4000.0) && going.average_row_bytes.covers(100.0), "{going:?}");
    }
}
