//! Structure changes: making room, giving it back.

use super::BTree;
use crate::mtr::{Mtr, Part};
use crate::node::{NodeMut, NodeOp, NodeRef, Place, max_key_len};
use crate::pool::{Access, ExclusivePage, reads};
use crate::shared::{STATUS, UNDO_DIRECTORY};
use crate::{Error, Result, entry};
use gannet_base::{PageId, TxnId};
use std::sync::atomic::Ordering;

/// How many children on either side of one that is split may have its new sibling in their extents. What is split in one
/// region goes into one extent, so a tree filled in random order is still read in long pieces, see `scan/ahead.rs`.
const NEIGHBOURS: usize = 32;

/// Bytes of an inner node's payload.
const CHILD_LEN: usize = 8;

impl<'c> BTree<'c> {
    /// Makes `key` fit with a payload of `payload_len` bytes: settles old versions on its leaf, or splits it. The
    /// caller looks again afterwards; somebody else may have used the room. `horizon`: see [`entry::settle`];
    /// `None` for trees without versions.
    pub(crate) fn make_room(
        &self,
        key: &[u8],
        payload_len: usize,
        horizon: Option<TxnId>,
        privileged: bool,
    ) -> Result<()> {
        let mut parent: Option<ExclusivePage<'c>> = None;
        let mut current = self.root_exclusive()?;
        loop {
            let node = NodeRef::new(&current);
            if node.level() == 0 {
                if fits(node, node.search(key), key, payload_len) {
                    current.release_unchanged();
                    if let Some(parent) = parent {
                        parent.release_unchanged();
                    }
                    return Ok(());
                }
                if let Some(horizon) = horizon
                    && entry::can_settle(node, horizon)
                {
                    return self.settle(current, horizon);
                }
                return self.split_leaf(parent, current, key, payload_len, privileged);
            }
            if !node.fits(max_key_len(self.core.page_size), CHILD_LEN) {
                self.split_inner(parent, current, privileged)?;
                parent = None;
                current = self.root_exclusive()?;
                continue;
            }
            let next = self.child_exclusive((node, current.id()), node.child_for(key).0)?;
            if let Some(above) = parent.replace(current) {
                above.release_unchanged();
            }
            current = next;
        }
    }

    pub(super) fn settle(&self, leaf: ExclusivePage<'c>, horizon: TxnId) -> Result<()> {
        let mut mtr = Mtr::new(self.core);
        let part = mtr.add(leaf);
        mtr.settle(part, horizon);
        self.note_moved();
        mtr.commit().map(drop)
    }

    fn split_leaf(
        &self,
        parent: Option<ExclusivePage<'c>>,
        leaf: ExclusivePage<'c>,
        key: &[u8],
        payload_len: usize,
        privileged: bool,
    ) -> Result<()> {
        let node = NodeRef::new(&leaf);
        let point = match node.search(key) {
            Ok(slot) => node.choose_split_for_replace(slot, payload_len),
            Err(slot) => node.choose_split_for_insert(slot, key, payload_len),
        };
        let Some(point) = point else {
            return Err(Error::Invalid(format!(
                "a key of {} bytes with a payload of {payload_len} bytes does not fit a page of {} bytes",
                key.len(),
                self.core.page_size
            )));
        };
        let (slot, separator) = (point.slot, point.separator);
        self.split(parent, leaf, slot, &separator, privileged)
    }

    fn split_inner(
        &self,
        parent: Option<ExclusivePage<'c>>,
        page: ExclusivePage<'c>,
        privileged: bool,
    ) -> Result<()> {
        let Some(point) = NodeRef::new(&page).choose_split() else {
            return Err(Error::damaged_page(page.id(), "a full inner node of fewer than two entries"));
        };
        let (slot, separator) = (point.slot, point.separator);
        self.split(parent, page, slot, &separator, privileged)
    }

    fn split(
        &self,
        parent: Option<ExclusivePage<'c>>,
        page: ExclusivePage<'c>,
        slot: usize,
        separator: &[u8],
        privileged: bool,
    ) -> Result<()> {
        let mut right = vec![0; self.core.page_size];
        NodeRef::new(&page)
            .split_right_into(slot, separator, &mut right)
            .map_err(|what| Error::damaged_page(page.id(), what))?;
        let mut mtr = Mtr::new(self.core);
        if privileged {
            mtr.allocations().use_reserve();
        }
        match parent {
            Some(parent) => self.split_below(mtr, parent, page, slot, separator, &right),
            None => self.split_root(mtr, page, slot, separator, &right),
        }
    }

    fn split_below(
        &self,
        mut mtr: Mtr<'c>,
        parent: ExclusivePage<'c>,
        page: ExclusivePage<'c>,
        slot: usize,
        separator: &[u8],
        right: &[u8],
    ) -> Result<()> {
        let (parent, left) = (mtr.add(parent), mtr.add(page));
        let near = neighbours(NodeRef::new(mtr.page(parent)), separator);
        let (right_id, right_part) = mtr.allocate(self.tree.id, &near)?;
        let place = NodeRef::new(mtr.page(parent)).search(separator);
        if place.is_ok() {
            return Err(mtr.damaged(parent, "it has a separator for keys that its child covers"));
        }
        put_image(&mut mtr, right_part, right);
        mtr.node(left, &NodeOp::TruncateRight { slot, separator });
        mtr.put_entry(parent, place, separator, &right_id.0.to_le_bytes());
        self.note_moved();
        mtr.commit().map(drop)
    }

    /// The root's contents move into two new children; the root's page stays the root.
    fn split_root(
        &self,
        mut mtr: Mtr<'c>,
        root: ExclusivePage<'c>,
        slot: usize,
        separator: &[u8],
        right: &[u8],
    ) -> Result<()> {
        let root = mtr.add(root);
        let near = mtr.id(root);
        let (left_id, left_part) = mtr.allocate(self.tree.id, &[near])?;
        let (right_id, right_part) = mtr.allocate(self.tree.id, &[left_id])?;
        let mut left = mtr.page(root).to_vec();
        NodeMut::new(&mut left).truncate_right(slot, separator).map_err(|what| mtr.damaged(root, &what))?;
        let mut top = vec![0; self.core.page_size];
        let level = NodeRef::new(&left).level() + 1;
        let mut node = NodeMut::init(&mut top, self.tree.id, level, &[], None);
        let inserted = node.insert(0, &[], &left_id.0.to_le_bytes())
            && node.insert(1, separator, &right_id.0.to_le_bytes());
        assert!(inserted, "two separators fit an empty node");
        put_image(&mut mtr, left_part, &left);
        put_image(&mut mtr, right_part, right);
        put_image(&mut mtr, root, &top);
        self.note_moved();
        mtr.commit().map(drop)
    }

    /// Gives pages back where the nodes on the way to `key` have become nearly empty: merges a node with a sibling
    /// under the same parent, and takes a level off a root with a single child. Does as much as it finds in passing.
    pub(crate) fn shrink(&self, key: &[u8]) -> Result<()> {
        let mut parent = self.root_exclusive()?;
        loop {
            let node = NodeRef::new(&parent);
            if node.level() == 0 {
                parent.release_unchanged();
                return Ok(());
            }
            let pair = Pair::of(node, key);
            let (slot, child_id) = node.child_for(key);
            let child = self.child_exclusive((node, parent.id()), slot)?;
            let Some(Pair { left_slot, sibling_slot, sibling, is_left }) = pair else {
                if parent.id() == self.tree.root() {
                    self.collapse_root(parent, child)?;
                    parent = self.root_exclusive()?;
                } else {
                    std::mem::replace(&mut parent, child).release_unchanged();
                }
                continue;
            };
            if is_underfull(&child) {
                if sibling == child_id {
                    let what = format!("an inner node that refers to {sibling} twice");
                    return Err(Error::damaged_page(parent.id(), what));
                }
                let sibling = self.child_exclusive((node, parent.id()), sibling_slot)?;
                let (left, right) = if is_left { (child, sibling) } else { (sibling, child) };
                if NodeRef::new(&left).can_merge(NodeRef::new(&right)) {
                    self.merge(parent, left, right, left_slot)?;
                    parent = self.root_exclusive()?;
                    continue;
                }
                let (child, other) = if is_left { (left, right) } else { (right, left) };
                other.release_unchanged();
                std::mem::replace(&mut parent, child).release_unchanged();
            } else {
                std::mem::replace(&mut parent, child).release_unchanged();
            }
        }
    }

    /// [`BTree::shrink`] by who has carried out what he came for, on the leaf of `key`: a sibling that cannot be read, or has no frame, is a reason to leave
    /// it. Nothing is latched exclusively before it is known that there is something to be done, and the sibling is in memory then.
    pub(crate) fn shrink_if_possible(&self, key: &[u8]) -> Result<()> {
        match self.may_shrink(key).and_then(|may| if may { self.shrink(key) } else { Ok(()) }) {
            Err(error) if error.is_unreadable() || error.is_passing() => self.core.poison.check(),
            done => done,
        }
    }

    /// Whether the leaf of `key` can be merged with its sibling, or is a single child.
    fn may_shrink(&self, key: &[u8]) -> Result<bool> {
        let (pool, volume) = (&self.core.pool, &self.core.volume);
        if self.root_level()? == 0 {
            return Ok(false);
        }
        for is_in_memory in [false, true] {
            let parent = self.inner_shared(key, 1)?;
            let node = NodeRef::new(&parent);
            if node.level() != 1 {
                // The tree has become lower.
                return Ok(node.level() > 1);
            }
            let Some(Pair { sibling_slot, sibling, is_left, .. }) = Pair::of(node, key) else {
                // Its parent may be merged, so that it has a sibling.
                return Ok(true);
            };
            if !is_in_memory {
                drop(parent);
                pool.prefetch(volume, &[sibling], reads::class(), Access::Normal);
                pool.await_prefetch(volume, sibling);
                continue;
            }
            // One after the other: whoever merges them latches them in either order. As long as their parent is held they stay.
            let (slot, child) = node.child_for(key);
            let child = {
                let child = pool.shared(volume, child, Access::Normal)?;
                self.is_child(node, slot, &child)?;
                if !is_underfull(&child) {
                    return Ok(false);
                }
                child.to_vec()
            };
            let sibling = pool.shared(volume, sibling, Access::Normal)?;
            let (child, sibling) = (NodeRef::new(&child), self.is_child(node, sibling_slot, &sibling)?);
            return Ok(if is_left { child.can_merge(sibling) } else { sibling.can_merge(child) });
        }
        Ok(false)
    }

    pub(super) fn merge(
        &self,
        parent: ExclusivePage<'c>,
        left: ExclusivePage<'c>,
        right: ExclusivePage<'c>,
        left_slot: usize,
    ) -> Result<()> {
        let mut image = Vec::with_capacity(self.core.page_size);
        NodeRef::new(&right).image(&mut image);
        self.merge_by(&NodeOp::MergeFromRight { right: &image }, parent, left, right, left_slot)
    }

    /// The same, by an operation on the left one.
    pub(super) fn merge_by(
        &self,
        op: &NodeOp<'_>,
        parent: ExclusivePage<'c>,
        left: ExclusivePage<'c>,
        right: ExclusivePage<'c>,
        left_slot: usize,
    ) -> Result<()> {
        let mut mtr = Mtr::new(self.core);
        let (parent, left) = (mtr.add(parent), mtr.add(left));
        mtr.free(self.tree.id, right.id())?;
        mtr.node(left, op);
        mtr.node(parent, &NodeOp::Remove { slot: left_slot + 1 });
        self.note_moved();
        let done = mtr.commit().map(drop);
        // Only now may others look at the page: opening its latch moves its version, so they start over.
        drop(right);
        done
    }

    /// To be called before rows are seen elsewhere that nobody has changed.
    pub(super) fn note_moved(&self) {
        if !matches!(self.tree.id, STATUS | UNDO_DIRECTORY) {
            self.core.nodes_moved.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn collapse_root(&self, root: ExclusivePage<'c>, child: ExclusivePage<'c>) -> Result<()> {
        let mut mtr = Mtr::new(self.core);
        let root = mtr.add(root);
        mtr.free(self.tree.id, child.id())?;
        put_image(&mut mtr, root, &child);
        self.note_moved();
        let done = mtr.commit().map(drop);
        drop(child);
        done
    }

    /// Puts an entry, new or in place of an old one. For unversioned trees.
    pub(crate) fn put(&self, key: &[u8], payload: &[u8]) -> Result<()> {
        let mut mtr = Mtr::new(self.core);
        self.put_made(&mut mtr, key, payload.len(), |_| Ok(payload))?;
        mtr.commit().map(drop)
    }

    /// Lets putting an entry of an unversioned tree take part in a mini-transaction that holds no latches yet.
    /// `make` gives the payload, of `payload_len` bytes, once the leaf is latched; it may allocate.
    pub(crate) fn put_made<P: AsRef<[u8]>>(
        &self,
        mtr: &mut Mtr<'c>,
        key: &[u8],
        payload_len: usize,
        make: impl FnOnce(&mut Mtr<'c>) -> Result<P>,
    ) -> Result<()> {
        let (leaf, place) = loop {
            let leaf = self.leaf_exclusive(key)?;
            let node = NodeRef::new(&leaf);
            let place = node.search(key);
            if fits(node, place, key, payload_len) {
                break (leaf, place);
            }
            drop(leaf);
            self.make_room(key, payload_len, None, true)?;
        };
        let part = mtr.add(leaf);
        let payload = make(mtr)?;
        let payload = payload.as_ref();
        assert_eq!(payload.len(), payload_len, "the payload is as long as announced");
        mtr.put_entry(part, place, key, payload);
        Ok(())
    }

    /// Lets removing an entry of an unversioned tree take part in a mini-transaction that holds no latches yet.
    /// `prepare` may allocate and free, once the leaf is latched. Says whether the leaf is left with so little that it is to be merged
    /// ([`BTree::shrink_if_possible`]), behind the commit.
    pub(crate) fn remove_with(
        &self,
        mtr: &mut Mtr<'c>,
        key: &[u8],
        prepare: impl FnOnce(&mut Mtr<'c>) -> Result<()>,
    ) -> Result<bool> {
        let part = mtr.add(self.leaf_exclusive(key)?);
        prepare(mtr)?;
        mtr.remove_entry(part, key);
        Ok(is_underfull(mtr.page(part)))
    }

    /// Formats the root of a new tree as an empty leaf, on a page allocated by the same mini-transaction.
    pub(crate) fn format_root(mtr: &mut Mtr<'_>, part: Part, tree: gannet_base::TreeId, page_size: usize) {
        let mut page = vec![0; page_size];
        NodeMut::init(&mut page, tree, 0, &[], None);
        put_image(mtr, part, &page);
    }
}

/// Whether `key`, which a search has found at `place` or not, fits with a payload of that length, in place of its old one if
/// there is one.
pub(crate) fn fits(node: NodeRef<'_>, place: Place, key: &[u8], payload_len: usize) -> bool {
    match place {
        Ok(slot) => node.fits_replaced(slot, payload_len),
        Err(_) => node.fits(node.strip(key).len(), payload_len),
    }
}

/// Whether a node uses less than a quarter of its page: worth looking for a sibling to merge with.
pub(crate) fn is_underfull(page: &[u8]) -> bool {
    NodeRef::new(page).used_bytes() < page.len() / 4
}

/// A child, and whom it could be merged with: its right neighbour, or the left one of the last child.
struct Pair {
    /// Of the left one of both.
    left_slot: usize,
    sibling_slot: usize,
    sibling: PageId,
    /// The child is the left one.
    is_left: bool,
}

impl Pair {
    /// Of the child that covers `key`; `None` for a single one.
    fn of(parent: NodeRef<'_>, key: &[u8]) -> Option<Pair> {
        let (slot, count) = (parent.child_for(key).0, parent.count());
        if count <= 1 {
            return None;
        }
        let is_left = slot + 1 < count;
        let left_slot = if is_left { slot } else { slot - 1 };
        let sibling_slot = if is_left { slot + 1 } else { left_slot };
        Some(Pair { left_slot, sibling_slot, sibling: parent.child(sibling_slot), is_left })
    }
}

/// The child of `parent` that covers `key`, and those around it, closest first.
fn neighbours(parent: NodeRef<'_>, key: &[u8]) -> Vec<PageId> {
    let (slot, child) = parent.child_for(key);
    let mut near = Vec::with_capacity(1 + 2 * NEIGHBOURS);
    near.push(child);
    for distance in 1..=NEIGHBOURS {
        near.extend(slot.checked_sub(distance).map(|left| parent.child(left)));
        near.extend(
            Some(slot + distance).filter(|&right| right < parent.count()).map(|right| parent.child(right)),
        );
    }
    near
}

pub(super) fn put_image(mtr: &mut Mtr<'_>, part: Part, page: &[u8]) {
    let mut image = Vec::with_capacity(page.len());
    NodeRef::new(page).image(&mut image);
    mtr.node(part, &NodeOp::Image { image: &image });
}

/// The first key behind a page's entries that leads to a new page: the shortest that is above `last` and at most
/// `next`.
pub(crate) fn separator<'k>(last: &[u8], next: &'k [u8]) -> &'k [u8] {
    let common = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    &next[..(common + 1).min(next.len())]
}

/// No page in particular to be near to.
pub(super) const ANYWHERE: PageId = PageId::NONE;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Access;
    use crate::tree::Target;
    use crate::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
    use gannet_io::sim::SimDisk;
    use std::path::Path;
    use std::sync::Arc;

    /// A merge that a rollback thinks of behind its work ended the database where it was not possible.
    #[test]
    fn a_rollback_beside_a_damaged_leaf_ends_well() {
        let (disk, path) = (SimDisk::new(1), Path::new("a.gnt"));
        let options = EngineOptions { memory: 8 << 20, ..EngineOptions::default() };
        let engine = || Engine::with_disk(Arc::new(disk.clone()), &options).unwrap();
        let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
        let open = OpenOptions { warm: false, ..OpenOptions::default() };
        let db = engine().create(path, &create, &open).unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree("t").unwrap();
        let core = Arc::clone(&txn.shared.core);
        let btree = BTree::new(&core, &tree.root);
        let mut rows = 0_u64;
        loop {
            txn.insert(&tree, &rows.to_be_bytes(), &[7; 100]).unwrap();
            rows += 1;
            if rows > 200 && is_underfull(&btree.leaf_at(Target::Last, Access::Normal).unwrap()) {
                break;
            }
        }
        txn.commit().unwrap();
        let leaves = btree.children_from(&[], 1).unwrap().pages;
        let beside = leaves[leaves.len() - 2];
        drop(core);
        db.close().unwrap();
        disk.corrupt(path, beside.0 * 4096 + 2000, 8, 1).unwrap();
        let db = engine().open(path, &open).unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.tree("t").unwrap().unwrap();
        txn.insert(&tree, &rows.to_be_bytes(), b"not for long").unwrap();
        let read = txn.shared.core.pool.shared(&txn.shared.core.volume, beside, Access::Normal);
        assert!(matches!(read, Err(Error::Damaged(_))));
        drop(read);
        txn.rollback().unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        txn.insert(&tree, &rows.to_be_bytes(), b"for long").unwrap();
        txn.commit().unwrap();
    }
}
