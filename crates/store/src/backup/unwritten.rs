//! Pages in use that the device has as zeros, and no frame has: those that nobody has written yet, and those that the device has lost.
//!
//! # Who takes pages, and when these are written
//! 1. Whoever takes a single page writes it in the mini-transaction that marks it as used: a split, a level of a bulk load above its leaves, a long value
//!    and its list, the root of a new tree, a move by a compaction, a new space map. The map is latched until all of that is in the log. So
//!    who sees the mark finds the page in a dirty frame, which stays until the page is at home, or finds it at home. After a crash mark and page
//!    are redone together, or there is neither; and a backup begins behind redo.
//! 2. *Undo* takes an extent, and writes its pages when there are records for them.
//! 3. The leaves of a *bulk load* take an extent, too, and are written one after the other, the first one as in 1. What is left of the last extent goes back in
//!    the mini-transaction that puts the root. A load that was cut short leaves it until it is taken back, or for ever: a
//!    transaction that gives up the load, and goes on, has a tree with such pages, and may put rows into it by other means. So that a tree is not empty
//!    proves nothing. But all pages of the extent are marked, the first one is a leaf, and so are those in front of the zeros that are newer; none behind them
//!    is the tree's (what is there is from an earlier life of the extent); and nothing leads to them.
//! 4. Pages that were freed may be zeros, as the file may have been cut off in front of them: they are not in use, until 1 to 3 take them again.
//!
//! So zeros are in order where they are of undo, or what is left of a load, and are damage elsewhere. Of trees that nobody can use yet, or any more, all are
//! let be.
//!
//! Page, map and tree are not looked at in one moment: somebody may take or free the page in between. So what speaks for damage counts once
//! it was found as often as the page is looked at.

use super::Copy;
use crate::check::{Findings, Trees};
use crate::node::NodeRef;
use crate::page::{self, PageKind, Verdict};
use crate::pass;
use crate::space::{EXTENT_PAGES, Extent, SYSTEM};
use crate::tree::{BTree, TreeRoot};
use crate::undo::UNDO_PAGES;
use crate::{Error, Result};
use gannet_base::{PageId, TreeId};
use gannet_io::{AlignedBuffer, Class};
use std::sync::atomic::Ordering;

impl Copy {
    /// Whether a page that was found as zeros may be so; it is counted then, if it is in use.
    pub(super) fn take_unwritten(&self, id: PageId) -> Result<bool> {
        let is_used =
            |extent: &Extent| extent.owner != TreeId(0) && extent.used & 1 << (id.0 % EXTENT_PAGES) != 0;
        let Some(extent) = pass::extent_of(&self.shared.core, id)?.filter(is_used) else { return Ok(true) };
        let may_be = match extent.owner {
            UNDO_PAGES => {
                self.unwritten_undo.fetch_add(1, Ordering::Relaxed);
                true
            }
            SYSTEM => false,
            tree => match self.root_of(tree) {
                Some(root) => self.is_left_of_load(id, extent)? && !self.leads_to(tree, root, id)?,
                None => true,
            },
        };
        self.unwritten.fetch_add(u64::from(may_be), Ordering::Relaxed);
        Ok(may_be)
    }

    /// The root of a tree that everybody may use; it stays where it is as long as the backup is taken. Trees are looked up once: one that comes later is
    /// let be, and of one that has gone since, what is looked at here is as true as before.
    fn root_of(&self, tree: TreeId) -> Option<PageId> {
        let trees = match self.trees.get() {
            Some(trees) => trees,
            None => {
                // Others may do the same meanwhile: nobody waits for a thread that may be stopped for long.
                let read = Trees::read(&self.shared, &Findings::default());
                self.trees.get_or_init(|| read)
            }
        };
        trees.live.get(&tree).map(|known| known.root)
    }

    /// Whether the page, of zeros, may be one that a bulk load has not come to in its extent.
    fn is_left_of_load(&self, id: PageId, extent: Extent) -> Result<bool> {
        let first = PageId(id.0 / EXTENT_PAGES * EXTENT_PAGES);
        if extent.used != u16::MAX || id == first {
            return Ok(false);
        }
        let mut bytes = AlignedBuffer::zeroed(self.page_size);
        let is_leaf = |bytes: &[u8]| match page::kind(bytes) {
            Some(PageKind::Node) => NodeRef::new(bytes).level() == 0,
            kind => kind == Some(PageKind::Unfilled),
        };
        if !self.is_written_by(extent.owner, first, &mut bytes)? || !is_leaf(&bytes) {
            return Ok(false);
        }
        let begun = page::lsn(&bytes);
        for other in (first.0 + 1..first.0 + EXTENT_PAGES).map(PageId).filter(|&other| other != id) {
            if !self.is_written_by(extent.owner, other, &mut bytes)? {
                continue;
            }
            // In front there may be pages of the tree that are older than the load.
            if other > id || (page::lsn(&bytes) > begun && !is_leaf(&bytes)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the page is one of the tree now; its bytes are in `bytes` then.
    fn is_written_by(&self, tree: TreeId, id: PageId, bytes: &mut AlignedBuffer) -> Result<bool> {
        let volume = &self.shared.core.volume;
        let verdict = if let Some((page, _)) = self.shared.core.pool.resident(volume, id) {
            bytes.copy_from_slice(&page);
            Verdict::Valid
        } else {
            volume.file.read_at(Class::Maintenance, id.0 * self.page_size as u64, bytes)?;
            page::verify(bytes, id, volume.salt)
        };
        Ok(verdict == Verdict::Valid && page::tree(bytes) == tree)
    }

    /// Whether a tree has the page as one of its nodes, as far as the tree can be read.
    fn leads_to(&self, tree: TreeId, root: PageId, id: PageId) -> Result<bool> {
        let root = TreeRoot::new(tree, root, b"", 0);
        let btree = BTree::new(&self.shared.core, &root);
        let mut from = Some(Vec::new());
        while let Some(key) = from {
            self.check_wanted()?;
            match btree.children_from(&key, 1) {
                Ok(children) if children.pages.contains(&id) => return Ok(true),
                Ok(children) => from = children.next,
                Err(Error::NeverWritten(page)) => return Ok(page == id),
                // Damage elsewhere is found in its turn.
                Err(_) => return Ok(false),
            }
        }
        Ok(false)
    }
}
