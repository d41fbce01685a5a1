//! Statistics at once: space maps, and a fair sample of each tree's leaves.
//!
//! # How leaves are chosen
//! Level by level from the root down, all trees at a time, so that what is read of one level is one deep batch. Of the nodes below
//! those that were read as many are chosen as the tree's share of the sample allows, spread evenly, one drawn of each
//! stretch. Where all are chosen on each level, figures are exact. How many nodes there are on a level is the number above times the mean
//! number of children, with the error that this has.
//!
//! # Invariants
//! 1. However large the database is, no more pages are read than [`LEAVES`], with at least [`LEAST`] of each of the largest [`TREES`]
//!    trees, leaves and as many nodes of each level above.
//! 2. Pages come into the frames of a ring, and count as used by nobody.
//! 3. A page is verified before it is read as a node. Whatever is not as expected has changed meanwhile, and is passed over, or cannot be
//!    read, and is named.

use super::estimate::{self, total};
use super::leaf::{self, Leading, Leaf};
use super::maps::Owners;
use super::order::Steps;
use super::report::Figure;
use super::{Known, Reading, Unreadable};
use crate::Result;
use crate::jobs::Ending;
use crate::node::{NodeRef, verify_structure};
use crate::page::{self, PageKind};
use crate::pool::SharedPage;
use crate::shared::Shared;
use gannet_base::{PageId, TreeId, TxnId};
use std::collections::BTreeMap;

/// Leaves that are read of all trees together, about.
pub(super) const LEAVES: usize = 512;
/// Leaves of a large tree, at least.
pub(super) const LEAST: usize = 4;
/// Trees of which leaves are read at most: the largest ones.
pub(super) const TREES: usize = 256;

/// Evenly distributed numbers, the same ones for the same seed (Steele, Lea, Flood: SplitMix, 2014).
#[derive(Debug)]
pub(super) struct Draw(pub(super) u64);

impl Draw {
    /// A number from 0 to below 1.
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ bits >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Places among `total`, ascending: all where no fewer are wanted, else one of each of as many equal stretches.
    fn places(&mut self, total: usize, wanted: usize) -> Vec<usize> {
        if wanted >= total {
            return (0..total).collect();
        }
        let step = total as f64 / wanted as f64;
        let mut places: Vec<usize> =
            (0..wanted).map(|stretch| ((stretch as f64 + self.part()) * step) as usize).collect();
        places.dedup();
        places
    }
}

/// The sample of a tree.
#[derive(Debug)]
pub(super) struct Sample {
    /// How many leaves there are.
    pub(super) leaf_pages: Figure,
    pub(super) inner_pages: Figure,
    pub(super) depth: u8,
    pub(super) leaves: Vec<Leaf>,
    /// The longest run of duplicates on one leaf.
    pub(super) longest: u64,
    /// Parents of leaves, one by one, and how many there are.
    pub(super) parents: Vec<Steps>,
    pub(super) parent_pages: Figure,
}

/// A tree whose sample is being drawn.
struct Growing<'l> {
    tree: TreeId,
    horizon: TxnId,
    leading: Option<&'l Leading>,
    /// Leaves, and nodes of each level above, that are read at most.
    share: usize,
    /// The level that is to be read next; not known of a root.
    level: Option<u8>,
    /// Its nodes that were chosen, in the order of their keys.
    chosen: Vec<PageId>,
    /// How many nodes that level has.
    nodes: Figure,
    /// These are all of them.
    complete: bool,
    /// Children of each node that was chosen, as long as it is not known which of them are gone on with.
    children: Vec<usize>,
    /// The last child of the parent before.
    last_child: Option<PageId>,
    sample: Option<Sample>,
}

/// Draws a sample of each of the trees, whose sizes in pages are known about.
pub(super) fn samples(
    shared: &Shared,
    trees: &BTreeMap<TreeId, Known>,
    pages: &Owners,
    leading: &BTreeMap<TreeId, Leading>,
    work: &mut Work<'_>,
) -> Result<BTreeMap<TreeId, Sample>> {
    let begin = |(tree, share): (TreeId, usize)| Growing {
        tree,
        horizon: shared.registry.horizon(),
        leading: leading.get(&tree),
        share,
        level: None,
        chosen: vec![trees[&tree].root],
        nodes: Figure::exact(1),
        complete: true,
        children: Vec::new(),
        last_child: None,
        sample: None,
    };
    let mut growing: Vec<Growing<'_>> = shares(trees, pages).into_iter().map(begin).collect();
    while growing.iter().any(|tree| !tree.chosen.is_empty()) {
        (work.look)()?;
        let batch = batch_of(&growing);
        work.reading.each(&shared.core, &batch.pages, &mut |place, id, page| {
            growing[batch.trees[place]].read(shared, id, page, work);
        });
        growing.iter_mut().for_each(Growing::level_ends);
        // Which children those are, say the nodes that have just been read.
        let mut wanted: Vec<Vec<(usize, usize)>> =
            growing.iter_mut().map(|tree| tree.choose(work.draw)).collect();
        let batch = batch_of(&growing);
        growing.iter_mut().for_each(|tree| tree.chosen.clear());
        work.reading.each(&shared.core, &batch.pages, &mut |place, _, page| {
            let tree = batch.trees[place];
            let slots = &mut wanted[tree];
            let own = slots.partition_point(|&(node, _)| node <= batch.places[place]);
            let of_this: Vec<usize> = slots.drain(..own).map(|(_, slot)| slot).collect();
            growing[tree].take_children(page, &of_this);
        });
    }
    Ok(growing.into_iter().filter_map(|tree| Some((tree.tree, tree.sample?))).collect())
}

/// What drawing a sample takes.
pub(super) struct Work<'w> {
    pub(super) reading: &'w Reading,
    pub(super) unreadable: &'w Unreadable,
    pub(super) ending: &'w Ending,
    pub(super) draw: &'w mut Draw,
    /// Fails when the job is to end.
    pub(super) look: &'w mut dyn FnMut() -> Result<()>,
}

/// Pages of several trees, and for each the tree and its place among those that were chosen there.
#[derive(Default)]
struct Batch {
    pages: Vec<PageId>,
    trees: Vec<usize>,
    places: Vec<usize>,
}

fn batch_of(growing: &[Growing<'_>]) -> Batch {
    let mut batch = Batch::default();
    for (number, tree) in growing.iter().enumerate() {
        for (place, &page) in tree.chosen.iter().enumerate() {
            batch.pages.push(page);
            batch.trees.push(number);
            batch.places.push(place);
        }
    }
    batch
}

/// How many leaves are read of each of the largest trees: small ones have no more, large ones share what is left.
fn shares(trees: &BTreeMap<TreeId, Known>, pages: &Owners) -> Vec<(TreeId, usize)> {
    let size = |tree: TreeId| (pages.of(tree).value as usize).max(1);
    let mut sizes: Vec<(usize, TreeId)> = trees.keys().map(|&tree| (size(tree), tree)).collect();
    sizes.sort_unstable();
    let sizes = sizes.split_off(sizes.len().saturating_sub(TREES));
    let (mut left, count) = (LEAVES, sizes.len());
    let mut shares = Vec::with_capacity(count);
    for (number, (size, tree)) in sizes.into_iter().enumerate() {
        let share = (left / (count - number)).min(size).max(LEAST);
        left = left.saturating_sub(share);
        shares.push((tree, share));
    }
    shares
}

impl Growing<'_> {
    fn read(&mut self, shared: &Shared, id: PageId, page: Result<SharedPage<'_>>, work: &Work<'_>) {
        let unreadable = work.unreadable;
        let place = self.children.len();
        self.children.push(0);
        let page = match page {
            Ok(page) => page,
            Err(error) => return unreadable.add(id, self.tree, error),
        };
        // Merged away meanwhile.
        if page::kind(&page) != Some(PageKind::Node) || page::tree(&page) != self.tree {
            if place == 0 && self.level.is_none() {
                unreadable.add(id, self.tree, "the root of a tree is expected here");
            }
            return;
        }
        if let Err(what) = verify_structure(&page, shared.core.page_size) {
            return unreadable.add(id, self.tree, what);
        }
        let node = NodeRef::new(&page);
        let level = *self.level.get_or_insert(node.level());
        let sample = self.sample.get_or_insert_with(|| Sample::new(level));
        if node.level() != level {
            return;
        }
        if level > 0 {
            self.children[place] = node.count();
            if level == 1 && node.count() > 0 {
                let mut steps = Steps::of_parent(node);
                if let Some(last) = self.last_child.filter(|_| self.complete) {
                    steps.step(last, node.child(0));
                }
                self.last_child = Some(node.child(node.count() - 1));
                sample.parents.push(steps);
            }
            return;
        }
        let mut seen = leaf::look(shared, self.horizon, self.tree, node, self.leading);
        // What is asked for next may be waited for, and not with a latch.
        drop(page);
        if seen.senseless > 0 {
            let what = format_args!("{} of its entries make no sense", seen.senseless);
            unreadable.add(id, self.tree, what);
        }
        seen.resolve(shared, work.reading.access(), work.ending);
        sample.longest = sample.longest.max(seen.runs.longest);
        sample.leaves.push(seen.leaf);
    }

    /// All that were chosen of a level have been read.
    fn level_ends(&mut self) {
        let Some(sample) = self.sample.as_mut().filter(|_| !self.chosen.is_empty()) else {
            self.chosen.clear();
            return;
        };
        match self.level {
            None | Some(0) => {
                sample.leaf_pages = self.nodes;
                self.chosen.clear();
            }
            Some(level) => {
                let above = sample.inner_pages;
                sample.inner_pages =
                    Figure { value: above.value + self.nodes.value, error: above.error + self.nodes.error };
                if level == 1 {
                    sample.parent_pages = self.nodes;
                }
            }
        }
    }

    /// Which children are gone on with, as places among the chosen nodes with slots there.
    fn choose(&mut self, draw: &mut Draw) -> Vec<(usize, usize)> {
        let counts = std::mem::take(&mut self.children);
        let all: usize = counts.iter().sum();
        if self.chosen.is_empty() || all == 0 {
            self.chosen.clear();
            return Vec::new();
        }
        // What could not be read stands for as many as the others.
        let read: Vec<f64> = counts.iter().filter(|&&count| count > 0).map(|&count| count as f64).collect();
        let seldom = 3.0 * self.nodes.value * all as f64 / (read.len() * read.len().max(3)) as f64;
        self.nodes = total(&read, self.nodes, seldom);
        let places = draw.places(all, self.share);
        self.complete &= places.len() == all && read.len() == counts.len();
        self.level = self.level.map(|level| level - 1);
        let (mut slots, mut node, mut passed) = (Vec::with_capacity(places.len()), 0, 0);
        for place in places {
            while place >= passed + counts[node] {
                passed += counts[node];
                node += 1;
            }
            slots.push((node, place - passed));
        }
        slots
    }

    fn take_children(&mut self, page: Result<SharedPage<'_>>, slots: &[usize]) {
        let Ok(page) = page else { return };
        let is_parent = |node: &NodeRef<'_>| Some(node.level()) == self.level.map(|level| level + 1);
        let is_node = page::kind(&page) == Some(PageKind::Node) && page::tree(&page) == self.tree;
        // It may have changed since it was verified.
        if slots.is_empty() || !is_node || verify_structure(&page, page.len()).is_err() {
            return;
        }
        let node = NodeRef::new(&page);
        if is_parent(&node) {
            let there = slots.iter().filter(|&&slot| slot < node.count());
            self.chosen.extend(there.map(|&slot| node.child(slot)));
        }
    }
}

/// As many as there may be: no more are surely all of them.
fn at_most(pages: Figure) -> f64 {
    pages.value + pages.error
}

impl Sample {
    fn new(level: u8) -> Self {
        Sample {
            leaf_pages: Figure::default(),
            inner_pages: Figure::default(),
            depth: level + 1,
            leaves: Vec::new(),
            longest: 0,
            parents: Vec::new(),
            parent_pages: Figure::default(),
        }
    }

    /// Whether every leaf is in it.
    pub(super) fn is_whole(&self) -> bool {
        self.leaf_pages.is_exact() && self.leaves.len() as f64 >= self.leaf_pages.value
    }

    fn each(&self, of: &dyn Fn(&Leaf) -> u64) -> Vec<f64> {
        self.leaves.iter().map(|leaf| of(leaf) as f64).collect()
    }

    /// The total of what leaves have of something; `most`: what one leaf has of it at most, as a rule.
    pub(super) fn total(&self, of: &dyn Fn(&Leaf) -> u64, most: f64) -> Figure {
        let seldom = 3.0 / self.leaves.len().max(3) as f64 * self.leaf_pages.value * most;
        total(&self.each(of), self.leaf_pages, seldom)
    }

    /// The ratio of two sums over leaves; `most`: what a leaf's own may be, where none in the sample has any.
    pub(super) fn ratio(
        &self,
        above: &dyn Fn(&Leaf) -> u64,
        below: &dyn Fn(&Leaf) -> u64,
        most: f64,
    ) -> Figure {
        let (above, below) = (self.each(above), self.each(below));
        let most = if above.iter().any(|&bytes| bytes > 0.0) { 0.0 } else { most };
        estimate::ratio(&above, &below, at_most(self.leaf_pages), most)
    }

    /// A part of all steps between leaves, in percent.
    pub(super) fn steps(&self, of: fn(&Steps) -> u64) -> Figure {
        let each = |of: fn(&Steps) -> u64| self.parents.iter().map(|p| of(p) as f64).collect::<Vec<_>>();
        let share = estimate::ratio(&each(of), &each(|steps| steps.steps), at_most(self.parent_pages), 1.0);
        Figure { value: 100.0 * share.value, error: 100.0 * share.error }
    }
}
