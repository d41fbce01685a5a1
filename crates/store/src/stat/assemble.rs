//! Figures for the report, from what was counted or sampled.

use super::across::Across;
use super::instant::Sample;
use super::leaf::{Leading, Leaf};
use super::records::{Counted, Tally};
use super::report::{DuplicateStat, FILL_STEPS, Figure, OrderStat, SpaceStat, TreeContents, TreeStat};
use super::{Unreadable, Wanted, is_known_owner};
use crate::check::Trees;
use crate::shared::Shared;
use crate::space::SYSTEM;
use crate::undo::UNDO_PAGES;
use gannet_base::TreeId;
use std::collections::BTreeMap;

/// What is known of the pages.
pub(super) enum Parts {
    Counted(Counted),
    Sampled {
        /// Pages in use, by the owner of their extent.
        used: BTreeMap<TreeId, Figure>,
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

    fn used(&self) -> BTreeMap<TreeId, Figure> {
        match self {
            Parts::Counted(counted) => {
                let figure = |(&tree, &pages)| (tree, Figure::exact(pages));
                let mut used = counted.used.iter().map(figure).collect();
                super::own_roots(&mut used);
                used
            }
            Parts::Sampled { used, .. } => used.clone(),
        }
    }
}

/// Where the file's pages are.
pub(super) fn space(shared: &Shared, all: &Trees, parts: &Parts) -> SpaceStat {
    let mut space = SpaceStat { file_pages: shared.core.space.capacity(), ..SpaceStat::default() };
    let mut used = Figure::default();
    for (tree, pages) in parts.used() {
        add(&mut used, pages);
        match tree {
            SYSTEM => space.system_pages = pages,
            UNDO_PAGES => space.undo_pages = pages,
            _ if !is_known_owner(tree, all) => add(&mut space.passing_pages, pages),
            _ => {}
        }
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
        let pages = used.get(&tree).copied().unwrap_or_default();
        let has_leading = leading.contains_key(&tree);
        let contents = match parts {
            Parts::Counted(counted) => {
                let tally = counted.trees.get(&tree);
                tally.map(|tally| counted_contents(tree, tally, &counted.across, has_leading))
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

/// Sums over a tree's leaves, and ratios of such.
struct Sums<'s> {
    total: &'s dyn Fn(&dyn Fn(&Leaf) -> u64) -> Figure,
    ratio: &'s dyn Fn(&dyn Fn(&Leaf) -> u64, &dyn Fn(&Leaf) -> u64) -> Figure,
}

impl Sums<'_> {
    fn percent(&self, above: &dyn Fn(&Leaf) -> u64, below: &dyn Fn(&Leaf) -> u64) -> Figure {
        let part = (self.ratio)(above, below);
        Figure { value: 100.0 * part.value, error: 100.0 * part.error }
    }

    /// What only leaves tell.
    fn contents(&self) -> TreeContents {
        let total = self.total;
        let row_bytes = |leaf: &Leaf| leaf.key_bytes + leaf.value_bytes + leaf.long_bytes;
        let fill = |step: usize| total(&move |leaf| leaf.fill[step]);
        let mut fill_leaves = [Figure::default(); FILL_STEPS];
        fill_leaves.iter_mut().enumerate().for_each(|(step, figure)| *figure = fill(step));
        TreeContents {
            entries: total(&|leaf| leaf.entries),
            rows: total(&|leaf| leaf.rows),
            dead_entries: total(&|leaf| leaf.dead),
            uncommitted_entries: total(&|leaf| leaf.uncommitted),
            unsettled_entries: total(&|leaf| leaf.unsettled),
            key_bytes: total(&|leaf| leaf.key_bytes),
            value_bytes: total(&|leaf| leaf.value_bytes),
            dead_bytes: total(&|leaf| leaf.dead_bytes),
            long_values: total(&|leaf| leaf.long_values),
            long_value_bytes: total(&|leaf| leaf.long_bytes),
            average_row_bytes: (self.ratio)(&row_bytes, &|leaf| leaf.rows),
            fill_percent: self.percent(&|leaf| leaf.used_bytes, &|leaf| leaf.page_bytes),
            fill_leaves,
            free_bytes: total(&|leaf| leaf.free_bytes),
            free_percent: self.percent(&|leaf| leaf.free_bytes, &|leaf| leaf.page_bytes),
            ..TreeContents::default()
        }
    }
}

fn counted_contents(tree: TreeId, tally: &Tally, across: &Across, has_leading: bool) -> TreeContents {
    let leaf = &tally.leaf;
    let sums = Sums {
        total: &|of| Figure::exact(of(leaf)),
        ratio: &|above, below| Figure { value: above(leaf) as f64 / (below(leaf).max(1)) as f64, error: 0.0 },
    };
    let steps = tally.steps;
    let percent = |part: u64| Figure { value: 100.0 * part as f64 / steps.steps.max(1) as f64, error: 0.0 };
    let (more, longest) = across.runs_of(tree);
    let duplicates = DuplicateStat {
        total: Figure::exact(leaf.duplicates + more),
        longest: longest.max(tally.longest),
        longest_is_exact: across.is_complete(),
    };
    TreeContents {
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
    }
}

fn sampled_contents(sample: &Sample, pages: Figure, page_size: usize, has_leading: bool) -> TreeContents {
    let entries: u64 = sample.leaves.iter().map(|leaf| leaf.entries).sum();
    let each = entries as f64 / sample.leaves.len() as f64;
    let sums = Sums {
        total: &|of| sample.total(of, most(sample, of, each)),
        ratio: &|above, below| sample.ratio(above, below),
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
        let mut total = sample.total(&|leaf| leaf.duplicates + leaf.goes_on, each);
        if sample.leaf_pages.value > 1.0 {
            total.error += may_go_on.value;
        }
        DuplicateStat {
            total,
            longest: sample.longest,
            longest_is_exact: sample.leaf_pages == Figure::exact(1),
        }
    });
    long_values(&mut contents, sample, pages, page_size);
    contents
}

/// What a leaf may have of something that few leaves of a sample have any of: as many as it has entries, if they count entries, else
/// the most that was seen, and no less.
fn most(sample: &Sample, of: &dyn Fn(&Leaf) -> u64, entries: f64) -> f64 {
    sample.leaves.iter().map(of).max().map_or(entries, |seen| entries.max(seen as f64))
}

/// A tree's pages that are no nodes are those of long values: so few long values, or such long ones, that the sample has none of them
/// are not overlooked.
fn long_values(contents: &mut TreeContents, sample: &Sample, pages: Figure, page_size: usize) {
    let nodes = Figure {
        value: sample.leaf_pages.value + sample.inner_pages.value,
        error: sample.leaf_pages.error + sample.inner_pages.error,
    };
    let rest = Figure {
        value: (pages.value - nodes.value).max(0.0),
        error: if pages.is_exact() && nodes.is_exact() { 0.0 } else { pages.error + nodes.error },
    };
    if sample.is_whole() {
        contents.long_value_pages = Figure {
            value: sample.leaves.iter().map(|leaf| leaf.long_pages).sum::<u64>() as f64,
            error: 0.0,
        };
        if contents.long_value_pages.value != rest.value {
            // Others wait to be swept.
            contents.long_value_pages = rest;
        }
        return;
    }
    let seen = sample.leaves.iter().filter(|leaf| leaf.long_values > 0).count();
    let most = rest.value + rest.error;
    contents.long_value_pages = if seen == 0 { Figure { value: 0.0, error: most } } else { rest };
    let spread = |figure: Figure, most: f64| Figure { error: figure.error.max(most), ..figure };
    if seen < 30 {
        // Each has a page and a list at least.
        contents.long_values = spread(contents.long_values, most / 2.0);
        contents.long_value_bytes = spread(contents.long_value_bytes, most * page_size as f64);
        if contents.rows.value > 0.0 {
            let each = most * page_size as f64 / contents.rows.value;
            contents.average_row_bytes =
                spread(contents.average_row_bytes, if most < 2.0 { 0.0 } else { each });
        }
    }
}
