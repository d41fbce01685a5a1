//! Where a tree may be divided so that its parts are about equally large, without reading it: at separators of the highest inner nodes that
//! have enough of them.

use super::BTree;
use crate::Result;
use crate::node::NodeRef;
use crate::scan::Bounds;

/// Nodes below one on the next level that are counted on, where nobody has looked.
const NODES_EACH: u64 = 64;
/// Separators for each part: parts are to be about equally large.
const SEPARATORS_EACH: usize = 2;

/// How a range of a tree's keys may be divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Keys at which the parts but the first begin, in their order: fewer than were asked for where the range is small.
    pub keys: Vec<Vec<u8>>,
    /// Leaves in the range, about: mostly there are more.
    pub leaf_pages: u64,
}

impl BTree<'_> {
    /// Divides a range into so many parts at most.
    pub(crate) fn divide(&self, bounds: &Bounds, parts: usize) -> Result<Division> {
        let top = {
            let root = self.inner_shared(&[], u8::MAX)?;
            NodeRef::new(&root).level()
        };
        let (mut level, mut keys) = (top, Vec::new());
        while level > 0 {
            keys = self.separators(level, bounds)?;
            if keys.len() >= SEPARATORS_EACH * parts || level == 1 {
                break;
            }
            level -= 1;
        }
        let below = NODES_EACH.saturating_pow(u32::from(level.saturating_sub(1)));
        let leaf_pages = (keys.len() as u64 + 1).saturating_mul(below);
        let found = keys.len();
        if found >= parts {
            // Those in equal distances.
            let mut index = 0;
            let is_wanted = |index: usize| (1..parts).any(|part| part * (found + 1) / parts == index);
            keys.retain(|_| {
                index += 1;
                is_wanted(index)
            });
        }
        Ok(Division { keys, leaf_pages })
    }

    /// Keys within the range at which the nodes below this level begin.
    fn separators(&self, level: u8, bounds: &Bounds) -> Result<Vec<Vec<u8>>> {
        let mut from = bounds.first().to_vec();
        let (mut keys, mut key) = (Vec::new(), Vec::new());
        loop {
            let page = self.inner_shared(&from, level)?;
            let node = NodeRef::new(&page);
            if node.level() != level {
                // The tree has lost a level, or grown from a single leaf.
                return Ok(keys);
            }
            for slot in 1..node.count() {
                key.clear();
                node.copy_key(slot, &mut key);
                if key > from && bounds.contains(&key) {
                    keys.push(key.clone());
                }
            }
            match node.upper_fence() {
                Some(fence) if *fence > *from && bounds.contains(fence) => from = fence.to_vec(),
                _ => return Ok(keys),
            }
            keys.push(from.clone());
        }
    }
}
