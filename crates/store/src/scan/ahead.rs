//! Reading ahead: what a scan is about to need is known from the inner nodes, and fetched as deep batches.
//!
//! The leaves to come are taken from their parents, a window of growing size at a time, so the device is busy however the
//! leaves are scattered. Those of one batch that lie side by side are read as one request; where few do, the window grows
//! further, as more of them do in a larger batch. Parents are read in their turn: before the last leaf of one is asked for, the parents that come next
//! are asked for themselves, taken from the nodes above them, and so on upwards. In its steady state a scan therefore waits for
//! no page that it has not asked for long before.
//!
//! All of this is a guess. What has changed meanwhile costs a read in vain, or one that is waited for; an inner node that cannot be read is
//! nothing to the scan before it comes there, if it does, and until then it goes on with what is known.

use super::{Bounds, Direction};
use crate::Result;
use crate::pool::{Access, Pool, ScanRing};
use crate::tree::{BTree, Children};
use gannet_base::PageId;
use gannet_io::Class;
use std::collections::VecDeque;

/// Leaves under way or waiting, at first and at most.
const FIRST_WINDOW: usize = 8;
const WIDEST_WINDOW: usize = 256;
/// The same where they are scattered: fewer than [`LONG_RUN`] side by side.
const WIDEST_SCATTERED: usize = 1024;
const LONG_RUN: usize = 8;
/// The same of a scan that gives way: whoever comes waits behind half of them at most.
const WIDEST_GIVING_WAY: usize = 64;
/// Leaves that are read one by one behind the last that is known where inner nodes could not be read, before that is tried again.
const ALONE: usize = 64;

/// The most leaves that a scan has under way or waiting while they are not scattered.
pub(crate) fn widest_window(pool: &Pool) -> usize {
    widest(pool, WIDEST_WINDOW)
}

fn widest(pool: &Pool, leaves: usize) -> usize {
    leaves.min(pool.frame_count() / 16).max(2)
}

/// Frames for a scan's window, and for the leaves it has just been through.
pub(super) fn ring_frames(window: usize) -> usize {
    window * 3 / 2
}

/// Where a scan goes.
#[derive(Clone, Copy)]
pub(super) struct Course<'a> {
    pub(super) btree: &'a BTree<'a>,
    pub(super) direction: Direction,
    pub(super) bounds: &'a Bounds,
    pub(super) class: Class,
}

impl Course<'_> {
    /// The children of the node of `level` that `from` leads to, in the order of the scan.
    fn children(&self, level: usize, from: &[u8]) -> Result<Children> {
        match self.direction {
            Direction::Forward => self.btree.children_from(from, level as u8),
            Direction::Backward => self.btree.children_before(from, level as u8),
        }
    }

    fn is_within(&self, key: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => self.bounds.below_upper(key),
            Direction::Backward => self.bounds.above_lower(key),
        }
    }

    fn prefetch(&self, pages: &[PageId], access: Access<'_>) {
        let core = self.btree.core;
        core.pool.prefetch(&core.volume, pages, self.class, access);
    }
}

/// The nodes of one level that are about to be needed.
#[derive(Debug)]
struct Tier {
    /// Known, not yet asked for.
    known: VecDeque<PageId>,
    /// Where the next node above begins; `None` when there is none any more.
    next: Option<Vec<u8>>,
    /// Asked for and not yet reached.
    outstanding: usize,
    /// How many of them one node above knows.
    fanout: usize,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Leaves first.
    tiers: Vec<Tier>,
    window: usize,
    /// An inner node could not be read; and how many leaves were read since there is none that is known.
    blind: Option<usize>,
}

impl Ahead {
    /// The leaf that `near` leads to is about to be read: keeps the window of leaves behind it filled. `ring` is what a long
    /// scan reads into.
    pub(super) fn step(&mut self, course: Course<'_>, near: &[u8], ring: Option<&ScanRing>) -> Result<()> {
        if let (Some(alone), [leaves, ..]) = (&mut self.blind, &*self.tiers)
            && leaves.outstanding == 0
            && leaves.known.is_empty()
        {
            *alone += 1;
            if *alone <= ALONE {
                return Ok(());
            }
            *self = Ahead::default();
        }
        if self.tiers.is_empty() {
            self.window = FIRST_WINDOW;
            self.begin_tier(near);
        }
        let outstanding = self.tiers[0].outstanding.saturating_sub(1);
        self.tiers[0].outstanding = outstanding;
        if outstanding > self.window / 2 {
            return Ok(());
        }
        let access = ring.map_or(Access::Normal, Access::Ring);
        let scattered = self.ask(course, 0, self.window - outstanding, access)?;
        let demand = 2 * self.window;
        let leaves = match scattered {
            _ if course.class == Class::Maintenance => WIDEST_GIVING_WAY,
            true => WIDEST_SCATTERED,
            false => WIDEST_WINDOW,
        };
        self.window = (2 * self.window).min(widest(&course.btree.core.pool, leaves));
        if let Some(ring) = ring {
            ring.widen(ring_frames(self.window));
        }
        self.supply(course, 1, demand)
    }

    /// A leaf that was asked for is not going to be read.
    pub(super) fn pass_by(&mut self) {
        if let Some(leaves) = self.tiers.first_mut() {
            leaves.outstanding = leaves.outstanding.saturating_sub(1);
        }
    }

    fn begin_tier(&mut self, from: &[u8]) {
        let next = Some(from.to_vec());
        self.tiers.push(Tier { known: VecDeque::new(), next, outstanding: 0, fanout: 1 });
    }

    /// Asks for up to `count` nodes of a tier. Which these are say nodes of the tier above, which are read for it. Says
    /// whether few of them lie side by side.
    fn ask(&mut self, course: Course<'_>, index: usize, count: usize, access: Access<'_>) -> Result<bool> {
        while self.tiers[index].known.len() < count
            && let Some(from) = self.tiers[index].next.take()
        {
            let children = match course.children(index + 1, &from) {
                Ok(children) => children,
                Err(error) if error.is_unreadable() || error.is_passing() => {
                    self.blind.get_or_insert(0);
                    break;
                }
                Err(error) => return Err(error),
            };
            if let Some(above) = self.tiers.get_mut(index + 1) {
                above.outstanding = above.outstanding.saturating_sub(1);
            }
            let tier = &mut self.tiers[index];
            tier.fanout = children.total.max(1);
            tier.known.extend(children.pages);
            tier.next = children.next.filter(|key| course.is_within(key));
        }
        let tier = &mut self.tiers[index];
        let mut pages: Vec<PageId> = tier.known.drain(..count.min(tier.known.len())).collect();
        tier.outstanding += pages.len();
        pages.sort_unstable();
        let runs = pages.chunk_by(|a, b| a.0 + 1 == b.0).count();
        if !pages.is_empty() {
            course.prefetch(&pages, access);
        }
        Ok(pages.len() < runs * LONG_RUN)
    }

    /// Sees to it that the nodes of a tier that are under way know of `demand` nodes of the tier below.
    fn supply(&mut self, course: Course<'_>, index: usize, demand: usize) -> Result<()> {
        let below = &self.tiers[index - 1];
        let Some(from) = &below.next else { return Ok(()) };
        let (fanout, known) = (below.fanout, below.known.len());
        if self.tiers.len() == index {
            if known >= demand {
                return Ok(());
            }
            let from = from.clone();
            self.begin_tier(&from);
        }
        let missing = demand.saturating_sub(known + self.tiers[index].outstanding * fanout);
        if missing == 0 {
            return Ok(());
        }
        let count = missing.div_ceil(fanout);
        self.ask(course, index, count, Access::Normal)?;
        self.supply(course, index + 1, 2 * count)
    }
}
