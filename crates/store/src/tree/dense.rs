//! Making a tree denser: neighbours under one parent are merged, or the left one is filled from the right one.
//!
//! Each step is one mini-transaction of a parent and two children, latched from above and from the left, like any other structure
//! change; between two steps no latch is held.

use super::smo::separator;
use super::{BTree, put_image};
use crate::entry;
use crate::mtr::Mtr;
use crate::node::{NodeMut, NodeOp, NodeRef};
use crate::pool::{Access, ExclusivePage};
use crate::{Error, Result};
use gannet_base::{PageId, TxnId};

/// A node that is filled to so large a part of what is wanted, in sixteenths, is left as it is.
const FULL: usize = 15;
/// Bytes of a slot and of a cell's head: an estimate, as each try is checked.
const ENTRY_OVERHEAD: usize = 10;

/// What a step came to.
#[derive(Debug)]
pub(crate) enum Dense {
    /// A page is free; the same node, on this page, is to be looked at again.
    Merged(PageId),
    /// Entries of this page, of the left one or of the right one, have lost what nobody needs any more; the same node is to be looked at again.
    Settled(PageId),
    /// The left one, on this page, took what it has room for; the next step begins at this key.
    Filled(PageId, Vec<u8>),
    /// Nothing was to be done; the next step begins at this key.
    Passed(Vec<u8>),
    /// The right one, which begins at this key, or the left one is not to be touched now.
    Busy(Vec<u8>),
    /// The left one or the right one cannot be read, and why; the next step begins at this key.
    Unreadable(Error, Vec<u8>),
    /// There is no further node.
    End,
}

/// How dense nodes are to be, and which ones may be changed.
#[derive(Clone, Copy)]
pub(crate) struct Density<'d> {
    /// Bytes of a page that may be used.
    pub(crate) limit: usize,
    /// See [`entry::settle`]; `None` for nodes without versions.
    pub(crate) horizon: Option<TxnId>,
    /// Whether a leaf may be changed.
    pub(crate) may: &'d dyn Fn(NodeRef<'_>) -> bool,
}

impl Density<'_> {
    /// Bytes that a node uses once its entries have lost what nobody needs any more.
    pub(crate) fn used(&self, node: NodeRef<'_>) -> usize {
        let freed = self.horizon.map_or(0, |horizon| entry::freed_by_settling(node, horizon));
        node.used_bytes().saturating_sub(freed)
    }
}

/// Whether a node that uses so much, of what may be used, is left as it is.
pub(crate) fn is_full(used: usize, limit: usize) -> bool {
    used * 16 >= limit * FULL
}

impl<'c> BTree<'c> {
    /// Looks at the node of `level` that covers `from`, and at its right neighbour, which come into memory by `access`.
    pub(crate) fn make_dense(
        &self,
        from: &[u8],
        level: u8,
        density: Density<'_>,
        access: Access<'_>,
    ) -> Result<Dense> {
        let (pool, volume) = (&self.core.pool, &self.core.volume);
        let Some(parent) = self.inner_exclusive(from, level + 1)? else { return Ok(Dense::End) };
        let node = NodeRef::new(&parent);
        let (slot, left_id) = node.child_for(from);
        if slot + 1 >= node.count() {
            let next = node.upper_fence().map_or(Dense::End, |upper| Dense::Passed(upper.to_vec()));
            parent.release_unchanged();
            return Ok(next);
        }
        let mut next = Vec::new();
        node.copy_key(slot + 1, &mut next);
        let right_id = node.child(slot + 1);
        let child = |slot: usize, others: &[PageId]| {
            let id = node.child(slot);
            if others.contains(&id) {
                let what = format!("an inner node that refers to {id} twice, or to itself");
                return Err(Error::damaged_page(parent.id(), what));
            }
            let page = pool.exclusive_by(volume, id, access)?;
            match self.is_child(node, slot, &page).map(drop) {
                Ok(()) => Ok(page),
                Err(error) => {
                    page.release_unchanged();
                    Err(error)
                }
            }
        };
        let left = match child(slot, &[parent.id()]) {
            Err(error) if error.is_unreadable() => {
                parent.release_unchanged();
                return Ok(Dense::Unreadable(error, next));
            }
            page => page?,
        };
        if is_full(density.used(NodeRef::new(&left)), density.limit) {
            left.release_unchanged();
            parent.release_unchanged();
            return Ok(Dense::Passed(next));
        }
        let right = match child(slot + 1, &[parent.id(), left_id]) {
            Err(error) if error.is_unreadable() => {
                left.release_unchanged();
                parent.release_unchanged();
                return Ok(Dense::Unreadable(error, next));
            }
            page => page?,
        };
        if let Some(horizon) = density.horizon {
            for page in [&left, &right] {
                if !(density.may)(NodeRef::new(page)) {
                    return Ok(Dense::Busy(next));
                }
            }
            if entry::can_settle(NodeRef::new(&left), horizon) {
                return self.settle(left, horizon).map(|()| Dense::Settled(left_id));
            }
            if entry::can_settle(NodeRef::new(&right), horizon) {
                return self.settle(right, horizon).map(|()| Dense::Settled(right_id));
            }
        }
        let (left_node, right_node) = (NodeRef::new(&left), NodeRef::new(&right));
        if left_node.can_merge(right_node) && left_node.merged_size(right_node) <= density.limit {
            if left.is_whole_in_log() {
                return self.merge(parent, left, right, slot).map(|()| Dense::Merged(left_id));
            }
            // What the log has whole need not go to the ring.
            let mut merged = left.to_vec();
            if NodeMut::new(&mut merged).merge_from_right(right_node).is_err() {
                return Err(Error::damaged_page(left_id, "it has no room for what its neighbour has"));
            }
            let mut image = Vec::with_capacity(merged.len());
            NodeRef::new(&merged).image(&mut image);
            let op = NodeOp::Image { image: &image };
            return self.merge_by(&op, parent, left, right, slot).map(|()| Dense::Merged(left_id));
        }
        match shifted(left_node, right_node, density.limit) {
            Some(shifted) => self.shift(parent, left, right, slot, shifted, next),
            None => Ok(Dense::Passed(next)),
        }
    }

    fn shift(
        &self,
        parent: ExclusivePage<'c>,
        left: ExclusivePage<'c>,
        right: ExclusivePage<'c>,
        left_slot: usize,
        shifted: Shifted,
        next: Vec<u8>,
    ) -> Result<Dense> {
        let node = NodeRef::new(&parent);
        let (left_id, right_id) = (left.id(), right.id());
        // Its new key may be longer than the one it has.
        if !node.fits(node.strip(&shifted.separator).len(), size_of::<u64>()) {
            return Ok(Dense::Passed(next));
        }
        let slot = left_slot + 1;
        let mut mtr = Mtr::new(self.core);
        let (parent, left, right) = (mtr.add(parent), mtr.add(left), mtr.add(right));
        // The left one stays as it is now, and what the log has whole need not go to the ring. The right one is soon a left one.
        put_image(&mut mtr, left, &shifted.left);
        mtr.node(right, &NodeOp::TruncateLeft { slot: shifted.count, separator: &shifted.separator });
        mtr.node(parent, &NodeOp::Remove { slot });
        mtr.put_entry(parent, Err(slot), &shifted.separator, &right_id.0.to_le_bytes());
        self.note_moved();
        mtr.commit()?;
        Ok(Dense::Filled(left_id, shifted.separator))
    }
}

/// What goes from a node to its left neighbour.
struct Shifted {
    /// So many entries, the first ones.
    count: usize,
    /// The left one with them.
    left: Vec<u8>,
    /// What is between the two then.
    separator: Vec<u8>,
}

/// What fills the left one up to `limit` from the right one, which keeps an entry at least; `None` where nothing can go over.
fn shifted(left: NodeRef<'_>, right: NodeRef<'_>, limit: usize) -> Option<Shifted> {
    let mut room = limit.saturating_sub(left.used_bytes());
    let fits = |&slot: &usize| {
        let entry = right.key_suffix(slot).len() + right.payload(slot).len() + ENTRY_OVERHEAD;
        let enough = entry <= room;
        room = room.saturating_sub(entry);
        enough
    };
    let mut count = (0..right.count().saturating_sub(1)).take_while(fits).count();
    // The left one's keys may have less in common than they had.
    while count > 0 {
        if let Some(shifted) = shift_some(left, right, count, limit) {
            return Some(shifted);
        }
        count = count * 3 / 4;
    }
    None
}

fn shift_some(left: NodeRef<'_>, right: NodeRef<'_>, count: usize, limit: usize) -> Option<Shifted> {
    let key_of = |slot: usize| {
        let mut key = Vec::new();
        right.copy_key(slot, &mut key);
        key
    };
    let first = key_of(count);
    let separator = if right.is_inner() { first } else { separator(&key_of(count - 1), &first).to_vec() };
    if !right.can_truncate_left(count, &separator) {
        return None;
    }
    let mut moved = right.page().to_vec();
    NodeMut::new(&mut moved).truncate_right(count, &separator).ok()?;
    let moved = NodeRef::new(&moved);
    if !left.can_merge(moved) || left.merged_size(moved) > limit {
        return None;
    }
    let mut left = left.page().to_vec();
    NodeMut::new(&mut left).merge_from_right(moved).ok()?;
    Some(Shifted { count, left, separator })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::TreeId;

    fn node(
        level: u8,
        lower: &[u8],
        upper: Option<&[u8]>,
        keys: std::ops::Range<u32>,
        payload: usize,
    ) -> Vec<u8> {
        let mut page = vec![0; 4096];
        let mut node = NodeMut::init(&mut page, TreeId(20), level, lower, upper);
        for (slot, number) in keys.enumerate() {
            assert!(node.insert(slot, format!("k{number:06}").as_bytes(), &vec![7; payload]));
        }
        page
    }

    fn keys(page: &[u8]) -> Vec<Vec<u8>> {
        let node = NodeRef::new(page);
        (0..node.count())
            .map(|slot| {
                let mut key = Vec::new();
                node.copy_key(slot, &mut key);
                key
            })
            .collect()
    }

    #[test]
    fn the_left_one_is_filled_and_nothing_is_lost_on_any_level() {
        for (level, payload) in [(0, 90), (0, 300), (1, 8)] {
            let most = if level == 1 { 150 } else { 3000 / (payload as u32 + 20) };
            let left = node(level, b"k000000", Some(b"k001000"), 0..most / 2, payload);
            let right = node(level, b"k001000", None, 1000..1000 + most, payload);
            let all: Vec<_> = [keys(&left), keys(&right)].concat();
            let shifted = shifted(NodeRef::new(&left), NodeRef::new(&right), 4096 * 96 / 100).unwrap();
            let mut right = right;
            NodeMut::new(&mut right).truncate_left(shifted.count, &shifted.separator).unwrap();
            let (l, r) = (NodeRef::new(&shifted.left), NodeRef::new(&right));
            assert_eq!([keys(&shifted.left), keys(&right)].concat(), all);
            assert_eq!(l.upper_fence(), Some(&shifted.separator[..]));
            assert_eq!((l.lower_fence(), r.lower_fence()), (&b"k000000"[..], &shifted.separator[..]));
            assert!(
                l.used_bytes() > 4096 * 80 / 100 && l.used_bytes() <= 4096 * 96 / 100,
                "{}",
                l.used_bytes()
            );
            assert!(r.count() > 0 && r.upper_fence().is_none());
        }
    }
}
