//! Moving a node to another page: its contents, and the one place that refers to it, change in one mini-transaction.
//!
//! The old page keeps its bytes, and is latched exclusively until the node is found at its new place. Whoever had its number before
//! finds its version moved, or its parent's, or that the root is elsewhere (`tree`, invariants 2 and 4), and looks again.

use super::{BTree, Target, put_image};
use crate::entry;
use crate::mtr::Mtr;
use crate::node::{NodeOp, NodeRef};
use crate::pool::{Access, ExclusivePage};
use crate::space::Allocations;
use crate::{Error, Result, catalog, versions};
use gannet_base::{PageId, TxnId};

/// What came of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relocated {
    /// It is elsewhere now.
    Moved,
    /// Nothing leads to the page any more, or not yet.
    Gone,
    /// Somebody may still take back what leads to the page.
    InUse,
    /// There is no place for it.
    NoRoom,
}

/// Finds a page for the node, if there is one where it is to be.
pub(crate) type Place<'p, 'c> = &'p mut dyn FnMut(&mut Allocations<'c>) -> Result<Option<PageId>>;

impl<'c> BTree<'c> {
    /// The node at `level`, above the leaves, that covers `key`, for changing; `None` when the tree is lower. Readers on their way
    /// down are not disturbed.
    pub(super) fn inner_exclusive(&self, key: &[u8], level: u8) -> Result<Option<ExclusivePage<'c>>> {
        debug_assert!(level > 0, "a leaf is got otherwise");
        loop {
            let above = self.descend_latched(Target::Covers(key), level + 1, Access::Normal)?;
            let node = NodeRef::new(&above);
            if node.level() == level + 1 {
                // Its latch is held until the child's is taken.
                let page = self.child_exclusive((node, above.id()), node.child_for(key).0)?;
                return Ok(Some(page));
            }
            drop(above);
            let root = self.root_exclusive()?;
            let found = NodeRef::new(&root).level();
            if found == level {
                return Ok(Some(root));
            }
            root.release_unchanged();
            if found < level {
                return Ok(None);
            }
        }
    }

    /// Moves the node on page `id`, which is at `level` and begins at `lower`, and is not the root. It comes into memory by `access`, and
    /// so does its new page, unless others use it.
    pub(crate) fn relocate(
        &self,
        (id, access): (PageId, Access<'_>),
        level: u8,
        lower: &[u8],
        place: Place<'_, 'c>,
    ) -> Result<Relocated> {
        let Some(parent) = self.inner_exclusive(lower, level + 1)? else { return Ok(Relocated::Gone) };
        let (slot, child) = NodeRef::new(&parent).child_for(lower);
        if child != id {
            parent.release_unchanged();
            return Ok(Relocated::Gone);
        }
        let old = self.core.pool.exclusive_by(&self.core.volume, id, access)?;
        let node = self.is_child(NodeRef::new(&parent), slot, &old)?;
        if node.level() != level || node.lower_fence() != lower {
            return Err(Error::damaged_page(id, "it is not what its parent says"));
        }
        let mut mtr = Mtr::new(self.core);
        let parent = mtr.add(parent);
        let Some(new) = place(mtr.allocations())? else { return Ok(Relocated::NoRoom) };
        let access = if old.was_used() { Access::Normal } else { access };
        let part = mtr.add(self.core.pool.create_by(&self.core.volume, new, access)?);
        mtr.free(self.tree.id, id)?;
        put_image(&mut mtr, part, &old);
        mtr.node(parent, &NodeOp::Replace { slot, payload: &new.0.to_le_bytes() });
        self.note_moved();
        mtr.commit()?;
        drop(old);
        Ok(Relocated::Moved)
    }

    /// Moves the root of a tree that the catalog names, and whose entry there is settled: so no undo record has its place. Below
    /// `horizon` entries are settled here.
    pub(crate) fn relocate_root(
        &self,
        catalog: &BTree<'c>,
        horizon: TxnId,
        place: Place<'_, 'c>,
    ) -> Result<Relocated> {
        let (leaf, slot) = loop {
            let leaf = catalog.leaf_exclusive(&self.tree.name)?;
            let node = NodeRef::new(&leaf);
            let Ok(slot) = node.search(&self.tree.name) else { return Ok(Relocated::Gone) };
            let entry = versions::decode(node.payload(slot))?;
            if !entry.writer.is_none() {
                if entry.writer >= horizon {
                    return Ok(Relocated::InUse);
                }
                catalog.settle(leaf, horizon)?;
                continue;
            }
            if catalog::decode(entry.value) != Some((self.tree.id, self.tree.root())) {
                return Ok(Relocated::Gone);
            }
            break (leaf, slot);
        };
        let offset = NodeRef::new(&leaf).payload(slot).len() - size_of::<u64>();
        let id = self.tree.root();
        let old = self.core.pool.exclusive(&self.core.volume, id)?;
        self.is_root(&old, id)?;
        let mut mtr = Mtr::new(self.core);
        let leaf = mtr.add(leaf);
        let Some(new) = place(mtr.allocations())? else { return Ok(Relocated::NoRoom) };
        let part = mtr.add(self.core.pool.create(&self.core.volume, new)?);
        mtr.free(self.tree.id, id)?;
        put_image(&mut mtr, part, &old);
        mtr.node(leaf, &NodeOp::PatchPayload { slot, offset, bytes: &new.0.to_le_bytes() });
        self.note_moved();
        mtr.commit()?;
        self.tree.set_root(new);
        drop(old);
        Ok(Relocated::Moved)
    }

    /// Settles the leaf that covers `key`, see [`entry::settle`].
    pub(crate) fn settle_leaf(&self, key: &[u8], horizon: TxnId) -> Result<()> {
        self.settle(self.leaf_exclusive(key)?, horizon)
    }

    /// Puts the first index page of a long value elsewhere in the entry of `key`, if that is settled and has it at `from`: in a
    /// mini-transaction that `prepare` begins under the entry's leaf, and gives the page's new place. False when it is otherwise.
    pub(crate) fn repoint_long_value(
        &self,
        key: &[u8],
        from: PageId,
        prepare: impl FnOnce(&mut Mtr<'c>) -> Result<Option<(PageId, crate::mtr::Part, Vec<u8>)>>,
        format: impl FnOnce(&mut Mtr<'c>, crate::mtr::Part, &[u8]),
    ) -> Result<Relocated> {
        let leaf = self.leaf_exclusive(key)?;
        let node = NodeRef::new(&leaf);
        let Ok(slot) = node.search(key) else { return Ok(Relocated::Gone) };
        let entry = versions::decode(node.payload(slot))?;
        if !entry.writer.is_none() || !entry.is_overflow() || entry::decode_reference(entry.value).1 != from {
            return Ok(Relocated::InUse);
        }
        let offset = node.payload(slot).len() - size_of::<u64>();
        let mut mtr = Mtr::new(self.core);
        let leaf = mtr.add(leaf);
        let Some((new, part, content)) = prepare(&mut mtr)? else { return Ok(Relocated::NoRoom) };
        format(&mut mtr, part, &content);
        mtr.node(leaf, &NodeOp::PatchPayload { slot, offset, bytes: &new.0.to_le_bytes() });
        mtr.commit()?;
        Ok(Relocated::Moved)
    }
}
