//! How large a tree is, without reading it: from its root, and a few nodes below.
//!
//! The number of leaves is the mean, over some ways from the root to a leaf, of the product of the numbers of children on the way
//! (Knuth, *Estimating the efficiency of backtrack programs*, 1975): exact for a root above leaves. What lies below the root's
//! children is remembered, as it changes slowly: as long as the root has about as many children as it had then, only the
//! root is looked at again.

use super::BTree;
use crate::Result;
use crate::node::NodeRef;
use crate::pool::{Access, reads};
use gannet_base::PageId;

/// Ways from the root that are gone.
const WAYS: usize = 8;
/// Of those, one in this many goes down to a leaf, to count its entries.
const WAYS_TO_A_LEAF: usize = 2;
/// What is remembered holds until the root's number of children has changed by one in this many.
const CHANGE: usize = 8;

/// About how large a tree is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeSize {
    /// Levels, leaves included.
    pub levels: u8,
    /// Leaf pages.
    pub leaf_pages: f64,
    /// Entries, those included that are dead but not swept yet.
    pub entries: f64,
}

/// What was seen of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    level: u8,
    /// Children of the root when it was seen.
    children: usize,
    leaves_per_child: f64,
    entries_per_leaf: f64,
}

impl Shape {
    fn holds_for(&self, level: u8, children: usize) -> bool {
        self.level == level && self.children.abs_diff(children) * CHANGE <= self.children
    }
}

impl BTree<'_> {
    /// About how large the tree is.
    pub(crate) fn size(&self) -> Result<TreeSize> {
        let (level, count) = {
            let root = self.inner_shared(&[], u8::MAX)?;
            let node = NodeRef::new(&root);
            (node.level(), node.count())
        };
        if level == 0 {
            return Ok(TreeSize { levels: 1, leaf_pages: 1.0, entries: count as f64 });
        }
        let known = *self.tree.shape.lock();
        let shape = match known.filter(|shape| shape.holds_for(level, count)) {
            Some(shape) => shape,
            None => {
                let shape = self.look_below(level, count)?;
                *self.tree.shape.lock() = Some(shape);
                shape
            }
        };
        let leaf_pages = count as f64 * shape.leaves_per_child;
        Ok(TreeSize { levels: level + 1, leaf_pages, entries: leaf_pages * shape.entries_per_leaf })
    }

    fn look_below(&self, level: u8, count: usize) -> Result<Shape> {
        let ways = WAYS.min(count).max(1);
        let children: Vec<PageId> = {
            let root = self.inner_shared(&[], u8::MAX)?;
            let node = NodeRef::new(&root);
            let child = |way| (node.level() > 0).then(|| node.child(slot(way, ways, 0, node.count())));
            let step = if level > 1 { 1 } else { WAYS_TO_A_LEAF };
            (0..ways).step_by(step).filter_map(child).collect()
        };
        self.core.pool.prefetch(&self.core.volume, &children, reads::class(), Access::Normal);
        let (mut leaves, mut entries, mut leaves_seen) = (0.0, 0, 0);
        for way in 0..ways {
            let to_leaf = way % WAYS_TO_A_LEAF == 0;
            let (below, found) = self.go(way, ways, to_leaf)?;
            leaves += below;
            if let Some(found) = found {
                entries += found;
                leaves_seen += 1;
            }
        }
        Ok(Shape {
            level,
            children: count,
            leaves_per_child: (leaves / ways as f64 / count as f64).max(1.0),
            entries_per_leaf: f64::from(entries as u32) / f64::from(leaves_seen.max(1)),
        })
    }

    /// Goes a way down: the product of the numbers of children, and the entries of the leaf, if that is wanted.
    fn go(&self, way: usize, ways: usize, to_leaf: bool) -> Result<(f64, Option<usize>)> {
        let core = self.core;
        let mut page = self.root_shared()?;
        let mut product = 1.0;
        let mut depth = 0;
        loop {
            let node = NodeRef::new(&page);
            if node.level() == 0 {
                return Ok((product, Some(node.count())));
            }
            if node.count() == 0 {
                return Ok((product, None));
            }
            product *= node.count() as f64;
            if node.level() == 1 && !to_leaf {
                return Ok((product, None));
            }
            let slot = slot(way, ways, depth, node.count());
            // The parent's latch is held until the child's is taken.
            let next = core.pool.shared(&core.volume, node.child(slot), Access::Normal)?;
            self.is_child(node, slot, &next)?;
            page = next;
            depth += 1;
        }
    }
}

/// Which child a way takes: at the root they are spread evenly, below they differ.
fn slot(way: usize, ways: usize, depth: usize, count: usize) -> usize {
    let part = (way * (2 * depth + 1) + 3 * depth) % ways;
    ((2 * part + 1) * count / (2 * ways)).min(count - 1)
}
